//! One run over time, in bounded memory: how many tasks ran and waited where, migrations, latencies, memory.
//!
//! A [`TimelineRecorder`] observes the run. It keeps sums by window of time: when the run outgrows [`WINDOWS`] of
//! them, neighbours merge and windows are twice as long. All sums are of integers, and whatever is merged is
//! added, so that the sums over all windows are the run's own counters.

mod grid;
mod latency;
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

/// What is kept of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// When it ended.
    pub end: Time,
    /// From when on migrations and latencies count.
    pub measured_from: Time,
    /// Length of a window, ns; the first one begins with the run.
    pub window_ns: u64,
    /// Tasks by CPU.
    pub cpus: Occupancy,
    /// Tasks of one kind each, by LLC.
    pub groups: Vec<TaskGroup>,
    /// Migrations from each LLC (rows) to each; those within an LLC, too.
    pub migrations: Vec<Vec<u64>>,
    /// From being woken or created to running.
    pub wakeup_latency: Latency,
    /// From being queued, or preempted, to running: run delay as the kernel counts it.
    pub run_delay: Latency,
    /// The workload's memory at the end of each window, of the last one at the end of the run; empty if it has none.
    pub memory: Vec<MemoryNow>,
    /// What each thread transferred from each node.
    pub accesses: Vec<Access>,
}

/// Times of tasks by place (rows) and window, ns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occupancy {
    /// On a CPU, kernel work on their behalf included.
    pub running: Grid,
    /// In its queue.
    pub waiting: Grid,
}

/// How tasks are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    /// By [`TraceTask::class`].
    Name,
    /// By their process.
    Process,
    /// By their task group.
    Cgroup,
}

/// Tasks that have something in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskGroup {
    /// What.
    pub by: By,
    /// Its name.
    pub name: String,
    /// Where they were, by LLC.
    pub llcs: Occupancy,
}

/// What one thread transferred.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Its number and name; of further threads than are told apart, what they are called together.
    pub thread: String,
    /// By node of the memory, in the machine's numbering.
    pub node: Vec<Accessed>,
}

impl Occupancy {
    /// Of so many places.
    pub(crate) fn new(places: usize) -> Self {
        Self { running: Grid::new(places), waiting: Grid::new(places) }
    }

    /// The same with rows added up, `of[row]` naming the new one of `places`.
    pub fn merged(&self, places: usize, of: &[usize]) -> Self {
        Self { running: self.running.merged(places, of), waiting: self.waiting.merged(places, of) }
    }
}

impl Timeline {
    /// Windows that the run reached into.
    pub fn windows(&self) -> usize {
        (self.end.ns().div_ceil(self.window_ns.max(1)) as usize).min(WINDOWS)
    }

    /// How much of a window the run lasted, ns.
    pub fn length_ns(&self, window: usize) -> u64 {
        let begin = self.window_ns.saturating_mul(window as u64);
        self.end.ns().saturating_sub(begin).min(self.window_ns)
    }

    /// Tasks by LLC of `machine`, on which the run was.
    pub fn llcs(&self, machine: &Machine) -> Occupancy {
        let llc: Vec<usize> = machine.cpus.iter().map(|cpu| cpu.llc as usize).collect();
        self.cpus.merged(machine.llcs.len(), &llc)
    }
}

/// Makes the [`Timeline`] of a run.
pub struct TimelineRecorder(Rc<RefCell<Recorder>>);

impl TimelineRecorder {
    /// Of a run on `machine` whose migrations and latencies count from `measured_from` on.
    pub fn new(machine: &Machine, measured_from: Time) -> Self {
        Self(Rc::new(RefCell::new(Recorder::new(machine, measured_from))))
    }

    /// What is to be told about the run.
    pub fn tracer(&self) -> Box<dyn Tracer> {
        Box::new(Handle(Rc::clone(&self.0)))
    }

    /// The timeline of the run, which ended at `end`.
    pub fn finish(self, end: Time) -> Timeline {
        self.0.borrow_mut().finish(end)
    }
}

/// The engine's end of a recorder.
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
