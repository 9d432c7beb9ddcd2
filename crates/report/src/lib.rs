//! Turns outcomes into tables, CSV, JSON, pictures, pages and traces.
//!
//! A [`Comparison`] holds the outcomes of several schedulers on one machine with one workload. [`table`], [`mmtests`],
//! [`csv`] and [`json`] print it. [`PerfettoTrace`] records one run while it goes on. Everything is deterministic: the
//! same outcomes give the same bytes.

mod comparison;
mod csv;
mod efficiency;
mod experiment;
mod figure;
mod histogram;
mod html;
mod json;
mod meanings;
mod mmtests;
mod one;
mod output;
mod perfetto;
mod picture;
mod places;
mod runs;
mod series;
mod several;
mod statistics;
mod steady;
mod table;
mod timeline;

pub use crate::comparison::{Comparison, CounterComparison, HistogramComparison, MetricComparison};
pub use crate::csv::{csv, csv_counters};
pub use crate::efficiency::SearchCounts;
pub use crate::experiment::{Build, Contender, Experiment, Input, Mechanism, Place};
pub use crate::histogram::histogram;
pub use crate::html::{HtmlError, HtmlFile, Page, html, page};
pub use crate::json::{SCHEMA, json, json_of_several};
pub use crate::meanings::{Counter, known_counters, meaning};
pub use crate::mmtests::mmtests;
pub use crate::one::{OneError, one};
pub use crate::output::Output;
pub use crate::perfetto::{PerfettoTrace, TraceError, TraceWindow};
pub use crate::picture::{busy_picture, picture};
pub use crate::runs::{ResumeError, Run, resume};
pub use crate::several::table_of_several;
pub use crate::statistics::{Interval, Summary, change_pct};
pub use crate::steady::{kept_waiting, unsteady, unsteady_pct};
pub use crate::table::{counters, plain_table, search_efficiency, table};
pub use crate::timeline::{
    Access, By, Grid, Latency, Occupancy, PERCENTILES_MILLI, TaskGroup, Timeline, TimelineRecorder,
    WINDOWS,
};
