//! Mutexes: those of programs (futexes), and those of the kernel, which only pipes have.
//!
//! A task that wants a taken mutex of a program sleeps. The kernel's `mutex_lock()` first spins while the owner runs
//! (`mutex_optimistic_spin()` in `kernel/locking/mutex.c` of Linux). Spinners queue (`osq`), and the first of them gets
//! the mutex when it is released. A spinner gives up when the owner leaves its CPU, or when it has to give way itself.
//! Then it sleeps. If a woken waiter finds the mutex taken again, the owner hands it over to that waiter.

use std::collections::VecDeque;

use crate::interpret::Step;
use crate::run::Engine;
use crate::scheduler::{CpuId, Scheduler, TaskId};
use crate::task::{Activity, State};

/// A mutex. A released mutex is free for any task that runs first. The waiter that is woken tries again.
#[derive(Default)]
pub(crate) struct Mutex {
    pub owner: Option<TaskId>,
    pub waiters: VecDeque<TaskId>,
    /// The pipe whose mutex this is. `None`: a mutex of a program.
    pub pipe: Option<u32>,
    /// Running tasks that spin, in order.
    pub spinners: VecDeque<TaskId>,
    /// The first waiter, from its wakeup until it owns the mutex.
    pub first: Option<TaskId>,
    /// Whether the owner hands over the mutex to that waiter (MUTEX_FLAG_HANDOFF).
    pub handoff: bool,
}

impl<S: Scheduler> Engine<'_, S> {
    /// Takes the mutex, or waits for it and tries again.
    pub(crate) fn lock(&mut self, cpu: CpuId, id: TaskId, index: u32) -> Step {
        let mutex = &mut self.shared.mutexes[index as usize];
        match mutex.owner {
            None => mutex.owner = Some(id),
            // It was handed over.
            Some(owner) if owner == id => {}
            Some(owner) if mutex.pipe.is_some() => return self.contend(cpu, id, index, owner),
            Some(_) => {
                mutex.waiters.push_back(id);
                return Step::BlockedRetry;
            }
        }
        if mutex.pipe.is_some() {
            let task = &mut self.world.tasks[id.index()];
            (task.kernel_mutex, task.spun) = (Some(index), false);
            if mutex.first == Some(id) {
                (mutex.first, mutex.handoff) = (None, false);
            }
        }
        Step::Done
    }

    /// Whether the task, which runs, spins for a mutex of the kernel, has spun or slept for it, or has been given it.
    pub(crate) fn is_in_mutex_lock(&self, id: TaskId, index: u32) -> bool {
        let (task, mutex) = (&self.world.tasks[id.index()], &self.shared.mutexes[index as usize]);
        task.spins || task.spun || mutex.first == Some(id) || mutex.owner == Some(id)
    }

    /// Spins or sleeps, because `owner` has the mutex.
    fn contend(&mut self, cpu: CpuId, id: TaskId, index: u32, owner: TaskId) -> Step {
        let mutex = &mut self.shared.mutexes[index as usize];
        let first = mutex.first == Some(id);
        mutex.handoff |= first;
        let owner_runs = self.world.tasks[owner.index()].state == State::Running;
        let task = &mut self.world.tasks[id.index()];
        if task.spins || owner_runs && !task.spun && !self.world.cpus[cpu].need_resched {
            if !task.spins {
                task.spins = true;
                mutex.spinners.push_back(id);
            }
            task.kernel_mutex = Some(index);
            task.pc -= 1;
            // It looks again after a tick, in case that nothing ends the spinning.
            let until = self.world.now + self.tick_ns;
            return self.busy(id, Activity::Until(until));
        }
        task.spun = false;
        if !first {
            mutex.waiters.push_back(id);
        }
        Step::BlockedRetry
    }

    pub(crate) fn unlock(&mut self, cpu: CpuId, id: TaskId, index: u32) -> Step {
        let mutex = &mut self.shared.mutexes[index as usize];
        mutex.owner = None;
        let Some(pipe) = mutex.pipe else {
            let woken = mutex.waiters.pop_front();
            return self.wake_from(cpu, id, woken, false);
        };
        self.world.tasks[id.index()].kernel_mutex = None;
        if mutex.handoff {
            self.hand_over(cpu, id, index);
        } else {
            let next = mutex.spinners.front().copied();
            let woken = if mutex.first.is_none() { mutex.waiters.pop_front() } else { None };
            mutex.first = mutex.first.or(woken);
            if let Some(next) = next {
                self.give(cpu, next, index);
            }
            self.wake_from(cpu, id, woken, false);
        }
        self.wake_at_pipe(cpu, id, pipe);
        // The system call ends.
        self.world.return_to_user(cpu);
        Step::Done
    }

    /// The first waiter gets the mutex, whether it spins or sleeps.
    fn hand_over(&mut self, cpu: CpuId, id: TaskId, index: u32) {
        let mutex = &mut self.shared.mutexes[index as usize];
        mutex.handoff = false;
        let Some(heir) = mutex.first.take() else { return };
        if self.world.tasks[heir.index()].spins {
            return self.give(cpu, heir, index);
        }
        mutex.owner = Some(heir);
        self.owner_left(index);
        // Otherwise it is on its way, and finds itself the owner.
        if self.world.tasks[heir.index()].state == State::Blocked {
            self.wake_from(cpu, id, Some(heir), false);
        }
    }

    /// A spinner gets the mutex that `cpu` has released, when the cache line has come.
    fn give(&mut self, cpu: CpuId, spinner: TaskId, index: u32) {
        self.stop_spinning(spinner);
        self.shared.mutexes[index as usize].owner = Some(spinner);
        let task = &mut self.world.tasks[spinner.index()];
        (task.kernel_mutex, task.spun) = (Some(index), false);
        let on = task.cpu;
        self.world.charge_line(on, cpu);
    }

    /// `id`, which runs, no longer spins, and looks at the mutex again.
    pub(crate) fn stop_spinning(&mut self, id: TaskId) {
        let task = &mut self.world.tasks[id.index()];
        let (cpu, index) = (task.cpu, task.kernel_mutex.take());
        (task.spins, task.spun) = (false, true);
        self.world.settle(cpu);
        self.world.tasks[id.index()].activity = Activity::Work(0);
        self.world.mark_stale(cpu);
        if let Some(index) = index {
            self.shared.mutexes[index as usize].spinners.retain(|&spinner| spinner != id);
        }
    }

    /// The owner of a mutex does not run: nobody spins for it any longer.
    pub(crate) fn owner_left(&mut self, index: u32) {
        while let Some(&spinner) = self.shared.mutexes[index as usize].spinners.front() {
            self.stop_spinning(spinner);
        }
    }
}
