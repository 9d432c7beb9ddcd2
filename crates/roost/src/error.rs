//! What can go wrong, and the exit status it leads to.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use roost_engine::RunError;
use roost_real::RealError;
use roost_reproduce::ReproduceError;
use roost_simulate::SpecError;
use roost_sweep::SweepError;
use roost_vm::VmError;

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
    Scheduler(SpecError),
    /// Labels of schedulers cannot be used.
    #[error(transparent)]
    Label(#[from] roost_simulate::LabelError),
    /// That many threads could not be started.
    #[error(transparent)]
    Jobs(#[from] roost_simulate::JobsError),
    /// Settings were not understood.
    #[error(transparent)]
    Settings(#[from] roost_settings::SettingsError),
    /// A sched_ext object could not be read, or does not fit the kernel.
    #[error("{0}")]
    Scx(String),
    /// A run failed.
    #[error(transparent)]
    Run(RunError),
    /// Ctrl-C or SIGTERM.
    #[error("interrupted: no result was printed and no trace written")]
    Interrupted,
    /// The same, but some repeats were complete and have been printed.
    #[error(
        "interrupted: {complete} of {wanted} repeats are complete under all schedulers; what was printed \
         is marked as partial{}",
        if *.resumable { ", and --resume continues it" } else { "" }
    )]
    Partial {
        /// Repeats that were printed.
        complete: usize,
        /// Repeats that were asked for.
        wanted: usize,
        /// Whether `--resume` can go on with what was printed.
        resumable: bool,
    },
    /// Something about virtual machines failed.
    #[error(transparent)]
    Vm(#[from] roost_vm::VmError),
    /// A measurement on a real kernel failed.
    #[error(transparent)]
    Real(RealError),
    /// The guest's kernel and the model disagree.
    #[error("the guest's kernel and the model disagree about the scheduling domains of {machine}")]
    Domains {
        /// The machine.
        machine: String,
    },
    /// A scenario could not be found or simulated.
    #[error(transparent)]
    Scenario(#[from] roost_validate::ValidateError),
    /// Published figures could not be repeated.
    #[error(transparent)]
    Reproduce(#[from] roost_reproduce::ReproduceError),
    /// A sweep could not begin or finish.
    #[error(transparent)]
    Sweep(#[from] roost_sweep::SweepError),
    /// Ctrl-C or SIGTERM while published figures were repeated.
    #[error(
        "interrupted: {complete} of {wanted} rows are complete and printed, no file was written; the finished \
         runs are kept: give the same command to continue"
    )]
    RowsLeft {
        /// Rows that were printed.
        complete: usize,
        /// Rows that were asked for.
        wanted: usize,
    },
    /// The model misses a bar of docs/validation.md.
    #[error("the model misses a bar of docs/validation.md")]
    Validation,
    /// `roost run` did not find the program `scx_roost`.
    #[error("{0}")]
    NoLoader(String),
    /// The arguments are wrong or do not fit together.
    #[error("{0}")]
    Usage(String),
    /// A trace could not be written.
    #[error(transparent)]
    Trace(#[from] roost_report::TraceError),
    /// A report could not be written.
    #[error(transparent)]
    Html(#[from] roost_report::HtmlError),
    /// Standard output could not be written.
    #[error("standard output: cannot be written: {0}; free space or send it elsewhere")]
    Output(std::io::Error),
}

impl From<RunError> for Error {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Stopped(_) => Error::Interrupted,
            failed => Error::Run(failed),
        }
    }
}

impl From<SpecError> for Error {
    fn from(error: SpecError) -> Self {
        match error {
            SpecError::Capture(error) if error.is_interrupted() => Error::Interrupted,
            failed => Error::Scheduler(failed),
        }
    }
}

impl From<roost_fair::FeatureError> for Error {
    fn from(error: roost_fair::FeatureError) -> Self {
        Error::Scheduler(error.into())
    }
}

impl From<RealError> for Error {
    fn from(error: RealError) -> Self {
        match error {
            RealError::Interrupted | RealError::Vm(VmError::Interrupted) => Error::Interrupted,
            RealError::Vm(error) => Error::Vm(error),
            RealError::Named(error) => Error::Workload(error),
            RealError::Settings(error) => Error::Settings(error),
            failed => Error::Real(failed),
        }
    }
}

impl Error {
    /// The last lines of a failed guest's console, which are shown before the error.
    pub fn console(&self) -> &[String] {
        match self {
            Error::Vm(error) => error.console(),
            _ => &[],
        }
    }

    /// The exit status: 2 if the user has to correct the command or its files, 3 if this machine cannot run the live
    /// scheduler as it is, 130 after an interrupt, else 1, as when a sched_ext program is broken or fails.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Error::Scheduler(error) if !error.is_usage() => 1,
            Error::Scenario(error) if error.is_by_scheduler() => 1,
            Error::Machine(_) | Error::Workload(_) | Error::Scheduler(_) => 2,
            Error::Settings(_) | Error::Label(_) | Error::Jobs(_) => 2,
            Error::Run(error) if error.is_by_scheduler() => 1,
            Error::Run(_) | Error::Usage(_) | Error::Scenario(_) => 2,
            Error::NoLoader(_) => 3,
            Error::Interrupted | Error::Partial { .. } => 130,
            Error::RowsLeft { .. } | Error::Sweep(SweepError::Left { .. }) => 130,
            Error::Sweep(
                SweepError::RunsFailed { .. }
                | SweepError::Unwritable { .. }
                | SweepError::Program { .. },
            ) => 1,
            Error::Sweep(_) => 2,
            Error::Reproduce(ReproduceError::Unwritable { .. }) => 1,
            Error::Reproduce(_) => 2,
            Error::Vm(error) if error.is_usage() => 2,
            Error::Real(RealError::Usage(_)) => 2,
            Error::Validation | Error::Vm(_) | Error::Real(_) | Error::Domains { .. } => 1,
            Error::Scx(_) | Error::Trace(_) | Error::Html(_) | Error::Output(_) => 1,
        })
    }
}

/// Writes to standard output; a reader that has gone away (`| head`) is not an error.
pub fn print(text: &str) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Error::Output(error)),
        _ => Ok(()),
    }
}

/// Writes one line to standard error, even if a file name contains line breaks. A failure is ignored, because there is
/// nowhere to report it.
pub fn tell(message: &str) {
    let mut line = String::from("roost: ");
    for character in message.chars() {
        match character.is_control() {
            true => line.extend(character.escape_default()),
            false => line.push(character),
        }
    }
    line.push('\n');
    let _ = std::io::stderr().write_all(line.as_bytes());
}
