//! Reads a trace that was recorded in a guest (kernel 7.2, machine 2n1l2m2c2t, hackbench and some sleeps) from its raw
//! pages, and compares it with the kernel's own text of the same buffers.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use roost_engine::Time;
use roost_machine::Machine;
use roost_measure::ftrace::{Comm, CpuBuffer, EVENTS, Formats, SchedEvent, TimedEvent};
use roost_measure::{Audience, Capture, MeasureError, Observed, Replay};

/// The kernel's text of the buffers (tracefs's `trace`).
const TEXT: &str = include_str!("data/trace.txt");

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

fn machine() -> Machine {
    roost_machine::resolve("node:2 l3:1 l2:2 core:2 pu:2").unwrap()
}

/// A line of the kernel's text: CPU, microseconds, event and its fields.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TextEvent {
    cpu: u32,
    us: u64,
    text: String,
}

fn text_events() -> Vec<TextEvent> {
    let lines = TEXT.lines().filter(|line| !line.starts_with('#'));
    let event = |line: &str| {
        let (_, rest) = line.split_once(") [").unwrap();
        let (cpu, rest) = rest.split_once("] ").unwrap();
        let (_flags, rest) = rest.split_once(' ').unwrap();
        let (time, text) = rest.trim_start().split_once(": ").unwrap();
        let us = time.replace('.', "").parse().unwrap();
        TextEvent { cpu: cpu.parse().unwrap(), us, text: text.to_owned() }
    };
    lines.map(event).collect()
}

/// Removes numbers from a text that are printed but not read.
fn without_unused(text: &str) -> String {
    let unused = ["prio=", "prev_prio=", "next_prio=", "group_dead="];
    let words = text.split(' ').filter(|word| !unused.iter().any(|name| word.starts_with(name)));
    words.collect::<Vec<_>>().join(" ")
}

/// An event in the format of its `print fmt`.
fn as_text(event: &TimedEvent<'_>) -> String {
    let name = |task: Comm<'_>| String::from_utf8_lossy(task.comm).into_owned();
    let plain = |task: Comm<'_>| format!("comm={} pid={}", name(task), task.pid);
    match event.event {
        SchedEvent::Switch { prev, prev_state, next } => {
            let states = ["S", "D", "T", "t", "X", "Z", "P", "I"];
            let set = states.iter().enumerate().filter(|(bit, _)| prev_state & (1 << bit) != 0);
            let set: Vec<&str> = set.map(|(_, name)| *name).collect();
            let state = if set.is_empty() { "R".to_owned() } else { set.join("|") };
            let preempted = if prev_state & 0x100 != 0 { "+" } else { "" };
            format!(
                "sched_switch: prev_comm={} prev_pid={} prev_state={state}{preempted} ==> \
                 next_comm={} next_pid={}",
                name(prev),
                prev.pid,
                name(next),
                next.pid
            )
        }
        // The target of the event is the task's previous CPU, which is not read.
        SchedEvent::Waking { task } => format!("sched_waking: {}", plain(task)),
        SchedEvent::Wakeup { task, target_cpu } => {
            format!("sched_wakeup: {} target_cpu={target_cpu:03}", plain(task))
        }
        SchedEvent::WakeupNew { task, target_cpu } => {
            format!("sched_wakeup_new: {} target_cpu={target_cpu:03}", plain(task))
        }
        SchedEvent::Migrate { task, orig_cpu, dest_cpu } => {
            format!("sched_migrate_task: {} orig_cpu={orig_cpu} dest_cpu={dest_cpu}", plain(task))
        }
        SchedEvent::Fork { parent, child } => format!(
            "sched_process_fork: {} child_comm={} child_pid={}",
            plain(parent),
            name(child),
            child.pid
        ),
        SchedEvent::Exit { task } => format!("sched_process_exit: {}", plain(task)),
        SchedEvent::Exec { task, old_pid } => format!(
            "sched_process_exec: filename={} pid={} old_pid={old_pid}",
            name(task),
            task.pid
        ),
    }
}

#[test]
fn the_pages_hold_what_the_kernel_prints() {
    let capture = Capture::read(&data()).unwrap();
    let mut events = capture.events();
    let read: Vec<TextEvent> = events
        .by_ref()
        .map(|event| {
            let event = event.unwrap();
            // The kernel prints rounded microseconds.
            TextEvent { cpu: event.cpu, us: (event.time + 500) / 1000, text: as_text(&event) }
        })
        .collect();
    let printed: Vec<TextEvent> = text_events()
        .into_iter()
        .map(|event| {
            let text = without_unused(&event.text);
            let text = match text.strip_prefix("sched_waking: ") {
                Some(_) => text.rsplit_once(" target_cpu=").unwrap().0.to_owned(),
                None => text,
            };
            TextEvent { text, ..event }
        })
        .collect();
    assert_eq!(read.len(), printed.len());
    for (read, printed) in read.iter().zip(&printed) {
        assert_eq!(read, printed);
    }
    let kinds: BTreeSet<&str> = read.iter().map(|e| e.text.split(':').next().unwrap()).collect();
    assert_eq!(kinds, BTreeSet::from(EVENTS), "the capture holds every kind");
    assert_eq!(capture.lost_events(&events), 0);
}

/// The number after `key` in a line of text.
fn number(text: &str, key: &str) -> u32 {
    let (_, rest) = text.split_once(&format!(" {key}=")).unwrap();
    rest.split(' ').next().unwrap().parse().unwrap()
}

/// The descendants of the root task, according to the text.
fn descendants() -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    for event in text_events() {
        if event.text.starts_with("sched_process_fork") {
            let parent = number(&event.text, "pid");
            if parent == 290 || found.contains(&parent) {
                found.insert(number(&event.text, "child_pid"));
            }
        }
    }
    found
}

fn observed() -> (Observed, BTreeMap<String, u64>) {
    let capture = Capture::read(&data()).unwrap();
    let replay = Replay::new(&capture, &machine()).unwrap();
    let mut observed = Observed::new(&machine());
    replay.run(Audience::Workload, &mut observed).unwrap();
    observed.finish(replay.end());
    let mut values = BTreeMap::new();
    observed.for_each(&mut |name, value| {
        values.insert(name.to_owned(), value);
    });
    (observed, values)
}

#[test]
fn the_workload_is_what_the_root_task_created() {
    let capture = Capture::read(&data()).unwrap();
    let replay = Replay::new(&capture, &machine()).unwrap();
    assert_eq!(replay.workload(), &descendants());
    assert_eq!(replay.notes().lost_events, 0);
}

#[test]
fn counters_are_those_of_the_text() {
    let tasks = descendants();
    let (mut switches, mut migrations, mut run_us) = (0, 0, 0_u64);
    let mut ran_on: BTreeMap<u32, u32> = BTreeMap::new();
    let mut since: BTreeMap<u32, u64> = BTreeMap::new();
    for event in text_events().iter().filter(|event| event.text.starts_with("sched_switch")) {
        let [prev, next] = ["prev_pid", "next_pid"].map(|key| number(&event.text, key));
        switches += u64::from(tasks.contains(&prev) || tasks.contains(&next));
        if let Some(begin) = since.remove(&prev) {
            run_us += event.us - begin;
        }
        if tasks.contains(&next) {
            since.insert(next, event.us);
            let from = ran_on.insert(next, event.cpu);
            migrations += u64::from(from.is_some_and(|from| from != event.cpu));
        }
    }
    let (observed, values) = observed();
    assert_eq!(values["forks"], tasks.len() as u64);
    assert_eq!(values["context_switches"], switches);
    assert_eq!(values["migrations"], migrations);
    // The time of each switch is rounded to a microsecond.
    assert!(
        values["run_ns"].abs_diff(run_us * 1000) < 1000 * switches,
        "{} {run_us}",
        values["run_ns"]
    );
    assert!(migrations > 0 && values["migrations_node"] > 0, "the capture holds migrations");
    let placed: u64 = observed.classes().values().flat_map(|places| &places.llc_ns).sum();
    assert_eq!(placed, values["run_ns"]);
    assert!(observed.classes().contains_key("hackbench"));
}

#[test]
fn wakeups_are_those_of_the_text() {
    let tasks = descendants();
    let capture = Capture::read(&data()).unwrap();
    let notes = Replay::new(&capture, &machine()).unwrap().notes();
    let woken = text_events().into_iter().filter(|event| {
        event.text.starts_with("sched_wakeup:") && tasks.contains(&number(&event.text, "pid"))
    });
    let values = observed().1;
    let woken = woken.count() as u64;
    assert!(values["wakeups"] <= woken && values["wakeups"] + notes.wakeups_of_runnable >= woken);
    assert!(values["wakeups_prev"] <= values["wakeups"] && values["wakeups"] > 10);
    assert!(values["run_delay_ns"] > 0);
}

#[test]
fn a_cpu_that_the_machine_does_not_have_is_an_error() {
    let capture = Capture::read(&data()).unwrap();
    let small = roost_machine::resolve("core:2 pu:1").unwrap();
    let error = Replay::new(&capture, &small).unwrap_err().to_string();
    assert!(error.contains("trace/cpu") && error.contains("the machine has no CPU"), "{error}");
}

#[test]
fn a_missing_file_is_named() {
    let error = Capture::read(Path::new("/nowhere")).unwrap_err();
    assert!(matches!(error, MeasureError::Read { ref file, .. } if file.starts_with("/nowhere/")));
}

fn formats() -> Formats {
    let read = |name: &str| std::fs::read_to_string(data().join("trace").join(name)).unwrap();
    let events = EVENTS.map(|event| (event.to_owned(), read(&format!("format/{event}"))));
    let (page, event) = (read("header_page"), read("header_event"));
    Formats::parse(("header_page", &page), ("header_event", &event), &events).unwrap()
}

fn replay_all(buffers: Vec<Vec<u8>>) {
    let buffers = buffers.into_iter().zip(0..).map(|(pages, cpu)| CpuBuffer {
        cpu,
        file: format!("cpu{cpu}"),
        pages,
        lost: 0,
    });
    let capture = Capture::new(formats(), buffers.collect(), ("tgids", ""), 290).unwrap();
    for audience in [Audience::Everything, Audience::Workload] {
        let mut observed = Observed::new(&machine());
        let Ok(replay) = Replay::new(&capture, &machine()) else { return };
        replay.run(audience, &mut observed).unwrap();
        observed.finish(replay.end());
    }
    assert!(Replay::new(&capture, &machine()).unwrap().end() >= Time(0));
}

#[test]
fn an_event_years_after_the_others_is_an_error() {
    // The highest byte but one of the first page's time.
    const TIME: usize = 6;
    let mut damaged = std::fs::read(data().join("trace/cpu2")).unwrap();
    damaged[TIME] = 1;
    let whole = std::fs::read(data().join("trace/cpu4")).unwrap();
    let buffers = [(2, damaged), (4, whole)].map(|(cpu, pages)| CpuBuffer {
        cpu,
        file: format!("cpu{cpu}"),
        pages,
        lost: 0,
    });
    let capture = Capture::new(formats(), buffers.into(), ("tgids", ""), 290).unwrap();
    let error = Replay::new(&capture, &machine()).unwrap_err().to_string();
    assert!(error.starts_with("cpu2: byte "), "{error}");
    assert!(
        error.ends_with("the event is more than a day after the first one; measure again"),
        "{error}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn damaged_pages_end_in_counters_or_an_error(
        places in proptest::collection::vec((0_usize..4096, any::<u8>()), 1..20),
        length in 0_usize..=4096,
    ) {
        let mut damaged = std::fs::read(data().join("trace/cpu2")).unwrap();
        for (place, value) in places {
            damaged[place] = value;
        }
        replay_all(vec![damaged.clone()]);
        damaged.truncate(length);
        replay_all(vec![std::fs::read(data().join("trace/cpu4")).unwrap(), damaged]);
    }

    #[test]
    fn any_text_of_a_format_is_read_or_refused(
        text in "(ID: ?[0-9]{0,6}\n|\tfield:[a-z_]{1,8} ?[a-z_]{0,8};|\toffset:[0-9]{0,6};\
                 |\tsize:[0-9]{0,3};|\tsigned:[01];|\n){0,40}",
    ) {
        let events = EVENTS.map(|event| (event.to_owned(), text.clone()));
        let _ = Formats::parse(("header_page", &text), ("header_event", &text), &events);
    }
}
