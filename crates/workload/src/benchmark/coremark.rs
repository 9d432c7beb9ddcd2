//! coremark: independent threads that compute and never wait. Caches and SMT decide the score.

use super::{Benchmark, Parameter, ParameterKind, Values};
use crate::program::{ProgramBuilder, Times};
use crate::{Op, Workload, costs, graph};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "coremark",
    summary: "independent compute-bound threads; score: the sum of their iterations a second",
    parameters: &[Parameter {
        name: "threads",
        default: "1",
        meaning: "number of threads",
        kind: ParameterKind::Number { min: 1, max: 50_000 },
    }],
    duration_ns: Some(5_000_000_000),
    warms_up: false,
    build,
};

fn build(values: &Values) -> Workload {
    let mut workload = graph::empty("coremark");
    workload.add_process("coremark");
    let iterations = workload.add_counter();
    let mut program = ProgramBuilder::default();
    program.repeat(Times::Forever, |batch| {
        batch.extend(&[
            Op::Run { ns: costs::COREMARK_ITERATION_NS * costs::COREMARK_BATCH },
            Op::Count { counter: iterations, by: costs::COREMARK_BATCH },
        ]);
    });
    let footprint = costs::COREMARK_FOOTPRINT_BYTES;
    workload.templates.push(graph::template("coremark", footprint, program.finish()));
    workload.start.push((0, values.number("threads")));
    workload.metrics.push(graph::rate("Score", "iterations/s", iterations, 1.0));
    workload
}

#[cfg(test)]
mod tests {
    use crate::Op;
    use crate::benchmark::resolve;

    #[test]
    fn threads_compute_and_never_wait() {
        let workload = resolve("coremark:threads=16", None).unwrap();
        assert_eq!(workload.start, [(0, 16)]);
        let ops = &workload.templates[0].program.ops;
        assert!(matches!(ops[..], [Op::Run { .. }, Op::Count { .. }, Op::Loop { times: 0, .. }]));
    }
}
