//! `--resume`: runs that an interrupted comparison left need not be made again.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use roost_engine::Outcome;
use roost_report::Experiment;

use crate::error::Error;

/// What runs left, by scheduler and seed.
pub type Known = BTreeMap<(usize, u64), Outcome>;

/// The runs in `file`, a JSON that was left, if they are of this experiment.
pub fn read(file: &Path, experiment: &Experiment) -> Result<Known, Error> {
    let name = file.display();
    let text = fs::read_to_string(file)
        .map_err(|error| Error::Usage(format!("--resume {name}: cannot be read: {error}")))?;
    let runs = roost_report::resume(&text, experiment)
        .map_err(|error| Error::Usage(format!("--resume {name}: {error}")))?;
    Ok(runs.into_iter().map(|run| ((run.scheduler, run.seed), run.outcome)).collect())
}
