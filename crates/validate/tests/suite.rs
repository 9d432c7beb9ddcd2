//! Every scenario shows what it is named for, on every emulated machine shape.

#![allow(clippy::unwrap_used)] // a scenario that does not run is a failed test

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use roost_machine::Machine;
use roost_simulate::SchedulerSpec;
use roost_validate::{Kind, Observation, compare, scenario, scenarios, simulate, window_ns};

/// The machine shapes with 16 CPUs that can be emulated.
const SHAPES: [&str; 6] = ["2n2l4c", "1s2n4l2c", "4n1l4c", "4n2l2c", "2n2l2c2t", "2n1l2m2c2t"];

fn machine(shape: &str) -> Arc<Machine> {
    Arc::new(roost_machine::resolve(shape).unwrap())
}

fn observe(name: &str, shape: &str, seeds: &[u64]) -> Vec<Observation> {
    observe_under("fair@7.2", name, shape, seeds)
}

fn observe_under(scheduler: &str, name: &str, shape: &str, seeds: &[u64]) -> Vec<Observation> {
    let scheduler = SchedulerSpec::parse(scheduler).unwrap();
    let stop = AtomicBool::new(false);
    let (scenario, window) = (scenario(name).unwrap(), window_ns(1_000_000_000));
    simulate(&machine(shape), &scenario, &scheduler, &window, seeds, &stop).unwrap()
}

/// Whether a run shows what the scenario is named for.
fn shows(name: &str, run: &Observation) -> bool {
    let value = |quantity| run.value(quantity);
    match name {
        // Some CPUs are free. Tasks wait a little, because all timers fire together.
        "below" => value("run_delay%") < 20.0 && value("wakeups") > 3_000.0,
        // The load equals the number of CPUs: some tasks wait.
        "at" => (2.0..40.0).contains(&value("run_delay%")),
        // The load exceeds the number of CPUs: many tasks wait.
        "above" => value("run_delay%") > 40.0,
        // Each hop of the token is a wakeup: 8 pairs with a hop every 1.4 ms or more, and 12 timers of 7 ms.
        "pingpong" => (5_500.0..7_500.0).contains(&value("wakeups")),
        // Each time that a head's timer expires, its whole chain is woken, one task after the other. In addition, every
        // task except one is woken once at the start.
        "chain2" => wakes_chains(run, 2, &[3.4, 3.6, 3.8, 4.0, 4.2, 4.4, 4.6, 4.8]),
        "chain4" => wakes_chains(run, 4, &[4.4, 4.7, 5.0, 5.3]),
        "chain16" => wakes_chains(run, 16, &[9.7, 10.2, 10.7, 11.2]),
        // 125 wakeups of a head and its 12 tasks, 189 wakeups of a head and its 6 tasks.
        "broad" => (2_700.0..3_100.0).contains(&value("wakeups")),
        // No task sleeps once it has started. Tasks that pile up on CPUs are pulled away.
        "fork" => {
            value("wakeups") < 150.0 && value("run_delay%") > 20.0 && value("migrations") > 5.0
        }
        // A round takes 4 ms and wakes 11 tasks, each at most twice (condition, then mutex).
        "barrier" => (3_000.0..7_000.0).contains(&value("wakeups")),
        // No CPU is ever free, and only the tasks that hardly sleep wait.
        "nice" => value("run_delay%") > 20.0,
        // Balancing finds an imbalance that it may not correct.
        "pinned" => periodic(run, "failures") > 20.0 && value("run_delay%") > 20.0,
        // Released tasks are spread, confined again, and so on.
        "release" => value("migrations") > 40.0 && value("run_delay%") > 10.0,
        // Half of the pairs are bound to different halves of the machine. Their 967 items per second leave the LLC, of
        // 6,459 wakeups per second (two per item, bound or free, and 2,759 of the short tasks). In the window of 920 ms
        // these are 5,942 wakeups.
        "noise" => value("wakeups_waker_llc%") < 86.0 && value("wakeups") > 5_800.0,
        // First the machine fills up, then tasks share CPUs.
        "hogs" => value("wakeups") < 80.0 && value("run_delay%") > 1.0,
        "burst50" => value("run_delay%") < 15.0 && value("wakeups") > 1_500.0,
        "burst90" => (5.0..60.0).contains(&value("run_delay%")),
        _ => panic!("{name}: say what it shows"),
    }
}

/// Whether the wakeups are those of chains of `length` tasks, with one chain for each period in ms. A tenth may be
/// missing, because items are lost when the next task is not waiting yet.
fn wakes_chains(run: &Observation, length: usize, periods: &[f64]) -> bool {
    let items: f64 = periods.iter().map(|period| (1000.0 / period).floor()).sum();
    let expected = length as f64 * (items + periods.len() as f64);
    (0.9 * expected..1.01 * expected).contains(&run.value("wakeups"))
}

/// Sum over all levels of one counter of periodic balancing.
fn periodic(run: &Observation, what: &str) -> f64 {
    let wanted = format!(" periodic {what}");
    let values = run.values().iter().filter(|(quantity, _)| quantity.name.ends_with(&wanted));
    values.map(|(_, value)| value).sum()
}

#[test]
fn every_scenario_shows_what_it_is_named_for_on_every_shape() {
    let mut missing = Vec::new();
    for shape in SHAPES {
        for scenario in scenarios() {
            let run = observe(scenario.name, shape, &[1]).remove(0);
            if !shows(scenario.name, &run) {
                missing.push(format!("{} on {shape}: {}", scenario.name, summary(&run)));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

fn summary(run: &Observation) -> String {
    let shown = run.values().iter().filter(|(quantity, value)| {
        quantity.kind != Kind::Placement && *value != 0.0 && !quantity.name.contains("attempts")
    });
    shown
        .map(|(quantity, value)| format!("{} {value:.1}", quantity.name))
        .collect::<Vec<_>>()
        .join(", ")
}

#[test]
fn no_run_is_too_busy_to_be_emulated() {
    // A wakeup with its switches takes about 10,000 instructions of an emulated CPU. The whole machine executes 1e9
    // instructions per second.
    for scenario in scenarios() {
        let run = observe(scenario.name, "2n2l4c", &[2]).remove(0);
        assert!(run.value("wakeups") < 10_000.0, "{}: {}", scenario.name, summary(&run));
    }
}

#[test]
fn a_program_s_own_counters_agree_with_what_an_observer_sees() {
    let run = observe_under("roost", "below", "2n2l4c", &[1]).remove(0);
    let value = |quantity| run.value(quantity);
    // The program counts kernel threads too, which the observer does not see.
    let [seen, counted] = [value("wakeups"), value("roost_ttwu_count")];
    assert!(seen > 3_000.0 && counted >= seen && counted < 1.2 * seen, "{}", summary(&run));
    assert!(value("roost_nr_migrations") >= value("migrations"), "{}", summary(&run));
    // The fair class balances domains; a program does not.
    assert!(!run.values().iter().any(|(quantity, _)| quantity.name.contains("attempts")));
}

#[test]
fn seeds_differ_and_repeat_themselves() {
    let runs = observe("at", "4n2l2c", &[1, 2, 1]);
    assert_ne!(runs[0], runs[1]);
    assert_eq!(runs[0], runs[2]);
}

#[test]
fn the_simulation_agrees_with_itself_under_other_seeds() {
    for name in ["chain4", "hogs", "burst90"] {
        let (one, other) =
            (observe(name, "2n2l4c", &[1, 2, 3, 4, 5]), observe(name, "2n2l4c", &[6, 7, 8, 9, 10]));
        let agreement = compare(name, "2n2l4c", &one, &other);
        let (agreeing, compared) = agreement.agreeing();
        let differing: BTreeMap<_, _> = agreement
            .counters()
            .filter(|row| row.opinion.agrees() == Some(false))
            .map(|row| (&row.quantity.name, (row.sim.mean, row.real.mean)))
            .collect();
        assert!(10 * agreeing >= 9 * compared, "{name}: {agreeing} of {compared}: {differing:?}");
    }
}
