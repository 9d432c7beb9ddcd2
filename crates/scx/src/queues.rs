//! Dispatch queues (DSQs): the local queue of each CPU, the global queue of each node, and queues that a scheduler
//! creates.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use roost_engine::{CpuId, TaskId};

use crate::memory::Memory;

/// Numbers of the built-in queues (`enum scx_dsq_id_flags`).
pub(crate) mod id {
    /// Marks a queue that the kernel creates.
    pub const BUILTIN: u64 = 1 << 63;
    /// The global queue of the current node.
    pub const GLOBAL: u64 = BUILTIN | 1;
    /// The local queue of the current CPU.
    pub const LOCAL: u64 = BUILTIN | 2;
    /// The local queue of the CPU whose number is in the lower half.
    pub const LOCAL_ON: u64 = BUILTIN | 1 << 62;
    /// The bits of that number.
    pub const CPU_MASK: u64 = 0xffff_ffff;
}

/// A queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Dsq {
    /// The local queue of a CPU.
    Local(CpuId),
    /// The global queue of a node.
    Global(usize),
    /// A queue that the scheduler created, by its number.
    Made(u64),
}

/// Where a task is put in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// At the end.
    Last,
    /// At the front.
    First,
    /// By this virtual time, behind tasks with the same one.
    Time(u64),
}

/// A lock that several CPUs take.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lock {
    /// Times for which it is held, as start and end in ns, in order. Times that are over are dropped.
    held: VecDeque<(u64, u64)>,
}

impl Lock {
    /// A CPU asks for the lock at the time `at` and holds it for `ns`. Returns how long the CPU waits until the lock is
    /// free for this long, in ns. Hooks are not executed in the order of time, because CPUs may have work that lies
    /// ahead of them. No CPU asks before `now`.
    #[inline]
    pub(crate) fn hold(&mut self, now: u64, at: u64, ns: u64) -> u64 {
        match self.held.back() {
            Some(&(_, until)) if until > at => return self.hold_between(now, at, ns),
            Some(&(_, until)) if until > now => self.drop_over(now),
            _ => self.held.clear(),
        }
        // Nobody asked for it later.
        match self.held.back_mut() {
            Some((_, until)) if *until == at => *until += ns,
            _ if ns > 0 => self.held.push_back((at, at + ns)),
            _ => {}
        }
        0
    }

    /// As [`Lock::hold`], if somebody holds it at `at` or later.
    fn hold_between(&mut self, now: u64, at: u64, ns: u64) -> u64 {
        self.drop_over(now);
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

    /// Drops times that are over.
    fn drop_over(&mut self, now: u64) {
        while self.held.front().is_some_and(|&(_, until)| until <= now) {
            self.held.pop_front();
        }
    }
}

/// A queue: its tasks in order, each with its virtual time if the queue is ordered by that.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    /// Address of the queue's lock, its number of tasks and its first task, which share a cache line. A CPU's local
    /// queue has no address: the lock of the CPU's run queue protects it.
    pub address: u64,
    pub lock: Lock,
    tasks: VecDeque<(TaskId, Option<u64>)>,
}

impl Queue {
    /// Bytes of a queue's struct that are accessed.
    pub(crate) const BYTES: usize = 64;

    /// An empty queue. `None` if the memory has no room.
    pub(crate) fn new(memory: &mut Memory) -> Option<Self> {
        Some(Self { address: memory.allocate(Self::BYTES)?, ..Self::default() })
    }

    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }

    pub(crate) fn tasks(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.tasks.iter().map(|(task, _)| *task)
    }

    /// Whether the queue contains tasks that were put there in another kind of order.
    pub(crate) fn is_mixed_by(&self, order: Order) -> bool {
        let by_time = matches!(order, Order::Time(_));
        self.tasks.front().is_some_and(|(_, time)| time.is_some() != by_time)
    }

    pub(crate) fn insert(&mut self, task: TaskId, order: Order) {
        match order {
            Order::Last => self.tasks.push_back((task, None)),
            Order::First => self.tasks.push_front((task, None)),
            Order::Time(time) => {
                // Virtual times wrap: one is before another if it is less than half the range behind it.
                let not_after = |at: &(TaskId, Option<u64>)| {
                    at.1.is_none_or(|at| (time.wrapping_sub(at) as i64) >= 0)
                };
                // Mostly it is the last one.
                match self.tasks.back().is_none_or(not_after) {
                    true => self.tasks.push_back((task, Some(time))),
                    false => {
                        let place = self.tasks.partition_point(not_after);
                        self.tasks.insert(place, (task, Some(time)));
                    }
                }
            }
        }
    }

    #[inline]
    pub(crate) fn remove(&mut self, task: TaskId) -> bool {
        // Mostly it is the first one.
        if self.tasks.front().is_some_and(|(first, _)| *first == task) {
            return self.tasks.pop_front().is_some();
        }
        let place = self.tasks.iter().position(|(known, _)| *known == task);
        place.and_then(|place| self.tasks.remove(place)).is_some()
    }

    pub(crate) fn pop(&mut self) -> Option<TaskId> {
        self.tasks.pop_front().map(|(task, _)| task)
    }
}

/// The queues that a scheduler created, by number. Most schedulers number some of them from 0 on, for LLCs or nodes:
/// these are found without hashing. Nothing depends on the order of the others.
#[derive(Debug, Default)]
pub(crate) struct Made {
    /// The queues with numbers below [`FEW`].
    few: Vec<Option<Queue>>,
    others: HashMap<u64, Queue, BuildHasherDefault<NumberHasher>>,
}

/// More than the LLCs and nodes of machines that people have.
const FEW: u64 = 1024;

impl Made {
    #[inline]
    pub(crate) fn contains(&self, number: u64) -> bool {
        self.get(number).is_some()
    }

    #[inline]
    pub(crate) fn get(&self, number: u64) -> Option<&Queue> {
        match number {
            0..FEW => self.few.get(number as usize)?.as_ref(),
            _ => self.others.get(&number),
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut Queue> {
        match number {
            0..FEW => self.few.get_mut(number as usize)?.as_mut(),
            _ => self.others.get_mut(&number),
        }
    }

    pub(crate) fn insert(&mut self, number: u64, queue: Queue) {
        if number >= FEW {
            self.others.insert(number, queue);
            return;
        }
        let least = number as usize + 1;
        if self.few.len() < least {
            self.few.resize_with(least, || None);
        }
        self.few[number as usize] = Some(queue);
    }

    pub(crate) fn remove(&mut self, number: u64) {
        match self.few.get_mut(number as usize) {
            Some(place) if number < FEW => *place = None,
            _ => drop(self.others.remove(&number)),
        }
    }

    fn iter(&self) -> impl Iterator<Item = (u64, &Queue)> {
        let few =
            (0..).zip(&self.few).filter_map(|(number, queue)| Some((number, queue.as_ref()?)));
        few.chain(self.others.iter().map(|(number, queue)| (*number, queue)))
    }
}

/// Hashes a queue's number. Its upper bits alone may differ, and a table uses the upper and the lower bits of a hash.
#[derive(Debug, Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    fn write_u64(&mut self, number: u64) {
        // 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming, volume 3, 6.4).
        let product = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ product >> 32;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// All queues.
#[derive(Debug)]
pub(crate) struct Queues {
    pub local: Vec<Queue>,
    pub global: Vec<Queue>,
    pub made: Made,
}

impl Queues {
    /// All queues of a machine. `None` if the memory has no room.
    pub(crate) fn new(memory: &mut Memory, nr_cpus: usize, nr_nodes: usize) -> Option<Self> {
        Some(Self {
            local: vec![Queue::default(); nr_cpus],
            global: (0..nr_nodes).map(|_| Queue::new(memory)).collect::<Option<_>>()?,
            made: Made::default(),
        })
    }

    /// All queues, with their names.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Dsq, &Queue)> {
        let local = self.local.iter().enumerate().map(|(cpu, queue)| (Dsq::Local(cpu), queue));
        let global = self.global.iter().enumerate().map(|(node, queue)| (Dsq::Global(node), queue));
        let made = self.made.iter().map(|(number, queue)| (Dsq::Made(number), queue));
        local.chain(global).chain(made)
    }

    /// An existing queue.
    pub(crate) fn get(&mut self, dsq: Dsq) -> Option<&mut Queue> {
        match dsq {
            Dsq::Local(cpu) => self.local.get_mut(cpu),
            Dsq::Global(node) => self.global.get_mut(node),
            Dsq::Made(id) => self.made.get_mut(id),
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
        let mut lock = Lock::default();
        let asks = [(100, 50), (100, 50), (120, 50), (300, 50), (250, 50), (260, 20), (40, 60)];
        let waits = asks.map(|(at, ns)| lock.hold(0, at, ns));
        // The first three hold the lock from 100 to 250, the fourth from 300 to 350. The fifth fits in between, the
        // sixth does not. The last one comes before all others.
        assert_eq!(waits, [0, 50, 80, 0, 0, 90, 0]);
        assert_eq!(lock.hold(400, 400, 10), 0);
        assert_eq!(lock.held, [(400, 410)]);
    }

    #[test]
    fn a_queue_is_found_by_its_number_until_it_is_removed() {
        let numbers = [0, 3, FEW - 1, FEW, 1 << 32, u64::MAX >> 1];
        let mut made = Made::default();
        for number in numbers {
            made.insert(number, Queue { address: number + 1, ..Queue::default() });
        }
        let mut all: Vec<u64> = made.iter().map(|(number, _)| number).collect();
        all.sort_unstable();
        assert_eq!(all, numbers);
        for number in numbers {
            assert_eq!(made.get(number).map(|queue| queue.address), Some(number + 1));
            assert_eq!(made.get_mut(number).map(|queue| queue.address), Some(number + 1));
            made.remove(number);
            assert!(!made.contains(number) && made.get_mut(number).is_none());
        }
        assert_eq!(made.iter().count(), 0);
        assert!(!made.contains(1) && !made.contains(FEW + 1));
    }

    #[test]
    fn a_queue_knows_when_orders_mix() {
        let mut queue = Queue::default();
        assert!(!queue.is_mixed_by(Order::Time(1)));
        queue.insert(TaskId(1), Order::Time(1));
        assert!(queue.is_mixed_by(Order::Last) && !queue.is_mixed_by(Order::Time(2)));
    }
}
