//! The layout of mmtests' comparison reports, which is familiar on kernel mailing lists.

use std::fmt::Write;

use roost_workload::Better;

use crate::comparison::{Comparison, MetricComparison};
use crate::figure::NOTHING;
use crate::statistics::{Summary, change_pct};

/// Width of a value in mmtests' reports, including leading blanks.
const VALUE_WIDTH: usize = 12;
/// Width of the change that follows a value: ` (   0.00%)`.
const CHANGE_WIDTH: usize = 11;

/// The comparison in mmtests' layout: five rows per metric, one column per scheduler. Above it are the experiment's
/// lines. The corner, which is empty in mmtests, says where the schedulers ran.
///
/// Metrics for which lower is better are treated as times, with the arithmetic mean (`Amean`). The others are treated
/// as rates, with the harmonic mean (`Hmean`). Changes are relative to the first scheduler, and positive if better. A
/// change of the mean is between asterisks if the 95% confidence intervals of the arithmetic means are disjoint;
/// [`crate::table`] and [`crate::json`] mark the same changes.
pub fn mmtests(comparison: &Comparison) -> String {
    let rows: Vec<Row> = comparison.metrics.iter().flat_map(rows_of).collect();
    let place = comparison.experiment.place.word();
    comparison.heading() + &layout(place, comparison.names(), &rows)
}

/// One printed row.
struct Row {
    statistic: &'static str,
    metric: String,
    /// One cell per scheduler.
    cells: Vec<Cell>,
}

#[derive(Default)]
struct Cell {
    value: Option<f64>,
    /// The change in percent. `None` if it is not defined.
    change: Option<f64>,
    /// Whether the change is printed between asterisks.
    marked: bool,
}

fn rows_of(metric: &MetricComparison) -> Vec<Row> {
    let better = metric.better;
    let mean: (&'static str, fn(&Summary) -> Option<f64>) = match better {
        Better::Lower => ("Amean", |summary| Some(summary.mean)),
        Better::Higher => ("Hmean", |summary| summary.harmonic_mean),
    };
    // mmtests prints 0 as the deviation of a single value.
    let stddev = |summary: &Summary| Some(summary.stddev.unwrap_or(0.0));
    let variation = |summary: &Summary| match summary.stddev {
        Some(_) => summary.coefficient_of_variation_pct(),
        None => Some(0.0),
    };
    let mut rows = vec![
        row(metric, "Min", better, |summary| Some(summary.min)),
        row(metric, mean.0, better, mean.1),
        row(metric, "Max", better, |summary| Some(summary.max)),
        row(metric, "Stddev", Better::Lower, stddev),
        row(metric, "CoeffVar", Better::Lower, variation),
    ];
    if let Some(mean) = rows.get_mut(1) {
        for (scheduler, cell) in mean.cells.iter_mut().enumerate() {
            cell.marked = metric.significant(scheduler) == Some(true);
        }
    }
    rows
}

fn row(
    metric: &MetricComparison,
    statistic: &'static str,
    better: Better,
    value: impl Fn(&Summary) -> Option<f64>,
) -> Row {
    let values: Vec<_> =
        metric.summaries.iter().map(|summary| summary.as_ref().and_then(&value)).collect();
    let baseline = values.first().copied().flatten();
    let cell = |value: Option<f64>| Cell {
        value,
        change: baseline.zip(value).and_then(|(base, value)| change_pct(better, base, value)),
        marked: false,
    };
    Row { statistic, metric: metric.name.clone(), cells: values.into_iter().map(cell).collect() }
}

/// Header and rows. Columns are as wide as in mmtests, and wider for long names and values.
fn layout<'a>(
    corner: &str,
    schedulers: impl Iterator<Item = &'a str> + Clone,
    rows: &[Row],
) -> String {
    let metric_width = rows.iter().map(|row| row.metric.chars().count()).max().unwrap_or(0);
    let longest_value =
        rows.iter().flat_map(|row| &row.cells).map(|cell| value(cell).len() + 1).max().unwrap_or(0);
    let longest_name = schedulers.clone().map(|name| name.chars().count() + 1).max().unwrap_or(0);
    let value_width = VALUE_WIDTH.max(longest_value).max(longest_name.saturating_sub(CHANGE_WIDTH));
    let mut out = format!("{corner:<width$}", width = 10 + metric_width);
    for name in schedulers {
        // Writing to a String cannot fail.
        let _ = write!(out, "{name:>width$}", width = value_width + CHANGE_WIDTH);
    }
    out.push('\n');
    for row in rows {
        let _ = write!(out, "{:<9} {:<metric_width$}", row.statistic, row.metric);
        for cell in &row.cells {
            let _ = write!(out, "{:>value_width$} {}", value(cell), change(cell));
        }
        out.push('\n');
    }
    out
}

fn value(cell: &Cell) -> String {
    let text = |value: f64| format!("{value:.decimals$}", decimals = decimals(value));
    cell.value.map_or_else(|| NOTHING.to_owned(), text)
}

/// mmtests prints two decimals, too few for milliseconds printed in seconds. Here at least three significant digits are
/// kept, down to the nanosecond, which is the finest that is measured.
fn decimals(value: f64) -> usize {
    const NANO: usize = 9;
    let mut limit = 1.0;
    let mut decimals = 2;
    while value != 0.0 && value.abs() < limit && decimals < NANO {
        limit /= 10.0;
        decimals += 1;
    }
    decimals
}

fn change(cell: &Cell) -> String {
    let (open, close) = if cell.marked { ('*', '*') } else { ('(', ')') };
    match cell.change {
        Some(change) => format!("{open}{change:>7.2}%{close}"),
        None => format!("{open}{NOTHING:>8}{close}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::comparison;

    /// `published/000-coremark.csv` as rows, with the printed values and changes.
    fn published() -> Vec<Row> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../published/000-coremark.csv");
        let mut reader = ::csv::Reader::from_path(path).unwrap();
        let headers = reader.headers().unwrap().clone();
        let column = |name: &str| headers.iter().position(|header| header == name).unwrap();
        let statistic = |text: &str| {
            ["Min", "Hmean", "Max", "Stddev", "CoeffVar"]
                .into_iter()
                .find(|&name| text.starts_with(name))
                .unwrap()
        };
        let row = |record: ::csv::StringRecord| {
            let figure = |name| record[column(name)].parse::<f64>().ok();
            let marked = record[column("note")].starts_with("starred");
            let patched =
                Cell { value: figure("patched_value"), change: figure("change_pct"), marked };
            let base = Cell { value: figure("base_value"), change: Some(0.0), marked: false };
            Row {
                statistic: statistic(&record[column("metric")]),
                metric: record[column("case")].to_owned(),
                cells: vec![base, patched],
            }
        };
        reader.records().map(|record| row(record.unwrap())).collect()
    }

    #[test]
    fn the_published_coremark_report_comes_out_as_printed() {
        let text = layout("", ["vanilla", "numaimb"].into_iter(), &published());
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "Min       Score-16   367816.09 (   0.00%)   403429.15 (   9.68%)",
                "Hmean     Score-16   389627.78 (   0.00%)   451015.49 *  15.76%*",
                "Max       Score-16   416178.96 (   0.00%)   480012.00 (  15.34%)",
                "Stddev    Score-16    17361.82 (   0.00%)    32378.08 ( -86.49%)",
                "CoeffVar  Score-16        4.45 (   0.00%)        7.14 ( -60.57%)",
            ]
        );
    }

    #[test]
    fn the_published_changes_follow_from_the_formula() {
        for row in published() {
            let better = match row.statistic {
                "Stddev" | "CoeffVar" => Better::Lower,
                _ => Better::Higher,
            };
            let [base, patched] = &row.cells[..] else { panic!("two columns") };
            let change = change_pct(better, base.value.unwrap(), patched.value.unwrap()).unwrap();
            // CoeffVar is printed with three digits, so its change is known only to 0.3 points.
            let tolerance = if row.statistic == "CoeffVar" { 0.3 } else { 0.005 };
            assert!((change - patched.change.unwrap()).abs() <= tolerance, "{}", row.statistic);
        }
    }

    #[test]
    fn times_get_the_arithmetic_and_rates_the_harmonic_mean() {
        let values: [&[_]; 2] = [&[Some(60.0), Some(30.0)], &[Some(20.0), Some(20.0)]];
        let rate = mmtests(&comparison(Better::Higher, &values));
        assert!(
            rate.contains("Hmean     throughput         40.00 (   0.00%)         20.00 ( -50.00%)"),
            "{rate}"
        );
        let time = mmtests(&comparison(Better::Lower, &values));
        assert!(
            time.contains("Amean     time         45.00 (   0.00%)         20.00 (  55.56%)"),
            "{time}"
        );
    }

    #[test]
    fn small_values_keep_three_significant_digits() {
        let shown = |number| value(&Cell { value: Some(number), ..Cell::default() });
        assert_eq!(shown(12.3456), "12.35", "as mmtests");
        assert_eq!(shown(1.234), "1.23");
        assert_eq!(shown(0.012_34), "0.0123");
        assert_eq!(shown(-0.012_34), "-0.0123");
        assert_eq!(shown(0.1), "0.100", "a power of ten has no digit fewer");
        assert_eq!(shown(0.0), "0.00");
        assert_eq!(shown(1e-17), "0.000000000", "rounding in the mean of equal values");
    }

    #[test]
    fn what_was_not_measured_is_a_dash() {
        let text = mmtests(&comparison(Better::Lower, &[&[Some(1.0)], &[None]]));
        let row = text.lines().find(|line| line.starts_with("Amean")).unwrap();
        assert!(row.ends_with("- (       -)"), "{text}");
    }
}
