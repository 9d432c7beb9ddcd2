//! How often a task scans (`task_scan_min`, `task_scan_max`, `update_task_scan_period`). Pure
//! functions; periods in ms of the task's run time.

use roost_machine::PAGE_BYTES;

use crate::tunables::Scan;

/// Highest scan rate of a process, MB per second (MAX_SCAN_WINDOW).
const MAX_SCAN_WINDOW: u64 = 2560;

/// Number of slots in a period; it changes by whole slots (NUMA_PERIOD_SLOTS).
const SLOTS: u64 = 10;

/// Share of local or private faults, in slots, from which the period becomes longer
/// (NUMA_PERIOD_THRESHOLD).
const THRESHOLD: u64 = 7;

/// What scan periods need to know of a task's group.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupUse {
    pub refs: u64,
    /// Faults of the group on memory, by kind.
    pub shared: i64,
    pub private: i64,
}

impl GroupUse {
    /// Stretches a period for the whole group, because each of its tasks does a part.
    fn scaled(self, period: u64) -> u64 {
        let (shared, private) = (self.shared.max(0) as u64, self.private.max(0) as u64);
        period * self.refs * (shared + 1) / (private + shared + 1)
    }
}

/// Most pages that one scan marks.
pub(super) fn pages(scan: &Scan) -> u64 {
    (u64::from(scan.size_mb) << 20) / PAGE_BYTES
}

/// Number of scans that cover the whole process.
fn windows(scan: &Scan, resident_pages: u64) -> u64 {
    resident_pages.div_ceil(pages(scan)).max(1)
}

/// `task_scan_min`.
pub(super) fn scan_min(scan: &Scan, resident_pages: u64) -> u64 {
    // A process larger than one second's worth is scanned with one window per second.
    let floor = 1000 / (MAX_SCAN_WINDOW / u64::from(scan.size_mb)).max(1);
    floor.max(u64::from(scan.period_min_ms) / windows(scan, resident_pages))
}

/// `task_scan_max`.
pub(super) fn scan_max(scan: &Scan, resident_pages: u64, group: Option<GroupUse>) -> u64 {
    let alone = u64::from(scan.period_max_ms) / windows(scan, resident_pages);
    let max = group.map_or(alone, |group| alone.max(group.scaled(alone)));
    max.max(scan_min(scan, resident_pages))
}

/// `task_scan_start`.
pub(super) fn scan_start(scan: &Scan, resident_pages: u64, group: Option<GroupUse>) -> u64 {
    let min = scan_min(scan, resident_pages);
    group.map_or(min, |group| min.max(group.scaled(min)))
}

/// A task's faults in a window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    pub local: u64,
    pub remote: u64,
    /// Pages that failed to move.
    pub failed: u64,
    pub shared: u64,
    pub private: u64,
}

/// The next period. `None` doubles it and postpones the next scan, because no fault was seen or
/// moving failed.
pub(super) fn adapted(period: u64, window: Window, min: u64, max: u64) -> Option<u64> {
    let Window { local, remote, failed, shared, private } = window;
    if local + shared == 0 || failed > 0 {
        return None;
    }
    let slot = period.div_ceil(SLOTS);
    // All faults of the window may have been counted before the locality was cleared.
    let local = local * SLOTS / (local + remote).max(1);
    let private = private * SLOTS / (private + shared).max(1);
    let longer = |ratio: u64| period + (ratio - THRESHOLD).max(1) * slot;
    let next = if private >= THRESHOLD {
        longer(private)
    } else if local >= THRESHOLD {
        longer(local)
    } else {
        period.saturating_sub((THRESHOLD - local.max(private)) * slot)
    };
    Some(next.clamp(min, max.max(min)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tunables::Tunables;

    const SCAN: Scan = Tunables::SINCE_5_2.scan;

    /// Section 12.1: RSS in MB, shortest and longest period in ms.
    #[test]
    fn periods_follow_from_the_resident_set() {
        let periods = |mb: u64| {
            let pages = (mb << 20) / PAGE_BYTES;
            (scan_min(&SCAN, pages), scan_max(&SCAN, pages, None))
        };
        assert_eq!(periods(100), (1000, 60_000));
        assert_eq!(periods(1024), (250, 15_000));
        assert_eq!(periods(2560), (100, 6000));
        assert_eq!(periods(16_384), (100, 937));
        assert_eq!(periods(0), (1000, 60_000));
    }

    #[test]
    fn a_group_shares_the_work_as_far_as_its_memory_is_shared() {
        let group = |shared, private| Some(GroupUse { refs: 10, shared, private });
        assert_eq!(scan_start(&SCAN, 0, group(99, 0)), 10_000);
        assert_eq!(scan_start(&SCAN, 0, group(0, 9)), 1000, "10 tasks, one tenth shared");
        assert_eq!(scan_start(&SCAN, 0, group(0, 99)), 1000);
        assert_eq!(scan_max(&SCAN, 0, group(49, 50)), 300_000);
        assert_eq!(scan_max(&SCAN, 0, group(0, 1_000_000)), 60_000);
    }

    /// Section 12.3: period, local and private tenths.
    #[test]
    fn periods_adapt_to_what_was_seen() {
        let next = |period: u64, local: u64, private: u64| {
            let window = Window {
                local: 10 * local,
                remote: 100 - 10 * local,
                private: 10 * private,
                shared: 100 - 10 * private,
                failed: 0,
            };
            adapted(period, window, 100, 60_000).unwrap()
        };
        assert_eq!(next(1000, 9, 9), 1200);
        assert_eq!(next(2000, 3, 4), 1400);
        assert_eq!(next(2000, 7, 5), 2200);
        assert_eq!(next(1000, 0, 7), 1100, "a ratio at the threshold counts one slot");
        assert_eq!(next(100, 0, 0), 100, "not below the shortest");
        assert_eq!(next(60_000, 10, 10), 60_000, "nor above the longest");
    }

    #[test]
    fn without_faults_or_after_failures_the_scan_is_put_off() {
        assert_eq!(adapted(1000, Window::default(), 100, 60_000), None);
        let remote_private = Window { remote: 5, private: 5, ..Window::default() };
        assert_eq!(adapted(1000, remote_private, 100, 60_000), None);
        let failed = Window { local: 5, shared: 5, failed: 1, ..Window::default() };
        assert_eq!(adapted(1000, failed, 100, 60_000), None);
    }
}
