//! What `--observe` and `--dry-run` say in a guest.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{cache, job, on_each_kernel, spec, text, told};
use roost_vm::Guest;

/// Observes hackbench under the fair class, then under roost, and a loop that moves between the nodes in a cgroup of
/// its own.
const OBSERVED: &str = r#"
mount -t cgroup2 none /sys/fs/cgroup 2>/dev/null
mkdir -p /sys/fs/cgroup/mover
sh -c 'echo $$ >/sys/fs/cgroup/mover/cgroup.procs; while :; do :; done' & mover=$!
while :; do taskset -p 1 $mover; sleep 0.2; taskset -p 100 $mover; sleep 0.2; done >/dev/null 2>&1 & moving=$!
while :; do hackbench -g 2 -l 50; done >/dev/null 2>&1 & noise=$!
./scx_roost --observe 4 || echo failed: $?
start; ./scx_roost --observe 2 || echo failed: $?; stop
kill $moving $noise $mover
./scx_roost --dry-run; echo status: $?
"#;

fn it_counts_under_any_scheduler(kernel: &str) {
    let mut guest = told(Guest::boot(&cache(), &spec("2n2l4c", kernel)));
    let result = told(guest.run(&job(OBSERVED)));
    let text = text(&result);
    assert!(!text.contains("failed:"), "{text}");
    assert!(text.contains("s under the fair class, 16 CPUs in 4 LLCs on 2 nodes"), "{text}");
    assert!(text.contains("s under roost, 16 CPUs"), "{text}");
    let mover = text.lines().find(|line| line.trim_start().starts_with("/mover")).unwrap();
    let columns: Vec<&str> = mover.split_whitespace().collect();
    let number = |column: usize| columns[column].parse::<f64>().unwrap();
    // It runs on CPU 0 of node 0 and CPU 8 of node 1 only, at most five times a second on each in turn.
    assert!(number(6) > 0.0 && number(6) <= 6.0, "node moves a second: {text}");
    assert!(number(5) == 0.0, "it never moves within a node: {text}");
    assert!(number(1) > 0.1 && number(1) <= 1.01, "CPUs: {text}");
    assert!(text.contains("can run it") && text.contains("status: 0"), "{text}");
}

on_each_kernel!(it_counts_under_any_scheduler);
