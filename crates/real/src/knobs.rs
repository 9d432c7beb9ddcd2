//! The scheduler's settings of a kernel: its features and the other files below
//! `/sys/kernel/debug/sched`.

use std::collections::BTreeMap;
use std::fmt;

use crate::error::RealError;

/// The file that lists the features.
const FEATURES: &str = "features";

/// Switches of the simulation's fair class whose knob has another name.
const ALIASES: [(&str, &str); 1] = [("sched-cache", "llc_balancing/enabled")];

/// A setting as the command line names it, `+NAME`, `+no-NAME` or `+NAME=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    name: String,
    value: Value,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    On,
    Off,
    Is(String),
}

/// One write that makes a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The file below `/sys/kernel/debug/sched`.
    pub file: String,
    /// What is written.
    pub value: String,
}

/// The settings that a kernel has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Knobs {
    /// Features, without `NO_`.
    features: Vec<String>,
    /// Other files, with their values.
    files: BTreeMap<String, String>,
}

/// As the command line has it behind `+`.
impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Value::On => write!(f, "{}", self.name),
            Value::Off => write!(f, "no-{}", self.name),
            Value::Is(value) => write!(f, "{}={value}", self.name),
        }
    }
}

impl Setting {
    /// Reads what stands between two `+` of `scheduler`.
    pub(crate) fn parse(scheduler: &str, text: &str) -> Result<Self, RealError> {
        let (name, value) = match (text.split_once('='), text.strip_prefix("no-")) {
            (Some((name, value)), _) => (name, Value::Is(value.to_owned())),
            (None, Some(name)) => (name, Value::Off),
            (None, None) => (text, Value::On),
        };
        let plain = |text: &str| {
            !text.is_empty()
                && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_/.".contains(c))
        };
        let value_is_plain = match &value {
            Value::Is(value) => plain(value),
            Value::On | Value::Off => true,
        };
        if !plain(name) || !value_is_plain || name.contains("..") {
            return Err(RealError::Usage(format!(
                "{scheduler}: +{text} is no setting; write +NAME, +no-NAME or +NAME=VALUE"
            )));
        }
        Ok(Self { name: name.to_owned(), value })
    }
}

impl Knobs {
    /// From `files` below `/sys/kernel/debug/sched` with their contents.
    pub(crate) fn new<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut knobs = Self::default();
        for (name, text) in files {
            match name {
                FEATURES => {
                    let word = |word: &str| word.trim_start_matches("NO_").to_owned();
                    knobs.features = text.split_whitespace().map(word).collect();
                }
                _ => {
                    knobs.files.insert(name.to_owned(), text.trim().to_owned());
                }
            }
        }
        knobs
    }

    /// The write that makes `setting`; a name that this kernel does not have is an error that lists
    /// those it has.
    pub(crate) fn resolve(&self, scheduler: &str, setting: &Setting) -> Result<Write, RealError> {
        let alias = ALIASES.iter().find(|(name, _)| *name == setting.name);
        let name = alias.map_or(setting.name.as_str(), |(_, file)| file);
        let feature = name.to_ascii_uppercase().replace('-', "_");
        let value = match &setting.value {
            _ if self.features.contains(&feature) => {
                let value = match setting.value {
                    Value::On => feature,
                    Value::Off => format!("NO_{feature}"),
                    Value::Is(_) => {
                        let problem = format!("{name} is on or off; write +{name} or +no-{name}");
                        return Err(RealError::Usage(format!("{scheduler}: {problem}")));
                    }
                };
                return Ok(Write { file: FEATURES.to_owned(), value });
            }
            Value::On => "1",
            Value::Off => "0",
            Value::Is(value) => value,
        };
        // Names with dashes, as options have them, serve too.
        let file = [name.to_owned(), name.replace('-', "_")];
        let file = file.iter().find(|file| self.files.contains_key(*file));
        let file = file.ok_or_else(|| self.unknown(scheduler, name))?;
        Ok(Write { file: file.clone(), value: value.to_owned() })
    }

    fn unknown(&self, scheduler: &str, name: &str) -> RealError {
        let option = |feature: &String| feature.to_ascii_lowercase().replace('_', "-");
        let features: Vec<String> = self.features.iter().map(option).collect();
        // Those of single CPUs would hide the others.
        let files = self.files.iter().filter(|(file, _)| !file.contains("/cpu"));
        let files: Vec<String> = files.map(|(file, value)| format!("{file}={value}")).collect();
        RealError::Usage(format!(
            "{scheduler}: this kernel has no {name}; on or off: {}; with a value: {}",
            features.join(", "),
            files.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knobs() -> Knobs {
        Knobs::new([
            ("features", "PLACE_LAG NO_NEXT_BUDDY SIS_UTIL \n"),
            ("base_slice_ns", "2800000\n"),
            ("llc_balancing/enabled", "1\n"),
        ])
    }

    fn write(text: &str) -> Result<(String, String), String> {
        let setting = Setting::parse("fair", text).map_err(|error| error.to_string())?;
        let write = knobs().resolve("fair", &setting).map_err(|error| error.to_string())?;
        Ok((write.file, write.value))
    }

    #[test]
    fn features_are_switched_and_files_written() {
        let pair = |file: &str, value: &str| Ok((file.to_owned(), value.to_owned()));
        assert_eq!(write("no-sis-util"), pair("features", "NO_SIS_UTIL"));
        assert_eq!(write("next-buddy"), pair("features", "NEXT_BUDDY"));
        assert_eq!(write("base_slice_ns=3000000"), pair("base_slice_ns", "3000000"));
        assert_eq!(write("no-llc_balancing/enabled"), pair("llc_balancing/enabled", "0"));
        assert_eq!(write("no-sched-cache"), pair("llc_balancing/enabled", "0"));
    }

    #[test]
    fn an_unknown_setting_is_answered_with_those_that_exist() {
        let error = write("numa-imbalance").unwrap_err();
        assert!(error.contains("no numa-imbalance"), "{error}");
        assert!(error.contains("sis-util") && error.contains("base_slice_ns=2800000"), "{error}");
        assert!(write("sis-util=3").unwrap_err().contains("on or off"));
    }

    #[test]
    fn nothing_reaches_a_shell_that_could_mean_something_there() {
        for text in ["", "no-", "a b", "a=$(reboot)", "../../x=1", "a=", "a;b"] {
            assert!(Setting::parse("fair", text).is_err(), "{text}");
        }
    }
}
