//! A task as the engine keeps it.

use roost_machine::CpuSet;
use roost_workload::{GroupId, Policy};

use crate::facts::Person;
use crate::scheduler::CpuId;
use crate::time::Time;
use crate::world::World;

/// Where a task is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Asleep: waits for a timer, another task or a resource.
    Blocked,
    /// Woken or created, on its way to a queue.
    Arriving,
    /// In a queue.
    Queued,
    /// On a CPU.
    Running,
    /// Exited; the number is free.
    Dead,
}

/// What the current operation of a task still needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// This much work, ns at full speed.
    Work(u64),
    /// The clock to reach this time while the task runs.
    Until(Time),
    /// This much of a sweep over memory.
    Sweep {
        /// Speed, bytes per microsecond: thousandths of a byte per nanosecond.
        rate: u32,
        /// What is left to transfer, thousandths of a byte.
        left: u64,
        /// What is left when it stops for a hinting fault; 0: it goes through to the end.
        until: u64,
    },
}

/// A task, in the order of use: most events use the first two cache lines and a part of the third.
#[repr(C, align(64))]
pub(crate) struct Task {
    pub activity: Activity,
    /// Time to refill caches after a migration, still to be paid, ns.
    pub refill_ns: u64,
    /// Where it runs, is queued or last was.
    pub cpu: CpuId,
    /// Where it last ran.
    pub ran_on: Option<CpuId>,
    /// Since when it waits for a CPU: queued, or on its way to a queue.
    pub queued_at: Time,
    /// Next operation.
    pub pc: u32,
    pub template: u32,
    pub state: State,
    /// Whether it exists for the engine only (the root task).
    pub root: bool,
    /// Whether it is a thread of the kernel that the engine has added, for whose end nobody waits.
    pub kernel: bool,
    /// Whether it has others to wake before its next operation (`Shared::to_wake`).
    pub wakes: bool,
    /// Whether it has begun its next operation: the CPU works, then the operation takes effect.
    pub half_done: bool,
    pub policy: Policy,
    pub nice: i8,
    /// Which latency record it reports to.
    pub latency_class: Option<u16>,
    /// A mutex to take again after a condition was signalled.
    pub relock: Option<u32>,
    /// Since when it is woken and has not run.
    pub woken_at: Option<Time>,
    /// When it last got a CPU.
    pub started_at: Time,
    /// Time for which it had a CPU, until it last gave one up, ns.
    pub run_ns: u64,
    /// Copying in which it was preempted, still to be done, ns.
    pub copying_ns: u64,
    pub nr_allowed: usize,
    /// How often each open loop has run its body.
    pub loops: Vec<u64>,
    pub allowed: CpuSet,
    /// Never used again in the run, from 1.
    pub pid: u32,
    pub process: u32,
    /// Next expiry of the task's own timers; `None` before the first use.
    pub timers: Vec<Option<Time>>,
    /// Who created it.
    pub parent: Option<Person>,
    /// Index into the world's groups; `None`: the root group.
    pub group: Option<GroupId>,
}

impl Task {
    /// The end of a loop's body: goes back to `to` until the body has run `times` times; 0 is for
    /// ever.
    #[inline]
    pub(crate) fn repeat(&mut self, depth: u8, times: u64, to: u32) {
        if times == 0 {
            self.pc = to;
            return;
        }
        let done = &mut self.loops[depth as usize];
        *done += 1;
        if *done < times {
            self.pc = to;
        } else {
            *done = 0;
        }
    }
}

impl Task {
    /// A task that may run everywhere, is on its way to `cpu` and has nothing to do.
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
            loops: Vec::new(),
            timers: Vec::new(),
            relock: None,
            woken_at: None,
            queued_at: world.now,
            started_at: world.now,
            latency_class: None,
            root: false,
            kernel: false,
            wakes: false,
            half_done: false,
        }
    }
}
