//! What the daemon sees and does on a host.

use std::ops::Range;

#[cfg(target_os = "linux")]
pub use crate::linux::Linux;
use crate::parse::Allowed;

/// What is known about a process beside its pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// Number of its cgroup's directory in the unified hierarchy, if that is below the root.
    pub group: Option<u64>,
    /// CPUs and nodes that it may use.
    pub allowed: Allowed,
    /// When it started, in the kernel's ticks since boot. A later process with the same number
    /// started later.
    pub started: u64,
}

/// What the daemon sees and does. Anything unknown, for example about a process that has just
/// ended, is empty or `None`.
pub trait Host {
    /// All processes that have memory, with their resident pages.
    fn processes(&mut self) -> Vec<(u32, u64)>;
    /// More about one process.
    fn details(&mut self, pid: u32) -> Option<Details>;
    /// Addresses at which a process can have pages.
    fn mapped(&mut self, pid: u32) -> Vec<Range<u64>>;
    /// Its own mappings without a memory policy, in order.
    fn movable(&mut self, pid: u32) -> Vec<Range<u64>>;
    /// Up to `most` addresses of pages from the beginning of `range`, and the address at which to
    /// continue. That is the end of `range` if the process has ended.
    fn present(&mut self, pid: u32, range: Range<u64>, most: usize) -> (Vec<u64>, u64);
    /// The node of the page at each address; `None` if there is no page.
    fn locate(&mut self, pid: u32, addresses: &[u64]) -> Vec<Option<u32>>;
    /// Moves pages. Returns how many are on `target` afterwards.
    fn move_to(&mut self, pid: u32, addresses: &[u64], target: u32) -> u64;
    /// CPU time that all moves have taken so far, ns.
    fn moving_ns(&mut self) -> u64;
    /// Number of pages that each node can take.
    fn room(&mut self) -> Vec<(u32, u64)>;
    /// Pages that a cgroup uses on each node, if it accounts for them.
    fn group_pages(&mut self, group: u64) -> Option<Vec<(u32, u64)>>;
    /// Path of a cgroup below the root of its hierarchy.
    fn group_path(&mut self, group: u64) -> Option<String>;
}
