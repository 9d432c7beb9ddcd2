//! The runs that studies need.

use std::collections::HashMap;

use roost_report::Input;
use roost_simulate::Simulation;

use crate::cache::Cache;
use crate::error::ReproduceError;
use crate::recipe::{Row, Study};

/// The rows of `--quick` are chosen by a hash of this seed and their names, not by the person who runs it.
pub const QUICK_SEED: u64 = 1;

/// `--quick` takes one of this many rows.
const QUICK_PART: usize = 10;

/// A run.
pub struct PlannedRun {
    /// What to run.
    pub simulation: Simulation,
    /// The seed of the run.
    pub seed: u64,
    /// Its name in the cache: a hash of everything that its outcome depends on.
    pub key: String,
    /// The same without program and seed. Times of runs by earlier programs are found by this.
    pub kind: String,
    /// Expected time in seconds of one core: as last measured here, otherwise as the recipe says.
    pub seconds: f64,
    /// The study and the first row that need the run, for messages.
    pub needed_by: (String, String),
}

/// The runs that a row uses, by seed, as indices into [`Plan::runs`].
#[derive(Clone, Debug, Default)]
pub struct RowRuns {
    /// Runs without the change.
    pub before: Vec<usize>,
    /// Runs with the change.
    pub after: Vec<usize>,
}

/// Studies and the runs that they need.
pub struct Plan {
    /// The studies.
    pub studies: Vec<Study>,
    /// The runs, each listed once.
    pub runs: Vec<PlannedRun>,
    /// The runs by study and row. `None`: the row is not one of the quick rows.
    pub row_runs: Vec<Vec<Option<RowRuns>>>,
    /// Whether only some of the rows are run.
    pub quick: bool,
}

/// The names that define a run: machine, workload, scheduler, and duration in ns.
type Names = (String, String, String, Option<u64>);

/// Simulations and hashes of their machine and workload. Each is created once.
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
    /// The runs of all rows of `studies`, or of a tenth of the rows if `quick`. `program` identifies the version and
    /// commit; only cached runs of the same program are used.
    ///
    /// # Errors
    /// If a machine, workload or scheduler of a recipe does not exist.
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

    /// A plan without rows, for the page's entries about studies that were never run.
    pub fn of_nothing(studies: Vec<Study>) -> Self {
        let row_runs = studies.iter().map(|study| vec![None; study.rows.len()]).collect();
        Self { studies, runs: Vec::new(), row_runs, quick: false }
    }

    /// The index of a run, which is added if it is new.
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

    /// Number of rows that are run.
    pub fn rows(&self) -> usize {
        self.row_runs.iter().flatten().flatten().count()
    }

    /// Number of rows that could be run.
    pub fn all_rows(&self) -> usize {
        self.row_runs.iter().map(Vec::len).sum()
    }
}

fn hash(text: &str) -> String {
    roost_kept::sha256(text.as_bytes())
}

/// The names of a tenth of the rows: those with the smallest hashes with [`QUICK_SEED`].
fn quick_rows(studies: &[Study]) -> Vec<String> {
    let ids = studies.iter().flat_map(|study| &study.rows).map(|row| row.published.id.clone());
    let mut ranked: Vec<(String, String)> =
        ids.map(|id| (hash(&format!("{QUICK_SEED} {id}")), id)).collect();
    ranked.sort();
    ranked.truncate(ranked.len().div_ceil(QUICK_PART));
    ranked.into_iter().map(|(_, id)| id).collect()
}
