//! The simulated machine as the daemon sees it: processes, their memory, and moving it.
//!
//! A region of the workload is a mapping. Its pages have made-up addresses, which do not change while the region
//! exists. The engine keeps and moves pages in groups of 64 (256 KiB). If the daemon's budget ends within such a group,
//! the rest of the group moves too.

use std::collections::BTreeMap;
use std::ops::Range;

use roost_engine::{CpuId, GROUP_PAGES, Mapping, TaskId, World};
use roost_layout::TICK;
use roost_memory::PAGE;
use roost_memory::host::{Details, Host};
use roost_memory::parse::Allowed;
use roost_scx::UserMaps;

/// The address bits of a place within a mapping: 16 TiB.
const REGION_BITS: u32 = 44;

/// A node keeps this part of its memory free, as a divisor (as `roost_memory::parse::zoneinfo`).
const KEPT_FREE: u64 = 64;

/// CPU time of the daemon's system calls, ns. Measured on a virtual machine with two CPUs (Linux 6.18, 2026-11-26;
/// `docs/notes/2026-11-26-daemon-in-simulation.md`). Moving pages costs what the machine's figures say.
mod costs {
    /// `/proc/PID/statm` is opened, read and closed.
    pub const SIZE: u64 = 5_300;
    /// The same for `status`, `stat` and `cgroup`.
    pub const DETAILS: u64 = 27_000;
    /// The same for `maps`.
    pub const MAPS: u64 = 18_000;
    /// The same for `/proc/zoneinfo`.
    pub const ROOM: u64 = 43_000;
    /// `move_pages(2)` tells where a page is.
    pub const LOCATED_PAGE: u64 = 240;
}

/// A process.
struct Process {
    /// Its number in the engine.
    number: u32,
    details: Details,
}

/// The simulated machine during one turn of the daemon.
pub(super) struct Simulated<'a> {
    world: &'a mut World,
    cpu: CpuId,
    /// Processes that are not of the kernel, by pid.
    processes: BTreeMap<u32, Process>,
    spent_ns: u64,
    /// How long moves have taken until this turn.
    moving_ns: u64,
}

impl<'a> Simulated<'a> {
    /// The machine, while the daemon runs on `cpu`. Its moves have taken `moving_ns` so far.
    pub(super) fn new(
        world: &'a mut World,
        cpu: CpuId,
        maps: &UserMaps<'_>,
        moving_ns: u64,
    ) -> Self {
        let mut processes = BTreeMap::new();
        for task in world.living() {
            let pid = world.tgid(task);
            if !world.is_kernel_thread(task) && !processes.contains_key(&pid) {
                processes.insert(pid, Process::of(world, task, maps));
            }
        }
        Self { world, cpu, processes, spent_ns: 0, moving_ns }
    }

    /// The CPU time of the system calls so far, except that of moving pages, which is charged. At least a nanosecond.
    pub(super) fn spent_ns(&self) -> u64 {
        self.spent_ns.max(1)
    }

    fn mappings(&self, pid: u32) -> Vec<Mapping> {
        let process = self.processes.get(&pid);
        process.map_or(Vec::new(), |process| self.world.mappings(process.number))
    }

    /// Pages on each node, of the regions of these processes.
    fn by_node<'p>(&self, processes: impl Iterator<Item = &'p Process>) -> Vec<u64> {
        let mappings = processes.flat_map(|process| self.world.mappings(process.number));
        let mut regions: Vec<u32> = mappings.map(|mapping| mapping.region).collect();
        regions.sort_unstable();
        regions.dedup();
        let mut nodes = vec![0; self.world.machine().nodes.len()];
        for region in regions {
            nodes
                .iter_mut()
                .zip(self.world.region_by_node(region))
                .for_each(|(sum, on)| *sum += on);
        }
        nodes
    }
}

impl Process {
    /// The process of a task, which is its first task or another one if that has exited.
    fn of(world: &World, task: TaskId, maps: &UserMaps<'_>) -> Self {
        let first = world.group_leader(task).unwrap_or(task);
        let cpus = world.allowed(first).iter().map(|cpu| cpu as u32..cpu as u32 + 1).collect();
        let nodes = std::iter::once(0..world.machine().nodes.len() as u32).collect();
        let details = Details {
            group: maps.directory(world.group(first)),
            allowed: Allowed { cpus, nodes },
            started: maps.started_ns(task) / TICK,
        };
        Self { number: world.process(task), details }
    }
}

/// The addresses of a mapping.
fn addresses(mapping: &Mapping) -> Range<u64> {
    let start = (u64::from(mapping.region) + 1) << REGION_BITS;
    start..start + mapping.pages * PAGE
}

/// The region and page at an address.
fn place(address: u64) -> Option<(u32, u64)> {
    let region = u32::try_from(address >> REGION_BITS).ok()?.checked_sub(1)?;
    Some((region, (address & ((1 << REGION_BITS) - 1)) / PAGE))
}

/// The groups of pages at these addresses, as ranges of neighbours.
fn groups(addresses: &[u64]) -> Vec<(u32, Range<usize>)> {
    let mut ranges: Vec<(u32, Range<usize>)> = Vec::new();
    for (region, page) in addresses.iter().filter_map(|&address| place(address)) {
        let group = (page / GROUP_PAGES) as usize;
        match ranges.last_mut() {
            Some((of, range)) if *of == region && range.contains(&group) => {}
            Some((of, range)) if *of == region && range.end == group => range.end += 1,
            _ => ranges.push((region, group..group + 1)),
        }
    }
    ranges
}

/// Numbered pages, without nodes that have none.
fn numbered(nodes: Vec<u64>) -> Vec<(u32, u64)> {
    (0..).zip(nodes).filter(|(_, pages)| *pages > 0).collect()
}

impl Host for Simulated<'_> {
    fn processes(&mut self) -> Vec<(u32, u64)> {
        self.spent_ns += costs::SIZE * self.processes.len() as u64;
        let sizes = self.processes.iter();
        sizes.map(|(&pid, process)| (pid, self.world.resident_pages(process.number))).collect()
    }

    fn details(&mut self, pid: u32) -> Option<Details> {
        self.spent_ns += costs::DETAILS;
        Some(self.processes.get(&pid)?.details.clone())
    }

    fn mapped(&mut self, pid: u32) -> Vec<Range<u64>> {
        self.spent_ns += costs::MAPS;
        self.mappings(pid).iter().map(addresses).collect()
    }

    /// A BPF program lists mappings without a policy, which costs nothing here because it was not measured. `maps` has
    /// their ends.
    fn movable(&mut self, pid: u32) -> Vec<Range<u64>> {
        self.spent_ns += costs::MAPS;
        self.mappings(pid).iter().filter(|mapping| mapping.own).map(addresses).collect()
    }

    fn present(&mut self, pid: u32, range: Range<u64>, most: usize) -> (Vec<u64>, u64) {
        let Some((region, first)) =
            place(range.start).filter(|_| self.processes.contains_key(&pid))
        else {
            return (Vec::new(), range.end);
        };
        let pages = (range.end.saturating_sub(range.start) / PAGE).min(most as u64);
        let there = (0..pages).filter(|page| self.world.page_node(region, first + page).is_some());
        (there.map(|page| range.start + page * PAGE).collect(), range.start + pages * PAGE)
    }

    fn locate(&mut self, _pid: u32, addresses: &[u64]) -> Vec<Option<u32>> {
        self.spent_ns += costs::LOCATED_PAGE * addresses.len() as u64;
        let node = |&address: &u64| {
            let (region, page) = place(address)?;
            self.world.page_node(region, page).map(|node| node as u32)
        };
        addresses.iter().map(node).collect()
    }

    fn move_to(&mut self, _pid: u32, addresses: &[u64], target: u32) -> u64 {
        for (region, groups) in groups(addresses) {
            self.world.move_pages(self.cpu, region, groups, target as usize);
        }
        let on = |&&address: &&u64| {
            let node = place(address).and_then(|(region, page)| self.world.page_node(region, page));
            node == Some(target as usize)
        };
        addresses.iter().filter(on).count() as u64
    }

    fn moving_ns(&mut self) -> u64 {
        self.moving_ns
    }

    fn room(&mut self) -> Vec<(u32, u64)> {
        self.spent_ns += costs::ROOM;
        let nodes = &self.world.machine().nodes;
        let kept = nodes.iter().map(|node| node.memory_bytes.unwrap_or(0) / PAGE / KEPT_FREE);
        let room = |(node, kept): (u32, u64)| {
            (node, self.world.free_pages(node as usize).saturating_sub(kept))
        };
        (0..).zip(kept).map(room).collect()
    }

    /// Memory counts for the group of the first task of each process that uses it. The kernel counts it for the group
    /// of the task that touched it first.
    fn group_pages(&mut self, group: u64) -> Option<Vec<(u32, u64)>> {
        let all = self.processes.values();
        let inside = all.filter(|process| process.details.group == Some(group));
        Some(numbered(self.by_node(inside)))
    }

    fn group_path(&mut self, group: u64) -> Option<String> {
        // The number of the first group's directory is 2 (`UserMaps::directory`).
        let index = usize::try_from(group.checked_sub(2)?).ok()?;
        Some(self.world.groups().get(index)?.path.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_a_page_of_a_region() {
        let mapping = Mapping { region: 3, pages: 100, own: true };
        let range = addresses(&mapping);
        assert_eq!(range.end - range.start, 100 * PAGE);
        assert_eq!([range.start, range.end - 1].map(place), [Some((3, 0)), Some((3, 99))]);
        assert_eq!([0, PAGE, u64::MAX].map(place), [None, None, Some((0xf_fffe, (1 << 32) - 1))]);
    }

    #[test]
    fn neighbouring_groups_move_together() {
        let at =
            |region, page| addresses(&Mapping { region, pages: 1, own: true }).start + page * PAGE;
        let pages = [at(0, 0), at(0, 63), at(0, 64), at(0, 200), at(1, 256), at(1, 257)];
        assert_eq!(groups(&pages), [(0, 0..2), (0, 3..4), (1, 4..5)]);
    }
}
