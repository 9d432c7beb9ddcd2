//! What can go wrong, and the exit status it leads to.

use std::process::ExitCode;

use roost_engine::RunError;

/// Why a command failed: one line that names the thing and the way out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A machine could not be read.
    #[error(transparent)]
    Machine(#[from] roost_machine::MachineError),
    /// A workload could not be read.
    #[error(transparent)]
    Workload(#[from] roost_workload::WorkloadError),
    /// A scheduler's name was not understood.
    #[error(transparent)]
    Scheduler(#[from] roost_fair::FeatureError),
    /// A run failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Something the user asked for does not fit together.
    #[error("{0}")]
    Usage(String),
    /// A trace could not be written.
    #[error(transparent)]
    Trace(#[from] roost_report::TraceError),
    /// Standard output could not be written.
    #[error("standard output: {0}")]
    Output(std::io::Error),
}

impl Error {
    /// 2 for what the user has to mend, 130 after an interrupt, else 1.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Error::Machine(_) | Error::Workload(_) | Error::Scheduler(_) | Error::Usage(_) => 2,
            Error::Run(RunError::Stopped(_)) => 130,
            Error::Run(_) => 2,
            Error::Trace(_) | Error::Output(_) => 1,
        })
    }
}

/// Writes to standard output; a reader that has gone away (`| head`) is not an error.
pub fn print(text: &str) -> Result<(), Error> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Error::Output(error)),
        _ => Ok(()),
    }
}
