//! The checks find errors that are planted in a scheduler.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use roost_engine::{CpuId, Dequeue, Enqueue, Pick, Scheduler, TaskId, Wake, World};
use roost_swarm::{Case, Patience, check, observe, smallest};
use roost_workload::{Workload, rtapp};

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// The tenth task that is queued never gets into the queue.
    LosesATask,
    /// Tasks run where they may not.
    IgnoresAffinity,
    /// A task that is picked stays in the queue.
    PicksTwice,
    Panics,
    /// The hook that queues the tenth task does not return.
    Hangs,
}

/// Ends the loop of [`Fault::Hangs`], which nothing else could.
static FOUND: AtomicBool = AtomicBool::new(false);

/// One queue for all CPUs, with a fault.
struct Fifo {
    queue: VecDeque<TaskId>,
    queued: u32,
    fault: Fault,
}

impl Scheduler for Fifo {
    fn tick_ns(&self) -> u64 {
        4_000_000
    }

    fn select_cpu(&mut self, world: &mut World, task: TaskId, _: Wake) -> CpuId {
        if self.fault == Fault::IgnoresAffinity {
            return 0;
        }
        let (allowed, last) = (world.allowed(task), world.task_cpu(task));
        let idle = allowed.iter_wrap(last).find(|&cpu| world.is_idle(cpu));
        idle.or(allowed.iter_wrap(last).next()).unwrap_or(last)
    }

    fn enqueue(&mut self, _: &mut World, _: CpuId, task: TaskId, _: Enqueue, _: CpuId) {
        self.queued += 1;
        match self.fault {
            Fault::LosesATask if self.queued == 10 => {}
            Fault::Panics if self.queued == 10 => panic!("planted"),
            Fault::Hangs if self.queued == 10 => {
                while !FOUND.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
            }
            _ => self.queue.push_back(task),
        }
    }

    fn dequeue(&mut self, _: &mut World, _: CpuId, _: TaskId, _: Dequeue) {}

    fn pick(&mut self, world: &mut World, cpu: CpuId) -> Pick {
        let may = |task: TaskId| {
            self.fault == Fault::IgnoresAffinity || world.allowed(task).contains(cpu)
        };
        let Some(place) = self.queue.iter().position(|&task| may(task)) else {
            return world.current(cpu).into();
        };
        let next = self.queue[place];
        if self.fault != Fault::PicksTwice {
            self.queue.remove(place);
        }
        self.queue.extend(world.current(cpu));
        Pick::Run(next)
    }

    fn tick(&mut self, world: &mut World, cpu: CpuId) {
        world.resched(cpu, cpu);
    }
}

/// What the checks say of a scheduler with that fault.
fn found(fault: Fault) -> Result<(), String> {
    let machine = Arc::new(roost_machine::resolve("node:2 l3:1 core:2 pu:1").unwrap());
    let text = r#"{"tasks": {
        "pinned": {"cpus": [2], "loop": -1, "run": 300, "sleep": 500},
        "free": {"instance": 2, "loop": -1, "run": 700, "sleep": 100}
    }}"#;
    let workload = rtapp::parse(text, "planted").unwrap();
    let workload = Workload { duration_ns: Some(100_000_000), ..workload };
    let scheduler = || Fifo { queue: VecDeque::new(), queued: 0, fault };
    let patience = if fault == Fault::Hangs { 1 } else { 60 };
    let patience = Patience {
        run: Duration::from_secs(patience),
        hook: Duration::from_millis(100),
        stuck: &|| FOUND.store(true, Ordering::Relaxed),
    };
    observe(&machine, &workload, 1, scheduler, patience).map(|_| ())
}

#[test]
fn a_hook_that_does_not_return_is_found() {
    let stopped = found(Fault::Hangs).unwrap_err();
    assert!(FOUND.load(Ordering::Relaxed), "{stopped}");
}

/// Two tasks that wait for each other are the workload's affair; a task that is lost before is not.
#[test]
fn a_deadlock_is_told_from_a_lost_task() {
    let wait = r#""lock": "m", "wait": {"ref": "c", "mutex": "m"}, "unlock": "m""#;
    let text =
        format!(r#"{{"tasks": {{"a": {{"instance": 2, "loop": -1, "run": 300, {wait}}}}}}}"#);
    let workload = rtapp::parse(&text, "deadlock").unwrap();
    assert_eq!(ends(&workload, Fault::None), Ok(()));
    // Of tasks that only run and sleep, the last one queued is lost: nothing is left to happen.
    let text = r#"{"tasks": {"a": {"loop": 9, "run": 300, "sleep": 100}}}"#;
    let workload = rtapp::parse(text, "lost").unwrap();
    let lost = ends(&workload, Fault::LosesATask).unwrap_err();
    assert!(lost.contains("nothing is left to happen, but a is Waiting"), "{lost}");
}

/// A run without a time limit.
fn ends(workload: &Workload, fault: Fault) -> Result<(), String> {
    let machine = Arc::new(roost_machine::resolve("core:2 pu:1").unwrap());
    let scheduler = || Fifo { queue: VecDeque::new(), queued: 0, fault };
    let patience =
        Patience { run: Duration::from_secs(60), hook: Duration::from_secs(60), stuck: &|| () };
    observe(&machine, workload, 1, scheduler, patience).map(|_| ())
}

#[test]
fn a_scheduler_without_faults_passes() {
    assert_eq!(found(Fault::None), Ok(()));
}

#[test]
fn planted_errors_are_found() {
    let faults = [Fault::LosesATask, Fault::IgnoresAffinity, Fault::PicksTwice, Fault::Panics];
    let found = faults.map(|fault| found(fault).unwrap_err());
    assert!(found[0].contains("all CPUs it may use idle"), "{}", found[0]);
    assert!(found[3].contains("panic: planted"), "{}", found[3]);
}

#[test]
fn a_case_follows_from_its_seed_and_passes() {
    for seed in 0..5 {
        assert_eq!(Case::of(seed), Case::of(seed));
        assert_eq!(check(&Case::of(seed)), Ok(()), "seed {seed}");
    }
}

#[test]
fn a_failing_case_loses_all_that_it_does_not_need() {
    let case = Case::of(3);
    let small = smallest(&case, 1_000, |case| case.duration_ms >= 4);
    assert_eq!((small.machine, small.tasks.len()), ([1; 5], 1));
    assert!((4..8).contains(&small.duration_ms));
}
