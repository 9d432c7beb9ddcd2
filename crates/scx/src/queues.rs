//! Dispatch queues (DSQs): of each CPU, the global ones of each node, and those that a scheduler makes.

use std::collections::{BTreeMap, VecDeque};

use roost_engine::{CpuId, TaskId};

use crate::memory::Memory;

/// Numbers of built-in queues (`enum scx_dsq_id_flags`).
pub(crate) mod id {
    /// A queue that the kernel makes.
    pub const BUILTIN: u64 = 1 << 63;
    /// The queue of the node.
    pub const GLOBAL: u64 = BUILTIN | 1;
    /// The queue of the CPU.
    pub const LOCAL: u64 = BUILTIN | 2;
    /// The queue of the CPU whose number is in the lower half.
    pub const LOCAL_ON: u64 = BUILTIN | 1 << 62;
    /// That number.
    pub const CPU_MASK: u64 = 0xffff_ffff;
}

/// Which queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Dsq {
    /// Of a CPU.
    Local(CpuId),
    /// Of a node.
    Global(usize),
    /// One that the scheduler made, by its number.
    Made(u64),
}

/// How a queue orders its tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// After the others.
    Last,
    /// Before the others.
    First,
    /// By this virtual time, after those with the same.
    Time(u64),
}

/// A queue: in order, each task with its virtual time if the queue goes by that.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    /// Of its lock, its number of tasks and its first one, which share a cache line. A CPU's own queue has none: it is
    /// guarded by the run queue's.
    pub address: u64,
    /// From when until when its lock is held, ns, in order: those times that are not over.
    held: VecDeque<(u64, u64)>,
    tasks: VecDeque<(TaskId, Option<u64>)>,
}

impl Queue {
    /// Bytes of a queue's struct that are accessed.
    pub(crate) const BYTES: usize = 64;

    /// An empty one; `None` if memory has no room.
    pub(crate) fn new(memory: &mut Memory) -> Option<Self> {
        Some(Self { address: memory.allocate(Self::BYTES)?, ..Self::default() })
    }

    /// A CPU asks at `at` for the lock and holds it for `ns`; how long it waits, ns: until the lock is free for so long.
    /// Hooks are not executed in the order of time, because CPUs have work that still lies ahead of them; none asks
    /// before `now`.
    pub(crate) fn hold(&mut self, now: u64, at: u64, ns: u64) -> u64 {
        while self.held.front().is_some_and(|&(_, until)| until <= now) {
            self.held.pop_front();
        }
        let (mut start, mut place) = (at, self.held.len());
        for (number, &(from, until)) in self.held.iter().enumerate() {
            if from >= start + ns {
                place = number;
                break;
            }
            start = start.max(until);
        }
        match place.checked_sub(1).and_then(|before| self.held.get_mut(before)) {
            Some((_, until)) if *until == start => *until += ns,
            _ if ns > 0 => self.held.insert(place, (start, start + ns)),
            _ => {}
        }
        start - at
    }

    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }

    pub(crate) fn tasks(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.tasks.iter().map(|(task, _)| *task)
    }

    /// Whether tasks are in it that another order put there.
    pub(crate) fn is_mixed_by(&self, order: Order) -> bool {
        let by_time = matches!(order, Order::Time(_));
        self.tasks.front().is_some_and(|(_, time)| time.is_some() != by_time)
    }

    pub(crate) fn insert(&mut self, task: TaskId, order: Order) {
        match order {
            Order::Last => self.tasks.push_back((task, None)),
            Order::First => self.tasks.push_front((task, None)),
            Order::Time(time) => {
                // Times wrap: one is before another if it is less than half the range behind.
                let not_after = |at: &(TaskId, Option<u64>)| {
                    at.1.is_none_or(|at| (time.wrapping_sub(at) as i64) >= 0)
                };
                let place = self.tasks.partition_point(not_after);
                self.tasks.insert(place, (task, Some(time)));
            }
        }
    }

    pub(crate) fn remove(&mut self, task: TaskId) -> bool {
        let place = self.tasks.iter().position(|(known, _)| *known == task);
        place.and_then(|place| self.tasks.remove(place)).is_some()
    }

    pub(crate) fn pop(&mut self) -> Option<TaskId> {
        self.tasks.pop_front().map(|(task, _)| task)
    }
}

/// All queues.
#[derive(Debug)]
pub(crate) struct Queues {
    pub local: Vec<Queue>,
    pub global: Vec<Queue>,
    pub made: BTreeMap<u64, Queue>,
}

impl Queues {
    /// `None` if memory has no room.
    pub(crate) fn new(memory: &mut Memory, nr_cpus: usize, nr_nodes: usize) -> Option<Self> {
        Some(Self {
            local: vec![Queue::default(); nr_cpus],
            global: (0..nr_nodes).map(|_| Queue::new(memory)).collect::<Option<_>>()?,
            made: BTreeMap::new(),
        })
    }

    /// A queue that there is.
    pub(crate) fn get(&mut self, dsq: Dsq) -> Option<&mut Queue> {
        match dsq {
            Dsq::Local(cpu) => self.local.get_mut(cpu),
            Dsq::Global(node) => self.global.get_mut(node),
            Dsq::Made(id) => self.made.get_mut(&id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(inserted: &[(u32, Order)]) -> Vec<u32> {
        let mut queue = Queue::default();
        for (task, order) in inserted {
            queue.insert(TaskId(*task), *order);
        }
        queue.tasks().map(|task| task.0).collect()
    }

    #[test]
    fn a_queue_is_first_come_first_served_unless_told_otherwise() {
        assert_eq!(order(&[(1, Order::Last), (2, Order::Last), (3, Order::First)]), [3, 1, 2]);
    }

    #[test]
    fn virtual_time_orders_and_wraps() {
        let times = [(1, Order::Time(10)), (2, Order::Time(u64::MAX)), (3, Order::Time(10))];
        assert_eq!(order(&times), [2, 1, 3]);
    }

    #[test]
    fn who_comes_while_a_lock_is_held_waits_until_it_is_free_for_long_enough() {
        let mut queue = Queue::default();
        let asks = [(100, 50), (100, 50), (120, 50), (300, 50), (250, 50), (260, 20), (40, 60)];
        let waits = asks.map(|(at, ns)| queue.hold(0, at, ns));
        // Held from 100 to 250 by the first three, from 300 to 350 by the fourth. The fifth fits between, the sixth
        // does not any more; the last is before all.
        assert_eq!(waits, [0, 50, 80, 0, 0, 90, 0]);
        assert_eq!(queue.hold(400, 400, 10), 0);
        assert_eq!(queue.held, [(400, 410)]);
    }

    #[test]
    fn a_queue_knows_when_orders_mix() {
        let mut queue = Queue::default();
        assert!(!queue.is_mixed_by(Order::Time(1)));
        queue.insert(TaskId(1), Order::Time(1));
        assert!(queue.is_mixed_by(Order::Last) && !queue.is_mixed_by(Order::Time(2)));
    }
}
