//! Balancing and placement as 5.2 and 3.9 decide them: by load (kernel model, sections 7, 8 and 11).
//!
//! From 5.5 on groups of CPUs are of types, and what is moved is load, utilisation or tasks
//! (`crate::balance`). Before, there was one measure: the load of a CPU, in 5.2 the load average of
//! what is queued, in 3.9 the weight of it. A group that has more of it for its capacity than the
//! average gives to one that has less; where that would come to less than a task, a rule of its own
//! says whether a task is moved nevertheless.
//!
//! | module | what it does |
//! |---|---|
//! | [`groups`] | statistics of groups, the busiest one, its busiest queue |
//! | [`small`] | whether to move a task where the imbalance is less than one |
//! | [`v5_2`], [`v3_9`] | whether two groups are out of balance, and by how much |
//! | [`decayed`] | 3.9: the load of a CPU as balancing sees it |
//! | [`fork`] | the idlest group for a new task |
//! | [`wakeup`] | 3.9: where a woken task goes |
//! | [`idle_search`] | the search for an idle CPU near a target |
//! | [`nohz`] | 3.9: balancing for tickless CPUs |
//!
//! What both generations share is where the newer one has it: triggers and intervals, a pass with
//! its retries and failures, detaching and attaching, active balance, nohz balancing of 5.2; where they
//! differ in a detail that is asked for there.
//!
//! No kernel had the allowed imbalances of later versions (`numa-imbalance`, `llc-imbalance`) with
//! these balancers. Here they are adapted: see [`groups::left_alone`] and [`fork`].

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

/// Power of a CPU that shares its core with no other (SCHED_POWER_SCALE, later
/// SCHED_CAPACITY_SCALE), and the unit of loads per power.
pub(crate) const POWER_SCALE: u64 = 1024;

/// 3.9: power of a core whose CPUs are threads, shared by them (`smt_gain`, section 2).
const SMT_GAIN: u64 = 1178;

/// What loads are measured against (`cpu_power`, later `cpu_capacity`).
pub(crate) struct Power {
    of_cpu: Vec<u64>,
    of_group: Vec<u64>,
}

impl Power {
    /// The powers of a machine with these domains: in 3.9 the threads of a core share that of the
    /// core, later each thread counts as a CPU of its own.
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

/// Whether a pass that moved nothing shall push by stopper: any kind of imbalance counts (section
/// 10.10).
pub(crate) fn needs_active_balance(failed: u32, cache_nice_tries: u32) -> bool {
    failed > cache_nice_tries + 2
}

/// What a task counts against the load to move, or `None` if more than half of it is too much
/// (section 10.8).
pub(crate) fn counted(load: u64, amount: i64) -> Option<i64> {
    ((load / 2) as i64 <= amount).then_some(load as i64)
}
