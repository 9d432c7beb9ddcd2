//! The scheduler in real kernels. They run with `make test-live` (ROOST_VM=1), as they need packages
//! from the network or a prepared cache, and minutes.
//!
//! Where a guest cannot be had at all, each test says what it skipped and why.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::path::Path;

use roost_vm::{Cache, Given, Guest, GuestSpec, Job, JobResult, Pieces, VmError};

/// The newest kernel that is tested and the oldest in the archive that has sched_ext.
const KERNELS: [&str; 2] = ["7.2", "6.16"];

/// What every job begins with: `start` waits until the scheduler runs, `stop` until it has gone, with
/// its output in the files `out` and `err`.
const FUNCTIONS: &str = r#"
mount -t tmpfs run /var/run
state() { cat /sys/kernel/sched_ext/state; }
await() { for i in $(seq 300); do [ "$(state)" = "$1" ] && return; sleep 0.1; done; echo "state: $(state)"; }
start() { ./scx_roost --stats 3600 "$@" >out 2>err & roost=$!; await enabled; }
stop() { kill "-${1:-INT}" $roost; wait $roost 2>/dev/null; await disabled; }
"#;

/// A prepared cache; `None`, after saying why, where `what` has to be skipped.
fn prepared(what: &str) -> Option<Cache> {
    let skip = |why: &str| {
        eprintln!("SKIPPED {what}: {why}");
        None
    };
    if std::env::var_os("ROOST_VM").is_none_or(|value| value != "1") {
        return skip("guests are booted by `make test-live` only (ROOST_VM=1)");
    }
    let cache = Cache::of_user().unwrap();
    for kernel in KERNELS {
        match Pieces::prepare(&cache, &given(kernel), &mut |line| eprintln!("{line}")) {
            Ok(_) => {}
            Err(
                error @ (VmError::Offline { .. } | VmError::NoApt { .. } | VmError::Tool { .. }),
            ) => {
                return skip(&error.to_string());
            }
            Err(error) => panic!("{error}"),
        }
    }
    Some(cache)
}

fn given(kernel: &str) -> Given {
    Given { kernel: Some(kernel.to_owned()), ..Given::default() }
}

fn spec(machine: &str, kernel: &str) -> GuestSpec {
    let mut spec = GuestSpec::new(&roost_machine::resolve(machine).unwrap());
    spec.given = given(kernel);
    spec
}

fn job(script: &str) -> Job {
    Job::script(format!("{FUNCTIONS}\n{script}"))
        .with_file("scx_roost", Path::new(env!("CARGO_BIN_EXE_scx_roost")))
}

/// Ends the test with all that is known about a failed guest.
fn told<T>(result: Result<T, VmError>) -> T {
    result.unwrap_or_else(|error| panic!("{error}\n{}", error.console().join("\n")))
}

fn text(result: &JobResult) -> String {
    let [out, err] = [&result.stdout, &result.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{out}{err}")
}

/// The counters in a line of statistics.
fn counters(line: &str) -> BTreeMap<String, u64> {
    let pairs = line.split_whitespace().filter_map(|pair| pair.split_once('='));
    pairs.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
}

/// The number after `before` in a text.
fn number_after(text: &str, before: &str) -> f64 {
    let rest = text.split_once(before).unwrap_or_else(|| panic!("no {before:?} in {text}")).1;
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    rest[..end].parse().unwrap_or_else(|_| panic!("no number after {before:?} in {text}"))
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
