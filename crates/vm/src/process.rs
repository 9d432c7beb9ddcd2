//! A QEMU that ends with this program, however this program ends.
//!
//! Three things ensure this. Dropping [`Process`] kills it. The kernel kills it when the thread that started it ends
//! (`PR_SET_PDEATHSIG`), which also works after `kill -9`. And it is in a process group of its own, so that an
//! interrupt from the terminal reaches only roost, which can then report and clean up.
//!
//! The kernel watches the thread that forks. So a single thread, which lives as long as the program, starts all guests,
//! and callers may use short-lived threads.

use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};

/// A running QEMU.
pub(crate) struct Process {
    /// The child process. Callers may take its pipes.
    pub child: Child,
}

impl Process {
    /// Starts `command`. It gets the open files `inherited` under the same numbers.
    pub fn start(mut command: Command, inherited: Vec<RawFd>) -> std::io::Result<Self> {
        command.process_group(0);
        let parent = std::process::id();
        // SAFETY: only async-signal-safe functions are called between fork and exec.
        unsafe {
            command.pre_exec(move || {
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
                // The parent may have ended before the kernel was asked to watch it.
                if libc::getppid() as u32 != parent {
                    libc::_exit(1);
                }
                // Only in this child: other processes that this program starts shall not have these files.
                for &file in &inherited {
                    if libc::fcntl(file, libc::F_SETFD, 0) != 0 {
                        return Err(std::io::Error::last_os_error());
                    }
                }
                Ok(())
            });
        }
        Ok(Self { child: spawn(command)? })
    }

    /// The exit status, if the process has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command to start, and the channel for the result.
type Order = (Command, Sender<std::io::Result<Child>>);

/// Starts `command` in the thread that lives as long as the program.
fn spawn(command: Command) -> std::io::Result<Child> {
    static SPAWNER: OnceLock<Mutex<Sender<Order>>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, orders) = channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, reply) in orders {
                // If nobody waits for the reply any more, the child is dropped, and ends with this program.
                let _ = reply.send(command.spawn());
            }
        });
        Mutex::new(sender)
    });
    let (reply, outcome) = channel();
    let gone = || std::io::Error::other("the thread that starts guests has ended");
    let order = spawner.lock().unwrap_or_else(PoisonError::into_inner).send((command, reply));
    order.map_err(|_| gone())?;
    outcome.recv().map_err(|_| gone())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_ends_when_it_is_dropped() {
        let mut command = Command::new("sleep");
        command.arg("1000");
        let process = Process::start(command, Vec::new()).unwrap();
        let id = process.child.id() as i32;
        // SAFETY: signal 0 only checks that the process exists.
        let exists = || unsafe { libc::kill(id, 0) } == 0;
        assert!(exists());
        drop(process);
        assert!(!exists());
    }

    #[test]
    fn a_process_outlives_the_thread_that_asked_for_it() {
        let mut command = Command::new("sleep");
        command.arg("1000");
        let asked = std::thread::spawn(move || Process::start(command, Vec::new()).unwrap());
        let mut process = asked.join().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(process.ended().is_none());
    }
}
