//! `roost policy`: rules that users write.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;

use roost_fair::Features;

use crate::args::PolicyCommand;
use crate::error::{Error, print};

/// Runs `command`.
pub fn run(command: &PolicyCommand) -> Result<(), Error> {
    match command {
        PolicyCommand::List => print(&list()),
        PolicyCommand::New { name, file } => new(name, file),
    }
}

/// The functions of the policy, by mechanism.
fn list() -> String {
    let functions = roost_rule::functions();
    let width = functions.iter().map(|function| function.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    let mut mechanism = "";
    for function in &functions {
        if function.mechanism != mechanism {
            let blank = if text.is_empty() { "" } else { "\n" };
            text += &format!("{blank}{}{}\n", function.mechanism, where_on(&function.mechanism));
            mechanism = &function.mechanism;
        }
        let live = if function.only_live { "live only: " } else { "" };
        let line = format!("  {:<width$}  {live}{}", function.name, function.about);
        text += line.trim_end();
        text += "\n";
    }
    text
}

/// In which versions a mechanism is on, so that its functions are called there.
fn where_on(name: &str) -> String {
    let mut mechanisms = roost_fair::mechanisms().iter();
    let Some(mechanism) = mechanisms.find(|mechanism| mechanism.name == name) else {
        return ": only in the live scheduler".to_owned();
    };
    let is_on = |version: &&str| {
        let features = Features::parse(&format!("fair@{version}"));
        features.is_ok_and(|features| mechanism.is_on(&features))
    };
    let on: Vec<&str> = roost_fair::versions().into_iter().filter(is_on).collect();
    match on.is_empty() {
        true => format!(": on with fair@VERSION+{name}"),
        false => format!(": on in {}, else with fair@VERSION+{name}", on.join(", ")),
    }
}

fn new(name: &str, file: &Path) -> Result<(), Error> {
    let template = roost_rule::template(name).map_err(|meant| {
        let problem = format!("policy: no mechanism or function {name}{meant}");
        Error::Usage(format!("{problem}; `roost policy list` names them"))
    })?;
    let shown = file.display();
    let failed = |error: std::io::Error| {
        Error::Usage(match error.kind() {
            ErrorKind::AlreadyExists => {
                format!("{shown}: exists already; name another file: roost policy new {name} FILE")
            }
            _ => format!("{shown}: cannot be written: {error}"),
        })
    };
    let mut new = OpenOptions::new().write(true).create_new(true).open(file).map_err(failed)?;
    new.write_all(template.as_bytes()).map_err(failed)?;
    print(&format!(
        "{shown}: edit it, then run: roost compare --workload hackbench fair@7.2 mine=fair@7.2+policy={shown}\n"
    ))
}
