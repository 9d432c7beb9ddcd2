//! The cost of the daemon on a machine with 2000 processes, some of them large.

#![allow(clippy::single_range_in_vec_init, reason = "lists of ranges are meant")]

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};

use roost_memory::host::{Host, Linux};
use roost_memory::{Config, Daemon, Scheduler, Set};

const PROCESSES: usize = 2000;
const LARGE: usize = 10;
/// Measured time of the daemon's life, s, by its own clock, which needs no waiting.
const SECONDS: u64 = 60;

/// A scheduler that knows all processes and has no preferences.
struct Knows(Vec<Set>);

impl Scheduler for Knows {
    fn groups(&mut self) -> Vec<Set> {
        Vec::new()
    }
    fn processes(&mut self, pids: &[u32]) -> Vec<Set> {
        let asked = |set: &&Set| pids.iter().any(|pid| u64::from(*pid) == set.id);
        self.0.iter().filter(asked).cloned().collect()
    }
    fn busy_nodes(&mut self) -> Vec<u32> {
        Vec::new()
    }
    fn set_group_memory(&mut self, _: u32, _: &[(u32, u64)]) {}
    fn set_process_memory(&mut self, _: u32, _: &[(u32, u64)]) {}
    fn set_moving(&mut self, _: u32, _: bool) {}
    fn set_excluded(&mut self, _: u32, _: bool) {}
}

/// Processes that end when this is dropped.
struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Children {
    fn start() -> Self {
        let mut children = Self(Vec::new());
        for number in 0..PROCESSES {
            let mut command = match number < LARGE {
                true => Command::new(std::env::current_exe().expect("this program")),
                false => Command::new("sleep"),
            };
            match number < LARGE {
                true => command.args(["--exact", "program_holds_memory", "--ignored"]),
                false => command.arg("600"),
            };
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            children.0.push(command.spawn().expect("a process"));
        }
        children
    }
}

fn cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: every thread has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[test]
#[ignore = "a measurement: make measure; docs/live-results.md has its figure"]
fn measures_two_thousand_processes_that_cost_less_than_a_hundredth_of_a_cpu() {
    let children = Children::start();
    // The scheduler prefers no node, so nobody asks which mappings have a policy.
    let mut host = Linux::new(|_| None);
    let least_pages = Config::pages(16);
    let large = |host: &mut Linux<_>| {
        let ours = |pid: u32| children.0.iter().any(|child| child.id() == pid);
        let all = host.processes();
        all.iter().filter(|(pid, pages)| *pages >= least_pages && ours(*pid)).count()
    };
    for _ in 0..100 {
        if large(&mut host) == LARGE {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert_eq!(large(&mut host), LARGE, "large processes have their memory");
    let sets = children.0.iter().zip(0..).map(|(child, index)| Set {
        index,
        id: u64::from(child.id()),
        preferred: None,
        settled_at: 0,
        started: host.details(child.id()).expect("a process that runs").started,
    });
    let mut scheduler = Knows(sets.collect());
    let config = Config {
        least_pages,
        share_percent: 50,
        interval: 2_000_000_000,
        settle: 3_000_000_000,
        nodes: BTreeMap::from([(0, vec![0..u32::MAX])]),
        patterns: Vec::new(),
        follows: true,
    };
    let mut daemon = Daemon::new(config, 0);
    let before = cpu_ns();
    for now in (0..SECONDS * 10).map(|tenth| tenth * 100_000_000) {
        if now >= daemon.due_at() {
            daemon.step(now, &mut host, &mut scheduler);
        }
    }
    let spent = cpu_ns() - before;
    let counters = daemon.counters();
    assert!(
        counters.large_processes as usize >= LARGE && counters.sampled > 10_000,
        "{counters:?}"
    );
    let permille = spent / (SECONDS * 1_000_000);
    eprintln!("{} us of CPU time a second, {counters:?}", spent / SECONDS / 1000);
    assert!(permille < 10, "{permille} of 1000 of a CPU");
}

/// Not a test: the program of a large process.
#[test]
#[ignore = "started by another test"]
fn program_holds_memory() {
    let memory = std::hint::black_box(vec![1_u8; 32 << 20]);
    std::thread::sleep(std::time::Duration::from_secs(600));
    drop(memory);
}
