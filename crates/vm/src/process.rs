//! A QEMU that ends with this program, whatever ends it.
//!
//! Three things see to that: dropping [`Process`] kills it; the kernel kills it when the thread that
//! started it ends (`PR_SET_PDEATHSIG`), which also works after `kill -9`; and it is in a process
//! group of its own, so that an interrupt from the terminal reaches roost only, which can then
//! report and clean up.
//!
//! The kernel's promise is bound to the thread that forks. So one thread that lives as long as the program starts all
//! guests, and callers may use short-lived threads.

use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};

/// A running QEMU.
pub(crate) struct Process {
    /// Its pipes may be taken.
    pub child: Child,
}

impl Process {
    /// Starts `command`, which gets the open files `inherited` under their numbers here.
    pub fn start(mut command: Command, inherited: Vec<RawFd>) -> std::io::Result<Self> {
        command.process_group(0);
        let parent = std::process::id();
        // SAFETY: only async-signal-safe functions are called between fork and exec.
        unsafe {
            command.pre_exec(move || {
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
                // The parent may have gone before the promise was made.
                if libc::getppid() as u32 != parent {
                    libc::_exit(1);
                }
                // Only here: other processes that this program starts are not to have them.
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

    /// The exit status, if it has ended.
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

/// A command to be started and where to tell the outcome.
type Order = (Command, Sender<std::io::Result<Child>>);

/// Starts `command` in the thread that lives as long as the program.
fn spawn(command: Command) -> std::io::Result<Child> {
    static SPAWNER: OnceLock<Mutex<Sender<Order>>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, orders) = channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, reply) in orders {
                // Nobody waits for the reply any more: the child is dropped and ends with us.
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
        // SAFETY: signal 0 only asks whether the process exists.
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
