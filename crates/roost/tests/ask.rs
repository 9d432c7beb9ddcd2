//! Tests of features for questions of one's own: labels, several machines and workloads, `--metric`, numbers and rules.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;
use std::process::Output;

use serde_json::Value;

const ROOST: &str = env!("CARGO_BIN_EXE_roost");

fn compare(arguments: &[&str]) -> Output {
    assert_cmd::Command::new(ROOST).arg("compare").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Standard output of a comparison that must succeed.
fn succeeds(arguments: &[&str]) -> String {
    let output = compare(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// The error line of a comparison that must fail with status 2 and print nothing else.
fn refused(arguments: &[&str]) -> String {
    let output = compare(arguments);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    assert!(told.starts_with("roost: ") && told.lines().count() == 1, "{arguments:?}: {told}");
    told
}

/// A machine, and a workload that ends almost at once.
const SMALL: [&str; 4] = ["--machine", "2n2l4c", "--workload", "hackbench:groups=1,loops=1"];

/// Two machines and two workloads.
const FOUR: [&str; 6] =
    ["--machine", "2n2l4c", "--machine", "1s2n4l2c", "--workload", "hackbench:groups=1,2,loops=1"];

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&succeeds(&[arguments, &["--format", "json"]].concat())).unwrap()
}

#[test]
fn each_of_several_comparisons_is_the_one_that_is_made_alone() {
    let rest = ["--repeat", "2", "base=fair@7.2", "other=fair@7.2+no-sis-util"];
    let several = json(&[&FOUR[..], &rest].concat());
    let several = several["comparisons"].as_array().unwrap();
    let mut places = Vec::new();
    for comparison in several {
        let [machine, workload] = ["machine", "workload"].map(|key| comparison[key].as_str());
        let (machine, workload) = (machine.unwrap(), workload.unwrap());
        let alone = ["--machine", machine, "--workload", workload];
        assert_eq!(*comparison, json(&[&alone[..], &rest].concat()));
        places.push((machine, workload));
    }
    let [one, two] = [1, 2].map(|groups| format!("hackbench:groups={groups},loops=1"));
    let wanted = [("2n2l4c", &one), ("2n2l4c", &two), ("1s2n4l2c", &one), ("1s2n4l2c", &two)];
    assert_eq!(places, wanted.map(|(machine, workload)| (machine, workload.as_str())));
}

#[test]
fn csv_has_machine_and_workload_in_every_row_and_one_header() {
    let rows = succeeds(&[&FOUR[..], &["--repeat", "1", "--format", "csv", "fair@7.2"]].concat());
    let mut reader = csv::Reader::from_reader(rows.as_bytes());
    let cells: Vec<(String, String)> = reader
        .records()
        .map(|row| row.map(|row| (row[0].to_owned(), row[1].to_owned())).unwrap())
        .collect();
    assert_eq!(cells.len(), 4);
    assert_eq!(cells[1], ("2n2l4c".to_owned(), "hackbench:groups=2,loops=1".to_owned()));
    assert_eq!(cells[2], ("1s2n4l2c".to_owned(), "hackbench:groups=1,loops=1".to_owned()));
}

#[test]
fn a_label_names_the_row_and_the_scheduler_is_kept() {
    let labelled = json(&[&SMALL[..], &["--repeat", "1", "mine=fair@7.2+no-hrtick"]].concat());
    assert_eq!(labelled["schedulers"][0], "mine");
    assert_eq!(labelled["specs"][0], "fair@7.2+no-hrtick");
    assert_eq!(labelled["switches"][0][0], "no-hrtick");
    let plain = json(&[&SMALL[..], &["--repeat", "1", "fair@7.2+no-hrtick"]].concat());
    assert_eq!(plain["schedulers"], plain["specs"]);
    assert_eq!(plain["results"], labelled["results"], "a label changes no run");
}

#[test]
fn a_table_of_several_has_a_block_for_each() {
    let text = succeeds(&[&FOUR[..], &["--repeat", "1", "a=fair@7.2", "b=fair@5.19"]].concat());
    assert!(text.contains("\nmachine   workload"), "{text}");
    assert_eq!(text.lines().filter(|line| line.contains("baseline")).count(), 4, "{text}");
    assert!(text.contains("\na: a model of Linux 7.2\nb: a model of Linux 5.19\n"), "{text}");
}

#[test]
fn one_number_is_the_mean_that_json_has_and_nothing_else() {
    let schedulers = ["--repeat", "3", "fair@5.19", "fair@7.2"];
    let comparison = json(&[&SMALL[..], &schedulers].concat());
    let number = succeeds(&[&SMALL[..], &schedulers, &["--metric", "Time"]].concat());
    let mean = comparison["results"][0]["mean"][1].as_f64().unwrap();
    assert_eq!(number, format!("{mean}\n"));
    let counter = succeeds(&[&SMALL[..], &schedulers, &["--metric", "wakeups"]].concat());
    assert_eq!(counter.trim().parse::<f64>().ok(), comparison["counters"]["wakeups"][1].as_f64());
}

/// `--resume` continues an interrupted comparison of several machines and workloads, each from its own runs.
#[test]
fn several_comparisons_go_on_where_they_were_left() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("left.json");
    let schedulers = ["--format", "json", "fair@7.2"];
    let two = succeeds(&[&FOUR[..], &["--repeat", "2"], &schedulers].concat());
    std::fs::write(&file, &two).unwrap();
    let resume = ["--repeat", "3", "--resume", file.to_str().unwrap()];
    let resumed = succeeds(&[&FOUR[..], &resume, &schedulers].concat());
    assert_eq!(resumed, succeeds(&[&FOUR[..], &["--repeat", "3"], &schedulers].concat()));
    // Runs in the file are not repeated: a value that no run would produce must survive.
    let mut document: Value = serde_json::from_str(&two).unwrap();
    document["comparisons"][2]["runs"][0]["metrics"][0]["value"] = Value::from(123.25);
    std::fs::write(&file, document.to_string()).unwrap();
    let resumed = succeeds(&[&FOUR[..], &resume, &schedulers].concat());
    let resumed: Value = serde_json::from_str(&resumed).unwrap();
    assert_eq!(resumed["comparisons"][2]["results"][0]["samples"][0][0], 123.25);
}

#[test]
fn what_is_wrong_is_told_in_one_line() {
    let bad = |workload, scheduler| {
        refused(&["--machine", "2n2l4c", "--workload", workload, "--repeat", "1", scheduler])
    };
    let of = |workload: &'static str| move || bad(workload, "fair@7.2");
    let with = |rest: &'static [&'static str]| {
        move || refused(&[&SMALL[..], &["--repeat", "1"], rest].concat())
    };
    let cases: [(&dyn Fn() -> String, &str); 12] = [
        (&of("hackbench:groups=1,4,4"), "groups: 4 is in its list twice; give it once"),
        (&of("hackbench:4"), "4: a number that follows no list"),
        (&of("hackbench:groups=1,4,x"), "hackbench has no parameter 'x'"),
        (&of("hackbench:groups=1,0"), "groups: '0' is not a whole number in range"),
        (&with(&["x=fair@7.2", "x=fair@5.19"]), "x: labels two rows"),
        (&with(&["x="]), "x=: no scheduler; write for example x=fair@7.2"),
        (&with(&["x=fair@7.9"]), "unknown version '7.9'"),
        (&with(&["--metric", "Tme", "fair@7.2"]), "metrics are Time; did you mean Time?"),
        (&with(&["--metric", "Time", "--format", "json", "fair@7.2"]), "cannot be used with"),
        (&with(&["--metric", "Time", "--machine", "1s2n4l2c", "fair@7.2"]), "one machine and one"),
        (&with(&["--machine", "2n2l4c", "fair@7.2"]), "--machine 2n2l4c: given twice"),
        (&with(&["--workload", SMALL[3], "fair@7.2"]), "loops=1: given twice; give it once"),
    ];
    for (refused, wanted) in cases {
        let told = refused();
        assert!(told.contains(wanted), "{wanted}: {told}");
    }
}

#[test]
fn a_trace_is_of_one_machine_and_workload() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.pftrace");
    let trace = ["--trace", file.to_str().unwrap(), "fair@7.2"];
    assert!(refused(&[&FOUR[..], &trace].concat()).contains("--trace takes one machine"));
    assert!(!Path::exists(&file));
}

/// A rule's file in a folder of its own, and the folder that caches compiled rules.
struct Rule {
    folder: tempfile::TempDir,
}

impl Rule {
    fn new(body: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "static __always_inline u32 roost_nr_idle_scan(u64 sum_util, u32 llc_weight, u32 imbalance_pct)\n\
             {{\n\t{body}\n}}\n"
        );
        std::fs::write(folder.path().join("mine.h"), text).unwrap();
        Self { folder }
    }

    /// Runs a comparison in that folder.
    fn compare(&self, arguments: &[&str]) -> Output {
        let mut command = assert_cmd::Command::new(ROOST);
        command.current_dir(&self.folder).env("ROOST_CACHE", self.folder.path().join("cache"));
        command.arg("compare").args(SMALL).args(["--repeat", "2"]).args(arguments);
        command.timeout(std::time::Duration::from_secs(120)).output().unwrap()
    }

    /// The last line that a comparison prints, which must end with `status`.
    fn ends_with(&self, status: i32) -> String {
        let output = self.compare(&["fair@7.2+policy=mine.h"]);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{told}");
        assert!(told.starts_with("roost: ") && told.lines().count() == 1, "{told}");
        told
    }
}

#[test]
fn before_and_after_a_rule_stand_in_one_table() {
    let rule = Rule::new("return imbalance_pct && sum_util > ~0ull - 1 ? 1 : 0 * llc_weight;");
    let schedulers = ["fair@7.2", "none=fair@7.2+policy=mine.h", "--format", "json"];
    let output = rule.compare(&schedulers);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["schedulers"][1], "none");
    let switch = document["switches"][1][0].as_str().unwrap();
    assert!(switch.starts_with("policy=mine.h@") && switch.len() == 26, "{switch}");
    let scanned = &document["counters"]["sis_scanned"];
    assert_ne!(scanned[0], scanned[1], "no search begins: {scanned}");
    assert_eq!(rule.compare(&schedulers).stdout, output.stdout, "the same bytes again");
    let off = rule.compare(&["fair@7.2+no-sis-util+policy=mine.h"]);
    let told = text(&off.stdout);
    assert!(told.contains("is not called: roost_nr_idle_scan, sis-util is off"), "{told}");
}

#[test]
fn the_rule_that_a_header_has_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let roost = |arguments: &[&str]| {
        let mut command = assert_cmd::Command::new(ROOST);
        command.current_dir(&folder).env("ROOST_CACHE", folder.path().join("cache"));
        command.args(arguments).output().unwrap()
    };
    let written = roost(&["policy", "new", "sis-util"]);
    assert!(written.status.success(), "{}", text(&written.stderr));
    let arguments = ["fair@7.2", "same=fair@7.2+policy=my_rule.h", "--format", "json"];
    let output = roost(&[&["compare"], &SMALL[..], &arguments].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let samples = &document["results"][0]["samples"];
    assert_eq!(samples[0], samples[1]);
    let notes = document["notes"].to_string();
    assert!(notes.contains("+policy=my_rule.h changed nothing in these runs"), "{notes}");
    let again = roost(&["policy", "new", "sis-util"]);
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("my_rule.h: exists already"));
    let list = text(&roost(&["policy", "list"]).stdout);
    let searched =
        "\nsis-util: on in 6.15, 7.2, else with fair@VERSION+sis-util\n  roost_nr_idle_scan ";
    assert!(list.contains(searched), "{list}");
    assert!(
        list.contains("\ncling: on with fair@VERSION+cling\n")
            || list.starts_with("cling: on with"),
        "{list}"
    );
    let unknown = text(&roost(&["policy", "new", "sis-utl"]).stderr);
    assert!(
        unknown.contains("no mechanism or function sis-utl; did you mean sis-util?"),
        "{unknown}"
    );
}

/// The file that `roost policy new` writes for a mechanism compiles without changes.
#[test]
fn every_template_is_a_rule() {
    let list = assert_cmd::Command::new(ROOST).args(["policy", "list"]).output().unwrap();
    let list = text(&list.stdout);
    let headings = list.lines().filter(|line| !line.is_empty() && !line.starts_with(' '));
    for mechanism in headings.map(|heading| heading.split_once(": ").unwrap().0) {
        let rule = Rule::new("");
        let file = rule.folder.path().join("mine.h");
        std::fs::remove_file(&file).unwrap();
        let new = ["policy", "new", mechanism, file.to_str().unwrap()];
        assert!(assert_cmd::Command::new(ROOST).args(new).output().unwrap().status.success());
        let output = rule.compare(&["fair@7.2+policy=mine.h"]);
        assert!(output.status.success(), "{mechanism}: {}", text(&output.stderr));
    }
}

#[test]
fn a_rule_that_does_not_return_or_faults_ends_the_run_with_its_name() {
    let told = |body: &str| Rule::new(body).ends_with(1);
    let endless =
        told("volatile u32 one = 1;\n\twhile (one)\n\t\tllc_weight++;\n\treturn llc_weight;");
    assert!(endless.contains("mine.h: roost_nr_idle_scan has not returned for 5 s"), "{endless}");
    if cfg!(target_arch = "x86_64") {
        let zero = told("volatile u32 zero = 0;\n\treturn llc_weight / zero;");
        assert!(zero.contains("mine.h: roost_nr_idle_scan divides by zero"), "{zero}");
    }
    let wild = told("return *(volatile u32 *)(sum_util / ~0ull + 8);");
    assert!(wild.contains("mine.h: roost_nr_idle_scan reads or writes memory"), "{wild}");
}

#[test]
fn what_is_wrong_with_a_rule_or_a_number_is_told_in_one_line() {
    let bad = |scheduler: &str| {
        let rule = Rule::new("return llc_wieght;");
        let output = rule.compare(&[scheduler]);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{scheduler}: {told}");
        assert!(output.stdout.is_empty(), "{scheduler}");
        assert!(told.starts_with("roost: ") && told.lines().count() == 1, "{scheduler}: {told}");
        assert!(told.len() < 1000, "{scheduler}: {told}");
        told
    };
    let cases = [
        ("fair@7.2+policy=mine.h", "'llc_wieght' undeclared"),
        ("fair@7.2+policy=other.h", "other.h: cannot be read"),
        ("fair@7.2+policy=", ": cannot be read"),
        ("fair@7.2+policy", "unknown switch 'policy'"),
        ("roost+policy=mine.h", "takes a rule when it is built: make live POLICY=FILE"),
        ("fair@7.2+base-slice-ns=5", "takes a whole number from 100000 to 1000000000, ns"),
        ("fair@7.2+base-slice-ns=", "takes a whole number"),
        ("fair@7.2+base-slice-ns=3ms", "takes a whole number"),
        ("fair@7.2+sis-util-threshold=101", "takes a whole number from 1 to 100, %"),
        ("fair@7.2+base-slice=3000000", "did you mean base-slice-ns?"),
        ("fair@5.19+base-slice-ns=3000000", "it is of 6.15 and later: leave it out"),
        ("fair@7.2+migration-cost=117", "did you mean migration-cost-ns?"),
        ("fair@7.2+nr-migrate=-1", "takes a whole number from 1 to 1024, tasks"),
    ];
    for (scheduler, wanted) in cases {
        let told = bad(scheduler);
        assert!(told.contains(wanted), "{wanted}: {told}");
    }
}

#[test]
fn numbers_are_listed_with_unit_range_default_and_file() {
    let list = succeeds(&["--list-schedulers", "--format", "json"]);
    let list: Value = serde_json::from_str(&list).unwrap();
    let rows = list.as_array().unwrap().iter();
    let number = |name: &str| rows.clone().find(|row| row["name"] == name).unwrap();
    let cost = number("+migration-cost-ns=N");
    assert_eq!((cost["unit"].as_str(), cost["default"].as_str()), (Some("ns"), Some("500000")));
    assert_eq!(
        (cost["least"].as_u64(), cost["file"].as_str()),
        (Some(0), Some("migration_cost_ns"))
    );
    assert_eq!(number("+sis-util-threshold=N")["file"], Value::Null);
}

#[test]
fn a_number_changes_what_it_says() {
    let with = |number: &str| {
        let scheduler = format!("fair@7.2+no-ni-random{number}");
        succeeds(&[&SMALL[..], &["--repeat", "1", "--metric", "Time", &scheduler]].concat())
    };
    assert_eq!(with(""), with("+migration-cost-ns=500000+nr-migrate=32"), "the defaults");
    assert_ne!(with(""), with("+base-slice-ns=100000"));
}
