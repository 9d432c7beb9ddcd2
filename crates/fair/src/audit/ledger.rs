//! How far a queue's averages may differ from the sum over its tasks, kept in builds with debug
//! assertions.
//!
//! A queue and its attached tasks add the same contributions, but separately. Each rounds for
//! itself, and a leaving task does not always take exactly its own sums along (kernel model,
//! section 3). The ledger follows both effects, so that the audit knows the largest possible
//! difference.
//!
//! Amounts are in units of what one task adds in a unit of time: its weight in sums of load, 1024
//! in the two other sums.

use crate::pelt::{self, Avg};

/// Rounding error of a sum per period: two units for the decay of the old sum, two for the end of
/// the period before, two for whole periods between. (Many periods at once are 46 units short of
/// the same periods one by one, 47742 to 47788. That is less than one unit per period.)
const ROUNDED_A_PERIOD: u64 = 6;

/// Periods after which so little of a contribution is left that older ones can be neglected: 1/(1 -
/// y) is 47.
const REMEMBERED: u64 = 48;

/// Units of time per period.
pub(super) const PERIOD: u64 = 1024;

/// How far a queue and its tasks may differ, in load or in number of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    /// Limit of the sums.
    pub sum: u64,
    /// Limit of the averages. Each is as old as the last update, in this period or before it.
    pub avg: u64,
}

/// The ledger of one queue, as of the last update of its averages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    /// Number of the current period.
    period: u64,
    /// What tasks that left have left behind in the sums of load, runnable and utilisation.
    /// Negative if they took too much.
    left: [i64; 3],
    /// Possible rounding error of the sums, in weights and in tasks.
    rounded: [u64; 2],
    /// Weights and number of the attached tasks.
    attached: [u64; 2],
    /// The same of tasks that left in the current period.
    departed: [u64; 2],
}

impl Ledger {
    /// A task of `weight` is attached. Any part of its sums that the queue does not add
    /// ([`Ledger::changed`]) is missing.
    pub(crate) fn joins(&mut self, task: &Avg, weight: u64) {
        self.attached[0] += weight;
        self.attached[1] += 1;
        self.owns(task, weight, -1);
    }

    /// A task of `weight` leaves. Any part of its sums that the queue does not subtract
    /// ([`Ledger::changed`]) is left behind.
    pub(crate) fn leaves(&mut self, task: &Avg, weight: u64) {
        self.attached[0] -= weight;
        self.attached[1] -= 1;
        self.departed[0] += weight;
        self.departed[1] += 1;
        self.owns(task, weight, 1);
    }

    /// The weight of a task becomes `new`: its load leaves and joins again.
    pub(crate) fn reweighs(&mut self, task: &Avg, old: u64, new: u64) {
        self.attached[0] = self.attached[0] + new - old;
        self.departed[0] += old;
        self.left[0] += (old * task.load_sum) as i64 - (new * task.load_sum) as i64;
    }

    /// The queue's averages changed because tasks joined or left.
    pub(crate) fn changed(&mut self, before: &Avg, after: &Avg) {
        self.owns(before, 1, -1);
        self.owns(after, 1, 1);
    }

    /// Adds the sums, times `sign`, to what is left.
    fn owns(&mut self, sums: &Avg, weight: u64, sign: i64) {
        self.left[0] += sign * (weight * sums.load_sum) as i64;
        self.left[1] += sign * sums.runnable_sum as i64;
        self.left[2] += sign * sums.util_sum as i64;
    }

    /// The queue's averages were updated to `last_update`, while `nr` tasks with a total of `load`
    /// were queued.
    pub(crate) fn update(&mut self, last_update: u64, load: u64, nr: u64) {
        let period = (last_update >> 10) / PERIOD;
        let ended = period - self.period;
        if ended == 0 {
            return;
        }
        self.period = period;
        for left in &mut self.left {
            let decayed = pelt::decay(left.unsigned_abs(), ended) as i64;
            *left = left.signum() * decayed;
        }
        for (index, queued) in [load, nr].into_iter().enumerate() {
            // Each task rounds for itself, the queue for all queued tasks, and so does this ledger.
            let rounding = self.attached[index] + self.departed[index] + queued + 1;
            let added = ROUNDED_A_PERIOD * rounding * ended.min(REMEMBERED);
            self.rounded[index] = pelt::decay(self.rounded[index], ended) + added;
        }
        self.departed = [0; 2];
    }

    /// The parts of the sums of load, runnable and utilisation that belong to no attached task.
    pub(super) fn left(&self) -> [i64; 3] {
        self.left
    }

    /// Stored weights and number of the attached tasks.
    pub(super) fn attached(&self) -> [u64; 2] {
        self.attached
    }

    /// How far load (0) or the number of tasks (1) may differ from the tasks' sum plus what is
    /// left.
    ///
    /// The averages of queue and tasks are of different moments of the period. Each task that is
    /// attached, or was a moment ago, may have added up to a period since. All averages are rounded
    /// down.
    pub(super) fn limit(&self, index: usize) -> Limit {
        let unit = [1, 1024][index];
        let sum = unit * self.rounded[index];
        let present = unit * (self.attached[index] + self.departed[index]);
        let averages = self.attached[1] + self.departed[1] + 3;
        let avg = (sum + PERIOD * present) / pelt::MIN_DIVIDER + averages;
        Limit { sum, avg }
    }
}
