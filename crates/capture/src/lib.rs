//! Starts a sched_ext scheduler's own program under an emulated bpf(2) and the made-up `/sys` of a machine, until it
//! attaches its scheduler. Then it is ended, and what it gave to the kernel is taken over.
//!
//! ```text
//!   roost                                   the program
//!   sandbox: filter, pipe, fork, exec ────► runs; each system call that the filter does not allow
//!   notify:  receives the call        ◄──── waits for an answer
//!   calls:   path of /sys or /proc?  files: opens the made-up file
//!            bpf(2)?                 bpf:   maps, programs, types as files in memory
//!            anything else           refused
//!   notify:  answers                  ────► goes on
//! ```
//!
//! The filter is a list of system calls that can neither write files, use the network nor touch other processes. All
//! others are answered here (seccomp user notification, Linux 5.14 and later), so the filter is the sandbox too. It
//! needs no privileges, and works for static programs.

mod command;
mod error;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[cfg(target_os = "linux")]
mod linux {
    pub mod bpf;
    pub mod calls;
    pub mod files;
    pub mod inputs;
    pub mod memory;
    pub mod notify;
    pub mod run;
    pub mod sandbox;
}

pub use command::Command;
pub use error::CaptureError;

use roost_kept::Kept;
use roost_machine::Machine;
use roost_scx::Loaded;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How long a program may take until it attaches its scheduler. Debug builds of large ones took 9 s on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Starts a program on a made-up machine until it attaches its scheduler. The program may take `limit`, and is ended
/// when `stop` is set. Its CPUs and nodes have the operating system's numbers of `machine`. If it was captured before,
/// and the files that it asked for are the same, it is not started: what it loaded is among what is `kept`.
///
/// # Errors
/// If it cannot be started, ends or fails before it attaches, or needs something that is not emulated.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn capture(
    command: &Command,
    machine: &Machine,
    limit: Duration,
    stop: &AtomicBool,
    kept: Option<&Kept>,
) -> Result<Loaded, CaptureError> {
    linux::run::capture(command, machine, limit, stop, kept)
}

/// As on Linux. Here it fails.
///
/// # Errors
/// Always: programs of Linux do not run here.
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub fn capture(
    command: &Command,
    _: &Machine,
    _: Duration,
    _: &AtomicBool,
    _: Option<&Kept>,
) -> Result<Loaded, CaptureError> {
    Err(command.failed(error::Why::Platform))
}
