//! How domains and groups are built.
//!
//! 1. [`levels`]: for each level the span of each CPU, before anything is dropped.
//! 2. [`chain`]: what remains of the levels of one CPU.
//! 3. [`Groups`]: the groups of a domain; those of NUMA levels may overlap.
//! 4. [`topology`]: puts it all together. Equal domains are shared.

use std::collections::BTreeMap;

use roost_engine::CpuId;
use roost_machine::{CpuSet, Machine};

use super::capacity::Capacities;
use super::{Domain, Flags, Group, GroupId, Level, Topology};
use crate::eras::{Asymmetry, Pacing};
use crate::features::Features;
use crate::mechanisms::{LevelSpan, Walk};
use crate::tunables;

/// The distance beyond which nodes are far, in versions where it does not depend on the processor
/// (RECLAIM_DISTANCE).
const RECLAIM_DISTANCE: u32 = 30;

/// Numbers distinct values, densely from 0, in the order of first use.
struct Interner<T> {
    values: Vec<T>,
    ids: BTreeMap<T, usize>,
}

impl<T: Ord + Clone> Interner<T> {
    fn new() -> Self {
        Self { values: Vec::new(), ids: BTreeMap::new() }
    }

    fn id(&mut self, value: T) -> usize {
        if let Some(&id) = self.ids.get(&value) {
            return id;
        }
        let id = self.values.len();
        self.values.push(value.clone());
        self.ids.insert(value, id);
        id
    }
}

/// All levels of a machine before any level is dropped.
struct Levels {
    /// Distinct spans.
    spans: Vec<CpuSet>,
    /// Number of CPUs of each span.
    weights: Vec<u32>,
    /// Bottom up: the level, and the span (index into `spans`) of each CPU. A CPU has spans up to
    /// and including the first level that covers the whole machine.
    rows: Vec<(Level, Vec<Option<usize>>)>,
    /// [`Machine::reclaim_distance`].
    reclaim_distance: u32,
    /// Capacities of CPUs, for the flags.
    capacities: Capacities,
}

impl Levels {
    /// The span of `cpu` at a level, if the CPU has one there.
    fn span(&self, level: usize, cpu: CpuId) -> Option<usize> {
        self.rows[level].1[cpu]
    }

    /// The spans of `cpu`, bottom up.
    fn of_cpu(&self, cpu: CpuId) -> Vec<usize> {
        self.rows.iter().map_while(|(_, spans)| spans[cpu]).collect()
    }

    /// The span of the child of `cpu`'s domain at a level; `None` at the bottom.
    fn child(&self, level: usize, cpu: CpuId) -> Option<usize> {
        level.checked_sub(1).and_then(|child| self.span(child, cpu))
    }
}

/// The part of a node from which a CPU's span at a level is made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Within {
    Core(u32),
    Cluster(u32),
    Llc(u32),
    Node,
}

/// Such a part and its node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Container {
    within: Within,
    node: u32,
}

/// The sets of CPUs that a CPU belongs to, one per level, according to the machine's hierarchy.
struct Hierarchy<'a> {
    machine: &'a Machine,
    clusters: BTreeMap<u32, CpuSet>,
}

impl<'a> Hierarchy<'a> {
    fn new(machine: &'a Machine) -> Self {
        let mut clusters = BTreeMap::new();
        for (number, cpu) in machine.cpus.iter().enumerate() {
            if let Some(cluster) = cpu.cluster {
                let members =
                    clusters.entry(cluster).or_insert_with(|| CpuSet::new(machine.nr_cpus()));
                members.insert(number);
            }
        }
        Self { machine, clusters }
    }

    /// Whether some package has CPUs of several nodes. The kernel on x86 then has no PKG level
    /// (`x86_has_numa_in_package`).
    fn numa_in_package(&self) -> bool {
        let mut node_of = BTreeMap::new();
        self.machine
            .cpus
            .iter()
            .any(|cpu| *node_of.entry(cpu.package).or_insert(cpu.node) != cpu.node)
    }

    /// Distances between nodes that have CPUs, each once, in increasing order.
    fn distances(&self) -> Vec<u32> {
        let nodes = &self.machine.nodes;
        let with_cpus = || (0..nodes.len()).filter(|&node| !nodes[node].cpus.is_empty());
        let mut distances: Vec<u32> = with_cpus()
            .flat_map(|a| with_cpus().map(move |b| (a, b)))
            .map(|(a, b)| self.machine.distances[a][b])
            .collect();
        distances.sort_unstable();
        distances.dedup();
        distances
    }

    /// The levels of this machine, bottom up, with the distance that node levels reach. In 3.9
    /// every machine has the level of a node's CPUs, and no other node level.
    fn levels(&self, features: &Features) -> Vec<(Level, u32)> {
        let era = features.domains;
        let mut levels = vec![(Level::Smt, 0)];
        if era.clusters {
            levels.push((Level::Cluster, 0));
        }
        levels.push((Level::Mc, 0));
        if era.always_package || !self.numa_in_package() {
            levels.push((Level::Pkg, 0));
        }
        let distances = self.distances();
        if let Some(&local) = distances.first().filter(|_| !era.always_package) {
            levels.push((Level::Node, local));
        }
        let remote = distances.iter().skip(1);
        levels.extend(remote.map(|&distance| (Level::Numa { distance }, distance)));
        levels
    }

    /// What the CPUs of one span share at a level: the number of a core, cluster, LLC or node,
    /// together with the node. Caches and cores end at the node's border, because the kernel
    /// rejects anything else.
    fn container(&self, level: Level, cpu: CpuId) -> Container {
        let cpu = &self.machine.cpus[cpu];
        let within = match level {
            Level::Smt => Within::Core(cpu.core),
            Level::Cluster => cpu.cluster.map_or(Within::Core(cpu.core), Within::Cluster),
            Level::Mc => Within::Llc(cpu.llc),
            Level::Pkg | Level::Node | Level::Numa { .. } => Within::Node,
        };
        Container { within, node: cpu.node }
    }

    /// The CPUs of a container; at node levels also those of all nodes up to a distance.
    fn span(&self, container: Container, level: Level, reach: u32) -> CpuSet {
        let machine = self.machine;
        let node = &machine.nodes[container.node as usize].cpus;
        let inside = match container.within {
            Within::Core(core) => &machine.cores[core as usize].cpus,
            Within::Cluster(cluster) => self.clusters.get(&cluster).unwrap_or(node),
            Within::Llc(llc) => &machine.llcs[llc as usize].cpus,
            Within::Node if level == Level::Pkg => node,
            Within::Node => return self.within(container.node as usize, reach),
        };
        let mut span = inside.clone();
        span.intersect_with(node);
        span
    }

    /// The CPUs of all nodes up to a distance from `node`.
    fn within(&self, node: usize, reach: u32) -> CpuSet {
        let mut span = CpuSet::new(self.machine.nr_cpus());
        for (other, &distance) in self.machine.distances[node].iter().enumerate() {
            if distance <= reach {
                span.union_with(&self.machine.nodes[other].cpus);
            }
        }
        span
    }
}

/// The spans of all CPUs at all levels.
fn levels(machine: &Machine, features: &Features) -> Levels {
    let hierarchy = Hierarchy::new(machine);
    let everything = CpuSet::full(machine.nr_cpus());
    let mut spans = Interner::new();
    let mut rows: Vec<(Level, Vec<Option<usize>>)> = Vec::new();
    for (level, reach) in hierarchy.levels(features) {
        // CPUs of one container have the same span if their children are equal.
        let mut made: BTreeMap<(Container, Option<usize>), usize> = BTreeMap::new();
        let mut row = Vec::with_capacity(machine.nr_cpus());
        for cpu in 0..machine.nr_cpus() {
            let child = rows.last().and_then(|(_, below)| below[cpu]);
            let ended = !rows.is_empty() && child.is_none();
            if ended || child.is_some_and(|child| spans.values[child] == everything) {
                row.push(None);
                continue;
            }
            let container = hierarchy.container(level, cpu);
            let id = made.entry((container, child)).or_insert_with(|| {
                let mut span = hierarchy.span(container, level, reach);
                if let Some(child) = child {
                    // A level that does not contain its child is widened, as in the kernel.
                    span.union_with(&spans.values[child]);
                }
                spans.id(span)
            });
            row.push(Some(*id));
        }
        rows.push((level, row));
    }
    let weights = spans.values.iter().map(|span| span.len() as u32).collect();
    // Before 5.4 it is the same for all processors.
    let reclaim_distance = if features.domains.reclaim_distance_by_processor {
        machine.reclaim_distance
    } else {
        RECLAIM_DISTANCE
    };
    let asymmetry = features.domains.asymmetry;
    let capacities = Capacities::new(machine, asymmetry, rows.len(), |level, cpu| {
        rows[level].1[cpu].map(|span| &spans.values[span])
    });
    Levels { spans: spans.values, weights, rows, reclaim_distance, capacities }
}

/// The flags of a level before any level is dropped (section 2). Beyond `reclaim_distance` a NUMA
/// domain neither wakes affine nor places new tasks.
fn flags_of(level: Level, features: &Features, reclaim_distance: u32) -> Flags {
    let placing = Flags::BALANCE_EXEC.with(Flags::BALANCE_FORK).with(Flags::WAKE_AFFINE);
    let mut common = Flags::BALANCE_NEWIDLE.with(placing).with(Flags::PREFER_SIBLING);
    if features.domains.always_package && level != Level::Pkg {
        common = common.without(Flags::PREFER_SIBLING);
    }
    match level {
        Level::Smt => common.with(Flags::SHARE_CPUCAPACITY).with(Flags::SHARE_LLC),
        Level::Cluster if features.domains.cluster_search => {
            common.with(Flags::CLUSTER).with(Flags::SHARE_LLC)
        }
        Level::Cluster | Level::Mc => common.with(Flags::SHARE_LLC),
        Level::Pkg | Level::Node => common,
        Level::Numa { distance } => {
            let near =
                common.without(Flags::PREFER_SIBLING).with(Flags::NUMA).with(Flags::SERIALIZE);
            if distance > reclaim_distance { near.without(placing) } else { near }
        }
    }
}

/// A domain that is kept in the chain of a CPU.
#[derive(Clone, Copy)]
struct Kept {
    /// Index into [`Levels::rows`].
    row: usize,
    /// Index into [`Levels::spans`].
    span: usize,
    flags: Flags,
    imb_numa_nr: u32,
}

/// The domains of a CPU with the given spans, without the levels that add nothing.
fn chain(levels: &Levels, spans: &[usize], features: &Features, nodes: u32) -> Vec<Kept> {
    let numbers = imb_numa_numbers(levels, spans, features, nodes);
    let flags = chain_flags(levels, spans, features);
    let mut kept: Vec<Kept> = Vec::new();
    for (row, ((&span, &imb_numa_nr), flags)) in spans.iter().zip(&numbers).zip(flags).enumerate() {
        match kept.last_mut() {
            Some(child) if adds_nothing(levels, child, span, flags) => {
                if flags.has(Flags::PREFER_SIBLING) {
                    child.flags = child.flags.with(Flags::PREFER_SIBLING);
                }
            }
            _ => kept.push(Kept { row, span, flags, imb_numa_nr }),
        }
    }
    if kept.first().is_some_and(|bottom| levels.weights[bottom.span] == 1) {
        kept.remove(0);
    }
    kept
}

/// The flags of the levels of one chain before any level is dropped. Tasks are not spread over CPUs
/// of different capacities: the child of a domain with such CPUs does not prefer siblings.
fn chain_flags(levels: &Levels, spans: &[usize], features: &Features) -> Vec<Flags> {
    let mut flags: Vec<Flags> = Vec::with_capacity(spans.len());
    for (row, &span) in spans.iter().enumerate() {
        let asymmetric = levels.capacities.flags(row, &levels.spans[span]);
        if asymmetric.has(Flags::ASYM_CPUCAPACITY) {
            if let Some(child) = flags.last_mut() {
                *child = child.without(Flags::PREFER_SIBLING);
            }
            if features.domains.asymmetry == Asymmetry::OneLevel {
                flags.iter_mut().for_each(|lower| *lower = lower.with(Flags::BALANCE_WAKE));
            }
        }
        let own = flags_of(levels.rows[row].0, features, levels.reclaim_distance);
        flags.push(own.with(asymmetric));
    }
    flags
}

/// Whether a parent can be dropped because it has only one CPU or the span of its child. In the
/// second case it has a single group, so only WAKE_AFFINE matters among its flags: all others
/// concern groups.
fn adds_nothing(levels: &Levels, child: &Kept, span: usize, flags: Flags) -> bool {
    let same = child.span == span;
    let loses_affine = flags.has(Flags::WAKE_AFFINE) && !child.flags.has(Flags::WAKE_AFFINE);
    levels.weights[span] == 1 || (same && !loses_affine)
}

/// `imb_numa_nr` of each level of a chain; the kernel computes it before levels are dropped.
fn imb_numa_numbers(levels: &Levels, spans: &[usize], features: &Features, nodes: u32) -> Vec<u32> {
    let weight = |row: usize| levels.weights[spans[row]];
    let level = |row: usize| levels.rows[row].0;
    let in_llc =
        |row: usize| flags_of(level(row), features, levels.reclaim_distance).has(Flags::SHARE_LLC);
    let mut walk = Walk::default();
    let mut numbers = Vec::with_capacity(spans.len());
    for row in 0..spans.len() {
        let first_numa =
            (row + 1..spans.len()).find(|&above| matches!(level(above), Level::Numa { .. }));
        numbers.push(features.mechanisms.imb_numa_nr(
            &mut walk,
            LevelSpan {
                span: weight(row),
                child_span: row.checked_sub(1).map_or(0, weight),
                first_numa_span: weight(first_numa.unwrap_or(row)),
                nodes,
                above_llc: row > 0 && !in_llc(row) && in_llc(row - 1),
            },
        ));
    }
    numbers
}

/// The chains of all CPUs: one for each distinct list of spans.
struct Chains {
    /// Index into `chains`, by CPU.
    of_cpu: Vec<usize>,
    chains: Vec<Vec<Kept>>,
}

impl Chains {
    fn new(levels: &Levels, cpus: usize, features: &Features, nodes: u32) -> Self {
        let mut lists = Interner::new();
        let of_cpu = (0..cpus).map(|cpu| lists.id(levels.of_cpu(cpu))).collect();
        let chains =
            lists.values.iter().map(|spans| chain(levels, spans, features, nodes)).collect();
        Self { of_cpu, chains }
    }

    fn of(&self, cpu: CpuId) -> &[Kept] {
        &self.chains[self.of_cpu[cpu]]
    }
}

/// What a group is made of: the child domain of `row`, or a single CPU at the bottom.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Cpu(CpuId),
    Child { row: usize, span: usize },
}

/// What the groups of a CPU's domain depend on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct CoverKey {
    row: usize,
    span: usize,
    /// At NUMA levels: the CPU's own child, and the first CPU after it that is not in the child, in
    /// wrapping order. Overlapping groups depend on where the walk through the CPUs begins.
    start: Option<(usize, CpuId)>,
}

/// The groups of a domain.
struct Cover {
    /// Rotated to the canonical order.
    groups: Vec<GroupId>,
    /// Index of the group that the walk began with.
    first: usize,
}

/// The groups made so far.
struct Groups<'a> {
    machine: &'a Machine,
    levels: &'a Levels,
    chains: &'a Chains,
    /// Overlapping groups begin with the first CPU of their domain, not with the CPU whose domain
    /// it is (up to 4.11).
    from_first: bool,
    groups: Interner<Group>,
    /// Group of each part.
    of_part: BTreeMap<Part, GroupId>,
    /// The group that begins with a CPU at a row, if it does not depend on the domain's owner (up
    /// to 4.11).
    of_first: BTreeMap<(usize, CpuId), GroupId>,
    /// The covers of domains, and the domain each belongs to.
    covers: Vec<Cover>,
    of_domain: BTreeMap<CoverKey, usize>,
}

impl<'a> Groups<'a> {
    fn new(machine: &'a Machine, levels: &'a Levels, chains: &'a Chains, from_first: bool) -> Self {
        Self {
            machine,
            levels,
            chains,
            from_first,
            groups: Interner::new(),
            of_part: BTreeMap::new(),
            of_first: BTreeMap::new(),
            covers: Vec::new(),
            of_domain: BTreeMap::new(),
        }
    }

    /// The groups of `cpu`'s domain, as an index into `covers`.
    fn of_domain(&mut self, cpu: CpuId, kept: &Kept) -> usize {
        let span = &self.levels.spans[kept.span];
        let from_own = self.overlap(kept) && !self.from_first;
        let child = self.levels.child(kept.row, cpu).filter(|_| from_own);
        let outside = |child: usize| {
            let own = &self.levels.spans[child];
            let next = |from: usize| first_outside(span, own, from);
            next(cpu).or_else(|| next(0)).unwrap_or(cpu)
        };
        let start = child.map(|child| (child, outside(child)));
        let key = CoverKey { row: kept.row, span: kept.span, start };
        if let Some(&cover) = self.of_domain.get(&key) {
            return cover;
        }
        let from = if from_own { cpu } else { span.first().unwrap_or(cpu) };
        let mut groups = self.cover(from, kept);
        let balancer = |id: GroupId| self.groups.values[id].balance_mask.first();
        let lowest = (0..groups.len()).min_by_key(|&index| balancer(groups[index])).unwrap_or(0);
        groups.rotate_left(lowest);
        let first = (groups.len() - lowest) % groups.len();
        self.covers.push(Cover { groups, first });
        self.of_domain.insert(key, self.covers.len() - 1);
        self.covers.len() - 1
    }

    /// Whether the groups of a domain may overlap.
    fn overlap(&self, kept: &Kept) -> bool {
        matches!(self.levels.rows[kept.row].0, Level::Numa { .. })
    }

    /// The index of `cpu`'s own group in a cover. Up to 4.11 several groups may hold the CPU. Then
    /// it is the group that the CPU balances for if all are busy, or else the first one
    /// (`build_overlap_sched_groups()`).
    fn own_group(&self, cpu: CpuId, kept: &Kept, cover: usize) -> usize {
        let cover = &self.covers[cover];
        if self.overlap(kept) && !self.from_first {
            return cover.first;
        }
        let group = |&id: &GroupId| &self.groups.values[id];
        let leads = |id: &GroupId| group(id).balance_mask.first() == Some(cpu);
        let led = cover.groups.iter().rposition(leads).filter(|_| self.overlap(kept));
        let first = || cover.groups.iter().position(|id| group(id).span.contains(cpu));
        led.or_else(first).unwrap_or(0)
    }

    /// Covers the span of `cpu`'s domain with groups, in the order of CPUs from `cpu` on.
    fn cover(&mut self, cpu: CpuId, kept: &Kept) -> Vec<GroupId> {
        let levels = self.levels;
        let span = &levels.spans[kept.span];
        let mut covered = CpuSet::new(self.machine.nr_cpus());
        let mut groups = Vec::new();
        for member in span.iter_wrap(cpu) {
            // A chain that ends below this level is not part of it (unequal depths).
            if covered.contains(member) || levels.span(kept.row, member).is_none() {
                continue;
            }
            let group = if self.from_first && self.overlap(kept) {
                self.group_from(member, kept)
            } else {
                self.group(self.part(member, kept))
            };
            covered.union_with(&self.groups.values[group].span);
            groups.push(group);
        }
        groups
    }

    /// Up to 4.11: the group that begins with `member`. It is the member's child domain. Its CPUs
    /// in the domain balance for it if their domain has this group first. `build_group_mask()`
    /// leaves out CPUs whose domain does not contain them; there are none.
    fn group_from(&mut self, member: CpuId, kept: &Kept) -> GroupId {
        if let Some(&id) = self.of_first.get(&(kept.row, member)) {
            return id;
        }
        let child = self.levels.child(kept.row, member);
        let mut group = match child {
            Some(span) => self.child_group(kept.row, span),
            None => self.single(member),
        };
        group.balance_mask.copy_from(&group.span);
        group.balance_mask.intersect_with(&self.levels.spans[kept.span]);
        let id = self.groups.id(group);
        self.of_first.insert((kept.row, member), id);
        id
    }

    /// The child domain of `member` at this level. If that reaches out of the domain (nodes more
    /// than two hops apart), the highest lower one that does not.
    fn part(&self, member: CpuId, kept: &Kept) -> Part {
        let levels = self.levels;
        let span = &levels.spans[kept.span];
        let mut row = kept.row;
        let reaches_out = |row: usize| {
            levels.child(row, member).is_some_and(|c| !levels.spans[c].is_subset(span))
        };
        if reaches_out(row) {
            while reaches_out(row) {
                row -= 1;
            }
            // Domains that will be dropped do not form groups.
            while row > 0 && levels.child(row, member) == levels.span(row, member) {
                row -= 1;
            }
        }
        match levels.child(row, member) {
            Some(span) => Part::Child { row, span },
            None => Part::Cpu(member),
        }
    }

    /// The group for a part.
    fn group(&mut self, part: Part) -> GroupId {
        if let Some(&id) = self.of_part.get(&part) {
            return id;
        }
        let group = match part {
            Part::Cpu(cpu) => self.single(cpu),
            Part::Child { row, span } => self.child_group(row, span),
        };
        let id = self.groups.id(group);
        self.of_part.insert(part, id);
        id
    }

    fn single(&self, cpu: CpuId) -> Group {
        let span = CpuSet::from_cpus(self.machine.nr_cpus(), [cpu]);
        Group { balance_mask: span.clone(), span, weight: 1, cores: 1, flags: Flags::default() }
    }

    fn child_group(&self, row: usize, span_id: usize) -> Group {
        let levels = self.levels;
        let span = levels.spans[span_id].clone();
        let mut balance_mask = CpuSet::new(self.machine.nr_cpus());
        for cpu in span.iter() {
            let in_level = levels.span(row, cpu).is_some();
            if in_level && levels.child(row, cpu) == Some(span_id) {
                balance_mask.insert(cpu);
            }
        }
        let former = balance_mask.first().map(|cpu| self.chains.of(cpu)).unwrap_or_default();
        let flags = former.iter().find(|kept| kept.span == span_id).map(|kept| kept.flags);
        let cores = span.iter().filter(|&cpu| self.leads_core(cpu, &span)).count() as u32;
        let weight = levels.weights[span_id];
        Group { span, balance_mask, weight, cores, flags: flags.unwrap_or_default() }
    }

    /// Whether `cpu` is the lowest of its core's CPUs within `span`.
    fn leads_core(&self, cpu: CpuId, span: &CpuSet) -> bool {
        let core = &self.machine.cores[self.machine.cpus[cpu].core as usize].cpus;
        let lowest = core.iter().find(|&sibling| span.contains(sibling));
        lowest == Some(cpu)
    }
}

/// The lowest CPU from `from` on that is in `span` but not in `own`.
fn first_outside(span: &CpuSet, own: &CpuSet, from: CpuId) -> Option<CpuId> {
    let mut next = span.next_from(from)?;
    while own.contains(next) {
        next = span.next_from(next + 1)?;
    }
    Some(next)
}

/// Balancing parameters of a level's domains (section 2).
struct Pace {
    imbalance_pct: u32,
    min_interval_ms: u32,
    max_interval_ms: u32,
    busy_factor: u32,
    cache_nice_tries: u32,
}

/// The pace of a level in a domain of `weight` CPUs, unless numbers are `set`.
fn pace(level: Level, weight: u32, pacing: Pacing, set: tunables::Pace) -> Pace {
    let cache_nice_tries = match level {
        Level::Smt => 0,
        Level::Numa { .. } => 2,
        Level::Cluster | Level::Mc | Level::Pkg | Level::Node => 1,
    };
    let (imbalance_pct, busy_factor) = match (pacing, level) {
        (Pacing::ByLevel, Level::Smt) => (110, 64),
        (Pacing::ByLevel, Level::Numa { .. }) => (125, 32),
        (Pacing::ByLevel, _) => (125, 64),
        (Pacing::ByWeightTimes32, Level::Smt) => (110, 32),
        (Pacing::ByWeightTimes32, Level::Mc) => (117, 32),
        (Pacing::ByWeightTimes32, _) => (125, 32),
        (Pacing::ByWeightTimes16, Level::Smt) => (110, 16),
        (Pacing::ByWeightTimes16, _) => (117, 16),
    };
    let (min_interval_ms, max_interval_ms) = match (pacing, level) {
        (Pacing::ByLevel, Level::Smt) => (1, 2),
        (Pacing::ByLevel, Level::Cluster | Level::Mc | Level::Pkg | Level::Node) => (1, 4),
        _ => (weight, 2 * weight),
    };
    Pace {
        imbalance_pct: set.imbalance_pct.unwrap_or(imbalance_pct),
        min_interval_ms: set.min_interval_ms.unwrap_or(min_interval_ms),
        max_interval_ms: set.max_interval_ms.unwrap_or(max_interval_ms),
        busy_factor: set.busy_factor.unwrap_or(busy_factor),
        cache_nice_tries: set.cache_nice_tries.unwrap_or(cache_nice_tries),
    }
}

/// The domain for `chain[index]`.
fn domain(
    levels: &Levels,
    chain: &[Kept],
    index: usize,
    groups: Vec<GroupId>,
    features: &Features,
) -> Domain {
    let kept = &chain[index];
    let level = levels.rows[kept.row].0;
    let child = index.checked_sub(1).map(|below| &chain[below]);
    let parent = chain.get(index + 1).map(|above| levels.rows[above.row].0);
    let weight = levels.weights[kept.span];
    let pace = pace(level, weight, features.domains.pace, features.tunables.pace(level));
    Domain {
        level,
        span: levels.spans[kept.span].clone(),
        weight,
        flags: kept.flags,
        imbalance_pct: pace.imbalance_pct,
        min_interval_ms: pace.min_interval_ms,
        max_interval_ms: pace.max_interval_ms,
        busy_factor: pace.busy_factor,
        cache_nice_tries: pace.cache_nice_tries,
        groups,
        imb_numa_nr: kept.imb_numa_nr,
        child_flags: child.map(|child| child.flags).unwrap_or_default(),
        child_weight: child.map_or(0, |child| levels.weights[child.span]),
        parent_is_numa: matches!(parent, Some(Level::Numa { .. })),
    }
}

/// All domains of a machine.
pub(super) fn topology(machine: &Machine, features: &Features) -> Topology {
    let cpus = machine.nr_cpus();
    let levels = levels(machine, features);
    // The kernel's num_online_nodes() counts nodes without CPUs too.
    let nodes = machine.nodes.len() as u32;
    let chains = Chains::new(&levels, cpus, features, nodes);
    let mut groups = Groups::new(machine, &levels, &chains, features.domains.overlap_from_first);
    let mut domains = Interner::new();
    let mut made: BTreeMap<(usize, usize, usize), usize> = BTreeMap::new();
    let (mut of_cpu, mut local_group) = (Vec::with_capacity(cpus), Vec::with_capacity(cpus));
    for cpu in 0..cpus {
        let chain = chains.of(cpu);
        let (mut ids, mut locals) = (Vec::with_capacity(chain.len()), Vec::new());
        for (index, kept) in chain.iter().enumerate() {
            let cover = groups.of_domain(cpu, kept);
            let id = made.entry((chains.of_cpu[cpu], index, cover)).or_insert_with(|| {
                let members = groups.covers[cover].groups.clone();
                domains.id(domain(&levels, chain, index, members, features))
            });
            ids.push(*id);
            locals.push(groups.own_group(cpu, kept, cover) as u32);
        }
        of_cpu.push(ids);
        local_group.push(locals);
    }
    let groups = groups.groups.values;
    with_shortcuts(machine, domains.values, groups, of_cpu, local_group)
}

/// Numbers sets of CPUs densely. Returns the number of each CPU's set, and the sets.
fn number_sets(cpus: usize, set_of: impl Fn(CpuId) -> CpuSet) -> (Vec<u32>, Vec<CpuSet>) {
    let mut sets = Interner::new();
    let of_cpu = (0..cpus).map(|cpu| sets.id(set_of(cpu)) as u32).collect();
    (of_cpu, sets.values)
}

/// Adds the values that the scheduler looks up per CPU.
fn with_shortcuts(
    machine: &Machine,
    domains: Vec<Domain>,
    groups: Vec<Group>,
    of_cpu: Vec<Vec<usize>>,
    local_group: Vec<Vec<u32>>,
) -> Topology {
    let cpus = machine.nr_cpus();
    let at = |cpu: CpuId, level: usize| &domains[of_cpu[cpu][level]];
    let alone = |cpu: CpuId| CpuSet::from_cpus(cpus, [cpu]);
    let lowest = |flag: Flags| -> Vec<Option<usize>> {
        let found = |ids: &Vec<usize>| ids.iter().position(|&id| domains[id].has(flag));
        of_cpu.iter().map(found).collect()
    };
    let llc_level: Vec<Option<usize>> = of_cpu
        .iter()
        .map(|ids| ids.iter().rposition(|&id| domains[id].has(Flags::SHARE_LLC)))
        .collect();
    let cluster_level = lowest(Flags::CLUSTER);
    let numa_level = lowest(Flags::NUMA);
    let span_at = |cpu: CpuId, level: Option<usize>| {
        level.map_or_else(|| alone(cpu), |level| at(cpu, level).span.clone())
    };
    let (llc_of, llc_span) = number_sets(cpus, |cpu| span_at(cpu, llc_level[cpu]));
    let share = |cpu: CpuId| span_at(cpu, cluster_level[cpu].or(llc_level[cpu]));
    let share_id = (0..cpus).map(|cpu| share(cpu).first().unwrap_or(cpu) as u32).collect();
    let (core_of, core_span) =
        number_sets(cpus, |cpu| machine.cores[machine.cpus[cpu].core as usize].cpus.clone());
    let smt_active = core_span.iter().any(|core| core.len() > 1);
    Topology {
        of_cpu,
        local_group,
        llc_of,
        llc_size: llc_span.iter().map(|span| span.len() as u32).collect(),
        llc_span,
        llc_level,
        numa_level,
        cluster_level,
        share_id,
        core_of,
        core_span,
        smt_active,
        domains,
        groups,
    }
}
