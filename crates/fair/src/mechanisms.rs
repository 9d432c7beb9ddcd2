//! The mechanisms. Each is one file, with its switches and numbers, its state, what it does at each
//! hook, and the counters that say how often it acted.
//!
//! The rest of the crate knows no mechanism by name: it calls the hooks below, and they call the
//! mechanisms that act there. All calls are static. A mechanism that is off costs a test of a flag.
//! `CONTRIBUTING.md` lists what a new mechanism needs.
//!
//! | hook | called when, or the question that it answers |
//! |---|---|
//! | [`Fair::on_queued`], [`Fair::on_left`], [`Fair::on_exit`] | a task was queued, left its queue, exits |
//! | [`Fair::on_fault`], [`Fair::on_numa_tick`] | a hinting fault of a task, a tick while it runs |
//! | [`Fair::note_attempt`] | a task tried to reach its preferred node |
//! | [`Fair::may_wake_at`], [`Fair::stays_on_node`] | may a wakeup, a swap or a pull move a task? |
//! | [`Fair::may_prefer`], [`Fair::group_decides_page`] | may a task prefer a node, and does a page follow it? |
//! | [`Fair::search_budget`], [`Mechanisms::on_search_ended`] | how far does a search for an idle CPU go? |
//! | [`Mechanisms::keeps_fork`] | does a new task stay on its node? |
//! | [`Mechanisms::tolerance`], [`Fair::note_balance`] | what does balancing leave alone? a pass moved nothing |
//! | [`Fair::on_domain_util`] | a pass has found the utilisation of a domain |
//! | [`Fair::source_queue`] | which queue does balancing pull from? |
//! | [`Fair::first_wanted`], [`Fair::next_wanted`] | which tasks does a pull try first, and which next? |
//! | [`Fair::refuses_unasked`], [`Fair::refuses`], [`Fair::ignores_heat`] | may a pull take this task? |
//! | [`Fair::on_idle`], [`Fair::on_sent`] | a CPU stays idle after balancing; it was sent a task |

pub(crate) mod cling;
pub(crate) mod consolidate;
#[cfg(test)]
pub(crate) mod linger;
pub(crate) mod llc_imbalance;
pub(crate) mod numa_imbalance;
pub(crate) mod sis_util;
#[cfg(test)]
mod tests;

use std::cell::Cell;

use roost_engine::{CpuId, TaskId, World};
use roost_machine::Machine;
use roost_workload::Workload;

use crate::balance::{Pass, Rules};
use crate::domain::{Domain, Flags, GroupId};
use crate::features::Features;
use crate::idle_search::Budget;
use crate::state::Fair;
use crate::switches::{Number, Switch};
use crate::wakeup::Lines;
use consolidate::Consolidation;
pub(crate) use consolidate::Wanted;
use llc_imbalance::{LlcImbalance, LlcTolerance};
use numa_imbalance::{Busiest, NodeTolerance, NumaImbalance};
pub(crate) use numa_imbalance::{LevelSpan, Limit, Occupied, Walk};

/// The description of a mechanism.
pub struct Mechanism {
    /// Its name: `numa-imbalance`.
    pub name: &'static str,
    pub(crate) switches: &'static [Switch],
    pub(crate) numbers: &'static [Number],
    /// Counters whose sum says how often it acted. A run in which it is on has them.
    pub acted: &'static [&'static str],
    /// Name and meaning of each of its counters. In a name, `N` stands for a number and `GROUP` for the path of a
    /// cgroup.
    pub counters: &'static [(&'static str, &'static str)],
    /// Whether it leaves tasks where they are although other CPUs are idle.
    pub keeps_tasks: bool,
    /// What it needs to be able to act, for sentences that begin with "it needs".
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

    /// Whether it is on in any form, by the version or by a switch.
    pub fn is_on(&self, features: &Features) -> bool {
        (self.is_on)(features)
    }

    /// What it needs but does not find on this machine and in this workload. Then it cannot act.
    pub fn missing(&self, machine: &Machine, workload: &Workload) -> Option<&'static str> {
        (!(self.can_act)(machine, workload)).then_some(self.needs)
    }
}

/// All mechanisms.
static MECHANISMS: &[Mechanism] = &[
    numa_imbalance::MECHANISM,
    sis_util::MECHANISM,
    llc_imbalance::MECHANISM,
    cling::MECHANISM,
    consolidate::MECHANISM,
    #[cfg(test)]
    linger::MECHANISM,
];

/// All mechanisms, in the order of the kernel model's section 14.
pub fn mechanisms() -> &'static [Mechanism] {
    MECHANISMS
}

/// The active form of each mechanism, and its numbers. `sis-util` is one of several limits of the
/// same search, see [`crate::features::SearchLimit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forms {
    pub numa_imbalance: NumaImbalance,
    /// `imb_numa_nr` of every level that has one, if set.
    pub imb_numa_nr: Option<u32>,
    pub sis_util: sis_util::Form,
    pub llc_imbalance: LlcImbalance,
    pub cling: cling::Form,
    pub consolidate: Consolidation,
    /// Number of passes that leave alone a task that was pulled on purpose.
    pub consolidate_seq: u32,
    #[cfg(test)]
    pub linger: Option<u32>,
}

impl Forms {
    /// All are off.
    pub(crate) const OFF: Self = Self {
        numa_imbalance: NumaImbalance::None,
        imb_numa_nr: None,
        sis_util: sis_util::Form::PUBLISHED,
        llc_imbalance: LlcImbalance::Off,
        cling: cling::Form::OFF,
        consolidate: Consolidation::Off,
        consolidate_seq: consolidate::SEQ,
        #[cfg(test)]
        linger: None,
    };

    /// `imb_numa_nr` of the next level on the way up from a CPU.
    pub(crate) fn imb_numa_nr(&self, walk: &mut Walk, level: LevelSpan) -> u32 {
        match self.numa_imbalance.step(walk, level) {
            // Levels below the nodes have none, and neither has a rule that does not use it.
            0 => 0,
            own => self.imb_numa_nr.unwrap_or(own),
        }
    }

    /// Number of tasks up to which an imbalance is tolerated, at node levels.
    pub(crate) fn limit_between_nodes(&self, domain: &Domain) -> Option<u32> {
        domain.has(Flags::NUMA).then(|| self.numa_imbalance.limit(domain))
    }
}

/// The imbalance that is left alone in one domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tolerance {
    pub nodes: NodeTolerance,
    pub llcs: LlcTolerance,
}

impl Tolerance {
    /// Whether no imbalance is left alone.
    pub(crate) fn is_none(self) -> bool {
        self.nodes.rule == NumaImbalance::None && self.llcs == LlcTolerance::Nothing
    }

    /// The part of an imbalance between nodes, in tasks, that balancing acts on. `here` tasks run
    /// in the local group, `there` in the busiest one, which has `weight` CPUs.
    #[inline]
    pub(crate) fn between_nodes(self, imbalance: u64, here: u32, there: u32, weight: u32) -> u64 {
        self.nodes.filter(imbalance, here, Busiest { running: there, weight })
    }

    /// The part of an imbalance between the LLCs of a node, in tasks and before halving, that
    /// balancing acts on.
    #[inline]
    pub(crate) fn between_llcs(self, imbalance: u64) -> u64 {
        self.llcs.filter(imbalance)
    }
}

#[cfg(test)]
impl Tolerance {
    /// No imbalance is left alone.
    pub(crate) fn none() -> Self {
        Self::between_nodes_by(NumaImbalance::None, 0)
    }

    pub(crate) fn between_nodes_by(rule: NumaImbalance, imb_numa_nr: u32) -> Self {
        Self { nodes: NodeTolerance { rule, imb_numa_nr }, llcs: LlcTolerance::Nothing }
    }

    pub(crate) fn between_llcs_by(llcs: LlcTolerance) -> Self {
        Self { llcs, ..Self::none() }
    }
}

/// The state of the mechanisms during a run.
pub(crate) struct Mechanisms {
    pub numa_imbalance: numa_imbalance::State,
    pub sis_util: sis_util::State,
    pub llc_imbalance: llc_imbalance::State,
    pub cling: cling::State,
    pub consolidate: consolidate::State,
    #[cfg(test)]
    pub linger: linger::State,
}

impl Mechanisms {
    /// The state at the start of a run.
    pub(crate) fn new(machine: &Machine, features: &Features) -> Self {
        Self {
            numa_imbalance: numa_imbalance::State::new(features),
            sis_util: sis_util::State::new(features),
            llc_imbalance: llc_imbalance::State::new(features),
            cling: cling::State::new(features),
            consolidate: consolidate::State::new(machine, features),
            #[cfg(test)]
            linger: linger::State::new(features),
        }
    }

    /// Called when the workload is known; `with_numa` if NUMA balancing is active.
    pub(crate) fn start(&mut self, world: &World, with_numa: bool) {
        self.cling.start(world, with_numa);
    }

    /// The imbalance that balancing leaves alone in `domain`.
    pub(crate) fn tolerance(&self, domain: &Domain) -> Tolerance {
        Tolerance {
            nodes: NodeTolerance::at(self.numa_imbalance.rule, domain),
            llcs: self.llc_imbalance.form.at(domain),
        }
    }

    /// For NUMA placement: whether balancing would leave alone that a node is `ahead` tasks ahead.
    /// The node then has `running` tasks on `weight` CPUs.
    pub(crate) fn leaves_alone(
        &self,
        ahead: u64,
        running: u32,
        weight: u32,
        imb_numa_nr: u32,
    ) -> bool {
        self.numa_imbalance.rule.adjust_placement(ahead, running, weight, imb_numa_nr) == 0
    }

    /// Whether [`Mechanisms::keeps_fork`] can return true.
    pub(crate) fn may_keep_forks(&self) -> bool {
        self.numa_imbalance.rule != NumaImbalance::None
    }

    /// Whether a new task stays on its node although another one has more idle CPUs.
    #[inline]
    pub(crate) fn keeps_fork(&self, local: Occupied, other_idle: u32, limit: Limit) -> bool {
        self.numa_imbalance.keeps_fork(local, other_idle, limit)
    }

    /// A search for an idle CPU used up its budget.
    #[inline]
    pub(crate) fn on_search_ended(&self) {
        self.sis_util.on_search_ended();
    }

    /// Whether the NUMA group has settled on a node.
    pub(crate) fn is_settled(&self, group: u32) -> bool {
        self.cling.is_clinging(group)
    }

    /// What a mechanism counts of the `tasks` on the queue of `cpu`: the stored value, and the
    /// value recomputed.
    pub(crate) fn counted(
        &self,
        cpu: CpuId,
        tasks: impl Iterator<Item = TaskId>,
    ) -> Option<(u32, u32)> {
        self.consolidate.counted(cpu, tasks)
    }

    /// Name and value of the counters of mechanisms that are on.
    pub(crate) fn counters(&self, sink: &mut dyn FnMut(&str, u64)) {
        self.numa_imbalance.counters(sink);
        self.sis_util.counters(sink);
        self.llc_imbalance.counters(sink);
        self.cling.counters(sink);
        self.consolidate.counters(sink);
        #[cfg(test)]
        self.linger.counters(sink);
    }

    pub(crate) fn maxima(&self, sink: &mut dyn FnMut(&str, u64)) {
        self.cling.maxima(sink);
    }
}

/// Counts how often a mechanism acted in some way. In a `Cell`, because most decisions only read
/// the state of the class.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally(Cell<u64>);

impl Tally {
    /// Adds one if `acted`. Returns `acted`.
    #[inline]
    pub(crate) fn count(&self, acted: bool) -> bool {
        self.0.set(self.0.get() + u64::from(acted));
        acted
    }

    /// Adds `times`.
    pub(crate) fn add(&self, times: u64) {
        self.0.set(self.0.get() + times);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.get()
    }
}

impl Fair {
    /// A task was queued on `cpu`.
    #[inline]
    pub(crate) fn on_queued(&mut self, world: &World, cpu: CpuId, task: TaskId) {
        if self.mechanisms.consolidate.active {
            self.count_member(world, cpu, task);
        }
        #[cfg(test)]
        self.mechanisms.linger.on_queued(world.now(), task);
    }

    /// A task was taken off the queue of `cpu`.
    #[inline]
    pub(crate) fn on_left(&mut self, cpu: CpuId, task: TaskId) {
        if self.mechanisms.consolidate.active {
            self.discount_member(cpu, task);
        }
    }

    /// A task on the queue of `cpu` exits and is about to be taken off.
    #[inline]
    pub(crate) fn on_exit(&mut self, cpu: CpuId, task: TaskId) {
        if self.mechanisms.consolidate.is_posted() {
            self.abandon_member(cpu, task);
        }
    }

    /// A hinting fault of a task that runs on `cpu`.
    pub(crate) fn on_fault(&mut self, cpu: CpuId, task: TaskId) {
        if self.mechanisms.consolidate.active {
            self.judge_member(cpu, task);
        }
    }

    /// A tick of `cpu`, which runs `task`, in a run with NUMA balancing.
    pub(crate) fn on_numa_tick(&mut self, world: &mut World, cpu: CpuId, task: TaskId) {
        self.tick_cgroup(world, cpu, task);
    }

    /// Whether a wakeup may bring `task` to the waker's CPU `this`.
    #[inline]
    pub(crate) fn may_wake_at(&self, world: &World, task: TaskId, this: CpuId) -> bool {
        #[cfg(test)]
        if self.lingers(world, task, this) {
            return false;
        }
        let prev = world.task_cpu(task);
        !self.stays_on_node(task, self.numa.node(prev), self.numa.node(this))
            && (!self.mechanisms.consolidate.active || self.member_may_wake(world, task, this))
    }

    /// The queue of `group` to pull from. `busiest` is the queue with most of the pass's measure.
    #[inline]
    pub(crate) fn source_queue(&self, pass: &Pass, busiest: CpuId, group: GroupId) -> CpuId {
        if self.mechanisms.consolidate.active {
            self.most_non_local(pass, busiest, group)
        } else {
            busiest
        }
    }

    /// The tasks that a pull tries first.
    #[inline]
    pub(crate) fn first_wanted(&self, pass: &Pass) -> Wanted {
        if self.mechanisms.consolidate.active { self.first_members(pass) } else { Wanted::Any }
    }

    /// A pull took `taken` tasks. Returns whether it tries again, for other tasks.
    #[inline]
    pub(crate) fn next_wanted(&self, pass: &mut Pass, taken: usize) -> bool {
        pass.wanted != Wanted::Any && self.next_members(pass, taken)
    }

    /// Whether a pull refuses `task` before any other check.
    #[inline]
    pub(crate) fn refuses_unasked(&mut self, world: &World, pass: &Pass, task: TaskId) -> bool {
        self.mechanisms.consolidate.is_posted() && !self.is_wanted(world, pass, task)
    }

    /// Whether a pull refuses `task`, which may run at the destination and is not running.
    #[inline]
    pub(crate) fn refuses(&mut self, world: &World, pass: &Pass, task: TaskId) -> bool {
        !self.mechanisms.consolidate.is_posted() && !self.is_wanted(world, pass, task)
    }

    /// Whether a pull takes `task` although it is cache-hot.
    #[inline]
    pub(crate) fn ignores_heat(&self, world: &World, pass: &Pass, task: TaskId) -> bool {
        self.mechanisms.consolidate.active && self.gain_ignores_heat(world, pass, task)
    }

    /// `executor` has balanced all domains of `cpu` that were due.
    #[inline]
    pub(crate) fn on_idle(&mut self, world: &mut World, executor: CpuId, cpu: CpuId) {
        if self.mechanisms.consolidate.active && self.rqs[cpu].nr_running == 0 {
            self.pull_any_member(world, executor, cpu);
        }
    }

    /// The stopper of `src` has sent `task` to the idle CPU that asked for it, or could not.
    pub(crate) fn on_sent(&mut self, world: &World, src: CpuId, task: TaskId, sent: bool) {
        self.member_pulled(world, src, task, sent);
    }

    /// The statistics of a pass found the utilisation `util` of its domain.
    #[inline]
    pub(crate) fn on_domain_util(&mut self, world: &World, pass: &Pass, util: u64) {
        if self.mechanisms.sis_util.active {
            self.update_idle_scan(world, pass, util);
        }
    }

    /// How many CPUs a search for an idle CPU near `target` may examine; `None` if no mechanism
    /// limits it.
    #[inline]
    pub(crate) fn search_budget(
        &self,
        world: &World,
        target: CpuId,
        lines: &mut Lines,
    ) -> Option<Budget> {
        self.mechanisms.sis_util.active.then(|| self.util_budget(world, target, lines))
    }

    /// A pass with `rules` found nothing to even out. `finds` tells whether it would have with
    /// other rules. If it would have without a mechanism's tolerance, that mechanism has left the
    /// imbalance alone.
    pub(crate) fn note_balance(&self, rules: &Rules, finds: impl Fn(&Rules) -> bool) {
        self.mechanisms.numa_imbalance.note_balance(rules, &finds);
        self.mechanisms.llc_imbalance.note_balance(rules, &finds);
    }
}
