use roost_engine::{Dequeue, Enqueue, Scheduler, TaskId, Time, Work, World};

use crate::class::tests::fair_and_world;
use crate::kit::{self, audited_run};
use crate::state::Fair;

const CPU: usize = 2;

/// Queues a new task on [`CPU`], executed by CPU `by`.
fn queue(fair: &mut Fair, world: &mut World, task: u32, by: usize) {
    world.set_task_cpu(TaskId(task), CPU);
    fair.task_new(world, TaskId(task), None);
    fair.enqueue(world, CPU, TaskId(task), Enqueue::New, by);
}

fn pick(fair: &mut Fair, world: &mut World) -> Option<TaskId> {
    let next = kit::pick(fair, world, CPU);
    world.set_current_for_test(CPU, next);
    next
}

/// A request is 2.8 ms on eight or more CPUs. A new task's first request is half of that.
#[test]
fn a_task_picked_among_others_has_a_timer_for_its_deadline() {
    let (mut fair, mut world) = fair_and_world("7.2", 2);
    queue(&mut fair, &mut world, 0, CPU);
    queue(&mut fair, &mut world, 1, CPU);
    assert_eq!(world.timer_due(CPU), None, "no task runs");
    world.set_now_for_test(Time(50_000));
    assert_eq!(pick(&mut fair, &mut world), Some(TaskId(0)));
    assert_eq!(world.timer_due(CPU), Some(Time(50_000 + 1_400_000)));
}

#[test]
fn the_timer_of_a_task_that_was_alone_starts_with_the_second_one() {
    let (mut fair, mut world) = fair_and_world("7.2", 3);
    queue(&mut fair, &mut world, 0, CPU);
    pick(&mut fair, &mut world);
    assert_eq!(world.timer_due(CPU), None);
    world.set_now_for_test(Time(400_000));
    queue(&mut fair, &mut world, 1, 5);
    assert_eq!(world.timer_due(CPU), Some(Time(1_400_000)), "400 us of 1.4 ms are used up");
    assert_eq!(
        world.take_work_for_test(CPU),
        Work::Timer as u8,
        "CPU 2 itself has to start the timer"
    );
    world.set_now_for_test(Time(600_000));
    queue(&mut fair, &mut world, 2, 5);
    assert_eq!(world.take_work_for_test(CPU), 0, "the timer already runs");
}

#[test]
fn a_timer_is_never_shorter_than_10_us() {
    let (mut fair, mut world) = fair_and_world("7.2", 2);
    queue(&mut fair, &mut world, 0, CPU);
    pick(&mut fair, &mut world);
    world.set_now_for_test(Time(1_399_000));
    queue(&mut fair, &mut world, 1, CPU);
    assert_eq!(world.timer_due(CPU), Some(Time(1_409_000)));
}

#[test]
fn the_timer_runs_on_for_a_task_alone_and_stops_with_idleness() {
    let (mut fair, mut world) = fair_and_world("7.2", 2);
    queue(&mut fair, &mut world, 0, CPU);
    queue(&mut fair, &mut world, 1, CPU);
    pick(&mut fair, &mut world);
    world.set_now_for_test(Time(100_000));
    fair.dequeue(&mut world, CPU, TaskId(0), Dequeue::Exit);
    assert_eq!(pick(&mut fair, &mut world), Some(TaskId(1)));
    assert_eq!(
        world.timer_due(CPU),
        Some(Time(1_400_000)),
        "the timer was started for the other task"
    );
    fair.dequeue(&mut world, CPU, TaskId(1), Dequeue::Exit);
    assert_eq!(pick(&mut fair, &mut world), None);
    assert_eq!(world.timer_due(CPU), None);
}

#[test]
fn an_expired_timer_asks_to_choose_again_at_once() {
    let (mut fair, mut world) = fair_and_world("7.2", 2);
    queue(&mut fair, &mut world, 0, CPU);
    queue(&mut fair, &mut world, 1, CPU);
    pick(&mut fair, &mut world);
    world.set_now_for_test(Time(1_400_000));
    fair.timer(&mut world, CPU);
    assert!(world.resched_pending(CPU));
    assert_eq!(pick(&mut fair, &mut world), Some(TaskId(1)), "the request is used up");
}

#[test]
fn versions_before_7_2_have_no_timer() {
    let (mut fair, mut world) = fair_and_world("6.15", 2);
    queue(&mut fair, &mut world, 0, CPU);
    queue(&mut fair, &mut world, 1, CPU);
    pick(&mut fair, &mut world);
    assert_eq!(world.timer_due(CPU), None);
    let outcome = audited_run("core:2 pu:1", "6.15", TWO_ON_ONE);
    assert_eq!(outcome.counter("events_scheduler_timer"), 0.0);
}

const TWO_ON_ONE: &str = r#"{
    "global": { "duration": 1 },
    "tasks": { "hog": { "instance": 2, "cpus": [1], "loop": -1, "run": 700 } }
}"#;
