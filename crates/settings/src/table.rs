//! Every setting: mechanisms, the numbers of the BPF program, those of the daemon.

/// What a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// On (as it is unless something is said) or off.
    Switch,
    /// On, off, or on with a number instead of what the mechanism would choose.
    Tolerance {
        /// The unit of the number, for help texts.
        unit: &'static str,
        /// The largest.
        most: u64,
    },
    /// Patterns of the shell for paths of cgroups, separated by commas.
    Patterns,
    /// A number.
    Number {
        /// Where nothing is said.
        default: u64,
        /// The smallest that makes sense.
        least: u64,
        /// The largest.
        most: u64,
    },
}

/// A setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name everywhere.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// What it does, with its unit.
    pub meaning: &'static str,
    /// What happens without the mechanism; empty for numbers.
    pub without: &'static str,
}

impl Setting {
    /// The largest and smallest number that it takes, if it takes any.
    pub(crate) fn range(&self) -> Option<std::ops::RangeInclusive<u64>> {
        match self.kind {
            Kind::Switch | Kind::Patterns => None,
            Kind::Tolerance { most, .. } => Some(0..=most),
            Kind::Number { least, most, .. } => Some(least..=most),
        }
    }
}

/// The mechanisms, in the order in which they are told.
const MECHANISMS: &[Setting] = &[
    Setting {
        name: "sis-util",
        kind: Kind::Switch,
        meaning: "bound the search for an idle CPU by the utilisation of the LLC",
        without: "search the whole LLC for an idle CPU at every wakeup",
    },
    Setting {
        name: "llc-imbalance",
        kind: Kind::Tolerance { unit: "TASKS", most: 999_999 },
        meaning: "tasks that one LLC of a node may have more than another (if no number is given: a quarter of an LLC's \
                  CPUs, but at least 2 tasks, or 1 in LLCs of fewer than 4 CPUs)",
        without: "even out the LLCs of a node whatever the imbalance",
    },
    Setting {
        name: "numa-imbalance",
        kind: Kind::Switch,
        meaning: "start new tasks across LLCs and nodes once sharing a cache costs, not before",
        without: "start new tasks near their parent, as if they woke up; keep wakeups and exec on their node",
    },
    Setting {
        name: "cling",
        kind: Kind::Switch,
        meaning: "let groups (cgroups) settle on a node and stay there",
        without: "let groups spread over nodes",
    },
    Setting {
        name: "consolidate",
        kind: Kind::Switch,
        meaning: "gather each process on few nodes",
        without: "let processes spread over nodes",
    },
    Setting {
        name: "cgroup-weights",
        kind: Kind::Switch,
        meaning: "share CPU time between cgroups by their weights",
        without: "take each task's weight as it is, whatever cgroup it is in",
    },
    Setting {
        name: "cgroup-limits",
        kind: Kind::Switch,
        meaning: "keep cgroups within their limits on CPU time (cpu.max)",
        without: "ignore limits of cgroups on CPU time",
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
    Setting { name, kind: Kind::Number { default, least, most }, meaning, without: "" }
}

/// What the daemon needs to know. All numbers are assumptions: samples that cost little, and moves that
/// take a part of what memory can do.
const DAEMON: &[Setting] = &[
    Setting {
        name: "memory",
        kind: Kind::Switch,
        meaning: "find out where memory is, and move pages to the node where their users settled",
        without: "leave pages where they are, and decide by CPU time alone",
    },
    Setting {
        name: "cling-groups",
        kind: Kind::Patterns,
        meaning: "cgroups that cling, by path: patterns of the shell, separated by commas (all but the root if none are given)",
        without: "",
    },
    number(
        "memory-min-mib",
        16,
        1,
        1 << 20,
        "MiB of memory from which a process is followed and moved",
    ),
    // The most is what the daemon can do: 64 MiB in a call, ten calls a second.
    number("memory-rate-mib", 128, 1, 640, "MiB of memory moved in a second at most"),
    number(
        "memory-interval-ms",
        2000,
        100,
        60_000,
        "milliseconds between two looks at where memory is",
    ),
    number(
        "memory-settle-ms",
        3000,
        0,
        3_600_000,
        "milliseconds for which a node has to be preferred before pages follow",
    ),
];

/// The mechanisms, and whether memory is followed.
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

/// The setting of that name.
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
