//! Two observers of one run.

use roost_engine::{Accessed, CpuId, LeftAs, MemoryNow, Time, TraceTask, Tracer};

/// Passes every event to two observers.
pub struct Tee(pub Box<dyn Tracer>, pub Box<dyn Tracer>);

impl Tracer for Tee {
    fn switch(
        &mut self,
        now: Time,
        cpu: CpuId,
        previous: Option<(TraceTask<'_>, LeftAs)>,
        next: Option<TraceTask<'_>>,
    ) {
        self.0.switch(now, cpu, previous, next);
        self.1.switch(now, cpu, previous, next);
    }

    fn waits_for_switch(&mut self, ns: u64) {
        self.0.waits_for_switch(ns);
        self.1.waits_for_switch(ns);
    }

    fn wakeup(&mut self, now: Time, from: CpuId, task: TraceTask<'_>, target: CpuId) {
        self.0.wakeup(now, from, task, target);
        self.1.wakeup(now, from, task, target);
    }

    fn migrated(&mut self, now: Time, task: TraceTask<'_>, to: CpuId) {
        self.0.migrated(now, task, to);
        self.1.migrated(now, task, to);
    }

    fn value(&mut self, now: Time, name: &'static str, index: usize, value: u64) {
        self.0.value(now, name, index, value);
        self.1.value(now, name, index, value);
    }

    fn queued(&mut self, now: Time, task: TraceTask<'_>) {
        self.0.queued(now, task);
        self.1.queued(now, task);
    }

    fn group_changed(&mut self, task: TraceTask<'_>) {
        self.0.group_changed(task);
        self.1.group_changed(task);
    }

    fn next_memory(&self) -> Time {
        self.0.next_memory().min(self.1.next_memory())
    }

    fn memory(&mut self, now: Time, memory: &MemoryNow) {
        self.0.memory(now, memory);
        self.1.memory(now, memory);
    }

    fn accessed(&mut self, task: TraceTask<'_>, node: &[Accessed]) {
        self.0.accessed(task, node);
        self.1.accessed(task, node);
    }
}
