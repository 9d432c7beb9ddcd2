//! The comparison as CSV, for spreadsheets and scripts.

use crate::comparison::Comparison;
use crate::table::better;

/// Columns of the file.
const HEADER: [&str; 8] =
    ["machine", "workload", "scheduler", "seed", "metric", "unit", "better", "value"];

/// The comparison as CSV with a header: a row a metric, scheduler and seed, so that every statistic
/// can be recomputed. `value` is empty where that run measured nothing; figures are written in full.
pub fn csv(comparison: &Comparison) -> String {
    let mut writer = ::csv::Writer::from_writer(Vec::new());
    // Neither writing to memory nor these rows of one length fail.
    let _ = writer.write_record(HEADER);
    for metric in &comparison.metrics {
        let what = [metric.name.as_str(), &metric.unit, better(metric.better)];
        for (scheduler, samples) in comparison.schedulers.iter().zip(&metric.samples) {
            for (repeat, value) in samples.iter().enumerate() {
                write_row(&mut writer, comparison, scheduler, repeat, what, *value);
            }
        }
    }
    text(writer)
}

/// The counters as further rows of [`fn@csv`]'s file: `metric` is the counter; counters have no unit
/// and no better direction. A run without the counter has no row.
pub fn csv_counters(comparison: &Comparison) -> String {
    let mut writer = ::csv::Writer::from_writer(Vec::new());
    for counter in &comparison.counters {
        for (scheduler, samples) in comparison.schedulers.iter().zip(&counter.samples) {
            for (repeat, value) in samples.iter().enumerate().filter(|(_, value)| value.is_some()) {
                let what = [counter.name.as_str(), "", ""];
                write_row(&mut writer, comparison, scheduler, repeat, what, *value);
            }
        }
    }
    text(writer)
}

/// Writes what one run of `scheduler` measured; `what` is name, unit and better direction.
fn write_row(
    writer: &mut ::csv::Writer<Vec<u8>>,
    comparison: &Comparison,
    scheduler: &str,
    repeat: usize,
    [metric, unit, better]: [&str; 3],
    value: Option<f64>,
) {
    // As above: neither writing to memory nor rows of one length fail.
    let _ = writer.write_record([
        comparison.machine.as_str(),
        &comparison.workload,
        scheduler,
        &comparison.seed_of(repeat).to_string(),
        metric,
        unit,
        better,
        &value.map_or_else(String::new, |value| value.to_string()),
    ]);
}

fn text(writer: ::csv::Writer<Vec<u8>>) -> String {
    writer.into_inner().ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::{comparison, outcome};
    use roost_workload::Better;

    #[test]
    fn a_row_a_counter_and_run_that_has_it() {
        let run = |name, value| outcome(Better::Lower, None, &[(name, 3.0), ("both", value)]);
        let names = vec!["one".to_owned(), "two".to_owned()];
        let outcomes = vec![vec![run("a", 1.5), run("both", 2.0)], vec![run("b", 0.5)]];
        let c = Comparison::new("m", "w", names, 7, outcomes);
        assert_eq!(
            csv_counters(&c),
            "m,w,one,7,a,,,3\n\
             m,w,one,7,both,,,1.5\n\
             m,w,one,8,both,,,3\n\
             m,w,two,7,both,,,0.5\n\
             m,w,two,7,b,,,3\n"
        );
    }

    #[test]
    fn a_row_a_metric_scheduler_and_seed() {
        let values: [&[_]; 2] = [&[Some(10.0), Some(10.5)], &[Some(8.0), None]];
        let mut c = comparison(Better::Lower, &values);
        c.machine = "two, \"quoted\"".to_owned();
        assert_eq!(
            csv(&c),
            "machine,workload,scheduler,seed,metric,unit,better,value\n\
             \"two, \"\"quoted\"\"\",hackbench,fair:5.16,7,time,s,lower,10\n\
             \"two, \"\"quoted\"\"\",hackbench,fair:5.16,8,time,s,lower,10.5\n\
             \"two, \"\"quoted\"\"\",hackbench,fair:5.16+numa-imbalance,7,time,s,lower,8\n\
             \"two, \"\"quoted\"\"\",hackbench,fair:5.16+numa-imbalance,8,time,s,lower,\n"
        );
    }
}
