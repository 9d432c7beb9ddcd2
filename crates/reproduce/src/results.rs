//! Rows compared with their runs.

use std::collections::BTreeMap;

use roost_report::{Interval, SearchCounts, Summary, change_pct, unsteady_pct};
use serde::{Deserialize, Serialize};

use crate::cache::Left;
use crate::error::ReproduceError;
use crate::plan::{Plan, RowRuns};
use crate::published::Published;
use crate::rank::rank_correlation;
use crate::recipe::{Calibration, LeftOut, Miss, Reading, Row, Statistic, Status, Study};
use crate::run::Measured;
use crate::score::Score;
use crate::verdict::{MATERIAL_PCT, Verdict, factor};

/// The results of all studies that were run, by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The studies.
    pub studies: BTreeMap<String, StudyResult>,
}

/// The results of a study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StudyResult {
    /// Version and commit of the program that made the runs. `None`: no run was made.
    pub program: Option<String>,
    /// The mechanism that the study is about.
    pub mechanism: String,
    /// The question that the study answers.
    pub question: String,
    /// Files in `published/`.
    pub tables: Vec<String>,
    /// The machine.
    pub machine: String,
    /// The scheduler without the change.
    pub before: String,
    /// The row to which a constant was calibrated.
    pub calibration: Option<Calibration>,
    /// Rows, in the order of the recipe.
    pub rows: Vec<RowResult>,
    /// The rows that are not repeated.
    pub left_out: Vec<LeftOut>,
    /// The known misses.
    pub misses: Vec<Miss>,
}

/// A row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowResult {
    /// Its name in the table.
    pub id: String,
    /// The workload.
    pub workload: String,
    /// The scheduler with the change.
    pub after: Option<String>,
    /// Duration of a run, if one was given.
    pub duration_ns: Option<u64>,
    /// Number of seeds, starting with 1.
    pub seeds: u64,
    /// Whether the row was known when the model was made.
    pub status: Status,
    /// Value before the change, as published.
    pub published_base: Option<f64>,
    /// Value with the change, as published.
    pub published_patched: Option<f64>,
    /// The published change in percent; positive is better.
    pub published_change_pct: Option<f64>,
    /// Standard deviation of the published value before the change, in percent of it.
    pub published_base_deviation_pct: Option<f64>,
    /// The standard deviation of the published change.
    pub published_deviation_pct: Option<f64>,
    /// Whether the published change is material: at least 3% and larger than its deviation. If the author marked
    /// significant changes, it must also be marked. `None`: no change was published.
    pub material: Option<bool>,
    /// The simulated values. `None`: the row was not run.
    pub simulated: Option<Simulated>,
    /// Whether the level is compared.
    pub level: bool,
    /// The column of search statistics that the row belongs to.
    pub series: Option<String>,
    /// The verdict on the row.
    pub verdict: Verdict,
}

/// The simulated values of a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Simulated {
    /// Value before the change. `None` if nothing was measured.
    pub base: Option<f64>,
    /// Standard deviation of the value before the change between seeds, in percent of it. `None` for a single seed, and
    /// for values that are not a mean.
    pub base_deviation_pct: Option<f64>,
    /// Value with the change.
    pub patched: Option<f64>,
    /// The change in percent; positive is better. It is the mean of the seeds' changes.
    pub change_pct: Option<f64>,
    /// The interval that contains this mean with 95% confidence. `None` for a single seed.
    pub change_95_pct: Option<[f64; 2]>,
    /// How much the value before the change differs in the second half of the measurement from the first, in percent.
    /// `None` if it is steady (not each seed differs by 3% or more in the same direction), or if halves say nothing
    /// about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_drift_pct: Option<f64>,
    /// The same of the value with the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patched_drift_pct: Option<f64>,
}

impl RowResult {
    /// Whether the runs with and without the change gave the same result to the bit: the mechanism never acted.
    pub fn is_unmoved(&self) -> bool {
        let simulated = self.simulated.as_ref();
        simulated.is_some_and(|ours| ours.patched.is_some() && ours.base == ours.patched)
    }

    /// The verdict on the row's figures.
    fn judged(&self) -> Verdict {
        let Some(ours) = &self.simulated else { return Verdict::NotRun };
        match (self.series.is_some(), self.published_change_pct.zip(self.material)) {
            (true, _) => match ours.base {
                Some(_) => Verdict::ByRank,
                None => Verdict::Undefined,
            },
            (false, Some((theirs, material))) => match ours.change_pct {
                Some(change) => Verdict::of_change(theirs, material, change, ours.change_95_pct),
                None => Verdict::Undefined,
            },
            (false, None) => match self.published_base.zip(ours.base) {
                Some((theirs, ours)) => Verdict::of_level(theirs, ours),
                None => Verdict::Undefined,
            },
        }
    }

    /// Ratio of the larger to the smaller of the simulated and the published level.
    pub fn level_factor(&self) -> Option<f64> {
        Some(factor(self.published_base?, self.simulated.as_ref()?.base?))
    }
}

/// A column of search statistics.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Number of values.
    pub values: usize,
    /// Number of values without a simulated counterpart, because nothing was searched.
    pub undefined: usize,
    /// Spearman's rank correlation of the other values. `None` if all simulated values are equal.
    pub correlation: Option<f64>,
    /// How far its rows were known: predicted only if all of them are.
    pub status: Status,
}

/// The rank correlation that a column must reach.
pub const RANK_CORRELATION: f64 = 0.9;

impl Column {
    /// Whether the column reaches the bar. A value that is undefined is a miss.
    pub fn holds(&self) -> bool {
        self.undefined == 0 && self.correlation.is_some_and(|rho| rho >= RANK_CORRELATION)
    }
}

/// Rounds to three decimals, the precision in which search statistics were published.
fn as_printed(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

impl StudyResult {
    /// The columns of search statistics of which all values were run, in the order of the recipe. A column whose
    /// published values are all equal has no ranks, and is left out.
    pub fn columns(&self) -> Vec<Column> {
        let mut names: Vec<&String> = Vec::new();
        for name in self.rows.iter().filter_map(|row| row.series.as_ref()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.into_iter().filter_map(|name| self.column(name)).collect()
    }

    fn column(&self, name: &str) -> Option<Column> {
        let rows = self.rows.iter().filter(|row| row.series.as_deref() == Some(name));
        let rows: Vec<&RowResult> = rows.collect();
        if rows.iter().any(|row| row.simulated.is_none()) {
            return None;
        }
        let all: Vec<f64> = rows.iter().filter_map(|row| row.published_base).collect();
        if all.iter().all(|value| Some(value) == all.first()) {
            return None;
        }
        let pair = |row: &&RowResult| {
            Some((row.published_base?, as_printed(row.simulated.as_ref()?.base?)))
        };
        let (theirs, ours): (Vec<f64>, Vec<f64>) = rows.iter().filter_map(pair).unzip();
        Some(Column {
            name: name.to_owned(),
            values: rows.len(),
            undefined: rows.len() - ours.len(),
            correlation: rank_correlation(&theirs, &ours),
            status: rows.iter().map(|row| row.status).min().unwrap_or_default(),
        })
    }

    /// The standard deviations of the baseline, published and simulated, of the rows that have both. In percent.
    pub fn deviations(&self) -> Vec<(f64, f64)> {
        let both = |row: &RowResult| {
            row.published_base_deviation_pct.zip(row.simulated.as_ref()?.base_deviation_pct)
        };
        self.rows.iter().filter_map(both).collect()
    }

    /// Number of rows that were run.
    pub fn run(&self) -> usize {
        self.rows.iter().filter(|row| row.simulated.is_some()).count()
    }
}

impl Results {
    /// Combines these results with earlier ones. A study of which nothing was run now keeps its earlier results, if
    /// there are any; their verdicts follow today's rules.
    pub fn over(self, mut earlier: Self) -> Self {
        earlier.studies.retain(|_, study| study.program.is_some());
        for row in earlier.studies.values_mut().flat_map(|study| &mut study.rows) {
            row.verdict = row.judged();
        }
        for (name, study) in self.studies {
            if study.program.is_some() || !earlier.studies.contains_key(&name) {
                earlier.studies.insert(name, study);
            }
        }
        earlier
    }

    /// Reads results that [`json`](Self::json) wrote.
    ///
    /// # Errors
    /// If `text` was not written by it.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The results as indented JSON with a final newline: the score, then each study.
    pub fn json(&self) -> String {
        #[derive(Serialize)]
        struct Document<'a> {
            score: Score,
            studies: &'a BTreeMap<String, StudyResult>,
        }
        let document = Document { score: Score::of(self), studies: &self.studies };
        // This cannot fail: it writes to memory, and all keys are strings.
        serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
    }
}

/// Compares the rows of `plan` with the outcomes of its runs.
///
/// # Errors
/// If a run does not have the value that a row needs.
pub fn results(plan: &Plan, measured: &Measured, program: &str) -> Result<Results, ReproduceError> {
    let mut results = Results::default();
    for (study, row_runs) in plan.studies.iter().zip(&plan.row_runs) {
        let pairs = study.rows.iter().zip(row_runs);
        let rows = pairs.map(|(row, runs)| {
            let simulated = match runs {
                Some(runs) => simulate(study, row, runs, measured)?,
                None => None,
            };
            Ok(row_result(study, row, simulated))
        });
        let result = StudyResult {
            program: row_runs.iter().any(Option::is_some).then(|| program.to_owned()),
            mechanism: study.mechanism.clone(),
            question: study.question.clone(),
            tables: study.tables.clone(),
            machine: study.machine.clone(),
            before: study.before.clone(),
            calibration: study.calibration.clone(),
            rows: rows.collect::<Result<_, ReproduceError>>()?,
            left_out: study.left_out.clone(),
            misses: study.misses.clone(),
        };
        results.studies.insert(study.name.clone(), result);
    }
    Ok(results)
}

/// The simulated values of a row. `None` if some of its runs were not made.
fn simulate(
    study: &Study,
    row: &Row,
    runs: &RowRuns,
    measured: &Measured,
) -> Result<Option<Simulated>, ReproduceError> {
    let values = |indices: &[usize]| {
        let left: Option<Vec<&Left>> = indices.iter().map(|&i| measured[i].as_ref()).collect();
        left.map(|left| left.into_iter().map(|left| value(study, row, left)).collect()).transpose()
    };
    let (Some(before), Some(after)) = (values(&runs.before)?, values(&runs.after)?) else {
        return Ok(None);
    };
    let (before, after): (Vec<Option<f64>>, Vec<Option<f64>>) = (before, after);
    let all = |values: &[Option<f64>]| values.iter().copied().collect::<Option<Vec<f64>>>();
    let base = all(&before).and_then(|values| statistic(row.statistic, &values));
    let base_deviation_pct = match row.statistic {
        Statistic::Mean => all(&before).and_then(|values| deviation_pct(&values)),
        _ => None,
    };
    let patched = all(&after).and_then(|values| statistic(row.statistic, &values));
    let better = row.published.better;
    let changes = before.iter().zip(&after);
    let changes = changes.map(|(before, after)| change_pct(better, (*before)?, (*after)?));
    let changes = changes.collect::<Option<Vec<f64>>>().and_then(|values| Summary::of(&values));
    let (change_pct, interval) = match row.statistic {
        Statistic::Mean => (changes.map(|c| c.mean), changes.and_then(|c| c.confidence)),
        _ => (base.zip(patched).and_then(|(base, new)| change_pct(better, base, new)), None),
    };
    let [base_drift_pct, patched_drift_pct] = [&runs.before, &runs.after]
        .map(|indices| unsteady_pct(indices.iter().map(|&i| drift(row, measured[i].as_ref()?))));
    Ok(Some(Simulated {
        base,
        base_deviation_pct,
        patched,
        change_pct,
        change_95_pct: interval.map(|Interval { low, high }| [low, high]),
        base_drift_pct,
        patched_drift_pct,
    }))
}

/// How much the metric that `row` reads increases from the first to the second half of a run.
fn drift(row: &Row, left: &Left) -> Option<f64> {
    let Reading::Metric(name) = &row.reading else { return None };
    let drift = left.metrics.iter().find(|metric| metric.name == *name)?.drift?;
    Some(if row.inverse { 1.0 / (1.0 + drift) - 1.0 } else { drift })
}

/// Standard deviation in percent of the mean. `None` for a single value.
fn deviation_pct(values: &[f64]) -> Option<f64> {
    let summary = Summary::of(values)?;
    Some(100.0 * summary.stddev? / summary.mean)
}

fn statistic(statistic: Statistic, values: &[f64]) -> Option<f64> {
    let summary = Summary::of(values)?;
    Some(match statistic {
        Statistic::Mean => summary.mean,
        Statistic::Min => summary.min,
        Statistic::Max => summary.max,
    })
}

/// The value that `row` reads from a run. `None` if nothing was measured.
fn value(study: &Study, row: &Row, left: &Left) -> Result<Option<f64>, ReproduceError> {
    let counter = |name: &str| {
        let found = left.counters.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| *value)
    };
    let missing = |what: &str| ReproduceError::Run {
        study: study.name.clone(),
        row: row.published.id.clone(),
        problem: {
            let metrics: Vec<&str> =
                left.metrics.iter().map(|metric| metric.name.as_str()).collect();
            format!("its runs have no {what}; metrics: {}", metrics.join(", "))
        },
    };
    let value = match &row.reading {
        Reading::Metric(name) => {
            let found = left.metrics.iter().find(|metric| metric.name == *name);
            found.ok_or_else(|| missing(&format!("metric '{name}'")))?.value
        }
        Reading::Counter(name) => {
            Some(counter(name).ok_or_else(|| missing(&format!("counter '{name}'")))?)
        }
        Reading::Search(column) => {
            let count = |name: &str| counter(name).ok_or_else(|| missing(name));
            let counts = SearchCounts {
                search: count("sis_search")?,
                domain: count("sis_domain_search")?,
                scanned: count("sis_scanned")?,
                failed: count("sis_failed")?,
            };
            [
                counts.search_efficiency_pct(),
                counts.domain_efficiency_pct(),
                counts.fast_rate_pct(),
                counts.success_rate_pct(),
            ][*column]
        }
    };
    Ok(value.map(|value| if row.inverse { 1.0 / value } else { value }))
}

fn row_result(study: &Study, row: &Row, simulated: Option<Simulated>) -> RowResult {
    let Published {
        id, base, base_deviation_pct, patched, change_pct, deviation_pct, starred, ..
    } = &row.published;
    let material = change_pct.map(|change| {
        let marked = *starred || !study.only_starred;
        marked && change.abs() >= MATERIAL_PCT && deviation_pct.is_none_or(|of| change.abs() > of)
    });
    let mut result = RowResult {
        id: id.clone(),
        workload: row.workload.clone(),
        after: row.after.clone(),
        duration_ns: row.duration_ns,
        seeds: row.seeds,
        status: row.status,
        published_base: *base,
        published_patched: *patched,
        published_change_pct: *change_pct,
        published_base_deviation_pct: *base_deviation_pct,
        published_deviation_pct: *deviation_pct,
        material,
        simulated,
        level: row.level,
        series: row.series.clone(),
        verdict: Verdict::NotRun,
    };
    result.verdict = result.judged();
    result
}
