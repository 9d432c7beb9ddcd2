//! The measured part of a run comes after its warm-up. It equals the difference between two runs with the same seed.

use std::sync::Arc;

use roost_simulate::{Control, Outcome, Simulation};

const MS: u64 = 1_000_000;

/// A run from 0 to `to_ms`, measured from `from_ms` on.
fn run(from_ms: u64, to_ms: u64) -> Outcome {
    let workload = "netperf-tcp-rr:clients=4";
    let simulation = Simulation::named("2n2l4c", workload, Some(to_ms * MS), "fair@7.2");
    let mut simulation = simulation.expect("it is understood");
    Arc::make_mut(&mut simulation.workload).measured_from_ns = from_ms * MS;
    simulation.run(Control::new(1)).expect("it runs")
}

/// Number of transactions in a run of `ms`.
fn transactions(outcome: &Outcome, ms: f64) -> f64 {
    outcome.metrics[0].value.expect("a rate") * ms / 1000.0
}

#[test]
fn metrics_counters_and_run_time_are_of_what_follows_the_warm_up() {
    let [all, before, measured] = [run(0, 40), run(0, 10), run(10, 40)];
    let expected = transactions(&all, 40.0) - transactions(&before, 10.0);
    assert!((transactions(&measured, 30.0) - expected).abs() < 1e-6);
    for name in ["wakeups", "context_switches", "run_ns", "sis_search"] {
        let expected = all.counter(name) - before.counter(name);
        assert_eq!(measured.counter(name), expected, "{name}");
    }
    let sum = |outcome: &Outcome| outcome.run_time.node_ns.iter().sum::<u64>();
    assert_eq!(sum(&measured), sum(&all) - sum(&before));
}

#[test]
fn drift_compares_the_halves_of_what_was_measured() {
    let [first, second] =
        [run(10, 25), run(25, 40)].map(|half| half.metrics[0].value.expect("one"));
    let drift = run(10, 40).metrics[0].drift.expect("both halves count");
    assert!((drift - (second / first - 1.0)).abs() < 1e-9, "{drift}, {first}, {second}");
}

#[test]
fn a_run_that_ends_before_its_warm_up_is_measured_as_a_whole() {
    assert_eq!(run(40, 40).metrics[0].value, run(0, 40).metrics[0].value);
}
