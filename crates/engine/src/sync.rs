//! What tasks share and wait for: mutexes, conditions, barriers, channels, timers.

use std::collections::VecDeque;

use roost_workload::{ChannelKind, Op, Workload};

use crate::channels::ChannelState;
use crate::mutex::Mutex;
use crate::scheduler::TaskId;
use crate::time::Time;

#[derive(Default)]
pub(crate) struct Barrier {
    pub parties: u32,
    pub waiting: Vec<TaskId>,
    /// Tasks that wait by spinning.
    pub spinning: Vec<TaskId>,
    /// When all parties had arrived for the first time.
    pub opened: Option<Time>,
}

impl Barrier {
    /// Whether all parties but one have arrived.
    pub(crate) fn lacks_one(&self) -> bool {
        (self.waiting.len() + self.spinning.len()) as u32 + 1 >= self.parties
    }
}

/// A task that is waking many tasks.
pub(crate) struct Waking {
    pub waker: TaskId,
    /// When it began.
    pub since: Time,
    /// The tasks it has still to wake; never empty.
    pub rest: VecDeque<TaskId>,
}

/// A stopwatch.
#[derive(Clone, Copy, Default)]
pub(crate) struct Watch {
    pub started: Option<Time>,
    /// Shortest time measured, ns.
    pub shortest: Option<u64>,
}

impl Watch {
    /// Ends the measurement that `start` began.
    pub(crate) fn stop(&mut self, now: Time) {
        if let Some(started) = self.started.take() {
            let time = now.since(started);
            self.shortest = Some(self.shortest.map_or(time, |shortest| shortest.min(time)));
        }
    }
}

/// rt-app's common start.
#[derive(Default)]
pub(crate) struct CommonStart {
    /// Number of tasks that start with the run and have not arrived yet.
    pub coming: u32,
    /// When the first task arrived.
    pub first: Option<Time>,
    pub waiting: Vec<TaskId>,
}

impl Shared {
    /// All tasks that sleep until something here changes, with the name of that thing.
    pub(crate) fn waiters(&self) -> impl Iterator<Item = (&'static str, TaskId)> {
        let mutexes = self.mutexes.iter().flat_map(|mutex| &mutex.waiters);
        let conditions = self.conditions.iter().flatten();
        let barriers = self.barriers.iter().flat_map(|barrier| &barrier.waiting);
        let channels =
            self.channels.iter().flat_map(|channel| channel.readers.iter().chain(&channel.writers));
        let named = |what: &'static str| move |&task: &TaskId| (what, task);
        (mutexes.map(named("mutex")).chain(conditions.map(named("condition"))))
            .chain(barriers.chain(&self.start.waiting).map(named("barrier")))
            .chain(channels.map(named("channel")))
            .chain(self.joining.iter().map(named("thread")))
    }

    /// The next task that `waker` (with `Task::wakes` set) has to wake, the time since when it is
    /// waking, and whether this is the last one.
    pub(crate) fn next_to_wake(&mut self, waker: TaskId) -> Option<(TaskId, Time, bool)> {
        let index = self.to_wake.iter().position(|waking| waking.waker == waker)?;
        let waking = &mut self.to_wake[index];
        let (woken, since) = (waking.rest.pop_front()?, waking.since);
        let last = waking.rest.is_empty();
        if last {
            self.to_wake.swap_remove(index);
        }
        Some((woken, since, last))
    }
}

/// Everything that tasks of one run share.
pub(crate) struct Shared {
    pub mutexes: Vec<Mutex>,
    pub conditions: Vec<VecDeque<TaskId>>,
    pub barriers: Vec<Barrier>,
    pub start: CommonStart,
    /// Tasks that are waking many tasks.
    pub to_wake: Vec<Waking>,
    pub channels: Vec<ChannelState>,
    pub timers: Vec<Option<Time>>,
    /// Event counters of the workload.
    pub counts: Vec<u64>,
    pub watches: Vec<Watch>,
    /// Numbers ([`Task::pid`](crate::task::Task::pid)) of the tasks that the root task started and
    /// waits for, in order, without those that have exited.
    pub started: VecDeque<u32>,
    /// The root task, while it sleeps until the first of these tasks exits.
    pub joining: Option<TaskId>,
}

/// Number of tasks that start with the run and take part in the common start.
fn coming_to_start(workload: &Workload) -> u32 {
    let comes = |template: u32| {
        let ops = workload.templates.get(template as usize).map(|task| &task.program.ops);
        ops.is_some_and(|ops| matches!(ops.first(), Some(Op::Start { .. })))
    };
    let starting = workload.start.iter().filter(|(template, _)| comes(*template));
    starting.map(|(_, instances)| instances).sum()
}

/// All mutexes. Those that pipes name are of the kernel.
fn mutexes(workload: &Workload) -> Vec<Mutex> {
    let mut mutexes: Vec<Mutex> = (0..workload.mutexes).map(|_| Mutex::default()).collect();
    for (pipe, channel) in (0..).zip(&workload.channels) {
        if let ChannelKind::Pipe { mutex } = channel.kind {
            mutexes[mutex as usize].pipe = Some(pipe);
        }
    }
    mutexes
}

impl Shared {
    pub(crate) fn new(workload: &Workload) -> Self {
        Self {
            mutexes: mutexes(workload),
            conditions: vec![VecDeque::new(); workload.conditions as usize],
            barriers: workload
                .barriers
                .iter()
                .map(|&parties| Barrier { parties, ..Barrier::default() })
                .collect(),
            to_wake: Vec::new(),
            start: CommonStart { coming: coming_to_start(workload), ..CommonStart::default() },
            channels: ChannelState::all_of(workload),
            timers: vec![None; workload.shared_timers as usize],
            counts: vec![0; workload.counters as usize],
            watches: vec![Watch::default(); workload.watches as usize],
            started: VecDeque::new(),
            joining: None,
        }
    }
}
