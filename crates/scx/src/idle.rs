//! The idle CPUs, as sched_ext's built-in idle tracking keeps them, and the default choice of an idle CPU.
//!
//! This follows the kernel's `kernel/sched/ext/idle.c`. A CPU that was chosen is no longer marked idle until it goes
//! idle again, so that two wakeups do not choose the same CPU.

use roost_engine::CpuId;
use roost_machine::{CpuSet, Machine};

/// Only CPUs whose whole core is idle (SCX_PICK_IDLE_CORE).
pub(crate) const PICK_CORE: u64 = 1;

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
    /// For each CPU that searches, the CPU that it found last. The next search continues after it
    /// (`distribute_cpu_mask_prev`).
    last_found: Vec<CpuId>,
}

impl Idle {
    /// All CPUs start idle. LLCs and nodes are searched separately only if they divide the machine, and in different
    /// ways (`scx_idle_update_selcpu_topology()`).
    pub(crate) fn new(machine: &Machine) -> Self {
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
            by_node: node.len() < nr_cpus && !machine.llcs.iter().all(matching),
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

    /// Takes an idle CPU of `among`, preferably one whose whole core is idle (`pick_idle_cpu_in_node()`).
    pub(crate) fn pick(
        &mut self,
        machine: &Machine,
        searcher: CpuId,
        among: &CpuSet,
        flags: u64,
    ) -> Option<CpuId> {
        let start = self.last_found[searcher] + 1;
        let found = |set: &CpuSet| set.iter_wrap(start).find(|&cpu| among.contains(cpu));
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
        let domains: Vec<&CpuSet> = llc.iter().chain(&node).chain([allowed]).collect();
        if self.smt {
            if stays && self.cores.contains(previous) && self.take(machine, previous) {
                return Some(previous);
            }
            let mut domains = domains.iter();
            let whole = domains.find_map(|set| self.pick(machine, searcher, set, PICK_CORE));
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
        domains.iter().find_map(|set| self.pick(machine, searcher, set, 0))
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
        let chosen = !searcher_queued && !self.cpus.is_empty() && allowed.contains(searcher);
        chosen.then(|| {
            self.take(machine, searcher);
            searcher
        })
    }
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
        let idle = Idle::new(&machine);
        (machine, idle)
    }

    #[test]
    fn a_cpu_that_was_chosen_is_not_chosen_again_until_it_goes_idle() {
        let (machine, mut idle) = smt();
        let all = CpuSet::full(4);
        let mut chosen: Vec<CpuId> =
            (0..4).map(|_| idle.pick(&machine, 0, &all, 0).unwrap()).collect();
        chosen.sort_unstable();
        assert_eq!(chosen, [0, 1, 2, 3]);
        assert_eq!(idle.pick(&machine, 0, &all, 0), None);
        idle.set(&machine, 2, true);
        assert_eq!(idle.pick(&machine, 0, &all, 0), Some(2));
    }

    #[test]
    fn wholly_idle_cores_come_first() {
        let (machine, mut idle) = smt();
        idle.set(&machine, 1, false);
        let all = CpuSet::full(4);
        let first = idle.pick(&machine, 0, &all, 0).unwrap();
        assert_eq!(machine.cpus[first].core, machine.cpus[2].core);
        assert_eq!(idle.pick(&machine, 0, &all, PICK_CORE), None, "no core is wholly idle");
        assert!(idle.pick(&machine, 0, &all, 0).is_some());
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
