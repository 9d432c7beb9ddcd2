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
        latencies: &LatencyCounts,
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
            latencies: latencies.records(),
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

/// Latencies with the same highest bits count as one: enough bits for [`LATENCY_DIGITS`], as in the records.
const LATENCY_BITS: u32 = 11;
/// Number of places for each power of two above the first ones.
const PLACES: usize = 1 << (LATENCY_BITS - 1);

/// The place at which a latency is counted.
#[inline]
fn place_of(ns: u64) -> usize {
    let ns = ns.min(MAX_LATENCY_NS);
    let dropped = (u64::BITS - LATENCY_BITS).saturating_sub(ns.leading_zeros());
    dropped as usize * PLACES + (ns >> dropped) as usize
}

/// The least latency that is counted at a place, ns.
fn latency_at(place: usize) -> u64 {
    let dropped = (place / PLACES).saturating_sub(1);
    ((place - dropped * PLACES) as u64) << dropped
}

/// Counts the wakeup latencies of the task classes that some metric needs. To put each of them into the records at once
/// would take more instructions (docs/notes/2026-11-25-speed.md).
pub(crate) struct LatencyCounts {
    /// Each class with its counts, by [`place_of`].
    classes: Vec<(String, Box<[u64]>)>,
}

impl LatencyCounts {
    pub(crate) fn new(workload: &Workload) -> Self {
        let mut classes: Vec<(String, Box<[u64]>)> = Vec::new();
        for metric in &workload.metrics {
            let Some(class) = latency_class(metric) else { continue };
            if !classes.iter().any(|(name, _)| name == class) {
                let places = place_of(MAX_LATENCY_NS) + 1;
                classes.push((class.to_owned(), vec![0; places].into()));
            }
        }
        Self { classes }
    }

    pub(crate) fn index_of(&self, class: &str) -> Option<u16> {
        self.classes.iter().position(|(name, _)| name == class).map(|index| index as u16)
    }

    #[inline]
    pub(crate) fn record(&mut self, class: u16, ns: u64) {
        self.classes[class as usize].1[place_of(ns)] += 1;
    }

    /// What was recorded.
    pub(crate) fn records(&self) -> LatencyRecords {
        let mut classes = Vec::new();
        for (class, counts) in &self.classes {
            // The bounds are valid.
            let Ok(mut record) = Latencies::new_with_bounds(1, MAX_LATENCY_NS, LATENCY_DIGITS)
            else {
                continue;
            };
            for (place, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                record.saturating_record_n(latency_at(place), count);
            }
            classes.push((class.clone(), record));
        }
        LatencyRecords { classes }
    }
}

/// Wakeup latencies by task class.
#[derive(Clone, Default)]
pub(crate) struct LatencyRecords {
    classes: Vec<(String, Latencies<u64>)>,
}

impl LatencyRecords {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A record counts a latency where it counts the one that stands for it, and places are in the latencies'
        /// order.
        #[test]
        fn latencies_that_share_a_place_are_one_in_the_records(bits in 0..42_u32, ns in any::<u64>()) {
            let ns = ns >> (63 - bits);
            let place = place_of(ns);
            let stands_for_it = latency_at(place);
            let record = Latencies::<u64>::new_with_bounds(1, MAX_LATENCY_NS, LATENCY_DIGITS);
            let record = record.expect("the bounds are valid");
            prop_assert!(record.equivalent(ns.min(MAX_LATENCY_NS), stands_for_it));
            prop_assert_eq!(place_of(stands_for_it), place);
            prop_assert!(stands_for_it == 0 || place_of(stands_for_it - 1) == place - 1);
        }
    }
}
