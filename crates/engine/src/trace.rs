//! What a run reports to an observer.

use crate::scheduler::CpuId;
use crate::time::Time;

/// A task in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceTask<'a> {
    /// Its unique number in the run; 0 is the idle task.
    pub pid: u32,
    /// An index for tables of the tasks that live. Another task gets it after this one has exited.
    pub slot: u32,
    /// Number of its process.
    pub process: u32,
    /// Its name.
    pub name: &'a str,
    /// Number and path of its task group; `None` for the root group, or if not known.
    pub group: Option<(u32, &'a str)>,
    /// Whether it is known to be a kernel thread.
    pub kernel: bool,
}

impl TraceTask<'_> {
    /// Its name without a hyphen and number at the end, with which rt-app numbers the instances of
    /// a task.
    pub fn class(&self) -> &str {
        match self.name.rsplit_once('-') {
            Some((class, number))
                if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) =>
            {
                class
            }
            _ => self.name,
        }
    }
}

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

/// How a task left its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftAs {
    /// Still runnable.
    Preempted,
    /// Sleeping.
    Sleeping,
    /// Exited.
    Exited,
}

/// An observer of one run. Its methods are called in order of time.
pub trait Tracer {
    /// A CPU switched from one task to another; `None` is the idle task.
    fn switch(
        &mut self,
        now: Time,
        cpu: CpuId,
        previous: Option<(TraceTask<'_>, LeftAs)>,
        next: Option<TraceTask<'_>>,
    );

    /// The task of the last switch gets its CPU only after this much kernel work, ns. It is part of
    /// the run delay that the kernel counts.
    fn waits_for_switch(&mut self, _ns: u64) {}

    /// A task was woken or created by `from` and will run on `target`.
    fn wakeup(&mut self, now: Time, from: CpuId, task: TraceTask<'_>, target: CpuId);

    /// A waiting task was moved to the queue of `to` (`sched_migrate_task`).
    fn migrated(&mut self, _now: Time, _task: TraceTask<'_>, _to: CpuId) {}

    /// A value of the scheduler changed: `name` says of what kind of thing, and `index` of which
    /// one. Ignored by default.
    fn value(&mut self, _now: Time, _name: &'static str, _index: usize, _value: u64) {}

    /// The woken or created task is now in its queue: its run delay begins. Not called if that was
    /// at the time of the wakeup.
    fn queued(&mut self, _now: Time, _task: TraceTask<'_>) {}

    /// When it next wants a report on memory ([`Tracer::memory`]): a time later than now. Asked at
    /// the start and after each report. Never, by default.
    fn next_memory(&self) -> Time {
        Time::NEVER
    }

    /// The state of the workload's memory, if it has any: at each [`Tracer::next_memory`] and at
    /// the end.
    fn memory(&mut self, _now: Time, _memory: &MemoryNow) {}

    /// How much a task transferred in all, from each node. Called once, when the task exits or the
    /// run ends, and only for workloads with memory.
    fn accessed(&mut self, _task: TraceTask<'_>, _node: &[Accessed]) {}
}
