//! Short runs, written by hand.

use roost_engine::LeftAs;

use super::*;

const US: u64 = 1000;

fn task(pid: u32, name: &'static &'static str) -> TraceTask<'static> {
    TraceTask { pid, slot: pid, process: pid, known_to: name }
}

/// A machine of 2 nodes, each with 2 LLCs of 4 CPUs.
fn machine() -> Machine {
    roost_machine::resolve("2n2l4c").unwrap()
}

fn row(grid: &Grid, row: usize) -> Vec<u64> {
    grid.row(row).collect()
}

/// The timeline of what is `told`, for a run that ends at `end`.
fn timeline(from: u64, end: u64, told: impl FnOnce(&mut Recording)) -> Timeline {
    let mut recording = Recording::new(&machine(), Time(from));
    told(&mut recording);
    recording.finish(Time(end))
}

/// Task 1 is woken at 0 us for CPU 0, queued at 1 us, and moved to the queue of CPU 4 at 3 us. It runs there from 4 us
/// (5 us with the switch) to 10 us, is preempted, and runs again from 12 to 20 us on CPU 9 of the other node.
fn journey(recording: &mut Recording) {
    let at = |us: u64| Time(us * US);
    let first = Start {
        at: at(4),
        cpu: 4,
        queue: 4,
        queued_at: at(1),
        woken_at: at(0),
        ran_on: None,
        until_switch_ns: US,
    };
    let second = Start {
        at: at(12),
        cpu: 9,
        queue: 4,
        queued_at: at(10),
        woken_at: Time::NEVER,
        ran_on: Some(4),
        until_switch_ns: 0,
    };
    recording.meets(task(1, &"a-1"));
    recording.waited(at(3), 1, 0, at(1));
    recording.started(1, &first);
    recording.ran(at(10), 1, 4, at(4));
    recording.started(1, &second);
    recording.ran(at(20), 1, 9, at(12));
}

/// A task is woken at 0 us for CPU 4 and runs there from 4 to 10 us. It is preempted, runs again from 12 to 20 us on
/// CPU 9, and sleeps. It is woken at 22 us for CPU 9 and waits until the end at 25 us.
fn events(tracer: &mut dyn Tracer) {
    let a = task(1, &"a-1");
    let at = |us: u64| Time(us * US);
    tracer.wakeup(at(0), 0, a, 4);
    tracer.switch(at(4), 4, None, Some(a));
    tracer.switch(at(10), 4, Some((a, LeftAs::Preempted)), None);
    tracer.switch(at(12), 9, None, Some(a));
    tracer.switch(at(20), 9, Some((a, LeftAs::Sleeping)), None);
    tracer.wakeup(at(22), 0, a, 9);
}

/// The sum of each row.
fn sums(grid: &Grid) -> Vec<u64> {
    grid.rows().map(|row| row.iter().sum()).collect()
}

#[test]
fn a_task_is_where_it_waits_and_where_it_runs() {
    let t = timeline(0, 20 * US, journey);
    assert_eq!((t.window_ns, t.windows()), (1024, 20));
    let waited = [(0, 2 * US), (4, US + 2 * US)];
    let ran = [(4, 6 * US), (9, 8 * US)];
    for (grid, expected) in [(&t.cpus.waiting, waited), (&t.cpus.running, ran)] {
        let mut by_cpu = vec![0; 16];
        expected.iter().for_each(|&(cpu, ns)| by_cpu[cpu] = ns);
        assert_eq!(sums(grid), by_cpu);
    }
    assert_eq!(row(&t.cpus.running, 4)[3..6], [4 * 1024 - 4000, 1024, 1024], "from 4 us on");
    let llcs = t.llcs(&machine());
    assert_eq!(sums(&llcs.running), [0, 6 * US, 8 * US, 0]);
    assert_eq!(t.groups[0].llcs, llcs, "it is the only task of that name");
    let names: Vec<_> = t.groups.iter().map(|group| (group.by, group.name.as_str())).collect();
    assert_eq!(names, [(By::Name, "a"), (By::Process, "1 a-1")]);
}

#[test]
fn latencies_include_the_switch_and_migrations_are_from_where_it_ran() {
    let t = timeline(0, 20 * US, journey);
    assert_eq!((t.wakeup_latency.count, t.wakeup_latency.sum_ns), (1, 5 * US));
    assert_eq!((t.run_delay.count, t.run_delay.sum_ns), (2, 4 * US + 2 * US));
    let moved: Vec<_> = t.migrations.iter().map(|row| row.iter().sum::<u64>()).collect();
    assert_eq!((t.migrations[1][2], moved), (1, vec![0, 1, 0, 0]), "the first start is none");
}

#[test]
fn what_was_before_measuring_began_counts_neither_as_latency_nor_as_migration() {
    let t = timeline(12 * US, 20 * US, journey);
    assert_eq!((t.wakeup_latency.count, t.run_delay.count), (0, 0), "that moment is before, too");
    assert_eq!(t.migrations.concat().iter().sum::<u64>(), 0);
    assert_eq!(t.cpus.running.sum(), 14 * US, "what is drawn is all of it");
    let t = timeline(12 * US - 1, 20 * US, journey);
    assert_eq!((t.run_delay.count, t.run_delay.sum_ns, t.migrations[1][2]), (1, 2 * US, 1));
}

#[test]
fn spans_follow_from_events() {
    let recorder = TimelineRecorder::new(&machine(), Time(0));
    recorder.observe(Time(25 * US), events);
    let t = recorder.finish(Time(25 * US));
    let llcs = t.llcs(&machine());
    assert_eq!(sums(&llcs.running), [0, 6 * US, 8 * US, 0]);
    assert_eq!(sums(&llcs.waiting), [0, 4 * US + 2 * US, 3 * US, 0]);
    assert_eq!((t.wakeup_latency.count, t.wakeup_latency.sum_ns), (1, 4 * US));
    assert_eq!((t.run_delay.count, t.run_delay.sum_ns), (2, 4 * US + 2 * US));
    assert_eq!(t.migrations[1][2], 1);
}

#[test]
fn a_task_whose_wakeup_is_not_in_the_trace_did_not_wait() {
    let recorder = TimelineRecorder::new(&machine(), Time(0));
    recorder.observe(Time(9 * US), |tracer| {
        tracer.switch(Time(5 * US), 0, None, Some(task(1, &"a")));
    });
    let t = recorder.finish(Time(9 * US));
    assert_eq!((t.cpus.running.sum(), t.cpus.waiting.sum()), (4 * US, 0), "it runs to the end");
    assert_eq!((t.run_delay.sum_ns, t.wakeup_latency.count), (0, 0));
}

#[test]
fn windows_double_and_lose_nothing() {
    let short = timeline(0, 20 * US, journey);
    let long = timeline(0, 1_000_000 * US, |recorder| {
        journey(recorder);
        recorder.meets(task(2, &"b"));
        recorder.waited(Time(999_992 * US), 2, 0, Time(999_990 * US));
        recorder.ran(Time(1_000_000 * US), 2, 0, Time(999_992 * US));
    });
    assert_eq!((long.window_ns, long.windows()), (1 << 23, 120), "8.4 ms each");
    assert_eq!(long.cpus.running.sum(), short.cpus.running.sum() + 8 * US);
    assert_eq!(long.cpus.waiting.sum(), short.cpus.waiting.sum() + 2 * US);
    assert_eq!(row(&long.cpus.running, 4)[0], 6 * US);
    assert_eq!(row(&long.cpus.running, 0)[119], 8 * US);
    assert_eq!(long.length_ns(119), 1_000_000_000 - 119 * (1 << 23));
}

#[test]
fn more_groups_than_are_told_apart_are_others() {
    static NAMES: [&str; 20] = [
        "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r",
        "s", "t",
    ];
    let t = timeline(0, 100 * US, |recorder| {
        for (pid, name) in (1..).zip(&NAMES) {
            recorder.meets(TraceTask { process: 7, ..task(pid, name) });
            recorder.ran(Time(US), pid, pid as usize % 16, Time(0));
        }
    });
    let of = |by| t.groups.iter().filter(move |group| group.by == by);
    assert_eq!(of(By::Name).count(), 17);
    let ran: Vec<u64> = of(By::Name).map(|group| group.llcs.running.sum()).collect();
    assert_eq!((ran[0], ran[16]), (US, 4 * US));
    assert_eq!(of(By::Name).next_back().unwrap().name, "others");
    let only = of(By::Process).map(|group| (group.name.as_str(), group.llcs.running.sum()));
    assert_eq!(only.collect::<Vec<_>>(), [("7 a", 20 * US)]);
}

#[test]
fn a_thread_that_changes_its_group_is_in_the_new_one_from_then_on() {
    let [one, two] = [("a", Some((0, "/one"))), ("a", Some((1, "/two")))];
    let in_one = TraceTask { known_to: &one, ..task(1, &"a") };
    let in_two = TraceTask { known_to: &two, ..in_one };
    let t = timeline(0, 3 * US, |recorder| {
        recorder.meets(in_one);
        recorder.ran(Time(US), 1, 0, Time(0));
        recorder.meets(in_two);
        recorder.ran(Time(3 * US), 1, 0, Time(US));
    });
    let cgroups = t.groups.iter().filter(|group| group.by == By::Cgroup);
    let ran: Vec<_> = cgroups.map(|g| (g.name.as_str(), g.llcs.running.sum())).collect();
    assert_eq!(ran, [("/one", US), ("/two", 2 * US)]);
}

/// Does as the engine: reports memory at the times that the recorder asks for, and at the end.
fn remember(recorder: &mut Recording, end: u64) {
    let at = |now: Time| MemoryNow { node_pages: vec![now.ns()], accessed: Accessed::default() };
    while recorder.next_memory() < Time(end) {
        let now = recorder.next_memory();
        recorder.memory(now, &at(now));
    }
    recorder.memory(Time(end), &at(Time(end)));
}

#[test]
fn memory_is_that_of_the_end_of_each_window() {
    for end in [500, 1024, 5000, 131_072, 131_073, 200_000, 1_000_000_007] {
        let t = timeline(0, end, |recorder| remember(recorder, end));
        assert_eq!(t.memory.len(), t.windows(), "{end}");
        for (window, memory) in t.memory.iter().enumerate() {
            let ends = t.window_ns * window as u64 + t.length_ns(window);
            assert_eq!(memory.node_pages, [ends], "window {window} of {end}");
        }
    }
}

#[test]
fn threads_beyond_those_told_apart_are_added_up() {
    let node = [Accessed { local_bytes: 2, remote_bytes: 3 }];
    let t = timeline(0, 1, |recorder| {
        (1..=70).for_each(|pid| recorder.accessed(task(pid, &"t"), &node));
    });
    assert_eq!((t.accesses.len(), t.accesses[0].thread.as_str()), (65, "1 t"));
    let last = &t.accesses[64];
    let six = [Accessed { local_bytes: 12, remote_bytes: 18 }];
    assert_eq!((last.thread.as_str(), &last.node[..]), ("others", &six[..]));
}
