//! The simulator's cost: events per second, cost of an event by kind, and peak memory.
//!
//! The load is that of the speed bar: two tasks per CPU that repeat "run 100 us, sleep 100 us", on machines without
//! SMT, under fair@7.2. Each case runs in a process of its own, because peak memory is per process. In the first
//! simulated second, one task forks all others, which takes longer than a second on 1024 CPUs. So the cost of an event
//! is given for the second simulated second: the difference between runs of two seconds and of one. Costs by kind come
//! from further runs in which the clock is read after every event; the time to read it is subtracted.
//!
//! `make bench` runs all cases, `cargo bench -- 256` runs one of them.

use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use roost_engine::{Control, EVENT_NAMES, Outcome};
use roost_machine::Machine;
use roost_simulate::{SchedulerSpec, Simulation, Start};
use roost_workload::Workload;

/// Number of CPUs, and the machine.
const CASES: [(u32, &str); 4] = [
    (8, "node:1 l3:1 core:8 pu:1"),
    (64, "node:2 l3:2 core:16 pu:1"),
    (256, "node:2 l3:8 core:16 pu:1"),
    (1024, "node:4 l3:16 core:16 pu:1"),
];
/// Number of runs. The fastest and the median are printed.
const RUNS: usize = 5;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    match arguments.as_slice() {
        [case, number] if case == "--case" => measure(number.parse().expect("a case number")),
        wanted => {
            println!("     first second              second second");
            println!("cpus        min s   median  peak MB   events/s  ns/event   ns by kind");
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
    let (one, two) = (load(cpus, 1), load(cpus, 2));
    let first = seconds(&machine, &one);
    let peak_mb = peak_memory_kb() as f64 / 1024.0;
    let both = seconds(&machine, &two);
    let steady_ns = (both.median - first.median) * 1e9;

    let (one, two) = (Kinds::of(&machine, &one), Kinds::of(&machine, &two));
    let count = |kind: usize| two.count[kind] - one.count[kind];
    let events: u64 = (0..EVENT_NAMES.len()).map(count).sum();
    let (least, median) = (first.least, first.median);
    let per_event = steady_ns / events as f64;
    print!("{cpus:>4} {least:>12.3} {median:>8.3} {peak_mb:>8.1}");
    print!(" {:>9.2}M {per_event:>9.1}  ", 1e3 / per_event);
    let clock = clock_ns();
    for (kind, name) in EVENT_NAMES.iter().enumerate().filter(|&(kind, _)| count(kind) > 0) {
        let spent = two.spent_ns[kind].saturating_sub(one.spent_ns[kind]) as f64;
        let mean = (spent / count(kind) as f64 - clock).max(0.0);
        print!(" {name} {mean:.0} x {}", count(kind));
    }
    println!();
}

/// Wall times of several runs, in s.
struct Seconds {
    least: f64,
    median: f64,
}

fn seconds(machine: &Arc<Machine>, workload: &Workload) -> Seconds {
    let mut seconds = [0.0; RUNS].map(|_: f64| {
        let start = Instant::now();
        run_once(machine, workload, |_| {});
        start.elapsed().as_secs_f64()
    });
    seconds.sort_by(f64::total_cmp);
    Seconds { least: seconds[0], median: seconds[RUNS / 2] }
}

/// Time between consecutive events, by the kind of the later event.
struct Kinds {
    spent_ns: [u64; EVENT_NAMES.len()],
    count: [u64; EVENT_NAMES.len()],
    last: Instant,
}

impl Kinds {
    fn new() -> Self {
        let (spent_ns, count) = Default::default();
        Self { spent_ns, count, last: Instant::now() }
    }

    fn note(&mut self, kind: usize) {
        let now = Instant::now();
        self.spent_ns[kind] += (now - self.last).as_nanos() as u64;
        self.count[kind] += 1;
        self.last = now;
    }

    fn of(machine: &Arc<Machine>, workload: &Workload) -> Self {
        let mut kinds = Self::new();
        run_once(machine, workload, |kind| kinds.note(kind));
        kinds
    }
}

/// Time to record an event, in ns. It is subtracted from the event's time.
fn clock_ns() -> f64 {
    const NOTES: usize = 1_000_000;
    let mut kinds = Kinds::new();
    (0..NOTES).for_each(|note| kinds.note(std::hint::black_box(note % EVENT_NAMES.len())));
    let spent: u64 = kinds.spent_ns.iter().sum();
    spent as f64 / NOTES as f64
}

fn load(cpus: u32, seconds: u32) -> Workload {
    let text = format!(
        r#"{{
            "tasks": {{ "t": {{ "instance": {}, "loop": -1, "run": 100, "sleep": 100 }} }},
            "global": {{ "duration": {seconds} }}
        }}"#,
        2 * cpus
    );
    roost_workload::rtapp::parse(&text, "bench.json").expect("a valid workload")
}

fn run_once(machine: &Arc<Machine>, workload: &Workload, observer: impl FnMut(usize)) -> Outcome {
    let simulation = Simulation {
        machine: machine.clone(),
        workload: Arc::new(workload.clone()),
        scheduler: SchedulerSpec::parse("fair@7.2").expect("a known version"),
        start: Start::Boot,
        quiet: true,
    };
    simulation.run_observed(Control::new(1), observer).expect("the run ends")
}

/// The process's largest resident set so far, in kB.
fn peak_memory_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|value| value.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}
