//! The kernel's side of a scheduler: memory, maps, queues and tasks, and the environment in which a program runs.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use roost_engine::{CpuId, TaskId, World};
use roost_machine::Machine;

use crate::btf::essential;
use crate::costs;
use crate::error::ScxError;
use crate::groups::Groups;
use crate::helpers::{self, PROBE_READ_KERNEL};
use crate::idle::Idle;
use crate::instruction::Instruction;
use crate::interpret::{Callee, Host, MOST_FRAMES, STACK_BYTES, Stop};
use crate::iterators::Iterations;
use crate::kernel_types::KernelTypes;
use crate::kfuncs;
use crate::lines::Lines;
use crate::maps::{Map, TaskValues};
use crate::masks::{self, Masks};
use crate::memory::{BASE, ByAddress, Memory};
use crate::object::Object;
use crate::program::{Entry, Program};
use crate::queues::{Dsq, Lock, Queues, id};
use crate::tasks::Tasks;
use crate::timers::Timers;
use crate::translate::{Given, Storage};

/// Size of a hook's arguments in bytes: as many as the kernel has, with 8 bytes each.
const CONTEXT_BYTES: usize = 8 * 12;

/// SCX_OPS_BUILTIN_IDLE_PER_NODE: idle CPUs are tracked by node.
const IDLE_PER_NODE: u64 = 0x40;

/// Size in bytes of the structs that hooks get as arguments.
const ARGUMENT_BYTES: usize = 64;

/// Per-CPU variables of the kernel.
pub(crate) const PER_CPU: [&str; 4] =
    ["runqueues", "sd_llc_id", "__preempt_count", "cpufreq_cpu_data"];

/// Members of `struct rq` with the right value. All but the first three are 0, because no task is of another class and
/// no CPU goes offline.
pub(crate) const FILLED: [&str; 8] = [
    "curr",
    "clock_task",
    "clock_pelt",
    "rt.rt_queued",
    "balance_callback",
    "dl.dl_nr_running",
    "fair_server",
    "ext_server",
];

/// Number of tasks that one call of `dispatch` may move (SCX_DSP_DFL_MAX_BATCH), unless the scheduler sets
/// `dispatch_max_batch`.
const DEFAULT_BATCH: u64 = 32;

/// The state of the kernel's side.
pub(crate) struct Kernel {
    pub machine: Arc<Machine>,
    pub object: Arc<Object>,
    pub memory: Memory,
    pub lines: Lines,
    pub maps: Vec<Map>,
    pub task_values: TaskValues,
    /// Addresses of the sections of variables.
    pub sections: Vec<u64>,
    /// Addresses of the arguments of hooks, of maps and of variables.
    loaded: Range<u64>,
    maps_by_address: ByAddress,
    pub queues: Queues,
    pub tasks: Tasks,
    pub idle: Idle,
    pub masks: Masks,
    pub groups: Groups,
    pub timers: Timers,
    pub iterations: Iterations,
    pub per_cpu: PerCpus,
    /// The spin locks that the program has taken, by address.
    spin_locks: BTreeMap<u64, Lock>,
    /// Address of the spin lock that the hook holds, and when it asked for it, in ns.
    spin_lock: Option<(u64, u64)>,
    /// Whether the program may read the clocks of a CPU's `struct rq`.
    reads_clocks: bool,
    /// The CPU whose clocks were set last, and to what, in ns.
    clocks_set: (CpuId, u64),
    /// How often each instruction was interpreted, until there is machine code.
    pub interpreted: Vec<u64>,
    /// The task for which `select_cpu` or `enqueue` is called.
    pub placing: Placing,
    /// Requests of `dispatch`, which are carried out after it.
    pub buffer: Vec<Dispatch>,
    /// Whether the current hook may wait for memory.
    pub sleepable: bool,
    /// Whether `dispatch` moved a task, or tried to.
    pub moved: bool,
    /// Largest number of requests in `buffer`.
    pub most_dispatches: usize,
    /// For each CPU, the task that runs, or ran until it slept (the kernel's `rq->curr`).
    pub current: Vec<Option<TaskId>>,
    /// Kicks that were asked for and not carried out yet: CPUs and flags.
    pub kicks: Vec<(CpuId, u64)>,
    /// CPUs whose tasks lose their slices because of kicks, and when. A CPU looks here when it next chooses what to
    /// run. A kick takes the lock of the CPU's run queue, so it does not concern a choice that has begun
    /// (`kick_one_cpu()`). In the kernel it can, and is lost, while `dispatch` moves a task from another CPU.
    pub preempted: Vec<(CpuId, u64)>,
    /// Address of the functions' stacks.
    pub stack: u64,
    /// Address of the hooks' arguments.
    pub context: u64,
    /// Address of the structs that hooks get as arguments.
    pub arguments: u64,
    /// Time between ticks, in ns.
    pub tick_ns: u64,
    /// Instructions that the kernel executed in kfuncs and helpers since this was last taken.
    pub executed: u64,
    /// kfuncs that were called, and waiting tasks that iterators visited, since these were last taken.
    pub kfuncs: u64,
    pub steps: u64,
    /// Instructions that the kernel executes in a kfunc, by the kfunc's number.
    kfunc_costs: Vec<u64>,
    /// Whether the program may run in an interrupt: in a timer, or when a task wakes up.
    pub in_interrupt: bool,
    /// Whether a CPU is choosing what it runs next, and has not switched yet.
    pub picking: bool,
    /// Whether the built-in idle tracking is on.
    pub builtin_idle: bool,
    /// Why the scheduler cannot continue.
    pub ended: Option<String>,
}

/// A per-CPU variable of the kernel. The copies of all CPUs follow each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PerCpu {
    /// Address of CPU 0's copy. Programs use it to name the variable.
    pub first: u64,
    /// Bytes from one copy to the next.
    stride: u64,
    nr_cpus: usize,
}

impl PerCpu {
    fn new(memory: &mut Memory, size: usize, nr_cpus: usize) -> Result<Self, ScxError> {
        let room = || ScxError::broken("its maps and variables do not fit into memory");
        let stride = size.next_multiple_of(64);
        let first = memory.allocate(stride * nr_cpus).ok_or_else(room)?;
        Ok(Self { first, stride: stride as u64, nr_cpus })
    }

    /// Address of a CPU's copy. 0 if there is no such CPU.
    pub(crate) fn of(&self, cpu: u64) -> u64 {
        let cpu = u64::from(cpu as u32);
        if cpu < self.nr_cpus as u64 { self.first + self.stride * cpu } else { 0 }
    }
}

/// The per-CPU variables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PerCpus {
    /// `runqueues`: a `struct rq`.
    pub runqueues: PerCpu,
    /// Offset of `curr` in `struct rq`.
    current: u64,
    /// Offset of `balance_callback` in `struct rq`.
    balance_callback: u64,
    /// Offsets of the clocks `clock_task` and `clock_pelt` in `struct rq`.
    clocks: [u64; 2],
    /// `sd_llc_id`: the CPU's LLC.
    llc: PerCpu,
    /// `__preempt_count`: 0. Hooks run with a count of their own, from which programs tell whether they run in an
    /// interrupt. The simulation does not say that they do.
    preempt_count: PerCpu,
    /// `cpufreq_cpu_data`: NULL, as without a frequency driver.
    frequency: PerCpu,
}

impl PerCpus {
    fn new(kernel: &KernelTypes, memory: &mut Memory, machine: &Machine) -> Result<Self, ScxError> {
        let nr_cpus = machine.nr_cpus();
        let runqueues = PerCpu::new(memory, kernel.struct_size("rq")?, nr_cpus)?;
        let llc = PerCpu::new(memory, 4, nr_cpus)?;
        for (number, cpu) in (0..).zip(&machine.cpus) {
            // The variable is in memory, so this cannot fail.
            let _ = memory.write(llc.of(number), 4, cpu.llc.into());
        }
        Ok(Self {
            runqueues,
            current: kernel.offset("rq", "curr")?,
            balance_callback: kernel.offset("rq", "balance_callback")?,
            clocks: [kernel.offset("rq", "clock_task")?, kernel.offset("rq", "clock_pelt")?],
            llc,
            preempt_count: PerCpu::new(memory, 4, nr_cpus)?,
            frequency: PerCpu::new(memory, 8, nr_cpus)?,
        })
    }

    /// The variables, in the order of [`PER_CPU`].
    fn all(&self) -> [PerCpu; PER_CPU.len()] {
        [self.runqueues, self.llc, self.preempt_count, self.frequency]
    }

    /// The variable with this name.
    pub(crate) fn named(&self, name: &str) -> Option<PerCpu> {
        let known = PER_CPU.into_iter().zip(self.all());
        known.into_iter().find(|(known, _)| *known == name).map(|(_, variable)| variable)
    }

    /// Whether code may read a clock. The verifier wants to know where a program reads in `struct rq`, so an
    /// instruction that reads a clock has the clock's offset, or an instruction before it adds that. A helper copies
    /// any part.
    fn are_clocks_in(&self, code: &[Instruction]) -> bool {
        let is_clock = |offset: i64| self.clocks.iter().any(|&clock| clock as i64 == offset);
        code.iter().any(|at| {
            is_clock(at.offset.into())
                || is_clock(at.imm.into())
                || at.helper() == Some(PROBE_READ_KERNEL)
        })
    }

    /// Address of a CPU's copy of the variable at an address. 0 if there is none.
    pub(crate) fn of(&self, variable: u64, cpu: u64) -> u64 {
        let known = self.all().into_iter().find(|known| known.first == variable);
        known.map_or(0, |known| known.of(cpu))
    }
}

/// Whether a task may be put into a queue at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placing {
    /// No task: tasks are put into queues after `dispatch`.
    Nothing,
    /// This task.
    Task(TaskId),
    /// The task has been put into a queue already.
    Done,
}

/// A request of `dispatch` to put a task into a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dispatch {
    pub task: TaskId,
    /// Number of the task's stay with the scheduler when the request was made.
    pub time: u64,
    pub queue: u64,
    pub flags: u64,
}

impl Kernel {
    fn new(machine: &Arc<Machine>, program: &Program, tick_ns: u64) -> Result<Self, ScxError> {
        let room = || ScxError::broken("its maps and variables do not fit into memory");
        let mut memory = Memory::default();
        let nr_cpus = machine.nr_cpus();
        let stack = memory.allocate(MOST_FRAMES * STACK_BYTES as usize).ok_or_else(room)?;
        let context = memory.allocate(CONTEXT_BYTES).ok_or_else(room)?;
        let arguments = memory.allocate(ARGUMENT_BYTES).ok_or_else(room)?;
        let definitions = program.maps.iter();
        let mut lines = Lines::new(machine);
        lines.exempt(stack, MOST_FRAMES * STACK_BYTES as usize);
        lines.exempt(context, CONTEXT_BYTES);
        lines.exempt(arguments, ARGUMENT_BYTES);
        let mut task_values = TaskValues::default();
        let maps = definitions
            .map(|map| Map::new(map, &mut memory, &mut task_values, nr_cpus).ok_or_else(room));
        let mut maps = maps.collect::<Result<Vec<_>, _>>()?;
        for (page, bytes) in &program.pages {
            memory.fill_page(*page, bytes).ok_or_else(room)?;
        }
        for entry in &program.entries {
            maps[entry.map].set(&mut memory, entry).ok_or_else(room)?;
        }
        let mut maps_by_address = ByAddress::default();
        for (number, map) in (0..).zip(&maps) {
            maps_by_address.insert(map.address, number);
        }
        let types = &program.kernel;
        let per_node = program.object.operations.number("flags") & IDLE_PER_NODE != 0;
        let nr_idle = if per_node { machine.nodes.len() } else { 1 };
        let batch = match program.object.operations.number("dispatch_max_batch") {
            0 => DEFAULT_BATCH,
            batch => batch,
        };
        Ok(Self {
            queues: Queues::new(&mut memory, nr_cpus, machine.nodes.len()).ok_or_else(room)?,
            tasks: Tasks::new(types, &mut memory)?,
            idle: Idle::new(machine, per_node),
            masks: Masks::new(types, &mut memory, nr_cpus, nr_idle)?,
            groups: Groups::new(types)?,
            timers: Timers::default(),
            iterations: Iterations::new(),
            per_cpu: PerCpus::new(types, &mut memory, machine)?,
            spin_locks: BTreeMap::new(),
            spin_lock: None,
            reads_clocks: program
                .object
                .externs
                .iter()
                .any(|name| ["runqueues", "scx_bpf_cpu_rq"].contains(&essential(&name.name))),
            machine: machine.clone(),
            object: program.object.clone(),
            memory,
            lines,
            maps,
            task_values,
            sections: Vec::new(),
            loaded: 0..0,
            maps_by_address,
            placing: Placing::Nothing,
            buffer: Vec::new(),
            sleepable: false,
            moved: false,
            most_dispatches: batch as usize,
            current: vec![None; nr_cpus],
            kicks: Vec::new(),
            preempted: Vec::new(),
            stack,
            context,
            arguments,
            tick_ns,
            executed: 0,
            kfuncs: 0,
            steps: 0,
            kfunc_costs: kfuncs::costs(),
            picking: false,
            in_interrupt: false,
            builtin_idle: true,
            clocks_set: (0, 0),
            interpreted: Vec::new(),
            ended: None,
        })
    }

    /// Puts a program and its variables into memory, for a kernel with this tick. Also returns the program's code.
    pub(crate) fn load(
        machine: &Arc<Machine>,
        program: &Program,
        tick_ns: u64,
    ) -> Result<(Self, Vec<Instruction>), ScxError> {
        let mut kernel = Self::new(machine, program, tick_ns)?;
        let maps: Vec<u64> = kernel.maps.iter().map(|map| map.address).collect();
        let per_cpu = kernel.per_cpu;
        let code = program.link(&mut kernel.memory, &maps, &per_cpu);
        let (code, sections) =
            code.ok_or_else(|| ScxError::broken("its variables do not fit into memory"))?;
        kernel.sections = sections;
        kernel.restore_masks(program).ok_or_else(|| ScxError::broken("no memory for its masks"))?;
        kernel.reads_clocks &= kernel.per_cpu.are_clocks_in(&code);
        kernel.interpreted = vec![0; code.len()];
        let end = BASE + kernel.memory.bytes_mut().len() as u64;
        kernel.loaded = kernel.context..end;
        Ok((kernel, code))
    }

    /// Makes the masks again that a loader's programs have made, and puts their addresses where something stands for
    /// them: into values of arrays that are not 0, and into variables.
    fn restore_masks(&mut self, program: &Program) -> Option<()> {
        let Self { masks, memory, .. } = self;
        let mut made = Vec::new();
        for words in &program.masks {
            let mask = masks.create(memory)?;
            memory.write_all(mask, words);
            made.push(mask);
        }
        if made.is_empty() {
            return Some(());
        }
        let address = |word| made.get(masks::number(word)? as usize).copied();
        for entry in &program.entries {
            let mut value = entry.value.clone();
            masks::replace(&mut value, address);
            if value != entry.value {
                self.maps[entry.map].set(memory, &Entry { value, ..entry.clone() })?;
            }
        }
        for (&section, bytes) in self.sections.iter().zip(&program.data) {
            // Variables in an arena may lie in several pieces. No mask's address is there.
            if let Ok(variables) = memory.slice_mut(section, bytes.len()) {
                masks::replace(variables, address);
            }
        }
        Some(())
    }

    /// The scheduler cannot continue. The first reason counts.
    pub(crate) fn end(&mut self, reason: impl Into<String>) {
        self.ended.get_or_insert(reason.into());
    }

    /// Sets what a CPU runs from now on.
    pub(crate) fn set_current(&mut self, cpu: CpuId, task: Option<TaskId>) {
        self.current[cpu] = task;
        let address = task.map_or(self.tasks.swapper, |task| self.tasks.get(task).address);
        let at = self.per_cpu.runqueues.of(cpu as u64) + self.per_cpu.current;
        // The struct is in memory, so this cannot fail.
        let _ = self.memory.write(at, 8, address);
    }

    /// Whether a CPU pushes its tasks away (`balance_push_set()`).
    pub(crate) fn set_pushing(&mut self, cpu: CpuId, pushes: bool) {
        let at = self.per_cpu.runqueues.of(cpu as u64) + self.per_cpu.balance_callback;
        // The struct is in memory, so this cannot fail.
        let _ = self.memory.write(at, 8, pushes.into());
    }

    /// Sets the clocks of a CPU's run queue (`update_rq_clock()`). No time is taken out of them.
    #[inline]
    pub(crate) fn set_clocks(&mut self, cpu: CpuId, now_ns: u64) {
        // Several hooks are called about a CPU at a time.
        if !self.reads_clocks || self.clocks_set == (cpu, now_ns) {
            return;
        }
        self.clocks_set = (cpu, now_ns);
        let queue = self.per_cpu.runqueues.of(cpu as u64);
        for clock in self.per_cpu.clocks {
            // The struct is in memory, so this cannot fail.
            let _ = self.memory.write(queue + clock, 8, now_ns);
        }
    }

    /// The queue that a number denotes for a CPU (`find_dsq_for_dispatch()`).
    pub(crate) fn queue_for(&mut self, number: u64, cpu: CpuId, task_cpu: CpuId) -> Dsq {
        let global = Dsq::Global(self.machine.cpus[task_cpu].node as usize);
        if number == id::LOCAL {
            return Dsq::Local(cpu);
        }
        if number & id::LOCAL_ON == id::LOCAL_ON {
            let cpu = (number & id::CPU_MASK) as usize;
            if cpu < self.current.len() {
                return Dsq::Local(cpu);
            }
            self.end(format!("invalid CPU {cpu} in SCX_DSQ_LOCAL_ON dispatch verdict"));
            return global;
        }
        if number == id::GLOBAL {
            return global;
        }
        if !self.queues.made.contains(number) {
            self.end(format!("non-existent DSQ {number:#x}"));
            return global;
        }
        Dsq::Made(number)
    }

    /// What machine code may rely on.
    pub(crate) fn given(&self) -> Given {
        let arrays = self.maps.iter().filter_map(|map| Some((map.address, map.array()?)));
        let storages = self.maps.iter().filter_map(|map| {
            let bytes = map.definition.value_size;
            Some((map.address, Storage { number: map.task_storage()?, bytes }))
        });
        let sections = self.sections.iter().zip(&self.object.data);
        // The verifier refuses programs that write to these.
        let constants =
            sections.filter(|(_, section)| section.read_only).filter_map(|(&address, section)| {
                let bytes = self.memory.slice(address, section.bytes.len()).ok()?;
                Some((address, bytes.to_vec()))
            });
        let costed = |name| Some((kfuncs::find(name)?, costs::of_kfunc(name)));
        Given {
            arrays: arrays.collect(),
            storages: storages.collect(),
            hooks: BTreeMap::new(),
            context: self.context..self.context + CONTEXT_BYTES as u64,
            task_bytes: self.tasks.layout.size as u32,
            constants: constants.collect(),
            region: self.loaded.clone(),
            nothing: kfuncs::nothings(),
            keeping: kfuncs::keeping(),
            this_cpu: true,
            task_cpu: costed(kfuncs::TASK_CPU),
            members: [
                (kfuncs::SET_VTIME, self.tasks.layout.vtime),
                (kfuncs::SET_SLICE, self.tasks.layout.slice),
            ]
            .into_iter()
            .filter_map(|(name, member)| {
                costed(name).map(|(number, cost)| (number, (member, cost)))
            })
            .collect(),
            now: costed(kfuncs::NOW),
        }
    }

    /// The map that an address denotes.
    pub(crate) fn map_at(&mut self, address: u64) -> Result<usize, Stop> {
        let found = self.maps_by_address.get(address).map(|number| number as usize);
        found.ok_or_else(|| Stop::Refused(format!("no map at {address:#x}")))
    }

    /// The task whose struct is at an address.
    pub(crate) fn task_at(&self, address: u64) -> Result<TaskId, Stop> {
        let found = self.tasks.at(address);
        found.ok_or_else(|| Stop::Refused(format!("no task at {address:#x}")))
    }
}

/// A call of a program: the kernel, the world, and the CPU that executes the program.
pub(crate) struct Call<'a> {
    /// The CPU that the call is about: the one on which a task is enqueued, or the one that dispatches.
    pub home: CpuId,
    /// Whether `home` is looking for its next task.
    pub balancing: bool,
    pub kernel: &'a mut Kernel,
    pub world: &'a mut World,
    pub cpu: CpuId,
}

impl Call<'_> {
    /// Reads or writes the line of an address in the region.
    fn touch_region(&mut self, address: u64, write: bool) {
        self.kernel.lines.touch(self.cpu, address, write);
    }

    /// Reads or writes the line with a queue's data. For a CPU's local queue, that is its run queue.
    pub(crate) fn touch_queue(&mut self, dsq: Dsq, write: bool) {
        let Kernel { queues, per_cpu, .. } = &mut *self.kernel;
        let address = match dsq {
            Dsq::Local(cpu) => per_cpu.runqueues.of(cpu as u64),
            _ => queues.get(dsq).map_or(0, |queue| queue.address),
        };
        self.touch_region(address, write);
    }

    /// Takes a queue's lock, writes to the queue, and releases the lock. Waits for another CPU that holds the lock.
    pub(crate) fn lock_queue(&mut self, dsq: Dsq) {
        if matches!(dsq, Dsq::Local(_)) {
            return self.touch_queue(dsq, true);
        }
        let (asked, before) = (self.reached_ns(), self.kernel.lines.fetched().ns);
        self.touch_queue(dsq, true);
        let held = self.kernel.lines.fetched().ns - before;
        if let Some(queue) = self.kernel.queues.get(dsq) {
            let waited = queue.lock.hold(self.world.now().ns(), asked, held);
            self.kernel.lines.wait(waited);
        }
    }

    /// Takes the spin lock at an address. A program holds one at a time.
    pub(crate) fn spin_lock(&mut self, address: u64) {
        self.kernel.spin_lock = Some((address, self.reached_ns()));
        self.touch(address, true);
    }

    /// Releases the spin lock. It was held while its line and the lines after it came. Waits for as long as another
    /// CPU holds it.
    pub(crate) fn spin_unlock(&mut self) {
        let Some((address, asked)) = self.kernel.spin_lock.take() else { return };
        let held = self.reached_ns().saturating_sub(asked);
        let lock = self.kernel.spin_locks.entry(address).or_default();
        let waited = lock.hold(self.world.now().ns(), asked, held);
        self.kernel.lines.wait(waited);
    }

    /// The time that the hook has reached: its start, and what it has fetched and waited for since, in ns.
    fn reached_ns(&self) -> u64 {
        self.world.now().ns() + self.world.backlog_ns(self.cpu) + self.kernel.lines.fetched().ns
    }

    /// Searches the masks of idle CPUs, and takes the CPU that was found. If idle CPUs are tracked by node, only the
    /// masks of the node of that CPU count, or of the searcher's if none was found.
    pub(crate) fn touch_idle(&mut self, found: Option<CpuId>) {
        let Kernel { idle, masks, machine, .. } = &*self.kernel;
        let node = idle.node_of(machine, found.unwrap_or(self.cpu));
        for mask in masks.of_idle(node, machine.has_smt()) {
            for cpu in (0..self.world.nr_cpus()).step_by(512) {
                self.touch_region(mask + cpu as u64 / 8, false);
            }
            if let Some(cpu) = found {
                self.touch_region(mask + cpu as u64 / 8, true);
            }
        }
    }
}

impl Host for Call<'_> {
    fn memory(&mut self) -> &mut Memory {
        &mut self.kernel.memory
    }

    fn touch(&mut self, address: u64, write: bool) {
        let Kernel { lines, memory, .. } = &mut *self.kernel;
        lines.touch(self.cpu, memory.place(address), write);
    }

    #[inline]
    fn fetch(&mut self, address: u64, write: bool) {
        self.kernel.lines.fetch(self.cpu, address, write);
    }

    fn lines(&mut self) -> (&mut Lines, usize) {
        (&mut self.kernel.lines, self.cpu)
    }

    fn task_values(&self) -> (&[u32], &[u64]) {
        (self.kernel.tasks.by_line(), self.kernel.task_values.addresses())
    }

    fn task_cpus(&self) -> (*const usize, usize) {
        self.world.task_cpus()
    }

    fn now_ns(&self) -> Option<u64> {
        (!self.world.has_faults()).then(|| self.world.now().ns())
    }

    #[inline]
    fn executes(&mut self, at: usize) {
        if let Some(times) = self.kernel.interpreted.get_mut(at) {
            *times += 1;
        }
    }

    fn call(&mut self, callee: Callee, arguments: [u64; 5]) -> Result<u64, Stop> {
        self.kernel.executed += match callee {
            Callee::Helper(number) => costs::of_helper(number),
            Callee::Kfunc(number) => {
                self.kernel.kfuncs += 1;
                self.kernel.kfunc_costs.get(number as usize).copied().unwrap_or(0)
            }
        };
        match callee {
            Callee::Helper(number) => match helpers::find(number) {
                Some(helper) => helper(self, arguments),
                None => Err(Stop::Refused(
                    "it needs what this kernel does not have; `roost scx FILE` lists it".to_owned(),
                )),
            },
            Callee::Kfunc(number) => kfuncs::call(number, self, arguments),
        }
    }
}
