//! What a scheduler's program in user space does while its BPF program schedules. It is a thread that runs beside the
//! workload, reads and writes the BPF program's maps, and makes system calls.

use roost_engine::{CpuId, TaskId, Time, World};
use roost_workload::GroupId;

use crate::kernel::Kernel;
use crate::maps::Map;

/// A thread of a scheduler's program in user space.
pub trait Companion {
    /// The thread's name.
    fn name(&self) -> &str;

    /// The thread, which runs on `cpu`, does what is due. Returns for how long that keeps the CPU busy, ns, beside the
    /// work that is charged to the CPU ([`World::charge`]).
    fn turn(&mut self, world: &mut World, cpu: CpuId, tables: &mut UserMaps<'_>) -> u64;

    /// When its next turn is. Called after each turn, and before the first one. `task` is the thread.
    fn pause(&mut self, world: &World, task: TaskId) -> Time;

    /// Its counters, as [`roost_engine::Scheduler::counters`].
    fn counters(&self, sink: &mut dyn FnMut(&str, u64));
}

/// A BPF program's maps and variables, by name, as a program in user space reads and writes them.
pub struct UserMaps<'a> {
    pub(crate) kernel: &'a mut Kernel,
    pub(crate) cpu: CpuId,
}

impl UserMaps<'_> {
    fn map(&self, name: &str) -> Option<&Map> {
        self.kernel.maps.iter().find(|map| map.definition.name == name)
    }

    /// All keys of a hash table, in the order of their bytes. Other maps have none.
    pub fn keys(&self, map: &str) -> Vec<Vec<u8>> {
        self.map(map).map_or(Vec::new(), Map::keys)
    }

    /// A number in the value of a key: a member, or the whole value if the name is "". `None` if there is no such key,
    /// map or member.
    pub fn read(&self, map: &str, key: &[u8], member: &str) -> Option<u64> {
        let map = self.map(map)?;
        let (at, size) = self.kernel.object.btf.place(map.definition.value, member)?;
        self.kernel.memory.read(map.value_of(key)? + at as u64, size as u32).ok()
    }

    /// Sets the value of a key, which is a single number. Does nothing if there is no such key or map.
    pub fn write(&mut self, map: &str, key: &[u8], value: u64) {
        let found =
            self.map(map).and_then(|map| Some((map.value_of(key)?, map.definition.value_size)));
        let Some((at, size)) = found.filter(|(_, size)| [1, 2, 4, 8].contains(size)) else {
            return;
        };
        let Kernel { lines, machine, memory, .. } = &mut *self.kernel;
        lines.touch(machine, self.cpu, at, true);
        // The value is in memory, so this cannot fail.
        let _ = memory.write(at, size, value);
    }

    /// The value of a variable that is a single number. `None` if there is no such variable.
    pub fn variable(&self, name: &str) -> Option<u64> {
        let (section, variable) = self.kernel.object.variable(name)?;
        let at = self.kernel.sections.get(section)? + u64::from(variable.offset);
        self.kernel.memory.read(at, variable.size).ok()
    }

    /// When the first thread of a task's process started, ns (`start_boottime`).
    pub fn started_ns(&self, task: TaskId) -> u64 {
        self.kernel.tasks.started_ns(&self.kernel.memory, task)
    }

    /// The number of a group's directory in the unified hierarchy. `None` for the root.
    pub fn directory(&self, group: Option<GroupId>) -> Option<u64> {
        group.map(|group| self.kernel.groups.directory(group))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use super::*;
    use crate::{KernelTypes, Object, Program};

    #[test]
    fn maps_and_variables_are_read_and_written_by_name() {
        let program = Program::new(Object::roost().unwrap(), KernelTypes::shipped().unwrap());
        let mut program = program.unwrap();
        program.set_number("busiest", 5).unwrap();
        let machine = Arc::new(roost_machine::resolve("2n2l4c").unwrap());
        let (mut kernel, _) = Kernel::load(&machine, &program, 4_000_000).unwrap();
        let mut maps = UserMaps { kernel: &mut kernel, cpu: 0 };
        let (first, beyond) = (0_u32.to_le_bytes(), 9_u32.to_le_bytes());
        maps.write("set_moves", &first, 7);
        maps.write("set_moves", &beyond, 7);
        let read = |map, key: &[u8], member| maps.read(map, key, member);
        assert_eq!(read("set_moves", &first, ""), Some(7));
        assert_eq!(read("set_moves", &beyond, ""), None);
        assert_eq!(read("homes", &first, "attempts.ratio"), Some(0));
        assert_eq!(read("homes", &first, "attempts.other"), None);
        assert_eq!((maps.variable("busiest"), maps.variable("busier")), (Some(5), None));
        assert!(maps.keys("set_ids").is_empty());
    }
}
