//! Runs a scheduler, by name, on a machine and a workload.
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
//! A [`Simulation`] says what is run, a [`Control`] how: seed, tracer, stop, progress. A simulation is cheap to clone
//! and can be run from many threads at once. Each run is a function of the simulation and its seed.
//!
//! [`SchedulerSpec`] is the one table of schedulers. A scheduler of another crate needs a variant, a name
//! in [`SchedulerSpec::parse`] and an arm in [`Simulation::run_observed`]; the engine's loop is compiled
//! for each, so that no call of a hook is dynamic.

mod effect;
mod named;
mod parallel;
mod spec;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub use named::{LabelError, Named};
pub use parallel::{JobsError, in_parallel};
use roost_engine::TooShort;
pub use roost_engine::{Control, Outcome, RunError};
use roost_fair::Fair;
pub use roost_fair::Start;
use roost_machine::{Machine, MachineError};
use roost_scx::Scx;
use roost_workload::{Workload, WorkloadError};
pub use spec::{SchedulerSpec, ScxSpec, SpecError};

/// Why a simulation could not be made from names.
#[derive(Debug, thiserror::Error)]
pub enum NamedError {
    /// The machine could not be read.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The workload could not be read.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The scheduler's name was not understood.
    #[error(transparent)]
    Scheduler(#[from] SpecError),
}

/// Durations that are proposed are multiples of this.
const LEAST_DURATION_NS: u64 = 1_000_000;

/// The longest that is tried: a workload that reaches nothing in that time is not waiting for its start.
const MOST_DURATION_NS: u64 = 100_000_000_000;

/// A scheduler on a machine and a workload.
#[derive(Clone)]
pub struct Simulation {
    /// The machine, which runs share.
    pub machine: Arc<Machine>,
    /// The workload, which runs share.
    pub workload: Arc<Workload>,
    /// The scheduler; each run constructs it anew.
    pub scheduler: SchedulerSpec,
    /// What the machine did before.
    pub start: Start,
    /// Whether nothing runs besides the workload; otherwise threads of the kernel do
    /// ([`Control::background`]).
    pub quiet: bool,
}

impl Simulation {
    /// Reads the names as the command line does. `duration_ns` ends the run, where the workload does not
    /// end before.
    ///
    /// # Errors
    /// If one of the names was not understood.
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

    /// Runs it once.
    ///
    /// # Errors
    /// If the run was stopped, the workload cannot go on, or asks for CPUs that do not exist.
    pub fn run(&self, control: Control<'_>) -> Result<Outcome, RunError> {
        self.run_observed(control, |_| {})
    }

    /// [`run`](Self::run) for the workload's metrics.
    ///
    /// # Errors
    /// As [`run`](Self::run), and if the duration ended the run before it got to what it measures: the error
    /// names a duration that would do.
    pub fn measure(&self, control: Control<'_>) -> Result<Outcome, RunError> {
        let (seed, stop) = (control.seed, control.stop);
        let outcome = self.run(control)?;
        let Some(TooShort { created, missing }) = outcome.too_short else { return Ok(outcome) };
        Err(RunError::NothingReached {
            workload: self.workload.name.clone(),
            at_ns: outcome.elapsed_ns,
            created,
            missing,
            enough_ns: self.enough_ns(outcome.elapsed_ns, seed, stop),
        })
    }

    /// A duration with which the run of `seed` gets to what it measures, which it does not in `too_short_ns`:
    /// found by running it for twice as long, and again.
    fn enough_ns(&self, too_short_ns: u64, seed: u64, stop: &AtomicBool) -> Option<u64> {
        let mut duration_ns = too_short_ns.next_multiple_of(LEAST_DURATION_NS);
        while duration_ns < MOST_DURATION_NS {
            duration_ns = (2 * duration_ns).min(MOST_DURATION_NS);
            let mut longer = self.clone();
            Arc::make_mut(&mut longer.workload).duration_ns = Some(duration_ns);
            let control = Control { stop, ..Control::new(seed) };
            if longer.run(control).ok()?.too_short.is_none() {
                return Some(duration_ns);
            }
        }
        None
    }

    /// [`run`](Self::run), telling `observer` the kind of each event after it was handled: index into
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
                let program = spec.program(machine);
                let scx = program.and_then(|program| Scx::new(machine, &program, spec.tick_ns));
                let scx = scx.map_err(|error| RunError::Scheduler {
                    workload: workload.name.clone(),
                    at_ns: 0,
                    reason: error.to_string(),
                    tasks: "nothing has run".to_owned(),
                })?;
                roost_engine::run_observed(machine, workload, scx, control, observer)
            }
        }
    }
}
