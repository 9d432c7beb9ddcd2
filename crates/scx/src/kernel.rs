//! The kernel's side of a scheduler: its memory, maps, queues and tasks, and what a program runs in.

use std::sync::Arc;

use roost_engine::{CpuId, TaskId, World};
use roost_machine::Machine;

use crate::error::ScxError;
use crate::helpers;
use crate::idle::Idle;
use crate::interpret::{Callee, Host, MOST_FRAMES, STACK_BYTES, Stop};
use crate::kfuncs;
use crate::maps::Map;
use crate::memory::Memory;
use crate::object::Object;
use crate::program::Program;
use crate::queues::{Dsq, Queues, id};
use crate::tasks::Tasks;

/// Bytes of the arguments of a hook: as many as the kernel has, of 8 bytes each.
const CONTEXT_BYTES: usize = 8 * 12;

/// How many tasks a call of `dispatch` may move (SCX_DSP_DFL_MAX_BATCH), unless the scheduler says
/// otherwise (`dispatch_max_batch`).
const DEFAULT_BATCH: u64 = 32;

/// What a scheduler does not run itself.
pub(crate) struct Kernel {
    pub machine: Arc<Machine>,
    pub object: Arc<Object>,
    pub memory: Memory,
    pub maps: Vec<Map>,
    pub queues: Queues,
    pub tasks: Tasks,
    pub idle: Idle,
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
    /// Why the scheduler cannot go on.
    pub ended: Option<String>,
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
        let definitions = program.object.maps.iter();
        let maps = definitions.map(|map| Map::new(map, &mut memory, nr_cpus).ok_or_else(room));
        let maps = maps.collect::<Result<_, _>>()?;
        let batch = match program.object.operations.number("dispatch_max_batch") {
            0 => DEFAULT_BATCH,
            batch => batch,
        };
        Ok(Self {
            queues: Queues::new(nr_cpus, machine.nodes.len()),
            tasks: Tasks::new(&program.kernel, &mut memory)?,
            idle: Idle::new(machine),
            machine: machine.clone(),
            object: program.object.clone(),
            memory,
            maps,
            placing: Placing::Nothing,
            buffer: Vec::new(),
            moved: false,
            most_dispatches: batch as usize,
            current: vec![None; nr_cpus],
            stack,
            context,
            ended: None,
        })
    }

    /// The scheduler cannot go on; the first reason counts.
    pub(crate) fn end(&mut self, reason: impl Into<String>) {
        self.ended.get_or_insert(reason.into());
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
        let found = self.maps.iter().position(|map| map.address == address);
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

impl Host for Call<'_> {
    fn memory(&mut self) -> &mut Memory {
        &mut self.kernel.memory
    }

    fn call(&mut self, callee: Callee, arguments: [u64; 5]) -> Result<u64, Stop> {
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
