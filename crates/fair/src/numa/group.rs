//! Groups of tasks that share memory, found by their faults (`task_numa_group`; kernel model,
//! section 12.4).

use roost_engine::{HintingFault, LastAccess, TaskId, World};

use super::period::GroupUse;
use super::{Faults, KINDS, NodeId, NumaTask};
use crate::state::Fair;

/// A node is active if it has more than this fraction, 1/3, of the most faults of any node
/// (ACTIVE_NODE_FRACTION).
pub(super) const ACTIVE_NODE_FRACTION: i64 = 3;

/// Tasks that use the same memory (`struct numa_group`).
#[derive(Clone, Debug, Default)]
pub(super) struct NumaGroup {
    pub tasks: u64,
    /// The kernel compares groups by address; here by order of creation.
    order: u64,
    /// Sums of its tasks' faults, by the node of the memory and of the CPU.
    pub mem: Faults,
    pub cpu: Faults,
    pub total: i64,
    /// Most faults from the CPUs of any one node.
    pub max_faults_cpu: i64,
    /// Number of nodes from which many of its faults come.
    pub active_nodes: u32,
    /// It belongs to a cgroup, which holds a reference. It stays when it has no tasks.
    of_cgroup: bool,
}

impl NumaGroup {
    pub(super) fn mem_faults(&self, node: NodeId) -> i64 {
        self.mem[node].iter().sum()
    }

    pub(super) fn cpu_faults(&self, node: NodeId) -> i64 {
        self.cpu[node].iter().sum()
    }

    /// `numa_is_active_node`.
    pub(super) fn is_active(&self, node: NodeId) -> bool {
        self.cpu_faults(node) * ACTIVE_NODE_FRACTION > self.max_faults_cpu
    }

    /// `numa_group_count_active_nodes`.
    pub(super) fn count_active_nodes(&mut self) {
        let faults: Vec<i64> = (0..self.cpu.len()).map(|node| self.cpu_faults(node)).collect();
        let most = faults.iter().copied().max().unwrap_or(0).max(0);
        let active = faults.iter().filter(|&&faults| faults * ACTIVE_NODE_FRACTION > most);
        self.active_nodes = active.count() as u32;
        self.max_faults_cpu = most;
    }

    /// The numbers that scan periods depend on.
    pub(super) fn usage(&self) -> GroupUse {
        let sum = |kind: usize| self.mem.iter().map(|kinds| kinds[kind]).sum();
        let refs = self.tasks + u64::from(self.of_cgroup);
        GroupUse { refs, shared: sum(0), private: sum(1) }
    }

    /// Adds a task with its faults, or removes it.
    fn change(&mut self, task: &NumaTask, sign: i64) {
        let add = |sums: &mut Faults, faults: &Faults| {
            for (sum, own) in sums.iter_mut().zip(faults) {
                (0..KINDS).for_each(|kind| sum[kind] += sign * own[kind]);
            }
        };
        add(&mut self.mem, &task.mem);
        add(&mut self.cpu, &task.cpu);
        self.total += sign * task.total;
        self.tasks = self.tasks.wrapping_add_signed(sign);
    }
}

impl Fair {
    /// `task` has a shared fault on memory that `last` used before: it may join that task's group.
    /// Returns whether the fault counts as private.
    pub(super) fn join_by_page(
        &mut self,
        world: &World,
        task: TaskId,
        last: LastAccess,
        fault: &HintingFault,
    ) -> bool {
        let own = match self.numa.tasks[task.index()].group {
            Some(group) => group,
            None => self.new_group(task),
        };
        let Some(theirs) = self.group_of_last(world, last) else { return false };
        if theirs == own {
            return false;
        }
        let (mine, other) = (&self.numa.groups[own as usize], &self.numa.groups[theirs as usize]);
        // The smaller group joins the larger one, so that the two do not swap.
        if mine.tasks > other.tasks || (mine.tasks == other.tasks && mine.order > other.order) {
            return false;
        }
        let joined = self.is_of(world, last, task) || fault.shared;
        if joined {
            self.join_group(task, theirs);
        }
        !joined
    }

    /// The current task of the CPU that last used a page, if it is the task that used it.
    fn on_cpu_of(&self, world: &World, last: LastAccess) -> Option<TaskId> {
        let current = world.current(last.cpu.into())?;
        (world.pid(current) as u8 == last.pid).then_some(current)
    }

    fn group_of_last(&self, world: &World, last: LastAccess) -> Option<u32> {
        let other = self.on_cpu_of(world, last)?;
        self.numa.tasks[other.index()].group
    }

    fn is_of(&self, world: &World, last: LastAccess, task: TaskId) -> bool {
        let other = self.on_cpu_of(world, last);
        other.is_some_and(|other| world.process(other) == world.process(task))
    }

    /// Makes a group without tasks.
    fn empty_group(&mut self) -> u32 {
        let empty = || vec![[0; KINDS]; self.numa.nodes()];
        let order = self.numa.created;
        let (mem, cpu) = (empty(), empty());
        let new = NumaGroup { order, mem, cpu, active_nodes: 1, ..NumaGroup::default() };
        self.numa.created += 1;
        match self.numa.free_groups.pop() {
            Some(group) => {
                self.numa.groups[group as usize] = new;
                group
            }
            None => {
                self.numa.groups.push(new);
                self.numa.groups.len() as u32 - 1
            }
        }
    }

    /// Makes a NUMA group without tasks, for a cgroup.
    pub(crate) fn group_of_cgroup(&mut self) -> u32 {
        let group = self.empty_group();
        self.numa.groups[group as usize].of_cgroup = true;
        group
    }

    /// Makes a group with only `task`.
    fn new_group(&mut self, task: TaskId) -> u32 {
        let group = self.empty_group();
        self.join_group(task, group);
        group
    }

    /// Moves `task` with all its faults from its group, if any, to another one.
    pub(crate) fn join_group(&mut self, task: TaskId, group: u32) {
        self.leave_group(task);
        let state = &mut self.numa.tasks[task.index()];
        self.numa.groups[group as usize].change(state, 1);
        state.group = Some(group);
    }

    /// Removes `task` from its group.
    pub(super) fn leave_group(&mut self, task: TaskId) {
        let state = &mut self.numa.tasks[task.index()];
        let Some(group) = state.group.take() else { return };
        let left = &mut self.numa.groups[group as usize];
        left.change(state, -1);
        if left.tasks == 0 && !left.of_cgroup {
            self.numa.free_groups.push(group);
        }
    }
}
