//! Random machines, including odd ones.

use std::collections::BTreeSet;
use std::fmt;

use roost_machine::{Machine, MachineError};

use crate::random::Random;

/// A machine of equal parts, and the parts that are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of packages, nodes per package, LLCs per node, cores per LLC, and CPUs per core.
    pub counts: [u64; 5],
    /// Offline CPUs. Because of them, cores, LLCs and nodes may differ in their number of CPUs, or have none.
    pub offline: BTreeSet<u64>,
    /// Nodes without memory.
    pub without_memory: BTreeSet<u64>,
    /// Whether there is an additional node, which has only memory.
    pub memory_node: bool,
}

/// Memory of a node with memory, in MiB.
const NODE_MIB: u64 = 4096;

impl Shape {
    /// A machine of 1 to 256 CPUs. Machines with many small LLCs and machines without SMT are included.
    pub(crate) fn random(random: &mut Random) -> Self {
        let mut counts = [1; 5];
        if !random.one_in(8) {
            let (packages, nodes) = (random.range(1, 2), random.range(1, 4));
            counts = [packages, nodes, random.range(1, 4), random.range(1, 4), random.range(1, 2)];
        }
        Self::of(counts, random)
    }

    /// A machine of 1 to 24 CPUs, with up to two nodes of up to three LLCs.
    pub(crate) fn small(random: &mut Random) -> Self {
        let (nodes, llcs) = (random.range(1, 2), random.range(1, 3));
        Self::of([1, nodes, llcs, random.range(1, 2), random.range(1, 2)], random)
    }

    /// A machine with these counts, from which parts may be missing.
    fn of(counts: [u64; 5], random: &mut Random) -> Self {
        let mut shape = Self {
            counts,
            offline: BTreeSet::new(),
            without_memory: BTreeSet::new(),
            memory_node: false,
        };
        if random.one_in(4) {
            shape.make_odd(random);
        }
        shape
    }

    /// Removes parts. At least one CPU and one node with memory remain.
    fn make_odd(&mut self, random: &mut Random) {
        let (cpus, nodes) = (self.counts.iter().product::<u64>(), self.nodes());
        self.offline = (0..random.range(0, cpus - 1)).map(|_| random.range(1, cpus - 1)).collect();
        if nodes > 1 && random.one_in(2) {
            self.without_memory.insert(random.range(1, nodes - 1));
        }
        self.memory_node = random.one_in(3);
    }

    fn nodes(&self) -> u64 {
        self.counts[0] * self.counts[1]
    }

    /// The numbers of its CPUs in the operating system.
    pub(crate) fn cpus(&self) -> Vec<u64> {
        let all = 0..self.counts.iter().product();
        all.filter(|cpu| !self.offline.contains(cpu)).collect()
    }

    /// The numbers of its nodes with memory.
    pub(crate) fn memory_nodes(&self) -> Vec<u32> {
        let all = 0..self.nodes() + u64::from(self.memory_node);
        all.filter(|node| !self.without_memory.contains(node)).map(|node| node as u32).collect()
    }

    /// The machine.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn machine(&self) -> Result<Machine, MachineError> {
        match self.is_even() {
            true => roost_machine::resolve(&self.to_string()),
            false => roost_machine::lscpu::parse(&self.to_string(), "swarm"),
        }
    }

    fn is_even(&self) -> bool {
        self.offline.is_empty() && self.without_memory.is_empty() && !self.memory_node
    }

    /// The rows of lscpu, one per CPU.
    fn lscpu(&self) -> String {
        let [_, nodes, llcs, cores, threads] = self.counts;
        let mut text = "# CPU,Core,Socket,Node,,L1d,L1i,L2,L3\n".to_owned();
        for cpu in self.cpus() {
            let core = cpu / threads;
            let llc = core / cores;
            let node = llc / llcs;
            let package = node / nodes;
            text += &format!("{cpu},{core},{package},{node},,{core},{core},{core},{llc}\n");
        }
        text
    }

    /// The output of numactl about the nodes.
    fn numactl(&self) -> String {
        let nodes = self.nodes() + u64::from(self.memory_node);
        let with_memory = self.memory_nodes();
        let mut text = format!("available: {nodes} nodes\n");
        for node in 0..nodes {
            let mib = if with_memory.contains(&(node as u32)) { NODE_MIB } else { 0 };
            text += &format!("node {node} size: {mib} MB\n");
        }
        text
    }
}

/// The machine in the form of `--machine`: a synthetic string, or the text of a file.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [packages, nodes, llcs, cores, threads] = self.counts;
        if self.is_even() {
            return write!(f, "pack:{packages} node:{nodes} l3:{llcs} core:{cores} pu:{threads}");
        }
        write!(f, "{}{}", self.lscpu(), self.numactl())
    }
}
