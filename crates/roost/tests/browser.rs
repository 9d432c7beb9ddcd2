//! Opens reports in a real browser and uses them as a reader does: everything must be drawn, clicks must work, and the
//! browser must report no errors. The tests need Chromium and are ignored by default (`make test-look` runs them).

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine;
use roost_engine::{LeftAs, Time, TraceTask, Tracer};
use roost_machine::Machine;
use roost_report::{
    Build, Comparison, Contender, Experiment, Input, Page, Place, Timeline, TimelineRecorder,
};
use roost_simulate::{Control, Simulation};
use serde::Deserialize;

/// This script is inserted before the report's own script.
const CHECK: &str = include_str!("browser/check.js");

/// What `check.js` found in the page.
#[derive(Debug, Deserialize)]
struct Found {
    /// For each chart, the section of the report that it is in, and whether something was drawn.
    charts: Vec<(String, bool)>,
    sections: Vec<String>,
    /// Number of the second scheduler's charts: at first, after one click on its name, and after two.
    toggled: Option<Vec<u32>>,
    /// For each choice of tasks, the sum over the first scheduler's heat map.
    tasks: Option<BTreeMap<String, f64>>,
    /// The rows of that map: at first, after a click on the first row, and after a click on the first row of the
    /// result.
    clicked: Option<Vec<Vec<String>>>,
    /// The scenario that is chosen: at first, and after one and two clicks on the first row of their map.
    scenarios: Option<Vec<String>>,
    drawn_ms: u64,
    /// Whether the page is wider than its window.
    wide: bool,
    /// Elements that could only come from markup in a name.
    markup: u32,
    errors: Vec<String>,
}

/// The folder that keeps screenshots and reports.
fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("look");
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Writes the report of a comparison.
fn report(name: &str, args: &[&str]) -> PathBuf {
    page(name, &[&["compare"], args].concat())
}

/// The page of this command.
fn page(name: &str, args: &[&str]) -> PathBuf {
    let file = folder().join(format!("{name}.html"));
    let mut roost = assert_cmd::Command::new(env!("CARGO_BIN_EXE_roost"));
    roost.args(args).arg("--html").arg(&file).assert().success();
    file
}

/// Runs Chromium with its own profile and a window of this size.
fn chromium(args: &[&str], (width, height): (u32, u32), page: &Path) -> String {
    let profile = tempfile::tempdir().unwrap();
    let mut command = Command::new("chromium");
    command.args([
        "--headless",
        "--disable-gpu",
        "--hide-scrollbars",
        "--allow-file-access-from-files",
    ]);
    // Root in a container has no sandbox.
    command.args(["--no-sandbox", "--virtual-time-budget=60000"]);
    command.arg(format!("--user-data-dir={}", profile.path().display()));
    command.arg(format!("--window-size={width},{height}")).args(args);
    let output = command.arg(format!("file://{}", page.display())).output();
    let output = output.expect("chromium runs: tools/setup chromium:chromium");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Opens the report in a window of this size and returns what `check.js` found.
fn read(report: &Path, size: (u32, u32)) -> Found {
    let html = fs::read_to_string(report).unwrap();
    let checked = report.with_extension("checked.html");
    let script = format!("<script>{CHECK}</script><title>");
    fs::write(&checked, html.replacen("<title>", &script, 1)).unwrap();
    let dom = chromium(&["--dump-dom"], size, &checked);
    let found = dom.split_once("<pre id=\"found\">").and_then(|(_, rest)| rest.split_once('<'));
    let (found, _) = found.unwrap_or_else(|| panic!("{}: never drawn", report.display()));
    let json = base64::engine::general_purpose::STANDARD.decode(found).unwrap();
    serde_json::from_slice(&json).unwrap()
}

/// Takes screenshots of the report on a desktop, in dark mode, and on a phone. The phone is a frame, because Chromium's
/// own windows cannot be that narrow.
fn keep_pictures(report: &Path) {
    let picture = |kind: &str| {
        let file = report.with_extension(format!("{kind}.png"));
        format!("--screenshot={}", file.display())
    };
    chromium(&[&picture("desk")], (1280, 3600), report);
    let night = "--blink-settings=preferredColorScheme=0";
    chromium(&[&picture("night"), night], (1280, 3600), report);
    let frame = report.with_extension("phone.html");
    let inner = report.file_name().unwrap().display();
    let style = "width:390px;height:5000px;border:0";
    fs::write(&frame, format!("<body style=margin:0><iframe src=\"{inner}\" style=\"{style}\">"))
        .unwrap();
    chromium(&[&picture("phone")], (500, 5000), &frame);
}

/// Checks that must hold for every report, in a large and in a small window.
fn works(report: &Path, sections: &[&str]) -> Found {
    for size in [(500, 800), (1280, 900)] {
        let found = read(report, size);
        assert_eq!(found.errors, [""; 0], "{found:?}");
        assert!(found.charts.iter().all(|(_, drawn)| *drawn), "{:?}", found.charts);
        assert_eq!(found.sections, sections);
        assert!(!found.wide, "the page itself never scrolls sideways");
        assert_eq!(found.markup, 0);
    }
    keep_pictures(report);
    read(report, (1280, 900))
}

/// Number of charts in a section.
fn charts(found: &Found, part: &str) -> usize {
    found.charts.iter().filter(|(section, _)| section == part).count()
}

const SIMULATED: [&str; 6] =
    ["results", "occupancy", "migrations", "latency", "counters", "repeat"];

#[test]
#[ignore = "needs chromium: make test-look"]
fn two_schedulers_stand_side_by_side_and_clicks_work() {
    let shape = ["--machine", "2n2l4c", "--workload", "hackbench:groups=2", "--repeat", "3"];
    let args: Vec<&str> = shape.into_iter().chain(["fair@5.16", "fair@7.2"]).collect();
    let found = works(&report("plain", &args), &SIMULATED);
    assert_eq!((charts(&found, "occupancy"), charts(&found, "latency")), (2, 2));
    assert_eq!(found.toggled, Some(vec![2, 0, 2]), "occupancy and migrations, hidden and shown");
    let clicked = found.clicked.unwrap();
    let llcs = ["node 0 LLC 0", "node 0 LLC 1", "node 1 LLC 2", "node 1 LLC 3"];
    assert_eq!((&clicked[0], &clicked[2]), (&llcs.map(str::to_owned).to_vec(), &clicked[0]));
    assert_eq!(clicked[1], ["CPU 0", "CPU 1", "CPU 2", "CPU 3"]);
    assert!(found.drawn_ms > 0);
}

#[test]
#[ignore = "needs chromium: make test-look"]
fn memory_has_its_own_part() {
    let found = works(
        &report(
            "memory",
            &[
                "--machine",
                "zen3-2s",
                "--workload",
                "stream:threads=16",
                "--repeat",
                "2",
                "fair@5.16",
                "fair@5.16+numa-imbalance",
            ],
        ),
        &["results", "occupancy", "memory", "migrations", "latency", "counters", "repeat"],
    );
    assert_eq!(charts(&found, "memory"), 4, "pages and accesses of each scheduler");
    assert_eq!(charts(&found, "results"), 4, "Copy, Scale, Add, Triad");
}

/// Task and cgroup names come from the user, so they may contain markup.
const GROUPS: &str = r#"{
  "global": { "duration": 1 },
  "tasks": {
    "<b>one</b>": { "instance": 4, "loop": -1, "taskgroup": "/</script><img src=x>", "run": 2000, "sleep": 1000 },
    "two": { "instance": 4, "loop": -1, "taskgroup": "/two", "run": 1000, "sleep": 1000 }
  }
}"#;

#[test]
#[ignore = "needs chromium: make test-look"]
fn tasks_can_be_chosen_by_name_and_cgroup_and_names_are_no_markup() {
    let workload = folder().join("groups.json");
    fs::write(&workload, GROUPS).unwrap();
    let workload = workload.to_str().unwrap();
    let found = works(
        &report(
            "groups",
            &[
                "--machine",
                "2n2l4c",
                "--workload",
                workload,
                "--duration",
                "200ms",
                "--repeat",
                "1",
                "fair@7.2",
                "fair@7.2+cling",
            ],
        ),
        &SIMULATED,
    );
    let tasks = found.tasks.unwrap();
    let of = |name: &str| tasks.get(name).copied().unwrap_or_else(|| panic!("{name} in {tasks:?}"));
    for (one, two) in
        [("name: <b>one</b>", "name: two"), ("cgroup: /</script><img src=x>", "cgroup: /two")]
    {
        let (one, two) = (of(one), of(two));
        // The first task runs twice as much.
        assert!(one > 1.2 * two && two > 0.0, "{one} {two}");
        assert!((one + two) < 1.001 * of("all"), "the task that starts them is in no group");
    }
}

#[test]
#[ignore = "needs chromium: make test-look"]
fn one_scheduler_is_shown_by_itself() {
    let found = works(
        &report(
            "seeds",
            &[
                "--machine",
                "2n2l4c",
                "--workload",
                "schbench",
                "--duration",
                "300ms",
                "--repeat",
                "6",
                "fair@7.2",
            ],
        ),
        &SIMULATED,
    );
    assert_eq!((charts(&found, "occupancy"), &found.toggled), (1, &None));
    assert_eq!(charts(&found, "counters"), 0, "nothing to differ from");
}

#[test]
#[ignore = "needs chromium: make test-look"]
fn a_sweep_shows_what_changes_and_what_wins() {
    let plan = folder().join("plan.toml");
    let text = "machines = [\"2n2l4c\", \"1s2n4l2c\"]\nworkloads = \"hackbench:groups=1,2,loops=5\"\n\
                schedulers = [\"base=fair@7.2\", \"old=fair@5.19\"]\nseeds = 12\n";
    fs::write(&plan, text).unwrap();
    let result = plan.with_extension("parquet");
    let _ = fs::remove_file(&result);
    let mut roost = assert_cmd::Command::new(env!("CARGO_BIN_EXE_roost"));
    roost.arg("sweep").arg(&plan).assert().success();
    let page = page("sweep", &["sweep", "report", result.to_str().unwrap()]);
    let found = works(&page, &["change", "winners", "uncertain", "figures", "repeat"]);
    assert_eq!((charts(&found, "change"), charts(&found, "winners")), (1, 1));
}

/// What Linux 7.2 did.
const OBSERVED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/linux-7.2.json");

#[test]
#[ignore = "needs chromium: make test-look"]
fn a_validation_shows_simulated_beside_real_and_a_click_chooses_a_scenario() {
    // Of these scenarios no bar is missed, which would be an exit status of 1.
    let scenarios = ["--scenario", "at", "--scenario", "below", "--scenario", "pinned"];
    let args = [&["validate", "--from", OBSERVED, "--machine", "2n2l4c"], &scenarios[..]].concat();
    let sections = ["scenarios", "agreement", "quantity", "differences", "repeat"];
    let found = works(&page("validate", &args), &sections);
    assert_eq!((charts(&found, "agreement"), charts(&found, "quantity")), (3, 1));
    let chosen = found.scenarios.unwrap();
    assert_eq!((chosen[0].as_str(), chosen[2].as_str()), ("", ""));
    assert!(!chosen[1].is_empty(), "{chosen:?}");
}

/// What was published, and what was simulated of it.
const RESULTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results.json");

#[test]
#[ignore = "needs chromium: make test-look"]
fn published_figures_stand_beside_simulated_ones() {
    let sections = ["score", "changes", "levels", "searches", "studies", "repeat"];
    let found = works(&page("reproduce", &["reproduce", "--from", RESULTS]), &sections);
    assert!(charts(&found, "studies") > 10, "a chart for each study with changes: {found:?}");
}

/// Length of the made-up run, and how often each of its tasks gets a CPU in it.
const RUN_NS: u64 = 1 << 28;
const TURNS: u64 = 100;

/// A made-up run of 5,000 tasks on all CPUs. There are 20 kinds of tasks in 8 cgroups. Every task waits, runs and
/// sleeps in turn, each time on another CPU.
fn crowd(machine: &Machine, shift: usize) -> Timeline {
    let recorder = TimelineRecorder::new(machine, Time(0));
    recorder.observe(Time(RUN_NS), |tracer| tell_crowd(tracer, machine.nr_cpus(), shift));
    recorder.finish(Time(RUN_NS))
}

/// Reports that run on `cpus` CPUs.
fn tell_crowd(tracer: &mut dyn Tracer, cpus: usize, shift: usize) {
    let tasks = 5000;
    let slot = RUN_NS / TURNS;
    // A task's turn has three CPUs' worth of tasks around it: they share the slot of their CPU one after the other.
    let sharing = tasks / cpus + 1;
    let part = slot / (2 * sharing as u64);
    for turn in 0..TURNS {
        for round in 0..sharing {
            let from = turn * slot + round as u64 * part * 2;
            let on_cpu = |task: usize| (task * (7 + shift) + turn as usize * 131) % cpus;
            let of_round = (0..tasks).filter(|task| task / cpus == round);
            let names: Vec<(usize, String)> =
                of_round.map(|task| (task, format!("worker{}-{task}", task % 20))).collect();
            let told = |(task, name): &(usize, String)| {
                let cgroup = (*task % 8) as u32;
                (*task as u32 + 1, name.clone(), cgroup, format!("/slice/{cgroup}"))
            };
            let each = |at: u64, tell: &mut dyn FnMut(Time, usize, TraceTask<'_>)| {
                for named in &names {
                    let (pid, name, number, path) = told(named);
                    let known = (name.as_str(), Some((number, path.as_str())));
                    let task = TraceTask { pid, slot: pid, process: pid % 40, known_to: &known };
                    tell(Time(at), on_cpu(named.0), task);
                }
            };
            each(from, &mut |now, cpu, task| tracer.wakeup(now, cpu, task, cpu));
            each(from + part / 2, &mut |now, cpu, task| tracer.switch(now, cpu, None, Some(task)));
            each(from + part, &mut |now, cpu, task| {
                tracer.switch(now, cpu, Some((task, LeftAs::Sleeping)), None);
            });
        }
    }
}

/// The report of that run, under two schedulers whose results are those of a small run.
fn large_report() -> PathBuf {
    let machine = roost_machine::resolve("node:8 l3:32 core:8 pu:1").unwrap();
    let small = Simulation::named("2n2l4c", "hackbench:groups=1", None, "fair@7.2").unwrap();
    let outcome = small.run(Control::new(1)).unwrap();
    let input = |name: &str| Input { name: name.to_owned(), sha256: "0".repeat(64) };
    let contender = |name: &str| Contender {
        name: name.to_owned(),
        spec: name.to_owned(),
        kernel: "7.2".to_owned(),
        program: false,
        switches: Vec::new(),
        program_sha256: None,
        mechanisms: Vec::new(),
        notes: Vec::new(),
    };
    let experiment = Experiment {
        roost: Build { version: "0.0.0".to_owned(), commit: None, modified: false },
        place: Place::Simulated,
        machine: input("2048 CPUs"),
        workload: input("5000 tasks"),
        duration_ns: Some(RUN_NS),
        measured_from_ns: Some(0),
        start: Some("running"),
        quiet: Some(false),
        seed: 1,
        schedulers: vec![contender("one"), contender("other")],
    };
    let comparison = Comparison::new(experiment, vec![vec![outcome.clone()], vec![outcome]]);
    let timelines = [0, 2].map(|shift| Some(crowd(&machine, shift)));
    let page = Page {
        comparison: &comparison,
        machine: &machine,
        timelines: &timelines,
        command: "none: the run is made up",
        lacks: Vec::new(),
    };
    let file = folder().join("large.html");
    fs::write(&file, roost_report::html(&page)).unwrap();
    file
}

#[test]
#[ignore = "needs chromium: make test-look"]
fn a_report_of_2048_cpus_and_5000_tasks_is_small_and_opens_at_once() {
    let file = large_report();
    let bytes = fs::metadata(&file).unwrap().len();
    assert!(bytes < 5_000_000, "{bytes} bytes");
    // Others use this machine too: the fastest of three tells.
    let opened: Vec<u64> = (0..3).map(|_| read(&file, (1280, 900)).drawn_ms).collect();
    println!("{bytes} bytes, opened in {opened:?} ms");
    works(&file, &SIMULATED);
    assert!(opened.iter().any(|&ms| ms < 2000), "{opened:?} ms");
}
