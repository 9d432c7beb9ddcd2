//! Histograms of durations as text.

use std::fmt::Write;

use crate::comparison::Comparison;

/// Width of the longest bar, in characters.
const BAR: usize = 40;

/// Draws the histograms of all schedulers. Each bucket has a row with its limits in us, its count and a bar. Rows go
/// from the first to the last bucket that is not empty. Limits from 1024 on are in units of 1024 (K), as in bpftrace.
pub fn histogram(comparison: &Comparison) -> String {
    let mut out = String::new();
    for histogram in &comparison.histograms {
        for (scheduler, counts) in comparison.names().zip(&histogram.counts) {
            if counts.iter().all(|&count| count == 0) {
                continue;
            }
            if !out.is_empty() {
                out.push('\n');
            }
            // Writing to a String cannot fail.
            let place = comparison.experiment.place.word();
            let _ = writeln!(out, "{}, us, {scheduler} ({place})", histogram.name);
            draw(&mut out, counts);
        }
    }
    out
}

fn draw(out: &mut String, counts: &[u64]) {
    let largest = counts.iter().copied().max().unwrap_or(0).max(1);
    let width = largest.to_string().len();
    let used = |&count: &u64| count > 0;
    let first = counts.iter().position(used).unwrap_or(0);
    let end = counts.iter().rposition(used).map_or(0, |last| last + 1);
    for (bucket, &count) in counts.iter().enumerate().take(end).skip(first) {
        let bar = bar(count, largest);
        let range = range(bucket);
        let _ = writeln!(out, "{range:<14}{count:>width$} |{bar:<BAR$}|");
    }
}

/// A bar in proportion to the largest count. A bucket that is not empty has at least one character.
fn bar(count: u64, largest: u64) -> String {
    let length = (u128::from(count) * BAR as u128).div_ceil(u128::from(largest));
    "#".repeat(length as usize)
}

/// The limits of a bucket in us, such as `[8, 16)`.
fn range(bucket: usize) -> String {
    let limit = |power: usize| match power / 10 {
        0 => format!("{}", 1_u64 << power),
        1 => format!("{}K", 1_u64 << (power - 10)),
        2 => format!("{}M", 1_u64 << (power - 20)),
        _ => format!("2^{power}"),
    };
    match bucket {
        0 => "[0, 1)".to_owned(),
        _ => format!("[{}, {})", limit(bucket - 1), limit(bucket)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_powers_of_two() {
        assert_eq!(range(0), "[0, 1)");
        assert_eq!(range(1), "[1, 2)");
        assert_eq!(range(5), "[16, 32)");
        assert_eq!(range(10), "[512, 1K)");
        assert_eq!(range(17), "[64K, 128K)");
        assert_eq!(range(20), "[512K, 1M)");
        assert_eq!(range(40), "[2^39, 2^40)");
    }

    #[test]
    fn rows_span_the_buckets_in_use() {
        let mut out = String::new();
        draw(&mut out, &[0, 0, 400, 0, 1, 0]);
        let full = "#".repeat(40);
        let empty = " ".repeat(40);
        let one = format!("#{}", " ".repeat(39));
        assert_eq!(
            out,
            format!(
                "[2, 4)        400 |{full}|\n[4, 8)          0 |{empty}|\n[8, 16)         1 |{one}|\n"
            )
        );
    }
}
