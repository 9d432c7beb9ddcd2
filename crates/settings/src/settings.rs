//! Values of settings, from a file, a scheduler's name or a command line.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use thiserror::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::table::{Kind, Setting, all, find};

/// The value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A mechanism is on.
    On,
    /// A mechanism is off.
    Off,
    /// A number.
    Number(u64),
    /// Patterns, separated by commas.
    Patterns(String),
}

/// The settings that were given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings(BTreeMap<&'static str, Value>);

/// Why settings are wrong.
#[derive(Debug, Error)]
pub enum SettingsError {
    /// The file could not be read.
    #[error("{path}: cannot be read: {reason}")]
    File {
        /// Which.
        path: String,
        /// What the operating system says.
        reason: String,
    },
    /// The file is not TOML.
    #[error("{path}:{line}: {reason}; write NAME = VALUE, as in cling = false or slice-us = 3000")]
    Syntax {
        /// Which.
        path: String,
        /// Where.
        line: usize,
        /// The parser's message.
        reason: String,
    },
    /// There are no settings with these names.
    #[error("{place}: unknown settings: {}; known: {}{}", unknown.join(", "), known(), meant(unknown))]
    Unknown {
        /// The file or the scheduler's name.
        place: String,
        /// All unknown names, with their lines if they are in a file.
        unknown: Vec<String>,
    },
    /// The setting does not take this value.
    #[error("{place}: {name} takes {}", takes(name))]
    Value {
        /// The file with the line, or the scheduler's name.
        place: String,
        /// The setting.
        name: &'static str,
    },
}

fn known() -> String {
    all().map(|setting| setting.name).collect::<Vec<_>>().join(", ")
}

/// The known settings that are similar to unknown ones, as questions.
fn meant(unknown: &[String]) -> String {
    let question = |given: &String| {
        let name = given.split(['=', ' ']).next()?;
        let name = name.strip_prefix("no-").unwrap_or(name);
        roost_names::did_you_mean(name, all().map(|setting| setting.name))
    };
    unknown.iter().filter_map(question).map(|question| format!("; {question}")).collect()
}

/// The values that a setting takes, in words.
fn takes(name: &str) -> String {
    match find(name).map(|setting| setting.kind) {
        Some(Kind::Number { least, most, .. }) => {
            format!("a whole number from {least} to {most}")
        }
        Some(Kind::Tolerance { most, .. }) => {
            format!("true, false, or a whole number from 0 to {most}")
        }
        Some(Kind::Patterns) => {
            "patterns of the shell, as in \"/system.slice/*,/jobs/*\"".to_owned()
        }
        Some(Kind::Switch) | None => "true or false".to_owned(),
    }
}

impl Settings {
    /// Whether a mechanism is on. This is the default.
    pub fn is_on(&self, name: &str) -> bool {
        !matches!(self.0.get(name), Some(Value::Off | Value::Number(0)))
    }

    /// The number that was given, or the setting's default if it has one.
    pub fn number(&self, name: &str) -> Option<u64> {
        match (self.0.get(name), find(name).map(|setting| setting.kind)) {
            (Some(Value::Number(number)), _) => Some(*number),
            (_, Some(Kind::Number { default, .. })) => Some(default),
            _ => None,
        }
    }

    /// Patterns that were given.
    pub fn patterns(&self, name: &str) -> Vec<String> {
        match self.0.get(name) {
            Some(Value::Patterns(text)) => {
                text.split(',').map(|part| part.trim().to_owned()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The settings that were given, by name.
    pub fn given(&self) -> impl Iterator<Item = (&'static str, Value)> {
        self.0.iter().map(|(name, value)| (*name, value.clone()))
    }

    /// Adds the settings of `later`, which take precedence.
    pub fn extend(&mut self, later: &Self) {
        self.0.extend(later.given());
    }

    /// Sets a value. Returns whether the setting takes it.
    pub(crate) fn set(&mut self, setting: &'static Setting, value: Value) -> bool {
        let fits = match &value {
            Value::On | Value::Off => {
                matches!(setting.kind, Kind::Switch | Kind::Tolerance { .. })
            }
            Value::Number(number) => setting.range().is_some_and(|range| range.contains(number)),
            Value::Patterns(text) => {
                // The path is relative to the root of the cgroups.
                setting.kind == Kind::Patterns
                    && text.split(',').all(|part| part.trim().starts_with(['/', '*']))
            }
        };
        if fits {
            self.0.insert(setting.name, value);
        }
        fits
    }

    /// Reads a settings file.
    pub fn read(path: &Path) -> Result<Self, SettingsError> {
        let place = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text, &place),
            Err(error) => Err(SettingsError::File { path: place, reason: error.to_string() }),
        }
    }

    /// Parses the text of a settings file, which is called `path` in errors.
    pub fn parse(text: &str, path: &str) -> Result<Self, SettingsError> {
        let line = |at: usize| text.bytes().take(at).filter(|&byte| byte == b'\n').count() + 1;
        let table = DeTable::parse(text).map_err(|error| {
            let line = line(error.span().map_or(0, |span| span.start));
            match text.lines().nth(line - 1).and_then(of_no_value) {
                Some(name) => SettingsError::Value { place: format!("{path}:{line}"), name },
                None => SettingsError::Syntax {
                    path: path.to_owned(),
                    line,
                    reason: error.message().split_whitespace().collect::<Vec<_>>().join(" "),
                },
            }
        })?;
        let mut settings = Self::default();
        let mut unknown = Vec::new();
        for (key, value) in table.get_ref() {
            let name: &str = key.get_ref();
            let at = line(key.span().start);
            match find(name) {
                None => unknown.push(format!("{} (line {at})", name.escape_debug())),
                Some(setting) => {
                    let wrong = || SettingsError::Value {
                        place: format!("{path}:{at}"),
                        name: setting.name,
                    };
                    let value = toml_value(value).ok_or_else(wrong)?;
                    if !settings.set(setting, value) {
                        return Err(wrong());
                    }
                }
            }
        }
        match unknown.is_empty() {
            true => Ok(settings),
            false => Err(SettingsError::Unknown { place: path.to_owned(), unknown }),
        }
    }

    /// Applies a part of a scheduler's name, between two `+`: `NAME`, `no-NAME`, `NAME=VALUE` or `config=FILE`.
    pub fn apply(&mut self, scheduler: &str, part: &str) -> Result<(), SettingsError> {
        let place = || scheduler.to_owned();
        if let Some(path) = part.strip_prefix("config=") {
            let file = Self::read(Path::new(path))?;
            self.extend(&file);
            return Ok(());
        }
        let (name, value) = match (part.split_once('='), part.strip_prefix("no-")) {
            (Some((name, value)), _) if find(name).is_some_and(|s| s.kind == Kind::Patterns) => {
                (name, Some(Value::Patterns(value.to_owned())))
            }
            (Some((name, value)), _) => (name, value.parse().ok().map(Value::Number)),
            (None, Some(name)) => (name, Some(Value::Off)),
            (None, None) => (part, Some(Value::On)),
        };
        let setting = find(name).ok_or_else(|| SettingsError::Unknown {
            place: place(),
            unknown: vec![part.escape_debug().to_string()],
        })?;
        match value.is_some_and(|value| self.set(setting, value)) {
            true => Ok(()),
            false => Err(SettingsError::Value { place: place(), name: setting.name }),
        }
    }

    /// The settings as options of `scx_roost`.
    pub fn options(&self) -> Vec<String> {
        let option = |(name, value)| match value {
            Value::On => vec![format!("--{name}")],
            Value::Off => vec![format!("--no-{name}")],
            Value::Number(number) => vec![format!("--{name}"), number.to_string()],
            Value::Patterns(text) => vec![format!("--{name}"), text],
        };
        self.given().flat_map(option).collect()
    }

    /// All settings with their values, as a settings file.
    pub fn to_toml(&self) -> String {
        let mut out = String::new();
        for setting in all() {
            let value = match (self.0.get(setting.name), setting.kind) {
                (Some(Value::Number(number)), _) => number.to_string(),
                (Some(Value::Off), _) => "false".to_owned(),
                (Some(Value::Patterns(text)), _) => format!("{text:?}"),
                (None, Kind::Number { default, .. }) => default.to_string(),
                (None, Kind::Patterns) => continue,
                _ => "true".to_owned(),
            };
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{} = {value}", setting.name);
        }
        out
    }

    /// The mechanisms and their state in one line.
    pub fn summary(&self) -> String {
        let one = |setting: &Setting| {
            let name = setting.name;
            match self.0.get(name) {
                Some(Value::Off | Value::Number(0)) => format!("{name} off"),
                Some(Value::Number(number)) => format!("{name} {number}"),
                _ => format!("{name} on"),
            }
        };
        crate::mechanisms().map(one).collect::<Vec<_>>().join(", ")
    }
}

/// A settings file with every setting, its meaning and its default, all commented out.
pub fn example() -> String {
    let mut out = String::from(
        "# Settings of roost: `roost run --config FILE`, scx_roost.service, and in `roost compare`\n\
         # roost+config=FILE and fair@VERSION+config=FILE. Remove the # in front of a line to set it.\n",
    );
    for setting in all() {
        let value = match setting.kind {
            Kind::Number { default, .. } => default.to_string(),
            Kind::Switch | Kind::Tolerance { .. } => "true".to_owned(),
            Kind::Patterns => "\"*\"".to_owned(),
        };
        let takes = takes(setting.name);
        // Writing to a String cannot fail.
        let _ = writeln!(out, "\n# {} ({takes})\n#{} = {value}", setting.meaning, setting.name);
    }
    out
}

/// The setting in a line whose value is not valid TOML, as in `slice-us = abc`.
fn of_no_value(line: &str) -> Option<&'static str> {
    let (name, _) = line.split_once('=')?;
    // If the line alone is valid, its place is wrong, for example because another line sets the same.
    DeTable::parse(line).is_err().then(|| find(name.trim()))?.map(|setting| setting.name)
}

fn toml_value(value: &Spanned<DeValue<'_>>) -> Option<Value> {
    match value.get_ref() {
        DeValue::Boolean(true) => Some(Value::On),
        DeValue::Boolean(false) => Some(Value::Off),
        DeValue::Integer(number) => {
            u64::from_str_radix(number.as_str(), number.radix()).ok().map(Value::Number)
        }
        DeValue::String(text) => Some(Value::Patterns(text.clone().into_owned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<Settings, String> {
        Settings::parse(text, "roost.toml").map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_sets_what_it_names() {
        let settings =
            parse("# mine\nsis-util = false\nllc-imbalance = 2\nslice-us = 4_000\n").unwrap();
        assert!(!settings.is_on("sis-util") && settings.is_on("numa-imbalance"));
        assert_eq!(settings.number("llc-imbalance"), Some(2));
        assert_eq!(settings.number("slice-us"), Some(4000));
        assert_eq!(settings.number("lead-ms"), Some(500), "the default");
    }

    #[test]
    fn the_example_names_every_setting_and_sets_none() {
        let text = example();
        assert_eq!(parse(&text).unwrap(), Settings::default());
        let in_force = |line: &str| match line.strip_prefix('#') {
            Some(rest) if !rest.starts_with(' ') => format!("{rest}\n"),
            _ => String::new(),
        };
        let settings = parse(&text.lines().map(in_force).collect::<String>()).unwrap();
        assert_eq!(settings.given().count(), all().count());
    }

    #[test]
    fn every_unknown_key_is_named_with_its_line() {
        let error = parse("sis-util = true\nslcie-us = 3\n\n[clingy]\nx = 1\n").unwrap_err();
        assert!(
            error.contains("slcie-us (line 2)") && error.contains("clingy (line 4)"),
            "{error}"
        );
        assert!(error.contains("slice-us, lead-ms"), "{error}");
        assert_eq!(error.lines().count(), 1);
    }

    #[test]
    fn wrong_values_are_told_with_what_is_right() {
        for (text, right) in [
            ("\nslice-us = true", "roost.toml:2: slice-us takes a whole number from 100 to 100000"),
            ("slice-us = 1", "a whole number from 100 to 100000"),
            ("slice-us = -5", "a whole number from 100 to 100000"),
            (
                "cling = true\nslice-us = abc",
                "roost.toml:2: slice-us takes a whole number from 100",
            ),
            ("slice-us = 3000 us # ms?", "roost.toml:1: slice-us takes a whole number from 100"),
            ("cling-groups = /a", "roost.toml:1: cling-groups takes patterns of the shell"),
            ("such = abc", "string values must be quoted"),
            ("sis-util = 3", "roost.toml:1: sis-util takes true or false"),
            ("llc-imbalance = \"few\"", "true, false, or a whole number"),
            ("sis-util = ", "roost.toml:1: sis-util takes true or false"),
            ("sis-util = true\nsis-util = true", "roost.toml:2: duplicate key"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(right), "{text:?}: {error}");
        }
    }

    #[test]
    fn patterns_are_texts() {
        let settings = parse("cling-groups = \"/a/*, /b\"").unwrap();
        assert_eq!(settings.patterns("cling-groups"), ["/a/*", "/b"]);
        assert_eq!(parse(&settings.to_toml()).unwrap().patterns("cling-groups"), ["/a/*", "/b"]);
        let mut named = Settings::default();
        named.apply("roost+...", "cling-groups=/a/*, /b").unwrap();
        assert_eq!(named, settings);
        assert_eq!(named.options(), ["--cling-groups", "/a/*, /b"]);
        assert!(parse("cling-groups = true").unwrap_err().contains("patterns of the shell"));
        assert!(parse("cling-groups = \"a\"").is_err(), "paths begin with /");
        assert!(parse("sis-util = \"/a\"").is_err());
    }

    #[test]
    fn a_schedulers_name_sets_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("roost.toml");
        std::fs::write(&file, "sis-util = false\nslice-us = 5000").unwrap();
        let config = format!("config={}", file.display());
        let mut settings = Settings::default();
        for part in ["no-numa-imbalance", "llc-imbalance=2", &config, "slice-us=700"] {
            settings.apply("roost+...", part).unwrap();
        }
        let expected =
            "sis-util = false\nllc-imbalance = 2\nnuma-imbalance = false\nslice-us = 700";
        assert_eq!(settings, parse(expected).unwrap());
        for part in
            ["no-such", "slice-us", "slice-us=x", "sis-util=3", "no-slice-us", "", "config="]
        {
            let error = settings.apply("roost+x", part).unwrap_err().to_string();
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }

    #[test]
    fn the_summary_tells_what_is_on() {
        let settings = parse("sis-util = false\nllc-imbalance = 2").unwrap();
        assert!(settings.summary().starts_with("sis-util off, llc-imbalance 2, numa-imbalance on"));
        assert!(parse("llc-imbalance = 0").unwrap().summary().contains("llc-imbalance off"));
    }

    proptest! {
        #[test]
        fn any_text_is_understood_or_refused_in_a_line(text in "\\PC{0,40}(\n[a-z-]{1,14} ?= ?[a-z0-9\"-]{0,9}){0,3}") {
            if let Err(error) = parse(&text) {
                prop_assert_eq!(error.lines().count(), 1, "{}", error);
            }
        }

        #[test]
        fn what_is_written_is_read_back(on in any::<[bool; 3]>(), slice in 100_u64..=100_000) {
            let text = format!(
                "sis-util = {}\nllc-imbalance = {}\nnuma-imbalance = {}\nslice-us = {slice}",
                on[0], on[1], on[2],
            );
            let settings = parse(&text).unwrap();
            let again = parse(&settings.to_toml()).unwrap();
            for setting in all() {
                prop_assert_eq!(again.is_on(setting.name), settings.is_on(setting.name));
                prop_assert_eq!(again.number(setting.name), settings.number(setting.name));
            }
        }
    }
}
