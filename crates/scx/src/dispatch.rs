//! Moves tasks between the scheduler and queues.
//!
//! 1. A program asks to put a task into a queue ([`Call::ask_for`]). In `select_cpu` and `enqueue`, the request is
//!    noted and carried out when the task is enqueued (direct dispatch). In `dispatch`, it goes into a buffer.
//! 2. The buffer is processed after `dispatch`, and before `dispatch` takes a task from a queue ([`Call::flush`]). A
//!    task that the scheduler no longer has is skipped.
//! 3. [`Call::put`] puts a task into a queue. If that is the queue of another CPU, that CPU is notified.

use roost_engine::{CpuId, TaskId};

use crate::costs;
use crate::kernel::{Call, Dispatch, Placing};
use crate::queues::{Dsq, Order};
use crate::tasks::{Custody, Tasks};

/// Flags of an enqueue (`enum scx_enq_flags`).
pub(crate) const ENQUEUE_WAKEUP: u64 = 1;
pub(crate) const ENQUEUE_HEAD: u64 = 1 << 16;
pub(crate) const ENQUEUE_CPU_SELECTED: u64 = 1 << 20;
pub(crate) const ENQUEUE_PREEMPT: u64 = 1 << 32;
pub(crate) const ENQUEUE_LAST: u64 = 1 << 41;
pub(crate) const ENQUEUE_BY_TIME: u64 = 1 << 57;

/// Flags that a program may not use (`__SCX_ENQ_INTERNAL_MASK`).
pub(crate) const INTERNAL_FLAGS: u64 = 0xff << 56;

/// Flags of a kick (`enum scx_kick_flags`).
pub(crate) const KICK_IDLE: u64 = 1;
pub(crate) const KICK_PREEMPT: u64 = 2;
const KICK_WAIT: u64 = 4;

impl Call<'_> {
    /// The program asks to put a task into a queue (`scx_dsq_insert_commit()`).
    pub(crate) fn ask_for(&mut self, task: TaskId, queue: u64, flags: u64) {
        let named = |task| Tasks::named(self.world, task);
        match self.kernel.placing {
            Placing::Nothing => {}
            Placing::Task(expected) if expected == task => {
                self.kernel.tasks.get_mut(task).direct = Some((queue, flags));
                self.kernel.placing = Placing::Done;
                return;
            }
            Placing::Task(expected) => {
                let (expected, other) = (named(expected), named(task));
                let reason =
                    format!("scheduling for {expected} but trying to direct-dispatch {other}");
                return self.kernel.end(reason);
            }
            Placing::Done => {
                let reason = format!("{} already direct-dispatched", named(task));
                return self.kernel.end(reason);
            }
        }
        if self.kernel.buffer.len() >= self.kernel.most_dispatches {
            return self.kernel.end("dispatch buffer overflow");
        }
        if let Custody::Scheduler(time) = self.kernel.tasks.get(task).custody {
            self.kernel.buffer.push(Dispatch { task, time, queue, flags });
        }
    }

    /// Carries out the requests of `dispatch` (`flush_dispatch_buf()`).
    #[inline]
    pub(crate) fn flush(&mut self) {
        if !self.kernel.buffer.is_empty() {
            self.flush_all();
        }
    }

    fn flush_all(&mut self) {
        let asked = std::mem::take(&mut self.kernel.buffer);
        for Dispatch { task, time, queue, flags } in asked {
            self.kernel.moved = true;
            if self.kernel.tasks.get(task).custody == Custody::Scheduler(time) {
                let from = self.world.task_cpu(task);
                let queue = self.kernel.queue_for(queue, self.home, from);
                self.put(task, queue, flags);
            }
        }
    }

    /// Puts a task into a queue (`dispatch_enqueue()`).
    pub(crate) fn put(&mut self, task: TaskId, dsq: Dsq, flags: u64) {
        // The kernel checks it when the task comes from another CPU (`task_can_run_on_remote_rq()`).
        if let Dsq::Local(cpu) = dsq
            && cpu != self.world.task_cpu(task)
            && !self.world.may_run(task, cpu)
        {
            let named = Tasks::named(self.world, task);
            let cpu = self.kernel.machine.cpus[cpu].os_index;
            let reason = format!("SCX_DSQ_LOCAL[_ON] target CPU {cpu} not allowed for {named}");
            return self.kernel.end(reason);
        }
        let dsq = self.online_queue(task, dsq);
        let by_time = flags & ENQUEUE_BY_TIME != 0;
        if by_time && !matches!(dsq, Dsq::Made(_)) {
            return self.kernel.end("cannot use vtime ordering for built-in DSQs");
        }
        let order = if by_time {
            Order::Time(self.kernel.tasks.vtime(&self.kernel.memory, task))
        } else if flags & (ENQUEUE_HEAD | ENQUEUE_PREEMPT) != 0 {
            Order::First
        } else {
            Order::Last
        };
        let Some(queue) = self.kernel.queues.get(dsq) else { return };
        if queue.is_mixed_by(order) {
            let others = if by_time { "FIFO" } else { "PRIQ" };
            return self.kernel.end(format!("{dsq:?} already had {others}-enqueued tasks"));
        }
        queue.insert(task, order);
        self.kernel.tasks.stay_in(task, dsq);
        self.lock_queue(dsq);
        if let Dsq::Local(cpu) = dsq {
            self.tell(task, cpu, flags);
        }
    }

    /// A task that comes from another CPU does not go to the local queue of an offline CPU, but to a global queue
    /// (`dispatch_to_local_dsq()`).
    fn online_queue(&self, task: TaskId, dsq: Dsq) -> Dsq {
        let from = self.world.task_cpu(task);
        match dsq {
            Dsq::Local(cpu) if cpu != from && !self.world.is_active(cpu) => {
                Dsq::Global(self.kernel.machine.cpus[from].node as usize)
            }
            _ => dsq,
        }
    }

    /// Takes a task out of the queue in which it waits (`dispatch_dequeue()`).
    pub(crate) fn take_out(&mut self, task: TaskId, dsq: Dsq) {
        if let Some(queue) = self.kernel.queues.get(dsq) {
            queue.remove(task);
            self.lock_queue(dsq);
        }
    }

    /// Notifies `cpu` that a task is in its queue.
    fn tell(&mut self, task: TaskId, cpu: CpuId, flags: u64) {
        if self.world.task_cpu(task) != cpu {
            self.world.set_task_cpu(task, cpu);
        }
        if self.balancing && cpu == self.home {
            return;
        }
        let running = self.world.current(cpu);
        if let Some(running) = running.filter(|_| flags & ENQUEUE_PREEMPT != 0) {
            self.kernel.tasks.set_slice(&mut self.kernel.memory, running, 0);
            self.world.resched(self.cpu, cpu);
        }
        // If the CPU on which a task is enqueued is idle, it picks a task anyway.
        if running.is_none() && cpu != self.home {
            self.world.mark_queued(cpu);
            self.world.resched(self.cpu, cpu);
        }
    }

    /// Takes the first task that may run here from a queue that the scheduler created (`scx_bpf_dsq_move_to_local()`).
    pub(crate) fn move_to_local(&mut self, number: u64, flags: u64) -> bool {
        if !self.balancing {
            self.kernel.end("scx_bpf_dsq_move_to_local() called outside of ops.dispatch()");
            return false;
        }
        self.flush();
        if !self.kernel.queues.made.contains(number) {
            self.kernel.end(format!("invalid DSQ ID {number:#x}"));
            return false;
        }
        let took = self.consume(Dsq::Made(number), flags);
        self.kernel.moved |= took;
        self.kernel.executed += if took { costs::MOVED } else { 0 };
        took
    }

    /// Takes the first task that may run here from any queue (`consume_dispatch_q()`).
    pub(crate) fn consume(&mut self, dsq: Dsq, flags: u64) -> bool {
        let cpu = self.home;
        // The kernel checks without the lock whether the queue has a task.
        self.touch_queue(dsq, false);
        let Some(queue) = self.kernel.queues.get(dsq).filter(|queue| queue.len() > 0) else {
            return false;
        };
        let found = queue.tasks().find(|&task| self.world.may_run(task, cpu));
        let Some(task) = found else { return false };
        queue.remove(task);
        self.lock_queue(dsq);
        self.put(task, Dsq::Local(cpu), flags & !ENQUEUE_BY_TIME);
        true
    }

    /// `scx_bpf_kick_cpu()`: makes a CPU choose again what to run, once the kernel takes interrupts again.
    pub(crate) fn kick(&mut self, cpu: CpuId, flags: u64) {
        if flags & KICK_WAIT != 0 {
            return self.kernel.end("SCX_KICK_WAIT is not simulated");
        }
        self.kernel.kicks.push((cpu, flags));
    }
}
