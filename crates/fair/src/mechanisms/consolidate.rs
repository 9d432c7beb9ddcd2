//! `consolidate`: gathers each process on as few nodes as the load allows (kernel model, section
//! 14.5; the decisions are `roost/consolidate.h`).
//!
//! ```text
//! enqueue, dequeue ► counts tasks of the process by node; is most of the process here?
//! wakeup ──────────► moves a task to the waker only if the process gains
//! pull, push ──────► first tasks that join more tasks of their process, then any tasks
//! CPU stays idle ──► pulls one task of a process that is mostly on its node
//! ```
//!
//! There are two forms: as intended, and [`Consolidation::Posted`] as in the patches of 2013-07-30
//! where they contradict their own text. On versions with delayed dequeue a sleeper counts until it
//! leaves the queue.

use roost_engine::{CpuId, TaskId, Work, World};
use roost_machine::Machine;
use roost_policy::consolidate::{self as policy, Benefit, Here, Other, Side};
use roost_workload::Workload;

use super::{Mechanism, Tally};
use crate::balance::{LINES_PER_TASK, Pass};
use crate::domain::GroupId;
use crate::features::Features;
use crate::numa::NumaPush;
use crate::state::Fair;
use crate::switches::{Number, Switch};

/// The mechanism.
pub(super) const MECHANISM: Mechanism = Mechanism {
    name: "consolidate",
    switches: &SWITCHES,
    numbers: &NUMBERS,
    acted: &["consolidate_held", "consolidate_first", "consolidate_pulled"],
    counters: &COUNTERS,
    keeps_tasks: true,
    needs: "a machine of several NUMA nodes",
    is_on: |features| features.mechanisms.consolidate != Consolidation::Off,
    can_act: |machine: &Machine, _: &Workload| machine.nodes.len() > 1,
};

const COUNTERS: [(&str, &str); 4] = [
    ("consolidate_asked", "times that an idle CPU looked for a task to pull to its process"),
    ("consolidate_pulled", "tasks that an idle CPU pulled"),
    ("consolidate_held", "wakeups that were kept from moving a task to the waker's CPU"),
    (
        "consolidate_first",
        "tasks that balancing preferred because more of their process is at the destination",
    ),
];

const SWITCHES: [Switch; 2] = [
    Switch {
        name: "consolidate",
        about: "gather each process on as few nodes as the load allows",
        since: "3.9",
        set: |features, on| features.mechanisms.consolidate = Consolidation::Intended.or_off(on),
    },
    Switch {
        name: "consolidate-posted",
        about: "the same as the posted code does it, where that differs from its text",
        since: "3.9",
        set: |features, on| features.mechanisms.consolidate = Consolidation::Posted.or_off(on),
    },
];

const NUMBERS: [Number; 1] = [Number {
    name: "consolidate-seq",
    about: "consolidate: passes during which a task pulled on purpose is left alone",
    unit: "passes",
    least: 0,
    most: 1000,
    since: "3.9",
    until: None,
    unset: "",
    source: "migrate_seq (roost/consolidate.h)",
    file: None,
    set: |features, passes| features.mechanisms.consolidate_seq = passes,
    get: |features| Some(features.mechanisms.consolidate_seq),
}];

/// The number in the posted patches.
pub(super) const SEQ: u32 = policy::SEQ;

/// Which form of consolidation is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consolidation {
    /// None.
    Off,
    /// As the patches' text says.
    Intended,
    /// As the posted code does.
    Posted,
}

impl Consolidation {
    fn or_off(self, on: bool) -> Self {
        if on { self } else { Self::Off }
    }
}

/// Which tasks a pull takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Any task.
    #[default]
    Any,
    /// Tasks that join more tasks of their process.
    Gaining,
    /// Tasks that were not pulled on purpose a short time ago.
    Unplaced,
}

/// Counts of a process's tasks.
#[derive(Clone, Debug, Default)]
struct Weights {
    /// Runnable tasks by node.
    on: Vec<u32>,
    total: u32,
    /// Pulls from each node that are now under way.
    limit: Vec<u32>,
}

/// Membership of a task.
#[derive(Clone, Copy, Debug, Default)]
struct Member {
    process: u32,
    /// The node on which it is counted.
    on: Option<u16>,
    /// It is counted in `non_local` of its queue.
    non_local: bool,
    pinned: bool,
    migrate_seq: u32,
}

/// The state of consolidation.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// Whether it is on and there are several nodes.
    pub active: bool,
    posted: bool,
    nodes: usize,
    /// Processes, by number.
    processes: Vec<Weights>,
    members: Vec<Member>,
    /// By CPU: number of tasks on its queue that are on a node with too little of their process.
    pub non_local: Vec<u32>,
    /// Wakeups that it kept away from the waker's CPU.
    kept: Tally,
    /// Tasks that joined more tasks of their process because balancing took these first.
    gathered: Tally,
    /// Pulls by idle CPUs: number asked for, and number done.
    asked: u64,
    pulled: u64,
}

impl State {
    /// At the start of a run.
    pub(super) fn new(machine: &Machine, features: &Features) -> Self {
        let (form, nodes) = (features.mechanisms.consolidate, machine.nodes.len());
        let active = form != Consolidation::Off && nodes > 1;
        let posted = form == Consolidation::Posted;
        let non_local = vec![0; if active { machine.nr_cpus() } else { 0 }];
        Self { active, posted, nodes, non_local, ..Self::default() }
    }

    /// `non_local` of a CPU: the stored value, and the value recomputed from the tasks on its
    /// queue.
    pub(super) fn counted(
        &self,
        cpu: CpuId,
        tasks: impl Iterator<Item = TaskId>,
    ) -> Option<(u32, u32)> {
        let counts = |task: &TaskId| self.members.get(task.index()).is_some_and(|m| m.non_local);
        let found = tasks.filter(counts).count();
        self.non_local.get(cpu).map(|&kept| (kept, found as u32))
    }

    /// Name and value of its counters.
    pub(super) fn counters(&self, sink: &mut dyn FnMut(&str, u64)) {
        if self.active {
            sink("consolidate_asked", self.asked);
            sink("consolidate_pulled", self.pulled);
            sink("consolidate_held", self.kept.get());
            sink("consolidate_first", self.gathered.get());
        }
    }

    /// Whether it is on, as posted. That form refuses tasks before any other check. If it refuses
    /// all tasks of a queue, they seem pinned (`preferred_node()` in `move_tasks()`, patch 3).
    pub(super) fn is_posted(&self) -> bool {
        self.active && self.posted
    }

    fn process(&mut self, process: u32) -> &mut Weights {
        let index = process as usize;
        if self.processes.len() <= index {
            self.processes.resize_with(index + 1, Weights::default);
        }
        let weights = &mut self.processes[index];
        if weights.on.is_empty() {
            (weights.on, weights.limit) = (vec![0; self.nodes], vec![0; self.nodes]);
        }
        weights
    }

    fn weight(&self, process: u32, node: usize) -> u32 {
        let weights = self.processes.get(process as usize);
        weights.and_then(|weights| weights.on.get(node)).copied().unwrap_or(0)
    }

    fn total(&self, process: u32) -> u32 {
        self.processes.get(process as usize).map_or(0, |weights| weights.total)
    }
}

impl Fair {
    /// A task was queued on `cpu`.
    pub(crate) fn count_member(&mut self, world: &World, cpu: CpuId, task: TaskId) {
        let node = self.numa.node_of[cpu];
        let process = world.process(task);
        let state = &mut self.mechanisms.consolidate;
        let weights = state.process(process);
        weights.on[usize::from(node)] += 1;
        weights.total += 1;
        if state.members.len() <= task.index() {
            state.members.resize_with(task.index() + 1, Member::default);
        }
        let pinned = world.nr_allowed(task) == 1;
        state.members[task.index()] =
            Member { process, on: Some(node), pinned, ..Member::default() };
        self.judge_member(cpu, task);
    }

    /// A task was taken off the queue of `cpu`.
    pub(crate) fn discount_member(&mut self, cpu: CpuId, task: TaskId) {
        let Some(member) = self.mechanisms.consolidate.members.get_mut(task.index()) else {
            return;
        };
        let gone = std::mem::take(member);
        let Some(node) = gone.on else { return };
        let weights = self.mechanisms.consolidate.process(gone.process);
        weights.on[usize::from(node)] -= 1;
        weights.total -= 1;
        self.mechanisms.consolidate.non_local[cpu] -= u32::from(gone.non_local);
    }

    /// A task on the queue of `cpu` exits. In the posted form its process counts it for ever,
    /// because `exit_mm()` has detached its memory before it leaves the queue.
    pub(crate) fn abandon_member(&mut self, cpu: CpuId, task: TaskId) {
        let Some(member) = self.mechanisms.consolidate.members.get_mut(task.index()) else {
            return;
        };
        let gone = std::mem::take(member);
        self.mechanisms.consolidate.non_local[cpu] -= u32::from(gone.non_local);
    }

    /// Determines whether a task on the queue of `cpu` is on a node with enough of its process.
    /// Called at its arrival and at hinting faults.
    pub(super) fn judge_member(&mut self, cpu: CpuId, task: TaskId) {
        let state = &mut self.mechanisms.consolidate;
        let Some(Member { process, on: Some(node), pinned, non_local, .. }) =
            state.members.get(task.index()).copied()
        else {
            return;
        };
        let weight = state.weight(process, node.into());
        let local = policy::local(weight, state.nodes as u32, state.total(process));
        let now = !pinned && !local;
        state.members[task.index()].non_local = now;
        let count = &mut state.non_local[cpu];
        *count = *count - u32::from(non_local) + u32::from(now);
    }

    /// How moving `task` from one CPU to another benefits its process.
    fn benefit(&self, world: &World, task: TaskId, dst: CpuId, src: CpuId) -> Benefit {
        let process = world.process(task);
        let side = |cpu: CpuId| Side {
            nr: self.rqs[cpu].nr_running,
            weight: self.mechanisms.consolidate.weight(process, self.numa.node(cpu)),
        };
        policy::benefit(self.mechanisms.consolidate.total(process), side(dst), side(src))
    }

    /// Whether a wakeup may move the task to the waker's CPU.
    pub(super) fn member_may_wake(&self, world: &World, task: TaskId, this: CpuId) -> bool {
        let may = self.benefit(world, task, this, world.task_cpu(task)).may_wake();
        self.mechanisms.consolidate.kept.count(!may);
        may
    }

    /// The tasks that a pull tries first. The posted form compares with the source tried before,
    /// except in a stopper, which knows its source.
    pub(super) fn first_members(&self, pass: &Pass) -> Wanted {
        let node = |cpu: CpuId| u32::from(self.numa.node_of[cpu]);
        let state = &self.mechanisms.consolidate;
        let unset = state.posted && !pass.active;
        match policy::two_passes(unset, node(pass.dst), node(pass.src), node(pass.src_before)) {
            true => Wanted::Gaining,
            false if state.posted => Wanted::Unplaced,
            false => Wanted::Any,
        }
    }

    /// A pull of gaining tasks took `taken` tasks. If it took none, it tries the others.
    pub(super) fn next_members(&self, pass: &mut Pass, taken: usize) -> bool {
        let gaining = pass.wanted == Wanted::Gaining;
        self.mechanisms.consolidate.gathered.add(if gaining { taken as u64 } else { 0 });
        let again = gaining && taken == 0;
        if again {
            pass.wanted = Wanted::Unplaced;
        }
        again
    }

    /// Whether a pull may take `task`, as far as consolidation decides it.
    pub(super) fn is_wanted(&mut self, world: &World, pass: &Pass, task: TaskId) -> bool {
        let (dst, src) = (pass.dst, pass.src);
        let across = self.numa.node_of[dst] != self.numa.node_of[src];
        let posted = self.mechanisms.consolidate.posted;
        match pass.wanted {
            Wanted::Any => true,
            Wanted::Gaining => self.benefit(world, task, dst, src).first_pass(posted, across),
            Wanted::Unplaced => {
                let mut unplaced = 0;
                let member = self.mechanisms.consolidate.members.get_mut(task.index());
                let migrate_seq = member.map_or(&mut unplaced, |member| &mut member.migrate_seq);
                policy::second_pass(posted, across, migrate_seq)
            }
        }
    }

    /// Whether a cache-hot task moves anyway.
    pub(super) fn gain_ignores_heat(&self, world: &World, pass: &Pass, task: TaskId) -> bool {
        let (dst, src) = (pass.dst, pass.src);
        let across = self.numa.node_of[dst] != self.numa.node_of[src];
        let failed = self.rqs[pass.cpu].domains[pass.level].nr_balance_failed;
        let tries = self.topology.domain(pass.domain).cache_nice_tries;
        self.benefit(world, task, dst, src).ignores_heat(across, failed, tries)
    }

    /// The queue to pull from across nodes: the queue with most non-local tasks, of those with
    /// several tasks. `normal` if no queue has more than that one, or if `normal` has one task,
    /// which is then pushed.
    pub(crate) fn most_non_local(&self, pass: &Pass, normal: CpuId, group: GroupId) -> CpuId {
        let across = |cpu: CpuId| self.numa.node_of[cpu] != self.numa.node_of[pass.dst];
        // In the posted form the source is not set yet here. The comparison uses that of the
        // previous try.
        let looks = across(normal) && (!self.mechanisms.consolidate.posted || across(pass.src));
        if !looks || self.rqs[normal].nr_running < 2 {
            return normal;
        }
        let mut best = normal;
        let non_local = &self.mechanisms.consolidate.non_local;
        let cpus = self.balance.considered(group, &self.topology.group(group).span);
        for cpu in cpus.filter(|&cpu| self.rqs[cpu].nr_running > 1) {
            if non_local[cpu] > non_local[best] {
                best = cpu;
            }
        }
        best
    }

    /// `cpu` has nothing to run after balancing. It pulls a task of a process that is mostly on its
    /// node.
    pub(super) fn pull_any_member(&mut self, world: &mut World, executor: CpuId, cpu: CpuId) {
        let node = self.numa.node(cpu);
        let nr = |fair: &Self, node: usize| {
            fair.numa.cpus_of[node].iter().map(|cpu| fair.rqs[cpu].nr_running).sum::<u32>()
        };
        let running: Vec<u32> =
            (0..self.mechanisms.consolidate.nodes).map(|node| nr(self, node)).collect();
        let mut previous = None;
        for neighbour in self.numa.cpus_of[node].clone().iter() {
            let Some(task) = world.current(neighbour) else { continue };
            let process = world.process(task);
            if previous.replace(process) == Some(process) {
                continue;
            }
            if self.pull_member(world, executor, cpu, process, &running) {
                return;
            }
        }
    }

    /// Asks to send a task of `process` to `cpu`. Returns whether there was one.
    fn pull_member(
        &mut self,
        world: &mut World,
        executor: CpuId,
        cpu: CpuId,
        process: u32,
        running: &[u32],
    ) -> bool {
        let own = self.numa.node(cpu);
        let state = &mut self.mechanisms.consolidate;
        let nodes = state.nodes as u32;
        let weights = state.process(process);
        let here = Here { weight: weights.on[own], total: weights.total, nr: running[own], nodes };
        if !here.worth() {
            return false;
        }
        let other = |(&weight, &nr)| Other { weight, nr };
        let others: Vec<Other> = weights.on.iter().zip(running).map(other).collect();
        let Some(from) = here.select(own, &others, &mut weights.limit) else { return false };
        let found = self.numa.cpus_of[from].iter().find_map(|src| {
            let task = world.current(src)?;
            let fits = world.process(task) == process && world.allowed(task).contains(cpu);
            (fits && self.rqs[src].numa_push.is_none()).then_some((src, task))
        });
        let Some((src, task)) = found else {
            self.mechanisms.consolidate.process(process).limit[from] -= 1;
            return false;
        };
        if self.rqs[src].push.is_some() {
            // The stopper is busy with another task, so this one is not asked for.
            self.mechanisms.consolidate.process(process).limit[from] -= 1;
            return true;
        }
        self.mechanisms.consolidate.asked += 1;
        self.balance.fetch(world, src, executor, LINES_PER_TASK);
        self.balance.pay(world, executor);
        self.rqs[src].numa_push = Some(NumaPush::to_idle(task, cpu));
        world.kick(executor, src, Work::Stop);
        if self.mechanisms.consolidate.posted {
            self.mechanisms.consolidate.process(process).limit[from] -= 1;
        }
        true
    }

    /// The stopper of `src` has sent `task` to the CPU that asked for it, or could not. In the
    /// posted form the CPU that asked has already given its token back.
    pub(super) fn member_pulled(&mut self, world: &World, src: CpuId, task: TaskId, moved: bool) {
        let node = self.numa.node(src);
        let process = world.process(task);
        if !self.mechanisms.consolidate.posted {
            self.mechanisms.consolidate.process(process).limit[node] -= 1;
        }
        if moved {
            self.mechanisms.consolidate.pulled += 1;
            self.mechanisms.consolidate.members[task.index()].migrate_seq =
                self.features.mechanisms.consolidate_seq;
        }
    }
}
