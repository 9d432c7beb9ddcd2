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
}
