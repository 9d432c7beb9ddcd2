//! `roost compare`: runs a workload under several schedulers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;
use roost_engine::{Control, Outcome, RunError, Time};
use roost_machine::Machine;
use roost_report::{
    Comparison, Contender, Experiment, HtmlFile, Input, Mechanism, Page, PerfettoTrace, Place,
    Timeline, unsteady,
};
use roost_simulate::{SchedulerSpec, Simulation};
use roost_workload::rtapp::Loaded;
use roost_workload::{MetricKind, Workload};

use crate::args::{CompareArgs, Format, On, StartArg};
use crate::build;
use crate::error::{Error, print, tell};
use crate::lists;
use crate::look::{self, Look};
use crate::progress::{self, Simulated};
use crate::real;
use crate::resume::{self, Known};
use crate::traces::Traces;
use crate::vm;

/// Set by Ctrl-C and SIGTERM.
static STOP: AtomicBool = AtomicBool::new(false);

/// The machine that is simulated where none is named.
const DEFAULT_MACHINE: &str = "zen3-2s";

/// What all runs left.
pub struct Runs {
    /// The schedulers, and the kernels that they ran on.
    pub schedulers: Vec<Contender>,
    /// By scheduler and repeat; `None`: interrupted before it ended.
    pub outcomes: Vec<Vec<Option<Outcome>>>,
    /// When the traced run of each scheduler ended, if it did.
    pub trace_ends: Vec<Option<Time>>,
    /// The first run of each scheduler over time, where that was asked for.
    pub timelines: Vec<Option<Timeline>>,
    /// What the counters are of, where that is more than the workload.
    pub counted: Option<&'static str>,
}

/// One run of one simulation.
struct Run<'a> {
    scheduler: usize,
    simulation: &'a Simulation,
    repeat: u32,
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
    if args.start == StartArg::Boot && args.on != On::Sim {
        let problem =
            "--start boot is of simulated machines: a real one has its own past; leave it out";
        return Err(Error::Usage(problem.into()));
    }
    if args.quiet && args.on != On::Sim {
        let problem = "--quiet is of simulated machines: threads of a real kernel cannot be left out; leave it out";
        return Err(Error::Usage(problem.into()));
    }
    if args.resume.is_some() && args.on != On::Sim {
        return Err(Error::Usage(
            "--resume goes on with simulated runs: those of a real kernel differ each time; leave it out"
                .into(),
        ));
    }
    // An error means that a handler is set already, which only happens in tests.
    let _ = ctrlc::set_handler(|| STOP.store(true, Ordering::Relaxed));
    let mut traces = Traces::create(args)?;
    let look = Look::new(args)?;
    let html = args.html.as_deref().map(HtmlFile::create).transpose()?;
    let bar = || progress::of_runs(args.schedulers.len() as u64 * u64::from(args.repeat));
    let machine = machine(args)?;
    let duration_ns = args.duration.map(|duration| duration.as_nanos() as u64);
    let mut loaded = roost_workload::benchmark::resolve_noted(args.workload(), duration_ns)?;
    if args.start == StartArg::Boot {
        loaded.workload.measured_from_ns = 0;
    }
    let simulated = args.on == On::Sim;
    let mut experiment = Experiment {
        roost: build::this(),
        place: place(args),
        machine: Input::new(&machine.name, &machine),
        workload: Input::new(args.workload(), &loaded.workload),
        duration_ns: loaded.workload.duration_ns,
        measured_from_ns: simulated.then_some(loaded.workload.measured_from_ns),
        start: simulated.then_some(args.start.word()),
        quiet: simulated.then_some(args.quiet),
        seed: args.seed,
        schedulers: Vec::new(),
    };
    let mut runs = match args.on {
        On::Sim => simulate(args, machine.clone(), loaded, &mut traces, look, &experiment)?,
        On::Vm => real::in_guests(args, &machine, &traces, bar(), &STOP)?,
        On::Host => real::on_host(args, &machine, &traces, bar(), &STOP)?,
    };
    experiment.schedulers = std::mem::take(&mut runs.schedulers);
    report(args, &machine, &traces, html, experiment, runs)
}

/// Prints what is complete. Of a comparison of which no repeat is, only JSON has something to keep: single
/// runs.
fn report(
    args: &CompareArgs,
    machine: &Machine,
    traces: &Traces,
    html: Option<HtmlFile>,
    experiment: Experiment,
    mut runs: Runs,
) -> Result<(), Error> {
    let (complete, wanted) = (complete_repeats(&runs.outcomes), args.repeat as usize);
    let keeps = args.format == Format::Json && runs.outcomes.iter().flatten().any(Option::is_some);
    if complete == 0 && !keeps {
        return Err(Error::Interrupted);
    }
    let complete_of = |runs: &mut Vec<Option<Outcome>>| runs.drain(..complete).flatten().collect();
    let outcomes = runs.outcomes.iter_mut().map(complete_of).collect();
    let mut comparison = Comparison::new(experiment, outcomes);
    if complete < wanted {
        comparison = comparison.interrupted(wanted, later(args, complete, runs.outcomes));
    }
    traces.finish(&args.schedulers, &runs.trace_ends)?;
    if let Some(html) = html {
        let timelines = &runs.timelines;
        html.write(&Page {
            comparison: &comparison,
            machine,
            timelines,
            command: &look::command(),
        })?;
    }
    let mut out = render(args, &comparison, runs.counted);
    if args.picture {
        out += &picture(&comparison, machine, &runs.timelines);
    }
    print(&out)?;
    match comparison.interrupted {
        Some(_) => {
            let resumable = args.format == Format::Json && args.on == On::Sim;
            Err(Error::Partial { complete, wanted, resumable })
        }
        None => Ok(()),
    }
}

/// The runs of repeats from `first` on that have ended.
fn later(
    args: &CompareArgs,
    first: usize,
    outcomes: Vec<Vec<Option<Outcome>>>,
) -> Vec<roost_report::Run> {
    let mut later = Vec::new();
    for (scheduler, runs) in outcomes.into_iter().enumerate() {
        for (repeat, outcome) in (first as u64..).zip(runs) {
            let seed = args.seed.wrapping_add(repeat);
            later.extend(outcome.map(|outcome| roost_report::Run { scheduler, seed, outcome }));
        }
    }
    later
}

/// So many repeats are complete, from the first on: the run of each scheduler has ended. A comparison of
/// these is the one that `--repeat` with this number makes. Runs of later repeats that happen to have ended
/// are those that were quick to end, so that a mean with them would not be one of all runs.
fn complete_repeats(outcomes: &[Vec<Option<Outcome>>]) -> usize {
    let ended = |runs: &Vec<Option<Outcome>>| runs.iter().take_while(|run| run.is_some()).count();
    outcomes.iter().map(ended).min().unwrap_or(0)
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
    traces: &mut Traces,
    look: Look,
    experiment: &Experiment,
) -> Result<Runs, Error> {
    let machine = Arc::new(machine);
    let workload = Arc::new(loaded.workload);
    let (start, quiet) = (args.start.into(), args.quiet);
    let simulation = |name: &String| {
        let (scheduler, notes) = SchedulerSpec::parse_noted(name)?;
        notes.iter().for_each(|note| tell(&format!("note: {note}")));
        let (machine, workload) = (machine.clone(), workload.clone());
        Ok(Simulation { machine, workload, scheduler, start, quiet })
    };
    let simulations = args.schedulers.iter().map(simulation).collect::<Result<Vec<_>, Error>>()?;
    traces.check(workload.duration_ns)?;
    let mut schedulers: Vec<Contender> =
        simulations.iter().zip(&args.schedulers).map(contender).collect();
    let experiment = Experiment { schedulers: schedulers.clone(), ..experiment.clone() };
    let known = known(args, &experiment, traces)?;
    let outcomes = run_all(args, &simulations, traces, &look, known)?;
    for note in &loaded.notes {
        tell(&format!("note: {note}"));
    }
    if outcomes.iter().flatten().flatten().any(|outcome| was_cut(&workload, outcome)) {
        tell("note: --duration ended runs before their tasks, so how long those take is not known");
    }
    let end = |runs: &Vec<Option<Outcome>>| Some(Time(runs.first()?.as_ref()?.elapsed_ns));
    for ((scheduler, simulation), runs) in schedulers.iter_mut().zip(&simulations).zip(&outcomes) {
        let runs: Vec<&Outcome> = runs.iter().flatten().collect();
        scheduler.notes = simulation.without_effect(&runs);
        scheduler.notes.extend(unsteady(&runs));
    }
    let trace_ends = outcomes.iter().map(end).collect();
    Ok(Runs { schedulers, outcomes, trace_ends, timelines: look.timelines(args), counted: None })
}

/// The runs that need not be made: they are in the file of `--resume`.
fn known(args: &CompareArgs, experiment: &Experiment, traces: &mut Traces) -> Result<Known, Error> {
    let Some(file) = &args.resume else { return Ok(Known::new()) };
    let known = resume::read(file, experiment)?;
    for (scheduler, name) in args.schedulers.iter().enumerate() {
        if known.contains_key(&(scheduler, args.seed)) && traces.leave_out(scheduler) {
            tell(&format!("note: no trace of {name}: its first run is one that --resume has"));
        }
    }
    Ok(known)
}

/// A scheduler before its runs, which tell more of its switches.
fn contender((simulation, name): (&Simulation, &String)) -> Contender {
    let mechanisms = simulation.scheduler.mechanisms().into_iter().map(|(name, acted)| Mechanism {
        name: name.to_owned(),
        acted: acted.iter().map(|&counter| counter.to_owned()).collect(),
    });
    Contender {
        name: name.clone(),
        kernel: simulation.scheduler.kernel().to_owned(),
        program: simulation.scheduler.is_program(),
        switches: simulation.scheduler.switches(),
        mechanisms: mechanisms.collect(),
        notes: Vec::new(),
    }
}

/// Runs every scheduler with every seed whose run is not `known`, in parallel, the first seeds first; the
/// order of the results is fixed. A run that was interrupted has none.
fn run_all(
    args: &CompareArgs,
    simulations: &[Simulation],
    traces: &Traces,
    look: &Look,
    mut known: Known,
) -> Result<Vec<Vec<Option<Outcome>>>, Error> {
    let of_repeat = |repeat| {
        let seed = args.seed.wrapping_add(u64::from(repeat));
        simulations.iter().enumerate().map(move |(scheduler, simulation)| {
            let trace = traces.of(scheduler, repeat);
            Run { scheduler, simulation, repeat, seed, trace }
        })
    };
    let runs: Vec<Run<'_>> = (0..args.repeat)
        .flat_map(of_repeat)
        .filter(|run| !known.contains_key(&(run.scheduler, run.seed)))
        .collect();
    let duration_ns = simulations.first().and_then(|first| first.workload.duration_ns);
    let progress = Simulated::new(runs.len(), duration_ns);
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(args.jobs.map_or(0, usize::from))
        .build()
        .map_err(|error| Error::Usage(format!("--jobs: {error}; give fewer")))?;
    let one = |(index, run)| (index, run_one(run, index, look, &progress));
    // Each thread takes the next run that nobody has taken.
    let mut results: Vec<(usize, Result<Outcome, Error>)> =
        pool.install(|| runs.iter().enumerate().par_bridge().map(one).collect());
    progress.finish();
    results.sort_by_key(|(index, _)| *index);
    if let Some(error) = needs_longest(&mut results) {
        return Err(error);
    }
    for (index, result) in results {
        if let Some(outcome) = unless_stopped(result)? {
            known.insert((runs[index].scheduler, runs[index].seed), outcome);
        }
    }
    let seeds = (0..args.repeat).map(|repeat| args.seed.wrapping_add(u64::from(repeat)));
    let mut of_scheduler =
        |scheduler| seeds.clone().map(|seed| known.remove(&(scheduler, seed))).collect();
    Ok((0..simulations.len()).map(&mut of_scheduler).collect())
}

/// Of the runs that were too short the one that needs the longest duration: with that none is too short.
fn needs_longest(results: &mut Vec<(usize, Result<Outcome, Error>)>) -> Option<Error> {
    let needs = |result: &Result<Outcome, Error>| match result {
        Err(Error::Run(RunError::NothingReached { enough_ns, .. })) => {
            Some(enough_ns.unwrap_or(u64::MAX))
        }
        _ => None,
    };
    let short = results.iter().enumerate();
    let short = short.filter_map(|(at, (_, result))| Some((needs(result)?, at)));
    let (_, longest) = short.max()?;
    results.swap_remove(longest).1.err()
}

/// `None` for a run that was stopped; what stops the others is the error of the one that failed.
fn unless_stopped(result: Result<Outcome, Error>) -> Result<Option<Outcome>, Error> {
    match result {
        Err(Error::Interrupted) => Ok(None),
        ended => ended.map(Some),
    }
}

fn run_one(
    run: &Run<'_>,
    index: usize,
    look: &Look,
    progress: &Simulated,
) -> Result<Outcome, Error> {
    // The engine looks at it only now and then, and many short runs may be waiting.
    if STOP.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }
    let trace = run.trace.map(|trace| trace.tracer(&run.simulation.machine));
    let recorder = look.recorder(run.simulation, run.repeat == 0);
    let control = Control {
        tracer: look::both(trace, recorder.as_ref()),
        stop: &STOP,
        progress: &|now| progress.reached(index, now),
        ..Control::new(run.seed)
    };
    let result = run.simulation.measure(control);
    match &result {
        Ok(outcome) => {
            progress.ended(index, outcome.elapsed_ns);
            if let Some(recorder) = recorder {
                look.keep(run.scheduler, recorder, outcome);
            }
        }
        // Others are as short: which one is told must not depend on which one was first.
        Err(RunError::NothingReached { .. }) => {}
        Err(_) => STOP.store(true, Ordering::Relaxed),
    }
    Ok(result?)
}

/// Whether the duration ended a run before the tasks that it was to time.
fn was_cut(workload: &Workload, outcome: &Outcome) -> bool {
    let mut metrics = workload.metrics.iter().zip(&outcome.metrics);
    let of_all = |kind| matches!(kind, &MetricKind::WallSeconds | &MetricKind::SecondsSince { .. });
    metrics.any(|(metric, found)| of_all(&metric.kind) && found.value.is_none())
}

/// Columns of the terminal that shows the output; `None`: it goes elsewhere.
fn terminal_width() -> Option<u16> {
    terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| width.0)
}

/// Below the table: the timelines that there are.
fn picture(comparison: &Comparison, machine: &Machine, timelines: &[Option<Timeline>]) -> String {
    let named = comparison.names().zip(timelines);
    let runs: Vec<_> =
        named.filter_map(|(name, timeline)| Some((name, timeline.as_ref()?))).collect();
    if runs.is_empty() {
        return String::new();
    }
    format!("\n{}", roost_report::picture(machine, &runs, terminal_width(), look::colours()))
}

fn render(args: &CompareArgs, comparison: &Comparison, counted: Option<&str>) -> String {
    let width = terminal_width();
    let mut out = match args.format {
        Format::Json => return roost_report::json(comparison),
        Format::Csv if args.counters => {
            return roost_report::csv(comparison) + &roost_report::csv_counters(comparison);
        }
        Format::Csv => return roost_report::csv(comparison),
        Format::Mmtests => roost_report::mmtests(comparison),
        Format::Table => roost_report::table(comparison, width),
    };
    if args.counters {
        for part in [
            roost_report::counters(comparison, width),
            roost_report::search_efficiency(comparison, width),
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
