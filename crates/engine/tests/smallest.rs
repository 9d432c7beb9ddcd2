//! The scheduler that the crate's documentation shows.

#![allow(clippy::unwrap_used)] // what is wrong here is a failed test

#[path = "../examples/fifo.rs"]
#[allow(dead_code)]
mod fifo;

use std::sync::Arc;

use fifo::Fifo;
use roost_engine::{Control, Outcome, run};

fn outcome(machine: &str, workload: &str, ns: Option<u64>) -> Outcome {
    let machine = Arc::new(roost_machine::resolve(machine).unwrap());
    let workload = roost_workload::resolve(workload, ns).unwrap();
    run(&machine, &workload, Fifo::default(), Control::new(1)).unwrap()
}

#[test]
fn it_is_small() {
    assert!(include_str!("../examples/fifo.rs").lines().count() <= 60);
}

#[test]
fn its_example_runs() {
    fifo::main().unwrap();
}

/// With more tasks than CPUs that always want to run, no CPU is ever idle and no task starves: 8
/// threads share 4 CPUs equally, up to a few ticks.
#[test]
fn it_keeps_cpus_busy_and_lets_everybody_run() {
    let outcome = outcome("node:1 l3:1 core:4 pu:1", "coremark:threads=8", Some(1_000_000_000));
    assert!(outcome.counter("run_ns") > 4.0 * 0.99e9, "{}", outcome.counter("run_ns"));
}
