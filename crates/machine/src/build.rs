//! Builds a validated [`Machine`] from what a source says.
//!
//! Every source (preset, hwloc XML, `/sys`, synthetic string) fills in a [`Description`], with
//! numbers of its own choice and gaps for what it does not know. [`Description::build`] makes the
//! numbers dense, fills each gap with a named guess, and validates the result.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::Problem;
use crate::validate::validate;
use crate::{Core, Cpu, CpuSet, Figures, Guess, Llc, Machine, Node, figures};

/// The largest number of CPUs: more than the largest kernels support today. It stops a typing error
/// from filling memory.
pub(crate) const MAX_CPUS: usize = 4096;

/// The most NUMA nodes: the kernel's `MAX_NUMNODES` with its largest NODES_SHIFT.
pub(crate) const MAX_NODES: usize = 1024;

/// The distance of a node to itself if the firmware gives none (`LOCAL_DISTANCE`).
pub(crate) const LOCAL_DISTANCE: u32 = 10;

/// The distance to another node if the firmware gives none (`REMOTE_DISTANCE`).
pub(crate) const REMOTE_DISTANCE: u32 = 20;

/// A machine as its source describes it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Description {
    /// The name that the user gave.
    pub name: String,
    /// Online CPUs, in any order.
    pub cpus: Vec<CpuDescription>,
    /// Capacity of last-level caches in bytes, by the key used in `cpus`.
    pub llc_bytes: BTreeMap<u32, u64>,
    /// NUMA nodes with their memory in bytes, by the operating system's number.
    pub nodes: BTreeMap<u32, Option<u64>>,
    /// Distance from one node to another, by the operating system's numbers.
    pub distances: BTreeMap<(u32, u32), u32>,
    /// Figures, if the source has some; otherwise a generic set is used.
    pub figures: Option<Figures>,
    /// Whether only one CPU executes at a time.
    pub takes_turns: bool,
    /// The vendor of the CPUs in CPUID's spelling.
    pub vendor: Option<String>,
    /// The family of the CPUs in CPUID's numbers.
    pub family: Option<u32>,
    /// Capacity in bytes of a core's L2.
    pub l2_bytes: Option<u64>,
    /// Names of the kinds of CPUs, if the source knows several.
    pub kinds: BTreeSet<String>,
    /// Guesses that the source has already made.
    pub guesses: Vec<Guess>,
}

/// One CPU as its source describes it. CPUs that share a thing have the same key for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuDescription {
    /// The operating system's number.
    pub os_index: u32,
    /// Key of its core.
    pub core: Option<u32>,
    /// Key of the L2 or other cluster that it shares with other cores.
    pub cluster: Option<u32>,
    /// Key of its last-level cache.
    pub llc: Option<u32>,
    /// The operating system's number of its node.
    pub node: Option<u32>,
    /// Key of its package.
    pub package: Option<u32>,
    /// The kernel's measure of its speed at its highest frequency (`cpu_capacity`). The largest of
    /// a machine is 1024.
    pub capacity: Option<u32>,
    /// Its highest frequency, MHz.
    pub max_mhz: Option<u32>,
}

/// A package that the source names, or the package assumed around a node.
type PackageKey = (bool, u32);

/// A last-level cache, or the assumed one (`None`), within one package and node.
type LlcKey = (Option<u32>, PackageKey, u32);

impl Description {
    /// The machine described, or the reason why it is impossible.
    pub(crate) fn build(mut self) -> Result<Machine, Problem> {
        self.order_cpus()?;
        self.fill_nodes()?;
        let packages = self.package_keys();
        let llc_keys = self.llc_keys(&packages);
        let cpus = self.dense_cpus(&packages, &llc_keys);
        let nodes = self.dense_nodes(&cpus);
        let distances = self.dense_distances(&nodes);
        let llcs = self.dense_llcs(&cpus, &llc_keys);
        self.note_sizes(&nodes, &llcs);
        self.note_differences();
        let cores: Vec<Core> = sets(&cpus, |cpu| cpu.core).map(|cpus| Core { cpus }).collect();
        let figures = self.figures(&cores);
        let reclaim_distance = self.reclaim_distance();
        let machine = Machine {
            name: self.name,
            packages: cpus.iter().map(|cpu| cpu.package as usize + 1).max().unwrap_or(0),
            cpus,
            cores,
            llcs,
            nodes,
            distances,
            reclaim_distance,
            figures,
            takes_turns: self.takes_turns,
            guesses: self.guesses,
        };
        validate(&machine)?;
        Ok(machine)
    }

    /// Records something the source did not say.
    pub(crate) fn guess(&mut self, name: &'static str, assumed: impl Into<String>) {
        self.guesses.push(Guess { name, assumed: assumed.into() });
    }

    /// Orders CPUs by number. Rejects zero CPUs, too many, and a number that occurs twice.
    fn order_cpus(&mut self) -> Result<(), Problem> {
        if self.cpus.is_empty() {
            return Err(Problem::hierarchy("no CPU is online".into(), "name at least one CPU"));
        }
        if self.cpus.len() > MAX_CPUS {
            let what = format!("{} CPUs", self.cpus.len());
            return Err(Problem::hierarchy(what, "a machine may have up to 4096 CPUs"));
        }
        self.cpus.sort_by_key(|cpu| cpu.os_index);
        if let Some(pair) = self.cpus.windows(2).find(|pair| pair[0].os_index == pair[1].os_index) {
            let what = format!("CPU {} is described twice", pair[0].os_index);
            return Err(Problem::hierarchy(what, "describe each CPU once"));
        }
        Ok(())
    }

    /// Gives every CPU an existing node.
    fn fill_nodes(&mut self) -> Result<(), Problem> {
        let named: Vec<u32> = self.cpus.iter().filter_map(|cpu| cpu.node).collect();
        if let Some(node) = named.iter().find(|node| !self.nodes.contains_key(node)) {
            let what = format!("a CPU belongs to node {node}, which is not described");
            return Err(Problem::hierarchy(what, "describe every node a CPU belongs to"));
        }
        if self.nodes.len() > MAX_NODES {
            let what = format!("{} nodes", self.nodes.len());
            return Err(Problem::hierarchy(what, "a machine may have up to 1024 nodes"));
        }
        if self.nodes.is_empty() {
            self.nodes.insert(0, None);
            self.guess("no-numa-information", "one node holds all CPUs");
        } else if named.len() < self.cpus.len() {
            let without = self.cpus.iter().filter(|cpu| cpu.node.is_none());
            let list = list(without.map(|cpu| cpu.os_index));
            self.guess("cpu-without-node", format!("CPUs {list} belong to the first node"));
        }
        let first = self.nodes.keys().next().copied();
        for cpu in &mut self.cpus {
            cpu.node = cpu.node.or(first);
        }
        Ok(())
    }

    /// The package of each CPU. CPUs without one get the package of their node.
    fn package_keys(&mut self) -> Vec<PackageKey> {
        if self.cpus.iter().any(|cpu| cpu.package.is_none()) {
            self.guess("no-package-data", "each node is a package of its own");
        }
        let key = |cpu: &CpuDescription| match cpu.package {
            Some(package) => (true, package),
            None => (false, cpu.node.unwrap_or(0)),
        };
        self.cpus.iter().map(key).collect()
    }

    /// The last-level cache of each CPU. A cache that crosses a package or a node is split there,
    /// because the scheduler's domains never cross them.
    fn llc_keys(&mut self, packages: &[PackageKey]) -> Vec<LlcKey> {
        let keys: Vec<LlcKey> = self
            .cpus
            .iter()
            .zip(packages)
            .map(|(cpu, &package)| (cpu.llc, package, cpu.node.unwrap_or(0)))
            .collect();
        if keys.iter().any(|key| key.0.is_none()) {
            let assumed = "CPUs of one node and package share a last-level cache of unknown size";
            self.guess("no-cache-data", assumed);
        }
        let mut parts: BTreeMap<u32, BTreeSet<(PackageKey, u32)>> = BTreeMap::new();
        for key in &keys {
            if let Some(llc) = key.0 {
                parts.entry(llc).or_default().insert((key.1, key.2));
            }
        }
        let crossing = |part: fn(&(PackageKey, u32)) -> (bool, u32)| {
            let spread = |set: &BTreeSet<_>| set.iter().map(part).collect::<BTreeSet<_>>().len();
            parts.values().filter(|set| spread(set) > 1).count()
        };
        let (nodes, packages) = (crossing(|part| (true, part.1)), crossing(|part| part.0));
        for (name, count) in [("llc-across-nodes", nodes), ("llc-across-packages", packages)] {
            if count > 0 {
                let assumed = "each part is a cache of its own with its CPUs' share of the size";
                self.guess(name, format!("{count} last-level cache(s) parted: {assumed}"));
            }
        }
        keys
    }

    /// CPUs with dense numbers, in the order of the lowest CPU.
    fn dense_cpus(&mut self, packages: &[PackageKey], llc_keys: &[LlcKey]) -> Vec<Cpu> {
        if self.cpus.iter().any(|cpu| cpu.core.is_none()) {
            self.guess("no-core-data", "a CPU whose core is not known is a core of its own");
        }
        let core_key = |cpu: &CpuDescription| match cpu.core {
            Some(core) => (true, core),
            None => (false, cpu.os_index),
        };
        let cores = number(self.cpus.iter().map(core_key));
        let llcs = number(llc_keys.iter().copied());
        let nodes = number(self.cpus.iter().map(|cpu| cpu.node));
        let packages = number(packages.iter().copied());
        let clusters = self.dense_clusters(&cores, &llcs);
        let numbers = cores.into_iter().zip(llcs).zip(nodes.into_iter().zip(packages));
        self.cpus
            .iter()
            .zip(clusters)
            .zip(numbers)
            .map(|((cpu, cluster), ((core, llc), (node, package)))| Cpu {
                os_index: cpu.os_index,
                core,
                cluster,
                llc,
                node,
                package,
                capacity: cpu.capacity.unwrap_or(Cpu::FULL_CAPACITY),
            })
            .collect()
    }

    /// Clusters of more than one core that are smaller than their LLC. Other clusters have no
    /// effect on the scheduler, because a domain equal to its child is dropped.
    fn dense_clusters(&self, cores: &[u32], llcs: &[u32]) -> Vec<Option<u32>> {
        let key = |index: usize| self.cpus[index].cluster.map(|cluster| (cluster, llcs[index]));
        let mut members: BTreeMap<(u32, u32), BTreeSet<u32>> = BTreeMap::new();
        let mut llc_cores: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for (index, &core) in cores.iter().enumerate() {
            llc_cores.entry(llcs[index]).or_default().insert(core);
            if let Some(key) = key(index) {
                members.entry(key).or_default().insert(core);
            }
        }
        let kept = |key: &(u32, u32)| {
            let count = members.get(key).map_or(0, BTreeSet::len);
            count > 1 && count < llc_cores.get(&key.1).map_or(0, BTreeSet::len)
        };
        let keys: Vec<_> = (0..cores.len()).map(|index| key(index).filter(kept)).collect();
        let mut numbers = number(keys.iter().flatten().copied()).into_iter();
        keys.iter().map(|key| key.and_then(|_| numbers.next())).collect()
    }

    /// Nodes with CPUs, in the order of their CPUs; then the other nodes.
    fn dense_nodes(&mut self, cpus: &[Cpu]) -> Vec<Node> {
        let mut order: Vec<u32> = Vec::new();
        for cpu in &self.cpus {
            if let Some(node) = cpu.node.filter(|node| !order.contains(node)) {
                order.push(node);
            }
        }
        let without: Vec<u32> =
            self.nodes.keys().copied().filter(|node| !order.contains(node)).collect();
        if !without.is_empty() {
            let list = list(without.iter().copied());
            self.guess("node-without-cpus", format!("nodes {list} hold memory only"));
        }
        let mut sets: Vec<CpuSet> = sets(cpus, |cpu| cpu.node).collect();
        sets.resize(order.len() + without.len(), CpuSet::new(cpus.len()));
        let nodes = order.into_iter().chain(without).zip(sets);
        nodes
            .map(|(os_index, cpus)| Node {
                os_index,
                cpus,
                memory_bytes: self.nodes.get(&os_index).copied().flatten(),
            })
            .collect()
    }

    /// Records the capacities that remain unknown.
    fn note_sizes(&mut self, nodes: &[Node], llcs: &[Llc]) {
        let noted = self.guesses.iter().any(|guess| guess.name == "no-cache-data");
        if llcs.iter().any(|llc| llc.size_bytes.is_none()) && !noted {
            self.guess("no-llc-size", "a size where it is not known is llc_bytes of the figures");
        }
        if nodes.iter().any(|node| node.memory_bytes.is_none()) {
            self.guess("no-memory-size", "a node whose memory is not known has enough of it");
        }
    }

    /// Records that CPUs differ. Only scheduling domains take account of it in the simulation.
    fn note_differences(&mut self) {
        let range = |value: fn(&CpuDescription) -> Option<u32>| {
            let values = || self.cpus.iter().filter_map(value);
            let (least, most) = (values().min()?, values().max()?);
            (least < most).then_some((least, most))
        };
        let assumed = if let Some((least, most)) = range(|cpu| cpu.capacity) {
            format!("CPUs with capacities of {least} to {most} are simulated as equal")
        } else if let Some((least, most)) = range(|cpu| cpu.max_mhz) {
            format!("CPUs of at most {least} to {most} MHz are simulated as equal")
        } else if self.kinds.len() > 1 {
            let kinds: Vec<&str> = self.kinds.iter().map(String::as_str).collect();
            format!("CPUs of the kinds {} are simulated as equal", kinds.join(", "))
        } else {
            return;
        };
        self.guess("unequal-cpus", assumed);
    }

    /// The table of distances. Missing distances get the kernel's defaults.
    fn dense_distances(&mut self, nodes: &[Node]) -> Vec<Vec<u32>> {
        let mut missing = 0;
        let mut table = Vec::with_capacity(nodes.len());
        for from in nodes {
            let row = nodes.iter().map(|to| {
                let said = self.distances.get(&(from.os_index, to.os_index)).copied();
                missing += usize::from(said.is_none());
                let local = from.os_index == to.os_index;
                said.unwrap_or(if local { LOCAL_DISTANCE } else { REMOTE_DISTANCE })
            });
            table.push(row.collect());
        }
        if missing > 0 && nodes.len() > 1 {
            let assumed = "a distance not given is the kernel's default, 10 local and 20 remote";
            self.guess("no-distances", assumed);
        }
        table
    }

    /// Last-level caches. The parts of a split cache share its size in proportion to their CPUs.
    fn dense_llcs(&self, cpus: &[Cpu], keys: &[LlcKey]) -> Vec<Llc> {
        let mut whole: BTreeMap<u32, u64> = BTreeMap::new();
        for llc in keys.iter().filter_map(|key| key.0) {
            *whole.entry(llc).or_default() += 1;
        }
        let size = |set: &CpuSet| {
            let llc = keys[set.first()?].0?;
            let bytes = u128::from(*self.llc_bytes.get(&llc)?) * set.len() as u128;
            u64::try_from(bytes / u128::from(*whole.get(&llc)?)).ok()
        };
        sets(cpus, |cpu| cpu.llc).map(|cpus| Llc { size_bytes: size(&cpus), cpus }).collect()
    }

    /// [`Machine::reclaim_distance`] for these CPUs.
    fn reclaim_distance(&self) -> u32 {
        const ZEN_FAMILY: u32 = 0x17;
        match self.vendor.as_deref() {
            Some("HygonGenuine") => 32,
            Some("AuthenticAMD") if self.family.is_none_or(|family| family >= ZEN_FAMILY) => 32,
            _ => 30,
        }
    }

    /// The source's own figures, or a generic set together with a guess.
    fn figures(&mut self, cores: &[Core]) -> Figures {
        if let Some(figures) = self.figures.take() {
            return figures;
        }
        let threads = cores.iter().map(|core| core.cpus.len()).max().unwrap_or(1);
        let generic = figures::generic(self.vendor.as_deref(), threads, self.l2_bytes);
        let assumed = format!("latencies and bandwidths are those of {}", generic.whose);
        self.guess("no-latency-data", assumed);
        generic.figures
    }
}

/// Dense numbers for keys, in order of first appearance.
fn number<K: Ord>(keys: impl Iterator<Item = K>) -> Vec<u32> {
    let mut numbers = BTreeMap::new();
    keys.map(|key| {
        let next = numbers.len() as u32;
        *numbers.entry(key).or_insert(next)
    })
    .collect()
}

/// For each dense number that `of` gives: the set of CPUs with that number.
fn sets(cpus: &[Cpu], of: impl Fn(&Cpu) -> u32) -> impl Iterator<Item = CpuSet> {
    let count = cpus.iter().map(|cpu| of(cpu) as usize + 1).max().unwrap_or(0);
    let mut sets = vec![CpuSet::new(cpus.len()); count];
    for (index, cpu) in cpus.iter().enumerate() {
        sets[of(cpu) as usize].insert(index);
    }
    sets.into_iter()
}

/// Numbers in the kernel's list format: `0-3,8`.
pub(crate) fn list(numbers: impl Iterator<Item = u32>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for n in numbers {
        match runs.last_mut() {
            Some((_, end)) if end.checked_add(1) == Some(n) => *end = n,
            _ => runs.push((n, n)),
        }
    }
    let text = |&(start, end): &(u32, u32)| match start == end {
        true => start.to_string(),
        false => format!("{start}-{end}"),
    };
    runs.iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(os_index: u32, core: u32, llc: u32, node: u32, package: u32) -> CpuDescription {
        CpuDescription {
            os_index,
            core: Some(core),
            cluster: None,
            llc: Some(llc),
            node: Some(node),
            package: Some(package),
            ..CpuDescription::default()
        }
    }

    fn described(cpus: Vec<CpuDescription>) -> Description {
        let nodes = cpus.iter().filter_map(|cpu| cpu.node).map(|node| (node, Some(1))).collect();
        Description { cpus, nodes, ..Description::default() }
    }

    fn refused(description: Description) -> String {
        description.build().unwrap_err().what
    }

    #[test]
    fn numbers_become_dense_in_the_order_of_the_lowest_cpu() {
        let m = described(vec![cpu(9, 70, 7, 4, 1), cpu(3, 80, 8, 6, 0), cpu(12, 80, 8, 6, 0)])
            .build()
            .unwrap();
        assert_eq!(m.cpus.iter().map(|cpu| cpu.os_index).collect::<Vec<_>>(), [3, 9, 12]);
        assert_eq!(m.nodes.iter().map(|node| node.os_index).collect::<Vec<_>>(), [6, 4]);
        assert_eq!(m.siblings(0).to_string(), "0,2");
        assert_eq!((m.cpus[1].core, m.cpus[1].llc, m.cpus[1].package), (1, 1, 1));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert_eq!(refused(described(Vec::new())), "no CPU is online");
        let twice = described(vec![cpu(1, 0, 0, 0, 0), cpu(1, 1, 0, 0, 0)]);
        assert_eq!(refused(twice), "CPU 1 is described twice");
        let mut nowhere = described(vec![cpu(0, 0, 0, 3, 0)]);
        nowhere.nodes.clear();
        assert_eq!(refused(nowhere), "a CPU belongs to node 3, which is not described");
        let many = described((0..4097).map(|n| cpu(n, n, 0, 0, 0)).collect());
        assert_eq!(refused(many), "4097 CPUs");
    }

    #[test]
    fn threads_of_a_core_share_cache_node_and_package() {
        for other in [cpu(1, 0, 1, 0, 0), cpu(1, 0, 0, 1, 0), cpu(1, 0, 0, 0, 1)] {
            let what = refused(described(vec![cpu(0, 0, 0, 0, 0), other]));
            assert_eq!(what, "CPUs 0 and 1 share a core but not a cache, node or package");
        }
    }

    #[test]
    fn an_llc_across_packages_is_parted_and_reported() {
        let mut description = described(vec![cpu(0, 0, 5, 0, 0), cpu(1, 1, 5, 0, 1)]);
        description.llc_bytes.insert(5, 1000);
        let m = description.build().unwrap();
        assert_eq!(m.llcs.iter().map(|llc| llc.size_bytes).collect::<Vec<_>>(), [Some(500); 2]);
        assert_eq!(m.guesses[0].name, "llc-across-packages");
    }

    #[test]
    fn numbers_are_listed_as_the_kernel_lists_them() {
        assert_eq!(list([0, 1, 2, 5, u32::MAX].into_iter()), "0-2,5,4294967295");
        assert_eq!(list(std::iter::empty()), "");
    }
}
