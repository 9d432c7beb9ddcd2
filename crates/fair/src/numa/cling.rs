//! Groups by cgroup instead of by page, their statistics, and cling (kernel model, section 14.2;
//! the decisions are `roost/cling.h`).
//!
//! `cpu.numa_group` of every cgroup below the root is 1 with [`Features::numa_groups`]; with
//! [`Features::cling`] such a group settles: its tasks stay on the preferred node, unless too many
//! failed to get there.
//!
//! [`Features::numa_groups`]: crate::Features::numa_groups
//! [`Features::cling`]: crate::Features::cling

use roost_engine::{CpuId, TaskId, World};
use roost_policy::cling::{self, BUCKETS, Node, Page};
use roost_workload::GroupId;

use super::NodeId;
use crate::balance::ms_to_jiffies;
use crate::state::Fair;

/// `cpu.numa_stat` of a cgroup: ticks of its tasks and of those below it.
#[derive(Clone, Debug)]
struct NumaStat {
    path: String,
    parent: Option<usize>,
    /// By eighths of local faults of the task that ran.
    locality: [u64; BUCKETS],
    /// By node.
    exec: Vec<u64>,
}

/// What cling keeps.
#[derive(Clone, Debug, Default)]
pub(super) struct Cling {
    /// Attempts to reach each node.
    nodes: Vec<Node>,
    busiest: Option<u32>,
    /// Jiffy of the next decay.
    next_decay: u64,
    /// The NUMA group of each cgroup, once a task has joined it.
    pub groups: Vec<Option<u32>>,
    stats: Vec<NumaStat>,
    /// Attempts and failures of the run, by node, and the largest ratio.
    totals: Vec<Totals>,
    tick_ms: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    attempts: u64,
    failures: u64,
    most_ratio: u64,
    /// Times that nobody clung to the node any more.
    pauses: u64,
    paused: bool,
}

impl Cling {
    /// For the cgroups of a run.
    pub fn new(world: &World, tick_ns: u64) -> Self {
        let nodes = world.machine().nodes.len();
        let stat = |group: &roost_workload::Group| NumaStat {
            path: group.path.clone(),
            parent: group.parent.map(|parent| parent as usize),
            locality: [0; BUCKETS],
            exec: vec![0; nodes],
        };
        Self {
            nodes: vec![Node::default(); nodes],
            groups: vec![None; world.groups().len()],
            stats: world.groups().iter().map(stat).collect(),
            totals: vec![Totals::default(); nodes],
            tick_ms: tick_ns / 1_000_000,
            ..Self::default()
        }
    }

    fn is_busy(&self, node: NodeId, degree: u32) -> bool {
        self.nodes[node].busy(node as u32, self.busiest, degree)
    }

    /// Name and value of its counters: those of the cgroups' `cpu.numa_stat`, in ms, and of cling.
    pub fn counters(&self, clings: bool, sink: &mut dyn FnMut(&str, u64)) {
        for stat in &self.stats {
            for (bucket, ticks) in stat.locality.iter().enumerate() {
                sink(&format!("numa_stat{}.locality{bucket}", stat.path), ticks * self.tick_ms);
            }
            for (node, ticks) in stat.exec.iter().enumerate() {
                sink(&format!("numa_stat{}.exectime_node{node}", stat.path), ticks * self.tick_ms);
            }
        }
        for (node, totals) in self.totals.iter().enumerate().filter(|_| clings) {
            sink(&format!("cling_attempts_node{node}"), totals.attempts);
            sink(&format!("cling_failures_node{node}"), totals.failures);
            sink(&format!("cling_most_ratio_node{node}"), totals.most_ratio);
            sink(&format!("cling_pauses_node{node}"), totals.pauses);
        }
    }
}

impl Fair {
    /// The cgroup of a task whose `cpu.numa_group` is set.
    pub(super) fn numa_cgroup(&self, world: &World, task: TaskId) -> Option<GroupId> {
        world.group(task).filter(|_| self.features.numa_groups)
    }

    /// A fault of a task of a cgroup with a NUMA group: it joins that.
    pub(super) fn join_cgroup(&mut self, task: TaskId, cgroup: GroupId) {
        let group = match self.numa.cling.groups[cgroup as usize] {
            Some(group) => group,
            None => {
                let group = self.cgroup_numa_group();
                self.numa.cling.groups[cgroup as usize] = Some(group);
                group
            }
        };
        if self.numa.tasks[task.index()].group != Some(group) {
            self.join_group(task, group);
        }
    }

    /// Whether `task` is in a group that clings.
    pub(super) fn is_clinging(&self, task: TaskId) -> bool {
        let group = self.numa.tasks.get(task.index()).and_then(|state| state.group);
        group.is_some_and(|group| self.numa.groups[group as usize].clings)
    }

    /// Whether nobody clings to a node now.
    pub(super) fn is_busy_node(&self, node: NodeId) -> bool {
        self.numa.cling.is_busy(node, self.features.cling_degree)
    }

    /// Whether `task` stays on the node `src` rather than going to `dst`.
    pub(crate) fn clings(&self, task: TaskId, src: NodeId, dst: NodeId) -> bool {
        if !self.features.cling || !self.numa.active {
            return false;
        }
        let preferred = self.preferred(task).map(|node| node as u32);
        let busy = self.is_busy_node(src);
        cling::clings(self.is_clinging(task), preferred, src as u32, dst as u32, busy)
    }

    /// Whether a page of `task`'s group follows it, as far as cling decides that.
    pub(super) fn cling_page(&self, task: TaskId, src: NodeId, dst: NodeId) -> Option<bool> {
        let clings = self.is_clinging(task);
        match cling::page(clings, self.is_busy_node(dst), self.is_busy_node(src)) {
            Page::Stays => Some(false),
            Page::Moves => Some(true),
            Page::Undecided => None,
        }
    }

    /// `task` tried to reach the node that it prefers.
    pub(super) fn note_attempt(
        &mut self,
        world: &mut World,
        task: TaskId,
        node: NodeId,
        failed: bool,
    ) {
        if !self.features.cling {
            return;
        }
        let cling = &mut self.numa.cling;
        cling.nodes[node].attempt(failed);
        let ratio = cling.nodes[node].ratio;
        let totals = &mut cling.totals[node];
        totals.attempts += 1;
        totals.failures += u64::from(failed);
        totals.most_ratio = totals.most_ratio.max(ratio);
        world.trace_value("cling ratio of node", node, ratio);
        self.note_pauses(world);
        if failed {
            self.set_preferred(world, task, None);
        }
    }

    /// Counts nodes that nobody clings to from now on.
    fn note_pauses(&mut self, world: &mut World) {
        for node in 0..self.numa.nodes() {
            let busy = self.is_busy_node(node);
            let totals = &mut self.numa.cling.totals[node];
            if busy != totals.paused {
                totals.pauses += u64::from(busy);
                totals.paused = busy;
                world.trace_value("cling paused on node", node, u64::from(busy));
            }
        }
    }

    /// At every tick: half of the attempts are forgotten every 6 s.
    fn decay_cling(&mut self, world: &mut World) {
        let now = self.jiffies(world.now());
        if now < self.numa.cling.next_decay {
            return;
        }
        let period = ms_to_jiffies(cling::PERIOD_NS / 1_000_000, self.features.hz);
        let state = &mut self.numa.cling;
        state.next_decay = now + period;
        state.busiest = cling::decay(&mut state.nodes, state.busiest);
        for node in 0..self.numa.nodes() {
            let ratio = self.numa.cling.nodes[node].ratio;
            world.trace_value("cling ratio of node", node, ratio);
        }
        self.note_pauses(world);
    }

    /// The tick of `cpu`, which runs `task`, in `cpu.numa_stat` of its cgroups.
    pub(super) fn tick_cgroup(&mut self, world: &mut World, cpu: CpuId, task: TaskId) {
        if self.features.cling {
            self.decay_cling(world);
        }
        let Some(group) = world.group(task) else { return };
        let [remote, local] = self.numa.tasks[task.index()].by_locality;
        let node = self.numa.node(cpu);
        let mut next = Some(group as usize);
        while let Some(stat) = next.and_then(|group| self.numa.cling.stats.get_mut(group)) {
            if local + remote > 0 {
                stat.locality[cling::bucket(local, remote)] += 1;
            }
            stat.exec[node] += 1;
            next = stat.parent;
        }
    }
}
