//! Why a scenario cannot be run.

/// An error of one line: the problem and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum ValidateError {
    /// There is no scenario with this name.
    #[error("no scenario '{0}'; choose from {1}")]
    UnknownScenario(String, String),
    /// The machine does not have the 16 CPUs for which the scenarios' loads and CPU lists are made.
    #[error(
        "machine {machine} has {found}, the scenarios are made for 16 CPUs numbered 0 to 15; choose \
         2n2l4c, 1s2n4l2c, 4n1l4c, 4n2l2c, 2n2l2c2t or 2n1l2m2c2t"
    )]
    Machine {
        /// The machine's name.
        machine: String,
        /// The CPUs that it has instead.
        found: String,
    },
    /// The file of a scenario has an error.
    #[error(transparent)]
    Workload(#[from] roost_workload::WorkloadError),
    /// A simulation failed.
    #[error("scenario {scenario}: {source}")]
    Run {
        /// The scenario's name.
        scenario: &'static str,
        /// The reason.
        source: roost_engine::RunError,
    },
    /// A workload has no operation that is counted on both sides.
    #[error("{0}: its operations are not counted on both sides; choose from {1}")]
    NotCompared(String, String),
    /// The simulation of a workload failed.
    #[error("{workload}: {source}")]
    RunOf {
        /// The workload's name.
        workload: String,
        /// The reason.
        source: roost_engine::RunError,
    },
}

impl ValidateError {
    /// As [`roost_engine::RunError::is_by_scheduler`].
    pub fn is_by_scheduler(&self) -> bool {
        let (Self::Run { source, .. } | Self::RunOf { source, .. }) = self else { return false };
        source.is_by_scheduler()
    }
}
