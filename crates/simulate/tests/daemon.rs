//! The live scheduler's daemon over simulated pages: memory follows its threads.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::Write;

use roost_simulate::{Control, Outcome, Simulation};

const SECOND: u64 = 1_000_000_000;

fn run(machine: &str, workload: &str, seconds: u64, scheduler: &str) -> Outcome {
    let simulation =
        Simulation::named(machine, workload, Some(seconds * SECOND), scheduler).unwrap();
    simulation.run(Control::new(1)).unwrap()
}

fn counter(outcome: &Outcome, name: &str) -> Option<f64> {
    outcome.counters.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
}

/// Percent of the bytes that came from the CPU's own node.
fn local(outcome: &Outcome) -> f64 {
    let [local, remote] = ["local", "remote"]
        .map(|place| counter(outcome, &format!("memory_{place}_bytes")).unwrap());
    100.0 * local / (local + remote)
}

/// Two processes of six threads, whose memory of 3 GiB each is all on node 0. One of them settles on node 1, and its
/// memory follows.
fn numa01(scheduler: &str) -> Outcome {
    run("xeon-2s-12", "numa01:cpus=12", 40, scheduler)
}

#[test]
fn memory_follows_a_process_that_settled_on_another_node() {
    let with = numa01("roost+memory-share=100");
    let without = numa01("roost+no-memory");
    let moved = counter(&with, "roost_memory_moved").unwrap();
    let pages = (3_u64 << 30) as f64 / 4096.0;
    assert!((0.95 * pages..=pages).contains(&moved), "{moved} of {pages} pages");
    assert!(counter(&with, "numa_pages_migrated").unwrap() >= moved);
    assert_eq!(counter(&without, "numa_pages_migrated"), Some(0.0));
    assert_eq!(counter(&without, "roost_memory_moved"), None, "the daemon is off");
    assert!(local(&with) > local(&without) + 20.0, "{} and {}", local(&with), local(&without));
    // Moving a page takes 2 us or more (`page_migrate_ns`), which the daemon's thread spends.
    let daemon_us = counter(&with, "roost_daemon_us").unwrap();
    assert!(daemon_us > 2.0 * moved, "{daemon_us} us for {moved} pages");
}

#[test]
fn a_run_with_the_daemon_is_the_same_every_time() {
    let once = || format!("{:?}", numa01("roost+memory-share=100"));
    assert_eq!(once(), once());
}

#[test]
fn its_share_of_time_and_least_memory_are_settings() {
    let moved = |settings| counter(&numa01(&format!("roost{settings}")), "roost_memory_moved");
    // A page takes 2 us or more. A hundredth of 40 s is 0.4 s, and at most 64 MiB are moved at once.
    let slow = moved("+memory-share=1").unwrap();
    assert!(slow > 0.0 && slow <= 200_000.0 + 16_384.0, "{slow} pages");
    assert_eq!(moved("+memory-min-mib=4000"), Some(0.0));
    assert_eq!(moved("+memory-settle-ms=3600000"), Some(0.0));
}

/// `settle` has four groups, /ng_A to /ng_D.
#[test]
fn only_groups_that_match_the_patterns_cling() {
    let settled = |settings| {
        let outcome = run("xeon-2s-12", "settle:threads=3", 10, &format!("roost{settings}"));
        counter(&outcome, "roost_cling_settled").unwrap()
    };
    assert_eq!(settled(""), 4.0);
    assert_eq!(settled("+cling-groups=/ng_A,/ng_C"), 2.0);
    assert_eq!(settled("+cling-groups=/ng_A,/ng_C+no-memory"), 2.0);
}

/// Three threads touch 64 MiB each on node 0 of the emulated machine, and then sweep over it on node 1. As in a guest
/// (`crates/live/tests/memory.rs`, where they touch 64 MB together), 95% of the pages follow within 15 s.
#[test]
fn pages_follow_threads_within_fifteen_seconds_as_in_a_guest() {
    let mut file = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
    let text = r#"{ "global": { "mem_buffer_size": 67108864 }, "tasks": { "user": { "instance": 3, "phases": {
        "touch": { "loop": 1, "cpus": [0, 1, 2, 3], "mem": 67108864 },
        "sweep": { "loop": -1, "cpus": [8, 9, 10, 11], "mem": 67108864 } } } } }"#;
    file.write_all(text.as_bytes()).unwrap();
    let workload = file.path().display().to_string();
    let moved = |scheduler| {
        let outcome = run("2n2l4c", &workload, 15, scheduler);
        counter(&outcome, "numa_pages_migrated").unwrap()
    };
    let pages = f64::from((3 * 64) << 8);
    assert!(moved("roost") >= 0.95 * pages, "{} of {pages} pages", moved("roost"));
    assert_eq!(moved("roost+no-memory"), 0.0);
}

#[test]
fn where_no_memory_is_used_there_is_no_daemon() {
    let outcome = run("2n2l4c", "hackbench:groups=1,loops=10", 1, "roost");
    assert_eq!(counter(&outcome, "roost_daemon_us"), None);
}
