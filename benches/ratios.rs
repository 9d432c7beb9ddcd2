//! The simulator's speed compared with an old commit, from before it was optimised: ratios of processor time.
//!
//! ```text
//! make bench
//! ```
//!
//! Builds that commit once in `target/bench-base`. Then each case runs as a whole command with both programs in turn,
//! [`PAIRS`] times. The printed ratio is the median of the ratios within each pair, because other load on the machine
//! affects both programs of a pair alike. If valgrind is installed, instructions are counted too, because they do not
//! depend on the machine. The old program knows only machines that have just booted, without kernel threads, so the new
//! one uses the same.
//!
//! docs/notes/2026-11-25-speed.md lists the optimisations and their effects.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use roost_simulate::{Control, Simulation, Start};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The commit that this one is compared with.
const BASE: &str = "80e8c84a67d1b7187cc5989db470d1612c686f23";

/// Number of runs of each program per case.
const PAIRS: usize = 7;

struct Case {
    name: &'static str,
    machine: &'static str,
    workload: &'static str,
    /// Simulated time.
    seconds: f64,
    /// The bar: the ratio must not be larger.
    bar: f64,
}

const fn case(
    name: &'static str,
    machine: &'static str,
    workload: &'static str,
    seconds: f64,
    bar: f64,
) -> Case {
    Case { name, machine, workload, seconds, bar }
}

/// The first case has the load of `engine.rs`.
const CASES: [Case; 5] = [
    case("512 tasks on 256 CPUs", "node:2 l3:8 core:16 pu:1", "FILE", 2.0, 0.67),
    case("hackbench:groups=8", "zen3-2s", "hackbench:groups=8", 0.4, 0.67),
    case("netperf-tcp-rr", "xeon-1s-112", "netperf-tcp-rr", 1.0, 0.67),
    case("sysbench-oltp", "zen3-2s", "sysbench-oltp:instances=2,threads=24", 1.0, 0.6),
    case("numa01", "x3750-m4", "numa01", 8.0, 0.6),
];

const LOAD: &str = r#"{ "tasks": { "t": { "instance": 512, "loop": -1, "run": 100, "sleep": 100 } },
    "global": { "duration": 10 } }"#;

fn main() -> Result<()> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench-base");
    std::fs::create_dir_all(&target)?;
    let Some(base) = base_program(&target)? else {
        println!("ratios: skipped, because commit {BASE} is not in this checkout's history");
        return Ok(());
    };
    let load = target.join("load.json");
    std::fs::write(&load, LOAD)?;
    let counts = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !counts {
        println!("no valgrind: instructions are not counted");
    }
    println!("{:<24} {:>6} {:>13} {:>5}  instructions an event", "", "ratio", "least-most", "bar");
    let ours = ours();
    for case in &CASES {
        let programs = [base.as_path(), &ours];
        let ratios = ratios(case, programs, &load)?;
        let [least, median, most] = [0, PAIRS / 2, PAIRS - 1].map(|rank| ratios[rank]);
        let span = format!("{least:.2}-{most:.2}");
        print!("{:<24} {median:>6.2} {span:>13} {:>5.2}", case.name, case.bar);
        if counts {
            let events = events(case, &load)? as f64;
            let [before, now] = programs.map(|program| instructions(case, program, &load));
            let (before, now) = (before? / events, now? / events);
            print!("  {before:.0} before, {now:.0} now, {:.2}", now / before);
        }
        println!();
    }
    Ok(())
}

/// The program of this commit: that of `make fast`, which `make bench` names, or the one that was built for this bench.
fn ours() -> PathBuf {
    std::env::var_os("FAST_ROOST").unwrap_or(env!("CARGO_BIN_EXE_roost").into()).into()
}

/// The program of the old commit, which is built if necessary. `None` if the checkout has no history.
fn base_program(target: &Path) -> Result<Option<PathBuf>> {
    let source = target.join("source");
    if !source.exists() {
        let known =
            Command::new("git").args(["cat-file", "-e", BASE]).stderr(Stdio::null()).status()?;
        if !known.success() {
            return Ok(None);
        }
        let archive = target.join("source.tar");
        let archive = archive.to_str().ok_or("a path that is not UTF-8")?;
        check(Command::new("git").args(["archive", "--output", archive, BASE]))?;
        std::fs::create_dir(&source)?;
        check(Command::new("tar").args(["-xf", archive, "-C"]).arg(&source))?;
    }
    let build = ["build", "--release", "--locked", "--package", "roost", "--target-dir"];
    let built = target.join("target");
    check(Command::new(env!("CARGO")).args(build).arg(&built).current_dir(&source))?;
    Ok(Some(built.join("release/roost")))
}

fn check(command: &mut Command) -> Result<()> {
    let status = command.status()?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}").into()) }
}

/// The command line of a case.
fn command(case: &Case, program: &Path, load: &Path) -> Command {
    let workload = if case.workload == "FILE" { load.as_os_str() } else { case.workload.as_ref() };
    let duration = format!("{}ms", case.seconds * 1e3);
    let mut command = Command::new(program);
    command.args(["compare", "--repeat", "1", "--format", "json", "--machine", case.machine]);
    command.args(["--duration", &duration, "--workload"]).arg(workload).arg("fair@7.2");
    if program == ours() {
        command.args(["--quiet", "--start", "boot"]);
    }
    command.stdout(Stdio::null());
    command
}

/// Processor time of the second program divided by that of the first, sorted.
fn ratios(case: &Case, programs: [&Path; 2], load: &Path) -> Result<Vec<f64>> {
    let mut ratios = (0..PAIRS)
        .map(|_| {
            let [base, ours] = programs.map(|program| {
                let before = children_seconds();
                check(&mut command(case, program, load)).map(|()| children_seconds() - before)
            });
            Ok(ours? / base?)
        })
        .collect::<Result<Vec<f64>>>()?;
    ratios.sort_by(f64::total_cmp);
    Ok(ratios)
}

/// Processor time in user mode of all ended children, in s.
fn children_seconds() -> f64 {
    // SAFETY: the structure has only numbers, and the call fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    usage.ru_utime.tv_sec as f64 + usage.ru_utime.tv_usec as f64 / 1e6
}

/// Number of events in a case.
fn events(case: &Case, load: &Path) -> Result<u64> {
    let file = load.to_str().ok_or("a path that is not UTF-8")?;
    let workload = if case.workload == "FILE" { file } else { case.workload };
    let duration_ns = Some((case.seconds * 1e9) as u64);
    let mut events = 0;
    let mut simulation = Simulation::named(case.machine, workload, duration_ns, "fair@7.2")?;
    (simulation.quiet, simulation.start) = (true, Start::Boot);
    simulation.run_observed(Control::new(1), |_| events += 1)?;
    Ok(events)
}

/// Number of instructions of a program in a case.
fn instructions(case: &Case, program: &Path, load: &Path) -> Result<f64> {
    let inner = command(case, program, load);
    let mut counted = Command::new("valgrind");
    counted.args(["--tool=cachegrind", "--cachegrind-out-file=/dev/null", "--cache-sim=no"]);
    counted.arg(inner.get_program()).args(inner.get_args());
    let output = counted.output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let count = text.lines().find_map(|line| line.split_once("I refs:")).map(|(_, count)| count);
    let count = count.ok_or_else(|| format!("valgrind counted nothing: {text}"))?;
    let digits: String = count.chars().filter(char::is_ascii_digit).collect();
    Ok(digits.parse()?)
}
