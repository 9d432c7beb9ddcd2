//! The one table of schedulers by name.

use std::path::Path;

use roost_fair::{FeatureError, Features};
use roost_settings::{Settings, Value};

use crate::error::{Error, tell};

/// A scheduler as the command line names it.
#[derive(Clone, Debug)]
pub enum SchedulerSpec {
    /// The kernel's fair class.
    Fair(Features),
}

/// Settings whose switch of the fair class has another name: the live scheduler has the rule that was
/// merged, not the one first published.
const OTHER_NAMES: [(&str, &str); 1] = [("numa-imbalance", "numa-imbalance-merged")];

impl SchedulerSpec {
    /// Reads a name such as `fair@5.19+sis-util+config=roost.toml`.
    pub fn parse(name: &str) -> Result<Self, Error> {
        if name.split(['@', '+']).next() == Some("roost") {
            return Err(Error::Usage(format!(
                "{name}: the live scheduler needs a real kernel: add --on vm or --on host; in the \
                 simulation its mechanisms are switches of the fair class, as in fair@7.2+sis-util"
            )));
        }
        let mut features = String::new();
        for (index, part) in name.split('+').enumerate() {
            match part.strip_prefix("config=") {
                Some(file) if index > 0 => features += &switches(name, file)?,
                _ if index > 0 => {
                    if let Some(setting) = of_live_only(part) {
                        return Err(Error::Usage(format!(
                            "{name}: only the live scheduler has {setting}: roost+{part}, with \
                             --on vm or --on host"
                        )));
                    }
                    features += &format!("+{part}");
                }
                _ => features += part,
            }
        }
        let mut features = Features::parse(&features).map_err(|error| no_model(name, error))?;
        name.clone_into(&mut features.name);
        Ok(SchedulerSpec::Fair(features))
    }
}

/// The setting that a part of a scheduler's name is about, if the fair class does not have it.
fn of_live_only(part: &str) -> Option<&'static str> {
    let name = part.split_once('=').map_or(part, |(name, _)| name);
    let setting = roost_settings::find(name.strip_prefix("no-").unwrap_or(name))?;
    let known = roost_fair::switches().into_iter().chain(roost_fair::numbers());
    known.into_iter().all(|(name, _)| name != setting.name).then_some(setting.name)
}

/// Says where a name that is none of the simulation's may have a meaning.
fn no_model(name: &str, error: FeatureError) -> Error {
    let FeatureError::Form { .. } = error else { return error.into() };
    Error::Usage(match name.split('+').next() {
        Some("fair") => format!("{error}; fair alone is the kernel that runs here: add --on host"),
        _ => format!("{error}; a sched_ext program needs a real kernel: add --on vm or --on host"),
    })
}

/// What a settings file says, as switches of the fair class; what the fair class does not have is
/// told and left out.
fn switches(scheduler: &str, file: &str) -> Result<String, Error> {
    let settings = Settings::read(Path::new(file))?;
    let mut switches = String::new();
    let mut unknown = Vec::new();
    for (name, value) in settings.given() {
        match switch(name, &value) {
            Some(switch) => switches += &format!("+{switch}"),
            None => unknown.push(name),
        }
    }
    if !unknown.is_empty() {
        let unknown = unknown.join(", ");
        tell(&format!("note: {scheduler}: only the live scheduler has {unknown}; left out here"));
    }
    Ok(switches)
}

/// One setting as a switch of the fair class, if it has it.
fn switch(name: &str, value: &Value) -> Option<String> {
    let other = OTHER_NAMES.iter().find(|(setting, _)| *setting == name);
    let name = other.map_or(name, |(_, switch)| switch);
    let known = match value {
        Value::On | Value::Off => roost_fair::switches().iter().any(|(switch, _)| *switch == name),
        Value::Number(_) => roost_fair::numbers().iter().any(|(number, _)| *number == name),
        Value::Patterns(_) => false,
    };
    known.then(|| match value {
        Value::On => name.to_owned(),
        Value::Off => format!("no-{name}"),
        Value::Number(number) => format!("{name}={number}"),
        Value::Patterns(text) => format!("{name}={text}"),
    })
}
