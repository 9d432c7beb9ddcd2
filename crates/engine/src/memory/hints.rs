//! Hinting marks: the next access to a marked page tells the scheduler which task uses it (the
//! kernel's `PAGE_NONE` entries of NUMA balancing).
//!
//! A scheduler marks present pages of a process ([`World::mark_pages`]). The first sweep of that
//! process to reach a marked group of pages clears its mark and calls
//! [`Scheduler::hinting_fault`](crate::Scheduler::hinting_fault). Pages come in groups of
//! [`GROUP_PAGES`], as for placement. A group counts and costs as much as all its pages.
//!
//! A sweep touches its regions from the first byte to the last, all of them in proportion. So a
//! group `g` of a region of `b` bytes is reached when the share `g * GROUP_BYTES / b` of the sweep
//! is done, and the sweep stops there ([`Stop`]). Marks behind its position wait for the next
//! sweep. A sweep over unmarked memory reads one counter per region. A sweep over blocks at random
//! places reaches any of the marked pages next, the sooner the more of them there are.
//!
//! If memory is mapped in huge pages ([`Scheduler::huge_pages`](crate::Scheduler::huge_pages)), the
//! groups of a huge page belong together: one page-table entry marks them, and one fault takes all
//! of their marks. Its node is the node of the group that was reached.
//!
//! A page may be moved under a lock ([`World::begin_move`]), as huge pages are. The page is locked
//! until the kernel's work for it is done. A task that reaches it meanwhile faults as well. Either
//! it wants the page too and sleeps until the move is done ([`World::await_move`]), or it uses the
//! page, and the move is given up.
//!
//! Pages of 4 KiB move one by one. Threads that sweep over the same marked memory at the same time
//! reach each page together. One isolates it; the others find it still marked, fault, leave it and
//! go on to the next page. So if `k` threads move a round of `k` pages, every thread but the first
//! leaves one. In the simulation one thread takes the group they are at, the next thread the group
//! behind it, and so on. The thread that moves the last of `k` such groups has `(k - 1) / k` more
//! faults for each of its pages ([`World::move_faulting`]).
//!
//! Processes map regions into *areas* (the kernel's VMAs). Neighbouring anonymous mappings merge,
//! so all regions private to a process are one area. Each region that processes share is another
//! area. Regions with their own memory policy are in no area, because the kernel leaves them where
//! they are. Every region is writable, and is written when it is first touched.

use std::ops::Range;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::Rng;
use roost_machine::PAGE_BYTES;

use super::pages::{GROUP_PAGES, NOWHERE, Policy};
use super::{Memory, Region};
use crate::scheduler::{CpuId, HintingFault, LastAccess, TaskId};
use crate::task::Activity;
use crate::time::Time;
use crate::world::World;

/// Groups in a huge page of x86, 2 MiB.
const HUGE_GROUPS: usize = ((2 << 20) / GROUP_BYTES) as usize;

/// Bytes of a group of pages.
const GROUP_BYTES: u64 = GROUP_PAGES * PAGE_BYTES;

/// Bytes of a block of [`Pattern::RandomBlocks`](roost_workload::Pattern::RandomBlocks).
const RANDOM_BLOCK_BYTES: u64 = 8192;

/// The part of a region, 1 / 64, that has to move before the sweeps over it are priced again.
const REPRICED_PART: u64 = 64;

/// A process's address space.
#[derive(Default)]
pub(super) struct Space {
    areas: Vec<AreaOf>,
    /// All its regions, also those without an area.
    pub(super) regions: Vec<u32>,
}

impl Space {
    /// Whether a region is private to the process and has no policy of its own.
    pub(super) fn is_own(&self, region: u32) -> bool {
        self.areas.iter().any(|area| !area.shared && area.regions.contains(&region))
    }
}

struct AreaOf {
    /// Instances of regions in order of address.
    regions: Vec<u32>,
    shared: bool,
}

/// A mapping of a process that a scanner may mark ([`World::area`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Its size in pages, present or not.
    pub pages: u64,
    /// Whether several processes may map it.
    pub shared: bool,
}

/// What a scanner found in a range of pages ([`World::mark_pages`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marked {
    /// Pages that were marked.
    pub pages: u64,
    /// Pages that are on some node, marked already or not.
    pub present: u64,
}

/// How a scanner marks pages.
struct Scan {
    /// Skips pages on this node.
    except: Option<usize>,
    /// When the scan begins.
    from: Time,
    /// Its time per page-table entry.
    ns: u64,
}

/// Marks of one process on one region.
pub(super) struct Marks {
    process: u32,
    area: u32,
    /// Number of marked groups.
    count: usize,
    /// One bit per group.
    bits: Vec<u64>,
    /// When the scanner reaches each marked group.
    since: Vec<Time>,
}

impl Marks {
    fn new(process: u32, area: u32, groups: usize) -> Self {
        let (bits, since) = (vec![0; groups.div_ceil(64)], vec![Time::default(); groups]);
        Self { process, area, count: 0, bits, since }
    }

    fn is_set(&self, group: usize) -> bool {
        self.bits[group / 64] >> (group % 64) & 1 != 0
    }

    /// Marks `group`, which is not marked, from `since` on.
    fn set(&mut self, group: usize, since: Time) {
        self.count += 1;
        self.bits[group / 64] |= 1 << (group % 64);
        self.since[group] = since;
    }

    fn clear(&mut self, group: usize) {
        self.count -= 1;
        self.bits[group / 64] &= !(1 << (group % 64));
    }

    /// The marked group with `number` marked groups before it.
    fn nth(&self, mut number: usize) -> Option<usize> {
        for (word, &bits) in self.bits.iter().enumerate() {
            let count = bits.count_ones() as usize;
            if number < count {
                let rest = (0..number).fold(bits, |bits, _| bits & (bits - 1));
                return Some(word * 64 + rest.trailing_zeros() as usize);
            }
            number -= count;
        }
        None
    }

    /// The first marked group from `from` on.
    fn next(&self, from: usize) -> Option<usize> {
        let mut word = from / 64;
        let mut bits = self.bits.get(word)? & (u64::MAX << (from % 64));
        while bits == 0 {
            word += 1;
            bits = *self.bits.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }
}

/// A page that is moving under its lock. It stays marked meanwhile.
pub(super) struct PageMove {
    process: u32,
    fault: HintingFault,
    by: TaskId,
    to: usize,
    /// Another task uses the page, so the move is given up.
    undone: bool,
    /// Tasks that sleep until it is done, in order of arrival.
    waiters: Vec<TaskId>,
}

impl PageMove {
    /// Whether it is the move of the page that begins with this group.
    fn is_of(&self, process: u32, region: u32, group: usize) -> bool {
        let PageMove { fault, .. } = self;
        (self.process, fault.region, fault.group as usize) == (process, region, group)
    }
}

/// A group of 4 KiB pages that moves page by page, until the kernel's work for it is done.
pub(super) struct Moving {
    region: u32,
    group: u32,
    until: Time,
}

/// The result of moving the pages of a hinting fault ([`World::move_faulting`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Followed {
    /// Pages that moved; 0 if the node has no room.
    pub moved: u64,
    /// More faults, on pages that other tasks were moving and that stayed where they were.
    pub left: u64,
}

/// What a sweep has found where it stopped.
pub(crate) enum Found {
    /// Nothing, because the mark is gone.
    Nothing,
    /// A marked group: a fault.
    Fault(HintingFault),
    /// A group that this task has begun to move: the fault, how many pages moved, and the waiting
    /// tasks.
    Moved(HintingFault, u64, Vec<TaskId>),
}

/// Where a sweep will reach a marked group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stop {
    /// What is left of the sweep at that point.
    left: u64,
    region: u32,
    group: u32,
}

/// Turns a random number into one with an exponential distribution of mean 1, in 1024ths. The
/// logarithm between powers of two is a straight line, whose mean is 3/2 of the base 2.
fn exponential_1024(random: u64) -> u64 {
    let zeros = u64::from(random.leading_zeros());
    let fraction = (random << 1 << zeros.min(62)) >> 54;
    ((zeros + 1) * 1024 - fraction) * 2 / 3
}

/// How much of a sweep that transfers `transfer` in total is done when it reaches `group` of a
/// region of `bytes`.
fn done_at(group: usize, bytes: u64, transfer: u64) -> u64 {
    let share = u128::from(transfer) * u128::from(group as u64 * GROUP_BYTES);
    (share / u128::from(bytes.max(1))) as u64
}

/// The first group that begins at or after the point `done` of a sweep.
fn group_at(done: u64, bytes: u64, transfer: u64) -> usize {
    let product = u128::from(done) * u128::from(bytes);
    let group = (product / (u128::from(transfer.max(1)) * u128::from(GROUP_BYTES))) as usize;
    group + usize::from(done_at(group, bytes, transfer) < done)
}

impl Region {
    fn marks(&self, process: u32) -> Option<&Marks> {
        self.marks.iter().find(|marks| marks.process == process)
    }

    fn marks_mut(&mut self, process: u32) -> Option<&mut Marks> {
        self.marks.iter_mut().find(|marks| marks.process == process)
    }
}

impl Memory {
    /// `process` uses a region, possibly for the first time.
    pub(super) fn map(&mut self, process: u32, instance: u32, own: bool, shared: bool) {
        let region = &self.regions[instance as usize];
        let known = region.marks(process).is_some();
        if known && !own {
            return;
        }
        if self.spaces.len() <= process as usize {
            self.spaces.resize_with(process as usize + 1, Space::default);
        }
        let space = &mut self.spaces[process as usize];
        if !space.regions.contains(&instance) {
            space.regions.push(instance);
        }
        if !matches!(region.pages.policy(), Policy::FirstTouch | Policy::Spread(_)) {
            return;
        }
        let private = space.areas.iter().position(|area| !area.shared);
        let area = match private.filter(|_| !shared) {
            Some(area) => area,
            None => {
                space.areas.push(AreaOf { regions: Vec::new(), shared });
                space.areas.len() - 1
            }
        };
        space.areas[area].regions.push(instance);
        let marks = Marks::new(process, area as u32, region.pages.groups());
        self.regions[instance as usize].marks.push(marks);
    }

    /// Whether `process` has mapped a region, or needs no area for it.
    pub(super) fn is_mapped(&self, process: u32, instance: u32) -> bool {
        let space = self.spaces.get(process as usize);
        space.is_some_and(|space| space.regions.contains(&instance))
    }

    /// Removes a region.
    pub(super) fn unmap(&mut self, instance: u32) {
        let marks = &self.regions[instance as usize].marks;
        self.marked -= marks.iter().map(|marks| marks.count).sum::<usize>();
        for space in &mut self.spaces {
            space.regions.retain(|&other| other != instance);
            for area in &mut space.areas {
                area.regions.retain(|&other| other != instance);
            }
        }
        self.regions[instance as usize].marks.clear();
        self.moves.retain(|m| m.fault.region != instance);
        self.moving.retain(|moving| moving.region != instance);
    }

    /// What is left of the sweep of `task`, which now has `left`, when it reaches the next marked
    /// group; 0 if it reaches none.
    #[inline]
    pub(crate) fn until(
        &mut self,
        now: Time,
        process: u32,
        task: TaskId,
        left: u64,
        random: &mut Xoshiro256PlusPlus,
    ) -> u64 {
        if self.marked == 0 {
            return 0;
        }
        let stop = match self.tasks[task.index()].sweep.is_random() {
            true => self.random_stop(process, task, left, random),
            false => self.next_stop(now, process, task, left),
        };
        self.tasks[task.index()].stop = stop;
        stop.map_or(0, |stop| stop.left)
    }

    /// Whether the mark of a group does not count for `task`: another task tried to move the group,
    /// and the move was given up.
    fn is_passed(&self, process: u32, region: u32, group: usize, task: TaskId) -> bool {
        let first = self.page(region, group).start;
        let in_vain = |m: &PageMove| m.undone && m.by != task && m.is_of(process, region, first);
        self.moves.iter().any(in_vain)
    }

    /// The first group ahead that is marked or will be, because the scanner may get there before
    /// the sweep.
    fn next_stop(&self, now: Time, process: u32, task: TaskId, left: u64) -> Option<Stop> {
        let sweep = &self.tasks[task.index()].sweep;
        let transfer = sweep.transfer();
        let done = transfer.saturating_sub(left);
        let stop = |region: u32| {
            let of = &self.regions[region as usize];
            let marks = of.marks(process).filter(|marks| marks.count > 0)?;
            let mut group = marks.next(group_at(done, of.bytes, transfer))?;
            let is_reached = |group| done_at(group, of.bytes, transfer) <= done;
            while (marks.since[group] > now && is_reached(group))
                || self.is_passed(process, region, group, task)
            {
                group = marks.next(group + 1)?;
            }
            let left = transfer - done_at(group, of.bytes, transfer);
            Some(Stop { left, region, group: group as u32 })
        };
        sweep.regions().filter_map(stop).max_by_key(|stop| stop.left)
    }

    /// As [`Memory::next_stop`] for a sweep over blocks at random places. Each block is in a marked
    /// huge page with the probability that any of them is marked. So the number of blocks until then
    /// has a geometric distribution, for which an exponential one stands. Of small pages a block
    /// reaches only a few. A group of them, which faults as a whole, takes as many blocks as fill it.
    fn random_stop(
        &self,
        process: u32,
        task: TaskId,
        left: u64,
        random: &mut Xoshiro256PlusPlus,
    ) -> Option<Stop> {
        // A page that it moves itself is the first, when the kernel's work for it is done.
        if let Some(own) = self.moves.iter().find(|m| m.by == task) {
            let HintingFault { region, group, .. } = own.fault;
            return Some(Stop { left, region, group });
        }
        let sweep = &self.tasks[task.index()].sweep;
        let region = sweep.regions().find(|&region| self.has_marks(region, process))?;
        let of = &self.regions[region as usize];
        let marks = of.marks(process)?;
        let fill = if self.huge { 1 } else { GROUP_BYTES / RANDOM_BLOCK_BYTES };
        let groups = of.pages.groups() as u64;
        let blocks = groups * fill * exponential_1024(random.next_u64()) / marks.count as u64;
        let transfer = u128::from(sweep.transfer()) * u128::from(RANDOM_BLOCK_BYTES);
        let gap = transfer * u128::from(blocks) / 1024 / u128::from(of.bytes.max(1));
        let left = left.checked_sub(u64::try_from(gap).ok()?).filter(|&left| left > 0)?;
        let group = marks.nth(random.next_u64() as usize % marks.count)?;
        Some(Stop { left, region, group: group as u32 })
    }

    fn has_marks(&self, region: u32, process: u32) -> bool {
        self.regions[region as usize].marks(process).is_some_and(|marks| marks.count > 0)
    }

    /// `task` of `process` has reached its next stop on `cpu`. Clears the mark and returns what was
    /// found.
    fn find(&mut self, now: Time, cpu: CpuId, process: u32, task: TaskId) -> Found {
        let Some(stop) = self.tasks[task.index()].stop.take() else { return Found::Nothing };
        let marks = self.regions[stop.region as usize].marks(process);
        if marks.is_some_and(|marks| marks.since[stop.group as usize] > now) {
            return Found::Nothing;
        }
        let first = self.page(stop.region, stop.group as usize).start;
        let under_way = self.moves.iter().position(|m| m.is_of(process, stop.region, first));
        match under_way {
            None => self.take_mark(cpu, process, stop).map_or(Found::Nothing, Found::Fault),
            Some(index) if self.moves[index].by == task => self.end_move(index),
            Some(index) if self.moves[index].undone => Found::Nothing,
            Some(index) => {
                let fault = HintingFault { moving: true, ..self.moves[index].fault };
                let last = self.regions[stop.region as usize].last.get(first);
                let fault = HintingFault { last: last.copied().flatten(), ..fault };
                self.count_fault(cpu, &fault);
                Found::Fault(fault)
            }
        }
    }

    /// The time of a move is over: moves the pages, unless another task used them.
    fn end_move(&mut self, index: usize) -> Found {
        let PageMove { process, fault, to, undone, waiters, .. } = self.moves.remove(index);
        let groups = self.page(fault.region, fault.group as usize);
        if let Some(marks) = self.regions[fault.region as usize].marks_mut(process) {
            for group in groups {
                if marks.is_set(group) {
                    marks.clear(group);
                    self.marked -= 1;
                }
            }
        }
        let moved = if undone { 0 } else { self.relocate(&fault, to) };
        Found::Moved(fault, moved, waiters)
    }

    /// The groups that belong to one page with `group`: all groups of a huge page, or only itself.
    fn page(&self, region: u32, group: usize) -> Range<usize> {
        let together = if self.huge { HUGE_GROUPS } else { 1 };
        let first = group / together * together;
        first..(first + together).min(self.regions[region as usize].pages.groups())
    }

    /// Number of page-table entries that map `pages` pages.
    fn entries(&self, pages: u64) -> u64 {
        pages.div_ceil(self.pages_an_entry())
    }

    fn pages_an_entry(&self) -> u64 {
        if self.huge { HUGE_GROUPS as u64 * GROUP_PAGES } else { 1 }
    }

    /// Puts the page of a fault on a node with room. Returns how many pages of 4 KiB that are.
    fn relocate(&mut self, fault: &HintingFault, node: usize) -> u64 {
        let groups = self.page(fault.region, fault.group as usize);
        let region = &mut self.regions[fault.region as usize];
        let moved = region.pages.relocate(groups, node, &mut self.nodes);
        self.pages_migrated += moved;
        region.moved += moved;
        moved
    }

    /// Number of tasks that move groups of a region side by side: the task now at `group`, and the
    /// tasks at the groups directly before it.
    fn side_by_side(&self, region: u32, group: u32, now: Time) -> u64 {
        let is_moving = |group: u32| {
            let mut moving = self.moving.iter().filter(|moving| moving.until > now);
            moving.any(|moving| (moving.region, moving.group) == (region, group))
        };
        1 + (0..group).rev().take_while(|&before| is_moving(before)).count() as u64
    }

    /// Whether enough of a region has moved to price the sweeps over it again.
    fn reprices(&mut self, region: u32) -> bool {
        let region = &mut self.regions[region as usize];
        let much = region.moved * REPRICED_PART >= region.pages.pages();
        if much {
            region.moved = 0;
        }
        much
    }

    fn count_fault(&mut self, cpu: CpuId, fault: &HintingFault) {
        self.hint_faults += fault.pages;
        if fault.node == self.machine.cpus[cpu].node as usize {
            self.hint_faults_local += fault.pages;
        }
    }

    /// Clears the mark of a page and returns the fault for the scheduler, unless another task was
    /// there first.
    fn take_mark(&mut self, cpu: CpuId, process: u32, stop: Stop) -> Option<HintingFault> {
        let Stop { region, group, .. } = stop;
        let groups = self.page(region, group as usize);
        let of = &mut self.regions[region as usize];
        let shared = of.marks.len() > 1;
        let marks = of.marks.iter_mut().find(|marks| marks.process == process);
        let marks = marks.filter(|marks| marks.is_set(group as usize))?;
        let area = marks.area;
        let mut pages = 0;
        for other in groups.clone().filter(|&other| of.pages.node(other).is_some()) {
            pages += of.pages.in_group(other);
            if marks.is_set(other) {
                marks.clear(other);
                self.marked -= 1;
            }
        }
        let node = of.pages.node(group as usize)?;
        let group = groups.start as u32;
        let last = of.last.get(groups.start).copied().flatten();
        let moving = false;
        let fault = HintingFault { region, group, area, pages, node, shared, last, moving };
        self.count_fault(cpu, &fault);
        Some(fault)
    }

    /// Records the task that last touched a group.
    fn note_access(&mut self, region: u32, group: u32, by: LastAccess) {
        let of = &mut self.regions[region as usize];
        if of.last.is_empty() {
            of.last.resize(of.pages.groups(), None);
        }
        of.last[group as usize] = Some(by);
    }

    /// Marks groups of a region, one after the other as `scan` reaches them. Adds to `found`.
    fn mark(
        &mut self,
        process: u32,
        instance: u32,
        groups: Range<usize>,
        scan: &Scan,
        found: &mut Marked,
    ) {
        let pages_an_entry = self.pages_an_entry();
        let Region { pages, marks, .. } = &mut self.regions[instance as usize];
        let Some(marks) = marks.iter_mut().find(|marks| marks.process == process) else { return };
        for group in groups.start..groups.end.min(pages.groups()) {
            let node = pages.node(group);
            if node.is_none() {
                continue;
            }
            found.present += pages.in_group(group);
            if node != scan.except && !marks.is_set(group) {
                found.pages += pages.in_group(group);
                marks.set(group, scan.from + found.pages.div_ceil(pages_an_entry) * scan.ns);
                self.marked += 1;
            }
        }
    }

    /// The parts of an area that are in `range` (pages): region, and its groups.
    fn parts(&self, process: u32, area: usize, range: &Range<u64>) -> Vec<(u32, Range<usize>)> {
        let Some(area) = self.spaces.get(process as usize).and_then(|space| space.areas.get(area))
        else {
            return Vec::new();
        };
        let mut first = 0;
        let mut parts = Vec::new();
        for &instance in &area.regions {
            let pages = self.regions[instance as usize].pages.pages();
            let (from, to) = (range.start.max(first), range.end.min(first + pages));
            if from < to {
                let group = |page: u64| ((page - first) / GROUP_PAGES) as usize;
                let last = (to - first).div_ceil(GROUP_PAGES) as usize;
                parts.push((instance, group(from)..last));
            }
            first += pages;
        }
        parts
    }
}

impl World {
    /// Pages of `process` that are on some node (its RSS).
    pub fn resident_pages(&self, process: u32) -> u64 {
        let Some(memory) = &self.memory else { return 0 };
        let Some(space) = memory.spaces.get(process as usize) else { return 0 };
        let pages = |&region: &u32| memory.regions[region as usize].pages.on().iter().sum::<u64>();
        space.regions.iter().map(pages).sum()
    }

    /// Pages of `process` on each node, in the order of nodes; empty if it has used no memory.
    pub fn resident_by_node(&self, process: u32) -> Vec<u64> {
        let Some(memory) = &self.memory else { return Vec::new() };
        let Some(space) = memory.spaces.get(process as usize) else { return Vec::new() };
        let mut sums = vec![0; self.machine.nodes.len()];
        for &region in &space.regions {
            for (sum, on) in sums.iter_mut().zip(memory.regions[region as usize].pages.on()) {
                *sum += on;
            }
        }
        sums
    }

    /// Maps memory in huge pages.
    pub(crate) fn map_in_huge_pages(&mut self) {
        if let Some(memory) = &mut self.memory {
            memory.huge = true;
        }
    }

    /// Whether the workload uses memory. Otherwise there is nothing to mark.
    #[inline]
    pub fn has_memory(&self) -> bool {
        self.memory.is_some()
    }

    /// One of the areas of `process`, numbered from 0 in order of address; `None` beyond the last
    /// one.
    pub fn area(&self, process: u32, area: usize) -> Option<Area> {
        let memory = self.memory.as_deref()?;
        let area = memory.spaces.get(process as usize)?.areas.get(area)?;
        let pages = |&region: &u32| memory.regions[region as usize].pages.pages();
        Some(Area { pages: area.regions.iter().map(pages).sum(), shared: area.shared })
    }

    /// Marks the present pages of an area in `range` (in pages, widened to whole groups), except
    /// those on node `except` and those already marked. `cpu` does the work, which costs
    /// [`page_mark_ns`](roost_machine::Figures::page_mark_ns) per page. Each page is marked when
    /// the work has reached it.
    pub fn mark_pages(
        &mut self,
        cpu: CpuId,
        process: u32,
        area: usize,
        range: Range<u64>,
        except: Option<usize>,
    ) -> Marked {
        let mut found = Marked::default();
        let from = self.now() + self.backlog_ns(cpu);
        let ns = self.stretched(self.machine.figures.page_mark_ns.value);
        let Some(memory) = &mut self.memory else { return found };
        let scan = Scan { except, from, ns };
        for (instance, groups) in memory.parts(process, area, &range) {
            memory.mark(process, instance, groups, &scan, &mut found);
        }
        memory.pte_updates += found.pages;
        if found.pages > 0 {
            self.find_stops(process);
            let entries = self.memory.as_ref().map_or(0, |memory| memory.entries(found.pages));
            self.spend(cpu, entries * ns);
        }
        found
    }

    /// Finds where the running sweeps of `process` reach a mark.
    fn find_stops(&mut self, process: u32) {
        for cpu in 0..self.nr_cpus() {
            if let Some(task) = self.cpus[cpu].current
                && self.tasks[task.index()].process == process
            {
                self.settle(cpu);
                self.find_stop(cpu, task);
            }
        }
    }

    /// Finds the next stop of the sweep of `task`, which runs on `cpu` and is settled.
    pub(crate) fn find_stop(&mut self, cpu: CpuId, task: TaskId) {
        let now = self.now();
        let of = &mut self.tasks[task.index()];
        let process = of.process;
        if let (Activity::Sweep { left, until, .. }, Some(memory)) =
            (&mut of.activity, &mut self.memory)
        {
            let stop = memory.until(now, process, task, *left, &mut self.rng);
            if *until != stop {
                *until = stop;
                self.mark_stale(cpu);
            }
        }
    }

    /// The sweep of `task` on `cpu` has reached its stop. Returns what it found, and charges a
    /// fault.
    pub(crate) fn take_hint(&mut self, cpu: CpuId, task: TaskId) -> Found {
        let now = self.now();
        let of = &mut self.tasks[task.index()];
        let process = of.process;
        // Rounding may have carried it beyond, by less than a nanosecond.
        if let Activity::Sweep { left, until, .. } = &mut of.activity {
            *left = *until;
        }
        let Some(memory) = self.memory.as_mut() else { return Found::Nothing };
        let found = memory.find(now, cpu, process, task);
        match &found {
            Found::Fault(fault) => {
                let faults = memory.entries(fault.pages);
                self.charge(cpu, faults * self.machine.figures.hint_fault_ns.value);
            }
            Found::Moved(fault, ..) if memory.reprices(fault.region) => {
                self.reprice_region(fault.region);
            }
            _ => {}
        }
        found
    }

    /// Whether `task` is bound to nodes while it sweeps over memory. Then it moves no page to its
    /// own node (`mpol_misplaced()`, MPOL_F_MOF).
    pub fn is_memory_bound(&self, task: TaskId) -> bool {
        let memory = self.memory.as_ref().and_then(|memory| memory.tasks.get(task.index()));
        memory.is_some_and(|task| task.sweep.is_bound())
    }

    /// A hinting fault has been handled. Its page group remembers the task that touched it, unless
    /// the task has its own memory policy. Returns whether the task sleeps until the page has
    /// moved. If it does not, that move is given up.
    pub(crate) fn end_hint(&mut self, cpu: CpuId, task: TaskId, fault: &HintingFault) -> bool {
        let by = LastAccess { cpu: cpu as u16, pid: self.pid(task) as u8 };
        let process = self.tasks[task.index()].process;
        let bound = self.is_memory_bound(task);
        let Some(memory) = &mut self.memory else { return false };
        if !bound {
            memory.note_access(fault.region, fault.group, by);
        }
        let HintingFault { region, group, moving, .. } = *fault;
        let under_way = memory.moves.iter_mut().find(|m| m.is_of(process, region, group as usize));
        let Some(under_way) = under_way.filter(|_| moving) else { return false };
        let waits = under_way.waiters.contains(&task);
        under_way.undone |= !waits;
        waits
    }

    /// `task` moves the page group of its hinting fault to `node`, as part of a huge page. The
    /// kernel of `cpu` does the work; between two pages of 4 KiB other tasks may preempt it
    /// (`copy_huge_page()`). The result is reported when it is done
    /// ([`Scheduler::page_moved`](crate::Scheduler::page_moved)).
    pub fn begin_move(&mut self, cpu: CpuId, task: TaskId, fault: &HintingFault, node: usize) {
        let now = self.now();
        let process = self.tasks[task.index()].process;
        let Some(memory) = &mut self.memory else { return };
        let groups = memory.page(fault.region, fault.group as usize);
        let region = &mut memory.regions[fault.region as usize];
        let Some(marks) = region.marks.iter_mut().find(|marks| marks.process == process) else {
            return;
        };
        for group in groups.filter(|&group| region.pages.node(group).is_some()) {
            if !marks.is_set(group) {
                marks.set(group, now);
                memory.marked += 1;
            }
        }
        let another = memory.moves.iter().find(|m| m.by == task);
        debug_assert!(another.is_none(), "a task moves one page at a time");
        let (fault, by, waiters) = (*fault, task, Vec::new());
        memory.moves.push(PageMove { process, fault, by, to: node, undone: false, waiters });
        let entries = memory.entries(fault.pages);
        let cost = memory.migrate_ns(cpu, fault.pages, entries, fault.node, node);
        self.charge_copying(cpu, cost);
    }

    /// `task`, whose fault is on a page that is moving, sleeps until the move is done.
    pub fn await_move(&mut self, task: TaskId, fault: &HintingFault) {
        let process = self.tasks[task.index()].process;
        let Some(memory) = &mut self.memory else { return };
        let under_way =
            memory.moves.iter_mut().find(|m| m.is_of(process, fault.region, fault.group as usize));
        if let Some(under_way) = under_way {
            under_way.waiters.push(task);
        }
    }

    /// Moves the page group of a hinting fault to `node`. The kernel of `cpu` does the work, also
    /// for faults on pages that other tasks are moving.
    ///
    /// Sweeps over the region are priced again when a 64th of it has moved since the last time.
    pub fn move_faulting(&mut self, cpu: CpuId, fault: &HintingFault, node: usize) -> Followed {
        let now = self.now();
        let Some(memory) = &mut self.memory else { return Followed::default() };
        let moved = memory.relocate(fault, node);
        if moved == 0 {
            return Followed::default();
        }
        let side_by_side = memory.side_by_side(fault.region, fault.group, now);
        let left = moved * (side_by_side - 1) / side_by_side;
        memory.count_fault(cpu, &HintingFault { pages: left, ..*fault });
        let entries = memory.entries(moved);
        let cost = memory.migrate_ns(cpu, moved, entries, fault.node, node)
            + left * self.machine.figures.hint_fault_ns.value;
        if memory.reprices(fault.region) {
            self.reprice_region(fault.region);
        }
        self.charge(cpu, cost);
        let until = now + self.backlog_ns(cpu);
        if let Some(memory) = &mut self.memory {
            memory.moving.retain(|moving| moving.until > now);
            memory.moving.push(Moving { region: fault.region, group: fault.group, until });
        }
        Followed { moved, left }
    }
}

/// A group that is on no node cannot be marked.
const _: () = assert!(NOWHERE == u16::MAX);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand_xoshiro::rand_core::SeedableRng;

    use super::*;

    #[test]
    fn a_sweep_reaches_groups_in_proportion_to_their_place() {
        // 1 MiB has four groups.
        assert_eq!([0, 1, 2, 3].map(|group| done_at(group, 1 << 20, 4000)), [0, 1000, 2000, 3000]);
        let at = [0, 1, 1000, 1001, 3000, 3001].map(|done| group_at(done, 1 << 20, 4000));
        assert_eq!(at, [0, 1, 1, 2, 3, 4]);
    }

    #[test]
    fn marks_are_found_in_order() {
        let mut marks = Marks::new(0, 0, 256);
        for group in [3, 64, 200] {
            marks.set(group, Time::default());
        }
        assert_eq!(
            [0, 3, 4, 65, 201, 900].map(|from| marks.next(from)),
            [Some(3), Some(3), Some(64), Some(200), None, None]
        );
        marks.clear(64);
        assert_eq!((marks.next(4), marks.count), (Some(200), 2));
    }

    #[test]
    fn marks_are_found_by_number() {
        let mut marks = Marks::new(0, 0, 256);
        for group in [3, 64, 200] {
            marks.set(group, Time::default());
        }
        assert_eq!(
            [0, 1, 2, 3].map(|number| marks.nth(number)),
            [Some(3), Some(64), Some(200), None]
        );
    }

    /// Of an exponential distribution with mean 1, 36.8% exceed 1 and 5.0% exceed 3.
    #[test]
    fn gaps_between_random_hits_are_exponential() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let all: Vec<u64> = (0..100_000).map(|_| exponential_1024(random.next_u64())).collect();
        let above = |limit: u64| all.iter().filter(|&&one| one > limit * 1024).count();
        let mean = all.iter().sum::<u64>() / all.len() as u64;
        assert!((1004..1044).contains(&mean), "{mean}");
        assert!((35_500..38_500).contains(&above(1)), "{}", above(1));
        assert!((4_200..5_500).contains(&above(3)), "{}", above(3));
    }

    proptest! {
        #[test]
        fn no_mark_ahead_is_missed(
            bytes in 64u64..1 << 36, factor in 1u64..3000, permille in 0u64..=1000,
        ) {
            let transfer = bytes * factor;
            let done = (u128::from(transfer) * u128::from(permille) / 1000) as u64;
            let group = group_at(done, bytes, transfer);
            prop_assert!(done_at(group, bytes, transfer) >= done);
            prop_assert!(group == 0 || done_at(group - 1, bytes, transfer) < done);
        }
    }
}
