//! `roost compare --list-workloads` and `--list-schedulers`: what can be named, from the tables by which names are read.

use serde_json::{Value, json};

use crate::args::Format;
use crate::error::Error;

/// What names a thing, and what it is.
struct Row {
    kind: &'static str,
    name: String,
    about: String,
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
    shown(&rows, format)
}

/// Versions of the fair class, switches and numbers of each, settings of roost, and sched_ext programs.
pub fn schedulers(format: Format) -> Result<String, Error> {
    let mut rows = Vec::new();
    for (version, about) in roost_fair::version_texts() {
        rows.push(row("version", &format!("fair@{version}"), about));
    }
    for (name, about) in roost_fair::switches() {
        rows.push(row("switch", &format!("+{name}"), about));
    }
    for (name, about) in roost_fair::numbers() {
        rows.push(row("number", &format!("+{name}=N"), about));
    }
    rows.push(row("program", "roost", "the scheduler that `roost run` loads into a kernel"));
    for setting in roost_settings::all() {
        let name = format!("roost+{}", setting.name);
        rows.push(row("setting of roost", &name, setting.meaning));
    }
    let about =
        "a sched_ext program, with values for its global variables: `roost scx FILE` lists them";
    rows.push(row("program", "scx:FILE.bpf.o+NAME=VALUE", about));
    shown(&rows, format)
}

fn row(kind: &'static str, name: &str, about: &str) -> Row {
    Row { kind, name: name.to_owned(), about: about.to_owned() }
}

fn shown(rows: &[Row], format: Format) -> Result<String, Error> {
    Ok(match format {
        Format::Json => {
            let rows = rows
                .iter()
                .map(|row| json!({"kind": row.kind, "name": row.name, "about": row.about}));
            format!("{:#}\n", Value::Array(rows.collect()))
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
