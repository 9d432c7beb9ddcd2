//! Memory that threads left behind, in a real kernel and simulated: 64 MB are first touched on node 0, then used by
//! four threads on node 1. The program that the guest runs is in this file too.
//!
//! There are two forms. Each thread uses its own quarter, or each thread uses all of the memory, starting a quarter
//! after the previous thread. In the second form the threads reach the same page at the same time: the NUMA scan marks
//! memory from the start on, and the threads pass over pages that are not marked yet. A hint fault is counted for each
//! thread that touches the page before it is unmapped.
//!
//! The guest's time counts instructions (`--exact`), so load on the host changes nothing. Repeats differ because they
//! start at different times, and because the kernel has been used before.
//!
//! `cargo test --profile checked -p roost --test guests -- --ignored --nocapture moved::memory`

use std::sync::Arc;
use std::time::{Duration, Instant};

use roost_simulate::{Control, Outcome, SchedulerSpec, Simulation, Start};
use roost_vm::{GuestSpec, Job, JobResult, exact};
use roost_workload::{
    Access, Op, Pattern, Placement, Program, Region, Sharing, Slice, Template, Workload,
};
use tempfile::TempDir;

use super::{cache, minimal_scheduler};

const MACHINE: &str = "2n2l4c";
/// CPUs of nodes 0 and 1.
const NODES: [[usize; 4]; 2] = [[0, 1, 2, 3], [8, 9, 10, 11]];

const PAGE: usize = 4096;
const PAGES: usize = (64 << 20) / PAGE;
/// When threads start on node 1, counted from the start of the process. The memory exists by then.
const START_MS: u64 = 500;
/// How long the threads use the memory.
const USE_MS: u64 = 2_500;
/// CPU time between two passes.
const SPIN_MS: u64 = 10;
/// Interval between two checks of which pages have moved.
const GLANCE_MS: u64 = 20;

/// How the threads share the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Each thread uses its own quarter.
    Quarters,
    /// Each thread uses all of the memory.
    All,
}

/// Repeats of each form in the guest. Those of [`Form::All`] differ more, so there are more of them.
const REPEATS: [usize; 2] = [3, 5];
/// Time limit of a guest. All jobs take less than this even on a busy host.
const WITHIN: Duration = Duration::from_secs(3600);
/// Selects one figure of an observation.
type Figure = fn(&Seen) -> f64;

/// Largest accepted difference, as a fraction of the guest's figure.
const BAR: f64 = 0.25;

/// Observations, counted from the start of the threads.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Time until 99 of 100 pages had moved. The kernel leaves a page that it cannot isolate for the next scan. `None`:
    /// that point was not reached.
    moved_ms: Option<f64>,
    marked: f64,
    faults: f64,
    migrated: f64,
}

const COUNTERS: [&str; 3] = ["numa_pte_updates", "numa_hint_faults", "numa_pages_migrated"];

// --- Simulated -----------------------------------------------------------------------------------

fn workload(form: Form, end_ms: u64) -> Workload {
    let text = r#"{ "tasks": { "t": { "loop": 1, "run": 1 } } }"#;
    let mut workload = roost_workload::rtapp::parse(text, "moved").expect("a valid file");
    let template = Template { footprint_bytes: 0, ..workload.templates.remove(0) };
    workload.start.clear();
    let bytes = (PAGES * PAGE / 4) as u64;
    let (sharing, placement) = (Sharing::Process(0), Placement::FirstTouch);
    workload.regions = vec![Region { bytes, sharing, placement }; 4];
    let mut thread = |cpu: usize, first: u32, parts: u32, times, delay_ms| {
        let slices = |part| vec![Slice { region: (first + part) % 4, write: false }];
        let pattern = Pattern::Stream;
        let accesses = (0..parts).map(|part| Access::new(slices(part), pattern)).collect();
        let mut ops: Vec<Op> = (0..parts).map(Op::Access).collect();
        let run = Op::Run { ns: SPIN_MS * 1_000_000 };
        ops.extend([run, Op::Loop { depth: 0, times, to: 0 }]);
        let program = Program { ops, loop_depth: 1, accesses, ..Program::default() };
        let affinity = Some(vec![cpu as u32]);
        let delay_ns = delay_ms * 1_000_000;
        workload.start.push((workload.templates.len() as u32, 1));
        workload.templates.push(Template { affinity, delay_ns, program, ..template.clone() });
    };
    thread(NODES[0][0], 0, 4, 1, 0);
    for (first, cpu) in (0..).zip(NODES[1]) {
        let parts = if form == Form::Quarters { 1 } else { 4 };
        thread(cpu, first, parts, 0, START_MS);
    }
    workload.duration_ns = Some(end_ms * 1_000_000);
    workload.validate().expect("a valid workload");
    workload
}

fn simulated(scheduler: &str, form: Form) -> Seen {
    let machine = Arc::new(roost_machine::resolve(MACHINE).expect("a machine"));
    let run = |end_ms: u64| -> Outcome {
        let simulation = Simulation {
            machine: Arc::clone(&machine),
            workload: Arc::new(workload(form, end_ms)),
            scheduler: SchedulerSpec::parse(scheduler).expect("a scheduler"),
            start: Start::Boot,
            quiet: true,
        };
        simulation.run(Control::new(1)).expect("it ends")
    };
    let [marked, faults, migrated] = {
        let outcome = run(START_MS + USE_MS);
        COUNTERS.map(|name| outcome.counter(name))
    };
    let moved = |ms: &u64| run(START_MS + ms).counter(COUNTERS[2]) >= 0.99 * PAGES as f64;
    let glances: Vec<u64> = (0..=USE_MS / GLANCE_MS).map(|glance| glance * GLANCE_MS).collect();
    let first = glances.partition_point(|ms| !moved(ms));
    let moved_ms = glances.get(first).map(|&ms| ms as f64);
    Seen { moved_ms, marked, faults, migrated }
}

// --- In a guest ----------------------------------------------------------------------------------

/// Not a test: this program runs in the guest.
#[test]
#[ignore = "run in a guest by another test"]
fn program_touches_and_moves_over() {
    let start = Instant::now();
    let quarters = std::env::var_os("FORM").is_none_or(|form| form == "quarters");
    pin(&NODES[0][..1]);
    let memory = pages();
    std::thread::sleep(Duration::from_millis(START_MS).saturating_sub(start.elapsed()));
    let before = counters();
    let begin = Instant::now();
    let end = begin + Duration::from_millis(USE_MS);
    std::thread::scope(|scope| {
        for (part, cpu) in NODES[1].into_iter().enumerate() {
            let (before, from) = memory.split_at(part * PAGES / 4 * PAGE);
            let parts = if quarters { [&from[..PAGES / 4 * PAGE], &[]] } else { [from, before] };
            scope.spawn(move || uses(parts, cpu, end));
        }
        let mut moved = None;
        while Instant::now() < end {
            std::thread::sleep(Duration::from_millis(GLANCE_MS));
            let migrated = counters()[2] - before[2];
            if moved.is_none() && migrated as f64 >= 0.99 * PAGES as f64 {
                moved = Some(begin.elapsed().as_millis());
            }
        }
        let after = counters();
        let [marked, faults, migrated] = [0, 1, 2].map(|counter| after[counter] - before[counter]);
        let moved = moved.map_or("never".to_owned(), |ms| ms.to_string());
        let there = on_node(memory, 1);
        println!("seen {moved} {marked} {faults} {migrated} on node 1: {there}");
    });
}

/// Passes over memory on one CPU, and touches each page once per pass.
fn uses(parts: [&[u8]; 2], cpu: usize, end: Instant) {
    pin(&[cpu]);
    while Instant::now() < end {
        for part in parts {
            touch(part);
        }
        let spun = Instant::now() + Duration::from_millis(SPIN_MS);
        while Instant::now() < spun {}
    }
}

/// Reads a byte of each page. It is written in assembly because the guest's time counts instructions: a build with
/// checks must not take longer for a pass than a build without.
fn touch(memory: &[u8]) {
    let range = memory.as_ptr_range();
    if range.is_empty() {
        return;
    }
    // SAFETY: reads only, of each page's first byte, from the slice's first page to its last.
    unsafe {
        std::arch::asm!(
            "2:",
            "mov {byte}, byte ptr [{page}]",
            "add {page}, {size}",
            "cmp {page}, {end}",
            "jb 2b",
            page = inout(reg) range.start => _,
            end = in(reg) range.end,
            byte = out(reg_byte) _,
            size = const PAGE,
            options(nostack, readonly),
        );
    }
}

/// Memory in pages of 4 KiB. All pages are touched here.
fn pages() -> &'static [u8] {
    let bytes = PAGES * PAGE;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: this is a new mapping. It stays until the process ends, and is written only here.
    unsafe {
        let start = libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0);
        assert_ne!(start, libc::MAP_FAILED);
        assert_eq!(libc::madvise(start, bytes, libc::MADV_NOHUGEPAGE), 0);
        start.cast::<u8>().write_bytes(1, bytes);
        std::slice::from_raw_parts(start.cast(), bytes)
    }
}

/// Binds this thread to CPUs.
fn pin(cpus: &[usize]) {
    // SAFETY: a set of zeros is a valid, empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set has the given size.
    let result = unsafe {
        cpus.iter().for_each(|&cpu| libc::CPU_SET(cpu, &mut set));
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    assert_eq!(result, 0);
}

/// Number of pages of `memory` on a node.
fn on_node(memory: &[u8], node: i32) -> usize {
    let pages: Vec<*const u8> = memory.chunks(PAGE).map(<[u8]>::as_ptr).collect();
    let mut status = vec![-1_i32; pages.len()];
    // SAFETY: both arrays have the given number of entries.
    let result = unsafe {
        let (pages, status) = (pages.as_ptr(), status.as_mut_ptr());
        libc::syscall(libc::SYS_move_pages, 0, PAGES, pages, 0_usize, status, 0)
    };
    assert_eq!(result, 0);
    status.iter().filter(|&&on| on == node).count()
}

/// Counters of the whole machine, on which little else happens.
fn counters() -> [u64; 3] {
    let text = std::fs::read_to_string("/proc/vmstat").unwrap();
    COUNTERS.map(|name| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
    })
}

/// The observations in a job's output.
fn told(output: &[u8]) -> Vec<(Seen, u64)> {
    let text = String::from_utf8_lossy(output);
    let lines =
        text.lines().filter_map(|line| line.split_once("seen ")?.1.split_once(" on node 1: "));
    lines
        .map(|(seen, there)| {
            let mut numbers = seen.split(' ').map(|word| word.parse::<f64>().ok());
            let mut next = || numbers.next().expect("four figures");
            let seen = Seen {
                moved_ms: next(),
                marked: next().unwrap(),
                faults: next().unwrap(),
                migrated: next().unwrap(),
            };
            (seen, there.parse().unwrap())
        })
        .collect()
}

const WATCH: &str =
    "watch() { ./touches --exact moved::program_touches_and_moves_over --ignored --nocapture; }\n";

fn job(script: &str) -> Job {
    let program = std::env::current_exe().unwrap();
    Job::script(format!("{WATCH}{script}")).with_file("touches", &program)
}

/// Prints simulated and real figures next to each other. Returns by what fraction the simulated ones are off. They are
/// compared with the mean of the repeats, except for hint faults, which are compared with the repeat that has most. The
/// number of hint faults depends on how closely threads follow each other when the scan begins, which differs by phase
/// and by build of this program (21387 to 26728). Simulated threads are always in step.
fn apart(form: Form, theirs: &[Seen]) -> [f64; 3] {
    let ours = simulated("fair@7.2", form);
    eprintln!("{form:?}: simulated {ours:?}\nLinux {theirs:?}");
    let mean = |of: Figure| theirs.iter().map(of).sum::<f64>() / theirs.len() as f64;
    let most = |of: Figure| theirs.iter().map(of).fold(0.0, f64::max);
    let rows: [(&str, Figure, bool); 3] = [
        ("time until moved", |seen| seen.moved_ms.expect("all pages move"), false),
        ("hint faults at most", |seen| seen.faults, true),
        ("migrated pages", |seen| seen.migrated, false),
    ];
    rows.map(|(name, of, at_most)| {
        let (ours, theirs) = (of(&ours), if at_most { most(of) } else { mean(of) });
        let apart = ours / theirs - 1.0;
        eprintln!("{name}: simulated {ours:.0}, Linux {theirs:.0}, {:+.1}%", 100.0 * apart);
        apart
    })
}

/// Runs jobs in one guest, and returns their results.
fn in_guest(jobs: &[Job]) -> Vec<JobResult> {
    let mut spec = GuestSpec::new(&roost_machine::resolve(MACHINE).unwrap());
    // The same setting as when the costs were measured.
    spec.instruction_shift = 0;
    let run = exact::run(&cache(), &spec, jobs);
    run.unwrap_or_else(|error| panic!("{error}\n{}", error.console().join("\n"))).results
}

#[test]
#[ignore = "boots a guest: make test-vm"]
fn memory_follows_threads_as_in_a_real_kernel() {
    // The repeats start after 0.1111 s, 0.2323 s and so on, so that no two start at the same phase of a tick or of a
    // scan.
    let repeats = |count: usize| -> String {
        (1..=count).map(|n| 12 * n - 1).map(|n| format!("sleep 0.{n}{n}; watch\n")).collect()
    };
    let [quarters, all] = REPEATS.map(repeats);
    let results = in_guest(&[job(&format!("{quarters}export FORM=all\n{all}")).within(WITHIN)]);
    let theirs: Vec<Seen> = told(&results[0].stdout).into_iter().map(|(seen, _)| seen).collect();
    assert_eq!(theirs.len(), REPEATS.iter().sum::<usize>());
    let (quarters, all) = theirs.split_at(REPEATS[0]);
    for (form, theirs) in [(Form::Quarters, quarters), (Form::All, all)] {
        let apart = apart(form, theirs);
        assert!(apart.iter().all(|part| part.abs() <= BAR), "more than 25% apart: {apart:?}");
    }
}

#[test]
fn without_numa_balancing_memory_stays_in_the_simulation() {
    let off = simulated("fair@7.2+no-numa-balancing", Form::Quarters);
    assert_eq!([off.marked, off.faults, off.migrated], [0.0; 3]);
}

#[test]
#[ignore = "boots a guest: make test-vm"]
fn under_a_sched_ext_scheduler_memory_stays() {
    let folder = TempDir::new().unwrap();
    let script = "mount -t bpf bpf /sys/fs/bpf 2>/dev/null; ./scx_minimal & sleep 1
        cat /sys/kernel/sched_ext/state; watch; cat /sys/kernel/sched_ext/state; kill %1; wait";
    let scheduler = minimal_scheduler(folder.path(), "");
    let results = in_guest(&[job(script).with_file("scx_minimal", &scheduler)]);
    let output = String::from_utf8_lossy(&results[0].stdout).into_owned();
    assert_eq!(output.matches("enabled").count(), 2, "{output}");
    let [(seen, there)] = told(&results[0].stdout)[..] else { panic!("{output}") };
    assert_eq!((seen.faults, seen.migrated, there), (0.0, 0.0, 0), "{seen:?}");
}

// --- What the guest's kernel needs for pages -------------------------------------------------------

/// Not a test: this program runs in the guest. One thread passes over memory that was first touched on node 0. It runs
/// on a CPU of the node in the environment variable NODE, and times each touch.
#[test]
#[ignore = "run in a guest by another test"]
fn program_touches_one_by_one() {
    let node: usize = std::env::var("NODE").unwrap().parse().unwrap();
    pin(&NODES[0][..1]);
    let memory = pages();
    // In a process with a single thread, the scan does not mark pages on the node that the thread runs on.
    std::thread::spawn(|| std::thread::sleep(Duration::from_secs(3600)));
    pin(&NODES[node][..1]);
    let end = Instant::now() + Duration::from_millis(USE_MS);
    let (mut quick, mut slow) = (Vec::new(), Vec::new());
    let mut marks = Vec::new();
    while Instant::now() < end {
        let before = counters();
        let mut times: Vec<u64> = memory.iter().step_by(PAGE).map(timed).collect();
        let after = counters();
        let [faults, migrated] = [1, 2].map(|counter| after[counter] - before[counter]);
        times.sort_unstable();
        if faults == 0 {
            quick.extend(times);
        } else if (node == 1) == (migrated > faults / 2) {
            let slowest = times.len() - (faults as usize).min(times.len());
            slow.push((faults, migrated, times[slowest..].to_vec()));
        }
        let (mut longest, from) = (0, counters()[0]);
        let (mut last, spun) = (Instant::now(), Instant::now() + Duration::from_millis(SPIN_MS));
        while last < spun {
            let now = Instant::now();
            longest = longest.max((now - last).as_nanos() as u64);
            last = now;
        }
        let marked = counters()[0] - from;
        if marked > 0 {
            marks.push((marked, longest));
        }
    }
    println!("untroubled {:?}", spread(&mut quick));
    for (faults, migrated, mut times) in slow {
        println!("faults {faults} migrated {migrated} {:?}", spread(&mut times));
    }
    for (marked, longest) in marks {
        println!("marked {marked} in {longest} ns");
    }
}

/// Time to read a byte, ns.
fn timed(byte: &u8) -> u64 {
    let start = Instant::now();
    std::hint::black_box(*std::hint::black_box(byte));
    start.elapsed().as_nanos() as u64
}

/// The fastest tenth, the median and the mean.
fn spread(times: &mut [u64]) -> [u64; 3] {
    times.sort_unstable();
    if times.is_empty() {
        return [0; 3];
    }
    let sum: u64 = times.iter().sum();
    [times[times.len() / 10], times[times.len() / 2], sum / times.len() as u64]
}

/// Prints the measurements from which the costs of `--exact` are taken.
#[test]
#[ignore = "a measurement, in a guest: make measure"]
fn measures_what_pages_cost_in_the_exact_lane() {
    let program = std::env::current_exe().unwrap();
    let script = "for NODE in 0 1 0 1; do export NODE; echo \"on node $NODE\"
        ./touches --exact moved::program_touches_one_by_one --ignored --nocapture; done";
    let results = in_guest(&[Job::script(script).with_file("touches", &program)]);
    eprintln!("{}", String::from_utf8_lossy(&results[0].stdout));
}
