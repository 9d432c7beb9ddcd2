//! The event loop.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use roost_machine::{CpuSet, Machine};
use roost_workload::{Cpus, Op, Workload};

use crate::background;
use crate::cpu::refill_ns;
use crate::events::Event;
use crate::facts::{Person, ProcessState};
use crate::memory::{Memory, Unavailable};
use crate::outcome::{Outcome, outcome};
use crate::own_thread;
use crate::power::PowerState;
use crate::reached::{self, Missing, TooShort};
use crate::record::{Recorder, Start};
use crate::scheduler::{CpuId, Enqueue, Pick, Scheduler, TaskId, Wake, Work};
use crate::sync::Shared;
use crate::task::{State, Task};
use crate::time::Time;
use crate::totals::{LatencyCounts, Marks, Measured, Totals};
use crate::trace::{KnowsTasks, LeftAs, TraceTask, Tracer};
use crate::workers::{self, Worker};
use crate::world::{Arrival, InterruptTime, Looking, World};

/// How a run is started, observed and stopped.
pub struct Control<'a> {
    /// Seed of everything random. Runs with different seeds differ like two runs on a real machine.
    pub seed: u64,
    /// Observer of switches and wakeups.
    pub tracer: Option<Box<dyn Tracer>>,
    /// Recorder of sums.
    pub recorder: Option<Box<dyn Recorder>>,
    /// Whether kernel threads run beside the workload (`background.rs`).
    pub background: bool,
    /// Whether faults happen: interrupts that come late, and what a scheduler asks for with
    /// [`World::fault`].
    pub faults: bool,
    /// When set, the run ends with [`RunError::Stopped`].
    pub stop: &'a AtomicBool,
    /// Called from time to time with the simulated time reached.
    pub progress: &'a (dyn Fn(Time) + Sync),
}

impl Control<'_> {
    /// A run without observer, recorder, stop flag, kernel threads and faults.
    pub fn new(seed: u64) -> Self {
        static NEVER: AtomicBool = AtomicBool::new(false);
        let (tracer, recorder, stop, progress) = (None, None, &NEVER, &|_| {});
        Self { seed, tracer, recorder, background: false, faults: false, stop, progress }
    }
}

/// Why a run has no outcome.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RunError {
    /// [`Control::stop`] was set.
    #[error("interrupted after {} of simulated time", Time(*.0))]
    Stopped(u64),
    /// Tasks remain, and nothing can ever wake them.
    #[error(
        "workload {workload}: deadlock after {}: {waiting} tasks sleep and nothing will \
         wake them (first: {first}); give the workload a duration or mend its signals and locks",
        Time(*.at_ns)
    )]
    Deadlock {
        /// The workload's name.
        workload: String,
        /// When.
        at_ns: u64,
        /// How many tasks sleep.
        waiting: usize,
        /// Name of one of them.
        first: String,
    },
    /// The scheduler ended the run ([`World::end_run`]).
    #[error(
        "workload {workload}: the scheduler ended the run after {}: {reason} ({tasks})",
        Time(*.at_ns)
    )]
    Scheduler {
        /// The workload's name.
        workload: String,
        /// Simulated time of the end.
        at_ns: u64,
        /// The scheduler's reason.
        reason: String,
        /// The states of tasks.
        tasks: String,
    },
    /// The duration ended the run before it could measure anything ([`Outcome::too_short`]).
    #[error(
        "workload {workload}: after {} of simulated time {created} tasks had been created, and \
         {missing}; {}",
        Time(*.at_ns),
        longer(*.enough_ns, *.ends, .stalls.as_deref())
    )]
    NothingReached {
        /// The workload's name.
        workload: String,
        /// When the run ended.
        at_ns: u64,
        /// How many tasks of the workload had been created.
        created: u32,
        /// What had not been reached.
        missing: Missing,
        /// A duration that is long enough, if one is known.
        enough_ns: Option<u64>,
        /// Whether it measures how long tasks take, so that without a duration they run to their end.
        ends: bool,
        /// Why the scheduler ended a longer run.
        stalls: Option<String>,
    },
    /// A memory policy names a node that the machine does not have.
    #[error(
        "workload {workload}: its memory policy names node {node}, which machine {machine} does not \
         have; choose a node that `roost machine` lists"
    )]
    NoSuchNode {
        /// The workload's name.
        workload: String,
        /// The node, by the operating system's number.
        node: u32,
        /// The machine's name.
        machine: String,
    },
    /// The workload's memory does not fit the machine.
    #[error(
        "workload {workload}: it needs {wanted} bytes of memory, machine {machine} has {there}; make \
         it smaller or take another machine"
    )]
    OutOfMemory {
        /// The workload's name.
        workload: String,
        /// Bytes needed.
        wanted: u64,
        /// Bytes available.
        there: u64,
        /// The machine's name.
        machine: String,
    },
    /// A task may run only on CPUs that the machine does not have.
    #[error(
        "workload {workload}, task {task}: none of its CPUs {cpus:?} is on machine {machine}; \
         choose CPUs that `roost machine` lists"
    )]
    NoSuchCpu {
        /// The workload's name.
        workload: String,
        /// The task's name.
        task: String,
        /// The CPUs asked for.
        cpus: Vec<u32>,
        /// The machine's name.
        machine: String,
    },
}

impl RunError {
    /// Whether the scheduler is the reason: it ended the run, or would end every run that is long enough.
    pub fn is_by_scheduler(&self) -> bool {
        match self {
            Self::Scheduler { .. } => true,
            Self::NothingReached { enough_ns, stalls, .. } => {
                enough_ns.is_none() && stalls.is_some()
            }
            _ => false,
        }
    }
}

/// The advice on a longer duration, as the user would give it.
fn longer(enough_ns: Option<u64>, ends: bool, stalls: Option<&str>) -> String {
    match (enough_ns, stalls) {
        (None, Some(why)) => format!("a longer run is ended by the scheduler: {why}"),
        (None, None) if ends => {
            "no duration that would do was found: without one, it runs to its end".to_owned()
        }
        (None, None) => "give it a longer duration, if any would do".to_owned(),
        (Some(ns), _) if ns % 1_000_000_000 == 0 => {
            format!("--duration {}s would do", ns / 1_000_000_000)
        }
        (Some(ns), _) => format!("--duration {}ms would do", ns.div_ceil(1_000_000)),
    }
}

/// CPU sets of one template.
pub(crate) struct Affinities {
    pub first: CpuSet,
    pub later: Vec<CpuSet>,
}

pub(crate) struct Engine<'a, S> {
    pub(crate) world: World,
    pub(crate) scheduler: S,
    pub(crate) workload: &'a Workload,
    pub(crate) shared: Shared,
    pub(crate) affinities: Vec<Affinities>,
    pub(crate) root_program: &'a [Op],
    /// The program of each template: closer together than the templates.
    pub(crate) programs: Vec<&'a [Op]>,
    latencies: LatencyCounts,
    pub(crate) tick_ns: u64,
    pub(crate) free: Vec<TaskId>,
    next_pid: u32,
    /// Tasks of the workload that have not exited.
    pub(crate) live: u32,
    /// Events until the next audit.
    pub(crate) until_audit: usize,
    /// Of each kind of worker one for each CPU, in the order of CPUs.
    pub(crate) workers: Vec<Worker>,
    /// Number of kernel threads, and of the scheduler's own thread. No run waits for their end.
    pub(crate) kernel_threads: u32,
    /// Whether a task that has exited had reached its work.
    worked: bool,
}

/// Number of events between checks of [`Control::stop`].
const EVENTS_BETWEEN_CHECKS: u32 = 1 << 16;

/// Ticks of different CPUs are up to this far apart, in an order given by the seed. On a real
/// machine they are programmed for the same moment and served in no particular order.
const TICK_SKEW_NS: u64 = 1000;

/// Runs `workload` on `machine` under `scheduler`.
///
/// # Errors
/// If the run was stopped, the workload cannot go on, or asks for CPUs that do not exist.
pub fn run<S: Scheduler>(
    machine: &Arc<Machine>,
    workload: &Workload,
    scheduler: S,
    control: Control<'_>,
) -> Result<Outcome, RunError> {
    run_observed(machine, workload, scheduler, control, |_| {})
}

/// As [`run`], and calls `observer` after each event with the event's kind: an index into
/// [`EVENT_NAMES`](crate::EVENT_NAMES). Benchmarks use it to time the events.
///
/// # Errors
/// As [`run`].
pub fn run_observed<S: Scheduler>(
    machine: &Arc<Machine>,
    workload: &Workload,
    scheduler: S,
    control: Control<'_>,
    mut observer: impl FnMut(usize),
) -> Result<Outcome, RunError> {
    let Control { seed, tracer, recorder, background, faults, stop, progress } = control;
    let background = background.then_some(workload.templates.len());
    let accompanied = background.map(|_| background::with_threads(machine, workload));
    let workload = accompanied.as_ref().unwrap_or(workload);
    let own = scheduler.own_thread().map(|name| own_thread::with_thread(name, workload));
    let own_template = own.as_ref().map(|all| all.templates.len() - 1);
    let workload = own.as_ref().unwrap_or(workload);
    let sampled = workers::with_samplers(machine, workload);
    let workload = sampled.as_ref().unwrap_or(workload);
    let root_program = root_program(workload);
    let mut engine = Engine::new(machine, workload, &root_program, scheduler, seed)?;
    engine.world.tracer = tracer.map(RefCell::new);
    engine.record_to(recorder);
    engine.world.faults = faults;
    engine.start(background, own_template);
    engine.check_end()?;
    let mut until_check = EVENTS_BETWEEN_CHECKS;
    let deadline = workload.duration_ns.map_or(Time::NEVER, Time);
    let mut marks = Marks::of(workload);
    let mut next_memory = engine.next_memory();
    // Nothing but events happens until then.
    let mut checkpoint = marks.next().min(next_memory).min(deadline);
    let end = loop {
        let Some((at, event)) = engine.world.events.pop() else {
            match workload.duration_ns {
                Some(_) => break deadline,
                None => return Err(engine.deadlock()),
            }
        };
        if at > checkpoint {
            while at > marks.next() {
                engine.world.now = marks.next();
                marks.pass(engine.totals());
            }
            while at > next_memory && next_memory <= deadline {
                engine.world.now = next_memory;
                engine.world.record_memory();
                next_memory = engine.next_memory();
            }
            if at > deadline {
                break deadline;
            }
            checkpoint = marks.next().min(next_memory).min(deadline);
        }
        engine.world.now = at;
        if workload.duration_ns.is_none() && engine.is_dead(event) {
            return Err(engine.deadlock());
        }
        engine.handle(event);
        observer(event.kind());
        engine.check_end()?;
        if cfg!(debug_assertions) {
            engine.audit_sometimes();
        }
        if engine.live == 0 {
            break engine.world.now;
        }
        until_check -= 1;
        if until_check == 0 {
            until_check = EVENTS_BETWEEN_CHECKS;
            if stop.load(Ordering::Relaxed) {
                return Err(RunError::Stopped(engine.world.now.ns()));
            }
            progress(engine.world.now);
        }
    };
    Ok(engine.finish(end, marks))
}

impl<'a, S: Scheduler> Engine<'a, S> {
    fn new(
        machine: &Arc<Machine>,
        workload: &'a Workload,
        root_program: &'a [Op],
        scheduler: S,
        seed: u64,
    ) -> Result<Self, RunError> {
        let affinities = resolve_affinities(machine, workload)?;
        let mut world = World::new(machine.clone(), seed);
        world.groups.clone_from(&workload.groups);
        world.processes = workload.processes.iter().map(ProcessState::new).collect();
        world.names = workload.templates.iter().map(|template| template.name.clone()).collect();
        world.memory = memory(machine, workload)?.map(Box::new);
        world.power = PowerState::new(machine, scheduler.tick_ns());
        world.sharing_from(Time(workload.duration_ns.unwrap_or(0) / 2));
        Ok(Self {
            tick_ns: scheduler.tick_ns(),
            world,
            scheduler,
            workload,
            shared: Shared::new(workload),
            affinities,
            root_program,
            programs: workload.templates.iter().map(|spec| &spec.program.ops[..]).collect(),
            latencies: LatencyCounts::new(workload),
            free: Vec::new(),
            next_pid: 1,
            live: 0,
            until_audit: 0,
            workers: Vec::new(),
            kernel_threads: 0,
            worked: false,
        })
    }

    fn record_to(&mut self, recorder: Option<Box<dyn Recorder>>) {
        if let Some(memory) = &mut self.world.memory {
            memory.by_task = recorder.is_some();
        }
        self.world.recorder = recorder;
    }

    /// Creates the root task, on a CPU and at a time given by the seed, and kernel threads.
    /// `background` is the first template of the threads that run beside any workload, `own` that of
    /// the scheduler's own thread.
    fn start(&mut self, background: Option<usize>, own: Option<usize>) {
        for cpu in 0..self.world.nr_cpus() {
            self.world.cpus[cpu].tick_phase_ns = self.world.random_below(TICK_SKEW_NS) as u16;
        }
        if self.scheduler.huge_pages() {
            self.world.map_in_huge_pages();
        }
        if self.scheduler.takes_out_interrupts() {
            self.world.interrupts = vec![InterruptTime::default(); self.world.nr_cpus()];
        }
        self.scheduler.start(&mut self.world);
        let bound = self.world.nr_cpus() as u64;
        let cpu = self.world.random_below(bound) as usize;
        let root = self.new_root(cpu);
        self.scheduler.task_new(&mut self.world, root, None);
        self.start_samplers(root);
        let at = Time(self.world.random_below(self.tick_ns));
        self.world.expect_arrival(
            cpu,
            Arrival { at, task: root, why: Enqueue::New, from: cpu, interrupt: true },
        );
        if let Some(first) = background {
            self.start_background(first, root);
        }
        if let Some(template) = own {
            self.start_own_thread(template, root);
        }
    }

    /// Whether the scheduler has ended the run.
    #[inline]
    fn check_end(&mut self) -> Result<(), RunError> {
        if self.world.end_reason.is_none() { Ok(()) } else { Err(self.ended()) }
    }

    #[cold]
    fn ended(&mut self) -> RunError {
        RunError::Scheduler {
            workload: self.workload.name.clone(),
            at_ns: self.world.now.ns(),
            reason: self.world.end_reason.take().unwrap_or_default().into(),
            tasks: self.world.whereabouts(),
        }
    }

    fn handle(&mut self, event: Event) {
        self.world.counters.events[event.kind()] += 1;
        self.world.apply_claims();
        if let Event::RunEnd(cpu) = event {
            return self.handle_run_end(cpu);
        }
        let Some(cpu) = self.world.cpu_of(event) else {
            self.world.set_clocks();
            return self.world.rearm_stale();
        };
        if self.world.defer(cpu, event) {
            return;
        }
        let interrupted = match event {
            Event::RunEnd(_) | Event::Clocks => false,
            Event::Tick(_) => {
                self.tick(cpu);
                true
            }
            Event::Interrupt(_) => self.interrupt(cpu),
            Event::Timer(task) => {
                self.timer(cpu, task);
                true
            }
            Event::SchedulerTimer(_) => {
                self.scheduler_timer(cpu);
                true
            }
        };
        if interrupted {
            self.world.return_to_user(cpu);
        }
        let state = &self.world.cpus[cpu];
        if state.need_resched && !state.serving {
            self.schedule(cpu);
        }
        self.world.rearm_stale();
    }

    /// The most frequent event.
    #[inline]
    fn handle_run_end(&mut self, cpu: CpuId) {
        let World { cpus, tasks, now, .. } = &mut self.world;
        let state = &mut cpus[cpu];
        if state.serving {
            self.world.defer(cpu, Event::RunEnd(cpu));
            return;
        }
        let mut rearm = false;
        if state.looking != Looking::No {
            state.need_resched = true;
        } else if let Some(task) = state.current {
            state.settle(tasks, *now);
            rearm = self.advance(cpu, task);
        }
        if self.world.cpus[cpu].need_resched {
            if rearm {
                self.world.mark_stale(cpu);
            }
            self.schedule(cpu);
        } else if rearm {
            self.world.rearm_now(cpu);
        }
        self.world.rearm_stale();
    }

    fn tick(&mut self, cpu: CpuId) {
        if self.world.cpus[cpu].current.is_none() {
            let before = self.world.charged_ns(cpu);
            self.scheduler.idle_tick(&mut self.world, cpu);
            return self.world.end_interrupt(cpu, before);
        }
        self.world.counters.ticks += 1;
        let before = self.world.charged_ns(cpu);
        let cost = self.world.machine.figures.tick_ns.value;
        self.world.charge(cpu, cost);
        self.scheduler.tick(&mut self.world, cpu);
        self.world.arm_tick(cpu, self.tick_ns);
        self.wake_workers(cpu);
        self.world.end_interrupt(cpu, before);
        self.scheduler.tick_end(&mut self.world, cpu);
    }

    /// A task's sleep ends: the timer interrupts the CPU on which it was set. The same interrupt
    /// serves all other timers due there, one after the other. Only then a woken task can run.
    fn timer(&mut self, cpu: CpuId, task: TaskId) {
        let interrupt_ns = match self.world.cpus[cpu].serving {
            true => 0,
            false => self.world.timer_interrupt_ns(cpu),
        };
        let before = self.world.charged_ns(cpu);
        self.expire(cpu, task, interrupt_ns);
        self.world.end_interrupt(cpu, before);
        let World { events, tasks, .. } = &self.world;
        let more = events.timer_due(|task| tasks[task.index()].cpu == cpu);
        self.world.cpus[cpu].serving = more;
    }

    /// Wakes the task whose timer expired on `cpu`, after kernel work of `before_ns`.
    #[inline]
    pub(crate) fn expire(&mut self, cpu: CpuId, task: TaskId, before_ns: u64) {
        let waker = self.world.cpus[cpu].current;
        let wake = Wake { cpu, waker, sync: false, interrupt: true };
        if self.world.tasks[task.index()].ran_on.is_none() {
            self.world.charge(cpu, before_ns);
            let target = self.scheduler.select_cpu_fork(&mut self.world, task, wake);
            self.deliver(task, target, cpu, Enqueue::New);
        } else {
            self.wake(task, wake, before_ns);
        }
    }

    /// The scheduler's timer of `cpu` expires.
    fn scheduler_timer(&mut self, cpu: CpuId) {
        let before = self.world.charged_ns(cpu);
        let cost = self.world.timer_interrupt_ns(cpu);
        self.world.charge(cpu, cost);
        self.scheduler.timer(&mut self.world, cpu);
        self.world.end_interrupt(cpu, before);
    }

    /// Tasks arrive, and work requested by other CPUs is done. Returns whether `cpu` took an
    /// interrupt. Tasks that other CPUs queue under the queue's lock cause none.
    fn interrupt(&mut self, cpu: CpuId) -> bool {
        let mut interrupted = false;
        let before = self.world.charged_ns(cpu);
        while let Some(arrival) = self.world.next_arrival(cpu) {
            if arrival.interrupt && !interrupted {
                interrupted = true;
                self.world.charge_idle_exit(cpu);
                self.world.charge_interrupt(cpu);
            }
            self.arrive(cpu, arrival);
        }
        let work = self.world.take_work(cpu);
        if work != 0 && !interrupted {
            self.world.charge_interrupt(cpu);
        }
        if work & Work::Balance as u8 != 0 {
            self.scheduler.work(&mut self.world, cpu, Work::Balance);
        }
        self.world.end_interrupt(cpu, before);
        if work & Work::Stop as u8 != 0 {
            self.run_stopper(cpu);
        }
        if work & Work::Relocate as u8 != 0 {
            self.relocate_from(cpu);
        }
        if work & Work::Reschedule as u8 != 0 {
            self.world.cpus[cpu].need_resched = true;
        }
        self.world.arm_interrupt(cpu);
        interrupted || work != 0
    }

    #[inline(never)]
    fn arrive(&mut self, cpu: CpuId, arrival: Arrival) {
        let id = arrival.task;
        let now = self.world.now;
        self.world.meet(id);
        let task = &mut self.world.tasks[id.index()];
        task.state = State::Queued;
        task.cpu = cpu;
        // As in sched_info_enqueue(), the run delay of a wakeup begins here. A task that was moved
        // because of its affinity was runnable all the time.
        if arrival.why != Enqueue::Relocated && task.queued_at != now {
            task.queued_at = now;
            self.world.trace_queued(id);
        }
        self.world.idle.remove(cpu);
        let idle = self.world.cpus[cpu].current.is_none();
        // A waker that found the CPU busy and took the lock may find it idle now. Then `cpu` itself
        // does the rest.
        let itself =
            arrival.interrupt || idle && self.scheduler.hands_over(&self.world, arrival.from, cpu);
        let by = if itself { cpu } else { arrival.from };
        self.scheduler.enqueue(&mut self.world, cpu, id, arrival.why, by);
        if idle {
            self.world.resched(by, cpu);
        }
        if !self.world.changes.is_empty() {
            self.change_on_arrival(cpu, id);
        }
    }

    /// The stopper runs: one switch to it, then the scheduler moves tasks.
    fn run_stopper(&mut self, cpu: CpuId) {
        let cost = self.world.machine.figures.context_switch_ns.value;
        self.world.charge(cpu, cost);
        if self.world.cpus[cpu].current.is_some() {
            self.scheduler.put_current(&mut self.world, cpu);
        }
        self.scheduler.work(&mut self.world, cpu, Work::Stop);
        self.world.cpus[cpu].need_resched = true;
    }

    /// Wakes a sleeping task, after kernel work of `before_ns` on the waker's CPU.
    #[inline(never)]
    pub(crate) fn wake(&mut self, id: TaskId, wake: Wake, before_ns: u64) {
        let world = &mut self.world;
        let Task { state, cpu: previous, .. } = world.tasks[id.index()];
        if state != State::Blocked {
            world.broken(id, wake.cpu, "is woken on", "does not sleep");
        }
        world.counters.wakeups += 1;
        let cost = world.machine.figures.wakeup_ns.value;
        world.charge(wake.cpu, before_ns + cost);
        if let Some(cpu) = self.scheduler.wake_queued(world, id, wake) {
            world.counters.wakeups_prev += 1;
            world.counters.wakeups_waker_llc += u64::from(world.machine.same_llc(cpu, wake.cpu));
            let task = &mut world.tasks[id.index()];
            task.state = State::Queued;
            (task.woken_at, task.asked_at) = (world.now, world.now);
            task.queued_at = world.now;
            world.trace_wakeup(id, wake.cpu, cpu);
            return;
        }
        let target = self.scheduler.select_cpu(world, id, wake);
        if !world.may_run(id, target) {
            world.broken(id, target, "is placed on", "may not run there");
        }
        world.counters.wakeups_prev += u64::from(target == previous);
        world.counters.wakeups_waker_llc += u64::from(world.machine.same_llc(target, wake.cpu));
        let why = Enqueue::Wakeup { migrated: target != previous, sync: wake.sync };
        self.deliver(id, target, wake.cpu, why);
    }

    /// Sends a runnable task to the queue of `target`. If that is `from` itself, the task arrives
    /// at once. Otherwise it arrives after the work already charged to `from`: by interrupt if the
    /// scheduler says so ([`Scheduler::hands_over`]), else under the queue's lock. With the lock,
    /// `from` continues only when the task is queued.
    #[inline(never)]
    pub(crate) fn deliver(&mut self, id: TaskId, target: CpuId, from: CpuId, why: Enqueue) {
        let world = &mut self.world;
        let now = world.now;
        world.meet(id);
        let task = &mut world.tasks[id.index()];
        (task.woken_at, task.asked_at) = match why {
            Enqueue::Wakeup { .. } => (now, now),
            Enqueue::New => (now, Time::NEVER),
            // It has never stopped being runnable.
            Enqueue::Relocated => (Time::NEVER, Time::NEVER),
        };
        task.queued_at = now;
        task.state = State::Arriving;
        world.trace_wakeup(id, from, target);
        if target == from && why != Enqueue::Relocated {
            let arrival = Arrival { at: now, task: id, why, from, interrupt: true };
            return self.arrive(target, arrival);
        }
        let interrupt = why == Enqueue::Relocated || self.scheduler.hands_over(world, from, target);
        let latency = if interrupt {
            world.counters.ipis += 1;
            world.interrupt_latency(from, target)
        } else {
            world.charge_line(from, target);
            0
        };
        let sent = now + world.backlog_ns(from);
        world.claim(target, sent);
        world
            .expect_arrival(target, Arrival { at: sent + latency, task: id, why, from, interrupt });
    }

    /// Picks again on `cpu`.
    #[inline(never)]
    pub(crate) fn schedule(&mut self, cpu: CpuId) {
        let World { cpus, tasks, now, .. } = &mut self.world;
        let state = &mut cpus[cpu];
        state.settle(tasks, *now);
        (state.need_resched, state.resched_lazy) = (false, false);
        let (previous, mut left) = (state.current, None);
        if let Some(id) = previous {
            let task = &tasks[id.index()];
            left = Some(match task.state {
                State::Running => LeftAs::Preempted,
                State::Dead => LeftAs::Exited,
                _ => LeftAs::Sleeping,
            });
            if left != Some(LeftAs::Preempted) {
                state.current = None;
            }
            if task.spins {
                self.stop_spinning(id);
            }
        }
        let pick = self.scheduler.pick(&mut self.world, cpu);
        let state = &mut self.world.cpus[cpu];
        (state.need_resched, state.resched_lazy) = (false, false);
        let stays = pick == Pick::Undecided || previous.map(Pick::Run) == Some(pick);
        if left == Some(LeftAs::Preempted) && stays {
            state.look(previous, pick);
            return state.mark_stale(cpu, &mut self.world.stale);
        }
        self.switch(cpu, previous.zip(left), pick);
        if left == Some(LeftAs::Exited)
            && let Some(gone) = previous
        {
            self.retire(gone);
        }
    }

    /// Switches `cpu` from `previous` to the task picked. If the CPU searches for a task in
    /// between, `previous` has left at once: observers and counters see an idle CPU until it runs
    /// the task it finds. The kernel has only one switch there.
    #[inline]
    fn switch(&mut self, cpu: CpuId, previous: Option<(TaskId, LeftAs)>, pick: Pick) {
        let state = &mut self.world.cpus[cpu];
        let was_idle = previous.is_none() && !state.looks_after_task();
        state.look(previous.map(|(id, _)| id), pick);
        state.mark_stale(cpu, &mut self.world.stale);
        let next = if let Pick::Run(id) = pick { Some(id) } else { None };
        if previous.is_none() && next.is_none() {
            if pick == Pick::Idle {
                self.world.go_idle(cpu);
                self.world.enter_idle_state(cpu, was_idle);
                if !was_idle {
                    self.scheduler.idle_changed(&mut self.world, cpu, true);
                }
            }
            return;
        }
        self.world.counters.context_switches += 1;
        if let Some((id, left)) = previous {
            self.world.account_run(cpu, id, left);
            if let Some(mutex) = self.world.tasks[id.index()].kernel_mutex {
                self.owner_left(mutex);
            }
        }
        self.world.count_running(cpu, previous.is_some(), next.is_some());
        self.world.trace_switch(cpu, previous, next);
        self.world.cpus[cpu].current = next;
        if let Some((id, left)) = previous {
            self.scheduler.stopping(&mut self.world, cpu, id, left == LeftAs::Preempted);
        }
        match next {
            Some(id) => {
                if was_idle {
                    self.world.leave_idle_state(cpu);
                }
                self.start_task(cpu, id, previous.is_some());
            }
            None if pick == Pick::Idle => {
                self.world.go_idle(cpu);
                self.world.enter_idle_state(cpu, false);
            }
            None => {}
        }
        if self.world.memory.is_some() {
            self.world.switch_memory(cpu, previous.map(|(id, _)| id));
        }
        if previous.is_none() || next.is_none() {
            self.world.update_core_speed(cpu);
        }
        if let Some(id) = next {
            self.scheduler.running(&mut self.world, cpu, id);
        }
        if !matches!(pick, Pick::Later | Pick::Undecided) && was_idle != next.is_none() {
            self.scheduler.idle_changed(&mut self.world, cpu, next.is_none());
        }
    }

    /// `id` gets `cpu`, whose task, if it `had_task`, has just been settled. Counts costs, delays and
    /// migrations. A CPU that had a task does not look idle, and its tick is pending.
    #[inline]
    fn start_task(&mut self, cpu: CpuId, id: TaskId, had_task: bool) {
        let world = &mut self.world;
        debug_assert!(
            !had_task || !world.idle.contains(cpu) && world.events.is_pending(Event::Tick(cpu)),
            "CPU {cpu} had a task, but looks idle or has no tick"
        );
        if !world.may_run(id, cpu) && !world.awaits_stopper(id, cpu) {
            world.broken(id, cpu, "is picked by", "may not run there");
        }
        // It has to wait until the CPU's pending kernel work is done (interrupts and newly-idle
        // balancing), and for the first half of the switch (assumption; `sched_info_arrive()`).
        let backlog_ns = world.backlog_ns(cpu);
        let until_switch_ns = backlog_ns + world.half_switch_ns();
        let now = world.now;
        let task = &mut world.tasks[id.index()];
        if task.state != State::Queued {
            world.broken(id, cpu, "is picked by", "is not queued");
        }
        if !had_task {
            world.idle.remove(cpu);
        }
        task.state = State::Running;
        task.started_at = now;
        let queue = std::mem::replace(&mut task.cpu, cpu);
        world.counters.run_delay_ns += now.since(task.queued_at) + until_switch_ns;
        if let Some(tracer) = &mut world.tracer {
            tracer.get_mut().waits_for_switch(until_switch_ns);
        }
        let woken_at = std::mem::replace(&mut task.woken_at, Time::NEVER);
        let asked_at = std::mem::replace(&mut task.asked_at, Time::NEVER);
        let class = task.latency_class.filter(|_| asked_at != Time::NEVER);
        let ran_on = task.ran_on.replace(cpu);
        let copying_ns = std::mem::take(&mut task.copying_ns);
        if let Some(recorder) = &mut world.recorder {
            let (at, queued_at) = (now, task.queued_at);
            let start = Start { at, cpu, queue, queued_at, woken_at, ran_on, until_switch_ns };
            recorder.started(id.0, &start);
        }
        if let Some(from) = ran_on.filter(|&from| from != cpu) {
            self.count_migration(from, cpu, id);
        }
        let figures = &self.world.machine.figures;
        let started = ran_on.map_or(figures.task_start_ns.value, |_| 0);
        let activated = if asked_at == Time::NEVER { 0 } else { figures.activation_ns.value };
        let cost = figures.context_switch_ns.value + started + activated;
        if let Some(class) = class {
            // The task's wait ends when its own work begins: after the interrupt, the wakeup and
            // the switch.
            self.latencies.record(class, now.since(asked_at) + backlog_ns + cost);
        }
        self.prepare(id);
        self.world.charge_settled(cpu, cost);
        if !self.world.is_active(cpu) {
            self.world.push_away(cpu, cpu, id);
        }
        if copying_ns > 0 {
            self.world.resume_copying(cpu, copying_ns);
        }
        if !had_task && !self.world.events.is_pending(Event::Tick(cpu)) {
            self.world.arm_tick(cpu, self.tick_ns);
        }
    }

    fn count_migration(&mut self, from: CpuId, to: CpuId, id: TaskId) {
        let machine = &self.world.machine;
        let (source, target) = (&machine.cpus[from], &machine.cpus[to]);
        let counters = &mut self.world.counters;
        counters.migrations += 1;
        if source.node != target.node {
            counters.migrations_node += 1;
        } else if source.llc != target.llc {
            counters.migrations_llc += 1;
        }
        let task = &mut self.world.tasks[id.index()];
        if !task.root {
            let template = &self.workload.templates[task.template as usize];
            task.refill_ns = refill_ns(machine, from, to, template.footprint_bytes);
        }
    }

    fn retire(&mut self, gone: TaskId) {
        self.worked |= self.is_at_work(gone);
        self.world.record_accessed(gone);
        self.scheduler.task_exit(&mut self.world, gone);
        self.world.leave_process(gone);
        if let Some(memory) = &mut self.world.memory {
            memory.task_exit(gone);
        }
        self.world.events.cancel(Event::Timer(gone));
        self.free.push(gone);
        self.live -= 1;
    }

    pub(crate) fn new_task(&mut self, template: u32, cpu: CpuId, parent: TaskId) -> TaskId {
        let spec = &self.workload.templates[template as usize];
        let Task { group: inherited, pid, .. } = self.world.tasks[parent.index()];
        let mut task = Task {
            template,
            process: spec.process,
            parent: Some(Person { id: parent, pid }),
            group: spec.group.or(inherited),
            nice: spec.nice,
            policy: spec.policy,
            allowed: self.affinities[template as usize].first.clone(),
            nr_allowed: self.affinities[template as usize].first.len(),
            timers: vec![None; spec.program.own_timers as usize].into(),
            latency_class: self.latencies.index_of(&spec.class),
            ..self.blank_task(cpu)
        };
        task.set_loop_depth(spec.program.loop_depth);
        self.add_task(task)
    }

    fn new_root(&mut self, cpu: CpuId) -> TaskId {
        let blank = self.blank_task(cpu);
        let process = self.workload.root_process.unwrap_or(blank.process);
        self.add_task(Task { root: true, process, ..blank })
    }

    fn blank_task(&self, cpu: CpuId) -> Task {
        let process = self.workload.processes.len() as u32;
        Task { process, ..Task::blank(self.next_pid, cpu, &self.world) }
    }

    fn add_task(&mut self, task: Task) -> TaskId {
        self.next_pid += 1;
        self.live += 1;
        let id = match self.free.pop() {
            Some(id) => {
                self.world.tasks[id.index()] = task;
                id
            }
            None => {
                self.world.tasks.push(task);
                TaskId(self.world.tasks.len() as u32 - 1)
            }
        };
        self.world.join_process(id);
        id
    }

    fn deadlock(&self) -> RunError {
        let blocked = |task: &&Task| task.state == State::Blocked && !task.root && !task.kernel;
        let waiting = || self.world.tasks.iter().filter(blocked);
        let first = waiting().next().map_or("none", |task| self.world.name_of(task));
        RunError::Deadlock {
            workload: self.workload.name.clone(),
            at_ns: self.world.now.ns(),
            waiting: waiting().count(),
            first: first.to_owned(),
        }
    }

    /// Whether the program of `task` has reached its work.
    fn is_at_work(&self, task: TaskId) -> bool {
        let task = &self.world.tasks[task.index()];
        let own = !task.root && !task.kernel;
        own && reached::is_at_work(&self.workload.templates[task.template as usize].program, task)
    }

    /// What is missing if the duration ended the run before it could measure anything.
    fn too_short(&self, measured: &Totals) -> Option<TooShort> {
        let live = |id: &TaskId| self.world.tasks[id.index()].state != State::Dead;
        let mut tasks = (0..self.world.tasks.len() as u32).map(TaskId).filter(live);
        let works = self.worked || tasks.any(|task| self.is_at_work(task));
        let missing = reached::missing(self.workload, &self.shared, measured, works)?;
        // All tasks except the root task and kernel threads.
        let created = self.next_pid - 2 - self.kernel_threads;
        Some(TooShort { created, missing })
    }

    /// When the recorder next wants a report on memory; never if there is no recorder.
    fn next_memory(&self) -> Time {
        let recorder = self.world.recorder.as_ref().filter(|_| self.world.memory.is_some());
        let later = self.world.now + 1;
        recorder.map_or(Time::NEVER, |recorder| recorder.next_memory().max(later))
    }

    /// All counts up to now.
    fn totals(&self) -> Totals {
        Totals::now(&self.world, &self.scheduler, &self.shared, &self.latencies)
    }

    /// Ends all counts at `end`.
    fn finish(mut self, end: Time, marks: Marks) -> Outcome {
        let complete = self.live == 0;
        self.world.now = end;
        let Measured { all, halves } = marks.measured(self.totals());
        let too_short = if complete { None } else { self.too_short(&all) };
        for cpu in 0..self.world.nr_cpus() {
            if let Some(id) = self.world.cpus[cpu].current {
                self.world.trace_switch(cpu, Some((id, LeftAs::Preempted)), None);
            }
        }
        self.world.record_end();
        let Self { world, scheduler, workload, shared, .. } = &self;
        let mut outcome = outcome(world, workload, shared, all, halves, complete);
        scheduler.maxima(&mut |name, value| outcome.counters.push((name.to_owned(), value as f64)));
        Outcome { too_short, ..outcome }
    }
}

/// The root task forks all tasks that start with the run.
fn root_program(workload: &Workload) -> Vec<Op> {
    let forks = workload.start.iter();
    let forks = forks
        .flat_map(|&(template, count)| std::iter::repeat_n(Op::Fork(template), count as usize));
    forks.collect()
}

/// The memory model for the workload on the machine.
fn memory(machine: &Arc<Machine>, workload: &Workload) -> Result<Option<Memory>, RunError> {
    let (name, on) = (&workload.name, &machine.name);
    Memory::new(machine, workload).map_err(|unavailable| match unavailable {
        Unavailable::Node(node) => {
            RunError::NoSuchNode { workload: name.clone(), node, machine: on.clone() }
        }
        Unavailable::Bytes { wanted, there } => {
            RunError::OutOfMemory { workload: name.clone(), wanted, there, machine: on.clone() }
        }
    })
}

/// Translates the operating system's CPU numbers of every template.
fn resolve_affinities(machine: &Machine, workload: &Workload) -> Result<Vec<Affinities>, RunError> {
    let nr_cpus = machine.nr_cpus();
    let resolve = |task: &str, cpus: Option<&[u32]>| {
        let Some(list) = cpus else { return Ok(CpuSet::full(nr_cpus)) };
        let wanted = (0..nr_cpus).filter(|&cpu| list.contains(&machine.cpus[cpu].os_index));
        let set = CpuSet::from_cpus(nr_cpus, wanted);
        if set.is_empty() {
            return Err(RunError::NoSuchCpu {
                workload: workload.name.clone(),
                task: task.to_owned(),
                cpus: list.to_vec(),
                machine: machine.name.clone(),
            });
        }
        Ok(set)
    };
    let resolve_later = |task: &str, cpus: &Option<Cpus>| match cpus {
        None => Ok(CpuSet::full(nr_cpus)),
        Some(Cpus::List(list)) => resolve(task, Some(list)),
        Some(Cpus::NodeOf(cpu)) => {
            let first = resolve(task, Some(&[*cpu]))?.first().unwrap_or(0);
            Ok(machine.nodes[machine.cpus[first].node as usize].cpus.clone())
        }
    };
    workload
        .templates
        .iter()
        .map(|template| {
            let first = resolve(&template.name, template.affinity.as_deref())?;
            let later = template.program.affinities.iter();
            let later =
                later.map(|cpus| resolve_later(&template.name, cpus)).collect::<Result<_, _>>()?;
            Ok(Affinities { first, later })
        })
        .collect()
}

impl KnowsTasks for World {
    fn name(&self, slot: u32) -> &str {
        self.name_of(&self.tasks[slot as usize])
    }

    fn group(&self, slot: u32) -> Option<(u32, &str)> {
        let number = self.tasks[slot as usize].group?;
        Some((number, &self.groups[number as usize].path))
    }

    fn is_kernel_thread(&self, slot: u32) -> bool {
        self.tasks[slot as usize].kernel
    }
}

#[cold]
fn trace_to(tracer: &RefCell<Box<dyn Tracer>>, tell: impl FnOnce(&mut dyn Tracer)) {
    tell(&mut **tracer.borrow_mut());
}

impl World {
    fn trace_task(&self, id: TaskId) -> TraceTask<'_> {
        let task = &self.tasks[id.index()];
        TraceTask { pid: task.pid, slot: id.0, process: task.process, known_to: self }
    }

    /// Calls the observer, if there is one.
    #[inline]
    fn trace(&self, tell: impl FnOnce(&mut dyn Tracer)) {
        if let Some(tracer) = &self.tracer {
            trace_to(tracer, tell);
        }
    }

    #[inline]
    fn trace_switch(&self, cpu: CpuId, previous: Option<(TaskId, LeftAs)>, next: Option<TaskId>) {
        if self.tracer.is_some() {
            self.tell_switch(cpu, previous, next);
        }
    }

    #[cold]
    #[inline(never)]
    fn tell_switch(&self, cpu: CpuId, previous: Option<(TaskId, LeftAs)>, next: Option<TaskId>) {
        self.trace(|tracer| {
            let previous = previous.map(|(id, left)| (self.trace_task(id), left));
            let next = next.map(|id| self.trace_task(id));
            tracer.switch(self.now, cpu, previous, next);
        });
    }

    /// `id` leaves `cpu`, on which it ran.
    #[inline]
    fn account_run(&mut self, cpu: CpuId, id: TaskId, left: LeftAs) {
        let now = self.now;
        let copying_ns = self.interrupt_copying(cpu);
        let task = &mut self.tasks[id.index()];
        task.copying_ns = copying_ns;
        let ran_ns = now - task.started_at;
        task.run_ns += ran_ns;
        if let Some(recorder) = &mut self.recorder {
            recorder.ran(now, id.0, cpu, task.started_at);
        }
        self.run_ns[cpu] += ran_ns;
        if left == LeftAs::Preempted {
            task.state = State::Queued;
            task.queued_at = now;
        }
    }

    /// Counts by LLC how many CPUs run a task. A switch between two tasks does not change that.
    #[inline]
    fn count_running(&mut self, cpu: CpuId, before: bool, after: bool) {
        if before != after {
            let llc = self.machine.cpus[cpu].llc as usize;
            match after {
                true => self.sharing.started(llc, self.now),
                false => self.sharing.stopped(llc, self.now),
            }
        }
    }

    /// Before a report of `id` to the recorder.
    #[inline]
    fn meet(&mut self, id: TaskId) {
        if self.recorder.is_some() && !self.tasks[id.index()].recorded {
            self.record_task(id);
        }
    }

    /// `id` is new or in another task group.
    #[cold]
    pub(crate) fn record_task(&mut self, id: TaskId) {
        self.tasks[id.index()].recorded = true;
        self.record(|world, recorder| recorder.meets(world.trace_task(id)));
    }

    /// Calls the recorder, if there is one, with the world.
    fn record(&mut self, tell: impl FnOnce(&Self, &mut dyn Recorder)) {
        if let Some(mut recorder) = self.recorder.take() {
            tell(self, &mut *recorder);
            self.recorder = Some(recorder);
        }
    }

    fn record_memory(&mut self) {
        self.record(|world, recorder| {
            if let Some(memory) = world.memory_now() {
                recorder.memory(world.now, &memory);
            }
        });
    }

    /// `id` transfers no more data.
    fn record_accessed(&mut self, id: TaskId) {
        self.record(|world, recorder| {
            let Some(memory) = &world.memory else { return };
            let accessed = memory.accessed(id);
            if !accessed.is_empty() {
                recorder.accessed(world.trace_task(id), accessed);
            }
        });
    }

    /// The run has ended. Tasks still run, wait and transfer data.
    fn record_end(&mut self) {
        self.record(|world, recorder| {
            let now = world.now;
            for (cpu, state) in world.cpus.iter().enumerate() {
                if let Some(id) = state.current {
                    recorder.ran(now, id.0, cpu, world.tasks[id.index()].started_at);
                }
                for &Arrival { task: id, .. } in &world.arrivals[cpu] {
                    let task = &world.tasks[id.index()];
                    // The recorder meets the root task when it arrives.
                    if task.recorded {
                        recorder.waited(now, id.0, cpu, task.queued_at);
                    }
                }
            }
            for (slot, task) in (0..).zip(&world.tasks) {
                if task.state == State::Queued {
                    recorder.waited(now, slot, task.cpu, task.queued_at);
                }
            }
        });
        self.record_memory();
        for slot in 0..self.tasks.len() as u32 {
            if self.tasks[slot as usize].state != State::Dead {
                self.record_accessed(TaskId(slot));
            }
        }
    }

    #[inline]
    fn trace_queued(&self, id: TaskId) {
        self.trace(|tracer| tracer.queued(self.now, self.trace_task(id)));
    }

    pub(crate) fn trace_migrated(&self, id: TaskId) {
        let to = self.task_cpu(id);
        self.trace(|tracer| tracer.migrated(self.now, self.trace_task(id), to));
    }

    #[inline]
    fn trace_wakeup(&self, id: TaskId, from: CpuId, target: CpuId) {
        self.trace(|tracer| tracer.wakeup(self.now, from, self.trace_task(id), target));
    }
}

#[cfg(test)]
mod tests;
