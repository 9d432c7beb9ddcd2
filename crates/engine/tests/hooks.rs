//! What a scheduler is told, what it may ask, and how it may end a run.

#![allow(clippy::unwrap_used)] // what is wrong here is a failed test

mod common;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use common::{Fifo, template, workload};
use roost_engine::*;
use roost_workload::{Op, Template, Workload};

const RUN: Op = Op::Run { ns: 100_000 };
const SLEEP: Op = Op::Sleep { ns: 50_000 };

/// A [`Fifo`] that records what it is told.
#[derive(Clone, Default)]
struct Told {
    fifo: Rc<RefCell<Fifo>>,
    story: Rc<RefCell<Vec<String>>>,
    /// The waker takes the lock of the run queue.
    takes_locks: bool,
    /// The run ends when a task with this name gets a CPU.
    ends_at: Option<&'static str>,
}

impl Told {
    fn tell(&self, what: String) {
        self.story.borrow_mut().push(what);
    }
}

impl Scheduler for Told {
    fn tick_ns(&self) -> u64 {
        1_000_000
    }
    fn select_cpu(&mut self, world: &mut World, task: TaskId, wake: Wake) -> CpuId {
        self.fifo.borrow_mut().select_cpu(world, task, wake)
    }
    fn enqueue(&mut self, w: &mut World, cpu: CpuId, task: TaskId, why: Enqueue, by: CpuId) {
        self.tell(format!("CPU {by} queues {} on CPU {cpu}", w.name(task)));
        self.fifo.borrow_mut().enqueue(w, cpu, task, why, by);
    }
    fn dequeue(&mut self, _: &mut World, _: CpuId, _: TaskId, _: Dequeue) {}
    fn pick(&mut self, world: &mut World, cpu: CpuId) -> Pick {
        self.fifo.borrow_mut().pick(world, cpu)
    }
    fn hands_over(&self, world: &World, from: CpuId, cpu: CpuId) -> bool {
        !self.takes_locks && Fifo::default().hands_over(world, from, cpu)
    }
    fn running(&mut self, world: &mut World, cpu: CpuId, task: TaskId) {
        assert_eq!(world.current(cpu), Some(task));
        let name = world.name(task).to_owned();
        if self.ends_at == Some(&name) {
            world.end_run(format!("{name} is not welcome"));
        }
        self.tell(format!("{name} runs"));
    }
    fn stopping(&mut self, world: &mut World, _: CpuId, task: TaskId, runnable: bool) {
        let how = if runnable { "is preempted" } else { "leaves" };
        self.tell(format!("{} {how} after {}", world.name(task), world.run_ns(task) / 1000));
    }
    fn idle_changed(&mut self, world: &mut World, cpu: CpuId, idle: bool) {
        assert_eq!(world.current(cpu).is_none(), idle);
        self.tell(format!("CPU {cpu} {}", if idle { "idles" } else { "is busy" }));
    }
    fn allowed_changed(&mut self, world: &mut World, task: TaskId, _: CpuId) {
        self.tell(format!("{} may use {} CPUs", world.name(task), world.nr_allowed(task)));
    }
}

fn result(workload: &Workload, told: &Told) -> Result<Outcome, RunError> {
    let machine = Arc::new(roost_machine::resolve("node:1 l3:1 core:2 pu:1").unwrap());
    run(&machine, workload, told.clone(), Control::new(1))
}

/// What was told, from the first time that `name` ran.
fn story(told: &Told, name: &str) -> Vec<String> {
    let told = told.story.borrow();
    let start = told.iter().position(|what| *what == format!("{name} runs")).unwrap();
    told[start..].to_vec()
}

/// A task on CPU 0.
fn bound(name: &str, ops: Vec<Op>) -> (Template, u32) {
    (Template { affinity: Some(vec![0]), ..template(name, ops) }, 1)
}

#[test]
fn a_scheduler_sees_who_runs_who_stops_and_which_cpus_idle() {
    let told = Told::default();
    result(&workload(vec![bound("a", vec![RUN, SLEEP, RUN])]), &told).unwrap();
    let story = story(&told, "a");
    let ran_us = |place: usize| -> u64 {
        story[place].strip_prefix("a leaves after ").unwrap().parse().unwrap()
    };
    // The task also has the CPU for switches and system calls, beside its 100 us.
    assert!((100..130).contains(&ran_us(1)) && (200..250).contains(&ran_us(6)), "{story:?}");
    assert_eq!(story[2..4], ["CPU 0 idles", "CPU 0 queues a on CPU 0"]);
    assert_eq!(story[4..6], ["a runs", "CPU 0 is busy"]);
}

#[test]
fn a_scheduler_is_told_where_a_task_may_run_when_it_may_stay() {
    let told = Told::default();
    let onto_cpu_0 = Op::SetAffinity(0);
    let ops = vec![onto_cpu_0, RUN, onto_cpu_0, RUN];
    result(&workload(vec![(template("a", ops), 1)]), &told).unwrap();
    let told = told.story.borrow();
    let times = told.iter().filter(|what| *what == "a may use 1 CPUs").count();
    let moved = told.iter().filter(|what| what.contains("queues a")).count() - 1;
    assert_eq!(times + moved, 2, "the first time it may have had to leave CPU 1: {told:?}");
    assert!(times >= 1);
}

/// CPU 1 wakes a task of CPU 0, which is idle.
#[test]
fn a_scheduler_chooses_whether_the_cpu_that_wakes_queues() {
    let woken = |takes_locks: bool| {
        let told = Told { takes_locks, ..Told::default() };
        let ops = |op| vec![op, RUN];
        let waits = bound("waits", ops(Op::Receive { channel: 0, bytes: 1 }));
        let mut wakes = bound("wakes", vec![RUN, Op::Send { channel: 0, bytes: 1 }, RUN]);
        wakes.0.affinity = Some(vec![1]);
        let outcome = result(&workload(vec![waits, wakes]), &told).unwrap();
        let story = story(&told, "wakes");
        let queued = story.iter().find(|what| what.contains("queues waits")).cloned().unwrap();
        let ran = story.iter().filter(|what| *what == "waits runs").count();
        (queued, ran, outcome.elapsed_ns)
    };
    let (handed, locked) = (woken(false), woken(true));
    assert_eq!((&*handed.0, handed.1), ("CPU 0 queues waits on CPU 0", 1));
    assert_eq!((&*locked.0, locked.1), ("CPU 1 queues waits on CPU 0", 1));
    assert_ne!(handed.2, locked.2, "each has its cost");
}

#[test]
fn a_scheduler_that_cannot_go_on_ends_the_run_with_its_reason() {
    let told = Told { ends_at: Some("b"), ..Told::default() };
    let tasks = vec![bound("a", vec![SLEEP]), bound("b", vec![SLEEP])];
    let error = result(&workload(tasks), &told).unwrap_err().to_string();
    assert!(error.starts_with("workload test: the scheduler ended the run after "), "{error}");
    assert!(error.contains(" ms: b is not welcome (running: "), "{error}");
    assert!(error.contains("b 3 on CPU 0"), "the root task is 1: {error}");
}

/// The answers to [`Asks`] about a task.
#[derive(Debug, PartialEq)]
struct Facts {
    name: String,
    pid: u32,
    tgid: u32,
    parent: Option<String>,
    nr_threads: u32,
    kernel: bool,
}

/// Asks about each task when it is created.
#[derive(Default)]
struct Asks {
    fifo: Fifo,
    known: Rc<RefCell<Vec<Facts>>>,
}

impl Scheduler for Asks {
    fn tick_ns(&self) -> u64 {
        1_000_000
    }
    fn task_new(&mut self, world: &mut World, task: TaskId, parent: Option<TaskId>) {
        assert_eq!(world.parent(task), parent);
        self.known.borrow_mut().push(Facts {
            name: world.name(task).to_owned(),
            pid: world.pid(task),
            tgid: world.tgid(task),
            parent: parent.map(|parent| world.name(parent).to_owned()),
            nr_threads: world.nr_threads(task),
            kernel: world.is_kernel_thread(task),
        });
    }
    fn select_cpu(&mut self, world: &mut World, task: TaskId, wake: Wake) -> CpuId {
        self.fifo.select_cpu(world, task, wake)
    }
    fn enqueue(&mut self, w: &mut World, cpu: CpuId, task: TaskId, why: Enqueue, by: CpuId) {
        assert_eq!(w.run_ns(task) > 0, w.has_run(task));
        self.fifo.enqueue(w, cpu, task, why, by);
    }
    fn dequeue(&mut self, _: &mut World, _: CpuId, _: TaskId, _: Dequeue) {}
    fn pick(&mut self, world: &mut World, cpu: CpuId) -> Pick {
        self.fifo.pick(world, cpu)
    }
}

#[test]
fn a_scheduler_can_ask_who_a_task_is_and_what_it_belongs_to() {
    let asks = Asks::default();
    let known = asks.known.clone();
    let workload =
        workload(vec![(template("a", vec![RUN, Op::Fork(1)]), 2), bound("b", vec![RUN])]);
    let machine = Arc::new(roost_machine::resolve("node:1 l3:1 core:2 pu:1").unwrap());
    run(&machine, &workload, asks, Control::new(1)).unwrap();
    let known = known.borrow();
    let of = |pid: u32| {
        let facts = &known[pid as usize - 1];
        assert_eq!(facts.pid, pid, "numbers are given in order");
        (facts.name.as_str(), facts.tgid, facts.parent.as_deref())
    };
    assert_eq!(of(1), ("main", 1, None));
    assert_eq!(of(2), ("a", 2, Some("main")));
    assert_eq!(of(3), ("a", 2, Some("main")), "in the process that its first task began");
    assert_eq!(known[2].nr_threads, 2);
    let forked = known.iter().filter(|facts| facts.parent.as_deref() == Some("a")).count();
    assert_eq!(forked, 2, "each a forks a b: {known:?}");
    assert!(known.iter().all(|facts| !facts.kernel));
}

/// At each tick a CPU runs another task, if one waits. It chooses for `chooses_ns` first.
#[derive(Default)]
struct Turns {
    fifo: Fifo,
    chooses_ns: u64,
    waiting: std::collections::VecDeque<TaskId>,
    chosen: Option<TaskId>,
}

impl Scheduler for Turns {
    fn tick_ns(&self) -> u64 {
        1_000_000
    }
    fn select_cpu(&mut self, world: &mut World, task: TaskId, wake: Wake) -> CpuId {
        self.fifo.select_cpu(world, task, wake)
    }
    fn enqueue(&mut self, _: &mut World, _: CpuId, task: TaskId, _: Enqueue, _: CpuId) {
        self.waiting.push_back(task);
    }
    fn dequeue(&mut self, _: &mut World, _: CpuId, _: TaskId, _: Dequeue) {}
    fn tick(&mut self, world: &mut World, cpu: CpuId) {
        world.resched(cpu, cpu);
    }
    fn pick(&mut self, world: &mut World, cpu: CpuId) -> Pick {
        let Some(current) = world.current(cpu) else { return self.waiting.pop_front().into() };
        if self.chosen.is_none() {
            self.chosen = self.waiting.pop_front();
            world.charge(cpu, if self.chosen.is_some() { self.chooses_ns } else { 0 });
        }
        if self.chosen.is_some() && world.backlog_ns(cpu) > 0 {
            return Pick::Undecided;
        }
        let Some(next) = self.chosen.take() else { return Pick::Run(current) };
        self.waiting.push_back(current);
        Pick::Run(next)
    }
}

#[test]
fn a_task_stays_current_while_its_cpu_chooses_the_next_one() {
    let machine = Arc::new(roost_machine::resolve("node:1 l3:1 core:1 pu:1").unwrap());
    let tasks = ["a", "b"].map(|name| bound(name, vec![Op::Run { ns: 5_000_000 }]));
    let workload = workload(tasks.into());
    let of = |chooses_ns| {
        let turns = Turns { chooses_ns, ..Turns::default() };
        let outcome = run(&machine, &workload, turns, Control::new(1)).unwrap();
        let value = |name| common::counter(&outcome, name);
        (value("context_switches"), value("run_ns"), value("migrations"))
    };
    let (plain, slow) = (of(0), of(30_000));
    assert!(plain.0 > 8, "they take turns: {plain:?}");
    assert_eq!(slow.0, plain.0, "a choice is not a switch");
    // From the first to the last switch between the two tasks, each choice is part of a task's run time.
    let more = slow.1 - plain.1;
    assert!((8 * 30_000..=11 * 30_000).contains(&more), "{more}");
}
