//! Tests `roost sweep`: the result has the same bytes whatever interrupts it, and each mistake gives one clear error.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeSet;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt64Type};
use serde_json::Value;
use tempfile::TempDir;

const ROOST: &str = env!("CARGO_BIN_EXE_roost");

/// 2 machines, 2 workloads, 3 schedulers, 2 values of a number, 3 seeds: 72 runs of a few milliseconds.
const SMALL: &str = r#"
machines = ["2n2l4c", "1s2n4l2c"]
workloads = "hackbench:groups=1,2,loops=5"
schedulers = ["base=fair@7.2", "fair@5.19", "mine=fair@7.2+no-sis-util"]
seeds = 3
numbers.migration-cost-ns = ["default", 100000]
"#;

/// 5 machines, 6 workloads, 4 schedulers and 20 seeds in at most 25 lines.
const LARGE: &str = r#"# What two rules do on five machines.
machines = ["2n2l4c", "1s2n4l2c", "2n2l2c2t", "node:1 l3:2 core:4 pu:1", "node:1 l3:1 core:4 pu:1"]
workloads = [
  "hackbench:groups=1,2,loops=1",
  "hackbench:groups=1,loops=1,pipe",
  "coremark:threads=1,2,4",
]
schedulers = [
  "base=fair@7.2",
  "fair@5.19",
  "no-search-limit=fair@7.2+no-sis-util",
  "fair@7.2+base-slice-ns=3000000",
]
seeds = 20
duration = "100ms"
quiet = true
"#;

/// A folder with a plan.
fn folder(plan: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("plan.toml"), plan).unwrap();
    folder
}

/// The command `roost sweep plan.toml` in that folder.
fn command(folder: &Path, rest: &[&str]) -> Command {
    let mut command = Command::new(ROOST);
    command.args(["sweep", "plan.toml"]).args(rest).current_dir(folder);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn sweep(folder: &Path, rest: &[&str]) -> Output {
    let output = command(folder, rest).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    output
}

/// The bytes of this plan's result when nothing interrupts the sweep.
fn undisturbed(plan: &str) -> Vec<u8> {
    let folder = folder(plan);
    sweep(folder.path(), &[]);
    assert!(!folder.path().join("plan.parquet.journal").exists());
    fs::read(folder.path().join("plan.parquet")).unwrap()
}

fn lines(journal: &Path) -> usize {
    fs::read(journal).map_or(0, |bytes| bytes.iter().filter(|byte| **byte == b'\n').count())
}

/// The runs that the journal contains.
fn kept(journal: &Path) -> Vec<(u64, u64)> {
    let text = String::from_utf8_lossy(&fs::read(journal).unwrap()).into_owned();
    let whole = text.lines().skip(1).filter_map(|line| serde_json::from_str::<Value>(line).ok());
    whole.map(|run| (run["cell"].as_u64().unwrap(), run["repeat"].as_u64().unwrap())).collect()
}

/// Starts the sweep and kills it (SIGKILL, which no handler sees) once the journal has `wanted` lines.
fn killed(folder: &Path, wanted: usize, wait: Duration) {
    let journal = folder.join("plan.parquet.journal");
    let mut child =
        command(folder, &[]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while lines(&journal) < wanted && begun.elapsed() < Duration::from_secs(60) {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was killed");
        std::thread::sleep(Duration::from_micros(200));
    }
    std::thread::sleep(wait);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn killed_three_times_the_result_is_the_same_bytes_and_nothing_is_run_twice() {
    let folder = folder(SMALL);
    let journal = folder.path().join("plan.parquet.journal");
    let mut before = BTreeSet::new();
    for kill in 0..3_usize {
        let random = RandomState::new().hash_one(kill);
        let (more, wait) = (1 + random % 15, Duration::from_micros(random % 5000));
        println!("kill {kill}: after {more} more runs and {wait:?}");
        killed(folder.path(), 1 + before.len() + more as usize, wait);
        let kept = kept(&journal);
        let now: BTreeSet<_> = kept.iter().copied().collect();
        assert_eq!(now.len(), kept.len(), "a run stands in the journal once");
        assert!(now.is_superset(&before) && now.len() > before.len() && now.len() < 72);
        before = now;
    }
    let told = text(&sweep(folder.path(), &[]).stderr);
    let left = 72 - before.len();
    assert!(told.contains(&format!("72 runs of 24 cells, of which {} are kept", before.len())));
    assert!(told.contains(&format!("{left} runs took")), "{told}");
    assert_eq!(fs::read(folder.path().join("plan.parquet")).unwrap(), undisturbed(SMALL));
    assert!(!journal.exists());
}

#[test]
fn the_result_does_not_depend_on_jobs_and_is_never_made_again_or_lost() {
    let folder = folder(SMALL);
    sweep(folder.path(), &["--jobs", "1"]);
    let bytes = fs::read(folder.path().join("plan.parquet")).unwrap();
    assert!(bytes == undisturbed(SMALL));
    let told = text(&sweep(folder.path(), &[]).stderr);
    assert!(told.contains("plan.parquet has all 72 runs already"), "{told}");
    fs::write(folder.path().join("plan.toml"), SMALL.replace("seeds = 3", "seeds = 2")).unwrap();
    let output = command(folder.path(), &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("plan.parquet: the file exists"));
    assert!(fs::read(folder.path().join("plan.parquet")).unwrap() == bytes);
}

/// A limit on file size replaces a full disk: writes fail in the same way.
#[test]
fn what_a_full_disk_left_is_gone_on_with() {
    let folder = folder(SMALL);
    // `ulimit -f` counts blocks of 1024 bytes in this shell. SIGXFSZ is ignored, so that the write fails.
    let script = format!("trap '' XFSZ; ulimit -f 100; exec {ROOST} sweep plan.toml");
    let output =
        Command::new("sh").args(["-c", &script]).current_dir(folder.path()).output().unwrap();
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    let last = told.lines().last().unwrap();
    assert!(last.contains("plan.parquet.journal: cannot be written: File too large"), "{told}");
    assert!(!folder.path().join("plan.parquet").exists());
    let kept = kept(&folder.path().join("plan.parquet.journal")).len();
    assert!(kept > 0 && kept < 72, "{kept}");
    sweep(folder.path(), &[]);
    assert!(fs::read(folder.path().join("plan.parquet")).unwrap() == undisturbed(SMALL));
}

#[test]
fn a_torn_last_line_counts_for_nothing_and_a_damaged_one_is_told() {
    let folder = folder(SMALL);
    killed(folder.path(), 4, Duration::ZERO);
    let journal = folder.path().join("plan.parquet.journal");
    let whole = fs::read(&journal).unwrap();
    let end = whole.iter().rposition(|byte| *byte == b'\n').unwrap();
    fs::write(&journal, &whole[..end - 10]).unwrap();
    sweep(folder.path(), &[]);
    assert!(fs::read(folder.path().join("plan.parquet")).unwrap() == undisturbed(SMALL));
    fs::remove_file(folder.path().join("plan.parquet")).unwrap();
    let damaged = [&whole[..end - 10], b"\n", &whole[..=end]].concat();
    fs::write(&journal, damaged).unwrap();
    let told = text(&command(folder.path(), &[]).output().unwrap().stderr);
    assert!(told.contains("damaged") && told.contains("remove the file to start anew"), "{told}");
}

/// As for `roost compare`: what is wrong in an object has status 1.
#[test]
fn a_broken_object_ends_a_sweep_before_it_begins() {
    let folder = folder("");
    let object = folder.path().join("mine.bpf.o");
    fs::write(&object, "no object").unwrap();
    for (file, status, told) in
        [(object, 1, "not a BPF object"), ("/nowhere.bpf.o".into(), 2, "No such file")]
    {
        let plan = format!(
            "machines = \"2n2l4c\"\nworkloads = \"hackbench\"\nschedulers = \"scx:{}\"\n",
            file.display()
        );
        fs::write(folder.path().join("plan.toml"), plan).unwrap();
        let output = command(folder.path(), &[]).output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{error}");
        assert!(error.contains(told) && error.lines().count() == 1, "{error}");
    }
}

#[test]
fn a_journal_is_of_one_plan_and_one_process() {
    let folder = folder(SMALL);
    killed(folder.path(), 3, Duration::ZERO);
    let other = SMALL.replace("loops=5", "loops=6");
    fs::write(folder.path().join("plan.toml"), other).unwrap();
    let refused = || {
        let output = command(folder.path(), &[]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        text(&output.stderr)
    };
    assert!(refused().contains("runs of another plan"));
    // Adding a comment does not make another plan.
    fs::write(folder.path().join("plan.toml"), format!("# Mine.\n{SMALL}")).unwrap();
    let journal = fs::File::open(folder.path().join("plan.parquet.journal")).unwrap();
    // SAFETY: the file is open.
    assert_eq!(unsafe { libc::flock(journal.as_raw_fd(), libc::LOCK_EX) }, 0);
    assert!(refused().contains("another process writes to it"));
    drop(journal);
    sweep(folder.path(), &[]);
}

#[test]
fn ctrl_c_says_what_is_kept_and_the_same_command_goes_on() {
    let folder = folder(&SMALL.replace("loops=5", "loops=200"));
    let mut command = command(folder.path(), &["--jobs", "1"]);
    let child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    while lines(&folder.path().join("plan.parquet.journal")) < 3 {
        std::thread::sleep(Duration::from_millis(1));
    }
    // SAFETY: the child is ours, and nobody has waited for it.
    assert_eq!(unsafe { libc::kill(child.id().cast_signed(), libc::SIGINT) }, 0);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let told = text(&output.stderr);
    assert!(told.contains(
        "of 72 runs are kept in plan.parquet.journal; give the same command to continue"
    ));
}

/// The bar: a plan of 25 lines makes 2,400 runs, and each cell has its line.
#[test]
fn a_plan_of_25_lines_makes_2400_runs() {
    assert!(LARGE.lines().count() <= 25);
    let folder = folder(LARGE);
    let output = sweep(folder.path(), &[]);
    let told = text(&output.stdout);
    assert_eq!(told.lines().count(), 5 * 6 * 4, "one line for each cell: {told}");
    let result = roost_sweep::read(&folder.path().join("plan.parquet")).unwrap();
    let rows: usize = result.batches.iter().map(arrow_array::RecordBatch::num_rows).sum();
    assert_eq!(rows, 5 * 6 * 4 * 20);
}

/// A row has the same values as a comparison with the same run.
#[test]
fn rows_are_the_runs_that_compare_makes() {
    let folder = folder(SMALL);
    sweep(folder.path(), &[]);
    let result = roost_sweep::read(&folder.path().join("plan.parquet")).unwrap();
    let batch = &result.batches[0];
    let column = |name: &str| batch.column_by_name(name).unwrap();
    let names = |name: &str| column(name).as_string::<i32>();
    let wanted = |row: &usize| {
        names("machine").value(*row) == "1s2n4l2c"
            && names("workload").value(*row) == "hackbench:groups=2,loops=5"
            && names("scheduler").value(*row) == "mine+migration-cost-ns=100000"
    };
    let rows: Vec<usize> = (0..batch.num_rows()).filter(wanted).collect();
    let seeds = column("seed").as_primitive::<UInt64Type>();
    assert_eq!(rows.iter().map(|row| seeds.value(*row)).collect::<Vec<_>>(), [1, 2, 3]);
    let compare = Command::new(ROOST)
        .args(["compare", "--machine", "1s2n4l2c", "--workload", "hackbench:groups=2,loops=5"])
        .args(["--repeat", "3", "--format", "json"])
        .arg("fair@7.2+no-sis-util+migration-cost-ns=100000")
        .output();
    let compared: Value = serde_json::from_slice(&compare.unwrap().stdout).unwrap();
    for (row, run) in rows.iter().zip(compared["runs"].as_array().unwrap()) {
        let value = |name: &str| column(name).as_primitive::<Float64Type>().value(*row);
        assert_eq!(Some(value("Time")), run["metrics"][0]["value"].as_f64());
        for (name, counter) in run["counters"].as_object().unwrap() {
            assert_eq!(Some(value(name)), counter.as_f64(), "{name}");
        }
        let nodes = column("node_run_ns").as_list::<i32>().value(*row);
        let nodes = nodes.as_primitive::<UInt64Type>().values().to_vec();
        assert_eq!(serde_json::json!(nodes), run["node_run_ns"]);
        assert!(column("error").is_null(*row));
    }
    let number = column("migration-cost-ns");
    assert_eq!(number.null_count(), batch.num_rows() / 2, "null: the default");
    let metadata = result.schema.metadata();
    assert_eq!(metadata["roost.plan"], SMALL);
    let inputs: Value = serde_json::from_str(&metadata["roost.inputs"]).unwrap();
    assert_eq!(inputs["machines_sha256"]["1s2n4l2c"], compared["machine_sha256"]);
    assert_eq!(inputs["schedulers"]["base"]["spec"], "fair@7.2");
}

#[test]
fn what_is_listed_is_run_and_nothing_else() {
    let plan = r#"
schedulers = ["fair@7.2", "fair@5.19"]
seeds = [3, 5]
[[listed]]
machines = "2n2l4c"
workloads = "hackbench:groups=1,loops=1"
[[listed]]
machines = "1s2n4l2c"
workloads = "coremark:threads=2"
schedulers = "fair@7.2"
duration = "20ms"
"#;
    let folder = folder(plan);
    sweep(folder.path(), &[]);
    let result = roost_sweep::read(&folder.path().join("plan.parquet")).unwrap();
    let batch = &result.batches[0];
    let rows = (0..batch.num_rows()).map(|row| {
        let name = |name: &str| {
            batch.column_by_name(name).unwrap().as_string::<i32>().value(row).to_owned()
        };
        let seed = batch.column_by_name("seed").unwrap().as_primitive::<UInt64Type>().value(row);
        format!("{} {} {seed}", name("machine"), name("scheduler"))
    });
    assert_eq!(
        rows.collect::<Vec<_>>(),
        [
            "2n2l4c fair@7.2 3",
            "2n2l4c fair@7.2 5",
            "2n2l4c fair@5.19 3",
            "2n2l4c fair@5.19 5",
            "1s2n4l2c fair@7.2 3",
            "1s2n4l2c fair@7.2 5",
        ]
    );
}

/// A failed run becomes a row with the reason. The other runs are complete.
#[test]
fn runs_that_fail_are_rows_with_a_reason() {
    let plan = r#"
machines = "2n2l4c"
workloads = ["hackbench:groups=1,loops=1", "tbench:clients=4"]
schedulers = "fair@7.2"
seeds = 2
duration = "10us"
"#;
    let folder = folder(plan);
    let output = command(folder.path(), &[]).output().unwrap();
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.lines().last().unwrap().contains("runs failed: plan.parquet has"), "{told}");
    let result = roost_sweep::read(&folder.path().join("plan.parquet")).unwrap();
    let batch = &result.batches[0];
    assert_eq!(batch.num_rows(), 4);
    let errors = batch.column_by_name("error").unwrap().as_string::<i32>();
    let failed = (0..4).filter(|row| errors.is_valid(*row)).count();
    assert!(failed > 0);
    let changes = roost_sweep::Changes::of(&result.schema, &result.batches).unwrap();
    assert_eq!(changes.failed.iter().map(|failed| failed.runs).sum::<usize>(), failed);
}

#[test]
fn a_report_is_one_page_without_a_request() {
    let folder = folder(SMALL);
    sweep(folder.path(), &[]);
    let mut report = Command::new(ROOST);
    report.args(["sweep", "report", "plan.parquet"]).current_dir(folder.path());
    assert_eq!(text(&report.output().unwrap().stdout), "plan.html\n");
    let html = fs::read_to_string(folder.path().join("plan.html")).unwrap();
    assert!(html.len() < 2_000_000 && html.contains("What wins where"));
    assert!(!html.contains("src=\"http") && !html.contains("{{"));
}

/// The error line of a command that must be refused.
fn refused(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new(ROOST).args(arguments).current_dir(folder).output().unwrap();
    let told = text(&output.stderr);
    assert!(matches!(output.status.code(), Some(1 | 2)), "{arguments:?}: {told}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    assert!(told.starts_with("roost: ") && told.lines().count() == 1, "{arguments:?}: {told}");
    let left: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    assert_eq!(left.len(), 1, "nothing is left behind but the plan: {left:?}");
    told
}

#[test]
fn what_is_wrong_with_a_plan_is_told_in_one_line() {
    let good = "machines = '2n2l4c'\nworkloads = 'hackbench:groups=1'\nschedulers = 'fair@7.2'\n";
    let with = |line: &str| format!("{good}{line}\n");
    let instead = |from: &str, to: &str| good.replace(from, to);
    let listed = "[[listed]]\n";
    let cases: Vec<(String, &str)> = vec![
        ("machines = [".to_owned(), "plan.toml:1: "),
        (with("seed = 3"), "plan.toml:4: unknown field `seed`"),
        (instead("machines = '2n2l4c'\n", ""), "plan.toml: no machines; name at least one"),
        (instead("'fair@7.2'", "[]"), "an empty list; give a name or a list of names"),
        (instead("'fair@7.2'", "7.2"), "expected a name or a list of names"),
        (instead("2n2l4c", "zen3-s2"), "did you mean zen3-2s"),
        (instead("'2n2l4c'", "['2n2l4c', '2n2l4c']"), "machines: 2n2l4c: given twice"),
        (instead("hackbench", "hackbnech"), "did you mean hackbench"),
        (instead("groups=1", "groups=1,1"), "groups: 1 is in its list twice"),
        (instead("fair@7.2", "fair@7.9"), "unknown version '7.9'"),
        (instead("'fair@7.2'", "['a=fair@7.2', 'a=fair@5.19']"), "a: labels two rows"),
        (with("seeds = 0"), "seeds: 0 of them make no run"),
        (with("seeds = [1, 1]"), "seed 1: given twice"),
        (with("seeds = 'many'"), "expected how many seeds, or a list of seeds"),
        (with("duration = '0s'"), "duration: a run of 0 s measures nothing"),
        (with("duration = 'soon'"), "write for example \"500ms\" or \"20s\""),
        (with("start = 'cold'"), "unknown variant `cold`, expected `running` or `boot`"),
        (with("numbers.migration-cost = 1"), "migration-cost-ns"),
        (with("numbers.sis-util-threshold = 101"), "sis-util-threshold"),
        (with("numbers.nr-migrate = ['all']"), "'all': no whole number; write for example"),
        (with("numbers.nr-migrate = [8, 8]"), "nr-migrate: 8: given twice"),
        (with(&format!("{listed}{listed}")), "2n2l4c, hackbench:groups=1, fair@7.2: listed twice"),
        (
            with(&format!("{listed}{listed}duration = '1s'\nschedulers = 'fair@5.19'")),
            "hackbench:groups=1: has two durations",
        ),
        (with("seeds = 1000000"), "seeds: 1000000 of them; give at most 10000"),
    ];
    for (plan, wanted) in cases {
        let folder = folder(&plan);
        let told = refused(folder.path(), &["sweep", "plan.toml"]);
        assert!(told.contains("plan.toml") && told.contains(wanted), "{plan}\n{wanted}\n{told}");
    }
}

#[test]
fn what_is_wrong_with_a_call_is_told_in_one_line() {
    let folder = folder(SMALL);
    let cases: [(&[&str], &str); 6] = [
        (&["sweep", "plna.toml"], "plna.toml: cannot be read: No such file"),
        (&["sweep"], "required arguments were not provided"),
        (&["sweep", "plan.toml", "--output", "no/such.parquet"], "no/such.parquet.journal: cannot"),
        (&["sweep", "plan.toml", "--jobs", "0"], "0 is not in 1..=1024"),
        (&["sweep", "report", "none.parquet"], "none.parquet: cannot be read"),
        (&["sweep", "report", "plan.toml"], "plan.toml: not the result of a sweep"),
    ];
    for (arguments, wanted) in cases {
        let told = refused(folder.path(), arguments);
        assert!(told.contains(wanted), "{arguments:?}: {told}");
    }
}
