//! Tests of older versions on small machines, and the groups and rules that they use.

use roost_engine::{CpuId, Wake};
use roost_machine::CpuSet;

use crate::balance::{Rules, imbalance_tests};
use crate::kit::*;
use crate::mechanisms::Tolerance;
use crate::mechanisms::llc_imbalance::LlcTolerance;
use crate::mechanisms::numa_imbalance::NumaImbalance;
use crate::stats::IdleType;
use crate::wakeup::Lines;

use super::POWER_SCALE;
use super::groups::{DomainStats, GroupStats};

/// The rules of a level above the LLC at 125 per cent.
pub(super) fn rules(idle: IdleType) -> Rules {
    let rules = imbalance_tests::rules();
    Rules { idle, imbalance_pct: 125, ..rules }
}

/// A group of `cpus` CPUs with `nr` nice-0 tasks, spread evenly, that have not used any CPU time.
pub(super) fn evenly(nr: u32, cpus: u32) -> GroupStats {
    GroupStats {
        load: 1024 * u64::from(nr),
        queued: 1024 * u64::from(nr),
        nr_running: nr,
        idle_cpus: cpus.saturating_sub(nr),
        weight: cpus,
        power: POWER_SCALE * u64::from(cpus),
        ..GroupStats::default()
    }
}

/// A domain of these two groups.
pub(super) fn stats(local: GroupStats, busiest: GroupStats) -> DomainStats {
    DomainStats {
        local,
        busiest: Some(busiest),
        total_load: local.load + busiest.load,
        total_power: local.power + busiest.power,
    }
}

/// `select_idle_sibling` on CPU 0 for a task that last ran on `prev`.
fn search(bench: &mut Bench, prev: CpuId, target: CpuId) -> CpuId {
    let mut lines = Lines::new(0);
    bench.fair.select_idle_sibling(&bench.world, WAKEE, prev, target, &mut lines)
}

/// sis_search, sis_domain_search, sis_scanned, sis_failed.
fn sis(bench: &Bench) -> [u64; 4] {
    let s = &bench.fair.stats;
    [s.sis_search, s.sis_domain_search, s.sis_scanned, s.sis_failed]
}

fn recent(bench: &Bench, task: roost_engine::TaskId) -> CpuId {
    bench.fair.tasks[task.index()].recent_used_cpu
}

// Section 7.3, 5.2.

#[test]
fn recent_is_replaced_only_when_it_is_taken() {
    let mut bench = Bench::placing("fair@5.2", TWO_LLCS);
    bench.busy_except(&[5]);
    bench.fair.tasks[WAKEE.index()].recent_used_cpu = 5;
    assert_eq!(search(&mut bench, 3, 0), 5);
    assert_eq!(recent(&bench, WAKEE), 3);
    bench.fair.tasks[WAKEE.index()].recent_used_cpu = 6;
    assert_eq!(search(&mut bench, 3, 0), 5, "found by the scan");
    assert_eq!(recent(&bench, WAKEE), 6);
}

#[test]
fn an_affine_wakers_recent_cpu_is_where_it_runs() {
    let mut bench = Bench::placing("fair@5.2", TWO_LLCS);
    bench.wake(4, 3);
    assert_eq!(recent(&bench, WAKER), 4);
}

/// An idle core is known. The core of CPUs 4 and 5 is one, and the task may not use CPU 4.
#[test]
fn an_idle_core_comes_first_and_gives_the_first_cpu_allowed() {
    let mut bench = Bench::placing("fair@5.2", TWO_LLCS_SMT);
    bench.busy_except(&[1, 4, 5]);
    bench.allow(WAKEE, [0, 1, 2, 3, 5, 6, 7]);
    assert_eq!(search(&mut bench, 0, 0), 5);
    assert_eq!(sis(&bench), [1, 1, 1 + 6, 0], "all CPUs of cores 0, 1 and 2");
}

#[test]
fn without_an_idle_core_cpus_are_scanned_and_the_flag_is_cleared() {
    let mut bench = Bench::placing("fair@5.2", TWO_LLCS_SMT);
    bench.busy_except(&[3]);
    assert_eq!(search(&mut bench, 0, 0), 3);
    assert_eq!(sis(&bench), [1, 1, 1 + 8 + 4, 0], "four cores in vain, then CPUs 0 to 3");
    let now = bench.world.now() + 1_000_000;
    assert!(!bench.fair.llcs[0].has_idle_cores(now));
}

/// Section 7.4: at least 4 steps, and the last one gives up. The search begins at the target, which
/// counts. CPUs that the task may not use count too. The target's sibling is tried last.
#[test]
fn the_budget_begins_at_the_target() {
    let cpu = |idle: &[CpuId], allowed: &[CpuId]| {
        let mut bench = Bench::placing("fair@5.2", TWO_LLCS_SMT);
        bench.busy_except(idle);
        bench.allow(WAKEE, allowed.iter().copied());
        bench.fair.llcs[0].idle_cores = false;
        bench.fair.rqs[0].avg_idle = 0;
        (search(&mut bench, 2, 2), sis(&bench)[2])
    };
    let all: Vec<_> = (0..8).collect();
    assert_eq!(cpu(&[4], &all), (4, 1 + 3), "the third");
    assert_eq!(cpu(&[5], &all), (2, 1 + 4 + 2), "the fourth step gives up; no idle sibling");
    assert_eq!(cpu(&[5], &[2, 5, 6]), (2, 1 + 4 + 1));
}

/// 512 us of idle time over a cost of 100 ns for 8 CPUs: 8 x 1,000 / 101 = 79 steps. Without
/// sis-prop all CPUs. With sis-util the number that the LLC allows.
#[test]
fn the_budget_is_a_part_of_the_wakers_idle_time() {
    let scanned = |scheduler: &str| {
        let mut bench = Bench::placing(scheduler, TWO_LLCS);
        bench.busy_except(&[]);
        bench.fair.rqs[0].avg_idle = 512_000;
        bench.fair.rqs[0].domains[0].avg_scan_cost = 100;
        bench.fair.llcs[0].nr_idle_scan = 3;
        search(&mut bench, 2, 2);
        sis(&bench)[2] - 1
    };
    assert_eq!(scanned("fair@5.2"), 8);
    assert_eq!(scanned("fair@5.2+no-sis-prop"), 8);
    assert_eq!(scanned("fair@5.2+sis-util"), 4);
}

/// Section 7.2: prev is not preferred for being idle alone. CPU 0 runs the waker, whose load is 0.
/// CPU 12 of the other LLC is idle and has no load either. So there is no difference of weights,
/// and prev is chosen. Then CPU 12 has a load of 3000. The wakee's own load of 1024 would move from
/// CPU 12 to CPU 0.
#[test]
fn idle_prev_is_no_reason_in_5_2() {
    let mut bench = Bench::placing("fair@5.2", TWO_LLCS);
    bench.busy([0]);
    assert_eq!(bench.wake(0, 12), 12);
    let runnable = bench.fair.rqs[12].runnable_load.as_mut().unwrap();
    runnable.load_avg = 3000;
    assert_eq!(bench.wake(0, 12), 1, "CPU 0 has less load, although CPU 12 is idle");
}

#[test]
fn cpus_with_idle_policy_tasks_are_busy() {
    for scheduler in ["fair@5.2", "fair@3.9"] {
        let mut bench = Bench::placing(scheduler, TWO_LLCS);
        bench.busy_except(&[6]);
        bench.sched_idle(&[0, 1]);
        assert_eq!(search(&mut bench, 0, 0), 6, "{scheduler}");
    }
}

// Section 7.3, 3.9.

#[test]
fn a_group_of_idle_cpus_is_searched_from_the_llc_down() {
    let cpu = |idle: &[CpuId]| {
        let mut bench = Bench::placing("fair@3.9", TWO_LLCS_SMT);
        bench.busy_except(idle);
        search(&mut bench, 2, 2)
    };
    assert_eq!(cpu(&[3, 5, 6, 7]), 6, "an idle core rather than a sibling or a single thread");
    assert_eq!(cpu(&[0, 1, 6, 7]), 6, "cores from the target's on");
    assert_eq!(cpu(&[3, 5, 7]), 3, "then the target's sibling");
    assert_eq!(cpu(&[5, 7]), 2, "single threads of other cores are not searched");
    assert_eq!(cpu(&[8, 9]), 2, "nor other LLCs");
}

#[test]
fn of_an_idle_group_an_allowed_cpu_is_taken() {
    let mut bench = Bench::placing("fair@3.9", TWO_LLCS_SMT);
    bench.busy_except(&[4, 5, 6, 7]);
    bench.allow(WAKEE, [0, 1, 2, 3, 7]);
    assert_eq!(search(&mut bench, 2, 2), 7);
}

// Section 7.2, 3.9.

fn load(bench: &mut Bench, cpu: CpuId, tasks: u64) {
    bench.busy([cpu]);
    bench.fair.rqs[cpu].nr_running = tasks as u32;
    bench.fair.rqs[cpu].load_weight = 1024 * tasks;
}

#[test]
fn weights_decide_between_the_wakers_cpu_and_prev() {
    let cpu = |here: u64, there: u64, sync: bool| {
        let mut bench = Bench::placing("fair@3.9", TWO_LLCS);
        bench.busy_except(&[]);
        load(&mut bench, 0, here);
        load(&mut bench, 12, there);
        bench.fair.tasks[WAKEE.index()].weight = 1024;
        bench.fair.tasks[WAKER.index()].weight = 1024;
        let cpu = bench.wake_as(Wake { sync, ..wake_on(0) }, 12);
        (cpu, bench.fair.stats.nr_wakeups_affine_attempts, bench.fair.stats.nr_wakeups_affine)
    };
    assert_eq!(cpu(1, 1, false), (12, 1, 0));
    assert_eq!(cpu(1, 2, false), (0, 1, 1));
    assert_eq!(cpu(1, 1, true), (0, 0, 0), "the waker will sleep: nothing is left here");
}

/// The task may not run on CPU 0, so it goes to prev without a search, even if other CPUs are idle.
#[test]
fn without_affinity_to_the_waker_prev_is_taken_unseen() {
    let mut bench = Bench::placing("fair@3.9", TWO_LLCS);
    bench.busy([0, 5]);
    bench.allow(WAKEE, [4, 5, 6]);
    assert_eq!(bench.wake(0, 5), 5);
    assert_eq!(bench.fair.stats.sis_search, 0);
}

/// Section 14.5. Two tasks of the process are here and one is at prev's node: the process gains
/// nothing here. So there is no affinity, and prev is taken without a search. Otherwise the node of
/// prev is searched, where CPU 9 is idle.
#[test]
fn consolidation_leaves_a_task_that_gains_nothing_at_prev_unseen() {
    let cpu = |scheduler: &str, here: u64| {
        let mut bench = Bench::placing(scheduler, TWO_NODES);
        load(&mut bench, 0, here);
        load(&mut bench, 8, 1);
        bench.fair.on_queued(&bench.world, 0, WAKER);
        bench.fair.on_queued(&bench.world, 8, OTHERS[0]);
        bench.fair.tasks[WAKEE.index()].weight = 1024;
        (bench.wake(0, 8), bench.fair.stats.sis_search)
    };
    assert_eq!(cpu("fair@3.9", 2), (9, 1));
    assert_eq!(cpu("fair@3.9+consolidate", 2), (8, 0));
    assert_eq!(cpu("fair@3.9+consolidate", 1), (9, 1), "as many tasks of its process here");
}

/// One task of the process is here and two are at prev's node, one of which exits. Then the process
/// gains by coming here, unless the exited task still counts, as posted.
#[test]
fn as_posted_consolidation_counts_those_that_have_exited() {
    let may_wake = |scheduler: &str| {
        let mut bench = Bench::placing(scheduler, TWO_NODES);
        load(&mut bench, 0, 1);
        load(&mut bench, 8, 1);
        bench.world.set_task_cpu(WAKEE, 8);
        for (cpu, task) in [(0, WAKER), (8, OTHERS[0]), (8, OTHERS[1])] {
            bench.fair.on_queued(&bench.world, cpu, task);
        }
        let may = |bench: &Bench| bench.fair.may_wake_at(&bench.world, WAKEE, 0);
        let before = may(&bench);
        bench.fair.on_exit(8, OTHERS[1]);
        bench.fair.on_left(8, OTHERS[1]);
        (before, may(&bench))
    };
    assert_eq!(may_wake("fair@3.9+consolidate"), (false, true));
    assert_eq!(may_wake("fair@3.9+consolidate-posted"), (false, false));
}

// Section 11, 3.9: the loads that balancing sees.

/// The averages of the CPU are those of one task. A second task that has just come is no load for
/// other groups. A task that has just left is still load for the CPU's own group.
#[test]
fn in_3_9_what_has_just_come_or_gone_speaks_for_balance() {
    let mut bench = Bench::placing("fair@3.9", TWO_NODES);
    load(&mut bench, 8, 1);
    (0..40).for_each(|_| bench.fair.decay_load(&bench.world, 8));
    let seen = |bench: &Bench| {
        [(Some(1), false), (Some(1), true), (None, false)]
            .map(|(average, own)| bench.fair.load_seen(8, average, own))
    };
    assert_eq!(seen(&bench), [1024; 3]);
    load(&mut bench, 8, 2);
    assert_eq!(seen(&bench), [1024, 2048, 2048]);
    load(&mut bench, 8, 0);
    assert_eq!(seen(&bench), [0, 1024, 0]);
}

/// `busy_idx` and `idle_idx` of the LLC are 2 and none, of NUMA levels 3 and 2. For newly-idle
/// passes there is none.
#[test]
fn in_3_9_higher_levels_take_longer_averages() {
    let averages = |scheduler: &str, level: usize| {
        let bench = Bench::placing(scheduler, TWO_NODES);
        let domain = bench.fair.topology.domain(bench.fair.topology.domains_of(0)[level]);
        [IdleType::Busy, IdleType::Idle, IdleType::NewlyIdle]
            .map(|idle| bench.fair.average_for(domain, idle))
    };
    assert_eq!(averages("fair@3.9", 0), [Some(1), None, None]);
    assert_eq!(averages("fair@3.9", 1), [Some(2), Some(1), None]);
    assert_eq!(averages("fair@5.2", 1), [None; 3]);
}

// Section 8.

/// Of equal groups both versions choose another one than the local group. If all CPUs of a node are
/// idle and CPU 8 would be the idlest, CPU 9 is chosen.
#[test]
fn new_tasks_go_to_the_group_with_the_least_load() {
    for scheduler in ["fair@5.2", "fair@3.9"] {
        let mut bench = Bench::placing(scheduler, TWO_NODES);
        for cpu in 0..8 {
            load(&mut bench, cpu, 1);
            let rq = &mut bench.fair.rqs[cpu];
            rq.avg.load_avg = 1024;
            if let Some(runnable) = &mut rq.runnable_load {
                runnable.load_avg = 1024;
            }
        }
        bench.world.set_task_cpu(WAKEE, 0);
        let fork =
            |bench: &mut Bench| bench.fair.select_task_rq_fork(&mut bench.world, WAKEE, wake_on(0));
        assert_eq!(fork(&mut bench), 9, "{scheduler}: the idle node");
        bench.world.set_allowed_for_test(WAKEE, CpuSet::from_cpus(16, [3, 4]));
        assert_eq!(fork(&mut bench), 3, "{scheduler}: the only node allowed");
    }
}

/// Two nodes of eight CPUs, one task here. The published rule allows 2 tasks on such nodes.
#[test]
fn an_allowed_imbalance_keeps_new_tasks_on_the_node() {
    for version in ["fair@5.2", "fair@3.9"] {
        let fork = |scheduler: &str| {
            let mut bench = Bench::placing(scheduler, TWO_NODES);
            load(&mut bench, 0, 1);
            let rq = &mut bench.fair.rqs[0];
            rq.avg.load_avg = 1024;
            if let Some(runnable) = &mut rq.runnable_load {
                runnable.load_avg = 4 * 1024;
            }
            bench.world.set_task_cpu(WAKEE, 0);
            bench.fair.select_task_rq_fork(&mut bench.world, WAKEE, wake_on(0))
        };
        assert_eq!(fork(version), 9, "{version}");
        assert_eq!(fork(&format!("{version}+numa-imbalance")), 1, "{version}");
    }
}

/// In 3.9 the threads of a core share 1178; later each counts as a whole CPU.
#[test]
fn power_of_threads() {
    let power = |scheduler: &str, cpu: CpuId| {
        Bench::placing(scheduler, TWO_LLCS_SMT).fair.power.of_cpu(cpu)
    };
    assert_eq!((power("fair@3.9", 0), power("fair@5.2", 0)), (589, 1024));
    let one = Bench::placing("fair@3.9", TWO_LLCS);
    assert_eq!((one.fair.power.of_cpu(0), one.fair.power.of_group(0)), (1024, 1024));
}

#[test]
fn what_is_allowed_to_differ_is_left_alone_while_no_group_is_full() {
    let with = |tolerance| Rules { tolerance, ..rules(IdleType::Idle) };
    let by = |rule| with(Tolerance::between_nodes_by(rule, 2));
    let left = |local, busiest, rules| super::groups::left_alone(&local, &busiest, &rules);
    let on = by(NumaImbalance::Merged60);
    assert!(left(evenly(0, 8), evenly(2, 8), on));
    assert!(!left(evenly(3, 8), evenly(8, 8), on), "full");
    assert!(!left(evenly(0, 8), evenly(2, 8), by(NumaImbalance::None)));
    let quarter = LlcTolerance::Quarter { span: 16, child_span: 8 };
    let llc = with(Tolerance::between_llcs_by(quarter));
    assert!(left(evenly(0, 8), evenly(4, 8), llc) && !left(evenly(0, 8), evenly(6, 8), llc));
    let three = with(Tolerance::between_llcs_by(LlcTolerance::UpTo(3)));
    assert!(left(evenly(0, 8), evenly(6, 8), three), "a number replaces the quarter");
}
