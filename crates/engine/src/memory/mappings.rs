//! What a program in user space learns from the kernel about processes' memory (`/proc/PID/maps`,
//! `move_pages(2)` without a target, `/proc/zoneinfo`).

use super::pages::GROUP_PAGES;
use crate::scheduler::TaskId;
use crate::task::State;
use crate::world::World;

/// A mapping of a process: one region, from its first page to its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The region, numbered in the order of first use. The number is used again after the region is
    /// gone.
    pub region: u32,
    /// Its size in pages, present or not.
    pub pages: u64,
    /// Whether only this process uses it, and it has no memory policy.
    pub own: bool,
}

impl World {
    /// Tasks that have not exited, in the order of their [`TaskId`]s.
    pub fn living(&self) -> impl Iterator<Item = TaskId> {
        let tasks = (0..).map(TaskId).zip(&self.tasks);
        tasks.filter(|(_, task)| task.state != State::Dead).map(|(id, _)| id)
    }

    /// The regions that `process` has used, in the order of first use.
    pub fn mappings(&self, process: u32) -> Vec<Mapping> {
        let Some(memory) = self.memory.as_deref() else { return Vec::new() };
        let Some(space) = memory.spaces.get(process as usize) else { return Vec::new() };
        let mapping = |&region: &u32| {
            let pages = memory.regions[region as usize].pages.pages();
            Mapping { region, pages, own: space.is_own(region) }
        };
        space.regions.iter().map(mapping).collect()
    }

    /// The node of a page of a region. `None` if no task has touched the page.
    pub fn page_node(&self, region: u32, page: u64) -> Option<usize> {
        let pages = &self.memory.as_deref()?.regions.get(region as usize)?.pages;
        (page < pages.pages()).then(|| pages.node((page / GROUP_PAGES) as usize))?
    }

    /// Pages of a region on each node, in the order of nodes.
    pub fn region_by_node(&self, region: u32) -> &[u64] {
        let regions = self.memory.as_deref().map_or(&[][..], |memory| &memory.regions);
        regions.get(region as usize).map_or(&[], |region| region.pages.on())
    }

    /// Pages of a node that belong to no region.
    pub fn free_pages(&self, node: usize) -> u64 {
        self.memory.as_deref().map_or(0, |memory| memory.nodes.free(node))
    }
}
