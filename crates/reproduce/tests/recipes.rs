//! The recipes of this repository.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use roost_reproduce::{Plan, Study, read_studies};

fn published() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../published")
}

fn studies() -> Vec<Study> {
    read_studies(&published()).unwrap()
}

/// Number of rows of a table. Every line after the header is a row.
fn lines(table: &str) -> usize {
    let text = std::fs::read_to_string(published().join(table)).unwrap();
    csv::Reader::from_reader(text.as_bytes()).records().map(Result::unwrap).count()
}

/// Tables that are not compared with runs, but are inputs of the model. The README says what each is for.
const INPUTS: [&str; 1] = ["004-switches.csv"];

/// Each row of each table is repeated by one study, or left out with a reason. No row is in two studies. Studies may
/// share tables, so rows are counted over all studies that share a table, directly or not.
#[test]
fn each_published_row_is_in_one_recipe() {
    let mut rows: BTreeMap<String, usize> = BTreeMap::new();
    let mut ids = BTreeSet::new();
    let (mut covered, mut all) = (0, 0);
    for study in studies() {
        for table in &study.tables {
            rows.insert(table.clone(), lines(table));
        }
        for row in &study.rows {
            let id = (study.tables[0].clone(), row.published.id.clone());
            assert!(ids.insert(id), "{}: {} is in two recipes", study.name, row.published.id);
        }
        covered += study.rows.len();
        covered += study.left_out.iter().map(|left| left.count).sum::<usize>();
    }
    all += rows.values().sum::<usize>();
    assert_eq!(covered, all, "rows of recipes, rows of tables");
    let tables = std::fs::read_dir(published()).unwrap().map(|entry| entry.unwrap().file_name());
    for table in tables.map(|name| name.into_string().unwrap()) {
        let known = rows.contains_key(&table) || INPUTS.contains(&table.as_str());
        assert!(known || !table.ends_with(".csv"), "no recipe is about {table}");
    }
}

/// At most one row per study calibrates, and the recipe says which constant.
#[test]
fn calibrations_are_explained() {
    for study in studies() {
        let calibrated = study.rows.iter().filter(|row| row.status.word() == "calibrated");
        assert!(calibrated.count() <= 1, "{}", study.name);
        assert!(study.calibration.is_none_or(|calibration| !calibration.what.is_empty()));
    }
}

/// The duration with which a study is repeated is the benchmark's default. iperf3's moves were counted in 200 s.
#[test]
fn durations_are_the_defaults() {
    for study in studies().iter().filter(|study| study.name != "iperf3") {
        for row in &study.rows {
            let default = roost_workload::resolve(&row.workload, None).unwrap().duration_ns;
            assert!(row.duration_ns.is_none() || row.duration_ns == default, "{}", row.workload);
        }
    }
}

/// The machines, workloads and schedulers of all recipes exist. Rows with the same run share it.
#[test]
fn all_runs_can_be_planned() {
    let rows = studies().into_iter().flat_map(|study| study.rows);
    let unshared: u64 = rows.map(|row| row.seeds * (1 + u64::from(row.after.is_some()))).sum();
    let plan = Plan::new(studies(), false, "this", None).unwrap();
    assert!(plan.rows() > 300, "{}", plan.rows());
    assert!((plan.runs.len() as u64) < unshared, "{} runs", plan.runs.len());
}

/// The quick rows are a tenth of all rows, and always the same.
#[test]
fn the_quick_rows_are_a_fixed_tenth() {
    let quick = || Plan::new(studies(), true, "this", None).unwrap();
    let (once, again) = (quick(), quick());
    assert_eq!(once.rows(), once.all_rows().div_ceil(10));
    let keys = |plan: &Plan| plan.runs.iter().map(|run| run.key.clone()).collect::<Vec<_>>();
    assert_eq!(keys(&once), keys(&again));
}

/// Cached runs of another program, seed or duration are not used.
#[test]
fn a_run_is_known_by_all_that_it_depends_on() {
    let keys = |program: &str| {
        let stream = studies().into_iter().filter(|study| study.name == "stream").collect();
        let plan = Plan::new(stream, false, program, None).unwrap();
        plan.runs.into_iter().map(|run| run.key).collect::<BTreeSet<_>>()
    };
    let (one, other) = (keys("one"), keys("other"));
    assert_eq!(one.len(), 6, "two schedulers, three seeds");
    assert!(one.is_disjoint(&other));
}
