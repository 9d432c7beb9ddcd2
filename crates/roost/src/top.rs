//! `roost top`: how busy each LLC of this machine is over time, from `/proc/stat`.

use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use roost_machine::{Machine, count};

use crate::error::Error;

const STAT: &str = "/proc/stat";
/// Names the sched_ext scheduler that is loaded.
const LOADED: &str = "/sys/kernel/sched_ext/root/ops";
/// Columns that are kept: as many as a picture can have.
const KEPT: usize = roost_report::WINDOWS;
/// Time between two looks at whether to end.
const GLANCE: Duration = Duration::from_millis(50);
/// Lines above the picture.
const HEADING: u16 = 3;

/// Terminal sequences: to the alternate screen without a cursor, back again, and to the first line of a frame.
const OPEN: &str = "\x1b[?1049h\x1b[?25l";
const CLOSE: &str = "\x1b[?25h\x1b[?1049l";
const FIRST_LINE: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K\n";
const CLEAR_BELOW: &str = "\x1b[J";

/// Set by Ctrl-C and SIGTERM.
static STOP: AtomicBool = AtomicBool::new(false);

/// What `/proc/stat` says at one moment.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sample {
    /// Of each CPU that is online, by its number: times since boot in ticks.
    cpus: BTreeMap<u32, Times>,
    /// Tasks that run or wait for a CPU.
    runnable: u64,
}

/// Times of one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Times {
    busy: u64,
    all: u64,
}

/// The alternate screen. Dropping it leaves the screen.
struct Screen;

/// Shows this machine until Ctrl-C; without a terminal as frames one after the other.
pub fn run(interval: Duration) -> Result<(), Error> {
    let machine = Machine::this()?;
    // An error means that a handler is set already, which only happens in tests.
    let _ = ctrlc::set_handler(|| STOP.store(true, Ordering::Relaxed));
    let _screen = std::io::stdout().is_terminal().then(Screen::open);
    let mut before = sample()?;
    let mut columns: VecDeque<Vec<u64>> = VecDeque::new();
    while wait(interval) {
        let now = sample()?;
        columns.push_back(busy(&machine, &before, &now));
        if columns.len() > KEPT {
            columns.pop_front();
        }
        let shown = frame(&machine, columns.make_contiguous(), now.runnable, &scheduler(), size());
        if !show(&shown)? {
            break;
        }
        before = now;
    }
    Ok(())
}

/// Waits for `interval`. Returns false if the program has to end.
fn wait(interval: Duration) -> bool {
    let end = Instant::now() + interval;
    loop {
        if STOP.load(Ordering::Relaxed) {
            return false;
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(GLANCE));
    }
}

fn sample() -> Result<Sample, Error> {
    let wrong = |problem: String| Error::Usage(format!("{STAT}: {problem}; Linux shows it there"));
    let text = std::fs::read_to_string(STAT).map_err(|error| wrong(error.to_string()))?;
    parse(&text).ok_or_else(|| wrong("has no times of CPUs".to_owned()))
}

/// Parses `/proc/stat` (proc_stat(5)). `None` if it has no CPU, or a field is not a number.
fn parse(text: &str) -> Option<Sample> {
    let mut sample = Sample::default();
    for line in text.lines() {
        let (name, rest) = line.split_once(' ')?;
        if name == "procs_running" {
            sample.runnable = rest.trim().parse().ok()?;
        }
        if let Some(Ok(cpu)) = name.strip_prefix("cpu").map(str::parse::<u32>) {
            sample.cpus.insert(cpu, times(rest)?);
        }
    }
    (!sample.cpus.is_empty()).then_some(sample)
}

/// Fields: user nice system idle iowait irq softirq steal. The time of guests is part of user and nice.
fn times(fields: &str) -> Option<Times> {
    let numbers = fields.split_ascii_whitespace().take(8).map(str::parse::<u64>);
    let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().ok()?;
    let all: u64 = numbers.iter().sum();
    let idle: u64 = numbers.get(3..)?.iter().take(2).sum();
    Some(Times { busy: all - idle, all })
}

/// The busy part of each CPU of `machine` between two samples, in thousandths; 0 for an offline CPU. Times may go back,
/// because the kernel corrects those of idle CPUs now and then.
fn busy(machine: &Machine, before: &Sample, after: &Sample) -> Vec<u64> {
    let of = |number: u32| {
        let (from, to) = (before.cpus.get(&number)?, after.cpus.get(&number)?);
        let all = to.all.saturating_sub(from.all);
        let busy = to.busy.saturating_sub(from.busy).min(all);
        (busy * 1000).checked_div(all)
    };
    machine.cpus.iter().map(|cpu| of(cpu.os_index).unwrap_or(0)).collect()
}

/// The scheduler of this machine.
fn scheduler() -> String {
    let loaded = std::fs::read_to_string(Path::new(LOADED)).unwrap_or_default();
    match loaded.trim() {
        "" => "the kernel's own scheduler".to_owned(),
        name => format!("sched_ext scheduler {name}"),
    }
}

/// One frame: a heading and the picture, for a terminal of `size` (columns, lines).
fn frame(
    machine: &Machine,
    columns: &[Vec<u64>],
    runnable: u64,
    scheduler: &str,
    size: Option<(u16, u16)>,
) -> String {
    let (width, height) = size.unzip();
    let busy: u64 = columns.last().map_or(0, |column| column.iter().sum());
    let tenths = busy / 100;
    let heading = format!(
        "{}.{} of {} busy, {} or {}, {scheduler}",
        tenths / 10,
        tenths % 10,
        count(machine.nr_cpus(), "CPU"),
        if runnable == 1 { "1 task runs".to_owned() } else { format!("{runnable} tasks run") },
        if runnable == 1 { "waits" } else { "wait" }
    );
    let legend =
        "One row for each LLC, now at the right; a full block: all CPUs of the LLC are busy";
    let fitting = |line: &str| line.chars().take(width.map_or(usize::MAX, usize::from)).collect();
    let [heading, legend]: [String; 2] = [fitting(&heading), fitting(legend)];
    let lines = height.map(|height| height.saturating_sub(HEADING + 1).max(1));
    let picture = roost_report::busy_picture(machine, columns, width, lines);
    format!("{heading}\n{legend}\n\n{picture}")
}

/// Columns and lines of the terminal; `None`: the output goes elsewhere.
fn size() -> Option<(u16, u16)> {
    let size = terminal_size::terminal_size_of(std::io::stdout());
    size.map(|(width, height)| (width.0, height.0))
}

/// Shows a frame. Returns false if the reader has gone away.
fn show(frame: &str) -> Result<bool, Error> {
    let text = match std::io::stdout().is_terminal() {
        true => {
            format!("{FIRST_LINE}{}{CLEAR_BELOW}", frame.trim_end().replace('\n', CLEAR_LINE))
        }
        false => format!("{frame}\n"),
    };
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Error::Output(error)),
        Ok(()) => Ok(true),
    }
}

impl Screen {
    fn open() -> Self {
        Self::write(OPEN);
        Self
    }

    /// A terminal that is gone shows nothing anyway.
    fn write(text: &str) {
        let mut out = std::io::stdout();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        Self::write(CLOSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of Linux 6.1 with two CPUs, a second apart: 100 ticks, of which CPU 0 was busy for 75 and CPU 1 for none.
    const BEFORE: &str = "\
cpu  1130 0 420 98000 60 0 30 10 5 0
cpu0 600 0 220 48980 30 0 15 5 5 0
cpu1 530 0 200 49020 30 0 15 5 0 0
intr 512 0 9
ctxt 99120
btime 1795000000
processes 2011
procs_running 3
procs_blocked 0
softirq 100 0 10
";
    const AFTER: &str = "\
cpu  1190 0 430 98115 70 0 32 13 5 0
cpu0 660 0 230 48995 40 0 17 8 5 0
cpu1 530 0 200 49120 30 0 15 5 0 0
procs_running 4
";

    #[test]
    fn the_busy_part_is_all_but_idle_and_waiting_for_disks() {
        let machine = roost_machine::resolve("node:1 l3:1 core:2 pu:1").unwrap();
        let [before, after] = [BEFORE, AFTER].map(|text| parse(text).unwrap());
        assert_eq!((before.runnable, after.runnable), (3, 4));
        // user 60, system 10, softirq 2, steal 3; idle 15 and iowait 10.
        assert_eq!(busy(&machine, &before, &after), [750, 0]);
        assert_eq!(busy(&machine, &after, &before), [0, 0], "set back: not known");
        let shown = frame(&machine, &[busy(&machine, &before, &after)], 4, "fair", None);
        assert!(shown.starts_with("0.7 of 2 CPUs busy, 4 tasks run or wait, fair\n"), "{shown}");
        assert!(shown.ends_with("|  37%\n"), "{shown}");
    }

    #[test]
    fn a_cpu_that_is_offline_is_not_busy() {
        let machine = roost_machine::resolve("node:1 l3:1 core:4 pu:1").unwrap();
        let [before, after] = [BEFORE, AFTER].map(|text| parse(text).unwrap());
        assert_eq!(busy(&machine, &before, &after), [750, 0, 0, 0]);
    }

    #[test]
    fn what_is_no_proc_stat_is_refused() {
        for text in ["", "cpu  1 2 3 4\n", "cpu0 1 2\n", "cpu0 1 2 x 4\n", "garbage"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_frame_fits_the_terminal() {
        let machine = roost_machine::resolve("zen3-2s").unwrap();
        let columns = vec![vec![500; machine.nr_cpus()]; 200];
        for size in [(40, 10), (80, 24), (200, 50)] {
            let shown = frame(&machine, &columns, 7, "the kernel's own scheduler", Some(size));
            let widest = shown.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= usize::from(size.0), "{size:?}: {widest}");
            assert!(shown.lines().count() < usize::from(size.1), "{size:?}");
        }
    }
}
