//! `consolidate`: each process on as few nodes as the load allows (kernel model, section 14.5; the
//! decisions are `roost/consolidate.h`).
//!
//! ```text
//! enqueue, dequeue ► tasks of the process on the node; whether most of it is here
//! wakeup ──────────► to the waker only if the process gains
//! pull, push ──────► first tasks that join more of their own, then any
//! CPU stays idle ──► takes one task of a process that is mostly on its node
//! ```
//!
//! As intended, or with [`Consolidation::Posted`] as the patches of 2013-07-30 have it where they
//! contradict their own text. On versions with delayed dequeue a sleeper counts until it has left the
//! queue.

use roost_engine::{CpuId, TaskId, Work, World};
use roost_machine::Machine;
use roost_policy::consolidate::{self as policy, Benefit, Here, Other, Side};
use roost_workload::Workload;

use super::Mechanism;
use crate::balance::{LINES_PER_TASK, Pass};
use crate::domain::GroupId;
use crate::numa::NumaPush;
use crate::state::Fair;
use crate::switches::Switch;

/// The mechanism.
pub(super) const MECHANISM: Mechanism = Mechanism {
    name: "consolidate",
    switches: &SWITCHES,
    numbers: &[],
    acted: &["consolidate_kept", "consolidate_pulled"],
    needs: "a machine of several NUMA nodes",
    is_on: |features| features.consolidate != Consolidation::Off,
    can_act: |machine: &Machine, _: &Workload| machine.nodes.len() > 1,
};

const SWITCHES: [Switch; 2] = [
    Switch {
        name: "consolidate",
        about: "each process on as few nodes as the load allows",
        since: "3.9",
        set: |features, on| features.consolidate = Consolidation::Intended.or_off(on),
    },
    Switch {
        name: "consolidate-posted",
        about: "the same with what its patches do otherwise than their text says",
        since: "3.9",
        set: |features, on| features.consolidate = Consolidation::Posted.or_off(on),
    },
];

/// Which form of consolidation is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consolidation {
    /// None.
    Off,
    /// As its text says.
    Intended,
    /// As posted.
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
    /// Any.
    #[default]
    Any,
    /// Those that join more of their own.
    Gaining,
    /// Those that were not pulled on purpose a short time ago.
    Unplaced,
}

/// A process's tasks.
#[derive(Clone, Debug, Default)]
struct Weights {
    /// Runnable tasks by node.
    on: Vec<u32>,
    total: u32,
    /// Pulls from each node that are under way.
    limit: Vec<u32>,
}

/// A task's.
#[derive(Clone, Copy, Debug, Default)]
struct Member {
    process: u32,
    /// It is counted on this node.
    on: Option<u16>,
    /// It counts in its queue's `non_local`.
    non_local: bool,
    pinned: bool,
    migrate_seq: u32,
}

/// What consolidation keeps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Consolidate {
    /// Whether it is on and there are several nodes.
    pub active: bool,
    posted: bool,
    nodes: usize,
    /// By number of the process.
    processes: Vec<Weights>,
    members: Vec<Member>,
    /// Pulls by idle CPUs: asked for and done.
    asked: u64,
    pulled: u64,
}

impl Consolidate {
    /// At the start of a run.
    pub(crate) fn new(form: Consolidation, nodes: usize) -> Self {
        let active = form != Consolidation::Off && nodes > 1;
        Self { active, posted: form == Consolidation::Posted, nodes, ..Self::default() }
    }

    /// Name and value of its counters.
    pub(crate) fn counters(&self, sink: &mut dyn FnMut(&str, u64)) {
        if self.active {
            sink("consolidate_asked", self.asked);
            sink("consolidate_pulled", self.pulled);
        }
    }

    /// Whether it is on, as posted: then it also refuses tasks before anything else is asked of them.
    pub(crate) fn is_posted(&self) -> bool {
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
    /// A task has been queued on `cpu`.
    pub(crate) fn count_member(&mut self, world: &World, cpu: CpuId, task: TaskId) {
        if !self.consolidate.active {
            return;
        }
        let node = self.numa.node_of[cpu];
        let process = world.process(task);
        let state = &mut self.consolidate;
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

    /// A task has been taken off the queue of `cpu`.
    pub(crate) fn discount_member(&mut self, cpu: CpuId, task: TaskId) {
        if !self.consolidate.active {
            return;
        }
        let Some(member) = self.consolidate.members.get_mut(task.index()) else { return };
        let gone = std::mem::take(member);
        let Some(node) = gone.on else { return };
        let weights = self.consolidate.process(gone.process);
        weights.on[usize::from(node)] -= 1;
        weights.total -= 1;
        self.rqs[cpu].non_local -= u32::from(gone.non_local);
    }

    /// A task on the queue of `cpu` exits. As posted its process counts it for ever: `exit_mm()` has taken
    /// its memory from it by the time that it leaves the queue.
    pub(crate) fn abandon_member(&mut self, cpu: CpuId, task: TaskId) {
        if !self.consolidate.is_posted() {
            return;
        }
        let Some(member) = self.consolidate.members.get_mut(task.index()) else { return };
        let gone = std::mem::take(member);
        self.rqs[cpu].non_local -= u32::from(gone.non_local);
    }

    /// Whether a task on the queue of `cpu` is where enough of its process is: at its arrival, and at
    /// hinting faults.
    pub(crate) fn judge_member(&mut self, cpu: CpuId, task: TaskId) {
        let state = &mut self.consolidate;
        let Some(Member { process, on: Some(node), pinned, non_local, .. }) =
            state.members.get(task.index()).copied()
        else {
            return;
        };
        let weight = state.weight(process, node.into());
        let local = policy::local(weight, state.nodes as u32, state.total(process));
        let now = !pinned && !local;
        state.members[task.index()].non_local = now;
        let rq = &mut self.rqs[cpu];
        rq.non_local = rq.non_local - u32::from(non_local) + u32::from(now);
    }

    /// What moving `task` from one CPU to another does for its process.
    fn benefit(&self, world: &World, task: TaskId, dst: CpuId, src: CpuId) -> Benefit {
        let process = world.process(task);
        let side = |cpu: CpuId| Side {
            nr: self.rqs[cpu].nr_running,
            weight: self.consolidate.weight(process, self.numa.node(cpu)),
        };
        policy::benefit(self.consolidate.total(process), side(dst), side(src))
    }

    /// Whether a wakeup may go to the waker's CPU.
    pub(crate) fn may_wake_at(&self, world: &World, task: TaskId, this: CpuId) -> bool {
        !self.consolidate.active || self.benefit(world, task, this, world.task_cpu(task)).may_wake()
    }

    /// Which tasks a pull takes first. As posted it compares with the source before, unless a stopper does
    /// it, which knows its own.
    pub(crate) fn first_wanted(&self, pass: &Pass) -> Wanted {
        let node = |cpu: CpuId| u32::from(self.numa.node_of[cpu]);
        let state = &self.consolidate;
        if !state.active {
            return Wanted::Any;
        }
        let unset = state.posted && !pass.active;
        match policy::two_passes(unset, node(pass.dst), node(pass.src), node(pass.src_before)) {
            true => Wanted::Gaining,
            false if state.posted => Wanted::Unplaced,
            false => Wanted::Any,
        }
    }

    /// Whether a pull may take `task`, as far as its process is concerned.
    pub(crate) fn is_wanted(&mut self, world: &World, pass: &Pass, task: TaskId) -> bool {
        let (dst, src) = (pass.dst, pass.src);
        let across = self.numa.node_of[dst] != self.numa.node_of[src];
        let posted = self.consolidate.posted;
        match pass.wanted {
            Wanted::Any => true,
            Wanted::Gaining => self.benefit(world, task, dst, src).first_pass(posted, across),
            Wanted::Unplaced => {
                let mut unplaced = 0;
                let member = self.consolidate.members.get_mut(task.index());
                let migrate_seq = member.map_or(&mut unplaced, |member| &mut member.migrate_seq);
                policy::second_pass(posted, across, migrate_seq)
            }
        }
    }

    /// Whether a hot task moves all the same.
    pub(crate) fn ignores_heat(
        &self,
        world: &World,
        task: TaskId,
        dst: CpuId,
        src: CpuId,
        failures: (u32, u32),
    ) -> bool {
        let across = self.numa.node_of[dst] != self.numa.node_of[src];
        let (failed, tries) = failures;
        self.consolidate.active
            && self.benefit(world, task, dst, src).ignores_heat(across, failed, tries)
    }

    /// The queue to pull from across nodes: of those with several tasks the one with most that are
    /// not local; `normal` if none has more than that, or if that has one task, which is then pushed.
    pub(crate) fn most_non_local(
        &self,
        pass: &Pass,
        normal: CpuId,
        group: GroupId,
    ) -> Option<CpuId> {
        let across = |cpu: CpuId| self.numa.node_of[cpu] != self.numa.node_of[pass.dst];
        // As posted, the source compared with is not set yet: it is that of the last try.
        let looks = across(normal) && (!self.consolidate.posted || across(pass.src));
        if !self.consolidate.active || !looks || self.rqs[normal].nr_running < 2 {
            return Some(normal);
        }
        let mut best = normal;
        let cpus = self.balance.considered(group, &self.topology.group(group).span);
        for cpu in cpus.filter(|&cpu| self.rqs[cpu].nr_running > 1) {
            if self.rqs[cpu].non_local > self.rqs[best].non_local {
                best = cpu;
            }
        }
        Some(best)
    }

    /// `cpu` has nothing to run after balancing: it takes a task of a process that is mostly on its
    /// node.
    pub(crate) fn consolidate_idle(&mut self, world: &mut World, executor: CpuId, cpu: CpuId) {
        if !self.consolidate.active || self.rqs[cpu].nr_running > 0 {
            return;
        }
        let node = self.numa.node(cpu);
        let nr = |fair: &Self, node: usize| {
            fair.numa.cpus_of[node].iter().map(|cpu| fair.rqs[cpu].nr_running).sum::<u32>()
        };
        let running: Vec<u32> = (0..self.consolidate.nodes).map(|node| nr(self, node)).collect();
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

    /// Asks for a task of `process` to be sent to `cpu`; whether there was one.
    fn pull_member(
        &mut self,
        world: &mut World,
        executor: CpuId,
        cpu: CpuId,
        process: u32,
        running: &[u32],
    ) -> bool {
        let own = self.numa.node(cpu);
        let state = &mut self.consolidate;
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
            self.consolidate.process(process).limit[from] -= 1;
            return false;
        };
        if self.rqs[src].push.is_some() {
            // Its stopper is busy with another task: nothing is asked for.
            self.consolidate.process(process).limit[from] -= 1;
            return true;
        }
        self.consolidate.asked += 1;
        self.balance.fetch(world, src, executor, LINES_PER_TASK);
        self.balance.pay(world, executor);
        self.rqs[src].numa_push = Some(NumaPush::consolidate(task, cpu));
        world.kick(executor, src, Work::Stop);
        if self.consolidate.posted {
            self.consolidate.process(process).limit[from] -= 1;
        }
        true
    }

    /// The stopper of `src` has sent `task` to the CPU that asked for it, or could not. As posted whoever
    /// asked has given its token back at once.
    pub(crate) fn member_pulled(&mut self, world: &World, src: CpuId, task: TaskId, moved: bool) {
        let node = self.numa.node(src);
        let process = world.process(task);
        if !self.consolidate.posted {
            self.consolidate.process(process).limit[node] -= 1;
        }
        if moved {
            self.consolidate.pulled += 1;
            self.consolidate.members[task.index()].migrate_seq = policy::SEQ;
        }
    }
}
