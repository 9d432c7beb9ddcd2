//! Checks that hold for every machine, from any source.

use crate::build::MAX_CPUS;
use crate::error::Problem;
use crate::{CpuSet, Machine};

/// The largest distance in a firmware table (one byte per entry in SLIT).
const LARGEST_DISTANCE: u32 = 255;

/// Checks that the machine is consistent: the engine and the schedulers rely on that when they
/// index its arrays.
pub(crate) fn validate(machine: &Machine) -> Result<(), Problem> {
    let nr_cpus = machine.nr_cpus();
    if nr_cpus == 0 || nr_cpus > MAX_CPUS {
        return Err(broken(format!("{nr_cpus} CPUs, of 1 to {MAX_CPUS} possible")));
    }
    if !machine.cpus.windows(2).all(|pair| pair[0].os_index < pair[1].os_index) {
        return Err(broken("CPUs are not in the order of their numbers".into()));
    }
    let cores: Vec<&CpuSet> = machine.cores.iter().map(|core| &core.cpus).collect();
    let llcs: Vec<&CpuSet> = machine.llcs.iter().map(|llc| &llc.cpus).collect();
    let nodes: Vec<&CpuSet> = machine.nodes.iter().map(|node| &node.cpus).collect();
    partition(machine, "core", &cores, |cpu| machine.cpus[cpu].core)?;
    partition(machine, "LLC", &llcs, |cpu| machine.cpus[cpu].llc)?;
    partition(machine, "node", &nodes, |cpu| machine.cpus[cpu].node)?;
    if let Some(cpu) = machine.cpus.iter().find(|cpu| cpu.package as usize >= machine.packages) {
        return Err(broken(format!("package {} does not exist", cpu.package)));
    }
    nesting(machine)?;
    distances(machine)
}

/// Checks that each CPU is in exactly one of the sets, and that the CPU names that set.
fn partition(
    machine: &Machine,
    kind: &str,
    sets: &[&CpuSet],
    of: impl Fn(usize) -> u32,
) -> Result<(), Problem> {
    let mut members = 0;
    for (number, set) in sets.iter().enumerate() {
        if kind != "node" && set.is_empty() {
            return Err(broken(format!("{kind} {number} has no CPU")));
        }
        for cpu in set.iter() {
            members += 1;
            if cpu >= machine.nr_cpus() || of(cpu) as usize != number {
                return Err(broken(format!("{kind} {number} holds CPU {cpu}, which is not its")));
            }
        }
    }
    match members == machine.nr_cpus() {
        true => Ok(()),
        false => Err(broken(format!("not every CPU is in one {kind}"))),
    }
}

/// Checks that CPUs of a core share the LLC, and CPUs of an LLC share node and package.
fn nesting(machine: &Machine) -> Result<(), Problem> {
    let remedy = "threads of a core share its caches, node and package";
    for core in &machine.cores {
        let mut cpus = core.cpus.iter().filter_map(|cpu| machine.cpus.get(cpu));
        let Some(first) = cpus.next() else { continue };
        if let Some(other) = cpus.find(|cpu| (cpu.llc, cpu.cluster) != (first.llc, first.cluster)) {
            let (a, b) = (first.os_index, other.os_index);
            let what = format!("CPUs {a} and {b} share a core but not a cache, node or package");
            return Err(Problem::hierarchy(what, remedy));
        }
    }
    for (number, llc) in machine.llcs.iter().enumerate() {
        let mut cpus = llc.cpus.iter().filter_map(|cpu| machine.cpus.get(cpu));
        let Some(first) = cpus.next() else { continue };
        if cpus.any(|cpu| (cpu.node, cpu.package) != (first.node, first.package)) {
            return Err(broken(format!("LLC {number} crosses a node or package")));
        }
    }
    Ok(())
}

/// Checks that the table is square and that nothing is nearer than the node itself. Nodes that the
/// kernel makes up (`numa=fake`) are as near as the node itself. If a firmware table says so, the
/// kernel ignores it (`slit_valid`).
fn distances(machine: &Machine) -> Result<(), Problem> {
    let nodes = machine.nodes.len();
    if machine.distances.len() != nodes {
        let rows = machine.distances.len();
        return Err(Problem::distances(format!("distances have {rows} rows for {nodes} nodes")));
    }
    for (from, row) in machine.distances.iter().enumerate() {
        if row.len() != nodes {
            let values = row.len();
            let what = format!("row {from} of distances has {values} values for {nodes} nodes");
            return Err(Problem::distances(what));
        }
        let local = row[from];
        for (to, &distance) in row.iter().enumerate() {
            let (a, b) = (machine.nodes[from].os_index, machine.nodes[to].os_index);
            if distance == 0 || distance > LARGEST_DISTANCE {
                let what = format!("the distance from node {a} to node {b} is {distance}");
                return Err(Problem::distances(what));
            }
            if distance < local {
                let what =
                    format!("node {b} is at distance {distance} of node {a}, itself {local}");
                return Err(Problem::distances(what));
            }
        }
    }
    Ok(())
}

/// A fault that no source can cause if its reader is correct.
fn broken(what: String) -> Problem {
    Problem::hierarchy(what, "report this as a bug, with the machine's description")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolve;

    /// The error after `breaking` a correct machine.
    fn after(breaking: impl Fn(&mut Machine)) -> String {
        let mut machine = resolve("zen3-2s-nps2").unwrap();
        assert_eq!(validate(&machine), Ok(()));
        breaking(&mut machine);
        validate(&machine).unwrap_err().what
    }

    #[test]
    fn each_cpu_is_in_one_core_llc_and_node() {
        assert!(after(|m| m.cores[0].cpus.remove(0)).contains("not every CPU is in one core"));
        assert!(after(|m| m.cores[0].cpus.insert(1)).contains("core 0 holds CPU 1"));
        assert!(after(|m| m.llcs[3].cpus.insert(0)).contains("LLC 3 holds CPU 0"));
        assert!(after(|m| m.nodes[1].cpus.insert(0)).contains("node 1 holds CPU 0"));
        assert!(after(|m| m.cpus[0].llc = 1).contains("LLC 0 holds CPU 0, which is not its"));
        assert!(after(|m| m.cores[0].cpus = CpuSet::new(256)).contains("core 0 has no CPU"));
    }

    #[test]
    fn numbers_stay_within_the_machine_and_in_order() {
        assert!(after(|m| m.cpus[7].package = 2).contains("package 2 does not exist"));
        assert!(after(|m| m.cpus.swap(0, 1)).contains("not in the order"));
        assert!(after(|m| m.cpus.clear()).contains("0 CPUs"));
        assert!(after(|m| m.cpus[0].package = 1).contains("LLC 0 crosses"));
    }

    #[test]
    fn distances_are_square_positive_and_smallest_at_home() {
        assert!(after(|m| m.distances.truncate(3)).contains("3 rows for 4 nodes"));
        assert!(after(|m| m.distances[2].truncate(1)).contains("row 2 of distances has 1 values"));
        assert!(after(|m| m.distances[0][1] = 0).contains("is 0"));
        assert!(after(|m| m.distances[0][1] = 256).contains("is 256"));
        assert!(after(|m| m.distances[0][1] = 9).contains("distance 9 of node 0, itself 10"));
    }
}
