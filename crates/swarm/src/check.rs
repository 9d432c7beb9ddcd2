//! Runs a case under the observer, and reports claims that do not hold.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use roost_engine::{Control, LATEST_NS, Outcome, RunError, Scheduler, Time};
use roost_fair::{Fair, Start};
use roost_machine::Machine;
use roost_scx::Scx;
use roost_settings::Kind;
use roost_simulate::SchedulerSpec;
use roost_workload::{Op, Workload};

use crate::case::Case;
use crate::disturber::{Disturber, unsteady};
use crate::patience::{Events, Patience};
use crate::promises::Promises;
use crate::watch::{Expected, Wait, Watch, Watching};

/// The longest cases have some millions of events.
const MOST_EVENTS: u64 = 200_000_000;

/// No hook takes more than a few milliseconds.
const HOOK: Duration = Duration::from_secs(20);

/// One of so many small cases runs twice, and is the only one whose program the simulation's verifier looks at. Each
/// takes about as long as a small run.
const RUNS_TWICE: u64 = 16;

/// What was seen of a run.
#[derive(Debug, PartialEq)]
pub struct Ran {
    /// Its outcome. `None` if the workload itself ended in a deadlock.
    pub outcome: Option<Outcome>,
    /// Its schedule ([`Watch::schedule`]).
    pub schedule: u64,
}

/// Runs the case twice, or once if it is one of most small cases. If a hook does not return, prints the command that
/// repeats the case and ends the process.
///
/// # Errors
/// The claim that did not hold, in one line.
pub fn check(case: &Case) -> Result<(), String> {
    schedule_of(case).map(|_| ())
}

/// Checks the case as [`check`] does. Returns its schedule ([`Watch::schedule`]).
///
/// # Errors
/// As [`check`].
pub fn schedule_of(case: &Case) -> Result<u64, String> {
    let machine = Arc::new(case.machine.machine().map_err(|error| error.to_string())?);
    let workload = case.workload()?;
    let one_line = |error: &dyn std::error::Error| error.to_string();
    match SchedulerSpec::parse(&case.scheduler()).map_err(|error| one_line(&error))? {
        SchedulerSpec::Fair { features, .. } => {
            let start = [Start::Running, Start::Boot, Start::DomainsRebuilt];
            let start = start[(case.seed % 3) as usize];
            let new = || Fair::new(&machine, features.clone()).starting(start);
            let version = case.version.as_deref().unwrap_or_default();
            let tick_ns = new().tick_ns();
            let expected = || {
                let promises = Promises::of(version, &case.switches, tick_ns, &machine, &workload);
                let beside = |promises: Promises| match case.background {
                    true => promises.beside_kernel_threads(),
                    false => promises,
                };
                let promises = promises.map(beside).filter(|_| !case.faults);
                Expected { promises, late_ns: late_ns(case), ..Expected::default() }
            };
            check_with(case, &machine, &workload, new, expected)
        }
        SchedulerSpec::Scx(spec) => {
            let never = AtomicBool::new(false);
            let program = spec.program(&machine, &never).map_err(|error| one_line(&error))?;
            let program = match runs_twice(case) {
                true => program,
                false => Arc::new(Arc::unwrap_or_clone(program).without_check_of_pointers()),
            };
            // Kernel threads that are bound to a CPU cannot leave it.
            let disturbed = case.faults && !case.background;
            let unsteady = if disturbed { unsteady(&machine, case.seed) } else { Vec::new() };
            let new = || {
                let scx = Scx::new(&machine, &program, spec.tick_ns);
                // The run reports the panic.
                let scx = scx.unwrap_or_else(|error| panic!("{error}"));
                match disturbed {
                    true => scx.accompanied(Box::new(Disturber::new(
                        &unsteady,
                        case.seed,
                        case.tempo(),
                    ))),
                    false => scx,
                }
            };
            let wait = Some(longest_wait(case, spec.tick_ns));
            check_with(case, &machine, &workload, new, || Expected {
                promises: None,
                wait,
                late_ns: late_ns(case),
                unsteady: unsteady.clone(),
                leaving_ns: case.tempo().longest_wait_ns,
            })
        }
    }
}

/// Whether a case runs twice, to see whether the second run is the same.
fn runs_twice(case: &Case) -> bool {
    !case.draw.small || case.seed.is_multiple_of(RUNS_TWICE)
}

/// How late an interrupt may come.
fn late_ns(case: &Case) -> u64 {
    if case.faults { LATEST_NS } else { 0 }
}

/// How long a task may wait under the shipped program (`docs/understand/live.md`): for 1.1 s, and for a slice of each
/// other task, rounded up to ticks. Its number of CPUs may be 1.
fn longest_wait(case: &Case, tick_ns: u64) -> Wait {
    let given = case.switches.iter().find_map(|switch| switch.strip_prefix("slice-us="));
    let slice_us = match roost_settings::find("slice-us").map(|setting| setting.kind) {
        Some(Kind::Number { default, .. }) => {
            given.map_or(Ok(default), str::parse).unwrap_or(default)
        }
        _ => 0,
    };
    Wait { always_ns: 1_100_000_000, each_task_ns: (slice_us * 1000).next_multiple_of(tick_ns) }
}

fn check_with<S: Scheduler>(
    case: &Case,
    machine: &Arc<Machine>,
    workload: &Workload,
    new: impl Fn() -> S,
    expected: impl Fn() -> Expected,
) -> Result<u64, String> {
    let stuck = || {
        println!(
            "seed {}: a hook of the scheduler does not return\n{}\n{case}",
            case.seed,
            case.repeat()
        );
        std::process::exit(1);
    };
    let patience = || Patience { events: MOST_EVENTS, hook: HOOK, stuck: &stuck };
    let control =
        || Control { background: case.background, faults: case.faults, ..Control::new(case.seed) };
    let run = || observe(machine, workload, control(), &new, expected(), patience());
    let first = run()?;
    if let Some(outcome) = &first.outcome {
        accounts(outcome, machine)?;
    }
    if case.duration_ms.is_none() {
        let outcome = first.outcome.as_ref().ok_or("tasks wait for ever")?;
        all_started(outcome, workload)?;
    }
    if runs_twice(case) && first != run()? {
        return Err("two runs with one seed differ".to_owned());
    }
    Ok(first.schedule)
}

/// One run under the observer. It has no outcome if the workload itself ends in a deadlock: all its tasks sleep, and
/// its operations make tasks wait for each other.
///
/// # Errors
/// A panic, a hang, an error of the run, or the observer's finding, in one line.
pub fn observe<S: Scheduler>(
    machine: &Arc<Machine>,
    workload: &Workload,
    control: Control<'_>,
    scheduler: impl FnOnce() -> S,
    expected: Expected,
    patience: Patience<'_>,
) -> Result<Ran, String> {
    patience.while_it_lasts(|events| {
        let run = || run(machine, workload, control, scheduler(), expected, events);
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| Err(panicked(&*panic)))
    })
}

fn run<S: Scheduler>(
    machine: &Arc<Machine>,
    workload: &Workload,
    control: Control<'_>,
    scheduler: S,
    expected: Expected,
    events: &Events,
) -> Result<Ran, String> {
    let watch = Watch::new(machine, workload, scheduler.tick_ns(), expected);
    let watch = Rc::new(RefCell::new(watch));
    let tracer = Box::new(Watching(Rc::clone(&watch)));
    let stop = AtomicBool::new(false);
    let control = Control { tracer: Some(tracer), stop: &stop, ..control };
    let result = roost_engine::run_observed(machine, workload, scheduler, control, |_| {
        if events.one_more() {
            stop.store(true, Ordering::Relaxed);
        }
    });
    let mut watch = watch.borrow_mut();
    match &result {
        Ok(outcome) => watch.finish(Time(outcome.elapsed_ns))?,
        Err(RunError::Deadlock { at_ns, waiting, .. }) => {
            watch.finish(Time(*at_ns))?;
            watch.nobody_is_runnable()?;
            if !workload.templates.iter().any(|template| template.program.ops.iter().any(waits)) {
                return Err(format!("{waiting} tasks sleep for ever, and none waits for another"));
            }
        }
        Err(error) => return Err(error.to_string()),
    }
    Ok(Ran { outcome: result.ok(), schedule: watch.schedule() })
}

/// Whether a task that executes this operation continues only after another task did something. Mutexes are left out,
/// because tasks hold only one at a time, and unlock it.
fn waits(op: &Op) -> bool {
    matches!(
        op,
        Op::Wait { .. } | Op::Barrier(_) | Op::Meet { .. } | Op::Receive { .. } | Op::Send { .. }
    )
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("without a message");
    format!("panic: {}", text.replace('\n', " "))
}

/// Checks that hold for the counters of any run, if the scheduler has these counters: a part does not exceed the whole,
/// and tasks did not run for longer than the CPUs existed.
///
/// # Errors
/// What does not hold, in one line.
pub fn accounts(outcome: &Outcome, machine: &Machine) -> Result<(), String> {
    let sums_within = |parts: &[&str], whole: &str| {
        let value = |name: &str| outcome.counters.iter().find(|(known, _)| known == name);
        let Some((_, all)) = value(whole) else { return Ok(()) };
        let sum: f64 = parts.iter().filter_map(|part| value(part)).map(|(_, value)| value).sum();
        if sum <= *all {
            Ok(())
        } else {
            Err(format!("counters {parts:?} make {sum}, {whole} is {all}"))
        }
    };
    sums_within(&["wakeups_prev"], "wakeups")?;
    sums_within(&["wakeups_waker_llc"], "wakeups")?;
    sums_within(&["migrations_llc", "migrations_node"], "migrations")?;
    sums_within(&["sis_domain_search"], "sis_search")?;
    sums_within(&["sis_failed"], "sis_domain_search")?;
    sums_within(&["sis_search"], "sis_scanned")?;
    sums_within(&["nr_wakeups_affine"], "nr_wakeups_affine_attempts")?;
    for (name, _) in &outcome.counters {
        let Some((level, idle)) = name.split_once(".lb_count.") else { continue };
        let part = |what: &str| format!("{level}.{what}.{idle}");
        let (balanced, failed) = (part("lb_balanced"), part("lb_failed"));
        let (no_group, no_queue) = (part("lb_nobusyg"), part("lb_nobusyq"));
        sums_within(&[&balanced, &failed], name)?;
        sums_within(&[&no_group, &no_queue], &balanced)?;
        sums_within(&[&part("lb_hot_gained")], &part("lb_gained"))?;
    }
    let there = machine.nr_cpus() as f64 * outcome.elapsed_ns as f64;
    let used = outcome.counter("run_ns");
    if used > there {
        return Err(format!("tasks ran {used} ns, CPUs had {there} ns"));
    }
    let (shared, llcs) = (outcome.counter("llcs_shared"), machine.llcs.len());
    if shared > llcs as f64 {
        return Err(format!("{shared} of {llcs} LLCs are shared"));
    }
    Ok(())
}

/// Checks that all tasks which start with the run were created.
fn all_started(outcome: &Outcome, workload: &Workload) -> Result<(), String> {
    let started: u32 = workload.start.iter().map(|&(_, count)| count).sum();
    let forks = outcome.counter("forks");
    if forks >= f64::from(started) {
        Ok(())
    } else {
        Err(format!("{forks} forks of {started} tasks"))
    }
}
