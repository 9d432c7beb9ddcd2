//! The scheduler in real kernels. They run with `make test-live` (ROOST_VM=1), as they need packages
//! from the network or a prepared cache, and minutes.
//!
//! Where a guest cannot be had at all, each test says what it skipped and why.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::{KERNELS, counters, job, number_after, prepared, spec, text, told};
use roost_vm::{Guest, Job, exact};

/// Busy loops in cgroups and in processes, and on which CPUs they are: `sample NAME CPU...`, once a
/// second for so many.
const SETS: &str = r#"
G=/sys/fs/cgroup
loops() { mkdir -p $G/$1; for t in $(seq $2); do ( echo $BASHPID >$G/$1/cgroup.procs; while :; do :; done ) & P="$P $!"; done; }
cpus() { for file in "$@"; do read -r -a stat <$file && echo -n " ${stat[38]}"; done 2>/dev/null; echo; }
groups() { for group; do echo -n "sample $group"; cpus $(sed 's|.*|/proc/&/stat|' $G/$group/cgroup.procs); done; }
processes() { for p in $(pgrep sysbench); do echo -n "sample $p"; cpus $(grep -l R /proc/$p/task/*/stat); done; }
sampled() { seconds=$1; shift; for i in $(seq $seconds); do sleep 1; "$@"; done; }
end() { kill $P; wait $P 2>/dev/null; P=; }
used() { sed -n 's/usage_usec //p' $G/$1/cpu.stat; }
"#;

/// A job with [`SETS`], which takes minutes.
fn long_job(script: &str) -> Job {
    job(&format!("{SETS}\n{script}")).within(Duration::from_secs(1800))
}

const LIFE: &str = r#"
start; cat err
hackbench -g 2 -l 50 >/dev/null && echo hackbench ran
stress-ng --cpu 20 --cpu-method loop --timeout 3 --temp-path /tmp >/dev/null 2>&1 && echo stress ran
for signal in INT TERM KILL; do stop $signal; echo after $signal: $(state); start; done
./scx_roost; echo second: $?
setpriv --reuid 1000 --clear-groups ./scx_roost; echo user: $?
./scx_roost --monitor 1 >monitored 2>&1 & monitor=$!
for i in $(seq 100); do [ -s monitored ] && break; sleep 0.1; done
kill $monitor; grep -q ttwu_count monitored && echo monitored || cat monitored
echo 0 >/sys/devices/system/cpu/cpu3/online
for i in $(seq 100); do [ $(grep -c schedules err) = 2 ] && break; sleep 0.1; done
grep -o 'starting again' err; echo $(grep -c schedules err) starts
hackbench -g 1 -l 20 >/dev/null && echo hackbench ran with 15 CPUs
stop; cat err; state
"#;

#[test]
fn it_loads_schedules_and_leaves_on_every_kernel() {
    let Some(cache) = prepared("loading and unloading") else { return };
    for kernel in KERNELS {
        let mut guest = told(Guest::boot(&cache, &spec("2n2l4c", kernel)));
        let text = text(&told(guest.run(&job(LIFE))));
        assert!(number_after(&text, "loaded in ") < 5000.0, "{kernel}: {text}");
        for what in [
            "hackbench ran\n",
            "stress ran",
            "after INT: disabled",
            "after TERM: disabled",
            "after KILL: disabled",
            "the sched_ext scheduler roost",
            "second: 3",
            "needs root",
            "user: 3",
            "monitored\n",
            "starting again",
            "2 starts",
            "hackbench ran with 15 CPUs",
        ] {
            assert!(text.contains(what), "{kernel}: no {what:?} in\n{text}");
        }
    }
}

/// Runs `work` under the scheduler with `options`; what it counted.
fn counted(guest: &mut Guest, options: &str, work: &str) -> BTreeMap<String, u64> {
    let script = format!("start {options}; {work} >/dev/null 2>&1; stop; tail -1 out; cat err >&2");
    let result = told(guest.run(&long_job(&script)));
    let all = counters(&String::from_utf8_lossy(&result.stdout));
    assert!(all.get("ttwu_count").is_some_and(|&n| n > 0), "{options}: {}", text(&result));
    all
}

/// Each mechanism's own counter moves when it is on, and only then.
#[test]
fn mechanisms_act_when_on_and_not_when_off() {
    let Some(cache) = prepared("the counters of mechanisms") else { return };
    let mut guest = told(Guest::boot(&cache, &spec("2n2l4c", "7.2")));
    let work = "hackbench -g 2 -l 100";
    let sum = |all: &BTreeMap<String, u64>, names: &[&str]| -> u64 {
        names.iter().map(|&name| all.get(name).copied().unwrap_or(0)).sum()
    };
    let on = counted(&mut guest, "", work);
    for (switch, names) in [
        ("--no-sis-util", &["sis_util_bounded"][..]),
        ("--no-llc-imbalance", &["llc_imbalance_kept"][..]),
        ("--no-numa-imbalance", &["numa_imbalance_local", "numa_imbalance_spread"][..]),
        ("--preempt-us 0", &["preempted"][..]),
    ] {
        assert!(sum(&on, names) > 0, "{names:?} with everything on: {on:?}");
        let off = counted(&mut guest, switch, work);
        assert_eq!(sum(&off, names), 0, "{switch}: {off:?}");
    }
}

#[test]
fn it_works_with_one_llc_with_smt_and_with_many_nodes() {
    let Some(cache) = prepared("other machines") else { return };
    for machine in ["node:1 l3:1 core:4 pu:1", "2n2l2c2t", "4n2l2c"] {
        let mut guest = told(Guest::boot(&cache, &spec(machine, "7.2")));
        let all = counted(&mut guest, "", "hackbench -g 2 -l 50");
        assert!(all["direct"] > 0 && all["queued"] > 0, "{machine}: {all:?}");
        if machine.starts_with("node:1") {
            let elsewhere = ["llc_migrations", "node_migrations", "llc_stolen", "llc_spilled"];
            assert!(elsewhere.iter().all(|&name| !all.contains_key(name)), "{all:?}");
        }
    }
}

/// Sets of tasks and what they did, from `sample` lines: on each of two nodes of eight CPUs, the
/// samples in which a task was there.
fn samples(text: &str) -> BTreeMap<String, [u64; 2]> {
    let mut all = BTreeMap::<String, [u64; 2]>::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("sample ")) {
        let mut words = line.split_whitespace();
        let on = all.entry(words.next().unwrap().to_owned()).or_default();
        for cpu in words {
            on[usize::from(cpu.parse::<u32>().unwrap() >= 8)] += 1;
        }
    }
    all
}

/// The least share of a set's samples that are on its main node, and how many sets have node 0 as that.
fn gathered(all: &BTreeMap<String, [u64; 2]>) -> (f64, usize) {
    let share = |on: &[u64; 2]| on[0].max(on[1]) as f64 / (on[0] + on[1]).max(1) as f64;
    (all.values().map(share).fold(1.0, f64::min), all.values().filter(|on| on[0] > on[1]).count())
}

const FOUR_GROUPS: &str = r#"
for g in a b c d; do loops $g 4; done
sleep 120
( while :; do hackbench -g 1 -l 20 >/dev/null; sleep 0.2; done ) & P="$P $!"
sampled 60 groups a b c d
end
"#;

/// Four groups of four busy loops settle, two on each node, and stay there under wakeups.
#[test]
#[ignore = "known miss: two a node, but 79 to 96% of each group there, not 95 (docs/live.md)"]
fn four_groups_settle_on_two_nodes() {
    let Some(cache) = prepared("groups that settle") else { return };
    let mut guest = told(Guest::boot(&cache, &spec("2n2l4c", "7.2")));
    let script = |options: &str| format!("start {options}\n{FOUR_GROUPS}\nstop; tail -1 out");
    let text = text(&told(guest.run(&long_job(&script("")))));
    let all = samples(&text);
    assert_eq!(all.len(), 4, "{text}");
    let (least, on_first) = gathered(&all);
    assert!(least >= 0.95 && on_first == 2, "{all:?}\n{text}");
    let on = counters(text.lines().last().unwrap());
    for name in ["cling_settled", "cling_moves", "cling_held"] {
        assert!(on.contains_key(name), "no {name}: {on:?}");
    }
}

/// The counters of `cling` and `consolidate` stay at zero when they are off.
#[test]
fn sets_do_not_settle_when_that_is_off() {
    let Some(cache) = prepared("cling and consolidate switched off") else { return };
    let mut guest = told(Guest::boot(&cache, &spec("2n2l4c", "7.2")));
    let work =
        "for g in a b; do loops $g 4; done; sysbench cpu --threads=8 --time=20 run >/dev/null; end";
    for (switch, prefix) in [("--no-cling", "cling_"), ("--no-consolidate", "consolidate_")] {
        let all = counted(&mut guest, switch, work);
        assert!(!all.keys().any(|name| name.starts_with(prefix)), "{switch}: {all:?}");
        let settled = ["cling_settled", "consolidate_settled"];
        assert!(settled.iter().any(|&name| all.contains_key(name)), "{switch}: {all:?}");
    }
}

/// Three groups of six cannot all have a node of eight CPUs: failures are counted, and nobody idles.
#[test]
fn three_groups_of_six_do_not_leave_cpus_idle() {
    let Some(cache) = prepared("groups that do not fit") else { return };
    let mut guest = told(Guest::boot(&cache, &spec("2n2l4c", "7.2")));
    let work = "for g in a b c; do loops $g 6; done; sleep 10; grep ^cpu /proc/stat >before; \
                sleep 60; grep ^cpu /proc/stat >after; end";
    let script = format!("start; {work}; stop; tail -1 out; paste -d' ' before after");
    let text = text(&told(guest.run(&long_job(&script))));
    let on = counters(text.lines().find(|line| line.contains("ttwu_count=")).unwrap());
    assert!(on.contains_key("cling_failed"), "{on:?}");
    for line in text.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu ")) {
        let words: Vec<u64> =
            line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let (before, after) = words.split_at(words.len() / 2);
        let all: u64 = after.iter().sum::<u64>() - before.iter().sum::<u64>();
        let idle = after[3] - before[3];
        assert!(idle * 100 <= all * 2, "idle for {idle} of {all} ticks: {line}\n{text}");
    }
}

/// Two processes of eight busy threads each come to have a node each.
#[test]
fn two_processes_come_to_have_a_node_each() {
    let Some(cache) = prepared("processes that settle") else { return };
    let mut guest = told(Guest::boot(&cache, &spec("2n2l4c", "7.2")));
    let work = "for i in 1 2; do sysbench cpu --threads=8 --time=60 run >/dev/null & done; sleep 30; \
                sampled 20 processes; wait $(jobs -p | tail -2)";
    let text = text(&told(guest.run(&long_job(&format!("start; {work}; stop; tail -1 out")))));
    let all = samples(&text);
    assert_eq!(all.len(), 2, "{text}");
    let (least, on_first) = gathered(&all);
    assert!(least >= 0.9 && on_first == 1, "{all:?}\n{text}");
    let on = counters(text.lines().last().unwrap());
    assert!(on.contains_key("consolidate_settled"), "{on:?}");
}

/// CPU time of cgroups of weight 100 and 300, and the same under the fair class.
#[test]
fn cgroups_share_by_weight() {
    let Some(cache) = prepared("weights of cgroups") else { return };
    let script = r#"
echo +cpu >$G/cgroup.subtree_control; mkdir $G/a $G/b; echo 300 >$G/b/cpu.weight
measure() { loops a 4; loops b 4; sleep 2; a=$(used a) b=$(used b); sleep 4; echo $1 $(($(used b) - b)) $(($(used a) - a)); end; }
measure fair
start; measure roost; stop
"#;
    let spec = spec("node:1 l3:1 core:4 pu:1", "7.2");
    let run = told(exact::run(&cache, &spec, &[long_job(script)]));
    let text = text(&run.results[0]);
    let ratio = |name: &str| {
        let line =
            text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{text}"));
        let used: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        used[0] / used[1]
    };
    let (fair, roost) = (ratio("fair"), ratio("roost"));
    assert!((roost / fair - 1.0).abs() <= 0.05, "fair {fair}, roost {roost}");
}
