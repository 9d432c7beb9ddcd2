//! What can be wrong with a workload that somebody asked for.

use crate::validate::Invalid;

/// Why a workload could not be made. Each prints as one line with the place and a remedy.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// The file could not be read as text.
    #[error("{file}: cannot be read: {source}; check the path and that it is a UTF-8 text file")]
    Read {
        /// As given.
        file: String,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The file is not JSON in the liberal form that rt-app and workgen read.
    #[error("{file}:{line}: not JSON as rt-app reads it: {problem}; {remedy}")]
    Syntax {
        /// As given.
        file: String,
        /// Line, counted from 1.
        line: usize,
        /// What was found.
        problem: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// A key of an rt-app file is unknown, has the wrong type, or a value that cannot work.
    #[error("{file}:{line}: {path}: {problem}; {remedy}")]
    Key {
        /// As given.
        file: String,
        /// Line of the key, counted from 1.
        line: usize,
        /// The keys from the top of the file, joined by dots.
        path: String,
        /// What is wrong.
        problem: String,
        /// What to do about it.
        remedy: String,
    },
    /// No benchmark has this name.
    #[error(
        "{spec}: unknown benchmark; choose from {known}, or give the path of an rt-app .json{meant}"
    )]
    UnknownBenchmark {
        /// As given.
        spec: String,
        /// Names of all benchmarks.
        known: String,
        /// The one that may have been meant, as the end of a sentence.
        meant: String,
    },
    /// The benchmark has no such parameter.
    #[error("{spec}: {benchmark} has no parameter '{parameter}'; it takes {known}{meant}")]
    UnknownParameter {
        /// As given.
        spec: String,
        /// Its benchmark.
        benchmark: &'static str,
        /// The name that was given.
        parameter: String,
        /// Its parameters with their defaults.
        known: String,
        /// The one that may have been meant, as the end of a sentence.
        meant: String,
    },
    /// A parameter of the benchmark without a value.
    #[error("{spec}: '{parameter}' has no value; write for example {parameter}={default}")]
    NoValue {
        /// As given.
        spec: String,
        /// The parameter.
        parameter: &'static str,
        /// What it is when not given.
        default: &'static str,
    },
    /// A parameter's value is malformed or out of range.
    #[error("{spec}: {parameter}: {problem}; {remedy}")]
    BadParameter {
        /// As given.
        spec: String,
        /// The parameter.
        parameter: String,
        /// What is wrong.
        problem: String,
        /// What to do about it.
        remedy: String,
    },
    /// Some task never exits and nothing else ends the run.
    #[error(
        "{name}: task '{task}' never exits and no duration is set; set \"duration\" in \"global\" \
         or give a duration on the command line"
    )]
    Endless {
        /// Name of the workload.
        name: String,
        /// A task that never exits.
        task: String,
    },
    /// A benchmark's task graph breaks an invariant for these parameters.
    #[error("{name}: {invalid}; choose smaller parameters")]
    Invalid {
        /// Name of the workload.
        name: String,
        /// What is broken, and where.
        invalid: Invalid,
    },
}
