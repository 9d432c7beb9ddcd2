//! Turns switches and wakeups into packets, with bounded memory.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::mem;

use prost::Message;
use roost_engine::{CpuId, LeftAs, Time, TraceTask};
use roost_machine::Machine;

use super::proto::{
    CounterDescriptor, FtraceEvent, FtraceEventBundle, Process, ProcessTree, SchedSwitch,
    SchedWaking, Thread, Trace, TracePacket, TrackDescriptor, TrackEvent,
};

/// Number of events that are kept before they are written; about 4 MiB.
const MAX_PENDING: usize = 16_384;
/// The number of the file's only sequence of packets.
const SEQUENCE: u32 = 1;
/// Priority of a fair task with nice 0, and of the idle task, in the kernel's numbering (`DEFAULT_PRIO`). Assumption:
/// all tasks have it, because tracers do not learn nice values.
const PRIORITY: i32 = 120;

/// `prev_state` of `sched_switch`: `TASK_RUNNING`, `TASK_INTERRUPTIBLE` and `EXIT_DEAD` of `include/linux/sched.h`.
fn prev_state(left: LeftAs) -> i64 {
    match left {
        LeftAs::Preempted => 0x00,
        LeftAs::Sleeping => 0x01,
        LeftAs::Exited => 0x10,
    }
}

/// Numbers that are too large for Perfetto's type become the largest that fits.
fn number(value: impl TryInto<i32>) -> i32 {
    value.try_into().unwrap_or(i32::MAX)
}

/// `TrackEvent.TYPE_SLICE_BEGIN`, `TYPE_SLICE_END` and `TYPE_COUNTER`.
const TYPE_BEGIN: i32 = 1;
const TYPE_END: i32 = 2;
const TYPE_COUNTER: i32 = 4;

/// `TrackDescriptor.EXPLICIT`: child tracks are ordered by rank.
const BY_RANK: i32 = 3;

/// The part of a run that is recorded: simulated time, or on a real kernel, time since the recording began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceWindow {
    /// Earlier events are left out. A task that is running at this time is shown from here.
    pub from: Time,
    /// Events from this time on are left out.
    pub to: Time,
}

impl Default for TraceWindow {
    /// The whole run.
    fn default() -> Self {
        Self { from: Time(0), to: Time::NEVER }
    }
}

/// Number and names of a thread, as in an event.
#[derive(Clone)]
struct Named {
    pid: u32,
    process: u32,
    comm: String,
}

impl Named {
    /// The thread's name, with number and path of its current task group.
    fn of(task: TraceTask<'_>) -> Self {
        let comm = match task.group() {
            Some((number, path)) => format!("{} [{number} {path}]", task.name()),
            None => task.name().to_owned(),
        };
        Self { pid: task.pid, process: task.process, comm }
    }

    fn idle(cpu: CpuId) -> Self {
        Self { pid: 0, process: 0, comm: format!("swapper/{cpu}") }
    }
}

/// State of a CPU.
#[derive(Default)]
struct CpuState {
    /// The running task. `None` is the idle task.
    current: Option<Named>,
    /// Events that are not written yet.
    pending: Vec<FtraceEvent>,
    /// The CPU's track in the grouped set. `None` if the machine is not known.
    track: Option<u64>,
}

/// Writes a trace to `sink`.
pub(super) struct Recorder<W> {
    sink: W,
    /// The first error. Nothing is recorded after an error.
    error: Option<io::Error>,
    cpus: Vec<CpuState>,
    /// Number of events of all CPUs that are not written yet.
    nr_pending: usize,
    /// Names that are not written yet.
    names: ProcessTree,
    /// Threads whose names are written, or will be written next.
    known: BTreeSet<u32>,
    /// For each process, the thread that represents it. Linux numbers a process after its first thread, and Perfetto
    /// relies on the two numbers being equal.
    leaders: BTreeMap<u32, u32>,
    /// Track numbers of values, by name.
    values: BTreeMap<String, u64>,
    /// Number of tracks so far.
    nr_tracks: u64,
    window: TraceWindow,
    /// Whether the window has begun. The next field says whether it is over.
    begun: bool,
    over: bool,
}

impl<W: Write> Recorder<W> {
    pub fn new(sink: W, window: TraceWindow) -> Self {
        Self {
            sink,
            window,
            begun: false,
            over: false,
            nr_tracks: 0,
            error: None,
            cpus: Vec::new(),
            nr_pending: 0,
            names: ProcessTree::default(),
            known: BTreeSet::new(),
            leaders: BTreeMap::new(),
            values: BTreeMap::new(),
        }
    }

    /// Creates tracks for the CPUs of `machine`: one per node, under it one per LLC, under that one per CPU. The CPU's
    /// track shows the tasks that run there.
    pub fn describe(&mut self, machine: &Machine) {
        for node in 0..machine.nodes.len() {
            let mut llcs: Vec<u32> = Vec::new();
            for cpu in machine.nodes[node].cpus.iter() {
                let llc = machine.cpus[cpu].llc;
                if !llcs.contains(&llc) {
                    llcs.push(llc);
                }
            }
            if llcs.is_empty() {
                continue;
            }
            let number = machine.nodes[node].os_index;
            let node_track = self.add_track(format!("node {number}"), None, node);
            for llc in llcs {
                let parent = Some(node_track);
                let llc_track = self.add_track(format!("LLC {llc}"), parent, llc as usize);
                for cpu in machine.nodes[node].cpus.iter() {
                    if machine.cpus[cpu].llc == llc {
                        let name = format!("CPU {}", machine.cpus[cpu].os_index);
                        let track = self.add_track(name, Some(llc_track), cpu);
                        self.cpu(cpu).track = Some(track);
                    }
                }
            }
        }
    }

    /// Adds a track as child number `rank` of `parent`.
    fn add_track(&mut self, name: String, parent: Option<u64>, rank: usize) -> u64 {
        self.write_track(TrackDescriptor {
            name: Some(name),
            parent_uuid: parent,
            child_ordering: Some(BY_RANK),
            sibling_order_rank: Some(number(rank)),
            ..TrackDescriptor::default()
        })
    }

    /// Numbers and writes a track. The first one tells readers to forget earlier state.
    fn write_track(&mut self, track: TrackDescriptor) -> u64 {
        self.nr_tracks += 1;
        let uuid = self.nr_tracks;
        let track_descriptor = Some(TrackDescriptor { uuid: Some(uuid), ..track });
        let sequence_flags = (uuid == 1).then_some(1);
        self.write(TracePacket { track_descriptor, sequence_flags, ..packet() });
        uuid
    }

    /// Begins or ends the window if `now` requires it. Returns whether `now` is in the window.
    fn is_in_window(&mut self, now: Time) -> bool {
        if !self.begun && now >= self.window.from {
            self.begun = true;
            for cpu in 0..self.cpus.len() {
                if let Some(running) = self.cpus[cpu].current.take() {
                    self.push_switch(self.window.from, cpu, None, LeftAs::Preempted, Some(running));
                }
            }
        }
        if !self.over && now >= self.window.to {
            self.end_window(self.window.to);
        }
        self.begun && !self.over && self.error.is_none()
    }

    /// Ends all running slices at `end`. Nothing is recorded after this.
    fn end_window(&mut self, end: Time) {
        for cpu in 0..self.cpus.len() {
            if let Some(running) = self.cpus[cpu].current.clone() {
                self.push_switch(end, cpu, Some(running), LeftAs::Preempted, None);
            }
        }
        self.over = true;
    }

    /// See [`roost_engine::Tracer::switch`].
    pub fn switch(
        &mut self,
        now: Time,
        cpu: CpuId,
        previous: Option<(TraceTask<'_>, LeftAs)>,
        next: Option<TraceTask<'_>>,
    ) {
        if !self.is_in_window(now) {
            self.cpu(cpu).current = next.map(Named::of);
            return;
        }
        let left = previous.map_or(LeftAs::Preempted, |(_, left)| left);
        let previous = previous.map(|(task, _)| Named::of(task));
        self.push_switch(now, cpu, previous, left, next.map(Named::of));
    }

    /// See [`roost_engine::Tracer::wakeup`].
    pub fn wakeup(&mut self, now: Time, from: CpuId, task: TraceTask<'_>, target: CpuId) {
        if !self.is_in_window(now) {
            return;
        }
        let task = Named::of(task);
        self.learn(&task);
        let waker = self.cpu(from).current.as_ref().map_or(0, |current| current.pid);
        let waking = SchedWaking {
            comm: Some(task.comm),
            pid: Some(number(task.pid)),
            prio: Some(PRIORITY),
            success: Some(1),
            target_cpu: Some(number(target)),
        };
        let event = FtraceEvent { sched_waking: Some(waking), ..event(now, waker) };
        self.push(from, event);
    }

    /// See [`roost_engine::Tracer::value`].
    pub fn value(&mut self, now: Time, name: &str, index: usize, value: u64) {
        if !self.is_in_window(now) {
            return;
        }
        let name = format!("{name} {index}");
        let uuid = match self.values.get(&name) {
            Some(&uuid) => uuid,
            None => {
                let counter = Some(CounterDescriptor {});
                let track =
                    TrackDescriptor { name: Some(name.clone()), counter, ..Default::default() };
                let uuid = self.write_track(track);
                self.values.insert(name, uuid);
                uuid
            }
        };
        let counter_value = Some(i64::try_from(value).unwrap_or(i64::MAX));
        let event = TrackEvent { counter_value, ..track_event(uuid, TYPE_COUNTER) };
        self.write_track_event(now, event);
    }

    fn write_track_event(&mut self, now: Time, event: TrackEvent) {
        let timestamp = Some(now.ns());
        self.write(TracePacket { track_event: Some(event), timestamp, ..packet() });
    }

    /// Ends all running slices at `end`, and writes what is left. Returns the sink, or the first error.
    pub fn finish(mut self, end: Time) -> io::Result<W> {
        if self.is_in_window(end) {
            self.end_window(end);
        }
        self.flush();
        match self.error {
            Some(error) => Err(error),
            None => self.sink.flush().map(|()| self.sink),
        }
    }

    fn cpu(&mut self, cpu: CpuId) -> &mut CpuState {
        if self.cpus.len() <= cpu {
            self.cpus.resize_with(cpu + 1, CpuState::default);
        }
        &mut self.cpus[cpu]
    }

    /// Adds the names of a task and its process, unless the file has them already.
    fn learn(&mut self, task: &Named) {
        if !self.known.insert(task.pid) {
            return;
        }
        let leader = *self.leaders.entry(task.process).or_insert(task.pid);
        if leader == task.pid {
            self.names.processes.push(Process {
                pid: Some(number(task.pid)),
                ppid: Some(0),
                cmdline: vec![task.comm.clone()],
            });
        }
        self.names.threads.push(Thread {
            tid: Some(number(task.pid)),
            name: Some(task.comm.clone()),
            tgid: Some(number(leader)),
        });
    }

    fn push_switch(
        &mut self,
        now: Time,
        cpu: CpuId,
        previous: Option<Named>,
        left: LeftAs,
        next: Option<Named>,
    ) {
        for task in previous.iter().chain(&next) {
            self.learn(task);
        }
        if let Some(track) = self.cpu(cpu).track {
            if previous.is_some() {
                self.write_track_event(now, track_event(track, TYPE_END));
            }
            if let Some(next) = &next {
                let name = Some(next.comm.clone());
                let event = TrackEvent { name, ..track_event(track, TYPE_BEGIN) };
                self.write_track_event(now, event);
            }
        }
        self.cpu(cpu).current.clone_from(&next);
        let previous = previous.unwrap_or_else(|| Named::idle(cpu));
        let next = next.unwrap_or_else(|| Named::idle(cpu));
        let pid = previous.pid;
        let switch = SchedSwitch {
            prev_comm: Some(previous.comm),
            prev_pid: Some(number(previous.pid)),
            prev_prio: Some(PRIORITY),
            prev_state: Some(prev_state(left)),
            next_comm: Some(next.comm),
            next_pid: Some(number(next.pid)),
            next_prio: Some(PRIORITY),
        };
        self.push(cpu, FtraceEvent { sched_switch: Some(switch), ..event(now, pid) });
    }

    fn push(&mut self, cpu: CpuId, event: FtraceEvent) {
        self.cpu(cpu).pending.push(event);
        self.nr_pending += 1;
        if self.nr_pending >= MAX_PENDING {
            self.flush();
        }
    }

    /// Writes names, then the events of each CPU.
    fn flush(&mut self) {
        let names = mem::take(&mut self.names);
        if !names.threads.is_empty() {
            self.write(TracePacket { process_tree: Some(names), ..packet() });
        }
        for cpu in 0..self.cpus.len() {
            let event = mem::take(&mut self.cpus[cpu].pending);
            if !event.is_empty() {
                let bundle = FtraceEventBundle { cpu: u32::try_from(cpu).ok(), event };
                self.write(TracePacket { ftrace_events: Some(bundle), ..packet() });
            }
        }
        self.nr_pending = 0;
    }

    fn write(&mut self, packet: TracePacket) {
        if self.error.is_some() {
            return;
        }
        // A trace file with several packets is the concatenation of files with one packet each.
        let bytes = Trace { packet: vec![packet] }.encode_to_vec();
        self.error = self.sink.write_all(&bytes).err();
    }
}

fn packet() -> TracePacket {
    TracePacket { trusted_packet_sequence_id: Some(SEQUENCE), ..TracePacket::default() }
}

fn track_event(track: u64, what: i32) -> TrackEvent {
    TrackEvent { r#type: Some(what), track_uuid: Some(track), ..TrackEvent::default() }
}

fn event(now: Time, pid: u32) -> FtraceEvent {
    FtraceEvent { timestamp: Some(now.ns()), pid: Some(pid), ..FtraceEvent::default() }
}
