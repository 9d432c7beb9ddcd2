//! Helpers, which programs call by number. `include/uapi/linux/bpf.h` documents each.

use crate::costs;
use crate::format;
use crate::interpret::{Host, Stop};
use crate::kernel::Call;
use crate::maps::BEFORE_VALUE;
use crate::timers;

/// Error codes that helpers return (errno).
const ENOENT: u64 = -2i64 as u64;
const ENOMEM: u64 = -12i64 as u64;
const EFAULT: u64 = -14i64 as u64;

pub(crate) type Function = fn(&mut Call, [u64; 5]) -> Result<u64, Stop>;

/// Helpers that machine code can do itself.
pub(crate) const MAP_LOOKUP: u32 = 1;
pub(crate) const THIS_CPU: u32 = 8;
pub(crate) const PROBE_READ_KERNEL: u32 = 113;
pub(crate) const TASK_STORAGE_GET: u32 = 156;
pub(crate) const CLOCKS: [u32; 2] = [5, 125];

/// The helpers, with their numbers.
const HELPERS: [(u32, Function); 34] = [
    (MAP_LOOKUP, map_lookup_elem),
    (2, map_update_elem),
    (3, map_delete_elem),
    (CLOCKS[0], now),
    (6, nothing),
    (7, random),
    (THIS_CPU, this_cpu),
    (14, current_pid_tgid),
    (35, current_task),
    (42, this_node),
    (55, perf_event_read_value),
    (93, spin_lock),
    (94, spin_unlock),
    (PROBE_READ_KERNEL, probe_read_kernel),
    (115, probe_read_kernel_str),
    (118, jiffies),
    (CLOCKS[1], now),
    (131, ringbuf_reserve),
    (132, nothing),
    (133, nothing),
    (153, per_cpu_ptr),
    (154, this_cpu_ptr),
    (TASK_STORAGE_GET, task_storage_get),
    (157, task_storage_delete),
    (158, current_task),
    (165, snprintf),
    (169, timers::init),
    (170, timers::set_callback),
    (171, timers::start),
    (172, timers::cancel),
    (177, nothing),
    (182, strncmp),
    (194, kptr_xchg),
    (195, map_lookup_percpu_elem),
];

/// The helpers, indexed by number.
const BY_NUMBER: [Option<Function>; 256] = {
    let mut table: [Option<Function>; 256] = [None; 256];
    let mut at = 0;
    while at < HELPERS.len() {
        table[HELPERS[at].0 as usize] = Some(HELPERS[at].1);
        at += 1;
    }
    table
};

/// The helper with this number, if the simulation has it.
pub(crate) fn find(number: u32) -> Option<Function> {
    BY_NUMBER.get(number as usize).copied().flatten()
}

fn map_lookup_elem(call: &mut Call, [map, key, ..]: [u64; 5]) -> Result<u64, Stop> {
    let map = call.kernel.map_at(map)?;
    if call.kernel.maps[map].is_hash() {
        call.kernel.executed += costs::HASHED;
    }
    Ok(call.kernel.maps[map].lookup(&call.kernel.memory, key, call.cpu)?)
}

fn map_lookup_percpu_elem(call: &mut Call, [map, key, cpu, ..]: [u64; 5]) -> Result<u64, Stop> {
    let map = call.kernel.map_at(map)?;
    match usize::try_from(cpu as u32) {
        Ok(cpu) if cpu < call.world.nr_cpus() => {
            Ok(call.kernel.maps[map].lookup(&call.kernel.memory, key, cpu)?)
        }
        _ => Ok(0),
    }
}

fn map_update_elem(call: &mut Call, [map, key, value, flags, _]: [u64; 5]) -> Result<u64, Stop> {
    let map = call.kernel.map_at(map)?;
    // An element of a hash table is allocated, which may fail.
    if call.kernel.maps[map].is_hash() && call.world.fault() {
        return Ok(ENOMEM);
    }
    let kernel = &mut *call.kernel;
    Ok(kernel.maps[map].update(&mut kernel.memory, key, value, flags, call.cpu)? as u64)
}

fn map_delete_elem(call: &mut Call, [map, key, ..]: [u64; 5]) -> Result<u64, Stop> {
    let map = call.kernel.map_at(map)?;
    let kernel = &mut *call.kernel;
    Ok(kernel.maps[map].delete(&mut kernel.memory, key)? as u64)
}

/// BPF_LOCAL_STORAGE_GET_F_CREATE.
const CREATE: u64 = 1;

fn task_storage_get(call: &mut Call, [map, task, value, flags, _]: [u64; 5]) -> Result<u64, Stop> {
    // No value is ever made for the idle task.
    if task == 0 || (task == call.kernel.tasks.swapper && flags & CREATE == 0) {
        return Ok(0);
    }
    let (map, task) = (call.kernel.map_at(map)?, call.kernel.task_at(task)?);
    let kernel = &mut *call.kernel;
    let had = kernel.maps[map].of_task(&mut kernel.memory, &mut kernel.task_values, task, false);
    if had != 0 {
        call.touch(had - BEFORE_VALUE, false);
        return Ok(had);
    }
    // A hook that cannot wait for memory may get none.
    if flags & CREATE == 0 || !kernel.sleepable && call.world.fault() {
        return Ok(0);
    }
    let made = kernel.maps[map].of_task(&mut kernel.memory, &mut kernel.task_values, task, true);
    if made != 0 && value != 0 {
        let size = kernel.maps[map].definition.value_size as usize;
        let bytes = kernel.memory.slice(value, size)?.to_vec();
        kernel.memory.slice_mut(made, size)?.copy_from_slice(&bytes);
    }
    if made != 0 {
        call.touch(made - BEFORE_VALUE, true);
    }
    Ok(made)
}

fn task_storage_delete(call: &mut Call, [map, task, ..]: [u64; 5]) -> Result<u64, Stop> {
    let (map, task) = (call.kernel.map_at(map)?, call.kernel.task_at(task)?);
    let kernel = &mut *call.kernel;
    let had = kernel.maps[map].forget_task(&mut kernel.memory, &mut kernel.task_values, task);
    Ok(if had { 0 } else { ENOENT })
}

fn now(call: &mut Call, _: [u64; 5]) -> Result<u64, Stop> {
    Ok(call.world.now().ns())
}

/// Ticks since the kernel's start, which began five minutes before the counter of 32 bits overflows (INITIAL_JIFFIES).
fn jiffies(call: &mut Call, _: [u64; 5]) -> Result<u64, Stop> {
    let tick_ns = call.kernel.tick_ns;
    let before_overflow = 300 * 1_000_000_000 / tick_ns;
    Ok((1 << 32) - before_overflow + call.world.now().ns() / tick_ns)
}

/// Writes a text with numbers. Returns the length that the whole text has, with its NUL.
fn snprintf(call: &mut Call, [to, size, text, data, data_size]: [u64; 5]) -> Result<u64, Stop> {
    let text = format::message(&call.kernel.memory, text, data, data_size)?;
    let size = size as u32 as usize;
    let fitting = text.len().min(size.saturating_sub(1));
    let place = call.kernel.memory.slice_mut(to, size)?;
    if let Some(end) = place.get_mut(fitting) {
        *end = 0;
        place[..fitting].copy_from_slice(&text.as_bytes()[..fitting]);
    }
    Ok(text.len() as u64 + 1)
}

fn random(call: &mut Call, _: [u64; 5]) -> Result<u64, Stop> {
    Ok(call.world.random_below(1 << 32))
}

fn this_cpu(call: &mut Call, _: [u64; 5]) -> Result<u64, Stop> {
    Ok(call.cpu as u64)
}

fn current_task(call: &mut Call, _: [u64; 5]) -> Result<u64, Stop> {
    Ok(call.kernel.tasks.current(call.world, call.cpu))
}

/// The numbers of process and task combined.
fn current_pid_tgid(call: &mut Call, _: [u64; 5]) -> Result<u64, Stop> {
    let current = call.world.current(call.cpu);
    Ok(current
        .map_or(0, |task| u64::from(call.world.tgid(task)) << 32 | u64::from(call.world.pid(task))))
}

fn this_node(call: &mut Call, _: [u64; 5]) -> Result<u64, Stop> {
    Ok(call.kernel.machine.cpus[call.cpu].node.into())
}

/// The simulation has no counters of the processor (ENOENT).
fn perf_event_read_value(_: &mut Call, _: [u64; 5]) -> Result<u64, Stop> {
    Ok(ENOENT)
}

/// Copies memory from any address. If it cannot be read, zeros are copied, and the result is an error.
fn probe_read_kernel(call: &mut Call, [to, size, from, ..]: [u64; 5]) -> Result<u64, Stop> {
    let size = size as u32 as usize;
    let memory = &mut call.kernel.memory;
    let bytes = memory.slice(from, size).map(<[u8]>::to_vec).ok();
    let to = memory.slice_mut(to, size)?;
    match &bytes {
        Some(bytes) => to.copy_from_slice(bytes),
        None => to.fill(0),
    }
    Ok(if bytes.is_some() { 0 } else { EFAULT })
}

/// Copies a text from any address. Returns its length in bytes, including the NUL.
fn probe_read_kernel_str(call: &mut Call, [to, size, from, ..]: [u64; 5]) -> Result<u64, Stop> {
    let memory = &mut call.kernel.memory;
    let most = (size as u32 as usize).min(MOST_TEXT);
    let mut len = 0;
    while len < most {
        let byte = match memory.slice(from.wrapping_add(len as u64), 1) {
            Ok(byte) if len + 1 < most => byte[0],
            Ok(_) => 0,
            Err(_) => {
                memory.slice_mut(to, most)?.fill(0);
                return Ok(EFAULT);
            }
        };
        memory.write(to.wrapping_add(len as u64), 1, byte.into())?;
        len += 1;
        if byte == 0 {
            break;
        }
    }
    Ok(len as u64)
}

/// The longest text that is copied. It is longer than any buffer on a stack or in a map of known schedulers.
const MOST_TEXT: usize = 1 << 16;

/// The address of a CPU's copy of a per-CPU variable of the kernel.
fn per_cpu_ptr(call: &mut Call, [variable, cpu, ..]: [u64; 5]) -> Result<u64, Stop> {
    Ok(call.kernel.per_cpu.of(variable, cpu))
}

fn this_cpu_ptr(call: &mut Call, [variable, ..]: [u64; 5]) -> Result<u64, Stop> {
    let cpu = call.cpu as u64;
    per_cpu_ptr(call, [variable, cpu, 0, 0, 0])
}

fn strncmp(call: &mut Call, [a, size, b, ..]: [u64; 5]) -> Result<u64, Stop> {
    let memory = &call.kernel.memory;
    for at in 0..u64::from(size as u32) {
        let (a, b) = (memory.read(a.wrapping_add(at), 1)?, memory.read(b.wrapping_add(at), 1)?);
        if a != b {
            return Ok(a.wrapping_sub(b));
        }
        if a == 0 {
            break;
        }
    }
    Ok(0)
}

/// Puts a pointer into a map's value, and returns the previous pointer.
fn kptr_xchg(call: &mut Call, [at, new, ..]: [u64; 5]) -> Result<u64, Stop> {
    let old = call.kernel.memory.read(at, 8)?;
    call.kernel.memory.write(at, 8, new)?;
    call.touch(at, true);
    Ok(old)
}

fn spin_lock(call: &mut Call, [at, ..]: [u64; 5]) -> Result<u64, Stop> {
    call.kernel.memory.read(at, 4)?;
    call.spin_lock(at);
    Ok(0)
}

fn spin_unlock(call: &mut Call, _: [u64; 5]) -> Result<u64, Stop> {
    call.spin_unlock();
    Ok(0)
}

/// There is no room in a ring buffer, as in a full one: nobody reads it.
fn ringbuf_reserve(_: &mut Call, _: [u64; 5]) -> Result<u64, Stop> {
    Ok(0)
}

/// Does nothing: helpers that only print, and giving a record back.
fn nothing(_: &mut Call, _: [u64; 5]) -> Result<u64, Stop> {
    Ok(0)
}
