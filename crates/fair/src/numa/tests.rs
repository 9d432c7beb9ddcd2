//! Whole runs: memory and tasks are brought together, in every form of the mechanism.

use std::sync::Arc;

use roost_engine::{Control, Outcome, run};
use roost_workload::{
    Access, Op, Pattern, Placement, Program, Region, Sharing, Slice, Template, Workload,
};

use crate::{Fair, Features};

const MIB: u64 = 1 << 20;
/// Pages of 1 MiB.
const PAGES: u64 = MIB / 4096;

/// Two nodes of eight CPUs with an LLC each.
const MACHINE: &str = "node:2 core:8 pu:1";

/// Builds workloads of threads that pass over their process's memory.
struct Builder {
    workload: Workload,
    template: Template,
}

impl Builder {
    fn new(processes: u32) -> Self {
        let text = r#"{ "tasks": { "t": { "loop": 1, "run": 1 } } }"#;
        let mut workload = roost_workload::rtapp::parse(text, "numa").expect("a valid file");
        let template = Template { footprint_bytes: 0, ..workload.templates[0].clone() };
        let process = workload.processes[0].clone();
        workload.processes = (0..processes).map(|_| process.clone()).collect();
        workload.templates.clear();
        workload.start.clear();
        Self { workload, template }
    }

    fn region(&mut self, mib: u64, process: u32) -> u32 {
        let (sharing, placement) = (Sharing::Process(process), Placement::FirstTouch);
        self.workload.regions.push(Region { bytes: mib * MIB, sharing, placement });
        self.workload.regions.len() as u32 - 1
    }

    /// A thread that passes `times` times over regions and computes for 10 ms after each pass; 0
    /// means for ever.
    fn thread(&mut self, process: u32, regions: &[u32], times: u64, delay_ms: u64, cpus: &[u32]) {
        let slices = regions.iter().map(|&region| Slice { region, write: true }).collect();
        let access = Access::new(slices, Pattern::Stream);
        let ops =
            vec![Op::Access(0), Op::Run { ns: 10_000_000 }, Op::Loop { depth: 0, times, to: 0 }];
        let accesses = vec![access];
        let program = Program { ops, loop_depth: 1, accesses, ..Program::default() };
        let affinity = (!cpus.is_empty()).then(|| cpus.to_vec());
        let delay_ns = delay_ms * 1_000_000;
        let template = Template { process, affinity, delay_ns, program, ..self.template.clone() };
        self.workload.templates.push(template);
        self.workload.start.push((self.workload.templates.len() as u32 - 1, 1));
    }

    fn run(mut self, scheduler: &str, seconds: u64) -> Outcome {
        self.workload.duration_ns = Some(seconds * 1_000_000_000);
        self.workload.validate().expect("a valid workload");
        let machine = Arc::new(roost_machine::resolve(MACHINE).expect("a machine"));
        let fair = Fair::new(&machine, Features::parse(scheduler).expect("a scheduler"));
        let control = Control::new(1);
        run(&machine, &self.workload, fair, control).expect("it ends")
    }
}

fn counter(outcome: &Outcome, name: &str) -> u64 {
    outcome.counter(name) as u64
}

/// 64 MiB are first touched on node 0, then used by four threads on node 1.
fn moved_away(scheduler: &str, seconds: u64) -> Outcome {
    used_elsewhere().run(scheduler, seconds)
}

fn used_elsewhere() -> Builder {
    let mut builder = Builder::new(1);
    let region = builder.region(64, 0);
    builder.thread(0, &[region], 1, 0, &[0]);
    for cpu in 8..12 {
        builder.thread(0, &[region], 0, 200, &[cpu]);
    }
    builder
}

#[test]
fn memory_follows_threads_that_may_not_go_to_it() {
    for version in ["fair@5.16", "fair@6.15", "fair@7.2"] {
        let outcome = moved_away(version, 20);
        assert_eq!(counter(&outcome, "numa_pages_migrated"), 64 * PAGES, "{version}: all, once");
        assert!(counter(&outcome, "numa_hint_faults") >= 64 * PAGES);
        // Four threads in step leave three of four pages to another thread.
        let marked = counter(&outcome, "numa_pte_updates");
        assert!(counter(&outcome, "numa_hint_faults") <= marked * 7 / 4);
    }
}

/// `mpol_misplaced()`: under the task's own policy, pages stay.
#[test]
fn memory_does_not_follow_threads_that_are_bound_to_nodes() {
    for version in ["fair@3.9", "fair@5.16", "fair@7.2"] {
        let mut builder = used_elsewhere();
        for template in &mut builder.workload.templates {
            template.program.accesses[0].bound = true;
        }
        let outcome = builder.run(version, 5);
        assert!(counter(&outcome, "numa_hint_faults") > 0, "{version}");
        assert_eq!(counter(&outcome, "numa_pages_migrated"), 0, "{version}");
        assert!(counter(&moved_away(version, 5), "numa_pages_migrated") > 0, "{version}");
    }
}

#[test]
fn without_numa_balancing_nothing_is_marked() {
    let outcome = moved_away("fair@7.2+no-numa-balancing", 5);
    for name in ["numa_pte_updates", "numa_hint_faults", "numa_pages_migrated"] {
        assert_eq!(counter(&outcome, name), 0, "{name}");
    }
}

/// Two processes of four threads each, which start where the scheduler puts them. The memory that
/// each process shares was first touched on one node.
fn crossed(scheduler: &str) -> (f64, Outcome) {
    let mut builder = Builder::new(2);
    for process in 0..2 {
        let region = builder.region(256, process);
        let first = 8 * process;
        builder.thread(process, &[region], 1, 0, &[first]);
        let own: Vec<u32> = (0..4).map(|_| builder.region(64, process)).collect();
        for own in own {
            // The delay allows the memory to be placed first.
            builder.thread(process, &[region, own], 0, 500, &[]);
        }
    }
    let outcome = builder.run(scheduler, 15);
    let (local, remote) =
        (counter(&outcome, "memory_local_bytes"), counter(&outcome, "memory_remote_bytes"));
    (local as f64 / (local + remote) as f64, outcome)
}

#[test]
fn two_processes_end_up_with_their_memory() {
    for version in ["fair@5.16", "fair@7.2"] {
        let (without, _) = crossed(&format!("{version}+no-numa-balancing"));
        let (with, outcome) = crossed(version);
        assert!(counter(&outcome, "numa_pages_migrated") > 0);
        assert!(with > without && with > 0.8, "{version}: locality {without:.2} -> {with:.2}");
    }
}

/// 3.9: 256 MiB on node 0, which one thread on each of `cpus` passes over. Returns pages moved, and
/// wakeups.
fn moved_in_old_kernel(cpus: &[u32]) -> [u64; 2] {
    let mut builder = Builder::new(1);
    let region = builder.region(256, 0);
    builder.thread(0, &[region], 1, 0, &[0]);
    // A process is scanned once it runs on two nodes.
    let own = builder.region(1, 0);
    builder.thread(0, &[own], 0, 0, &[1]);
    for &cpu in cpus {
        builder.thread(0, &[region], 0, 500, &[cpu]);
    }
    let outcome = builder.run("fair@3.9", 20);
    ["numa_pages_migrated", "wakeups"].map(|name| counter(&outcome, name))
}

/// Number of pages marked in a process that runs only on node 1, with memory on both nodes.
fn marked_on_node_1(forked: bool) -> u64 {
    let mut builder = Builder::new(1);
    builder.workload.processes[0].forked = forked;
    let region = builder.region(64, 0);
    builder.thread(0, &[region], 1, 0, &[0]);
    builder.thread(0, &[region], 0, 500, &[8]);
    counter(&builder.run("fair@3.9", 10), "numa_pte_updates")
}

#[test]
fn in_3_9_a_program_off_node_0_is_scanned_and_a_copy_that_stays_is_not() {
    assert!(marked_on_node_1(false) >= 64 * PAGES);
    assert_eq!(marked_on_node_1(true), 0);
}

/// `do_huge_pmd_numa_page()`: threads that want a huge page on the same node wait for its lock.
#[test]
fn in_3_9_threads_of_one_node_wait_for_each_others_pages() {
    let [alone, without] = moved_in_old_kernel(&[8]);
    let [together, waited] = moved_in_old_kernel(&[8, 9, 10, 11]);
    assert_eq!([alone, together], [256 * PAGES; 2], "to node 1");
    // Every thread sleeps once after each of its passes, and all passes take equally long.
    assert!(waited > 4 * without + 100, "{waited} wakeups, {without} for one thread");
}
