//! Statistics of the groups of a domain, the busiest group, and its busiest queue.

use roost_engine::{CpuId, World};

use super::{POWER_SCALE, v3_9, v5_2};
use crate::balance::{Imbalance, Migration, Pass, Rules};
use crate::domain::GroupId;
use crate::eras::GroupChoice;
use crate::numa::balance::Placed;
use crate::state::Fair;

/// Sums over the CPUs of a group (`struct sg_lb_stats`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupStats {
    /// Sum of the CPUs' loads; in 3.9 as the pass sees them ([`super::decayed`]).
    pub load: u64,
    /// Sum of the current loads (`sum_weighted_load`).
    pub queued: u64,
    /// Sum of `cpu_util`, 1024 per CPU.
    pub util: u64,
    /// Tasks on the queues.
    pub nr_running: u32,
    /// Idle CPUs.
    pub idle_cpus: u32,
    /// CPUs of the group.
    pub weight: u32,
    /// Power of the group, 1024 for a CPU with a whole core.
    pub power: u64,
    /// Lowest load of one CPU.
    pub least_load: u64,
    /// Highest load of one CPU.
    pub most_load: u64,
    /// Lowest number of tasks of one CPU.
    pub fewest: u32,
    /// Highest number of tasks of one CPU.
    pub most: u32,
    /// Balancing inside it failed because of affinity (5.2).
    pub pinned: bool,
}

impl GroupStats {
    /// Load per power, scaled by 1024 (`avg_load`).
    pub(crate) fn avg_load(&self) -> u64 {
        self.load * POWER_SCALE / self.power.max(1)
    }

    /// Average load of the group's tasks; 0 if it has none.
    pub(crate) fn load_per_task(&self) -> u64 {
        self.queued.checked_div(u64::from(self.nr_running)).unwrap_or(0)
    }

    /// Adds one CPU.
    fn add(&mut self, load: u64, queued: u64, util: u64, nr: u32, idle: bool) {
        self.queued += queued;
        self.least_load = self.least_load.min(load);
        self.most_load = self.most_load.max(load);
        self.fewest = self.fewest.min(nr);
        self.most = self.most.max(nr);
        self.load += load;
        self.util += util;
        self.nr_running += nr;
        self.idle_cpus += u32::from(idle);
    }
}

/// What a pass found out about a domain (`struct sd_lb_stats`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DomainStats {
    /// The group of the CPU that balances.
    pub local: GroupStats,
    /// The busiest other group.
    pub busiest: Option<GroupStats>,
    /// Load of all groups.
    pub total_load: u64,
    /// Power of all groups.
    pub total_power: u64,
}

impl DomainStats {
    /// Load per power of the domain, scaled by 1024.
    pub(crate) fn average_load(&self) -> u64 {
        self.total_load * POWER_SCALE / self.total_power.max(1)
    }
}

/// Whether the allowed imbalance of later versions, if switched on, leaves the imbalance alone.
///
/// This is an adaptation. Later balancers even out tasks while no group is full, and compare the
/// allowed imbalance with the number of tasks that they would move, half the difference. These
/// balancers even out load. So here the allowed imbalance is compared with the number of tasks,
/// while no group is full.
pub(crate) fn left_alone(local: &GroupStats, busiest: &GroupStats, rules: &Rules) -> bool {
    let full = |group: &GroupStats| group.nr_running >= group.weight;
    if full(local) || full(busiest) || rules.tolerance.is_none() {
        return false;
    }
    let (here, there) = (local.nr_running, busiest.nr_running);
    let amount = rules.tolerance.between_llcs(u64::from(there.saturating_sub(here)) / 2);
    rules.tolerance.between_nodes(amount, here, there, busiest.weight) == 0
}

impl Fair {
    /// The group to pull load from, and how much (`find_busiest_group`).
    pub(crate) fn busiest_group_by_load(
        &mut self,
        world: &World,
        pass: &Pass,
        rules: &Rules,
    ) -> Option<(Imbalance, GroupId)> {
        let (stats, busiest) = self.domain_loads(world, pass, rules);
        let by_weights = self.features.balance.groups == GroupChoice::Weights;
        let decide = if by_weights { v3_9::decide } else { v5_2::decide };
        let amount = decide(&stats, rules);
        if amount.is_none() {
            self.note_balance(rules, |other| decide(&stats, other).is_some());
        }
        amount.map(|amount| Imbalance { kind: Migration::Load, amount }).zip(busiest)
    }

    /// Statistics of all groups of the pass's domain, and the busiest group.
    fn domain_loads(
        &mut self,
        world: &World,
        pass: &Pass,
        rules: &Rules,
    ) -> (DomainStats, Option<GroupId>) {
        let nr_groups = self.topology.domain(pass.domain).groups.len();
        let local = self.topology.local_group_index(pass.cpu, pass.level);
        let by_weights = self.features.balance.groups == GroupChoice::Weights;
        let (mut stats, mut busiest) = (DomainStats::default(), None);
        let (mut util, mut overloaded) = (0, false);
        for position in (local..nr_groups).chain(0..local) {
            let id = self.topology.domain(pass.domain).groups[position];
            let group = self.group_loads(world, pass, id, &mut overloaded);
            stats.total_load += group.load;
            stats.total_power += group.power;
            util += group.util;
            // If groups overlap, several may hold the destination in 3.9: the last one counts.
            if self.topology.group(id).span.contains(pass.dst) {
                stats.local = group;
                continue;
            }
            let busier = if by_weights { v3_9::is_busier } else { v5_2::is_busier };
            if busier(&group, stats.busiest.as_ref(), &stats.local, rules) {
                (stats.busiest, busiest) = (Some(group), Some(id));
            }
        }
        self.end_statistics(world, pass, util, overloaded);
        (stats, busiest)
    }

    /// Sums over the CPUs of a group that the pass considers. Sets `overloaded` if one of them has
    /// several tasks.
    fn group_loads(
        &self,
        world: &World,
        pass: &Pass,
        id: GroupId,
        overloaded: &mut bool,
    ) -> GroupStats {
        let group = self.topology.group(id);
        let average = self.average_for(self.topology.domain(pass.domain), pass.idle);
        let own = group.span.contains(pass.dst);
        let mut stats = GroupStats {
            weight: group.weight,
            power: self.power.of_group(id),
            least_load: u64::MAX,
            fewest: u32::MAX,
            pinned: self.balance.is_imbalanced(id),
            ..GroupStats::default()
        };
        self.balance.for_each_considered(id, &group.span, |cpu| {
            let nr = self.rqs[cpu].nr_running;
            let idle = nr == 0 && world.is_idle(cpu);
            let load = self.load_seen(cpu, average, own);
            stats.add(load, self.cpu_load(cpu), self.cpu_util(cpu), nr, idle);
            *overloaded |= nr > 1;
        });
        stats
    }

    /// The queue of `group` to pull from (section 11): the one with the highest load per power.
    /// Queues with a single task heavier than the amount to move are skipped.
    pub(crate) fn busiest_queue_by_load(&self, pass: &Pass, group: GroupId) -> Option<CpuId> {
        let (mut busiest, mut most, mut its_power) = (None, 0, 1);
        for cpu in self.balance.considered(group, &self.topology.group(group).span) {
            if Placed::of_queue(&self.rqs[cpu]) > pass.placed {
                continue;
            }
            let (load, power) = (self.cpu_load(cpu), self.power.of_cpu(cpu));
            if self.rqs[cpu].nr_running == 1 && load as i64 > pass.amount {
                continue;
            }
            if load * its_power > most * power {
                (busiest, most, its_power) = (Some(cpu), load, power);
            }
        }
        Some(self.source_queue(pass, busiest?, group))
    }
}
