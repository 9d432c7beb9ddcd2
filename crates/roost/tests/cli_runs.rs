//! Comparisons that are watched on a terminal, interrupted, traced, or too short to measure anything.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const ROOST: &str = env!("CARGO_BIN_EXE_roost");

/// Short runs: some hundreds per minute.
const MANY: [&str; 10] = [
    "compare",
    "--machine",
    "2n2l4c",
    "--workload",
    "hackbench:groups=1,loops=2",
    "--jobs",
    "2",
    "fair@5.16",
    "fair@7.2",
    "--seed=3",
];

fn roost(args: &[&str]) -> Output {
    Command::new(ROOST).args(args).output().unwrap()
}

fn succeeds(args: &[&str]) -> String {
    let output = roost(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The error line of a command that must fail with `status` and print nothing else.
fn fails(args: &[&str], status: i32) -> String {
    let output = roost(args);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{args:?}: {stderr}");
    assert!(output.stdout.is_empty() && stderr.matches('\n').count() == 1, "{args:?}: {stderr}");
    stderr
}

/// Starts a comparison with very many repeats, and interrupts it when some are complete.
fn interrupted(more: &[&str]) -> String {
    for wait_ms in [500, 2_000, 8_000, 30_000] {
        let directory = tempfile::tempdir().unwrap();
        let trace = directory.path().join("trace");
        let child = Command::new(ROOST)
            .args(MANY)
            .args(["--repeat", "10000", "--trace", trace.to_str().unwrap()])
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Once signals are caught, the temporary files of the traces exist.
        let start = Instant::now();
        while fs::read_dir(directory.path()).unwrap().count() < 2 {
            assert!(start.elapsed() < Duration::from_secs(60), "no trace was begun");
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(wait_ms));
        let pid = child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        let (stdout, stderr) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(130), "{stderr}");
        assert_eq!(stderr.matches('\n').count(), 1, "{stderr}");
        if stdout.is_empty() {
            assert!(stderr.contains("no result was printed"), "{stderr}");
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
            continue;
        }
        assert!(stderr.contains("of 10000 repeats are complete"), "{stderr}");
        assert_eq!(files(directory.path()), ["trace-fair@5.16", "trace-fair@7.2"], "whole traces");
        return stdout;
    }
    panic!("not one repeat in 30 s");
}

fn files(directory: &Path) -> Vec<String> {
    let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
    let mut names: Vec<_> = fs::read_dir(directory).unwrap().flatten().map(name).collect();
    names.sort();
    names
}

/// The same comparison with this many repeats, not interrupted.
fn undisturbed(repeats: &str, format: &str) -> String {
    succeeds(&[&MANY[..], &["--repeat", repeats, "--format", format]].concat())
}

#[test]
fn an_interrupted_table_is_that_of_the_repeats_that_are_complete_and_says_so() {
    for format in ["table", "mmtests"] {
        let text = interrupted(&["--format", format]);
        let (mark, rest) = text.split_once('\n').unwrap();
        let repeats = mark.strip_prefix("PARTIAL: interrupted after ").unwrap();
        let repeats = repeats.strip_suffix(" of 10000 repeats").unwrap();
        assert_eq!(rest, undisturbed(repeats, format), "{format}: {repeats} repeats");
    }
}

#[test]
fn an_interrupted_csv_says_so_in_each_row() {
    let text = interrupted(&["--format", "csv"]);
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let partial = reader.headers().unwrap().iter().position(|name| name == "partial").unwrap();
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert!(rows.iter().all(|row| &row[partial] == "true"));
    let repeats = rows.len() / 2;
    let whole = undisturbed(&repeats.to_string(), "csv");
    assert_eq!(text.replace(",true", ",false"), whole, "otherwise the same");
}

#[test]
fn an_interrupted_json_says_so() {
    let mut partial: Value = serde_json::from_str(&interrupted(&["--format", "json"])).unwrap();
    assert_eq!(partial["partial"], true);
    let repeats = partial["repeats"].as_u64().unwrap();
    let whole = undisturbed(&repeats.to_string(), "json");
    let mut whole: Value = serde_json::from_str(&whole).unwrap();
    assert_eq!(whole["partial"], false);
    // Completed runs of later repeats are kept for `--resume`.
    let runs = |document: &mut Value| document.as_object_mut().unwrap().remove("runs").unwrap();
    let (kept, all) = (runs(&mut partial), runs(&mut whole));
    assert!(all.as_array().unwrap().iter().all(|run| kept.as_array().unwrap().contains(run)));
    partial["partial"] = Value::Bool(false);
    assert_eq!(partial, whole);
}

/// Leaves the file of an interrupted comparison, which a resumed one reads.
fn left(directory: &Path) -> (PathBuf, u64) {
    let text = interrupted(&["--format", "json"]);
    let document: Value = serde_json::from_str(&text).unwrap();
    let file = directory.join("left.json");
    fs::write(&file, text).unwrap();
    (file, document["repeats"].as_u64().unwrap())
}

#[test]
fn a_comparison_that_goes_on_is_the_same_as_one_that_was_not_interrupted() {
    let directory = tempfile::tempdir().unwrap();
    let (file, repeats) = left(directory.path());
    let more = (repeats + 3).to_string();
    let resumed = |format: &str, file: &Path| {
        let resume = ["--repeat", &more, "--format", format, "--resume", file.to_str().unwrap()];
        succeeds(&[&MANY[..], &resume, &["--counters"]].concat())
    };
    for format in ["table", "mmtests", "csv", "json"] {
        let whole = [&MANY[..], &["--repeat", &more, "--format", format, "--counters"]].concat();
        assert_eq!(resumed(format, &file), succeeds(&whole), "{format}: {repeats} and 3 more");
    }
    // Runs in the file are not repeated: a value that no run would produce must survive.
    let mut document: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    document["runs"][0]["metrics"][0]["value"] = Value::from(123.25);
    fs::write(&file, document.to_string()).unwrap();
    let resumed: Value = serde_json::from_str(&resumed("json", &file)).unwrap();
    assert_eq!(resumed["results"][0]["samples"][0][0], 123.25);
}

#[test]
fn a_file_of_another_comparison_is_not_gone_on_with() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("left.json");
    let base = ["compare", "--machine", "2n2l4c", "--workload", "hackbench:groups=1,loops=2"];
    let made =
        [&base[..], &["--repeat", "1", "fair@5.16", "fair@7.2", "--format", "json"]].concat();
    let text = succeeds(&made);
    let resume = ["--resume", file.to_str().unwrap()];
    let refused = |text: &str, args: &[&str]| {
        fs::write(&file, text).unwrap();
        fails(&[args, &resume].concat(), 2)
    };
    let both = ["fair@5.16", "fair@7.2"];
    let other = |machine, workload| ["compare", "--machine", machine, "--workload", workload];
    let machine = refused(&text, &[&other("1s2n4l2c", base[4])[..], &both].concat());
    assert!(machine.contains("its machine (its hash) is"), "{machine}");
    let workload = refused(&text, &[&other(base[2], "hackbench:groups=2")[..], &both].concat());
    assert!(workload.contains("its workload"), "{workload}");
    let duration = refused(&text, &[&base[..], &["--duration", "5s"], &both].concat());
    assert!(duration.contains("its duration in ns is null, here it is 5000000000"), "{duration}");
    let schedulers = refused(&text, &[&base[..], &["fair@7.2", "fair@5.16"]].concat());
    assert!(schedulers.contains("its list of schedulers"), "{schedulers}");
    let same = [&base[..], &both].concat();
    let older = text.replace("\"version\": \"", "\"version\": \"0.0.");
    assert!(refused(&older, &same).contains("its version and commit of roost"));
    let host = text.replace("\"place\": \"simulated\"", "\"place\": \"host\"");
    assert!(refused(&host, &same).contains("its place is \"host\", here it is \"simulated\""));
    assert!(refused(&text[..text.len() / 2], &same).contains("all of it"));
    assert!(refused("", &same).contains("the file is empty"));
    let on_host = ["compare", "--on", "host", "--workload", base[4], "fair"];
    assert!(refused(&text, &on_host).contains("--resume continues simulated runs"));
}

/// Runs with standard error on a terminal, and returns what the terminal showed.
fn on_a_terminal(args: &[&str]) -> String {
    use std::os::fd::{FromRawFd, OwnedFd};
    let (mut ours, mut theirs) = (0, 0);
    let size = libc::winsize { ws_row: 24, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: both point to integers, and the size is only read.
    let opened = unsafe {
        libc::openpty(
            &raw mut ours,
            &raw mut theirs,
            std::ptr::null_mut(),
            std::ptr::null(),
            &raw const size,
        )
    };
    assert_eq!(opened, 0, "no terminal to be had");
    for end in [ours, theirs] {
        // SAFETY: the descriptor is open. It must not stay open in commands of other tests.
        assert_eq!(unsafe { libc::fcntl(end, libc::F_SETFD, libc::FD_CLOEXEC) }, 0);
    }
    // SAFETY: openpty() has opened them, and nobody else has them.
    let (ours, theirs) = unsafe { (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) };
    let mut command = Command::new(ROOST);
    command.args(args).env("TERM", "xterm").stdout(Stdio::null()).stderr(theirs);
    let mut child = command.spawn().unwrap();
    // Drops the parent's copy of the other end, so that reading ends when the child ends.
    drop(command);
    let mut shown = Vec::new();
    let mut ours = fs::File::from(ours);
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = ours.read(&mut buffer) {
        shown.extend_from_slice(&buffer[..count]);
    }
    assert!(child.wait().unwrap().success());
    String::from_utf8_lossy(&shown).into_owned()
}

#[test]
fn progress_counts_simulated_time_on_a_terminal() {
    let run = ["--machine", "zen3-2s", "--workload", "netperf-tcp-rr:clients=100"];
    let args =
        [&["compare"], &run[..], &["--duration", "100ms", "--repeat", "1", "fair@7.2"]].concat();
    let shown = on_a_terminal(&args);
    let part_of_the_run = shown.split("\r").filter_map(|line| {
        let (before, _) = line.split_once(" of 0.100 s simulated, 0/1 runs")?;
        before.split_whitespace().last()?.parse::<f64>().ok()
    });
    let reached: Vec<f64> = part_of_the_run.collect();
    assert!(reached.iter().any(|&at| at > 0.0 && at < 0.1), "{shown}");
    let quiet = roost(&args);
    let told = String::from_utf8_lossy(&quiet.stderr);
    assert!(
        quiet.status.success() && !told.contains("simulated"),
        "no terminal, no progress: {told}"
    );
}

/// Times of all switches in a trace, ns.
fn switches(trace: &Path) -> Vec<u64> {
    use prost::Message;
    #[derive(Clone, PartialEq, Message)]
    struct Trace {
        #[prost(message, repeated, tag = "1")]
        packet: Vec<Packet>,
    }
    #[derive(Clone, PartialEq, Message)]
    struct Packet {
        #[prost(message, optional, tag = "1")]
        ftrace_events: Option<Bundle>,
    }
    #[derive(Clone, PartialEq, Message)]
    struct Bundle {
        #[prost(message, repeated, tag = "2")]
        event: Vec<Event>,
    }
    #[derive(Clone, PartialEq, Message)]
    struct Event {
        #[prost(uint64, optional, tag = "1")]
        timestamp: Option<u64>,
    }
    let trace = Trace::decode(&*fs::read(trace).unwrap()).unwrap();
    let bundles = trace.packet.iter().filter_map(|packet| packet.ftrace_events.as_ref());
    bundles.flat_map(|bundle| &bundle.event).map(Event::timestamp).collect()
}

mod traces {
    use super::*;

    const RUN: [&str; 9] = [
        "compare",
        "--machine",
        "2n2l4c",
        "--workload",
        "hackbench:groups=1,loops=100000",
        "--duration",
        "40ms",
        "--repeat",
        "2",
    ];

    fn traced(file: &Path, more: &[&str]) -> Output {
        roost(&[&RUN[..], &["--trace", file.to_str().unwrap()], more].concat())
    }

    #[test]
    fn each_scheduler_has_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("t.pftrace");
        assert!(traced(&file, &["fair@5.16", "fair@7.2", "fair@7.2"]).status.success());
        let named = ["t-fair@5.16.pftrace", "t-fair@7.2-2.pftrace", "t-fair@7.2.pftrace"];
        assert_eq!(files(directory.path()), named);
        let bytes = |name: &str| fs::read(directory.path().join(name)).unwrap();
        assert_eq!(bytes(named[1]), bytes(named[2]), "the same scheduler and seed");
        assert_ne!(bytes(named[0]), bytes(named[1]));
        assert!(traced(&file, &["fair@5.16"]).status.success());
        assert_eq!(bytes("t.pftrace"), bytes(named[0]), "alone it has the name that was given");
    }

    #[test]
    fn a_window_is_a_part_of_the_run() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("t");
        let window = ["--trace-window", "20ms..25ms", "fair@7.2"];
        assert!(traced(&file, &window).status.success());
        let within = switches(&file);
        assert!(
            within.len() > 100 && within.iter().all(|at| (20_000_000..=25_000_000).contains(at))
        );
        assert!(traced(&file, &["fair@7.2"]).status.success());
        let in_all = switches(&file).into_iter().filter(|at| (20_000_000..25_000_000).contains(at));
        let at_its_ends = within.iter().filter(|&&at| at == 20_000_000 || at == 25_000_000).count();
        assert_eq!(in_all.count(), within.len() - at_its_ends, "the same events, and its ends");
    }

    #[test]
    fn a_window_that_is_none_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("t");
        let fails = |window: &str| {
            let more = ["--trace", file.to_str().unwrap(), "--trace-window", window, "fair@7.2"];
            super::fails(&[&RUN[..], &more].concat(), 2)
        };
        assert!(fails("20ms").contains("write FROM..TO"));
        assert!(fails("25ms..20ms").contains("ends before it begins"));
        assert!(
            fails("20..25").contains("20ms..250ms") || fails("20..25").contains("200ms..250ms")
        );
        assert!(fails("40ms..50ms").contains("ends after 40ms"));
        assert_eq!(files(directory.path()).len(), 0, "no file is left");
        let without =
            super::fails(&[&RUN[..], &["--trace-window", "1ms..2ms", "fair@7.2"]].concat(), 2);
        assert!(without.contains("--trace"), "{without}");
        let one_end =
            ["compare", "--machine", "2n2l4c", "--workload", "hackbench:groups=1,loops=1"];
        let late = ["--trace", file.to_str().unwrap(), "--trace-window", "1h..2h", "fair@7.2"];
        let line = super::fails(&[&one_end[..], &late].concat(), 2);
        assert!(line.contains("the first run of fair@7.2 ends after"), "{line}");
        assert_eq!(files(directory.path()).len(), 0, "no file is left");
    }
}

/// The duration that an error message proposes.
fn proposed(line: &str) -> String {
    let (_, rest) = line.split_once("--duration ").unwrap_or_else(|| panic!("{line}"));
    rest.split_whitespace().next().unwrap().to_owned()
}

#[test]
fn a_run_that_reaches_nothing_says_what_would_do() {
    let none = "0 tasks had been created, and none of them had got to its work";
    for (workload, told) in [
        ("coremark:threads=4", none),
        ("schbench:messages=1,workers=2", none),
        ("hackbench:groups=2", none),
    ] {
        let run = |duration: &str| {
            roost(&[
                "compare",
                "--machine",
                "2n2l4c",
                "--workload",
                workload,
                "--duration",
                duration,
                "--format",
                "json",
                "--repeat",
                "3",
                "fair@5.16",
                "fair@7.2",
            ])
        };
        let short = run("1us");
        let line = String::from_utf8(short.stderr).unwrap();
        assert_eq!((short.status.code(), short.stdout.len()), (Some(2), 0), "{line}");
        assert!(line.contains(told) && line.matches('\n').count() == 1, "{line}");
        let enough = run(&proposed(&line));
        assert!(enough.status.success(), "{}", String::from_utf8_lossy(&enough.stderr));
    }
}

#[test]
fn rt_app_moves_a_task_between_groups() {
    let directory = tempfile::tempdir().unwrap();
    let file: PathBuf = directory.path().join("moves.json");
    let text = r#"{ "global": { "duration": 1 }, "tasks": { "t": { "loop": -1, "phases": {
        "in": { "taskgroup": "/a/b", "run": 3000 }, "out": { "taskgroup": "/", "run": 2000 } } } } }"#;
    fs::write(&file, text).unwrap();
    let trace = directory.path().join("t");
    let args = ["compare", "--machine", "2n2l4c", "--repeat", "1", "--workload"];
    let files = [file.to_str().unwrap(), "--trace", trace.to_str().unwrap(), "fair@7.2"];
    succeeds(&[&args[..], &files].concat());
    let bytes = fs::read(&trace).unwrap();
    let shown = |name: &[u8]| bytes.windows(name.len()).any(|part| part == name);
    assert!(shown(b"t [1 /a/b]"), "with number and path of its group");
}

/// Some 20 million instructions of the program are executed: machine code is made of it after half of them.
const LONG_ENOUGH: [&str; 10] = [
    "compare",
    "--machine",
    "node:2 l3:2 core:8 pu:1",
    "--workload",
    "hackbench:groups=12",
    "--duration=200ms",
    "--repeat=1",
    "--quiet",
    "--format=json",
    "roost",
];

#[test]
fn machine_code_is_kept_and_changes_no_result() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let run = || {
        let output =
            Command::new(ROOST).args(LONG_ENOUGH).env("ROOST_CACHE", &cache).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let kept = || -> Vec<PathBuf> {
        let files = fs::read_dir(cache.join("machine-code")).into_iter().flatten().flatten();
        files.map(|file| file.path()).collect()
    };
    let first = run();
    let [file] = &kept()[..] else { panic!("{:?}", kept()) };
    let whole = fs::read(file).unwrap();
    let number = || fs::metadata(file).unwrap().ino();
    let before = number();
    assert_eq!(run(), first, "with machine code from the start");
    assert_eq!(number(), before, "it is not made again");
    // Something in the middle of a function.
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    fs::write(file, damaged).unwrap();
    assert_eq!(run(), first, "it is made again");
    assert_ne!(number(), before);
    assert_eq!(fs::read(file).unwrap().len(), whole.len());
    fs::remove_dir_all(&cache).unwrap();
    fs::write(&cache, "a file where the folder would be").unwrap();
    assert_eq!(run(), first, "nothing can be kept");
}
