//! Tests the scheduler in real kernels. `make test-live` runs them, because they need minutes, and packages from the
//! network or a prepared cache. They fail if guests are not available.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::{cache, counters, job, number_after, on_each_kernel, spec, text, told};
use roost_vm::{Guest, Job, exact};

/// Starts busy loops in cgroups.
const SETS: &str = r#"
G=/sys/fs/cgroup
loops() {
  mkdir -p $G/$1
  for t in $(seq $2); do ( echo $BASHPID >$G/$1/cgroup.procs; while :; do :; done ) & P="$P $!"; done
}
end() { kill $P; wait $P 2>/dev/null; P=; }
"#;

/// A job with [`SETS`], which takes minutes.
fn long_job(script: &str) -> Job {
    job(&format!("{SETS}\n{script}")).within(Duration::from_secs(1800))
}

const LIFE: &str = r#"
start; cat err
hackbench -g 2 -l 50 >/dev/null && echo hackbench ran
stress-ng --cpu 20 --cpu-method loop --timeout 3 --temp-path /tmp >/dev/null 2>&1 && echo stress ran
grep -h SKIP_EXITING /sys/kernel/sched_ext/root/events
for signal in INT TERM KILL; do stop $signal; echo after $signal: $(state); start; done
./scx_roost; echo second: $?
setpriv --reuid 1000 --clear-groups ./scx_roost; echo user: $?
./scx_roost --monitor 1 >monitored 2>&1 & monitor=$!
for i in $(seq 100); do [ -s monitored ] && break; sleep 0.1; done
kill $monitor; grep -q ttwu_count monitored && echo monitored || cat monitored
cpu3=/sys/devices/system/cpu/cpu3/online
echo 0 >$cpu3; hackbench -g 1 -l 20 >/dev/null && echo hackbench ran with $(nproc) CPUs
echo 1 >$cpu3; hackbench -g 1 -l 20 >/dev/null && echo hackbench ran with $(nproc) CPUs
echo gone and back: $(state), $(grep -c schedules err) start
stop; echo 0 >$cpu3; start; echo 1 >$cpu3
for i in $(seq 100); do [ $(grep -c schedules err) = 2 ] && break; sleep 0.1; done
echo new: $(state), $(grep -c schedules err) starts; grep 'starting again' err
stop; cat err; state
"#;

fn it_loads_schedules_and_leaves(kernel: &str) {
    let cache = cache();
    let mut guest = told(Guest::boot(&cache, &spec("2n2l4c", kernel)));
    let text = text(&told(guest.run(&job(LIFE))));
    assert!(number_after(&text, "loaded in ") < 5000.0, "{kernel}: {text}");
    for what in [
        "hackbench ran\n",
        "stress ran",
        // The kernel queues exiting tasks like others.
        "SCX_EV_ENQ_SKIP_EXITING 0\n",
        "after INT: disabled",
        "after TERM: disabled",
        "after KILL: disabled",
        "the sched_ext scheduler roost",
        "second: 3",
        "needs root",
        "user: 3",
        "monitored\n",
        "hackbench ran with 15 CPUs",
        "hackbench ran with 16 CPUs",
        "gone and back: enabled, 1 start\n",
        "new: enabled, 2 starts\n",
        "CPU 3 is new: starting again",
    ] {
        assert!(text.contains(what), "{kernel}: no {what:?} in\n{text}");
    }
}

/// Runs `work` under the scheduler with `options`, and returns the counters.
fn counted(guest: &mut Guest, options: &str, work: &str) -> BTreeMap<String, u64> {
    let script = format!("start {options}; {work} >/dev/null 2>&1; stop; tail -1 out; cat err >&2");
    let result = told(guest.run(&long_job(&script)));
    let all = counters(&String::from_utf8_lossy(&result.stdout));
    assert!(all.get("ttwu_count").is_some_and(|&n| n > 0), "{options}: {}", text(&result));
    all
}

/// Each mechanism's counter moves if the mechanism is on, and only then.
fn mechanisms_act_when_on_and_not_when_off(kernel: &str) {
    let cache = cache();
    let mut guest = told(Guest::boot(&cache, &spec("2n2l4c", kernel)));
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

fn it_works_with_one_llc_with_smt_and_with_many_nodes(kernel: &str) {
    let cache = cache();
    for machine in ["node:1 l3:1 core:4 pu:1", "2n2l2c2t", "4n2l2c"] {
        let mut guest = told(Guest::boot(&cache, &spec(machine, kernel)));
        let all = counted(&mut guest, "", "hackbench -g 2 -l 50");
        assert!(all["direct"] > 0 && all["queued"] > 0, "{machine}: {all:?}");
        if machine.starts_with("node:1") {
            let elsewhere = ["llc_migrations", "node_migrations", "llc_stolen", "llc_spilled"];
            assert!(elsewhere.iter().all(|&name| !all.contains_key(name)), "{all:?}");
        }
    }
}

/// The counters of `cling` and `consolidate` stay 0 if both are off.
fn sets_do_not_settle_when_that_is_off(kernel: &str) {
    let cache = cache();
    let mut guest = told(Guest::boot(&cache, &spec("2n2l4c", kernel)));
    let work =
        "for g in a b; do loops $g 4; done; sysbench cpu --threads=8 --time=20 run >/dev/null; end";
    for (switch, prefix) in [("--no-cling", "cling_"), ("--no-consolidate", "consolidate_")] {
        let all = counted(&mut guest, switch, work);
        assert!(!all.keys().any(|name| name.starts_with(prefix)), "{switch}: {all:?}");
        let settled = ["cling_settled", "consolidate_settled"];
        assert!(settled.iter().any(|&name| all.contains_key(name)), "{switch}: {all:?}");
    }
}

/// Compares CPU time of cgroups with weights 300 and 100, and of tasks with nice 0 and 5 in one cgroup, with the fair
/// class. The shell itself reads the times: a separate process would have to wait for its turn between two readings. In
/// 4 s, either class was off by up to 5%.
fn weights_share_as_in_the_fair_class(kernel: &str) {
    let cache = cache();
    let script = r#"
echo +cpu >$G/cgroup.subtree_control; mkdir $G/a $G/b; echo 300 >$G/b/cpu.weight
used() { read -r _ y <$G/a/cpu.stat; read -r _ x <$G/b/cpu.stat; }
ran() { x=0 y=0; for p in $a; do read -r ns _ </proc/$p/schedstat; x=$((x + ns)); done
	for p in $b; do read -r ns _ </proc/$p/schedstat; y=$((y + ns)); done; }
measure() { sleep 2; $2; X=$x Y=$y; sleep 16; $2; echo $1 $((x - X)) $((y - Y)); end; }
cgroups() { loops a 4; loops b 4; measure "$1 cgroups" used; }
nice() { loops n 4; a=$P; loops n 4; b=${P#$a}; renice -n 5 -p $b >/dev/null; measure "$1 nice" ran; }
cgroups fair; nice fair
start; cgroups roost; nice roost; stop
"#;
    let spec = spec("node:1 l3:1 core:4 pu:1", kernel);
    let run = told(exact::run(&cache, &spec, &[long_job(script)]));
    let text = text(&run.results[0]);
    let ratio = |line: &str| {
        let line =
            text.lines().find(|known| known.starts_with(line)).unwrap_or_else(|| panic!("{text}"));
        let used: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        used[0] / used[1]
    };
    for of in ["cgroups", "nice"] {
        let (fair, roost) = (ratio(&format!("fair {of}")), ratio(&format!("roost {of}")));
        eprintln!("{kernel}, {of}: fair {fair:.3}, roost {roost:.3}");
        assert!((roost / fair - 1.0).abs() <= 0.05, "{of}: fair {fair}, roost {roost}");
    }
}

on_each_kernel!(
    it_loads_schedules_and_leaves,
    mechanisms_act_when_on_and_not_when_off,
    it_works_with_one_llc_with_smt_and_with_many_nodes,
    sets_do_not_settle_when_that_is_off,
    weights_share_as_in_the_fair_class
);
