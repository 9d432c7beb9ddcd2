//! `roost compare --on vm|host`: runs the comparison on a real kernel.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use indicatif::ProgressBar;
use roost_engine::Time;
use roost_machine::Machine;
use roost_measure::{Audience, Replay};
use roost_real::guest::{self, Lane};
use roost_real::{Measured, Measurement, RealError, RealScheduler, Workload, host};
use roost_report::{Contender, PerfettoTrace, Timeline, TimelineRecorder};
use roost_simulate::Named;
use roost_vm::{Cache, GuestSpec};

use crate::args::{CompareArgs, On};
use crate::cells::Cell;
use crate::compare::Runs;
use crate::error::{Error, tell};
use crate::look;
use crate::traces::Traces;
use crate::vm;

/// Size of each CPU's trace buffer with `--trace`, in KiB. It holds about 100,000 switches and wakeups.
const STREAM_KIB: u32 = 8192;

/// A comparison on a real kernel.
struct Plan<'a> {
    args: &'a CompareArgs,
    workload: Workload,
    schedulers: Vec<RealScheduler>,
    named: &'a [Named],
    progress: &'a ProgressBar,
    stop: &'static AtomicBool,
}

/// The scheduler and the repeat of a measurement.
type Turn = (usize, u32);

/// Compares on one machine with one workload, in guests or on this machine.
pub fn measure(
    args: &CompareArgs,
    cell: &Cell,
    named: &[Named],
    traces: &Traces,
    progress: &ProgressBar,
    stop: &'static AtomicBool,
) -> Result<Runs, Error> {
    let duration_ns = args.duration.map(|duration| duration.as_nanos() as u64);
    let workload = Workload::resolve(cell.workload_name(), duration_ns)?;
    let schedulers = named.iter().map(|named| RealScheduler::parse(&named.spec));
    let schedulers = schedulers.collect::<Result<_, _>>()?;
    let plan = Plan { args, workload, schedulers, named, progress, stop };
    match args.on {
        On::Host => on_host(&plan, &cell.machine, traces),
        On::Vm | On::Sim => in_guests(&plan, &cell.machine, traces),
    }
}

/// A guest's memory in MiB if nothing else is asked for.
const MEMORY_MIB: u32 = 2048;

/// Real time that a run in a guest may take if nothing else is asked for.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Compares in guests.
fn in_guests(plan: &Plan<'_>, machine: &Machine, traces: &Traces) -> Result<Runs, Error> {
    let args = plan.args;
    let mut base = GuestSpec::new(machine);
    base.given = vm::given(&args.pieces);
    base.memory_mib = args.memory.unwrap_or(MEMORY_MIB);
    base.stop = plan.stop;
    let cache = Cache::of_user()?;
    let lane = Lane { exact: args.exact, timeout: args.timeout.unwrap_or(TIMEOUT) };
    let mut runs = plan.nothing_yet(Arc::new(base.machine.clone()));
    for (version, places) in plan.boots() {
        let spec = guest::spec_for(&base, version);
        let measurements: Vec<_> = places.iter().map(|&place| plan.measurement(place)).collect();
        let mut results = Vec::with_capacity(places.len());
        let ended = guest::measure(&cache, &spec, &lane, &measurements, &mut |result| {
            results.push(result);
            plan.advance()
        });
        for (&place, result) in places.iter().zip(&results) {
            runs.schedulers[place.0].kernel = release(&plan.schedulers[place.0], &result.measured)?;
            plan.keep(&mut runs, place, &result.measured, &spec.machine, traces)?;
        }
        if is_interrupted(ended)? {
            break;
        }
    }
    Ok(runs)
}

/// Compares on this machine.
fn on_host(plan: &Plan<'_>, machine: &Arc<Machine>, traces: &Traces) -> Result<Runs, Error> {
    let mut runs = plan.nothing_yet(machine.clone());
    for place in plan.turns(|_| true) {
        let ended = match host::measure(&plan.measurement(place), plan.stop) {
            Ok(result) => {
                runs.schedulers[place.0].kernel = result.measured.release()?;
                plan.keep(&mut runs, place, &result.measured, machine, traces)?;
                plan.advance()
            }
            Err(error) => Err(error),
        };
        if is_interrupted(ended)? {
            break;
        }
    }
    Ok(runs)
}

/// Whether Ctrl-C ended the measurements. Measurements made so far are kept.
fn is_interrupted(ended: Result<(), RealError>) -> Result<bool, Error> {
    match ended.map_err(Error::from) {
        Ok(()) => Ok(false),
        Err(Error::Interrupted) => Ok(true),
        Err(error) => Err(error),
    }
}

impl Plan<'_> {
    /// Empty results. The schedulers' kernels become known when they have run.
    fn nothing_yet(&self, machine: Arc<Machine>) -> Runs {
        let schedulers = self.schedulers.len();
        let contender = |(scheduler, named): (&RealScheduler, &Named)| Contender {
            name: named.label.clone(),
            spec: named.spec.clone(),
            kernel: String::new(),
            program: false,
            switches: scheduler.switches(),
            program_sha256: None,
            mechanisms: Vec::new(),
            notes: Vec::new(),
        };
        Runs {
            schedulers: self.schedulers.iter().zip(self.named).map(contender).collect(),
            outcomes: vec![vec![None; self.args.repeat as usize]; schedulers],
            trace_ends: vec![None; schedulers],
            machine,
            timelines: vec![None; schedulers],
            counted: Some(self.workload.counted()),
        }
    }

    /// Keeps what was measured on `machine`.
    fn keep(
        &self,
        runs: &mut Runs,
        (scheduler, repeat): Turn,
        measured: &Measured,
        machine: &Machine,
        traces: &Traces,
    ) -> Result<(), Error> {
        let outcome = measured.outcome(&self.workload, machine)?;
        runs.outcomes[scheduler][repeat as usize] = Some(outcome);
        if let Some(trace) = traces.of(scheduler, repeat) {
            runs.trace_ends[scheduler] = Some(write_trace(trace, measured, machine)?);
        }
        if look::is_wanted(self.args) && self.is_traced((scheduler, repeat)) {
            runs.timelines[scheduler] = Some(timeline(measured, machine)?);
        }
        Ok(())
    }

    /// The measurements of the `wanted` schedulers, in the order A B B A A B ... This way, slow changes of the machine
    /// affect all schedulers alike.
    fn turns(&self, wanted: impl Fn(&RealScheduler) -> bool) -> Vec<Turn> {
        let all = self.schedulers.iter().enumerate();
        let wanted: Vec<usize> =
            all.filter(|(_, scheduler)| wanted(scheduler)).map(|(index, _)| index).collect();
        let mut turns = Vec::new();
        for repeat in 0..self.args.repeat {
            let mut order = wanted.clone();
            if repeat % 2 == 1 {
                order.reverse();
            }
            turns.extend(order.into_iter().map(|scheduler| (scheduler, repeat)));
        }
        turns
    }

    /// One boot per kernel, with the measurements to make in it. sched_ext schedulers run on the first kernel that is
    /// named.
    fn boots(&self) -> Vec<(Option<&str>, Vec<Turn>)> {
        let first = self.schedulers.iter().find_map(|scheduler| scheduler.version.as_deref());
        let kernel = |scheduler: &'_ RealScheduler| -> Option<String> {
            scheduler.version.clone().or_else(|| first.map(str::to_owned))
        };
        let mut kernels: Vec<Option<&str>> = Vec::new();
        for scheduler in &self.schedulers {
            let version = scheduler.version.as_deref().or(first);
            if !kernels.contains(&version) {
                kernels.push(version);
            }
        }
        let places = |version: Option<&str>| self.turns(|s| kernel(s).as_deref() == version);
        kernels.into_iter().map(|version| (version, places(version))).collect()
    }

    fn measurement(&self, (scheduler, repeat): Turn) -> Measurement<'_> {
        Measurement {
            workload: &self.workload,
            scheduler: &self.schedulers[scheduler],
            seed: self.args.seed.wrapping_add(u64::from(repeat)),
            stream_kib: self.is_traced((scheduler, repeat)).then_some(STREAM_KIB),
        }
    }

    /// Whether the run is traced: the first run of each scheduler, as in the simulation. Without root, a page of this
    /// host does without a trace.
    fn is_traced(&self, (_, repeat): Turn) -> bool {
        let look = look::is_wanted(self.args) && (self.args.on != On::Host || host::is_root());
        (self.args.trace.is_some() || look) && repeat == 0
    }

    fn advance(&self) -> Result<(), RealError> {
        self.progress.inc(1);
        match self.stop.load(Ordering::Relaxed) {
            true => Err(RealError::Interrupted),
            false => Ok(()),
        }
    }
}

/// What the tasks of the workload did over time. The recording begins before the workload is measured.
fn timeline(measured: &Measured, machine: &Machine) -> Result<Timeline, Error> {
    let capture = measured.capture()?;
    let replay = Replay::new(&capture, machine).map_err(RealError::from)?;
    let from = Time(replay.end().ns().saturating_sub(measured.elapsed_ns));
    let recorder = TimelineRecorder::new(machine, from);
    let replayed = recorder.observe(replay.end(), |tracer| replay.run(Audience::Workload, tracer));
    replayed.map_err(RealError::from)?;
    tell_lost(&replay);
    Ok(recorder.finish(replay.end()))
}

/// Prints a note if the recording has gaps.
fn tell_lost(replay: &Replay<'_>) {
    let lost = replay.notes().lost_events;
    if lost > 0 {
        tell(&format!("note: the trace lacks {lost} events; shorten the run with --duration"));
    }
}

/// Writes the recorded trace, and returns when the recording ended.
fn write_trace(
    trace: &PerfettoTrace,
    measured: &Measured,
    machine: &Machine,
) -> Result<Time, Error> {
    let capture = measured.capture()?;
    let replay = Replay::new(&capture, machine).map_err(RealError::from)?;
    replay.run(Audience::Everything, &mut *trace.tracer(machine)).map_err(RealError::from)?;
    tell_lost(&replay);
    Ok(replay.end())
}

/// The kernel that `scheduler` ran on. Fails if the user's kernel (`--kernel`) is not of the version that the
/// scheduler's name says.
fn release(scheduler: &RealScheduler, measured: &Measured) -> Result<String, Error> {
    let release = measured.release()?;
    match &scheduler.version {
        Some(version) if !release.starts_with(version.as_str()) => Err(Error::Usage(format!(
            "{}: the kernel given with --kernel is Linux {release}",
            scheduler.name
        ))),
        _ => Ok(release),
    }
}
