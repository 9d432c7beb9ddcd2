//! An observer that sees only what a trace shows of a run, and reports what is wrong.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use roost_engine::{CpuId, LeftAs, Time, TraceTask, Tracer};
use roost_machine::Machine;
use roost_workload::{Cpus, Op, Workload};

use crate::disturber::CAME_BACK;
use crate::promises::Promises;
use crate::queues::Queues;
use crate::random::Random;

/// The place of a task, as far as a trace shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    Waiting {
        since: Time,
    },
    Running(CpuId),
    /// Running on this CPU until the next switch, and queued elsewhere, because its affinity has changed.
    Moving(CpuId),
    Asleep,
    Exited,
}

struct Seen {
    name: String,
    at: Where,
    /// Whether the task has certainly set its own affinity: it was moved, or has slept often enough.
    settled: bool,
    sleeps: u32,
}

/// How often a task may sleep before it sets its affinity: for its delay and for rt-app's common start.
const SLEEPS_AT_START: u32 = 3;

/// How long a task may wait for a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// This long in any case, in ns.
    pub always_ns: u64,
    /// This much longer for each other task that has not exited, in ns.
    pub each_task_ns: u64,
}

/// What a scheduler promises to tasks that wait.
#[derive(Default)]
pub struct Expected {
    /// What the fair class promises.
    pub promises: Option<Promises>,
    /// The longest wait.
    pub wait: Option<Wait>,
    /// How late an interrupt may come, in ns.
    pub late_ns: u64,
    /// CPUs that may go offline.
    pub unsteady: Vec<CpuId>,
    /// How long one of them may take to go offline, in ns.
    pub leaving_ns: u64,
}

/// What was seen so far, and the first error.
pub struct Watch {
    /// By template's name, the CPUs that its tasks may ever use. A template that is not listed may use all CPUs.
    allowed: BTreeMap<String, Vec<CpuId>>,
    /// Templates of tasks whose affinity changes.
    allowed_changes: BTreeSet<String>,
    now: Time,
    /// Tasks that have not exited.
    tasks: BTreeMap<u32, Seen>,
    exited: BTreeSet<u32>,
    /// Whether a task of the workload has run.
    begun: bool,
    current: Vec<Option<u32>>,
    idle_since: Vec<Time>,
    /// Tracks waiting tasks, if something is promised to them.
    queues: Option<Queues>,
    wait: Option<Wait>,
    /// How long a task may wait although all CPUs that it may use idle, in ns.
    forgotten_ns: u64,
    /// Whether CPUs may go offline, so that any task may have to move.
    unsteady: bool,
    /// The schedule so far.
    schedule: u64,
    wrong: Option<String>,
}

/// A tracer with a shared [`Watch`]. Its other owner reads the result at the end.
pub struct Watching(pub Rc<RefCell<Watch>>);

impl Watch {
    /// An observer for one run under a scheduler with this tick.
    pub fn new(machine: &Machine, workload: &Workload, tick_ns: u64, expected: Expected) -> Self {
        let cpus = machine.nr_cpus();
        let Expected { promises, wait, late_ns, unsteady, leaving_ns } = expected;
        let leaving_ns = if unsteady.is_empty() { 0 } else { leaving_ns + 3 * late_ns };
        Self {
            allowed: allowed(machine, workload, &unsteady),
            allowed_changes: allowed_changes(workload),
            forgotten_ns: 2 * (tick_ns + late_ns) + leaving_ns,
            unsteady: !unsteady.is_empty(),
            now: Time(0),
            tasks: BTreeMap::new(),
            exited: BTreeSet::new(),
            begun: false,
            current: vec![None; cpus],
            idle_since: vec![Time(0); cpus],
            queues: promises.map(|promises| Queues::new(machine, promises)),
            wait,
            schedule: 0,
            wrong: None,
        }
    }

    /// The schedule: a hash of the order in which tasks got CPUs. Each switch of any CPU counts, with the number of the
    /// CPU and that of the task that it runs next, or that it idles. When a switch happens does not count. So runs of
    /// other machines or workloads may have the same schedule.
    pub fn schedule(&self) -> u64 {
        self.schedule
    }

    /// The first error, if any, in a run that ended at `end`.
    pub fn finish(&mut self, end: Time) -> Result<(), String> {
        self.nobody_is_forgotten(end);
        self.now = end;
        let waiting = self.tasks.values().filter_map(|seen| match seen.at {
            Where::Waiting { since } => Some((since, seen.name.clone())),
            _ => None,
        });
        let first = waiting.min();
        first.into_iter().for_each(|(since, name)| self.has_waited(&name, since));
        self.queues(|queues| queues.ends(end));
        self.wrong.take().map_or(Ok(()), Err)
    }

    /// To be called if the run ended because no event was left. Then no task may be waiting for a CPU or running;
    /// otherwise the scheduler has lost it.
    ///
    /// # Errors
    /// The task, in one line.
    pub fn nobody_is_runnable(&self) -> Result<(), String> {
        match self.tasks.values().find(|seen| seen.at != Where::Asleep) {
            Some(Seen { name, at, .. }) => Err(format!(
                "at {} ns: nothing is left to happen, but {name} is {at:?}",
                self.now.0
            )),
            None => Ok(()),
        }
    }

    fn fail(&mut self, what: &str) {
        let now = self.now;
        self.wrong.get_or_insert_with(|| format!("at {} ns: {what}", now.0));
    }

    /// Passes an event to the queues, and records their error.
    fn queues(&mut self, tell: impl FnOnce(&mut Queues) -> Result<(), String>) {
        if let Some(Err(wrong)) = self.queues.as_mut().map(tell) {
            self.fail(&wrong);
        }
    }

    fn switched(&mut self, cpu: CpuId, next: Option<TraceTask<'_>>) {
        // No task has the number 0.
        let pid = next.map_or(0, |task| task.pid);
        self.schedule = Random(self.schedule ^ (cpu as u64) << 32 ^ u64::from(pid)).next();
    }

    fn at(&mut self, now: Time) {
        if now < self.now {
            self.fail(&format!("time moves back to {} ns", now.0));
        }
        self.now = now;
    }

    /// Where a task is. `None`: it has not been seen yet.
    fn place(&self, task: TraceTask<'_>) -> Option<Where> {
        let exited = || self.exited.contains(&task.pid).then_some(Where::Exited);
        self.tasks.get(&task.pid).map(|seen| seen.at).or_else(exited)
    }

    fn left(&mut self, cpu: CpuId, task: TraceTask<'_>, left: LeftAs) {
        let was = self.place(task);
        let at = match (was, left) {
            (Some(Where::Moving(on)), _) if on == cpu => Where::Waiting { since: self.now },
            (_, LeftAs::Preempted) => Where::Waiting { since: self.now },
            (_, LeftAs::Sleeping) => Where::Asleep,
            (_, LeftAs::Exited) => Where::Exited,
        };
        let now = self.now;
        self.queues(|queues| match at {
            Where::Waiting { .. } => queues.preempted(now, cpu, task.pid),
            Where::Exited => queues.exits(now, task.pid),
            _ => queues.leaves(now, task.pid),
        });
        if was != Some(Where::Running(cpu)) && was != Some(Where::Moving(cpu)) {
            self.fail(&format!("{} leaves CPU {cpu}, but was {was:?}", task.name()));
        }
        self.set(task, at);
    }

    fn set(&mut self, task: TraceTask<'_>, at: Where) {
        if at == Where::Exited {
            self.tasks.remove(&task.pid);
            self.exited.insert(task.pid);
            return;
        }
        let name = || task.name().to_owned();
        let seen = self.tasks.entry(task.pid).or_insert_with(|| Seen {
            name: name(),
            at,
            settled: false,
            sleeps: 0,
        });
        seen.at = at;
        seen.sleeps += u32::from(at == Where::Asleep);
        // A task is also moved because its CPU goes.
        let moved = matches!(at, Where::Moving(_)) && !self.unsteady;
        seen.settled |= moved || seen.sleeps > SLEEPS_AT_START;
    }

    fn got(&mut self, cpu: CpuId, task: TraceTask<'_>) {
        let was = self.place(task);
        // The first task of the workload, main, exists from the start.
        let first = !task.is_kernel_thread() && !std::mem::replace(&mut self.begun, true);
        if !first && !matches!(was, Some(Where::Waiting { .. })) {
            self.fail(&format!("{} runs on CPU {cpu}, but was {was:?}", task.name()));
        }
        if let Some(Where::Waiting { since }) = was {
            self.has_waited(task.name(), since);
        }
        let settled = self.tasks.get(&task.pid).is_some_and(|seen| seen.settled);
        let allowed = self.allowed.get(task.name()).filter(|_| settled);
        if allowed.is_some_and(|allowed| !allowed.contains(&cpu)) {
            self.fail(&format!("{} runs on CPU {cpu}, where it never may", task.name()));
        }
        let now = self.now;
        self.queues(|queues| queues.runs(now, cpu, task.pid, task.name()));
        self.set(task, Where::Running(cpu));
    }

    /// Checks that a task has not waited for longer than it may.
    fn has_waited(&mut self, name: &str, since: Time) {
        let Some(wait) = self.wait else { return };
        let waited = self.now.since(since);
        if waited <= wait.always_ns {
            return;
        }
        let alive = self.tasks.len() as u64;
        if waited > wait.always_ns + wait.each_task_ns * alive {
            self.fail(&format!("{name} waits for {waited} ns, beside {alive} tasks"));
        }
    }

    /// Checks that no task waits for long while all CPUs that it may ever use are idle. Such a task is queued on an
    /// idle CPU, which picks it after the interrupt. Two ticks are allowed, because the wakeup may be passed on by an
    /// interrupt that waits for kernel work. So two interrupts may come late. A task that waits for a CPU which is
    /// going offline waits until the CPU is offline, and three interrupts more.
    fn nobody_is_forgotten(&mut self, now: Time) {
        let all: Vec<CpuId> = (0..self.current.len()).collect();
        let mut forgotten = None;
        for seen in self.tasks.values() {
            let Where::Waiting { since } = seen.at else { continue };
            let allowed = self.allowed.get(&seen.name).filter(|_| seen.settled);
            let cpus = allowed.unwrap_or(&all);
            if cpus.iter().any(|&cpu| self.current[cpu].is_some()) {
                continue;
            }
            let idle = cpus.iter().map(|&cpu| self.idle_since[cpu]).max().unwrap_or(since);
            if now.since(idle.max(since)) > self.forgotten_ns {
                forgotten = Some(format!("{} waits since {} ns", seen.name, since.0));
            }
        }
        if let Some(task) = forgotten {
            self.fail(&format!("{task}, and all CPUs it may use idle"));
        }
    }
}

impl Tracer for Watching {
    fn switch(
        &mut self,
        now: Time,
        cpu: CpuId,
        previous: Option<(TraceTask<'_>, LeftAs)>,
        next: Option<TraceTask<'_>>,
    ) {
        let mut watch = self.0.borrow_mut();
        watch.at(now);
        watch.switched(cpu, next);
        let previous_pid = previous.map(|(task, _)| task.pid);
        if watch.current[cpu] != previous_pid {
            let had = watch.current[cpu];
            watch.fail(&format!("CPU {cpu} ran {had:?}, but {previous_pid:?} leaves it"));
        }
        match previous {
            Some((task, left)) => watch.left(cpu, task, left),
            None => watch.nobody_is_forgotten(now),
        }
        if let Some(task) = next {
            watch.got(cpu, task);
        } else {
            watch.idle_since[cpu] = now;
            watch.queues(|queues| queues.idles(now, cpu));
        }
        watch.current[cpu] = next.map(|task| task.pid);
    }

    fn wakeup(&mut self, now: Time, _: CpuId, task: TraceTask<'_>, target: CpuId) {
        let mut watch = self.0.borrow_mut();
        watch.at(now);
        let was = watch.place(task);
        let moves = watch.unsteady || watch.allowed_changes.contains(task.name());
        let at = match was {
            Some(Where::Running(cpu)) if moves => Where::Moving(cpu),
            None | Some(Where::Asleep) => Where::Waiting { since: now },
            _ => {
                watch.fail(&format!("{} is woken for CPU {target}, but was {was:?}", task.name()));
                return;
            }
        };
        watch.set(task, at);
        watch.queues(|queues| queues.waits(now, target, task.pid, task.name()));
    }

    fn value(&mut self, now: Time, name: &'static str, index: usize, _: u64) {
        let mut watch = self.0.borrow_mut();
        let seen = watch.tasks.get_mut(&(index as u32)).filter(|_| name == CAME_BACK);
        if let Some(Seen { at: Where::Waiting { since }, .. }) = seen {
            *since = now;
        }
    }

    fn queued(&mut self, now: Time, task: TraceTask<'_>) {
        let mut watch = self.0.borrow_mut();
        watch.at(now);
        watch.queues(|queues| queues.arrives(now, task.pid));
    }

    fn migrated(&mut self, now: Time, task: TraceTask<'_>, to: CpuId) {
        let mut watch = self.0.borrow_mut();
        watch.at(now);
        // A sleeping task with a delayed dequeue may be moved too, although it waits for nothing.
        let was = watch.place(task);
        if was != Some(Where::Asleep) {
            watch.queues(|queues| queues.waits(now, to, task.pid, task.name()));
        }
    }
}

/// The templates whose affinity changes.
fn allowed_changes(workload: &Workload) -> BTreeSet<String> {
    let changes = |op: &Op| matches!(op, Op::SetAffinity(_));
    let templates = workload.templates.iter();
    let own = templates.filter(|template| template.program.ops.iter().any(changes));
    let by_others = set_by_others(workload).map(|(of, _)| &workload.templates[of as usize]);
    own.chain(by_others).map(|template| template.name.clone()).collect()
}

/// What tasks allow to tasks of other templates: the number of the other template, and a list of CPUs.
fn set_by_others(workload: &Workload) -> impl Iterator<Item = (u32, Option<&Vec<u32>>)> {
    let programs = workload.templates.iter().map(|template| &template.program);
    programs.flat_map(|program| {
        program.ops.iter().filter_map(|op| match op {
            Op::SetAffinityOf { template, set } => {
                Some((*template, program.affinities[*set as usize].as_ref().and_then(Cpus::list)))
            }
            _ => None,
        })
    })
}

/// For each template, all CPUs that its program or another one ever allows. Only templates whose programs set their
/// CPUs before they do anything else are listed. Those that are ever bound to CPUs which may go offline are not listed.
fn allowed(
    machine: &Machine,
    workload: &Workload,
    unsteady: &[CpuId],
) -> BTreeMap<String, Vec<CpuId>> {
    let stays = |list: &Vec<u32>| {
        let mut cpus = (0..).zip(&machine.cpus);
        cpus.any(|(cpu, known)| list.contains(&known.os_index) && !unsteady.contains(&cpu))
    };
    let mut all = BTreeMap::new();
    for (number, template) in (0..).zip(&workload.templates) {
        let program = &template.program;
        let first = program.ops.iter().find(|op| matches!(op, Op::SetAffinity(_) | Op::Run { .. }));
        let later = program.ops.iter().filter_map(|op| match op {
            Op::SetAffinity(number) => {
                Some(program.affinities[*number as usize].as_ref().and_then(Cpus::list))
            }
            _ => None,
        });
        let by_others = set_by_others(workload).filter(|(of, _)| *of == number);
        let later = later.chain(by_others.map(|(_, cpus)| cpus));
        let at_start = template.affinity.as_ref();
        let set_first = matches!(first, Some(Op::SetAffinity(_)));
        if at_start.is_none() && !set_first {
            continue;
        }
        let lists: Option<Vec<&Vec<u32>>> = at_start.map(Some).into_iter().chain(later).collect();
        let Some(lists) = lists.filter(|lists| lists.iter().all(|list| stays(list))) else {
            continue;
        };
        let cpus = machine.cpus.iter().enumerate();
        let allowed = cpus.filter(|(_, cpu)| lists.iter().any(|list| list.contains(&cpu.os_index)));
        all.insert(template.name.clone(), allowed.map(|(cpu, _)| cpu).collect());
    }
    all
}
