//! All settings: mechanisms, numbers of the BPF program, and numbers of the daemon.

/// The values that a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// On (the default) or off.
    Switch,
    /// On, off, or on with a number that replaces the mechanism's own choice.
    Tolerance {
        /// The unit of the number, for help texts.
        unit: &'static str,
        /// The largest number.
        most: u64,
    },
    /// Shell patterns for paths of cgroups, separated by commas.
    Patterns,
    /// A number.
    Number {
        /// The default.
        default: u64,
        /// The smallest value.
        least: u64,
        /// The largest value.
        most: u64,
    },
}

/// A setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name everywhere.
    pub name: &'static str,
    /// The values that it takes.
    pub kind: Kind,
    /// What it does, with its unit.
    pub meaning: &'static str,
    /// What happens without the mechanism. Empty for numbers.
    pub without: &'static str,
    /// Counters of a simulated run (`bpf/counters.h`) whose sum says how often the mechanism acted. Empty for numbers,
    /// and if nothing counts that.
    pub acted: &'static [&'static str],
}

impl Setting {
    /// The range of numbers that it takes, if it takes numbers.
    pub(crate) fn range(&self) -> Option<std::ops::RangeInclusive<u64>> {
        match self.kind {
            Kind::Switch | Kind::Patterns => None,
            Kind::Tolerance { most, .. } => Some(0..=most),
            Kind::Number { least, most, .. } => Some(least..=most),
        }
    }
}

/// The mechanisms, in the order of the output.
const MECHANISMS: &[Setting] = &[
    Setting {
        name: "sis-util",
        kind: Kind::Switch,
        meaning: "limit the search for an idle CPU by the utilisation of the LLC",
        without: "search the whole LLC for an idle CPU at every wakeup",
        acted: &["roost_sis_util_bounded"],
    },
    Setting {
        name: "llc-imbalance",
        kind: Kind::Tolerance { unit: "TASKS", most: 999_999 },
        meaning: "tasks that one LLC of a node may have more than another (if no number is given: a quarter of an \
                  LLC's CPUs, but at least 2 tasks, or 1 in LLCs of fewer than 4 CPUs)",
        without: "even out the LLCs of a node, however small the imbalance",
        acted: &["roost_llc_imbalance_kept"],
    },
    Setting {
        name: "numa-imbalance",
        kind: Kind::Switch,
        meaning: "spread new tasks over LLCs and nodes only once sharing a cache costs performance",
        without: "place new tasks like wakeups, near their parent; keep tasks on their node at wakeup and exec",
        acted: &["roost_numa_imbalance_local", "roost_numa_imbalance_spread"],
    },
    Setting {
        name: "cling",
        kind: Kind::Switch,
        meaning: "let cgroups settle on a node and stay there",
        without: "let cgroups spread over nodes",
        acted: &["roost_cling_held", "roost_cling_moves"],
    },
    Setting {
        name: "consolidate",
        kind: Kind::Switch,
        meaning: "gather each process on few nodes",
        without: "let processes spread over nodes",
        acted: &["roost_consolidate_moves", "roost_consolidate_pulls", "roost_consolidate_first"],
    },
    Setting {
        name: "cgroup-weights",
        kind: Kind::Switch,
        meaning: "share CPU time between cgroups by their weights",
        without: "use each task's own weight, whatever its cgroup",
        acted: &[],
    },
    Setting {
        name: "cgroup-limits",
        kind: Kind::Switch,
        meaning: "keep cgroups within their limits on CPU time (cpu.max)",
        without: "ignore limits of cgroups on CPU time",
        acted: &["roost_nr_throttled"],
    },
];

include!(concat!(env!("OUT_DIR"), "/numbers.rs"));

const fn number(
    name: &'static str,
    default: u64,
    least: u64,
    most: u64,
    meaning: &'static str,
) -> Setting {
    Setting { name, kind: Kind::Number { default, least, most }, meaning, without: "", acted: &[] }
}

/// Settings of the daemon. All numbers are assumptions: sampling shall cost little, and moving pages shall use only a
/// part of the memory's bandwidth.
const DAEMON: &[Setting] = &[
    Setting {
        name: "memory",
        kind: Kind::Switch,
        meaning: "sample where memory is, and move pages to the node on which their users settled",
        without: "leave pages where they are, and decide by CPU time alone",
        acted: &[],
    },
    Setting {
        name: "cling-groups",
        kind: Kind::Patterns,
        meaning: "paths of the cgroups that cling: shell patterns, separated by commas (default: all except the root)",
        without: "",
        acted: &[],
    },
    number(
        "memory-min-mib",
        16,
        1,
        1 << 20,
        "smallest memory, in MiB, of a process whose pages are sampled and moved",
    ),
    number(
        "memory-share",
        50,
        1,
        100,
        "largest share of a CPU's time that moving pages takes, in %",
    ),
    number(
        "memory-interval-ms",
        2000,
        100,
        60_000,
        "milliseconds between two samples of where memory is",
    ),
    number(
        "memory-settle-ms",
        3000,
        0,
        3_600_000,
        "milliseconds for which a node must be preferred before pages follow",
    ),
];

/// The mechanisms, and the switch of the daemon.
pub fn mechanisms() -> impl Iterator<Item = &'static Setting> {
    MECHANISMS.iter().chain(&DAEMON[..1])
}

/// The numbers of the BPF program.
pub fn tunables() -> impl Iterator<Item = &'static Setting> {
    NUMBERS.iter()
}

/// Every setting.
pub fn all() -> impl Iterator<Item = &'static Setting> {
    MECHANISMS.iter().chain(DAEMON).chain(NUMBERS)
}

/// The setting with this name.
pub fn find(name: &str) -> Option<&'static Setting> {
    all().find(|setting| setting.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_defaults_in_range() {
        let mut names: Vec<&str> = all().map(|setting| setting.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for setting in all() {
            let Kind::Number { default, .. } = setting.kind else { continue };
            assert!(setting.range().is_some_and(|range| range.contains(&default)), "{setting:?}");
        }
    }

    #[test]
    fn every_setting_is_documented() {
        let page = include_str!("../../../docs/live.md");
        for setting in all() {
            let option = format!("`--{}", setting.name);
            let off = format!("`--no-{}`", setting.name);
            let row = page.lines().find(|line| {
                line.starts_with('|') && (line.contains(&option) || line.contains(&off))
            });
            let row = row.unwrap_or_else(|| panic!("docs/live.md lacks {}", setting.name));
            if let Kind::Number { default, .. } = setting.kind {
                assert!(row.contains(&format!("| {default} |")), "{row}");
            }
        }
    }
}
