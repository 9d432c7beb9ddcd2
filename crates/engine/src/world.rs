//! What a scheduler can observe, and what it can do.

use std::cell::RefCell;
use std::sync::Arc;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use roost_machine::{CpuSet, Machine};
use roost_workload::{Group, GroupId, Policy};

use crate::changes::Change;
use crate::counters::Counters;
use crate::cpu::FULL_SPEED;
use crate::events::{Event, EventQueue};
use crate::facts::ProcessState;
use crate::memory::Memory;
use crate::outcome::LlcSharing;
use crate::power::PowerState;
use crate::record::Recorder;
use crate::scheduler::{CpuId, TaskId, Work};
use crate::task::{State, Task};
use crate::time::Time;
use crate::trace::Tracer;

/// An interrupt that comes late comes later by less than this, ns: as on a host that takes a guest's
/// CPU away for more than a tick.
pub const LATEST_NS: u64 = 5_000_000;

/// The machine and its tasks at one moment.
pub struct World {
    pub(crate) now: Time,
    pub(crate) machine: Arc<Machine>,
    /// Whether some core has more than one CPU.
    pub(crate) smt: bool,
    /// The CPUs of each core.
    pub(crate) core_cpus: Vec<Box<[CpuId]>>,
    /// Number of CPUs of each core that have a task, where cores have several CPUs or packages have clocks.
    pub(crate) busy_cpus: Vec<u32>,
    pub(crate) cpus: Vec<CpuState>,
    /// Tasks in transit to each CPU, in order of arrival.
    pub(crate) arrivals: Vec<Vec<Arrival>>,
    pub(crate) tasks: Vec<Task>,
    /// The workload's task groups.
    pub(crate) groups: Vec<Group>,
    /// Processes, by number.
    pub(crate) processes: Vec<ProcessState>,
    /// Names of the workload's templates.
    pub(crate) names: Vec<String>,
    pub(crate) events: EventQueue,
    /// CPUs without a current task, a queued task or a pending wakeup.
    pub(crate) idle: CpuSet,
    /// CPUs that are going offline, or are offline.
    pub(crate) inactive: CpuSet,
    /// Whether there are any.
    pub(crate) some_inactive: bool,
    /// CPUs chosen by wakeups whose searches still go on. Each stops looking idle at its time.
    /// Ordered by time.
    pub(crate) claims: Vec<(Time, CpuId)>,
    /// The first of these times; [`Time::NEVER`] if there is none.
    pub(crate) next_claim: Time,
    /// CPUs whose end-of-run event must be computed again.
    pub(crate) stale: Vec<CpuId>,
    pub(crate) rng: Xoshiro256PlusPlus,
    /// Whether faults happen ([`World::fault`]).
    pub(crate) faults: bool,
    /// Changes of tasks by other tasks that are not complete.
    pub(crate) changes: Vec<Change>,
    pub(crate) tracer: Option<RefCell<Box<dyn Tracer>>>,
    pub(crate) recorder: Option<Box<dyn Recorder>>,
    /// The reason why the scheduler cannot go on.
    pub(crate) end_reason: Option<Box<str>>,
    pub(crate) sharing: LlcSharing,
    /// The state of the memory model; `None` if the workload uses no memory.
    pub(crate) memory: Option<Box<Memory>>,
    /// Counters of the engine.
    pub counters: Counters,
    /// Time that tasks which have since left a CPU spent on it, ns, by CPU.
    pub(crate) run_ns: Vec<u64>,
    /// What each CPU has spent in interrupts; empty if the scheduler does not ask for it.
    pub(crate) interrupts: Vec<InterruptTime>,
    /// Clocks and idle states; `None` if the machine's figures have none.
    pub(crate) power: Option<Box<PowerState>>,
}

/// What a CPU has spent in interrupts and softirqs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InterruptTime {
    /// In those that had ended when the last one began, ns.
    ended_ns: u64,
    /// In those since then, ns. They end at `until`.
    last_ns: u64,
    until: Time,
}

impl InterruptTime {
    /// The time that is accounted at `now`. As in the kernel, an interrupt is accounted when it ends
    /// (`irqtime_account_irq()`).
    fn accounted_ns(&self, now: Time) -> u64 {
        self.ended_ns + if self.until <= now { self.last_ns } else { 0 }
    }

    /// Adds `ns` in an interrupt that ends at `until`.
    fn add(&mut self, now: Time, ns: u64, until: Time) {
        if self.until <= now {
            self.ended_ns += std::mem::take(&mut self.last_ns);
        }
        self.last_ns += ns;
        self.until = until;
    }
}

/// The engine's state of one CPU: one cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct CpuState {
    pub current: Option<TaskId>,
    /// From this time on the current task makes progress. Until then the CPU does kernel work.
    pub progress_from: Time,
    /// Until this time that kernel work is copying for the current task. The task may be preempted
    /// in it and continues it later.
    pub copies_until: Time,
    /// Nanoseconds of work done per 1024 ns of wall time.
    pub speed_1024: u16,
    /// Total kernel work charged.
    pub kernel_ns: u64,
    pub stale: bool,
    /// This CPU is asked to pick again.
    pub need_resched: bool,
    /// This CPU is asked to pick again when its task returns to user mode.
    pub resched_lazy: bool,
    /// Bits of [`Work`] that arrive with the next interrupt.
    pub pending_work: u8,
    /// When that interrupt comes.
    pub work_at: Time,
    /// The CPU is in a timer interrupt and has more timers to serve.
    pub serving: bool,
    /// Whether it is between two picks ([`Pick::Later`], [`Pick::Undecided`]), and the task it ran before.
    pub looking: Looking,
    /// Time of the first tick within a period, fixed per CPU.
    pub tick_phase_ns: u16,
}

const _: () = assert!(size_of::<CpuState>() <= 64, "one cache line");

/// Whether a CPU searches for a task before it picks one or goes idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looking {
    /// It does not search.
    No,
    /// It searches and was idle before. It still looks idle.
    FromIdle,
    /// It searches and has not yet switched away from this task.
    From(TaskId),
}

/// A woken or created task that will reach a CPU's queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub at: Time,
    pub task: TaskId,
    pub why: crate::scheduler::Enqueue,
    /// The CPU that sent it.
    pub from: CpuId,
    /// By interrupt (to an idle CPU or a CPU of another LLC), not under the remote lock.
    pub interrupt: bool,
}

impl World {
    /// The current time.
    #[inline]
    pub fn now(&self) -> Time {
        self.now
    }

    /// The machine.
    #[inline]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The task that `cpu` runs.
    #[inline]
    pub fn current(&self, cpu: CpuId) -> Option<TaskId> {
        self.cpus[cpu].current
    }

    /// CPUs without a current task, a queued task or a pending wakeup: the kernel's `idle_cpu()`
    /// for all CPUs at once.
    #[inline]
    pub fn idle_cpus(&self) -> &CpuSet {
        &self.idle
    }

    /// Whether `cpu` has no current task, no queued task and no pending wakeup.
    #[inline]
    pub fn is_idle(&self, cpu: CpuId) -> bool {
        self.idle.contains(cpu)
    }

    /// Whether a wakeup of a task on `cpu` is pending (the kernel's ttwu_pending).
    #[inline]
    pub fn wakeup_pending(&self, cpu: CpuId) -> bool {
        !self.arrivals[cpu].is_empty()
    }

    /// The CPUs a task may run on.
    #[inline]
    pub fn allowed(&self, task: TaskId) -> &CpuSet {
        &self.tasks[task.index()].allowed
    }

    /// Whether a task may run on `cpu`.
    #[inline]
    pub fn may_run(&self, task: TaskId, cpu: CpuId) -> bool {
        let task = &self.tasks[task.index()];
        task.nr_allowed == self.cpus.len() || task.allowed.contains(cpu)
    }

    /// Number of CPUs a task may run on.
    #[inline]
    pub fn nr_allowed(&self, task: TaskId) -> usize {
        self.tasks[task.index()].nr_allowed
    }

    /// The CPU where the task last ran or was last queued.
    #[inline]
    pub fn task_cpu(&self, task: TaskId) -> CpuId {
        self.tasks[task.index()].cpu
    }

    /// Distance between the numbers of [`World::task_cpus`], in bytes.
    pub const TASK_BYTES: usize = size_of::<Task>();

    /// Where the CPU of each task is ([`World::task_cpu`]), for machine code: the address of the first task's, and the
    /// number of tasks.
    #[inline]
    pub fn task_cpus(&self) -> (*const CpuId, usize) {
        let tasks = self.tasks.as_ptr().cast::<u8>();
        (tasks.wrapping_add(std::mem::offset_of!(Task, cpu)).cast(), self.tasks.len())
    }

    /// Whether the task has ever run on a CPU, in this run or before it.
    pub fn has_run(&self, task: TaskId) -> bool {
        self.tasks[task.index()].ran_on.is_some()
    }

    /// Tells the engine that the scheduler moved a queued task (balancing). No cost is charged.
    #[inline]
    pub fn set_task_cpu(&mut self, task: TaskId, cpu: CpuId) {
        let Task { cpu: ref mut on, state, queued_at, .. } = self.tasks[task.index()];
        let from = std::mem::replace(on, cpu);
        // A sleeping task with a delayed dequeue is moved too, although it waits for nothing.
        if let Some(recorder) = &mut self.recorder
            && state == State::Queued
        {
            recorder.waited(self.now, task.0, from, queued_at);
        }
        self.trace_migrated(task);
    }

    /// Whether the CPU of a sleeping task has not yet switched away from it (`on_cpu`).
    #[inline]
    pub fn on_cpu(&self, task: TaskId) -> bool {
        self.cpus[self.task_cpu(task)].looking == Looking::From(task)
    }

    /// Nice value of a task.
    #[inline]
    pub fn nice(&self, task: TaskId) -> i8 {
        self.tasks[task.index()].nice
    }

    /// Scheduling policy of a task.
    #[inline]
    pub fn policy(&self, task: TaskId) -> Policy {
        self.tasks[task.index()].policy
    }

    /// The unique number of a task, from 1. It is never used again in the run.
    #[inline]
    pub fn pid(&self, task: TaskId) -> u32 {
        self.tasks[task.index()].pid
    }

    /// The task with this number.
    pub fn task_of_pid(&self, pid: u32) -> Option<TaskId> {
        let found = self.tasks.iter().position(|task| task.pid == pid);
        found.map(|index| TaskId(index as u32))
    }

    /// The process a task belongs to: an index that tasks of one process share.
    #[inline]
    pub fn process(&self, task: TaskId) -> u32 {
        self.tasks[task.index()].process
    }

    /// Whether a process began as a copy of a running one (fork), not as a new program.
    pub fn is_forked(&self, process: u32) -> bool {
        self.processes.get(process as usize).is_some_and(|process| process.forked)
    }

    /// The task group (cgroup) a task is in: an index into [`World::groups`]; `None`: the root group.
    #[inline]
    pub fn group(&self, task: TaskId) -> Option<GroupId> {
        self.tasks[task.index()].group
    }

    /// All task groups below the root group, parents before their children. They exist during the
    /// whole run.
    #[inline]
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Reports a value of the scheduler to the run's observer ([`Tracer::value`]).
    pub fn trace_value(&mut self, name: &'static str, index: usize, value: u64) {
        let now = self.now;
        if let Some(tracer) = &mut self.tracer {
            tracer.get_mut().value(now, name, index, value);
        }
    }

    /// Number of task numbers used so far: a bound for per-task arrays.
    #[inline]
    pub fn nr_task_ids(&self) -> usize {
        self.tasks.len()
    }

    /// `cpu` spends `ns` on kernel work, from now on or after the work already charged. Its task
    /// makes no progress in that time.
    #[inline]
    pub fn charge(&mut self, cpu: CpuId, ns: u64) {
        if ns == 0 {
            return;
        }
        self.spend(cpu, self.stretched(ns));
    }

    /// As [`World::charge`], while `cpu` switches: its task is settled, and the CPU is stale.
    #[inline]
    pub(crate) fn charge_settled(&mut self, cpu: CpuId, ns: u64) {
        let ns = self.stretched(ns);
        let state = &mut self.cpus[cpu];
        debug_assert!(state.progress_from >= self.now && state.stale, "CPU {cpu} does not switch");
        state.progress_from += ns;
        state.kernel_ns += ns;
    }

    /// As [`World::charge`], for copying on behalf of the current task.
    pub(crate) fn charge_copying(&mut self, cpu: CpuId, ns: u64) {
        self.charge(cpu, ns);
        self.cpus[cpu].copies_until = self.cpus[cpu].progress_from;
    }

    /// The current task of `cpu` goes on with copying that was interrupted
    /// ([`World::interrupt_copying`]).
    pub(crate) fn resume_copying(&mut self, cpu: CpuId, ns: u64) {
        // The time was stretched when it was charged.
        self.spend(cpu, ns);
        self.cpus[cpu].copies_until = self.cpus[cpu].progress_from;
    }

    /// The current task is preempted. Returns how much copying, ns, is left for it, and takes that
    /// work off `cpu`.
    pub(crate) fn interrupt_copying(&mut self, cpu: CpuId) -> u64 {
        let state = &mut self.cpus[cpu];
        if state.copies_until == Time(0) {
            return 0;
        }
        let left = std::mem::take(&mut state.copies_until).since(self.now);
        state.progress_from = Time(state.progress_from.ns() - left);
        state.kernel_ns -= left;
        left
    }

    /// As [`World::charge`], for work whose duration is fixed, such as waiting for another CPU.
    #[inline]
    pub fn spend(&mut self, cpu: CpuId, ns: u64) {
        let state = &mut self.cpus[cpu];
        state.settle(&mut self.tasks, self.now);
        // After settling, this is not before now.
        state.progress_from += ns;
        state.kernel_ns += ns;
        state.mark_stale(cpu, &mut self.stale);
    }

    /// How long kernel work of `ns` takes now. It takes longer if emulated CPUs take turns.
    #[inline]
    pub fn stretched(&self, ns: u64) -> u64 {
        match self.machine.takes_turns {
            false => ns,
            true => self.stretched_by_turns(ns),
        }
    }

    /// [`World::stretched`] where CPUs take turns.
    #[cold]
    #[inline(never)]
    fn stretched_by_turns(&self, ns: u64) -> u64 {
        ns * (self.machine.nr_cpus() - self.idle.len()).max(1) as u64
    }

    /// Time that `cpu` has spent in interrupts and softirqs that have ended, ns (`irq_time_read()`). Only for
    /// schedulers that ask for it ([`Scheduler::takes_out_interrupts`](crate::Scheduler)).
    #[inline]
    pub fn interrupt_ns(&self, cpu: CpuId) -> u64 {
        self.interrupts.get(cpu).map_or(0, |interrupts| interrupts.accounted_ns(self.now))
    }

    /// Total kernel work charged to `cpu`, for [`World::end_interrupt`].
    #[inline]
    pub fn charged_ns(&self, cpu: CpuId) -> u64 {
        self.cpus[cpu].kernel_ns
    }

    /// What was charged to `cpu` since it was `before` ([`World::charged_ns`]) is work of an interrupt or softirq.
    #[inline]
    pub fn end_interrupt(&mut self, cpu: CpuId, before: u64) {
        if let Some(interrupts) = self.interrupts.get_mut(cpu) {
            let state = &self.cpus[cpu];
            let ns = state.kernel_ns - before;
            if ns > 0 {
                interrupts.add(self.now, ns, state.progress_from);
            }
        }
    }

    /// The last `ns` at full speed of what `task` has computed on `cpu` were a softirq.
    pub(crate) fn ran_softirq(&mut self, cpu: CpuId, task: TaskId, ns: u64) {
        if let Some(interrupts) = self.interrupts.get_mut(cpu) {
            let lasted = (ns << 10) / u64::from(self.cpus[cpu].speed_1024);
            // A task that was preempted in this time has done some of it before.
            let here = self.now.since(self.tasks[task.index()].started_at);
            interrupts.add(self.now, lasted.min(here), self.now);
        }
    }

    /// Charges `cpu` for fetching one cache line last written by `from`.
    #[inline]
    pub fn charge_line(&mut self, cpu: CpuId, from: CpuId) {
        let ns = self.machine.line_ns(from, cpu);
        self.charge(cpu, ns);
    }

    /// Kernel work charged to `cpu` that is still to be done, ns.
    #[inline]
    pub fn backlog_ns(&self, cpu: CpuId) -> u64 {
        self.cpus[cpu].progress_from.since(self.now)
    }

    /// Asks `cpu` to pick again: at once if it is `from` itself, otherwise by interrupt.
    #[inline]
    pub fn resched(&mut self, from: CpuId, cpu: CpuId) {
        if from == cpu {
            self.cpus[cpu].need_resched = true;
        } else {
            self.kick(from, cpu, Work::Reschedule);
        }
    }

    /// Asks `cpu` to pick again when its task next returns to user mode from an interrupt or a
    /// system call. No interrupt is sent for it (TIF_NEED_RESCHED_LAZY). A CPU without a task picks
    /// at once.
    #[inline]
    pub fn resched_lazy(&mut self, from: CpuId, cpu: CpuId) {
        if self.cpus[cpu].current.is_none() {
            self.resched(from, cpu);
        } else {
            self.cpus[cpu].resched_lazy = true;
        }
    }

    /// Whether `cpu` picks again before its task continues in user mode.
    #[inline]
    pub fn resched_pending(&self, cpu: CpuId) -> bool {
        self.cpus[cpu].need_resched || self.cpus[cpu].resched_lazy
    }

    /// When the timer of `cpu` expires, if it is running.
    #[inline]
    pub fn timer_due(&self, cpu: CpuId) -> Option<Time> {
        self.events.due(Event::SchedulerTimer(cpu))
    }

    /// Sets the timer of `cpu` to expire at `at`, instead of an earlier setting. If `from` is
    /// another CPU, `cpu` takes an interrupt.
    #[inline]
    pub fn start_timer(&mut self, from: CpuId, cpu: CpuId, at: Time) {
        self.events.set(Event::SchedulerTimer(cpu), at);
        if from != cpu {
            self.kick(from, cpu, Work::Timer);
        }
    }

    /// Stops the timer of `cpu`, if it is running.
    #[inline]
    pub fn cancel_timer(&mut self, cpu: CpuId) {
        self.events.cancel(Event::SchedulerTimer(cpu));
    }

    /// Sends `cpu` an interrupt for `work`. Work that is already pending is not requested again.
    pub fn kick(&mut self, from: CpuId, cpu: CpuId, work: Work) {
        let at = self.now + self.backlog_ns(from) + self.interrupt_latency(from, cpu);
        let state = &mut self.cpus[cpu];
        if state.pending_work == 0 || at < state.work_at {
            state.work_at = at;
        }
        state.pending_work |= work as u8;
        self.counters.ipis += 1;
        self.arm_interrupt(cpu);
    }

    /// The scheduler queued a task on `cpu` itself (balancing): `cpu` no longer counts as idle.
    #[inline]
    pub fn mark_queued(&mut self, cpu: CpuId) {
        self.idle.remove(cpu);
    }

    /// Ends the run with an error after the current event, because the scheduler cannot go on. The
    /// first `reason` counts.
    #[cold]
    pub fn end_run(&mut self, reason: impl Into<Box<str>>) {
        self.end_reason.get_or_insert(reason.into());
    }

    /// A random number below `bound` (not 0) from the run's own generator.
    #[inline]
    pub fn random_below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.rng.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Whether the run has faults.
    pub fn has_faults(&self) -> bool {
        self.faults
    }

    /// Whether something fails now that may fail: one time in eight if the run has faults
    /// ([`Control::faults`](crate::Control)).
    #[inline]
    pub fn fault(&mut self) -> bool {
        self.faults && self.random_below(8) == 0
    }

    /// A world at time 0 with every CPU idle and no task.
    pub fn new(machine: Arc<Machine>, seed: u64) -> Self {
        let nr_cpus = machine.nr_cpus();
        Self {
            now: Time(0),
            cpus: (0..nr_cpus).map(|_| CpuState::default()).collect(),
            arrivals: vec![Vec::new(); nr_cpus],
            tasks: Vec::new(),
            groups: Vec::new(),
            processes: Vec::new(),
            names: Vec::new(),
            end_reason: None,
            events: EventQueue::new(nr_cpus),
            idle: CpuSet::full(nr_cpus),
            inactive: CpuSet::new(nr_cpus),
            some_inactive: false,
            claims: Vec::new(),
            next_claim: Time::NEVER,
            stale: Vec::new(),
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            faults: false,
            changes: Vec::new(),
            tracer: None,
            recorder: None,
            sharing: LlcSharing::new(machine.llcs.len(), Time(0)),
            memory: None,
            counters: Counters::default(),
            run_ns: vec![0; nr_cpus],
            interrupts: Vec::new(),
            power: None,
            smt: machine.has_smt(),
            core_cpus: machine.cores.iter().map(|core| core.cpus.iter().collect()).collect(),
            busy_cpus: vec![0; machine.cores.len()],
            machine,
        }
    }

    /// Number of CPUs of the machine.
    #[inline]
    pub fn nr_cpus(&self) -> usize {
        self.cpus.len()
    }

    /// Time for which each CPU has run tasks until now, ns.
    pub(crate) fn run_ns_now(&self) -> Vec<u64> {
        let running = |(cpu, ran): (CpuId, &u64)| {
            let current = self.cpus[cpu].current.map(|id| &self.tasks[id.index()]);
            ran + current.map_or(0, |task| self.now.since(task.started_at))
        };
        self.run_ns.iter().enumerate().map(running).collect()
    }

    /// The counters as they are now.
    pub(crate) fn counters_now(&self) -> Counters {
        let run_ns = self.run_ns_now().iter().sum();
        let kernel_ns = self.cpus.iter().map(|cpu| cpu.kernel_ns).sum();
        Counters { run_ns, kernel_ns, ..self.counters.clone() }
    }

    /// Measures LLC sharing only from `from` on.
    pub(crate) fn sharing_from(&mut self, from: Time) {
        self.sharing = LlcSharing::new(self.machine.llcs.len(), from);
    }

    /// Time from sending `to` an interrupt until its kernel serves it, ns. An emulated CPU serves
    /// it when its turn comes. With faults, some come late.
    #[inline]
    pub(crate) fn interrupt_latency(&mut self, from: CpuId, to: CpuId) -> u64 {
        let exit = match self.cpus[to].current {
            None if !self.machine.takes_turns => self.wake_idle_ns(to),
            _ => 0,
        };
        let late = if self.fault() { self.random_below(LATEST_NS) } else { 0 };
        self.stretched(exit + self.machine.ipi_ns(from, to)) + late
    }

    /// An idle `cpu` was interrupted. A CPU that waits with mwait leaves the idle loop before it
    /// serves the request (`flush_smp_call_function_queue()`). A CPU that halts, as an emulated one
    /// does, serves the interrupt first, so leaving the idle loop (`tick_nohz_idle_exit()`) delays
    /// the queued task.
    pub(crate) fn charge_idle_exit(&mut self, cpu: CpuId) {
        if self.machine.takes_turns && self.cpus[cpu].current.is_none() {
            let exit = self.machine.figures.idle_exit_ns.value;
            self.charge(cpu, exit);
        }
    }

    /// The task of `cpu` is about to continue in user mode. It gives way first if asked to, except
    /// in the middle of a system call that wakes many tasks, or uses a mutex of the kernel.
    #[inline]
    pub(crate) fn return_to_user(&mut self, cpu: CpuId) {
        let state = &mut self.cpus[cpu];
        if state.resched_lazy
            && let Some(task) = state.current
            && !self.tasks[task.index()].is_in_system_call()
        {
            state.need_resched = true;
        }
    }

    /// The first half of a switch, ns.
    #[inline]
    pub(crate) fn half_switch_ns(&self) -> u64 {
        self.stretched(self.machine.figures.context_switch_ns.value / 2)
    }

    /// Time that `cpu` takes for the interrupt of a timer, ns.
    #[inline]
    pub(crate) fn timer_interrupt_ns(&self, cpu: CpuId) -> u64 {
        let idle = self.cpus[cpu].current.is_none();
        let exit = if idle { self.idle_exit_ns(cpu) } else { 0 };
        self.machine.figures.interrupt_ns.value + exit
    }

    /// Charges `cpu` for an interrupt.
    #[inline]
    pub(crate) fn charge_interrupt(&mut self, cpu: CpuId) {
        let cost = self.machine.figures.interrupt_ns.value;
        self.charge(cpu, cost);
    }

    /// `cpu` stops looking idle at `at`: the wakeup that chose it has then sent its task.
    pub(crate) fn claim(&mut self, cpu: CpuId, at: Time) {
        // If CPUs take turns, no other CPU searches meanwhile.
        if at <= self.now || self.machine.takes_turns {
            self.idle.remove(cpu);
            return;
        }
        let place = self.claims.partition_point(|&(time, _)| time <= at);
        self.claims.insert(place, (at, cpu));
        self.next_claim = self.claims[0].0;
    }

    /// Applies the claims that are due.
    #[inline]
    pub(crate) fn apply_claims(&mut self) {
        if self.next_claim <= self.now {
            self.apply_due_claims();
        }
    }

    /// [`World::apply_claims`] if the first one is due.
    #[inline(never)]
    fn apply_due_claims(&mut self) {
        let due = self.claims.partition_point(|&(at, _)| at <= self.now);
        for (_, cpu) in self.claims.drain(..due) {
            self.idle.remove(cpu);
        }
        self.next_claim = self.claims.first().map_or(Time::NEVER, |&(at, _)| at);
    }

    /// Postpones an event that a CPU cannot handle now, because it searches for a task or serves
    /// timers, until the charged work is done. Returns whether it did.
    #[inline]
    pub(crate) fn defer(&mut self, cpu: CpuId, event: Event) -> bool {
        let state = &self.cpus[cpu];
        if !state.serving && state.looking == Looking::No {
            return false;
        }
        self.defer_busy(cpu, event)
    }

    /// The CPU on which an event happens.
    #[inline]
    pub(crate) fn cpu_of(&self, event: Event) -> Option<CpuId> {
        match event {
            Event::RunEnd(cpu) | Event::Tick(cpu) => Some(cpu),
            Event::Interrupt(cpu) | Event::SchedulerTimer(cpu) => Some(cpu),
            Event::Timer(task) => Some(self.timer_cpu(task)),
            Event::Clocks => None,
        }
    }

    /// The CPU on which the timer of a task expires.
    #[inline]
    fn timer_cpu(&self, task: TaskId) -> CpuId {
        let cpu = self.task_cpu(task);
        // A CPU that serves timers serves all that are due.
        if self.is_active(cpu) || self.cpus[cpu].serving { cpu } else { self.first_active() }
    }

    /// [`World::defer`] on a CPU that searches for a task or serves timers.
    fn defer_busy(&mut self, cpu: CpuId, event: Event) -> bool {
        let state = &self.cpus[cpu];
        let later = match event {
            Event::RunEnd(_) => state.serving,
            Event::Timer(_) if state.serving => state.progress_from > self.now,
            _ => state.serving || state.looking != Looking::No,
        };
        if later {
            self.events.set(event, state.progress_from.max(self.now));
        }
        later
    }

    /// `cpu` goes idle.
    pub(crate) fn go_idle(&mut self, cpu: CpuId) {
        // The CPU looks idle to a search as long as that search has not sent its task. A wakeup
        // that was sent already has ended that: its claim has been applied.
        let claimed = || self.claims.iter().filter(|&&(_, claimed)| claimed == cpu).count();
        let arrivals = self.arrivals[cpu].len();
        if arrivals == 0 || arrivals == claimed() {
            self.idle.insert(cpu);
        }
    }

    pub(crate) fn expect_arrival(&mut self, cpu: CpuId, arrival: Arrival) {
        let arrivals = &mut self.arrivals[cpu];
        if arrivals.last().is_none_or(|last| last.at <= arrival.at) {
            arrivals.push(arrival);
        } else {
            let place = arrivals.partition_point(|other| other.at <= arrival.at);
            arrivals.insert(place, arrival);
        }
        self.arm_interrupt(cpu);
    }

    /// Takes the next arrival that is due on `cpu`.
    #[inline]
    pub(crate) fn next_arrival(&mut self, cpu: CpuId) -> Option<Arrival> {
        let arrivals = &mut self.arrivals[cpu];
        let due = arrivals.first().is_some_and(|arrival| arrival.at <= self.now);
        if !due {
            return None;
        }
        // Mostly there is only one.
        if arrivals.len() == 1 { arrivals.pop() } else { Some(arrivals.remove(0)) }
    }

    /// Takes the bits of [`Work`] that are due on `cpu`.
    #[inline]
    pub(crate) fn take_work(&mut self, cpu: CpuId) -> u8 {
        let state = &mut self.cpus[cpu];
        if state.work_at > self.now {
            return 0;
        }
        std::mem::take(&mut state.pending_work)
    }

    /// Schedules the next interrupt of `cpu`, if one is pending.
    pub(crate) fn arm_interrupt(&mut self, cpu: CpuId) {
        let state = &self.cpus[cpu];
        let arrival = self.arrivals[cpu].first().map_or(Time::NEVER, |arrival| arrival.at);
        let work = if state.pending_work != 0 { state.work_at } else { Time::NEVER };
        let at = arrival.min(work);
        if at == Time::NEVER {
            self.events.cancel(Event::Interrupt(cpu));
        } else {
            // Requests that came while the CPU took no interrupts are served late.
            self.events.set(Event::Interrupt(cpu), at.max(self.now));
        }
    }

    /// Schedules the next tick of `cpu`.
    pub(crate) fn arm_tick(&mut self, cpu: CpuId, period_ns: u64) {
        let at = self.tick_after(cpu, self.now, period_ns);
        self.events.set(Event::Tick(cpu), at);
    }

    /// The time of the first tick of `cpu` after `at`, or of the tick it would have if it were
    /// busy.
    pub fn tick_after(&self, cpu: CpuId, at: Time, period_ns: u64) -> Time {
        let phase = u64::from(self.cpus[cpu].tick_phase_ns);
        let ticks = at.ns().saturating_sub(phase) / period_ns + 1;
        Time(ticks * period_ns + phase)
    }
}

/// For tests of schedulers, which need a world without a run.
impl World {
    /// A world at time 0 with every CPU idle and `nr_tasks` sleeping tasks of nice 0. They last ran
    /// on CPU 0 and may run anywhere.
    #[doc(hidden)]
    pub fn for_test(machine: Arc<Machine>, nr_tasks: usize) -> Self {
        let mut world = Self::new(machine, 1);
        for index in 0..nr_tasks {
            let task = Task::blank(index as u32 + 1, 0, &world);
            world.tasks.push(Task { state: State::Blocked, ..task });
        }
        world
    }

    /// Changes the CPUs a task may run on.
    #[doc(hidden)]
    pub fn set_allowed_for_test(&mut self, task: TaskId, allowed: CpuSet) {
        let task = &mut self.tasks[task.index()];
        task.nr_allowed = allowed.len();
        task.allowed = allowed;
    }

    /// Advances time to `now`.
    #[doc(hidden)]
    pub fn set_now_for_test(&mut self, now: Time) {
        self.now = now;
    }

    /// Changes the current task of a CPU, and so whether the CPU is idle. The pick is done.
    #[doc(hidden)]
    pub fn set_current_for_test(&mut self, cpu: CpuId, task: Option<TaskId>) {
        let state = &mut self.cpus[cpu];
        state.current = task;
        (state.need_resched, state.resched_lazy) = (false, false);
        match task {
            Some(_) => self.idle.remove(cpu),
            None => self.idle.insert(cpu),
        }
    }

    /// Takes the work that other CPUs asked `cpu` for, as bits of [`Work`].
    #[doc(hidden)]
    pub fn take_work_for_test(&mut self, cpu: CpuId) -> u8 {
        std::mem::take(&mut self.cpus[cpu].pending_work)
    }

    /// Puts a woken task in transit to `cpu`, where it arrives at `at`.
    #[doc(hidden)]
    pub fn send_for_test(&mut self, cpu: CpuId, task: TaskId, at: Time) {
        let why = crate::scheduler::Enqueue::Wakeup { migrated: false, sync: false };
        self.expect_arrival(cpu, Arrival { at, task, why, from: cpu, interrupt: true });
    }

    /// Gives the world task groups. Call it before making a scheduler for the world.
    #[doc(hidden)]
    pub fn set_groups_for_test(&mut self, groups: Vec<Group>) {
        self.groups = groups;
    }

    /// Changes which group a task is in.
    #[doc(hidden)]
    pub fn set_group_for_test(&mut self, task: TaskId, group: Option<GroupId>) {
        self.tasks[task.index()].group = group;
    }

    /// Changes a task's policy.
    #[doc(hidden)]
    pub fn set_policy_for_test(&mut self, task: TaskId, policy: Policy) {
        self.tasks[task.index()].policy = policy;
    }
}

impl Default for CpuState {
    fn default() -> Self {
        Self {
            current: None,
            progress_from: Time(0),
            copies_until: Time(0),
            speed_1024: FULL_SPEED,
            kernel_ns: 0,
            stale: false,
            need_resched: false,
            resched_lazy: false,
            pending_work: 0,
            work_at: Time(0),
            serving: false,
            looking: Looking::No,
            tick_phase_ns: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether CPU 1 looks idle while two tasks are in transit to it and `claims` of their searches
    /// still go on.
    fn looks_idle(claims: u64) -> bool {
        let machine = roost_machine::resolve("core:2 pu:1").expect("a valid shape");
        let mut world = World::for_test(Arc::new(machine), 2);
        world.mark_queued(1);
        for task in 0..2 {
            world.send_for_test(1, TaskId(task), Time(100));
        }
        (0..claims).for_each(|claim| world.claim(1, Time(50 + claim)));
        world.go_idle(1);
        world.is_idle(1)
    }

    /// A world of two CPUs where task 0 runs on CPU 1.
    fn busy() -> World {
        let machine = roost_machine::resolve("core:2 pu:1").expect("a valid shape");
        let mut world = World::for_test(Arc::new(machine), 1);
        world.set_current_for_test(1, Some(TaskId(0)));
        world
    }

    /// Preempted after 300 of 1000 ns of copying by an interrupt of 50 ns: the CPU has only the
    /// interrupt left to do, the task 700 ns of copying.
    #[test]
    fn copying_goes_on_when_the_task_that_was_preempted_runs_again() {
        let mut world = busy();
        world.charge_copying(1, 1000);
        world.now = Time(300);
        world.charge(1, 50);
        assert_eq!(world.backlog_ns(1), 750);
        assert_eq!(world.interrupt_copying(1), 700);
        assert_eq!((world.backlog_ns(1), world.cpus[1].kernel_ns), (50, 350));
        assert_eq!(world.interrupt_copying(1), 0, "once");
        world.charge_copying(1, 10);
        world.now = Time(2000);
        assert_eq!(world.interrupt_copying(1), 0, "all copying is done");
    }

    /// Two busy CPUs take turns, so kernel work takes twice as long. What is left of it when the task is
    /// preempted is not doubled again.
    #[test]
    fn copying_does_not_grow_by_preemption_where_cpus_take_turns() {
        let mut machine = roost_machine::resolve("core:2 pu:1").expect("a valid shape");
        machine.takes_turns = true;
        let mut world = World::for_test(Arc::new(machine), 2);
        (0..2).for_each(|cpu| world.set_current_for_test(cpu, Some(TaskId(cpu as u32))));
        world.charge_copying(1, 1000);
        world.now = Time(300);
        let left_ns = world.interrupt_copying(1);
        assert_eq!((left_ns, world.backlog_ns(1)), (1700, 0));
        world.resume_copying(1, left_ns);
        assert_eq!(world.backlog_ns(1), 1700);
    }

    /// A CPU whose interrupts are asked for, with a task that has run since 0.
    fn accounting() -> World {
        World { interrupts: vec![InterruptTime::default(); 2], ..busy() }
    }

    /// An interrupt of 300 ns that begins at 1000, behind kernel work of 200 ns.
    #[test]
    fn an_interrupt_is_accounted_when_it_ends() {
        let mut world = accounting();
        world.now = Time(1000);
        world.charge(1, 200);
        let before = world.charged_ns(1);
        world.charge(1, 300);
        world.end_interrupt(1, before);
        let accounted = [1000, 1499, 1500, 9000].map(|now| {
            world.now = Time(now);
            world.interrupt_ns(1)
        });
        assert_eq!(accounted, [0, 0, 300, 300]);
    }

    #[test]
    fn interrupts_add_up_whether_the_last_one_has_ended_or_not() {
        let mut world = accounting();
        for (now, ended) in [(1000, 0), (1100, 0), (5000, 600), (9000, 900)] {
            world.now = Time(now);
            assert_eq!(world.interrupt_ns(1), ended, "at {now}");
            let before = world.charged_ns(1);
            world.charge(1, 300);
            world.end_interrupt(1, before);
        }
    }

    /// 500 ns at full speed take 1000 ns beside a busy sibling. A task that has run here for 400 ns can have spent no
    /// more in its softirq.
    #[test]
    fn a_softirq_takes_as_long_as_the_task_would() {
        let took = |speed, now| {
            let mut world = accounting();
            world.cpus[1].speed_1024 = speed;
            world.now = Time(now);
            world.ran_softirq(1, TaskId(0), 500);
            world.interrupt_ns(1)
        };
        assert_eq!([took(1024, 2000), took(512, 2000), took(512, 400)], [500, 1000, 400]);
        let mut unasked = busy();
        unasked.ran_softirq(1, TaskId(0), 500);
        assert_eq!(unasked.interrupt_ns(1), 0);
    }

    #[test]
    fn a_lazy_request_is_sent_to_nobody_and_acted_on_at_the_return_to_user_mode() {
        let mut world = busy();
        world.resched_lazy(0, 1);
        assert!(world.resched_pending(1) && !world.cpus[1].need_resched);
        assert_eq!((world.cpus[1].pending_work, world.counters.ipis), (0, 0));
        world.return_to_user(1);
        assert!(world.cpus[1].need_resched);
    }

    #[test]
    fn who_wakes_many_in_one_system_call_ends_it_before_it_gives_way_lazily() {
        let mut world = busy();
        world.tasks[0].wakes = true;
        world.resched_lazy(1, 1);
        world.return_to_user(1);
        assert!(!world.cpus[1].need_resched);
        world.tasks[0].wakes = false;
        world.return_to_user(1);
        assert!(world.cpus[1].need_resched);
    }

    #[test]
    fn an_idle_cpu_is_asked_at_once() {
        let mut world = busy();
        world.resched_lazy(1, 0);
        assert_eq!(world.cpus[0].pending_work, Work::Reschedule as u8);
    }

    #[test]
    fn only_a_timer_of_another_cpu_takes_an_interrupt() {
        let mut world = busy();
        world.start_timer(1, 1, Time(500));
        assert_eq!((world.timer_due(1), world.cpus[1].pending_work), (Some(Time(500)), 0));
        world.start_timer(0, 1, Time(700));
        assert_eq!(world.timer_due(1), Some(Time(700)));
        assert_eq!(world.cpus[1].pending_work, Work::Timer as u8);
        world.cancel_timer(1);
        assert_eq!(world.timer_due(1), None);
    }

    #[test]
    fn a_cpu_looks_idle_until_the_first_wakeup_that_chose_it_is_sent() {
        assert!(looks_idle(2), "both searches go on");
        assert!(!looks_idle(1), "one has sent its task");
        assert!(!looks_idle(0));
    }
}
