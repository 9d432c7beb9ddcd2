//! The checks of averages.

use std::fmt::Arguments;

use roost_engine::{CpuId, TaskId, World};

use super::ledger::{Limit, PERIOD};
use super::{at, same};
use crate::eras::LeavingSums;
use crate::pelt::{self, Avg};
use crate::state::{Fair, Rq};

/// The sum over one queue's tasks.
#[derive(Clone, Default)]
struct Sum {
    /// Averages of the attached tasks, asleep or not. A task's load sum counts times its weight.
    attached: Avg,
    /// Their weights, and their number.
    tasks: [u64; 2],
}

impl Fair {
    /// The averages of a queue are the sums of the averages of its attached tasks, asleep or not,
    /// plus what tasks that left have left behind.
    pub(super) fn audit_averages(&self, world: &World) {
        let sums = self.sums_of_tasks(world);
        for (cpu, sum) in sums.into_iter().enumerate() {
            let (rq, now) = (&self.rqs[cpu], self.task_clock_now(world, cpu));
            let (kept, ledger) = averages_at(rq, now, self.features.averages.leaving);
            same("attached tasks", ledger.attached(), sum.tasks, world, cpu);
            let (load, tasks) = (ledger.limit(0), ledger.limit(1));
            let [left_load, left_runnable, left_util] = ledger.left();
            let found = &sum.attached;
            let claim = |what, kept, found, left, limit| {
                Claim { what, kept, found, left, limit }.check(world, cpu);
            };
            let (of, has) = ([kept.load_sum, kept.load_avg], [found.load_sum, found.load_avg]);
            claim("load", of, has, left_load, load);
            let of = [kept.runnable_sum, kept.runnable_avg];
            claim("runnable", of, [found.runnable_sum, found.runnable_avg], left_runnable, tasks);
            let (of, has) = ([kept.util_sum, kept.util_avg], [found.util_sum, found.util_avg]);
            claim("util", of, has, left_util, tasks);
        }
    }

    /// The sums over the tasks of each queue, now.
    fn sums_of_tasks(&self, world: &World) -> Vec<Sum> {
        let mut sums = vec![Sum::default(); self.rqs.len()];
        for (index, state) in self.tasks.iter().enumerate().filter(|(_, state)| state.attached) {
            let mut state = state.clone();
            let cpu = world.task_cpu(TaskId(index as u32));
            state.update_average(self.task_clock_now(world, cpu));
            let sum = &mut sums[cpu];
            sum.attached.load_sum += state.weight * state.avg.load_sum;
            sum.attached.load_avg += state.avg.load_avg;
            sum.attached.runnable_sum += state.avg.runnable_sum;
            sum.attached.runnable_avg += state.avg.runnable_avg;
            sum.attached.util_sum += state.avg.util_sum;
            sum.attached.util_avg += state.avg.util_avg;
            sum.tasks[0] += state.weight;
            sum.tasks[1] += 1;
        }
        sums
    }
}

/// A queue's averages and ledger as they would be at `now`.
fn averages_at(rq: &Rq, now: u64, leaving: LeavingSums) -> (Avg, super::Ledger) {
    let (mut avg, mut ledger) = (rq.avg.clone(), rq.ledger.clone());
    if rq.removed.any {
        avg.subtract(rq.removed, leaving);
        ledger.changed(&rq.avg, &avg);
    }
    let runnable = u64::from(rq.nr_runnable);
    avg.update(now, rq.load_weight, runnable, rq.current.is_some(), 1);
    ledger.update(avg.last_update, rq.load_weight, u64::from(rq.nr_running));
    (avg, ledger)
}

/// One average of a queue: the stored sum and average, those of its tasks, and what other tasks
/// left.
struct Claim {
    what: &'static str,
    kept: [u64; 2],
    found: [u64; 2],
    left: i64,
    limit: Limit,
}

impl Claim {
    fn check(&self, world: &World, cpu: CpuId) {
        let with = |found: u64, left: i64| found.saturating_add_signed(left);
        let sum = with(self.found[0], self.left);
        near(format_args!("{}_sum", self.what), self.kept[0], sum, self.limit.sum, world, cpu);
        let left = self.left / pelt::MIN_DIVIDER as i64;
        let avg = with(self.found[1], left);
        // The divider grows within a period, and the average may be of any moment of it.
        let limit = self.limit.avg + left.unsigned_abs() * PERIOD / pelt::MIN_DIVIDER + 1;
        near(format_args!("{}_avg", self.what), self.kept[1], avg, limit, world, cpu);
    }
}

/// Compares the stored and the recomputed value of a CPU. They may differ by `limit`.
fn near(what: Arguments<'_>, kept: u64, found: u64, limit: u64, world: &World, cpu: CpuId) {
    assert!(
        kept.abs_diff(found) <= limit,
        "{what} of {}: {kept} kept, {found} found, {limit} apart at most",
        at(world, cpu)
    );
}
