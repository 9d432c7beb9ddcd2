//! Recipes say by which runs the rows of a published table are repeated.
//!
//! A recipe is a TOML file in `published/recipes/`. Its name is the name of the study. `[[rows]]` names rows of the
//! table. With `for`, each value in turn replaces `{n}` in its strings. `[[left_out]]` names rows that no run repeats,
//! and the reason; a `*` at the end of a name stands for any ending. Each row of a table is in one of its recipes (a
//! test of this crate checks that).

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toml::Spanned;

use crate::error::ReproduceError;
use crate::published::{self, Columns, Deviation, Published};

/// Whether the row was known when the model was made. A set of rows has the least status of its rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Status {
    /// A constant was chosen to match this row.
    #[serde(rename = "calibrated")]
    Calibrated,
    /// Something in the model was chosen after this row had been seen.
    #[serde(rename = "chosen after")]
    ChosenAfter,
    /// Neither: the row is predicted.
    #[default]
    #[serde(rename = "predicted")]
    Predicted,
}

impl Status {
    /// The word for the page.
    pub fn word(self) -> &'static str {
        match self {
            Self::Calibrated => "calibrated",
            Self::ChosenAfter => "chosen after",
            Self::Predicted => "predicted",
        }
    }
}

/// Which value is compared with the published one, if several seeds give several values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Statistic {
    /// Their mean.
    #[default]
    Mean,
    /// The smallest.
    Min,
    /// The largest.
    Max,
}

/// The row to which a constant was calibrated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// The row's name.
    pub row: String,
    /// The constant that was calibrated.
    pub what: String,
}

/// A known miss.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Miss {
    /// What is wrong, and the reason if it is known, in one line.
    pub miss: String,
}

/// A recipe's file as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    mechanism: String,
    question: String,
    tables: Vec<Spanned<String>>,
    #[serde(default)]
    columns: Columns,
    #[serde(default)]
    deviation: Deviation,
    #[serde(default)]
    only_starred: bool,
    machine: String,
    before: String,
    after: Option<String>,
    duration: Option<Spanned<String>>,
    seeds: Spanned<u64>,
    #[serde(default)]
    status: Status,
    calibration: Option<Calibration>,
    #[serde(default)]
    rows: Vec<Spanned<RowsTable>>,
    #[serde(default)]
    left_out: Vec<Spanned<LeftOutTable>>,
    #[serde(default)]
    misses: Vec<Miss>,
}

/// A table `[[rows]]` of a recipe.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RowsTable {
    id: String,
    #[serde(default, rename = "for")]
    values: Vec<String>,
    workload: String,
    /// The value to read from a run: a metric's name or `counter NAME`.
    metric: Option<String>,
    /// Whether the run prints a time and the table a rate.
    #[serde(default)]
    inverse: bool,
    #[serde(default)]
    statistic: Statistic,
    /// Whether the rows are shares of the idle search, each in a row of its own: `{id}-se-eff` and so on.
    #[serde(default)]
    search: bool,
    /// Whether the printed level cannot be compared, because it is a bound or belongs to something else.
    #[serde(default)]
    no_level: bool,
    after: Option<String>,
    duration: Option<String>,
    seeds: Option<u64>,
    status: Option<Status>,
    /// Measured time of a run, in seconds of one core.
    seconds: f64,
}

/// A table `[[left_out]]` of a recipe.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct LeftOutTable {
    rows: Vec<String>,
    why: String,
    /// Whether the row could be simulated, but something in it is not modelled.
    #[serde(default)]
    not_modelled: bool,
}

/// The columns of published search statistics. The names of their rows end with these.
pub const SEARCH_COLUMNS: [&str; 4] = ["se-eff", "dom-eff", "fast-rate", "success-rate"];

/// The value to read from a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// A metric of the workload.
    Metric(String),
    /// A counter.
    Counter(String),
    /// A share of the idle search, one of [`SEARCH_COLUMNS`].
    Search(usize),
}

/// A row of a table, and the runs that repeat it.
#[derive(Clone, Debug)]
pub struct Row {
    /// The row as published.
    pub published: Published,
    /// The workload, in the form of `roost compare`.
    pub workload: String,
    /// The scheduler with the change. `None` if only the level is compared.
    pub after: Option<String>,
    /// Duration of a run, in ns. `None`: until its tasks end, or the workload's own duration.
    pub duration_ns: Option<u64>,
    /// Number of seeds, starting with 1.
    pub seeds: u64,
    /// The value to read from a run.
    pub reading: Reading,
    /// Whether the value's reciprocal is compared.
    pub inverse: bool,
    /// How the values of several seeds are combined.
    pub statistic: Statistic,
    /// Whether the row was known when the model was made.
    pub status: Status,
    /// Whether the baseline is compared with the published one.
    pub level: bool,
    /// Time of a run as measured once, in seconds of one core.
    pub seconds: f64,
    /// For search statistics, the column of the table.
    pub series: Option<String>,
}

/// Rows that no run repeats.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// The rows, as named in the recipe.
    pub rows: String,
    /// Number of rows.
    pub count: usize,
    /// The reason.
    pub why: String,
    /// Whether the reason is that something is not modelled.
    pub not_modelled: bool,
}

/// A study: a recipe with its published rows.
#[derive(Clone, Debug)]
pub struct Study {
    /// Its name.
    pub name: String,
    /// The mechanism that the study is about.
    pub mechanism: String,
    /// The question that the study answers.
    pub question: String,
    /// Files in `published/`.
    pub tables: Vec<String>,
    /// The machine, in the form of `roost compare`.
    pub machine: String,
    /// The scheduler without the change.
    pub before: String,
    /// Whether only changes that the author marked count as significant.
    pub only_starred: bool,
    /// The row to which a constant was calibrated.
    pub calibration: Option<Calibration>,
    /// The rows that are repeated.
    pub rows: Vec<Row>,
    /// The rows that are not repeated.
    pub left_out: Vec<LeftOut>,
    /// The known misses.
    pub misses: Vec<Miss>,
}

/// The studies with these names. All studies if `names` is empty.
///
/// # Errors
/// If a name is not that of a study.
pub fn chosen(studies: Vec<Study>, names: &[String]) -> Result<Vec<Study>, ReproduceError> {
    let known = || studies.iter().map(|study| study.name.as_str());
    if let Some(name) = names.iter().find(|&name| !known().any(|known| known == name)) {
        let meant = roost_names::did_you_mean(name, known());
        return Err(ReproduceError::Unknown {
            name: name.escape_debug().to_string(),
            meant: meant.map_or_else(String::new, |question| format!("; {question}")),
            known: known().collect::<Vec<_>>().join(", "),
        });
    }
    let wanted = |study: &Study| names.is_empty() || names.contains(&study.name);
    Ok(studies.into_iter().filter(wanted).collect())
}

/// Reads all recipes of the folder `published`, in the order of their names.
///
/// # Errors
/// If a file cannot be read or has an error.
pub fn read_studies(published: &Path) -> Result<Vec<Study>, ReproduceError> {
    let folder = published.join("recipes");
    let unreadable = |error| ReproduceError::unreadable(&folder, error);
    let entries = std::fs::read_dir(&folder).map_err(unreadable)?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<PathBuf>, _>>();
    let mut files = paths.map_err(unreadable)?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    files.iter().map(|file| Recipe::read(file, published)?.study()).collect()
}

/// A recipe while it is parsed.
struct Recipe<'a> {
    file: &'a Path,
    text: String,
    recipe: File,
    published: Vec<Published>,
}

impl<'a> Recipe<'a> {
    fn read(file: &'a Path, folder: &Path) -> Result<Self, ReproduceError> {
        let text =
            std::fs::read_to_string(file).map_err(|e| ReproduceError::unreadable(file, e))?;
        let recipe: File = toml::from_str(&text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let message = error.message().replace('\n', " ");
            // The message about a missing or unknown field already names the field.
            let field = if message.contains("field `") { "" } else { field_at(&text, at) };
            let separator = if field.is_empty() { "" } else { ": " };
            wrong(file, &text, at, format!("{field}{separator}{message}"))
        })?;
        let mut rows = Vec::new();
        for table in &recipe.tables {
            let path = folder.join(table.get_ref());
            if !path.is_file() {
                let problem = format!("tables: there is no {}", path.display());
                return Err(wrong(file, &text, table.span().start, problem));
            }
            rows.extend(published::read(&path, &recipe.columns, recipe.deviation)?);
        }
        Ok(Self { file, text, recipe, published: rows })
    }

    fn wrong(&self, at: usize, problem: String) -> ReproduceError {
        wrong(self.file, &self.text, at, problem)
    }

    fn study(&self) -> Result<Study, ReproduceError> {
        let recipe = &self.recipe;
        let mut rows = Vec::new();
        for table in &recipe.rows {
            rows.extend(self.rows(table.get_ref(), table.span().start)?);
        }
        if let Some(calibration) = &recipe.calibration
            && !self.published.iter().any(|row| row.id == calibration.row)
        {
            let at = self.text.find("[calibration]").unwrap_or(0);
            let problem = format!("calibration: no row '{}' in the tables", calibration.row);
            return Err(self.wrong(at, problem));
        }
        let left_out = recipe.left_out.iter().map(|left| self.left_out(left));
        let name = self.file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Study {
            name,
            mechanism: recipe.mechanism.clone(),
            question: recipe.question.clone(),
            tables: recipe.tables.iter().map(|table| table.get_ref().clone()).collect(),
            machine: recipe.machine.clone(),
            before: recipe.before.clone(),
            only_starred: recipe.only_starred,
            calibration: recipe.calibration.clone(),
            rows,
            left_out: left_out.collect::<Result<_, _>>()?,
            misses: recipe.misses.clone(),
        })
    }

    /// The rows of one `[[rows]]` table.
    fn rows(&self, table: &RowsTable, at: usize) -> Result<Vec<Row>, ReproduceError> {
        let values = match table.values.is_empty() {
            true => vec![String::new()],
            false => table.values.clone(),
        };
        let mut rows = Vec::new();
        for value in &values {
            if !table.search {
                let id = table.id.replace("{n}", value);
                let metric = table.metric.as_ref().ok_or_else(|| {
                    self.wrong(
                        at,
                        "rows: metric is missing; name one, or write search = true".into(),
                    )
                })?;
                let metric = metric.replace("{n}", value);
                let reading = match metric.strip_prefix("counter ") {
                    Some(counter) => Reading::Counter(counter.to_owned()),
                    None => Reading::Metric(metric),
                };
                rows.push(self.row(table, at, &id, value, reading, None)?);
                continue;
            }
            for (index, column) in SEARCH_COLUMNS.iter().enumerate() {
                let id = format!("{}-{column}", table.id.replace("{n}", value));
                let series = format!("{}{column}", table.id.replace("{n}", ""));
                let reading = Reading::Search(index);
                rows.push(self.row(table, at, &id, value, reading, Some(series))?);
            }
        }
        Ok(rows)
    }

    fn row(
        &self,
        table: &RowsTable,
        at: usize,
        id: &str,
        value: &str,
        reading: Reading,
        series: Option<String>,
    ) -> Result<Row, ReproduceError> {
        let recipe = &self.recipe;
        let published = self.published.iter().find(|row| row.id == id);
        let published = published
            .ok_or_else(|| self.wrong(at, format!("rows: id: no row '{id}' in the tables")))?;
        let status = match &recipe.calibration {
            Some(calibration) if calibration.row == id => Status::Calibrated,
            _ => table.status.unwrap_or(recipe.status),
        };
        let after = table.after.as_ref().or(recipe.after.as_ref());
        Ok(Row {
            published: published.clone(),
            workload: table.workload.replace("{n}", value),
            after: after.filter(|_| published.change_pct.is_some()).cloned(),
            duration_ns: self.duration_ns(table, at)?,
            seeds: self.seeds(table, at)?,
            reading,
            inverse: table.inverse,
            statistic: table.statistic,
            status,
            level: published.base.is_some()
                && series.is_none()
                && !table.no_level
                && recipe.calibration.is_none(),
            seconds: table.seconds,
            series,
        })
    }

    fn duration_ns(&self, table: &RowsTable, at: usize) -> Result<Option<u64>, ReproduceError> {
        let here = table.duration.as_ref().map(|text| (text, at));
        let all = || self.recipe.duration.as_ref().map(|text| (text.get_ref(), text.span().start));
        let Some((text, at)) = here.or_else(all) else { return Ok(None) };
        match humantime::parse_duration(text) {
            Ok(duration) if !duration.is_zero() => {
                Ok(Some(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
            }
            _ => {
                let problem =
                    format!("duration: '{text}' is not a duration; write for example 400ms");
                Err(self.wrong(at, problem))
            }
        }
    }

    fn seeds(&self, table: &RowsTable, at: usize) -> Result<u64, ReproduceError> {
        let all = || (*self.recipe.seeds.get_ref(), self.recipe.seeds.span().start);
        match table.seeds.map_or_else(all, |seeds| (seeds, at)) {
            (seeds @ 1..=10_000, _) => Ok(seeds),
            (seeds, at) => Err(self.wrong(at, format!("seeds: {seeds}; give 1 to 10000"))),
        }
    }

    fn left_out(&self, left: &Spanned<LeftOutTable>) -> Result<LeftOut, ReproduceError> {
        let LeftOutTable { rows, why, not_modelled } = left.get_ref();
        let mut count = 0;
        for pattern in rows {
            let found = self.published.iter().filter(|row| matches(pattern, &row.id)).count();
            if found == 0 {
                let problem = format!("left_out: rows: no row '{pattern}' in the tables");
                return Err(self.wrong(left.span().start, problem));
            }
            count += found;
        }
        Ok(LeftOut { rows: rows.join(", "), count, why: why.clone(), not_modelled: *not_modelled })
    }
}

/// Whether `pattern` matches the row `id`. A `*` at the end stands for any ending, a `*` at the beginning for any
/// beginning: `*-min` matches all rows that end in `-min`.
fn matches(pattern: &str, id: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(end), _) => id.ends_with(end),
        (None, Some(start)) => id.starts_with(start),
        (None, None) => id == pattern,
    }
}

/// The field that is set in the line that contains byte `at` of `text`. Empty if there is none.
fn field_at(text: &str, at: usize) -> &str {
    let before = text.get(..at).unwrap_or_default();
    let line = &text[before.rfind('\n').map_or(0, |end| end + 1)..];
    let set = line.lines().next().and_then(|line| line.split_once('='));
    set.map_or("", |(name, _)| name.trim())
}

fn wrong(file: &Path, text: &str, at: usize, problem: String) -> ReproduceError {
    let line = text.bytes().take(at).filter(|&byte| byte == b'\n').count() + 1;
    ReproduceError::Recipe { file: file.to_owned(), line, problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "id,case,unit,better,base_value,patched_value,change_pct
x-1,one,s,lower,10,5,
x-2,two,s,lower,20,10,
y,other,s,lower,3,4,
";

    const RECIPE: &str = r#"mechanism = "m"
question = "?"
tables = ["t.csv"]
machine = "2n2l4c"
before = "fair@5.2"
after = "fair@5.2+cling"
seeds = 2
[[rows]]
id = "x-{n}"
for = ["1", "2"]
workload = "coremark:threads={n}"
metric = "Score"
duration = "1s"
seconds = 0.1
[[left_out]]
rows = ["y*"]
why = "a picture"
"#;

    fn read(recipe: &str) -> Result<Vec<Study>, ReproduceError> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("recipes")).unwrap();
        std::fs::write(folder.path().join("t.csv"), TABLE).unwrap();
        std::fs::write(folder.path().join("recipes/s.toml"), recipe).unwrap();
        read_studies(folder.path())
    }

    fn problem(recipe: &str) -> String {
        let text = read(recipe).unwrap_err().to_string();
        text.rsplit_once("s.toml:").unwrap().1.to_owned()
    }

    #[test]
    fn a_value_stands_for_n_wherever_it_is_written() {
        let study = &read(RECIPE).unwrap()[0];
        assert_eq!(study.name, "s");
        let workloads: Vec<&str> = study.rows.iter().map(|row| row.workload.as_str()).collect();
        assert_eq!(workloads, ["coremark:threads=1", "coremark:threads=2"]);
        let row = &study.rows[1];
        assert_eq!((row.published.id.as_str(), row.published.change_pct), ("x-2", Some(50.0)));
        assert_eq!((row.seeds, row.duration_ns), (2, Some(1_000_000_000)));
        assert!(row.level);
        assert_eq!(study.left_out[0].count, 1);
    }

    #[test]
    fn a_broken_recipe_is_told_with_its_line_and_field() {
        let of = |from: &str, to: &str| problem(&RECIPE.replace(from, to));
        assert!(of("seeds = 2", "seeds = \"two\"").starts_with("7: seeds: invalid type"));
        assert!(of("metric =", "metrik =").contains("unknown field `metrik`"));
        assert!(of("x-{n}", "z-{n}").starts_with("8: rows: id: no row 'z-1'"));
        assert!(of("\"1s\"", "\"fast\"").starts_with("8: duration: 'fast' is not a duration"));
        assert!(of("seeds = 2", "seeds = 0").starts_with("7: seeds: 0; give 1 to"));
        assert!(of("y*", "q*").starts_with("15: left_out: rows: no row 'q*'"));
        assert!(of("t.csv", "u.csv").starts_with("3: tables: there is no"));
        assert!(of("mechanism = \"m\"\n", "").contains("missing field `mechanism`"));
    }

    #[test]
    fn an_unknown_study_is_answered_with_the_one_that_was_meant() {
        let studies = read(RECIPE).unwrap();
        let named = Study { name: "stream".into(), ..studies[0].clone() };
        let error = chosen(vec![named], &["steam".into()]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no study is named 'steam'; did you mean stream?; studies: stream"
        );
    }

    #[test]
    fn a_star_stands_for_the_rest() {
        assert!(matches("x-1", "x-1") && !matches("x-1", "x-12"));
        assert!(matches("x-*", "x-12") && matches("*-min", "a-min") && !matches("*-min", "a-max"));
    }

    #[test]
    fn a_set_of_rows_is_predicted_only_if_all_are() {
        let of = |set: &[Status]| set.iter().min().copied();
        assert_eq!(of(&[Status::Predicted, Status::ChosenAfter]), Some(Status::ChosenAfter));
        assert_eq!(of(&[Status::ChosenAfter, Status::Calibrated]), Some(Status::Calibrated));
        assert_eq!(of(&[Status::Predicted; 2]), Some(Status::Predicted));
    }
}
