//! Whether two groups are out of balance in 5.2, and by how much (section 11). Pure functions.

use super::POWER_SCALE;
use super::groups::{DomainStats, GroupStats, left_alone};
use super::small::{Side, at_least_a_task};
use crate::balance::Rules;
use crate::stats::IdleType;

/// How much a group needs help, least first (`enum group_type`). The type misfit needs CPUs of
/// different capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Other,
    /// Balancing inside it failed because of affinity.
    Imbalanced,
    Overloaded,
}

/// Whether there is room for more tasks (`group_has_capacity`).
fn has_capacity(group: &GroupStats, pct: u64) -> bool {
    group.nr_running < group.weight || 100 * group.power > pct * group.util
}

/// Whether a group other than the local one has more than it can take (`group_no_capacity`): either
/// by itself, or, if tasks are to be spread over siblings, because it has at least two tasks more
/// than a local group with room.
fn no_capacity(group: &GroupStats, local: &GroupStats, rules: &Rules) -> bool {
    let pct = u64::from(rules.imbalance_pct);
    let by_itself = group.nr_running > group.weight && 100 * group.power < pct * group.util;
    let excess = rules.child_prefers_sibling
        && has_capacity(local, pct)
        && group.nr_running > local.nr_running + 1;
    by_itself || excess
}

fn kind(group: &GroupStats, local: &GroupStats, rules: &Rules) -> Kind {
    if no_capacity(group, local, rules) {
        Kind::Overloaded
    } else if group.pinned {
        Kind::Imbalanced
    } else {
        Kind::Other
    }
}

/// Whether `group` replaces the busiest group so far (`update_sd_pick_busiest`).
pub(crate) fn is_busier(
    group: &GroupStats,
    busiest: Option<&GroupStats>,
    local: &GroupStats,
    rules: &Rules,
) -> bool {
    let this = kind(group, local, rules);
    let that = busiest.map_or(Kind::Other, |busiest| kind(busiest, local, rules));
    this > that || (this == that && group.avg_load() > busiest.map_or(0, GroupStats::avg_load))
}

/// How much load should move from the busiest group to the local one, if any.
pub(crate) fn decide(stats: &DomainStats, rules: &Rules) -> Option<u64> {
    let busiest = stats.busiest.as_ref().filter(|busiest| busiest.nr_running > 0)?;
    if left_alone(&stats.local, busiest, rules) || !is_unbalanced(stats, busiest, rules) {
        return None;
    }
    Some(imbalance(stats, busiest, rules)).filter(|&amount| amount > 0)
}

/// `find_busiest_group` after its statistics.
fn is_unbalanced(stats: &DomainStats, busiest: &GroupStats, rules: &Rules) -> bool {
    let (local, pct) = (&stats.local, u64::from(rules.imbalance_pct));
    let kind = kind(busiest, local, rules);
    if kind == Kind::Imbalanced {
        return true;
    }
    if rules.idle != IdleType::Busy
        && has_capacity(local, pct)
        && no_capacity(busiest, local, rules)
    {
        return true;
    }
    if local.avg_load() >= busiest.avg_load() || local.avg_load() >= stats.average_load() {
        return false;
    }
    match rules.idle {
        IdleType::Idle => kind == Kind::Overloaded || local.idle_cpus > busiest.idle_cpus + 1,
        IdleType::Busy | IdleType::NewlyIdle => 100 * busiest.avg_load() > pct * local.avg_load(),
    }
}

/// `calculate_imbalance`.
fn imbalance(stats: &DomainStats, busiest: &GroupStats, rules: &Rules) -> u64 {
    let (local, average) = (&stats.local, stats.average_load());
    let mut side = Side::of(busiest);
    if kind(busiest, local, rules) == Kind::Imbalanced {
        side.per_task = side.per_task.min(average);
    }
    let (here, there) = (local.avg_load(), busiest.avg_load());
    let amount = if there <= average || here >= average {
        0
    } else {
        let pull = (there - average).min(above_capacity(local, busiest, rules));
        (pull * busiest.power).min((average - here) * local.power) / POWER_SCALE
    };
    at_least_a_task(amount, Side::of(local), side, false)
}

/// Load per power of the busiest group beyond one task for each of its CPUs, if both groups are
/// overloaded. Moving no more than that makes no CPU idle.
fn above_capacity(local: &GroupStats, busiest: &GroupStats, rules: &Rules) -> u64 {
    let pct = u64::from(rules.imbalance_pct);
    let local_overloaded = local.nr_running > local.weight && 100 * local.power < pct * local.util;
    let needed = u64::from(busiest.nr_running) * POWER_SCALE;
    if !local_overloaded || !no_capacity(busiest, local, rules) || needed <= busiest.power {
        return u64::MAX;
    }
    (needed - busiest.power) * POWER_SCALE / busiest.power
}

#[cfg(test)]
mod tests {
    use super::super::tests::{evenly, rules, stats};
    use super::*;

    fn idle() -> Rules {
        rules(IdleType::Idle)
    }

    #[test]
    fn a_group_is_overloaded_by_use_or_by_more_tasks_than_a_sibling_with_room() {
        let full = GroupStats { util: 4096, ..evenly(5, 4) };
        let unused = GroupStats { util: 3000, ..evenly(5, 4) };
        let spread = Rules { child_prefers_sibling: true, ..idle() };
        assert_eq!(kind(&full, &evenly(0, 4), &idle()), Kind::Overloaded);
        assert_eq!(kind(&unused, &evenly(0, 4), &idle()), Kind::Other, "5 tasks that sleep much");
        assert_eq!(kind(&evenly(2, 4), &evenly(0, 4), &spread), Kind::Overloaded);
        assert_eq!(kind(&evenly(2, 4), &evenly(1, 4), &spread), Kind::Other, "ahead by one");
        let crowded = GroupStats { util: 4096, ..evenly(4, 4) };
        assert_eq!(kind(&evenly(9, 4), &crowded, &spread), Kind::Other, "no room here");
        let pinned = GroupStats { pinned: true, ..evenly(2, 4) };
        assert_eq!(kind(&pinned, &evenly(0, 4), &idle()), Kind::Imbalanced);
    }

    #[test]
    fn the_busiest_group_is_of_the_highest_type_then_of_the_highest_load() {
        let (rules, local) = (idle(), evenly(0, 4));
        let overloaded = GroupStats { util: 4096, ..evenly(5, 4) };
        let heavy = GroupStats { load: 9000, queued: 9000, ..evenly(3, 4) };
        assert!(!is_busier(&evenly(0, 4), None, &local, &rules), "without load");
        assert!(is_busier(&evenly(1, 4), None, &local, &rules));
        assert!(is_busier(&overloaded, Some(&heavy), &local, &rules));
        assert!(!is_busier(&heavy, Some(&overloaded), &local, &rules));
        assert!(is_busier(&heavy, Some(&evenly(3, 4)), &local, &rules));
        assert!(!is_busier(&evenly(3, 4), Some(&evenly(3, 4)), &local, &rules), "equal");
    }

    /// Two groups of 4 CPUs, with 3 tasks and none: 1.5 each would be even. No task waits, but 4
    /// idle CPUs and 1 differ by more than one.
    #[test]
    fn an_idle_cpu_evens_out_idle_cpus_unless_they_differ_by_one() {
        assert_eq!(decide(&stats(evenly(0, 4), evenly(3, 4)), &idle()), Some(1536));
        assert_eq!(decide(&stats(evenly(2, 4), evenly(3, 4)), &idle()), None);
        assert_eq!(decide(&stats(evenly(1, 4), evenly(3, 4)), &idle()), Some(1024));
    }

    /// At 125 per cent 3 tasks against 2 are too many, 5 against 4 are not.
    #[test]
    fn a_busy_cpu_goes_by_the_percentage() {
        let busy = rules(IdleType::Busy);
        assert_eq!(decide(&stats(evenly(5, 2), evenly(6, 2)), &busy), None);
        assert_eq!(decide(&stats(evenly(4, 2), evenly(5, 2)), &busy), None, "exactly 125");
        assert_eq!(decide(&stats(evenly(4, 2), evenly(6, 2)), &busy), Some(1024));
    }

    #[test]
    fn neither_a_busier_local_group_nor_one_above_average_takes() {
        let busy = rules(IdleType::Busy);
        assert_eq!(decide(&stats(evenly(3, 4), evenly(3, 4)), &busy), None);
        assert_eq!(decide(&stats(evenly(4, 4), evenly(3, 4)), &busy), None);
        let third = DomainStats {
            total_load: 5120,
            total_power: 12 * 1024,
            ..stats(evenly(2, 4), evenly(3, 4))
        };
        assert_eq!(decide(&third, &busy), None, "above the average of three groups");
    }

    /// 3 light tasks on 2 CPUs have a lower load than the local group's one heavy task. The idle
    /// CPU still pulls one, because the group is overloaded.
    #[test]
    fn an_idle_cpu_takes_from_an_overloaded_group_whatever_the_loads() {
        let local = GroupStats { load: 88_761, queued: 88_761, ..evenly(1, 2) };
        let busiest = GroupStats { util: 2048, ..evenly(3, 2) };
        assert_eq!(decide(&stats(local, busiest), &idle()), Some(1024));
        assert_eq!(decide(&stats(local, busiest), &rules(IdleType::Busy)), None);
    }

    /// Both groups are overloaded, with 9 and 5 tasks on 4 CPUs. The average is 7 tasks on 4 CPUs,
    /// so the excess is 512 per power. 9 tasks are 5 too many for 4 CPUs, 1,280 per power. The
    /// smaller number decides: 2 tasks move. With heavy tasks it is the other number, because no
    /// CPU shall become idle.
    #[test]
    fn between_overloaded_groups_no_cpu_is_made_idle() {
        let busy = rules(IdleType::Busy);
        let full = |nr| GroupStats { util: 4096, ..evenly(nr, 4) };
        assert_eq!(decide(&stats(full(5), full(9)), &busy), Some(2048));
        let heavy = GroupStats { load: 5 * 88_761, queued: 5 * 88_761, ..full(5) };
        let amount = decide(&stats(full(6), heavy), &busy).unwrap();
        assert_eq!(amount, 88_761, "(5 - 4) x 1024 / 4 per power is less than one task");
        assert_eq!(above_capacity(&full(6), &heavy, &busy), 256);
        assert_eq!(above_capacity(&evenly(1, 4), &heavy, &busy), u64::MAX);
    }
}
