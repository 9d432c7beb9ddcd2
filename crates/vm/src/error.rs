//! What can go wrong: each error is a line that names the thing and the way out.

use std::path::Path;

/// Why something about virtual machines failed.
#[derive(Debug, thiserror::Error)]
pub enum VmError {
    /// A file or folder could not be read or written.
    #[error("{path}: {reason}")]
    File {
        /// The file or folder.
        path: String,
        /// What the operating system says.
        reason: String,
    },
    /// A program of the host is missing.
    #[error("{tool} is needed and missing; install the package {package} (Debian's name)")]
    Tool {
        /// The program.
        tool: &'static str,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// The host cannot fetch packages of Debian.
    #[error(
        "{tool} is missing, with which packages of Debian are fetched: install {package}, set \
             {CACHE_VARIABLE} to a folder prepared on another host, or give --kernel FILE --qemu FILE \
             --root FILE to `roost vm prepare`"
    )]
    NoApt {
        /// The program or file.
        tool: &'static str,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// A program of the host failed.
    #[error("{tool} failed: {reason}")]
    Failed {
        /// The program and what it was to do.
        tool: String,
        /// Its first error.
        reason: String,
    },
    /// Packages could not be fetched.
    #[error(
        "cannot fetch {what} ({reason}): connect to the network, set {CACHE_VARIABLE} to a \
             prepared cache folder, or give --kernel FILE --qemu FILE --root FILE to `roost vm prepare`"
    )]
    Offline {
        /// What was to be fetched.
        what: String,
        /// The first error of apt.
        reason: String,
    },
    /// A kernel that cannot be had or cannot be used.
    #[error("kernel {name}: {problem}; {remedy}")]
    Kernel {
        /// What was asked for.
        name: String,
        /// What is wrong.
        problem: String,
        /// What to do about it.
        remedy: String,
    },
    /// A machine that cannot be emulated.
    #[error("machine {machine} cannot be emulated: {problem}; {remedy}")]
    Shape {
        /// The machine's name.
        machine: String,
        /// What is in the way.
        problem: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// The guest ended, hung or answered nonsense.
    #[error("the guest {what}")]
    Guest {
        /// What it did, and when.
        what: String,
        /// It still ran, but gave no answer in time.
        hung: bool,
        /// The last lines of its console and of QEMU's messages.
        console: Vec<String>,
    },
    /// The guest does not see the machine that was asked for.
    #[error(
        "the guest does not see machine {machine}: {difference}; report this with \
             `roost machine {machine} --on vm`, or choose another machine"
    )]
    Topology {
        /// The machine's name.
        machine: String,
        /// The first difference.
        difference: String,
    },
    /// A machine that the guest describes could not be read.
    #[error(transparent)]
    Machine(#[from] roost_machine::MachineError),
    /// Somebody asked for the end.
    #[error("interrupted")]
    Interrupted,
    /// Something the user asked for does not fit together.
    #[error("{0}")]
    Usage(String),
}

/// The environment variable that names the cache folder.
pub(crate) const CACHE_VARIABLE: &str = "ROOST_CACHE";

impl VmError {
    /// An error of the operating system about a file.
    pub(crate) fn file(path: &Path, error: &std::io::Error) -> Self {
        Self::File { path: path.display().to_string(), reason: error.to_string() }
    }

    /// The last lines of the console of a guest that failed, to be shown with the error.
    pub fn console(&self) -> &[String] {
        match self {
            Self::Guest { console, .. } => console,
            _ => &[],
        }
    }

    /// Whether a guest still ran when its time was over.
    pub(crate) fn is_hang(&self) -> bool {
        matches!(self, Self::Guest { hung: true, .. })
    }

    /// Whether the user has to change what was asked for.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Usage(_) | Self::Shape { .. } | Self::Kernel { .. } | Self::Machine(_))
    }
}
