//! The clock of tasks, which interrupts and softirqs do not move (CONFIG_IRQ_TIME_ACCOUNTING).
//!
//! A queue has two clocks. `rq->clock` is the time. `rq->clock_task` is the time without what the CPU spent in
//! interrupts and softirqs. Run time, virtual time and averages go by the second one, idle periods and balancing by the
//! first one. Where the kernel does not have the option, both are the time.
//!
//! The clocks of a queue are read when its CPU's events happen, as `update_rq_clock()` does.

use roost_engine::{CpuId, World};

use crate::pelt::IrqAvg;
use crate::state::Fair;

/// The clocks of a queue at their last update, ns. All 0 if interrupts are not taken out.
#[derive(Clone, Debug, Default)]
pub(crate) struct TaskClock {
    /// The time (`rq->clock`).
    time: u64,
    /// The time of tasks (`rq->clock_task`).
    task: u64,
    /// Time of interrupts that was taken out (`rq->prev_irq_time`).
    taken_out: u64,
    /// Average time in interrupts (`rq->avg_irq`).
    pub irq: IrqAvg,
}

impl TaskClock {
    /// How far the clock of tasks moves, and what is taken out of it, up to `now`, when interrupts have taken
    /// `interrupt_ns` in all (`update_rq_clock_task()`). An interrupt is known only when it ends, so it may be longer
    /// than the time since the last update. Then the rest is taken out of later times.
    fn passed(&self, now: u64, interrupt_ns: u64) -> (u64, u64) {
        let passed = now - self.time;
        let interrupts = (interrupt_ns - self.taken_out).min(passed);
        (passed - interrupts, interrupts)
    }

    /// Moves the clocks to `now`. Returns the clock of tasks.
    #[inline]
    fn update(&mut self, now: u64, interrupt_ns: u64) -> u64 {
        if now != self.time {
            let (ran, interrupts) = self.passed(now, interrupt_ns);
            self.time = now;
            self.task += ran;
            self.taken_out += interrupts;
            if interrupts > 0 {
                self.irq.update(now, interrupts);
            }
        }
        self.task
    }

    /// The time, the time of tasks, and what was taken out.
    pub(crate) fn parts(&self) -> [u64; 3] {
        [self.time, self.task, self.taken_out]
    }

    /// The clock of tasks at `now` as another CPU estimates it for an idle one, without taking its lock
    /// (`migrate_se_pelt_lag()`).
    pub(crate) fn estimate(&self, now: u64) -> u64 {
        self.task + (now - self.time)
    }
}

impl Fair {
    /// Updates the clocks of `cpu` (`update_rq_clock()`). Returns the clock of its tasks, ns.
    #[inline]
    pub(crate) fn task_clock(&mut self, world: &World, cpu: CpuId) -> u64 {
        let now = world.now().ns();
        if !self.features.switches.irq_time {
            return now;
        }
        self.rqs[cpu].clock.update(now, world.interrupt_ns(cpu))
    }

    /// What [`Fair::task_clock`] would return.
    pub(crate) fn task_clock_now(&self, world: &World, cpu: CpuId) -> u64 {
        let now = world.now().ns();
        if !self.features.switches.irq_time {
            return now;
        }
        let clock = &self.rqs[cpu].clock;
        clock.task + clock.passed(now, world.interrupt_ns(cpu)).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::audited_run_of;

    /// Updates at these times, when interrupts have taken so much in all, and the clock of tasks after each.
    fn clock(updates: &[(u64, u64)]) -> Vec<u64> {
        let mut clock = TaskClock::default();
        updates.iter().map(|&(now, interrupt_ns)| clock.update(now, interrupt_ns)).collect()
    }

    #[test]
    fn interrupts_do_not_move_the_clock_of_tasks() {
        assert_eq!(
            clock(&[(1000, 0), (2000, 300), (2000, 300), (3000, 300)]),
            [1000, 1700, 1700, 2700]
        );
    }

    /// A softirq of 900 ns that ends at 2000, 500 ns after its wakeup updated the clock: the 400 ns that were counted
    /// as the task's are taken out later. The clock never goes back.
    #[test]
    fn an_interrupt_that_began_before_the_last_update_is_taken_out_of_later_time_too() {
        assert_eq!(
            clock(&[(1500, 0), (2000, 900), (2300, 900), (3000, 900)]),
            [1500, 1500, 1500, 2100]
        );
    }

    #[test]
    fn the_clock_of_an_idle_cpu_is_estimated_without_its_interrupts() {
        let mut clock = TaskClock::default();
        clock.update(1000, 400);
        assert_eq!(clock.estimate(1500), 1100);
        assert_eq!(TaskClock::default().estimate(1500), 1500, "nothing is taken out");
    }

    /// Utilisation of a CPU, and its average of interrupts, after a pair of netperf has shared it for 0.4 s.
    fn shared_by_a_pair(version: &str) -> [f64; 2] {
        let mut workload = roost_workload::resolve("netperf-tcp-rr", Some(400_000_000)).unwrap();
        workload.measured_from_ns = 0;
        let outcome = audited_run_of("core:1 pu:1", version, &workload);
        ["util_of_cpu_0", "irq_of_cpu_0"].map(|name| outcome.counter(name))
    }

    /// A message takes 3550 ns, of which the softirq has 547 ns for the receiving half and 500 ns for the wakeup. The
    /// CPU is never idle. So its tasks run all of the time that is theirs, and utilisation is full. Ticks add less than
    /// 0.1% to the interrupts.
    #[test]
    fn the_softirqs_of_loopback_have_an_average_of_their_own() {
        let [util, irq] = shared_by_a_pair("5.19+irq-time");
        let share = (547.0 + 500.0) / 3550.0;
        assert!((irq / 1024.0 - share).abs() < 0.02, "{irq} of 1024, {share}");
        assert!(util > 1000.0, "{util}");
        let [util, irq] = shared_by_a_pair("5.19");
        assert!(util > 1000.0 && irq == 0.0, "{util}, {irq}");
    }
}
