//! Reports in a real browser, used as a reader uses them: everything is drawn, clicks do what they should, and
//! nothing is complained of. Ignored unless asked for (`make test-look`): it needs Chromium.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine;
use serde::Deserialize;

/// Stands before the report's own script.
const CHECK: &str = include_str!("browser/check.js");

/// What `check.js` leaves in the page.
#[derive(Debug, Deserialize)]
struct Found {
    /// The part of the report that each chart is in, and whether something was drawn.
    charts: Vec<(String, bool)>,
    sections: Vec<String>,
    /// Charts of the second scheduler: at first, and after one and two clicks on its name.
    toggled: Option<Vec<u32>>,
    /// For each choice of tasks, the sum over the first scheduler's heat map.
    tasks: Option<BTreeMap<String, f64>>,
    /// The rows of that map: at first, and after a click on the first row, and on that of what it led to.
    clicked: Option<Vec<Vec<String>>>,
    drawn_ms: u64,
    /// Whether the page is wider than its window.
    wide: bool,
    /// Elements that only a name with markup could have made.
    markup: u32,
    errors: Vec<String>,
}

/// Where screenshots and reports are kept.
fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("look");
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// A report of this comparison.
fn report(name: &str, args: &[&str]) -> PathBuf {
    let file = folder().join(format!("{name}.html"));
    let mut roost = assert_cmd::Command::new(env!("CARGO_BIN_EXE_roost"));
    roost.arg("compare").args(args).arg("--html").arg(&file).assert().success();
    file
}

/// Chromium with a profile of its own, a window of that size, and what it is to do.
fn chromium(args: &[&str], (width, height): (u32, u32), page: &Path) -> String {
    let profile = tempfile::tempdir().unwrap();
    let mut command = Command::new("chromium");
    command.args([
        "--headless",
        "--disable-gpu",
        "--hide-scrollbars",
        "--allow-file-access-from-files",
    ]);
    // Root has no sandbox: that is so of containers.
    command.args(["--no-sandbox", "--virtual-time-budget=60000"]);
    command.arg(format!("--user-data-dir={}", profile.path().display()));
    command.arg(format!("--window-size={width},{height}")).args(args);
    let output = command.arg(format!("file://{}", page.display())).output();
    let output = output.expect("chromium runs: tools/setup chromium:chromium");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What a reader finds in the report, at a window of that size.
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

/// Keeps pictures of the report: on a desk, at night, and on a phone, whose window is a frame: Chromium's own
/// are wider.
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

/// What holds of every report, at a desk and on a small screen.
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

/// How many charts a part has.
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

/// Names are the user's.
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
        // The first run twice as much.
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
