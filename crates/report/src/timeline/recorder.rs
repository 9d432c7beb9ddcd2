//! Turns the events of a run into sums by window.

use indexmap::IndexMap;
use roost_engine::{Accessed, CpuId, LeftAs, MemoryNow, Time, TraceTask};
use roost_machine::Machine;
use rustc_hash::FxBuildHasher;

use super::grid::Windows;
use super::latency::Record;
use super::{Access, By, Occupancy, TaskGroup, Timeline};

/// Number of groups of each kind that are kept apart, in order of appearance. All others share one group.
const MOST_GROUPS: usize = 16;
/// Number of threads whose accesses are kept apart, in order of appearance.
const MOST_THREADS: usize = 64;
/// The name of the group or entry that the others share.
const OTHERS: &str = "others";

/// What a task did during a span of time.
#[derive(Clone, Copy)]
enum Kind {
    Running,
    Waiting,
}

/// State of a task.
#[derive(Default)]
struct Task {
    /// The groups that the task belongs to.
    groups: [Option<u16>; 3],
    /// The task group that was reported last.
    cgroup: Option<u32>,
    /// The CPU that the task last started on.
    ran_on: Option<CpuId>,
    /// When the task started to run. `None` if it is not running.
    runs_since: Option<Time>,
    /// The CPU in whose queue the task waits, and the time up to which the waiting is summed up.
    waits_on: Option<CpuId>,
    summed_until: Time,
    /// When the task was last queued, or last left a CPU.
    waits_since: Time,
    /// When the task was last woken or created. `None` if it has run since.
    woken_at: Option<Time>,
}

/// A task that has just started to run, with the time that it had waited.
struct Started {
    delay_ns: u64,
    woken_ns: Option<u64>,
}

/// The index of each group by kind and key.
#[derive(Default)]
struct Known {
    names: IndexMap<String, u16, FxBuildHasher>,
    processes: IndexMap<u32, u16, FxBuildHasher>,
    cgroups: IndexMap<u32, u16, FxBuildHasher>,
    /// The group that all others share, by kind.
    others: [Option<u16>; 3],
}

pub(super) struct Recorder {
    /// The LLC of each CPU.
    llc: Vec<usize>,
    nr_llcs: usize,
    windows: Windows,
    measured_from: Time,
    tasks: IndexMap<u32, Task, FxBuildHasher>,
    cpus: Occupancy,
    groups: Vec<TaskGroup>,
    known: Known,
    migrations: Vec<Vec<u64>>,
    started: Option<Started>,
    wakeup_latency: Record,
    run_delay: Record,
    memory: Vec<MemoryNow>,
    last_memory: Option<MemoryNow>,
    /// Accesses, each with the thread's number.
    accesses: Vec<(u32, Access)>,
}

impl Recorder {
    pub fn new(machine: &Machine, measured_from: Time) -> Self {
        let nr_llcs = machine.llcs.len();
        Self {
            llc: machine.cpus.iter().map(|cpu| cpu.llc as usize).collect(),
            nr_llcs,
            windows: Windows::FIRST,
            measured_from,
            tasks: IndexMap::default(),
            cpus: Occupancy::new(machine.nr_cpus()),
            groups: Vec::new(),
            known: Known::default(),
            migrations: vec![vec![0; nr_llcs]; nr_llcs],
            started: None,
            wakeup_latency: Record::new(),
            run_delay: Record::new(),
            memory: Vec::new(),
            last_memory: None,
            accesses: Vec::new(),
        }
    }

    /// Whether an event at `now` counts as measured. An event at the very start of the measurement does not count.
    fn is_measured(&self, now: Time) -> bool {
        now > self.measured_from || self.measured_from == Time(0)
    }

    /// The state of a task, created if the task is new.
    fn task(&mut self, told: TraceTask<'_>) -> &mut Task {
        let cgroup = told.group.map(|(number, _)| number);
        let known = self.tasks.get_index_of(&told.pid);
        if let Some(index) = known.filter(|&index| self.tasks[index].cgroup == cgroup) {
            return &mut self.tasks[index];
        }
        let groups = self.groups_of(told);
        let task = self.tasks.entry(told.pid).or_default();
        (task.groups, task.cgroup) = (groups, cgroup);
        task
    }

    /// The groups that a task belongs to, by kind.
    #[cold]
    fn groups_of(&mut self, task: TraceTask<'_>) -> [Option<u16>; 3] {
        let Known { names, processes, cgroups, .. } = &self.known;
        let name = names.get(task.class()).copied();
        let process = processes.get(&task.process).copied();
        let cgroup = task.group.map(|(number, path)| (cgroups.get(&number).copied(), number, path));
        let name = name.unwrap_or_else(|| {
            let group = self.new_group(By::Name, task.class());
            self.known.names.insert(task.class().to_owned(), group);
            group
        });
        let process = process.unwrap_or_else(|| {
            let group = self.new_group(By::Process, &format!("{} {}", task.process, task.name));
            self.known.processes.insert(task.process, group);
            group
        });
        let cgroup = cgroup.map(|(known, number, path)| {
            known.unwrap_or_else(|| {
                let group = self.new_group(By::Cgroup, path);
                self.known.cgroups.insert(number, group);
                group
            })
        });
        [Some(name), Some(process), cgroup]
    }

    /// A new group, or the common one if there are too many.
    fn new_group(&mut self, by: By, name: &str) -> u16 {
        let others = self.known.others[by as usize];
        if let Some(others) = others {
            return others;
        }
        let number = self.groups.len() as u16;
        let full = self.groups.iter().filter(|group| group.by == by).count() >= MOST_GROUPS;
        let name = if full { OTHERS } else { name };
        self.known.others[by as usize] = full.then_some(number);
        let llcs = Occupancy::new(self.nr_llcs);
        self.groups.push(TaskGroup { by, name: name.to_owned(), llcs });
        number
    }

    /// Adds a span of time of a task in `groups`.
    #[inline]
    fn add(&mut self, kind: Kind, cpu: CpuId, groups: [Option<u16>; 3], from: Time, to: Time) {
        let Some(&llc) = self.llc.get(cpu) else { return };
        self.make_room(to);
        for (window, ns) in self.windows.split(from.ns(), to.ns()) {
            kind.of(&mut self.cpus).add(cpu, window, ns);
            for group in groups.into_iter().flatten() {
                kind.of(&mut self.groups[usize::from(group)].llcs).add(llc, window, ns);
            }
        }
    }

    /// Doubles the windows' length until `now` fits.
    #[inline]
    fn make_room(&mut self, now: Time) {
        while self.windows.are_outgrown_by(now.ns()) {
            self.fold();
        }
    }

    #[cold]
    fn fold(&mut self) {
        let groups = self.groups.iter_mut().map(|group| &mut group.llcs);
        for occupancy in groups.chain([&mut self.cpus]) {
            occupancy.running.fold();
            occupancy.waiting.fold();
        }
        // The memory at the end of the second of two windows is that at the end of the merged window.
        self.memory = std::mem::take(&mut self.memory).into_iter().skip(1).step_by(2).collect();
        self.windows = self.windows.doubled();
    }

    /// See [`roost_engine::Tracer::switch`].
    pub fn switch(
        &mut self,
        now: Time,
        cpu: CpuId,
        previous: Option<(TraceTask<'_>, LeftAs)>,
        next: Option<TraceTask<'_>>,
    ) {
        self.count_started();
        if let Some((task, left)) = previous {
            self.stop(now, cpu, task, left);
        }
        if let Some(task) = next {
            self.start(now, cpu, task);
        }
    }

    fn stop(&mut self, now: Time, cpu: CpuId, told: TraceTask<'_>, left: LeftAs) {
        let task = self.task(told);
        let (ran_since, groups) = (task.runs_since.take(), task.groups);
        (task.waits_since, task.summed_until) = (now, now);
        match left {
            LeftAs::Preempted => task.waits_on = Some(cpu),
            LeftAs::Sleeping => {}
            LeftAs::Exited => {
                self.tasks.swap_remove(&told.pid);
            }
        }
        if let Some(since) = ran_since {
            self.add(Kind::Running, cpu, groups, since, now);
        }
    }

    fn start(&mut self, now: Time, cpu: CpuId, told: TraceTask<'_>) {
        let task = self.task(told);
        task.runs_since = Some(now);
        let waited = task.waits_on.take().map(|cpu| (cpu, task.summed_until));
        let groups = task.groups;
        let delay_ns = now.since(task.waits_since);
        let woken_ns = task.woken_at.take().map(|woken| now.since(woken));
        let ran_on = task.ran_on.replace(cpu);
        if let Some((on, since)) = waited {
            self.add(Kind::Waiting, on, groups, since, now);
        }
        if !self.is_measured(now) {
            return;
        }
        self.started = Some(Started { delay_ns, woken_ns });
        if let Some(from) = ran_on.filter(|&from| from != cpu)
            && let (Some(&from), Some(&to)) = (self.llc.get(from), self.llc.get(cpu))
        {
            self.migrations[from][to] += 1;
        }
    }

    /// See [`roost_engine::Tracer::waits_for_switch`].
    pub fn waits_for_switch(&mut self, ns: u64) {
        if let Some(started) = &mut self.started {
            started.delay_ns += ns;
            started.woken_ns = started.woken_ns.map(|woken| woken + ns);
        }
    }

    /// Counts the latencies of the task that started last. Its waiting time is known now.
    fn count_started(&mut self) {
        if let Some(Started { delay_ns, woken_ns }) = self.started.take() {
            self.run_delay.add(delay_ns);
            if let Some(ns) = woken_ns {
                self.wakeup_latency.add(ns);
            }
        }
    }

    /// See [`roost_engine::Tracer::wakeup`].
    pub fn wakeup(&mut self, now: Time, told: TraceTask<'_>, target: CpuId) {
        let task = self.task(told);
        // A running task is "woken" when its affinity changes. That is a migration, not a wakeup.
        task.woken_at = task.runs_since.is_none().then_some(now);
        task.waits_on = Some(target);
        (task.waits_since, task.summed_until) = (now, now);
    }

    /// See [`roost_engine::Tracer::queued`].
    pub fn queued(&mut self, now: Time, told: TraceTask<'_>) {
        let task = self.task(told);
        (task.waits_since, task.summed_until) = (now, now);
    }

    /// See [`roost_engine::Tracer::migrated`].
    pub fn migrated(&mut self, now: Time, told: TraceTask<'_>, to: CpuId) {
        let task = self.task(told);
        let Some(on) = task.waits_on else { return };
        task.waits_on = Some(to);
        let since = std::mem::replace(&mut task.summed_until, now);
        let groups = task.groups;
        self.add(Kind::Waiting, on, groups, since, now);
    }

    /// See [`roost_engine::Tracer::next_memory`]: the end of the window after the last one that was reported.
    pub fn next_memory(&self) -> Time {
        Time((self.memory.len() as u64 + 1) * self.windows.ns())
    }

    /// See [`roost_engine::Tracer::memory`].
    pub fn memory(&mut self, now: Time, memory: &MemoryNow) {
        self.make_room(now);
        if now == self.next_memory() {
            self.memory.push(memory.clone());
        }
        self.last_memory = Some(memory.clone());
    }

    /// See [`roost_engine::Tracer::accessed`].
    pub fn accessed(&mut self, task: TraceTask<'_>, node: &[Accessed]) {
        match self.accesses.len() {
            0..MOST_THREADS => {
                let thread = format!("{} {}", task.pid, task.name);
                self.accesses.push((task.pid, Access { thread, node: node.to_vec() }));
            }
            MOST_THREADS => {
                let others = Access { thread: OTHERS.to_owned(), node: node.to_vec() };
                self.accesses.push((u32::MAX, others));
            }
            _ => {
                let sums = self.accesses.last_mut().map(|(_, others)| &mut others.node);
                for (sum, more) in sums.into_iter().flatten().zip(node) {
                    sum.local_bytes += more.local_bytes;
                    sum.remote_bytes += more.remote_bytes;
                }
            }
        }
    }

    /// The timeline of the run, which ended at `end`.
    pub fn finish(&mut self, end: Time) -> Timeline {
        self.count_started();
        self.make_room(end);
        for (_, task) in std::mem::take(&mut self.tasks) {
            if let Some(on) = task.waits_on {
                self.add(Kind::Waiting, on, task.groups, task.summed_until, end);
            }
            if let (Some(on), Some(since)) = (task.ran_on, task.runs_since) {
                self.add(Kind::Running, on, task.groups, since, end);
            }
        }
        if self.memory.len() as u64 * self.windows.ns() < end.ns() {
            self.memory.extend(self.last_memory.take());
        }
        let mut accesses = std::mem::take(&mut self.accesses);
        accesses.sort_by_key(|(pid, _)| *pid);
        Timeline {
            end,
            measured_from: self.measured_from,
            window_ns: self.windows.ns(),
            cpus: std::mem::replace(&mut self.cpus, Occupancy::new(0)),
            groups: std::mem::take(&mut self.groups),
            migrations: std::mem::take(&mut self.migrations),
            wakeup_latency: self.wakeup_latency.finish(),
            run_delay: self.run_delay.finish(),
            memory: std::mem::take(&mut self.memory),
            accesses: accesses.into_iter().map(|(_, access)| access).collect(),
        }
    }
}

impl Kind {
    fn of(self, occupancy: &mut Occupancy) -> &mut super::Grid {
        match self {
            Self::Running => &mut occupancy.running,
            Self::Waiting => &mut occupancy.waiting,
        }
    }
}
