//! `sis-util`: bounds the search for an idle CPU by the utilisation of the LLC (kernel model, section
//! 14.3; the decision is `roost/sis_util.h`).
//!
//! ```text
//! balancing at the LLC's level ► how many CPUs a search may look at
//! search for an idle CPU ──────► not begun, ended early, or unbounded
//! ```

use roost_engine::{CpuId, World};
use roost_machine::Machine;
use roost_policy::sis_util as policy;
use roost_workload::Workload;

use super::{Mechanism, Tally};
use crate::balance::Pass;
use crate::features::{Features, SearchLimit};
use crate::idle_search::Budget;
use crate::state::Fair;
use crate::stats::IdleType;
use crate::switches::Switch;
use crate::wakeup::Lines;

/// The mechanism.
pub(super) const MECHANISM: Mechanism = Mechanism {
    name: "sis-util",
    switches: &SWITCHES,
    numbers: &[],
    acted: &["sis_util_not_begun", "sis_util_ended"],
    needs: "an LLC of several CPUs",
    is_on: |features| features.switches.search_limit == SearchLimit::Utilisation,
    can_act: |machine: &Machine, _: &Workload| machine.llcs.iter().any(|llc| llc.cpus.len() > 1),
};

const SWITCHES: [Switch; 1] = [Switch {
    name: "sis-util",
    about: "bound the idle search by the LLC's utilisation; turns sis-prop off",
    since: "5.2",
    set: |features, on| {
        features.switches.search_limit = SearchLimit::Utilisation.if_on(on, features);
    },
}];

/// What it keeps during a run. The number of CPUs that searches may look at is the LLC's
/// ([`crate::state::LlcShared::nr_idle_scan`]).
pub(crate) struct State {
    pub active: bool,
    /// Searches that it did not let begin.
    not_begun: Tally,
    /// Searches that it ended before all CPUs had been looked at.
    ended: Tally,
}

impl State {
    /// At the start of a run.
    pub(super) fn new(features: &Features) -> Self {
        Self {
            active: features.switches.search_limit == SearchLimit::Utilisation,
            not_begun: Tally::default(),
            ended: Tally::default(),
        }
    }

    /// Name and value of its counters.
    pub(super) fn counters(&self, sink: &mut dyn FnMut(&str, u64)) {
        if self.active {
            sink("sis_util_not_begun", self.not_begun.get());
            sink("sis_util_ended", self.ended.get());
        }
    }

    /// How many CPUs a search may look at where `nr_idle_scan` CPUs are worth it.
    #[inline]
    fn budget(&self, nr_idle_scan: u32) -> Budget {
        match nr_idle_scan {
            0 => {
                self.not_begun.add(1);
                Budget::NoScan
            }
            // One more: the step that gives up is counted in.
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
    /// A pass has found the LLC at its level to have the utilisation `util`: how many CPUs a wakeup may
    /// look at from now on.
    pub(super) fn update_idle_scan(&mut self, world: &World, pass: &Pass, util: u64) {
        let at_llc = self.topology.llc_level[pass.cpu] == Some(pass.level);
        if !at_llc || pass.idle == IdleType::NewlyIdle {
            return;
        }
        let domain = self.topology.domain(pass.domain);
        let nr = policy::nr_idle_scan(util, domain.weight, domain.imbalance_pct);
        let llc = &mut self.llcs[self.topology.llc_of[pass.cpu] as usize];
        if llc.nr_idle_scan != nr {
            llc.nr_idle_scan = nr;
            let writer = std::mem::replace(&mut llc.last_writer, pass.executor);
            self.balance.fetch(world, writer, pass.executor, 1);
        }
    }

    /// The last passes have found every LLC without utilisation.
    pub(crate) fn search_all_when_idle(&mut self) {
        if !self.mechanisms.sis_util.active {
            return;
        }
        for (cpu, level) in self.topology.llc_level.iter().enumerate() {
            let Some(level) = level else { continue };
            let domain = self.topology.domain(self.topology.domains_of(cpu)[*level]);
            self.llcs[self.topology.llc_of[cpu] as usize].nr_idle_scan =
                policy::nr_idle_scan(0, domain.weight, domain.imbalance_pct);
        }
    }

    /// What the LLC of `target` is found to be worth searching.
    pub(super) fn util_budget(&self, world: &World, target: CpuId, lines: &mut Lines) -> Budget {
        let shared = &self.llcs[self.topology.llc_of[target] as usize];
        lines.fetch_shared(world.machine(), shared.last_writer);
        self.mechanisms.sis_util.budget(shared.nr_idle_scan)
    }
}
