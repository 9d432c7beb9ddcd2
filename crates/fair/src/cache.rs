//! Cache-aware scheduling (7.2): the threads of a process gather on one LLC (kernel model,
//! section 13).
//!
//! ```text
//! update_curr ─► adds to the run time of the process on the CPU, which is halved each epoch;
//!                the task takes over the LLC that its process prefers
//! tick ────────► once an epoch one thread looks at all LLCs for the one where the process ran most
//! balancing ───► `balance::llc`: pulls tasks to their LLC, and does not pull them away from it
//! ```
//!
//! Wakeups and forks ignore the preferred LLC. With NUMA balancing a task prefers no LLC outside
//! its preferred node, and scans look only at the nodes that matter to the task. A process does not
//! gather if it has more memory (by its faults) than an LLC holds. On a machine with one LLC this
//! module does nothing.

#[cfg(test)]
pub(crate) mod tests;

use roost_engine::{CpuId, TaskId, Time, World};
use roost_machine::{CpuSet, Machine, PAGE_BYTES};

use crate::domain::Topology;
use crate::features::Features;
use crate::state::{Fair, FairTask, Rq};

/// An epoch, in parts of a second (EPOCH_PERIOD: HZ / 100 jiffies).
const EPOCHS_A_SECOND: u32 = 100;

/// From this value of `llc_aggr_tolerance` on, a process may have any size.
const ANY_SIZE: u32 = 100;

/// Scale of an occupancy: the whole run time of one CPU (NICE_0_LOAD).
const WHOLE_CPU: u64 = 1 << 20;

/// Cache lines that a scan fetches from a CPU that runs a task (`fraction_mm_sched()`,
/// `task_cache_work()`): `cpu_runtime` with its epoch and lock, the process's own time there, which
/// that CPU writes when it accounts run time, and `rq->curr`. Assumption: the lines of an idle CPU
/// are still in the scanning CPU's cache since the last scan.
const LINES_PER_SCANNED_CPU: u64 = 3;

/// Run time that is halved with each epoch (`sched_cache_time`; `cpu_runtime` and `cpu_epoch`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Runtime {
    /// What is left of the run time, ns.
    ns: u64,
    /// The epoch up to which it was halved.
    epoch: u64,
}

impl Runtime {
    /// Halves the run time once for each epoch that has begun since the last call.
    fn advance_to(&mut self, epoch: u64) {
        let halvings = u32::try_from(epoch.saturating_sub(self.epoch)).unwrap_or(u32::MAX);
        self.ns = self.ns.checked_shr(halvings).unwrap_or(0);
        self.epoch = epoch;
    }
}

/// Cache-aware state of a run queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct CacheRq {
    /// Run time of all tasks on this CPU.
    runtime: Runtime,
    /// Jiffy at which the next epoch of this CPU begins (`cpu_epoch_next`).
    next_epoch: u64,
    /// When that jiffy ends, ns. Nothing is due before.
    due_ns: u64,
    /// LLC of the CPU.
    llc: u32,
    /// Tasks on the queue that prefer some LLC.
    pub nr_llc_running: u32,
    /// Tasks on the queue that prefer the LLC of this CPU, without those whose dequeue is delayed.
    pub nr_pref_llc_running: u32,
    /// Tasks on the queue by the LLC they prefer (`llc_counts` of the base domain); empty if the CPU
    /// has no domain or the mechanism is off.
    by_llc: Vec<u32>,
}

impl CacheRq {
    /// For `cpu`, with an empty queue.
    pub(crate) fn new(topology: &Topology, cpu: CpuId, active: bool) -> Self {
        let counted = active && !topology.domains_of(cpu).is_empty();
        Self {
            llc: topology.llc_of[cpu],
            by_llc: vec![0; if counted { topology.llc_span.len() } else { 0 }],
            ..Self::default()
        }
    }

    /// Tasks on the queue that prefer `llc`.
    #[inline]
    pub(crate) fn nr_preferring(&self, llc: u32) -> u32 {
        self.by_llc.get(llc as usize).copied().unwrap_or(0)
    }

    /// As [`CacheRq::nr_preferring`] if `llc` is another LLC than that of this CPU, otherwise 0.
    #[inline]
    pub(crate) fn nr_preferring_other(&self, llc: u32) -> u32 {
        if self.nr_llc_running > 0 && self.llc != llc { self.nr_preferring(llc) } else { 0 }
    }

    /// Tasks on the queue, by the LLC they prefer.
    pub(crate) fn by_llc(&self) -> &[u32] {
        &self.by_llc
    }

    /// Counts a task that was queued (`account_llc_enqueue`).
    #[inline]
    pub(crate) fn count_in(&mut self, task: &FairTask) {
        // Without branches, because which tasks prefer an LLC is as good as random. One that prefers none
        // adds 0 to the first.
        let (prefers, here) = (u32::from(task.preferred_llc.is_some()), self.prefers_this(task));
        self.nr_llc_running += prefers;
        self.nr_pref_llc_running += here;
        if let Some(count) = self.by_llc.get_mut(task.preferred_llc.unwrap_or(0) as usize) {
            *count += prefers;
        }
    }

    /// Stops counting a task that is taken off (`account_llc_dequeue`).
    #[inline]
    pub(crate) fn count_out(&mut self, task: &FairTask) {
        let (prefers, here) = (u32::from(task.preferred_llc.is_some()), self.prefers_this(task));
        self.nr_llc_running -= prefers;
        self.nr_pref_llc_running -= here;
        if let Some(count) = self.by_llc.get_mut(task.preferred_llc.unwrap_or(0) as usize) {
            *count -= prefers;
        }
    }

    /// 1 if a task prefers the LLC of this CPU and its dequeue is not delayed.
    #[inline]
    fn prefers_this(&self, task: &FairTask) -> u32 {
        u32::from((task.preferred_llc == Some(self.llc)) & !task.delayed)
    }

    /// The dequeue of a queued task becomes delayed.
    #[inline]
    pub(crate) fn no_longer_runnable(&mut self, task: &FairTask) {
        self.nr_pref_llc_running -= u32::from(task.preferred_llc == Some(self.llc));
    }

    /// A queued task whose dequeue was delayed was woken.
    #[inline]
    pub(crate) fn runnable_again(&mut self, task: &FairTask) {
        self.nr_pref_llc_running += u32::from(task.preferred_llc == Some(self.llc));
    }

    /// Begins the epochs that are due, of `period` jiffies of `tick_ns` each. Returns the current
    /// epoch.
    #[inline]
    fn advance(&mut self, now: Time, tick_ns: u64, period: u64) -> u64 {
        if now.ns() >= self.due_ns {
            self.begin_epochs(now.ns() / tick_ns, period);
            self.due_ns = (self.next_epoch + 1) * tick_ns;
        }
        self.runtime.epoch
    }

    /// Begins the epochs that are due at jiffy `now`.
    fn begin_epochs(&mut self, now: u64, period: u64) {
        let begun = now.saturating_sub(self.next_epoch).div_ceil(period);
        self.next_epoch += begun * period;
        self.runtime.advance_to(self.runtime.epoch + begun);
    }
}

/// State of a process (`sched_cache_stat` of its `mm_struct`).
#[derive(Clone, Debug, Default)]
pub(crate) struct Process {
    /// Its threads, sleeping ones included.
    nr_threads: u32,
    /// The CPU on whose LLC its threads gather; `None` if they do not gather.
    pub(crate) cpu: Option<CpuId>,
    /// Number of its threads that run at the same time, averaged over scans.
    nr_running_avg: u64,
    /// The epoch of the last scan.
    epoch: u64,
    /// Jiffy before which no thread scans again.
    next_scan: u64,
    /// Its memory in pages, counted by NUMA faults; 0 without NUMA balancing.
    footprint: i64,
    /// Its run time by CPU.
    runtime: Vec<Runtime>,
}

/// State of cache-aware scheduling beside run queues, tasks and LLCs.
#[derive(Debug)]
pub(crate) struct CacheAware {
    /// Whether cache-aware scheduling is on and there are several LLCs (`sched_cache_enabled()`).
    pub(crate) active: bool,
    /// Whether any task has preferred an LLC so far.
    pub(crate) any_preferred: bool,
    /// Length of an epoch in jiffies.
    period: u64,
    /// Size limit of a process, in LLCs (`llc_aggr_tolerance`).
    tolerance: u32,
    /// Epochs without a scan after which a process prefers nothing (`llc_epoch_affinity_timeout`).
    timeout: u64,
    /// CPUs of a core (`cpu_smt_num_threads`).
    pub(crate) threads_per_core: u64,
    /// Size of each LLC, bytes.
    llc_bytes: Vec<u64>,
    /// Processes, by number.
    pub(crate) processes: Vec<Process>,
}

impl CacheAware {
    /// The state at the start of a run.
    pub(crate) fn new(machine: &Machine, topology: &Topology, features: &Features) -> Self {
        let gather = &features.tunables.gather;
        let threads_per_core = topology.core_span.iter().map(|core| core.len()).max();
        let first = |span: &CpuSet| span.first().map(|cpu| machine.cpus[cpu].llc as usize);
        let bytes = |span| first(span).map_or(0, |llc| machine.llc_bytes(llc));
        Self {
            active: features.switches.sched_cache && has_several_llcs(topology),
            any_preferred: false,
            period: gather.epoch_period.unwrap_or(features.hz / EPOCHS_A_SECOND).max(1).into(),
            tolerance: gather.aggr_tolerance,
            timeout: gather.epoch_affinity_timeout.into(),
            threads_per_core: threads_per_core.unwrap_or(1) as u64,
            llc_bytes: topology.llc_span.iter().map(bytes).collect(),
            processes: Vec::new(),
        }
    }
}

/// Whether some domain spans more than one LLC (of several CPUs).
fn has_several_llcs(topology: &Topology) -> bool {
    let mut levels = topology.llc_level.iter().zip(&topology.of_cpu);
    levels.any(|(level, domains)| level.is_some_and(|level| level + 1 < domains.len()))
}

/// The share of a CPU's run time that a process had, in units of [`WHOLE_CPU`]
/// (`fraction_mm_sched`).
fn occupancy(process_ns: u64, cpu_ns: u64) -> u64 {
    WHOLE_CPU * process_ns / (cpu_ns + 1)
}

/// Whether the number of threads that a process runs at the same time exceeds the cores of an LLC
/// of `llc_size` CPUs (`invalid_llc_nr`, `fits_capacity`).
fn too_wide(nr_running_avg: u64, threads_per_core: u64, llc_size: u64, tolerance: u32) -> bool {
    tolerance < ANY_SIZE
        && nr_running_avg * threads_per_core * 1280 >= u64::from(tolerance) * llc_size * 1024
}

/// Whether a process has more memory than an LLC holds (`exceed_llc_capacity`). The kernel
/// multiplies the size of the LLC by 1 + (tolerance - 1) * 256, or by 0 if the tolerance is 0.
fn too_big(footprint: i64, llc_bytes: u64, tolerance: u32) -> bool {
    let scale = tolerance.checked_sub(1).map_or(0, |more| 1 + u64::from(more) * 256);
    tolerance < ANY_SIZE && llc_bytes * scale < footprint.max(0) as u64 * PAGE_BYTES
}

/// The average number of threads running at the same time after a scan that found `sample`
/// (`update_avg_scale`). It follows faster on small LLCs.
fn averaged(average: u64, sample: u64, llc_size: u64) -> u64 {
    let divisor = (llc_size / 4).clamp(2, 8) as i64;
    (average as i64 + (sample as i64 - average as i64) / divisor) as u64
}

/// How much a process ran on an LLC recently.
#[derive(Clone, Copy, Debug, Default)]
struct Occupancy {
    /// Sum of its shares of the run time of the LLC's CPUs.
    sum: u64,
    /// The first of the CPUs on which its share is largest.
    top_cpu: Option<CpuId>,
    /// The process prefers this LLC.
    preferred: bool,
}

/// The CPU that a process prefers from now on, or `None` to keep its preference. It is the top CPU
/// of the LLC where the process ran most, if the process ran there more than twice as much as on
/// its preferred LLC.
fn choose(llcs: &[Occupancy]) -> Option<CpuId> {
    let current = llcs.iter().find(|llc| llc.preferred).map_or(0, |llc| llc.sum);
    let mut best = Occupancy::default();
    for llc in llcs {
        if llc.sum > best.sum {
            best = *llc;
        }
    }
    best.top_cpu.filter(|_| best.sum > 2 * current)
}

impl Fair {
    /// Counts a new task of its process.
    pub(crate) fn join_process(&mut self, world: &World, task: TaskId) {
        if !self.cache.active {
            return;
        }
        let now = self.jiffies(world.now());
        let number = world.process(task) as usize;
        let processes = &mut self.cache.processes;
        if processes.len() <= number {
            processes.resize_with(number + 1, Process::default);
        }
        let process = &mut processes[number];
        if process.nr_threads == 0 {
            // mm_init_sched() does the same: the epoch of an idle CPU may be an old one.
            let runtime = |rq: &Rq| Runtime { ns: 0, ..rq.cache.runtime };
            let runtime: Vec<_> = self.rqs.iter().map(runtime).collect();
            let epoch = runtime.last().map_or(0, |last| last.epoch);
            *process = Process { epoch, next_scan: now, runtime, ..Process::default() };
        }
        process.nr_threads += 1;
        self.tasks[task.index()].process = number as u32;
    }

    /// Stops counting a task of its process.
    pub(crate) fn leave_process(&mut self, world: &World, task: TaskId) {
        if self.cache.active {
            self.cache.processes[world.process(task) as usize].nr_threads -= 1;
        }
    }

    /// Adds `pages` to the memory of the process of `task`, as NUMA faults show it. Can be
    /// negative.
    pub(crate) fn grow_footprint(&mut self, world: &World, task: TaskId, pages: i64) {
        if self.cache.active {
            let process = &mut self.cache.processes[world.process(task) as usize];
            process.footprint = (process.footprint + pages).max(0);
        }
    }

    /// Subtracts the pages of a task that is gone.
    pub(crate) fn shrink_footprint(&mut self, world: &World, task: TaskId, pages: i64) {
        self.grow_footprint(world, task, -pages.max(0));
    }

    /// Whether the threads of a process shall not gather, seen from `cpu`. That is so if there is
    /// only one thread, if there are too many, or if their memory is larger than the LLC
    /// (`invalid_llc_nr`, `exceed_llc_capacity`).
    fn is_unfit(&self, process: &Process, cpu: CpuId) -> bool {
        let llc_bytes = self.cache.llc_bytes[self.topology.llc_of[cpu] as usize];
        self.has_unfit_threads(process, cpu)
            || too_big(process.footprint, llc_bytes, self.cache.tolerance)
    }

    fn has_unfit_threads(&self, process: &Process, cpu: CpuId) -> bool {
        let llc_size = u64::from(self.topology.llc_size(cpu));
        let CacheAware { threads_per_core, tolerance, .. } = self.cache;
        process.nr_threads <= 1
            || too_wide(process.nr_running_avg, threads_per_core, llc_size, tolerance)
    }

    /// The CPU on whose LLC the process of `task` gathers. If its threads may not gather, seen from
    /// `cpu`, the process loses its preference.
    pub(crate) fn gathering_at(
        &mut self,
        world: &World,
        task: TaskId,
        cpu: CpuId,
    ) -> Option<CpuId> {
        let number = world.process(task) as usize;
        let gathering = self.cache.processes[number].cpu?;
        if self.is_unfit(&self.cache.processes[number], cpu) {
            self.cache.processes[number].cpu = None;
            return None;
        }
        Some(gathering)
    }

    /// The current task of `cpu` ran for `ran_ns`. Accounts that to its process and takes over the
    /// LLC that the process prefers (`account_mm_sched`).
    #[inline]
    pub(crate) fn account_process(&mut self, world: &World, cpu: CpuId, task: TaskId, ran_ns: u64) {
        let rq = &mut self.rqs[cpu].cache;
        let epoch = rq.advance(world.now(), self.tick_ns, self.cache.period);
        rq.runtime.ns += ran_ns;
        let state = &self.tasks[task.index()];
        let number = state.process as usize;
        let process = &mut self.cache.processes[number];
        let runtime = &mut process.runtime[cpu];
        if runtime.epoch != epoch {
            runtime.advance_to(epoch);
        }
        runtime.ns += ran_ns;
        if process.cpu.is_none() && state.preferred_llc.is_none() {
            return;
        }
        let forgotten = epoch > process.epoch + self.cache.timeout;
        if process.cpu.is_some() && (forgotten || self.is_unfit(&self.cache.processes[number], cpu))
        {
            self.cache.processes[number].cpu = None;
        }
        let state = &mut self.tasks[task.index()];
        // get_pref_llc(): the preferred node takes precedence over the LLC.
        let elsewhere =
            |cpu: CpuId| state.preferred_node.is_some_and(|node| node != self.numa.node_of[cpu]);
        let gathering = self.cache.processes[number].cpu.filter(|&cpu| !elsewhere(cpu));
        let preferred = gathering.map(|cpu| self.topology.llc_of[cpu]);
        if state.preferred_llc != preferred {
            let rq = &mut self.rqs[cpu].cache;
            rq.count_out(state);
            state.preferred_llc = preferred;
            self.cache.any_preferred |= preferred.is_some();
            rq.count_in(state);
        }
    }

    /// At the tick of `cpu`: its current task shall scan all LLCs if no thread of its process has
    /// done so in this epoch (`task_tick_cache`). It scans when it is about to return to user mode.
    pub(crate) fn tick_cache(&mut self, world: &World, cpu: CpuId) {
        let Some(task) = self.rqs[cpu].current.filter(|_| self.cache.active) else { return };
        let epoch = self.rqs[cpu].cache.runtime.epoch;
        let process = &mut self.cache.processes[world.process(task) as usize];
        let state = &mut self.tasks[task.index()];
        if process.epoch < epoch && !state.cache_work {
            state.cache_work = true;
            process.epoch = epoch;
        }
    }

    /// `task` returns to user mode on `cpu`: does the scan that its tick asked for
    /// (`task_cache_work`).
    #[inline]
    pub(crate) fn cache_work(&mut self, world: &mut World, cpu: CpuId, task: TaskId) {
        if std::mem::take(&mut self.tasks[task.index()].cache_work) {
            self.scan_llcs(world, cpu, task);
        }
    }

    /// Finds the LLC where the process of `task` ran most, and makes the process prefer it. Also
    /// counts how many of its threads run.
    #[cold]
    fn scan_llcs(&mut self, world: &mut World, cpu: CpuId, task: TaskId) {
        let now = self.jiffies(world.now());
        let number = world.process(task) as usize;
        let process = &mut self.cache.processes[number];
        if now < process.next_scan {
            return;
        }
        process.next_scan = now + self.cache.period;
        // The average is not updated then: a process that was too wide once stays too wide (as in
        // 7.2).
        if self.is_unfit(&self.cache.processes[number], cpu) {
            self.cache.processes[number].cpu = None;
            return;
        }
        let nodes = self.nodes_to_scan(cpu, task, self.cache.processes[number].cpu);
        let (llcs, running) = self.occupancies(world, number, nodes.as_deref());
        let llc_size = u64::from(self.topology.llc_size(cpu));
        let process = &mut self.cache.processes[number];
        process.cpu = choose(&llcs).or(process.cpu);
        process.nr_running_avg = averaged(process.nr_running_avg, running, llc_size);
        self.charge_scan(world, cpu);
    }

    /// The nodes that a scan by `task` on `cpu` looks at; `None` for all (`get_scan_cpumasks`).
    fn nodes_to_scan(
        &self,
        cpu: CpuId,
        task: TaskId,
        gathering: Option<CpuId>,
    ) -> Option<Vec<u16>> {
        let node = |cpu: CpuId| self.numa.node_of[cpu];
        let preferred = self.tasks[task.index()].preferred_node?;
        Some(
            [Some(preferred), gathering.map(node), Some(node(cpu))].into_iter().flatten().collect(),
        )
    }

    /// Occupancy by a process of each LLC of several CPUs on these nodes, and the number of its
    /// threads that run.
    fn occupancies(
        &mut self,
        world: &World,
        number: usize,
        nodes: Option<&[u16]>,
    ) -> (Vec<Occupancy>, u64) {
        let topology = &self.topology;
        let process = &mut self.cache.processes[number];
        let preferred = process.cpu.map(|cpu| topology.llc_of[cpu] as usize);
        let (mut llcs, mut running) = (Vec::with_capacity(topology.llc_span.len()), 0);
        for (llc, span) in topology.llc_span.iter().enumerate() {
            if span.first().is_none_or(|cpu| topology.llc_level[cpu].is_none()) {
                continue;
            }
            let node = span.first().map(|cpu| self.numa.node_of[cpu]);
            if nodes.is_some_and(|nodes| node.is_some_and(|node| !nodes.contains(&node))) {
                continue;
            }
            let mut found = Occupancy { preferred: preferred == Some(llc), ..Occupancy::default() };
            let mut largest = 0;
            for cpu in span.iter() {
                let rq = &mut self.rqs[cpu];
                let epoch = rq.cache.advance(world.now(), self.tick_ns, self.cache.period);
                process.runtime[cpu].advance_to(epoch);
                let share = occupancy(process.runtime[cpu].ns, rq.cache.runtime.ns);
                found.sum += share;
                if share > largest {
                    (largest, found.top_cpu) = (share, Some(cpu));
                }
                let member = |task| world.process(task) as usize == number;
                running += u64::from(rq.current.is_some_and(member));
            }
            llcs.push(found);
        }
        (llcs, running)
    }

    /// Charges the CPU that scanned for the cache lines it fetched.
    fn charge_scan(&self, world: &mut World, cpu: CpuId) {
        let busy = (0..self.rqs.len()).filter(|&other| other != cpu && !world.is_idle(other));
        let lines: u64 = busy.map(|other| world.machine().line_ns(other, cpu)).sum();
        world.charge(cpu, LINES_PER_SCANNED_CPU * lines);
    }
}
