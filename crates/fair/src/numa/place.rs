//! Placement: after each full scan, finds where a task's or its group's memory is
//! (`task_numa_placement`; kernel model, section 12.3).

use roost_engine::{TaskId, World};

use super::period::{Window, adapted};
use super::weight::Shape;
use super::{KINDS, NodeId, kind};
use crate::balance::ms_to_jiffies;
use crate::pelt::LOAD_AVG_MAX;
use crate::state::Fair;

/// The change of a decayed sum after a window: half of the sum leaves and the window is added. Like
/// the kernel, this subtracts the half that integer division gives.
fn increment(sum: i64, window: i64) -> i64 {
    window - sum / 2
}

/// Weights faults by the node of the CPU with the CPU time of their task, so that all tasks of a
/// group compare.
fn weighed(runtime: u64, period: u64, window: i64, faults: u64) -> i64 {
    let weight = ((runtime << 16) / (period + 1)) as i64;
    weight * window / (faults as i64 + 1)
}

impl Fair {
    /// Places `task` if its process was scanned since the last placement.
    pub(super) fn place(&mut self, world: &World, task: TaskId) {
        let process = world.process(task);
        let seq = self.numa.processes[process as usize].seq;
        if self.numa.tasks[task.index()].scan_seq == seq {
            return;
        }
        let period_max = self.scan_max(world, process, self.numa.tasks[task.index()].group);
        let state = &mut self.numa.tasks[task.index()];
        state.scan_seq = seq;
        state.period_max = period_max;
        let (shared, private) = self.add_window(world, task);
        let node = self.node_with_most(task);
        if let Some(node) = node {
            self.set_preferred(world, task, Some(node));
        }
        self.adapt_period(world, task, shared, private);
    }

    /// Adds the window to the decayed sums. Returns its shared and private faults.
    fn add_window(&mut self, world: &World, task: TaskId) -> (u64, u64) {
        let (runtime, period) = self.ran_since_placement(task);
        let state = &mut self.numa.tasks[task.index()];
        let faults = state.locality[0] + state.locality[1];
        let mut group = state.group.map(|group| &mut self.numa.groups[group as usize]);
        let mut seen = [0; KINDS];
        let mut grown = 0;
        for node in 0..state.mem.len() {
            for (kind, seen) in seen.iter_mut().enumerate() {
                let mem_window = std::mem::take(&mut state.mem_window[node][kind]);
                let cpu_window = std::mem::take(&mut state.cpu_window[node][kind]);
                let mem = increment(state.mem[node][kind], mem_window);
                let cpu = weighed(runtime, period, cpu_window, faults);
                let cpu = increment(state.cpu[node][kind], cpu);
                *seen += mem_window;
                grown += mem;
                state.mem[node][kind] += mem;
                state.cpu[node][kind] += cpu;
                if let Some(group) = &mut group {
                    group.mem[node][kind] += mem;
                    group.cpu[node][kind] += cpu;
                    group.total += mem;
                }
            }
        }
        state.total += grown;
        if let Some(group) = group {
            group.count_active_nodes();
        }
        self.grow_footprint(world, task, grown);
        (seen[kind(false)] as u64, seen[kind(true)] as u64)
    }

    /// Run time since the last placement, and elapsed time. The first time PELT's numbers are used
    /// (`numa_get_avg_runtime`).
    fn ran_since_placement(&mut self, task: TaskId) -> (u64, u64) {
        let fair = &self.tasks[task.index()];
        let (now, ran) = (fair.exec_start, fair.sum_exec);
        let state = &mut self.numa.tasks[task.index()];
        let times = match state.last_placement {
            0 => (fair.avg.load_sum, LOAD_AVG_MAX),
            last => (ran - state.last_sum_exec, now.saturating_sub(last)),
        };
        (state.last_placement, state.last_sum_exec) = (now, ran);
        times
    }

    /// The node that `task` should prefer; `None` if it has no faults.
    fn node_with_most(&self, task: TaskId) -> Option<NodeId> {
        let state = &self.numa.tasks[task.index()];
        let group = state.group.map(|group| &self.numa.groups[group as usize]);
        let faults = |node| match group {
            Some(group) => group.mem_faults(node),
            None => state.mem_faults(node),
        };
        let mut most = (0, None);
        for node in 0..self.numa.nodes() {
            let here = faults(node).max(0) as u64;
            if self.may_prefer(task, node, here, most.0) {
                most = (here, Some(node));
            }
        }
        let node = most.1?;
        let node = self.nearest_with_cpus(node);
        Some(if group.is_some() { self.group_node(task, node) } else { node })
    }

    /// `numa_nearest_node`: a task cannot run on a node without CPUs.
    fn nearest_with_cpus(&self, node: NodeId) -> NodeId {
        let with_cpus = (0..self.numa.nodes()).filter(|&n| !self.numa.cpus_of[n].is_empty());
        match self.numa.cpus_of[node].is_empty() {
            false => node,
            true => with_cpus.min_by_key(|&n| self.numa.distances.get(node, n)).unwrap_or(node),
        }
    }

    /// The node for a group, by the topology of the machine (`preferred_group_nid`).
    fn group_node(&self, task: TaskId, node: NodeId) -> NodeId {
        match self.numa.distances.shape {
            Shape::Direct => node,
            Shape::Mesh => self.best_of_mesh(task, node),
            Shape::Backplane => self.best_of_backplane(task, node),
        }
    }

    fn best_of_mesh(&self, task: TaskId, node: NodeId) -> NodeId {
        let mut best = (0, node);
        for other in (0..self.numa.nodes()).filter(|&n| !self.numa.cpus_of[n].is_empty()) {
            let score = self.numa.group_weight(task, other, self.numa.distances.max);
            if score > best.0 {
                best = (score, other);
            }
        }
        best.1
    }

    /// From the largest distance down: of the sets of nodes closer than the distance, the search
    /// continues in the one with most faults.
    fn best_of_backplane(&self, task: TaskId, node: NodeId) -> NodeId {
        let Some(group) = self.numa.tasks[task.index()].group else { return node };
        let group = &self.numa.groups[group as usize];
        let mut node = node;
        let mut nodes: Vec<NodeId> =
            (0..self.numa.nodes()).filter(|&n| !self.numa.cpus_of[n].is_empty()).collect();
        for &distance in self.numa.distances.levels.iter().rev() {
            if distance <= super::weight::LOCAL_DISTANCE {
                break;
            }
            let (mut most, mut kept) = (0, Vec::new());
            let mut rest = nodes.clone();
            while let Some(&first) = rest.first() {
                let near = |n: &NodeId| self.numa.distances.get(first, *n) < distance;
                let set: Vec<NodeId> = rest.iter().copied().filter(near).collect();
                rest.retain(|n| !near(n) && *n != first);
                let faults: i64 = set.iter().map(|&n| group.mem_faults(n)).sum();
                if faults > most {
                    (most, node, kept) = (faults, first, set);
                }
            }
            if most == 0 {
                break;
            }
            nodes = kept;
        }
        node
    }

    fn adapt_period(&mut self, world: &World, task: TaskId, shared: u64, private: u64) {
        let process = world.process(task);
        let group = self.numa.tasks[task.index()].group;
        let limits = (self.scan_min(world, process), self.scan_max(world, process, group));
        let now = self.jiffies(world.now());
        let state = &mut self.numa.tasks[task.index()];
        let [remote, local, failed] = state.locality;
        let window = Window { local, remote, failed, shared, private };
        match adapted(state.period, window, limits.0, limits.1) {
            Some(period) => {
                state.period = period;
                state.locality = [0; 3];
            }
            None => {
                state.period = (2 * state.period).min(state.period_max);
                let pause = ms_to_jiffies(state.period, self.features.hz);
                self.numa.processes[process as usize].next_scan = now + pause;
            }
        }
    }

    /// `task` moves to another CPU. If it leaves its preferred node, or before its first scan, it
    /// scans fast again (`update_scan_period`).
    pub(crate) fn numa_moved(&mut self, world: &World, task: TaskId, from: usize, to: usize) {
        if !self.numa.active || self.numa.node(from) == self.numa.node(to) {
            return;
        }
        let state = &self.numa.tasks[task.index()];
        if !state.has_faults() || !self.features.numa.places_tasks {
            return;
        }
        let preferred = self.preferred(task);
        let leaves = preferred.is_none() || preferred == Some(self.numa.node(from));
        if state.scan_seq > 0 && (preferred == Some(self.numa.node(to)) || !leaves) {
            return;
        }
        self.numa.tasks[task.index()].period = self.scan_start(world, task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_forget_half_and_add_the_window() {
        assert_eq!(100 + increment(100, 30), 80);
        assert_eq!(1 + increment(1, 0), 1, "the last unit never decays");
    }

    #[test]
    fn faults_of_a_task_count_by_its_cpu_time() {
        // Half of the time: 32767 / 65536 of 65536, times this node's share.
        assert_eq!(weighed(500, 999, 100, 99), 32_768);
        assert_eq!(weighed(500, 999, 50, 99), 16_384);
        assert_eq!(weighed(0, 999, 100, 99), 0);
    }
}
