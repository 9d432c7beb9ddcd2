//! Per-entity load tracking: geometric averages of load, runnable time and utilisation, and the
//! utilisation estimate of sleeping tasks (kernel model, section 3).
//!
//! Time is divided into periods of 1024 units of 1024 ns. A period `n` periods ago counts `y^n`,
//! with `y^32 = 1/2`. Sums are geometric series. Averages are sums divided by the maximum of the
//! series, and are computed only when a period ends.
//!
//! All averages of a run start at time 0, so the periods of tasks and queues coincide. Averages
//! that are updated to the same moment can be added and subtracted.

use std::hint::select_unpredictable;

use crate::eras::LeavingSums;

/// Units (of 1024 ns) per period.
const PERIOD: u64 = 1024;

/// Sum of the series over infinitely many full periods (`LOAD_AVG_MAX`).
pub(crate) const LOAD_AVG_MAX: u64 = 47742;

/// The smallest divisor of an average (`PELT_MIN_DIVIDER`).
pub(crate) const MIN_DIVIDER: u64 = LOAD_AVG_MAX - PERIOD;

/// Full capacity of a CPU (`SCHED_CAPACITY_SCALE`), and the unit of utilisation.
const CAPACITY: u64 = 1024;

/// Number of periods after which a sum has decayed to 0.
const DECAYED_AFTER: u64 = 63 * 32;

/// Changes of utilisation below 1 % of a CPU are ignored (`UTIL_EST_MARGIN`).
const UTIL_EST_MARGIN: u64 = CAPACITY / 100;

/// `y^n` for n = 0 to 31, with 32 fraction bits (`runnable_avg_yN_inv`).
const INVERSE: [u32; 32] = [
    0xffff_ffff,
    0xfa83_b2da,
    0xf525_7d14,
    0xefe4_b99a,
    0xeac0_c6e6,
    0xe5b9_06e6,
    0xe0cc_deeb,
    0xdbfb_b796,
    0xd744_fcc9,
    0xd2a8_1d91,
    0xce24_8c14,
    0xc9b9_bd85,
    0xc567_2a10,
    0xc12c_4cc9,
    0xbd08_a39e,
    0xb8fb_af46,
    0xb504_f333,
    0xb123_f581,
    0xad58_3ee9,
    0xa9a1_5ab4,
    0xa5fe_d6a9,
    0xa270_4302,
    0x9ef5_325f,
    0x9b8d_39b9,
    0x9837_f050,
    0x94f4_efa8,
    0x91c3_d373,
    0x8ea4_398a,
    0x8b95_c1e3,
    0x8898_0e80,
    0x85aa_c367,
    0x82cd_8698,
];

/// Averages of one task, or of one run queue with all tasks attached to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Avg {
    /// Average weight of the runnable tasks.
    pub load_avg: u64,
    /// Average number of runnable tasks, 1024 for one.
    pub runnable_avg: u64,
    /// Average time running, 1024 for always.
    pub util_avg: u64,
    /// Time up to which the sums are computed, ns, in steps of 1024.
    pub last_update: u64,
    /// Units of the current, unfinished period that the sums already include.
    pub period_contrib: u32,
    /// Series of the load: without the weight for a task, with the weights for a queue.
    pub load_sum: u64,
    /// Series of runnable tasks, times 1024.
    pub runnable_sum: u64,
    /// Series of running, times 1024.
    pub util_sum: u64,
}

impl Avg {
    /// Accounts the time from the last update to `now_ns` with the given inputs. Returns whether a
    /// period ended, which means that the averages changed.
    ///
    /// For a task `load` and `runnable` are 1 while it is queued, and `weight` is its weight. For a
    /// queue `load` is the sum of the weights, `runnable` the number of runnable tasks, and
    /// `weight` is 1. If nothing is queued, all are 0.
    #[inline(always)]
    pub(crate) fn update(
        &mut self,
        now_ns: u64,
        load: u64,
        runnable: u64,
        running: bool,
        weight: u64,
    ) -> bool {
        let units = pass_units(&mut self.last_update, now_ns);
        if units == 0 {
            return false;
        }
        let (runnable, running) = if load == 0 { (0, false) } else { (runnable, running) };
        let total = units + u64::from(self.period_contrib);
        if total < PERIOD {
            self.period_contrib = total as u32;
            self.add_contribution(units, load, runnable, running);
            return false;
        }
        self.end_periods(total, load, runnable, running, weight);
        true
    }

    /// Averages of a task just created on a CPU whose queue has the averages `rq`, up to date at
    /// `now_ns`: full load, and half of the free utilisation. The utilisation is smaller if the
    /// tasks on the queue use less in relation to their weight.
    pub(crate) fn new_task(weight: u64, rq: &Self, now_ns: u64) -> Self {
        let cap = CAPACITY.saturating_sub(rq.util_avg) / 2;
        let util = if rq.util_avg == 0 {
            cap
        } else {
            (rq.util_avg * weight / (rq.load_avg + 1)).min(cap)
        };
        let mut avg = Self {
            last_update: now_ns & !1023,
            period_contrib: rq.period_contrib,
            load_avg: weight,
            runnable_avg: util,
            util_avg: util,
            ..Self::default()
        };
        let divider = avg.divider();
        avg.load_sum = divider;
        avg.runnable_sum = util * divider;
        avg.util_sum = util * divider;
        avg
    }

    /// Continues the averages of a task of `weight` that is between two queues, for which time
    /// stands still: they go on from the last update of `queue`, which the task joins
    /// (`attach_entity_load_avg`).
    pub(crate) fn join(&mut self, queue: &Self, weight: u64) {
        self.last_update = queue.last_update;
        self.period_contrib = queue.period_contrib;
        let divider = self.divider();
        self.load_sum = (self.load_avg * divider / weight).max(1);
        self.runnable_sum = self.runnable_avg * divider;
        self.util_sum = self.util_avg * divider;
    }

    /// [`Avg::join`] of a task in a group that counts as `weight` in loads. The load moves as the
    /// sum of its series, because the load average is so small that rounding would leave little of
    /// it after some moves. (The kernel's entities keep the load by their own weight.)
    pub(crate) fn join_in_group(&mut self, queue: &Self, weight: u64) {
        let (load_sum, before) = (self.load_sum, self.divider());
        self.join(queue, weight);
        self.load_sum = ((load_sum * self.divider() + before / 2) / before).max(1);
        self.load_avg = self.weighing(weight).load_avg;
    }

    /// Adds the averages of a task of `weight` to this queue's.
    pub(crate) fn add(&mut self, task: &Self, weight: u64) {
        self.add_load(task, weight);
        self.runnable_avg += task.runnable_avg;
        self.runnable_sum += task.runnable_sum;
        self.util_avg += task.util_avg;
        self.util_sum += task.util_sum;
    }

    /// Subtracts the averages of a task of `weight` from this queue's (`detach_entity_load_avg()`).
    pub(crate) fn sub(&mut self, task: &Self, weight: u64, how: LeavingSums) {
        self.sub_load(task, weight, how);
        let divider = self.divider();
        let runnable = Part { avg: task.runnable_avg, sum: task.runnable_sum };
        runnable.leave(&mut self.runnable_avg, &mut self.runnable_sum, divider, how);
        let util = Part { avg: task.util_avg, sum: task.util_sum };
        util.leave(&mut self.util_avg, &mut self.util_sum, divider, how);
    }

    /// The averages of a task as if it had this weight.
    pub(crate) fn weighing(&self, weight: u64) -> Self {
        let load_avg = weight * self.load_sum / self.divider();
        Self { load_avg, load_sum: self.load_sum, ..Self::default() }
    }

    /// Adds the load of a task of `weight` to this average (`enqueue_load_avg()`).
    pub(crate) fn add_load(&mut self, task: &Self, weight: u64) {
        self.load_avg += task.load_avg;
        self.load_sum += weight * task.load_sum;
    }

    /// Subtracts the load of a task of `weight` from this average (`dequeue_load_avg()`).
    pub(crate) fn sub_load(&mut self, task: &Self, weight: u64, how: LeavingSums) {
        let divider = self.divider();
        let load = Part { avg: task.load_avg, sum: weight * task.load_sum };
        load.leave(&mut self.load_avg, &mut self.load_sum, divider, how);
    }

    /// Subtracts the averages of tasks that left without this queue's lock. They are as old as the
    /// queue's last update. Only averages are known, so the contributions of the current period
    /// stay (`removed` in `update_cfs_rq_load_avg()`). In 5.16 that happens to utilisation only
    /// (98b0d890220d is in 5.15.19, and in the 5.16 of that day).
    pub(crate) fn subtract(&mut self, removed: Removed, how: LeavingSums) {
        let divider = self.divider();
        let part = |avg: u64| Part { avg, sum: avg * divider };
        let Removed { load_avg, runnable_avg, util_avg, .. } = removed;
        part(load_avg).leave(&mut self.load_avg, &mut self.load_sum, divider, how);
        part(runnable_avg).leave(&mut self.runnable_avg, &mut self.runnable_sum, divider, how);
        let how = match how {
            LeavingSums::OfAverages => LeavingSums::OwnAboveAverages,
            LeavingSums::Own | LeavingSums::OwnAboveAverages => how,
        };
        part(util_avg).leave(&mut self.util_avg, &mut self.util_sum, divider, how);
    }

    /// Adds to the sums a time that counts `contrib` units, with the given inputs.
    #[inline(always)]
    fn add_contribution(&mut self, contrib: u64, load: u64, runnable: u64, running: bool) {
        self.load_sum += load * contrib;
        self.runnable_sum += (runnable * contrib) << 10;
        self.util_sum += (u64::from(running) * contrib) << 10;
    }

    /// Decays the sums by the periods that ended, `total` units after the start of the current one.
    /// Adds the time since the last update. Computes the averages.
    #[inline(never)]
    fn end_periods(&mut self, total: u64, load: u64, runnable: u64, running: bool, weight: u64) {
        let (periods, after) = (total / PERIOD, total % PERIOD);
        self.load_sum = decay(self.load_sum, periods);
        self.runnable_sum = decay(self.runnable_sum, periods);
        self.util_sum = decay(self.util_sum, periods);
        if load != 0 {
            let contrib = contribution(u64::from(self.period_contrib), periods, after);
            self.add_contribution(contrib, load, runnable, running);
        }
        self.period_contrib = after as u32;
        let divider = self.divider();
        self.load_avg = weight * self.load_sum / divider;
        self.runnable_avg = self.runnable_sum / divider;
        self.util_avg = self.util_sum / divider;
    }

    /// The value of a sum whose input has always been 1.
    #[inline]
    fn divider(&self) -> u64 {
        divider(self.period_contrib)
    }
}

/// The load average of a group on a CPU, or of what is queued (5.2). It is computed as [`Avg`]
/// computes its load, and takes half of the bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoadAvg {
    /// Average weight of the runnable tasks.
    pub load_avg: u64,
    /// Series of the load, with the weights.
    load_sum: u64,
    /// Time up to which the sum is computed, ns, in steps of 1024.
    last_update: u64,
    /// Units of the current, unfinished period that the sum already includes.
    period_contrib: u32,
}

impl LoadAvg {
    /// [`Avg::update`] of a queue whose weights add up to `load`.
    #[inline(always)]
    pub(crate) fn update(&mut self, now_ns: u64, load: u64) -> bool {
        let units = pass_units(&mut self.last_update, now_ns);
        if units == 0 {
            return false;
        }
        let total = units + u64::from(self.period_contrib);
        if total < PERIOD {
            self.period_contrib = total as u32;
            self.load_sum += load * units;
            return false;
        }
        self.end_periods(total, load);
        true
    }

    /// Adds the load of a task of `weight` (`enqueue_load_avg()`, and `enqueue_runnable_load_avg()`
    /// of 5.2).
    pub(crate) fn add(&mut self, task: &Avg, weight: u64) {
        self.load_avg += task.load_avg;
        self.load_sum += weight * task.load_sum;
    }

    /// Subtracts the load of a task of `weight` (`dequeue_load_avg()`, and
    /// `dequeue_runnable_load_avg()` of 5.2).
    pub(crate) fn sub(&mut self, task: &Avg, weight: u64, how: LeavingSums) {
        let divider = divider(self.period_contrib);
        let load = Part { avg: task.load_avg, sum: weight * task.load_sum };
        load.leave(&mut self.load_avg, &mut self.load_sum, divider, how);
    }

    /// [`Avg::end_periods`].
    #[inline(never)]
    fn end_periods(&mut self, total: u64, load: u64) {
        let (periods, after) = (total / PERIOD, total % PERIOD);
        self.load_sum = decay(self.load_sum, periods);
        if load != 0 {
            self.load_sum += load * contribution(u64::from(self.period_contrib), periods, after);
        }
        self.period_contrib = after as u32;
        self.load_avg = self.load_sum / divider(self.period_contrib);
    }
}

/// Average time that a CPU spends in interrupts and softirqs (`rq->avg_irq`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IrqAvg(Avg);

impl IrqAvg {
    /// Accounts the time up to `now`, of which interrupts took `running`. As the kernel does not know when, they count
    /// as the last part of it (`update_irq_load_avg()`).
    pub(crate) fn update(&mut self, now: u64, running: u64) {
        let Self(avg) = self;
        let before = avg.update(now - running, 0, 0, false, 1);
        let after = avg.update(now, 1, 1, true, 1);
        if before && !after {
            avg.util_avg = avg.util_sum / avg.divider();
        }
    }

    /// How long work of `ns` takes beside the interrupts (`hrtick_start_fair()`).
    pub(crate) fn extended(&self, ns: u64) -> u64 {
        match self.0.util_avg {
            util @ 1..CAPACITY => ns * (CAPACITY * CAPACITY / (CAPACITY - util)) / CAPACITY,
            _ => ns,
        }
    }

    /// The average, 1024 for always (`cpu_util_irq()`).
    pub(crate) fn util(&self) -> u64 {
        self.0.util_avg
    }
}

/// Averages of tasks that left a queue without its lock (`cfs_rq->removed`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Removed {
    /// Whether any task left.
    pub any: bool,
    load_avg: u64,
    runnable_avg: u64,
    util_avg: u64,
}

impl Removed {
    /// Collects the averages of a task that left.
    pub(crate) fn collect(&mut self, task: &Avg) {
        self.any = true;
        self.load_avg += task.load_avg;
        self.runnable_avg += task.runnable_avg;
        self.util_avg += task.util_avg;
    }
}

/// The share of a task in a queue's average and sum.
struct Part {
    avg: u64,
    sum: u64,
}

impl Part {
    /// Subtracts this from the queue's average and sum. Averages stop at 0, because both were
    /// rounded.
    fn leave(self, avg: &mut u64, sum: &mut u64, divider: u64, how: LeavingSums) {
        *avg = avg.saturating_sub(self.avg);
        *sum = match how {
            LeavingSums::Own => sum.saturating_sub(self.sum),
            LeavingSums::OfAverages => *avg * divider,
            LeavingSums::OwnAboveAverages => sum.saturating_sub(self.sum).max(*avg * MIN_DIVIDER),
        };
    }
}

/// Moves the time of an average on to `now_ns` in whole units. Returns their number.
#[inline(always)]
fn pass_units(last_update: &mut u64, now_ns: u64) -> u64 {
    if now_ns < *last_update {
        *last_update = now_ns;
        return 0;
    }
    let units = (now_ns - *last_update) >> 10;
    *last_update += units << 10;
    units
}

/// The value of a sum whose input has always been 1, `contrib` units into a period.
#[inline]
fn divider(contrib: u32) -> u64 {
    MIN_DIVIDER + u64::from(contrib)
}

/// `value · y^periods`.
#[inline]
pub(crate) fn decay(value: u64, periods: u64) -> u64 {
    if periods > DECAYED_AFTER {
        return 0;
    }
    let halved = value >> (periods / 32);
    ((u128::from(halved) * u128::from(INVERSE[(periods % 32) as usize])) >> 32) as u64
}

/// The series of a time that completes a period begun with `before` units, then spans `periods - 1`
/// whole periods and `after` units of the current one.
#[inline]
fn contribution(before: u64, periods: u64, after: u64) -> u64 {
    let completed = decay(PERIOD - before, periods);
    let whole = LOAD_AVG_MAX - decay(LOAD_AVG_MAX, periods) - PERIOD;
    completed + whole + after
}

/// The utilisation estimate of a task that goes to sleep with these averages (util_est, one EWMA
/// per task). It rises at once, falls by a quarter of the difference, and ignores changes below 1
/// %. With `starved_rule` (7.2) it does not fall for a task that was runnable clearly longer than
/// it ran, because such a task used less only because others kept it from running.
pub(crate) fn util_est_update(
    ewma: u64,
    util_avg: u64,
    runnable_avg: u64,
    starved_rule: bool,
) -> u64 {
    let difference = ewma.saturating_sub(util_avg);
    let starved = starved_rule & (util_avg + UTIL_EST_MARGIN < runnable_avg);
    let stays = (difference < UTIL_EST_MARGIN) | starved;
    // Without branches, because processors predict them badly.
    let fallen = select_unpredictable(stays, ewma, (4 * ewma - difference) / 4);
    select_unpredictable(ewma <= util_avg, util_avg, fallen)
}

/// The EWMA of util_est in 5.2 when a task goes to sleep: it moves a quarter of the way to the
/// utilisation, upwards and downwards.
pub(crate) fn util_est_follow(ewma: u64, util_avg: u64) -> u64 {
    if ewma.abs_diff(util_avg) < UTIL_EST_MARGIN {
        return ewma;
    }
    // The kernel's formula is (4 ewma + (util - ewma)) / 4.
    (3 * ewma + util_avg) / 4
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Length of a unit and of a period, ns.
    const UNIT_NS: u64 = 1024;
    const PERIOD_NS: u64 = PERIOD * UNIT_NS;

    /// A nice-0 task runs or sleeps for `ns`.
    fn pass(avg: &mut Avg, ns: u64, runs: bool) {
        let now = avg.last_update + ns;
        avg.update(now, u64::from(runs), u64::from(runs), runs, 1024);
    }

    /// Averages of a task that ran for `count` periods, accounted at once.
    fn ran_periods(count: u64) -> Avg {
        let mut avg = Avg::default();
        pass(&mut avg, count * PERIOD_NS, true);
        avg
    }

    #[test]
    fn constants_follow_from_the_half_life() {
        for (n, &inverse) in INVERSE.iter().enumerate() {
            let exact = (f64::from(u32::MAX) * 0.5_f64.powf(n as f64 / 32.0)).floor();
            assert_eq!(inverse, exact as u32, "y^{n}");
        }
        let mut series = 1024;
        for _ in 0..1000 {
            series = decay(series, 1) + 1024;
        }
        assert_eq!(series, LOAD_AVG_MAX);
    }

    #[test]
    fn running_saturates() {
        assert_eq!([32, 64, 100, 345].map(|n| ran_periods(n).util_avg), [512, 768, 906, 1023]);
        assert_eq!(ran_periods(32).util_sum, 23_919_616);
        let mut avg = Avg::default();
        (0..32).for_each(|_| pass(&mut avg, PERIOD_NS, true));
        assert_eq!((avg.util_avg, avg.util_sum), (512, 23_941_816), "period by period");
    }

    #[test]
    fn idling_decays() {
        let mut avg = Avg { util_avg: 1024, util_sum: 1024 * MIN_DIVIDER, ..Avg::default() };
        let expected = [724, 511, 362, 255, 181, 127, 90];
        let decayed = expected.map(|_| {
            pass(&mut avg, 16 * PERIOD_NS, false);
            avg.util_avg
        });
        assert_eq!(decayed, expected);
    }

    #[test]
    fn alternating_is_about_half() {
        let mut avg = Avg::default();
        for _ in 0..400 {
            pass(&mut avg, PERIOD_NS, true);
            pass(&mut avg, PERIOD_NS, false);
        }
        assert_eq!(avg.util_avg, 506);
    }

    #[test]
    fn parts_of_periods() {
        let mut avg = Avg::default();
        let mut state = |units: u64, runs: bool| {
            pass(&mut avg, units * UNIT_NS, runs);
            (avg.util_sum, avg.period_contrib, avg.util_avg)
        };
        assert_eq!(state(500, true), (512_000, 500, 0));
        assert_eq!(state(600, true), (1_103_140, 76, 23));
        assert_eq!(state(3000, true), (3_974_662, 4, 85));
        assert_eq!(state(2000, false), (3_889_493, 980, 81));
    }

    #[test]
    fn a_clock_that_stands_or_steps_back_accounts_nothing() {
        let mut avg = Avg { last_update: 5000, ..Avg::default() };
        assert!(!avg.update(6023, 1, 1, true, 1024));
        assert_eq!(avg, Avg { last_update: 5000, ..Avg::default() });
        assert!(!avg.update(4000, 1, 1, true, 1024));
        assert_eq!(avg, Avg { last_update: 4000, ..Avg::default() });
    }

    #[test]
    fn without_load_nothing_runs() {
        let mut avg = Avg::default();
        assert!(avg.update(PERIOD_NS, 0, 3, true, 1));
        assert_eq!((avg.util_sum, avg.runnable_sum), (0, 0));
    }

    #[test]
    fn averages_of_load_and_runnable_tasks_count_all_of_them() {
        let mut queue = Avg::default();
        let now = 2000 * PERIOD_NS;
        queue.update(now, 3 * 1024, 3, true, 1);
        assert_eq!((queue.load_avg, queue.runnable_avg, queue.util_avg), (3072, 3072, 1024));
    }

    /// Section 3, New task.
    #[test]
    fn new_tasks_take_half_of_what_is_free() {
        let util = |util_avg, load_avg| {
            let rq = Avg { util_avg, load_avg, ..Avg::default() };
            Avg::new_task(1024, &rq, 0).util_avg
        };
        assert_eq!(util(0, 0), 512);
        assert_eq!(util(512, 1024), 256, "capped at half of the rest");
        assert_eq!(util(100, 2047), 50, "as the weight of others suggests");
        assert_eq!(util(1024, 1024), 0);
        assert_eq!(util(2000, 1024), 0);
        let task = Avg::new_task(335, &Avg::default(), 3 * UNIT_NS + 5);
        assert_eq!((task.load_avg, task.runnable_avg), (335, 512));
        assert_eq!(task.last_update, 3 * UNIT_NS);
    }

    #[test]
    fn a_new_task_that_runs_on_keeps_its_averages() {
        let mut task = Avg::new_task(1024, &Avg::default(), 0);
        pass(&mut task, PERIOD_NS, true);
        assert_eq!(task.load_avg, 1024);
        assert!((512..=524).contains(&task.util_avg), "{}", task.util_avg);
    }

    #[test]
    fn what_was_added_can_be_taken_away() {
        let task = ran_periods(50);
        for how in ALL {
            let mut queue = Avg { last_update: task.last_update, ..Avg::default() };
            let before = queue.clone();
            queue.add(&task, 1024);
            assert_eq!((queue.util_avg, queue.load_avg), (task.util_avg, task.load_avg));
            queue.sub(&task, 1024, how);
            assert_eq!(queue, before, "{how:?}");
            queue.sub(&task, 1024, how);
            assert_eq!(queue, before, "the average does not go below 0, {how:?}");
        }
    }

    /// All rules for the sums of a queue that a task leaves.
    const ALL: [LeavingSums; 3] =
        [LeavingSums::Own, LeavingSums::OfAverages, LeavingSums::OwnAboveAverages];

    /// A queue with two new tasks that waited or ran for one period and 700 units of the current
    /// one. Returns the averages of the queue and of a task.
    fn two_tasks_in_a_period() -> (Avg, Avg) {
        let (mut queue, mut task) = (Avg::default(), Avg::default());
        for ns in [PERIOD_NS, 700 * UNIT_NS] {
            let now = queue.last_update + ns;
            queue.update(now, 2 * 1024, 2, true, 1);
            task.update(now, 1, 1, false, 1024);
        }
        (queue, task)
    }

    /// `detach_entity_load_avg()`: the task's contributions in the current period leave with it. In
    /// 5.14 to 5.16 the contributions of the other tasks are lost too.
    #[test]
    fn a_task_takes_along_what_it_added_in_this_period() {
        let (queue, task) = two_tasks_in_a_period();
        for how in [LeavingSums::Own, LeavingSums::OwnAboveAverages] {
            let mut queue = queue.clone();
            queue.sub(&task, 1024, how);
            assert_eq!(
                queue.load_sum,
                1024 * task.load_sum,
                "{how:?}: the load sum of the other task"
            );
            assert_eq!(queue.runnable_sum, task.runnable_sum, "{how:?}");
        }
        let mut queue = queue;
        queue.sub(&task, 1024, LeavingSums::OfAverages);
        assert_eq!(queue.runnable_sum, queue.runnable_avg * queue.divider());
        assert!(queue.runnable_sum + 650 * 1024 < task.runnable_sum, "most of 700 units is lost");
    }

    /// `remove_entity_load_avg()`: the old queue keeps the task's contributions in the current
    /// period, because it knows only the task's averages.
    #[test]
    fn a_task_that_wakes_elsewhere_leaves_a_part_of_a_period_behind() {
        let (mut queue, task) = two_tasks_in_a_period();
        let mut removed = Removed::default();
        removed.collect(&task);
        queue.subtract(removed, LeavingSums::Own);
        let left = queue.runnable_sum - task.runnable_sum;
        assert_eq!(left, task.runnable_sum - task.runnable_avg * task.divider());
        assert!(
            (699 * 1024..=747 * 1024).contains(&left),
            "700 units, and what was rounded off: {left}"
        );
    }

    /// As in balancing: even if a task moves to other queues many times in a period, its load is
    /// not multiplied.
    #[test]
    fn a_task_that_moves_in_every_period_leaves_nothing_behind() {
        for how in [LeavingSums::Own, LeavingSums::OwnAboveAverages] {
            let mut queues = [Avg::default(), Avg::default()];
            let mut task = ran_periods(100);
            for step in 0..2000 {
                let now = 100 * PERIOD_NS + step * 600 * UNIT_NS;
                let here = (step % 2) as usize;
                queues[here].update(now, 0, 0, false, 1);
                task.join(&queues[here], 1024);
                queues[here].add(&task, 1024);
                let now = now + 600 * UNIT_NS;
                queues[here].update(now, 1024, 1, true, 1);
                task.update(now, 1, 1, true, 1024);
                queues[here].sub(&task, 1024, how);
            }
            let left = queues.map(|queue| queue.load_avg + queue.util_avg);
            assert!(left.iter().all(|&left| left <= 2), "{how:?}: {left:?}");
        }
    }

    /// A task that always runs, on one CPU after the other. Its groups' weights give it a load of
    /// 16.
    #[test]
    fn the_load_of_a_task_in_a_group_survives_moves() {
        let mut task = ran_periods(345);
        let queue = Avg { last_update: 0, period_contrib: 500, ..Avg::default() };
        for moves in 0..1000 {
            let queue = Avg { last_update: moves * UNIT_NS, ..queue.clone() };
            task.join_in_group(&queue, 13 + moves % 7);
            assert!(task.weighing(1024).load_avg >= 1022, "after {moves}: {task:?}");
            assert!(task.load_avg >= 12 + moves % 7, "after {moves}: {task:?}");
            task.update((moves + 1) * UNIT_NS, 1, 1, true, 13 + moves % 7);
        }
    }

    /// Section 3, util_est.
    #[test]
    fn estimates_rise_at_once_and_fall_slowly() {
        assert_eq!(util_est_update(100, 300, 300, false), 300);
        assert_eq!(util_est_update(300, 100, 100, false), 250);
        assert_eq!(util_est_update(300, 291, 291, false), 300, "less than 1 %");
        assert_eq!(util_est_update(300, 290, 290, false), 297);
        assert_eq!(util_est_update(300, 100, 111, true), 300, "starved");
        assert_eq!(util_est_update(300, 100, 110, true), 250);
        assert_eq!(util_est_update(300, 100, 1000, false), 250);
    }

    /// Section 3: 5.2 does not raise the estimate at once.
    #[test]
    fn older_estimates_follow_slowly_both_ways() {
        assert_eq!(util_est_follow(100, 300), 150);
        assert_eq!(util_est_follow(300, 100), 250);
        assert_eq!(util_est_follow(300, 291), 300, "less than 1 %");
        assert_eq!(util_est_follow(0, 1024), 256);
    }

    #[test]
    fn the_load_of_what_is_queued_forgets_a_sleeper_at_once() {
        let task = ran_periods(100);
        let mut queued = LoadAvg { last_update: task.last_update, ..LoadAvg::default() };
        queued.add(&task, 1024);
        assert_eq!(queued.load_avg, task.load_avg);
        queued.update(task.last_update + 50 * PERIOD_NS, 1024);
        assert!(queued.load_avg > task.load_avg, "it rises while the task waits");
        let mut task = task;
        pass(&mut task, 50 * PERIOD_NS, true);
        queued.sub(&task, 1024, LeavingSums::Own);
        assert_eq!(queued.load_avg, 0);
        assert!(queued.load_sum < LOAD_AVG_MAX, "less than rounds to 1");
    }

    /// The average of interrupts after updates to these periods, of which interrupts took so many.
    fn interrupts(updates: &[(f64, f64)]) -> IrqAvg {
        let mut irq = IrqAvg::default();
        for &(now, running) in updates {
            let ns = |periods: f64| (periods * PERIOD_NS as f64) as u64;
            irq.update(ns(now), ns(running));
        }
        irq
    }

    /// One period ran and ended: 1024 y = 1002 units, of 46718. The same a period earlier: 980 of 46718.
    #[test]
    fn an_interrupt_counts_as_the_last_part_of_the_time() {
        assert_eq!(interrupts(&[(2.0, 1.0)]).util(), 1002 * 1024 / 46718);
        assert_eq!(interrupts(&[(1.0, 1.0), (2.0, 0.0)]).util(), 980 * 1024 / 46718);
    }

    /// Period 1 ends without an interrupt. Half of period 2, 512 units, is one. The kernel computes the average after
    /// both: 512 of 46718 + 512 + 256.
    #[test]
    fn the_average_of_interrupts_includes_the_last_one() {
        assert_eq!(interrupts(&[(1.75, 0.5)]).util(), 512 * 1024 / (46718 + 768));
    }

    #[test]
    fn a_steady_share_of_interrupts_is_their_average() {
        let updates: Vec<_> = (1..2000).map(|step| (f64::from(step), 0.25)).collect();
        let util = interrupts(&updates).util();
        assert!((254..=256).contains(&util), "{util}: a quarter of 1024, rounded down");
        assert_eq!([0, 600].map(|ns| IrqAvg::default().extended(ns)), [0, 600]);
        let extended = interrupts(&updates).extended(1000);
        assert!((1329..=1333).contains(&extended), "{extended}: 4 of 3 parts, rounded down");
    }

    /// The same averages computed from their definition: each unit of time counts `y^k` if `k`
    /// period borders follow it.
    #[derive(Default)]
    struct Reference {
        units: u64,
        sum: f64,
    }

    impl Reference {
        fn pass(&mut self, units: u64, runs: bool) {
            for _ in 0..units {
                if runs {
                    self.sum += 1.0;
                }
                self.units += 1;
                if self.units.is_multiple_of(PERIOD) {
                    self.sum *= 0.5_f64.powf(1.0 / 32.0);
                }
            }
        }

        /// Utilisation, 1024 for always.
        fn util(&self) -> f64 {
            let whole = 1024.0 / (1.0 - 0.5_f64.powf(1.0 / 32.0)) - 1024.0;
            self.sum / (whole + (self.units % PERIOD) as f64) * 1024.0
        }
    }

    proptest! {
        /// For any partition of time, the averages stay within 3 of 1024 of the definition.
        #[test]
        fn averages_follow_the_definition(
            passes in prop::collection::vec((1_u64..8000, any::<bool>()), 1..60),
        ) {
            let (mut avg, mut reference) = (Avg::default(), Reference::default());
            for (units, runs) in passes {
                let crossed = units + u64::from(avg.period_contrib) >= PERIOD;
                pass(&mut avg, units * UNIT_NS, runs);
                reference.pass(units, runs);
                if crossed {
                    let expected = reference.util();
                    prop_assert!((avg.util_avg as f64 - expected).abs() < 3.0,
                        "{} instead of {expected}", avg.util_avg);
                }
                prop_assert!(avg.util_avg <= 1024 && avg.runnable_avg == avg.util_avg);
                prop_assert!(avg.load_avg.abs_diff(avg.util_avg) <= 1, "weight 1024");
            }
        }

        /// The load alone is the same as the load beside the other averages.
        #[test]
        fn a_load_alone_is_the_same(
            steps in prop::collection::vec((
                prop_oneof![0_u64..5_000_000, 0_u64..5_000_000_000], 0_u64..5000, 0_usize..5,
            ), 1..60),
        ) {
            let (mut avg, mut load) = (Avg::default(), LoadAvg::default());
            let task = ran_periods(40);
            let mut now = 0_u64;
            for (ns, weights, what) in steps {
                now = if what == 4 { now.saturating_sub(ns) } else { now + ns };
                prop_assert_eq!(avg.update(now, weights, 1, true, 1), load.update(now, weights));
                match what {
                    0 => { avg.add_load(&task, 1024); load.add(&task, 1024); }
                    1 => for how in ALL {
                        avg.sub_load(&task, 1024, how);
                        load.sub(&task, 1024, how);
                    }
                    _ => {}
                }
                prop_assert_eq!(
                    (avg.load_avg, avg.load_sum, avg.last_update, avg.period_contrib),
                    (load.load_avg, load.load_sum, load.last_update, load.period_contrib)
                );
            }
        }

        /// Tasks' averages add up to their queue's average, whichever task ran when.
        #[test]
        fn a_queue_is_the_sum_of_its_tasks(
            steps in prop::collection::vec((1_u64..3_000_000, 0_usize..4), 1..60),
        ) {
            let mut tasks = [Avg::default(), Avg::default(), Avg::default()];
            let mut queue = Avg::default();
            let mut now = 0;
            for (ns, runner) in steps {
                now += ns;
                for (number, task) in tasks.iter_mut().enumerate() {
                    let runs = number == runner;
                    task.update(now, u64::from(runs), u64::from(runs), runs, 1024);
                }
                let busy = u64::from(runner < tasks.len());
                queue.update(now, 1024 * busy, busy, busy == 1, 1);
                let sum: u64 = tasks.iter().map(|task| task.util_avg).sum();
                prop_assert!(queue.util_avg.abs_diff(sum) <= 3);
                prop_assert_eq!(queue.period_contrib, tasks[0].period_contrib);
            }
        }
    }
}
