//! Checks whether the running kernel can be used at all.

use std::path::Path;
use std::time::{Duration, Instant};

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Func, Struct};

use crate::error::LiveError;

const SCHED_EXT: &str = "/sys/kernel/sched_ext";

/// How long a start waits for another scheduler that is being unloaded. With this wait the six starts that the systemd
/// unit allows in an hour last for three minutes.
const LEAVING: Duration = Duration::from_secs(30);

/// The kernel's release (`uname -r`).
pub fn release() -> String {
    read("/proc/sys/kernel/osrelease").unwrap_or_else(|_| "unknown".to_owned())
}

/// The content of a small kernel file, without the final newline.
pub fn read(path: &str) -> Result<String, LiveError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(error) => Err(LiveError::File { path: path.to_owned(), reason: error.to_string() }),
    }
}

/// Fails if the user is not root, which `what` needs.
pub fn check_root(what: &'static str) -> Result<(), LiveError> {
    // SAFETY: no arguments, cannot fail.
    match unsafe { libc::geteuid() } {
        0 => Ok(()),
        _ => Err(LiveError::NotRoot { what }),
    }
}

/// Finds obstacles to loading without trying to load.
pub fn check() -> Result<(), LiveError> {
    in_the_way(&release(), Path::new(SCHED_EXT), Types::of_kernel()).map_or(Ok(()), Err)
}

/// Fails if the kernel has no type information.
pub fn check_types() -> Result<(), LiveError> {
    let types = Btf::from_vmlinux().map(drop);
    types.map_err(|_| LiveError::NoTypes { release: release() })
}

/// The name of the scheduler in use: a sched_ext scheduler, or the fair class.
pub fn scheduler() -> String {
    let name = read(&format!("{SCHED_EXT}/root/ops"));
    name.unwrap_or_else(|_| "the fair class".to_owned())
}

/// Waits until another scheduler is unloaded, [`LEAVING`] at most.
pub fn await_unloading() {
    let end = Instant::now() + LEAVING;
    let leaving = || matches!(loaded(Path::new(SCHED_EXT)), Some(LiveError::Leaving { .. }));
    while leaving() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// What the kernel's type information (BTF) says about sched_ext.
#[derive(Clone, Copy, Debug)]
struct Types {
    /// Whether schedulers can be defined.
    ops: bool,
    /// Whether waiting tasks can be moved between queues. This is the newest part of the sched_ext of Linux 6.12.
    moves: bool,
}

impl Types {
    /// The types of the running kernel. `None` if the kernel has no type information.
    fn of_kernel() -> Option<Self> {
        let btf = Btf::from_vmlinux().ok()?;
        let function = |name| btf.type_by_name::<Func>(name).is_some();
        Some(Self {
            ops: btf.type_by_name::<Struct>("sched_ext_ops").is_some(),
            moves: function("scx_bpf_dsq_move") || function("scx_bpf_dispatch_from_dsq"),
        })
    }
}

/// Whether the kernel tells schedulers the cgroups' limits on CPU time (`cgroup_set_bandwidth`, since 6.17).
pub fn has_limits() -> bool {
    let Ok(btf) = Btf::from_vmlinux() else { return false };
    let Some(ops) = btf.type_by_name::<Struct>("sched_ext_ops") else { return false };
    ops.iter().any(|member| member.name.is_some_and(|name| name == "cgroup_set_bandwidth"))
}

/// Whether a wakeup may be queued for the CPU that the task was given, which then makes the task runnable
/// (`SCX_OPS_ALLOW_QUEUED_WAKEUP`, since 6.15, with this function).
pub fn queues_wakeups() -> bool {
    Btf::from_vmlinux().is_ok_and(|btf| btf.type_by_name::<Func>("scx_allow_ttwu_queue").is_some())
}

/// Whether the kernel reserves CPU time for tasks of sched_ext beside busy tasks of the fair class (`ext_server`).
pub fn serves_sched_ext() -> bool {
    let Ok(btf) = Btf::from_vmlinux() else { return false };
    let Some(rq) = btf.type_by_name::<Struct>("rq") else { return false };
    rq.iter().any(|member| member.name.is_some_and(|name| name == "ext_server"))
}

/// The obstacle on a kernel whose sched_ext files are in `dir`.
fn in_the_way(release: &str, dir: &Path, types: Option<Types>) -> Option<LiveError> {
    let release = release.to_owned();
    if !dir.is_dir() {
        return Some(match older(&release) {
            true => LiveError::TooOld { release },
            false => LiveError::NoSchedExt { release },
        });
    }
    match types {
        None => Some(LiveError::NoTypes { release }),
        Some(Types { ops: false, .. }) => Some(LiveError::NoSchedExt { release }),
        Some(Types { moves: false, .. }) => Some(LiveError::TooOld { release }),
        Some(_) => loaded(dir),
    }
}

/// Whether a release is older than 6.12, the first one with sched_ext.
fn older(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) < (6, 12),
        _ => false,
    }
}

/// The scheduler that is loaded or being unloaded, as an error.
fn loaded(dir: &Path) -> Option<LiveError> {
    let file = |name: &str| read(&dir.join(name).display().to_string());
    let state = file("state").ok()?;
    let name = file("root/ops").unwrap_or_else(|_| "(unknown)".to_owned());
    match state.as_str() {
        "disabled" => None,
        "disabling" => Some(LiveError::Leaving { name }),
        _ => Some(LiveError::Taken { name }),
    }
}

/// The scheduler that prevents another from being loaded, if there is one.
pub fn taken() -> Option<LiveError> {
    loaded(Path::new(SCHED_EXT))
}

/// How often CPUs came or went since boot. The kernel refuses a scheduler that was prepared for another count.
pub fn hotplug_seq() -> Result<u64, LiveError> {
    let path = format!("{SCHED_EXT}/hotplug_seq");
    let text = read(&path)?;
    text.parse().map_err(|_| LiveError::File { path, reason: format!("{text:?} is not a number") })
}

/// Numbers of all CPUs that the kernel can have.
pub fn possible_cpus() -> Result<Vec<u32>, LiveError> {
    let path = "/sys/devices/system/cpu/possible";
    let text = read(path)?;
    cpu_list(&text).ok_or(LiveError::File {
        path: path.to_owned(),
        reason: format!("{text:?} is not a list of CPUs"),
    })
}

/// Parses a list like `0-3,8`.
fn cpu_list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use std::process::ExitCode;

    use super::*;

    const ALL: Types = Types { ops: true, moves: true };

    /// A folder like the kernel's, with or without a scheduler.
    fn sched_ext(state: &str, name: Option<&str>) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("state"), format!("{state}\n")).unwrap();
        if let Some(name) = name {
            std::fs::create_dir(dir.path().join("root")).unwrap();
            std::fs::write(dir.path().join("root/ops"), format!("{name}\n")).unwrap();
        }
        dir
    }

    /// The obstacle's message, which must be one line with a remedy. The status must be 3.
    fn said(release: &str, dir: &Path, types: Option<Types>) -> String {
        let error = in_the_way(release, dir, types).unwrap();
        assert_eq!(format!("{:?}", error.exit_code()), format!("{:?}", ExitCode::from(3)));
        let text = error.to_string();
        assert!(!text.contains('\n') && text.contains(": "), "{text}");
        text
    }

    #[test]
    fn each_thing_in_the_way_is_told() {
        let free = sched_ext("disabled", None);
        let (free, none) = (free.path(), Path::new("/nonexistent/sched_ext"));
        assert!(in_the_way("6.12.0", free, Some(ALL)).is_none());
        assert!(said("6.12.107+deb13", none, None).contains("CONFIG_SCHED_CLASS_EXT"));
        for old in ["6.11.0-29-generic", "5.10.0"] {
            let text = said(old, none, None);
            assert!(
                text.contains(old) && text.contains("too old") && text.contains("6.12"),
                "{text}"
            );
        }
        assert!(said("6.12.0", free, None).contains("CONFIG_DEBUG_INFO_BTF"));
        let types = Types { ops: false, ..ALL };
        assert!(said("6.12.0", free, Some(types)).contains("CONFIG_SCHED_CLASS_EXT"));
        let types = Types { moves: false, ..ALL };
        assert!(said("6.11.0-patched", free, Some(types)).contains("too old"));
    }

    #[test]
    fn another_scheduler_is_told_by_its_name() {
        let taken = sched_ext("enabled", Some("rusty_1.1.4"));
        assert!(said("7.2.13", taken.path(), Some(ALL)).contains(" rusty_1.1.4 is loaded"));
        let taken = sched_ext("enabling", None);
        assert!(said("7.2.13", taken.path(), Some(ALL)).contains("(unknown)"));
    }

    /// The systemd unit restarts the scheduler after status 1, but not after status 3.
    #[test]
    fn one_that_is_being_unloaded_is_no_lasting_hindrance() {
        let leaving = sched_ext("disabling", Some("rusty_1.1.4"));
        let error = in_the_way("6.16.12", leaving.path(), Some(ALL)).unwrap();
        assert_eq!(error.exit_code(), ExitCode::from(1));
        let text = error.to_string();
        assert!(text.contains("rusty_1.1.4 is being unloaded") && !text.contains('\n'), "{text}");
    }

    #[test]
    fn releases_are_compared_by_their_numbers() {
        for (release, is_older) in
            [("6.12", false), ("6.9.3", true), ("10.0-rc1", false), ("5.99", true), ("odd", false)]
        {
            assert_eq!(older(release), is_older, "{release}");
        }
    }

    #[test]
    fn lists_of_cpus() {
        assert_eq!(cpu_list("0-3,8").unwrap(), [0, 1, 2, 3, 8]);
        assert_eq!(cpu_list("0").unwrap(), [0]);
        assert!(cpu_list("0-x").is_none() && cpu_list("").is_none());
    }
}
