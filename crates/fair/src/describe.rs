//! The scheduling domains of a CPU as rows and as text.

use roost_engine::CpuId;
use roost_machine::Machine;

use crate::domain::{Level, Topology};
use crate::features::Features;

/// One scheduling domain of a CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainRow {
    /// The level as the kernel names it: `SMT`, `CLS`, `MC`, `PKG` (`DIE`, in 3.9 `CPU`), `NODE`,
    /// `NUMA`.
    pub level: &'static str,
    /// For a NUMA level: the largest distance it spans (10 is local).
    pub distance: Option<u32>,
    /// Its CPUs in list format.
    pub span: String,
    /// Number of CPUs.
    pub weight: u32,
    /// The CPUs of its groups in the kernel's order, the CPU's own group first.
    pub groups: Vec<String>,
    /// Flags, without `SD_`.
    pub flags: Vec<&'static str>,
    /// Imbalance in per cent that load balancing acts on.
    pub imbalance_pct: u32,
    /// Shortest time between balancing passes of an idle CPU, ms.
    pub min_interval_ms: u32,
    /// Longest time between balancing passes of an idle CPU, ms.
    pub max_interval_ms: u32,
    /// Factor by which a busy CPU waits longer.
    pub busy_factor: u32,
    /// Failed passes after which cache-hot tasks are moved too.
    pub cache_nice_tries: u32,
    /// NUMA levels: number of tasks by which a node may be ahead of another, if it does not depend
    /// on the tasks' affinity. `None` for other levels.
    pub allowed_numa_imbalance: Option<u32>,
}

/// The domains of `cpu`, bottom up, in the kernel version `features`. Empty if there is no such
/// CPU.
pub fn domain_rows(machine: &Machine, features: &Features, cpu: CpuId) -> Vec<DomainRow> {
    if cpu >= machine.nr_cpus() {
        return Vec::new();
    }
    let topology = Topology::new(machine, features);
    let ids = topology.domains_of(cpu);
    ids.iter().enumerate().map(|(level, _)| row(&topology, features, cpu, level)).collect()
}

/// The domains of `cpu` as a table for people. A CPU without domains gives one line that says so.
pub fn describe_domains(machine: &Machine, features: &Features, cpu: CpuId) -> String {
    let rows = domain_rows(machine, features, cpu);
    if rows.is_empty() {
        return match cpu < machine.nr_cpus() {
            true => format!("CPU {cpu} has no scheduling domains\n"),
            false => format!("there is no CPU {cpu}: CPUs are 0 to {}\n", machine.nr_cpus() - 1),
        };
    }
    rows.iter().map(text).collect()
}

fn row(topology: &Topology, features: &Features, cpu: CpuId, level: usize) -> DomainRow {
    let domain = topology.domain(topology.domains_of(cpu)[level]);
    let own = topology.local_group_index(cpu, level);
    let order = domain.groups[own..].iter().chain(&domain.groups[..own]);
    let (name, distance) = name(domain.level, features);
    DomainRow {
        level: name,
        distance,
        span: domain.span.to_string(),
        weight: domain.weight,
        groups: order.map(|&id| topology.group(id).span.to_string()).collect(),
        flags: domain.flags.names(),
        imbalance_pct: domain.imbalance_pct,
        min_interval_ms: domain.min_interval_ms,
        max_interval_ms: domain.max_interval_ms,
        busy_factor: domain.busy_factor,
        cache_nice_tries: domain.cache_nice_tries,
        allowed_numa_imbalance: features.mechanisms.limit_between_nodes(domain),
    }
}

/// The name of the level in this version.
fn name(level: Level, features: &Features) -> (&'static str, Option<u32>) {
    match level {
        Level::Smt => ("SMT", None),
        Level::Cluster => ("CLS", None),
        Level::Mc => ("MC", None),
        Level::Pkg => (features.domains.package_name, None),
        Level::Node => ("NODE", None),
        Level::Numa { distance } => ("NUMA", Some(distance)),
    }
}

/// One domain as a paragraph.
fn text(row: &DomainRow) -> String {
    let reach = row.distance.map(|distance| format!(" {distance}")).unwrap_or_default();
    let mut text = format!("{}{reach}: CPUs {} ({})\n", row.level, row.span, row.weight);
    text += &format!("  groups            {}\n", row.groups.join(" | "));
    text += &format!("  flags             {}\n", row.flags.join(" "));
    text += &format!("  imbalance_pct     {}\n", row.imbalance_pct);
    text += &format!("  interval          {} to {} ms", row.min_interval_ms, row.max_interval_ms);
    text += &format!(", x {} while busy\n", row.busy_factor);
    text += &format!("  cache_nice_tries  {}\n", row.cache_nice_tries);
    if let Some(tasks) = row.allowed_numa_imbalance {
        let unit = if tasks == 1 { "task" } else { "tasks" };
        text += &format!("  NUMA imbalance    limit {tasks} {unit}\n");
    }
    text
}
