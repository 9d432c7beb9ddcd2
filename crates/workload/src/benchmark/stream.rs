//! STREAM with OpenMP: four loops over three arrays. Each thread has a fixed part of each array.
//!
//! The model follows stream.c 5.10 with libgomp. Threads touch their parts for the first time when they fill the
//! arrays. The first round is not counted, and the metric is bytes divided by the shortest time of the other rounds.
//! Bytes are counted as in STREAM, without the lines that stores fetch (write-allocate): 16 per element for copy and
//! scale, 24 for add and triad. Waiting threads spin before they sleep.
//!
//! The loops are those that mmtests' `gcc -O2` creates: `memcpy()`, and scalar code that takes one cycle per element,
//! or two if a loop crosses a boundary of 64 bytes ([`costs::CYCLE_PS`]).

use super::{Benchmark, Parameter, ParameterKind, Values};
use crate::program::{ProgramBuilder, Times};
use crate::{
    Access, Better, Metric, MetricKind, Op, Pattern, Placement, Region, Sharing, Slice, Workload,
    costs, graph,
};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "stream",
    summary: "STREAM: OpenMP threads copy, scale, add and triad arrays in memory; MB a second",
    parameters: &[
        Parameter {
            name: "threads",
            default: "16",
            meaning: "number of OpenMP threads",
            kind: ParameterKind::Number { min: 1, max: 4096 },
        },
        Parameter {
            name: "elements",
            default: "22369621",
            meaning: "length of each of the three arrays of doubles (512 MiB in all)",
            kind: ParameterKind::Number { min: 4096, max: 4_000_000_000 },
        },
        Parameter {
            name: "times",
            default: "10",
            meaning: "rounds, the first not counted (NTIMES)",
            kind: ParameterKind::Number { min: 2, max: 1_000_000 },
        },
    ],
    duration_ns: None,
    warms_up: false,
    build,
};

const ELEMENT_BYTES: u64 = 8;

/// Number of arrays: a, b, c.
const ARRAYS: usize = 3;

/// A loop: its name, the arrays that it reads, the array that it writes, and its cycles per element.
struct Kernel {
    name: &'static str,
    reads: &'static [usize],
    writes: usize,
    cycles: u64,
}

/// The cycles belong to one of the four places at which a program can be loaded (docs/notes/2026-11-25-results.md).
const KERNELS: [Kernel; 4] = [
    Kernel { name: "copy", reads: &[0], writes: 2, cycles: 0 },
    Kernel { name: "scale", reads: &[2], writes: 1, cycles: 2 },
    Kernel { name: "add", reads: &[0, 1], writes: 2, cycles: 2 },
    Kernel { name: "triad", reads: &[1, 2], writes: 0, cycles: 1 },
];

impl Kernel {
    /// Bytes per element, as STREAM counts them.
    fn bytes(&self) -> u64 {
        ELEMENT_BYTES * (self.reads.len() as u64 + 1)
    }

    /// A sweep over a thread's part.
    fn sweep(&self, part: &Part) -> Access {
        let slice = |array: usize, write| Slice { region: part.arrays[array], write };
        let read = self.reads.iter().map(|&array| slice(array, false));
        let written = slice(self.writes, true);
        let core_ns = self.cycles * costs::CYCLE_PS * part.elements / 1000;
        Access { core_ns, ..Access::new(read.chain([written]).collect(), Pattern::Stream) }
    }
}

/// A thread's part of each array: the regions, and the number of elements.
struct Part {
    arrays: [u32; ARRAYS],
    elements: u64,
}

/// Barriers and stopwatches of the team.
struct Team {
    begin: u32,
    end: u32,
    watches: [u32; KERNELS.len()],
}

fn build(values: &Values) -> Workload {
    let (threads, elements) = (values.number("threads"), u64::from(values.number("elements")));
    let mut workload = graph::empty("stream");
    let process = workload.add_process("stream");
    let team = Team {
        begin: workload.add_barrier(threads),
        end: workload.add_barrier(threads),
        watches: KERNELS.each_ref().map(|_| workload.add_watch()),
    };
    for thread in 0..u64::from(threads) {
        // schedule(static): the first threads get the remainder.
        let threads = u64::from(threads);
        let elements = elements / threads + u64::from(thread < elements % threads);
        let arrays = [(); ARRAYS].map(|()| {
            workload.add_region(Region {
                bytes: elements * ELEMENT_BYTES,
                sharing: Sharing::Process(process),
                placement: Placement::FirstTouch,
            })
        });
        let part = Part { arrays, elements };
        let program = program(&team, &part, thread == 0, values.number("times"));
        workload.start_one(graph::template(
            "stream",
            costs::SPINNER_FOOTPRINT_BYTES,
            program.finish(),
        ));
    }
    for (kernel, &watch) in KERNELS.iter().zip(&team.watches) {
        workload.metrics.push(Metric {
            name: kernel.name.to_string(),
            unit: "MB/sec",
            better: Better::Higher,
            kind: MetricKind::BestRate { watch, amount: (kernel.bytes() * elements) as f64 / 1e6 },
        });
    }
    workload
}

fn program(team: &Team, part: &Part, main: bool, times: u32) -> ProgramBuilder {
    let mut program = ProgramBuilder::default();
    let write = |region| Slice { region, write: true };
    let fill = Access::new(part.arrays.map(write).to_vec(), Pattern::Stream);
    // a = 2 * a. stream.c estimates the resolution of its clock with this loop.
    let double = Access::new(vec![write(part.arrays[0])], Pattern::Stream);
    team.parallel(&mut program, fill, None);
    team.parallel(&mut program, double, None);
    for kernel in &KERNELS {
        team.parallel(&mut program, kernel.sweep(part), None);
    }
    program.repeat(Times::Exactly(u64::from(times) - 1), |round| {
        for (kernel, &watch) in KERNELS.iter().zip(&team.watches) {
            team.parallel(round, kernel.sweep(part), main.then_some(watch));
        }
    });
    program
}

impl Team {
    /// A parallel loop. All threads start and end together, and the main thread measures the time.
    fn parallel(&self, program: &mut ProgramBuilder, sweep: Access, watch: Option<u32>) {
        let meet = |barrier| Op::SpinBarrier { barrier, spin_ns: costs::GOMP_SPIN_NS };
        if let Some(watch) = watch {
            program.push(Op::StartWatch(watch));
        }
        program.push(meet(self.begin)).access(sweep).push(meet(self.end));
        if let Some(watch) = watch {
            program.push(Op::StopWatch(watch));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmark::resolve;

    #[test]
    fn each_thread_has_its_part_of_three_arrays() {
        let workload = resolve("stream:threads=3,elements=10000", None).unwrap();
        let elements = |region: usize| workload.regions[region].bytes / ELEMENT_BYTES;
        assert_eq!(workload.regions.len(), 9);
        assert_eq!([0, 3, 6].map(elements), [3334, 3333, 3333]);
        assert_eq!(workload.barriers, [3, 3]);
    }

    #[test]
    fn copy_and_scale_count_16_bytes_an_element_add_and_triad_24() {
        assert_eq!(KERNELS.each_ref().map(Kernel::bytes), [16, 16, 24, 24]);
        let part = Part { arrays: [7, 8, 9], elements: 1000 };
        let slice = |region, write| Slice { region, write };
        let triad = KERNELS[3].sweep(&part).slices;
        assert_eq!(triad, [slice(8, false), slice(9, false), slice(7, true)]);
    }

    #[test]
    fn scale_and_add_take_two_cycles_an_element_where_they_lie_copy_is_a_call() {
        let part = Part { arrays: [7, 8, 9], elements: 1000 };
        let core_ns = KERNELS.each_ref().map(|kernel| kernel.sweep(&part).core_ns);
        assert_eq!(core_ns, [0, 544, 544, 272]);
    }

    #[test]
    fn only_the_main_thread_times_the_loops_and_not_the_first_round() {
        let workload = resolve("stream:threads=2", None).unwrap();
        let watched = |thread: usize| {
            let ops = &workload.templates[thread].program.ops;
            ops.iter().filter(|op| matches!(op, Op::StartWatch(_))).count()
        };
        assert_eq!([watched(0), watched(1)], [4, 0]);
        let ops = &workload.templates[0].program.ops;
        let Some(Op::Loop { times: 9, to, .. }) = ops.last() else { panic!("{ops:?}") };
        assert_eq!(ops[*to as usize], Op::StartWatch(0));
    }
}
