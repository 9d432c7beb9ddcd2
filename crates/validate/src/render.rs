//! Writes agreements as tables for people, Markdown for the documentation, and CSV and JSON for programs.

use std::fmt::Write;

use roost_report::{Summary, plain_table};
use serde::Serialize;

use crate::agreement::{Agreement, Opinion, Row};
use crate::observation::Kind;
use crate::tolerance::PLACEMENT_POINTS;
use crate::verdict::{Suite, Verdict, percent};

/// The columns of the overview.
const HEADER: [&str; 9] =
    ["scenario", "shape", "agree%", "compared", "size", "overlap", "differ", "rare", "placement"];

const LEGEND: &str = "
agree%: counters that agree, of those compared: size (the means are close) and overlap (they are
not, but their 95% confidence intervals overlap). rare: too few events to compare.
placement: largest difference of a share of run time by LLC or node, percentage points.
";

/// A row per scenario and shape. With `details`, every quantity of each follows.
pub fn table(suite: &Suite, details: bool) -> String {
    let agreements = &suite.agreements;
    let mut out = plain_table(&HEADER, agreements.iter().map(cells).collect(), 2);
    out.push_str(LEGEND);
    if details {
        for agreement in agreements {
            // Writing to a String cannot fail.
            let _ = write!(out, "\n{}", one_by_one(agreement));
        }
    }
    out.push('\n');
    out.push_str(&verdict_text(&Verdict::of(suite)));
    out
}

/// The verdict as text: the totals, then a line for each missed bar.
pub fn verdict_text(verdict: &Verdict) -> String {
    let Verdict { agreeing, by_size, compared, rare, places, places_by_size, failures } = verdict;
    let mut out = format!(
        "{agreeing} of {compared} counters agree ({:.1}%): {by_size} in size, {} only by overlapping \
         intervals; {rare} too rare\n\
         {places_by_size} of {places} shares of run time by LLC and node are within \
         {PLACEMENT_POINTS:.0} points\n",
        percent(*agreeing, *compared),
        agreeing - by_size,
    );
    for failure in failures {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "missed: {failure}");
    }
    if failures.is_empty() {
        out.push_str("every bar was met\n");
    }
    out
}

/// The overview as a section of a Markdown page. `title` says what was compared and when.
pub fn markdown(suite: &Suite, title: &str) -> String {
    let agreements = &suite.agreements;
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut out = format!("## {title}\n\n");
    out.push_str(&line(&HEADER.map(str::to_owned)));
    out.push_str("|---|---|--:|--:|--:|--:|--:|--:|--:|\n");
    for agreement in agreements {
        out.push_str(&line(&cells(agreement)));
    }
    out.push('\n');
    for text in verdict_text(&Verdict::of(suite)).lines() {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "- {text}");
    }
    out.push_str(&disagreements(agreements));
    out
}

/// All counters that differ.
fn disagreements(agreements: &[Agreement]) -> String {
    let rows: Vec<(&Agreement, &Row)> = agreements
        .iter()
        .flat_map(|agreement| agreement.rows.iter().map(move |row| (agreement, row)))
        .filter(|(_, row)| row.opinion == Opinion::Differs)
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut out = "\n| differs | scenario | shape | simulated | real |\n".to_owned();
    out.push_str("|---|---|---|--:|--:|\n");
    for (agreement, row) in rows {
        let (sim, real) = (interval(&row.sim), interval(&row.real));
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "| {} | {} | {} | {sim} | {real} |",
            row.quantity.name, agreement.scenario, agreement.shape
        );
    }
    out
}

/// The cells of an agreement in the overview.
fn cells(agreement: &Agreement) -> Vec<String> {
    let (agreeing, compared) = agreement.agreeing();
    let count = |opinion| agreement.count(opinion).to_string();
    let share = format!("{:.1}", percent(agreeing, compared));
    vec![
        agreement.scenario.clone(),
        agreement.shape.clone(),
        if compared == 0 { "-".to_owned() } else { share },
        compared.to_string(),
        count(Opinion::Size),
        count(Opinion::Overlap),
        count(Opinion::Differs),
        count(Opinion::Rare),
        agreement
            .worst_placement()
            .map_or_else(|| "-".to_owned(), |row| format!("{:.1}", row.difference().abs())),
    ]
}

/// All quantities of an agreement.
fn one_by_one(agreement: &Agreement) -> String {
    let Agreement { scenario, shape, sim_repeats, real_repeats, rows } = agreement;
    let heading = format!(
        "{scenario} on {shape}: {sim_repeats} simulated and {real_repeats} real repeats, means and \
         95% intervals\n"
    );
    let row = |row: &Row| {
        vec![
            row.quantity.name.clone(),
            unit(row.quantity.kind).to_owned(),
            interval(&row.sim),
            interval(&row.real),
            row.opinion.word().to_owned(),
        ]
    };
    let header = ["quantity", "unit", "simulated", "real", "verdict"];
    heading + &plain_table(&header, rows.iter().map(row).collect(), 2)
}

fn unit(kind: Kind) -> &'static str {
    match kind {
        Kind::Placement => "% of run time",
        Kind::Count => "a run",
        Kind::Share => "% of wakeups",
        Kind::Ratio => "% of run time",
    }
}

/// The mean, and half of the width of its interval.
fn interval(summary: &Summary) -> String {
    match summary.confidence {
        Some(interval) => {
            format!("{} ± {}", figure(summary.mean), figure(interval.high - summary.mean))
        }
        None => figure(summary.mean),
    }
}

fn figure(value: f64) -> String {
    let decimals = if value.abs() >= 100.0 { 0 } else { 1 };
    format!("{value:.decimals$}")
}

/// The columns of the CSV file.
const COLUMNS: [&str; 13] = [
    "scenario",
    "shape",
    "kind",
    "quantity",
    "sim_repeats",
    "sim_mean",
    "sim_low",
    "sim_high",
    "real_repeats",
    "real_mean",
    "real_low",
    "real_high",
    "verdict",
];

/// All quantities as rows, with a header. Numbers have all digits. The ends of an interval are empty if there is only
/// one repeat.
pub fn csv(suite: &Suite) -> String {
    let mut writer = ::csv::Writer::from_writer(Vec::new());
    // This cannot fail: it writes to memory, and all rows have the same length.
    let _ = writer.write_record(COLUMNS);
    let text = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    for agreement in &suite.agreements {
        for row in &agreement.rows {
            let side = |summary: &Summary| {
                [
                    summary.count.to_string(),
                    summary.mean.to_string(),
                    text(summary.confidence.map(|interval| interval.low)),
                    text(summary.confidence.map(|interval| interval.high)),
                ]
            };
            let kind = kind_name(row.quantity.kind);
            let head = [&agreement.scenario, &agreement.shape, kind, &row.quantity.name];
            let _ = writer.write_record(
                head.into_iter()
                    .map(str::to_owned)
                    .chain(side(&row.sim))
                    .chain(side(&row.real))
                    .chain([row.opinion.word().to_lowercase()]),
            );
        }
    }
    writer.into_inner().ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Placement => "placement",
        Kind::Count => "count",
        Kind::Share => "share",
        Kind::Ratio => "ratio",
    }
}

/// A suite as programs read it.
#[derive(Serialize)]
pub(crate) struct Document<'a> {
    scheduler: &'a str,
    holds: bool,
    agreeing: usize,
    by_size: usize,
    compared: usize,
    rare: usize,
    places: usize,
    places_by_size: usize,
    missed: Vec<String>,
    agreements: Vec<AgreementDocument<'a>>,
}

#[derive(Serialize)]
struct AgreementDocument<'a> {
    scenario: &'a str,
    shape: &'a str,
    agreeing: usize,
    compared: usize,
    quantities: Vec<RowDocument<'a>>,
}

#[derive(Serialize)]
struct RowDocument<'a> {
    kind: Kind,
    name: &'a str,
    sim: Side,
    real: Side,
    verdict: String,
}

#[derive(Serialize)]
struct Side {
    repeats: usize,
    mean: f64,
    /// Both ends of the 95% confidence interval.
    interval: Option<[f64; 2]>,
}

impl From<&Summary> for Side {
    fn from(summary: &Summary) -> Self {
        let interval = summary.confidence.map(|interval| [interval.low, interval.high]);
        Self { repeats: summary.count, mean: summary.mean, interval }
    }
}

/// Everything as indented JSON with a final newline.
pub fn json(suite: &Suite) -> String {
    // This cannot fail: it writes to memory, and all keys are strings.
    let mut text = serde_json::to_string_pretty(&document(suite)).unwrap_or_default();
    text.push('\n');
    text
}

/// The whole comparison, as programs read it.
pub(crate) fn document(suite: &Suite) -> Document<'_> {
    let verdict = Verdict::of(suite);
    Document {
        scheduler: &suite.scheduler,
        holds: verdict.holds(),
        agreeing: verdict.agreeing,
        by_size: verdict.by_size,
        compared: verdict.compared,
        rare: verdict.rare,
        places: verdict.places,
        places_by_size: verdict.places_by_size,
        missed: verdict.failures.iter().map(ToString::to_string).collect(),
        agreements: suite.agreements.iter().map(agreement_document).collect(),
    }
}

fn agreement_document(agreement: &Agreement) -> AgreementDocument<'_> {
    let (agreeing, compared) = agreement.agreeing();
    let quantities = agreement.rows.iter().map(row_document).collect();
    AgreementDocument {
        scenario: &agreement.scenario,
        shape: &agreement.shape,
        agreeing,
        compared,
        quantities,
    }
}

fn row_document(row: &Row) -> RowDocument<'_> {
    RowDocument {
        kind: row.quantity.kind,
        name: &row.quantity.name,
        sim: Side::from(&row.sim),
        real: Side::from(&row.real),
        verdict: row.opinion.word().to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::compare;
    use crate::observation::Observation;
    use crate::tolerance::FAIR_BARS;

    fn suite() -> Suite {
        let run = |migrations, attempts, placed| {
            let mut run = Observation::default();
            run.add(Kind::Placement, "hog on LLC 1", placed);
            run.add(Kind::Count, "migrations", migrations);
            run.add(Kind::Count, "MC newidle attempts", attempts);
            run.add(Kind::Share, "wakeups_prev%", 98.25);
            run
        };
        let sim = [80.0, 90.0, 100.0, 110.0, 120.0].map(|m| run(m, 300.0, 27.0));
        let real = [90.0; 5].map(|m| run(m, 100.0, 25.0));
        let agreements = vec![compare("hogs", "2n2l4c", &sim, &real)];
        Suite { scheduler: "fair@7.2".to_owned(), bars: FAIR_BARS, agreements }
    }

    #[test]
    fn the_overview_says_what_agrees_and_how() {
        let text = table(&suite(), false);
        assert!(
            text.starts_with(
                "scenario  shape   agree%  compared  size  overlap  differ  rare  placement\n\
                 hogs      2n2l4c    66.7         3     2        0       1     0        2.0\n"
            ),
            "{text}"
        );
        assert!(
            text.ends_with(
                "2 of 3 counters agree (66.7%): 2 in size, 0 only by overlapping intervals; 0 too \
                 rare\n\
                 1 of 1 shares of run time by LLC and node are within 5 points\n\
                 missed: 66.7% of all counters agree, the bar is 85%\n\
                 missed: hogs: 66.7% of its counters agree, the bar is 70%\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn details_show_both_sides_of_every_quantity() {
        let text = table(&suite(), true);
        // Deviation sqrt(250), t(4) = 2.776. Half of the interval is 2.776 * 15.81 / sqrt(5) = 19.6.
        let lines = [
            "quantity             unit            simulated        real  verdict",
            "hog on LLC 1         % of run time  27.0 ± 0.0  25.0 ± 0.0     size",
            "migrations           a run          100 ± 19.6  90.0 ± 0.0     size",
            "MC newidle attempts  a run           300 ± 0.0   100 ± 0.0  DIFFERS",
            "wakeups_prev%        % of wakeups   98.2 ± 0.0  98.2 ± 0.0     size",
        ];
        assert!(text.contains(&lines.join("\n")), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn markdown_has_a_cell_a_column_and_names_what_differs() {
        let text = markdown(&suite(), "Results, 2026-11-20");
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
        let (overview, differs) = lines.split_at(3);
        assert!(overview.iter().all(|line| line.matches('|').count() == HEADER.len() + 1));
        assert!(text.starts_with("## Results, 2026-11-20\n"), "{text}");
        assert_eq!(differs[2], "| MC newidle attempts | hogs | 2n2l4c | 300 ± 0.0 | 100 ± 0.0 |");
    }

    #[test]
    fn csv_and_json_hold_every_quantity_in_full() {
        let suite = suite();
        let rows: Vec<String> = csv(&suite).lines().map(str::to_owned).collect();
        assert_eq!(rows.len(), 1 + suite.agreements[0].rows.len());
        let row = "hogs,2n2l4c,share,wakeups_prev%,5,98.25,98.25,98.25,5,98.25,98.25,98.25,size";
        assert_eq!(rows[4], row);
        let document: serde_json::Value = serde_json::from_str(&json(&suite)).unwrap();
        let quantity = &document["agreements"][0]["quantities"][2];
        assert_eq!(
            (&quantity["name"], &quantity["sim"]["mean"]),
            (&"MC newidle attempts".into(), &300.0.into())
        );
        assert_eq!((&quantity["verdict"], &document["holds"]), (&"differs".into(), &false.into()));
        assert_eq!(document["scheduler"], "fair@7.2");
        assert_eq!(document["missed"].as_array().map(Vec::len), Some(2));
    }
}
