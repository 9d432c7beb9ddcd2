//! `roost compare`: runs a workload under several schedulers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use roost_engine::{Control, Outcome, RunError, Time};
use roost_machine::Machine;
use roost_report::{
    Comparison, Contender, Experiment, HtmlFile, Mechanism, Page, PerfettoTrace, Timeline,
    TimelineRecorder, kept_waiting, unsteady,
};
use roost_simulate::{Named, SchedulerSpec, Simulation, in_parallel, rule_without_effect};
use roost_workload::{MetricKind, Workload};

use crate::args::{CompareArgs, Format, On, StartArg};
use crate::cells::{self, Cell};
use crate::error::{Error, print, tell};
use crate::lists;
use crate::look::{self, Look};
use crate::progress::{self, Simulated};
use crate::real;
use crate::resume::{self, Known};
use crate::traces::Traces;

/// Set by Ctrl-C and SIGTERM.
static STOP: AtomicBool = AtomicBool::new(false);

/// The results of all runs on one machine with one workload.
pub struct Runs {
    /// The schedulers, and the kernel that each ran on.
    pub schedulers: Vec<Contender>,
    /// Outcomes by scheduler and repeat. `None`: the run was interrupted.
    pub outcomes: Vec<Vec<Option<Outcome>>>,
    /// The end of each scheduler's traced run, if there is one.
    pub trace_ends: Vec<Option<Time>>,
    /// The machine, with CPUs numbered as in the timelines. A guest numbers its CPUs depth first.
    pub machine: Arc<Machine>,
    /// The timeline of each scheduler's first run, if one was asked for.
    pub timelines: Vec<Option<Timeline>>,
    /// What the counters cover, if they cover more than the workload.
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
    check(args)?;
    // This fails only if a handler is set already, which happens only in tests.
    let _ = ctrlc::set_handler(|| STOP.store(true, Ordering::Relaxed));
    let schedulers = Named::all(&args.schedulers)?;
    let mut traces = Traces::create(args, &schedulers)?;
    let cells = cells::cells(args)?;
    check_one(args, cells.len())?;
    let look = Look::new(args)?;
    let html = args.html.as_deref().map(HtmlFile::create).transpose()?;
    let runs = match args.on {
        On::Sim => simulate(args, &cells, &schedulers, &mut traces, look)?,
        On::Vm | On::Host => measure(args, &cells, &schedulers, &traces)?,
    };
    report(args, &traces, html, cells, runs)
}

/// Refuses options that cannot be combined.
fn check(args: &CompareArgs) -> Result<(), Error> {
    let refused = |problem: &str| Err(Error::Usage(problem.to_owned()));
    if let Some(option) = args.given_for_guests().filter(|_| args.on != On::Vm) {
        return refused(&format!("{option} applies to guests only: add --on vm"));
    }
    if args.trace.is_some() && args.trace == args.html {
        return refused("--trace and --html name the same file: name two");
    }
    if args.on == On::Host && !args.machine.is_empty() {
        return refused("--on host always runs on this machine: leave out --machine");
    }
    if args.start == StartArg::Boot && args.on != On::Sim {
        return refused(
            "--start boot applies to simulated machines only: leave it out, or use --on sim",
        );
    }
    if args.quiet && args.on != On::Sim {
        return refused(
            "--quiet applies to simulated machines only: leave it out, or use --on sim",
        );
    }
    if args.resume.is_some() && args.on != On::Sim {
        return refused(
            "--resume continues simulated runs only, because runs on a real kernel differ each time: leave it out",
        );
    }
    Ok(())
}

/// Refuses several machines or workloads with an option that takes only one of each.
fn check_one(args: &CompareArgs, cells: usize) -> Result<(), Error> {
    let of_one = [
        ("--trace", args.trace.is_some()),
        ("--metric", args.metric.is_some()),
        ("--html", args.html.is_some()),
        ("--picture", args.picture),
    ];
    match of_one.into_iter().find(|(_, given)| *given && cells > 1) {
        Some((option, _)) => {
            let problem = format!("{option} takes one machine and one workload: name one of each");
            Err(Error::Usage(problem))
        }
        None => Ok(()),
    }
}

/// Runs the comparisons on a real kernel one after the other. Stops after one that was interrupted.
fn measure(
    args: &CompareArgs,
    cells: &[Cell],
    schedulers: &[Named],
    traces: &Traces,
) -> Result<Vec<Runs>, Error> {
    let runs = cells.len() as u64 * schedulers.len() as u64 * u64::from(args.repeat);
    let bar = progress::of_runs(runs);
    let mut all = Vec::new();
    for cell in cells {
        all.push(real::measure(args, cell, schedulers, traces, &bar, &STOP)?);
        if STOP.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(all)
}

/// Prints the comparisons that have complete repeats. If a comparison has none, only JSON prints something of it: its
/// single runs.
fn report(
    args: &CompareArgs,
    traces: &Traces,
    html: Option<HtmlFile>,
    cells: Vec<Cell>,
    mut runs: Vec<Runs>,
) -> Result<(), Error> {
    let (asked, wanted) = (cells.len(), args.repeat as usize);
    let mut complete_in_all = if runs.len() < asked { 0 } else { wanted };
    let counted = runs.first().and_then(|runs| runs.counted);
    // `--html` and `--picture` take only one machine and one workload.
    let machine = runs.first().map(|runs| runs.machine.clone());
    let timelines = runs.first_mut().map(|runs| std::mem::take(&mut runs.timelines));
    let timelines = timelines.unwrap_or_default();
    let mut comparisons = Vec::new();
    for (cell, runs) in cells.into_iter().zip(runs) {
        let complete = complete_repeats(&runs.outcomes);
        complete_in_all = complete_in_all.min(complete);
        let any = runs.outcomes.iter().flatten().any(Option::is_some);
        traces.finish(&runs.schedulers, &runs.trace_ends)?;
        if complete > 0 || args.format == Format::Json && any {
            comparisons.push(comparison(args, cell.experiment, runs, complete));
        }
    }
    let (Some(first), Some(machine)) = (comparisons.first(), machine) else {
        return Err(Error::Interrupted);
    };
    if let Some(html) = html {
        let (timelines, command) = (&timelines, &look::command());
        let lacks = look::lacks(args, timelines);
        let page = Page { comparison: first, machine: &machine, timelines, command, lacks };
        html.write(&roost_report::html(&page))?;
    }
    if complete_in_all == wanted || args.metric.is_none() {
        let mut out = render(args, &comparisons, asked > 1, counted)?;
        if args.picture {
            out += &picture(first, &machine, &timelines);
        }
        print(&out)?;
    }
    if complete_in_all < wanted {
        let resumable = args.format == Format::Json && args.on == On::Sim;
        return Err(Error::Partial { complete: complete_in_all, wanted, resumable });
    }
    Ok(())
}

/// The comparison of the first `complete` repeats.
fn comparison(
    args: &CompareArgs,
    mut experiment: Experiment,
    mut runs: Runs,
    complete: usize,
) -> Comparison {
    experiment.schedulers = std::mem::take(&mut runs.schedulers);
    let complete_of = |runs: &mut Vec<Option<Outcome>>| runs.drain(..complete).flatten().collect();
    let outcomes = runs.outcomes.iter_mut().map(complete_of).collect();
    let comparison = Comparison::new(experiment, outcomes);
    match args.repeat as usize {
        wanted if complete < wanted => {
            comparison.interrupted(wanted, later(args, complete, runs.outcomes))
        }
        _ => comparison,
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

/// The number of complete repeats, counted from the first. A repeat is complete if the run of each scheduler has ended.
/// A comparison of these repeats equals one made with `--repeat` set to this number. Later runs are left out, even if
/// they have ended: they are the quick ones, and would bias the mean.
fn complete_repeats(outcomes: &[Vec<Option<Outcome>>]) -> usize {
    let ended = |runs: &Vec<Option<Outcome>>| runs.iter().take_while(|run| run.is_some()).count();
    outcomes.iter().map(ended).min().unwrap_or(0)
}

/// Runs the comparisons on simulated machines.
fn simulate(
    args: &CompareArgs,
    cells: &[Cell],
    named: &[Named],
    traces: &mut Traces,
    look: Look,
) -> Result<Vec<Runs>, Error> {
    let mut schedulers = Vec::new();
    for Named { spec, .. } in named {
        let (scheduler, notes) = SchedulerSpec::parse_noted(spec)?;
        notes.iter().for_each(|note| tell(&format!("note: {note}")));
        schedulers.push(scheduler);
    }
    let of_cell = |cell: &Cell| {
        let simulation = |scheduler: &SchedulerSpec| Simulation {
            machine: cell.machine.clone(),
            workload: cell.workload.clone(),
            scheduler: scheduler.clone(),
            start: args.start.into(),
            quiet: args.quiet,
        };
        schedulers.iter().map(simulation).collect::<Vec<_>>()
    };
    let simulations: Vec<Simulation> = cells.iter().flat_map(of_cell).collect();
    let contenders = schedulers.iter().zip(named).zip(prepare(&simulations, named.len())?);
    // A loader's file is large, so it is read only where the hash is told or compared.
    let hashes = args.format == Format::Json || args.resume.is_some();
    let contender = |((scheduler, named), notes): ((&SchedulerSpec, &Named), _)| Contender {
        notes,
        program_sha256: hashes.then(|| scheduler.program_sha256()).flatten(),
        ..contender(scheduler, named)
    };
    let contenders: Vec<Contender> = contenders.map(contender).collect();
    let mut known = Known::new();
    for (index, cell) in cells.iter().enumerate() {
        traces.check(cell.workload.duration_ns)?;
        let experiment = Experiment { schedulers: contenders.clone(), ..cell.experiment.clone() };
        let of_cell = known_of(args, &experiment, traces)?.into_iter();
        let first = index * named.len();
        known.extend(of_cell.map(|((scheduler, seed), run)| ((first + scheduler, seed), run)));
    }
    let mut outcomes = run_all(args, &simulations, traces, &look, known)?.into_iter();
    let mut all = Vec::new();
    for (cell, simulations) in cells.iter().zip(simulations.chunks(named.len())) {
        let outcomes: Vec<_> = outcomes.by_ref().take(named.len()).collect();
        all.push(simulated(cell, simulations, contenders.clone(), outcomes));
    }
    if let Some(first) = all.first_mut() {
        first.timelines = look.timelines(args);
    }
    Ok(all)
}

/// Starts the loaders of sched_ext programs, once for each machine. Returns for each of the `nr_schedulers` what the
/// simulation does not do for it.
fn prepare(simulations: &[Simulation], nr_schedulers: usize) -> Result<Vec<Vec<String>>, Error> {
    let mut notes = vec![Vec::new(); nr_schedulers];
    let of_machines = simulations.chunks(nr_schedulers).flat_map(|chunk| chunk.iter().enumerate());
    for (number, simulation) in of_machines {
        let SchedulerSpec::Scx(scx) = &simulation.scheduler else { continue };
        for note in scx.prepare(&simulation.machine, &STOP)? {
            if !notes[number].contains(&note) {
                notes[number].push(note);
            }
        }
    }
    Ok(notes)
}

/// Gathers the runs of one machine and workload, and prints the notes about them.
fn simulated(
    cell: &Cell,
    simulations: &[Simulation],
    mut schedulers: Vec<Contender>,
    outcomes: Vec<Vec<Option<Outcome>>>,
) -> Runs {
    for note in &cell.notes {
        tell(&format!("note: {note}"));
    }
    let workload = &cell.workload;
    if outcomes.iter().flatten().flatten().any(|outcome| was_cut(workload, outcome)) {
        tell(
            "note: --duration ended runs before their tasks ended, so how long the tasks take is not known",
        );
    }
    let end = |runs: &Vec<Option<Outcome>>| Some(Time(runs.first()?.as_ref()?.elapsed_ns));
    for ((scheduler, simulation), runs) in schedulers.iter_mut().zip(simulations).zip(&outcomes) {
        let runs: Vec<&Outcome> = runs.iter().flatten().collect();
        scheduler.notes.extend(simulation.without_effect(&runs));
        scheduler.notes.extend(unsteady(&runs));
        scheduler.notes.extend(kept_waiting(&runs));
    }
    let runs = || simulations.iter().zip(outcomes.iter().map(Vec::as_slice));
    for (scheduler, own) in schedulers.iter_mut().zip(runs()) {
        scheduler.notes.extend(runs().find_map(|other| rule_without_effect(own, other)));
    }
    let trace_ends = outcomes.iter().map(end).collect();
    let machine = cell.machine.clone();
    Runs { schedulers, outcomes, trace_ends, machine, timelines: Vec::new(), counted: None }
}

/// The runs that `--resume` provides, so that they need not be made.
fn known_of(
    args: &CompareArgs,
    experiment: &Experiment,
    traces: &mut Traces,
) -> Result<Known, Error> {
    let Some(file) = &args.resume else { return Ok(Known::new()) };
    let known = resume::read(file, experiment)?;
    for (scheduler, contender) in experiment.schedulers.iter().enumerate() {
        if known.contains_key(&(scheduler, args.seed)) && traces.leave_out(scheduler) {
            let name = &contender.name;
            tell(&format!(
                "note: no trace of {name}: its first run comes from the file of --resume"
            ));
        }
    }
    Ok(known)
}

/// A scheduler before its runs. The runs add notes about its switches.
fn contender(scheduler: &SchedulerSpec, named: &Named) -> Contender {
    let mechanisms = scheduler.mechanisms().into_iter().map(|(name, acted)| Mechanism {
        name: name.to_owned(),
        acted: acted.iter().map(|&counter| counter.to_owned()).collect(),
    });
    Contender {
        name: named.label.clone(),
        spec: named.spec.clone(),
        kernel: scheduler.kernel().to_owned(),
        program: scheduler.is_program(),
        switches: scheduler.switches(),
        program_sha256: None,
        mechanisms: mechanisms.collect(),
        notes: Vec::new(),
    }
}

/// Runs every simulation with every seed that is not `known`, in parallel, the first seeds first. The results come in a
/// fixed order. An interrupted run leaves `None`.
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
    let mut durations = simulations.iter().map(|simulation| simulation.workload.duration_ns);
    let first = durations.next().flatten();
    let duration_ns = first.filter(|_| durations.all(|other| other == first));
    let progress = Simulated::new(runs.len(), duration_ns);
    let jobs = args.jobs.map_or(0, usize::from);
    let one = |(index, run)| run_one(run, index, look, &progress);
    let results = in_parallel(jobs, runs.iter().enumerate(), one)?;
    progress.finish();
    let mut results: Vec<(usize, Result<Outcome, Error>)> =
        results.into_iter().enumerate().collect();
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

/// Among the runs that were too short, returns the error that asks for the longest duration: no run is too short with
/// it.
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

/// Returns `None` for a run that was stopped because another run failed. That run's own error is the one to report.
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
    // The engine checks the flag only now and then, and many short runs may be waiting.
    if STOP.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }
    let recorder = look.recorder(run.simulation, run.repeat == 0);
    let control = Control {
        tracer: run.trace.map(|trace| trace.tracer(&run.simulation.machine)),
        recorder: recorder.as_ref().map(TimelineRecorder::recorder),
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
        // Other runs are too short as well. The one that is reported must not depend on which came first.
        Err(RunError::NothingReached { .. }) => {}
        Err(_) => STOP.store(true, Ordering::Relaxed),
    }
    Ok(result?)
}

/// Whether `--duration` ended the run before the tasks that the workload times had ended.
fn was_cut(workload: &Workload, outcome: &Outcome) -> bool {
    let mut metrics = workload.metrics.iter().zip(&outcome.metrics);
    let of_all = |kind| matches!(kind, &MetricKind::WallSeconds | &MetricKind::SecondsSince { .. });
    metrics.any(|(metric, found)| of_all(&metric.kind) && found.value.is_none())
}

/// Width of the terminal that shows the output, in columns. `None`: the output goes to a file or pipe.
fn terminal_width() -> Option<u16> {
    terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| width.0)
}

/// The pictures of `--picture`, one per timeline.
fn picture(comparison: &Comparison, machine: &Machine, timelines: &[Option<Timeline>]) -> String {
    let named = comparison.names().zip(timelines);
    let runs: Vec<_> =
        named.filter_map(|(name, timeline)| Some((name, timeline.as_ref()?))).collect();
    if runs.is_empty() {
        return String::new();
    }
    let (seed, width) = (comparison.seed_of(0), terminal_width());
    format!("\n{}", roost_report::picture(machine, &runs, seed, width, look::colours()))
}

/// The text that is printed: one number (`--metric`), or all `comparisons`. `several` is set if these cover more than
/// one machine or workload.
fn render(
    args: &CompareArgs,
    comparisons: &[Comparison],
    several: bool,
    counted: Option<&str>,
) -> Result<String, Error> {
    if let (Some(name), Some(comparison)) = (&args.metric, comparisons.first()) {
        let number = roost_report::one(comparison, name);
        return number
            .map(|number| format!("{number}\n"))
            .map_err(|error| Error::Usage(format!("--metric {name}: {error}")));
    }
    let width = terminal_width();
    let each = |render: &dyn Fn(&Comparison) -> String| {
        comparisons.iter().map(render).collect::<Vec<_>>().join("\n")
    };
    Ok(match args.format {
        Format::Json if several => roost_report::json_of_several(comparisons),
        Format::Json => each(&roost_report::json),
        Format::Csv if args.counters => {
            roost_report::csv(comparisons) + &roost_report::csv_counters(comparisons)
        }
        Format::Csv => roost_report::csv(comparisons),
        Format::Table if several && !args.counters => {
            roost_report::table_of_several(comparisons, width)
        }
        Format::Mmtests => each(&|comparison| {
            roost_report::mmtests(comparison) + &counters(args, comparison, width, counted)
        }),
        Format::Table => each(&|comparison| {
            roost_report::table(comparison, width) + &counters(args, comparison, width, counted)
        }),
    })
}

/// The counters that `--counters` adds to tables.
fn counters(
    args: &CompareArgs,
    comparison: &Comparison,
    width: Option<u16>,
    counted: Option<&str>,
) -> String {
    let mut out = String::new();
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
