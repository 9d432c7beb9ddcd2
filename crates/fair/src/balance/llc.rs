//! Balancing between LLCs for cache-aware scheduling (7.2; kernel model, section 13): which tasks
//! may move between LLCs, and which groups have tasks that prefer another LLC.

use roost_engine::{CpuId, TaskId, World};

use super::groups::GroupStats;
use super::imbalance::Migration;
use super::pass::Pass;
use crate::domain::{Flags, GroupId};
use crate::state::{Fair, LlcShared};
use crate::stats::IdleType;
use crate::tunables::Gather;

/// Whether a task may move from one LLC to another (`enum llc_mig`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LlcMove {
    /// No: it stays where its process gathers (`mig_forbid`).
    Forbid,
    /// Yes: the destination is its preferred LLC, or it may leave that one (`mig_llc`).
    ForLlc,
    /// The LLCs do not matter (`mig_unrestricted`).
    Unrestricted,
}

/// The limits of an LLC's utilisation.
#[derive(Clone, Copy, Debug)]
struct Limits {
    gather: Gather,
    threads_per_core: u64,
}

/// How much of an LLC is used, as of the last pass above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LlcUse {
    /// Sum of its CPUs' `cpu_util`.
    util: u64,
    /// Its capacity.
    capacity: u64,
}

impl LlcUse {
    /// Whether it has room for tasks to gather (`fits_llc_capacity`). Without SMT it takes half as
    /// much again.
    fn fits(self, limits: Limits) -> bool {
        let pct = u64::from(limits.gather.overaggr_pct);
        let pct = if limits.threads_per_core == 1 { pct * 3 / 2 } else { pct };
        100 * self.util < pct * self.capacity
    }

    /// Whether it is noticeably busier than another LLC (`util_greater`).
    fn greater(self, other: Self, limits: Limits) -> bool {
        100 * self.util > (100 + u64::from(limits.gather.imb_pct)) * other.util
    }
}

/// Whether a task of utilisation `util` may move between two LLCs, one of which is its preferred
/// one: the destination if `to_preferred`, otherwise the source (`can_migrate_llc`).
fn can_migrate_llc(
    src: LlcUse,
    dst: LlcUse,
    util: u64,
    to_preferred: bool,
    limits: Limits,
) -> LlcMove {
    let src = LlcUse { util: src.util.saturating_sub(util), ..src };
    let dst = LlcUse { util: dst.util + util, ..dst };
    let (src_fits, dst_fits) = (src.fits(limits), dst.fits(limits));
    if !src_fits && !dst_fits {
        return LlcMove::Unrestricted;
    }
    let forbid = match to_preferred {
        true => !dst_fits && dst.greater(src, limits),
        false => src_fits || !src.greater(dst, limits),
    };
    if forbid { LlcMove::Forbid } else { LlcMove::ForLlc }
}

impl Fair {
    /// Records how much of an LLC is used, if the pass has each LLC as one group: at the level
    /// above the LLCs, except in newly-idle passes (`record_sg_llc_stats`).
    pub(super) fn record_llc_use(
        &mut self,
        world: &World,
        pass: &Pass,
        id: GroupId,
        group: &GroupStats,
    ) {
        let topology = &self.topology;
        let above = topology.llc_level[pass.dst].is_some_and(|level| level + 1 == pass.level);
        if !self.cache.active || !above || pass.idle == IdleType::NewlyIdle {
            return;
        }
        let first = topology.group(id).span.first();
        let Some(first) = first.filter(|&cpu| topology.llc_level[cpu].is_some()) else { return };
        let llc = &mut self.llcs[topology.llc_of[first] as usize];
        if (llc.util, llc.capacity) != (group.util, group.capacity) {
            (llc.util, llc.capacity) = (group.util, group.capacity);
            let writer = std::mem::replace(&mut llc.last_writer, pass.executor);
            self.balance.fetch(world, writer, pass.executor, 1);
        }
    }

    /// How much of the LLC of `cpu` is used; `None` if it has no LLC.
    fn llc_use(&self, cpu: CpuId) -> Option<LlcUse> {
        self.topology.llc_level[cpu]?;
        let LlcShared { util, capacity, .. } = self.llcs[self.topology.llc_of[cpu] as usize];
        Some(LlcUse { util, capacity })
    }

    /// [`can_migrate_llc`] between the LLCs of two CPUs.
    fn may_change_llc(&self, src: CpuId, dst: CpuId, util: u64, to_preferred: bool) -> LlcMove {
        match self.llc_use(src).zip(self.llc_use(dst)) {
            Some((src, dst)) => {
                let gather = self.features.tunables.gather;
                let limits = Limits { gather, threads_per_core: self.cache.threads_per_core };
                can_migrate_llc(src, dst, util, to_preferred, limits)
            }
            None => LlcMove::Unrestricted,
        }
    }

    /// The LLC that the pass gathers tasks on, if its domain is larger than that LLC and some task
    /// may prefer it.
    pub(super) fn llc_to_gather_on(&self, pass: &Pass) -> Option<u32> {
        let beyond = !self.topology.domain(pass.domain).has(Flags::SHARE_LLC);
        (self.cache.any_preferred && beyond).then(|| self.topology.llc_of[pass.dst])
    }

    /// Number of tasks on the queues of a group, outside `llc`, that prefer `llc`.
    pub(super) fn nr_preferring(&self, id: GroupId, llc: u32) -> u32 {
        let mut preferring = 0;
        self.balance.for_each_considered(id, &self.topology.group(id).span, |cpu| {
            preferring += self.rqs[cpu].cache.nr_preferring_other(llc);
        });
        preferring
    }

    /// Whether the destination's LLC should pull a task that prefers it from a group
    /// (`llc_balance`). Not used for the local group.
    pub(super) fn wants_llc_balance(&self, pass: &Pass, id: GroupId, group: &GroupStats) -> bool {
        if group.nr_pref_dst_llc == 0 || self.ignores_llcs(pass) {
            return false;
        }
        let first = self.topology.group(id).span.first();
        first.is_some_and(|cpu| self.may_change_llc(cpu, pass.dst, 0, true) == LlcMove::ForLlc)
    }

    /// Whether the pass's level failed so often that preferred LLCs no longer count.
    fn ignores_llcs(&self, pass: &Pass) -> bool {
        self.failures(pass) > self.topology.domain(pass.domain).cache_nice_tries
    }

    /// Whether moving `task` would take it away from where its process gathers, or to a wrong LLC
    /// in a pass that moves tasks to their preferred LLC (`migrate_degrades_llc`).
    pub(super) fn degrades_llc(&mut self, world: &World, pass: &Pass, task: TaskId) -> bool {
        if !self.cache.active || self.ignores_llcs(pass) {
            return false;
        }
        self.goes_elsewhere(pass, task)
            || self.may_move_task_to_llc(world, pass, task) == LlcMove::Forbid
    }

    /// Whether the pass moves tasks to their preferred LLC and `task` does not prefer the
    /// destination's (`migrate_llc_task_wrong_dst`).
    pub(super) fn goes_elsewhere(&self, pass: &Pass, task: TaskId) -> bool {
        let brings_home = pass.kind == Migration::LlcTask || pass.for_llc;
        let home = self.topology.llc_of[pass.dst];
        self.cache.active && brings_home && self.tasks[task.index()].preferred_llc != Some(home)
    }

    /// Whether the LLCs allow `task` to move (`can_migrate_llc_task`). It depends on the preference
    /// of the process, not on the task's copy of it.
    fn may_move_task_to_llc(&mut self, world: &World, pass: &Pass, task: TaskId) -> LlcMove {
        let (src, dst) = (pass.src, pass.dst);
        if self.topology.share_llc(src, dst) {
            return LlcMove::Unrestricted;
        }
        let Some(gathering) = self.gathering_at(world, task, dst) else {
            return LlcMove::Unrestricted;
        };
        let to_preferred = self.topology.share_llc(dst, gathering);
        if !to_preferred && !self.topology.share_llc(src, gathering) {
            return LlcMove::Unrestricted;
        }
        self.may_change_llc(src, dst, self.tasks[task.index()].avg.util_avg, to_preferred)
    }

    /// Whether the tasks of the source shall not be pushed to the destination: all of them prefer
    /// their present LLC, and there is only one or the LLCs forbid the move (`alb_break_llc`).
    pub(super) fn keeps_llc(&self, pass: &Pass) -> bool {
        let rq = &self.rqs[pass.src];
        let all_at_home =
            rq.cache.nr_pref_llc_running > 0 && rq.cache.nr_pref_llc_running == rq.nr_runnable;
        if !all_at_home || self.topology.share_llc(pass.src, pass.dst) {
            return false;
        }
        let util = rq.current.map_or(0, |task| self.tasks[task.index()].avg.util_avg);
        rq.nr_running <= 1
            || self.may_change_llc(pass.src, pass.dst, util, false) == LlcMove::Forbid
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tunables::Tunables;

    /// An LLC of ten CPUs of which `pct` per cent are used.
    fn used(pct: u64) -> LlcUse {
        LlcUse { util: 1024 * pct / 10, capacity: 10_240 }
    }

    /// The kernel's limits.
    fn limits(threads_per_core: u64) -> Limits {
        Limits { gather: Tunables::SINCE_5_2.gather, threads_per_core }
    }

    /// Rows are the source, used to 30, 40, 50, 60 per cent; columns are the destination. From 50
    /// on an LLC has no room. 40 is greater than 30, 50 than 40, and 60 than 40, but not than 50.
    #[test]
    fn decisions_by_use_of_both_llcs() {
        let table = |to_preferred| -> Vec<String> {
            let letter = |src, dst| match can_migrate_llc(
                used(src),
                used(dst),
                0,
                to_preferred,
                limits(2),
            ) {
                LlcMove::Forbid => 'N',
                LlcMove::ForLlc => 'Y',
                LlcMove::Unrestricted => 'G',
            };
            let row = |src| [30, 40, 50, 60].map(|dst| letter(src, dst)).into_iter().collect();
            [30, 40, 50, 60].map(row).to_vec()
        };
        assert_eq!(table(true), ["YYNN", "YYNN", "YYGG", "YYGG"]);
        assert_eq!(table(false), ["NNNN", "NNNN", "YYGG", "YYGG"]);
    }

    #[test]
    fn the_tasks_own_use_moves_with_it() {
        let task = 1024;
        // 45 % and 10 % more do not fit, and 55 is more than 1.2 * (50 - 10).
        assert_eq!(can_migrate_llc(used(50), used(45), task, true, limits(2)), LlcMove::Forbid);
        assert_eq!(
            can_migrate_llc(used(60), used(45), task, true, limits(2)),
            LlcMove::Unrestricted
        );
        assert_eq!(can_migrate_llc(used(59), used(45), task, true, limits(2)), LlcMove::ForLlc);
        // Without the task less than half of the preferred LLC would be used.
        assert_eq!(can_migrate_llc(used(59), used(10), task, false, limits(2)), LlcMove::Forbid);
        assert_eq!(can_migrate_llc(used(60), used(10), task, false, limits(2)), LlcMove::ForLlc);
        let small = LlcUse { util: 5, capacity: 10_240 };
        assert_eq!(
            can_migrate_llc(small, used(0), task, true, limits(2)),
            LlcMove::ForLlc,
            "the utilisation does not go below 0"
        );
    }

    #[test]
    fn room_ends_at_half_of_an_llc_or_three_quarters_without_smt() {
        let last = |threads| (0..=100).rev().find(|&pct| used(pct).fits(limits(threads)));
        assert_eq!((last(2), last(4), last(1)), (Some(49), Some(49), Some(74)));
        let unknown = LlcUse { util: 0, capacity: 0 };
        assert!(!unknown.fits(limits(2)), "before the first pass nothing is known");
        assert_eq!(can_migrate_llc(unknown, unknown, 0, true, limits(2)), LlcMove::Unrestricted);
    }

    #[test]
    fn greater_means_by_more_than_a_fifth() {
        let of = |util| LlcUse { util, capacity: 10_240 };
        assert!(!of(1200).greater(of(1000), limits(2)));
        assert!(of(1201).greater(of(1000), limits(2)));
        assert!(!of(0).greater(of(0), limits(2)));
    }
}
