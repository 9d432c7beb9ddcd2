//! Comparisons as CSV, for spreadsheets and scripts.

use crate::comparison::Comparison;
use crate::experiment::Experiment;
use crate::table::better;

/// The columns of the file.
const HEADER: [&str; 19] = [
    "machine",
    "workload",
    "scheduler",
    "seed",
    "metric",
    "unit",
    "better",
    "value",
    "place",
    "kernel",
    "switches",
    "elapsed_ns",
    "measured_from_ns",
    "machine_sha256",
    "workload_sha256",
    "roost",
    "commit",
    "partial",
    "spec",
];

/// Comparisons as CSV with a header. There is one row per metric, scheduler and seed, so that every statistic can be
/// recomputed. `value` is empty if that run measured nothing. Numbers have all digits.
pub fn csv(comparisons: &[Comparison]) -> String {
    let mut writer = ::csv::Writer::from_writer(Vec::new());
    // This cannot fail: it writes to memory, and all rows have the same length.
    let _ = writer.write_record(HEADER);
    for comparison in comparisons {
        for metric in &comparison.metrics {
            let what = [metric.name.as_str(), &metric.unit, better(metric.better)];
            write_rows(&mut writer, comparison, what, &metric.samples, |_| true);
        }
    }
    text(writer)
}

/// The counters, as further rows of the file of [`fn@csv`]. The column `metric` has the counter's name. Counters have
/// no unit and no better direction. A run without the counter has no row.
pub fn csv_counters(comparisons: &[Comparison]) -> String {
    let mut writer = ::csv::Writer::from_writer(Vec::new());
    for comparison in comparisons {
        for counter in &comparison.counters {
            let what = [counter.name.as_str(), "", ""];
            write_rows(&mut writer, comparison, what, &counter.samples, |value| value.is_some());
        }
    }
    text(writer)
}

/// Writes rows for the `wanted` samples. `samples` has one vector per scheduler.
fn write_rows(
    writer: &mut ::csv::Writer<Vec<u8>>,
    comparison: &Comparison,
    what: [&str; 3],
    samples: &[Vec<Option<f64>>],
    wanted: impl Fn(Option<f64>) -> bool,
) {
    for (scheduler, samples) in samples.iter().enumerate() {
        for (repeat, value) in samples.iter().enumerate().filter(|(_, value)| wanted(**value)) {
            write_row(writer, comparison, (scheduler, repeat), what, *value);
        }
    }
}

/// Writes the row of one value. `what` is name, unit and better direction.
fn write_row(
    writer: &mut ::csv::Writer<Vec<u8>>,
    comparison: &Comparison,
    (scheduler, repeat): (usize, usize),
    [metric, unit, better]: [&str; 3],
    value: Option<f64>,
) {
    let Experiment { roost, place, machine, workload, schedulers, .. } = &comparison.experiment;
    let Some(contender) = schedulers.get(scheduler) else { return };
    let elapsed = comparison.elapsed_ns.get(scheduler).and_then(|runs| runs.get(repeat));
    // This cannot fail: it writes to memory, and all rows have the same length.
    let _ = writer.write_record([
        &machine.name,
        &workload.name,
        &contender.name,
        &comparison.seed_of(repeat).to_string(),
        metric,
        unit,
        better,
        &shown(value),
        place.word(),
        &contender.kernel,
        &contender.switches.join(" "),
        &shown(elapsed),
        &shown(comparison.experiment.measured_from_ns),
        &machine.sha256,
        &workload.sha256,
        &roost.version,
        &roost.commit_shown(),
        &comparison.interrupted.is_some().to_string(),
        &contender.spec,
    ]);
}

/// The value as text, or an empty string.
fn shown(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn text(writer: ::csv::Writer<Vec<u8>>) -> String {
    writer.into_inner().ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::{comparison, experiment, outcome};
    use std::collections::BTreeMap;

    use crate::experiment::Place;
    use roost_workload::Better;

    #[test]
    fn a_row_a_counter_and_run_that_has_it() {
        let run = |name, value| outcome(Better::Lower, None, &[(name, 3.0), ("both", value)]);
        let outcomes = vec![vec![run("a", 1.5), run("both", 2.0)], vec![run("b", 0.5)]];
        let c = Comparison::new(experiment("w", &["one", "two"]), outcomes);
        assert_eq!(
            first_columns(&csv_counters(&[c])),
            [
                "zen3,w,one,7,a,,,3",
                "zen3,w,one,7,both,,,1.5",
                "zen3,w,one,8,both,,,3",
                "zen3,w,two,7,both,,,0.5",
                "zen3,w,two,7,b,,,3",
            ]
        );
    }

    #[test]
    fn a_row_a_metric_scheduler_and_seed() {
        let values: [&[_]; 2] = [&[Some(10.0), Some(10.5)], &[Some(8.0), None]];
        let mut c = comparison(Better::Lower, &values);
        c.experiment.machine.name = "two, \"quoted\"".to_owned();
        assert_eq!(
            first_columns(&csv(&[c])),
            [
                "machine,workload,scheduler,seed,metric,unit,better,value",
                "\"two, \"\"quoted\"\"\",hackbench,fair@5.16,7,time,s,lower,10",
                "\"two, \"\"quoted\"\"\",hackbench,fair@5.16,8,time,s,lower,10.5",
                "\"two, \"\"quoted\"\"\",hackbench,fair@5.16+numa-imbalance,7,time,s,lower,8",
                "\"two, \"\"quoted\"\"\",hackbench,fair@5.16+numa-imbalance,8,time,s,lower,",
            ]
        );
    }

    #[test]
    fn every_row_tells_the_experiment() {
        let mut c = comparison(Better::Lower, &[&[Some(1.0)], &[Some(2.0)]]);
        let last = |c: &Comparison| {
            let text = csv(std::slice::from_ref(c));
            let mut reader = ::csv::Reader::from_reader(text.as_bytes());
            let columns = reader.headers().unwrap().clone();
            let row = reader.records().last().unwrap().unwrap();
            let cell = |(name, cell): (&str, &str)| (name.to_owned(), cell.to_owned());
            columns.iter().zip(row.iter()).map(cell).collect::<BTreeMap<_, _>>()
        };
        let row = last(&c);
        let cells = |names: [&str; 9]| names.map(|name| row[name].as_str());
        let names = [
            "place",
            "kernel",
            "switches",
            "elapsed_ns",
            "measured_from_ns",
            "machine_sha256",
            "workload_sha256",
            "roost",
            "commit",
        ];
        let (hash, commit) = ("0123456789abcdef", "a".repeat(40));
        let wanted = [
            "simulated",
            "5.16",
            "numa-imbalance",
            "1000000000",
            "0",
            hash,
            hash,
            "0.1.0",
            &commit,
        ];
        assert_eq!(cells(names), wanted);
        c.experiment.place = Place::Host;
        c.experiment.measured_from_ns = None;
        c.experiment.roost.modified = true;
        let row = last(&c);
        assert_eq!((row["place"].as_str(), row["measured_from_ns"].as_str()), ("host", ""));
        assert_eq!(row["commit"], format!("{commit}, modified"));
    }

    /// The columns that come after the experiment's.
    fn first_columns(text: &str) -> Vec<String> {
        let columns = |line: &str| line.rsplitn(12, ',').last().unwrap_or_default().to_owned();
        text.lines().map(columns).collect()
    }
}
