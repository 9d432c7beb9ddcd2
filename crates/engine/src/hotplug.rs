//! CPUs that go offline and come back (`sched_cpu_deactivate()`, `sched_cpu_activate()`).
//!
//! - Nobody places tasks on a CPU that is not active.
//! - What runs there, or is picked there from a queue, the stopper moves away, one task at a time (`balance_push()`).
//! - A task that may run only on such CPUs may run anywhere from then on (`select_fallback_rq()`). No task can be bound
//!   to such CPUs alone (`__set_cpus_allowed_ptr()`).
//! - Timers of sleeping tasks expire on another CPU (`hrtimers_cpu_dying()`).
//!
//! Kernel threads that are bound to a CPU are not modelled here: they would be parked.

use roost_machine::CpuSet;

use crate::changes::{Change, Waits};
use crate::run::Engine;
use crate::scheduler::{CpuId, Scheduler, TaskId, Work};
use crate::task::State;
use crate::world::World;

impl World {
    /// Whether `cpu` is neither offline nor about to go offline (`cpu_active()`).
    #[inline]
    pub fn is_active(&self, cpu: CpuId) -> bool {
        !self.some_inactive || !self.inactive.contains(cpu)
    }

    /// `cpu` begins to go offline, or is back. CPU `by` executes this. The scheduler is not told. At least one CPU must
    /// stay active.
    pub fn set_active(&mut self, by: CpuId, cpu: CpuId, active: bool) {
        if active {
            self.inactive.remove(cpu);
            self.some_inactive = !self.inactive.is_empty();
            return;
        }
        self.inactive.insert(cpu);
        self.some_inactive = true;
        if let Some(task) = self.current(cpu) {
            self.push_away(by, cpu, task);
        }
    }

    /// Asks the stopper of `cpu` to move its current task to another CPU.
    #[cold]
    pub(crate) fn push_away(&mut self, by: CpuId, cpu: CpuId, task: TaskId) {
        self.changes.push(Change { task, by: None, waits: Waits::Stopper(cpu) });
        self.kick(by, cpu, Work::Relocate);
    }

    /// The first active CPU.
    pub(crate) fn first_active(&self) -> CpuId {
        (0..self.nr_cpus()).find(|&cpu| self.is_active(cpu)).unwrap_or(0)
    }

    /// Whether some CPU of a set is active.
    pub(crate) fn any_active(&self, cpus: &CpuSet) -> bool {
        cpus.iter().any(|cpu| self.is_active(cpu))
    }

    /// If all CPUs that a task may run on are inactive, the task may run anywhere from now on. Returns whether that is
    /// so.
    pub fn free_from_inactive(&mut self, task: TaskId) -> bool {
        if self.any_active(self.allowed(task)) {
            return false;
        }
        let all = CpuSet::full(self.nr_cpus());
        self.allow(task, &all);
        true
    }

    /// Whether a task may be changed now: it is alive, and not in transit to a queue, where its lock is held.
    pub fn may_be_changed(&self, task: TaskId) -> bool {
        !matches!(self.tasks[task.index()].state, State::Dead | State::Arriving)
    }
}

impl<S: Scheduler> Engine<'_, S> {
    /// A CPU for a task that leaves `cpu`.
    pub(crate) fn destination(&mut self, cpu: CpuId, id: TaskId) -> CpuId {
        if self.world.free_from_inactive(id) {
            self.scheduler.allowed_changed(&mut self.world, id, cpu);
        }
        self.world.any_allowed(id)
    }
}
