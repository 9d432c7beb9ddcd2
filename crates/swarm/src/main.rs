//! `roost-swarm SEED SECONDS RUNS [faults=on|off] [scheduler=roost] [schedules=N]` checks random cases, starting with
//! `SEED`: `RUNS` cases unless that is 0, else until N schedules were seen, else for `SECONDS`. Cases run side by side,
//! one on each CPU of the host.

use std::process::{ExitCode, exit};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use indicatif::ProgressBar;
use roost_swarm::{Case, Request, Swarm, check, schedule_of, smallest};

/// Number of smaller cases to try after a failure.
const TRIES: usize = 300;

/// The status of shells for what Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// Whether Ctrl-C was pressed.
static STOP: AtomicBool = AtomicBool::new(false);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let request = match Request::parse(&words) {
        Ok(request) => request,
        Err(usage) => {
            eprintln!("roost-swarm: {usage}");
            return ExitCode::from(2);
        }
    };
    // Panics are reported once, together with their case.
    std::panic::set_hook(Box::new(|_| {}));
    // This fails only if a handler is set already.
    let _ = ctrlc::set_handler(interrupted);
    // It is drawn only if standard error is a terminal.
    let progress = ProgressBar::new_spinner();
    progress.enable_steady_tick(Duration::from_millis(200));
    let swarm = Mutex::new(Swarm::new(request));
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        (0..workers).for_each(|_| drop(scope.spawn(|| work(&swarm, &progress))));
    });
    progress.finish_and_clear();
    let swarm = locked(&swarm);
    println!("{swarm}");
    match swarm.passed() {
        false => ExitCode::FAILURE,
        true if STOP.load(Ordering::Relaxed) => ExitCode::from(INTERRUPTED),
        true => ExitCode::SUCCESS,
    }
}

/// The first Ctrl-C lets the cases that run end, the second one does not wait for them.
fn interrupted() {
    if STOP.swap(true, Ordering::Relaxed) {
        exit(INTERRUPTED.into());
    }
}

/// What is counted stays right if a worker panics.
fn locked(swarm: &Mutex<Swarm>) -> MutexGuard<'_, Swarm> {
    swarm.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Checks one case after the other.
fn work(swarm: &Mutex<Swarm>, progress: &ProgressBar) {
    while !STOP.load(Ordering::Relaxed) {
        let Some(case) = locked(swarm).next_case() else { return };
        let schedule = schedule_of(&case);
        if let Err(wrong) = &schedule {
            report(&case, wrong, progress);
        }
        let mut swarm = locked(swarm);
        swarm.count(&case, schedule.ok());
        progress.set_message(swarm.to_string());
    }
}

fn report(case: &Case, wrong: &str, progress: &ProgressBar) {
    let print = |text: String| progress.suspend(|| println!("{text}"));
    print(format!("seed {}: {wrong}\n{}", case.seed, case.repeat()));
    let smallest = smallest(case, TRIES, |case| {
        !STOP.load(Ordering::Relaxed) && check(case).is_err_and(|other| kind(&other) == kind(wrong))
    });
    let wrong = check(&smallest).err().unwrap_or_default();
    print(format!("the smallest that was found: {wrong}\n{smallest}\n"));
}

/// The message of a failure without its numbers. A smaller case must fail with the same message.
fn kind(wrong: &str) -> String {
    wrong.chars().filter(|c| !c.is_ascii_digit()).collect()
}
