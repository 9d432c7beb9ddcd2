//! This project's scheduler, in the form that is loaded into kernels, on simulated machines.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use roost_simulate::{Control, Outcome, Simulation};

const MS: u64 = 1_000_000;

fn run(machine: &str, workload: &str, ms: u64, scheduler: &str) -> Outcome {
    let simulation = Simulation::named(machine, workload, Some(ms * MS), scheduler).unwrap();
    simulation.run(Control::new(1)).unwrap()
}

#[test]
fn it_schedules_machines_of_any_shape() {
    for machine in ["node:1 l3:1 core:1 pu:1", "2n2l4c", "1s2n4l2c", "2n2l2c2t", "zen3-2s"] {
        let outcome = run(machine, "hackbench:groups=2,loops=10", 2000, "roost");
        assert!(outcome.metrics[0].value.is_some(), "{machine}: {:?}", outcome.metrics);
        assert!(outcome.counter("running_calls") > 80.0, "{machine}");
    }
}

#[test]
fn it_uses_the_whole_machine() {
    let outcome = run("2n2l4c", "hackbench:groups=4", 100, "roost");
    let by_llc = &outcome.run_time.llc_ns;
    let all: u64 = by_llc.iter().sum();
    assert!(by_llc.iter().all(|&llc| llc * 8 > all), "{by_llc:?}");
}

#[test]
fn the_machine_and_each_llc_are_looked_at_ten_times_a_second() {
    let simulation = Simulation::named("2n2l4c", "coremark:threads=4", Some(1000 * MS), "roost");
    let simulation = simulation.unwrap();
    let outcome = simulation.run(Control::new(1)).unwrap();
    // Counting begins when the benchmark has warmed up.
    let counted_ns = outcome.elapsed_ns - simulation.workload.measured_from_ns;
    let looks = counted_ns as f64 / (100 * MS) as f64;
    let calls = outcome.counter("timer_calls");
    // Each of the five timers may have one check outside of the counted time, because an LLC's timer starts when a task
    // first runs there.
    assert!((calls - 5.0 * looks).abs() <= 5.0, "{calls} calls, expected about 5 times {looks}");
}

#[test]
fn a_run_is_the_same_every_time() {
    let once = || format!("{:?}", run("2n2l2c2t", "hackbench:groups=4", 50, "roost"));
    assert_eq!(once(), once());
}

/// If tasks never sleep, each turn ends with its slice, at a tick of 4 ms at the earliest.
#[test]
fn settings_reach_the_program() {
    let slices = |scheduler| {
        let outcome = run("node:1 l3:1 core:2 pu:1", "coremark:threads=8", 500, scheduler);
        outcome.counter("enqueue_calls")
    };
    let (long, short) = (slices("roost+slice-us=50000"), slices("roost+slice-us=1000"));
    assert!(short > 3.0 * long, "{short} and {long} slices");
}

#[test]
fn what_it_is_told_fits_machines_of_512_cpus() {
    let outcome = run("node:4 l3:8 core:8 pu:2", "hackbench:groups=16,loops=2", 1000, "roost");
    assert!(outcome.counter("select_cpu_calls") > 1000.0);
}

/// Eight threads leave a node at the same tick, because their process settles on the other one. There each of the
/// eight LLCs has a thread already. Two threads an LLC, on cores of their own, are then as even as can be.
#[test]
fn threads_that_leave_a_node_together_spread_over_the_llcs_of_the_other() {
    let simulation =
        Simulation::named("zen3-2s", "coremark:threads=16", Some(10_000 * MS), "roost").unwrap();
    let outcome = simulation.run(Control::new(1)).unwrap();
    assert!(outcome.counter("migrations_node") >= 8.0, "nothing settles");
    let settled = &outcome.run_time.llc_ns[8..];
    let all: u64 = settled.iter().sum();
    assert!(settled.iter().all(|&llc| llc * 9 > all && llc * 7 < all), "{settled:?}");
}
