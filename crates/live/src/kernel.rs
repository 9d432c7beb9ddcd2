//! Whether the running kernel can be used at all.

use std::path::Path;

use libbpf_rs::btf::{Btf, types::Struct};

use crate::error::LiveError;

const SCHED_EXT: &str = "/sys/kernel/sched_ext";

/// The kernel's release (`uname -r`).
pub fn release() -> String {
    read("/proc/sys/kernel/osrelease").unwrap_or_else(|_| "unknown".to_owned())
}

/// A small file of the kernel, without the end of the line.
pub fn read(path: &str) -> Result<String, LiveError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(error) => Err(LiveError::File { path: path.to_owned(), reason: error.to_string() }),
    }
}

/// Finds what is in the way of loading, without trying.
pub fn check() -> Result<(), LiveError> {
    // SAFETY: no arguments, cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return Err(LiveError::NotRoot);
    }
    if !Path::new(SCHED_EXT).is_dir() {
        return Err(LiveError::NoSchedExt { release: release() });
    }
    check_age()?;
    match loaded() {
        Some(name) => Err(LiveError::Taken { name }),
        None => Ok(()),
    }
}

/// Looks in the kernel's type information for what 6.13 brought.
fn check_age() -> Result<(), LiveError> {
    let too_old = |missing| LiveError::TooOld { release: release(), missing };
    let btf =
        Btf::from_vmlinux().map_err(|_| too_old("type information (CONFIG_DEBUG_INFO_BTF)"))?;
    if btf.type_by_name::<Struct>("sched_ext_ops").is_none() {
        return Err(LiveError::NoSchedExt { release: release() });
    }
    match btf.type_by_name::<libbpf_rs::btf::types::Func>("scx_bpf_dsq_insert") {
        Some(_) => Ok(()),
        None => Err(too_old("scx_bpf_dsq_insert()")),
    }
}

/// The name of the scheduler that is loaded. One that is being unloaded gets a moment to go.
fn loaded() -> Option<String> {
    for _ in 0..20 {
        match read(&format!("{SCHED_EXT}/state")).ok()?.as_str() {
            "disabled" => return None,
            "disabling" => std::thread::sleep(std::time::Duration::from_millis(50)),
            _ => break,
        }
    }
    Some(read(&format!("{SCHED_EXT}/root/ops")).unwrap_or_else(|_| "(unknown)".to_owned()))
}

/// How often CPUs came or went since boot: the kernel refuses a scheduler that saw other CPUs.
pub fn hotplug_seq() -> Result<u64, LiveError> {
    let path = format!("{SCHED_EXT}/hotplug_seq");
    let text = read(&path)?;
    text.parse().map_err(|_| LiveError::File { path, reason: format!("{text:?} is no number") })
}

/// Numbers of the CPUs that the kernel could have.
pub fn possible_cpus() -> Result<Vec<u32>, LiveError> {
    let path = "/sys/devices/system/cpu/possible";
    let text = read(path)?;
    cpu_list(&text)
        .ok_or(LiveError::File { path: path.to_owned(), reason: format!("{text:?} is no list") })
}

/// A list like `0-3,8`.
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
    use super::*;

    #[test]
    fn lists_of_cpus() {
        assert_eq!(cpu_list("0-3,8").unwrap(), [0, 1, 2, 3, 8]);
        assert_eq!(cpu_list("0").unwrap(), [0]);
        assert!(cpu_list("0-x").is_none() && cpu_list("").is_none());
    }
}
