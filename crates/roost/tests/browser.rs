//! Opens reports in a real browser and uses them as a reader does: everything must be drawn, clicks must work, and the
//! browser must report no errors. The tests need Chromium and are ignored by default (`make test-look` runs them).

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine;
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
    let file = folder().join(format!("{name}.html"));
    let mut roost = assert_cmd::Command::new(env!("CARGO_BIN_EXE_roost"));
    roost.arg("compare").args(args).arg("--html").arg(&file).assert().success();
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
