//! HRTICK: a CPU's timer ends a request if several tasks share the CPU (7.2).
//!
//! Without the timer a used-up request is noticed at the next tick or event. The timer is started
//! for the virtual deadline of the current task when that task is picked, or when a second task
//! arrives. When it expires, the CPU picks again. The timer keeps running when the task it was
//! started for leaves, and a running timer is not restarted for another arrival. So it may expire
//! early or late. A task that is still protected then runs on until something else ends it.
//!
//! Starting the timer of another CPU takes an interrupt there. Mostly that interrupt makes the CPU
//! act on a lazy request to pick again: see `World::resched_lazy`.
//!
//! The time is extended by what interrupts take of the CPU (`cpu_util_irq`).

use roost_engine::{CpuId, TaskId, World};

use crate::state::Fair;

/// Shortest time to the timer, ns (`hrtick_start`).
const SHORTEST_NS: u64 = 10_000;

/// A running timer is kept if it would move by no more than this, ns (`hrtick_needs_rearm`).
const SLACK_NS: u64 = 5000;

impl Fair {
    /// CPU `by` queued a task on `cpu`: the current task is no longer alone (`hrtick_update`).
    #[inline]
    pub(crate) fn hrtick_queued(&mut self, world: &mut World, cpu: CpuId, by: CpuId) {
        let rq = &self.rqs[cpu];
        if !self.features.switches.hrtick || rq.nr_running < 2 || rq.current.is_none() {
            return;
        }
        if world.timer_due(cpu).is_some() {
            return;
        }
        match rq.queue.until_deadline() {
            Some(ns) => start(world, by, cpu, rq.clock.irq.extended(ns)),
            None => world.resched(by, cpu),
        }
    }

    /// `cpu`, whose current task was `previous`, has picked `next` (`hrtick_start_fair` as
    /// `set_next_task_fair` calls it, and `hrtick_schedule_exit`).
    #[inline]
    pub(crate) fn hrtick_picked(
        &mut self,
        world: &mut World,
        cpu: CpuId,
        previous: Option<TaskId>,
        next: Option<TaskId>,
    ) {
        if !self.features.switches.hrtick || (next.is_some() && next == previous) {
            return;
        }
        let rq = &self.rqs[cpu];
        match next {
            Some(_) if rq.nr_running < 2 => {}
            Some(_) => {
                // The request is never used up here, because it is renewed as it runs.
                let ns = rq.queue.until_deadline().unwrap_or(0);
                start(world, cpu, cpu, rq.clock.irq.extended(ns));
            }
            None if world.wakeup_pending(cpu) => {}
            None => world.cancel_timer(cpu),
        }
    }

    /// The timer of `cpu` expired (`hrtick`, `entity_tick` with `queued`).
    pub(crate) fn hrtick_expired(&mut self, world: &mut World, cpu: CpuId) {
        if self.rqs[cpu].current.is_some() {
            self.update_rq(world, cpu);
            world.resched(cpu, cpu);
        }
    }
}

/// Starts the timer of `cpu` for `ns` from now, on behalf of CPU `by` (`hrtick_start`).
fn start(world: &mut World, by: CpuId, cpu: CpuId, ns: u64) {
    let at = world.now() + ns.max(SHORTEST_NS);
    let near = |due: roost_engine::Time| due.ns().abs_diff(at.ns()) <= SLACK_NS;
    if !world.timer_due(cpu).is_some_and(near) {
        world.start_timer(by, cpu, at);
    }
}

#[cfg(test)]
mod tests;
