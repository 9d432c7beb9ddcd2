//! Tests of contracts that hold in every build, and of the engine's checks, with planted errors.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::scheduler::Dequeue;

/// A scheduler with one queue and one possible error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    /// No error.
    Nothing,
    /// It places tasks where they may not run.
    Places,
    /// It picks tasks on CPUs where they may not run.
    PicksElsewhere,
    /// It continues with a task that has gone to sleep.
    PicksAsleep,
}

struct Simple {
    wrong: Wrong,
    queue: Vec<TaskId>,
}

impl Scheduler for Simple {
    fn tick_ns(&self) -> u64 {
        1_000_000
    }
    fn select_cpu(&mut self, world: &mut World, task: TaskId, _: Wake) -> CpuId {
        let allowed = world.allowed(task);
        if self.wrong == Wrong::Places {
            let other = (0..world.nr_cpus()).find(|&cpu| !allowed.contains(cpu));
            return other.unwrap_or(0);
        }
        allowed.first().expect("a task may run somewhere")
    }
    fn enqueue(&mut self, _: &mut World, _: CpuId, task: TaskId, _: Enqueue, _: CpuId) {
        self.queue.push(task);
    }
    fn dequeue(&mut self, _: &mut World, _: CpuId, task: TaskId, _: Dequeue) {
        if self.wrong == Wrong::PicksAsleep {
            self.queue.insert(0, task);
        }
    }
    fn pick(&mut self, world: &mut World, cpu: CpuId) -> Pick {
        if let Some(current) = world.current(cpu) {
            return Pick::Run(current);
        }
        let may = |&task: &TaskId| {
            world.allowed(task).contains(cpu) != (self.wrong == Wrong::PicksElsewhere)
                || world.nr_allowed(task) == world.nr_cpus()
        };
        let place = self.queue.iter().position(may);
        place.map(|place| self.queue.remove(place)).into()
    }
    fn running(&mut self, world: &mut World, cpu: CpuId, _: TaskId) {
        // Other CPUs pick from the queue too.
        let others = (0..world.nr_cpus()).filter(|&other| other != cpu);
        others.for_each(|other| world.resched(cpu, other));
    }
}

/// Two tasks that sleep. Each may use one of two CPUs.
fn workload() -> Workload {
    let text = r#"{ "tasks": {
        "a": { "cpus": [0], "loop": 3, "run": 1000, "sleep": 1000 },
        "b": { "cpus": [1], "loop": 3, "run": 1000, "sleep": 1000 }
    } }"#;
    roost_workload::rtapp::parse(text, "contracts").expect("a valid file")
}

fn machine() -> Arc<Machine> {
    Arc::new(roost_machine::resolve("core:2 pu:1").expect("a valid shape"))
}

/// The message of a panic.
fn message(of: impl FnOnce()) -> String {
    let error = catch_unwind(AssertUnwindSafe(of)).expect_err("a contract is broken");
    error.downcast_ref::<String>().cloned().expect("a message with what was found")
}

fn run_with(wrong: Wrong) -> Result<Outcome, RunError> {
    run(&machine(), &workload(), Simple { wrong, queue: Vec::new() }, Control::new(1))
}

/// Calls `with` with an engine that has started and passes all checks.
fn started(with: impl FnOnce(&mut Engine<'_, Simple>)) {
    let workload = workload();
    let scheduler = Simple { wrong: Wrong::Nothing, queue: Vec::new() };
    let root = root_program(&workload);
    let engine = Engine::new(&machine(), &workload, &root, scheduler, 1);
    let mut engine = engine.expect("a valid run");
    engine.start(None, None);
    engine.audit_sometimes();
    engine.until_audit = 0;
    with(&mut engine);
}

#[test]
fn a_scheduler_that_keeps_its_contracts_ends_the_run() {
    assert!(run_with(Wrong::Nothing).is_ok());
}

#[test]
fn a_task_is_placed_where_it_may_run() {
    let told = message(|| drop(run_with(Wrong::Places)));
    assert!(told.starts_with("task ") && told.contains(" is placed on CPU "), "{told}");
    assert!(told.contains("but may not run there"), "{told}");
}

#[test]
fn a_task_is_picked_by_a_cpu_where_it_may_run() {
    let told = message(|| drop(run_with(Wrong::PicksElsewhere)));
    assert!(told.contains(" is picked by CPU ") && told.contains("may not run there"), "{told}");
}

#[test]
fn a_task_is_picked_from_a_queue() {
    let told = message(|| drop(run_with(Wrong::PicksAsleep)));
    assert!(told.contains(" is picked by CPU "), "{told}");
    assert!(told.ends_with("but is not queued: it is Blocked"), "{told}");
}

/// The root task is in transit to its first CPU.
#[test]
fn a_task_is_woken_once() {
    let wake = Wake { cpu: 1, waker: None, sync: false, interrupt: false };
    let told = message(|| started(|engine| engine.wake(TaskId(0), wake, 0)));
    let expected = "task main (1) is woken on CPU 1 at 0 ns, but does not sleep: it is Arriving";
    assert_eq!(told, expected);
}

#[test]
fn who_has_not_exited_is_counted() {
    let told = message(|| {
        started(|engine| {
            engine.live += 1;
            engine.audit_sometimes();
        });
    });
    assert!(told.contains("tasks counted as live, and alive"), "{told}");
    let told = message(|| {
        started(|engine| {
            engine.free.push(TaskId(0));
            engine.audit_sometimes();
        });
    });
    assert!(told.contains("free task numbers, and tasks that exited"), "{told}");
}

#[test]
fn who_waits_sleeps() {
    let told = message(|| {
        started(|engine| {
            engine.shared.joining = Some(TaskId(0));
            engine.audit_sometimes();
        });
    });
    assert!(told.contains("task main (1) waits for a thread at "), "{told}");
}
