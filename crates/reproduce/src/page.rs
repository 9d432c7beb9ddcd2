//! The page with all results, for people.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;
use statrs::statistics::{Data, Median};

use crate::recipe::Status;
use crate::results::{Column, RANK_CORRELATION, Results, RowResult, StudyResult};
use crate::score::{Count, Counts, Score};
use crate::verdict::{DEVIATION_FACTOR, LEVEL_FACTOR, MATERIAL_PCT, SIZE_FACTOR, factor};

/// The results as Markdown.
pub fn page(results: &Results) -> String {
    let mut out = String::from("# Published results beside simulated ones\n\n");
    out += &heading(results);
    out += &score(&Score::of(results));
    out += &deviations(results);
    out += &legend();
    let mechanisms = results.studies.values().map(|study| study.mechanism.as_str());
    for mechanism in mechanisms.collect::<BTreeSet<_>>() {
        let _ = write!(out, "\n## {mechanism}\n");
        let studies = results.studies.iter().filter(|(_, result)| result.mechanism == mechanism);
        out += &overview(studies.clone());
        studies.for_each(|(name, result)| out += &study(name, result));
    }
    out
}

/// The heading: which program wrote the page, and how many rows there are.
fn heading(results: &Results) -> String {
    let score = Score::of(results);
    let programs: BTreeSet<&str> =
        results.studies.values().filter_map(|study| study.program.as_deref()).collect();
    let programs: Vec<&str> = programs.into_iter().collect();
    format!(
        "`roost reproduce` writes this page from the recipes in `published/recipes/`.\n\
         [results.json](results.json) has all digits. [Notes](notes/2026-11-25-results.md) tell what was tried.\n\
         Program: {}.\n\n| rows | |\n|---|---|\n| run | {} of {} |\n| not modelled, and in no count below | {} |\n\
         | pictures, formulas, and rows of other programs, which no run repeats | {} |\n",
        programs.join("; "),
        score.run,
        score.rows,
        score.not_modelled,
        score.left_out,
    )
}

fn score(score: &Score) -> String {
    let mut out = String::from(
        "\n| rows | bar | all that were run | predicted ones | |\n|---|---|---|---|---|\n",
    );
    for Bar { rows, bar, all, predicted, met } in bars(score) {
        let verdict = match met {
            Some(true) => "met",
            Some(false) => "missed",
            None => "-",
        };
        let _ = writeln!(out, "| {rows} | {bar}% | {} | {} | {verdict} |", of(all), of(predicted));
    }
    let (all, predicted) = (score.all.unmoved, score.predicted.unmoved);
    let _ = write!(
        out,
        "\nOf the right rows that are not material, the mechanism never acted in {all} ({predicted} of the predicted \
         ones): with\nand without it the result is the same to the bit.\n"
    );
    out
}

/// What has to be reached, and what is.
#[derive(Serialize)]
pub(crate) struct Bar {
    /// The rows that count.
    rows: String,
    /// Percent of them that have to come out as published.
    bar: usize,
    /// All rows that were run.
    all: Count,
    /// Those that are neither calibrated nor chosen after they had been seen.
    predicted: Count,
    /// Whether all reach it; `None`: there are none.
    met: Option<bool>,
}

/// Every bar.
pub(crate) fn bars(score: &Score) -> [Bar; 5] {
    let (all, predicted) = (score.all, score.predicted);
    let bar = |rows: String, bar: usize, of: fn(&Counts) -> Count| {
        let (all, predicted) = (of(&all), of(&predicted));
        let met = all.percent().map(|_| 100 * all.right >= bar * all.of);
        Bar { rows, bar, all, predicted, met }
    };
    let search =
        format!("search statistics: rank correlation of a column at least {RANK_CORRELATION}");
    [
        bar("material: the published sign".to_owned(), 80, |counts| counts.sign),
        bar(format!("material: size within a factor of {SIZE_FACTOR}"), 60, |counts| counts.size),
        bar(format!("not material: less than {MATERIAL_PCT}%"), 85, |counts| counts.quiet),
        bar(format!("level of the baseline within {LEVEL_FACTOR}"), 80, |counts| counts.level),
        bar(search, 100, |counts| counts.search),
    ]
}

fn of(count: Count) -> String {
    match count.percent() {
        Some(percent) => format!("{} of {} ({percent}%)", count.right, count.of),
        None => "-".to_owned(),
    }
}

/// How much runs of the baseline differ, as published and between seeds.
fn deviations(results: &Results) -> String {
    let mut out = String::new();
    let (mut all, mut alike) = (0, 0);
    for (name, study) in &results.studies {
        let pairs = study.deviations();
        if pairs.is_empty() {
            continue;
        }
        let within =
            pairs.iter().filter(|(theirs, ours)| factor(*theirs, *ours) <= DEVIATION_FACTOR);
        let (rows, within) = (pairs.len(), within.count());
        (all, alike) = (all + rows, alike + within);
        let (theirs, ours): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        let [theirs, ours] = [theirs, ours].map(|values| Data::new(values).median());
        let _ = writeln!(out, "| {name} | {rows} | {theirs:.2}% | {ours:.2}% | {within} |");
    }
    if out.is_empty() {
        return out;
    }
    format!(
        "\nRuns of the baseline differ. Medians over the rows whose standard deviation was published and that ran with \
         several\nseeds; in the last column, rows where both are within a factor of {DEVIATION_FACTOR}:\n\n\
         | study | rows | published | simulated | alike |\n|---|---|---|---|---|\n{out}\n\
         A row that is not alike is a miss: {} of {all} are.\n",
        all - alike
    )
}

fn legend() -> String {
    format!(
        "\nChanges are in percent; positive is better. A published change has its standard deviation in brackets. The \
         95%\ninterval holds the mean over the seeds with 95% confidence; one seed has none.\n\n\
         | word | meaning |\n|---|---|\n\
         | *material* | the published change is at least {MATERIAL_PCT}% and exceeds its deviation. If its author \
         marked significant changes, it is marked |\n\
         | *right* | the sign is right, and the size within a factor of {SIZE_FACTOR} |\n\
         | *wrong sign* | at least {MATERIAL_PCT}% in the other direction |\n\
         | *no change where one was published* | none, less than that in the other direction, or one whose interval \
         holds 0; a miss |\n\
         | *calibrated* | a constant was chosen by this row |\n\
         | *chosen after* | something was chosen after this row had been seen |\n\
         | *predicted* | neither |\n\n\
         Levels count in studies that calibrate by no row. A value of a search statistic is undefined if nothing was \
         searched;\nthen its column is a miss. For each study of a mechanism, a table counts the rows that \
         are right by these bars.\n"
    )
}

/// The studies of a mechanism: what each asks, and how many of its rows are right.
fn overview<'a>(studies: impl Iterator<Item = (&'a String, &'a StudyResult)>) -> String {
    let mut out = String::from(
        "\n| study | question | sign | size | no change | level | search |\n|---|---|---|---|---|---|---|\n",
    );
    for (name, study) in studies {
        let Counts { sign, size, quiet, level, search, .. } = Counts::of(study);
        let [sign, size, quiet, level, search] = [sign, size, quiet, level, search].map(of_few);
        let question = &study.question;
        let _ = writeln!(
            out,
            "| [{name}](#{name}) | {question} | {sign} | {size} | {quiet} | {level} | {search} |"
        );
    }
    out
}

/// As [`of`], without the percentage.
fn of_few(count: Count) -> String {
    match count.of {
        0 => dash(),
        all => format!("{} of {all}", count.right),
    }
}

fn study(name: &str, study: &StudyResult) -> String {
    let mut out = format!("\n### {name}\n\n{}\n\n", study.question);
    out += &how(name, study);
    let (search, others): (Vec<&RowResult>, Vec<&RowResult>) =
        study.rows.iter().partition(|row| row.series.is_some());
    let run: Vec<&RowResult> = others.into_iter().filter(|row| row.simulated.is_some()).collect();
    if !run.is_empty() {
        out += &rows(&run);
    }
    let not_run = study.rows.len() - study.run();
    if not_run > 0 {
        let _ = write!(out, "\nRows that were not run: {not_run} of {}.\n", study.rows.len());
    }
    if !search.is_empty() {
        out += &columns(&study.columns());
    }
    if let Some(calibration) = &study.calibration {
        let _ = write!(out, "\nCalibrated by `{}`: {}.\n", calibration.row, calibration.what);
    }
    if !study.misses.is_empty() {
        out += "\nKnown misses:\n\n";
        study.misses.iter().for_each(|miss| {
            let _ = writeln!(out, "- {}", miss.miss);
        });
    }
    if !study.left_out.is_empty() {
        out += "\nNo run repeats:\n\n";
        for left in &study.left_out {
            let word = if left.not_modelled { ", not modelled" } else { "" };
            let _ = writeln!(out, "- `{}` ({}{word}): {}", left.rows, left.count, left.why);
        }
    }
    out
}

/// How to repeat the study, and how to look at one of its rows.
fn how(name: &str, study: &StudyResult) -> String {
    let tables: Vec<String> =
        study.tables.iter().map(|table| format!("`published/{table}`")).collect();
    let mut out = format!("`roost reproduce {name}` against {}", tables.join(", "));
    let Some(row) = study.rows.iter().find(|row| row.simulated.is_some()) else {
        return out + ".\n";
    };
    let duration = row.duration_ns.map_or_else(String::new, |ns| {
        let duration = humantime::format_duration(Duration::from_nanos(ns)).to_string();
        format!(" --duration {}", duration.replace(' ', ""))
    });
    let workload = match row.workload.contains(char::is_whitespace) {
        true => format!("\"{}\"", row.workload),
        false => row.workload.clone(),
    };
    let _ = write!(
        out,
        "; one row of it:\n\n    roost compare --machine {} --workload {workload}{duration} --repeat {} --counters \
         {}{}\n\n",
        study.machine,
        row.seeds,
        study.before,
        row.after.as_ref().map_or_else(String::new, |after| format!(" {after}")),
    );
    out
}

/// Changes and levels.
fn rows(rows: &[&RowResult]) -> String {
    let levels = rows.iter().any(|row| row.published_base.is_some());
    let mut out = String::from("| row | published | simulated | 95% interval | seeds | ");
    out += if levels { "baseline, published | simulated | " } else { "" };
    out += "verdict | |\n|---|---|---|---|---|---|---|";
    out += if levels { "---|---|\n" } else { "\n" };
    for row in rows {
        let ours = row.simulated.as_ref();
        let change = ours.and_then(|ours| ours.change_pct);
        let _ = write!(
            out,
            "| {} | {} | {} | {} | {} | ",
            row.id,
            published(row),
            row.published_change_pct.and(change).map_or_else(dash, percent) + mark(row),
            ours.and_then(|ours| ours.change_95_pct).map_or_else(dash, |[low, high]| format!(
                "{} to {}",
                percent(low),
                percent(high)
            )),
            seeds(row.seeds),
        );
        if levels {
            let base = ours.and_then(|ours| ours.base).filter(|_| row.published_base.is_some());
            let (theirs, ours) = (row.published_base.map(figure), base.map(figure));
            let _ =
                write!(out, "{} | {} | ", theirs.unwrap_or_else(dash), ours.unwrap_or_else(dash));
        }
        let _ = writeln!(out, "{} | {} |", row.verdict.word(), status(row.status));
    }
    out + &unsteady(rows)
}

/// The mark of a value that is not steady.
fn mark(row: &RowResult) -> &'static str {
    if drifts(row).is_some() { " \\*" } else { "" }
}

/// What is not steady in a row: `+5% without the change, -4% with it`.
fn drifts(row: &RowResult) -> Option<String> {
    let ours = row.simulated.as_ref()?;
    let without = ours.base_drift_pct.map(|drift| format!("{drift:+.0}% without the change"));
    let with = ours.patched_drift_pct.map(|drift| format!("{drift:+.0}% with it"));
    let drifts: Vec<String> = without.into_iter().chain(with).collect();
    (!drifts.is_empty()).then(|| drifts.join(", "))
}

/// The marked rows, and how much their halves differ.
fn unsteady(rows: &[&RowResult]) -> String {
    let marked = rows.iter().filter_map(|row| Some(format!("- {}: {}\n", row.id, drifts(row)?)));
    let marked: String = marked.collect();
    if marked.is_empty() {
        return marked;
    }
    format!(
        "\n\\* not steady; the second half of the measurement differs from the first by\n\n{marked}"
    )
}

fn seeds(seeds: u64) -> String {
    if seeds == 1 { "1".to_owned() } else { format!("1 to {seeds}") }
}

fn status(status: Status) -> String {
    format!("*{}*", status.word())
}

fn published(row: &RowResult) -> String {
    let Some(change) = row.published_change_pct else { return dash() };
    match row.published_deviation_pct {
        Some(deviation) => format!("{} ({deviation:.1})", percent(change)),
        None => percent(change),
    }
}

/// Search statistics.
fn columns(columns: &[Column]) -> String {
    if columns.is_empty() {
        return String::new();
    }
    let mut out = String::from(
        "\n| search statistic | values | undefined | rank correlation | | |\n|---|---|---|---|---|---|\n",
    );
    for column in columns {
        let Column { name, values, undefined, correlation, status: known } = column;
        let correlation = correlation.map_or_else(dash, |rho| format!("{rho:.3}"));
        let verdict = if column.holds() { "right" } else { "missed" };
        let _ = writeln!(
            out,
            "| {name} | {values} | {undefined} | {correlation} | {verdict} | {} |",
            status(*known)
        );
    }
    out
}

fn dash() -> String {
    "-".to_owned()
}

fn percent(value: f64) -> String {
    // Adding 0 removes the sign of a value that rounds to zero.
    let rounded = (value * 100.0).round() / 100.0 + 0.0;
    if rounded.abs() >= 1000.0 { format!("{rounded:+.0}%") } else { format!("{rounded:+.2}%") }
}

/// A number with about four digits, as in published tables.
fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}
