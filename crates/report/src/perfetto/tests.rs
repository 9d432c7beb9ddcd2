//! What a trace file holds, and what happens when it cannot be written.

use std::collections::BTreeMap;
use std::io::{self, Write};

use proptest::prelude::*;
use prost::Message;

use super::proto::Trace;
use super::*;

fn task(pid: u32, process: u32, name: &str) -> TraceTask<'_> {
    TraceTask { pid, process, name }
}

/// Two CPUs: `a` runs 0 to 100 us on CPU 0 and wakes `b`, which runs 40 to 130 us on CPU 1; `c` of
/// the same process runs on CPU 0 from 100 us and does not end.
fn drive(tracer: &mut dyn Tracer) {
    let (a, b, c) = (task(3, 0, "sender"), task(7, 3, "receiver"), task(9, 0, "sender-2"));
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
    let trace = PerfettoTrace::create(&path).unwrap();
    drive(&mut *trace.tracer());
    assert!(!path.exists(), "half a trace is not there");
    trace.finish(Time(150_000)).unwrap();
    Trace::decode(&*fs::read(path).unwrap()).unwrap()
}

/// Time on a CPU by thread, as a reader of the switches adds it up.
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
    // Process number 3 must not become process 3, whose main thread is pid 3 of process 0.
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
    let mut recorder = Recorder::new(Vec::new());
    let (a, b) = (task(1, 0, "a"), task(2, 0, "b"));
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

/// Takes so many bytes, then the disk is full.
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
    let mut recorder = Recorder::new(FullDisk(100));
    for round in 0..40_000 {
        recorder.switch(Time(round), 0, None, Some(task(1, 0, "a")));
    }
    let error = recorder.finish(Time(40_000)).map(drop).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
}

#[test]
fn an_error_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("missing").join("trace");
    let error = PerfettoTrace::create(&path).map(drop).unwrap_err().to_string();
    assert!(error.starts_with(&path.display().to_string()), "{error}");
    assert!(error.contains("No such file") && !error.contains(".trace-"), "{error}");

    let dropped = PerfettoTrace::create(&directory.path().join("trace")).unwrap();
    drive(&mut *dropped.tracer());
    drop(dropped);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    assert!(PerfettoTrace::create(directory.path()).is_err(), "a directory is no file");
}

#[cfg(target_os = "linux")]
#[test]
fn devices_are_written_to_and_not_replaced() {
    let path = Path::new("/dev/full");
    let trace = PerfettoTrace::create(path).unwrap();
    drive(&mut *trace.tracer());
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
    let trace = PerfettoTrace::create(&link).unwrap();
    drive(&mut *trace.tracer());
    trace.finish(Time(150_000)).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(Trace::decode(&*fs::read(real).unwrap()).is_ok());
}

proptest! {
    /// Whatever runs where, the slices of the file add up to the time that was run.
    #[test]
    fn any_run_adds_up(
        steps in prop::collection::vec((0..4_usize, 0..1_000_u64, any::<bool>(), any::<bool>()), 0..200),
        tail in 0..1_000_u64,
    ) {
        let mut recorder = Recorder::new(Vec::new());
        let mut running: [Option<(u32, u64)>; 4] = [None; 4];
        let (mut now, mut busy, mut pid) = (0, 0, 0);
        for (cpu, pause, idle, sleeps) in steps {
            now += pause;
            let left = if sleeps { LeftAs::Sleeping } else { LeftAs::Preempted };
            let previous = running[cpu].map(|(pid, since)| {
                busy += now - since;
                (task(pid, pid % 3, "t"), left)
            });
            pid += 1;
            running[cpu] = (!idle).then_some((pid, now));
            recorder.switch(Time(now), cpu, previous, (!idle).then(|| task(pid, pid % 3, "t")));
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
    let trace = PerfettoTrace::create(&path).unwrap();
    let mut tracer = trace.tracer();
    tracer.value(Time(10), "cling ratio of node", 0, 99);
    tracer.value(Time(20), "cling ratio of node", 1, 50);
    tracer.value(Time(30), "cling ratio of node", 0, 49);
    trace.finish(Time(40)).unwrap();
    let trace = Trace::decode(&*fs::read(path).unwrap()).unwrap();
    let tracks = trace.packet.iter().filter_map(|packet| packet.track_descriptor.as_ref());
    let names: Vec<(u64, &str)> = tracks.map(|track| (track.uuid(), track.name())).collect();
    assert_eq!(names, [(1, "cling ratio of node 0"), (2, "cling ratio of node 1")]);
    let values = trace.packet.iter().filter_map(|packet| {
        let event = packet.track_event.as_ref()?;
        Some((packet.timestamp(), event.track_uuid(), event.counter_value()))
    });
    assert_eq!(values.collect::<Vec<_>>(), [(10, 1, 99), (20, 2, 50), (30, 1, 49)]);
}
