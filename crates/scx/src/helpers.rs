//! Helpers: what programs call by number (`include/uapi/linux/bpf.h` documents each).

use crate::interpret::Stop;
use crate::kernel::Call;

pub(crate) type Function = fn(&mut Call, [u64; 5]) -> Result<u64, Stop>;

/// By number.
const HELPERS: [(u32, Function); 12] = [
    (1, map_lookup_elem),
    (2, map_update_elem),
    (3, map_delete_elem),
    (5, now),
    (6, nothing),
    (7, random),
    (8, this_cpu),
    (125, now),
    (156, task_storage_get),
    (157, task_storage_delete),
    (158, current_task),
    (195, map_lookup_percpu_elem),
];

/// The helper of this number, if the simulation has it.
pub(crate) fn find(number: u32) -> Option<Function> {
    HELPERS.iter().find(|(known, _)| *known == number).map(|(_, function)| *function)
}

fn map_lookup_elem(call: &mut Call, [map, key, ..]: [u64; 5]) -> Result<u64, Stop> {
    let map = call.kernel.map_at(map)?;
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
    if task == 0 {
        return Ok(0);
    }
    let (map, task) = (call.kernel.map_at(map)?, call.kernel.task_at(task)?);
    let kernel = &mut *call.kernel;
    let had = kernel.maps[map].of_task(&mut kernel.memory, task, false);
    if had != 0 || flags & CREATE == 0 {
        return Ok(had);
    }
    let made = kernel.maps[map].of_task(&mut kernel.memory, task, true);
    if made != 0 && value != 0 {
        let size = kernel.maps[map].definition.value_size as usize;
        let bytes = kernel.memory.slice(value, size)?.to_vec();
        kernel.memory.slice_mut(made, size)?.copy_from_slice(&bytes);
    }
    Ok(made)
}

fn task_storage_delete(call: &mut Call, [map, task, ..]: [u64; 5]) -> Result<u64, Stop> {
    let (map, task) = (call.kernel.map_at(map)?, call.kernel.task_at(task)?);
    let kernel = &mut *call.kernel;
    let had = kernel.maps[map].forget_task(&mut kernel.memory, task);
    // ENOENT is 2.
    Ok(if had { 0 } else { -2i64 as u64 })
}

fn now(call: &mut Call, _: [u64; 5]) -> Result<u64, Stop> {
    Ok(call.world.now().ns())
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

/// What only prints does nothing here.
fn nothing(_: &mut Call, _: [u64; 5]) -> Result<u64, Stop> {
    Ok(0)
}
