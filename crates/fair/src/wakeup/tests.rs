use proptest::prelude::*;
use roost_engine::Time;

use super::*;
use crate::kit::*;
use crate::state::LINES_PER_QUEUE;

/// Weight of a nice-0 task, and its load when it always runs.
const NICE_0: u64 = 1024;

fn sync_wake_on(cpu: CpuId) -> Wake {
    Wake { sync: true, ..wake_on(cpu) }
}

#[test]
fn a_task_with_one_allowed_cpu_goes_there_without_a_search() {
    let mut bench = Bench::placing("fair@6.15", TWO_LLCS);
    bench.allow(WAKEE, [5]);
    bench.busy([5]);
    assert_eq!(bench.wake(0, 3), 5);
    assert_eq!(bench.fair.stats.sis_search, 0);
    assert_eq!(bench.fair.tasks[WAKER.index()].wakees.flips, 0, "record_wakee is not reached");
    assert_eq!(bench.cost(0), 0);
}

#[test]
fn flips_count_changes_of_the_wakee_and_are_halved_once_after_a_second() {
    let mut flips = WakeeFlips::default();
    for round in 0..10 {
        flips.record(OTHERS[round % 2], 5, 250);
    }
    assert_eq!(flips.flips, 10);
    flips.record(OTHERS[1], 250, 250);
    assert_eq!(flips.flips, 10, "the same wakee again, and a second is not over");
    flips.record(OTHERS[1], 10 * 250, 250);
    assert_eq!(flips.flips, 5, "halved once, however long it took");
}

#[test]
fn wide_needs_both_sides_to_flip_and_one_much_more() {
    // s >= f and m >= s * f with an LLC of 8 CPUs.
    assert!(!is_wide(1000, 7, 8));
    assert!(!is_wide(63, 8, 8));
    assert!(is_wide(64, 8, 8));
    assert!(is_wide(8, 64, 8), "either side may be the busier one");
}

#[test]
fn a_wide_wakeup_leaves_the_task_near_prev() {
    let mut bench = Bench::placing("fair@6.15", TWO_LLCS);
    bench.busy_except(&[9]);
    bench.fair.llcs[1].nr_idle_scan = 8;
    bench.fair.tasks[WAKER.index()].wakees.flips = 64;
    bench.fair.tasks[WAKEE.index()].wakees.flips = 8;
    bench.fair.tasks[WAKER.index()].wakees.decayed = bench.fair.jiffies(bench.world.now());
    // If the pair were not wide, the sync hint and a single task on the waker's CPU would pull it
    // to CPU 0.
    assert_eq!(bench.wake_as(sync_wake_on(0), 12), 9);
    assert_eq!(bench.fair.stats.nr_wakeups_affine_attempts, 0);
}

#[test]
fn an_interrupt_on_an_idle_cpu_counts_the_idle_tasks_wakees() {
    let mut bench = Bench::placing("fair@6.15", TWO_LLCS);
    let wake = Wake { waker: None, interrupt: true, ..wake_on(3) };
    bench.wake_as(wake, 3);
    assert_eq!(bench.fair.rqs[3].idle_wakees.flips, 1);
}

#[test]
fn the_wakers_cpu_is_no_candidate_if_the_task_may_not_run_there() {
    let mut bench = Bench::placing("fair@6.15", TWO_LLCS);
    bench.allow(WAKEE, [2, 12]);
    bench.busy([0, 2, 12]);
    assert_eq!(bench.wake_as(sync_wake_on(0), 12), 12);
    assert_eq!(bench.fair.stats.nr_wakeups_affine_attempts, 0);
}

#[test]
fn the_lowest_domain_with_both_cpus_asks_and_counts() {
    let mut bench = Bench::placing("fair@6.15", TWO_LLCS);
    bench.busy_except(&[]);
    assert_eq!(bench.wake_as(sync_wake_on(0), 3), 0);
    let (mc, pkg) = (2, 3);
    assert_eq!(bench.fair.stats.levels[mc].ttwu_move_affine, 1);
    assert_eq!(bench.wake_as(sync_wake_on(0), 12), 0);
    assert_eq!(bench.fair.stats.levels[pkg].ttwu_move_affine, 1);
    assert_eq!(bench.fair.stats.nr_wakeups_affine_attempts, 2);
    assert_eq!(bench.fair.stats.nr_wakeups_affine, 2);
}

#[test]
fn wa_idle_prefers_an_idle_prev_over_an_idle_waker_cpu_of_the_same_llc() {
    let mut bench = Bench::placing("fair@6.15", TWO_LLCS);
    let wake = Wake { waker: None, interrupt: true, ..wake_on(0) };
    assert_eq!(bench.wake_as(wake, 3), 3);
    bench.busy([3]);
    assert_eq!(bench.wake_as(wake, 3), 0, "prev is busy now");
}

#[test]
fn wa_idle_lets_a_sync_waker_that_is_alone_pull() {
    let mut bench = Bench::placing("fair@6.15", TWO_LLCS);
    bench.busy_except(&[]);
    let mut lines = Lines::new(0);
    assert_eq!(
        bench.fair.wake_affine_idle(&bench.world, sync_wake_on(0), 12, &mut lines),
        Some(true)
    );
    assert_eq!(lines.ns, 0, "prev was not looked at");
    // Delayed tasks still count in nr_running, but not in this check.
    bench.fair.rqs[0].nr_running = 2;
    assert_eq!(
        bench.fair.wake_affine_idle(&bench.world, sync_wake_on(0), 12, &mut lines),
        Some(true)
    );
    bench.fair.rqs[0].nr_runnable = 2;
    assert_eq!(bench.fair.wake_affine_idle(&bench.world, sync_wake_on(0), 12, &mut lines), None);
}

#[test]
fn wa_idle_keeps_an_idle_prev_of_another_llc() {
    let mut bench = Bench::placing("fair@6.15", TWO_LLCS);
    bench.busy([0]);
    assert_eq!(bench.wake(0, 12), 12);
    assert_eq!(bench.fair.stats.nr_wakeups_affine_attempts, 1);
    assert_eq!(bench.fair.stats.nr_wakeups_affine, 0);
}

#[test]
fn wa_weight_compares_loads_with_half_the_imbalance_pct_as_bias() {
    // pct 117: factor 108. Compares this CPU's load with the wakee, times 100, to prev's load
    // without the wakee, times 108.
    let loads = AffineLoads {
        this: 900,
        prev: 1000,
        leaving: None,
        wakee: 0,
        imbalance_pct: 117,
        capacities: [1024; 2],
    };
    assert!(loads.prefer_this());
    assert!(AffineLoads { this: 1079, ..loads }.prefer_this());
    assert!(!AffineLoads { this: 1080, ..loads }.prefer_this(), "equal: prev");
    // SMT, pct 110: factor 105.
    assert!(AffineLoads { this: 1049, imbalance_pct: 110, ..loads }.prefer_this());
    assert!(!AffineLoads { this: 1050, imbalance_pct: 110, ..loads }.prefer_this());
}

/// 100 * 540 is less than 108 * 512, but interrupts leave this CPU 1000 of 1024: 100 * 540 * 1024 is not less than
/// 108 * 512 * 1000.
#[test]
fn wa_weight_scales_each_load_by_the_other_cpus_capacity() {
    let loads = AffineLoads {
        this: 540,
        prev: 512,
        leaving: None,
        wakee: 0,
        imbalance_pct: 117,
        capacities: [1024; 2],
    };
    assert!(loads.prefer_this());
    assert!(!AffineLoads { capacities: [1000, 1024], ..loads }.prefer_this());
    assert!(AffineLoads { capacities: [1000, 1000], ..loads }.prefer_this());
}

#[test]
fn wa_weight_moves_the_wakees_load_from_prev_to_this() {
    let loads = AffineLoads {
        this: 0,
        prev: 1024,
        leaving: None,
        wakee: 512,
        imbalance_pct: 117,
        capacities: [1024; 2],
    };
    // 512 * 100 is less than 512 * 108.
    assert!(loads.prefer_this());
    assert!(!AffineLoads { wakee: 540, ..loads }.prefer_this());
    assert!(!AffineLoads { prev: 100, ..loads }.prefer_this(), "prev's load may become negative");
}

#[test]
fn wa_weight_takes_a_sync_waker_off_and_breaks_ties_for_this() {
    let loads = AffineLoads {
        this: 1080,
        prev: 1000,
        leaving: None,
        wakee: 0,
        imbalance_pct: 117,
        capacities: [1024; 2],
    };
    assert!(!loads.prefer_this());
    assert!(AffineLoads { leaving: Some(0), ..loads }.prefer_this(), "the tie goes to this CPU");
    let heavy = AffineLoads { this: 3000, prev: 1000, ..loads };
    assert!(!AffineLoads { leaving: Some(NICE_0), ..heavy }.prefer_this());
    assert!(AffineLoads { leaving: Some(3001), ..heavy }.prefer_this(), "all of the load leaves");
}

#[test]
fn wakeups_of_other_cpus_are_counted_at_the_lowest_common_domain() {
    let mut bench = Bench::placing("fair@6.15", TWO_LLCS);
    bench.busy([0]);
    bench.wake(0, 12);
    bench.wake(0, 3);
    let levels = &bench.fair.stats.levels;
    assert_eq!((levels[2].ttwu_wake_remote, levels[3].ttwu_wake_remote), (1, 1));
}

#[test]
fn a_forbidden_prev_falls_back_to_its_node_and_then_to_any_cpu() {
    let mut bench = Bench::placing("fair@6.15", TWO_NODES);
    bench.allow(WAKEE, [2, 10, 11]);
    bench.busy_except(&[8]);
    bench.world.set_task_cpu(WAKEE, 8);
    assert_eq!(allowed_or_fallback(&bench.world, WAKEE, 8), 10);
    bench.allow(WAKEE, [2, 3]);
    assert_eq!(allowed_or_fallback(&bench.world, WAKEE, 8), 2);
    assert_eq!(bench.world.now(), Time(0));
}

#[test]
fn every_line_is_paid_for_once() {
    let mut bench = Bench::placing("fair@6.15", TWO_LLCS);
    bench.busy([0]);
    bench.wake(0, 12);
    // wake_affine reads prev and finds it idle. select_idle_sibling reads it again.
    assert_eq!(bench.cost(0), LINES_PER_QUEUE * bench.world.machine().line_ns(12, 0));
}

proptest! {
    /// The comparison as in the kernel, with one expression per side.
    #[test]
    fn wa_weight_is_the_kernels_comparison(
        this in 0u64..100_000, prev in 0u64..100_000, leaving in proptest::option::of(0u64..100_000),
        wakee in 0u64..100_000, imbalance_pct in prop_oneof![Just(110u32), Just(117), Just(125)],
    ) {
        let sync = i128::from(leaving.is_some());
        let l = i128::from(leaving.unwrap_or(0));
        let t = (i128::from(this) - l + i128::from(wakee)) * 100 * 1024;
        let p = (i128::from(prev) - i128::from(wakee))
            * (100 + (i128::from(imbalance_pct) - 100) / 2) * 1024 + sync;
        let expected = l > i128::from(this) || t < p;
        let loads = AffineLoads { this, prev, leaving, wakee, imbalance_pct, capacities: [1024; 2] };
        prop_assert_eq!(loads.prefer_this(), expected);
    }
}
