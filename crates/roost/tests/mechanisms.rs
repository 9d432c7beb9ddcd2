//! Each mechanism acts: its counter moves in a short run. A run without the mechanism does not have the counter.

use roost_fair::mechanisms;
use roost_simulate::{Control, Outcome};

mod common;
use common::booted;

/// Some mechanisms act when tasks start.
fn run(scheduler: &str, machine: &str, workload: &str, ms: u64) -> Outcome {
    booted(machine, workload, scheduler, Some(ms)).run(Control::new(1)).expect("it ends")
}

/// How often a mechanism acted. `None`: the run does not have its counters.
fn acted(mechanism: &str, outcome: &Outcome) -> Option<f64> {
    let known = mechanisms().iter().find(|known| known.name == mechanism).expect("a mechanism");
    let value = |name: &&str| outcome.counters.iter().find(|(other, _)| other == name);
    known.acted.iter().map(|name| value(name).map(|(_, value)| value)).sum()
}

#[test]
fn each_mechanism_acts_where_it_is_meant_to() {
    let two_nodes = "node:2 l3:2 core:4 pu:1";
    for (mechanism, without, with, workload, ms) in [
        (
            "numa-imbalance",
            "5.16+no-numa-imbalance",
            "5.16+numa-imbalance-merged",
            "stream:threads=4",
            100,
        ),
        ("sis-util", "5.19", "5.19+sis-util", "netperf-tcp-rr:clients=16", 50),
        ("llc-imbalance", "7.2", "7.2+llc-imbalance", "iperf3:noise=4", 400),
        ("cling", "5.2", "5.2+cling", "settle", 8_000),
        ("consolidate", "3.9", "3.9+consolidate", "settle", 1_000),
    ] {
        let [off, on] = [without, with].map(|version| {
            acted(mechanism, &run(&format!("fair@{version}"), two_nodes, workload, ms))
        });
        assert_eq!(off, None, "{mechanism} is off");
        assert!(on > Some(0.0), "{mechanism} never acted: {on:?}");
    }
}
