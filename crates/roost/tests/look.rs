//! `--picture` and `--html` show what the run counted, and recording does not change the run.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use assert_cmd::prelude::*;
use roost_engine::{CpuId, LeftAs, Time, TraceTask, Tracer};
use roost_report::{By, Timeline, TimelineRecorder};
use roost_simulate::{Control, Outcome, Simulation};
use serde_json::Value;

mod page;
use page::data;

const MS: u64 = 1_000_000;

/// A run that is measured from start to end, and its timeline.
fn watched(machine: &str, workload: &str, ms: u64, scheduler: &str) -> (Outcome, Timeline) {
    let mut simulation = Simulation::named(machine, workload, Some(ms * MS), scheduler).unwrap();
    std::sync::Arc::make_mut(&mut simulation.workload).measured_from_ns = 0;
    let recorder = TimelineRecorder::new(&simulation.machine, Time(0));
    let control = Control { recorder: Some(recorder.recorder()), ..Control::new(3) };
    let outcome = simulation.run(control).unwrap();
    assert_eq!(outcome, simulation.run(Control::new(3)).unwrap(), "watching changes nothing");
    let timeline = recorder.finish(Time(outcome.elapsed_ns));
    (outcome, timeline)
}

/// Runs with many wakeups, exiting forks, memory, task groups, and a BPF program's own queue.
const RUNS: [(&str, &str, u64, &str); 5] = [
    ("2n2l4c", "hackbench:groups=2", 50, "fair@7.2"),
    ("zen3-2s", "schbench", 200, "fair@5.19+sis-util"),
    ("zen3-2s", "stream:threads=16,elements=1000000", 50, "fair@5.16"),
    ("2n2l2c2t", "numa02:cpus=8", 100, "fair@6.15+consolidate"),
    ("1s2n4l2c", "hackbench:groups=1", 50, "fair@3.9"),
];

fn count(outcome: &Outcome, name: &str) -> u64 {
    outcome.counter(name) as u64
}

#[test]
fn sums_over_windows_are_the_run_s_counters() {
    for (machine, workload, ms, scheduler) in RUNS {
        let (outcome, t) = watched(machine, workload, ms, scheduler);
        let told = format!("{workload} on {machine}");
        assert_eq!(t.cpus.running.sum(), count(&outcome, "run_ns"), "{told}");
        assert_eq!(t.run_delay.sum_ns, count(&outcome, "run_delay_ns"), "{told}");
        assert!(t.wakeup_latency.count >= count(&outcome, "wakeups") / 2, "{told}");
        for by in [By::Name, By::Process] {
            let of = || t.groups.iter().filter(|group| group.by == by);
            assert_eq!(of().map(|g| g.llcs.running.sum()).sum::<u64>(), t.cpus.running.sum());
            assert_eq!(of().map(|g| g.llcs.waiting.sum()).sum::<u64>(), t.cpus.waiting.sum());
        }
    }
}

/// Time that tasks waited, by CPU, from the events of a run.
#[derive(Default)]
struct Queues {
    /// For each task that waits, in which queue and since when.
    waits: BTreeMap<u32, (CpuId, Time)>,
    /// For each running task that the stopper moves, where to.
    moved: BTreeMap<u32, CpuId>,
    /// Number of running tasks that the stopper moved.
    stopped: u32,
    ns: BTreeMap<CpuId, u64>,
}

impl Queues {
    /// `task` leaves its queue, if it is in one.
    fn leaves(&mut self, now: Time, task: u32) -> bool {
        let Some((cpu, since)) = self.waits.remove(&task) else { return false };
        *self.ns.entry(cpu).or_default() += now - since;
        true
    }
}

/// A tracer's half of shared queues.
struct Watching(Rc<RefCell<Queues>>);

impl Tracer for Watching {
    fn switch(
        &mut self,
        now: Time,
        cpu: CpuId,
        previous: Option<(TraceTask<'_>, LeftAs)>,
        next: Option<TraceTask<'_>>,
    ) {
        let mut queues = self.0.borrow_mut();
        if let Some((task, LeftAs::Preempted)) = previous {
            let moved = queues.moved.remove(&task.pid);
            queues.stopped += u32::from(moved.is_some());
            queues.waits.insert(task.pid, (moved.unwrap_or(cpu), now));
        }
        if let Some(task) = next {
            queues.leaves(now, task.pid);
            queues.moved.remove(&task.pid);
        }
    }

    fn wakeup(&mut self, now: Time, _: CpuId, task: TraceTask<'_>, target: CpuId) {
        self.0.borrow_mut().waits.insert(task.pid, (target, now));
    }

    fn queued(&mut self, now: Time, task: TraceTask<'_>) {
        self.0.borrow_mut().waits.entry(task.pid).and_modify(|(_, since)| *since = now);
    }

    fn migrated(&mut self, now: Time, task: TraceTask<'_>, to: CpuId) {
        let mut queues = self.0.borrow_mut();
        if queues.leaves(now, task.pid) {
            queues.waits.insert(task.pid, (to, now));
        } else {
            queues.moved.insert(task.pid, to);
        }
    }
}

#[test]
fn tasks_wait_where_events_say() {
    let mut stopped = 0;
    let oltp = ("2n2l4c", "sysbench-oltp:instances=2,threads=8", 300, "fair@7.2");
    for (machine, workload, ms, scheduler) in RUNS.into_iter().chain([oltp]) {
        let simulation = Simulation::named(machine, workload, Some(ms * MS), scheduler).unwrap();
        let recorder = TimelineRecorder::new(&simulation.machine, Time(0));
        let queues = Rc::new(RefCell::new(Queues::default()));
        let control = Control {
            tracer: Some(Box::new(Watching(Rc::clone(&queues)))),
            recorder: Some(recorder.recorder()),
            ..Control::new(3)
        };
        let end = Time(simulation.run(control).unwrap().elapsed_ns);
        let t = recorder.finish(end);
        let mut queues = queues.borrow_mut();
        let waiting: Vec<u32> = queues.waits.keys().copied().collect();
        waiting.into_iter().for_each(|task| {
            queues.leaves(end, task);
        });
        for (cpu, row) in t.cpus.waiting.rows().enumerate() {
            let waited = queues.ns.get(&cpu).copied().unwrap_or(0);
            assert_eq!(row.iter().sum::<u64>(), waited, "{workload} on {machine}, CPU {cpu}");
        }
        stopped += queues.stopped;
    }
    assert!(stopped > 0, "no running task was moved");
}

#[test]
fn a_run_may_end_before_its_first_task_arrives() {
    let simulation = Simulation::named("2n2l4c", RUNS[0].1, Some(1000), "fair@7.2").unwrap();
    let recorder = TimelineRecorder::new(&simulation.machine, Time(0));
    let control = Control { recorder: Some(recorder.recorder()), ..Control::new(3) };
    simulation.run(control).unwrap();
    let t = recorder.finish(Time(1000));
    assert_eq!((t.cpus.running.sum(), t.cpus.waiting.sum()), (0, 0));
}

#[test]
fn migrations_are_those_that_the_engine_counts() {
    for (machine, workload, ms, scheduler) in RUNS {
        let (outcome, t) = watched(machine, workload, ms, scheduler);
        let machine = roost_machine::resolve(machine).unwrap();
        let node = |llc: usize| machine.cpus[machine.llcs[llc].cpus.first().unwrap()].node;
        let flows = |wanted: &dyn Fn(usize, usize) -> bool| -> u64 {
            let rows = t.migrations.iter().enumerate();
            rows.flat_map(|(from, row)| row.iter().enumerate().map(move |(to, n)| (from, to, n)))
                .filter(|&(from, to, _)| wanted(from, to))
                .map(|(.., n)| n)
                .sum()
        };
        assert_eq!(flows(&|_, _| true), count(&outcome, "migrations"), "{workload}");
        let nodes = flows(&|from, to| node(from) != node(to));
        assert_eq!(nodes, count(&outcome, "migrations_node"), "{workload}");
        let llcs = flows(&|from, to| from != to && node(from) == node(to));
        assert_eq!(llcs, count(&outcome, "migrations_llc"), "{workload}");
    }
}

#[test]
fn memory_is_what_the_engine_counts_and_what_is_under_way() {
    let (outcome, t) = watched("zen3-2s", "stream:threads=16,elements=1000000", 50, "fair@5.16");
    let [local, remote] = ["memory_local_bytes", "memory_remote_bytes"].map(|n| count(&outcome, n));
    let of = |of: fn(&roost_engine::Accessed) -> u64| -> u64 {
        t.accesses.iter().flat_map(|access| &access.node).map(of).sum()
    };
    assert_eq!((of(|n| n.local_bytes), of(|n| n.remote_bytes)), (local, remote));
    let end = t.memory.last().unwrap();
    let transferred = end.accessed.local_bytes + end.accessed.remote_bytes;
    // At most the sweep of each thread, over three arrays of which one counts twice.
    assert!((0..=16 * 4 * 8 * 1_000_000).contains(&(transferred - local - remote)));
    let pages: u64 = end.node_pages.iter().sum();
    let arrays = 3 * 8 * 1_000_000_u64;
    assert!(pages * 4096 >= arrays && pages * 4096 < arrays + arrays / 10, "{pages} pages");
    assert_eq!(t.memory.len(), t.windows());
}

fn roost(args: &[&str]) -> Command {
    let mut command = Command::cargo_bin("roost").unwrap();
    command.args(args);
    command
}

const COMPARE: [&str; 10] = [
    "compare",
    "--machine",
    "2n2l4c",
    "--workload",
    "hackbench:groups=1",
    "--duration",
    "20ms",
    "--repeat",
    "2",
    "fair@7.2",
];

#[test]
fn the_picture_stands_below_the_same_table() {
    let table = roost(&COMPARE).assert().success().get_output().stdout.clone();
    let with = roost(&COMPARE).arg("--picture").assert().success().get_output().stdout.clone();
    let (table, with) = (String::from_utf8(table).unwrap(), String::from_utf8(with).unwrap());
    let picture = with.strip_prefix(&table).expect("the table first");
    assert!(picture.contains("first run (seed 1)"), "{picture}");
    let rows = picture.lines().filter(|line| line.ends_with('|')).count();
    assert_eq!(rows, 4, "one row for each LLC: {picture}");
    assert!(!picture.contains('\x1b'), "no colour where no terminal is");
}

#[test]
fn what_cannot_be_drawn_is_told_in_one_line() {
    for (more, told) in [
        (&["--picture", "--format", "json"][..], "--picture is drawn below the table"),
        (
            &["--html", "r.html", "--machine", "zen3-2s"],
            "--html takes one machine and one workload",
        ),
        (&["--html", "/no/such/folder/r.html"], "/no/such/folder/r.html: cannot write the report"),
        (&["--html", "/"], "/: cannot write the report"),
        (&["--html", "/dev/full"], "/dev/full: cannot write the report: No space left"),
    ] {
        let output = roost(&COMPARE).args(more).assert().failure();
        let error = String::from_utf8(output.get_output().stderr.clone()).unwrap();
        let last = error.lines().last().unwrap();
        assert!(last.contains(told), "{more:?}: {error}");
        assert!(output.get_output().stdout.is_empty(), "{more:?}");
    }
}

#[test]
fn the_report_is_one_small_file_and_the_same_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.html");
    let write = |path: &Path| {
        roost(&COMPARE).arg("--html").arg(path).assert().success();
        std::fs::read_to_string(path).unwrap()
    };
    let first = write(&file);
    asks_nobody(&first);
    assert_eq!(write(&file), first);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
}

/// The page is small, and makes no request.
fn asks_nobody(page: &str) {
    assert!(page.len() < 2_000_000, "{} bytes", page.len());
    for elsewhere in ["<link", " src=", "href=", "@import", "url("] {
        assert!(!page.contains(elsewhere), "{elsewhere}");
    }
}

/// The page that a command writes, and what it prints.
fn page(args: &[&str]) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page.html");
    let output = roost(args).arg("--html").arg(&file).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let page = std::fs::read_to_string(&file);
    (page.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr))), printed)
}

/// Of one scenario on one machine: every quantity as the JSON of the same command has it.
#[test]
fn the_page_of_a_validation_has_both_sides_of_every_quantity() {
    let observed = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/linux-7.2.json");
    let (page, printed) = page(&[
        "validate",
        "--from",
        observed,
        "--machine",
        "2n2l4c",
        "--scenario",
        "hogs",
        "--format",
        "json",
    ]);
    asks_nobody(&page);
    let (data, printed) = (data(&page), serde_json::from_str::<Value>(&printed).unwrap());
    assert_eq!(data["suite"], printed);
    let quantities = data["suite"]["agreements"][0]["quantities"].as_array().unwrap();
    assert!(quantities.iter().any(|one| one["kind"] == "placement"), "{quantities:?}");
    assert!(
        quantities.iter().all(|one| one["sim"]["mean"].is_f64() && one["real"]["mean"].is_f64())
    );
    assert!(data["title"].as_str().unwrap().contains("Linux 7.2.13"), "{}", data["title"]);
}

/// What is kept in docs/results.json is shown without a run: rows with intervals and verdicts.
#[test]
fn the_page_of_published_figures_is_made_from_what_was_kept() {
    let results = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results.json");
    let (page, printed) = page(&["reproduce", "--from", results, "--format", "json"]);
    asks_nobody(&page);
    let (data, kept) = (data(&page), std::fs::read_to_string(results).unwrap());
    assert_eq!(printed, kept);
    let kept: Value = serde_json::from_str(&kept).unwrap();
    assert_eq!((&data["studies"], &data["score"]), (&kept["studies"], &kept["score"]));
    assert_eq!(data["bars"].as_array().map(Vec::len), Some(5));
    let searched = data["columns"].as_array().unwrap();
    assert!(searched.iter().any(|column| column["study"] == "hackbench"), "{searched:?}");
}

#[test]
fn what_was_kept_can_be_chosen_by_study() {
    let results = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results.json");
    let (one, _) = page(&["reproduce", "--from", results, "stream"]);
    let studies = data(&one)["studies"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(studies, ["stream"]);
    for (args, told) in [
        (["--from", results, "steam"], "has no study named steam; it has autonuma-2n"),
        (["--from", "/nowhere.json", "stream"], "/nowhere.json: cannot be read"),
    ] {
        let output = roost(&["reproduce"]).args(args).assert().failure();
        let error = String::from_utf8(output.get_output().stderr.clone()).unwrap();
        assert!(error.contains(told) && error.lines().count() == 1, "{error}");
    }
}

/// This machine, as far as it shows anybody what it does: frames one after the other where no terminal is.
#[test]
fn top_draws_this_machine_without_root_or_scheduler() {
    let mut top = roost(&["top", "20ms"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(top.stdout.take().unwrap()));
    let lines: Vec<String> = lines.take(4).map(Result::unwrap).collect();
    assert!(lines[0].contains("CPUs busy"), "{lines:?}");
    assert!(lines[3].starts_with("node ") && lines[3].ends_with('%'), "{lines:?}");
    // Its reader has gone away: that ends it.
    assert!(top.wait().unwrap().success());
}
