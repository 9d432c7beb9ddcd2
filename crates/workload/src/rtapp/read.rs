//! Reads tasks, phases and events from JSON values, and keeps the place of everything that may cause an error.

use std::collections::{BTreeMap, BTreeSet};

use super::json::{Located, Member, Value};
use super::values::{
    MAX_NUMBER, Origin, Read, boolean, fields, find, microseconds, not_empty, number, numbers,
    object, only_once, scalar, text, times,
};
use crate::program::Times;
use crate::{Policy, WorkloadError};

/// The kernel's largest number of CPUs, less one (`NR_CPUS` of 8192).
const MAX_CPU: i64 = 8_191;

/// The kernel's largest number of NUMA nodes, less one (`NODES_SHIFT` of 10).
const MAX_NODE: i64 = 1_023;

const NS_PER_S: u64 = 1_000_000_000;

/// A whole file.
pub(super) struct File {
    pub(super) place: Origin,
    pub(super) global: Global,
    pub(super) tasks: Vec<Task>,
    /// Notes about what the model ignores in the file, one line each.
    pub(super) notes: Vec<String>,
}

/// The part of the "global" object that the model uses.
pub(super) struct Global {
    pub(super) duration_ns: Option<u64>,
    default_policy: SchedulingPolicy,
    pub(super) memory_buffer_bytes: u64,
}

/// rt-app's default "mem_buffer_size": 4 MB.
const DEFAULT_MEMORY_BUFFER_BYTES: u64 = 4 << 20;

/// An entry of "tasks".
pub(super) struct Task {
    pub(super) place: Origin,
    pub(super) name: String,
    pub(super) instances: u32,
    pub(super) times: Times,
    pub(super) delay_ns: u64,
    pub(super) scheduling: SchedulingPolicy,
    pub(super) nice: i8,
    pub(super) slice_ns: Option<u64>,
    pub(super) cpus: Option<Vec<u32>>,
    pub(super) nodes: Vec<u32>,
    pub(super) taskgroup: Option<String>,
    pub(super) phases: Vec<Phase>,
}

/// An entry of "phases".
pub(super) struct Phase {
    pub(super) place: Origin,
    pub(super) times: Times,
    pub(super) policy: Option<Policy>,
    pub(super) nice: Option<i8>,
    pub(super) slice_ns: Option<u64>,
    pub(super) cpus: Option<Vec<u32>>,
    pub(super) nodes: Vec<u32>,
    pub(super) taskgroup: Option<String>,
    pub(super) events: Vec<(Origin, Event)>,
}

/// An event. Times are in ns.
#[derive(Debug)]
pub(super) enum Event {
    Run(u64),
    /// A run with a negative length. rt-app reads it as half a million years.
    RunForEver,
    Runtime(u64),
    Sleep(u64),
    Memory(u64),
    Io(u64),
    Lock(String),
    Unlock(String),
    Signal(String),
    Broadcast(String),
    Wait {
        condition: String,
        mutex: String,
    },
    Sync {
        condition: String,
        mutex: String,
    },
    Barrier(String),
    Timer {
        name: String,
        period_ns: u64,
        absolute: bool,
    },
    Suspend(String),
    Resume(String),
    Yield,
    Fork(String),
}

/// The values of "policy".
#[derive(Clone, Copy, PartialEq)]
pub(super) enum SchedulingPolicy {
    Fair(Policy),
    /// SCHED_FIFO or SCHED_RR.
    RealTime(&'static str),
}

impl SchedulingPolicy {
    /// The policy that the model uses.
    pub(super) fn model(self) -> Policy {
        match self {
            SchedulingPolicy::Fair(policy) => policy,
            SchedulingPolicy::RealTime(_) => Policy::Normal,
        }
    }
}

/// The nice value that replaces a real-time priority. It is the highest weight in the fair class.
const REAL_TIME_NICE: i8 = -20;

/// Reads a parsed file.
pub(super) fn file(root: &Located, file: &str) -> Read<File> {
    let top = Origin { file: file.to_string(), line: root.line, path: String::new() };
    let sections = object(&top, root)?;
    only_once(&top, sections, |_| false)?;
    let mut notes = Vec::new();
    let mut global = Global {
        duration_ns: None,
        default_policy: SchedulingPolicy::Fair(Policy::Normal),
        memory_buffer_bytes: DEFAULT_MEMORY_BUFFER_BYTES,
    };
    let mut tasks_section = None;
    for member in sections {
        let place = top.below(member);
        match member.key.as_str() {
            "global" => read_global(&place, &member.node, &mut global, &mut notes)?,
            "resources" => read_resources(&place, &member.node)?,
            "tasks" => tasks_section = Some((place, &member.node)),
            _ => {
                return Err(
                    place.error("unknown section", "the sections are tasks, resources, global")
                );
            }
        }
    }
    let Some((place, node)) = tasks_section else {
        let remedy =
            "a complete file has a \"tasks\" object; merge fragments with rt-app's merge.py";
        return Err(Origin { path: "tasks".to_string(), ..top }.error("missing", remedy));
    };
    let mut tasks = Vec::new();
    for member in object(&place, node)? {
        tasks.push(read_task(&place.below(member), member, &global, &mut notes)?);
    }
    if tasks.is_empty() {
        return Err(place.error("no task", "define at least one"));
    }
    rename_equal_tasks(&mut tasks);
    Ok(File { place: top, global, tasks, notes })
}

/// Makes names unique by appending the first free number, as workgen does.
fn rename_equal_tasks(tasks: &mut [Task]) {
    let mut taken = BTreeSet::new();
    let mut next_suffix: BTreeMap<String, u64> = BTreeMap::new();
    for task in tasks {
        let mut name = task.name.clone();
        while !taken.insert(name.clone()) {
            let suffix = next_suffix.entry(task.name.clone()).or_insert(1);
            name = format!("{}{suffix}", task.name);
            *suffix += 1;
        }
        task.name = name;
    }
}

fn read_global(
    top: &Origin,
    node: &Located,
    global: &mut Global,
    notes: &mut Vec<String>,
) -> Read<()> {
    let members = object(top, node)?;
    only_once(top, members, |_| false)?;
    for member in members {
        let place = top.below(member);
        let node = &member.node;
        match member.key.as_str() {
            "duration" => global.duration_ns = duration(&place, node)?,
            "default_policy" => global.default_policy = policy(&place, node)?,
            "mem_buffer_size" => {
                global.memory_buffer_bytes = number(&place, node, 1, MAX_NUMBER)? as u64;
            }
            "pi_enabled" => {
                if boolean(&place, node)? {
                    notes.push(format!("{}: priority inheritance is not simulated", place.path));
                }
            }
            "lock_pages" | "gnuplot" | "cumulative_slack" => {
                boolean(&place, node)?;
            }
            "logdir" | "log_basename" => {
                text(&place, node)?;
            }
            "io_device" => {
                if text(&place, node)? != "/dev/null" {
                    let problem = "devices are not simulated, iorun writes to /dev/null";
                    notes.push(format!("{}: {problem}", place.path));
                }
            }
            "calibration" => calibration(&place, node)?,
            // "frag" is a key of old versions. Debian's examples still have it.
            "ftrace" | "log_size" | "frag" => scalar(&place, node)?,
            _ => notes.push(format!("{}: rt-app knows no such key and ignores it", place.path)),
        }
    }
    Ok(())
}

fn duration(place: &Origin, node: &Located) -> Read<Option<u64>> {
    match number(place, node, -1, MAX_NUMBER)? {
        -1 => Ok(None),
        0 => Err(place.error("a run of 0 s", "give seconds, or -1 for until all tasks exit")),
        seconds => Ok(Some(seconds as u64 * NS_PER_S)),
    }
}

/// Either ns per loop, or "CPU3". Only the form is checked, because `run` means time at full speed here.
fn calibration(place: &Origin, node: &Located) -> Read<()> {
    match &node.value {
        Value::Integer(1..) => Ok(()),
        Value::Text(text)
            if text.strip_prefix("CPU").is_some_and(|cpu| cpu.parse::<u16>().is_ok()) =>
        {
            Ok(())
        }
        _ => Err(place.error("not a calibration", "write \"CPU0\" or the ns of one loop, above 0")),
    }
}

/// Resources are created where they are used. As in rt-app, this section is only checked.
fn read_resources(top: &Origin, node: &Located) -> Read<()> {
    const TYPES: [&str; 10] = [
        "mutex",
        "wait",
        "signal",
        "broadcast",
        "sync",
        "timer",
        "timer_unique",
        "suspend",
        "resume",
        "barrier",
    ];
    for member in object(top, node)? {
        let place = top.below(member);
        for field in object(&place, &member.node)? {
            let place = place.below(field);
            let value = text(&place, &field.node)?;
            match field.key.as_str() {
                "type" if TYPES.contains(&value) => {}
                "type" => {
                    let problem = format!("unknown type '{}'", value.escape_debug());
                    return Err(place.error(problem, format!("choose from {}", TYPES.join(", "))));
                }
                "target" => {}
                _ => return Err(place.error("unknown key", "a resource has a type and a target")),
            }
        }
    }
    Ok(())
}

fn read_task(
    place: &Origin,
    member: &Member,
    global: &Global,
    notes: &mut Vec<String>,
) -> Read<Task> {
    let members = object(place, &member.node)?;
    only_once(place, members, is_event)?;
    let phases_member = find(members, "phases");
    let mut task = empty_task(place, member);
    let chosen = find(members, "policy").map(|found| policy(&place.below(found), &found.node));
    task.scheduling = chosen.transpose()?.unwrap_or(global.default_policy);
    if let Some(found) = find(members, "taskgroup") {
        task.taskgroup = taskgroup(&place.below(found), &found.node)?;
    }
    let (mut priority, mut slice) = (None, None);
    for member in members {
        let place = place.below(member);
        let node = &member.node;
        match member.key.as_str() {
            "instance" => task.instances = number(&place, node, 0, MAX_NUMBER)? as u32,
            "loop" => task.times = times(&place, node)?,
            "delay" => task.delay_ns = microseconds(&place, node)?,
            "policy" | "taskgroup" => {}
            "priority" => priority = Some((place, node)),
            "dl-runtime" => slice = Some((place, node)),
            "dl-period" | "dl-deadline" => notes.push(deadline_note(&place, node)?),
            "cpus" => task.cpus = Some(numbers(&place, node, "CPU", MAX_CPU)?),
            "membind_nodes" | "nodes_membind" | "numa_membind" => {
                task.nodes = numbers(&place, node, "node", MAX_NODE)?;
            }
            "phases" => task.phases = read_phases(&place, node, &task, notes)?,
            key if phases_member.is_none() && event_of(key).is_some() => {}
            _ => return Err(unknown_task_key(&place, &member.key, phases_member.is_some())),
        }
    }
    task.nice = nice(task.scheduling, priority)?;
    task.slice_ns = custom_slice(task.scheduling, true, slice, notes)?;
    if let SchedulingPolicy::RealTime(name) = task.scheduling {
        notes.push(real_time_note(place, name));
    }
    may_have_group(place, task.scheduling, task.taskgroup.is_some())?;
    if phases_member.is_none() {
        task.phases = vec![events_of_task(place, members, &task.name)?];
    }
    Ok(task)
}

/// rt-app refuses a task group together with a policy of another class (`check_taskgroup_policy_dep()`).
fn may_have_group(place: &Origin, policy: SchedulingPolicy, has_group: bool) -> Read<()> {
    match policy {
        SchedulingPolicy::RealTime(name) if has_group => Err(place.error(
            format!("a taskgroup with policy {name}"),
            "only SCHED_OTHER, SCHED_BATCH and SCHED_IDLE have task groups",
        )),
        _ => Ok(()),
    }
}

fn empty_task(place: &Origin, member: &Member) -> Task {
    Task {
        place: place.clone(),
        name: member.key.clone(),
        instances: 1,
        times: Times::Forever,
        delay_ns: 0,
        scheduling: SchedulingPolicy::Fair(Policy::Normal),
        nice: 0,
        slice_ns: None,
        cpus: None,
        nodes: Vec::new(),
        taskgroup: None,
        phases: Vec::new(),
    }
}

fn unknown_task_key(place: &Origin, key: &str, has_phases: bool) -> WorkloadError {
    if has_phases && event_of(key).is_some() {
        return place.error("an event beside phases", "move it into a phase");
    }
    match key {
        "exec" | "period" | "deadline" | "lock_order" | "resources" | "sleep_time" => place.error(
            "a key of rt-app before version 1.0",
            "describe the task by events (run, sleep, timer, lock, ...)",
        ),
        "util_min" | "util_max" => {
            place.error("not supported: utilisation clamps are not simulated", "remove it")
        }
        _ => place.error(
            "unknown key",
            "a task has instance, loop, delay, policy, priority, dl-runtime, cpus, membind_nodes, \
             taskgroup, and phases or events (run, runtime, sleep, timer, lock, unlock, wait, signal, broad, \
             sync, barrier, suspend, resume, yield, fork, mem, iorun, each with a suffix if need be)",
        ),
    }
}

/// The single phase of a task without "phases". The phase's loop is the task's loop.
fn events_of_task(place: &Origin, members: &[Member], task: &str) -> Read<Phase> {
    let mut phase = empty_phase(place);
    for member in members {
        if let Some(event) = event_of(&member.key) {
            let place = place.below(member);
            let event = read_event(&place, event, &member.node, task)?;
            phase.events.push((place, event));
        }
    }
    require_events(phase)
}

fn empty_phase(place: &Origin) -> Phase {
    Phase {
        place: place.clone(),
        times: Times::Exactly(1),
        policy: None,
        nice: None,
        slice_ns: None,
        cpus: None,
        nodes: Vec::new(),
        taskgroup: None,
        events: Vec::new(),
    }
}

fn require_events(phase: Phase) -> Read<Phase> {
    if phase.events.is_empty() {
        return Err(phase.place.error("no event", "add at least one, such as \"run\" : 1000"));
    }
    Ok(phase)
}

/// Reads phases in order. A phase without a scheduling policy or task group of its own keeps those of the phase before.
fn read_phases(
    top: &Origin,
    node: &Located,
    task: &Task,
    notes: &mut Vec<String>,
) -> Read<Vec<Phase>> {
    let mut phases = Vec::new();
    let (mut policy, mut has_group) = (task.scheduling, task.taskgroup.is_some());
    for member in object(top, node)? {
        let (place, node) = (top.below(member), &member.node);
        let phase = read_phase(&place, node, &task.name, &mut policy, notes)?;
        has_group |= phase.taskgroup.is_some();
        may_have_group(&place, policy, has_group)?;
        phases.push(phase);
        let place = phases.last().map(|phase: &Phase| &phase.place);
        if let (SchedulingPolicy::RealTime(name), Some(place)) = (policy, place)
            && policy != task.scheduling
        {
            notes.push(real_time_note(place, name));
        }
    }
    if phases.is_empty() {
        return Err(top.error("no phase", "add one, or put the events into the task"));
    }
    Ok(phases)
}

fn read_phase(
    top: &Origin,
    node: &Located,
    task: &str,
    current: &mut SchedulingPolicy,
    notes: &mut Vec<String>,
) -> Read<Phase> {
    let members = object(top, node)?;
    only_once(top, members, is_event)?;
    let mut phase = empty_phase(top);
    let (mut priority, mut slice) = (None, None);
    for member in members {
        let place = top.below(member);
        let node = &member.node;
        match member.key.as_str() {
            "loop" => phase.times = times(&place, node)?,
            "cpus" => phase.cpus = Some(numbers(&place, node, "CPU", MAX_CPU)?),
            "policy" => {
                *current = policy(&place, node)?;
                phase.policy = Some(current.model());
            }
            "priority" => priority = Some((place, node)),
            "dl-runtime" => slice = Some((place, node)),
            "dl-period" | "dl-deadline" => notes.push(deadline_note(&place, node)?),
            "membind_nodes" | "nodes_membind" | "numa_membind" => {
                phase.nodes = numbers(&place, node, "node", MAX_NODE)?;
            }
            "taskgroup" => phase.taskgroup = taskgroup(&place, node)?,
            key => match event_of(key) {
                Some(event) => {
                    let event = read_event(&place, event, node, task)?;
                    phase.events.push((place, event));
                }
                None => return Err(unknown_phase_key(&place)),
            },
        }
    }
    if phase.policy.is_some() || priority.is_some() {
        phase.nice = Some(nice(*current, priority)?);
    }
    phase.slice_ns = custom_slice(*current, phase.nice.is_some(), slice, notes)?;
    require_events(phase)
}

fn unknown_phase_key(place: &Origin) -> WorkloadError {
    let remedy = "a phase has loop, cpus, policy, priority, dl-runtime, taskgroup and events (run, runtime, sleep, \
        timer, lock, unlock, wait, signal, broad, sync, barrier, suspend, resume, yield, fork, mem, iorun)";
    place.error("unknown key", remedy)
}

fn real_time_note(place: &Origin, policy: &str) -> String {
    format!(
        "{}: {policy} runs as SCHED_OTHER with nice {REAL_TIME_NICE}, real-time classes are not \
         simulated",
        place.path
    )
}

/// The events. A name that begins with another name stands before it ("runtime" before "run").
const EVENTS: [&str; 18] = [
    "runtime",
    "run",
    "sleep",
    "mem",
    "iorun",
    "lock",
    "unlock",
    "signal",
    "broadcast",
    "broad",
    "wait",
    "sync",
    "barrier",
    "timer",
    "suspend",
    "resume",
    "yield",
    "fork",
];

/// The event that a key means: its name, or its name with a suffix that makes it unique. The suffix begins with a
/// digit, '_', '-', '.' or a capital letter. rt-app accepts any suffix, but then "runtme" would count as "run".
fn event_of(key: &str) -> Option<&'static str> {
    EVENTS.into_iter().find(|event| {
        key.strip_prefix(event).is_some_and(|suffix| {
            suffix.chars().next().is_none_or(|first| {
                first.is_ascii_digit() || first.is_ascii_uppercase() || "_-.".contains(first)
            })
        })
    })
}

fn is_event(key: &str) -> bool {
    event_of(key).is_some()
}

fn read_event(place: &Origin, event: &str, node: &Located, task: &str) -> Read<Event> {
    let name = || text(place, node).and_then(|name| not_empty(place, name));
    Ok(match event {
        "run" if matches!(node.value, Value::Integer(..0)) => Event::RunForEver,
        "run" => Event::Run(microseconds(place, node)?),
        "runtime" => Event::Runtime(microseconds(place, node)?),
        "sleep" => Event::Sleep(microseconds(place, node)?),
        "mem" => Event::Memory(number(place, node, 0, MAX_NUMBER)? as u64),
        "iorun" => Event::Io(number(place, node, 0, MAX_NUMBER)? as u64),
        "lock" => Event::Lock(name()?),
        "unlock" => Event::Unlock(name()?),
        "signal" => Event::Signal(name()?),
        "broad" | "broadcast" => Event::Broadcast(name()?),
        "barrier" => Event::Barrier(name()?),
        "resume" => Event::Resume(name()?),
        "fork" => Event::Fork(name()?),
        "yield" => {
            scalar(place, node)?;
            Event::Yield
        }
        "suspend" => Event::Suspend(suspend_name(place, node, task)?),
        "wait" => {
            let (condition, mutex) = condition_and_mutex(place, node)?;
            Event::Wait { condition, mutex }
        }
        "sync" => {
            let (condition, mutex) = condition_and_mutex(place, node)?;
            Event::Sync { condition, mutex }
        }
        _ => read_timer(place, node)?,
    })
}

/// The name of a suspend. If none is given, it is the task's name, as in workgen.
fn suspend_name(place: &Origin, node: &Located, task: &str) -> Read<String> {
    match &node.value {
        Value::Absent => Ok(task.to_string()),
        Value::Text(name) if name.is_empty() => Ok(task.to_string()),
        _ => text(place, node).map(str::to_string),
    }
}

fn condition_and_mutex(place: &Origin, node: &Located) -> Read<(String, String)> {
    let fields = fields(place, node, &["ref", "mutex"])?;
    match fields.as_slice() {
        [Some((ref_place, condition)), Some((mutex_place, mutex))] => Ok((
            not_empty(ref_place, text(ref_place, condition)?)?,
            not_empty(mutex_place, text(mutex_place, mutex)?)?,
        )),
        _ => {
            let remedy = "write { \"ref\" : condition, \"mutex\" : mutex }";
            Err(place.error("\"ref\" or \"mutex\" is missing", remedy))
        }
    }
}

fn read_timer(place: &Origin, node: &Located) -> Read<Event> {
    let remedy = "write { \"ref\" : \"unique\", \"period\" : us }";
    let fields = fields(place, node, &["ref", "period", "mode"])?;
    let [Some((ref_place, name)), Some((period_place, period)), mode] = fields.as_slice() else {
        return Err(place.error("\"ref\" or \"period\" is missing", remedy));
    };
    let absolute = match mode {
        None => false,
        Some((mode_place, mode)) => match text(mode_place, mode)? {
            "relative" => false,
            "absolute" => true,
            other => {
                let problem = format!("unknown mode '{}'", other.escape_debug());
                return Err(mode_place.error(problem, "choose relative or absolute"));
            }
        },
    };
    let name = not_empty(ref_place, text(ref_place, name)?)?;
    Ok(Event::Timer { name, period_ns: microseconds(period_place, period)?, absolute })
}

fn taskgroup(place: &Origin, node: &Located) -> Read<Option<String>> {
    match text(place, node)? {
        "" => Ok(None),
        path if path.starts_with('/') => Ok(Some(path.to_string())),
        _ => Err(place.error("not a cgroup path", "begin it with /")),
    }
}

fn policy(place: &Origin, node: &Located) -> Read<SchedulingPolicy> {
    match text(place, node)? {
        "SCHED_OTHER" => Ok(SchedulingPolicy::Fair(Policy::Normal)),
        "SCHED_BATCH" => Ok(SchedulingPolicy::Fair(Policy::Batch)),
        "SCHED_IDLE" => Ok(SchedulingPolicy::Fair(Policy::Idle)),
        "SCHED_FIFO" => Ok(SchedulingPolicy::RealTime("SCHED_FIFO")),
        "SCHED_RR" => Ok(SchedulingPolicy::RealTime("SCHED_RR")),
        other => {
            let remedy = "choose from SCHED_OTHER, SCHED_BATCH, SCHED_IDLE, SCHED_FIFO, SCHED_RR";
            Err(place.error(format!("'{}' is not supported", other.escape_debug()), remedy))
        }
    }
}

/// The slice that a task asks for with "dl-runtime". rt-app uses it for SCHED_OTHER and SCHED_BATCH (since 2025). In a
/// phase, it does so only if the phase has a policy or priority of its own (`sets_priority`).
fn custom_slice(
    policy: SchedulingPolicy,
    sets_priority: bool,
    given: Option<(Origin, &Located)>,
    notes: &mut Vec<String>,
) -> Read<Option<u64>> {
    let Some((place, node)) = given else { return Ok(None) };
    let ns = microseconds(&place, node)?;
    let reason = match policy {
        SchedulingPolicy::RealTime(name) => format!("{name} has no slices of a task's own"),
        SchedulingPolicy::Fair(Policy::Idle) => "rt-app sets no slice of SCHED_IDLE".to_string(),
        SchedulingPolicy::Fair(_) if !sets_priority => {
            "rt-app ignores it in a phase without policy or priority".to_string()
        }
        SchedulingPolicy::Fair(_) => return Ok((ns > 0).then_some(ns)),
    };
    notes.push(format!("{}: {reason}", place.path));
    Ok(None)
}

fn deadline_note(place: &Origin, node: &Located) -> Read<String> {
    microseconds(place, node)?;
    Ok(format!("{}: only SCHED_DEADLINE has it, which is not simulated", place.path))
}

/// The nice value for a policy with its priority.
fn nice(policy: SchedulingPolicy, priority: Option<(Origin, &Located)>) -> Read<i8> {
    match (policy, priority) {
        (SchedulingPolicy::Fair(_), None) => Ok(0),
        (SchedulingPolicy::Fair(_), Some((place, node))) => {
            Ok(number(&place, node, -20, 19)? as i8)
        }
        (SchedulingPolicy::RealTime(_), None) => Ok(REAL_TIME_NICE),
        (SchedulingPolicy::RealTime(_), Some((place, node))) => {
            number(&place, node, 1, 99).map(|_| REAL_TIME_NICE)
        }
    }
}
