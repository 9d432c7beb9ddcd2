//! Properties of whole runs: the real fair class, in every version, on machines and workloads that
//! nobody chose.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use roost_engine::{Control, CpuId, LeftAs, Outcome, Time, TraceTask, Tracer};
use roost_fair::{Fair, Features};
use roost_machine::Machine;
use roost_workload::{Workload, rtapp};

const SECOND: u64 = 1_000_000_000;

/// Every version, as a scheduler.
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
    let fair = Fair::new(machine, Features::parse(scheduler).unwrap());
    let stop = AtomicBool::new(false);
    let control = Control { seed, tracer, stop: &stop, progress: &|_| {} };
    roost_engine::run(machine, workload, fair, control)
        .unwrap_or_else(|error| panic!("{scheduler}, seed {seed}: {error}"))
}

/// Adds up how long each task was on a CPU between `from` and `to`, by name.
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
            // Names of instances may be the same: the number keeps them apart.
            *sums.entry(format!("{}.{}", task.name, task.pid)).or_default() += within;
        }
        if next.is_some() {
            self.running.insert(cpu, now);
        }
    }

    fn wakeup(&mut self, _: Time, _: CpuId, _: TraceTask<'_>, _: CpuId) {}
}

/// CPU time by task between `from` and `to` seconds, without the root task.
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

/// Machines from one CPU to 64, with and without SMT, LLCs and nodes.
fn any_machine() -> impl Strategy<Value = String> {
    (1..=4, 1..=3, 1..=4, 1..=2).prop_map(|(nodes, llcs, cores, threads)| {
        format!("node:{nodes} l3:{llcs} core:{cores} pu:{threads}")
    })
}

fn any_version() -> impl Strategy<Value = String> {
    let switched = [
        "fair@5.16+numa-imbalance",
        "fair@5.19+sis-util",
        "fair@6.15+llc-imbalance",
        "fair@5.2+sis-util+numa-imbalance-merged",
        "fair@3.9+llc-imbalance",
    ];
    let mut schedulers = versions();
    schedulers.extend(switched.map(str::to_owned));
    prop::sample::select(schedulers)
}

/// One or two events of a phase. `i` keeps keys apart.
fn any_event(i: usize) -> impl Strategy<Value = String> {
    let us = 1_u32..2_000;
    prop_oneof![
        4 => us.clone().prop_map(move |us| format!("\"run{i}\": {us}")),
        1 => us.clone().prop_map(move |us| format!("\"runtime{i}\": {us}")),
        3 => us.clone().prop_map(move |us| format!("\"sleep{i}\": {us}")),
        2 => us.clone().prop_map(move |us| {
            format!("\"timer{i}\": {{\"ref\": \"unique{i}\", \"period\": {us}}}")
        }),
        2 => (us, 0..2).prop_map(move |(us, mutex)| {
            format!("\"lock{i}\": \"m{mutex}\", \"run{i}\": {us}, \"unlock{i}\": \"m{mutex}\"")
        }),
        1 => Just(format!("\"yield{i}\": \"\"")),
        1 => Just(format!("\"fork{i}\": \"child\"")),
    ]
}

/// A task of one to three phases that ends.
fn any_task() -> impl Strategy<Value = String> {
    let events = (any_event(0), any_event(1), any_event(2));
    let phase = (1..8_u32, events)
        .prop_map(|(times, (a, b, c))| format!("{{\"loop\": {times}, {a}, {b}, {c}}}"));
    let phases = prop::collection::vec(phase, 1..=3);
    let pinned = prop_oneof![4 => Just(""), 1 => Just("\"cpus\": [0],")];
    (1..6_u32, -20..20, pinned, phases).prop_map(|(instances, nice, pinned, phases)| {
        let phases: Vec<String> =
            phases.iter().enumerate().map(|(i, phase)| format!("\"p{i}\": {phase}")).collect();
        format!(
            "{{\"instance\": {instances}, \"priority\": {nice}, {pinned} \"loop\": 2, \"phases\": {{{}}}}}",
            phases.join(", ")
        )
    })
}

/// A workload of which every task ends: loops are finite, a mutex is held in one phase and alone.
fn any_workload() -> impl Strategy<Value = Workload> {
    prop::collection::vec(any_task(), 1..=4).prop_map(|tasks| {
        let tasks: Vec<String> =
            tasks.iter().enumerate().map(|(i, task)| format!("\"t{i}\": {task}")).collect();
        let child = r#""child": {"instance": 0, "loop": 3, "run": 150, "sleep": 100}"#;
        let text = format!("{{\"tasks\": {{{}, {child}}}}}", tasks.join(", "));
        rtapp::parse(&text, "any").unwrap_or_else(|error| panic!("{error}\n{text}"))
    })
}

/// Accounts that have to balance after any run.
fn assert_accounts(outcome: &Outcome, machine: &Machine) {
    let counters: BTreeMap<&str, f64> =
        outcome.counters.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let of = |name: &str| counters[name];
    let sums_within = |parts: &[&str], whole: &str| {
        let sum: f64 = parts.iter().map(|part| of(part)).sum();
        assert!(sum <= of(whole), "{parts:?} make {sum}, {whole} is {}", of(whole));
    };
    sums_within(&["wakeups_prev"], "wakeups");
    sums_within(&["wakeups_waker_llc"], "wakeups");
    sums_within(&["migrations_llc", "migrations_node"], "migrations");
    sums_within(&["sis_domain_search"], "sis_search");
    sums_within(&["sis_failed"], "sis_domain_search");
    sums_within(&["sis_search"], "sis_scanned");
    sums_within(&["nr_wakeups_affine"], "nr_wakeups_affine_attempts");
    let cpu_ns = machine.nr_cpus() as f64 * outcome.elapsed_ns as f64;
    assert!(of("run_ns") <= cpu_ns, "tasks had more CPU time than there was");
    assert!(of("llcs_shared") <= machine.llcs.len() as f64);
    let mut passes = 0.0;
    for (name, &count) in &counters {
        let Some((level, idle)) = name.split_once(".lb_count.") else { continue };
        let part = |what: &str| of(&format!("{level}.{what}.{idle}"));
        let (balanced, failed) = (part("lb_balanced"), part("lb_failed"));
        assert!(count >= balanced + failed, "{name}: {count} < {balanced} + {failed}");
        assert!(part("lb_nobusyg") + part("lb_nobusyq") <= balanced, "{name}");
        assert!(part("lb_hot_gained") <= part("lb_gained"), "{name}");
        passes += count;
    }
    assert!(passes > 0.0 || machine.nr_cpus() == 1 || outcome.elapsed_ns < SECOND / 10);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A run is a function of its arguments, every task exits, and the accounts balance.
    #[test]
    fn any_run_ends_balances_and_can_be_repeated(
        name in any_machine(),
        workload in any_workload(),
        scheduler in any_version(),
        seed in any::<u64>(),
    ) {
        let machine = machine(&name);
        // Without a duration a run ends when the last task has exited; otherwise it is an error.
        prop_assert_eq!(workload.duration_ns, None);
        let outcome = run(&machine, &workload, &scheduler, seed, None);
        assert_accounts(&outcome, &machine);
        let started: u32 = workload.start.iter().map(|&(_, count)| count).sum();
        let forks = outcome.counters.iter().find(|(name, _)| name == "forks").unwrap().1;
        prop_assert!(forks >= f64::from(started), "{forks} forks of {started} tasks");
        prop_assert_eq!(outcome, run(&machine, &workload, &scheduler, seed, None));
    }

    /// Benchmarks too, cut off in the middle.
    #[test]
    fn any_benchmark_balances(
        name in any_machine(),
        benchmark in prop::sample::select(vec![
            "coremark:threads=9", "hackbench:groups=1,loops=3,mode=pipe", "iperf3:noise=3",
            "netperf-tcp-rr:clients=7", "netperf-udp-rr:clients=5", "schbench:messages=2,workers=5",
            "tbench:clients=6",
        ]),
        scheduler in any_version(),
        seed in any::<u64>(),
    ) {
        let machine = machine(&name);
        let workload = roost_workload::resolve(benchmark, Some(SECOND / 50)).unwrap();
        let outcome = run(&machine, &workload, &scheduler, seed, None);
        assert_accounts(&outcome, &machine);
        prop_assert_eq!(outcome, run(&machine, &workload, &scheduler, seed, None));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// No CPU idles while a hog waits: n hogs on at least n CPUs each have a CPU of their own after
    /// a second. By then every domain has been balanced many times by idle CPUs, whose longest
    /// interval is twice the span in ms (128 ms here); what is left to lose is the tick's and
    /// balancing's own work and a few moves, well below 5% of a second.
    #[test]
    fn hogs_have_a_cpu_each_where_there_are_enough(
        name in any_machine(),
        share in 1..=100_usize,
        scheduler in any_version(),
        seed in any::<u64>(),
    ) {
        let machine = machine(&name);
        let hogs = (machine.nr_cpus() * share).div_ceil(100);
        let workload = roost_workload::resolve(&format!("coremark:threads={hogs}"), None).unwrap();
        let times = cpu_time(&machine, &workload, &scheduler, seed, (1, 2));
        prop_assert_eq!(times.len(), hogs);
        for (task, ns) in times {
            prop_assert!(ns >= SECOND / 100 * 95, "{} ran {} us of 1 s", task, ns / 1000);
        }
    }
}

/// Two hogs of nice 0 and 5 on one CPU share it as 1024 to 335, the kernel's weights.
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

/// Three equal hogs on one CPU have a third each, whichever came first.
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

/// A task that a timer wakes on an idle CPU begins its work after the interrupt, the wakeup and the
/// switch, and after little else.
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
