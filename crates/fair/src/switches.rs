//! What can be changed in a version: `+name`, `+no-name` and `+name=number`.
//!
//! The switches of a mechanism are in its file ([`mod@crate::mechanisms`]). The kernel's numbers
//! are in [`crate::tunables`]. This module has the kernel's own features, and the lists of all
//! switches and numbers.

use std::fmt;

use roost_machine::Machine;
use roost_workload::Workload;

use crate::domain::Topology;
use crate::features::{self, Features, SearchLimit};
use crate::mechanisms::mechanisms;
use crate::queue::QueueRules;
use crate::tunables;

/// A switch: `+name` calls `set` with true, `+no-name` with false.
pub(crate) struct Switch {
    pub name: &'static str,
    /// What it does, for lists.
    pub about: &'static str,
    /// The oldest version on which it has an effect.
    pub since: &'static str,
    pub set: fn(&mut Features, bool),
}

impl Switch {
    /// Whether the version already has this switch at `on`. Both `true` and `false` may change
    /// something: a version may have a third form of what is switched.
    pub(crate) fn is(&self, features: &Features, on: bool) -> bool {
        let mut changed = features.clone();
        (self.set)(&mut changed, on);
        changed == *features
    }
}

/// A number: `+name=number`.
#[derive(Debug)]
pub struct Number {
    /// The name after `+`.
    pub name: &'static str,
    /// What it means, for lists.
    pub about: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Smallest value.
    pub least: u32,
    /// Largest value.
    pub most: u32,
    /// The oldest version that uses it.
    pub since: &'static str,
    /// The newest version that uses it; `None` for the newest of all.
    pub until: Option<&'static str>,
    /// The value if nothing is set and the version has no value of its own.
    pub unset: &'static str,
    /// Source of the value.
    pub source: &'static str,
    /// The file that sets it in a real kernel, if any.
    pub file: Option<KernelFile>,
    pub(crate) set: fn(&mut Features, u32),
    /// The current value; `None` if the mechanism is off or the value follows from the machine.
    pub(crate) get: fn(&Features) -> Option<u32>,
}

/// A file below `/sys/kernel/debug/sched`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelFile {
    /// The file itself.
    Sched(&'static str),
    /// The file of each domain of a level, `domains/cpuN/domainM/FILE`.
    Domain {
        /// The level's `name` in each version.
        levels: &'static [&'static str],
        /// The file's name.
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
    /// Whether the version at index `age` (0 is the oldest) uses this number.
    pub(crate) fn is_of(&self, age: usize) -> bool {
        let since = features::age(self.since) <= Some(age);
        since && self.until.is_none_or(|until| Some(age) <= features::age(until))
    }

    /// The versions that use this number, as text: `5.2 to 5.19`.
    pub fn versions(&self) -> String {
        match self.until {
            Some(until) => format!("{} to {until}", self.since),
            None => format!("{} and later", self.since),
        }
    }

    /// The default, as text: `500000`, or by version `100 (3.9), 1000`.
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
        // Older values name the last version that has them.
        let with_version = |(index, (version, value)): (usize, (&str, String))| match index {
            0 => value,
            _ => format!("{value} (to {version})"),
        };
        texts.into_iter().enumerate().map(with_version).collect::<Vec<_>>().join(", ")
    }
}

/// The kernel's own features that can be switched.
const KERNEL: [Switch; 9] = [
    Switch {
        name: "sis-prop",
        about: "limit the search for an idle CPU by idle time over scan cost, not by utilisation",
        since: "5.2",
        set: |features, on| {
            features.switches.search_limit = SearchLimit::Proportion.if_on(on, features);
        },
    },
    Switch {
        name: "delay-dequeue",
        about: "DELAY_DEQUEUE and DELAY_ZERO: a task that sleeps while it is ahead stays queued",
        since: "6.15",
        set: |features, on| features.switches.delay_dequeue = on,
    },
    Switch {
        name: "preempt-short",
        about: "PREEMPT_SHORT: a wakee with a shorter slice may end the current task's protection",
        since: "6.15",
        set: |features, on| features.switches.preempt_short = on,
    },
    Switch {
        name: "hrtick",
        about: "HRTICK (7.2: on): a timer ends slices, not the next tick",
        since: "6.15",
        set: |features, on| features.switches.hrtick = on,
    },
    Switch {
        name: "preempt-lazy",
        about: "lazy preemption (7.2: on): no interrupt to a CPU whose task should give way",
        since: "6.15",
        set: |features, on| features.switches.preempt_lazy = on,
    },
    Switch {
        name: "irq-time",
        about: "CONFIG_IRQ_TIME_ACCOUNTING: tasks and utilisation do not count interrupts and softirqs",
        since: "5.16",
        set: |features, on| features.switches.irq_time = on,
    },
    Switch {
        name: "ni-random",
        about: "NI_RANDOM: newly idle balancing is tried at random, as often as it succeeds",
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
        about: "automatic NUMA balancing (on): pages follow tasks, and tasks follow pages",
        since: "3.9",
        set: |features, on| features.switches.numa_balancing = on,
    },
];

/// All switches, those of the mechanisms first.
pub(crate) fn all() -> impl Iterator<Item = &'static Switch> {
    mechanisms().iter().flat_map(|mechanism| mechanism.switches).chain(&KERNEL)
}

/// What some of the kernel's own switches and numbers act on.
struct Needs {
    /// Whether a switch or number is one of them.
    named: fn(&str) -> bool,
    /// What they need, for sentences that begin with "it needs".
    needs: &'static str,
    can_act: fn(&Machine, &Workload) -> bool,
    /// The switch without which the numbers do nothing.
    switch: (&'static str, IsOn),
}

type IsOn = fn(&Features) -> bool;

const NEEDS: [Needs; 2] = [
    Needs {
        named: |name| name == "numa-balancing" || name.starts_with("numa-scan-"),
        needs: "a machine of several NUMA nodes, and a workload with memory regions",
        can_act: |machine, workload| machine.nodes.len() > 1 && !workload.regions.is_empty(),
        switch: ("numa-balancing", |features| features.switches.numa_balancing),
    },
    Needs {
        named: |name| {
            let numbers = ["llc-aggr-", "llc-epoch-", "llc-overaggr-", "llc-imb-pct"];
            name == "sched-cache" || numbers.iter().any(|start| name.starts_with(start))
        },
        needs: "several LLCs",
        can_act: |machine, _| machine.llcs.len() > 1,
        switch: ("sched-cache", |features| features.switches.sched_cache),
    },
];

/// Why a switch or number of the kernel's own cannot act in a run; `None` if it may, or if that is not known. The
/// sentence begins with a verb.
pub fn cannot_act(
    name: &str,
    features: &Features,
    machine: &Machine,
    workload: &Workload,
) -> Option<String> {
    if is_so_already(name, features, machine) {
        return Some("changes nothing on this machine".to_owned());
    }
    let is_of_mechanism = mechanisms().iter().any(|m| m.names().any(|own| own == name));
    let of_name = NEEDS.iter().find(|needs| (needs.named)(name) && !is_of_mechanism)?;
    let (switch, is_on) = of_name.switch;
    if switch != name && !is_on(features) {
        return Some(format!("changes nothing: {switch} is off"));
    }
    let can_act = (of_name.can_act)(machine, workload);
    (!can_act).then(|| format!("has nothing to act on: it needs {}", of_name.needs))
}

/// Numbers of queues, whose default depends on the number of CPUs.
const SCALED: [&str; 4] =
    ["base-slice-ns", "latency-ns", "min-granularity-ns", "wakeup-granularity-ns"];

/// Whether queues and domains of a machine are the same without a number of the kernel's that is for them only: it is
/// the default there, or the machine has no such domains.
fn is_so_already(name: &str, features: &Features, machine: &Machine) -> bool {
    let is_of_domains = tunables::all().any(|number| {
        number.name == name && matches!(number.file, Some(KernelFile::Domain { .. }))
    });
    let domains = |features: &Features| Topology::new(machine, features).domains;
    let queues = |features: &Features| QueueRules::new(features, machine.nr_cpus());
    let without = features.without(name);
    (is_of_domains && domains(features) == domains(&without))
        || (SCALED.contains(&name) && queues(features) == queues(&without))
}

/// All switches: name and what each does.
pub fn switches() -> Vec<(&'static str, &'static str)> {
    all().map(|switch| (switch.name, switch.about)).collect()
}

/// All numbers, those of the mechanisms first.
pub fn numbers() -> impl Iterator<Item = &'static Number> {
    mechanisms().iter().flat_map(|mechanism| mechanism.numbers).chain(tunables::all())
}
