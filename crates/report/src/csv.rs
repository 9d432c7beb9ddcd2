//! The comparison as CSV, for spreadsheets and scripts.

use crate::comparison::Comparison;
use crate::table::better;

/// Columns of the file.
const HEADER: [&str; 12] = [
    "machine",
    "workload",
    "seed",
    "metric",
    "unit",
    "better",
    "scheduler",
    "repeats",
    "mean",
    "stddev",
    "change_pct",
    "significant",
];

/// The comparison as CSV with a header: a row a metric and scheduler. `repeats` counts the repeats
/// with a value, `mean` is the arithmetic mean, `change_pct` is percent of the first scheduler's
/// mean and positive where better. A field is empty where there is nothing to say; figures are
/// written in full.
pub fn csv(comparison: &Comparison) -> String {
    let mut writer = ::csv::Writer::from_writer(Vec::new());
    let text = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    // Neither writing to memory nor these rows of one length fail.
    let _ = writer.write_record(HEADER);
    for metric in &comparison.metrics {
        for (index, scheduler) in comparison.schedulers.iter().enumerate() {
            let summary = metric.summaries.get(index).copied().flatten();
            let significant = metric.significant(index).map_or_else(String::new, |s| s.to_string());
            let _ = writer.write_record([
                comparison.machine.as_str(),
                &comparison.workload,
                &comparison.seed.to_string(),
                &metric.name,
                &metric.unit,
                better(metric.better),
                scheduler,
                &summary.map_or(0, |summary| summary.count).to_string(),
                &text(summary.map(|summary| summary.mean)),
                &text(summary.and_then(|summary| summary.stddev)),
                &text(metric.change_pct(index)),
                &significant,
            ]);
        }
    }
    writer.into_inner().ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}

/// The counters as further rows of [`fn@csv`]'s file: `metric` is the counter, `mean` its mean; counters
/// have no better direction and no deviation. A scheduler without the counter has no row.
pub fn csv_counters(comparison: &Comparison) -> String {
    let mut writer = ::csv::Writer::from_writer(Vec::new());
    let (seed, repeats) = (comparison.seed.to_string(), comparison.repeats.to_string());
    for counter in &comparison.counters {
        for (scheduler, mean) in comparison.schedulers.iter().zip(&counter.means) {
            let Some(mean) = mean else { continue };
            // As above: neither writing to memory nor rows of one length fail.
            let _ = writer.write_record([
                comparison.machine.as_str(),
                &comparison.workload,
                &seed,
                &counter.name,
                "",
                "",
                scheduler,
                &repeats,
                &mean.to_string(),
                "",
                "",
                "",
            ]);
        }
    }
    writer.into_inner().ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::{comparison, outcome};
    use roost_workload::Better;

    #[test]
    fn a_row_a_counter_and_scheduler_that_has_it() {
        let runs = |name| vec![outcome(Better::Lower, None, &[(name, 3.0), ("both", 1.5)])];
        let names = vec!["one".to_owned(), "two".to_owned()];
        let c = Comparison::new("m", "w", names, 7, vec![runs("a"), runs("b")]);
        assert_eq!(
            csv_counters(&c),
            "m,w,7,a,,,one,1,3,,,\n\
             m,w,7,both,,,one,1,1.5,,,\n\
             m,w,7,both,,,two,1,1.5,,,\n\
             m,w,7,b,,,two,1,3,,,\n"
        );
    }

    #[test]
    fn a_row_a_metric_and_scheduler() {
        let values: [&[_]; 2] = [&[Some(10.0), Some(10.0)], &[Some(8.0), None]];
        let mut c = comparison(Better::Lower, &values);
        c.machine = "two, \"quoted\"".to_owned();
        assert_eq!(
            csv(&c),
            "machine,workload,seed,metric,unit,better,scheduler,repeats,mean,stddev,change_pct,\
             significant\n\
             \"two, \"\"quoted\"\"\",hackbench,7,time,s,lower,fair:5.16,2,10,0,,\n\
             \"two, \"\"quoted\"\"\",hackbench,7,time,s,lower,fair:5.16+numa-imbalance,1,8,,20,\n"
        );
    }
}
