//! What can go wrong.

use std::path::{Path, PathBuf};

/// Why published figures could not be repeated: one line that names the thing and the way out.
#[derive(Debug, thiserror::Error)]
pub enum ReproduceError {
    /// So many threads could not be had.
    #[error(transparent)]
    Jobs(#[from] roost_simulate::JobsError),
    /// A file or folder could not be read.
    #[error("{}: cannot be read: {error}; give the folder of published tables with --published", file.display())]
    Unreadable {
        /// Which.
        file: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A file could not be written.
    #[error("{}: cannot be written: {error}; {remedy}", file.display())]
    Unwritable {
        /// Which.
        file: PathBuf,
        /// Why.
        error: std::io::Error,
        /// What helps.
        remedy: &'static str,
    },
    /// A recipe is not what it should be.
    #[error("{}:{line}: {problem}", file.display())]
    Recipe {
        /// Which.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with which field.
        problem: String,
    },
    /// A table is not what it should be.
    #[error("{}: {problem}", file.display())]
    Table {
        /// Which.
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// No study has this name.
    #[error("no study is named '{name}'{meant}; studies: {known}")]
    Unknown {
        /// The name.
        name: String,
        /// What was probably meant.
        meant: String,
        /// All.
        known: String,
    },
    /// The JSON of earlier results cannot be understood.
    #[error("{}: not written by this command: {error}; remove it", file.display())]
    Results {
        /// Which.
        file: PathBuf,
        /// What is wrong with it.
        error: serde_json::Error,
    },
    /// A run could not be made.
    #[error("study {study}, row {row}: {problem}")]
    Run {
        /// The study.
        study: String,
        /// The first of its rows that looks at the run.
        row: String,
        /// What is wrong.
        problem: String,
    },
}

impl ReproduceError {
    /// An error of reading `file`.
    pub(crate) fn unreadable(file: &Path, error: std::io::Error) -> Self {
        Self::Unreadable { file: file.to_owned(), error }
    }

    /// An error of the table in `file`.
    pub(crate) fn table(file: &Path, problem: impl ToString) -> Self {
        Self::Table { file: file.to_owned(), problem: problem.to_string() }
    }
}
