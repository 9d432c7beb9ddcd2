//! One run over time, in bounded memory: how many tasks ran and waited where, migrations, latencies, memory.
//!
//! A [`TimelineRecorder`] is told of the run and keeps sums by window of time. When the run has filled [`WINDOWS`]
//! windows, neighbours are merged, and windows are twice as long from then on. All sums are integers, and merging adds
//! them. So the sums over all windows equal the run's own counters.

mod events;
mod grid;
mod latency;
mod places;
mod recorder;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::rc::Rc;

use roost_engine::{Accessed, CpuId, MemoryNow, Recorder, Start, Time, TraceTask, Tracer};
use roost_machine::Machine;

use events::Events;
pub use grid::{Grid, WINDOWS};
pub use latency::{Latency, PERCENTILES_MILLI};
use recorder::Recording;

/// The record of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// The end of the run.
    pub end: Time,
    /// Time from which migrations and latencies count.
    pub measured_from: Time,
    /// Length of a window, in ns. The first window starts with the run.
    pub window_ns: u64,
    /// Tasks by CPU.
    pub cpus: Occupancy,
    /// Groups of tasks, by LLC.
    pub groups: Vec<TaskGroup>,
    /// Migrations from each LLC (rows) to each LLC (columns), including those within an LLC.
    pub migrations: Vec<Vec<u64>>,
    /// Time from being woken or created to running.
    pub wakeup_latency: Latency,
    /// Time from being queued or preempted to running: the run delay as the kernel counts it.
    pub run_delay: Latency,
    /// The workload's memory at the end of each window; for the last window, at the end of the run. Empty if the
    /// workload has no memory.
    pub memory: Vec<MemoryNow>,
    /// The bytes that each thread transferred from each node.
    pub accesses: Vec<Access>,
}

/// Task time by place (rows) and window, in ns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occupancy {
    /// Time on a CPU, including kernel work on the task's behalf.
    pub running: Grid,
    /// Time in a CPU's queue.
    pub waiting: Grid,
}

/// The property by which tasks are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    /// By [`TraceTask::class`].
    Name,
    /// By their process.
    Process,
    /// By their task group.
    Cgroup,
}

/// Tasks that share a property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskGroup {
    /// The shared property.
    pub by: By,
    /// Its value, for example a task's name.
    pub name: String,
    /// The tasks' time by LLC.
    pub llcs: Occupancy,
}

/// The transfers of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Number and name of the thread. Threads beyond the limit share one entry with a common name.
    pub thread: String,
    /// Transfers by node of the memory, in the machine's numbering.
    pub node: Vec<Accessed>,
}

impl Occupancy {
    /// Zeros for `places` places.
    pub(crate) fn new(places: usize) -> Self {
        Self { running: Grid::new(places), waiting: Grid::new(places) }
    }

    /// Merges neighbouring windows (see [`Grid`]).
    pub(crate) fn fold(&mut self) {
        self.running.fold();
        self.waiting.fold();
    }

    /// The same with rows added up: row `i` is added to row `of[i]` of `places`.
    pub fn merged(&self, places: usize, of: &[usize]) -> Self {
        Self { running: self.running.merged(places, of), waiting: self.waiting.merged(places, of) }
    }
}

impl Timeline {
    /// Number of windows that the run reached.
    pub fn windows(&self) -> usize {
        (self.end.ns().div_ceil(self.window_ns.max(1)) as usize).min(WINDOWS)
    }

    /// The part of a window that the run lasted, in ns.
    pub fn length_ns(&self, window: usize) -> u64 {
        let begin = self.window_ns.saturating_mul(window as u64);
        self.end.ns().saturating_sub(begin).min(self.window_ns)
    }

    /// Task time by LLC of `machine`, the machine of the run.
    pub fn llcs(&self, machine: &Machine) -> Occupancy {
        let llc: Vec<usize> = machine.cpus.iter().map(|cpu| cpu.llc as usize).collect();
        self.cpus.merged(machine.llcs.len(), &llc)
    }
}

/// Records the [`Timeline`] of a run.
pub struct TimelineRecorder(Rc<RefCell<Recording>>);

impl TimelineRecorder {
    /// A recorder for a run on `machine`. Migrations and latencies count from `measured_from` on.
    pub fn new(machine: &Machine, measured_from: Time) -> Self {
        Self(Rc::new(RefCell::new(Recording::new(machine, measured_from))))
    }

    /// The recorder to give to the engine.
    pub fn recorder(&self) -> Box<dyn Recorder> {
        Box::new(Handle(Rc::clone(&self.0)))
    }

    /// Records a run of which only events are known: `report` reports them. The run ends at `end`.
    pub fn observe<R>(&self, end: Time, report: impl FnOnce(&mut dyn Tracer) -> R) -> R {
        let mut recording = self.0.borrow_mut();
        let mut events = Events::new(&mut recording);
        let result = report(&mut events);
        events.finish(end);
        result
    }

    /// The timeline of the run, which ended at `end`.
    pub fn finish(self, end: Time) -> Timeline {
        self.0.borrow_mut().finish(end)
    }
}

/// The half of a recorder that the engine owns.
struct Handle(Rc<RefCell<Recording>>);

impl Recorder for Handle {
    fn meets(&mut self, task: TraceTask<'_>) {
        self.0.borrow_mut().meets(task);
    }

    fn ran(&mut self, now: Time, slot: u32, cpu: CpuId, since: Time) {
        self.0.borrow_mut().ran(now, slot, cpu, since);
    }

    fn waited(&mut self, now: Time, slot: u32, cpu: CpuId, queued_at: Time) {
        self.0.borrow_mut().waited(now, slot, cpu, queued_at);
    }

    fn started(&mut self, slot: u32, start: &Start) {
        self.0.borrow_mut().started(slot, start);
    }

    fn next_memory(&self) -> Time {
        self.0.borrow().next_memory()
    }

    fn memory(&mut self, now: Time, memory: &MemoryNow) {
        self.0.borrow_mut().memory(now, memory);
    }

    fn accessed(&mut self, task: TraceTask<'_>, node: &[Accessed]) {
        self.0.borrow_mut().accessed(task, node);
    }
}
