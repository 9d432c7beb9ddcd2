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
    /// Tell what libbpf and the verifier say.
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
        Ok(match &self.sysfs {
            Some(dir) => Machine::from_sysfs(dir)?,
            None => Machine::this()?,
        })
    }
}
