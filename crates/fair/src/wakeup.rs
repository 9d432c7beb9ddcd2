//! Where a woken task goes: `select_task_rq_fair`, fast path (sections 7.1 and 7.2).
//!
//! ```text
//! one allowed CPU ──────────────────────────────────────────────► that CPU
//! record_wakee, wake_wide ─┬ wide, or the waker's CPU is not allowed ─ target = prev ─┐
//!                          └ affine ─ lowest domain of the waker's CPU with prev ─────┤
//!                                     wake_affine: this CPU or prev                   │
//! select_idle_sibling(prev, target) ◄─────────────────────────────────────────────────┘
//! ```
//!
//! No domain has BALANCE_WAKE, so a wakeup never takes the slow path of `fork.rs`. Not modelled:
//! the shortcut for per-CPU kernel threads as wakers (workloads have none) and everything that
//! asymmetric capacity or an energy model adds.

use roost_engine::{CpuId, TaskId, Wake, World};
use roost_machine::Machine;

use crate::domain::Flags;
use crate::state::{Fair, LINES_PER_QUEUE};

/// How often a task changed its wakee. `wake_wide` recognises a server with many clients by it.
#[derive(Clone, Debug, Default)]
pub(crate) struct WakeeFlips {
    /// The task it last woke (`last_wakee`).
    last_wakee: Option<TaskId>,
    /// Number of changes, halved at most once a second (`wakee_flips`).
    flips: u64,
    /// Jiffy of the last halving (`wakee_flip_decay_ts`).
    decayed: u64,
}

impl WakeeFlips {
    /// Records a wakeup of `wakee` at `jiffies`. `hz` is the number of jiffies per second.
    fn record(&mut self, wakee: TaskId, jiffies: u64, hz: u64) {
        // Halved only once, however much time has passed: the kernel has no loop here.
        if jiffies > self.decayed + hz {
            self.flips >>= 1;
            self.decayed = jiffies;
        }
        if self.last_wakee != Some(wakee) {
            self.last_wakee = Some(wakee);
            self.flips += 1;
        }
    }
}

/// `wake_wide`: the busier task of the pair flips at least `llc_size` times as often as the other,
/// and the other flips at least `llc_size` times. Pulling all of them to the waker would pile them
/// up.
fn is_wide(waker_flips: u64, wakee_flips: u64, llc_size: u64) -> bool {
    let master = waker_flips.max(wakee_flips);
    let slave = waker_flips.min(wakee_flips);
    slave >= llc_size && master >= slave * llc_size
}

/// The run queues that a wakeup has read so far, and the time for that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lines {
    /// The CPU that reads.
    pub cpu: CpuId,
    /// The run queue read last. Its lines are still in the cache.
    last: CpuId,
    /// Time to fetch all lines, ns.
    pub ns: u64,
    /// Whether the line shared by the CPUs of an LLC was fetched.
    shared: bool,
}

impl Lines {
    /// For a search by `cpu`. Its own run queue costs nothing.
    pub fn new(cpu: CpuId) -> Self {
        Self { cpu, last: cpu, ns: 0, shared: false }
    }

    /// Reads the run queue of `cpu`. The fast checks read prev several times and one other CPU, so
    /// remembering the last one is enough to pay for each only once.
    pub fn look(&mut self, machine: &Machine, cpu: CpuId) {
        if cpu != self.last && cpu != self.cpu {
            self.ns += LINES_PER_QUEUE * machine.line_ns(cpu, self.cpu);
            self.last = cpu;
        }
    }

    /// Accesses the line shared by the CPUs of an LLC, last written by `writer`. Paid for once per
    /// search.
    pub fn fetch_shared(&mut self, machine: &Machine, writer: CpuId) {
        if !self.shared && writer != self.cpu {
            self.ns += machine.line_ns(writer, self.cpu);
        }
        self.shared = true;
    }
}

/// Loads that `wake_affine_weight` compares.
#[derive(Clone, Copy, Debug)]
struct AffineLoads {
    /// Load of the waker's CPU (`cpu_load`).
    this: u64,
    /// Load of the CPU where the task last ran.
    prev: u64,
    /// Load of the waker, if the wakeup is synchronous: the waker is about to sleep.
    leaving: Option<u64>,
    /// Load of the wakee.
    wakee: u64,
    /// imbalance_pct of the domain.
    imbalance_pct: u32,
    /// Capacity of the waker's CPU, and of prev.
    capacities: [u64; 2],
}

impl AffineLoads {
    /// WA_WEIGHT with WA_BIAS: whether the waker's CPU would have less load than prev. Each side is
    /// scaled by the other CPU's capacity. The 1 by which a synchronous wakeup
    /// favours the waker's CPU is applied after that and decides only ties.
    fn prefer_this(&self) -> bool {
        if self.leaving.is_some_and(|leaving| leaving > self.this) {
            return true;
        }
        let this = self.this - self.leaving.unwrap_or(0) + self.wakee;
        // Blocked load decays at different times: the wakee's load may exceed what is left on prev.
        let prev = i128::from(self.prev) - i128::from(self.wakee);
        let [this_capacity, prev_capacity] = self.capacities.map(i128::from);
        let this = i128::from(this) * 100 * prev_capacity;
        let bias = 100 + (i128::from(self.imbalance_pct) - 100) / 2;
        let prev = prev * bias * this_capacity + i128::from(self.leaving.is_some());
        this < prev
    }
}

impl Fair {
    /// Chooses a CPU for the wakee `task`. Charges the search to the waker's CPU.
    pub(crate) fn select_task_rq(&mut self, world: &mut World, task: TaskId, wake: Wake) -> CpuId {
        if world.on_cpu(task)
            && let Some(cpu) = self.wake_on_cpu(world, task, wake.cpu)
        {
            self.count_remote_wakeup(wake.cpu, cpu);
            return cpu;
        }
        if world.nr_allowed(task) == 1 {
            let only = world.allowed(task).first().unwrap_or(wake.cpu);
            self.count_remote_wakeup(wake.cpu, only);
            return only;
        }
        let mut lines = Lines::new(wake.cpu);
        let cpu = if self.features.placement.affine_by_weights {
            self.select_task_rq_by_weights(world, task, wake, &mut lines)
        } else {
            self.select_near(world, task, wake, &mut lines)
        };
        world.charge(wake.cpu, lines.ns);
        let cpu = allowed_or_fallback(world, task, cpu);
        self.count_remote_wakeup(wake.cpu, cpu);
        cpu
    }

    /// If the wakee's CPU has not yet switched away from it: since 5.8 the wakee is left to that
    /// CPU (`ttwu_queue_wakelist()`). Before 5.8, and if the wakee may no longer run there, the
    /// waker spins until the CPU has switched. In the simulation it spins until that CPU ends its
    /// current kernel work.
    fn wake_on_cpu(&self, world: &mut World, task: TaskId, waker: CpuId) -> Option<CpuId> {
        let cpu = world.task_cpu(task);
        if self.features.placement.leaves_wakee_on_cpu && world.allowed(task).contains(cpu) {
            return Some(cpu);
        }
        world.spend(waker, world.backlog_ns(cpu));
        None
    }

    /// Chooses the waker's CPU or prev, and searches for an idle CPU near it.
    fn select_near(&mut self, world: &World, task: TaskId, wake: Wake, lines: &mut Lines) -> CpuId {
        self.record_wakee(world, task, wake);
        let prev = world.task_cpu(task);
        let affine = self.wants_affine(world, task, wake);
        let target = if affine { self.affine_target(world, task, wake, prev, lines) } else { prev };
        let cpu = self.select_idle_sibling(world, task, prev, target, lines);
        // 5.2: the waker sets its own CPU as recently used, for its own next wakeup.
        if affine
            && self.features.placement.waker_marks_own_cpu
            && let Some(waker) = wake.waker
        {
            self.tasks[waker.index()].recent_used_cpu = wake.cpu;
        }
        cpu
    }

    /// The waker records its wakee (`record_wakee`). On an idle CPU the idle task is the waker.
    fn record_wakee(&mut self, world: &World, wakee: TaskId, wake: Wake) {
        let jiffies = self.jiffies(world.now());
        let hz = u64::from(self.features.hz);
        let flips = match wake.waker {
            Some(waker) => &mut self.tasks[waker.index()].wakees,
            None => &mut self.rqs[wake.cpu].idle_wakees,
        };
        flips.record(wakee, jiffies, hz);
    }

    /// Whether the waker's CPU is a candidate at all (`want_affine`).
    fn wants_affine(&self, world: &World, wakee: TaskId, wake: Wake) -> bool {
        let waker_flips = match wake.waker {
            Some(waker) => self.tasks[waker.index()].wakees.flips,
            None => self.rqs[wake.cpu].idle_wakees.flips,
        };
        let wakee_flips = self.tasks[wakee.index()].wakees.flips;
        !is_wide(waker_flips, wakee_flips, u64::from(self.topology.llc_size(wake.cpu)))
            && world.allowed(wakee).contains(wake.cpu)
            && self.may_wake_at(world, wakee, wake.cpu)
    }

    /// The domain walk of `select_task_rq_fair`: the lowest domain of the waker's CPU that allows
    /// affine wakeups and holds prev decides between the two CPUs.
    fn affine_target(
        &mut self,
        world: &World,
        task: TaskId,
        wake: Wake,
        prev: CpuId,
        lines: &mut Lines,
    ) -> CpuId {
        if wake.cpu == prev {
            return prev;
        }
        let domains = self.topology.domains_of(wake.cpu).iter().map(|&id| self.topology.domain(id));
        let affine = domains
            .enumerate()
            .find(|(_, domain)| domain.has(Flags::WAKE_AFFINE) && domain.span.contains(prev));
        let Some((level, domain)) = affine else { return prev };
        let imbalance_pct = domain.imbalance_pct;
        self.stats.nr_wakeups_affine_attempts += 1;
        if !self.wake_affine(world, task, wake, prev, imbalance_pct, lines) {
            return prev;
        }
        self.stats.nr_wakeups_affine += 1;
        let level = self.topology.stat_level(wake.cpu, level);
        self.stats.levels[level].ttwu_move_affine += 1;
        wake.cpu
    }

    /// `wake_affine`: whether the search begins at the waker's CPU, not at prev.
    fn wake_affine(
        &self,
        world: &World,
        task: TaskId,
        wake: Wake,
        prev: CpuId,
        imbalance_pct: u32,
        lines: &mut Lines,
    ) -> bool {
        if let Some(this) = self.wake_affine_idle(world, wake, prev, lines) {
            return this;
        }
        lines.look(world.machine(), prev);
        let leaving = match wake.waker {
            Some(waker) if wake.sync => Some(self.task_load(waker)),
            _ => wake.sync.then_some(0),
        };
        let loads = AffineLoads {
            this: self.cpu_load(wake.cpu),
            prev: self.cpu_load(prev),
            leaving,
            wakee: self.task_load(task),
            imbalance_pct,
            capacities: [wake.cpu, prev].map(|cpu| self.rqs[cpu].capacity),
        };
        loads.prefer_this()
    }

    /// WA_IDLE: decides by which CPU is idle; `None` if neither is.
    fn wake_affine_idle(
        &self,
        world: &World,
        wake: Wake,
        prev: CpuId,
        lines: &mut Lines,
    ) -> Option<bool> {
        // The waker's CPU can be idle if an interrupt wakes the task. Then the data is not in its
        // caches either, and prev is as good if both share the LLC.
        if world.is_idle(wake.cpu) && self.topology.share_llc(wake.cpu, prev) {
            lines.look(world.machine(), prev);
            return Some(!world.is_idle(prev));
        }
        if wake.sync && self.rqs[wake.cpu].nr_runnable == 1 {
            return Some(true);
        }
        if !self.features.placement.affine_to_idle_prev {
            return None;
        }
        lines.look(world.machine(), prev);
        world.is_idle(prev).then_some(false)
    }

    /// Counts a wakeup on another CPU than the waker's, at the lowest domain that holds both
    /// (`ttwu_stat`).
    #[inline]
    pub(crate) fn count_remote_wakeup(&mut self, waker_cpu: CpuId, cpu: CpuId) {
        if waker_cpu != cpu {
            self.count_wakeup_at_level(waker_cpu, cpu);
        }
    }

    /// [`Fair::count_remote_wakeup`] if the two CPUs differ.
    fn count_wakeup_at_level(&mut self, waker_cpu: CpuId, cpu: CpuId) {
        let mut domains = self.topology.domains_of(waker_cpu).iter();
        if let Some(level) = domains.position(|&id| self.topology.domain(id).span.contains(cpu)) {
            let level = self.topology.stat_level(waker_cpu, level);
            self.stats.levels[level].ttwu_wake_remote += 1;
        }
    }
}

/// `cpu` if the task may run there. Otherwise `select_fallback_rq`: an allowed CPU of the node it
/// last ran on, or any allowed CPU. Prev may be forbidden if the affinity changed while the task
/// slept.
pub(crate) fn allowed_or_fallback(world: &World, task: TaskId, cpu: CpuId) -> CpuId {
    let allowed = world.allowed(task);
    if allowed.contains(cpu) {
        return cpu;
    }
    let machine = world.machine();
    let node = machine.cpus[world.task_cpu(task)].node;
    let on_node = allowed.iter().find(|&cpu| machine.cpus[cpu].node == node);
    on_node.or_else(|| allowed.first()).unwrap_or(cpu)
}

#[cfg(test)]
mod tests;
