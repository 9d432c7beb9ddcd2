//! The report as one HTML page, which any browser opens without a network.
//!
//! Template, style and script are separate files in `html/`. The script draws with a library that is in that folder
//! too. The data are JSON, compressed and in base64, so that no name that a user chose can become markup.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use roost_engine::{Accessed, MemoryNow};
use roost_machine::Machine;
use serde::Serialize;

use crate::comparison::{Comparison, MetricComparison};
use crate::output::Output;
use crate::picture::llc_node;
use crate::series;
use crate::table::better;
use crate::timeline::{By, Grid, Latency, Occupancy, PERCENTILES_MILLI, TaskGroup, Timeline};

const PAGE: &str = include_str!("../html/page.html");
const STYLE: &str = include_str!("../html/style.css");
/// The script that comes first in all pages.
const COMMON: &str = include_str!("../html/common.js");
const SCRIPT: &str = include_str!("../html/report.js");
/// The drawing library as released, compressed (`html/vendor/README.md`).
const LIBRARY: &[u8] = include_bytes!("../html/vendor/plotly-cartesian-4.1.1.min.js.gz");

/// The contents of a page.
pub struct Page<'a> {
    /// The results.
    pub comparison: &'a Comparison,
    /// The machine of the runs.
    pub machine: &'a Machine,
    /// The first run of each scheduler over time. `None` if there is no timeline.
    pub timelines: &'a [Option<Timeline>],
    /// The command line that creates the page again.
    pub command: &'a str,
    /// What the page lacks and why, in a sentence each.
    pub lacks: Vec<&'static str>,
}

/// A report could not be written. No file was left behind.
#[derive(Debug, thiserror::Error)]
#[error(
    "{}: cannot write the report: {source}; name a file where you may write and where there is space",
    path.display()
)]
pub struct HtmlError {
    path: PathBuf,
    source: io::Error,
}

/// A page that is being written. If it is dropped before [`HtmlFile::write`], it leaves no file behind.
pub struct HtmlFile {
    path: PathBuf,
    output: Output,
}

impl HtmlFile {
    /// Starts a page that will be called `path`.
    ///
    /// # Errors
    /// If no file can be created there.
    pub fn create(path: &Path) -> Result<Self, HtmlError> {
        let error = |source| HtmlError { path: path.to_owned(), source };
        let output = Output::open(path).map_err(error)?;
        Ok(Self { path: path.to_owned(), output })
    }

    /// Writes the page and gives it its name.
    ///
    /// # Errors
    /// If the disk is full, or the file cannot be renamed.
    pub fn write(self, html: &str) -> Result<(), HtmlError> {
        let Self { path, mut output } = self;
        let written = output.write_all(html.as_bytes()).and_then(|()| output.publish());
        written.map_err(|source| HtmlError { path, source })
    }
}

/// The report of a comparison as HTML.
pub fn html(page: &Page<'_>) -> String {
    self::page(SCRIPT, &Data::of(page))
}

/// A page as HTML. `script` follows `html/common.js` and draws the page from `data`. The keys of `data` must be
/// strings.
pub fn page(script: &str, data: &impl Serialize) -> String {
    let data = serde_json::to_vec(data).unwrap_or_default();
    PAGE.replace("{{style}}", STYLE)
        .replace("{{data}}", &STANDARD.encode(compressed(&data)))
        .replace("{{library}}", &STANDARD.encode(LIBRARY))
        .replace("{{script}}", &format!("{COMMON}\n{script}"))
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    // Writing to memory cannot fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

/// The data that the script reads.
#[derive(Serialize)]
struct Data<'a> {
    workload: &'a str,
    heading: String,
    command: &'a str,
    lacks: &'a [&'static str],
    schedulers: Vec<Scheduler<'a>>,
    seeds: Vec<u64>,
    metrics: Vec<Metric>,
    machine: MachineOf<'a>,
    /// The LLCs in the order of their nodes.
    order: Vec<usize>,
    timelines: Vec<Option<Run<'a>>>,
    /// The groups of tasks that a reader can choose, in the order in which they first appear.
    tasks: Vec<Tasks<'a>>,
    /// The percentiles of [`Run::wakeup_latency`].
    percentiles: Vec<String>,
    counters: Vec<Counter<'a>>,
}

#[derive(Serialize)]
struct Scheduler<'a> {
    name: &'a str,
}

#[derive(Serialize)]
struct Metric {
    name: String,
    unit: String,
    better: &'static str,
    samples: Vec<Vec<Option<f64>>>,
    mean: Vec<Option<f64>>,
    stddev: Vec<Option<f64>>,
    low: Vec<Option<f64>>,
    high: Vec<Option<f64>>,
    change_pct: Vec<Option<f64>>,
    significant: Vec<Option<bool>>,
}

#[derive(Serialize)]
struct MachineOf<'a> {
    name: &'a str,
    /// The nodes' numbers in the operating system.
    nodes: Vec<u32>,
    cpus: Vec<u32>,
    llcs: Vec<LlcOf>,
    figures: Vec<FigureOf>,
    guesses: Vec<GuessOf<'a>>,
}

#[derive(Serialize)]
struct LlcOf {
    node: usize,
    cpus: Vec<usize>,
}

#[derive(Serialize)]
struct FigureOf {
    name: &'static str,
    value: u64,
    source: &'static str,
}

#[derive(Serialize)]
struct GuessOf<'a> {
    name: &'static str,
    assumed: &'a str,
}

#[derive(Serialize)]
struct Run<'a> {
    measured_from_ms: f64,
    /// The start of each window, and the end of the last.
    edges_ms: Vec<f64>,
    cpus: Cells,
    groups: Vec<GroupOf<'a>>,
    migrations: &'a [Vec<u64>],
    wakeup_latency: LatencyOf,
    run_delay: LatencyOf,
    memory: Option<MemoryOf<'a>>,
    accesses: Vec<AccessOf<'a>>,
}

/// Mean number of tasks by place and window, in thousandths.
#[derive(Serialize)]
struct Cells {
    running: Vec<Vec<u64>>,
    waiting: Vec<Vec<u64>>,
}

#[derive(Clone, PartialEq, Serialize)]
struct Tasks<'a> {
    by: &'static str,
    name: &'a str,
}

#[derive(Serialize)]
struct GroupOf<'a> {
    #[serde(flatten)]
    tasks: Tasks<'a>,
    #[serde(flatten)]
    llcs: Cells,
}

#[derive(Serialize)]
struct LatencyOf {
    count: u64,
    us: Vec<f64>,
}

/// Memory at the end of each window.
#[derive(Serialize)]
struct MemoryOf<'a> {
    pages: Vec<&'a [u64]>,
    local: Vec<u64>,
    remote: Vec<u64>,
}

/// Accesses by node.
#[derive(Serialize)]
struct AccessOf<'a> {
    thread: &'a str,
    local: Vec<u64>,
    remote: Vec<u64>,
}

#[derive(Serialize)]
struct Counter<'a> {
    name: &'a str,
    means: &'a [Option<f64>],
}

impl<'a> Data<'a> {
    fn of(page: &'a Page<'a>) -> Self {
        let Page { comparison, machine, timelines, command, ref lacks } = *page;
        let counter = |counter: &'a crate::CounterComparison| Counter {
            name: &counter.name,
            means: &counter.means,
        };
        let schedulers: Vec<_> = comparison.names().map(|name| Scheduler { name }).collect();
        let mut timelines: Vec<_> = timelines.iter().map(|run| run.as_ref().map(Run::of)).collect();
        timelines.resize_with(schedulers.len(), || None);
        Self {
            workload: &comparison.experiment.workload.name,
            heading: comparison.heading().trim_end().to_owned(),
            command,
            lacks,
            schedulers,
            seeds: (0..comparison.repeats).map(|repeat| comparison.seed_of(repeat)).collect(),
            metrics: series::series(&comparison.metrics)
                .iter()
                .map(|s| metric(&s.shown()))
                .collect(),
            machine: place(comparison, machine),
            order: order(machine),
            tasks: tasks(page.timelines),
            timelines,
            percentiles: PERCENTILES_MILLI
                .map(|milli| format!("p{}", f64::from(milli) / 1000.0))
                .to_vec(),
            counters: comparison.counters.iter().map(counter).collect(),
        }
    }
}

fn metric(metric: &MetricComparison) -> Metric {
    let summaries = || metric.summaries.iter().copied();
    let interval = |high: bool| {
        let end = move |interval: crate::Interval| if high { interval.high } else { interval.low };
        summaries().map(|summary| summary?.confidence.map(end)).collect()
    };
    let all = 0..metric.summaries.len();
    Metric {
        name: metric.name.clone(),
        unit: metric.unit.clone(),
        better: better(metric.better),
        samples: metric.samples.clone(),
        mean: summaries().map(|summary| Some(summary?.mean)).collect(),
        stddev: summaries().map(|summary| summary?.stddev).collect(),
        low: interval(false),
        high: interval(true),
        change_pct: all.clone().map(|index| metric.change_pct(index)).collect(),
        significant: all.map(|index| metric.significant(index)).collect(),
    }
}

fn place<'a>(comparison: &'a Comparison, machine: &'a Machine) -> MachineOf<'a> {
    let llc = |llc: usize| LlcOf {
        node: llc_node(machine, llc),
        cpus: machine.llcs[llc].cpus.iter().collect(),
    };
    // A real kernel runs on the real costs.
    let is_simulated = comparison.experiment.place == crate::experiment::Place::Simulated;
    let figures = machine.figures.iter().filter(|_| is_simulated);
    let guesses = machine.guesses.iter();
    MachineOf {
        name: &comparison.experiment.machine.name,
        nodes: machine.nodes.iter().map(|node| node.os_index).collect(),
        cpus: machine.cpus.iter().map(|cpu| cpu.os_index).collect(),
        llcs: (0..machine.llcs.len()).map(llc).collect(),
        figures: figures
            .map(|(name, figure)| FigureOf { name, value: figure.value, source: figure.source })
            .collect(),
        guesses: guesses
            .map(|guess| GuessOf { name: guess.name, assumed: &guess.assumed })
            .collect(),
    }
}

fn order(machine: &Machine) -> Vec<usize> {
    let mut llcs: Vec<usize> = (0..machine.llcs.len()).collect();
    llcs.sort_by_key(|&llc| (llc_node(machine, llc), llc));
    llcs
}

/// The groups of tasks that a reader can choose. A name or process that all tasks share in every run is left out.
fn tasks(timelines: &[Option<Timeline>]) -> Vec<Tasks<'_>> {
    let mut all: Vec<Tasks<'_>> = Vec::new();
    for group in timelines.iter().flatten().flat_map(|run| &run.groups) {
        let tasks = Tasks::of(group);
        if !all.contains(&tasks) {
            all.push(tasks);
        }
    }
    let alone = |by: &str| by != "cgroup" && all.iter().filter(|tasks| tasks.by == by).count() == 1;
    let [name, process] = ["name", "process"].map(alone);
    all.retain(|tasks| !(tasks.by == "name" && name || tasks.by == "process" && process));
    all.sort_by_key(|tasks| tasks.by);
    all
}

impl<'a> Tasks<'a> {
    fn of(group: &'a TaskGroup) -> Self {
        let by = match group.by {
            By::Name => "name",
            By::Process => "process",
            By::Cgroup => "cgroup",
        };
        Self { by, name: &group.name }
    }
}

impl<'a> Run<'a> {
    fn of(run: &'a Timeline) -> Self {
        let ms = |ns: u64| ns as f64 / 1e6;
        let windows = run.windows();
        let begins = (0..windows as u64).map(|window| ms(window * run.window_ns));
        let group = |group: &'a TaskGroup| GroupOf {
            tasks: Tasks::of(group),
            llcs: Cells::of(run, &group.llcs),
        };
        let bytes = |node: &[Accessed], of: fn(&Accessed) -> u64| node.iter().map(of).collect();
        let access = |access: &'a crate::Access| AccessOf {
            thread: &access.thread,
            local: bytes(&access.node, |node| node.local_bytes),
            remote: bytes(&access.node, |node| node.remote_bytes),
        };
        Self {
            measured_from_ms: ms(run.measured_from.ns()),
            edges_ms: begins.chain([ms(run.end.ns())]).collect(),
            cpus: Cells::of(run, &run.cpus),
            groups: run.groups.iter().map(group).collect(),
            migrations: &run.migrations,
            wakeup_latency: LatencyOf::of(&run.wakeup_latency),
            run_delay: LatencyOf::of(&run.run_delay),
            memory: (!run.memory.is_empty()).then(|| MemoryOf::of(&run.memory)),
            accesses: run.accesses.iter().map(access).collect(),
        }
    }
}

impl Cells {
    fn of(run: &Timeline, occupancy: &Occupancy) -> Self {
        let windows = run.windows();
        let row = |row: Vec<u64>| {
            let mean = |(window, &ns): (usize, &u64)| {
                let length = u128::from(run.length_ns(window).max(1));
                ((u128::from(ns) * 1000 + length / 2) / length) as u64
            };
            row[..windows].iter().enumerate().map(mean).collect()
        };
        let rows = |grid: &Grid| grid.rows().map(row).collect();
        Self { running: rows(&occupancy.running), waiting: rows(&occupancy.waiting) }
    }
}

impl LatencyOf {
    fn of(latency: &Latency) -> Self {
        let us = latency.percentiles_ns.iter().map(|&ns| ns as f64 / 1000.0);
        Self { count: latency.count, us: us.collect() }
    }
}

impl<'a> MemoryOf<'a> {
    fn of(memory: &'a [MemoryNow]) -> Self {
        let accessed = || memory.iter().map(|now| now.accessed);
        Self {
            pages: memory.iter().map(|now| &now.node_pages[..]).collect(),
            local: accessed().map(|accessed| accessed.local_bytes).collect(),
            remote: accessed().map(|accessed| accessed.remote_bytes).collect(),
        }
    }
}
