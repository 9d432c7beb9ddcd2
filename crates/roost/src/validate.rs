//! `roost validate`: compares the simulation with the real kernel.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rayon::prelude::*;
use roost_engine::Time;
use roost_machine::Machine;
use roost_measure::{Replay, observe_named};
use roost_real::guest::{self, Lane};
use roost_real::{Measured, Measurement, RealError, RealScheduler, Workload};
use roost_report::{HtmlFile, Input};
use roost_simulate::{SchedulerSpec, SpecError};
use roost_validate::tolerance::{FAIR_BARS, PROGRAM_BARS};
use roost_validate::{Observation, Scenario, Suite, Verdict, compare, simulate, window_ns};
use roost_vm::{Cache, GuestSpec};
use serde::{Deserialize, Serialize};

use crate::args::{ValidateArgs, ValidateFormat};
use crate::build;
use crate::error::{Error, print};
use crate::look;
use crate::progress;
use crate::vm;
use crate::workloads;

/// The machines that are validated if none is named.
const MACHINES: [&str; 3] = ["2n2l4c", "1s2n4l2c", "2n2l2c2t"];

/// Runs of each scenario on the real kernel if `--repeat` is not given.
const RUNS: u32 = 10;

/// What is validated if nothing else is asked for.
pub const DEFAULT_SCHEDULER: &str = "fair@7.2";

/// Arguments of the guest's kernel. The model has no automatic task groups, so the guest has none either.
pub(crate) const KERNEL_ARGUMENTS: &str = "noautogroup";

/// An instruction takes 2 to the power of this number, in ns. 0 makes the fastest CPUs that `--exact` can emulate.
const INSTRUCTION_SHIFT: u8 = 0;

/// Size of each CPU's trace buffer, in KiB. A scenario leaves a few hundred KiB.
const STREAM_KIB: u32 = 4096;

/// Number of scenarios that share a boot. Few boots are needed, and all CPUs of the host still have work.
const SCENARIOS_A_BOOT: usize = 6;

/// Real time that one run may take. It takes about 10 s on an idle host.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Simulated runs of each scenario. They are cheap, so there are enough of them that only the real side has noise.
const SIMULATED_RUNS: u64 = 40;

/// Set by Ctrl-C and SIGTERM.
pub(crate) static STOP: AtomicBool = AtomicBool::new(false);

/// The scheduler `name` in the simulation, if a guest has it too.
pub(crate) fn of_both_sides(name: &str) -> Result<SchedulerSpec, Error> {
    let lacks = |what: &str| {
        Error::Usage(format!(
            "--scheduler {name}: {what}; both sides have fair@VERSION and roost, with settings after +, and the \
             programs of sched_ext schedulers"
        ))
    };
    if name.starts_with("scx:") {
        return Err(lacks("a guest has no program that loads a bare object"));
    }
    match SchedulerSpec::parse(name) {
        Ok(SchedulerSpec::Fair { rule: Some(_), .. }) => Err(lacks("a kernel takes no +policy")),
        Ok(scheduler) => Ok(scheduler),
        Err(SpecError::NoModel(_) | SpecError::KernelHere(_)) => {
            Err(lacks("neither the simulation nor PATH has it"))
        }
        Err(error) => Err(error.into()),
    }
}

/// Observations of the real kernel, by machine and scenario; one per repeat.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Real {
    /// The kernel's release.
    release: String,
    /// The scheduler that ran.
    scheduler: String,
    observations: BTreeMap<String, BTreeMap<String, Vec<Observation>>>,
}

impl Real {
    fn of(&self, machine: &Machine, scenario: &Scenario) -> Result<&[Observation], Error> {
        let found = self.observations.get(&machine.name).and_then(|all| all.get(scenario.name));
        found.map(Vec::as_slice).ok_or_else(|| {
            let (scenario, machine) = (scenario.name, &machine.name);
            let recorded = self.recorded();
            Error::Usage(format!(
                "--from: the file has no observation of {scenario} on {machine}; {recorded}, or leave out --from to \
                 measure all"
            ))
        })
    }

    /// What the file has, as advice. Machines with the same scenarios stand together.
    fn recorded(&self) -> String {
        let mut alike: BTreeMap<Vec<&str>, Vec<&str>> = BTreeMap::new();
        for (machine, scenarios) in &self.observations {
            let names = scenarios.keys().map(String::as_str).collect();
            alike.entry(names).or_default().push(machine);
        }
        let listed = alike.iter().map(|(scenarios, machines)| {
            format!("{} on {}", scenarios.join(", "), machines.join(", "))
        });
        let listed: Vec<String> = listed.collect();
        if listed.is_empty() {
            return "it has none at all".to_owned();
        }
        format!("it has {}: name these with --scenario and --machine", listed.join("; "))
    }
}

/// Validates what `args` asks for.
pub fn run(args: &ValidateArgs) -> Result<(), Error> {
    if let Some(wanted) = &args.workloads {
        return workloads::run(args, wanted);
    }
    let scheduler = of_both_sides(&args.scheduler)?;
    let scenarios = chosen(&args.scenario)?;
    let names = match args.machine.as_slice() {
        [] => MACHINES.to_vec(),
        given => given.iter().map(String::as_str).collect(),
    };
    let machines = names.iter().map(|name| Ok(Arc::new(roost_machine::resolve(name)?)));
    let machines = machines.collect::<Result<Vec<_>, Error>>()?;
    for machine in &machines {
        scenarios.iter().try_for_each(|scenario| scenario.check(machine))?;
    }
    let html = args.html.as_deref().map(HtmlFile::create).transpose()?;
    // An error means that a handler is set already, which only happens in tests.
    let _ = ctrlc::set_handler(|| STOP.store(true, Ordering::Relaxed));
    let mut real = match &args.from {
        Some(file) => read(file, &args.scheduler)?,
        None => measure(args, &scheduler, &machines, &scenarios)?,
    };
    real.observations
        .values_mut()
        .flat_map(BTreeMap::values_mut)
        .flatten()
        .for_each(Observation::drop_zeros);
    if let Some(file) = &args.save {
        write(file, &real)?;
    }
    let seeds: Vec<u64> = (0..SIMULATED_RUNS).map(|run| args.seed.wrapping_add(run)).collect();
    let pairs = machines.iter().flat_map(|machine| scenarios.iter().map(move |one| (machine, one)));
    let pairs: Vec<_> = pairs.collect();
    // What is missing is told before anything is simulated.
    pairs.iter().try_for_each(|(machine, scenario)| real.of(machine, scenario).map(drop))?;
    let agreements = pairs
        .par_iter()
        .map(|(machine, scenario)| {
            let observed = real.of(machine, scenario)?;
            let window = mean_window(observed);
            let simulated = simulate(machine, scenario, &scheduler, &window, &seeds, &STOP)?;
            Ok(compare(scenario.name, &machine.name, &simulated, observed))
        })
        .collect::<Result<Vec<_>, Error>>()?;
    let bars = if scheduler.is_program() { PROGRAM_BARS } else { FAIR_BARS };
    let suite = Suite { scheduler: args.scheduler.clone(), bars, agreements };
    let title = shown(args, &suite, &real.release, &compared(&machines, &scenarios, &real, args)?)?;
    if let Some(html) = html {
        html.write(&roost_validate::page(&suite, &title, &look::command()))?;
    }
    match Verdict::of(&suite).holds() {
        true => Ok(()),
        false => Err(Error::Validation),
    }
}

/// What was compared: scenarios and machines with hashes of what was read, and the runs with their seeds and times.
fn compared(
    machines: &[Arc<Machine>],
    scenarios: &[Scenario],
    real: &Real,
    args: &ValidateArgs,
) -> Result<String, Error> {
    let texts: Vec<&str> = scenarios.iter().map(|scenario| scenario.text).collect();
    let names: Vec<&str> = scenarios.iter().map(|scenario| scenario.name).collect();
    let named = match names.len() == roost_validate::scenarios().len() {
        true => format!("all {} scenarios", names.len()),
        false => format!("of the scenarios {}", names.join(", ")),
    };
    let read = Input::new(&named, &texts).shown();
    let pairs = machines.iter().flat_map(|machine| scenarios.iter().map(move |one| (machine, one)));
    let observed =
        pairs.map(|(machine, one)| real.of(machine, one)).collect::<Result<Vec<_>, _>>()?;
    let runs = observed.iter().map(|runs| runs.len()).max().unwrap_or(0);
    let windows = || observed.iter().map(|runs| mean_window(runs));
    let from = windows().map(|window| window.start).min().unwrap_or(0) as f64 / 1e9;
    let to = windows().map(|window| window.end).max().unwrap_or(0) as f64 / 1e9;
    let (first, last) = (args.seed, args.seed.wrapping_add(SIMULATED_RUNS - 1));
    let machines = machines.iter().map(|machine| Input::new(&machine.name, &**machine).shown());
    Ok(format!(
        "{read} on {}\neach: {SIMULATED_RUNS} simulated runs, seeds {first} to {last}, beside {runs} in guests; \
         measured from {from:.2} to {to:.2} s",
        machines.collect::<Vec<_>>().join(", ")
    ))
}

/// Prints the suite. Returns its title.
fn shown(
    args: &ValidateArgs,
    suite: &Suite,
    kernel: &str,
    compared: &str,
) -> Result<String, Error> {
    let (scheduler, roost) = (&suite.scheduler, build::this().shown());
    let title = format!("Linux {kernel} and {scheduler}, roost {roost}");
    print(&match args.format {
        ValidateFormat::Table => {
            let table = roost_validate::table(suite, args.details);
            let beside = match suite.bars == PROGRAM_BARS {
                true => format!("the same under Linux {kernel}"),
                false => format!("Linux {kernel}"),
            };
            format!(
                "roost {roost}: simulated {scheduler} beside {beside} in guests\n{compared}\n\n{table}"
            )
        }
        ValidateFormat::Csv => roost_validate::csv(suite),
        ValidateFormat::Json => roost_validate::json(suite),
        ValidateFormat::Markdown => roost_validate::markdown(suite, &title),
    })?;
    Ok(title)
}

/// The part of the run that was observed, averaged over the runs of a scenario.
fn mean_window(observed: &[Observation]) -> Range<u64> {
    let mean = |of: &dyn Fn(&Observation) -> u64| {
        observed.iter().map(of).sum::<u64>() / (observed.len() as u64).max(1)
    };
    mean(&|one| one.window_ns.start)..mean(&|one| one.window_ns.end)
}

fn chosen(names: &[String]) -> Result<Vec<Scenario>, Error> {
    match names {
        [] => Ok(roost_validate::scenarios().to_vec()),
        names => {
            Ok(names.iter().map(|name| roost_validate::scenario(name)).collect::<Result<_, _>>()?)
        }
    }
}

/// Runs every scenario on every machine in guests. As many guests run at once as the host has CPUs.
fn measure(
    args: &ValidateArgs,
    simulated: &SchedulerSpec,
    machines: &[Arc<Machine>],
    scenarios: &[Scenario],
) -> Result<Real, Error> {
    let scheduler = RealScheduler::parse(&args.scheduler)?.as_simulated();
    let kernel = simulated.kernel();
    let cache = Cache::of_user()?;
    let boots: Vec<_> = machines
        .iter()
        .flat_map(|machine| scenarios.chunks(SCENARIOS_A_BOOT).map(move |some| (machine, some)))
        .collect();
    let progress = progress::of_runs(boots.len() as u64);
    let results: Vec<Result<_, Error>> = boots
        .par_iter()
        .map(|(machine, scenarios)| {
            let booted = boot(args, (&scheduler, kernel), &cache, machine, scenarios)?;
            progress.inc(1);
            Ok(booted)
        })
        .collect();
    progress.finish_and_clear();
    let mut real = Real { scheduler: args.scheduler.clone(), ..Real::default() };
    for (result, (machine, scenarios)) in results.into_iter().zip(&boots) {
        let (release, observations) = result?;
        real.release = release;
        let of_machine = real.observations.entry(machine.name.clone()).or_default();
        for (scenario, observations) in scenarios.iter().zip(observations) {
            of_machine.insert(scenario.name.to_owned(), observations);
        }
    }
    Ok(real)
}

/// One boot with exact time. Returns the kernel's release, and the observations of each scenario.
fn boot(
    args: &ValidateArgs,
    (scheduler, kernel): (&RealScheduler, &str),
    cache: &Cache,
    machine: &Machine,
    scenarios: &[Scenario],
) -> Result<(String, Vec<Vec<Observation>>), Error> {
    let mut spec = GuestSpec::new(machine);
    spec.given = vm::given(&args.pieces);
    spec.given.kernel.get_or_insert_with(|| kernel.to_owned());
    spec.kernel_arguments = KERNEL_ARGUMENTS.to_owned();
    spec.instruction_shift = INSTRUCTION_SHIFT;
    spec.stop = &STOP;
    let workload = |scenario: &Scenario| -> Result<Workload, Error> {
        let duration = scenario.workload()?.duration_ns.unwrap_or_default();
        Ok(Workload::of_rt_app(scenario.name, scenario.text, window_ns(duration))?)
    };
    let workloads = scenarios.iter().map(workload).collect::<Result<Vec<_>, _>>()?;
    let repeat = args.repeat.unwrap_or(RUNS);
    let measurements: Vec<Measurement<'_>> = workloads
        .iter()
        .flat_map(|workload| {
            (0..repeat).map(move |repeat| Measurement {
                workload,
                scheduler,
                seed: args.seed.wrapping_add(u64::from(repeat)),
                stream_kib: Some(STREAM_KIB),
            })
        })
        .collect();
    let lane = Lane { exact: true, timeout: TIMEOUT };
    let mut results = Vec::with_capacity(measurements.len());
    guest::measure(cache, &spec, &lane, &measurements, &mut |result| {
        results.push(result);
        Ok(())
    })?;
    let release = results.first().map(|result| result.measured.release()).transpose()?;
    let mut observations = Vec::new();
    for (scenario, results) in scenarios.iter().zip(results.chunks(repeat as usize)) {
        let of_one =
            results.iter().map(|result| observe(scenario, &result.measured, &spec.machine));
        observations.push(of_one.collect::<Result<_, _>>()?);
    }
    Ok((release.unwrap_or_default(), observations))
}

fn observe(
    scenario: &Scenario,
    measured: &Measured,
    machine: &Machine,
) -> Result<Observation, Error> {
    let workload = scenario.workload()?;
    let tasks: Vec<&str> = workload.templates.iter().map(|task| task.name.as_str()).collect();
    let capture = measured.capture()?;
    let replay = Replay::new(&capture, machine).map_err(RealError::from)?;
    let from = Time(replay.end().ns().saturating_sub(measured.elapsed_ns));
    let observed = observe_named(&replay, machine, &tasks, from).map_err(RealError::from)?;
    let lost = replay.notes().lost_events;
    if lost > 0 {
        return Err(Error::Usage(format!("{}: the trace lacks {lost} events", scenario.name)));
    }
    let mut counters = Vec::new();
    measured
        .for_each(machine, &mut |name, value| counters.push((name.to_owned(), value as f64)))?;
    measured.for_each_own(&mut |name, value| counters.push((name.to_owned(), value as f64)))?;
    let counters = counters.iter().map(|(name, value)| (name.as_str(), *value));
    Ok(Observation::new(measured.window_ns()?, &observed, counters, &tasks))
}

fn read(file: &Path, scheduler: &str) -> Result<Real, Error> {
    let wrong = |problem: String| Error::Usage(format!("{}: {problem}", file.display()));
    let text = std::fs::read_to_string(file)
        .map_err(|error| wrong(format!("{error}; write one with `roost validate --save`")))?;
    let real: Real = serde_json::from_str(&text)
        .map_err(|error| wrong(format!("not written by --save: {error}")))?;
    match real.scheduler == scheduler {
        true => Ok(real),
        false => {
            let observed = &real.scheduler;
            Err(wrong(format!("it has observations of {observed}: add --scheduler {observed}")))
        }
    }
}

/// Writes to a temporary file, then renames it. If that fails, an old file stays whole.
pub(crate) fn write(file: &Path, real: &impl Serialize) -> Result<(), Error> {
    let wrong = |error: std::io::Error| Error::Usage(format!("{}: {error}", file.display()));
    let text = serde_json::to_string(real).map_err(|error| wrong(error.into()))?;
    let beside = file.with_extension("part");
    std::fs::write(&beside, text + "\n").map_err(wrong)?;
    std::fs::rename(&beside, file).map_err(wrong)
}
