//! Options of the scheduler: the command line and the settings file (`roost-settings`) combined.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use roost_machine::Machine;
use roost_settings::{Invocation, Settings};

use crate::error::LiveError;

/// Options of the scheduler.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// Mechanisms and numbers.
    pub settings: Settings,
    /// Interval at which statistics are printed.
    pub stats: Option<Duration>,
    /// Address at which to serve Prometheus.
    pub metrics: Option<SocketAddr>,
    /// Whether to print the messages of libbpf and the verifier, and the kernel's dump if it ends the scheduler.
    pub verbose: bool,
    /// A captured `/sys` to read instead of this machine's (for a dry run).
    pub sysfs: Option<PathBuf>,
}

impl Options {
    /// The options of a command line and its settings file.
    pub fn of(invocation: &Invocation) -> Result<Self, LiveError> {
        Ok(Self {
            settings: invocation.settings()?,
            stats: invocation.stats,
            metrics: invocation.metrics,
            verbose: invocation.verbose,
            sysfs: invocation.sysfs.clone(),
        })
    }

    /// The machine to schedule.
    pub fn machine(&self) -> Result<Machine, LiveError> {
        match &self.sysfs {
            Some(dir) => Machine::from_sysfs(dir).map_err(LiveError::Captured),
            None => Machine::this().map_err(LiveError::ThisMachine),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::ExitCode;

    use super::*;

    /// The systemd unit restarts the scheduler after status 1, but not after status 2.
    #[test]
    fn a_machine_that_cannot_be_read_now_may_be_read_later() {
        let empty = tempfile::tempdir().unwrap();
        let options = Options { sysfs: Some(empty.path().to_owned()), ..Options::default() };
        let captured = options.machine().unwrap_err();
        assert_eq!(captured.exit_code(), ExitCode::from(2), "{captured}");
        let problem = Machine::from_sysfs(empty.path()).unwrap_err();
        let this = LiveError::ThisMachine(problem);
        assert_eq!(this.exit_code(), ExitCode::from(1), "{this}");
        assert_eq!(this.to_string().lines().count(), 1);
    }
}
