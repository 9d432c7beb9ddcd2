//! The engine's state of a task.

use std::mem::offset_of;

use roost_machine::CpuSet;
use roost_workload::{GroupId, Policy};

use crate::facts::Person;
use crate::scheduler::CpuId;
use crate::time::Time;
use crate::world::World;

/// The states of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Asleep: it waits for a timer, another task or a resource.
    Blocked,
    /// Woken or created, and in transit to a queue.
    Arriving,
    /// In a queue.
    Queued,
    /// On a CPU.
    Running,
    /// Exited; the number is free.
    Dead,
}

/// What remains of a task's current operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// This much work, ns at full speed.
    Work(u64),
    /// Spin until this time.
    Until(Time),
    /// A sweep over memory.
    Sweep {
        /// Speed, bytes per microsecond, which are thousandths of a byte per nanosecond.
        rate: u32,
        /// What remains to be transferred, thousandths of a byte.
        left: u64,
        /// What remains when it stops for a hinting fault; 0 if it does not stop before the end.
        until: u64,
    },
}

/// Number of loops whose state is in the task itself: more loops are rarely open in each other.
const OUTER_LOOPS: usize = 2;

/// A task. Fields are in the order of use: the end of an operation uses the first two cache lines, a
/// switch or wakeup the first three.
#[repr(C, align(64))]
pub(crate) struct Task {
    pub activity: Activity,
    /// Time to refill caches after a migration that is still to be spent, ns.
    pub refill_ns: u64,
    /// Next operation.
    pub pc: u32,
    pub template: u32,
    pub state: State,
    /// Whether it exists only for the engine (the root task).
    pub root: bool,
    /// Whether it is a kernel thread that the engine added, or the scheduler's own thread. No run
    /// waits for its end.
    pub kernel: bool,
    /// Whether it has to wake other tasks before its next operation (`Shared::to_wake`).
    pub wakes: bool,
    /// Whether the recorder knows it.
    pub recorded: bool,
    /// Whether it has begun its next operation: first the CPU works, then the operation takes
    /// effect.
    pub half_done: bool,
    /// Whether it spins for `kernel_mutex`.
    pub spins: bool,
    /// Whether it has spun for a mutex in vain.
    pub spun: bool,
    /// Whether it slept in its current read from a pipe, or write to it.
    pub slept: bool,
    pub policy: Policy,
    pub nice: i8,
    /// The latency record to which it reports.
    pub latency_class: Option<u16>,
    /// A mutex to take again after a condition is signalled.
    pub relock: Option<u32>,
    /// How often each open loop has run its body, without those in `inner_loops`.
    pub loops: [u64; OUTER_LOOPS],
    /// The CPU where it runs, is queued or last was.
    pub cpu: CpuId,
    /// The CPU where it last ran.
    pub ran_on: Option<CpuId>,
    /// Since when it waits for a CPU: on a queue, or in transit to one.
    pub queued_at: Time,
    /// When it last got a CPU.
    pub started_at: Time,
    /// A mutex of the kernel that it holds or spins for. Meanwhile it is in a system call.
    pub kernel_mutex: Option<u32>,
    /// When it was woken or created. [`Time::NEVER`] if it has run since.
    pub woken_at: Time,
    /// From when its wakeup latency counts: when its waker was asked to wake it. [`Time::NEVER`] if
    /// it has run since, or was created.
    pub asked_at: Time,
    /// Time on CPUs until it last left one, ns.
    pub run_ns: u64,
    /// Copying left over from a preemption, ns.
    pub copying_ns: u64,
    /// Bytes that its current read from a pipe, or write to it, has moved so far.
    pub moved: u32,
    /// Unique in the run, from 1.
    pub pid: u32,
    pub process: u32,
    pub nr_allowed: usize,
    pub allowed: CpuSet,
    /// Next expiry of the task's own timers; `None` before the first use.
    pub timers: Box<[Option<Time>]>,
    /// As `loops`, for the loops inside those.
    pub inner_loops: Box<[u64]>,
    /// The task that created it.
    pub parent: Option<Person>,
    /// Index into the world's groups; `None` for the root group.
    pub group: Option<GroupId>,
}

const _: () = assert!(size_of::<Task>() <= 256, "four cache lines");
const _: () =
    assert!(offset_of!(Task, loops) == 64, "what every operation uses is in the first line");

impl Task {
    /// Whether it is in the middle of a system call.
    #[inline]
    pub(crate) fn is_in_system_call(&self) -> bool {
        self.wakes || self.half_done || self.kernel_mutex.is_some()
    }

    /// The end of a loop's body: jumps back to `to` until the body has run `times` times; 0 means
    /// for ever.
    #[inline]
    pub(crate) fn repeat(&mut self, depth: u8, times: u64, to: u32) {
        if times == 0 {
            self.pc = to;
            return;
        }
        let depth = usize::from(depth);
        let done = match self.loops.get_mut(depth) {
            Some(done) => done,
            None => &mut self.inner_loops[depth - OUTER_LOOPS],
        };
        *done += 1;
        if *done < times {
            self.pc = to;
        } else {
            *done = 0;
        }
    }

    /// Room for loops in each other up to `depth`.
    pub(crate) fn set_loop_depth(&mut self, depth: u8) {
        self.inner_loops = vec![0; usize::from(depth).saturating_sub(OUTER_LOOPS)].into();
    }

    /// Whether the body of an open loop has been run.
    pub(crate) fn is_in_loop(&self) -> bool {
        self.loops.iter().chain(&self.inner_loops).any(|&done| done > 0)
    }
}

impl Task {
    /// A task that may run everywhere, is in transit to `cpu` and has nothing to do.
    pub(crate) fn blank(pid: u32, cpu: CpuId, world: &World) -> Self {
        let nr_cpus = world.nr_cpus();
        Self {
            template: 0,
            pid,
            process: 0,
            parent: None,
            run_ns: 0,
            group: None,
            nice: 0,
            policy: Policy::Normal,
            allowed: CpuSet::full(nr_cpus),
            nr_allowed: nr_cpus,
            cpu,
            ran_on: None,
            state: State::Arriving,
            activity: Activity::Work(0),
            refill_ns: 0,
            copying_ns: 0,
            pc: 0,
            loops: [0; OUTER_LOOPS],
            inner_loops: Box::default(),
            timers: Box::default(),
            relock: None,
            kernel_mutex: None,
            moved: 0,
            spins: false,
            spun: false,
            slept: false,
            woken_at: Time::NEVER,
            asked_at: Time::NEVER,
            queued_at: world.now,
            started_at: world.now,
            latency_class: None,
            root: false,
            kernel: false,
            recorded: false,
            wakes: false,
            half_done: false,
        }
    }
}
