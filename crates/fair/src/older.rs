//! Balancing and placement of 5.2 and 3.9, which decide by load (kernel model, sections 7, 8 and
//! 11).
//!
//! From 5.5 on groups of CPUs have types, and a pass moves load, utilisation or tasks
//! (`crate::balance`). Before, there was one measure: the load of a CPU. In 5.2 it is the load
//! average of the queued tasks, in 3.9 their weight. A group with more load per capacity than the
//! average gives load to a group with less. If that amount is less than one task, a separate rule
//! decides whether a task moves anyway.
//!
//! | module | what it does |
//! |---|---|
//! | [`groups`] | statistics of groups, the busiest group and its busiest queue |
//! | [`small`] | whether to move a task if the imbalance is less than one task |
//! | [`v5_2`], [`v3_9`] | whether two groups are out of balance, and by how much |
//! | [`decayed`] | 3.9: the load of a CPU that balancing uses |
//! | [`fork`] | the idlest group for a new task |
//! | [`wakeup`] | 3.9: the CPU for a woken task |
//! | [`idle_search`] | the search for an idle CPU near a target |
//! | [`nohz`] | 3.9: balancing for tickless CPUs |
//!
//! The parts that both generations share are in the newer modules: triggers and intervals, a pass
//! with its retries and failures, detaching and attaching, active balance, and nohz balancing of
//! 5.2. Those modules check the version where a detail differs.
//!
//! No kernel combined these balancers with the allowed imbalances of later versions
//! (`numa-imbalance`, `llc-imbalance`). Here the allowed imbalances are adapted to them: see
//! [`groups::left_alone`] and [`fork`].

pub(crate) mod decayed;
pub(crate) mod fork;
pub(crate) mod groups;
mod idle_search;
mod nohz;
pub(crate) mod small;
pub(crate) mod v3_9;
pub(crate) mod v5_2;
mod wakeup;

#[cfg(test)]
mod tests;

use roost_engine::CpuId;

use crate::domain::{Flags, GroupId, Topology};
use crate::features::Features;

/// Power of a CPU that shares its core with no other CPU (SCHED_POWER_SCALE, later
/// SCHED_CAPACITY_SCALE). Also the scale of loads per power.
pub(crate) const POWER_SCALE: u64 = 1024;

/// 3.9: power of a core with several threads, which they share (`smt_gain`, section 2).
const SMT_GAIN: u64 = 1178;

/// The power that loads are divided by (`cpu_power`, later `cpu_capacity`).
pub(crate) struct Power {
    of_cpu: Vec<u64>,
    of_group: Vec<u64>,
}

impl Power {
    /// The powers of a machine with these domains. In 3.9 the threads of a core share the core's
    /// power; later each thread counts as a whole CPU.
    pub(crate) fn new(topology: &Topology, features: &Features) -> Self {
        let threads = |cpu: CpuId| {
            let lowest = topology.domains_of(cpu).first().map(|&id| topology.domain(id));
            lowest.filter(|domain| domain.has(Flags::SHARE_CPUCAPACITY)).map(|domain| domain.weight)
        };
        let of_cpu: Vec<u64> = (0..topology.of_cpu.len())
            .map(|cpu| match threads(cpu) {
                Some(threads) if features.balance.threads_share_power => {
                    SMT_GAIN / u64::from(threads)
                }
                _ => POWER_SCALE,
            })
            .collect();
        let sum = |cpus: &roost_machine::CpuSet| cpus.iter().map(|cpu| of_cpu[cpu]).sum();
        let of_group = topology.groups.iter().map(|group| sum(&group.span)).collect();
        Self { of_cpu, of_group }
    }

    /// Power of a CPU.
    pub(crate) fn of_cpu(&self, cpu: CpuId) -> u64 {
        self.of_cpu[cpu]
    }

    /// Power of the CPUs of a group.
    pub(crate) fn of_group(&self, group: GroupId) -> u64 {
        self.of_group[group]
    }
}

/// Whether a pass that moved nothing shall use active balance. Any kind of imbalance counts
/// (section 10.10).
pub(crate) fn needs_active_balance(failed: u32, cache_nice_tries: u32) -> bool {
    failed > cache_nice_tries + 2
}

/// What a task counts against the load to move, or `None` if half of its load is already too much
/// (section 10.8).
pub(crate) fn counted(load: u64, amount: i64) -> Option<i64> {
    ((load / 2) as i64 <= amount).then_some(load as i64)
}
