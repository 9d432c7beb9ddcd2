//! Properties of whole runs with the real fair class, in every version, on random machines and workloads.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use roost_engine::{CpuId, LeftAs, Time, TraceTask, Tracer};
use roost_machine::Machine;
use roost_simulate::{Control, Outcome, SchedulerSpec, Simulation, Start};
use roost_swarm::Case;
use roost_workload::{Workload, rtapp};

const SECOND: u64 = 1_000_000_000;

/// All versions, as schedulers.
fn versions() -> Vec<String> {
    roost_fair::versions().iter().map(|version| format!("fair@{version}")).collect()
}

fn machine(text: &str) -> Arc<Machine> {
    Arc::new(roost_machine::resolve(text).unwrap())
}

fn run(
    machine: &Arc<Machine>,
    workload: &Workload,
    scheduler: &str,
    seed: u64,
    tracer: Option<Box<dyn Tracer>>,
) -> Outcome {
    let simulation = Simulation {
        machine: Arc::clone(machine),
        workload: Arc::new(workload.clone()),
        scheduler: SchedulerSpec::parse(scheduler).unwrap(),
        start: Start::Running,
        quiet: true,
    };
    simulation
        .run(Control { tracer, ..Control::new(seed) })
        .unwrap_or_else(|error| panic!("{scheduler}, seed {seed}: {error}"))
}

/// Adds up each task's time on a CPU between `from` and `to`, by name.
struct CpuTime {
    from: Time,
    to: Time,
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
            let within = now.min(self.to).since(since.max(self.from).min(self.to));
            let mut sums = self.sums.lock().unwrap();
            // Instances may have the same name, so their number is added.
            *sums.entry(format!("{}.{}", task.name(), task.pid)).or_default() += within;
        }
        if next.is_some() {
            self.running.insert(cpu, now);
        }
    }

    fn wakeup(&mut self, _: Time, _: CpuId, _: TraceTask<'_>, _: CpuId) {}
}

/// CPU time by task between `from` and `to` seconds. The root task is left out.
fn cpu_time(
    machine: &Arc<Machine>,
    workload: &Workload,
    scheduler: &str,
    seed: u64,
    (from, to): (u64, u64),
) -> BTreeMap<String, u64> {
    let sums = Arc::new(Mutex::new(BTreeMap::new()));
    let tracer = CpuTime {
        from: Time(from * SECOND),
        to: Time(to * SECOND),
        running: BTreeMap::new(),
        sums: Arc::clone(&sums),
    };
    let workload = Workload { duration_ns: Some(to * SECOND), ..workload.clone() };
    run(machine, &workload, scheduler, seed, Some(Box::new(tracer)));
    let mut sums = std::mem::take(&mut *sums.lock().unwrap());
    sums.retain(|name, _| !name.starts_with("main."));
    sums
}

/// A run depends only on its arguments, every task exits, and the counters are consistent.
#[test]
fn any_run_ends_balances_and_can_be_repeated() {
    for seed in 0..64 {
        let case = Case::that_ends(seed);
        assert_eq!(roost_swarm::check(&case), Ok(()), "seed {seed}\n{case}");
    }
}

/// In this case a CPU with two tasks is passed over for a while, because the one task of another CPU makes that fully
/// busy.
#[test]
fn two_tasks_on_a_cpu_wait_until_they_overload_it() {
    assert_eq!(roost_swarm::check(&Case::of(47583)), Ok(()));
}

/// In this case a task of SCHED_IDLE forks under 5.19. Its child begins as far ahead of other tasks as it is itself.
#[test]
fn a_child_waits_as_long_as_its_parent_would() {
    assert_eq!(roost_swarm::check(&Case::of(3_000_974)), Ok(()));
}

/// In this case a heavy task leaves much of its load behind (5.16), whose average depends on the moment in a period.
#[test]
fn averages_of_what_a_task_left_are_as_old_as_others() {
    assert_eq!(roost_swarm::check(&Case::of(3_006_972)), Ok(()));
}

/// In this case the live scheduler's LLCs hand a task of SCHED_IDLE to each other, each after its watch has looked.
#[test]
fn a_task_that_has_waited_for_a_second_stays_where_the_watch_looks() {
    assert_eq!(roost_swarm::check(&Case::of(8_016_547)), Ok(()));
}

/// In this case a CPU goes while tasks on it have not set their affinity yet. That moves them, maybe to a CPU that
/// their affinity will leave out.
#[test]
fn a_task_that_is_moved_has_not_always_set_its_affinity() {
    assert_eq!(roost_swarm::check(&Case::of(3_008_331)), Ok(()));
}

/// The same for benchmarks, which are cut off in the middle.
#[test]
fn any_benchmark_balances() {
    let benchmarks = [
        "coremark:threads=9",
        "hackbench:groups=1,loops=3,mode=pipe",
        "iperf3:noise=3",
        "netperf-tcp-rr:clients=7",
        "netperf-udp-rr:clients=5",
        "schbench:messages=2,workers=5",
        "tbench:clients=6",
    ];
    for (seed, benchmark) in (0..63).zip(benchmarks.iter().cycle()) {
        let case = Case::of(seed);
        let machine = Arc::new(case.machine.machine().unwrap());
        let mut workload = roost_workload::resolve(benchmark, Some(SECOND / 50)).unwrap();
        // If measuring began during a balancing pass, only a part of the pass would be counted.
        workload.measured_from_ns = 0;
        let outcome = run(&machine, &workload, &case.scheduler(), seed, None);
        assert_eq!(roost_swarm::accounts(&outcome, &machine), Ok(()), "{benchmark} on\n{case}");
        assert_eq!(outcome, run(&machine, &workload, &case.scheduler(), seed, None));
    }
}

/// No CPU is idle while a hog waits: if there are at least as many CPUs as hogs, each hog has a CPU of its own after a
/// second. By then, idle CPUs have balanced every domain many times; their longest interval is twice the domain's span
/// in ms (128 ms here). What a hog can still lose is the work of ticks and balancing and a few moves, well below 5% of
/// a second.
#[test]
fn hogs_have_a_cpu_each_where_there_are_enough() {
    for seed in 0..24 {
        let case = Case::of(seed);
        let scheduler = match &case.version {
            Some(version) => format!("fair@{version}"),
            None => case.scheduler(),
        };
        let machine = Arc::new(case.machine.machine().unwrap());
        let hogs = (machine.nr_cpus() * (seed as usize + 1)).div_ceil(24);
        let workload = roost_workload::resolve(&format!("coremark:threads={hogs}"), None).unwrap();
        let times = cpu_time(&machine, &workload, &scheduler, seed, (1, 2));
        assert_eq!(times.len(), hogs);
        for (task, ns) in times {
            assert!(ns >= SECOND / 100 * 95, "{task} ran {} us of 1 s, {scheduler}", ns / 1000);
        }
    }
}

/// Two hogs with nice 0 and 5 share a CPU as 1024 to 335, the kernel's weights.
#[test]
fn weights_divide_a_cpu() {
    let text = r#"{"tasks": {
        "nice0": {"cpus": [2], "loop": -1, "run": 1000},
        "nice5": {"cpus": [2], "loop": -1, "run": 1000, "priority": 5}
    }, "global": {"duration": 10}}"#;
    let workload = rtapp::parse(text, "shares.json").unwrap();
    let machine = machine("l3:2 core:2 pu:1");
    for scheduler in &versions() {
        let times = cpu_time(&machine, &workload, scheduler, 1, (0, 10));
        let of = |task: &str| {
            times
                .iter()
                .filter(|(name, _)| name.starts_with(task))
                .map(|(_, ns)| *ns as f64)
                .sum::<f64>()
        };
        let (ratio, expected) = (of("nice0") / of("nice5"), 1024.0 / 335.0);
        assert!((ratio / expected - 1.0).abs() < 0.03, "{scheduler}: {ratio} to 1, {times:?}");
        let total = of("nice0") + of("nice5");
        assert!(total > 9.9e9, "{scheduler}: the CPU idles although two tasks want it: {total}");
    }
}

/// Three equal hogs on one CPU get a third each, in whatever order they came.
#[test]
fn equals_have_equal_shares() {
    let text = r#"{"tasks": {"hog": {"instance": 3, "cpus": [0], "loop": -1, "run": 700}},
        "global": {"duration": 10}}"#;
    let workload = rtapp::parse(text, "equals.json").unwrap();
    let machine = machine("core:2 pu:2");
    for scheduler in &versions() {
        let times = cpu_time(&machine, &workload, scheduler, 5, (0, 10));
        assert_eq!(times.len(), 3);
        for (task, ns) in times {
            let share = ns as f64 / 1e10;
            assert!((share * 3.0 - 1.0).abs() < 0.03, "{scheduler}: {task} has {share}");
        }
    }
}

/// A task that a timer wakes on an idle CPU begins its work after the interrupt, the wakeup and the switch, and little
/// else.
#[test]
fn no_wakeup_is_free() {
    let text = r#"{"tasks": {"t": {"loop": -1, "run": 500,
        "timer": {"ref": "unique", "period": 3000}}}, "global": {"duration": 1}}"#;
    let workload = rtapp::parse(text, "timer.json").unwrap();
    let machine = machine("l3:2 core:2 pu:1");
    let figures = &machine.figures;
    let least =
        figures.interrupt_ns.value + figures.wakeup_ns.value + figures.context_switch_ns.value;
    for scheduler in &versions() {
        let outcome = run(&machine, &workload, scheduler, 1, None);
        let latency = outcome.metrics.iter().find(|metric| metric.name.ends_with("wu_lat avg"));
        let latency_ns = latency.unwrap().value.unwrap() * 1000.0;
        let range = least as f64..2.0 * least as f64;
        assert!(range.contains(&latency_ns), "{scheduler}: {latency_ns} of {range:?} ns");
    }
}
