//! Where a new task goes: the slow path of `select_task_rq_fair` (section 8).
//!
//! Begins at the highest domain that places new tasks. In each domain: finds the group with most
//! room and the idlest CPU in it, then continues with the domains of that CPU, until no smaller
//! domain is left.
//!
//! The engine has no exec. Its path differs only in the flag and in leaving out the task's own
//! load. A new task has no load yet and is on no queue, so nothing has to be left out of the
//! statistics here.

use std::cmp::Reverse;

use roost_engine::{CpuId, TaskId, Wake, World};
use roost_machine::CpuSet;
use roost_workload::Policy;

use crate::domain::{Domain, Flags, GroupId};
use crate::mechanisms::{Limit, Occupied};
use crate::state::{Fair, LINES_PER_QUEUE};
use crate::wakeup::allowed_or_fallback;

/// Full capacity of a CPU (SCHED_CAPACITY_SCALE).
const CAPACITY: u64 = 1024;

/// How full a group is, emptiest first (section 10.2). The balancer's other types need asymmetric
/// capacity or a destination that pulls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fullness {
    HasSpare,
    FullyBusy,
    /// Balancing inside it failed because of affinity.
    Imbalanced,
    Overloaded,
}

/// Sums over the CPUs of a group (section 10.1).
#[derive(Clone, Copy, Debug, Default)]
struct GroupLoad {
    cpus: u32,
    /// 1024 for each CPU, less what interrupts take.
    capacity: u64,
    load: u64,
    util: u64,
    runnable: u64,
    /// Tasks on the queues, those whose dequeue is delayed included.
    nr_running: u32,
    idle_cpus: u32,
    /// Balancing inside it failed because of affinity (`sgc->imbalance`).
    imbalanced: bool,
}

impl GroupLoad {
    /// `group_classify`.
    fn fullness(&self, imbalance_pct: u32) -> Fullness {
        let pct = u64::from(imbalance_pct);
        let runnable_fits = pct * self.capacity >= 100 * self.runnable;
        let overloaded = self.nr_running > self.cpus
            && (100 * self.capacity < pct * self.util || !runnable_fits);
        let has_capacity =
            self.nr_running < self.cpus || (runnable_fits && 100 * self.capacity > pct * self.util);
        if overloaded {
            Fullness::Overloaded
        } else if self.imbalanced {
            Fullness::Imbalanced
        } else if has_capacity {
            Fullness::HasSpare
        } else {
            Fullness::FullyBusy
        }
    }

    /// Load per CPU of full capacity (`avg_load`), for groups without spare capacity.
    fn avg_load(&self) -> u64 {
        self.load * CAPACITY / self.capacity.max(1)
    }

    /// `update_pick_idlest`: whether this group is idler than `best`, the idlest so far.
    fn is_idler_than(&self, best: &Self, imbalance_pct: u32) -> bool {
        let (this, that) = (self.fullness(imbalance_pct), best.fullness(imbalance_pct));
        if this != that {
            return this < that;
        }
        match this {
            Fullness::HasSpare => {
                self.idle_cpus > best.idle_cpus
                    || (self.idle_cpus == best.idle_cpus && self.util < best.util)
            }
            Fullness::FullyBusy | Fullness::Overloaded => self.avg_load() < best.avg_load(),
            Fullness::Imbalanced => false,
        }
    }
}

/// A group with its sums.
type Measured = (GroupId, GroupLoad);

/// Whether the loads alone say that a new task should leave the local group for `other`.
fn load_says_leave(domain: &Domain, local: &GroupLoad, other: &GroupLoad) -> bool {
    let pct = u64::from(domain.imbalance_pct);
    let imbalance = 1024 * (pct - 100) / 100;
    let (local, other) = (local.avg_load(), other.avg_load());
    // A lightly loaded node is not left for a node that looks emptier by less than a task's share.
    let near_enough = domain.has(Flags::NUMA) && other + imbalance >= local;
    !near_enough && other < local + imbalance && 100 * local > pct * other
}

/// The run queues that the search has read. Each is paid for once.
struct Visited<'a> {
    /// CPUs of the first domain searched. Later domains are smaller and usually part of it.
    span: Option<&'a CpuSet>,
    /// Time of all lines fetched, ns.
    ns: u64,
}

impl Fair {
    /// Chooses a CPU for the new `task`. Charges the search to the CPU that forks.
    pub(crate) fn select_task_rq_fork(
        &mut self,
        world: &mut World,
        task: TaskId,
        wake: Wake,
    ) -> CpuId {
        let prev = world.task_cpu(task);
        if world.nr_allowed(task) == 1 {
            return world.allowed(task).first().unwrap_or(prev);
        }
        let (cpu, ns) = self.find_idlest_cpu(world, task, wake.cpu, prev);
        world.charge(wake.cpu, ns);
        allowed_or_fallback(world, task, cpu)
    }

    /// Returns the CPU and the cost of finding it, ns.
    fn find_idlest_cpu(
        &self,
        world: &World,
        task: TaskId,
        forker: CpuId,
        prev: CpuId,
    ) -> (CpuId, u64) {
        let mut visited = Visited { span: None, ns: 0 };
        let Some(highest) = self.highest_fork_level(forker) else { return (prev, 0) };
        let span = &self.domain_at(forker, highest).span;
        if !span.intersects(world.allowed(task)) {
            return (prev, 0);
        }
        let mut cpu = forker;
        let mut level = Some(highest);
        while let Some(at) = level {
            level = at.checked_sub(1);
            let domain = self.domain_at(cpu, at);
            if !domain.has(Flags::BALANCE_FORK) {
                continue;
            }
            self.visit(world, forker, domain, &mut visited);
            let group = if self.features.placement.idlest_by_group_type {
                self.find_idlest_group(world, task, cpu, at)
            } else {
                self.find_idlest_group_by_load(world, task, cpu, at)
            };
            let Some(group) = group else { continue };
            let idlest = if self.features.placement.idlest_by_weight {
                self.find_lightest_cpu(world, task, cpu, group)
            } else {
                self.find_idlest_group_cpu(world, task, cpu, group)
            };
            if idlest != cpu {
                cpu = idlest;
                level = self.fork_level_below(cpu, domain.weight);
            }
        }
        (cpu, visited.ns)
    }

    fn domain_at(&self, cpu: CpuId, level: usize) -> &Domain {
        self.topology.domain(self.topology.domains_of(cpu)[level])
    }

    /// The walk of `select_task_rq_fair`: up to the first domain that does not place new tasks.
    fn highest_fork_level(&self, cpu: CpuId) -> Option<usize> {
        let domains = self.topology.domains_of(cpu).iter();
        let flagged =
            domains.take_while(|&&id| self.topology.domain(id).has(Flags::BALANCE_FORK)).count();
        flagged.checked_sub(1)
    }

    /// The highest domain of `cpu` that places new tasks, below the first domain with `weight` CPUs
    /// or more.
    fn fork_level_below(&self, cpu: CpuId, weight: u32) -> Option<usize> {
        let domains = self.topology.domains_of(cpu).iter().map(|&id| self.topology.domain(id));
        let smaller = domains.take_while(|domain| domain.weight < weight).enumerate();
        smaller.filter(|(_, domain)| domain.has(Flags::BALANCE_FORK)).map(|(at, _)| at).last()
    }

    /// Pays for the cache lines of a domain's run queues that have not been paid for yet.
    fn visit<'a>(
        &self,
        world: &World,
        forker: CpuId,
        domain: &'a Domain,
        visited: &mut Visited<'a>,
    ) {
        let pays = |cpu: CpuId| LINES_PER_QUEUE * world.machine().line_ns(cpu, forker);
        visited.ns += match visited.span {
            None => domain.span.iter().map(pays).sum::<u64>(),
            Some(span) if domain.span.is_subset(span) => 0,
            Some(span) => domain.span.iter().filter(|&cpu| !span.contains(cpu)).map(pays).sum(),
        };
        visited.span.get_or_insert(&domain.span);
    }

    /// `find_idlest_group`: a group of the domain of `cpu` at `level` that should take the task
    /// instead of the group of `cpu`.
    fn find_idlest_group(
        &self,
        world: &World,
        task: TaskId,
        cpu: CpuId,
        level: usize,
    ) -> Option<GroupId> {
        let domain = self.domain_at(cpu, level);
        let (local, idlest) = self.local_and_idlest_group(world, task, cpu, level);
        let (idlest, other) = idlest?;
        let Some((local, here)) = local else { return Some(idlest) };
        let full = here.fullness(domain.imbalance_pct);
        let other_full = other.fullness(domain.imbalance_pct);
        let leave = match full {
            _ if full != other_full => full > other_full,
            Fullness::HasSpare => match self.preferred_side(task, domain, cpu, idlest) {
                Some(leave) => leave,
                None => {
                    !self.node_may_keep(world, task, domain, local, &here, &other)
                        && here.idle_cpus < other.idle_cpus
                }
            },
            Fullness::FullyBusy | Fullness::Overloaded => load_says_leave(domain, &here, &other),
            Fullness::Imbalanced => false,
        };
        leave.then_some(idlest)
    }

    /// The group that holds `cpu`, and the idlest of the others, among groups with allowed CPUs.
    /// The round begins at the group of `cpu`. Of equally idle groups the first wins.
    fn local_and_idlest_group(
        &self,
        world: &World,
        task: TaskId,
        cpu: CpuId,
        level: usize,
    ) -> (Option<Measured>, Option<Measured>) {
        let domain = self.domain_at(cpu, level);
        let (before, after) = domain.groups.split_at(self.topology.local_group_index(cpu, level));
        let mut local = None;
        let mut idlest: Option<Measured> = None;
        for &id in after.iter().chain(before) {
            let group = self.topology.group(id);
            if !group.span.intersects(world.allowed(task)) {
                continue;
            }
            let load = self.group_load(world, task, id);
            if group.span.contains(cpu) {
                local = Some((id, load));
            } else if idlest.is_none_or(|(_, best)| load.is_idler_than(&best, domain.imbalance_pct))
            {
                idlest = Some((id, load));
            }
        }
        (local, idlest)
    }

    /// Between nodes: true (leave) if the idlest group is on the new task's preferred node, false
    /// (stay) if the local group is. `None` if neither is.
    fn preferred_side(
        &self,
        task: TaskId,
        domain: &Domain,
        cpu: CpuId,
        idlest: GroupId,
    ) -> Option<bool> {
        let preferred = self.tasks[task.index()].preferred_node?;
        let first = self.topology.group(idlest).span.first()?;
        let node = |cpu: CpuId| self.numa.node_of[cpu];
        match domain.has(Flags::NUMA) {
            true if node(cpu) == preferred => Some(false),
            true if node(first) == preferred => Some(true),
            _ => None,
        }
    }

    /// Between nodes: whether the local node may be ahead of the other (section 10.6, find_idlest).
    fn node_may_keep(
        &self,
        world: &World,
        task: TaskId,
        domain: &Domain,
        local: GroupId,
        here: &GroupLoad,
        other: &GroupLoad,
    ) -> bool {
        if !domain.has(Flags::NUMA) {
            return false;
        }
        let allowed = self.topology.group(local).span.count_and(world.allowed(task));
        let limit = Limit {
            span_weight: domain.weight,
            allowed: u32::try_from(allowed).unwrap_or(u32::MAX),
            imb_numa_nr: domain.imb_numa_nr,
        };
        let local = Occupied { running: here.nr_running, idle: here.idle_cpus };
        self.mechanisms.keeps_fork(local, other.idle_cpus, limit)
    }

    /// `update_sg_wakeup_stats`.
    fn group_load(&self, world: &World, task: TaskId, group: GroupId) -> GroupLoad {
        let imbalanced = self.balance.is_imbalanced(group);
        let cpus = self.topology.group(group).weight;
        let capacity = self.balance.capacity(group);
        let mut sums = GroupLoad { cpus, capacity, imbalanced, ..GroupLoad::default() };
        let allowed_only = self.features.placement.new_tasks_see_allowed_cpus
            && world.nr_allowed(task) < self.rqs.len();
        for cpu in self.topology.group(group).span.iter() {
            let rq = &self.rqs[cpu];
            if allowed_only && !world.allowed(task).contains(cpu) {
                continue;
            }
            sums.load += rq.avg.load_avg;
            sums.util += self.cpu_util(cpu);
            sums.runnable += rq.avg.runnable_avg;
            sums.nr_running += rq.nr_running;
            sums.idle_cpus += u32::from(rq.nr_running == 0 && world.is_idle(cpu));
        }
        sums
    }

    /// `find_idlest_group_cpu`. The idle CPU that is the first to be awake wins. Of several, it is the one that went
    /// idle last: its caches and its core are the warmest.
    fn find_idlest_group_cpu(
        &self,
        world: &World,
        task: TaskId,
        cpu: CpuId,
        group: GroupId,
    ) -> CpuId {
        let span = &self.topology.group(group).span;
        let mut best_idle: Option<(Reverse<u64>, u64, CpuId)> = None;
        let mut least_loaded: Option<(u64, CpuId)> = None;
        for candidate in span.iter().filter(|&cpu| world.allowed(task).contains(cpu)) {
            let displaces = !self.features.placement.new_tasks_see_allowed_cpus
                || world.policy(task) != Policy::Idle;
            if self.sched_idle_cpus.contains(candidate) && displaces {
                return candidate;
            }
            let rq = &self.rqs[candidate];
            if world.is_idle(candidate) {
                let (exit, since) =
                    (Reverse(world.idle_exit_ns(candidate)), rq.idle_since.unwrap_or(0));
                if best_idle.is_none_or(|(least, latest, _)| (exit, since) > (least, latest)) {
                    best_idle = Some((exit, since, candidate));
                }
            } else if least_loaded.is_none_or(|(least, _)| self.cpu_load(candidate) < least) {
                least_loaded = Some((self.cpu_load(candidate), candidate));
            }
        }
        let best_idle = best_idle.map(|(_, _, cpu)| cpu);
        best_idle.or(least_loaded.map(|(_, cpu)| cpu)).unwrap_or(cpu)
    }
}

#[cfg(test)]
mod tests;
