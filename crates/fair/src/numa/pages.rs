//! Decides whether a page follows the task that touched it (`should_numa_migrate_memory`; kernel
//! model, section 12.6).

use roost_engine::{CpuId, HintingFault, TaskId, World};
use roost_machine::PAGE_BYTES;

use super::NodeId;
use super::group::ACTIVE_NODE_FRACTION;
use crate::balance::ms_to_jiffies;
use crate::state::Fair;

/// Number of full scans during which a page follows its private user.
const EARLY_SCANS: u64 = 4;

/// 3.9: pages that a node may receive per interval, and the interval, ms (`ratelimit_pages`,
/// `migrate_interval_millisecs`).
const LIMIT_PAGES: u64 = (128 << 20) / PAGE_BYTES;
const LIMIT_INTERVAL_MS: u64 = 100;

/// 3.9: a node that has received its pages is not scanned for until this long after the interval,
/// ms (`pteupdate_interval_millisecs`).
const NO_SCAN_MS: u64 = 1000;

/// 3.9: pages that a node received in the current interval.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RateLimit {
    pages: u64,
    /// Jiffy at which the interval ends.
    until: u64,
}

impl RateLimit {
    /// `migrate_ratelimited()`: whether scans for the node stop.
    fn stops_scans(&self, now: u64, hz: u32) -> bool {
        now <= self.until + ms_to_jiffies(NO_SCAN_MS, hz) && self.pages >= LIMIT_PAGES
    }

    /// `numamigrate_update_ratelimit()`: receives `pages` unless the interval's limit is exceeded.
    fn takes(&mut self, now: u64, pages: u64, hz: u32) -> bool {
        if now > self.until {
            *self = Self { pages: 0, until: now + ms_to_jiffies(LIMIT_INTERVAL_MS, hz) };
        }
        if self.pages > LIMIT_PAGES {
            return false;
        }
        self.pages += pages;
        true
    }
}

/// A group's faults on a node, which decide about moving memory between two nodes: steps 5 and 6.
#[derive(Clone, Copy, Debug)]
struct Share {
    cpu: i64,
    mem: i64,
}

/// Whether the group's CPU use is much higher on the destination.
fn runs_there(src: Share, dst: Share) -> bool {
    dst.cpu > src.cpu * ACTIVE_NODE_FRACTION
}

/// Whether the ratio of CPU use to memory is higher on the destination by more than a third,
/// compared with the source.
fn uses_more_there(src: Share, dst: Share) -> bool {
    dst.cpu * src.mem * 3 > src.cpu * dst.mem * 4
}

impl Fair {
    /// Whether the faulting page should move to the node of `cpu`.
    pub(super) fn page_follows(
        &self,
        world: &World,
        cpu: CpuId,
        task: TaskId,
        fault: &HintingFault,
    ) -> bool {
        if world.is_memory_bound(task) {
            return false;
        }
        let node = self.numa.node(cpu);
        let last_node = fault.last.map(|last| self.numa.node(last.cpu.into()));
        if !self.features.numa.places_tasks {
            return last_node == Some(node);
        }
        let own = fault.last.is_some_and(|last| last.pid == world.pid(task) as u8);
        let state = &self.numa.tasks[task.index()];
        let early = self.preferred(task).is_none() || state.scan_seq <= EARLY_SCANS;
        if early && (fault.last.is_none() || own) {
            return true;
        }
        if last_node.is_some_and(|last| last != node) {
            return false;
        }
        if own {
            return true;
        }
        let Some(group) = state.group else { return true };
        let group = &self.numa.groups[group as usize];
        let share =
            |node: NodeId| Share { cpu: group.cpu_faults(node), mem: group.mem_faults(node) };
        let (src, dst) = (share(fault.node), share(node));
        if runs_there(src, dst) {
            return true;
        }
        match self.group_decides_page(task, fault.node, node) {
            Some(follows) => follows,
            None => uses_more_there(src, dst),
        }
    }

    /// 3.9: whether scans stop because the node of `cpu` has received too much.
    pub(super) fn is_limited(&self, cpu: CpuId, now: u64) -> bool {
        self.numa.limits[self.numa.node(cpu)].stops_scans(now, self.features.hz)
    }

    /// 3.9: `pages` move to the node of `cpu`, unless it has received enough.
    pub(super) fn within_limit(&mut self, cpu: CpuId, now: u64, pages: u64) -> bool {
        let node = self.numa.node(cpu);
        self.numa.limits[node].takes(now, pages, self.features.hz)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_takes_128_mb_in_100_ms_and_is_then_not_scanned_for_until_a_second_later() {
        let mut limit = RateLimit::default();
        assert!(limit.takes(10, LIMIT_PAGES, 250));
        assert_eq!(limit.until, 10 + 25);
        assert!(limit.stops_scans(35, 250) && limit.stops_scans(35 + 250, 250));
        assert!(!limit.stops_scans(35 + 251, 250));
        assert!(limit.takes(35, 1, 250), "pages that exceed the limit still move");
        assert!(!limit.takes(35, 1, 250) && limit.takes(36, 1, 250), "until the next interval");
        assert!(!limit.stops_scans(36, 250));
    }

    #[test]
    fn memory_follows_a_group_to_where_it_runs() {
        let share = |cpu, mem| Share { cpu, mem };
        assert!(runs_there(share(10, 0), share(31, 100)), "more than three times the CPU use");
        assert!(!runs_there(share(10, 0), share(30, 100)));
        // 3/4 of 20 / 10 compared with 10 / 10, and 3/4 of 13 / 10.
        assert!(uses_more_there(share(10, 10), share(20, 10)));
        assert!(!uses_more_there(share(10, 10), share(13, 10)));
        assert!(
            !uses_more_there(share(0, 0), share(0, 0)) && !runs_there(share(0, 0), share(0, 0))
        );
    }
}
