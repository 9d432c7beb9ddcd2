//! The checks find faults that are planted in a scheduler.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use roost_engine::{Control, CpuId, Dequeue, Enqueue, Pick, Scheduler, TaskId, Wake, World};
use roost_fair::{Fair, Features};
use roost_machine::Machine;
use roost_scx::Scx;
use roost_simulate::SchedulerSpec;
use roost_swarm::watch::{Expected, Wait};
use roost_swarm::{
    Beside, Case, Disturber, Draw, Patience, Promises, Tempo, check, observe, schedule_of,
    smallest, unsteady,
};
use roost_workload::{Op, TimerRef, Workload, rtapp};

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// The tenth queued task does not get into the queue.
    LosesATask,
    /// Tasks run on CPUs that they may not use.
    IgnoresAffinity,
    /// A picked task stays in the queue.
    PicksTwice,
    Panics,
    /// A running task is never preempted.
    Starves,
    /// Tasks stay on the CPU on which they were created.
    LeavesCpusIdle,
    /// The hook that queues the tenth task does not return.
    Hangs,
}

/// Ends the loop of [`Fault::Hangs`]. Nothing else could end it.
static FOUND: AtomicBool = AtomicBool::new(false);

/// A queue for all CPUs, with a fault.
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
        if self.fault == Fault::LeavesCpusIdle {
            return last;
        }
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
        let may = |task: TaskId| match self.fault {
            Fault::IgnoresAffinity => true,
            Fault::Starves if world.current(cpu).is_some() => false,
            Fault::LeavesCpusIdle => world.task_cpu(task) == cpu,
            _ => world.allowed(task).contains(cpu),
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

/// More events than these runs have.
const EVENTS: u64 = 100_000;

/// Two tasks that run and sleep on any CPU, and one that is bound to a CPU.
const PINNED: &str = r#"{"tasks": {
    "pinned": {"cpus": [2], "loop": -1, "run": 300, "sleep": 500},
    "free": {"instance": 2, "loop": -1, "run": 700, "sleep": 100}
}}"#;

/// More tasks than CPUs; all of them run all the time.
const HOGS: &str = r#"{"tasks": {"hog": {"instance": 6, "loop": -1, "run": 5000}}}"#;

/// The machine of these runs.
fn machine() -> Arc<Machine> {
    Arc::new(roost_machine::resolve("node:2 l3:1 core:2 pu:1").unwrap())
}

/// The checks' result for a scheduler with this fault. The promises of Linux 7.2 are expected of it.
fn found_with(text: &str, fault: Fault) -> Result<(), String> {
    let machine = machine();
    let workload = rtapp::parse(text, "planted").unwrap();
    let promises = Promises::of("7.2", &[], 4_000_000, &machine, &workload);
    found_beside(text, fault, Expected { promises, ..Expected::default() })
}

fn found_beside(text: &str, fault: Fault, expected: Expected) -> Result<(), String> {
    let machine = machine();
    let workload = rtapp::parse(text, "planted").unwrap();
    let workload = Workload { duration_ns: Some(100_000_000), ..workload };
    let scheduler = || Fifo { queue: VecDeque::new(), queued: 0, fault };
    let patience = Patience {
        events: EVENTS,
        hook: Duration::from_millis(100),
        stuck: &|| FOUND.store(true, Ordering::Relaxed),
    };
    observe(&machine, &workload, Control::new(1), scheduler, expected, patience).map(|_| ())
}

fn found(fault: Fault) -> Result<(), String> {
    found_with(PINNED, fault)
}

/// The hook returns only when it is found.
#[test]
fn a_hook_that_does_not_return_is_found() {
    let lost = found(Fault::Hangs);
    assert!(FOUND.load(Ordering::Relaxed), "{lost:?}");
}

/// A hundred seconds of two tasks have more than these events.
#[test]
fn a_run_of_too_many_events_is_stopped() {
    let text = r#"{"tasks": {"a": {"instance": 2, "loop": -1, "run": 300, "sleep": 100}}}"#;
    let workload = rtapp::parse(text, "long").unwrap();
    let workload = Workload { duration_ns: Some(100_000_000_000), ..workload };
    let stopped = ends(&workload, Fault::None).unwrap_err();
    assert!(stopped.contains("interrupted"), "{stopped}");
}

/// If two tasks wait for each other, that is the workload's own deadlock. A lost task is not.
#[test]
fn a_deadlock_is_told_from_a_lost_task() {
    let wait = r#""lock": "m", "wait": {"ref": "c", "mutex": "m"}, "unlock": "m""#;
    let text =
        format!(r#"{{"tasks": {{"a": {{"instance": 2, "loop": -1, "run": 300, {wait}}}}}}}"#);
    let workload = rtapp::parse(&text, "deadlock").unwrap();
    assert_eq!(ends(&workload, Fault::None), Ok(()));
    // Tasks only run and sleep, and the last queued task is lost, so that no event is left.
    let text = r#"{"tasks": {"a": {"loop": 9, "run": 300, "sleep": 100}}}"#;
    let workload = rtapp::parse(text, "lost").unwrap();
    let lost = ends(&workload, Fault::LosesATask).unwrap_err();
    assert!(lost.contains("nothing is left to happen, but a is Waiting"), "{lost}");
}

/// Runs without a time limit.
fn ends(workload: &Workload, fault: Fault) -> Result<(), String> {
    let machine = Arc::new(roost_machine::resolve("core:2 pu:1").unwrap());
    let scheduler = || Fifo { queue: VecDeque::new(), queued: 0, fault };
    let patience = Patience { events: EVENTS, hook: Duration::from_secs(60), stuck: &|| () };
    let expected = Expected::default();
    observe(&machine, workload, Control::new(1), scheduler, expected, patience).map(|_| ())
}

#[test]
fn a_scheduler_without_faults_passes() {
    assert_eq!(found(Fault::None), Ok(()));
    assert_eq!(found_with(HOGS, Fault::None), Ok(()));
}

/// Hogs that are not preempted, and hogs that all stay on one CPU.
#[test]
fn waits_without_end_are_found() {
    let starved = found_with(HOGS, Fault::Starves).unwrap_err();
    assert!(starved.contains("hog has waited"), "{starved}");
    let idle = found_with(HOGS, Fault::LeavesCpusIdle).unwrap_err();
    assert!(idle.contains("has idled"), "{idle}");
}

/// Five hogs may use two CPUs only. The fair class keeps them there, but the promises are those for hogs that may use
/// any CPU.
#[test]
fn tasks_that_do_not_spread_are_found() {
    let hogs = |cpus: &str| {
        let text =
            format!(r#"{{"tasks": {{"hog": {{"instance": 5, {cpus} "loop": -1, "run": 5000}}}}}}"#);
        let workload = rtapp::parse(&text, "planted").unwrap();
        Workload { duration_ns: Some(400_000_000), ..workload }
    };
    let found = |machine: &str, cpus: &str| {
        let machine = Arc::new(roost_machine::resolve(machine).unwrap());
        let fair = || Fair::new(&machine, Features::parse("fair@6.15").unwrap());
        let promises = Promises::of("6.15", &[], fair().tick_ns(), &machine, &hogs(""));
        let expected = Expected { promises, ..Expected::default() };
        let patience = Patience { events: EVENTS, hook: Duration::from_secs(60), stuck: &|| () };
        observe(&machine, &hogs(cpus), Control::new(1), fair, expected, patience).map(|_| ())
    };
    for (machine, spare) in
        [("node:1 l3:2 core:2 pu:1", "LLC 1"), ("node:2 l3:1 core:2 pu:1", "node 1")]
    {
        let error = found(machine, r#""cpus": [0, 1],"#).unwrap_err();
        assert!(error.contains(&format!("{spare} has had idle CPUs for ")), "{error}");
        assert_eq!(found(machine, ""), Ok(()));
    }
}

/// Six hogs on four CPUs: two of them never run, or each waits for two ticks.
#[test]
fn a_wait_beyond_a_bound_is_found() {
    let of = |fault, always_ns| {
        let wait = Some(Wait { always_ns, each_task_ns: 0 });
        found_beside(HOGS, fault, Expected { wait, ..Expected::default() })
    };
    let starved = of(Fault::Starves, 50_000_000).unwrap_err();
    assert!(starved.contains("hog waits for"), "{starved}");
    assert_eq!(of(Fault::None, 50_000_000), Ok(()));
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

/// Many commits and tests name a case by its seed. If this changes, they name others. The number is that of the cases
/// before they could be drawn in more ways than one (FNV-1a, 64 bits).
#[test]
fn cases_of_the_first_seeds_stay_the_same() {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for seed in 0..1000 {
        for byte in Case::of(seed).to_string().bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    assert_eq!(hash, 0x28bf_b409_fb0d_4fb2);
}

/// The first hundred cases contain all kinds of cases.
#[test]
fn cases_have_all_operations_and_odd_machines() {
    let cases: Vec<Case> = (0..100).map(Case::of).collect();
    let some = |what: &str, is: &dyn Fn(&Case) -> bool| assert!(cases.iter().any(is), "{what}");
    some("one CPU", &|case| case.machine.counts == [1; 5]);
    some("offline CPUs", &|case| !case.machine.offline.is_empty());
    some("a node without memory", &|case| !case.machine.without_memory.is_empty());
    some("a node of memory alone", &|case| case.machine.memory_node);
    some("messages", &|case| case.beside.iter().any(|b| matches!(b, Beside::Talk { .. })));
    some("faults", &|case| case.faults && case.version.is_none());
    some("late interrupts", &|case| case.faults && case.version.is_some());
    some("affinity from outside", &|case| {
        case.beside.iter().any(|b| matches!(b, Beside::Bind { .. }))
    });
    some("groups from outside", &|case| {
        let moves = |beside: &Beside| matches!(beside, Beside::Regroup { .. });
        case.workload().unwrap().groups.len() > 1 && case.beside.iter().any(moves)
    });
    some("sweeps", &|case| case.beside.iter().any(|b| matches!(b, Beside::Sweep { .. })));
    let weighted = |case: &Case| {
        let groups = case.workload().unwrap().groups;
        !groups.is_empty() && !case.weights.is_empty()
    };
    some("weights of groups", &weighted);
    let cpus = |case: &Case| {
        let machine = case.machine.machine().unwrap();
        machine.cores.iter().any(|core| core.cpus.len() != machine.cores[0].cpus.len())
    };
    some("cores of different numbers of CPUs", &cpus);
    for operation in ["cpus", "dl-runtime", "membind_nodes", "SCHED_IDLE", "taskgroup", "fork0"] {
        some(operation, &|case| case.to_string().contains(operation));
    }
}

/// A name for each operation that cases have. `None`: only the engine's own threads use it.
fn name(op: &Op) -> Option<&'static str> {
    Some(match op {
        Op::AwaitWork | Op::OwnTurn => return None,
        Op::Run { .. } => "Run",
        Op::Runtime { .. } => "Runtime",
        Op::Sleep { .. } => "Sleep",
        Op::SleepUntil { .. } => "SleepUntil",
        Op::Timer { timer: TimerRef::Own(_), absolute: false, .. } => "Timer, own",
        Op::Timer { timer: TimerRef::Own(_), absolute: true, .. } => "Timer, own and absolute",
        Op::Timer { timer: TimerRef::Shared(_), absolute: false, .. } => "Timer, shared",
        Op::Timer { timer: TimerRef::Shared(_), .. } => "Timer, shared and absolute",
        Op::Lock(_) => "Lock",
        Op::Unlock(_) => "Unlock",
        Op::Wait { .. } => "Wait",
        Op::Signal(_) => "Signal",
        Op::Broadcast(_) => "Broadcast",
        Op::Barrier(_) => "Barrier",
        Op::Meet { .. } => "Meet",
        Op::Start { delay_ns: 0 } => "Start",
        Op::Start { .. } => "Start, delayed",
        Op::SpinBarrier { .. } => "SpinBarrier",
        Op::Fork(_) => "Fork",
        Op::Yield => "Yield",
        Op::SetNice(_) => "SetNice",
        Op::SetPolicy(_) => "SetPolicy",
        Op::SetSlice { .. } => "SetSlice",
        Op::SetGroup(_) => "SetGroup",
        Op::SetAffinity(_) => "SetAffinity",
        Op::SetAffinityOf { .. } => "SetAffinityOf",
        Op::SetGroupOf { .. } => "SetGroupOf",
        Op::Send { .. } => "Send",
        Op::Receive { .. } => "Receive",
        Op::Count { .. } => "Count",
        Op::Loop { .. } => "Loop",
        Op::Access(_) => "Access",
        Op::StartWatch(_) => "StartWatch",
        Op::StopWatch(_) => "StopWatch",
    })
}

/// Number of names that [`name`] gives.
const NAMES: usize = 34;

#[test]
fn the_first_cases_have_every_operation() {
    let mut met = BTreeSet::new();
    for seed in 0..300 {
        let workload = Case::of(seed).workload().unwrap_or_else(|why| panic!("{seed}: {why}"));
        let ops = workload.templates.iter().flat_map(|template| &template.program.ops);
        met.extend(ops.filter_map(name));
    }
    assert_eq!(met.len(), NAMES, "{met:?}");
}

/// CPUs go and come, and tasks change their class, also in a small case. The first CPU of an LLC always stays.
#[test]
fn cpus_and_classes_change() {
    let machine = Arc::new(roost_machine::resolve("2n2l4c").unwrap());
    let cpus: Vec<CpuId> = (0..60).flat_map(|seed| unsteady(&machine, seed)).collect();
    assert!(cpus.iter().all(|cpu| !cpu.is_multiple_of(4)), "{cpus:?}");
    assert!((0..16).all(|cpu| cpu % 4 == 0 || cpus.contains(&cpu)), "{cpus:?}");
    let SchedulerSpec::Scx(spec) = SchedulerSpec::parse("roost").unwrap() else { panic!() };
    let program = spec.program(&machine, &AtomicBool::new(false)).unwrap();
    for (tempo, ms) in [(Tempo::USUAL, 2_000), (Tempo::QUICK, 60)] {
        let scx = Scx::new(&machine, &program, spec.tick_ns).unwrap();
        let scx = scx.accompanied(Box::new(Disturber::new(&[5, 6, 14], 1, tempo)));
        let workload = rtapp::parse(HOGS, "hogs").unwrap();
        let workload = Workload { duration_ns: Some(ms * 1_000_000), ..workload };
        let outcome = roost_engine::run(&machine, &workload, scx, Control::new(1)).unwrap();
        for name in ["went_offline", "came_back", "changed_class"] {
            assert!(outcome.counter(name) >= 3.0, "{name}: {} in {ms} ms", outcome.counter(name));
        }
    }
}

/// One task after the other runs on the one CPU, or one of them twice. When they run does not matter.
#[test]
fn a_schedule_is_the_order_in_which_tasks_get_cpus() {
    let schedule = |first: u32, second: u32| {
        let text = format!(
            r#"{{"tasks": {{"a": {{"loop": 1, "delay": {first}, "run": 300}},
                "b": {{"loop": 1, "delay": {second}, "run": 300}}}}}}"#
        );
        let workload = rtapp::parse(&text, "order").unwrap();
        let machine = Arc::new(roost_machine::resolve("core:1 pu:1").unwrap());
        let scheduler = || Fifo { queue: VecDeque::new(), queued: 0, fault: Fault::None };
        let patience = Patience { events: EVENTS, hook: Duration::from_secs(60), stuck: &|| () };
        let (control, expected) = (Control::new(1), Expected::default());
        observe(&machine, &workload, control, scheduler, expected, patience).unwrap().schedule
    };
    assert_eq!(schedule(5_000, 9_000), schedule(6_000, 11_000));
    assert_ne!(schedule(5_000, 9_000), schedule(9_000, 5_000));
}

/// A hash would not tell if all small cases were alike.
#[test]
fn small_cases_pass_and_differ() {
    let small = Draw { small: true, faults: Some(true) };
    let cases: Vec<Case> = (0..48).map(|seed| Case::drawn(seed, small)).collect();
    let schedules: BTreeSet<u64> = cases
        .iter()
        .map(|case| schedule_of(case).unwrap_or_else(|wrong| panic!("{wrong}\n{case}")))
        .collect();
    assert!(schedules.len() > 40, "{}", schedules.len());
}

#[test]
fn a_failing_case_loses_all_that_it_does_not_need() {
    let case = Case::of(3);
    let small = smallest(&case, 1_000, |case| case.duration_ms >= Some(4));
    assert_eq!((small.machine.counts, small.machine.offline.len()), ([1; 5], 0));
    assert_eq!((small.tasks.len(), small.beside.len()), (1, 0));
    assert!((Some(4)..Some(8)).contains(&small.duration_ms));
}
