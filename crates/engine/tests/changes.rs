//! Affinities and task groups that another task changes, whatever the changed task does.

#![allow(clippy::unwrap_used)] // what is wrong here is a failed test

mod common;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use common::{counter, template, workload};
use proptest::prelude::*;
use roost_engine::*;
use roost_workload::{Cpus, Group, Op, Program, Template, Workload};

const MS: u64 = 1_000_000;

/// The CPU of the task that changes affinities.
const CHANGER: u32 = 2;

/// A queue for each CPU, first come first served, which records what it is told.
#[derive(Clone, Default)]
struct PerCpu {
    queues: Vec<VecDeque<TaskId>>,
    story: Rc<RefCell<Vec<String>>>,
    /// A search for a CPU for the task "it" takes this long.
    search_ns: u64,
    /// The running task gives way at each tick.
    takes_turns: bool,
}

impl PerCpu {
    fn tell(&self, world: &World, task: TaskId, what: &str) {
        let name = world.name(task).to_owned();
        self.story.borrow_mut().push(format!("{name} {what}"));
    }
}

impl Scheduler for PerCpu {
    fn tick_ns(&self) -> u64 {
        MS
    }
    fn start(&mut self, world: &mut World) {
        self.queues.resize(world.nr_cpus(), VecDeque::new());
    }
    fn select_cpu(&mut self, world: &mut World, task: TaskId, wake: Wake) -> CpuId {
        world.charge(wake.cpu, if world.name(task) == "it" { self.search_ns } else { 0 });
        let last = world.task_cpu(task);
        if world.may_run(task, last) { last } else { world.allowed(task).first().unwrap() }
    }
    fn enqueue(&mut self, w: &mut World, cpu: CpuId, task: TaskId, why: Enqueue, _: CpuId) {
        assert!(w.may_run(task, cpu), "queued on CPU {cpu}");
        let how = if why == Enqueue::Relocated { "moves to" } else { "queues on" };
        self.tell(w, task, &format!("{how} {cpu}"));
        self.queues[cpu].push_back(task);
    }
    fn dequeue(&mut self, world: &mut World, cpu: CpuId, task: TaskId, why: Dequeue) {
        match why {
            Dequeue::Sleep => self.tell(world, task, "sleeps"),
            Dequeue::Exit => self.tell(world, task, "exits"),
            Dequeue::NotAllowed => self.queues[cpu].retain(|&waiting| waiting != task),
        }
    }
    fn pick(&mut self, world: &mut World, cpu: CpuId) -> Pick {
        let current = world.current(cpu);
        let queue = &mut self.queues[cpu];
        match current {
            Some(current) if !self.takes_turns || queue.is_empty() => return Pick::Run(current),
            Some(current) => queue.push_back(current),
            None => {}
        }
        queue.pop_front().into()
    }
    fn tick(&mut self, world: &mut World, cpu: CpuId) {
        world.resched(cpu, cpu);
    }
    fn running(&mut self, world: &mut World, cpu: CpuId, task: TaskId) {
        self.tell(world, task, &format!("runs on {cpu}"));
    }
    fn allowed_changed(&mut self, world: &mut World, task: TaskId, by: CpuId) {
        let allowed: Vec<CpuId> = world.allowed(task).iter().collect();
        self.tell(world, task, &format!("may use {allowed:?}, by CPU {by}"));
    }
    fn group_changed(&mut self, world: &mut World, cpu: CpuId, task: TaskId, by: CpuId) {
        assert_eq!(world.task_cpu(task), cpu);
        self.tell(world, task, &format!("joins {:?} on {cpu}, by CPU {by}", world.group(task)));
    }
}

/// A task that may use these CPUs.
fn bound(name: &str, cpus: &[u32], ops: Vec<Op>) -> (Template, u32) {
    (Template { affinity: Some(cpus.to_vec()), ..template(name, ops) }, 1)
}

/// A task that sleeps for `after_ns`, allows only CPU 1 to the tasks of template 0, and runs.
fn changer(after_ns: u64) -> (Template, u32) {
    let change = Op::SetAffinityOf { template: 0, set: 0 };
    let (template, count) =
        bound("changer", &[CHANGER], vec![Op::Sleep { ns: after_ns }, change, Op::Run { ns: MS }]);
    let program = Program { affinities: vec![Some(Cpus::List(vec![1]))], ..template.program };
    (Template { program, ..template }, count)
}

fn run_on(shape: &str, workload: &Workload, scheduler: &PerCpu) -> Outcome {
    let machine = Arc::new(roost_machine::resolve(shape).unwrap());
    run(&machine, workload, scheduler.clone(), Control::new(1)).unwrap()
}

/// What happened to the task "it" and to the task that changed its affinity, from the change on.
fn after_change(tasks: Vec<(Template, u32)>, scheduler: PerCpu) -> Vec<String> {
    run_on("core:3 pu:1", &workload(tasks), &scheduler);
    let story = scheduler.story.borrow();
    let at = story.iter().position(|what| what == "it may use [1], by CPU 2").unwrap();
    let is_ours = |what: &&String| what.starts_with("it ") || what.starts_with("changer ");
    story[at + 1..].iter().filter(is_ours).cloned().collect()
}

#[test]
fn a_task_that_waits_moves_at_once() {
    let it = bound("it", &[0], vec![Op::Sleep { ns: MS }, Op::Run { ns: MS }]);
    let hog = bound("hog", &[0], vec![Op::Run { ns: 9 * MS }]);
    let story = after_change(vec![it, hog, changer(3 * MS)], PerCpu::default());
    assert_eq!(story[..2], ["it moves to 1", "it runs on 1"]);
    assert!(!story.contains(&"changer sleeps".to_owned()), "it waits for nobody: {story:?}");
}

#[test]
fn the_stopper_moves_a_task_that_runs_and_who_changed_it_sleeps_until_then() {
    let it = bound("it", &[0], vec![Op::Run { ns: 9 * MS }]);
    let story = after_change(vec![it, changer(3 * MS)], PerCpu::default());
    // Both are on their way at the same time.
    let (of_it, of_changer): (Vec<&String>, Vec<_>) =
        story.iter().partition(|what| what.starts_with("it "));
    assert_eq!(of_it, ["it moves to 1", "it runs on 1", "it exits"]);
    assert_eq!(of_changer[..2], ["changer sleeps", "changer queues on 2"]);
}

/// Its work goes on where it stopped: 9 ms in all.
#[test]
fn a_moved_task_keeps_its_work() {
    let ran_ns = |change_ns| {
        let it = bound("it", &[0], vec![Op::Run { ns: 9 * MS }]);
        let tasks = workload(vec![it, changer(change_ns)]);
        counter(&run_on("core:3 pu:1", &tasks, &PerCpu::default()), "run_ns")
    };
    let (moved, never) = (ran_ns(3 * MS), ran_ns(20 * MS));
    assert!(moved.abs_diff(never) < 50_000, "{moved} and {never} ns");
}

#[test]
fn a_task_that_sleeps_is_placed_when_it_wakes() {
    let it =
        bound("it", &[0], vec![Op::Run { ns: 1 }, Op::Sleep { ns: 9 * MS }, Op::Run { ns: 1 }]);
    let story = after_change(vec![it, changer(3 * MS)], PerCpu::default());
    assert_eq!(story, ["changer exits", "it queues on 1", "it runs on 1", "it exits"]);
}

/// The search for a CPU takes 2 ms, and 1 ms after it began, the affinity changes.
#[test]
fn a_task_in_transit_arrives_first() {
    let it = bound("it", &[0], vec![Op::Receive { channel: 0, bytes: 1 }, Op::Run { ns: 1 }]);
    let send = Op::Send { channel: 0, bytes: 1 };
    let waker = bound("waker", &[1], vec![Op::Sleep { ns: 20 * MS }, send]);
    let scheduler = PerCpu { search_ns: 2 * MS, ..PerCpu::default() };
    run_on("core:3 pu:1", &workload(vec![it, waker, changer(21 * MS)]), &scheduler);
    let story = scheduler.story.borrow();
    let at = story.iter().position(|what| what == "it may use [1], by CPU 0").unwrap();
    assert_eq!(story[at - 1], "it queues on 0", "{story:?}");
    assert_eq!(story[at + 1], "it moves to 1");
    assert!(story[..at].contains(&"changer sleeps".to_owned()), "it waits for the arrival");
}

/// The stopper finds that the task has ended.
#[test]
fn a_task_may_exit_before_the_stopper_comes() {
    let lives_ns = 3 * MS + 60_000;
    for ns in (lives_ns - 60_000..lives_ns).step_by(500) {
        let it = bound("it", &[0], vec![Op::Run { ns }]);
        run_on("core:3 pu:1", &workload(vec![it, changer(3 * MS)]), &PerCpu::default());
    }
}

/// A scheduler with delayed dequeues then still has it on a queue of that CPU.
#[test]
fn a_task_that_sleeps_before_the_stopper_comes_is_announced_again() {
    let announced = |ns| {
        let ops = vec![Op::Run { ns }, Op::Sleep { ns: MS }, Op::Run { ns: 1 }];
        let scheduler = PerCpu::default();
        let tasks = workload(vec![bound("it", &[0], ops), changer(3 * MS)]);
        run_on("core:3 pu:1", &tasks, &scheduler);
        let story = scheduler.story.borrow();
        let by = |cpu| format!("it may use [1], by CPU {cpu}");
        [CHANGER, 0].map(|cpu| story.iter().filter(|what| **what == by(cpu)).count())
    };
    let found: Vec<[usize; 2]> =
        (3 * MS - 30_000..3 * MS + 60_000).step_by(250).map(announced).collect();
    assert!(found.contains(&[1, 1]), "in none of the runs it sleeps that soon");
    assert!(found.iter().all(|[changer, stopper]| *changer == 1 && *stopper <= 1));
}

/// Three tasks of a template, of which one runs, one waits and one sleeps.
#[test]
fn all_tasks_of_a_template_change_their_group_once() {
    let ops = vec![Op::Run { ns: MS }, Op::Sleep { ns: 9 * MS }];
    let (it, _) = bound("it", &[0], ops);
    let join = |group| Op::SetGroupOf { template: 0, group };
    let ops = vec![Op::Sleep { ns: 3 * MS / 2 }, join(Some(0)), join(Some(0)), join(None)];
    let mut tasks = workload(vec![(it, 3), bound("changer", &[CHANGER], ops)]);
    tasks.groups = vec![Group { path: "/a".into(), parent: None, weight: 100 }];
    let scheduler = PerCpu::default();
    run_on("core:3 pu:1", &tasks, &scheduler);
    let story = scheduler.story.borrow();
    let joined = story.iter().filter(|what| what.contains("joins")).map(String::as_str);
    let [join, leave] = ["it joins Some(0) on 0, by CPU 2", "it joins None on 0, by CPU 2"];
    assert_eq!(joined.collect::<Vec<_>>(), [join, join, join, leave, leave, leave]);
    let first = story.iter().position(|what| what == join).unwrap();
    let before = |what: &str| story[..first].iter().filter(|&other| other == what).count();
    assert_eq!((before("it runs on 0"), before("it sleeps")), (2, 1));
}

fn random_ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        3 => (1u64..3 * MS).prop_map(|ns| Op::Run { ns }),
        2 => (1u64..MS).prop_map(|ns| Op::Sleep { ns }),
        1 => (0u32..4).prop_map(Op::SetAffinity),
        1 => Just(Op::Yield),
    ];
    prop::collection::vec(op, 1..6).prop_map(|mut ops| {
        ops.push(Op::Loop { depth: 0, times: 3, to: 0 });
        ops
    })
}

/// Any CPU, one of four, two, or those of a node.
fn sets() -> Vec<Option<Cpus>> {
    let sets = [Cpus::List(vec![0]), Cpus::List(vec![1, 3]), Cpus::NodeOf(2)];
    [None].into_iter().chain(sets.map(Some)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The audit checks after every event that no task is where it may not be.
    #[test]
    fn every_task_ends_however_often_affinities_change(
        programs in prop::collection::vec((random_ops(), 1u32..5), 1..4),
        changes in prop::collection::vec((0u32..4, 1u64..MS), 1..9),
        seed in 0u64..1000,
    ) {
        let machine = Arc::new(roost_machine::resolve("node:2 l3:1 core:2 pu:1").unwrap());
        let with_sets = |name, ops| {
            let template = template(name, ops);
            Template { program: Program { affinities: sets(), ..template.program }, ..template }
        };
        let change = |(n, (set, ns)): (u32, &(u32, u64))| {
            let template = n % programs.len() as u32;
            let join = Op::SetGroupOf { template, group: (*set == 0).then_some(0) };
            [Op::Sleep { ns: *ns }, Op::SetAffinityOf { template, set: *set }, join]
        };
        let changes: Vec<Op> = (0..).zip(&changes).flat_map(change).collect();
        let tasks = programs.into_iter().map(|(ops, count)| (with_sets("t", ops), count));
        // Two tasks change the same affinities.
        let tasks = tasks.chain([(with_sets("changer", changes), 2)]);
        let mut workload = workload(tasks.collect());
        workload.groups = vec![Group { path: "/a".into(), parent: None, weight: 100 }];
        let once = || {
            let scheduler = PerCpu { takes_turns: true, ..PerCpu::default() };
            run(&machine, &workload, scheduler, Control { faults: true, ..Control::new(seed) })
        };
        let outcome = once();
        prop_assert!(outcome.is_ok(), "{outcome:?}");
        prop_assert_eq!(outcome, once(), "same inputs, same outcome");
    }
}
