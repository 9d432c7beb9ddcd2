//! Chooses a CPU on a better node for the current task, or a task there to swap with
//! (`task_numa_migrate`; kernel model, section 12.5).

use roost_engine::{CpuId, TaskId, World};

use super::NodeId;
use super::weight::Shape;
use crate::balance::ms_to_jiffies;
use crate::state::{Fair, LINES_PER_QUEUE};
use crate::wakeup::Lines;

/// Smallest gain for a swap (SMALLIMP).
const SMALL_GAIN: i64 = 30;

/// Capacity of a CPU.
const CAPACITY: i64 = 1024;

/// imbalance_pct without a NUMA domain (the kernel's initial value).
const DEFAULT_PCT: i64 = 112;

/// How full a node is (`enum numa_type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum NodeType {
    #[default]
    HasSpare,
    FullyBusy,
    Overloaded,
}

/// Sums over the CPUs of a node (`struct numa_stats`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NodeStats {
    load: i64,
    runnable: i64,
    util: i64,
    capacity: i64,
    nr_running: i64,
    weight: i64,
    kind: NodeType,
    idle_cpu: Option<CpuId>,
}

impl NodeStats {
    /// `numa_classify`.
    fn classify(&self, pct: i64) -> NodeType {
        let busy = 100 * self.capacity < pct * self.util;
        let waits = pct * self.capacity < 100 * self.runnable;
        if self.nr_running > self.weight && (busy || waits) {
            return NodeType::Overloaded;
        }
        let idle = 100 * self.capacity > pct * self.util;
        let no_waits = pct * self.capacity > 100 * self.runnable;
        match self.nr_running < self.weight || (idle && no_waits) {
            true => NodeType::HasSpare,
            false => NodeType::FullyBusy,
        }
    }
}

/// Whether a move of `load` would increase the difference of loads (`load_too_imbalanced`).
fn too_imbalanced(src: &NodeStats, dst: &NodeStats, load: i64) -> bool {
    let apart = |src_load: i64, dst_load: i64| {
        (i128::from(dst_load) * i128::from(src.capacity)
            - i128::from(src_load) * i128::from(dst.capacity))
        .abs()
    };
    apart(src.load - load, dst.load + load) > apart(src.load, dst.load)
}

/// A search under way (`struct task_numa_env`).
#[derive(Clone, Copy, Debug)]
struct Search {
    task: TaskId,
    src_cpu: CpuId,
    src: NodeId,
    dst_cpu: CpuId,
    dst: NodeId,
    distance: u32,
    pct: i64,
    imb_numa_nr: u32,
    src_stats: NodeStats,
    dst_stats: NodeStats,
    /// The best choice so far: CPU, gain, and the task to swap with.
    best_cpu: Option<CpuId>,
    best_gain: i64,
    best_task: Option<TaskId>,
}

/// Gain of moving the task to a node, in thousandths of locality, for the task and for its group.
#[derive(Clone, Copy, Debug)]
struct Gain {
    task: i64,
    group: i64,
}

impl Fair {
    /// From time to time a task that is not on its preferred node tries to move there
    /// (`numa_migrate_preferred`).
    pub(super) fn migrate_preferred(&mut self, world: &mut World, cpu: CpuId, task: TaskId) {
        let Some(preferred) = self.preferred(task) else { return };
        let hz = self.features.hz;
        let now = self.jiffies(world.now());
        let state = &mut self.numa.tasks[task.index()];
        let pause = (ms_to_jiffies(state.period, hz) / 16).min(u64::from(hz));
        state.migrate_retry = now + pause;
        if self.numa.node(cpu) != preferred {
            let found = self.migrate_for_numa(world, cpu, task, preferred);
            self.note_attempt(world, task, preferred, !found);
        }
    }

    /// `task_numa_migrate`. Returns whether it found a CPU.
    fn migrate_for_numa(
        &mut self,
        world: &mut World,
        cpu: CpuId,
        task: TaskId,
        to: NodeId,
    ) -> bool {
        let Some(mut search) = self.begin_search(world, cpu, task, to) else {
            self.set_preferred(world, task, Some(self.numa.node(cpu)));
            return false;
        };
        let lines = self.search_nodes(world, &mut search);
        world.charge(cpu, lines);
        if self.numa.tasks[task.index()].group.is_some() {
            let node = search.best_cpu.map_or(search.src, |best| self.numa.node(best));
            self.set_preferred(world, task, Some(node));
        }
        let Some(best) = search.best_cpu else {
            self.numa.sticks += 1;
            return false;
        };
        match search.best_task {
            Some(_) => self.numa.swaps += 1,
            None => self.numa.moves += 1,
        }
        self.ask_to_move(world, cpu, task, best, search.best_task);
        true
    }

    /// Begins a search; `None` without a NUMA domain.
    fn begin_search(&self, world: &World, cpu: CpuId, task: TaskId, dst: NodeId) -> Option<Search> {
        let level = self.topology.numa_level[cpu]?;
        let domain = self.topology.domain(self.topology.domains_of(cpu)[level]);
        let src = self.numa.node(cpu);
        let pct = match domain.imbalance_pct {
            0 => DEFAULT_PCT,
            pct => 100 + (i64::from(pct) - 100) / 2,
        };
        let mut search = Search {
            task,
            src_cpu: cpu,
            src,
            dst_cpu: cpu,
            dst,
            distance: self.numa.distances.get(src, dst),
            pct,
            imb_numa_nr: domain.imb_numa_nr,
            src_stats: NodeStats::default(),
            dst_stats: NodeStats::default(),
            best_cpu: None,
            best_gain: 0,
            best_task: None,
        };
        search.src_stats = self.node_stats(world, &search, src, false);
        Some(search)
    }

    /// Tries the preferred node. Tries others if there is no place, or if the group is active on
    /// several nodes. Returns the time to examine their run queues, ns.
    fn search_nodes(&mut self, world: &World, search: &mut Search) -> u64 {
        let Search { task, src, dst: preferred, .. } = *search;
        let first = search.distance;
        let weights = |fair: &Self, node: NodeId, distance: u32| Gain {
            task: fair.numa.task_weight(task, node, distance),
            group: fair.numa.group_weight(task, node, distance),
        };
        let mut here = weights(self, src, first);
        let there = weights(self, preferred, first);
        let mut lines = self.look_at(world, search.src_cpu, src);
        let gain = Gain { task: there.task - here.task, group: there.group - here.group };
        lines += self.try_node(world, search, gain);
        let several = self.numa.tasks[task.index()]
            .group
            .is_some_and(|group| self.numa.groups[group as usize].active_nodes > 1);
        if search.best_cpu.is_some() && !several {
            return lines;
        }
        for node in 0..self.numa.nodes() {
            if node == src || node == preferred || self.numa.cpus_of[node].is_empty() {
                continue;
            }
            // As in the kernel, this is the distance to the node tried before this one.
            let distance = self.numa.distances.get(src, search.dst);
            if self.numa.distances.shape == Shape::Backplane && distance != search.distance {
                here = weights(self, src, distance);
            }
            let there = weights(self, node, distance);
            let gain = Gain { task: there.task - here.task, group: there.group - here.group };
            if gain.task < 0 && gain.group < 0 {
                continue;
            }
            search.distance = distance;
            search.dst = node;
            lines += self.try_node(world, search, gain);
        }
        lines
    }

    /// Time for `cpu` to fetch the run queues of a node, ns.
    fn look_at(&self, world: &World, cpu: CpuId, node: NodeId) -> u64 {
        let others = self.numa.cpus_of[node].iter().filter(|&other| other != cpu);
        LINES_PER_QUEUE * others.map(|other| world.machine().line_ns(other, cpu)).sum::<u64>()
    }

    /// `update_numa_stats`.
    fn node_stats(
        &self,
        world: &World,
        search: &Search,
        node: NodeId,
        find_idle: bool,
    ) -> NodeStats {
        let cpus = &self.numa.cpus_of[node];
        let mut stats = NodeStats { weight: cpus.len() as i64, ..NodeStats::default() };
        let mut idle_core = None;
        for cpu in cpus.iter() {
            let rq = &self.rqs[cpu];
            stats.load += self.cpu_load(cpu) as i64;
            stats.runnable += rq.avg.runnable_avg as i64;
            stats.util += self.cpu_util(cpu) as i64;
            stats.nr_running += i64::from(rq.nr_runnable);
            stats.capacity += CAPACITY;
            let free = rq.nr_running == 0 && world.is_idle(cpu) && !rq.numa_migrate_on;
            if find_idle && idle_core.is_none() && free && world.allowed(search.task).contains(cpu)
            {
                stats.idle_cpu = stats.idle_cpu.or(Some(cpu));
                let siblings = self.topology.siblings(cpu);
                let whole = self.topology.smt_active && siblings.is_subset(world.idle_cpus());
                idle_core = whole.then_some(cpu);
            }
        }
        stats.kind = stats.classify(search.pct);
        stats.idle_cpu = idle_core.or(stats.idle_cpu);
        stats
    }

    /// `task_numa_find_cpu` on the search's destination node.
    fn try_node(&mut self, world: &World, search: &mut Search, gain: Gain) -> u64 {
        let lines = self.look_at(world, search.src_cpu, search.dst);
        search.dst_stats = self.node_stats(world, search, search.dst, true);
        let (src, dst) = (&search.src_stats, &search.dst_stats);
        let may_move = if self.features.numa.node_types && dst.kind == NodeType::HasSpare {
            let (there, here) = (dst.nr_running + 1, src.nr_running - 1);
            self.imbalance_is_allowed(search, there, here)
        } else {
            !too_imbalanced(src, dst, self.numa_load(search.task))
        };
        if may_move
            && self.features.numa.node_types
            && dst.kind == NodeType::HasSpare
            && let Some(idle) = dst.idle_cpu
        {
            search.dst_cpu = idle;
            self.assign(world, search, None, 0);
            return lines;
        }
        let cpus = self.numa.cpus_of[search.dst].clone();
        let task = search.task;
        for cpu in cpus.iter().filter(|&cpu| world.allowed(task).contains(cpu)) {
            search.dst_cpu = cpu;
            if self.compare(world, search, gain, may_move) {
                break;
            }
        }
        lines
    }

    /// Whether the balancer would leave alone the imbalance between both nodes after a move
    /// (`adjust_numa_imbalance`).
    fn imbalance_is_allowed(&self, search: &Search, there: i64, here: i64) -> bool {
        let ahead = (there - here).max(0) as u64;
        let there = there.max(0) as u32;
        let weight = search.dst_stats.weight as u32;
        self.mechanisms.leaves_alone(ahead, there, weight, search.imb_numa_nr)
    }

    /// Compares with the current task of the destination CPU (`task_numa_compare`). Returns whether
    /// the search may stop.
    fn compare(&mut self, world: &World, search: &mut Search, gain: Gain, may_move: bool) -> bool {
        if self.rqs[search.dst_cpu].numa_migrate_on {
            return false;
        }
        let grouped = self.numa.tasks[search.task.index()].group.is_some();
        let move_gain = if grouped { gain.group } else { gain.task };
        let Some(current) = world.current(search.dst_cpu) else {
            if may_move && move_gain >= search.best_gain {
                return self.take(world, search, None, move_gain, may_move);
            }
            return false;
        };
        if current == search.task {
            return self.features.numa.node_types;
        }
        if !world.allowed(current).contains(search.src_cpu) || self.prefers_worse(search, current) {
            return false;
        }
        let Some(swap_gain) = self.swap_gain(search, current, gain) else { return false };
        if may_move && move_gain > swap_gain && move_gain > search.best_gain {
            return self.take(world, search, None, move_gain, may_move);
        }
        // The other task's group has settled there.
        let stays = self.stays_on_node(current, search.dst, search.src);
        if self.is_better_swap(search, current, swap_gain) && !stays {
            return self.take(world, search, Some(current), swap_gain, may_move);
        }
        false
    }

    /// Whether the best swap so far brings a task to its preferred node, and a swap with `current`
    /// would not.
    fn prefers_worse(&self, search: &Search, current: TaskId) -> bool {
        let goes_home = |task| self.preferred(task) == Some(search.src);
        self.features.numa.node_types
            && search.best_task.is_some_and(goes_home)
            && !goes_home(current)
    }

    /// Total gain if the task and `current` change places.
    fn swap_gain(&self, search: &Search, current: TaskId, gain: Gain) -> Option<i64> {
        let Search { src, dst, distance, .. } = *search;
        let group = |task: TaskId| self.numa.tasks[task.index()].group;
        let (own, theirs) = (group(search.task), group(current));
        let task_gain = self.numa.task_weight(current, src, distance)
            - self.numa.task_weight(current, dst, distance);
        let group_gain = self.numa.group_weight(current, src, distance)
            - self.numa.group_weight(current, dst, distance);
        let mut sum = if own == theirs {
            let spare = search.dst_stats.kind == NodeType::HasSpare;
            if self.features.numa.no_swap_with_spare && spare {
                return None;
            }
            let sum = gain.task + task_gain;
            if own.is_some() { sum - sum / 16 } else { sum }
        } else {
            let move_gain = if own.is_some() { gain.group } else { gain.task };
            let both = own.is_some() && theirs.is_some();
            move_gain + if both { group_gain } else { task_gain }
        };
        if self.features.numa.node_types {
            let preferred = self.preferred(current);
            sum -= if preferred == Some(dst) { sum / 16 } else { 0 };
            sum += if preferred == Some(src) { sum / 8 } else { 0 };
        }
        Some(sum)
    }

    /// Whether a swap is better than the best choice so far and keeps the loads balanced.
    fn is_better_swap(&self, search: &Search, current: TaskId, gain: i64) -> bool {
        let goes_home = |task| self.preferred(task) == Some(search.src);
        if self.features.numa.node_types
            && search.best_task.is_some_and(|best| goes_home(current) && !goes_home(best))
        {
            return true;
        }
        if gain < SMALL_GAIN || gain <= search.best_gain + SMALL_GAIN / 2 {
            return false;
        }
        let load = self.numa_load(search.task) - self.numa_load(current);
        load == 0 || !too_imbalanced(&search.src_stats, &search.dst_stats, load)
    }

    /// Takes a choice as the best so far. Returns whether the search may stop.
    fn take(
        &mut self,
        world: &World,
        search: &mut Search,
        swap: Option<TaskId>,
        gain: i64,
        may_move: bool,
    ) -> bool {
        if swap.is_none() {
            search.dst_cpu = self.cpu_to_move_to(world, search);
        }
        self.assign(world, search, swap, gain);
        if !self.features.numa.node_types {
            return false;
        }
        let moves_to_idle = search.best_cpu.is_some_and(|best| world.is_idle(best));
        let goes_home = search.best_task.is_some_and(|t| self.preferred(t) == Some(search.src));
        if may_move { swap.is_none() && moves_to_idle } else { goes_home }
    }

    /// The CPU of the destination node for a move without a swap.
    fn cpu_to_move_to(&mut self, world: &World, search: &Search) -> CpuId {
        if !self.features.numa.node_types {
            let mut lines = Lines::new(search.src_cpu);
            let Search { task, src_cpu, dst_cpu, .. } = *search;
            return self.select_idle_sibling(world, task, src_cpu, dst_cpu, &mut lines);
        }
        let cpu = search.dst_stats.idle_cpu.unwrap_or(search.dst_cpu);
        match search.best_cpu {
            Some(best) if !world.is_idle(cpu) && world.is_idle(best) => best,
            _ => cpu,
        }
    }

    /// `task_numa_assign`: marks the CPU as taken and releases the one before.
    fn assign(&mut self, world: &World, search: &mut Search, swap: Option<TaskId>, gain: i64) {
        if search.best_cpu != Some(search.dst_cpu) && self.rqs[search.dst_cpu].numa_migrate_on {
            let Some(other) = self.other_idle_cpu(world, search) else { return };
            search.dst_cpu = other;
        }
        if let Some(best) = search.best_cpu.filter(|&best| best != search.dst_cpu) {
            self.rqs[best].numa_migrate_on = false;
        }
        self.rqs[search.dst_cpu].numa_migrate_on = true;
        search.best_task = swap;
        search.best_gain = gain;
        search.best_cpu = Some(search.dst_cpu);
    }

    /// Another idle CPU of the node to which no task is moving.
    fn other_idle_cpu(&self, world: &World, search: &Search) -> Option<CpuId> {
        if !self.features.numa.node_types {
            return None;
        }
        let free = |&cpu: &CpuId| {
            search.best_cpu != Some(cpu)
                && world.is_idle(cpu)
                && world.allowed(search.task).contains(cpu)
                && !self.rqs[cpu].numa_migrate_on
        };
        self.numa.cpus_of[search.dst].iter_wrap(search.dst_cpu + 1).find(free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(nr_running: i64, util: i64, runnable: i64) -> NodeStats {
        NodeStats { nr_running, util, runnable, weight: 4, capacity: 4096, ..NodeStats::default() }
    }

    #[test]
    fn nodes_are_classed_by_tasks_and_time() {
        // At 112 %, 4096 is exceeded by util above 3657.1 or runnable above 4587.5.
        assert_eq!(node(5, 3658, 0).classify(112), NodeType::Overloaded);
        assert_eq!(node(5, 0, 4588).classify(112), NodeType::Overloaded);
        assert_eq!(node(5, 3657, 4587).classify(112), NodeType::HasSpare);
        assert_eq!(node(4, 3658, 4588).classify(112), NodeType::FullyBusy);
        assert_eq!(node(3, 4096, 9000).classify(112), NodeType::HasSpare);
    }

    #[test]
    fn loads_may_only_come_closer() {
        let of = |load, capacity| NodeStats { load, capacity, ..NodeStats::default() };
        assert!(!too_imbalanced(&of(2048, 4096), &of(0, 4096), 1024));
        assert!(!too_imbalanced(&of(2048, 4096), &of(1024, 4096), 1024), "the mirror image");
        assert!(too_imbalanced(&of(2048, 4096), &of(1024, 4096), 1025));
        assert!(too_imbalanced(&of(1024, 4096), &of(1024, 4096), 1));
        assert!(!too_imbalanced(&of(2048, 4096), &of(1024, 8192), 512));
    }
}
