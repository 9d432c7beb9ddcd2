//! How much of a task's or a group's memory is on a node and near it (`task_weight`,
//! `group_weight`, `score_nearby_nodes`; kernel model, section 12.5), and the topology types that
//! decide what is near.

use roost_engine::TaskId;
use roost_machine::Machine;

use super::{NodeId, Numa};
use crate::state::Fair;

/// SLIT distance of a node to itself.
pub(super) const LOCAL_DISTANCE: u32 = 10;

/// How nodes are connected (`enum numa_topology_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// All nodes are equally far from each other.
    Direct,
    /// Nodes far from each other have other nodes between them, nearer to both.
    Mesh,
    /// There are sets of nodes; nodes of a set are nearer to each other than to other nodes.
    Backplane,
}

/// Distances between nodes.
#[derive(Clone, Debug)]
pub(super) struct Distances {
    table: Vec<Vec<u32>>,
    pub shape: Shape,
    pub max: u32,
    /// All distances that occur, in increasing order.
    pub levels: Vec<u32>,
}

impl Distances {
    pub fn new(machine: &Machine) -> Self {
        let nodes = 0..machine.nodes.len();
        let row = |from| nodes.clone().map(|to| machine.distance(from, to)).collect();
        Self::of(nodes.clone().map(row).collect())
    }

    /// `init_numa_topology_type`.
    pub fn of(table: Vec<Vec<u32>>) -> Self {
        let mut levels: Vec<u32> = table.iter().flatten().copied().collect();
        levels.sort_unstable();
        levels.dedup();
        let max = levels.last().copied().unwrap_or(LOCAL_DISTANCE);
        let shape = if levels.len() <= 2 { Shape::Direct } else { between(&table, max) };
        Self { table, shape, max, levels }
    }

    pub fn get(&self, a: NodeId, b: NodeId) -> u32 {
        self.table[a][b]
    }

    /// What nodes near `node` add to its score. `limit` is the distance considered.
    fn nearby(&self, node: NodeId, limit: u32, faults: impl Fn(NodeId) -> i64) -> i64 {
        if self.shape == Shape::Direct {
            return 0;
        }
        let counts = |&other: &NodeId| {
            let distance = self.get(node, other);
            let beyond = self.shape == Shape::Backplane && distance >= limit;
            other != node && distance < self.max && !beyond
        };
        let score = |other: NodeId| match self.shape {
            Shape::Mesh => {
                let nearness = i64::from(self.max - self.get(node, other));
                faults(other) * nearness / i64::from(self.max - LOCAL_DISTANCE)
            }
            _ => faults(other),
        };
        (0..self.table.len()).filter(counts).map(score).sum()
    }
}

/// Looks for a node between the first two nodes that are farthest from each other.
fn between(table: &[Vec<u32>], max: u32) -> Shape {
    let nodes = 0..table.len();
    let farthest =
        nodes.clone().find_map(|a| nodes.clone().find(|&b| table[a][b] >= max).map(|b| (a, b)));
    let Some((a, b)) = farthest else { return Shape::Direct };
    match nodes.clone().any(|c| table[a][c] < max && table[b][c] < max) {
        true => Shape::Mesh,
        false => Shape::Backplane,
    }
}

impl Numa {
    /// `task_weight`: thousandths of the task's memory faults on and near `node`.
    pub(super) fn task_weight(&self, task: TaskId, node: NodeId, distance: u32) -> i64 {
        let state = &self.tasks[task.index()];
        if state.total == 0 {
            return 0;
        }
        let near = self.distances.nearby(node, distance, |other| state.mem_faults(other));
        1000 * (state.mem_faults(node) + near) / state.total
    }

    /// `group_weight`: the same for the task's group; 0 without one.
    pub(super) fn group_weight(&self, task: TaskId, node: NodeId, distance: u32) -> i64 {
        let Some(group) = self.tasks[task.index()].group else { return 0 };
        let group = &self.groups[group as usize];
        if group.total == 0 {
            return 0;
        }
        let near = self.distances.nearby(node, distance, |other| group.mem_faults(other));
        1000 * (group.mem_faults(node) + near) / group.total
    }
}

impl Fair {
    /// Loss of locality if `task` moves, in thousandths; negative for a gain. It is the group's
    /// loss if the task has a group.
    pub(super) fn locality_lost(&self, task: TaskId, src: NodeId, dst: NodeId) -> i64 {
        let distance = self.numa.distances.get(src, dst);
        match self.numa.tasks[task.index()].group {
            Some(_) => {
                self.numa.group_weight(task, src, distance)
                    - self.numa.group_weight(task, dst, distance)
            }
            None => {
                self.numa.task_weight(task, src, distance)
                    - self.numa.task_weight(task, dst, distance)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn distances(rows: &[&[u32]]) -> Distances {
        Distances::of(rows.iter().map(|row| row.to_vec()).collect())
    }

    #[test]
    fn shapes_are_told_by_their_distances() {
        let shape = |rows: &[&[u32]]| distances(rows).shape;
        assert_eq!(shape(&[&[10, 21], &[21, 10]]), Shape::Direct);
        // A square: opposite corners are connected through the others.
        let square: &[&[u32]] =
            &[&[10, 11, 12, 11], &[11, 10, 11, 12], &[12, 11, 10, 11], &[11, 12, 11, 10]];
        assert_eq!(shape(square), Shape::Mesh);
        let two_boxes: &[&[u32]] =
            &[&[10, 15, 40, 40], &[15, 10, 40, 40], &[40, 40, 10, 15], &[40, 40, 15, 10]];
        assert_eq!(shape(two_boxes), Shape::Backplane);
    }

    #[test]
    fn near_nodes_count_by_the_shape() {
        let faults = |node: NodeId| [100, 40, 20, 10][node];
        let square: &[&[u32]] =
            &[&[10, 11, 12, 11], &[11, 10, 11, 12], &[12, 11, 10, 11], &[11, 12, 11, 10]];
        // (12 - 11) / (12 - 10) of the neighbours 1 and 3, and nothing of the opposite corner.
        assert_eq!(distances(square).nearby(0, 11, faults), 40 / 2 + 10 / 2);
        let two_boxes: &[&[u32]] =
            &[&[10, 15, 40, 40], &[15, 10, 40, 40], &[40, 40, 10, 15], &[40, 40, 15, 10]];
        assert_eq!(distances(two_boxes).nearby(0, 40, faults), 40);
        assert_eq!(
            distances(two_boxes).nearby(0, 15, faults),
            0,
            "only nodes closer than the limit count"
        );
        assert_eq!(distances(&[&[10, 21], &[21, 10]]).nearby(0, 21, faults), 0);
    }
}
