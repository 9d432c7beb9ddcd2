//! Tests `roost reproduce`, and that docs/results.json is what this program makes of the recipes.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use roost_reproduce::{Results, Verdict};
use serde_json::Value;

/// Studies that take one or two seconds together.
const CHEAP: [&str; 3] = ["coremark", "stream", "stream-others"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A temporary folder for documentation and cached runs.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_roost"));
    command.current_dir(repository()).env("ROOST_CACHE", folder.join("cache"));
    command.args(["reproduce", "--docs", folder.to_str().unwrap()]).args(args);
    command
}

fn reproduce(folder: &Path, args: &[&str]) -> Output {
    command(folder, args).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json(text: &[u8]) -> Value {
    serde_json::from_slice(text).unwrap()
}

/// If this fails, a change of the program changed its results for published figures. Look at the rows, then write the
/// page anew with `roost reproduce`.
#[test]
fn cheap_rows_of_results_json_are_what_this_program_makes() {
    let folder = folder();
    let output = reproduce(folder.path(), &[&["--format", "json"], &CHEAP[..]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let ours = json(&output.stdout);
    let written = json(&fs::read(repository().join("docs/results.json")).unwrap());
    for study in CHEAP {
        let rows = |all: &Value| all["studies"][study]["rows"].clone();
        let run = |row: &&Value| !row["simulated"].is_null();
        let (ours, written) = (rows(&ours), rows(&written));
        let pairs = ours.as_array().unwrap().iter().zip(written.as_array().unwrap());
        for (ours, written) in pairs.filter(|(_, written)| run(written)) {
            assert_eq!(ours, written, "{study}: `roost reproduce {study}` writes it anew");
        }
    }
}

/// The page follows from the JSON; nobody edits it by hand.
#[test]
fn the_page_follows_from_results_json() {
    let docs = repository().join("docs");
    let text = fs::read_to_string(docs.join("results.json")).unwrap();
    let results = Results::parse(&text).unwrap();
    assert_eq!(results.json(), text, "results.json was changed");
    let page = fs::read_to_string(docs.join("results.md")).unwrap();
    assert_eq!(roost_reproduce::page(&results), page, "results.md was changed");
}

/// A run whose halves differ may be too short, so the page says so.
#[test]
fn rows_that_are_not_steady_are_marked() {
    let text = fs::read_to_string(repository().join("docs/results.json")).unwrap();
    let mut results = Results::parse(&text).unwrap();
    let rows = &mut results.studies.get_mut("coremark").unwrap().rows;
    let ours = rows[1].simulated.as_mut().unwrap();
    (ours.base_drift_pct, ours.patched_drift_pct) = (Some(8.4), Some(-3.2));
    let id = rows[1].id.clone();
    let page = roost_reproduce::page(&results);
    let marked = page.lines().find(|line| line.starts_with(&format!("| {id} "))).unwrap();
    assert!(marked.contains(" \\* | "), "{marked}");
    let told = format!("- {id}: +8% without the change, -3% with it");
    assert!(page.contains(&told), "{page}");
    assert!(results.json().contains("\"base_drift_pct\": 8.4"));
}

/// The score's count, made anew from the rows.
#[test]
fn rows_where_nothing_acted_are_told() {
    let text = std::fs::read(repository().join("docs/results.json")).unwrap();
    let results = json(&text);
    let studies = results["studies"].as_object().unwrap().values();
    let rows = studies.flat_map(|study| study["rows"].as_array().unwrap());
    let unmoved = rows.filter(|row| {
        row["verdict"] == "no change as published"
            && row["simulated"]["base"] == row["simulated"]["patched"]
    });
    assert_eq!(results["score"]["all"]["unmoved"], unmoved.count());
}

/// Runs of earlier programs are judged by today's rules too.
#[test]
fn verdicts_are_those_of_the_figures() {
    let text = fs::read_to_string(repository().join("docs/results.json")).unwrap();
    let results = Results::parse(&text).unwrap();
    let mut wrong = results.clone();
    let rows = wrong.studies.values_mut().flat_map(|study| &mut study.rows);
    rows.for_each(|row| row.verdict = Verdict::NotRun);
    let judged = Results::default().over(wrong);
    let verdicts = |results: &Results| -> Vec<(String, Verdict)> {
        let rows = results.studies.values().flat_map(|study| &study.rows);
        rows.map(|row| (row.id.clone(), row.verdict)).collect()
    };
    assert_eq!(verdicts(&judged), verdicts(&results));
}

/// A second call runs nothing. If one study is run alone, the others stay on the page.
#[test]
fn runs_are_kept_and_other_studies_stay() {
    let folder = folder();
    let first = reproduce(folder.path(), &["stream"]);
    assert!(
        stderr(&first).contains("4 of 4 rows; 6 of 6 runs are to be made"),
        "{}",
        stderr(&first)
    );
    let again = reproduce(folder.path(), &["stream"]);
    assert!(stderr(&again).contains("0 of 6 runs are to be made"), "{}", stderr(&again));
    assert_eq!(first.stdout, again.stdout);
    assert!(reproduce(folder.path(), &["coremark"]).status.success());
    let written = json(&fs::read(folder.path().join("results.json")).unwrap());
    let studies = written["studies"].as_object().unwrap();
    let run = studies.iter().filter(|(_, study)| !study["program"].is_null());
    let run: Vec<&String> = run.map(|(name, _)| name).collect();
    assert_eq!(run, ["coremark", "stream"]);
    assert!(studies.len() > 10, "the others are there as studies that were not run");
    let page = fs::read_to_string(folder.path().join("results.md")).unwrap();
    assert!(page.contains("### coremark") && page.contains("### stream"), "{page}");
}

/// A published change that roost predicts well, and that `make demo` shows: both values are within 15%.
#[test]
fn streams_bandwidth_in_large_arrays_is_right() {
    let folder = folder();
    let output = reproduce(folder.path(), &["stream-others", "--format", "json"]);
    let all = json(&output.stdout);
    let rows = all["studies"]["stream-others"]["rows"].as_array().unwrap();
    for row in rows.iter().filter(|row| row["id"].as_str().unwrap().starts_with("v3/")) {
        assert_eq!(row["verdict"], "right", "{row}");
        let factor = |published: &str, simulated: &str| {
            row["simulated"][simulated].as_f64().unwrap() / row[published].as_f64().unwrap()
        };
        for factor in [factor("published_base", "base"), factor("published_patched", "patched")] {
            assert!((factor - 1.0).abs() <= 0.15, "{row}");
        }
    }
}

#[test]
fn what_cannot_be_done_is_told_in_one_line() {
    let folder = folder();
    let line = |args: &[&str], status: i32, parts: &[&str]| {
        let output = reproduce(folder.path(), args);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(status), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    };
    line(&["steam"], 2, &["no study is named 'steam'", "did you mean stream?"]);
    line(&["--published", "/nowhere"], 2, &["/nowhere/recipes: cannot be read", "--published"]);
    let broken = folder.path().join("broken");
    fs::create_dir_all(broken.join("recipes")).unwrap();
    fs::write(broken.join("recipes/a.toml"), "mechanism = \"m\"\nquestion = 7\n").unwrap();
    let broken = broken.to_str().unwrap();
    line(&["--published", broken], 2, &["recipes/a.toml:2: question: invalid type"]);
    let json = folder.path().join("results.json");
    fs::write(&json, "{").unwrap();
    line(&["stream"], 2, &["results.json: not written by this command", "remove it"]);
    fs::remove_file(&json).unwrap();
    let mut nowhere = Command::new(env!("CARGO_BIN_EXE_roost"));
    nowhere.current_dir(repository()).env("ROOST_CACHE", folder.path().join("cache"));
    let output = nowhere.args(["reproduce", "stream", "--docs", "/nowhere"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(text.starts_with("roost: /nowhere: cannot be written: "), "{text}");
    assert!(text.contains("--docs") && text.lines().count() == 1, "{text}");
}

#[test]
fn an_interrupt_keeps_what_is_complete_and_writes_no_page() {
    let folder = folder();
    let mut all = command(folder.path(), &["--jobs", "1"]);
    let child = all.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(3));
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(130), "{text}");
    assert!(text.contains("rows are complete and printed, no file was written"), "{text}");
    assert!(String::from_utf8(output.stdout).unwrap().contains("| run | "));
    assert!(!folder.path().join("results.md").exists());
}
