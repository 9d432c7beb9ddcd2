//! How to schedule: the command line and the settings file (`roost-settings`) together.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use roost_machine::Machine;
use roost_settings::{Invocation, Settings};

use crate::error::LiveError;

/// How to schedule.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// Mechanisms and numbers.
    pub settings: Settings,
    /// Print statistics this often.
    pub stats: Option<Duration>,
    /// Where to serve Prometheus.
    pub metrics: Option<SocketAddr>,
    /// Tell what libbpf and the verifier say, and the kernel's dump if it ends the scheduler.
    pub verbose: bool,
    /// A captured `/sys` to read instead of this machine's, for a dry run.
    pub sysfs: Option<PathBuf>,
}

impl Options {
    /// What a command line asks for, its settings file read.
    pub fn of(invocation: &Invocation) -> Result<Self, LiveError> {
        Ok(Self {
            settings: invocation.settings()?,
            stats: invocation.stats,
            metrics: invocation.metrics,
            verbose: invocation.verbose,
            sysfs: invocation.sysfs.clone(),
        })
    }

    /// A number of the BPF program; 0 for one that does not exist.
    pub fn tunable(&self, name: &str) -> u64 {
        self.settings.number(&name.replace('_', "-")).unwrap_or(0)
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

    /// The service starts again after status 1, not after 2.
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
