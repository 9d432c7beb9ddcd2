//! What can go wrong: one line each, with the remedy.

use thiserror::Error;

/// Why the scheduler does not run, or no longer.
#[derive(Debug, Error)]
pub enum LiveError {
    /// Not root.
    #[error("loading a scheduler needs root (CAP_BPF and CAP_SYS_ADMIN): run it with sudo")]
    NotRoot,
    /// No sched_ext.
    #[error(
        "kernel {release} has no sched_ext: it needs Linux 6.13 or newer built with \
         CONFIG_SCHED_CLASS_EXT (look into /boot/config-{release})"
    )]
    NoSchedExt {
        /// `uname -r`.
        release: String,
    },
    /// Too old.
    #[error("kernel {release} is too old: its sched_ext lacks {missing}; take 6.13 or newer")]
    TooOld {
        /// `uname -r`.
        release: String,
        /// What was looked for.
        missing: &'static str,
    },
    /// Another scheduler.
    #[error("the sched_ext scheduler {name} is loaded: stop it first")]
    Taken {
        /// Its name.
        name: String,
    },
    /// The verifier or libbpf said no.
    #[error(
        "kernel {release} refused the scheduler ({reason}): please report the kernel's version and \
         the output of `scx_roost -v`"
    )]
    Refused {
        /// `uname -r`.
        release: String,
        /// The last thing that was said.
        reason: String,
    },
    /// The kernel ended it.
    #[error("the kernel ended the scheduler: {0}; tasks are scheduled by the fair class again")]
    Ended(String),
    /// No machine.
    #[error("{0}")]
    Machine(#[from] roost_machine::MachineError),
    /// A file of the system.
    #[error("{path}: {reason}")]
    File {
        /// Which.
        path: String,
        /// Why not.
        reason: String,
    },
    /// The statistics' socket.
    #[error("statistics: {0}")]
    Stats(String),
    /// Tables of the loaded scheduler.
    #[error("the scheduler's tables: {0}")]
    Tables(String),
    /// Signal handlers.
    #[error("cannot handle signals: {0}")]
    Signals(String),
}
