//! Whether two groups are out of balance, and how much to move (kernel model, sections 10.4 and
//! 10.5; filters of 10.6 and 14.4). Pure functions.

use super::CAPACITY;
use super::groups::{DomainStats, GroupStats, GroupType};
use crate::domain::{Domain, Flags};
use crate::eras::BalanceEra;
use crate::mechanisms::{Mechanisms, Tolerance};
use crate::stats::IdleType;

/// The measure of a move (`enum migration_type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Migration {
    /// Load averages.
    #[default]
    Load,
    /// Utilisation.
    Util,
    /// Tasks.
    Task,
    /// Tasks that prefer the destination's LLC (7.2).
    LlcTask,
}

/// What to move, and how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Imbalance {
    /// The measure of the amount.
    pub kind: Migration,
    /// Load, utilisation, or tasks.
    pub amount: u64,
}

/// What decisions about a domain depend on beside its statistics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// State of the destination CPU.
    pub idle: IdleType,
    /// The domain's imbalance_pct.
    pub imbalance_pct: u32,
    /// The domain is inside one LLC.
    pub share_llc: bool,
    /// The domain spans nodes.
    pub numa: bool,
    /// The imbalance that the mechanisms leave alone.
    pub tolerance: Tolerance,
    /// The child domain asks to spread tasks over sibling groups.
    pub child_prefers_sibling: bool,
    /// The busiest group's flag counts instead (6.x).
    pub prefer_sibling_of_group: bool,
    /// Core counts and SMT groups matter (after 6.5).
    pub smt_groups: bool,
    /// The NUMA filter comes before halving (6.1 and later).
    pub filter_before_halving: bool,
    /// A local group above the domain's average load pulls nothing (6.1 and later).
    pub local_above_average_check: bool,
}

impl Rules {
    /// The rules of an era for a pass over `domain`.
    pub(super) fn new(
        era: &BalanceEra,
        mechanisms: &Mechanisms,
        domain: &Domain,
        idle: IdleType,
    ) -> Self {
        Self {
            idle,
            imbalance_pct: domain.imbalance_pct,
            share_llc: domain.has(Flags::SHARE_LLC),
            numa: domain.has(Flags::NUMA),
            tolerance: mechanisms.tolerance(domain),
            child_prefers_sibling: domain.child_flags.has(Flags::PREFER_SIBLING),
            prefer_sibling_of_group: era.prefer_sibling_of_group,
            smt_groups: era.smt_groups,
            filter_before_halving: era.filter_before_halving,
            local_above_average_check: era.local_above_average_check,
        }
    }

    /// Whether the destination CPU runs a task.
    fn busy(&self) -> bool {
        self.idle == IdleType::Busy
    }

    /// Whether tasks are to be spread evenly over the groups.
    fn prefer_sibling(&self, busiest: &GroupStats) -> bool {
        if self.prefer_sibling_of_group {
            busiest.prefer_sibling
        } else {
            self.child_prefers_sibling
        }
    }
}

impl DomainStats {
    /// Average load of the domain, scaled by 1024.
    fn average_load(&self) -> u64 {
        self.total_load * CAPACITY / self.total_capacity.max(1)
    }
}

/// Number of tasks by which the busiest group is ahead of the local one. After 6.5 weighted by
/// their cores (`sibling_imbalance`), before that the plain difference.
fn sibling_imbalance(local: &GroupStats, busiest: &GroupStats, rules: &Rules) -> u64 {
    let (ahead, here) = (u64::from(busiest.nr_running), u64::from(local.nr_running));
    if !rules.smt_groups {
        return ahead.saturating_sub(here);
    }
    if rules.busy() || ahead == 0 {
        return 0;
    }
    let (cores_ahead, cores_here) = (u64::from(busiest.cores), u64::from(local.cores));
    if cores_ahead == cores_here {
        return ahead.saturating_sub(here);
    }
    let weighed = (cores_here * ahead).saturating_sub(cores_ahead * here);
    let cores = cores_here + cores_ahead;
    let imbalance = (2 * weighed + cores) / cores;
    // With only one task per group, a task would move to the larger core only to move again.
    if imbalance <= 1 && here == 0 && ahead > 1 { 2 } else { imbalance }
}

/// What should move from the busiest group to the local one (`find_busiest_group` after its
/// statistics). `None` if they are in balance; an amount of 0 is balance.
pub(super) fn decide(stats: &DomainStats, rules: &Rules) -> Option<Imbalance> {
    let busiest = stats.busiest.as_ref()?;
    if !is_unbalanced(stats, busiest, rules) {
        return None;
    }
    Some(calculate_imbalance(stats, busiest, rules)).filter(|imbalance| imbalance.amount > 0)
}

/// Section 10.4.
fn is_unbalanced(stats: &DomainStats, busiest: &GroupStats, rules: &Rules) -> bool {
    let local = &stats.local;
    if matches!(busiest.kind, GroupType::Imbalanced | GroupType::Misfit) {
        return true;
    }
    if local.kind > busiest.kind {
        return false;
    }
    if local.kind == GroupType::Overloaded {
        let conservative = u64::from(rules.imbalance_pct) * local.avg_load;
        if local.avg_load >= busiest.avg_load
            || local.avg_load >= stats.average_load()
            || 100 * busiest.avg_load <= conservative
        {
            return false;
        }
    }
    if rules.prefer_sibling(busiest)
        && local.kind == GroupType::HasSpare
        && (busiest.kind == GroupType::LlcBalance || sibling_imbalance(local, busiest, rules) > 1)
    {
        return true;
    }
    busiest.kind == GroupType::Overloaded || idle_cpu_can_help(local, busiest, rules)
}

/// Whether an idle CPU of the local group should take a task of a group that is not overloaded.
fn idle_cpu_can_help(local: &GroupStats, busiest: &GroupStats, rules: &Rules) -> bool {
    if rules.busy() {
        return false;
    }
    if busiest.kind == GroupType::SmtBalance && local.smt != busiest.smt {
        return true;
    }
    let evenly_idle = busiest.weight > 1 && local.idle_cpus <= busiest.idle_cpus + 1;
    !evenly_idle && busiest.nr_runnable != 1
}

/// Section 10.5.
fn calculate_imbalance(stats: &DomainStats, busiest: &GroupStats, rules: &Rules) -> Imbalance {
    let local = &stats.local;
    if busiest.kind == GroupType::LlcBalance {
        return Imbalance { kind: Migration::LlcTask, amount: 1 };
    }
    if matches!(busiest.kind, GroupType::SmtBalance | GroupType::Imbalanced) {
        return Imbalance { kind: Migration::Task, amount: 1 };
    }
    if busiest.kind == GroupType::Misfit {
        return Imbalance { kind: Migration::Load, amount: busiest.misfit_load };
    }
    if local.kind == GroupType::HasSpare {
        return if busiest.kind > GroupType::FullyBusy && !rules.share_llc {
            fill_spare_capacity(local, rules)
        } else {
            Imbalance { kind: Migration::Task, amount: tasks_to_even_out(local, busiest, rules) }
        };
    }
    Imbalance { kind: Migration::Load, amount: load_to_average(stats, busiest, rules) }
}

/// The busiest group has waiting tasks: moves as much utilisation as the local group has room for.
fn fill_spare_capacity(local: &GroupStats, rules: &Rules) -> Imbalance {
    let amount = local.capacity.saturating_sub(local.util);
    if amount == 0 && !rules.busy() {
        return Imbalance { kind: Migration::Task, amount: 1 };
    }
    Imbalance { kind: Migration::Util, amount }
}

/// No task waits: evens out tasks or idle CPUs, unless the imbalance is left alone.
fn tasks_to_even_out(local: &GroupStats, busiest: &GroupStats, rules: &Rules) -> u64 {
    let raw = if busiest.weight == 1 || rules.prefer_sibling(busiest) {
        sibling_imbalance(local, busiest, rules)
    } else {
        u64::from(local.idle_cpus.saturating_sub(busiest.idle_cpus))
    };
    let (here, there) = (local.nr_running, busiest.nr_running);
    let numa = |amount| rules.tolerance.between_nodes(amount, here, there, busiest.weight);
    let llc = |amount| rules.tolerance.between_llcs(amount);
    if rules.filter_before_halving { llc(numa(raw)) / 2 } else { numa(llc(raw) / 2) }
}

/// The local group is full: moves load until one of the two groups has the domain's average.
fn load_to_average(stats: &DomainStats, busiest: &GroupStats, rules: &Rules) -> u64 {
    let (local, average) = (&stats.local, stats.average_load());
    let local_load = match local.kind {
        GroupType::Overloaded => local.avg_load,
        _ => local.load_per_capacity(),
    };
    if local.kind < GroupType::Overloaded
        && (local_load >= busiest.avg_load
            || (rules.local_above_average_check && local_load >= average))
    {
        return 0;
    }
    // The kernel subtracts unsigned numbers: a group on the wrong side of the average gives a huge
    // number, and the other group's number decides.
    let excess = busiest.avg_load.wrapping_sub(average).wrapping_mul(busiest.capacity);
    let room = average.wrapping_sub(local_load).wrapping_mul(local.capacity);
    excess.min(room) / CAPACITY
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::mechanisms::llc_imbalance::LlcTolerance;
    use crate::mechanisms::numa_imbalance::NumaImbalance;

    /// 6.x, an idle CPU, a level above the LLC.
    pub(crate) fn rules() -> Rules {
        Rules {
            idle: IdleType::Idle,
            imbalance_pct: 117,
            share_llc: false,
            numa: false,
            tolerance: Tolerance::none(),
            child_prefers_sibling: false,
            prefer_sibling_of_group: true,
            smt_groups: true,
            filter_before_halving: true,
            local_above_average_check: true,
        }
    }

    /// 5.19 and before.
    fn old() -> Rules {
        Rules {
            prefer_sibling_of_group: false,
            smt_groups: false,
            filter_before_halving: false,
            local_above_average_check: false,
            ..rules()
        }
    }

    /// Eight CPUs with `nr` tasks, each on its own CPU.
    fn group(kind: GroupType, nr: u32) -> GroupStats {
        GroupStats {
            kind,
            nr_running: nr,
            nr_runnable: nr,
            weight: 8,
            cores: 8,
            capacity: 8192,
            idle_cpus: 8u32.saturating_sub(nr),
            ..GroupStats::default()
        }
    }

    fn loaded(kind: GroupType, load: u64) -> GroupStats {
        let mut group = GroupStats { load, ..group(kind, 16) };
        group.avg_load = if kind == GroupType::Overloaded { group.load_per_capacity() } else { 0 };
        group
    }

    fn stats(local: GroupStats, busiest: GroupStats) -> DomainStats {
        DomainStats {
            total_load: local.load + busiest.load,
            total_capacity: local.capacity + busiest.capacity,
            local,
            busiest: Some(busiest),
        }
    }

    /// Two LLCs of eight CPUs.
    const QUARTER: LlcTolerance = LlcTolerance::Quarter { span: 16, child_span: 8 };

    fn tasks(amount: u64) -> Option<Imbalance> {
        Some(Imbalance { kind: Migration::Task, amount })
    }

    #[test]
    fn sibling_imbalance_weighs_tasks_by_cores() {
        let imbalance = |nb, nl, cb, cl, rules: Rules| {
            let busiest = GroupStats { nr_running: nb, cores: cb, ..GroupStats::default() };
            let local = GroupStats { nr_running: nl, cores: cl, ..GroupStats::default() };
            sibling_imbalance(&local, &busiest, &rules)
        };
        for (nb, nl, cb, cl, expected) in
            [(5, 2, 8, 8, 3), (6, 2, 4, 2, 2), (2, 0, 4, 8, 3), (8, 2, 8, 4, 3)]
        {
            assert_eq!(imbalance(nb, nl, cb, cl, rules()), expected, "{nb} {nl} {cb} {cl}");
        }
        assert_eq!(imbalance(2, 5, 8, 8, rules()), 0);
        // cl·nb - cb·nl = 2, (4 + 9) / 9 = 1: two tasks against an empty group give 2.
        assert_eq!(imbalance(2, 0, 8, 1, rules()), 2);
        assert_eq!(imbalance(1, 0, 8, 1, rules()), 1);
        assert_eq!(imbalance(0, 0, 8, 1, rules()), 0);
        let busy = Rules { idle: IdleType::Busy, ..rules() };
        assert_eq!(imbalance(5, 2, 8, 8, busy), 0);
        assert_eq!(imbalance(6, 2, 4, 2, old()), 4, "5.x: the difference, busy or not");
    }

    /// As much load moves as the task has, whatever both groups have to spare.
    #[test]
    fn a_misfit_is_pulled_as_load() {
        let misfit = GroupStats { misfit_load: 700, ..group(GroupType::Misfit, 1) };
        let pulled = Some(Imbalance { kind: Migration::Load, amount: 700 });
        assert_eq!(decide(&stats(group(GroupType::HasSpare, 1), misfit), &rules()), pulled);
    }

    #[test]
    fn without_a_busiest_group_there_is_balance() {
        assert_eq!(decide(&DomainStats::default(), &rules()), None);
    }

    #[test]
    fn a_group_held_back_by_affinity_gives_one_task_whatever_the_local_one_is() {
        let unbalanced =
            stats(loaded(GroupType::Overloaded, 16384), group(GroupType::Imbalanced, 2));
        assert_eq!(decide(&unbalanced, &rules()), tasks(1));
    }

    /// Between LLCs of a node, which are filled evenly, even a busy CPU pulls a task to its
    /// preferred LLC. Elsewhere an idle CPU does if more CPUs are idle in its group.
    #[test]
    fn a_group_with_tasks_that_prefer_this_llc_gives_one() {
        let one = Some(Imbalance { kind: Migration::LlcTask, amount: 1 });
        let of = |nl, nb, prefer_sibling| {
            let busiest = GroupStats { prefer_sibling, ..group(GroupType::LlcBalance, nb) };
            stats(group(GroupType::HasSpare, nl), busiest)
        };
        let busy = Rules { idle: IdleType::Busy, ..rules() };
        assert_eq!(decide(&of(6, 2, true), &rules()), one);
        assert_eq!(decide(&of(6, 2, true), &busy), one);
        assert_eq!(decide(&of(6, 2, false), &rules()), None);
        assert_eq!(decide(&of(2, 6, false), &rules()), one);
        assert_eq!(decide(&of(2, 6, false), &busy), None);
        let mut full = of(8, 2, true);
        full.local.kind = GroupType::FullyBusy;
        assert_eq!(decide(&full, &rules()), None);
    }

    #[test]
    fn a_local_group_of_higher_type_is_balanced() {
        let balanced = stats(group(GroupType::FullyBusy, 8), group(GroupType::HasSpare, 7));
        assert_eq!(decide(&balanced, &rules()), None);
    }

    /// Loads of 8 CPUs: avg_load = load / 8.
    #[test]
    fn overloaded_groups_are_compared_by_average_load() {
        let decide = |local, busiest, rules: &Rules| {
            let of = |load| loaded(GroupType::Overloaded, load);
            decide(&stats(of(local), of(busiest)), rules)
        };
        assert_eq!(decide(16000, 16000, &rules()), None);
        assert_eq!(decide(16000, 15000, &rules()), None);
        // 100·2340 <= 117·2000 is balanced. With avg_load one higher it is not.
        assert_eq!(decide(16000, 18720, &rules()), None);
        let load = |amount| Some(Imbalance { kind: Migration::Load, amount });
        // avg (16000 + 18728) / 16 = 2170: min(2341 - 2170, 2170 - 2000) · 8192 / 1024.
        assert_eq!(decide(16000, 18728, &rules()), load(170 * 8));
        let third = GroupStats { load: 0, ..loaded(GroupType::Overloaded, 0) };
        let mut three =
            stats(loaded(GroupType::Overloaded, 16000), loaded(GroupType::Overloaded, 24000));
        three.total_capacity += third.capacity;
        assert_eq!(super::decide(&three, &rules()), None, "average 1666, local 2000");
    }

    #[test]
    fn spreads_over_siblings_when_more_than_one_task_ahead() {
        let siblings = |nl, nb| {
            let busiest = GroupStats { prefer_sibling: true, ..group(GroupType::HasSpare, nb) };
            stats(group(GroupType::HasSpare, nl), busiest)
        };
        assert_eq!(decide(&siblings(2, 4), &rules()), tasks(1));
        assert_eq!(decide(&siblings(2, 3), &rules()), None);
        // 5.x reads the child domain's flag instead. Then the idle CPUs differ by 2: half of that
        // moves.
        let child = Rules { child_prefers_sibling: true, idle: IdleType::Busy, ..old() };
        assert_eq!(decide(&siblings(2, 4), &child), tasks(1));
        let none = Rules { idle: IdleType::Busy, ..old() };
        assert_eq!(decide(&siblings(2, 4), &none), None, "a busy CPU does not pull otherwise");
        let busy = Rules { idle: IdleType::Busy, ..rules() };
        assert_eq!(decide(&siblings(2, 4), &busy), None, "sibling_imbalance of a busy CPU is 0");
    }

    #[test]
    fn idle_cpus_are_evened_out_but_for_one() {
        let spare = |nl, nb| stats(group(GroupType::HasSpare, nl), group(GroupType::HasSpare, nb));
        assert_eq!(decide(&spare(2, 3), &rules()), None);
        assert_eq!(decide(&spare(2, 4), &rules()), tasks(1));
        assert_eq!(decide(&spare(0, 5), &rules()), tasks(2));
        let single = GroupStats { nr_runnable: 1, ..group(GroupType::HasSpare, 2) };
        assert_eq!(decide(&stats(group(GroupType::HasSpare, 0), single), &rules()), None);
    }

    #[test]
    fn a_single_cpu_with_two_tasks_gives_one() {
        let cpu = |nr| GroupStats {
            weight: 1,
            cores: 1,
            capacity: 1024,
            idle_cpus: u32::from(nr == 0),
            ..group(if nr > 1 { GroupType::FullyBusy } else { GroupType::HasSpare }, nr)
        };
        for rules in [rules(), old()] {
            let inside = Rules { share_llc: true, ..rules };
            assert_eq!(decide(&stats(cpu(0), cpu(2)), &inside), tasks(1));
            assert_eq!(decide(&stats(cpu(0), cpu(1)), &inside), None);
        }
    }

    #[test]
    fn a_core_with_two_tasks_gives_one_to_another_kind_of_group() {
        let core = GroupStats { smt: true, weight: 2, ..group(GroupType::SmtBalance, 2) };
        let unbalanced = stats(group(GroupType::HasSpare, 7), core.clone());
        assert_eq!(decide(&unbalanced, &rules()), tasks(1));
        let same_kind = GroupStats { smt: true, idle_cpus: 1, ..group(GroupType::HasSpare, 1) };
        assert_eq!(decide(&stats(same_kind, core), &rules()), None, "idle CPUs: 1 and 0");
    }

    #[test]
    fn an_overloaded_group_fills_spare_capacity_above_the_llc() {
        let busiest = loaded(GroupType::Overloaded, 16384);
        let spare = |util| GroupStats { util, ..group(GroupType::HasSpare, 4) };
        let util = |amount| Some(Imbalance { kind: Migration::Util, amount });
        assert_eq!(decide(&stats(spare(3000), busiest.clone()), &rules()), util(5192));
        assert_eq!(decide(&stats(spare(8192), busiest.clone()), &rules()), tasks(1));
        let busy = Rules { idle: IdleType::Busy, ..rules() };
        assert_eq!(decide(&stats(spare(8192), busiest.clone()), &busy), None);
        // Inside the LLC idle CPUs are evened out: 4 against 0, and half of that moves.
        let inside = Rules { share_llc: true, ..rules() };
        assert_eq!(decide(&stats(spare(3000), busiest), &inside), tasks(2));
    }

    #[test]
    fn a_fully_busy_group_takes_load_up_to_the_average() {
        let decide = |local, busiest, rules: &Rules| {
            let busiest = loaded(GroupType::Overloaded, busiest);
            decide(&stats(loaded(GroupType::FullyBusy, local), busiest), rules)
        };
        let load = |amount| Some(Imbalance { kind: Migration::Load, amount });
        // Averages 1000, 3000 and 2000.
        assert_eq!(decide(8000, 24000, &rules()), load(8000));
        assert_eq!(decide(24000, 24000, &rules()), None);
        assert_eq!(decide(24000, 8000, &old()), None);
    }

    #[test]
    fn above_the_average_only_old_kernels_still_pull() {
        let mut three =
            stats(loaded(GroupType::FullyBusy, 16000), loaded(GroupType::Overloaded, 24000));
        three.total_capacity += 8192;
        // Averages: domain 1666, local 2000, busiest 3000.
        assert_eq!(decide(&three, &rules()), None);
        let excess = Imbalance { kind: Migration::Load, amount: (3000 - 1666) * 8 };
        assert_eq!(decide(&three, &old()), Some(excess));
    }

    /// Results for raw differences of 1 to 6 tasks between two nodes of 64 CPUs, with limit 8 and
    /// `nl` local tasks.
    fn numa(rules: Rules, rule: NumaImbalance, nl: u32) -> Vec<u64> {
        let node = |nr: u32| GroupStats {
            nr_running: nr,
            nr_runnable: nr,
            weight: 64,
            idle_cpus: 64 - nr,
            ..GroupStats::default()
        };
        let tolerance = Tolerance::between_nodes_by(rule, 8);
        let rules = Rules { numa: true, tolerance, ..rules };
        (1..=6).map(|raw| tasks_to_even_out(&node(nl), &node(nl + raw), &rules)).collect()
    }

    /// Section 10.6: 6.x filters the raw difference, 5.x half of it. The limit is compared with the
    /// local tasks plus one. In 5.16 and as published it is compared with the tasks of the busiest
    /// group.
    #[test]
    fn imbalance_between_nodes_by_version() {
        let new = |nl| numa(rules(), NumaImbalance::Merged60, nl);
        let old = |rule, nl| numa(old(), rule, nl);
        assert_eq!(new(4), [0, 0, 1, 2, 2, 3]);
        assert_eq!(new(7), [0, 0, 1, 2, 2, 3], "7 + 1 is not over 8");
        assert_eq!(new(8), [0, 1, 1, 2, 2, 3], "8 + 1 is");
        assert_eq!(old(NumaImbalance::Merged518, 4), [0, 0, 0, 0, 0, 3]);
        assert_eq!(old(NumaImbalance::Merged518, 8), [0, 1, 1, 2, 2, 3]);
        assert_eq!(
            old(NumaImbalance::Published, 4),
            [0, 0, 0, 2, 2, 3],
            "busiest 5, 6, 7, then 8 is not < 8"
        );
        assert_eq!(old(NumaImbalance::Quarter, 11), [0, 0, 0, 0, 2, 3], "busiest below 64 / 4");
        assert_eq!(old(NumaImbalance::None, 4), [0, 1, 1, 2, 2, 3]);
    }

    /// Section 14.4: raw amounts 1 to 10 between LLCs of `c` CPUs, after halving.
    #[test]
    fn imbalance_between_llcs_of_a_node() {
        let halved = |c: u32, rules: Rules| -> Vec<u64> {
            let rules = Rules {
                tolerance: Tolerance::between_llcs_by(LlcTolerance::Quarter {
                    span: 2 * c,
                    child_span: c,
                }),
                ..rules
            };
            let llc = |nr: u32| GroupStats {
                nr_running: nr,
                weight: c,
                cores: c,
                prefer_sibling: true,
                ..GroupStats::default()
            };
            (1..=10).map(|raw| tasks_to_even_out(&llc(0), &llc(raw), &rules)).collect()
        };
        for rules in [rules(), Rules { child_prefers_sibling: true, ..old() }] {
            assert_eq!(halved(2, rules), [0, 1, 1, 2, 2, 3, 3, 4, 4, 5]);
            for c in [4, 6, 8] {
                assert_eq!(halved(c, rules), [0, 0, 1, 2, 2, 3, 3, 4, 4, 5], "c = {c}");
            }
            assert_eq!(halved(12, rules), [0, 0, 0, 2, 2, 3, 3, 4, 4, 5]);
            assert_eq!(halved(16, rules), [0, 0, 0, 0, 2, 3, 3, 4, 4, 5]);
            assert_eq!(halved(32, rules), [0, 0, 0, 0, 0, 0, 0, 0, 4, 5]);
        }
    }

    #[test]
    fn a_number_of_tolerated_tasks_replaces_the_quarter() {
        let (local, busiest) = (group(GroupType::HasSpare, 0), group(GroupType::HasSpare, 4));
        let amount = |llc| {
            let rules = Rules { tolerance: Tolerance::between_llcs_by(llc), ..rules() };
            let busiest = GroupStats { prefer_sibling: true, ..busiest };
            tasks_to_even_out(&local, &busiest, &rules)
        };
        let amounts = [1, 3, 4].map(|tasks| amount(LlcTolerance::UpTo(tasks)));
        assert_eq!((amount(QUARTER), amounts), (2, [2, 2, 0]));
    }

    /// The filter is part of evening out. It does not change what an overloaded group gives.
    #[test]
    fn llc_imbalance_leaves_overload_alone() {
        let tolerance = Tolerance::between_llcs_by(QUARTER);
        let rules = Rules { tolerance, ..rules() };
        let local = GroupStats { util: 8192, ..group(GroupType::HasSpare, 4) };
        assert_eq!(decide(&stats(local, loaded(GroupType::Overloaded, 16384)), &rules), tasks(1));
    }
}
