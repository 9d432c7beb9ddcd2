//! What runs: tasks as small programs over shared objects, and what is measured.
//!
//! A workload is made from an rt-app JSON file ([`rtapp`]) or from a benchmark's
//! name and parameters ([`benchmark`]). Either way it becomes a [`Workload`]:
//! templates of tasks, each with a flat [`Program`], that the engine interprets.
//! All times are nanoseconds at the full speed of one CPU.

pub mod benchmark;
pub mod costs;
mod error;
mod graph;
mod program;
pub mod rtapp;
pub mod validate;
mod weight;

pub use benchmark::{benchmarks, expand, resolve};
pub use error::WorkloadError;
use serde::Serialize;
pub use weight::{SCHED_IDLE_WEIGHT, weight_of};

/// A complete workload. Serialised is what runs: neither what it was called nor for how long.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Workload {
    /// The name as given: `hackbench:groups=8`, or the file.
    #[serde(skip)]
    pub name: String,
    /// Every kind of task. Templates in `start` begin with the run, others when an
    /// [`Op::Fork`] names them.
    pub templates: Vec<Template>,
    /// What the root task starts, in order: template and number of instances. The root task (the
    /// benchmark's `main`) is implicit: it forks each instance and then waits.
    pub start: Vec<(TemplateId, u32)>,
    /// Processes; `Template::process` indexes this.
    pub processes: Vec<Process>,
    /// The process whose first thread the root task is; `None`: one of its own.
    pub root_process: Option<u32>,
    /// Task groups (cgroups) below the root group, a parent before its children;
    /// [`Template::group`] indexes this.
    pub groups: Vec<Group>,
    /// Pieces of memory; [`Slice::region`] indexes this.
    pub regions: Vec<Region>,
    /// Number of mutexes.
    pub mutexes: u32,
    /// Number of condition variables.
    pub conditions: u32,
    /// Barriers: number of tasks each waits for.
    pub barriers: Vec<u32>,
    /// Pipes and sockets.
    pub channels: Vec<Channel>,
    /// Number of periodic timers that tasks share by name (rt-app's non-"unique" timers).
    pub shared_timers: u32,
    /// Number of event counters that [`Op::Count`] increments.
    pub counters: u32,
    /// Number of stopwatches that [`Op::StartWatch`] starts.
    pub watches: u32,
    /// When the run ends although tasks remain; `None`: when every task has exited.
    #[serde(skip)]
    pub duration_ns: Option<u64>,
    /// When measuring begins, ns from the start of the run; what happens before is its warming up. A run that
    /// ends before is measured as a whole.
    #[serde(skip)]
    pub measured_from_ns: u64,
    /// What to report.
    pub metrics: Vec<Metric>,
}

/// Index into [`Workload::templates`].
pub type TemplateId = u32;

/// A process: threads that share an address space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Process {
    /// Name as `ps` would show it.
    pub name: String,
    /// It began as a copy of a process that ran (fork) rather than as a program of its own (exec).
    pub forked: bool,
}

/// Index into [`Workload::groups`].
pub type GroupId = u32;

/// `cpu.weight` of a cgroup when nobody sets it: that of a task of nice 0 (the kernel's
/// Documentation/admin-guide/cgroup-v2.rst).
pub const DEFAULT_GROUP_WEIGHT: u32 = 100;

/// What `cpu.weight` may be (same place).
pub const GROUP_WEIGHTS: std::ops::RangeInclusive<u32> = 1..=10_000;

/// A task group: a cgroup of version 2 with the cpu controller enabled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    /// Its path below the mount point, from `/`.
    pub path: String,
    /// The group that contains it; `None`: the root group.
    pub parent: Option<GroupId>,
    /// Its `cpu.weight`, within [`GROUP_WEIGHTS`]: its share of CPU time beside its siblings.
    pub weight: u32,
}

/// A kind of task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Template {
    /// Name of its tasks.
    pub name: String,
    /// Index into [`Workload::processes`].
    pub process: u32,
    /// The task group it is in, each thread by itself; `None`: that of the task which forks it,
    /// the root group for a task that starts with the run.
    pub group: Option<GroupId>,
    /// Nice value at start.
    pub nice: i8,
    /// Scheduling policy at start.
    pub policy: Policy,
    /// CPUs it may run on at start, by the operating system's numbers; `None`: all.
    pub affinity: Option<Vec<u32>>,
    /// How long after its creation it starts to run its program.
    pub delay_ns: u64,
    /// Bytes that it touches again and again: what a cache has to refill after a migration.
    pub footprint_bytes: u64,
    /// What it does.
    pub program: Program,
    /// A class for reports ("sender", "worker", ...): counters can be kept apart by it.
    pub class: String,
}

/// Scheduling policy of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
pub enum Policy {
    /// SCHED_OTHER.
    #[default]
    Normal,
    /// SCHED_BATCH.
    Batch,
    /// SCHED_IDLE.
    Idle,
}

/// A piece of memory that is always used alike: the unit of access, caching and placement.
///
/// An array of which each thread has its part is a region for each part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Region {
    /// Size, above 0.
    pub bytes: u64,
    /// Who uses it.
    pub sharing: Sharing,
    /// Where its pages go when they are first touched.
    pub placement: Placement,
}

/// Who uses a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Sharing {
    /// Each task that uses it has one of its own, freed when the task exits.
    Thread,
    /// Tasks of this process ([`Workload::processes`]).
    Process(u32),
    /// Tasks of any process.
    Processes,
}

/// A memory policy (`set_mempolicy(2)`), with nodes by the operating system's numbers. When a node
/// is full, pages go to the next nearest, with [`Placement::Bind`] among those it names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Placement {
    /// The node of the CPU that touches the page first.
    FirstTouch,
    /// Only these nodes, the nearest to the CPU that touches the page first.
    Bind(Vec<u32>),
    /// These nodes in turn.
    Interleave(Vec<u32>),
    /// These nodes in turn, after which the policy is the default again: NUMA balancing may move
    /// them, as if threads had touched them there first.
    Spread(Vec<u32>),
    /// This node.
    Preferred(u32),
}

/// One sweep of a task over memory: every byte of its slices once, all slices at the same pace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Access {
    /// What is passed over; at least one region.
    pub slices: Vec<Slice>,
    /// In which order.
    pub pattern: Pattern,
    /// Time that the instructions of a stream take on a core of their own while they wait for nothing, ns.
    /// It overlaps with the transfers, so the sweep takes at least as long (the T_OL of the ECM model).
    pub core_ns: u64,
    /// The task has bound itself to nodes for the time (`set_mempolicy(MPOL_BIND)`): NUMA balancing moves
    /// nothing for it. Where pages are placed is the regions' matter.
    pub bound: bool,
}

impl Access {
    /// A sweep under the default policy, whose instructions never take longer than its transfers.
    pub fn new(slices: Vec<Slice>, pattern: Pattern) -> Self {
        Self { slices, pattern, core_ns: 0, bound: false }
    }
}

/// A region's part in an [`Access`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Slice {
    /// Index into [`Workload::regions`].
    pub region: u32,
    /// Whether it is written: then each line is fetched (write-allocate) and later written back.
    pub write: bool,
}

/// In which order memory is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Pattern {
    /// One line after the other, prefetched: bound by bandwidth.
    Stream,
    /// Each load needs the one before (a linked list): bound by latency.
    Chase,
}

/// A flat program. Execution starts at 0 and the task exits after the last operation.
#[derive(Clone, Debug, PartialEq, Default, Serialize)]
pub struct Program {
    /// The operations.
    pub ops: Vec<Op>,
    /// How deeply loops nest: number of loop counters a task needs.
    pub loop_depth: u8,
    /// Number of timers that are this task's own.
    pub own_timers: u32,
    /// CPU lists (operating-system numbers; `None`: all) that [`Op::SetAffinity`] names.
    pub affinities: Vec<Option<Vec<u32>>>,
    /// Sweeps over memory that [`Op::Access`] names.
    pub accesses: Vec<Access>,
}

/// One operation of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Op {
    /// Compute for `ns` at full speed.
    Run {
        /// Work in nanoseconds at full speed.
        ns: u64,
    },
    /// Burn CPU until `ns` of wall time have passed since the operation began.
    Runtime {
        /// Wall time.
        ns: u64,
    },
    /// Sleep for a time.
    Sleep {
        /// Wall time.
        ns: u64,
    },
    /// Sleep until a time of the run; no sleep if that is over.
    SleepUntil {
        /// Since the run began.
        ns: u64,
    },
    /// Sleep until the timer's next period.
    Timer {
        /// Which timer.
        timer: TimerRef,
        /// Its period.
        period_ns: u64,
        /// rt-app's "mode": "absolute" keeps to multiples of the period from the first use even
        /// when they are missed; relative re-bases on now after a missed period.
        absolute: bool,
    },
    /// Acquire a mutex, sleeping if it is held.
    Lock(u32),
    /// Release it.
    Unlock(u32),
    /// Release the mutex, wait for the condition, take the mutex again.
    Wait {
        /// Condition variable.
        condition: u32,
        /// Mutex, held by the task.
        mutex: u32,
    },
    /// Wake one waiter of a condition.
    Signal(u32),
    /// Wake all waiters.
    Broadcast(u32),
    /// Wait until all parties of a barrier have come, asleep.
    Barrier(u32),
    /// rt-app's barrier, a condition variable below: the last to come wakes all others, each of
    /// which takes the mutex again before it goes on.
    Meet {
        /// Barrier.
        barrier: u32,
        /// Mutex, held by the task.
        mutex: u32,
    },
    /// rt-app's common start, a task's first operation: wait until every task that starts with the
    /// run has come, then sleep until `delay_ns` after the first of them came. From then the first
    /// periods of timers count, however late the task is. A task that is forked later waits for
    /// nobody.
    Start {
        /// rt-app's "delay".
        delay_ns: u64,
    },
    /// The same, but spin on the CPU for up to `spin_ns` before falling asleep.
    SpinBarrier {
        /// Barrier.
        barrier: u32,
        /// Wall time.
        spin_ns: u64,
    },
    /// Create a task.
    Fork(TemplateId),
    /// sched_yield.
    Yield,
    /// Change the own nice value.
    SetNice(i8),
    /// Change the own policy.
    SetPolicy(Policy),
    /// Ask for slices of `ns` (`sched_runtime` of `sched_setattr(2)` with SCHED_OTHER or SCHED_BATCH, since
    /// Linux 6.12). A task that is forked asks for its parent's.
    SetSlice {
        /// Time on the CPU, above 0.
        ns: u64,
    },
    /// Move oneself to another task group; `None`: to the root group.
    SetGroup(Option<GroupId>),
    /// Change the own affinity: index into [`Program::affinities`].
    SetAffinity(u32),
    /// Write to a channel; blocks while it is full.
    Send {
        /// Channel.
        channel: u32,
        /// Bytes.
        bytes: u32,
    },
    /// Read from a channel; blocks while it is empty.
    Receive {
        /// Channel.
        channel: u32,
        /// At most this many bytes; returns what is there, at least one message.
        bytes: u32,
    },
    /// Add to an event counter.
    Count {
        /// Counter.
        counter: u32,
        /// By how much.
        by: u64,
    },
    /// Jump back to `to` until the body has run `times` times (0: for ever).
    Loop {
        /// Which of the task's loop counters.
        depth: u8,
        /// Number of runs of the body in all; 0 for ever.
        times: u64,
        /// First operation of the body.
        to: u32,
    },
    /// Wait until the governor of the machine samples the task's CPU: what threads do that the engine adds to a workload.
    AwaitSample,
    /// Sweep over memory: index into [`Program::accesses`].
    Access(u32),
    /// Start a stopwatch.
    StartWatch(u32),
    /// Stop it: the shortest time between start and stop is kept.
    StopWatch(u32),
}

/// A timer of a task's own or one shared by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum TimerRef {
    /// The task's own timer of that number.
    Own(u32),
    /// A shared timer of that number.
    Shared(u32),
}

/// A pipe or socket: a bounded queue of bytes in messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Channel {
    /// How many bytes it holds before writers block. At least the largest single write.
    pub capacity_bytes: u32,
    /// Whether a write's wakeup of a reader carries the sync hint (the writer is about to sleep).
    pub sync_wakeup: bool,
    /// Whether reads keep messages apart (one read takes at most one message).
    pub messages: bool,
}

/// A quantity to report at the end of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Metric {
    /// Name, as the real benchmark's output or its users' tables call it.
    pub name: String,
    /// Unit as printed.
    pub unit: &'static str,
    /// Which direction is better.
    pub better: Better,
    /// How it is computed.
    pub kind: MetricKind,
}

/// Which direction of a metric is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
}

/// How a metric is computed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum MetricKind {
    /// Seconds from the start of the run until the last task has exited.
    WallSeconds,
    /// Seconds from the moment at which all parties of a barrier had come for the first time until the last task
    /// has exited.
    SecondsSince {
        /// Barrier.
        barrier: u32,
    },
    /// Event counter divided by elapsed seconds, times `scale`.
    Rate {
        /// Counter.
        counter: u32,
        /// Factor (e.g. 1e-6 for MB).
        scale: f64,
    },
    /// An amount divided by the shortest time that a stopwatch measured, in s.
    BestRate {
        /// Stopwatch.
        watch: u32,
        /// The amount.
        amount: f64,
    },
    /// Percentile of wakeup latency (from being woken until running) of one class of tasks, in us.
    WakeupLatencyUs {
        /// [`Template::class`].
        class: String,
        /// The percentile, in thousandths of a percent: 99900 is p99.9.
        percentile_milli: u32,
    },
    /// Mean wakeup latency of one class of tasks, in us.
    MeanWakeupLatencyUs {
        /// [`Template::class`].
        class: String,
    },
}
