//! The plan: which machines, workloads, schedulers, numbers and seeds are run.
//!
//! ```toml
//! machines = ["zen3-2s", "zen4-2s"]
//! workloads = ["hackbench:groups=1,4", "schbench"]
//! schedulers = ["base=fair@7.2", "mine=fair@7.2+no-sis-util"]
//! seeds = 20
//! ```
//!
//! A plan is the product of its lists, or of the lists of each `[[listed]]`. A [`Cell`] is one machine, workload and
//! scheduler; its runs differ in their seeds. Cells are in the order of the plan, grouped by machine, then by workload.
//! Within a machine and workload, the first scheduler is the baseline.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use roost_machine::Machine;
use roost_report::Input;
use roost_simulate::{Named, SchedulerSpec, Simulation, Start};
use roost_workload::Workload;
use serde::Serialize;

use crate::error::SweepError;
use crate::text::{Names, Numbers, Product, Seeds, Text};

/// Default number of seeds, the same as the default repeats of `roost compare`.
const SEEDS: u64 = 5;

/// A plan with more runs is assumed to be a mistake in a list. At 0.1 s each, this many take 28 hours of one core.
const MOST_RUNS: usize = 1_000_000;

/// The runs to make.
#[derive(Clone)]
pub struct Plan {
    /// The plan's file, or its name in messages.
    pub name: String,
    /// The text of the plan.
    pub text: String,
    /// Names of the numbers that the plan varies.
    pub numbers: Vec<String>,
    /// The cells.
    pub cells: Vec<Cell>,
    /// Notes for the user about workloads and schedulers.
    pub notes: Vec<String>,
    /// State of the machines before each run.
    pub start: Start,
    /// Whether nothing runs besides the workloads.
    pub quiet: bool,
}

/// A machine with a workload and a scheduler.
#[derive(Clone)]
pub struct Cell {
    /// The machine.
    pub machine: Input,
    /// The workload.
    pub workload: Input,
    /// The scheduler's label, with the values of the numbers.
    pub scheduler: String,
    /// The scheduler without a label.
    pub spec: String,
    /// The SHA-256 of the file with the scheduler's program, if it has one of its own.
    pub program_sha256: Option<String>,
    /// The values of [`Plan::numbers`]. `None`: the scheduler's own value.
    pub numbers: Vec<Option<u32>>,
    /// The seeds of its runs.
    pub seeds: Vec<u64>,
    /// What to run.
    pub simulation: Simulation,
}

/// A run of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Run {
    /// Index of the cell.
    pub cell: usize,
    /// Index of the seed among the cell's.
    pub repeat: usize,
}

/// Everything besides the program that the outcomes of a cell depend on.
#[derive(Serialize)]
struct Identity<'a> {
    machine: &'a str,
    workload: &'a str,
    duration_ns: Option<u64>,
    measured_from_ns: u64,
    scheduler: &'a str,
    spec: &'a str,
    switches: Vec<String>,
    program: Option<&'a str>,
    seeds: &'a [u64],
    boot: bool,
    quiet: bool,
}

impl Plan {
    /// Reads a plan in TOML.
    ///
    /// # Errors
    /// If it cannot be read, or names something that does not exist.
    pub fn read(file: &Path) -> Result<Self, SweepError> {
        let text = std::fs::read_to_string(file).map_err(|e| SweepError::unreadable(file, e))?;
        Self::toml(&file.display().to_string(), &text)
    }

    /// Parses a plan in TOML, which is called `name` in messages.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn toml(name: &str, text: &str) -> Result<Self, SweepError> {
        Builder::new(name, text, Text::toml(name, text)?).build()
    }

    /// Parses a plan in JSON, with the same field names.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn json(name: &str, text: &str) -> Result<Self, SweepError> {
        Builder::new(name, text, Text::json(name, text)?).build()
    }

    /// All runs, in the order of the plan.
    pub fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        let cells = self.cells.iter().enumerate();
        cells.flat_map(|(cell, of)| (0..of.seeds.len()).map(move |repeat| Run { cell, repeat }))
    }

    /// Number of runs.
    pub fn len(&self) -> usize {
        self.cells.iter().map(|cell| cell.seeds.len()).sum()
    }

    /// Whether there are no runs. Never true, because a plan without runs is refused.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A hash of everything that the outcomes depend on, except the program. Runs of plans with the same hash are
    /// interchangeable.
    pub fn sha256(&self) -> String {
        let cells: Vec<_> = self.cells.iter().map(|cell| cell.identity(self)).collect();
        Input::new("", &cells).sha256
    }
}

impl Cell {
    fn identity<'a>(&'a self, plan: &Plan) -> Identity<'a> {
        let workload = &self.simulation.workload;
        Identity {
            machine: &self.machine.sha256,
            workload: &self.workload.sha256,
            duration_ns: workload.duration_ns,
            measured_from_ns: workload.measured_from_ns,
            scheduler: &self.scheduler,
            spec: &self.spec,
            switches: self.simulation.scheduler.switches(),
            program: self.program_sha256.as_deref(),
            seeds: &self.seeds,
            boot: plan.start == Start::Boot,
            quiet: plan.quiet,
        }
    }

    /// The cell's name in messages.
    pub fn shown(&self) -> String {
        format!("{}, {}, {}", self.machine.name, self.workload.name, self.scheduler)
    }
}

/// A plan while it is parsed. Inputs of several cells are read once.
struct Builder<'a> {
    text: Text,
    plan: Plan,
    machines: HashMap<String, (Arc<Machine>, Input)>,
    workloads: HashMap<(String, Option<u64>), (Arc<Workload>, Input)>,
    schedulers: HashMap<String, (SchedulerSpec, Option<String>)>,
    name: &'a str,
}

impl<'a> Builder<'a> {
    fn new(name: &'a str, written: &str, text: Text) -> Self {
        let plan = Plan {
            name: name.to_owned(),
            text: written.to_owned(),
            numbers: Vec::new(),
            cells: Vec::new(),
            notes: Vec::new(),
            start: text.start.into(),
            quiet: text.quiet,
        };
        let (machines, workloads) = (HashMap::new(), HashMap::new());
        Self { text, plan, machines, workloads, schedulers: HashMap::new(), name }
    }

    fn wrong(&self, problem: impl ToString) -> SweepError {
        let (plan, problem) = (self.name.to_owned(), problem.to_string());
        SweepError::Plan { plan, line: None, problem }
    }

    fn build(mut self) -> Result<Plan, SweepError> {
        let products = self.text.products();
        let of = |product: &Product| product.numbers.clone().unwrap_or_default().into_keys();
        let names: BTreeSet<String> = products.iter().flat_map(of).collect();
        self.plan.numbers = names.into_iter().collect();
        for product in &products {
            self.add(product)?;
        }
        let runs = self.plan.len();
        if runs > MOST_RUNS {
            return Err(self.wrong(format!("{runs} runs; a plan has at most {MOST_RUNS}")));
        }
        self.is_comparable()?;
        // If `[[listed]]` names a machine and workload that were listed before, its cells are moved next to those.
        let places = self.plan.cells.iter().map(|cell| (&cell.machine.name, &cell.workload.name));
        let mut first: Vec<(&String, &String)> = Vec::new();
        places.for_each(|place| {
            if !first.contains(&place) {
                first.push(place)
            }
        });
        let rank = |cell: &Cell| {
            first.iter().position(|place| *place == (&cell.machine.name, &cell.workload.name))
        };
        let mut cells = self.plan.cells.clone();
        cells.sort_by_key(rank);
        Ok(Plan { cells, ..self.plan })
    }

    /// Adds the cells of a product.
    fn add(&mut self, product: &Product) -> Result<(), SweepError> {
        let machines = self.names("machines", product.machines.as_ref())?;
        let workloads = self.workload_names(product)?;
        let schedulers = self.names("schedulers", product.schedulers.as_ref())?;
        let schedulers = Named::all(&schedulers).map_err(|error| self.wrong(error))?;
        let settings = self.settings(product)?;
        let Seeds(seeds) = product.seeds.clone().unwrap_or(Seeds((1..=SEEDS).collect()));
        let duration_ns = product.duration.map(|length| length.0.as_nanos() as u64);
        for machine in &machines {
            for workload in &workloads {
                for named in &schedulers {
                    for numbers in &settings {
                        let cell =
                            self.cell(machine, workload, named, numbers, &seeds, duration_ns)?;
                        self.plan.cells.push(cell);
                    }
                }
            }
        }
        Ok(())
    }

    /// The names of the list `key`, checked for duplicates.
    fn names(&self, key: &str, names: Option<&Names>) -> Result<Vec<String>, SweepError> {
        let Some(Names(names)) = names else {
            let problem = format!("no {key}; name at least one, {key} = [\"NAME\"]");
            return Err(self.wrong(problem));
        };
        match names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
            Some((_, name)) => Err(self.wrong(format!("{key}: {name}: given twice; give it once"))),
            None => Ok(names.clone()),
        }
    }

    /// The workloads. A list of parameter values makes one workload per value.
    fn workload_names(&self, product: &Product) -> Result<Vec<String>, SweepError> {
        let mut all = Vec::new();
        for name in self.names("workloads", product.workloads.as_ref())? {
            all.extend(roost_workload::expand(&name).map_err(|error| self.wrong(error))?);
        }
        self.names("workloads", Some(&Names(all)))
    }

    /// All combinations of the values of the numbers.
    fn settings(&self, product: &Product) -> Result<Vec<Vec<Option<u32>>>, SweepError> {
        let given = product.numbers.clone().unwrap_or_default();
        let mut all = vec![Vec::new()];
        for name in &self.plan.numbers {
            let Numbers(values) = given.get(name).cloned().unwrap_or(Numbers(vec![None]));
            if let Some((_, value)) =
                values.iter().enumerate().find(|(at, value)| values[..*at].contains(value))
            {
                let shown = value.map_or("default".to_owned(), |value| value.to_string());
                return Err(self.wrong(format!("{name}: {shown}: given twice; give it once")));
            }
            let with = |before: &Vec<Option<u32>>, value| [&before[..], &[value]].concat();
            let longer =
                all.iter().flat_map(|before| values.iter().map(move |value| with(before, *value)));
            all = longer.collect();
        }
        Ok(all)
    }

    fn cell(
        &mut self,
        machine: &str,
        workload: &str,
        named: &Named,
        numbers: &[Option<u32>],
        seeds: &[u64],
        duration_ns: Option<u64>,
    ) -> Result<Cell, SweepError> {
        let set = self.plan.numbers.iter().zip(numbers);
        let set = set.filter_map(|(name, value)| value.map(|value| format!("+{name}={value}")));
        let set: String = set.collect();
        let (label, spec) = (format!("{}{set}", named.label), format!("{}{set}", named.spec));
        let (machine, of_machine) = self.machine(machine)?;
        let (loaded, of_workload) = self.workload(workload, duration_ns)?;
        let (scheduler, program_sha256) = self.scheduler(&spec)?;
        Ok(Cell {
            machine: of_machine,
            workload: of_workload,
            scheduler: label,
            spec,
            program_sha256,
            numbers: numbers.to_vec(),
            seeds: seeds.to_vec(),
            simulation: Simulation {
                machine,
                workload: loaded,
                scheduler,
                start: self.plan.start,
                quiet: self.plan.quiet,
            },
        })
    }

    fn machine(&mut self, name: &str) -> Result<(Arc<Machine>, Input), SweepError> {
        if let Some(known) = self.machines.get(name) {
            return Ok(known.clone());
        }
        let machine = roost_machine::resolve(name).map_err(|error| self.wrong(error))?;
        let input = Input::new(&machine.name, &machine);
        let known = (Arc::new(machine), input);
        self.machines.insert(name.to_owned(), known.clone());
        Ok(known)
    }

    fn workload(
        &mut self,
        name: &str,
        duration_ns: Option<u64>,
    ) -> Result<(Arc<Workload>, Input), SweepError> {
        let key = (name.to_owned(), duration_ns);
        if let Some(known) = self.workloads.get(&key) {
            return Ok(known.clone());
        }
        let loaded = roost_workload::benchmark::resolve_noted(name, duration_ns);
        let mut loaded = loaded.map_err(|error| self.wrong(error))?;
        if self.plan.start == Start::Boot {
            loaded.workload.measured_from_ns = 0;
        }
        self.plan.notes.extend(loaded.notes.iter().cloned());
        let input = Input::new(name, &loaded.workload);
        let known = (Arc::new(loaded.workload), input);
        self.workloads.insert(key, known.clone());
        Ok(known)
    }

    /// A scheduler, and the hash of its program's file.
    fn scheduler(&mut self, spec: &str) -> Result<(SchedulerSpec, Option<String>), SweepError> {
        if let Some(known) = self.schedulers.get(spec) {
            return Ok(known.clone());
        }
        let (scheduler, notes) =
            SchedulerSpec::parse_noted(spec).map_err(|error| match error.is_usage() {
                true => self.wrong(error),
                false => SweepError::Program { plan: self.name.to_owned(), error },
            })?;
        self.plan.notes.extend(notes);
        let sha256 = scheduler.program_sha256();
        self.schedulers.insert(spec.to_owned(), (scheduler.clone(), sha256.clone()));
        Ok((scheduler, sha256))
    }

    /// Refuses duplicate cells, a label for two schedulers, and a workload with two durations: their rows could not be
    /// told apart.
    fn is_comparable(&self) -> Result<(), SweepError> {
        let mut cells = BTreeSet::new();
        let mut durations = HashMap::new();
        let mut specs = HashMap::new();
        for cell in &self.plan.cells {
            let workload = &cell.workload.name;
            if !cells.insert((&cell.machine.name, workload, &cell.scheduler)) {
                return Err(self.wrong(format!("{}: listed twice; list it once", cell.shown())));
            }
            let duration_ns = cell.simulation.workload.duration_ns;
            if *durations.entry(workload).or_insert(duration_ns) != duration_ns {
                let problem =
                    format!("{workload}: has two durations; give it one in all of the plan");
                return Err(self.wrong(problem));
            }
            if *specs.entry(&cell.scheduler).or_insert(&cell.spec) != &cell.spec {
                let label = &cell.scheduler;
                let problem = format!("{label}: labels two schedulers; give each its own label");
                return Err(self.wrong(problem));
            }
        }
        Ok(())
    }
}
