//! Memory follows its threads, unless it must stay. This tests the scheduler and its daemon in real kernels (`make
//! test-live`). The program that the guest runs is in this file too.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::time::{Duration, Instant};

use common::{cache, job, number_after, on_each_kernel, percent_on, pin, spec, text, told};
use roost_vm::Guest;

/// Number of pages of the test's memory: 64 MB.
const PAGES: usize = 16384;
const PAGE: usize = 4096;

/// CPUs of nodes 0 and 1 of `2n2l4c`.
const NODES: [[usize; 4]; 2] = [[0, 1, 2, 3], [8, 9, 10, 11]];

/// The start of each job. The program that touches memory is this test binary.
const WATCH: &str = "watch() { \"$@\" ./guest-memory --exact program_touches_and_moves_over --ignored --nocapture; }\n";

fn with_program(script: &str) -> roost_vm::Job {
    let program = std::env::current_exe().unwrap();
    job(&format!("{WATCH}{script}")).with_file("guest-memory", &program)
}

/// The bar: 64 MB that threads touched on node 0 before they moved to node 1.
fn pages_follow_threads_within_15_seconds(kernel: &str) {
    let cache = cache();
    let mut guest = told(Guest::boot(&cache, &spec("2n2l4c", kernel)));
    let result = told(guest.run(&with_program("start; watch; stop; tail -1 out; cat err")));
    let all = text(&result);
    assert!(number_after(&all, "local after 15 s: ") >= 95.0, "{kernel}: {all}");
    assert!(number_after(&all, "memory_moved=") >= 15_000.0, "{kernel}: {all}");
    let local: String = all.lines().filter(|line| line.contains("local after")).collect();
    eprintln!("{kernel}: {local}");
}

/// Options, a command, and the counter that says why the memory stayed.
const KEPT: [(&str, &str, &str); 6] = [
    ("--no-memory", "watch", ""),
    ("", "watch numactl --membind=0", ""),
    ("", "watch numactl --interleave=0,1", ""),
    ("", "watch numactl --localalloc", ""),
    ("", "bound watch", "memory_bound="),
    ("", "full; watch", "memory_no_room="),
];

/// `bound COMMAND` runs in a cpuset with memory of node 0 only. `full` writes a file that uses all memory that node 1
/// provides before node 0 is asked.
const BINDINGS: &str = r#"
G=/sys/fs/cgroup
bound() {
  echo +cpuset >$G/cgroup.subtree_control; mkdir -p $G/bound; echo 0 >$G/bound/cpuset.mems
  ( echo $BASHPID >$G/bound/cgroup.procs; "$@" )
}
free() { awk '/MemFree/ { print int($4 / 1024) }' /sys/devices/system/node/node1/meminfo; }
full() {
  mkdir -p /tmp/full; mount -t tmpfs -o mpol=prefer:1,size=2g full /tmp/full
  dd if=/dev/zero of=/tmp/full/file bs=1M count=$(free) 2>/dev/null; echo "$(free) MB are free on node 1"
}
"#;

/// Memory stays where it is if the daemon is switched off, if the memory has a policy or cpuset of its own, or if the
/// node has no room.
fn what_is_bound_stays(kernel: &str) {
    let cache = cache();
    let mut guest = told(Guest::boot(&cache, &spec("2n2l4c", kernel)));
    for (options, command, counter) in KEPT {
        let script = format!("{BINDINGS}start {options}; {command}; stop; cat err; tail -1 out");
        let all = text(&told(guest.run(&with_program(&script))));
        eprintln!("{options} {command}: {all}");
        assert!(number_after(&all, "local after 15 s: ") < 60.0, "{options} {command}: {all}");
        assert!(!all.contains("memory_moved="), "{options} {command}: {all}");
        assert!(all.contains(counter), "{options} {command}: no {counter} in {all}");
    }
}

on_each_kernel!(pages_follow_threads_within_15_seconds, what_is_bound_stays);

/// Not a test: this program runs in the guest. It touches memory on node 0, then reads it on node 1 for 15 s, and
/// reports how much of it is local there.
#[test]
#[ignore = "run in a guest by the other test"]
fn program_touches_and_moves_over() {
    pin(&NODES[0]);
    let memory = vec![1_u8; PAGES * PAGE];
    eprintln!("local on node 0 at first: {:.1} %", percent_on(&memory, 0));
    pin(&NODES[1]);
    let end = Instant::now() + Duration::from_secs(15);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                pin(&NODES[1]);
                while Instant::now() < end {
                    std::hint::black_box(
                        memory.iter().step_by(PAGE).map(|&b| u64::from(b)).sum::<u64>(),
                    );
                }
            });
        }
        while Instant::now() < end {
            std::thread::sleep(Duration::from_secs(1));
            let at = 15.0 - end.saturating_duration_since(Instant::now()).as_secs_f64();
            eprintln!("{at:.0} s: {:.1} % on node 1", percent_on(&memory, 1));
        }
    });
    eprintln!("local after 15 s: {:.1} %", percent_on(&memory, 1));
}
