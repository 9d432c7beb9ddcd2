//! The cost of the daemon on a machine with 2000 processes, some of them large, and how long its looks at a very large
//! one take, which hold the lock of that process's mappings.

#![allow(clippy::single_range_in_vec_init, reason = "lists of ranges are meant")]

use std::collections::BTreeMap;
use std::ops::Range;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use roost_memory::host::{Details, Host, Linux};
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
        std::thread::sleep(Duration::from_millis(100));
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

/// Pages that one look asks for, as in the daemon.
const CHUNK: usize = 512;

/// GiB of the very large process, unless this variable says otherwise.
const GIB: (&str, u64) = ("ROOST_HELD_GIB", 2);

/// How the memory of the very large process is mapped: pages of 4 KiB, huge pages, one page of 4 KiB in each 2 MiB, or
/// guard pages, whose page tables are full of entries without a page, as of memory that was swapped out.
const SHAPES: [&str; 4] = ["small", "huge", "sparse", "guards"];

/// The variable with one of [`SHAPES`].
const SHAPE: &str = "ROOST_HELD_AS";

/// The calls of one kind: their number and the longest, by the clock and by this thread's CPU time.
#[derive(Debug, Default)]
struct Longest {
    calls: u64,
    wall: Duration,
    cpu_ns: u64,
    all_cpu_ns: u64,
}

impl Longest {
    fn time<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let (before, began) = (cpu_ns(), Instant::now());
        let result = call();
        let (wall, cpu) = (began.elapsed(), cpu_ns() - before);
        self.calls += 1;
        self.wall = self.wall.max(wall);
        self.cpu_ns = self.cpu_ns.max(cpu);
        self.all_cpu_ns += cpu;
        result
    }
}

/// A host whose calls that take the lock of a process's mappings are timed.
struct Timed<H> {
    host: H,
    /// Reads of `/proc/PID/maps`, `PAGEMAP_SCAN`, and `move_pages(2)` without a target. Each is one call of the kernel,
    /// but for maps, which is read in parts.
    of: [(&'static str, Longest); 3],
}

impl<H: Host> Timed<H> {
    fn new(host: H) -> Self {
        Self {
            host,
            of: ["maps", "PAGEMAP_SCAN", "move_pages"].map(|name| (name, Longest::default())),
        }
    }

    /// Asks for all pages of a range as a move does. Returns how many there are.
    fn walk(&mut self, pid: u32, range: Range<u64>) -> usize {
        let (mut from, mut found) = (range.start, 0);
        while from < range.end {
            let (addresses, next) = self.present(pid, from..range.end, CHUNK);
            self.locate(pid, &addresses);
            found += addresses.len();
            from = next.max(from + 1);
        }
        found
    }
}

impl<H: Host> Host for Timed<H> {
    fn processes(&mut self) -> Vec<(u32, u64)> {
        self.host.processes()
    }
    fn details(&mut self, pid: u32) -> Option<Details> {
        self.host.details(pid)
    }
    fn mapped(&mut self, pid: u32) -> Vec<Range<u64>> {
        self.of[0].1.time(|| self.host.mapped(pid))
    }
    fn movable(&mut self, pid: u32) -> Vec<Range<u64>> {
        self.of[0].1.time(|| self.host.movable(pid))
    }
    fn present(&mut self, pid: u32, range: Range<u64>, most: usize) -> (Vec<u64>, u64) {
        self.of[1].1.time(|| self.host.present(pid, range, most))
    }
    fn locate(&mut self, pid: u32, addresses: &[u64]) -> Vec<Option<u32>> {
        self.of[2].1.time(|| self.host.locate(pid, addresses))
    }
    fn move_to(&mut self, pid: u32, addresses: &[u64], target: u32) -> u64 {
        self.host.move_to(pid, addresses, target)
    }
    fn moving_ns(&mut self) -> u64 {
        self.host.moving_ns()
    }
    fn room(&mut self) -> Vec<(u32, u64)> {
        self.host.room()
    }
    fn group_pages(&mut self, group: u64) -> Option<Vec<(u32, u64)>> {
        self.host.group_pages(group)
    }
    fn group_path(&mut self, group: u64) -> Option<String> {
        self.host.group_path(group)
    }
}

/// GiB of the very large process.
fn held_gib() -> u64 {
    std::env::var(GIB.0).ok().and_then(|text| text.parse().ok()).unwrap_or(GIB.1)
}

/// A process that holds memory in a shape, and its large mapping. It is ready when it has written a line.
fn holder(shape: &str) -> (Children, u32, Range<u64>) {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "program_holds_much_memory", "--ignored", "--nocapture"]);
    command.env(SHAPE, shape).env(GIB.0, held_gib().to_string());
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("a process");
    let mut out = std::io::BufReader::new(child.stdout.take().expect("a pipe"));
    let told = std::io::BufRead::lines(&mut out).map_while(Result::ok).find_map(|line| {
        let (_, address) = line.split_once("holds ")?;
        address.parse::<u64>().ok()
    });
    // Its end of the pipe stays open, or the child could not write on.
    child.stdout = Some(out.into_inner());
    let (pid, children) = (child.id(), Children(vec![child]));
    let from = told.expect("an address");
    (children, pid, from..from + (held_gib() << 30))
}

#[test]
#[ignore = "a measurement: ROOST_HELD_GIB=12 make measure; docs/notes/2026-11-26-daemon-in-simulation.md"]
fn measures_how_long_a_look_at_a_very_large_process_holds_its_lock() {
    for shape in SHAPES {
        let (children, pid, range) = holder(shape);
        let mut host = Timed::new(Linux::new(|_| None));
        let mapped = host.mapped(pid);
        assert!(mapped.iter().any(|m| m.start <= range.start && range.end <= m.end), "{mapped:?}");
        let found = host.walk(pid, range.clone());
        // As the daemon samples: addresses far apart.
        for first in 0..256 {
            let step = (range.end - range.start) / 128;
            let sampled: Vec<u64> =
                range.clone().step_by(step as usize).map(|at| at + (first << 12)).collect();
            host.locate(pid, &sampled);
        }
        let mut numa_maps = Longest::default();
        let text = numa_maps.time(|| std::fs::read_to_string(format!("/proc/{pid}/numa_maps")));
        let of_policies = text.map_or_else(|error| error.to_string(), |_| format!("{numa_maps:?}"));
        eprintln!("{shape}: {} GiB, {found} pages present; numa_maps: {of_policies}", held_gib());
        for (name, longest) in &host.of {
            eprintln!("  {name}: {longest:?}");
            assert!(longest.cpu_ns < 100_000_000, "{shape}, {name}: {longest:?}");
        }
        drop(children);
    }
}

/// Not a test: the program of a very large process.
#[test]
#[ignore = "started by another test"]
fn program_holds_much_memory() {
    let shape = std::env::var(SHAPE).expect("a shape");
    let bytes = (held_gib() << 30) as usize;
    let (pages, huge) = (4096, 2 << 20);
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, of which the beginning is left out up to a multiple of 2 MiB.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes + huge, protection, flags, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    let start = start.cast::<u8>().map_addr(|address| address.next_multiple_of(huge));
    let (advice, step) = match &*shape {
        "huge" => (libc::MADV_HUGEPAGE, pages),
        "sparse" => (libc::MADV_NOHUGEPAGE, huge),
        "guards" => (MADV_GUARD_INSTALL, bytes),
        _ => (libc::MADV_NOHUGEPAGE, pages),
    };
    // SAFETY: the mapping has so many bytes.
    let advised = unsafe { libc::madvise(start.cast(), bytes, advice) };
    assert_eq!(advised, 0, "{}", std::io::Error::last_os_error());
    if advice != MADV_GUARD_INSTALL {
        // SAFETY: as before, and nothing else uses it.
        (0..bytes).step_by(step).for_each(|at| unsafe { start.add(at).write_volatile(1) });
    }
    println!("holds {}", start.addr());
    std::thread::sleep(Duration::from_secs(600));
}

/// `linux/mman.h`, since 6.13.
const MADV_GUARD_INSTALL: libc::c_int = 102;

/// Not a test: the program of a large process.
#[test]
#[ignore = "started by another test"]
fn program_holds_memory() {
    let memory = std::hint::black_box(vec![1_u8; 32 << 20]);
    std::thread::sleep(Duration::from_secs(600));
    drop(memory);
}
