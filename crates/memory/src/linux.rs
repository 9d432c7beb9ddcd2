//! A host with a real kernel.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::PAGE;
use crate::host::{Details, Host};
use crate::parse;

/// The real machine.
///
/// `F` lists the first address of each mapping of a process that has no memory policy. The kernel tells that by
/// `/proc/PID/numa_maps`, but then it walks through all pages while it holds the lock of the process's mappings.
#[derive(Debug)]
pub struct Linux<F> {
    without_policy: F,
    proc: PathBuf,
    cgroup: PathBuf,
    /// The root of the unified hierarchy, if it is mounted.
    cgroup_root: Option<File>,
    buffer: Vec<u8>,
    /// Known kernel threads. They have no memory, and on machines with many CPUs they are most of
    /// the processes. Numbers are used again, so this is cleared from time to time.
    kernel_threads: BTreeSet<u32>,
    /// Number of scans of all processes since it was cleared.
    scans: u32,
    /// CPU time that all moves have taken so far.
    moving: Duration,
}

/// Number of scans in [`Host::processes`] after which known kernel threads are forgotten: a minute
/// of the daemon's scans every 5 s. (Assumption: numbers are given out in turn, so a number is used
/// again much later.)
const KNOWN_FOR: u32 = 12;

/// `move_pages(2)`: moves only pages that no other process uses.
const MPOL_MF_MOVE: libc::c_int = 2;

/// The type of a file handle that is the number of a cgroup's directory.
const FILEID_KERNFS: libc::c_int = 0xfe;

/// The part of a mapping that one `PAGEMAP_SCAN` looks at, in bytes, because it holds the lock of the
/// process's mappings: 1 GiB, whose page tables have 262,144 entries. That took 1 ms (measured).
const SCANNED_AT_ONCE: u64 = 1 << 30;

/// `PAGEMAP_SCAN` (`linux/fs.h`, since 6.7): `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::Ioctl = 0xc060_6610_u32 as libc::Ioctl;

/// `PAGE_IS_PRESENT`.
const PAGE_IS_PRESENT: u64 = 1 << 3;

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct ScanArgument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct file_handle` with an eight-byte number.
#[repr(C)]
struct GroupHandle {
    bytes: libc::c_uint,
    kind: libc::c_int,
    group: u64,
}

impl<F: FnMut(u32) -> Option<BTreeSet<u64>>> Linux<F> {
    /// Uses `/proc`, and the unified hierarchy of cgroups where it is mounted.
    pub fn new(without_policy: F) -> Self {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let cgroup = PathBuf::from(parse::unified(&mounts).unwrap_or_default());
        let cgroup_root = File::open(&cgroup).ok();
        Self {
            without_policy,
            proc: PathBuf::from("/proc"),
            cgroup,
            cgroup_root,
            buffer: Vec::new(),
            kernel_threads: BTreeSet::new(),
            scans: 0,
            moving: Duration::ZERO,
        }
    }

    /// The text of a process's file; `None` if the process has ended.
    fn read(&mut self, pid: u32, name: &str) -> Option<String> {
        self.read_path(&self.proc.join(pid.to_string()).join(name))
    }

    fn read_path(&mut self, path: &Path) -> Option<String> {
        self.read_all(File::open(path).ok()?)
    }

    /// The text of a kernel file. (`read_to_end` would ask for the size first, which these files do
    /// not report.)
    fn read_all(&mut self, mut file: File) -> Option<String> {
        let mut length = 0;
        loop {
            if self.buffer.len() - length < PAGE as usize {
                self.buffer.resize(self.buffer.len() * 2 + PAGE as usize, 0);
            }
            match file.read(self.buffer.get_mut(length..)?).ok()? {
                0 => break,
                count => length += count,
            }
        }
        Some(String::from_utf8_lossy(self.buffer.get(..length)?).into_owned())
    }

    fn group_of(&mut self, pid: u32) -> Option<u64> {
        let text = self.read(pid, "cgroup")?;
        let path = parse::cgroup(&text)?.trim_start_matches('/');
        if path.is_empty() || self.cgroup_root.is_none() {
            return None;
        }
        Some(std::fs::metadata(self.cgroup.join(path)).ok()?.ino())
    }

    /// Opens the directory of a cgroup by its number.
    fn open_group(&self, group: u64) -> Option<OwnedFd> {
        let root = self.cgroup_root.as_ref()?;
        let mut handle = GroupHandle { bytes: 8, kind: FILEID_KERNFS, group };
        // SAFETY: the handle is as long as it says; the result is checked.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_open_by_handle_at,
                root.as_raw_fd(),
                &raw mut handle,
                libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC,
            )
        };
        // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
        (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as i32) })
    }

    /// Addresses at which a process can have pages, for kernels that are too old to report them or
    /// have no `/proc/PID/pagemap`. Later calls show whether there are pages. Empty if the process
    /// has ended.
    fn perhaps_present(&mut self, pid: u32, range: Range<u64>, most: usize) -> (Vec<u64>, u64) {
        // An ended process that waits for its parent has no memory either.
        let size = self.read(pid, "statm").and_then(|text| parse::statm(&text));
        if size.is_none_or(|(size, _)| size == 0) {
            return (Vec::new(), range.end);
        }
        let pages = first_pages(&range, most);
        (pages.clone().step_by(PAGE as usize).collect(), pages.end)
    }

    /// `move_pages(2)` for pages of 4 KiB. Returns the status of each. If the call fails half-way,
    /// for example because a node is full, the remaining pages have no status.
    fn move_pages(&self, pid: u32, addresses: &[u64], target: Option<u32>) -> Vec<i32> {
        let mut status = vec![-libc::ENOENT; addresses.len()];
        let nodes = target.map(|node| vec![node as libc::c_int; addresses.len()]);
        // SAFETY: all arrays have as many entries as the call says.
        unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                pid as libc::pid_t,
                addresses.len(),
                addresses.as_ptr(),
                nodes.as_ref().map_or(std::ptr::null(), |nodes| nodes.as_ptr()),
                status.as_mut_ptr(),
                MPOL_MF_MOVE,
            );
        }
        status
    }
}

/// CPU time of this thread. The clock always exists; if it cannot be read, no time passes.
fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes a timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// All pages and resident pages. Only one read, because this is done for every process on the
/// machine.
fn sizes(proc: &File, pid: u32) -> Option<(u64, u64)> {
    let name = CString::new(format!("{pid}/statm")).ok()?;
    let mut file = open_at(proc.as_raw_fd(), &name)?;
    let mut text = [0; 128];
    let count = file.read(&mut text).ok()?;
    parse::statm(std::str::from_utf8(text.get(..count)?).ok()?)
}

/// The first `most` pages of a range.
fn first_pages(range: &Range<u64>, most: usize) -> Range<u64> {
    range.start..range.end.min(range.start.saturating_add(most as u64 * PAGE))
}

/// Opens a file in a folder.
fn open_at(folder: RawFd, name: &CStr) -> Option<File> {
    // SAFETY: the name ends in 0; the result is checked.
    let fd = unsafe { libc::openat(folder, name.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
    (fd >= 0).then(|| unsafe { File::from_raw_fd(fd) })
}

impl<F: FnMut(u32) -> Option<BTreeSet<u64>>> Host for Linux<F> {
    fn processes(&mut self) -> Vec<(u32, u64)> {
        let (Ok(entries), Ok(proc)) = (std::fs::read_dir(&self.proc), File::open(&self.proc))
        else {
            return Vec::new();
        };
        self.scans = (self.scans + 1) % KNOWN_FOR;
        if self.scans == 0 {
            self.kernel_threads.clear();
        }
        let mut all = Vec::new();
        for entry in entries.flatten() {
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let Some(pid) = pid.filter(|pid| !self.kernel_threads.contains(pid)) else { continue };
            match sizes(&proc, pid) {
                Some((0, _)) => {
                    self.kernel_threads.insert(pid);
                }
                Some((_, resident)) => all.push((pid, resident)),
                None => {}
            }
        }
        all
    }

    fn details(&mut self, pid: u32) -> Option<Details> {
        let allowed = parse::allowed(&self.read(pid, "status")?);
        let started = parse::started(&self.read(pid, "stat")?)?;
        Some(Details { group: self.group_of(pid), allowed, started })
    }

    fn mapped(&mut self, pid: u32) -> Vec<Range<u64>> {
        let text = self.read(pid, "maps").unwrap_or_default();
        parse::maps(&text).into_iter().map(|mapping| mapping.range).collect()
    }

    fn movable(&mut self, pid: u32) -> Vec<Range<u64>> {
        let Some(free) = (self.without_policy)(pid) else { return Vec::new() };
        let maps = parse::maps(&self.read(pid, "maps").unwrap_or_default());
        let own = maps.into_iter().filter(|m| m.own && free.contains(&m.range.start));
        own.map(|mapping| mapping.range).collect()
    }

    fn present(&mut self, pid: u32, range: Range<u64>, most: usize) -> (Vec<u64>, u64) {
        let path = self.proc.join(pid.to_string()).join("pagemap");
        let Ok(pagemap) = File::open(path) else { return self.perhaps_present(pid, range, most) };
        let mut regions = [PageRegion::default(); 64];
        let mut argument = ScanArgument {
            size: size_of::<ScanArgument>() as u64,
            start: range.start,
            end: range.end.min(range.start.saturating_add(SCANNED_AT_ONCE)),
            vec: regions.as_mut_ptr() as u64,
            vec_len: regions.len() as u64,
            max_pages: most as u64,
            category_mask: PAGE_IS_PRESENT,
            return_mask: PAGE_IS_PRESENT,
            ..ScanArgument::default()
        };
        // SAFETY: both structures live until the call returns.
        let found = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut argument) };
        let Ok(found) = usize::try_from(found) else {
            return self.perhaps_present(pid, range, most);
        };
        let regions = regions.iter().take(found);
        let pages = regions.flat_map(|region| (region.start..region.end).step_by(PAGE as usize));
        let walked = argument.walk_end > range.start;
        let next = if walked { argument.walk_end } else { first_pages(&range, most).end };
        (pages.collect(), next)
    }

    fn locate(&mut self, pid: u32, addresses: &[u64]) -> Vec<Option<u32>> {
        let status = self.move_pages(pid, addresses, None);
        status.into_iter().map(|status| u32::try_from(status).ok()).collect()
    }

    fn move_to(&mut self, pid: u32, addresses: &[u64], target: u32) -> u64 {
        let began = thread_time();
        let status = self.move_pages(pid, addresses, Some(target));
        self.moving += thread_time().saturating_sub(began);
        let on_target =
            status.iter().filter(|status| u32::try_from(**status) == Ok(target)).count();
        // The second address in a huge page finds the page busy, because the first one is moving
        // it.
        let busy = addresses.iter().zip(&status).filter(|(_, status)| **status == -libc::EBUSY);
        let busy: Vec<u64> = busy.map(|(address, _)| *address).collect();
        let there = self.locate(pid, &busy).into_iter().filter(|node| *node == Some(target));
        (on_target + there.count()) as u64
    }

    fn moving_ns(&mut self) -> u64 {
        u64::try_from(self.moving.as_nanos()).unwrap_or(u64::MAX)
    }

    fn room(&mut self) -> Vec<(u32, u64)> {
        let path = self.proc.join("zoneinfo");
        parse::zoneinfo(&self.read_path(&path).unwrap_or_default())
    }

    fn group_pages(&mut self, group: u64) -> Option<Vec<(u32, u64)>> {
        let folder = self.open_group(group)?;
        let file = open_at(folder.as_raw_fd(), c"memory.numa_stat")?;
        let text = self.read_all(file)?;
        let nodes = parse::numa_stat(&text);
        Some(nodes.into_iter().map(|(node, bytes)| (node, bytes / PAGE)).collect())
    }

    fn group_path(&mut self, group: u64) -> Option<String> {
        let folder = self.open_group(group)?;
        let link = self.proc.join(format!("self/fd/{}", folder.as_raw_fd()));
        let path = std::fs::read_link(link).ok()?;
        let below = path.strip_prefix(&self.cgroup).ok()?;
        Some(format!("/{}", below.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host that nobody asks for policies.
    fn host() -> Linux<impl FnMut(u32) -> Option<BTreeSet<u64>>> {
        Linux::new(|_| None)
    }

    /// Touches `bytes` of memory that nothing else uses, and keeps it until dropped.
    fn touched(bytes: usize) -> Vec<u8> {
        vec![1_u8; bytes]
    }

    #[test]
    fn own_pages_are_found_where_they_are() {
        let memory = touched(4 << 20);
        let mut host = host();
        let pid = std::process::id();
        let first = (memory.as_ptr() as u64).next_multiple_of(PAGE);
        let range = first..first + (3 << 20);
        let mapped = host.mapped(pid);
        assert!(mapped.iter().any(|m| m.start <= range.start && range.end <= m.end), "{mapped:?}");
        let (pages, next) = host.present(pid, range.clone(), 512);
        assert_eq!((pages.len(), pages[0]), (512, first));
        assert!(next > first && next <= range.end);
        let nodes = host.locate(pid, &[first, 0]);
        assert!(nodes[0].is_some() && nodes[1].is_none(), "{nodes:?}");
        let target = nodes[0].unwrap();
        assert_eq!(host.move_to(pid, &pages, target), 512, "they are there already");
        assert!(host.moving_ns() > 0);
        drop(memory);
    }

    #[test]
    fn this_machine_has_processes_and_room() {
        let mut host = host();
        let pid = std::process::id();
        let all = host.processes();
        assert!(all.iter().any(|(other, pages)| *other == pid && *pages > 0));
        assert!(!host.room().is_empty());
        let details = host.details(pid).unwrap();
        assert!(!details.allowed.cpus.is_empty() && details.started > 0);
        assert_eq!(host.details(pid).unwrap(), details, "the same process");
    }

    /// However large its mappings were: no page is examined.
    #[test]
    fn a_process_that_has_ended_has_no_pages() {
        let mut host = host();
        let range = 0..1 << 44;
        assert_eq!(host.present(u32::MAX >> 1, range.clone(), 512), (Vec::new(), range.end));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let ended = |host: &mut Linux<_>| host.read(child.id(), "stat").unwrap().contains(") Z ");
        while !ended(&mut host) {
            std::thread::yield_now();
        }
        assert_eq!(host.present(child.id(), range.clone(), 512), (Vec::new(), range.end));
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_has_gone_is_nothing() {
        let mut host = host();
        let gone = u32::MAX >> 1;
        assert!(host.details(gone).is_none() && host.mapped(gone).is_empty());
        assert_eq!(host.locate(gone, &[PAGE]), [None]);
        assert_eq!(host.move_to(gone, &[PAGE], 0), 0);
    }
}
