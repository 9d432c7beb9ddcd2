//! Machines as synthetic strings: `pack:2 node:2 l3:4(size=32MB) core:8 pu:2`.
//!
//! As in hwloc, each word is a level, from the outside in, with how many of it
//! each object of the level before it has. CPUs are numbered as hwloc does by
//! default: depth first, so that the threads of a core follow each other (Linux
//! on x86 numbers the first threads of all cores first; the presets do so too).
//! What hwloc exports with `lstopo --of synthetic` is read, with memory attached
//! in brackets: `Package:2 [NUMANode(memory=64GB)] L3Cache:8(size=32MB) PU:4`.

use crate::Machine;
use crate::build::{CpuDescription, Description, MAX_CPUS, MAX_NODES};
use crate::error::{MachineError, Part, shown};

/// The longest string that is read; the longest useful ones have 200 characters.
const LONGEST: usize = 4096;

/// What a level's objects are, outermost first where the order is fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Package,
    Node,
    /// Groups and dies: they only multiply.
    Group,
    Llc,
    Cluster,
    /// Private caches that tell the scheduler nothing.
    Private,
    Core,
    Pu,
}

/// One word of the string.
#[derive(Clone, Copy, Debug)]
struct Level {
    kind: Kind,
    /// Objects of this level in each object of the one before.
    count: usize,
    /// `size` of a cache or `memory` of a node, bytes.
    bytes: Option<u64>,
    /// Where the word starts, in characters from 1.
    column: usize,
    /// Memory in brackets: belongs to the level before it and is no level.
    attached: bool,
}

/// What is wrong with a string and where.
struct Fault {
    column: usize,
    problem: String,
    remedy: &'static str,
}

const LEVELS: &str = "levels are pack, node, die, group, l3, l2, core, pu, each as level:count";

/// Reads a synthetic string.
pub fn parse(text: &str) -> Result<Machine, MachineError> {
    let describe = |fault: Fault| MachineError::Synthetic {
        text: shown(text),
        column: fault.column,
        problem: fault.problem,
        remedy: fault.remedy,
    };
    let levels = levels(text).map_err(describe)?;
    check_order(&levels).map_err(describe)?;
    check_counts(&levels).map_err(describe)?;
    expand(text, &levels).build().map_err(|problem| {
        let kind = match problem.part {
            Part::Hierarchy => "",
            Part::Distances => "distances: ",
        };
        let problem_text = format!("{kind}{}", problem.what);
        describe(Fault { column: 1, problem: problem_text, remedy: problem.remedy })
    })
}

/// The words of the string.
fn levels(text: &str) -> Result<Vec<Level>, Fault> {
    if text.chars().count() > LONGEST {
        let problem = format!("longer than {LONGEST} characters");
        return Err(Fault { column: LONGEST, problem, remedy: "use an hwloc XML file" });
    }
    let mut levels = Vec::new();
    for (column, word) in words(text) {
        let inner = word.strip_prefix('[').and_then(|word| word.strip_suffix(']'));
        let mut level = level(column, inner.unwrap_or(word), inner.is_some())?;
        level.attached = inner.is_some();
        levels.push(level);
    }
    Ok(levels)
}

/// The words of `text` with their columns; blanks within brackets part no words.
fn words(text: &str) -> Vec<(usize, &str)> {
    let mut words = Vec::new();
    let mut start: Option<(usize, usize)> = None;
    let mut depth = 0_usize;
    for (column, (offset, c)) in text.char_indices().enumerate() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if c.is_whitespace() && depth == 0 {
            if let Some((column, begin)) = start.take() {
                words.push((column, &text[begin..offset]));
            }
        } else if start.is_none() {
            start = Some((column + 1, offset));
        }
    }
    if let Some((column, begin)) = start {
        words.push((column, &text[begin..]));
    }
    words
}

/// One word: `kind:count(attributes)`; in brackets the count may be missing.
fn level(column: usize, word: &str, attached: bool) -> Result<Level, Fault> {
    let fault = |problem: String, remedy| Fault { column, problem, remedy };
    let (head, attributes) = match word.split_once('(') {
        None => (word, None),
        Some((head, rest)) => match rest.strip_suffix(')') {
            Some(attributes) => (head, Some(attributes)),
            None => return Err(fault(format!("\"{}\" has no end", shown(word)), "add a )")),
        },
    };
    let (name, count) = match head.split_once(':') {
        Some((name, count)) => (name, count),
        None if attached => (head, "1"),
        None => return Err(fault(format!("\"{}\" has no count", shown(head)), LEVELS)),
    };
    let Some(kind) = kind(name) else {
        return Err(fault(format!("\"{}\" is no level", shown(name)), LEVELS));
    };
    let digits = !count.is_empty() && count.bytes().all(|b| b.is_ascii_digit());
    let count = count.parse().ok().filter(|&count: &usize| digits && count > 0);
    let Some(count) = count.filter(|&count| count <= MAX_CPUS) else {
        let remedy = "a count is a whole number from 1 to 4096";
        return Err(fault(format!("\"{}\" has no usable count", shown(head)), remedy));
    };
    if attached && (kind != Kind::Node || count != 1) {
        let problem = "only single nodes stand in brackets".into();
        return Err(fault(problem, "write [node(memory=64GB)]"));
    }
    let bytes = attributes.map_or(Ok(None), |text| attribute(kind, text));
    let bytes = bytes.map_err(|problem| {
        fault(problem, "known are size=32MB on caches and memory=64GB on nodes")
    })?;
    Ok(Level { kind, count, bytes, column, attached })
}

/// hwloc's names of levels and the ones this project uses.
fn kind(name: &str) -> Option<Kind> {
    Some(match name.to_ascii_lowercase().as_str() {
        "pack" | "package" | "socket" => Kind::Package,
        "node" | "numa" | "numanode" => Kind::Node,
        "group" | "die" => Kind::Group,
        "l3" | "llc" | "l3cache" => Kind::Llc,
        "l2" | "l2cache" | "cluster" => Kind::Cluster,
        "l1" | "l1d" | "l1i" | "l1cache" | "l1dcache" | "l1icache" => Kind::Private,
        "core" => Kind::Core,
        "pu" => Kind::Pu,
        _ => return None,
    })
}

/// The bytes that a level's attributes give, blanks or commas between them.
fn attribute(kind: Kind, text: &str) -> Result<Option<u64>, String> {
    let mut bytes = None;
    for part in text.split([' ', ',']).filter(|part| !part.is_empty()) {
        let wanted = match kind {
            Kind::Llc | Kind::Cluster | Kind::Private => "size",
            Kind::Node => "memory",
            _ => "",
        };
        match part.split_once('=') {
            Some((name, value)) if !wanted.is_empty() && name == wanted => {
                let size = size(value);
                bytes = Some(size.ok_or_else(|| format!("\"{}\" is no size", shown(value)))?);
            }
            _ => return Err(format!("attribute \"{}\" is not known here", shown(part))),
        }
    }
    Ok(bytes)
}

/// A size in bytes: a whole number with B, kB, MB, GB, TB or KiB, MiB, GiB, TiB,
/// all powers of 1024 as hwloc reads the short ones.
fn size(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|&bytes| bytes > 0)
}

/// Each kind once, from the outside in, with PUs at the end.
fn check_order(levels: &[Level]) -> Result<(), Fault> {
    let end = levels.last().map_or(1, |level| level.column);
    let fault = |column, problem: String, remedy| Fault { column, problem, remedy };
    if levels.last().is_none_or(|level| level.kind != Kind::Pu) {
        return Err(fault(end, "the last level is not pu".into(), "end with pu:1 or pu:2"));
    }
    // Packages, nodes and groups contain each other in any order.
    let rank = |kind| match kind {
        Kind::Package | Kind::Node | Kind::Group => 0,
        Kind::Llc => 1,
        Kind::Cluster => 2,
        Kind::Private => 3,
        Kind::Core => 4,
        Kind::Pu => 5,
    };
    for (index, level) in levels.iter().enumerate() {
        let before = &levels[..index];
        let repeats = !matches!(level.kind, Kind::Group | Kind::Private);
        if repeats && before.iter().any(|other| other.kind == level.kind) {
            let remedy = "name each level once";
            return Err(fault(level.column, "this level came before".into(), remedy));
        }
        let outer = before.iter().map(|other| rank(other.kind)).max().unwrap_or(0);
        let under_cache = level.attached && outer > 1;
        if under_cache || (!level.attached && level.kind != Kind::Node && rank(level.kind) < outer)
        {
            let remedy = "the order is pack and node, l3, l2, core, pu";
            return Err(fault(
                level.column,
                "this level cannot be inside those before".into(),
                remedy,
            ));
        }
        if level.kind == Kind::Node && !level.attached && outer > 1 {
            let remedy = "put node before l2, core and pu";
            return Err(fault(
                level.column,
                "a node cannot be inside an l2 or core".into(),
                remedy,
            ));
        }
    }
    Ok(())
}

/// Not more CPUs and nodes than a machine may have.
fn check_counts(levels: &[Level]) -> Result<(), Fault> {
    let mut product = 1_usize;
    for level in levels {
        product = product.saturating_mul(level.count);
        let (most, what) = match level.kind {
            Kind::Node => (MAX_NODES, "nodes"),
            _ => (MAX_CPUS, "CPUs"),
        };
        if product > most {
            let problem = format!("{product} or more {what}");
            let remedy = "a machine has up to 4096 CPUs and 1024 nodes";
            return Err(Fault { column: level.column, problem, remedy });
        }
    }
    Ok(())
}

/// Every CPU of the hierarchy, depth first.
fn expand(text: &str, levels: &[Level]) -> Description {
    let total: usize = levels.iter().map(|level| level.count).product();
    let mut description = Description { name: shown(text), ..Description::default() };
    // How many CPUs one object of a kind holds.
    let width = |kind: Kind| {
        let mut inside = total;
        levels.iter().find_map(|level| {
            inside /= level.count;
            (level.kind == kind).then_some(inside.max(1))
        })
    };
    let (package, node) = (width(Kind::Package), width(Kind::Node));
    let (llc, cluster, core) = (width(Kind::Llc), width(Kind::Cluster), width(Kind::Core));
    let key = |cpu: usize, width: Option<usize>| width.map(|width| (cpu / width) as u32);
    for cpu in 0..total {
        description.cpus.push(CpuDescription {
            os_index: cpu as u32,
            core: key(cpu, core),
            cluster: key(cpu, cluster),
            llc: key(cpu, llc.or(cluster)),
            node: key(cpu, node),
            package: key(cpu, package),
        });
    }
    let bytes = |kind| levels.iter().find(|level| level.kind == kind).and_then(|l| l.bytes);
    if let Some(width) = node {
        let memory = bytes(Kind::Node);
        description.nodes = (0..total / width).map(|node| (node as u32, memory)).collect();
    }
    let llc_kind = if llc.is_some() { Kind::Llc } else { Kind::Cluster };
    if let (Some(bytes), Some(width)) = (bytes(llc_kind), llc.or(cluster)) {
        description.llc_bytes = (0..total / width).map(|llc| (llc as u32, bytes)).collect();
    }
    description.l2_bytes = bytes(Kind::Cluster);
    if llc.is_none() && cluster.is_some() {
        description.guess("no-l3-cache", "the last-level cache is an L2");
    }
    description
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(text: &str) -> Machine {
        parse(text).unwrap()
    }

    fn guesses(machine: &Machine) -> Vec<&str> {
        machine.guesses.iter().map(|guess| guess.name).collect()
    }

    #[test]
    fn levels_multiply_from_the_outside_in() {
        let m = machine("node:2 l3:8 core:8 pu:2");
        assert_eq!((m.nr_cpus(), m.cores.len(), m.llcs.len(), m.nodes.len()), (256, 128, 16, 2));
        assert_eq!(m.packages, 2);
        assert!(guesses(&m).contains(&"no-package-data"));
    }

    #[test]
    fn threads_of_a_core_follow_each_other_as_in_hwloc() {
        let m = machine("node:2 l3:2 core:2 pu:2");
        assert_eq!(m.siblings(0).to_string(), "0-1");
        assert_eq!(m.llcs[1].cpus.to_string(), "4-7");
        assert_eq!(m.nodes[1].cpus.to_string(), "8-15");
    }

    #[test]
    fn attributes_give_sizes() {
        let m = machine("pack:2 node:2(memory=64GB) l3:4(size=32MB) l2:2(size=1MiB) core:2 pu:1");
        assert_eq!(m.llcs[0].size_bytes, Some(32 << 20));
        assert_eq!(m.nodes[3].memory_bytes, Some(64 << 30));
        assert_eq!(m.figures.l2_bytes.value, 1 << 20);
        assert_eq!(m.packages, 2);
        assert_eq!(m.cpus[0].cluster, Some(0));
        assert_eq!(m.cpus[2].cluster, Some(1));
    }

    #[test]
    fn what_hwloc_exports_is_read() {
        let text = "Package:2 [NUMANode(memory=1073741824)] L3Cache:2(size=33554432) \
                    L2Cache:4(size=524288) L1dCache:1(size=32768) L1iCache:1(size=32768) Core:1 PU:2";
        let m = machine(text);
        assert_eq!((m.nr_cpus(), m.cores.len(), m.llcs.len(), m.nodes.len()), (32, 16, 4, 2));
        assert_eq!(m.nodes[0].memory_bytes, Some(1 << 30));
        assert_eq!(m.cpus[0].cluster, None, "an L2 of one core is no cluster");
    }

    #[test]
    fn order_matters() {
        let m = machine("node:2 pack:2 core:2 pu:1");
        assert_eq!((m.nodes.len(), m.packages), (2, 4));
        let m = machine("pack:2 node:2 core:2 pu:1");
        assert_eq!((m.nodes.len(), m.packages), (4, 2));
    }

    #[test]
    fn an_llc_across_nodes_is_parted_and_reported() {
        let m = machine("pack:1 l3:1(size=32MB) node:2 core:4 pu:1");
        assert_eq!(m.llcs.len(), 2);
        assert_eq!(m.llcs[0].size_bytes, Some(16 << 20));
        assert!(guesses(&m).contains(&"llc-across-nodes"));
    }

    #[test]
    fn missing_levels_are_guessed_by_name() {
        let m = machine("pu:4");
        let expected = ["no-numa-information", "no-package-data", "no-cache-data", "no-core-data"];
        for name in expected {
            assert!(guesses(&m).contains(&name), "{name} in {:?}", guesses(&m));
        }
        assert_eq!((m.cores.len(), m.llcs.len(), m.nodes.len()), (4, 1, 1));
        let m = machine("node:1 l2:2 core:2 pu:1");
        assert_eq!(m.llcs.len(), 2);
        assert!(guesses(&m).contains(&"no-l3-cache"));
    }

    #[test]
    fn a_fault_names_its_column() {
        let error = parse("node:2 l3:0 pu:2").unwrap_err().to_string();
        assert!(error.contains("column 8"), "{error}");
    }

    #[test]
    fn the_largest_machine_is_built() {
        assert_eq!(machine("node:1024 pu:4").nr_cpus(), 4096);
        assert!(parse("node:1024 core:4 pu:2").is_err());
    }
}
