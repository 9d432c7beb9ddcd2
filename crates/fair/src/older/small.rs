//! If the imbalance is less than one task: whether one task is moved anyway (`fix_small_imbalance`,
//! section 11). Pure functions.

use super::POWER_SCALE;
use super::groups::GroupStats;

/// What this rule needs to know of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Side {
    /// Load per power, scaled by 1024.
    pub avg_load: u64,
    /// Average load of its tasks.
    pub per_task: u64,
    /// Its power.
    pub power: u64,
    /// Its tasks.
    pub nr_running: u32,
}

impl Side {
    /// A group with its current loads.
    pub(crate) fn of(group: &GroupStats) -> Self {
        Self {
            avg_load: group.avg_load(),
            per_task: group.load_per_task(),
            power: group.power,
            nr_running: group.nr_running,
        }
    }
}

/// What to move instead of `amount`, which may be less than one task. It is a task's load if that
/// is small compared with the difference of the groups, or if moving it gains throughput. With
/// `wraps` the difference is unsigned: it is then also large if the local group has more load, by
/// more than one task.
pub(crate) fn at_least_a_task(amount: u64, local: Side, busiest: Side, wraps: bool) -> u64 {
    if amount >= busiest.per_task {
        return amount;
    }
    let task = busiest.per_task * POWER_SCALE / busiest.power.max(1);
    let lighter_here = local.nr_running > 0 && busiest.per_task > local.per_task;
    let factor = if lighter_here { 1 } else { 2 };
    let far_apart = if wraps {
        busiest.avg_load.wrapping_sub(local.avg_load).wrapping_add(task) >= factor * task
    } else {
        busiest.avg_load + task >= local.avg_load + factor * task
    };
    if far_apart || gains_throughput(local, busiest, task) { busiest.per_task } else { amount }
}

/// Whether moving one task, `task` of the busiest group's load per power, makes more use of the
/// groups' power. A group uses no more of its power than the load of its tasks.
fn gains_throughput(local: Side, busiest: Side, task: u64) -> bool {
    let used = |side: Side, avg_load: u64| side.power * side.per_task.min(avg_load);
    let now = (used(busiest, busiest.avg_load) + used(local, local.avg_load)) / POWER_SCALE;
    let left = busiest.avg_load.checked_sub(task).filter(|&rest| rest > 0);
    let (whole, one) = (busiest.avg_load * busiest.power, busiest.per_task * POWER_SCALE);
    let added = whole.min(one) / local.power.max(1);
    let then = left.map_or(0, |left| used(busiest, left)) + used(local, local.avg_load + added);
    then / POWER_SCALE > now
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(nr_running: u32, per_task: u64, cpus: u64) -> Side {
        let power = cpus * POWER_SCALE;
        let avg_load = u64::from(nr_running) * per_task * POWER_SCALE / power;
        Side { avg_load, per_task, power, nr_running }
    }

    #[test]
    fn a_task_or_more_stays_as_it_is() {
        assert_eq!(at_least_a_task(1024, side(0, 0, 1), side(2, 1024, 1), false), 1024);
        assert_eq!(at_least_a_task(3000, side(0, 0, 1), side(4, 1024, 1), false), 3000);
    }

    /// Two tasks and none: an average of one each leaves 1,024 to move; a smaller amount becomes
    /// one task. Two tasks and one of the same weight differ by one task: k is 2, and 2,048 + 1,024
    /// is not less than 1,024 + 2 x 1,024, so one moves although nothing is gained.
    #[test]
    fn tasks_move_up_to_a_difference_of_one() {
        assert_eq!(at_least_a_task(1000, side(0, 0, 1), side(2, 1024, 1), false), 1024);
        assert_eq!(at_least_a_task(0, side(1, 1024, 1), side(2, 1024, 1), false), 1024);
        assert_eq!(at_least_a_task(0, side(1, 1024, 1), side(1, 1024, 1), false), 0, "even");
    }

    /// 3 tasks on 2 CPUs and 3 lighter ones on 2: k is 1, so even a small difference is enough:
    /// 1,500 + 500 is not less than 1,200 + 500.
    #[test]
    fn heavier_tasks_move_to_lighter_ones() {
        assert_eq!(at_least_a_task(300, side(3, 800, 2), side(3, 1000, 2), false), 1000);
    }

    /// With 3 tasks here on 4 CPUs and 2 there, 512 - 768 + 256 is 0: less than 2 x 256, wrapped or
    /// not. With 4 tasks here it is negative, and wraps to a large number.
    #[test]
    fn an_unsigned_difference_is_far_where_the_local_group_has_more_by_over_a_task() {
        let far =
            |here: u32, wraps| at_least_a_task(0, side(here, 1024, 4), side(2, 1024, 4), wraps) > 0;
        assert!(!far(3, true) && !far(3, false));
        assert!(far(4, true) && !far(4, false));
    }

    /// One heavy task on a CPU and light ones on the other, which has more load. The difference is
    /// small, and moving a light task would leave power of the busiest group unused.
    #[test]
    fn throughput_decides_what_the_difference_does_not() {
        let (local, busiest) = (side(1, 1024, 2), side(1, 600, 1));
        // 600 + 600 < 512 + 2 x 600. The use is now (1024 x 600 + 2048 x 512) / 1024 = 1624. After
        // a move the busiest group has nothing left and the local group uses 812, which is below
        // its tasks' 1,024.
        assert_eq!(at_least_a_task(0, local, busiest, false), 0);
        assert!(!gains_throughput(local, busiest, 600));
    }
}
