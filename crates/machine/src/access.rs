//! Questions that the engine asks about a machine at every wakeup and every shared cache line.
//!
//! Everything is read from the flat array of CPUs, so no second copy of the hierarchy can disagree
//! with it. The only other copy is that of crate `scx` for the lines of sched_ext programs, which a
//! test there compares with [`Machine::line_ns`].

use crate::{CpuSet, Machine};

impl Machine {
    /// Time for a cache line to move from CPU `b`'s core to CPU `a`'s, one way, ns; 0 within one
    /// CPU.
    ///
    /// Two LLCs of one package count as such even if their nodes differ (NPS modes), because the
    /// line takes the same way.
    #[inline]
    pub fn line_ns(&self, a: usize, b: usize) -> u64 {
        let (x, y) = (&self.cpus[a], &self.cpus[b]);
        let figures = &self.figures;
        if a == b {
            0
        } else if x.core == y.core {
            figures.line_same_core_ns.value
        } else if x.llc == y.llc {
            figures.line_same_llc_ns.value
        } else if x.package == y.package {
            figures.line_cross_llc_ns.value
        } else {
            figures.line_cross_package_ns.value
        }
    }

    /// Time from CPU `a` sending an interrupt until CPU `b` handles it, ns.
    #[inline]
    pub fn ipi_ns(&self, a: usize, b: usize) -> u64 {
        match self.cpus[a].package == self.cpus[b].package {
            true => self.figures.ipi_local_ns.value,
            false => self.figures.ipi_remote_ns.value,
        }
    }

    /// Whether both CPUs share a core.
    #[inline]
    pub fn same_core(&self, a: usize, b: usize) -> bool {
        self.cpus[a].core == self.cpus[b].core
    }

    /// Whether both CPUs share a last-level cache.
    #[inline]
    pub fn same_llc(&self, a: usize, b: usize) -> bool {
        a == b || self.cpus[a].llc == self.cpus[b].llc
    }

    /// Whether both CPUs are in the same NUMA node.
    #[inline]
    pub fn same_node(&self, a: usize, b: usize) -> bool {
        self.cpus[a].node == self.cpus[b].node
    }

    /// The CPUs of `cpu`'s core, `cpu` included.
    #[inline]
    pub fn siblings(&self, cpu: usize) -> &CpuSet {
        &self.cores[self.cpus[cpu].core as usize].cpus
    }

    /// The CPUs of `cpu`'s last-level cache, `cpu` included.
    #[inline]
    pub fn llc_cpus(&self, cpu: usize) -> &CpuSet {
        &self.llcs[self.cpus[cpu].llc as usize].cpus
    }

    /// Distance from node `from` to node `to` (dense numbers) as the firmware reports it; 10 is
    /// local.
    #[inline]
    pub fn distance(&self, from: usize, to: usize) -> u32 {
        self.distances[from][to]
    }

    /// The cost of memory by distance. Reads all pairs of nodes.
    pub fn memory_costs(&self) -> MemoryCosts<'_> {
        MemoryCosts { machine: self, neighbour: beyond_local(self.neighbour_distance()).max(1) }
    }

    /// Memory bandwidth of node `node`: its share of what its package sustains, bytes per us.
    pub fn node_bytes_per_us(&self, node: usize) -> u64 {
        let package = self.node_package(node);
        let nodes = (0..self.nodes.len()).filter(|&other| self.node_package(other) == package);
        self.figures.package_memory_bytes_per_us.value / nodes.count().max(1) as u64
    }

    /// The package that a node's memory is attached to: that of its CPUs, or a package of its own.
    pub fn node_package(&self, node: usize) -> usize {
        match self.nodes[node].cpus.first() {
            Some(cpu) => self.cpus[cpu].package as usize,
            None => self.packages + node,
        }
    }

    /// Capacity of an LLC, bytes.
    pub fn llc_bytes(&self, llc: usize) -> u64 {
        self.llcs[llc].size_bytes.unwrap_or(self.figures.llc_bytes.value)
    }

    /// The smallest distance between nodes with CPUs in different packages; if all CPUs are in one
    /// package, the largest distance of all.
    fn neighbour_distance(&self) -> u32 {
        let nodes = || (0..self.nodes.len()).filter(|&node| !self.nodes[node].cpus.is_empty());
        let apart = |a: usize, b: usize| self.node_package(a) != self.node_package(b);
        let pairs =
            nodes().flat_map(|a| nodes().filter(move |&b| apart(a, b)).map(move |b| (a, b)));
        let nearest = pairs.map(|(a, b)| self.distance(a, b)).min();
        nearest.or(self.distances.iter().flatten().copied().max()).unwrap_or(0)
    }

    /// Whether some core has more than one CPU.
    pub fn has_smt(&self) -> bool {
        self.cores.len() < self.cpus.len()
    }
}

/// The cost of memory that nothing else uses.
///
/// It is interpolated by the firmware's distance, from local to a neighbouring package. The figures
/// for remote memory are those of a neighbouring package. The size of distances does not matter
/// (SLIT overstates latency: distances are 10 and 32 where 110 and 199 ns are published). Anything
/// farther counts as a neighbouring package: on the ring of `x3750-m4` a core gets about as much
/// over two links as over one (3x1-bw-process in published/004-perf-bench.csv).
/// two links as over one (3x1-bw-process in published/004-perf-bench.csv).
#[derive(Debug)]
pub struct MemoryCosts<'a> {
    machine: &'a Machine,
    /// Difference between the distance of a neighbouring package and the local distance.
    neighbour: u64,
}

impl MemoryCosts<'_> {
    /// Latency of a load by a CPU of node `from` from the memory of node `to`, ns.
    pub fn latency_ns(&self, from: usize, to: usize) -> u64 {
        let figures = &self.machine.figures;
        let (local, remote) = (figures.memory_local_ns.value, figures.memory_remote_ns.value);
        local + remote.saturating_sub(local) * self.way(from, to) / self.neighbour
    }

    /// Bandwidth of one core of node `from` from the memory of node `to`, bytes per microsecond.
    /// The number of cache lines that a core fetches at a time is fixed, so the time per byte grows
    /// with distance as latency does.
    pub fn core_bytes_per_us(&self, from: usize, to: usize) -> u64 {
        let figures = &self.machine.figures;
        let local = figures.refill_local_bytes_per_us.value;
        let remote = figures.refill_remote_bytes_per_us.value;
        let slower = local.saturating_sub(remote) * self.way(from, to);
        local * remote * self.neighbour / (remote * self.neighbour + slower)
    }

    /// How much farther than local memory node `to` is from node `from`, but not more than a
    /// neighbouring package.
    fn way(&self, from: usize, to: usize) -> u64 {
        match from == to {
            true => 0,
            false => beyond_local(self.machine.distance(from, to)).min(self.neighbour),
        }
    }
}

/// Difference between a distance and the local distance.
fn beyond_local(distance: u32) -> u64 {
    u64::from(distance).saturating_sub(10)
}

#[cfg(test)]
mod tests {
    use crate::resolve;

    #[test]
    fn a_line_costs_what_its_way_costs() {
        let milan = resolve("zen3-2s").unwrap();
        // Published for Milan 2P: 23 within an LLC, 107 across LLCs, 197 across sockets.
        assert_eq!(milan.line_ns(0, 0), 0);
        assert_eq!(milan.line_ns(0, 128), milan.figures.line_same_core_ns.value);
        assert_eq!(milan.line_ns(0, 7), 23);
        assert_eq!(milan.line_ns(0, 8), 107);
        assert_eq!(milan.line_ns(0, 64), 197);
        assert!(milan.ipi_ns(0, 64) > milan.ipi_ns(0, 63));
    }

    #[test]
    fn nodes_of_one_package_are_no_farther_than_its_llcs() {
        let nps4 = resolve("zen3-2s-nps4").unwrap();
        assert!(!nps4.same_node(0, 16));
        assert_eq!(nps4.line_ns(0, 16), 107);
        assert_eq!(nps4.ipi_ns(0, 16), nps4.figures.ipi_local_ns.value);
        assert_eq!(nps4.distance(0, 1), 12);
        assert_eq!(nps4.distance(0, 4), 32);
    }

    #[test]
    fn memory_is_as_far_as_its_node() {
        let genoa = resolve("zen4-2s").unwrap();
        let costs = genoa.memory_costs();
        assert_eq!([0, 1].map(|node| costs.latency_ns(0, node)), [110, 199]);
        assert_eq!([0, 1].map(|node| costs.core_bytes_per_us(0, node)), [37_500, 30_400]);
        let nps4 = resolve("zen3-2s-nps4").unwrap();
        // Distance 12, on a scale from 10 to 32, is a tenth of the way.
        assert_eq!(nps4.memory_costs().latency_ns(0, 1), 110 + 89 * 2 / 22);
        assert_eq!(nps4.node_bytes_per_us(3), 169_500 / 4);
        assert_eq!([0, 3, 4].map(|node| nps4.node_package(node)), [0, 0, 1]);
        // Distances are 10, 11, 11, 12. The figures are those of the next package, at 11.
        let ring = resolve("x3750-m4").unwrap();
        let costs = ring.memory_costs();
        assert_eq!([0, 1, 3].map(|node| costs.latency_ns(0, node)), [78, 144, 144]);
        assert_eq!([0, 1, 3].map(|node| costs.core_bytes_per_us(0, node)), [6682, 3630, 3630]);
    }

    #[test]
    fn an_llc_of_unknown_size_has_that_of_its_class() {
        assert_eq!(resolve("zen3-2s").unwrap().llc_bytes(3), 32 << 20);
        let x3950 = resolve("x3950").unwrap();
        assert_eq!(x3950.llcs[0].size_bytes, None);
        assert_eq!(x3950.llc_bytes(0), x3950.figures.llc_bytes.value);
    }

    #[test]
    fn siblings_and_neighbours_are_found() {
        let milan = resolve("zen3-2s").unwrap();
        assert_eq!(milan.siblings(5).to_string(), "5,133");
        assert_eq!(milan.llc_cpus(5).to_string(), "0-7,128-135");
        assert!(milan.same_llc(0, 135) && !milan.same_llc(0, 8));
        assert!(milan.same_core(0, 128) && milan.has_smt());
        assert!(milan.same_node(0, 63) && !milan.same_node(0, 64));
    }
}
