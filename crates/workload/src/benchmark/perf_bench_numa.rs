//! `perf bench numa mem`: processes of threads that write memory for a given time: memory that the process shares, and
//! memory of each thread's own.
//!
//! It follows numa.c of Linux 3.9 (tools/perf/bench):
//!
//! - The main thread of each process allocates what its threads share, creates them, and waits until they end. Each
//!   thread allocates its own memory. With `-0` (`init=cpu0`) who allocates is bound to the node of CPU 0 meanwhile.
//! - The program that was started holds a mutex. When all threads are ready it releases it, and they pass it on, one
//!   after the other. From then on time counts.
//! - Threads zero memory (`-Z`) in blocks of 8 KiB at random places, as `do_work()` does without `--no-data_rand_walk`.
//!   That is how all tests of `-a` run, except those whose names begin with RAM. In each round, first comes a MiB that
//!   all processes share (`-G`), then the process's memory, then the thread's.
//!
//! A thread notices after a round that the time is over. Here the rounds that are under way then do not count.

use super::{Benchmark, Parameter, ParameterKind, Values};
use crate::program::{ProgramBuilder, Times};
use crate::{
    Access, Better, Channel, ChannelKind, Cpus, Metric, MetricKind, Op, Pattern, Placement, Region,
    Sharing, Slice, Template, TemplateId, Workload, costs, graph,
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

/// What all processes share (`-G`): a MiB by default.
const GLOBAL_BYTES: u64 = MIB;

/// What threads and processes share.
struct Shared {
    /// Whether memory is allocated on the node of CPU 0.
    on_cpu_0: bool,
    /// Each thread sends a byte when it is ready.
    ready: u32,
    /// The mutex that starts the threads.
    start: u32,
    /// The counter of bytes.
    written: u32,
    global: u32,
}

fn build(values: &Values) -> Workload {
    let mut workload = graph::empty("perf-bench-numa");
    let (processes, threads) = (values.number("processes"), values.number("threads"));
    let program = workload.add_process("perf");
    let shared = Shared {
        on_cpu_0: values.choice("init") == "cpu0",
        ready: add_channel(&mut workload),
        start: workload.add_mutex(),
        written: workload.add_counter(),
        global: add_region(&mut workload, GLOBAL_BYTES, Sharing::Processes),
    };
    let bytes_of =
        |name: &'static str| Some(u64::from(values.number(name)) * MIB).filter(|&bytes| bytes > 0);
    let own = bytes_of("thread-mb").map(|bytes| add_region(&mut workload, bytes, Sharing::Thread));
    let mains: Vec<TemplateId> = (0..processes)
        .map(|_| {
            let process = workload.fork_process("perf");
            let common = bytes_of("process-mb")
                .map(|bytes| add_region(&mut workload, bytes, Sharing::Process(process)));
            let thread = thread(&workload, &shared, common, own);
            let thread = add_template(&mut workload, process, "thread", thread);
            let main = main_thread(&mut workload, &shared, common, thread, threads);
            add_template(&mut workload, process, "main", main)
        })
        .collect();
    let clock = workload.add_barrier(1);
    let starter = starter(&mut workload, &shared, &mains, processes * threads, clock);
    workload.start_one(Template {
        process: program,
        ..graph::template("perf", costs::SPINNER_FOOTPRINT_BYTES, starter.finish())
    });
    let rate = |name: &str, unit, scale| Metric {
        name: name.to_string(),
        unit,
        better: Better::Higher,
        kind: MetricKind::Rate { counter: shared.written, since: Some(clock), scale },
    };
    workload.metrics.push(rate("total-speed", "GB/sec", 1e-9));
    let each = 1e-9 / f64::from(processes * threads);
    workload.metrics.push(rate("thread-speed", "GB/sec/thread", each));
    workload
}

fn add_channel(workload: &mut Workload) -> u32 {
    workload.add_channel(Channel {
        capacity_bytes: u32::MAX,
        sync_wakeup: false,
        kind: ChannelKind::Stream,
        softirq_ns: 0,
    })
}

fn add_region(workload: &mut Workload, bytes: u64, sharing: Sharing) -> u32 {
    workload.add_region(Region { bytes, sharing, placement: Placement::FirstTouch })
}

fn add_template(
    workload: &mut Workload,
    process: u32,
    class: &str,
    program: ProgramBuilder,
) -> TemplateId {
    let template = graph::template(class, costs::SPINNER_FOOTPRINT_BYTES, program.finish());
    workload.templates.push(Template { process, ..template });
    workload.templates.len() as TemplateId - 1
}

fn write(region: u32, pattern: Pattern) -> Access {
    Access::new(vec![Slice { region, write: true }], pattern)
}

/// The program that was started (`__bench_numa()`). It waits for the end of its processes, which is that of the run.
fn starter(
    workload: &mut Workload,
    shared: &Shared,
    mains: &[TemplateId],
    threads: u32,
    clock: u32,
) -> ProgramBuilder {
    let mut program = ProgramBuilder::default();
    allocate(&mut program, shared, Some(shared.global));
    program.push(Op::Lock(shared.start));
    for &main in mains {
        program.push(Op::Fork(main));
    }
    program.repeat(Times::Exactly(threads.into()), |ready| {
        ready.push(Op::Receive { channel: shared.ready, bytes: 1 });
    });
    program.push(Op::Barrier(clock)).push(Op::Unlock(shared.start));
    program.push(Op::Receive { channel: add_channel(workload), bytes: 1 });
    program
}

/// The main thread of a process (`worker_process()`).
fn main_thread(
    workload: &mut Workload,
    shared: &Shared,
    common: Option<u32>,
    thread: TemplateId,
    threads: u32,
) -> ProgramBuilder {
    let mut program = ProgramBuilder::default();
    allocate(&mut program, shared, common);
    for _ in 0..threads {
        program.push(Op::Fork(thread));
    }
    program.push(Op::Receive { channel: add_channel(workload), bytes: 1 });
    program
}

/// Allocates memory and writes it once (`alloc_data()`).
fn allocate(program: &mut ProgramBuilder, shared: &Shared, region: Option<u32>) {
    let Some(region) = region else { return };
    program.program_mut().affinities = vec![Some(Cpus::NodeOf(0)), None];
    if shared.on_cpu_0 {
        program.push(Op::SetAffinity(0));
    }
    program.access(write(region, Pattern::Stream));
    if shared.on_cpu_0 {
        program.push(Op::SetAffinity(1));
    }
}

/// A thread (`worker_thread()`).
fn thread(
    workload: &Workload,
    shared: &Shared,
    common: Option<u32>,
    own: Option<u32>,
) -> ProgramBuilder {
    let mut program = ProgramBuilder::default();
    allocate(&mut program, shared, own);
    program.push(Op::Send { channel: shared.ready, bytes: 1 });
    program.push(Op::Lock(shared.start)).push(Op::Unlock(shared.start));
    program.repeat(Times::Forever, |round| {
        for region in [Some(shared.global), common, own].into_iter().flatten() {
            let by = workload.regions[region as usize].bytes;
            round.access(write(region, Pattern::RandomBlocks));
            round.push(Op::Count { counter: shared.written, by });
        }
    });
    program
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Program;
    use crate::benchmark::resolve;

    fn built(spec: &str) -> Workload {
        resolve(&format!("perf-bench-numa:{spec}"), None).unwrap()
    }

    fn of_class<'a>(workload: &'a Workload, class: &str) -> Vec<&'a Template> {
        workload.templates.iter().filter(|template| template.class == class).collect()
    }

    /// Sizes in MiB of the regions that a program writes at random places, in order.
    fn written(workload: &Workload, program: &Program) -> Vec<u64> {
        let random = program.accesses.iter().filter(|all| all.pattern == Pattern::RandomBlocks);
        random.map(|all| workload.regions[all.slices[0].region as usize].bytes / MIB).collect()
    }

    #[test]
    fn threads_write_what_all_share_then_their_processs_memory_then_their_own() {
        let workload = built("processes=2,threads=3,process-mb=5,thread-mb=7");
        let threads = of_class(&workload, "thread");
        let common = |thread: &Template| {
            let slice = thread.program.accesses[2].slices[0];
            workload.regions[slice.region as usize].sharing
        };
        assert_eq!(threads.len(), 2, "a kind of thread for each process");
        for thread in threads {
            assert_eq!(written(&workload, &thread.program), [1, 5, 7]);
            assert_eq!(common(thread), Sharing::Process(thread.process));
        }
        let counted: Vec<u64> = workload.templates[0]
            .program
            .ops
            .iter()
            .filter_map(|op| match op {
                Op::Count { by, .. } => Some(*by / MIB),
                _ => None,
            })
            .collect();
        assert_eq!(counted, [1, 5, 7]);
        // 4x1-bw-thread: -p 1 -t 4 -T 256.
        let workload = built("processes=1,threads=4,process-mb=0,thread-mb=256");
        assert_eq!(written(&workload, &workload.templates[0].program), [1, 256]);
    }

    #[test]
    fn with_init_cpu0_who_allocates_is_bound_to_that_node_meanwhile() {
        let workload = built("cpu0,processes=2,threads=2,thread-mb=3");
        let bound = [Op::SetAffinity(0), Op::Access(0), Op::SetAffinity(1)];
        assert_eq!(workload.templates.len(), 5);
        for template in &workload.templates {
            assert_eq!(template.program.ops[..3], bound, "{}", template.class);
            assert_eq!(template.program.affinities, [Some(Cpus::NodeOf(0)), None]);
        }
        let pinned = |op: &Op| matches!(op, Op::SetAffinity(_));
        let local = built("local");
        assert!(!local.templates.iter().any(|task| task.program.ops.iter().any(pinned)));
    }

    #[test]
    fn the_started_program_lets_the_threads_go_when_all_are_ready() {
        let workload = built("local,processes=2,threads=3,process-mb=1");
        let starter = &of_class(&workload, "perf")[0].program;
        let [allocated, ops @ ..] = &starter.ops[..] else { panic!("no operation") };
        assert_eq!(*allocated, Op::Access(0));
        let ready = Op::Receive { channel: 0, bytes: 1 };
        let all =
            [Op::Lock(0), Op::Fork(1), Op::Fork(3), ready, Op::Loop { depth: 0, times: 6, to: 4 }];
        assert_eq!(ops[..5], all);
        assert_eq!(ops[5..7], [Op::Barrier(0), Op::Unlock(0)], "the clock starts");
        let thread = &of_class(&workload, "thread")[0].program;
        let passes = [Op::Send { channel: 0, bytes: 1 }, Op::Lock(0), Op::Unlock(0)];
        assert_eq!(thread.ops[..3], passes);
    }
}
