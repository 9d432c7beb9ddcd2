//! Builds programs without counting operations by hand.

use crate::{Access, Op, Program};

/// How often the body of a loop runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Times {
    /// Until the run ends.
    Forever,
    /// This number of times, at least once.
    Exactly(u64),
}

/// Appends operations. Nested calls of [`ProgramBuilder::repeat`] give nested loops.
#[derive(Default)]
pub(crate) struct ProgramBuilder {
    program: Program,
    open_loops: u8,
}

impl ProgramBuilder {
    /// Appends one operation.
    pub(crate) fn push(&mut self, op: Op) -> &mut Self {
        self.program.ops.push(op);
        self
    }

    /// Appends several operations.
    pub(crate) fn extend(&mut self, ops: &[Op]) -> &mut Self {
        self.program.ops.extend_from_slice(ops);
        self
    }

    /// Appends a sweep over memory.
    pub(crate) fn access(&mut self, access: Access) -> &mut Self {
        let number = self.program.accesses.len() as u32;
        self.program.accesses.push(access);
        self.push(Op::Access(number))
    }

    /// Number of operations so far, which is the index of the next one.
    pub(crate) fn len(&self) -> usize {
        self.program.ops.len()
    }

    /// Appends a loop around the operations that `body` appends. A body that runs once needs no loop.
    pub(crate) fn repeat(&mut self, times: Times, body: impl FnOnce(&mut Self)) {
        let times = match times {
            Times::Exactly(1) => return body(self),
            Times::Exactly(count) => count,
            Times::Forever => 0,
        };
        let to = self.program.ops.len() as u32;
        let depth = self.open_loops;
        self.open_loops += 1;
        self.program.loop_depth = self.program.loop_depth.max(self.open_loops);
        body(self);
        self.open_loops -= 1;
        self.program.ops.push(Op::Loop { depth, times, to });
    }

    /// The program, to fill its tables other than operations.
    pub(crate) fn program_mut(&mut self) -> &mut Program {
        &mut self.program
    }

    /// The finished program.
    pub(crate) fn finish(self) -> Program {
        self.program
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_loops_use_a_counter_each_and_jump_to_their_first_operation() {
        let mut program = ProgramBuilder::default();
        program.repeat(Times::Forever, |outer| {
            outer.push(Op::Yield);
            outer.repeat(Times::Exactly(3), |inner| {
                inner.push(Op::Run { ns: 1 });
            });
        });
        let program = program.finish();
        assert_eq!(program.loop_depth, 2);
        assert_eq!(program.ops[2], Op::Loop { depth: 1, times: 3, to: 1 });
        assert_eq!(program.ops[3], Op::Loop { depth: 0, times: 0, to: 0 });
    }

    #[test]
    fn a_body_that_runs_once_is_no_loop() {
        let mut program = ProgramBuilder::default();
        program.repeat(Times::Exactly(1), |body| {
            body.push(Op::Yield);
        });
        assert_eq!(program.finish(), Program { ops: vec![Op::Yield], ..Program::default() });
    }
}
