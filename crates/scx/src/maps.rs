//! BPF maps: find the value of a key.

use std::collections::BTreeMap;

use roost_engine::{CpuId, TaskId};

use crate::arena::Arena;
use crate::bytes::u32_at;
use crate::memory::{Memory, Wild};
use crate::object::{MapDefinition, MapKind};
use crate::program::Entry;
use crate::translate::Array;

const HASH: MapKind = MapKind(1);
const ARRAY: MapKind = MapKind(2);
const PERF_EVENT_ARRAY: MapKind = MapKind(4);
const PERCPU_ARRAY: MapKind = MapKind(6);
const RINGBUF: MapKind = MapKind(27);
const TASK_STORAGE: MapKind = MapKind(29);
pub(crate) const ARENA: MapKind = MapKind(33);

/// Whether the simulation supports maps of this kind.
pub(crate) fn is_known(kind: MapKind) -> bool {
    [HASH, ARRAY, PERF_EVENT_ARRAY, PERCPU_ARRAY, RINGBUF, TASK_STORAGE, ARENA].contains(&kind)
}

/// Whether a map of this kind is an array.
pub(crate) fn is_array(kind: MapKind) -> bool {
    [ARRAY, PERCPU_ARRAY].contains(&kind)
}

/// Flags of `map_update_elem` (BPF_ANY, BPF_NOEXIST, BPF_EXIST).
const NOEXIST: u64 = 1;
const EXIST: u64 = 2;

/// Error codes that map functions return (errno).
const E2BIG: i64 = 7;
const ENOENT: i64 = 2;
const EEXIST: i64 = 17;
const EINVAL: i64 = 22;

/// A map with its values.
#[derive(Debug)]
pub(crate) struct Map {
    /// How the object defines it.
    pub definition: MapDefinition,
    /// The address by which programs name the map.
    pub address: u64,
    values: Values,
}

#[derive(Debug)]
enum Values {
    /// An array: values follow each other. A per-CPU array has all values once per CPU.
    Array { first: u64, stride: u64, of_cpu: u64 },
    /// A hash: addresses of values by key.
    Hash(BTreeMap<Vec<u8>, u64>),
    /// Task storage, by its number in [`TaskValues`].
    Task(usize),
    /// A map without values: an arena, whose pages are in the memory; counters of the processor, which the simulation
    /// does not have; a ring buffer, which nobody reads; or an unsupported kind.
    Nothing,
}

/// What stands before a task's value, in bytes: a pointer to the map, at the beginning of a cache line. Each look-up
/// compares it (`struct bpf_local_storage_data`, `bpf_local_storage_lookup()` in `include/linux/bpf_local_storage.h`).
/// Before Linux 7.0, whose allocator takes 8 bytes of its own, it is not at the beginning.
pub(crate) const BEFORE_VALUE: u64 = 8;

/// Where the values of all task storages are. Machine code reads it.
#[derive(Debug, Default)]
pub(crate) struct TaskValues {
    /// Number of storages.
    storages: usize,
    /// By task, and for each task by storage: the address of the value. 0: the task has none.
    addresses: Vec<u64>,
}

impl TaskValues {
    /// The addresses, by task and storage.
    pub(crate) fn addresses(&self) -> &[u64] {
        &self.addresses
    }

    fn get(&self, storage: usize, task: TaskId) -> u64 {
        self.addresses.get(task.index() * self.storages + storage).copied().unwrap_or(0)
    }

    fn set(&mut self, storage: usize, task: TaskId, address: u64) {
        let of_task = task.index() * self.storages;
        if of_task >= self.addresses.len() {
            self.addresses.resize(of_task + self.storages, 0);
        }
        self.addresses[of_task + storage] = address;
    }
}

impl Map {
    /// Creates an empty map. `None` if there is no room.
    pub(crate) fn new(
        definition: &MapDefinition,
        memory: &mut Memory,
        task_values: &mut TaskValues,
        nr_cpus: usize,
    ) -> Option<Self> {
        // Values are at multiples of 8 bytes, as in the kernel.
        let stride = u64::from(definition.value_size).next_multiple_of(8);
        let of_cpu = stride.checked_mul(definition.max_entries.into())?;
        let values = match definition.kind {
            ARRAY => Values::Array { first: memory.allocate(of_cpu as usize)?, stride, of_cpu: 0 },
            PERCPU_ARRAY => {
                // CPUs share no cache line of the map.
                let of_cpu = of_cpu.checked_next_multiple_of(64)?;
                let size = (of_cpu as usize).checked_mul(nr_cpus)?;
                Values::Array { first: memory.allocate(size)?, stride, of_cpu }
            }
            HASH => Values::Hash(BTreeMap::new()),
            TASK_STORAGE => {
                task_values.storages += 1;
                Values::Task(task_values.storages - 1)
            }
            ARENA => {
                memory.arena = Some(Arena::new(definition.extra, definition.max_entries)?);
                Values::Nothing
            }
            _ => Values::Nothing,
        };
        let address = memory.allocate(8)?;
        Some(Self { definition: definition.clone(), address, values })
    }

    /// Where the values of an array are.
    pub(crate) fn array(&self) -> Option<Array> {
        let Values::Array { first, stride, of_cpu } = self.values else { return None };
        Some(Array { first, stride, of_cpu, entries: self.definition.max_entries })
    }

    /// Whether the map is a hash table.
    pub(crate) fn is_hash(&self) -> bool {
        matches!(self.values, Values::Hash(_))
    }

    /// The number of the storage in [`TaskValues`], if the map has values of tasks.
    pub(crate) fn task_storage(&self) -> Option<usize> {
        let Values::Task(storage) = self.values else { return None };
        Some(storage)
    }

    /// Sets an entry before the start. `None` if it does not fit.
    pub(crate) fn set(&mut self, memory: &mut Memory, entry: &Entry) -> Option<()> {
        let Entry { key, value, cpu, .. } = entry;
        if value.len() > self.definition.value_size as usize {
            return None;
        }
        let at = match &mut self.values {
            Values::Array { first, stride, of_cpu } => {
                let index = u32_at(key, 0).filter(|&index| index < self.definition.max_entries)?;
                *first + *of_cpu * *cpu as u64 + *stride * u64::from(index)
            }
            Values::Hash(values) => {
                let new = memory.allocate(self.definition.value_size as usize)?;
                values.insert(key.clone(), new);
                new
            }
            Values::Task(_) | Values::Nothing => return Some(()),
        };
        memory.slice_mut(at, value.len()).ok().map(|to| to.copy_from_slice(value))
    }

    /// The addresses of an array's values. Other kinds of maps have none.
    pub(crate) fn values(&self) -> impl Iterator<Item = u64> + use<> {
        let array = match self.values {
            Values::Array { first, stride, of_cpu: 0 } => Some((first, stride)),
            _ => None,
        };
        let indices = 0..u64::from(self.definition.max_entries);
        array.into_iter().flat_map(move |(first, stride)| {
            indices.clone().map(move |index| first + stride * index)
        })
    }

    /// Where the values of an array are: offset in the file that a loader maps, address, and length in bytes. A per-CPU
    /// array has a piece for each CPU.
    pub(crate) fn pieces(&self, nr_cpus: usize) -> Vec<(u64, u64, usize)> {
        let Values::Array { first, stride, of_cpu } = self.values else { return Vec::new() };
        let len = stride * u64::from(self.definition.max_entries);
        let copies = if of_cpu == 0 { 1 } else { nr_cpus as u64 };
        (0..copies).map(|cpu| (cpu * len, first + cpu * of_cpu, len as usize)).collect()
    }

    /// The keys of a hash table. Other maps have none.
    pub(crate) fn keys(&self) -> Vec<Vec<u8>> {
        match &self.values {
            Values::Hash(values) => values.keys().cloned().collect(),
            Values::Array { .. } | Values::Task(_) | Values::Nothing => Vec::new(),
        }
    }

    /// The address of the value of a key of an array or a hash table. `None` if there is none.
    pub(crate) fn value_of(&self, key: &[u8]) -> Option<u64> {
        match &self.values {
            Values::Array { first, stride, of_cpu: 0 } => {
                let index = u32_at(key, 0).filter(|&index| index < self.definition.max_entries)?;
                Some(first + stride * u64::from(index))
            }
            Values::Hash(values) => values.get(key).copied(),
            Values::Array { .. } | Values::Task(_) | Values::Nothing => None,
        }
    }

    /// The addresses of the key and the value that contain an address. The key of an array is written to `scratch`.
    pub(crate) fn entry_at(
        &self,
        memory: &mut Memory,
        address: u64,
        scratch: u64,
    ) -> Option<(u64, u64)> {
        let Values::Array { first, stride, of_cpu: 0 } = self.values else { return None };
        let index = address.checked_sub(first)?.checked_div(stride)?;
        memory.write(scratch, 4, index).ok()?;
        (index < u64::from(self.definition.max_entries)).then(|| (scratch, first + stride * index))
    }

    /// The address of a key's value for `cpu`. 0 if there is none.
    pub(crate) fn lookup(&self, memory: &Memory, key: u64, cpu: CpuId) -> Result<u64, Wild> {
        Ok(match &self.values {
            Values::Array { first, stride, of_cpu } => {
                let index = memory.read(key, 4)?;
                match index < u64::from(self.definition.max_entries) {
                    true => first + of_cpu * cpu as u64 + stride * index,
                    false => 0,
                }
            }
            Values::Hash(values) => {
                let key = memory.slice(key, self.definition.key_size as usize)?;
                values.get(key).copied().unwrap_or(0)
            }
            Values::Task(_) | Values::Nothing => 0,
        })
    }

    /// Sets a key's value. Returns the result of the helper.
    pub(crate) fn update(
        &mut self,
        memory: &mut Memory,
        key: u64,
        value: u64,
        flags: u64,
        cpu: CpuId,
    ) -> Result<i64, Wild> {
        let size = self.definition.value_size as usize;
        let found = self.lookup(memory, key, cpu)?;
        let to = match &mut self.values {
            Values::Array { .. } if found == 0 => return Ok(-E2BIG),
            _ if found != 0 && flags == NOEXIST => return Ok(-EEXIST),
            _ if found == 0 && flags == EXIST => return Ok(-ENOENT),
            Values::Hash(values) if found == 0 => {
                if values.len() >= self.definition.max_entries as usize {
                    return Ok(-E2BIG);
                }
                let key = memory.slice(key, self.definition.key_size as usize)?.to_vec();
                let Some(new) = memory.allocate(size) else { return Ok(-E2BIG) };
                values.insert(key, new);
                new
            }
            Values::Array { .. } | Values::Hash(_) => found,
            Values::Task(_) | Values::Nothing => return Ok(-EINVAL),
        };
        let bytes = memory.slice(value, size)?.to_vec();
        memory.slice_mut(to, size)?.copy_from_slice(&bytes);
        Ok(0)
    }

    /// Removes a key. Returns the result of the helper.
    pub(crate) fn delete(&mut self, memory: &mut Memory, key: u64) -> Result<i64, Wild> {
        let Values::Hash(values) = &mut self.values else { return Ok(-EINVAL) };
        let key = memory.slice(key, self.definition.key_size as usize)?;
        let Some(value) = values.remove(key) else { return Ok(-ENOENT) };
        memory.release(value, self.definition.value_size as usize);
        Ok(0)
    }

    /// The address of a task's value. 0 if it has none and `create` is not set.
    pub(crate) fn of_task(
        &self,
        memory: &mut Memory,
        task_values: &mut TaskValues,
        task: TaskId,
        create: bool,
    ) -> u64 {
        let Values::Task(storage) = self.values else { return 0 };
        let had = task_values.get(storage, task);
        if had != 0 || !create {
            return had;
        }
        let Some(piece) = memory.allocate(self.size_in_storage()) else { return 0 };
        task_values.set(storage, task, piece + BEFORE_VALUE);
        piece + BEFORE_VALUE
    }

    /// Removes a task's value. Returns whether it had one.
    pub(crate) fn forget_task(
        &self,
        memory: &mut Memory,
        task_values: &mut TaskValues,
        task: TaskId,
    ) -> bool {
        let Values::Task(storage) = self.values else { return false };
        let value = task_values.get(storage, task);
        if value == 0 {
            return false;
        }
        task_values.set(storage, task, 0);
        memory.release(value - BEFORE_VALUE, self.size_in_storage());
        true
    }

    /// The size of a task's value and of what stands before it, in bytes.
    fn size_in_storage(&self) -> usize {
        BEFORE_VALUE as usize + self.definition.value_size as usize
    }
}
