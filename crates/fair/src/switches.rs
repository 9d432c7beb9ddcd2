//! What can be changed in a version: `+name`, `+no-name` and `+name=number`.
//!
//! Those of a mechanism stand with it ([`mod@crate::mechanisms`]); here are the kernel's own features, and the
//! lists of all.

use crate::features::{Features, SearchLimit};
use crate::mechanisms::mechanisms;

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

/// A setting: `+name=number`.
pub(crate) struct Number {
    pub name: &'static str,
    /// What it is, for lists of settings.
    pub about: &'static str,
    pub most: u32,
    pub set: fn(&mut Features, u32),
    /// Its value; `None`: what it sets is off, or follows from the machine.
    pub get: fn(&Features) -> Option<u32>,
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

/// All settings.
pub(crate) fn all_numbers() -> impl Iterator<Item = &'static Number> {
    mechanisms().iter().flat_map(|mechanism| mechanism.numbers)
}

/// The known switches: name and what it does.
pub fn switches() -> Vec<(&'static str, &'static str)> {
    all().map(|switch| (switch.name, switch.about)).collect()
}

/// What takes a number: name and what it is.
pub fn numbers() -> Vec<(&'static str, &'static str)> {
    all_numbers().map(|number| (number.name, number.about)).collect()
}
