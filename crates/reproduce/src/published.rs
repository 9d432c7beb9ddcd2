//! The published tables: rows of a CSV file in `published/`.

use std::path::Path;

use roost_report::change_pct;
use roost_workload::Better;
use serde::Deserialize;

use crate::error::ReproduceError;

/// The columns of a table and their meaning.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Columns {
    /// Columns that together name a row. Their values are joined by `/`.
    pub id: Vec<String>,
    /// The value before the change.
    pub base: String,
    /// The value with the change.
    pub patched: String,
}

impl Default for Columns {
    fn default() -> Self {
        Self { id: vec!["id".into()], base: "base_value".into(), patched: "patched_value".into() }
    }
}

/// The unit of printed deviations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Deviation {
    /// The same unit as the value.
    #[default]
    Unit,
    /// Percent of the value.
    Percent,
}

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// The row's name in the table.
    pub id: String,
    /// Which direction is better. The default is higher.
    pub better: Better,
    /// Value before the change. `None` if it is only printed as 1.
    pub base: Option<f64>,
    /// Value with the change.
    pub patched: Option<f64>,
    /// The change in percent; positive is better. It is computed if both values were printed, otherwise it is the
    /// printed change.
    pub change_pct: Option<f64>,
    /// Standard deviation of the value before the change, in percent of it.
    pub base_deviation_pct: Option<f64>,
    /// Standard deviation of the change in percentage points: the root of the sum of both values' squared deviations.
    pub deviation_pct: Option<f64>,
    /// Whether the author marked the change as significant.
    pub starred: bool,
}

/// A unit that starts with this text means that only the ratio was published.
const NORMALISED: &str = "ratio to baseline";

/// Reads the rows of `file`.
pub fn read(
    file: &Path,
    columns: &Columns,
    deviation: Deviation,
) -> Result<Vec<Published>, ReproduceError> {
    let text = std::fs::read_to_string(file).map_err(|e| ReproduceError::unreadable(file, e))?;
    parse(&text, columns, deviation).map_err(|problem| ReproduceError::table(file, problem))
}

fn parse(text: &str, columns: &Columns, deviation: Deviation) -> Result<Vec<Published>, String> {
    let mut lines = csv::Reader::from_reader(text.as_bytes());
    let header = lines.headers().map_err(|error| error.to_string())?.clone();
    let at = |name: &str| header.iter().position(|field| field == name);
    for name in columns.id.iter().chain([&columns.base]) {
        at(name).ok_or_else(|| format!("it has no column '{name}'"))?;
    }
    let mut rows = Vec::new();
    for line in lines.records() {
        let line = line.map_err(|error| error.to_string())?;
        let field = |name: &str| at(name).and_then(|at| line.get(at)).unwrap_or_default();
        rows.push(row(&field, columns, deviation));
    }
    Ok(rows)
}

fn row<'a>(field: &dyn Fn(&str) -> &'a str, columns: &Columns, deviation: Deviation) -> Published {
    let number = |name: &str| field(name).parse::<f64>().ok().filter(|value| value.is_finite());
    let ids: Vec<&str> = columns.id.iter().map(|name| field(name)).collect();
    let normalised = field("unit").starts_with(NORMALISED);
    let base = number(&columns.base).filter(|_| !normalised);
    let patched = number(&columns.patched);
    let better = if field("better") == "lower" { Better::Lower } else { Better::Higher };
    let computed = base.zip(patched).and_then(|(base, patched)| change_pct(better, base, patched));
    let percent = |std: &str, value: Option<f64>| match deviation {
        Deviation::Percent => number(std),
        Deviation::Unit => Some(100.0 * number(std)? / value?),
    };
    let base_deviation_pct = percent("base_std", base);
    let deviations = base_deviation_pct.zip(percent("patched_std", base));
    Published {
        id: ids.join("/"),
        better,
        base,
        patched,
        change_pct: computed.or_else(|| number("change_pct")),
        base_deviation_pct,
        deviation_pct: deviations.map(|(base, patched)| base.hypot(patched)),
        starred: field("note").starts_with("starred"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str =
        "id,case,unit,better,base_value,base_std,patched_value,patched_std,change_pct,note
a,numa01,s,lower,200,6,150,8,33.3,
b,pairs,ratio to baseline (normalised),higher,1.00,3,,4,12.5,starred by mmtests
";

    #[test]
    fn a_change_is_computed_where_both_values_were_printed() {
        let rows = parse(TABLE, &Columns::default(), Deviation::Unit).unwrap();
        // 50 s less than 200 s. The printed 33.3 has another divisor. The deviations are 3% and 4%.
        assert_eq!((rows[0].change_pct, rows[0].deviation_pct), (Some(25.0), Some(5.0)));
        assert_eq!(rows[0].base_deviation_pct, Some(3.0));
        assert!(!rows[0].starred);
    }

    #[test]
    fn a_level_that_was_normalised_is_none() {
        let rows = parse(TABLE, &Columns::default(), Deviation::Percent).unwrap();
        assert_eq!((rows[1].base, rows[1].change_pct), (None, Some(12.5)));
        assert_eq!(rows[1].deviation_pct, Some(5.0));
        assert!(rows[1].starred);
    }

    #[test]
    fn a_column_that_is_missing_is_named() {
        let columns = Columns { base: "before".into(), ..Columns::default() };
        let problem = parse(TABLE, &columns, Deviation::Unit).unwrap_err();
        assert_eq!(problem, "it has no column 'before'");
    }
}
