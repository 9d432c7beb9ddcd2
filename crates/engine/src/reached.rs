//! Whether a run that ended at its duration got far enough to measure something.

use std::fmt;

use roost_workload::{MetricKind, Op, Program, Workload};

use crate::sync::Shared;
use crate::task::Task;
use crate::totals::Totals;

/// A run whose duration ended it before it could measure anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooShort {
    /// Number of tasks of the workload that had been created.
    pub created: u32,
    /// What the run had not reached.
    pub missing: Missing,
}

/// What a run had not reached when its duration ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// No task had reached its work.
    Work,
    /// Tasks worked, but the benchmark had not completed an iteration: no event that its rates
    /// count, and no wakeup of a class whose latency it measures.
    Iteration,
    /// As [`Missing::Iteration`], for a part of the benchmark that has a rate of its own.
    Part,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Missing::Work => "none of them had got to its work",
            Missing::Iteration => "the benchmark had not come through one iteration",
            Missing::Part => "a part of the benchmark had not come through one iteration",
        })
    }
}

/// What a run did not reach; `None` if it measured something. `works`: some task reached its work.
pub(crate) fn missing(
    workload: &Workload,
    shared: &Shared,
    measured: &Totals,
    works: bool,
) -> Option<Missing> {
    let kinds = || workload.metrics.iter().map(|metric| &metric.kind);
    let is_rate =
        |kind: &&MetricKind| matches!(kind, MetricKind::Rate { .. } | MetricKind::BestRate { .. });
    let came_round = |kind: &MetricKind| match kind {
        MetricKind::Rate { counter, .. } => measured.counts[*counter as usize] > 0,
        MetricKind::BestRate { watch, .. } => shared.watches[*watch as usize].shortest.is_some(),
        MetricKind::WakeupLatencyUs { class, .. } | MetricKind::MeanWakeupLatencyUs { class } => {
            measured.latencies.of(class).is_some() || works && !sleeps(workload, class)
        }
        // These measure the whole run. That the duration cut it is reported elsewhere.
        MetricKind::WallSeconds | MetricKind::SecondsSince { .. } => works,
    };
    let rates: Vec<bool> = kinds().filter(is_rate).map(came_round).collect();
    let some = rates.contains(&true);
    let reached = match rates.is_empty() {
        true => kinds().any(came_round) || works && workload.metrics.is_empty(),
        // Latencies alone are not enough: they may be from tasks that were woken to begin.
        false => some && (workload.rates_of_tasks || !rates.contains(&false)),
    };
    match (reached, works) {
        (true, _) => None,
        (false, true) if some => Some(Missing::Part),
        (false, true) => Some(Missing::Iteration),
        (false, false) => Some(Missing::Work),
    }
}

/// Whether tasks of the class block after they have reached their work. Other tasks are never woken
/// again.
fn sleeps(workload: &Workload, class: &str) -> bool {
    let of_class = workload.templates.iter().filter(|template| template.class == class);
    let mut work = of_class.flat_map(|template| {
        let ops = &template.program.ops;
        ops.iter().skip(first_work(&template.program))
    });
    work.any(|op| {
        matches!(
            op,
            Op::Sleep { .. }
                | Op::SleepUntil { .. }
                | Op::Timer { .. }
                | Op::Send { .. }
                | Op::Receive { .. }
                | Op::Lock(_)
                | Op::Wait { .. }
                | Op::Barrier(_)
                | Op::Meet { .. }
                | Op::SpinBarrier { .. }
        )
    })
}

/// Whether a task has begun its first work operation. A loop may repeat that one.
pub(crate) fn is_at_work(program: &Program, task: &Task) -> bool {
    task.pc as usize > first_work(program) || task.is_in_loop()
}

/// Index of the first operation that is neither a common start nor a setting; the number of
/// operations if there is none.
fn first_work(program: &Program) -> usize {
    let sets_up = |op: &Op| {
        matches!(
            op,
            Op::Start { .. }
                | Op::Barrier(_)
                | Op::SpinBarrier { .. }
                | Op::Fork(_)
                | Op::SetNice(_)
                | Op::SetPolicy(_)
                | Op::SetSlice { .. }
                | Op::SetGroup(_)
                | Op::SetAffinity(_)
                | Op::SetAffinityOf { .. }
                | Op::SetGroupOf { .. }
                | Op::StartWatch(_)
        )
    };
    program.ops.iter().take_while(|op| sets_up(op)).count()
}
