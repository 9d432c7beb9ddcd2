//! Tests of domains on made-up machines.

use proptest::prelude::*;
use roost_machine::{Core, Cpu, Figure, Figures, Llc, Node};

use super::*;
use crate::describe::{DomainRow, describe_domains, domain_rows};

/// A machine of equal parts. CPUs are numbered in the order of the hierarchy.
#[derive(Clone, Debug)]
struct Shape {
    nodes: usize,
    nodes_per_package: usize,
    llcs: usize,
    cores: usize,
    threads: usize,
    /// Cores per cluster; 0: no clusters.
    cluster: usize,
    distances: Vec<Vec<u32>>,
}

/// Distances of the four-node machines: two neighbours, and one node behind them.
fn square(near: u32, far: u32) -> Vec<Vec<u32>> {
    let row = |a: usize| (0..4).map(|b: usize| [10, near, near, far][a ^ b]).collect();
    (0..4).map(row).collect()
}

/// Each node in a package of its own, all others at distance 20.
fn shape(nodes: usize, llcs: usize, cores: usize) -> Shape {
    let row = |a: usize| (0..nodes).map(|b| if a == b { 10 } else { 20 }).collect();
    let distances = (0..nodes).map(row).collect();
    Shape { nodes, nodes_per_package: 1, llcs, cores, threads: 1, cluster: 0, distances }
}

impl Shape {
    fn node_cpus(&self) -> usize {
        self.llcs * self.cores * self.threads
    }

    fn sets(&self, size: usize) -> Vec<CpuSet> {
        let total = self.nodes * self.node_cpus();
        let part = |first: usize| CpuSet::from_cpus(total, first..first + size);
        (0..total).step_by(size).map(part).collect()
    }

    fn machine(&self) -> Machine {
        let llc_cpus = self.cores * self.threads;
        let cluster_cpus = self.cluster * self.threads;
        let cpu = |number: usize| Cpu {
            os_index: number as u32,
            core: (number / self.threads) as u32,
            cluster: number.checked_div(cluster_cpus).map(|cluster| cluster as u32),
            llc: (number / llc_cpus) as u32,
            node: (number / self.node_cpus()) as u32,
            package: (number / self.node_cpus() / self.nodes_per_package) as u32,
            capacity: Cpu::FULL_CAPACITY,
        };
        let node = |(index, cpus)| Node { os_index: index as u32, cpus, memory_bytes: None };
        Machine {
            name: "made up".into(),
            cpus: (0..self.nodes * self.node_cpus()).map(cpu).collect(),
            cores: self.sets(self.threads).into_iter().map(|cpus| Core { cpus }).collect(),
            llcs: (self.sets(llc_cpus).into_iter())
                .map(|cpus| Llc { cpus, size_bytes: None })
                .collect(),
            nodes: self.sets(self.node_cpus()).into_iter().enumerate().map(node).collect(),
            takes_turns: false,
            packages: self.nodes / self.nodes_per_package,
            distances: self.distances.clone(),
            reclaim_distance: 30,
            figures: figures(),
            guesses: Vec::new(),
        }
    }
}

/// Figures that have no effect on domains.
fn figures() -> Figures {
    let any = Figure { value: 1, source: "test" };
    Figures {
        line_same_core_ns: any,
        line_same_llc_ns: any,
        line_cross_llc_ns: any,
        line_cross_package_ns: any,
        ipi_local_ns: any,
        ipi_remote_ns: any,
        context_switch_ns: any,
        idle_exit_ns: any,
        tick_ns: any,
        interrupt_ns: any,
        wakeup_ns: any,
        fork_ns: any,
        task_start_ns: any,
        activation_ns: any,
        task_ready_ns: any,
        smt_speed_1024: any,
        l2_bytes: any,
        refill_llc_bytes_per_us: any,
        refill_local_bytes_per_us: any,
        refill_remote_bytes_per_us: any,
        ..roost_machine::resolve("core:1 pu:1").unwrap().figures
    }
}

fn features(name: &str) -> Features {
    Features::parse(name).unwrap()
}

/// `MC 0-3, NUMA 0-15` for CPU 0.
fn domains_of_cpu_0(shape: &Shape, version: &str) -> String {
    let rows = domain_rows(&shape.machine(), &features(version), 0);
    rows.iter().map(|row| format!("{} {}", row.level, row.span)).collect::<Vec<_>>().join(", ")
}

fn topology(shape: &Shape) -> Topology {
    Topology::new(&shape.machine(), &features("fair@7.2"))
}

/// Groups of a CPU's domain, its own first, as `span (balance mask)`.
fn groups(topology: &Topology, cpu: CpuId, level: usize) -> Vec<String> {
    let domain = topology.domain(topology.domains_of(cpu)[level]);
    let mut ids = domain.groups.clone();
    ids.rotate_left(topology.local_group_index(cpu, level));
    let text = |id: GroupId| {
        let group = topology.group(id);
        format!("{} ({})", group.span, group.balance_mask)
    };
    ids.into_iter().map(text).collect()
}

/// Output of a kernel booted in QEMU for these six machines (docs of the `vm` part).
#[test]
fn domains_of_the_machines_booted_in_qemu() {
    let two_dies = Shape { nodes_per_package: 2, distances: square(11, 12), ..shape(4, 2, 2) };
    let one_socket = Shape {
        nodes_per_package: 2,
        distances: vec![vec![10, 11], vec![11, 10]],
        ..shape(2, 4, 2)
    };
    let one_llc = Shape { nodes_per_package: 4, distances: square(11, 12), ..shape(4, 1, 4) };
    let smt = Shape { threads: 2, ..shape(2, 2, 2) };
    let clusters = Shape { threads: 2, cluster: 2, ..shape(2, 1, 4) };
    let expected = [
        (shape(2, 2, 4), "MC 0-3, PKG 0-7, NUMA 0-15"),
        (one_socket, "MC 0-1, NODE 0-7, NUMA 0-15"),
        (one_llc, "MC 0-3, NUMA 0-11, NUMA 0-15"),
        (two_dies, "MC 0-1, NODE 0-3, NUMA 0-11, NUMA 0-15"),
        (smt, "SMT 0-1, MC 0-3, PKG 0-7, NUMA 0-15"),
        (clusters, "SMT 0-1, CLS 0-3, MC 0-7, NUMA 0-15"),
    ];
    for (shape, domains) in expected {
        assert_eq!(domains_of_cpu_0(&shape, "fair@7.2"), domains);
    }
}

#[test]
fn levels_that_add_nothing_are_dropped() {
    let on = |shape: Shape| domains_of_cpu_0(&shape, "fair@5.19");
    assert_eq!(on(shape(1, 1, 8)), "MC 0-7", "one node, one LLC");
    assert_eq!(on(shape(1, 2, 8)), "MC 0-7, DIE 0-15", "PKG's older name");
    assert_eq!(on(shape(2, 1, 8)), "MC 0-7, NUMA 0-15");
    assert_eq!(on(shape(1, 1, 1)), "", "a single CPU");
    assert_eq!(on(shape(2, 4, 1)), "DIE 0-3, NUMA 0-7", "LLCs of one CPU");
    assert_eq!(on(Shape { threads: 2, ..shape(1, 4, 1) }), "SMT 0-1, DIE 0-7", "LLC per core");
    let whole = Shape { threads: 2, cluster: 4, ..shape(2, 1, 4) };
    assert_eq!(on(whole), "SMT 0-1, CLS 0-7, NUMA 0-15", "the cluster is the LLC");
}

/// Section 2: the fields of each level.
#[test]
fn fields_of_the_levels() {
    let mut far = Shape { threads: 2, ..shape(2, 2, 2) };
    let fields = |shape: &Shape| -> Vec<_> {
        let topology = topology(shape);
        let ids = topology.domains_of(0).iter();
        let domains = ids.map(|&id| topology.domain(id));
        domains
            .map(|d| (d.imbalance_pct, d.min_interval_ms, d.max_interval_ms, d.cache_nice_tries))
            .collect()
    };
    assert_eq!(fields(&far), [(110, 2, 4, 0), (117, 4, 8, 1), (117, 8, 16, 1), (117, 16, 32, 2)]);
    let top_flags = |shape: &Shape| {
        let topology = topology(shape);
        topology.domains_of(0).last().map(|&id| topology.domain(id).flags.names())
    };
    let near =
        ["BALANCE_NEWIDLE", "BALANCE_EXEC", "BALANCE_FORK", "WAKE_AFFINE", "NUMA", "SERIALIZE"];
    assert_eq!(top_flags(&far).as_deref(), Some(near.as_slice()));
    far.distances = vec![vec![10, 31], vec![31, 10]];
    let beyond = ["BALANCE_NEWIDLE", "NUMA", "SERIALIZE"];
    assert_eq!(top_flags(&far).as_deref(), Some(beyond.as_slice()), "beyond the reclaim distance");
}

/// Section 2, 5.2: as later, except for percentages and busy_factor.
#[test]
fn fields_of_the_levels_in_5_2() {
    let shape = Shape { threads: 2, ..shape(2, 2, 2) };
    let rows = domain_rows(&shape.machine(), &features("fair@5.2"), 0);
    let fields: Vec<_> = rows
        .iter()
        .map(|row| (row.level, row.imbalance_pct, row.min_interval_ms, row.max_interval_ms))
        .collect();
    assert_eq!(
        fields,
        [("SMT", 110, 2, 4), ("MC", 117, 4, 8), ("DIE", 125, 8, 16), ("NUMA", 125, 16, 32)]
    );
    assert!(rows.iter().all(|row| row.busy_factor == 32));
    assert_eq!(rows.iter().map(|row| row.cache_nice_tries).collect::<Vec<_>>(), [0, 1, 1, 2]);
    let spreads = |row: &DomainRow| row.flags.contains(&"PREFER_SIBLING");
    assert_eq!(rows.iter().map(spreads).collect::<Vec<_>>(), [true, true, true, false]);
    assert_eq!(rows[3].allowed_numa_imbalance, Some(0));
}

/// Section 2, 3.9: values are hard-coded. Only the level of a node's CPUs spreads over siblings.
#[test]
fn fields_of_the_levels_in_3_9() {
    let shape = Shape { threads: 2, ..shape(2, 2, 2) };
    let rows = domain_rows(&shape.machine(), &features("fair@3.9"), 0);
    let fields: Vec<_> = rows
        .iter()
        .map(|row| {
            let interval = (row.min_interval_ms, row.max_interval_ms);
            (row.level, row.imbalance_pct, interval, row.busy_factor, row.cache_nice_tries)
        })
        .collect();
    assert_eq!(
        fields,
        [
            ("SMT", 110, (1, 2), 64, 0),
            ("MC", 125, (1, 4), 64, 1),
            ("CPU", 125, (1, 4), 64, 1),
            ("NUMA", 125, (16, 32), 32, 2)
        ]
    );
    let spreads = |row: &DomainRow| row.flags.contains(&"PREFER_SIBLING");
    assert_eq!(rows.iter().map(spreads).collect::<Vec<_>>(), [false, false, true, false]);
}

/// In 3.9 a node's CPUs are a level, also on machines with several nodes per package. No version
/// before 5.16 has clusters. Before 5.4 a node at distance 32 is far on every processor.
#[test]
fn levels_that_older_versions_have_and_have_not() {
    let levels = |shape: &Shape, version: &str| -> Vec<&str> {
        let machine = Machine { reclaim_distance: 32, ..shape.machine() };
        domain_rows(&machine, &features(version), 0).iter().map(|row| row.level).collect()
    };
    let in_package = Shape { nodes_per_package: 2, ..shape(2, 2, 2) };
    assert_eq!(levels(&in_package, "fair@5.2"), ["MC", "NODE", "NUMA"]);
    assert_eq!(levels(&in_package, "fair@3.9"), ["MC", "CPU", "NUMA"]);
    let clusters = Shape { cluster: 2, ..shape(2, 1, 4) };
    assert_eq!(levels(&clusters, "fair@5.2"), ["MC", "NUMA"]);
    let far = Shape { distances: vec![vec![10, 32], vec![32, 10]], ..shape(2, 1, 2) };
    let places = |version: &str| {
        let machine = Machine { reclaim_distance: 32, ..far.machine() };
        domain_rows(&machine, &features(version), 0)[1].flags.contains(&"BALANCE_FORK")
    };
    assert!(places("fair@5.16") && !places("fair@5.2") && !places("fair@3.9"));
}

#[test]
fn groups_are_the_children() {
    let topology = topology(&Shape { threads: 2, ..shape(2, 2, 2) });
    assert_eq!(groups(&topology, 0, 0), ["0 (0)", "1 (1)"]);
    assert_eq!(groups(&topology, 6, 1), ["6-7 (6-7)", "4-5 (4-5)"]);
    assert_eq!(groups(&topology, 6, 2), ["4-7 (4-7)", "0-3 (0-3)"]);
    assert_eq!(groups(&topology, 6, 3), ["0-7 (0-7)", "8-15 (8-15)"]);
    let group = |cpu: CpuId, level: usize| {
        let domain = topology.domain(topology.domains_of(cpu)[level]);
        topology.group(domain.groups[0]).clone()
    };
    assert_eq!(group(0, 0).flags, Flags::default(), "a CPU is no domain");
    assert!(group(0, 1).is_smt() && !group(0, 2).is_smt());
    assert_eq!((group(0, 2).weight, group(0, 2).cores), (4, 2));
    assert!(group(0, 3).flags.has(Flags::PREFER_SIBLING), "flags of PKG");
    let pkg = topology.domain(topology.domains_of(0)[2]);
    assert!(pkg.parent_is_numa && pkg.child_flags.has(Flags::SHARE_LLC) && pkg.child_weight == 4);
}

/// Distances 10 11 11 12: the outer domain's groups overlap.
#[test]
fn overlapping_groups() {
    let shape = Shape { nodes_per_package: 4, distances: square(11, 12), ..shape(4, 1, 4) };
    let topology = topology(&shape);
    let inner = ["0-3 (0-3)", "4-7 (4-7)", "8-11 (8-11)"];
    assert_eq!(groups(&topology, 0, 1), inner);
    assert_eq!(groups(&topology, 0, 2), ["0-11 (0-3)", "4-15 (12-15)"]);
    assert_eq!(groups(&topology, 13, 2), ["4-15 (12-15)", "0-11 (0-3)"]);
    assert_eq!(groups(&topology, 4, 2), ["0-7,12-15 (4-7)", "0-3,8-15 (8-11)"]);
    assert_eq!(topology.domains_of(0)[2], topology.domains_of(12)[2], "shared");
    assert_ne!(topology.domains_of(0)[2], topology.domains_of(4)[2]);
    assert_eq!(topology.domains.len(), 4 + 4 + 2);
    assert_eq!(topology.numa_level[0], Some(1));
}

/// Up to 4.11 `build_overlap_sched_groups()` begins with the first CPU of the domain, and
/// `build_group_mask()` leaves no CPU out. The nodes between two others are in both groups.
#[test]
fn overlapping_groups_up_to_4_11() {
    let shape = Shape { nodes_per_package: 4, distances: square(11, 12), ..shape(4, 1, 4) };
    let topology = Topology::new(&shape.machine(), &features("fair@3.9"));
    assert_eq!(groups(&topology, 0, 1), ["0-3 (0-3)", "4-7 (4-7)", "8-11 (8-11)"]);
    let [first, second] = ["0-11 (0-11)", "4-15 (4-15)"];
    for cpu in [0, 3, 5, 8, 11] {
        assert_eq!(groups(&topology, cpu, 2), [first, second], "{cpu}");
    }
    assert_eq!(groups(&topology, 13, 2), [second, first]);
    assert_eq!(groups(&topology, 4, 2), [second, first], "CPU 4 is the first of this group");
    assert_eq!(topology.domains_of(0)[2], topology.domains_of(4)[2], "shared by all");
}

/// With nodes more than two hops apart, a neighbour's child may reach out of the domain. Then a
/// lower domain forms the group.
#[test]
fn groups_stay_within_their_domain() {
    let distances = vec![
        vec![10, 12, 20, 22],
        vec![12, 10, 22, 24],
        vec![20, 22, 10, 12],
        vec![22, 24, 12, 10],
    ];
    let topology = topology(&Shape { distances, ..shape(4, 1, 2) });
    let level = 2;
    let span = &topology.domain(topology.domains_of(0)[level]).span;
    assert_eq!(span.to_string(), "0-5");
    assert_eq!(groups(&topology, 0, level), ["0-3 (0-3)", "4-5 (4-5)"]);
}

#[test]
fn shortcuts() {
    let clusters = topology(&Shape { threads: 2, cluster: 2, ..shape(2, 1, 4) });
    assert_eq!((clusters.llc_size(0), clusters.llc_level[0]), (8, Some(2)));
    assert!(clusters.share_llc(0, 7) && !clusters.share_llc(7, 8));
    assert!(clusters.share_cluster(0, 3) && !clusters.share_cluster(3, 4));
    assert!(clusters.smt_active && clusters.cluster_level[0] == Some(1));
    assert_eq!(clusters.siblings(5).to_string(), "4-5");
    let alone = topology(&shape(2, 4, 1));
    assert_eq!((alone.llc_size(0), alone.llc_level[0], alone.llc_span.len()), (1, None, 8));
    assert!(!alone.share_llc(0, 1) && alone.share_llc(3, 3) && !alone.smt_active);
    let before =
        Topology::new(&Shape { cluster: 2, ..shape(2, 1, 4) }.machine(), &features("fair@5.19"));
    assert!(before.share_cluster(0, 3) && before.cluster_level[0].is_none(), "no CLUSTER flag yet");
}

/// A node without CPUs has no domain and its distance does not count, but it is online.
#[test]
fn nodes_without_cpus_make_no_domain() {
    let mut machine = shape(2, 1, 12).machine();
    let cpus = CpuSet::new(machine.nr_cpus());
    machine.nodes.push(Node { os_index: 2, cpus, memory_bytes: None });
    machine.distances = vec![vec![10, 20, 17], vec![20, 10, 28], vec![17, 28, 10]];
    let rows = domain_rows(&machine, &features("fair@7.2"), 0);
    let levels: Vec<_> = rows.iter().map(|row| (row.level, row.distance)).collect();
    assert_eq!(levels, [("MC", None), ("NUMA", Some(20))]);
    // Patch A divides by the number of online nodes: 6 / 3, not 6 / 2.
    assert_eq!(
        domain_rows(&machine, &features("fair@7.2+numa-imbalance"), 0)[1].allowed_numa_imbalance,
        Some(2)
    );
}

/// Span and allowed imbalance of the NUMA domains of CPU 0.
fn allowed(shape: &Shape, version: &str) -> (Vec<u32>, Vec<u32>) {
    let rows = domain_rows(&shape.machine(), &features(version), 0);
    rows.iter().filter_map(|row| Some((row.weight, row.allowed_numa_imbalance?))).unzip()
}

/// The table of section 14.1: each machine with the NUMA spans and the limits of 5.16, of Patch A,
/// of 5.18 and of 6.0.
#[test]
fn allowed_numa_imbalance_of_all_machines_of_the_table() {
    type Row = (Shape, &'static [u32], [&'static [u32]; 4]);
    let sockets = |a: usize, b: usize| match (a == b, a / 4 == b / 4) {
        (true, _) => 10,
        (false, true) => 12,
        (false, false) => 32,
    };
    let two_sockets = (0..8).map(|a| (0..8).map(|b| sockets(a, b)).collect()).collect();
    let two_sockets = Shape { nodes_per_package: 4, distances: two_sockets, ..shape(8, 2, 16) };
    let ring = Shape { distances: square(20, 30), ..shape(4, 1, 16) };
    let rows: [Row; 10] = [
        (shape(2, 1, 48), &[96], [&[24], &[12], &[12], &[6]]),
        (shape(2, 1, 112), &[224], [&[56], &[28], &[28], &[14]]),
        (shape(2, 8, 16), &[256], [&[64], &[1], &[8], &[8]]),
        (shape(2, 16, 8), &[256], [&[64], &[1], &[16], &[16]]),
        (two_sockets, &[128, 256], [&[32, 64], &[1, 1], &[2, 4], &[2, 4]]),
        (shape(4, 1, 16), &[64], [&[16], &[2], &[4], &[2]]),
        (ring, &[48, 64], [&[12, 16], &[2, 2], &[4, 4], &[2, 2]]),
        (shape(2, 4, 8), &[64], [&[16], &[1], &[4], &[4]]),
        (shape(2, 1, 4), &[8], [&[2], &[1], &[1], &[1]]),
        (shape(8, 1, 8), &[64], [&[16], &[1], &[2], &[1]]),
    ];
    let versions = ["fair@5.16", "fair@5.16+numa-imbalance", "fair@5.19", "fair@6.15"];
    for (shape, spans, limits) in rows {
        for (version, limit) in versions.into_iter().zip(limits) {
            let expected = (spans.to_vec(), limit.to_vec());
            assert_eq!(allowed(&shape, version), expected, "{version}, {} nodes", shape.nodes);
        }
        assert!(allowed(&shape, "fair@5.19+no-numa-imbalance").1.iter().all(|&limit| limit == 0));
    }
}

/// Flags for capacity, and PREFER_SIBLING, of the MC and PKG domains of a CPU of a node with two
/// LLCs of four CPUs of these capacities.
fn capacity_flags(capacities: [u32; 8], version: &str, cpu: usize) -> Vec<Vec<&'static str>> {
    let mut machine = shape(1, 2, 4).machine();
    for (cpu, capacity) in machine.cpus.iter_mut().zip(capacities) {
        cpu.capacity = capacity;
    }
    let about = |flag: &&str| {
        flag.starts_with("ASYM") || matches!(*flag, "BALANCE_WAKE" | "PREFER_SIBLING")
    };
    let rows = domain_rows(&machine, &features(version), cpu);
    rows.into_iter().map(|row| row.flags.into_iter().filter(about).collect()).collect()
}

/// As in the kernel's commit 05484e098448 (4.20) and in the commit of 5.15 ("Rework CPU capacity
/// asymmetry detection"), whose message has the picture: an LLC of small and big CPUs beside an LLC
/// of big CPUs.
#[test]
fn domains_of_cpus_of_different_capacities_are_flagged() {
    let (asym, full) = ("ASYM_CPUCAPACITY", "ASYM_CPUCAPACITY_FULL");
    let mixed = [446, 446, 1024, 1024, 1024, 1024, 1024, 1024];
    for version in ["fair@5.16", "fair@6.15", "fair@7.2"] {
        let of = |cpu| capacity_flags(mixed, version, cpu);
        assert_eq!(of(0), [vec![asym, full], vec!["PREFER_SIBLING", asym, full]], "{version}");
        assert_eq!(of(4), [vec![], vec!["PREFER_SIBLING", asym, full]], "{version}");
    }
    // Every CPU has a big CPU in its LLC, and only that level is flagged.
    let of = |cpu| capacity_flags(mixed, "fair@5.2", cpu);
    assert_eq!(of(0), [vec!["PREFER_SIBLING", asym], vec!["PREFER_SIBLING"]]);
    assert_eq!(of(0), of(4));
    let three = [446, 446, 871, 871, 1024, 1024, 1024, 1024];
    let of = |version| capacity_flags(three, version, 0);
    assert_eq!(of("fair@7.2"), [vec![asym], vec!["PREFER_SIBLING", asym, full]]);
    assert_eq!(of("fair@5.2"), [vec!["BALANCE_WAKE"], vec!["PREFER_SIBLING", asym]]);
    assert_eq!(of("fair@3.9"), [vec![], vec!["PREFER_SIBLING"]]);
    let equal = capacity_flags([871; 8], "fair@7.2", 0);
    assert_eq!(equal, [vec!["PREFER_SIBLING"], vec!["PREFER_SIBLING"]]);
}

#[test]
fn a_table_for_people() {
    let machine = shape(2, 2, 2).machine();
    let text = describe_domains(&machine, &features("fair@5.19"), 1);
    let mc = "MC: CPUs 0-1 (2)\n  groups            1 | 0\n";
    assert!(text.starts_with(mc), "{text}");
    assert!(text.contains("DIE: CPUs 0-3 (4)\n  groups            0-1 | 2-3\n"));
    assert!(text.contains("NUMA 20: CPUs 0-7 (8)"));
    assert!(text.ends_with("  NUMA imbalance    limit 2 tasks\n"), "{text}");
    assert!(describe_domains(&machine, &features("fair@5.19"), 8).contains("CPUs are 0 to 7"));
}

/// Any symmetric distances between `nodes` nodes; local distances are 10.
fn distances(nodes: usize) -> impl Strategy<Value = Vec<Vec<u32>>> {
    prop::collection::vec(11_u32..45, nodes * nodes).prop_map(move |values| {
        let pair = |a: usize, b: usize| values[a.min(b) * nodes + a.max(b)];
        let at = |a: usize, b: usize| if a == b { 10 } else { pair(a, b) };
        (0..nodes).map(|a| (0..nodes).map(|b| at(a, b)).collect()).collect()
    })
}

fn any_shape() -> impl Strategy<Value = Shape> {
    (1_usize..6, 1_usize..3, 1_usize..4, 1_usize..3, 0_usize..3).prop_flat_map(
        |(nodes, llcs, cores, threads, cluster)| {
            distances(nodes).prop_map(move |distances| {
                let cluster = if cluster > 0 && cores % cluster == 0 { cluster } else { 0 };
                Shape { threads, cluster, distances, ..shape(nodes, llcs, cores) }
            })
        },
    )
}

proptest! {
    #[test]
    fn domains_nest_and_groups_cover_them(shape in any_shape()) {
        let topology = topology(&shape);
        let cpus = shape.nodes * shape.node_cpus();
        for cpu in 0..cpus {
            let mut below = CpuSet::from_cpus(cpus, [cpu]);
            for (level, &id) in topology.domains_of(cpu).iter().enumerate() {
                let domain = topology.domain(id);
                prop_assert!(below.is_subset(&domain.span) && below != domain.span);
                let mut covered = CpuSet::new(cpus);
                for &group in &domain.groups {
                    let group = topology.group(group);
                    covered.union_with(&group.span);
                    prop_assert!(!group.balance_mask.is_empty());
                    prop_assert!(group.balance_mask.is_subset(&group.span));
                }
                prop_assert_eq!(&covered, &domain.span, "groups cover the domain");
                let own = domain.groups[topology.local_group_index(cpu, level)];
                prop_assert_eq!(&topology.group(own).span, &below, "the CPU's own child");
                below = domain.span.clone();
            }
            prop_assert_eq!(below, CpuSet::full(cpus), "the top is the machine");
        }
    }
}
