//! Task graphs do what their benchmarks do: no task hangs, whatever order tasks run in.

mod interpreter;

use std::path::Path;

use interpreter::run;
use roost_workload::{Workload, resolve};

const MS: u64 = 1_000_000;

/// Delays of up to 3 us between operations change the order of everything that the graph does not order.
const JITTER_NS: u64 = 3_000;

fn workload(spec: &str) -> Workload {
    resolve(spec, None).unwrap_or_else(|error| panic!("{error}"))
}

fn example(name: &str) -> Workload {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/rtapp").join(name);
    workload(&path.to_string_lossy())
}

#[test]
fn hackbench_ends_with_every_message_read() {
    for spec in ["hackbench:groups=2,loops=5,fds=4,pipe", "hackbench:groups=2,loops=90,fds=4"] {
        let workload = workload(spec);
        for seed in 0..10 {
            let run = run(&workload, u64::MAX >> 1, JITTER_NS, seed);
            assert_eq!(run.exited, 16, "{spec}, seed {seed}");
        }
    }
}

#[test]
fn a_netperf_pair_makes_a_transaction_in_the_work_of_two_messages() {
    let workload = workload("netperf-tcp-rr:clients=2");
    let run = run(&workload, 46 * MS, 0, 0);
    // 7100 ns without the 2500 ns that an engine charges are 4600 ns: 10,000 transactions per pair in 46 ms.
    assert_eq!(run.counters, [20_000]);
}

#[test]
fn iperf3_moves_as_much_as_the_slower_end_can() {
    let run = run(&workload("iperf3"), 100 * MS, 0, 0);
    let gigabits = run.counters[0] as f64 * 8.0 / 0.1 / 1e9;
    // Loopback on current machines reaches some tens of Gbit/s.
    assert!((30.0..80.0).contains(&gigabits), "{gigabits}");
}

#[test]
fn tbench_pairs_make_progress_alike() {
    let run = run(&workload("tbench:clients=3"), 10 * MS, JITTER_NS, 1);
    let clients: Vec<u64> = run.begun.iter().skip(1).step_by(2).copied().collect();
    assert!(clients.iter().all(|begun| *begun > 500), "{clients:?}");
}

#[test]
fn no_schbench_worker_is_ever_forgotten() {
    for workers in [1, 2, 7] {
        let workload = workload(&format!("schbench:messages=2,workers={workers},c=50,s=40"));
        for seed in 0..10 {
            // The delays are far longer than the sleep, so a worker may be late to wait after its post.
            let run = run(&workload, 1_000 * MS, 200_000, seed);
            // The message thread has 7 operations per round, plus 2 per worker: 21 in total, with up to 200 us and
            // retries each, 10 ms at worst. A worker that just missed a round waits for the next one. A task that has
            // not run for 50 ms will never run again.
            let oldest = run.last.iter().min().copied().unwrap_or_default();
            assert!(oldest > 950 * MS, "{workers} workers, seed {seed}: {:?}", run.last);
        }
    }
}

#[test]
fn a_schbench_round_is_the_spin_and_then_the_sleep() {
    let workload = workload("schbench:messages=1,workers=3,c=30000,s=32000");
    let run = run(&workload, 10_000 * MS, 0, 0);
    // A worker spins for 30 ms. The message thread sleeps for 32 ms plus, on average, 3.5 eighths of 8 ms. Together
    // these are 65.5 ms: 152 rounds of six operations in 10 s.
    for begun in &run.begun[1..] {
        assert!((150..=154).contains(&(begun / 6)), "{:?}", run.begun);
    }
}

#[test]
fn noise_wakes_every_4_ms() {
    let run = run(&workload("iperf3:noise=1"), 400 * MS, 0, 0);
    // Three operations per period.
    assert!((298..=303).contains(&run.begun[2]), "{:?}", run.begun);
}

#[test]
fn every_thread_of_the_mp3_player_keeps_playing() {
    let workload = example("mp3-short.json");
    for seed in 0..10 {
        let run = run(&workload, 6_000 * MS, JITTER_NS, seed);
        // Every fifth tick of 6 ms starts a block: 200 in 6 s.
        assert!(run.counters.iter().all(|loops| (150..=201).contains(loops)), "{:?}", run.counters);
    }
}

#[test]
fn example7_drives_both_tasks_through_each_barrier() {
    let run = run(&example("tutorial/example7.json"), 5_000 * MS, 0, 0);
    // As in the tutorial: 3 ms, 3 ms, and then 3 ms per round.
    assert_eq!(run.counters, [555, 555]);
}
