//! Moves the current task of a CPU to another CPU, alone or in a swap (`migrate_task_to`,
//! `migrate_swap`), by the stopper.

use roost_engine::{CpuId, TaskId, Work, World};

use crate::state::Fair;

/// A move that a CPU's stopper has to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NumaPush {
    task: TaskId,
    to: CpuId,
    /// The task that comes back from there.
    swap: Option<TaskId>,
    why: Why,
}

/// The reason for the move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// The task asked for it. Its destination CPU is marked.
    Numa,
    /// It is the second half of a swap.
    Back,
    /// An idle CPU asked for the task.
    Idle,
}

impl NumaPush {
    /// Whether an idle CPU asked for it. Such a move replaces an active balance.
    pub(crate) fn is_for_idle(self) -> bool {
        self.why == Why::Idle
    }

    /// The idle CPU `to` asks for `task`.
    pub(crate) fn to_idle(task: TaskId, to: CpuId) -> Self {
        Self { task, to, swap: None, why: Why::Idle }
    }
}

impl Fair {
    /// Asks the stopper of `cpu` to move its current task to `to`, in a swap with `swap` if there
    /// is one.
    pub(super) fn ask_to_move(
        &mut self,
        world: &mut World,
        cpu: CpuId,
        task: TaskId,
        to: CpuId,
        swap: Option<TaskId>,
    ) {
        self.rqs[cpu].numa_push = Some(NumaPush { task, to, swap, why: Why::Numa });
        world.kick(cpu, cpu, Work::Stop);
    }

    /// The stopper of `cpu` runs. The task that ran is back on the queue.
    ///
    /// In the kernel a swap stops both CPUs at once. Here the first CPU stops and sends its task to
    /// the other one. That CPU then stops and sends its own task. Meanwhile the first CPU does not
    /// look for work.
    pub(crate) fn numa_stop(&mut self, world: &mut World, cpu: CpuId) {
        let Some(push) = self.rqs[cpu].numa_push.take() else { return };
        let NumaPush { task, to, swap, why } = push;
        match why {
            Why::Back => self.rqs[to].awaits_swap = false,
            Why::Numa => self.rqs[to].numa_migrate_on = false,
            Why::Idle => {
                let moved = self.push_to(world, cpu, task, to);
                return self.on_sent(world, cpu, task, moved);
            }
        }
        let partner_left = swap.is_some_and(|swap| world.task_cpu(swap) != to);
        if partner_left || !self.push_to(world, cpu, task, to) {
            return;
        }
        if let Some(swap) = swap
            && self.rqs[to].numa_push.is_none()
        {
            self.rqs[to].numa_push =
                Some(NumaPush { task: swap, to: cpu, swap: None, why: Why::Back });
            self.rqs[cpu].awaits_swap = true;
            world.kick(cpu, to, Work::Stop);
        }
    }

    /// Moves a task that waits on `cpu` to another CPU. Returns false if the task has left or may
    /// not run there. A task that sleeps wakes near its last CPU (in the kernel it would wake near
    /// the other CPU).
    fn push_to(&mut self, world: &mut World, cpu: CpuId, task: TaskId, to: CpuId) -> bool {
        let state = &self.tasks[task.index()];
        let waits = state.on_rq && !state.running && world.task_cpu(task) == cpu;
        if !waits || !world.allowed(task).contains(to) {
            return false;
        }
        self.detach_queued(world, task, cpu, cpu);
        self.attach_queued(world, task, to, cpu);
        true
    }
}
