//! The hooks that the engine calls, which a scheduler implements.
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
//! The engine knows which task runs on which CPU *now* ([`World::current`]) and keeps all times.
//! The scheduler keeps its queues. A running task counts as on the scheduler's queue of its CPU
//! until `dequeue` is called for it. A scheduler that cannot go on ends the run with a reason
//! ([`World::end_run`]).

use crate::time::Time;
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

/// The task that last touched a group of pages, according to the last hinting fault (the kernel's
/// `cpupid`).
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
    /// The region, numbered in the order of first use.
    pub region: u32,
    /// Number of the group in the region; for a huge page, of its first group.
    pub group: u32,
    /// The area of the task's process in which the group is.
    pub area: u32,
    /// Its pages of 4 KiB. The kernel would have as many faults, or one for a huge page.
    pub pages: u64,
    /// The node that holds these pages.
    pub node: usize,
    /// Whether several processes map the region.
    pub shared: bool,
    /// The task that last touched it; `None` if no task did since the pages were placed.
    pub last: Option<LastAccess>,
    /// Another task is moving it ([`World::begin_move`]). This task either sleeps until the move is
    /// done ([`World::await_move`]), or uses the pages where they are. Then the move is given up.
    pub moving: bool,
}

/// Why a task is placed, and from which CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wake {
    /// The CPU that executes the wakeup or fork.
    pub cpu: CpuId,
    /// The task that wakes or forks; `None` in an interrupt on an idle CPU. In an interrupt that
    /// hit a running task it is that task: the kernel's `current`.
    pub waker: Option<TaskId>,
    /// The waker says that it is about to sleep (WF_SYNC).
    pub sync: bool,
    /// Whether this happens in an interrupt handler, not on behalf of the waker.
    pub interrupt: bool,
}

/// Why a task enters a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enqueue {
    /// It was woken.
    Wakeup {
        /// The task was moved to another CPU than it last ran on (WF_MIGRATED).
        migrated: bool,
        /// The wakeup has the sync hint (WF_SYNC).
        sync: bool,
    },
    /// It is new.
    New,
    /// It was moved because its affinity changed. `dequeue(NotAllowed)` or
    /// [`Scheduler::dequeue_waiting`] kept its state.
    Relocated,
}

/// Why a task leaves its CPU's queue.
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
    /// Nothing is queued, and the CPU searches elsewhere. It picks again when the work charged to
    /// it is done. Until then it takes no interrupts, as in the kernel's `schedule()`.
    Later,
    /// As [`Pick::Later`], but the current task stays current until then, unless it was dequeued.
    Undecided,
}

impl From<Option<TaskId>> for Pick {
    fn from(task: Option<TaskId>) -> Self {
        task.map_or(Pick::Idle, Pick::Run)
    }
}

/// Work that one CPU can ask another CPU to do with [`World::kick`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Work {
    /// Pick again.
    Reschedule = 1,
    /// Balance on behalf of all idle CPUs (the kernel's nohz kick). The scheduler knows the
    /// details.
    Balance = 2,
    /// Run the stopper. The current task is put back on its queue first, so that it can be moved.
    Stop = 4,
    /// Only take the interrupt: the sender started this CPU's timer ([`World::start_timer`]), and
    /// only the CPU itself can program it.
    Timer = 8,
    /// Run the stopper for the engine: it moves tasks of this CPU that may no longer run there. The
    /// scheduler is not told of this work.
    Relocate = 16,
}

/// A scheduling policy with its state.
///
/// The first hooks have no default: every scheduler implements them. The others do nothing by
/// default, and then cost nothing, because the engine is compiled for each scheduler.
pub trait Scheduler {
    /// The tick's period in nanoseconds (1 s / HZ).
    fn tick_ns(&self) -> u64;

    /// Chooses a CPU for a woken task. Charge the work to `wake.cpu` with [`World::charge`]. The
    /// task arrives after the charged work is done.
    fn select_cpu(&mut self, world: &mut World, task: TaskId, wake: Wake) -> CpuId;

    /// Puts a task on the queue of `cpu`. If the task should run before the current one, calls
    /// [`World::resched`]. CPU `by` executes this: the waker's CPU if it takes the queue's lock,
    /// otherwise `cpu` itself, in an interrupt. An idle CPU picks after this without being asked.
    fn enqueue(&mut self, world: &mut World, cpu: CpuId, task: TaskId, why: Enqueue, by: CpuId);

    /// Takes the current task of `cpu` off its queue. `pick` follows. With the default of
    /// [`Scheduler::dequeue_waiting`] also takes a task off that waits, and nothing follows.
    fn dequeue(&mut self, world: &mut World, cpu: CpuId, task: TaskId, why: Dequeue);

    /// Chooses the task that `cpu` runs next. If `dequeue` was not called for the current task,
    /// that task is still runnable and can be chosen. May pull tasks from other CPUs
    /// ([`World::set_task_cpu`]).
    fn pick(&mut self, world: &mut World, cpu: CpuId) -> Pick;

    /// Called once at the start. Every CPU is idle.
    fn start(&mut self, _world: &mut World) {}

    /// `parent` created a task (`None` if the task exists from the start). It is not queued yet.
    fn task_new(&mut self, _world: &mut World, _task: TaskId, _parent: Option<TaskId>) {}

    /// A task has exited, after `dequeue(Exit)`. Its number may be used again.
    fn task_exit(&mut self, _world: &mut World, _task: TaskId) {}

    /// Chooses a CPU for a new task; by default as for a woken task.
    fn select_cpu_fork(&mut self, world: &mut World, task: TaskId, wake: Wake) -> CpuId {
        self.select_cpu(world, task, wake)
    }

    /// Whether a task that CPU `from` wakes for another CPU `cpu` is handed over by interrupt, so
    /// that `cpu` queues it. Otherwise `from` takes the lock of `cpu`'s queue, and an idle `cpu` is
    /// interrupted after the task is queued. The default is that of the kernel's fair class
    /// (`ttwu_queue_cond()`, TTWU_QUEUE): true if `cpu` is idle or has another LLC. sched_ext takes
    /// the lock unless it is told not to (SCX_OPS_ALLOW_QUEUED_WAKEUP).
    fn hands_over(&self, world: &World, from: CpuId, cpu: CpuId) -> bool {
        world.current(cpu).is_none() || !world.machine().same_llc(from, cpu)
    }

    /// The periodic tick on a CPU that is not idle.
    fn tick(&mut self, _world: &mut World, _cpu: CpuId) {}

    /// The current task of `cpu` called sched_yield; `pick` follows.
    fn yield_current(&mut self, _world: &mut World, _cpu: CpuId) {}

    /// `task` is now the current task of `cpu`, and the switch is charged. Not called if a CPU
    /// picks the task that it ran before.
    fn running(&mut self, _world: &mut World, _cpu: CpuId, _task: TaskId) {}

    /// `task` no longer runs on `cpu`. Called after the `pick` that chose another task, and before
    /// `running` for that task. `runnable` is true if `task` was preempted, false if it was
    /// dequeued.
    fn stopping(&mut self, _world: &mut World, _cpu: CpuId, _task: TaskId, _runnable: bool) {}

    /// `cpu` became idle or stopped being idle. Called after `stopping` and `running`. A CPU that
    /// searches for a task ([`Pick::Later`]) has not changed yet.
    fn idle_changed(&mut self, _world: &mut World, _cpu: CpuId, _idle: bool) {}

    /// The nice value or policy of a task changed; `world` has the new one. The task runs on `cpu`.
    fn reweight(&mut self, _world: &mut World, _cpu: CpuId, _task: TaskId) {}

    /// A task moved to another task group; [`World::group`] has the new one. The task runs, waits or
    /// sleeps on `cpu`. CPU `by` executes this; it is `cpu` if the task moved itself.
    fn group_changed(&mut self, _world: &mut World, _cpu: CpuId, _task: TaskId, _by: CpuId) {}

    /// A task that runs on `cpu` asks for slices of `ns` (`sched_runtime` of `sched_setattr(2)`).
    /// Tasks that it forks later ask for the same.
    fn set_slice(&mut self, _world: &mut World, _cpu: CpuId, _task: TaskId, _ns: u64) {}

    /// The affinity of `task` changed; [`World::allowed`] has the new one. CPU `by` executes this.
    ///
    /// - A task that changes its own affinity and may no longer run on its CPU is not announced here.
    ///   It leaves with `dequeue(NotAllowed)`, and another CPU queues it with `enqueue(Relocated)`.
    /// - A task that waits where it no longer may is moved at once: `dequeue_waiting` follows, and
    ///   then `enqueue(Relocated)` on another CPU.
    /// - A task that runs where it no longer may runs on until the stopper of its CPU moves it, in the
    ///   first of these two ways. If it sleeps by then, this is called again.
    /// - All others stay where they are. A sleeping task is placed at its next wakeup.
    fn allowed_changed(&mut self, _world: &mut World, _task: TaskId, _by: CpuId) {}

    /// CPU `by` takes a task that waits on `cpu` off its queue, because the task may no longer run
    /// there. `enqueue(Relocated)` on another CPU follows at once. By default calls
    /// [`Scheduler::dequeue`].
    fn dequeue_waiting(&mut self, world: &mut World, cpu: CpuId, task: TaskId, _by: CpuId) {
        self.dequeue(world, cpu, task, Dequeue::NotAllowed);
    }

    /// The rest of a tick, after the timers that expire in it: balancing (`SCHED_SOFTIRQ`), and
    /// work that is done when the kernel returns to the task.
    fn tick_end(&mut self, _world: &mut World, _cpu: CpuId) {}

    /// The tick of `cpu` is due, and the CPU went idle since the last one. No tick follows until it
    /// runs a task again. A scheduler whose idle CPUs keep this tick charges it
    /// ([`World::charge`]). Other schedulers stop the tick at once and do nothing here.
    fn idle_tick(&mut self, _world: &mut World, _cpu: CpuId) {}

    /// The timer set by [`World::start_timer`] has expired.
    fn timer(&mut self, _world: &mut World, _cpu: CpuId) {}

    /// Work requested by [`World::kick`], other than [`Work::Reschedule`].
    fn work(&mut self, _world: &mut World, _cpu: CpuId, _work: Work) {}

    /// Puts the current task of `cpu` back on the queue without picking a successor, because the
    /// stopper is about to run ([`Work::Stop`]). `pick` follows later.
    fn put_current(&mut self, _world: &mut World, _cpu: CpuId) {}

    /// If the sleeping `task` is still on a queue (delayed dequeue), wakes it there and returns the
    /// CPU. Then no other hook is called for this wakeup. `None`: the engine calls `select_cpu`.
    fn wake_queued(&mut self, _world: &mut World, _task: TaskId, _wake: Wake) -> Option<CpuId> {
        None
    }

    /// The name of the thread that the scheduler's own program has beside the workload, if it has
    /// one. It is asked once, before the run.
    fn own_thread(&self) -> Option<&str> {
        None
    }

    /// The scheduler's own thread `task`, which runs on `cpu`, does what is due. Returns for how
    /// long that keeps the CPU busy, ns, beside the work that is charged.
    fn own_turn(&mut self, _world: &mut World, _cpu: CpuId, _task: TaskId) -> u64 {
        0
    }

    /// When the scheduler's own thread `task` has its next turn, not before now. Called after each
    /// turn, and before the first one.
    fn own_pause(&mut self, _world: &World, _task: TaskId) -> Time {
        Time::NEVER
    }

    /// Whether the scheduler reads [`World::interrupt_ns`]. It is asked once, before the run.
    fn takes_out_interrupts(&self) -> bool {
        false
    }

    /// Whether the kernel maps memory in huge pages, which are marked, fault and move as a unit.
    fn huge_pages(&self) -> bool {
        false
    }

    /// `task`, which runs on `cpu`, touched pages that the scheduler had marked. The fault is
    /// already charged. What the scheduler does about it ([`World::move_faulting`], a migration of
    /// the task) happens before the task continues.
    fn hinting_fault(
        &mut self,
        _world: &mut World,
        _cpu: CpuId,
        _task: TaskId,
        _fault: &HintingFault,
    ) {
    }

    /// A move that `task`, which runs on `cpu`, began at a hinting fault has ended
    /// ([`World::begin_move`]). `pages` were moved; 0 if another task used them meanwhile.
    fn page_moved(
        &mut self,
        _world: &mut World,
        _cpu: CpuId,
        _task: TaskId,
        _fault: &HintingFault,
        _pages: u64,
    ) {
    }

    /// The scheduler's own counters: name and value, always the same names in the same order. They
    /// never decrease, because what is measured is the difference between two moments.
    fn counters(&self, _sink: &mut dyn FnMut(&str, u64)) {}

    /// Maxima of values since the start: name and value.
    fn maxima(&self, _sink: &mut dyn FnMut(&str, u64)) {}

    /// Its histograms of simulated durations: name and counts, where bucket 0 counts 0 to 1 us and
    /// bucket `n` counts `2^(n-1)` to `2^n` us.
    fn histograms(&self, _sink: &mut dyn FnMut(&str, &[u64])) {}

    /// Compares the scheduler's state with `world` and panics if they differ. Builds with debug
    /// assertions call it between events.
    fn audit(&self, _world: &World) {}
}
