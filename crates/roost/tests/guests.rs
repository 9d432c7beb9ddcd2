//! Tests of `roost` with real kernels. `make test-vm` runs them, because they need minutes, and packages from the
//! network or a prepared cache.
//!
//! If guests or clang are not available, the tests fail and say how to leave them out. Tests named `sched_ext` need
//! clang. Functions named `program_` are not tests: a guest runs them.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

// Guests are x86-64 only.
#[cfg(target_arch = "x86_64")]
mod moved;
mod page;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use roost_vm::{Cache, Given, Guest, GuestSpec, Job, Pieces};
use serde_json::{Value, json};
use tempfile::TempDir;

fn roost(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_roost")).args(arguments).output().unwrap()
}

/// A prepared cache.
fn cache() -> Cache {
    let cache = Cache::of_user().unwrap();
    let pieces = Pieces::prepare(&cache, &Given::default(), &mut |line| eprintln!("{line}"));
    pieces.unwrap_or_else(|error| {
        panic!("no guests on this host (make test-vm WITHOUT=guests leaves them out): {error}")
    });
    cache
}

fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{:?}\n{out}\n{err}", output.status)
}

/// Writes a sched_ext scheduler as a program: a script that contains the object, registers it with bpftool, and runs
/// `then` while the scheduler is loaded.
fn minimal_scheduler(folder: &Path, then: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/minimal.bpf.c");
    let object = folder.join("minimal.bpf.o");
    let compilers = ["clang", "clang-19", "clang-18", "clang-14"];
    let compiled = compilers.iter().any(|clang| {
        let mut command = Command::new(clang);
        command.args(["-target", "bpf", "-O2", "-g", "-c"]).arg(&source).arg("-o").arg(&object);
        command.status().is_ok_and(|status| status.success())
    });
    assert!(
        compiled,
        "no clang that builds {} (apt-get install clang; make test-vm WITHOUT=clang leaves out \
         what needs it)",
        source.display()
    );
    let encoded = Command::new("base64").arg(&object).output().unwrap().stdout;
    let script = format!(
        "#!/bin/bash\nlink=/sys/fs/bpf/minimal_$$ object=$(mktemp)\n\
         base64 -d >\"$object\" <<'END'\n{}END\nmkdir $link\n\
         trap 'rm -r $link; exit 0' INT TERM\n\
         bpftool struct_ops register \"$object\" $link || exit 1\n{then}\n\
         while :; do sleep 1 & wait $!; done\n",
        String::from_utf8(encoded).unwrap()
    );
    let program = folder.join("scx_minimal");
    std::fs::write(&program, script).unwrap();
    program
}

const SMALL: &str = "hackbench:groups=1,loops=20";

#[test]
#[ignore = "boots a guest: make test-vm"]
fn a_sched_ext_scheduler_is_loaded_and_unloaded_between_runs_of_the_fair_class() {
    cache();
    let folder = TempDir::new().unwrap();
    let program = minimal_scheduler(folder.path(), "");
    let program = program.to_str().unwrap();
    // The order is fair, minimal, minimal, fair. If the scheduler stayed loaded, the next run would report that.
    let output = roost(&[
        "compare",
        "--on",
        "vm",
        "--machine",
        "2n1l2m2c2t",
        "--workload",
        SMALL,
        "--repeat",
        "2",
        "--format",
        "json",
        "fair@7.2",
        program,
    ]);
    assert!(output.status.success(), "{}", text(&output));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["place"], "guest");
    let kernels = json["kernels"].as_array().unwrap();
    assert!(
        kernels[0].as_str().unwrap().starts_with("7.2") && kernels[1] == kernels[0],
        "{kernels:?}"
    );
    let counters = json["counters"].to_string();
    assert!(counters.contains("migrations_node") && counters.contains("MC.lb_count.newidle"));
}

#[test]
#[ignore = "boots a guest: make test-vm"]
fn a_sched_ext_scheduler_that_goes_away_fails_the_run_by_name() {
    cache();
    let folder = TempDir::new().unwrap();
    let program = minimal_scheduler(folder.path(), "sleep 3; rm -r $link");
    let workload = folder.path().join("long.json");
    let long = "{\"tasks\": {\"a\": {\"run\": 1000, \"sleep\": 1000}}, \"global\": \
                {\"duration\": 60, \"calibration\": 100}}";
    std::fs::write(&workload, long).unwrap();
    let workload = workload.to_str().unwrap();
    let output = roost(&[
        "compare",
        "--on",
        "vm",
        "--machine",
        "2n1l2m2c2t",
        "--workload",
        workload,
        "--repeat",
        "1",
        program.to_str().unwrap(),
    ]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(error.contains("scx_minimal: the kernel disabled the scheduler minimal"), "{error}");
}

#[test]
#[ignore = "boots a guest: make test-vm"]
fn an_unknown_setting_is_answered_with_those_of_the_kernel() {
    cache();
    let output = roost(&[
        "compare",
        "--on",
        "vm",
        "--machine",
        "node:1 core:2 pu:1",
        "--workload",
        SMALL,
        "--repeat",
        "1",
        "fair@7.2+no-such-thing",
    ]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("no such-thing") && error.contains("sis-util"), "{error}");
    // On some hosts KVM exists but fails.
    let told = error.lines().filter(|line| !line.ends_with("booting without KVM")).count();
    assert_eq!(told, 1, "{error}");
}

/// One scenario on one machine with few repeats. This checks that both sides count the same things, not the bars.
#[test]
#[ignore = "boots a guest: make test-vm"]
fn a_scenario_on_both_sides() {
    let [sim, real] = means_of_both_sides("fair@7.2", "wakeups");
    // Timers wake all 24 tasks. The number of wakeups does not depend on where the tasks run.
    assert!(real > 1000.0 && (sim - real).abs() < real / 10.0, "simulated {sim}, real {real}");
}

/// hackbench beside the real one, for less than a second. What a run counts follows from its arguments.
#[test]
#[ignore = "boots a guest: make test-vm"]
fn a_benchmark_beside_its_program() {
    cache();
    let spec = "hackbench:groups=1,loops=20,pipe";
    let output = roost(&["validate", "--workloads", spec, "--repeat", "1", "--format", "json"]);
    // One short run may miss the tolerance.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", text(&output));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let workload = &document["workloads"][0];
    assert_eq!((&workload["workload"], &workload["operation"]), (&json!(spec), &json!("message")));
    let real = |index: usize| workload["counters"][index]["real"].as_f64().unwrap();
    let [wakeups, switches, sleeps] = [0, 1, 2].map(real);
    // Each of 40 tasks sleeps at the gate, but no task sleeps more than twice for a message of 8,000.
    assert!(sleeps > 40.0 / 8_000.0 && sleeps < 2.0 && switches > sleeps, "{workload}");
    assert!((wakeups - sleeps).abs() < sleeps / 4.0, "who sleeps is woken: {workload}");
}

/// Two databases, twice in one guest: the first run must leave nothing behind. Neither end of a connection sleeps more
/// than once for each of a transaction's 20 statements, and one of them nearly always does. Opening a connection takes
/// about 15 more exchanges, for which a transaction more is allowed.
#[test]
#[ignore = "boots a guest: make test-vm"]
fn databases_beside_their_client() {
    cache();
    let spec = "sysbench-oltp:instances=2,threads=1";
    let output = roost(&["validate", "--workloads", spec, "--repeat", "2", "--format", "json"]);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", text(&output));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let workload = &document["workloads"][0];
    assert_eq!(workload["operation"], "transaction", "{}", text(&output));
    let sleeps = &workload["counters"][2];
    assert_eq!((&sleeps["counter"], &sleeps["real_runs"]), (&json!("sleeps"), &json!(2)));
    let each = sleeps["real"].as_f64().unwrap();
    assert!(each > 18.0 && each < 2.0 * 40.0, "{workload}");
}

/// The same with the live scheduler's program, which counts by itself.
#[test]
#[ignore = "boots a guest, and needs scx_roost in $PATH: make test-live"]
fn live_scheduler_on_both_sides() {
    let [sim, real] = means_of_both_sides("roost", "roost_ttwu_count");
    // The program also counts what runs beside the tasks.
    assert!(real > 1000.0 && (sim - real).abs() < real / 10.0, "simulated {sim}, real {real}");
}

/// Simulated and real mean of a quantity in the scenario `below` on 2n2l4c.
fn means_of_both_sides(scheduler: &str, wanted: &str) -> [f64; 2] {
    cache();
    let output = roost(&[
        "validate",
        "--scheduler",
        scheduler,
        "--machine",
        "2n2l4c",
        "--scenario",
        "below",
        "--repeat",
        "2",
        "--format",
        "csv",
    ]);
    // The bars need more than two repeats.
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let mut rows = csv::Reader::from_reader(output.stdout.as_slice());
    let header = rows.headers().unwrap().clone();
    let column = |name: &str| header.iter().position(|column| column == name).unwrap();
    let (quantity, sim, real) = (column("quantity"), column("sim_mean"), column("real_mean"));
    let row = rows.records().map(Result::unwrap).find(|row| &row[quantity] == wanted).unwrap();
    [sim, real].map(|index| row[index].parse::<f64>().unwrap())
}

/// A script for the guest: checks that `--on host` leaves the machine as it was, and writes pages.
const ON_HOST: &str = r#"
state() {
	cat /sys/kernel/debug/sched/features /proc/sys/kernel/sched_schedstats
	cat /sys/kernel/tracing/synthetic_events
	ls /sys/kernel/tracing/instances /tmp
}
state >before
echo "== root"
./roost compare --on host --workload hackbench:groups=1,loops=20 --repeat 2 --counters \
	--html "$ROOST_OUT/root.html" fair fair+no-sis-util || exit
unchanged() {
	state >after
	[ "$(cat before)" = "$(cat after)" ] || { cat before after; exit 9; }
}
unchanged
echo "== interrupted"
echo '{"tasks": {"a": {"run": 1000, "sleep": 1000}}, "global": {"duration": 60, "calibration": 100}}' >long.json
for signal in INT TERM KILL; do
	./roost compare --on host --workload long.json --repeat 1 fair+no-sis-util 2>errors &
	roost=$!
	until grep -q NO_SIS_UTIL /sys/kernel/debug/sched/features && pgrep rt-app >/dev/null; do sleep 0.1; done
	kill -$signal $roost
	wait $roost
	echo "$signal: $?"
	while pgrep -f measure.sh >/dev/null; do sleep 0.1; done
	unchanged
done
echo "== user"
chmod 755 .
mkdir -m 777 pages
setpriv --reuid=65534 --regid=65534 --clear-groups ./roost compare --on host \
	--workload hackbench:groups=1,loops=20 --repeat 1 --counters --html pages/user.html fair || exit
cp pages/user.html "$ROOST_OUT"
setpriv --reuid=65534 --regid=65534 --clear-groups ./roost compare --on host \
	--workload hackbench --repeat 1 fair+no-sis-util
echo "status $?"
"#;

#[test]
#[ignore = "boots a guest: make test-vm"]
fn on_host_restores_what_it_changed_and_writes_pages() {
    let machine = roost_machine::resolve("2n1l2m2c2t").unwrap();
    let mut guest = Guest::boot(&cache(), &GuestSpec::new(&machine)).unwrap();
    let job = Job::script(ON_HOST).with_file("roost", Path::new(env!("CARGO_BIN_EXE_roost")));
    let result = guest.run(&job).unwrap();
    let out = String::from_utf8_lossy(&result.stdout).into_owned();
    let all = format!("{out}\n{}", String::from_utf8_lossy(&result.stderr));
    assert_eq!(result.status, 0, "{all}");
    for told in ["migrations_node", "INT: 130", "TERM: 130", "KILL: 137", "status 2"] {
        assert!(out.contains(told), "no {told}: {all}");
    }
    let release = guest.survey().release.clone();
    for told in [
        "run on this host by roost",
        &format!("fair+no-sis-util: Linux {release} with no-sis-util"),
    ] {
        assert!(out.contains(told), "no {told}: {all}");
    }
    let as_user = out.split("== user").nth(1).unwrap();
    assert!(as_user.contains("context_switches") && !as_user.contains("migrations_node"), "{all}");
    assert!(all.contains("only root may change"), "{all}");
    let [root, user] = ["root.html", "user.html"]
        .map(|name| page::data(&std::fs::read_to_string(result.out().join(name)).unwrap()));
    has_all_parts(&root, &["fair", "fair+no-sis-util"], machine.nr_cpus());
    assert_eq!((&user["timelines"], user["lacks"].as_array().unwrap().len()), (&json!([null]), 2));
    assert!(
        user["lacks"][1].as_str().unwrap().contains("only root can trace"),
        "{}",
        user["lacks"]
    );
}

/// The sum over a table of numbers.
fn sum(rows: &Value) -> u64 {
    let rows = rows.as_array().unwrap().iter();
    rows.flat_map(|row| row.as_array().unwrap()).map(|cell| cell.as_u64().unwrap()).sum()
}

/// A page of hackbench on a real kernel has all parts but memory, and says why that is left out.
fn has_all_parts(page: &Value, schedulers: &[&str], cpus: usize) {
    let names: Vec<_> = page["schedulers"].as_array().unwrap().iter().map(|s| &s["name"]).collect();
    assert_eq!(names, schedulers);
    assert_eq!(page["lacks"].as_array().unwrap().len(), 1, "{}", page["lacks"]);
    assert!(page["lacks"][0].as_str().unwrap().contains("which memory"), "{}", page["lacks"]);
    let count = |list: &Value| list.as_array().map_or(0, Vec::len);
    assert!(count(&page["metrics"]) > 0 && count(&page["counters"]) > 20, "{}", page["counters"]);
    assert!(page["command"].as_str().unwrap().contains("--on host"), "{}", page["command"]);
    let tasks = page["tasks"].as_array().unwrap();
    let is_hackbench = |task: &Value| task["name"].as_str().unwrap().ends_with(" hackbench");
    assert!(tasks.iter().any(is_hackbench), "a process: {tasks:?}");
    for run in page["timelines"].as_array().unwrap() {
        let [running, waiting] = [&run["cpus"]["running"], &run["cpus"]["waiting"]];
        assert_eq!([count(running), count(waiting)], [cpus, cpus]);
        for cells in [running, waiting, &run["migrations"]] {
            assert!(sum(cells) > 0, "{cells}");
        }
        for latency in [&run["wakeup_latency"], &run["run_delay"]] {
            assert!(latency["count"].as_u64().unwrap() > 100, "{latency}");
            assert_eq!(count(&latency["us"]), count(&page["percentiles"]), "{latency}");
        }
        assert!(run["memory"].is_null() && count(&run["accesses"]) == 0);
    }
}
