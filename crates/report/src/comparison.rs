//! The outcomes of several schedulers, compared with each other.

use std::collections::BTreeMap;

use roost_engine::{Outcome, RunTime};
use roost_workload::Better;

use crate::efficiency::SearchCounts;
use crate::experiment::{self, Experiment};
use crate::runs::Run;
use crate::statistics::{Summary, change_pct};

/// What several schedulers did with one workload on one machine. The first one is the baseline.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// What was compared, where and by which roost.
    pub experiment: Experiment,
    /// Number of complete repeats of each scheduler.
    pub repeats: usize,
    /// Simulated or real time of each run, in ns: one vector per scheduler, one value per repeat.
    pub elapsed_ns: Vec<Vec<u64>>,
    /// Number of repeats that were asked for, if the comparison was interrupted before that.
    pub interrupted: Option<usize>,
    /// All single runs, including finished runs of later, incomplete repeats.
    pub runs: Vec<Run>,
    /// Where tasks ran, in the same order as `elapsed_ns`.
    pub run_time: Vec<Vec<RunTime>>,
    /// The metrics, in the workload's order.
    pub metrics: Vec<MetricComparison>,
    /// The counters, in the order in which the schedulers report them.
    pub counters: Vec<CounterComparison>,
    /// The histograms, in the same order.
    pub histograms: Vec<HistogramComparison>,
}

/// One metric under each scheduler. The vectors have one entry per scheduler.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricComparison {
    /// Name.
    pub name: String,
    /// Unit.
    pub unit: String,
    /// Which direction is better.
    pub better: Better,
    /// Values, one per repeat. `None`: that run measured nothing.
    pub samples: Vec<Vec<Option<f64>>>,
    /// Summaries of the values. `None`: no run measured anything.
    pub summaries: Vec<Option<Summary>>,
}

/// One counter under each scheduler.
#[derive(Clone, Debug, PartialEq)]
pub struct CounterComparison {
    /// Name.
    pub name: String,
    /// Values, one per repeat. `None`: that run does not have the counter.
    pub samples: Vec<Vec<Option<f64>>>,
    /// Arithmetic mean over the repeats, one per scheduler. `None`: the scheduler does not have the counter.
    pub means: Vec<Option<f64>>,
}

/// One histogram under each scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramComparison {
    /// What was measured.
    pub name: String,
    /// Sums over the repeats: one vector per scheduler, empty if the scheduler does not have the histogram. Bucket 0 is
    /// 0 to 1 us, bucket `n` is `2^(n-1)` to `2^n` us.
    pub counts: Vec<Vec<u64>>,
}

impl Comparison {
    /// Compares `outcomes[scheduler][repeat]`. A metric counts as not measured if a scheduler has no outcome, an
    /// outcome lacks the metric, or the value is not finite.
    pub fn new(experiment: Experiment, mut outcomes: Vec<Vec<Outcome>>) -> Self {
        outcomes.resize_with(experiment.schedulers.len(), Vec::new);
        let seed = experiment.seed;
        let elapsed = |runs: &Vec<Outcome>| runs.iter().map(|run| run.elapsed_ns).collect();
        Self {
            experiment,
            repeats: outcomes.iter().map(Vec::len).max().unwrap_or(0),
            elapsed_ns: outcomes.iter().map(elapsed).collect(),
            interrupted: None,
            run_time: outcomes
                .iter()
                .map(|runs| runs.iter().map(|run| run.run_time.clone()).collect())
                .collect(),
            metrics: metrics_of(&outcomes),
            counters: counters_of(&outcomes),
            histograms: histograms_of(&outcomes),
            runs: Run::all(seed, outcomes),
        }
    }

    /// The schedulers' labels, or their names on the command line.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        self.experiment.schedulers.iter().map(|scheduler| scheduler.name.as_str())
    }

    /// The heading of the comparison's tables: what was compared, where and by which roost.
    pub(crate) fn heading(&self) -> String {
        let elapsed_ns = self.elapsed_ns.iter().flatten().copied();
        let mark = self.interrupted.map_or_else(String::new, |wanted| {
            format!("PARTIAL: interrupted after {} of {wanted} repeats\n", self.repeats)
        });
        mark + &experiment::heading(&self.experiment, self.repeats, elapsed_ns)
    }

    /// Marks the comparison as interrupted before `wanted` repeats were complete. `later` are finished runs of
    /// incomplete repeats.
    #[must_use]
    pub fn interrupted(mut self, wanted: usize, later: impl IntoIterator<Item = Run>) -> Self {
        self.interrupted = Some(wanted);
        self.runs.extend(later);
        self
    }

    /// Seed of the repeat with this index.
    pub fn seed_of(&self, repeat: usize) -> u64 {
        self.experiment.seed.wrapping_add(repeat as u64)
    }

    /// Means of a counter, one per scheduler. `None` if no scheduler reports the counter.
    pub(crate) fn counter(&self, name: &str) -> Option<&[Option<f64>]> {
        let counter = self.counters.iter().find(|counter| counter.name == name)?;
        Some(&counter.means)
    }

    /// The idle-search counters of a scheduler, averaged over the repeats. `None` if the scheduler does not report them
    /// or never searched.
    pub fn search_counts(&self, scheduler: usize) -> Option<SearchCounts> {
        let mean = |name: &str| *self.counter(name)?.get(scheduler)?;
        let counts = SearchCounts {
            search: mean("sis_search")?,
            domain: mean("sis_domain_search")?,
            scanned: mean("sis_scanned")?,
            failed: mean("sis_failed")?,
        };
        (counts.search > 0.0).then_some(counts)
    }
}

impl MetricComparison {
    /// A metric with its values, `samples[scheduler][repeat]`.
    pub(crate) fn new(
        name: String,
        unit: &str,
        better: Better,
        samples: Vec<Vec<Option<f64>>>,
    ) -> Self {
        let summarise = |values: &Vec<Option<f64>>| {
            Summary::of(&values.iter().copied().flatten().collect::<Vec<_>>())
        };
        let summaries = samples.iter().map(summarise).collect();
        Self { name, unit: unit.to_owned(), better, samples, summaries }
    }

    /// Change of the arithmetic mean from the baseline, in percent of the baseline. Positive is better. `None` for the
    /// baseline itself, and if a value is missing.
    pub fn change_pct(&self, scheduler: usize) -> Option<f64> {
        let (baseline, summary) = self.against_baseline(scheduler)?;
        change_pct(self.better, baseline.mean, summary.mean)
    }

    /// Whether the 95% confidence intervals of this scheduler's mean and the baseline's are disjoint. `None` for the
    /// baseline itself, and if either has fewer than two values.
    pub fn significant(&self, scheduler: usize) -> Option<bool> {
        let (baseline, summary) = self.against_baseline(scheduler)?;
        summary.differs_from(baseline)
    }

    fn against_baseline(&self, scheduler: usize) -> Option<(&Summary, &Summary)> {
        if scheduler == 0 {
            return None;
        }
        Some((self.summaries.first()?.as_ref()?, self.summaries.get(scheduler)?.as_ref()?))
    }
}

/// Each name once, in order of first appearance.
fn names_in_order<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut position = BTreeMap::new();
    for name in names {
        let next = position.len();
        position.entry(name).or_insert(next);
    }
    let mut ordered: Vec<_> = position.into_iter().collect();
    ordered.sort_by_key(|&(_, position)| position);
    ordered.into_iter().map(|(name, _)| name).collect()
}

fn metrics_of(outcomes: &[Vec<Outcome>]) -> Vec<MetricComparison> {
    let all = || outcomes.iter().flatten().flat_map(|outcome| &outcome.metrics);
    let mut metrics = Vec::new();
    for name in names_in_order(all().map(|metric| metric.name.as_str())) {
        let Some(first) = all().find(|metric| metric.name == name) else { continue };
        let sample = |outcome: &Outcome| {
            let metric = outcome.metrics.iter().find(|metric| metric.name == name)?;
            metric.value.filter(|value| value.is_finite())
        };
        let samples: Vec<Vec<_>> =
            outcomes.iter().map(|repeats| repeats.iter().map(sample).collect()).collect();
        metrics.push(MetricComparison::new(name.to_owned(), &first.unit, first.better, samples));
    }
    metrics
}

fn counters_of(outcomes: &[Vec<Outcome>]) -> Vec<CounterComparison> {
    let all = || outcomes.iter().flatten().flat_map(|outcome| &outcome.counters);
    let sample = |name: &str, outcome: &Outcome| {
        let (_, value) = outcome.counters.iter().find(|(other, _)| other == name)?;
        Some(*value).filter(|value| value.is_finite())
    };
    let mean = |samples: &Vec<Option<f64>>| {
        let values: Vec<f64> = samples.iter().copied().flatten().collect();
        Summary::of(&values).map(|summary| summary.mean)
    };
    names_in_order(all().map(|(name, _)| name.as_str()))
        .into_iter()
        .map(|name| {
            let of_runs = |runs: &Vec<Outcome>| runs.iter().map(|run| sample(name, run)).collect();
            let samples: Vec<Vec<_>> = outcomes.iter().map(of_runs).collect();
            let means = samples.iter().map(mean).collect();
            CounterComparison { name: name.to_owned(), samples, means }
        })
        .collect()
}

fn histograms_of(outcomes: &[Vec<Outcome>]) -> Vec<HistogramComparison> {
    let all = || outcomes.iter().flatten().flat_map(|outcome| &outcome.histograms);
    let sum = |name: &str, repeats: &[Outcome]| {
        let mut sums: Vec<u64> = Vec::new();
        let histograms = repeats.iter().flat_map(|outcome| &outcome.histograms);
        for histogram in histograms.filter(|histogram| histogram.name == name) {
            sums.resize(sums.len().max(histogram.counts.len()), 0);
            for (sum, count) in sums.iter_mut().zip(&histogram.counts) {
                *sum = sum.saturating_add(*count);
            }
        }
        sums
    };
    names_in_order(all().map(|histogram| histogram.name.as_str()))
        .into_iter()
        .map(|name| HistogramComparison {
            name: name.to_owned(),
            counts: outcomes.iter().map(|repeats| sum(name, repeats)).collect(),
        })
        .collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::experiment::{Build, Contender, Input, Place};
    use roost_engine::{Histogram, MetricValue};

    /// An experiment with this workload and these schedulers on a machine "zen3", starting with seed 7.
    pub(crate) fn experiment(workload: &str, schedulers: &[&str]) -> Experiment {
        let input = |name: &str| Input { name: name.to_owned(), sha256: "0123456789abcdef".into() };
        let contender = |name: &&str| Contender {
            name: (*name).to_owned(),
            spec: (*name).to_owned(),
            kernel: "5.16".to_owned(),
            program: false,
            switches: name.split('+').skip(1).map(str::to_owned).collect(),
            program_sha256: None,
            mechanisms: Vec::new(),
            notes: Vec::new(),
        };
        Experiment {
            measured_from_ns: Some(0),
            start: Some("running"),
            quiet: Some(false),
            roost: Build {
                version: "0.1.0".to_owned(),
                commit: Some("a".repeat(40)),
                modified: false,
            },
            place: Place::Simulated,
            machine: input("zen3"),
            workload: input(workload),
            duration_ns: None,
            seed: 7,
            schedulers: schedulers.iter().map(contender).collect(),
        }
    }

    /// An outcome with one metric, the four search counters and one histogram.
    pub(crate) fn outcome(better: Better, value: Option<f64>, counters: &[(&str, f64)]) -> Outcome {
        let (name, unit) = match better {
            Better::Higher => ("throughput", "MB/s"),
            Better::Lower => ("time", "s"),
        };
        Outcome {
            elapsed_ns: 1_000_000_000,
            metrics: vec![MetricValue {
                name: name.to_owned(),
                unit: unit.to_owned(),
                better,
                value,
                drift: None,
            }],
            counters: counters.iter().map(|&(name, value)| (name.to_owned(), value)).collect(),
            histograms: vec![Histogram { name: "sis_us".to_owned(), counts: vec![1, 2] }],
            too_short: None,
            waiting: None,
            run_time: RunTime::default(),
        }
    }

    /// A comparison of one metric, `values[scheduler][repeat]`.
    pub(crate) fn comparison(better: Better, values: &[&[Option<f64>]]) -> Comparison {
        let names = ["fair@5.16", "fair@5.16+numa-imbalance", "roost", "fourth"];
        let outcomes = values
            .iter()
            .map(|repeats| repeats.iter().map(|&value| outcome(better, value, &[])).collect())
            .collect();
        Comparison::new(experiment("hackbench", &names[..values.len()]), outcomes)
    }

    #[test]
    fn the_first_scheduler_is_the_baseline() {
        let values: [&[_]; 2] = [&[Some(10.0), Some(10.2)], &[Some(8.0), Some(8.2)]];
        let c = comparison(Better::Lower, &values);
        let metric = &c.metrics[0];
        assert_eq!((metric.change_pct(0), metric.significant(0)), (None, None));
        assert!((metric.change_pct(1).unwrap() - 100.0 * 2.0 / 10.1).abs() < 1e-9);
        // Two values 0.2 apart: the half width is 12.706 x 0.1414 / sqrt 2 = 1.27, so the intervals around 10.1 and 8.1
        // overlap.
        assert_eq!(metric.significant(1), Some(false));
        assert_eq!(c.repeats, 2);
    }

    #[test]
    fn repeats_without_a_value_are_left_out() {
        let values: [&[_]; 2] =
            [&[Some(10.0), None, Some(12.0)], &[None, Some(f64::NAN), Some(5.0)]];
        let metric = &comparison(Better::Higher, &values).metrics[0];
        assert_eq!(metric.summaries[0].unwrap().count, 2);
        assert_eq!(metric.summaries[0].unwrap().mean, 11.0);
        assert_eq!(metric.samples[1], [None, None, Some(5.0)]);
        assert_eq!(metric.significant(1), None, "one value has no interval");
        let nothing = comparison(Better::Higher, &[&[None], &[Some(1.0)]]);
        assert_eq!(nothing.metrics[0].change_pct(1), None);
    }

    #[test]
    fn counters_are_means_and_histograms_sums() {
        let first = outcome(Better::Lower, None, &[("nr_migrations", 3.0), ("llcs_shared", 0.5)]);
        let second = outcome(Better::Lower, None, &[("nr_migrations", 5.0), ("llcs_shared", 1.5)]);
        let other = outcome(Better::Lower, None, &[("sis_search", 1.0), ("nr_migrations", 0.0)]);
        let c =
            Comparison::new(experiment("w", &["a", "b"]), vec![vec![first, second], vec![other]]);
        let counters: Vec<_> =
            c.counters.iter().map(|counter| (counter.name.as_str(), &counter.means[..])).collect();
        assert_eq!(counters[0], ("nr_migrations", &[Some(4.0), Some(0.0)][..]));
        assert_eq!(counters[1], ("llcs_shared", &[Some(1.0), None][..]));
        assert_eq!(counters[2], ("sis_search", &[None, Some(1.0)][..]));
        assert_eq!(c.histograms[0].counts, [vec![2, 4], vec![1, 2]]);
    }

    #[test]
    fn schedulers_without_outcomes_are_not_measured() {
        let runs = vec![vec![outcome(Better::Lower, Some(1.0), &[])]];
        let c = Comparison::new(experiment("w", &["a", "b"]), runs);
        assert_eq!(c.metrics[0].summaries[1], None);
        assert!(Comparison::new(experiment("w", &[]), Vec::new()).metrics.is_empty());
    }
}
