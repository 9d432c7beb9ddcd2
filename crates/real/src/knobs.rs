//! The scheduler's settings in a kernel: its features, and the other files in `/sys/kernel/debug/sched`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use roost_fair::{KernelFile, Number};

use crate::error::RealError;

/// The file that lists the features.
const FEATURES: &str = "features";

/// The folder of scheduling domains.
const DOMAINS: &str = "domains/";

/// Switches of the simulation's fair class whose file in the kernel has another name.
const ALIASES: [(&str, &str); 1] = [("sched-cache", "llc_balancing/enabled")];

/// A setting on the command line: `+NAME`, `+no-NAME` or `+NAME=VALUE`.
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

/// A write that changes a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The file, relative to `/sys/kernel/debug/sched`.
    pub file: String,
    /// The text to write.
    pub value: String,
}

/// The settings of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Knobs {
    /// Features, without the prefix `NO_`.
    features: Vec<String>,
    /// Other files and their values.
    files: BTreeMap<String, String>,
    /// Folders of domains, such as `domains/cpu0/domain1`, and the names of their levels.
    domains: BTreeMap<String, String>,
}

/// The setting as written on the command line after `+`.
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
    /// Parses the text between two `+` of `scheduler`.
    pub(crate) fn parse(scheduler: &str, text: &str) -> Result<Self, RealError> {
        let (name, value) = match (text.split_once('='), text.strip_prefix("no-")) {
            (Some((name, value)), _) => (name, Value::Is(value.to_owned())),
            (None, Some(name)) => (name, Value::Off),
            (None, None) => (text, Value::On),
        };
        if name == "policy" && matches!(value, Value::Is(_)) {
            return Err(RealError::Usage(format!(
                "{scheduler}: a kernel's own rules cannot be replaced; the live scheduler's can, when it is built: \
                 make live POLICY=FILE"
            )));
        }
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
                "{scheduler}: +{text} is not a setting; write +NAME, +no-NAME or +NAME=VALUE"
            )));
        }
        Ok(Self { name: name.to_owned(), value })
    }
}

impl Knobs {
    /// From `files` in `/sys/kernel/debug/sched` and their contents.
    pub(crate) fn new<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut knobs = Self::default();
        for (name, text) in files {
            match name {
                FEATURES => {
                    let word = |word: &str| word.trim_start_matches("NO_").to_owned();
                    knobs.features = text.split_whitespace().map(word).collect();
                }
                _ => match name.strip_suffix("/name").filter(|_| name.starts_with(DOMAINS)) {
                    Some(domain) => {
                        knobs.domains.insert(domain.to_owned(), text.trim().to_owned());
                    }
                    None => {
                        knobs.files.insert(name.to_owned(), text.trim().to_owned());
                    }
                },
            }
        }
        knobs
    }

    /// The writes that change `setting`. If this kernel does not have the name, the error lists those that it has.
    pub(crate) fn resolve(
        &self,
        scheduler: &str,
        setting: &Setting,
    ) -> Result<Vec<Write>, RealError> {
        let number = roost_fair::numbers().find(|number| number.name == setting.name);
        match (number, &setting.value) {
            (Some(number), Value::Is(value)) => self
                .number(number, value)
                .map_err(|problem| RealError::Usage(format!("{scheduler}: {problem}"))),
            _ => self.named(scheduler, setting).map(|write| vec![write]),
        }
    }

    /// The writes that set a number of the fair class, by the simulation's name for it.
    fn number(&self, number: &Number, value: &str) -> Result<Vec<Write>, String> {
        let Number { name, least, most, unit, .. } = number;
        if !value.parse().is_ok_and(|value: u32| (*least..=*most).contains(&value)) {
            let range = format!("a whole number from {least} to {most}, {unit}");
            return Err(format!("'{name}={value}' takes {range}"));
        }
        let write = |file: String| Write { file, value: value.to_owned() };
        match number.file {
            None => {
                Err(format!("{name} exists only in the simulation: no file of a kernel sets it"))
            }
            Some(KernelFile::Sched(file)) if self.files.contains_key(file) => {
                Ok(vec![write(file.to_owned())])
            }
            Some(KernelFile::Sched(file)) => {
                Err(format!("this kernel has no {file}, which {name} sets"))
            }
            Some(KernelFile::Domain { levels, file }) => {
                let of_level = |(_, level): &(_, &String)| levels.contains(&level.as_str());
                let domains = self.domains.iter().filter(of_level);
                let writes: Vec<_> =
                    domains.map(|(domain, _)| write(format!("{domain}/{file}"))).collect();
                if writes.is_empty() {
                    return Err(self.no_level(name));
                }
                Ok(writes)
            }
        }
    }

    fn no_level(&self, number: &str) -> String {
        let levels: BTreeSet<&str> = self.domains.values().map(String::as_str).collect();
        let levels: Vec<&str> = levels.into_iter().collect();
        let has = if levels.is_empty() { "none".to_owned() } else { levels.join(", ") };
        format!("{number}: this kernel has no domains of that level here; it has {has}")
    }

    /// The write that changes a setting, by the kernel's own name for it.
    fn named(&self, scheduler: &str, setting: &Setting) -> Result<Write, RealError> {
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
        // Names may be written with dashes, as in options.
        let file = [name.to_owned(), name.replace('-', "_")];
        let file = file.iter().find(|file| self.files.contains_key(*file));
        let file = file.ok_or_else(|| self.unknown(scheduler, name))?;
        Ok(Write { file: file.clone(), value: value.to_owned() })
    }

    fn unknown(&self, scheduler: &str, name: &str) -> RealError {
        let option = |feature: &String| feature.to_ascii_lowercase().replace('_', "-");
        let features: Vec<String> = self.features.iter().map(option).collect();
        // Files of single CPUs are left out, because they would hide the others.
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
            ("migration_cost_ns", "500000\n"),
            ("domains/cpu0/domain0/name", "SMT\n"),
            ("domains/cpu0/domain1/name", "MC\n"),
            ("domains/cpu1/domain1/name", "MC\n"),
        ])
    }

    fn write(text: &str) -> Result<(String, String), String> {
        let setting = Setting::parse("fair", text).map_err(|error| error.to_string())?;
        let writes = knobs().resolve("fair", &setting).map_err(|error| error.to_string())?;
        let [write] = &writes[..] else { panic!("{writes:?}") };
        Ok((write.file.clone(), write.value.clone()))
    }

    #[test]
    fn numbers_have_the_simulations_names() {
        let pair = |file: &str, value: &str| Ok((file.to_owned(), value.to_owned()));
        assert_eq!(write("base-slice-ns=3000000"), pair("base_slice_ns", "3000000"));
        assert_eq!(write("migration-cost-ns=0"), pair("migration_cost_ns", "0"));
        let setting = Setting::parse("fair", "imbalance-pct-mc=120").unwrap();
        let writes = knobs().resolve("fair", &setting).unwrap();
        let file = |cpu| format!("domains/{cpu}/domain1/imbalance_pct");
        let write = |cpu| Write { file: file(cpu), value: "120".to_owned() };
        assert_eq!(writes, ["cpu0", "cpu1"].map(write), "all domains of the level");
    }

    #[test]
    fn a_number_that_this_kernel_cannot_have_is_told() {
        let told = |text| write(text).unwrap_err();
        assert!(told("sis-util-threshold=90").contains("exists only in the simulation"));
        let policy = Setting::parse("fair", "policy=my_rule.h").unwrap_err().to_string();
        assert!(policy.contains("make live POLICY=FILE"), "{policy}");
        assert!(told("latency-ns=6000000").contains("no latency_ns, which latency-ns sets"));
        assert!(told("base-slice-ns=5").contains("'base-slice-ns=5' takes a whole number from"));
        let level = told("imbalance-pct-numa=120");
        assert!(level.contains("no domains of that level here; it has MC, SMT"), "{level}");
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
