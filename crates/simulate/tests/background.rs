//! Kernel threads run besides a workload, unless the run is quiet.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use roost_engine::{CpuId, LeftAs, Time, TraceTask, Tracer};
use roost_simulate::{Control, Outcome, RunError, Simulation};

const MS: u64 = 1_000_000;

/// How often each kernel thread was woken, by name.
#[derive(Clone, Default)]
struct Seen(Rc<RefCell<BTreeMap<String, u32>>>);

impl Tracer for Seen {
    fn switch(
        &mut self,
        _: Time,
        _: CpuId,
        _: Option<(TraceTask<'_>, LeftAs)>,
        _: Option<TraceTask<'_>>,
    ) {
    }
    fn wakeup(&mut self, _: Time, _: CpuId, task: TraceTask<'_>, cpu: CpuId) {
        if !task.is_kernel_thread() {
            return;
        }
        if let Some(own) = task.name().strip_prefix("kworker/") {
            assert_eq!(own.parse(), Ok(cpu), "it is bound to its CPU");
        }
        *self.0.borrow_mut().entry(task.name().to_owned()).or_default() += 1;
    }
}

fn simulation(workload: &str, duration_ms: Option<u64>, quiet: bool) -> Simulation {
    let duration_ns = duration_ms.map(|ms| ms * MS);
    let simulation = Simulation::named("2n2l4c", workload, duration_ns, "fair@7.2");
    Simulation { quiet, ..simulation.expect("it is understood") }
}

fn seen(quiet: bool) -> (Outcome, BTreeMap<String, u32>) {
    let seen = Seen::default();
    let control = Control { tracer: Some(Box::new(seen.clone())), ..Control::new(1) };
    let simulation = simulation("coremark:threads=4", Some(3000), quiet);
    let outcome = simulation.run(control).expect("it runs");
    let seen = seen.0.borrow().clone();
    (outcome, seen)
}

/// In 3 s: a compactor per node wakes every 512 ms, DAMON every 640 ms, and grace periods of three wakeups come every
/// 2 s. The first of each comes within its period. A worker wakes every second on each CPU that is busy, of which there
/// are four. On idle CPUs it does so only with the timer of another thread.
#[test]
fn each_kind_wakes_as_often_as_it_was_measured() {
    let (_, seen) = seen(false);
    let times = |name: &str| seen.get(name).copied().unwrap_or_default();
    let mut workers: Vec<u32> = (0..16).map(|cpu| times(&format!("kworker/{cpu}"))).collect();
    workers.sort_unstable();
    assert!(workers[12..].iter().all(|times| (2..=3).contains(times)), "{seen:?}");
    assert!(workers[0] == 0 && workers[11] <= 3, "{seen:?}");
    assert!((10..=12).contains(&times("kcompactd")), "{seen:?}");
    assert!((4..=5).contains(&times("kdamond")), "{seen:?}");
    assert!((3..=6).contains(&times("rcu_preempt")), "{seen:?}");
}

#[test]
fn a_quiet_run_has_none_and_both_do_the_same_work() {
    let ((beside, _), (alone, seen)) = (seen(false), seen(true));
    assert_eq!(seen, BTreeMap::new());
    let score = |outcome: &Outcome| outcome.metrics[0].value.expect("it is measured");
    assert!((score(&beside) / score(&alone) - 1.0).abs() < 0.01);
}

/// Nothing waits for kernel threads: neither the end of a run, nor the detection of a deadlock.
#[test]
fn they_neither_prolong_a_run_nor_hide_a_deadlock() {
    let ends = |quiet| {
        let outcome = simulation("hackbench:groups=1,loops=5", None, quiet).run(Control::new(1));
        outcome.expect("it ends").elapsed_ns
    };
    assert!(ends(false) < ends(true) + 10 * MS);
    let mut stuck = simulation("hackbench:groups=1,loops=5", None, false);
    // The gate waits for one task more than there is.
    Arc::make_mut(&mut stuck.workload).barriers[0] += 1;
    match stuck.run(Control::new(1)) {
        Err(RunError::Deadlock { waiting: 40, at_ns, .. }) => assert!(at_ns < 1000 * MS, "{at_ns}"),
        other => panic!("{other:?}"),
    }
}
