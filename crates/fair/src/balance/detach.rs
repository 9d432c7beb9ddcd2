//! The busiest queue of a group, and the choice of tasks to move (kernel model, sections 10.7 to
//! 10.9).

use roost_engine::{CpuId, TaskId, World};
use roost_workload::Policy;

use super::capacity::is_reduced;
use super::imbalance::Migration;
use super::pass::Pass;
use super::{CAPACITY, LINES_PER_LOCK, LINES_PER_MOVE, LINES_PER_TASK};
use crate::domain::{Flags, GroupId};
use crate::eras::GroupChoice;
use crate::numa::balance::{Locality, Placed};
use crate::state::{Fair, Rq};
use crate::stats::{IdleType, LbStats};

/// Whether a task may be moved (`can_migrate_task`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MayMove {
    /// It may not.
    No,
    /// It may.
    Yes,
    /// Its cache is hot, but balancing has failed so often that it may move anyway.
    Hot,
}

/// A CPU as a source of tasks (`find_busiest_queue`), in each of the measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Source {
    load: u64,
    util: u64,
    nr_runnable: u32,
    capacity: u64,
    /// Tasks that prefer the destination's LLC.
    nr_pref_dst_llc: u32,
}

impl Source {
    /// `boosted`: waiting tasks count as utilisation (6.x, `cpu_util_cfs_boost`).
    fn of(rq: &Rq, boosted: bool, dst_llc: u32) -> Self {
        let util = rq.avg.util_avg.max(rq.util_est);
        let util = if boosted { util.max(rq.avg.runnable_avg) } else { util };
        Self {
            load: rq.avg.load_avg,
            util: util.min(CAPACITY),
            nr_runnable: rq.nr_runnable,
            capacity: rq.capacity,
            nr_pref_dst_llc: rq.cache.nr_preferring(dst_llc),
        }
    }

    /// Its rank among sources, or `None` if it cannot be a source. Of equal ranks the first counts,
    /// and only ranks above 0 count. Loads are compared per capacity: with these fraction bits
    /// different quotients have different ranks.
    fn rank(&self, kind: Migration, amount: i64, imbalance_pct: u32) -> Option<u64> {
        let single = self.nr_runnable == 1 && !is_reduced(self.capacity, imbalance_pct);
        match (kind, self.nr_runnable) {
            (_, 0) => None,
            (Migration::Load, _) if single && self.load as i64 > amount => None,
            (Migration::Load, _) => Some((self.load << 24) / self.capacity),
            (Migration::Util, _) if self.nr_runnable == 1 => None,
            (Migration::Util, _) => Some(self.util),
            (Migration::Task, nr) => Some(u64::from(nr)),
            (Migration::LlcTask, _) => Some(u64::from(self.nr_pref_dst_llc)),
        }
    }
}

/// What a task counts against the amount to move, or `None` if it is too much. Each failed pass
/// halves the value that is checked. The value that is subtracted is not halved.
fn counted(value: u64, failed: u32, amount: i64) -> Option<i64> {
    let relaxed = value >> failed.min(63);
    (relaxed as i64 <= amount).then_some(value as i64)
}

/// Whether the data of a task that began to run at `exec_start` is still in the caches. 0 means
/// that it has not run since it last moved.
fn ran_recently(now_ns: u64, exec_start: u64, migration_cost_ns: u64) -> bool {
    exec_start != 0 && now_ns.saturating_sub(exec_start) < migration_cost_ns
}

impl Fair {
    /// Classifies a group by its tasks' preferred nodes (`fbq_classify_group`).
    pub(super) fn placed_group(&self, group: GroupId) -> Placed {
        let (mut running, mut preferring, mut at_home) = (0, 0, 0);
        for cpu in self.balance.considered(group, &self.topology.group(group).span) {
            let rq = &self.rqs[cpu];
            running += rq.nr_runnable;
            preferring += rq.nr_numa_running;
            at_home += rq.nr_preferred_running;
        }
        Placed::of(running, preferring, at_home)
    }

    /// The queue of `group` to pull from.
    pub(super) fn busiest_queue(&self, pass: &Pass, group: GroupId) -> Option<CpuId> {
        let boosted = self.features.balance.boosted_util;
        let dst_llc = self.topology.llc_of[pass.dst];
        let pct = self.topology.domain(pass.domain).imbalance_pct;
        let (mut best, mut busiest) = (0, None);
        for cpu in self.balance.considered(group, &self.topology.group(group).span) {
            if Placed::of_queue(&self.rqs[cpu]) > pass.placed {
                continue;
            }
            let source = Source::of(&self.rqs[cpu], boosted, dst_llc);
            if let Some(rank) = source.rank(pass.kind, pass.amount, pct)
                && rank > best
            {
                (best, busiest) = (rank, Some(cpu));
            }
        }
        Some(self.source_queue(pass, busiest?, group))
    }

    /// Limits how many tasks of the source are examined.
    pub(super) fn limit_looks(&self, pass: &mut Pass) {
        pass.look_at_most = self.rqs[pass.src].nr_running.min(self.features.tunables.nr_migrate);
    }

    /// Moves tasks from the pass's source to its destination. Returns their number. (The kernel
    /// drops the source's lock every 32 tasks; here nothing can happen in between.)
    pub(super) fn move_tasks(&mut self, world: &mut World, pass: &mut Pass) -> u32 {
        self.balance.fetch(world, pass.src, pass.executor, LINES_PER_LOCK);
        pass.wanted = self.first_wanted(pass);
        self.detach_tasks(world, pass);
        if self.next_wanted(pass, self.balance.detached.len()) {
            pass.looked_at = 0;
            self.detach_tasks(world, pass);
        }
        let moved = self.balance.detached.len() as u32;
        if moved > 0 {
            self.balance.pay(world, pass.executor);
            // The list is filled and emptied at its head.
            while let Some(task) = self.balance.detached.pop() {
                self.attach_queued(world, task, pass.dst, pass.executor);
            }
        }
        self.lb_stats(pass).gained += u64::from(moved);
        moved
    }

    /// Takes tasks off the source until the amount is reached, least recently run first.
    fn detach_tasks(&mut self, world: &mut World, pass: &mut Pass) {
        if self.rqs[pass.src].nr_running <= 1 {
            pass.all_pinned = false;
            return;
        }
        if pass.amount <= 0 {
            return;
        }
        let era = self.features.balance;
        while let Some(task) = self.next_to_look_at(pass.src) {
            // An idle CPU does not pull the last task, because the source would pull it back.
            let last = self.rqs[pass.src].nr_running <= 1 && !era.takes_last_task;
            if pass.idle != IdleType::Busy && last {
                return;
            }
            pass.looked_at += 1;
            if pass.looked_at > pass.look_at_most {
                return;
            }
            self.balance.fetch(world, pass.src, pass.executor, LINES_PER_TASK);
            // 3.9 does not check whether a task may move if it is too large: it then counts as
            // pinned.
            let unasked = self.refuses_unasked(world, pass, task)
                || (era.amount_before_may_move && self.counted_for(pass, task).is_none());
            let may_move = if unasked { MayMove::No } else { self.may_move(world, pass, task) };
            let counted = match may_move {
                MayMove::No => None,
                MayMove::Yes | MayMove::Hot => self.counted_for(pass, task),
            };
            let Some(counted) = counted else {
                if may_move == MayMove::Hot && era.counts_hot_too_much {
                    self.stats.nr_failed_migrations_hot += 1;
                }
                self.pass_over(pass.src);
                continue;
            };
            pass.amount -= counted;
            self.detach(world, pass, task, may_move == MayMove::Hot);
            self.balance.detached.push(task);
            // Preemptible kernels keep newly-idle balancing short: one task.
            if pass.idle == IdleType::NewlyIdle || pass.amount <= 0 {
                return;
            }
        }
    }

    /// The task of a source to examine next: from the tail of the list, in 3.9 from its head.
    fn next_to_look_at(&self, src: CpuId) -> Option<TaskId> {
        let queue = &self.rqs[src].queue;
        if self.features.balance.in_queued_order { queue.list_head() } else { queue.list_tail() }
    }

    /// Moves the task just examined to the other end of the list.
    fn pass_over(&mut self, src: CpuId) {
        let queue = &mut self.rqs[src].queue;
        if self.features.balance.in_queued_order {
            queue.move_head_to_tail();
        } else {
            queue.move_tail_to_head();
        }
    }

    /// What moving the task counts, unless that is too much.
    fn counted_for(&self, pass: &Pass, task: TaskId) -> Option<i64> {
        let state = &self.tasks[task.index()];
        let failed = self.failures(pass);
        match pass.kind {
            Migration::Load if self.features.balance.groups != GroupChoice::Types => {
                crate::older::counted(self.task_load(task), pass.amount)
            }
            Migration::Load => counted(self.task_load(task).max(1), failed, pass.amount),
            Migration::Util => {
                let failed = if self.features.balance.util_shift { failed } else { 0 };
                counted(state.avg.util_avg.max(state.util_est), failed, pass.amount)
            }
            Migration::Task | Migration::LlcTask => Some(1),
        }
    }

    /// Detaches one task from the source.
    fn detach(&mut self, world: &mut World, pass: &Pass, task: TaskId, hot: bool) {
        if hot {
            self.lb_stats(pass).hot_gained += 1;
            self.stats.nr_forced_migrations += 1;
        }
        self.balance.fetch(world, pass.src, pass.executor, LINES_PER_MOVE);
        self.detach_queued(world, task, pass.src, pass.executor);
    }

    /// Moves the first task that may move (`detach_one_task`, for active balance).
    pub(super) fn move_one(&mut self, world: &mut World, pass: &mut Pass) -> bool {
        pass.wanted = self.first_wanted(pass);
        let moved = self.move_first(world, pass);
        if self.next_wanted(pass, usize::from(moved)) {
            return self.move_first(world, pass);
        }
        moved
    }

    fn move_first(&mut self, world: &mut World, pass: &mut Pass) -> bool {
        let mut list = Vec::new();
        self.rqs[pass.src].queue.list(&mut list);
        if !self.features.balance.in_queued_order {
            list.reverse();
        }
        for (_, task) in list {
            self.balance.fetch(world, pass.src, pass.executor, LINES_PER_TASK);
            let refused = self.refuses_unasked(world, pass, task);
            if !refused && self.may_move(world, pass, task) != MayMove::No {
                self.detach(world, pass, task, false);
                self.lb_stats(pass).gained += 1;
                self.balance.pay(world, pass.executor);
                self.attach_queued(world, task, pass.dst, pass.executor);
                return true;
            }
        }
        false
    }

    /// Section 10.9.
    pub(super) fn may_move(&mut self, world: &World, pass: &mut Pass, task: TaskId) -> MayMove {
        if self.refuses_eligibility(pass, task) {
            return MayMove::No;
        }
        if !world.allowed(task).contains(pass.dst) {
            self.stats.nr_failed_migrations_affine += 1;
            pass.some_pinned = true;
            self.remember_other_dst(world, pass, task);
            return MayMove::No;
        }
        pass.all_pinned = false;
        if self.tasks[task.index()].running {
            self.stats.nr_failed_migrations_running += 1;
            return MayMove::No;
        }
        if self.refuses(world, pass, task) {
            return MayMove::No;
        }
        if pass.active && self.features.balance.stopper_ignores_heat {
            return if self.goes_elsewhere(pass, task) { MayMove::No } else { MayMove::Yes };
        }
        let hot = match self.locality(pass, task) {
            Locality::Improves => false,
            Locality::Degrades => true,
            Locality::Unaffected if self.degrades_llc(world, pass, task) => {
                pass.llc_pinned |= pass.kind != Migration::LlcTask;
                return MayMove::No;
            }
            Locality::Unaffected => self.task_hot(world, pass, task),
        };
        if !hot {
            return MayMove::Yes;
        }
        let tries = self.topology.domain(pass.domain).cache_nice_tries;
        if self.failures(pass) > tries || self.ignores_heat(world, pass, task) {
            return MayMove::Hot;
        }
        self.stats.nr_failed_migrations_hot += 1;
        MayMove::No
    }

    /// How a move between nodes affects the task's locality.
    fn locality(&self, pass: &Pass, task: TaskId) -> Locality {
        if !self.topology.domain(pass.domain).has(Flags::NUMA) {
            return Locality::Unaffected;
        }
        let rq = &self.rqs[pass.src];
        let extra = rq.nr_running > rq.nr_preferred_running;
        let (src, dst) = (self.numa.node(pass.src), self.numa.node(pass.dst));
        self.locality_of_move(task, src, dst, pass.idle == IdleType::Idle, extra)
    }

    /// 6.13 and later: a sleeper whose dequeue is delayed moves only as load. A task that ran more
    /// than its share does not move to a queue with tasks, unless balancing failed before.
    fn refuses_eligibility(&self, pass: &Pass, task: TaskId) -> bool {
        if !self.features.balance.detach_eligible_only {
            return false;
        }
        let delayed = self.tasks[task.index()].delayed;
        let ineligible = || {
            self.failures(pass) == 0
                && self.rqs[pass.dst].nr_running > 0
                && !self.rqs[pass.src].queue.eligible(task)
        };
        (delayed && pass.kind != Migration::Load) || ineligible()
    }

    /// For a task that may not run on the destination: remembers another CPU of the destination's
    /// group where it may.
    fn remember_other_dst(&self, world: &World, pass: &mut Pass, task: TaskId) {
        if pass.idle == IdleType::NewlyIdle || pass.active || pass.other_dst.is_some() {
            return;
        }
        let mask = &self.topology.group(self.local_group(pass, pass.level)).balance_mask;
        let words = mask.words().iter().zip(self.balance.candidates.words());
        let words = words.zip(world.allowed(task).words()).map(|((&a, &b), &c)| a & b & c);
        pass.other_dst = words
            .enumerate()
            .find(|&(_, bits)| bits != 0)
            .map(|(word, bits)| (word << 6) + bits.trailing_zeros() as usize);
    }

    /// Whether the task's data is likely in the source's caches (`task_hot`).
    fn task_hot(&self, world: &World, pass: &Pass, task: TaskId) -> bool {
        let state = &self.tasks[task.index()];
        // Threads of a core share its caches. Before 5.10 the kernel ignored that.
        let same_core = self.topology.domain(pass.domain).has(Flags::SHARE_CPUCAPACITY)
            && self.features.balance.core_shares_caches;
        if state.entity.policy == Policy::Idle || same_core {
            return false;
        }
        let buddy = self.rqs[pass.dst].nr_running > 0 && self.rqs[pass.src].queue.is_buddy(task);
        let now = self.task_clock_now(world, pass.src);
        buddy || ran_recently(now, state.exec_start, self.migration_cost_ns())
    }

    /// Failed passes in a row at the pass's level.
    pub(super) fn failures(&self, pass: &Pass) -> u32 {
        self.rqs[pass.cpu].domains[pass.level].nr_balance_failed
    }

    /// The counters of the pass's level and idle type.
    pub(super) fn lb_stats(&mut self, pass: &Pass) -> &mut LbStats {
        let level = self.topology.stat_level(pass.cpu, pass.level);
        self.stats.lb(level, pass.idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_ranked_by_what_is_counted() {
        let source = |load, util, nr_runnable| Source {
            load,
            util,
            nr_runnable,
            capacity: CAPACITY,
            nr_pref_dst_llc: 0,
        };
        let rank = |source: Source, kind, amount| source.rank(kind, amount, 117);
        let none = source(500, 500, 0);
        let single = source(500, 400, 1);
        let several = source(500, 400, 3);
        for kind in [Migration::Load, Migration::Util, Migration::Task, Migration::LlcTask] {
            assert_eq!(rank(none, kind, 1000), None, "{kind:?}: nothing runnable");
        }
        assert_eq!(rank(single, Migration::Load, 499), None, "its only task is too heavy");
        let per_capacity = |load: u64, capacity: u64| Some((load << 24) / capacity);
        assert_eq!(rank(single, Migration::Load, 500), per_capacity(500, 1024));
        assert_eq!(rank(several, Migration::Load, 1), per_capacity(500, 1024));
        let busy = Source { capacity: 800, ..single };
        assert_eq!(rank(busy, Migration::Load, 499), per_capacity(500, 800), "reduced capacity");
        assert_eq!(rank(single, Migration::Util, 1000), None);
        assert_eq!(rank(several, Migration::Util, 1), Some(400));
        assert_eq!(rank(single, Migration::Task, 1), Some(1), "a single task can be chosen");
        assert_eq!(rank(several, Migration::Task, 1), Some(3));
        let preferring = Source { nr_pref_dst_llc: 2, ..several };
        assert_eq!(rank(preferring, Migration::LlcTask, 1), Some(2));
        assert_eq!(rank(several, Migration::LlcTask, 1), Some(0), "rank 0 is no source");
    }

    #[test]
    fn each_failure_halves_what_is_checked_and_not_what_is_counted() {
        assert_eq!(counted(1024, 0, 1023), None);
        assert_eq!(counted(1024, 0, 1024), Some(1024));
        assert_eq!(counted(1024, 1, 511), None);
        assert_eq!(counted(1024, 1, 512), Some(1024));
        assert_eq!(counted(u64::MAX >> 1, 200, 0), Some(i64::MAX), "the shift ends at 63");
    }

    #[test]
    fn a_task_is_hot_for_half_a_millisecond_unless_it_moved() {
        assert!(ran_recently(1_499_999, 1_000_000, 500_000));
        assert!(!ran_recently(1_500_000, 1_000_000, 500_000));
        assert!(!ran_recently(400_000, 0, 500_000));
    }
}
