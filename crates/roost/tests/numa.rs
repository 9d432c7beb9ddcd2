//! The bars of memory and NUMA balancing: settling groups, autonuma-benchmark, the speed of it.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use roost_engine::{Control, CpuId, LeftAs, Outcome, Time, TraceTask, Tracer};
use roost_fair::{Fair, Features};

fn run(
    machine: &str,
    workload: &str,
    scheduler: &str,
    seconds: Option<u64>,
    seed: u64,
    tracer: Option<Box<dyn Tracer>>,
) -> Outcome {
    let machine = Arc::new(roost_machine::resolve(machine).expect("a machine"));
    let duration = seconds.map(|seconds| seconds * 1_000_000_000);
    let workload = roost_workload::resolve(workload, duration).expect("a workload");
    let fair = Fair::new(&machine, Features::parse(scheduler).expect("a scheduler"));
    let control = Control { seed, tracer, stop: &AtomicBool::new(false), progress: &|_| {} };
    roost_engine::run(&machine, &workload, fair, control).expect("it ends")
}

fn counter(outcome: &Outcome, name: &str) -> f64 {
    let found = outcome.counters.iter().find(|(counter, _)| counter == name);
    found.unwrap_or_else(|| panic!("no counter {name}")).1
}

// --- Settling: published/001-settle.csv ----------------------------------------------------------

/// How long the workload runs where nothing else is said: ten periods of cling's timer.
const SECONDS: u64 = 60;

const GROUPS: [&str; 4] = ["/ng_A", "/ng_B", "/ng_C", "/ng_D"];

/// Changes of a value: when, and to what.
type Changes = Arc<Mutex<BTreeMap<(&'static str, usize), Vec<(u64, u64)>>>>;

/// Keeps the values that a scheduler tells.
struct Values(Changes);

impl Tracer for Values {
    fn switch(
        &mut self,
        _: Time,
        _: CpuId,
        _: Option<(TraceTask<'_>, LeftAs)>,
        _: Option<TraceTask<'_>>,
    ) {
    }
    fn wakeup(&mut self, _: Time, _: CpuId, _: TraceTask<'_>, _: CpuId) {}
    fn value(&mut self, now: Time, name: &'static str, index: usize, value: u64) {
        let mut values = self.0.lock().expect("one thread");
        values.entry((name, index)).or_default().push((now.ns(), value));
    }
}

/// Where a group is: shares of CPU time and memory on node 0.
#[derive(Clone, Copy, Debug)]
struct Place {
    cpu: f64,
    memory: f64,
}

impl Place {
    /// The node that has at least 95% of both.
    fn node(self) -> Option<usize> {
        match self {
            Self { cpu, memory } if cpu >= 0.95 && memory >= 0.95 => Some(0),
            Self { cpu, memory } if cpu <= 0.05 && memory <= 0.05 => Some(1),
            _ => None,
        }
    }
}

/// Where the groups are in the last 10 of so many seconds, and what cling told.
fn settled(scheduler: &str, seconds: u64, seed: u64) -> ([Place; 4], Outcome, Changes) {
    let changes = Changes::default();
    let run = |seconds, tracer| run("xeon-2s-40", "settle", scheduler, Some(seconds), seed, tracer);
    let before = run(seconds - 10, None);
    let after = run(seconds, Some(Box::new(Values(changes.clone()))));
    let share = |of: &dyn Fn(usize) -> f64| of(0) / (of(0) + of(1));
    let places = GROUPS.map(|group| {
        let exec =
            |outcome, node| counter(outcome, &format!("numa_stat{group}.exectime_node{node}"));
        let pages = |node| counter(&after, &format!("memory_numa_stat{group}.node{node}_pages"));
        Place {
            cpu: share(&|node| exec(&after, node) - exec(&before, node)),
            memory: share(&pages),
        }
    });
    (places, after, changes)
}

/// Whether counters and trace show that on the way tasks failed to get to both nodes, which became
/// busy, so that nobody clung to them until that was over.
fn is_told(outcome: &Outcome, changes: &BTreeMap<(&'static str, usize), Vec<(u64, u64)>>) -> bool {
    (0..2).all(|node| {
        let of = |what: &str| counter(outcome, &format!("cling_{what}_node{node}"));
        let values = |what| changes.get(&(what, node)).map_or(&[][..], Vec::as_slice);
        let mut pauses = values("cling paused on node").iter();
        let degree = 20_u32;
        of("failures") > 0.0
            && of("most_ratio") > f64::from(degree)
            && of("pauses") > 0.0
            && values("cling ratio of node").iter().any(|&(_, ratio)| ratio > u64::from(degree))
            && pauses.any(|&(_, paused)| paused == 1)
            && pauses.any(|&(_, paused)| paused == 0)
    })
}

/// Published, third stage: two groups a node, each with all of its CPU time and memory there.
#[test]
fn with_cling_two_groups_settle_on_each_node() {
    let mut paused = 0;
    for seed in 1..=4 {
        let (places, outcome, changes) = settled("fair@5.2+cling", SECONDS, seed);
        let nodes = places.map(Place::node);
        assert!(nodes.iter().all(Option::is_some), "seed {seed}: {places:?}");
        assert_eq!(nodes.iter().filter(|&&node| node == Some(0)).count(), 2, "{seed}: {places:?}");
        paused += u32::from(is_told(&outcome, &changes.lock().expect("one thread")));
    }
    // Where they start decides whether two groups want the same node.
    assert!(paused >= 3, "in {paused} of 4");
    let never = "fair@5.2+cling+cling-degree=100";
    let never = run("xeon-2s-40", "settle", never, Some(20), 2, None);
    assert_eq!([0, 1].map(|node| counter(&never, &format!("cling_pauses_node{node}"))), [0.0; 2]);
}

/// A miss, named: published, the groups stay split without cling, and crowd one node without its
/// pause. Here 5.2's own placement and swaps bring two groups to each node in the same time, as tasks
/// that never wait leave wakeups and balancing nothing to disturb.
#[test]
#[ignore = "known miss: groups settle without cling too (docs/results.md)"]
fn without_cling_groups_stay_split() {
    let (places, ..) = settled("fair@5.2", SECONDS, 1);
    assert!(places.iter().any(|place| place.node().is_none()), "{places:?}");
}

#[test]
#[ignore = "known miss: groups settle without the pause too (docs/results.md)"]
fn without_the_pause_groups_crowd_one_node_or_stay_split() {
    let nodes = settled("fair@5.2+cling+cling-degree=100", SECONDS, 1).0.map(Place::node);
    let on_first = nodes.iter().filter(|&&node| node == Some(0)).count();
    assert!(nodes.iter().any(Option::is_none) || on_first != 2, "{nodes:?}");
}

// --- autonuma-benchmark: published/004-autonuma.csv ----------------------------------------------

fn seconds(machine: &str, workload: &str, scheduler: &str) -> f64 {
    run(machine, workload, scheduler, None, 1, None).metrics[0].value.expect("it ends")
}

/// numa02 on 3.9, which calibrates both machines' bandwidth (one figure a machine).
#[test]
fn numa02_takes_as_long_as_published() {
    for (machine, workload, published) in
        [("x3750-m4", "numa02:cpus=64", 19.25), ("xeon-2s-16", "numa02:cpus=16", 37.09)]
    {
        let ours = seconds(machine, workload, "fair@3.9");
        assert!((ours / published - 1.0f64).abs() < 0.1, "{machine}: {ours:.2} for {published}");
    }
}

/// Published: numa01 is faster by 35% on 4 nodes and 12% on 2, the SMT form of numa02 slower by 19%
/// and 23%. Differences within two standard deviations are not compared.
#[test]
#[ignore = "known miss: directions of numa01 (4 nodes) and numa02_SMT (docs/results.md)"]
fn consolidate_has_the_published_directions() {
    let rows = [
        ("x3750-m4", "numa01:cpus=64", 444.55 / 681.23),
        ("x3750-m4", "numa02_SMT:cpus=64", 25.02 / 21.06),
        ("xeon-2s-16", "numa01:cpus=16", 106.44 / 120.96),
        ("xeon-2s-16", "numa02_SMT:cpus=16", 58.08 / 47.32),
    ];
    for (machine, workload, published) in rows {
        let [base, patched] = ["fair@3.9", "fair@3.9+consolidate"]
            .map(|scheduler| seconds(machine, workload, scheduler));
        let ours = patched / base;
        println!("{machine} {workload}: {base:.2} -> {patched:.2}, {ours:.3} for {published:.3}");
        assert_eq!(ours < 1.0, published < 1.0, "{machine} {workload}: {ours:.3}, {published:.3}");
    }
}

/// Consolidation acts: idle CPUs pull tasks to where the rest of their process is.
#[test]
fn consolidate_pulls_tasks_of_a_process_together() {
    // Unlike numa01's, its processes begin split unevenly.
    let outcome = run("xeon-2s-16", "perf-bench-numa", "fair@3.9+consolidate", Some(10), 1, None);
    assert!(counter(&outcome, "consolidate_pulled") > 0.0);
    assert!(counter(&outcome, "consolidate_asked") >= counter(&outcome, "consolidate_pulled"));
}
