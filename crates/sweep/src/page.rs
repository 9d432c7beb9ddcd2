//! The page that shows the result of a sweep.

use serde::Serialize;

use crate::changes::{Change, Changes, Failed};
use crate::error::SweepError;
use crate::file::Read;
use crate::table::{INPUTS, PLAN, VERSION};

const SCRIPT: &str = include_str!("../html/sweep.js");

/// The data that the script reads.
#[derive(Serialize)]
struct Data<'a> {
    plan: &'a str,
    version: &'a str,
    inputs: String,
    runs: usize,
    changes: &'a [Change],
    failed: &'a [Failed],
}

/// The page of a result as one HTML file, which any browser opens without a network.
///
/// # Errors
/// If the columns are not those of a result.
pub fn page(result: &Read) -> Result<String, SweepError> {
    let Changes { changes, failed, runs } = Changes::of(&result.schema, &result.batches)?;
    let metadata = result.schema.metadata();
    let told = |key: &str| metadata.get(key).map_or("", String::as_str);
    let inputs: Option<serde_json::Value> = serde_json::from_str(told(INPUTS)).ok();
    Ok(roost_report::page(
        SCRIPT,
        &Data {
            plan: told(PLAN),
            version: told(VERSION),
            inputs: inputs.map_or_else(String::new, |inputs| format!("{inputs:#}")),
            runs,
            changes: &changes,
            failed: &failed,
        },
    ))
}
