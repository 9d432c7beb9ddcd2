//! What can go wrong: one line each, with the remedy.

use std::process::ExitCode;

use thiserror::Error;

/// Why the scheduler does not run, or no longer.
#[derive(Debug, Error)]
pub enum LiveError {
    /// Not root.
    #[error("loading a scheduler needs root (CAP_BPF and CAP_SYS_ADMIN): run it with sudo")]
    NotRoot,
    /// No sched_ext, in a kernel that could have it.
    #[error(
        "kernel {release} was built without sched_ext (CONFIG_SCHED_CLASS_EXT): \
         take one of your distribution's kernels that has it"
    )]
    NoSchedExt {
        /// `uname -r`.
        release: String,
    },
    /// Older than sched_ext, or with a sched_ext that is not yet what Linux 6.12 has.
    #[error(
        "kernel {release} is too old: sched_ext came with Linux 6.12; take that or a newer one"
    )]
    TooOld {
        /// `uname -r`.
        release: String,
    },
    /// No type information.
    #[error(
        "kernel {release} was built without type information (CONFIG_DEBUG_INFO_BTF), \
         which every sched_ext scheduler needs: take one of your distribution's kernels that has it"
    )]
    NoTypes {
        /// `uname -r`.
        release: String,
    },
    /// Another scheduler.
    #[error(
        "the sched_ext scheduler {name} is loaded, and a kernel runs one at a time: stop it first"
    )]
    Taken {
        /// Its name.
        name: String,
    },
    /// Another scheduler, on its way out.
    #[error(
        "the sched_ext scheduler {name} is being unloaded, which can take minutes on a busy machine: \
         try again when /sys/kernel/sched_ext/state says disabled"
    )]
    Leaving {
        /// Its name.
        name: String,
    },
    /// Another loader, whose scheduler may not be loaded yet, or not at the moment.
    #[error("another scx_roost runs (process {process}; it holds {path}): stop it first")]
    Running {
        /// Its number, as it wrote it.
        process: String,
        /// The file that it has locked.
        path: String,
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
    /// The machine of `--sysfs`.
    #[error(transparent)]
    Captured(roost_machine::MachineError),
    /// This machine.
    #[error("this machine could not be read, as may be while CPUs come or go: {0}")]
    ThisMachine(roost_machine::MachineError),
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
    /// The settings file.
    #[error(transparent)]
    Settings(#[from] roost_settings::SettingsError),
    /// Standard output.
    #[error("standard output: cannot be written: {0}; free space or send it elsewhere")]
    Output(std::io::Error),
    /// The address for Prometheus.
    #[error("--metrics {address}: {reason}; give an address of this machine and a free port")]
    Metrics {
        /// As given.
        address: std::net::SocketAddr,
        /// What the operating system says.
        reason: String,
    },
    /// The terminal.
    #[error("the terminal cannot be used: {0}; `scx_roost --monitor 1` prints lines instead")]
    Terminal(std::io::Error),
    /// A thread.
    #[error("a thread cannot be started: {0}")]
    Thread(String),
    /// Signal handlers.
    #[error("cannot handle signals: {0}")]
    Signals(String),
}

impl LiveError {
    /// 2 for what the user has to mend, 3 where this machine cannot run it as it is, else 1.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Captured(_) | Self::Settings(_) => 2,
            Self::NotRoot
            | Self::NoSchedExt { .. }
            | Self::TooOld { .. }
            | Self::NoTypes { .. }
            | Self::Taken { .. }
            | Self::Running { .. } => 3,
            Self::Refused { .. } | Self::Ended(_) | Self::File { .. } => 1,
            // Unloading ends. Files that change while they are read, as after hotplug, may be whole the next time; an address may come
            // up, or be free.
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
