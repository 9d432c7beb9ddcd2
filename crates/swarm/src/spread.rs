//! Checks that tasks spread from one group of CPUs to another: from an LLC to another of its node, and from a node to
//! another.

use roost_engine::{CpuId, Time};
use roost_machine::Machine;

use crate::promises::Promises;

/// An LLC or a node.
struct Group {
    name: String,
    /// The node of an LLC. Tasks spread over the LLCs of a node, and over all nodes. `None`: a node.
    parent: Option<usize>,
    cpus: Vec<CpuId>,
    /// Since when the same of its CPUs idle, while no task waits and no task comes from elsewhere. `None`: no CPU
    /// idles, or a task waits.
    spare_since: Option<Time>,
    /// Since when no CPU idles, some task waits, and no task goes elsewhere.
    full_since: Option<Time>,
    /// How long both may last beside each other. `None`: without limit.
    longest_ns: Option<u64>,
}

/// What a CPU does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub idle: bool,
    /// Whether a task waits on it.
    pub waiting: bool,
}

/// All groups of a machine.
pub(crate) struct Spread {
    groups: Vec<Group>,
    /// The groups of each CPU.
    of_cpu: Vec<Vec<usize>>,
    states: Vec<State>,
}

impl Spread {
    pub(crate) fn new(machine: &Machine, promises: &Promises) -> Self {
        let group = |kind: &str, number: usize, parent, of: &dyn Fn(&roost_machine::Cpu) -> u32| {
            let cpus = machine.cpus.iter().enumerate();
            let cpus = cpus.filter(|(_, cpu)| of(cpu) as usize == number).map(|(cpu, _)| cpu);
            Group {
                name: format!("{kind} {number}"),
                parent,
                cpus: cpus.collect(),
                spare_since: Some(Time(0)),
                full_since: None,
                longest_ns: promises.longest_spare_ns(parent),
            }
        };
        let nodes = (0..machine.nodes.len()).map(|node| group("node", node, None, &|cpu| cpu.node));
        let llcs = machine.llcs.iter().enumerate().filter_map(|(number, llc)| {
            let node = machine.cpus[llc.cpus.first()?].node as usize;
            Some(group("LLC", number, Some(node), &|cpu| cpu.llc))
        });
        let groups: Vec<Group> = nodes.chain(llcs).filter(|group| !group.cpus.is_empty()).collect();
        let of_cpu = (0..machine.nr_cpus()).map(|cpu| {
            let own = |(_, group): &(usize, &Group)| group.cpus.contains(&cpu);
            groups.iter().enumerate().filter(own).map(|(index, _)| index).collect()
        });
        let of_cpu = of_cpu.collect();
        let states = vec![State { idle: true, waiting: false }; machine.nr_cpus()];
        Self { groups, of_cpu, states }
    }

    /// The state of `cpu` from now on.
    pub(crate) fn is(&mut self, now: Time, cpu: CpuId, state: State) -> Result<(), String> {
        let before = std::mem::replace(&mut self.states[cpu], state);
        if before == state {
            return Ok(());
        }
        let mut wrong = Ok(());
        for index in 0..self.of_cpu[cpu].len() {
            let own = self.of_cpu[cpu][index];
            wrong = wrong.and(self.check(now, own));
            let group = &mut self.groups[own];
            let states = || group.cpus.iter().map(|&cpu| self.states[cpu]);
            let (idles, waits) = (states().any(|s| s.idle), states().any(|s| s.waiting));
            let same = group.spare_since.filter(|_| before.idle == state.idle);
            group.spare_since = (idles && !waits).then(|| same.unwrap_or(now));
            group.full_since = (!idles && waits).then(|| group.full_since.unwrap_or(now));
        }
        wrong
    }

    /// A task leaves `from` for `to`. `None`: it exits.
    pub(crate) fn moves(
        &mut self,
        now: Time,
        from: CpuId,
        to: Option<CpuId>,
    ) -> Result<(), String> {
        let of = |cpu: Option<CpuId>| cpu.map_or(Vec::new(), |cpu| self.of_cpu[cpu].clone());
        let (from, to) = (of(Some(from)), of(to));
        let mut wrong = Ok(());
        for &left in from.iter().filter(|own| !to.contains(own)) {
            wrong = wrong.and(self.check(now, left));
            self.groups[left].full_since = self.groups[left].full_since.map(|_| now);
        }
        for &reached in to.iter().filter(|own| !from.contains(own)) {
            wrong = wrong.and(self.check(now, reached));
            self.groups[reached].spare_since = self.groups[reached].spare_since.map(|_| now);
        }
        wrong
    }

    /// The run has ended.
    pub(crate) fn ends(&self, now: Time) -> Result<(), String> {
        (0..self.groups.len()).try_for_each(|group| self.check(now, group))
    }

    /// Checks that no group beside this one had CPUs to spare for too long while this one was full, nor the other way
    /// round.
    fn check(&self, now: Time, index: usize) -> Result<(), String> {
        let own = &self.groups[index];
        let beside = self.groups.iter().filter(|other| other.parent == own.parent);
        beside.into_iter().try_for_each(|other| {
            too_long(now, own, other).and_then(|()| too_long(now, other, own))
        })
    }
}

/// Checks that `spare` did not have CPUs to spare for too long while `full` was full.
fn too_long(now: Time, spare: &Group, full: &Group) -> Result<(), String> {
    let (Some(spare_since), Some(full_since), Some(longest)) =
        (spare.spare_since, full.full_since, spare.longest_ns)
    else {
        return Ok(());
    };
    let both = now.since(spare_since.max(full_since));
    if both <= longest {
        return Ok(());
    }
    Err(format!(
        "{} has had idle CPUs for {both} ns while tasks wait in {}, where no CPU idles; {longest} would do",
        spare.name, full.name
    ))
}
