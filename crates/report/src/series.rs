//! Metrics whose names differ only in a number become one row of a table.

use crate::comparison::{Comparison, MetricComparison};
use crate::figure::{decimals, number};

/// Consecutive metrics with the same unit and direction, whose names differ only in a number that counts up (`eps of
/// 0`, `eps of 1`, ...). Most series have a single metric.
pub(crate) struct Series<'a>(Vec<&'a MetricComparison>);

/// All metrics as series, in order.
pub(crate) fn series(metrics: &[MetricComparison]) -> Vec<Series<'_>> {
    let mut all: Vec<Series<'_>> = Vec::new();
    for metric in metrics {
        match all.last_mut() {
            Some(Series(members)) if members.last().is_some_and(|last| follows(last, metric)) => {
                members.push(metric);
            }
            _ => all.push(Series(vec![metric])),
        }
    }
    all
}

/// Whether `next` is the same metric for the next number.
fn follows(last: &MetricComparison, next: &MetricComparison) -> bool {
    let (Some((before, number, after)), Some(other)) = (parts(&last.name), parts(&next.name))
    else {
        return false;
    };
    other == (before, number + 1, after) && (&last.unit, last.better) == (&next.unit, next.better)
}

/// The text before the first number in a name, the number, and the text after it.
fn parts(name: &str) -> Option<(&str, u32, &str)> {
    let mut start = 0;
    for word in name.split(' ') {
        if let Ok(number) = word.parse() {
            return Some((&name[..start], number, &name[start + word.len()..]));
        }
        start += word.len() + 1;
    }
    None
}

impl Series<'_> {
    /// The series as one metric. Each repeat has the mean of the members.
    pub(crate) fn shown(&self) -> MetricComparison {
        let Self(members) = self;
        let first = members[0];
        if members.len() == 1 {
            return first.clone();
        }
        let of_run = |scheduler: usize, repeat: usize| -> Option<f64> {
            let sample =
                |metric: &&MetricComparison| *metric.samples.get(scheduler)?.get(repeat)?;
            let values: Option<Vec<f64>> = members.iter().map(sample).collect();
            values.map(|values| values.iter().sum::<f64>() / values.len() as f64)
        };
        let runs = first.samples.iter().enumerate();
        let samples = runs
            .map(|(scheduler, runs)| (0..runs.len()).map(|run| of_run(scheduler, run)).collect());
        MetricComparison::new(self.name(), &first.unit, first.better, samples.collect())
    }

    fn name(&self) -> String {
        let Self(members) = self;
        let last = members.last().and_then(|last| parts(&last.name));
        let Some(((before, first, after), (_, last, _))) = parts(&members[0].name).zip(last) else {
            return members[0].name.clone();
        };
        format!("{before}{first} to {last}{after}")
    }

    /// Explains a row of several metrics, and how far they are apart. `None` for a single metric.
    pub(crate) fn legend(&self, comparison: &Comparison) -> Option<String> {
        let Self(members) = self;
        if members.len() == 1 {
            return None;
        }
        let means = |scheduler: usize| {
            members.iter().filter_map(move |m| Some((*m.summaries.get(scheduler)?)?.mean))
        };
        let all = (0..comparison.names().len()).flat_map(means).collect::<Vec<_>>();
        let decimals = decimals(all.iter().copied());
        let range = |(scheduler, name): (usize, &str)| {
            let least = means(scheduler).reduce(f64::min);
            let most = means(scheduler).reduce(f64::max);
            format!("{name} {} to {}", number(least, decimals), number(most, decimals))
        };
        let ranges: Vec<_> = comparison.names().enumerate().map(range).collect();
        let (name, count) = (self.name(), members.len());
        Some(format!("{name}: mean of {count} metrics, which are: {}.\n", ranges.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::{experiment, outcome};
    use roost_engine::{MetricValue, Outcome};
    use roost_workload::Better;

    fn run(values: &[(&str, f64)]) -> Outcome {
        let metric = |&(name, value): &(&str, f64)| MetricValue {
            name: name.to_owned(),
            unit: "events/s".to_owned(),
            better: Better::Higher,
            value: Some(value),
            drift: None,
        };
        let metrics = values.iter().map(metric).collect();
        Outcome { metrics, ..outcome(Better::Higher, None, &[]) }
    }

    #[test]
    fn metrics_of_instances_are_one_row_with_their_range() {
        let of = |a, b| run(&[("average eps", 9.0), ("eps of 0", a), ("eps of 1", b)]);
        let runs = vec![vec![of(10.0, 20.0), of(12.0, 26.0)]];
        let comparison = Comparison::new(experiment("w", &["s"]), runs);
        let all = series(&comparison.metrics);
        let shown: Vec<_> = all.iter().map(Series::shown).collect();
        assert_eq!(shown[1].name, "eps of 0 to 1");
        assert_eq!(shown[1].samples, [[Some(15.0), Some(19.0)]]);
        assert_eq!((shown.len(), shown[1].summaries[0].unwrap().mean), (2, 17.0));
        assert_eq!(all[0].legend(&comparison), None);
        let legend = "eps of 0 to 1: mean of 2 metrics, which are: s 11 to 23.\n";
        assert_eq!(all[1].legend(&comparison).as_deref(), Some(legend));
    }

    #[test]
    fn percentiles_and_gaps_are_no_series() {
        let names = ["p50", "p51", "eps of 0", "eps of 2", "0 x", "1 y"].map(|name| (name, 1.0));
        let comparison = Comparison::new(experiment("w", &["s"]), vec![vec![run(&names)]]);
        assert_eq!(series(&comparison.metrics).len(), 6);
    }
}
