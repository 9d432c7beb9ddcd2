//! `roost validate --workloads`: compares simulated benchmarks with the programs that they stand for.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rayon::prelude::*;
use roost_engine::RunError;
use roost_machine::Machine;
use roost_real::guest::{self, Lane};
use roost_real::{Measured, Measurement, RealError, RealScheduler, Workload};
use roost_simulate::SchedulerSpec;
use roost_validate::ValidateError;
use roost_validate::workloads::{self, Comparison, Counted, Operation, Title};
use roost_vm::{Cache, GuestSpec};
use serde::{Deserialize, Serialize};

use crate::args::{ValidateArgs, ValidateFormat};
use crate::build;
use crate::error::{Error, print};
use crate::progress;
use crate::validate::{KERNEL_ARGUMENTS, STOP, of_both_sides};
use crate::vm;

/// Two CPUs that share a cache: as many as small hosts have, so that both run at the same time.
const MACHINE: &str = "node:1 l3:1 core:2 pu:1";

/// Runs of each program if `--repeat` is not given.
const RUNS: u32 = 5;

/// Simulated runs of each workload.
const SIMULATED_RUNS: u64 = 5;

/// Real time that one run may take. On a host with two idle CPUs it takes 5 to 15 s.
const TIMEOUT: Duration = Duration::from_secs(600);

/// The status with which a workload's script ends if its program is not installed.
const MISSING: i32 = 127;

/// What programs did in guests.
#[derive(Debug, Serialize, Deserialize)]
struct Programs {
    /// The kernel's release.
    release: String,
    /// The scheduler that ran.
    scheduler: String,
    /// The machine.
    machine: String,
    /// By workload: the runs, or why there are none.
    runs: BTreeMap<String, Result<Vec<Counted>, String>>,
}

/// Compares the workloads `wanted`, or all.
pub fn run(args: &ValidateArgs, wanted: &[String]) -> Result<(), Error> {
    let scheduler = of_both_sides(&args.scheduler)?;
    let specs: Vec<&str> = match wanted {
        [] => workloads::WORKLOADS.to_vec(),
        some => some.iter().map(String::as_str).collect(),
    };
    let names = |specs: &[&str]| specs.iter().try_for_each(|spec| Operation::of(spec).map(drop));
    names(&specs)?;
    let [name] = match args.machine.as_slice() {
        [] => [MACHINE],
        [one] => [one.as_str()],
        _ => return Err(Error::Usage("--workloads compares on one machine: give one".into())),
    };
    let machine = Arc::new(roost_machine::resolve(name)?);
    // An error means that a handler is set already, which only happens in tests.
    let _ = ctrlc::set_handler(|| STOP.store(true, std::sync::atomic::Ordering::Relaxed));
    let programs = match &args.from {
        Some(file) => read(file, &args.scheduler, name)?,
        None => measure(args, &scheduler, &machine, &specs)?,
    };
    let seeds: Vec<u64> = (0..SIMULATED_RUNS).map(|run| args.seed.wrapping_add(run)).collect();
    let comparisons = specs
        .par_iter()
        .map(|spec| {
            let real = programs.of(spec)?;
            let simulated = workloads::simulated(&machine, spec, &scheduler, &seeds, &STOP);
            let compared = Comparison::new(spec, &simulated.map_err(failed)?, real);
            Ok(compared?)
        })
        .collect::<Result<Vec<_>, Error>>()?;
    show(args, &programs, &comparisons)?;
    let holds = |one: &Comparison| one.rows.is_ok() && one.agreeing().0 == one.agreeing().1;
    match comparisons.iter().all(holds) {
        true => Ok(()),
        false => Err(Error::Validation),
    }
}

fn failed(error: ValidateError) -> Error {
    match error {
        ValidateError::RunOf { source: RunError::Stopped(_), .. } => Error::Interrupted,
        error => Error::Scenario(error),
    }
}

fn show(args: &ValidateArgs, programs: &Programs, compared: &[Comparison]) -> Result<(), Error> {
    let (kernel, scheduler) = (&programs.release, &programs.scheduler);
    let (roost, machine) = (build::this().shown(), &programs.machine);
    let title = Title { roost: &roost, kernel, scheduler, machine };
    print(&match args.format {
        ValidateFormat::Table => {
            let table = workloads::table(compared);
            format!(
                "roost {roost}: simulated {scheduler} on {machine} beside Linux {kernel} in a guest\n\n{table}"
            )
        }
        ValidateFormat::Csv => workloads::csv(compared),
        ValidateFormat::Json => workloads::json(compared, title),
        ValidateFormat::Markdown => workloads::markdown(compared, title),
    })
}

impl Programs {
    fn of(&self, spec: &str) -> Result<Result<&[Counted], String>, Error> {
        let runs = self.runs.get(spec).ok_or_else(|| {
            let recorded: Vec<&str> = self.runs.keys().map(String::as_str).collect();
            Error::Usage(format!(
                "--from: the file has no run of {spec}; it has {}: name these with --workloads, or leave out --from to \
                 measure all",
                recorded.join(" ")
            ))
        })?;
        Ok(runs.as_ref().map(Vec::as_slice).map_err(String::clone))
    }
}

/// Runs every program in guests, one boot each.
fn measure(
    args: &ValidateArgs,
    simulated: &SchedulerSpec,
    machine: &Machine,
    specs: &[&str],
) -> Result<Programs, Error> {
    let scheduler = RealScheduler::parse(&args.scheduler)?.as_simulated();
    let repeat = args.repeat.unwrap_or(RUNS);
    let cache = Cache::of_user()?;
    let mut spec = GuestSpec::new(machine);
    spec.given = vm::given(&args.pieces);
    spec.given.kernel.get_or_insert_with(|| simulated.kernel().to_owned());
    spec.kernel_arguments = KERNEL_ARGUMENTS.to_owned();
    spec.stop = &STOP;
    let progress = progress::of_runs(specs.len() as u64 * u64::from(repeat));
    let mut programs = Programs {
        release: String::new(),
        scheduler: args.scheduler.clone(),
        machine: machine.name.clone(),
        runs: BTreeMap::new(),
    };
    for name in specs {
        let workload = Workload::resolve(name, workloads::duration_ns(name)?)?.counting_calls();
        let measurement = |run: u32| Measurement {
            workload: &workload,
            scheduler: &scheduler,
            seed: args.seed.wrapping_add(u64::from(run)),
            stream_kib: None,
        };
        let measurements: Vec<_> = (0..repeat).map(measurement).collect();
        let lane = Lane { exact: false, timeout: TIMEOUT };
        let mut runs = Vec::new();
        let ended = guest::measure(&cache, &spec, &lane, &measurements, &mut |result| {
            programs.release = result.measured.release()?;
            runs.push(counted(name, &workload, &result.measured, &spec.machine)?);
            progress.inc(1);
            Ok(())
        });
        let runs = match ended {
            Ok(()) => Ok(runs),
            Err(RealError::Workload { status: MISSING, reason, .. }) => Err(reason),
            Err(error @ (RealError::Workload { .. } | RealError::Failed(_))) => {
                Err(error.to_string())
            }
            Err(error) => return Err(error.into()),
        };
        programs.runs.insert((*name).to_owned(), runs);
        // A program takes a minute, so those that have run are kept whatever happens to the next.
        if let Some(file) = &args.save {
            crate::validate::write(file, &programs)?;
        }
    }
    progress.finish_and_clear();
    Ok(programs)
}

/// What the program of the workload `name` did in a run.
fn counted(
    name: &str,
    workload: &Workload,
    measured: &Measured,
    machine: &Machine,
) -> Result<Counted, RealError> {
    let unusable = |problem: String| RealError::Failed(format!("{name}: {problem}"));
    let operation = Operation::of(name).map_err(|error| unusable(error.to_string()))?;
    let tally = measured.tally(machine)?;
    let outcome = measured.outcome(workload, machine)?;
    let cpu_ns = tally.cpu_ns as f64;
    let operations = match tally.calls {
        Some(calls) => Some(calls as f64),
        None => operation.count(&outcome.metrics, workloads::DURATION_NS as f64 / 1e9, cpu_ns),
    };
    let operations = operations
        .filter(|count| *count > 0.0)
        .ok_or_else(|| unusable(format!("the program did no {}; measure again", operation.name)))?;
    Ok(Counted {
        operations,
        cpu_ns,
        wakeups: tally.wakeups as f64,
        switches: tally.switches as f64,
        sleeps: tally.sleeps as f64,
        preemptions: tally.preemptions as f64,
        migrations: tally.migrations as f64,
    })
}

fn read(file: &Path, scheduler: &str, machine: &str) -> Result<Programs, Error> {
    let wrong = |problem: String| Error::Usage(format!("{}: {problem}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| {
        wrong(format!("{error}; write one with `roost validate --workloads --save FILE`"))
    })?;
    let programs: Programs = serde_json::from_str(&text)
        .map_err(|error| wrong(format!("not written by --workloads --save: {error}")))?;
    if programs.scheduler != scheduler {
        let observed = &programs.scheduler;
        return Err(wrong(format!("it has runs of {observed}: add --scheduler {observed}")));
    }
    if programs.machine != machine {
        let observed = &programs.machine;
        return Err(wrong(format!("it has runs on {observed}: add --machine '{observed}'")));
    }
    Ok(programs)
}
