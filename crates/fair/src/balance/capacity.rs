//! The capacity that interrupts leave of CPUs and groups (kernel model, section 2). Without irq-time
//! it is 1024 for each CPU.

use roost_engine::{CpuId, World};

use super::pass::Pass;
use super::{Balancer, CAPACITY, interval_jiffies};
use crate::domain::{Flags, GroupId, Topology};
use crate::state::Fair;
use crate::stats::IdleType;

/// The capacity of a group at its last update (`struct sched_group_capacity`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupCapacity {
    capacity: u64,
    /// Jiffy of the next update by a newly idle CPU (`next_update`).
    due: u64,
}

/// The capacities at the start of a run.
pub(super) fn full(topology: &Topology) -> Vec<GroupCapacity> {
    let weights = topology.groups.iter().map(|group| u64::from(group.weight));
    weights.map(|weight| GroupCapacity { capacity: CAPACITY * weight, due: 0 }).collect()
}

/// What is left of a CPU that spends `irq` of 1024 in interrupts (`scale_rt_capacity()`).
fn left_of(irq: u64) -> u64 {
    CAPACITY.saturating_sub(irq).max(1)
}

/// Whether interrupts leave noticeably less than a whole CPU (`check_cpu_capacity()`).
pub(super) fn is_reduced(capacity: u64, imbalance_pct: u32) -> bool {
    capacity * u64::from(imbalance_pct) < CAPACITY * 100
}

impl Balancer {
    /// The capacity of a group.
    #[inline]
    pub(crate) fn capacity(&self, group: GroupId) -> u64 {
        self.group_capacity[group].capacity
    }
}

impl Fair {
    /// Updates the capacity of the local group (`update_group_capacity()`, as `update_sd_lb_stats()` calls it).
    #[inline]
    pub(super) fn update_capacity(&mut self, world: &World, pass: &Pass, id: GroupId) {
        if self.features.switches.irq_time {
            self.update_local_capacity(world, pass, id);
        }
    }

    fn update_local_capacity(&mut self, world: &World, pass: &Pass, id: GroupId) {
        let now = self.jiffies(world.now());
        if pass.idle == IdleType::NewlyIdle && now < self.balance.group_capacity[id].due {
            return;
        }
        let interval = self.rqs[pass.cpu].domains[pass.level].balance_interval;
        let due = now + interval_jiffies(interval, None, self.features.hz, self.rqs.len());
        if pass.level == 0 {
            let rq = &mut self.rqs[pass.cpu];
            rq.capacity = left_of(rq.clock.irq.util());
        }
        let capacity = self.capacity_of_group(pass, id);
        self.balance.group_capacity[id] = GroupCapacity { capacity, due };
    }

    /// The sum of what is known of the parts of the local group.
    fn capacity_of_group(&self, pass: &Pass, id: GroupId) -> u64 {
        let child = pass.level.checked_sub(1).map(|level| self.domain_of(pass.cpu, level));
        match child {
            // Groups above this level may overlap.
            Some(child) if !child.has(Flags::NUMA) => {
                child.groups.iter().map(|&part| self.balance.capacity(part)).sum()
            }
            _ => self.topology.group(id).span.iter().map(|cpu| self.rqs[cpu].capacity).sum(),
        }
    }

    /// Whether `cpu` runs one task, and interrupts leave it noticeably less than a whole CPU
    /// (`sched_reduced_capacity()`).
    pub(super) fn is_reduced_for_one(&self, cpu: CpuId, imbalance_pct: u32) -> bool {
        let rq = &self.rqs[cpu];
        rq.nr_runnable == 1 && is_reduced(rq.capacity, imbalance_pct)
    }

    /// Whether a task that is alone on `src` and loses much time to interrupts should run on the idle `dst`
    /// (`need_active_balance()`).
    pub(super) fn leaves_interrupts(&self, pass: &Pass) -> bool {
        let pct = self.topology.domain(pass.domain).imbalance_pct;
        let [src, dst] = [pass.src, pass.dst].map(|cpu| self.rqs[cpu].capacity);
        pass.idle != IdleType::Busy
            && self.is_reduced_for_one(pass.src, pct)
            && src * u64::from(pct) < dst * 100
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::Bench;

    #[test]
    fn interrupts_take_their_share_of_a_cpu() {
        assert_eq!([0, 300, 1023, 1024, 1100].map(left_of), [1024, 724, 1, 1, 1]);
    }

    /// At pct 117 less than 102400 / 117 = 875.2.
    #[test]
    fn capacity_is_reduced_if_less_than_100_of_117_parts_are_left() {
        assert_eq!(
            [1024, 876, 875].map(|capacity| is_reduced(capacity, 117)),
            [false, false, true]
        );
    }

    /// CPUs 0 and 1 share a core, CPU 0 spends a third of its time in interrupts. A pass of the lowest domain updates
    /// the CPU, one of the domain above it the sum for the core.
    #[test]
    fn a_pass_updates_the_capacity_of_its_cpus_group() {
        let mut bench = Bench::new("fair@5.19+irq-time", "core:2 pu:2", 1);
        let period_ns = 1 << 20;
        (1..500)
            .for_each(|step| bench.fair.rqs[0].clock.irq.update(step * period_ns, period_ns / 3));
        let left = CAPACITY - bench.fair.rqs[0].clock.irq.util();
        assert!((670..=690).contains(&left), "{left}");
        let group = [0, 1].map(|level| {
            let pass = Pass::new(&bench.fair, 0, 0, level, IdleType::Idle);
            let id = bench.fair.local_group(&pass, level);
            bench.fair.update_capacity(&bench.world, &pass, id);
            bench.fair.balance.capacity(id)
        });
        assert_eq!((bench.fair.rqs[0].capacity, group), (left, [left, left + CAPACITY]));
        assert!(!bench.fair.is_reduced_for_one(0, 117), "it runs nothing");
        bench.busy([0]);
        assert!(bench.fair.is_reduced_for_one(0, 117) && !bench.fair.is_reduced_for_one(1, 117));
    }
}
