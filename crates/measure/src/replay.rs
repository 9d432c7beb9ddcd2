//! Reports the events of a real run to a tracer, as the engine does for a simulated run.
//!
//! The kernel reports a wakeup twice: `sched_waking` on the waker's CPU when the wakeup begins, and `sched_wakeup`,
//! often on another CPU, when the task is queued where it will run. A tracer gets one report with both CPUs. So the
//! events are read twice: first to find where each wakeup led, then to report them.
//!
//! It matters which of the two times is reported. Between them are the search for a CPU and the interrupt. These take
//! microseconds on a real machine, but up to half a second in a guest whose CPUs wait for a CPU of the host. The
//! kernel's run delay begins when the task is queued, and so does the simulation's.

use std::collections::{BTreeMap, BTreeSet};

use roost_engine::{CpuId, LeftAs, Time, TraceTask, Tracer};
use roost_machine::Machine;

use crate::error::{MEASURE_AGAIN, MeasureError};
use crate::ftrace::{Capture, Comm, SchedEvent, TimedEvent};

/// EXIT_DEAD and EXIT_ZOMBIE of include/linux/sched.h: the `prev_state` of a task that has ended.
const EXIT_STATES: i64 = 0x10 | 0x20;
/// All states in which `sched_switch` reports a task as not runnable (TASK_REPORT_IDLE). A preempted task has none of
/// these, but TASK_REPORT_MAX (0x100).
const ALL_STATES: i64 = 0xff;
/// The longest time a trace may cover, in ns: a day. The buffers hold minutes at most, so a longer one is damaged. Sums
/// over the tasks of a longer one could exceed 64 bits.
const LONGEST: u64 = 24 * 3600 * 1_000_000_000;

/// The tasks that are reported to a tracer. If another task runs, the tracer sees the idle task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// All tasks, for a trace. A wakeup is reported when it begins, when the waker is still running on its CPU.
    Everything,
    /// The descendants of the root task, for counters, because a simulation has only these. A wakeup is reported when
    /// the task is queued, which is when the kernel's run delay begins.
    Workload,
}

/// Events of the trace that could not be reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayNotes {
    /// Number of events that the kernel lost because a buffer was full. If there are any, counters are too low.
    pub lost_events: u64,
    /// Number of wakeups with only a beginning or only an end in the trace.
    pub half_wakeups: u64,
    /// Number of wakeups of tasks that were still runnable: running but about to sleep, or preempted. They are not
    /// reported, because nothing was placed. (The kernel counts them in `nr_wakeups`.)
    pub wakeups_of_runnable: u64,
}

/// A recorded trace that is ready to be reported.
#[derive(Clone, Debug)]
pub struct Replay<'a> {
    capture: &'a Capture,
    /// For each CPU of the operating system, its number in the machine.
    cpus: BTreeMap<u32, CpuId>,
    workload: BTreeSet<u32>,
    /// The index of each task in order of the tasks' numbers ([`TraceTask::slot`]).
    slots: BTreeMap<u32, u32>,
    /// For each event of a wakeup (waking, wakeup, new), in order, what to report.
    wakeups: Vec<Option<Told>>,
    start: u64,
    end: u64,
    notes: ReplayNotes,
}

/// A wakeup to be reported.
#[derive(Clone, Copy, Debug)]
struct Told {
    from: CpuId,
    target: CpuId,
    /// The audience that gets the report. `None`: both.
    only: Option<Audience>,
}

impl<'a> Replay<'a> {
    /// Prepares the report of `capture`, which was recorded on `machine`.
    pub fn new(capture: &'a Capture, machine: &Machine) -> Result<Self, MeasureError> {
        let cpus = machine.cpus.iter().zip(0..).map(|(cpu, number)| (cpu.os_index, number));
        let mut replay = Self {
            capture,
            cpus: cpus.collect(),
            workload: BTreeSet::new(),
            slots: BTreeMap::new(),
            wakeups: Vec::new(),
            start: 0,
            end: 0,
            notes: ReplayNotes::default(),
        };
        let mut events = capture.events();
        let mut scan = Scan::default();
        let mut first = true;
        for event in events.by_ref() {
            let event = event?;
            if std::mem::take(&mut first) {
                replay.start = event.time;
            }
            replay.end = event.time;
            if replay.end - replay.start > LONGEST {
                return Err(replay.damaged(&event));
            }
            replay.scan(&mut scan, &event)?;
        }
        replay.notes.half_wakeups +=
            scan.tasks.values().filter(|task| task.waking.is_some()).count() as u64;
        replay.slots = scan.tasks.keys().copied().zip(0..).collect();
        replay.notes.lost_events = capture.lost_events(&events);
        Ok(replay)
    }

    /// The end of the trace. It begins at 0.
    pub fn end(&self) -> Time {
        Time(self.end.saturating_sub(self.start))
    }

    /// The tasks of the workload.
    pub fn workload(&self) -> &BTreeSet<u32> {
        &self.workload
    }

    /// What could not be reported.
    pub fn notes(&self) -> ReplayNotes {
        self.notes
    }

    /// Reports the events to `tracer`. At the end, running tasks leave their CPUs, as at the end of a simulated run.
    pub fn run(&self, audience: Audience, tracer: &mut dyn Tracer) -> Result<(), MeasureError> {
        let mut wakeups = self.wakeups.iter();
        let mut running: BTreeMap<CpuId, Comm<'_>> = BTreeMap::new();
        for event in self.capture.events() {
            let event = event?;
            let now = Time(event.time.saturating_sub(self.start));
            match event.event {
                SchedEvent::Switch { prev, prev_state, next } => {
                    let cpu = self.cpu(&event, event.cpu)?;
                    let [prev, next] = [prev, next].map(|task| self.concerns(audience, task));
                    running.remove(&cpu);
                    running.extend(next.map(|task| (cpu, task)));
                    let prev = prev.map(|task| (task, left(prev_state)));
                    self.tell_switch(tracer, now, cpu, prev, next);
                }
                SchedEvent::Waking { task }
                | SchedEvent::Wakeup { task, .. }
                | SchedEvent::WakeupNew { task, .. } => {
                    let told = wakeups.next().copied().flatten();
                    let told = told.filter(|told| told.only.is_none_or(|only| only == audience));
                    if let Some((told, task)) = told.zip(self.concerns(audience, task)) {
                        let name = String::from_utf8_lossy(task.comm);
                        tracer.wakeup(now, told.from, self.named(task, &&*name), told.target);
                    }
                }
                _ => {}
            }
        }
        for (cpu, task) in running {
            self.tell_switch(tracer, self.end(), cpu, Some((task, LeftAs::Preempted)), None);
        }
        Ok(())
    }

    fn tell_switch(
        &self,
        tracer: &mut dyn Tracer,
        now: Time,
        cpu: CpuId,
        previous: Option<(Comm<'_>, LeftAs)>,
        next: Option<Comm<'_>>,
    ) {
        if previous.is_none() && next.is_none() {
            return;
        }
        let previous_name = previous.map(|(task, _)| String::from_utf8_lossy(task.comm));
        let next_name = next.map(|task| String::from_utf8_lossy(task.comm));
        let (previous_name, next_name) = (previous_name.as_deref(), next_name.as_deref());
        let previous = previous.zip(previous_name.as_ref());
        let previous = previous.map(|((task, left), name)| (self.named(task, name), left));
        let next = next.zip(next_name.as_ref()).map(|(task, name)| self.named(task, name));
        tracer.switch(now, cpu, previous, next);
    }

    fn named<'n>(&self, task: Comm<'_>, name: &'n &'n str) -> TraceTask<'n> {
        let process = self.capture.process_of(task.pid);
        let slot = self.slots.get(&task.pid).copied().unwrap_or_default();
        TraceTask { pid: task.pid, slot, process, known_to: name }
    }

    /// The task, if it is reported to the audience.
    fn concerns<'t>(&self, audience: Audience, task: Comm<'t>) -> Option<Comm<'t>> {
        let told = match audience {
            Audience::Everything => task.pid != 0,
            Audience::Workload => self.workload.contains(&task.pid),
        };
        told.then_some(task)
    }

    fn damaged(&self, event: &TimedEvent<'_>) -> MeasureError {
        MeasureError::Buffer {
            file: self.capture.file_of(event.cpu),
            offset: event.offset,
            problem: "the event is more than a day after the first one".to_owned(),
            remedy: MEASURE_AGAIN,
        }
    }

    /// The machine's number for the operating system's `cpu`.
    fn cpu(&self, event: &TimedEvent<'_>, cpu: u32) -> Result<CpuId, MeasureError> {
        self.cpus.get(&cpu).copied().ok_or_else(|| MeasureError::Buffer {
            file: self.capture.file_of(event.cpu),
            offset: event.offset,
            problem: format!("the machine has no CPU {cpu}"),
            remedy: "describe the machine on which the trace was recorded",
        })
    }
}

fn left(prev_state: i64) -> LeftAs {
    match prev_state & ALL_STATES {
        0 => LeftAs::Preempted,
        state if state & EXIT_STATES != 0 => LeftAs::Exited,
        _ => LeftAs::Sleeping,
    }
}

/// State of the tasks while the events are read for the first time.
#[derive(Default)]
struct Scan {
    tasks: BTreeMap<u32, ScannedTask>,
}

#[derive(Clone, Copy, Default)]
struct ScannedTask {
    /// Running, or waiting for a CPU.
    runnable: bool,
    waking: Option<Waking>,
}

/// A wakeup that has begun.
#[derive(Clone, Copy)]
struct Waking {
    from: CpuId,
    /// Index into [`Replay::wakeups`].
    index: usize,
    /// Whether the task had not left its CPU yet.
    runnable: bool,
}

impl Replay<'_> {
    fn scan(&mut self, scan: &mut Scan, event: &TimedEvent<'_>) -> Result<(), MeasureError> {
        match event.event {
            SchedEvent::Switch { prev, prev_state, next } => {
                let runnable = left(prev_state) == LeftAs::Preempted;
                scan.tasks.entry(prev.pid).or_default().runnable = runnable;
                scan.tasks.entry(next.pid).or_default().runnable = true;
            }
            SchedEvent::Fork { parent, child } => {
                if parent.pid == self.capture.root_pid() || self.workload.contains(&parent.pid) {
                    self.workload.insert(child.pid);
                }
            }
            SchedEvent::Waking { task } => {
                let from = self.cpu(event, event.cpu)?;
                let state = scan.tasks.entry(task.pid).or_default();
                let (index, runnable) = (self.wakeups.len(), state.runnable);
                if state.waking.replace(Waking { from, index, runnable }).is_some() {
                    self.notes.half_wakeups += 1;
                }
                self.wakeups.push(None);
            }
            SchedEvent::Wakeup { task, target_cpu } => {
                let target = self.cpu(event, target_cpu)?;
                self.wakeups.push(None);
                self.complete(scan.tasks.entry(task.pid).or_default(), target);
            }
            SchedEvent::WakeupNew { task, target_cpu } => {
                scan.tasks.entry(task.pid).or_default().runnable = true;
                let from = self.cpu(event, event.cpu)?;
                let target = self.cpu(event, target_cpu)?;
                self.wakeups.push(Some(Told { from, target, only: None }));
            }
            SchedEvent::Migrate { .. } | SchedEvent::Exit { .. } | SchedEvent::Exec { .. } => {}
        }
        Ok(())
    }

    /// Completes the last wakeup in `wakeups`, which led to `target`.
    fn complete(&mut self, task: &mut ScannedTask, target: CpuId) {
        let Some(waking) = task.waking.take() else {
            self.notes.half_wakeups += 1;
            return;
        };
        if std::mem::replace(&mut task.runnable, true) {
            self.notes.wakeups_of_runnable += 1;
            return;
        }
        let Waking { from, index, runnable } = waking;
        let told = |only| Some(Told { from, target, only });
        // If the task was still leaving its CPU, the wakeup is reported after it has left.
        let queued = if runnable { None } else { Some(Audience::Workload) };
        if let Some(last) = self.wakeups.last_mut() {
            *last = told(queued);
        }
        if let Some(begun) = self.wakeups.get_mut(index).filter(|_| !runnable) {
            *begun = told(Some(Audience::Everything));
        }
    }
}
