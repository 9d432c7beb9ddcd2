//! Tasks as programs see them. Each has a `struct task_struct` with the kernel's layout, filled from the simulated
//! world.

use std::collections::BTreeMap;

use roost_engine::{CpuId, TaskId, World};
use roost_workload::{Policy, SCHED_IDLE_WEIGHT, weight_of};

use crate::error::ScxError;
use crate::groups::Groups;
use crate::kernel_types::KernelTypes;
use crate::lines::Lines;
use crate::memory::{ByAddress, Memory, Wild};
use crate::queues::Dsq;

/// The default slice, in ns, for tasks that no scheduler gave a slice (SCX_SLICE_DFL).
pub(crate) const DEFAULT_SLICE_NS: u64 = 20_000_000;

/// An endless slice (SCX_SLICE_INF).
pub(crate) const ENDLESS_SLICE: u64 = u64::MAX;

/// SCX_TASK_QUEUED of `scx.flags`.
const FLAG_QUEUED: u64 = 1;

/// PF_KTHREAD of `flags`.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Members of `struct task_struct` that the simulation fills.
pub(crate) const FILLED: [&str; 23] = [
    "scx.slice",
    "scx.dsq_vtime",
    "scx.weight",
    "scx.flags",
    "pid",
    "tgid",
    "comm",
    "flags",
    "cpus_ptr",
    "nr_cpus_allowed",
    "se.sum_exec_runtime",
    "static_prio",
    "prio",
    "group_leader",
    "real_parent",
    "__state",
    "start_boottime",
    "signal",
    "mm",
    "cgroups",
    "sched_task_group",
    // 0 is right, because nothing disables migration, and no RCU reader is preempted.
    "migration_disabled",
    "rcu_read_lock_nesting",
];

/// Offsets of the members of `struct task_struct`, in bytes.
#[derive(Debug)]
pub(crate) struct Layout {
    pub size: usize,
    pub slice: u64,
    pub vtime: u64,
    weight: u64,
    flags: u64,
    pid: u64,
    tgid: u64,
    comm: u64,
    task_flags: u64,
    cpus_ptr: u64,
    cpus_mask: u64,
    nr_cpus_allowed: u64,
    run_ns: u64,
    static_prio: u64,
    prio: u64,
    group_leader: u64,
    real_parent: u64,
    state: u64,
    start: u64,
    signal: u64,
    mm: u64,
    cgroups: u64,
    task_group: u64,
    signal_size: usize,
    nr_threads: u64,
    live: u64,
    mm_size: usize,
}

impl Layout {
    pub(crate) fn new(kernel: &KernelTypes) -> Result<Self, ScxError> {
        let at = |path| kernel.offset("task_struct", path);
        Ok(Self {
            size: kernel.struct_size("task_struct")?,
            slice: at("scx.slice")?,
            vtime: at("scx.dsq_vtime")?,
            weight: at("scx.weight")?,
            flags: at("scx.flags")?,
            pid: at("pid")?,
            tgid: at("tgid")?,
            comm: at("comm")?,
            task_flags: at("flags")?,
            cpus_ptr: at("cpus_ptr")?,
            cpus_mask: at("cpus_mask")?,
            nr_cpus_allowed: at("nr_cpus_allowed")?,
            run_ns: at("se.sum_exec_runtime")?,
            static_prio: at("static_prio")?,
            prio: at("prio")?,
            group_leader: at("group_leader")?,
            real_parent: at("real_parent")?,
            state: at("__state")?,
            start: at("start_boottime")?,
            signal: at("signal")?,
            mm: at("mm")?,
            cgroups: at("cgroups")?,
            task_group: at("sched_task_group")?,
            signal_size: kernel.struct_size("signal_struct")?,
            nr_threads: kernel.offset("signal_struct", "nr_threads")?,
            live: kernel.offset("signal_struct", "live.counter")?,
            mm_size: kernel.struct_size("mm_struct")?,
        })
    }
}

/// States of a task (`__state`): running or waiting for a CPU, sleeping, being woken, new, dead.
pub(crate) mod state {
    pub const RUNNING: u64 = 0;
    pub const INTERRUPTIBLE: u64 = 1;
    pub const DEAD: u64 = 0x80;
    pub const WAKING: u64 = 0x200;
    pub const NEW: u64 = 0x800;
}

/// What the tasks of a process share: the addresses of the process's structs, and the number of tasks.
#[derive(Clone, Copy, Debug)]
struct Process {
    signal: u64,
    mm: u64,
    tasks: u32,
}

/// Who holds a runnable task that is not running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Custody {
    /// Nobody: the task runs or sleeps.
    None,
    /// The scheduler, which has not decided yet where the task goes. The number identifies this stay with the
    /// scheduler.
    Scheduler(u64),
    /// A queue.
    Queue(Dsq),
}

/// A task.
#[derive(Debug)]
pub(crate) struct Task {
    /// Address of its `struct task_struct`.
    pub address: u64,
    /// Whether it is runnable.
    pub runnable: bool,
    /// Who holds it while it waits.
    pub custody: Custody,
    /// The queue that select_cpu or enqueue chose for it, and the flags, until it has been put there.
    pub direct: Option<(u64, u64)>,
    /// Time since which it is runnable without having run, in ns.
    pub runnable_at: u64,
    /// Its run time when its slice was last reduced, in ns.
    accounted_ns: u64,
    /// How often the scheduler has held it.
    times: u64,
    /// The number of its current stay in a queue.
    pub stay: u64,
}

impl Task {
    fn new(address: u64) -> Self {
        Self {
            address,
            runnable: false,
            custody: Custody::None,
            direct: None,
            runnable_at: 0,
            accounted_ns: 0,
            times: 0,
            stay: 0,
        }
    }
}

/// All tasks.
#[derive(Debug)]
pub(crate) struct Tasks {
    pub layout: Layout,
    /// The tasks, by number.
    tasks: Vec<Task>,
    by_address: ByAddress,
    processes: BTreeMap<u32, Process>,
    /// Number of stays in queues so far.
    stays: u64,
    /// Address of the task that an idle CPU runs: pid 0.
    pub swapper: u64,
}

impl Tasks {
    pub(crate) fn new(kernel: &KernelTypes, memory: &mut Memory) -> Result<Self, ScxError> {
        let layout = Layout::new(kernel)?;
        let swapper = memory.allocate(layout.size).unwrap_or(0);
        let (tasks, by_address, processes) = (Vec::new(), ByAddress::default(), BTreeMap::new());
        Ok(Self { layout, tasks, by_address, processes, stays: 0, swapper })
    }

    pub(crate) fn get(&self, task: TaskId) -> &Task {
        &self.tasks[task.index()]
    }

    pub(crate) fn get_mut(&mut self, task: TaskId) -> &mut Task {
        &mut self.tasks[task.index()]
    }

    /// For each line of the memory, the number plus one of the task whose struct begins there.
    pub(crate) fn by_line(&self) -> &[u32] {
        self.by_address.numbers()
    }

    /// The task whose struct is at an address.
    pub(crate) fn at(&self, address: u64) -> Option<TaskId> {
        self.by_address.get(address).map(TaskId)
    }

    /// The runnable tasks.
    pub(crate) fn runnable(&self) -> impl Iterator<Item = (TaskId, &Task)> {
        let all = (0..).map(TaskId).zip(&self.tasks);
        all.filter(|(_, task)| task.runnable)
    }

    /// Creates the struct of a new task. The number may belong to a task that has exited.
    pub(crate) fn begin(
        &mut self,
        memory: &mut Memory,
        lines: &mut Lines,
        world: &World,
        groups: &Groups,
        id: TaskId,
    ) -> Result<(), Wild> {
        while self.tasks.len() <= id.index() {
            let address = memory.allocate(self.layout.size).unwrap_or(0);
            lines.exempt(address, self.layout.size);
            self.by_address.insert(address, self.tasks.len() as u32);
            self.tasks.push(Task::new(address));
        }
        let address = self.tasks[id.index()].address;
        memory.slice_mut(address, self.layout.size)?.fill(0);
        self.tasks[id.index()] = Task::new(address);
        self.join_process(memory, world, id)?;
        self.fill(memory, world, id)?;
        self.set_group(memory, world, groups, id)
    }

    /// When the first thread of a task's process started, as the program sees it, ns.
    pub(crate) fn started_ns(&self, memory: &Memory, id: TaskId) -> u64 {
        let leader = memory.read(self.get(id).address + self.layout.group_leader, 8);
        leader.and_then(|leader| memory.read(leader + self.layout.start, 8)).unwrap_or(0)
    }

    /// The task exits: its process has one living thread less.
    pub(crate) fn begin_exit(&mut self, memory: &mut Memory, world: &World, id: TaskId) {
        if let Some(process) = self.processes.get(&world.process(id)) {
            let live = process.tasks.saturating_sub(1);
            // The struct is in memory, so this cannot fail.
            let _ = memory.write(process.signal + self.layout.live, 4, live.into());
        }
    }

    /// The task has exited.
    pub(crate) fn end(&mut self, memory: &mut Memory, world: &World, id: TaskId) {
        let number = world.process(id);
        let Some(process) = self.processes.get_mut(&number) else { return };
        process.tasks -= 1;
        // The struct is in memory, so this cannot fail.
        let _ = memory.write(process.signal + self.layout.nr_threads, 4, process.tasks.into());
        if process.tasks == 0 {
            memory.release(process.signal, self.layout.signal_size);
            memory.release(process.mm, self.layout.mm_size);
            self.processes.remove(&number);
        }
    }

    fn join_process(&mut self, memory: &mut Memory, world: &World, id: TaskId) -> Result<(), Wild> {
        let Layout { signal, mm, nr_threads, live, signal_size, mm_size, .. } = self.layout;
        let number = world.process(id);
        let process = self.processes.entry(number).or_insert_with(|| {
            let mut piece = |size| memory.allocate(size).unwrap_or(0);
            Process { signal: piece(signal_size), mm: piece(mm_size), tasks: 0 }
        });
        process.tasks += 1;
        memory.write(process.signal + nr_threads, 4, process.tasks.into())?;
        memory.write(process.signal + live, 4, process.tasks.into())?;
        let address = self.tasks[id.index()].address;
        memory.write(address + signal, 8, process.signal)?;
        // A kernel thread has no memory of its own.
        let own = if world.is_kernel_thread(id) { 0 } else { process.mm };
        memory.write(address + mm, 8, own)
    }

    fn fill(&mut self, memory: &mut Memory, world: &World, id: TaskId) -> Result<(), Wild> {
        let Layout { slice, pid, tgid, comm, task_flags, cpus_ptr, cpus_mask, .. } = self.layout;
        let address = self.get(id).address;
        memory.write(address + slice, 8, DEFAULT_SLICE_NS)?;
        memory.write(address + pid, 4, world.pid(id).into())?;
        memory.write(address + tgid, 4, world.tgid(id).into())?;
        memory.write(address + cpus_ptr, 8, address + cpus_mask)?;
        let flags = if world.is_kernel_thread(id) { KERNEL_THREAD } else { 0 };
        memory.write(address + task_flags, 4, flags)?;
        memory.write(address + self.layout.start, 8, world.now().ns())?;
        // A name has at most 15 bytes and a NUL (TASK_COMM_LEN).
        let name = world.name(id).as_bytes();
        let len = name.len().min(15);
        memory.slice_mut(address + comm, len)?.copy_from_slice(&name[..len]);
        let leader = world.group_leader(id).filter(|leader| leader.index() < self.tasks.len());
        let leader = leader.map_or(address, |leader| self.get(leader).address);
        memory.write(address + self.layout.group_leader, 8, leader)?;
        let parent = world.parent(id).map_or(self.swapper, |parent| self.get(parent).address);
        memory.write(address + self.layout.real_parent, 8, parent)?;
        self.set_state(memory, id, state::NEW);
        self.set_allowed(memory, world, id)?;
        self.set_priority(memory, world, id)
    }

    /// Sets the cgroup of a task.
    pub(crate) fn set_group(
        &self,
        memory: &mut Memory,
        world: &World,
        groups: &Groups,
        id: TaskId,
    ) -> Result<(), Wild> {
        let (address, group) = (self.get(id).address, groups.get(world.group(id)));
        memory.write(address + self.layout.cgroups, 8, group.css_set)?;
        memory.write(address + self.layout.task_group, 8, group.task_group)
    }

    /// The cgroup to which a task's struct points.
    pub(crate) fn cgroup(&self, memory: &Memory, groups: &Groups, id: TaskId) -> u64 {
        let css_set = memory.read(self.get(id).address + self.layout.cgroups, 8).unwrap_or(0);
        groups.all().iter().find(|group| group.css_set == css_set).map_or(0, |group| group.cgroup)
    }

    /// Sets the state of a task.
    pub(crate) fn set_state(&self, memory: &mut Memory, id: TaskId, state: u64) {
        // The struct is in memory, so this cannot fail.
        let _ = memory.write(self.get(id).address + self.layout.state, 4, state);
    }

    /// Sets the CPUs that a task may use.
    pub(crate) fn set_allowed(
        &self,
        memory: &mut Memory,
        world: &World,
        id: TaskId,
    ) -> Result<(), Wild> {
        let address = self.get(id).address;
        for (number, word) in (0..).zip(world.allowed(id).words()) {
            memory.write(address + self.layout.cpus_mask + 8 * number, 8, *word)?;
        }
        memory.write(address + self.layout.nr_cpus_allowed, 4, world.nr_allowed(id) as u64)
    }

    /// Whether the struct of a task has the CPUs that the task may use.
    pub(crate) fn knows_allowed(&self, memory: &Memory, world: &World, id: TaskId) -> bool {
        let mask = self.mask(id);
        (0..)
            .zip(world.allowed(id).words())
            .all(|(number, word)| memory.read(mask + 8 * number, 8) == Ok(*word))
    }

    /// The weight of a task on the scale of cgroups: 100 for nice 0 (`sched_weight_to_cgroup()`).
    pub(crate) fn weight(world: &World, id: TaskId) -> u64 {
        let weight = match world.policy(id) {
            Policy::Idle => SCHED_IDLE_WEIGHT,
            _ => weight_of(world.nice(id)),
        };
        ((weight * 100 + 512) / 1024).clamp(1, 10_000)
    }

    /// Writes the weight into the struct.
    pub(crate) fn set_weight(
        &self,
        memory: &mut Memory,
        world: &World,
        id: TaskId,
    ) -> Result<(), Wild> {
        memory.write(self.get(id).address + self.layout.weight, 4, Self::weight(world, id))
    }

    /// Writes the priority into the struct.
    pub(crate) fn set_priority(
        &self,
        memory: &mut Memory,
        world: &World,
        id: TaskId,
    ) -> Result<(), Wild> {
        let address = self.get(id).address;
        // The priority of nice 0 is 120.
        let priority = (120 + i64::from(world.nice(id))) as u64;
        memory.write(address + self.layout.static_prio, 4, priority)?;
        memory.write(address + self.layout.prio, 4, priority)
    }

    /// The address of the mask of CPUs that the task may use.
    pub(crate) fn mask(&self, id: TaskId) -> u64 {
        self.get(id).address + self.layout.cpus_mask
    }

    pub(crate) fn slice(&self, memory: &Memory, id: TaskId) -> u64 {
        memory.read(self.get(id).address + self.layout.slice, 8).unwrap_or(0)
    }

    pub(crate) fn set_slice(&self, memory: &mut Memory, id: TaskId, ns: u64) {
        // The struct is in memory, so this cannot fail.
        let _ = memory.write(self.get(id).address + self.layout.slice, 8, ns);
    }

    pub(crate) fn vtime(&self, memory: &Memory, id: TaskId) -> u64 {
        memory.read(self.get(id).address + self.layout.vtime, 8).unwrap_or(0)
    }

    pub(crate) fn set_vtime(&self, memory: &mut Memory, id: TaskId, vtime: u64) {
        // The struct is in memory, so this cannot fail.
        let _ = memory.write(self.get(id).address + self.layout.vtime, 8, vtime);
    }

    /// Records that a task is in a queue from now on.
    pub(crate) fn stay_in(&mut self, id: TaskId, dsq: Dsq) {
        self.stays += 1;
        let task = &mut self.tasks[id.index()];
        (task.custody, task.stay) = (Custody::Queue(dsq), self.stays);
    }

    /// Number of stays in queues so far.
    pub(crate) fn stays(&self) -> u64 {
        self.stays
    }

    /// Gives a default slice to a task that has none left.
    pub(crate) fn refill(&self, memory: &mut Memory, id: TaskId) {
        self.set_slice(memory, id, DEFAULT_SLICE_NS);
    }

    /// Reduces a task's slice by the time that it has run since the last call (`update_curr_scx()`).
    pub(crate) fn account(&mut self, memory: &mut Memory, world: &World, id: TaskId) {
        let ran_ns = world.run_ns(id);
        let task = &mut self.tasks[id.index()];
        let delta = ran_ns - std::mem::replace(&mut task.accounted_ns, ran_ns);
        let address = task.address;
        let slice = self.slice(memory, id);
        if slice != ENDLESS_SLICE {
            self.set_slice(memory, id, slice.saturating_sub(delta));
        }
        let _ = memory.write(address + self.layout.run_ns, 8, ran_ns);
    }

    /// Records that a task became runnable, or is no longer runnable.
    pub(crate) fn set_runnable(&mut self, memory: &mut Memory, id: TaskId, runnable: bool) {
        self.tasks[id.index()].runnable = runnable;
        let address = self.get(id).address + self.layout.flags;
        let flags = memory.read(address, 4).unwrap_or(0) & !FLAG_QUEUED;
        let _ = memory.write(address, 4, flags | u64::from(runnable));
    }

    /// The scheduler holds the task from now on.
    pub(crate) fn hand_over(&mut self, id: TaskId) {
        let task = &mut self.tasks[id.index()];
        task.times += 1;
        task.custody = Custody::Scheduler(task.times);
    }

    /// `comm[pid]`, the form in which the kernel's messages name a task.
    pub(crate) fn named(world: &World, id: TaskId) -> String {
        format!("{}[{}]", world.name(id), world.pid(id))
    }

    /// The address of the struct of the task that a CPU runs.
    pub(crate) fn current(&self, world: &World, cpu: CpuId) -> u64 {
        world.current(cpu).map_or(self.swapper, |task| self.get(task).address)
    }
}
