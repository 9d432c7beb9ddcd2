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

/// Who watches.
pub struct Watch<'a> {
    /// Ends all runs.
    pub stop: &'a AtomicBool,
    /// Is told of each run that has ended.
    pub ended: &'a (dyn Fn(&Progress) + Sync),
}

/// How far a sweep is.
pub struct Progress {
    /// Runs that have ended, earlier ones included.
    pub ended: usize,
    /// All runs.
    pub wanted: usize,
    /// Cells all of whose runs have ended.
    pub cells: usize,
    /// Seconds of a core that the runs which nobody has begun will take; `None`: nobody knows yet.
    pub seconds_left: Option<f64>,
    /// The cell whose last run this was.
    pub complete: Option<Complete>,
}

/// A cell all of whose runs have ended.
pub struct Complete {
    /// Its index.
    pub cell: usize,
    /// Runs that failed.
    pub failed: usize,
    /// Name, unit and mean of the workload's first metric.
    pub metric: Option<(String, String, f64)>,
    /// Seconds of a core that its runs took.
    pub seconds: f64,
}

impl Progress {
    /// What is told of a cell that is complete; `None`: this run was not the last of one.
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

/// What the runs of a sweep took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// Runs that were made now.
    pub runs: usize,
    /// Seconds of a core that these took.
    pub seconds: f64,
}

/// What threads share.
struct Shared<'a> {
    order: Order,
    journal: &'a mut Journal,
    spent: Spent,
    /// Why no more runs are begun.
    error: Option<SweepError>,
}

/// Makes the runs that `journal` does not have, `jobs` at a time (0: one a core), and keeps each there when it has ended.
///
/// # Errors
/// If a run cannot be kept. Those that fail are kept as failed.
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
    // Of one: what was appended while the disk was waited for goes there together.
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
        // The other end hangs up when this returns.
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

/// How far a sweep is whose journal was last told of `run`.
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

/// The runs that `journal` does not have, cheapest first as far as it knows.
pub fn missing(plan: &Plan, journal: &Journal) -> Vec<Run> {
    let mut order = Order::new(plan, journal);
    iter::from_fn(|| order.next()).collect()
}

/// Makes a run, and returns its line of a journal; `None`: it was stopped.
pub fn line(plan: &Plan, run: Run, stop: &AtomicBool) -> Option<String> {
    // Writing to memory does not fail, and all keys are strings.
    make(plan, run, stop).map(|entry| serde_json::to_string(&entry).unwrap_or_default())
}

fn make(plan: &Plan, run: Run, stop: &AtomicBool) -> Option<Entry> {
    let cell = plan.cells.get(run.cell)?;
    let seed = *cell.seeds.get(run.repeat)?;
    // The engine looks at it only now and then, and many short runs may be waiting.
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
