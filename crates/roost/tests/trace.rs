//! Reads the trace of a run as the Perfetto trace processor does. The times on CPUs must add up to what the run
//! counted.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::process::Command;

use prost::Message;

/// The part of Perfetto's `Trace` that describes scheduling, with the field numbers of its `protos/perfetto/trace/`. It
/// is written down here a second time, so that a wrong number in the writer shows.
#[derive(Clone, PartialEq, Message)]
struct Trace {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<Packet>,
}

#[derive(Clone, PartialEq, Message)]
struct Packet {
    #[prost(message, optional, tag = "1")]
    ftrace_events: Option<Bundle>,
    #[prost(message, optional, tag = "2")]
    process_tree: Option<ProcessTree>,
}

#[derive(Clone, PartialEq, Message)]
struct Bundle {
    #[prost(uint32, optional, tag = "1")]
    cpu: Option<u32>,
    #[prost(message, repeated, tag = "2")]
    event: Vec<Event>,
}

#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(uint64, optional, tag = "1")]
    timestamp: Option<u64>,
    #[prost(message, optional, tag = "4")]
    sched_switch: Option<Switch>,
}

#[derive(Clone, PartialEq, Message)]
struct Switch {
    #[prost(string, optional, tag = "1")]
    prev_comm: Option<String>,
    #[prost(int32, optional, tag = "2")]
    prev_pid: Option<i32>,
    #[prost(string, optional, tag = "5")]
    next_comm: Option<String>,
    #[prost(int32, optional, tag = "6")]
    next_pid: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct ProcessTree {
    #[prost(message, repeated, tag = "1")]
    processes: Vec<Process>,
    #[prost(message, repeated, tag = "2")]
    threads: Vec<Thread>,
}

#[derive(Clone, PartialEq, Message)]
struct Process {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(string, repeated, tag = "3")]
    cmdline: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Thread {
    #[prost(int32, optional, tag = "1")]
    tid: Option<i32>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
    #[prost(int32, optional, tag = "3")]
    tgid: Option<i32>,
}

/// A task on a CPU from `start` to `end`, ns.
#[derive(Debug)]
struct Slice {
    pid: i32,
    name: String,
    start: u64,
    end: u64,
}

/// The slices of each CPU. A slice lasts until the next switch of its CPU.
fn slices(trace: &Trace) -> BTreeMap<u32, Vec<Slice>> {
    let mut open: BTreeMap<u32, Slice> = BTreeMap::new();
    let mut closed: BTreeMap<u32, Vec<Slice>> = BTreeMap::new();
    for bundle in trace.packet.iter().filter_map(|packet| packet.ftrace_events.as_ref()) {
        for event in &bundle.event {
            let Some(switch) = &event.sched_switch else { continue };
            let now = event.timestamp();
            let next = Slice {
                pid: switch.next_pid(),
                name: switch.next_comm().to_owned(),
                start: now,
                end: now,
            };
            if let Some(left) = open.insert(bundle.cpu(), next) {
                assert_eq!(left.pid, switch.prev_pid(), "who leaves is who ran");
                assert_eq!(left.name, switch.prev_comm());
                assert!(left.start <= now, "CPU {}: time moves on", bundle.cpu());
                closed.entry(bundle.cpu()).or_default().push(Slice { end: now, ..left });
            } else {
                assert_eq!(switch.prev_pid(), 0, "a CPU is idle before its first switch");
            }
        }
    }
    assert!(open.values().all(|slice| slice.pid == 0), "tasks still running are closed at the end");
    closed
}

/// Runs once. Returns the trace, and the counter `run_ns` of the same run.
fn traced(machine: &str, workload: &str, duration: &str, scheduler: &str) -> (Trace, u64) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace");
    let output = Command::new(env!("CARGO_BIN_EXE_roost"))
        .args(["compare", "--machine", machine, "--workload", workload, "--duration", duration])
        // A trace covers the whole run. Without warm-up, the counters do too.
        .args(["--start", "boot", "--repeat", "1", "--format", "json", "--trace"])
        .arg(&file)
        .arg(scheduler)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let run_ns = json["counters"]["run_ns"][0].as_f64().unwrap() as u64;
    (Trace::decode(&*std::fs::read(file).unwrap()).unwrap(), run_ns)
}

/// Checks one run, and returns the names of its threads.
fn check(machine: &str, workload: &str, duration: &str, scheduler: &str) -> Vec<String> {
    let what = format!("{machine}, {workload}, {scheduler}");
    let (trace, run_ns) = traced(machine, workload, duration, scheduler);
    let by_cpu = slices(&trace);
    for slices in by_cpu.values() {
        assert!(slices.windows(2).all(|pair| pair[0].end <= pair[1].start), "{what}: overlap");
    }
    let busy = by_cpu.values().flatten().filter(|slice| slice.pid != 0);
    let total: u64 = busy.clone().map(|slice| slice.end - slice.start).sum();
    assert_eq!(total, run_ns, "{what}: CPU time");
    let trees = || trace.packet.iter().filter_map(|packet| packet.process_tree.as_ref());
    let threads: BTreeMap<i32, &Thread> =
        trees().flat_map(|tree| &tree.threads).map(|thread| (thread.tid(), thread)).collect();
    let processes: BTreeMap<i32, String> = trees()
        .flat_map(|tree| &tree.processes)
        .map(|process| (process.pid(), process.cmdline.join(" ")))
        .collect();
    for slice in busy {
        let thread = threads.get(&slice.pid).unwrap_or_else(|| panic!("{what}: {slice:?}"));
        assert_eq!(thread.name(), slice.name, "{what}: switches and names agree");
        assert!(!slice.name.is_empty(), "{what}: pid {} has a name", slice.pid);
        assert!(!processes[&thread.tgid()].is_empty(), "{what}: its process has a name");
    }
    threads.values().map(|thread| thread.name().to_owned()).collect()
}

#[test]
fn slices_of_a_run_that_ends_add_up() {
    let names = check("node:2 l3:2 core:2 pu:2", "hackbench:groups=2,loops=20", "10s", "fair@5.16");
    let count = |part| names.iter().filter(|name| name.contains(part)).count();
    assert_eq!((count("sender"), count("receiver")), (40, 40), "{names:?}");
}

#[test]
fn slices_of_a_run_that_is_cut_off_add_up() {
    for scheduler in ["fair@5.19", "fair@7.2"] {
        check("hygon-vm", "iperf3:noise=4", "300ms", scheduler);
        check("x3950", "netperf-udp-rr:clients=40", "30ms", scheduler);
    }
}

#[test]
fn slices_of_preempted_tasks_add_up() {
    // With more hogs than CPUs, every switch is a preemption or a migration by balancing.
    check("node:2 core:2 pu:2", "coremark:threads=13", "1s", "fair@6.15");
}
