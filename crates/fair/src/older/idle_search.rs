//! The search for an idle CPU near a target in 5.2 and 3.9 (`select_idle_sibling`, sections 7.3 and
//! 7.4).
//!
//! ```text
//! 5.2  target, prev, recent ─ idle core ─ CPU by CPU, within a budget ─ sibling of target ─ target
//! 3.9  target, prev ─ from the LLC down: the first group of idle CPUs ────────────────────── target
//! ```
//!
//! CPUs that run only SCHED_IDLE tasks count as busy.

use roost_engine::{CpuId, TaskId, World};
use roost_machine::CpuSet;

use crate::domain::{DomainId, GroupId};
use crate::eras::IdleSearch;
use crate::features::SearchLimit;
use crate::idle_search::{Budget, Scan, prop_steps};
use crate::state::Fair;
use crate::wakeup::Lines;

/// A search may take this fraction of a CPU's average idle time: 1 / 512.
const IDLE_TIME_PART: u64 = 512;

impl Fair {
    /// Finds a CPU near `target` for `task`, which last ran on `prev`. Adds the time to `lines`.
    pub(crate) fn select_idle_sibling_older(
        &mut self,
        world: &World,
        task: TaskId,
        prev: CpuId,
        target: CpuId,
        lines: &mut Lines,
    ) -> CpuId {
        self.stats.sis_search += 1;
        self.stats.sis_scanned += 1;
        if let Some(cpu) = self.check_target_and_prev(world, prev, target, lines) {
            return cpu;
        }
        let for_group = self.features.placement.idle_search == IdleSearch::IdleGroup;
        if !for_group && let Some(cpu) = self.check_recent(world, task, prev, target, lines) {
            return cpu;
        }
        if self.topology.llc_level[target].is_none() {
            return target;
        }
        self.stats.sis_domain_search += 1;
        let before = lines.ns;
        let found = if for_group {
            self.search_idle_group(world, task, target, lines)
        } else {
            self.select_idle_core(world, task, target, lines)
                .or_else(|| self.select_idle_cpu_within(world, task, target, lines))
                .or_else(|| self.select_idle_sibling_of(world, task, target, lines))
        };
        self.stats.select_idle_cpu_us.record(lines.ns - before);
        found.unwrap_or_else(|| {
            self.stats.sis_failed += 1;
            target
        })
    }

    /// The target, or prev if it shares the target's LLC.
    fn check_target_and_prev(
        &self,
        world: &World,
        prev: CpuId,
        target: CpuId,
        lines: &mut Lines,
    ) -> Option<CpuId> {
        lines.look(world.machine(), target);
        if world.is_idle(target) {
            return Some(target);
        }
        if prev == target || !self.topology.share_llc(prev, target) {
            return None;
        }
        lines.look(world.machine(), prev);
        world.is_idle(prev).then_some(prev)
    }

    /// 5.2: the recently used CPU. If it is taken, prev replaces it.
    fn check_recent(
        &mut self,
        world: &World,
        task: TaskId,
        prev: CpuId,
        target: CpuId,
        lines: &mut Lines,
    ) -> Option<CpuId> {
        let recent = self.tasks[task.index()].recent_used_cpu;
        if recent == prev || recent == target || !self.topology.share_llc(recent, target) {
            return None;
        }
        lines.look(world.machine(), recent);
        let usable = world.is_idle(recent) && world.allowed(task).contains(recent);
        usable.then(|| {
            self.tasks[task.index()].recent_used_cpu = prev;
            recent
        })
    }

    /// The CPUs of the LLC of a CPU.
    fn llc_cpus(&self, cpu: CpuId) -> &CpuSet {
        &self.topology.llc_span[self.topology.llc_of[cpu] as usize]
    }

    /// 5.2: an idle core, if the LLC is known to have one. All CPUs of a core are examined.
    fn select_idle_core(
        &mut self,
        world: &World,
        task: TaskId,
        target: CpuId,
        lines: &mut Lines,
    ) -> Option<CpuId> {
        if !self.topology.smt_active {
            return None;
        }
        let llc = self.topology.llc_of[target] as usize;
        lines.fetch_shared(world.machine(), self.llcs[llc].last_writer);
        if !self.llcs[llc].has_idle_cores(world.now()) {
            return None;
        }
        let mut scan = Scan::new(world.machine(), &self.topology, lines.cpu, u64::MAX);
        let mut visited = CpuSet::new(self.rqs.len());
        let mut found = None;
        for cpu in self.llc_cpus(target).iter_wrap(target) {
            if !world.allowed(task).contains(cpu) || visited.contains(cpu) {
                continue;
            }
            let siblings = self.topology.siblings(cpu);
            visited.union_with(siblings);
            for sibling in siblings.iter() {
                scan.examine_some(sibling >> 6, 1 << (sibling & 63));
            }
            if siblings.is_subset(world.idle_cpus()) {
                found = Some(cpu);
                break;
            }
        }
        lines.ns += scan.cost_ns(target);
        self.stats.sis_scanned += scan.steps();
        if found.is_none() {
            self.clear_idle_cores(world, lines, target);
        }
        found
    }

    /// 5.2: examines CPUs in order from the target on, within a budget. Forbidden CPUs use up the
    /// budget too.
    fn select_idle_cpu_within(
        &mut self,
        world: &World,
        task: TaskId,
        target: CpuId,
        lines: &mut Lines,
    ) -> Option<CpuId> {
        let mut left = match self.budget_of(world, target, lines) {
            Budget::NoScan => return None,
            Budget::Unlimited => u64::MAX,
            Budget::Steps(steps) => steps,
        };
        let mut scan = Scan::new(world.machine(), &self.topology, lines.cpu, u64::MAX);
        let mut found = None;
        for cpu in self.llc_cpus(target).iter_wrap(target) {
            left -= 1;
            if left == 0 {
                self.mechanisms.on_search_ended();
                scan.count_step();
                break;
            }
            if !world.allowed(task).contains(cpu) {
                scan.count_step();
                continue;
            }
            scan.examine_some(cpu >> 6, 1 << (cpu & 63));
            if world.is_idle(cpu) {
                found = Some(cpu);
                break;
            }
        }
        let (ns, steps) = (scan.cost_ns(target), scan.steps());
        lines.ns += ns;
        self.stats.sis_scanned += steps;
        if left > 0 && self.features.switches.search_limit == SearchLimit::Proportion {
            self.account_scan_cost(lines.cpu, ns);
        }
        found
    }

    /// Number of CPUs that the search may visit, the step that gives up included.
    fn budget_of(&self, world: &World, target: CpuId, lines: &mut Lines) -> Budget {
        if let Some(bound) = self.search_budget(world, target, lines) {
            return bound;
        }
        let Some(level) = self.topology.llc_level[lines.cpu] else { return Budget::NoScan };
        if self.features.switches.search_limit != SearchLimit::Proportion {
            return Budget::Unlimited;
        }
        let rq = &self.rqs[lines.cpu];
        let cost = rq.domains[level].avg_scan_cost + 1;
        let idle = rq.avg_idle / IDLE_TIME_PART;
        Budget::Steps(prop_steps(self.topology.llc_size(target), idle, cost))
    }

    /// 5.2: an idle CPU of the target's core (`select_idle_smt`).
    fn select_idle_sibling_of(
        &mut self,
        world: &World,
        task: TaskId,
        target: CpuId,
        lines: &mut Lines,
    ) -> Option<CpuId> {
        if !self.topology.smt_active {
            return None;
        }
        let mut scan = Scan::new(world.machine(), &self.topology, lines.cpu, u64::MAX);
        let allowed = world.allowed(task);
        let mut siblings =
            self.topology.siblings(target).iter().filter(|&cpu| allowed.contains(cpu));
        let found = siblings.find(|&cpu| {
            scan.examine_some(cpu >> 6, 1 << (cpu & 63));
            world.is_idle(cpu)
        });
        lines.ns += scan.cost_ns(target);
        self.stats.sis_scanned += scan.steps();
        found
    }

    /// 3.9: the first group, from the target's LLC downwards, whose CPUs are all idle. Returns its
    /// first CPU where the task may run. The target is busy, so no group that holds it qualifies.
    fn search_idle_group(
        &mut self,
        world: &World,
        task: TaskId,
        target: CpuId,
        lines: &mut Lines,
    ) -> Option<CpuId> {
        let mut scan = Scan::new(world.machine(), &self.topology, lines.cpu, u64::MAX);
        let allowed = world.allowed(task);
        let top = self.topology.llc_level[target].map_or(0, |level| level + 1);
        let levels = self.topology.domains_of(target)[..top].iter().enumerate().rev();
        let mut groups = levels.flat_map(|(level, &id)| self.groups_from_own(target, level, id));
        let found = groups.find_map(|group| {
            let span = &self.topology.group(group).span;
            if !span.intersects(allowed) {
                return None;
            }
            let idle = span.iter().all(|cpu| {
                if cpu == target {
                    return false;
                }
                scan.examine_some(cpu >> 6, 1 << (cpu & 63));
                world.is_idle(cpu)
            });
            idle.then(|| span.iter().find(|&cpu| allowed.contains(cpu))).flatten()
        });
        drop(groups);
        lines.ns += scan.cost_ns(target);
        self.stats.sis_scanned += scan.steps();
        found
    }

    /// The groups of a domain of `cpu`, its own first.
    fn groups_from_own(
        &self,
        cpu: CpuId,
        level: usize,
        id: DomainId,
    ) -> impl Iterator<Item = GroupId> {
        let groups = &self.topology.domain(id).groups;
        let (before, after) = groups.split_at(self.topology.local_group_index(cpu, level));
        after.iter().chain(before).copied()
    }
}
