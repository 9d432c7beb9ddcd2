//! Balancing: moving tasks between CPUs other than at wakeup and fork (kernel model, sections 9
//! and 10).
//!
//! ```text
//!  tick ──────────────► periodic pass per domain, when its interval is over    ┐
//!  tick ─ kick ───────► nohz: periodic pass for every tickless idle CPU        ├─► pass
//!  pick finds nothing ► newly-idle pass per domain, if the idle time is enough ┘
//!
//!  pass: election ─ busiest group ─ imbalance ─ busiest queue ─ detach, attach, or active balance
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`capacity`] | what interrupts leave of CPUs and groups |
//! | [`groups`] | statistics and classification of groups; the busiest group |
//! | [`llc`] | which tasks may move between LLCs, for cache-aware scheduling |
//! | [`imbalance`] | whether two groups are out of balance, and by how much |
//! | [`pass`] | one pass over one domain for one CPU, its retries and failures |
//! | [`detach`] | the busiest queue, and which of its tasks may move |
//! | [`active`] | active balance: a stopper pushes the running task away |
//! | [`newidle`] | newly-idle balancing and its gates |
//! | [`nohz`] | balancing and load refresh for tickless idle CPUs |
//!
//! This file has the common parts, and periodic balancing. Decisions are pure functions of small
//! structures. Only interrupts reduce the capacity of a CPU ([`capacity`]). Rules for asymmetric
//! capacity (asym_packing) are left out.

mod active;
mod capacity;
mod detach;
mod groups;
mod imbalance;
mod llc;
mod newidle;
mod nohz;
mod pass;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use imbalance::tests as imbalance_tests;
pub(crate) use imbalance::{Imbalance, Migration, Rules};
pub(crate) use newidle::{Pulled, Search};
pub(crate) use pass::Pass;

use std::ops::Range;

use roost_engine::{CpuId, TaskId, Time, World};
use roost_machine::CpuSet;

use crate::domain::{Domain, DomainId, Flags, GroupId, Topology};
use crate::state::{DomainState, Fair, LINES_PER_QUEUE};
use crate::stats::IdleType;

/// Full capacity of one CPU (SCHED_CAPACITY_SCALE).
const CAPACITY: u64 = 1024;

/// Longest time between two balances of a CPU, s, whatever its domains' intervals are
/// (`rebalance_domains`: 60 * HZ).
const LONGEST_PAUSE_S: u64 = 60;

/// Cache lines fetched to refresh the blocked load of another CPU. A CPU's own lines cost nothing.
/// Assumption: one line.
const LINES_PER_REFRESH: u64 = 1;

/// Cache lines fetched to take the lock of a remote run queue. Assumption: the line of the lock.
const LINES_PER_LOCK: u64 = 1;

/// Cache lines fetched to examine a task for a move. Assumption: the task's own line.
pub(crate) const LINES_PER_TASK: u64 = 1;

/// More cache lines for a task that is moved. Assumption: its entity, and the neighbour of the
/// entity in the old queue.
const LINES_PER_MOVE: u64 = 2;

/// State of balancing beside the state of each domain.
pub(crate) struct Balancer {
    /// For each group: balancing inside it failed because of affinity (`sgc->imbalance`).
    group_imbalance: Vec<bool>,
    /// For each group: its capacity (`sgc->capacity`).
    group_capacity: Vec<capacity::GroupCapacity>,
    /// For each group: the words of its CPU set from the first to the last non-zero word. On large
    /// machines most words are 0, and reading them costs more than examining the CPUs.
    group_words: Vec<Range<usize>>,
    /// End of the pass that holds the lock of SERIALIZE levels (`sched_balance_running`).
    serialized_until: Time,
    /// Time to examine all run queues of a domain, ns, by domain and examining CPU.
    /// [`UNKNOWN_COST`] until it is first needed.
    examination_ns: Vec<u64>,
    /// CPUs that the current pass considers (`env->cpus`).
    candidates: CpuSet,
    /// Tasks that the current pass has detached and not yet attached.
    detached: Vec<TaskId>,
    /// Kernel work done and not yet charged, ns.
    unpaid_ns: u64,
}

/// A cost that has not been computed yet.
const UNKNOWN_COST: u64 = u64::MAX;

impl Balancer {
    /// The state at the start of a run on a machine with these domains.
    pub(crate) fn new(topology: &Topology) -> Self {
        let nr_cpus = topology.of_cpu.len();
        Self {
            group_imbalance: vec![false; topology.groups.len()],
            group_capacity: capacity::full(topology),
            group_words: topology.groups.iter().map(|group| words_of(&group.span)).collect(),
            serialized_until: Time(0),
            examination_ns: vec![UNKNOWN_COST; topology.domains.len() * nr_cpus],
            candidates: CpuSet::new(nr_cpus),
            detached: Vec::new(),
            unpaid_ns: 0,
        }
    }

    /// Whether balancing inside `group` failed because of affinity.
    #[inline]
    pub(crate) fn is_imbalanced(&self, group: GroupId) -> bool {
        self.group_imbalance[group]
    }

    /// The CPUs of `group`, whose set is `span`, that the current pass considers, in order.
    #[inline]
    pub(crate) fn considered<'a>(
        &'a self,
        group: GroupId,
        span: &'a CpuSet,
    ) -> impl Iterator<Item = CpuId> + use<'a> {
        let words = self.group_words[group].clone();
        let masks = span.words()[words.clone()].iter().zip(&self.candidates.words()[words.clone()]);
        words.zip(masks).flat_map(|(word, (span, considered))| bits(word, span & considered))
    }

    /// Calls `each` for the CPUs of [`Balancer::considered`]. It is inlined; nested iterators are
    /// not.
    #[inline(always)]
    pub(crate) fn for_each_considered(
        &self,
        group: GroupId,
        span: &CpuSet,
        mut each: impl FnMut(CpuId),
    ) {
        let words = self.group_words[group].clone();
        let masks = span.words()[words.clone()].iter().zip(&self.candidates.words()[words.clone()]);
        for (word, (span, considered)) in words.zip(masks) {
            let mut left = span & considered;
            while left != 0 {
                each((word << 6) + left.trailing_zeros() as usize);
                left &= left - 1;
            }
        }
    }

    /// How many of the CPUs of [`Balancer::considered`] are in `set`.
    #[inline]
    pub(crate) fn nr_considered_in(&self, group: GroupId, span: &CpuSet, set: &CpuSet) -> u32 {
        let words = self.group_words[group].clone();
        let masks = span.words()[words.clone()].iter().zip(&self.candidates.words()[words.clone()]);
        let masks = masks.zip(&set.words()[words]);
        masks.map(|((span, considered), set)| (span & considered & set).count_ones()).sum()
    }

    /// Records that `executor` fetched `lines` cache lines from `from`, to be paid later.
    #[inline]
    pub(crate) fn fetch(&mut self, world: &World, from: CpuId, executor: CpuId, lines: u64) {
        self.unpaid_ns += lines * world.machine().line_ns(from, executor);
    }

    /// Charges the recorded work to `executor`.
    #[inline]
    pub(crate) fn pay(&mut self, world: &mut World, executor: CpuId) {
        world.charge(executor, std::mem::take(&mut self.unpaid_ns));
    }

    /// The time at which the recorded work ends on `executor`.
    #[inline]
    fn clock(&self, world: &World, executor: CpuId) -> Time {
        world.now() + world.backlog_ns(executor) + self.unpaid_ns
    }
}

/// The range of words of a set from the first to the last non-zero word.
fn words_of(set: &CpuSet) -> Range<usize> {
    let first = set.words().iter().position(|&word| word != 0).unwrap_or(0);
    let end = set.words().iter().rposition(|&word| word != 0).map_or(first, |last| last + 1);
    first..end
}

/// The CPUs of one word of a set, in order.
#[inline]
fn bits(word: usize, mut bits: u64) -> impl Iterator<Item = CpuId> {
    std::iter::from_fn(move || {
        if bits == 0 {
            return None;
        }
        let cpu = (word << 6) + bits.trailing_zeros() as usize;
        bits &= bits - 1;
        Some(cpu)
    })
}

impl DomainState {
    /// The state of `domain` at the start of a run, for one of its CPUs.
    pub(crate) fn new(domain: &Domain) -> Self {
        Self {
            balance_interval: domain.min_interval_ms,
            newidle_ratio: newidle::INITIAL_RATIO,
            newidle_call: newidle::INITIAL_CALLS,
            newidle_success: newidle::INITIAL_SUCCESSES,
            ..Self::default()
        }
    }
}

/// Milliseconds in jiffies, rounded up (`msecs_to_jiffies`).
pub(crate) fn ms_to_jiffies(ms: u64, hz: u32) -> u64 {
    (ms * u64::from(hz)).div_ceil(1000)
}

/// How a busy CPU's interval differs from an idle CPU's.
#[derive(Clone, Copy, Debug)]
struct Busy {
    /// Factor by which the interval is longer.
    factor: u32,
    /// Jiffies subtracted, so that levels are not due at the same time: 1, in 5.2 and 3.9 0.
    less: u64,
}

/// Jiffies between two passes (`get_sd_balance_interval`, section 9.1). `busy` is `None` for an
/// idle CPU.
fn interval_jiffies(interval_ms: u32, busy: Option<Busy>, hz: u32, nr_cpus: usize) -> u64 {
    let Busy { factor, less } = busy.unwrap_or(Busy { factor: 1, less: 0 });
    let interval_ms = u64::from(interval_ms) * u64::from(factor);
    let jiffies = ms_to_jiffies(interval_ms, hz).saturating_sub(less);
    let longest = (u64::from(hz) * nr_cpus as u64 / 10).max(1);
    jiffies.clamp(1, longest)
}

/// Decays the highest cost of a newly-idle pass once a second. Returns whether it did (section
/// 9.2).
fn decay_newidle_cost(state: &mut DomainState, jiffies: u64, hz: u32) -> bool {
    let due = jiffies > state.last_decay + u64::from(hz);
    if due {
        state.max_newidle_lb_cost = state.max_newidle_lb_cost * 253 / 256;
        state.last_decay = jiffies;
    }
    due
}

impl Fair {
    /// The balancing part of a tick on `cpu`: balances if one of its domains is due.
    pub(crate) fn balance_if_due(&mut self, world: &mut World, cpu: CpuId) {
        if self.jiffies(world.now()) >= self.rqs[cpu].next_balance {
            let idle = if world.is_idle(cpu) { IdleType::Idle } else { IdleType::Busy };
            self.balance_domains(world, cpu, cpu, idle);
            self.balance.pay(world, cpu);
        }
    }

    /// The tick that an idle CPU keeps: balances for the CPU if a domain is due. If the CPU is then
    /// still idle, its tick stops.
    pub(crate) fn balance_in_idle_tick(&mut self, world: &mut World, cpu: CpuId) {
        let figures = &world.machine().figures;
        let cost = figures.idle_exit_ns.value + figures.tick_ns.value;
        world.charge(cpu, cost);
        if world.is_idle(cpu) && self.jiffies(world.now()) >= self.rqs[cpu].next_balance {
            self.refresh_blocked(world, cpu, cpu);
            self.balance_domains(world, cpu, cpu, IdleType::Idle);
            self.balance.pay(world, cpu);
        }
        if world.is_idle(cpu) {
            self.nohz_enter_idle(world, cpu);
        }
    }

    /// Balances every domain of `cpu` that is due, bottom up. `executor` does the work.
    pub(crate) fn balance_domains(
        &mut self,
        world: &mut World,
        executor: CpuId,
        cpu: CpuId,
        idle: IdleType,
    ) {
        let (now, hz) = (self.jiffies(world.now()), self.features.hz);
        let mut next = now + LONGEST_PAUSE_S * u64::from(hz);
        let mut idle = idle;
        let (mut go_on, mut decayed, mut total_cost) = (true, false, 0);
        for level in 0..self.rqs[cpu].domains.len() {
            let state = &mut self.rqs[cpu].domains[level];
            decayed = decay_newidle_cost(state, now, hz);
            total_cost += state.max_newidle_lb_cost;
            if !go_on {
                if decayed {
                    continue;
                }
                break;
            }
            let last = self.rqs[cpu].domains[level].last_balance;
            let busy = self.counts_as_busy(cpu, idle);
            let mut interval = self.balance_interval(cpu, level, busy);
            if now >= last + interval
                && let Some(verdict) = self.balance_level(world, executor, cpu, level, idle)
            {
                go_on = verdict.go_on;
                if verdict.moved > 0 {
                    idle = if world.is_idle(cpu) { IdleType::Idle } else { IdleType::Busy };
                }
                self.rqs[cpu].domains[level].last_balance = now;
                if self.features.balance.interval_after_pass {
                    let busy = self.counts_as_busy(cpu, idle);
                    interval = self.balance_interval(cpu, level, busy);
                }
            }
            let last = self.rqs[cpu].domains[level].last_balance;
            next = next.min(last + interval);
        }
        if decayed && self.features.balance.newidle_costs {
            self.rqs[cpu].max_idle_balance_cost = total_cost.max(self.migration_cost_ns());
        }
        self.rqs[cpu].next_balance = next;
        self.on_idle(world, executor, cpu);
    }

    /// One periodic pass; `None` if the level is serialized and another CPU holds the lock.
    fn balance_level(
        &mut self,
        world: &mut World,
        executor: CpuId,
        cpu: CpuId,
        level: usize,
        idle: IdleType,
    ) -> Option<pass::Verdict> {
        let serialize = self.domain_of(cpu, level).has(Flags::SERIALIZE);
        let outside = serialize && !self.features.balance.serialize_inside;
        if outside && self.serialized(world, executor) {
            return None;
        }
        let verdict = self.load_balance(world, executor, cpu, level, idle);
        if outside {
            self.balance.serialized_until = self.balance.clock(world, executor);
        }
        Some(verdict)
    }

    /// Whether another pass holds the lock of SERIALIZE levels when `executor` asks for it.
    #[inline]
    fn serialized(&self, world: &World, executor: CpuId) -> bool {
        self.balance.clock(world, executor) < self.balance.serialized_until
    }

    /// Whether the intervals of a busy CPU apply: it runs other tasks than SCHED_IDLE ones.
    #[inline]
    fn counts_as_busy(&self, cpu: CpuId, idle: IdleType) -> bool {
        idle != IdleType::Idle && !self.sched_idle_cpus.contains(cpu)
    }

    /// The current number of jiffies between passes of `cpu` at `level`.
    pub(crate) fn balance_interval(&self, cpu: CpuId, level: usize, busy: bool) -> u64 {
        let interval_ms = self.rqs[cpu].domains[level].balance_interval;
        let less = u64::from(self.features.balance.busy_interval_less_one);
        let busy = busy.then(|| Busy { factor: self.domain_of(cpu, level).busy_factor, less });
        interval_jiffies(interval_ms, busy, self.features.hz, self.rqs.len())
    }

    /// How long a task counts as cache-hot, and the least cost of balancing a newly idle CPU, ns
    /// (`sysctl_sched_migration_cost`).
    #[inline]
    pub(crate) fn migration_cost_ns(&self) -> u64 {
        self.features.tunables.migration_cost_ns.into()
    }

    /// The domain of `cpu` at `level`.
    #[inline]
    fn domain_of(&self, cpu: CpuId, level: usize) -> &Domain {
        self.topology.domain(self.topology.domains_of(cpu)[level])
    }

    /// Updates the blocked load of an idle CPU to now. `executor` does the work.
    fn refresh_blocked(&mut self, world: &mut World, executor: CpuId, cpu: CpuId) {
        self.balance.fetch(world, cpu, executor, LINES_PER_REFRESH);
        self.update_blocked(world, cpu);
        if self.features.switches.irq_time {
            self.rqs[cpu].clock.irq.update(world.now().ns(), 0);
        }
        self.rqs[cpu].blocked_update = self.jiffies(world.now());
    }

    /// Time for `executor` to examine the run queues of all CPUs of a domain, ns.
    fn examination_ns(&mut self, world: &World, domain: DomainId, executor: CpuId) -> u64 {
        let index = domain * self.rqs.len() + executor;
        if self.balance.examination_ns[index] == UNKNOWN_COST {
            let others = self.topology.domain(domain).span.iter().filter(|&cpu| cpu != executor);
            let lines = others.map(|cpu| world.machine().line_ns(cpu, executor));
            self.balance.examination_ns[index] = LINES_PER_QUEUE * lines.sum::<u64>();
        }
        self.balance.examination_ns[index]
    }
}
