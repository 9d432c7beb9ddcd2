//! Errors of this crate.

/// Why a measurement on a real kernel failed: one line that names the thing and the way out.
#[derive(Debug, thiserror::Error)]
pub enum RealError {
    /// The scheduler, workload or machine is not available on a real kernel.
    #[error("{0}")]
    Usage(String),
    /// A setting of the live scheduler is wrong.
    #[error(transparent)]
    Settings(#[from] roost_settings::SettingsError),
    /// A measurement is unusable: what was measured, and why it is unusable.
    #[error("{0}")]
    Failed(String),
    /// The workload itself failed.
    #[error("{workload} under {scheduler} ended with status {status}: {reason}")]
    Workload {
        /// The workload.
        workload: String,
        /// The scheduler.
        scheduler: String,
        /// Its exit status.
        status: i32,
        /// The last line of its standard error.
        reason: String,
    },
    /// Ctrl-C or SIGTERM.
    #[error("interrupted")]
    Interrupted,
    /// A file could not be read or written.
    #[error("{path}: {error}")]
    File {
        /// The file or folder.
        path: String,
        /// The operating system's reason.
        error: std::io::Error,
    },
    /// The guest failed.
    #[error(transparent)]
    Vm(#[from] roost_vm::VmError),
    /// The kernel's counters could not be read.
    #[error(transparent)]
    Measure(#[from] roost_measure::MeasureError),
    /// The workload's name or file is wrong.
    #[error(transparent)]
    Named(#[from] roost_workload::WorkloadError),
}

impl RealError {
    pub(crate) fn file(path: &std::path::Path, error: std::io::Error) -> Self {
        Self::File { path: path.display().to_string(), error }
    }
}
