//! What `roost compare` compares schedulers on: each machine with each workload.

use std::collections::BTreeSet;
use std::sync::Arc;

use roost_machine::Machine;
use roost_report::{Experiment, Input, Place};
use roost_workload::Workload;
use roost_workload::rtapp::Loaded;

use crate::args::{CompareArgs, On, StartArg};
use crate::build;
use crate::error::Error;
use crate::vm;

/// The simulated machine if none is named.
const DEFAULT_MACHINE: &str = "zen3-2s";

/// A machine with a workload.
pub struct Cell {
    /// The machine. Cells share it.
    pub machine: Arc<Machine>,
    /// The workload. Cells share it.
    pub workload: Arc<Workload>,
    /// Notes about what the model ignores in the workload's file.
    pub notes: Vec<String>,
    /// Machine and workload as outputs describe them, without schedulers.
    pub experiment: Experiment,
}

impl Cell {
    /// The workload as named, with one value of each list.
    pub fn workload_name(&self) -> &str {
        &self.experiment.workload.name
    }
}

/// All machines with all workloads that `args` names: the first machine with each workload, then the next machine.
pub fn cells(args: &CompareArgs) -> Result<Vec<Cell>, Error> {
    let duration_ns = args.duration.map(|duration| duration.as_nanos() as u64);
    let mut all = Vec::new();
    for name in workloads(args)? {
        let Loaded { mut workload, notes, .. } =
            roost_workload::benchmark::resolve_noted(&name, duration_ns)?;
        if args.start == StartArg::Boot {
            workload.measured_from_ns = 0;
        }
        all.push((Input::new(&name, &workload), Arc::new(workload), notes));
    }
    let mut cells = Vec::new();
    for machine in machines(args)? {
        let machine = Arc::new(machine);
        let input = Input::new(&machine.name, &*machine);
        for (of_workload, workload, notes) in &all {
            let inputs = [input.clone(), of_workload.clone()];
            cells.push(Cell {
                machine: machine.clone(),
                workload: workload.clone(),
                notes: notes.clone(),
                experiment: experiment(args, inputs, workload),
            });
        }
    }
    Ok(cells)
}

/// The workloads that were named. A list of parameter values makes one workload for each value.
fn workloads(args: &CompareArgs) -> Result<Vec<String>, Error> {
    let mut names = Vec::new();
    for argument in args.workloads() {
        for name in roost_workload::expand(argument)? {
            if names.contains(&name) {
                return Err(Error::Usage(format!("--workload {name}: given twice; give it once")));
            }
            names.push(name);
        }
    }
    Ok(names)
}

/// The machines, as they were read.
fn machines(args: &CompareArgs) -> Result<Vec<Machine>, Error> {
    let default = match args.on {
        On::Sim => DEFAULT_MACHINE,
        On::Vm => vm::DEFAULT_MACHINE,
        On::Host => return Ok(vec![Machine::this()?]),
    };
    if args.machine.is_empty() {
        return Ok(vec![roost_machine::resolve(default)?]);
    }
    let mut names = BTreeSet::new();
    let mut machines = Vec::new();
    for name in &args.machine {
        if !names.insert(name) {
            return Err(Error::Usage(format!("--machine {name}: given twice; give it once")));
        }
        machines.push(roost_machine::resolve(name)?);
    }
    Ok(machines)
}

fn experiment(args: &CompareArgs, [machine, input]: [Input; 2], workload: &Workload) -> Experiment {
    let simulated = args.on == On::Sim;
    Experiment {
        roost: build::this(),
        place: place(args),
        machine,
        workload: input,
        duration_ns: workload.duration_ns,
        measured_from_ns: simulated.then_some(workload.measured_from_ns),
        start: simulated.then_some(args.start.word()),
        quiet: simulated.then_some(args.quiet),
        seed: args.seed,
        schedulers: Vec::new(),
    }
}

fn place(args: &CompareArgs) -> Place {
    match args.on {
        On::Sim => Place::Simulated,
        On::Vm if args.exact => Place::ExactGuest,
        On::Vm => Place::Guest,
        On::Host => Place::Host,
    }
}
