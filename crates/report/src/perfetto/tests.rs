//! Tests the contents of trace files, and errors while writing them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};

use proptest::prelude::*;
use prost::Message;

use super::proto::Trace;
use super::*;

fn task(pid: u32, process: u32, name: &'static &'static str) -> TraceTask<'static> {
    TraceTask { pid, slot: pid, process, known_to: name }
}

/// A machine of two nodes, each with two LLCs of one CPU.
fn machine() -> Machine {
    roost_machine::resolve("node:2 l3:2 core:1 pu:1").unwrap()
}

/// On CPU 0, `a` runs from 0 to 100 us and wakes `b`, which runs on CPU 1 from 40 to 130 us. `c`, of the same process,
/// runs on CPU 0 from 100 us to the end.
fn drive(tracer: &mut dyn Tracer) {
    let (a, b, c) = (task(3, 0, &"sender"), task(7, 3, &"receiver"), task(9, 0, &"sender-2"));
    tracer.wakeup(Time(0), 0, a, 0);
    tracer.switch(Time(0), 0, None, Some(a));
    tracer.wakeup(Time(30_000), 0, b, 1);
    tracer.switch(Time(40_000), 1, None, Some(b));
    tracer.wakeup(Time(50_000), 0, c, 0);
    tracer.switch(Time(100_000), 0, Some((a, LeftAs::Sleeping)), Some(c));
    tracer.switch(Time(130_000), 1, Some((b, LeftAs::Exited)), None);
}

fn written(directory: &Path) -> Trace {
    let path = directory.join("run.perfetto-trace");
    let trace = PerfettoTrace::create(&path, TraceWindow::default()).unwrap();
    drive(&mut *trace.tracer(&machine()));
    assert!(!path.exists(), "half a trace is not there");
    trace.finish(Time(150_000)).unwrap();
    Trace::decode(&*fs::read(path).unwrap()).unwrap()
}

/// Time on a CPU by thread, summed up from the switches.
fn cpu_time(trace: &Trace) -> BTreeMap<i32, u64> {
    let mut times = BTreeMap::new();
    let mut running: BTreeMap<u32, (i32, u64)> = BTreeMap::new();
    for bundle in trace.packet.iter().filter_map(|packet| packet.ftrace_events.as_ref()) {
        for event in &bundle.event {
            let Some(switch) = &event.sched_switch else { continue };
            let now = event.timestamp();
            if let Some((pid, since)) = running.insert(bundle.cpu(), (switch.next_pid(), now)) {
                assert_eq!(pid, switch.prev_pid(), "who leaves is who ran");
                *times.entry(pid).or_insert(0) += now - since;
            }
        }
    }
    times.remove(&0);
    times
}

#[test]
fn slices_add_up_to_the_time_on_cpus() {
    let directory = tempfile::tempdir().unwrap();
    let times = cpu_time(&written(directory.path()));
    assert_eq!(times, BTreeMap::from([(3, 100_000), (7, 90_000), (9, 50_000)]));
}

#[test]
fn processes_are_numbered_after_their_first_thread() {
    let directory = tempfile::tempdir().unwrap();
    let trace = written(directory.path());
    let tree = trace.packet.iter().find_map(|packet| packet.process_tree.as_ref()).unwrap();
    let processes: Vec<_> =
        tree.processes.iter().map(|process| (process.pid(), process.cmdline.join(" "))).collect();
    // The simulation's process 3 must not be 3 in the trace, because pid 3 is the main thread of process 0.
    assert_eq!(processes, [(3, "sender".to_owned()), (7, "receiver".to_owned())]);
    let threads: Vec<_> = tree.threads.iter().map(|t| (t.tid(), t.tgid(), t.name())).collect();
    assert_eq!(threads, [(3, 3, "sender"), (7, 7, "receiver"), (9, 3, "sender-2")]);
}

#[test]
fn wakeups_name_waker_and_target() {
    let directory = tempfile::tempdir().unwrap();
    let trace = written(directory.path());
    let events = trace.packet.iter().filter_map(|p| p.ftrace_events.as_ref()).flat_map(|b| {
        let cpu = b.cpu();
        b.event.iter().map(move |event| (cpu, event))
    });
    let wakeups: Vec<_> = events
        .filter_map(|(cpu, event)| {
            let waking = event.sched_waking.as_ref()?;
            Some((event.timestamp(), cpu, event.pid(), waking.pid(), waking.target_cpu()))
        })
        .collect();
    assert_eq!(wakeups, [(0, 0, 0, 3, 0), (30_000, 0, 3, 7, 1), (50_000, 0, 3, 9, 0)]);
}

#[test]
fn events_are_written_as_the_run_goes() {
    let mut recorder = Recorder::new(Vec::new(), TraceWindow::default());
    let (a, b) = (task(1, 0, &"a"), task(2, 0, &"b"));
    let rounds = 40_000;
    for round in 0..rounds {
        let (from, to) = if round % 2 == 0 { (b, a) } else { (a, b) };
        let previous = (round > 0).then_some((from, LeftAs::Preempted));
        recorder.switch(Time(round * 10), 0, previous, Some(to));
    }
    let trace = Trace::decode(&*recorder.finish(Time(rounds * 10)).unwrap()).unwrap();
    let bundles = trace.packet.iter().filter(|packet| packet.ftrace_events.is_some()).count();
    assert_eq!(bundles, 3, "40,001 events, at most 16,384 at once");
    assert_eq!(cpu_time(&trace).values().sum::<u64>(), rounds * 10);
}

/// A disk that is full after this many bytes.
struct FullDisk(usize);

impl Write for FullDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        if taken == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(taken) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_told_once_at_the_end() {
    let mut recorder = Recorder::new(FullDisk(100), TraceWindow::default());
    for round in 0..40_000 {
        recorder.switch(Time(round), 0, None, Some(task(1, 0, &"a")));
    }
    let error = recorder.finish(Time(40_000)).map(drop).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
}

#[test]
fn an_error_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("missing").join("trace");
    let error =
        PerfettoTrace::create(&path, TraceWindow::default()).map(drop).unwrap_err().to_string();
    assert!(error.starts_with(&path.display().to_string()), "{error}");
    assert!(error.contains("No such file") && !error.contains(".roost-"), "{error}");

    let dropped =
        PerfettoTrace::create(&directory.path().join("trace"), TraceWindow::default()).unwrap();
    drive(&mut *dropped.tracer(&machine()));
    drop(dropped);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    assert!(
        PerfettoTrace::create(directory.path(), TraceWindow::default()).is_err(),
        "a directory is no file"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn devices_are_written_to_and_not_replaced() {
    let path = Path::new("/dev/full");
    let trace = PerfettoTrace::create(path, TraceWindow::default()).unwrap();
    drive(&mut *trace.tracer(&machine()));
    let error = trace.finish(Time(150_000)).unwrap_err().to_string();
    assert!(error.starts_with("/dev/full: cannot write the trace: No space left"), "{error}");
    assert!(!fs::metadata(path).unwrap().is_file());
}

#[cfg(unix)]
#[test]
fn links_are_followed() {
    let directory = tempfile::tempdir().unwrap();
    let (real, link) = (directory.path().join("real"), directory.path().join("link"));
    fs::write(&real, "old").unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let trace = PerfettoTrace::create(&link, TraceWindow::default()).unwrap();
    drive(&mut *trace.tracer(&machine()));
    trace.finish(Time(150_000)).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(Trace::decode(&*fs::read(real).unwrap()).is_ok());
}

proptest! {
    /// For any run, the slices of the file add up to the time that tasks ran.
    #[test]
    fn any_run_adds_up(
        steps in prop::collection::vec((0..4_usize, 0..1_000_u64, any::<bool>(), any::<bool>()), 0..200),
        tail in 0..1_000_u64,
    ) {
        let mut recorder = Recorder::new(Vec::new(), TraceWindow::default());
        let mut running: [Option<(u32, u64)>; 4] = [None; 4];
        let (mut now, mut busy, mut pid) = (0, 0, 0);
        for (cpu, pause, idle, sleeps) in steps {
            now += pause;
            let left = if sleeps { LeftAs::Sleeping } else { LeftAs::Preempted };
            let previous = running[cpu].map(|(pid, since)| {
                busy += now - since;
                (task(pid, pid % 3, &"t"), left)
            });
            pid += 1;
            running[cpu] = (!idle).then_some((pid, now));
            recorder.switch(Time(now), cpu, previous, (!idle).then(|| task(pid, pid % 3, &"t")));
        }
        now += tail;
        busy += running.iter().flatten().map(|(_, since)| now - since).sum::<u64>();
        let trace = Trace::decode(&*recorder.finish(Time(now)).unwrap()).unwrap();
        prop_assert_eq!(cpu_time(&trace).values().sum::<u64>(), busy);
    }
}

#[test]
fn values_of_the_scheduler_have_a_track_each() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("values");
    let trace = PerfettoTrace::create(&path, TraceWindow::default()).unwrap();
    let mut tracer = trace.tracer(&machine());
    tracer.value(Time(10), "cling ratio of node", 0, 99);
    tracer.value(Time(20), "cling ratio of node", 1, 50);
    tracer.value(Time(30), "cling ratio of node", 0, 49);
    trace.finish(Time(40)).unwrap();
    let trace = Trace::decode(&*fs::read(path).unwrap()).unwrap();
    let tracks = trace.packet.iter().filter_map(|packet| packet.track_descriptor.as_ref());
    let values = tracks.filter(|track| track.counter.is_some());
    let names: Vec<(u64, &str)> = values.map(|track| (track.uuid(), track.name())).collect();
    // The machine's 2 nodes, 4 LLCs and 4 CPUs have the first numbers.
    assert_eq!(names, [(11, "cling ratio of node 0"), (12, "cling ratio of node 1")]);
    let values = trace.packet.iter().filter_map(|packet| {
        let event = packet.track_event.as_ref()?;
        Some((packet.timestamp(), event.track_uuid(), event.counter_value()))
    });
    assert_eq!(values.collect::<Vec<_>>(), [(10, 11, 99), (20, 12, 50), (30, 11, 49)]);
}

/// The names of a track and its ancestors, the highest first.
fn path(trace: &Trace, uuid: u64) -> Vec<String> {
    let mut tracks = trace.packet.iter().filter_map(|packet| packet.track_descriptor.as_ref());
    let Some(track) = tracks.find(|track| track.uuid() == uuid) else { return Vec::new() };
    let mut path = track.parent_uuid.map_or(Vec::new(), |parent| super::tests::path(trace, parent));
    path.push(track.name().to_owned());
    path
}

/// Slices of the grouped tracks: place, task, start and end.
fn grouped(trace: &Trace) -> Vec<(String, String, u64, u64)> {
    let mut open: BTreeMap<u64, (String, u64)> = BTreeMap::new();
    let mut slices = Vec::new();
    for packet in &trace.packet {
        let Some(event) = &packet.track_event else { continue };
        let (track, now) = (event.track_uuid(), packet.timestamp());
        match event.r#type() {
            1 => assert!(open.insert(track, (event.name().to_owned(), now)).is_none(), "nested"),
            2 => {
                let (name, since) = open.remove(&track).unwrap();
                slices.push((path(trace, track).join(" > "), name, since, now));
            }
            _ => {}
        }
    }
    assert!(open.is_empty(), "all slices end");
    slices.sort();
    slices
}

fn slice(at: &str, name: &str, from: u64, to: u64) -> (String, String, u64, u64) {
    (at.to_owned(), name.to_owned(), from, to)
}

#[test]
fn cpus_are_grouped_by_node_and_llc() {
    let directory = tempfile::tempdir().unwrap();
    let trace = written(directory.path());
    assert_eq!(
        grouped(&trace),
        [
            slice("node 0 > LLC 0 > CPU 0", "sender", 0, 100_000),
            slice("node 0 > LLC 0 > CPU 0", "sender-2", 100_000, 150_000),
            slice("node 0 > LLC 1 > CPU 1", "receiver", 40_000, 130_000),
        ]
    );
    let tracks: Vec<_> =
        trace.packet.iter().filter_map(|packet| packet.track_descriptor.as_ref()).collect();
    assert_eq!(tracks.len(), 2 + 4 + 4);
    assert!(tracks.iter().all(|track| track.child_ordering() == 3), "in the order of numbers");
    assert_eq!(path(&trace, 10), ["node 1", "LLC 3", "CPU 3"]);
    assert_eq!(tracks[9].sibling_order_rank(), 3);
}

#[test]
fn tasks_of_a_group_are_shown_with_its_number() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("groups");
    let trace = PerfettoTrace::create(&path, TraceWindow::default()).unwrap();
    let mut tracer = trace.tracer(&machine());
    let mover = task(1, 0, &"mover");
    let in_web = TraceTask { known_to: &("mover", Some((4, "/web"))), ..mover };
    tracer.switch(Time(0), 0, None, Some(in_web));
    tracer.switch(Time(10), 0, Some((mover, LeftAs::Sleeping)), None);
    tracer.switch(Time(20), 0, None, Some(mover));
    trace.finish(Time(30)).unwrap();
    let trace = Trace::decode(&*fs::read(path).unwrap()).unwrap();
    let cpu = "node 0 > LLC 0 > CPU 0";
    assert_eq!(grouped(&trace), [slice(cpu, "mover", 20, 30), slice(cpu, "mover [4 /web]", 0, 10)]);
}

/// A task that runs when the window opens appears from then on, until the window closes.
#[test]
fn a_window_holds_what_was_running_in_it() {
    let windows = [
        (50_000, 120_000, [(3, 50_000), (7, 70_000), (9, 20_000)].as_slice()),
        (110_000, 1_000_000, &[(7, 20_000), (9, 40_000)]),
        (0, 40_000, &[(3, 40_000)]),
        (140_000, 145_000, &[(9, 5_000)]),
        (151_000, 152_000, &[]),
    ];
    for (from, to, expected) in windows {
        let window = TraceWindow { from: Time(from), to: Time(to) };
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("window");
        let trace = PerfettoTrace::create(&path, window).unwrap();
        drive(&mut *trace.tracer(&machine()));
        trace.finish(Time(150_000)).unwrap();
        let trace = Trace::decode(&*fs::read(path).unwrap()).unwrap();
        assert_eq!(cpu_time(&trace), expected.iter().copied().collect(), "{from} to {to}");
        let events = trace.packet.iter().filter_map(|packet| packet.ftrace_events.as_ref());
        let mut times = events.flat_map(|bundle| &bundle.event).map(|event| event.timestamp());
        assert!(times.all(|at| (from..=to).contains(&at)), "{from} to {to}");
        assert!(grouped(&trace).iter().all(|slice| slice.2 >= from && slice.3 <= to));
    }
}
