//! The CPU for a woken task in 3.9 (`select_task_rq_fair`, `wake_affine`; section 7.2).
//!
//! The lowest domain of the waker's CPU that allows affine wakeups and holds prev decides by
//! weights between the two CPUs. The search for idle CPUs begins at the chosen one. Without such a
//! domain the task goes to prev, idle or not. There is no `wake_wide`.

use roost_engine::{CpuId, TaskId, Wake, World};

use crate::domain::Flags;
use crate::state::Fair;
use crate::wakeup::Lines;

/// Weights that `wake_affine` compares.
#[derive(Clone, Copy, Debug)]
struct AffineWeights {
    /// Weight queued on the waker's CPU, without a waker about to sleep.
    this: u64,
    /// Weight queued on prev.
    prev: u64,
    /// Weight of the wakee.
    wakee: u64,
    /// Power of both CPUs.
    powers: (u64, u64),
    /// imbalance_pct of the domain.
    imbalance_pct: u32,
}

impl AffineWeights {
    /// Whether the waker's CPU with the wakee is no heavier than prev, within half of the allowed
    /// imbalance, or has nothing queued.
    fn balanced(&self) -> bool {
        let bias = 100 + u64::from(self.imbalance_pct - 100) / 2;
        let (this_power, prev_power) = self.powers;
        let here = 100 * prev_power * (self.this + self.wakee);
        self.this == 0 || here <= bias * this_power * self.prev
    }
}

impl Fair {
    /// Chooses a CPU for the wakee `task`. Adds the time to `lines`.
    pub(crate) fn select_task_rq_by_weights(
        &mut self,
        world: &World,
        task: TaskId,
        wake: Wake,
        lines: &mut Lines,
    ) -> CpuId {
        let prev = world.task_cpu(task);
        if !world.allowed(task).contains(wake.cpu) || !self.may_wake_at(world, task, wake.cpu) {
            return prev;
        }
        let mut domains = self.topology.domains_of(wake.cpu).iter();
        let affine = domains.position(|&id| {
            let domain = self.topology.domain(id);
            domain.has(Flags::WAKE_AFFINE) && domain.span.contains(prev)
        });
        let Some(level) = affine else { return prev };
        let affine =
            wake.cpu != prev && self.wake_affine_by_weights(world, task, wake, level, lines);
        let target = if affine { wake.cpu } else { prev };
        self.select_idle_sibling(world, task, prev, target, lines)
    }

    /// Whether the search begins at the waker's CPU, not at prev.
    fn wake_affine_by_weights(
        &mut self,
        world: &World,
        task: TaskId,
        wake: Wake,
        level: usize,
        lines: &mut Lines,
    ) -> bool {
        let prev = world.task_cpu(task);
        lines.look(world.machine(), prev);
        let leaving = wake.waker.filter(|_| wake.sync).map_or(0, |waker| self.task_load(waker));
        let weights = AffineWeights {
            this: self.rqs[wake.cpu].load_weight.saturating_sub(leaving),
            prev: self.rqs[prev].load_weight,
            wakee: self.task_load(task),
            powers: (self.power.of_cpu(wake.cpu), self.power.of_cpu(prev)),
            imbalance_pct: self
                .topology
                .domain(self.topology.domains_of(wake.cpu)[level])
                .imbalance_pct,
        };
        let balanced = weights.balanced();
        if wake.sync && balanced {
            return true;
        }
        self.stats.nr_wakeups_affine_attempts += 1;
        let (this, prev) = (weights.this, weights.prev);
        let per_task = self.load_per_task(wake.cpu);
        if !balanced && (this > prev || this + prev > per_task) {
            return false;
        }
        self.stats.nr_wakeups_affine += 1;
        let level = self.topology.stat_level(wake.cpu, level);
        self.stats.levels[level].ttwu_move_affine += 1;
        true
    }

    /// Average weight of the tasks on a CPU (`cpu_avg_load_per_task`).
    fn load_per_task(&self, cpu: CpuId) -> u64 {
        let rq = &self.rqs[cpu];
        rq.load_weight.checked_div(u64::from(rq.nr_running)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wakers_cpu_may_be_heavier_by_half_of_the_imbalance_allowed() {
        let balanced = |this, prev| {
            let powers = (1024, 1024);
            AffineWeights { this, prev, wakee: 1024, powers, imbalance_pct: 125 }.balanced()
        };
        assert!(balanced(0, 0), "nothing queued: the waker is about to sleep");
        assert!(!balanced(1024, 0));
        assert!(!balanced(1024, 1024));
        assert!(balanced(1024, 2048));
        assert!(balanced(8 * 1024, 9 * 1024), "9 tasks here with it, 9 there");
        assert!(balanced(9 * 1024, 9 * 1024), "10 are within 112 per cent of 9");
        assert!(!balanced(10 * 1024, 9 * 1024));
    }
}
