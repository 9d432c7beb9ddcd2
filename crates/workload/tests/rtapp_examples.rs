//! Debian's rt-app 1.0 examples can be loaded, and mean what rt-app's tutorial says.

use std::path::{Path, PathBuf};

use roost_workload::rtapp::{self, Loaded};
use roost_workload::{Cpus, MetricKind, Op, Policy, TimerRef, resolve};

/// The first operation of every task without a delay.
const START: Op = Op::Start { delay_ns: 0 };

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/rtapp")
}

fn load(name: &str) -> Loaded {
    let path = examples().join(name);
    rtapp::load_file(&path.to_string_lossy()).unwrap_or_else(|error| panic!("{error}"))
}

/// All .json files of the examples, except the fragments in merge/.
fn complete_examples() -> Vec<PathBuf> {
    let mut open = vec![examples()];
    let mut files = Vec::new();
    while let Some(directory) = open.pop() {
        let entries = std::fs::read_dir(directory).expect("the examples are part of the crate");
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() && !path.ends_with("merge") {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "json") {
                files.push(path);
            }
        }
    }
    files
}

#[test]
fn every_complete_example_loads() {
    let files = complete_examples();
    assert_eq!(files.len(), 18);
    for file in files {
        let file = file.to_str().unwrap();
        if let Err(error) = rtapp::load_file(file) {
            panic!("{error}");
        }
        resolve(file, Some(1_000_000_000)).unwrap();
    }
}

#[test]
fn merge_fragments_are_refused_with_what_they_lack() {
    for (file, expected) in [
        ("global.json", "tasks: missing"),
        ("resources.json", "tasks: missing"),
        ("thread0.json", "before version 1.0"),
    ] {
        let path = examples().join("merge").join(file);
        let error = rtapp::load_file(path.to_str().unwrap()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn example1_runs_20_ms_and_sleeps_80_ms_for_2_s() {
    let workload = load("tutorial/example1.json").workload;
    assert_eq!(workload.duration_ns, Some(2_000_000_000));
    assert_eq!(workload.start, [(0, 1)]);
    assert_eq!(
        workload.templates[0].program.ops,
        [
            START,
            Op::Run { ns: 20_000_000 },
            Op::Sleep { ns: 80_000_000 },
            Op::Count { counter: 0, by: 1 },
            Op::Loop { depth: 0, times: 0, to: 1 },
        ]
    );
}

#[test]
fn example3_has_twelve_threads_of_two_phases_on_a_timer_each() {
    let workload = load("tutorial/example3.json").workload;
    assert_eq!(workload.start, [(0, 12)]);
    let timer = Op::Timer { timer: TimerRef::Own(0), period_ns: 30_000_000, absolute: false };
    let program = &workload.templates[0].program;
    assert_eq!(program.own_timers, 1);
    assert_eq!(
        program.ops,
        [
            START,
            Op::Run { ns: 3_000_000 },
            timer,
            Op::Loop { depth: 0, times: 10, to: 1 },
            Op::Run { ns: 27_000_000 },
            timer,
            Op::Loop { depth: 0, times: 10, to: 4 },
            Op::Count { counter: 0, by: 1 },
        ]
    );
    assert!(workload.metrics.iter().any(|metric| metric.kind == MetricKind::WallSeconds));
}

#[test]
fn example4_without_a_global_section_needs_a_duration_from_outside() {
    let path = examples().join("tutorial/example4.json");
    let path = path.to_str().unwrap();
    let error = resolve(path, None).unwrap_err().to_string();
    assert!(error.contains("thread0") && error.contains("never exits"), "{error}");
    assert_eq!(resolve(path, Some(7)).unwrap().duration_ns, Some(7));
}

#[test]
fn example4_suspends_on_the_name_that_the_other_resumes() {
    let workload = load("tutorial/example4.json").workload;
    // thread0 resumes "thread1" (objects 0), then suspends on "thread0" (objects 1).
    assert_eq!(
        workload.templates[0].program.ops[2..8],
        [
            Op::Lock(0),
            Op::Broadcast(0),
            Op::Unlock(0),
            Op::Lock(1),
            Op::Wait { condition: 1, mutex: 1 },
            Op::Unlock(1),
        ]
    );
    assert!(workload.templates[1].program.ops.contains(&Op::Wait { condition: 0, mutex: 0 }));
}

#[test]
fn example5_keeps_repeated_events_in_order_and_pins_its_threads() {
    let workload = load("tutorial/example5.json").workload;
    let thread1 = &workload.templates[1];
    assert_eq!(
        (thread1.nice, &thread1.program.affinities[..]),
        (-19, &[Some(Cpus::List(vec![1]))][..])
    );
    let runs = thread1.program.ops.iter().filter(|op| matches!(op, Op::Run { .. })).count();
    assert_eq!(runs, 3);
    assert_eq!(thread1.program.ops[..2], [START, Op::SetAffinity(0)]);
    assert!(matches!(thread1.program.ops[2..5], [Op::Lock(_), Op::Wait { .. }, Op::Unlock(_)]));
}

#[test]
fn example6_writes_memory_and_does_io() {
    let workload = load("tutorial/example6.json").workload;
    let template = &workload.templates[0];
    assert_eq!(workload.regions[0].bytes, 1_000);
    assert!(template.program.ops.contains(&Op::Access(0)));
    // One write that is smaller than the buffer.
    assert!(template.program.ops.contains(&Op::Run { ns: 200 }));
}

#[test]
fn example7_meets_at_three_barriers_of_two() {
    assert_eq!(load("tutorial/example7.json").workload.barriers, [2, 2, 2]);
}

#[test]
fn example8_moves_from_cpu_0_to_1_to_the_2_of_its_task() {
    let workload = load("tutorial/example8.json").workload;
    let template = &workload.templates[0];
    let sets: Vec<_> = template
        .program
        .ops
        .iter()
        .filter_map(|op| match op {
            Op::SetAffinity(set) => template.program.affinities[*set as usize].clone(),
            _ => None,
        })
        .collect();
    assert_eq!(sets, [0, 1, 2].map(|cpu| Cpus::List(vec![cpu])));
}

#[test]
fn mp3_shares_its_tick_and_loops_phases_inside_the_task() {
    let workload = load("mp3-short.json").workload;
    assert_eq!(workload.shared_timers, 1);
    let tick = &workload.templates[0].program;
    assert_eq!(tick.loop_depth, 2);
    assert!(tick.ops.contains(&Op::Loop { depth: 1, times: 4, to: 6 }), "{:?}", tick.ops);
}

#[test]
fn video_fills_in_the_name_of_a_suspend_without_one() {
    let workload = load("video-short.json").workload;
    // surfaceflinger's "suspend" without a name and EventThread2's "resume" : "surfaceflinger" use the same objects.
    let Op::Wait { condition, .. } = workload.templates[0].program.ops[2] else {
        panic!("surfaceflinger begins with a suspend");
    };
    let event_thread2 =
        workload.templates.iter().find(|template| template.name == "EventThread2").unwrap();
    assert!(event_thread2.program.ops.contains(&Op::Broadcast(condition)));
}

#[test]
fn real_time_policies_are_noted_not_silently_replaced() {
    let loaded = load("cpufreq_governor_efficiency/dvfs.json");
    assert_eq!(loaded.notes.len(), 1);
    assert!(loaded.notes[0].contains("tasks.thread: SCHED_FIFO"), "{:?}", loaded.notes);
    assert_eq!(loaded.workload.templates[0].policy, Policy::Normal);
}

#[test]
fn the_templates_event_of_length_zero_does_nothing() {
    let workload = load("template.json").workload;
    let sleeps = |op: &Op| matches!(op, Op::Sleep { .. });
    assert!(!workload.templates[0].program.ops.iter().any(sleeps));
}
