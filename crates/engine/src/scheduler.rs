//! What a scheduler has to do: the hooks the engine calls.
//!
//! The life of a task, as a scheduler sees it:
//!
//! ```text
//!  task_new ─ select_cpu(Fork) ─ enqueue(New) ─┐
//!                                              ▼
//!      ┌── select_cpu(Wakeup) ─ enqueue(Wakeup) ──► queued ◄── current is preempted (in pick)
//!      │                                              │ pick
//!   sleeping ◄── dequeue(Sleep) ── running ◄──────────┘
//!                                     └── dequeue(Exit) ─ task_exit
//! ```
//!
//! The engine owns what runs where *now* ([`World::current`]) and all times; the
//! scheduler owns its queues. A task that runs is still "on" the scheduler's
//! queue of that CPU until `dequeue` is called for it. A scheduler that cannot go
//! on ends the run with a reason ([`World::end_run`]).

use crate::world::World;

/// A task: a small integer, reused after the task has exited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

impl TaskId {
    /// Index into a per-task array.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A CPU number of the machine, dense from 0.
pub type CpuId = usize;

/// Who touched a group of pages last, as its last hinting fault told (the kernel's `cpupid`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastAccess {
    /// The CPU.
    pub cpu: u16,
    /// The low 8 bits of the task's number ([`World::pid`]).
    pub pid: u8,
}

/// A task touched a group of pages that the scheduler had marked ([`World::mark_pages`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HintingFault {
    /// The region, numbered in the order of first use, and its group.
    pub region: u32,
    /// Number of the group in the region; of a huge page, of its first one.
    pub group: u32,
    /// The area of the task's process that it is in.
    pub area: u32,
    /// Its pages of 4 KiB: as many faults of the kernel, or one if it is a huge page.
    pub pages: u64,
    /// The node that holds them.
    pub node: usize,
    /// Whether several processes map the region.
    pub shared: bool,
    /// Who touched it last; `None`: nobody since it was placed.
    pub last: Option<LastAccess>,
    /// Another task moves it ([`World::begin_move`]): this one sleeps until that is done
    /// ([`World::await_move`]), or it goes on with the pages where they are, which do not move then.
    pub moving: bool,
}

/// Why and from where a task is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wake {
    /// The CPU that executes the wakeup or fork.
    pub cpu: CpuId,
    /// The task that wakes or forks; `None` from an interrupt on an idle CPU. From an interrupt
    /// that hit a running task this is that task: the kernel's `current`.
    pub waker: Option<TaskId>,
    /// The waker said it is about to sleep (WF_SYNC).
    pub sync: bool,
    /// Whether this runs in an interrupt handler rather than on behalf of the waker.
    pub interrupt: bool,
}

/// Why a task enters a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enqueue {
    /// It was woken.
    Wakeup {
        /// It was explicitly moved to another CPU than it last ran on (WF_MIGRATED).
        migrated: bool,
        /// The wakeup carried the sync hint (WF_SYNC).
        sync: bool,
    },
    /// It was created.
    New,
    /// It was moved because its affinity changed; its state was kept by `dequeue(NotAllowed)`.
    Relocated,
}

/// Why the current task leaves its CPU's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dequeue {
    /// It blocks.
    Sleep,
    /// It ends.
    Exit,
    /// Its affinity no longer allows this CPU.
    NotAllowed,
}

/// What a CPU does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// It runs this task.
    Run(TaskId),
    /// It goes idle.
    Idle,
    /// Nothing is queued, and it looks for something elsewhere: when the work that was charged to it
    /// is done, it picks again. Until then it takes no interrupt, as `schedule()` does not.
    Later,
}

impl From<Option<TaskId>> for Pick {
    fn from(task: Option<TaskId>) -> Self {
        task.map_or(Pick::Idle, Pick::Run)
    }
}

/// What one CPU can ask another to do with [`World::kick`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Work {
    /// Choose again what to run.
    Reschedule = 1,
    /// Idle balancing on behalf of all idle CPUs (the kernel's nohz kick); the scheduler knows the rest.
    Balance = 2,
    /// Run the stopper: the current task is put back to its queue first, so that it can be moved.
    Stop = 4,
    /// Nothing but to take the interrupt: the sender started this CPU's timer
    /// ([`World::start_timer`]), which only the CPU itself can do.
    Timer = 8,
}

/// A scheduling policy with its state.
///
/// What every scheduler has to answer stands first and has no default. The rest does nothing unless a
/// scheduler says otherwise, and costs nothing then: the engine is compiled anew for each scheduler.
pub trait Scheduler {
    /// The tick's period in nanoseconds (1 s / HZ).
    fn tick_ns(&self) -> u64;

    /// Chooses a CPU for a woken task. Work done is charged to `wake.cpu` by [`World::charge`]; the
    /// task arrives after what was charged.
    fn select_cpu(&mut self, world: &mut World, task: TaskId, wake: Wake) -> CpuId;

    /// Puts a task in the queue of `cpu` and, if it should run before the current one, calls
    /// [`World::resched`]. `by` executes this: the CPU that wakes, if it takes the queue's lock,
    /// otherwise `cpu` itself, in an interrupt. An idle CPU picks after that without being asked.
    fn enqueue(&mut self, world: &mut World, cpu: CpuId, task: TaskId, why: Enqueue, by: CpuId);

    /// Takes the current task of `cpu` off its queue. `pick` follows.
    fn dequeue(&mut self, world: &mut World, cpu: CpuId, task: TaskId, why: Dequeue);

    /// Chooses what `cpu` runs next. The current task, if `dequeue` was not called for it, is still
    /// runnable and one of the choices. May pull tasks from elsewhere ([`World::set_task_cpu`]).
    fn pick(&mut self, world: &mut World, cpu: CpuId) -> Pick;

    /// Called once before anything runs. Every CPU is idle.
    fn start(&mut self, _world: &mut World) {}

    /// A task was created by `parent` (`None`: it exists from the start). Nothing is queued yet.
    fn task_new(&mut self, _world: &mut World, _task: TaskId, _parent: Option<TaskId>) {}

    /// A task has exited, after `dequeue(Exit)`; its number may be used again.
    fn task_exit(&mut self, _world: &mut World, _task: TaskId) {}

    /// Chooses a CPU for a task just created; by default as for one that is woken.
    fn select_cpu_fork(&mut self, world: &mut World, task: TaskId, wake: Wake) -> CpuId {
        self.select_cpu(world, task, wake)
    }

    /// Whether a task that CPU `from` wakes for `cpu`, another one, is handed to it by interrupt, so that
    /// `cpu` does the queueing; otherwise `from` takes the lock of `cpu`'s queue, and a `cpu` that
    /// is idle is interrupted once the task is queued. By default as the kernel's fair class has it
    /// (`ttwu_queue_cond()`, TTWU_QUEUE): if `cpu` is idle or has another LLC. sched_ext takes the
    /// lock unless it is told not to (SCX_OPS_ALLOW_QUEUED_WAKEUP).
    fn hands_over(&self, world: &World, from: CpuId, cpu: CpuId) -> bool {
        world.current(cpu).is_none() || !world.machine().same_llc(from, cpu)
    }

    /// The periodic tick on a CPU that is not idle.
    fn tick(&mut self, _world: &mut World, _cpu: CpuId) {}

    /// The current task of `cpu` called sched_yield; `pick` follows.
    fn yield_current(&mut self, _world: &mut World, _cpu: CpuId) {}

    /// The next event is likely to concern `task` on `cpu`: what the scheduler reads then may be brought into
    /// the processor's caches ([`prefetch`](crate::prefetch)). Nothing else may come of it.
    #[inline]
    fn expect(&self, _world: &World, _cpu: CpuId, _task: TaskId) {}

    /// `task` has got `cpu` and is its current task; the switch is charged. Not called when a CPU
    /// picks the task that it ran before.
    fn running(&mut self, _world: &mut World, _cpu: CpuId, _task: TaskId) {}

    /// `task`, which ran on `cpu`, has given it up: after the `pick` that chose something else, before
    /// `running` of that. `runnable`: it was preempted; otherwise it has been dequeued.
    fn stopping(&mut self, _world: &mut World, _cpu: CpuId, _task: TaskId, _runnable: bool) {}

    /// `cpu` has become idle, or is no longer: after `stopping` and `running`. A CPU that looks for
    /// something to run ([`Pick::Later`]) has not changed yet.
    fn idle_changed(&mut self, _world: &mut World, _cpu: CpuId, _idle: bool) {}

    /// Nice value or policy of a task changed to what `world` now says. The task runs on `cpu`.
    fn reweight(&mut self, _world: &mut World, _cpu: CpuId, _task: TaskId) {}

    /// A task is in another task group: in the one that [`World::group`] now says. The task runs on
    /// `cpu`.
    fn group_changed(&mut self, _world: &mut World, _cpu: CpuId, _task: TaskId) {}

    /// A task, which runs on `cpu`, asks for slices of `ns` (`sched_runtime` of `sched_setattr(2)`). Tasks
    /// that it forks later ask for the same.
    fn set_slice(&mut self, _world: &mut World, _cpu: CpuId, _task: TaskId, _ns: u64) {}

    /// Where `task` may run has changed to what [`World::allowed`] now says, and it stays where it is,
    /// because it may, or because it sleeps. One that runs where it no longer may is taken off by
    /// `dequeue(NotAllowed)` and queued elsewhere by `enqueue(Relocated)`.
    fn allowed_changed(&mut self, _world: &mut World, _task: TaskId) {}

    /// The rest of a tick, after the timers that expire in it: balancing (`SCHED_SOFTIRQ`), and what is
    /// done when the kernel returns to the task.
    fn tick_end(&mut self, _world: &mut World, _cpu: CpuId) {}

    /// The tick of `cpu` is due, which went idle since the last one; none follows until something
    /// runs again. A scheduler whose idle CPUs keep this tick charges it ([`World::charge`]); others
    /// stop the tick at once and do nothing.
    fn idle_tick(&mut self, _world: &mut World, _cpu: CpuId) {}

    /// The timer that [`World::start_timer`] started has expired.
    fn timer(&mut self, _world: &mut World, _cpu: CpuId) {}

    /// Work asked for by [`World::kick`] other than [`Work::Reschedule`].
    fn work(&mut self, _world: &mut World, _cpu: CpuId, _work: Work) {}

    /// The current task of `cpu` is put back to the queue without a successor being picked, because the
    /// stopper is about to run ([`Work::Stop`]); `pick` follows later.
    fn put_current(&mut self, _world: &mut World, _cpu: CpuId) {}

    /// If the sleeping `task` is still on a queue (delayed dequeue), wakes it there and returns the
    /// CPU: nothing else is called for this wakeup. `None`: go on with `select_cpu`.
    fn wake_queued(&mut self, _world: &mut World, _task: TaskId, _wake: Wake) -> Option<CpuId> {
        None
    }

    /// Whether the kernel maps memory in huge pages, which are marked, fault and move as one.
    fn huge_pages(&self) -> bool {
        false
    }

    /// `task`, which runs on `cpu`, touched pages that the scheduler had marked. The fault is charged
    /// already; what the scheduler does about it ([`World::move_faulting`], a migration of the task)
    /// comes before the task goes on.
    fn hinting_fault(
        &mut self,
        _world: &mut World,
        _cpu: CpuId,
        _task: TaskId,
        _fault: &HintingFault,
    ) {
    }

    /// What came of a move that `task`, which runs on `cpu`, began at a hinting fault
    /// ([`World::begin_move`]): how many pages moved; none if another task went on with them.
    fn page_moved(
        &mut self,
        _world: &mut World,
        _cpu: CpuId,
        _task: TaskId,
        _fault: &HintingFault,
        _pages: u64,
    ) {
    }

    /// The scheduler's own counters: name and value, in a fixed order, the same names whenever it is asked. They
    /// never decrease: what is measured is the difference between two moments.
    fn counters(&self, _sink: &mut dyn FnMut(&str, u64)) {}

    /// The largest values that something has had since the start.
    fn maxima(&self, _sink: &mut dyn FnMut(&str, u64)) {}

    /// Its histograms of simulated durations: name and counts, where bucket 0 counts 0 to 1 us and
    /// bucket `n` counts `2^(n-1)` to `2^n` us.
    fn histograms(&self, _sink: &mut dyn FnMut(&str, &[u64])) {}

    /// Compares what it keeps with what `world` says, and panics where the two differ. Builds with debug
    /// assertions call it between events.
    fn audit(&self, _world: &World) {}
}
