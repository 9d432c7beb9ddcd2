//! What a run reports to an observer.

use crate::scheduler::CpuId;
use crate::time::Time;

/// A task in a trace.
#[derive(Clone, Copy)]
pub struct TraceTask<'a> {
    /// Its unique number in the run; 0 is the idle task.
    pub pid: u32,
    /// An index for tables of the tasks that live. Another task gets it after this one has exited.
    pub slot: u32,
    /// Number of its process.
    pub process: u32,
    /// Knows the rest. Most events are of tasks that the observer has seen before, so it is not
    /// looked up for every event.
    pub known_to: &'a dyn KnowsTasks,
}

/// What an observer can ask about a task of an event. The methods take the task's
/// [slot](TraceTask::slot).
pub trait KnowsTasks {
    /// Its name.
    fn name(&self, slot: u32) -> &str;

    /// Number and path of its task group; `None` for the root group, or if not known.
    fn group(&self, _slot: u32) -> Option<(u32, &str)> {
        None
    }

    /// Whether it is known to be a kernel thread.
    fn is_kernel_thread(&self, _slot: u32) -> bool {
        false
    }
}

/// A task of which only the name is known.
impl KnowsTasks for &str {
    fn name(&self, _slot: u32) -> &str {
        self
    }
}

/// A task of which the name and the task group are known.
impl KnowsTasks for (&str, Option<(u32, &str)>) {
    fn name(&self, _slot: u32) -> &str {
        self.0
    }

    fn group(&self, _slot: u32) -> Option<(u32, &str)> {
        self.1
    }
}

impl<'a> TraceTask<'a> {
    /// Its name.
    pub fn name(&self) -> &'a str {
        self.known_to.name(self.slot)
    }

    /// Its name without a hyphen and number at the end, with which rt-app numbers the instances of
    /// a task.
    pub fn class(&self) -> &'a str {
        let name = self.name();
        match name.rsplit_once('-') {
            Some((class, number))
                if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) =>
            {
                class
            }
            _ => name,
        }
    }

    /// Number and path of its task group; `None` for the root group, or if not known.
    pub fn group(&self) -> Option<(u32, &'a str)> {
        self.known_to.group(self.slot)
    }

    /// Whether it is known to be a kernel thread.
    pub fn is_kernel_thread(&self) -> bool {
        self.known_to.is_kernel_thread(self.slot)
    }
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
}
