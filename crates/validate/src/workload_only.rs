//! What a tracer sees of a run in which threads of the kernel run too.

use roost_engine::{CpuId, LeftAs, Time, TraceTask, Tracer};

/// Tells a tracer of everything but kernel threads: where they run it sees the idle task, because of a real
/// run's trace only rt-app's tasks are counted.
pub(crate) struct WithoutKernelThreads {
    inner: Box<dyn Tracer>,
    /// The last switch was to a task that `inner` knows.
    told: bool,
}

impl WithoutKernelThreads {
    pub(crate) fn new(inner: Box<dyn Tracer>) -> Self {
        Self { inner, told: false }
    }
}

impl Tracer for WithoutKernelThreads {
    fn switch(
        &mut self,
        now: Time,
        cpu: CpuId,
        previous: Option<(TraceTask<'_>, LeftAs)>,
        next: Option<TraceTask<'_>>,
    ) {
        let previous = previous.filter(|(task, _)| !task.kernel);
        let next = next.filter(|task| !task.kernel);
        self.told = next.is_some();
        if previous.is_some() || next.is_some() {
            self.inner.switch(now, cpu, previous, next);
        }
    }

    fn waits_for_switch(&mut self, ns: u64) {
        if self.told {
            self.inner.waits_for_switch(ns);
        }
    }

    fn wakeup(&mut self, now: Time, from: CpuId, task: TraceTask<'_>, target: CpuId) {
        if !task.kernel {
            self.inner.wakeup(now, from, task, target);
        }
    }

    fn queued(&mut self, now: Time, task: TraceTask<'_>) {
        if !task.kernel {
            self.inner.queued(now, task);
        }
    }
}
