//! Statistics of the groups of a domain, their classification, and the busiest group (kernel model,
//! sections 10.1 to 10.3).

use roost_engine::{CpuId, World};

use super::CAPACITY;
use super::imbalance::Rules;
use super::pass::Pass;
use crate::domain::{Flags, Group, GroupId};
use crate::state::{Fair, LINES_PER_QUEUE};
use crate::stats::IdleType;

/// How much a group needs help, least first (`enum group_type`). The kernel's type asym_packing
/// needs CPUs of different capacity and cannot occur here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum GroupType {
    /// It can take more tasks.
    #[default]
    HasSpare,
    /// Its CPUs are in use, but no task waits long.
    FullyBusy,
    /// A CPU that interrupts keep busy runs one task, which an idle CPU could run alone (5.19).
    Misfit,
    /// A core with several tasks, one of which an idle CPU elsewhere could run alone (after 6.5).
    SmtBalance,
    /// Balancing inside it failed because of affinity.
    Imbalanced,
    /// Some of its tasks prefer the destination's LLC, which has room for them (7.2).
    LlcBalance,
    /// Tasks wait for CPU time.
    Overloaded,
}

/// Sums over the CPUs of a group (`struct sg_lb_stats`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GroupStats {
    /// Sum of the CPUs' load averages.
    pub load: u64,
    /// Sum of `cpu_util`, 1024 per CPU.
    pub util: u64,
    /// Sum of the runnable averages, 1024 per task.
    pub runnable: u64,
    /// Tasks, delayed ones included (`sum_nr_running`).
    pub nr_running: u32,
    /// Runnable tasks (`sum_h_nr_running`).
    pub nr_runnable: u32,
    /// Idle CPUs.
    pub idle_cpus: u32,
    /// Tasks that prefer the destination's LLC and are queued elsewhere (7.2).
    pub nr_pref_dst_llc: u32,
    /// CPUs of the group.
    pub weight: u32,
    /// Cores of the group.
    pub cores: u32,
    /// Capacity, 1024 for each CPU, less what interrupts take.
    pub capacity: u64,
    /// The largest load of a CPU with one task and reduced capacity; 0 if there is none
    /// (`group_misfit_task_load`).
    pub misfit_load: u64,
    /// The group is one core with several CPUs.
    pub smt: bool,
    /// Its flags ask to spread tasks over sibling groups.
    pub prefer_sibling: bool,
    /// Load per capacity, scaled by 1024; 0 unless overloaded.
    pub avg_load: u64,
    /// The class it falls in.
    pub kind: GroupType,
}

/// What decides about the type of a group beside its sums.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GroupFlags {
    /// Balancing inside it failed because of affinity. A pass at the level below left this flag.
    imbalanced: bool,
    /// See [`GroupStats::wants_smt_balance`].
    smt_balance: bool,
    /// See [`Fair::wants_llc_balance`].
    llc_balance: bool,
}

impl GroupStats {
    /// Empty sums for `group`, which has this capacity.
    fn of(group: &Group, capacity: u64) -> Self {
        Self {
            weight: group.weight,
            cores: group.cores,
            capacity,
            smt: group.is_smt(),
            prefer_sibling: group.flags.has(Flags::PREFER_SIBLING),
            ..Self::default()
        }
    }

    /// Whether tasks wait for CPU time (`group_is_overloaded`). `pct` is the domain's imbalance_pct.
    fn is_overloaded(&self, pct: u64) -> bool {
        self.nr_running > self.weight
            && (100 * self.capacity < pct * self.util || pct * self.capacity < 100 * self.runnable)
    }

    /// Whether it has capacity for more tasks (`group_has_capacity`).
    fn has_capacity(&self, pct: u64) -> bool {
        self.nr_running < self.weight
            || (pct * self.capacity >= 100 * self.runnable && 100 * self.capacity > pct * self.util)
    }

    /// Load per capacity, scaled by 1024.
    pub(super) fn load_per_capacity(&self) -> u64 {
        self.load * CAPACITY / self.capacity
    }

    /// Sets the group's type by the first rule of section 10.2 that holds. Sets the average load of
    /// an overloaded group.
    pub(super) fn classify(&mut self, imbalance_pct: u32, flags: GroupFlags) {
        let pct = u64::from(imbalance_pct);
        self.kind = if self.is_overloaded(pct) {
            GroupType::Overloaded
        } else if flags.llc_balance {
            GroupType::LlcBalance
        } else if flags.imbalanced {
            GroupType::Imbalanced
        } else if flags.smt_balance {
            GroupType::SmtBalance
        } else if self.misfit_load > 0 {
            GroupType::Misfit
        } else if self.has_capacity(pct) {
            GroupType::HasSpare
        } else {
            GroupType::FullyBusy
        };
        if self.kind == GroupType::Overloaded {
            self.avg_load = self.load_per_capacity();
        }
    }

    /// Whether an idle CPU elsewhere should take one of several tasks of this core
    /// (`smt_balance()`, after 6.5). Not used for the local group.
    fn wants_smt_balance(&self, rules: &Rules) -> bool {
        rules.smt_groups && rules.idle != IdleType::Busy && self.smt && self.nr_runnable > 1
    }
}

/// Whether `group` replaces the busiest group so far (`update_sd_pick_busiest`).
pub(super) fn is_busier(group: &GroupStats, busiest: Option<&GroupStats>, rules: &Rules) -> bool {
    if group.nr_runnable == 0 {
        return false;
    }
    let Some(busiest) = busiest else { return true };
    if group.kind != busiest.kind {
        return group.kind > busiest.kind;
    }
    match group.kind {
        GroupType::Overloaded => group.avg_load > busiest.avg_load,
        GroupType::LlcBalance => group.nr_pref_dst_llc > busiest.nr_pref_dst_llc,
        GroupType::Imbalanced => false,
        GroupType::Misfit => group.misfit_load > busiest.misfit_load,
        GroupType::SmtBalance if group.idle_cpus != 0 || busiest.idle_cpus != 0 => {
            has_less_spare(group, busiest)
        }
        // The average load of a group that is not overloaded is 0. So the first group wins before
        // 6.5, and the last one later, unless a core with several CPUs was found before.
        GroupType::SmtBalance | GroupType::FullyBusy if rules.smt_groups => {
            group.avg_load > busiest.avg_load
                || (group.avg_load == busiest.avg_load && !busiest.smt)
        }
        GroupType::SmtBalance | GroupType::FullyBusy => group.avg_load > busiest.avg_load,
        // Pulling the only task of a core would only make that core idle.
        GroupType::HasSpare if rules.smt_groups && group.smt != busiest.smt => {
            !group.smt || group.nr_runnable > 1
        }
        GroupType::HasSpare => has_less_spare(group, busiest),
    }
}

/// Whether `group` has fewer idle CPUs, or as many and more tasks.
fn has_less_spare(group: &GroupStats, busiest: &GroupStats) -> bool {
    group.idle_cpus < busiest.idle_cpus
        || (group.idle_cpus == busiest.idle_cpus && group.nr_running > busiest.nr_running)
}

/// What a pass found out about a domain (`struct sd_lb_stats`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DomainStats {
    /// The group of the CPU that balances.
    pub local: GroupStats,
    /// The busiest of the other groups that have a task.
    pub busiest: Option<GroupStats>,
    /// Load of all groups.
    pub total_load: u64,
    /// Capacity of all groups.
    pub total_capacity: u64,
}

impl Fair {
    /// Statistics of all groups of the pass's domain, and the busiest group (`update_sd_lb_stats`).
    pub(super) fn domain_stats(
        &mut self,
        world: &World,
        pass: &Pass,
        rules: &Rules,
    ) -> (DomainStats, Option<GroupId>) {
        let nr_groups = self.topology.domain(pass.domain).groups.len();
        let local = self.topology.local_group_index(pass.cpu, pass.level);
        let gather_on = self.llc_to_gather_on(pass);
        let (mut stats, mut busiest) = (DomainStats::default(), None);
        let (mut util, mut overloaded) = (0, false);
        // As in the kernel, the round begins at the local group: of equal groups each CPU pulls
        // from the one after its own, so that not all pull from the same group.
        for position in (local..nr_groups).chain(0..local) {
            let is_local = position == local;
            let id = self.topology.domain(pass.domain).groups[position];
            if is_local {
                self.update_capacity(world, pass, id);
            }
            let mut group = self.group_stats(world, id, &mut overloaded);
            if self.features.switches.irq_time && !is_local {
                group.misfit_load = self.misfit_load(rules, id);
            }
            group.nr_pref_dst_llc = gather_on.map_or(0, |llc| self.nr_preferring(id, llc));
            group.classify(
                rules.imbalance_pct,
                GroupFlags {
                    imbalanced: self.balance.group_imbalance[id],
                    smt_balance: !is_local && group.wants_smt_balance(rules),
                    llc_balance: !is_local && self.wants_llc_balance(pass, id, &group),
                },
            );
            self.record_llc_use(world, pass, id, &group);
            stats.total_load += group.load;
            stats.total_capacity += group.capacity;
            util += group.util;
            if is_local {
                stats.local = group;
            } else if is_busier(&group, stats.busiest.as_ref(), rules) {
                stats.busiest = Some(group);
                busiest = Some(id);
            }
        }
        self.end_statistics(world, pass, util, overloaded);
        (stats, busiest)
    }

    /// Stores the results of a domain's statistics: whether any CPU has several tasks, and the
    /// limit of wakeup searches that follows from the utilisation `util`.
    pub(crate) fn end_statistics(
        &mut self,
        world: &World,
        pass: &Pass,
        util: u64,
        overloaded: bool,
    ) {
        if pass.level + 1 == self.topology.domains_of(pass.cpu).len() {
            self.root_overloaded = overloaded;
        }
        self.on_domain_util(world, pass, util);
    }

    /// Sums over the CPUs of a group that the pass considers. Sets `overloaded` if one of them has
    /// several tasks.
    #[inline]
    fn group_stats(&self, world: &World, id: GroupId, overloaded: &mut bool) -> GroupStats {
        let group = self.topology.group(id);
        // In few variables, so that they stay in registers: the numbers of tasks share one.
        let (mut load, mut util, mut runnable, mut nr, mut most) = (0, 0, 0, 0_u64, 0);
        self.balance.for_each_considered(id, &group.span, |cpu| {
            let rq = &self.rqs[cpu];
            load += rq.avg.load_avg;
            util += rq.avg.util_avg.max(rq.util_est).min(CAPACITY);
            runnable += rq.avg.runnable_avg;
            nr += u64::from(rq.nr_runnable) << 32 | u64::from(rq.nr_running);
            most = most.max(rq.nr_running);
        });
        *overloaded |= most > 1;
        GroupStats {
            load,
            util,
            runnable,
            nr_running: nr as u32,
            nr_runnable: (nr >> 32) as u32,
            idle_cpus: self.balance.nr_considered_in(id, &group.span, world.idle_cpus()),
            ..GroupStats::of(group, self.balance.capacity(id))
        }
    }

    /// See [`GroupStats::misfit_load`].
    fn misfit_load(&self, rules: &Rules, id: GroupId) -> u64 {
        if rules.idle == IdleType::Busy || !self.features.balance.reduced_capacity_is_misfit {
            return 0;
        }
        let reduced = |cpu: &CpuId| self.is_reduced_for_one(*cpu, rules.imbalance_pct);
        let cpus = self.balance.considered(id, &self.topology.group(id).span).filter(reduced);
        cpus.map(|cpu| self.rqs[cpu].avg.load_avg).max().unwrap_or(0)
    }

    /// Records the cost of examining the run queues that the pass considers.
    pub(super) fn note_examination(&mut self, world: &World, pass: &Pass) {
        if pass.all_considered {
            self.balance.unpaid_ns += self.examination_ns(world, pass.domain, pass.executor);
            return;
        }
        for cpu in 0..self.rqs.len() {
            if cpu != pass.executor && self.balance.candidates.contains(cpu) {
                self.balance.fetch(world, cpu, pass.executor, LINES_PER_QUEUE);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::imbalance::tests::rules;

    /// A group of four CPUs with `nr` running tasks.
    fn group(nr: u32) -> GroupStats {
        GroupStats {
            nr_running: nr,
            nr_runnable: nr,
            weight: 4,
            cores: 4,
            capacity: 4096,
            idle_cpus: 4u32.saturating_sub(nr),
            ..GroupStats::default()
        }
    }

    fn of_kind(kind: GroupType, nr: u32) -> GroupStats {
        GroupStats { kind, ..group(nr) }
    }

    #[test]
    fn types_are_ordered_by_need() {
        use GroupType::*;
        let order = [HasSpare, FullyBusy, Misfit, SmtBalance, Imbalanced, LlcBalance, Overloaded];
        assert!(order.is_sorted_by(|a, b| a < b));
    }

    /// At pct 117 a capacity of 4096 is exceeded by util above 3500.85 or runnable above 4792.3.
    #[test]
    fn classifies_by_the_first_rule_that_holds() {
        let classify = |nr, util, runnable, flags| {
            let mut group = GroupStats { util, runnable, load: 8192, ..group(nr) };
            group.classify(117, flags);
            (group.kind, group.avg_load)
        };
        let kind = |nr, util, runnable, imbalanced, smt_balance| {
            let flags = GroupFlags { imbalanced, smt_balance, llc_balance: false };
            classify(nr, util, runnable, flags)
        };
        assert_eq!(kind(5, 3501, 0, true, true), (GroupType::Overloaded, 2048));
        assert_eq!(kind(5, 0, 4793, true, true), (GroupType::Overloaded, 2048));
        assert_eq!(kind(4, 4096, 9000, true, true), (GroupType::Imbalanced, 0));
        assert_eq!(kind(5, 3500, 4792, true, true), (GroupType::Imbalanced, 0));
        assert_eq!(kind(4, 4096, 9000, false, true), (GroupType::SmtBalance, 0));
        assert_eq!(kind(4, 3501, 0, false, false), (GroupType::FullyBusy, 0));
        assert_eq!(kind(4, 0, 4793, false, false), (GroupType::FullyBusy, 0));
        assert_eq!(kind(4, 3500, 4792, false, false), (GroupType::HasSpare, 0));
        assert_eq!(kind(3, 4096, 9000, false, false), (GroupType::HasSpare, 0));
        let all = GroupFlags { imbalanced: true, smt_balance: true, llc_balance: true };
        assert_eq!(classify(5, 3501, 0, all).0, GroupType::Overloaded);
        assert_eq!(classify(5, 3500, 4792, all), (GroupType::LlcBalance, 0));
    }

    /// A task on a CPU of reduced capacity makes a group with spare CPUs a misfit, but not a core that asks for smt
    /// balance. Of two misfits the larger load counts.
    #[test]
    fn a_task_on_a_cpu_of_reduced_capacity_makes_a_misfit() {
        let misfit = |misfit_load, smt_balance| {
            let mut group = GroupStats { misfit_load, ..group(2) };
            group.classify(117, GroupFlags { smt_balance, ..GroupFlags::default() });
            group
        };
        assert_eq!(misfit(0, false).kind, GroupType::HasSpare);
        assert_eq!(misfit(1, false).kind, GroupType::Misfit);
        assert_eq!(misfit(1, true).kind, GroupType::SmtBalance);
        assert!(is_busier(&misfit(2, false), Some(&misfit(1, false)), &rules()));
        assert!(!is_busier(&misfit(2, false), Some(&misfit(2, false)), &rules()));
    }

    /// CPU 2 runs one task and interrupts leave it 800 of 1024.
    #[test]
    fn since_5_19_an_idle_cpu_looks_for_tasks_on_cpus_of_reduced_capacity() {
        let load = |version: &str, idle, tasks| {
            let mut bench = crate::kit::Bench::new(version, "core:4 pu:1", 1);
            let rq = &mut bench.fair.rqs[2];
            (rq.capacity, rq.nr_runnable, rq.avg.load_avg) = (800, tasks, 700);
            let pass = Pass::new(&bench.fair, 0, 0, 0, idle);
            bench.fair.consider_all(&pass);
            let id = bench.fair.topology.domain(pass.domain).groups[2];
            bench.fair.misfit_load(&Rules { idle, ..rules() }, id)
        };
        assert_eq!(load("fair@5.19+irq-time", IdleType::NewlyIdle, 1), 700);
        assert_eq!(load("fair@5.19+irq-time", IdleType::Busy, 1), 0);
        assert_eq!(
            load("fair@5.19+irq-time", IdleType::Idle, 2),
            0,
            "overloaded takes care of that"
        );
        assert_eq!(load("fair@5.16+irq-time", IdleType::Idle, 1), 0);
    }

    #[test]
    fn only_a_core_with_waiting_tasks_asks_an_idle_cpu_for_smt_balance() {
        let core = GroupStats { smt: true, ..group(2) };
        let newer = |idle| Rules { smt_groups: true, idle, ..rules() };
        assert!(core.wants_smt_balance(&newer(IdleType::Idle)));
        assert!(core.wants_smt_balance(&newer(IdleType::NewlyIdle)));
        assert!(!core.wants_smt_balance(&newer(IdleType::Busy)));
        assert!(!GroupStats { smt: true, ..group(1) }.wants_smt_balance(&newer(IdleType::Idle)));
        assert!(!group(2).wants_smt_balance(&newer(IdleType::Idle)));
        let older = Rules { smt_groups: false, idle: IdleType::Idle, ..rules() };
        assert!(!core.wants_smt_balance(&older));
    }

    #[test]
    fn a_group_without_tasks_is_never_busiest_and_the_higher_type_wins() {
        let rules = rules();
        assert!(!is_busier(&group(0), None, &rules));
        assert!(is_busier(&group(1), None, &rules));
        let (spare, busy) = (of_kind(GroupType::HasSpare, 3), of_kind(GroupType::FullyBusy, 1));
        assert!(is_busier(&busy, Some(&spare), &rules));
        assert!(!is_busier(&spare, Some(&busy), &rules));
    }

    #[test]
    fn within_a_type_each_has_its_own_order() {
        let old = Rules { smt_groups: false, ..rules() };
        let new = Rules { smt_groups: true, ..rules() };
        let overloaded = |avg_load| GroupStats { avg_load, ..of_kind(GroupType::Overloaded, 6) };
        assert!(is_busier(&overloaded(11), Some(&overloaded(10)), &new));
        assert!(!is_busier(&overloaded(10), Some(&overloaded(10)), &new));
        let preferring =
            |nr_pref_dst_llc| GroupStats { nr_pref_dst_llc, ..of_kind(GroupType::LlcBalance, 4) };
        assert!(is_busier(&preferring(3), Some(&preferring(2)), &new));
        assert!(!is_busier(&preferring(2), Some(&preferring(2)), &new));
        let imbalanced = of_kind(GroupType::Imbalanced, 2);
        assert!(!is_busier(&of_kind(GroupType::Imbalanced, 9), Some(&imbalanced), &new));
        let busy = of_kind(GroupType::FullyBusy, 4);
        assert!(!is_busier(&busy, Some(&busy), &old), "5.16: a higher average load only");
        assert!(is_busier(&busy, Some(&busy), &new), "after 6.5: the later group");
        let core = GroupStats { smt: true, ..busy.clone() };
        assert!(!is_busier(&busy, Some(&core), &new), "a core found first stays");
    }

    #[test]
    fn spare_groups_are_compared_by_idle_cpus_then_tasks() {
        let old = Rules { smt_groups: false, ..rules() };
        let spare = |idle_cpus, nr| GroupStats { idle_cpus, ..group(nr) };
        assert!(is_busier(&spare(1, 3), Some(&spare(2, 5)), &old));
        assert!(!is_busier(&spare(2, 5), Some(&spare(1, 3)), &old));
        assert!(is_busier(&spare(1, 4), Some(&spare(1, 3)), &old));
        assert!(!is_busier(&spare(1, 3), Some(&spare(1, 3)), &old));
    }

    #[test]
    fn mixed_kinds_of_spare_groups_after_6_5() {
        let new = Rules { smt_groups: true, ..rules() };
        let core = |nr| GroupStats { smt: true, ..group(nr) };
        assert!(!is_busier(&core(1), Some(&group(1)), &new), "the core would only become idle");
        assert!(is_busier(&core(2), Some(&group(3)), &new));
        assert!(is_busier(&group(1), Some(&core(3)), &new));
        let smt = |idle_cpus, nr| GroupStats {
            idle_cpus,
            smt: true,
            ..of_kind(GroupType::SmtBalance, nr)
        };
        assert!(is_busier(&smt(0, 4), Some(&smt(1, 4)), &new), "compared like has_spare");
        assert!(!is_busier(&smt(1, 4), Some(&smt(0, 4)), &new), "compared like has_spare");
        assert!(
            !is_busier(&smt(0, 4), Some(&smt(0, 2)), &new),
            "compared like fully_busy: the first one stays"
        );
    }
}
