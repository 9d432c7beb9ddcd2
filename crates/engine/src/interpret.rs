//! Executes tasks' programs.
//!
//! An operation of a program takes no time, keeps the CPU busy, or blocks the task. Kernel work
//! that an operation causes (a wakeup's search, a fork) is charged to the CPU. The next operation
//! runs only after that time.

use std::collections::VecDeque;

use roost_workload::{Op, TimerRef};

use crate::changes::New;
use crate::events::Event;
use crate::memory::Found;
use crate::run::Engine;
use crate::scheduler::{CpuId, Dequeue, Enqueue, Scheduler, TaskId, Wake};
use crate::sync::Waking;
use crate::task::{Activity, State, Task};
use crate::time::Time;

/// The result of an operation.
pub(crate) enum Step {
    /// It is done, and took no time except for charged work.
    Done,
    /// It keeps the CPU busy. The next operation follows at its end.
    Busy,
    /// The task sleeps, and then continues with the next operation.
    Blocked,
    /// The task sleeps, and then tries this operation again.
    BlockedRetry,
    /// The task left its CPU, or gave it up.
    Left,
}

impl<S: Scheduler> Engine<'_, S> {
    /// The current operation of `cpu`'s `task` has ended: executes operations until one takes time.
    /// Returns whether the end of the task's operation has to be scheduled again.
    #[inline]
    pub(crate) fn advance(&mut self, cpu: CpuId, task: TaskId) -> bool {
        let mut state = &mut self.world.tasks[task.index()];
        if matches!(state.activity, Activity::Sweep { .. }) {
            if !self.leave_sweep(cpu, task) {
                return false;
            }
            state = &mut self.world.tasks[task.index()];
        }
        let ops = match state.root {
            true => self.root_program,
            false => self.programs[state.template as usize],
        };
        loop {
            if state.relock.is_some() {
                if !self.relock(cpu, task) {
                    self.block(cpu, task);
                    return false;
                }
                state = &mut self.world.tasks[task.index()];
            }
            if state.wakes {
                self.wake_next(cpu, task);
            } else {
                let pc = state.pc;
                let Some(op) = ops.get(pc as usize) else {
                    self.end(cpu, task);
                    return false;
                };
                state.pc = pc + 1;
                // Frequent operations that change only the task.
                match *op {
                    Op::Run { ns } => {
                        state.activity = Activity::Work(ns);
                        return true;
                    }
                    Op::Loop { depth, times, to } => {
                        state.repeat(depth, times, to);
                        continue;
                    }
                    _ => {}
                }
                match self.execute(cpu, task, op) {
                    Step::Done => {}
                    Step::Busy => return true,
                    Step::Blocked => {
                        self.block(cpu, task);
                        return false;
                    }
                    Step::BlockedRetry => {
                        self.world.tasks[task.index()].pc = pc;
                        self.block(cpu, task);
                        return false;
                    }
                    Step::Left => return false,
                }
            }
            let on_cpu = &self.world.cpus[cpu];
            let entered_kernel = on_cpu.progress_from > self.world.now;
            if entered_kernel || on_cpu.need_resched {
                self.enter_kernel(cpu, task, entered_kernel);
                return true;
            }
            state = &mut self.world.tasks[task.index()];
        }
    }

    /// The task's next operation follows after work of the kernel, or a switch.
    #[inline(never)]
    fn enter_kernel(&mut self, cpu: CpuId, task: TaskId, works: bool) {
        if works {
            self.world.return_to_user(cpu);
        }
        self.world.tasks[task.index()].activity = Activity::Work(0);
        self.prepare(task);
    }

    /// The task's sweep has ended, or stops for a hinting fault. Returns whether it has ended.
    #[cold]
    fn leave_sweep(&mut self, cpu: CpuId, task: TaskId) -> bool {
        let ended =
            matches!(self.world.tasks[task.index()].activity, Activity::Sweep { until: 0, .. });
        if ended {
            self.end_sweep(cpu, task);
        } else {
            self.hinting_fault(cpu, task);
        }
        ended
    }

    /// Takes the mutex again that the task released to wait for a condition. Returns whether it was
    /// free.
    #[cold]
    fn relock(&mut self, cpu: CpuId, task: TaskId) -> bool {
        let Some(mutex) = self.world.tasks[task.index()].relock else { return true };
        let free = matches!(self.lock(cpu, task, mutex), Step::Done);
        if free {
            self.world.tasks[task.index()].relock = None;
        }
        free
    }

    /// The current operation is finished, but kernel work or a switch comes before the next one. If
    /// the next operation is a run, sets it up now and updates the counters before it. Neither task
    /// nor scheduler can see the difference, and it saves one event per wakeup.
    #[inline]
    pub(crate) fn prepare(&mut self, id: TaskId) {
        let task = &mut self.world.tasks[id.index()];
        let between = task.relock.is_some() || task.wakes || task.half_done;
        if !matches!(task.activity, Activity::Work(0)) || between || task.root {
            return;
        }
        let ops = self.programs[task.template as usize];
        while let Some(op) = ops.get(task.pc as usize) {
            match *op {
                Op::Loop { depth, times, to } => {
                    task.pc += 1;
                    task.repeat(depth, times, to);
                }
                Op::Count { counter, by } => {
                    task.pc += 1;
                    self.shared.counts[counter as usize] += by;
                }
                Op::Run { ns } => {
                    task.pc += 1;
                    task.activity = Activity::Work(ns);
                    return;
                }
                _ => return,
            }
        }
    }

    fn execute(&mut self, cpu: CpuId, id: TaskId, op: &Op) -> Step {
        match *op {
            Op::Run { ns } => self.busy(id, Activity::Work(ns)),
            Op::Runtime { ns } => {
                let until = self.world.now + ns;
                self.busy(id, Activity::Until(until))
            }
            Op::Sleep { ns } => self.sleep_until(id, self.world.now + ns),
            Op::SleepUntil { ns } if Time(ns) > self.world.now => self.sleep_until(id, Time(ns)),
            Op::SleepUntil { .. } => Step::Done,
            Op::Timer { timer, period_ns, absolute } => {
                self.wait_for_timer(id, timer, period_ns, absolute)
            }
            Op::Loop { depth, times, to } => {
                self.world.tasks[id.index()].repeat(depth, times, to);
                Step::Done
            }
            Op::Count { counter, by } => {
                self.shared.counts[counter as usize] += by;
                Step::Done
            }
            Op::Send { channel, bytes } => self.send(cpu, id, channel, bytes),
            Op::Receive { channel, bytes } => self.receive(cpu, id, channel, bytes),
            _ => self.execute_rare(cpu, id, op),
        }
    }

    /// [`Engine::execute`] for other operations.
    #[inline(never)]
    fn execute_rare(&mut self, cpu: CpuId, id: TaskId, op: &Op) -> Step {
        match *op {
            Op::AwaitWork => {
                self.await_work(id);
                Step::Blocked
            }
            Op::OwnTurn => self.own_turn(cpu, id),
            Op::Fork(template) => self.fork(cpu, id, template),
            Op::Yield => self.yield_cpu(cpu, id),
            Op::SetNice(nice) => {
                self.world.tasks[id.index()].nice = nice;
                self.reweight(cpu, id)
            }
            Op::SetPolicy(policy) => {
                self.world.tasks[id.index()].policy = policy;
                self.reweight(cpu, id)
            }
            Op::SetSlice { ns } => {
                self.scheduler.set_slice(&mut self.world, cpu, id, ns);
                Step::Done
            }
            Op::SetGroup(group) => self.set_group(cpu, id, group),
            Op::SetAffinity(set) => self.set_affinity(cpu, id, set),
            Op::SetAffinityOf { template, set } => self.set_affinity_of(cpu, id, template, set),
            Op::SetGroupOf { template, group } => {
                self.change_others(cpu, id, template, &New::Group(group))
            }
            Op::Access(access) => self.begin_sweep(cpu, id, access),
            Op::StartWatch(watch) => {
                self.shared.watches[watch as usize].started = Some(self.world.now);
                Step::Done
            }
            Op::StopWatch(watch) => {
                self.shared.watches[watch as usize].stop(self.world.now);
                Step::Done
            }
            _ => self.synchronise(cpu, id, op),
        }
    }

    /// Mutexes, conditions and barriers.
    #[inline]
    fn synchronise(&mut self, cpu: CpuId, id: TaskId, op: &Op) -> Step {
        match *op {
            Op::Lock(mutex) => self.lock(cpu, id, mutex),
            Op::Unlock(mutex) => self.unlock(cpu, id, mutex),
            Op::Signal(condition) => {
                let woken = self.shared.conditions[condition as usize].pop_front();
                self.wake_from(cpu, id, woken, false)
            }
            Op::Broadcast(condition) => {
                let woken = std::mem::take(&mut self.shared.conditions[condition as usize]);
                self.wake_in_turn(id, woken)
            }
            Op::Wait { condition, mutex } => self.wait(cpu, id, condition, mutex),
            Op::Barrier(barrier) => self.arrive_at_barrier(cpu, id, barrier, None),
            Op::Meet { barrier, mutex } => self.arrive_at_barrier(cpu, id, barrier, Some(mutex)),
            Op::Start { delay_ns } => self.start_together(cpu, id, delay_ns),
            Op::SpinBarrier { barrier, spin_ns } => self.spin_at_barrier(cpu, id, barrier, spin_ns),
            Op::Run { .. }
            | Op::Runtime { .. }
            | Op::Sleep { .. }
            | Op::SleepUntil { .. }
            | Op::Timer { .. }
            | Op::Loop { .. }
            | Op::Count { .. }
            | Op::Send { .. }
            | Op::Receive { .. }
            | Op::AwaitWork
            | Op::OwnTurn
            | Op::Fork(_)
            | Op::Yield
            | Op::SetNice(_)
            | Op::SetPolicy(_)
            | Op::SetSlice { .. }
            | Op::SetGroup(_)
            | Op::SetAffinity(_)
            | Op::SetAffinityOf { .. }
            | Op::SetGroupOf { .. }
            | Op::Access(_)
            | Op::StartWatch(_)
            | Op::StopWatch(_) => unreachable!("{op:?} is executed elsewhere"),
        }
    }

    pub(crate) fn busy(&mut self, id: TaskId, activity: Activity) -> Step {
        self.world.tasks[id.index()].activity = activity;
        Step::Busy
    }

    pub(crate) fn sleep_until(&mut self, id: TaskId, at: Time) -> Step {
        self.world.events.set(Event::Timer(id), at);
        Step::Blocked
    }

    fn wait_for_timer(&mut self, id: TaskId, timer: TimerRef, period: u64, absolute: bool) -> Step {
        let now = self.world.now;
        let first = self.timers_count_from(id);
        let expiry = match timer {
            TimerRef::Own(index) => &mut self.world.tasks[id.index()].timers[index as usize],
            TimerRef::Shared(index) => &mut self.shared.timers[index as usize],
        };
        let next = expiry.unwrap_or(first) + period;
        let missed = next <= now;
        *expiry = Some(if missed && !absolute { now } else { next });
        if missed { Step::Done } else { self.sleep_until(id, next) }
    }

    /// Start of the first period of a timer that `id` is the first to use.
    fn timers_count_from(&self, id: TaskId) -> Time {
        let template = self.world.tasks[id.index()].template;
        let ops = &self.workload.templates[template as usize].program.ops;
        match (self.shared.start.first, ops.first()) {
            (Some(first), Some(Op::Start { delay_ns })) => first + *delay_ns,
            _ => self.world.now,
        }
    }

    fn wait(&mut self, cpu: CpuId, id: TaskId, condition: u32, mutex: u32) -> Step {
        self.shared.conditions[condition as usize].push_back(id);
        self.world.tasks[id.index()].relock = Some(mutex);
        self.unlock(cpu, id, mutex);
        Step::Blocked
    }

    /// Waits for the other parties. `mutex` is released meanwhile.
    fn arrive_at_barrier(
        &mut self,
        cpu: CpuId,
        id: TaskId,
        index: u32,
        mutex: Option<u32>,
    ) -> Step {
        let barrier = &mut self.shared.barriers[index as usize];
        if !barrier.lacks_one() {
            barrier.waiting.push(id);
            self.world.tasks[id.index()].relock = mutex;
            if let Some(mutex) = mutex {
                self.unlock(cpu, id, mutex);
            }
            return Step::Blocked;
        }
        barrier.opened.get_or_insert(self.world.now);
        let woken = std::mem::take(&mut barrier.waiting);
        let spinning = std::mem::take(&mut barrier.spinning);
        for spinner in spinning {
            self.release_spinner(spinner);
        }
        if mutex.is_some() {
            return self.wake_in_turn(id, woken.into());
        }
        // hackbench's gate: one write wakes all pollers, under one lock.
        for woken in woken {
            self.wake_from(cpu, id, Some(woken), false);
        }
        Step::Done
    }

    fn start_together(&mut self, cpu: CpuId, id: TaskId, delay_ns: u64) -> Step {
        let now = self.world.now;
        let start = &mut self.shared.start;
        let first = *start.first.get_or_insert(now);
        if start.coming > 0 {
            start.coming -= 1;
            if start.coming > 0 {
                start.waiting.push(id);
                return Step::BlockedRetry;
            }
            if !start.waiting.is_empty() {
                // It wakes the other tasks and then comes here again.
                self.world.tasks[id.index()].pc -= 1;
                let woken = std::mem::take(&mut start.waiting);
                return self.wake_in_turn(id, woken.into());
            }
        }
        if self.begin(id) {
            let work = self.world.machine.figures.task_ready_ns.value;
            self.world.charge(cpu, work);
            return Step::Done;
        }
        let at = first + delay_ns;
        if at > now { self.sleep_until(id, at) } else { Step::Done }
    }

    /// Waits at the barrier, first by spinning on the CPU. When the operation is executed again,
    /// the spinning time is over.
    #[cold]
    fn spin_at_barrier(&mut self, cpu: CpuId, id: TaskId, index: u32, spin_ns: u64) -> Step {
        let barrier = &mut self.shared.barriers[index as usize];
        let spun = barrier.spinning.iter().position(|&spinner| spinner == id);
        if let Some(place) = spun {
            barrier.spinning.remove(place);
            barrier.waiting.push(id);
            return Step::Blocked;
        }
        if barrier.lacks_one() {
            return self.arrive_at_barrier(cpu, id, index, None);
        }
        barrier.spinning.push(id);
        self.world.tasks[id.index()].pc -= 1;
        let until = self.world.now + spin_ns;
        self.busy(id, Activity::Until(until))
    }

    /// The barrier at which a task spins has opened: the task continues as soon as it runs.
    fn release_spinner(&mut self, id: TaskId) {
        let task = &mut self.world.tasks[id.index()];
        task.pc += 1;
        task.activity = Activity::Work(0);
        let cpu = task.cpu;
        if self.world.cpus[cpu].current == Some(id) {
            self.world.settle(cpu);
            self.world.mark_stale(cpu);
        }
    }

    /// Starts a sweep over memory. Untouched pages are placed first, which takes the task some
    /// time. Then the operation is executed again.
    #[cold]
    fn begin_sweep(&mut self, cpu: CpuId, id: TaskId, access: u32) -> Step {
        let template = self.world.tasks[id.index()].template as usize;
        let access = &self.workload.templates[template].program.accesses[access as usize];
        let Some(memory) = &mut self.world.memory else { return Step::Done };
        let process = self.world.tasks[id.index()].process;
        let placed = memory.touch(cpu, process, id, access);
        if placed > 0 {
            self.world.tasks[id.index()].pc -= 1;
            let cost = self.world.machine.figures.page_fault_ns.value;
            return self.busy(id, Activity::Work(placed * cost));
        }
        self.world.account_llc(cpu);
        let now = self.world.now();
        let Some(memory) = &mut self.world.memory else { return Step::Done };
        let left = memory.begin(cpu, process, id, access);
        let until = memory.until(now, process, id, left, &mut self.world.rng);
        self.busy(id, Activity::Sweep { rate: 0, left, until })
    }

    /// The sweep of `cpu`'s task has reached a marked group of pages. That is a fault, unless
    /// another task had it first.
    #[cold]
    fn hinting_fault(&mut self, cpu: CpuId, id: TaskId) {
        match self.world.take_hint(cpu, id) {
            Found::Fault(fault) => {
                self.scheduler.hinting_fault(&mut self.world, cpu, id, &fault);
                if self.world.end_hint(cpu, id, &fault) {
                    return self.sleep_in_sweep(cpu, id);
                }
                self.world.return_to_user(cpu);
            }
            Found::Moved(fault, pages, waiters) => {
                self.scheduler.page_moved(&mut self.world, cpu, id, &fault, pages);
                for waiter in waiters {
                    self.wake_from(cpu, id, Some(waiter), false);
                }
                self.world.return_to_user(cpu);
            }
            Found::Nothing => {}
        }
        self.world.find_stop(cpu, id);
        self.world.mark_stale(cpu);
    }

    /// `cpu`'s task sleeps at the current point of its sweep, and later continues there.
    fn sleep_in_sweep(&mut self, cpu: CpuId, id: TaskId) {
        self.world.tasks[id.index()].state = State::Blocked;
        self.scheduler.dequeue(&mut self.world, cpu, id, Dequeue::Sleep);
        self.world.cpus[cpu].need_resched = true;
    }

    /// The current operation, a sweep over memory, has ended.
    #[cold]
    fn end_sweep(&mut self, cpu: CpuId, id: TaskId) {
        if let Some(memory) = &mut self.world.memory {
            memory.finish(cpu, id);
        }
        self.world.tasks[id.index()].activity = Activity::Work(0);
    }

    /// Wakes many tasks one after the other, as a futex does. Each search sees where the previous
    /// task went, and the waker may be preempted in between.
    fn wake_in_turn(&mut self, id: TaskId, woken: VecDeque<TaskId>) -> Step {
        if !woken.is_empty() {
            self.world.tasks[id.index()].wakes = true;
            let since = self.world.now;
            self.shared.to_wake.push(Waking { waker: id, since, rest: woken });
        }
        Step::Done
    }

    #[inline(never)]
    fn wake_next(&mut self, cpu: CpuId, id: TaskId) {
        let next = self.shared.next_to_wake(id);
        self.world.tasks[id.index()].wakes = matches!(next, Some((_, _, false)));
        let Some((woken, since, _)) = next else { return };
        self.wake_from(cpu, id, Some(woken), false);
        // The waker was asked to wake all of them at once, so their latency counts from then.
        self.world.tasks[woken.index()].asked_at = since;
    }

    pub(crate) fn wake_from(
        &mut self,
        cpu: CpuId,
        waker: TaskId,
        woken: Option<TaskId>,
        sync: bool,
    ) -> Step {
        if let Some(woken) = woken {
            self.wake(woken, Wake { cpu, waker: Some(waker), sync, interrupt: false }, 0);
        }
        Step::Done
    }

    fn yield_cpu(&mut self, cpu: CpuId, id: TaskId) -> Step {
        self.world.tasks[id.index()].activity = Activity::Work(0);
        self.world.mark_stale(cpu);
        self.scheduler.yield_current(&mut self.world, cpu);
        self.schedule(cpu);
        if self.world.cpus[cpu].current == Some(id) {
            // The same task continues, but it went through the scheduler.
            let cost = self.world.machine.figures.context_switch_ns.value;
            self.world.charge(cpu, cost);
        }
        Step::Left
    }

    fn reweight(&mut self, cpu: CpuId, id: TaskId) -> Step {
        self.scheduler.reweight(&mut self.world, cpu, id);
        Step::Done
    }

    #[inline(never)]
    fn block(&mut self, cpu: CpuId, id: TaskId) {
        let task = &mut self.world.tasks[id.index()];
        task.state = State::Blocked;
        task.activity = Activity::Work(0);
        self.scheduler.dequeue(&mut self.world, cpu, id, Dequeue::Sleep);
        self.world.cpus[cpu].need_resched = true;
    }

    /// The program of `cpu`'s task has ended. The root task waits for the tasks that it started,
    /// one after the other. If it belongs to a process, it waits only for those of that process
    /// (`pthread_join()`, `waitpid()`).
    #[inline(never)]
    fn end(&mut self, cpu: CpuId, id: TaskId) {
        if self.world.tasks[id.index()].root && !self.shared.started.is_empty() {
            self.shared.joining = Some(id);
            return self.block(cpu, id);
        }
        self.exit(cpu, id);
    }

    /// Wakes the root task if it waits for this exiting task.
    fn wake_root(&mut self, cpu: CpuId, id: TaskId) {
        let pid = self.world.tasks[id.index()].pid;
        let Ok(place) = self.shared.started.binary_search(&pid) else { return };
        self.shared.started.remove(place);
        if place == 0 {
            let root = self.shared.joining.take();
            self.wake_from(cpu, id, root, false);
        }
    }

    fn exit(&mut self, cpu: CpuId, id: TaskId) {
        self.wake_root(cpu, id);
        self.forget_changes_of(cpu, id);
        self.world.tasks[id.index()].state = State::Dead;
        self.scheduler.dequeue(&mut self.world, cpu, id, Dequeue::Exit);
        self.world.cpus[cpu].need_resched = true;
    }

    /// Whether the current operation of `id` only begins. Then it is executed again when the
    /// charged work is done.
    pub(crate) fn begin(&mut self, id: TaskId) -> bool {
        let task = &mut self.world.tasks[id.index()];
        task.half_done = !task.half_done;
        task.pc -= u32::from(task.half_done);
        task.half_done
    }

    /// Creates a task. Its CPU is chosen when the work for the fork is done (`wake_up_new_task()`
    /// after `copy_process()`). Then the operation is executed again.
    fn fork(&mut self, cpu: CpuId, parent: TaskId, template: u32) -> Step {
        let mean = self.world.machine.figures.fork_ns.value;
        if self.begin(parent) {
            let jitter = self.world.random_below(mean);
            self.world.charge(cpu, mean / 2 + jitter);
            return Step::Done;
        }
        let child = self.new_task(template, cpu, parent);
        self.scheduler.task_new(&mut self.world, child, Some(parent));
        self.world.counters.forks += 1;
        let Task { pid, process, .. } = self.world.tasks[child.index()];
        let own = self.workload.root_process.is_none_or(|own| own == process);
        if self.world.tasks[parent.index()].root && own {
            self.shared.started.push_back(pid);
        }
        let delay = self.workload.templates[template as usize].delay_ns;
        if delay > 0 {
            self.world.tasks[child.index()].state = State::Blocked;
            self.world.events.set(Event::Timer(child), self.world.now + delay);
            return Step::Done;
        }
        let wake = Wake { cpu, waker: Some(parent), sync: false, interrupt: false };
        let target = self.scheduler.select_cpu_fork(&mut self.world, child, wake);
        self.deliver(child, target, cpu, Enqueue::New);
        Step::Done
    }
}
