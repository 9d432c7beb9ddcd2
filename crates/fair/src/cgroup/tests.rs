use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use roost_engine::{Control, LeftAs, Time, TraceTask, Tracer, run};
use roost_workload::{Workload, rtapp};

use super::*;
use crate::features::{Features, versions};
use crate::kit::audited_run as audited;

const SECOND: u64 = 1_000_000_000;

/// Adds up CPU time from second 1 on, in ns, by the names of tasks.
struct CpuTime {
    running: BTreeMap<CpuId, Time>,
    sums: Arc<Mutex<BTreeMap<String, u64>>>,
}

impl Tracer for CpuTime {
    fn switch(
        &mut self,
        now: Time,
        cpu: CpuId,
        previous: Option<(TraceTask<'_>, LeftAs)>,
        next: Option<TraceTask<'_>>,
    ) {
        if let (Some((task, _)), Some(since)) = (previous, self.running.remove(&cpu)) {
            let ns = now.since(since.max(Time(SECOND)).min(now));
            *self.sums.lock().unwrap().entry(task.name().to_owned()).or_default() += ns;
        }
        if next.is_some() {
            self.running.insert(cpu, now);
        }
    }

    fn wakeup(&mut self, _: Time, _: CpuId, _: TraceTask<'_>, _: CpuId) {}
}

/// A workload of hogs: name, group, CPUs (empty for all), number; and groups with their
/// `cpu.weight`.
fn hogs(groups: &[(&str, u32)], tasks: &[(&str, &str, &str, u32)], seconds: u32) -> Workload {
    let tasks: Vec<_> = tasks
        .iter()
        .map(|(name, group, cpus, count)| {
            let group = match *group {
                "" => String::new(),
                group => format!(r#""taskgroup": "{group}", "#),
            };
            let cpus = match *cpus {
                "" => String::new(),
                cpus => format!(r#""cpus": [{cpus}], "#),
            };
            format!(r#""{name}": {{ "instance": {count}, {group}{cpus}"loop": -1, "run": 2000 }}"#)
        })
        .collect();
    let text = format!(
        r#"{{ "global": {{ "duration": {seconds} }}, "tasks": {{ {} }} }}"#,
        tasks.join(", ")
    );
    let mut workload = rtapp::parse(&text, "test.json").unwrap();
    for group in &mut workload.groups {
        let weight = groups.iter().find(|(path, _)| *path == group.path);
        group.weight = weight.map_or(100, |&(_, weight)| weight);
    }
    workload
}

/// CPU time of tasks by name, in CPUs.
fn shares(version: &str, machine: &str, workload: &Workload) -> BTreeMap<String, f64> {
    let machine = Arc::new(roost_machine::resolve(machine).unwrap());
    let features = Features::parse(&format!("fair@{version}")).unwrap();
    let sums = Arc::new(Mutex::new(BTreeMap::new()));
    let tracer = CpuTime { running: BTreeMap::new(), sums: Arc::clone(&sums) };
    let stop = AtomicBool::new(false);
    let tracer: Option<Box<dyn Tracer>> = Some(Box::new(tracer));
    let control = Control { tracer, stop: &stop, ..Control::new(3) };
    let outcome = run(&machine, workload, Fair::new(&machine, features), control).unwrap();
    let measured = (outcome.elapsed_ns - SECOND) as f64;
    let sums = sums.lock().unwrap();
    sums.iter().map(|(name, &ns)| (name.clone(), ns as f64 / measured)).collect()
}

/// In every version the tasks of each name get these shares of a CPU, within 5 %.
fn expect(
    machine: &str,
    groups: &[(&str, u32)],
    tasks: &[(&str, &str, &str, u32)],
    expected: &[(&str, f64)],
) {
    let workload = hogs(groups, tasks, 4);
    for version in versions() {
        let shares = shares(version, machine, &workload);
        for &(name, part) in expected {
            // Kernel work takes a small part of it.
            let got = shares[name];
            assert!((got - part).abs() < 0.05 * part, "{version}, {name}: {got} not {part}");
        }
    }
}

const ONE_CPU: &str = "core:1 pu:1";
const FOUR_CPUS: &str = "core:4 pu:1";

#[test]
fn groups_share_by_weight_whatever_the_number_of_their_tasks() {
    let groups = [("/a", 100), ("/b", 300)];
    let tasks = |a, b| [("a", "/a", "", a), ("b", "/b", "", b)];
    for (a, b) in [(1, 1), (3, 3), (5, 2), (1, 4)] {
        expect(ONE_CPU, &groups, &tasks(a, b), &[("a", 0.25), ("b", 0.75)]);
    }
}

#[test]
fn a_group_counts_like_one_task_beside_those_of_the_root_group() {
    expect(
        ONE_CPU,
        &[("/a", 100)],
        &[("a", "/a", "", 3), ("root", "", "", 1)],
        &[("a", 0.5), ("root", 0.5)],
    );
}

/// p gets two thirds, of which b gets three quarters.
#[test]
fn groups_share_what_the_group_above_gets() {
    expect(
        ONE_CPU,
        &[("/p", 200), ("/p/a", 100), ("/p/b", 300), ("/q", 100)],
        &[("a", "/p/a", "", 2), ("b", "/p/b", "", 1), ("q", "/q", "", 2)],
        &[("a", 2.0 / 12.0), ("b", 2.0 / 4.0), ("q", 1.0 / 3.0)],
    );
}

/// Each group has a task on each CPU, and so a quarter of its weight there.
#[test]
fn groups_spread_over_cpus_share_on_each() {
    let each = |name, group| (0..4).map(move |cpu| (name, group, ["0", "1", "2", "3"][cpu], 1));
    let tasks: Vec<_> = each("a", "/a").chain(each("b", "/b")).collect();
    let named: Vec<_> = tasks
        .iter()
        .enumerate()
        .map(|(index, &(name, group, cpus, count))| {
            (["a0", "a1", "a2", "a3", "b0", "b1", "b2", "b3"][index], group, cpus, count, name)
        })
        .collect();
    let tasks: Vec<_> =
        named.iter().map(|&(name, group, cpus, n, _)| (name, group, cpus, n)).collect();
    let expected: Vec<_> = named
        .iter()
        .map(|&(name, _, _, _, of)| (name, if of == "a" { 0.25 } else { 0.75 }))
        .collect();
    expect(FOUR_CPUS, &[("/a", 100), ("/b", 300)], &tasks, &expected);
}

/// Group a has its whole weight, 1,024, on CPU 0. Group b has a quarter of 3,072 on each of four
/// CPUs.
#[test]
fn a_groups_weight_goes_where_its_load_is() {
    expect(
        FOUR_CPUS,
        &[("/a", 100), ("/b", 300)],
        &[
            ("a", "/a", "0", 1),
            ("b0", "/b", "0", 1),
            ("b1", "/b", "1", 1),
            ("b2", "/b", "2", 1),
            ("b3", "/b", "3", 1),
        ],
        &[("a", 1024.0 / 1792.0), ("b0", 768.0 / 1792.0), ("b1", 1.0), ("b3", 1.0)],
    );
}

/// One task alone has the weight of a group; 16 tasks share the weight of another group. The loads
/// are equal, so balancing by load gives the one task a CPU nearly for itself. By number of tasks
/// it would share the CPU with seven or eight tasks, which have half of the other group's load, and
/// get two thirds of it.
#[test]
fn balancing_goes_by_the_load_of_groups() {
    let tasks = [("one", "/a", "", 1), ("many", "/b", "", 16)];
    let workload = hogs(&[("/a", 100), ("/b", 100)], &tasks, 5);
    for version in versions() {
        let share = shares(version, "core:2 pu:1", &workload)["one"];
        assert!(share > 0.85, "{version}: {share}");
    }
}

/// The task moves out of /a, where two others stay, to a group of its own or to the root group.
/// Then it has as much as the two.
#[test]
fn a_task_that_moves_shares_as_those_do_where_it_is_now() {
    for to in ["/b", "/"] {
        let text = format!(
            r#"{{ "global": {{ "duration": 4 }}, "tasks": {{
                "a": {{ "instance": 2, "taskgroup": "/a", "loop": -1, "run": 2000 }},
                "mover": {{ "phases": {{
                    "there": {{ "loop": 50, "taskgroup": "/a", "run": 2000 }},
                    "here": {{ "loop": -1, "taskgroup": "{to}", "run": 2000 }} }} }} }} }}"#
        );
        let workload = rtapp::parse(&text, "test.json").unwrap();
        for version in versions() {
            let share = shares(version, ONE_CPU, &workload)["mover"];
            assert!((share - 0.5).abs() < 0.025, "{version}, to {to}: {share}");
        }
    }
}

/// Sleepers, hogs, yielders, nice values and policies in nested groups: the audit finds every task
/// in its place after every hook.
#[test]
fn no_task_is_lost_in_groups() {
    let text = r#"{
        "global": { "duration": 1 },
        "tasks": {
            "hog": { "instance": 9, "taskgroup": "/a", "loop": -1, "run": 5000 },
            "nice": { "instance": 4, "taskgroup": "/a/b", "loop": -1, "priority": 5, "run": 3000, "sleep": 500 },
            "sleeper": { "instance": 20, "taskgroup": "/a/c", "loop": -1, "run": 300, "sleep": 700 },
            "background": { "instance": 3, "policy": "SCHED_IDLE", "taskgroup": "/d", "loop": -1,
                "run": 2000, "sleep": 100 },
            "free": { "instance": 8, "loop": -1, "run": 900, "sleep": 900 },
            "mover": { "instance": 3, "phases": {
                "a": { "taskgroup": "/a", "run": 300, "sleep": 100 }, "b": { "taskgroup": "/a/b", "run": 900 },
                "root": { "taskgroup": "/", "priority": 3, "run": 500 }, "d": { "taskgroup": "/d", "run": 200 } } },
            "yielder": { "instance": 3, "taskgroup": "/d", "loop": -1, "run": 100, "yield": "" }
        }
    }"#;
    for version in versions() {
        let outcome = audited("pack:2 node:1 l3:2 core:2 pu:2", version, text);
        let busy = outcome.counter("run_ns") / (outcome.elapsed_ns as f64 * 16.0);
        assert!(busy > 0.95, "{version}: {busy}");
    }
}

/// Groups of a test: a below the root, b and c in a, d below the root.
fn some_groups(weights: [u32; 4]) -> Cgroups {
    let machine = Arc::new(roost_machine::resolve(FOUR_CPUS).unwrap());
    let mut world = World::for_test(machine, 1);
    let group =
        |path: &str, parent, weight| roost_workload::Group { path: path.into(), parent, weight };
    world.set_groups_for_test(vec![
        group("/a", None, weights[0]),
        group("/a/b", Some(0), weights[1]),
        group("/a/c", Some(0), weights[2]),
        group("/d", None, weights[3]),
    ]);
    Cgroups::new(&world, 4)
}

#[test]
fn weights_of_a_group_on_one_cpu() {
    let mut groups = some_groups([100, 100, 300, 50]);
    for (group, own) in [(1, 1024), (2, 1024), (2, 335), (3, 1024)] {
        groups.count_in(0, group, own);
    }
    groups.share_out(0);
    let weight = |group, own| groups.weight(0, Some(group), own) as f64 / f64::from(1 << FRACTION);
    // Of the 1,024 of /a, b has a quarter. The tasks of c share three quarters by their own
    // weights.
    assert!((weight(1, 1024) - 256.0).abs() < 1.0);
    assert!((weight(2, 1024) - 768.0 * 1024.0 / 1359.0).abs() < 1.0);
    assert!((weight(2, 335) - 768.0 * 335.0 / 1359.0).abs() < 1.0);
    assert!((weight(3, 1024) - 512.0).abs() < 1.0);
    assert_eq!(groups.weight(0, None, 1024), 1024 << FRACTION);
}

proptest! {
    /// For any arrivals and departures: on each CPU the weights of a group's tasks add up to its
    /// entity's weight, and its load is the sum of its loads on the CPUs. When all tasks have left,
    /// nothing remains.
    #[test]
    fn weights_add_up(
        weights in prop::array::uniform4(1_u32..=10_000),
        steps in prop::collection::vec((0_usize..4, 0_usize..4, 3_u64..=88_761, 1_u64..5_000_000), 1..60),
    ) {
        let mut groups = some_groups(weights);
        let mut queued: Vec<(CpuId, usize, u64)> = Vec::new();
        let mut now = 0;
        for (cpu, group, own, ns) in steps {
            now += ns;
            groups.advance(cpu, now);
            match queued.iter().position(|task| task.0 == cpu && task.1 == group) {
                Some(index) if own % 2 == 0 => {
                    let (cpu, group, own) = queued.swap_remove(index);
                    groups.count_out(cpu, group, own);
                }
                _ => {
                    queued.push((cpu, group, own));
                    groups.count_in(cpu, group, own);
                }
            }
            // The way for a task that is alone gives the same.
            let here: Vec<_> = queued.iter().filter(|task| task.0 == cpu).collect();
            let alone = if let [task] = here[..] {
                groups.share_out_to(cpu, task.1, 0);
                Some(groups.shares_on(cpu))
            } else {
                None
            };
            groups.share_out(cpu);
            if let Some(alone) = alone {
                prop_assert_eq!(alone, groups.shares_on(cpu));
            }
            for group in [1, 2, 3] {
                let of_group = || queued.iter().filter(|task| task.0 == cpu && task.1 == group);
                let sum: u64 = of_group().map(|task| groups.weight(cpu, Some(group), task.2)).sum();
                let nr = of_group().count() as u64;
                let entity = groups.effective_entity(cpu, group);
                prop_assert!(sum.abs_diff(entity) <= 2 * nr + 1, "{sum} {entity}");
            }
            for (index, group) in groups.groups.iter().enumerate() {
                prop_assert_eq!(group.load, groups.loads(index).1);
            }
            prop_assert!(groups.entities.iter().all(|&sum| sum == 0));
        }
        for (cpu, group, own) in queued {
            groups.count_out(cpu, group, own);
            groups.share_out(cpu);
        }
        let left = groups.on_cpus.iter().map(|on| (on.nr, on.tasks_weight, on.weight));
        prop_assert!(left.clone().all(|left| left == (0, 0, 0)));
    }

    /// Tasks that come and go with their loads: the load of a group is the sum of its loads on the CPUs.
    #[test]
    fn loads_add_up(
        steps in prop::collection::vec((0_usize..4, 0_usize..4, 0_u64..5_000_000, any::<bool>()), 1..60),
    ) {
        let mut groups = some_groups([100; 4]);
        let task = Avg { load_avg: 800, load_sum: 37_000, ..Avg::default() };
        let all = [LeavingSums::Own, LeavingSums::OfAverages, LeavingSums::OwnAboveAverages];
        let mut now = 0;
        for (step, (cpu, group, ns, attaches)) in steps.into_iter().enumerate() {
            now += ns;
            groups.advance(cpu, now);
            if attaches {
                groups.attach(cpu, group, &task, 1024);
            } else {
                groups.detach(cpu, group, &task, 1024, all[step % 3]);
            }
            let (kept, found) = groups.loads(group);
            prop_assert_eq!(kept, found);
        }
    }
}

/// /a has the largest weight and no load elsewhere, /a/b the smallest weight and most of its load elsewhere.
/// So the entity of /a/b weighs 1, which is all that the queue of /a has, and gets all of 102,400.
#[test]
fn the_largest_scale_fits() {
    let mut groups = some_groups([10_000, 1, 100, 100]);
    groups.count_in(0, 1, 3);
    let task = Avg { load_avg: 1 << 20, load_sum: 1 << 36, ..Avg::default() };
    groups.attach(1, 1, &task, 1 << 20);
    groups.share_out(0);
    let [a, b] = [0, 1].map(|group| groups.on_cpu(0)[group].scale);
    assert_eq!(a, ROOT_SCALE * (102_400 << FRACTION));
    assert!(a < 1 << 61);
    assert_eq!(b, a / (3 << FRACTION));
    // Rounded down.
    assert_eq!(groups.weight(0, Some(1), 3), (102_400 << FRACTION) - 1);
}

impl Cgroups {
    /// Weight and scale of each group on a CPU.
    fn shares_on(&self, cpu: CpuId) -> Vec<(u64, u64)> {
        self.on_cpu(cpu).iter().map(|group| (group.weight, group.scale)).collect()
    }

    /// The weight of a group's entity on a CPU, in relation to tasks of the root group.
    fn effective_entity(&self, cpu: CpuId, group: usize) -> u64 {
        let on_cpu = self.on_cpu(cpu);
        if on_cpu[group].nr == 0 {
            return 0;
        }
        let above = self.groups[group].parent.map_or(ROOT_SCALE, |up| on_cpu[up].scale);
        let entity = self.groups[group].entity_weight(&on_cpu[group]);
        ((u128::from(above) * u128::from(entity)) >> (32 + FRACTION)) as u64
    }
}
