//! Cgroups and processes with memory settle on nodes and stay there. This tests the scheduler and its daemon in real
//! kernels (`make test-live`). The program that the guest runs is in this file too.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use common::{cache, counters, job, on_each_kernel, percent_on, pin, spec, text, told};
use roost_vm::Guest;

/// Number of CPUs of `2n2l4c`, half of them on each node.
const CPUS: usize = 16;
const PAGE: usize = 4096;

/// The start of each job. `worker NAME FIRST STRIDE THREADS MIB SECONDS` starts the program below, in the cgroup NAME
/// if that exists. The program's threads start on the CPUs FIRST, FIRST + STRIDE, ...
const WORKERS: &str = r#"
G=/sys/fs/cgroup
group() { echo +memory >$G/cgroup.subtree_control; for g in "$@"; do mkdir -p $G/$g; done; }
worker() {
  ( [ -d $G/$1 ] && echo $BASHPID >$G/$1/cgroup.procs
    WORKER="$*" exec ./locality --exact program_works --ignored --nocapture 2>&1 ) & P="$P $!"
}
workers() { wait $P; P=; }
"#;

fn with_program(script: &str) -> roost_vm::Job {
    let program = std::env::current_exe().unwrap();
    job(&format!("{WORKERS}{script}"))
        .with_file("locality", &program)
        .within(Duration::from_secs(1800))
}

/// What a worker reported for one span of time: the shares of its CPU time and its memory on node 0.
#[derive(Clone, Copy, Debug)]
struct Seen {
    cpu: f64,
    memory: f64,
}

impl Seen {
    /// The shares on the node with most of the CPU time.
    fn at_home(self) -> Self {
        if self.cpu > 0.5 { self } else { Seen { cpu: 1.0 - self.cpu, memory: 1.0 - self.memory } }
    }
}

/// The workers' reports, by the second at which the span ended and by the worker's name.
fn seen(text: &str) -> BTreeMap<u64, BTreeMap<String, Seen>> {
    let mut all = BTreeMap::<u64, BTreeMap<String, Seen>>::new();
    for line in text.lines().filter_map(|line| line.split_once("worker ")).map(|(_, rest)| rest) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, second, cpu, memory] = words[..] else { panic!("{line}") };
        let seen = Seen { cpu: cpu.parse().unwrap(), memory: memory.parse().unwrap() };
        all.entry(second.parse().unwrap()).or_default().insert(name.to_owned(), seen);
    }
    all
}

/// Asserts that each of `sets` has at least `least` of its CPU time and memory on one node, and that half of the sets
/// are on each node.
fn assert_apart(at: &BTreeMap<String, Seen>, sets: usize, least: f64, what: &str) {
    assert_eq!(at.len(), sets, "{what}");
    for (name, seen) in at {
        let home = seen.at_home();
        assert!(home.cpu >= least && home.memory >= least, "{name}: {home:?}: {what}");
    }
    assert_eq!(at.values().filter(|seen| seen.cpu > 0.5).count(), sets / 2, "{what}");
}

/// Four groups of four busy threads start with their memory split evenly between two nodes. Within 120 s they settle,
/// two on each node, and they stay for 60 s of wakeups.
fn four_groups_settle_on_two_nodes(kernel: &str) {
    let cache = cache();
    let mut guest = told(Guest::boot(&cache, &spec("2n2l4c", kernel)));
    let script = r#"
start; group a b c d
i=0; for g in a b c d; do worker $g $i 4 4 32 110 10 60; i=$((i + 1)); done
sleep 122
( while :; do hackbench -g 1 -l 20 >/dev/null; sleep 0.2; done ) & noise=$!
workers; kill $noise; stop; cat err; tail -1 out
"#;
    let text = text(&told(guest.run(&with_program(script))));
    eprintln!("{text}");
    let seen = seen(&text);
    for second in [120, 180] {
        assert_apart(&seen[&second], 4, 0.95, &format!("at {second} s of\n{text}"));
    }
    let on = counters(text.lines().last().unwrap());
    for name in ["cling_settled", "cling_moves", "cling_held", "memory_moved"] {
        assert!(on.contains_key(name), "no {name}: {on:?}");
    }
}

/// Three groups of six threads cannot each have a node of eight CPUs. Attempts fail and the node pauses. No CPU is
/// idle, once pages have moved (threads wait for pages that are being moved).
fn three_groups_of_six_pause_and_leave_no_cpu_idle(kernel: &str) {
    let cache = cache();
    let mut guest = told(Guest::boot(&cache, &spec("2n2l4c", kernel)));
    let script = r#"
idle() { read -r up _ </proc/uptime; echo "idle $up" $(awk '/^cpu[0-9]/ { print $5 + $6 }' /proc/stat); }
start; group a b c
i=0; for g in a b c; do worker $g $i 3 6 32 40 70; i=$((i + 1)); done
sleep 42; idle; sleep 60; idle
workers; stop; cat err; tail -1 out
"#;
    let text = text(&told(guest.run(&with_program(script))));
    eprintln!("{text}");
    let on = counters(text.lines().last().unwrap());
    for name in ["cling_settled", "cling_failed", "cling_paused"] {
        assert!(on.contains_key(name), "no {name}: {on:?}");
    }
    // Seconds since boot, and each CPU's idle time in hundredths. The busy time cannot be used, because it is counted
    // in ticks, and a guest loses some ticks.
    let idle: Vec<Vec<f64>> = text
        .lines()
        .filter_map(|line| line.strip_prefix("idle "))
        .map(|line| line.split_whitespace().map(|word| word.parse().unwrap()).collect())
        .collect();
    let [before, after] = &idle[..] else { panic!("{text}") };
    assert_eq!((before.len(), after.len()), (1 + CPUS, 1 + CPUS), "{text}");
    let passed = (after[0] - before[0]) * 100.0;
    let idle = after.iter().zip(before).skip(1).map(|(after, before)| (after - before) / passed);
    let most = idle.fold(0.0, f64::max);
    eprintln!("the CPU that idled most was idle for {:.2}%", most * 100.0);
    assert!(most <= 0.02, "{most}: {text}");
}

/// Two processes of eight threads, each with common memory as in numa01. Their threads start interleaved on all CPUs.
/// Within 30 s each process has a node of its own. Its memory is there by 50 s.
fn two_processes_come_to_have_a_node_each(kernel: &str) {
    let cache = cache();
    let mut guest = told(Guest::boot(&cache, &spec("2n2l4c", kernel)));
    let script = r#"
start
for i in 0 1; do worker $i $i 2 8 64 30 20; done
workers; stop; cat err; tail -1 out
"#;
    let text = text(&told(guest.run(&with_program(script))));
    eprintln!("{text}");
    let at = seen(&text);
    for (name, seen) in &at[&30] {
        let ran = seen.at_home().cpu;
        assert!(ran >= 0.9, "{name}: {ran} of its time on a node: {text}");
    }
    assert_apart(&at[&50], 2, 0.9, &text);
    let on = counters(text.lines().last().unwrap());
    assert!(on.contains_key("consolidate_settled"), "{on:?}");
}

on_each_kernel!(
    four_groups_settle_on_two_nodes,
    three_groups_of_six_pause_and_leave_no_cpu_idle,
    two_processes_come_to_have_a_node_each
);

/// Time that a worker's threads ran on each node, in ns.
static RAN: Mutex<[u64; 2]> = Mutex::new([0; 2]);

/// Not a test: this program runs in the guest. It touches half of its memory on each node and starts its threads. For
/// each span of time it reports where the threads ran and where the memory is.
#[test]
#[ignore = "run in a guest by the other tests"]
fn program_works() {
    let words = std::env::var("WORKER").unwrap();
    let mut words = words.split_whitespace();
    let name = words.next().unwrap();
    let numbers: Vec<usize> = words.map(|word| word.parse().unwrap()).collect();
    let [first, stride, threads, mebibytes, spans @ ..] = &numbers[..] else {
        panic!("{numbers:?}")
    };
    let start = Instant::now();
    let mut memory: Vec<u8> = Vec::with_capacity(mebibytes << 20);
    for node in 0..2 {
        pin(&(node * CPUS / 2..(node + 1) * CPUS / 2).collect::<Vec<_>>());
        memory.resize((mebibytes << 19) * (node + 1), 1);
    }
    let end = start + Duration::from_secs(spans.iter().sum::<usize>() as u64);
    std::thread::scope(|scope| {
        for thread in 0..*threads {
            let memory = &memory;
            let cpu = (first + thread * stride) % CPUS;
            scope.spawn(move || work(memory, cpu, end));
        }
        let mut at = start;
        for seconds in spans {
            at += Duration::from_secs(*seconds as u64);
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            let [here, there] = std::mem::take(&mut *RAN.lock().unwrap());
            let cpu = here as f64 / (here + there).max(1) as f64;
            let second = (at - start).as_secs();
            println!("worker {name} {second} {cpu:.4} {:.4}", percent_on(&memory, 0) / 100.0);
        }
    });
}

/// Reads memory until `end`, and counts the time on each node.
fn work(memory: &[u8], cpu: usize, end: Instant) {
    pin(&[cpu]);
    pin(&(0..CPUS).collect::<Vec<_>>());
    let mut counted = thread_time();
    while Instant::now() < end {
        for page in memory.chunks(PAGE << 6) {
            std::hint::black_box(page.iter().step_by(PAGE).map(|&b| u64::from(b)).sum::<u64>());
        }
        // SAFETY: no pointers.
        let node = usize::from(unsafe { libc::sched_getcpu() } >= (CPUS / 2) as i32);
        let now = thread_time();
        RAN.lock().unwrap()[node] += now - counted;
        counted = now;
    }
}

/// CPU time of this thread, in ns.
fn thread_time() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: every thread has this clock, and the structure is valid for its time.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
