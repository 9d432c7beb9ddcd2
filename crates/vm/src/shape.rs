//! Machines that QEMU can emulate: a regular hierarchy, with CPUs numbered depth first.
//!
//! ```text
//! package (socket)
//! └─ LLC (QEMU: die)
//!    └─ cluster (QEMU: module)
//!       └─ core
//!          └─ CPU (thread)
//! ```
//!
//! Nodes are ranges of CPUs, and may be at any level.

use std::ops::Range;

use roost_machine::{Core, Cpu, CpuSet, Llc, Machine, Node, count};

use crate::error::VmError;

/// Largest number of CPUs of a guest. Guests with 64 CPUs were able to boot, but hardly more than that.
pub const MAX_CPUS: usize = 32;

/// Largest number of nodes. Memory is assigned in parts of 128 MiB.
const MAX_NODES: usize = 16;

/// A regular machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of CPUs of one package, LLC, cluster and core.
    widths: [usize; 4],
    /// CPUs of the machine.
    cpus: usize,
    /// Whether the cores of a cluster share an L2.
    clusters: bool,
    /// The CPUs of each node. Empty for a node that has only memory.
    pub(crate) nodes: Vec<Range<usize>>,
    /// Distances between nodes. 10 is the distance of a node to itself.
    pub(crate) distances: Vec<Vec<u32>>,
}

impl Shape {
    /// The shape of a machine whose CPUs are numbered depth first, as [`depth_first`] does.
    pub fn of(machine: &Machine) -> Result<Self, VmError> {
        let error = |problem: String, remedy| VmError::Shape {
            machine: machine.name.clone(),
            problem,
            remedy,
        };
        const REGULAR: &str =
            "choose a machine whose parts are all alike, as `node:2 l3:2 core:4 pu:1`";
        let cpus = machine.nr_cpus();
        if cpus > MAX_CPUS || machine.nodes.len() > MAX_NODES {
            let problem =
                format!("it has {} and {}", count(cpus, "CPU"), count(machine.nodes.len(), "node"));
            return Err(error(problem, "up to 32 CPUs and 16 nodes can be emulated"));
        }
        let levels: [(&str, PartOf); 4] = [
            ("packages", |cpu| cpu.package),
            ("LLCs", |cpu| cpu.llc),
            // Without clusters, an LLC is one module.
            ("clusters", |cpu| cpu.cluster.unwrap_or(cpu.llc)),
            ("cores", |cpu| cpu.core),
        ];
        let mut widths = [1; 4];
        let mut outer = cpus;
        for (width, (name, number)) in widths.iter_mut().zip(levels) {
            *width = regular_width(machine, number)
                .filter(|width| outer.is_multiple_of(*width))
                .ok_or_else(|| error(format!("its {name} are not alike"), REGULAR))?;
            outer = *width;
        }
        let nodes: Option<Vec<_>> = machine.nodes.iter().map(|node| range(&node.cpus)).collect();
        let nodes = nodes.ok_or_else(|| error("its nodes lie across packages".into(), REGULAR))?;
        if let Some(node) = machine.nodes.iter().find(|node| node.memory_bytes == Some(0)) {
            let problem = format!("node {} has no memory", node.os_index);
            return Err(error(problem, "choose a machine with memory in every node"));
        }
        let clusters = machine.cpus.iter().filter(|cpu| cpu.cluster.is_some()).count();
        if clusters != 0 && clusters != cpus {
            return Err(error("some of its cores are in clusters, others not".into(), REGULAR));
        }
        let clusters = clusters != 0;
        Ok(Self { widths, cpus, clusters, nodes, distances: machine.distances.clone() })
    }

    /// The value of QEMU's `-smp`.
    pub(crate) fn smp(&self) -> String {
        let [package, llc, cluster, core] = self.widths;
        format!(
            "{},sockets={},dies={},modules={},cores={},threads={core}",
            self.cpus,
            self.cpus / package,
            package / llc,
            llc / cluster,
            cluster / core
        )
    }

    /// Whether some cores share an L2.
    pub(crate) fn has_clusters(&self) -> bool {
        self.clusters
    }

    /// Number of CPUs.
    pub fn cpus(&self) -> usize {
        self.cpus
    }
}

/// Returns the number of the part that a CPU belongs to.
type PartOf = fn(&Cpu) -> u32;

/// Number of CPUs per part, if CPU n is in part n / width for all CPUs.
fn regular_width(machine: &Machine, number: PartOf) -> Option<usize> {
    let first = machine.cpus.first().map(number)?;
    let width = machine.cpus.iter().take_while(|cpu| number(cpu) == first).count();
    let regular = machine.nr_cpus().is_multiple_of(width)
        && machine.cpus.chunks(width).all(|part| {
            let inside = part.first().map(number);
            part.iter().all(|cpu| Some(number(cpu)) == inside)
        });
    let parts = machine.nr_cpus() / width;
    let mut numbers: Vec<u32> = machine.cpus.iter().map(number).collect();
    numbers.dedup();
    (regular && numbers.len() == parts).then_some(width)
}

/// The CPUs of a set without gaps.
fn range(cpus: &CpuSet) -> Option<Range<usize>> {
    let Some(first) = cpus.first() else { return Some(0..0) };
    let end = first + cpus.len();
    (first..end).all(|cpu| cpus.contains(cpu)).then_some(first..end)
}

/// `machine` with its CPUs numbered depth first, the threads of a core one after the other, as QEMU numbers them. Apart
/// from the numbers, the machine is the same.
pub fn depth_first(machine: &Machine) -> Machine {
    let cpus = machine.nr_cpus();
    let mut order: Vec<usize> = (0..cpus).collect();
    order.sort_by_key(|&cpu| {
        let it = &machine.cpus[cpu];
        (it.package, it.node, it.llc, it.cluster, it.core, cpu)
    });
    let sorted =
        |number: fn(&Cpu) -> u32| dense(order.iter().map(|&cpu| number(&machine.cpus[cpu])));
    let (cores, llcs) = (sorted(|cpu| cpu.core), sorted(|cpu| cpu.llc));
    let packages = sorted(|cpu| cpu.package);
    let clusters = dense_some(order.iter().map(|&cpu| machine.cpus[cpu].cluster));
    let mut new_number = vec![0; cpus];
    for (new, &old) in order.iter().enumerate() {
        new_number[old] = new;
    }
    let renumbered = |set: &CpuSet| CpuSet::from_cpus(cpus, set.iter().map(|cpu| new_number[cpu]));
    let mut result = machine.clone();
    result.cpus = (0..cpus)
        .map(|cpu| Cpu {
            os_index: cpu as u32,
            core: cores[cpu],
            cluster: clusters[cpu],
            llc: llcs[cpu],
            node: machine.cpus[order[cpu]].node,
            package: packages[cpu],
            // All CPUs of QEMU are equal.
            capacity: Cpu::FULL_CAPACITY,
        })
        .collect();
    let members = |numbers: &[u32], number: usize| {
        CpuSet::from_cpus(cpus, (0..cpus).filter(|&cpu| numbers[cpu] as usize == number))
    };
    result.cores =
        (0..machine.cores.len()).map(|core| Core { cpus: members(&cores, core) }).collect();
    for (cpu, &llc) in llcs.iter().enumerate() {
        let old = &machine.llcs[machine.cpus[order[cpu]].llc as usize];
        result.llcs[llc as usize] =
            Llc { cpus: members(&llcs, llc as usize), size_bytes: old.size_bytes };
    }
    result.nodes = machine
        .nodes
        .iter()
        .enumerate()
        .map(|(number, node)| Node {
            os_index: number as u32,
            cpus: renumbered(&node.cpus),
            memory_bytes: node.memory_bytes,
        })
        .collect();
    result
}

/// Numbers for distinct values, without gaps from 0, in the order of first use.
fn dense(values: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut seen: Vec<u32> = Vec::new();
    values
        .map(|value| match seen.iter().position(|&other| other == value) {
            Some(number) => number as u32,
            None => {
                seen.push(value);
                (seen.len() - 1) as u32
            }
        })
        .collect()
}

/// The same if some have no value.
fn dense_some(values: impl Iterator<Item = Option<u32>>) -> Vec<Option<u32>> {
    let values: Vec<Option<u32>> = values.collect();
    let mut numbers = dense(values.iter().flatten().copied()).into_iter();
    values.iter().map(|value| value.and_then(|_| numbers.next())).collect()
}

/// The first difference between the guest's machine and the requested one. Both are numbered depth first.
pub(crate) fn difference(asked: &Machine, seen: &Machine) -> Option<String> {
    let differs = |what: &str, asked: &dyn std::fmt::Display, seen: &dyn std::fmt::Display| {
        Some(format!("it has {what} {seen} instead of {asked}"))
    };
    if asked.nr_cpus() != seen.nr_cpus() {
        return differs("CPUs:", &asked.nr_cpus(), &seen.nr_cpus());
    }
    for (cpu, (a, b)) in asked.cpus.iter().zip(&seen.cpus).enumerate() {
        let cluster = |cpu: &Cpu| cpu.cluster.map_or(-1, i64::from);
        let pairs = [
            ("package", i64::from(a.package), i64::from(b.package)),
            ("node", i64::from(a.node), i64::from(b.node)),
            ("LLC", i64::from(a.llc), i64::from(b.llc)),
            ("cluster", cluster(a), cluster(b)),
            ("core", i64::from(a.core), i64::from(b.core)),
        ];
        if let Some((name, asked, seen)) = pairs.into_iter().find(|(_, a, b)| a != b) {
            return differs(&format!("CPU {cpu} in {name}"), &asked, &seen);
        }
    }
    let rows = |machine: &Machine| {
        let row = |row: &Vec<u32>| row.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        machine.distances.iter().map(row).collect::<Vec<_>>().join(" / ")
    };
    match asked.distances == seen.distances {
        true => None,
        false => differs("distances", &rows(asked), &rows(seen)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(name: &str) -> Result<Shape, VmError> {
        Shape::of(&depth_first(&roost_machine::resolve(name).unwrap()))
    }

    /// The table of `docs/vm.md`: shapes with which QEMU has been seen to emulate these machines.
    #[test]
    fn presets_have_the_shapes_known_to_work() {
        let smp = |name| shape(name).unwrap().smp();
        assert_eq!(smp("2n2l4c"), "16,sockets=2,dies=2,modules=1,cores=4,threads=1");
        assert_eq!(smp("1s2n4l2c"), "16,sockets=1,dies=8,modules=1,cores=2,threads=1");
        assert_eq!(smp("4n1l4c"), "16,sockets=1,dies=4,modules=1,cores=4,threads=1");
        assert_eq!(smp("4n2l2c"), "16,sockets=2,dies=4,modules=1,cores=2,threads=1");
        assert_eq!(smp("2n2l2c2t"), "16,sockets=2,dies=2,modules=1,cores=2,threads=2");
        assert_eq!(smp("2n1l2m2c2t"), "16,sockets=2,dies=1,modules=2,cores=2,threads=2");
        assert_eq!(shape("1s2n4l2c").unwrap().nodes, [0..8, 8..16]);
    }

    #[test]
    fn numbering_depth_first_changes_numbers_only() {
        let linux = roost_machine::resolve("hygon-vm").unwrap();
        let machine = depth_first(&linux);
        assert_eq!(machine.siblings(2).to_string(), "2-3");
        assert_eq!(machine.llcs[1].cpus.to_string(), "8-15");
        assert_eq!(machine.nodes[1].cpus.to_string(), "32-63");
        assert_eq!(machine.cores.len(), linux.cores.len());
        let same = roost_machine::resolve("2n2l4c").unwrap();
        assert_eq!(difference(&same, &depth_first(&same)), None);
    }

    #[test]
    fn what_is_too_large_or_irregular_is_refused_by_name() {
        let error = shape("zen3-2s").unwrap_err().to_string();
        assert!(error.contains("256 CPUs") && error.contains("32 CPUs"), "{error}");
    }

    #[test]
    fn any_regular_synthetic_machine_has_a_shape() {
        let smp = |name| shape(name).unwrap().smp();
        assert_eq!(smp("pack:1 core:2 pu:1"), "2,sockets=1,dies=1,modules=1,cores=2,threads=1");
        assert_eq!(
            smp("pack:2 node:2 l3:2 core:2 pu:2"),
            "32,sockets=2,dies=4,modules=1,cores=2,threads=2"
        );
    }

    #[test]
    fn a_difference_is_told() {
        let asked = roost_machine::resolve("2n2l4c").unwrap();
        let mut seen = asked.clone();
        seen.cpus[4].llc = 0;
        let told = difference(&asked, &seen).unwrap();
        assert_eq!(told, "it has CPU 4 in LLC 0 instead of 1");
        let mut seen = asked.clone();
        seen.distances[0][1] = 21;
        assert!(difference(&asked, &seen).unwrap().contains("10 21 / 20 10"));
    }
}
