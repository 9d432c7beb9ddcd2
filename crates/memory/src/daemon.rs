//! Decides which processes are sampled and when, what is moved, and when it is left alone.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::PAGE;
use crate::budget::Budget;
use crate::host::{Details, Host};
use crate::sample::Sample;

/// Time between two scans of all processes, ns.
pub const SCAN: u64 = 5_000_000_000;

/// Processes sampled, and groups reported, per interval. If there are more, they take turns.
pub const SAMPLED_AT_ONCE: usize = 64;

/// Pages queried in one call: 2 MiB, a huge page.
const CHUNK: usize = 512;

/// Bytes of a huge page.
const HUGE_BYTES: u64 = CHUNK as u64 * PAGE;

/// Largest number of pages moved in one call: 64 MiB.
const MOVED_AT_ONCE: u64 = 16_384;

/// Pages examined in a step: examining costs a twentieth of moving, or less, and so a step 3 ms.
const LOOKED_AT_ONCE: usize = 32_768;

/// Pages of 1000 that must be on other nodes before a move begins. (Assumption: fewer cost less
/// than the search for them.)
const WORTH_PERMILLE: u64 = 50;

/// Pause before a process whose pages could not be moved is tried again, ns. It doubles each time,
/// up to [`LONGEST_REST`].
const REST: u64 = 10_000_000_000;
const LONGEST_REST: u64 = 640_000_000_000;

/// Time for which mappings count as unchanged while a process does not grow or shrink, ns
/// (assumption).
const MAPPED_FOR: u64 = 60_000_000_000;

/// Settings of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Processes with fewer resident pages are left alone.
    pub least_pages: u64,
    /// Largest share of one CPU's time that moving pages takes, in percent.
    pub share_percent: u64,
    /// Time between two samples, ns.
    pub interval: u64,
    /// How long a set must have preferred a node before its pages follow, ns.
    pub settle: u64,
    /// Nodes with CPUs, and their CPUs. Pages on other nodes stay there, because somebody put them
    /// there.
    pub nodes: BTreeMap<u32, Vec<Range<u32>>>,
    /// Patterns of the paths of cgroups that cling. Without patterns all cgroups cling.
    pub patterns: Vec<String>,
    /// Whether memory follows. If not, only the patterns matter.
    pub follows: bool,
}

/// A group or process in the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// Its index in the scheduler.
    pub index: u32,
    /// The number of a cgroup's directory, or a process's number.
    pub id: u64,
    /// The node that it prefers.
    pub preferred: Option<u32>,
    /// When it began to prefer that node, ns, by the clock of [`Daemon::step`].
    pub settled_at: u64,
    /// When its process started ([`Details::started`]); 0 for a group.
    pub started: u64,
}

/// What the scheduler knows and wants to know. If it cannot take a message now, it gets it again
/// later.
pub trait Scheduler {
    /// Groups: leaf cgroups with tasks.
    fn groups(&mut self) -> Vec<Set>;
    /// The sets of those of these processes that the scheduler knows.
    fn processes(&mut self, pids: &[u32]) -> Vec<Set>;
    /// Nodes that pause: no group clings to them now, and no pages move to them.
    fn busy_nodes(&mut self) -> Vec<u32>;
    /// Reports a group's pages by node.
    fn set_group_memory(&mut self, index: u32, pages: &[(u32, u64)]);
    /// Reports a process's pages by node.
    fn set_process_memory(&mut self, index: u32, pages: &[(u32, u64)]);
    /// Reports whether pages of a set are moving to its preferred node. Its tasks may wait for
    /// them.
    fn set_moving(&mut self, index: u32, moving: bool);
    /// Reports whether a group is excluded from clinging.
    fn set_excluded(&mut self, index: u32, excluded: bool);
}

/// Counters since the daemon's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Processes now large enough to be sampled.
    pub large_processes: u64,
    /// Addresses queried in samples.
    pub sampled: u64,
    /// Pages moved.
    pub moved: u64,
    /// Pages that the kernel did not move: shared, pinned, or gone.
    pub stuck: u64,
    /// How often a process's pages stayed because the node had no room.
    pub no_room: u64,
    /// How often a process's pages stayed because its cpuset or affinity excludes the node.
    pub bound: u64,
}

/// A large process.
#[derive(Debug)]
struct Process {
    resident: u64,
    details: Details,
    mapped: Vec<Range<u64>>,
    /// Resident pages when its mappings were last read, and the time of that, ns.
    mapped_at: (u64, u64),
    sample: Sample,
    /// Its index in the scheduler, if the scheduler knows it.
    index: Option<u32>,
    /// Its pages are not moved before this time, ns.
    rests_until: u64,
    rest: u64,
}

impl Process {
    fn new(pid: u32, resident: u64, details: Details) -> Self {
        Self {
            resident,
            details,
            mapped: Vec::new(),
            mapped_at: (0, 0),
            sample: Sample::new(u64::from(pid)),
            index: None,
            rests_until: 0,
            rest: REST,
        }
    }

    /// Whether its mappings may have changed. Reading them is the largest cost, some microseconds
    /// each, and programs have up to thousands.
    fn has_other_mappings(&self, now: u64) -> bool {
        let (resident, at) = self.mapped_at;
        resident == 0 || now >= at + MAPPED_FOR || self.resident.abs_diff(resident) > resident / 8
    }
}

/// The node to which pages of a set should move.
#[derive(Clone, Copy, Debug)]
struct Target {
    /// The index of the set in the scheduler.
    set: u32,
    node: u32,
}

/// The nodes to which pages should move, according to the settled sets: the group's if it has one,
/// otherwise the process's.
#[derive(Debug)]
struct Targets {
    /// `None` for a group that settled only a short time ago or on a node that pauses. Then the
    /// preference of its processes does not count.
    of_group: BTreeMap<u64, Option<Target>>,
    of_process: BTreeMap<u64, Option<Target>>,
}

impl Targets {
    fn of(&self, pid: u32, process: &Process) -> Option<Target> {
        let group = process.details.group.and_then(|group| self.of_group.get(&group));
        group.or_else(|| self.of_process.get(&u64::from(pid))).copied().flatten()
    }
}

/// A move that has begun.
#[derive(Debug)]
struct Relocation {
    pid: u32,
    /// When the process started ([`Details::started`]), because numbers are used again.
    started: u64,
    target: Target,
    /// The ranges still to be examined; the next one is the last.
    ranges: Vec<Range<u64>>,
    /// When it was last checked which mappings may be moved, ns.
    looked_at: u64,
    moved: u64,
}

/// Samples processes, reports to the scheduler, and moves pages.
#[derive(Debug)]
pub struct Daemon {
    config: Config,
    processes: BTreeMap<u32, Process>,
    moving: Option<Relocation>,
    /// The set that the scheduler was told is moving.
    told: Option<u32>,
    /// From the last sample; `None` when nothing is left to move.
    targets: Option<Targets>,
    budget: Budget,
    scanned_at: Option<u64>,
    sampled_at: Option<u64>,
    /// When the next set will have preferred its node for long enough, as far as known, ns.
    ripe_at: Option<u64>,
    /// The process and the group after which the next turn begins.
    last_process: u32,
    last_group: u64,
    /// Groups whose path has been compared with the patterns.
    judged: BTreeMap<u32, u64>,
    counters: Counters,
}

impl Daemon {
    /// A daemon that starts at time `now`, ns.
    pub fn new(config: Config, now: u64) -> Self {
        Self {
            budget: Budget::new(config.share_percent, now),
            config,
            processes: BTreeMap::new(),
            moving: None,
            told: None,
            targets: None,
            scanned_at: None,
            sampled_at: None,
            ripe_at: None,
            last_process: 0,
            last_group: 0,
            judged: BTreeMap::new(),
            counters: Counters::default(),
        }
    }

    /// The counters.
    pub fn counters(&self) -> Counters {
        Counters { large_processes: self.processes.len() as u64, ..self.counters }
    }

    /// When it has something to do next, ns. While pages move, that is about ten times per second.
    pub fn due_at(&self) -> u64 {
        let after = |last: Option<u64>, period| last.map_or(0, |last| last + period);
        let sample = after(self.sampled_at, self.config.interval);
        if !self.config.follows {
            return sample;
        }
        if self.moving.is_some() || self.targets.is_some() {
            return 0;
        }
        let due = sample.min(after(self.scanned_at, SCAN));
        self.ripe_at.map_or(due, |ripe| ripe.min(due))
    }

    /// Does what is due at time `now`, ns.
    pub fn step(&mut self, now: u64, host: &mut impl Host, scheduler: &mut impl Scheduler) {
        let due = |last: Option<u64>, period| last.is_none_or(|last| now >= last + period);
        if !self.config.follows {
            if due(self.sampled_at, self.config.interval) {
                self.sampled_at = Some(now);
                let groups = scheduler.groups();
                self.judge_groups(&groups, host, scheduler);
            }
            return;
        }
        if due(self.scanned_at, SCAN) {
            self.scanned_at = Some(now);
            if self.scan(host, scheduler) {
                self.sampled_at = None;
            }
        }
        let ripe = self.ripe_at.is_some_and(|at| now >= at) && self.moving.is_none();
        let looks = ripe || due(self.sampled_at, self.config.interval);
        if looks {
            self.sampled_at = Some(now);
            let (groups, sets) = (scheduler.groups(), self.known_to(scheduler));
            self.sample(now, &sets, host, scheduler);
            self.tell_groups(&groups, host, scheduler);
            self.judge_groups(&groups, host, scheduler);
            let targets = self.targets(now, &groups, &sets, &scheduler.busy_nodes());
            self.moving =
                self.moving.take().and_then(|current| self.still_wanted(current, &targets));
            self.targets = Some(targets);
            self.ripe_at = self.next_ripe(now, &groups, &sets);
        }
        if self.moving.is_none()
            && let Some(targets) = self.targets.take()
        {
            let counted = self.counters;
            self.moving = self.choose(now, &targets, host);
            if !looks {
                // Pages that stay were counted when they were first examined.
                self.counters = counted;
            }
            self.targets = self.moving.is_some().then_some(targets);
        }
        self.tell_moving(scheduler);
        self.go_on(now, host);
        self.tell_moving(scheduler);
    }

    /// Reports which set is moving, if that has changed.
    fn tell_moving(&mut self, scheduler: &mut impl Scheduler) {
        let moving = self.moving.as_ref().map(|current| current.target.set);
        if moving == self.told {
            return;
        }
        let before = std::mem::replace(&mut self.told, moving);
        if let Some(set) = before {
            scheduler.set_moving(set, false);
        }
        if let Some(set) = moving {
            scheduler.set_moving(set, true);
        }
    }

    /// When the next group or process will have preferred its node for long enough that its pages
    /// follow, ns.
    fn next_ripe(&self, now: u64, groups: &[Set], sets: &[Set]) -> Option<u64> {
        let large = |group: &&Set| {
            self.processes.values().any(|process| process.details.group == Some(group.id))
        };
        let settled = groups.iter().filter(large).chain(sets).filter(|set| set.preferred.is_some());
        let ripe = settled.map(|set| set.settled_at.saturating_add(self.config.settle));
        ripe.filter(|at| *at > now).min()
    }

    /// The sets of the large processes. The set of an ended process stays for a while, and another
    /// process may have its number.
    fn known_to(&self, scheduler: &mut impl Scheduler) -> Vec<Set> {
        let large: Vec<u32> = self.processes.keys().copied().collect();
        let started = |set: &Set| {
            let pid = u32::try_from(set.id).ok()?;
            self.processes.get(&pid).map(|process| process.details.started)
        };
        let mut sets = scheduler.processes(&large);
        sets.retain(|set| started(set) == Some(set.started));
        sets
    }

    /// Scans for large processes. Returns whether there are new ones.
    fn scan(&mut self, host: &mut impl Host, scheduler: &mut impl Scheduler) -> bool {
        let mut all = host.processes();
        all.retain(|(_, resident)| *resident >= self.config.least_pages);
        let mut known = std::mem::take(&mut self.processes);
        let mut new = false;
        for (pid, resident) in all {
            let Some(details) = host.details(pid) else { continue };
            let process = match known.remove(&pid) {
                Some(old) if old.details.started == details.started => {
                    Process { resident, details, ..old }
                }
                _ => {
                    new = true;
                    Process::new(pid, resident, details)
                }
            };
            self.processes.insert(pid, process);
        }
        // A process that is no longer large would count with its last report.
        for set in scheduler.processes(&known.keys().copied().collect::<Vec<u32>>()) {
            scheduler.set_process_memory(set.index, &[]);
        }
        new
    }

    /// Samples the processes whose turn it is, and reports those that the scheduler knows.
    fn sample(
        &mut self,
        now: u64,
        sets: &[Set],
        host: &mut impl Host,
        scheduler: &mut impl Scheduler,
    ) {
        for process in self.processes.values_mut() {
            process.index = None;
        }
        for set in sets {
            let process = u32::try_from(set.id).ok().and_then(|pid| self.processes.get_mut(&pid));
            if let Some(process) = process {
                process.index = Some(set.index);
            }
        }
        let turn = turn(self.processes.keys().copied(), self.last_process);
        for pid in turn {
            self.last_process = pid;
            let Some(process) = self.processes.get_mut(&pid) else { continue };
            match host.details(pid) {
                Some(details) if details.started == process.details.started => {
                    process.details = details;
                }
                // It has ended, and another process may have its number. The next scan finds out.
                _ => continue,
            }
            if process.has_other_mappings(now) {
                process.mapped = host.mapped(pid);
                process.mapped_at = (process.resident, now);
            }
            let addresses = process.sample.addresses(&process.mapped);
            let nodes = host.locate(pid, &addresses);
            self.counters.sampled += addresses.len() as u64;
            process.sample.learn(&addresses, &nodes);
            if let Some(index) = process.index {
                let mut pages = process.sample.pages(process.resident);
                // Memory on nodes where the process must not run says nothing about where it should
                // run.
                let no_cpus = |node| !self.config.nodes.contains_key(&node);
                let allowed = &process.details;
                pages.retain(|(node, _)| no_cpus(*node) || self.config.may_run(allowed, *node));
                scheduler.set_process_memory(index, &pages);
            }
        }
    }

    /// Reports the groups whose turn it is.
    fn tell_groups(
        &mut self,
        groups: &[Set],
        host: &mut impl Host,
        scheduler: &mut impl Scheduler,
    ) {
        let by_id: BTreeMap<u64, u32> = groups.iter().map(|set| (set.id, set.index)).collect();
        for id in turn(by_id.keys().copied(), self.last_group) {
            self.last_group = id;
            let Some(&index) = by_id.get(&id) else { continue };
            let pages = host.group_pages(id).unwrap_or_else(|| self.sampled_in_group(id));
            scheduler.set_group_memory(index, &pages);
        }
    }

    /// Reports which groups cling.
    fn judge_groups(
        &mut self,
        groups: &[Set],
        host: &mut impl Host,
        scheduler: &mut impl Scheduler,
    ) {
        let by_id: BTreeMap<u64, u32> = groups.iter().map(|set| (set.id, set.index)).collect();
        self.judged.retain(|index, id| by_id.get(id) == Some(index));
        for (&id, &index) in &by_id {
            if self.judged.contains_key(&index) || self.config.patterns.is_empty() {
                continue;
            }
            let Some(path) = host.group_path(id) else { continue };
            let matches = self.config.patterns.iter().any(|pattern| matches(pattern, &path));
            scheduler.set_excluded(index, !matches);
            self.judged.insert(index, id);
        }
    }

    /// Pages by node of a group without memory accounting: those of its large processes.
    fn sampled_in_group(&self, group: u64) -> Vec<(u32, u64)> {
        let mut nodes: BTreeMap<u32, u64> = BTreeMap::new();
        for process in self.processes.values().filter(|p| p.details.group == Some(group)) {
            for (node, pages) in process.sample.pages(process.resident) {
                *nodes.entry(node).or_default() += pages;
            }
        }
        nodes.into_iter().collect()
    }

    /// The nodes to which pages should move.
    fn targets(&self, now: u64, groups: &[Set], sets: &[Set], busy: &[u32]) -> Targets {
        let ripe = |set: &Set| now >= set.settled_at.saturating_add(self.config.settle);
        let target = |set: &Set| {
            let node = set.preferred.filter(|node| ripe(set) && !busy.contains(node));
            (set.id, node.map(|node| Target { set: set.index, node }))
        };
        let settled = groups.iter().filter(|group| group.preferred.is_some());
        Targets {
            of_group: settled.map(target).collect(),
            of_process: sets.iter().map(target).collect(),
        }
    }

    /// The move under way, if it still goes to the node where its process's pages should be; with
    /// the set for which they move.
    fn still_wanted(&self, current: Relocation, targets: &Targets) -> Option<Relocation> {
        let target = targets.of(current.pid, self.processes.get(&current.pid)?)?;
        (target.node == current.target.node).then_some(Relocation { target, ..current })
    }

    /// The process with most pages away from the node where it settled, if any is worth a move.
    fn choose(&mut self, now: u64, targets: &Targets, host: &mut impl Host) -> Option<Relocation> {
        // Queried only if needed, because the kernel writes pages of text about it.
        let mut room: Option<BTreeMap<u32, u64>> = None;
        let mut best: Option<(u64, u32, u64, Target)> = None;
        for (&pid, process) in &self.processes {
            let target = targets.of(pid, process).filter(|_| now >= process.rests_until);
            let Some(target) = target else { continue };
            let Some(away) = self.pages_away(process, target.node) else { continue };
            if !self.config.may_use(&process.details, target.node) {
                self.counters.bound += 1;
                continue;
            }
            let room = room.get_or_insert_with(|| host.room().into_iter().collect());
            if room.get(&target.node).is_none_or(|room| *room < away.min(CHUNK as u64)) {
                self.counters.no_room += 1;
            } else if best.is_none_or(|(most, ..)| away > most) {
                best = Some((away, pid, process.details.started, target));
            }
        }
        let (_, pid, started, target) = best?;
        let mut ranges = host.movable(pid);
        ranges.reverse();
        Some(Relocation { pid, started, target, ranges, looked_at: now, moved: 0 })
    }

    /// Pages on other nodes with CPUs, if there are enough for a move.
    fn pages_away(&self, process: &Process, target: u32) -> Option<u64> {
        let away =
            process.sample.permille_on(|n| n != target && self.config.nodes.contains_key(&n))?;
        (away >= WORTH_PERMILLE).then(|| (process.resident / 1000).max(1) * away)
    }

    /// Continues the move, as far as its share of time and the node's room allow. It uses one call, because
    /// each call makes the kernel drain its lists of pages on every CPU. The move ends if its
    /// process has ended or must no longer use the node.
    fn go_on(&mut self, now: u64, host: &mut impl Host) {
        let Some(mut current) = self.moving.take() else { return };
        let may_go_on = host.details(current.pid).is_some_and(|details| {
            details.started == current.started && self.config.may_use(&details, current.target.node)
        });
        if !may_go_on {
            return self.rest(now, &current, current.moved);
        }
        // Mappings come and go, and get policies.
        if now >= current.looked_at + MAPPED_FOR {
            current.ranges = overlaps(&current.ranges, &host.movable(current.pid));
            current.looked_at = now;
        }
        let room = room_of(host, current.target.node);
        if room == 0 {
            return self.give_up(now, &current);
        }
        self.budget.learn(host.moving_ns());
        let may = self.budget.available(now).min(room).min(MOVED_AT_ONCE);
        let away = self.collect(&mut current, may as usize, host);
        if !away.is_empty() {
            let moved = host.move_to(current.pid, &away, current.target.node);
            let asked = away.len() as u64;
            // Pages that could not be moved cost as much.
            self.budget.take(asked);
            self.counters.moved += moved;
            self.counters.stuck += asked - moved.min(asked);
            current.moved += moved;
        }
        match current.ranges.is_empty() {
            true => self.rest(now, &current, current.moved),
            false => self.moving = Some(current),
        }
    }

    /// Collects up to `may` addresses of pages on other nodes with CPUs, from the current place of
    /// the move. A huge page moves as a whole, so none is begun that `may` does not complete, unless
    /// it is the only one.
    fn collect(&self, current: &mut Relocation, may: usize, host: &mut impl Host) -> Vec<u64> {
        let (mut found, mut looked) = (Vec::new(), 0);
        while found.len() < may && looked < LOOKED_AT_ONCE {
            let Some(range) = current.ranges.pop() else { break };
            let from = found.len();
            let (addresses, next) = host.present(current.pid, range.clone(), CHUNK);
            looked += addresses.len().max(1);
            let nodes = host.locate(current.pid, &addresses);
            let away =
                |node: u32| node != current.target.node && self.config.nodes.contains_key(&node);
            for (address, node) in addresses.into_iter().zip(nodes) {
                if found.len() == may {
                    let begun = address - address % HUGE_BYTES;
                    let complete = from + found[from..].partition_point(|&page| page < begun);
                    let kept = if complete == 0 { may } else { complete };
                    let next = found.get(kept).copied().unwrap_or(address);
                    found.truncate(kept);
                    current.ranges.push(next..range.end);
                    return found;
                }
                found.extend(node.is_some_and(away).then_some(address));
            }
            if next > range.start && next < range.end {
                current.ranges.push(next..range.end);
            }
        }
        found
    }

    fn give_up(&mut self, now: u64, current: &Relocation) {
        self.counters.no_room += 1;
        self.rest(now, current, 0);
    }

    /// After a move: tries again soon if it moved many pages, later and later if it did not.
    fn rest(&mut self, now: u64, of: &Relocation, moved: u64) {
        let Some(process) = self.processes.get_mut(&of.pid) else { return };
        if moved * 1000 >= process.resident * WORTH_PERMILLE {
            process.rest = REST;
        }
        process.rests_until = now + process.rest;
        process.rest = (process.rest * 2).min(LONGEST_REST);
    }
}

/// The intersections of two lists of ranges, in the order of the first list. `ranges` is in
/// descending order, `others` in ascending order.
fn overlaps(ranges: &[Range<u64>], others: &[Range<u64>]) -> Vec<Range<u64>> {
    let with = |a: &Range<u64>| {
        let from = others.partition_point(|b| b.end <= a.start);
        let to = others.partition_point(|b| b.start < a.end);
        let a = a.clone();
        let all = others.get(from..to).unwrap_or_default().iter().rev();
        all.map(move |b| a.start.max(b.start)..a.end.min(b.end))
    };
    ranges.iter().flat_map(with).collect()
}

fn room_of(host: &mut impl Host, node: u32) -> u64 {
    host.room().into_iter().find(|(number, _)| *number == node).map_or(0, |(_, room)| room)
}

/// The items whose turn it is: some after `last`, then from the beginning.
fn turn<T: Ord + Copy>(all: impl Iterator<Item = T> + Clone, last: T) -> Vec<T> {
    let after = all.clone().filter(|id| *id > last);
    let before = all.filter(|id| *id <= last);
    after.chain(before).take(SAMPLED_AT_ONCE).collect()
}

/// Whether a path matches a shell pattern. `*` also matches `/`.
fn matches(pattern: &str, path: &str) -> bool {
    let [Ok(pattern), Ok(path)] = [pattern, path].map(std::ffi::CString::new) else { return false };
    // SAFETY: both strings end in 0.
    unsafe { libc::fnmatch(pattern.as_ptr(), path.as_ptr(), 0) == 0 }
}

impl Config {
    /// Whether a process's cpuset allows memory on a node, and its affinity a CPU there.
    fn may_use(&self, process: &Details, node: u32) -> bool {
        let nodes = &process.allowed.nodes;
        nodes.iter().any(|nodes| nodes.contains(&node)) && self.may_run(process, node)
    }

    /// Whether a process may run on a CPU of a node.
    fn may_run(&self, process: &Details, node: u32) -> bool {
        let overlap = |a: &Range<u32>, b: &Range<u32>| a.start.max(b.start) < a.end.min(b.end);
        let cpus = self.nodes.get(&node).map(Vec::as_slice).unwrap_or_default();
        process.allowed.cpus.iter().any(|some| cpus.iter().any(|here| overlap(some, here)))
    }

    /// Number of pages in `mebibytes`.
    pub fn pages(mebibytes: u64) -> u64 {
        mebibytes.saturating_mul((1 << 20) / PAGE)
    }
}

#[cfg(test)]
mod tests;
