//! Tests the program as users meet it. Every command and example works, every format is what it claims to be, the same
//! command prints the same bytes, and every mistake is reported in one line with the right exit status.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::fd::FromRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const ROOST: &str = env!("CARGO_BIN_EXE_roost");

fn roost(args: &[&str]) -> Output {
    assert_cmd::Command::new(ROOST).args(args).output().unwrap()
}

/// Standard output of a command that must succeed and print nothing on standard error. Progress bars are not printed
/// either, because standard error is no terminal here.
fn succeeds(args: &[&str]) -> String {
    let output = roost(args);
    assert_succeeded(&output, &format!("{args:?}"));
    texts(&output).0
}

/// On a busy host a run may take so long that roost tells how long before it starts.
fn assert_succeeded(output: &Output, what: &str) {
    let (_, stderr) = texts(output);
    let quiet = stderr.lines().all(|line| line.starts_with("roost: the runs take about "));
    assert!(output.status.success() && quiet, "{what}: {stderr}");
}

/// The one line on standard error of a command that must fail with `status` and print nothing else.
fn fails(args: &[&str], status: i32) -> String {
    let output = roost(args);
    let (stdout, stderr) = texts(&output);
    assert_eq!(output.status.code(), Some(status), "{args:?}: {stderr}");
    assert!(stdout.is_empty(), "{args:?}: {stdout}");
    assert_one_line(&stderr, &format!("{args:?}"));
    stderr
}

fn assert_one_line(stderr: &str, what: &str) {
    assert!(stderr.starts_with("roost: "), "{what}: {stderr}");
    assert_eq!(stderr.matches('\n').count(), 1, "{what}: {stderr}");
    assert!(stderr.ends_with('\n') && stderr.len() < 1000, "{what}: {stderr}");
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

fn git(arguments: &[&str]) -> Option<String> {
    let here = env!("CARGO_MANIFEST_DIR");
    let output = Command::new("git").arg("-C").arg(here).args(arguments).output().ok()?;
    output.status.success().then(|| texts(&output).0.trim().to_owned())
}

/// The commit that this program is built from. `None` if the sources are not a clone.
fn commit() -> Option<String> {
    git(&["ls-files", "--error-unmatch", "Cargo.toml"])?;
    git(&["rev-parse", "HEAD"])
}

/// Whether the sources of this program differ from the commit.
fn is_modified() -> bool {
    let sources =
        [":(top)crates/*/src/**", ":(top,exclude)crates/live", ":(top)policy", ":(top)Cargo.lock"];
    let status = git(&[&["status", "--porcelain", "--"], &sources[..]].concat());
    status.is_some_and(|changes| !changes.is_empty())
}

/// Version and commit as users see them.
fn this_roost() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let modified = if is_modified() { ", modified" } else { "" };
    match commit() {
        Some(commit) => format!("{version} ({}{modified})", &commit[..12]),
        None => version.to_owned(),
    }
}

/// A file or directory of another crate's test data.
fn data(krate: &str, path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(krate).join("tests/data").join(path)
}

/// Files below `dir` that end in `suffix`, in order.
fn files(dir: &Path, suffix: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, suffix));
        } else if path.to_str().unwrap().ends_with(suffix) {
            found.push(path.to_str().unwrap().to_owned());
        }
    }
    found.sort();
    found
}

mod help {
    use super::*;

    #[test]
    fn it_names_every_command_benchmark_and_switch() {
        let top = succeeds(&["--help"]);
        assert!(top.contains("machine") && top.contains("compare") && top.contains("Examples:"));
        let compare = succeeds(&["compare", "--help"]);
        let benchmarks = roost_workload::benchmarks().iter().map(|benchmark| benchmark.name);
        let switches = roost_fair::switches().into_iter().map(|(name, _)| name);
        for name in benchmarks.chain(switches).chain(roost_fair::versions()) {
            assert!(compare.contains(name), "{name} is missing in {compare}");
        }
        assert_eq!(succeeds(&["--version"]), format!("roost {}\n", this_roost()));
        assert_eq!(succeeds(&[]), top, "no command: the help is what helps");
    }

    /// Runs every example as printed, in a directory that has the files it names.
    #[test]
    fn its_examples_work() {
        let directory = tempfile::tempdir().unwrap();
        let copy = |from: PathBuf, to| fs::copy(from, directory.path().join(to)).unwrap();
        copy(data("machine", "AMD-17h-Zen-2xEpyc-7451.xml"), "server.xml");
        copy(data("workload", "rtapp/spreading-tasks.json"), "load.json");
        std::os::unix::fs::symlink("/sys/devices/system", directory.path().join("captured"))
            .unwrap();
        // As the help says. Files of /sys shrink while tar reads them, and tar complains about that.
        let archive = "cat /proc/cpuinfo >cpuinfo; tar czf sys.tgz cpuinfo /sys/devices/system/cpu \
            /sys/devices/system/node; lscpu -p=CPU,CORE,SOCKET,NODE,CACHE >cpus.txt";
        let made = Command::new("sh").args(["-c", archive]).current_dir(directory.path()).output();
        made.unwrap();
        let mut examples = Vec::new();
        for page in [&["--help"][..], &["machine", "--help"], &["compare", "--help"]] {
            let text = succeeds(page).replace("\\\n", " ");
            let lines = text.lines().filter_map(|line| line.strip_prefix("  roost "));
            // What follows two spaces is an explanation, unless the line continues the one before.
            examples.extend(lines.map(|line| match line.contains("fair@") {
                true => line.split_whitespace().collect::<Vec<_>>().join(" "),
                false => line.split("  ").next().unwrap().to_owned(),
            }));
        }
        // A virtual machine needs QEMU and a kernel, which `roost vm` fetches from the network. scx_cosmos is not here
        // either. So these are skipped.
        let elsewhere = ["--on vm", "scx_cosmos"];
        examples.retain(|example| !example.starts_with("vm"));
        examples.retain(|example| !elsewhere.iter().any(|needed| example.contains(needed)));
        assert!(examples.len() >= 9, "{examples:?}");
        for example in examples {
            let output = Command::new("sh")
                .args(["-c", &format!("'{ROOST}' {example}")])
                .current_dir(directory.path())
                .output()
                .unwrap();
            assert_succeeded(&output, &example);
            let (stdout, _) = texts(&output);
            match example.contains("--metric") {
                true => assert!(stdout.trim_end().parse::<f64>().is_ok(), "{example}: {stdout}"),
                false => assert!(stdout.lines().count() > 2, "{example}: {stdout}"),
            }
        }
        assert!(
            directory.path().join("trace-fair@6.15.pftrace").is_file(),
            "an example writes traces"
        );
    }
}

mod machine {
    use super::*;

    fn presets() -> Vec<String> {
        let list = succeeds(&["machine", "--list"]);
        list.lines().map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
    }

    /// Presets, files and this machine load, and show the domains of each version.
    #[test]
    fn every_machine_loads_for_every_version() {
        let captured = data("machine", "");
        let xml: Vec<String> =
            files(&captured, ".xml").into_iter().filter(|f| !f.contains("/bad/")).collect();
        assert_eq!(xml.len(), 7, "{xml:?}");
        let mut machines: Vec<Vec<String>> = vec![vec![], vec!["--sysfs".into(), "/sys".into()]];
        machines.extend(presets().into_iter().chain(xml).map(|name| vec![name]));
        assert!(machines.len() >= 2 + 9 + 7);
        for machine in &machines {
            let with = |more: &[&'static str]| {
                let mut args = vec!["machine"];
                args.extend(machine.iter().map(String::as_str));
                args.extend(more);
                succeeds(&args)
            };
            assert!(with(&[]).contains("node 0"), "{machine:?}");
            assert!(with(&["--figures"]).contains(" ns"), "{machine:?}");
            let rows = with(&["--format", "csv"]).lines().count() - 1;
            for version in roost_fair::versions() {
                let text = with(&["--kernel", version]);
                assert!(text.contains("imbalance_pct") || rows == 1, "{machine:?}: {text}");
                let json = with(&["--kernel", version, "--format", "json"]);
                let json: Value = serde_json::from_str(&json).unwrap();
                assert_eq!(json["cpus"].as_array().unwrap().len(), rows);
                let top = json["domains"].as_array().unwrap().last().unwrap();
                assert_eq!(top["weight"], rows, "{machine:?}: the top domain spans the machine");
            }
        }
    }

    #[test]
    fn domains_are_those_of_the_cpu_asked_for() {
        let shown = succeeds(&["machine", "zen3-2s", "--kernel", "6.15", "--cpu", "131"]);
        assert!(shown.contains("SMT: CPUs 3,131 (2)"), "{shown}");
        // Kernel model 14.1, merged rule: 128 CPUs a node, 8 LLCs of 16 CPUs.
        assert!(shown.contains("limit 8 tasks"), "{shown}");
    }

    #[test]
    fn the_readme_says_how_many_figures_are_assumed() {
        let shown = succeeds(&["machine", "zen3-2s", "--figures"]);
        let sources = ["posted", "derived", "measured", "recalled", "assumption"];
        let of = |source: &str| shown.matches(&format!("  {source}: ")).count();
        let all: usize = sources.into_iter().map(of).sum();
        let words = format!("zen3-2s's {all} figures {} are assumptions", of("assumption"));
        assert!(include_str!("../../../README.md").contains(&words), "{words}");
    }

    #[test]
    fn lists_have_every_format() {
        let list: Value =
            serde_json::from_str(&succeeds(&["machine", "--list", "--format", "json"])).unwrap();
        assert_eq!(list.as_array().unwrap().len(), presets().len());
        assert!(succeeds(&["machine", "--list", "--format", "csv"]).starts_with("name,about\n"));
    }
}

mod compare {
    use super::*;

    /// Three schedulers on two nodes with two LLCs each. This is small, but there is balancing between nodes.
    const SMALL: [&str; 10] = [
        "compare",
        "--machine",
        "node:2 l3:2 core:2 pu:2",
        "--workload",
        "hackbench:groups=1,loops=5",
        "--repeat",
        "3",
        "fair@5.16",
        "fair@5.16+numa-imbalance",
        "fair@7.2",
    ];

    fn small(more: &[&str]) -> String {
        succeeds(&[&SMALL[..], more].concat())
    }

    #[test]
    fn every_format_tells_of_all_schedulers() {
        for format in ["table", "mmtests", "csv", "json"] {
            let text = small(&["--format", format]);
            for scheduler in &SMALL[7..] {
                assert!(text.contains(scheduler), "{format}: {text}");
            }
        }
        let table = small(&[]);
        assert!(table.contains("baseline") && table.contains("\nplacement"), "{table}");
        assert!(table.lines().all(|line| line.len() <= 100), "fits a terminal: {table}");
        let mmtests = small(&["--format", "mmtests"]);
        assert!(mmtests.contains("Amean     Time") && mmtests.contains("(   0.00%)"), "{mmtests}");
        let csv = small(&["--format", "csv"]);
        assert_eq!(csv.lines().count(), 1 + 3 * 3, "three schedulers with three seeds: {csv}");
    }

    /// Each output says what was compared, on which machine and by which roost, even without the command line.
    #[test]
    fn the_experiment_is_in_every_format() {
        let json: Value = serde_json::from_str(&small(&["--format", "json"])).unwrap();
        let short = |name: &str| json[name].as_str().unwrap()[..12].to_owned();
        let roost = this_roost();
        for format in ["table", "mmtests"] {
            let text = small(&["--format", format]);
            let heading: Vec<&str> = text.split("\n\n").next().unwrap().lines().collect();
            assert_eq!(heading[0], format!("simulated by roost {roost}"));
            let machine = short("machine_sha256");
            assert_eq!(heading[1], format!("machine node:2 l3:2 core:2 pu:2 (sha256 {machine})"));
            let workload = short("workload_sha256");
            assert_eq!(
                heading[2],
                format!("workload hackbench:groups=1,loops=5 (sha256 {workload})")
            );
            assert!(heading[3].starts_with("runs of each scheduler: 3, seeds 1 to 3; each 0.00"));
            assert!(heading[3].ends_with(" s, all of it measured"), "{}", heading[3]);
            let switched = "fair@5.16+numa-imbalance: a model of Linux 5.16 with numa-imbalance";
            assert_eq!(heading[4..6], ["fair@5.16: a model of Linux 5.16", switched]);
        }
        let csv = small(&["--format", "csv"]);
        for row in csv::Reader::from_reader(csv.as_bytes()).deserialize() {
            let row: std::collections::BTreeMap<String, String> = row.unwrap();
            assert_eq!(
                (row["place"].as_str(), row["measured_from_ns"].as_str()),
                ("simulated", "0")
            );
            for hash in ["machine_sha256", "workload_sha256"] {
                assert_eq!(row[hash], json[hash].as_str().unwrap());
            }
            let numa_imbalance = row["scheduler"].strip_prefix("fair@5.16+").unwrap_or_default();
            assert_eq!(row["switches"], numa_imbalance);
            assert_eq!(row["kernel"], row["scheduler"][5..].split('+').next().unwrap());
            assert!(row["elapsed_ns"].parse::<u64>().unwrap() > 1_000_000);
            assert_eq!(row["roost"], env!("CARGO_PKG_VERSION"));
            assert!(row["commit"].starts_with(&commit().unwrap_or_default()), "{row:?}");
        }
        assert_eq!(json["place"], "simulated");
        assert_eq!(json["roost"]["commit"].as_str().map(str::to_owned), commit());
        assert_eq!(json["roost"]["modified"], is_modified());
        assert_eq!(json["kernels"], serde_json::json!(["5.16", "5.16", "7.2"]));
        assert_eq!(json["switches"], serde_json::json!([[], ["numa-imbalance"], []]));
        assert_eq!(json["seeds"], serde_json::json!([1, 2, 3]));
        assert_eq!((&json["duration_ns"], &json["measured_from_ns"]), (&Value::Null, &0.into()));
        let wall = json["results"][0]["samples"][2][1].as_f64().unwrap();
        let elapsed = json["elapsed_ns"][2][1].as_f64().unwrap() / 1e9;
        assert!(wall > 0.0 && wall < elapsed, "hackbench creates its tasks before its time begins");
    }

    fn json_of(machine: &str, workload: &str, schedulers: &[&str]) -> Value {
        let args = ["compare", "--machine", machine, "--workload", workload, "--repeat", "1"];
        let args = [&args[..], &["--duration", "200ms", "--format", "json"], schedulers].concat();
        serde_json::from_slice(&roost(&args).stdout).unwrap()
    }

    #[test]
    fn a_switch_that_changes_nothing_says_so() {
        let schedulers = ["fair@7.2", "fair@7.2+sis-util", "fair@7.2+cling", "fair@5.19+sis-util"];
        let json = json_of("node:2 l3:2 core:2 pu:2", "hackbench:groups=1", &schedulers);
        let notes: Vec<Vec<&str>> = json["notes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|notes| notes.as_array().unwrap().iter().map(|n| n.as_str().unwrap()).collect())
            .collect();
        assert!(notes[0].is_empty() && notes[3].is_empty(), "{notes:?}");
        assert_eq!(notes[1], ["+sis-util changes nothing: 7.2 is so already"]);
        assert!(notes[2][0].starts_with("+cling has nothing to act on: it needs"), "{notes:?}");
        // A single thread leaves nothing to balance.
        let json = json_of("2n2l4c", "coremark:threads=1", &["fair@5.16+llc-imbalance"]);
        assert_eq!(json["notes"][0][0], "+llc-imbalance never acted: llc_imbalance_kept = 0");
        let table = succeeds(&[
            "compare",
            "--machine",
            "2n2l4c",
            "--workload",
            "coremark:threads=1",
            "--repeat",
            "1",
            "--duration",
            "50ms",
            "fair@5.16+llc-imbalance",
        ]);
        assert!(table.contains("\n  note: +llc-imbalance never acted"), "{table}");
    }

    /// The table shows the mechanisms' counters next to the result, and run times that add up to `run_ns`.
    #[test]
    fn what_mechanisms_did_and_where_tasks_ran_is_told() {
        let json = json_of(
            "node:2 l3:2 core:2 pu:2",
            "hackbench:groups=2",
            &["fair@3.9", "fair@3.9+llc-imbalance"],
        );
        let counters = &json["counters"];
        let kept = &counters["llc_imbalance_kept"];
        assert!(kept[1].as_f64().unwrap() > 0.0, "{counters}");
        assert_eq!(json["acted"]["llc-imbalance"], *kept);
        let sum = |run: &Value, places: &str| -> u64 {
            run[places].as_array().unwrap().iter().map(|ns| ns.as_u64().unwrap()).sum()
        };
        for run in json["runs"].as_array().unwrap() {
            let all = run["counters"]["run_ns"].as_f64().unwrap() as u64;
            assert_eq!([sum(run, "node_run_ns"), sum(run, "llc_run_ns")], [all, all]);
        }
        let table = small(&[]);
        for section in ["acted (simulated) ", "node% (simulated) ", "LLC% (simulated) "] {
            assert!(table.contains(&format!("\n{section}")), "no {section}: {table}");
        }
        assert!(!table.contains("memory_local%"), "hackbench's memory is not modelled");
        let stream = json_of("2n2l4c", "stream:threads=4", &["fair@7.2"]);
        assert!(stream["counters"]["memory_local_bytes"][0].as_f64().unwrap() > 0.0);
    }

    /// What a terminal with this many columns shows.
    fn on_terminal(columns: u16, args: &[&str]) -> String {
        let (mut master, mut slave) = (0, 0);
        let size = libc::winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the pointers are to variables of the types that openpty writes and reads, or null.
        let opened = unsafe {
            let null = std::ptr::null_mut();
            libc::openpty(&mut master, &mut slave, null, std::ptr::null_mut(), &raw const size as _)
        };
        assert_eq!(opened, 0);
        // SAFETY: openpty opened both, and nobody else closes them.
        let (mut master, slave) =
            unsafe { (fs::File::from_raw_fd(master), fs::File::from_raw_fd(slave)) };
        let mut child = Command::new(ROOST).args(args).stdout(slave).spawn().unwrap();
        let mut bytes = Vec::new();
        // Reading fails once the last process that held the other side has closed it.
        let _ = master.read_to_end(&mut bytes);
        assert!(child.wait().unwrap().success());
        String::from_utf8(bytes).unwrap().replace("\r\n", "\n")
    }

    #[test]
    fn tables_fit_the_terminal() {
        let squeezed = |text: &str| text.split_whitespace().collect::<String>();
        for columns in [60, 80] {
            let text = on_terminal(columns, &[&SMALL[..], &["--counters"]].concat());
            let tables = text.split("\nsis_us").next().unwrap();
            let widest = tables.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= usize::from(columns), "{columns}: {tables}");
            assert!(squeezed(tables).contains("stddev") && tables.contains("baseline"), "{tables}");
        }
    }

    #[test]
    fn metrics_of_instances_are_one_row() {
        let args =
            ["compare", "--machine", "x3950", "--workload", "sysbench-oltp", "--repeat", "1"];
        let table = succeeds(&[&args[..], &["--duration", "300ms", "fair@7.2"]].concat());
        assert!(table.contains("\neps of 0 to 3 ") && !table.contains("\neps of 1 "), "{table}");
        assert!(
            table.contains("\neps of 0 to 3: mean of 4 metrics, which are: fair@7.2 "),
            "{table}"
        );
    }

    /// The hash covers the file's content, not its name. The duration is shown separately.
    #[test]
    fn hashes_tell_whether_two_files_are_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, run: u32| {
            let path = folder.path().join(name);
            let task = format!(r#"{{"run": {run}, "sleep": 100}}"#);
            let text = format!(r#"{{"tasks": {{"t": {task}}}, "global": {{"duration": 1}}}}"#);
            fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let read = |file: &str, duration: &str| {
            let text = succeeds(&[
                "compare",
                "--machine",
                "x3950",
                "--workload",
                file,
                "--repeat",
                "1",
                "--duration",
                duration,
                "--format",
                "json",
                "fair@7.2",
            ]);
            let json: Value = serde_json::from_str(&text).unwrap();
            (
                json["workload_sha256"].clone(),
                json["duration_ns"].as_u64(),
                json["elapsed_ns"].clone(),
            )
        };
        let [one, copy, other] = [("a.json", 50), ("b.json", 50), ("c.json", 51)];
        let first = read(&write(one.0, one.1), "10ms");
        assert_eq!((first.1, &first.2), (Some(10_000_000), &serde_json::json!([[10_000_000]])));
        let second = read(&write(copy.0, copy.1), "20ms");
        assert_eq!((&second.0, second.1), (&first.0, Some(20_000_000)));
        assert_ne!(read(&write(other.0, other.1), "10ms").0, first.0);
    }

    #[test]
    fn counters_come_with_every_format() {
        let names = ["wakeups_prev", "migrations_llc", "sis_scanned", "MC.lb_count.newidle"];
        for format in ["table", "mmtests", "csv", "json"] {
            let text = small(&["--counters", "--format", format]);
            for name in names {
                assert!(text.contains(name), "{format}: {name} is missing in {text}");
            }
        }
        let table = small(&["--counters"]);
        for name in ["placement", "counter", "case"] {
            let corner = format!("\n{name} (simulated)");
            assert!(table.contains(&corner), "{corner} is missing in {table}");
        }
        assert!(table.contains("success_rate%") && !table.contains("NUMA4."), "{table}");
    }

    #[test]
    fn json_is_as_the_schema_says() {
        let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/compare.schema.json");
        let schema: Value = serde_json::from_str(&fs::read_to_string(schema).unwrap()).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let benchmarks = roost_workload::benchmarks().iter().map(|benchmark| benchmark.name);
        for workload in benchmarks {
            // Long enough for the workload to measure something.
            let duration = match workload {
                "perf-bench-numa" => "1s",
                "schbench" | "stream" | "numa01" | "specjbb" => "320ms",
                _ => "40ms",
            };
            let output = roost(&[
                "compare",
                "--machine",
                "xeon-2s-96",
                "--workload",
                workload,
                "--repeat",
                "2",
                "--seed",
                "18446744073709551615",
                "--duration",
                duration,
                "--format",
                "json",
                "fair@5.19",
                "fair@7.2+llc-imbalance",
            ]);
            // A note that hackbench was cut short is allowed.
            let (text, stderr) = texts(&output);
            assert!(output.status.success(), "{workload}: {stderr}");
            let document: Value = serde_json::from_str(&text).unwrap();
            let errors: Vec<_> =
                validator.iter_errors(&document).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{workload}: {errors:?}");
            assert_eq!(document["machine"], "xeon-2s-96");
            assert_eq!(document["workload"], workload);
            assert_eq!(document["seed"], u64::MAX);
            assert_eq!(document["repeats"], 2);
            let results = document["results"].as_array().unwrap();
            assert!(!results.is_empty(), "{workload} measures something");
            for result in results {
                assert_eq!(result["samples"][1].as_array().unwrap().len(), 2, "{workload}");
                assert_eq!(result["change_pct"][0], Value::Null);
            }
        }
    }

    #[test]
    fn the_same_command_prints_the_same_bytes_on_any_number_of_threads() {
        let combinations = [
            ("zen3-2s", "hackbench:groups=2,loops=10", "fair@5.19+sis-util", "table"),
            ("hygon-vm", "iperf3:noise=4", "fair@6.15+llc-imbalance", "json"),
            ("xeon-2s-96", "netperf-tcp-rr:clients=20", "fair@7.2", "json"),
            ("x3950", "schbench:messages=2,workers=12", "fair@7.2+no-delay-dequeue", "csv"),
            ("node:4 l3:2 core:2 pu:2", "tbench:clients=20", "fair@5.16", "mmtests"),
        ];
        for (machine, workload, scheduler, format) in combinations {
            let on = |jobs| {
                succeeds(&[
                    "compare",
                    "--machine",
                    machine,
                    "--workload",
                    workload,
                    "--repeat",
                    "3",
                    "--duration",
                    "100ms",
                    "--counters",
                    "--format",
                    format,
                    "--jobs",
                    jobs,
                    "fair@5.16",
                    scheduler,
                ])
            };
            let one = on("1");
            assert_eq!(one, on("1"), "{machine} {workload}: twice");
            assert_eq!(one, on("4"), "{machine} {workload}: four threads");
        }
    }

    /// Repeats use the seeds that follow the first.
    #[test]
    fn a_seed_changes_the_run() {
        let samples = |seed: &str, repeat: &str| {
            let text = succeeds(&[
                "compare",
                "--machine",
                "x3950",
                "--workload",
                "hackbench:groups=1,loops=5",
                "--seed",
                seed,
                "--repeat",
                repeat,
                "--format",
                "json",
                "fair@7.2",
            ]);
            let json: Value = serde_json::from_str(&text).unwrap();
            json["results"][0]["samples"][0].as_array().unwrap().clone()
        };
        let three = samples("7", "3");
        assert_eq!(three[1..], samples("8", "2"));
        assert!(three[0] != three[1] && three[1] != three[2], "{three:?}");
    }

    #[test]
    fn a_time_that_the_duration_cut_is_not_shown() {
        let time = |duration| {
            let output = roost(&[
                "compare",
                "--workload",
                "hackbench:groups=1,loops=1000",
                "--repeat",
                "1",
                "--duration",
                duration,
                "--format",
                "json",
                "fair@7.2",
            ]);
            let (text, stderr) = texts(&output);
            let json: Value = serde_json::from_str(&text).unwrap();
            (json["results"][0]["mean"][0].as_f64(), stderr)
        };
        let (cut, note) = time("40ms");
        assert!(cut.is_none() && note.contains("--duration"), "{cut:?}: {note}");
        let (whole, nothing) = time("10s");
        assert!(whole.is_some() && nothing.is_empty(), "{whole:?}: {nothing}");
    }

    #[test]
    fn rt_app_files_of_debian_run() {
        let old_or_partial = "/merge/";
        let examples = files(&data("workload", "rtapp"), ".json");
        let complete: Vec<_> =
            examples.iter().filter(|file| !file.contains(old_or_partial)).collect();
        assert!(complete.len() >= 15, "{complete:?}");
        for file in complete {
            let output = roost(&[
                "compare",
                "--workload",
                file,
                "--duration",
                "20s",
                "--repeat",
                "1",
                "--format",
                "csv",
                "fair@5.19",
                "fair@7.2",
            ]);
            let (stdout, stderr) = texts(&output);
            assert!(output.status.success(), "{file}: {stderr}");
            assert!(stdout.contains(",fair@7.2,1,"), "{file}: {stdout}");
            assert!(stderr.lines().all(|line| line.starts_with("roost: note: ")), "{stderr}");
        }
    }
}

mod mistakes {
    use super::*;

    /// Arguments, and what the error line has to contain: the problem and the way out.
    #[test]
    fn each_is_told_in_one_line_with_the_way_out() {
        let cases: &[(&[&str], &[&str])] = &[
            (&["machin"], &["unrecognized subcommand 'machin'", "'machine'", "`roost --help`"]),
            (&["machine", "zen9"], &["zen9: no such machine", "zen3-2s", "machine.xml"]),
            (&["machine", "node:2"], &["column 1", "pu"]),
            (&["machine", "/no/file.xml"], &["/no/file.xml", "give a file that exists"]),
            (&["machine", "--sysfs", "/no/tree"], &["/no/tree", "no such directory", "capture"]),
            (&["machine", "zen3-2s", "--cpu", "1"], &["add --kernel", "`roost machine --help`"]),
            (
                &["compare", "--workload", "hackbench", "scx_cosmos"],
                &["write fair@VERSION", "add --on vm or --on host"],
            ),
            (&["compare", "--workload", "hackbench", "fair"], &["add --on host"]),
            (
                &["compare", "--workload", "hackbench", "fair@6.12"],
                &["known: 3.9", "between 5.19 and 6.15"],
            ),
            (&["validate", "--from", "no.json"], &["no.json", "write one", "--save"]),
            (
                &["validate", "--scheduler", "scx_nobody_has_this"],
                &[
                    "--scheduler scx_nobody_has_this",
                    "neither the simulation nor PATH has it",
                    "roost, with",
                ],
            ),
            (
                &["validate", "--scheduler", "scx:mine.bpf.o"],
                &["--scheduler scx:mine.bpf.o", "a guest has no program", "fair@VERSION and roost"],
            ),
            (&["validate", "--scheduler", "roost+no-such"], &["unknown settings: no-such"]),
            (&["validate", "--scheduler", "fair@6.12"], &["known: 3.9", "between 5.19 and 6.15"]),
            (
                &["validate", "--scheduler", "roost", "--from", "tests/data/linux-7.2.json"],
                &["linux-7.2.json: it has observations of fair@7.2", "add --scheduler fair@7.2"],
            ),
            (
                &["validate", "--scheduler", "roost", "--from", "tests/data/roost-7.2.json"],
                &[
                    "has no observation of ",
                    " on 2n2l4c; ",
                    "it has above, barrier, below, broad, burst50, ",
                    "nice, noise on 1s2n4l2c, 2n2l2c2t, 2n2l4c: name these with --scenario and --machine",
                ],
            ),
            (&["machine", "zen3-2s", "--kernel", "4.4"], &["'4.4'", "known: 3.9, 5.2, 5.16"]),
            (
                &["machine", "zen3-2s", "--kernel", "7.2", "--cpu", "256"],
                &["zen3-2s has no CPU 256", "up to 255"],
            ),
            (&["vm", "run"], &["<COMMAND>", "`roost vm run --help`"]),
            (&["compare"], &["--workload", "<SCHEDULER>", "`roost compare --help`"]),
            (
                &["compare", "--workload", "coremark", "--seed", "-1", "fair@7.2"],
                &["'-1'", "--seed", "`roost compare --help`"],
            ),
            (&["compare", "--workload", "hackbench"], &["<SCHEDULER>", "`roost compare --help`"]),
            (&["compare", "--workload", "coremark", "--jobs", "0", "fair@7.2"], &["--jobs", "1"]),
            (&["compare", "--workload", "coremark", "--repeat", "0", "fair@7.2"], &["--repeat"]),
            (
                &["compare", "--workload", "coremark", "--duration", "10", "fair@7.2"],
                &["--duration", "write for example 500ms or 20s"],
            ),
            (
                &["compare", "--workload", "coremark", "--format", "xml", "fair@7.2"],
                &["'xml'", "table, mmtests, csv, json"],
            ),
            (
                &["compare", "--workload", "coremark", "--machine", "no\nsuch", "fair@7.2"],
                &["no such machine"],
            ),
        ];
        for (args, parts) in cases {
            let line = fails(args, 2);
            for part in *parts {
                assert!(line.contains(part), "{args:?}: {part:?} is missing in {line}");
            }
        }
    }

    #[test]
    fn workloads_and_schedulers_that_do_not_exist() {
        let workloads = [
            ("hackbnch", "choose from"),
            ("hackbench:group=1", "it takes groups=10"),
            ("hackbench:groups", "write for example groups=10"),
            ("hackbench:groups=none", "give 1 to"),
            ("hackbench:groups=0", "give 1 to"),
            ("hackbench:mode=tcp", "choose from socket, pipe"),
            ("no-file.json", "check the path"),
            ("", "choose from"),
        ];
        for (workload, remedy) in workloads {
            let line = fails(&["compare", "--workload", workload, "fair@7.2"], 2);
            assert!(line.contains(workload) && line.contains(remedy), "{line}");
        }
        let schedulers = [
            ("fair", "versions: 3.9, 5.2, 5.16"),
            ("eevdf@6.15", "versions: 3.9, 5.2, 5.16"),
            ("fair@4.4", "known: 3.9, 5.2, 5.16"),
            ("fair@7.2-delay-dequeue", "+no-NAME"),
            ("fair@7.2+nice", "numa-imbalance"),
            ("fair@7.2+", "numa-imbalance"),
            ("fair@5.16+delay-dequeue", "before fair@6.15"),
            ("fair@3.9+sis-util", "before fair@5.2"),
            ("fair@5.2+no-sched-cache", "before fair@5.16"),
            ("fair@7.2+a\u{7}\nb", "numa-imbalance"),
        ];
        for (scheduler, remedy) in schedulers {
            let line = fails(&["compare", "--workload", "coremark", "fair@7.2", scheduler], 2);
            assert!(line.contains(remedy), "{line}");
        }
    }

    #[test]
    fn every_malformed_machine_is_refused_at_its_place() {
        let bad = files(&data("machine", "bad"), ".xml");
        assert!(bad.len() >= 30);
        for file in &bad {
            for args in [&["machine", file][..], &["machine", file, "--kernel", "7.2"]] {
                let line = fails(args, 2);
                let (_, place) = line.split_once(file.as_str()).expect(&line);
                assert!(place.starts_with(':') && place.contains("; "), "{line}");
            }
            fails(&["compare", "--machine", file, "--workload", "coremark", "fair@7.2"], 2);
        }
    }

    #[test]
    fn every_malformed_workload_is_refused_at_its_place() {
        let bad = files(&data("workload", "bad"), ".json");
        assert!(bad.len() >= 30);
        for file in &bad {
            let line = fails(&["compare", "--workload", file, "fair@7.2"], 2);
            let (_, place) = line.split_once(file.as_str()).expect(&line);
            let number = place.strip_prefix(':').and_then(|rest| rest.split(':').next());
            assert!(number.is_some_and(|line| line.parse::<u32>().is_ok()), "{line}");
            assert!(place.contains("; "), "{line}");
        }
    }

    /// Errors that only the run finds. Notes about such a file are not printed before the error.
    #[test]
    fn workloads_that_do_not_fit_the_machine_or_never_end() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let elsewhere = file(
            "elsewhere.json",
            r#"{"tasks": {"t": {"policy": "SCHED_FIFO", "cpus": [900], "loop": 1, "run": 10}}}"#,
        );
        let line = fails(&["compare", "--workload", &elsewhere, "fair@7.2"], 2);
        assert!(line.contains("task t") && line.contains("`roost machine`"), "{line}");
        let stuck = file("stuck.json", r#"{"tasks": {"t": {"loop": 1, "suspend": "t"}}}"#);
        let line = fails(&["compare", "--workload", &stuck, "fair@7.2"], 2);
        assert!(line.contains("stuck.json") && line.contains("deadlock"), "{line}");
        let endless = file("endless.json", r#"{"tasks": {"t": {"run": 10}}}"#);
        let line = fails(&["compare", "--workload", &endless, "fair@7.2"], 2);
        assert!(line.contains("endless.json") && line.contains("duration"), "{line}");
    }
}

#[cfg(target_os = "linux")]
mod outputs {
    use super::*;

    /// A comparison that takes far longer than a test waits.
    const LONG: [&str; 9] = [
        "compare",
        "--machine",
        "zen3-2s",
        "--workload",
        "netperf-tcp-rr:clients=100",
        "--duration",
        "1h",
        "fair@5.16",
        "fair@7.2",
    ];

    #[test]
    fn a_full_disk_is_told() {
        for args in [
            &["--help"][..],
            &["machine", "--list"],
            &["compare", "--workload", "hackbench:groups=1,loops=1", "--repeat", "1", "fair@7.2"],
        ] {
            let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
            let output = Command::new(ROOST).args(args).stdout(full).output().unwrap();
            let (_, stderr) = texts(&output);
            assert_eq!(output.status.code(), Some(1), "{args:?}: {stderr}");
            assert_one_line(&stderr, "full disk");
            assert!(stderr.contains("standard output") && stderr.contains("space"), "{stderr}");
        }
        let with_trace = |path| {
            fails(
                &[
                    "compare",
                    "--workload",
                    "coremark",
                    "--duration",
                    "50ms",
                    "--trace",
                    path,
                    "fair@7.2",
                ],
                1,
            )
        };
        let line = with_trace("/dev/full");
        assert!(line.contains("/dev/full: cannot write the trace: No space"), "{line}");
        let line = with_trace("/no/directory/trace");
        assert!(line.contains("/no/directory/trace: cannot write the trace"), "{line}");
    }

    #[test]
    fn nobody_left_to_tell_is_no_panic() {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let status = Command::new(ROOST).arg("nonsense").stderr(full).status().unwrap();
        assert_eq!(status.code(), Some(2));
    }

    #[test]
    fn a_reader_that_goes_away_is_no_error() {
        for args in [
            &["--help"][..],
            &["machine", "zen3-2s", "--format", "csv"],
            &["compare", "--workload", "hackbench:groups=1,loops=1", "--counters", "fair@7.2"],
        ] {
            let mut child = spawn(args);
            drop(child.stdout.take());
            let output = child.wait_with_output().unwrap();
            assert_succeeded(&output, &format!("{args:?}"));
        }
    }

    #[test]
    fn interrupts_end_it_soon_and_leave_nothing_behind() {
        for signal in ["-INT", "-TERM"] {
            let directory = tempfile::tempdir().unwrap();
            let trace = directory.path().join("trace");
            let old = b"an older trace";
            fs::write(&trace, old).unwrap();
            let more = ["--trace", trace.to_str().unwrap()];
            let child = spawn(&[&LONG[..], &more].concat());
            // Once signals are caught, the temporary files of two traces stand next to the older trace.
            wait_until(|| fs::read_dir(directory.path()).unwrap().count() == 3);
            let interrupted = Instant::now();
            let pid = child.id().to_string();
            assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
            let output = child.wait_with_output().unwrap();
            assert!(interrupted.elapsed() < Duration::from_secs(10), "{signal}");
            let (stdout, stderr) = texts(&output);
            assert_eq!(output.status.code(), Some(130), "{signal}: {stderr}");
            assert!(stdout.is_empty(), "{stdout}");
            assert_one_line(&stderr, signal);
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "{signal}");
            assert_eq!(fs::read(&trace).unwrap(), old, "{signal}");
        }
    }

    fn spawn(args: &[&str]) -> Child {
        let mut command = Command::new(ROOST);
        command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn wait_until(condition: impl Fn() -> bool) {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < Duration::from_secs(30), "nothing happened");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn what_can_be_named_is_listed_and_completed() {
    let workloads = succeeds(&["compare", "--list-workloads"]);
    assert!(workloads.contains("hackbench:groups=") && workloads.contains("rt-app:schbench"));
    let schedulers: Value =
        serde_json::from_str(&succeeds(&["compare", "--list-schedulers", "--format", "json"]))
            .unwrap();
    let named = |kind: &str, name: &str| {
        let mut rows = schedulers.as_array().unwrap().iter();
        rows.any(|row| row["kind"] == kind && row["name"] == name && row["about"] != "")
    };
    assert!(named("version", "fair@5.19") && named("switch", "+cling"));
    assert!(named("number", "+cling-degree=N"));
    let csv = succeeds(&["compare", "--list-schedulers", "--format", "csv"]);
    let mut rows = csv::Reader::from_reader(csv.as_bytes());
    assert_eq!(rows.records().map(Result::unwrap).count(), schedulers.as_array().unwrap().len());
    for shell in ["bash", "zsh", "fish"] {
        assert!(succeeds(&["completions", shell]).contains("compare"), "{shell}");
    }
}

#[test]
fn names_that_are_nearly_right_are_answered_with_the_right_one() {
    let compare = |more: &[&str]| fails(&[&["compare"], more].concat(), 2);
    let run = ["--workload", "hackbensh", "fair@7.2"];
    assert!(compare(&run).contains("did you mean hackbench?"));
    let run = ["--workload", "hackbench:group=2", "fair@7.2"];
    assert!(compare(&run).contains("did you mean groups?"));
    let run = ["--machine", "zen3-2", "--workload", "hackbench", "fair@7.2"];
    assert!(compare(&run).contains("did you mean zen3-2s"));
    let run = ["--workload", "hackbench", "fair@7.2+sis-utl"];
    assert!(compare(&run).contains("did you mean sis-util?"));
    let run = ["--workload", "hackbench", "fair@5.18"];
    assert!(compare(&run).contains("between 5.16 and 5.19"));
    let run = ["--workload", "hackbench", "fair@7.2", "--json"];
    assert!(compare(&run).contains("write --format json") && !compare(&run).contains("tip:"));
    assert!(compare(&["fair@7.2"]).contains("--workload"));
    assert!(compare(&["--workload", "hackbench"]).contains("SCHEDULER"));
}

/// A hint proposes only what the subcommand takes. `sweep` and `run` have no formats.
#[test]
fn options_that_are_formats_elsewhere_are_answered_with_the_formats_of_the_subcommand() {
    let answer = |subcommand: &str, option: &str| fails(&[subcommand, option], 2);
    for (subcommand, option, hint) in [
        ("compare", "--csv", "write --format csv;"),
        ("compare", "--JSON", "write --format json;"),
        ("compare", "--markdown", "--format takes table, mmtests, csv, json;"),
        ("validate", "--markdown", "write --format markdown;"),
        ("machine", "--table", "--format takes text, json, csv;"),
    ] {
        assert!(answer(subcommand, option).contains(hint), "{subcommand} {option}");
    }
    for (subcommand, option) in [("sweep", "--json"), ("run", "--csv"), ("compare", "--yaml")] {
        assert!(!answer(subcommand, option).contains("--format"), "{subcommand} {option}");
    }
}

const SMALL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scx/tests/data/small.bpf.o");

#[test]
fn an_object_is_described_for_people_and_for_scripts() {
    let text = succeeds(&["scx", SMALL]);
    assert!(text.starts_with("small for Linux 7.2.13\n"), "{text}");
    let described: Value =
        serde_json::from_str(&succeeds(&["scx", SMALL, "--format", "json"])).unwrap();
    for hook in described["hooks"].as_array().unwrap() {
        let name = hook["name"].as_str().unwrap();
        assert!(text.contains(&format!("\n  {name}")), "{name}: {text}");
    }
    let settings = described["settings"].as_array().unwrap();
    let slice = settings.iter().find(|setting| setting["name"] == "slice_ns").unwrap();
    assert_eq!((slice["value"].as_u64(), slice["type"].as_str()), (Some(20_000_000), Some("u64")));
    assert_eq!(described["missing"], Value::Array(vec![]));
}

#[test]
fn a_sched_ext_program_is_compared_and_what_it_does_wrong_ends_the_run() {
    let scx = format!("scx:{SMALL}+slice_ns=5000000");
    let compare = ["compare", "--machine", "2n2l4c", "--repeat", "1"];
    let compare = [&compare[..], &["--workload", "hackbench:groups=1,loops=20"]].concat();
    let table = succeeds(&[&compare[..], &["--counters", "fair@7.2", &scx]].concat());
    assert!(table.contains(&scx) && table.contains("select_cpu_instructions"), "{table}");
    let wild = fails(&[&compare[..], &[&format!("scx:{SMALL}+fault=1")]].concat(), 1);
    assert!(wild.contains("access to 0xdeadbeef000 in small_select_cpu"), "{wild}");
    let (_, after) = wild.split_once("ended the run after ").unwrap();
    let (at, rest) = after.split_once(' ').unwrap();
    assert!(at.contains('.') && rest.starts_with("ms: "), "{wild}");
    // Tasks that it loses are told by the watchdog only after 30 s.
    let lost = format!("scx:{SMALL}+fault=3");
    let output = roost(&[&compare[..], &["--duration", "2s", &lost]].concat());
    let (table, notes) = texts(&output);
    assert!(output.status.success(), "{notes}");
    let waited = "had waited for a CPU for 1.";
    assert!(table.contains(waited) && table.contains("may have lost it"), "{table}");
}

/// What is wrong in an object or a program has status 1, what is wrong on the command line 2.
#[test]
fn an_object_that_cannot_run_ends_a_comparison_with_status_1() {
    let folder = tempfile::tempdir().unwrap();
    let whole = std::fs::read(SMALL).unwrap();
    let other = |name: &str, from: &str, to: &str| {
        let mut bytes = whole.clone();
        let is_there = |at: &usize| whole[*at..].starts_with(from.as_bytes());
        let places: Vec<usize> = (0..whole.len()).filter(is_there).collect();
        assert!(!places.is_empty(), "{from}");
        places.into_iter().for_each(|at| bytes[at..at + to.len()].copy_from_slice(to.as_bytes()));
        let file = folder.path().join(name);
        std::fs::write(&file, bytes).unwrap();
        format!("scx:{}", file.display())
    };
    let compare = |scheduler: &str, status| {
        let run = ["compare", "--machine", "2n2l4c", "--repeat", "1", "--workload"];
        fails(&[&run[..], &["hackbench:groups=1,loops=1", scheduler]].concat(), status)
    };
    for (scheduler, status, told) in [
        (other("text", "ELF", "elf"), 1, "not a BPF object"),
        (other("none", ".struct_ops.link", ".Struct_ops.link"), 1, "no struct sched_ext_ops"),
        (other("kfunc", "scx_bpf_create_dsq\0", "scx_bpf_create_dsk\0"), 1, "scx_bpf_create_dsk"),
        ("/bin/false -s 1".to_owned(), 1, "before it attached a scheduler"),
        (format!("scx:{SMALL}+no_such=1"), 2, "no such global variable"),
        (format!("scx:{SMALL}+slice_ns=x"), 2, "that is no u64"),
        ("scx:/nowhere.bpf.o".to_owned(), 2, "/nowhere.bpf.o: No such file"),
        ("./nowhere -s 1".to_owned(), 2, "no such program"),
        ("/bin/false -s '1".to_owned(), 2, "a quote has no end"),
    ] {
        let line = compare(&scheduler, status);
        assert!(line.contains(told), "{scheduler}: {line}");
    }
}

#[test]
fn what_is_no_object_is_told_in_one_line() {
    let text = data("workload", "rtapp/spreading-tasks.json");
    let not_bpf = fails(&["scx", text.to_str().unwrap()], 1);
    assert!(not_bpf.contains("not a BPF object"), "{not_bpf}");
    assert!(succeeds(&["scx", "roost"]).contains("select_cpu"), "the built-in one");
    let no_scheduler = fails(&["scx", ROOST], 1);
    assert!(no_scheduler.contains("before it attached a scheduler"), "{no_scheduler}");
    let absent = fails(&["scx", "/nowhere.bpf.o"], 2);
    assert!(absent.contains("/nowhere.bpf.o"), "{absent}");
    for no_kernel in [ROOST, SMALL, "/etc/passwd"] {
        let no_types = fails(&["scx", SMALL, "--btf", no_kernel], 1);
        assert!(no_types.contains("no type information of a kernel"), "{no_types}");
        assert!(no_types.contains("/sys/kernel/btf/vmlinux"), "{no_types}");
    }
    let no_program = fails(&["scx", SMALL, "--machine", "zen4-2s"], 2);
    assert!(no_program.contains("--machine: only for a program"), "{no_program}");
}
