//! What schedulers change, by machine and workload: a summary of the rows.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, RecordBatch, StringArray, UInt64Array,
};
use arrow_schema::{DataType, SchemaRef};
use indexmap::IndexMap;
use roost_report::{Summary, change_pct};
use roost_workload::Better;
use serde::Serialize;

use crate::error::SweepError;

/// A metric under one scheduler on one machine and workload, compared with the first scheduler there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The machine.
    pub machine: String,
    /// The workload.
    pub workload: String,
    /// The scheduler.
    pub scheduler: String,
    /// The metric.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// `higher` or `lower`.
    pub better: String,
    /// Whether it is the workload's first metric, which is its main result.
    pub first: bool,
    /// Number of runs with a value.
    pub runs: u64,
    /// Arithmetic mean of the runs.
    pub mean: f64,
    /// Standard deviation of the runs. `None` for a single run.
    pub stddev: Option<f64>,
    /// Lower end of the mean's 95% confidence interval.
    pub low: Option<f64>,
    /// Upper end of the interval.
    pub high: Option<f64>,
    /// Change from the baseline in percent; positive is better. `None` for the baseline.
    pub change_pct: Option<f64>,
    /// Whether the two intervals are disjoint. `None` for the baseline and for single runs.
    pub significant: Option<bool>,
}

/// Runs that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failed {
    /// The machine.
    pub machine: String,
    /// The workload.
    pub workload: String,
    /// The scheduler.
    pub scheduler: String,
    /// Number of runs that failed.
    pub runs: usize,
    /// Error of the first one.
    pub error: String,
}

/// The summary of a table of runs.
#[derive(Default)]
pub struct Changes {
    /// The changes by machine, workload, metric and scheduler, in the order of the rows.
    pub changes: Vec<Change>,
    /// Cells with runs that failed.
    pub failed: Vec<Failed>,
    /// Number of rows.
    pub runs: usize,
}

/// The column of a metric.
struct Metric {
    column: usize,
    name: String,
    unit: String,
    better: String,
}

/// The values of the metrics by scheduler, for one machine and workload.
#[derive(Default)]
struct Values {
    schedulers: IndexMap<String, Vec<Vec<f64>>>,
}

impl Changes {
    /// Summarises the rows of a result.
    ///
    /// # Errors
    /// If the columns are not those of a result.
    pub fn of(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Self, SweepError> {
        let metrics = metrics(schema);
        let mut places: IndexMap<(String, String), Values> = IndexMap::new();
        let mut failed: IndexMap<[String; 3], Failed> = IndexMap::new();
        for batch in batches {
            let text = |name| Ok::<_, SweepError>(column(batch, name)?.as_string::<i32>());
            let names = [text("machine")?, text("workload")?, text("scheduler")?];
            let errors = text("error")?;
            for row in 0..batch.num_rows() {
                let names = names.map(|column| column.value(row).to_owned());
                if errors.is_valid(row) {
                    let first = Failed::new(&names, errors.value(row));
                    failed.entry(names.clone()).or_insert(first).runs += 1;
                }
                let [machine, workload, scheduler] = names;
                let place = places.entry((machine, workload)).or_default();
                place.add(scheduler, &metrics, batch, row);
            }
        }
        let changes = places.iter().flat_map(|(names, place)| place.changes(names, &metrics));
        let runs = batches.iter().map(RecordBatch::num_rows).sum();
        Ok(Self { changes: changes.collect(), failed: failed.into_values().collect(), runs })
    }

    /// The summary as a table with columns.
    ///
    /// # Errors
    /// None, unless this program is damaged.
    pub fn batch(&self) -> Result<RecordBatch, SweepError> {
        let all = || self.changes.iter();
        let text = |of: fn(&Change) -> &str| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(all().map(of)))
        };
        let figure = |of: fn(&Change) -> Option<f64>| -> ArrayRef {
            Arc::new(all().map(of).collect::<Float64Array>())
        };
        let flag = |of: fn(&Change) -> Option<bool>| -> ArrayRef {
            Arc::new(all().map(of).collect::<BooleanArray>())
        };
        let runs = UInt64Array::from_iter_values(all().map(|change| change.runs));
        Ok(RecordBatch::try_from_iter_with_nullable([
            ("machine", text(|change| &change.machine), false),
            ("workload", text(|change| &change.workload), false),
            ("scheduler", text(|change| &change.scheduler), false),
            ("metric", text(|change| &change.metric), false),
            ("unit", text(|change| &change.unit), false),
            ("better", text(|change| &change.better), false),
            ("first", flag(|change| Some(change.first)), false),
            ("runs", Arc::new(runs), false),
            ("mean", figure(|change| Some(change.mean)), false),
            ("stddev", figure(|change| change.stddev), true),
            ("low", figure(|change| change.low), true),
            ("high", figure(|change| change.high), true),
            ("change_pct", figure(|change| change.change_pct), true),
            ("significant", flag(|change| change.significant), true),
        ])?)
    }
}

fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef, SweepError> {
    let found = batch.column_by_name(name).filter(|column| *column.data_type() == DataType::Utf8);
    let missing = || arrow_schema::ArrowError::SchemaError(format!("no column {name} of texts"));
    Ok(found.ok_or_else(missing)?)
}

fn metrics(schema: &SchemaRef) -> Vec<Metric> {
    let mut metrics = Vec::new();
    for (column, field) in schema.fields().iter().enumerate() {
        let told = |key: &str| field.metadata().get(key).cloned().unwrap_or_default();
        if told("kind") == "metric" && *field.data_type() == DataType::Float64 {
            let name = field.name().clone();
            metrics.push(Metric { column, name, unit: told("unit"), better: told("better") });
        }
    }
    metrics
}

impl Failed {
    fn new([machine, workload, scheduler]: &[String; 3], error: &str) -> Self {
        let (machine, workload) = (machine.clone(), workload.clone());
        let (scheduler, error) = (scheduler.clone(), error.to_owned());
        Self { machine, workload, scheduler, runs: 0, error }
    }
}

impl Values {
    /// Adds the values of a row.
    fn add(&mut self, scheduler: String, metrics: &[Metric], batch: &RecordBatch, row: usize) {
        let values = self.schedulers.entry(scheduler);
        let values = values.or_insert_with(|| vec![Vec::new(); metrics.len()]);
        for (metric, values) in metrics.iter().zip(values) {
            let column = batch.column(metric.column).as_primitive::<Float64Type>();
            let value = column.is_valid(row).then(|| column.value(row));
            values.extend(value.filter(|value| value.is_finite()));
        }
    }

    fn changes(&self, (machine, workload): &(String, String), metrics: &[Metric]) -> Vec<Change> {
        let mut changes = Vec::new();
        for (index, metric) in metrics.iter().enumerate() {
            let summary = |values: &Vec<Vec<f64>>| Summary::of(values.get(index)?);
            let baseline = self.schedulers.values().next().and_then(summary);
            let first = changes.is_empty();
            for (at, (scheduler, values)) in self.schedulers.iter().enumerate() {
                let Some(summary) = summary(values) else { continue };
                let against = baseline.as_ref().filter(|_| at > 0);
                let better = if metric.better == "higher" { Better::Higher } else { Better::Lower };
                changes.push(Change {
                    machine: machine.clone(),
                    workload: workload.clone(),
                    scheduler: scheduler.clone(),
                    metric: metric.name.clone(),
                    unit: metric.unit.clone(),
                    better: metric.better.clone(),
                    first,
                    runs: summary.count as u64,
                    mean: summary.mean,
                    stddev: summary.stddev,
                    low: summary.confidence.map(|interval| interval.low),
                    high: summary.confidence.map(|interval| interval.high),
                    change_pct: against
                        .and_then(|baseline| change_pct(better, baseline.mean, summary.mean)),
                    significant: against.and_then(|baseline| summary.differs_from(baseline)),
                });
            }
        }
        changes
    }
}
