//! What a scheduler's program in user space does while its BPF program schedules. It is a thread that runs beside the
//! workload, reads and writes the BPF program's maps, and makes system calls. Through it, tests also cause events that
//! the engine does not have, such as a CPU that goes offline.

use roost_engine::{CpuId, TaskId, Time, World};
use roost_workload::GroupId;

use crate::class::Scx;
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
    pub(crate) scx: &'a mut Scx,
    pub(crate) cpu: CpuId,
}

impl UserMaps<'_> {
    fn kernel(&self) -> &Kernel {
        &self.scx.kernel
    }

    fn map(&self, name: &str) -> Option<&Map> {
        self.kernel().maps.iter().find(|map| map.definition.name == name)
    }

    /// Address and size of a number in the value of a key.
    fn place(&self, map: &str, key: &[u8], member: &str) -> Option<(u64, u32)> {
        let map = self.map(map)?;
        let (at, size) = self.kernel().object.btf.place(map.definition.value, member)?;
        Some((map.value_of(key)? + at as u64, size as u32))
    }

    /// All keys of a hash table, in the order of their bytes. Other maps have none.
    pub fn keys(&self, map: &str) -> Vec<Vec<u8>> {
        self.map(map).map_or(Vec::new(), Map::keys)
    }

    /// A number in the value of a key: a member, or the whole value if the name is "". `None` if there is no such key,
    /// map or member.
    pub fn read(&self, map: &str, key: &[u8], member: &str) -> Option<u64> {
        let (at, size) = self.place(map, key, member)?;
        self.kernel().memory.read(at, size).ok()
    }

    /// Sets a number in the value of a key, named as for [`UserMaps::read`]. Does nothing if there is none.
    pub fn write(&mut self, map: &str, key: &[u8], member: &str, value: u64) {
        let place = self.place(map, key, member);
        let Some((at, size)) = place.filter(|(_, size)| [1, 2, 4, 8].contains(size)) else {
            return;
        };
        let Kernel { lines, memory, .. } = &mut self.scx.kernel;
        lines.touch(self.cpu, at, true);
        // The value is in memory, so this cannot fail.
        let _ = memory.write(at, size, value);
    }

    /// Runs a function of the program on a CPU, as the kernel does at an event that the engine does not have. Returns
    /// its result; `None` if there is no such function, or the program has ended.
    pub fn run(
        &mut self,
        world: &mut World,
        cpu: CpuId,
        function: &str,
        arguments: &[u64],
    ) -> Option<u64> {
        self.scx.run_function(world, cpu, function, arguments)
    }

    /// Whether a CPU is going offline or is offline, so that the scheduler is not asked for it. The scheduler's hooks
    /// are not called for that.
    pub fn set_offline(&mut self, cpu: CpuId, offline: bool) {
        if offline {
            self.scx.offline.insert(cpu);
        } else {
            self.scx.offline.remove(cpu);
        }
    }

    /// A CPU begins to go offline: tasks leave it. At least one CPU must stay.
    pub fn leave(&mut self, world: &mut World, cpu: CpuId) {
        self.scx.leave(world, self.cpu, cpu);
    }

    /// A CPU that began to go offline is offline.
    pub fn left(&mut self, world: &mut World, cpu: CpuId) {
        self.scx.left(world, self.cpu, cpu);
    }

    /// A CPU that was offline is back.
    pub fn come_back(&mut self, world: &mut World, cpu: CpuId) {
        self.scx.come_back(world, self.cpu, cpu);
    }

    /// A task leaves sched_ext for another scheduling class, and comes back at once. It must be one that can be changed
    /// ([`World::may_be_changed`]).
    pub fn change_class(&mut self, world: &mut World, task: TaskId) {
        self.scx.change_class(world, self.cpu, task);
    }

    /// The address of a task's `struct task_struct`.
    pub fn task_struct(&self, task: TaskId) -> u64 {
        self.kernel().tasks.get(task).address
    }

    /// The address of a group's `struct cgroup`.
    pub fn cgroup(&self, group: GroupId) -> u64 {
        self.kernel().groups.get(Some(group)).cgroup
    }

    /// The address of a group's `struct task_group`.
    pub fn task_group(&self, group: GroupId) -> u64 {
        self.kernel().groups.get(Some(group)).task_group
    }

    /// The address of a CPU's `struct rq`.
    pub fn run_queue(&self, cpu: CpuId) -> u64 {
        self.kernel().per_cpu.runqueues.of(cpu as u64)
    }

    /// The address where structs are that hooks get as arguments.
    pub fn arguments(&self) -> u64 {
        self.kernel().arguments
    }

    /// Sets a number of `bytes` in a struct of the kernel, for which the engine has no counterpart.
    pub fn write_kernel(&mut self, at: u64, bytes: u32, value: u64) {
        // Nothing is written outside of the program's memory.
        let _ = self.scx.kernel.memory.write(at, bytes, value);
    }

    /// The value of a variable that is a single number. `None` if there is no such variable.
    pub fn variable(&self, name: &str) -> Option<u64> {
        let (section, variable) = self.kernel().object.variable(name)?;
        let at = self.kernel().sections.get(section)? + u64::from(variable.offset);
        self.kernel().memory.read(at, variable.size).ok()
    }

    /// When the first thread of a task's process started, ns (`start_boottime`).
    pub fn started_ns(&self, task: TaskId) -> u64 {
        self.kernel().tasks.started_ns(&self.kernel().memory, task)
    }

    /// The number of a group's directory in the unified hierarchy. `None` for the root.
    pub fn directory(&self, group: Option<GroupId>) -> Option<u64> {
        group.map(|group| self.kernel().groups.directory(group))
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
        let mut scx = Scx::new(&machine, &program, 4_000_000).unwrap();
        let mut maps = UserMaps { scx: &mut scx, cpu: 0 };
        let (first, beyond) = (0_u32.to_le_bytes(), 9_u32.to_le_bytes());
        maps.write("set_moves", &first, "", 7);
        maps.write("set_moves", &beyond, "", 7);
        maps.write("homes", &first, "attempts.tried", 9);
        let read = |map, key: &[u8], member| maps.read(map, key, member);
        assert_eq!(read("set_moves", &first, ""), Some(7));
        assert_eq!(read("set_moves", &beyond, ""), None);
        assert_eq!(read("homes", &first, "attempts.ratio"), Some(0));
        assert_eq!(read("homes", &first, "attempts.tried"), Some(9));
        assert_eq!(read("homes", &first, "attempts.other"), None);
        assert_eq!((maps.variable("busiest"), maps.variable("busier")), (Some(5), None));
        assert!(maps.keys("set_ids").is_empty());
    }
}
