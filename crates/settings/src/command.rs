//! The command line of `scx_roost`, which `roost run` shares.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::settings::{Settings, SettingsError, Value};
use crate::table::{Kind, Setting, all};

/// The action that the user asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Schedule.
    Run,
    /// Print what would be loaded.
    DryRun,
    /// Count for this time what the scheduler could help with.
    Observe(Duration),
    /// Print the counters of a running scheduler at this interval.
    Monitor(Duration),
    /// Show a running scheduler in the terminal, updated at this interval.
    Top(Duration),
    /// Print the meaning of all statistics.
    HelpStats,
}

/// A whole command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// The action.
    pub action: Action,
    /// The settings file.
    pub config: Option<PathBuf>,
    /// Settings from other options.
    pub options: Settings,
    /// Interval at which to print statistics while scheduling.
    pub stats: Option<Duration>,
    /// Address at which to serve statistics for Prometheus.
    pub metrics: Option<SocketAddr>,
    /// Whether to print the messages of libbpf and the verifier, and the kernel's dump if it ends the scheduler.
    pub verbose: bool,
    /// A captured `/sys` to read instead of this machine's (for a dry run).
    pub sysfs: Option<PathBuf>,
}

/// Examples and exit status, for the help of a command that takes these arguments.
pub fn after_help(program: &str) -> String {
    AFTER_HELP.replace("scx_roost", program)
}

const AFTER_HELP: &str = "\
Examples:
  sudo scx_roost                              schedule until Ctrl-C
  sudo scx_roost --no-sis-util --llc-imbalance 2 --config /etc/roost.toml
  scx_roost --dry-run                         what it would do for this machine, and with which settings
  sudo scx_roost --observe                    count for a minute what it could help with; loads no scheduler
  sudo timeout --foreground 60 scx_roost      schedule for a minute: the first time
  sudo scx_roost --metrics 127.0.0.1:9955     serve counters for Prometheus
  sudo scx_roost --monitor 1                  print the counters of a running scx_roost every second
  sudo scx_roost --top 1                      show them in the terminal, updated every second

A settings file has a line NAME = VALUE for each setting, with the names of the options: sis-util = false,
llc-imbalance = 2, slice-us = 3000. Options take precedence over the file. `roost compare` accepts the same
names and files, for this scheduler (roost+no-sis-util) and for the fair class (fair@7.2+config=FILE).

Whatever ends this program, the fair class schedules all tasks again. If no terminal answers, SysRq-S on
the console ends it. If a task does not run for 30 s, the kernel's watchdog does.

Exit status: 0 after Ctrl-C, SIGTERM or SIGHUP; 1 if the kernel ended or refused the scheduler,
cannot run it (--dry-run), another is still being unloaded, or an address or file cannot be had;
2 if options or settings are wrong; 3 if this machine cannot run it as it is (no root, no sched_ext,
no type information, a kernel too old, another scheduler loaded, another scx_roost running).";

/// The command line of `scx_roost`.
pub fn command() -> Command {
    Command::new("scx_roost")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Keeps threads near each other on machines with several LLCs and NUMA nodes (sched_ext)")
        .after_help(AFTER_HELP)
        .args(arguments())
}

/// The arguments of `scx_roost`.
pub fn arguments() -> Vec<Arg> {
    let mut all: Vec<Arg> = all().flat_map(setting_arguments).collect();
    all.extend([
        path("config", "FILE", "Read settings from this file; other options take precedence over it"),
        seconds("stats", "Print statistics at this interval in seconds while scheduling, and at the end"),
        Arg::new("metrics")
            .long("metrics")
            .value_name("ADDRESS")
            .value_parser(value_parser!(SocketAddr))
            .help("Serve statistics for Prometheus at this address, such as 127.0.0.1:9955"),
        seconds("monitor", "Print statistics of a running scheduler at this interval in seconds"),
        seconds("top", "Show a running scheduler in the terminal, updated at this interval in seconds"),
        flag("help-stats", "Print the meaning of all statistics"),
        flag(
            "dry-run",
            "Print the machine, what roost would do for it, what speaks against it, and all settings, and do \
             nothing else. Exit status 1 if this kernel cannot run it",
        ),
        seconds(
            "observe",
            "Load no scheduler; count for this time (60 s if none is given) what roost could help with, by cgroup",
        )
        .num_args(0..=1)
        .default_missing_value("60"),
        path("sysfs", "DIR", "With --dry-run: take the machine from a captured /sys")
            .requires("dry-run"),
        flag(
            "verbose",
            "Print the messages of libbpf and of the kernel's verifier. If the kernel ends the scheduler \
             because of an error, print its dump of waiting tasks",
        )
        .short('v'),
    ]);
    all
}

fn flag(name: &'static str, help: impl Into<clap::builder::StyledStr>) -> Arg {
    Arg::new(name).long(name).help(help.into()).action(ArgAction::SetTrue)
}

fn path(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).value_parser(value_parser!(PathBuf)).help(help)
}

/// Allowed intervals, in seconds.
pub const SECONDS: RangeInclusive<f64> = 0.01..=86400.0;

fn seconds(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name("SECONDS")
        .value_parser(|text: &str| match text.parse::<f64>() {
            Ok(seconds) if SECONDS.contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
            _ => Err(format!("give seconds from {} to {}", SECONDS.start(), SECONDS.end())),
        })
        .help(help)
}

/// The id that clap uses for the option `--no-NAME`.
fn off_id(setting: &Setting) -> String {
    format!("no-{}", setting.name)
}

/// `--no-NAME` and `--NAME` of a mechanism, `--NAME N` of a number.
fn setting_arguments(setting: &'static Setting) -> Vec<Arg> {
    let number = Arg::new(setting.name).long(setting.name).overrides_with(setting.name);
    let range = setting.range().map(|range| value_parser!(u64).range(range));
    match (setting.kind, range) {
        (Kind::Number { default, least, most }, Some(range)) => {
            let help = format!("{} [{least} to {most}, default: {default}]", setting.meaning);
            vec![number.value_name("N").value_parser(range).help(help)]
        }
        (Kind::Tolerance { unit, .. }, Some(range)) => vec![
            number.value_name(unit).num_args(0..=1).value_parser(range).help(setting.meaning),
            off(setting),
        ],
        (Kind::Patterns, _) => {
            let patterns = number.value_name("PATTERNS").value_parser(patterns_that_fit);
            vec![patterns.help(setting.meaning)]
        }
        _ => {
            let on = flag(setting.name, "").hide(true).overrides_with(setting.name);
            vec![on, off(setting)]
        }
    }
}

fn patterns_that_fit(text: &str) -> Result<String, String> {
    match text.split(',').all(|part| part.trim().starts_with(['/', '*'])) {
        true => Ok(text.to_owned()),
        false => Err("give paths of cgroups, such as /system.slice/*,/jobs/*".to_owned()),
    }
}

/// The option `--no-NAME`. If `--NAME` and `--no-NAME` are both given, the last one counts.
fn off(setting: &'static Setting) -> Arg {
    let id = off_id(setting);
    Arg::new(id.clone())
        .long(id.clone())
        .help(format!("{} off: {}", setting.name, setting.without))
        .action(ArgAction::SetTrue)
        .overrides_with_all([id, setting.name.to_owned()])
}

impl Invocation {
    /// The command line that clap has parsed.
    pub fn from_matches(matches: &ArgMatches) -> Self {
        let duration = |name: &str| matches.get_one::<Duration>(name).copied();
        let action = match (duration("monitor"), duration("top")) {
            _ if matches.get_flag("help-stats") => Action::HelpStats,
            (Some(interval), _) => Action::Monitor(interval),
            (_, Some(interval)) => Action::Top(interval),
            _ if matches.get_flag("dry-run") => Action::DryRun,
            _ => duration("observe").map_or(Action::Run, Action::Observe),
        };
        let mut options = Settings::default();
        for setting in all() {
            if let Some(value) = value(matches, setting) {
                // clap has checked the range.
                options.set(setting, value);
            }
        }
        Self {
            action,
            config: matches.get_one("config").cloned(),
            options,
            stats: duration("stats"),
            metrics: matches.get_one("metrics").copied(),
            verbose: matches.get_flag("verbose"),
            sysfs: matches.get_one("sysfs").cloned(),
        }
    }

    /// The settings of the file, with the settings of options on top.
    pub fn settings(&self) -> Result<Settings, SettingsError> {
        let mut settings = match &self.config {
            Some(path) => Settings::read(path)?,
            None => Settings::default(),
        };
        settings.extend(&self.options);
        Ok(settings)
    }

    /// A command line with the same meaning.
    pub fn to_arguments(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = self.options.options().into_iter().map(Into::into).collect();
        let mut pair = |name: &str, value: Option<OsString>| {
            if let Some(value) = value {
                words.extend([name.into(), value]);
            }
        };
        let text = |duration: Duration| OsString::from(duration.as_secs_f64().to_string());
        pair("--config", self.config.clone().map(Into::into));
        pair("--stats", self.stats.map(text));
        pair("--metrics", self.metrics.map(|address| address.to_string().into()));
        pair("--sysfs", self.sysfs.clone().map(Into::into));
        match self.action {
            Action::Run => {}
            Action::DryRun => words.push("--dry-run".into()),
            Action::Observe(time) => pair("--observe", Some(text(time))),
            Action::HelpStats => words.push("--help-stats".into()),
            Action::Monitor(interval) => pair("--monitor", Some(text(interval))),
            Action::Top(interval) => pair("--top", Some(text(interval))),
        }
        if self.verbose {
            words.push("--verbose".into());
        }
        words
    }
}

/// The value of a setting on the command line, if it was given.
fn value(matches: &ArgMatches, setting: &Setting) -> Option<Value> {
    let can_be_off = matches!(setting.kind, Kind::Switch | Kind::Tolerance { .. });
    if can_be_off && matches.get_flag(&off_id(setting)) {
        return Some(Value::Off);
    }
    match setting.kind {
        Kind::Switch => matches.get_flag(setting.name).then_some(Value::On),
        Kind::Patterns => matches.get_one(setting.name).cloned().map(Value::Patterns),
        _ if !matches.contains_id(setting.name) => None,
        _ => Some(matches.get_one::<u64>(setting.name).map_or(Value::On, |n| Value::Number(*n))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(arguments: &[&str]) -> Result<Invocation, String> {
        let all = std::iter::once("scx_roost").chain(arguments.iter().copied());
        let matches = command().try_get_matches_from(all).map_err(|error| error.to_string())?;
        Ok(Invocation::from_matches(&matches))
    }

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn mechanisms_are_on_unless_switched_off() {
        let all = parse(&[]).unwrap();
        assert_eq!((all.action, all.options.given().count()), (Action::Run, 0));
        let none = parse(&["--no-sis-util", "--no-llc-imbalance"]).unwrap().options;
        assert!(
            !none.is_on("sis-util") && !none.is_on("llc-imbalance") && none.is_on("numa-imbalance")
        );
        let three = parse(&["--llc-imbalance", "3"]).unwrap().options;
        assert_eq!(three.number("llc-imbalance"), Some(3));
    }

    #[test]
    fn the_last_word_counts() {
        let last = |arguments: &[&str]| parse(arguments).unwrap().options;
        assert!(last(&["--no-sis-util", "--sis-util"]).is_on("sis-util"));
        assert!(!last(&["--llc-imbalance", "3", "--no-llc-imbalance"]).is_on("llc-imbalance"));
        assert_eq!(last(&["--slice-us", "200", "--slice-us", "300"]).number("slice-us"), Some(300));
    }

    #[test]
    fn numbers_have_ranges() {
        assert!(parse(&["--slice-us", "1"]).unwrap_err().contains("100..=100000"));
        assert!(parse(&["--stats", "0"]).unwrap_err().contains("0.01 to 86400"));
        assert!(parse(&["--metrics", "9955"]).is_err());
    }

    #[test]
    fn options_go_before_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("roost.toml");
        std::fs::write(&file, "sis-util = false\nnuma-imbalance = false\nslice-us = 5000").unwrap();
        let path = file.to_str().unwrap();
        let given = parse(&["--config", path, "--sis-util", "--slice-us", "700"]).unwrap();
        let settings = given.settings().unwrap();
        assert!(settings.is_on("sis-util") && !settings.is_on("numa-imbalance"));
        assert_eq!(settings.number("slice-us"), Some(700));
    }

    proptest! {
        #[test]
        fn arguments_say_the_same_again(
            off in any::<bool>(), tasks in proptest::option::of(0_u64..9), slice in 100_u64..9999,
            stats in proptest::option::of(1_u64..90), verbose in any::<bool>(), what in 0..6_usize,
        ) {
            let mut words = vec![format!("--slice-us={slice}"), "--config".into(), "a b".into()];
            words.extend(off.then(|| "--no-sis-util".to_owned()));
            words.extend(tasks.map(|tasks| format!("--llc-imbalance={tasks}")));
            words.extend(stats.map(|seconds| format!("--stats={seconds}")));
            words.extend(verbose.then(|| "-v".to_owned()));
            let action = [
                "--dry-run", "--monitor=2", "--top=0.5", "--help-stats", "--metrics=[::1]:9", "--observe=60",
            ];
            words.push(str::to_owned(action[what]));
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let first = parse(&words).unwrap();
            let again = first.to_arguments();
            let again: Vec<&str> = again.iter().map(|word| word.to_str().unwrap()).collect();
            prop_assert_eq!(parse(&again).unwrap(), first);
        }
    }
}
