//! What can be changed in a version: `+name`, `+no-name` and `+name=number`.
//!
//! Those of a mechanism stand with it ([`mod@crate::mechanisms`]), the kernel's numbers in [`crate::tunables`]; here
//! are the kernel's own features, and the lists of all.

use std::fmt;

use crate::features::{self, Features, SearchLimit};
use crate::mechanisms::mechanisms;
use crate::tunables;

/// A switch: `+name` calls `set` with true, `+no-name` with false.
pub(crate) struct Switch {
    pub name: &'static str,
    /// What it does, for lists of switches.
    pub about: &'static str,
    /// The oldest version on which it does something.
    pub since: &'static str,
    pub set: fn(&mut Features, bool),
}

impl Switch {
    /// Whether switching it `on`, or off, would change nothing. Both can be false: a version may have
    /// a third form of what it switches.
    pub(crate) fn is(&self, features: &Features, on: bool) -> bool {
        let mut changed = features.clone();
        (self.set)(&mut changed, on);
        changed == *features
    }
}

/// A number: `+name=number`.
#[derive(Debug)]
pub struct Number {
    /// Its name.
    pub name: &'static str,
    /// What it is, for lists.
    pub about: &'static str,
    /// What it counts.
    pub unit: &'static str,
    /// The least that can be set.
    pub least: u32,
    /// The most that can be set.
    pub most: u32,
    /// The oldest version on which it does something.
    pub since: &'static str,
    /// The newest one; `None`: the newest there is.
    pub until: Option<&'static str>,
    /// What it is where nothing is set and the version has no value of its own.
    pub unset: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// The file that sets it in a real kernel, if there is one.
    pub file: Option<KernelFile>,
    pub(crate) set: fn(&mut Features, u32),
    /// Its value; `None`: what it sets is off, or follows from the machine.
    pub(crate) get: fn(&Features) -> Option<u32>,
}

/// A file below `/sys/kernel/debug/sched`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelFile {
    /// This one.
    Sched(&'static str),
    /// This one of each domain of some level, `domains/cpuN/domainM/FILE`.
    Domain {
        /// What the level's `name` is, by version.
        levels: &'static [&'static str],
        /// The file.
        file: &'static str,
    },
}

impl fmt::Display for KernelFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sched(file) => write!(f, "{file}"),
            Self::Domain { file, .. } => write!(f, "domains/cpu*/domain*/{file}"),
        }
    }
}

impl Number {
    /// Whether it does something on the version that is `age` places from the oldest.
    pub(crate) fn is_of(&self, age: usize) -> bool {
        let since = features::age(self.since) <= Some(age);
        since && self.until.is_none_or(|until| Some(age) <= features::age(until))
    }

    /// The versions on which it does something, as text: `5.2 to 5.19`.
    pub fn versions(&self) -> String {
        match self.until {
            Some(until) => format!("{} to {until}", self.since),
            None => format!("{} and later", self.since),
        }
    }

    /// What it is when nobody sets it, as text: `500000`, or by version `100 (3.9), 1000`.
    pub fn default_text(&self) -> String {
        let mut texts: Vec<(&str, String)> = Vec::new();
        for version in features::versions().into_iter().rev() {
            let Ok(features) = Features::parse(&format!("fair@{version}")) else { continue };
            if !self.is_of(features.version) {
                continue;
            }
            let value = (self.get)(&features).map_or(self.unset.to_owned(), |n| n.to_string());
            if texts.last().is_none_or(|(_, last)| *last != value) {
                texts.push((version, value));
            }
        }
        // Those before the newest one say up to which version they hold.
        let with_version = |(index, (version, value)): (usize, (&str, String))| match index {
            0 => value,
            _ => format!("{value} (to {version})"),
        };
        texts.into_iter().enumerate().map(with_version).collect::<Vec<_>>().join(", ")
    }
}

/// The kernel's own features that can be switched.
const KERNEL: [Switch; 8] = [
    Switch {
        name: "sis-prop",
        about: "bound the idle search by idle time over scan cost, not by utilisation",
        since: "5.2",
        set: |features, on| {
            features.switches.search_limit = SearchLimit::Proportion.if_on(on, features);
        },
    },
    Switch {
        name: "delay-dequeue",
        about: "DELAY_DEQUEUE and DELAY_ZERO: a sleeper that ran ahead stays queued",
        since: "6.15",
        set: |features, on| features.switches.delay_dequeue = on,
    },
    Switch {
        name: "preempt-short",
        about: "PREEMPT_SHORT: a shorter slice may end the current task's protection",
        since: "6.15",
        set: |features, on| features.switches.preempt_short = on,
    },
    Switch {
        name: "hrtick",
        about: "HRTICK (7.2: on): requests end by a timer, not at the next tick",
        since: "6.15",
        set: |features, on| features.switches.hrtick = on,
    },
    Switch {
        name: "preempt-lazy",
        about: "lazy preemption (7.2: on): no interrupt to a CPU whose task is to give way",
        since: "6.15",
        set: |features, on| features.switches.preempt_lazy = on,
    },
    Switch {
        name: "ni-random",
        about: "NI_RANDOM: try newly-idle balancing as often as it succeeds",
        since: "3.9",
        set: |features, on| features.switches.newidle_random = on,
    },
    Switch {
        name: "sched-cache",
        about: "cache-aware scheduling (7.2: on): gather the threads of a process on one LLC",
        since: "5.16",
        set: |features, on| features.switches.sched_cache = on,
    },
    Switch {
        name: "numa-balancing",
        about: "automatic NUMA balancing (on): pages follow tasks, tasks their pages",
        since: "3.9",
        set: |features, on| features.switches.numa_balancing = on,
    },
];

/// All switches: those of the mechanisms first.
pub(crate) fn all() -> impl Iterator<Item = &'static Switch> {
    mechanisms().iter().flat_map(|mechanism| mechanism.switches).chain(&KERNEL)
}

/// The known switches: name and what it does.
pub fn switches() -> Vec<(&'static str, &'static str)> {
    all().map(|switch| (switch.name, switch.about)).collect()
}

/// What takes a number: those of the mechanisms first, then the kernel's.
pub fn numbers() -> impl Iterator<Item = &'static Number> {
    mechanisms().iter().flat_map(|mechanism| mechanism.numbers).chain(tunables::all())
}
