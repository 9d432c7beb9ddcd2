//! Virtual time as CFS keeps it, until 6.5 (kernel model, section 4).
//!
//! Every entity's virtual run time increases as it runs, more slowly for heavier entities. The
//! entity that is furthest behind runs. `min_vruntime`, the queue's reference, only grows. Sleepers
//! come back a little behind it.

use roost_engine::TaskId;
use roost_workload::Policy;

use super::{Arrival, Entity, Entry, Leave, Preempt, Queue};
use crate::weight::virtual_delta;

/// The current entity ran for `delta` ns.
pub(super) fn run(queue: &mut Queue, delta: u64) -> bool {
    if let Some(current) = queue.entries.get_mut(queue.current) {
        current.entity.vruntime += virtual_delta(delta, current.entity.weight) as i64;
    }
    update_min_vruntime(queue);
    false
}

/// Places a forked entity: a slice ahead of the parent's queue (START_DEBIT).
pub(super) fn place_forked(queue: &Queue, entity: &mut Entity) {
    let parent = queue.running().map_or(0, |current| current.entity.vruntime);
    let slice = slice(queue, entity, queue.len() + 1, entity.weight);
    let debit = queue.reference + virtual_delta(slice, entity.weight) as i64;
    entity.vruntime = parent.max(debit) - queue.reference;
    entity.relative = true;
}

/// Places an arriving entity. A sleeper gets `credit`, which is at most half a latency
/// (GENTLE_FAIR_SLEEPERS).
pub(super) fn place(queue: &Queue, entity: &mut Entity, how: Arrival, credit: u64) {
    if entity.relative {
        entity.vruntime += queue.reference;
        entity.relative = false;
    }
    if how == Arrival::Wakeup {
        let earliest = queue.reference - credit as i64;
        entity.vruntime = entity.vruntime.max(earliest);
    }
}

/// An entity was taken off.
pub(super) fn leave(queue: &mut Queue, entity: &mut Entity, why: Leave) {
    if why == Leave::Runnable {
        make_relative(queue, entity);
    }
    update_min_vruntime(queue);
}

/// Makes the virtual run time of an entity relative to this queue.
pub(super) fn make_relative(queue: &Queue, entity: &mut Entity) {
    if !entity.relative {
        entity.vruntime -= queue.reference;
        entity.relative = true;
    }
}

/// The entity furthest behind, unless it yielded or a buddy is about as far behind.
pub(super) fn pick(queue: &Queue) -> Option<TaskId> {
    let left = leftmost(queue, None)?;
    if queue.len() == 1 {
        return Some(left.task);
    }
    let close = |entry: &&Entry| !outruns(queue, &entry.entity, &left.entity);
    let buddy = |task: Option<TaskId>| task.and_then(|task| find(queue, task)).filter(close);
    let after_skip = || {
        let yielded = queue.skip == Some(left.task);
        yielded.then(|| leftmost(queue, Some(left.task)))?.filter(close)
    };
    let best = buddy(queue.next).or_else(|| buddy(queue.last)).or_else(after_skip);
    Some(best.unwrap_or(left).task)
}

/// Whether `wakee`, which counts as `arrived`, is far enough behind the current entity to preempt
/// it. If so, the next pick prefers it. If many tasks are queued, the preempted entity runs after
/// it (LAST_BUDDY).
pub(super) fn preempts(queue: &mut Queue, wakee: TaskId, arrived: &Entity) -> Preempt {
    let Some(current) = queue.running() else {
        return Preempt::Yes;
    };
    if !outruns(queue, &current.entity, arrived) {
        return Preempt::No;
    }
    queue.next = Some(wakee);
    prefer_preempted(queue);
    Preempt::Yes
}

/// LAST_BUDDY: the current entity, which is about to be preempted, continues after the wakee if so
/// many others are queued that it would otherwise wait long. SCHED_IDLE entities are no buddies.
pub(super) fn prefer_preempted(queue: &mut Queue) {
    if queue.len() >= queue.rules.nr_latency {
        let last = queue.running().filter(|current| current.entity.policy != Policy::Idle);
        queue.last = last.map(|current| current.task).or(queue.last);
    }
}

/// The tick: whether the current entity, `ran` ns after its pick, has used up its slice or is a
/// slice ahead of another one.
pub(super) fn tick(queue: &mut Queue, ran: u64) -> bool {
    let Some(&Entry { task, entity, .. }) = queue.running() else {
        return false;
    };
    let Some(behind) = queue.waiting_entries().map(|entry| entry.entity.vruntime).min() else {
        return false;
    };
    let slice = slice(queue, &entity, queue.len(), 0);
    if ran > slice {
        queue.clear_buddy(task);
        return true;
    }
    let virtual_slice = slice >> queue.rules.fraction;
    ran >= queue.rules.min_granularity && entity.vruntime - behind > virtual_slice as i64
}

/// The current entity yields: the next pick avoids it.
pub(super) fn yield_current(queue: &mut Queue) {
    if let Some(task) = queue.current() {
        queue.clear_buddy(task);
        queue.skip = Some(task);
    }
}

/// Real time for which an entity may run if `nr` are queued. The total weight is the queue's weight
/// plus `extra` (`sched_slice`).
fn slice(queue: &Queue, entity: &Entity, nr: usize, extra: u64) -> u64 {
    let period = if nr <= queue.rules.nr_latency {
        queue.rules.latency
    } else {
        nr as u64 * queue.rules.min_granularity
    };
    let current = queue.running().map_or(0, |current| current.entity.weight);
    let total = queue.weight as u64 + current + extra;
    let least =
        if queue.rules.slice_at_least_granularity { queue.rules.min_granularity } else { 0 };
    (period * entity.weight / total).max(least)
}

/// Whether `ahead` has run more than `behind` by more than a wakeup granularity, scaled by the
/// weight of `behind` (`wakeup_preempt_entity`).
fn outruns(queue: &Queue, ahead: &Entity, behind: &Entity) -> bool {
    let difference = ahead.vruntime - behind.vruntime;
    difference > 0
        && difference > virtual_delta(queue.rules.wakeup_granularity, behind.weight) as i64
}

/// The entity furthest behind, the current one included, but not `except`.
fn leftmost(queue: &Queue, except: Option<TaskId>) -> Option<&Entry> {
    let others = queue.waiting_entries().filter(|entry| Some(entry.task) != except);
    let first = others.min_by_key(|entry| (entry.entity.vruntime, entry.order));
    let current = queue.running().filter(|current| Some(current.task) != except);
    match (first, current) {
        (Some(first), Some(current)) if current.entity.vruntime < first.entity.vruntime => {
            Some(current)
        }
        (None, current) => current,
        (first, _) => first,
    }
}

/// The entry of a queued task.
fn find(queue: &Queue, task: TaskId) -> Option<&Entry> {
    queue.entries.iter().find(|entry| entry.task == task)
}

/// Moves `min_vruntime` forward to the entity furthest behind. It never moves back.
fn update_min_vruntime(queue: &mut Queue) {
    let least = queue.entries.iter().map(|entry| entry.entity.vruntime).min();
    queue.reference = least.map_or(queue.reference, |least| queue.reference.max(least));
}
