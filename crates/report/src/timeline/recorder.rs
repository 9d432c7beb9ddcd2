//! Turns what tasks did in a run into sums by window.

use std::ops::Range;

use roost_engine::{Accessed, CpuId, MemoryNow, Recorder, Start, Time, TraceTask};
use roost_machine::Machine;

use super::grid::Windows;
use super::latency::Record;
use super::places::{OTHERS, Places, Set};
use super::{Access, Occupancy, Timeline};

/// Number of threads whose accesses are kept apart, in order of appearance.
const MOST_THREADS: usize = 64;

/// What a task did during a span of time.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Running,
    Waiting,
}

/// What is kept of a task.
#[derive(Clone, Copy, Default)]
struct Task {
    /// The set of groups that the task belongs to.
    set: Set,
    /// When the task was last moved to another queue while it waited.
    moved_at: Time,
}

pub(super) struct Recording {
    windows: Windows,
    /// The last window that had a task.
    now: Range<Time>,
    measured_from: Time,
    /// The tasks by slot.
    tasks: Vec<Task>,
    places: Places,
    migrations: Vec<Vec<u64>>,
    wakeup_latency: Record,
    run_delay: Record,
    memory: Vec<MemoryNow>,
    last_memory: Option<MemoryNow>,
    /// Accesses, each with the thread's number.
    accesses: Vec<(u32, Access)>,
}

impl Recording {
    pub fn new(machine: &Machine, measured_from: Time) -> Self {
        let nr_llcs = machine.llcs.len();
        Self {
            windows: Windows::FIRST,
            now: Windows::FIRST.span(0),
            measured_from,
            tasks: Vec::new(),
            places: Places::new(machine),
            migrations: vec![vec![0; nr_llcs]; nr_llcs],
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

    /// Adds a span of time of a task with a set of groups.
    #[inline]
    fn add(&mut self, kind: Kind, cpu: CpuId, set: Set, from: Time, to: Time) {
        if self.now.start <= from && to <= self.now.end {
            self.places.add_now(kind, cpu, set, to - from);
        } else {
            self.add_by_window(kind, cpu, set, from, to);
        }
    }

    /// The same for a span that is not within the last window.
    #[cold]
    fn add_by_window(&mut self, kind: Kind, cpu: CpuId, set: Set, from: Time, to: Time) {
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

    fn count_migration(&mut self, from: CpuId, to: CpuId) {
        if let (Some(from), Some(to)) = (self.places.llc_of(from), self.places.llc_of(to)) {
            self.migrations[from][to] += 1;
        }
    }

    fn fold(&mut self) {
        self.places.fold();
        // The memory at the end of the second of two windows is that at the end of the merged window.
        self.memory = std::mem::take(&mut self.memory).into_iter().skip(1).step_by(2).collect();
        self.windows = self.windows.doubled();
        self.now = self.windows.span(self.places.window());
    }

    /// The timeline of the run, which ended at `end`.
    pub fn finish(&mut self, end: Time) -> Timeline {
        self.make_room(end);
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

impl Recorder for Recording {
    fn meets(&mut self, task: TraceTask<'_>) {
        let slot = task.slot as usize;
        if slot >= self.tasks.len() {
            self.tasks.resize(slot + 1, Task::default());
        }
        self.tasks[slot].set = self.places.set_of(task);
    }

    #[inline]
    fn ran(&mut self, now: Time, slot: u32, cpu: CpuId, since: Time) {
        let Task { set, .. } = self.tasks[slot as usize];
        self.add(Kind::Running, cpu, set, since, now);
    }

    #[inline]
    fn waited(&mut self, now: Time, slot: u32, cpu: CpuId, queued_at: Time) {
        let task = &mut self.tasks[slot as usize];
        let since = std::mem::replace(&mut task.moved_at, now).max(queued_at);
        let set = task.set;
        self.add(Kind::Waiting, cpu, set, since, now);
    }

    #[inline]
    fn started(&mut self, slot: u32, start: &Start) {
        let Start { at, cpu, queue, queued_at, woken_at, ran_on, until_switch_ns } = *start;
        let Task { set, moved_at } = self.tasks[slot as usize];
        self.add(Kind::Waiting, queue, set, queued_at.max(moved_at), at);
        if !self.is_measured(at) {
            return;
        }
        self.run_delay.add(at.since(queued_at) + until_switch_ns);
        if woken_at != Time::NEVER {
            self.wakeup_latency.add(at.since(woken_at) + until_switch_ns);
        }
        if let Some(from) = ran_on.filter(|&from| from != cpu) {
            self.count_migration(from, cpu);
        }
    }

    /// The end of the window after the last one that was reported.
    fn next_memory(&self) -> Time {
        Time((self.memory.len() as u64 + 1) * self.windows.ns())
    }

    fn memory(&mut self, now: Time, memory: &MemoryNow) {
        self.make_room(now);
        if now == self.next_memory() {
            self.memory.push(memory.clone());
        }
        self.last_memory = Some(memory.clone());
    }

    fn accessed(&mut self, task: TraceTask<'_>, node: &[Accessed]) {
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
}

impl Kind {
    pub(super) fn of(self, occupancy: &mut Occupancy) -> &mut super::Grid {
        match self {
            Self::Running => &mut occupancy.running,
            Self::Waiting => &mut occupancy.waiting,
        }
    }
}
