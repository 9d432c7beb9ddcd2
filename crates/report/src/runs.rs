//! Single runs as the JSON keeps them. They contain all that a comparison is made of, so that an interrupted comparison
//! can be continued.

use indexmap::IndexMap;
use roost_engine::{Histogram, MetricValue, Outcome, RunTime};
use roost_workload::Better;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::comparison::Comparison;
use crate::experiment::Experiment;
use crate::json::json;

/// A run that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Index of the scheduler.
    pub scheduler: usize,
    /// The seed of the run.
    pub seed: u64,
    /// The result of the run.
    pub outcome: Outcome,
}

/// Why a comparison cannot continue from a file.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    /// The file is not JSON, or is cut off.
    #[error(
        "not the JSON of a comparison: {0}; give a file that `--format json` printed, all of it"
    )]
    Malformed(#[from] serde_json::Error),
    /// The file is empty.
    #[error(
        "the file is empty; if this command's own output goes to it, use another file for the output"
    )]
    Empty,
    /// The file belongs to another comparison.
    #[error(
        "its {what} is {there}, here it is {here}; give the arguments it was made with, or leave out --resume"
    )]
    Differs {
        /// What differs.
        what: &'static str,
        /// The value in the file.
        there: String,
        /// The value of this comparison.
        here: String,
    },
    /// A run belongs to a scheduler that the comparison does not have.
    #[error("it has a run of scheduler {0}, but fewer schedulers; give a file that was not edited")]
    NoScheduler(usize),
}

/// The run as a line of JSON.
#[derive(Serialize, Deserialize)]
struct Line {
    scheduler: usize,
    seed: u64,
    elapsed_ns: u64,
    metrics: Vec<MetricLine>,
    counters: IndexMap<String, Option<f64>>,
    histograms: IndexMap<String, Vec<u64>>,
    node_run_ns: Vec<u64>,
    llc_run_ns: Vec<u64>,
}

#[derive(Serialize, Deserialize)]
struct MetricLine {
    metric: String,
    unit: String,
    better: Direction,
    value: Option<f64>,
    drift: Option<f64>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Direction {
    Higher,
    Lower,
}

/// The part of a document that is needed to continue.
#[derive(Deserialize)]
struct Left {
    runs: Vec<Line>,
    #[serde(flatten)]
    header: Map<String, Value>,
}

/// The same for several machines or workloads.
#[derive(Deserialize)]
struct SeveralLeft {
    comparisons: Vec<Left>,
}

/// Fields of a document that must be equal, with their names for users.
const SAME: [(&str, &str); 12] = [
    ("roost", "version and commit of roost"),
    ("place", "place"),
    ("machine_sha256", "machine (its hash)"),
    ("workload_sha256", "workload (its hash)"),
    ("duration_ns", "duration in ns"),
    ("measured_from_ns", "time at which measuring begins, in ns"),
    ("start", "start of the machine"),
    ("quiet", "threads of the kernel (--quiet)"),
    ("specs", "list of schedulers"),
    ("kernels", "list of kernels"),
    ("switches", "list of switches"),
    ("programs_sha256", "list of programs (their hashes)"),
];

/// The fields that differ between the comparisons of one document.
const INPUTS: [&str; 2] = ["machine_sha256", "workload_sha256"];

impl Run {
    /// The runs of `outcomes[scheduler][repeat]`. The first repeat has the seed `seed`.
    pub(crate) fn all(seed: u64, outcomes: Vec<Vec<Outcome>>) -> Vec<Self> {
        let mut all = Vec::new();
        for (scheduler, runs) in outcomes.into_iter().enumerate() {
            let seeds = (0..).map(|repeat| seed.wrapping_add(repeat));
            all.extend(seeds.zip(runs).map(|(seed, outcome)| Self { scheduler, seed, outcome }));
        }
        all
    }

    /// Reads the run that [`line`](Self::line) wrote.
    ///
    /// # Errors
    /// If it is not such a line, or is cut off.
    pub fn read(line: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(line).map(Line::run)
    }

    /// The run as JSON on one line.
    pub fn line(&self) -> Option<Box<RawValue>> {
        let Outcome { elapsed_ns, metrics, counters, histograms, run_time, .. } = &self.outcome;
        let line = Line {
            scheduler: self.scheduler,
            seed: self.seed,
            elapsed_ns: *elapsed_ns,
            metrics: metrics.iter().map(MetricLine::of).collect(),
            counters: counters.iter().map(|(name, value)| (name.clone(), Some(*value))).collect(),
            histograms: histograms.iter().map(|h| (h.name.clone(), h.counts.clone())).collect(),
            node_run_ns: run_time.node_ns.clone(),
            llc_run_ns: run_time.llc_ns.clone(),
        };
        // This cannot fail: it writes to memory, and all keys are strings.
        serde_json::value::to_raw_value(&line).ok()
    }
}

impl Line {
    fn run(self) -> Run {
        let counter = |(name, value): (_, Option<f64>)| (name, value.unwrap_or(f64::NAN));
        let outcome = Outcome {
            elapsed_ns: self.elapsed_ns,
            metrics: self.metrics.into_iter().map(MetricLine::metric).collect(),
            counters: self.counters.into_iter().map(counter).collect(),
            histograms: (self.histograms.into_iter())
                .map(|(name, counts)| Histogram { name, counts })
                .collect(),
            run_time: RunTime { node_ns: self.node_run_ns, llc_ns: self.llc_run_ns },
            too_short: None,
            waiting: None,
        };
        Run { scheduler: self.scheduler, seed: self.seed, outcome }
    }
}

impl MetricLine {
    fn of(metric: &MetricValue) -> Self {
        let better = match metric.better {
            Better::Higher => Direction::Higher,
            Better::Lower => Direction::Lower,
        };
        let (name, unit) = (metric.name.clone(), metric.unit.clone());
        Self { metric: name, unit, better, value: metric.value, drift: metric.drift }
    }

    fn metric(self) -> MetricValue {
        let better = match self.better {
            Direction::Higher => Better::Higher,
            Direction::Lower => Better::Lower,
        };
        MetricValue {
            name: self.metric,
            unit: self.unit,
            better,
            value: self.value,
            drift: self.drift,
        }
    }
}

/// The runs in `text`, the JSON of an interrupted comparison, with any seed. Fails if they belong to another
/// experiment. A JSON of several machines or workloads may have no run of this one, because it was interrupted before.
///
/// # Errors
/// If `text` is not such JSON, or belongs to another comparison.
pub fn resume(text: &str, experiment: &Experiment) -> Result<Vec<Run>, ResumeError> {
    if text.trim().is_empty() {
        return Err(ResumeError::Empty);
    }
    let header: Value =
        serde_json::from_str(&json(&Comparison::new(experiment.clone(), Vec::new())))?;
    let left = match serde_json::from_str::<SeveralLeft>(text) {
        Ok(several) => several
            .comparisons
            .into_iter()
            .find(|left| INPUTS.iter().all(|input| left.header.get(*input) == header.get(*input))),
        Err(_) => Some(serde_json::from_str(text)?),
    };
    let Some(left) = left else { return Ok(Vec::new()) };
    for (field, what) in SAME {
        let there = left.header.get(field).unwrap_or(&Value::Null);
        let here = header.get(field).unwrap_or(&Value::Null);
        if there != here {
            let (there, here) = (there.to_string(), here.to_string());
            return Err(ResumeError::Differs { what, there, here });
        }
    }
    let schedulers = header.get("schedulers").and_then(Value::as_array).map_or(0, Vec::len);
    let runs: Vec<Run> = left.runs.into_iter().map(Line::run).collect();
    match runs.iter().find(|run| run.scheduler >= schedulers) {
        Some(run) => Err(ResumeError::NoScheduler(run.scheduler)),
        None => Ok(runs),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::comparison::tests::experiment;
    use crate::{Comparison, json, resume};

    fn run(value: Option<f64>, counter: f64) -> Outcome {
        let metric = |name: &str, better, value| MetricValue {
            name: name.to_owned(),
            unit: "us".to_owned(),
            better,
            value,
            drift: value.map(|value| value / 3.0),
        };
        Outcome {
            elapsed_ns: u64::MAX,
            metrics: vec![
                metric("latency", Better::Lower, value),
                metric("rate", Better::Higher, Some(counter)),
            ],
            counters: vec![("z".to_owned(), counter), ("a".to_owned(), 0.1)],
            histograms: vec![Histogram { name: "sis_us".to_owned(), counts: vec![1, u64::MAX] }],
            run_time: RunTime { node_ns: vec![1, u64::MAX], llc_ns: vec![0] },
            too_short: None,
            waiting: None,
        }
    }

    proptest! {
        /// All bits of numbers and the order of names survive.
        #[test]
        fn what_was_left_comes_back_as_it_was(
            value in prop::option::of(prop::num::f64::NORMAL | prop::num::f64::ZERO),
            counter in prop::num::f64::NORMAL,
        ) {
            let outcomes = vec![vec![run(value, counter)], vec![run(None, 1.0)]];
            let names = experiment("w", &["one", "two"]);
            let text = json(&Comparison::new(names.clone(), outcomes.clone()));
            let runs = resume(&text, &names).unwrap();
            let seeds: Vec<_> = runs.iter().map(|run| (run.scheduler, run.seed)).collect();
            prop_assert_eq!(seeds, [(0, 7), (1, 7)]);
            let back: Vec<Vec<_>> = runs.into_iter().map(|run| vec![run.outcome]).collect();
            prop_assert_eq!(back, outcomes);
        }
    }

    /// A truncated file is refused as a whole.
    #[test]
    fn half_a_file_is_refused() {
        let names = experiment("w", &["one"]);
        let text = json(&Comparison::new(names.clone(), vec![vec![run(Some(1.0), 2.0)]]));
        let refused = |text: &str| resume(text, &names).unwrap_err().to_string();
        for part in 1..text.trim_end().len() {
            if text.is_char_boundary(part) {
                assert!(refused(&text[..part]).contains("all of it"), "{part}");
            }
        }
        assert!(refused("").contains("empty"));
        assert!(refused("{}").contains("`runs`"));
        let unknown = text.replace("\"scheduler\":0", "\"scheduler\":1");
        assert!(refused(&unknown).contains("run of scheduler 1"));
    }

    #[test]
    fn of_several_comparisons_the_one_of_this_machine_and_workload_goes_on() {
        let of = |hash: &str| {
            let mut experiment = experiment("w", &["one"]);
            experiment.workload.sha256 = hash.repeat(64);
            experiment
        };
        let made = |hash| Comparison::new(of(hash), vec![vec![run(Some(1.0), 2.0)]]);
        let text = crate::json_of_several(&[made("a"), made("b")]);
        assert_eq!(resume(&text, &of("b")).unwrap().len(), 1);
        assert_eq!(resume(&text, &of("c")).unwrap(), [], "not begun");
        let mut other = of("b");
        other.schedulers[0].spec = "two".to_owned();
        assert!(resume(&text, &other).unwrap_err().to_string().contains("schedulers"));
    }

    #[test]
    fn a_file_of_another_comparison_is_refused_with_what_differs() {
        let here = experiment("w", &["one"]);
        let refused = |change: fn(&mut crate::Experiment)| {
            let mut there = here.clone();
            change(&mut there);
            let text = json(&Comparison::new(there, Vec::new()));
            resume(&text, &here).unwrap_err().to_string()
        };
        assert!(refused(|e| e.roost.version = "9".to_owned()).contains("version and commit"));
        assert!(refused(|e| e.roost.commit = None).contains("version and commit"));
        assert!(refused(|e| e.place = crate::Place::Host).contains("place is \"host\""));
        assert!(refused(|e| e.machine.sha256 = "0".repeat(64)).contains("machine"));
        assert!(refused(|e| e.workload.sha256 = "0".repeat(64)).contains("workload"));
        assert!(refused(|e| e.duration_ns = Some(99)).contains("duration in ns is 99"));
        assert!(refused(|e| e.schedulers[0].spec = "two".to_owned()).contains("schedulers"));
        assert!(refused(|e| e.schedulers[0].switches.push("x".to_owned())).contains("switches"));
        assert!(resume(&json(&Comparison::new(here.clone(), Vec::new())), &here).is_ok());
    }
}
