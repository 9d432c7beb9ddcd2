//! Makes the runs of a plan.

use std::iter;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use roost_report::Run as Left;
use roost_simulate::{Control, RunError, in_parallel};

use crate::error::SweepError;
use crate::journal::{Entry, Journal, RunResult};
use crate::order::Order;
use crate::plan::{Plan, Run};

/// Callbacks of the caller.
pub struct Watch<'a> {
    /// Set this to end all runs.
    pub stop: &'a AtomicBool,
    /// Called after each run that has ended.
    pub ended: &'a (dyn Fn(&Progress) + Sync),
}

/// Progress of a sweep.
pub struct Progress {
    /// Number of finished runs, including those of earlier calls.
    pub ended: usize,
    /// Number of all runs.
    pub wanted: usize,
    /// Number of cells of which all runs have ended.
    pub cells: usize,
    /// Estimated time of the runs that have not begun, in seconds of one core. `None`: not known yet.
    pub seconds_left: Option<f64>,
    /// The cell that this run completed, if it did.
    pub complete: Option<Complete>,
}

/// A cell of which all runs have ended.
pub struct Complete {
    /// Its index.
    pub cell: usize,
    /// Number of runs that failed.
    pub failed: usize,
    /// Name, unit and mean of the workload's first metric.
    pub metric: Option<(String, String, f64)>,
    /// Time that its runs took, in seconds of one core.
    pub seconds: f64,
}

impl Progress {
    /// The line about a cell that this run completed. `None`: it did not complete a cell.
    pub fn line(&self, plan: &Plan) -> Option<String> {
        let Complete { cell, failed, metric, seconds } = self.complete.as_ref()?;
        let metric = match metric {
            Some((name, unit, mean)) => format!(", {name} {mean:.6} {unit}"),
            None => String::new(),
        };
        let failed = match failed {
            0 => String::new(),
            failed => format!(", {failed} failed"),
        };
        let cell = plan.cells.get(*cell)?;
        let (name, runs) = (cell.shown(), cell.seeds.len());
        let of = format!("[{}/{}]", self.cells, plan.cells.len());
        Some(format!("{of} {name}: {runs} runs{metric}{failed} ({seconds:.2} s of a core)"))
    }
}

/// Cost of the runs of this call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// Number of runs that were made.
    pub runs: usize,
    /// Time that they took, in seconds of one core.
    pub seconds: f64,
}

/// State that the threads share.
struct Shared<'a> {
    order: Order,
    journal: &'a mut Journal,
    spent: Spent,
    /// The error after which no more runs begin.
    error: Option<SweepError>,
}

/// Makes the runs that `journal` does not have, `jobs` at a time (0: one per core). Each finished run is stored in the
/// journal.
///
/// # Errors
/// If a run cannot be stored. Runs that fail are stored as failed.
pub fn carry_out(
    plan: &Plan,
    journal: &mut Journal,
    jobs: usize,
    watch: &Watch<'_>,
) -> Result<Spent, SweepError> {
    let order = Order::new(plan, journal);
    let disk = journal.disk()?;
    let shared = Mutex::new(Shared { order, journal, spent: Spent::default(), error: None });
    let lock = || shared.lock().unwrap_or_else(PoisonError::into_inner);
    let next = || {
        let mut shared = lock();
        let go_on = shared.error.is_none() && !watch.stop.load(Ordering::Relaxed);
        go_on.then(|| shared.order.next()).flatten()
    };
    // The channel has room for one message: everything that is appended while the thread waits for the disk is written
    // together next time.
    let (appended, to_sync) = sync_channel(1);
    let locked = &lock;
    let one = move |run: Run| {
        let Some(entry) = make(plan, run, watch.stop) else { return };
        let mut shared = locked();
        match shared.keep(plan, run, &entry) {
            Ok(progress) => (watch.ended)(&progress),
            Err(error) => shared.error = Some(error),
        }
        let _ = appended.try_send(());
    };
    let sync = || {
        for () in to_sync {
            if let Err(error) = disk.sync() {
                lock().error.get_or_insert(error);
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(sync);
        // The receiving thread ends when the sender is dropped.
        in_parallel(jobs, iter::from_fn(next), one)
    })?;
    let shared = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    shared.error.map_or(Ok(shared.spent), Err)
}

impl Shared<'_> {
    fn keep(&mut self, plan: &Plan, run: Run, entry: &Entry) -> Result<Progress, SweepError> {
        self.journal.append(entry)?;
        let seconds = entry.seconds();
        self.order.ended(run, seconds);
        self.spent.runs += 1;
        self.spent.seconds += seconds;
        let seconds_left = self.order.estimate();
        progress(plan, self.journal, run, seconds_left)
    }
}

/// Progress of a sweep after `run`, the last run that was appended to its journal.
///
/// # Errors
/// If the journal cannot be read.
pub fn progress(
    plan: &Plan,
    journal: &mut Journal,
    run: Run,
    seconds_left: Option<f64>,
) -> Result<Progress, SweepError> {
    let complete = match journal.is_complete(run.cell) {
        true => Some(complete(plan, journal, run.cell)?),
        false => None,
    };
    Ok(Progress {
        ended: journal.ended().len(),
        wanted: plan.len(),
        cells: journal.complete(),
        seconds_left,
        complete,
    })
}

fn complete(plan: &Plan, journal: &mut Journal, cell: usize) -> Result<Complete, SweepError> {
    let mut values = Vec::new();
    let mut metric = None;
    let mut failed = 0;
    for repeat in 0..plan.cells[cell].seeds.len() {
        match journal.get(Run { cell, repeat })? {
            Some(Ok(left)) => {
                let first = left.outcome.metrics.into_iter().next();
                values.extend(first.as_ref().and_then(|first| first.value));
                metric = metric.or(first.map(|first| (first.name, first.unit)));
            }
            Some(Err(_)) => failed += 1,
            None => {}
        }
    }
    let mean = (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
    let metric = metric.zip(mean).map(|((name, unit), mean)| (name, unit, mean));
    Ok(Complete { cell, failed, metric, seconds: journal.seconds(cell) })
}

/// The runs that `journal` does not have, cheapest first as far as the costs are known.
pub fn missing(plan: &Plan, journal: &Journal) -> Vec<Run> {
    let mut order = Order::new(plan, journal);
    iter::from_fn(|| order.next()).collect()
}

/// Makes a run and returns its line for a journal. `None`: it was stopped.
pub fn line(plan: &Plan, run: Run, stop: &AtomicBool) -> Option<String> {
    // This cannot fail: it writes to memory, and all keys are strings.
    make(plan, run, stop).map(|entry| serde_json::to_string(&entry).unwrap_or_default())
}

fn make(plan: &Plan, run: Run, stop: &AtomicBool) -> Option<Entry> {
    let cell = plan.cells.get(run.cell)?;
    let seed = *cell.seeds.get(run.repeat)?;
    // The engine checks the flag only now and then, and many short runs may be waiting.
    if stop.load(Ordering::Relaxed) {
        return None;
    }
    let begun = Instant::now();
    let result: RunResult = match cell.simulation.measure(Control { stop, ..Control::new(seed) }) {
        Ok(outcome) => Ok(Left { scheduler: 0, seed, outcome }),
        Err(RunError::Stopped(_)) => return None,
        Err(error) => Err(error.to_string()),
    };
    Some(Entry::new(run, begun.elapsed().as_secs_f64(), &result))
}
