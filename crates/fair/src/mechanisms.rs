//! The mechanisms: one file each, with its switches and numbers, its state, its hooks, and the counters
//! that say how often it acted.

pub(crate) mod cling;
pub(crate) mod consolidate;
pub(crate) mod llc_imbalance;
pub(crate) mod numa_imbalance;
pub(crate) mod sis_util;

use roost_machine::Machine;
use roost_workload::Workload;

use crate::features::Features;
use crate::switches::{Number, Switch};

/// What there is to say about a mechanism.
pub struct Mechanism {
    /// Its name: `numa-imbalance`.
    pub name: &'static str,
    pub(crate) switches: &'static [Switch],
    pub(crate) numbers: &'static [Number],
    /// Names of the counters whose sum says how often it acted. A run in which it is on has them.
    pub acted: &'static [&'static str],
    /// What it needs to act on, for sentences that begin with "it needs".
    pub needs: &'static str,
    is_on: fn(&Features) -> bool,
    can_act: fn(&Machine, &Workload) -> bool,
}

impl Mechanism {
    /// What it does, in one line.
    pub fn about(&self) -> &'static str {
        self.switches.iter().find(|switch| switch.name == self.name).map_or("", |own| own.about)
    }

    /// Names of its switches and numbers, its own name among them.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        let switches = self.switches.iter().map(|switch| switch.name);
        switches.chain(self.numbers.iter().map(|number| number.name))
    }

    /// Whether it is on, in whatever form: by the version or by a switch.
    pub fn is_on(&self, features: &Features) -> bool {
        (self.is_on)(features)
    }

    /// What it needs and does not find on this machine and in this workload: then it cannot act.
    pub fn missing(&self, machine: &Machine, workload: &Workload) -> Option<&'static str> {
        (!(self.can_act)(machine, workload)).then_some(self.needs)
    }
}

/// All mechanisms.
static MECHANISMS: [Mechanism; 5] = [
    numa_imbalance::MECHANISM,
    sis_util::MECHANISM,
    llc_imbalance::MECHANISM,
    cling::MECHANISM,
    consolidate::MECHANISM,
];

/// All mechanisms, in the order of the kernel model's section 14.
pub fn mechanisms() -> &'static [Mechanism] {
    &MECHANISMS
}
