//! Runs a sched_ext program as a scheduler of the engine. It calls each hook when the kernel's `kernel/sched/ext/ext.c`
//! does.
//!
//! ```text
//!  task_new: init_task, enable           wakeup: select_cpu ─► enqueue: runnable, enqueue ─┐
//!                                                                                          ▼
//!  pick: previous one has slice left?  ──yes──► it goes on                   a queue, or the scheduler
//!        local queue has one?          ──yes──► that                                       │
//!        global queue, dispatch (up to 32 times) ◄──────────────────────────────────────────┘
//!        still nothing: previous one goes on, or the CPU idles (update_idle)
//!        another one: stopping and enqueue of the previous one, running of the next
//! ```
//!
//! Each instruction of a hook costs its CPU time, by the machine's figures, including the kernel instructions around it
//! ([`costs`]).
//! Cache lines that the hook fetches from other CPUs cost time as well ([`crate::lines`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use roost_engine::{CpuId, Dequeue, Enqueue, Pick, Scheduler, TaskId, Time, Wake, Work, World};
use roost_kept::Kept;
use roost_machine::{CpuSet, Machine};

use crate::companion::{Companion, UserMaps};
use crate::costs;
use crate::dispatch::{ENQUEUE_CPU_SELECTED, ENQUEUE_HEAD, ENQUEUE_LAST, ENQUEUE_WAKEUP};
use crate::dispatch::{KICK_IDLE, KICK_PREEMPT};
use crate::error::ScxError;
use crate::idle::Wakeup;
use crate::instruction::Instruction;
use crate::interpret::{self, Fault, Returned};
use crate::kernel::{Call, Kernel, Placing};
use crate::lines::Fetched;
use crate::own_counters::OwnCounter;
use crate::program::{MOST_TIMEOUT_MS, Program, Run};
use crate::queues::{Dsq, id};
use crate::tasks::{Custody, Tasks, state};
use crate::timers::Expired;
use crate::translate::{self, Given, Runner, Wanted};

/// Flags of a wakeup (`enum scx_wake_flags`).
const WAKE_FORK: u64 = 4;
const WAKE_TTWU: u64 = 8;
const WAKE_SYNC: u64 = 0x10;

/// Flags of a scheduler (`enum scx_ops_flags`).
const KEEP_BUILTIN_IDLE: u64 = 1;
const ENQ_LAST: u64 = 2;
const ALLOW_QUEUED_WAKEUP: u64 = 0x20;

/// DEQUEUE_SLEEP for a task that sleeps, and SCX_DEQ_SCHED_CHANGE for other dequeues.
const DEQUEUE_SLEEP: u64 = 1;
const DEQUEUE_CHANGE: u64 = 1 << 33;

/// DEQUEUE_SAVE, and ENQUEUE_RESTORE of the enqueue that follows: a property of the task changes in between.
const DEQUEUE_SAVE: u64 = 2;
const ENQUEUE_RESTORE: u64 = 2;

/// How often `dispatch` is called for one pick at most (SCX_DSP_MAX_LOOPS).
const MOST_DISPATCHES: u32 = 32;

/// A runnable task that has not run for this time is a stall, unless the scheduler sets `timeout_ms`.
const DEFAULT_TIMEOUT_NS: u64 = MOST_TIMEOUT_MS * 1_000_000;

/// Number of instructions that are interpreted before machine code is made. Interpreting them takes about as long as
/// making it.
const INTERPRETED: u64 = 10_000_000;

/// An instruction is seldom executed if that happens less than once in so many calls of functions. Only where machine
/// code lies depends on this.
const SELDOM: u64 = 256;

/// The hooks that are called here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hook {
    SelectCpu,
    Enqueue,
    Dequeue,
    Dispatch,
    Tick,
    Runnable,
    Running,
    Stopping,
    Quiescent,
    SetWeight,
    SetCpumask,
    UpdateIdle,
    InitTask,
    ExitTask,
    Enable,
    Disable,
    Init,
    Yield,
    CgroupInit,
    CgroupPrepMove,
    CgroupMove,
}

/// Hooks that may wait for memory.
const SLEEPABLE: [Hook; 4] = [Hook::Init, Hook::InitTask, Hook::CgroupInit, Hook::CgroupPrepMove];

/// Names of the hooks in `struct sched_ext_ops`, in the order of [`Hook`].
pub(crate) const HOOKS: [&str; 21] = [
    "select_cpu",
    "enqueue",
    "dequeue",
    "dispatch",
    "tick",
    "runnable",
    "running",
    "stopping",
    "quiescent",
    "set_weight",
    "set_cpumask",
    "update_idle",
    "init_task",
    "exit_task",
    "enable",
    "disable",
    "init",
    "yield",
    "cgroup_init",
    "cgroup_prep_move",
    "cgroup_move",
];

/// Hooks whose first argument is not a task.
const ABOUT_NO_TASK: [usize; 4] = [
    Hook::Dispatch as usize,
    Hook::UpdateIdle as usize,
    Hook::Init as usize,
    Hook::CgroupInit as usize,
];

/// The cost of calls: instructions, and cache lines of other CPUs.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    instructions: u64,
    /// Kernel instructions around the call and in the functions that it calls.
    kernel: u64,
    /// Number of kfuncs that were called.
    kfuncs: u64,
    /// Number of waiting tasks that iterators visited. Each visit takes the queue's lock.
    steps: u64,
    fetched: Fetched,
}

/// A hook's code, and the cost of its calls so far.
#[derive(Clone, Copy, Debug, Default)]
struct HookState {
    entry: Option<usize>,
    calls: u64,
    cost: Cost,
    /// The most kfuncs, steps and lines of any one call.
    most: [u64; 3],
}

impl HookState {
    fn count(&mut self, cost: &Cost) {
        for (most, of_call) in
            self.most.iter_mut().zip([cost.kfuncs, cost.steps, cost.fetched.lines])
        {
            // Hardly ever.
            if of_call > *most {
                *most = of_call;
            }
        }
        self.calls += 1;
        self.cost.kfuncs += cost.kfuncs;
        self.cost.steps += cost.steps;
        self.cost.instructions += cost.instructions;
        self.cost.kernel += cost.kernel;
        self.cost.fetched.lines += cost.fetched.lines;
        self.cost.fetched.waited_ns += cost.fetched.waited_ns;
    }
}

/// Where the cost of a call is counted.
#[derive(Clone, Copy, Debug)]
enum Counted {
    Hook(Hook),
    Timer,
    Nowhere,
}

/// What a CPU runs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The task that it ran before.
    Previous,
    /// The first task of its local queue.
    Local,
    /// Nothing.
    Nothing,
}

/// A sched_ext scheduler.
pub struct Scx {
    code: Vec<Instruction>,
    /// The program as machine code, once it has run for long enough.
    machine_code: Option<Runner>,
    /// Instructions that are still to be interpreted before machine code is made.
    until_translation: u64,
    /// Where machine code is kept for other processes.
    kept: Option<Kept>,
    pub(crate) kernel: Kernel,
    hooks: [HookState; HOOKS.len()],
    /// By CPU: what it runs next, until the work of choosing it is done and its previous task is put.
    chosen: Vec<Option<Verdict>>,
    /// CPUs that are going offline, or are offline: the scheduler is not asked for them (`scx_rq_online()`).
    pub(crate) offline: CpuSet,
    /// Counters that the program keeps itself.
    own_counters: Vec<OwnCounter>,
    /// The program's timer functions. Their entries are not known in advance.
    timers: HookState,
    name: String,
    flags: u64,
    tick_ns: u64,
    timeout_ns: u64,
    /// Time of the watchdog's next check, in ns.
    watch_ns: u64,
    /// What the loader had run before it attached the scheduler.
    runs: Vec<Run>,
    /// The scheduler's thread in user space.
    companion: Option<Box<dyn Companion>>,
}

impl Scx {
    /// Loads a program for a machine whose kernel has this tick.
    ///
    /// # Errors
    /// If the kernel would refuse the program, it needs something that the simulation does not have, or its maps and
    /// variables are too large.
    pub fn new(machine: &Arc<Machine>, program: &Program, tick_ns: u64) -> Result<Self, ScxError> {
        program.check_operations()?;
        program.check()?;
        let operations = &program.object.operations;
        let (mut kernel, code) = Kernel::load(machine, program, tick_ns)?;
        let flags = operations.number("flags");
        kernel.builtin_idle =
            operations.hook("update_idle").is_none() || flags & KEEP_BUILTIN_IDLE != 0;
        let timeout_ns = match operations.number("timeout_ms") {
            0 => DEFAULT_TIMEOUT_NS,
            ms => ms * 1_000_000,
        };
        let entry = |name: &str| HookState { entry: operations.hook(name), ..HookState::default() };
        Ok(Self {
            code,
            machine_code: None,
            until_translation: INTERPRETED,
            kept: None,
            kernel,
            hooks: HOOKS.map(entry),
            chosen: vec![None; machine.cpus.len()],
            offline: CpuSet::new(machine.cpus.len()),
            own_counters: program.counters.clone(),
            timers: HookState::default(),
            name: operations.name.clone(),
            flags,
            tick_ns,
            timeout_ns,
            watch_ns: timeout_ns / 2,
            runs: program.runs.clone(),
            companion: None,
        })
    }

    /// Sets how many instructions are interpreted before machine code is made. The results are the same. By default,
    /// interpreting them takes about as long as making machine code.
    #[must_use]
    pub fn interpreting(mut self, instructions: u64) -> Self {
        self.until_translation = instructions;
        self
    }

    /// Begins with machine code if that was made of this program before, and keeps it if it is made now. The results
    /// are the same.
    #[must_use]
    pub fn keeping_machine_code(mut self, kept: Kept) -> Self {
        let wanted = Wanted { code: &self.code, starts: &self.starts(), given: self.given() };
        if let Some(known) = translate::known(&wanted, &kept) {
            self.machine_code = Some(Runner::new(known, self.kernel.stack));
            self.until_translation = 0;
        }
        self.kept = Some(kept);
        self
    }

    /// Lets a thread of the scheduler's program in user space run beside the workload.
    #[must_use]
    pub fn accompanied(mut self, companion: Box<dyn Companion>) -> Self {
        self.companion = Some(companion);
        self
    }

    /// The hooks that the scheduler has, and its timers, by name.
    fn known_hooks(&self) -> impl Iterator<Item = (&'static str, &HookState)> {
        let hooks = HOOKS.iter().copied().zip(&self.hooks).filter(|(_, hook)| hook.entry.is_some());
        hooks.chain([("timer", &self.timers)])
    }

    fn has(&self, hook: Hook) -> bool {
        self.hooks[hook as usize].entry.is_some()
    }

    /// Calls a hook. Returns `None` if the scheduler does not have the hook.
    fn call(&mut self, world: &mut World, on: On, hook: Hook, arguments: &[u64]) -> Option<u64> {
        let entry = self.hooks[hook as usize].entry?;
        if self.kernel.ended.is_some() {
            return None;
        }
        self.kernel.in_interrupt = matches!(hook, Hook::SelectCpu | Hook::Enqueue);
        let context = self.write_context(arguments);
        self.kernel.sleepable = SLEEPABLE.contains(&hook);
        let value = self.execute(world, on, entry, context, Counted::Hook(hook));
        self.kernel.sleepable = false;
        value
    }

    /// Writes the arguments of a hook. Returns what the hook is called with.
    fn write_context(&mut self, arguments: &[u64]) -> [u64; 5] {
        let context = self.kernel.context;
        // The context has room for the arguments of every hook.
        self.kernel.memory.write_all(context, arguments);
        [context, 0, 0, 0, 0]
    }

    /// Runs a function that takes its arguments as hooks do, by its name. Returns its result.
    pub(crate) fn run_function(
        &mut self,
        world: &mut World,
        cpu: CpuId,
        name: &str,
        arguments: &[u64],
    ) -> Option<u64> {
        let function = self.kernel.object.functions.iter().find(|known| known.name == name);
        let entry = function.filter(|_| self.kernel.ended.is_none())?.start;
        let context = self.write_context(arguments);
        self.execute(world, On::at(cpu), entry, context, Counted::Nowhere)
    }

    /// Executes a function, charges its cost and counts it. Returns its result, or `None` if it failed.
    fn execute(
        &mut self,
        world: &mut World,
        on: On,
        entry: usize,
        arguments: [u64; 5],
        counted: Counted,
    ) -> Option<u64> {
        self.kernel.set_clocks(on.home, world.now().ns());
        let mut call = on.call(&mut self.kernel, world);
        let mut fault = None;
        let is_hook = matches!(counted, Counted::Hook(_));
        let runner = self.machine_code.as_mut();
        let function = runner.and_then(|runner| Some((runner.entry(entry, is_hook)?, runner)));
        let (value, instructions, (uncalled, uncalled_kfuncs)) = match function {
            Some((function, runner)) => {
                let (value, instructions) = runner.call(&mut call, function, arguments, &mut fault);
                (value, instructions, runner.counted())
            }
            None => {
                let (value, instructions) =
                    interpreted(&self.code, &mut call, entry, arguments, &mut fault);
                (value, instructions, (0, 0))
            }
        };
        if let Some(fault) = fault {
            self.fail(world, fault);
            return None;
        }
        if self.until_translation > 0 {
            self.count_interpreted(instructions);
        }
        let fetched = self.kernel.lines.take_fetched();
        let kernel = costs::HOOK + uncalled + std::mem::take(&mut self.kernel.executed);
        let kfuncs = uncalled_kfuncs + std::mem::take(&mut self.kernel.kfuncs);
        let steps = std::mem::take(&mut self.kernel.steps);
        let ps = world.machine().figures.instruction_ps.value;
        world.charge(on.cpu, fetched.ns + (instructions + kernel) * ps / 1000);
        self.check(world);
        let counts = match counted {
            Counted::Hook(hook) => Some(&mut self.hooks[hook as usize]),
            Counted::Timer => Some(&mut self.timers),
            Counted::Nowhere => None,
        };
        if let Some(counts) = counts {
            counts.count(&Cost { instructions, kernel, kfuncs, steps, fetched });
        }
        if !self.kernel.picking {
            self.carry_out_kicks(world, on.cpu, false);
        }
        Some(value)
    }

    /// The program cannot continue.
    #[cold]
    #[inline(never)]
    fn fail(&mut self, world: &mut World, Fault { at, why }: Fault) {
        let place = self.kernel.object.place(at);
        self.kernel.end(format!("{why} in {place}"));
        self.check(world);
    }

    /// Makes machine code once enough instructions were interpreted.
    #[cold]
    #[inline(never)]
    fn count_interpreted(&mut self, instructions: u64) {
        self.until_translation = self.until_translation.saturating_sub(instructions);
        if self.until_translation == 0 {
            let counts = std::mem::take(&mut self.kernel.interpreted);
            let starts = self.starts();
            let calls: u64 = starts.iter().filter_map(|&start| counts.get(start)).sum();
            let seldom: Vec<bool> = counts.iter().map(|times| times * SELDOM < calls).collect();
            let wanted = Wanted { code: &self.code, starts: &starts, given: self.given() };
            let translated = translate::translated(&wanted, &seldom, self.kept.as_ref());
            self.machine_code = translated.map(|code| Runner::new(code, self.kernel.stack));
        }
    }

    /// Where the program's functions begin.
    fn starts(&self) -> Vec<usize> {
        self.kernel.object.functions.iter().map(|function| function.start).collect()
    }

    /// What machine code of this program may rely on.
    fn given(&self) -> Given {
        let mut hooks = BTreeMap::new();
        for (number, hook) in self.hooks.iter().enumerate() {
            let Some(entry) = hook.entry else { continue };
            // Several hooks may share a function.
            *hooks.entry(entry).or_insert(true) &= !ABOUT_NO_TASK.contains(&number);
        }
        Given { hooks, ..self.kernel.given() }
    }

    /// Charges a CPU for the time in which lines were fetched.
    fn charge_lines(&mut self, world: &mut World, cpu: CpuId) {
        let fetched = self.kernel.lines.take_fetched();
        world.charge(cpu, fetched.ns);
    }

    /// Calls the function of an expired timer with the timer's map, key and value.
    fn call_back(&mut self, world: &mut World, cpu: CpuId, expired: Expired) {
        let Kernel { maps, memory, arguments, .. } = &mut self.kernel;
        let map = &maps[expired.map];
        let entry = map.entry_at(memory, expired.address, *arguments);
        let (key, value) = entry.unwrap_or((*arguments, expired.address));
        let arguments = [map.address, key, value, 0, 0];
        self.kernel.in_interrupt = true;
        self.execute(world, On::at(cpu), expired.callback, arguments, Counted::Timer);
    }

    /// Ends the run if the scheduler cannot continue.
    fn check(&self, world: &mut World) {
        if let Some(reason) = &self.kernel.ended {
            world.end_run(format!("{}: {reason}", self.name));
        }
    }

    fn address(&self, task: TaskId) -> u64 {
        self.kernel.tasks.get(task).address
    }

    /// Gives a task to the scheduler, or puts it into the queue that `select_cpu` chose (`do_enqueue_task()`).
    fn hand_over(&mut self, world: &mut World, on: On, task: TaskId, flags: u64) {
        if self.offline.contains(on.home) {
            self.kernel.tasks.get_mut(task).direct = Some((id::LOCAL, 0));
        }
        if self.kernel.tasks.get(task).direct.is_none() && self.has(Hook::Enqueue) {
            self.kernel.tasks.hand_over(task);
            self.kernel.placing = Placing::Task(task);
            let address = self.address(task);
            self.call(world, on, Hook::Enqueue, &[address, flags]);
            self.kernel.placing = Placing::Nothing;
        } else if self.kernel.tasks.get(task).direct.is_none() {
            self.kernel.tasks.refill(&mut self.kernel.memory, task);
            self.kernel.tasks.get_mut(task).direct = Some((id::GLOBAL, 0));
        }
        if let Some((queue, asked)) = self.kernel.tasks.get_mut(task).direct.take() {
            let from = world.task_cpu(task);
            let queue = self.kernel.queue_for(queue, on.home, from);
            on.call(&mut self.kernel, world).put(task, queue, asked | flags);
            self.charge_lines(world, on.cpu);
        }
        self.check(world);
    }

    /// Carries out the kicks of a CPU, which the kernel does once the CPU takes interrupts again
    /// (`kick_cpus_irq_workfn()`). switches: it has chosen what it runs next, and switches after that.
    fn carry_out_kicks(&mut self, world: &mut World, by: CpuId, switches: bool) {
        let now = world.now().ns();
        for index in 0..self.kernel.kicks.len() {
            let (cpu, flags) = self.kernel.kicks[index];
            let after_switch = switches && cpu == by;
            let running = if after_switch { self.kernel.current[cpu] } else { world.current(cpu) };
            if flags & KICK_IDLE != 0 && running.is_some() {
                continue;
            }
            if flags & KICK_PREEMPT != 0 {
                let at = if cpu == by { now } else { now + world.backlog_ns(by) };
                self.kernel.preempted.push((cpu, at));
            }
            if after_switch {
                world.kick(cpu, cpu, Work::Reschedule);
            } else {
                world.resched(by, cpu);
            }
        }
        self.kernel.kicks.clear();
    }

    /// Ends the slice of the task that runs on `cpu` if a kick has asked for it.
    fn end_slice_if_kicked(&mut self, cpu: CpuId, runnable: Option<TaskId>, now: u64) {
        let kicks = self.kernel.preempted.len();
        self.kernel.preempted.retain(|&(kicked, at)| kicked != cpu || at > now);
        if let Some(task) = runnable.filter(|_| self.kernel.preempted.len() < kicks) {
            self.kernel.tasks.set_slice(&mut self.kernel.memory, task, 0);
        }
    }

    /// Chooses what `cpu` runs next (`balance_one()`, `scx_dispatch_sched()`).
    fn balance(&mut self, world: &mut World, cpu: CpuId) -> Verdict {
        let previous = self.kernel.current[cpu];
        let runnable = previous.filter(|&task| self.kernel.tasks.get(task).runnable);
        if let Some(task) = runnable {
            self.kernel.tasks.account(&mut self.kernel.memory, world, task);
            if self.kernel.tasks.slice(&self.kernel.memory, task) > 0 {
                return Verdict::Previous;
            }
        }
        let on = On { cpu, home: cpu, balancing: true };
        if self.kernel.queues.local[cpu].len() > 0 || self.consume_global(world, on) {
            return Verdict::Local;
        }
        let argument = previous.map_or(0, |task| self.address(task));
        for _ in 0..MOST_DISPATCHES {
            if !self.has(Hook::Dispatch)
                || self.kernel.ended.is_some()
                || self.offline.contains(cpu)
            {
                break;
            }
            let moved = self.dispatch(world, on, argument);
            let has_slice = |task| self.kernel.tasks.slice(&self.kernel.memory, task) > 0;
            if runnable.is_some_and(has_slice) {
                return Verdict::Previous;
            }
            if self.kernel.queues.local[cpu].len() > 0 || self.consume_global(world, on) {
                return Verdict::Local;
            }
            if !moved {
                break;
            }
        }
        match runnable {
            Some(_) if self.flags & ENQ_LAST == 0 => Verdict::Previous,
            _ => Verdict::Nothing,
        }
    }

    /// Calls `dispatch` and carries out its requests. Returns whether it moved a task, or tried to.
    fn dispatch(&mut self, world: &mut World, on: On, previous: u64) -> bool {
        self.kernel.moved = false;
        let cpu = on.cpu as u64;
        self.call(world, on, Hook::Dispatch, &[cpu, previous]);
        on.call(&mut self.kernel, world).flush();
        self.charge_lines(world, on.cpu);
        self.check(world);
        self.kernel.moved
    }

    fn consume_global(&mut self, world: &mut World, on: On) -> bool {
        let node = self.kernel.machine.cpus[on.home].node as usize;
        let took = on.call(&mut self.kernel, world).consume(Dsq::Global(node), 0);
        self.charge_lines(world, on.cpu);
        took
    }

    /// Takes `cpu` from its previous task, which is runnable (`put_prev_task_scx()`).
    fn put_previous(&mut self, world: &mut World, cpu: CpuId, task: TaskId, last: bool) {
        let on = On { cpu, home: cpu, balancing: true };
        self.kernel.tasks.account(&mut self.kernel.memory, world, task);
        let address = self.address(task);
        self.call(world, on, Hook::Stopping, &[address, 1]);
        self.kernel.tasks.get_mut(task).runnable_at = world.now().ns();
        if self.kernel.tasks.slice(&self.kernel.memory, task) > 0 {
            on.call(&mut self.kernel, world).put(task, Dsq::Local(cpu), ENQUEUE_HEAD);
            self.charge_lines(world, cpu);
        } else {
            self.hand_over(world, on, task, if last { ENQUEUE_LAST } else { 0 });
        }
    }

    /// Chooses what `cpu` runs next, and tells the scheduler of the switch (`pick_task_scx()`).
    fn choose(&mut self, world: &mut World, cpu: CpuId) -> Pick {
        let previous = self.kernel.current[cpu];
        let runnable = previous.filter(|&task| world.current(cpu) == Some(task));
        let verdict = self.chosen[cpu].take().unwrap_or_else(|| {
            self.end_slice_if_kicked(cpu, runnable, world.now().ns());
            self.balance(world, cpu)
        });
        // The kernel puts the previous task after `dispatch` has returned. Until then, other CPUs do not find it.
        if runnable.is_some() && verdict != Verdict::Previous && world.backlog_ns(cpu) > 0 {
            self.chosen[cpu] = Some(verdict);
            return Pick::Undecided;
        }
        let next = match verdict {
            Verdict::Previous => runnable,
            Verdict::Local => self.kernel.queues.local[cpu].pop(),
            Verdict::Nothing => None,
        };
        if let Some(task) = next.filter(|_| next == runnable) {
            if self.kernel.tasks.slice(&self.kernel.memory, task) == 0 {
                self.kernel.tasks.refill(&mut self.kernel.memory, task);
            }
            return Pick::Run(task);
        }
        if let Some(task) = runnable {
            self.put_previous(world, cpu, task, next.is_none());
        }
        self.kernel.set_current(cpu, next);
        if next.is_none() || previous.is_none() {
            self.update_idle(world, cpu, next.is_none(), next.is_some() != previous.is_some());
        }
        if let Some(task) = next {
            self.set_next(world, cpu, task);
        }
        next.into()
    }

    /// Gives `cpu` to `task` (`set_next_task_scx()`).
    fn set_next(&mut self, world: &mut World, cpu: CpuId, task: TaskId) {
        let state = self.kernel.tasks.get_mut(task);
        state.custody = Custody::None;
        self.kernel.tasks.account(&mut self.kernel.memory, world, task);
        if self.kernel.tasks.slice(&self.kernel.memory, task) == 0 {
            self.kernel.tasks.refill(&mut self.kernel.memory, task);
        }
        let address = self.address(task);
        self.call(world, On::at(cpu), Hook::Running, &[address]);
    }

    /// Tells the scheduler that `cpu` becomes idle, stays idle, or is no longer idle (`__scx_update_idle()`).
    fn update_idle(&mut self, world: &mut World, cpu: CpuId, idle: bool, changed: bool) {
        if self.kernel.builtin_idle {
            let machine = self.kernel.machine.clone();
            self.kernel.idle.set(&machine, cpu, idle);
            let node = self.kernel.idle.node_of(&machine, cpu);
            for mask in self.kernel.masks.of_idle(node, machine.has_smt()) {
                self.kernel.lines.touch(cpu, mask + cpu as u64 / 8, true);
            }
            self.charge_lines(world, cpu);
        }
        if changed {
            self.call(world, On::at(cpu), Hook::UpdateIdle, &[cpu as u64, idle.into()]);
        }
    }

    /// The CPU for a task: chosen by `select_cpu`, or by default (`select_task_rq_scx()`).
    fn select(&mut self, world: &mut World, task: TaskId, wake: Wake, flags: u64) -> CpuId {
        self.kernel.tasks.get_mut(task).direct = None;
        let woken = if flags & WAKE_FORK != 0 { state::RUNNING } else { state::WAKING };
        self.kernel.tasks.set_state(&mut self.kernel.memory, task, woken);
        let previous = world.task_cpu(task);
        if world.nr_allowed(task) == 1 {
            let only = world.allowed(task).first().unwrap_or(previous);
            return self.where_it_may_be(world, task, only, wake.cpu);
        }
        let flags = flags | if wake.sync { WAKE_SYNC } else { 0 };
        let chosen = if self.has(Hook::SelectCpu) {
            self.kernel.placing = Placing::Task(task);
            let arguments = [self.address(task), previous as u64, flags];
            let chosen = self.call(world, On::at(wake.cpu), Hook::SelectCpu, &arguments);
            self.kernel.placing = Placing::Nothing;
            self.valid(world, chosen).unwrap_or(previous)
        } else {
            self.select_by_default(world, task, wake.cpu, flags).unwrap_or(previous)
        };
        self.where_it_may_be(world, task, chosen, wake.cpu)
    }

    /// The chosen CPU, or another one if the task may not run there (`select_task_rq()`, `select_fallback_rq()`).
    fn where_it_may_be(
        &mut self,
        world: &mut World,
        task: TaskId,
        chosen: CpuId,
        by: CpuId,
    ) -> CpuId {
        if world.may_run(task, chosen) && world.is_active(chosen) {
            return chosen;
        }
        if world.free_from_inactive(task) {
            self.tell_allowed(world, On::at(by), task);
        }
        fallback(world, task, world.task_cpu(task))
    }

    /// The CPU that `select_cpu` returned, if it is valid.
    fn valid(&mut self, world: &mut World, chosen: Option<u64>) -> Option<CpuId> {
        let number = chosen? as u32 as i32;
        let cpu = usize::try_from(number).ok().filter(|&cpu| cpu < world.nr_cpus());
        if cpu.is_none() {
            self.kernel.end(format!("invalid CPU {number} from ops.select_cpu()"));
            self.check(world);
        }
        cpu
    }

    fn select_by_default(
        &mut self,
        world: &mut World,
        task: TaskId,
        searcher: CpuId,
        flags: u64,
    ) -> Option<CpuId> {
        let previous = world.task_cpu(task);
        let searcher_queued = self.kernel.queues.local[searcher].len() > 0;
        let allowed = world.allowed(task);
        let wakeup = Wakeup { allowed, previous, searcher, flags, searcher_queued, pick: 0 };
        let found = self.kernel.idle.select(world.machine(), &wakeup);
        On::at(searcher).call(&mut self.kernel, world).touch_idle(found);
        self.charge_lines(world, searcher);
        let found = found?;
        self.kernel.tasks.refill(&mut self.kernel.memory, task);
        self.kernel.tasks.get_mut(task).direct = Some((id::LOCAL, 0));
        Some(found)
    }

    /// Repeats what the loader had run before it attached the scheduler. The loader took it that each run returned 0.
    fn prepare(&mut self, world: &mut World) {
        for Run { at, argument } in std::mem::take(&mut self.runs) {
            let memory = &mut self.kernel.memory;
            let context = memory.allocate(argument.len()).unwrap_or(0);
            match memory.slice_mut(context, argument.len()) {
                Ok(place) => place.copy_from_slice(&argument),
                Err(_) => self.kernel.end("no memory for a program's argument"),
            }
            if self.kernel.ended.is_some() {
                return self.check(world);
            }
            let arguments = [context, 0, 0, 0, 0];
            let value = self.execute(world, On::at(0), at, arguments, Counted::Nowhere);
            let Some(value) = value else { return };
            if value as u32 != 0 {
                let place = self.kernel.object.place(at);
                self.kernel.end(format!("{place} returned {} to the loader", value as u32 as i32));
            }
            self.kernel.memory.release(context, argument.len());
        }
        self.check(world);
    }

    /// Tells the scheduler about all cgroups (`scx_cgroup_init()`).
    fn begin_groups(&mut self, world: &mut World) {
        let Kernel { groups, memory, .. } = &mut self.kernel;
        if groups.begin(memory, world).is_err() {
            self.kernel.end("no memory for cgroups");
            return self.check(world);
        }
        for group in self.kernel.groups.all().to_vec() {
            let Kernel { groups, memory, arguments, .. } = &mut self.kernel;
            let at = *arguments;
            // The memory has room for the struct.
            let _ = groups.write_arguments(memory, at, group);
            let failed = self.call(world, On::at(0), Hook::CgroupInit, &[group.cgroup, at]);
            if failed.is_some_and(|value| (value as u32 as i32) < 0) {
                self.kernel.end("ops.cgroup_init() failed");
                return self.check(world);
            }
        }
    }

    fn tell_weight(&mut self, world: &mut World, cpu: CpuId, task: TaskId) {
        let arguments = [self.address(task), Tasks::weight(world, task)];
        self.call(world, On::at(cpu), Hook::SetWeight, &arguments);
    }

    /// Tells the scheduler which CPUs a task may use (`set_cpus_allowed_scx()`).
    fn tell_allowed(&mut self, world: &mut World, on: On, task: TaskId) {
        let _ = self.kernel.tasks.set_allowed(&mut self.kernel.memory, world, task);
        let arguments = [self.address(task), self.kernel.tasks.mask(task)];
        self.call(world, on, Hook::SetCpumask, &arguments);
    }

    /// Changes a property of a task. A task that waits is dequeued before, and enqueued after that on the same CPU. A
    /// task that runs on another CPU stops before, and runs again (`sched_change_begin()`, `sched_change_end()`).
    fn change(
        &mut self,
        world: &mut World,
        on: On,
        task: TaskId,
        change: impl FnOnce(&mut Self, &mut World),
    ) {
        let runs = world.current(on.home) == Some(task);
        if runs && on.cpu == on.home || !self.kernel.tasks.get(task).runnable {
            return change(self, world);
        }
        let address = self.address(task);
        self.take_off(world, on, task, runs);
        self.call(world, on, Hook::Quiescent, &[address, DEQUEUE_SAVE | DEQUEUE_CHANGE]);
        change(self, world);
        self.kernel.tasks.set_runnable(&mut self.kernel.memory, task, true);
        self.call(world, on, Hook::Runnable, &[address, ENQUEUE_RESTORE]);
        if runs {
            self.call(world, on, Hook::Running, &[address]);
            return;
        }
        self.hand_over(world, on, task, ENQUEUE_RESTORE);
        let local = self.kernel.tasks.get(task).custody == Custody::Queue(Dsq::Local(on.home));
        if local && world.current(on.home).is_none() {
            world.mark_queued(on.home);
            world.resched(on.cpu, on.home);
        }
    }

    /// A CPU begins to go offline: the scheduler is not asked for it any more (`sched_cpu_deactivate()`).
    pub(crate) fn leave(&mut self, world: &mut World, by: CpuId, cpu: CpuId) {
        self.offline.insert(cpu);
        self.kernel.set_pushing(cpu, true);
        world.set_active(by, cpu, false);
    }

    /// A CPU that began to go offline is offline, after a grace period of RCU (`scx_rq_deactivate()`).
    pub(crate) fn left(&mut self, world: &mut World, by: CpuId, cpu: CpuId) {
        self.call_by_name(world, by, "cpu_offline", cpu);
        self.kernel.timers.leave(cpu, by);
        self.arm(world, by);
    }

    /// A CPU is back (`sched_cpu_activate()`).
    pub(crate) fn come_back(&mut self, world: &mut World, by: CpuId, cpu: CpuId) {
        self.kernel.set_pushing(cpu, false);
        world.set_active(by, cpu, true);
        self.offline.remove(cpu);
        self.call_by_name(world, cpu, "cpu_online", cpu);
        if world.current(cpu).is_none() {
            self.update_idle(world, cpu, true, true);
        }
        world.resched(by, cpu);
    }

    /// Calls a hook that only hotplug has.
    fn call_by_name(&mut self, world: &mut World, on: CpuId, hook: &str, cpu: CpuId) {
        if let Some(entry) = self.kernel.object.operations.hook(hook)
            && self.kernel.ended.is_none()
        {
            let context = self.write_context(&[cpu as u64]);
            self.execute(world, On::at(on), entry, context, Counted::Nowhere);
        }
    }

    /// A task leaves the class and comes back at once (`__sched_setscheduler()`). CPU `by` does this.
    pub(crate) fn change_class(&mut self, world: &mut World, by: CpuId, task: TaskId) {
        let on = On { cpu: by, home: world.task_cpu(task), balancing: false };
        let address = self.address(task);
        self.change(world, on, task, |scx, world| {
            scx.call(world, on, Hook::Disable, &[address]);
            scx.call(world, on, Hook::Enable, &[address]);
            scx.tell_weight(world, by, task);
            scx.tell_allowed(world, on, task);
        });
    }

    /// Takes a runnable task from whoever holds it, because a property of it changes (`dequeue_task_scx()`).
    fn take_off(&mut self, world: &mut World, on: On, task: TaskId, runs: bool) {
        let address = self.address(task);
        let custody = self.kernel.tasks.get(task).custody;
        if matches!(custody, Custody::Scheduler(_) | Custody::Queue(Dsq::Made(_))) {
            self.call(world, on, Hook::Dequeue, &[address, DEQUEUE_SAVE | DEQUEUE_CHANGE]);
        }
        if runs {
            self.kernel.tasks.account(&mut self.kernel.memory, world, task);
            self.call(world, on, Hook::Stopping, &[address, 0]);
        }
        if let Custody::Queue(dsq) = custody {
            on.call(&mut self.kernel, world).take_out(task, dsq);
            self.charge_lines(world, on.cpu);
        }
        self.kernel.tasks.set_runnable(&mut self.kernel.memory, task, false);
        let state = self.kernel.tasks.get_mut(task);
        (state.custody, state.direct) = (Custody::None, None);
    }

    /// Sets the engine's timer of a CPU for the next event that is due there.
    fn arm(&self, world: &mut World, cpu: CpuId) {
        let watch = (cpu == 0).then_some(self.watch_ns);
        if let Some(at) = watch.into_iter().chain(self.kernel.timers.next_ns(cpu)).min() {
            world.start_timer(cpu, cpu, Time(at));
        }
    }

    /// Ends the run if a runnable task has waited too long (`check_rq_for_timeouts()`).
    fn watch(&mut self, world: &mut World) {
        let now = world.now().ns();
        let waited = |at: u64| now.saturating_sub(at);
        let current = &self.kernel.current;
        let stalled = self.kernel.tasks.runnable().find(|(id, task)| {
            waited(task.runnable_at) > self.timeout_ns && !current.contains(&Some(*id))
        });
        if let Some((id, task)) = stalled {
            let ms = waited(task.runnable_at) / 1_000_000;
            let named = Tasks::named(world, id);
            let reason = format!("{named} failed to run for {}.{:03}s", ms / 1000, ms % 1000);
            self.kernel.end(format!("runnable task stall: {reason}"));
            self.check(world);
        }
    }
}

/// A CPU that a task may run on: near its previous CPU if possible, otherwise the lowest (`select_fallback_rq()`).
fn fallback(world: &World, task: TaskId, previous: CpuId) -> CpuId {
    let machine = world.machine();
    let node = &machine.nodes[machine.cpus[previous].node as usize].cpus;
    let allowed = world.allowed(task);
    let near = node.iter().find(|&cpu| allowed.contains(cpu) && world.is_active(cpu));
    let far = || allowed.iter().find(|&cpu| world.is_active(cpu));
    near.or_else(far).unwrap_or(previous)
}

/// Interprets a function. Returns its result and the number of instructions that were executed. A fault is stored in
/// `fault`.
#[cold]
#[inline(never)]
fn interpreted(
    code: &[Instruction],
    call: &mut Call,
    entry: usize,
    arguments: [u64; 5],
    fault: &mut Option<Fault>,
) -> (u64, u64) {
    let stack = call.kernel.stack;
    match interpret::run(code, call, stack, entry, arguments) {
        Ok(Returned { value, instructions }) => (value, instructions),
        Err(why) => {
            *fault = Some(why);
            (0, 0)
        }
    }
}

/// The CPUs of a call.
#[derive(Clone, Copy)]
struct On {
    /// The CPU that executes it.
    cpu: CpuId,
    /// The CPU that the hook is about.
    home: CpuId,
    /// Whether `home` is looking for its next task.
    balancing: bool,
}

impl On {
    /// A call on a CPU about the same CPU.
    fn at(cpu: CpuId) -> Self {
        Self { cpu, home: cpu, balancing: false }
    }

    fn call<'a>(self, kernel: &'a mut Kernel, world: &'a mut World) -> Call<'a> {
        let Self { cpu, home, balancing } = self;
        Call { kernel, world, cpu, home, balancing }
    }
}

impl Scheduler for Scx {
    fn tick_ns(&self) -> u64 {
        self.tick_ns
    }

    fn start(&mut self, world: &mut World) {
        self.prepare(world);
        let failed =
            self.call(world, On::at(0), Hook::Init, &[]).map_or(0, |value| value as u32 as i32);
        if failed < 0 {
            self.kernel.end(format!("ops.init() failed ({failed})"));
            self.check(world);
        }
        self.begin_groups(world);
        // When the scheduler is enabled, idle CPUs pick again and report that they are idle
        // (`unbypass_renotify_idle()`).
        for cpu in 0..world.nr_cpus() {
            self.update_idle(world, cpu, true, true);
        }
        self.arm(world, 0);
    }

    /// The watchdog checks twice within the time that it allows (`scx_watchdog_workfn()`). Timers of the program expire
    /// here too.
    fn timer(&mut self, world: &mut World, cpu: CpuId) {
        let now = world.now().ns();
        if cpu == 0 && self.watch_ns <= now {
            self.watch(world);
            self.watch_ns = now + self.timeout_ns / 2;
        }
        while let Some(expired) = self.kernel.timers.take_expired(cpu, now) {
            self.call_back(world, cpu, expired);
        }
        self.arm(world, cpu);
    }

    fn task_new(&mut self, world: &mut World, task: TaskId, parent: Option<TaskId>) {
        let cpu = parent.map_or(0, |parent| world.task_cpu(parent));
        let Kernel { tasks, memory, lines, groups, arguments, .. } = &mut self.kernel;
        let group = groups.get(world.group(task));
        let begun = tasks.begin(memory, lines, world, groups, task).and_then(|()| {
            // struct scx_init_task_args: whether the task is forked, and its cgroup.
            memory.write(*arguments, 8, parent.is_some().into())?;
            memory.write(*arguments + 8, 8, group.cgroup)
        });
        if let Err(wild) = begun {
            self.kernel.end(format!("no memory for a task at {:#x}", wild.address));
            return self.check(world);
        }
        let (address, arguments) = (self.address(task), self.kernel.arguments);
        let failed = self.call(world, On::at(cpu), Hook::InitTask, &[address, arguments]);
        if failed.is_some_and(|value| (value as u32 as i32) < 0) {
            let named = Tasks::named(world, task);
            self.kernel.end(format!("ops.init_task() failed for {named}"));
            return self.check(world);
        }
        // The struct is in memory, so this cannot fail.
        let _ = self.kernel.tasks.set_weight(&mut self.kernel.memory, world, task);
        self.call(world, On::at(cpu), Hook::Enable, &[address]);
        self.tell_weight(world, cpu, task);
    }

    fn task_exit(&mut self, world: &mut World, task: TaskId) {
        let cpu = world.task_cpu(task);
        let address = self.address(task);
        self.kernel.tasks.begin_exit(&mut self.kernel.memory, world, task);
        self.call(world, On::at(cpu), Hook::Disable, &[address]);
        // struct scx_exit_task_args: the task's creation was not cancelled.
        let arguments = self.kernel.arguments;
        let _ = self.kernel.memory.write(arguments, 8, 0);
        self.call(world, On::at(cpu), Hook::ExitTask, &[address, arguments]);
        let kernel = &mut self.kernel;
        for map in &kernel.maps {
            map.forget_task(&mut kernel.memory, &mut kernel.task_values, task);
        }
        kernel.tasks.end(&mut kernel.memory, world, task);
    }

    fn select_cpu(&mut self, world: &mut World, task: TaskId, wake: Wake) -> CpuId {
        self.select(world, task, wake, WAKE_TTWU)
    }

    fn select_cpu_fork(&mut self, world: &mut World, task: TaskId, wake: Wake) -> CpuId {
        self.select(world, task, wake, WAKE_FORK)
    }

    fn hands_over(&self, world: &World, from: CpuId, cpu: CpuId) -> bool {
        let far = world.current(cpu).is_none() || !world.machine().same_llc(from, cpu);
        self.flags & ALLOW_QUEUED_WAKEUP != 0 && far
    }

    fn enqueue(&mut self, world: &mut World, cpu: CpuId, task: TaskId, why: Enqueue, by: CpuId) {
        let on = On { cpu: by, home: cpu, balancing: false };
        self.kernel.tasks.set_runnable(&mut self.kernel.memory, task, true);
        // A task that waits goes on waiting while it is moved.
        if why != Enqueue::Relocated {
            self.kernel.tasks.get_mut(task).runnable_at = world.now().ns();
        }
        let selected = world.nr_allowed(task) > 1 && why != Enqueue::Relocated;
        let flags = match why {
            Enqueue::Wakeup { .. } => ENQUEUE_WAKEUP,
            Enqueue::New | Enqueue::Relocated => 0,
        };
        let flags = flags | if selected { ENQUEUE_CPU_SELECTED } else { 0 };
        if why == Enqueue::Relocated {
            // If another task changed the affinity, the scheduler knows already.
            if !self.kernel.tasks.knows_allowed(&self.kernel.memory, world, task) {
                self.tell_allowed(world, on, task);
            }
        } else {
            let address = self.address(task);
            self.call(world, on, Hook::Runnable, &[address, flags]);
        }
        self.hand_over(world, on, task, flags);
        self.kernel.tasks.set_state(&mut self.kernel.memory, task, state::RUNNING);
    }

    fn dequeue(&mut self, world: &mut World, cpu: CpuId, task: TaskId, why: Dequeue) {
        self.kernel.tasks.account(&mut self.kernel.memory, world, task);
        let left = match why {
            Dequeue::Sleep => state::INTERRUPTIBLE,
            Dequeue::Exit => state::DEAD,
            Dequeue::NotAllowed => state::RUNNING,
        };
        self.kernel.tasks.set_state(&mut self.kernel.memory, task, left);
        let address = self.address(task);
        self.call(world, On::at(cpu), Hook::Stopping, &[address, 0]);
        if why == Dequeue::NotAllowed {
            self.kernel.tasks.get_mut(task).runnable_at = world.now().ns();
        } else {
            let flags = if why == Dequeue::Sleep { DEQUEUE_SLEEP } else { DEQUEUE_CHANGE };
            self.call(world, On::at(cpu), Hook::Quiescent, &[address, flags]);
        }
        self.kernel.tasks.set_runnable(&mut self.kernel.memory, task, false);
        let state = self.kernel.tasks.get_mut(task);
        (state.custody, state.direct) = (Custody::None, None);
    }

    fn pick(&mut self, world: &mut World, cpu: CpuId) -> Pick {
        self.kernel.picking = true;
        let pick = self.choose(world, cpu);
        self.kernel.picking = false;
        self.carry_out_kicks(world, cpu, true);
        pick
    }

    fn tick(&mut self, world: &mut World, cpu: CpuId) {
        let Some(task) = world.current(cpu) else { return };
        self.kernel.tasks.account(&mut self.kernel.memory, world, task);
        let address = self.address(task);
        self.call(world, On::at(cpu), Hook::Tick, &[address]);
        if self.kernel.tasks.slice(&self.kernel.memory, task) == 0 {
            world.resched(cpu, cpu);
        }
    }

    fn yield_current(&mut self, world: &mut World, cpu: CpuId) {
        let Some(task) = world.current(cpu) else { return };
        let address = self.address(task);
        // A yield to no task in particular (`yield_task_scx()`).
        if self.call(world, On::at(cpu), Hook::Yield, &[address, 0]).is_none() {
            self.kernel.tasks.set_slice(&mut self.kernel.memory, task, 0);
        }
    }

    fn reweight(&mut self, world: &mut World, cpu: CpuId, task: TaskId) {
        let Kernel { tasks, memory, .. } = &mut self.kernel;
        // The struct is in memory, so this cannot fail.
        let _ = tasks.set_priority(memory, world, task);
        let _ = tasks.set_weight(memory, world, task);
        self.tell_weight(world, cpu, task);
    }

    /// Moves a task to another cgroup (`scx_cgroup_can_attach()`, `scx_cgroup_move_task()`).
    fn group_changed(&mut self, world: &mut World, cpu: CpuId, task: TaskId, by: CpuId) {
        let on = On { cpu: by, home: cpu, balancing: false };
        let Kernel { tasks, memory, groups, .. } = &mut self.kernel;
        let (address, from) = (tasks.get(task).address, tasks.cgroup(memory, groups, task));
        let to = groups.get(world.group(task)).cgroup;
        let arguments = [address, from, to];
        let failed = self.call(world, on, Hook::CgroupPrepMove, &arguments);
        if failed.is_some_and(|value| (value as u32 as i32) < 0) {
            let named = Tasks::named(world, task);
            self.kernel.end(format!("ops.cgroup_prep_move() failed for {named}"));
            return self.check(world);
        }
        self.change(world, on, task, |scx, world| {
            let Kernel { tasks, memory, groups, .. } = &mut scx.kernel;
            // The struct is in memory, so this cannot fail.
            let _ = tasks.set_group(memory, world, groups, task);
            scx.call(world, on, Hook::CgroupMove, &arguments);
        });
        if by != cpu && world.current(cpu) == Some(task) {
            world.resched(by, cpu);
        }
    }

    fn allowed_changed(&mut self, world: &mut World, task: TaskId, by: CpuId) {
        let on = On { cpu: by, home: world.task_cpu(task), balancing: false };
        let Kernel { tasks, memory, .. } = &self.kernel;
        if !tasks.get(task).runnable && tasks.knows_allowed(memory, world, task) {
            return;
        }
        self.change(world, on, task, |scx, world| scx.tell_allowed(world, on, task));
    }

    fn dequeue_waiting(&mut self, world: &mut World, cpu: CpuId, task: TaskId, by: CpuId) {
        self.take_off(world, On { cpu: by, home: cpu, balancing: false }, task, false);
    }

    /// For each hook, and for timers: `calls`, `instructions`, `kernel_instructions`, `kfuncs`, `steps`, `lines` and
    /// `waited_ns`. Then the program's own counters, and those of its thread in user space.
    fn counters(&self, sink: &mut dyn FnMut(&str, u64)) {
        for (name, hook) in self.known_hooks() {
            sink(&format!("{name}_calls"), hook.calls);
            sink(&format!("{name}_instructions"), hook.cost.instructions);
            sink(&format!("{name}_kernel_instructions"), hook.cost.kernel);
            sink(&format!("{name}_kfuncs"), hook.cost.kfuncs);
            sink(&format!("{name}_steps"), hook.cost.steps);
            sink(&format!("{name}_lines"), hook.cost.fetched.lines);
            sink(&format!("{name}_waited_ns"), hook.cost.fetched.waited_ns);
        }
        for counter in &self.own_counters {
            let (name, value) = counter.read(&self.kernel.maps, &self.kernel.memory);
            sink(name, value);
        }
        if let Some(companion) = &self.companion {
            companion.counters(sink);
        }
    }

    /// For each hook, and for timers, the most of one call: `most_kfuncs`, `most_steps`, `most_lines`.
    fn maxima(&self, sink: &mut dyn FnMut(&str, u64)) {
        for (name, hook) in self.known_hooks() {
            for (kind, most) in ["kfuncs", "steps", "lines"].iter().zip(hook.most) {
                sink(&format!("{name}_most_{kind}"), most);
            }
        }
    }

    fn own_thread(&self) -> Option<&str> {
        self.companion.as_ref().map(|companion| companion.name())
    }

    fn own_turn(&mut self, world: &mut World, cpu: CpuId, _task: TaskId) -> u64 {
        let Some(mut companion) = self.companion.take() else { return 0 };
        let ns = companion.turn(world, cpu, &mut UserMaps { scx: self, cpu });
        self.companion = Some(companion);
        self.charge_lines(world, cpu);
        ns
    }

    fn own_pause(&mut self, world: &World, task: TaskId) -> Time {
        self.companion.as_mut().map_or(Time::NEVER, |companion| companion.pause(world, task))
    }

    fn audit(&self, world: &World) {
        self.audit_all(world);
    }
}
