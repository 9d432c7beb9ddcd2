//! The result of a run.

use roost_machine::Machine;
use roost_workload::{Better, Metric, MetricKind, Workload};

use crate::reached::TooShort;
use crate::sync::Shared;
use crate::task::State;
use crate::time::Time;
use crate::totals::Totals;
use crate::world::World;

/// The result of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Simulated time of the run, ns.
    pub elapsed_ns: u64,
    /// The workload's metrics, in its order. Metrics, counters, histograms and run time cover the
    /// measured part of the run.
    pub metrics: Vec<MetricValue>,
    /// Counters of the engine and of the scheduler, in a fixed order.
    pub counters: Vec<(String, f64)>,
    /// Histograms of the scheduler.
    pub histograms: Vec<Histogram>,
    /// Where tasks ran.
    pub run_time: RunTime,
    /// What is missing if the duration ended the run before it could measure anything. Then its
    /// metrics mean nothing.
    pub too_short: Option<TooShort>,
    /// The task that was waiting longest when the run ended.
    pub waiting: Option<Waiting>,
}

/// A task that waited for a CPU when the run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Its name.
    pub task: String,
    /// How long it had waited, ns.
    pub ns: u64,
}

impl Outcome {
    /// The value of the counter called `name`.
    ///
    /// # Panics
    /// If the run has no such counter.
    #[track_caller]
    pub fn counter(&self, name: &str) -> f64 {
        let found = self.counters.iter().find(|(known, _)| known == name);
        let Some((_, value)) = found else { panic!("the run has no counter {name}") };
        *value
    }
}

/// Time that tasks spent on the CPUs of a place, ns, kernel work for them included. Empty if not
/// known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunTime {
    /// By node, with the machine's numbers.
    pub node_ns: Vec<u64>,
    /// By LLC, with the machine's numbers.
    pub llc_ns: Vec<u64>,
}

impl RunTime {
    /// Sums over the time on each CPU of `machine`, ns.
    pub fn by_place(machine: &Machine, cpu_ns: &[u64]) -> Self {
        let (mut node_ns, mut llc_ns) = (vec![0; machine.nodes.len()], vec![0; machine.llcs.len()]);
        for (cpu, ns) in machine.cpus.iter().zip(cpu_ns) {
            node_ns[cpu.node as usize] += ns;
            llc_ns[cpu.llc as usize] += ns;
        }
        Self { node_ns, llc_ns }
    }
}

/// A metric with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricValue {
    /// Name.
    pub name: String,
    /// Unit.
    pub unit: String,
    /// Which direction is better.
    pub better: Better,
    /// The value; `None` if nothing was measured: no wakeup of that class happened, or the duration
    /// ended the run before the tasks that were to be timed.
    pub value: Option<f64>,
    /// Relative increase from the first to the second half of the measured part; `None` if a half
    /// says nothing, for example about the time of the whole.
    pub drift: Option<f64>,
}

/// Counts of durations: bucket 0 is 0 to 1 us, bucket `n` is `2^(n-1)` to `2^n` us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// What was measured.
    pub name: String,
    /// Counts.
    pub counts: Vec<u64>,
}

/// Makes the outcome from the counts of the measured part and of its halves. `complete` if all
/// tasks have exited by `now`.
pub(crate) fn outcome(
    world: &World,
    workload: &Workload,
    shared: &Shared,
    measured: Totals,
    halves: Option<[Totals; 2]>,
    complete: bool,
) -> Outcome {
    let end = world.now();
    let value = |metric: &Metric| match &metric.kind {
        MetricKind::WallSeconds => complete.then_some(end.ns() as f64 / 1e9),
        MetricKind::SecondsSince { barrier } => shared.barriers[*barrier as usize]
            .opened
            .filter(|_| complete)
            .map(|opened| end.since(opened) as f64 / 1e9),
        MetricKind::BestRate { watch, amount } => shared.watches[*watch as usize]
            .shortest
            .map(|shortest_ns| amount / (shortest_ns.max(1) as f64 / 1e9)),
        MetricKind::Rate { counter, since: Some(barrier), scale } => {
            shared.barriers[*barrier as usize].opened.map(|opened| {
                let seconds = end.since(opened) as f64 / 1e9;
                measured.counts[*counter as usize] as f64 * scale / seconds.max(1e-9)
            })
        }
        counted => measured.value(counted),
    };
    let drift = |metric: &Metric| {
        let [first, second] = halves.as_ref()?.each_ref().map(|half| half.value(&metric.kind));
        let (first, second) = (first?, second?);
        (first > 0.0).then(|| second / first - 1.0)
    };
    let metrics = workload
        .metrics
        .iter()
        .map(|metric| MetricValue {
            name: metric.name.clone(),
            unit: metric.unit.to_owned(),
            better: metric.better,
            value: value(metric),
            drift: drift(metric),
        })
        .collect();
    let counted = |(name, value): (String, u64)| (name, value as f64);
    let mut counters: Vec<(String, f64)> = measured.engine.into_iter().map(counted).collect();
    if world.memory.is_some() {
        let mut count = |name: &str, value: u64| counters.push((name.to_owned(), value as f64));
        group_memory(world, workload, &mut count);
    }
    counters.push(("llcs_shared".to_owned(), world.sharing.mean(end)));
    counters.extend(measured.scheduler.into_iter().map(counted));
    Outcome {
        elapsed_ns: end.ns(),
        metrics,
        counters,
        histograms: measured.histograms,
        run_time: RunTime::by_place(&world.machine, &measured.run_ns),
        too_short: None,
        waiting: longest_wait(world, end),
    }
}

/// The task that has waited longest at `end`; of several the first.
fn longest_wait(world: &World, end: Time) -> Option<Waiting> {
    let waiting = world.tasks.iter().filter(|task| task.state == State::Queued);
    let first = waiting.min_by_key(|task| task.queued_at)?;
    Some(Waiting { task: world.name_of(first).to_owned(), ns: end.since(first.queued_at) })
}

/// Pages on each node that belong to processes with tasks in each task group, as in the group's
/// `memory.numa_stat`.
fn group_memory(world: &World, workload: &Workload, count: &mut dyn FnMut(&str, u64)) {
    for (number, group) in (0..).zip(&workload.groups) {
        let mut pages = vec![0; world.machine.nodes.len()];
        for process in 0..workload.processes.len() as u32 {
            let in_group =
                |t: &roost_workload::Template| t.process == process && t.group == Some(number);
            if workload.templates.iter().any(in_group) {
                let on = world.resident_by_node(process);
                pages.iter_mut().zip(on).for_each(|(sum, on)| *sum += on);
            }
        }
        for (node, pages) in pages.iter().enumerate() {
            count(&format!("memory_numa_stat{}.node{node}_pages", group.path), *pages);
        }
    }
}

/// Number of LLCs that run more than one task, as a mean over time.
#[derive(Debug)]
pub(crate) struct LlcSharing {
    running: Vec<u32>,
    shared: u64,
    /// Sum of (shared LLCs x ns).
    integral: u128,
    changed: Time,
    from: Time,
}

impl LlcSharing {
    /// Measures from `from` on.
    pub(crate) fn new(nr_llcs: usize, from: Time) -> Self {
        Self { running: vec![0; nr_llcs], shared: 0, integral: 0, changed: from, from }
    }

    fn advance(&mut self, now: Time) {
        self.integral += u128::from(self.shared) * u128::from(now.since(self.changed));
        self.changed = now.max(self.from);
    }

    #[inline]
    pub(crate) fn started(&mut self, llc: usize, now: Time) {
        self.running[llc] += 1;
        // Without a branch: whether an LLC becomes shared is as good as random.
        self.advance(now);
        self.shared += u64::from(self.running[llc] == 2);
    }

    #[inline]
    pub(crate) fn stopped(&mut self, llc: usize, now: Time) {
        self.running[llc] -= 1;
        self.advance(now);
        self.shared -= u64::from(self.running[llc] == 1);
    }

    /// Number of running tasks, by LLC.
    pub(crate) fn running(&self) -> &[u32] {
        &self.running
    }

    fn mean(&self, end: Time) -> f64 {
        let last = u128::from(self.shared) * u128::from(end.since(self.changed));
        let span = end.since(self.from);
        if span == 0 { 0.0 } else { (self.integral + last) as f64 / span as f64 }
    }
}
