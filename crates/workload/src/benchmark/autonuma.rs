//! The benchmarks of autonuma-benchmark: threads that zero memory again and again.
//!
//! As in its numa01.c and numa02.c: memory is allocated by the main thread and touched first by the
//! threads themselves. What they share and what each has for its own tells how well a kernel
//! brings threads and memory together. The original counts the CPUs of its machine; here `cpus` says
//! how many it found.

use super::{Benchmark, Parameter, ParameterKind, Values};
use crate::program::{ProgramBuilder, Times};
use crate::{
    Access, Better, Metric, MetricKind, Op, Pattern, Placement, Region, Sharing, Slice, Template,
    Workload, costs, graph,
};

const GIB: u64 = 1 << 30;

/// numa01.c, SIZE: what the threads of one process share.
const NUMA01_BYTES: u64 = 3 * GIB;
/// numa01.c: `bzero()` of the whole buffer, then 50 times more.
const NUMA01_PASSES: u64 = 51;
/// numa01.c with THREAD_ALLOC: how often each thread zeroes its own part.
const THREAD_ALLOC_PASSES: u64 = 1000;
/// numa02.c, SIZE: what all threads have together.
const NUMA02_BYTES: u64 = GIB;
/// numa02.c, TOTALSIZE / SIZE: how often each thread zeroes its part.
const NUMA02_PASSES: u64 = 800;
/// Both: how many processes numa01 forks.
const NUMA01_PROCESSES: u32 = 2;

/// At most one thread a page group and more than any machine has.
const CPUS: &[Parameter] = &[Parameter {
    name: "cpus",
    default: "64",
    meaning: "CPUs of the machine, which the original counts",
    kind: ParameterKind::Number { min: 2, max: 4096 },
}];

pub(super) const NUMA01: Benchmark = Benchmark {
    name: "numa01",
    summary: "two processes of cpus/2 threads, each zeroing its process's 3 GiB 51 times; seconds",
    parameters: CPUS,
    duration_ns: None,
    build: build_numa01,
};

pub(super) const NUMA01_THREAD_ALLOC: Benchmark = Benchmark {
    name: "numa01_THREAD_ALLOC",
    summary: "the same, but after the first time each thread zeroes only its part, 1000 times",
    parameters: CPUS,
    duration_ns: None,
    build: build_thread_alloc,
};

pub(super) const NUMA02: Benchmark = Benchmark {
    name: "numa02",
    summary: "one process of cpus threads, each zeroing its part of 1 GiB 800 times; seconds",
    parameters: CPUS,
    duration_ns: None,
    build: |values| build_numa02("numa02", values.number("cpus")),
};

pub(super) const NUMA02_SMT: Benchmark = Benchmark {
    name: "numa02_SMT",
    summary: "numa02 with cpus/2 threads, which had better be on a core each; seconds",
    parameters: CPUS,
    duration_ns: None,
    build: |values| build_numa02("numa02_SMT", values.number("cpus") / 2),
};

fn build_numa01(values: &Values) -> Workload {
    let mut workload = graph::empty("numa01");
    for _ in 0..NUMA01_PROCESSES {
        let process = workload.add_process("numa01");
        let region = buffer(&mut workload, process, NUMA01_BYTES);
        let mut program = ProgramBuilder::default();
        program.repeat(Times::Exactly(NUMA01_PASSES), |pass| {
            pass.access(zero(region));
        });
        let template = thread(process, program);
        workload.templates.push(template);
    }
    // Both processes create their threads at the same time.
    let threads = values.number("cpus") / 2;
    workload.start = (0..threads).flat_map(|_| [(0, 1), (1, 1)]).collect();
    workload.metrics.push(seconds());
    workload
}

fn build_thread_alloc(values: &Values) -> Workload {
    let mut workload = graph::empty("numa01_THREAD_ALLOC");
    let threads = values.number("cpus") / 2;
    let processes = [(); NUMA01_PROCESSES as usize].map(|()| {
        let process = workload.add_process("numa01");
        let part = NUMA01_BYTES / u64::from(threads);
        let parts: Vec<u32> = (0..threads).map(|_| buffer(&mut workload, process, part)).collect();
        (process, parts)
    });
    for own in 0..threads as usize {
        for (process, parts) in &processes {
            let mut program = ProgramBuilder::default();
            for &part in parts {
                program.access(zero(part));
            }
            // The thread's own part is the access of its number.
            program.repeat(Times::Exactly(THREAD_ALLOC_PASSES), |pass| {
                pass.push(Op::Access(own as u32));
            });
            workload.start_one(thread(*process, program));
        }
    }
    workload.metrics.push(seconds());
    workload
}

fn build_numa02(name: &str, threads: u32) -> Workload {
    let mut workload = graph::empty(name);
    let process = workload.add_process(name);
    for _ in 0..threads {
        let part = buffer(&mut workload, process, NUMA02_BYTES / u64::from(threads));
        let mut program = ProgramBuilder::default();
        program.repeat(Times::Exactly(NUMA02_PASSES), |pass| {
            pass.access(zero(part));
        });
        workload.start_one(thread(process, program));
    }
    workload.metrics.push(seconds());
    workload
}

/// Memory that the main thread allocates and nobody has touched.
fn buffer(workload: &mut Workload, process: u32, bytes: u64) -> u32 {
    let sharing = Sharing::Process(process);
    workload.add_region(Region { bytes, sharing, placement: Placement::FirstTouch })
}

/// `bzero()`: every line is fetched and later written back.
fn zero(region: u32) -> Access {
    Access { slices: vec![Slice { region, write: true }], pattern: Pattern::Stream }
}

fn thread(process: u32, program: ProgramBuilder) -> Template {
    let template = graph::template("thread", costs::SPINNER_FOOTPRINT_BYTES, program.finish());
    Template { process, ..template }
}

/// What the benchmark's script prints: `/usr/bin/time -f %e`.
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

    /// Bytes that all tasks write in all, by the loops of their programs.
    fn written(workload: &Workload) -> u64 {
        let pass = |template: &Template, access: u32| -> u64 {
            let slices = &template.program.accesses[access as usize].slices;
            slices.iter().map(|slice| workload.regions[slice.region as usize].bytes).sum()
        };
        let by_task = |template: &Template| -> u64 {
            let mut sum = 0;
            for op in &template.program.ops {
                match *op {
                    Op::Access(access) => sum += pass(template, access),
                    Op::Loop { times, to, .. } => {
                        let Op::Access(access) = template.program.ops[to as usize] else {
                            panic!("a loop over one pass")
                        };
                        sum += (times - 1) * pass(template, access);
                    }
                    _ => panic!("{op:?}"),
                }
            }
            sum
        };
        workload
            .start
            .iter()
            .map(|&(id, n)| by_task(&workload.templates[id as usize]) * u64::from(n))
            .sum()
    }

    #[test]
    fn numa01_is_two_processes_whose_threads_zero_all_their_processs_memory() {
        let workload = resolve("numa01:cpus=8", None).unwrap();
        assert_eq!((workload.processes.len(), workload.regions.len()), (2, 2));
        assert_eq!(workload.start, [(0, 1), (1, 1)].repeat(4));
        assert_eq!(written(&workload), 8 * 51 * 3 * GIB);
    }

    #[test]
    fn with_thread_alloc_each_zeroes_the_whole_once_and_then_its_part() {
        let workload = resolve("numa01_THREAD_ALLOC:cpus=8", None).unwrap();
        assert_eq!(written(&workload), 8 * 3 * GIB + 2 * 1000 * 3 * GIB);
        let third = &workload.templates[4].program;
        assert_eq!(third.accesses[2], zero(2), "the third part of the first process's");
        assert_eq!(third.ops[4..], [Op::Access(2), Op::Loop { depth: 0, times: 1000, to: 4 }]);
        assert_eq!(workload.templates[5].process, 1);
        assert_eq!(workload.templates[5].program.accesses[2], zero(4 + 2));
    }

    /// 859 GB, from which bandwidths of machines are derived.
    #[test]
    fn numa02_writes_the_same_whatever_the_number_of_threads() {
        for spec in ["numa02:cpus=64", "numa02_SMT:cpus=64", "numa02:cpus=16"] {
            assert_eq!(written(&resolve(spec, None).unwrap()), 800 * GIB, "{spec}");
        }
        assert_eq!(resolve("numa02_SMT:cpus=64", None).unwrap().templates.len(), 32);
        assert_eq!(resolve("numa02", None).unwrap().templates.len(), 64);
    }
}
