//! For each check an error is planted, which the audit has to find and name.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use roost_machine::CpuSet;
use roost_workload::Process;

use super::*;
use crate::changes::{Change, New};
use crate::facts::ProcessState;
use crate::time::Time;

/// Task 0 runs on CPU 1, tasks 1 and 2 are in transit to CPU 0, and task 3 sleeps.
fn world() -> World {
    let machine = roost_machine::resolve("core:2 pu:1").expect("a valid shape");
    let mut world = World::for_test(Arc::new(machine), 4);
    world.processes.push(ProcessState::new(&Process {
        name: "test".into(),
        forked: false,
        kernel: false,
    }));
    (0..4).for_each(|task| world.join_process(TaskId(task)));
    world.set_current_for_test(1, Some(TaskId(0)));
    (world.tasks[0].state, world.tasks[0].cpu) = (State::Running, 1);
    world.sharing.started(0, world.now);
    world.events.set(Event::RunEnd(1), Time(500));
    world.events.set(Event::Tick(1), Time(900));
    world.mark_queued(0);
    for task in 1..3 {
        world.tasks[task].state = State::Arriving;
        world.send_for_test(0, TaskId(task as u32), Time(100 * task as u64));
    }
    world.events.set(Event::Timer(TaskId(3)), Time(700));
    world
}

/// The audit's message after `plant` has changed a correct world.
fn found(plant: impl FnOnce(&mut World)) -> String {
    let mut world = world();
    world.audit();
    plant(&mut world);
    let error = catch_unwind(AssertUnwindSafe(|| world.audit())).expect_err("an error is planted");
    error.downcast_ref::<String>().cloned().expect("a message with what was found")
}

fn assert_found(plant: impl FnOnce(&mut World), expected: &str) {
    let found = found(plant);
    assert!(found.contains(expected), "{found:?} instead of {expected:?}");
}

#[test]
fn the_current_task_of_a_cpu_runs_there_and_may() {
    assert_found(|w| w.tasks[0].state = State::Queued, "task  (1), current on CPU 1");
    assert_found(|w| w.tasks[0].cpu = 0, "CPU of task  (1), current on CPU 1");
    let only_cpu_0 = CpuSet::from_cpus(2, [0]);
    assert_found(
        |w| w.tasks[0].allowed = only_cpu_0,
        "runs on CPU 1 at Time(0), where it may not run",
    );
    assert_found(|w| w.tasks[3].state = State::Running, "running tasks, and CPUs with a current");
}

#[test]
fn a_busy_cpu_has_the_speed_that_its_core_and_its_clock_give() {
    assert_found(|w| w.cpus[1].speed_1024 = 589, "CPU 1 has speed 589");
}

#[test]
fn a_cpu_that_looks_idle_runs_nothing_and_looks_for_nothing() {
    assert_found(|w| w.idle.insert(1), "current on CPU 1, which looks idle");
    let looks = |w: &mut World| {
        w.cpus[0].looking = Looking::From(TaskId(3));
        w.idle.insert(0);
    };
    assert_found(looks, "CPU 0 searches for a task and looks idle");
}

#[test]
fn who_is_on_the_way_is_awaited_in_order() {
    assert_found(|w| w.arrivals[0].swap(0, 1), "tasks in transit to CPU 0 are out of order");
    assert_found(|w| w.tasks[1].state = State::Queued, "task  (2), in transit to CPU 0");
    assert_found(|w| w.tasks[3].state = State::Arriving, "tasks in transit, and arrivals");
}

#[test]
fn a_task_waits_or_is_on_its_way_only_where_it_may_run() {
    let only_cpu_1 = || CpuSet::from_cpus(2, [1]);
    let allow = |task: usize| {
        move |w: &mut World| {
            w.tasks[task].allowed = only_cpu_1();
            w.tasks[task].nr_allowed = 1;
        }
    };
    assert_found(allow(1), "task  (2) is in transit to CPU 0 at Time(0), where it may not run");
    let waits = |w: &mut World| {
        allow(3)(w);
        w.tasks[3].state = State::Queued;
    };
    assert_found(waits, "task  (4) waits on CPU 0 at Time(0), where it may not run");
}

#[test]
fn a_change_of_affinity_will_be_completed() {
    let change = |waits| Change { task: TaskId(1), by: Some(TaskId(3)), waits };
    let arrives = || change(Waits::Arrival(New::Group(None)));
    let mut correct = world();
    correct.changes = vec![arrives()];
    correct.audit();
    assert_found(|w| w.changes = vec![change(Waits::Stopper(0))], "Stopper(0)");
    let awake = |w: &mut World| w.changes = vec![Change { by: Some(TaskId(2)), ..arrives() }];
    assert_found(awake, "changed by a task that is Arriving");
    let asleep = |w: &mut World| w.changes = vec![Change { task: TaskId(3), ..arrives() }];
    assert_found(asleep, "Blocked, changed by a task that is Blocked");
}

#[test]
fn what_is_going_to_happen_is_scheduled() {
    let cancel = |event| move |w: &mut World| w.events.cancel(event);
    assert_found(cancel(Event::RunEnd(1)), "end of run, CPU 1 busy");
    assert_found(|w| w.events.set(Event::RunEnd(0), Time(1)), "end of run, CPU 0 busy");
    assert_found(cancel(Event::Interrupt(0)), "interrupt of CPU 0");
    assert_found(|w| w.events.set(Event::Interrupt(1), Time(1)), "interrupt of CPU 1");
    assert_found(cancel(Event::Tick(1)), "busy CPU 1 has no tick");
    assert_found(|w| w.cpus[1].stale = true, "the end-of-run event of CPU 1 is out of date");
    let timer = |w: &mut World| w.events.set(Event::Timer(TaskId(0)), Time(1));
    assert_found(timer, "task  (1) is Running with a timer");
}

#[test]
fn searches_are_in_order_and_none_is_overdue() {
    assert_found(|w| w.claims = vec![(Time(9), 0), (Time(8), 0)], "claims are out of order");
    assert_found(|w| w.claims = vec![(Time(9), 0)], "next claim at Time(0)");
    let overdue = |w: &mut World| {
        (w.now, w.claims, w.next_claim) = (Time(10), vec![(Time(9), 0)], Time(9));
    };
    assert_found(overdue, "a claim of Time(9) is overdue at Time(10)");
}

#[test]
fn processes_and_llcs_count_their_tasks() {
    assert_found(|w| w.join_process(TaskId(3)), "threads of process 0");
    assert_found(|w| w.sharing.started(0, w.now), "tasks that run, by LLC");
}
