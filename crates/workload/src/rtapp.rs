//! rt-app files: JSON that describes threads by phases and events (rt-app 1.0, with `fork`,
//! `taskgroup` and memory binding of later versions).
//!
//! `json` reads the text, `read` and `values` the meaning, `compile` makes the workload. What rt-app accepts and
//! this model has no use for (log files, calibration) is checked and dropped; what would change the
//! result and is not simulated is an error, or a note where rt-app's own examples use it.

mod compile;
mod json;
mod read;
mod values;

use crate::{Workload, WorkloadError};

/// A workload and what the model does not take from its file.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The workload.
    pub workload: Workload,
    /// One line each: which key, and what is done instead.
    pub notes: Vec<String>,
    /// What the real rt-app would log of each kind of task; none of a benchmark.
    pub logs: Vec<TaskLog>,
}

/// How the loops of a task, which are what its `loops/s` count, show in the log that the real rt-app
/// writes of it: a line for each loop of each phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskLog {
    /// The task's name.
    pub task: String,
    /// Whether timers wake it: rt-app knows the latency of no other wakeup.
    pub has_timer: bool,
    /// Lines before the phase that never ends, whose own loops count; 0 if all of them end.
    before: u64,
    /// Lines of a loop.
    each: u64,
}

impl TaskLog {
    /// How many loops a task has completed that logged so many `lines`.
    pub fn loops(&self, lines: u64) -> u64 {
        lines.saturating_sub(self.before) / self.each.max(1)
    }
}

/// Makes a workload of an rt-app file's text. `name` is the file's, for messages. A workload whose
/// tasks never exit may come back without a duration; see [`Workload::endless_template`].
pub fn parse(text: &str, name: &str) -> Result<Workload, WorkloadError> {
    load(text, name).map(|loaded| loaded.workload)
}

/// As [`parse`], with what the model does not take from the file.
pub fn load(text: &str, name: &str) -> Result<Loaded, WorkloadError> {
    // Messages are one line whatever the file is called.
    let name = name.replace(char::is_control, " ");
    let root = json::parse(text, &name)?;
    compile::compile(read::file(&root, &name)?)
}

/// Reads a file and makes a workload of it.
pub fn load_file(path: &str) -> Result<Loaded, WorkloadError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| WorkloadError::Read { file: path.to_string(), source })?;
    load(&text, path)
}
