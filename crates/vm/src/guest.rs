//! One boot of a guest in the host's time: jobs go in, results come out.
//!
//! ```text
//!             serial line 1: the kernel's console  ──▶ a file
//! roost ◀──▶  serial line 2: orders and answers    ◀─▶ init.sh
//!             disk 1: the root, read-only
//!             disk 2: a job as a tar archive       ──▶
//!             disk 3: results as a tar archive     ◀──
//! ```
//!
//! Disks 2 and 3 and the console are files without a name, so nothing is left behind, however roost ends. A disk as a
//! mailbox needs no second process on the host and no shared memory (as virtio-fs does), and no kernel module (as 9p
//! does).

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use roost_machine::Machine;

use crate::cache::Cache;
use crate::error::VmError;
use crate::job::{self, Job, JobResult};
use crate::partition;
use crate::prepare::{Given, Pieces};
use crate::process::Process;
use crate::qemu::{self, Disks, Files, Hardware, Lane};
use crate::shape::{self, Shape};
use crate::survey::Survey;

/// The guest's side: its first process.
pub(crate) const INIT: &str = include_str!("init.sh");

/// Apparent size of the disks for jobs and results. On the host they only take the space that is written.
const MAILBOX_BYTES: u64 = 4 << 30;

/// Number of the console's last lines that an error shows.
const CONSOLE_LINES: usize = 20;

/// The guest to boot.
#[derive(Clone, Debug)]
pub struct GuestSpec {
    /// The machine that the guest shall see. Its CPUs are numbered depth first.
    pub machine: Machine,
    /// Pieces that the user gave.
    pub given: Given,
    /// Total memory in MiB, divided evenly among the nodes.
    pub memory_mib: u32,
    /// Real time within which the guest must have booted.
    pub boot_timeout: Duration,
    /// Additional arguments of the kernel.
    pub kernel_arguments: String,
    /// With exact time, an instruction takes 2 to this power, in ns.
    pub instruction_shift: u8,
    /// Setting this ends the guest.
    pub stop: &'static AtomicBool,
}

/// What a guest writes every [`BEAT`] while a job runs. A realtime task writes it, so that it does not depend on a
/// scheduler that the job loads.
const ALIVE: &str = "roost: alive";

/// Interval of [`ALIVE`] in `init.sh`.
const BEAT: Duration = Duration::from_secs(10);

/// A guest that has not written [`ALIVE`] for so many intervals has frozen. Hosts can be busy.
const FROZEN_BEATS: u32 = 12;

/// A flag that is never set, for callers who do not stop guests.
static NEVER: AtomicBool = AtomicBool::new(false);

/// Interval at which the stop flag is checked.
const GLANCE: Duration = Duration::from_millis(100);

impl GuestSpec {
    /// A guest with this machine and the pieces in the cache.
    pub fn new(machine: &Machine) -> Self {
        Self {
            machine: shape::depth_first(machine),
            given: Given::default(),
            memory_mib: 2048,
            // Booting takes 7 to 13 s with 16 to 32 CPUs on two idle CPUs of the host. Hosts can be busy.
            boot_timeout: Duration::from_secs(300),
            kernel_arguments: String::new(),
            instruction_shift: 3,
            stop: &NEVER,
        }
    }
}

/// A running guest. It ends when this is dropped.
pub struct Guest {
    running: Running,
    survey: Survey,
    /// What it was booted from, if it may be booted again.
    again: Option<(Pieces, GuestSpec)>,
}

/// The parts of a running guest.
struct Running {
    line: Line,
    jobs: File,
    results: File,
    /// Number of the last job.
    number: u32,
}

impl Guest {
    /// Boots a guest and checks that it sees the requested machine.
    ///
    /// If a kernel of Debian's panics or hangs during boot, this is reported and the guest is booted once more. Each
    /// was seen once with 7.2.13: an oops while the fair server's timer was queued, 4 s after the start (not again in
    /// 28 boots of the same machines), and a CPU that never left an ext4 lookup. A kernel that the user gave is booted
    /// only once, because the user may be looking for such a fault.
    pub fn boot(cache: &Cache, spec: &GuestSpec) -> Result<Self, VmError> {
        let pieces = Pieces::find(cache, &spec.given)?;
        let by_hand = pieces.kernel.is_given_by_hand(cache);
        let (running, survey) = match Running::boot(&pieces, spec) {
            Err(error) if (is_panic(error.console()) || error.is_hang()) && !by_hand => {
                tell_of_second_boot(&error);
                Running::boot(&pieces, spec)?
            }
            result => result?,
        };
        Ok(Self { running, survey, again: (!by_hand).then(|| (pieces, spec.clone())) })
    }

    /// The kernel's description of its machine.
    pub fn survey(&self) -> &Survey {
        &self.survey
    }

    /// Runs a job to its end. After an error the guest cannot be used any more.
    ///
    /// If the emulator ran stale code (`ran_stale_code`), or the whole guest froze, this is reported, and the job runs
    /// once more in a newly booted guest, unless the user gave the kernel. A freeze was seen once in some hundred
    /// guests: the console ended, without a word from the kernel's watchdogs.
    pub fn run(&mut self, job: &Job) -> Result<JobResult, VmError> {
        match (self.running.run(job), &self.again) {
            (Err(error), Some((pieces, spec)))
                if ran_stale_code(error.console()) || error.is_hang() =>
            {
                tell_of_second_boot(&error);
                (self.running, self.survey) = Running::boot(pieces, spec)?;
                self.running.run(job)
            }
            (result, _) => result,
        }
    }

    /// Turns the guest into a shell.
    pub fn shell(mut self, rows: u16, columns: u16) -> Result<Shell, VmError> {
        self.running.line.send(&format!("shell {rows} {columns}\n"))?;
        Ok(Shell { line: self.running.line })
    }
}

/// Reports on stderr that a guest is booted again after `error`, and which code its kernel was running.
fn tell_of_second_boot(error: &VmError) {
    let tells = |word| error.console().iter().find(|line| line.contains(word));
    let place = tells("RIP: ").or_else(|| tells(PANIC)).or_else(|| error.console().last());
    let place = place.map_or("", |line| line.trim_end());
    eprintln!("roost: {error}, booting once more: {place}");
}

impl Running {
    /// Boots with KVM if the host has a KVM that gets the guest through its boot.
    fn boot(pieces: &Pieces, spec: &GuestSpec) -> Result<(Self, Survey), VmError> {
        let kvm = pieces.qemu.kvm_works();
        match Self::boot_with(kvm, pieces, spec) {
            Err(error) if kvm => match error.console().iter().find(|line| gave_up(line)) {
                Some(why) => {
                    eprintln!("roost: {error}: {why}; booting without KVM");
                    Self::boot_with(false, pieces, spec)
                }
                None => Err(error),
            },
            result => result,
        }
    }

    fn boot_with(kvm: bool, pieces: &Pieces, spec: &GuestSpec) -> Result<(Self, Survey), VmError> {
        let shape = Shape::of(&spec.machine)?;
        let (console, mut jobs, mut results) = (unnamed()?, unnamed()?, unnamed()?);
        for disk in [&jobs, &results] {
            disk.set_len(MAILBOX_BYTES).map_err(|error| unnamed_failed(&error))?;
        }
        job::archive(&mut jobs, &first_files(pieces)?)?;
        let root = partition::with_table(&pieces.root)?;
        let disks = Disks::Nvme {
            root: &descriptor(&root),
            jobs: &descriptor(&jobs),
            results: &descriptor(&results),
        };
        let hardware =
            Hardware { shape: &shape, memory_mib: spec.memory_mib, lane: Lane::Load, kvm };
        let files = Files { kernel: &pieces.kernel.image, console: &descriptor(&console), disks };
        let command = qemu::command(&pieces.qemu, &hardware, &files, &spec.kernel_arguments);
        let mut line = Line::start(command, &[&root, &jobs, &results], console, spec.stop)?;
        let deadline = Instant::now() + spec.boot_timeout;
        line.expect("roost: ready", deadline, "during boot")?;
        let survey = Survey::read(&job::unpack(from_start(&mut results)?)?)?;
        survey.check(&spec.machine)?;
        Ok((Self { line, jobs, results, number: 0 }, survey))
    }

    fn run(&mut self, job: &Job) -> Result<JobResult, VmError> {
        let start = Instant::now();
        self.number += 1;
        let mut archive = Vec::new();
        job.archive(&mut archive)?;
        from_start(&mut self.jobs)?.write_all(&archive).map_err(|error| unnamed_failed(&error))?;
        let mebibytes = archive.len().div_ceil(1 << 20);
        self.line.send(&format!("job {} {mebibytes}\n", self.number))?;
        self.line.expect_end_of_job(self.number, start + job.timeout)?;
        let mut result = JobResult::read(from_start(&mut self.results)?)?;
        result.host_time = start.elapsed();
        Ok(result)
    }
}

/// A guest whose second serial line is used as a terminal.
pub struct Shell {
    line: Line,
}

/// The key that ends a shell from outside, as in telnet: Ctrl-].
const LEAVE: u8 = 0x1d;

/// The key that ends a shell from inside: Ctrl-D, the end of a terminal's input.
const END_OF_INPUT: u8 = 0x04;

impl Shell {
    /// Passes `keys` to the guest, and its output to `screen`, until the shell ends or Ctrl-] is typed. It is an error
    /// if the guest ends in any other way.
    pub fn run(
        mut self,
        keys: impl Read + Send + 'static,
        screen: &mut impl Write,
    ) -> Result<(), VmError> {
        let left = Arc::new(AtomicBool::new(false));
        // Keys that are typed before the first prompt would be lost when the shell sets up its terminal.
        let mut show = |bytes: &[u8]| {
            // If the screen is gone, nothing is shown. The guest still ends with its shell.
            let _ = screen.write_all(bytes).and_then(|()| screen.flush());
        };
        if let Ok(prompt) = self.line.answers.recv() {
            show(&prompt);
        }
        if let Some(input) = self.line.input.take() {
            let (leave, guest) = (Arc::clone(&left), self.line.process.child.id());
            std::thread::spawn(move || pass_keys(keys, input, &leave, guest));
        }
        while let Ok(bytes) = self.line.answers.recv() {
            show(&bytes);
        }
        if left.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        match self.line.process.child.wait() {
            Ok(status) if status.success() && !self.line.panicked() => Ok(()),
            _ => Err(self.line.failure("ended by itself".into())),
        }
    }
}

/// Passes keys to the guest. Ends the guest at Ctrl-], unless it has ended (`left`).
fn pass_keys(mut keys: impl Read, mut guest: impl Write, left: &AtomicBool, process: u32) {
    let mut buffer = [0; 256];
    while let Ok(read) = keys.read(&mut buffer) {
        let typed = buffer.get(..read).unwrap_or_default();
        let (typed, leave) = match typed.iter().position(|&key| key == LEAVE) {
            Some(end) => (typed.get(..end).unwrap_or_default(), true),
            None => (typed, false),
        };
        let typed = if read == 0 { &[END_OF_INPUT] } else { typed };
        let passed = guest.write_all(typed).and_then(|()| guest.flush());
        if leave && !left.swap(true, Ordering::SeqCst) {
            // SAFETY: the process is our child, and is waited for only after `left` was checked.
            unsafe { libc::kill(process as i32, libc::SIGKILL) };
        }
        if leave || read == 0 || passed.is_err() {
            break;
        }
    }
    // Closing QEMU's input does not end the guest.
    std::mem::forget(guest);
}

/// A running QEMU, its console, and the line to the guest's side of roost.
pub(crate) struct Line {
    process: Process,
    input: Option<ChildStdin>,
    /// The guest's output in pieces. A piece ends with a line, or contains what was there.
    answers: Receiver<Vec<u8>>,
    console: File,
    messages: File,
    stop: &'static AtomicBool,
}

/// Why nothing was received from a guest.
enum Silence {
    /// The guest or KVM has ended.
    Ended,
    /// The time is over.
    Late,
    /// The stop flag is set.
    Stopped,
}

impl Line {
    /// Starts QEMU. It gets the open files `inherited` and `console`.
    pub fn start(
        mut command: Command,
        inherited: &[&File],
        console: File,
        stop: &'static AtomicBool,
    ) -> Result<Self, VmError> {
        let messages = unnamed()?;
        let copy = messages.try_clone().map_err(|error| unnamed_failed(&error))?;
        command.stderr(copy);
        let inherited = inherited.iter().copied().chain([&console]).map(File::as_raw_fd);
        let failed = |reason: String| VmError::Failed { tool: "starting QEMU".into(), reason };
        let mut process = Process::start(command, inherited.collect())
            .map_err(|error| failed(error.to_string()))?;
        let input = process.child.stdin.take();
        let output = process.child.stdout.take().ok_or_else(|| failed("no output".into()))?;
        Ok(Self { process, input, answers: read_lines(output), console, messages, stop })
    }

    fn send(&mut self, order: &str) -> Result<(), VmError> {
        let input = self.input.as_mut();
        match input.map(|input| input.write_all(order.as_bytes()).and_then(|()| input.flush())) {
            Some(Ok(())) => Ok(()),
            _ => Err(self.failure("ended before its first job".into())),
        }
    }

    /// Waits for a line that begins with `answer`. For errors, `when` says what the guest was doing.
    fn expect(&mut self, answer: &str, deadline: Instant, when: &str) -> Result<(), VmError> {
        match self.expect_one(&[answer], deadline, when)? {
            Some(_) => Ok(()),
            None => Err(self.hung(format!("gave no answer in time {when}"))),
        }
    }

    /// Waits until the job `number` has ended. It is a hang only if the guest itself is silent.
    fn expect_end_of_job(&mut self, number: u32, deadline: Instant) -> Result<(), VmError> {
        let (answer, when) = (format!("roost: done {number} "), format!("in job {number}"));
        loop {
            let frozen = Instant::now() + BEAT * FROZEN_BEATS;
            match self.expect_one(&[&answer, ALIVE], deadline.min(frozen), &when)? {
                Some(0) => return Ok(()),
                Some(_) => {}
                None if frozen < deadline => return Err(self.hung(format!("froze {when}"))),
                None => return Err(self.failure(format!("gave no answer in time {when}"))),
            }
        }
    }

    /// Waits for a line that begins with one of `answers`, and returns which. `None` if there was none by `deadline`.
    fn expect_one(
        &mut self,
        answers: &[&str],
        deadline: Instant,
        when: &str,
    ) -> Result<Option<usize>, VmError> {
        loop {
            match self.receive(deadline) {
                // Another program may write to the line.
                Ok(line) => {
                    let is_it = |answer: &&str| line.starts_with(answer.as_bytes());
                    if let Some(which) = answers.iter().position(is_it) {
                        return Ok(Some(which));
                    }
                }
                Err(Silence::Late) => return Ok(None),
                Err(Silence::Ended) => {
                    let what = if self.panicked() { "panicked" } else { "ended" };
                    return Err(self.failure(format!("{what} {when}")));
                }
                Err(Silence::Stopped) => return Err(VmError::Interrupted),
            }
        }
    }

    /// The next piece of the guest's output.
    fn receive(&self, deadline: Instant) -> Result<Vec<u8>, Silence> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.answers.recv_timeout(left.min(GLANCE)) {
                Ok(piece) => return Ok(piece),
                Err(RecvTimeoutError::Disconnected) => return Err(Silence::Ended),
                Err(RecvTimeoutError::Timeout) if self.stop.load(Ordering::Relaxed) => {
                    return Err(Silence::Stopped);
                }
                Err(RecvTimeoutError::Timeout) if self.kvm_gave_up() => return Err(Silence::Ended),
                Err(RecvTimeoutError::Timeout) if left.is_zero() => return Err(Silence::Late),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// The guest's output until it ends.
    pub fn until_end(&mut self, deadline: Instant) -> Result<Vec<u8>, VmError> {
        let mut all = Vec::new();
        loop {
            match self.receive(deadline) {
                Ok(bytes) => all.extend_from_slice(&bytes),
                Err(Silence::Ended) => return Ok(all),
                Err(Silence::Late) => return Err(self.hung("did not end in time".into())),
                Err(Silence::Stopped) => return Err(VmError::Interrupted),
            }
        }
    }

    /// All lines of the console so far.
    pub fn console_lines(&mut self) -> Vec<String> {
        lines(&mut self.console)
    }

    /// Whether KVM has given up.
    fn kvm_gave_up(&self) -> bool {
        // QEMU writes at the current position of the file, so reading must not change it.
        let length = self.messages.metadata().map_or(0, |file| file.len());
        let mut messages = vec![0; length as usize];
        let read = self.messages.read_exact_at(&mut messages, 0);
        read.is_ok() && String::from_utf8_lossy(&messages).lines().any(gave_up)
    }

    fn panicked(&mut self) -> bool {
        is_panic(&self.console_lines())
    }

    /// Ends the guest. Returns an error with the last lines of the console and of QEMU.
    pub fn failure(&mut self, what: String) -> VmError {
        // A QEMU that has just closed its output needs a moment to print why it ended.
        for _ in 0..20 {
            if self.process.ended().is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let status = match self.process.ended() {
            Some(status) if !status.success() => format!(" (QEMU: {status})"),
            _ => String::new(),
        };
        // If the kill fails, QEMU has ended already.
        let _ = self.process.child.kill();
        let mut console = telling(self.console_lines());
        let messages = lines(&mut self.messages);
        // For each CPU, QEMU warns about each feature that it does not emulate.
        let told = messages.into_iter().filter(|line| !line.contains("support requested feature"));
        console.extend(told.take(CONSOLE_LINES));
        VmError::Guest { what: format!("{what}{status}"), hung: false, console }
    }

    /// [`Line::failure`] for a guest that still runs when its time is over.
    fn hung(&mut self, what: String) -> VmError {
        match self.failure(what) {
            VmError::Guest { what, console, .. } => VmError::Guest { what, hung: true, console },
            error => error,
        }
    }
}

/// Whether QEMU says that KVM cannot continue. After that, QEMU only waits. A host that is a guest itself may have such
/// a KVM: it starts, but does not know all instructions that the kernel uses.
fn gave_up(message: &str) -> bool {
    message.contains("KVM internal error")
}

/// The kernel's message when it panics.
const PANIC: &str = "Kernel panic - not syncing";

fn is_panic(console: &[String]) -> bool {
    console.iter().any(|line| line.contains(PANIC))
}

/// Whether a kernel ended because QEMU ran code that the kernel had replaced.
///
/// A kernel that switches a static key patches its own code: first it writes a breakpoint, then the new instruction,
/// and it keeps a handler until every CPU has left the breakpoint. 7.2.13 met a breakpoint without a handler while
/// schedstats were turned on, on two idle CPUs at once. The address held the new instruction by then, so the CPUs ran
/// code that had been translated before. This was seen once in some hundred guests.
fn ran_stale_code(console: &[String]) -> bool {
    is_panic(console) && console.iter().any(|line| line.contains("Oops: int3"))
}

/// How messages about the kernel's own errors begin.
const OOPS: [&str; 2] = ["BUG: ", "Oops: "];

/// Number of lines that such an error and its trace may take.
const OOPS_LINES: usize = 60;

/// The lines of a console that tell how the guest ended: the last lines or, because a panic prints a long trace, the
/// lines around the panic, starting with the error that led to it.
fn telling(mut console: Vec<String>) -> Vec<String> {
    let Some(panic) = console.iter().position(|line| line.contains(PANIC)) else {
        return console.split_off(console.len().saturating_sub(CONSOLE_LINES));
    };
    let oops =
        console.iter().take(panic).position(|line| OOPS.iter().any(|word| line.contains(word)));
    let (start, most) = match oops {
        Some(oops) => (oops, OOPS_LINES),
        None => (panic.saturating_sub(CONSOLE_LINES / 4), CONSOLE_LINES / 4),
    };
    // The panic itself is included, however far below its cause it is.
    let end = console.split_off(panic);
    console.drain(..start);
    console.truncate(most);
    console.extend(end.into_iter().take(CONSOLE_LINES * 3 / 4));
    console
}

/// Passes output on line by line. Output without a line end is passed on as it comes.
fn read_lines(output: ChildStdout) -> Receiver<Vec<u8>> {
    let (sender, answers) = channel();
    std::thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut held = Vec::new();
        while let Ok(bytes) = output.fill_buf() {
            if bytes.is_empty() {
                break;
            }
            held.extend_from_slice(bytes);
            let read = bytes.len();
            output.consume(read);
            // A prompt has no line end, but does not begin like an answer either.
            while let Some(piece) = next_piece(&mut held) {
                if sender.send(piece).is_err() {
                    return;
                }
            }
        }
        let _ = sender.send(held);
    });
    answers
}

/// Takes the first line from `held`. If there is no complete line, takes all of it, unless it may be the beginning of
/// an answer.
fn next_piece(held: &mut Vec<u8>) -> Option<Vec<u8>> {
    const ANSWER: &[u8] = b"roost: ";
    let common = held.len().min(ANSWER.len());
    let end = match held.iter().position(|&byte| byte == b'\n') {
        Some(end) => end + 1,
        None if held.is_empty() || held.get(..common) == ANSWER.get(..common) => return None,
        None => held.len(),
    };
    let rest = held.split_off(end);
    Some(std::mem::replace(held, rest))
}

/// The files that the guest needs at the start: its side of roost, and the kernel's configuration.
pub(crate) fn first_files(pieces: &Pieces) -> Result<Vec<(&'static str, Vec<u8>)>, VmError> {
    let mut files = vec![("init", INIT.as_bytes().to_vec())];
    if let Some(config) = &pieces.kernel.config {
        let text = std::fs::read(config).map_err(|error| VmError::file(config, &error))?;
        files.push(("config", text));
    }
    Ok(files)
}

/// A file without a name. It is removed when the last process closes it.
pub(crate) fn unnamed() -> Result<File, VmError> {
    tempfile::tempfile().map_err(|error| unnamed_failed(&error))
}

pub(crate) fn unnamed_failed(error: &std::io::Error) -> VmError {
    VmError::file(&std::env::temp_dir(), error)
}

/// The name by which a process that inherits an open file can open it again.
pub(crate) fn descriptor(file: &File) -> PathBuf {
    Path::new("/proc/self/fd").join(file.as_raw_fd().to_string())
}

fn from_start(file: &mut File) -> Result<&mut File, VmError> {
    match file.seek(SeekFrom::Start(0)) {
        Ok(_) => Ok(file),
        Err(error) => Err(unnamed_failed(&error)),
    }
}

/// The lines of a file that another process writes. None if it cannot be read.
fn lines(file: &mut File) -> Vec<String> {
    let mut bytes = Vec::new();
    if file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut bytes)).is_err() {
        return Vec::new();
    }
    let text = String::from_utf8_lossy(&bytes);
    let printable = |line: &str| line.chars().filter(|c| !c.is_control()).collect::<String>();
    text.lines().map(printable).filter(|line| !line.trim().is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_lines_and_prompts_come_as_they_are() {
        let mut held = b"noise\nroost: done 1 0\nroost: re".to_vec();
        assert_eq!(next_piece(&mut held).unwrap(), b"noise\n");
        assert_eq!(next_piece(&mut held).unwrap(), b"roost: done 1 0\n");
        assert_eq!(next_piece(&mut held), None);
        held.extend_from_slice(b"ady\n# ");
        assert_eq!(next_piece(&mut held).unwrap(), b"roost: ready\n");
        assert_eq!(next_piece(&mut held).unwrap(), b"# ");
        assert_eq!(next_piece(&mut held), None);
    }

    #[test]
    fn a_qemu_that_fails_is_told_with_what_it_said() {
        let mut line = line("echo 'no such machine' >&2; exit 3");
        let deadline = Instant::now() + Duration::from_secs(60);
        let failure = line.expect("roost: ready", deadline, "during boot").unwrap_err();
        assert_eq!(failure.console(), ["no such machine"]);
        let error = failure.to_string();
        assert!(error.contains("ended during boot"), "{error}");
        assert!(error.contains("exit status: 3"), "{error}");
    }

    #[test]
    fn a_kvm_that_gives_up_is_noticed() {
        let mut line = line("echo 'KVM internal error. Suberror: 1' >&2; sleep 1000");
        let deadline = Instant::now() + Duration::from_secs(60);
        let error = line.expect("roost: ready", deadline, "during boot").unwrap_err();
        assert!(error.to_string().contains("ended during boot"), "{error}");
        assert!(error.console().iter().any(|line| gave_up(line)));
    }

    #[test]
    fn a_panic_is_shown_with_its_reason() {
        let line = |number: usize| match number {
            50 => format!("[ 1.0] {PANIC}: no root"),
            number => format!("line {number}"),
        };
        let told = telling((0..100).map(line).collect());
        assert_eq!((told.len(), told[0].as_str()), (CONSOLE_LINES, "line 45"));
        assert!(told.iter().any(|line| line.contains("no root")));
        let told = telling((0..40).map(line).collect());
        assert_eq!(told.last().unwrap(), "line 39");

        let oops = |number| match number {
            20 => "BUG: kernel NULL pointer dereference".to_owned(),
            22 => "Oops: 0000 [#1] SMP".to_owned(),
            number => line(number),
        };
        let told = telling((0..100).map(oops).collect());
        assert!(told[0].starts_with("BUG: ") && is_panic(&told));
        let far = (0..100).map(oops).filter(|line| !line.contains(PANIC));
        let far = far.chain((0..100).map(|_| "trace".to_owned())).chain([line(50)]);
        let told = telling(far.collect());
        assert!(told[0].starts_with("BUG: ") && is_panic(&told) && told.len() < 100);
    }

    /// A line to a shell script in the guest's place.
    fn line(script: &str) -> Line {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        Line::start(command, &[], unnamed().unwrap(), &NEVER).unwrap()
    }

    #[test]
    fn a_guest_that_is_alive_but_late_has_not_hung() {
        let beat = "while :; do echo roost: alive; sleep 0.05; done";
        let error = line(beat).expect_end_of_job(1, Instant::now() + Duration::from_millis(300));
        assert!(!error.unwrap_err().is_hang());
        let ends = "echo roost: alive; sleep 0.1; echo roost: done 1 0; sleep 1000";
        line(ends).expect_end_of_job(1, Instant::now() + Duration::from_secs(60)).unwrap();
    }

    #[test]
    fn the_guest_beats_as_often_as_the_host_expects() {
        assert!(INIT.contains(&format!("read -rt {} ", BEAT.as_secs())));
        assert!(INIT.contains(&format!("echo \"{ALIVE}\"")));
    }

    #[test]
    fn a_guest_that_hangs_is_ended_in_time() {
        let mut line = line("echo hello; sleep 1000");
        let deadline = Instant::now() + Duration::from_millis(200);
        let error = line.expect("roost: ready", deadline, "during boot").unwrap_err();
        assert!(error.is_hang());
        assert!(error.to_string().contains("no answer in time during boot"), "{error}");
        let status = line.process.child.wait().unwrap();
        assert!(!status.success(), "it was killed");
    }
}
