//! Runs a scheduler, given by name, on a machine with a workload.
//!
//! ```
//! use roost_simulate::{Control, Simulation};
//!
//! let ms = 1_000_000;
//! let simulation = Simulation::named("2n2l4c", "hackbench:groups=1", Some(5 * ms), "fair@7.2")?;
//! let outcome = simulation.run(Control::new(1))?;
//! assert_eq!(outcome.elapsed_ns, 5 * ms);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Simulation`] says what to run, a [`Control`] how: seed, tracer, stop, progress. A simulation is cheap to clone,
//! and can be run from many threads at once. Each run depends only on the simulation and its seed.
//!
//! [`SchedulerSpec`] is the only table of schedulers. A scheduler of another crate needs a variant, a name in
//! [`SchedulerSpec::parse`] and an arm in [`Simulation::run_observed`]. The engine's loop is compiled for each
//! scheduler, so that no call of a hook is dynamic.

mod daemon;
mod effect;
mod named;
mod parallel;
mod spec;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use effect::rule_without_effect;
pub use named::{LabelError, Named};
pub use parallel::{JobsError, in_parallel};
use roost_engine::TooShort;
pub use roost_engine::{Control, Outcome, RunError};
use roost_fair::Fair;
pub use roost_fair::Start;
use roost_kept::Kept;
use roost_machine::{Machine, MachineError};
use roost_scx::Scx;
use roost_workload::{MetricKind, Workload, WorkloadError};
pub use spec::{SchedulerSpec, ScxSpec, SpecError};

/// Why a simulation could not be created from names.
#[derive(Debug, thiserror::Error)]
pub enum NamedError {
    /// The machine could not be read.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The workload could not be read.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The scheduler's name is wrong.
    #[error(transparent)]
    Scheduler(#[from] SpecError),
}

/// Proposed durations are multiples of this.
const LEAST_DURATION_NS: u64 = 1_000_000;

/// The longest duration that is tried. A workload that has measured nothing by then never will.
const MOST_DURATION_NS: u64 = 100_000_000_000;

/// Most events of all runs that look for a duration. They take some seconds (assumption: nobody waits longer).
const MOST_EVENTS: u64 = 20_000_000;

/// The same, once a run has measured something. Then there is advice without a longer search, and events may be dear:
/// one of numa01 takes 4 us of a slow processor.
const MOST_EVENTS_OF_WORK: u64 = MOST_EVENTS / 10;

/// Whether a metric has a value only if tasks exit.
fn is_end(kind: &MetricKind) -> bool {
    matches!(kind, MetricKind::WallSeconds | MetricKind::SecondsSince { .. })
}

/// What the search for a long enough duration found.
struct Enough {
    /// The duration.
    ns: Option<u64>,
    /// Whether any of the runs measured something.
    works: bool,
    /// Why the scheduler ended the last run.
    stalls: Option<String>,
}

/// A scheduler on a machine and a workload.
#[derive(Clone)]
pub struct Simulation {
    /// The machine, which all runs share.
    pub machine: Arc<Machine>,
    /// The workload, which all runs share.
    pub workload: Arc<Workload>,
    /// The scheduler. Each run creates a new one.
    pub scheduler: SchedulerSpec,
    /// State of the machine before the run.
    pub start: Start,
    /// Whether nothing runs besides the workload. Otherwise kernel threads run too ([`Control::background`]).
    pub quiet: bool,
}

impl Simulation {
    /// Reads names as the command line does. `duration_ns` ends the run, unless the workload ends before.
    ///
    /// # Errors
    /// If one of the names is wrong.
    pub fn named(
        machine: &str,
        workload: &str,
        duration_ns: Option<u64>,
        scheduler: &str,
    ) -> Result<Self, NamedError> {
        Ok(Self {
            machine: Arc::new(roost_machine::resolve(machine)?),
            workload: Arc::new(roost_workload::resolve(workload, duration_ns)?),
            scheduler: SchedulerSpec::parse(scheduler)?,
            start: Start::default(),
            quiet: false,
        })
    }

    /// Runs the simulation once.
    ///
    /// # Errors
    /// If the run was stopped, the workload cannot continue, or it asks for CPUs that do not exist.
    pub fn run(&self, control: Control<'_>) -> Result<Outcome, RunError> {
        self.run_observed(control, |_| {})
    }

    /// As [`run`](Self::run), for runs whose metrics are used.
    ///
    /// # Errors
    /// As [`run`](Self::run), and if the duration ended the run before it measured anything. The error names a duration
    /// that is long enough.
    pub fn measure(&self, control: Control<'_>) -> Result<Outcome, RunError> {
        let (seed, stop) = (control.seed, control.stop);
        let outcome = self.run(control)?;
        let Some(TooShort { created, missing }) = outcome.too_short else { return Ok(outcome) };
        let Enough { ns: enough_ns, works, stalls } = self.enough(outcome.elapsed_ns, seed, stop);
        Err(RunError::NothingReached {
            workload: self.workload.name.clone(),
            at_ns: outcome.elapsed_ns,
            created,
            missing,
            enough_ns,
            ends: works && self.workload.metrics.iter().any(|metric| is_end(&metric.kind)),
            stalls,
        })
    }

    /// A duration with which no metric of the run of `seed` is 0 or missing; `too_short_ns` is too short for that. The
    /// duration is doubled again and again. A latency may stay missing, because some tasks are never woken. `None` if
    /// no duration up to [`MOST_DURATION_NS`] does, or if the runs together take more than [`MOST_EVENTS`], or
    /// [`MOST_EVENTS_OF_WORK`].
    fn enough(&self, too_short_ns: u64, seed: u64, stop: &AtomicBool) -> Enough {
        let mut duration_ns = too_short_ns.next_multiple_of(LEAST_DURATION_NS);
        let (mut events, mut without_latency, mut works) = (0, None, false);
        let mut stalls = None;
        while duration_ns < MOST_DURATION_NS {
            duration_ns = (2 * duration_ns).min(MOST_DURATION_NS);
            let mut longer = self.clone();
            Arc::make_mut(&mut longer.workload).duration_ns = Some(duration_ns);
            let most = if works { MOST_EVENTS_OF_WORK } else { MOST_EVENTS };
            let outcome = match longer.run_of_few_events(&mut events, most, seed, stop) {
                Ok(outcome) => outcome,
                Err(RunError::Scheduler { reason, .. }) => {
                    stalls = Some(reason);
                    break;
                }
                Err(_) => break,
            };
            if outcome.too_short.is_some() {
                continue;
            }
            works = true;
            let kinds = self.workload.metrics.iter().map(|metric| &metric.kind);
            let without = kinds
                .zip(&outcome.metrics)
                .filter(|(_, metric)| metric.value.is_none_or(|value| value == 0.0));
            let without: Vec<&MetricKind> = without.map(|(kind, _)| kind).collect();
            if without.is_empty() {
                return Enough { ns: Some(duration_ns), works, stalls };
            }
            if !without.into_iter().any(is_end) {
                without_latency.get_or_insert(duration_ns);
            }
        }
        Enough { ns: without_latency, works, stalls }
    }

    /// The outcome of a run. It is stopped when `events` is more than `most`.
    fn run_of_few_events(
        &self,
        events: &mut u64,
        most: u64,
        seed: u64,
        stop: &AtomicBool,
    ) -> Result<Outcome, RunError> {
        let enough = AtomicBool::new(false);
        let control = Control { stop: &enough, ..Control::new(seed) };
        let count = |_| {
            *events += 1;
            if *events > most || stop.load(Ordering::Relaxed) {
                enough.store(true, Ordering::Relaxed);
            }
        };
        self.run_observed(control, count)
    }

    /// As [`run`](Self::run). After each event, `observer` gets the kind of the event, as an index into
    /// [`EVENT_NAMES`](roost_engine::EVENT_NAMES).
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_observed(
        &self,
        control: Control<'_>,
        observer: impl FnMut(usize),
    ) -> Result<Outcome, RunError> {
        let Self { machine, workload, scheduler, start, quiet } = self;
        let control = Control { background: !quiet, ..control };
        match scheduler {
            SchedulerSpec::Fair { features, rule } => {
                let _in_force = rule.as_ref().map(|rule| rule.rules.enforce());
                let fair = Fair::new(machine, features.clone()).starting(*start);
                roost_engine::run_observed(machine, workload, fair, control, observer)
            }
            SchedulerSpec::Scx(spec) => {
                let failed = |reason| RunError::Scheduler {
                    workload: workload.name.clone(),
                    at_ns: 0,
                    reason,
                    tasks: "nothing has run".to_owned(),
                };
                let program = spec.program(machine, control.stop).map_err(|error| match error {
                    SpecError::Capture(error) if error.is_interrupted() => RunError::Stopped(0),
                    error => failed(error.to_string()),
                })?;
                let scx = Scx::new(machine, &program, spec.tick_ns);
                let mut scx = scx.map_err(|error| failed(error.to_string()))?;
                if let Some(kept) = Kept::machine_code() {
                    scx = scx.keeping_machine_code(kept);
                }
                if let Some(follower) = spec.follower(machine, !workload.regions.is_empty()) {
                    scx = scx.accompanied(Box::new(follower));
                }
                roost_engine::run_observed(machine, workload, scx, control, observer)
            }
        }
    }
}
