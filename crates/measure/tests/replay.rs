//! What is reported to a tracer for the events of a real run. The buffers were written by hand in the formats of kernel
//! 7.2.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::path::Path;

use roost_engine::{CpuId, LeftAs, Time, TraceTask, Tracer};
use roost_machine::Machine;
use roost_measure::ftrace::{CpuBuffer, EVENTS, Formats};
use roost_measure::{Audience, Capture, Observed, Replay, observe_named};

const SHELL: u32 = 100;
const A: u32 = 101;
const B: u32 = 102;
const OTHER: u32 = 50;

fn data(name: &str) -> String {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/trace");
    fs::read_to_string(dir.join(name)).unwrap()
}

/// The number of events with this name.
fn id(name: &str) -> u16 {
    let format = data(&format!("format/{name}"));
    format.lines().find_map(|line| line.strip_prefix("ID: ")).unwrap().parse().unwrap()
}

fn comm(pid: u32) -> [u8; 16] {
    let name = match pid {
        0 => "swapper",
        SHELL => "bash",
        A | B => "thread0-1",
        _ => "other",
    };
    let mut comm = [0; 16];
    comm[..name.len()].copy_from_slice(name.as_bytes());
    comm
}

/// Data of an event: the common fields, then `fields`.
fn event(name: &str, fields: &[&[u8]]) -> Vec<u8> {
    let mut data = [&id(name).to_le_bytes()[..], &[0; 6]].concat();
    fields.iter().for_each(|field| data.extend(*field));
    data
}

fn switch(prev: u32, state: i64, next: u32) -> Vec<u8> {
    event(
        "sched_switch",
        &[
            &comm(prev),
            &prev.to_le_bytes(),
            &[0; 4],
            &state.to_le_bytes(),
            &comm(next),
            &next.to_le_bytes(),
            &[0; 4],
        ],
    )
}

/// One of the three events of a wakeup.
fn wake(name: &str, pid: u32, target: u32) -> Vec<u8> {
    event(name, &[&comm(pid), &pid.to_le_bytes(), &[0; 4], &target.to_le_bytes()])
}

fn fork(parent: u32, child: u32) -> Vec<u8> {
    // Two names of one byte each and their terminators, which follow the fields.
    let [first, second] = [24_u32, 26].map(|offset| (2 << 16 | offset).to_le_bytes());
    let pids = [parent, child].map(u32::to_le_bytes);
    event("sched_process_fork", &[&first, &pids[0], &second, &pids[1], b"p\0c\0"])
}

const SLEEPS: i64 = 1;
const RUNNABLE: i64 = 0;
const PREEMPTED: i64 = 0x100;
const ZOMBIE: i64 = 0x20;

/// A page with events at these times, in the kernel's layout.
fn page(events: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut data = Vec::new();
    let mut time = 0;
    for (at, event) in events {
        let delta = u32::try_from(at - time).unwrap();
        time = *at;
        let length = event.len().next_multiple_of(4);
        let start = data.len();
        data.extend((delta << 5 | (length / 4) as u32).to_le_bytes());
        data.extend(event);
        data.resize(start + 4 + length, 0);
    }
    [&0_u64.to_le_bytes()[..], &(data.len() as u64).to_le_bytes(), &data].concat()
}

/// A trace of these events, given with time and CPU.
fn capture(events: &[(u64, usize, Vec<u8>)]) -> Capture {
    let texts = EVENTS.map(|event| (event.to_owned(), data(&format!("format/{event}"))));
    let (header_page, header_event) = (data("header_page"), data("header_event"));
    let formats = Formats::parse(("p", &header_page), ("e", &header_event), &texts).unwrap();
    let buffers = (0..4).map(|cpu| {
        let of_cpu = events.iter().filter(|(_, on, _)| *on == cpu);
        let of_cpu: Vec<_> = of_cpu.map(|(time, _, event)| (*time, event.clone())).collect();
        CpuBuffer { cpu: cpu as u32, file: format!("cpu{cpu}"), pages: page(&of_cpu), lost: 0 }
    });
    let tgids = format!("{A} {A}\n{B} {A}\n");
    Capture::new(formats, buffers.collect(), ("saved_tgids", &tgids), SHELL).unwrap()
}

/// CPUs 0 and 1 share a cache, 2 and 3 share another.
fn machine() -> Machine {
    roost_machine::resolve("l3:2 core:2 pu:1").unwrap()
}

/// The reports to a tracer, one per line.
#[derive(Default)]
struct Told(Vec<String>);

impl Tracer for Told {
    fn switch(
        &mut self,
        now: Time,
        cpu: CpuId,
        previous: Option<(TraceTask<'_>, LeftAs)>,
        next: Option<TraceTask<'_>>,
    ) {
        let previous = previous.map_or("idle".into(), |(task, left)| {
            format!("{} of {} {left:?}", task.pid, task.process)
        });
        let next = next.map_or("idle".into(), |task| task.pid.to_string());
        self.0.push(format!("{}: cpu {cpu}: {previous} -> {next}", now.ns()));
    }

    fn wakeup(&mut self, now: Time, from: CpuId, task: TraceTask<'_>, target: CpuId) {
        self.0.push(format!("{}: {} wakes {} to {target}", now.ns(), from, task.pid));
    }
}

fn told(capture: &Capture, audience: Audience) -> Vec<String> {
    let mut told = Told::default();
    let replay = Replay::new(capture, &machine()).unwrap();
    replay.run(audience, &mut told).unwrap();
    told.0
}

/// The shell creates A, A creates B, then `events` follow. The trace begins at 10.
fn after_creation(events: Vec<(u64, usize, Vec<u8>)>) -> Capture {
    let creation = vec![
        (10, 0, fork(SHELL, A)),
        (11, 0, wake("sched_wakeup_new", A, 1)),
        (12, 1, switch(0, RUNNABLE, A)),
        (20, 1, fork(A, B)),
        (21, 1, wake("sched_wakeup_new", B, 2)),
        (22, 2, switch(0, RUNNABLE, B)),
    ];
    capture(&[creation, events].concat())
}

/// The reports about the creation.
const CREATED: [&str; 4] = [
    "1: 0 wakes 101 to 1",
    "2: cpu 1: idle -> 101",
    "11: 1 wakes 102 to 2",
    "12: cpu 2: idle -> 102",
];

/// Checks the reports for the workload between the creation and `end`. At `end`, the `running` tasks (CPU and task) are
/// taken off their CPUs.
#[track_caller]
fn assert_told(capture: &Capture, expected: &[&str], running: &[(usize, u32)], end: u64) {
    let taken =
        |(cpu, pid): &(usize, u32)| format!("{end}: cpu {cpu}: {pid} of {A} Preempted -> idle");
    let expected: Vec<String> = CREATED.iter().chain(expected).map(|s| (*s).to_owned()).collect();
    let expected = [expected, running.iter().map(taken).collect()].concat();
    assert_eq!(told(capture, Audience::Workload), expected);
}

#[test]
fn a_wakeup_is_told_once_with_waker_and_target() {
    let capture = after_creation(vec![
        (30, 2, switch(B, SLEEPS, 0)),
        (40, 1, wake("sched_waking", B, 2)),
        // Queued by an interrupt, so the CPU where the task will run reports it.
        (45, 3, wake("sched_wakeup", B, 3)),
        (46, 3, switch(0, RUNNABLE, B)),
    ]);
    let expected = [
        "20: cpu 2: 102 of 101 Sleeping -> idle",
        "35: 1 wakes 102 to 3",
        "36: cpu 3: idle -> 102",
    ];
    assert_told(&capture, &expected, &[(1, A), (3, B)], 36);
}

#[test]
fn a_wakeup_of_a_task_on_its_way_off_the_cpu_is_told_once_it_has_left() {
    let capture = after_creation(vec![
        (29, 1, wake("sched_waking", B, 2)),
        (30, 2, switch(B, SLEEPS, 0)),
        (35, 2, wake("sched_wakeup", B, 2)),
        (36, 2, switch(0, RUNNABLE, B)),
    ]);
    let expected = [
        "20: cpu 2: 102 of 101 Sleeping -> idle",
        "25: 1 wakes 102 to 2",
        "26: cpu 2: idle -> 102",
    ];
    assert_told(&capture, &expected, &[(1, A), (2, B)], 26);
}

#[test]
fn wakeups_that_place_nothing_or_have_one_half_are_noted_and_not_told() {
    let capture = after_creation(vec![
        (29, 1, wake("sched_waking", B, 2)),
        (30, 1, wake("sched_wakeup", B, 2)),
        (31, 2, switch(B, SLEEPS, 0)),
        (32, 3, wake("sched_wakeup", B, 2)),
        (33, 3, wake("sched_waking", B, 2)),
    ]);
    assert_told(&capture, &["21: cpu 2: 102 of 101 Sleeping -> idle"], &[(1, A)], 23);
    let notes = Replay::new(&capture, &machine()).unwrap().notes();
    assert_eq!((notes.wakeups_of_runnable, notes.half_wakeups, notes.lost_events), (1, 2, 0));
}

#[test]
fn a_preempted_task_is_not_placed_by_a_wakeup() {
    let capture = after_creation(vec![
        (30, 2, switch(B, PREEMPTED, OTHER)),
        (31, 1, wake("sched_waking", B, 2)),
        (32, 1, wake("sched_wakeup", B, 2)),
        (33, 2, switch(OTHER, SLEEPS, B)),
    ]);
    let expected = ["20: cpu 2: 102 of 101 Preempted -> idle", "23: cpu 2: idle -> 102"];
    assert_told(&capture, &expected, &[(1, A), (2, B)], 23);
    assert_eq!(Replay::new(&capture, &machine()).unwrap().notes().wakeups_of_runnable, 1);
}

#[test]
fn who_is_not_of_the_workload_is_the_idle_task_to_it() {
    let capture = after_creation(vec![
        (30, 1, switch(A, PREEMPTED, OTHER)),
        (31, 3, switch(0, RUNNABLE, OTHER + 1)),
        (32, 1, switch(OTHER, SLEEPS, A)),
        (33, 3, wake("sched_waking", OTHER, 1)),
        (34, 1, wake("sched_wakeup", OTHER, 1)),
        (40, 1, switch(A, ZOMBIE, SHELL)),
    ]);
    let expected = [
        "20: cpu 1: 101 of 101 Preempted -> idle",
        "22: cpu 1: idle -> 101",
        "30: cpu 1: 101 of 101 Exited -> idle",
    ];
    assert_told(&capture, &expected, &[(2, B)], 30);
    let everything = told(&capture, Audience::Everything);
    for line in [
        "20: cpu 1: 101 of 101 Preempted -> 50",
        "21: cpu 3: idle -> 51",
        "22: cpu 1: 50 of 50 Sleeping -> 101",
        "23: 3 wakes 50 to 1",
        "30: cpu 1: 101 of 101 Exited -> 100",
        "30: cpu 3: 51 of 51 Preempted -> idle",
    ] {
        assert!(everything.iter().any(|told| told == line), "{line} is not in {everything:#?}");
    }
}

#[test]
fn placement_is_counted_by_previous_cpu_and_wakers_cache() {
    let capture = after_creation(vec![
        (30, 2, switch(B, SLEEPS, 0)),
        // From the cache of CPUs 0 and 1 to the CPU where the task last ran.
        (40, 0, wake("sched_waking", B, 2)),
        (41, 2, wake("sched_wakeup", B, 2)),
        (44, 2, switch(0, RUNNABLE, B)),
        (50, 2, switch(B, SLEEPS, 0)),
        // From there to the waker's CPU.
        (60, 0, wake("sched_waking", B, 2)),
        (61, 0, wake("sched_wakeup", B, 0)),
        (62, 0, switch(0, RUNNABLE, B)),
        (70, 0, switch(B, ZOMBIE, 0)),
        (80, 1, switch(A, ZOMBIE, 0)),
    ]);
    let replay = Replay::new(&capture, &machine()).unwrap();
    let mut observed = Observed::new(&machine());
    replay.run(Audience::Workload, &mut observed).unwrap();
    observed.finish(replay.end());
    let mut counters = Vec::new();
    observed.for_each(&mut |name, value| counters.push((name.to_owned(), value)));
    let expected = [
        ("wakeups", 2),
        ("wakeups_prev", 1),
        ("wakeups_waker_llc", 1),
        ("migrations", 1),
        ("migrations_llc", 1),
        ("migrations_node", 0),
        ("context_switches", 8),
        ("forks", 2),
        ("run_ns", 68 + 8 + 6 + 8),
        // Counted from the time at which the task is queued.
        ("run_delay_ns", 1 + 1 + 3 + 1),
    ];
    assert_eq!(counters, expected.map(|(name, value)| (name.to_owned(), value)));
    let classes = observed.classes();
    assert_eq!(classes.keys().collect::<Vec<_>>(), ["thread0"]);
    assert_eq!(classes["thread0"].llc_ns, [68 + 8, 8 + 6]);
    assert_eq!(classes["thread0"].node_ns, [90]);
}

#[test]
fn tasks_are_observed_by_the_names_they_bore_at_any_time() {
    let replayed = |tasks: &[&str]| {
        // B is called "child" when it ends.
        let mut ends = switch(B, ZOMBIE, 0);
        let name = ends.iter().position(|&byte| byte == b't').unwrap();
        ends[name..name + 9].copy_from_slice(b"child\0\0\0\0");
        let capture = after_creation(vec![(30, 2, ends), (31, 1, switch(A, ZOMBIE, 0))]);
        let replay = Replay::new(&capture, &machine()).unwrap();
        let observed = observe_named(&replay, &machine(), tasks, Time(0)).unwrap();
        let mut run_ns = 0;
        observed.for_each(&mut |name, value| run_ns += u64::from(name == "run_ns") * value);
        run_ns
    };
    assert_eq!(replayed(&["thread0"]), 19 + 8);
    assert_eq!(replayed(&["thread0-1"]), 19 + 8);
    assert_eq!(replayed(&["child"]), 8, "from its start");
    assert_eq!(replayed(&["thread"]), 0);
}
