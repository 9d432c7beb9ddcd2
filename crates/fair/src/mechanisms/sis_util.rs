//! `sis-util`: limits the search for an idle CPU by the utilisation of the LLC (kernel model,
//! section 14.3; the decision is `roost/sis_util.h`).
//!
//! ```text
//! balancing at the LLC's level ► sets how many CPUs a search may examine
//! search for an idle CPU ──────► is not begun, ends early, or has no limit
//! ```

use roost_engine::{CpuId, World};
use roost_machine::Machine;
use roost_policy::sis_util as policy;
use roost_workload::Workload;

use super::{Mechanism, Tally};
use crate::balance::Pass;
use crate::domain::Domain;
use crate::features::{Features, SearchLimit};
use crate::idle_search::Budget;
use crate::state::Fair;
use crate::stats::IdleType;
use crate::switches::{Number, Switch};
use crate::wakeup::Lines;

/// The mechanism.
pub(super) const MECHANISM: Mechanism = Mechanism {
    name: "sis-util",
    switches: &SWITCHES,
    numbers: &NUMBERS,
    acted: &["sis_util_not_begun", "sis_util_ended"],
    counters: &COUNTERS,
    keeps_tasks: false,
    needs: "an LLC of several CPUs",
    is_on: |features| features.switches.search_limit == SearchLimit::Utilisation,
    can_act: |machine: &Machine, _: &Workload| machine.llcs.iter().any(|llc| llc.cpus.len() > 1),
};

const COUNTERS: [(&str, &str); 2] = [
    ("sis_util_not_begun", "searches with a limit of 0 CPUs, which examined none"),
    ("sis_util_ended", "searches that ended at the limit"),
];

const SWITCHES: [Switch; 1] = [Switch {
    name: "sis-util",
    about: "limit the search for an idle CPU by the LLC's utilisation; turns sis-prop off",
    since: "5.2",
    set: |features, on| {
        features.switches.search_limit = SearchLimit::Utilisation.if_on(on, features);
    },
}];

const NUMBERS: [Number; 2] = [
    Number {
        name: "sis-util-threshold",
        about: "sis-util: utilisation at which an LLC is no longer searched",
        unit: "%",
        least: 1,
        most: 100,
        since: "5.2",
        until: None,
        unset: "100 / imbalance_pct of the LLC's domain, 85.5 for 117",
        source: "roost/sis_util.h",
        file: None,
        set: |features, percent| features.mechanisms.sis_util.threshold = Some(percent),
        get: |features| features.mechanisms.sis_util.threshold,
    },
    Number {
        name: "sis-util-floor",
        about: "sis-util: CPUs that a search may examine even in a full LLC",
        unit: "CPUs",
        least: 0,
        most: 999_999,
        since: "5.2",
        until: None,
        unset: "",
        source: "this project; not in the published patch",
        file: None,
        set: |features, cpus| features.mechanisms.sis_util.floor = cpus,
        get: |features| Some(features.mechanisms.sis_util.floor),
    },
];

/// Its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    /// Utilisation in per cent from which on an LLC is full; `None`: from the imbalance_pct of its
    /// domain.
    threshold: Option<u32>,
    /// Number of CPUs that a search may always examine.
    floor: u32,
}

impl Form {
    /// As published.
    pub(super) const PUBLISHED: Self = Self { threshold: None, floor: 0 };

    /// Number of CPUs that a search may examine in an LLC with domain `domain` and utilisation
    /// `util`.
    fn nr_idle_scan(self, util: u64, domain: &Domain) -> u32 {
        let pct = self.threshold.map_or(domain.imbalance_pct, |percent| 10_000 / percent);
        policy::nr_idle_scan(util, domain.weight, pct).max(self.floor.min(domain.weight))
    }
}

/// Its state during a run. The number of CPUs that searches may examine is kept per LLC
/// ([`crate::state::LlcShared::nr_idle_scan`]).
pub(crate) struct State {
    pub active: bool,
    /// Searches that it did not let begin.
    not_begun: Tally,
    /// Searches that it ended before all CPUs were examined.
    ended: Tally,
}

impl State {
    /// The state at the start of a run.
    pub(super) fn new(features: &Features) -> Self {
        Self {
            active: features.switches.search_limit == SearchLimit::Utilisation,
            not_begun: Tally::default(),
            ended: Tally::default(),
        }
    }

    /// Name and value of each counter.
    pub(super) fn counters(&self, sink: &mut dyn FnMut(&str, u64)) {
        if self.active {
            sink("sis_util_not_begun", self.not_begun.get());
            sink("sis_util_ended", self.ended.get());
        }
    }

    /// The budget of a search in an LLC with this `nr_idle_scan`.
    #[inline]
    fn budget(&self, nr_idle_scan: u32) -> Budget {
        match nr_idle_scan {
            0 => {
                self.not_begun.add(1);
                Budget::NoScan
            }
            // One more, because the step that gives up counts too.
            nr => Budget::Steps(u64::from(nr) + 1),
        }
    }

    /// A search used up its budget.
    #[inline]
    pub(super) fn on_search_ended(&self) {
        self.ended.count(self.active);
    }
}

impl Fair {
    /// A pass has found the utilisation `util` of the LLC at its level. Sets how many CPUs a wakeup
    /// may examine from now on.
    pub(super) fn update_idle_scan(&mut self, world: &World, pass: &Pass, util: u64) {
        let at_llc = self.topology.llc_level[pass.cpu] == Some(pass.level);
        if !at_llc || pass.idle == IdleType::NewlyIdle {
            return;
        }
        let domain = self.topology.domain(pass.domain);
        let nr = self.features.mechanisms.sis_util.nr_idle_scan(util, domain);
        let llc = &mut self.llcs[self.topology.llc_of[pass.cpu] as usize];
        if llc.nr_idle_scan != nr {
            llc.nr_idle_scan = nr;
            let writer = std::mem::replace(&mut llc.last_writer, pass.executor);
            self.balance.fetch(world, writer, pass.executor, 1);
        }
    }

    /// Sets every LLC to the state after passes that found no utilisation.
    pub(crate) fn search_all_when_idle(&mut self) {
        if !self.mechanisms.sis_util.active {
            return;
        }
        for (cpu, level) in self.topology.llc_level.iter().enumerate() {
            let Some(level) = level else { continue };
            let domain = self.topology.domain(self.topology.domains_of(cpu)[*level]);
            self.llcs[self.topology.llc_of[cpu] as usize].nr_idle_scan =
                self.features.mechanisms.sis_util.nr_idle_scan(0, domain);
        }
    }

    /// The budget for searches in the LLC of `target`.
    pub(super) fn util_budget(&self, world: &World, target: CpuId, lines: &mut Lines) -> Budget {
        let shared = &self.llcs[self.topology.llc_of[target] as usize];
        lines.fetch_shared(world.machine(), shared.last_writer);
        self.mechanisms.sis_util.budget(shared.nr_idle_scan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Topology;

    fn scans(name: &str) -> [u32; 4] {
        let machine = roost_machine::resolve("pack:1 node:1 l3:1 core:16 pu:1").unwrap();
        let features = Features::parse(name).unwrap();
        let topology = Topology::new(&machine, &features);
        let domain = topology.domain(topology.domains_of(0)[0]);
        let form = features.mechanisms.sis_util;
        [0, 45, 75, 90].map(|percent| form.nr_idle_scan(percent * 16 * 1024 / 100, domain))
    }

    /// The table of the header for 16 CPUs. A threshold of 100 is x^2 alone: 1 - 0.45^2 and 1 -
    /// 0.75^2 of 16 CPUs.
    #[test]
    fn a_threshold_is_the_utilisation_at_which_searches_end() {
        assert_eq!(scans("fair@7.2"), [16, 11, 3, 0]);
        assert_eq!(scans("fair@7.2+sis-util-threshold=100"), [16, 12, 7, 3]);
        assert_eq!(scans("fair@7.2+sis-util-threshold=70"), [16, 9, 0, 0]);
    }

    #[test]
    fn a_floor_is_searched_however_busy_the_llc_is() {
        assert_eq!(scans("fair@7.2+sis-util-floor=4"), [16, 11, 4, 4]);
        assert_eq!(scans("fair@7.2+sis-util-floor=100"), [16; 4], "there are no more CPUs");
    }
}
