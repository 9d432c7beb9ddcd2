//! A hinting fault: the page follows the task or stays, and the fault is counted for the task and
//! its memory (`do_numa_page`, `task_numa_fault`; kernel model, section 12.2).

use roost_engine::{CpuId, Followed, HintingFault, TaskId, World};

use super::{KINDS, NodeId, NumaTask, kind};
use crate::state::Fair;

/// What happened to the faulting page.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    /// The node where it is now.
    node: NodeId,
    /// It was on the task's node before.
    local: bool,
    /// It should have moved, but there was no room.
    failed: bool,
    /// More faults, on pages that other tasks were moving.
    left: u64,
}

impl Fair {
    /// `task`, on `cpu`, touched a marked page group.
    pub(crate) fn numa_fault(
        &mut self,
        world: &mut World,
        cpu: CpuId,
        task: TaskId,
        fault: &HintingFault,
    ) {
        if !self.numa.active {
            return;
        }
        self.on_fault(cpu, task);
        if !self.features.numa.places_tasks {
            return self.old_fault(world, cpu, task, fault);
        }
        let outcome = self.move_page(world, cpu, task, fault);
        self.note_user(world, task, fault.area);
        self.account_fault(world, cpu, task, fault, outcome);
    }

    /// 3.9 (`do_huge_pmd_numa_page`): a page that should move to the task's node is locked and
    /// copied. Another task that wants it on the same node waits for the lock. Any other task that
    /// reaches it makes it present where it is, and the copy is given up.
    fn old_fault(&mut self, world: &mut World, cpu: CpuId, task: TaskId, fault: &HintingFault) {
        let here = self.numa.node(cpu);
        let comes = fault.node != here && self.page_follows(world, cpu, task, fault);
        let now = self.jiffies(world.now());
        if comes && fault.moving {
            world.await_move(task, fault);
        } else if comes && self.within_limit(cpu, now, fault.pages) {
            return world.begin_move(cpu, task, fault, here);
        }
        // This task has not moved the page.
        self.lengthen_old_period(task, fault.pages);
    }

    /// Moves the page to the task's node if it should follow.
    fn move_page(
        &mut self,
        world: &mut World,
        cpu: CpuId,
        task: TaskId,
        fault: &HintingFault,
    ) -> Outcome {
        let here = self.numa.node(cpu);
        let local = fault.node == here;
        let stays = Outcome { node: fault.node, local, failed: false, left: 0 };
        if local || !self.page_follows(world, cpu, task, fault) {
            return stays;
        }
        match world.move_faulting(cpu, fault, here) {
            Followed { moved: 0, .. } => Outcome { failed: true, ..stays },
            Followed { left, .. } => Outcome { node: here, left, ..stays },
        }
    }

    fn account_fault(
        &mut self,
        world: &mut World,
        cpu: CpuId,
        task: TaskId,
        fault: &HintingFault,
        outcome: Outcome,
    ) {
        let nodes = self.numa.nodes();
        self.numa.tasks[task.index()].prepare(nodes);
        let private = match fault.last {
            None => true,
            Some(last) => {
                let own = last.pid == world.pid(task) as u8;
                match self.numa_cgroup(world, task) {
                    Some(cgroup) => {
                        self.join_cgroup(world, task, cgroup);
                        own && !fault.shared
                    }
                    None => own || self.join_by_page(world, task, last, fault),
                }
            }
        };
        let here = self.numa.node(cpu);
        let within = |there| !private && self.within_active(task, here, there);
        let local = outcome.local || within(outcome.node);
        let left_local = within(fault.node);
        if self.jiffies(world.now()) > self.numa.tasks[task.index()].migrate_retry {
            self.place(world, task);
            self.migrate_preferred(world, cpu, task);
        }
        let state = &mut self.numa.tasks[task.index()];
        let mut count = |pages: u64, there: NodeId, local: bool, failed: bool| {
            state.mem_window[there][kind(private)] += pages as i64;
            state.cpu_window[here][kind(private)] += pages as i64;
            state.locality[usize::from(local)] += pages;
            state.by_locality[usize::from(here == there)] += pages;
            if failed {
                state.locality[2] += pages;
            }
        };
        count(fault.pages, outcome.node, local, outcome.failed);
        count(outcome.left, fault.node, left_local, true);
    }

    /// Whether the group of `task` is active on both nodes. Then both count as local.
    fn within_active(&self, task: TaskId, a: NodeId, b: NodeId) -> bool {
        self.numa.tasks[task.index()].group.is_some_and(|group| {
            let group = &self.numa.groups[group as usize];
            group.active_nodes > 1 && group.is_active(a) && group.is_active(b)
        })
    }
}

impl NumaTask {
    /// Allocates the sums before the first fault.
    fn prepare(&mut self, nodes: usize) {
        if !self.has_faults() {
            let none = || vec![[0; KINDS]; nodes];
            (self.mem, self.cpu) = (none(), none());
            (self.mem_window, self.cpu_window) = (none(), none());
        }
    }
}
