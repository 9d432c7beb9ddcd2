//! Measurements on this machine.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tempfile::TempDir;

use crate::error::RealError;
use crate::knobs::Knobs;
use crate::measurement::{Contents, Measurement, SCRIPT_NAME};
use crate::result::Measured;

/// The folder with the scheduler's settings in the kernel.
const SETTINGS: &str = "/sys/kernel/debug/sched";

/// Interval for checking whether a measurement has ended or shall be ended.
const GLANCE: Duration = Duration::from_millis(50);

/// The result of a measurement, and the folder that it is read from.
#[derive(Debug)]
pub struct HostResult {
    /// What was measured.
    pub measured: Measured,
    _folder: TempDir,
}

/// Makes one measurement. If `stop` is set, it is ended, and changed settings are restored. If this program is killed,
/// the script itself does that, and removes its folder.
pub fn measure(measurement: &Measurement<'_>, stop: &AtomicBool) -> Result<HostResult, RealError> {
    check_kernel(measurement)?;
    check_rights(measurement)?;
    let folder =
        tempfile::tempdir().map_err(|error| RealError::file(&std::env::temp_dir(), error))?;
    let out = folder.path().join("out");
    write(folder.path(), measurement)?;
    std::fs::create_dir(&out).map_err(|error| RealError::file(&out, error))?;
    let mut command = Command::new("bash");
    command.arg(SCRIPT_NAME).current_dir(folder.path()).env("ROOST_OUT", &out);
    command.envs(measurement.variables());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = start(&mut command)?;
    until_end(&mut child, stop)?;
    let (workload, scheduler) = (&measurement.workload.name, &measurement.scheduler.name);
    let measured = Measured::check(&out, workload, scheduler)?;
    Ok(HostResult { measured, _folder: folder })
}

/// Checks that the version in the scheduler's name is the kernel that runs here.
fn check_kernel(measurement: &Measurement<'_>) -> Result<(), RealError> {
    let Some(version) = &measurement.scheduler.version else { return Ok(()) };
    let path = Path::new("/proc/sys/kernel/osrelease");
    let release = std::fs::read_to_string(path).map_err(|error| RealError::file(path, error))?;
    let rest = release.strip_prefix(version.as_str());
    if rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit())) {
        return Ok(());
    }
    Err(RealError::Usage(format!(
        "{}: this machine runs Linux {}; write fair, or ask a guest with --on vm",
        measurement.scheduler.name,
        release.trim()
    )))
}

/// Whether this user may trace the kernel and set what it has.
pub fn is_root() -> bool {
    // SAFETY: geteuid has no preconditions.
    unsafe { libc::geteuid() == 0 }
}

/// Checks that the user is root, if that is needed. Without root, nothing can be set, and only counters that `/proc`
/// shows to everybody are available.
fn check_rights(measurement: &Measurement<'_>) -> Result<(), RealError> {
    let is_root = is_root();
    let scheduler = measurement.scheduler;
    let sets = !scheduler.settings.is_empty() || scheduler.program.is_some();
    if is_root || !(sets || measurement.stream_kib.is_some()) {
        return Ok(());
    }
    Err(RealError::Usage(format!(
        "{}: only root may change a kernel's scheduler or trace it; run it with sudo",
        scheduler.name
    )))
}

fn write(folder: &Path, measurement: &Measurement<'_>) -> Result<(), RealError> {
    for (name, contents) in measurement.files(&knobs(Path::new(SETTINGS)))? {
        let path = folder.join(name);
        match contents {
            Contents::Bytes(bytes) => std::fs::write(&path, bytes),
            Contents::Copy(file) => std::fs::copy(&file, &path).map(drop),
        }
        .map_err(|error| RealError::file(&path, error))?;
    }
    // The workload may run as another user.
    std::fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .map_err(|error| RealError::file(folder, error))
}

/// The kernel's settings: the files of `folder` and of its subfolders, and the names of domains. None if they cannot be
/// read.
fn knobs(folder: &Path) -> Knobs {
    let mut files = Vec::new();
    let mut add = |folder: &Path, prefix: &str| {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let Some(name) = entry.file_name().to_str().map(|name| format!("{prefix}{name}"))
            else {
                continue;
            };
            if let Ok(text) = std::fs::read_to_string(entry.path()) {
                files.push((name, text));
            }
        }
    };
    add(folder, "");
    for inner in ["llc_balancing", "numa_balancing", "fair_server"] {
        add(&folder.join(inner), &format!("{inner}/"));
    }
    files.retain(|(name, _)| name != "debug");
    files.extend(domain_names(&folder.join("domains")));
    Knobs::new(files.iter().map(|(name, text)| (name.as_str(), text.as_str())))
}

/// The file `domains/cpuN/domainM/name` and its text, for all domains.
fn domain_names(folder: &Path) -> Vec<(String, String)> {
    let inside = |folder: &Path| -> Vec<PathBuf> {
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect()
    };
    let name = |domain: &Path| {
        let file = domain.join("name");
        let path = file.strip_prefix(folder.parent()?).ok()?.to_str()?.to_owned();
        Some((path, std::fs::read_to_string(&file).ok()?))
    };
    let domains = inside(folder).into_iter().flat_map(|cpu| inside(&cpu));
    domains.filter_map(|domain| name(&domain)).collect()
}

/// Starts `command` in a process group of its own, so that Ctrl-C reaches only roost. The command gets SIGTERM when
/// roost ends, however roost ends.
fn start(command: &mut Command) -> Result<Child, RealError> {
    command.process_group(0);
    let parent = std::process::id();
    // SAFETY: only async-signal-safe functions are called between fork and exec.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            // The parent may have ended before the kernel was asked to watch it.
            if libc::getppid() as u32 != parent {
                libc::_exit(1);
            }
            Ok(())
        });
    }
    command.spawn().map_err(|error| RealError::file(Path::new("bash"), error))
}

fn until_end(child: &mut Child, stop: &AtomicBool) -> Result<ExitStatus, RealError> {
    let failed = |error| RealError::file(Path::new(SCRIPT_NAME), error);
    loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok(status);
        }
        if stop.load(Ordering::Relaxed) {
            // SAFETY: the child has not been waited for, so its number still belongs to it.
            unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
            child.wait().map_err(failed)?;
            return Err(RealError::Interrupted);
        }
        std::thread::sleep(GLANCE);
    }
}
