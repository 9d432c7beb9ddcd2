//! Questions of one's own: labels, lists of machines and workloads, one number.

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

/// Standard output of a comparison that succeeds.
fn succeeds(arguments: &[&str]) -> String {
    let output = compare(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// The one line of a comparison that is refused with status 2 and prints nothing else.
fn refused(arguments: &[&str]) -> String {
    let output = compare(arguments);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    assert!(told.starts_with("roost: ") && told.lines().count() == 1, "{arguments:?}: {told}");
    told
}

/// A machine and a workload that takes no time.
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

/// An interrupted comparison of several goes on with what each of them left.
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
    // What the file has is not run again: a figure that no run leaves stays.
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
        (&of("hackbench:groups=1,4,4"), "groups: 4 stands twice in its list; give it once"),
        (&of("hackbench:4"), "4: a number that continues no list"),
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
    assert!(refused(&[&FOUR[..], &trace].concat()).contains("--trace is of one machine"));
    assert!(!Path::exists(&file));
}
