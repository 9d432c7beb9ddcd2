//! Formatting of numbers.

/// Printed if there is no number.
pub(crate) const NOTHING: &str = "-";

/// Significant digits of a column's largest number.
const DIGITS: usize = 5;

/// The number of decimals for `values`: none if all are whole, otherwise enough for the largest to show five
/// significant digits.
pub(crate) fn decimals(values: impl Iterator<Item = f64> + Clone) -> usize {
    if values.clone().all(|value| value.fract() == 0.0) {
        return 0;
    }
    let largest = values.fold(0.0, |largest: f64, value| largest.max(value.abs()));
    let mut decimals = DIGITS - 1;
    let mut limit = 10.0;
    while decimals > 0 && largest >= limit {
        decimals -= 1;
        limit *= 10.0;
    }
    decimals
}

/// Decimals with which means are printed: at most so many that the smallest of their standard deviations shows two
/// significant digits. Further digits would be chance.
pub(crate) fn mean_decimals(
    means: impl Iterator<Item = f64> + Clone,
    deviations: impl Iterator<Item = f64>,
) -> usize {
    let smallest = deviations.filter(|deviation| *deviation > 0.0).reduce(f64::min);
    let supported = smallest.map_or(usize::MAX, |deviation| {
        // A deviation of 0.02 has its second digit in the third decimal. Rounding may leave 0.1 a bit below.
        (1.0 - (deviation.log10() + 1e-9).floor()).max(0.0) as usize
    });
    decimals(means).min(supported)
}

/// `value` with this many decimals, or a dash.
pub(crate) fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| NOTHING.to_owned(), |value| format!("{value:.decimals$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_show_what_the_smallest_deviation_supports() {
        let of = |means: &[f64], deviations: &[f64]| {
            mean_decimals(means.iter().copied(), deviations.iter().copied())
        };
        assert_eq!(of(&[12.345_6], &[0.123]), 2, "12.35, 0.12");
        assert_eq!(of(&[12.345_6, 13.0], &[4.5, 0.02]), 3, "the smallest of all");
        assert_eq!(of(&[12.345_6], &[250.0]), 0);
        assert_eq!(of(&[12.345_6], &[0.0]), 3, "without chance: five digits");
        assert_eq!(of(&[12.345_6], &[]), 3, "one repeat: nothing is known");
        assert_eq!(of(&[4.0, 20.0], &[0.1]), 0, "whole numbers stay so");
    }

    #[test]
    fn the_largest_number_shows_five_digits() {
        let all = |values: &[f64]| {
            let decimals = decimals(values.iter().copied());
            values.iter().map(|&value| number(Some(value), decimals)).collect::<Vec<_>>()
        };
        assert_eq!(all(&[12.3456, 0.5]), ["12.346", "0.500"]);
        assert_eq!(all(&[123_456.7]), ["123457"]);
        assert_eq!(all(&[0.123_45]), ["0.1235"]);
        assert_eq!(all(&[4.0, 20.0]), ["4", "20"]);
        assert_eq!(number(None, 3), "-");
    }
}
