//! The CPU for a new task in 5.2 and 3.9: the idlest group by load (section 8). The walk down the
//! domains and, in 5.2, the choice among a group's CPUs are in `crate::fork`.
//!
//! The allowed imbalance between nodes is adapted: if it is switched on, a new task stays on the
//! local node while that node has an idle CPU and the number of its tasks is allowed, as in later
//! versions.

use roost_engine::{CpuId, TaskId, World};

use super::POWER_SCALE;
use crate::domain::{Domain, Flags, GroupId};
use crate::mechanisms::{Limit, Occupied};
use crate::state::Fair;

/// A group's load for the placement of a new task; loads are per power, scaled by 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Loads {
    /// Load of the queued tasks.
    runnable: u64,
    /// Load with sleepers included (5.2).
    average: u64,
}

/// Margins for choosing the idlest group, and for leaving the local group for it (5.2).
#[derive(Clone, Copy, Debug)]
struct Margins {
    /// Loads that differ by less count as about equal: a nice-0 task's load times the allowed
    /// imbalance.
    load: u64,
    /// If they do, averages have to differ by this, per cent.
    pct: u64,
}

impl Margins {
    fn of(imbalance_pct: u32) -> Self {
        let excess = u64::from(imbalance_pct) - 100;
        Self { load: 1024 * excess / 100, pct: 100 + excess / 2 }
    }

    /// Whether `group` replaces the idlest group so far. The result is what the next group is
    /// compared with: of two about equal loads it keeps the lower one.
    fn idler(self, group: Loads, idlest: Option<Loads>) -> Option<Loads> {
        let Some(least) = idlest else { return Some(group) };
        if least.runnable > group.runnable + self.load {
            return Some(group);
        }
        let close = group.runnable < least.runnable + self.load;
        (close && 100 * least.average > self.pct * group.average)
            .then_some(Loads { average: group.average, ..least })
    }

    /// Whether a task stays in the local group.
    fn stays(self, local: Loads, idlest: Loads, numa: bool) -> bool {
        (numa && idlest.runnable + self.load >= local.runnable)
            || idlest.runnable > local.runnable + self.load
            || (local.runnable < idlest.runnable + self.load
                && 100 * local.average < self.pct * idlest.average)
    }
}

impl Fair {
    /// `find_idlest_group`: a group of the domain of `cpu` at `level` that should take the task
    /// instead of the group of `cpu`.
    pub(crate) fn find_idlest_group_by_load(
        &self,
        world: &World,
        task: TaskId,
        cpu: CpuId,
        level: usize,
    ) -> Option<GroupId> {
        let domain = self.topology.domain(self.topology.domains_of(cpu)[level]);
        let by_weights = self.features.placement.idlest_by_weight;
        let margins = Margins::of(domain.imbalance_pct);
        let (before, after) = domain.groups.split_at(self.topology.local_group_index(cpu, level));
        let mut local = None;
        let mut idlest: Option<(GroupId, Loads)> = None;
        for &id in after.iter().chain(before) {
            let group = self.topology.group(id);
            if !group.span.intersects(world.allowed(task)) {
                continue;
            }
            let loads = self.loads_of(id);
            if group.span.contains(cpu) {
                local = Some((id, loads));
                continue;
            }
            let least = idlest.map(|(_, loads)| loads);
            let idler = if by_weights {
                least.is_none_or(|least| loads.runnable < least.runnable).then_some(loads)
            } else {
                margins.idler(loads, least)
            };
            idlest = idler.map(|loads| (id, loads)).or(idlest);
        }
        let (idlest, there) = idlest?;
        let Some((local, here)) = local else { return Some(idlest) };
        let stays = if by_weights {
            100 * here.runnable < margins.pct * there.runnable
        } else {
            margins.stays(here, there, domain.has(Flags::NUMA))
        };
        let kept = stays || self.node_keeps(world, task, domain, local, idlest);
        (!kept).then_some(idlest)
    }

    fn loads_of(&self, group: GroupId) -> Loads {
        let (mut runnable, mut average) = (0, 0);
        for cpu in self.topology.group(group).span.iter() {
            runnable += self.cpu_load(cpu);
            average += self.rqs[cpu].avg.load_avg;
        }
        let per_power = |load: u64| load * POWER_SCALE / self.power.of_group(group).max(1);
        Loads { runnable: per_power(runnable), average: per_power(average) }
    }

    /// Between nodes, if an allowed imbalance is switched on: whether the local node keeps the
    /// task.
    fn node_keeps(
        &self,
        world: &World,
        task: TaskId,
        domain: &Domain,
        local: GroupId,
        other: GroupId,
    ) -> bool {
        if !domain.has(Flags::NUMA) || !self.mechanisms.may_keep_forks() {
            return false;
        }
        let idle = |group: GroupId| {
            let span = self.topology.group(group).span.iter();
            span.filter(|&cpu| world.is_idle(cpu)).count() as u32
        };
        let (here, span) = (idle(local), &self.topology.group(local).span);
        let running = span.iter().map(|cpu| self.rqs[cpu].nr_running).sum();
        let allowed = span.count_and(world.allowed(task)) as u32;
        let imb_numa_nr = domain.imb_numa_nr;
        let limit = Limit { span_weight: domain.weight, allowed, imb_numa_nr };
        let local = Occupied { running, idle: here };
        here > 0 && self.mechanisms.keeps_fork(local, idle(other), limit)
    }

    /// 3.9: the CPU of a group with the least queued weight (`find_idlest_cpu`). Of equal CPUs
    /// `cpu` if it is one of them, else the first.
    pub(crate) fn find_lightest_cpu(
        &self,
        world: &World,
        task: TaskId,
        cpu: CpuId,
        group: GroupId,
    ) -> CpuId {
        let allowed = world.allowed(task);
        let cpus = self.topology.group(group).span.iter().filter(|&cpu| allowed.contains(cpu));
        cpus.min_by_key(|&other| (self.cpu_load(other), other != cpu)).unwrap_or(cpu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loads(runnable: u64, average: u64) -> Loads {
        Loads { runnable, average }
    }

    /// At 117 per cent loads within 174 are about equal, and averages have to differ by 8 per cent.
    #[test]
    fn the_idlest_group_has_clearly_less_queued_or_about_as_much_and_a_lower_average() {
        let margins = Margins::of(117);
        assert_eq!((margins.load, margins.pct), (174, 108));
        let idler = |group, least| margins.idler(group, Some(least)).is_some();
        assert!(margins.idler(loads(9999, 9999), None).is_some());
        assert!(idler(loads(825, 9999), loads(1000, 0)));
        assert!(!idler(loads(826, 1000), loads(1000, 1000)), "about equal");
        assert!(idler(loads(1173, 900), loads(1000, 1000)));
        assert!(!idler(loads(1173, 926), loads(1000, 1000)));
        assert!(!idler(loads(1174, 0), loads(1000, 1000)));
        let kept = margins.idler(loads(1173, 900), Some(loads(1000, 1000)));
        assert_eq!(kept, Some(loads(1000, 900)), "compared with the lower load from then on");
    }

    #[test]
    fn a_task_stays_unless_another_group_is_clearly_idler() {
        let stays = |local, other, numa| Margins::of(117).stays(local, other, numa);
        assert!(!stays(loads(1024, 1024), loads(0, 0), false));
        assert!(stays(loads(0, 0), loads(1024, 1024), false));
        assert!(!stays(loads(0, 0), loads(0, 0), false), "equal loads: the task leaves");
        assert!(stays(loads(0, 0), loads(0, 0), true), "equal loads: the task stays on the node");
        assert!(stays(loads(174, 0), loads(0, 0), true));
        assert!(!stays(loads(175, 0), loads(0, 0), true));
        assert!(stays(loads(100, 100), loads(0, 100), false), "about equal, and no lower average");
    }
}
