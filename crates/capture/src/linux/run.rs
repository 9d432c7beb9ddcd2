//! Lets a program run until it attaches its scheduler.

use std::collections::BTreeMap;
use std::io::{self, PipeReader, Read};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use roost_kept::{Kept, Key};
use roost_machine::Machine;
use roost_scx::Loaded;

use super::calls::System;
use super::files::Files;
use super::inputs::Inputs;
use super::sandbox::{self, Sandbox};
use crate::command::Command;
use crate::error::{CaptureError, Why};

/// How long one wait for a call takes at most.
const WAIT: Duration = Duration::from_millis(20);

/// How many of the last bytes that the program prints are kept, and how many lines are shown.
const KEPT: usize = 1 << 16;
const SHOWN: usize = 4;

/// Takes over what was kept of a program, or starts it on a made-up machine until it attaches its scheduler.
pub fn capture(
    command: &Command,
    machine: &Machine,
    limit: Duration,
    stop: &AtomicBool,
    kept: Option<&Kept>,
) -> Result<Loaded, CaptureError> {
    let key = key(command, machine);
    if let Some(loaded) = kept.and_then(|kept| known(kept, &key)) {
        return Ok(loaded);
    }
    let (loaded, inputs) =
        watched(command, machine, limit, stop).map_err(|why| command.failed(why))?;
    if let Some(kept) = kept {
        keep(kept, &key, inputs, &loaded);
    }
    Ok(loaded)
}

/// Keeps what a program loaded, unless the files that it asked for have changed meanwhile.
fn keep(kept: &Kept, key: &Key, inputs: Inputs, loaded: &Loaded) {
    let bytes = inputs.hashed().map(|inputs| postcard::to_stdvec(&(inputs, loaded)));
    if let Some(Ok(bytes)) = bytes {
        kept.keep(key, &bytes);
    }
}

/// What was kept of a program, if all files that it asked for are still the same.
fn known(kept: &Kept, key: &Key) -> Option<Loaded> {
    let (inputs, loaded): (Inputs, Loaded) = postcard::from_bytes(&kept.get(key)?).ok()?;
    inputs.are_the_same().then_some(loaded)
}

/// Variables that a shell changes by itself. No scheduler asks for them.
const OF_SHELL: [&str; 4] = ["_", "OLDPWD", "PWD", "SHLVL"];

/// What a program depends on before it asks for anything: its command line, where it starts, its environment, and the
/// machine.
fn key(command: &Command, machine: &Machine) -> Key {
    let environment: BTreeMap<_, _> = std::env::vars_os()
        .filter(|(name, _)| !OF_SHELL.iter().any(|shell| name == shell))
        .collect();
    let around = (&command.program, &command.arguments, std::env::current_dir().ok(), environment);
    Key::of(&[format!("{around:?}").as_bytes(), format!("{machine:?}").as_bytes()])
}

fn watched(
    command: &Command,
    machine: &Machine,
    limit: Duration,
    stop: &AtomicBool,
) -> Result<(Loaded, Inputs), Why> {
    let broken = |error: io::Error| Why::Start(error.to_string());
    let files = Files::write(machine).map_err(broken)?;
    // The sandbox is dropped before the files: the program ends before they go.
    let mut sandbox = sandbox::start(command, &files.scratch())?;
    let mut system = System::new(machine, &files, sandbox.child.id() as libc::pid_t);
    system.inputs.open(&command.program);
    attached(&mut system, &mut sandbox, limit, stop)?;
    // The program still waits for the answer, so nothing changes any more.
    Ok((system.bpf.loaded(), system.inputs))
}

/// Answers a program's calls until it has attached its scheduler.
fn attached(
    system: &mut System,
    sandbox: &mut Sandbox,
    limit: Duration,
    stop: &AtomicBool,
) -> Result<(), Why> {
    let broken = |error: io::Error| Why::Start(error.to_string());
    let mut printed = Printed::of(&sandbox.output).map_err(broken)?;
    let deadline = Instant::now() + limit;
    loop {
        if let Some(call) = sandbox.listener.receive(WAIT).map_err(broken)? {
            let answer = system.answer(&call);
            if system.bpf.attached {
                system.note_program();
                return Ok(());
            }
            if let Some(need) = system.bpf.needs.take() {
                return Err(Why::Lacks(need));
            }
            sandbox.listener.answer(&call, answer);
        } else if let Some(status) = sandbox.child.try_wait().map_err(broken)? {
            printed.take(&mut sandbox.output);
            let told = printed.telling_lines(status.success());
            return Err(Why::Ended { how: how(status), said: said(system, &told) });
        }
        printed.take(&mut sandbox.output);
        if stop.load(Ordering::Relaxed) {
            return Err(Why::Interrupted);
        }
        if Instant::now() > deadline {
            let seconds = limit.as_secs();
            let told = printed.telling_lines(false);
            return Err(Why::TooSlow { seconds, said: said(system, &told) });
        }
    }
}

/// How a program ended.
fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with status {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// What a program asked for in vain, and what it printed.
fn said(system: &System, lines: &[String]) -> String {
    let mut said = String::new();
    let vain: Vec<&str> =
        system.bpf.lacks.iter().chain(&system.refused).map(String::as_str).collect();
    if !vain.is_empty() {
        said += &format!("; not emulated: {}", vain.join(", "));
    }
    if !system.missing.is_empty() {
        said += &format!("; the made-up machine has no {}", system.missing.join(", "));
    }
    if !lines.is_empty() {
        said += &format!("; it printed: {}", lines.join(" | "));
    }
    said
}

/// The last part of what a program printed. A usage text fits.
struct Printed(Vec<u8>);

impl Printed {
    fn of(output: &PipeReader) -> io::Result<Self> {
        // SAFETY: no pointers. Reading must not wait.
        let result = unsafe { libc::fcntl(output.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(Self(Vec::new())) }
    }

    /// Takes what has been printed since.
    fn take(&mut self, output: &mut PipeReader) {
        let mut part = [0; 4096];
        while let Ok(len @ 1..) = output.read(&mut part) {
            self.0.extend(&part[..len]);
            let excess = self.0.len().saturating_sub(KEPT);
            self.0.drain(..excess);
        }
    }

    /// The lines that tell most, without control characters and empty lines: the first ones of a usage text or an
    /// answer, whose end is the list of its options, else the last ones. `has_answered`: whether the program ended as
    /// if nothing was wrong.
    fn telling_lines(&self, has_answered: bool) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.0);
        let lines = text.lines().map(|line| line.trim().replace(char::is_control, "?"));
        let mut lines: Vec<String> = lines.filter(|line| !line.is_empty()).collect();
        let more = lines.len().saturating_sub(SHOWN);
        let is_usage = |line: &String| line.to_lowercase().starts_with("usage:");
        if more > 0 && (has_answered || lines.iter().any(is_usage)) {
            lines.truncate(SHOWN);
            lines.push(format!("and {more} more {}", if more == 1 { "line" } else { "lines" }));
            return lines;
        }
        lines.split_off(more)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn what_was_kept_is_taken_until_a_file_that_was_read_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("settings");
        std::fs::write(&file, "1").unwrap();
        let kept = Kept::at(&folder.path().join("captures"));
        let machine = roost_machine::resolve("2n2l4c").unwrap();
        // Started, it would end without a scheduler.
        let command = Command::parse("/bin/false -x").unwrap();
        let captured = |text: &str, machine: &Machine| {
            let command = Command::parse(text).unwrap();
            let never = AtomicBool::new(false);
            capture(&command, machine, crate::LIMIT, &never, Some(&kept)).is_ok()
        };
        assert!(!captured("/bin/false -x", &machine), "nothing is kept of a failure");
        let mut inputs = Inputs::default();
        inputs.open(&file);
        keep(&kept, &key(&command, &machine), inputs, &Loaded::default());
        assert!(captured("/bin/false -x", &machine));
        assert!(!captured("/bin/false -y", &machine), "another argument");
        let other = roost_machine::resolve("2n2l2c2t").unwrap();
        assert!(!captured("/bin/false -x", &other), "another machine");
        std::fs::write(&file, "22").unwrap();
        assert!(!captured("/bin/false -x", &machine), "another file");
    }

    /// What a script asks for that ends without a scheduler.
    fn asked_for(script: &str) -> Inputs {
        let machine = roost_machine::resolve("2n2l4c").unwrap();
        let command = Command::parse(&format!("/bin/sh -c '{script}'")).unwrap();
        let files = Files::write(&machine).unwrap();
        let mut sandbox = sandbox::start(&command, &files.scratch()).unwrap();
        let mut system = System::new(&machine, &files, sandbox.child.id() as libc::pid_t);
        let never = AtomicBool::new(false);
        let ended = attached(&mut system, &mut sandbox, crate::LIMIT, &never);
        assert!(matches!(ended, Err(Why::Ended { .. })), "{ended:?}");
        system.inputs
    }

    #[test]
    fn the_files_of_this_machine_that_a_program_asks_for_are_noted() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["read", "through", "asked"] {
            std::fs::write(at(name), "1\n").unwrap();
        }
        let script = format!(
            "cd {}; read x <read; read x </proc/self/cwd/through; read x <missing; [ -d asked ]; echo >own; \
             read x </sys/devices/system/cpu/online; read x </proc/stat; exec cat /etc/hostname",
            folder.path().display()
        );
        let inputs = asked_for(&script);
        let has = |path: &Path| inputs.paths().any(|known| known == path);
        for name in ["read", "through", "missing", "asked"] {
            assert!(has(&at(name)), "{name}: {inputs:?}");
        }
        // A program that another one has become, and what it reads.
        let cat = std::fs::canonicalize("/bin/cat").unwrap();
        assert!(has(&cat) && has(Path::new("/etc/hostname")), "{inputs:?}");
        let made_up = |path: &Path| path.starts_with("/sys") || path.starts_with("/proc");
        let own = |path: &Path| path.starts_with("/dev/shm") || path.ends_with("own");
        assert!(!inputs.paths().any(|path| made_up(path) || own(path)), "{inputs:?}");
    }
}
