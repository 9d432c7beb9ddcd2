//! Groups and processes settle on nodes (cling, consolidate).

use std::cell::Cell;
use std::rc::Rc;

use roost_workload::Op;

use crate::kit::{MS, SECOND, SEEDS, SMALL, Scene, Seen, Task};

/// Two nodes with two LLCs each, of two cores with two threads each.
const WITH_SIBLINGS: &str = "2n2l2c2t";

/// Busy loops in cgroups, one of each cgroup in turn.
fn add_groups(scene: &mut Scene, groups: u32, loops_each: u32) {
    let made: Vec<u32> = (0..groups).map(|_| scene.group(100)).collect();
    for number in 0..groups * loops_each {
        let group = made[(number % groups) as usize];
        scene.add(&format!("group{group}"), Task::spins().group(group));
    }
}

fn add_naps(scene: &mut Scene, count: u32, run_ns: u64, sleep_ns: u64) {
    for _ in 0..count {
        let task = scene.naps(run_ns, sleep_ns);
        scene.add("naps", task);
    }
}

/// The parts of the groups' time on their main nodes.
fn gathered(seen: &Seen, groups: u32) -> Vec<f64> {
    (0..groups).map(|group| seen.gathered(&format!("group{group}"))).collect()
}

/// How many groups are mostly on the first node.
fn on_first(seen: &Seen, groups: u32) -> usize {
    let nodes = (0..groups).map(|group| seen.by_node(&format!("group{group}")));
    nodes.filter(|on| on[0] > on[1]).count()
}

/// Four groups of four busy loops, and short-running tasks, on 2 x 8 CPUs.
fn four_groups(seed: u64, settings: &str) -> Seen {
    let mut scene = Scene::new(SMALL, seed).with(settings);
    add_groups(&mut scene, 4, 4);
    add_naps(&mut scene, 24, MS / 5, 10 * MS);
    scene.play(5 * SECOND, 10 * SECOND)
}

#[test]
fn four_groups_settle_two_on_each_node() {
    for seed in SEEDS {
        let seen = four_groups(seed, "");
        let parts = gathered(&seen, 4);
        assert!(parts.iter().all(|&part| part >= 0.95), "seed {seed}: {parts:?}");
        assert_eq!(on_first(&seen, 4), 2, "seed {seed}");
        for name in ["cling_settled", "cling_held"] {
            assert!(seen.counter(name) > 0, "seed {seed}: {name}");
        }
        // Tasks of 0.2 ms preempt loops.
        assert!(seen.counter("preempted") > 1000, "seed {seed}: {}", seen.counter("preempted"));
    }
}

#[test]
fn nothing_settles_when_that_is_off() {
    let seen = four_groups(1, "+no-cling+no-consolidate");
    for (name, value) in &seen.outcome.counters {
        let of_sets =
            ["roost_cling_", "roost_consolidate_"].iter().any(|set| name.starts_with(set));
        assert!(!of_sets || *value == 0.0, "{name} {value}");
    }
}

/// Three groups of six loops on 2 x 8 CPUs. The third one repeatedly finds no room, and still no CPU is idle.
#[test]
fn a_group_without_room_floats_and_no_cpu_idles() {
    for seed in SEEDS {
        let mut scene = Scene::new(SMALL, seed);
        add_groups(&mut scene, 3, 6);
        let seen = scene.play(10 * SECOND, 20 * SECOND);
        let parts = gathered(&seen, 3);
        let settled = parts.iter().filter(|&&part| part >= 0.95).count();
        assert_eq!(settled, 2, "seed {seed}: {parts:?}");
        assert!(seen.idle() <= 0.02, "seed {seed}: {}", seen.idle());
        let [failed, paused] = ["cling_failed", "cling_paused"].map(|name| seen.counter(name));
        assert!(failed > 0 && paused > 0, "seed {seed}: {failed} failed, {paused} paused");
        assert!(failed + paused >= 10, "one attempt a second, or a pause that forbids it");
    }
}

/// A group stays on its node although the other node is idle and eight loops are bound to its node's eight CPUs. Its
/// tasks may be taken away once its queue has not been empty for ten seconds, and it has not been seen for so long.
#[test]
fn a_group_stays_on_its_crowded_node() {
    let mut scene = Scene::new(SMALL, 1).with("+cling-wait-us=10000000");
    let group = scene.group(100);
    scene.add_all("group", (0..6).map(|cpu| Task::spins().group(group).first_on(cpu)));
    scene.add_all("bound", (0..8).map(|_| Task::spins().on(0..8).begins(3 * SECOND)));
    let seen = scene.play(4 * SECOND, 9 * SECOND);
    assert_eq!(seen.gathered("group"), 1.0, "{:?}", seen.by_node("group"));
    assert!(seen.counter("cling_held") > 0);
    assert_eq!(seen.counter("cling_paused"), 0);
    assert!(seen.idle() >= 0.99, "{}", seen.idle());
}

/// A process of six threads settles. Then its threads enter a cgroup. The group settles where the process is: CPUs that
/// the process claims count for the group.
#[test]
fn a_group_is_not_in_its_own_way() {
    let mut scene = Scene::new(SMALL, 1);
    let (group, process) = (scene.group(100), scene.process());
    let threads: Vec<u32> =
        (0..6).map(|_| scene.add("threads", Task::spins().thread_of(process))).collect();
    let enter = |&template: &u32| Op::SetGroupOf { template, group: Some(group) };
    let all: Vec<Op> = threads.iter().map(enter).collect();
    scene.add("manager", Task::program(&all, &[]).begins(5 * SECOND));
    let before = scene.play(0, 5 * SECOND);
    assert!(before.counter("consolidate_settled") > 0);
    assert_eq!(before.counter("cling_settled"), 0);
    let seen = scene.play(10 * SECOND, 20 * SECOND);
    assert!(seen.gathered("threads") >= 0.99, "{:?}", seen.by_node("threads"));
    let counters = ["cling_settled", "cling_failed"].map(|name| seen.counter(name));
    assert_eq!(counters, [1, 0]);
}

/// Twelve loops do not fit on a node. CPU time that they used before four of them end does not count against the group.
#[test]
fn a_group_settles_once_it_fits() {
    let mut scene = Scene::new(SMALL, 1);
    let group = scene.group(100);
    for number in 0..12 {
        let task = if number < 4 { Task::ends_after(8 * SECOND) } else { Task::spins() };
        scene.add(if number < 4 { "end" } else { "stay" }, task.group(group));
    }
    assert_eq!(scene.play(0, 8 * SECOND).counter("cling_settled"), 0);
    let seen = scene.play(17 * SECOND, 20 * SECOND);
    let counters = ["cling_settled", "unsettled"].map(|name| seen.counter(name));
    assert_eq!(counters, [1, 0]);
    assert!(seen.gathered("stay") >= 0.95, "{:?}", seen.by_node("stay"));
}

/// Using an eighth more than its node has does not make a group leave.
#[test]
fn a_settled_group_stays_with_little_more() {
    let mut scene = Scene::new(SMALL, 1);
    let group = scene.group(100);
    scene.add_all("group", (0..8).map(|_| Task::spins().group(group)));
    scene.add("ninth", Task::spins().group(group).begins(5 * SECOND));
    let seen = scene.play(0, 20 * SECOND);
    let counters = ["cling_settled", "unsettled"].map(|name| seen.counter(name));
    assert_eq!(counters, [1, 0]);
}

/// A process whose threads are bound to CPUs of both nodes does not settle. Half of its threads could not move, but its
/// memory would.
#[test]
fn a_process_that_is_bound_to_both_nodes_does_not_settle() {
    let mut scene = Scene::new(SMALL, 1);
    let process = scene.process();
    scene
        .add_all("threads", (0..8).map(|number| Task::spins().thread_of(process).on([2 * number])));
    assert_eq!(scene.play(0, 10 * SECOND).counter("consolidate_settled"), 0);
    let free = {
        let mut scene = Scene::new(SMALL, 1);
        let process = scene.process();
        scene.add_all("threads", (0..8).map(|_| Task::spins().thread_of(process)));
        scene.play(0, 10 * SECOND)
    };
    assert_eq!(free.counter("consolidate_settled"), 1, "it would settle without an affinity");
}

/// Two groups of forty loops. If the tasks of a group are limited to a few CPUs of a node, the group claims no more
/// than these CPUs, so both settle on the first node.
#[test]
fn groups_that_crowd_a_part_of_a_node_leave_room_on_it() {
    let mut scene = Scene::new(SMALL, 1);
    for part in [0..4, 4..8] {
        let group = scene.group(100);
        scene.add_all("group", (0..40).map(|_| Task::spins().group(group).on(part.clone())));
    }
    let seen = scene.play(0, 10 * SECOND);
    let counters = ["cling_settled", "unsettled", "cling_failed", "cling_paused"]
        .map(|name| seen.counter(name));
    assert_eq!(counters, [2, 0, 0, 0]);
}

/// A group limited to six CPUs on two nodes settles on neither, because it may use too few CPUs of each.
#[test]
fn a_group_that_crowds_parts_of_two_nodes_does_not_settle() {
    let mut scene = Scene::new(SMALL, 1);
    let group = scene.group(100);
    scene.add_all("group", (0..40).map(|_| Task::spins().group(group).on([0, 1, 2, 8, 9, 10])));
    assert_eq!(scene.play(0, 10 * SECOND).counter("cling_settled"), 0);
}

/// With two threads per core, six loops are not gathered on a node of four cores while another node's four cores are
/// idle. If all CPUs are busy, groups settle.
#[test]
fn groups_settle_where_each_task_could_have_a_core() {
    for seed in SEEDS {
        let mut scene = Scene::new(WITH_SIBLINGS, seed);
        add_groups(&mut scene, 1, 6);
        let six = scene.play(5 * SECOND, 10 * SECOND);
        assert_eq!(six.counter("cling_settled"), 0, "seed {seed}");
        assert!((six.gathered("group0") - 0.5).abs() < 0.01, "{seed}: {:?}", six.by_node("group0"));
        let mut scene = Scene::new(WITH_SIBLINGS, seed);
        add_groups(&mut scene, 4, 4);
        let parts = gathered(&scene.play(5 * SECOND, 10 * SECOND), 4);
        assert!(parts.iter().all(|&part| part >= 0.95), "seed {seed}: {parts:?}");
    }
}

/// Two processes of eight threads on 2 x 8 CPUs. Their threads start on any CPU.
#[test]
fn two_processes_have_a_node_each() {
    for seed in SEEDS {
        let mut scene = Scene::new(SMALL, seed);
        let processes = [scene.process(), scene.process()];
        for number in 0..16 {
            let process = processes[number % 2];
            let cpu = scene.chance(16) as u32;
            scene.add(&format!("process{process}"), Task::spins().thread_of(process).first_on(cpu));
        }
        let seen = scene.play(10 * SECOND, 20 * SECOND);
        let parts = ["process0", "process1"].map(|name| seen.gathered(name));
        assert!(parts.iter().all(|&part| part >= 0.9), "seed {seed}: {parts:?}");
        assert!(seen.counter("consolidate_settled") >= 2, "seed {seed}");
    }
}

/// A process of so many loops, of which `first` begin at once and the others at `later_ns`.
fn ramp(seed: u64, loops: u32, first: u32, later_ns: u64) -> Scene {
    let mut scene = Scene::new(SMALL, seed);
    let process = scene.process();
    for number in 0..loops {
        let task = Task::spins().thread_of(process).first_on(number % 4);
        scene.add("threads", if number < first { task } else { task.begins(later_ns) });
    }
    scene
}

/// A process starts idle and later needs twelve of sixteen CPUs. It does not settle on eight CPUs in between.
#[test]
fn a_process_that_grows_does_not_settle() {
    for seed in SEEDS {
        let seen = ramp(seed, 12, 1, SECOND / 2).play(0, 15 * SECOND);
        assert_eq!(seen.counter("consolidate_settled"), 0, "seed {seed}");
    }
}

/// A process that comes to need ten CPUs does not settle on eight either, whenever it tries to. While its mean demand
/// is just under eight and a half, it could settle, and ten are less than an eighth and a half more, so that it no
/// longer counts as growing.
#[test]
fn a_process_that_would_leave_again_does_not_settle() {
    for tenth in 0..10 {
        let seen = ramp(1, 10, 1, SECOND / 2 + tenth * 20 * MS).play(0, 8 * SECOND);
        assert_eq!(seen.counter("consolidate_settled"), 0, "{tenth}");
    }
}

/// A process that settled with three loops and then grows to twelve leaves its node: after the 3.2 s for which needing
/// too much is allowed, plus some tenths of a second until this is noticed.
#[test]
fn a_process_that_has_grown_leaves() {
    for seed in SEEDS {
        let scene = ramp(seed, 12, 3, 8 * SECOND);
        let unsettled = |until_ns| {
            let seen = scene.play(0, until_ns);
            assert!(seen.counter("consolidate_settled") > 0, "seed {seed}");
            seen.counter("unsettled")
        };
        assert_eq!(unsettled(8 * SECOND), 0, "seed {seed}");
        assert_eq!(unsettled(8 * SECOND + 4200 * MS), 1, "seed {seed}");
    }
}

/// A variable of the program at a time of a scene.
fn variables<const N: usize>(
    scene: &mut Scene,
    ns: u64,
    names: [&'static str; N],
) -> Rc<Cell<[u64; N]>> {
    let found = Rc::new(Cell::new([u64::MAX; N]));
    let values = Rc::clone(&found);
    scene.at(ns, move |stage| values.set(names.map(|name| stage.variable(name))));
    found
}

/// Ended processes free their places in the tables: a hundred, one after the other, fit in a table for 64, and no table
/// is scanned afterwards. If two hundred exist at the same time, some find no place, which is counted and reported. So
/// are cgroups. (`limits.rs` removes a cgroup.)
#[test]
fn places_in_tables_are_given_back_and_missed_ones_counted() {
    let full = "+max-groups=64+max-processes=64+max-cgroups=64";
    let mut scene = Scene::new(SMALL, 1).with(full);
    for number in 0..100 {
        let process = scene.process();
        for _ in 0..2 {
            let task = Task::ends_after(20 * MS).thread_of(process);
            scene.add("threads", task.begins(1 + number * 40 * MS));
        }
    }
    scene.add("stays", Task::spins());
    let left = variables(&mut scene, 6 * SECOND, ["processes_used", "groups_used", "full"]);
    let one_by_one = scene.play(0, 7 * SECOND);
    assert_eq!(one_by_one.counter("sets_full"), 0);
    assert_eq!(left.get(), [0, 0, 0]);
    let mut scene = Scene::new(SMALL, 1).with(full);
    for _ in 0..200 {
        let (group, process) = (scene.group(100), scene.process());
        let thread = || Task::spins().thread_of(process).group(group);
        scene.add_all("threads", [thread(), thread()]);
    }
    let told = variables(&mut scene, 5 * SECOND, ["full"]);
    let crowd = scene.play(0, 6 * SECOND);
    assert!(crowd.counter("sets_full") > 0);
    assert_eq!(crowd.counter("cgroups_full"), 200 - 64);
    assert_eq!(told.get(), [7], "groups, processes and cgroups: a bit each");
}
