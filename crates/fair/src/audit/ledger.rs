//! What a queue's averages may hold beside the sum of its tasks', kept in builds with debug assertions.
//!
//! A queue and the tasks attached to it add the same contributions, but apart: each rounds for itself, and
//! a task that leaves does not always take exactly its own sums along (kernel model, section 3). The
//! ledger follows both, so that the audit can say how far apart they may be.
//!
//! Amounts are in units of what one task adds in a unit of time: its weight in sums of load, 1024 in the
//! other two.

use crate::pelt::{self, Avg};

/// What rounding makes of a sum in a period: two units for the decay of what was there, two for the end of
/// the period before, two for whole periods in between. (Many periods at once are 46 units short of the
/// same one by one, 47742 to 47788, which comes to less than one a period.)
const ROUNDED_A_PERIOD: u64 = 6;

/// Periods after which so little is left of them that the sum of all is that of these: 1/(1 - y) is 47.
const REMEMBERED: u64 = 48;

/// Units of time in a period.
const PERIOD: u64 = 1024;

/// How far apart a queue and its tasks may be, for load and for the number of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    /// Of the sums.
    pub sum: u64,
    /// Of the averages, which are as old as the last update in this period or before it.
    pub avg: u64,
}

/// The ledger of one queue, as of the last update of its averages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    /// Number of the current period.
    period: u64,
    /// What tasks that left have left behind in the sums of load, runnable and utilisation, or what they
    /// took too much.
    left: [i64; 3],
    /// What rounding may have made of the sums, in weights and in tasks.
    rounded: [u64; 2],
    /// Weights and number of the tasks attached.
    attached: [u64; 2],
    /// Of those that left in the current period.
    departed: [u64; 2],
}

impl Ledger {
    /// A task of `weight` is attached: what the queue does not add of its sums ([`Ledger::changed`]) is
    /// missing.
    pub(crate) fn joins(&mut self, task: &Avg, weight: u64) {
        self.attached[0] += weight;
        self.attached[1] += 1;
        self.owns(task, weight, -1);
    }

    /// A task of `weight` leaves: what the queue does not give up of its sums ([`Ledger::changed`]) is left
    /// behind.
    pub(crate) fn leaves(&mut self, task: &Avg, weight: u64) {
        self.attached[0] -= weight;
        self.attached[1] -= 1;
        self.departed[0] += weight;
        self.departed[1] += 1;
        self.owns(task, weight, 1);
    }

    /// The weight of a task becomes `new`: its load leaves, and joins anew.
    pub(crate) fn reweighs(&mut self, task: &Avg, old: u64, new: u64) {
        self.attached[0] = self.attached[0] + new - old;
        self.departed[0] += old;
        self.left[0] += (old * task.load_sum) as i64 - (new * task.load_sum) as i64;
    }

    /// The queue's averages changed as tasks joined or left.
    pub(crate) fn changed(&mut self, before: &Avg, after: &Avg) {
        self.owns(before, 1, -1);
        self.owns(after, 1, 1);
    }

    /// Counts `sign` times sums among what is left.
    fn owns(&mut self, sums: &Avg, weight: u64, sign: i64) {
        self.left[0] += sign * (weight * sums.load_sum) as i64;
        self.left[1] += sign * sums.runnable_sum as i64;
        self.left[2] += sign * sums.util_sum as i64;
    }

    /// The queue's averages have been brought up to `last_update`; tasks with `load` together were queued,
    /// `nr` of them.
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
            // Tasks round for themselves, the queue for all that is queued, and this ledger.
            let rounding = self.attached[index] + self.departed[index] + queued + 1;
            let added = ROUNDED_A_PERIOD * rounding * ended.min(REMEMBERED);
            self.rounded[index] = pelt::decay(self.rounded[index], ended) + added;
        }
        self.departed = [0; 2];
    }

    /// What the sums of load, runnable and utilisation hold that is no attached task's.
    pub(super) fn left(&self) -> [i64; 3] {
        self.left
    }

    /// Weights and number of the tasks attached, as kept.
    pub(super) fn attached(&self) -> [u64; 2] {
        self.attached
    }

    /// How far load (0) or the number of tasks (1) may be from the tasks' sum and what is left.
    ///
    /// The averages of queue and tasks are of different moments of the period: each of those attached, or
    /// attached a moment ago, may have added up to a period since, and all averages are rounded down.
    pub(super) fn limit(&self, index: usize) -> Limit {
        let unit = [1, 1024][index];
        let sum = unit * self.rounded[index];
        let present = unit * (self.attached[index] + self.departed[index]);
        let averages = self.attached[1] + self.departed[1] + 3;
        let avg = (sum + PERIOD * present) / pelt::MIN_DIVIDER + averages;
        Limit { sum, avg }
    }
}
