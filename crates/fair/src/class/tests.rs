use std::sync::Arc;

use roost_engine::{CpuId, Dequeue, Enqueue, Scheduler, TaskId, Time, Wake, Work, World};
use roost_machine::{CpuSet, Machine};
use roost_workload::{Cpus, Group, Op, Policy, Program, Template, Workload, rtapp};

use crate::eras::Load;
use crate::features::{Features, versions};
use crate::kit::{audited_run, audited_run_of, pick};
use crate::pelt::{Avg, LOAD_AVG_MAX};
use crate::state::Fair;

/// Two nodes of two LLCs of two cores of two threads.
const NODES: &str = "pack:2 node:1 l3:2 core:2 pu:2";

fn machine() -> Arc<Machine> {
    Arc::new(roost_machine::resolve(NODES).unwrap())
}

fn fair(version: &str) -> Fair {
    Fair::new(&machine(), Features::parse(&format!("fair@{version}")).unwrap())
}

/// Hogs of several weights and policies, sleepers, and tasks that yield: more tasks than CPUs.
const MIXED: &str = r#"{
    "global": { "duration": 2 },
    "tasks": {
        "hog": { "instance": 14, "loop": -1, "run": 5000 },
        "nice": { "instance": 6, "loop": -1, "priority": 5, "run": 3000, "sleep": 500 },
        "sleeper": { "instance": 30, "loop": -1, "run": 300, "sleep": 700 },
        "background": { "instance": 4, "policy": "SCHED_IDLE", "loop": -1, "run": 2000, "sleep": 100 },
        "batch": { "instance": 4, "policy": "SCHED_BATCH", "loop": -1, "run": 900, "sleep": 900 },
        "yielder": { "instance": 3, "loop": -1, "run": 100, "yield": "" }
    }
}"#;

#[test]
fn books_balance_in_every_version() {
    for version in versions() {
        let outcome = audited_run(NODES, version, MIXED);
        let busy = outcome.counter("run_ns") / (outcome.elapsed_ns as f64 * 16.0);
        // If balancing goes by load, a CPU without tasks takes no task of nearly no weight.
        let by_load = fair(version).features.averages.load == Load::QueuedAverage;
        let least = if by_load { 0.97 } else { 0.98 };
        assert!(busy > least, "{version}: CPUs were busy {busy} of the time with work for all");
        assert!(outcome.counter("yld_count") > 0.0);
        assert!(outcome.counter("migrations") > 0.0, "{version} balanced nothing");
    }
}

/// [`MIXED`], and a task that changes another kind of task every 0.3 ms: the affinity, or the group.
fn mixed_with_changes() -> Workload {
    let mut workload = rtapp::parse(MIXED, "test.json").unwrap();
    workload.duration_ns = Some(500_000_000);
    let group = |path: &str, parent| Group { path: path.into(), parent, weight: 50 };
    workload.groups = vec![group("/a", None), group("/b", None), group("/a/c", Some(0))];
    let kinds = workload.templates.len() as u32;
    let list = |cpus| Some(Cpus::List(cpus));
    let affinities = vec![list(vec![2]), list(vec![0, 9, 10]), None, list((8..16).collect())];
    let change = |(template, n): (u32, u32)| {
        let join = Op::SetGroupOf { template, group: Some(n % 4).filter(|&group| group < 3) };
        let sleep = Op::Sleep { ns: 300_000 };
        [sleep, Op::SetAffinityOf { template, set: n % 4 }, sleep, join]
    };
    // All kinds get all sets and groups, each kind others.
    let mut ops: Vec<Op> =
        (0..4 * kinds).map(|n| (n % kinds, n / kinds + n)).flat_map(change).collect();
    ops.push(Op::Loop { depth: 0, times: 0, to: 0 });
    let program = Program { ops, loop_depth: 1, affinities, ..Program::default() };
    let changer = Template { name: "changer".to_owned(), program, ..workload.templates[0].clone() };
    workload.templates.push(changer);
    workload.start.push((kinds, 1));
    workload
}

#[test]
fn books_balance_while_affinities_and_groups_change() {
    let workload = mixed_with_changes();
    for version in versions() {
        let outcome = audited_run_of(NODES, version, &workload);
        assert!(outcome.counter("migrations") > 1000.0, "{version}: {:?}", outcome.counters);
    }
}

/// The load of a sleeper moves to the new group on the CPU where it last ran. The CPU's own load
/// stays. A task that has not run has no load anywhere.
#[test]
fn a_sleeper_takes_its_load_to_another_group() {
    for version in versions() {
        let (mut fair, mut world) = (fair(version), world(2));
        let group = |path: &str| Group { path: path.into(), parent: None, weight: 100 };
        world.set_groups_for_test(vec![group("/a"), group("/b")]);
        fair.start(&mut world);
        for task in [TaskId(0), TaskId(1)] {
            world.set_group_for_test(task, Some(0));
            world.set_task_cpu(task, 2);
            fair.task_new(&mut world, task, None);
        }
        fair.enqueue(&mut world, 2, TaskId(0), Enqueue::New, 2);
        assert_eq!(pick(&mut fair, &mut world, 2), Some(TaskId(0)), "{version}");
        world.set_now_for_test(world.now() + 8_000_000);
        fair.dequeue(&mut world, 2, TaskId(0), Dequeue::Sleep);
        let loads = |fair: &Fair| [0, 1].map(|group| fair.cgroups.loads(group).0);
        let [before, _] = loads(&fair);
        for task in [TaskId(0), TaskId(1)] {
            world.set_group_for_test(task, Some(1));
            fair.group_changed(&mut world, 2, task, 5);
        }
        assert!(before > 0, "{version}");
        assert_eq!(loads(&fair), [0, before], "{version}");
        assert_eq!(fair.rqs[2].avg.load_avg > 0, fair.tasks[0].attached, "{version}");
        fair.audit_books(&world);
    }
}

/// `move_queued_task()` moves whatever is on a queue.
#[test]
fn a_sleeper_that_is_still_queued_moves_when_it_may_no_longer_run_there() {
    let (mut fair, mut world) = fair_and_world("7.2", 2);
    for task in 0..2 {
        queue_with(&mut fair, &mut world, task, 2, Avg::default());
    }
    world.mark_queued(2);
    let sleeper = TaskId(0);
    assert_eq!(pick(&mut fair, &mut world, 2), Some(sleeper));
    world.set_now_for_test(Time(4_000_000));
    fair.dequeue(&mut world, 2, sleeper, Dequeue::Sleep);
    assert!(fair.tasks[0].delayed, "the task ran ahead");
    world.set_allowed_for_test(sleeper, CpuSet::from_cpus(16, [2, 5]));
    fair.allowed_changed(&mut world, sleeper, 7);
    assert_eq!(world.task_cpu(sleeper), 2, "it may stay");
    world.set_allowed_for_test(sleeper, CpuSet::from_cpus(16, [5]));
    fair.allowed_changed(&mut world, sleeper, 7);
    assert_eq!((world.task_cpu(sleeper), fair.tasks[0].delayed), (5, true));
    assert_eq!(world.take_work_for_test(5), Work::Reschedule as u8, "CPU 5 was idle");
    let wake = Wake { cpu: 7, waker: None, sync: false, interrupt: false };
    assert_eq!(fair.wake_queued(&mut world, sleeper, wake), Some(5));
    fair.audit_books(&world);
}

#[test]
fn two_tasks_take_turns_by_slices_in_ticks() {
    for version in versions() {
        // The last three of six seconds. At the start both tasks begin together, which takes a few
        // more switches.
        let switches = |seconds: u32| {
            let text = format!(
                r#"{{ "global": {{ "duration": {seconds} }},
                      "tasks": {{ "a": {{ "cpus": [3], "loop": -1, "run": 1000 }},
                                  "b": {{ "cpus": [3], "loop": -1, "run": 1000 }} }} }}"#
            );
            audited_run(NODES, version, &text).counter("context_switches")
        };
        // With ticks 4 ms apart a slice of 12 ms (CFS) is exceeded at the fourth tick. In 3.9 ticks
        // are 1 ms apart, and it is the 13th. A request of 2.8 ms (EEVDF) ends at the first tick,
        // or by its timer.
        let features = fair(version).features;
        let expected = match (features.queue.eevdf, features.switches.hrtick) {
            (false, _) if features.hz == 1000 => 1000.0 / 13.0,
            (false, _) => 62.5,
            (true, false) => 250.0,
            (true, true) => 1000.0 / 2.8,
        };
        let rate = (switches(6) - switches(3)) / 3.0;
        assert!((rate - expected).abs() < 0.03 * expected, "{version}: {rate} switches a second");
    }
}

/// Number of switches in the second of two seconds, of two tasks that ask for slices of `us` and
/// share one CPU.
fn switches_with_slices_of(us: u64, version: &str) -> f64 {
    let switches = |seconds: u32| {
        let hog = format!(r#"{{ "cpus": [3], "loop": -1, "run": 1000, "dl-runtime": {us} }}"#);
        let text = format!(
            r#"{{ "global": {{ "duration": {seconds} }}, "tasks": {{ "a": {hog}, "b": {hog} }} }}"#
        );
        audited_run(NODES, version, &text).counter("context_switches")
    };
    switches(2) - switches(1)
}

/// `__setparam_fair()`: a request is limited to 0.1 to 100 ms.
#[test]
fn tasks_run_for_the_slices_that_they_ask_for() {
    let rate = |us| switches_with_slices_of(us, "7.2");
    assert!((97.0..=103.0).contains(&rate(10_000)), "{}", rate(10_000));
    assert!((9.0..=11.0).contains(&rate(2_000_000)), "{}", rate(2_000_000));
    assert_eq!(rate(1), rate(100));
    assert_eq!(switches_with_slices_of(10_000, "5.19"), switches_with_slices_of(0, "5.19"));
}

/// PREEMPT_SHORT: a wakee that asks for 0.5 ms does not wait for the end of the 2.8 ms for which
/// one of two others is protected. In 6.15 it waits if that task has the earlier deadline.
#[test]
fn a_short_slice_preempts_a_longer_one_at_wakeup() {
    let latency_us = |version: &str, us: u64| {
        let text = format!(
            r#"{{ "global": {{ "duration": 2 }}, "tasks": {{
                "hog": {{ "instance": 2, "cpus": [3], "run": 50000 }},
                "short": {{ "cpus": [3], "dl-runtime": {us}, "run": 300,
                            "timer": {{ "ref": "unique", "period": 7100 }} }} }} }}"#
        );
        let outcome = audited_run(NODES, version, &text);
        let found = outcome.metrics.iter().find(|metric| metric.name == "short wu_lat avg");
        found.and_then(|metric| metric.value).unwrap()
    };
    for version in ["6.15", "7.2"] {
        let (with, without) = (latency_us(version, 500), latency_us(version, 0));
        let off = latency_us(&format!("{version}+no-preempt-short"), 500);
        assert!(with < 0.5 * without, "{version}: {with} and {without} us");
        assert!(with < 0.5 * off, "{version}: {with}, and {off} us without the switch");
    }
}

/// A task works for a second on one of twelve CPUs. The governor of that CPU samples every 10 ms
/// with a thread that preempts. No other CPU is woken for that, and the run ends although those
/// threads do not.
#[test]
fn threads_of_the_governor_preempt_on_busy_cpus_only() {
    let text = r#"{ "tasks": { "a": { "cpus": [3], "loop": 1, "run": 1000000 } } }"#;
    for version in versions() {
        let outcome = audited_run("xeon-2s-12", version, text);
        // Switches to the thread and back, and those to and from the task and the task that starts
        // it.
        let switches = outcome.counter("context_switches");
        assert!((200.0..=208.0).contains(&switches), "{version}: {switches}");
        // Each sample delays the task by 5 us and the switches. Nothing else delays it.
        let delay_us = outcome.counter("run_delay_ns") / 1000.0;
        assert!((500.0..1500.0).contains(&delay_us), "{version}: {delay_us}");
    }
}

fn world(tasks: usize) -> World {
    World::for_test(machine(), tasks)
}

/// A fair class with nothing queued, and its world.
pub(crate) fn fair_and_world(version: &str, tasks: usize) -> (Fair, World) {
    let (mut fair, mut world) = (fair(version), world(tasks));
    fair.start(&mut world);
    (fair, world)
}

/// Queues `task` on `cpu` as new, with the averages `avg`.
fn queue_with(fair: &mut Fair, world: &mut World, task: u32, cpu: CpuId, mut avg: Avg) {
    let task = TaskId(task);
    world.set_task_cpu(task, cpu);
    fair.task_new(world, task, None);
    fair.enqueue(world, cpu, task, Enqueue::New, cpu);
    let (rq, state) = (&mut fair.rqs[cpu], &mut fair.tasks[task.index()]);
    rq.detach(state, fair.features.averages.leaving);
    avg.join(&rq.avg, state.weight);
    state.avg = avg;
    rq.attach(state);
}

#[test]
fn balancing_moves_averages_and_lag_with_the_task() {
    for version in versions() {
        let (mut fair, mut world) = (fair(version), world(2));
        fair.start(&mut world);
        let avg = Avg { load_avg: 1000, util_avg: 300, runnable_avg: 400, ..Avg::default() };
        queue_with(&mut fair, &mut world, 0, 2, Avg::default());
        queue_with(&mut fair, &mut world, 1, 2, avg);
        let moved = TaskId(1);
        fair.tasks[1].util_est = 250;
        fair.rqs[2].util_est = 250;
        fair.tasks[1].exec_start = 77;
        fair.detach_queued(&mut world, moved, 2, 5);
        assert_eq!((fair.rqs[2].nr_running, fair.rqs[2].util_est), (1, 0));
        assert_eq!((fair.rqs[2].avg.load_avg, fair.rqs[2].avg.util_avg), (0, 0));
        assert_eq!(fair.tasks[1].exec_start, 0, "{version}: its caches are cold on another CPU");
        fair.attach_queued(&mut world, moved, 5, 5);
        let rq = &fair.rqs[5];
        assert_eq!((rq.nr_running, rq.util_est), (1, 250));
        assert_eq!((rq.avg.load_avg, rq.avg.util_avg, rq.avg.runnable_avg), (1000, 300, 400));
        assert_eq!(world.task_cpu(moved), 5);
        assert!(!world.is_idle(5));
    }
}

#[test]
fn a_sleeper_leaves_its_load_behind_until_it_wakes_elsewhere() {
    for version in ["5.2", "5.16", "5.19", "6.15", "7.2"] {
        let (mut fair, mut world) = fair_and_world(version, 1);
        let avg = Avg { load_avg: 800, util_avg: 600, runnable_avg: 600, ..Avg::default() };
        queue_with(&mut fair, &mut world, 0, 2, avg);
        let task = TaskId(0);
        assert_eq!(pick(&mut fair, &mut world, 2), Some(task));
        fair.tasks[0].util_changed = true;
        fair.dequeue(&mut world, 2, task, Dequeue::Sleep);
        assert_eq!((fair.rqs[2].avg.load_avg, fair.rqs[2].nr_running), (800, 0));
        assert_eq!(fair.tasks[0].util_est, 600, "{version}: rises at once");
        fair.migrate_sleeping(&world, task);
        assert_eq!(fair.rqs[2].avg.load_avg, 800, "{version}: subtracted at the next update");
        fair.update_blocked(&world, 2);
        assert_eq!((fair.rqs[2].avg.load_avg, fair.rqs[2].avg.util_avg), (0, 0));
        fair.enqueue(&mut world, 4, task, Enqueue::Wakeup { migrated: true, sync: false }, 4);
        assert_eq!((fair.rqs[4].avg.load_avg, fair.rqs[4].util_est), (800, 600));
    }
}

/// `migrate_se_pelt_lag`: 32 periods of 1024 us halve the averages that a task brings from an idle
/// CPU, whose queue has not been updated since the task left.
#[test]
fn a_sleeper_from_an_idle_cpu_has_decayed_until_it_wakes() {
    for (version, expected) in [("7.2", 300), ("6.15", 300), ("5.19", 600)] {
        let (mut fair, mut world) = fair_and_world(version, 1);
        queue_with(&mut fair, &mut world, 0, 2, Avg::default());
        assert_eq!(pick(&mut fair, &mut world, 2), Some(TaskId(0)));
        fair.dequeue(&mut world, 2, TaskId(0), Dequeue::Sleep);
        let avg = &mut fair.tasks[0].avg;
        (avg.util_avg, avg.util_sum) = (600, 600 * (47742 - 1024));
        world.set_now_for_test(Time(32 * 1024 * 1024));
        fair.migrate_sleeping(&world, TaskId(0));
        assert!(fair.tasks[0].avg.util_avg.abs_diff(expected) <= 1, "{version}");
    }
}

/// `update_load_avg` with UPDATE_UTIL_EST: the last stretch of running is included.
#[test]
fn an_estimate_is_made_of_the_averages_up_to_the_dequeue() {
    for (version, ran_counts) in [("7.2", true), ("6.15", false)] {
        let (mut fair, mut world) = fair_and_world(version, 1);
        queue_with(&mut fair, &mut world, 0, 2, Avg::default());
        assert_eq!(pick(&mut fair, &mut world, 2), Some(TaskId(0)));
        fair.tasks[0].util_changed = true;
        world.set_now_for_test(Time(32 * 1024 * 1024));
        fair.dequeue(&mut world, 2, TaskId(0), Dequeue::Sleep);
        assert!(fair.tasks[0].avg.util_avg >= 511);
        assert_eq!(fair.tasks[0].util_est >= 511, ran_counts, "{version}");
    }
}

/// A task has run past its protection when another task with an equally near deadline is woken.
/// With lazy preemption no interrupt tells it.
#[test]
fn a_lazily_preempted_task_elsewhere_is_not_interrupted() {
    let work_sent = |version: &str| {
        let (mut fair, mut world) = fair_and_world(version, 2);
        queue_with(&mut fair, &mut world, 0, 2, Avg::default());
        fair.task_new(&mut world, TaskId(1), None);
        let current = pick(&mut fair, &mut world, 2);
        world.set_current_for_test(2, current);
        world.set_now_for_test(Time(2_000_000));
        let why = Enqueue::Wakeup { migrated: true, sync: false };
        fair.enqueue(&mut world, 2, TaskId(1), why, 3);
        let work = world.take_work_for_test(2);
        (work, world.resched_pending(2))
    };
    assert_eq!(work_sent("7.2+no-hrtick"), (0, true), "flagged, but not interrupted");
    assert_eq!(work_sent("7.2+no-hrtick+no-preempt-lazy"), (Work::Reschedule as u8, false));
    assert_eq!(work_sent("7.2"), (Work::Timer as u8, true), "the interrupt for the timer");
}

/// The wakeup of an idle CPU is never lazy.
#[test]
fn an_idle_cpu_chooses_at_once() {
    let (mut fair, mut world) = fair_and_world("7.2", 1);
    fair.task_new(&mut world, TaskId(0), None);
    fair.enqueue(&mut world, 2, TaskId(0), Enqueue::New, 3);
    assert_eq!(world.take_work_for_test(2), Work::Reschedule as u8);
}

/// CPU 3 computes. Every 10 ms a task on its sibling wakes another task that is bound to CPU 3.
const WAKES_A_BUSY_CPU: &str = r#"{
    "global": { "duration": 1 },
    "tasks": {
        "hog": { "cpus": [3], "loop": -1, "run": 100000 },
        "wakee": { "cpus": [3], "loop": -1, "phases": { "p": { "loop": 1,
            "lock": "m", "wait": { "ref": "s", "mutex": "m" }, "unlock": "m", "run": 10 } } },
        "waker": { "cpus": [2], "loop": -1, "phases": { "p": { "loop": 1,
            "timer": { "ref": "unique", "period": 10000 }, "signal": "s" } } }
    }
}"#;

/// Without the timer's interrupt the hog goes on until its next tick, up to 4 ms.
#[test]
fn lazy_preemption_waits_for_the_next_interrupt() {
    let delay_us = |version: &str| {
        let outcome = audited_run(NODES, version, WAKES_A_BUSY_CPU);
        outcome.counter("run_delay_ns") / 100.0 / 1000.0
    };
    let (lazy, at_once) = (delay_us("7.2+no-hrtick"), delay_us("7.2+no-hrtick+no-preempt-lazy"));
    assert!((500.0..3500.0).contains(&lazy), "{lazy} us a wakeup");
    assert!(at_once < 100.0, "{at_once} us a wakeup");
    assert!(delay_us("7.2") < 100.0, "the interrupt that starts the timer");
}

#[test]
fn an_idle_core_is_told_when_its_last_cpu_goes_idle() {
    let (mut fair, mut world) = (fair("7.2"), world(1));
    fair.start(&mut world);
    let llc = fair.topology.llc_of[2] as usize;
    fair.llcs[llc].idle_cores = false;
    world.mark_queued(3);
    assert_eq!(pick(&mut fair, &mut world, 2), None);
    assert!(!fair.llcs[llc].idle_cores, "its sibling is busy");
    assert_eq!(pick(&mut fair, &mut world, 0), None);
    assert!(fair.llcs[llc].idle_cores);
    assert_eq!((fair.llcs[llc].last_writer, fair.stats.sched_goidle), (0, 2));
}

#[test]
fn picked_tasks_are_the_last_that_balancing_takes() {
    let (mut fair, mut world) = (fair("7.2"), world(3));
    fair.start(&mut world);
    for task in 0..3 {
        queue_with(&mut fair, &mut world, task, 2, Avg::default());
    }
    let list = |fair: &Fair| {
        let mut list = Vec::new();
        fair.rqs[2].queue.list(&mut list);
        list.into_iter().map(|(_, task)| task.0).collect::<Vec<_>>()
    };
    assert_eq!(list(&fair), [2, 1, 0]);
    assert_eq!(pick(&mut fair, &mut world, 2), Some(TaskId(0)));
    assert_eq!(list(&fair), [0, 2, 1]);
}

/// Section 6: an eighth of the difference, up or down.
#[test]
fn average_idle_time_follows_samples_by_an_eighth() {
    assert_eq!(super::moved_by_eighth(1_000_000, 200_000), 900_000);
    assert_eq!(super::moved_by_eighth(900_000, 1_700_000), 1_000_000);
}

#[test]
fn a_new_policy_changes_weight_and_load_but_not_utilisation() {
    for version in versions() {
        let (mut fair, mut world) = (fair(version), world(2));
        fair.start(&mut world);
        let load_sum = LOAD_AVG_MAX;
        let avg =
            Avg { load_avg: 1024, load_sum, util_avg: 500, runnable_avg: 500, ..Avg::default() };
        queue_with(&mut fair, &mut world, 0, 2, avg);
        assert_eq!(pick(&mut fair, &mut world, 2), Some(TaskId(0)));
        queue_with(&mut fair, &mut world, 1, 2, Avg::default());
        world.set_policy_for_test(TaskId(0), Policy::Idle);
        fair.reweight(&mut world, 2, TaskId(0));
        let rq = &fair.rqs[2];
        assert_eq!((rq.load_weight, rq.nr_sched_idle), (1024 + 3, 1));
        assert_eq!((rq.avg.load_avg, rq.avg.util_avg), (3, 500));
        assert_eq!(rq.current, Some(TaskId(0)), "{version}: the task still runs");
        fair.dequeue(&mut world, 2, TaskId(0), Dequeue::Exit);
        fair.update_blocked(&world, 2);
        assert_eq!((fair.rqs[2].load_weight, fair.rqs[2].avg.load_avg), (1024, 0));
    }
}

/// The old group loses the task's load and the new one gains it. The CPU's load stays. Since 5.6
/// the current task is picked anew.
#[test]
fn a_task_that_goes_to_another_group_takes_its_load_along() {
    for version in versions() {
        let (mut fair, mut world) = (fair(version), world(2));
        let group =
            |path: &str| roost_workload::Group { path: path.into(), parent: None, weight: 100 };
        world.set_groups_for_test(vec![group("/a"), group("/b")]);
        fair.start(&mut world);
        for task in [TaskId(0), TaskId(1)] {
            world.set_group_for_test(task, Some(0));
            world.set_task_cpu(task, 2);
            fair.task_new(&mut world, task, None);
            fair.enqueue(&mut world, 2, task, Enqueue::New, 2);
            if fair.rqs[2].current.is_none() {
                assert_eq!(pick(&mut fair, &mut world, 2), Some(TaskId(0)), "{version}");
            }
        }
        assert_eq!(fair.rqs[2].load_weight, 1024, "{version}: two in /a");
        // Clears a pick that the second task may have asked for when it was queued.
        world.set_current_for_test(2, Some(TaskId(0)));
        world.set_group_for_test(TaskId(0), Some(1));
        fair.group_changed(&mut world, 2, TaskId(0), 2);
        assert_eq!(fair.rqs[2].load_weight, 2048, "{version}: one in /a, one in /b");
        assert_eq!(fair.rqs[2].current, Some(TaskId(0)), "{version}");
        assert_eq!(world.resched_pending(2), !["3.9", "5.2"].contains(&version), "{version}");
    }
}

/// `ttwu_stat` runs for these wakeups too, although no CPU is chosen.
#[test]
fn a_sleeper_woken_on_its_queue_by_another_cpu_counts_as_a_remote_wakeup() {
    let (mut fair, mut world) = (fair("7.2"), world(2));
    fair.start(&mut world);
    for task in 0..2 {
        queue_with(&mut fair, &mut world, task, 2, Avg::default());
    }
    let sleeper = TaskId(0);
    assert_eq!(pick(&mut fair, &mut world, 2), Some(sleeper));
    world.set_now_for_test(Time(4_000_000));
    fair.dequeue(&mut world, 2, sleeper, Dequeue::Sleep);
    assert!(fair.tasks[0].delayed, "the task ran ahead");
    let wake = Wake { cpu: 5, waker: None, sync: false, interrupt: false };
    assert_eq!(fair.wake_queued(&mut world, sleeper, wake), Some(2));
    let counted = fair.stats.levels.map(|level| level.ttwu_wake_remote);
    assert_eq!(counted, [0, 0, 0, 1, 0, 0, 0, 0, 0], "CPUs 2 and 5 meet at PKG");
}

#[test]
fn waiting_for_a_wakeup_on_its_way_is_no_idle_period() {
    let (mut fair, mut world) = (fair("5.19"), world(1));
    fair.start(&mut world);
    let before = fair.rqs[2].avg_idle;
    fair.rqs[2].idle_since = None;
    world.send_for_test(2, TaskId(0), Time(1000));
    assert_eq!(pick(&mut fair, &mut world, 2), None);
    world.set_now_for_test(Time(1000));
    queue_with(&mut fair, &mut world, 0, 2, Avg::default());
    assert_eq!(fair.rqs[2].avg_idle, before);
}
