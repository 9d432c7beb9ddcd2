//! The scanner: marks the pages of a process part by part while its threads run (`task_tick_numa`,
//! `task_numa_work`).

use roost_engine::{Area, CpuId, Marked, TaskId, World};

use super::NodeId;
use super::period::{self, GroupUse};
use crate::balance::ms_to_jiffies;
use crate::state::Fair;
use crate::tunables;

/// Limit of the address space that a scan passes over, in scan sizes.
const VIRTUAL_SCANS: u64 = 8;

/// The end of a part is aligned to a multiple of this many pages (HPAGE_SIZE).
const HUGE_PAGES: u64 = 512;

/// Minimum run time for each unit of scan time, so scans take at most 3 %.
const OVERHEAD_LIMIT: u64 = 32;

/// Number of full scans that include every area, used or not.
const UNCONDITIONAL_SCANS: u64 = 2;

/// 3.9: time after which the period is reset to the shortest, ms.
const OLD_PERIOD_RESET_MS: u64 = 100 * 600;

/// 3.9: a fault whose page stays makes the period longer by this many jiffies, taken as ms. Memory
/// of the size that is scanned is in huge pages, and each of them is one fault
/// (`do_huge_pmd_numa_page`). Assumption: transparent huge pages are on, the kernel's default.
const OLD_STEP_JIFFIES: u64 = 10;

/// State of scanning a process's address space.
#[derive(Clone, Debug, Default)]
pub(super) struct ScannedProcess {
    /// Tasks, sleeping ones included.
    pub threads: u64,
    /// Number of full scans that have ended.
    pub seq: u64,
    /// Jiffy before which no thread scans.
    pub next_scan: u64,
    /// Where the next scan begins: area, and page in it.
    offset: (usize, u64),
    areas: Vec<AreaScans>,
    /// 3.9: the first node on which the process ran, until it runs on a second one.
    first_node: FirstNode,
    /// 3.9: jiffy after which the period is reset to the shortest.
    next_reset: u64,
}

/// `mm->first_nid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstNode {
    /// The node of the first thread that shall scan (NUMA_PTE_SCAN_INIT).
    Unknown,
    Only(NodeId),
    /// The process has run on a second node (NUMA_PTE_SCAN_ACTIVE).
    Several,
}

/// The state after exec: `mm_alloc()` clears the whole structure.
impl Default for FirstNode {
    fn default() -> Self {
        Self::Only(0)
    }
}

impl FirstNode {
    /// The state of a new process: only after fork (`dup_mm()`) it is unknown.
    fn of(forked: bool) -> Self {
        if forked { Self::Unknown } else { Self::default() }
    }

    /// A thread on `node` shall scan.
    fn seen_on(self, node: NodeId) -> Self {
        match self {
            Self::Unknown => Self::Only(node),
            Self::Only(first) if first != node => Self::Several,
            known => known,
        }
    }
}

/// Scan state of an area (`vma_numab_state`, 6.4 and later).
#[derive(Clone, Copy, Debug, Default)]
struct AreaScans {
    known: bool,
    start_seq: u64,
    prev_seq: Option<u64>,
    next_scan: u64,
    /// Tasks with a fault in it, by hash, in this and the previous interval; and the start of the
    /// next interval.
    active: [u64; 2],
    active_reset: u64,
}

/// The bit of a task in the sets of [`AreaScans::active`] (`hash_32(pid, 6)`).
fn pid_bit(pid: u32) -> u64 {
    1 << (pid.wrapping_mul(0x61C8_8647) >> 26)
}

/// Run time after which a new thread scans first, so that threads take turns
/// (`init_numa_balancing`). The kernel takes the smaller of a number in ms and a number in ns.
pub(super) fn stagger_ns(max_ms: u64, period_ms: u64, threads: u64, tick_ns: u64) -> u64 {
    let periods = (period_ms * threads * 1_000_000) as u32;
    u64::from((max_ms as u32).min(periods)) + 2 * tick_ns
}

/// How much a part of `passed` pages takes off the pages still to be marked: all of it if something
/// was marked. In 3.9 the pages that are present, whether already marked or not:
/// `change_pmd_range()` counts every huge page for which `change_huge_pmd()` has the lock. (Mel
/// Gorman calls this a bug in the patch that removes it, 13/27, 2013-08-08.)
fn spent(marked: Marked, passed: i64, placement: bool) -> i64 {
    match (placement, marked.pages) {
        (true, 0) => 0,
        (true, _) => passed,
        (false, _) => marked.present as i64,
    }
}

/// A scan under way.
struct Scan {
    cpu: CpuId,
    task: TaskId,
    process: u32,
    now: u64,
    area: usize,
    page: u64,
    /// Pages still to be marked, and still to be passed over.
    pages: i64,
    virtual_pages: i64,
    /// Some area was skipped because the task does not use it; and: one area is scanned although
    /// unused.
    skipped: bool,
    forced: bool,
    marked: u64,
}

/// How the walk over areas ended.
#[derive(PartialEq, Eq)]
enum Walk {
    /// Enough was marked.
    Enough,
    /// There are no more areas.
    End,
}

impl Fair {
    /// A task joins its process. Returns the number of tasks the process then has.
    pub(super) fn join_scanned(&mut self, world: &World, process: u32) -> u64 {
        let now = self.jiffies(world.now());
        let delay = if self.features.numa.places_tasks { self.tunables().delay_ms } else { 0 };
        let next_scan = now + ms_to_jiffies(delay.into(), self.features.hz);
        let first_node = FirstNode::of(world.is_forked(process));
        let processes = &mut self.numa.processes;
        if processes.len() <= process as usize {
            processes.resize_with(process as usize + 1, ScannedProcess::default);
        }
        let process = &mut processes[process as usize];
        if process.threads == 0 {
            let begun = ScannedProcess { next_scan, first_node, ..ScannedProcess::default() };
            *process = ScannedProcess { next_reset: now, ..begun };
        }
        process.threads += 1;
        process.threads
    }

    /// The settings of scans.
    fn tunables(&self) -> &tunables::Scan {
        &self.features.tunables.scan
    }

    /// `task_scan_min` of a process.
    pub(super) fn scan_min(&self, world: &World, process: u32) -> u64 {
        period::scan_min(self.tunables(), world.resident_pages(process))
    }

    /// `task_scan_max` of a process, for a member of a group.
    pub(super) fn scan_max(&self, world: &World, process: u32, group: Option<u32>) -> u64 {
        period::scan_max(self.tunables(), world.resident_pages(process), self.group_use(group))
    }

    /// `task_scan_start` of a task.
    pub(super) fn scan_start(&self, world: &World, task: TaskId) -> u64 {
        let group = self.group_use(self.numa.tasks[task.index()].group);
        period::scan_start(self.tunables(), world.resident_pages(world.process(task)), group)
    }

    fn group_use(&self, group: Option<u32>) -> Option<GroupUse> {
        // The scan periods of a group that has settled are not stretched.
        let group = group.filter(|&group| !self.mechanisms.is_settled(group));
        group.map(|group| self.numa.groups[group as usize].usage())
    }

    /// At the tick of `cpu`: its task shall scan if it has run for a period since its last scan. It
    /// scans when it is about to return to user mode.
    pub(crate) fn tick_numa(&mut self, world: &mut World, cpu: CpuId) {
        let Some(task) = self.rqs[cpu].current.filter(|_| self.numa.active) else { return };
        self.on_numa_tick(world, cpu, task);
        let (now, ran) = (self.jiffies(world.now()), self.tasks[task.index()].sum_exec);
        let due = now >= self.numa.processes[world.process(task) as usize].next_scan;
        let state = &self.numa.tasks[task.index()];
        if state.work || ran.saturating_sub(state.node_stamp) <= state.period * 1_000_000 {
            return;
        }
        let first = state.node_stamp == 0;
        let start = match (first, self.features.numa.places_tasks) {
            (false, _) => state.period,
            (true, true) => self.scan_start(world, task),
            (true, false) => self.tunables().period_min_ms.into(),
        };
        let placement = self.features.numa.places_tasks;
        let state = &mut self.numa.tasks[task.index()];
        let passed = state.period * 1_000_000;
        state.node_stamp = if placement { state.node_stamp + passed } else { ran };
        state.period = start;
        state.work = due;
    }

    /// `task` returns to user mode on `cpu`: does the scan that its tick asked for.
    #[inline]
    pub(crate) fn numa_work(&mut self, world: &mut World, cpu: CpuId, task: TaskId) {
        if self.numa.active && std::mem::take(&mut self.numa.tasks[task.index()].work) {
            self.scan(world, cpu, task);
        }
    }

    #[cold]
    fn scan(&mut self, world: &mut World, cpu: CpuId, task: TaskId) {
        let (process, now) = (world.process(task), self.jiffies(world.now()));
        if !self.features.numa.places_tasks && !self.may_scan_old(process, task, cpu, now) {
            return;
        }
        // `vma_policy_mof()`, since 3.13.
        if self.features.numa.places_tasks && world.is_memory_bound(task) {
            return;
        }
        let hz = self.features.hz;
        let of = &mut self.numa.processes[process as usize];
        if now < of.next_scan {
            return;
        }
        let state = &mut self.numa.tasks[task.index()];
        of.next_scan = now + ms_to_jiffies(state.period, hz);
        if self.features.numa.places_tasks {
            state.node_stamp += 2 * self.tick_ns;
        } else if self.is_limited(cpu, now) {
            return;
        }
        let (area, page) = self.numa.processes[process as usize].offset;
        let pages = period::pages(self.tunables());
        let mut scan = Scan {
            cpu,
            task,
            process,
            now,
            area,
            page,
            pages: pages as i64,
            virtual_pages: (pages * VIRTUAL_SCANS) as i64,
            skipped: false,
            forced: false,
            marked: 0,
        };
        self.scan_areas(world, &mut scan);
        if self.features.numa.places_tasks {
            let spent = scan.marked * world.machine().figures.page_mark_ns.value;
            self.numa.tasks[task.index()].node_stamp += OVERHEAD_LIMIT * spent;
        }
    }

    /// Marks pages from the offset on, and stores where it ended.
    fn scan_areas(&mut self, world: &mut World, scan: &mut Scan) {
        let mut end = self.walk(world, scan);
        if end == Walk::End && scan.skipped {
            // No area is left out for ever: one is scanned now.
            scan.forced = true;
            (scan.area, scan.page) = self.numa.processes[scan.process as usize].offset;
            end = self.walk(world, scan);
        }
        let process = &mut self.numa.processes[scan.process as usize];
        match end {
            Walk::Enough => process.offset = (scan.area, scan.page),
            Walk::End => process.begin_again(),
        }
    }

    fn walk(&mut self, world: &mut World, scan: &mut Scan) -> Walk {
        if past_end(world, scan) {
            self.numa.processes[scan.process as usize].begin_again();
            (scan.area, scan.page) = (0, 0);
        }
        while let Some(area) = world.area(scan.process, scan.area) {
            let wanted = scan.page < area.pages && self.wants_area(world, scan);
            if wanted {
                if self.mark_area(world, scan, area) {
                    return Walk::Enough;
                }
                let of = &mut self.numa.processes[scan.process as usize];
                let seq = of.seq;
                of.area(scan.area).prev_seq = Some(seq);
                if scan.forced {
                    return Walk::Enough;
                }
            }
            (scan.area, scan.page) = (scan.area + 1, 0);
        }
        Walk::End
    }

    /// Marks an area from the scan's page on. Returns whether enough was marked.
    fn mark_area(&mut self, world: &mut World, scan: &mut Scan, area: Area) -> bool {
        let threads = self.numa.processes[scan.process as usize].threads;
        let single = threads == 1 && !area.shared && self.features.numa.places_tasks;
        // Pages on the node of the only thread need no fault.
        let except = single.then(|| self.numa.node(scan.cpu));
        while scan.page < area.pages {
            let end = (scan.page + scan.pages.max(1) as u64).next_multiple_of(HUGE_PAGES);
            let end = end.min(area.pages);
            let range = scan.page..end;
            let marked = world.mark_pages(scan.cpu, scan.process, scan.area, range, except);
            let passed = (end - scan.page) as i64;
            scan.marked += marked.pages;
            scan.virtual_pages -= passed;
            scan.pages -= spent(marked, passed, self.features.numa.places_tasks);
            scan.page = end;
            if scan.pages <= 0 || (scan.virtual_pages <= 0 && self.features.numa.places_tasks) {
                return true;
            }
        }
        false
    }

    /// Whether the scan takes an area (6.4 and later). Areas that this task does not use are left
    /// to other tasks.
    fn wants_area(&mut self, world: &World, scan: &mut Scan) -> bool {
        if !self.features.numa.area_skip {
            return true;
        }
        let delay = ms_to_jiffies(self.tunables().delay_ms.into(), self.features.hz);
        let bit = pid_bit(world.pid(scan.task));
        let process = &mut self.numa.processes[scan.process as usize];
        let (seq, threads, offset) = (process.seq, process.threads, process.offset);
        let area = process.area(scan.area);
        if !area.known {
            let next_scan = scan.now + delay;
            let active_reset = next_scan + 4 * delay;
            *area = AreaScans {
                known: true,
                start_seq: seq,
                next_scan,
                active_reset,
                ..AreaScans::default()
            };
        }
        if seq > 0 && scan.now < area.next_scan {
            return false;
        }
        if seq > 0 && scan.now > area.active_reset {
            area.active_reset += 4 * delay;
            area.active = [area.active[1], 0];
        }
        if area.prev_seq == Some(seq) {
            process.offset = (scan.area + 1, 0);
            return false;
        }
        let used = (area.active[0] | area.active[1]) & bit != 0;
        let begun = offset.0 == scan.area && offset.1 > 0;
        let forgotten = match area.prev_seq {
            Some(prev) => seq > prev + threads,
            // The kernel initialises the last scan to the one before the first.
            None => seq + 1 > area.start_seq + threads,
        };
        let wanted =
            scan.forced || seq - area.start_seq < UNCONDITIONAL_SCANS || used || begun || forgotten;
        scan.skipped |= !wanted;
        wanted
    }

    /// A task had a fault in an area of its process (`vma_set_access_pid_bit`).
    pub(super) fn note_user(&mut self, world: &World, task: TaskId, area: u32) {
        if self.features.numa.area_skip {
            let process = &mut self.numa.processes[world.process(task) as usize];
            process.area(area as usize).active[1] |= pid_bit(world.pid(task));
        }
    }

    /// 3.9: a forked process is scanned once it has run on two nodes, a program after exec once it
    /// has run off node 0. From time to time the period is reset.
    fn may_scan_old(&mut self, process: u32, task: TaskId, cpu: CpuId, now: u64) -> bool {
        let node = self.numa.node(cpu);
        let shortest = self.tunables().period_min_ms.into();
        let of = &mut self.numa.processes[process as usize];
        of.first_node = of.first_node.seen_on(node);
        if of.first_node != FirstNode::Several {
            return false;
        }
        if now > of.next_reset {
            of.next_reset = now + ms_to_jiffies(OLD_PERIOD_RESET_MS, self.features.hz);
            self.numa.tasks[task.index()].period = shortest;
        }
        true
    }

    /// 3.9: pages of a fault did not move, so the task scans more slowly.
    pub(crate) fn lengthen_old_period(&mut self, task: TaskId, pages: u64) {
        let step = OLD_STEP_JIFFIES * 1000 / u64::from(self.features.hz);
        let longest = self.tunables().period_max_ms.into();
        let state = &mut self.numa.tasks[task.index()];
        let longer = (pages * step).div_ceil(HUGE_PAGES);
        state.period = (state.period + longer).min(longest);
    }
}

impl ScannedProcess {
    /// A full scan has ended.
    fn begin_again(&mut self) {
        self.seq += 1;
        self.offset = (0, 0);
    }

    fn area(&mut self, area: usize) -> &mut AreaScans {
        if self.areas.len() <= area {
            self.areas.resize_with(area + 1, AreaScans::default);
        }
        &mut self.areas[area]
    }
}

/// Whether the scan would begin beyond the last area.
fn past_end(world: &World, scan: &Scan) -> bool {
    let last = world.area(scan.process, scan.area);
    let rest = last.is_some_and(|area| scan.page < area.pages);
    !rest && world.area(scan.process, scan.area + 1).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_threads_scan_after_60_us_and_two_ticks() {
        // The longest period in ms, 60000, is taken as ns.
        assert_eq!(stagger_ns(60_000, 1000, 2, 4_000_000), 8_060_000);
        assert_eq!(stagger_ns(937, 1000, 2, 4_000_000), 8_000_937);
    }

    #[test]
    fn a_program_has_run_on_node_0_and_a_copy_nowhere() {
        let several = |forked: bool, nodes: &[NodeId]| {
            let seen = nodes.iter().fold(FirstNode::of(forked), |first, &node| first.seen_on(node));
            seen == FirstNode::Several
        };
        assert!(!several(false, &[0, 0]) && several(false, &[1]) && several(false, &[0, 1]));
        assert!(!several(true, &[1, 1]) && several(true, &[1, 0]) && several(true, &[0, 1]));
    }

    #[test]
    fn in_3_9_huge_pages_that_are_marked_already_count_as_marked() {
        let marked = |pages, present| Marked { pages, present };
        assert_eq!(spent(marked(0, 512), 1024, false), 512);
        assert_eq!(spent(marked(512, 512), 1024, false), 512);
        assert_eq!(spent(marked(0, 0), 1024, false), 0, "no page is present");
        assert_eq!(spent(marked(0, 512), 1024, true), 0);
        assert_eq!(spent(marked(64, 512), 1024, true), 1024);
    }

    #[test]
    fn tasks_have_a_bit_each_as_long_as_there_are_few() {
        let bits: Vec<u64> = (1..9).map(pid_bit).collect();
        assert!(bits.iter().all(|bit| bit.count_ones() == 1));
        assert_eq!(bits.iter().fold(0, |all, bit| all | bit).count_ones(), 8);
    }
}
