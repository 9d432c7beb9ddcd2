//! Turns switches and wakeups into packets, in bounded memory.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::mem;

use prost::Message;
use roost_engine::{CpuId, LeftAs, Time, TraceTask};

use super::proto::{
    CounterDescriptor, FtraceEvent, FtraceEventBundle, Process, ProcessTree, SchedSwitch,
    SchedWaking, Thread, Trace, TracePacket, TrackDescriptor, TrackEvent,
};

/// Events kept before they are written; about 4 MiB.
const MAX_PENDING: usize = 16_384;
/// The one sequence of packets of the file.
const SEQUENCE: u32 = 1;
/// Priority of a fair task with nice 0, and of the idle task, in the kernel's numbering
/// (`DEFAULT_PRIO`). Assumption: all tasks are shown with it, since a tracer is not told nice
/// values.
const PRIORITY: i32 = 120;

/// `prev_state` of `sched_switch`, as `TASK_RUNNING`, `TASK_INTERRUPTIBLE` and `EXIT_DEAD` of
/// `include/linux/sched.h`.
fn prev_state(left: LeftAs) -> i64 {
    match left {
        LeftAs::Preempted => 0x00,
        LeftAs::Sleeping => 0x01,
        LeftAs::Exited => 0x10,
    }
}

/// Numbers that do not fit Perfetto's are shown as its largest.
fn number(value: impl TryInto<i32>) -> i32 {
    value.try_into().unwrap_or(i32::MAX)
}

/// `TrackEvent.TYPE_COUNTER`.
const TYPE_COUNTER: i32 = 4;

/// A thread as an event names it.
#[derive(Clone)]
struct Named {
    pid: u32,
    comm: String,
}

impl Named {
    fn of(task: TraceTask<'_>) -> Self {
        Self { pid: task.pid, comm: task.name.to_owned() }
    }

    fn idle(cpu: CpuId) -> Self {
        Self { pid: 0, comm: format!("swapper/{cpu}") }
    }
}

/// What is kept of a CPU.
#[derive(Default)]
struct CpuState {
    /// What runs; `None` is the idle task.
    current: Option<Named>,
    /// Events not yet written.
    pending: Vec<FtraceEvent>,
}

/// Writes a trace to `sink`.
pub(super) struct Recorder<W> {
    sink: W,
    /// The first error. Nothing is recorded after it.
    error: Option<io::Error>,
    cpus: Vec<CpuState>,
    /// Events not yet written, all CPUs.
    nr_pending: usize,
    /// Names not yet written.
    names: ProcessTree,
    /// Threads whose names are written or about to be.
    known: BTreeSet<u32>,
    /// For each process, the thread that stands for it: Linux numbers a process after its first
    /// thread, and Perfetto takes the two numbers for the same.
    leaders: BTreeMap<u32, u32>,
    /// Numbers of the tracks of values, by name.
    tracks: BTreeMap<String, u64>,
}

impl<W: Write> Recorder<W> {
    pub fn new(sink: W) -> Self {
        Self {
            sink,
            error: None,
            cpus: Vec::new(),
            nr_pending: 0,
            names: ProcessTree::default(),
            known: BTreeSet::new(),
            leaders: BTreeMap::new(),
            tracks: BTreeMap::new(),
        }
    }

    /// See [`roost_engine::Tracer::switch`].
    pub fn switch(
        &mut self,
        now: Time,
        cpu: CpuId,
        previous: Option<(TraceTask<'_>, LeftAs)>,
        next: Option<TraceTask<'_>>,
    ) {
        if self.error.is_some() {
            return;
        }
        for task in previous.map(|(task, _)| task).iter().chain(&next) {
            self.learn(*task);
        }
        let left = previous.map_or(LeftAs::Preempted, |(_, left)| left);
        let previous = previous.map(|(task, _)| Named::of(task));
        self.push_switch(now, cpu, previous, left, next.map(Named::of));
    }

    /// See [`roost_engine::Tracer::wakeup`].
    pub fn wakeup(&mut self, now: Time, from: CpuId, task: TraceTask<'_>, target: CpuId) {
        if self.error.is_some() {
            return;
        }
        self.learn(task);
        let waker = self.cpu(from).current.as_ref().map_or(0, |current| current.pid);
        let waking = SchedWaking {
            comm: Some(task.name.to_owned()),
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
        let name = format!("{name} {index}");
        let next = self.tracks.len() as u64 + 1;
        let uuid = match self.tracks.get(&name) {
            Some(&uuid) => uuid,
            None => {
                self.tracks.insert(name.clone(), next);
                let counter = Some(CounterDescriptor {});
                let track = TrackDescriptor { uuid: Some(next), name: Some(name), counter };
                let first = Some(1).filter(|_| next == 1);
                self.write(TracePacket {
                    track_descriptor: Some(track),
                    sequence_flags: first,
                    ..packet()
                });
                next
            }
        };
        let event = TrackEvent {
            r#type: Some(TYPE_COUNTER),
            track_uuid: Some(uuid),
            counter_value: Some(i64::try_from(value).unwrap_or(i64::MAX)),
        };
        let timestamp = Some(now.ns());
        self.write(TracePacket { track_event: Some(event), timestamp, ..packet() });
    }

    /// Ends what still runs at `end`, writes what is left and returns the sink, or the first error.
    pub fn finish(mut self, end: Time) -> io::Result<W> {
        for cpu in 0..self.cpus.len() {
            if let Some(running) = self.cpu(cpu).current.clone() {
                self.push_switch(end, cpu, Some(running), LeftAs::Preempted, None);
            }
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

    /// Makes sure that the names of a task and its process are in the file.
    fn learn(&mut self, task: TraceTask<'_>) {
        if !self.known.insert(task.pid) {
            return;
        }
        let leader = *self.leaders.entry(task.process).or_insert(task.pid);
        if leader == task.pid {
            self.names.processes.push(Process {
                pid: Some(number(task.pid)),
                ppid: Some(0),
                cmdline: vec![task.name.to_owned()],
            });
        }
        self.names.threads.push(Thread {
            tid: Some(number(task.pid)),
            name: Some(task.name.to_owned()),
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
        // A file is the concatenation of files of one packet.
        let bytes = Trace { packet: vec![packet] }.encode_to_vec();
        self.error = self.sink.write_all(&bytes).err();
    }
}

fn packet() -> TracePacket {
    TracePacket { trusted_packet_sequence_id: Some(SEQUENCE), ..TracePacket::default() }
}

fn event(now: Time, pid: u32) -> FtraceEvent {
    FtraceEvent { timestamp: Some(now.ns()), pid: Some(pid), ..FtraceEvent::default() }
}
