//! Flags of domains whose CPUs have different capacities (the kernel's `topology.c`).
//!
//! Such machines are simulated with CPUs of equal speed, but their domains are the kernel's: a
//! domain below one with different capacities does not spread tasks over its siblings. The rest of
//! the kernel's support (misfit tasks, searches for a CPU that fits) is not modelled.

use roost_engine::CpuId;
use roost_machine::{CpuSet, Machine};

use super::Flags;
use crate::eras::Asymmetry;

/// The CPUs of each capacity, and the rule for flags.
pub(super) struct Capacities {
    /// CPUs by capacity; a single set if all are equal.
    classes: Vec<CpuSet>,
    rule: Rule,
}

/// Which domains get flags.
enum Rule {
    /// None.
    Never,
    /// All domains of one level.
    Level(usize),
    /// All domains that span several capacities.
    Span,
}

impl Capacities {
    /// The capacities of `machine`. `spans` gives the CPUs of a CPU's domain at a level, counted
    /// from the bottom. `levels` is the number of levels.
    pub fn new<'a>(
        machine: &Machine,
        asymmetry: Asymmetry,
        levels: usize,
        spans: impl Fn(usize, CpuId) -> Option<&'a CpuSet>,
    ) -> Self {
        let mut values: Vec<u32> = machine.cpus.iter().map(|cpu| cpu.capacity).collect();
        values.sort_unstable();
        values.dedup();
        let class = |&value: &u32| {
            let cpus = (0..machine.nr_cpus()).filter(|&cpu| machine.cpus[cpu].capacity == value);
            CpuSet::from_cpus(machine.nr_cpus(), cpus)
        };
        let rule = match asymmetry {
            _ if values.len() == 1 => Rule::Never,
            Asymmetry::Unknown => Rule::Never,
            Asymmetry::OneLevel => {
                one_level(machine, levels, spans).map_or(Rule::Never, Rule::Level)
            }
            Asymmetry::BySpan => Rule::Span,
        };
        Self { classes: values.iter().map(class).collect(), rule }
    }

    /// The flags of a domain with the CPUs `span` at this level (`asym_cpu_capacity_classify`).
    pub fn flags(&self, level: usize, span: &CpuSet) -> Flags {
        let inside = || self.classes.iter().filter(|class| class.intersects(span)).count();
        match self.rule {
            Rule::Level(one) if one == level => Flags::ASYM_CPUCAPACITY,
            Rule::Never | Rule::Level(_) => Flags::default(),
            Rule::Span => match inside() {
                1 => Flags::default(),
                all if all == self.classes.len() => {
                    Flags::ASYM_CPUCAPACITY.with(Flags::ASYM_CPUCAPACITY_FULL)
                }
                _ => Flags::ASYM_CPUCAPACITY,
            },
        }
    }
}

/// The lowest level at which every CPU's span has a CPU of the highest capacity
/// (`asym_cpu_capacity_level`).
fn one_level<'a>(
    machine: &Machine,
    levels: usize,
    spans: impl Fn(usize, CpuId) -> Option<&'a CpuSet>,
) -> Option<usize> {
    let capacity = |cpu: CpuId| machine.cpus[cpu].capacity;
    let mut found = None;
    for cpu in 0..machine.nr_cpus() {
        let mut highest = capacity(cpu);
        for level in found.unwrap_or(0)..levels {
            let Some(span) = spans(level, cpu) else { break };
            let seen = span.iter().map(capacity).max().unwrap_or(0);
            if seen > highest {
                (highest, found) = (seen, Some(level));
            }
        }
    }
    found
}
