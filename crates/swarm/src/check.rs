//! Runs a case under the observer and says what does not hold.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use roost_engine::{Control, Outcome, RunError, Scheduler, Time};
use roost_fair::{Fair, Features};
use roost_machine::Machine;
use roost_workload::{Workload, rtapp};

use crate::case::Case;
use crate::watch::{Watch, Watching};

/// A run that takes longer hangs: the longest cases take a few seconds.
const DEADLINE: Duration = Duration::from_secs(120);

const NS_PER_MS: u64 = 1_000_000;

/// Runs the case twice.
///
/// # Errors
/// What did not hold, in one line.
pub fn check(case: &Case) -> Result<(), String> {
    let machine = Arc::new(roost_machine::resolve(&case.machine()).map_err(|e| e.to_string())?);
    let workload = rtapp::parse(&case.workload(), "swarm").map_err(|e| e.to_string())?;
    let workload = Workload { duration_ns: Some(case.duration_ms * NS_PER_MS), ..workload };
    let features = Features::parse(&case.scheduler()).map_err(|e| e.to_string())?;
    let run = || observe(&machine, &workload, case.seed, || Fair::new(&machine, features.clone()));
    let (first, second) = (run()?, run()?);
    if let Some(outcome) = &first {
        accounts(outcome, &machine)?;
    }
    if first != second {
        return Err("two runs with one seed differ".to_owned());
    }
    Ok(())
}

/// One run under the observer; no outcome if the workload ends in a deadlock of its own.
///
/// # Errors
/// A panic, a hang, an error of the run, or what the observer found, in one line.
pub fn observe<S: Scheduler>(
    machine: &Arc<Machine>,
    workload: &Workload,
    seed: u64,
    scheduler: impl FnOnce() -> S,
) -> Result<Option<Outcome>, String> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let (done, finished) = mpsc::channel::<()>();
        let stop = &stop;
        scope.spawn(move || {
            if finished.recv_timeout(DEADLINE) == Err(mpsc::RecvTimeoutError::Timeout) {
                stop.store(true, Ordering::Relaxed);
            }
        });
        let run = AssertUnwindSafe(|| run(machine, workload, seed, scheduler(), stop));
        let result = catch_unwind(run).unwrap_or_else(|panic| Err(panicked(&*panic)));
        drop(done);
        result
    })
}

fn run<S: Scheduler>(
    machine: &Arc<Machine>,
    workload: &Workload,
    seed: u64,
    scheduler: S,
    stop: &AtomicBool,
) -> Result<Option<Outcome>, String> {
    let watch = Watch::new(machine, workload, scheduler.tick_ns());
    let watch = Rc::new(RefCell::new(watch));
    let tracer = Box::new(Watching(Rc::clone(&watch)));
    let control = Control { seed, tracer: Some(tracer), stop, progress: &|_| {} };
    let result = roost_engine::run(machine, workload, scheduler, control);
    let end = match &result {
        Ok(outcome) => outcome.elapsed_ns,
        Err(RunError::Deadlock { at_ns, .. }) => *at_ns,
        Err(error) => return Err(error.to_string()),
    };
    watch.borrow_mut().finish(Time(end))?;
    Ok(result.ok())
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("without a message");
    format!("panic: {}", text.replace('\n', " "))
}

/// Counters that are parts of others do not exceed them, and tasks had no more time than CPUs.
fn accounts(outcome: &Outcome, machine: &Machine) -> Result<(), String> {
    let of = |name: &str| {
        let found = outcome.counters.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| *value).ok_or(format!("there is no counter {name}"))
    };
    let parts: [(&[&str], &str); 7] = [
        (&["wakeups_prev"], "wakeups"),
        (&["wakeups_waker_llc"], "wakeups"),
        (&["migrations_llc", "migrations_node"], "migrations"),
        (&["sis_domain_search"], "sis_search"),
        (&["sis_failed"], "sis_domain_search"),
        (&["sis_search"], "sis_scanned"),
        (&["nr_wakeups_affine"], "nr_wakeups_affine_attempts"),
    ];
    for (parts, whole) in parts {
        let sum = parts.iter().map(|part| of(part)).sum::<Result<f64, _>>()?;
        if sum > of(whole)? {
            return Err(format!("counters {parts:?} make {sum}, {whole} is {}", of(whole)?));
        }
    }
    let there = machine.nr_cpus() as f64 * outcome.elapsed_ns as f64;
    if of("run_ns")? > there {
        return Err(format!("tasks ran {} ns, CPUs had {there} ns", of("run_ns")?));
    }
    Ok(())
}
