//! Snapshots of the counters of five small runs, in each generation of the fair class and its newest version. They show
//! changes of behaviour that nobody expected. Each snapshot was read by hand. The comment above a test says why its
//! figures are plausible, and the test asserts what can be calculated.
//!
//! The machine: 2 nodes, each with 2 LLCs of 2 cores of 2 threads: 16 CPUs, 8 cores, 4 LLCs.
//!
//! After an intended change of behaviour: `INSTA_UPDATE=always cargo test -p roost --test snapshots`, then read the
//! difference as carefully.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::Arc;

use roost_simulate::{Control, Outcome, SchedulerSpec, Simulation, Start};
use roost_workload::{Workload, rtapp};

const SCHEDULERS: [&str; 4] = ["fair@3.9", "fair@5.2", "fair@5.16", "fair@7.2"];

fn run(workload: &Workload) -> [Outcome; 4] {
    SCHEDULERS.map(|scheduler| {
        let simulation = Simulation {
            machine: Arc::new(roost_machine::resolve("node:2 l3:2 core:2 pu:2").unwrap()),
            workload: Arc::new(Workload { measured_from_ns: 0, ..workload.clone() }),
            scheduler: SchedulerSpec::parse(scheduler).unwrap(),
            start: Start::Boot,
            quiet: true,
        };
        simulation.run(Control::new(1)).unwrap()
    })
}

/// One row for each counter that is not zero in all runs, without the counters of the simulator itself. Times in ms.
fn shown(outcomes: &[Outcome; 4]) -> String {
    let row = |name: &str, cell: &dyn Fn(usize) -> String| {
        let cells: String = (0..4).map(|index| format!("{:>12}", cell(index))).collect();
        format!("{name:28}{cells}\n")
    };
    let mut text = row("", &|index| SCHEDULERS[index].to_owned());
    for (name, _) in &outcomes[0].counters {
        let values = [0, 1, 2, 3].map(|index: usize| outcomes[index].counter(name));
        if name.starts_with("events_") || values == [0.0; 4] {
            continue;
        }
        text += &match name.strip_suffix("_ns") {
            Some(name) => {
                row(&format!("{name}_ms"), &|index| format!("{:.1}", values[index] / 1e6))
            }
            None if name == "llcs_shared" => row(name, &|index| format!("{:.2}", values[index])),
            None => row(name, &|index| values[index].to_string()),
        };
    }
    text
}

/// 2 groups send 2 x 20 x 20 x 20 = 16,000 messages in about 11 ms.
///
/// - In 5.2 and 5.16 the second node stays idle, and no task changes the node. A child runs for 12 us and then blocks.
///   Its parent needs 7.5 to 22.5 us to fork the next one, so few run at the same time. The first balancing between
///   nodes would be after 16 ms (1 ms for each CPU of the domain), but the run ends before. So 80 tasks share 8 CPUs.
///   3.9 and 7.2 allow less imbalance: now and then, a child that still runs sends the next one to the other node.
/// - There are far fewer wakeups than messages: with 10 tasks per CPU, a receiver finds many messages at once.
/// - 3.9's wakeups are mostly synchronous: `nr_wakeups_affine` does not count those that such a hint
///   brings to the waker. Idle CPUs pull by load: many passes find one, and hot or running tasks.
/// - The search mostly fails (`sis_failed` close to `sis_domain_search`): 8 CPUs are seldom idle.
#[test]
fn hackbench_on_two_nodes() {
    let outcomes = run(&roost_workload::resolve("hackbench:groups=2,loops=20", None).unwrap());
    for outcome in &outcomes {
        assert_eq!(outcome.counter("forks"), 80.0);
        assert!(outcome.counter("wakeups") < 16_000.0);
    }
    insta::assert_snapshot!("hackbench", shown(&outcomes));
}

/// 12 workers spin 10 ms, then wait until one of 2 message threads has slept 10 ms.
///
/// - A worker's turn is at least 20 ms, so that 12 workers make at most 12 x 2 s / 20 ms = 1,200
///   turns of 10 ms each: at most 12 s of CPU time at full speed.
/// - Hardly a migration: 14 tasks on 16 CPUs, so that the previous CPU is idle nearly always, and
///   `sis_scanned` exceeds `sis_search` by little. Nothing is contended: the versions agree.
#[test]
fn schbench_with_a_cpu_for_everyone() {
    let spec = "schbench:messages=2,workers=6,c=10000,s=10000";
    let outcomes = run(&roost_workload::resolve(spec, Some(2_000_000_000)).unwrap());
    for outcome in &outcomes {
        assert_eq!(outcome.counter("forks"), 14.0);
        let turns = 12.0 * 2000.0 / 20.0;
        assert!(outcome.counter("wakeups") <= 2.0 * turns);
        assert!(outcome.counter("wakeups_prev") > 0.95 * outcome.counter("wakeups"));
    }
    insta::assert_snapshot!("schbench", shown(&outcomes));
}

/// 6 tasks run 1 ms every 5 ms, 2 tasks 12 ms every 16 ms, for 2 s.
///
/// - Wakeups: 6 x 400 + 2 x 125 = 2,650, less the last of each, at the very end, and 7 at the common
///   start.
/// - CPU time: 6 x 400 x 1 ms + 2 x 125 x 12 ms = 5.4 s if no two tasks share a core, and up to half as much again
///   while two do. Each task sleeps at the common start before the next one is forked. So the tasks are on few cores
///   until all are woken, and are spread then.
/// - After that all wakeups stay where they are (`wakeups_prev` = 2,642) in 5.16. `ipis` are the 8
///   forks and kicks of nohz balancing, at most one a tick of the 500 in 2 s, when two CPUs of an
///   LLC are busy at a tick.
/// - 3.9 and 5.2 even out load, not tasks: idle CPUs fail to pull single tasks (`MC.lb_failed.idle`)
///   and push a few by stopper, so that more of them share cores. 3.9 looks at every level whenever a
///   CPU runs out of tasks (`lb_count.newidle` is `sched_goidle`), which `kernel_ms` shows. It kicks where
///   two CPUs of a core are busy, not of an LLC: fewer `ipis`.
/// - 7.2 begins to gather these threads of one process on one LLC (`PKG.alb_pushed`), until a scan
///   finds that on average 2 run at once: too many for two cores. Those gathered by then
///   share cores, so that `run_ms` and `ticks` grow.
#[test]
fn periodic_tasks() {
    let text = r#"{"tasks": {
        "short": {"instance": 6, "loop": -1, "run": 1000,
                  "timer": {"ref": "unique", "period": 5000}},
        "long": {"instance": 2, "loop": -1, "run": 12000,
                 "timer": {"ref": "unique", "period": 16000}}
    }, "global": {"duration": 2}}"#;
    let outcomes = run(&rtapp::parse(text, "periodic.json").unwrap());
    // 7.2's threads share cores for as long as they are gathered; 8.1 s if all do always.
    for (outcome, most_ms) in outcomes.iter().zip([6_800.0, 6_800.0, 6_800.0, 8_100.0]) {
        let wakeups = outcome.counter("wakeups");
        assert!((2_650.0 - 3.0 * 8.0..=2_650.0).contains(&wakeups), "{wakeups}");
        let run_ms = outcome.counter("run_ns") / 1e6;
        assert!((5_350.0..most_ms).contains(&run_ms), "{run_ms}");
    }
    insta::assert_snapshot!("periodic", shown(&outcomes));
}

/// A parent forks 12 tasks of 3 ms at once, sleeps 20 ms, and does so 20 times.
///
/// - 240 children and the parent; 20 wakeups of the parent, whose CPU is idle by then, and one of the
///   main thread, which waits for the parent.
/// - CPU time: 240 x 3 ms = 720 ms if each had a core; 12 tasks on 8 cores: four cores run two at
///   about 60% of the speed each, so that 8 of 12 take longer: about 1 s.
/// - Forks go to the idlest group, so that hardly any child has to be moved: few migrations, all
///   within an LLC and by active balance (`migrations` = `MC.alb_pushed`), from a core with two
///   tasks to an idle core.
/// - Each child is queued when the next one's CPU is chosen, so that even by load, in 3.9 and 5.2, they
///   are spread: `run_delay_ms` is 240 times the 1.1 us from interrupt to switch, and a little where
///   5.2 stacks two.
/// - `llcs_shared`: for about 5 ms of each 20 ms all 4 LLCs run more than one task: 1.
#[test]
fn bursts_of_forks() {
    let text = r#"{"tasks": {
        "parent": {"loop": 20, "phases": {
            "burst": {"loop": 12, "fork": "child"},
            "rest": {"sleep": 20000}
        }},
        "child": {"instance": 0, "loop": 1, "run": 3000}
    }}"#;
    let outcomes = run(&rtapp::parse(text, "forks.json").unwrap());
    for outcome in &outcomes {
        assert_eq!((outcome.counter("forks"), outcome.counter("wakeups")), (241.0, 21.0));
        let run_ms = outcome.counter("run_ns") / 1e6;
        assert!((720.0..1_200.0).contains(&run_ms), "{run_ms}");
    }
    insta::assert_snapshot!("forks", shown(&outcomes));
}

/// 27 tasks of three groups, one of them in another one, for 1 s.
///
/// - They want 9 x 0.7 + 7 x 0.5 + 5 x 0.97 + 6 x 0.6 = 18.2 CPUs at full speed, more than there are. So CPUs are
///   seldom idle: `run_ms` is nearly 16 s, `ticks` is that times HZ (1000 in 3.9, 250 later), and all LLCs are shared.
/// - So several tasks of groups wait on a CPU, where their weights change with every one that comes or goes. Loads are
///   rounded at each change, so this run also shows if weights are changed in another order.
#[test]
fn groups_share_all_cpus() {
    let text = r#"{"tasks": {
        "a": {"instance": 9, "taskgroup": "/x", "loop": -1, "run": 700, "sleep": 300},
        "b": {"instance": 7, "taskgroup": "/x/y", "loop": -1, "run": 1500, "sleep": 1500},
        "c": {"instance": 5, "taskgroup": "/z", "loop": -1, "run": 3000, "sleep": 100},
        "n": {"instance": 6, "taskgroup": "/z", "priority": -5, "loop": -1, "run": 300, "sleep": 200}
    }, "global": {"duration": 1}}"#;
    let outcomes = run(&rtapp::parse(text, "groups.json").unwrap());
    for outcome in &outcomes {
        assert_eq!(outcome.counter("forks"), 27.0);
        let run_ms = outcome.counter("run_ns") / 1e6;
        assert!((14_000.0..16_000.0).contains(&run_ms), "{run_ms}");
    }
    insta::assert_snapshot!("groups", shown(&outcomes));
}
