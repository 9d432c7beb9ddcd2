//! Refuses programs that the kernel's verifier refuses because of what a pointer points to.
//!
//! The simulation checks addresses when a program uses them, but all objects of the simulated kernel are in the memory
//! that programs may access. A program that writes `p->pid`, or that gives a task to a function which takes a cpumask,
//! would run and give figures, although no kernel loads it. So its code is checked before it runs:
//!
//! 1. Pointers are followed from where they come from: arguments of hooks, members of the kernel's structs, results of
//!    kfuncs, addresses of maps and variables. They are followed through registers and the function's own stack
//!    (`value.rs`), from each jump to its target and from each call to the function, until nothing changes.
//! 2. Where ways through the code meet, a register keeps what holds for all of them.
//! 3. What an instruction then does with such a pointer is compared with the kernel's rules (`rules.rs`): reads and
//!    writes, arguments of kfuncs and helpers, kinds of maps.
//!
//! A program that the kernel takes must never be refused here. So all that is not followed may be anything: values of
//! maps, pointers in unions, what functions of the program return. A branch that is decided by a constant is followed
//! only where it leads. The verifier does not look at the other side either, and programs have code there for other
//! kernels. What the verifier checks besides (bounds of values, NULL, references, locks, loops) is not checked.

mod rules;
mod value;

use std::collections::{BTreeMap, BTreeSet};

use crate::class::HOOKS;
use crate::error::ScxError;
use crate::instruction::{CALL, Instruction, LOAD_64, class};
use crate::interpret::operation::{
    ALWAYS, ATOMIC, CALL_OPERATION, COMPARE_AND_EXCHANGE, EQUAL, EXIT, FETCH, JMP, JMP_32,
    LOAD_ACQUIRE, MAY_GOTO, MEM, MEMSX, MODE, OPERATION, REGISTER, STORE_RELEASE, UNEQUAL,
};
use crate::interpret::{access_bytes, compares};
use crate::kernel_names::Resolved;
use crate::object::Target;
use crate::program::Program;
use crate::relocate::POISON;

use rules::KernelRules;
use value::{NULL, State, Value};

/// If more instructions are followed, the program is not checked. The verifier gives up after as many
/// (BPF_COMPLEXITY_LIMIT_INSNS). Known programs take less than 20,000.
const MOST_STEPS: usize = 1_000_000;

/// Checks what a program does with pointers.
///
/// # Errors
/// If the kernel would refuse the program for it.
pub(crate) fn check(program: &Program) -> Result<(), ScxError> {
    let mut flow = Flow::new(program);
    flow.start();
    match flow.follow_all().then(|| flow.refusal()).flatten() {
        Some((at, why)) => {
            Err(ScxError::Refused(format!("it {why}, in {}", program.object.place(at))))
        }
        None => Ok(()),
    }
}

/// What registers and stack hold wherever ways through the code meet.
struct Flow<'a> {
    program: &'a Program,
    code: &'a [Instruction],
    rules: KernelRules<'a>,
    /// Whether an instruction is the target of a jump or the first of a function.
    meets: Vec<bool>,
    /// Before these instructions.
    states: BTreeMap<usize, State>,
    /// Those whose state has changed since they were followed.
    waiting: BTreeSet<usize>,
    /// Whether there is a jump to a place that is not known.
    lost: bool,
}

impl<'a> Flow<'a> {
    fn new(program: &'a Program) -> Self {
        let code = &program.code[..];
        let mut meets = vec![false; code.len()];
        let jumps = code.iter().enumerate().filter_map(|(at, &jump)| target(at, jump));
        let functions = program.object.functions.iter().map(|function| function.start);
        for at in jumps.chain(functions) {
            if let Some(meets) = meets.get_mut(at) {
                *meets = true;
            }
        }
        let (states, waiting) = (BTreeMap::new(), BTreeSet::new());
        Self {
            program,
            code,
            rules: KernelRules::new(program),
            meets,
            states,
            waiting,
            lost: false,
        }
    }

    /// Begins at each hook that is called, and at each function that the loader had run.
    fn start(&mut self) {
        let hooks = self.program.object.operations.hooks.iter().enumerate();
        for (number, (name, at)) in hooks {
            if HOOKS.contains(&name.as_str()) {
                let mut arguments = [Value::Unset; 5];
                arguments[0] = Value::Arguments(number);
                self.enter(*at, arguments);
            }
        }
        for run in &self.program.runs {
            // A program of another kind, which may write its argument.
            self.enter(run.at, [Value::Unknown; 5]);
        }
    }

    /// Comes to the beginning of a function.
    fn enter(&mut self, function: usize, arguments: [Value; 5]) {
        if let Some(meets) = self.meets.get_mut(function) {
            *meets = true;
            self.reach(function, &State::entry(arguments.map(Value::given)));
        }
    }

    /// Comes to a place where ways may meet.
    fn reach(&mut self, at: usize, state: &State) {
        let changed = match self.states.get_mut(&at) {
            Some(known) => known.join(state),
            None => {
                self.states.insert(at, state.clone());
                true
            }
        };
        if changed {
            self.waiting.insert(at);
        }
    }

    /// Follows all ways until nothing changes. Returns whether that succeeded.
    fn follow_all(&mut self) -> bool {
        let mut steps = 0;
        while let Some(start) = self.waiting.pop_first() {
            let Some(mut state) = self.states.get(&start).cloned() else { continue };
            let mut next = Some(start);
            while let Some(at) = next {
                steps += 1;
                if steps > MOST_STEPS || self.lost {
                    return false;
                }
                next = self.step(at, &mut state);
                if let Some(at) = next.filter(|&at| self.meets_at(at)) {
                    self.reach(at, &state);
                    break;
                }
            }
        }
        !self.lost
    }

    /// The first instruction that the kernel refuses, and why.
    fn refusal(&mut self) -> Option<(usize, String)> {
        let starts: Vec<usize> = self.states.keys().copied().collect();
        for start in starts {
            let mut state = self.states.get(&start)?.clone();
            let mut next = Some(start);
            while let Some(at) = next {
                if let Some(why) = self.refuses(at, &state) {
                    return Some((at, why));
                }
                // Nothing changes any more where ways meet.
                next = self.step(at, &mut state).filter(|&at| !self.meets_at(at));
            }
        }
        None
    }

    /// Whether ways may meet before an instruction.
    fn meets_at(&self, at: usize) -> bool {
        self.meets.get(at) == Some(&true)
    }

    /// Executes an instruction. Returns the one that follows it, if it is not the last of its way.
    fn step(&mut self, at: usize, state: &mut State) -> Option<usize> {
        let instruction = *self.code.get(at)?;
        let Instruction { code, dst, src, offset, imm } = instruction;
        let operation = code & OPERATION;
        match instruction.class() {
            class::ALU64 => {
                let other = operand(instruction, state);
                state.set(dst, state.register(dst).after_64(operation, offset, other));
            }
            class::ALU => {
                let other = operand(instruction, state);
                state.set(dst, state.register(dst).after_32(operation, offset, other));
            }
            class::LDX => state.set(dst, self.loaded(instruction, state)),
            class::ST => {
                let value = Value::Number(Some(i64::from(imm) as u64));
                state.write(state.register(dst), offset, access_bytes(code), value);
            }
            class::STX if code & MODE == MEM => {
                state.write(state.register(dst), offset, access_bytes(code), state.register(src));
            }
            class::STX => self.step_atomic(instruction, state),
            class::LD => return self.step_wide(at, instruction, state),
            _ => return self.step_jump(at, instruction, state),
        }
        Some(at + 1)
    }

    /// What a load reads.
    fn loaded(&self, instruction: Instruction, state: &State) -> Value {
        let Instruction { code, src, offset, .. } = instruction;
        let (pointer, bytes) = (state.register(src), access_bytes(code));
        if let Value::Data { section, offset: start } = pointer
            && code & MODE != MEMSX
        {
            let at = i64::from(start) + i64::from(offset);
            if let Some(number) = self.rules.constant(section, at, bytes) {
                return Value::Number(Some(number));
            }
        }
        match pointer {
            Value::Setting(number) if offset == 0 && bytes == 8 => Value::Number(Some(number)),
            Value::Setting(number) if offset == 0 && bytes == 4 => {
                Value::Number(Some((number as u32).into()))
            }
            _ if bytes < 8 => Value::Number(None),
            Value::Stack(start) => state.slot(start.saturating_add(offset.into())),
            Value::Any => Value::Any,
            Value::Object { of, offset: start } => {
                self.rules.member(of, i64::from(start) + i64::from(offset))
            }
            Value::Arguments(hook) => self.rules.argument(hook, offset),
            _ => Value::Unknown,
        }
    }

    /// Executes an atomic operation.
    fn step_atomic(&self, instruction: Instruction, state: &mut State) {
        let Instruction { code, dst, src, offset, imm } = instruction;
        if imm == LOAD_ACQUIRE {
            return state.set(dst, self.loaded(instruction, state));
        }
        let value = if imm == STORE_RELEASE { state.register(src) } else { Value::Unknown };
        state.write(state.register(dst), offset, access_bytes(code), value);
        match imm {
            STORE_RELEASE => {}
            COMPARE_AND_EXCHANGE => state.set(0, Value::Unknown),
            _ if imm & FETCH != 0 => state.set(src, Value::Unknown),
            _ => {}
        }
    }

    /// Executes a load of 64 bits.
    fn step_wide(
        &mut self,
        at: usize,
        instruction: Instruction,
        state: &mut State,
    ) -> Option<usize> {
        if instruction.code != LOAD_64 {
            state.set(0, Value::Unknown);
            return Some(at + 1);
        }
        let upper = self.code.get(at + 1)?.imm;
        let value = match self.reference(at) {
            Some(Target::Map(map)) => Value::Map(map),
            Some(Target::Data { section, offset }) => self.rules.variable(section, offset),
            Some(Target::Function(function)) => {
                // The kernel calls it back.
                self.enter(function, [Value::Unknown; 5]);
                Value::Unknown
            }
            Some(Target::Extern(index)) => match self.program.externs.get(index) {
                Some(Resolved::Missing | Resolved::Differs) => NULL,
                Some(Resolved::Function(_)) => Value::Number(Some(1)),
                Some(Resolved::Config) => Value::Setting(self.program.configured(index)),
                _ => Value::Unknown,
            },
            None if instruction.src == 0 => {
                let (lower, upper) = (instruction.imm as u32, upper as u32);
                Value::Number(Some(u64::from(lower) | u64::from(upper) << 32))
            }
            _ => Value::Unknown,
        };
        state.set(instruction.dst, value);
        Some(at + 2)
    }

    /// Executes a jump or a call.
    fn step_jump(
        &mut self,
        at: usize,
        instruction: Instruction,
        state: &mut State,
    ) -> Option<usize> {
        let Instruction { code, dst, .. } = instruction;
        let wide = instruction.class() == JMP;
        let operation = code & OPERATION;
        match (operation, wide) {
            (CALL_OPERATION, true) => return self.step_call(at, instruction, state),
            (EXIT, true) => return None,
            (ALWAYS, _) => {
                let to = target(at, instruction);
                self.lost |= to.is_none();
                return to;
            }
            (MAY_GOTO, true) => {
                self.reach(target(at, instruction)?, state);
                return Some(at + 1);
            }
            _ => {}
        }
        let to = target(at, instruction)?;
        let other = operand(instruction, state);
        if let (Value::Number(Some(a)), Value::Number(Some(b))) = (state.register(dst), other) {
            return Some(if compares(operation, wide, a, b)? { to } else { at + 1 });
        }
        match operation {
            EQUAL if wide => {
                let before = state.register(dst);
                state.equals(dst, other);
                self.reach(to, state);
                state.set(dst, before);
            }
            UNEQUAL if wide => {
                self.reach(to, state);
                state.equals(dst, other);
            }
            _ => {
                compares(operation, wide, 0, 0)?;
                self.reach(to, state);
            }
        }
        Some(at + 1)
    }

    /// Executes a call. After one that cannot be made, nothing follows: the verifier has found that it is not reached.
    fn step_call(
        &mut self,
        at: usize,
        instruction: Instruction,
        state: &mut State,
    ) -> Option<usize> {
        let result = match (instruction.helper(), self.reference(at)) {
            (Some(number), _) if number == POISON as u32 => return None,
            (Some(number), _) => self.rules.helper_result(number),
            (None, Some(Target::Function(function))) => {
                let [_, a, b, c, d, e, ..] = state.registers;
                self.enter(function, [a, b, c, d, e]);
                Value::Unknown
            }
            (None, Some(Target::Extern(index))) => match self.program.externs.get(index)? {
                Resolved::Function(_) => self.rules.kfunc_result(index),
                _ => return None,
            },
            _ => Value::Unknown,
        };
        state.returned(result);
        Some(at + 1)
    }

    /// What an instruction refers to.
    fn reference(&self, at: usize) -> Option<Target> {
        let references = &self.program.object.references;
        let found = references.binary_search_by_key(&at, |reference| reference.at).ok()?;
        references.get(found).map(|reference| reference.to)
    }

    /// Why the kernel refuses an instruction.
    fn refuses(&self, at: usize, state: &State) -> Option<String> {
        let instruction = *self.code.get(at)?;
        let Instruction { code, dst, src, offset, imm } = instruction;
        let bytes = access_bytes(code);
        match instruction.class() {
            class::LDX => self.rules.refuses_read(state.register(src), offset, bytes),
            class::STX if code & MODE == ATOMIC && imm == LOAD_ACQUIRE => {
                self.rules.refuses_read(state.register(src), offset, bytes)
            }
            class::ST | class::STX => self.rules.refuses_write(state.register(dst), offset, bytes),
            _ if code == CALL => {
                let given = &state.registers[1..6];
                match (instruction.helper(), self.reference(at)) {
                    (Some(number), _) => self.rules.refuses_helper(number, given),
                    (None, Some(Target::Extern(index))) => self.rules.refuses_kfunc(index, given),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

/// The second operand: a register, or the sign-extended immediate.
fn operand(instruction: Instruction, state: &State) -> Value {
    match instruction.code & REGISTER {
        0 => Value::Number(Some(i64::from(instruction.imm) as u64)),
        _ => state.register(instruction.src),
    }
}

/// Where a jump leads that is taken. `None`: it is no jump, or leads to a place in a register.
fn target(at: usize, jump: Instruction) -> Option<usize> {
    let wide = jump.class() == JMP;
    if !wide && jump.class() != JMP_32 {
        return None;
    }
    let distance = match (jump.code & OPERATION, wide) {
        (CALL_OPERATION | EXIT, _) => return None,
        (ALWAYS, _) if jump.code & REGISTER != 0 => return None,
        (ALWAYS, false) => i64::from(jump.imm),
        _ => i64::from(jump.offset),
    };
    usize::try_from(i64::try_from(at).ok()?.checked_add(1)?.checked_add(distance)?).ok()
}

#[cfg(test)]
mod tests;
