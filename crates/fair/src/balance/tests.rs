//! Balancing on small machines: whole passes with real queues.

use std::sync::Arc;

use proptest::prelude::*;
use roost_engine::{CpuId, Dequeue, Scheduler, TaskId, Time, Work, World};
use roost_machine::CpuSet;

use super::*;
use crate::cache::tests::gather_at;
use crate::features::Features;
use crate::kit::{Bench, pick};
use crate::start::Start;
use crate::state::{NohzKick, Push};
use crate::stats::LbStats;

/// How long a task counts as cache-hot, ns: sections 9.2 and 10.9.
const MIGRATION_COST_NS: u64 = 500_000;

/// Two LLCs of four CPUs without SMT.
const TWO_LLCS: &str = "pack:1 node:1 l3:2 core:4 pu:1";
/// Two nodes of two LLCs of two cores with two threads.
const TWO_NODES: &str = "pack:2 node:1 l3:2 core:2 pu:2";
/// One LLC of 16 CPUs.
const ONE_LLC: &str = "pack:1 node:1 l3:1 core:16 pu:1";

const MS: u64 = 1_000_000;

/// The stopper shall push any task to CPU 0, at the lowest level.
const PUSH: Push = Push { cpu: 0, level: 0, for_llc: false };

/// A kick to refresh blocked load.
const STATS: NohzKick = NohzKick { balance: false, stats: true, next: false };

impl Bench {
    /// The balancing part of a tick.
    fn tick_balance(&mut self, cpu: CpuId) {
        self.fair.nohz_balancer_kick(&mut self.world, cpu);
        self.fair.balance_if_due(&mut self.world, cpu);
    }

    fn balance(&mut self, cpu: CpuId, level: usize, idle: IdleType) -> pass::Verdict {
        let verdict = self.fair.load_balance(&mut self.world, cpu, cpu, level, idle);
        self.fair.balance.pay(&mut self.world, cpu);
        verdict
    }

    fn nr(&self, cpu: CpuId) -> u32 {
        self.fair.rqs[cpu].nr_running
    }

    fn state(&mut self, cpu: CpuId, level: usize) -> &mut DomainState {
        &mut self.fair.rqs[cpu].domains[level]
    }

    fn lb(&mut self, cpu: CpuId, level: usize, idle: IdleType) -> LbStats {
        let level = self.fair.topology.stat_level(cpu, level);
        *self.fair.stats.lb(level, idle)
    }

    /// Runs the stopper of `cpu`, as the engine does.
    fn stop(&mut self, cpu: CpuId) {
        self.fair.put_current(&mut self.world, cpu);
        self.fair.work(&mut self.world, cpu, Work::Stop);
        self.pick(cpu);
    }
}

/// Section 9.1, HZ 1000; busy_factor 16.
#[test]
fn intervals_of_busy_and_idle_cpus() {
    let idle = |ms| interval_jiffies(ms, None, 1000, 224);
    let factor = |factor, less| Some(Busy { factor, less });
    let busy = |ms| interval_jiffies(ms, factor(16, 1), 1000, 224);
    assert_eq!((idle(16), busy(16)), (16, 255));
    assert_eq!((idle(112), busy(112)), (112, 1791));
    assert_eq!(interval_jiffies(16, factor(16, 1), 1000, 2), 200, "at most HZ * ncpus / 10");
    assert_eq!(interval_jiffies(2, None, 250, 16), 1, "2 ms round up to a jiffy");
    assert_eq!(interval_jiffies(2, factor(16, 1), 250, 16), 7);
    assert_eq!(interval_jiffies(16, factor(32, 0), 1000, 224), 512, "5.2");
}

#[test]
fn a_balanced_pass_doubles_the_interval_and_an_unbalanced_one_restores_it() {
    let mut bench = Bench::new("fair@6.15", TWO_LLCS, 4);
    assert_eq!(bench.state(0, 0).balance_interval, 4, "ms, as many as CPUs");
    for idle in [IdleType::NewlyIdle, IdleType::Idle, IdleType::Idle] {
        bench.balance(0, 0, idle);
    }
    assert_eq!(bench.state(0, 0).balance_interval, 8, "twice the CPUs at most");
    bench.queue(1, 0..3);
    bench.elapse(10 * MS);
    assert_eq!(bench.balance(0, 0, IdleType::Idle).moved, 1);
    assert_eq!(bench.state(0, 0).balance_interval, 4);
}

#[test]
fn newidle_cost_decays_once_a_second() {
    let mut state = DomainState { max_newidle_lb_cost: 256_000, ..DomainState::default() };
    assert!(!decay_newidle_cost(&mut state, 250, 250));
    assert!(decay_newidle_cost(&mut state, 251, 250));
    assert_eq!((state.max_newidle_lb_cost, state.last_decay), (253_000, 251));
    assert!(!decay_newidle_cost(&mut state, 501, 250));
}

#[test]
fn an_idle_cpu_pulls_from_a_queue_of_its_llc() {
    for scheduler in ["fair@5.16", "fair@5.19", "fair@6.15", "fair@7.2"] {
        let mut bench = Bench::new(scheduler, TWO_LLCS, 4);
        bench.queue(1, 0..3);
        bench.elapse(10 * MS);
        let verdict = bench.balance(0, 0, IdleType::Idle);
        assert_eq!((verdict.moved, bench.nr(0), bench.nr(1)), (1, 1, 2), "{scheduler}");
        assert_eq!(bench.lb(0, 0, IdleType::Idle).gained, 1);
        assert!(bench.world.backlog_ns(0) > 0, "{scheduler}: looking costs time");
    }
}

#[test]
fn newly_idle_needs_overload_and_pulls_one_task() {
    let mut bench = Bench::new("fair@6.15", TWO_LLCS, 8);
    bench.queue(1, 0..6);
    bench.elapse(10 * MS);
    bench.fair.rqs[0].avg_idle = MS;
    bench.fair.root_overloaded = false;
    assert_eq!(bench.pick(0), None, "a statistics pass found no overloaded CPU");
    bench.fair.root_overloaded = true;
    assert!(bench.pick(0).is_some());
    assert_eq!((bench.nr(0), bench.nr(1)), (1, 5));
    assert!(bench.state(0, 0).max_newidle_lb_cost > 0, "the pass has a cost");
}

#[test]
fn newly_idle_gives_up_if_idle_time_does_not_pay_for_it() {
    for (scheduler, avg_idle, pulls) in [
        ("fair@5.16", MIGRATION_COST_NS - 1, false),
        ("fair@5.16", MIGRATION_COST_NS, true),
        ("fair@5.19", 99_999, false),
        ("fair@5.19", 100_000, true),
    ] {
        let mut bench = Bench::new(scheduler, TWO_LLCS, 4);
        bench.queue(1, 0..3);
        bench.elapse(10 * MS);
        bench.fair.root_overloaded = true;
        bench.fair.rqs[0].avg_idle = avg_idle;
        bench.state(0, 0).max_newidle_lb_cost = 100_000;
        assert_eq!(bench.pick(0).is_some(), pulls, "{scheduler}, idle {avg_idle}");
    }
}

#[test]
fn the_root_domain_tells_whether_some_cpu_has_several_tasks() {
    let mut bench = Bench::new("fair@6.15", TWO_LLCS, 4);
    bench.queue(1, 0..1);
    bench.fair.root_overloaded = true;
    bench.balance(0, 1, IdleType::Idle);
    assert!(!bench.fair.root_overloaded);
    bench.queue(1, 1..2);
    assert!(bench.fair.root_overloaded, "a second task on a queue sets it at once");
    bench.fair.root_overloaded = false;
    bench.queue(1, 2..3);
    bench.balance(0, 0, IdleType::Idle);
    assert!(!bench.fair.root_overloaded, "only a pass at the root level sets it");
    assert_eq!((bench.nr(0), bench.nr(1)), (1, 2));
    bench.balance(2, 1, IdleType::Idle);
    assert!(bench.fair.root_overloaded);
}

#[test]
fn only_the_elected_cpu_balances_and_others_stop_climbing() {
    let mut bench = Bench::new("fair@6.15", TWO_LLCS, 8);
    bench.queue(5, 0..4);
    bench.elapse(10 * MS);
    let verdict = bench.balance(2, 1, IdleType::Idle);
    assert_eq!((verdict.moved, verdict.go_on), (0, false), "CPU 0 is idle and comes first");
    assert!(bench.balance(0, 1, IdleType::Idle).moved > 0);
}

#[test]
fn periodic_balancing_waits_for_its_interval() {
    let mut bench = Bench::new("fair@6.15", TWO_LLCS, 4);
    bench.queue(1, 0..1);
    let start = bench.fair.jiffies(Time(0));
    bench.fair.rqs[1].domains.iter_mut().for_each(|domain| domain.last_balance = start);
    // A busy CPU of an LLC of 4 CPUs: 4 ms · 16 is 16 jiffies at HZ 250, less one is 15.
    bench.elapse(14 * 4 * MS);
    bench.tick_balance(1);
    assert_eq!(bench.lb(1, 0, IdleType::Busy).count, 0);
    bench.elapse(4 * MS);
    bench.fair.rqs[1].next_balance = start + 15;
    bench.tick_balance(1);
    assert_eq!(bench.lb(1, 0, IdleType::Busy).count, 1);
    assert_eq!(bench.state(1, 0).last_balance, start + 15);
}

/// The first pass finds balance, which doubles the interval. Up to 3.15 the next balance still uses
/// the interval from before the pass.
#[test]
fn in_3_9_the_next_balance_is_due_by_the_interval_from_before_the_pass() {
    for (scheduler, doubled) in [("fair@3.9", false), ("fair@5.2", true)] {
        let mut bench = Bench::new(scheduler, TWO_LLCS, 4);
        bench.queue(1, 0..1);
        bench.elapse(4000 * MS);
        let interval = |bench: &mut Bench| bench.state(1, 0).balance_interval;
        let (before, factor) = (interval(&mut bench), bench.fair.domain_of(1, 0).busy_factor);
        bench.tick_balance(1);
        assert_eq!(interval(&mut bench), 2 * before, "{scheduler}");
        let now = bench.fair.jiffies(bench.world.now());
        let goes_by = if doubled { 2 * before } else { before };
        let due = now + ms_to_jiffies(u64::from(goes_by * factor), bench.fair.features.hz);
        assert_eq!(bench.fair.rqs[1].next_balance, due, "{scheduler}");
    }
}

/// Two CPU-bound tasks on one of two CPUs' queues, hot or not, and the number of failures.
#[test]
fn hot_tasks_move_after_failures() {
    let mut bench = Bench::new("fair@5.19", TWO_LLCS, 4);
    bench.queue(1, 0..2);
    bench.elapse(10 * MS);
    for task in 0..2 {
        bench.fair.tasks[task].exec_start = bench.world.now().ns() - MIGRATION_COST_NS + 1;
    }
    for failed in 0..2 {
        assert_eq!(bench.state(0, 0).nr_balance_failed, failed);
        assert_eq!(bench.balance(0, 0, IdleType::Idle).moved, 0);
    }
    assert_eq!(bench.fair.stats.nr_failed_migrations_hot, 2);
    assert_eq!(bench.balance(0, 0, IdleType::Idle).moved, 1, "2 > cache_nice_tries = 1");
    assert_eq!(bench.lb(0, 0, IdleType::Idle).hot_gained, 1);
    assert_eq!(bench.fair.stats.nr_forced_migrations, 1);
    assert_eq!(bench.state(0, 0).nr_balance_failed, 0);
}

#[test]
fn from_6_13_delayed_and_ineligible_tasks_are_refused() {
    use super::detach::MayMove::{No, Yes};
    use super::imbalance::Migration;
    for (scheduler, refused) in [("fair@5.19", Yes), ("fair@6.15", No)] {
        let mut bench = Bench::new(scheduler, TWO_LLCS, 4);
        bench.queue(1, 0..2);
        bench.elapse(10 * MS);
        assert_eq!(bench.pick(1), Some(TaskId(1)), "task 0 has run more than its share");
        bench.fair.tasks[0].exec_start = 0;
        let mut pass = pass::Pass::push(&bench.fair, 1, PUSH);
        (pass.active, pass.kind) = (false, Migration::Task);
        let mut ask = |bench: &mut Bench| bench.fair.may_move(&bench.world, &mut pass, TaskId(0));
        assert_eq!(ask(&mut bench), Yes, "{scheduler}: the destination is empty");
        bench.queue(0, [2]);
        assert_eq!(ask(&mut bench), refused, "{scheduler}: ineligible");
        bench.state(0, 0).nr_balance_failed = 1;
        assert_eq!(ask(&mut bench), Yes, "{scheduler}: after a failure");
        bench.fair.tasks[0].delayed = true;
        assert_eq!(ask(&mut bench), refused, "{scheduler}: delayed");
        pass.kind = Migration::Load;
        assert_eq!(bench.fair.may_move(&bench.world, &mut pass, TaskId(0)), Yes);
    }
}

#[test]
fn after_enough_failures_the_stopper_pushes_what_runs() {
    // The LLC of CPUs 4 to 7 has four CPUs with one task each. Nothing can be detached.
    let mut bench = Bench::new("fair@6.15", TWO_LLCS, 8);
    for (cpu, task) in [(4, 0), (5, 1), (6, 2), (7, 3)] {
        bench.queue(cpu, [task]);
    }
    bench.elapse(20 * MS);
    for failed in 0..3 {
        assert_eq!(bench.balance(0, 1, IdleType::Idle).moved, 0);
        assert_eq!(bench.state(0, 1).nr_balance_failed, failed + 1);
        assert!((4..8).all(|cpu| bench.fair.rqs[cpu].push.is_none()));
    }
    assert_eq!(bench.balance(0, 1, IdleType::Idle).moved, 0);
    let source = (4..8).find(|&cpu| bench.fair.rqs[cpu].push.is_some()).unwrap();
    assert_eq!(bench.world.take_work_for_test(source), Work::Stop as u8);
    bench.stop(source);
    assert_eq!((bench.nr(0), bench.nr(source)), (1, 0));
    let level = bench.fair.topology.stat_level(0, 1);
    let counters = bench.fair.stats.levels[level];
    assert_eq!((counters.alb_count, counters.alb_pushed, counters.alb_failed), (1, 1, 0));
    assert_eq!(bench.state(0, 1).nr_balance_failed, 0);
}

#[test]
fn the_published_llc_filter_keeps_two_tasks_where_they_are() {
    for (scheduler, fails) in [("fair@6.15", 1), ("fair@6.15+llc-imbalance", 0)] {
        let mut bench = Bench::new(scheduler, "pack:2 node:1 l3:2 core:4 pu:1", 2);
        bench.queue(4, [0]);
        bench.queue(5, [1]);
        bench.elapse(20 * MS);
        bench.balance(0, 1, IdleType::Idle);
        assert_eq!(bench.lb(0, 1, IdleType::Idle).failed, fails, "{scheduler}");
    }
}

#[test]
fn affinity_tells_the_level_above_and_a_later_balance_takes_it_back() {
    let mut bench = Bench::new("fair@6.15", TWO_LLCS, 4);
    for task in 0..3 {
        bench.allow(TaskId(task), [1, 5]);
    }
    bench.queue(1, 0..3);
    bench.elapse(10 * MS);
    let group = bench.fair.domain_of(0, 1).groups[0];
    assert_eq!(bench.balance(0, 0, IdleType::Idle).moved, 0);
    assert!(bench.fair.balance.group_imbalance[group], "CPUs 0, 2 and 3 are not allowed");
    assert_eq!(bench.lb(0, 0, IdleType::Idle).balanced, 1, "all tasks are pinned");
    assert!(bench.fair.stats.nr_failed_migrations_affine >= 2);
    // The other LLC sees an imbalanced group and pulls one task to the CPU where it may run.
    assert_eq!(bench.balance(4, 1, IdleType::Idle).moved, 1);
    assert_eq!((bench.nr(4), bench.nr(5)), (0, 1), "the destination that affinity allows");
    let mut calm = Bench::new("fair@6.15", TWO_LLCS, 1);
    calm.fair.balance.group_imbalance[group] = true;
    calm.balance(0, 0, IdleType::Idle);
    assert!(!calm.fair.balance.group_imbalance[group]);
}

#[test]
fn a_pinned_source_is_left_out_and_another_one_tried() {
    let mut bench = Bench::new("fair@6.15", TWO_LLCS, 8);
    for task in 0..3 {
        bench.allow(TaskId(task), [1]);
    }
    bench.queue(1, 0..3);
    bench.queue(2, 3..5);
    bench.elapse(10 * MS);
    assert_eq!(bench.balance(0, 0, IdleType::Idle).moved, 1);
    assert_eq!((bench.nr(0), bench.nr(1), bench.nr(2)), (1, 3, 1));
}

#[test]
fn sis_util_learns_the_llcs_utilisation_in_periodic_passes_only() {
    let mut bench = Bench::new("fair@6.15", ONE_LLC, 16);
    for cpu in 0..16 {
        bench.fair.rqs[cpu].util_est = 461;
    }
    bench.balance(0, 0, IdleType::NewlyIdle);
    assert_eq!(bench.fair.llcs[0].nr_idle_scan, 0);
    bench.balance(0, 0, IdleType::Idle);
    assert_eq!(bench.fair.llcs[0].nr_idle_scan, 11, "x from 439: 11, from 491: 10");
    let mut without = Bench::new("fair@5.19", ONE_LLC, 1);
    without.balance(0, 0, IdleType::Idle);
    assert_eq!(without.fair.llcs[0].nr_idle_scan, 0);
}

#[test]
fn a_numa_level_is_balanced_by_one_cpu_at_a_time() {
    for scheduler in ["fair@6.15", "fair@7.2"] {
        let mut bench = Bench::new(scheduler, TWO_NODES, 4);
        let numa = bench.fair.topology.numa_level[0].unwrap();
        bench.elapse(1000 * MS);
        bench.fair.balance.serialized_until = bench.world.now() + MS;
        bench.fair.balance_domains(&mut bench.world, 0, 0, IdleType::Idle);
        let counted = u64::from(bench.fair.features.balance.serialize_inside);
        let lb = bench.lb(0, numa, IdleType::Idle);
        assert_eq!((lb.count, lb.nobusyg), (counted, 0), "{scheduler}: the lock was taken");
        bench.elapse(1000 * MS);
        bench.fair.balance_domains(&mut bench.world, 0, 0, IdleType::Idle);
        assert_eq!(bench.lb(0, numa, IdleType::Idle).nobusyg, 1, "{scheduler}");
        assert!(bench.fair.balance.serialized_until > bench.world.now());
    }
}

#[test]
fn a_busy_cpus_tick_has_an_idle_one_balance_for_all() {
    let mut bench = Bench::new("fair@6.15", TWO_LLCS, 4);
    bench.queue(0, 0..3);
    bench.elapse(40 * MS);
    bench.tick(0);
    let balancer = (0..8).find(|&cpu| bench.fair.rqs[cpu].nohz_kick.is_some()).unwrap();
    assert_eq!(balancer, 1, "the first idle CPU of the nohz mask");
    assert_eq!(bench.world.take_work_for_test(1), Work::Balance as u8);
    bench.fair.work(&mut bench.world, 1, Work::Balance);
    let queued: u32 = (0..8).map(|cpu| bench.nr(cpu)).sum();
    assert_eq!(queued, 3);
    assert!(bench.nr(0) < 3, "some idle CPU got a task");
    assert!(bench.fair.rqs[1].nohz_kick.is_none());
}

#[test]
fn blocked_load_of_tickless_cpus_is_refreshed() {
    let mut bench = Bench::new("fair@6.15", TWO_LLCS, 1);
    bench.fair.rqs[6].avg = crate::pelt::Avg {
        load_avg: 1024,
        util_avg: 1024,
        load_sum: 47_742 * 1024,
        util_sum: 47_742 * 1024,
        ..Default::default()
    };
    bench.world.set_now_for_test(Time(32 * MS));
    bench.fair.balance_for_idle(&mut bench.world, 1, STATS);
    assert!(bench.fair.rqs[6].avg.util_avg < 600, "it halves in 32 ms");
    assert!(bench.fair.nohz.has_blocked);
    let now = bench.fair.jiffies(bench.world.now());
    assert_eq!(bench.fair.nohz.next_blocked, now + 8, "32 ms at HZ 250");
}

#[test]
fn busy_cpus_of_an_llc_are_those_whose_tick_runs() {
    let mut bench = Bench::new("fair@6.15", TWO_LLCS, 1);
    assert_eq!(bench.fair.llcs[0].nr_busy_cpus, 0, "all stopped their ticks");
    bench.fair.nohz_exit_idle(&mut bench.world, 2);
    bench.fair.nohz_exit_idle(&mut bench.world, 2);
    assert_eq!(bench.fair.llcs[0].nr_busy_cpus, 1);
    assert!(!bench.fair.nohz.idle_cpus.contains(2));
    bench.fair.nohz_enter_idle(&mut bench.world, 2);
    bench.fair.nohz_enter_idle(&mut bench.world, 2);
    assert_eq!(bench.fair.llcs[0].nr_busy_cpus, 0);
}

#[test]
fn after_domains_were_rebuilt_a_cpu_counts_as_busy_until_it_has_been_busy_and_goes_idle() {
    let machine = Arc::new(roost_machine::resolve(TWO_LLCS).unwrap());
    let mut world = World::for_test(machine.clone(), 1);
    let mut fair =
        Fair::new(&machine, Features::parse("fair@6.15").unwrap()).starting(Start::DomainsRebuilt);
    fair.start(&mut world);
    assert!(fair.nohz.idle_cpus.contains(2));
    assert_eq!(fair.llcs[0].nr_busy_cpus, 4);
    fair.nohz_exit_idle(&mut world, 2);
    assert_eq!(fair.llcs[0].nr_busy_cpus, 4, "it was never counted as idle");
    fair.nohz_enter_idle(&mut world, 2);
    assert_eq!(fair.llcs[0].nr_busy_cpus, 3);
    fair.nohz_exit_idle(&mut world, 2);
    assert_eq!(fair.llcs[0].nr_busy_cpus, 4);
}

/// 7.2 without a cpuidle driver: after a CPU goes idle, one more tick comes.
#[test]
fn an_idle_cpu_balances_in_one_more_tick_before_it_stops_it() {
    for (scheduler, keeps_tick) in [("fair@6.15", false), ("fair@7.2", true)] {
        let mut bench = Bench::new(scheduler, TWO_LLCS, 2);
        bench.queue(0, [0]);
        bench.elapse(100 * MS);
        bench.tick(0);
        assert!(!bench.fair.nohz.idle_cpus.contains(0), "{scheduler}: a busy tick");
        bench.fair.dequeue(&mut bench.world, 0, TaskId(0), Dequeue::Exit);
        bench.world.set_current_for_test(0, None);
        assert_eq!(pick(&mut bench.fair, &mut bench.world, 0), None);
        assert_eq!(bench.fair.nohz.idle_cpus.contains(0), !keeps_tick, "{scheduler}");
        let passes = bench.lb(0, 0, IdleType::Idle).count;
        bench.elapse(100 * MS);
        bench.fair.idle_tick(&mut bench.world, 0);
        assert!(bench.fair.nohz.idle_cpus.contains(0), "{scheduler}");
        let made = bench.lb(0, 0, IdleType::Idle).count - passes;
        assert_eq!(made, u64::from(keeps_tick), "{scheduler}: every level was due");
    }
}

#[test]
fn an_idle_cpu_that_pulls_in_its_tick_does_not_stop_it() {
    let mut bench = Bench::new("fair@7.2", TWO_LLCS, 4);
    bench.queue(1, 0..3);
    bench.elapse(100 * MS);
    bench.fair.nohz_exit_idle(&mut bench.world, 0);
    bench.fair.idle_tick(&mut bench.world, 0);
    assert_eq!(bench.lb(0, 0, IdleType::Idle).gained, 1);
    assert!(bench.world.resched_pending(0));
    assert!(!bench.fair.nohz.idle_cpus.contains(0));
}

/// NOHZ_NEXT_KICK: `nohz.next_balance` becomes the earliest of the tickless CPUs', and nothing else
/// happens. Without it the next balance stays as it was before, although a tickless CPU is due
/// sooner.
#[test]
fn a_cpu_that_stops_its_tick_has_the_next_balance_computed_anew() {
    for (scheduler, expected) in [("fair@6.15", 1000), ("fair@7.2", 60)] {
        let mut bench = Bench::new(scheduler, TWO_LLCS, 1);
        bench.queue(7, [0]);
        bench.elapse(40 * MS);
        for rq in &mut bench.fair.rqs {
            rq.next_balance = 500;
        }
        bench.fair.rqs[3].next_balance = 60;
        bench.fair.nohz_exit_idle(&mut bench.world, 3);
        bench.fair.nohz.needs_update = false;
        bench.fair.nohz.has_blocked = false;
        bench.fair.nohz_enter_idle(&mut bench.world, 3);
        bench.fair.nohz.next_balance = 1000;
        bench.fair.nohz.next_blocked = 1000;
        bench.fair.tick(&mut bench.world, 7);
        bench.work(0);
        assert_eq!(bench.fair.nohz.next_balance, expected, "{scheduler}");
        assert!(!bench.fair.nohz.needs_update && bench.fair.nohz.has_blocked, "{scheduler}");
        assert_eq!(bench.fair.nohz.next_blocked, 1000, "{scheduler}: no load was refreshed");
        assert_eq!(bench.lb(3, 0, IdleType::Idle).count, 0, "{scheduler}");
    }
}

/// `if (likely(!active_balance) || need_active_balance(&env))`.
#[test]
fn a_pass_that_starts_active_balance_restores_the_interval() {
    for (scheduler, interval) in [("fair@6.15", 16), ("fair@7.2", 8)] {
        let mut bench = Bench::new(scheduler, TWO_LLCS, 8);
        for (cpu, task) in [(4, 0), (5, 1), (6, 2), (7, 3)] {
            bench.queue(cpu, [task]);
        }
        bench.elapse(20 * MS);
        let state = bench.state(0, 1);
        (state.nr_balance_failed, state.balance_interval) = (3, 16);
        assert_eq!(bench.balance(0, 1, IdleType::Idle).moved, 0);
        assert!((4..8).any(|cpu| bench.fair.rqs[cpu].push.is_some()), "{scheduler}");
        assert_eq!(bench.state(0, 1).balance_interval, interval, "{scheduler}");
    }
}

/// ENQUEUE_MIGRATED clears `exec_start` (`enqueue_entity`).
#[test]
fn a_task_that_migrated_is_not_hot() {
    for scheduler in ["fair@6.15", "fair@7.2"] {
        let mut bench = Bench::new(scheduler, TWO_LLCS, 4);
        bench.queue(1, 0..3);
        bench.elapse(10 * MS);
        let task = TaskId(1);
        let ran = bench.world.now().ns() - MIGRATION_COST_NS + 1;
        bench.fair.tasks[task.index()].exec_start = ran;
        bench.fair.detach_queued(&mut bench.world, task, 1, 0);
        bench.fair.attach_queued(&mut bench.world, task, 0, 0);
        assert_eq!(bench.fair.tasks[task.index()].exec_start, 0, "{scheduler}");
    }
}

/// LBF_ACTIVE_LB_LLC: a stopper that was asked to move tasks to their LLC moves no others.
#[test]
fn a_push_for_the_sake_of_an_llc_takes_only_tasks_that_prefer_it() {
    for (for_llc, prefers, pushed) in [(true, 0, 1), (true, 4, 0), (false, 4, 1)] {
        let mut bench = Bench::new("fair@7.2", TWO_LLCS, 2);
        bench.queue(4, [0]);
        bench.elapse(10 * MS);
        gather_at(&mut bench.fair, prefers);
        bench.fair.rqs[4].push = Some(Push { cpu: 0, level: 1, for_llc });
        bench.stop(4);
        assert_eq!(bench.nr(0), pushed, "for_llc: {for_llc}, preferred: the LLC of CPU {prefers}");
    }
}

/// `update_newidle_cost()` with a cost below the highest one.
#[test]
fn newly_idle_costs_decay_in_newly_idle_passes_too_from_7_2_on() {
    for (scheduler, highest) in [("fair@6.15", 256_000), ("fair@7.2", 253_000)] {
        let mut bench = Bench::new(scheduler, TWO_LLCS, 1);
        bench.elapse(1004 * MS);
        bench.state(0, 0).max_newidle_lb_cost = 256_000;
        bench.fair.note_newidle(&bench.world, 0, 0, 1000, 0);
        assert_eq!(bench.state(0, 0).max_newidle_lb_cost, highest, "{scheduler}");
    }
}

/// One step of a random history.
#[derive(Clone, Debug)]
enum Step {
    Elapse(u64),
    Tick(CpuId),
    IdleTick(CpuId),
    Pick(CpuId),
    Balance(CpuId, usize, IdleType),
    Work(CpuId),
}

fn step() -> impl Strategy<Value = Step> {
    let idle = prop_oneof![Just(IdleType::Busy), Just(IdleType::Idle), Just(IdleType::NewlyIdle)];
    prop_oneof![
        (0..20 * MS).prop_map(Step::Elapse),
        (0..8usize).prop_map(Step::Tick),
        (0..8usize).prop_map(Step::IdleTick),
        (0..8usize).prop_map(Step::Pick),
        (0..8usize, 0..4usize, idle).prop_map(|(cpu, level, idle)| Step::Balance(cpu, level, idle)),
        (0..8usize).prop_map(Step::Work),
    ]
}

impl Bench {
    fn take(&mut self, step: &Step) {
        match *step {
            Step::Elapse(ns) => self.elapse(ns),
            Step::Tick(cpu) if self.world.current(cpu).is_some() => {
                self.fair.tick(&mut self.world, cpu);
            }
            Step::IdleTick(cpu) if self.world.current(cpu).is_none() => {
                self.fair.idle_tick(&mut self.world, cpu);
            }
            Step::Pick(cpu) => {
                self.pick(cpu);
            }
            Step::Balance(cpu, level, idle) => {
                let fits = match idle {
                    IdleType::Busy => !self.world.is_idle(cpu),
                    IdleType::Idle => self.world.is_idle(cpu),
                    IdleType::NewlyIdle => self.nr(cpu) == 0,
                };
                if fits && level < self.fair.rqs[cpu].domains.len() {
                    self.balance(cpu, level, idle);
                }
            }
            Step::Work(cpu) => self.work(cpu),
            Step::Tick(_) | Step::IdleTick(_) => {}
        }
    }

    fn work(&mut self, cpu: CpuId) {
        let work = self.world.take_work_for_test(cpu);
        if work & Work::Balance as u8 != 0 {
            self.fair.work(&mut self.world, cpu, Work::Balance);
        }
        if work & Work::Stop as u8 != 0 {
            self.stop(cpu);
        }
    }

    /// Every task is on exactly one queue. The queue's CPU is allowed, and the engine knows it.
    fn check_queues(&self, nr_tasks: u32) {
        let mut found: Vec<TaskId> = Vec::new();
        for (cpu, rq) in self.fair.rqs.iter().enumerate() {
            assert_eq!(rq.nr_running as usize, rq.queue.len());
            for task in rq.queue.tasks() {
                assert!(self.world.allowed(task).contains(cpu), "{task:?} may not run on {cpu}");
                assert_eq!(self.world.task_cpu(task), cpu);
                found.push(task);
            }
            assert!(rq.nr_running == 0 || !self.world.is_idle(cpu));
        }
        found.sort_unstable();
        assert_eq!(found, (0..nr_tasks).map(TaskId).collect::<Vec<_>>());
        assert!(self.fair.balance.detached.is_empty());
        crate::cache::tests::check_counts(&self.fair);
    }

    /// Each pass ends balanced, failed, or with at least one task moved. Active balances count
    /// separately.
    fn check_counters(&self) {
        for level in &self.fair.stats.levels {
            for (idle, lb) in level.lb.iter().enumerate() {
                let pushed = if idle == IdleType::Idle as usize { level.alb_pushed } else { 0 };
                let (pulled, passes) = (lb.gained - pushed, lb.count - lb.balanced - lb.failed);
                assert!(passes <= pulled, "{lb:?}");
                assert_eq!(passes == 0, pulled == 0, "{lb:?}");
                assert!(lb.hot_gained <= pulled && lb.nobusyg + lb.nobusyq <= lb.balanced);
            }
            assert_eq!(level.alb_count, level.alb_pushed + level.alb_failed);
        }
    }
}

/// The CPUs where a task may run, and the one where it begins.
fn task() -> impl Strategy<Value = (Vec<CpuId>, usize)> {
    (proptest::collection::btree_set(0..8usize, 1..8), any::<usize>())
        .prop_map(|(cpus, start)| (cpus.into_iter().collect(), start))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_task_is_lost_doubled_or_moved_where_it_may_not_run(
        version in 0..6usize,
        tasks in proptest::collection::vec(task(), 1..20),
        steps in proptest::collection::vec(step(), 0..150),
    ) {
        let schedulers = [
            "fair@5.16",
            "fair@5.19",
            "fair@6.15",
            "fair@7.2",
            "fair@6.15+llc-imbalance",
            "fair@5.19+sched-cache",
        ];
        let mut bench = Bench::new(schedulers[version], TWO_NODES, tasks.len());
        for (index, (cpus, start)) in tasks.iter().enumerate() {
            bench.allow(TaskId(index as u32), cpus.iter().copied());
            bench.queue(cpus[start % cpus.len()], [index as u32]);
        }
        for step in &steps {
            bench.take(step);
            bench.check_queues(tasks.len() as u32);
        }
        bench.check_counters();
    }
}

/// `update_sd_lb_stats` goes round from the local group on: of equal groups it pulls from the next
/// one.
#[test]
fn of_equal_groups_the_one_after_the_local_is_busiest() {
    const FOUR_LLCS: &str = "pack:1 node:1 l3:4 core:4 pu:1";
    for scheduler in ["fair@5.16", "fair@5.19", "fair@6.15", "fair@7.2"] {
        let mut bench = Bench::new(scheduler, FOUR_LLCS, 6);
        bench.queue(0, 0..3);
        bench.queue(12, 3..6);
        bench.elapse(10 * MS);
        assert_eq!(bench.balance(8, 1, IdleType::Idle).moved, 1, "{scheduler}");
        assert_eq!((bench.nr(0), bench.nr(12)), (3, 2), "{scheduler}: CPU 8 is in the third LLC");
    }
}

/// One task in its preferred LLC, the first one. Another one outside of it, in the second LLC.
fn one_abroad(scheduler: &str) -> Bench {
    let mut bench = Bench::new(scheduler, TWO_LLCS, 2);
    bench.queue(1, [0]);
    bench.queue(5, [1]);
    if bench.fair.cache.active {
        gather_at(&mut bench.fair, 1);
    }
    bench.elapse(20 * MS);
    bench
}

#[test]
fn a_running_task_is_brought_home_to_its_llc_at_once() {
    let mut bench = one_abroad("fair@7.2");
    assert_eq!(bench.balance(0, 1, IdleType::Idle).moved, 0, "a running task cannot be detached");
    assert!(bench.fair.rqs[5].push.is_some());
    bench.stop(5);
    assert_eq!((bench.nr(0), bench.nr(5)), (1, 0));
    assert_eq!(bench.fair.tasks[1].preferred_llc, Some(0));
    let counts = |cpu: CpuId| bench.fair.rqs[cpu].cache.nr_pref_llc_running;
    assert_eq!((counts(0), counts(1)), (1, 1));
    let level = bench.fair.topology.stat_level(0, 1);
    let lb = bench.lb(0, 1, IdleType::Idle);
    assert_eq!((lb.failed, lb.imbalance, bench.fair.stats.levels[level].alb_pushed), (1, 0, 1));
    for scheduler in ["fair@7.2+no-sched-cache", "fair@6.15"] {
        let mut bench = one_abroad(scheduler);
        bench.balance(0, 1, IdleType::Idle);
        assert!(bench.fair.rqs[5].push.is_none(), "{scheduler}");
    }
}

#[test]
fn of_several_waiting_tasks_only_one_that_prefers_the_llc_is_brought_home() {
    let mut bench = Bench::new("fair@7.2", TWO_LLCS, 4);
    bench.queue(5, 0..4);
    gather_at(&mut bench.fair, 1);
    let (rq, stranger) = (&mut bench.fair.rqs[5].cache, &mut bench.fair.tasks[1]);
    rq.count_out(stranger);
    stranger.preferred_llc = None;
    bench.elapse(20 * MS);
    assert_eq!(bench.balance(0, 1, IdleType::Idle).moved, 1);
    assert_eq!(
        bench.fair.rqs[0].queue.tasks().collect::<Vec<_>>(),
        [TaskId(2)],
        "task 0 runs, and task 1 prefers no LLC"
    );
}

#[test]
fn tasks_at_home_stay_until_other_balancing_failed_often() {
    let mut bench = Bench::new("fair@7.2", TWO_LLCS, 3);
    bench.queue(1, 0..3);
    gather_at(&mut bench.fair, 1);
    bench.elapse(10 * MS);
    for _ in 0..5 {
        assert_eq!(bench.balance(4, 1, IdleType::Idle).moved, 0);
    }
    let (lb, failures) = (bench.lb(4, 1, IdleType::Idle), bench.state(4, 1).nr_balance_failed);
    assert_eq!((lb.failed, failures), (5, 0), "a task that stays for its LLC is no failure");
    assert_eq!(bench.fair.stats.nr_failed_migrations_hot, 0);
    bench.state(4, 1).nr_balance_failed = 1;
    assert_eq!(bench.balance(4, 1, IdleType::Idle).moved, 0);
    bench.state(4, 1).nr_balance_failed = 2;
    assert_eq!(bench.balance(4, 1, IdleType::Idle).moved, 1, "cache_nice_tries + 1");
}

#[test]
fn inside_the_llc_tasks_are_balanced_as_ever() {
    let mut bench = Bench::new("fair@7.2", TWO_LLCS, 3);
    bench.queue(1, 0..3);
    gather_at(&mut bench.fair, 1);
    bench.elapse(10 * MS);
    assert_eq!(bench.balance(0, 0, IdleType::Idle).moved, 1);
}

#[test]
fn a_task_alone_at_home_is_not_pushed_away() {
    for (scheduler, pushed) in [("fair@7.2", false), ("fair@7.2+no-sched-cache", true)] {
        let mut bench = Bench::new(scheduler, TWO_LLCS, 4);
        for (cpu, task) in [(0, 0), (1, 1), (2, 2), (3, 3)] {
            bench.queue(cpu, [task]);
        }
        if bench.fair.cache.active {
            gather_at(&mut bench.fair, 1);
        }
        bench.elapse(20 * MS);
        for _ in 0..9 {
            bench.balance(4, 1, IdleType::Idle);
        }
        let push = (0..4).any(|cpu| bench.fair.rqs[cpu].push.is_some());
        assert_eq!(push, pushed, "{scheduler}");
        assert_eq!(bench.state(4, 1).nr_balance_failed, 9, "no task was examined");
    }
}

#[test]
fn the_use_of_llcs_is_noted_above_them_and_not_when_newly_idle() {
    let mut bench = one_abroad("fair@7.2");
    let noted = |bench: &Bench| {
        [0, 1].map(|llc| (bench.fair.llcs[llc].util, bench.fair.llcs[llc].capacity))
    };
    bench.balance(0, 0, IdleType::Idle);
    bench.balance(0, 1, IdleType::NewlyIdle);
    assert_eq!(noted(&bench), [(0, 0); 2]);
    bench.balance(0, 1, IdleType::Idle);
    let util = |cpu| bench.fair.cpu_util(cpu);
    assert_eq!(noted(&bench), [(util(1), 4096), (util(5), 4096)]);
    assert!(util(1) > 500);
}

/// Section 14.5: tasks are pulled from the queue with most non-local tasks, not from the busiest
/// one. As posted, only CPUs outside the node of CPU 0 do so.
#[test]
fn as_posted_the_first_node_takes_from_the_busiest_queue() {
    let source = |scheduler: &str, dst: CpuId| {
        let mut bench = Bench::new(scheduler, TWO_NODES, 0);
        let other = if dst < 8 { 8 } else { 0 };
        for cpu in [other, other + 1] {
            bench.fair.rqs[cpu].nr_running = 2;
        }
        bench.fair.mechanisms.consolidate.non_local[other + 1] = 1;
        bench.fair.balance.candidates = CpuSet::full(16);
        let topology = &bench.fair.topology;
        let all = topology.domain(*topology.domains_of(dst).last().unwrap());
        let holds = |&&group: &&GroupId| topology.group(group).span.contains(other);
        let group = *all.groups.iter().find(holds).unwrap();
        let top = topology.domains_of(dst).len() - 1;
        let pass = Pass::new(&bench.fair, dst, dst, top, IdleType::Idle);
        bench.fair.most_non_local(&pass, other, group)
    };
    let [intended, posted] = ["fair@3.9+consolidate", "fair@3.9+consolidate-posted"];
    assert_eq!((source(intended, 0), source(intended, 8)), (9, 1));
    assert_eq!((source(posted, 0), source(posted, 8)), (8, 1));
}

/// Patch 3: if `preferred_node()` refuses a task, the kernel does not check whether it may run
/// elsewhere. So a queue with only such tasks seems pinned, which is no failure. Within a node it
/// refuses every task.
#[test]
fn as_posted_a_queue_inside_the_node_seems_pinned() {
    let passes = |scheduler: &str| {
        let mut bench = Bench::new(scheduler, TWO_NODES, 3);
        bench.queue(2, 0..3);
        bench.elapse(10 * MS);
        // The level of the LLC. CPU 0 is the first of its core.
        let moved: u32 = (0..3).map(|_| bench.balance(0, 1, IdleType::Idle).moved).sum();
        (moved, bench.state(0, 1).nr_balance_failed)
    };
    assert_eq!(passes("fair@3.9+consolidate-posted"), (0, 0));
    assert_eq!(passes("fair@3.9+consolidate").0, 1);
}

/// 3.9, distances 10 11 11 12: every group that holds the CPU counts as its own
/// (`update_sd_lb_stats()`). So a node between two others and the node opposite to it do not pull
/// from each other.
#[test]
fn in_3_9_nodes_in_both_groups_do_not_pull_from_each_other() {
    let pass = |from: usize, to: usize| {
        let mut bench = Bench::new("fair@3.9", "x3750-m4", 32);
        let cpus: Vec<CpuId> = bench.fair.numa.cpus_of[from].iter().collect();
        for (cpu, first) in cpus.into_iter().zip((0..).step_by(2)) {
            bench.queue(cpu, [first, first + 1]);
        }
        bench.elapse(10 * MS);
        let cpu = bench.fair.numa.cpus_of[to].first().unwrap();
        let top = bench.fair.topology.domains_of(cpu).len() - 1;
        let moved = bench.balance(cpu, top, IdleType::NewlyIdle).moved;
        (moved, bench.lb(cpu, top, IdleType::NewlyIdle).nobusyg)
    };
    assert_eq!((pass(3, 0), pass(0, 3)), ((1, 0), (1, 0)));
    assert_eq!((pass(2, 1), pass(1, 2)), ((0, 1), (0, 1)));
}

/// `nohz_kick_needed()` of 3.9: several tasks here, or several busy CPUs in the core, not in the
/// LLC.
#[test]
fn in_3_9_a_queue_or_a_core_of_several_tasks_has_others_balance() {
    let asked = |cpus: &[CpuId]| {
        let mut bench = Bench::new("fair@3.9", TWO_NODES, 2);
        for (task, &cpu) in (0..).zip(cpus) {
            bench.queue(cpu, [task]);
        }
        bench.elapse(40 * MS);
        for &cpu in cpus {
            bench.fair.tick(&mut bench.world, cpu);
        }
        (0..16).find(|&cpu| bench.fair.rqs[cpu].nohz_kick.is_some())
    };
    assert_eq!((asked(&[0, 0]), asked(&[0, 1]), asked(&[0, 2])), (Some(1), Some(2), None));
}

/// `nohz_idle_balance()` of 3.9: the consolidating part of `rebalance_domains()` also runs for CPUs
/// that are not due.
#[test]
fn in_3_9_who_is_asked_balances_for_cpus_that_are_not_due() {
    let mut bench = Bench::new("fair@3.9", TWO_LLCS, 2);
    // Nothing can be pulled, so the CPU that is asked stays idle.
    (0..2).for_each(|task| bench.allow(TaskId(task), [0]));
    bench.queue(0, 0..2);
    bench.elapse(40 * MS);
    for cpu in 1..8 {
        bench.fair.rqs[cpu].next_balance = u64::MAX;
    }
    bench.tick(0);
    assert_eq!(bench.world.take_work_for_test(1), Work::Balance as u8);
    bench.fair.work(&mut bench.world, 1, Work::Balance);
    assert!((2..8).all(|cpu| bench.fair.rqs[cpu].next_balance < u64::MAX));
    assert_eq!(bench.fair.nohz.next_balance, bench.fair.rqs[1].next_balance);
}

/// When a timer of the wheel brings a tick to an idle CPU, the CPU balances in it. Each of eight
/// CPUs has four such timers per second, in turns.
#[test]
fn in_3_9_an_idle_cpu_balances_in_the_tick_that_a_timer_brings() {
    // The turn begins at 531.25 ms and takes 31.25 ms. The timer expires at its next tick; there
    // are 1000 per second.
    let is_next = |bench: &Bench, cpu: CpuId| {
        let figures = &bench.world.machine().figures;
        let served = figures.idle_exit_ns.value + figures.tick_ns.value;
        let at = bench.world.timer_due(cpu).expect("a next timer is always set").ns() - served;
        assert!((531_250_000..=563_500_000).contains(&at), "{at}");
        assert_eq!(at % 1_000_000, 0, "{at}");
    };
    let mut bench = Bench::new("fair@3.9", TWO_LLCS, 2);
    bench.queue(0, 0..2);
    bench.elapse(500 * MS);
    bench.fair.timer(&mut bench.world, 1);
    assert_eq!((bench.nr(0), bench.nr(1)), (1, 1));
    is_next(&bench, 2);
    // A busy CPU uses its own tick for that.
    let mut bench = Bench::new("fair@3.9", TWO_LLCS, 2);
    bench.queue(0, 0..2);
    bench.elapse(500 * MS);
    bench.fair.timer(&mut bench.world, 0);
    assert_eq!(bench.nr(0), 2);
    is_next(&bench, 1);
}
