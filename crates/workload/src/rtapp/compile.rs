//! Converts tasks, phases and events to programs over numbered objects.
//!
//! In rt-app, suspend and resume use a mutex and a condition variable with the same name, and resume wakes all tasks
//! that are suspended on it. They are converted to these operations. A timer is absolute if any of its uses says so. An
//! event of length 0 is dropped.
//!
//! rt-app's threads begin together. Each is created with no restriction of its CPUs, waits for the others, sleeps for
//! its "delay", and only then moves to its CPUs (`thread_body()` of rt-app 1.0).

use std::collections::{BTreeMap, BTreeSet};

use super::read::{Event, File, Phase, Task};
use super::values::Origin;
use super::{Loaded, TaskLog};
use crate::program::{ProgramBuilder, Times};
use crate::validate::{Fault, Invalid};
use crate::{
    Access, Better, Cpus, DEFAULT_GROUP_WEIGHT, GroupId, Metric, MetricKind, Op, Pattern,
    Placement, Region, Sharing, Slice, Template, TimerRef, Workload, WorkloadError, costs, graph,
};

/// A run without an end is written in pieces of this length. Any length above 0 would do.
const NS_PER_S: u64 = 1_000_000_000;

/// Creates the workload of a file.
pub(super) fn compile(file: File) -> Result<Loaded, WorkloadError> {
    let mut compiler = Compiler {
        workload: Workload { rates_of_tasks: true, ..graph::empty(&file.place.file) },
        memory_buffer_bytes: file.global.memory_buffer_bytes,
        names: Names::default(),
        absolute_timers: BTreeSet::new(),
        places: Vec::new(),
    };
    compiler.workload.duration_ns = file.global.duration_ns;
    compiler.workload.root_process = Some(compiler.workload.add_process("rt-app"));
    count_barriers(&file.tasks, &mut compiler)?;
    let tasks: BTreeMap<&str, u32> =
        file.tasks.iter().zip(0..).map(|(task, id)| (task.name.as_str(), id)).collect();
    for (id, task) in file.tasks.iter().enumerate() {
        compiler.add_task(task, &tasks)?;
        if task.instances > 0 {
            compiler.workload.start.push((id as u32, task.instances));
        }
    }
    compiler.finish_timers();
    compiler.add_wall_time();
    let places = compiler.places;
    let workload = compiler.workload;
    workload.validate().map_err(|invalid| place_of(&invalid, &file, &places))?;
    let mut notes = file.notes;
    notes.extend(waits_that_nothing_ends(&file.tasks));
    let logs = file.tasks.iter().map(task_log).collect();
    Ok(Loaded { workload, notes, logs })
}

fn task_log(task: &Task) -> TaskLog {
    let (mut lines, mut endless) = (0_u64, false);
    for phase in &task.phases {
        match phase.times {
            Times::Exactly(times) => lines = lines.saturating_add(times),
            Times::Forever => {
                endless = true;
                break;
            }
        }
    }
    let (before, each) = if endless { (lines, 1) } else { (0, lines) };
    let events = task.phases.iter().flat_map(|phase| &phase.events);
    let has_timer = events.into_iter().any(|(_, event)| matches!(event, Event::Timer { .. }));
    TaskLog { task: task.name.clone(), has_timer, before, each }
}

/// Notes about waits for which no task signals. rt-app allows these, but usually a name is misspelt.
fn waits_that_nothing_ends(tasks: &[Task]) -> Vec<String> {
    let events = || tasks.iter().flat_map(|task| &task.phases).flat_map(|phase| &phase.events);
    let woken: BTreeSet<&str> = events()
        .filter_map(|(_, event)| match event {
            Event::Signal(name) | Event::Broadcast(name) | Event::Resume(name) => Some(name),
            Event::Sync { condition, .. } => Some(condition),
            _ => None,
        })
        .map(String::as_str)
        .collect();
    events()
        .filter_map(|(place, event)| match event {
            Event::Wait { condition: name, .. } | Event::Suspend(name) => Some((place, name)),
            _ => None,
        })
        .filter(|(_, name)| !woken.contains(name.as_str()))
        .map(|(place, name)| {
            format!("{}: no task signals or resumes '{}'", place.path, name.escape_debug())
        })
        .collect()
}

/// The numbers of names of one kind of object, in order of first use.
struct Numbering<Name = String>(BTreeMap<Name, u32>);

impl<Name> Default for Numbering<Name> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<Name: Ord> Numbering<Name> {
    fn number(&mut self, name: impl Into<Name>) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry(name.into()).or_insert(next)
    }

    fn count(&self) -> u32 {
        self.0.len() as u32
    }
}

/// The owner of a mutex.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Mutex {
    /// All tasks that use this name.
    Named(String),
    /// The barrier with this number.
    Barrier(u32),
}

impl From<&str> for Mutex {
    fn from(name: &str) -> Self {
        Mutex::Named(name.to_string())
    }
}

/// Objects that rt-app creates when a name is first used.
#[derive(Default)]
struct Names {
    mutexes: Numbering<Mutex>,
    conditions: Numbering,
    barriers: Numbering,
    shared_timers: Numbering,
}

struct Compiler {
    workload: Workload,
    memory_buffer_bytes: u64,
    names: Names,
    /// Timers that some use calls "absolute": template (`None`: shared) and number.
    absolute_timers: BTreeSet<(Option<usize>, u32)>,
    /// For each template, the place in the file of each operation.
    places: Vec<Vec<Origin>>,
}

/// A task's program under construction, with the place of each operation.
#[derive(Default)]
struct Writer {
    program: ProgramBuilder,
    places: Vec<Origin>,
    own_timers: Numbering,
}

impl Writer {
    fn push(&mut self, place: &Origin, op: Op) {
        self.program.push(op);
        self.mark(place);
    }

    fn set_affinity(&mut self, place: &Origin, cpus: Option<Vec<u32>>) {
        let set = affinity(&mut self.program.program_mut().affinities, cpus);
        self.push(place, Op::SetAffinity(set));
    }

    /// Sets the place of all operations that have none.
    fn mark(&mut self, place: &Origin) {
        self.places.resize(self.program.len(), place.clone());
    }

    /// Adds a loop, like [`ProgramBuilder::repeat`].
    fn repeat(
        &mut self,
        place: &Origin,
        times: Times,
        body: impl FnOnce(&mut Writer) -> Result<(), WorkloadError>,
    ) -> Result<(), WorkloadError> {
        let mut program = std::mem::take(&mut self.program);
        let mut result = Ok(());
        program.repeat(times, |program| {
            std::mem::swap(&mut self.program, program);
            result = body(self);
            std::mem::swap(&mut self.program, program);
        });
        self.program = program;
        self.mark(place);
        result
    }
}

/// A barrier waits for every instance of every task that names it, as in rt-app.
fn count_barriers(tasks: &[Task], compiler: &mut Compiler) -> Result<(), WorkloadError> {
    for task in tasks {
        let mut used: BTreeMap<&str, usize> = BTreeMap::new();
        for (place, event) in task.phases.iter().flat_map(|phase| &phase.events) {
            let Event::Barrier(name) = event else { continue };
            if let Some(line) = used.insert(name, place.line) {
                let problem = format!("this task already waits at this barrier in line {line}");
                return Err(place.error(problem, "name each meeting point differently"));
            }
            let number = compiler.names.barriers.number(name.as_str()) as usize;
            let barriers = &mut compiler.workload.barriers;
            barriers.resize(barriers.len().max(number + 1), 0);
            if let Some(parties) = barriers.get_mut(number) {
                *parties = parties.saturating_add(task.instances);
            }
        }
    }
    Ok(())
}

impl Compiler {
    fn add_task(&mut self, task: &Task, tasks: &BTreeMap<&str, u32>) -> Result<(), WorkloadError> {
        let counter = self.workload.add_counter();
        let group = self.group(task);
        let mut writer = Writer::default();
        writer.push(&task.place, Op::Start { delay_ns: task.delay_ns });
        if let Some(ns) = task.slice_ns {
            writer.push(&task.place, Op::SetSlice { ns });
        }
        if task.cpus.is_some() && !has_cpus_by_phase(task) {
            writer.set_affinity(&task.place, task.cpus.clone());
        }
        writer.repeat(&task.place, task.times, |writer| {
            for phase in &task.phases {
                self.add_phase(writer, task, phase, counter, tasks)?;
            }
            writer.push(&task.place, Op::Count { counter, by: 1 });
            Ok(())
        })?;
        writer.program.program_mut().own_timers = writer.own_timers.count();
        self.places.push(writer.places);
        self.workload.templates.push(Template {
            name: task.name.clone(),
            process: 0,
            group,
            nice: task.nice,
            policy: task.scheduling.model(),
            affinity: None,
            delay_ns: 0,
            footprint_bytes: costs::SPINNER_FOOTPRINT_BYTES,
            program: writer.program.finish(),
            class: task.name.clone(),
        });
        self.add_metrics(task, counter);
        Ok(())
    }

    /// The task's group. rt-app moves each thread separately, creates missing groups on the path, and sets no weight
    /// (`cgroup_mkdir()` and `cgroup_attach_task()` of rt-app 1.0).
    fn group(&mut self, task: &Task) -> Option<GroupId> {
        let path = task.taskgroup.as_deref()?;
        self.workload.add_group(path, DEFAULT_GROUP_WEIGHT)
    }

    /// Adds a write of `bytes`. rt-app writes from the start of the thread's buffer, repeatedly, until all bytes are
    /// written. Parts of the buffer that events of different sizes write are separate regions.
    fn memory(&mut self, writer: &mut Writer, task: &Task, place: &Origin, bytes: u64) {
        let buffer = self.memory_buffer_bytes;
        for (part, times) in [(buffer, bytes / buffer), (bytes % buffer, 1)] {
            if part == 0 || times == 0 {
                continue;
            }
            let region = self.buffer(task, part);
            let slices = vec![Slice { region, write: true }];
            writer.program.repeat(Times::Exactly(times), |body| {
                body.access(Access::new(slices, Pattern::Stream));
            });
            writer.mark(place);
        }
    }

    /// The first `bytes` of the buffer of each thread of this task. They are on the nodes that the thread was bound to
    /// when it first touched them. They stay there when a later phase names other nodes.
    fn buffer(&mut self, task: &Task, bytes: u64) -> u32 {
        let nodes = nodes_at_first_touch(task);
        let placement = match nodes.is_empty() {
            true => Placement::FirstTouch,
            false => Placement::Bind(nodes.to_vec()),
        };
        let region = Region { bytes, sharing: Sharing::Thread, placement };
        let known = self.workload.regions.iter().position(|known| *known == region);
        known.map_or_else(|| self.workload.add_region(region), |number| number as u32)
    }

    fn add_phase(
        &mut self,
        writer: &mut Writer,
        task: &Task,
        phase: &Phase,
        counter: u32,
        tasks: &BTreeMap<&str, u32>,
    ) -> Result<(), WorkloadError> {
        // A phase without CPUs of its own returns to the task's CPUs.
        if has_cpus_by_phase(task) {
            writer.set_affinity(&phase.place, phase.cpus.clone().or_else(|| task.cpus.clone()));
        }
        if let Some(policy) = phase.policy {
            writer.push(&phase.place, Op::SetPolicy(policy));
        }
        if let Some(nice) = phase.nice {
            writer.push(&phase.place, Op::SetNice(nice));
        }
        if let Some(ns) = phase.slice_ns {
            writer.push(&phase.place, Op::SetSlice { ns });
        }
        if let Some(path) = &phase.taskgroup {
            let group = self.workload.add_group(path, DEFAULT_GROUP_WEIGHT);
            writer.push(&phase.place, Op::SetGroup(group));
        }
        writer.repeat(&phase.place, phase.times, |writer| {
            for (place, event) in &phase.events {
                match event {
                    Event::Memory(bytes) => self.memory(writer, task, place, *bytes),
                    Event::RunForEver => run_for_ever(writer, place),
                    _ => self.add_event(writer, place, event, tasks)?,
                }
            }
            if phase.times == Times::Forever {
                // The task's own loop never completes, so the phase's loops are counted.
                writer.push(&phase.place, Op::Count { counter, by: 1 });
            }
            Ok(())
        })
    }

    fn add_event(
        &mut self,
        writer: &mut Writer,
        place: &Origin,
        event: &Event,
        tasks: &BTreeMap<&str, u32>,
    ) -> Result<(), WorkloadError> {
        let names = &mut self.names;
        let op = match event {
            Event::Run(0) | Event::Runtime(0) | Event::Sleep(0) => return Ok(()),
            Event::Memory(_)
            | Event::RunForEver
            | Event::Io(0)
            | Event::Timer { period_ns: 0, .. } => return Ok(()),
            Event::Run(ns) => Op::Run { ns: *ns },
            Event::Runtime(ns) => Op::Runtime { ns: *ns },
            Event::Sleep(ns) => Op::Sleep { ns: *ns },
            // write() of the buffer to /dev/null, which does not read the buffer.
            Event::Io(bytes) => {
                Op::Run { ns: bytes.div_ceil(self.memory_buffer_bytes) * costs::NULL_WRITE_NS }
            }
            Event::Lock(name) => Op::Lock(names.mutexes.number(name.as_str())),
            Event::Unlock(name) => Op::Unlock(names.mutexes.number(name.as_str())),
            Event::Signal(name) => Op::Signal(names.conditions.number(name.as_str())),
            Event::Broadcast(name) => Op::Broadcast(names.conditions.number(name.as_str())),
            Event::Wait { condition, mutex } => Op::Wait {
                condition: names.conditions.number(condition.as_str()),
                mutex: names.mutexes.number(mutex.as_str()),
            },
            // rt-app also makes two calls here, so the woken task may run in between.
            Event::Sync { condition, mutex } => {
                let condition = names.conditions.number(condition.as_str());
                writer.push(place, Op::Signal(condition));
                Op::Wait { condition, mutex: names.mutexes.number(mutex.as_str()) }
            }
            Event::Barrier(name) => self.meet(writer, place, name),
            Event::Yield => Op::Yield,
            Event::Fork(name) => fork(place, name, tasks)?,
            Event::Timer { name, period_ns, absolute } => {
                self.timer(writer, name, *period_ns, *absolute)
            }
            Event::Suspend(name) | Event::Resume(name) => {
                let suspends = matches!(event, Event::Suspend(_));
                self.suspend_or_resume(writer, place, name, suspends)
            }
        };
        writer.push(place, op);
        self.workload.mutexes = self.names.mutexes.count();
        self.workload.conditions = self.names.conditions.count();
        self.workload.shared_timers = self.names.shared_timers.count();
        Ok(())
    }

    /// Acquires the mutex with this name, and waits for its condition or wakes all waiters. Returns the last operation,
    /// which releases the mutex.
    fn suspend_or_resume(
        &mut self,
        writer: &mut Writer,
        place: &Origin,
        name: &str,
        suspends: bool,
    ) -> Op {
        let mutex = self.names.mutexes.number(name);
        let condition = self.names.conditions.number(name);
        writer.push(place, Op::Lock(mutex));
        let middle =
            if suspends { Op::Wait { condition, mutex } } else { Op::Broadcast(condition) };
        writer.push(place, middle);
        Op::Unlock(mutex)
    }

    /// Acquires the barrier's mutex and waits for the others. Returns the last operation, which releases the mutex.
    fn meet(&mut self, writer: &mut Writer, place: &Origin, name: &str) -> Op {
        let barrier = self.names.barriers.number(name);
        let mutex = self.names.mutexes.number(Mutex::Barrier(barrier));
        writer.push(place, Op::Lock(mutex));
        writer.push(place, Op::Meet { barrier, mutex });
        Op::Unlock(mutex)
    }

    /// Adds a timer. If its name begins with "unique", each instance has a timer of its own.
    fn timer(&mut self, writer: &mut Writer, name: &str, period_ns: u64, absolute: bool) -> Op {
        let (owner, timer) = if name.starts_with("unique") {
            (Some(self.workload.templates.len()), TimerRef::Own(writer.own_timers.number(name)))
        } else {
            (None, TimerRef::Shared(self.names.shared_timers.number(name)))
        };
        if absolute {
            let (TimerRef::Own(number) | TimerRef::Shared(number)) = timer;
            self.absolute_timers.insert((owner, number));
        }
        Op::Timer { timer, period_ns, absolute }
    }

    /// In rt-app, the mode belongs to the timer, not to the event.
    fn finish_timers(&mut self) {
        for (template, id) in self.workload.templates.iter_mut().zip(0..) {
            for op in &mut template.program.ops {
                let Op::Timer { timer, absolute, .. } = op else { continue };
                let wanted = match *timer {
                    TimerRef::Own(number) => (Some(id), number),
                    TimerRef::Shared(number) => (None, number),
                };
                *absolute = self.absolute_timers.contains(&wanted);
            }
        }
    }

    fn add_metrics(&mut self, task: &Task, counter: u32) {
        let name = &task.name;
        let class = name.clone();
        let latency = |figure: &str, kind| Metric {
            name: format!("{name} {figure}"),
            unit: "us",
            better: Better::Lower,
            kind,
        };
        let mean = MetricKind::MeanWakeupLatencyUs { class: class.clone() };
        let p99 = MetricKind::WakeupLatencyUs { class, percentile_milli: 99_000 };
        self.workload.metrics.extend([latency("wu_lat avg", mean), latency("wu_lat p99", p99)]);
        if can_complete_a_loop(task) {
            let loops = graph::rate(&format!("{name} loops/s"), "loops/s", counter, 1.0);
            self.workload.metrics.push(loops);
        }
    }

    fn add_wall_time(&mut self) {
        if self.workload.duration_ns.is_none() {
            self.workload.metrics.push(Metric {
                name: "time".to_string(),
                unit: "s",
                better: Better::Lower,
                kind: MetricKind::WallSeconds,
            });
        }
    }
}

/// The nodes at the first touch. A phase that names no nodes keeps those of the phase before (`set_thread_membind()` of
/// rt-app).
fn nodes_at_first_touch(task: &Task) -> &[u32] {
    let touches =
        |phase: &Phase| phase.events.iter().any(|(_, event)| matches!(event, Event::Memory(1..)));
    let mut nodes = &task.nodes;
    for phase in &task.phases {
        if !phase.nodes.is_empty() {
            nodes = &phase.nodes;
        }
        if touches(phase) {
            break;
        }
    }
    nodes
}

/// Whether no event in a counted loop runs for ever.
fn can_complete_a_loop(task: &Task) -> bool {
    let endless = task.phases.iter().position(|phase| phase.times == Times::Forever);
    let reached = task.phases.iter().take(endless.map_or(usize::MAX, |index| index + 1));
    let mut events = reached.flat_map(|phase| &phase.events);
    events.all(|(_, event)| !matches!(event, Event::RunForEver))
}

fn run_for_ever(writer: &mut Writer, place: &Origin) {
    writer.program.repeat(Times::Forever, |body| {
        body.push(Op::Run { ns: NS_PER_S });
    });
    writer.mark(place);
}

fn has_cpus_by_phase(task: &Task) -> bool {
    task.phases.iter().any(|phase| phase.cpus.is_some())
}

fn affinity(affinities: &mut Vec<Option<Cpus>>, cpus: Option<Vec<u32>>) -> u32 {
    let cpus = cpus.map(Cpus::List);
    let known = affinities.iter().position(|known| *known == cpus);
    known.unwrap_or_else(|| {
        affinities.push(cpus);
        affinities.len() - 1
    }) as u32
}

fn fork(place: &Origin, name: &str, tasks: &BTreeMap<&str, u32>) -> Result<Op, WorkloadError> {
    tasks.get(name).map(|task| Op::Fork(*task)).ok_or_else(|| {
        let known: Vec<&str> = tasks.keys().copied().collect();
        let problem = format!("no task '{}'", name.escape_debug());
        place.error(problem, format!("fork one of {}", known.join(", ").escape_debug()))
    })
}

/// Describes a broken invariant in terms of the file.
fn place_of(invalid: &Invalid, file: &File, places: &[Vec<Origin>]) -> WorkloadError {
    let op_place = invalid.template.as_ref().and_then(|(template, _)| {
        let ops = places.get(*template as usize)?;
        ops.get(invalid.op? as usize)
    });
    let task_place = invalid
        .template
        .as_ref()
        .and_then(|(template, _)| file.tasks.get(*template as usize))
        .map(|task| &task.place);
    let place = op_place.or(task_place).unwrap_or(&file.place);
    let place = if place.path.is_empty() {
        Origin { path: "tasks".to_string(), ..place.clone() }
    } else {
        place.clone()
    };
    let (problem, remedy) = explain(&invalid.fault);
    place.error(problem, remedy)
}

fn explain(fault: &Fault) -> (String, &'static str) {
    let (problem, remedy) = match fault {
        Fault::NothingStarts => ("no task starts", "give a task an \"instance\" of 1 or more"),
        Fault::TooManyTasks(_) => return (fault.to_string(), "lower \"instance\""),
        Fault::LoopConsumesNoTime(_) => (
            "loops without consuming time or blocking",
            "add a run, sleep, timer or wait, or give \"loop\" a small number",
        ),
        Fault::LockedTwice(_) => ("the task already holds this mutex", "unlock it before"),
        Fault::NotHeld(_) => ("the task does not hold this mutex here", "lock it before"),
        Fault::LoopChangesMutex(_) => (
            "one run of this loop changes whether a mutex is locked",
            "lock and unlock in the same phase",
        ),
        Fault::ExitsHolding(_) => ("a mutex is never unlocked", "unlock it after its last use"),
        Fault::EmptyBarrier(_) => (
            "only tasks that start no instance wait at a barrier",
            "give one of them an \"instance\" of 1 or more",
        ),
        Fault::ForkExplodes => (
            "cyclic: the task forks itself, directly or through others, without end",
            "fork outside of loops, once, and after a run or sleep",
        ),
        _ => return (fault.to_string(), "correct it"),
    };
    (problem.to_string(), remedy)
}
