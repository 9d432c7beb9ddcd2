//! Writes the comparison of workloads as a table for people, and as CSV and JSON for programs.

use std::fmt::Write;

use roost_report::{Summary, plain_table};
use serde::Serialize;

use super::{Comparison, Opinion, Row};

const HEADER: [&str; 7] =
    ["workload", "counter", "real", "±95%", "simulated", "ratio", "within 25%"];

const LEGEND: &str = "
Events for each operation of the workload, of its tasks alone. ratio: simulated by real. slower: CPU
time of an operation in the guest, by the one of the simulation, which has the speed of hardware.
rare: fewer than 5 events a run on both sides.
";

/// A row for each workload and counter, and a total.
pub fn table(comparisons: &[Comparison]) -> String {
    let mut rows = Vec::new();
    for comparison in comparisons {
        let Ok(of_one) = &comparison.rows else { continue };
        rows.extend(of_one.iter().enumerate().map(|(index, row)| {
            let name = if index == 0 { comparison.workload.clone() } else { String::new() };
            cells(name, row)
        }));
    }
    let mut out = plain_table(&HEADER, rows, 2);
    out.push_str(LEGEND);
    out.push('\n');
    for comparison in comparisons {
        let Comparison { workload, operation, rows, slower } = comparison;
        // Writing to a String cannot fail.
        let _ = match (rows, slower) {
            (Err(reason), _) => writeln!(out, "{workload}: not compared: {reason}"),
            (Ok(_), Some(slower)) => {
                writeln!(out, "{workload}: for each {}; {slower:.0} times slower", operation.name)
            }
            (Ok(_), None) => writeln!(out, "{workload}: for each {}", operation.name),
        };
    }
    let (agreeing, compared) = total(comparisons);
    let missing = comparisons.iter().filter(|comparison| comparison.rows.is_err()).count();
    let _ = writeln!(
        out,
        "\n{agreeing} of {compared} counters are within 25%; {missing} workloads not compared"
    );
    out
}

/// Number of counters within the tolerance, and of those that are compared.
pub(super) fn total(comparisons: &[Comparison]) -> (usize, usize) {
    comparisons
        .iter()
        .map(Comparison::agreeing)
        .fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
}

/// The table as a section of a Markdown page.
pub fn markdown(comparisons: &[Comparison], title: Title<'_>) -> String {
    let Title { roost, kernel, scheduler, machine } = title;
    let mut out = format!(
        "## {scheduler} on {machine} beside Linux {kernel}, roost {roost}\n\n| workload | for each | \
         slower | counter | real | ±95% | simulated | ratio | within 25% |\n\
         |---|---|--:|---|--:|--:|--:|--:|---|\n"
    );
    for comparison in comparisons {
        let Comparison { workload, operation, rows, slower } = comparison;
        for row in rows.as_deref().unwrap_or_default() {
            let slower = slower.map_or_else(|| "-".to_owned(), |slower| format!("{slower:.0}"));
            let cells = cells(format!("`{workload}`"), row);
            let (name, counted) = (&cells[0], cells[1..].join(" | "));
            // Writing to a String cannot fail.
            let _ = writeln!(out, "| {name} | {} | {slower} | {counted} |", operation.name);
        }
        if let Err(reason) = rows {
            let _ = writeln!(
                out,
                "| `{workload}` | {} | | not compared: {reason} | | | | | |",
                operation.name
            );
        }
    }
    let (agreeing, compared) = total(comparisons);
    let _ = writeln!(out, "\n{agreeing} of {compared} counters are within 25%.");
    out
}

fn cells(workload: String, row: &Row) -> Vec<String> {
    let verdict = match row.opinion {
        Opinion::Within => "yes",
        Opinion::Differs => "no",
        Opinion::Rare => "rare",
    };
    vec![
        workload,
        row.counter.to_owned(),
        figure(row.real.mean),
        half_interval(&row.real).map_or_else(|| "-".to_owned(), figure),
        figure(row.simulated.mean),
        if row.ratio().is_finite() { format!("{:.2}", row.ratio()) } else { "-".to_owned() },
        verdict.to_owned(),
    ]
}

fn half_interval(summary: &Summary) -> Option<f64> {
    summary.confidence.map(|interval| interval.high - summary.mean)
}

/// Three significant digits, because counts of different workloads differ by factors of 10,000.
fn figure(value: f64) -> String {
    let digits = match value.abs() {
        0.0 => 0,
        size if size >= 100.0 => 0,
        size => (2.0 - size.log10().floor()).clamp(0.0, 8.0) as usize,
    };
    format!("{value:.digits$}")
}

/// The columns of the CSV file.
const COLUMNS: [&str; 10] = [
    "workload",
    "operation",
    "counter",
    "real_runs",
    "real",
    "real_low",
    "real_high",
    "simulated",
    "ratio",
    "verdict",
];

/// All counters as rows, with a header. A workload that was not compared has one row, with the reason as verdict.
pub fn csv(comparisons: &[Comparison]) -> String {
    let mut writer = ::csv::Writer::from_writer(Vec::new());
    // This cannot fail: it writes to memory, and all rows have the same length.
    let _ = writer.write_record(COLUMNS);
    let text = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    for Comparison { workload, operation, rows, .. } in comparisons {
        let head = |counter: &str| [workload, operation.name, counter].map(str::to_owned);
        match rows {
            Err(reason) => {
                let empty = std::iter::repeat_n(String::new(), 6);
                let _ =
                    writer.write_record(head("").into_iter().chain(empty).chain([reason.clone()]));
            }
            Ok(rows) => {
                for row in rows {
                    let ratio = Some(row.ratio()).filter(|ratio| ratio.is_finite());
                    let interval = row.real.confidence;
                    let _ = writer.write_record(head(row.counter).into_iter().chain([
                        row.real.count.to_string(),
                        row.real.mean.to_string(),
                        text(interval.map(|interval| interval.low)),
                        text(interval.map(|interval| interval.high)),
                        row.simulated.mean.to_string(),
                        text(ratio),
                        word(row.opinion).to_owned(),
                    ]));
                }
            }
        }
    }
    writer.into_inner().ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}

fn word(opinion: Opinion) -> &'static str {
    match opinion {
        Opinion::Within => "within",
        Opinion::Differs => "differs",
        Opinion::Rare => "rare",
    }
}

#[derive(Serialize)]
struct Document<'a> {
    roost: &'a str,
    kernel: &'a str,
    scheduler: &'a str,
    machine: &'a str,
    agreeing: usize,
    compared: usize,
    workloads: Vec<WorkloadDocument<'a>>,
}

#[derive(Serialize)]
struct WorkloadDocument<'a> {
    workload: &'a str,
    operation: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    slower: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_compared: Option<&'a str>,
    counters: Vec<RowDocument>,
}

#[derive(Serialize)]
struct RowDocument {
    counter: &'static str,
    real_runs: usize,
    real: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    real_interval: Option<[f64; 2]>,
    simulated: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
    verdict: Opinion,
}

/// What was compared, for the head of the output.
#[derive(Clone, Copy, Debug)]
pub struct Title<'a> {
    /// The build of roost.
    pub roost: &'a str,
    /// The kernel's release.
    pub kernel: &'a str,
    /// The scheduler.
    pub scheduler: &'a str,
    /// The machine.
    pub machine: &'a str,
}

/// The comparison as one JSON object.
pub fn json(comparisons: &[Comparison], title: Title<'_>) -> String {
    let (agreeing, compared) = total(comparisons);
    let Title { roost, kernel, scheduler, machine } = title;
    let workloads = comparisons.iter().map(workload_document).collect();
    let document = Document { roost, kernel, scheduler, machine, agreeing, compared, workloads };
    // This cannot fail: it writes to memory, and all keys are strings.
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    text
}

fn workload_document(comparison: &Comparison) -> WorkloadDocument<'_> {
    let rows = comparison.rows.as_deref().unwrap_or_default();
    let counters = rows.iter().map(|row| RowDocument {
        counter: row.counter,
        real_runs: row.real.count,
        real: row.real.mean,
        real_interval: row.real.confidence.map(|interval| [interval.low, interval.high]),
        simulated: row.simulated.mean,
        ratio: Some(row.ratio()).filter(|ratio| ratio.is_finite()),
        verdict: row.opinion,
    });
    WorkloadDocument {
        workload: &comparison.workload,
        operation: comparison.operation.name,
        slower: comparison.slower.filter(|slower| slower.is_finite()),
        not_compared: comparison.rows.as_ref().err().map(String::as_str),
        counters: counters.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Counted;
    use super::*;

    fn comparisons() -> Vec<Comparison> {
        let runs = |wakeups| {
            let run = Counted { operations: 1000.0, cpu_ns: 1e6, ..Counted::default() };
            vec![Counted { wakeups, switches: 2000.0, sleeps: 1000.0, ..run }; 2]
        };
        let reason = "tbench is needed and missing: apt-get install dbench";
        vec![
            Comparison::new("netperf-tcp-rr", &runs(500.0), Ok(&runs(1000.0))).unwrap(),
            Comparison::new("tbench", &runs(1.0), Err(reason.into())).unwrap(),
        ]
    }

    #[test]
    fn the_table_has_every_counter_the_total_and_the_missing_program_with_its_package() {
        let text = table(&comparisons());
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        let first = ["netperf-tcp-rr", "wakeups", "1.00", "0", "0.500", "0.50", "no"];
        assert!(lines.iter().any(|line| *line == first), "{text}");
        assert!(text.contains("tbench: not compared: tbench is needed"), "{text}");
        assert!(text.contains("install dbench"), "{text}");
        assert!(
            text.contains("2 of 3 counters are within 25%; 1 workloads not compared"),
            "{text}"
        );
    }

    #[test]
    fn csv_and_json_hold_every_counter_in_full() {
        let text = csv(&comparisons());
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows.len(), 1 + 5 + 1);
        assert_eq!(rows[1], "netperf-tcp-rr,transaction,wakeups,2,1,1,1,0.5,0.5,differs");
        assert!(rows[6].ends_with("apt-get install dbench"), "{}", rows[6]);
        let title = Title { roost: "1", kernel: "7.2", scheduler: "fair@7.2", machine: "m" };
        let document: serde_json::Value =
            serde_json::from_str(&json(&comparisons(), title)).unwrap();
        assert_eq!((&document["agreeing"], &document["compared"]), (&2.into(), &3.into()));
        let counter = &document["workloads"][0]["counters"][0];
        assert_eq!((&counter["ratio"], &counter["verdict"]), (&0.5.into(), &"differs".into()));
        let reason = document["workloads"][1]["not_compared"].as_str().unwrap();
        assert!(reason.contains("dbench"), "{reason}");
    }
}
