//! `perf bench numa mem`: processes of threads that write memory for a given time: memory that the process shares, and
//! memory of each thread's own.
//!
//! Memory is zeroed once when it is allocated. With `-0` (`init=cpu0`) this happens on CPU 0. The process's main thread
//! does it for shared memory. After that, all threads zero the memory again and again (`-z`).
//!
//! Each thread goes through the memory from its first byte to its last, with one bzero() of the whole. This corresponds
//! to `--no-data_rand_walk`, which the tests RAM-bw-local and RAM-bw-remote use. The other tests, such as
//! 4x1-bw-thread, zero blocks of 8 KiB at random places (`do_work()`). That is not modelled: there, threads do not
//! follow each other through the memory as they do here.

use super::{Benchmark, Parameter, ParameterKind, Values};
use crate::program::{ProgramBuilder, Times};
use crate::{
    Access, Op, Pattern, Placement, Region, Sharing, Slice, Template, Workload, costs, graph,
};

const MIB: u64 = 1 << 20;

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "perf-bench-numa",
    summary: "perf bench numa mem: processes x threads writing memory; GB/sec",
    parameters: &[
        Parameter {
            name: "processes",
            default: "2",
            meaning: "processes (-p)",
            kind: ParameterKind::Number { min: 1, max: 1_000 },
        },
        Parameter {
            name: "threads",
            default: "3",
            meaning: "threads per process (-t)",
            kind: ParameterKind::Number { min: 1, max: 1_000 },
        },
        Parameter {
            name: "process-mb",
            default: "1024",
            meaning: "MiB that a process's threads share (-P)",
            kind: ParameterKind::Number { min: 0, max: 1_000_000 },
        },
        Parameter {
            name: "thread-mb",
            default: "0",
            meaning: "MiB of each thread's own (-T)",
            kind: ParameterKind::Number { min: 0, max: 1_000_000 },
        },
        Parameter {
            name: "init",
            default: "local",
            meaning: "where memory is touched first: local, or cpu0 (-0)",
            kind: ParameterKind::Choice(&["local", "cpu0"]),
        },
    ],
    // -s 20, as in the bandwidth tests of `perf bench numa mem -a`.
    duration_ns: Some(20_000_000_000),
    warms_up: false,
    build,
};

/// Time of one round of a thread that has nothing to write and only spins. Any value would do.
const SPIN_NS: u64 = 1_000_000;

/// The memory that a thread writes.
struct Memory {
    /// Memory that its process shares, if any.
    process: Option<Access>,
    process_bytes: u64,
    /// Memory of its own, if any.
    own: Option<Access>,
    own_bytes: u64,
}

fn build(values: &Values) -> Workload {
    let mut workload = graph::empty("perf-bench-numa");
    let threads = values.number("threads");
    let on_cpu_0 = values.choice("init") == "cpu0";
    let written = workload.add_counter();
    let own_bytes = u64::from(values.number("thread-mb")) * MIB;
    let own = (own_bytes > 0).then(|| write(&mut workload, own_bytes, Sharing::Thread));
    let process_bytes = u64::from(values.number("process-mb")) * MIB;
    for _ in 0..values.number("processes") {
        let process = workload.fork_process("perf");
        let shared = (process_bytes > 0)
            .then(|| write(&mut workload, process_bytes, Sharing::Process(process)));
        let memory = Memory { process: shared, process_bytes, own: own.clone(), own_bytes };
        let begin = workload.add_barrier(threads);
        for main in (0..threads).map(|thread| thread == 0) {
            let program = program(&memory, begin, written, main, on_cpu_0);
            let template =
                graph::template("thread", costs::SPINNER_FOOTPRINT_BYTES, program.finish());
            workload.start_one(Template { process, ..template });
        }
    }
    let each = 1.0 / f64::from(threads * values.number("processes"));
    workload.metrics.push(graph::rate("total-speed", "GB/sec", written, 1e-9));
    workload.metrics.push(graph::rate("thread-speed", "GB/sec/thread", written, 1e-9 * each));
    workload
}

fn write(workload: &mut Workload, bytes: u64, sharing: Sharing) -> Access {
    let placement = Placement::FirstTouch;
    let region = workload.add_region(Region { bytes, sharing, placement });
    Access::new(vec![Slice { region, write: true }], Pattern::Stream)
}

fn program(
    memory: &Memory,
    begin: u32,
    written: u32,
    main: bool,
    on_cpu_0: bool,
) -> ProgramBuilder {
    let mut program = ProgramBuilder::default();
    program.program_mut().affinities = vec![Some(vec![0]), None];
    let first = memory.process.iter().filter(|_| main).chain(&memory.own).cloned();
    if on_cpu_0 {
        program.push(Op::SetAffinity(0));
    }
    for access in first {
        program.access(access);
    }
    if on_cpu_0 {
        program.push(Op::SetAffinity(1));
    }
    program.push(Op::Barrier(begin));
    program.repeat(Times::Forever, |work| {
        if let Some(process) = &memory.process {
            work.access(process.clone());
            work.push(Op::Count { counter: written, by: memory.process_bytes });
        }
        if let Some(own) = &memory.own {
            work.access(own.clone());
            work.push(Op::Count { counter: written, by: memory.own_bytes });
        }
        if memory.process.is_none() && memory.own.is_none() {
            work.push(Op::Run { ns: SPIN_NS });
        }
    });
    program
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmark::resolve;

    #[test]
    fn threads_share_their_processs_memory_and_have_their_own() {
        let workload =
            resolve("perf-bench-numa:processes=2,threads=3,process-mb=5,thread-mb=7", None)
                .unwrap();
        let bytes: Vec<u64> = workload.regions.iter().map(|region| region.bytes / MIB).collect();
        assert_eq!(bytes, [7, 5, 5]);
        assert_eq!(workload.regions[0].sharing, Sharing::Thread);
        assert_eq!(workload.regions[2].sharing, Sharing::Process(1));
        let processes: Vec<u32> = workload.templates.iter().map(|t| t.process).collect();
        assert_eq!(processes, [0, 0, 0, 1, 1, 1]);
        assert_eq!(workload.barriers, [3, 3]);
    }

    #[test]
    fn with_init_cpu0_one_thread_of_each_process_touches_it_there_first() {
        let workload = resolve("perf-bench-numa:cpu0,threads=2", None).unwrap();
        let ops = |task: usize| &workload.templates[task].program.ops;
        let begin = [Op::SetAffinity(0), Op::Access(0), Op::SetAffinity(1), Op::Barrier(1)];
        assert_eq!(ops(2)[..4], begin, "of the second process");
        assert_eq!(ops(3)[..3], [Op::SetAffinity(0), Op::SetAffinity(1), Op::Barrier(1)]);
        let local = resolve("perf-bench-numa", None).unwrap();
        let pinned = |op: &Op| matches!(op, Op::SetAffinity(_));
        assert!(!local.templates.iter().any(|task| task.program.ops.iter().any(pinned)));
    }

    #[test]
    fn threads_may_have_nothing_but_their_own() {
        // 4x1-bw-thread: -p 1 -t 4 -T 256.
        let workload =
            resolve("perf-bench-numa:processes=1,threads=4,process-mb=0,thread-mb=256", None)
                .unwrap();
        let bytes: Vec<u64> = workload.regions.iter().map(|region| region.bytes / MIB).collect();
        assert_eq!(bytes, [256]);
        let begin = [Op::Access(0), Op::Barrier(0), Op::Access(1)];
        assert_eq!(workload.templates[3].program.ops[..3], begin);
    }

    #[test]
    fn speed_counts_the_bytes_written() {
        let workload = resolve("perf-bench-numa:process-mb=2,thread-mb=3", None).unwrap();
        let counted = workload.templates[0].program.ops.iter().filter_map(|op| match op {
            Op::Count { by, .. } => Some(*by / MIB),
            _ => None,
        });
        assert_eq!(counted.collect::<Vec<_>>(), [2, 3]);
    }
}
