//! Makes the runs of a plan.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use roost_simulate::{Control, Outcome, RunError, in_parallel};

use crate::cache::{Cache, Left, LeftMetric};
use crate::error::ReproduceError;
use crate::plan::{Plan, PlannedRun};

/// The outcomes of runs, in the order of the plan's runs. `None`: the run was not made before an interrupt.
pub type Measured = Vec<Option<Left>>;

/// Callbacks of the caller.
pub struct Watch<'a> {
    /// Set this to end all runs.
    pub stop: &'a AtomicBool,
    /// Called with the estimated seconds of each run that has ended.
    pub ended: &'a (dyn Fn(f64) + Sync),
    /// Called with messages about problems that do not end the runs, for example that runs cannot be cached.
    pub tell: &'a (dyn Fn(&str) + Sync),
}

/// Makes the runs that `cache` does not have, `jobs` at a time (0: one per core). Each finished run is stored in the
/// cache at once.
///
/// # Errors
/// If a run fails.
pub fn carry_out(
    plan: &Plan,
    cache: Option<&Cache>,
    jobs: usize,
    watch: &Watch<'_>,
) -> Result<Measured, ReproduceError> {
    let mut measured: Measured =
        plan.runs.iter().map(|run| cache.and_then(|cache| cache.get(&run.key))).collect();
    let mut missing: Vec<usize> = (0..plan.runs.len()).filter(|&i| measured[i].is_none()).collect();
    // The longest runs come first, so that no long run is left alone at the end.
    missing.sort_by(|&a, &b| plan.runs[b].seconds.total_cmp(&plan.runs[a].seconds).then(a.cmp(&b)));
    let (full, failed) = (AtomicBool::new(false), AtomicBool::new(false));
    let one = |index: usize| {
        let run = &plan.runs[index];
        if failed.load(Ordering::Relaxed) {
            return Ok((index, None));
        }
        let (left, seconds) = match one(run, watch) {
            Ok(Some(ended)) => ended,
            Ok(None) => return Ok((index, None)),
            Err(error) => {
                failed.store(true, Ordering::Relaxed);
                return Err((index, error));
            }
        };
        if let Some(cache) = cache
            && let Err(error) = cache.keep(&run.key, &left, &run.kind, seconds)
            && !full.swap(true, Ordering::Relaxed)
        {
            (watch.tell)(&format!("{error}; runs are not kept"));
        }
        (watch.ended)(run.seconds);
        Ok((index, Some(left)))
    };
    let results: Vec<Result<_, (usize, ReproduceError)>> =
        in_parallel(jobs, missing.into_iter(), one)?;
    let (ended, errors): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    if let Some((_, error)) = errors.into_iter().filter_map(Result::err).min_by_key(|(i, _)| *i) {
        return Err(error);
    }
    for (index, left) in ended.into_iter().flatten() {
        measured[index] = left;
    }
    Ok(measured)
}

/// The outcome of a run and its time in seconds. `None` if it was stopped.
fn one(run: &PlannedRun, watch: &Watch<'_>) -> Result<Option<(Left, f64)>, ReproduceError> {
    if watch.stop.load(Ordering::Relaxed) {
        return Ok(None);
    }
    let begun = Instant::now();
    let control = Control { stop: watch.stop, ..Control::new(run.seed) };
    match run.simulation.measure(control) {
        Ok(outcome) => Ok(Some((left(outcome), begun.elapsed().as_secs_f64()))),
        Err(RunError::Stopped(_)) => Ok(None),
        Err(error) => {
            let (study, row) = run.needed_by.clone();
            Err(ReproduceError::Run { study, row, problem: error.to_string() })
        }
    }
}

fn left(outcome: Outcome) -> Left {
    let metric = |metric: roost_engine::MetricValue| {
        let roost_engine::MetricValue { name, value, drift, .. } = metric;
        LeftMetric { name, value, drift }
    };
    Left { metrics: outcome.metrics.into_iter().map(metric).collect(), counters: outcome.counters }
}
