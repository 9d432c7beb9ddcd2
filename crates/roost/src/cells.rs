//! What `roost compare` compares schedulers on: each machine with each workload.

use std::collections::BTreeSet;
use std::sync::Arc;

use roost_machine::Machine;
use roost_report::{Experiment, Input, Place};
use roost_workload::rtapp::Loaded;

use crate::args::{CompareArgs, On, StartArg};
use crate::build;
use crate::error::Error;
use crate::vm;

/// The machine that is simulated where none is named.
const DEFAULT_MACHINE: &str = "zen3-2s";

/// A scheduler as the command line names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// What rows are called: the label before `=`, or the scheduler itself.
    pub label: String,
    /// The scheduler.
    pub spec: String,
}

/// A machine with a workload.
pub struct Cell {
    /// The machine, which cells share.
    pub machine: Arc<Machine>,
    /// The workload, and what the model does not take from its file.
    pub loaded: Loaded,
    /// The same for outputs, without schedulers.
    pub experiment: Experiment,
}

impl Cell {
    /// The workload as named, each list with one of its values.
    pub fn workload(&self) -> &str {
        &self.experiment.workload.name
    }
}

impl Named {
    /// Takes the label off `text`, `label=fair@7.2+no-hrtick`. What has a `=` of its own has an `@`, `+`, `:`,
    /// `/` or blank before it.
    fn read(text: &str) -> Self {
        let labelled = text.split_once('=').filter(|(label, _)| {
            !label.is_empty() && label.chars().all(|c| c.is_alphanumeric() || "-_.".contains(c))
        });
        let (label, spec) = labelled.unwrap_or((text, text));
        Self { label: label.to_owned(), spec: spec.to_owned() }
    }
}

/// The schedulers that `args` names. A label stands for one of them only.
pub fn schedulers(args: &CompareArgs) -> Result<Vec<Named>, Error> {
    let named: Vec<Named> = args.schedulers.iter().map(|text| Named::read(text)).collect();
    let mut taken = BTreeSet::new();
    for Named { label, spec } in &named {
        if spec.is_empty() {
            let problem = format!("{label}=: no scheduler; write for example {label}=fair@7.2");
            return Err(Error::Usage(problem));
        }
        let is_free = taken.insert(label.as_str());
        if !is_free && named.iter().any(|other| other.label == *label && other.spec != *label) {
            return Err(Error::Usage(format!("{label}: labels two rows; give each its own label")));
        }
    }
    Ok(named)
}

/// The machines and workloads that `args` names: of the first machine all workloads, then of the next.
pub fn cells(args: &CompareArgs) -> Result<Vec<Cell>, Error> {
    let duration_ns = args.duration.map(|duration| duration.as_nanos() as u64);
    let mut loaded = Vec::new();
    for name in workloads(args)? {
        let mut read = roost_workload::benchmark::resolve_noted(&name, duration_ns)?;
        if args.start == StartArg::Boot {
            read.workload.measured_from_ns = 0;
        }
        loaded.push((name, read));
    }
    let mut cells = Vec::new();
    for machine in machines(args)? {
        let machine = Arc::new(machine);
        for (name, loaded) in &loaded {
            let experiment = experiment(args, &machine, name, loaded);
            cells.push(Cell { machine: machine.clone(), loaded: loaded.clone(), experiment });
        }
    }
    Ok(cells)
}

/// The workloads, one for each value of their lists.
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

fn experiment(args: &CompareArgs, machine: &Machine, name: &str, loaded: &Loaded) -> Experiment {
    let simulated = args.on == On::Sim;
    Experiment {
        roost: build::this(),
        place: place(args),
        machine: Input::new(&machine.name, machine),
        workload: Input::new(name, &loaded.workload),
        duration_ns: loaded.workload.duration_ns,
        measured_from_ns: simulated.then_some(loaded.workload.measured_from_ns),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_stands_before_the_scheduler() {
        let read = |text| {
            let Named { label, spec } = Named::read(text);
            (label, spec)
        };
        let pair = |label: &str, spec: &str| (label.to_owned(), spec.to_owned());
        assert_eq!(read("base=fair@7.2"), pair("base", "fair@7.2"));
        assert_eq!(
            read("wide-2=fair@7.2+cling-degree=3"),
            pair("wide-2", "fair@7.2+cling-degree=3")
        );
        for spec in [
            "fair@7.2",
            "fair@7.2+cling-degree=3",
            "fair+base_slice_ns=1",
            "roost+slice-us=5000",
            "scx:a.bpf.o+x=1",
            "./scx_mine --slice=3",
            "scx_mine --slice=3",
            "=fair@7.2",
        ] {
            assert_eq!(read(spec), pair(spec, spec));
        }
        assert_eq!(read("x=./scx_mine --slice=3"), pair("x", "./scx_mine --slice=3"));
    }
}
