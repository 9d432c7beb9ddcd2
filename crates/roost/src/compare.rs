//! `roost compare`: runs a workload under several schedulers.

use std::fmt::Write;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use rayon::prelude::*;
use roost_engine::{Control, Outcome, Time};
use roost_machine::Machine;
use roost_report::{Comparison, Contender, Experiment, Input, PerfettoTrace, Place};
use roost_simulate::{SchedulerSpec, Simulation};
use roost_workload::rtapp::Loaded;
use roost_workload::{MetricKind, Workload};

use crate::args::{CompareArgs, Format, On};
use crate::build;
use crate::error::{Error, print, tell};
use crate::lists;
use crate::real;
use crate::vm;

/// Set by Ctrl-C and SIGTERM.
static STOP: AtomicBool = AtomicBool::new(false);

/// The machine that is simulated where none is named.
const DEFAULT_MACHINE: &str = "zen3-2s";

/// What all runs left.
pub struct Runs {
    /// The schedulers, and the kernels that they ran on.
    pub schedulers: Vec<Contender>,
    /// By scheduler and repeat.
    pub outcomes: Vec<Vec<Outcome>>,
    /// When the run that was traced ended.
    pub trace_end: Time,
    /// What the counters are of, where that is more than the workload.
    pub counted: Option<&'static str>,
}

/// One run of one simulation.
struct Run<'a> {
    simulation: &'a Simulation,
    seed: u64,
    trace: Option<&'a PerfettoTrace>,
}

/// Compares the schedulers that `args` names.
pub fn run(args: &CompareArgs) -> Result<(), Error> {
    if args.list_workloads {
        return print(&lists::workloads(args.format)?);
    }
    if args.list_schedulers {
        return print(&lists::schedulers(args.format)?);
    }
    if args.exact && args.on != On::Vm {
        return Err(Error::Usage("--exact is a lane of guests: add --on vm".into()));
    }
    if args.on == On::Host && args.machine.is_some() {
        return Err(Error::Usage("--on host is this machine: leave out --machine".into()));
    }
    // An error means that a handler is set already, which only happens in tests.
    let _ = ctrlc::set_handler(|| STOP.store(true, Ordering::Relaxed));
    // Before the runs: nobody wants to hear after minutes that the file cannot be written.
    let trace = args.trace.as_deref().map(PerfettoTrace::create).transpose()?;
    let progress = progress_bar(args.schedulers.len() as u64 * u64::from(args.repeat));
    let machine = machine(args)?;
    let duration_ns = args.duration.map(|duration| duration.as_nanos() as u64);
    let loaded = roost_workload::benchmark::resolve_noted(args.workload(), duration_ns)?;
    let experiment = Experiment {
        roost: build::this(),
        place: place(args),
        machine: Input::new(&machine.name, &machine),
        workload: Input::new(args.workload(), &loaded.workload),
        duration_ns: loaded.workload.duration_ns,
        seed: args.seed,
        schedulers: Vec::new(),
    };
    let runs = match args.on {
        On::Sim => simulate(args, machine, loaded, trace.as_ref(), &progress)?,
        On::Vm => real::in_guests(args, &machine, trace.as_ref(), progress.clone(), &STOP)?,
        On::Host => real::on_host(args, &machine, trace.as_ref(), progress.clone(), &STOP)?,
    };
    progress.finish_and_clear();
    if let Some(trace) = trace {
        trace.finish(runs.trace_end)?;
    }
    let experiment = Experiment { schedulers: runs.schedulers, ..experiment };
    let comparison = Comparison::new(experiment, runs.outcomes);
    print(&render(args, &comparison, runs.counted))
}

/// The machine that `args` names, as it was read.
fn machine(args: &CompareArgs) -> Result<Machine, Error> {
    let default = match args.on {
        On::Sim => DEFAULT_MACHINE,
        On::Vm => vm::DEFAULT_MACHINE,
        On::Host => return Ok(Machine::this()?),
    };
    Ok(roost_machine::resolve(args.machine.as_deref().unwrap_or(default))?)
}

fn place(args: &CompareArgs) -> Place {
    match args.on {
        On::Sim => Place::Simulated,
        On::Vm if args.exact => Place::ExactGuest,
        On::Vm => Place::Guest,
        On::Host => Place::Host,
    }
}

/// Runs the comparison on a simulated machine.
fn simulate(
    args: &CompareArgs,
    machine: Machine,
    loaded: Loaded,
    trace: Option<&PerfettoTrace>,
    progress: &ProgressBar,
) -> Result<Runs, Error> {
    let machine = Arc::new(machine);
    let workload = Arc::new(loaded.workload);
    let simulation = |name: &String| {
        let (scheduler, notes) = SchedulerSpec::parse_noted(name)?;
        notes.iter().for_each(|note| tell(&format!("note: {note}")));
        Ok(Simulation { machine: machine.clone(), workload: workload.clone(), scheduler })
    };
    let simulations = args.schedulers.iter().map(simulation).collect::<Result<Vec<_>, Error>>()?;
    let outcomes = run_all(args, &simulations, trace, progress)?;
    for note in &loaded.notes {
        tell(&format!("note: {note}"));
    }
    if outcomes.iter().flatten().any(|outcome| was_cut(&workload, outcome)) {
        tell("note: --duration ended runs before their tasks, so how long those take is not known");
    }
    let traced = outcomes.last().and_then(|runs| runs.first());
    let trace_end = Time(traced.map_or(0, |outcome| outcome.elapsed_ns));
    let schedulers = simulations.iter().zip(&args.schedulers).map(|(simulation, name)| Contender {
        name: name.clone(),
        kernel: simulation.scheduler.kernel().to_owned(),
        switches: simulation.scheduler.switches(),
    });
    Ok(Runs { schedulers: schedulers.collect(), outcomes, trace_end, counted: None })
}

/// Runs every scheduler with every seed, in parallel; the order of the results is fixed.
fn run_all(
    args: &CompareArgs,
    simulations: &[Simulation],
    trace: Option<&PerfettoTrace>,
    progress: &ProgressBar,
) -> Result<Vec<Vec<Outcome>>, Error> {
    let last = simulations.len() - 1;
    let runs: Vec<Run<'_>> = simulations
        .iter()
        .enumerate()
        .flat_map(|(index, simulation)| {
            (0..args.repeat).map(move |repeat| Run {
                simulation,
                seed: args.seed.wrapping_add(u64::from(repeat)),
                trace: trace.filter(|_| index == last && repeat == 0),
            })
        })
        .collect();
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(args.jobs.map_or(0, usize::from))
        .build()
        .map_err(|error| Error::Usage(format!("--jobs: {error}; give fewer")))?;
    let results: Vec<Result<Outcome, Error>> = pool.install(|| {
        let one = |run| {
            let outcome = run_one(run);
            if outcome.is_err() {
                STOP.store(true, Ordering::Relaxed);
            }
            progress.inc(1);
            outcome
        };
        runs.par_iter().map(one).collect()
    });
    let mut outcomes = all_or_first_cause(results)?.into_iter();
    let repeat = args.repeat as usize;
    Ok(simulations.iter().map(|_| outcomes.by_ref().take(repeat).collect()).collect())
}

/// Every outcome, or the error that ended the comparison: a run that was stopped is not the cause if
/// another one failed.
fn all_or_first_cause(results: Vec<Result<Outcome, Error>>) -> Result<Vec<Outcome>, Error> {
    let mut outcomes = Vec::with_capacity(results.len());
    let mut stopped = None;
    for result in results {
        match result {
            Ok(outcome) => outcomes.push(outcome),
            Err(error @ Error::Interrupted) => stopped = Some(error),
            Err(error) => return Err(error),
        }
    }
    stopped.map_or(Ok(outcomes), Err)
}

fn run_one(run: &Run<'_>) -> Result<Outcome, Error> {
    // The engine looks at it only now and then, and many short runs may be waiting.
    if STOP.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }
    let control = Control {
        seed: run.seed,
        tracer: run.trace.map(PerfettoTrace::tracer),
        stop: &STOP,
        progress: &|_| {},
    };
    Ok(run.simulation.run(control)?)
}

/// Whether the duration ended a run before the tasks that it was to time.
fn was_cut(workload: &Workload, outcome: &Outcome) -> bool {
    let mut metrics = workload.metrics.iter().zip(&outcome.metrics);
    metrics.any(|(metric, found)| metric.kind == MetricKind::WallSeconds && found.value.is_none())
}

/// A bar on the terminal; nothing where nobody watches.
pub fn progress_bar(runs: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(runs);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} runs  {elapsed}  {left}")
    {
        bar.set_style(style.with_key("left", time_left));
    }
    bar.enable_steady_tick(std::time::Duration::from_millis(200));
    bar
}

/// How long it will still take: nobody knows before the first run has ended.
fn time_left(state: &ProgressState, out: &mut dyn Write) {
    if state.pos() > 0 {
        let _ = write!(out, "{:#} left", HumanDuration(state.eta()));
    }
}

fn render(args: &CompareArgs, comparison: &Comparison, counted: Option<&str>) -> String {
    let mut out = match args.format {
        Format::Json => return roost_report::json(comparison),
        Format::Csv if args.counters => {
            return roost_report::csv(comparison) + &roost_report::csv_counters(comparison);
        }
        Format::Csv => return roost_report::csv(comparison),
        Format::Mmtests => roost_report::mmtests(comparison),
        Format::Table => roost_report::table(comparison),
    };
    if args.counters {
        for part in [
            roost_report::counters(comparison),
            roost_report::search_efficiency(comparison),
            roost_report::histogram(comparison),
        ] {
            out += "\n";
            out += &part;
        }
        if let Some(counted) = counted {
            out += &format!("\n{counted}.\n");
        }
    }
    out
}
