//! Writes `docs/reference.md` from the tables that the parsers use.

use std::fmt::Write;

use clap::{Arg, Command};
use roost_fair::{KernelFile, Number};
use roost_settings::{Kind, Setting};

/// The whole page, as Markdown.
pub fn page(mut roost: Command) -> String {
    roost.build();
    let mut out = String::from(
        "# Reference\n\n`roost man FOLDER` writes this page from the program's own tables. A test compares both.\n",
    );
    out += "\n## Commands and options\n";
    commands(&mut out, &roost, "roost");
    schedulers(&mut out);
    workloads(&mut out);
    out += "\n## Machines\n";
    let presets = roost_machine::presets();
    let presets = presets.iter().map(|(name, about)| [code(name), (*about).to_owned()]);
    table(&mut out, ["preset", "what it is"], presets);
    out += "\n## Settings of the live scheduler\n\n\
            Options of `scx_roost`, names in its settings file, and `roost+NAME=VALUE` in `roost compare`.\n";
    table(
        &mut out,
        ["setting", "takes", "default", "what it does"],
        roost_settings::all().map(setting),
    );
    counters(&mut out);
    out
}

/// The options of a command and of its subcommands. Hidden commands, which are for packaging, are left out.
fn commands(out: &mut String, command: &Command, name: &str) {
    let shown =
        |arg: &&Arg| !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str());
    let arguments: Vec<&Arg> = command.get_arguments().filter(shown).collect();
    let _ = write!(out, "\n### {name}\n");
    if let Some(about) = command.get_about() {
        let _ = write!(out, "\n{about}\n");
    }
    if !arguments.is_empty() {
        table(out, ["argument", "default", "what it does"], arguments.into_iter().map(argument));
    }
    for below in command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
        commands(out, below, &format!("{name} {}", below.get_name()));
    }
}

fn argument(arg: &Arg) -> [String; 3] {
    let values = arg.get_value_names().unwrap_or_default();
    let takes = arg.get_num_args().is_none_or(|range| range.takes_values());
    let values: String = match takes {
        true => values.iter().map(|value| format!(" {value}")).collect(),
        false => String::new(),
    };
    let name = match arg.get_long() {
        Some(long) => code(&format!("--{long}{values}")),
        None => code(values.trim()),
    };
    let defaults = arg.get_default_values().iter().map(|value| value.to_string_lossy());
    let default = match takes {
        true => defaults.collect::<Vec<_>>().join(", "),
        false => String::new(),
    };
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    [name, default, help]
}

fn schedulers(out: &mut String) {
    *out += "\n## Versions of the fair class\n";
    let versions = roost_fair::version_texts();
    let versions = versions.map(|(name, about)| [code(&format!("fair@{name}")), about.to_owned()]);
    table(out, ["scheduler", "what is new"], versions);
    *out += "\n## Switches and numbers of the fair class\n\nThey follow a version: `fair@5.19+sis-util+no-hrtick`.\n";
    let switches = roost_fair::switches().into_iter();
    let switches = switches.map(|(name, about)| [code(&format!("+{name}")), about.to_owned()]);
    table(out, ["switch", "what it does"], switches);
    numbers(out);
}

/// The numbers of the kernel, of its domains and of the mechanisms, each kind in a table of its own.
fn numbers(out: &mut String) {
    *out += "\n### Numbers of the kernel\n\n\
             They follow a version too: `fair@7.2+base-slice-ns=3000000`. Files are below `/sys/kernel/debug/sched`.\n\
             [Numbers](use/numbers.md) says more.\n";
    let of_kernel = |number: &&Number| matches!(number.file, Some(KernelFile::Sched(_)));
    let columns = ["number", "unit, range", "default", "versions", "file", "what it is"];
    table(out, columns, roost_fair::numbers().filter(of_kernel).map(number));
    *out += "\n### Numbers of scheduling domains\n\n\
             `LEVEL` is `smt`, `cls`, `mc` (the LLC), `pkg`, `node` or `numa`: `fair@7.2+imbalance-pct-mc=110`.\n";
    let mut rows: Vec<[String; 6]> = roost_fair::numbers().filter_map(number_of_domains).collect();
    rows.sort();
    rows.dedup();
    table(out, columns, rows.into_iter());
    *out += "\n### Numbers of the mechanisms\n\nThey exist in the simulation only.\n";
    let of_mechanism = |number: &&Number| number.file.is_none();
    let columns = ["number", "unit, range", "default", "versions", "source", "what it is"];
    table(out, columns, roost_fair::numbers().filter(of_mechanism).map(number));
}

/// The row of a number.
fn number(number: &Number) -> [String; 6] {
    [
        code(&format!("+{}=N", number.name)),
        format!("{}, {} to {}", number.unit, number.least, number.most),
        number.default_text(),
        number.versions(),
        number.file.map_or_else(|| number.source.to_owned(), |file| code(&file.to_string())),
        number.about.to_owned(),
    ]
}

/// The row of a number of domains, the same for each level: numbers end with `-` and the level.
fn number_of_domains(of_level: &Number) -> Option<[String; 6]> {
    let KernelFile::Domain { .. } = of_level.file? else { return None };
    let (name, _) = of_level.name.rsplit_once('-')?;
    let (_, about) = of_level.about.split_once(": ")?;
    let mut row = number(of_level);
    row[0] = code(&format!("+{name}-LEVEL=N"));
    "by level; `roost machine --kernel 7.2` shows it".clone_into(&mut row[2]);
    about.clone_into(&mut row[5]);
    Some(row)
}

fn workloads(out: &mut String) {
    *out += "\n## Benchmarks\n\n\
             `NAME:parameter=value,parameter=value`. Parameters that are not given have their defaults.\n";
    for benchmark in roost_workload::benchmarks() {
        let _ = write!(out, "\n### {}\n\n{}\n", benchmark.name, benchmark.summary);
        if let Some(ns) = benchmark.duration_ns {
            let seconds = ns as f64 / 1e9;
            let _ = write!(out, "\nIt runs for {seconds} s unless `--duration` says otherwise.\n");
        }
        let parameters = benchmark.parameters.iter().map(|parameter| {
            [code(parameter.name), parameter.default.to_owned(), parameter.meaning.to_owned()]
        });
        table(out, ["parameter", "default", "meaning"], parameters);
    }
    *out += "\n### Forms for rt-app\n";
    let forms = roost_workload::benchmark::rt_app::forms();
    let forms = forms.map(|(name, about)| [code(&name), about.to_owned()]);
    table(out, ["workload", "what it is"], forms);
    *out += "\n### Forms for stress-ng\n";
    let forms = roost_workload::benchmark::stress_ng::forms();
    let forms = forms.map(|(name, about)| [code(&name), about.to_owned()]);
    table(out, ["workload", "what it is"], forms);
}

fn setting(setting: &Setting) -> [String; 4] {
    let (takes, default) = match setting.kind {
        Kind::Switch => ("true or false".to_owned(), "true".to_owned()),
        Kind::Tolerance { unit, most } => {
            (format!("true, false, or a number up to {most} ({unit})"), "true".to_owned())
        }
        Kind::Patterns => ("patterns, separated by commas".to_owned(), String::new()),
        Kind::Number { default, least, most } => {
            (format!("{least} to {most}"), default.to_string())
        }
    };
    [code(setting.name), takes, default, setting.meaning.to_owned()]
}

fn counters(out: &mut String) {
    *out += "\n## Counters of simulated runs\n\n\
             `--counters` prints them. JSON and CSV always have them. They cover the measured part of a run.\n\
             `scx_roost --help-stats` lists the counters of the live scheduler. In names,\n\n\
             - `LEVEL` is a level of scheduling domains, from `SMT` up to `NUMA`, `NUMA2` and so on by distance\n\
             - `IDLE` is the state of the CPU that balances: busy, idle or newidle\n\
             - `N` is a number, `GROUP` the path of a cgroup, `HOOK` a hook\n";
    for (kind, counters) in roost_report::known_counters() {
        let _ = write!(out, "\n### {kind}\n");
        let rows = counters.iter().map(|counter| [code(counter.name), counter.meaning.to_owned()]);
        table(out, ["counter", "what it counts"], rows);
    }
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

fn table<const N: usize>(
    out: &mut String,
    head: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) {
    let _ = write!(out, "\n| {} |\n|{}\n", head.join(" | "), "---|".repeat(N));
    for row in rows {
        let cells = row.map(|cell| cell.replace('|', "\\|").replace('\n', " "));
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
}
