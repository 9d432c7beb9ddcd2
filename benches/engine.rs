//! What the simulator costs: events per second, cost of an event by kind, and peak memory.
//!
//! The load is that of the speed bar: two tasks a CPU, each looping run 100 us, sleep 100 us, on
//! machines without SMT, fair@7.2, one simulated second. Each case runs in a process of its own, so
//! that its peak memory is its own.
//!
//! `make bench` runs every case; `cargo bench -- 256` one of them.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use roost_engine::{Control, EVENT_NAMES, Outcome, run_observed};
use roost_fair::{Fair, Features};
use roost_machine::Machine;
use roost_workload::Workload;

/// CPUs and the shape of the machine that has them.
const CASES: [(u32, &str); 4] = [
    (8, "node:1 l3:1 core:8 pu:1"),
    (64, "node:2 l3:2 core:16 pu:1"),
    (256, "node:2 l3:8 core:16 pu:1"),
    (1024, "node:4 l3:16 core:16 pu:1"),
];
/// Counted runs; the fastest and the median are printed.
const RUNS: usize = 5;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    match arguments.as_slice() {
        [case, number] if case == "--case" => measure(number.parse().expect("a case number")),
        wanted => {
            println!(
                "cpus   simulated s in: min   median   events/s   ns/event   peak MB   ns by kind"
            );
            for (number, (cpus, _)) in CASES.iter().enumerate() {
                if wanted.is_empty() || wanted.contains(&cpus.to_string()) {
                    spawn(number);
                }
            }
        }
    }
}

fn spawn(case: usize) {
    let program = std::env::current_exe().expect("the benchmark's own path");
    let status = Command::new(program).args(["--case", &case.to_string()]).status();
    assert!(status.expect("the benchmark starts").success());
}

fn measure(case: usize) {
    let (cpus, shape) = CASES[case];
    let machine = Arc::new(roost_machine::resolve(shape).expect("a valid shape"));
    let workload = load(cpus);
    let mut seconds: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            run_once(&machine, &workload, |_| {});
            start.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    let peak_mb = peak_memory_kb() as f64 / 1024.0;

    let mut spent = [0.0; EVENT_NAMES.len()];
    let mut count = [0u64; EVENT_NAMES.len()];
    let mut last = Instant::now();
    run_once(&machine, &workload, |kind| {
        let now = Instant::now();
        spent[kind] += (now - last).as_secs_f64();
        count[kind] += 1;
        last = now;
    });
    let events: u64 = count.iter().sum();
    let median = seconds[RUNS / 2];
    print!(
        "{cpus:>4} {:>21.3} {median:>8.3} {:>10.2}M {:>9.1} {peak_mb:>9.1}  ",
        seconds[0],
        events as f64 / median / 1e6,
        median * 1e9 / events as f64,
    );
    for (kind, name) in EVENT_NAMES.iter().enumerate() {
        print!(" {name} {:.0} x {}", spent[kind] * 1e9 / count[kind].max(1) as f64, count[kind]);
    }
    println!();
}

fn load(cpus: u32) -> Workload {
    let text = format!(
        r#"{{
            "tasks": {{ "t": {{ "instance": {}, "loop": -1, "run": 100, "sleep": 100 }} }},
            "global": {{ "duration": 1 }}
        }}"#,
        2 * cpus
    );
    roost_workload::rtapp::parse(&text, "bench.json").expect("a valid workload")
}

fn run_once(machine: &Arc<Machine>, workload: &Workload, observer: impl FnMut(usize)) -> Outcome {
    let features = Features::parse("fair@7.2").expect("a known version");
    let control =
        Control { seed: 1, tracer: None, stop: &AtomicBool::new(false), progress: &|_| {} };
    let fair = Fair::new(machine, features);
    run_observed(machine, workload, fair, control, observer).expect("the run ends")
}

/// The process's largest resident set so far, kB.
fn peak_memory_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|value| value.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}
