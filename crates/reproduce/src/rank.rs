//! Spearman's rank correlation.

/// Ranks from 1. Equal values share the mean of their ranks.
fn ranks(values: &[f64]) -> Vec<f64> {
    let below = |v: f64| values.iter().filter(|&&other| other < v).count() as f64;
    let equal = |v: f64| values.iter().filter(|&&other| other == v).count() as f64;
    values.iter().map(|&v| below(v) + (equal(v) + 1.0) / 2.0).collect()
}

/// Spearman's rank correlation, which is Pearson's correlation of the ranks. `None` if all values on one side are
/// equal.
pub fn rank_correlation(a: &[f64], b: &[f64]) -> Option<f64> {
    let (a, b) = (ranks(a), ranks(b));
    let middle = (a.len() as f64 + 1.0) / 2.0;
    let covariance = |a: &[f64], b: &[f64]| -> f64 {
        a.iter().zip(b).map(|(x, y)| (x - middle) * (y - middle)).sum()
    };
    let correlation = covariance(&a, &b) / (covariance(&a, &a) * covariance(&b, &b)).sqrt();
    correlation.is_finite().then_some(correlation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_correlation_of_known_orders() {
        assert_eq!(rank_correlation(&[1.0, 2.0, 3.0], &[10.0, 20.0, 30.0]), Some(1.0));
        assert_eq!(rank_correlation(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]), Some(-1.0));
        // One exchange of neighbours among four ranks: 1 - 6 * 2 / (4 * 15).
        let exchanged = rank_correlation(&[1., 2., 3., 4.], &[2., 1., 3., 4.]).unwrap();
        assert!((exchanged - 0.8).abs() < 1e-12);
        assert_eq!(ranks(&[5.0, 5.0, 1.0]), [2.5, 2.5, 1.0]);
        assert_eq!(rank_correlation(&[1.0, 2.0], &[3.0, 3.0]), None, "no order to compare with");
    }
}
