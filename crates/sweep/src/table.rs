//! Runs as a table, for Parquet and for programs that use Arrow.
//!
//! Each row is a run, in the order of the plan. The first columns identify the run. They are followed by a column for
//! each metric and counter that any run has, in the order of first appearance. Values that a run does not have are
//! null. The metadata of each such column says what it is: `kind`; for a metric also `unit` and `better`, for a counter
//! `meaning`.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::{
    Float64Builder, ListBuilder, StringBuilder, UInt32Builder, UInt64Builder,
};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Metadata, Schema, SchemaRef};
use indexmap::{IndexMap, IndexSet};
use roost_engine::{MetricValue, Outcome};
use roost_report::Build;
use roost_simulate::Start;
use roost_workload::Better;
use serde_json::{Value, json};

use crate::error::SweepError;
use crate::journal::{Journal, RunResult};
use crate::plan::{Plan, Run};

/// Rows of a batch: a few MB of values.
const BATCH: usize = 1024;

/// The first columns, before those of numbers, metrics and counters.
const NAMES: [&str; 5] = ["machine", "workload", "scheduler", "spec", "kernel"];

/// Metrics that are equal in these share a column.
type MetricKey = (String, String, &'static str);

/// The columns that runs have.
pub struct Columns {
    schema: SchemaRef,
    numbers: usize,
    /// The index of each metric's and counter's column among those of values.
    metrics: HashMap<MetricKey, usize>,
    counters: HashMap<String, usize>,
    figures: usize,
    histograms: IndexSet<String>,
}

/// The values that runs have, in order of first appearance.
#[derive(Default)]
struct Seen {
    metrics: IndexSet<MetricKey>,
    counters: IndexSet<String>,
    histograms: IndexSet<String>,
}

impl Columns {
    /// The columns for the runs in `journal`, which this program made.
    ///
    /// # Errors
    /// If the journal cannot be read.
    pub fn of(plan: &Plan, journal: &mut Journal, build: &Build) -> Result<Self, SweepError> {
        let mut seen = Seen::default();
        for run in plan.runs() {
            if let Some(Ok(left)) = journal.get(run)? {
                seen.add(&left.outcome);
            }
        }
        Ok(Self::new(plan, seen, build))
    }

    fn new(plan: &Plan, seen: Seen, build: &Build) -> Self {
        let mut fields = fixed(plan);
        let mut taken: IndexSet<String> =
            fields.iter().map(|field| field.name().clone()).chain([ERROR.to_owned()]).collect();
        let mut name = |wanted: &str, or: String| {
            let name = if taken.contains(wanted) { or } else { wanted.to_owned() };
            taken.insert(name.clone());
            name
        };
        for (metric, unit, better) in &seen.metrics {
            let name = name(metric, format!("{metric} ({unit}, {better} is better)"));
            let told = [("kind", "metric"), ("unit", unit), ("better", better)];
            fields.push(column(&name, DataType::Float64, &told));
        }
        for counter in &seen.counters {
            let name = name(counter, format!("{counter} (counter)"));
            let meaning = roost_report::meaning(counter).map_or("", |counter| counter.meaning);
            let told = [("kind", "counter"), ("meaning", meaning)];
            fields.push(column(&name, DataType::Float64, &told));
        }
        let list = || DataType::List(Arc::new(Field::new("item", DataType::UInt64, true)));
        for histogram in &seen.histograms {
            let name = name(histogram, format!("{histogram} (histogram)"));
            let buckets = "bucket 0: 0 to 1 us, bucket n: 2^(n-1) to 2^n us";
            fields.push(column(&name, list(), &[("kind", "histogram"), ("meaning", buckets)]));
        }
        for (name, place) in [("node_run_ns", "node"), ("llc_run_ns", "LLC")] {
            let meaning = format!("time that tasks ran on each {place}, ns");
            fields.push(column(name, list(), &[("kind", "place"), ("meaning", &meaning)]));
        }
        fields.push(Field::new(ERROR, DataType::Utf8, true));
        let metrics = seen.metrics.into_iter().zip(0..).collect::<HashMap<_, _>>();
        let counters = seen.counters.into_iter().zip(metrics.len()..).collect::<HashMap<_, _>>();
        Self {
            schema: Arc::new(Schema::new_with_metadata(fields, metadata(plan, build))),
            numbers: plan.numbers.len(),
            figures: metrics.len() + counters.len(),
            metrics,
            counters,
            histograms: seen.histograms,
        }
    }

    /// Names and types of the columns.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// Passes the runs in `journal` to `each` as rows, in the order of the plan, a batch at a time.
    ///
    /// # Errors
    /// If the journal cannot be read, or `each` fails.
    pub fn batches(
        &self,
        plan: &Plan,
        journal: &mut Journal,
        mut each: impl FnMut(RecordBatch) -> Result<(), SweepError>,
    ) -> Result<(), SweepError> {
        let mut rows = Rows::new(self);
        for run in plan.runs() {
            let Some(result) = journal.get(run)? else { continue };
            rows.add(self, plan, run, result);
            if rows.count == BATCH {
                each(rows.finish(&self.schema)?)?;
            }
        }
        match rows.count {
            0 => Ok(()),
            _ => each(rows.finish(&self.schema)?),
        }
    }
}

/// The last column: the error of a failed run.
const ERROR: &str = "error";

/// The columns of every result.
fn fixed(plan: &Plan) -> Vec<Field> {
    let mut fields: Vec<Field> =
        NAMES.iter().map(|name| Field::new(*name, DataType::Utf8, false)).collect();
    let number = |name: &String| column(name, DataType::UInt32, &[("kind", "number")]);
    fields.extend(plan.numbers.iter().map(number));
    fields.push(Field::new("duration_ns", DataType::UInt64, true));
    fields.push(Field::new("seed", DataType::UInt64, false));
    fields.push(Field::new("elapsed_ns", DataType::UInt64, true));
    fields
}

fn column(name: &str, kind: DataType, told: &[(&str, &str)]) -> Field {
    let told = told.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    Field::new(name, kind, true).with_metadata(told.collect::<Metadata>())
}

/// Keys of the metadata of a result.
pub(crate) const PLAN: &str = "roost.plan";
pub(crate) const PLAN_SHA256: &str = "roost.plan_sha256";
pub(crate) const VERSION: &str = "roost.version";
pub(crate) const INPUTS: &str = "roost.inputs";

/// What is needed to repeat the runs: the plan's text, the version, and hashes of the inputs.
fn metadata(plan: &Plan, build: &Build) -> Metadata {
    let mut machines = IndexMap::new();
    let mut workloads = IndexMap::new();
    let mut schedulers = IndexMap::new();
    for cell in &plan.cells {
        machines.insert(cell.machine.name.clone(), Value::from(cell.machine.sha256.clone()));
        workloads.insert(cell.workload.name.clone(), Value::from(cell.workload.sha256.clone()));
        let scheduler = &cell.simulation.scheduler;
        schedulers.entry(cell.scheduler.clone()).or_insert_with(|| {
            json!({
                "kernel": scheduler.kernel(),
                "spec": cell.spec,
                "switches": scheduler.switches(),
                "program_sha256": cell.program_sha256,
            })
        });
    }
    let start = if plan.start == Start::Boot { "boot" } else { "running" };
    let inputs = json!({
        "machines_sha256": serde_json::Map::from_iter(machines),
        "workloads_sha256": serde_json::Map::from_iter(workloads),
        "schedulers": serde_json::Map::from_iter(schedulers),
        "start": start,
        "quiet": plan.quiet,
    });
    let pairs = [
        (PLAN, plan.text.clone()),
        (PLAN_SHA256, plan.sha256()),
        (VERSION, build.shown()),
        (INPUTS, inputs.to_string()),
    ];
    pairs.into()
}

impl Seen {
    fn add(&mut self, outcome: &Outcome) {
        self.metrics.extend(outcome.metrics.iter().map(key));
        for (name, _) in &outcome.counters {
            if !self.counters.contains(name) {
                self.counters.insert(name.clone());
            }
        }
        self.histograms.extend(outcome.histograms.iter().map(|histogram| histogram.name.clone()));
    }
}

fn key(metric: &MetricValue) -> MetricKey {
    let better = match metric.better {
        Better::Higher => "higher",
        Better::Lower => "lower",
    };
    (metric.name.clone(), metric.unit.clone(), better)
}

/// The rows of the next batch.
struct Rows {
    names: [StringBuilder; 5],
    numbers: Vec<UInt32Builder>,
    /// Duration, seed, elapsed time.
    whole: [UInt64Builder; 3],
    figures: Vec<Float64Builder>,
    /// Histograms, then time on nodes and LLCs.
    lists: Vec<ListBuilder<UInt64Builder>>,
    error: StringBuilder,
    count: usize,
}

impl Rows {
    fn new(columns: &Columns) -> Self {
        let lists = columns.histograms.len() + 2;
        Self {
            names: Default::default(),
            numbers: (0..columns.numbers).map(|_| UInt32Builder::new()).collect(),
            whole: Default::default(),
            figures: (0..columns.figures).map(|_| Float64Builder::new()).collect(),
            lists: (0..lists).map(|_| ListBuilder::new(UInt64Builder::new())).collect(),
            error: StringBuilder::new(),
            count: 0,
        }
    }

    fn add(&mut self, columns: &Columns, plan: &Plan, run: Run, result: RunResult) {
        let cell = &plan.cells[run.cell];
        let simulation = &cell.simulation;
        let kernel = simulation.scheduler.kernel();
        let names = [&cell.machine.name, &cell.workload.name, &cell.scheduler, &cell.spec, kernel];
        self.names.iter_mut().zip(names).for_each(|(column, name)| column.append_value(name));
        for (column, number) in self.numbers.iter_mut().zip(&cell.numbers) {
            column.append_option(*number);
        }
        let (outcome, error) = match result {
            Ok(left) => (Some(left.outcome), None),
            Err(error) => (None, Some(error)),
        };
        let elapsed_ns = outcome.as_ref().map(|outcome| outcome.elapsed_ns);
        let whole = [simulation.workload.duration_ns, Some(cell.seeds[run.repeat]), elapsed_ns];
        self.whole.iter_mut().zip(whole).for_each(|(column, value)| column.append_option(value));
        self.error.append_option(error);
        let figures = outcome.as_ref().map_or_else(Vec::new, |outcome| columns.figures(outcome));
        for (index, column) in self.figures.iter_mut().enumerate() {
            column.append_option(figures.get(index).copied().flatten());
        }
        let lists = outcome.map_or_else(Vec::new, |outcome| columns.lists(outcome));
        for (index, column) in self.lists.iter_mut().enumerate() {
            match lists.get(index).and_then(Option::as_ref) {
                Some(list) => column.append_value(list.iter().copied().map(Some)),
                None => column.append_null(),
            }
        }
        self.count += 1;
    }

    /// Returns the rows so far as a batch, and starts a new one.
    fn finish(&mut self, schema: &SchemaRef) -> Result<RecordBatch, SweepError> {
        let mut columns: Vec<ArrayRef> = Vec::new();
        let array = |array: Arc<dyn arrow_array::Array>| array;
        columns.extend(self.names.iter_mut().map(|column| array(Arc::new(column.finish()))));
        columns.extend(self.numbers.iter_mut().map(|column| array(Arc::new(column.finish()))));
        columns.extend(self.whole.iter_mut().map(|column| array(Arc::new(column.finish()))));
        columns.extend(self.figures.iter_mut().map(|column| array(Arc::new(column.finish()))));
        columns.extend(self.lists.iter_mut().map(|column| array(Arc::new(column.finish()))));
        columns.push(Arc::new(self.error.finish()));
        self.count = 0;
        Ok(RecordBatch::try_new(schema.clone(), columns)?)
    }
}

impl Columns {
    /// Values of a run's metrics and counters, by column.
    fn figures(&self, outcome: &Outcome) -> Vec<Option<f64>> {
        let mut figures = vec![None; self.figures];
        for metric in &outcome.metrics {
            if let Some(index) = self.metrics.get(&key(metric)) {
                figures[*index] = metric.value;
            }
        }
        for (name, value) in &outcome.counters {
            if let Some(index) = self.counters.get(name) {
                figures[*index] = Some(*value);
            }
        }
        figures
    }

    fn lists(&self, outcome: Outcome) -> Vec<Option<Vec<u64>>> {
        let mut lists = vec![None; self.histograms.len()];
        for histogram in outcome.histograms {
            if let Some(index) = self.histograms.get_index_of(&histogram.name) {
                lists[index] = Some(histogram.counts);
            }
        }
        lists.extend([Some(outcome.run_time.node_ns), Some(outcome.run_time.llc_ns)]);
        lists
    }
}
