//! Memory does not grow with simulated time. Alone in its file: the peak is that of the process.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use roost_engine::Control;
use roost_fair::{Fair, Features};
use roost_workload::rtapp;

/// Peak resident memory of this process, KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Tasks that sleep, wake each other, are created and exit for as long as the run goes on: if
/// anything kept a record of each, 20 times the time would be 20 times the records.
#[test]
fn twenty_times_the_time_takes_no_more_memory() {
    let text = r#"{"tasks": {
        "periodic": {"instance": 20, "loop": -1, "run": 300, "timer": {"ref": "unique", "period": 1000}},
        "locked": {"instance": 8, "loop": -1, "lock": "m", "run": 50, "unlock": "m", "sleep": 200},
        "parent": {"instance": 2, "loop": -1, "run": 100, "fork": "child", "sleep": 900},
        "child": {"instance": 0, "loop": 1, "run": 200}
    }, "global": {"duration": 1}}"#;
    let mut workload = rtapp::parse(text, "endless.json").unwrap();
    let machine = Arc::new(roost_machine::resolve("node:2 l3:2 core:4 pu:2").unwrap());
    let stop = AtomicBool::new(false);
    let mut run = |scheduler: &str, ns| {
        workload.duration_ns = Some(ns);
        let fair = Fair::new(&machine, Features::parse(scheduler).unwrap());
        let control = Control { seed: 1, tracer: None, stop: &stop, progress: &|_| {} };
        let outcome = roost_engine::run(&machine, &workload, fair, control).unwrap();
        outcome.counters.iter().find(|(name, _)| name == "forks").unwrap().1
    };
    for scheduler in ["fair@5.16", "fair@7.2"] {
        let few = run(scheduler, 500_000_000);
        let before = peak_kib();
        let many = run(scheduler, 10_000_000_000);
        assert!(many > 15.0 * few && many > 10_000.0, "{scheduler}: {few}, {many} tasks");
        let grown = peak_kib() - before;
        // 20,000 tasks with a record of 20 bytes each would be seen.
        assert!(grown <= 256, "{scheduler}: {grown} KiB more");
    }
}
