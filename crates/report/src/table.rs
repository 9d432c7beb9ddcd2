//! Tables for people: results, counters, and the efficiency of the idle search.

use std::fmt::Write;

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, presets};
use roost_workload::Better;

use crate::comparison::{Comparison, CounterComparison, MetricComparison};
use crate::efficiency::SearchCounts;
use crate::figure::{NOTHING, decimals, mean_decimals, number};
use crate::places::Places;
use crate::series;

/// The columns of a table of metrics.
pub(crate) const METRIC_COLUMNS: [&str; 8] =
    ["metric", "unit", "better", "scheduler", "mean", "stddev", "change", ""];

/// Number of text columns, which come first.
pub(crate) const TEXT_COLUMNS: usize = 4;

/// Follows a change whose confidence interval is disjoint from the baseline's.
const MARK: &str = "*";

/// Takes the place of the metrics of a workload that is only compared by what the scheduler did.
const NO_METRICS: &str = "The workload has no metrics.\n";

/// The comparison as a table. Each metric has a row per scheduler with arithmetic mean, standard deviation and change.
/// Below follow how often mechanisms acted, where tasks ran, where they were placed, and how to read the table. The
/// table is at most `width` columns wide, unless a single number is wider.
pub fn table(comparison: &Comparison, width: Option<u16>) -> String {
    let series = series::series(&comparison.metrics);
    let shown = series.iter().map(|series| series.shown());
    let rows: Vec<_> = shown.flat_map(|metric| metric_rows(comparison, &metric)).collect();
    let mut out = wrapped(&comparison.heading(), width);
    if rows.is_empty() {
        out.push_str(NO_METRICS);
    } else {
        out.push_str(&fitting_table(&METRIC_COLUMNS, rows, TEXT_COLUMNS, width));
        let members = series.iter().filter_map(|series| series.legend(comparison));
        out.push_str(&wrapped(&(legend(comparison) + &members.collect::<String>()), width));
    }
    let comparisons = std::slice::from_ref(comparison);
    out.push_str(&Places { comparisons, inputs: (&[], &[Vec::new()]), width }.text());
    out.push_str(&placement(comparison, width));
    out
}

/// Counters that are columns of [`placement`], after the share of wakeups on the previous CPU.
const PLACEMENT: [&str; 4] = ["migrations", "migrations_llc", "migrations_node", "llcs_shared"];

const PLACEMENT_LEGEND: &str = "
wakeups_prev%: wakeups that stayed on the task's previous CPU, of all wakeups.
migrations: to any other CPU; _llc: to another LLC of the same node; _node: to another node.
llcs_shared: LLCs running more than one task, mean over the second half of the run (over all of a
run that ends by itself).
";

/// Where each scheduler placed tasks, averaged over the repeats, a row per scheduler. Empty if no scheduler has these
/// counters.
fn placement(comparison: &Comparison, width: Option<u16>) -> String {
    let mean = |name: &str, scheduler: usize| comparison.counter(name)?.get(scheduler).copied()?;
    let indices = 0..comparison.names().len();
    if indices.clone().all(|scheduler| PLACEMENT.iter().all(|c| mean(c, scheduler).is_none())) {
        return String::new();
    }
    let mut rows: Vec<Vec<String>> = comparison.names().map(|name| vec![name.to_owned()]).collect();
    for (scheduler, row) in rows.iter_mut().enumerate() {
        let previous = mean("wakeups_prev", scheduler);
        let share = previous.zip(mean("wakeups", scheduler)).filter(|(_, all)| *all > 0.0);
        row.push(number(share.map(|(previous, all)| 100.0 * previous / all), 2));
    }
    for counter in PLACEMENT {
        let means: Vec<_> = indices.clone().map(|scheduler| mean(counter, scheduler)).collect();
        let decimals = decimals(means.iter().copied().flatten());
        for (row, mean) in rows.iter_mut().zip(means) {
            row.push(number(mean, decimals));
        }
    }
    let corner = corner("placement", comparison);
    let header: Vec<&str> = [&corner, "wakeups_prev%"].into_iter().chain(PLACEMENT).collect();
    format!("\n{}{}", fitting_table(&header, rows, 1, width), wrapped(PLACEMENT_LEGEND, width))
}

/// The corner of a table that does not follow the heading. It repeats where the schedulers ran.
pub(crate) fn corner(name: &str, comparison: &Comparison) -> String {
    format!("{name} ({})", comparison.experiment.place.word())
}

/// Explains how to read changes.
pub(crate) fn legend(comparison: &Comparison) -> String {
    let Some(baseline) = comparison.names().next() else { return String::new() };
    let mut out = format!("\nchange: percent of the mean of {baseline}; positive is better.\n");
    if comparison.names().len() < 2 {
        out.clear();
    } else if comparison.repeats < 2 {
        out.push_str("One repeat has no standard deviation: no change can be marked as real.\n");
    } else {
        out.push_str(MARK);
        out.push_str(": the 95% confidence intervals of the two means are disjoint.\n");
    }
    out
}

/// The rows of a metric, one per scheduler.
pub(crate) fn metric_rows(comparison: &Comparison, metric: &MetricComparison) -> Vec<Vec<String>> {
    let summaries = || metric.summaries.iter().flatten();
    let deviations = summaries().filter_map(|summary| summary.stddev);
    let decimals = mean_decimals(summaries().map(|summary| summary.mean), deviations);
    let row = |(scheduler, name): (usize, &str)| {
        let summary = metric.summaries.get(scheduler).copied().flatten();
        let marked = metric.significant(scheduler) == Some(true);
        let mut row = match scheduler {
            0 => vec![metric.name.clone(), metric.unit.clone(), better(metric.better).to_owned()],
            _ => vec![String::new(); 3],
        };
        row.extend([
            name.to_owned(),
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
    comparison.names().enumerate().map(row).collect()
}

pub(crate) fn better(better: Better) -> &'static str {
    match better {
        Better::Higher => "higher",
        Better::Lower => "lower",
    }
}

/// All counters: a row per counter, a column per scheduler, averaged over the repeats. A dash means that the scheduler
/// does not have the counter. Domain levels whose counters are all zero (such as `NUMA3.lb_count.busy`) share one line,
/// because most machines lack most levels.
pub fn counters(comparison: &Comparison, width: Option<u16>) -> String {
    let corner = corner("counter", comparison);
    let header: Vec<&str> = std::iter::once(corner.as_str()).chain(comparison.names()).collect();
    let row = |counter: &CounterComparison| {
        let decimals = decimals(counter.means.iter().copied().flatten());
        let means = counter.means.iter().map(|&mean| number(mean, decimals));
        std::iter::once(counter.name.clone()).chain(means).collect()
    };
    let mut zero_levels: Vec<&str> = comparison.counters.iter().filter_map(level).collect();
    zero_levels.dedup();
    zero_levels.retain(|&wanted| {
        let mut counters = comparison.counters.iter().filter(|c| level(c) == Some(wanted));
        // A scheduler may lack them.
        counters.all(|counter| counter.means.iter().flatten().all(|&mean| mean == 0.0))
    });
    let is_shown = |counter: &&CounterComparison| {
        level(counter).is_none_or(|level| !zero_levels.contains(&level))
    };
    let rows = comparison.counters.iter().filter(is_shown).map(row).collect();
    let mut out = fitting_table(&header, rows, 1, width);
    if !zero_levels.is_empty() {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "all counters 0: {}", zero_levels.join(", "));
    }
    out
}

/// The domain level that a counter belongs to, if any.
fn level(counter: &CounterComparison) -> Option<&str> {
    counter.name.split_once('.').map(|(level, _)| level)
}

/// The efficiency of each scheduler's search for an idle CPU. Empty if no scheduler reports it.
pub fn search_efficiency(comparison: &Comparison, width: Option<u16>) -> String {
    let corner = corner("case", comparison);
    let header = [&corner, "scheduler", "se_eff%", "dom_eff%", "fast_rate%", "success_rate%"];
    let row = |(scheduler, name): (usize, &str)| {
        let counts = comparison.search_counts(scheduler)?;
        let figures = [
            SearchCounts::search_efficiency_pct,
            SearchCounts::domain_efficiency_pct,
            SearchCounts::fast_rate_pct,
            SearchCounts::success_rate_pct,
        ];
        let mut row = vec![comparison.experiment.workload.name.clone(), name.to_owned()];
        row.extend(figures.iter().map(|figure| number(figure(&counts), 3)));
        Some(row)
    };
    let rows: Vec<_> = comparison.names().enumerate().filter_map(row).collect();
    if rows.is_empty() { String::new() } else { fitting_table(&header, rows, 2, width) }
}

/// A table without lines. Columns from index `numbers` on are aligned to the right.
pub fn plain_table(header: &[&str], rows: Vec<Vec<String>>, numbers: usize) -> String {
    fitting_table(header, rows, numbers, None)
}

/// Smallest width to which a text column shrinks to make room for number columns.
const NARROWEST_TEXT: usize = 8;

/// [`plain_table`] with at most `width` columns. Text wraps into further lines. Number columns that do not fit follow
/// below, next to the same text.
pub(crate) fn fitting_table(
    header: &[&str],
    rows: Vec<Vec<String>>,
    numbers: usize,
    width: Option<u16>,
) -> String {
    let Some(width) = width else { return one_table(header, rows, numbers, None) };
    let columns = |row: &[&str]| row.iter().map(|cell| cell.chars().count()).collect::<Vec<_>>();
    let mut widest = columns(header);
    for row in &rows {
        for (widest, cell) in widest.iter_mut().zip(row) {
            *widest = (*widest).max(cell.chars().count());
        }
    }
    let text: usize = widest.iter().take(numbers).map(|&width| width.min(NARROWEST_TEXT) + 2).sum();
    let mut parts: Vec<Vec<usize>> = Vec::new();
    let mut used = 0;
    for column in numbers..header.len() {
        let own = widest[column] + 2;
        // The mark, whose header is empty, stays with the change.
        let fits = used + own <= usize::from(width) + 2 || header[column].is_empty();
        match parts.last_mut() {
            Some(part) if fits => part.push(column),
            _ => {
                parts.push((0..numbers).chain([column]).collect());
                used = text;
            }
        }
        used += own;
    }
    let of_part = |part: &Vec<usize>| {
        let header: Vec<&str> = part.iter().map(|&column| header[column]).collect();
        let cell =
            |row: &Vec<String>, column: &usize| row.get(*column).cloned().unwrap_or_default();
        let rows = rows.iter().map(|row| part.iter().map(|column| cell(row, column)).collect());
        one_table(&header, rows.collect(), numbers, Some(width))
    };
    parts.iter().map(of_part).collect::<Vec<_>>().join("\n")
}

/// Text wrapped to at most `width` columns.
pub(crate) fn wrapped(text: &str, width: Option<u16>) -> String {
    let Some(width) = width else { return text.to_owned() };
    let mut out = String::new();
    for line in text.lines() {
        if line.chars().count() <= usize::from(width) {
            out += line;
            out.push('\n');
            continue;
        }
        let mut table = Table::new();
        table.load_style(presets::NOTHING).add_row([line]).set_width(width);
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.column_iter_mut().for_each(|column| {
            column.set_padding((0, 0));
        });
        out += &lines(&table);
    }
    out
}

fn lines(table: &Table) -> String {
    let mut out = String::new();
    for line in table.lines() {
        out += line.trim_end();
        out.push('\n');
    }
    out
}

fn one_table(
    header: &[&str],
    rows: Vec<Vec<String>>,
    numbers: usize,
    width: Option<u16>,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.iter().copied()).add_rows(rows);
    if let Some(width) = width {
        table.set_width(width).set_content_arrangement(ContentArrangement::Dynamic);
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        // The mark, whose header is empty, directly follows the change.
        let spaced = header.get(index + 1).is_some_and(|next| !next.is_empty());
        column.set_padding((0, if spaced { 2 } else { 0 }));
        if index >= numbers {
            column.set_cell_alignment(CellAlignment::Right);
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    lines(&table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::{comparison, experiment, outcome};

    #[test]
    fn the_table_shows_mean_deviation_and_change() {
        let values: [&[_]; 3] = [
            &[Some(10.0), Some(10.2), Some(10.4)],
            &[Some(8.0), Some(8.1), Some(8.2)],
            &[Some(10.0), Some(12.0), Some(11.0)],
        ];
        assert_eq!(
            table(&comparison(Better::Lower, &values), None),
            "simulated by roost 0.1.0 (aaaaaaaaaaaa)\n\
             machine zen3 (sha256 0123456789ab)\n\
             workload hackbench (sha256 0123456789ab)\n\
             runs of each scheduler: 3, seeds 7 to 9; each 1 s, all of it measured\n\
             fair@5.16: a model of Linux 5.16\n\
             fair@5.16+numa-imbalance: a model of Linux 5.16 with numa-imbalance\n\
             roost: a model of Linux 5.16\n\
             \n\
             metric  unit  better  scheduler                  mean  stddev    change\n\
             time    s     lower   fair@5.16                 10.20    0.20  baseline\n\
             \x20                     fair@5.16+numa-imbalance   8.10    0.10   +20.59%*\n\
             \x20                     roost                     11.00    1.00    -7.84%\n\
             \n\
             change: percent of the mean of fair@5.16; positive is better.\n\
             *: the 95% confidence intervals of the two means are disjoint.\n"
        );
    }

    #[test]
    fn one_repeat_marks_nothing() {
        let text = table(&comparison(Better::Higher, &[&[Some(1.0)], &[None]]), None);
        assert!(text.contains("throughput  MB/s  higher"), "{text}");
        assert!(text.contains("One repeat has no standard deviation"), "{text}");
        let last = text.lines().rfind(|line| line.contains("numa-imbalance")).unwrap();
        assert!(last.trim_end().ends_with("-       -         -"), "{text}");
    }

    #[test]
    fn three_schedulers_fit_a_terminal() {
        let values: [&[_]; 3] = [&[Some(123_456.7); 2], &[Some(99_999.9); 2], &[Some(0.1); 2]];
        let text = table(&comparison(Better::Higher, &values), None);
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
        let experiment = experiment("netperf", &["roost", "fair@5.19"]);
        Comparison::new(experiment, vec![vec![first], vec![second]])
    }

    #[test]
    fn a_workload_without_metrics_says_so() {
        let all = comparison(Better::Lower, &[&[Some(1.0)], &[Some(2.0)]]);
        let text = table(&Comparison { metrics: Vec::new(), ..all }, None);
        assert!(text.contains("\nThe workload has no metrics.\n"), "{text}");
        assert!(!text.contains("stddev") && !text.contains("change:"), "{text}");
    }

    #[test]
    fn placement_is_told_with_every_table() {
        let run = |prev, migrations, llcs| {
            let counters = [
                ("wakeups", 800.0),
                ("wakeups_prev", prev),
                ("migrations", migrations),
                ("migrations_llc", 3.0),
                ("migrations_node", 0.0),
                ("llcs_shared", llcs),
            ];
            outcome(Better::Lower, Some(1.0), &counters)
        };
        let none = vec![outcome(Better::Lower, Some(1.0), &[("wakeups", 0.0)])];
        // Averages over repeats: 500 of 800 wakeups; 12.5 migrations; (0.25 + 0.5) / 2 LLCs.
        let repeats = vec![run(400.0, 12.0, 0.25), run(600.0, 13.0, 0.5)];
        let c = Comparison::new(
            experiment("w", &["fair@5.16", "fair@7.2", "none"]),
            vec![repeats, vec![run(8.0, 4.0, 8.0)], none],
        );
        let text = table(&c, None);
        let (_, section) = text.split_once("\nplacement").unwrap();
        assert_eq!(
            section.split_once("\n\n").unwrap().0,
            " (simulated)  wakeups_prev%  migrations  migrations_llc  migrations_node  llcs_shared\n\
             fair@5.16                      62.50      12.500               3                0       0.3750\n\
             fair@7.2                        1.00       4.000               3                0       8.0000\n\
             none                               -           -               -                -            -"
        );
        assert!(section.contains("\nllcs_shared: LLCs running more than one task"), "{section}");
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    }

    #[test]
    fn without_the_counters_there_is_no_placement() {
        assert!(!table(&comparison(Better::Lower, &[&[Some(1.0)]]), None).contains("placement"));
    }

    #[test]
    fn levels_in_which_nothing_happened_share_a_line() {
        let counters = [
            ("yld_count", 0.0),
            ("MC.alb_count", 2.0),
            ("MC.alb_failed", 0.0),
            ("CLS.alb_count", 0.0),
            ("CLS.alb_failed", 0.0),
        ];
        let runs = vec![vec![outcome(Better::Lower, None, &counters)]];
        let c = Comparison::new(experiment("w", &["s"]), runs);
        assert_eq!(
            super::counters(&c, None),
            "counter (simulated)  s\n\
             yld_count            0\n\
             MC.alb_count         2\n\
             MC.alb_failed        0\n\
             all counters 0: CLS\n"
        );
    }

    #[test]
    fn counters_stand_in_columns() {
        assert_eq!(
            counters(&with_counters(), None),
            "counter (simulated)   roost  fair@5.19\n\
             llcs_shared          0.2500          -\n\
             sis_search                -    5842896\n\
             sis_domain_search         -    4544492\n\
             sis_scanned               -  128300000\n\
             sis_failed                -      38539\n"
        );
    }

    #[test]
    fn search_efficiency_is_that_of_the_published_counters() {
        assert_eq!(
            search_efficiency(&with_counters(), None),
            "case (simulated)  scheduler  se_eff%  dom_eff%  fast_rate%  success_rate%\n\
             netperf           fair@5.19    4.524     3.548      22.222         99.340\n"
        );
        assert_eq!(search_efficiency(&comparison(Better::Lower, &[&[None]]), None), "");
    }
}
