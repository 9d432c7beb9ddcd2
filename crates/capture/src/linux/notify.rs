//! System calls that wait for an answer (`seccomp_unotify(2)`).

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// Receives calls and answers them.
pub struct Listener(pub OwnedFd);

/// A call that waits.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    id: u64,
    /// The thread that made it.
    pub thread: libc::pid_t,
    /// Its number.
    pub number: i64,
    /// Its arguments.
    pub arguments: [u64; 6],
}

/// What a call returns.
#[derive(Debug)]
pub enum Answer {
    /// A number.
    Value(i64),
    /// An error: a number of errno.
    Error(i32),
    /// What the kernel says.
    Kernel,
    /// A new descriptor of this file, closed on exec if `true`.
    Descriptor(OwnedFd, bool),
}

impl Listener {
    /// Waits for a call, at most for `time`. `None` if there is none.
    pub fn receive(&self, time: Duration) -> io::Result<Option<Call>> {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: `poll` is one live struct.
        let ready = unsafe { libc::poll(&mut poll, 1, time.as_millis() as i32) };
        if ready < 1 || poll.revents & libc::POLLIN == 0 {
            return Ok(None);
        }
        // SAFETY: the struct has only numbers. The kernel wants it zeroed.
        let mut call: libc::seccomp_notif = unsafe { zeroed() };
        match self.control(libc::SECCOMP_IOCTL_NOTIF_RECV, &mut call) {
            Ok(_) => Ok(Some(Call {
                id: call.id,
                thread: call.pid as libc::pid_t,
                number: call.data.nr.into(),
                arguments: call.data.args,
            })),
            // The thread has died, or a signal came.
            Err(error)
                if [Some(libc::ENOENT), Some(libc::EINTR)].contains(&error.raw_os_error()) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Answers a call. It is no error if the thread that made it has died.
    pub fn answer(&self, call: &Call, answer: Answer) {
        let (val, error, flags) = match answer {
            Answer::Value(value) => (value, 0, 0),
            Answer::Error(error) => (0, -error, 0),
            Answer::Kernel => (0, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
            Answer::Descriptor(file, close) => match self.give(call, &file, close) {
                Ok(()) => return,
                Err(error) => (0, -error.raw_os_error().unwrap_or(libc::EIO), 0),
            },
        };
        let mut response = libc::seccomp_notif_resp { id: call.id, val, error, flags };
        let _ = self.control(libc::SECCOMP_IOCTL_NOTIF_SEND, &mut response);
    }

    /// Gives a file to the program. Its descriptor is the answer.
    fn give(&self, call: &Call, file: &OwnedFd, close: bool) -> io::Result<()> {
        let mut give = libc::seccomp_notif_addfd {
            id: call.id,
            flags: libc::SECCOMP_ADDFD_FLAG_SEND as u32,
            srcfd: file.as_raw_fd() as u32,
            newfd: 0,
            newfd_flags: if close { libc::O_CLOEXEC as u32 } else { 0 },
        };
        self.control(libc::SECCOMP_IOCTL_NOTIF_ADDFD, &mut give).map(drop)
    }

    fn control<T>(&self, request: libc::Ioctl, argument: &mut T) -> io::Result<i32> {
        // SAFETY: the callers pass the struct that the request wants.
        let result =
            unsafe { libc::ioctl(self.0.as_raw_fd(), request, std::ptr::from_mut(argument)) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
    }
}
