//! What a run reports to a recorder of sums.

use crate::scheduler::CpuId;
use crate::time::Time;
use crate::trace::TraceTask;

/// Bytes transferred from one node's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accessed {
    /// To CPUs of the same node.
    pub local_bytes: u64,
    /// To CPUs of other nodes.
    pub remote_bytes: u64,
}

/// The workload's memory at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryNow {
    /// Pages on each node, by the machine's node numbers.
    pub node_pages: Vec<u64>,
    /// Bytes transferred until now, from the CPU's own node and from other nodes, transfers under
    /// way included.
    pub accessed: Accessed,
}

/// A task gets a CPU.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// When.
    pub at: Time,
    /// The CPU.
    pub cpu: CpuId,
    /// The CPU in whose queue it waited.
    pub queue: CpuId,
    /// Since when it waited.
    pub queued_at: Time,
    /// When it was woken or created. [`Time::NEVER`] if it has run since.
    pub woken_at: Time,
    /// The CPU on which it ran before, if it did.
    pub ran_on: Option<CpuId>,
    /// How much longer it waits for kernel work of the CPU, ns. The run delay that the kernel counts
    /// includes this time.
    pub until_switch_ns: u64,
}

/// Adds up what happens in one run. The engine reports spans of time when they are over, with what it
/// knows about them, so that a recorder needs little state. A [`Tracer`](crate::Tracer) gets the events
/// themselves, which are more.
///
/// Tasks are told by their [slot](TraceTask::slot). Times never decrease from one report to the next.
pub trait Recorder {
    /// A slot has a new task, or its task is in another task group from now on. Called before any other
    /// report of the task.
    fn meets(&mut self, task: TraceTask<'_>);

    /// A task leaves `cpu`, on which it has run since `since`.
    fn ran(&mut self, now: Time, slot: u32, cpu: CpuId, since: Time);

    /// A task leaves the queue of `cpu`, in which it has waited since `queued_at`, for another queue.
    /// What it waits from now on is in that queue. At the end of the run, also reported of all tasks
    /// that still wait or are in transit to a queue.
    fn waited(&mut self, now: Time, slot: u32, cpu: CpuId, queued_at: Time);

    /// A task gets a CPU.
    fn started(&mut self, slot: u32, start: &Start);

    /// When it next wants a report on memory ([`Recorder::memory`]): a time later than now. Asked at
    /// the start and after each report.
    fn next_memory(&self) -> Time;

    /// The state of the workload's memory, if it has any: at each [`Recorder::next_memory`] and at
    /// the end.
    fn memory(&mut self, now: Time, memory: &MemoryNow);

    /// How much a task transferred in all, from each node. Called once, when the task exits or the
    /// run ends, and only for workloads with memory.
    fn accessed(&mut self, task: TraceTask<'_>, node: &[Accessed]);
}
