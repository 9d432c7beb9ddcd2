//! Errors of this crate.

use std::path::{Path, PathBuf};

/// Why published figures could not be reproduced: one line that names the thing and the way out.
#[derive(Debug, thiserror::Error)]
pub enum ReproduceError {
    /// That many threads could not be started.
    #[error(transparent)]
    Jobs(#[from] roost_simulate::JobsError),
    /// A file or folder could not be read.
    #[error("{}: cannot be read: {error}; give the folder of published tables with --published", file.display())]
    Unreadable {
        /// The file or folder.
        file: PathBuf,
        /// The reason.
        error: std::io::Error,
    },
    /// A file could not be written.
    #[error("{}: cannot be written: {error}; {remedy}", file.display())]
    Unwritable {
        /// The file.
        file: PathBuf,
        /// The reason.
        error: std::io::Error,
        /// The remedy.
        remedy: &'static str,
    },
    /// A recipe has an error.
    #[error("{}:{line}: {problem}", file.display())]
    Recipe {
        /// The recipe's file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The problem and the field.
        problem: String,
    },
    /// A table has an error.
    #[error("{}: {problem}", file.display())]
    Table {
        /// The table's file.
        file: PathBuf,
        /// The problem.
        problem: String,
    },
    /// No study has this name.
    #[error("no study is named '{name}'{meant}; studies: {known}")]
    Unknown {
        /// The name.
        name: String,
        /// A similar name that may have been meant, as part of the sentence.
        meant: String,
        /// The names of all studies.
        known: String,
    },
    /// The JSON of earlier results cannot be read.
    #[error("{}: not written by this command: {error}; remove it", file.display())]
    Results {
        /// The file.
        file: PathBuf,
        /// The problem.
        error: serde_json::Error,
    },
    /// A run could not be made.
    #[error("study {study}, row {row}: {problem}")]
    Run {
        /// The study.
        study: String,
        /// The first of its rows that uses the run.
        row: String,
        /// The problem.
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
