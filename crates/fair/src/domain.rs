//! Scheduling domains and groups (kernel model, section 2; the kernel's `topology.c`).
//!
//! Each CPU has a chain of nested CPU sets, its domains. A domain is cut into groups: the child
//! domains of its CPUs. Balancing moves tasks between the groups of one domain.
//!
//! ```text
//! NUMA  ████████████████████████████████   distance 20: both nodes      groups: the nodes
//! PKG   ████████████████                   the CPUs of a node           groups: its LLCs
//! MC    ████████                           the CPUs of an LLC           groups: its cores
//! SMT   ██                                 the CPUs of a core           groups: its CPUs
//! ```
//!
//! Levels that add nothing are dropped, as in the kernel. CPUs whose domains are equal share one
//! [`Domain`] object. State that changes during a run is kept elsewhere, per CPU.

use roost_engine::CpuId;
use roost_machine::{CpuSet, Machine};

use crate::features::Features;

mod build;
mod capacity;

/// Index into [`Topology::domains`].
pub(crate) type DomainId = usize;

/// Index into [`Topology::groups`].
pub(crate) type GroupId = usize;

/// What a domain spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// The CPUs of a core.
    Smt,
    /// Cores that share an L2 or LLC tags (CLS).
    Cluster,
    /// The CPUs that share a last-level cache.
    Mc,
    /// The CPUs of a node (PKG; DIE before 6.7), unless a package has several nodes.
    Pkg,
    /// The CPUs of a node where [`Level::Pkg`] does not exist.
    Node,
    /// All nodes up to a distance.
    Numa {
        /// The largest distance between nodes in it: 10 is local.
        distance: u32,
    },
}

/// A set of domain flags (`SD_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Flags(u16);

impl Flags {
    /// Balance when a CPU is about to go idle.
    pub const BALANCE_NEWIDLE: Self = Self(1 << 0);
    /// Place a task here at exec.
    pub const BALANCE_EXEC: Self = Self(1 << 1);
    /// Place a new task here.
    pub const BALANCE_FORK: Self = Self(1 << 2);
    /// A woken task may be pulled to its waker.
    pub const WAKE_AFFINE: Self = Self(1 << 3);
    /// CPUs share a core's pipelines.
    pub const SHARE_CPUCAPACITY: Self = Self(1 << 4);
    /// CPUs share a last-level cache (SHARE_PKG_RESOURCES before 6.9).
    pub const SHARE_LLC: Self = Self(1 << 5);
    /// CPUs share a cluster (6.8 and later).
    pub const CLUSTER: Self = Self(1 << 6);
    /// The domain spans several nodes.
    pub const NUMA: Self = Self(1 << 7);
    /// One balancing pass at a time in the whole system.
    pub const SERIALIZE: Self = Self(1 << 8);
    /// Spread tasks over the siblings of this domain first.
    pub const PREFER_SIBLING: Self = Self(1 << 9);
    /// CPUs have different capacities.
    pub const ASYM_CPUCAPACITY: Self = Self(1 << 10);
    /// The domain has CPUs of every capacity in the machine.
    pub const ASYM_CPUCAPACITY_FULL: Self = Self(1 << 11);
    /// A woken task may be placed anywhere here: set below domains with CPUs of different capacity,
    /// before 5.7. The simulation does not have the search that this flag asks for, because tasks
    /// run equally fast on all CPUs.
    pub const BALANCE_WAKE: Self = Self(1 << 12);

    /// Whether all of `flags` are set.
    #[inline]
    pub const fn has(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// These flags and `flags`.
    #[inline]
    pub const fn with(self, flags: Self) -> Self {
        Self(self.0 | flags.0)
    }

    /// These flags without `flags`.
    #[inline]
    pub const fn without(self, flags: Self) -> Self {
        Self(self.0 & !flags.0)
    }

    /// Names of the flags that are set, as in the kernel but without `SD_`.
    pub fn names(self) -> Vec<&'static str> {
        const NAMES: [(Flags, &str); 13] = [
            (Flags::BALANCE_NEWIDLE, "BALANCE_NEWIDLE"),
            (Flags::BALANCE_EXEC, "BALANCE_EXEC"),
            (Flags::BALANCE_FORK, "BALANCE_FORK"),
            (Flags::WAKE_AFFINE, "WAKE_AFFINE"),
            (Flags::SHARE_CPUCAPACITY, "SHARE_CPUCAPACITY"),
            (Flags::SHARE_LLC, "SHARE_LLC"),
            (Flags::CLUSTER, "CLUSTER"),
            (Flags::NUMA, "NUMA"),
            (Flags::SERIALIZE, "SERIALIZE"),
            (Flags::PREFER_SIBLING, "PREFER_SIBLING"),
            (Flags::ASYM_CPUCAPACITY, "ASYM_CPUCAPACITY"),
            (Flags::ASYM_CPUCAPACITY_FULL, "ASYM_CPUCAPACITY_FULL"),
            (Flags::BALANCE_WAKE, "BALANCE_WAKE"),
        ];
        NAMES.iter().filter(|(flag, _)| self.has(*flag)).map(|&(_, name)| name).collect()
    }
}

/// One scheduling domain. CPUs with equal domains share it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Domain {
    /// What it spans.
    pub level: Level,
    /// Its CPUs.
    pub span: CpuSet,
    /// Number of CPUs (`span_weight`).
    pub weight: u32,
    /// `SD_*` flags.
    pub flags: Flags,
    /// Load moves only if the busiest group is busier than the local group by this, in per cent
    /// (110 is 10 % more).
    pub imbalance_pct: u32,
    /// Shortest time between balancing passes of an idle CPU, ms.
    pub min_interval_ms: u32,
    /// Longest time between balancing passes of an idle CPU, ms.
    pub max_interval_ms: u32,
    /// Factor by which a busy CPU waits longer.
    pub busy_factor: u32,
    /// Failed passes after which cache-hot tasks are moved too.
    pub cache_nice_tries: u32,
    /// The groups in the kernel's circular order, beginning with the group whose balance mask has
    /// the lowest CPU. A CPU finds its own group with [`Topology::local_group_index`].
    pub groups: Vec<GroupId>,
    /// Number of tasks by which a node may be ahead (sections 10.6 and 14.1). 0 up to the LLC, and
    /// for rules that do not store it here.
    pub imb_numa_nr: u32,
    /// Flags of the child domain; none without a child.
    pub child_flags: Flags,
    /// CPUs of the child domain; 0 without a child.
    pub child_weight: u32,
    /// Whether the next level up is a NUMA level.
    pub parent_is_numa: bool,
}

impl Domain {
    /// Whether the domain has all of `flags`.
    #[inline]
    pub fn has(&self, flags: Flags) -> bool {
        self.flags.has(flags)
    }
}

/// A part of a domain. Balancing compares it with the other parts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Group {
    /// Its CPUs.
    pub span: CpuSet,
    /// CPUs that may balance on its behalf: those whose own child domain is this group; all of them
    /// up to 4.11.
    pub balance_mask: CpuSet,
    /// Number of CPUs (`group_weight`).
    pub weight: u32,
    /// Number of cores.
    pub cores: u32,
    /// Flags of the child domain that forms the group; none for a single CPU.
    pub flags: Flags,
}

impl Group {
    /// Whether this is one core with several CPUs.
    #[inline]
    pub fn is_smt(&self) -> bool {
        self.flags.has(Flags::SHARE_CPUCAPACITY)
    }
}

/// All domains of a machine, and the shortcuts that the scheduler keeps per CPU.
#[derive(Clone, Debug)]
pub(crate) struct Topology {
    /// Distinct domains.
    pub domains: Vec<Domain>,
    /// Distinct groups.
    pub groups: Vec<Group>,
    /// The domains of each CPU, bottom up; may be empty.
    pub of_cpu: Vec<Vec<DomainId>>,
    /// For each of these domains, the index of the CPU's own group.
    local_group: Vec<Vec<u32>>,
    /// LLC number of each CPU, dense in the order of the lowest CPU. CPUs have the same number if
    /// their highest SHARE_LLC domain is the same (`sd_llc_id`). A CPU without such a domain has a
    /// number of its own.
    pub llc_of: Vec<u32>,
    /// CPUs of each LLC.
    pub llc_span: Vec<CpuSet>,
    /// Number of CPUs of each LLC.
    llc_size: Vec<u32>,
    /// Index of each CPU's highest SHARE_LLC domain (`sd_llc`) among its domains.
    pub llc_level: Vec<Option<usize>>,
    /// Index of each CPU's lowest NUMA domain (`sd_numa`).
    pub numa_level: Vec<Option<usize>>,
    /// Index of each CPU's CLUSTER domain, in versions whose idle search begins there.
    pub cluster_level: Vec<Option<usize>>,
    /// Lowest CPU of each CPU's cluster, or of its LLC without clusters (`sd_share_id`).
    pub share_id: Vec<u32>,
    /// Core of each CPU, dense in the order of the lowest CPU.
    pub core_of: Vec<u32>,
    /// CPUs of each core.
    pub core_span: Vec<CpuSet>,
    /// Whether some core has several CPUs.
    pub smt_active: bool,
}

impl Topology {
    /// Builds the domains of `machine` as the kernel of version `features` does.
    pub fn new(machine: &Machine, features: &Features) -> Self {
        build::topology(machine, features)
    }

    /// The domains of `cpu`, bottom up.
    #[inline]
    pub fn domains_of(&self, cpu: CpuId) -> &[DomainId] {
        &self.of_cpu[cpu]
    }

    /// One domain.
    #[inline]
    pub fn domain(&self, id: DomainId) -> &Domain {
        &self.domains[id]
    }

    /// One group.
    #[inline]
    pub fn group(&self, id: GroupId) -> &Group {
        &self.groups[id]
    }

    /// Index of the group that `cpu` balances for, in the groups of its domain `level` (an index
    /// into [`Self::domains_of`]). That group is formed by the CPU's own child domain.
    #[inline]
    pub fn local_group_index(&self, cpu: CpuId, level: usize) -> usize {
        self.local_group[cpu][level] as usize
    }

    /// Number of CPUs of the LLC of `cpu` (`sd_llc_size`); 1 without an LLC domain.
    #[inline]
    pub fn llc_size(&self, cpu: CpuId) -> u32 {
        self.llc_size[self.llc_of[cpu] as usize]
    }

    /// Whether both CPUs have the same LLC (`cpus_share_cache`).
    #[inline]
    pub fn share_llc(&self, a: CpuId, b: CpuId) -> bool {
        self.llc_of[a] == self.llc_of[b]
    }

    /// Whether both CPUs have the same cluster, or the same LLC on machines without clusters
    /// (`cpus_share_resources`).
    #[inline]
    pub fn share_cluster(&self, a: CpuId, b: CpuId) -> bool {
        self.share_id[a] == self.share_id[b]
    }

    /// Index into `Stats::levels` for the domain of `cpu` at `level`. The order is SMT, CLS, MC,
    /// PKG, NODE, NUMA by distance. NUMA levels beyond the fourth share its counters.
    #[inline]
    pub fn stat_level(&self, cpu: CpuId, level: usize) -> usize {
        match self.domain(self.of_cpu[cpu][level]).level {
            Level::Smt => 0,
            Level::Cluster => 1,
            Level::Mc => 2,
            Level::Pkg => 3,
            Level::Node => 4,
            Level::Numa { .. } => 5 + (level - self.numa_level[cpu].unwrap_or(level)).min(3),
        }
    }

    /// The CPUs of the core of `cpu`, itself included.
    #[inline]
    pub fn siblings(&self, cpu: CpuId) -> &CpuSet {
        &self.core_span[self.core_of[cpu] as usize]
    }
}

#[cfg(test)]
mod tests;
