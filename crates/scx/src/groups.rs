//! Cgroups as programs see them: a `struct cgroup` for each, and the structs through which a task points to its cgroup.
//!
//! A group of the workload is a cgroup with the cpu controller. The root has number 0 here.

use roost_engine::World;
use roost_workload::GroupId;

use crate::error::ScxError;
use crate::kernel_types::KernelTypes;
use crate::memory::{Memory, Wild};

/// Members of `struct cgroup` that the simulation fills.
pub(crate) const FILLED: [&str; 7] =
    ["kn", "level", "ancestors", "self", "self.cgroup", "self.parent", "self.parent.cgroup"];

/// `cpu.weight` of the root, which has no siblings and so the default (CGROUP_WEIGHT_DFL).
const ROOT_WEIGHT: u32 = 100;

/// Members of `struct task_group` that the simulation fills. Others are 0, which is right for a burst.
pub(crate) const FILLED_TASK_GROUP: [&str; 5] =
    ["css.cgroup", "parent", "cfs_bandwidth.period", "cfs_bandwidth.quota", "cfs_bandwidth.burst"];

/// `cpu.max` of a group without a limit: its period in us (`default_bw_period_us()`), and no quota (RUNTIME_INF). No
/// group of a workload has a limit.
const PERIOD_US: u64 = 100_000;
const NO_QUOTA: u64 = u64::MAX;

/// Offsets of members, in bytes.
#[derive(Debug)]
struct Layout {
    cgroup_size: usize,
    level: u64,
    node: u64,
    ancestors: u64,
    /// Offset of the group's own `struct cgroup_subsys_state` in `struct cgroup`. The next members are the offsets of
    /// its cgroup and of its parent.
    own: u64,
    own_cgroup: u64,
    own_parent: u64,
    css_set_size: usize,
    default_cgroup: u64,
    node_size: usize,
    node_id: u64,
    node_name: u64,
    task_group_size: usize,
    task_group_cgroup: u64,
    task_group_parent: u64,
    bandwidth_period: u64,
    bandwidth_quota: u64,
    init_weight: u64,
    /// Offset of the limit's period, if the kernel tells limits (since 6.17).
    init_period: Option<u64>,
    init_quota: Option<u64>,
}

impl Layout {
    fn new(kernel: &KernelTypes) -> Result<Self, ScxError> {
        Ok(Self {
            cgroup_size: kernel.struct_size("cgroup")?,
            level: kernel.offset("cgroup", "level")?,
            node: kernel.offset("cgroup", "kn")?,
            ancestors: kernel.offset("cgroup", "ancestors")?,
            own: kernel.offset("cgroup", "self")?,
            own_cgroup: kernel.offset("cgroup", "self.cgroup")?,
            own_parent: kernel.offset("cgroup", "self.parent")?,
            css_set_size: kernel.struct_size("css_set")?,
            default_cgroup: kernel.offset("css_set", "dfl_cgrp")?,
            node_size: kernel.struct_size("kernfs_node")?,
            node_id: kernel.offset("kernfs_node", "id")?,
            node_name: kernel.offset("kernfs_node", "name")?,
            task_group_size: kernel.struct_size("task_group")?,
            task_group_cgroup: kernel.offset("task_group", "css.cgroup")?,
            task_group_parent: kernel.offset("task_group", "parent")?,
            bandwidth_period: kernel.offset("task_group", "cfs_bandwidth.period")?,
            bandwidth_quota: kernel.offset("task_group", "cfs_bandwidth.quota")?,
            init_weight: kernel.offset("scx_cgroup_init_args", "weight")?,
            init_period: kernel.offset("scx_cgroup_init_args", "bw_period_us").ok(),
            init_quota: kernel.offset("scx_cgroup_init_args", "bw_quota_us").ok(),
        })
    }
}

/// Addresses of a group's structs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Group {
    pub cgroup: u64,
    pub css_set: u64,
    pub task_group: u64,
    /// The group's own `struct cgroup_subsys_state`.
    pub state: u64,
    /// Number of the group above it.
    pub parent: Option<usize>,
    weight: u32,
}

/// All groups: the root, then those of the workload.
#[derive(Debug)]
pub(crate) struct Groups {
    layout: Layout,
    groups: Vec<Group>,
}

impl Groups {
    pub(crate) fn new(kernel: &KernelTypes) -> Result<Self, ScxError> {
        Ok(Self { layout: Layout::new(kernel)?, groups: Vec::new() })
    }

    /// Creates the structs of all groups, parents before their children.
    pub(crate) fn begin(&mut self, memory: &mut Memory, world: &World) -> Result<(), Wild> {
        let root = self.make(memory, None, "/", ROOT_WEIGHT)?;
        self.groups = vec![root];
        for group in world.groups() {
            let parent = self.number(group.parent);
            let name = group.path.rsplit('/').next().unwrap_or_default();
            let made = self.make(memory, Some(parent), name, group.weight)?;
            self.groups.push(made);
        }
        Ok(())
    }

    fn number(&self, group: Option<GroupId>) -> usize {
        group.map_or(0, |group| group as usize + 1)
    }

    /// The group of a task.
    pub(crate) fn get(&self, group: Option<GroupId>) -> Group {
        self.groups.get(self.number(group)).copied().unwrap_or_default()
    }

    /// The number of a group's directory (`kernfs_node.id`). The root has 1.
    pub(crate) fn directory(&self, group: GroupId) -> u64 {
        self.number(Some(group)) as u64 + 1
    }

    /// The ancestor of a cgroup that has this level (`cgroup_ancestor()`). 0 if there is none.
    pub(crate) fn ancestor(&self, memory: &Memory, cgroup: u64, level: u32) -> Result<u64, Wild> {
        let own = memory.read(cgroup.wrapping_add(self.layout.level), 4)?;
        let at = cgroup.wrapping_add(self.layout.ancestors + 8 * u64::from(level));
        if u64::from(level) <= own { memory.read(at, 8) } else { Ok(0) }
    }

    /// All groups, parents before their children.
    pub(crate) fn all(&self) -> &[Group] {
        &self.groups
    }

    fn make(
        &self,
        memory: &mut Memory,
        parent: Option<usize>,
        name: &str,
        weight: u32,
    ) -> Result<Group, Wild> {
        let (above, number) = (parent.map_or(0, |parent| self.groups[parent].task_group), parent);
        let parent = parent.map(|parent| self.groups[parent].cgroup);
        let layout = &self.layout;
        let level = match parent {
            Some(parent) => memory.read(parent + layout.level, 4)? + 1,
            None => 0,
        };
        let full = |_| Wild { address: 0, write: true };
        let mut piece = |size: usize| memory.allocate(size).ok_or(()).map_err(full);
        let cgroup = piece(layout.cgroup_size + 8 * (level as usize + 1))?;
        let (node, css_set) = (piece(layout.node_size)?, piece(layout.css_set_size)?);
        let (task_group, text) = (piece(layout.task_group_size)?, piece(name.len() + 1)?);
        memory.slice_mut(text, name.len())?.copy_from_slice(name.as_bytes());
        // The root has id 1. The others are numbered in the order of creation.
        memory.write(node + layout.node_id, 8, self.groups.len() as u64 + 1)?;
        memory.write(node + layout.node_name, 8, text)?;
        memory.write(cgroup + layout.level, 4, level)?;
        memory.write(cgroup + layout.node, 8, node)?;
        memory.write(cgroup + layout.own_cgroup, 8, cgroup)?;
        memory.write(cgroup + layout.own_parent, 8, parent.map_or(0, |at| at + layout.own))?;
        for above in 0..level {
            let ancestor = memory.read(parent.unwrap_or(0) + layout.ancestors + 8 * above, 8)?;
            memory.write(cgroup + layout.ancestors + 8 * above, 8, ancestor)?;
        }
        memory.write(cgroup + layout.ancestors + 8 * level, 8, cgroup)?;
        memory.write(css_set + layout.default_cgroup, 8, cgroup)?;
        memory.write(task_group + layout.task_group_cgroup, 8, cgroup)?;
        memory.write(task_group + layout.task_group_parent, 8, above)?;
        memory.write(task_group + layout.bandwidth_period, 8, 1000 * PERIOD_US)?;
        memory.write(task_group + layout.bandwidth_quota, 8, NO_QUOTA)?;
        let state = cgroup + layout.own;
        Ok(Group { cgroup, css_set, task_group, state, parent: number, weight })
    }

    /// Writes a `struct scx_cgroup_init_args` for a group.
    pub(crate) fn write_arguments(
        &self,
        memory: &mut Memory,
        at: u64,
        group: Group,
    ) -> Result<(), Wild> {
        memory.write(at + self.layout.init_weight, 4, group.weight.into())?;
        let limit = [(self.layout.init_period, PERIOD_US), (self.layout.init_quota, NO_QUOTA)];
        for (offset, value) in limit {
            offset.map_or(Ok(()), |offset| memory.write(at + offset, 8, value))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use roost_workload::Group as InWorkload;

    use super::*;

    /// The root, /a with weight 300, and /a/b.
    fn made() -> (Groups, Memory) {
        let machine = Arc::new(roost_machine::resolve("2n2l4c").unwrap());
        let mut world = World::for_test(machine, 0);
        let group =
            |path: &str, parent, weight| InWorkload { path: path.to_owned(), parent, weight };
        world.set_groups_for_test(vec![group("/a", None, 300), group("/a/b", Some(0), 100)]);
        let (mut groups, mut memory) =
            (Groups::new(&KernelTypes::shipped().unwrap()).unwrap(), Memory::default());
        groups.begin(&mut memory, &world).unwrap();
        (groups, memory)
    }

    #[test]
    fn a_cgroup_knows_those_above_it() {
        let (groups, memory) = made();
        let read = |at: u64| memory.read(at, 8).unwrap();
        let [root, a, b] = [None, Some(0), Some(1)].map(|group| groups.get(group).cgroup);
        let layout = &groups.layout;
        let levels = [root, a, b].map(|at| memory.read(at + layout.level, 4).unwrap());
        assert_eq!(levels, [0, 1, 2]);
        assert_eq!([0, 8, 16].map(|at| read(b + layout.ancestors + at)), [root, a, b]);
        assert_eq!(read(root + layout.own_parent), 0);
        // A program reads `cgroup->self.parent->cgroup`.
        let of_parent = layout.own_cgroup - layout.own;
        assert_eq!(read(read(b + layout.own_parent) + of_parent), a);
    }

    #[test]
    fn a_cgroup_finds_those_above_it_and_no_address_panics() {
        let (groups, memory) = made();
        let [root, b] = [None, Some(1)].map(|group| groups.get(group).cgroup);
        let ancestor = |cgroup, level| groups.ancestor(&memory, cgroup, level);
        assert_eq!([0, 2, 3].map(|level| ancestor(b, level)), [Ok(root), Ok(b), Ok(0)]);
        assert!(ancestor(u64::MAX / 2, 0).is_err());
        let _ = ancestor(u64::MAX, u32::MAX);
    }

    #[test]
    fn a_cgroup_has_its_number_name_and_weight() {
        let (groups, mut memory) = made();
        let group = groups.get(Some(1));
        let node = memory.read(group.cgroup + groups.layout.node, 8).unwrap();
        assert_eq!(memory.read(node + groups.layout.node_id, 8), Ok(3));
        let name = memory.read(node + groups.layout.node_name, 8).unwrap();
        assert_eq!(memory.text(name, 15).unwrap(), "b");
        let at = memory.allocate(64).unwrap();
        groups.write_arguments(&mut memory, at, groups.get(Some(0))).unwrap();
        assert_eq!(memory.read(at + groups.layout.init_weight, 4), Ok(300));
    }
}
