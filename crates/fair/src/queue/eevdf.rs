//! Virtual time as EEVDF keeps it, since 6.6 (kernel model, section 5).
//!
//! An entity's lag is how far its virtual run time is behind the weighted average `V`. Entities
//! that are not ahead of `V` are eligible. The eligible entity with the earliest virtual deadline
//! runs. Lag is kept, within a limit, over sleep and migration. An entity that goes to sleep while
//! it is ahead stays queued until it would be picked (delayed dequeue), so that it cannot lose its
//! debt by sleeping.

use std::hint::select_unpredictable;

use roost_engine::TaskId;

use super::{Arrival, Entity, Entry, LAST, Leave, NONE, Preempt, Queue};
use crate::weight::virtual_delta;

/// Distance of the current entity from the queue's reference at which the reference is moved, ns of
/// virtual time. It keeps sums of weight times distance far from overflow. Assumption, without
/// effect on decisions.
const REFERENCE_RANGE: i64 = 1 << 33;

/// The current entity ran for `delta` ns. Returns whether its request is used up or its protection
/// lost while another entity waits.
#[inline]
pub(super) fn run(queue: &mut Queue, delta: u64) -> bool {
    let base_slice = queue.rules.base_slice;
    let Some(Entry { entity, .. }) = queue.entries.get_mut(queue.current) else {
        return false;
    };
    entity.vruntime += virtual_delta(delta, entity.weight) as i64;
    let request_done = entity.vruntime >= entity.deadline;
    if request_done {
        renew(entity, base_slice);
    }
    let distance = entity.vruntime - queue.reference;
    if distance > REFERENCE_RANGE {
        queue.reference += distance;
        queue.weighted -= distance * queue.weight;
    }
    let lost = |entry: &Entry| lost_protection(queue, &entry.entity);
    queue.len() > 1 && (request_done || queue.running().is_some_and(lost))
}

/// Places an arriving entity so that it has the lag it left with, after it has joined.
#[inline]
pub(super) fn place(queue: &Queue, entity: &mut Entity, how: Arrival) {
    if !entity.custom_slice {
        entity.slice = queue.rules.base_slice;
    }
    let (_, weight) = totals(queue);
    let mut lag = 0;
    if entity.vlag != 0 && weight > 0 {
        lag = entity.vlag * (weight + entity.weight as i64) / weight;
    }
    entity.vruntime = average(queue) - lag;
    if entity.relative {
        entity.deadline += entity.vruntime;
        entity.relative = false;
        return;
    }
    let request = virtual_delta(entity.slice.into(), entity.weight) as i64;
    let request = if how == Arrival::New { request / 2 } else { request };
    entity.deadline = entity.vruntime + request;
}

/// Stores in a leaving entity, which still counts, the lag that it takes along.
pub(super) fn leave(queue: &mut Queue, entity: &mut Entity, why: Leave) {
    if queue.len() == 1 {
        queue.reference = entity.vruntime;
        queue.weighted = 0;
    }
    entity.vlag = current_lag(queue, entity, average(queue) - entity.vruntime);
    match why {
        Leave::Sleep if entity.delayed => {
            entity.vlag = entity.vlag.min(0);
            entity.delayed = false;
        }
        Leave::Sleep => {}
        Leave::Runnable => {
            entity.deadline -= entity.vruntime;
            entity.relative = true;
        }
    }
}

/// Delays the dequeue of the current entity if it is not eligible.
#[inline]
pub(super) fn delay_current(queue: &mut Queue) -> bool {
    let totals = totals(queue);
    let Some(Entry { entity, .. }) = queue.running() else {
        return false;
    };
    if is_eligible(queue, totals, entity) {
        return false;
    }
    let average = average_of(queue, totals);
    let vlag = limited_lag(queue, entity, average - entity.vruntime);
    if let Some(Entry { entity, .. }) = queue.entries.get_mut(queue.current) {
        (entity.delayed, entity.vlag) = (true, vlag);
    }
    queue.put_current();
    true
}

/// A delayed entity is woken where it is. It is placed anew if it has no debt left, or a debt above
/// the limit.
pub(super) fn wake_delayed(queue: &mut Queue, task: TaskId) {
    let index = queue.position(task);
    queue.found = index as u32;
    let entity = &queue.entries[index].entity;
    let lag = average(queue) - entity.vruntime;
    let kept = current_lag(queue, entity, lag).min(0);
    queue.discount(index);
    let entity = &mut queue.entries[index].entity;
    (entity.delayed, entity.vlag) = (false, kept);
    if kept != lag {
        let mut placed = *entity;
        place(queue, &mut placed, Arrival::Wakeup);
        queue.entries[index].entity = placed;
    }
    queue.count(index);
}

/// Index of the eligible entity with the earliest deadline. The current entity is kept while it is
/// eligible and protected, unless `protect` is off.
pub(super) fn pick(queue: &Queue, protect: bool) -> Option<usize> {
    if let [] | [_] = queue.entries[..] {
        return (!queue.entries.is_empty()).then_some(0);
    }
    let totals = totals(queue);
    if protect
        && let Some(current) = queue.running()
        && is_protected(queue, &current.entity)
        && is_eligible(queue, totals, &current.entity)
    {
        return Some(queue.current);
    }
    // Without branches, because processors predict badly which entity is the first.
    let (mut best, mut earliest, mut first) = (NONE, i64::MAX, LAST);
    for (index, entry) in queue.entries.iter().enumerate() {
        let (deadline, order) = (entry.entity.deadline, entry.order);
        let sooner = (deadline < earliest) | ((deadline == earliest) & (order <= first));
        let better = sooner & is_eligible(queue, totals, &entry.entity);
        best = select_unpredictable(better, index, best);
        earliest = select_unpredictable(better, deadline, earliest);
        first = select_unpredictable(better, order, first);
    }
    (best != NONE).then_some(best)
}

/// Protects the current entity, which begins to run.
#[inline]
pub(super) fn protect(queue: &mut Queue) {
    let (protection_point, quantum) = (queue.rules.protection_point, min_slice(queue));
    let Some(Entry { entity, .. }) = queue.entries.get_mut(queue.current) else { return };
    entity.protected_until = entity.deadline;
    if protection_point {
        let quantum = quantum.min(entity.slice);
        if quantum != entity.slice {
            let until = entity.vruntime + virtual_delta(quantum.into(), entity.weight) as i64;
            entity.protected_until = until.min(entity.deadline);
        }
    }
}

/// Cancels the protection of the current entity.
pub(super) fn cancel_protection(queue: &mut Queue) {
    let vprot = queue.rules.protection_point;
    if let Some(Entry { entity, .. }) = queue.entries.get_mut(queue.current) {
        if vprot {
            entity.protected_until = entity.protected_until.min(entity.vruntime);
        } else if entity.protected_until == entity.deadline {
            entity.protected_until += 1;
        }
    }
}

/// Whether `wakee`, with this `slice` and possibly a `delayed` dequeue, would be picked now.
#[inline]
pub(super) fn preempts(
    queue: &mut Queue,
    wakee: TaskId,
    how: Arrival,
    slice: u32,
    delayed: bool,
) -> Preempt {
    let Some(Entry { entity: current, .. }) = queue.running() else {
        return Preempt::Yes;
    };
    let shorter = queue.rules.preempt_short && slice < current.slice;
    if !queue.rules.protection_point {
        let arrived = queue.entity(wakee);
        let sooner = arrived.deadline < current.deadline;
        if shorter && eligible(queue, arrived) && (sooner || !eligible(queue, current)) {
            cancel_protection(queue);
        }
        let wins = pick(queue, true).is_some_and(|best| queue.entries[best].task == wakee);
        return if wins { Preempt::Yes } else { Preempt::No };
    }
    if !shorter && (how == Arrival::New || delayed) {
        return Preempt::No;
    }
    match pick(queue, !shorter).map(|best| &queue.entries[best]) {
        Some(best) if best.task == wakee => {
            if shorter {
                cancel_protection(queue);
            }
            Preempt::Yes
        }
        Some(best) if best.entity.delayed => Preempt::AfterDequeue(best.task),
        _ => {
            shrink_protection(queue);
            Preempt::No
        }
    }
}

/// The current entity yields: its request counts as used up. Since 6.18 it also gives up the rest
/// of its request if it is eligible ("sched/fair: Forfeit vruntime on yield", 79104becf42b).
pub(super) fn yield_current(queue: &mut Queue) {
    let forfeits = queue.rules.protection_point;
    let may = queue.running().is_some_and(|current| eligible(queue, &current.entity));
    if let Some(Entry { entity, .. }) = queue.entries.get_mut(queue.current) {
        let request = virtual_delta(entity.slice.into(), entity.weight) as i64;
        if !forfeits {
            entity.deadline += request;
        } else if may {
            entity.vruntime = entity.deadline;
            entity.deadline += request;
        }
    }
}

/// An entity off the queue, whose weight was `old`, keeps its lag and the rest of its request in
/// real time.
pub(super) fn rescale(entity: &mut Entity, old: u64) {
    let (old, new) = (old as i64, entity.weight as i64);
    entity.vlag = entity.vlag * old / new;
    if entity.relative {
        entity.deadline = entity.deadline * old / new;
    }
}

/// An entity on the queue, whose weight was `old`, keeps its lag against `average`, and the rest of
/// its request and protection in real time.
pub(super) fn rescale_queued(entity: &mut Entity, old: u64, average: i64) {
    let (from, to) = (old as i64, entity.weight.max(1) as i64);
    let scaled = |time: i64| {
        if let Some(product) = time.checked_mul(from) {
            return product / to;
        }
        let time = i128::from(time) * i128::from(from) / i128::from(to);
        i64::try_from(time).unwrap_or(if time < 0 { i64::MIN / 4 } else { i64::MAX / 4 })
    };
    let vruntime = average - scaled(average - entity.vruntime);
    let ahead = |time: i64| vruntime + scaled(time - entity.vruntime);
    let (deadline, until) = (ahead(entity.deadline), ahead(entity.protected_until));
    // Before 7.2 an entity is protected if the two are equal.
    let until = if entity.protected_until == entity.deadline { deadline } else { until };
    let vlag = scaled(entity.vlag);
    (entity.vruntime, entity.deadline, entity.protected_until) = (vruntime, deadline, until);
    entity.vlag = vlag;
}

/// Whether an entity is not ahead of the average.
pub(super) fn eligible(queue: &Queue, entity: &Entity) -> bool {
    is_eligible(queue, totals(queue), entity)
}

/// The weighted average of all virtual run times, rounded down.
pub(super) fn average(queue: &Queue) -> i64 {
    let totals = totals(queue);
    if totals.1 == 0 { queue.reference } else { average_of(queue, totals) }
}

/// The average of a queue with entities, from their totals.
#[inline]
fn average_of(queue: &Queue, (weighted, weight): (i64, i64)) -> i64 {
    queue.reference + weighted.div_euclid(weight)
}

/// Starts a new request of the entity now.
fn renew(entity: &mut Entity, base_slice: u32) {
    if !entity.custom_slice {
        entity.slice = base_slice;
    }
    let request = virtual_delta(entity.slice.into(), entity.weight) as i64;
    entity.deadline = entity.vruntime + request;
}

/// Sum of weight · distance from the reference, and sum of the weights, over all entities.
#[inline]
fn totals(queue: &Queue) -> (i64, i64) {
    let Some(Entry { entity, .. }) = queue.running() else {
        return (queue.weighted, queue.weight);
    };
    let weight = entity.weight as i64;
    (queue.weighted + (entity.vruntime - queue.reference) * weight, queue.weight + weight)
}

/// Whether an entity is not ahead of the average that follows from the totals. Exact, without a
/// division.
#[inline]
fn is_eligible(queue: &Queue, (weighted, weight): (i64, i64), entity: &Entity) -> bool {
    weighted >= (entity.vruntime - queue.reference) * weight
}

/// Whether a current entity is kept although another one has an earlier deadline.
fn is_protected(queue: &Queue, entity: &Entity) -> bool {
    if queue.rules.protection_point {
        entity.vruntime < entity.protected_until
    } else {
        entity.protected_until == entity.deadline
    }
}

/// Whether the current entity has to give way before its request is used up.
fn lost_protection(queue: &Queue, entity: &Entity) -> bool {
    if is_protected(queue, entity) {
        return false;
    }
    queue.rules.protection_point || queue.rules.preempt_short && !eligible(queue, entity)
}

/// After a wakeup that did not preempt: the current entity is protected for at most the smallest
/// slice from now.
fn shrink_protection(queue: &mut Queue) {
    let quantum = min_slice(queue);
    if let Some(Entry { entity, .. }) = queue.entries.get_mut(queue.current) {
        let until = entity.vruntime + virtual_delta(quantum.into(), entity.weight) as i64;
        entity.protected_until = entity.protected_until.min(until);
    }
}

/// The part of `lag` that counts for a queued entity. If its dequeue is delayed, its lag cannot get
/// worse by waiting.
#[inline]
fn current_lag(queue: &Queue, entity: &Entity, lag: i64) -> i64 {
    let lag = limited_lag(queue, entity, lag);
    if entity.delayed { lag.max(entity.vlag) } else { lag }
}

/// The `lag` of a queued entity behind the average, within the limit.
#[inline]
fn limited_lag(queue: &Queue, entity: &Entity, lag: i64) -> i64 {
    if lag == 0 {
        return 0;
    }
    let limit = if queue.rules.lag_by_queue_slice {
        u64::from(max_slice(queue)) + queue.rules.tick
    } else {
        (2 * u64::from(entity.slice)).max(queue.rules.tick)
    };
    let limit = virtual_delta(limit, entity.weight) as i64;
    lag.clamp(-limit, limit)
}

/// The smallest slice on the queue, the current entity's included; no limit if the queue is empty.
fn min_slice(queue: &Queue) -> u32 {
    if queue.nr_custom == 0 {
        return queue.rules.base_slice;
    }
    slices(queue).min().unwrap_or(u32::MAX)
}

/// The largest slice on the queue, the current entity's included.
fn max_slice(queue: &Queue) -> u32 {
    if queue.nr_custom == 0 {
        return queue.rules.base_slice;
    }
    slices(queue).max().unwrap_or_default()
}

/// The slices of all entities.
fn slices(queue: &Queue) -> impl Iterator<Item = u32> + '_ {
    queue.entries.iter().map(|entry| entry.entity.slice)
}
