//! Workloads: tasks as small programs over shared objects, and the metrics to measure.
//!
//! A workload is created from an rt-app JSON file ([`rtapp`]), or from a benchmark's name and parameters
//! ([`benchmark`]). Either way the result is a [`Workload`]: templates of tasks, each with a flat [`Program`], which
//! the engine interprets. All times are ns at the full speed of one CPU.

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

/// A complete workload. Serialisation includes only what runs, not the workload's name or duration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Workload {
    /// The name that the user gave: `hackbench:groups=8`, or the file.
    #[serde(skip)]
    pub name: String,
    /// All kinds of tasks. Templates in `start` begin with the run. Others begin when an [`Op::Fork`] names them.
    pub templates: Vec<Template>,
    /// The tasks that the root task starts, in order: template and number of instances. The root task (the benchmark's
    /// `main`) is implicit: it forks each instance and then waits.
    pub start: Vec<(TemplateId, u32)>,
    /// Processes; `Template::process` indexes this.
    pub processes: Vec<Process>,
    /// The process that the root task belongs to as its first thread. `None`: a process of its own.
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
    /// Barriers: the number of tasks that each waits for.
    pub barriers: Vec<u32>,
    /// Pipes and sockets.
    pub channels: Vec<Channel>,
    /// Number of periodic timers that tasks share by name (rt-app's non-"unique" timers).
    pub shared_timers: u32,
    /// Number of event counters that [`Op::Count`] increments.
    pub counters: u32,
    /// Number of stopwatches that [`Op::StartWatch`] starts.
    pub watches: u32,
    /// Time at which the run ends even if tasks remain. `None`: the run ends when all tasks have exited.
    #[serde(skip)]
    pub duration_ns: Option<u64>,
    /// Time from the start of the run at which measuring begins, in ns. Before that, the workload warms up. A run that
    /// ends earlier is measured as a whole.
    #[serde(skip)]
    pub measured_from_ns: u64,
    /// Whether each rate is that of one kind of tasks, as in rt-app's files. Such a rate may be 0, because the file may
    /// let tasks wait for long. A benchmark has measured something once none of its rates is 0.
    #[serde(skip)]
    pub rates_of_tasks: bool,
    /// The metrics to report.
    pub metrics: Vec<Metric>,
}

/// Index into [`Workload::templates`].
pub type TemplateId = u32;

/// A process: threads that share an address space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Process {
    /// Name as `ps` would show it.
    pub name: String,
    /// Whether it started as a copy of a running process (fork), not as a program of its own (exec).
    pub forked: bool,
    /// Whether its tasks are threads of the kernel (PF_KTHREAD).
    #[serde(skip)]
    pub kernel: bool,
}

/// Index into [`Workload::groups`].
pub type GroupId = u32;

/// Default `cpu.weight` of a cgroup. It equals the weight of a task with nice 0 (the kernel's
/// Documentation/admin-guide/cgroup-v2.rst).
pub const DEFAULT_GROUP_WEIGHT: u32 = 100;

/// Allowed values of `cpu.weight` (same source).
pub const GROUP_WEIGHTS: std::ops::RangeInclusive<u32> = 1..=10_000;

/// A task group: a cgroup of version 2 with the cpu controller enabled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    /// Its path below the mount point, from `/`.
    pub path: String,
    /// The group that contains it. `None`: the root group.
    pub parent: Option<GroupId>,
    /// Its `cpu.weight`, within [`GROUP_WEIGHTS`]: its share of CPU time relative to its siblings.
    pub weight: u32,
}

/// A kind of task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Template {
    /// Name of its tasks.
    pub name: String,
    /// Index into [`Workload::processes`].
    pub process: u32,
    /// The task group of each thread. `None`: the group of the task that forks it; for a task that starts with the run,
    /// the root group.
    pub group: Option<GroupId>,
    /// Nice value at start.
    pub nice: i8,
    /// Scheduling policy at start.
    pub policy: Policy,
    /// CPUs that it may use at start, with the operating system's numbers. `None`: all CPUs.
    pub affinity: Option<Vec<u32>>,
    /// Time between its creation and the start of its program.
    pub delay_ns: u64,
    /// Bytes that it touches repeatedly. A cache has to refill them after a migration.
    pub footprint_bytes: u64,
    /// The program that it executes.
    pub program: Program,
    /// A class for reports ("sender", "worker", ...). Counters can be grouped by it.
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

/// A piece of memory that is always used in the same way. It is the unit of access, caching and placement.
///
/// If each thread has its own part of an array, each part is a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Region {
    /// Size, above 0.
    pub bytes: u64,
    /// The tasks that use it.
    pub sharing: Sharing,
    /// Where its pages are placed when they are first touched.
    pub placement: Placement,
}

/// The users of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Sharing {
    /// Each task that uses the region has one of its own, which is freed when the task exits.
    Thread,
    /// Tasks of this process ([`Workload::processes`]).
    Process(u32),
    /// Tasks of any process.
    Processes,
}

/// A memory policy (`set_mempolicy(2)`). Nodes have the operating system's numbers. When a node is full, pages go to
/// the next nearest node; with [`Placement::Bind`], only to nodes that it names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Placement {
    /// The node of the CPU that touches the page first.
    FirstTouch,
    /// Only these nodes. The one nearest to the CPU that touches the page first is preferred.
    Bind(Vec<u32>),
    /// These nodes in turn.
    Interleave(Vec<u32>),
    /// These nodes in turn. After that, the policy is the default again: NUMA balancing may move the pages, as if
    /// threads had touched them there first.
    Spread(Vec<u32>),
    /// This node.
    Preferred(u32),
}

/// One sweep of a task over memory. Every byte of its slices is accessed once, and all slices advance at the same pace
/// (except for [`Pattern::RandomBlocks`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Access {
    /// The memory that is swept; at least one region.
    pub slices: Vec<Slice>,
    /// The order of the accesses.
    pub pattern: Pattern,
    /// Time that the instructions of a stream need on an otherwise idle core when they wait for nothing, in ns. It
    /// overlaps with the transfers, so the sweep takes at least this long (the T_OL of the ECM model).
    pub core_ns: u64,
    /// Whether the task has bound itself to nodes for this time (`set_mempolicy(MPOL_BIND)`). NUMA balancing then moves
    /// nothing for it. Where pages are placed depends on the regions.
    pub bound: bool,
}

impl Access {
    /// A sweep under the default policy whose instructions never take longer than its transfers.
    pub fn new(slices: Vec<Slice>, pattern: Pattern) -> Self {
        Self { slices, pattern, core_ns: 0, bound: false }
    }
}

/// A region as part of an [`Access`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Slice {
    /// Index into [`Workload::regions`].
    pub region: u32,
    /// Whether it is written. Each line is then fetched (write-allocate) and written back later.
    pub write: bool,
}

/// The order in which memory is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Pattern {
    /// One line after the other, with prefetching. Bandwidth is the limit.
    Stream,
    /// Each load needs the result of the one before (a linked list). Latency is the limit.
    Chase,
    /// Blocks of 8 KiB at random places, each as in [`Pattern::Stream`], until as many bytes have been accessed as the
    /// slices have. So some bytes are accessed several times, and others not at all.
    RandomBlocks,
}

/// A flat program. Execution starts at 0 and the task exits after the last operation.
#[derive(Clone, Debug, PartialEq, Default, Serialize)]
pub struct Program {
    /// The operations.
    pub ops: Vec<Op>,
    /// How deeply loops nest: the number of loop counters that a task needs.
    pub loop_depth: u8,
    /// Number of timers that only this task uses.
    pub own_timers: u32,
    /// What [`Op::SetAffinity`] and [`Op::SetAffinityOf`] name; `None`: all CPUs.
    pub affinities: Vec<Option<Cpus>>,
    /// Sweeps over memory that [`Op::Access`] names.
    pub accesses: Vec<Access>,
}

/// CPUs for [`Program::affinities`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Cpus {
    /// These CPUs, with the operating system's numbers.
    List(Vec<u32>),
    /// All CPUs of the node of this CPU.
    NodeOf(u32),
}

impl Cpus {
    /// The CPUs, if they are listed.
    pub fn list(&self) -> Option<&Vec<u32>> {
        match self {
            Self::List(list) => Some(list),
            Self::NodeOf(_) => None,
        }
    }
}

/// One operation of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Op {
    /// Compute for `ns` at full speed.
    Run {
        /// Work in nanoseconds at full speed.
        ns: u64,
    },
    /// Use CPU time until `ns` of wall time have passed since the operation began.
    Runtime {
        /// Wall time.
        ns: u64,
    },
    /// Sleep for a time.
    Sleep {
        /// Wall time.
        ns: u64,
    },
    /// Sleep until a time of the run. Do not sleep if that time is over.
    SleepUntil {
        /// Time since the run began.
        ns: u64,
    },
    /// Sleep until the timer's next period.
    Timer {
        /// The timer.
        timer: TimerRef,
        /// Its period.
        period_ns: u64,
        /// rt-app's "mode". "absolute" keeps to multiples of the period from the first use, even after missed periods.
        /// Relative counts from now after a missed period.
        absolute: bool,
    },
    /// Acquire a mutex, sleeping if it is held; for that of a pipe, spin first while its owner runs.
    Lock(u32),
    /// Release a mutex.
    Unlock(u32),
    /// Release the mutex, wait for the condition, and acquire the mutex again.
    Wait {
        /// Condition variable.
        condition: u32,
        /// The mutex, which the task holds.
        mutex: u32,
    },
    /// Wake one waiter of a condition.
    Signal(u32),
    /// Wake all waiters of a condition.
    Broadcast(u32),
    /// Sleep until all parties of a barrier have come.
    Barrier(u32),
    /// rt-app's barrier, which is implemented by a condition variable. The last task to come wakes all others. Each of
    /// these acquires the mutex again before it continues.
    Meet {
        /// Barrier.
        barrier: u32,
        /// The mutex, which the task holds.
        mutex: u32,
    },
    /// rt-app's common start, the first operation of a task. It waits until every task that starts with the run has
    /// come, then sleeps until `delay_ns` after the first of them came. The first periods of timers count from that
    /// time, even if the task is late. A task that is forked later waits for no other task.
    Start {
        /// rt-app's "delay".
        delay_ns: u64,
    },
    /// Wait until all parties of a barrier have come, but spin on the CPU for up to `spin_ns` before sleeping.
    SpinBarrier {
        /// Barrier.
        barrier: u32,
        /// Wall time for which it spins.
        spin_ns: u64,
    },
    /// Create a task.
    Fork(TemplateId),
    /// sched_yield.
    Yield,
    /// Change the task's nice value.
    SetNice(i8),
    /// Change the task's policy.
    SetPolicy(Policy),
    /// Ask for slices of `ns` (`sched_runtime` of `sched_setattr(2)` with SCHED_OTHER or SCHED_BATCH, since Linux
    /// 6.12). A forked task asks for the same slice as its parent.
    SetSlice {
        /// Time on the CPU, above 0.
        ns: u64,
    },
    /// Move the task to another task group. `None`: to the root group.
    SetGroup(Option<GroupId>),
    /// Change the task's affinity: index into [`Program::affinities`].
    SetAffinity(u32),
    /// Change the affinity of all other tasks of a template, in whatever state they are (`sched_setaffinity(2)` for
    /// each of them). Block until none of them runs on a CPU where it no longer may.
    SetAffinityOf {
        /// The template.
        template: TemplateId,
        /// Index into the [`Program::affinities`] of the task that executes this.
        set: u32,
    },
    /// Move all other tasks of a template to another task group, in whatever state they are. `None`: to the root group.
    SetGroupOf {
        /// The template.
        template: TemplateId,
        /// The task group.
        group: Option<GroupId>,
    },
    /// Write to a channel. Block while the channel is full.
    Send {
        /// Channel.
        channel: u32,
        /// Bytes.
        bytes: u32,
    },
    /// Read from a channel. Block while the channel is empty.
    Receive {
        /// Channel.
        channel: u32,
        /// Largest number of bytes to read. Returns what is there, at least one message; from a pipe, this number.
        bytes: u32,
    },
    /// Add to an event counter.
    Count {
        /// Counter.
        counter: u32,
        /// The amount to add.
        by: u64,
    },
    /// Jump back to `to` until the body has run `times` times (0: for ever).
    Loop {
        /// The loop counter to use.
        depth: u8,
        /// Total number of runs of the body. 0: for ever.
        times: u64,
        /// First operation of the body.
        to: u32,
    },
    /// Wait until the deferrable timer of a CPU's worker expires. Threads that the engine adds to a workload use this.
    AwaitWork,
    /// Do what is due in the scheduler's own program, and sleep until more is due. A thread that the engine adds for a
    /// scheduler uses this.
    OwnTurn,
    /// Sweep over memory: index into [`Program::accesses`].
    Access(u32),
    /// Start a stopwatch.
    StartWatch(u32),
    /// Stop a stopwatch. The shortest time between start and stop is kept.
    StopWatch(u32),
}

/// A timer of the task's own, or one that tasks share by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum TimerRef {
    /// The task's own timer with this number.
    Own(u32),
    /// The shared timer with this number.
    Shared(u32),
}

/// A pipe or socket: a bounded queue of bytes in messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Channel {
    /// What it holds before writers block. At least the size of the largest write.
    pub capacity_bytes: u32,
    /// Whether the wakeup of a reader carries the sync hint (the writer is about to sleep).
    pub sync_wakeup: bool,
    /// The rules for reads, writes, and who is woken.
    pub kind: ChannelKind,
    /// On loopback: the end of what the sender computes for a message that the kernel does in a softirq, ns at full
    /// speed. That is the receiving half of the protocol. The wakeup of the reader follows in the same softirq. 0 for
    /// channels that use no softirq.
    pub softirq_ns: u64,
}

/// When a channel is full, and whom a read or write wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ChannelKind {
    /// A stream: a read takes what is there. Each read wakes a writer, each write a reader.
    Stream,
    /// Reads keep messages apart, so that one read takes at most one message.
    Messages,
    /// A pipe (`fs/pipe.c` of Linux): a ring of pages. Who reads or writes holds the pipe's mutex, from [`Op::Lock`] to
    /// [`Op::Unlock`], and spins to get it. A read or write that has to wait releases the mutex meanwhile. Only a read
    /// that frees a page of a full ring wakes a writer, and only a write to an empty ring wakes a reader.
    Pipe {
        /// The mutex, which no other channel uses.
        mutex: u32,
    },
    /// A stream socket of the Unix domain (`net/unix/af_unix.c` of Linux): messages fill the capacity with
    /// [`costs::unix_message_bytes`] each. All waiting writers go on when at most a quarter of it is in use.
    Unix,
}

/// A quantity to report at the end of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Metric {
    /// The name that the real benchmark's output, or its users' tables, use.
    pub name: String,
    /// Unit as printed.
    pub unit: &'static str,
    /// Which direction is better.
    pub better: Better,
    /// How the metric is computed.
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
    /// Seconds from the time when all parties of a barrier had come for the first time until the last task has exited.
    SecondsSince {
        /// Barrier.
        barrier: u32,
    },
    /// Event counter divided by elapsed seconds, times `scale`.
    Rate {
        /// Counter.
        counter: u32,
        /// Time counts from the moment when all parties of this barrier had come for the first time. `None`: from the
        /// start of the measured part. For a run that is measured from its start.
        since: Option<u32>,
        /// Factor (e.g. 1e-6 for MB).
        scale: f64,
    },
    /// An amount divided by the shortest time of a stopwatch, in seconds.
    BestRate {
        /// Stopwatch.
        watch: u32,
        /// The amount.
        amount: f64,
    },
    /// Percentile of wakeup latency (from wakeup to running) of one class of tasks, in us.
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
