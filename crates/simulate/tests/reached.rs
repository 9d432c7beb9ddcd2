//! If the duration ends a run before it measures anything, the error names a duration that is long enough.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use roost_engine::Missing;
use roost_simulate::{Control, Outcome, RunError, Simulation};

const MS: u64 = 1_000_000;

fn run(workload: &str, duration_ns: u64) -> Result<Outcome, RunError> {
    let simulation = Simulation::named("2n2l4c", workload, Some(duration_ns), "fair@7.2").unwrap();
    simulation.measure(Control::new(1))
}

/// What the run had reached: number of tasks, and what was missing. Checks that the proposed duration is long enough.
fn unreached(workload: &str, duration_ns: u64) -> (u32, Missing) {
    let error = run(workload, duration_ns).unwrap_err();
    let RunError::NothingReached { created, missing, enough_ns, at_ns, .. } = error else {
        panic!("{workload}: {error}")
    };
    assert_eq!(at_ns, duration_ns);
    let enough_ns = enough_ns.unwrap();
    assert!(enough_ns > duration_ns && enough_ns % MS == 0, "{workload}: {enough_ns}");
    let outcome = run(workload, enough_ns).unwrap_or_else(|error| panic!("{workload}: {error}"));
    let measured = |value: Option<f64>| value.is_some_and(|value| value > 0.0);
    assert!(outcome.metrics.iter().all(|metric| measured(metric.value)), "{:?}", outcome.metrics);
    (created, missing)
}

#[test]
fn a_rate_is_never_0_because_the_run_was_too_short() {
    assert_eq!(unreached("coremark:threads=4", 1), (0, Missing::Work));
    // A thread works, but an iteration takes longer than the run.
    assert_eq!(unreached("coremark:threads=1", 2 * MS).1, Missing::Iteration);
}

/// A program that loses tasks is ended by the watchdog, after 30 s of simulated time.
#[test]
fn a_scheduler_that_would_end_a_longer_run_is_named() {
    let program = "scx:../scx/tests/data/small.bpf.o+fault=3+fault_at=0";
    let run = Simulation::named("2n2l4c", "netperf-tcp-rr:clients=8", Some(50 * MS), program);
    let error = run.unwrap().measure(Control::new(1)).unwrap_err().to_string();
    let reason = "a longer run is ended by the scheduler: small: runnable task stall: ";
    assert!(error.contains(reason), "{error}");
}

/// Each instance of sysbench has a rate of its own, and all have to reach an iteration.
#[test]
fn the_proposed_duration_does_for_all_rates() {
    assert_eq!(unreached("sysbench-oltp:instances=4,threads=8", MS).1, Missing::Work);
    // Some instances have finished transactions by then, others have not.
    assert_eq!(unreached("sysbench-oltp:instances=4,threads=8", 40 * MS).1, Missing::Part);
}

/// The file says that one of its tasks begins only after the run.
#[test]
fn a_task_of_a_file_may_have_done_nothing_beside_others() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("late.json");
    let text = r#"{ "tasks": { "a": { "run": 1000 }, "late": { "delay": 60000, "run": 1000 } } }"#;
    std::fs::write(&file, text).unwrap();
    let outcome = run(file.to_str().unwrap(), 50 * MS).unwrap();
    let rate = |task: &str| {
        let name = format!("{task} loops/s");
        outcome.metrics.iter().find(|metric| metric.name == name).unwrap().value.unwrap()
    };
    assert!(rate("a") > 0.0);
    assert_eq!(rate("late"), 0.0);
}

/// This would run for longer than anybody waits for an answer.
#[test]
fn a_run_whose_end_is_far_is_to_be_left_without_a_duration() {
    let error = run("hackbench:groups=2,loops=10000000", 5 * MS).unwrap_err().to_string();
    assert!(error.ends_with("without one, it runs to its end"), "{error}");
}

#[test]
fn nor_is_a_latency_nothing_before_the_first_wakeup() {
    assert_eq!(unreached("schbench:messages=1,workers=2", 1), (0, Missing::Work));
}

/// Two groups of 40 tasks wait at the gate for each other.
#[test]
fn nor_does_a_completion_time_that_is_cut_pass_for_a_run() {
    let (created, missing) = unreached("hackbench:groups=2", 5 * MS);
    assert!((1..80).contains(&created), "{created}");
    assert_eq!(missing, Missing::Work);
    // Once they work, only the end is missing, so the time is not known.
    let cut = run("hackbench:groups=2,loops=100000", 100 * MS).unwrap();
    assert_eq!(cut.metrics[0].value, None);
}

/// A task that never sleeps has no wakeup latency to wait for.
#[test]
fn a_task_that_never_sleeps_measures_nothing_and_is_no_error() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("hog.json");
    std::fs::write(&file, r#"{ "tasks": { "hog": { "run": -1 } } }"#).unwrap();
    let outcome = run(file.to_str().unwrap(), 10 * MS).unwrap();
    assert!(outcome.metrics.iter().all(|metric| metric.value != Some(0.0)));
}

#[test]
fn a_workload_that_gets_nowhere_is_proposed_no_duration() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("waits.json");
    let text = r#"{ "tasks": { "waits": { "lock": "m", "wait": { "ref": "c", "mutex": "m" }, "unlock": "m" } } }"#;
    std::fs::write(&file, text).unwrap();
    let error = run(file.to_str().unwrap(), MS).unwrap_err();
    assert!(error.to_string().contains("a longer duration, if any would do"), "{error}");
}

/// Forty writers share each pipe. One that is woken for its mutex while the pipe is full still waits for the mutex, and
/// wakes the next one. When it went to sleep for a page instead, 6 of these 10 runs never ended.
#[test]
fn every_task_at_a_pipe_gets_to_its_end() {
    let workload = "hackbench:groups=1,fds=40,loops=30,size=2000,mode=pipe";
    let simulation = Simulation::named("node:1 core:4 pu:1", workload, None, "fair@5.19").unwrap();
    for seed in 1..=10 {
        simulation.run(Control::new(seed)).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}
