//! Everything that a run has counted up to a moment. A measurement is the difference of two of
//! them.

use hdrhistogram::Histogram as Latencies;
use roost_workload::{Metric, MetricKind, Workload};

use crate::outcome::Histogram;
use crate::scheduler::Scheduler;
use crate::sync::Shared;
use crate::time::Time;
use crate::world::World;

/// All counts of a run.
#[derive(Clone, Default)]
pub(crate) struct Totals {
    /// The moment, ns.
    pub ns: u64,
    /// Event counters of the workload.
    pub counts: Vec<u64>,
    /// Wakeup latencies.
    pub latencies: LatencyRecords,
    /// Counters of the engine.
    pub engine: Vec<(String, u64)>,
    /// Counters of the scheduler.
    pub scheduler: Vec<(String, u64)>,
    /// Histograms of the scheduler.
    pub histograms: Vec<Histogram>,
    /// Time for which tasks ran, by CPU, ns.
    pub run_ns: Vec<u64>,
}

impl Totals {
    /// The counts up to now.
    pub(crate) fn now<S: Scheduler>(
        world: &World,
        scheduler: &S,
        shared: &Shared,
        latencies: &LatencyRecords,
    ) -> Self {
        let mut engine = Vec::new();
        let run_ns = world.run_ns_now();
        world.counters_now().for_each(&mut |name, value| engine.push((name.to_owned(), value)));
        if let Some(memory) = &world.memory {
            memory.counters(&mut |name, value| engine.push((name.to_owned(), value)));
        }
        let mut of_scheduler = Vec::new();
        scheduler.counters(&mut |name, value| of_scheduler.push((name.to_owned(), value)));
        let mut histograms = Vec::new();
        scheduler.histograms(&mut |name, counts| {
            histograms.push(Histogram { name: name.to_owned(), counts: counts.to_vec() });
        });
        Self {
            ns: world.now().ns(),
            counts: shared.counts.clone(),
            latencies: latencies.clone(),
            engine,
            scheduler: of_scheduler,
            histograms,
            run_ns,
        }
    }

    /// The counts since `before`; everything if `before` is empty.
    pub(crate) fn since(mut self, before: &Self) -> Self {
        fn subtract<'a>(from: impl Iterator<Item = &'a mut u64>, what: impl Iterator<Item = u64>) {
            // If charged kernel work is taken back, a time can become smaller.
            from.zip(what).for_each(|(value, before)| *value = value.saturating_sub(before));
        }
        fn values(counters: &[(String, u64)]) -> impl Iterator<Item = u64> {
            counters.iter().map(|(_, value)| *value)
        }
        subtract(self.counts.iter_mut(), before.counts.iter().copied());
        subtract(self.run_ns.iter_mut(), before.run_ns.iter().copied());
        subtract(self.engine.iter_mut().map(|(_, value)| value), values(&before.engine));
        subtract(self.scheduler.iter_mut().map(|(_, value)| value), values(&before.scheduler));
        for (histogram, before) in self.histograms.iter_mut().zip(&before.histograms) {
            subtract(histogram.counts.iter_mut(), before.counts.iter().copied());
        }
        self.latencies.subtract(&before.latencies);
        Self { ns: self.ns - before.ns, ..self }
    }

    /// The time in s.
    pub(crate) fn seconds(&self) -> f64 {
        self.ns as f64 / 1e9
    }

    /// The value of a metric of `kind`, if it follows from counts and latencies alone.
    pub(crate) fn value(&self, kind: &MetricKind) -> Option<f64> {
        match kind {
            MetricKind::Rate { counter, scale, .. } => {
                Some(self.counts[*counter as usize] as f64 * scale / self.seconds().max(1e-9))
            }
            MetricKind::WakeupLatencyUs { class, percentile_milli } => {
                let percentile = f64::from(*percentile_milli) / 1000.0;
                let record = self.latencies.of(class)?;
                Some(record.value_at_percentile(percentile) as f64 / 1000.0)
            }
            MetricKind::MeanWakeupLatencyUs { class } => {
                self.latencies.of(class).map(|record| record.mean() / 1000.0)
            }
            MetricKind::WallSeconds
            | MetricKind::SecondsSince { .. }
            | MetricKind::BestRate { .. } => None,
        }
    }
}

/// The start of the measured part, and the start of its second half.
pub(crate) struct Marks {
    at: [Time; 2],
    /// The counts at the marks that have passed. A mark at the start has no counts.
    passed: Vec<Totals>,
}

/// The counts of the measured part.
pub(crate) struct Measured {
    pub all: Totals,
    /// Of each half; `None` if the run ended before the second half began.
    pub halves: Option<[Totals; 2]>,
}

impl Marks {
    /// The marks of `workload`: none if it runs until its tasks have exited.
    pub(crate) fn of(workload: &Workload) -> Self {
        let from = workload.measured_from_ns;
        let at = match workload.duration_ns {
            Some(end) if from < end => [from, from + (end - from) / 2].map(Time),
            _ => [Time::NEVER; 2],
        };
        let passed = if from == 0 { vec![Totals::default()] } else { Vec::new() };
        Self { at, passed }
    }

    /// The next mark. Events at that moment belong to the part that ends there.
    #[inline]
    pub(crate) fn next(&self) -> Time {
        self.at.get(self.passed.len()).copied().unwrap_or(Time::NEVER)
    }

    /// The next mark has been reached.
    pub(crate) fn pass(&mut self, totals: Totals) {
        self.passed.push(totals);
    }

    /// The measured part, which ends at `end`.
    pub(crate) fn measured(self, end: Totals) -> Measured {
        let mut passed = self.passed.into_iter();
        let Some(begin) = passed.next() else { return Measured { all: end, halves: None } };
        let halves =
            passed.next().map(|middle| [middle.clone().since(&begin), end.clone().since(&middle)]);
        Measured { all: end.since(&begin), halves }
    }
}

/// Largest latency recorded, one hour. Longer ones count as this.
const MAX_LATENCY_NS: u64 = 3_600_000_000_000;
/// Resolution of the latency records: 3 significant digits.
const LATENCY_DIGITS: u8 = 3;

/// Number of latencies that are recorded at once. Then the processor fetches several places of the records at a time.
const MOST_PENDING: usize = 128;

/// Wakeup latencies of the task classes that some metric needs.
#[derive(Clone, Default)]
pub(crate) struct LatencyRecords {
    classes: Vec<(String, Latencies<u64>)>,
    /// Latencies that are not in the records yet, in ns, with the number of their class.
    pending: Vec<(u16, u64)>,
}

impl LatencyRecords {
    pub(crate) fn new(workload: &Workload) -> Self {
        let mut classes: Vec<(String, Latencies<u64>)> = Vec::new();
        for metric in &workload.metrics {
            let Some(class) = latency_class(metric) else { continue };
            if classes.iter().any(|(name, _)| name == class) {
                continue;
            }
            if let Ok(record) = Latencies::new_with_bounds(1, MAX_LATENCY_NS, LATENCY_DIGITS) {
                classes.push((class.to_owned(), record));
            }
        }
        Self { classes, pending: Vec::with_capacity(MOST_PENDING) }
    }

    pub(crate) fn index_of(&self, class: &str) -> Option<u16> {
        self.classes.iter().position(|(name, _)| name == class).map(|index| index as u16)
    }

    #[inline]
    pub(crate) fn record(&mut self, class: u16, ns: u64) {
        self.pending.push((class, ns));
        if self.pending.len() == MOST_PENDING {
            self.record_pending();
        }
    }

    /// Puts pending latencies into the records.
    #[inline(never)]
    pub(crate) fn record_pending(&mut self) {
        for (class, ns) in self.pending.drain(..) {
            self.classes[class as usize].1.saturating_record(ns);
        }
    }

    /// Removes the latencies recorded before.
    fn subtract(&mut self, before: &Self) {
        for ((_, record), (_, before)) in self.classes.iter_mut().zip(&before.classes) {
            // Both have the same bounds, and `before` is a part of `record`.
            let subtracted = record.subtract(before);
            debug_assert!(subtracted.is_ok(), "{subtracted:?}");
        }
    }

    pub(crate) fn of(&self, class: &str) -> Option<&Latencies<u64>> {
        let record = self.classes.iter().find(|(name, _)| name == class).map(|(_, r)| r)?;
        (!record.is_empty()).then_some(record)
    }
}

fn latency_class(metric: &Metric) -> Option<&str> {
    match &metric.kind {
        MetricKind::WakeupLatencyUs { class, .. } | MetricKind::MeanWakeupLatencyUs { class } => {
            Some(class)
        }
        MetricKind::WallSeconds
        | MetricKind::SecondsSince { .. }
        | MetricKind::Rate { .. }
        | MetricKind::BestRate { .. } => None,
    }
}
