//! `llc-imbalance`: leaves a small imbalance between the LLCs of a node alone, so that two tasks
//! that wake each other stop chasing each other through the LLCs (kernel model, section 14.4; the
//! decision is `roost/llc_imbalance.h`).
//!
//! ```text
//! balancing between the LLCs of a node ► is the imbalance left alone?
//! ```

use roost_machine::Machine;
use roost_policy::llc_imbalance as policy;
use roost_workload::Workload;

use super::{Mechanism, Tally};
use crate::balance::Rules;
use crate::domain::{Domain, Flags};
use crate::features::Features;
use crate::switches::{Number, Switch};

/// The mechanism.
pub(super) const MECHANISM: Mechanism = Mechanism {
    name: "llc-imbalance",
    switches: &SWITCHES,
    numbers: &NUMBERS,
    acted: &["llc_imbalance_kept"],
    counters: &COUNTERS,
    keeps_tasks: false,
    needs: "a NUMA node with several LLCs",
    is_on: |features| features.mechanisms.llc_imbalance != LlcImbalance::Off,
    can_act: |machine: &Machine, _: &Workload| has_several_llcs(machine),
};

const COUNTERS: [(&str, &str); 1] = [(
    "llc_imbalance_kept",
    "passes that moved no task only because of the tolerance between LLCs",
)];

const SWITCHES: [Switch; 1] = [Switch {
    name: "llc-imbalance",
    about: "tolerate a small imbalance between the LLCs of a node",
    since: "3.9",
    set: |features, on| {
        features.mechanisms.llc_imbalance = match features.mechanisms.llc_imbalance {
            LlcImbalance::UpTo(tasks) if on => LlcImbalance::UpTo(tasks),
            _ if on => LlcImbalance::Quarter,
            _ => LlcImbalance::Off,
        }
    },
}];

const NUMBERS: [Number; 1] = [Number {
    name: "llc-imbalance",
    about: "tasks that one LLC of a node may have more than another",
    unit: "tasks",
    least: 0,
    most: 999_999,
    since: "3.9",
    until: None,
    unset: "if on: a quarter of an LLC's CPUs, but at least 2 (1 below 4 CPUs)",
    source: "this project; the published rule is in roost/llc_imbalance.h",
    file: None,
    set: |features, tasks| {
        features.mechanisms.llc_imbalance =
            if tasks > 0 { LlcImbalance::UpTo(tasks) } else { LlcImbalance::Off };
    },
    get: |features| match features.mechanisms.llc_imbalance {
        LlcImbalance::UpTo(tasks) => Some(tasks),
        LlcImbalance::Off | LlcImbalance::Quarter => None,
    },
}];

/// By how many tasks an LLC may be ahead of another LLC of its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LlcImbalance {
    /// None.
    Off,
    /// A quarter of its CPUs, as published.
    Quarter,
    /// This many.
    UpTo(u32),
}

/// The tolerance of one domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LlcTolerance {
    /// It is off, or the domain is not between the LLCs of a node.
    Nothing,
    /// By [`policy::adjust`], with the CPUs of the domain and of its child.
    Quarter { span: u32, child_span: u32 },
    /// This many tasks.
    UpTo(u32),
}

impl LlcImbalance {
    /// The tolerance in `domain`.
    pub(super) fn at(self, domain: &Domain) -> LlcTolerance {
        // As published, this also applies to one LLC below a NUMA level (section 14.4, point i).
        let applies = domain.child_flags.has(Flags::SHARE_LLC) && domain.parent_is_numa;
        match self {
            Self::Quarter if applies => {
                LlcTolerance::Quarter { span: domain.weight, child_span: domain.child_weight }
            }
            Self::UpTo(tasks) if applies => LlcTolerance::UpTo(tasks),
            Self::Off | Self::Quarter | Self::UpTo(_) => LlcTolerance::Nothing,
        }
    }
}

impl LlcTolerance {
    /// The part of an imbalance, in tasks and before halving, that balancing acts on.
    #[inline]
    pub(super) fn filter(self, amount: u64) -> u64 {
        match self {
            Self::Nothing => amount,
            Self::Quarter { span, child_span } => policy::adjust(amount, span, child_span),
            Self::UpTo(tasks) if amount <= u64::from(tasks) => 0,
            Self::UpTo(_) => amount,
        }
    }
}

/// Its state during a run.
pub(crate) struct State {
    pub(super) form: LlcImbalance,
    /// Passes between LLCs that moved nothing because of the tolerance.
    left_alone: Tally,
}

impl State {
    /// The state at the start of a run.
    pub(super) fn new(features: &Features) -> Self {
        Self { form: features.mechanisms.llc_imbalance, left_alone: Tally::default() }
    }

    /// Name and value of each counter.
    pub(super) fn counters(&self, sink: &mut dyn FnMut(&str, u64)) {
        if self.form != LlcImbalance::Off {
            sink("llc_imbalance_kept", self.left_alone.get());
        }
    }

    /// See [`crate::Fair::note_balance`].
    #[inline]
    pub(super) fn note_balance(&self, rules: &Rules, finds: &impl Fn(&Rules) -> bool) {
        if rules.tolerance.llcs != LlcTolerance::Nothing {
            let mut without = *rules;
            without.tolerance.llcs = LlcTolerance::Nothing;
            self.left_alone.count(finds(&without));
        }
    }
}

/// Whether some node has several LLCs.
fn has_several_llcs(machine: &Machine) -> bool {
    let mut llc_of_node = vec![None; machine.nodes.len()];
    machine.cpus.iter().any(|cpu| {
        let first = llc_of_node[cpu.node as usize].get_or_insert(cpu.llc);
        *first != cpu.llc
    })
}
