//! The state of the fair class, which all modules share.

use std::mem::offset_of;

use roost_engine::{CpuId, TaskId, Time};

use crate::balance::{Balancer, Search};
use crate::cache::{CacheAware, CacheRq};
use crate::cgroup::Cgroups;
use crate::clock::TaskClock;
use crate::domain::Topology;
use crate::eras::Load;
use crate::features::Features;
use crate::mechanisms::Mechanisms;
use crate::numa::{Numa, NumaPush};
use crate::older::Power;
use crate::older::decayed::DecayedLoads;
use crate::pelt::{Avg, LoadAvg, Removed};
use crate::queue::{Entity, Queue};
use crate::start::Start;
use crate::stats::Stats;
use crate::wakeup::WakeeFlips;

/// The kernel's fair scheduling class on one machine.
pub struct Fair {
    /// Version and switches.
    pub(crate) features: Features,
    /// The tick's period, ns.
    pub(crate) tick_ns: u64,
    /// Scheduling domains and groups: fixed during a run.
    pub(crate) topology: Topology,
    /// One run queue per CPU.
    pub(crate) rqs: Vec<Rq>,
    /// One entry per task number.
    pub(crate) tasks: Vec<FairTask>,
    /// What the CPUs of an LLC share, by LLC number (`sd_llc_shared`).
    pub(crate) llcs: Vec<LlcShared>,
    /// Tickless idle balancing.
    pub(crate) nohz: Nohz,
    /// CPUs with SCHED_IDLE tasks and no others.
    pub(crate) sched_idle_cpus: roost_machine::CpuSet,
    /// Whether some CPU has had more than one task since the last statistics pass of the root domain
    /// (`rd->overload`).
    pub(crate) root_overloaded: bool,
    /// What the machine did before the run.
    pub(crate) start: Start,
    /// Jiffies since boot when the run began.
    pub(crate) jiffies_before: u64,
    /// State of balancing beside the domains: flags of groups, the lock of NUMA levels, buffers.
    pub(crate) balance: Balancer,
    /// Cache-aware scheduling: the processes and the LLCs they prefer.
    pub(crate) cache: CacheAware,
    /// Task groups with weights.
    pub(crate) cgroups: Cgroups,
    /// Scale of loads in 5.2 and 3.9: fixed during a run.
    pub(crate) power: Power,
    /// Automatic NUMA balancing.
    pub(crate) numa: Numa,
    /// State of the mechanisms.
    pub(crate) mechanisms: Mechanisms,
    /// Counters of `/proc/schedstat` and of the idle search.
    pub(crate) stats: Stats,
}

/// Cache lines of another CPU's run queue that are fetched to see whether it is idle or how loaded
/// it is. The idle test reads `rq->curr`, `rq->nr_running` and, if the CPU is not idle,
/// `rq->cfs.idle_h_nr_running` (`idle_cpu()`, `sched_idle_cpu()`). Group statistics read
/// `rq->nr_running`, `rq->cfs.h_nr_running` and `rq->cfs.avg` (`update_sg_lb_stats()`). In both
/// cases these are three lines of `struct rq`, which its own CPU writes at every switch.
pub(crate) const LINES_PER_QUEUE: u64 = 3;

/// One CPU's run queue.
///
/// Fields are in the order of use: what balancing reads of other CPUs' queues is in the first cache
/// line.
#[repr(C, align(64))]
pub(crate) struct Rq {
    /// Tasks on the queue, the current and the delayed ones included.
    pub nr_running: u32,
    /// Tasks on the queue without those whose dequeue is delayed (h_nr_runnable).
    pub nr_runnable: u32,
    /// Sum of the queued tasks' util_est.
    pub util_est: u64,
    /// PELT of the whole queue (`cfs_rq->avg`), blocked load included.
    pub avg: Avg,
    /// Sum of the weights of the tasks counted in `nr_running`.
    pub load_weight: u64,
    /// The running task, if it is still on the queue.
    pub current: Option<TaskId>,
    /// Averages that tasks left here when they woke elsewhere, until the next update of `avg`
    /// (`cfs_rq->removed`).
    pub removed: Removed,
    /// SCHED_IDLE tasks on the queue.
    pub nr_sched_idle: u32,
    /// The CPU is in the nohz mask: set when its tick stops, cleared at the first busy tick.
    pub tickless: bool,
    /// The CPU does not count among the busy CPUs of its LLC (`sd->nohz_idle`).
    pub counted_idle: bool,
    /// What a pending kick asks for.
    pub nohz_kick: Option<NohzKick>,
    /// When the CPU went idle (`idle_stamp`). `None` while it is busy, or idle with a wakeup that
    /// was already pending.
    pub idle_since: Option<u64>,
    /// Tasks on the queue, the current one included: their virtual times, and the list from which
    /// balancing takes them.
    pub queue: Queue,
    /// Newly-idle balancing is under way.
    pub search: Option<Search>,
    /// NUMA balancing swaps a task to this CPU, and it has not arrived: the CPU does not pull
    /// another one.
    pub awaits_swap: bool,
    /// Cache-aware scheduling: run time, and tasks by the LLC they prefer.
    pub cache: CacheRq,
    /// Node of the CPU.
    pub node: u16,
    /// Tasks on the queue that prefer some node.
    pub nr_numa_running: u32,
    /// Tasks on the queue that prefer the node of this CPU.
    pub nr_preferred_running: u32,
    /// Average idle period in ns (`avg_idle`).
    pub avg_idle: u64,
    /// Idle time left for wakeup scans, ns (SIS_PROP, 5.15 and later).
    pub wake_avg_idle: u64,
    /// Jiffy of the last decay of `wake_avg_idle`.
    pub wake_stamp: u64,
    /// `max_idle_balance_cost` in ns.
    pub max_idle_balance_cost: u64,
    /// Jiffy at which the next periodic balance is due.
    pub next_balance: u64,
    /// Per domain of this CPU, bottom up: parallel to `topology.domains_of(cpu)`.
    pub domains: Vec<DomainState>,
    /// An active balance is pending here.
    pub push: Option<Push>,
    /// Jiffy when the blocked load of this CPU was last refreshed.
    pub blocked_update: u64,
    /// wake_wide: the wakees of this CPU's idle task. The idle task counts as the waker of
    /// interrupts while the CPU is idle.
    pub idle_wakees: WakeeFlips,
    /// 5.2: load average of the queued tasks, without sleepers (`runnable_load_avg`).
    pub runnable_load: Option<LoadAvg>,
    /// NUMA balancing is moving a task here, or swapping it with the current task
    /// (`numa_migrate_on`).
    pub numa_migrate_on: bool,
    /// NUMA balancing asked the stopper to move a task away.
    pub numa_push: Option<NumaPush>,
    /// 3.9: load averages.
    pub decayed: DecayedLoads,
    /// What interrupts left of the CPU at the last update, of 1024 (`cpu_capacity`).
    pub capacity: u64,
    /// The task clock, and the average of interrupts.
    pub clock: TaskClock,
    /// How far `avg` may differ from the sum of its tasks' averages, for the audit.
    #[cfg(debug_assertions)]
    pub ledger: crate::audit::Ledger,
}

const _: () = assert!(size_of::<Rq>() <= 960, "15 cache lines");
const _: () = assert!(
    offset_of!(Rq, avg) + offset_of!(Avg, period_contrib) <= 64,
    "counts and averages are in the first line"
);

/// An active balance that the stopper of a run queue has to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Push {
    /// The CPU that gets the task.
    pub cpu: CpuId,
    /// Index into the domains of that CPU.
    pub level: usize,
    /// Move only a task that prefers that CPU's LLC (LBF_ACTIVE_LB_LLC).
    pub for_llc: bool,
}

/// What a nohz kick asks for: at least one of these (NOHZ_KICK_MASK).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NohzKick {
    /// Balance for every idle CPU that is due (NOHZ_BALANCE_KICK).
    pub balance: bool,
    /// Refresh blocked load (NOHZ_STATS_KICK). Set together with `balance`.
    pub stats: bool,
    /// Find out when the next idle CPU is due (NOHZ_NEXT_KICK). The other two kinds do this too.
    pub next: bool,
}

/// The changing state of one scheduling domain, for one CPU.
#[derive(Clone, Debug, Default)]
pub(crate) struct DomainState {
    /// Jiffy of the last periodic balance.
    pub last_balance: u64,
    /// Current interval in ms.
    pub balance_interval: u32,
    /// Failed balances in a row (`nr_balance_failed`).
    pub nr_balance_failed: u32,
    /// Highest cost of a newly-idle balance, ns, decaying.
    pub max_newidle_lb_cost: u64,
    /// Jiffy of the last decay of that cost.
    pub last_decay: u64,
    /// NI_RANDOM: how often newly-idle balancing succeeded, of 1024.
    pub newidle_ratio: u32,
    /// Newly-idle calls in the current window.
    pub newidle_call: u32,
    /// Successful ones.
    pub newidle_success: u32,
    /// Start of the window, ns.
    pub newidle_stamp: u64,
    /// SIS_PROP, LLC domain only: average time of this CPU's scans for an idle CPU, ns.
    pub avg_scan_cost: u64,
}

/// What the CPUs of an LLC share.
#[derive(Clone, Debug, Default)]
pub(crate) struct LlcShared {
    /// Some core may be idle as a whole. Read it through [`LlcShared::has_idle_cores`].
    pub idle_cores: bool,
    /// When searches now under way, which will find no idle core, clear the flag. Earliest first.
    pub idle_cores_cleared_at: Vec<Time>,
    /// CPUs whose tick runs.
    pub nr_busy_cpus: u32,
    /// SIS_UTIL: how many CPUs a wakeup may scan.
    pub nr_idle_scan: u32,
    /// Cache-aware scheduling: sum of the CPUs' `cpu_util` (`util_avg`), from the last pass above
    /// the LLC that was not newly idle.
    pub util: u64,
    /// Capacity of the LLC at that pass; 0 before the first pass.
    pub capacity: u64,
    /// CPU that last wrote this shared line. Another CPU pays a line transfer to read it.
    pub last_writer: CpuId,
}

/// Tickless idle balancing (`struct nohz`).
pub(crate) struct Nohz {
    /// CPUs whose tick is stopped.
    pub idle_cpus: roost_machine::CpuSet,
    /// Jiffy before which no CPU is kicked.
    pub next_balance: u64,
    /// Some tickless CPU has blocked load.
    pub has_blocked: bool,
    /// Jiffy of the next refresh of blocked load.
    pub next_blocked: u64,
    /// A CPU has stopped its tick since `next_balance` was last computed (`needs_update`).
    pub needs_update: bool,
}

/// Per-task state of the fair class. A wakeup on a queue and a switch use only the first two cache
/// lines.
#[derive(Clone, Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct FairTask {
    /// PELT of the task.
    pub avg: Avg,
    /// util_est: the EWMA. In 5.2 the larger of the EWMA and the utilisation when the task last
    /// slept.
    pub util_est: u64,
    /// When the task last began to run or was last accounted (`exec_start`), ns; 0 after a
    /// migration.
    pub exec_start: u64,
    /// Total run time, ns.
    pub sum_exec: u64,
    /// `sum_exec` when the task was last picked.
    pub prev_sum_exec: u64,
    /// What the task adds to load. In the root group this is its own weight. In a task group it is
    /// the task's share of the group's weight.
    pub weight: u64,
    /// Cache-aware scheduling: the LLC the task prefers, copied from its process when last
    /// accounted.
    pub preferred_llc: Option<u32>,
    /// NUMA balancing: the node the task prefers (`numa_preferred_nid`).
    pub preferred_node: Option<u16>,
    /// Cache-aware scheduling: the number of the task's process.
    pub process: u32,
    /// Whether the averages changed since util_est was last updated (no UTIL_AVG_UNCHANGED).
    pub util_changed: bool,
    /// The task is on a queue, or its dequeue is delayed.
    pub on_rq: bool,
    /// The task sleeps but is still in the tree: its dequeue is delayed.
    pub delayed: bool,
    /// The task is the current one of its CPU.
    pub running: bool,
    /// Its averages are attached to the queue of `world.task_cpu()` (as blocked load when asleep).
    pub attached: bool,
    /// The task scans the LLCs when it next returns to user mode.
    pub cache_work: bool,
    /// Virtual time state. Its weight has fraction bits in a run with task groups.
    pub entity: Entity,
    /// wake_wide: how often the task changed its wakee.
    pub wakees: WakeeFlips,
    /// A recently used CPU (`recent_used_cpu`).
    pub recent_used_cpu: CpuId,
    /// 5.2: the EWMA from which `util_est` is computed.
    pub util_ewma: u64,
    /// The weight of its nice value or policy, in a run with task groups.
    pub own_weight: u64,
    /// Its task group; `None` for the root group.
    pub group: Option<usize>,
}

const _: () = assert!(size_of::<FairTask>() <= 256, "four cache lines");
const _: () = assert!(offset_of!(FairTask, entity) <= 128, "what precedes it fits two lines");

impl LlcShared {
    /// Whether some core may be idle as a whole (`has_idle_cores`).
    ///
    /// A search that finds no idle core clears the flag when it ends, not when it begins. Until
    /// then other searches still look for an idle core, without a budget.
    #[inline]
    pub(crate) fn has_idle_cores(&mut self, now: Time) -> bool {
        let due = self.idle_cores_cleared_at.partition_point(|&at| at <= now);
        if due > 0 {
            self.idle_cores_cleared_at.drain(..due);
            self.idle_cores = false;
        }
        self.idle_cores
    }

    /// A search found no idle core; it ends at `at`.
    pub(crate) fn clear_idle_cores(&mut self, at: Time) {
        let place = self.idle_cores_cleared_at.partition_point(|&other| other <= at);
        self.idle_cores_cleared_at.insert(place, at);
    }
}

impl Fair {
    /// jiffies: ticks since boot. The scheduling domains were built at boot.
    #[inline]
    pub(crate) fn jiffies(&self, now: Time) -> u64 {
        self.jiffies_before + now.ns() / self.tick_ns
    }

    /// The load of a CPU (`weighted_cpuload()`, `cpu_load()`), in this version's measure.
    #[inline]
    pub(crate) fn cpu_load(&self, cpu: CpuId) -> u64 {
        let rq = &self.rqs[cpu];
        match self.features.averages.load {
            Load::Weight => rq.load_weight,
            Load::QueuedAverage => rq.runnable_load.as_ref().map_or(0, |avg| avg.load_avg),
            Load::Average => rq.avg.load_avg,
        }
    }

    /// What a task adds to the load of its CPU (`task_h_load()`), in this version's measure.
    #[inline]
    pub(crate) fn task_load(&self, task: TaskId) -> u64 {
        let state = &self.tasks[task.index()];
        match self.features.averages.load {
            Load::Weight => state.weight,
            Load::QueuedAverage | Load::Average => state.avg.load_avg,
        }
    }

    /// The kernel's `cpu_util()`: the larger of PELT utilisation and util_est, at most 1024.
    #[inline]
    pub(crate) fn cpu_util(&self, cpu: CpuId) -> u64 {
        let rq = &self.rqs[cpu];
        rq.avg.util_avg.max(rq.util_est).min(1024)
    }
}
