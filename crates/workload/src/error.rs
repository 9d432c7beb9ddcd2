//! Errors of workloads that a user named.

use crate::validate::Invalid;

/// Why a workload could not be created. Each error prints as one line with the place and a remedy.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// The file could not be read as text.
    #[error("{file}: cannot be read: {source}; check the path and that it is a UTF-8 text file")]
    Read {
        /// The file as the user named it.
        file: String,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// The file is not JSON in the liberal form that rt-app and workgen read.
    #[error("{file}:{line}: not JSON as rt-app reads it: {problem}; {remedy}")]
    Syntax {
        /// The file as the user named it.
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
        /// The file as the user named it.
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
        /// The text that the user gave.
        spec: String,
        /// Names of all benchmarks.
        known: String,
        /// The benchmark that may have been meant, as the end of the sentence.
        meant: String,
    },
    /// The benchmark has no such parameter.
    #[error("{spec}: {benchmark} has no parameter '{parameter}'; it takes {known}{meant}")]
    UnknownParameter {
        /// The text that the user gave.
        spec: String,
        /// The benchmark.
        benchmark: &'static str,
        /// The name that was given.
        parameter: String,
        /// The benchmark's parameters with their defaults.
        known: String,
        /// The parameter that may have been meant, as the end of the sentence.
        meant: String,
    },
    /// A parameter of the benchmark without a value.
    #[error("{spec}: '{parameter}' has no value; write for example {parameter}={default}")]
    NoValue {
        /// The text that the user gave.
        spec: String,
        /// The parameter.
        parameter: &'static str,
        /// The default value.
        default: &'static str,
    },
    /// A parameter's value is malformed or out of range.
    #[error("{spec}: {parameter}: {problem}; {remedy}")]
    BadParameter {
        /// The text that the user gave.
        spec: String,
        /// The parameter.
        parameter: String,
        /// What is wrong.
        problem: String,
        /// What to do about it.
        remedy: String,
    },
    /// A task never exits, and nothing else ends the run.
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
