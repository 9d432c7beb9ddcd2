//! Machines as synthetic strings: `pack:2 node:2 l3:4(size=32MB) core:8 pu:2`.
//!
//! As in hwloc, each word is a level, from the outside in, with how many of it
//! each object of the level before it has. CPUs are numbered as hwloc does by
//! default: depth first, so that the threads of a core follow each other (Linux
//! on x86 numbers the first threads of all cores first; the presets do so too).
//! What hwloc exports with `lstopo --of synthetic` is read, with memory attached
//! in brackets: `Package:2 [NUMANode(memory=64GB)] L3Cache:8(size=32MB) PU:4`. Of several nodes in
//! brackets behind one level the first has its CPUs, and the others have memory only. `indexes` of PUs and
//! nodes are the operating system's numbers, as a list (`0,4,1,5`) or as loops (`2*8:1*2`): the first
//! loop counts PUs in steps of 2, 8 of them, the second those in between.

use crate::Machine;
use crate::build::{CpuDescription, Description, MAX_CPUS, MAX_NODES};
use crate::error::{MachineError, Part, shown};
use crate::osset::OsSet;

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
#[derive(Clone, Debug)]
struct Level {
    kind: Kind,
    /// Objects of this level in each object of the one before.
    count: usize,
    /// `size` of a cache or `memory` of a node, bytes.
    bytes: Option<u64>,
    /// `indexes` as it is written.
    indexes: Option<String>,
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
    expand(text, &levels).map_err(describe)?.build().map_err(|problem| {
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
    let mut level = Level { kind, count, bytes: None, indexes: None, column, attached };
    read_attributes(&mut level, attributes.unwrap_or_default()).map_err(|problem| {
        fault(problem, "known are size=32MB on caches, memory=64GB on nodes, and indexes=0,2,1,3")
    })?;
    Ok(level)
}

/// hwloc's names of levels and the ones this project uses.
fn kind(name: &str) -> Option<Kind> {
    Some(match name.to_ascii_lowercase().as_str() {
        "pack" | "package" | "socket" => Kind::Package,
        "node" | "numa" | "numanode" => Kind::Node,
        "group" | "die" => Kind::Group,
        "l3" | "llc" | "l3cache" => Kind::Llc,
        "l2" | "l2u" | "l2d" | "l2cache" | "l2ucache" | "l2dcache" | "cluster" => Kind::Cluster,
        "l1" | "l1u" | "l1d" | "l1i" | "l1cache" | "l1ucache" | "l1dcache" | "l1icache" | "l2i"
        | "l2icache" => Kind::Private,
        "core" => Kind::Core,
        "pu" => Kind::Pu,
        _ => return None,
    })
}

/// Reads a level's attributes, blanks between them; a comma ends one too, unless it is in a list of indexes.
fn read_attributes(level: &mut Level, text: &str) -> Result<(), String> {
    let wanted = match level.kind {
        Kind::Llc | Kind::Cluster | Kind::Private => "size",
        Kind::Node => "memory",
        _ => "",
    };
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        if let Some(indexes) = word.strip_prefix("indexes=") {
            level.indexes = Some(indexes.to_owned());
            continue;
        }
        for part in word.split(',').filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some((name, value)) if !wanted.is_empty() && name == wanted => {
                    let size = size(value);
                    level.bytes =
                        Some(size.ok_or_else(|| format!("\"{}\" is no size", shown(value)))?);
                }
                _ => return Err(format!("attribute \"{}\" is not known here", shown(part))),
            }
        }
    }
    Ok(())
}

/// The operating system's numbers of a level's `total` objects: by default in their order.
///
/// A loop `STEP*N` counts objects: of object `i` it is at `i / STEP % N`. The first loop counts fastest.
fn numbers(level: Option<&Level>, total: usize) -> Result<Vec<u32>, Fault> {
    let Some((level, text)) = level.and_then(|level| Some((level, level.indexes.as_ref()?))) else {
        return Ok((0..total as u32).collect());
    };
    let fault = |problem: String, remedy| Err(Fault { column: level.column, problem, remedy });
    let not_read = || {
        let problem = format!("indexes \"{}\" are not understood", shown(text));
        fault(problem, "write a list as 0,2,1,3 or loops as 2*8:1*2")
    };
    let numbers: Vec<usize> = if text.contains('*') {
        let pair = |part: &str| {
            let (step, count) = part.split_once('*')?;
            let (step, count) = (step.parse().ok()?, count.parse().ok()?);
            (step > 0 && count > 0 && count <= MAX_CPUS).then_some((step, count))
        };
        let Some(loops) = text.split(':').map(pair).collect::<Option<Vec<(usize, usize)>>>() else {
            return not_read();
        };
        let number = |object: usize| {
            let mut unit = 1_usize;
            loops.iter().fold(0_usize, |number, &(step, count)| {
                let own = unit.saturating_mul(object / step % count);
                unit = unit.saturating_mul(count);
                number.saturating_add(own)
            })
        };
        (0..total).map(number).collect()
    } else {
        match text.split(',').map(|part| part.parse().ok()).collect() {
            Some(list) => list,
            None => return not_read(),
        }
    };
    if numbers.len() != total {
        let problem = format!("{} indexes for {total} objects", numbers.len());
        return fault(problem, "give one for each");
    }
    if let Some(large) = numbers.iter().find(|&&number| number >= OsSet::LIMIT) {
        return fault(format!("index {large}"), "numbers go up to 65535");
    }
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        return fault(format!("index {} is there twice", pair[0]), "give each number once");
    }
    Ok(numbers.into_iter().map(|number| number as u32).collect())
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
        // Several nodes may be attached to one level.
        let beside = level.attached && before.last().is_some_and(|other| other.attached);
        if repeats && !beside && before.iter().any(|other| other.kind == level.kind) {
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
fn expand(text: &str, levels: &[Level]) -> Result<Description, Fault> {
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
    let level = |kind| levels.iter().find(|level| level.kind == kind);
    let cpu_numbers = numbers(level(Kind::Pu), total)?;
    // Nodes that belong together, of which the first has the CPUs.
    let beside: Vec<&Level> = levels.iter().filter(|level| level.kind == Kind::Node).collect();
    let nodes = node.map_or(0, |width| total / width * beside.len());
    let node_level = level(Kind::Node).filter(|_| beside.len() == 1);
    let node_numbers = numbers(node_level, nodes)?;
    let node_of = |cpu: usize| node.map(|width| node_numbers[cpu / width * beside.len()]);
    for (cpu, os_index) in cpu_numbers.into_iter().enumerate() {
        description.cpus.push(CpuDescription {
            os_index,
            core: key(cpu, core),
            cluster: key(cpu, cluster),
            llc: key(cpu, llc.or(cluster)),
            node: node_of(cpu),
            package: key(cpu, package),
            ..CpuDescription::default()
        });
    }
    let bytes = |kind| level(kind).and_then(|level| level.bytes);
    let memory = beside.iter().map(|level| level.bytes).cycle();
    description.nodes = node_numbers.iter().copied().zip(memory).collect();
    let llc_kind = if llc.is_some() { Kind::Llc } else { Kind::Cluster };
    if let (Some(bytes), Some(width)) = (bytes(llc_kind), llc.or(cluster)) {
        description.llc_bytes = (0..total / width).map(|llc| (llc as u32, bytes)).collect();
    }
    description.l2_bytes = bytes(Kind::Cluster);
    if llc.is_none() && cluster.is_some() {
        description.guess("no-l3-cache", "the last-level cache is an L2");
    }
    Ok(description)
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

    /// As `lstopo --of synthetic` of hwloc 2.9 wrote it for what it was given.
    #[test]
    fn what_lstopo_exports_is_read() {
        let m = machine(
            "Package:2 L3Cache:2(size=16777216) [NUMANode(memory=1000000000)] L2Cache:2(size=4194304) \
             Core:1 PU:2(indexes=2*8:1*2)",
        );
        assert_eq!((m.packages, m.nodes.len(), m.llcs.len(), m.nr_cpus()), (2, 4, 4, 16));
        // Its console output: PU L#0 (P#0), PU L#1 (P#8), PU L#2 (P#1), PU L#3 (P#9).
        assert_eq!(
            (m.siblings(0).to_string(), m.siblings(1).to_string()),
            ("0,8".into(), "1,9".into())
        );
        let m = machine(
            "Package:2 [NUMANode(memory=1000000000)] [NUMANode] L3Cache:2(size=16777216) \
             L2Cache:2(size=4194304) L1dCache:1(size=32768) L1iCache:1(size=32768) Core:1 PU:2",
        );
        let with_cpus = m.nodes.iter().filter(|node| !node.cpus.is_empty());
        assert_eq!((m.nodes.len(), with_cpus.count()), (4, 2));
        let numbers: Vec<u32> = m.nodes.iter().map(|node| node.os_index).collect();
        assert_eq!(numbers, [0, 2, 1, 3]);
        let m = machine(
            "Package:2 Group:2 [NUMANode(memory=1073741824)] L3Cache:2(size=16777216) \
             L2Cache:2(size=4194304) L1dCache:1(size=32768) L1iCache:1(size=32768) Core:1 PU:2",
        );
        assert_eq!((m.packages, m.nodes.len(), m.llcs.len()), (2, 4, 8));
    }

    #[test]
    fn indexes_are_a_list_or_loops() {
        let list = machine("core:2 pu:2(indexes=0,2,1,3)");
        let loops = machine("core:2 pu:2(indexes=2*2:1*2)");
        for m in [list, loops] {
            assert_eq!(m.siblings(0).to_string(), "0,2");
        }
        let m = machine("node:2(memory=1GB indexes=5,3) core:2 pu:1");
        let numbers: Vec<u32> = m.nodes.iter().map(|node| node.os_index).collect();
        assert_eq!(numbers, [5, 3]);
        for (text, expected) in [
            ("core:2 pu:2(indexes=0,1)", "column 8: 2 indexes for 4 objects"),
            ("core:2 pu:2(indexes=0,1,1,2)", "index 1 is there twice"),
            ("core:2 pu:2(indexes=node:core)", "indexes \"node:core\" are not understood"),
            ("core:2 pu:2(indexes=0*2:1*2)", "are not understood"),
            ("core:2 pu:2(indexes=4*2:1*2)", "twice"),
            ("core:2 pu:2(indexes=0,1,2,99999)", "index 99999"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
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
