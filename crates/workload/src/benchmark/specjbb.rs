//! SPECjbb: warehouses whose threads make transactions without ever waiting, on a heap in memory.
//!
//! There is one thread per warehouse. An instance is a Java virtual machine, or a virtual machine in which each virtual
//! CPU runs a warehouse. The cost of a transaction is in [`crate::costs`].
//!
//! Live objects take [`costs::SPECJBB_WAREHOUSE_BYTES`] per warehouse. Copying garbage collectors mix them up, so all
//! threads of an instance use all live objects in turn. (Assumption: evenly. How much a thread still uses its own
//! objects after a collection is not known.) Threads allocate new objects in the rest of the heap, each in its own
//! part. Garbage collections are not modelled.

use super::{Benchmark, Parameter, ParameterKind, Values};
use crate::program::{ProgramBuilder, Times};
use crate::{
    Access, Op, Pattern, Placement, Program, Region, Sharing, Slice, Template, Workload, costs,
    graph,
};

const MIB: u64 = 1 << 20;
const LINE_BYTES: u64 = 64;

/// Number of transactions in which a thread uses as many cache lines as a warehouse's live objects have.
const TRANSACTIONS: u64 = costs::SPECJBB_WAREHOUSE_BYTES / LINE_BYTES / costs::SPECJBB_LINES;

/// Bytes that a thread allocates in these transactions.
const ALLOCATED_BYTES: u64 = TRANSACTIONS * costs::SPECJBB_ALLOCATED_BYTES;

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "specjbb",
    summary: "warehouses make transactions on Java heaps without think time; transactions a second",
    parameters: &[
        Parameter {
            name: "instances",
            default: "1",
            meaning: "Java virtual machines, or VMs",
            kind: ParameterKind::Number { min: 1, max: 1_000 },
        },
        Parameter {
            name: "warehouses",
            default: "8",
            meaning: "warehouses per instance, each with one thread",
            kind: ParameterKind::Number { min: 1, max: 1_000 },
        },
        Parameter {
            name: "heap",
            default: "1024",
            meaning: "heap of an instance, MiB; live objects take 25 MiB per warehouse",
            kind: ParameterKind::Number { min: 32, max: 1_000_000 },
        },
    ],
    duration_ns: Some(120_000_000_000),
    warms_up: true,
    build,
};

fn build(values: &Values) -> Workload {
    let mut workload = graph::empty("specjbb");
    let transactions = workload.add_counter();
    let warehouses = values.number("warehouses");
    let heap = u64::from(values.number("heap")) * MIB;
    for _ in 0..values.number("instances") {
        let process = workload.add_process("java");
        let live = costs::SPECJBB_WAREHOUSE_BYTES;
        let mut region = |bytes| {
            let sharing = Sharing::Process(process);
            workload.add_region(Region { bytes, sharing, placement: Placement::FirstTouch })
        };
        let live_regions: Vec<u32> = (0..warehouses).map(|_| region(live)).collect();
        let new = new_objects(heap, u64::from(warehouses));
        let threads = (0..warehouses as usize).map(|thread| {
            let new_regions: Vec<u32> = (0..new.pieces).map(|_| region(new.bytes)).collect();
            thread_program(&live_regions, &new_regions, new.sweeps, thread, transactions)
        });
        for program in threads.collect::<Vec<Program>>() {
            let template = graph::template("warehouse", costs::SPINNER_FOOTPRINT_BYTES, program);
            workload.start_one(Template { process, ..template });
        }
    }
    workload.metrics.push(graph::rate("transactions", "per sec", transactions, 1.0));
    workload
}

/// A thread's part of the heap for new objects.
#[derive(Debug, PartialEq)]
struct NewObjects {
    /// Number of regions, which are used one after the other.
    pieces: u64,
    /// Size of each region.
    bytes: u64,
    /// How often a region is written, until [`ALLOCATED_BYTES`] are allocated.
    sweeps: u64,
}

/// The threads share the part of the heap that has no live objects. If the heap is too small for its warehouses, each
/// thread still gets 1 MiB, although a real heap would run out.
fn new_objects(heap: u64, threads: u64) -> NewObjects {
    let rest = heap.saturating_sub(threads * costs::SPECJBB_WAREHOUSE_BYTES);
    let part = (rest / threads).max(MIB);
    if part >= ALLOCATED_BYTES {
        NewObjects { pieces: part / ALLOCATED_BYTES, bytes: ALLOCATED_BYTES, sweeps: 1 }
    } else {
        NewObjects { pieces: 1, bytes: part, sweeps: ALLOCATED_BYTES / part }
    }
}

fn thread_program(live: &[u32], new: &[u32], sweeps: u64, thread: usize, count: u32) -> Program {
    let slice = |region, write| vec![Slice { region, write }];
    let steps = live.len().max(new.len());
    let live = live.iter().cycle().skip(thread);
    let mut program = ProgramBuilder::default();
    program.repeat(Times::Forever, |round| {
        for (&live, &new) in live.zip(new.iter().cycle()).take(steps) {
            round.push(Op::Run { ns: TRANSACTIONS * costs::SPECJBB_TRANSACTION_NS });
            round.access(Access::new(slice(live, false), Pattern::Chase));
            round.repeat(Times::Exactly(sweeps), |allocate| {
                allocate.access(Access::new(slice(new, true), Pattern::Stream));
            });
            round.push(Op::Count { counter: count, by: TRANSACTIONS });
        }
    });
    program.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmark::resolve;

    #[test]
    fn a_heap_is_live_objects_and_each_threads_part_of_the_rest() {
        let workload = resolve("specjbb:warehouses=8,heap=1024", None).unwrap();
        let bytes: u64 = workload.regions.iter().map(|region| region.bytes).sum();
        assert!((900 * MIB..=1024 * MIB).contains(&bytes), "{bytes}");
        let live = workload.regions.iter().filter(|region| region.bytes == 25 * MIB);
        assert_eq!(live.count(), 8);
        // (1024 - 8 x 25) / 8 = 103 MiB per thread, 20 MiB at a time.
        let expected = NewObjects { pieces: 5, bytes: 20 * MIB, sweeps: 1 };
        assert_eq!(new_objects(1024 * MIB, 8), expected);
        let tight = NewObjects { pieces: 1, bytes: 5 * MIB, sweeps: 4 };
        assert_eq!(new_objects(240 * MIB, 8), tight);
        assert_eq!(new_objects(32 * MIB, 8).sweeps, 20, "1 MiB at least");
    }

    #[test]
    fn all_threads_use_all_live_objects_and_only_their_own_new_ones() {
        let workload = resolve("specjbb:instances=2,warehouses=3,heap=300", None).unwrap();
        let used = |task: usize| -> Vec<u32> {
            let accesses = &workload.templates[task].program.accesses;
            accesses.iter().map(|access| access.slices[0].region).collect()
        };
        // Regions 0 to 2 are live objects. (300 - 75) / 3 = 75 MiB per thread: 3 pieces.
        assert_eq!(used(0), [0, 3, 1, 4, 2, 5]);
        assert_eq!(used(1), [1, 6, 2, 7, 0, 8]);
        assert_eq!(used(3), [12, 15, 13, 16, 14, 17], "the second instance's");
        assert_eq!(workload.templates[3].process, 1);
    }

    #[test]
    fn a_transaction_takes_about_what_was_posted() {
        let ns = costs::SPECJBB_TRANSACTION_NS + costs::SPECJBB_LINES * 100;
        let allocation = costs::SPECJBB_ALLOCATED_BYTES / 10;
        assert!((32.0 * 1e9 / (ns + allocation) as f64 / 524_000.0 - 1.0).abs() < 0.05);
        assert_eq!((TRANSACTIONS, ALLOCATED_BYTES), (2048, 20 * MIB));
    }
}
