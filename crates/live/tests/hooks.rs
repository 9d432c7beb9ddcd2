//! The hooks of `bpf/` in user space (`tests/hooks/hooks.c`): what the scheduler decides, without a
//! kernel. The same for every run; a C compiler is all it needs.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// What a scenario printed.
struct Outcome {
    /// ns that each group ran on each of the two nodes.
    groups: Vec<[f64; 2]>,
    /// Of the time measured, the share in which the CPU that idled most was idle.
    idle: f64,
    counters: BTreeMap<String, u64>,
}

/// Compiles the hooks once.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hooks");
        let status = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".to_owned()))
            .args(["-O1", "-w", "-I"])
            .arg(root.join("../../policy/include"))
            .arg(root.join("tests/hooks/hooks.c"))
            .arg("-o")
            .arg(&program)
            .status();
        assert!(status.expect("a C compiler, cc or $CC").success());
        program
    })
}

fn outcome(scenario: &str, seed: u32) -> Outcome {
    let output = Command::new(program()).args([scenario, &seed.to_string()]).output().unwrap();
    assert!(output.status.success(), "{scenario}: {}", output.status);
    let mut outcome = Outcome { groups: Vec::new(), idle: 0.0, counters: BTreeMap::new() };
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |index: usize| words[index].parse::<f64>().unwrap();
        match words[0] {
            "group" => outcome.groups.push([number(2), number(3)]),
            "idle" => outcome.idle = number(1) / number(3),
            name => drop(outcome.counters.insert(name.to_owned(), number(1) as u64)),
        }
    }
    outcome
}

/// The share of a group's time on its main node.
fn gathered(group: &[f64; 2]) -> f64 {
    group[0].max(group[1]) / (group[0] + group[1])
}

const SEEDS: std::ops::Range<u32> = 1..6;

/// Four groups of four busy loops on 2 x 8 CPUs, with short-running tasks beside them.
#[test]
fn four_groups_settle_two_on_each_node() {
    for seed in SEEDS {
        let outcome = outcome("four-groups", seed);
        assert!(outcome.groups.iter().all(|group| gathered(group) >= 0.95), "{:?}", outcome.groups);
        assert_eq!(outcome.groups.iter().filter(|group| group[0] > group[1]).count(), 2);
        for name in ["cling_settled", "cling_held"] {
            assert!(outcome.counters[name] > 0, "seed {seed}: {name}");
        }
    }
}

/// Three groups of six on 2 x 8 CPUs: the third finds no room, again and again, and no CPU is idle.
#[test]
fn a_group_without_room_floats_and_no_cpu_idles() {
    for seed in SEEDS {
        let outcome = outcome("three-groups", seed);
        let settled = outcome.groups.iter().filter(|group| gathered(group) >= 0.95).count();
        assert_eq!(settled, 2, "seed {seed}: {:?}", outcome.groups);
        assert!(outcome.idle <= 0.02, "seed {seed}: {}", outcome.idle);
        assert!(outcome.counters["cling_failed"] >= 10, "one attempt a second");
    }
}

/// Two processes of eight threads on 2 x 8 CPUs, started anywhere.
#[test]
fn two_processes_have_a_node_each() {
    for seed in SEEDS {
        let outcome = outcome("processes", seed);
        assert!(outcome.groups.iter().all(|group| gathered(group) >= 0.9), "{:?}", outcome.groups);
        assert!(outcome.counters["consolidate_settled"] >= 2, "seed {seed}");
    }
}

/// Cgroups of weight 100 and 300, 32 busy loops each on 16 CPUs.
#[test]
fn cgroups_share_by_weight_across_llcs() {
    for seed in SEEDS {
        let groups = outcome("weights", seed).groups;
        let ratio = (groups[1][0] + groups[1][1]) / (groups[0][0] + groups[0][1]);
        assert!((ratio / 3.0 - 1.0).abs() <= 0.05, "seed {seed}: {ratio}");
    }
}

#[test]
fn nothing_settles_when_that_is_off() {
    for (name, value) in outcome("off", 1).counters {
        let of_sets = name.starts_with("cling_") || name.starts_with("consolidate_");
        assert!(!of_sets || value == 0, "{name} {value}");
    }
}
