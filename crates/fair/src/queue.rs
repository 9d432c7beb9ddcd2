//! The tasks of one CPU in virtual time: which runs next, for how long, and which may preempt.
//!
//! The queue holds its entities by value in one flat, unordered array: run queues are short, and a
//! scan of a few cache lines is faster than a tree. The current entity stays in its place there, so
//! that a switch copies nothing. As in the kernel, stored sums are without it, and it is included
//! when they are needed. While a task is queued, its entity is here. The copy in the task is the
//! state with which it left the queue; only its policy and its weight are kept up. An entity also has
//! its task's place in the list from which balancing takes tasks (`cfs_tasks`).
//!
//! CFS and EEVDF are in [`cfs`] and [`eevdf`]. This file has the common parts and is the only place
//! that chooses between them.

mod cfs;
mod eevdf;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::hint::select_unpredictable;
use std::sync::Arc;

use roost_engine::TaskId;
use roost_workload::Policy;

use crate::features::Features;
use crate::weight::NICE_0_WEIGHT;

/// Virtual time state of one task (`struct sched_entity`). Virtual times are in ns at weight 1024.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Entity {
    /// Load weight, 1024 for nice 0.
    pub weight: u64,
    /// `vruntime` (CFS) or `deadline` (EEVDF, `rel_deadline`) is relative.
    pub relative: bool,
    /// EEVDF: the task set `slice`, not the kernel.
    pub custom_slice: bool,
    /// EEVDF: the task sleeps, but its dequeue is delayed (`sched_delayed`).
    pub delayed: bool,
    /// Scheduling policy.
    pub policy: Policy,
    /// EEVDF: length of a request, ns.
    pub slice: u32,
    /// Virtual run time. If `relative` under CFS: relative to the queue that the entity left.
    pub vruntime: i64,
    /// EEVDF: virtual deadline of the current request. If `relative`: relative to `vruntime`.
    pub deadline: i64,
    /// EEVDF: virtual lag when the entity last left a queue, or when its dequeue was delayed.
    pub vlag: i64,
    /// EEVDF: virtual time until which the running entity is protected (`vprot`). Before 7.2: the
    /// deadline at pick, or a value different from the deadline after protection was cancelled.
    pub protected_until: i64,
}

/// Range of slices that a task may ask for, ns. Requests beyond it are clamped
/// (`__setparam_fair()`, kernel model, section 5).
const CUSTOM_SLICE: std::ops::RangeInclusive<u64> = 100_000..=100_000_000;

impl Entity {
    /// The task asks for slices of `ns`. CFS ignores a task's own slice.
    pub(crate) fn ask_for_slice(&mut self, ns: u64) {
        self.custom_slice = true;
        // At most a tenth of a second.
        self.slice = ns.clamp(*CUSTOM_SLICE.start(), *CUSTOM_SLICE.end()) as u32;
    }

    /// A forked task inherits the slice of its `parent`.
    pub(crate) fn inherit_slice(&mut self, parent: &Entity) {
        (self.custom_slice, self.slice) = (parent.custom_slice, parent.slice);
    }
}

/// Constants and switches of a run that queues use. Times are scaled for the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueRules {
    /// EEVDF; otherwise CFS.
    pub eevdf: bool,
    /// CFS: time in which every task runs once, ns (`sched_latency`).
    pub latency: u64,
    /// CFS: shortest slice, ns (`sched_min_granularity`).
    pub min_granularity: u64,
    /// CFS: number of tasks up to which a period is that latency (`sched_nr_latency`).
    pub nr_latency: usize,
    /// CFS: no slice is shorter than `min_granularity` (5.15 and later).
    pub slice_at_least_granularity: bool,
    /// CFS: how far a woken entity may be behind, in virtual time (half of `latency`,
    /// GENTLE_FAIR_SLEEPERS).
    pub sleeper_credit: u64,
    /// Fraction bits of weights. Virtual time passes more slowly by that power of two.
    pub fraction: u32,
    /// CFS: how far behind a wakee must be to preempt, ns (`sched_wakeup_granularity`).
    pub wakeup_granularity: u64,
    /// EEVDF: request of a task that did not ask for a slice, ns (`base_slice_ns`).
    pub base_slice: u32,
    /// The tick's period, ns.
    pub tick: u64,
    /// RUN_TO_PARITY ends at a protection point, not at the deadline at pick.
    pub protection_point: bool,
    /// The lag limit is the largest slice on the queue, not the task's own.
    pub lag_by_queue_slice: bool,
    /// DELAY_DEQUEUE with DELAY_ZERO.
    pub delay_dequeue: bool,
    /// PREEMPT_SHORT.
    pub preempt_short: bool,
    /// Lazy preemption: a request to give way does not set TIF_NEED_RESCHED.
    pub preempt_lazy: bool,
}

impl QueueRules {
    /// The rules of a kernel on a machine of `nr_cpus`: base values grow with
    /// `1 + log2(min(nr_cpus, 8))` (kernel model, sections 1, 4 and 5).
    pub(crate) fn new(features: &Features, nr_cpus: usize) -> Self {
        let factor = 1 + u64::from(nr_cpus.clamp(1, 8).ilog2());
        let set = &features.tunables;
        let or_scaled = |set: Option<u32>, base: u64| set.map_or(base * factor, u64::from);
        let latency = or_scaled(set.latency_ns, 6_000_000);
        let min_granularity = or_scaled(set.min_granularity_ns, 750_000);
        Self {
            eevdf: features.queue.eevdf,
            latency,
            min_granularity,
            nr_latency: latency.div_ceil(min_granularity) as usize,
            slice_at_least_granularity: features.queue.slice_at_least_granularity,
            sleeper_credit: latency / 2,
            fraction: 0,
            wakeup_granularity: or_scaled(set.wakeup_granularity_ns, 1_000_000),
            base_slice: or_scaled(set.base_slice_ns, features.queue.base_slice_ns) as u32,
            tick: features.tick_ns(),
            protection_point: features.queue.protection_point,
            lag_by_queue_slice: features.queue.lag_by_queue_slice,
            delay_dequeue: features.switches.delay_dequeue,
            preempt_short: features.switches.preempt_short,
            preempt_lazy: features.switches.preempt_lazy,
        }
    }
}

impl QueueRules {
    /// The same rules for weights with `bits` fraction bits.
    pub(crate) fn with_fraction(self, bits: u32) -> Self {
        Self { sleeper_credit: self.sleeper_credit >> bits, fraction: bits, ..self }
    }
}

/// How an entity comes to a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Woken after a sleep.
    Wakeup,
    /// Forked.
    New,
    /// Moved while runnable, or put back after a change.
    Moved,
}

/// Why an entity leaves a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// It sleeps or ends.
    Sleep,
    /// It moves to another queue, runnable.
    Runnable,
}

/// No limit on how far behind a wakee counts.
pub(crate) const ANYWHERE: i64 = i64::MIN;

/// Whether an arriving entity preempts the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preempt {
    /// It does.
    Yes,
    /// It does not.
    No,
    /// Complete the delayed dequeue of this entity first, then ask again.
    AfterDequeue(TaskId),
}

/// An entity on a queue: one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Entry {
    task: TaskId,
    /// Order of insertion among those that wait. It decides between equal keys, as in a tree that
    /// inserts to the right. The current entity has [`LAST`].
    order: u32,
    /// Its place in the list of tasks from which balancing takes (`cfs_tasks`). The largest number is
    /// at the head.
    place: i64,
    entity: Entity,
}

const _: () = assert!(size_of::<Entry>() == 64, "one cache line");

/// The order of the current entity: with equal keys, one that waits precedes it.
const LAST: u32 = u32::MAX;

/// The index of no entity.
const NONE: usize = usize::MAX;

/// One CPU's queue (`struct cfs_rq`): two cache lines.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Queue {
    /// All entities, unordered.
    entries: Vec<Entry>,
    /// Index of the current entity, which runs. All others wait. [`NONE`] also while the current one
    /// is put back.
    current: usize,
    /// Shared by all queues of a run.
    rules: Arc<QueueRules>,
    /// CFS: `min_vruntime`. EEVDF: origin of the virtual times in `weighted`; while nothing is
    /// queued, the queue's virtual time.
    reference: i64,
    /// Sum of the weights of those that wait.
    weight: i64,
    /// EEVDF: sum of weight · (vruntime - reference) over those that wait.
    weighted: i64,
    /// `order` of the next insertion. It restarts when nothing waits.
    next_order: u32,
    /// Number of entities with a custom slice, the current one included. While it is 0, all slices
    /// are equal.
    nr_custom: u32,
    /// The current entity was asked to give way and the next pick has not happened
    /// (TIF_NEED_RESCHED), so wakeups have nothing to decide. A lazy request does not set this:
    /// then each wakeup may still shrink the protection or complete a delayed dequeue.
    resched: bool,
    /// Index of the entity that was queued, picked or woken last. Mostly the next question is about it.
    /// When others are removed, it may move.
    found: u32,
    /// CFS: entity to prefer, because it was woken to preempt.
    next: Option<TaskId>,
    /// CFS: entity to prefer, because it was preempted.
    last: Option<TaskId>,
    /// CFS: entity to avoid, because it yielded.
    skip: Option<TaskId>,
    /// [`Entry::place`] of the next task that comes to the head of the list.
    next_place: i64,
}

impl Queue {
    /// An empty queue.
    pub(crate) fn new(rules: impl Into<Arc<QueueRules>>) -> Self {
        Self {
            rules: rules.into(),
            current: NONE,
            entries: Vec::with_capacity(8),
            reference: 0,
            weight: 0,
            weighted: 0,
            next_order: 0,
            nr_custom: 0,
            next: None,
            last: None,
            skip: None,
            resched: false,
            found: 0,
            next_place: 0,
        }
    }

    /// Number of entities, the current one included.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The task of the current entity.
    pub(crate) fn current(&self) -> Option<TaskId> {
        self.running().map(|entry| entry.task)
    }

    /// All tasks, in no order.
    pub(crate) fn tasks(&self) -> impl Iterator<Item = TaskId> + Clone {
        self.entries.iter().map(|entry| entry.task)
    }

    /// Writes all tasks to `list`, in the order of `cfs_tasks`: from its head, with their places there.
    #[inline]
    pub(crate) fn list(&self, list: &mut Vec<(i64, TaskId)>) {
        list.clear();
        list.extend(self.entries.iter().map(|entry| (entry.place, entry.task)));
        if list.len() > 1 {
            list.sort_unstable_by_key(|&(place, _)| Reverse(place));
        }
    }

    /// The task at the head of `cfs_tasks`.
    pub(crate) fn list_head(&self) -> Option<TaskId> {
        self.entries.iter().max_by_key(|entry| entry.place).map(|entry| entry.task)
    }

    /// The task at the tail of `cfs_tasks`.
    pub(crate) fn list_tail(&self) -> Option<TaskId> {
        self.entries.iter().min_by_key(|entry| entry.place).map(|entry| entry.task)
    }

    /// Moves the current task to the head of `cfs_tasks`.
    #[inline]
    pub(crate) fn move_current_to_head(&mut self) {
        if let Some(entry) = self.entries.get_mut(self.current) {
            entry.place = self.next_place;
            self.next_place += 1;
        }
    }

    /// Moves the task at the tail of `cfs_tasks` to its head.
    pub(crate) fn move_tail_to_head(&mut self) {
        if let Some(entry) = self.entries.iter_mut().min_by_key(|entry| entry.place) {
            entry.place = self.next_place;
            self.next_place += 1;
        }
    }

    /// Moves the task at the head of `cfs_tasks` to its tail.
    pub(crate) fn move_head_to_tail(&mut self) {
        let last = self.entries.iter().map(|entry| entry.place).min().unwrap_or_default();
        if let Some(entry) = self.entries.iter_mut().max_by_key(|entry| entry.place) {
            entry.place = last - 1;
        }
    }

    /// The place in `cfs_tasks` of the next task that comes to its head.
    pub(crate) fn next_place(&self) -> i64 {
        self.next_place
    }

    /// All other entities.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (TaskId, &Entity)> {
        self.waiting_entries().map(|entry| (entry.task, &entry.entity))
    }

    /// The current entity.
    #[inline]
    fn running(&self) -> Option<&Entry> {
        self.entries.get(self.current)
    }

    /// All other entities.
    #[inline]
    fn waiting_entries(&self) -> impl Iterator<Item = &Entry> {
        let others = self.entries.iter().enumerate().filter(|(index, _)| *index != self.current);
        others.map(|(_, entry)| entry)
    }

    /// How many wait.
    #[inline]
    fn nr_waiting(&self) -> usize {
        self.entries.len() - usize::from(self.current != NONE)
    }

    /// The stored sum of the weights of waiting entities.
    pub(crate) fn waiting_weight(&self) -> i64 {
        self.weight
    }

    /// The current entity ran for `delta` ns of real time. Returns whether it has to give way: its
    /// request is used up or it lost its protection (EEVDF).
    #[inline]
    pub(crate) fn run(&mut self, delta: u64) -> bool {
        let give_way =
            if self.rules.eevdf { eevdf::run(self, delta) } else { cfs::run(self, delta) };
        self.resched |= give_way && !self.rules.preempt_lazy;
        give_way
    }

    /// CFS: places a forked entity relative to this queue, which is the parent's
    /// (`task_fork_fair`). EEVDF places it when it is queued.
    pub(crate) fn place_forked(&self, entity: &mut Entity) {
        if !self.rules.eevdf {
            cfs::place_forked(self, entity);
        }
    }

    /// Queues an entity that is on no queue.
    #[inline]
    pub(crate) fn insert(&mut self, task: TaskId, entity: Entity, how: Arrival) {
        self.insert_with_credit(task, entity, how, self.rules.sleeper_credit);
    }

    /// As [`Queue::insert`], with another `sleeper_credit`.
    #[inline]
    pub(crate) fn insert_with_credit(
        &mut self,
        task: TaskId,
        mut entity: Entity,
        how: Arrival,
        credit: u64,
    ) {
        if self.rules.eevdf {
            eevdf::place(self, &mut entity, how);
        } else {
            cfs::place(self, &mut entity, how, credit);
        }
        self.nr_custom += u32::from(entity.custom_slice);
        self.push(task, entity);
    }

    /// Takes an entity off the queue, waiting or current. Returns the entity as it leaves.
    #[inline]
    pub(crate) fn remove(&mut self, task: TaskId, why: Leave) -> Entity {
        self.clear_buddy(task);
        let index = self.position(task);
        let mut entity = self.entries[index].entity;
        if self.rules.eevdf {
            eevdf::leave(self, &mut entity, why);
        }
        self.take(index);
        self.nr_custom -= u32::from(entity.custom_slice);
        if !self.rules.eevdf {
            cfs::leave(self, &mut entity, why);
        }
        entity
    }

    /// The current entity goes to sleep. If its dequeue is to be delayed (EEVDF, while it is not
    /// eligible), it becomes a waiting entity with that mark, and the result is true.
    #[inline]
    pub(crate) fn delay_current(&mut self) -> bool {
        self.rules.delay_dequeue && self.rules.eevdf && eevdf::delay_current(self)
    }

    /// A waiting entity whose dequeue was delayed is woken.
    pub(crate) fn wake_delayed(&mut self, task: TaskId) {
        eevdf::wake_delayed(self, task);
    }

    /// The entity to run next; it may be the current one. If its dequeue is delayed, remove it and
    /// ask again.
    #[inline]
    pub(crate) fn pick(&mut self) -> Option<TaskId> {
        self.resched = false;
        if self.rules.eevdf {
            let index = eevdf::pick(self, true)?;
            self.found = index as u32;
            Some(self.entries[index].task)
        } else {
            cfs::pick(self)
        }
    }

    /// Makes a waiting entity the current one. There must be no current one.
    #[inline]
    pub(crate) fn set_current(&mut self, task: TaskId) {
        debug_assert!(self.current == NONE, "the queue already has a current entity");
        self.clear_buddy(task);
        let index = self.position(task);
        self.discount(index);
        self.entries[index].order = LAST;
        self.current = index;
        if self.rules.eevdf {
            eevdf::protect(self);
        }
    }

    /// Makes the current entity a waiting one.
    #[inline]
    pub(crate) fn put_current(&mut self) {
        let index = std::mem::replace(&mut self.current, NONE);
        if index != NONE {
            self.count(index);
        }
    }

    /// Whether `wakee`, which just arrived, preempts the current entity (`check_preempt_wakeup`).
    /// With CFS it counts as no further behind than `place`.
    #[inline]
    pub(crate) fn preempts(&mut self, wakee: TaskId, how: Arrival, place: i64) -> Preempt {
        let Some(Entry { entity: current, .. }) = self.running() else {
            return Preempt::Yes;
        };
        if self.resched {
            return Preempt::No;
        }
        let arrived = self.entity(wakee);
        let is_idle = |entity: &Entity| entity.policy == Policy::Idle;
        let answer = if is_idle(current) && !is_idle(arrived) {
            self.preempt_idle_policy();
            Preempt::Yes
        } else if arrived.policy != Policy::Normal {
            Preempt::No
        } else if self.rules.eevdf {
            let (slice, delayed) = (arrived.slice, arrived.delayed);
            eevdf::preempts(self, wakee, how, slice, delayed)
        } else {
            let behind = Entity { vruntime: arrived.vruntime.max(place), ..*arrived };
            cfs::preempts(self, wakee, &behind)
        };
        self.resched |= answer == Preempt::Yes && !self.rules.preempt_lazy;
        answer
    }

    /// The tick on a CPU whose current entity has run for `ran` ns since it was picked. Returns
    /// whether it has to give way. (For EEVDF [`Queue::run`] returns this.)
    #[inline]
    pub(crate) fn tick(&mut self, ran: u64) -> bool {
        let give_way = !self.rules.eevdf && cfs::tick(self, ran);
        self.resched |= give_way;
        give_way
    }

    /// EEVDF: time that the current entity has to run until its virtual deadline, ns; `None` if the
    /// deadline is past. Rounded up, so that a timer never expires before the deadline.
    pub(crate) fn until_deadline(&self) -> Option<u64> {
        let entity = self.running().map(|entry| &entry.entity)?;
        let ahead = u64::try_from(entity.deadline - entity.vruntime).ok()?;
        Some((ahead * entity.weight).div_ceil(NICE_0_WEIGHT))
    }

    /// The current entity yields.
    pub(crate) fn yield_current(&mut self) {
        if self.len() < 2 {
            return;
        }
        if self.rules.eevdf {
            eevdf::yield_current(self);
        } else {
            cfs::yield_current(self);
        }
    }

    /// Changes the weight and policy of an entity. Its position or its lag is kept.
    pub(crate) fn change(&mut self, task: TaskId, change: impl FnOnce(&mut Entity)) {
        let is_current = self.current() == Some(task);
        let place = self.entries[self.position(task)].place;
        let mut entity = self.remove(task, Leave::Runnable);
        let old = entity.weight;
        change(&mut entity);
        if self.rules.eevdf {
            eevdf::rescale(&mut entity, old);
        }
        self.insert(task, entity, Arrival::Moved);
        if let Some(entry) = self.entries.last_mut() {
            entry.place = place;
        }
        if is_current {
            self.set_current(task);
        }
    }

    /// CFS: how far behind a woken entity may be.
    pub(crate) fn sleeper_credit(&self) -> u64 {
        self.rules.sleeper_credit
    }

    /// Uses the rules for weights with `bits` fraction bits. The queue must be empty.
    pub(crate) fn use_fraction(&mut self, bits: u32) {
        self.rules = Arc::new(self.rules.with_fraction(bits));
    }

    /// Sets the weights of all entities by `weight`. Each entity keeps its lag and the rest of its
    /// request in real time (`reweight_entity`), so that the average does not move.
    pub(crate) fn reweight(&mut self, weight: impl Fn(TaskId) -> u64) {
        let average = if self.rules.eevdf { eevdf::average(self) } else { 0 };
        for entry in &mut self.entries {
            let old = std::mem::replace(&mut entry.entity.weight, weight(entry.task));
            if self.rules.eevdf && entry.entity.weight != old {
                eevdf::rescale_queued(&mut entry.entity, old, average);
            }
        }
        let reference = if self.rules.eevdf { self.reference } else { 0 };
        let (mut weight, mut weighted) = (0, 0);
        for Entry { entity, .. } in self.waiting_entries() {
            weight += entity.weight as i64;
            if self.rules.eevdf {
                weighted += (entity.vruntime - reference) * entity.weight as i64;
            }
        }
        (self.weight, self.weighted) = (weight, weighted);
    }

    /// CFS: how far behind the waiting entities selected by `which` are; no limit if there are
    /// none.
    pub(crate) fn place_of(&self, which: impl Fn(TaskId) -> bool) -> i64 {
        let waiting = self.waiting_entries().filter(|entry| which(entry.task));
        waiting.map(|entry| entry.entity.vruntime).min().unwrap_or(ANYWHERE)
    }

    /// A sleeping entity that was last on this queue will be queued elsewhere
    /// (`migrate_task_rq_fair`).
    #[inline]
    pub(crate) fn migrate_sleeping(&self, entity: &mut Entity) {
        if !self.rules.eevdf {
            cfs::make_relative(self, entity);
        }
    }

    /// EEVDF: whether a queued entity has run no more than its share.
    pub(crate) fn eligible(&self, task: TaskId) -> bool {
        eevdf::eligible(self, self.entity(task))
    }

    /// Whether the next pick prefers the entity (CFS). Balancing leaves such an entity where its
    /// data is.
    pub(crate) fn is_buddy(&self, task: TaskId) -> bool {
        self.next == Some(task) || self.last == Some(task)
    }

    /// The current entity, of policy SCHED_IDLE, gives way to any other entity.
    fn preempt_idle_policy(&mut self) {
        if self.rules.eevdf {
            eevdf::cancel_protection(self);
        } else {
            cfs::prefer_preempted(self);
        }
    }

    /// The entity of a queued task.
    #[inline]
    fn entity(&self, task: TaskId) -> &Entity {
        &self.entries[self.position(task)].entity
    }

    /// Index of a queued task.
    #[inline]
    fn position(&self, task: TaskId) -> usize {
        let found = self.found as usize;
        if self.entries.get(found).is_some_and(|entry| entry.task == task) {
            return found;
        }
        let found = self.entries.iter().position(|entry| entry.task == task);
        debug_assert!(found.is_some(), "task {} is not on this queue", task.0);
        found.unwrap_or_default()
    }

    /// Adds a waiting entity.
    #[inline]
    fn push(&mut self, task: TaskId, entity: Entity) {
        let index = self.entries.len();
        self.entries.push(Entry { task, order: 0, place: self.next_place, entity });
        self.next_place += 1;
        self.found = index as u32;
        self.count(index);
    }

    /// Counts an entity, which waits from now on, behind those that wait already.
    #[inline]
    fn count(&mut self, index: usize) {
        let order = select_unpredictable(self.nr_waiting() == 1, 0, self.next_order);
        let Entity { weight, vruntime, .. } = self.entries[index].entity;
        self.weight += weight as i64;
        self.weighted += self.key(vruntime) * weight as i64;
        self.entries[index].order = order;
        self.next_order = order.wrapping_add(1);
    }

    /// No longer counts an entity that has waited.
    #[inline]
    fn discount(&mut self, index: usize) {
        let Entity { weight, vruntime, .. } = self.entries[index].entity;
        self.weight -= weight as i64;
        self.weighted -= self.key(vruntime) * weight as i64;
    }

    /// Removes an entity, waiting or current.
    #[inline]
    fn take(&mut self, index: usize) {
        if index == self.current {
            self.current = NONE;
        } else {
            self.discount(index);
        }
        self.entries.swap_remove(index);
        // The last one took its place.
        if self.current == self.entries.len() {
            self.current = index;
        }
    }

    /// An entity's virtual time relative to the reference. Only EEVDF adds these up.
    #[inline]
    fn key(&self, vruntime: i64) -> i64 {
        if self.rules.eevdf { vruntime - self.reference } else { 0 }
    }

    /// The task is no longer a buddy.
    #[inline]
    fn clear_buddy(&mut self, task: TaskId) {
        if self.rules.eevdf {
            return;
        }
        for buddy in [&mut self.next, &mut self.last, &mut self.skip] {
            if *buddy == Some(task) {
                *buddy = None;
            }
        }
    }
}
