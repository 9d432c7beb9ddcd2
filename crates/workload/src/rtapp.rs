//! rt-app files: JSON that describes threads by phases and events (rt-app 1.0, and `fork`, `taskgroup` and memory
//! binding of later versions).
//!
//! `json` reads the text, `read` and `values` find its meaning, and `compile` creates the workload. Keys that rt-app
//! accepts and this model does not need (log files, calibration) are checked and dropped. A key that would change the
//! result but is not simulated is an error; if rt-app's own examples use it, it gives a note instead.

mod compile;
mod json;
mod read;
mod values;

use crate::{Workload, WorkloadError};

/// A workload, and notes about what the model ignores in its file.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The workload.
    pub workload: Workload,
    /// One line for each ignored key: the key, and what is done instead.
    pub notes: Vec<String>,
    /// What the real rt-app would log for each kind of task. Empty for benchmarks.
    pub logs: Vec<TaskLog>,
}

/// How the loops of a task appear in the log of the real rt-app, which has a line for each loop of each phase. The
/// task's metric `loops/s` counts these loops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskLog {
    /// The task's name.
    pub task: String,
    /// Whether timers wake the task. rt-app knows no latency of other wakeups.
    pub has_timer: bool,
    /// Number of lines before the phase that never ends, whose loops are counted. 0 if all phases end.
    before: u64,
    /// Number of lines per loop.
    each: u64,
}

impl TaskLog {
    /// Number of loops that a task has completed if it logged this many `lines`.
    pub fn loops(&self, lines: u64) -> u64 {
        lines.saturating_sub(self.before) / self.each.max(1)
    }
}

/// Creates a workload from the text of an rt-app file. `name` is the file's name, for messages. If the tasks never
/// exit, the workload may have no duration; see [`Workload::endless_template`].
pub fn parse(text: &str, name: &str) -> Result<Workload, WorkloadError> {
    load(text, name).map(|loaded| loaded.workload)
}

/// As [`parse`], with notes about what the model ignores in the file.
pub fn load(text: &str, name: &str) -> Result<Loaded, WorkloadError> {
    // Control characters are removed, so that messages stay on one line whatever the file's name.
    let name = name.replace(char::is_control, " ");
    let root = json::parse(text, &name)?;
    compile::compile(read::file(&root, &name)?)
}

/// Reads a file and creates its workload.
pub fn load_file(path: &str) -> Result<Loaded, WorkloadError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| WorkloadError::Read { file: path.to_string(), source })?;
    load(&text, path)
}
