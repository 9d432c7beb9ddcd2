//! One number of a comparison (`--metric`), for scripts, bisection and tuners.

use roost_names::did_you_mean;

use crate::comparison::Comparison;

/// Why there is no such number.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum OneError {
    /// No metric or counter has this name.
    #[error("no metric or counter of this name; {known}{meant}")]
    Unknown {
        /// Which metrics there are.
        known: String,
        /// The metric or counter that may have been meant, as the end of the sentence.
        meant: String,
    },
    /// No run of the last scheduler has a value.
    #[error("no run of {scheduler} has a value of it")]
    Nothing {
        /// The scheduler.
        scheduler: String,
    },
}

/// The metric or counter with this name: its arithmetic mean over the runs of the last scheduler.
///
/// # Errors
/// If no metric or counter has this name, or no run of that scheduler has a value.
pub fn one(comparison: &Comparison, name: &str) -> Result<f64, OneError> {
    let metric = comparison.metrics.iter().find(|metric| metric.name == name);
    let mean = match (metric, comparison.counter(name)) {
        (Some(metric), _) => metric.summaries.last().copied().flatten().map(|all| all.mean),
        (None, Some(means)) => means.last().copied().flatten(),
        (None, None) => return Err(unknown(comparison, name)),
    };
    let scheduler = || comparison.names().last().unwrap_or_default().to_owned();
    mean.ok_or_else(|| OneError::Nothing { scheduler: scheduler() })
}

fn unknown(comparison: &Comparison, name: &str) -> OneError {
    let metrics = comparison.metrics.iter().map(|metric| metric.name.as_str());
    let counters = comparison.counters.iter().map(|counter| counter.name.as_str());
    let meant = did_you_mean(name, metrics.clone().chain(counters));
    let known = match metrics.clone().next() {
        Some(_) => format!("metrics are {}", metrics.collect::<Vec<_>>().join(", ")),
        None => "the workload has no metrics".to_owned(),
    };
    OneError::Unknown {
        known,
        meant: meant.map_or_else(String::new, |question| format!("; {question}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::{comparison, experiment, outcome};
    use roost_workload::Better;

    #[test]
    fn the_number_is_the_mean_under_the_last_scheduler() {
        let values: [&[_]; 2] = [&[Some(1.0), Some(2.0)], &[Some(3.0), Some(4.5)]];
        assert_eq!(one(&comparison(Better::Lower, &values), "time"), Ok(3.75));
        let run = |count| outcome(Better::Lower, None, &[("wakeups", count)]);
        let c = Comparison::new(experiment("w", &["s"]), vec![vec![run(2.0), run(3.0)]]);
        assert_eq!(one(&c, "wakeups"), Ok(2.5));
    }

    #[test]
    fn what_is_not_there_is_told() {
        let c = comparison(Better::Lower, &[&[Some(1.0)], &[None]]);
        let told = |name| one(&c, name).unwrap_err().to_string();
        assert_eq!(told("time"), "no run of fair@5.16+numa-imbalance has a value of it");
        assert_eq!(
            told("tme"),
            "no metric or counter of this name; metrics are time; did you mean time?"
        );
        let c = Comparison { metrics: Vec::new(), ..c };
        let told = one(&c, "time").unwrap_err().to_string();
        assert_eq!(told, "no metric or counter of this name; the workload has no metrics");
    }
}
