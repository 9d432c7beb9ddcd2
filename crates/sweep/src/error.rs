//! What can go wrong.

use std::io;
use std::path::{Path, PathBuf};

/// Why a sweep could not begin, or not end: one line that names the thing and the way out.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// A plan is not what it should be.
    #[error("{}{problem}", place(plan, *line))]
    Plan {
        /// Its file; empty: it has none.
        plan: String,
        /// The line, from 1, where one is to blame.
        line: Option<usize>,
        /// What is wrong, and the way out.
        problem: String,
    },
    /// A file could not be read.
    #[error("{}: cannot be read: {error}", file.display())]
    Unreadable {
        /// Which.
        file: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file could not be written. What was kept before stays.
    #[error(
        "{}: cannot be written: {error}; runs that have ended are kept: free space, and the same command goes on",
        file.display()
    )]
    Unwritable {
        /// Which.
        file: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// There can be no file of this name.
    #[error("{}: cannot be made: {error}; name a result where you may write with --output", file.display())]
    Uncreatable {
        /// Which.
        file: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Another process makes the same runs.
    #[error("{}: another process writes to it; wait for it, or name another result with --output", .0.display())]
    Busy(PathBuf),
    /// A journal is of another plan or program.
    #[error(
        "{}: runs of another {what}; finish it with that, or remove the file to start anew",
        file.display()
    )]
    Differs {
        /// The journal.
        file: PathBuf,
        /// What differs.
        what: &'static str,
    },
    /// A line of a journal, and not the last, is none.
    #[error("{}:{line}: damaged: {error}; remove the file to start anew", file.display())]
    Damaged {
        /// The journal.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// Why.
        error: String,
    },
    /// There is a result under this name already.
    #[error("{}: there is such a file, and it is not of this plan and program; remove it, or name another with --output", .0.display())]
    Exists(PathBuf),
    /// A file is no result of a sweep.
    #[error("{}: not the result of a sweep: {why}; give the file that `roost sweep PLAN` wrote", file.display())]
    NoResult {
        /// Which.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// It was interrupted.
    #[error("interrupted: {ended} of {wanted} runs are kept in {}; the same command goes on", journal.display())]
    Left {
        /// Runs that are kept.
        ended: usize,
        /// Runs that were asked for.
        wanted: usize,
        /// Where.
        journal: PathBuf,
    },
    /// Runs failed, and the result was written.
    #[error(
        "{failed} of {runs} runs failed: {} has the reasons in its column `error`; the first: {first}",
        result.display()
    )]
    RunsFailed {
        /// Runs that failed.
        failed: usize,
        /// All runs.
        runs: usize,
        /// The file.
        result: PathBuf,
        /// The first run, and why it failed.
        first: String,
    },
    /// So many threads could not be had.
    #[error(transparent)]
    Jobs(#[from] roost_simulate::JobsError),
    /// Columns could not be made.
    #[error(transparent)]
    Arrow(#[from] arrow_schema::ArrowError),
}

/// Where in a plan something is wrong.
fn place(plan: &str, line: Option<usize>) -> String {
    match line {
        _ if plan.is_empty() => String::new(),
        Some(line) => format!("{plan}:{line}: "),
        None => format!("{plan}: "),
    }
}

impl SweepError {
    pub(crate) fn unreadable(file: &Path, error: io::Error) -> Self {
        Self::Unreadable { file: file.to_owned(), error }
    }

    pub(crate) fn unwritable(file: &Path, error: io::Error) -> Self {
        Self::Unwritable { file: file.to_owned(), error }
    }
}
