//! `numa-imbalance`: how many tasks a NUMA node may be ahead of another node before balancing acts
//! on the imbalance (kernel model, sections 10.6 and 14.1; the decisions are
//! `roost/numa_imbalance.h`).
//!
//! ```text
//! balancing between nodes ► is the imbalance left alone?
//! NUMA placement ─────────► would balancing leave the imbalance after a move alone?
//! fork, exec ─────────────► does the new task stay on its node?
//! ```
//!
//! Most versions have a rule of their own. The switches replace it by another one.

use roost_machine::Machine;
use roost_policy::numa_imbalance::{self as policy, Rule};
use roost_workload::Workload;

use super::{Mechanism, Tally};
use crate::balance::Rules;
use crate::domain::{Domain, Flags};
use crate::features::Features;
use crate::switches::{Number, Switch};

pub(crate) use policy::{Busiest, LevelSpan, Limit, Walk};

/// The mechanism.
pub(super) const MECHANISM: Mechanism = Mechanism {
    name: "numa-imbalance",
    switches: &SWITCHES,
    numbers: &NUMBERS,
    acted: &["numa_imbalance_kept", "numa_imbalance_local"],
    counters: &COUNTERS,
    keeps_tasks: false,
    needs: "a machine of several NUMA nodes",
    is_on: |features| features.mechanisms.numa_imbalance != NumaImbalance::None,
    can_act: |machine: &Machine, _: &Workload| machine.nodes.len() > 1,
};

const COUNTERS: [(&str, &str); 2] = [
    (
        "numa_imbalance_kept",
        "passes that moved no task only because of the tolerance between nodes",
    ),
    ("numa_imbalance_local", "new tasks that the rule kept on their parent's node"),
];

const SWITCHES: [Switch; 2] = [
    Switch {
        name: "numa-imbalance",
        about: "tolerate an imbalance between nodes, by their LLCs, as published 2021-12-01; no-: none",
        since: "3.9",
        set: |features, on| features.mechanisms.numa_imbalance = published_or_none(on),
    },
    Switch {
        name: "numa-imbalance-merged",
        about: "the same as merged: the rule of 5.18 up to 5.19, the rule of 6.0 later; no-: none",
        since: "3.9",
        set: |features, on| {
            features.mechanisms.numa_imbalance =
                if on { features.merged_rule() } else { NumaImbalance::None };
        },
    },
];

const NUMBERS: [Number; 1] = [Number {
    name: "imb-numa-nr",
    about: "tasks that a node may have more than another, instead of the computed number",
    unit: "tasks",
    least: 0,
    most: 999_999,
    since: "3.9",
    until: None,
    unset: "computed from the LLCs of a node",
    source: "imb_numa_nr of struct sched_domain (roost/numa_imbalance.h)",
    file: None,
    set: |features, tasks| features.mechanisms.imb_numa_nr = Some(tasks),
    get: |features| features.mechanisms.imb_numa_nr,
}];

fn published_or_none(on: bool) -> NumaImbalance {
    if on { NumaImbalance::Published } else { NumaImbalance::None }
}

/// The rule for the imbalance between NUMA nodes that is left alone (sections 10.6 and 14.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumaImbalance {
    /// No imbalance is left alone.
    None,
    /// 5.16: a quarter of the group's CPUs, pairs of two tasks.
    Quarter,
    /// Patch A as published 2021-12-01: `imb_numa_nr` from LLCs, strict.
    Published,
    /// 5.18 and 5.19.
    Merged518,
    /// 6.0 and later.
    Merged60,
}

impl NumaImbalance {
    fn rule(self) -> Rule {
        match self {
            Self::None => Rule::None,
            Self::Quarter => Rule::Quarter,
            Self::Published => Rule::Published,
            Self::Merged518 => Rule::Merged518,
            Self::Merged60 => Rule::Merged60,
        }
    }

    /// The `imb_numa_nr` of one level, from the walk over parents and children: see [`Walk`].
    pub(crate) fn step(self, walk: &mut Walk, level: policy::LevelSpan) -> u32 {
        policy::step(self.rule(), walk, level)
    }

    /// Number of tasks up to which an imbalance is tolerated between the nodes of `domain`. 5.16
    /// and Patch A use "less than", but the table of section 14.1 has the limit itself, and so has
    /// this.
    pub(crate) fn limit(self, domain: &Domain) -> u32 {
        match self {
            Self::None => 0,
            Self::Quarter => domain.weight / 4,
            Self::Published | Self::Merged518 | Self::Merged60 => domain.imb_numa_nr,
        }
    }

    /// The imbalance in tasks that counts against placing one more task on a node, which then has
    /// `dst_nr` tasks: the column "NUMA placement" of section 10.6.
    pub(super) fn adjust_placement(
        self,
        imbalance: u64,
        dst_nr: u32,
        dst_weight: u32,
        imb_numa_nr: u32,
    ) -> u64 {
        policy::adjust_placement(self.rule(), imbalance, dst_nr, dst_weight, imb_numa_nr)
    }

    /// Whether a new task stays on the local node: the column "find_idlest" of section 10.6.
    #[inline]
    fn stay_local(self, local: Occupied, other_idle: u32, limit: Limit) -> bool {
        let idle = local.idle.abs_diff(other_idle);
        policy::stay_local(self.rule(), local.running, idle, limit)
    }
}

/// The tolerance of one domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeTolerance {
    /// `NumaImbalance::None` if the domain does not span nodes.
    pub rule: NumaImbalance,
    pub imb_numa_nr: u32,
}

impl NodeTolerance {
    /// The tolerance of a rule in `domain`.
    pub(super) fn at(rule: NumaImbalance, domain: &Domain) -> Self {
        let rule = if domain.has(Flags::NUMA) { rule } else { NumaImbalance::None };
        Self { rule, imb_numa_nr: domain.imb_numa_nr }
    }

    /// The part of an imbalance, in tasks, that periodic balancing acts on: the column "periodic"
    /// of section 10.6.
    #[inline]
    pub(super) fn filter(self, imbalance: u64, local_nr: u32, busiest: Busiest) -> u64 {
        if self.rule == NumaImbalance::None {
            return imbalance;
        }
        policy::adjust_periodic(self.rule.rule(), imbalance, busiest, local_nr, self.imb_numa_nr)
    }
}

/// How busy a node is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Occupied {
    /// Number of tasks that run there.
    pub running: u32,
    /// Number of idle CPUs.
    pub idle: u32,
}

/// Its state during a run.
pub(crate) struct State {
    pub(super) rule: NumaImbalance,
    /// Passes between nodes that moved nothing because of the tolerance.
    left_alone: Tally,
    /// New tasks that it kept on their node.
    kept_forks: Tally,
}

impl State {
    /// The state at the start of a run.
    pub(super) fn new(features: &Features) -> Self {
        let rule = features.mechanisms.numa_imbalance;
        Self { rule, left_alone: Tally::default(), kept_forks: Tally::default() }
    }

    /// Name and value of each counter.
    pub(super) fn counters(&self, sink: &mut dyn FnMut(&str, u64)) {
        if self.rule != NumaImbalance::None {
            sink("numa_imbalance_kept", self.left_alone.get());
            sink("numa_imbalance_local", self.kept_forks.get());
        }
    }

    /// See [`crate::Fair::note_balance`].
    #[inline]
    pub(super) fn note_balance(&self, rules: &Rules, finds: &impl Fn(&Rules) -> bool) {
        if rules.tolerance.nodes.rule != NumaImbalance::None {
            let mut without = *rules;
            without.tolerance.nodes.rule = NumaImbalance::None;
            self.left_alone.count(finds(&without));
        }
    }

    /// [`NumaImbalance::stay_local`] for a new task, counted.
    #[inline]
    pub(super) fn keeps_fork(&self, local: Occupied, other_idle: u32, limit: Limit) -> bool {
        self.kept_forks.count(self.rule.stay_local(local, other_idle, limit))
    }
}
