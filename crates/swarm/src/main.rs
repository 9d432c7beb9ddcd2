//! `roost-swarm SEED SECONDS RUNS` checks random cases, starting with `SEED`, until the time or the number of runs is
//! used up (0 runs: no limit).

use std::process::ExitCode;
use std::time::{Duration, Instant};

use roost_swarm::{Case, check, smallest};

/// Number of smaller cases to try after a failure.
const TRIES: usize = 300;

fn main() -> ExitCode {
    let numbers: Result<Vec<u64>, _> = std::env::args().skip(1).map(|text| text.parse()).collect();
    let Ok([seed, seconds, runs]) = numbers.as_deref() else {
        eprintln!("roost-swarm: give three whole numbers: first seed, seconds, runs (0: no limit)");
        return ExitCode::from(2);
    };
    // Panics are reported once, together with their case.
    std::panic::set_hook(Box::new(|_| {}));
    let (start, limit) = (Instant::now(), Duration::from_secs(*seconds));
    let (mut passed, mut failed, mut next) = (0_u64, 0_u64, *seed);
    while if *runs > 0 { passed + failed < *runs } else { start.elapsed() < limit } {
        let case = Case::of(next);
        match check(&case) {
            Ok(()) => passed += 1,
            Err(wrong) => {
                failed += 1;
                report(next, &case, &wrong);
            }
        }
        next = next.wrapping_add(1);
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn report(seed: u64, case: &Case, wrong: &str) {
    println!("seed {seed}: {wrong}\n{}", case.repeat());
    let smallest =
        smallest(case, TRIES, |case| check(case).is_err_and(|other| kind(&other) == kind(wrong)));
    let wrong = check(&smallest).err().unwrap_or_default();
    println!("the smallest that was found: {wrong}\n{smallest}\n");
}

/// The message of a failure without its numbers. A smaller case must fail with the same message.
fn kind(wrong: &str) -> String {
    wrong.chars().filter(|c| !c.is_ascii_digit()).collect()
}
