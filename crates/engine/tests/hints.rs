//! Hinting marks: when a sweep reaches them, their cost, and what the scheduler is told.

mod common;

use std::sync::Arc;

use common::{Faults, Fifo, Marker, counter};
use roost_engine::*;
use roost_workload::{
    Access, Op, Pattern, Placement, Program, Region, Sharing, Slice, Template, Workload,
};

const MIB: u64 = 1 << 20;
/// Pages of 1 MiB.
const PAGES: u64 = MIB / 4096;

/// Tasks on the given CPUs that make `times` sweeps over one region of `mib` MiB.
fn sweeps(mib: u64, sharing: Sharing, times: u64, tasks: &[(u32, u32)]) -> Workload {
    let text = r#"{ "tasks": { "t": { "loop": 1, "run": 1 } } }"#;
    let mut workload = roost_workload::rtapp::parse(text, "hints").expect("a valid file");
    let placement = Placement::FirstTouch;
    workload.regions = vec![Region { bytes: mib * MIB, sharing, placement }];
    workload.processes = (0..2).map(|_| workload.processes[0].clone()).collect();
    let access = Access::new(vec![Slice { region: 0, write: true }], Pattern::Stream);
    let ops = vec![Op::Access(0), Op::Loop { depth: 0, times, to: 0 }];
    let program = Program { ops, loop_depth: 1, accesses: vec![access], ..Program::default() };
    let template = Template { footprint_bytes: 0, ..workload.templates[0].clone() };
    workload.templates = tasks
        .iter()
        .map(|&(cpu, process)| Template {
            affinity: Some(vec![cpu]),
            process,
            program: program.clone(),
            ..template.clone()
        })
        .collect();
    workload.start = (0..tasks.len() as u32).map(|template| (template, 1)).collect();
    workload.validate().expect("a valid workload");
    workload
}

fn under(workload: &Workload, scheduler: impl Scheduler) -> Outcome {
    let machine = Arc::new(roost_machine::resolve("zen4-2s").expect("a machine"));
    let control = Control::new(1);
    run(&machine, workload, scheduler, control).expect("it ends")
}

/// The outcome if everything is marked after `at_ns`, and the faults.
fn marked(
    workload: &Workload,
    at_ns: u64,
    to: Option<usize>,
) -> (Outcome, Vec<(u64, u32, HintingFault)>) {
    let faults = Faults::default();
    let marker = Marker { at_ns, to, faults: faults.clone(), ..Marker::default() };
    let outcome = under(workload, marker);
    (outcome, faults.take())
}

/// 64 MiB at 37.5 GB/s, twice because they are written: 3.6 ms per sweep.
const HALF_WAY_NS: u64 = 40_000_000;

#[test]
fn every_page_marked_faults_once_where_the_sweep_reaches_it() {
    let workload = sweeps(64, Sharing::Process(0), 40, &[(0, 0)]);
    let (outcome, faults) = marked(&workload, HALF_WAY_NS, None);
    let groups: Vec<u32> = faults.iter().map(|(.., fault)| fault.group).collect();
    // From the sweep's position to the end, and the rest in the next sweep.
    assert_eq!(groups.len(), 256);
    let first = groups[0];
    let expected: Vec<u32> = (first..256).chain(0..first).collect();
    assert!(first > 0);
    assert_eq!(groups, expected);
    assert_eq!(counter(&outcome, "numa_pte_updates"), 64 * PAGES);
    assert_eq!(counter(&outcome, "numa_hint_faults"), 64 * PAGES);
    assert_eq!(counter(&outcome, "numa_hint_faults_local"), 64 * PAGES);
    // Between two groups: 64 faults, and 256 KiB twice at 37.5 GB/s. It takes somewhat less while
    // the L3 still holds them, and sometimes a tick more.
    let sweep = 2 * 262_144 * 1000 / 37_500;
    for pair in faults.windows(2).filter(|pair| pair[0].2.group + 1 == pair[1].2.group) {
        let time = pair[1].0 - pair[0].0 - 64 * 1000;
        assert!((sweep * 3 / 4..sweep + 10_000).contains(&time), "{time} for {sweep}");
    }
    let unmarked = under(&workload, Fifo::default());
    let cost = counter(&outcome, "kernel_ns") - counter(&unmarked, "kernel_ns");
    // The cost of marking and of the faults, and a few ticks more or fewer.
    let expected = 64 * PAGES * (1000 + 30);
    assert!(cost.abs_diff(expected) < expected / 50, "{cost} for {expected}");
}

/// Each of the 256 groups takes as many blocks as fill it. So half of the marks are gone after ln 2
/// of a sweep, 69%, with a deviation of 6%. It takes less than that of the time for 128 MiB at 37.5
/// GB/s, because caches hold some.
#[test]
fn blocks_at_random_places_reach_marks_in_no_order_and_the_last_ones_late() {
    let mut workload = sweeps(64, Sharing::Process(0), 200, &[(0, 0)]);
    workload.templates[0].program.accesses[0].pattern = Pattern::RandomBlocks;
    let (outcome, faults) = marked(&workload, HALF_WAY_NS, None);
    let groups: Vec<u32> = faults.iter().map(|(.., fault)| fault.group).collect();
    let followed = groups.windows(2).filter(|pair| pair[0] + 1 == pair[1]).count();
    assert!(followed < 10, "{followed} faults follow the one before");
    assert_eq!(counter(&outcome, "numa_hint_faults"), 64 * PAGES, "each page once");
    let time = |from: usize, to: usize| faults[to].0 - faults[from].0 - (to - from) as u64 * 64_000;
    let sweep = 2 * 64 * MIB * 1000 / 37_500;
    let half = time(0, 127) * 100 / sweep;
    assert!((45..90).contains(&half), "{half}% of a sweep");
    assert!(time(128, 255) > 2 * time(0, 127), "the rarer marks are, the longer it takes");
}

/// The scanner works through 64 pages in 2 us, the sweep in 14 us. The sweep starts half way: it
/// does a sixth of the rest before the scanner reaches the same point.
#[test]
fn a_sweep_ahead_of_the_scanner_meets_no_mark() {
    let workload = sweeps(64, Sharing::Process(0), 40, &[(0, 0), (1, 0)]);
    let faults = Faults::default();
    let marker =
        Marker { at_ns: HALF_WAY_NS, by: Some(1), faults: faults.clone(), ..Marker::default() };
    let marked_at = marker.marked_at.clone();
    let outcome = under(&workload, marker);
    let (faults, marked_at) = (faults.take(), marked_at.get().expect("it marked"));
    assert_eq!(counter(&outcome, "numa_hint_faults"), 64 * PAGES, "each page once");
    for (at, _, fault) in &faults {
        let scanned = marked_at + (u64::from(fault.group) + 1) * 64 * 30;
        assert!(*at >= scanned, "group {} at {at}, marked at {scanned}", fault.group);
    }
    let sweep = 2 * 262_144 * 1000 / 37_500;
    assert!(faults[0].0 > marked_at + 5 * sweep, "{} after {marked_at}", faults[0].0);
}

#[test]
fn what_is_not_marked_costs_nothing() {
    let workload = sweeps(64, Sharing::Process(0), 20, &[(0, 0), (1, 0)]);
    let (never, faults) = marked(&workload, u64::MAX, None);
    assert_eq!(faults, []);
    assert_eq!(never, under(&workload, Fifo::default()));
}

#[test]
fn threads_share_the_marks_of_their_process_and_know_who_was_there_last() {
    let workload = sweeps(32, Sharing::Process(0), 80, &[(0, 0), (1, 0)]);
    let (outcome, faults) = marked(&workload, HALF_WAY_NS, None);
    assert_eq!(counter(&outcome, "numa_hint_faults"), 32 * PAGES, "each page once");
    let by = |pid| faults.iter().filter(|fault| fault.1 == pid).count();
    let pids: Vec<u32> = faults.iter().map(|fault| fault.1).collect();
    let (least, most) = (*pids.iter().min().unwrap(), *pids.iter().max().unwrap());
    assert!(by(least) > 0 && by(most) > 0 && by(least) + by(most) == 128);
    assert!(faults.iter().all(|(.., fault)| fault.last.is_none() && !fault.shared));
}

#[test]
fn processes_have_marks_of_their_own_on_what_they_share() {
    let workload = sweeps(32, Sharing::Processes, 80, &[(0, 0), (1, 1)]);
    let (outcome, faults) = marked(&workload, HALF_WAY_NS, None);
    assert_eq!(counter(&outcome, "numa_hint_faults"), 2 * 32 * PAGES);
    assert!(faults.iter().all(|(.., fault)| fault.shared));
    for (_, pid, fault) in &faults {
        let other =
            |before: &&(u64, u32, HintingFault)| before.2.group == fault.group && before.1 != *pid;
        match fault.last {
            None => {}
            Some(last) => {
                let first = faults.iter().find(other).expect("the other process was there");
                assert_eq!(u32::from(last.pid), first.1);
                assert_eq!(u32::from(last.cpu), first.1 - 2, "the first of the tasks has pid 2");
            }
        }
    }
    assert_eq!(faults.iter().filter(|(.., fault)| fault.last.is_some()).count(), 128);
}

#[test]
fn pages_that_move_are_remote_no_longer() {
    // CPU 96 is on node 1. The first task touches everything.
    let mut workload = sweeps(64, Sharing::Process(0), 40, &[(0, 0), (96, 0)]);
    workload.templates[0].program.ops.truncate(1);
    workload.templates[1].delay_ns = 100_000_000;
    let (outcome, faults) = marked(&workload, 120_000_000, Some(1));
    assert_eq!(counter(&outcome, "numa_hint_faults"), 64 * PAGES);
    assert_eq!(counter(&outcome, "numa_hint_faults_local"), 0);
    assert_eq!(counter(&outcome, "numa_pages_migrated"), 64 * PAGES);
    assert!(faults.iter().all(|(.., fault)| fault.node == 0));
    let (left, _) = marked(&workload, 120_000_000, None);
    let remote = |outcome: &Outcome| counter(outcome, "memory_remote_bytes");
    assert!(remote(&outcome) < remote(&left) / 2);
}

/// In each round of as many pages as threads, every thread but the first leaves one. The threads
/// begin apart and come together when one reaches another.
#[test]
fn threads_in_step_leave_pages_that_others_are_moving() {
    for threads in 1..=4 {
        let users = (0..threads).map(|user| (96 + 8 * user, 0));
        let tasks: Vec<(u32, u32)> = std::iter::once((0, 0)).chain(users).collect();
        let mut workload = sweeps(64, Sharing::Process(0), 40, &tasks);
        workload.templates[0].program.ops.truncate(1);
        for template in &mut workload.templates[1..] {
            template.delay_ns = 100_000_000;
        }
        let (outcome, faults) = marked(&workload, 120_000_000, Some(1));
        assert_eq!(faults.len(), 256, "each group once");
        assert_eq!(counter(&outcome, "numa_pages_migrated"), 64 * PAGES);
        assert_eq!(counter(&outcome, "numa_hint_faults_local"), 0);
        let left = counter(&outcome, "numa_hint_faults") - 64 * PAGES;
        let expected = 64 * PAGES * (u64::from(threads) - 1) / u64::from(threads);
        assert!((expected * 2 / 3..=expected).contains(&left), "{threads}: {left} of {expected}");
    }
}

/// 64 MiB on node 0. Two tasks on node 1 sweep over them in step, and they move as huge pages.
/// Returns the result of each move. `waits`: tasks wait for pages that are moving.
fn moved_together(waits: bool) -> (Outcome, Vec<u64>) {
    let mut workload = sweeps(64, Sharing::Process(0), 40, &[(0, 0), (96, 0), (97, 0)]);
    workload.templates[0].program.ops.truncate(1);
    for template in &mut workload.templates[1..] {
        template.delay_ns = 100_000_000;
    }
    let marker = Marker { at_ns: 120_000_000, to: Some(1), huge: Some(waits), ..Marker::default() };
    let moved = marker.moved.clone();
    (under(&workload, marker), moved.take())
}

#[test]
fn who_waits_for_a_huge_page_on_its_way_sleeps_until_it_is_there() {
    let (outcome, moved) = moved_together(true);
    assert_eq!(counter(&outcome, "numa_pages_migrated"), 64 * PAGES);
    assert_eq!(moved, [512; 32], "2 MiB each");
    let waits = counter(&outcome, "numa_hint_faults") / 512 - 32;
    assert!(waits > 12, "{waits} of 32 pages were waited for");
    // The root task joins three tasks. The last two of them end together.
    let joins = counter(&outcome, "wakeups") - waits;
    assert!((2..=3).contains(&joins), "{joins}");
}

#[test]
fn who_goes_on_with_a_huge_page_keeps_it_where_it_is() {
    let (outcome, moved) = moved_together(false);
    let kept = moved.iter().filter(|&&pages| pages == 0).count();
    assert_eq!(moved.len(), 32, "each is tried");
    assert_eq!(counter(&outcome, "numa_pages_migrated"), (32 - kept as u64) * 512);
    assert!(kept > 12, "{kept} of 32 stayed");
    assert_eq!(counter(&outcome, "numa_hint_faults"), (32 + kept as u64) * 512);
}

/// [`World::begin_move`] checks that a task has no other page on its way.
#[test]
fn a_sweep_over_random_blocks_moves_one_huge_page_after_the_other() {
    let mut workload = sweeps(64, Sharing::Process(0), 40, &[(0, 0), (96, 0)]);
    workload.templates[0].program.ops.truncate(1);
    workload.templates[1].delay_ns = 100_000_000;
    workload.templates[1].program.accesses[0].pattern = Pattern::RandomBlocks;
    let marker = Marker { at_ns: 120_000_000, to: Some(1), huge: Some(true), ..Marker::default() };
    let moved = marker.moved.clone();
    let outcome = under(&workload, marker);
    assert_eq!(moved.take(), [512; 32], "2 MiB each");
    assert_eq!(counter(&outcome, "numa_hint_faults"), 64 * PAGES, "one fault each");
}

/// One page-table entry, one fault, one unmapping: for 512 pages only the copying remains.
#[test]
fn a_huge_page_is_marked_faults_and_moves_as_one() {
    let mut workload = sweeps(64, Sharing::Process(0), 40, &[(0, 0), (96, 0)]);
    workload.templates[0].program.ops.truncate(1);
    workload.templates[1].delay_ns = 100_000_000;
    let faults = Faults::default();
    let marker =
        Marker { at_ns: 120_000_000, to: Some(1), faults: faults.clone(), ..Marker::default() };
    let outcome = under(&workload, Marker { huge: Some(true), ..marker });
    let faults = faults.take();
    assert!(faults.iter().all(|(.., fault)| fault.pages == 512 && fault.group % 8 == 0));
    assert_eq!(faults.len(), 32);
    assert_eq!(counter(&outcome, "numa_pte_updates"), 64 * PAGES);
    assert_eq!(counter(&outcome, "numa_pages_migrated"), 64 * PAGES);
    let without = Marker { at_ns: u64::MAX, huge: Some(true), ..Marker::default() };
    let cost = counter(&outcome, "kernel_ns") - counter(&under(&workload, without), "kernel_ns");
    let expected = 32 * (30 + 1000 + 1500 + 512 * 500);
    assert!(cost.abs_diff(expected) < expected / 50, "{cost} for {expected}");
}

/// Copying gets the bandwidth share that one more stream would get.
#[test]
fn copying_takes_longer_where_others_want_the_bandwidth() {
    let cost = |others: u32| {
        let mut tasks = vec![(0, 0), (96, 0)];
        tasks.extend((0..others).map(|cpu| (97 + cpu, 0)));
        let mut workload = sweeps(64, Sharing::Process(0), 40, &tasks);
        // Memory with a policy is not marked.
        let placement = Placement::Bind(vec![1]);
        workload.regions.push(Region { bytes: 256 * MIB, sharing: Sharing::Thread, placement });
        for template in &mut workload.templates[2..] {
            template.program.accesses[0].slices[0].region = 1;
        }
        workload.templates[0].program.ops.truncate(1);
        workload.templates[1].delay_ns = 100_000_000;
        let run = |at_ns| {
            let to = Some(1);
            let marker = Marker { at_ns, to, huge: Some(true), ..Marker::default() };
            let outcome = under(&workload, marker);
            (counter(&outcome, "kernel_ns"), counter(&outcome, "numa_pages_migrated"))
        };
        let (marked, moved) = run(120_000_000);
        assert_eq!(moved, 64 * PAGES);
        marked - run(u64::MAX).0
    };
    // With seven other tasks on the CCD, whose link has 38 GB/s. Each byte copied moves three bytes
    // over it.
    let (alone, beside) = (cost(0), cost(7));
    let expected = 64 * MIB * 3 * 8 / 38;
    assert!(beside > 2 * alone, "{beside} for {alone}");
    assert!(beside.abs_diff(expected) < expected / 10, "{beside} for {expected}");
}
