//! What a run tells an observer as it goes.

use crate::scheduler::CpuId;
use crate::time::Time;

/// A task as a trace names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceTask<'a> {
    /// A number of its own, never used again in the run; 0 is the idle task.
    pub pid: u32,
    /// Number of its process.
    pub process: u32,
    /// Its name.
    pub name: &'a str,
    /// Number and path of its task group; `None`: the root group, or not known.
    pub group: Option<(u32, &'a str)>,
    /// Whether it is known to be a thread of the kernel.
    pub kernel: bool,
}

impl TraceTask<'_> {
    /// Its name up to a hyphen and number at its end, as rt-app numbers the instances of a task.
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

/// What was transferred from one node's memory, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accessed {
    /// To CPUs of the node itself.
    pub local_bytes: u64,
    /// To CPUs of others.
    pub remote_bytes: u64,
}

/// The workload's memory at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryNow {
    /// Pages on each node, in the machine's numbering.
    pub node_pages: Vec<u64>,
    /// What was transferred until now from a CPU's own node and from others, what goes on included.
    pub accessed: Accessed,
}

/// How a task left its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftAs {
    /// Still runnable.
    Preempted,
    /// Asleep.
    Sleeping,
    /// Gone.
    Exited,
}

/// An observer of one run. Methods are called in order of time.
pub trait Tracer {
    /// A CPU switched from one task to another; `None` is the idle task.
    fn switch(
        &mut self,
        now: Time,
        cpu: CpuId,
        previous: Option<(TraceTask<'_>, LeftAs)>,
        next: Option<TraceTask<'_>>,
    );

    /// The task that the last switch was to has its CPU only after that much kernel work, ns: run delay
    /// as the kernel counts it.
    fn waits_for_switch(&mut self, _ns: u64) {}

    /// A task was woken or created by `from` and will run on `target`.
    fn wakeup(&mut self, now: Time, from: CpuId, task: TraceTask<'_>, target: CpuId);

    /// A waiting task was moved to the queue of `to` (`sched_migrate_task`).
    fn migrated(&mut self, _now: Time, _task: TraceTask<'_>, _to: CpuId) {}

    /// A value of the scheduler's that belongs to one of several things changed: `name` says what,
    /// `index` of which. Not told by default.
    fn value(&mut self, _now: Time, _name: &'static str, _index: usize, _value: u64) {}

    /// The woken or created task is in its queue now: its run delay begins. Not told if that was at
    /// the wakeup's own time.
    fn queued(&mut self, _now: Time, _task: TraceTask<'_>) {}

    /// When it next wants to be told of memory ([`Tracer::memory`]), a later time than now; asked at the start
    /// and after each time that it was told. Never by default.
    fn next_memory(&self) -> Time {
        Time::NEVER
    }

    /// Where the workload's memory is, if it has any: at each [`Tracer::next_memory`] and at the end.
    fn memory(&mut self, _now: Time, _memory: &MemoryNow) {}

    /// What a task transferred from each node in all: told once, when it exits or the run ends. Only of
    /// workloads that have memory.
    fn accessed(&mut self, _task: TraceTask<'_>, _node: &[Accessed]) {}
}
