//! The page with charts: published beside simulated.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::page::{Bar, bars};
use crate::results::{Column, Results, StudyResult};
use crate::score::Score;
use crate::verdict::{LEVEL_FACTOR, SIZE_FACTOR};

const SCRIPT: &str = include_str!("../html/reproduce.js");

/// The data that the script reads.
#[derive(Serialize)]
struct Data<'a> {
    command: &'a str,
    score: Score,
    bars: [Bar; 5],
    /// Factor within which a simulated change has the published size.
    size_factor: f64,
    /// Factor within which a simulated level is the published one.
    level_factor: f64,
    columns: Vec<ColumnOf<'a>>,
    studies: &'a BTreeMap<String, StudyResult>,
}

/// A column of search statistics.
#[derive(Serialize)]
struct ColumnOf<'a> {
    study: &'a str,
    #[serde(flatten)]
    column: Column,
}

/// The results as HTML: one file that any browser opens, offline. `command` makes them again.
pub fn html(results: &Results, command: &str) -> String {
    let columns = results.studies.iter().flat_map(|(study, result)| {
        result.columns().into_iter().map(|column| ColumnOf { study, column })
    });
    let score = Score::of(results);
    roost_report::page(
        SCRIPT,
        &Data {
            command,
            bars: bars(&score),
            score,
            size_factor: SIZE_FACTOR,
            level_factor: LEVEL_FACTOR,
            columns: columns.collect(),
            studies: &results.studies,
        },
    )
}
