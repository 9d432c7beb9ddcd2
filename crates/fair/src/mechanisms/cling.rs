//! `cling`: groups settle on a node and stay there. This file also has NUMA groups by cgroup
//! (instead of by page), and their statistics (kernel model, section 14.2; the decisions are
//! `roost/cling.h`).
//!
//! With the switch `numa-groups`, `cpu.numa_group` of every cgroup below the root is 1. With
//! `cling` such a group settles: its tasks stay on the preferred node, unless too many of them
//! failed to get there.
//!
//! ```text
//! fault ──────────────────► the task joins its cgroup's NUMA group; does the page follow it?
//! placement ──────────────► skips nodes that too many tasks failed to reach
//! attempt to get there ───► counted; failed attempts pause clinging to the node
//! wakeup, swap, balancing ► may the task leave the node?
//! tick ───────────────────► `cpu.numa_stat`; halves the counts of attempts from time to time
//! ```

use roost_engine::{CpuId, TaskId, World};
use roost_machine::Machine;
use roost_policy::cling::{self as policy, BUCKETS, NodeAttempts, Page};
use roost_workload::{GroupId, Workload};

use super::{Mechanism, Tally};
use crate::balance::ms_to_jiffies;
use crate::features::Features;
use crate::numa::NodeId;
use crate::state::Fair;
use crate::switches::{Number, Switch};

/// The mechanism.
pub(super) const MECHANISM: Mechanism = Mechanism {
    name: "cling",
    switches: &SWITCHES,
    numbers: &NUMBERS,
    acted: &["cling_held", "cling_held_pages"],
    counters: &COUNTERS,
    keeps_tasks: true,
    needs: "a machine of several NUMA nodes, and a workload with cgroups that use memory",
    is_on: |features| features.mechanisms.cling.on,
    can_act: |machine: &Machine, workload: &Workload| {
        machine.nodes.len() > 1 && !workload.groups.is_empty() && !workload.regions.is_empty()
    },
};

const COUNTERS: [(&str, &str); 8] = [
    ("cling_attempts_nodeN", "attempts to move a task of the group to the node"),
    ("cling_failures_nodeN", "of these, attempts that failed"),
    (
        "cling_pauses_nodeN",
        "pauses: times that tasks stopped clinging to the node because attempts failed",
    ),
    ("cling_most_ratio_nodeN", "largest failure ratio that began such a pause"),
    ("cling_held", "wakeups, swaps and pulls that were kept from moving a task off its node"),
    ("cling_held_pages", "pages that were kept from moving off their node"),
    (
        "numa_statGROUP.localityN",
        "time that tasks of the group ran with a locality of N to N+1 eighths, ms",
    ),
    ("numa_statGROUP.exectime_nodeN", "time that tasks of the group ran on the node, ms"),
];

const SWITCHES: [Switch; 2] = [
    Switch {
        name: "cling",
        about: "cgroups settle on a node and stay there; turns numa-groups on",
        since: "5.2",
        set: |features, on| {
            features.mechanisms.cling.on = on;
            features.mechanisms.cling.groups |= on;
        },
    },
    Switch {
        name: "numa-groups",
        about: "each cgroup is one NUMA group (cpu.numa_group)",
        since: "5.2",
        set: |features, on| features.mechanisms.cling.groups = on,
    },
];

const NUMBERS: [Number; 2] = [
    Number {
        name: "cling-degree",
        about: "cling: share of failed attempts that pauses it; 100: never",
        unit: "%",
        least: 0,
        most: 100,
        since: "3.9",
        until: None,
        unset: "",
        source: "numa_balancing_cling_degree (roost/cling.h)",
        file: None,
        set: |features, percent| features.mechanisms.cling.degree = percent,
        get: |features| Some(features.mechanisms.cling.degree),
    },
    Number {
        name: "cling-period-ms",
        about: "cling: time after which the counts of attempts are halved",
        unit: "ms",
        least: 1,
        most: 3_600_000,
        since: "3.9",
        until: None,
        unset: "",
        source: "a tenth of the longest scan period (roost/cling.h)",
        file: None,
        set: |features, ms| features.mechanisms.cling.period_ms = ms,
        get: |features| Some(features.mechanisms.cling.period_ms),
    },
];

/// Which parts of it are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    /// Every cgroup is a NUMA group (`cpu.numa_group` = 1, 2019-07-16).
    pub groups: bool,
    /// Such groups settle on a node (2019-07-22).
    pub on: bool,
    /// numa_balancing_cling_degree: share of failed attempts to reach a node, in percent, from
    /// which on no group clings to it.
    pub degree: u32,
    /// Time after which the counts of attempts are halved, ms.
    pub period_ms: u32,
}

impl Form {
    /// All parts are off.
    pub(super) const OFF: Self = Self {
        groups: false,
        on: false,
        degree: policy::DEGREE,
        period_ms: (policy::PERIOD_NS / 1_000_000) as u32,
    };
}

impl Default for Form {
    fn default() -> Self {
        Self::OFF
    }
}

/// `cpu.numa_stat` of a cgroup: ticks of its tasks and of tasks in cgroups below it.
#[derive(Clone, Debug)]
struct NumaStat {
    path: String,
    parent: Option<usize>,
    /// Ticks by eighths of local faults of the running task.
    locality: [u64; BUCKETS],
    /// Ticks by node.
    exec: Vec<u64>,
}

/// Its state during a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// `cling` is on (not only `numa-groups`), and the run has cgroups to settle.
    pub active: bool,
    form: Form,
    hz: u32,
    /// NUMA balancing is active.
    with_numa: bool,
    /// The NUMA group of each cgroup, once a task has joined it.
    groups: Vec<Option<u32>>,
    /// By number of the NUMA group: the attempts of its tasks, if the group clings.
    attempts: Vec<Option<Attempts>>,
    stats: Vec<NumaStat>,
    /// Counts of all groups over the run, by node.
    totals: Vec<Totals>,
    tick_ms: u64,
    /// Wakeups, swaps and pulls that it stopped from moving a task off its node.
    kept_tasks: Tally,
    /// Pages that it kept in place.
    kept_pages: Tally,
}

/// Attempts of a clinging group's tasks to reach each node (`migrate_stat`, `busiest_nid` and
/// `cling_timer` of its `struct numa_group`).
#[derive(Clone, Debug)]
struct Attempts {
    nodes: Vec<NodeAttempts>,
    busiest: Option<u32>,
    /// Jiffy of the next decay.
    next_decay: u64,
}

/// Counts for one node.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    attempts: u64,
    failures: u64,
    most_ratio: u64,
    /// How often a group stopped clinging to the node.
    pauses: u64,
    /// Number of groups that do not cling to it now.
    paused: u64,
}

impl Attempts {
    /// For a group that begins at the jiffy `now`. Its timer fires at once.
    fn new(nodes: usize, now: u64) -> Self {
        Self { nodes: vec![NodeAttempts::default(); nodes], busiest: None, next_decay: now }
    }

    fn is_busy(&self, node: NodeId, degree: u32) -> bool {
        self.nodes[node].busy(node as u32, self.busiest, degree)
    }
}

impl State {
    /// The state at the start of a run. The workload is not known yet.
    pub(super) fn new(features: &Features) -> Self {
        let form = features.mechanisms.cling;
        Self {
            active: form.on,
            form,
            hz: features.hz,
            tick_ms: features.tick_ns() / 1_000_000,
            ..Self::default()
        }
    }

    /// Called when the cgroups of the run are known; `with_numa` if NUMA balancing is active.
    pub(super) fn start(&mut self, world: &World, with_numa: bool) {
        let nodes = world.machine().nodes.len();
        let stat = |group: &roost_workload::Group| NumaStat {
            path: group.path.clone(),
            parent: group.parent.map(|parent| parent as usize),
            locality: [0; BUCKETS],
            exec: vec![0; nodes],
        };
        self.with_numa = with_numa;
        self.active &= with_numa;
        self.groups = vec![None; world.groups().len()];
        self.stats = world.groups().iter().map(stat).collect();
        self.totals = vec![Totals::default(); nodes];
    }

    /// Name and value of each counter: those of the cgroups' `cpu.numa_stat`, in ms, and those of
    /// cling.
    pub(super) fn counters(&self, sink: &mut dyn FnMut(&str, u64)) {
        if !self.with_numa {
            return;
        }
        for stat in &self.stats {
            for (bucket, ticks) in stat.locality.iter().enumerate() {
                sink(&format!("numa_stat{}.locality{bucket}", stat.path), ticks * self.tick_ms);
            }
            for (node, ticks) in stat.exec.iter().enumerate() {
                sink(&format!("numa_stat{}.exectime_node{node}", stat.path), ticks * self.tick_ms);
            }
        }
        if !self.active {
            return;
        }
        for (node, totals) in self.totals.iter().enumerate() {
            sink(&format!("cling_attempts_node{node}"), totals.attempts);
            sink(&format!("cling_failures_node{node}"), totals.failures);
            sink(&format!("cling_pauses_node{node}"), totals.pauses);
        }
        sink("cling_held", self.kept_tasks.get());
        sink("cling_held_pages", self.kept_pages.get());
    }

    /// The largest ratio of failed attempts of each node.
    pub(super) fn maxima(&self, sink: &mut dyn FnMut(&str, u64)) {
        for (node, totals) in self.totals.iter().enumerate().filter(|_| self.active) {
            sink(&format!("cling_most_ratio_node{node}"), totals.most_ratio);
        }
    }

    /// The attempts of the NUMA group `group`, if it clings.
    fn of_group(&mut self, group: u32) -> Option<&mut Attempts> {
        self.attempts.get_mut(group as usize)?.as_mut()
    }

    /// Whether the NUMA group `group` clings.
    pub(super) fn is_clinging(&self, group: u32) -> bool {
        self.attempts.get(group as usize).is_some_and(Option::is_some)
    }
}

impl Fair {
    /// The cgroup of a task whose `cpu.numa_group` is set.
    pub(crate) fn numa_cgroup(&self, world: &World, task: TaskId) -> Option<GroupId> {
        world.group(task).filter(|_| self.mechanisms.cling.form.groups)
    }

    /// A task of a cgroup with a NUMA group had a fault: it joins that NUMA group.
    pub(crate) fn join_cgroup(&mut self, world: &World, task: TaskId, cgroup: GroupId) {
        let group = match self.mechanisms.cling.groups[cgroup as usize] {
            Some(group) => group,
            None => self.new_cgroup_group(world, cgroup),
        };
        if self.numa.group_of(task) != Some(group) {
            self.join_group(task, group);
        }
    }

    /// Makes the NUMA group of a cgroup.
    fn new_cgroup_group(&mut self, world: &World, cgroup: GroupId) -> u32 {
        let group = self.group_of_cgroup();
        let (nodes, now) = (self.numa.nodes(), self.jiffies(world.now()));
        let state = &mut self.mechanisms.cling;
        state.groups[cgroup as usize] = Some(group);
        if state.active {
            let length = state.attempts.len().max(group as usize + 1);
            state.attempts.resize(length, None);
            state.attempts[group as usize] = Some(Attempts::new(nodes, now));
        }
        group
    }

    /// Whether the group of `task` clings, and whether its clinging to `node` is paused.
    fn clings_but(&self, task: TaskId, node: NodeId) -> (bool, bool) {
        let state = &self.mechanisms.cling;
        let group = self.numa.group_of(task).filter(|_| state.active);
        let attempts = group.and_then(|group| state.attempts.get(group as usize)?.as_ref());
        let busy = attempts.is_some_and(|at| at.is_busy(node, state.form.degree));
        (attempts.is_some(), busy)
    }

    /// Whether `task` stays on the node `src` instead of moving to `dst`.
    #[inline]
    pub(crate) fn stays_on_node(&self, task: TaskId, src: NodeId, dst: NodeId) -> bool {
        self.mechanisms.cling.active && self.clings(task, src, dst)
    }

    fn clings(&self, task: TaskId, src: NodeId, dst: NodeId) -> bool {
        let preferred = self.preferred(task).map(|node| node as u32);
        let (clings, busy) = self.clings_but(task, src);
        let stays = policy::clings(clings, preferred, src as u32, dst as u32, busy);
        self.mechanisms.cling.kept_tasks.count(stays)
    }

    /// Whether a task may prefer `node`, which has `here` faults, to a node with `most` faults.
    pub(crate) fn may_prefer(&self, task: TaskId, node: NodeId, here: u64, most: u64) -> bool {
        let (clings, busy) = self.clings_but(task, node);
        policy::prefers(clings, here, most, busy)
    }

    /// Whether a page follows the task `task` of its group; `None` if cling does not decide it.
    pub(crate) fn group_decides_page(
        &self,
        task: TaskId,
        src: NodeId,
        dst: NodeId,
    ) -> Option<bool> {
        let [(clings, src_busy), (_, dst_busy)] =
            [src, dst].map(|node| self.clings_but(task, node));
        match policy::page(clings, dst_busy, src_busy) {
            Page::Stays => Some(!self.mechanisms.cling.kept_pages.count(true)),
            Page::Moves => Some(true),
            Page::Undecided => None,
        }
    }

    /// `task` tried to reach its preferred node.
    pub(crate) fn note_attempt(
        &mut self,
        world: &mut World,
        task: TaskId,
        node: NodeId,
        failed: bool,
    ) {
        let Some(group) = self.numa.group_of(task) else { return };
        let Some(attempts) = self.mechanisms.cling.of_group(group) else { return };
        attempts.nodes[node].attempt(failed);
        let ratio = attempts.nodes[node].ratio;
        let totals = &mut self.mechanisms.cling.totals[node];
        totals.attempts += 1;
        totals.failures += u64::from(failed);
        totals.most_ratio = totals.most_ratio.max(ratio);
        self.tell_attempts(world);
        if failed {
            self.set_preferred(world, task, None);
        }
    }

    /// Traces, for each node, the largest ratio of any group and the number of groups that do not
    /// cling there. Counts groups that have stopped since.
    fn tell_attempts(&mut self, world: &mut World) {
        let degree = self.mechanisms.cling.form.degree;
        for node in 0..self.numa.nodes() {
            let (mut most, mut paused) = (0, 0);
            for attempts in self.mechanisms.cling.attempts.iter().flatten() {
                most = attempts.nodes[node].ratio.max(most);
                paused += u64::from(attempts.is_busy(node, degree));
            }
            world.trace_value("cling ratio of node", node, most);
            let totals = &mut self.mechanisms.cling.totals[node];
            if paused != totals.paused {
                totals.pauses += paused.saturating_sub(totals.paused);
                totals.paused = paused;
                world.trace_value("cling paused on node", node, paused);
            }
        }
    }

    /// At every tick: halves the attempts of each group whose period (6 s by default) is over.
    fn decay_cling(&mut self, world: &mut World) {
        let now = self.jiffies(world.now());
        let state = &mut self.mechanisms.cling;
        let period = ms_to_jiffies(self.features.mechanisms.cling.period_ms.into(), state.hz);
        let mut decayed = false;
        for attempts in state.attempts.iter_mut().flatten() {
            if now >= attempts.next_decay {
                attempts.next_decay = now + period;
                attempts.busiest = policy::decay(&mut attempts.nodes, attempts.busiest);
                decayed = true;
            }
        }
        if decayed {
            self.tell_attempts(world);
        }
    }

    /// Counts a tick of `cpu`, which runs `task`, in `cpu.numa_stat` of the task's cgroups.
    pub(super) fn tick_cgroup(&mut self, world: &mut World, cpu: CpuId, task: TaskId) {
        if self.mechanisms.cling.active {
            self.decay_cling(world);
        }
        let Some(group) = world.group(task) else { return };
        let [remote, local] = self.numa.pages_by_locality(task);
        let node = self.numa.node(cpu);
        let mut next = Some(group as usize);
        while let Some(stat) = next.and_then(|group| self.mechanisms.cling.stats.get_mut(group)) {
            if local + remote > 0 {
                stat.locality[policy::bucket(local, remote)] += 1;
            }
            stat.exec[node] += 1;
            next = stat.parent;
        }
    }
}
