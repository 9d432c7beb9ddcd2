//! An outside observer of a simulated run counts the same as the engine.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use roost_engine::{Control, Outcome, Time};
use roost_fair::{Fair, Features};
use roost_measure::{Observed, SharedObserved};

/// All ways in which tasks interact: a mutex, a barrier, forks, a changing affinity, and more work than CPUs.
const WORKLOAD: &str = r#"{
    "tasks": {
        "hog": {
            "instance": 4, "loop": HOGS,
            "phases": {
                "free": { "loop": 20, "run": 700, "sleep": 300 },
                "pinned": { "cpus": [0, 1], "run": 1500 },
                "released": { "cpus": [0, 1, 2, 3, 4, 5, 6, 7], "run": 900, "sleep": 1 }
            }
        },
        "turns": { "instance": 3, "loop": 200, "lock": "m", "run": 70, "unlock": "m", "sleep": 40 },
        "team": { "instance": 5, "loop": 60, "run": 200, "barrier": "all" },
        "parent": { "loop": 5, "fork": "child", "sleep": 2000 },
        "child": { "instance": 0, "loop": 3, "run": 100, "sleep": 100 }
    },
    "global": { "duration": DURATION, "default_policy": "SCHED_OTHER" }
}"#;

fn simulate(features: &str, shape: &str, seed: u64, duration: i32) -> (Outcome, Observed) {
    let machine = Arc::new(roost_machine::resolve(shape).unwrap());
    // With a duration, the hogs run until it ends the run.
    let hogs = if duration < 0 { "10" } else { "-1" };
    let json = WORKLOAD.replace("DURATION", &duration.to_string()).replace("HOGS", hogs);
    let workload = roost_workload::rtapp::parse(&json, "test.json").unwrap();
    let shared = SharedObserved::new(&machine);
    let control = Control { tracer: Some(shared.tracer()), ..Control::new(seed) };
    let scheduler = Fair::new(&machine, Features::parse(features).unwrap());
    let outcome = roost_engine::run(&machine, &workload, scheduler, control).unwrap();
    assert_eq!(duration == 1, outcome.elapsed_ns == 1_000_000_000, "cut off");
    let observed = shared.finish(Time(outcome.elapsed_ns));
    (outcome, observed)
}

/// The counters that both have: name, engine's value, observed value.
fn shared_counters(outcome: &Outcome, observed: &Observed) -> Vec<(String, u64, u64)> {
    let engine: BTreeMap<&str, f64> =
        outcome.counters.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let mut counters = Vec::new();
    observed.for_each(&mut |name, value| {
        counters.push((name.to_owned(), engine[name] as u64, value));
    });
    counters
}

/// All counters must be equal, with one exception. Since Linux 6.12, a sleeping task may still be queued (delayed
/// dequeue), and balancing may move it. The engine's `wakeups_prev` compares with the CPU to which the task was moved,
/// like the kernel's `task_cpu`. An observer knows only where the task last ran.
fn agree(features: &str, shape: &str, seed: u64, duration: i32) -> Result<(), String> {
    let (outcome, observed) = simulate(features, shape, seed, duration);
    let counters = shared_counters(&outcome, &observed);
    assert_eq!(counters.len(), 10);
    let delayed_dequeue = !features.starts_with("fair@5");
    let (_, wakeups, _) = counters[0];
    let differing: Vec<_> = counters
        .iter()
        .filter(|(name, engine, seen)| {
            let few = wakeups / 100;
            let tolerated = if name == "wakeups_prev" && delayed_dequeue { few } else { 0 };
            engine.abs_diff(*seen) > tolerated
        })
        .collect();
    match differing.is_empty() {
        true => Ok(()),
        false => Err(format!("{features} {shape} {seed} {duration}: {differing:?}")),
    }
}

const SHAPES: [&str; 4] = [
    "node:2 l3:2 core:2 pu:1",
    "node:2 l3:1 core:2 pu:2",
    "node:4 l3:2 core:1 pu:1",
    "core:8 pu:1",
];

#[test]
fn observed_counters_are_the_engines() {
    for version in roost_fair::versions() {
        let features = format!("fair@{version}");
        for shape in SHAPES {
            agree(&features, shape, 1, -1).unwrap();
            agree(&features, shape, 1, 1).unwrap();
        }
    }
}

#[test]
fn the_scenario_moves_every_counter() {
    let (outcome, observed) = simulate("fair@7.2", SHAPES[0], 1, -1);
    for (name, engine, _) in shared_counters(&outcome, &observed) {
        assert!(engine > 0, "{name}");
    }
    let classes: Vec<&str> = observed.classes().keys().map(String::as_str).collect();
    assert_eq!(classes, ["child", "hog", "main", "parent", "team", "turns"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn they_are_with_any_seed_and_when_the_duration_ends_the_run(
        version in proptest::sample::select(roost_fair::versions()),
        shape in proptest::sample::select(&SHAPES[..]),
        seed in any::<u64>(),
        duration in prop_oneof![Just(-1), Just(1)],
    ) {
        let features = format!("fair@{version}");
        prop_assert_eq!(agree(&features, shape, seed, duration), Ok(()));
    }
}
