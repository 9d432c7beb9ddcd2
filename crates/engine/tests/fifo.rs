//! The engine under the simplest scheduler: one queue, first come first served.
//!
//! These checks hold for every scheduler: no task is lost or runs on two CPUs, time never moves
//! back, counts and times add up.

#![allow(clippy::unwrap_used)] // a poisoned lock is a failed test

mod common;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use common::{Fifo, counter, template, workload};
use proptest::prelude::*;
use roost_engine::*;
use roost_machine::Machine;
use roost_workload::{Better, Group, Metric, MetricKind, Op, Template, Workload};

/// What an observer saw.
#[derive(Default)]
struct Seen {
    last: Time,
    /// pid and start, by CPU.
    running: BTreeMap<usize, (u32, Time)>,
    run_ns: u64,
    exited: u64,
    switches: u64,
}

#[derive(Clone, Default)]
struct Watch(Arc<Mutex<Seen>>);

impl Tracer for Watch {
    fn switch(
        &mut self,
        now: Time,
        cpu: CpuId,
        previous: Option<(TraceTask<'_>, LeftAs)>,
        next: Option<TraceTask<'_>>,
    ) {
        let mut seen = self.0.lock().unwrap();
        assert!(now >= seen.last, "time moved back");
        seen.last = now;
        seen.switches += 1;
        let ran = seen.running.remove(&cpu);
        assert_eq!(
            ran.map(|(pid, _)| pid),
            previous.map(|(task, _)| task.pid),
            "the task that ran on {cpu}"
        );
        if let Some((_, since)) = ran {
            seen.run_ns += now - since;
        }
        if let Some((_, LeftAs::Exited)) = previous {
            seen.exited += 1;
        }
        if let Some(task) = next {
            let elsewhere = seen.running.values().any(|&(pid, _)| pid == task.pid);
            assert!(!elsewhere, "{} runs on two CPUs", task.name());
            seen.running.insert(cpu, (task.pid, now));
        }
    }
    fn wakeup(&mut self, now: Time, _: CpuId, _: TraceTask<'_>, _: CpuId) {
        assert!(now >= self.0.lock().unwrap().last, "time moved back");
    }
}

fn machine(shape: &str) -> Arc<Machine> {
    Arc::new(roost_machine::resolve(shape).expect("a valid shape"))
}

fn run_watched(machine: &Arc<Machine>, workload: &Workload, seed: u64) -> (Outcome, Watch) {
    let watch = Watch::default();
    let control = Control { tracer: Some(Box::new(watch.clone())), ..Control::new(seed) };
    let outcome = run(machine, workload, Fifo::default(), control).expect("the run ends");
    (outcome, watch)
}

const RUN: Op = Op::Run { ns: 10_000 };

#[test]
fn one_task_takes_its_work_and_what_scheduling_costs() {
    let machine = machine("core:1 pu:1");
    let (outcome, _) = run_watched(&machine, &workload(vec![(template("a", vec![RUN]), 1)]), 3);
    let figures = &machine.figures;
    // The root task is switched to, starts, and forks for 7.5 to 22.5 us. The new task is switched
    // to and starts. When it exits it wakes the root task, which is switched to again.
    let (switch, wakeup) = (figures.context_switch_ns.value, figures.wakeup_ns.value);
    let switches = 3 * switch + 2 * figures.task_start_ns.value + wakeup;
    let work = counter(&outcome, "run_ns") - switches;
    assert!((17_500..32_500 + 2 * figures.tick_ns.value).contains(&work), "{work}");
    assert_eq!(counter(&outcome, "context_switches"), 4, "idle, root, the task, root, idle");
    assert_eq!(counter(&outcome, "wakeups"), 1);
}

#[test]
fn a_yield_to_nobody_costs_one_pass_through_the_scheduler() {
    let machine = machine("core:1 pu:1");
    let elapsed =
        |ops| run_watched(&machine, &workload(vec![(template("a", ops), 1)]), 3).0.elapsed_ns;
    let yields = elapsed(vec![Op::Yield, Op::Yield, RUN]) - elapsed(vec![RUN]);
    assert_eq!(yields, 2 * machine.figures.context_switch_ns.value);
}

#[test]
fn smt_siblings_slow_each_other_down() {
    let long = vec![Op::Run { ns: 10_000_000 }];
    let elapsed = |shape: &str| {
        let (outcome, _) =
            run_watched(&machine(shape), &workload(vec![(template("a", long.clone()), 2)]), 1);
        outcome.elapsed_ns as f64
    };
    let machine = machine("core:1 pu:2");
    let slowdown = 1024.0 / machine.figures.smt_speed_1024.value as f64;
    let ratio = elapsed("core:1 pu:2") / elapsed("core:2 pu:1");
    assert!((ratio / slowdown - 1.0).abs() < 0.05, "{ratio} against {slowdown}");
}

/// On EPYC 7763 one active core of a package has 3500 MHz, and 64 have 3000.
#[test]
fn tasks_run_at_the_clock_of_their_package() {
    let alone = vec![Op::Run { ns: 100_000_000 }];
    let elapsed = |tasks: u32| {
        let on = |cpu| Template { affinity: Some(vec![cpu]), ..template("a", alone.clone()) };
        let tasks = (0..tasks).map(|cpu| (on(cpu), 1)).collect();
        run_watched(&machine("zen3-2s"), &workload(tasks), 1).0.elapsed_ns as f64
    };
    let ratio = elapsed(64) / elapsed(1);
    assert!((ratio / (3500.0 / 3000.0) - 1.0).abs() < 0.02, "{ratio}");
}

#[test]
fn a_migration_costs_the_refill_of_the_working_set() {
    // Two phases: anywhere, then pinned to CPU 0, started on CPU 1 by its affinity.
    let mut task = template("a", vec![RUN, Op::SetAffinity(0), RUN]);
    task.affinity = Some(vec![1]);
    let elapsed = |shape: &str, footprint| {
        task.clone_with_footprint(footprint, |task| {
            run_watched(&machine(shape), &workload(vec![(task, 1)]), 1).0.elapsed_ns
        })
    };
    let megabyte = 1 << 20;
    for (shape, bandwidth) in [
        ("l3:1 core:2 pu:1", machine("l3:1 core:2 pu:1").figures.refill_llc_bytes_per_us.value),
        ("l3:2 core:1 pu:1", machine("l3:2 core:1 pu:1").figures.refill_local_bytes_per_us.value),
    ] {
        let figures = machine(shape).figures.clone();
        let bytes =
            if shape.starts_with("l3:1") { figures.l2_bytes.value.min(megabyte) } else { megabyte };
        let refill = elapsed(shape, megabyte) - elapsed(shape, 0);
        assert_eq!(refill, bytes * 1000 / bandwidth, "{shape}");
    }
}

#[test]
fn a_forked_task_is_in_its_parents_group_unless_it_names_one() {
    let group = |path: &str| Group { path: path.into(), parent: None, weight: 100 };
    let parent = vec![Op::Fork(1), Op::Fork(2)];
    let mut tree = workload(vec![
        (template("parent", parent), 1),
        (template("inherits", vec![RUN]), 0),
        (template("chooses", vec![RUN]), 0),
    ]);
    tree.groups = vec![group("/a"), group("/b")];
    tree.templates[0].group = Some(1);
    tree.templates[2].group = Some(0);
    let fifo = Fifo::default();
    let groups = fifo.groups.clone();
    let control = Control::new(1);
    run(&machine("core:2 pu:1"), &tree, fifo, control).expect("the run ends");
    assert_eq!(*groups.lock().unwrap(), [None, Some(1), Some(1), Some(0)]);
}

trait WithFootprint {
    fn clone_with_footprint<R>(&self, bytes: u64, f: impl FnOnce(Template) -> R) -> R;
}
impl WithFootprint for Template {
    fn clone_with_footprint<R>(&self, bytes: u64, f: impl FnOnce(Template) -> R) -> R {
        f(Template { footprint_bytes: bytes, ..self.clone() })
    }
}

#[test]
fn tasks_that_wait_for_each_other_for_ever_are_reported() {
    let stuck = workload(vec![(template("stuck", vec![Op::Receive { channel: 0, bytes: 1 }]), 2)]);
    let control = Control::new(1);
    let error = run(&machine("core:2 pu:1"), &stuck, Fifo::default(), control).unwrap_err();
    assert!(error.to_string().contains("2 tasks sleep"), "{error}");
}

#[test]
fn a_pipe_blocks_its_writer_when_full_and_loses_nothing() {
    let send = vec![Op::Send { channel: 0, bytes: 100 }, Op::Loop { depth: 0, times: 50, to: 0 }];
    let receive =
        vec![Op::Receive { channel: 0, bytes: 100 }, RUN, Op::Loop { depth: 0, times: 50, to: 0 }];
    let pipes = workload(vec![(template("writer", send), 1), (template("reader", receive), 1)]);
    let (outcome, watch) = run_watched(&machine("core:2 pu:1"), &pipes, 1);
    assert!(outcome.elapsed_ns > 50 * 10_000, "the reader works 10 us a message");
    assert_eq!(watch.0.lock().unwrap().exited, 3);
}

/// Programs that always end: no task waits for something that may never come.
fn ending_ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        4 => (0u64..200_000).prop_map(|ns| vec![Op::Run { ns }]),
        2 => (1u64..100_000).prop_map(|ns| vec![Op::Sleep { ns }]),
        1 => (1u64..100_000).prop_map(|ns| vec![Op::Runtime { ns }]),
        1 => (1u64..100_000, any::<bool>()).prop_map(|(period_ns, absolute)| vec![Op::Timer {
            timer: roost_workload::TimerRef::Own(0), period_ns, absolute
        }]),
        1 => (0u32..2, 0u64..50_000).prop_map(|(m, ns)| vec![Op::Lock(m), Op::Run { ns }, Op::Unlock(m)]),
        1 => Just(vec![Op::Signal(0), Op::Broadcast(0), Op::Yield]),
        1 => Just(vec![Op::SetNice(5), Op::SetAffinity(0)]),
    ];
    prop::collection::vec(op, 1..8).prop_map(|ops| {
        let mut ops: Vec<Op> = ops.into_iter().flatten().collect();
        ops.push(Op::Loop { depth: 0, times: 3, to: 0 });
        ops
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_task_is_lost_and_times_add_up(
        programs in prop::collection::vec((ending_ops(), 1u32..5), 1..5),
        shape in prop::sample::select(vec!["core:1 pu:1", "core:2 pu:2", "node:2 l3:2 core:2 pu:1"]),
        seed in 0u64..1000,
    ) {
        let machine = machine(shape);
        let total: u32 = programs.iter().map(|(_, count)| count).sum();
        let templates = programs.into_iter().map(|(ops, count)| (template("t", ops), count));
        let workload = workload(templates.collect());
        let (outcome, watch) = run_watched(&machine, &workload, seed);
        {
            let seen = watch.0.lock().unwrap();
            prop_assert_eq!(seen.exited, u64::from(total) + 1, "every task and the root exit");
            prop_assert_eq!(seen.run_ns, counter(&outcome, "run_ns"), "slices add up to run time");
            prop_assert_eq!(seen.switches, counter(&outcome, "context_switches"));
            prop_assert!(seen.run_ns <= outcome.elapsed_ns * machine.nr_cpus() as u64);
        }
        let again = run_watched(&machine, &workload, seed).0;
        prop_assert_eq!(outcome, again, "same inputs, same outcome");
    }
}

/// The costs of workloads leave these out because the engine charges them. (Those are costs on real
/// machines. On emulated machines, whose kernel takes longer, benchmarks' times mean nothing.)
#[test]
fn every_preset_charges_what_the_costs_of_workloads_assume() {
    let presets = roost_machine::presets();
    for (name, _) in presets.iter().filter(|(name, _)| !machine(name).takes_turns) {
        let figures = &machine(name).figures;
        assert_eq!(figures.wakeup_ns.value, roost_workload::costs::ENGINE_WAKEUP_NS, "{name}");
        assert_eq!(
            figures.context_switch_ns.value,
            roost_workload::costs::ENGINE_SWITCH_NS,
            "{name}"
        );
    }
}

/// A wakeup of a task on an idle CPU interrupts that CPU.
#[test]
fn wakeups_of_idle_cpus_count_as_interrupts() {
    let bound = |template: Template, cpu| Template { affinity: Some(vec![cpu]), ..template };
    let send = vec![
        Op::Sleep { ns: 100_000 },
        Op::Send { channel: 0, bytes: 100 },
        Op::Loop { depth: 0, times: 50, to: 0 },
    ];
    let receive =
        vec![Op::Receive { channel: 0, bytes: 100 }, Op::Loop { depth: 0, times: 50, to: 0 }];
    let pipes = workload(vec![
        (bound(template("writer", send), 0), 1),
        (bound(template("reader", receive), 1), 1),
    ]);
    let (outcome, _) = run_watched(&machine("core:2 pu:1"), &pipes, 1);
    // One or both of the two forks come from the other CPU. So do the 50 messages.
    let ipis = counter(&outcome, "ipis");
    assert!((51..=52).contains(&ipis), "{ipis}");
}

/// Starts of tasks by name, and wakeups.
#[derive(Clone, Default)]
struct Starts(Arc<Mutex<Vec<(String, Time, CpuId)>>>);

impl Tracer for Starts {
    fn switch(
        &mut self,
        now: Time,
        cpu: CpuId,
        _: Option<(TraceTask<'_>, LeftAs)>,
        next: Option<TraceTask<'_>>,
    ) {
        if let Some(task) = next {
            self.0.lock().unwrap().push((task.name().to_string(), now, cpu));
        }
    }
    fn wakeup(&mut self, _: Time, _: CpuId, _: TraceTask<'_>, _: CpuId) {}
}

/// When tasks with this name got a CPU.
fn starts_of(name: &str, workload: &Workload) -> Vec<Time> {
    let starts = Starts::default();
    traced("core:8 pu:1", workload, Fifo::default(), starts.clone());
    let starts = starts.0.lock().unwrap();
    starts.iter().filter(|(task, ..)| task == name).map(|(_, at, _)| *at).collect()
}

const TIMER: Op =
    Op::Timer { timer: roost_workload::TimerRef::Own(0), period_ns: 1_000_000, absolute: false };

/// Time allowed for a wakeup and a switch, ns.
const SLACK_NS: u64 = 50_000;

#[test]
fn timers_of_a_common_start_fire_together() {
    // Forks take 15 us each. From the second start on, the timers expire in the same millisecond.
    let ops = vec![Op::Start { delay_ns: 0 }, RUN, TIMER, RUN];
    let starts = starts_of("t", &workload(vec![(template("t", ops), 6)]));
    let fired = &starts[starts.len() - 6..];
    assert!(fired[5] - fired[0] < SLACK_NS, "{starts:?}");
    // The first period began when the first task arrived, before the last task was forked.
    let first = starts[0];
    assert!((fired[0] - first).abs_diff(1_000_000) < SLACK_NS, "{starts:?}");
}

#[test]
fn a_delay_counts_from_the_common_start_and_the_task_is_there_before() {
    let start = |delay_ns| vec![Op::Start { delay_ns }, RUN];
    let tasks =
        workload(vec![(template("now", start(0)), 3), (template("later", start(500_000)), 1)]);
    let (now, later) = (starts_of("now", &tasks), starts_of("later", &tasks));
    // It is created with the others, may wait for them, and then sleeps.
    assert!(later.len() >= 2, "{later:?}");
    assert!(later[0] - now[0] < 3 * 22_500 + SLACK_NS, "{later:?}");
    assert!((later[later.len() - 1] - now[0]).abs_diff(500_000) < SLACK_NS, "{now:?} {later:?}");
}

#[test]
fn a_task_forked_after_the_common_start_waits_for_nobody() {
    let parent = vec![Op::Start { delay_ns: 0 }, RUN, Op::Fork(1), RUN];
    let child = vec![Op::Start { delay_ns: 0 }, RUN];
    let mut forking =
        workload(vec![(template("parent", parent), 2), (template("child", child), 0)]);
    forking.start.truncate(1);
    assert_eq!(starts_of("child", &forking).len(), 2);
}

#[test]
fn the_last_to_meet_wakes_the_others_who_take_the_mutex_in_turn() {
    let meet = vec![
        Op::Lock(0),
        Op::Meet { barrier: 0, mutex: 0 },
        RUN,
        Op::Unlock(0),
        Op::Loop { depth: 0, times: 20, to: 0 },
    ];
    let meeting = workload(vec![(template("m", meet), 2)]);
    let (outcome, watch) = run_watched(&machine("core:4 pu:1"), &meeting, 1);
    assert_eq!(watch.0.lock().unwrap().exited, 3);
    // Twenty rounds. In each, both tasks run 10 us under the mutex, one after the other.
    assert!(outcome.elapsed_ns >= 20 * 2 * 10_000, "{}", outcome.elapsed_ns);
    // One wakeup by the last task to arrive, and one more when it releases the mutex.
    assert!((20..=60).contains(&counter(&outcome, "wakeups")), "{}", counter(&outcome, "wakeups"));
}

#[test]
fn a_broadcast_wakes_one_after_the_other() {
    let waiter = vec![Op::Lock(0), Op::Wait { condition: 0, mutex: 0 }, Op::Unlock(0), RUN];
    let waker = vec![Op::Sleep { ns: 500_000 }, Op::Broadcast(0), RUN];
    let tasks = workload(vec![(template("waiter", waiter), 6), (template("waker", waker), 1)]);
    let starts = starts_of("waiter", &tasks);
    let woken = &starts[starts.len() - 6..];
    let wakeup = machine("core:8 pu:1").figures.wakeup_ns.value;
    assert!(woken.windows(2).all(|pair| pair[1] - pair[0] >= wakeup), "{starts:?}");
}

/// All of them were to wake when the broadcast began. So the wakeups before a task's own are part
/// of its latency.
#[test]
fn latency_after_a_broadcast_counts_from_its_begin() {
    let waiter = vec![Op::Lock(0), Op::Wait { condition: 0, mutex: 0 }, Op::Unlock(0), RUN];
    let waker = vec![Op::Sleep { ns: 500_000 }, Op::Broadcast(0), RUN];
    let mut tasks = workload(vec![(template("waiter", waiter), 6), (template("waker", waker), 1)]);
    let class = tasks.templates[0].class.clone();
    let percentile = |percentile_milli: u32| Metric {
        name: percentile_milli.to_string(),
        unit: "us",
        better: Better::Lower,
        kind: MetricKind::WakeupLatencyUs { class: class.clone(), percentile_milli },
    };
    tasks.metrics = vec![percentile(1_000), percentile(100_000)];
    let machine = machine("core:8 pu:1");
    let outcome = run(&machine, &tasks, Fifo::default(), Control::new(1)).unwrap();
    let [least, most] = [0, 1].map(|index| outcome.metrics[index].value.unwrap());
    let apart_us = 5.0 * machine.figures.wakeup_ns.value as f64 / 1000.0;
    // The record keeps three digits.
    assert!(most - least >= 0.99 * apart_us, "{least} to {most} us");
}

/// hackbench's clock: 5 ms pass before the second party arrives. They are not part of the time.
#[test]
fn seconds_since_a_barrier_begin_when_all_have_come() {
    let work = Op::Run { ns: 2_000_000 };
    let late = vec![Op::Sleep { ns: 5_000_000 }, Op::Barrier(0), work];
    let early = vec![Op::Barrier(0), work];
    let mut tasks = workload(vec![(template("early", early), 1), (template("late", late), 1)]);
    tasks.metrics[0].kind = MetricKind::SecondsSince { barrier: 0 };
    let outcome = run(&machine("core:2 pu:1"), &tasks, Fifo::default(), Control::new(1)).unwrap();
    let seconds = outcome.metrics[0].value.unwrap();
    assert!((0.002..0.003).contains(&seconds), "{seconds}");
    assert!(outcome.elapsed_ns > 7_000_000);
}

/// The tasks that were woken and that ran, in order.
#[derive(Clone, Default)]
struct Story(Arc<Mutex<Vec<(String, Time)>>>);

impl Story {
    fn tell(&self, what: &str, task: &TraceTask<'_>, at: Time) {
        self.0.lock().unwrap().push((format!("{what} {}", task.name()), at));
    }

    /// The story from the last `first` on, with times.
    fn since(&self, first: &str) -> (Vec<String>, Vec<Time>) {
        let told = self.0.lock().unwrap();
        let from = told.iter().rposition(|(what, _)| what == first).expect("it was told");
        told[from..].iter().cloned().unzip()
    }
}

impl Tracer for Story {
    fn switch(
        &mut self,
        now: Time,
        _: CpuId,
        previous: Option<(TraceTask<'_>, LeftAs)>,
        next: Option<TraceTask<'_>>,
    ) {
        if let Some((task, _)) = previous {
            self.tell("leaves", &task, now);
        }
        if let Some(task) = next {
            self.tell("runs", &task, now);
        }
    }
    fn wakeup(&mut self, now: Time, _: CpuId, task: TraceTask<'_>, _: CpuId) {
        self.tell("wakes", &task, now);
    }
}

/// Runs a workload to its end beside a tracer.
fn traced(
    cores: &str,
    workload: &Workload,
    scheduler: impl Scheduler,
    tracer: impl Tracer + 'static,
) -> Outcome {
    let control = Control { tracer: Some(Box::new(tracer)), ..Control::new(1) };
    run(&machine(cores), workload, scheduler, control).expect("the run ends")
}

fn story(workload: &Workload, scheduler: impl Scheduler) -> (Outcome, Story) {
    let story = Story::default();
    (traced("core:1 pu:1", workload, scheduler, story.clone()), story)
}

#[test]
fn timers_due_together_are_served_by_one_interrupt_before_anything_runs() {
    let at_once = |name| (template(name, vec![Op::Start { delay_ns: 1_000_000 }, RUN]), 1);
    let (_, story) = story(&workload(["a", "b", "c"].map(at_once).into()), Fifo::default());
    // The last task to arrive sleeps first, because it has woken the others.
    let (what, at) = story.since("wakes c");
    assert_eq!(what[..4], ["wakes c", "wakes a", "wakes b", "runs c"]);
    let figures = machine("core:1 pu:1").figures.clone();
    let (taken, wakeup) = (figures.interrupt_ns.value, figures.wakeup_ns.value);
    let idle_exit = figures.idle_exit_ns.value;
    assert_eq!(at[1] - at[0], idle_exit + taken + wakeup, "the second after the first");
    assert_eq!(at[2] - at[1], wakeup, "without an interrupt of its own");
}

/// Time for which [`Looker`] searches without success, ns.
const LOOK_NS: u64 = 30_000;

/// A [`Fifo`] that searches elsewhere for a while before a CPU goes idle.
#[derive(Default)]
struct Looker {
    fifo: Fifo,
    looked: bool,
}

impl Scheduler for Looker {
    fn tick_ns(&self) -> u64 {
        self.fifo.tick_ns()
    }
    fn task_new(&mut self, world: &mut World, task: TaskId, parent: Option<TaskId>) {
        self.fifo.task_new(world, task, parent);
    }
    fn select_cpu(&mut self, world: &mut World, task: TaskId, wake: Wake) -> CpuId {
        assert!(!world.on_cpu(task), "a CPU wakes no task while it searches");
        self.fifo.select_cpu(world, task, wake)
    }
    fn enqueue(&mut self, w: &mut World, cpu: CpuId, task: TaskId, why: Enqueue, by: CpuId) {
        self.fifo.enqueue(w, cpu, task, why, by);
    }
    fn dequeue(&mut self, _: &mut World, _: CpuId, _: TaskId, _: Dequeue) {}
    fn pick(&mut self, world: &mut World, cpu: CpuId) -> Pick {
        let pick = self.fifo.pick(world, cpu);
        self.looked = pick == Pick::Idle && !self.looked;
        if self.looked {
            assert!(!world.is_idle(cpu), "it has just run a task");
            world.charge(cpu, LOOK_NS);
            return Pick::Later;
        }
        pick
    }
}

#[test]
fn a_cpu_that_looks_for_a_task_takes_no_interrupt_until_it_has_found_none() {
    let short_sleep = workload(vec![(template("a", vec![RUN, Op::Sleep { ns: 1000 }, RUN]), 1)]);
    let (plain, _) = story(&short_sleep, Fifo::default());
    let (outcome, story) = story(&short_sleep, Looker::default());
    let (what, at) = story.since("wakes a");
    assert_eq!(what[..2], ["wakes a", "runs a"]);
    let told = story.0.lock().unwrap();
    let left = told.iter().find(|(what, _)| what == "leaves a").expect("it slept").1;
    assert_eq!(at[0] - left, LOOK_NS, "its timer was due before");
    let switches = |outcome| counter(outcome, "context_switches");
    assert_eq!(switches(&outcome), switches(&plain), "one switch from a task to idle");
}
