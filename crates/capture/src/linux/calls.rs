//! Answers the system calls that the sandbox's filter does not let through.

use std::ffi::CString;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use roost_machine::Machine;
use roost_scx::SHIPPED_VERSION;
use syscalls::Sysno;

use super::bpf::Bpf;
use super::files::{Files, is_made_up, plain};
use super::inputs::Inputs;
use super::memory::Memory;
use super::notify::{Answer, Call};

/// Size of `struct stat`, `struct statx` and `struct statfs` in the kernel, in bytes.
const STAT: usize = size_of::<libc::stat>();
const STATX: usize = size_of::<libc::statx>();
const STATFS: usize = size_of::<libc::statfs>();

/// A system call that asks about a path.
struct About {
    number: libc::c_long,
    /// The argument that is the folder's descriptor, if there is one.
    folder: Option<usize>,
    /// The argument that is the path.
    path: usize,
    /// The argument where the answer goes, and its size. 0: the size is the next argument.
    answer: Option<(usize, usize)>,
}

const ABOUT: &[About] = &[
    About { number: libc::SYS_newfstatat, folder: Some(0), path: 1, answer: Some((2, STAT)) },
    About { number: libc::SYS_statx, folder: Some(0), path: 1, answer: Some((4, STATX)) },
    About { number: libc::SYS_statfs, folder: None, path: 0, answer: Some((1, STATFS)) },
    About { number: libc::SYS_faccessat, folder: Some(0), path: 1, answer: None },
    About { number: libc::SYS_faccessat2, folder: Some(0), path: 1, answer: None },
    About { number: libc::SYS_readlinkat, folder: Some(0), path: 1, answer: Some((2, 0)) },
    #[cfg(target_arch = "x86_64")]
    About { number: libc::SYS_stat, folder: None, path: 0, answer: Some((1, STAT)) },
    #[cfg(target_arch = "x86_64")]
    About { number: libc::SYS_lstat, folder: None, path: 0, answer: Some((1, STAT)) },
    #[cfg(target_arch = "x86_64")]
    About { number: libc::SYS_access, folder: None, path: 0, answer: None },
    #[cfg(target_arch = "x86_64")]
    About { number: libc::SYS_readlink, folder: None, path: 0, answer: Some((1, 0)) },
];

/// Calls that change nothing here, because they only matter on the machine that runs the scheduler: they succeed.
const WITHOUT_EFFECT: &[libc::c_long] = &[
    libc::SYS_setpriority,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
];

/// Who asks for the user or group: a scheduler is started by root.
const WHO: &[libc::c_long] =
    &[libc::SYS_getuid, libc::SYS_geteuid, libc::SYS_getgid, libc::SYS_getegid];

/// Devices that any program may use, by number (`Documentation/admin-guide/devices.txt`): null, zero, random, urandom.
const DEVICES: [(u32, u32); 4] = [(1, 3), (1, 5), (1, 8), (1, 9)];

/// Largest length that is believed of an answer, in bytes.
const MOST_BYTES: usize = 1 << 16;

/// The system that the program sees.
pub struct System<'a> {
    machine: &'a Machine,
    files: &'a Files,
    /// Objects of bpf(2).
    pub bpf: Bpf,
    /// The program's process.
    pid: libc::pid_t,
    /// What was refused, in order.
    pub refused: Vec<String>,
    /// The last files of the made-up machine that it did not find.
    pub missing: Vec<String>,
    /// The files of this machine that it asked for.
    pub inputs: Inputs,
}

impl<'a> System<'a> {
    pub fn new(machine: &'a Machine, files: &'a Files, pid: libc::pid_t) -> Self {
        Self {
            machine,
            files,
            bpf: Bpf::new(machine),
            pid,
            refused: Vec::new(),
            missing: Vec::new(),
            inputs: Inputs::default(),
        }
    }

    /// The answer to a call.
    pub fn answer(&mut self, call: &Call) -> Answer {
        let memory = Memory { pid: self.pid };
        let [first, second, third, ..] = call.arguments;
        let number = call.number as libc::c_long;
        if let Some(about) = ABOUT.iter().find(|about| about.number == number) {
            return self.about(call, about).unwrap_or_else(Answer::Error);
        }
        if WITHOUT_EFFECT.contains(&number) || WHO.contains(&number) {
            return Answer::Value(0);
        }
        let answer = match number {
            libc::SYS_bpf => self.bpf.call(call, memory),
            libc::SYS_openat => self.open(call, first as i32, second, third as i32),
            libc::SYS_openat2 => Err(libc::ENOSYS),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => self.open(call, libc::AT_FDCWD, first, second as i32),
            libc::SYS_uname => memory.write(first, &uname()).map(|()| Answer::Value(0)),
            libc::SYS_sched_getaffinity => self.affinity(memory, second as usize, third),
            libc::SYS_prlimit64 => Ok(limits(first, third)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_getrlimit => Ok(Answer::Kernel),
            // Into a folder of this machine only.
            libc::SYS_chdir => match self.path(call, libc::AT_FDCWD, first) {
                Ok(Some(path)) if is_made_up(&path) => Err(libc::EACCES),
                Ok(_) => Ok(Answer::Kernel),
                Err(error) => Err(error),
            },
            // Signals to itself.
            libc::SYS_kill | libc::SYS_tgkill if first as i32 == self.pid => Ok(Answer::Kernel),
            _ => {
                self.refuse(name_of(number));
                Err(libc::EPERM)
            }
        };
        answer.unwrap_or_else(Answer::Error)
    }

    fn refuse(&mut self, what: String) {
        if !self.refused.contains(&what) {
            self.refused.push(what);
        }
    }

    /// The absolute path that a call names. `None`: the path is empty, and the descriptor itself is meant.
    fn path(&self, call: &Call, folder: i32, path: u64) -> Result<Option<PathBuf>, i32> {
        let text = Memory { pid: self.pid }.text(path)?;
        if text.is_empty() {
            return Ok(None);
        }
        let path = PathBuf::from(std::ffi::OsString::from_vec(text));
        let within = if path.is_absolute() {
            PathBuf::from("/")
        } else {
            let thread = call.thread;
            let link = match folder {
                libc::AT_FDCWD => format!("/proc/{thread}/cwd"),
                folder => format!("/proc/{thread}/fd/{folder}"),
            };
            std::fs::read_link(link).map_err(|_| libc::EBADF)?
        };
        let path = plain(&within.join(path));
        // Its own process, not this one.
        let own = path.strip_prefix("/proc/self").or(path.strip_prefix("/proc/thread-self"));
        let own = own.map(|rest| Path::new("/proc").join(self.pid.to_string()).join(rest));
        Ok(Some(own.unwrap_or(path)))
    }

    /// Opens a file.
    fn open(&mut self, call: &Call, folder: i32, path: u64, flags: i32) -> Result<Answer, i32> {
        let path = self.path(call, folder, path)?.ok_or(libc::ENOENT)?;
        let close = flags & libc::O_CLOEXEC != 0;
        let tmpfile = flags & libc::O_TMPFILE == libc::O_TMPFILE;
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_TRUNC != 0;
        if tmpfile {
            return Err(libc::EOPNOTSUPP);
        }
        if flags & libc::O_CREAT != 0 && !is_device(&path) {
            let name = self.files.written(&path).ok_or(libc::EACCES)?;
            let folder = self.files.scratch();
            let parent = name.parent().map(|parent| folder.join(parent));
            parent.map_or(Ok(()), std::fs::create_dir_all).map_err(|_| libc::EROFS)?;
            let folder = open(&folder, libc::O_PATH | libc::O_DIRECTORY)?;
            return Ok(Answer::Descriptor(open_beneath(&folder, name, flags)?, close));
        }
        let file = self.files.instead(&path).unwrap_or_else(|| {
            self.note_program();
            if let Some(path) = self.of_this_machine(&path) {
                self.inputs.open(&path);
            }
            path.clone()
        });
        // A device or a pipe is not opened before it is known to be harmless.
        let found = open(&file, libc::O_PATH | flags & libc::O_NOFOLLOW);
        let found = found.inspect_err(|_| self.note_missing(&path))?;
        let (kind, device) = kind(&found)?;
        let own = file.starts_with(self.files.scratch());
        let harmless = match kind {
            libc::S_IFREG | libc::S_IFDIR => !writes || own,
            libc::S_IFCHR => DEVICES.contains(&device),
            _ => false,
        };
        if !harmless {
            return Err(if writes { libc::EROFS } else { libc::EACCES });
        }
        if flags & libc::O_PATH != 0 {
            return Ok(Answer::Descriptor(found, close));
        }
        let kept =
            libc::O_ACCMODE | libc::O_DIRECTORY | libc::O_NONBLOCK | libc::O_TRUNC | libc::O_APPEND;
        let flags = flags & kept;
        Ok(Answer::Descriptor(reopen(&found, flags)?, close))
    }

    /// Notes the program that runs as an input. It may have been started by another one, which nobody answers.
    pub fn note_program(&mut self) {
        if let Ok(program) = std::fs::read_link(format!("/proc/{}/exe", self.pid)) {
            self.inputs.open(&program);
        }
    }

    /// The path of a file of this machine, on which the program may depend. `None` if it is about a process, or is the
    /// program's own.
    fn of_this_machine(&self, path: &Path) -> Option<PathBuf> {
        if path.starts_with(self.files.scratch()) {
            return None;
        }
        let Ok(rest) = path.strip_prefix("/proc") else { return Some(path.to_owned()) };
        let mut names = rest.components();
        let process = names.next().and_then(|name| name.as_os_str().to_str());
        if process.is_none_or(|name| name.parse::<u32>().is_err()) {
            return Some(path.to_owned());
        }
        let folder = names
            .next()
            .filter(|name| ["cwd", "root"].iter().any(|folder| name.as_os_str() == *folder))?;
        let folder = Path::new("/proc").join(process?).join(folder);
        Some(std::fs::read_link(folder).ok()?.join(names.as_path()))
    }

    /// Keeps the names of the last files of the made-up machine that the program did not find.
    fn note_missing(&mut self, path: &Path) {
        const KEPT: usize = 3;
        if is_made_up(path) {
            self.missing.push(path.display().to_string());
            let excess = self.missing.len().saturating_sub(KEPT);
            self.missing.drain(..excess);
        }
    }

    /// Answers a question about a path. The kernel answers it itself if the file is not made up.
    fn about(&mut self, call: &Call, about: &About) -> Result<Answer, i32> {
        let folder = about.folder.map_or(libc::AT_FDCWD, |at| call.arguments[at] as i32);
        let path = self.path(call, folder, call.arguments[about.path])?;
        let Some(path) = path else { return Ok(Answer::Kernel) };
        let Some(file) = self.files.instead(&path) else {
            if let Some(path) = self.of_this_machine(&path) {
                self.inputs.ask(&path);
            }
            return Ok(Answer::Kernel);
        };
        let file = CString::new(file.into_os_string().into_vec()).map_err(|_| libc::EINVAL)?;
        let mut arguments = call.arguments;
        arguments[about.path] = file.as_ptr() as u64;
        let size = match about.answer {
            Some((at, 0)) => (call.arguments[at + 1] as usize).min(MOST_BYTES),
            Some((_, size)) => size,
            None => 0,
        };
        let mut answer = vec![0_u8; size];
        if let Some((at, _)) = about.answer {
            arguments[at] = answer.as_mut_ptr() as u64;
        }
        if let Some((at, 0)) = about.answer {
            arguments[at + 1] = size as u64;
        }
        let [a, b, c, d, e, f] = arguments;
        // SAFETY: the path is a live string, and `answer` has room for what the call writes.
        let result = unsafe { libc::syscall(about.number, a, b, c, d, e, f) };
        if result < 0 {
            return Err(last_error());
        }
        if let Some((at, size)) = about.answer {
            let len = if size == 0 { result as usize } else { size };
            Memory { pid: self.pid }.write(call.arguments[at], &answer[..len])?;
        }
        Ok(Answer::Value(result))
    }

    /// The CPUs that the program may use: all of the made-up machine.
    fn affinity(&self, memory: Memory, room: usize, to: u64) -> Result<Answer, i32> {
        let numbers = self.machine.cpus.iter().map(|cpu| cpu.os_index as usize);
        let len = numbers.clone().max().unwrap_or(0) / 64 * 8 + 8;
        if room < len {
            return Err(libc::EINVAL);
        }
        let mut mask = vec![0_u8; len];
        numbers.for_each(|cpu| mask[cpu / 8] |= 1 << (cpu % 8));
        memory.write(to, &mask)?;
        Ok(Answer::Value(len as i64))
    }
}

/// Whether a path names a device that any program may use.
fn is_device(path: &Path) -> bool {
    ["/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"]
        .iter()
        .any(|name| path == Path::new(name))
}

/// Limits of its own resources. What a scheduler raises (locked memory) matters to a real kernel only.
fn limits(process: u64, new: u64) -> Answer {
    match (process, new) {
        (0, 0) => Answer::Kernel,
        (0, _) => Answer::Value(0),
        _ => Answer::Error(libc::EPERM),
    }
}

/// `struct utsname` of the made-up kernel.
fn uname() -> Vec<u8> {
    const FIELD: usize = 65;
    let fields = [
        "Linux",
        "roost",
        SHIPPED_VERSION,
        "#1 SMP PREEMPT_DYNAMIC",
        std::env::consts::ARCH,
        "(none)",
    ];
    let padded = |text: &str| {
        let mut field = text.as_bytes().to_vec();
        field.resize(FIELD, 0);
        field
    };
    fields.iter().flat_map(|text| padded(text)).collect()
}

/// A system call by name, if this program's table has it.
fn name_of(number: libc::c_long) -> String {
    match Sysno::new(number as usize) {
        Some(call) => format!("system call {call}"),
        None => format!("system call {number}"),
    }
}

fn last_error() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// A descriptor, or the number of errno.
fn owned(descriptor: libc::c_long) -> Result<OwnedFd, i32> {
    match descriptor {
        // SAFETY: the kernel has just created it for this process.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) }),
        _ => Err(last_error()),
    }
}

fn open(path: &Path, flags: i32) -> Result<OwnedFd, i32> {
    let path = path.as_os_str().to_owned().into_vec();
    let path = CString::new(path).map_err(|_| libc::EINVAL)?;
    // SAFETY: the path is a live string.
    owned(unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC) }.into())
}

/// Opens what a descriptor made with `O_PATH` stands for.
fn reopen(found: &OwnedFd, flags: i32) -> Result<OwnedFd, i32> {
    use std::os::fd::AsRawFd;
    open(Path::new(&format!("/proc/self/fd/{}", found.as_raw_fd())), flags)
}

/// Opens or creates a file in a folder, wherever links lead.
fn open_beneath(folder: &OwnedFd, name: &Path, flags: i32) -> Result<OwnedFd, i32> {
    use std::os::fd::AsRawFd;
    let name = CString::new(name.as_os_str().to_owned().into_vec()).map_err(|_| libc::EINVAL)?;
    // SAFETY: the struct has only numbers.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (flags | libc::O_CLOEXEC) as u32 as u64;
    how.mode =
        if flags & (libc::O_CREAT | libc::O_TMPFILE & !libc::O_DIRECTORY) != 0 { 0o600 } else { 0 };
    how.resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_SYMLINKS;
    let size = size_of::<libc::open_how>();
    // SAFETY: the name and the struct are live.
    let opened = unsafe {
        libc::syscall(libc::SYS_openat2, folder.as_raw_fd(), name.as_ptr(), &raw const how, size)
    };
    owned(opened)
}

/// The kind of a file, and for a device its numbers.
fn kind(file: &OwnedFd) -> Result<(libc::mode_t, (u32, u32)), i32> {
    use std::os::unix::fs::MetadataExt;
    let copy = file.try_clone().map_err(|_| libc::EMFILE)?;
    let about = std::fs::File::from(copy).metadata().map_err(|_| libc::EIO)?;
    let device = (libc::major(about.rdev()), libc::minor(about.rdev()));
    Ok((about.mode() & libc::S_IFMT, device))
}
