//! What was compared, where and by which roost. This is enough to repeat a comparison, and to tell it from another.

use std::fmt::Write as _;
use std::io::{BufWriter, Write as _};

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::comparison::Comparison;

/// Number of digits of a commit or hash in texts for people.
const SHOWN_DIGITS: usize = 12;

/// Number of bytes that are hashed at once.
const HASHED_BYTES: usize = 1 << 14;

/// What was compared, where and by which roost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Experiment {
    /// The program.
    pub roost: Build,
    /// Where the schedulers ran.
    pub place: Place,
    /// The machine.
    pub machine: Input,
    /// The workload.
    pub workload: Input,
    /// Time that ends a run even if tasks remain, in ns. `None`: a run lasts until its tasks end.
    pub duration_ns: Option<u64>,
    /// Time in a run from which measuring lasts until the end, in ns. `None`: a real program decides that by itself.
    pub measured_from_ns: Option<u64>,
    /// State of a simulated machine before the run: `running` or `boot`.
    pub start: Option<&'static str>,
    /// Whether a simulated machine runs nothing besides the workload. `None`: a real kernel, which has its own threads.
    pub quiet: Option<bool>,
    /// Seed of the first repeat. Each further repeat uses the next number.
    pub seed: u64,
    /// The schedulers. The first one is the baseline.
    pub schedulers: Vec<Contender>,
}

/// A build of roost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build {
    /// Its version.
    pub version: String,
    /// The commit it was built from, with all digits. `None`: it was not built in a clone of the repository.
    pub commit: Option<String>,
    /// Whether its sources differed from the commit.
    pub modified: bool,
}

/// Where schedulers were compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Models of schedulers on a model of a machine.
    Simulated,
    /// A real kernel on an emulated machine.
    Guest,
    /// A real kernel on an emulated machine, where time counts instructions.
    ExactGuest,
    /// The machine that roost ran on.
    Host,
}

/// A machine or a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// The name on the command line.
    pub name: String,
    /// SHA-256 in hexadecimal of what was read: of the machine or workload as JSON, with its fields in the order of
    /// their declaration.
    pub sha256: String,
}

/// A scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contender {
    /// The label, or the name on the command line.
    pub name: String,
    /// The name on the command line, without a label.
    pub spec: String,
    /// Release of the kernel that the scheduler ran on. For a simulated scheduler, the version that it models.
    pub kernel: String,
    /// Whether it is a sched_ext program that a simulated kernel executed.
    pub program: bool,
    /// Switches and numbers that differ from that version. For a program, its arguments.
    pub switches: Vec<String>,
    /// The SHA-256 of the file with its sched_ext program, if it has one of its own.
    pub program_sha256: Option<String>,
    /// The mechanisms that are on and have counters.
    pub mechanisms: Vec<Mechanism>,
    /// Notes on its switches, for example that one changed nothing.
    pub notes: Vec<String>,
}

/// A mechanism of a scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mechanism {
    /// Its name.
    pub name: String,
    /// The counters whose sum says how often the mechanism acted.
    pub acted: Vec<String>,
}

impl Build {
    /// The build as text for people: `0.1.0 (e88c8540fb36, modified)`.
    pub fn shown(&self) -> String {
        match &self.commit {
            Some(commit) => format!("{} ({})", self.version, self.noted(short(commit))),
            None => self.version.clone(),
        }
    }

    /// The commit with all digits, or nothing.
    pub(crate) fn commit_shown(&self) -> String {
        self.commit.as_deref().map_or_else(String::new, |commit| self.noted(commit))
    }

    fn noted(&self, commit: &str) -> String {
        format!("{commit}{}", if self.modified { ", modified" } else { "" })
    }
}

impl Place {
    /// The place in one word, for tables and files.
    pub fn word(self) -> &'static str {
        match self {
            Self::Simulated => "simulated",
            Self::Guest => "guest",
            Self::ExactGuest => "exact-guest",
            Self::Host => "host",
        }
    }

    fn sentence(self) -> &'static str {
        match self {
            Self::Simulated => "simulated",
            Self::Guest => "run in guests",
            Self::ExactGuest => "run in guests whose time counts instructions",
            Self::Host => "run on this host",
        }
    }
}

impl Input {
    /// Name and hash of `read`.
    pub fn new<T: Serialize>(name: &str, read: &T) -> Self {
        Self { name: name.to_owned(), sha256: sha256(read) }
    }

    /// The name with the beginning of the hash.
    pub fn shown(&self) -> String {
        format!("{} (sha256 {})", self.name, short(&self.sha256))
    }
}

/// SHA-256 of a value's JSON, in hexadecimal.
fn sha256<T: Serialize>(value: &T) -> String {
    // JSON is written in many small pieces, and a workload's can take megabytes.
    let mut json = BufWriter::with_capacity(HASHED_BYTES, Sha256::new());
    // This cannot fail: hashing accepts all bytes, and all keys of machines and workloads are strings.
    let _ = serde_json::to_writer(&mut json, value);
    let _ = json.flush();
    json.get_ref().clone().finalize().iter().fold(String::new(), |mut digits, byte| {
        // Writing to a String cannot fail.
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

fn short(digits: &str) -> &str {
    digits.get(..SHOWN_DIGITS).unwrap_or(digits)
}

impl Experiment {
    fn by(&self) -> String {
        format!("{} by roost {}", self.place.sentence(), self.roost.shown())
    }

    fn machine_line(&self, machine: &Input) -> String {
        let booted = if self.start == Some("boot") { ", just booted" } else { "" };
        let quiet = if self.quiet == Some(true) { ", no threads of the kernel" } else { "" };
        format!("machine {}{booted}{quiet}", machine.shown())
    }

    fn seeds(&self, repeats: usize) -> String {
        let (first, last) = (self.seed, self.seed.wrapping_add(repeats.saturating_sub(1) as u64));
        match repeats {
            0 | 1 => format!("seed {first}"),
            _ => format!("seeds {first} to {last}"),
        }
    }
}

impl Contender {
    fn shown(&self, place: Place) -> String {
        let text = self.shown_alone(place);
        self.notes.iter().fold(text, |text, note| text + "\n  note: " + note)
    }

    /// The scheduler without its notes.
    fn shown_alone(&self, place: Place) -> String {
        let what = match (place, self.program) {
            (Place::Simulated, true) => "a sched_ext program on a model of ",
            (Place::Simulated, false) => "a model of ",
            _ => "",
        };
        let mut text = format!("{}: {what}Linux {}", self.name, self.kernel);
        if !self.switches.is_empty() {
            text += &format!(" with {}", self.switches.join(" "));
        }
        text
    }
}

/// The heading of tables: what was compared, and how long the runs took, in ns.
pub(crate) fn heading(
    experiment: &Experiment,
    repeats: usize,
    elapsed_ns: impl Iterator<Item = u64> + Clone,
) -> String {
    let Experiment { machine, workload, place, .. } = experiment;
    let time = time(experiment, elapsed_ns);
    let mut lines = vec![
        experiment.by(),
        experiment.machine_line(machine),
        format!("workload {}", workload.shown()),
        format!("runs of each scheduler: {repeats}, {}; each {time}", experiment.seeds(repeats)),
    ];
    lines.extend(experiment.schedulers.iter().map(|scheduler| scheduler.shown(*place)));
    lines.join("\n") + "\n\n"
}

/// How long runs took, and which part of that was measured.
fn time(experiment: &Experiment, elapsed_ns: impl Iterator<Item = u64> + Clone) -> String {
    let measured = match experiment.measured_from_ns {
        Some(0) => "all of it measured".to_owned(),
        Some(from) => format!("measured from {} s on", seconds(from)),
        None => "all of it counted; metrics are of what the workload's program measures".to_owned(),
    };
    match (elapsed_ns.clone().min(), elapsed_ns.max()) {
        (Some(least), Some(most)) => format!("{}, {measured}", range(least, most)),
        _ => "none ended".to_owned(),
    }
}

/// The heading of a table of several machines or workloads, all with the same schedulers. Notes on switches belong to
/// single comparisons, and are not in the heading.
pub(crate) fn heading_of_several(comparisons: &[Comparison]) -> String {
    let Some(first) = comparisons.first() else { return String::new() };
    let mut lines = Vec::new();
    for Comparison { experiment, interrupted, repeats, .. } in comparisons {
        if let Some(wanted) = interrupted {
            let (machine, workload) = (&experiment.machine.name, &experiment.workload.name);
            let told = format!("interrupted after {repeats} of {wanted} repeats");
            lines.push(format!("PARTIAL: {machine}, {workload}: {told}"));
        }
    }
    let of_all = |line: &dyn Fn(&Experiment) -> String| {
        let mut all: Vec<String> = Vec::new();
        for line in comparisons.iter().map(|comparison| line(&comparison.experiment)) {
            if !all.contains(&line) {
                all.push(line);
            }
        }
        all
    };
    let experiment = &first.experiment;
    lines.push(experiment.by());
    lines.extend(of_all(&|experiment| experiment.machine_line(&experiment.machine)));
    lines.extend(of_all(&|experiment| format!("workload {}", experiment.workload.shown())));
    let repeats = comparisons.iter().map(|comparison| comparison.repeats).max().unwrap_or(0);
    let seeds = experiment.seeds(repeats);
    lines.push(format!("runs of each scheduler on each: {repeats}, {seeds}{}", times(comparisons)));
    let place = experiment.place;
    lines.extend(experiment.schedulers.iter().map(|scheduler| scheduler.shown_alone(place)));
    lines.join("\n") + "\n\n"
}

/// How long the runs took, and which part was measured: as a part of the line on runs if that is the same for all
/// comparisons, and as a line for each otherwise.
fn times(comparisons: &[Comparison]) -> String {
    let of = |comparison: &Comparison| {
        time(&comparison.experiment, comparison.elapsed_ns.iter().flatten().copied())
    };
    let times: Vec<String> = comparisons.iter().map(of).collect();
    if times.iter().all(|time| *time == times[0]) {
        return format!("; each {}", times[0]);
    }
    let line = |(comparison, time): (&Comparison, String)| {
        let Experiment { machine, workload, .. } = &comparison.experiment;
        format!("\n  {}, {}: each {time}", machine.name, workload.name)
    };
    comparisons.iter().zip(times).map(line).collect()
}

/// The range from the shortest to the longest run, given in ns.
fn range(least: u64, most: u64) -> String {
    let [least, most] = [least, most].map(seconds);
    if least == most { format!("{least} s") } else { format!("{least} to {most} s") }
}

/// A time in seconds, with three digits.
pub(crate) fn seconds(ns: u64) -> String {
    let seconds = ns as f64 / 1e9;
    let decimals = match ns {
        0 => 0,
        _ => (2 - seconds.log10().floor() as i32).clamp(0, 9) as usize,
    };
    let text = format!("{seconds:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment() -> Experiment {
        crate::comparison::tests::experiment("hackbench", &["base", "other+cling+no-hrtick"])
    }

    #[test]
    fn the_heading_is_the_experiment() {
        let runs = [412_345_678, 400_000_000];
        let mut experiment = experiment();
        experiment.schedulers[1].notes = vec!["+cling never acted: cling_held = 0".to_owned()];
        assert_eq!(
            heading(&experiment, 3, runs.into_iter()),
            "simulated by roost 0.1.0 (aaaaaaaaaaaa)\n\
             machine zen3 (sha256 0123456789ab)\n\
             workload hackbench (sha256 0123456789ab)\n\
             runs of each scheduler: 3, seeds 7 to 9; each 0.4 to 0.412 s, all of it measured\n\
             base: a model of Linux 5.16\n\
             other+cling+no-hrtick: a model of Linux 5.16 with cling no-hrtick\n  \
             note: +cling never acted: cling_held = 0\n\n"
        );
    }

    #[test]
    fn a_program_is_not_called_a_model() {
        let mut experiment = experiment();
        experiment.schedulers[1].program = true;
        let text = heading(&experiment, 1, [10].into_iter());
        let line = "other+cling+no-hrtick: a sched_ext program on a model of Linux 5.16 with cling";
        assert!(text.contains(line) && text.contains("base: a model of Linux"), "{text}");
    }

    #[test]
    fn a_warm_up_and_a_machine_just_booted_are_told() {
        let warm = Experiment { measured_from_ns: Some(250_000_000), ..experiment() };
        let text = heading(&warm, 1, [1_000_000_000].into_iter());
        assert!(text.contains("each 1 s, measured from 0.25 s on"), "{text}");
        let text =
            heading(&Experiment { start: Some("boot"), ..experiment() }, 1, [10].into_iter());
        assert!(text.contains("(sha256 0123456789ab), just booted\nworkload"), "{text}");
        let text = heading(&Experiment { quiet: Some(true), ..experiment() }, 1, [10].into_iter());
        assert!(text.contains("(sha256 0123456789ab), no threads of the kernel\nwork"), "{text}");
    }

    #[test]
    fn headings_of_other_places_differ_in_every_line_that_says_where() {
        let of = |place| {
            let measured_from_ns = (place == Place::Simulated).then_some(0);
            heading(
                &Experiment { place, measured_from_ns, ..experiment() },
                1,
                [10_u64].into_iter(),
            )
        };
        let places = [Place::Simulated, Place::Guest, Place::ExactGuest, Place::Host].map(of);
        for (index, text) in places.iter().enumerate() {
            let first = text.lines().next();
            assert!(places[..index].iter().all(|other| other.lines().next() != first), "{text}");
            assert!(text.contains("seed 7;"), "{text}");
            assert_eq!(text.contains("a model of Linux"), index == 0, "{text}");
            assert_eq!(text.contains("all of it measured"), index == 0, "{text}");
        }
    }

    #[test]
    fn a_build_without_git_is_its_version_and_a_changed_one_says_so() {
        let build = |commit: Option<&str>, modified| Build {
            version: "0.1.0".into(),
            commit: commit.map(str::to_owned),
            modified,
        };
        assert_eq!(build(None, false).shown(), "0.1.0");
        assert_eq!(build(Some("0123456789abcdef"), true).shown(), "0.1.0 (0123456789ab, modified)");
    }

    /// Whatever a run depends on changes the hash; the name does not.
    #[test]
    fn hashes_are_of_what_was_read() {
        let machine = |name| roost_machine::resolve(name).unwrap();
        let hash = |machine| Input::new("m", &machine).sha256;
        let plain = machine("2n2l4c");
        assert_eq!(hash(plain.clone()).len(), 64);
        assert_ne!(hash(plain.clone()), hash(machine("1s2n4l2c")));
        let mut other = plain.clone();
        other.name = "another name".to_owned();
        assert_eq!(hash(other.clone()), hash(plain.clone()));
        other.figures.tick_ns.value += 1;
        assert_ne!(hash(other), hash(plain));
        let workload =
            |name, ns| Input::new("w", &roost_workload::resolve(name, ns).unwrap()).sha256;
        let small = workload("hackbench:groups=1", None);
        assert_eq!(workload("hackbench:groups=1", Some(5)), small, "the duration stands beside it");
        assert_ne!(workload("hackbench:groups=2", None), small);
    }

    /// The hash of `1` is what `printf 1 | sha256sum` prints.
    #[test]
    fn the_hash_is_sha_256_of_json() {
        let expected = "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b";
        assert_eq!(sha256(&1), expected);
    }

    #[test]
    fn times_keep_three_digits() {
        let shown = [0, 1, 1_234_567, 20_000_000, 5_000_000_000, 86_400_000_000_000].map(seconds);
        assert_eq!(shown, ["0", "0.000000001", "0.00123", "0.02", "5", "86400"]);
    }
}
