//! Starts a program that may do little by itself. A seccomp filter lets harmless system calls through; all others wait
//! for an answer ([`super::calls`]).
//!
//! What the filter lets through can neither create a file, nor change one that the program did not get from here, nor
//! reach the network or another process. The program keeps the rights of the user, but gets no new ones. It cannot
//! start a process, so that none outlives it, and the kernel ends it if this process ends.

use std::io::{self, PipeReader};
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command as Process, Stdio};

use super::notify::Listener;
use crate::command::Command;
use crate::error::Why;

/// The kernel's name of this platform's system calls (AUDIT_ARCH_* of `linux/audit.h`).
#[cfg(target_arch = "x86_64")]
const PLATFORM: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const PLATFORM: u32 = 0xc000_00b7;

/// System calls that are let through whatever their arguments are.
#[rustfmt::skip]
const HARMLESS: &[libc::c_long] = &[
    // Descriptors that it has.
    libc::SYS_read, libc::SYS_write, libc::SYS_readv, libc::SYS_writev, libc::SYS_pread64, libc::SYS_pwrite64,
    libc::SYS_preadv, libc::SYS_pwritev, libc::SYS_preadv2, libc::SYS_pwritev2, libc::SYS_lseek, libc::SYS_close,
    libc::SYS_close_range, libc::SYS_fstat, libc::SYS_fstatfs, libc::SYS_getdents64, libc::SYS_dup, libc::SYS_dup3,
    libc::SYS_fsync, libc::SYS_fdatasync, libc::SYS_ftruncate, libc::SYS_flock, libc::SYS_fadvise64, libc::SYS_fchdir,
    libc::SYS_pipe2, libc::SYS_eventfd2, libc::SYS_memfd_create, libc::SYS_timerfd_create, libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime, libc::SYS_signalfd4, libc::SYS_epoll_create1, libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait, libc::SYS_ppoll, libc::SYS_pselect6,
    // Sockets: there are only the two ends of a pair (see CONDITIONS).
    libc::SYS_sendmsg, libc::SYS_recvmsg, libc::SYS_sendto, libc::SYS_recvfrom, libc::SYS_shutdown,
    // Its memory.
    libc::SYS_brk, libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mprotect, libc::SYS_mremap, libc::SYS_madvise,
    libc::SYS_msync, libc::SYS_mincore, libc::SYS_mlock, libc::SYS_mlock2, libc::SYS_munlock, libc::SYS_mlockall,
    libc::SYS_munlockall, libc::SYS_membarrier,
    // Its threads and signals.
    libc::SYS_futex, libc::SYS_futex_waitv, libc::SYS_set_robust_list, libc::SYS_get_robust_list, libc::SYS_rseq,
    libc::SYS_set_tid_address, libc::SYS_exit, libc::SYS_exit_group, libc::SYS_execve, libc::SYS_wait4,
    libc::SYS_waitid, libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigpending, libc::SYS_rt_sigtimedwait, libc::SYS_rt_sigsuspend, libc::SYS_sigaltstack,
    libc::SYS_restart_syscall, libc::SYS_sched_yield, libc::SYS_getpid, libc::SYS_getppid, libc::SYS_gettid,
    libc::SYS_getpgid, libc::SYS_getsid, libc::SYS_getpriority, libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler, libc::SYS_sched_get_priority_max, libc::SYS_sched_get_priority_min, libc::SYS_umask,
    libc::SYS_getcpu, libc::SYS_getrusage, libc::SYS_times, libc::SYS_capget,
    // Time, numbers, facts.
    libc::SYS_clock_gettime, libc::SYS_clock_getres, libc::SYS_clock_nanosleep, libc::SYS_nanosleep,
    libc::SYS_gettimeofday, libc::SYS_setitimer, libc::SYS_getitimer, libc::SYS_getrandom, libc::SYS_getcwd,
    libc::SYS_sysinfo,
];

/// Older system calls, which only x86-64 has.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const OLDER: &[libc::c_long] = &[
    libc::SYS_poll, libc::SYS_select, libc::SYS_pipe, libc::SYS_dup2, libc::SYS_getdents, libc::SYS_epoll_create,
    libc::SYS_epoll_wait, libc::SYS_eventfd, libc::SYS_getpgrp, libc::SYS_time, libc::SYS_alarm, libc::SYS_pause,
    libc::SYS_arch_prctl,
];
#[cfg(target_arch = "aarch64")]
const OLDER: &[libc::c_long] = &[];

/// A system call that is let through if an argument has one of these values in some bits.
struct Condition {
    call: libc::c_long,
    argument: u32,
    bits: u32,
    values: &'static [u32],
}

const CONDITIONS: &[Condition] = &[
    // Threads, but no processes.
    Condition {
        call: libc::SYS_clone,
        argument: 0,
        bits: libc::CLONE_THREAD as u32,
        values: &[libc::CLONE_THREAD as u32],
    },
    // Pairs of streams: datagrams could be sent elsewhere.
    Condition {
        call: libc::SYS_socketpair,
        argument: 1,
        bits: 0xf,
        values: &[libc::SOCK_STREAM as u32],
    },
    // Nothing that makes the kernel send signals.
    Condition {
        call: libc::SYS_fcntl,
        argument: 1,
        bits: u32::MAX,
        values: &[
            libc::F_DUPFD as u32,
            libc::F_GETFD as u32,
            libc::F_SETFD as u32,
            libc::F_GETFL as u32,
            libc::F_SETFL as u32,
            libc::F_DUPFD_CLOEXEC as u32,
            libc::F_ADD_SEALS as u32,
            libc::F_GET_SEALS as u32,
        ],
    },
    // Whether it is a terminal, and how large; nothing that changes a file.
    Condition {
        call: libc::SYS_ioctl,
        argument: 1,
        bits: u32::MAX,
        values: &[
            libc::TCGETS as u32,
            libc::TIOCGWINSZ as u32,
            libc::FIONREAD as u32,
            libc::FIONBIO as u32,
            libc::FIOCLEX as u32,
        ],
    },
    // Names of threads, attributes of memory; not the signal at the end of this process.
    Condition {
        call: libc::SYS_prctl,
        argument: 0,
        bits: u32::MAX,
        values: &[
            libc::PR_SET_NAME as u32,
            libc::PR_GET_NAME as u32,
            libc::PR_SET_VMA as u32,
            libc::PR_GET_DUMPABLE as u32,
            libc::PR_CAPBSET_READ as u32,
        ],
    },
];

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const AND: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

fn op(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

/// The filter's program.
fn filter() -> Vec<libc::sock_filter> {
    let allow = || op(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0);
    let ask = || op(RETURN, libc::SECCOMP_RET_USER_NOTIF, 0, 0);
    let error = |number: i32| op(RETURN, libc::SECCOMP_RET_ERRNO | number as u32, 0, 0);
    let mut program = vec![
        op(LOAD, ARCHITECTURE, 0, 0),
        op(EQUAL, PLATFORM, 1, 0),
        error(libc::ENOSYS),
        op(LOAD, NUMBER, 0, 0),
    ];
    for &call in HARMLESS.iter().chain(OLDER) {
        program.extend([op(EQUAL, call as u32, 0, 1), allow()]);
    }
    // Its flags are in memory, out of the filter's sight. Libraries then take clone.
    program.extend([op(EQUAL, libc::SYS_clone3 as u32, 0, 1), error(libc::ENOSYS)]);
    for Condition { call, argument, bits, values } in CONDITIONS {
        let len = 2 + 2 * values.len() as u8 + 1;
        program.push(op(EQUAL, *call as u32, 0, len));
        // The lower half: both platforms are little-endian, and none of these values needs more.
        program.push(op(LOAD, ARGUMENTS + 8 * argument, 0, 0));
        program.push(op(AND, *bits, 0, 0));
        for &value in *values {
            program.extend([op(EQUAL, value, 0, 1), allow()]);
        }
        program.push(ask());
    }
    program.push(ask());
    program
}

/// A program in the sandbox. It is ended when this is dropped.
pub struct Sandbox {
    /// Its process.
    pub child: Child,
    /// Its calls.
    pub listener: Listener,
    /// What it prints.
    pub output: PipeReader,
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether this kernel can let system calls wait for an answer.
fn is_able() -> bool {
    let action = libc::SECCOMP_RET_USER_NOTIF;
    // SAFETY: the argument is a live number.
    let result = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action)
    };
    result == 0
}

/// Starts a program. Files that it may write are in `scratch`.
pub fn start(command: &Command, scratch: &Path) -> Result<Sandbox, Why> {
    if !is_able() {
        return Err(Why::Host("a kernel with seccomp user notification (Linux 5.14)"));
    }
    let broken = |error: io::Error| Why::Start(error.to_string());
    let (output, printed) = io::pipe().map_err(broken)?;
    let (ours, theirs) = UnixStream::pair().map_err(broken)?;
    let mut process = Process::new(&command.program);
    process
        .args(&command.arguments)
        .env("TMPDIR", scratch)
        .env_remove("RUST_BACKTRACE")
        // Ctrl-C reaches only this process, which then ends the program.
        .process_group(0)
        .stdin(Stdio::null());
    process.stdout(printed.try_clone().map_err(broken)?).stderr(printed);
    let filter = filter();
    let parent = std::process::id();
    // SAFETY: between fork and exec the closure makes system calls only; it does not allocate.
    unsafe { process.pre_exec(move || confine(&filter, theirs.as_raw_fd(), parent)) };
    let child = process.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Why::NotFound,
        _ if error.raw_os_error() == Some(libc::ENOEXEC) => Why::NotExecutable,
        io::ErrorKind::PermissionDenied => Why::NotExecutable,
        _ => Why::Start(error.to_string()),
    })?;
    // Its ends of the pipe and of the pair are closed here.
    drop(process);
    let listener = received(&ours).map_err(broken);
    match listener {
        Ok(listener) => Ok(Sandbox { child, listener: Listener(listener), output }),
        Err(error) => {
            let mut child = child;
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}

/// Confines the calling process. Sends the filter's listener to `parent` through a socket.
fn confine(filter: &[libc::sock_filter], socket: RawFd, parent: u32) -> io::Result<()> {
    let checked = |result: libc::c_long| match result {
        ..0 => Err(io::Error::last_os_error()),
        result => Ok(result as RawFd),
    };
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: all pointers are to live values of the types that the calls want.
    unsafe {
        checked(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL).into())?;
        if libc::getppid() as u32 != parent {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        checked(libc::setrlimit(libc::RLIMIT_CORE, &no_core).into())?;
        // Only the standard streams are inherited. Older kernels lack the call; this process has no others then.
        libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
        checked(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).into())?;
        let listener = checked(libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        ))?;
        send(socket, listener)
    }
}

/// Room for the header and one descriptor in a message.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// A message of one byte, beside which a descriptor is passed.
fn message(byte: &mut u8, part: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    *part = libc::iovec { iov_base: std::ptr::from_mut(byte).cast(), iov_len: 1 };
    // SAFETY: the struct has only numbers and pointers, which may be null.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: only computes a length. It is less than 64.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<RawFd>() as u32) } as _;
    message
}

/// Sends a descriptor through a socket (`unix(7)`).
fn send(socket: RawFd, descriptor: RawFd) -> io::Result<()> {
    let (mut byte, mut control) = (0, Control([0; 64]));
    let mut part = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    let message = message(&mut byte, &mut part, &mut control);
    // SAFETY: the message has room for the header of a descriptor and for the descriptor.
    let sent = unsafe {
        let header = libc::CMSG_FIRSTHDR(&message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
        libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(descriptor);
        libc::sendmsg(socket, &message, 0)
    };
    if sent == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Receives a descriptor.
fn received(socket: &UnixStream) -> io::Result<OwnedFd> {
    let (mut byte, mut control) = (0, Control([0; 64]));
    let mut part = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    let mut message = message(&mut byte, &mut part, &mut control);
    // SAFETY: the kernel fills the message. The header is read only if there is one, and a descriptor is owned by who
    // receives it.
    unsafe {
        if libc::recvmsg(socket.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC) < 0 {
            return Err(io::Error::last_os_error());
        }
        let header = libc::CMSG_FIRSTHDR(&message);
        if header.is_null() || (*header).cmsg_type != libc::SCM_RIGHTS {
            return Err(io::Error::other("it gave no listener"));
        }
        let descriptor = libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned();
        Ok(OwnedFd::from_raw_fd(descriptor))
    }
}
