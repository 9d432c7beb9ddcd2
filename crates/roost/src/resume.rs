//! `--resume`: reads the runs of an interrupted comparison, so that they are not made again.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use roost_engine::Outcome;
use roost_report::Experiment;

use crate::error::Error;

/// Outcomes of finished runs, by scheduler and seed.
pub type Known = BTreeMap<(usize, u64), Outcome>;

/// Reads the runs in `file`, the JSON of an interrupted comparison. Fails if they belong to another experiment.
pub fn read(file: &Path, experiment: &Experiment) -> Result<Known, Error> {
    let name = file.display();
    let text = fs::read_to_string(file)
        .map_err(|error| Error::Usage(format!("--resume {name}: cannot be read: {error}")))?;
    let runs = roost_report::resume(&text, experiment)
        .map_err(|error| Error::Usage(format!("--resume {name}: {error}")))?;
    Ok(runs.into_iter().map(|run| ((run.scheduler, run.seed), run.outcome)).collect())
}
