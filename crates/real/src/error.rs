//! What can go wrong.

/// Why a measurement on a real kernel failed: one line that names the thing and the way out.
#[derive(Debug, thiserror::Error)]
pub enum RealError {
    /// A scheduler's name, a workload or a machine that cannot be had on a real kernel.
    #[error("{0}")]
    Usage(String),
    /// Settings of the live scheduler.
    #[error(transparent)]
    Settings(#[from] roost_settings::SettingsError),
    /// A measurement that is worth nothing: what was measured, and why.
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
        /// What the operating system says.
        error: std::io::Error,
    },
    /// Something about the guest.
    #[error(transparent)]
    Vm(#[from] roost_vm::VmError),
    /// What the kernel counted could not be read.
    #[error(transparent)]
    Measure(#[from] roost_measure::MeasureError),
    /// The workload's name or file.
    #[error(transparent)]
    Named(#[from] roost_workload::WorkloadError),
}

impl RealError {
    pub(crate) fn file(path: &std::path::Path, error: std::io::Error) -> Self {
        Self::File { path: path.display().to_string(), error }
    }
}
