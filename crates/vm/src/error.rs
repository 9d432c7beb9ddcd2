//! Errors of this crate. Each is a line that names the thing and the way out.

use std::path::Path;

/// Why an operation with virtual machines failed.
#[derive(Debug, thiserror::Error)]
pub enum VmError {
    /// A file or folder could not be read or written.
    #[error("{path}: {reason}")]
    File {
        /// The file or folder.
        path: String,
        /// The operating system's reason.
        reason: String,
    },
    /// A program is missing on the host.
    #[error("{tool} is needed and missing; install the package {package} (Debian's name)")]
    Tool {
        /// The program.
        tool: &'static str,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// The host cannot fetch Debian packages.
    #[error(
        "{tool} is needed to fetch Debian packages, and is missing: install {package}, set \
             {CACHE_VARIABLE} to a folder prepared on another host, or give --kernel FILE --qemu FILE \
             --root FILE to `roost vm prepare`"
    )]
    NoApt {
        /// The program or file.
        tool: &'static str,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// A program on the host failed.
    #[error("{tool} failed: {reason}")]
    Failed {
        /// The program, and what it was run for.
        tool: String,
        /// The first error that it printed.
        reason: String,
    },
    /// Packages could not be fetched.
    #[error(
        "cannot fetch {what} ({reason}): connect to the network, set {CACHE_VARIABLE} to a \
             prepared cache folder, or give --kernel FILE --qemu FILE --root FILE to `roost vm prepare`"
    )]
    Offline {
        /// The packages that could not be fetched.
        what: String,
        /// The first error that apt printed.
        reason: String,
    },
    /// A kernel is not available or cannot be used.
    #[error("kernel {name}: {problem}; {remedy}")]
    Kernel {
        /// The kernel that was asked for.
        name: String,
        /// The problem.
        problem: String,
        /// The remedy.
        remedy: String,
    },
    /// A machine that cannot be emulated.
    #[error("machine {machine} cannot be emulated: {problem}; {remedy}")]
    Shape {
        /// The machine's name.
        machine: String,
        /// The reason.
        problem: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// The guest ended, hung, or gave an invalid answer.
    #[error("the guest {what}")]
    Guest {
        /// What it did, and when.
        what: String,
        /// Whether QEMU still ran, but the guest gave no sign of life in time.
        hung: bool,
        /// The last lines of its console and of QEMU's messages.
        console: Vec<String>,
    },
    /// The guest does not see the requested machine.
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
    /// The description of a machine by the guest could not be read.
    #[error(transparent)]
    Machine(#[from] roost_machine::MachineError),
    /// The user asked to end it.
    #[error("interrupted")]
    Interrupted,
    /// Something that the user asked for is not possible.
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

    /// The last lines of a failed guest's console, to be shown with the error.
    pub fn console(&self) -> &[String] {
        match self {
            Self::Guest { console, .. } => console,
            _ => &[],
        }
    }

    /// Whether QEMU still ran, but the guest gave no sign of life in time.
    pub(crate) fn is_hang(&self) -> bool {
        matches!(self, Self::Guest { hung: true, .. })
    }

    /// Whether the user has to change the request.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Usage(_) | Self::Shape { .. } | Self::Kernel { .. } | Self::Machine(_))
    }
}
