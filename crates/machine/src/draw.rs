//! A machine as text, for people.

use std::fmt::Write;

use crate::build::list;
use crate::{Cpu, CpuSet, Llc, Machine};

/// What a drawing shows beside hierarchy, distances and guesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrawOptions {
    /// Every figure with its source.
    pub figures: bool,
}

/// Draws the machine: its hierarchy with equal neighbours in one line, the table of distances, and
/// the guesses. CPU and node numbers are the operating system's.
pub fn draw(machine: &Machine, options: DrawOptions) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_machine(&mut out, machine, options);
    out
}

fn write_machine(out: &mut String, m: &Machine, options: DrawOptions) -> std::fmt::Result {
    let counts = [
        count(m.packages, "package"),
        count(m.nodes.len(), "node"),
        count(m.llcs.len(), "LLC"),
        count(m.cores.len(), "core"),
        count(m.nr_cpus(), "CPU"),
    ];
    writeln!(out, "{}: {}", m.name, counts.join(", "))?;
    for number in 0..m.nodes.len() {
        write_node(out, m, number)?;
    }
    if m.nodes.len() > 1 {
        write_distances(out, m)?;
    }
    if options.figures {
        write_figures(out, m)?;
    }
    if !m.guesses.is_empty() {
        writeln!(out, "guessed")?;
        for guess in &m.guesses {
            writeln!(out, "  {}: {}", guess.name, guess.assumed)?;
        }
    }
    Ok(())
}

/// A number of things, such as `1 LLC` or `2 LLCs`.
pub fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn write_node(out: &mut String, m: &Machine, number: usize) -> std::fmt::Result {
    let node = &m.nodes[number];
    let memory = node.memory_bytes.map_or("memory size unknown".into(), bytes);
    write!(out, "node {}  {memory}  ", node.os_index)?;
    if node.cpus.is_empty() {
        return writeln!(out, "no CPUs");
    }
    let mut packages: Vec<u32> = node.cpus.iter().map(|cpu| m.cpus[cpu].package).collect();
    packages.sort_unstable();
    packages.dedup();
    let several = packages.len() > 1;
    let plural = if several { "s" } else { "" };
    let packages = list(packages.into_iter());
    writeln!(out, "package{plural} {packages}  CPUs {}", os_list(m, &node.cpus))?;
    let llcs: Vec<&Llc> = m
        .llcs
        .iter()
        .filter(|llc| first(m, llc).is_some_and(|cpu| cpu.node as usize == number))
        .collect();
    for group in llcs.chunk_by(|a, b| shape(m, a) == shape(m, b)) {
        write_llcs(out, m, group, several)?;
    }
    Ok(())
}

/// The lowest CPU of an LLC.
fn first<'a>(m: &'a Machine, llc: &Llc) -> Option<&'a Cpu> {
    m.cpus.get(llc.cpus.first()?)
}

/// What two LLCs must have in common to share a line: package, size, clusters (and cores in each)
/// and cores (and CPUs in each).
#[derive(PartialEq, Eq)]
struct Shape {
    package: Option<u32>,
    size_bytes: Option<u64>,
    clusters: Vec<usize>,
    cores: Vec<usize>,
}

fn shape(m: &Machine, llc: &Llc) -> Shape {
    let mut cores: Vec<(u32, Option<u32>)> =
        llc.cpus.iter().map(|cpu| (m.cpus[cpu].core, m.cpus[cpu].cluster)).collect();
    cores.sort_unstable();
    let threads = cores.chunk_by(|a, b| a.0 == b.0).map(<[_]>::len).collect();
    cores.dedup();
    let mut clusters: Vec<u32> = cores.iter().filter_map(|core| core.1).collect();
    clusters.sort_unstable();
    Shape {
        package: first(m, llc).map(|cpu| cpu.package),
        size_bytes: llc.size_bytes,
        clusters: clusters.chunk_by(|a, b| a == b).map(<[_]>::len).collect(),
        cores: threads,
    }
}

/// A run of LLCs of one shape, and the contents of each. The package is shown if the node has
/// several.
fn write_llcs(
    out: &mut String,
    m: &Machine,
    group: &[&Llc],
    several_packages: bool,
) -> std::fmt::Result {
    let (Some(head), Some(last)) = (group.first(), group.last()) else { return Ok(()) };
    let shape = shape(m, head);
    let size = shape.size_bytes.map_or("size unknown".into(), bytes);
    write!(out, "  LLC{}  {size}  ", times(group.len()))?;
    if let Some(package) = shape.package.filter(|_| several_packages) {
        write!(out, "package {package}  ")?;
    }
    write!(out, "CPUs {}", os_list(m, &head.cpus))?;
    if group.len() > 1 {
        let between = if group.len() > 2 { ".." } else { "and" };
        write!(out, " {between} {}", os_list(m, &last.cpus))?;
    }
    writeln!(out)?;
    for run in shape.cores.chunk_by(|a, b| a == b) {
        let threads = run.first().copied().unwrap_or(0);
        writeln!(out, "    core{}  {}", times(run.len()), count(threads, "CPU"))?;
    }
    for run in shape.clusters.chunk_by(|a, b| a == b) {
        let cores = run.first().copied().unwrap_or(0);
        writeln!(out, "    cluster{}  {}", times(run.len()), count(cores, "core"))?;
    }
    Ok(())
}

fn times(n: usize) -> String {
    if n == 1 { String::new() } else { format!(" x{n}") }
}

/// CPUs by the operating system's numbers.
fn os_list(m: &Machine, cpus: &CpuSet) -> String {
    list(cpus.iter().map(|cpu| m.cpus[cpu].os_index))
}

/// A capacity in TB or GB if it is a whole number of them, else in MB or less.
fn bytes(n: u64) -> String {
    let whole = |shift: u32| n > 0 && n.trailing_zeros() >= shift;
    let (shift, unit) = match n {
        _ if whole(40) => (40, "TB"),
        _ if whole(30) => (30, "GB"),
        1_048_576.. => (20, "MB"),
        1024.. => (10, "kB"),
        _ => return format!("{n} B"),
    };
    let tenths = ((n & ((1 << shift) - 1)) * 10) >> shift;
    match tenths {
        0 => format!("{} {unit}", n >> shift),
        _ => format!("{}.{tenths} {unit}", n >> shift),
    }
}

fn write_distances(out: &mut String, m: &Machine) -> std::fmt::Result {
    writeln!(out, "distances")?;
    write!(out, "  node")?;
    for node in &m.nodes {
        write!(out, " {:>4}", node.os_index)?;
    }
    writeln!(out)?;
    for (node, row) in m.nodes.iter().zip(&m.distances) {
        write!(out, "  {:>4}", node.os_index)?;
        for distance in row {
            write!(out, " {distance:>4}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn write_figures(out: &mut String, m: &Machine) -> std::fmt::Result {
    writeln!(
        out,
        "figures (posted: measured and published by others; derived: computed from posted ones; \
         measured: by\nthis project; recalled: widely quoted, not checked again; assumption: this \
         project's choice)"
    )?;
    for (name, figure) in m.figures.iter() {
        writeln!(out, "  {name:<27} {:>9}  {}", figure.value, figure.source)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolve;

    fn drawing(machine: &str) -> String {
        draw(&resolve(machine).unwrap(), DrawOptions::default())
    }

    #[test]
    fn equal_llcs_are_one_line() {
        let text = drawing("zen3-2s");
        let lines: Vec<&str> = text.lines().take(7).collect();
        assert_eq!(
            lines,
            [
                "zen3-2s: 2 packages, 2 nodes, 16 LLCs, 128 cores, 256 CPUs",
                "node 0  memory size unknown  package 0  CPUs 0-63,128-191",
                "  LLC x8  32 MB  CPUs 0-7,128-135 .. 56-63,184-191",
                "    core x8  2 CPUs",
                "node 1  memory size unknown  package 1  CPUs 64-127,192-255",
                "  LLC x8  32 MB  CPUs 64-71,192-199 .. 120-127,248-255",
                "    core x8  2 CPUs",
            ]
        );
        assert!(text.contains("distances\n  node    0    1\n     0   10   32\n     1   32   10\n"));
    }

    #[test]
    fn clusters_have_a_line() {
        let text = drawing("node:1 l3:1 l2:4 core:2 pu:1");
        assert!(text.contains("    core x8  1 CPU\n    cluster x4  2 cores\n"), "{text}");
        assert!(!text.contains("distances\n"), "one node has no table");
    }

    #[test]
    fn packages_of_one_node_are_told_apart() {
        let text = drawing("node:1 pack:2 l3:2 core:2 pu:1");
        assert!(text.contains("  LLC x2  size unknown  package 1  CPUs 4-5 and 6-7\n"), "{text}");
    }

    #[test]
    fn figures_come_with_their_sources_when_asked_for() {
        let machine = resolve("zen4-2s").unwrap();
        let text = draw(&machine, DrawOptions { figures: true });
        assert!(text.contains("28  posted: core to core within an LLC, Genoa 9654 2P"), "{text}");
        assert!(!draw(&machine, DrawOptions::default()).contains("posted"));
    }

    #[test]
    fn guesses_are_named() {
        assert!(drawing("pu:2").contains("\n  no-cache-data: "));
    }

    #[test]
    fn capacities_keep_their_meaning() {
        assert_eq!(bytes(32 << 20), "32 MB");
        assert_eq!(bytes(28_835_840), "27.5 MB");
        assert_eq!(bytes(65468 << 20), "65468 MB");
        assert_eq!(bytes(0), "0 B");
    }
}
