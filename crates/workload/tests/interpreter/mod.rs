//! The smallest possible engine: as many CPUs as tasks, no scheduler, no costs. Every operation may be delayed by a
//! pseudo-random time, so that runs with many seeds find races in task graphs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use roost_workload::{ChannelKind, Op, TimerRef, Workload};

#[derive(Default)]
struct Task {
    template: usize,
    next: usize,
    loops: Vec<u64>,
    /// Whether the barrier at which it waits has opened.
    released: bool,
}

#[derive(Default)]
struct Mutex {
    owner: Option<usize>,
    queue: VecDeque<usize>,
}

/// The result of a run.
pub struct Outcome {
    /// Values of the workload's counters.
    pub counters: Vec<u64>,
    /// For each task in order of start, the number of operations that it has begun.
    pub begun: Vec<u64>,
    /// For each task, the time at which it began its last operation, in ns.
    pub last: Vec<u64>,
    /// Tasks that have exited.
    pub exited: usize,
}

/// Runs until `end_ns`, or until nothing can run. Each operation is delayed by up to `jitter_ns`.
pub fn run(workload: &Workload, end_ns: u64, jitter_ns: u64, seed: u64) -> Outcome {
    Interpreter::new(workload, jitter_ns, seed).run(end_ns)
}

struct Interpreter<'a> {
    workload: &'a Workload,
    jitter_ns: u64,
    random: u64,
    now: u64,
    runnable: BinaryHeap<Reverse<(u64, u64, usize)>>,
    sequence: u64,
    tasks: Vec<Task>,
    bytes: Vec<u32>,
    blocked: Vec<VecDeque<usize>>,
    mutexes: Vec<Mutex>,
    waiting: Vec<VecDeque<(usize, u32)>>,
    at_barrier: Vec<Vec<usize>>,
    timers: BTreeMap<(Option<usize>, u32), u64>,
    outcome: Outcome,
}

impl<'a> Interpreter<'a> {
    fn new(workload: &'a Workload, jitter_ns: u64, seed: u64) -> Self {
        let mut this = Self {
            workload,
            jitter_ns,
            random: seed,
            now: 0,
            runnable: BinaryHeap::new(),
            sequence: 0,
            tasks: Vec::new(),
            bytes: vec![0; workload.channels.len()],
            blocked: workload.channels.iter().map(|_| VecDeque::new()).collect(),
            mutexes: (0..workload.mutexes).map(|_| Mutex::default()).collect(),
            waiting: (0..workload.conditions).map(|_| VecDeque::new()).collect(),
            at_barrier: workload.barriers.iter().map(|_| Vec::new()).collect(),
            timers: BTreeMap::new(),
            outcome: Outcome {
                counters: vec![0; workload.counters as usize],
                begun: Vec::new(),
                last: Vec::new(),
                exited: 0,
            },
        };
        for (template, instances) in &workload.start {
            for _ in 0..*instances {
                this.create(*template as usize);
            }
        }
        this
    }

    fn run(mut self, end_ns: u64) -> Outcome {
        while let Some(Reverse((time, _, task))) = self.runnable.pop() {
            if time > end_ns {
                break;
            }
            self.now = time;
            self.step(task);
        }
        self.outcome
    }

    fn create(&mut self, template: usize) {
        let kind = &self.workload.templates[template];
        let loops = vec![0; usize::from(kind.program.loop_depth)];
        self.tasks.push(Task { template, loops, ..Task::default() });
        self.outcome.begun.push(0);
        self.outcome.last.push(0);
        self.schedule(self.tasks.len() - 1, kind.delay_ns);
    }

    fn schedule(&mut self, task: usize, after_ns: u64) {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let jitter = (self.random >> 33) % (self.jitter_ns + 1);
        self.sequence += 1;
        self.runnable.push(Reverse((self.now + after_ns + jitter, self.sequence, task)));
    }

    /// Moves a task past its current operation.
    fn done(&mut self, task: usize, after_ns: u64) {
        self.tasks[task].next += 1;
        self.schedule(task, after_ns);
    }

    fn step(&mut self, task: usize) {
        self.outcome.begun[task] += 1;
        self.outcome.last[task] = self.now;
        let template = self.tasks[task].template;
        let ops = &self.workload.templates[template].program.ops;
        let Some(op) = ops.get(self.tasks[task].next) else {
            self.outcome.exited += 1;
            return;
        };
        match *op {
            Op::Run { ns } | Op::Runtime { ns } | Op::Sleep { ns } => self.done(task, ns),
            Op::Timer { timer, period_ns, .. } => self.timer(task, timer, period_ns),
            Op::Lock(mutex) => {
                self.tasks[task].next += 1;
                self.acquire(task, mutex);
            }
            Op::Unlock(mutex) => {
                self.release(mutex);
                self.done(task, 0);
            }
            Op::Wait { condition, mutex } => self.wait(task, condition, mutex),
            Op::Signal(condition) => {
                self.signal(condition, 1);
                self.done(task, 0);
            }
            Op::Broadcast(condition) => {
                self.signal(condition, usize::MAX);
                self.done(task, 0);
            }
            Op::Barrier(barrier) | Op::SpinBarrier { barrier, .. } => {
                self.barrier(task, barrier as usize);
            }
            Op::Meet { barrier, mutex } => self.meet(task, barrier as usize, mutex),
            Op::Start { delay_ns } => self.done(task, delay_ns.saturating_sub(self.now)),
            Op::Fork(child) => {
                self.create(child as usize);
                self.done(task, 0);
            }
            Op::Send { channel, bytes } => self.send(task, channel as usize, bytes),
            Op::Receive { channel, bytes } => self.receive(task, channel as usize, bytes),
            Op::Count { counter, by } => {
                self.outcome.counters[counter as usize] += by;
                self.done(task, 0);
            }
            Op::Loop { depth, times, to } => self.jump(task, usize::from(depth), times, to),
            _ => self.done(task, 0),
        }
    }

    fn timer(&mut self, task: usize, timer: TimerRef, period_ns: u64) {
        let key = match timer {
            TimerRef::Own(number) => (Some(task), number),
            TimerRef::Shared(number) => (None, number),
        };
        let next = self.timers.entry(key).or_insert(0);
        *next = (*next + period_ns).max(self.now);
        let after_ns = *next - self.now;
        self.done(task, after_ns);
    }

    fn acquire(&mut self, task: usize, mutex: u32) {
        let state = &mut self.mutexes[mutex as usize];
        if state.owner.is_none() {
            state.owner = Some(task);
            self.schedule(task, 0);
        } else {
            state.queue.push_back(task);
        }
    }

    fn release(&mut self, mutex: u32) {
        let state = &mut self.mutexes[mutex as usize];
        state.owner = state.queue.pop_front();
        if let Some(next) = state.owner {
            self.schedule(next, 0);
        }
    }

    fn wait(&mut self, task: usize, condition: u32, mutex: u32) {
        assert_eq!(self.mutexes[mutex as usize].owner, Some(task), "waits with the mutex held");
        self.release(mutex);
        self.tasks[task].next += 1;
        self.waiting[condition as usize].push_back((task, mutex));
    }

    fn signal(&mut self, condition: u32, at_most: usize) {
        let queue = &mut self.waiting[condition as usize];
        let woken: Vec<_> = queue.drain(..at_most.min(queue.len())).collect();
        for (task, mutex) in woken {
            self.acquire(task, mutex);
        }
    }

    fn barrier(&mut self, task: usize, barrier: usize) {
        if std::mem::take(&mut self.tasks[task].released) {
            return self.done(task, 0);
        }
        self.at_barrier[barrier].push(task);
        if self.at_barrier[barrier].len() as u32 == self.workload.barriers[barrier] {
            for waiter in std::mem::take(&mut self.at_barrier[barrier]) {
                self.tasks[waiter].released = true;
                self.schedule(waiter, 0);
            }
        }
    }

    fn meet(&mut self, task: usize, barrier: usize, mutex: u32) {
        assert_eq!(self.mutexes[mutex as usize].owner, Some(task), "meets with the mutex held");
        if self.at_barrier[barrier].len() as u32 + 1 < self.workload.barriers[barrier] {
            self.at_barrier[barrier].push(task);
            self.tasks[task].next += 1;
            return self.release(mutex);
        }
        for waiter in std::mem::take(&mut self.at_barrier[barrier]) {
            self.acquire(waiter, mutex);
        }
        self.done(task, 0);
    }

    fn send(&mut self, task: usize, channel: usize, bytes: u32) {
        if self.bytes[channel] + bytes > self.workload.channels[channel].capacity_bytes {
            return self.block(task, channel);
        }
        self.bytes[channel] += bytes;
        self.wake_channel(channel);
        self.done(task, 0);
    }

    fn receive(&mut self, task: usize, channel: usize, bytes: u32) {
        if self.bytes[channel] == 0 {
            return self.block(task, channel);
        }
        self.bytes[channel] -= bytes.min(self.bytes[channel]);
        self.wake_channel(channel);
        self.done(task, 0);
    }

    /// The mutex of a pipe, which a task holds while it reads or writes.
    fn mutex_of(&self, channel: usize) -> Option<u32> {
        match self.workload.channels[channel].kind {
            ChannelKind::Pipe { mutex } => Some(mutex),
            _ => None,
        }
    }

    fn block(&mut self, task: usize, channel: usize) {
        if let Some(mutex) = self.mutex_of(channel) {
            assert_eq!(self.mutexes[mutex as usize].owner, Some(task), "waits with the mutex held");
            self.release(mutex);
        }
        self.blocked[channel].push_back(task);
    }

    /// Lets all tasks that are blocked on a channel check it again.
    fn wake_channel(&mut self, channel: usize) {
        for task in std::mem::take(&mut self.blocked[channel]) {
            match self.mutex_of(channel) {
                Some(mutex) => self.acquire(task, mutex),
                None => self.schedule(task, 0),
            }
        }
    }

    fn jump(&mut self, task: usize, depth: usize, times: u64, to: u32) {
        let state = &mut self.tasks[task];
        state.loops[depth] += 1;
        if times == 0 || state.loops[depth] < times {
            state.next = to as usize;
            self.schedule(task, 0);
        } else {
            state.loops[depth] = 0;
            self.done(task, 0);
        }
    }
}
