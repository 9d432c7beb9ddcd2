//! Automatic NUMA balancing (kernel model, section 12): brings tasks and their memory together.
//!
//! ```text
//! tick ─► scan: marks the next 256 MB of the process
//!           │ a task touches a marked page
//!           ▼
//! fault ─► pages: does the page move here? ─► group: which task used it last?
//!           │ once per full scan               ▲
//!           ▼                                  │
//!         place: which node has most? ─► period: scan slower or faster
//!           │ if not there, from time to time
//!           ▼
//!         choose: a CPU there, or a task to swap with ─► migrate
//! ```
//!
//! | module | kernel counterpart |
//! |---|---|
//! | [`scan`] | `task_tick_numa`, `task_numa_work` |
//! | [`fault`] | `do_numa_page`, `task_numa_fault` |
//! | [`pages`] | `should_numa_migrate_memory` |
//! | [`group`] | `task_numa_group` |
//! | [`place`] | `task_numa_placement` |
//! | [`period`] | `task_scan_min`, `update_task_scan_period` |
//! | [`weight`] | `task_weight`, `group_weight`, the topology's type |
//! | [`choose`] | `task_numa_migrate`, `task_numa_compare` |
//! | [`migrate`] | `migrate_task_to`, `migrate_swap` |
//! | [`balance`] | `migrate_degrades_locality`, `fbq_classify_*` |
//!
//! Numbers are the kernel's, in signed 64-bit arithmetic. On a machine with one node, or for a
//! workload without memory, this module does nothing. Memory tiering is not modelled.

pub(crate) mod balance;
mod choose;
mod fault;
mod group;
mod migrate;
mod pages;
mod period;
mod place;
mod scan;
#[cfg(test)]
mod tests;
mod weight;

use roost_engine::{CpuId, TaskId, World};
use roost_machine::{CpuSet, Machine};

use crate::features::Features;
use crate::state::Fair;
use group::NumaGroup;
pub(crate) use migrate::NumaPush;
use scan::ScannedProcess;
use weight::Distances;

/// A node, by the machine's number.
pub(crate) type NodeId = usize;

/// The two kinds of faults, private and shared ([`Faults`]).
const KINDS: usize = 2;

/// The state of NUMA balancing.
pub(crate) struct Numa {
    /// Whether it is on, there are several nodes, and the workload uses memory.
    pub active: bool,
    tasks: Vec<NumaTask>,
    /// Processes, by number.
    processes: Vec<ScannedProcess>,
    groups: Vec<NumaGroup>,
    /// Numbers of groups that are not in use.
    free_groups: Vec<u32>,
    /// Number of groups created so far. The order of creation stands for the order of addresses.
    created: u64,
    distances: Distances,
    /// CPUs of each node.
    pub(crate) cpus_of: Vec<CpuSet>,
    /// Node of each CPU.
    pub(crate) node_of: Vec<u16>,
    /// Pages migrated to each node in the current interval of the rate limit (3.9).
    limits: Vec<pages::RateLimit>,
    /// Tasks moved to a better node, swapped with another, and those for which nothing was found
    /// (the tracepoints' names).
    moves: u64,
    swaps: u64,
    sticks: u64,
}

impl Numa {
    /// The state at the start of a run. Whether the workload uses memory is not known yet.
    pub(crate) fn new(machine: &Machine, features: &Features) -> Self {
        let nodes = machine.nodes.len();
        Self {
            active: features.switches.numa_balancing && nodes > 1,
            tasks: Vec::new(),
            processes: Vec::new(),
            groups: Vec::new(),
            free_groups: Vec::new(),
            created: 0,
            distances: Distances::new(machine),
            cpus_of: machine.nodes.iter().map(|node| node.cpus.clone()).collect(),
            node_of: machine.cpus.iter().map(|cpu| cpu.node as u16).collect(),
            limits: vec![pages::RateLimit::default(); nodes],
            moves: 0,
            swaps: 0,
            sticks: 0,
        }
    }

    /// Called when the workload is known.
    pub(crate) fn start(&mut self, world: &World) {
        self.active &= world.has_memory();
    }

    /// Name and value of each counter.
    pub(crate) fn counters(&self, sink: &mut dyn FnMut(&str, u64)) {
        if self.active {
            sink("sched_move_numa", self.moves);
            sink("sched_swap_numa", self.swaps);
            sink("sched_stick_numa", self.sticks);
        }
    }

    /// Number of nodes.
    pub(crate) fn nodes(&self) -> usize {
        self.cpus_of.len()
    }

    /// The NUMA group of a task.
    pub(crate) fn group_of(&self, task: TaskId) -> Option<u32> {
        self.tasks.get(task.index())?.group
    }

    /// Pages of all faults of a task, remote and local, by where the pages are after the fault.
    pub(crate) fn pages_by_locality(&self, task: TaskId) -> [u64; 2] {
        self.tasks[task.index()].by_locality
    }

    /// Node of a CPU.
    #[inline]
    pub(crate) fn node(&self, cpu: CpuId) -> NodeId {
        self.node_of[cpu].into()
    }
}

/// Faults by node and kind: 0 shared, 1 private.
type Faults = Vec<[i64; KINDS]>;

/// The NUMA state of a task.
#[derive(Clone, Debug, Default)]
struct NumaTask {
    /// Decayed sums, and sums of the current window, by the node of the memory and of the CPU.
    /// Empty before the first fault.
    mem: Faults,
    cpu: Faults,
    mem_window: Faults,
    cpu_window: Faults,
    /// Sum of `mem`.
    total: i64,
    /// Pages of faults in the window: remote, local, and those that failed to move.
    locality: [u64; 3],
    /// The number of its process's scan after which the task was last placed.
    scan_seq: u64,
    /// Run time between scans, and its upper limit, ms.
    period: u64,
    period_max: u64,
    /// Jiffy after which the task tries again to move to its preferred node.
    migrate_retry: u64,
    /// Run time up to which scans are accounted, ns.
    node_stamp: u64,
    group: Option<u32>,
    /// When the task was last placed, and its run time then, ns; 0 before the first time.
    last_placement: u64,
    last_sum_exec: u64,
    /// Pages of all its faults: remote and local, by where the pages are after the fault
    /// (`cpu.numa_stat`).
    by_locality: [u64; 2],
    /// The task scans when it next returns to user mode.
    work: bool,
}

impl NumaTask {
    /// Whether it has had a fault.
    fn has_faults(&self) -> bool {
        !self.mem.is_empty()
    }

    fn mem_faults(&self, node: NodeId) -> i64 {
        self.mem.get(node).map_or(0, |kinds| kinds.iter().sum())
    }
}

/// The kernel's order of kinds.
fn kind(private: bool) -> usize {
    usize::from(private)
}

impl Fair {
    /// A task was created; `parent` created it, if that task is of the same process.
    pub(crate) fn numa_task_new(&mut self, world: &World, task: TaskId, parent: Option<TaskId>) {
        if !self.numa.active {
            return;
        }
        if self.numa.tasks.len() <= task.index() {
            self.numa.tasks.resize_with(task.index() + 1, NumaTask::default);
        }
        let process = world.process(task);
        let parent = parent.filter(|&parent| world.process(parent) == process);
        let threads = self.join_scanned(world, process);
        let delay_ms = u64::from(self.features.tunables.scan.delay_ms);
        let delay = self.features.numa.places_tasks.then(|| {
            let max = self.scan_max(world, process, None);
            let own = parent.map_or(delay_ms, |p| self.numa.tasks[p.index()].period);
            scan::stagger_ns(max, own, threads, self.tick_ns)
        });
        self.numa.tasks[task.index()] = NumaTask {
            scan_seq: self.numa.processes[process as usize].seq,
            period: delay_ms,
            node_stamp: if threads > 1 { delay.unwrap_or(0) } else { 0 },
            ..NumaTask::default()
        };
        let inherited = parent.and_then(|parent| self.tasks[parent.index()].preferred_node);
        self.tasks[task.index()].preferred_node = inherited;
    }

    /// A task is gone (`task_numa_free`).
    pub(crate) fn numa_task_exit(&mut self, world: &World, task: TaskId) {
        if !self.numa.active {
            return;
        }
        self.leave_group(task);
        let gone = std::mem::take(&mut self.numa.tasks[task.index()]);
        self.shrink_footprint(world, task, gone.total);
        self.numa.processes[world.process(task) as usize].threads -= 1;
    }

    /// Sets the node that the task prefers (`sched_setnuma`).
    pub(crate) fn set_preferred(&mut self, world: &World, task: TaskId, node: Option<NodeId>) {
        let state = &mut self.tasks[task.index()];
        let node = node.map(|node| node as u16);
        if state.preferred_node == node {
            return;
        }
        if state.on_rq {
            let rq = &mut self.rqs[world.task_cpu(task)];
            rq.discount_preferring(state);
            state.preferred_node = node;
            rq.count_preferring(state);
        } else {
            state.preferred_node = node;
        }
    }

    /// The node that a task prefers.
    pub(crate) fn preferred(&self, task: TaskId) -> Option<NodeId> {
        self.tasks[task.index()].preferred_node.map(usize::from)
    }

    /// The load of a task as balancing between nodes counts it (`task_h_load`).
    fn numa_load(&self, task: TaskId) -> i64 {
        self.tasks[task.index()].avg.load_avg as i64
    }
}
