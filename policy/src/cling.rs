//! Groups stay on the node they settled on: `roost/cling.h`.

use crate::rules::functions;

/// `numa_balancing_cling_degree`, percent.
pub const DEGREE: u32 = 20;

/// Time between two decays of all nodes, ns.
pub const PERIOD_NS: u64 = 6_000_000_000;

/// Number of locality buckets in `cpu.numa_stat`, an eighth each.
pub const BUCKETS: usize = 8;

/// `ROOST_NO_NODE`.
const NO_NODE: u32 = u32::MAX;

/// Attempts to reach a node (`struct roost_cling_node`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct NodeAttempts {
    /// Failed attempts times 1024, decayed.
    pub failed: u64,
    /// All attempts times 1024, decayed.
    pub tried: u64,
    /// Failed attempts in percent.
    pub ratio: u64,
}

/// `struct roost_cling_walk`.
#[repr(C)]
struct Walk {
    most: u64,
    busiest: u32,
}

/// Whether a page follows a task (`enum roost_cling_page`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// The page stays.
    Stays,
    /// The page moves.
    Moves,
    /// cling does not decide; the kernel's next check does.
    Undecided,
}

functions! {
    cling
    safe {
        fn policy_cling(do_cling: bool, preferred: u32, src: u32, dst: u32, busy: bool) -> bool;
        fn policy_cling_prefers(do_cling: bool, faults: u64, most: u64, busy: bool) -> bool;
        fn policy_cling_page(do_cling: bool, dst_busy: bool, src_busy: bool) -> u32;
        fn policy_cling_bucket(local: u64, remote: u64) -> u32;
        fn policy_cling_score(memory: u64, all_memory: u64, cpu: u64, all_cpu: u64) -> u64;
        fn policy_cling_fits(claimed: u64, demand: u64, nr_cpus: u32) -> bool;
    }
    pointers {
        fn policy_cling_attempt(node: *mut NodeAttempts, failed: bool);
        fn policy_cling_decay(node: *mut NodeAttempts, nid: u32, walk: *mut Walk);
        fn policy_cling_busy(node: *const NodeAttempts, nid: u32, busiest: u32, degree: u32) -> bool;
    }
}

impl NodeAttempts {
    /// A task tried to reach the node. If it failed, the task has no preferred node now.
    #[inline]
    pub fn attempt(&mut self, failed: bool) {
        // SAFETY: it points to a live struct of the same layout.
        unsafe { policy_cling_attempt(self, failed) }
    }

    /// Whether node number `nid` is too busy for its tasks to stay. `degree`: percent.
    #[inline]
    pub fn busy(&self, nid: u32, busiest: Option<u32>, degree: u32) -> bool {
        // SAFETY: it points to a live struct of the same layout.
        unsafe { policy_cling_busy(self, nid, busiest.unwrap_or(NO_NODE), degree) }
    }
}

/// The timer: the counts of all nodes are halved. `busiest` is the busiest node found last time; returns the busiest
/// node now.
pub fn decay(nodes: &mut [NodeAttempts], busiest: Option<u32>) -> Option<u32> {
    let mut walk = Walk { most: 0, busiest: busiest.unwrap_or(NO_NODE) };
    for (nid, node) in (0..).zip(nodes) {
        // SAFETY: they point to live structs of the same layout.
        unsafe { policy_cling_decay(node, nid, &mut walk) }
    }
    (walk.busiest != NO_NODE).then_some(walk.busiest)
}

/// Whether a task stays on the node `src` instead of moving to `dst`. `do_cling`: its NUMA group is the group of a
/// cgroup.
#[inline]
pub fn clings(do_cling: bool, preferred: Option<u32>, src: u32, dst: u32, src_busy: bool) -> bool {
    policy_cling(do_cling, preferred.unwrap_or(NO_NODE), src, dst, src_busy)
}

/// Whether a node with `faults` faults is preferred to the best node so far, which has `most` faults.
#[inline]
pub fn prefers(do_cling: bool, faults: u64, most: u64, busy: bool) -> bool {
    policy_cling_prefers(do_cling, faults, most, busy)
}

/// Whether a page follows a task from one node to another.
#[inline]
pub fn page(do_cling: bool, dst_busy: bool, src_busy: bool) -> Page {
    match policy_cling_page(do_cling, dst_busy, src_busy) {
        0 => Page::Stays,
        1 => Page::Moves,
        _ => Page::Undecided,
    }
}

/// `cpu.numa_stat`: the bucket, 0 to 7, in which a tick is counted, from a task's local and remote faults.
#[inline]
pub fn bucket(local: u64, remote: u64) -> usize {
    policy_cling_bucket(local, remote) as usize
}

/// Live scheduler: a group's score for a node, 0 to 2000: the node's share of the group's memory plus its share of the
/// group's CPU time.
#[inline]
pub fn score(memory: u64, all_memory: u64, cpu_time: u64, all_cpu_time: u64) -> u64 {
    policy_cling_score(memory, all_memory, cpu_time, all_cpu_time)
}

/// Live scheduler: whether a node of `nr_cpus` CPUs has room for a group. `claimed` (by other groups) and `demand` (of
/// this group) are in CPUs times 1024.
#[inline]
pub fn fits(claimed: u64, demand: u64, nr_cpus: u32) -> bool {
    policy_cling_fits(claimed, demand, nr_cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Section 14.2 of the kernel model.
    #[test]
    fn ratios_after_attempts_and_decay() {
        let mut nodes = [NodeAttempts::default(); 2];
        let ratios = [true, false, true, false, false].map(|failed| {
            nodes[1].attempt(failed);
            nodes[1].ratio
        });
        assert_eq!(ratios, [99, 49, 66, 49, 39]);
        assert_eq!((nodes[1].failed, nodes[1].tried), (2048, 5120));

        assert!(!nodes[1].busy(1, None, DEGREE), "the timer has not named a busiest node yet");
        let busiest = decay(&mut nodes, None);
        assert_eq!(nodes[1], NodeAttempts { failed: 1024, tried: 2560, ratio: 39 });
        assert_eq!(busiest, Some(1));
        assert!(nodes[1].busy(1, busiest, DEGREE));
        assert!(!nodes[1].busy(1, busiest, 39), "more than the degree, not as much");

        let busiest = decay(&mut nodes, busiest);
        assert_eq!(nodes[1], NodeAttempts { failed: 512, tried: 1280, ratio: 39 });
        assert!(!nodes[1].busy(1, busiest, DEGREE));
    }

    /// Section 14.2: 1024 reaches 0 after 11 halvings; after 10 it is 1.
    #[test]
    fn failures_are_forgotten_after_eleven_periods() {
        let mut nodes = [NodeAttempts { failed: 1024, tried: 1024, ratio: 99 }];
        for _ in 0..10 {
            decay(&mut nodes, None);
        }
        assert_eq!(nodes[0].failed, 1);
        assert_eq!(decay(&mut nodes, Some(0)), Some(0), "unchanged if all are 0");
        assert_eq!(nodes[0].failed, 0);
    }

    #[test]
    fn the_first_among_equals_is_busiest() {
        let mut nodes =
            [0, 4096, 8192, 8192].map(|failed| NodeAttempts { failed, tried: 8192, ratio: 0 });
        assert_eq!(decay(&mut nodes, Some(0)), Some(2));
    }

    #[test]
    fn tasks_cling_to_the_preferred_node_only() {
        assert!(clings(true, Some(0), 0, 1, false));
        assert!(!clings(true, Some(0), 0, 1, true), "not to a busy node");
        assert!(!clings(false, Some(0), 0, 1, false), "page-based groups never do");
        assert!(!clings(true, None, 0, 1, false));
        assert!(!clings(true, Some(0), 1, 0, false));
        assert!(!clings(true, Some(0), 1, 2, false));
        assert!(!clings(true, Some(0), 0, 0, false));
    }

    #[test]
    fn a_busy_node_is_not_settled_on() {
        assert!(prefers(true, 5, 4, false));
        assert!(!prefers(true, 5, 4, true));
        assert!(prefers(false, 5, 4, true));
        assert!(!prefers(true, 4, 4, false), "of equal nodes, the first");
    }

    #[test]
    fn pages_leave_busy_nodes_and_do_not_go_there() {
        assert_eq!(page(true, true, true), Page::Stays);
        assert_eq!(page(true, true, false), Page::Stays);
        assert_eq!(page(true, false, true), Page::Moves);
        assert_eq!(page(true, false, false), Page::Undecided);
        assert_eq!(page(false, true, true), Page::Undecided);
    }

    /// 8 * l / (l + r + 1) is never 8. It is 7 only with at least seven local faults.
    #[test]
    fn locality_in_eighths() {
        assert_eq!(
            [(0, 1), (1, 0), (6, 0), (7, 0), (1000, 0)].map(|(l, r)| bucket(l, r)),
            [0, 4, 6, 7, 7]
        );
        assert_eq!(bucket(50, 50), 3);
    }

    #[test]
    fn memory_and_time_decide_where_a_group_belongs() {
        assert_eq!(score(3, 4, 1, 2), 1250);
        assert_eq!(score(0, 0, 1, 2), 500);
        assert_eq!(score(1, 1, 1, 1), 2000);
        assert!(fits(4 * 1024, 4 * 1024, 8));
        assert!(!fits(6 * 1024, 6 * 1024, 8));
    }
}
