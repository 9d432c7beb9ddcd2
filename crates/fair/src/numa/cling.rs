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
    /// The NUMA group of each cgroup, once a task has joined it.
    pub groups: Vec<Option<u32>>,
    stats: Vec<NumaStat>,
    /// What all groups counted in the run, by node.
    totals: Vec<Totals>,
    tick_ms: u64,
}

/// How tasks of a group that clings fared on their way to each node (`migrate_stat`, `busiest_nid` and
/// `cling_timer` of its `struct numa_group`).
#[derive(Clone, Debug)]
pub(super) struct Attempts {
    nodes: Vec<Node>,
    busiest: Option<u32>,
    /// Jiffy of the next decay.
    next_decay: u64,
}

/// Of one node.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    attempts: u64,
    failures: u64,
    most_ratio: u64,
    /// Times that a group did not cling to the node any more.
    pauses: u64,
    /// Groups that do not.
    paused: u64,
}

impl Attempts {
    /// Of a group that begins at the jiffy `now`: its timer fires at once.
    pub fn new(nodes: usize, now: u64) -> Self {
        Self { nodes: vec![Node::default(); nodes], busiest: None, next_decay: now }
    }

    fn is_busy(&self, node: NodeId, degree: u32) -> bool {
        self.nodes[node].busy(node as u32, self.busiest, degree)
    }
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
            groups: vec![None; world.groups().len()],
            stats: world.groups().iter().map(stat).collect(),
            totals: vec![Totals::default(); nodes],
            tick_ms: tick_ns / 1_000_000,
        }
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
    pub(super) fn join_cgroup(&mut self, world: &World, task: TaskId, cgroup: GroupId) {
        let group = match self.numa.cling.groups[cgroup as usize] {
            Some(group) => group,
            None => {
                let group = self.cgroup_numa_group(self.jiffies(world.now()));
                self.numa.cling.groups[cgroup as usize] = Some(group);
                group
            }
        };
        if self.numa.tasks[task.index()].group != Some(group) {
            self.join_group(task, group);
        }
    }

    /// What the group of `task` keeps if it clings.
    fn attempts_of(&self, task: TaskId) -> Option<&Attempts> {
        let group = self.numa.tasks.get(task.index())?.group?;
        self.numa.groups[group as usize].attempts.as_ref()
    }

    /// Whether the group of `task` clings, and whether to `node` it does not now.
    pub(super) fn clings_but(&self, task: TaskId, node: NodeId) -> (bool, bool) {
        let attempts = self.attempts_of(task);
        let busy = attempts.is_some_and(|at| at.is_busy(node, self.features.cling_degree));
        (attempts.is_some(), busy)
    }

    /// Whether `task` stays on the node `src` rather than going to `dst`.
    pub(crate) fn clings(&self, task: TaskId, src: NodeId, dst: NodeId) -> bool {
        if !self.features.cling || !self.numa.active {
            return false;
        }
        let preferred = self.preferred(task).map(|node| node as u32);
        let (clings, busy) = self.clings_but(task, src);
        cling::clings(clings, preferred, src as u32, dst as u32, busy)
    }

    /// Whether a page of `task`'s group follows it, as far as cling decides that.
    pub(super) fn cling_page(&self, task: TaskId, src: NodeId, dst: NodeId) -> Option<bool> {
        let [(clings, src_busy), (_, dst_busy)] =
            [src, dst].map(|node| self.clings_but(task, node));
        match cling::page(clings, dst_busy, src_busy) {
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
        let Some(group) = self.numa.tasks[task.index()].group else { return };
        let Some(attempts) = &mut self.numa.groups[group as usize].attempts else { return };
        attempts.nodes[node].attempt(failed);
        let ratio = attempts.nodes[node].ratio;
        let totals = &mut self.numa.cling.totals[node];
        totals.attempts += 1;
        totals.failures += u64::from(failed);
        totals.most_ratio = totals.most_ratio.max(ratio);
        self.tell_attempts(world);
        if failed {
            self.set_preferred(world, task, None);
        }
    }

    /// Tells the largest ratio of any group for each node, and how many groups do not cling there;
    /// counts those from now on.
    fn tell_attempts(&mut self, world: &mut World) {
        let degree = self.features.cling_degree;
        for node in 0..self.numa.nodes() {
            let (mut most, mut paused) = (0, 0);
            for attempts in self.numa.groups.iter().filter_map(|group| group.attempts.as_ref()) {
                most = attempts.nodes[node].ratio.max(most);
                paused += u64::from(attempts.is_busy(node, degree));
            }
            world.trace_value("cling ratio of node", node, most);
            let totals = &mut self.numa.cling.totals[node];
            if paused != totals.paused {
                totals.pauses += paused.saturating_sub(totals.paused);
                totals.paused = paused;
                world.trace_value("cling paused on node", node, paused);
            }
        }
    }

    /// At every tick: each group forgets half of its attempts every 6 s.
    fn decay_cling(&mut self, world: &mut World) {
        let now = self.jiffies(world.now());
        let period = ms_to_jiffies(cling::PERIOD_NS / 1_000_000, self.features.hz);
        let mut decayed = false;
        for index in 0..self.numa.cling.groups.len() {
            let Some(group) = self.numa.cling.groups[index] else { continue };
            let Some(attempts) = &mut self.numa.groups[group as usize].attempts else { continue };
            if now >= attempts.next_decay {
                attempts.next_decay = now + period;
                attempts.busiest = cling::decay(&mut attempts.nodes, attempts.busiest);
                decayed = true;
            }
        }
        if decayed {
            self.tell_attempts(world);
        }
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
