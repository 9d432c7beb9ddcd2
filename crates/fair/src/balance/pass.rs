//! One balancing pass: one domain, on behalf of one CPU (`load_balance`, since 6.10
//! `sched_balance_rq`; kernel model, sections 9.1 and 10.10).

use roost_engine::{CpuId, World};
use roost_machine::CpuSet;

use super::imbalance::{Migration, Rules, decide};
use crate::domain::{DomainId, Flags, GroupId};
use crate::eras::{AfterActive, GroupChoice};
use crate::mechanisms::Wanted;
use crate::numa::balance::Placed;
use crate::state::{DomainState, Fair, Push};
use crate::stats::IdleType;

/// Limit up to which a balancing interval is doubled while only affinity prevents balance, ms
/// (MAX_PINNED_INTERVAL).
const MAX_PINNED_INTERVAL_MS: u32 = 512;

/// A pass under way (`struct lb_env`).
#[derive(Debug)]
pub(crate) struct Pass {
    /// The CPU that runs the pass and pays for it.
    pub executor: CpuId,
    /// The CPU on whose behalf it runs.
    pub cpu: CpuId,
    /// State of that CPU.
    pub idle: IdleType,
    /// Index of the domain among the domains of `cpu`.
    pub level: usize,
    /// The domain.
    pub domain: DomainId,
    /// The CPU that gets tasks: `cpu`, or another one of its group that the source's tasks may use.
    pub dst: CpuId,
    /// The CPU that loses tasks; CPU 0 until one is found, as in the kernel's empty `env`.
    pub src: CpuId,
    /// The source tried before `src`; CPU 0 until there is one.
    pub src_before: CpuId,
    /// The measure of the move.
    pub kind: Migration,
    /// How much is still to be moved, in that measure.
    pub amount: i64,
    /// The stopper pushes: the task that ran can be moved, even if it is cache-hot.
    pub active: bool,
    /// Only tasks that prefer the destination's LLC are pushed.
    pub for_llc: bool,
    /// Sources whose tasks are placed better than those of the busiest group are skipped.
    pub placed: Placed,
    /// Which tasks it pulls for the sake of their processes.
    pub wanted: Wanted,
    /// The time to examine the run queues has already passed.
    pub examined: bool,
    /// No CPU has been excluded.
    pub all_considered: bool,
    /// Number of tasks examined on this source.
    pub looked_at: u32,
    /// Most tasks to examine.
    pub look_at_most: u32,
    /// No task seen so far on this source may run on the destination (LBF_ALL_PINNED).
    pub all_pinned: bool,
    /// Some task may not run on the destination (LBF_SOME_PINNED).
    pub some_pinned: bool,
    /// Another CPU of the destination's group where such a task may run (LBF_DST_PINNED).
    pub other_dst: Option<CpuId>,
    /// Some task stays because of its preferred LLC. That is no failure (LBF_LLC_PINNED).
    pub llc_pinned: bool,
}

/// The result of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Tasks moved.
    pub moved: u32,
    /// The CPU balances at this level, and should go on upwards.
    pub go_on: bool,
}

/// How a pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Another CPU of the group balances.
    NotElected,
    /// There is nothing to do.
    Balanced,
    /// Only affinity prevents balance.
    AllPinned,
    /// An imbalance was found, and this many tasks were moved.
    Unbalanced(u32),
}

/// The result of trying one source queue.
enum Pull {
    /// This many tasks were moved.
    Moved(u32),
    /// None of its tasks may move: exclude it and try again.
    Retry,
    /// None of its tasks may move, and no other source is left.
    AllPinned,
}

/// Whether active balance began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Active {
    /// The stopper was asked.
    Started,
    /// Not asked: an earlier request is pending, or there is no need.
    Not,
    /// The source's current task may not run on the destination.
    Pinned,
}

/// Whether a pass that moved nothing shall use active balance (section 10.10). The other reason are
/// sources of reduced capacity ([`Fair::leaves_interrupts`]).
fn needs_active_balance(kind: Migration, failed: u32, cache_nice_tries: u32) -> bool {
    match kind {
        Migration::Task => failed > cache_nice_tries + 2,
        Migration::LlcTask => true,
        Migration::Load | Migration::Util => false,
    }
}

/// Doubles the interval of a domain that is balanced or pinned.
fn back_off(state: &mut DomainState, max_interval_ms: u32, all_pinned: bool) {
    let interval = state.balance_interval;
    if (all_pinned && interval < MAX_PINNED_INTERVAL_MS) || interval < max_interval_ms {
        state.balance_interval *= 2;
    }
}

/// The CPU that balances for a group (`should_we_balance`, section 9.1). It is the first idle CPU;
/// if idle cores are preferred, the first CPU of an idle core, if there is one. If no CPU is idle,
/// it is the first CPU of the group's balance mask.
pub(super) fn elected_cpu<'s>(
    balance_mask: &CpuSet,
    candidates: &CpuSet,
    idle: &CpuSet,
    idle_core_siblings: Option<&dyn Fn(CpuId) -> &'s CpuSet>,
) -> Option<CpuId> {
    let mut first_idle = None;
    let masks = balance_mask.words().iter().zip(candidates.words()).zip(idle.words());
    for (word, ((&mask, &considered), &idle_word)) in masks.enumerate() {
        let mut bits = mask & considered & idle_word;
        while bits != 0 {
            let cpu = (word << 6) + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            let Some(siblings) = idle_core_siblings else { return Some(cpu) };
            if siblings(cpu).is_subset(idle) {
                return Some(cpu);
            }
            first_idle = first_idle.or(Some(cpu));
        }
    }
    first_idle.or_else(|| balance_mask.first())
}

impl Pass {
    pub(super) fn new(
        fair: &Fair,
        executor: CpuId,
        cpu: CpuId,
        level: usize,
        idle: IdleType,
    ) -> Self {
        Self {
            executor,
            cpu,
            idle,
            level,
            domain: fair.topology.domains_of(cpu)[level],
            dst: cpu,
            src: 0,
            src_before: 0,
            kind: Migration::default(),
            amount: 0,
            active: false,
            for_llc: false,
            placed: Placed::All,
            wanted: Wanted::Any,
            examined: false,
            all_considered: true,
            looked_at: 0,
            look_at_most: 0,
            all_pinned: false,
            some_pinned: false,
            other_dst: None,
            llc_pinned: false,
        }
    }

    /// The pass of a stopper on `src` for the request `push`.
    pub(super) fn push(fair: &Fair, src: CpuId, push: Push) -> Self {
        let Push { cpu, level, for_llc } = push;
        Self { src, active: true, for_llc, ..Self::new(fair, src, cpu, level, IdleType::Idle) }
    }
}

impl Fair {
    /// One pass over the domain `level` on behalf of `cpu`. `executor` does the work.
    pub(super) fn load_balance(
        &mut self,
        world: &mut World,
        executor: CpuId,
        cpu: CpuId,
        level: usize,
        idle: IdleType,
    ) -> Verdict {
        let mut pass = Pass::new(self, executor, cpu, level, idle);
        if self.begins(world, &pass) {
            self.go_through(world, &mut pass)
        } else {
            self.leave_to_others(&pass)
        }
    }

    /// Counts a pass and considers all CPUs of the domain. Returns whether the pass's CPU is
    /// elected.
    pub(super) fn begins(&mut self, world: &World, pass: &Pass) -> bool {
        self.consider_all(pass);
        self.lb_stats(pass).count += 1;
        self.should_we_balance(world, pass)
    }

    /// Considers all CPUs of the pass's domain.
    pub(super) fn consider_all(&mut self, pass: &Pass) {
        self.balance.candidates.copy_from(&self.topology.domain(pass.domain).span);
    }

    /// Ends a pass because another CPU of the group balances.
    pub(super) fn leave_to_others(&mut self, pass: &Pass) -> Verdict {
        self.set_group_imbalance(pass, false);
        Verdict { moved: self.found_balanced(pass), go_on: false }
    }

    /// The rest of a pass that has begun.
    pub(super) fn go_through(&mut self, world: &mut World, pass: &mut Pass) -> Verdict {
        let end = self.try_sources(world, pass);
        let moved = match end {
            End::NotElected | End::Balanced => {
                if !pass.all_pinned {
                    self.set_group_imbalance(pass, false);
                }
                self.found_balanced(pass)
            }
            End::AllPinned => self.found_balanced(pass),
            End::Unbalanced(moved) => self.found_imbalance(world, pass, moved),
        };
        Verdict { moved, go_on: end != End::NotElected }
    }

    /// Tries sources until one gives tasks or none is left.
    fn try_sources(&mut self, world: &mut World, pass: &mut Pass) -> End {
        let mut locked = false;
        let end = loop {
            if !locked && self.takes_lock(pass) {
                if self.serialized(world, pass.executor) {
                    break End::Balanced;
                }
                locked = true;
            }
            if !self.find_source(world, pass) {
                break End::Balanced;
            }
            match self.pull_tasks(world, pass) {
                Pull::Moved(moved) => break End::Unbalanced(moved),
                Pull::AllPinned => break End::AllPinned,
                Pull::Retry if self.should_we_balance(world, pass) => {}
                Pull::Retry => break End::NotElected,
            }
        };
        if locked {
            self.balance.serialized_until = self.balance.clock(world, pass.executor);
        }
        end
    }

    /// Whether this pass takes the lock of SERIALIZE levels inside (7.2). Newly-idle passes never
    /// take it.
    fn takes_lock(&self, pass: &Pass) -> bool {
        self.features.balance.serialize_inside
            && pass.idle != IdleType::NewlyIdle
            && self.topology.domain(pass.domain).has(Flags::SERIALIZE)
    }

    /// Whether the destination is the CPU that balances for its group at this level.
    fn should_we_balance(&self, world: &World, pass: &Pass) -> bool {
        if !self.balance.candidates.contains(pass.dst) {
            return false;
        }
        if pass.idle == IdleType::NewlyIdle {
            return self.rqs[pass.dst].nr_running == 0 && !world.wakeup_pending(pass.dst);
        }
        let above_smt = !self.topology.domain(pass.domain).has(Flags::SHARE_CPUCAPACITY);
        let prefer_idle_core =
            self.features.balance.prefers_idle_core && above_smt && self.topology.smt_active;
        let siblings = |cpu| self.topology.siblings(cpu);
        let elects = |id: GroupId| {
            let elected = elected_cpu(
                &self.topology.group(id).balance_mask,
                &self.balance.candidates,
                world.idle_cpus(),
                if prefer_idle_core { Some(&siblings) } else { None },
            );
            elected == Some(pass.dst)
        };
        if !self.features.balance.every_group_elects {
            return elects(self.local_group(pass, pass.level));
        }
        // 3.9 checks this in the statistics of every group that holds the destination.
        let groups = &self.topology.domain(pass.domain).groups;
        groups.iter().all(|&id| !self.topology.group(id).span.contains(pass.dst) || elects(id))
    }

    /// The rules for the pass's domain.
    fn rules_of(&self, pass: &Pass) -> Rules {
        let domain = self.topology.domain(pass.domain);
        Rules::new(&self.features.balance, &self.mechanisms, domain, pass.idle)
    }

    /// Finds the group and queue to pull from, and how much. Returns false if there is nothing to
    /// do.
    fn find_source(&mut self, world: &World, pass: &mut Pass) -> bool {
        if !std::mem::take(&mut pass.examined) {
            self.note_examination(world, pass);
        }
        let rules = self.rules_of(pass);
        let older = self.features.balance.groups != GroupChoice::Types;
        let found = if older {
            self.busiest_group_by_load(world, pass, &rules)
        } else {
            let (stats, busiest) = self.domain_stats(world, pass, &rules);
            let imbalance = decide(&stats, &rules);
            if imbalance.is_none() {
                self.note_balance(&rules, |other| decide(&stats, other).is_some());
            }
            imbalance.zip(busiest)
        };
        let Some((imbalance, group)) = found else {
            self.lb_stats(pass).nobusyg += 1;
            return false;
        };
        if rules.numa {
            pass.placed = self.placed_group(group);
        }
        pass.kind = imbalance.kind;
        pass.amount = i64::try_from(imbalance.amount).unwrap_or(i64::MAX);
        let src = if older {
            self.busiest_queue_by_load(pass, group)
        } else {
            self.busiest_queue(pass, group)
        };
        let Some(src) = src else {
            self.lb_stats(pass).nobusyq += 1;
            return false;
        };
        // update_lb_imbalance_stat() does not count tasks that move to their preferred LLC.
        if pass.kind != Migration::LlcTask {
            self.lb_stats(pass).imbalance += imbalance.amount;
        }
        pass.src_before = std::mem::replace(&mut pass.src, src);
        true
    }

    /// Moves tasks from the source. If affinity requires it, moves them to other CPUs of the group
    /// too.
    fn pull_tasks(&mut self, world: &mut World, pass: &mut Pass) -> Pull {
        pass.all_pinned = true;
        if self.rqs[pass.src].nr_running <= 1 {
            return Pull::Moved(0);
        }
        self.limit_looks(pass);
        let mut moved = 0;
        loop {
            moved += self.move_tasks(world, pass);
            let Some(other) = pass.other_dst.take_if(|_| pass.amount > 0) else { break };
            self.exclude(pass, pass.dst);
            pass.dst = other;
            pass.looked_at = 0;
        }
        if pass.some_pinned && pass.amount > 0 {
            self.set_group_imbalance(pass, true);
        }
        if !pass.all_pinned {
            return Pull::Moved(moved);
        }
        self.exclude(pass, pass.src);
        if self.none_left(pass) {
            return Pull::AllPinned;
        }
        pass.looked_at = 0;
        Pull::Retry
    }

    /// Whether no source is left. 3.9 also considers the CPUs of its own group.
    fn none_left(&self, pass: &Pass) -> bool {
        if self.features.balance.own_group_is_source {
            return self.balance.candidates.is_empty();
        }
        let local = self.topology.group(self.local_group(pass, pass.level));
        self.balance.candidates.is_subset(&local.balance_mask)
    }

    /// Excludes a CPU from the pass.
    fn exclude(&mut self, pass: &mut Pass, cpu: CpuId) {
        self.balance.candidates.remove(cpu);
        pass.all_considered = false;
    }

    /// Ends a pass that found no imbalance, or only one that affinity keeps up.
    fn found_balanced(&mut self, pass: &Pass) -> u32 {
        self.lb_stats(pass).balanced += 1;
        self.rqs[pass.cpu].domains[pass.level].nr_balance_failed = 0;
        self.lengthen_interval(pass);
        0
    }

    /// Ends a pass that found an imbalance. Counts a failure, and pushes after enough failures.
    fn found_imbalance(&mut self, world: &mut World, pass: &mut Pass, moved: u32) -> u32 {
        let mut active = Active::Not;
        if moved > 0 {
            self.rqs[pass.cpu].domains[pass.level].nr_balance_failed = 0;
        } else {
            self.lb_stats(pass).failed += 1;
            if pass.idle != IdleType::NewlyIdle && !pass.llc_pinned {
                self.rqs[pass.cpu].domains[pass.level].nr_balance_failed += 1;
            }
            active = self.consider_active_balance(world, pass);
        }
        let after = self.features.balance.interval_after_active;
        match active {
            Active::Pinned => self.lengthen_interval(pass),
            // If there is only one task, nothing is found pinned.
            Active::Started if after == AfterActive::Longer => self.lengthen_interval(pass),
            Active::Started if after == AfterActive::Same => {}
            Active::Started | Active::Not => {
                let shortest = self.topology.domain(pass.domain).min_interval_ms;
                self.rqs[pass.cpu].domains[pass.level].balance_interval = shortest;
            }
        }
        moved
    }

    /// After a failed pass: asks the source's stopper if that is due and allowed.
    fn consider_active_balance(&mut self, world: &mut World, pass: &mut Pass) -> Active {
        let failed = self.rqs[pass.cpu].domains[pass.level].nr_balance_failed;
        let tries = self.topology.domain(pass.domain).cache_nice_tries;
        let era = self.features.balance;
        let needed = if era.groups != GroupChoice::Types {
            crate::older::needs_active_balance(failed, tries)
        } else {
            !self.keeps_llc(pass)
                && (needs_active_balance(pass.kind, failed, tries) || self.leaves_interrupts(pass))
        };
        if !needed {
            return Active::Not;
        }
        // Without a current task the idle task runs, which cannot move.
        let movable = world.current(pass.src).is_some_and(|t| world.allowed(t).contains(pass.cpu));
        if !movable {
            return Active::Pinned;
        }
        pass.all_pinned = false;
        if !era.stopper_ignores_heat {
            // With this many failures the stopper finds no task too hot.
            self.rqs[pass.cpu].domains[pass.level].nr_balance_failed = tries + 1;
        }
        if self.start_active_balance(world, pass) { Active::Started } else { Active::Not }
    }

    fn lengthen_interval(&mut self, pass: &Pass) {
        // In 3.9 newly-idle passes lengthen it too.
        if pass.idle != IdleType::NewlyIdle || self.features.balance.newidle_lengthens_interval {
            let longest = self.topology.domain(pass.domain).max_interval_ms;
            back_off(&mut self.rqs[pass.cpu].domains[pass.level], longest, pass.all_pinned);
        }
    }

    /// Tells the level above whether affinity prevented balance inside its local group.
    fn set_group_imbalance(&mut self, pass: &Pass, imbalanced: bool) {
        if pass.level + 1 < self.topology.domains_of(pass.cpu).len() {
            let group = self.local_group(pass, pass.level + 1);
            self.balance.group_imbalance[group] = imbalanced;
        }
    }

    /// The group that the pass's CPU balances for at `level`.
    pub(super) fn local_group(&self, pass: &Pass, level: usize) -> GroupId {
        let domain = self.domain_of(pass.cpu, level);
        domain.groups[self.topology.local_group_index(pass.cpu, level)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(cpus: impl IntoIterator<Item = usize>) -> CpuSet {
        CpuSet::from_cpus(8, cpus)
    }

    /// Cores 0-1, 2-3, 4-5, 6-7.
    fn elect(balance: &[usize], idle: &[usize], idle_cores: bool) -> Option<CpuId> {
        let cores: Vec<_> = (0..4).map(|core| set([2 * core, 2 * core + 1])).collect();
        let siblings = |cpu: CpuId| &cores[cpu / 2];
        let idle = set(idle.iter().copied());
        let balance = set(balance.iter().copied());
        let all = set(0..8);
        elected_cpu(&balance, &all, &idle, if idle_cores { Some(&siblings) } else { None })
    }

    #[test]
    fn the_first_idle_cpu_balances_and_else_the_first_of_the_group() {
        assert_eq!(elect(&[2, 3, 4, 5], &[4, 5, 7], false), Some(4));
        assert_eq!(elect(&[2, 3, 4, 5], &[0, 3, 4, 5], false), Some(3));
        assert_eq!(elect(&[2, 3, 4, 5], &[], false), Some(2));
        assert_eq!(elect(&[2, 3, 4, 5], &[0, 7], false), Some(2), "idle CPUs of other groups");
    }

    #[test]
    fn an_idle_core_goes_before_an_idle_sibling() {
        assert_eq!(elect(&[2, 3, 4, 5], &[3, 4, 5], true), Some(4));
        assert_eq!(elect(&[2, 3, 4, 5], &[3, 5], true), Some(3));
        assert_eq!(elect(&[2, 3, 4, 5], &[], true), Some(2));
    }

    #[test]
    fn cpus_excluded_from_the_pass_are_not_elected_while_idle() {
        let elected = elected_cpu(&set([2, 3]), &set([3]), &set([2, 3]), None);
        assert_eq!(elected, Some(3));
    }

    #[test]
    fn active_balance_after_more_failures_than_nice_tries_and_two() {
        let threshold = |tries| (0..9).find(|&f| needs_active_balance(Migration::Task, f, tries));
        assert_eq!(threshold(0), Some(3));
        assert_eq!(threshold(1), Some(4));
        assert_eq!(threshold(2), Some(5));
        assert!(!needs_active_balance(Migration::Load, 9, 1));
        assert!(!needs_active_balance(Migration::Util, 9, 1));
        assert!(needs_active_balance(Migration::LlcTask, 0, 1));
    }

    #[test]
    fn the_interval_doubles_up_to_its_limit() {
        let after = |interval, max, pinned| {
            let mut state = DomainState { balance_interval: interval, ..DomainState::default() };
            back_off(&mut state, max, pinned);
            state.balance_interval
        };
        assert_eq!(after(16, 32, false), 32);
        assert_eq!(after(32, 32, false), 32);
        assert_eq!(after(32, 32, true), 64);
        assert_eq!(after(511, 32, true), 1022);
        assert_eq!(after(512, 32, true), 512);
    }
}
