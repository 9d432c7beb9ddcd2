//! Mean, spread and confidence of repeated runs, and the change between two of them.

use roost_workload::Better;
use statrs::distribution::{ContinuousCDF, StudentsT};
use statrs::statistics::Statistics;

/// Confidence level of the intervals that decide whether a change is marked.
const CONFIDENCE: f64 = 0.95;

/// A range of values that includes both ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Whether the two intervals have no value in common.
    pub fn disjoint(self, other: Self) -> bool {
        self.high < other.low || other.high < self.low
    }
}

/// Summary of one metric under one scheduler, over the repeats that measured it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Number of repeats with a value.
    pub count: usize,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Harmonic mean, which mmtests prints for rates. 0 if a value is 0; `None` if a value is negative.
    pub harmonic_mean: Option<f64>,
    /// Standard deviation of the sample (divisor n - 1). `None` for a single value.
    pub stddev: Option<f64>,
    /// Interval that contains the arithmetic mean with 95% confidence, from Student's t with n - 1 degrees of freedom.
    /// `None` for a single value.
    pub confidence: Option<Interval>,
}

impl Summary {
    /// Summarises `values`, which must be finite. `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let first = *values.first()?;
        let (min, max) = (values.min(), values.max());
        let mean = if min == max { first } else { values.mean() };
        let stddev = (values.len() > 1).then(|| if min == max { 0.0 } else { values.std_dev() });
        let confidence = stddev.and_then(|stddev| confidence_of(mean, stddev, values.len()));
        Some(Self {
            count: values.len(),
            min,
            max,
            mean,
            harmonic_mean: harmonic_mean(values, min),
            stddev,
            confidence,
        })
    }

    /// Standard deviation in percent of the arithmetic mean (CoeffVar in mmtests).
    pub fn coefficient_of_variation_pct(&self) -> Option<f64> {
        let stddev = self.stddev?;
        if stddev == 0.0 {
            return Some(0.0);
        }
        (self.mean != 0.0).then(|| 100.0 * stddev / self.mean.abs())
    }

    /// Whether the confidence intervals of the two means are disjoint. `None` if either has a single value.
    pub fn differs_from(&self, other: &Self) -> Option<bool> {
        Some(self.confidence?.disjoint(other.confidence?))
    }
}

fn harmonic_mean(values: &[f64], min: f64) -> Option<f64> {
    if min < 0.0 {
        None
    } else if min == 0.0 {
        Some(0.0)
    } else {
        Some(values.harmonic_mean())
    }
}

fn confidence_of(mean: f64, stddev: f64, count: usize) -> Option<Interval> {
    let student = StudentsT::new(0.0, 1.0, count.checked_sub(1)? as f64).ok()?;
    let t = student.inverse_cdf(0.5 + CONFIDENCE / 2.0);
    let half = t * stddev / (count as f64).sqrt();
    Some(Interval { low: mean - half, high: mean + half })
}

/// Change from `baseline` to `value` in percent of the baseline. Positive is better. 0 if both are equal; `None` if
/// only the baseline is 0.
pub fn change_pct(better: Better, baseline: f64, value: f64) -> Option<f64> {
    if value == baseline {
        return Some(0.0);
    }
    let gain = match better {
        Better::Higher => value - baseline,
        Better::Lower => baseline - value,
    };
    let change = 100.0 * gain / baseline.abs();
    change.is_finite().then_some(change)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn summary(values: &[f64]) -> Summary {
        Summary::of(values).unwrap()
    }

    #[test]
    fn mean_and_deviation_of_a_textbook_sample() {
        // Squared distances from the mean 5: 9 1 1 1 0 0 4 16, sum 32, divided by 7.
        let s = summary(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert_eq!((s.count, s.min, s.max, s.mean), (8, 2.0, 9.0, 5.0));
        assert!((s.stddev.unwrap() - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn harmonic_mean_weighs_rates_by_work() {
        // 60 km at 60 km/h and 60 km at 30 km/h take 3 h: 40 km/h.
        assert!((summary(&[60.0, 30.0]).harmonic_mean.unwrap() - 40.0).abs() < 1e-12);
        assert_eq!(summary(&[60.0, 0.0]).harmonic_mean, Some(0.0));
        assert_eq!(summary(&[60.0, -1.0]).harmonic_mean, None);
    }

    #[test]
    fn confidence_follows_the_printed_t_tables() {
        // Two-sided 95% quantiles of Student's t, from printed tables.
        for (freedom, t) in [(1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262), (29, 2.045)] {
            let count = freedom + 1;
            let interval = confidence_of(0.0, (count as f64).sqrt(), count).unwrap();
            assert!((interval.high - t).abs() < 5e-4, "{freedom} degrees: {interval:?}");
            assert_eq!(interval.low, -interval.high);
        }
    }

    #[test]
    fn one_value_has_no_spread() {
        let s = summary(&[3.0]);
        assert_eq!((s.stddev, s.confidence), (None, None));
        assert_eq!(s.differs_from(&summary(&[4.0, 5.0])), None);
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn equal_values_have_exactly_no_spread() {
        let s = summary(&[0.1; 7]);
        assert_eq!((s.mean, s.stddev), (0.1, Some(0.0)));
        assert_eq!(s.differs_from(&s), Some(false));
        assert_eq!(s.differs_from(&summary(&[0.2; 7])), Some(true));
    }

    #[test]
    fn change_is_positive_where_better() {
        assert_eq!(change_pct(Better::Lower, 10.0, 8.0), Some(20.0));
        assert_eq!(change_pct(Better::Higher, 10.0, 8.0), Some(-20.0));
        assert_eq!(change_pct(Better::Higher, 0.0, 0.0), Some(0.0));
        assert_eq!(change_pct(Better::Higher, 0.0, 1.0), None);
    }

    proptest! {
        #[test]
        fn change_has_the_sign_of_the_gain(base in 1e-3..1e9_f64, value in 0.0..1e9_f64) {
            let up = change_pct(Better::Higher, base, value).unwrap();
            let down = change_pct(Better::Lower, base, value).unwrap();
            prop_assert_eq!(up > 0.0, value > base);
            prop_assert_eq!(down > 0.0, value < base);
            prop_assert_eq!(up, 0.0 - down);
        }

        #[test]
        fn significance_is_symmetric(
            a in prop::collection::vec(0.0..1e6_f64, 1..9),
            b in prop::collection::vec(0.0..1e6_f64, 1..9),
        ) {
            let (a, b) = (summary(&a), summary(&b));
            prop_assert_eq!(a.differs_from(&b), b.differs_from(&a));
            prop_assert_eq!(a.differs_from(&b).is_none(), a.count < 2 || b.count < 2);
            prop_assert_ne!(a.differs_from(&a), Some(true));
        }

        #[test]
        fn means_lie_between_the_extremes(a in prop::collection::vec(1e-3..1e6_f64, 1..9)) {
            let s = summary(&a);
            let slack = 1e-9 * s.max;
            prop_assert!(s.min - slack <= s.harmonic_mean.unwrap());
            prop_assert!(s.harmonic_mean.unwrap() <= s.mean + slack);
            prop_assert!(s.mean <= s.max + slack);
        }
    }
}
