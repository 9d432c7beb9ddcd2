//! The mechanisms: one file each, with its switches and numbers, its state, what it does at each hook, and
//! the counters that say how often it acted.
//!
//! The rest of the crate knows no mechanism by name: it calls the hooks below, which call every mechanism
//! that has something to do there. All calls are static; a mechanism that is off costs a test of a flag.
//! `CONTRIBUTING.md` lists what a new mechanism needs.
//!
//! | hook | called |
//! |---|---|
//! | [`Fair::on_queued`], [`Fair::on_left`], [`Fair::on_exit`] | a task has been queued, has left its queue, exits |
//! | [`Fair::on_fault`], [`Fair::on_numa_tick`] | a hinting fault of a task, a tick while it runs |
//! | [`Fair::may_wake_at`] | may a wakeup bring a task to the waker's CPU? |
//! | [`Fair::source_queue`] | which queue is taken from? |
//! | [`Fair::first_wanted`], [`Fair::next_wanted`] | which tasks does a pull take first, and then? |
//! | [`Fair::refuses_unasked`], [`Fair::refuses`], [`Fair::ignores_heat`] | may a pull take this one? |
//! | [`Fair::on_idle`], [`Fair::on_sent`] | a CPU stays idle after balancing; the task that it asked for |
//! | [`Fair::note_balance`] | a pass found nothing to even out |
//! | `cling`, `numa_imbalance`, `sis_util` | what NUMA balancing, forks and searches ask of one mechanism |

pub(crate) mod cling;
pub(crate) mod consolidate;
pub(crate) mod llc_imbalance;
pub(crate) mod numa_imbalance;
pub(crate) mod sis_util;

use std::cell::Cell;

use roost_engine::{CpuId, TaskId, World};
use roost_machine::Machine;
use roost_workload::Workload;

use crate::balance::{Pass, Rules};
use crate::domain::GroupId;
use crate::features::Features;
use crate::state::Fair;
use crate::switches::{Number, Switch};
pub(crate) use consolidate::Wanted;

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

/// What the mechanisms keep during a run.
pub(crate) struct Mechanisms {
    pub numa_imbalance: numa_imbalance::State,
    pub sis_util: sis_util::State,
    pub llc_imbalance: llc_imbalance::State,
    pub cling: cling::State,
    pub consolidate: consolidate::State,
}

impl Mechanisms {
    /// At the start of a run.
    pub(crate) fn new(machine: &Machine, features: &Features) -> Self {
        Self {
            numa_imbalance: numa_imbalance::State::new(features),
            sis_util: sis_util::State::new(features),
            llc_imbalance: llc_imbalance::State::new(features),
            cling: cling::State::new(features),
            consolidate: consolidate::State::new(machine, features),
        }
    }

    /// Name and value of the counters of those that are on.
    pub(crate) fn counters(&self, sink: &mut dyn FnMut(&str, u64)) {
        self.numa_imbalance.counters(sink);
        self.sis_util.counters(sink);
        self.llc_imbalance.counters(sink);
        self.cling.counters(sink);
        self.consolidate.counters(sink);
    }
}

/// How often a mechanism acted in some way. Most decisions only read the state of the class.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally(Cell<u64>);

impl Tally {
    /// Once more, if `acted`; returns that.
    #[inline]
    pub(crate) fn count(&self, acted: bool) -> bool {
        self.0.set(self.0.get() + u64::from(acted));
        acted
    }

    /// So many times more.
    pub(crate) fn add(&self, times: u64) {
        self.0.set(self.0.get() + times);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.get()
    }
}

impl Fair {
    /// A task has been queued on `cpu`.
    #[inline]
    pub(crate) fn on_queued(&mut self, world: &World, cpu: CpuId, task: TaskId) {
        if self.mechanisms.consolidate.active {
            self.count_member(world, cpu, task);
        }
    }

    /// A task has been taken off the queue of `cpu`.
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

    /// Whether a wakeup may bring `task` to the waker's CPU, `this`.
    #[inline]
    pub(crate) fn may_wake_at(&self, world: &World, task: TaskId, this: CpuId) -> bool {
        let prev = world.task_cpu(task);
        !self.stays_on_node(task, self.numa.node(prev), self.numa.node(this))
            && (!self.mechanisms.consolidate.active || self.member_may_wake(world, task, this))
    }

    /// The queue of `group` to take from; `busiest` has most of what the pass counts.
    #[inline]
    pub(crate) fn source_queue(&self, pass: &Pass, busiest: CpuId, group: GroupId) -> CpuId {
        if self.mechanisms.consolidate.active {
            self.most_non_local(pass, busiest, group)
        } else {
            busiest
        }
    }

    /// Which tasks a pull takes first.
    #[inline]
    pub(crate) fn first_wanted(&self, pass: &Pass) -> Wanted {
        if self.mechanisms.consolidate.active { self.first_members(pass) } else { Wanted::Any }
    }

    /// A pull took `taken` tasks: whether it tries again, for other tasks.
    #[inline]
    pub(crate) fn next_wanted(&self, pass: &mut Pass, taken: usize) -> bool {
        pass.wanted != Wanted::Any && self.next_members(pass, taken)
    }

    /// Whether a pull leaves `task` before anything else is asked of it.
    #[inline]
    pub(crate) fn refuses_unasked(&mut self, world: &World, pass: &Pass, task: TaskId) -> bool {
        self.mechanisms.consolidate.is_posted() && !self.is_wanted(world, pass, task)
    }

    /// Whether a pull leaves `task`, which may run at the destination and does not run now.
    #[inline]
    pub(crate) fn refuses(&mut self, world: &World, pass: &Pass, task: TaskId) -> bool {
        !self.mechanisms.consolidate.is_posted() && !self.is_wanted(world, pass, task)
    }

    /// Whether a pull takes `task` although its cache is hot.
    #[inline]
    pub(crate) fn ignores_heat(&self, world: &World, pass: &Pass, task: TaskId) -> bool {
        self.mechanisms.consolidate.active && self.gain_ignores_heat(world, pass, task)
    }

    /// All domains of `cpu` that were due have been balanced, by `executor`.
    #[inline]
    pub(crate) fn on_idle(&mut self, world: &mut World, executor: CpuId, cpu: CpuId) {
        if self.mechanisms.consolidate.active && self.rqs[cpu].nr_running == 0 {
            self.pull_any_member(world, executor, cpu);
        }
    }

    /// The stopper of `src` has sent `task` to an idle CPU that asked for it, or could not.
    pub(crate) fn on_sent(&mut self, world: &World, src: CpuId, task: TaskId, sent: bool) {
        self.member_pulled(world, src, task, sent);
    }

    /// A pass by `rules` found nothing to even out; `finds` tells whether by others it would have. What
    /// would have moved without a mechanism's tolerance, the mechanism has left alone.
    pub(crate) fn note_balance(&self, rules: &Rules, finds: impl Fn(&Rules) -> bool) {
        self.mechanisms.numa_imbalance.note_balance(rules, &finds);
        self.mechanisms.llc_imbalance.note_balance(rules, &finds);
    }
}
