//! Whether two groups are out of balance in 3.9, and by how much (section 11). Pure functions.

use super::POWER_SCALE;
use super::groups::{DomainStats, GroupStats, left_alone};
use super::small::{Side, at_least_a_task};
use crate::balance::Rules;
use crate::stats::IdleType;

/// Number of tasks a group has room for: its power in CPUs, rounded (`group_capacity`). A core with
/// threads has room for one.
fn capacity(group: &GroupStats) -> u32 {
    let rounded = (group.power + POWER_SCALE / 2) / POWER_SCALE;
    u32::try_from(rounded.max(1)).unwrap_or(u32::MAX)
}

/// Whether there is room for more tasks (`group_has_capacity`).
fn has_capacity(group: &GroupStats) -> bool {
    capacity(group) > group.nr_running
}

/// Whether CPUs of the group differ by a task's weight and by two tasks. Then the group is out of
/// balance inside, whatever its sum is (`group_imb`).
fn is_uneven(group: &GroupStats) -> bool {
    group.most_load.saturating_sub(group.least_load) >= group.load_per_task()
        && group.most.saturating_sub(group.fewest) > 1
}

/// Number of tasks that a group other than the local one may keep: one, if tasks are to be spread
/// over siblings and the local group has room; otherwise its capacity.
fn capacity_beside(group: &GroupStats, local: &GroupStats, rules: &Rules) -> u32 {
    let spread = rules.child_prefers_sibling && has_capacity(local);
    if spread { capacity(group).min(1) } else { capacity(group) }
}

/// Whether `group` replaces the busiest group so far (`update_sd_pick_busiest`).
pub(crate) fn is_busier(
    group: &GroupStats,
    busiest: Option<&GroupStats>,
    local: &GroupStats,
    rules: &Rules,
) -> bool {
    group.avg_load() > busiest.map_or(0, GroupStats::avg_load)
        && (group.nr_running > capacity_beside(group, local, rules) || is_uneven(group))
}

/// How much load should move from the busiest group to the local one, if any. The amount may be 0:
/// the kernel then still looks for a queue, and counts the result.
pub(crate) fn decide(stats: &DomainStats, rules: &Rules) -> Option<u64> {
    let busiest = stats.busiest.as_ref().filter(|busiest| busiest.nr_running > 0)?;
    if left_alone(&stats.local, busiest, rules) || !is_unbalanced(stats, busiest, rules) {
        return None;
    }
    Some(imbalance(stats, busiest, rules))
}

/// `find_busiest_group` after its statistics.
fn is_unbalanced(stats: &DomainStats, busiest: &GroupStats, rules: &Rules) -> bool {
    let (local, pct) = (&stats.local, u64::from(rules.imbalance_pct));
    let newly_idle = rules.idle == IdleType::NewlyIdle;
    if is_uneven(busiest) || (newly_idle && has_capacity(local) && !has_capacity(busiest)) {
        return true;
    }
    if local.avg_load() >= busiest.avg_load() || local.avg_load() >= stats.average_load() {
        return false;
    }
    match rules.idle {
        IdleType::Idle => {
            local.idle_cpus > busiest.idle_cpus + 1 || busiest.nr_running > busiest.weight
        }
        IdleType::Busy | IdleType::NewlyIdle => 100 * busiest.avg_load() > pct * local.avg_load(),
    }
}

/// `calculate_imbalance`.
fn imbalance(stats: &DomainStats, busiest: &GroupStats, rules: &Rules) -> u64 {
    let (local, average) = (&stats.local, stats.average_load());
    let uneven = is_uneven(busiest);
    let mut side = Side::of(busiest);
    if uneven {
        side.per_task = side.per_task.min(average);
    }
    let (here, there) = (local.avg_load(), busiest.avg_load());
    let amount = if there < average {
        0
    } else {
        let excess = busiest.nr_running.saturating_sub(capacity_beside(busiest, local, rules));
        let above_capacity = u64::from(excess) * POWER_SCALE * POWER_SCALE / busiest.power;
        let pull = (there - average).min(if uneven { u64::MAX } else { above_capacity });
        // Unsigned in the kernel: if the local group is above the average, this is no limit.
        let room = average.wrapping_sub(here).wrapping_mul(local.power);
        (pull * busiest.power).min(room) / POWER_SCALE
    };
    at_least_a_task(amount, Side::of(local), side, true)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{evenly, rules, stats};
    use super::*;

    /// A core with two threads.
    fn core(nr_running: u32) -> GroupStats {
        GroupStats { power: 1178, ..evenly(nr_running, 2) }
    }

    #[test]
    fn a_core_of_threads_is_for_one_task() {
        assert_eq!(capacity(&core(0)), 1);
        assert_eq!(capacity(&GroupStats { power: 589, ..evenly(0, 1) }), 1, "a thread");
        assert_eq!(capacity(&GroupStats { power: 294, ..evenly(0, 1) }), 1, "one of four");
        assert_eq!(capacity(&GroupStats { power: 11_780, ..evenly(0, 20) }), 12, "11.5 cores");
        assert_eq!(capacity(&evenly(0, 4)), 4);
    }

    #[test]
    fn a_group_has_to_have_more_tasks_than_it_is_for() {
        let idle = rules(IdleType::Idle);
        let busier =
            |group: &GroupStats, rules: &Rules| is_busier(group, None, &evenly(0, 4), rules);
        assert!(!busier(&evenly(4, 4), &idle));
        assert!(busier(&evenly(5, 4), &idle));
        assert!(busier(&core(2), &idle) && !busier(&core(1), &idle));
        let spread = Rules { child_prefers_sibling: true, ..idle };
        assert!(busier(&evenly(2, 4), &spread), "spread over siblings: room for one task");
        assert!(!busier(&evenly(1, 4), &spread));
        let full = evenly(4, 4);
        assert!(!is_busier(&evenly(4, 4), None, &full, &spread), "no room here");
        assert!(!is_busier(&evenly(5, 4), Some(&evenly(6, 4)), &evenly(0, 4), &idle));
    }

    /// 4 tasks, 3 of them on one CPU.
    #[test]
    fn a_group_uneven_inside_counts_as_out_of_balance() {
        let uneven = GroupStats { most_load: 3072, most: 3, ..evenly(4, 4) };
        let idle = rules(IdleType::Idle);
        assert!(is_uneven(&uneven) && is_busier(&uneven, None, &evenly(4, 4), &idle));
        assert!(!is_uneven(&GroupStats { fewest: 2, ..uneven }), "by one task");
        assert!(!is_uneven(&GroupStats { most_load: 1000, ..uneven }), "by less than a weight");
        // An idle CPU pulls a task although no more tasks wait than one CPU could run, but not from
        // an equally loaded group. With 4 and 3 tasks on 4 CPUs each, the excess is 512. The
        // average load, 896, is less than a task.
        assert_eq!(decide(&stats(evenly(3, 4), uneven), &idle), Some(896));
        assert_eq!(decide(&stats(evenly(4, 4), uneven), &idle), Some(0));
        // It does pull from a group with fewer tasks than its own: two tasks on one CPU against
        // three on three CPUs. The average load, 640, is 160 per task of that group. 512 - 768 +
        // 160 wraps.
        let pair = GroupStats { most_load: 2048, most: 2, ..evenly(2, 4) };
        assert_eq!(decide(&stats(evenly(3, 4), pair), &idle), Some(640));
    }

    /// 8 tasks on 4 CPUs against none: half of them would be even, and 4 is also the number above
    /// capacity.
    #[test]
    fn load_is_evened_out_but_no_cpu_made_idle() {
        let busy = rules(IdleType::Busy);
        assert_eq!(decide(&stats(evenly(0, 4), evenly(8, 4)), &busy), Some(4096));
        assert_eq!(decide(&stats(evenly(0, 4), evenly(5, 4)), &busy), Some(1024), "one too many");
        assert_eq!(decide(&stats(evenly(4, 4), evenly(5, 4)), &busy), None, "within 125 per cent");
    }

    /// One heavy task here, and 5 for 4 CPUs there: the fifth can use power here that it cannot use
    /// there.
    #[test]
    fn a_cpu_about_to_idle_takes_whatever_the_loads() {
        let local = GroupStats { load: 88_761, queued: 88_761, ..evenly(1, 4) };
        let pulled = |idle| decide(&stats(local, evenly(5, 4)), &rules(idle));
        assert_eq!(pulled(IdleType::NewlyIdle), Some(1024));
        assert_eq!(pulled(IdleType::Idle), None);
    }
}
