//! Tables for people: results, counters, and the efficiency of the idle search.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};
use roost_workload::Better;

use crate::comparison::{Comparison, CounterComparison, MetricComparison};
use crate::efficiency::SearchCounts;
use crate::figure::{NOTHING, decimals, number};

/// Stands behind a change whose confidence interval is disjoint from the baseline's.
const MARK: &str = "*";

/// The comparison as a table: a row a scheduler for each metric, with arithmetic mean, standard
/// deviation and change, and below it how to read it.
pub fn table(comparison: &Comparison) -> String {
    let header = ["metric", "unit", "better", "scheduler", "mean", "stddev", "change", ""];
    let rows = comparison.metrics.iter().flat_map(|metric| metric_rows(comparison, metric));
    let mut out = heading(comparison);
    out.push_str(&plain(&header, rows.collect(), 4));
    out.push_str(&legend(comparison));
    out
}

fn heading(comparison: &Comparison) -> String {
    let Comparison { machine, workload, repeats, seed, .. } = comparison;
    format!("machine {machine}, workload {workload}, repeats {repeats}, seed {seed}\n\n")
}

fn legend(comparison: &Comparison) -> String {
    let Some(baseline) = comparison.schedulers.first() else { return String::new() };
    let mut out = format!("\nchange: percent of the mean of {baseline}; positive is better.\n");
    if comparison.schedulers.len() < 2 {
        out.clear();
    } else if comparison.repeats < 2 {
        out.push_str("One repeat has no standard deviation: no change can be marked as real.\n");
    } else {
        out.push_str(MARK);
        out.push_str(": the 95% confidence intervals of the two means are disjoint.\n");
    }
    out
}

fn metric_rows(comparison: &Comparison, metric: &MetricComparison) -> Vec<Vec<String>> {
    let means = metric.summaries.iter().flatten().map(|summary| summary.mean);
    let decimals = decimals(means);
    let row = |(scheduler, name): (usize, &String)| {
        let summary = metric.summaries.get(scheduler).copied().flatten();
        let marked = metric.significant(scheduler) == Some(true);
        let mut row = match scheduler {
            0 => vec![metric.name.clone(), metric.unit.clone(), better(metric.better).to_owned()],
            _ => vec![String::new(); 3],
        };
        row.extend([
            name.clone(),
            number(summary.map(|summary| summary.mean), decimals),
            number(summary.and_then(|summary| summary.stddev), decimals.max(1)),
            match scheduler {
                0 => "baseline".to_owned(),
                _ => metric
                    .change_pct(scheduler)
                    .map_or_else(|| NOTHING.to_owned(), |change| format!("{change:+.2}%")),
            },
            if marked { MARK.to_owned() } else { String::new() },
        ]);
        row
    };
    comparison.schedulers.iter().enumerate().map(row).collect()
}

pub(crate) fn better(better: Better) -> &'static str {
    match better {
        Better::Higher => "higher",
        Better::Lower => "lower",
    }
}

/// All counters: a row a counter, a column a scheduler, means over the repeats. A dash: the
/// scheduler has no such counter.
pub fn counters(comparison: &Comparison) -> String {
    let header: Vec<&str> = std::iter::once("counter")
        .chain(comparison.schedulers.iter().map(String::as_str))
        .collect();
    let row = |counter: &CounterComparison| {
        let decimals = decimals(counter.means.iter().copied().flatten());
        let means = counter.means.iter().map(|&mean| number(mean, decimals));
        std::iter::once(counter.name.clone()).chain(means).collect()
    };
    plain(&header, comparison.counters.iter().map(row).collect(), 1)
}

/// How efficient each scheduler's search for an idle CPU was; empty if none reports it.
pub fn search_efficiency(comparison: &Comparison) -> String {
    let header = ["case", "scheduler", "se_eff%", "dom_eff%", "fast_rate%", "success_rate%"];
    let row = |(scheduler, name): (usize, &String)| {
        let counts = comparison.search_counts(scheduler)?;
        let figures = [
            SearchCounts::search_efficiency_pct,
            SearchCounts::domain_efficiency_pct,
            SearchCounts::fast_rate_pct,
            SearchCounts::success_rate_pct,
        ];
        let mut row = vec![comparison.workload.clone(), name.clone()];
        row.extend(figures.iter().map(|figure| number(figure(&counts), 3)));
        Some(row)
    };
    let rows: Vec<_> = comparison.schedulers.iter().enumerate().filter_map(row).collect();
    if rows.is_empty() { String::new() } else { plain(&header, rows, 2) }
}

/// A table without lines. The columns from `numbers` on are aligned to the right.
fn plain(header: &[&str], rows: Vec<Vec<String>>, numbers: usize) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.iter().copied()).add_rows(rows);
    for (index, column) in table.column_iter_mut().enumerate() {
        // The mark, under an empty header, stands close to the change.
        let spaced = header.get(index + 1).is_some_and(|next| !next.is_empty());
        column.set_padding((0, if spaced { 2 } else { 0 }));
        if index >= numbers {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut out = String::new();
    for line in table.lines() {
        // Writing to a String does not fail.
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::{comparison, outcome};

    #[test]
    fn the_table_shows_mean_deviation_and_change() {
        let values: [&[_]; 3] = [
            &[Some(10.0), Some(10.2), Some(10.4)],
            &[Some(8.0), Some(8.1), Some(8.2)],
            &[Some(10.0), Some(12.0), Some(11.0)],
        ];
        assert_eq!(
            table(&comparison(Better::Lower, &values)),
            "machine zen3, workload hackbench, repeats 3, seed 7\n\
             \n\
             metric  unit  better  scheduler                   mean  stddev    change\n\
             time    s     lower   fair:5.16                 10.200   0.200  baseline\n\
             \x20                     fair:5.16+numa-imbalance   8.100   0.100   +20.59%*\n\
             \x20                     roost                     11.000   1.000    -7.84%\n\
             \n\
             change: percent of the mean of fair:5.16; positive is better.\n\
             *: the 95% confidence intervals of the two means are disjoint.\n"
        );
    }

    #[test]
    fn one_repeat_marks_nothing() {
        let text = table(&comparison(Better::Higher, &[&[Some(1.0)], &[None]]));
        assert!(text.contains("throughput  MB/s  higher"), "{text}");
        assert!(text.contains("One repeat has no standard deviation"), "{text}");
        let last = text.lines().find(|line| line.contains("numa-imbalance")).unwrap();
        assert!(last.trim_end().ends_with("-       -         -"), "{text}");
    }

    #[test]
    fn three_schedulers_fit_a_terminal() {
        let values: [&[_]; 3] = [&[Some(123_456.7); 2], &[Some(99_999.9); 2], &[Some(0.1); 2]];
        let text = table(&comparison(Better::Higher, &values));
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }

    fn with_counters() -> Comparison {
        let counters = [
            ("sis_search", 5_842_896.0),
            ("sis_domain_search", 4_544_492.0),
            ("sis_scanned", 128_300_000.0),
            ("sis_failed", 38_539.0),
        ];
        let first = outcome(Better::Lower, None, &[("llcs_shared", 0.25)]);
        let second = outcome(Better::Lower, None, &counters);
        let names = vec!["roost".to_owned(), "fair:5.19".to_owned()];
        Comparison::new("m", "netperf", names, 0, vec![vec![first], vec![second]])
    }

    #[test]
    fn counters_stand_in_columns() {
        assert_eq!(
            counters(&with_counters()),
            "counter             roost  fair:5.19\n\
             llcs_shared        0.2500          -\n\
             sis_search              -    5842896\n\
             sis_domain_search       -    4544492\n\
             sis_scanned             -  128300000\n\
             sis_failed              -      38539\n"
        );
    }

    #[test]
    fn search_efficiency_is_that_of_the_published_counters() {
        assert_eq!(
            search_efficiency(&with_counters()),
            "case     scheduler  se_eff%  dom_eff%  fast_rate%  success_rate%\n\
             netperf  fair:5.19    4.524     3.548      22.222         99.340\n"
        );
        assert_eq!(search_efficiency(&comparison(Better::Lower, &[&[None]])), "");
    }
}
