//! Iterators over queues, and moving the iterator's current task (`bpf_iter_scx_dsq_new()`, `scx_dsq_move()`).
//!
//! An iterator visits, once each, the tasks that were in the queue when it began and are still there. A task that left
//! and came back counts as new.

use std::collections::{BTreeMap, VecDeque};

use roost_engine::TaskId;

use crate::dispatch::ENQUEUE_BY_TIME;
use crate::interpret::Stop;
use crate::kernel::Call;
use crate::queues::Dsq;
use crate::tasks::Custody;

/// Iterates from the last task to the first (SCX_DSQ_ITER_REV).
const REVERSE: u64 = 1 << 16;

const EINVAL: u64 = -22i64 as u64;
const ENOENT: u64 = -2i64 as u64;

/// An iteration in progress.
#[derive(Debug)]
pub(crate) struct Iteration {
    dsq: Dsq,
    /// The tasks that are still to be visited, each with the number of its stay in a queue.
    tasks: VecDeque<(TaskId, u64)>,
    /// Tasks whose stay has a lower number were in the queue at the start.
    began: u64,
    /// The slice that the next moved task gets.
    slice: Option<u64>,
    vtime: Option<u64>,
}

/// Iterations, by the addresses of their structs.
pub(crate) type Iterations = BTreeMap<u64, Iteration>;

pub(crate) fn begin(call: &mut Call, [iterator, number, flags, ..]: [u64; 5]) -> Result<u64, Stop> {
    let kernel = &mut *call.kernel;
    kernel.iterations.remove(&iterator);
    if flags & !REVERSE != 0 {
        return Ok(EINVAL);
    }
    let dsq = Dsq::Made(number);
    let Some(queue) = kernel.queues.get(dsq) else { return Ok(ENOENT) };
    let mut tasks: VecDeque<_> =
        queue.tasks().map(|task| (task, kernel.tasks.get(task).stay)).collect();
    if flags & REVERSE != 0 {
        tasks.make_contiguous().reverse();
    }
    let began = kernel.tasks.stays();
    let iteration = Iteration { dsq, tasks, began, slice: None, vtime: None };
    kernel.iterations.insert(iterator, iteration);
    call.touch_queue(dsq, false);
    Ok(0)
}

/// The address of the next task. 0 at the end, and for an iterator that did not begin.
pub(crate) fn next(call: &mut Call, [iterator, ..]: [u64; 5]) -> Result<u64, Stop> {
    let Some(dsq) = call.kernel.iterations.get(&iterator).map(|iteration| iteration.dsq) else {
        return Ok(0);
    };
    call.lock_queue(dsq);
    let kernel = &mut *call.kernel;
    let Some(iteration) = kernel.iterations.get_mut(&iterator) else { return Ok(0) };
    while let Some((id, stay)) = iteration.tasks.pop_front() {
        let task = kernel.tasks.get(id);
        if task.custody == Custody::Queue(iteration.dsq) && task.stay == stay {
            kernel.steps += 1;
            return Ok(task.address);
        }
    }
    Ok(0)
}

pub(crate) fn end(call: &mut Call, [iterator, ..]: [u64; 5]) -> Result<u64, Stop> {
    call.kernel.iterations.remove(&iterator);
    Ok(0)
}

pub(crate) fn set_slice(call: &mut Call, [iterator, slice, ..]: [u64; 5]) -> Result<u64, Stop> {
    if let Some(iteration) = call.kernel.iterations.get_mut(&iterator) {
        iteration.slice = Some(slice);
    }
    Ok(0)
}

pub(crate) fn set_vtime(call: &mut Call, [iterator, vtime, ..]: [u64; 5]) -> Result<u64, Stop> {
    if let Some(iteration) = call.kernel.iterations.get_mut(&iterator) {
        iteration.vtime = Some(vtime);
    }
    Ok(0)
}

pub(crate) fn move_task(call: &mut Call, arguments: [u64; 5]) -> Result<u64, Stop> {
    let [iterator, task, queue, flags, _] = arguments;
    move_to(call, iterator, task, queue, flags)
}

pub(crate) fn move_task_by_time(call: &mut Call, arguments: [u64; 5]) -> Result<u64, Stop> {
    let [iterator, task, queue, flags, _] = arguments;
    move_to(call, iterator, task, queue, flags | ENQUEUE_BY_TIME)
}

/// Moves a task if it is still where the iterator found it. Returns whether it moved.
fn move_to(call: &mut Call, iterator: u64, task: u64, queue: u64, flags: u64) -> Result<u64, Stop> {
    let task = call.kernel.task_at(task)?;
    let Some(iteration) = call.kernel.iterations.get_mut(&iterator) else { return Ok(0) };
    let (slice, vtime) = (iteration.slice.take(), iteration.vtime.take());
    let (from, began) = (iteration.dsq, iteration.began);
    let state = call.kernel.tasks.get(task);
    // Another CPU may have taken the task just now. With faults, the move fails as if one had.
    if state.custody != Custody::Queue(from) || state.stay > began || call.world.fault() {
        return Ok(0);
    }
    let task_cpu = call.world.task_cpu(task);
    let to = call.kernel.queue_for(queue, call.home, task_cpu);
    let kernel = &mut *call.kernel;
    if let Some(vtime) = vtime {
        kernel.tasks.set_vtime(&mut kernel.memory, task, vtime);
    }
    if let Some(slice) = slice {
        kernel.tasks.set_slice(&mut kernel.memory, task, slice);
    }
    if let Some(queue) = kernel.queues.get(from) {
        queue.remove(task);
    }
    call.lock_queue(from);
    call.put(task, to, flags);
    Ok(1)
}
