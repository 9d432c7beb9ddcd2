//! The scheduler in real kernels. They run with `make test-live` (ROOST_VM=1), as they need packages
//! from the network or a prepared cache, and minutes.
//!
//! Where a guest cannot be had at all, each test says what it skipped and why.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::collections::BTreeMap;

use common::{KERNELS, counters, job, number_after, prepared, spec, text, told};
use roost_vm::Guest;

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
    let result = told(guest.run(&job(&script)));
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
