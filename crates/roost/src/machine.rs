//! `roost machine`: shows a machine as a scheduler sees it.

use std::fmt::Write;

use roost_fair::{DomainRow, Features, describe_domains, domain_rows};
use roost_machine::{DrawOptions, Machine};
use serde_json::{Value, json};

use crate::args::{MachineArgs, MachineFormat, ShownOn};
use crate::error::{Error, print};
use crate::vm;

/// Shows what `args` asks for.
pub fn run(args: &MachineArgs) -> Result<(), Error> {
    if args.list {
        return print(&list(args.format));
    }
    if args.cpu.is_some() && args.kernel.is_none() {
        return Err(Error::Usage(
            "--cpu says whose scheduling domains are shown, and those depend on the kernel: add \
             --kernel VERSION; see `roost machine --help`"
                .into(),
        ));
    }
    if args.format == MachineFormat::Csv && (args.figures || args.kernel.is_some()) {
        return Err(Error::Usage(
            "--format csv lists CPUs only: leave out --figures and --kernel, or use --format json"
                .into(),
        ));
    }
    let machine = match (&args.sysfs, &args.machine) {
        (Some(dir), _) => Machine::from_sysfs(dir)?,
        (None, Some(name)) => roost_machine::resolve(name)?,
        (None, None) => Machine::this()?,
    };
    if let Some(dir) = &args.as_sysfs {
        return Ok(machine.write_sysfs(dir)?);
    }
    if args.on == Some(ShownOn::Vm) {
        return vm::show_machine(&machine, args);
    }
    let kernel = match &args.kernel {
        Some(version) => Some((Features::parse(&format!("fair@{version}"))?, cpu(args, &machine)?)),
        None => None,
    };
    print(&match args.format {
        MachineFormat::Text => text(&machine, args.figures, kernel.as_ref()),
        MachineFormat::Json => as_json(&machine, kernel.as_ref()),
        MachineFormat::Csv => csv(&machine),
    })
}

fn list(format: MachineFormat) -> String {
    let presets = roost_machine::presets();
    match format {
        MachineFormat::Text => {
            let width = presets.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
            presets.iter().map(|(name, about)| format!("{name:<width$}  {about}\n")).collect()
        }
        MachineFormat::Json => {
            let list = presets.iter().map(|(name, about)| json!({"name": name, "about": about}));
            pretty(&Value::Array(list.collect()))
        }
        MachineFormat::Csv => std::iter::once("name,about\n".to_owned())
            .chain(presets.iter().map(|(name, about)| format!("{name},\"{about}\"\n")))
            .collect(),
    }
}

/// The index of the CPU whose domains are shown.
pub fn cpu(args: &MachineArgs, machine: &Machine) -> Result<usize, Error> {
    let Some(wanted) = args.cpu else { return Ok(0) };
    machine.cpus.iter().position(|cpu| cpu.os_index == wanted).ok_or_else(|| {
        let name = &machine.name;
        let highest = machine.cpus.iter().map(|cpu| cpu.os_index).max().unwrap_or(0);
        Error::Usage(format!(
            "machine {name} has no CPU {wanted}; give one that `roost machine` shows, up to {highest}"
        ))
    })
}

fn text(machine: &Machine, figures: bool, kernel: Option<&(Features, usize)>) -> String {
    let mut out = roost_machine::draw(machine, DrawOptions { figures });
    if let Some((features, cpu)) = kernel {
        let _ = write!(out, "\n{}", describe_domains(machine, features, *cpu));
    }
    out
}

fn as_json(machine: &Machine, kernel: Option<&(Features, usize)>) -> String {
    let cpus: Vec<Value> = machine
        .cpus
        .iter()
        .map(|cpu| {
            json!({
                "cpu": cpu.os_index, "core": cpu.core, "llc": cpu.llc,
                "node": machine.nodes[cpu.node as usize].os_index, "package": cpu.package,
            })
        })
        .collect();
    let nodes: Vec<Value> = machine
        .nodes
        .iter()
        .map(|node| json!({"node": node.os_index, "memory_bytes": node.memory_bytes}))
        .collect();
    let llcs: Vec<Value> =
        machine.llcs.iter().map(|llc| json!({"size_bytes": llc.size_bytes})).collect();
    let guesses: Vec<Value> = machine
        .guesses
        .iter()
        .map(|guess| json!({"name": guess.name, "assumed": guess.assumed}))
        .collect();
    let figures: serde_json::Map<String, Value> = machine
        .figures
        .iter()
        .map(|(name, figure)| {
            (name.to_owned(), json!({"value": figure.value, "source": figure.source}))
        })
        .collect();
    let mut object = json!({
        "machine": machine.name, "cpus": cpus, "llcs": llcs, "nodes": nodes,
        "distances": machine.distances, "guesses": guesses, "figures": figures,
    });
    if let Some((features, cpu)) = kernel {
        let rows = domain_rows(machine, features, *cpu);
        object["domains"] = rows.iter().map(domain_json).collect();
    }
    pretty(&object)
}

fn csv(machine: &Machine) -> String {
    let mut out = "cpu,core,llc,node,package\n".to_owned();
    for cpu in &machine.cpus {
        let node = machine.nodes[cpu.node as usize].os_index;
        let _ = writeln!(out, "{},{},{},{node},{}", cpu.os_index, cpu.core, cpu.llc, cpu.package);
    }
    out
}

fn domain_json(row: &DomainRow) -> Value {
    json!({
        "level": row.level, "distance": row.distance, "span": row.span, "weight": row.weight,
        "groups": row.groups, "flags": row.flags, "imbalance_pct": row.imbalance_pct,
        "min_interval_ms": row.min_interval_ms, "max_interval_ms": row.max_interval_ms,
        "busy_factor": row.busy_factor, "cache_nice_tries": row.cache_nice_tries,
        "allowed_numa_imbalance": row.allowed_numa_imbalance,
    })
}

/// JSON with indentation and a final newline.
pub fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}
