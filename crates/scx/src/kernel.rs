//! The kernel's side of a scheduler: its memory, maps, queues and tasks, and what a program runs in.

use std::sync::Arc;

use roost_engine::{CpuId, TaskId, World};
use roost_machine::Machine;

use crate::costs;
use crate::error::ScxError;
use crate::groups::Groups;
use crate::helpers;
use crate::idle::Idle;
use crate::interpret::{Callee, Host, MOST_FRAMES, STACK_BYTES, Stop};
use crate::iterators::Iterations;
use crate::kernel_types::KernelTypes;
use crate::kfuncs;
use crate::lines::Lines;
use crate::maps::Map;
use crate::masks::Masks;
use crate::memory::{ByAddress, Memory};
use crate::object::Object;
use crate::program::Program;
use crate::queues::{Dsq, Queues, id};
use crate::tasks::Tasks;
use crate::timers::Timers;

/// Bytes of the arguments of a hook: as many as the kernel has, of 8 bytes each.
const CONTEXT_BYTES: usize = 8 * 12;

/// Bytes of the structs that hooks get as arguments.
const ARGUMENT_BYTES: usize = 64;

/// Variables of the kernel that each CPU has its own of.
pub(crate) const PER_CPU: [&str; 2] = ["runqueues", "sd_llc_id"];

/// Members of `struct rq` that are right: no task is of another class, and no CPU goes away, so all but the first are 0.
pub(crate) const FILLED: [&str; 6] =
    ["curr", "rt.rt_queued", "balance_callback", "dl.dl_nr_running", "fair_server", "ext_server"];

/// How many tasks a call of `dispatch` may move (SCX_DSP_DFL_MAX_BATCH), unless the scheduler says
/// otherwise (`dispatch_max_batch`).
const DEFAULT_BATCH: u64 = 32;

/// What a scheduler does not run itself.
pub(crate) struct Kernel {
    pub machine: Arc<Machine>,
    pub object: Arc<Object>,
    pub memory: Memory,
    pub lines: Lines,
    pub maps: Vec<Map>,
    maps_by_address: ByAddress,
    pub queues: Queues,
    pub tasks: Tasks,
    pub idle: Idle,
    pub masks: Masks,
    pub groups: Groups,
    pub timers: Timers,
    pub iterations: Iterations,
    pub per_cpu: PerCpus,
    /// The task that `select_cpu` or `enqueue` is called for.
    pub placing: Placing,
    /// What `dispatch` asked for, to be done after it.
    pub buffer: Vec<Dispatch>,
    /// Whether `dispatch` moved a task, or tried to.
    pub moved: bool,
    /// How many of these there may be.
    pub most_dispatches: usize,
    /// By CPU: what runs, or ran until it slept (the kernel's `rq->curr`).
    pub current: Vec<Option<TaskId>>,
    /// Where functions have their stacks.
    pub stack: u64,
    /// Where hooks find their arguments.
    pub context: u64,
    /// Where structs are that hooks get as arguments.
    pub arguments: u64,
    /// What the kernel executed in kfuncs and helpers since this was last taken, instructions.
    pub executed: u64,
    /// What it executes in a kfunc, by number, instructions.
    kfunc_costs: Vec<u64>,
    /// Whether the built-in idle tracking is on.
    pub builtin_idle: bool,
    /// Why the scheduler cannot go on.
    pub ended: Option<String>,
}

/// A variable of the kernel that each CPU has its own of, one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PerCpu {
    /// That of CPU 0, by which programs name the variable.
    pub first: u64,
    /// Bytes from one to the next.
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

    /// That of a CPU; 0 if there is no such CPU.
    pub(crate) fn of(&self, cpu: u64) -> u64 {
        let cpu = u64::from(cpu as u32);
        if cpu < self.nr_cpus as u64 { self.first + self.stride * cpu } else { 0 }
    }
}

/// The variables that each CPU has its own of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PerCpus {
    /// `runqueues`: a `struct rq`.
    pub runqueues: PerCpu,
    /// Where `curr` is in it.
    current: u64,
    /// `sd_llc_id`: which LLC it has.
    llc: PerCpu,
}

impl PerCpus {
    fn new(kernel: &KernelTypes, memory: &mut Memory, machine: &Machine) -> Result<Self, ScxError> {
        let nr_cpus = machine.nr_cpus();
        let runqueues = PerCpu::new(memory, kernel.struct_size("rq")?, nr_cpus)?;
        let llc = PerCpu::new(memory, 4, nr_cpus)?;
        for (number, cpu) in (0..).zip(&machine.cpus) {
            // The variable is in memory.
            let _ = memory.write(llc.of(number), 4, cpu.llc.into());
        }
        Ok(Self { runqueues, current: kernel.offset("rq", "curr")?, llc })
    }

    /// The variable of a name.
    pub(crate) fn named(&self, name: &str) -> Option<PerCpu> {
        let [runqueues, llc] = PER_CPU;
        let known = [(runqueues, self.runqueues), (llc, self.llc)];
        known.into_iter().find(|(known, _)| *known == name).map(|(_, variable)| variable)
    }

    /// Where a CPU's own is of the variable at an address; 0 if there is none.
    pub(crate) fn of(&self, variable: u64, cpu: u64) -> u64 {
        let known = [self.runqueues, self.llc].into_iter().find(|known| known.first == variable);
        known.map_or(0, |known| known.of(cpu))
    }
}

/// Whether a task may be put in a queue at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placing {
    /// No task: tasks are put in queues after `dispatch`.
    Nothing,
    /// This one.
    Task(TaskId),
    /// It has been put somewhere.
    Done,
}

/// A task that `dispatch` wants in a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dispatch {
    pub task: TaskId,
    /// Which time the scheduler had it.
    pub time: u64,
    pub queue: u64,
    pub flags: u64,
}

impl Kernel {
    pub(crate) fn new(machine: &Arc<Machine>, program: &Program) -> Result<Self, ScxError> {
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
        let maps = definitions.map(|map| Map::new(map, &mut memory, nr_cpus).ok_or_else(room));
        let mut maps = maps.collect::<Result<Vec<_>, _>>()?;
        for entry in &program.entries {
            maps[entry.map].set(&mut memory, entry.index, &entry.value).ok_or_else(room)?;
        }
        let mut maps_by_address = ByAddress::default();
        for (number, map) in (0..).zip(&maps) {
            maps_by_address.insert(map.address, number);
        }
        let types = &program.kernel;
        let batch = match program.object.operations.number("dispatch_max_batch") {
            0 => DEFAULT_BATCH,
            batch => batch,
        };
        Ok(Self {
            queues: Queues::new(&mut memory, nr_cpus, machine.nodes.len()).ok_or_else(room)?,
            tasks: Tasks::new(types, &mut memory)?,
            idle: Idle::new(machine),
            masks: Masks::new(types, &mut memory, nr_cpus)?,
            groups: Groups::new(types)?,
            timers: Timers::default(),
            iterations: Iterations::new(),
            per_cpu: PerCpus::new(types, &mut memory, machine)?,
            machine: machine.clone(),
            object: program.object.clone(),
            memory,
            lines,
            maps,
            maps_by_address,
            placing: Placing::Nothing,
            buffer: Vec::new(),
            moved: false,
            most_dispatches: batch as usize,
            current: vec![None; nr_cpus],
            stack,
            context,
            arguments,
            executed: 0,
            kfunc_costs: kfuncs::costs(),
            builtin_idle: true,
            ended: None,
        })
    }

    /// The scheduler cannot go on; the first reason counts.
    pub(crate) fn end(&mut self, reason: impl Into<String>) {
        self.ended.get_or_insert(reason.into());
    }

    /// What a CPU runs from now on.
    pub(crate) fn set_current(&mut self, cpu: CpuId, task: Option<TaskId>) {
        self.current[cpu] = task;
        let address = task.map_or(self.tasks.swapper, |task| self.tasks.get(task).address);
        let at = self.per_cpu.runqueues.of(cpu as u64) + self.per_cpu.current;
        // The struct is in memory.
        let _ = self.memory.write(at, 8, address);
    }

    /// The queue that a number means for a CPU (`find_dsq_for_dispatch()`).
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
        if !self.queues.made.contains_key(&number) {
            self.end(format!("non-existent DSQ {number:#x}"));
            return global;
        }
        Dsq::Made(number)
    }

    /// The map that an address names.
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

/// A call of a program: the kernel, the world, and the CPU that executes it.
pub(crate) struct Call<'a> {
    /// The CPU whose queue it is about: where a task is enqueued, or that dispatches.
    pub home: CpuId,
    /// Whether that one is looking for its next task.
    pub balancing: bool,
    pub kernel: &'a mut Kernel,
    pub world: &'a mut World,
    pub cpu: CpuId,
}

impl Call<'_> {
    /// Reads or writes what is kept of a queue; that of a CPU is in its run queue.
    pub(crate) fn touch_queue(&mut self, dsq: Dsq, write: bool) {
        let Kernel { queues, per_cpu, .. } = &mut *self.kernel;
        let address = match dsq {
            Dsq::Local(cpu) => per_cpu.runqueues.of(cpu as u64),
            _ => queues.get(dsq).map_or(0, |queue| queue.address),
        };
        self.touch(address, write);
    }

    /// Takes a queue's lock, writes to it and gives the lock back: waits for the CPU that has it.
    pub(crate) fn lock_queue(&mut self, dsq: Dsq) {
        let now = self.world.now().ns();
        let begun = now + self.world.backlog_ns(self.cpu);
        let asked = begun + self.kernel.lines.fetched().ns;
        self.touch_queue(dsq, true);
        let fetched = begun + self.kernel.lines.fetched().ns;
        if let Some(queue) = self.kernel.queues.get(dsq).filter(|_| !matches!(dsq, Dsq::Local(_))) {
            let waited = queue.hold(now, asked, fetched - asked);
            self.kernel.lines.wait(waited);
        }
    }

    /// Searches the masks of idle CPUs, and takes the one that was found.
    pub(crate) fn touch_idle(&mut self, found: Option<CpuId>) {
        for mask in self.kernel.masks.of_idle(self.kernel.machine.has_smt()) {
            for cpu in (0..self.world.nr_cpus()).step_by(512) {
                self.touch(mask + cpu as u64 / 8, false);
            }
            if let Some(cpu) = found {
                self.touch(mask + cpu as u64 / 8, true);
            }
        }
    }
}

impl Host for Call<'_> {
    fn memory(&mut self) -> &mut Memory {
        &mut self.kernel.memory
    }

    fn touch(&mut self, address: u64, write: bool) {
        let Kernel { lines, machine, .. } = &mut *self.kernel;
        lines.touch(machine, self.cpu, address, write);
    }

    fn lines(&mut self) -> Option<(&mut Lines, usize)> {
        Some((&mut self.kernel.lines, self.cpu))
    }

    fn call(&mut self, callee: Callee, arguments: [u64; 5]) -> Result<u64, Stop> {
        self.kernel.executed += match callee {
            Callee::Helper(number) => costs::of_helper(number),
            Callee::Kfunc(number) => {
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
