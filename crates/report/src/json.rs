//! The comparison as JSON, as `docs/compare.schema.json` describes it.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;

use crate::comparison::{Comparison, CounterComparison, MetricComparison};
use crate::experiment::Experiment;
use crate::runs::Run;
use crate::table::better;

/// The JSON Schema (draft 2020-12) of what [`json`] returns.
pub const SCHEMA: &str = include_str!("../compare.schema.json");

/// The comparison as indented JSON with a final newline. `mean` is the arithmetic mean for times and rates alike, so
/// that it follows from `samples` without knowing the unit.
pub fn json(comparison: &Comparison) -> String {
    text(&document(comparison))
}

/// Comparisons of several machines or workloads as one indented JSON object with a final newline. Its `comparisons` has
/// one entry for each, in the form of [`json`].
pub fn json_of_several(comparisons: &[Comparison]) -> String {
    text(&Several { comparisons: comparisons.iter().map(document).collect() })
}

fn text(document: &impl Serialize) -> String {
    // This cannot fail: it writes to memory, and all keys are strings.
    let mut text = serde_json::to_string_pretty(document).unwrap_or_default();
    text.push('\n');
    text
}

fn document(comparison: &Comparison) -> Document<'_> {
    let Experiment { roost, place, machine, workload, duration_ns, seed, schedulers, .. } =
        &comparison.experiment;
    let Experiment { measured_from_ns, start, quiet, .. } = comparison.experiment;
    Document {
        roost: Roost {
            version: &roost.version,
            commit: roost.commit.as_deref(),
            modified: roost.modified,
        },
        place: place.word(),
        machine: &machine.name,
        machine_sha256: &machine.sha256,
        workload: &workload.name,
        workload_sha256: &workload.sha256,
        schedulers: comparison.names().collect(),
        specs: schedulers.iter().map(|scheduler| scheduler.spec.as_str()).collect(),
        kernels: schedulers.iter().map(|scheduler| scheduler.kernel.as_str()).collect(),
        switches: schedulers.iter().map(|scheduler| &scheduler.switches[..]).collect(),
        programs_sha256: schedulers.iter().map(|s| s.program_sha256.as_deref()).collect(),
        notes: schedulers.iter().map(|scheduler| &scheduler.notes[..]).collect(),
        duration_ns: *duration_ns,
        elapsed_ns: &comparison.elapsed_ns,
        measured_from_ns,
        start,
        quiet,
        repeats: comparison.repeats,
        partial: comparison.interrupted.is_some(),
        seed: *seed,
        seeds: (0..comparison.repeats).map(|repeat| comparison.seed_of(repeat)).collect(),
        results: comparison.metrics.iter().map(result).collect(),
        counters: Counters(&comparison.counters),
        runs: comparison.runs.iter().filter_map(Run::line).collect(),
        acted: Acted(comparison),
    }
}

#[derive(serde::Serialize)]
struct Several<'a> {
    comparisons: Vec<Document<'a>>,
}

#[derive(serde::Serialize)]
struct Document<'a> {
    roost: Roost<'a>,
    place: &'static str,
    machine: &'a str,
    machine_sha256: &'a str,
    workload: &'a str,
    workload_sha256: &'a str,
    schedulers: Vec<&'a str>,
    specs: Vec<&'a str>,
    kernels: Vec<&'a str>,
    switches: Vec<&'a [String]>,
    programs_sha256: Vec<Option<&'a str>>,
    notes: Vec<&'a [String]>,
    duration_ns: Option<u64>,
    elapsed_ns: &'a [Vec<u64>],
    measured_from_ns: Option<u64>,
    start: Option<&'static str>,
    quiet: Option<bool>,
    repeats: usize,
    partial: bool,
    seed: u64,
    seeds: Vec<u64>,
    results: Vec<MetricResult<'a>>,
    counters: Counters<'a>,
    /// The runs, each on a line of its own.
    runs: Vec<Box<RawValue>>,
    acted: Acted<'a>,
}

#[derive(serde::Serialize)]
struct Roost<'a> {
    version: &'a str,
    commit: Option<&'a str>,
    modified: bool,
}

#[derive(serde::Serialize)]
struct MetricResult<'a> {
    metric: &'a str,
    unit: &'a str,
    better: &'static str,
    samples: &'a [Vec<Option<f64>>],
    mean: Vec<Option<f64>>,
    stddev: Vec<Option<f64>>,
    change_pct: Vec<Option<f64>>,
    significant: Vec<Option<bool>>,
}

fn result(metric: &MetricComparison) -> MetricResult<'_> {
    let schedulers = 0..metric.summaries.len();
    let summaries = metric.summaries.iter();
    MetricResult {
        metric: &metric.name,
        unit: &metric.unit,
        better: better(metric.better),
        samples: &metric.samples,
        mean: summaries.clone().map(|s| s.map(|s| s.mean)).collect(),
        stddev: summaries.map(|s| s.and_then(|s| s.stddev)).collect(),
        change_pct: schedulers.clone().map(|index| metric.change_pct(index)).collect(),
        significant: schedulers.map(|index| metric.significant(index)).collect(),
    }
}

/// How often each mechanism acted: an object with the mechanism's name as key.
struct Acted<'a>(&'a Comparison);

impl Serialize for Acted<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mechanisms = self.0.mechanisms();
        let mut map = serializer.serialize_map(Some(mechanisms.len()))?;
        for mechanism in mechanisms {
            let schedulers = 0..self.0.names().len();
            let times = schedulers.map(|scheduler| self.0.acted(scheduler, mechanism));
            map.serialize_entry(mechanism, &times.collect::<Vec<_>>())?;
        }
        map.end()
    }
}

/// The counters: an object whose keys keep their order.
struct Counters<'a>(&'a [CounterComparison]);

impl Serialize for Counters<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for counter in self.0 {
            map.serialize_entry(&counter.name, &counter.means)?;
        }
        map.end()
    }
}
