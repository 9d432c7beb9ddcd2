//! Turns the events of a run into sums by window.

use std::ops::Range;

use roost_engine::{Accessed, CpuId, LeftAs, MemoryNow, Time, TraceTask};
use roost_machine::Machine;

use super::grid::Windows;
use super::latency::Record;
use super::places::{OTHERS, Places};
use super::{Access, Occupancy, Timeline};

/// Number of threads whose accesses are kept apart, in order of appearance.
const MOST_THREADS: usize = 64;
/// No CPU or task.
const NONE: u32 = u32::MAX;

/// What a task did during a span of time.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Running,
    Waiting,
}

/// State of a task. It fills a cache line, because every event of a run reads another task's.
#[repr(align(64))]
struct Task {
    /// The set of groups that the task belongs to. [`NONE`] if there is no such task.
    set: u32,
    /// The CPU that the task last started on, or [`NONE`].
    ran_on: u32,
    /// The CPU in whose queue the task waits, or [`NONE`].
    waits_on: u32,
    /// The time up to which the waiting is summed up.
    summed_until: Time,
    /// When the task started to run. [`Time::NEVER`] if it is not running.
    runs_since: Time,
    /// When the task was last queued, or last left a CPU.
    waits_since: Time,
    /// When the task was last woken or created. [`Time::NEVER`] if it has run since.
    woken_at: Time,
}

/// A task that has just started to run, with the time that it had waited.
struct Started {
    delay_ns: u64,
    woken_ns: Option<u64>,
}

pub(super) struct Recorder {
    windows: Windows,
    /// The last window that had a task.
    now: Range<Time>,
    measured_from: Time,
    /// The tasks by slot.
    tasks: Vec<Task>,
    places: Places,
    migrations: Vec<Vec<u64>>,
    started: Option<Started>,
    wakeup_latency: Record,
    run_delay: Record,
    memory: Vec<MemoryNow>,
    last_memory: Option<MemoryNow>,
    /// Accesses, each with the thread's number.
    accesses: Vec<(u32, Access)>,
}

impl Recorder {
    pub fn new(machine: &Machine, measured_from: Time) -> Self {
        let nr_llcs = machine.llcs.len();
        Self {
            windows: Windows::FIRST,
            now: Windows::FIRST.span(0),
            measured_from,
            tasks: Vec::new(),
            places: Places::new(machine),
            migrations: vec![vec![0; nr_llcs]; nr_llcs],
            started: None,
            wakeup_latency: Record::new(),
            run_delay: Record::new(),
            memory: Vec::new(),
            last_memory: None,
            accesses: Vec::new(),
        }
    }

    /// Whether an event at `now` counts as measured. An event at the very start of the measurement does not count.
    fn is_measured(&self, now: Time) -> bool {
        now > self.measured_from || self.measured_from == Time(0)
    }

    /// The state of a task, created if the task is new.
    #[inline]
    fn task(&mut self, told: TraceTask<'_>) -> &mut Task {
        let slot = told.slot as usize;
        if self.tasks.get(slot).is_none_or(|task| task.set == NONE) {
            self.meet(told);
        }
        &mut self.tasks[slot]
    }

    /// Notes the groups of a task that is new, or that changed its cgroup.
    #[cold]
    pub fn meet(&mut self, told: TraceTask<'_>) {
        let slot = told.slot as usize;
        if slot >= self.tasks.len() {
            self.tasks.resize_with(slot + 1, Task::none);
        }
        self.tasks[slot].set = self.places.set_of(told);
    }

    /// Adds a span of time of a task with a set of groups. A span that begins later than it ends is empty.
    #[inline]
    fn add(&mut self, kind: Kind, cpu: u32, set: u32, from: Time, to: Time) {
        if self.now.start <= from && from <= to && to <= self.now.end {
            self.places.add_now(kind, cpu, set, to - from);
        } else {
            self.add_by_window(kind, cpu, set, from, to);
        }
    }

    /// The same for a span that is not within the last window.
    #[cold]
    fn add_by_window(&mut self, kind: Kind, cpu: u32, set: u32, from: Time, to: Time) {
        self.make_room(to);
        for (window, ns) in self.windows.split(from.ns(), to.ns()) {
            self.places.add(kind, cpu, set, window, ns);
        }
        self.now = self.windows.span(self.places.window());
    }

    /// Doubles the windows' length until `now` fits.
    fn make_room(&mut self, now: Time) {
        while self.windows.are_outgrown_by(now.ns()) {
            self.fold();
        }
    }

    fn fold(&mut self) {
        self.places.fold();
        // The memory at the end of the second of two windows is that at the end of the merged window.
        self.memory = std::mem::take(&mut self.memory).into_iter().skip(1).step_by(2).collect();
        self.windows = self.windows.doubled();
        self.now = self.windows.span(self.places.window());
    }

    /// See [`roost_engine::Tracer::switch`].
    pub fn switch(
        &mut self,
        now: Time,
        cpu: CpuId,
        previous: Option<(TraceTask<'_>, LeftAs)>,
        next: Option<TraceTask<'_>>,
    ) {
        self.count_started();
        if let Some((task, left)) = previous {
            self.stop(now, cpu, task, left);
        }
        if let Some(task) = next {
            self.start(now, cpu, task);
        }
    }

    fn stop(&mut self, now: Time, cpu: CpuId, told: TraceTask<'_>, left: LeftAs) {
        let task = self.task(told);
        let (ran_since, set) = (task.runs_since, task.set);
        (task.runs_since, task.waits_since, task.summed_until) = (Time::NEVER, now, now);
        match left {
            LeftAs::Preempted => task.waits_on = cpu as u32,
            LeftAs::Sleeping => {}
            LeftAs::Exited => {
                *task = Task::none();
            }
        }
        // Of a task that did not run, the span is empty, because it begins at `Time::NEVER`.
        self.add(Kind::Running, cpu as u32, set, ran_since, now);
    }

    fn start(&mut self, now: Time, cpu: CpuId, told: TraceTask<'_>) {
        let task = self.task(told);
        task.runs_since = now;
        let waited_on = std::mem::replace(&mut task.waits_on, NONE);
        let ran_on = std::mem::replace(&mut task.ran_on, cpu as u32);
        let woken_at = std::mem::replace(&mut task.woken_at, Time::NEVER);
        let (since, set) = (task.summed_until, task.set);
        let delay_ns = now.since(task.waits_since);
        self.add(Kind::Waiting, waited_on, set, since, now);
        if !self.is_measured(now) {
            return;
        }
        let woken_ns = (woken_at != Time::NEVER).then(|| now.since(woken_at));
        self.started = Some(Started { delay_ns, woken_ns });
        if ran_on != cpu as u32
            && let (Some(from), Some(to)) =
                (self.places.llc_of(ran_on), self.places.llc_of(cpu as u32))
        {
            self.migrations[from][to] += 1;
        }
    }

    /// See [`roost_engine::Tracer::waits_for_switch`].
    pub fn waits_for_switch(&mut self, ns: u64) {
        if let Some(started) = &mut self.started {
            started.delay_ns += ns;
            started.woken_ns = started.woken_ns.map(|woken| woken + ns);
        }
    }

    /// Counts the latencies of the task that started last. Its waiting time is known now.
    fn count_started(&mut self) {
        if let Some(Started { delay_ns, woken_ns }) = self.started.take() {
            self.run_delay.add(delay_ns);
            if let Some(ns) = woken_ns {
                self.wakeup_latency.add(ns);
            }
        }
    }

    /// See [`roost_engine::Tracer::wakeup`].
    pub fn wakeup(&mut self, now: Time, told: TraceTask<'_>, target: CpuId) {
        let task = self.task(told);
        // A running task is "woken" when its affinity changes. That is a migration, not a wakeup.
        let runs = task.runs_since != Time::NEVER;
        task.woken_at = if runs { Time::NEVER } else { now };
        task.waits_on = target as u32;
        (task.waits_since, task.summed_until) = (now, now);
    }

    /// See [`roost_engine::Tracer::queued`].
    pub fn queued(&mut self, now: Time, told: TraceTask<'_>) {
        let task = self.task(told);
        (task.waits_since, task.summed_until) = (now, now);
    }

    /// See [`roost_engine::Tracer::migrated`].
    pub fn migrated(&mut self, now: Time, told: TraceTask<'_>, to: CpuId) {
        let task = self.task(told);
        if task.waits_on == NONE {
            return;
        }
        let on = std::mem::replace(&mut task.waits_on, to as u32);
        let since = std::mem::replace(&mut task.summed_until, now);
        let set = task.set;
        self.add(Kind::Waiting, on, set, since, now);
    }

    /// See [`roost_engine::Tracer::next_memory`]: the end of the window after the last one that was reported.
    pub fn next_memory(&self) -> Time {
        Time((self.memory.len() as u64 + 1) * self.windows.ns())
    }

    /// See [`roost_engine::Tracer::memory`].
    pub fn memory(&mut self, now: Time, memory: &MemoryNow) {
        self.make_room(now);
        if now == self.next_memory() {
            self.memory.push(memory.clone());
        }
        self.last_memory = Some(memory.clone());
    }

    /// See [`roost_engine::Tracer::accessed`].
    pub fn accessed(&mut self, task: TraceTask<'_>, node: &[Accessed]) {
        match self.accesses.len() {
            0..MOST_THREADS => {
                let thread = format!("{} {}", task.pid, task.name());
                self.accesses.push((task.pid, Access { thread, node: node.to_vec() }));
            }
            MOST_THREADS => {
                let others = Access { thread: OTHERS.to_owned(), node: node.to_vec() };
                self.accesses.push((u32::MAX, others));
            }
            _ => {
                let sums = self.accesses.last_mut().map(|(_, others)| &mut others.node);
                for (sum, more) in sums.into_iter().flatten().zip(node) {
                    sum.local_bytes += more.local_bytes;
                    sum.remote_bytes += more.remote_bytes;
                }
            }
        }
    }

    /// The timeline of the run, which ended at `end`.
    pub fn finish(&mut self, end: Time) -> Timeline {
        self.count_started();
        self.make_room(end);
        for task in std::mem::take(&mut self.tasks) {
            self.add(Kind::Waiting, task.waits_on, task.set, task.summed_until, end);
            self.add(Kind::Running, task.ran_on, task.set, task.runs_since, end);
        }
        if self.memory.len() as u64 * self.windows.ns() < end.ns() {
            self.memory.extend(self.last_memory.take());
        }
        let (cpus, groups) = self.places.finish();
        let mut accesses = std::mem::take(&mut self.accesses);
        accesses.sort_by_key(|(pid, _)| *pid);
        Timeline {
            end,
            measured_from: self.measured_from,
            window_ns: self.windows.ns(),
            cpus,
            groups,
            migrations: std::mem::take(&mut self.migrations),
            wakeup_latency: self.wakeup_latency.finish(),
            run_delay: self.run_delay.finish(),
            memory: std::mem::take(&mut self.memory),
            accesses: accesses.into_iter().map(|(_, access)| access).collect(),
        }
    }
}

impl Task {
    /// No task.
    fn none() -> Self {
        Self {
            set: NONE,
            ran_on: NONE,
            waits_on: NONE,
            summed_until: Time(0),
            runs_since: Time::NEVER,
            waits_since: Time(0),
            woken_at: Time::NEVER,
        }
    }
}

impl Kind {
    pub(super) fn of(self, occupancy: &mut Occupancy) -> &mut super::Grid {
        match self {
            Self::Running => &mut occupancy.running,
            Self::Waiting => &mut occupancy.waiting,
        }
    }
}
