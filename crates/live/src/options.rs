//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use roost_machine::Machine;

use crate::error::LiveError;
use crate::tables::{TUNABLES, Tunable};

/// Mechanisms among the settings.
const MECHANISMS: usize = 5;

/// What the user asks for.
pub enum Action {
    /// Schedule.
    Run(Options),
    /// Say what would be loaded.
    DryRun(Options),
    /// Watch a running scheduler.
    Monitor(Duration),
    /// Describe the statistics.
    HelpStats,
}

/// How to schedule.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// `sis-util`.
    pub sis_util: bool,
    /// `numa-imbalance`.
    pub numa_imbalance: bool,
    /// `llc-imbalance`: tasks tolerated; `None`: as the policy has it.
    pub llc_imbalance: Option<u32>,
    /// `cling`.
    pub cling: bool,
    /// `consolidate`.
    pub consolidate: bool,
    /// Whether weights of cgroups count.
    pub cgroup_weights: bool,
    /// Tunables that were set.
    pub tunables: Vec<(&'static str, u64)>,
    /// Print statistics this often.
    pub stats: Option<Duration>,
    /// Tell what libbpf and the verifier say.
    pub verbose: bool,
    /// A captured `/sys` to read instead of this machine's, for `--dry-run`.
    pub sysfs: Option<PathBuf>,
}

impl Options {
    /// The machine to schedule.
    pub fn machine(&self) -> Result<Machine, LiveError> {
        Ok(match &self.sysfs {
            Some(dir) => Machine::from_sysfs(dir)?,
            None => Machine::this()?,
        })
    }

    /// The mechanisms in a line.
    pub fn mechanisms(&self) -> String {
        let all = self.settings().into_iter().take(MECHANISMS);
        all.map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
    }

    /// The value of a tunable; 0 for one that does not exist.
    pub fn tunable(&self, name: &str) -> u64 {
        let default = || TUNABLES.iter().find(|tunable| tunable.name == name);
        let set = self.tunables.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        set.or_else(|| default().map(|tunable| tunable.default)).unwrap_or(0)
    }

    /// Every setting, mechanisms first, with its value, as `--dry-run` tells.
    pub fn settings(&self) -> Vec<(String, String)> {
        let on = |on: bool| if on { "on" } else { "off" }.to_owned();
        let llc = match self.llc_imbalance {
            None => "on".to_owned(),
            Some(0) => on(false),
            Some(tasks) => format!("{tasks} tasks"),
        };
        let mut all = vec![
            ("sis-util".to_owned(), on(self.sis_util)),
            ("llc-imbalance".to_owned(), llc),
            ("numa-imbalance".to_owned(), on(self.numa_imbalance)),
            ("cling".to_owned(), on(self.cling)),
            ("consolidate".to_owned(), on(self.consolidate)),
            ("cgroup-weights".to_owned(), on(self.cgroup_weights)),
        ];
        all.extend(
            TUNABLES
                .iter()
                .map(|tunable| (tunable.option.to_owned(), self.tunable(tunable.name).to_string())),
        );
        all
    }
}

/// Reads the command line; ends the program where clap does (errors, help, version).
pub fn parse() -> Action {
    action(&command().get_matches())
}

fn command() -> Command {
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).help(help).action(ArgAction::SetTrue)
    };
    Command::new("scx_roost")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Keeps threads near each other on machines with several LLCs and NUMA nodes (sched_ext)")
        .arg(flag("no-sis-util", "Search the whole LLC for an idle CPU at every wakeup"))
        .arg(
            Arg::new("llc-imbalance")
                .long("llc-imbalance")
                .value_name("TASKS")
                .value_parser(value_parser!(u32).range(0..1_000_000))
                .help("Tolerate this many tasks more in one LLC of a node [default: a quarter of the LLC's CPUs]"),
        )
        .arg(
            flag("no-llc-imbalance", "Even out LLCs of a node whatever the imbalance")
                .conflicts_with("llc-imbalance"),
        )
        .arg(flag("no-numa-imbalance", "Start new tasks near their parent, as if they woke up"))
        .arg(flag("no-cling", "Let groups (cgroups) spread over nodes"))
        .arg(flag("no-consolidate", "Let processes spread over nodes"))
        .arg(flag("no-cgroup-weights", "Take each task's weight as it is, whatever cgroup it is in"))
        .args(TUNABLES.iter().map(tunable_option))
        .arg(seconds("stats", "Print statistics every so many seconds while scheduling, and at the end"))
        .arg(seconds("monitor", "Print statistics of a running scheduler every so many seconds"))
        .arg(flag("help-stats", "Describe the statistics"))
        .arg(flag("dry-run", "Say what would be loaded, on which machine, and do nothing"))
        .arg(
            Arg::new("sysfs")
                .long("sysfs")
                .value_name("DIR")
                .value_parser(value_parser!(PathBuf))
                .requires("dry-run")
                .help("With --dry-run: take the machine from a captured /sys"),
        )
        .arg(flag("verbose", "Tell what libbpf and the kernel's verifier say").short('v'))
}

fn tunable_option(tunable: &Tunable) -> Arg {
    let range = tunable.least..=tunable.most;
    let help = format!(
        "{} [{} to {}, default: {}]",
        tunable.meaning, tunable.least, tunable.most, tunable.default
    );
    Arg::new(tunable.name)
        .long(tunable.option)
        .value_name("N")
        .value_parser(value_parser!(u64).range(range))
        .help(help)
}

fn seconds(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name("SECONDS")
        .value_parser(|text: &str| match text.parse::<f64>() {
            Ok(seconds) if (0.01..=86400.0).contains(&seconds) => {
                Ok(Duration::from_secs_f64(seconds))
            }
            _ => Err("give seconds, 0.01 to 86400".to_owned()),
        })
        .help(help)
}

fn action(matches: &ArgMatches) -> Action {
    if matches.get_flag("help-stats") {
        return Action::HelpStats;
    }
    if let Some(interval) = matches.get_one::<Duration>("monitor") {
        return Action::Monitor(*interval);
    }
    let set = |tunable: &Tunable| {
        matches.get_one::<u64>(tunable.name).map(|value| (tunable.name, *value))
    };
    let options = Options {
        sis_util: !matches.get_flag("no-sis-util"),
        numa_imbalance: !matches.get_flag("no-numa-imbalance"),
        cling: !matches.get_flag("no-cling"),
        consolidate: !matches.get_flag("no-consolidate"),
        cgroup_weights: !matches.get_flag("no-cgroup-weights"),
        llc_imbalance: match matches.get_flag("no-llc-imbalance") {
            true => Some(0),
            false => matches.get_one("llc-imbalance").copied(),
        },
        tunables: TUNABLES.iter().filter_map(set).collect(),
        stats: matches.get_one("stats").copied(),
        verbose: matches.get_flag("verbose"),
        sysfs: matches.get_one("sysfs").cloned(),
    };
    match matches.get_flag("dry-run") {
        true => Action::DryRun(options),
        false => Action::Run(options),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(arguments: &[&str]) -> Options {
        let all = std::iter::once("scx_roost").chain(arguments.iter().copied());
        match action(&command().get_matches_from(all)) {
            Action::Run(options) | Action::DryRun(options) => options,
            _ => panic!("{arguments:?}"),
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn mechanisms_are_on_unless_switched_off() {
        let all = options(&[]);
        assert!(all.sis_util && all.numa_imbalance && all.llc_imbalance.is_none());
        assert!(all.cling && all.consolidate && all.cgroup_weights);
        let none = options(&["--no-cling", "--no-consolidate", "--no-cgroup-weights"]);
        assert!(!none.cling && !none.consolidate && !none.cgroup_weights);
        let none = options(&["--no-sis-util", "--no-llc-imbalance", "--no-numa-imbalance"]);
        assert!(!none.sis_util && !none.numa_imbalance && none.llc_imbalance == Some(0));
        assert_eq!(options(&["--llc-imbalance", "3"]).llc_imbalance, Some(3));
    }

    #[test]
    fn tunables_are_options() {
        assert_eq!(options(&["--slice-us", "700"]).tunables, [("slice_us", 700)]);
        let out_of_range = command().try_get_matches_from(["scx_roost", "--slice-us", "1"]);
        assert!(out_of_range.unwrap_err().to_string().contains("100..=100000"));
    }

    #[test]
    fn settings_tell_defaults_and_changes() {
        let settings = options(&["--lead-ms", "50"]).settings();
        let value = |name: &str| settings.iter().find(|(key, _)| key == name).unwrap().1.clone();
        assert_eq!((value("lead-ms"), value("slice-us")), ("50".into(), "3000".into()));
        assert_eq!((value("llc-imbalance"), value("sis-util")), ("on".into(), "on".into()));
    }
}
