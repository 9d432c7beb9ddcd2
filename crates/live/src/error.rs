//! Errors: one line each, with the remedy.

use std::process::ExitCode;

use thiserror::Error;

/// Why the scheduler cannot run, or has ended.
#[derive(Debug, Error)]
pub enum LiveError {
    /// The user is not root.
    #[error("{what} needs root (CAP_BPF and CAP_SYS_ADMIN): run it with sudo")]
    NotRoot {
        /// What was to be done.
        what: &'static str,
    },
    /// The kernel is new enough for sched_ext, but was built without it.
    #[error(
        "kernel {release} was built without sched_ext (CONFIG_SCHED_CLASS_EXT): \
         take one of your distribution's kernels that has it"
    )]
    NoSchedExt {
        /// `uname -r`.
        release: String,
    },
    /// The kernel is older than sched_ext, or has an early sched_ext without all that Linux 6.12 has.
    #[error(
        "kernel {release} is too old: sched_ext came with Linux 6.12; take that or a newer one"
    )]
    TooOld {
        /// `uname -r`.
        release: String,
    },
    /// The kernel has no type information.
    #[error(
        "kernel {release} was built without type information (CONFIG_DEBUG_INFO_BTF), \
         which every sched_ext scheduler and --observe need: take one of your distribution's kernels that has it"
    )]
    NoTypes {
        /// `uname -r`.
        release: String,
    },
    /// The kernel refused the program that observes.
    #[error(
        "kernel {release} cannot be observed ({reason}): that needs Linux 5.11 or newer with BPF tracing \
         (CONFIG_BPF_EVENTS)"
    )]
    NotObserved {
        /// `uname -r`.
        release: String,
        /// The message of libbpf.
        reason: String,
    },
    /// Another scheduler is loaded.
    #[error(
        "the sched_ext scheduler {name} is loaded, and a kernel runs one at a time: stop it first"
    )]
    Taken {
        /// Name of that scheduler.
        name: String,
    },
    /// Another scheduler is being unloaded.
    #[error(
        "the sched_ext scheduler {name} is being unloaded, which can take minutes on a busy machine: \
         try again when /sys/kernel/sched_ext/state says disabled"
    )]
    Leaving {
        /// Name of that scheduler.
        name: String,
    },
    /// Another loader runs. Its scheduler may not be loaded at this moment.
    #[error("another scx_roost runs (process {process}; it holds {path}): stop it first")]
    Running {
        /// Process number of that loader, as it wrote it into the file.
        process: String,
        /// The file that the other loader has locked.
        path: String,
    },
    /// The verifier or libbpf refused the scheduler.
    #[error(
        "kernel {release} refused the scheduler ({reason}): please report the kernel's version and \
         the output of `scx_roost -v`"
    )]
    Refused {
        /// `uname -r`.
        release: String,
        /// The message that tells most about the cause.
        reason: String,
    },
    /// The kernel ended the scheduler.
    #[error("the kernel ended the scheduler: {0}; tasks are scheduled by the fair class again")]
    Ended(String),
    /// The machine of `--sysfs` could not be read.
    #[error(transparent)]
    Captured(roost_machine::MachineError),
    /// This machine could not be read.
    #[error("this machine could not be read, as may be while CPUs come or go: {0}")]
    ThisMachine(roost_machine::MachineError),
    /// A system file could not be used.
    #[error("{path}: {reason}")]
    File {
        /// Path of the file.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// The socket of the statistics failed.
    #[error("statistics: {0}")]
    Stats(String),
    /// A table of the loaded scheduler could not be read or written.
    #[error("the scheduler's tables: {0}")]
    Tables(String),
    /// The settings file is wrong.
    #[error(transparent)]
    Settings(#[from] roost_settings::SettingsError),
    /// Standard output cannot be written.
    #[error("standard output: cannot be written: {0}; free space or send it elsewhere")]
    Output(std::io::Error),
    /// The address for Prometheus cannot be used.
    #[error("--metrics {address}: {reason}; give an address of this machine and a free port")]
    Metrics {
        /// The address on the command line.
        address: std::net::SocketAddr,
        /// The operating system's reason.
        reason: String,
    },
    /// The terminal cannot be used.
    #[error("the terminal cannot be used: {0}; `scx_roost --monitor 1` prints lines instead")]
    Terminal(std::io::Error),
    /// A thread could not be started.
    #[error("a thread cannot be started: {0}")]
    Thread(String),
    /// Signal handlers could not be set.
    #[error("cannot handle signals: {0}")]
    Signals(String),
}

impl LiveError {
    /// The exit status: 2 if the user has to correct something, 3 if this machine cannot run the scheduler as it is,
    /// else 1.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Captured(_) | Self::Settings(_) => 2,
            Self::NotRoot { .. }
            | Self::NoSchedExt { .. }
            | Self::TooOld { .. }
            | Self::NoTypes { .. }
            | Self::NotObserved { .. }
            | Self::Taken { .. }
            | Self::Running { .. } => 3,
            Self::Refused { .. } | Self::Ended(_) | Self::File { .. } => 1,
            // These problems can pass: unloading ends; files that changed while they were read, for example after
            // hotplug, are whole the next time; an address may come up or become free.
            Self::Leaving { .. }
            | Self::ThisMachine(_)
            | Self::Metrics { .. }
            | Self::Tables(_)
            | Self::Thread(_)
            | Self::Stats(_)
            | Self::Output(_)
            | Self::Terminal(_)
            | Self::Signals(_) => 1,
        })
    }
}
