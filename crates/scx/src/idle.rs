//! The idle CPUs, as sched_ext's built-in idle tracking keeps them, and the default choice of an idle CPU.
//!
//! This follows the kernel's `kernel/sched/ext/idle.c`. A CPU that was chosen is no longer marked idle until it goes
//! idle again, so that two wakeups do not choose the same CPU.

use roost_engine::CpuId;
use roost_machine::{CpuSet, Machine};

/// Only CPUs whose whole core is idle (SCX_PICK_IDLE_CORE).
pub(crate) const PICK_CORE: u64 = 1;

/// Only CPUs of the node where the search begins (SCX_PICK_IDLE_IN_NODE).
pub(crate) const PICK_IN_NODE: u64 = 2;

/// The waker is about to sleep (SCX_WAKE_SYNC).
const WAKE_SYNC: u64 = 0x10;

/// Idle CPUs.
#[derive(Debug)]
pub(crate) struct Idle {
    /// Idle CPUs.
    pub cpus: CpuSet,
    /// Idle CPUs whose whole core is idle.
    pub cores: CpuSet,
    smt: bool,
    by_llc: bool,
    by_node: bool,
    /// If idle CPUs are tracked by node (SCX_OPS_BUILTIN_IDLE_PER_NODE): for each node, all nodes by distance, itself
    /// first. A search begins in one node then, and goes on to the others.
    near: Option<Vec<Vec<usize>>>,
    /// For each CPU that searches, the CPU that it found last. The next search continues after it
    /// (`distribute_cpu_mask_prev`).
    last_found: Vec<CpuId>,
}

impl Idle {
    /// All CPUs start idle. LLCs and nodes are searched separately only if they divide the machine, and in different
    /// ways. Nodes are not if idle CPUs are tracked by node (`scx_idle_update_selcpu_topology()`).
    pub(crate) fn new(machine: &Machine, per_node: bool) -> Self {
        let nr_cpus = machine.nr_cpus();
        let first = &machine.cpus[0];
        let node = &machine.nodes[first.node as usize].cpus;
        let matching = |llc: &roost_machine::Llc| {
            let node = llc.cpus.first().map(|cpu| machine.cpus[cpu].node as usize);
            node.is_some_and(|node| machine.nodes[node].cpus.len() == llc.cpus.len())
        };
        Self {
            cpus: CpuSet::full(nr_cpus),
            cores: CpuSet::full(nr_cpus),
            smt: machine.has_smt(),
            by_llc: machine.llcs[first.llc as usize].cpus.len() < nr_cpus,
            by_node: !per_node && node.len() < nr_cpus && !machine.llcs.iter().all(matching),
            near: per_node
                .then(|| (0..machine.nodes.len()).map(|node| near(machine, node)).collect()),
            last_found: vec![0; nr_cpus],
        }
    }

    /// Marks a CPU as idle or busy (`update_builtin_idle()`).
    pub(crate) fn set(&mut self, machine: &Machine, cpu: CpuId, idle: bool) {
        if idle {
            self.cpus.insert(cpu);
        } else {
            self.cpus.remove(cpu);
        }
        if !self.smt {
            return;
        }
        let core = &machine.cores[machine.cpus[cpu].core as usize].cpus;
        if !idle {
            core.iter().for_each(|cpu| self.cores.remove(cpu));
        } else if core.is_subset(&self.cpus) {
            core.iter().for_each(|cpu| self.cores.insert(cpu));
        }
    }

    /// Takes a CPU if it is idle: it is no longer marked idle (`scx_idle_test_and_clear_cpu()`).
    pub(crate) fn take(&mut self, machine: &Machine, cpu: CpuId) -> bool {
        if self.smt && self.cores.contains(cpu) {
            let core = &machine.cores[machine.cpus[cpu].core as usize].cpus;
            core.iter().for_each(|cpu| self.cores.remove(cpu));
        }
        let was = self.cpus.contains(cpu);
        self.cpus.remove(cpu);
        was
    }

    /// Whether idle CPUs are tracked by node.
    pub(crate) fn is_per_node(&self) -> bool {
        self.near.is_some()
    }

    /// The node whose idle CPUs are searched first, for a search that begins at `cpu`. `None` if they are not tracked
    /// by node (`scx_cpu_node_if_enabled()`).
    pub(crate) fn node_of(&self, machine: &Machine, cpu: CpuId) -> Option<usize> {
        self.is_per_node().then(|| machine.cpus[cpu].node as usize)
    }

    /// Takes an idle CPU of `among`. If idle CPUs are tracked by node, the search begins in `node` and goes on to the
    /// others by distance (`scx_pick_idle_cpu()`).
    pub(crate) fn pick(
        &mut self,
        machine: &Machine,
        searcher: CpuId,
        among: &CpuSet,
        node: Option<usize>,
        flags: u64,
    ) -> Option<CpuId> {
        let nodes = node.zip(self.near.as_ref()).map(|(node, near)| near[node].clone());
        let Some(nodes) = nodes else { return self.pick_in(machine, searcher, among, None, flags) };
        let most = if flags & PICK_IN_NODE != 0 { 1 } else { nodes.len() };
        let mut nodes = nodes.into_iter().take(most);
        nodes.find_map(|node| self.pick_in(machine, searcher, among, Some(node), flags))
    }

    /// Takes an idle CPU of `among`, and of `node` if one is given, preferably one whose whole core is idle
    /// (`pick_idle_cpu_in_node()`).
    fn pick_in(
        &mut self,
        machine: &Machine,
        searcher: CpuId,
        among: &CpuSet,
        node: Option<usize>,
        flags: u64,
    ) -> Option<CpuId> {
        let start = self.last_found[searcher] + 1;
        let there = |cpu: CpuId| node.is_none_or(|node| machine.cpus[cpu].node as usize == node);
        let fits = |cpu: &CpuId| among.contains(*cpu) && there(*cpu);
        let found = |set: &CpuSet| set.iter_wrap(start).find(fits);
        let of_core = if self.smt { found(&self.cores) } else { None };
        let only_cores = self.smt && flags & PICK_CORE != 0;
        let cpu = of_core.or_else(|| if only_cores { None } else { found(&self.cpus) })?;
        self.last_found[searcher] = cpu;
        self.take(machine, cpu);
        Some(cpu)
    }

    /// A CPU of `among`: the next one after that which `searcher` found last (`cpumask_any_distribute()`).
    pub(crate) fn any(&mut self, searcher: CpuId, among: &CpuSet) -> Option<CpuId> {
        let found = among.iter_wrap(self.last_found[searcher] + 1).next()?;
        self.last_found[searcher] = found;
        Some(found)
    }

    /// The default choice for a woken task (`scx_select_cpu_dfl()`): an idle CPU, if there is any.
    pub(crate) fn select(&mut self, machine: &Machine, wakeup: &Wakeup) -> Option<CpuId> {
        let &Wakeup { allowed, previous, searcher, .. } = wakeup;
        if allowed.is_empty() {
            return None;
        }
        let within = |cpus: &CpuSet| {
            let mut cpus = cpus.clone();
            cpus.intersect_with(allowed);
            (!cpus.is_empty()).then_some(cpus)
        };
        let place = &machine.cpus[previous];
        let llc = self.by_llc.then(|| within(&machine.llcs[place.llc as usize].cpus)).flatten();
        let node = self.by_node.then(|| within(&machine.nodes[place.node as usize].cpus)).flatten();
        let stays = allowed.contains(previous);
        if let Some(cpu) = self.for_sync(machine, wakeup, stays) {
            return Some(cpu);
        }
        let near: Vec<&CpuSet> = llc.iter().chain(&node).collect();
        let first = self.node_of(machine, previous);
        if self.smt {
            if stays && self.cores.contains(previous) && self.take(machine, previous) {
                return Some(previous);
            }
            let mut sets = near.iter();
            let whole = sets.find_map(|set| self.pick_in(machine, searcher, set, first, PICK_CORE));
            let pick = wakeup.pick | PICK_CORE;
            let whole = whole.or_else(|| self.pick(machine, searcher, allowed, first, pick));
            if whole.is_some() || wakeup.pick & PICK_CORE != 0 {
                return whole;
            }
        }
        if stays && self.take(machine, previous) {
            return Some(previous);
        }
        let core = &machine.cores[place.core as usize].cpus;
        let siblings = core.iter().filter(|&cpu| cpu != previous && allowed.contains(cpu));
        for sibling in siblings {
            if self.smt && self.take(machine, sibling) {
                return Some(sibling);
            }
        }
        let found = near.iter().find_map(|set| self.pick_in(machine, searcher, set, first, 0));
        found.or_else(|| self.pick(machine, searcher, allowed, first, wakeup.pick))
    }

    /// The choice for a wakeup whose waker is about to sleep.
    fn for_sync(&mut self, machine: &Machine, wakeup: &Wakeup, stays: bool) -> Option<CpuId> {
        let &Wakeup { allowed, previous, searcher, flags, searcher_queued, .. } = wakeup;
        if flags & WAKE_SYNC == 0 {
            return None;
        }
        if stays && machine.same_llc(searcher, previous) && self.take(machine, previous) {
            return Some(previous);
        }
        let node = self.node_of(machine, searcher);
        let may = wakeup.pick & PICK_IN_NODE == 0 || node == self.node_of(machine, previous);
        let is_there = |cpu: CpuId| node.is_none_or(|node| machine.cpus[cpu].node as usize == node);
        let some_idle = may && self.cpus.iter().any(is_there);
        let chosen = !searcher_queued && some_idle && allowed.contains(searcher);
        chosen.then(|| {
            self.take(machine, searcher);
            searcher
        })
    }
}

/// All nodes by distance from `node` (`for_each_node_numadist()`). Of equal ones the first comes first.
fn near(machine: &Machine, node: usize) -> Vec<usize> {
    let mut nodes: Vec<usize> = (0..machine.nodes.len()).collect();
    nodes.sort_by_key(|&other| (other != node, machine.distances[node][other], other));
    nodes
}

/// The wakeup for which a CPU is wanted.
pub(crate) struct Wakeup<'a> {
    /// CPUs that the task may use.
    pub allowed: &'a CpuSet,
    /// The task's previous CPU.
    pub previous: CpuId,
    /// The CPU that does the search.
    pub searcher: CpuId,
    /// SCX_WAKE_ flags.
    pub flags: u64,
    /// Whether tasks wait in the queue of `searcher`.
    pub searcher_queued: bool,
    /// SCX_PICK_IDLE_ flags.
    pub pick: u64,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Two cores of two CPUs: 0 and 1, 2 and 3.
    fn smt() -> (Machine, Idle) {
        let machine = roost_machine::resolve("node:1 l3:1 core:2 pu:2").unwrap();
        let idle = Idle::new(&machine, false);
        (machine, idle)
    }

    #[test]
    fn a_cpu_that_was_chosen_is_not_chosen_again_until_it_goes_idle() {
        let (machine, mut idle) = smt();
        let all = CpuSet::full(4);
        let mut chosen: Vec<CpuId> =
            (0..4).map(|_| idle.pick(&machine, 0, &all, None, 0).unwrap()).collect();
        chosen.sort_unstable();
        assert_eq!(chosen, [0, 1, 2, 3]);
        assert_eq!(idle.pick(&machine, 0, &all, None, 0), None);
        idle.set(&machine, 2, true);
        assert_eq!(idle.pick(&machine, 0, &all, None, 0), Some(2));
    }

    /// Four nodes of two CPUs. Node 2 is on the same socket as node 3, nodes 0 and 1 on the other one.
    #[test]
    fn tracked_by_node_a_search_goes_from_the_nearest_node_to_the_farthest() {
        let machine = roost_machine::resolve("4n1l4c").unwrap();
        let mut idle = Idle::new(&machine, true);
        let all = CpuSet::full(16);
        let mut pick = |flags| idle.pick(&machine, 0, &all, Some(2), flags);
        let own: Vec<_> = (0..4).filter_map(|_| pick(PICK_IN_NODE)).collect();
        assert!(own.iter().all(|&cpu| machine.cpus[cpu].node == 2) && own.len() == 4, "{own:?}");
        assert_eq!(pick(PICK_IN_NODE), None, "others are idle, but not asked for");
        let rest: Vec<_> = (0..12).filter_map(|_| pick(0)).collect();
        let distances: Vec<_> =
            rest.iter().map(|&cpu| machine.distances[2][machine.cpus[cpu].node as usize]).collect();
        assert!(rest.len() == 12 && distances.is_sorted(), "{distances:?}");
    }

    /// The waker's node has no idle CPU, so a wakeup that is the waker's last act does not take its CPU.
    #[test]
    fn the_wakers_cpu_is_taken_only_if_its_own_node_has_idle_cpus() {
        let machine = roost_machine::resolve("2n2l4c").unwrap();
        let all = CpuSet::full(16);
        let chosen = |per_node| {
            let mut idle = Idle::new(&machine, per_node);
            (0..9).for_each(|cpu| idle.set(&machine, cpu, false));
            let wakeup = Wakeup {
                allowed: &all,
                previous: 8,
                searcher: 0,
                flags: WAKE_SYNC,
                searcher_queued: false,
                pick: 0,
            };
            idle.select(&machine, &wakeup).unwrap()
        };
        assert_eq!(chosen(false), 0, "some CPU of the machine is idle");
        assert_eq!(machine.cpus[chosen(true)].node, 1);
    }

    #[test]
    fn wholly_idle_cores_come_first() {
        let (machine, mut idle) = smt();
        idle.set(&machine, 1, false);
        let all = CpuSet::full(4);
        let first = idle.pick(&machine, 0, &all, None, 0).unwrap();
        assert_eq!(machine.cpus[first].core, machine.cpus[2].core);
        assert_eq!(idle.pick(&machine, 0, &all, None, PICK_CORE), None, "no core is wholly idle");
        assert!(idle.pick(&machine, 0, &all, None, 0).is_some());
    }

    #[test]
    fn a_core_is_wholly_idle_again_when_all_its_cpus_are() {
        let (machine, mut idle) = smt();
        idle.set(&machine, 0, false);
        idle.set(&machine, 1, false);
        idle.set(&machine, 0, true);
        assert!(!idle.cores.contains(0));
        idle.set(&machine, 1, true);
        assert!(idle.cores.contains(0) && idle.cores.contains(1));
    }
}
