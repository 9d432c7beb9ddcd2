//! Errors of sweeps.

use std::io;
use std::path::{Path, PathBuf};

use roost_simulate::SpecError;

/// Why a sweep could not begin or finish: one line that names the thing and the way out.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// A plan has an error.
    #[error("{}{problem}", place(plan, *line))]
    Plan {
        /// The plan's file. Empty if it has none.
        plan: String,
        /// The line with the error, from 1, if there is one.
        line: Option<usize>,
        /// The problem and the way out.
        problem: String,
    },
    /// A sched_ext program of a plan is broken.
    #[error("{}{error}", place(plan, None))]
    Program {
        /// The plan's file. Empty if it has none.
        plan: String,
        /// The reason.
        error: SpecError,
    },
    /// A file could not be read.
    #[error("{}: cannot be read: {error}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// A file could not be written. Everything that was stored before is kept.
    #[error(
        "{}: cannot be written: {error}; finished runs are kept: free space, then give the same command again",
        file.display()
    )]
    Unwritable {
        /// The file.
        file: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// A file with this name cannot be created.
    #[error("{}: cannot be created: {error}; name a writable place with --output", file.display())]
    Uncreatable {
        /// The file.
        file: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// Another process makes the same runs.
    #[error("{}: another process writes to it; wait until it ends, or name another result with --output", .0.display())]
    Busy(PathBuf),
    /// A journal belongs to another plan or program.
    #[error(
        "{}: it has runs of another {what}; finish it with that {what}, or remove the file to start anew",
        file.display()
    )]
    Differs {
        /// The journal.
        file: PathBuf,
        /// What differs: plan or program.
        what: &'static str,
    },
    /// A line of a journal is invalid, and it is not the last one.
    #[error("{}:{line}: damaged: {error}; remove the file to start anew", file.display())]
    Damaged {
        /// The journal.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The reason.
        error: String,
    },
    /// A result with this name exists already.
    #[error(
        "{}: the file exists, and belongs to another plan or program; remove it, or name another with --output",
        .0.display()
    )]
    Exists(PathBuf),
    /// A file is not the result of a sweep.
    #[error("{}: not the result of a sweep: {why}; give the file that `roost sweep PLAN` wrote", file.display())]
    NoResult {
        /// The file.
        file: PathBuf,
        /// The reason.
        why: String,
    },
    /// The sweep was interrupted.
    #[error(
        "interrupted: {ended} of {wanted} runs are kept in {}; give the same command to continue",
        journal.display()
    )]
    Left {
        /// Number of runs that are kept.
        ended: usize,
        /// Number of runs that were asked for.
        wanted: usize,
        /// The journal with the runs.
        journal: PathBuf,
    },
    /// Runs failed. The result was written.
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
        /// The first failed run, and its error.
        first: String,
    },
    /// That many threads could not be started.
    #[error(transparent)]
    Jobs(#[from] roost_simulate::JobsError),
    /// Columns could not be created.
    #[error(transparent)]
    Arrow(#[from] arrow_schema::ArrowError),
}

/// The place of an error in a plan.
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
