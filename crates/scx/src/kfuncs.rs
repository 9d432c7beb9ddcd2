//! kfuncs: what programs call by name. Each does what the function of that name does in the kernel's
//! `kernel/sched/ext/` and `kernel/bpf/`.

use roost_engine::CpuId;

use crate::dispatch::{ENQUEUE_BY_TIME, INTERNAL_FLAGS};
use crate::format;
use crate::helpers::Function;
use crate::idle::Wakeup;
use crate::interpret::Stop;
use crate::kernel::Call;
use crate::queues::{Queue, id};

/// A kfunc: its name, how many parameters it has, and what it does.
struct Kfunc(&'static str, usize, Function);

const TABLE: [Kfunc; 28] = [
    Kfunc("scx_bpf_create_dsq", 2, create_dsq),
    Kfunc("scx_bpf_destroy_dsq", 1, destroy_dsq),
    Kfunc("scx_bpf_dsq_insert", 4, dsq_insert),
    Kfunc("scx_bpf_dsq_insert___v2", 4, dsq_insert),
    Kfunc("scx_bpf_dsq_insert_vtime", 5, dsq_insert_vtime),
    Kfunc("__scx_bpf_dsq_insert_vtime", 2, dsq_insert_vtime_args),
    Kfunc("scx_bpf_dsq_move_to_local", 1, dsq_move_to_local),
    Kfunc("scx_bpf_dsq_move_to_local___v2", 2, dsq_move_to_local_with),
    Kfunc("scx_bpf_dsq_nr_queued", 1, dsq_nr_queued),
    Kfunc("scx_bpf_select_cpu_dfl", 4, select_cpu_dfl),
    Kfunc("scx_bpf_test_and_clear_cpu_idle", 1, test_and_clear_cpu_idle),
    Kfunc("scx_bpf_task_set_dsq_vtime", 2, task_set_dsq_vtime),
    Kfunc("scx_bpf_task_set_slice", 2, task_set_slice),
    Kfunc("scx_bpf_task_cpu", 1, task_cpu),
    Kfunc("scx_bpf_task_running", 1, task_running),
    Kfunc("scx_bpf_kick_cpu", 2, kick_cpu),
    Kfunc("scx_bpf_now", 0, now),
    Kfunc("scx_bpf_nr_cpu_ids", 0, nr_cpu_ids),
    Kfunc("scx_bpf_nr_node_ids", 0, nr_node_ids),
    Kfunc("scx_bpf_cpu_node", 1, cpu_node),
    Kfunc("scx_bpf_error_bstr", 3, error_bstr),
    Kfunc("scx_bpf_exit_bstr", 4, exit_bstr),
    Kfunc("bpf_rcu_read_lock", 0, nothing),
    Kfunc("bpf_rcu_read_unlock", 0, nothing),
    Kfunc("bpf_cpumask_test_cpu", 2, cpumask_test_cpu),
    Kfunc("bpf_iter_num_new", 3, iter_num_new),
    Kfunc("bpf_iter_num_next", 1, iter_num_next),
    Kfunc("bpf_iter_num_destroy", 1, nothing),
];

/// The number of a kfunc, if the simulation has it.
pub(crate) fn find(name: &str) -> Option<u32> {
    TABLE.iter().position(|kfunc| kfunc.0 == name).map(|number| number as u32)
}

/// How many parameters the kfunc of a number has.
pub(crate) fn parameters(number: u32) -> usize {
    TABLE[number as usize].1
}

/// Calls a kfunc by its number.
pub(crate) fn call(number: u32, call: &mut Call, arguments: [u64; 5]) -> Result<u64, Stop> {
    match TABLE.get(number as usize) {
        Some(kfunc) => (kfunc.2)(call, arguments),
        None => Err(Stop::Refused(
            "it calls a kfunc that the simulation does not have; `roost scx FILE` lists it".into(),
        )),
    }
}

const EINVAL: u64 = -22i64 as u64;
const ENOENT: u64 = -2i64 as u64;
const EEXIST: u64 = -17i64 as u64;

fn create_dsq(call: &mut Call, [number, ..]: [u64; 5]) -> Result<u64, Stop> {
    if number & id::BUILTIN != 0 {
        return Ok(EINVAL);
    }
    if call.kernel.queues.made.contains_key(&number) {
        return Ok(EEXIST);
    }
    call.kernel.queues.made.insert(number, Queue::default());
    Ok(0)
}

fn destroy_dsq(call: &mut Call, [number, ..]: [u64; 5]) -> Result<u64, Stop> {
    match call.kernel.queues.made.get(&number) {
        Some(queue) if queue.len() > 0 => {
            call.kernel.end(format!("attempting to destroy in-use dsq {number:#x}"));
        }
        _ => _ = call.kernel.queues.made.remove(&number),
    }
    Ok(0)
}

/// Puts a task into a queue, now or after `dispatch`; a slice of 0 keeps what it has.
fn insert(
    call: &mut Call,
    task: u64,
    queue: u64,
    slice: u64,
    vtime: Option<u64>,
    flags: u64,
) -> Result<u64, Stop> {
    if task == 0 {
        call.kernel.end("called with NULL task");
        return Ok(0);
    }
    if flags & INTERNAL_FLAGS != 0 {
        call.kernel.end(format!("invalid enq_flags {flags:#x}"));
        return Ok(0);
    }
    let task = call.kernel.task_at(task)?;
    let kernel = &mut *call.kernel;
    let slice = match slice {
        0 => kernel.tasks.slice(&kernel.memory, task).max(1),
        slice => slice,
    };
    kernel.tasks.set_slice(&mut kernel.memory, task, slice);
    let mut flags = flags;
    if let Some(vtime) = vtime {
        let place = kernel.tasks.get(task).address + kernel.tasks.layout.vtime;
        kernel.memory.write(place, 8, vtime)?;
        flags |= ENQUEUE_BY_TIME;
    }
    call.ask_for(task, queue, flags);
    Ok(1)
}

fn dsq_insert(call: &mut Call, [task, queue, slice, flags, _]: [u64; 5]) -> Result<u64, Stop> {
    insert(call, task, queue, slice, None, flags)
}

fn dsq_insert_vtime(call: &mut Call, arguments: [u64; 5]) -> Result<u64, Stop> {
    let [task, queue, slice, vtime, flags] = arguments;
    insert(call, task, queue, slice, Some(vtime), flags)
}

/// The arguments that do not fit registers are in a struct of four numbers.
fn dsq_insert_vtime_args(call: &mut Call, [task, args, ..]: [u64; 5]) -> Result<u64, Stop> {
    let number = |at: u64| call.kernel.memory.read(args.wrapping_add(8 * at), 8);
    let [queue, slice, vtime, flags] = [number(0)?, number(1)?, number(2)?, number(3)?];
    insert(call, task, queue, slice, Some(vtime), flags)
}

fn dsq_move_to_local(call: &mut Call, [queue, ..]: [u64; 5]) -> Result<u64, Stop> {
    Ok(call.move_to_local(queue, 0).into())
}

fn dsq_move_to_local_with(call: &mut Call, [queue, flags, ..]: [u64; 5]) -> Result<u64, Stop> {
    Ok(call.move_to_local(queue, flags).into())
}

fn dsq_nr_queued(call: &mut Call, [number, ..]: [u64; 5]) -> Result<u64, Stop> {
    let cpu = call.cpu;
    let queues = &call.kernel.queues;
    let queue = match number {
        id::LOCAL => queues.local.get(cpu),
        _ if number & id::LOCAL_ON == id::LOCAL_ON => {
            queues.local.get((number & id::CPU_MASK) as usize)
        }
        _ => queues.made.get(&number),
    };
    Ok(queue.map_or(ENOENT, |queue| queue.len() as u64))
}

fn select_cpu_dfl(
    call: &mut Call,
    [task, previous, flags, is_idle, _]: [u64; 5],
) -> Result<u64, Stop> {
    let task = call.kernel.task_at(task)?;
    let Some(cpu) = valid_cpu(call, previous) else { return Ok(EINVAL) };
    let searcher = call.cpu;
    let searcher_queued = call.kernel.queues.local[searcher].len() > 0;
    let wakeup = Wakeup { task, previous: cpu, searcher, flags, searcher_queued };
    let found = call.kernel.idle.select(call.world, &wakeup);
    call.kernel.memory.write(is_idle, 1, found.is_some().into())?;
    Ok(found.unwrap_or(cpu) as u64)
}

/// The CPU of this number; ends the scheduler if there is none, as the kernel does.
fn valid_cpu(call: &mut Call, number: u64) -> Option<CpuId> {
    let number = number as u32 as i32;
    let cpu = usize::try_from(number).ok().filter(|&cpu| cpu < call.world.nr_cpus());
    if cpu.is_none() {
        call.kernel.end(format!("invalid CPU {number}"));
    }
    cpu
}

fn test_and_clear_cpu_idle(call: &mut Call, [cpu, ..]: [u64; 5]) -> Result<u64, Stop> {
    let Some(cpu) = valid_cpu(call, cpu) else { return Ok(0) };
    Ok(call.kernel.idle.take(&call.kernel.machine, cpu).into())
}

fn task_set_dsq_vtime(call: &mut Call, [task, vtime, ..]: [u64; 5]) -> Result<u64, Stop> {
    let task = call.kernel.task_at(task)?;
    let kernel = &mut *call.kernel;
    let place = kernel.tasks.get(task).address + kernel.tasks.layout.vtime;
    kernel.memory.write(place, 8, vtime)?;
    Ok(1)
}

fn task_set_slice(call: &mut Call, [task, slice, ..]: [u64; 5]) -> Result<u64, Stop> {
    let task = call.kernel.task_at(task)?;
    call.kernel.tasks.set_slice(&mut call.kernel.memory, task, slice);
    Ok(1)
}

fn task_cpu(call: &mut Call, [task, ..]: [u64; 5]) -> Result<u64, Stop> {
    if task == call.kernel.tasks.swapper {
        return Ok(call.cpu as u64);
    }
    let task = call.kernel.task_at(task)?;
    Ok(call.world.task_cpu(task) as u64)
}

fn task_running(call: &mut Call, [task, ..]: [u64; 5]) -> Result<u64, Stop> {
    let task = call.kernel.task_at(task)?;
    Ok(call.kernel.current.contains(&Some(task)).into())
}

fn kick_cpu(call: &mut Call, [cpu, flags, ..]: [u64; 5]) -> Result<u64, Stop> {
    if let Some(cpu) = valid_cpu(call, cpu) {
        call.kick(cpu, flags);
    }
    Ok(0)
}

fn now(call: &mut Call, _: [u64; 5]) -> Result<u64, Stop> {
    Ok(call.world.now().ns())
}

fn nr_cpu_ids(call: &mut Call, _: [u64; 5]) -> Result<u64, Stop> {
    Ok(call.world.nr_cpus() as u64)
}

fn nr_node_ids(call: &mut Call, _: [u64; 5]) -> Result<u64, Stop> {
    Ok(call.kernel.machine.nodes.len() as u64)
}

fn cpu_node(call: &mut Call, [cpu, ..]: [u64; 5]) -> Result<u64, Stop> {
    let Some(cpu) = valid_cpu(call, cpu) else { return Ok(EINVAL) };
    Ok(call.kernel.machine.cpus[cpu].node.into())
}

fn error_bstr(call: &mut Call, [text, data, size, ..]: [u64; 5]) -> Result<u64, Stop> {
    let message = format::message(&call.kernel.memory, text, data, size)?;
    call.kernel.end(format!("scx_bpf_error: {message}"));
    Ok(0)
}

fn exit_bstr(call: &mut Call, [code, text, data, size, _]: [u64; 5]) -> Result<u64, Stop> {
    let message = format::message(&call.kernel.memory, text, data, size)?;
    call.kernel.end(format!("it unregistered itself with exit code {code:#x}: {message}"));
    Ok(0)
}

fn cpumask_test_cpu(call: &mut Call, [cpu, mask, ..]: [u64; 5]) -> Result<u64, Stop> {
    let cpu = u64::from(cpu as u32);
    if cpu >= call.world.nr_cpus() as u64 {
        return Ok(0);
    }
    let word = call.kernel.memory.read(mask.wrapping_add(8 * (cpu / 64)), 8)?;
    Ok(word >> (cpu % 64) & 1)
}

/// An iterator over numbers has the last one that it gave, and the end.
fn iter_num_new(call: &mut Call, [iterator, start, end, ..]: [u64; 5]) -> Result<u64, Stop> {
    let (start, end) = (start as u32, end as u32);
    let memory = &mut call.kernel.memory;
    let valid = start as i32 <= end as i32;
    let (before, end) = if valid { (start.wrapping_sub(1), end) } else { (0, 0) };
    memory.write(iterator, 4, before.into())?;
    memory.write(iterator.wrapping_add(4), 4, end.into())?;
    Ok(if valid { 0 } else { EINVAL })
}

/// The address of the next number; 0 at the end.
fn iter_num_next(call: &mut Call, [iterator, ..]: [u64; 5]) -> Result<u64, Stop> {
    let memory = &mut call.kernel.memory;
    let (last, end) = (memory.read(iterator, 4)?, memory.read(iterator.wrapping_add(4), 4)?);
    let next = i64::from(last as u32 as i32) + 1;
    if next >= i64::from(end as u32 as i32) {
        memory.write(iterator, 8, 0)?;
        return Ok(0);
    }
    memory.write(iterator, 4, next as u64)?;
    Ok(iterator)
}

/// What orders memory or keeps objects alive: here one thing happens at a time.
fn nothing(_: &mut Call, _: [u64; 5]) -> Result<u64, Stop> {
    Ok(0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::kernel_types::KernelTypes;

    #[test]
    fn every_kfunc_has_the_kernels_number_of_parameters() {
        let kernel = KernelTypes::shipped().unwrap();
        for Kfunc(name, parameters, _) in TABLE {
            let (_, expected) = kernel.btf.prototype(name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(parameters, expected.len(), "{name}");
        }
    }

    #[test]
    fn arguments_in_a_struct_are_where_the_kernel_has_them() {
        let kernel = KernelTypes::shipped().unwrap();
        let members = ["dsq_id", "slice", "vtime", "enq_flags"];
        let at = |member| kernel.offset("scx_bpf_dsq_insert_vtime_args", member).unwrap();
        assert_eq!(members.map(at), [0, 8, 16, 24]);
    }
}
