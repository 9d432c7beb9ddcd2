//! `roost compare --list-workloads` and `--list-schedulers`. The lists come from the tables that the parsers use.

use roost_fair::Number;
use serde_json::{Value, json};

use crate::args::Format;
use crate::error::Error;

/// A name, its kind, and its meaning.
struct Row {
    kind: &'static str,
    name: String,
    about: String,
    /// Further fields, for JSON only.
    fields: Value,
}

/// Benchmarks with their parameters and defaults.
pub fn workloads(format: Format) -> Result<String, Error> {
    let mut rows = Vec::new();
    for benchmark in roost_workload::benchmarks() {
        rows.push(row("benchmark", benchmark.name, benchmark.summary));
        for parameter in benchmark.parameters {
            let name = format!("{}:{}={}", benchmark.name, parameter.name, parameter.default);
            rows.push(row("parameter", &name, parameter.meaning));
        }
    }
    for (name, about) in roost_workload::benchmark::rt_app::forms() {
        rows.push(row("rt-app form", &name, about));
    }
    for (name, about) in roost_workload::benchmark::stress_ng::forms() {
        rows.push(row("stress-ng form", &name, about));
    }
    shown(&rows, format)
}

/// Versions of the fair class, their switches and numbers, the settings of roost, and sched_ext programs.
pub fn schedulers(format: Format) -> Result<String, Error> {
    let mut rows = Vec::new();
    for (version, about) in roost_fair::version_texts() {
        rows.push(row("version", &format!("fair@{version}"), about));
    }
    for (name, about) in roost_fair::switches() {
        rows.push(row("switch", &format!("+{name}"), about));
    }
    rows.extend(roost_fair::numbers().map(number));
    rows.push(row("program", "roost", "the scheduler that `roost run` loads into a kernel"));
    for setting in roost_settings::all() {
        let name = format!("roost+{}", setting.name);
        rows.push(row("setting of roost", &name, setting.meaning));
    }
    let about =
        "a sched_ext program, with values for its global variables: `roost scx FILE` lists them";
    rows.push(row("program", "scx:FILE.bpf.o+NAME=VALUE", about));
    let about = "a sched_ext scheduler's own program, which is started until it attaches; in PATH or with its path";
    rows.push(row("program", "PROGRAM ARGUMENTS+NAME=VALUE", about));
    shown(&rows, format)
}

/// A number with its unit, range, default, versions and source.
fn number(number: &Number) -> Row {
    let Number { name, about, unit, least, most, source, .. } = number;
    let (default, versions) = (number.default_text(), number.versions());
    let file = number.file.map(|file| file.to_string());
    let sets = file.as_ref().map_or_else(String::new, |file| format!("; sets {file}"));
    let about = format!(
        "{about}; {unit}, {least} to {most}, default {default}; fair@{versions}; source: {source}{sets}"
    );
    let fields = json!({
        "unit": unit, "least": least, "most": most, "default": default, "versions": versions,
        "source": source, "file": file,
    });
    Row { kind: "number", name: format!("+{name}=N"), about, fields }
}

fn row(kind: &'static str, name: &str, about: &str) -> Row {
    Row { kind, name: name.to_owned(), about: about.to_owned(), fields: json!({}) }
}

fn shown(rows: &[Row], format: Format) -> Result<String, Error> {
    Ok(match format {
        Format::Json => {
            let object = |row: &Row| {
                let mut object = json!({"kind": row.kind, "name": row.name, "about": row.about});
                if let (Some(object), Some(fields)) =
                    (object.as_object_mut(), row.fields.as_object())
                {
                    object.extend(fields.clone());
                }
                object
            };
            format!("{:#}\n", Value::Array(rows.iter().map(object).collect()))
        }
        Format::Csv => {
            let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
            let line = |row: &Row| {
                format!(
                    "{},{},{}\n",
                    row.kind.replace(',', ""),
                    quoted(&row.name),
                    quoted(&row.about)
                )
            };
            std::iter::once("kind,name,about\n".to_owned()).chain(rows.iter().map(line)).collect()
        }
        Format::Table => {
            let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
            let mut text = String::new();
            let mut kind = "";
            for row in rows {
                if row.kind != kind && row.kind != "parameter" && kind != "parameter" {
                    text += &format!("{}{}\n", if text.is_empty() { "" } else { "\n" }, row.kind);
                }
                kind = row.kind;
                text += &format!("  {:<width$}  {}\n", row.name, row.about);
            }
            text
        }
        Format::Mmtests => {
            return Err(Error::Usage("lists are printed as --format table, csv or json".into()));
        }
    })
}
