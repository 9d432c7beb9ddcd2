//! The benchmarks of autonuma-benchmark: threads that zero memory again and again.
//!
//! They follow its numa01.c and numa02.c (github.com/pholasek/autonuma-benchmark). The main thread creates the other
//! threads and waits for them. All memory is on one node at first, so the benchmarks show how well a kernel brings
//! threads and memory together:
//!
//! - In numa02, the main thread zeroes all memory on the node where it happens to run, before it creates the others.
//! - In numa01, the threads bind their first sweep to one node (`-DNO_BIND_FORCE_SAME_NODE`). The Makefile builds
//!   numa01 and numa01_THREAD_ALLOC in this way; its first version built it as a separate case. While the threads are
//!   bound, NUMA balancing moves nothing for them.
//!
//! The original counts the CPUs of its machine. Here the parameter `cpus` gives their number.

use super::{Benchmark, Parameter, ParameterKind, Values};
use crate::program::{ProgramBuilder, Times};
use crate::{
    Access, Better, Channel, ChannelKind, Metric, MetricKind, Op, Pattern, Placement, Region,
    Sharing, Slice, Template, Workload, costs, graph,
};

const GIB: u64 = 1 << 30;

/// numa01.c, SIZE: the memory that the threads of one process share.
const NUMA01_BYTES: u64 = 3 * GIB;
/// numa01.c: how often each thread zeroes the whole buffer after its first sweep.
const NUMA01_SWEEPS: u64 = 50;
/// numa01.c with THREAD_ALLOC: how often each thread zeroes its own part.
const THREAD_ALLOC_SWEEPS: u64 = 1000;
/// numa02.c, SIZE: the memory of all threads together.
const NUMA02_BYTES: u64 = GIB;
/// numa02.c, TOTALSIZE / SIZE: how often each thread zeroes its part.
const NUMA02_SWEEPS: u64 = 800;
/// Number of processes of numa01, with and without THREAD_ALLOC.
const NUMA01_PROCESSES: u32 = 2;

/// The limit is one thread per page group, which is more than any machine has CPUs.
const CPUS: Parameter = Parameter {
    name: "cpus",
    default: "64",
    meaning: "CPUs of the machine, which the original counts",
    kind: ParameterKind::Number { min: 2, max: 4096 },
};

/// numa01.c: `(time(NULL) & 1) + 1` is the mask of the node.
const NODE: Parameter = Parameter {
    name: "node",
    default: "0",
    meaning: "node of all memory at first; the original chooses 0 or 1 by the clock",
    kind: ParameterKind::Number { min: 0, max: 1 },
};

/// Whether numa01 is built with NO_BIND_FORCE_SAME_NODE.
const SAME_NODE: Parameter = Parameter {
    name: "same_node",
    default: "1",
    meaning: "1: all memory is on one node at first; 0: it is where threads touch it first, as in early versions",
    kind: ParameterKind::Number { min: 0, max: 1 },
};

pub(super) const NUMA01: Benchmark = Benchmark {
    name: "numa01",
    summary: "two processes of cpus/2 threads, each zeroing its process's 3 GiB 51 times; seconds",
    parameters: &[CPUS, NODE, SAME_NODE],
    duration_ns: None,
    warms_up: false,
    build: build_numa01,
};

pub(super) const NUMA01_THREAD_ALLOC: Benchmark = Benchmark {
    name: "numa01_THREAD_ALLOC",
    summary: "numa01, but after the first time each thread zeroes only its own part, 1000 times",
    parameters: &[CPUS, NODE, SAME_NODE],
    duration_ns: None,
    warms_up: false,
    build: build_thread_alloc,
};

pub(super) const NUMA02: Benchmark = Benchmark {
    name: "numa02",
    summary: "one process of cpus threads, each zeroing its part of 1 GiB 800 times; seconds",
    parameters: &[CPUS],
    duration_ns: None,
    warms_up: false,
    build: |values| build_numa02("numa02", values.number("cpus")),
};

pub(super) const NUMA02_SMT: Benchmark = Benchmark {
    name: "numa02_SMT",
    summary: "numa02 with cpus/2 threads, which are fastest with a core each; seconds",
    parameters: &[CPUS],
    duration_ns: None,
    warms_up: false,
    build: |values| build_numa02("numa02_SMT", values.number("cpus") / 2),
};

fn build_numa01(values: &Values) -> Workload {
    let mut workload = graph::empty("numa01");
    for number in 0..NUMA01_PROCESSES {
        let process = numa01_process(&mut workload, number);
        let region = buffer(&mut workload, process, NUMA01_BYTES, numa01_placement(values));
        let mut program = ProgramBuilder::default();
        program.access(first_zero(region, values));
        program.repeat(Times::Exactly(NUMA01_SWEEPS), |sweep| {
            sweep.access(zero(region));
        });
        let threads = vec![thread(process, program); values.number("cpus") as usize / 2];
        start(&mut workload, process, ProgramBuilder::default(), threads);
    }
    workload.metrics.push(seconds());
    workload
}

fn build_thread_alloc(values: &Values) -> Workload {
    let mut workload = graph::empty("numa01_THREAD_ALLOC");
    let threads = values.number("cpus") / 2;
    for number in 0..NUMA01_PROCESSES {
        let process = numa01_process(&mut workload, number);
        let mut part = |_| {
            let bytes = NUMA01_BYTES / u64::from(threads);
            buffer(&mut workload, process, bytes, numa01_placement(values))
        };
        let parts: Vec<u32> = (0..threads).map(&mut part).collect();
        let zeroing = |own: u32| {
            let mut program = ProgramBuilder::default();
            for &part in &parts {
                program.access(first_zero(part, values));
            }
            program.repeat(Times::Exactly(THREAD_ALLOC_SWEEPS), |sweep| {
                sweep.access(zero(own));
            });
            thread(process, program)
        };
        let threads = parts.iter().copied().map(zeroing).collect();
        start(&mut workload, process, ProgramBuilder::default(), threads);
    }
    workload.metrics.push(seconds());
    workload
}

fn build_numa02(name: &str, threads: u32) -> Workload {
    let mut workload = graph::empty(name);
    let process = workload.add_process(name);
    let mut main = ProgramBuilder::default();
    let zeroing = |_| {
        let bytes = NUMA02_BYTES / u64::from(threads);
        let part = buffer(&mut workload, process, bytes, Placement::FirstTouch);
        main.access(zero(part));
        let mut program = ProgramBuilder::default();
        program.repeat(Times::Exactly(NUMA02_SWEEPS), |sweep| {
            sweep.access(zero(part));
        });
        thread(process, program)
    };
    let threads = (0..threads).map(zeroing).collect();
    start(&mut workload, process, main, threads);
    workload.metrics.push(seconds());
    workload
}

/// numa01 forks once: the first process is the program that was started, the second is its copy.
fn numa01_process(workload: &mut Workload, number: u32) -> u32 {
    if number == 0 { workload.add_process("numa01") } else { workload.fork_process("numa01") }
}

/// A process whose main thread executes `main`, creates the other threads, and waits for each of them in turn
/// (`pthread_join()`). Each thread tells it when it is done.
fn start(workload: &mut Workload, process: u32, mut main: ProgramBuilder, threads: Vec<Template>) {
    let mut ends = Vec::new();
    for mut template in threads {
        let end = Channel {
            capacity_bytes: 1,
            sync_wakeup: false,
            kind: ChannelKind::Stream,
            softirq_ns: 0,
        };
        let channel = workload.add_channel(end);
        template.program.ops.push(Op::Send { channel, bytes: 1 });
        workload.templates.push(template);
        main.push(Op::Fork(workload.templates.len() as u32 - 1));
        ends.push(Op::Receive { channel, bytes: 1 });
    }
    for end in ends {
        main.push(end);
    }
    workload.start_one(thread(process, main));
}

/// Memory that the main thread allocates, and that has not been touched.
fn buffer(workload: &mut Workload, process: u32, bytes: u64, placement: Placement) -> u32 {
    let sharing = Sharing::Process(process);
    workload.add_region(Region { bytes, sharing, placement })
}

/// Whether the threads of numa01 bind their first sweep to a node.
fn binds(values: &Values) -> bool {
    values.number("same_node") != 0
}

/// The placement of numa01's memory in its first sweep. The policy ends with that sweep.
fn numa01_placement(values: &Values) -> Placement {
    match binds(values) {
        false => Placement::FirstTouch,
        true => Placement::Spread(vec![values.number("node")]),
    }
}

/// The first sweep over a part of numa01's memory.
fn first_zero(region: u32, values: &Values) -> Access {
    Access { bound: binds(values), ..zero(region) }
}

/// `bzero()`: every cache line is fetched, and written back later.
fn zero(region: u32) -> Access {
    Access::new(vec![Slice { region, write: true }], Pattern::Stream)
}

fn thread(process: u32, program: ProgramBuilder) -> Template {
    let template = graph::template("thread", costs::SPINNER_FOOTPRINT_BYTES, program.finish());
    Template { process, ..template }
}

/// The run time in seconds, as the benchmark's script prints it: `/usr/bin/time -f %e`.
fn seconds() -> Metric {
    Metric {
        name: "time".to_string(),
        unit: "s",
        better: Better::Lower,
        kind: MetricKind::WallSeconds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmark::resolve;

    fn threads<'a>(workload: &'a Workload, main: &Template) -> Vec<&'a Template> {
        let created = |op: &Op| match *op {
            Op::Fork(id) => Some(&workload.templates[id as usize]),
            _ => None,
        };
        main.program.ops.iter().filter_map(created).collect()
    }

    /// The main threads, and the threads that they create.
    fn tasks(workload: &Workload) -> Vec<&Template> {
        let main = workload.start.iter().map(|&(id, _)| &workload.templates[id as usize]);
        main.flat_map(|main| [vec![main], threads(workload, main)].concat()).collect()
    }

    /// Total bytes that all tasks write, counting the loops of their programs.
    fn written(workload: &Workload) -> u64 {
        let sweep = |template: &Template, access: u32| -> u64 {
            let slices = &template.program.accesses[access as usize].slices;
            slices.iter().map(|slice| workload.regions[slice.region as usize].bytes).sum()
        };
        let by_task = |template: &Template| -> u64 {
            let mut sum = 0;
            for op in &template.program.ops {
                match *op {
                    Op::Access(access) => sum += sweep(template, access),
                    Op::Loop { times, to, .. } => {
                        let Op::Access(access) = template.program.ops[to as usize] else {
                            panic!("a loop over one sweep")
                        };
                        sum += (times - 1) * sweep(template, access);
                    }
                    Op::Fork(_) | Op::Send { .. } | Op::Receive { .. } => {}
                    _ => panic!("{op:?}"),
                }
            }
            sum
        };
        tasks(workload).into_iter().map(by_task).sum()
    }

    #[test]
    fn numa01_is_two_processes_whose_threads_zero_all_their_processs_memory() {
        let workload = resolve("numa01:cpus=8", None).unwrap();
        assert_eq!((workload.processes.len(), workload.regions.len()), (2, 2));
        let created: Vec<u32> = tasks(&workload).iter().map(|task| task.process).collect();
        assert_eq!(created, [[0; 5], [1; 5]].concat(), "a main thread and four others each");
        assert_eq!([0, 1].map(|process: usize| workload.processes[process].forked), [false, true]);
        assert_eq!(written(&workload), 8 * 51 * 3 * GIB);
        assert_eq!(workload.metrics.len(), 1);
    }

    #[test]
    fn numa01s_memory_is_on_one_node_at_first_or_where_it_is_touched() {
        let placed = |spec: &str| {
            let workload = resolve(spec, None).unwrap();
            let all = workload.regions.iter().map(|region| region.placement.clone());
            all.collect::<Vec<Placement>>()
        };
        assert_eq!(placed("numa01:cpus=8"), vec![Placement::Spread(vec![0]); 2]);
        assert_eq!(placed("numa01:cpus=8,node=1"), vec![Placement::Spread(vec![1]); 2]);
        assert_eq!(placed("numa01:cpus=8,same_node=0"), vec![Placement::FirstTouch; 2]);
        assert_eq!(placed("numa01_THREAD_ALLOC:cpus=8"), vec![Placement::Spread(vec![0]); 8]);
    }

    #[test]
    fn with_thread_alloc_each_zeroes_the_whole_once_and_then_its_part() {
        let workload = resolve("numa01_THREAD_ALLOC:cpus=8", None).unwrap();
        assert_eq!(written(&workload), 8 * 3 * GIB + 2 * 1000 * 3 * GIB);
        let tasks = tasks(&workload);
        let third = &tasks[3].program;
        let first = Access { bound: true, ..zero(2) };
        assert_eq!(third.accesses[2], first, "the third part of the first process's");
        assert_eq!(third.accesses[4], zero(2), "which is its own");
        let sweeps = [Op::Access(4), Op::Loop { depth: 0, times: 1000, to: 4 }];
        assert_eq!(third.ops[4..6], sweeps);
        assert_eq!(third.ops[6..], [Op::Send { channel: 2, bytes: 1 }], "it is joined");
        assert_eq!(tasks[8].process, 1);
        assert_eq!(tasks[8].program.accesses[4], zero(4 + 2));
    }

    /// The threads write 859 GB. Bandwidths of machines are derived from this number.
    #[test]
    fn numa02_zeroes_all_in_its_main_thread_and_then_a_part_in_each() {
        for spec in ["numa02:cpus=64", "numa02_SMT:cpus=64", "numa02:cpus=16"] {
            let workload = resolve(spec, None).unwrap();
            assert_eq!(written(&workload), 801 * GIB, "{spec}");
            let main = tasks(&workload)[0];
            assert!(matches!(main.program.ops[0], Op::Access(0)), "before the first thread");
        }
        assert_eq!(tasks(&resolve("numa02_SMT:cpus=64", None).unwrap()).len(), 33);
        assert_eq!(tasks(&resolve("numa02", None).unwrap()).len(), 65);
    }
}
