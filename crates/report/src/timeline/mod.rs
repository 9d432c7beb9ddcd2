//! One run over time, in bounded memory: how many tasks ran and waited where, migrations, latencies, memory.
//!
//! A [`TimelineRecorder`] observes the run and keeps sums by window of time. When the run has filled [`WINDOWS`]
//! windows, neighbours are merged, and windows are twice as long from then on. All sums are integers, and merging adds
//! them. So the sums over all windows equal the run's own counters.

mod grid;
mod latency;
mod places;
mod recorder;
mod tee;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::rc::Rc;

use roost_engine::{Accessed, CpuId, LeftAs, MemoryNow, Time, TraceTask, Tracer};
use roost_machine::Machine;

pub use grid::{Grid, WINDOWS};
pub use latency::{Latency, PERCENTILES_MILLI};
use recorder::Recorder;
pub use tee::Tee;

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
pub struct TimelineRecorder(Rc<RefCell<Recorder>>);

impl TimelineRecorder {
    /// A recorder for a run on `machine`. Migrations and latencies count from `measured_from` on.
    pub fn new(machine: &Machine, measured_from: Time) -> Self {
        Self(Rc::new(RefCell::new(Recorder::new(machine, measured_from))))
    }

    /// The observer to give to the engine.
    pub fn tracer(&self) -> Box<dyn Tracer> {
        Box::new(Handle(Rc::clone(&self.0)))
    }

    /// The timeline of the run, which ended at `end`.
    pub fn finish(self, end: Time) -> Timeline {
        self.0.borrow_mut().finish(end)
    }
}

/// The half of a recorder that the engine owns.
struct Handle(Rc<RefCell<Recorder>>);

impl Tracer for Handle {
    fn switch(
        &mut self,
        now: Time,
        cpu: CpuId,
        previous: Option<(TraceTask<'_>, LeftAs)>,
        next: Option<TraceTask<'_>>,
    ) {
        self.0.borrow_mut().switch(now, cpu, previous, next);
    }

    fn waits_for_switch(&mut self, ns: u64) {
        self.0.borrow_mut().waits_for_switch(ns);
    }

    fn wakeup(&mut self, now: Time, _from: CpuId, task: TraceTask<'_>, target: CpuId) {
        self.0.borrow_mut().wakeup(now, task, target);
    }

    fn migrated(&mut self, now: Time, task: TraceTask<'_>, to: CpuId) {
        self.0.borrow_mut().migrated(now, task, to);
    }

    fn queued(&mut self, now: Time, task: TraceTask<'_>) {
        self.0.borrow_mut().queued(now, task);
    }

    fn group_changed(&mut self, task: TraceTask<'_>) {
        self.0.borrow_mut().meet(task);
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
