//! The runs that studies need.

use std::collections::HashMap;

use roost_report::Input;
use roost_simulate::Simulation;
use sha2::{Digest, Sha256};

use crate::cache::Cache;
use crate::error::ReproduceError;
use crate::recipe::{Row, Study};

/// By this and their names the rows of `--quick` are chosen, so that no one who runs it chooses.
pub const QUICK_SEED: u64 = 1;

/// `--quick` takes one row of so many.
const QUICK_PART: usize = 10;

/// A run.
pub struct PlannedRun {
    /// What is run.
    pub simulation: Simulation,
    /// With which seed.
    pub seed: u64,
    /// What it is called in the cache: a hash of all that its outcome depends on.
    pub key: String,
    /// The same without program and seed, by which times of earlier programs are found.
    pub kind: String,
    /// Seconds of one core that it takes: as last measured here, else as the recipe says.
    pub seconds: f64,
    /// The study and the first row that need it, for messages.
    pub needed_by: (String, String),
}

/// Which runs a row looks at, as indices into [`Plan::runs`]: by seed.
#[derive(Clone, Debug, Default)]
pub struct RowRuns {
    /// Without the change.
    pub before: Vec<usize>,
    /// With it.
    pub after: Vec<usize>,
}

/// Studies, and the runs that they need.
pub struct Plan {
    /// The studies.
    pub studies: Vec<Study>,
    /// Each run once.
    pub runs: Vec<PlannedRun>,
    /// By study and row; `None`: the row is not among the quick ones.
    pub row_runs: Vec<Vec<Option<RowRuns>>>,
    /// Whether only a part of the rows is run.
    pub quick: bool,
}

/// What makes a run, by name: machine, workload, scheduler, duration (ns).
type Names = (String, String, String, Option<u64>);

/// Simulations with hashes of their machine and workload, each made once.
#[derive(Default)]
struct Simulations(HashMap<Names, (Simulation, String)>);

impl Simulations {
    fn get(&mut self, names: Names) -> Result<(Simulation, String), String> {
        if let Some(found) = self.0.get(&names) {
            return Ok(found.clone());
        }
        let (machine, workload, scheduler, duration_ns) = &names;
        let simulation = Simulation::named(machine, workload, *duration_ns, scheduler);
        let simulation = simulation.map_err(|error| error.to_string())?;
        let machine = Input::new(machine, &*simulation.machine).sha256;
        let workload = Input::new(workload, &*simulation.workload).sha256;
        let kind = format!("{machine} {workload} {scheduler} {duration_ns:?}");
        self.0.insert(names, (simulation.clone(), kind.clone()));
        Ok((simulation, kind))
    }
}

impl Plan {
    /// Of all rows of `studies`, or of a tenth of them if `quick`. `program` names the version and commit
    /// whose runs may stand for these.
    ///
    /// # Errors
    /// If a machine, workload or scheduler of a recipe is not known.
    pub fn new(
        studies: Vec<Study>,
        quick: bool,
        program: &str,
        cache: Option<&Cache>,
    ) -> Result<Self, ReproduceError> {
        let quick_rows = quick.then(|| quick_rows(&studies));
        let mut plan = Self { studies: Vec::new(), runs: Vec::new(), row_runs: Vec::new(), quick };
        let mut simulations = Simulations::default();
        let mut known = HashMap::new();
        for study in studies {
            let mut rows = Vec::new();
            for row in &study.rows {
                if quick_rows.as_ref().is_some_and(|quick| !quick.contains(&row.published.id)) {
                    rows.push(None);
                    continue;
                }
                let mut runs = RowRuns::default();
                for seed in 1..=row.seeds {
                    let mut add = |scheduler: &str| {
                        plan.add(
                            &study,
                            row,
                            scheduler,
                            seed,
                            program,
                            &mut simulations,
                            &mut known,
                        )
                    };
                    runs.before.push(add(&study.before)?);
                    if let Some(after) = &row.after {
                        runs.after.push(add(after)?);
                    }
                }
                rows.push(Some(runs));
            }
            plan.row_runs.push(rows);
            plan.studies.push(study);
        }
        if let Some(cache) = cache {
            for run in &mut plan.runs {
                run.seconds = cache.seconds(&run.kind).unwrap_or(run.seconds);
            }
        }
        Ok(plan)
    }

    /// Of no row: what the page says of studies that were never run.
    pub fn of_nothing(studies: Vec<Study>) -> Self {
        let row_runs = studies.iter().map(|study| vec![None; study.rows.len()]).collect();
        Self { studies, runs: Vec::new(), row_runs, quick: false }
    }

    /// The index of a run, which is new or known.
    #[allow(clippy::too_many_arguments, reason = "a run is made of so many things")]
    fn add(
        &mut self,
        study: &Study,
        row: &Row,
        scheduler: &str,
        seed: u64,
        program: &str,
        simulations: &mut Simulations,
        known: &mut HashMap<String, usize>,
    ) -> Result<usize, ReproduceError> {
        let needed_by = (study.name.clone(), row.published.id.clone());
        let names: Names =
            (study.machine.clone(), row.workload.clone(), scheduler.to_owned(), row.duration_ns);
        let (simulation, kind) = simulations.get(names).map_err(|problem| ReproduceError::Run {
            study: needed_by.0.clone(),
            row: needed_by.1.clone(),
            problem,
        })?;
        let key = hash(&format!("{program} {kind} {seed}"));
        let (next, kind) = (self.runs.len(), hash(&kind));
        let index = *known.entry(key.clone()).or_insert(next);
        if index == next {
            let seconds = row.seconds;
            self.runs.push(PlannedRun { simulation, seed, key, kind, seconds, needed_by });
        }
        Ok(index)
    }

    /// Rows that are run.
    pub fn rows(&self) -> usize {
        self.row_runs.iter().flatten().flatten().count()
    }

    /// Rows that could be run.
    pub fn all_rows(&self) -> usize {
        self.row_runs.iter().map(Vec::len).sum()
    }
}

fn hash(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Names of a tenth of the rows: those whose hash with [`QUICK_SEED`] is smallest.
fn quick_rows(studies: &[Study]) -> Vec<String> {
    let ids = studies.iter().flat_map(|study| &study.rows).map(|row| row.published.id.clone());
    let mut ranked: Vec<(String, String)> =
        ids.map(|id| (hash(&format!("{QUICK_SEED} {id}")), id)).collect();
    ranked.sort();
    ranked.truncate(ranked.len().div_ceil(QUICK_PART));
    ranked.into_iter().map(|(_, id)| id).collect()
}
