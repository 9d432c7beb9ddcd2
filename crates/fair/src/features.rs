//! Versions of the kernel as sets of switches.
//!
//! A version is data: one era of each part of the class (`eras.rs`) and the state of the switches.
//! `+name` and `+no-name` change single switches, as with the kernel's sched features:
//! `fair@5.19+sis-util+no-numa-imbalance`. Section numbers refer to the kernel model that this
//! crate implements (`docs/kernel-model.md`).

use std::fmt;

use thiserror::Error;

use crate::eras::{AverageEra, BalanceEra, DomainEra, NumaEra, PlacementEra, QueueEra};
use crate::mechanisms::numa_imbalance::NumaImbalance;
use crate::mechanisms::{Forms, mechanisms};
use crate::switches::{self, numbers, switches};
use crate::tunables::Tunables;

/// Ticks per second in every version but 3.9.
///
/// Debian builds its amd64 kernels with 250, and runs are compared with those kernels:
/// CONFIG_HZ=250 in the packages linux-config-6.1 (6.1.192-2) and linux-config-6.12
/// (6.12.117-1~deb12u1), in the ordinary and the cloud kernel. 250 is also the kernel's own
/// default.
pub const HZ: u32 = 250;

/// How one kernel's fair class behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Features {
    /// The name as given: `fair@5.19+sis-util`.
    pub name: String,
    /// Index of the version, oldest first.
    pub(crate) version: usize,
    /// Ticks per second.
    pub(crate) hz: u32,
    pub(crate) queue: QueueEra,
    pub(crate) averages: AverageEra,
    pub(crate) domains: DomainEra,
    pub(crate) placement: PlacementEra,
    pub(crate) balance: BalanceEra,
    pub(crate) numa: NumaEra,
    pub(crate) switches: Switches,
    pub(crate) mechanisms: Forms,
    pub(crate) tunables: Tunables,
}

/// The switches that users can set ([`mod@crate::switches`]): the version's values, or changed
/// ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Switches {
    /// DELAY_DEQUEUE and DELAY_ZERO.
    pub delay_dequeue: bool,
    /// PREEMPT_SHORT.
    pub preempt_short: bool,
    /// HRTICK: a timer ends requests, not the next tick (7.2). The feature is older, but off before
    /// 7.2.
    pub hrtick: bool,
    /// CONFIG_PREEMPT_LAZY: a fair task gives way when it returns to user mode, and no interrupt is
    /// sent for that (7.2, where x86 has only this model and full preemption).
    pub preempt_lazy: bool,
    /// CONFIG_IRQ_TIME_ACCOUNTING: tasks and averages do not count interrupts and softirqs
    /// ([`mod@crate::clock`]).
    pub irq_time: bool,
    /// What bounds the search for an idle CPU.
    pub search_limit: SearchLimit,
    /// NI_RANDOM, NI_RATE.
    pub newidle_random: bool,
    /// Cache-aware scheduling: the threads of a process gather on one LLC.
    pub sched_cache: bool,
    /// Automatic NUMA balancing (kernel.numa_balancing = 1).
    pub numa_balancing: bool,
}

impl Switches {
    /// 3.9: all switches but NUMA balancing came later.
    const V3_9: Self = Self {
        delay_dequeue: false,
        preempt_short: false,
        hrtick: false,
        preempt_lazy: false,
        irq_time: false,
        search_limit: SearchLimit::None,
        newidle_random: false,
        sched_cache: false,
        numa_balancing: true,
    };
    /// SIS_PROP (4.13).
    const V5_2: Self = Self { search_limit: SearchLimit::Proportion, ..Self::V3_9 };
    /// SIS_UTIL (6.0), delayed dequeue (6.12).
    const V6_15: Self = Self {
        delay_dequeue: true,
        preempt_short: true,
        search_limit: SearchLimit::Utilisation,
        ..Self::V5_2
    };
    /// HRTICK, lazy preemption, randomised newly-idle balancing, cache-aware scheduling.
    const V7_2: Self = Self {
        hrtick: true,
        preempt_lazy: true,
        newidle_random: true,
        sched_cache: true,
        ..Self::V6_15
    };
}

/// What bounds the search for an idle CPU at wakeup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SearchLimit {
    /// Nothing.
    None,
    /// SIS_PROP: average idle time over average scan cost.
    Proportion,
    /// SIS_UTIL: the LLC's utilisation.
    Utilisation,
}

impl SearchLimit {
    /// The limit after `self` is switched `on` or off. Switching it off keeps a different limit
    /// that is set.
    pub(crate) fn if_on(self, on: bool, features: &Features) -> Self {
        match features.switches.search_limit {
            _ if on => self,
            now if now == self => Self::None,
            other => other,
        }
    }
}

/// A kernel version that can be named after `fair@`: an era of each part, the state of the switches
/// and the forms of the mechanisms. The forms differ in the imbalance between nodes that is left
/// alone: a quarter of a node's CPUs (5.13), `imb_numa_nr` (5.18), half of that (6.0).
struct Version {
    name: &'static str,
    /// What is new since the version before it, in a few words. The sections of the kernel model
    /// have the rest.
    new: &'static str,
    hz: u32,
    queue: QueueEra,
    averages: AverageEra,
    domains: DomainEra,
    placement: PlacementEra,
    balance: BalanceEra,
    numa: NumaEra,
    switches: Switches,
    mechanisms: Forms,
    tunables: Tunables,
}

/// The known versions, oldest first. The published results of 3.9 were measured with 1000 ticks per
/// second (docs/notes/2026-11-25-results.md, "consolidate").
const VERSIONS: [Version; 6] = [
    Version {
        name: "3.9",
        new: "load that is the weight of what is queued, and NUMA balancing that moves pages only",
        hz: 1000,
        queue: QueueEra::CFS,
        averages: AverageEra::WEIGHTS,
        domains: DomainEra::BY_PACKAGE,
        placement: PlacementEra::WEIGHTS,
        balance: BalanceEra::WEIGHTS,
        numa: NumaEra::PAGES,
        switches: Switches::V3_9,
        mechanisms: Forms::OFF,
        tunables: Tunables::V3_9,
    },
    Version {
        name: "5.2",
        new: "averages of load, SIS_PROP, and NUMA balancing that places tasks",
        hz: HZ,
        queue: QueueEra::CFS,
        averages: AverageEra::QUEUED,
        domains: DomainEra::BY_NODE,
        placement: PlacementEra::QUEUED,
        balance: BalanceEra::LOADS,
        numa: NumaEra::SINCE_3_13,
        switches: Switches::V5_2,
        mechanisms: Forms::OFF,
        tunables: Tunables::SINCE_5_2,
    },
    Version {
        name: "5.16",
        new: "balancing by types of groups, the cluster domain, a tolerated NUMA imbalance of a quarter of the CPUs",
        hz: HZ,
        queue: QueueEra::SINCE_5_15,
        averages: AverageEra::SINCE_5_15,
        domains: DomainEra::SINCE_5_16,
        placement: PlacementEra::SINCE_5_15,
        balance: BalanceEra::SINCE_5_15,
        numa: NumaEra::SINCE_5_7,
        switches: Switches::V5_2,
        mechanisms: Forms { numa_imbalance: NumaImbalance::Quarter, ..Forms::OFF },
        tunables: Tunables::SINCE_5_2,
    },
    Version {
        name: "5.19",
        new: "imb_numa_nr (5.18) and a newly idle gate by the domain's cost (5.17)",
        hz: HZ,
        queue: QueueEra::SINCE_5_15,
        averages: AverageEra::SINCE_5_17,
        domains: DomainEra::SINCE_5_16,
        placement: PlacementEra::SINCE_5_15,
        balance: BalanceEra::SINCE_5_17,
        numa: NumaEra::SINCE_5_7,
        switches: Switches::V5_2,
        mechanisms: Forms { numa_imbalance: NumaImbalance::Merged518, ..Forms::OFF },
        tunables: Tunables::SINCE_5_2,
    },
    Version {
        name: "6.15",
        new: "EEVDF with delayed dequeue (6.6, 6.12), SIS_UTIL (6.0), and the balancer with SMT groups (after 6.5)",
        hz: HZ,
        queue: QueueEra::SINCE_6_15,
        averages: AverageEra::SINCE_6_15,
        domains: DomainEra::SINCE_6_8,
        placement: PlacementEra::SINCE_6_15,
        balance: BalanceEra::SINCE_6_15,
        numa: NumaEra::SINCE_6_4,
        switches: Switches::V6_15,
        mechanisms: Forms { numa_imbalance: NumaImbalance::Merged60, ..Forms::OFF },
        tunables: Tunables::SINCE_5_2,
    },
    Version {
        name: "7.2",
        new: "a protection point, HRTICK, lazy preemption, randomised newly idle balancing, and cache-aware scheduling",
        hz: HZ,
        queue: QueueEra::SINCE_7_2,
        averages: AverageEra::SINCE_7_2,
        domains: DomainEra::SINCE_6_8,
        placement: PlacementEra::SINCE_7_2,
        balance: BalanceEra::SINCE_7_2,
        numa: NumaEra::SINCE_6_4,
        switches: Switches::V7_2,
        mechanisms: Forms { numa_imbalance: NumaImbalance::Merged60, ..Forms::OFF },
        tunables: Tunables::SINCE_5_2,
    },
];

/// Why the name of a scheduler was not understood.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FeatureError {
    /// It does not begin with `fair@`.
    #[error("{name}: write fair@VERSION[+switch|+no-switch]..., versions: {}", versions().join(", "))]
    Form {
        /// What was given.
        name: String,
    },
    /// The version is not known.
    #[error(
        "{name}: unknown version '{version}', known: {}{}; switches follow as +NAME or +no-NAME",
        versions().join(", "), neighbours(version)
    )]
    Version {
        /// What was given.
        name: String,
        /// The part that should be a version.
        version: String,
    },
    /// The switch is not known.
    #[error(
        "{name}: unknown switch '{switch}', known (each also as no-...): {}; with a number: {}, and the kernel's, \
         which `roost compare --list-schedulers` lists{}",
        names(&switches()).join(", "), mechanisms_numbers().join(", "), meant(switch)
    )]
    Switch {
        /// What was given.
        name: String,
        /// The part that should be a switch.
        switch: String,
    },
    /// A switch is turned both on and off, or a number is given more than once.
    #[error("{name}: {twice}")]
    Twice {
        /// What was given.
        name: String,
        /// A sentence that says what is given twice.
        twice: String,
    },
    /// The value of a setting is out of range or not a number.
    #[error("{name}: '{setting}' takes a whole number from {least} to {most}, {unit}")]
    Value {
        /// What was given.
        name: String,
        /// The setting with its value.
        setting: String,
        /// The smallest value.
        least: u32,
        /// The largest value.
        most: u32,
        /// What it counts.
        unit: &'static str,
    },
    /// The number has no effect in this version.
    #[error(
        "{name}: number '{number}' does nothing on {version}, it is of {versions}: leave it out"
    )]
    NotOfVersion {
        /// What was given.
        name: String,
        /// The number.
        number: &'static str,
        /// The version.
        version: &'static str,
        /// The versions in which it has an effect.
        versions: String,
    },
    /// The switch belongs to later versions.
    #[error(
        "{name}: switch '{switch}' does nothing before fair@{since}: use that or later, or leave it out"
    )]
    TooOld {
        /// What was given.
        name: String,
        /// The switch.
        switch: String,
        /// The oldest version on which it does something.
        since: &'static str,
    },
}

/// The versions, oldest first, each with what is new since the one before it.
pub fn version_texts() -> impl Iterator<Item = (&'static str, &'static str)> {
    VERSIONS.iter().map(|version| (version.name, version.new))
}

/// For an unknown version: its known neighbours, and what is new in the later one.
fn neighbours(wanted: &str) -> String {
    let number = |text: &str| -> Option<(u32, u32)> {
        let (major, minor) = text.split_once('.')?;
        Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
    };
    let Some(wanted) = number(wanted) else { return String::new() };
    let later = VERSIONS.iter().position(|version| number(version.name) > Some(wanted));
    match later {
        Some(0) => format!("; the next is {}", VERSIONS[0].name),
        Some(later) => {
            let (before, after) = (&VERSIONS[later - 1], &VERSIONS[later]);
            format!("; between {} and {}, which has {}", before.name, after.name, after.new)
        }
        None => format!("; the last before it is {}", VERSIONS[VERSIONS.len() - 1].name),
    }
}

/// The known switch or number closest to an unknown one.
fn meant(switch: &str) -> String {
    let name = switch.split('=').next().unwrap_or(switch);
    let name = name.strip_prefix("no-").unwrap_or(name);
    let switches = switches().into_iter().map(|(name, _)| name);
    let known = switches.chain(numbers().map(|number| number.name));
    roost_names::did_you_mean(name, known)
        .map_or_else(String::new, |question| format!("; {question}"))
}

/// A switch or number whose value is not the version's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// A switch that is on or off.
    Switch {
        /// Its name.
        name: &'static str,
        /// Whether it is on.
        on: bool,
    },
    /// A number.
    Number {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: u32,
    },
}

/// As written after `+` in a scheduler's name: `sis-util`, `no-hrtick`, `llc-imbalance=2`.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Switch { name, on: true } => write!(f, "{name}"),
            Self::Switch { name, on: false } => write!(f, "no-{name}"),
            Self::Number { name, value } => write!(f, "{name}={value}"),
        }
    }
}

/// Names of the known versions, oldest first.
pub fn versions() -> Vec<&'static str> {
    VERSIONS.iter().map(|version| version.name).collect()
}

/// Index of a version among all, oldest first.
pub(crate) fn age(version: &str) -> Option<usize> {
    VERSIONS.iter().position(|known| known.name == version)
}

/// The names in a list.
fn names(list: &[(&'static str, &'static str)]) -> Vec<&'static str> {
    list.iter().map(|(name, _)| *name).collect()
}

/// The numbers of the mechanisms, as written.
fn mechanisms_numbers() -> Vec<String> {
    let of_mechanisms = mechanisms().iter().flat_map(|mechanism| mechanism.numbers);
    of_mechanisms.map(|number| format!("{}=N", number.name)).collect()
}

impl Features {
    /// Parses `fair@VERSION[+switch|+no-switch]...`. Switches apply from left to right.
    pub fn parse(name: &str) -> Result<Self, FeatureError> {
        let given = || name.to_owned();
        let rest =
            name.strip_prefix("fair@").ok_or_else(|| FeatureError::Form { name: given() })?;
        let mut parts = rest.split('+');
        let wanted = parts.next().unwrap_or_default();
        let age = age(wanted)
            .ok_or_else(|| FeatureError::Version { name: given(), version: wanted.to_owned() })?;
        let mut features = Self { name: given(), ..Self::of_version(age) };
        parts.clone().try_for_each(|part| features.apply(part))?;
        if let Some(twice) = roost_names::given_twice(parts) {
            return Err(FeatureError::Twice { name: given(), twice });
        }
        Ok(features)
    }

    /// Applies one `setting=value`.
    fn apply_setting(&mut self, name: &str, value: &str) -> Result<(), FeatureError> {
        let Some(setting) = numbers().find(|setting| setting.name == name) else {
            return Err(FeatureError::Switch { name: self.name.clone(), switch: name.to_owned() });
        };
        let (least, most, unit) = (setting.least, setting.most, setting.unit);
        let number = value.parse().ok().filter(|number| (least..=most).contains(number));
        let number = number.ok_or_else(|| FeatureError::Value {
            name: self.name.clone(),
            setting: format!("{name}={value}"),
            least,
            most,
            unit,
        })?;
        if !setting.is_of(self.version) {
            let (name, version, versions) = (self.name.clone(), self.version(), setting.versions());
            let number = setting.name;
            return Err(FeatureError::NotOfVersion { name, number, version, versions });
        }
        (setting.set)(self, number);
        Ok(())
    }

    /// Applies one `switch`, `no-switch` or `setting=value`.
    fn apply(&mut self, part: &str) -> Result<(), FeatureError> {
        if let Some((name, value)) = part.split_once('=') {
            return self.apply_setting(name, value);
        }
        let (wanted, on) = part.strip_prefix("no-").map_or((part, true), |rest| (rest, false));
        let (name, given) = (self.name.clone(), part.to_owned());
        let Some(switch) = switches::all().find(|switch| switch.name == wanted) else {
            return Err(FeatureError::Switch { name, switch: given });
        };
        if age(switch.since) > Some(self.version) {
            return Err(FeatureError::TooOld { name, switch: given, since: switch.since });
        }
        (switch.set)(self, on);
        Ok(())
    }

    /// A version with its default switches, by index.
    fn of_version(version: usize) -> Self {
        let Version { hz, queue, averages, domains, placement, balance, numa, .. } =
            VERSIONS[version];
        let Version { switches, mechanisms, tunables, .. } = VERSIONS[version];
        let name = String::new();
        Self {
            name,
            version,
            hz,
            queue,
            averages,
            domains,
            placement,
            balance,
            numa,
            switches,
            mechanisms,
            tunables,
        }
    }

    /// The name of the version: `5.19`.
    pub fn version(&self) -> &'static str {
        VERSIONS[self.version].name
    }

    /// The switches and numbers that turn the version into this; empty if it is the version itself.
    /// Lists as few as possible, in the order of [`switches()`]. So a switch that turns another one
    /// off is listed alone.
    pub fn differs_from_version(&self) -> Vec<Difference> {
        let mut made = Self::of_version(self.version);
        let mut differences = Vec::new();
        for number in numbers() {
            if let Some(value) = (number.get)(self)
                && (number.get)(&made) != Some(value)
            {
                (number.set)(&mut made, value);
                differences.push(Difference::Number { name: number.name, value });
            }
        }
        for on in [true, false] {
            for switch in switches::all() {
                if switch.is(self, on) && !switch.is(&made, on) {
                    (switch.set)(&mut made, on);
                    differences.push(Difference::Switch { name: switch.name, on });
                }
            }
        }
        differences
    }

    /// The same without what sets one switch or number.
    pub(crate) fn without(&self, name: &str) -> Self {
        let mut made = Self { hz: self.hz, ..Self::of_version(self.version) };
        for difference in self.differs_from_version() {
            let (Difference::Switch { name: other, .. } | Difference::Number { name: other, .. }) =
                difference;
            if other != name {
                // It is of this version.
                let _ = made.apply(&difference.to_string());
            }
        }
        made
    }

    /// The parts of the name, such as `+sis-util`, that change nothing in the version when given
    /// alone: the version already has that state or number.
    pub fn parts_without_effect(&self) -> Vec<String> {
        let version = Self::of_version(self.version);
        let changes_nothing = |part: &&str| {
            let mut changed = version.clone();
            changed.apply(part).is_ok() && changed == version
        };
        self.name.split('+').skip(1).filter(changes_nothing).map(str::to_owned).collect()
    }

    /// The merged form of Patch A that belongs to this version: that of 5.18, or that of 6.0 in
    /// versions that also filter before halving (6.1 and later).
    pub(crate) fn merged_rule(&self) -> NumaImbalance {
        if self.balance.filter_before_halving {
            NumaImbalance::Merged60
        } else {
            NumaImbalance::Merged518
        }
    }

    /// The tick's period in ns.
    #[inline]
    pub fn tick_ns(&self) -> u64 {
        1_000_000_000 / u64::from(self.hz)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eras::Load;
    use crate::mechanisms::llc_imbalance::LlcImbalance;

    fn parse(name: &str) -> Features {
        Features::parse(name).unwrap()
    }

    fn limit(name: &str) -> SearchLimit {
        parse(name).switches.search_limit
    }

    #[test]
    fn versions_are_named_sets() {
        assert_eq!(parse("fair@5.16").mechanisms.numa_imbalance, NumaImbalance::Quarter);
        assert_eq!(parse("fair@5.19").mechanisms.numa_imbalance, NumaImbalance::Merged518);
        assert_eq!(parse("fair@6.15").mechanisms.numa_imbalance, NumaImbalance::Merged60);
        let new = parse("fair@7.2");
        assert!(
            new.queue.eevdf
                && new.queue.protection_point
                && new.switches.search_limit == SearchLimit::Utilisation
                && new.switches.newidle_random
        );
        assert_eq!((new.queue.base_slice_ns, new.tick_ns()), (700_000, 4_000_000));
        assert!(!parse("fair@6.15").switches.newidle_random, "NI_RANDOM is not in 6.14");
        assert!(new.switches.sched_cache && !parse("fair@6.15").switches.sched_cache);
        assert!(!parse("fair@7.2+no-sched-cache").switches.sched_cache);
        let timed = |name: &str| (parse(name).switches.hrtick, parse(name).switches.preempt_lazy);
        assert_eq!(timed("fair@6.15"), (false, false));
        assert_eq!(timed("fair@7.2"), (true, true));
        assert_eq!(timed("fair@7.2+no-hrtick+no-preempt-lazy"), (false, false));
    }

    #[test]
    fn versions_before_5_5_measure_load_otherwise() {
        let (old, older) = (parse("fair@5.2"), parse("fair@3.9"));
        assert_eq!(old.averages.load, Load::QueuedAverage);
        assert_eq!(older.averages.load, Load::Weight);
        assert_eq!(limit("fair@5.2"), SearchLimit::Proportion);
        assert_eq!(limit("fair@3.9"), SearchLimit::None);
        assert_eq!(
            [old.mechanisms.numa_imbalance, older.mechanisms.numa_imbalance],
            [NumaImbalance::None; 2]
        );
        assert_eq!(limit("fair@5.2+sis-util"), SearchLimit::Utilisation);
        assert_eq!(
            parse("fair@3.9+numa-imbalance").mechanisms.numa_imbalance,
            NumaImbalance::Published
        );
        assert!(switches::all().all(|switch| age(switch.since).is_some()));
    }

    #[test]
    fn the_merged_rule_is_the_versions_own() {
        let rule = |name: &str| parse(name).mechanisms.numa_imbalance;
        assert_eq!(rule("fair@5.16+numa-imbalance-merged"), NumaImbalance::Merged518);
        assert_eq!(
            rule("fair@5.19+numa-imbalance+numa-imbalance-merged"),
            NumaImbalance::Merged518
        );
        assert_eq!(rule("fair@7.2+numa-imbalance"), NumaImbalance::Published);
        assert_eq!(rule("fair@7.2+numa-imbalance-merged"), NumaImbalance::Merged60);
        assert_eq!(rule("fair@5.19+no-numa-imbalance"), NumaImbalance::None);
    }

    #[test]
    fn a_switch_may_have_a_number() {
        let two = parse("fair@7.2+llc-imbalance=2");
        assert_eq!(two.mechanisms.llc_imbalance, LlcImbalance::UpTo(2));
        assert_eq!(parse("fair@7.2+llc-imbalance=0").mechanisms.llc_imbalance, LlcImbalance::Off);
        assert_eq!(parse("fair@7.2+llc-imbalance").mechanisms.llc_imbalance, LlcImbalance::Quarter);
        let error = Features::parse("fair@7.2+llc-imbalance=x").unwrap_err().to_string();
        assert!(error.contains("a whole number from 0 to 999999, tasks"), "{error}");
        assert!(Features::parse("fair@7.2+sis-util=2").is_err());
    }

    #[test]
    fn cling_has_a_degree_in_percent() {
        let cling = |name: &str| {
            let features = parse(name);
            (
                features.mechanisms.cling.groups,
                features.mechanisms.cling.on,
                features.mechanisms.cling.degree,
            )
        };
        assert_eq!(cling("fair@5.16"), (false, false, 20));
        assert_eq!(cling("fair@5.16+cling"), (true, true, 20));
        assert_eq!(cling("fair@5.16+cling+cling-degree=100"), (true, true, 100));
        assert_eq!(cling("fair@5.16+numa-groups"), (true, false, 20));
        for value in ["101", "", "x", "-1"] {
            let name = format!("fair@5.16+cling-degree={value}");
            let error = Features::parse(&name).unwrap_err().to_string();
            assert!(error.contains("takes a whole number from 0 to 100, %"), "{error}");
        }
        assert!(Features::parse("fair@5.16+degree=1").is_err());
    }

    #[test]
    fn what_differs_from_the_version_is_told_as_it_is_written() {
        let told = |name: &str| {
            let differences = parse(name).differs_from_version();
            differences.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let none: [&str; 0] = [];
        assert_eq!(told("fair@7.2"), none);
        assert_eq!(told("fair@7.2+sis-util"), none, "already on");
        assert_eq!(told("fair@5.19+sis-util"), ["sis-util"], "sis-util turns sis-prop off");
        assert_eq!(told("fair@5.19+numa-imbalance"), ["numa-imbalance"]);
        assert_eq!(told("fair@5.19+no-numa-imbalance"), ["no-numa-imbalance"]);
        assert_eq!(told("fair@6.15+cling+cling-degree=50"), ["cling-degree=50", "cling"]);
        assert_eq!(told("fair@3.9+llc-imbalance=2"), ["llc-imbalance=2"]);
        assert_eq!(told("fair@7.2+no-hrtick"), ["no-hrtick"]);
        assert_eq!(told("fair@5.16+no-numa-imbalance"), ["no-numa-imbalance"], "a third rule");
    }

    /// For all versions, all switches and all numbers.
    #[test]
    fn the_differences_make_the_same_of_the_version() {
        for version in versions() {
            let switches = switches().into_iter().map(|(name, _)| name);
            let parts = switches.flat_map(|name| [name.to_owned(), format!("no-{name}")]);
            let numbers = numbers().map(|number| format!("{}={}", number.name, number.least + 1));
            for part in parts.chain(numbers) {
                let Ok(given) = Features::parse(&format!("fair@{version}+{part}")) else {
                    continue;
                };
                let mut name = format!("fair@{version}");
                for difference in given.differs_from_version() {
                    name += &format!("+{difference}");
                }
                assert_eq!(Features { name: given.name.clone(), ..parse(&name) }, given);
            }
        }
    }

    #[test]
    fn parts_that_change_nothing_are_told() {
        let told = |name: &str| parse(name).parts_without_effect();
        assert_eq!(told("fair@7.2+sis-util+cling+no-consolidate"), ["sis-util", "no-consolidate"]);
        assert_eq!(told("fair@5.16+sis-util"), [""; 0]);
        assert_eq!(told("fair@5.16+cling-degree=20"), ["cling-degree=20"]);
    }

    #[test]
    fn one_limit_of_the_search_at_a_time() {
        assert_eq!(limit("fair@5.19"), SearchLimit::Proportion);
        assert_eq!(limit("fair@5.19+sis-util"), SearchLimit::Utilisation);
        assert_eq!(limit("fair@7.2+sis-prop"), SearchLimit::Proportion);
        assert_eq!(limit("fair@7.2+no-sis-util"), SearchLimit::None);
        assert_eq!(limit("fair@7.2+no-sis-prop"), SearchLimit::Utilisation);
    }

    #[test]
    fn the_readme_names_every_version() {
        let (all, last) = (versions(), versions().pop().unwrap_or_default());
        let list = format!("{} or {last}", all[..all.len() - 1].join(", "));
        let readme = include_str!("../../../README.md");
        assert!(readme.contains(&list), "README.md should say {list}");
    }

    #[test]
    fn errors_are_one_line_and_list_what_is_known() {
        let error = |name: &str| Features::parse(name).unwrap_err().to_string();
        assert_eq!(
            error("fair@4.4"),
            "fair@4.4: unknown version '4.4', known: 3.9, 5.2, 5.16, 5.19, 6.15, 7.2; between 3.9 and 5.2, which has \
             averages of load, SIS_PROP, and NUMA balancing that places tasks; switches follow as +NAME or \
             +no-NAME"
        );
        assert!(error("eevdf").contains("write fair@VERSION"));
        assert!(error("fair@7.2+sis").contains("unknown switch 'sis', known"));
        assert!(error("fair@7.2+").contains("unknown switch ''"));
        let numbers = "; with a number: imb-numa-nr=N, sis-util-threshold=N, sis-util-floor=N, llc-imbalance=N, \
                       cling-degree=N, cling-period-ms=N, consolidate-seq=N";
        assert!(error("fair@5.16+no-cling-degree").contains(numbers));
        assert!(error("fair@5.16+no-delay-dequeue").contains("'no-delay-dequeue' does nothing"));
        assert!(error("fair@3.9+sis-util").contains("before fair@5.2: use that or later"));
        assert!(error("fair@5.2+sched-cache").contains("before fair@5.16"));
        for name in ["", "fair@", "fair@9", "fair@7.2+x", "fair@5.19+preempt-short"] {
            assert!(!error(name).contains('\n'));
        }
    }

    #[test]
    fn a_version_that_does_not_exist_names_its_neighbours() {
        let error = |name: &str| Features::parse(name).unwrap_err().to_string();
        assert!(error("fair@5.18").contains("between 5.16 and 5.19, which has imb_numa_nr (5.18)"));
        assert!(error("fair@2.6.32").contains("the next is 3.9"));
        assert!(error("fair@7.9").contains("the last before it is 7.2"));
        assert!(error("fair@new").contains("unknown version 'new', known: 3.9"));
    }

    #[test]
    fn a_switch_that_is_nearly_right_is_suggested_and_both_ways_are_refused() {
        let error = |name: &str| Features::parse(name).unwrap_err().to_string();
        assert!(error("fair@7.2+sis-utl").ends_with("; did you mean sis-util?"));
        assert!(error("fair@7.2+no-clng").ends_with("; did you mean cling?"));
        assert!(error("fair@7.2+cling-degre=3").ends_with("; did you mean cling-degree?"));
        for name in ["fair@7.2+cling+no-cling", "fair@7.2+no-cling+sis-prop+cling"] {
            assert!(error(name).contains("'cling' is given twice, as +"), "{name}");
        }
        let twice = error("fair@7.2+cling-degree=3+cling+cling-degree=5");
        assert!(twice.contains("'cling-degree' is given twice"), "{twice}");
    }
}
