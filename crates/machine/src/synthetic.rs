//! Machines as synthetic strings: `pack:2 node:2 l3:4(size=32MB) core:8 pu:2`.
//!
//! As in hwloc, each word is a level, from the outside in, with the number of its objects in each
//! object of the level before. CPUs are numbered as in hwloc by default: depth first, so the
//! threads of a core follow each other. (Linux on x86 numbers the first threads of all cores first;
//! so do the presets.) Strings exported with `lstopo --of synthetic` can be read:
//!
//! - Nodes in brackets belong to the level before them, or to the machine:
//!   `Package:2 [NUMANode(memory=64GB)] L3Cache:8(size=32MB) PU:4`. A CPU in several nodes belongs to
//!   the node with the fewest CPUs, and among those to the one with the lowest number, as in hwloc's
//!   XML.
//! - `indexes` of PUs and nodes are the operating system's numbers: a list (`0,4,1,5`), loops
//!   (`2*8:1*2`: the first counts 8 objects in steps of 2, the second the objects in between), or
//!   loops named by their levels (`core`: the first threads of all cores, then the second ones).

use crate::Machine;
use crate::build::{CpuDescription, Description, MAX_CPUS, MAX_NODES};
use crate::error::{MachineError, Part, shown};
use crate::osset::OsSet;

/// The longest string that is read. The numbers of 4096 CPUs, one by one, need a third of it.
const LONGEST: usize = 1 << 16;

/// The kind of a level's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Package,
    Node,
    /// Groups and dies, which only multiply.
    Group,
    /// Caches that hold data, by level from 1. The highest level is the last-level cache.
    Cache(u8),
    /// Caches for instructions only, which only multiply.
    Instructions,
    Core,
    Pu,
}

/// One word of the string.
#[derive(Clone, Debug)]
struct Level {
    kind: Kind,
    /// Objects of this level in each object of the level before.
    count: usize,
    /// `size` of a cache or `memory` of a node, bytes.
    bytes: Option<u64>,
    /// `indexes` as written.
    indexes: Option<String>,
    /// Whether its memory has a cache in front of it.
    cached_memory: bool,
    /// Start of the word, in characters from 1.
    column: usize,
    /// Memory in brackets: it belongs to the level before it and is not a level.
    attached: bool,
    /// CPUs in one object of this level, or in the object that it is attached to.
    width: usize,
}

/// An error in a string, with its column.
struct Fault {
    column: usize,
    problem: String,
    remedy: &'static str,
}

const LEVELS: &str = "levels are pack, node, die, group, l3, l2, core, pu, each as level:count";

const ORDER: &str = "the order is pack and node, l3, l2, core, pu";

/// Whether a text begins with a level, as in a file written by lstopo.
pub(crate) fn is_synthetic(text: &str) -> bool {
    let first = text.trim_start().trim_start_matches('[');
    let end = first.find([':', '(', ']']).unwrap_or(0);
    kind(&first[..end]).is_some()
}

/// Reads a synthetic string.
pub fn parse(text: &str) -> Result<Machine, MachineError> {
    parse_named(text, text)
}

/// Reads a synthetic string. `name` is its name in messages and the machine's name.
pub(crate) fn parse_named(text: &str, name: &str) -> Result<Machine, MachineError> {
    let describe = |fault: Fault| MachineError::Synthetic {
        text: shown(name),
        column: fault.column,
        problem: fault.problem,
        remedy: fault.remedy,
    };
    let mut levels = levels(text).map_err(describe)?;
    check_ends(&levels).map_err(describe)?;
    check_counts(&levels).map_err(describe)?;
    set_widths(&mut levels);
    check_order(&levels).map_err(describe)?;
    let description = expand(name, &levels).map_err(describe)?;
    description.build().map_err(|problem| {
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
    words(text).into_iter().map(|(column, word)| level(column, word)).collect()
}

/// The words of `text` with their columns. Blanks within brackets do not separate words.
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

/// One word: `kind:count(attributes)`. In brackets the count may be missing.
fn level(column: usize, word: &str) -> Result<Level, Fault> {
    let fault = |problem: String, remedy| Fault { column, problem, remedy };
    let inner = word.strip_prefix('[').and_then(|word| word.strip_suffix(']'));
    let attached = inner.is_some();
    let word = inner.unwrap_or(word);
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
        return Err(fault(no_level(name), LEVELS));
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
    let (bytes, indexes, cached_memory, width) = (None, None, false, 1);
    let mut level = Level { kind, count, bytes, indexes, cached_memory, column, attached, width };
    read_attributes(&mut level, attributes.unwrap_or_default()).map_err(|problem| {
        fault(problem, "known are size=32MB on caches, memory=64GB on nodes, and indexes=0,2,1,3")
    })?;
    Ok(level)
}

/// The names of levels in hwloc and in this project.
fn kind(name: &str) -> Option<Kind> {
    Some(match name.to_ascii_lowercase().as_str() {
        "pack" | "package" | "socket" => Kind::Package,
        "node" | "numa" | "numanode" => Kind::Node,
        "die" | "tile" | "module" => Kind::Group,
        "llc" => Kind::Cache(3),
        "cluster" => Kind::Cache(2),
        "core" => Kind::Core,
        "pu" => Kind::Pu,
        name => match name.strip_prefix("group") {
            // hwloc appends a group's depth.
            Some(depth) if depth.bytes().all(|b| b.is_ascii_digit()) => Kind::Group,
            _ => cache(name)?,
        },
    })
}

/// A cache by hwloc's names: `l3`, `l2cache`, `l1dcache`, `l1i`, ...
fn cache(name: &str) -> Option<Kind> {
    let (number, rest) = name.strip_prefix('l')?.split_at_checked(1)?;
    let level = number.parse().ok().filter(|level| (1..=5).contains(level))?;
    match rest.strip_suffix("cache").unwrap_or(rest) {
        "" | "d" | "u" => Some(Kind::Cache(level)),
        "i" => Some(Kind::Instructions),
        _ => None,
    }
}

/// Says that a name is not a level, and which level may have been meant.
fn no_level(name: &str) -> String {
    let known = ["package", "node", "numanode", "die", "group", "l3", "l2", "l1", "core", "pu"];
    let hint = roost_names::did_you_mean(name, known);
    let hint = hint.map_or(String::new(), |question| format!(", {question}"));
    format!("\"{}\" is no level{hint}", shown(name))
}

/// Reads a level's attributes, separated by blanks. A comma also ends one, except in a list of
/// indexes.
fn read_attributes(level: &mut Level, text: &str) -> Result<(), String> {
    let wanted = match level.kind {
        Kind::Cache(_) | Kind::Instructions => "size",
        Kind::Node => "memory",
        _ => "",
    };
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        if let Some(indexes) = word.strip_prefix("indexes=") {
            level.indexes = Some(indexes.to_owned());
            continue;
        }
        for part in word.split(',').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let bytes = size(value).ok_or_else(|| format!("\"{}\" is no size", shown(value)));
            match name {
                "memorysidecachesize" if level.kind == Kind::Node => {
                    level.cached_memory = bytes? > 0;
                }
                _ if !wanted.is_empty() && name == wanted => level.bytes = Some(bytes?),
                _ => return Err(format!("attribute \"{}\" is not known here", shown(part))),
            }
        }
    }
    Ok(())
}

/// A size in bytes: a whole number with B, kB, MB, GB, TB or KiB, MiB, GiB, TiB. All are powers of
/// 1024, because hwloc 2 reads the short ones so.
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

/// Checks that PUs are at the end, and only there.
fn check_ends(levels: &[Level]) -> Result<(), Fault> {
    let fault = |column, problem: &str, remedy| Fault { column, problem: problem.into(), remedy };
    let real: Vec<&Level> = levels.iter().filter(|level| !level.attached).collect();
    let last = real.last();
    if last.is_none_or(|level| level.kind != Kind::Pu) {
        let column = last.map_or(1, |level| level.column);
        return Err(fault(column, "the last level is not pu", "end with pu:1 or pu:2"));
    }
    if let Some(pair) = real.windows(2).find(|pair| pair[0].kind == Kind::Pu) {
        return Err(fault(pair[1].column, "this level cannot be inside pu", ORDER));
    }
    Ok(())
}

/// Checks the limits on the number of CPUs and nodes.
fn check_counts(levels: &[Level]) -> Result<(), Fault> {
    let (mut product, mut nodes) = (1_usize, 0_usize);
    for level in levels {
        product = product.saturating_mul(level.count);
        if level.kind == Kind::Node {
            nodes = nodes.saturating_add(product);
        }
        let (number, most, what) = match level.kind {
            Kind::Node => (nodes, MAX_NODES, "nodes"),
            _ => (product, MAX_CPUS, "CPUs"),
        };
        if number > most {
            let problem = format!("{number} or more {what}");
            let remedy = "a machine has up to 4096 CPUs and 1024 nodes";
            return Err(Fault { column: level.column, problem, remedy });
        }
    }
    Ok(())
}

/// Computes the number of CPUs in an object of each level.
fn set_widths(levels: &mut [Level]) {
    let mut width: usize = levels.iter().map(|level| level.count).product();
    for level in levels {
        width /= level.count;
        level.width = width;
    }
}

/// Checks that each kind occurs once, that no larger cache is inside a smaller one, and that parts
/// of a core contain nothing of which a core has only one.
fn check_order(levels: &[Level]) -> Result<(), Fault> {
    let fault = |level: &Level, problem: &str, remedy| {
        Err(Fault { column: level.column, problem: problem.into(), remedy })
    };
    let last_cache = last_cache(levels).map(|level| level.kind);
    for (index, level) in levels.iter().enumerate() {
        let before = &levels[..index];
        let like_it = before.iter().find(|other| other.kind == level.kind);
        let repeats = match level.kind {
            Kind::Group | Kind::Instructions => false,
            // Any number of nodes may be attached, or one level may be nodes.
            Kind::Node => like_it.is_some_and(|other| !(other.attached && level.attached)),
            _ => like_it.is_some(),
        };
        if repeats {
            return fault(level, "this level came before", "name each level once");
        }
        let smaller = |other: &Level| match (other.kind, level.kind) {
            (Kind::Cache(other), Kind::Cache(own)) => other < own,
            _ => false,
        };
        let one_per_core =
            matches!(level.kind, Kind::Package | Kind::Node) || Some(level.kind) == last_cache;
        let parts_core =
            |other: &Level| one_per_core && other.kind == Kind::Core && level.width < other.width;
        if before.iter().any(|other| smaller(other) || parts_core(other)) {
            return fault(level, "this level cannot be inside those before", ORDER);
        }
    }
    Ok(())
}

/// The cache with the highest level.
fn last_cache(levels: &[Level]) -> Option<&Level> {
    let number = |level: &&Level| match level.kind {
        Kind::Cache(number) => number,
        _ => 0,
    };
    levels.iter().max_by_key(number).filter(|level| number(level) > 0)
}

/// Every CPU of the hierarchy, depth first.
fn expand(name: &str, levels: &[Level]) -> Result<Description, Fault> {
    let mut description = Description { name: shown(name), ..Description::default() };
    let level = |kind| levels.iter().find(|level| level.kind == kind);
    let (package, core, l2) = (level(Kind::Package), level(Kind::Core), level(Kind::Cache(2)));
    let last = last_cache(levels);
    let key = |cpu: usize, level: Option<&Level>| level.map(|level| (cpu / level.width) as u32);
    let total = levels.iter().map(|level| level.count).product();
    let numbers = match level(Kind::Pu).and_then(|level| Some((level, level.indexes.as_ref()?))) {
        Some((pu, text)) => indexes(pu, text, levels, total)?,
        None => (0..total as u32).collect(),
    };
    let nodes = nodes(levels, total)?;
    for (cpu, os_index) in numbers.into_iter().enumerate() {
        let own = nodes.iter().filter(|node| (node.first..node.first + node.width).contains(&cpu));
        let nearest = own.min_by_key(|node| (node.width, node.os_index));
        description.cpus.push(CpuDescription {
            os_index,
            core: key(cpu, core),
            cluster: key(cpu, l2),
            llc: key(cpu, last),
            node: nearest.map(|node| node.os_index),
            package: key(cpu, package),
            ..CpuDescription::default()
        });
    }
    description.nodes = nodes.iter().map(|node| (node.os_index, node.bytes)).collect();
    if let Some((last, bytes)) = last.and_then(|last| Some((last, last.bytes?))) {
        description.llc_bytes = (0..total / last.width).map(|llc| (llc as u32, bytes)).collect();
    }
    description.l2_bytes = l2.and_then(|level| level.bytes);
    note_nodes(levels, &mut description);
    if last.is_some_and(|last| matches!(last.kind, Kind::Cache(1 | 2))) {
        description.guess("no-l3-cache", "the largest cache that is named is the last level");
    }
    Ok(description)
}

/// Reports what is left out about nodes.
fn note_nodes(levels: &[Level], description: &mut Description) {
    let memory = || levels.iter().filter(|level| level.kind == Kind::Node);
    if memory().count() > 1 {
        let assumed = "CPUs with several local memories belong to the one nearest and lowest";
        description.guess("several-nodes-per-cpu", assumed);
    }
    if memory().any(|level| level.cached_memory) {
        description.guess("memory-side-cache", "caches before memory are left out");
    }
}

/// A node and its CPUs, before they are numbered.
struct Memory {
    os_index: u32,
    first: usize,
    width: usize,
    bytes: Option<u64>,
}

/// All nodes in hwloc's order: nodes inside an object come before nodes attached to it.
fn nodes(levels: &[Level], total: usize) -> Result<Vec<Memory>, Fault> {
    let mut kinds: Vec<(usize, &Level)> =
        levels.iter().enumerate().filter(|(_, level)| level.kind == Kind::Node).collect();
    // Nodes beside each other are attached to the same level and keep their order.
    let depth = |index: usize| levels[..index].iter().filter(|level| !level.attached).count();
    kinds.sort_by_key(|&(index, _)| std::cmp::Reverse(depth(index)));
    let mut nodes = Vec::new();
    for end in 1..=total {
        for (_, level) in kinds.iter().filter(|(_, level)| end % level.width == 0) {
            let (first, bytes) = (end - level.width, level.bytes);
            nodes.push(Memory { os_index: nodes.len() as u32, first, width: level.width, bytes });
        }
    }
    // hwloc writes the numbers of all nodes at one of them.
    let written = levels.iter().filter(|level| level.kind == Kind::Node);
    if let Some((level, text)) =
        written.filter_map(|level| Some((level, level.indexes.as_ref()?))).next_back()
    {
        let numbers = indexes(level, text, levels, nodes.len())?;
        for (node, number) in nodes.iter_mut().zip(numbers) {
            node.os_index = number;
        }
    }
    Ok(nodes)
}

/// A loop over objects in steps.
#[derive(Clone, Copy)]
struct Loop {
    /// Object `i` is at `i / step % count` of the loop.
    step: usize,
    count: usize,
}

/// The operating system's numbers of `total` objects: a list, or loops, the first of which counts
/// fastest.
fn indexes(level: &Level, text: &str, levels: &[Level], total: usize) -> Result<Vec<u32>, Fault> {
    let fault = |problem: String, remedy| Err(Fault { column: level.column, problem, remedy });
    let list = || text.split(',').map(|part| part.parse().ok()).collect::<Option<Vec<usize>>>();
    let loops = || loops_in_steps(text).or_else(|| loops_by_level(text, levels, total));
    let numbers = match list().or_else(|| Some(numbers_of_loops(with_last(loops()?, total), total)))
    {
        Some(numbers) => numbers,
        None => {
            let problem = format!("indexes \"{}\" are not understood", shown(text));
            return fault(problem, "write a list as 0,2,1,3 or loops as 2*8:1*2 or core:pack");
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

/// `2*8:1*2`: loops by step and count.
fn loops_in_steps(text: &str) -> Option<Vec<Loop>> {
    let one = |part: &str| {
        let (step, count) = part.split_once('*')?;
        let (step, count) = (step.parse().ok()?, count.parse().ok()?);
        (step > 0 && (1..=MAX_CPUS).contains(&count)).then_some(Loop { step, count })
    };
    text.split(':').map(one).collect()
}

/// `core:pack`: a loop for each level, over its objects within the next level outwards that is also
/// named. PUs are the rest.
fn loops_by_level(text: &str, levels: &[Level], total: usize) -> Option<Vec<Loop>> {
    let named = |name: &str| {
        let kind = kind(name).filter(|&kind| kind != Kind::Pu)?;
        levels.iter().position(|level| level.kind == kind && !level.attached)
    };
    let places: Vec<usize> = text.split(':').map(named).collect::<Option<_>>()?;
    let cpus: usize = levels.iter().map(|level| level.count).product();
    let one = |&place: &usize| {
        let objects = cpus / levels[place].width;
        let outer = places.iter().filter(|&&other| other < place).max();
        let count = objects / outer.map_or(1, |&outer| cpus / levels[outer].width);
        (objects <= total).then(|| Loop { step: total / objects, count })
    };
    places.iter().map(one).collect()
}

/// Adds the innermost loop, if only that one was omitted.
fn with_last(mut loops: Vec<Loop>, total: usize) -> Vec<Loop> {
    let counted = loops.iter().fold(1_usize, |product, own| product.saturating_mul(own.count));
    let smallest = loops.iter().map(|own| own.step).min().unwrap_or(1);
    if counted < total && smallest == total / counted {
        loops.push(Loop { step: 1, count: smallest });
    }
    loops
}

fn numbers_of_loops(loops: Vec<Loop>, total: usize) -> Vec<usize> {
    let number = |object: usize| {
        let mut unit = 1_usize;
        loops.iter().fold(0_usize, |number, own| {
            let part = unit.saturating_mul(object / own.step % own.count);
            unit = unit.saturating_mul(own.count);
            number.saturating_add(part)
        })
    };
    (0..total).map(number).collect()
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

    /// As written by `lstopo --of synthetic` of hwloc 2.9 for the machine given to it.
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

    /// Nodes with CPUs, and the CPUs' numbers, as in hwloc 2.9 for the same string.
    fn node_cpus(text: &str) -> Vec<(u32, String)> {
        let m = machine(text);
        let with_cpus = m.nodes.iter().filter(|node| !node.cpus.is_empty());
        with_cpus.map(|node| (node.os_index, node.cpus.to_string())).collect()
    }

    #[test]
    fn nodes_may_be_attached_anywhere_and_at_several_levels() {
        // Below an L3, which it splits: a package with two nodes in one cache (sub-NUMA clusters).
        let m =
            machine("Package:1 L3Cache:1(size=16777216) Group:2 [NUMANode] L2Cache:2 Core:1 PU:1");
        assert_eq!((m.nodes.len(), m.llcs.len()), (2, 2));
        assert!(guesses(&m).contains(&"llc-across-nodes"));
        // To a core of two threads, and to the machine.
        assert_eq!(node_cpus("Core:1 [NUMANode] PU:2"), [(0, "0-1".into())]);
        assert_eq!(node_cpus("[NUMANode] Package:2 Core:1 PU:1"), [(0, "0-1".into())]);
        // hwloc's fakememinitiators: the nodes of both groups come before the node of their
        // package.
        let text = "Package:2 [NUMANode(memory=796716433408)] \
                    Group:2 [NUMANode(memory=99786076160 indexes=5,6,7,8,9,10)] Core:2 PU:1";
        let cpus = |first: u32| format!("{first}-{}", first + 1);
        assert_eq!(node_cpus(text), [(5, cpus(0)), (6, cpus(2)), (8, cpus(4)), (9, cpus(6))]);
        let m = machine(text);
        let packages: Vec<_> =
            m.nodes[4..].iter().map(|node| (node.os_index, node.memory_bytes)).collect();
        assert_eq!(packages, [(7, Some(796_716_433_408)), (10, Some(796_716_433_408))]);
        assert!(guesses(&m).contains(&"several-nodes-per-cpu"));
        // hwloc's 64intel64-heteromem: of two nodes beside each other the lower-numbered one has
        // the CPUs.
        let text =
            "L3Cache:2 [NUMANode(memory=1GB indexes=0,7,4,1)] [NUMANode(memory=2GB)] Core:2 PU:1";
        assert_eq!(node_cpus(text), [(0, "0-1".into()), (1, "2-3".into())]);
        let m = machine("L3Cache:1 [NUMANode(memory=1GB memorysidecachesize=64MB)] Core:2 PU:1");
        assert!(guesses(&m).contains(&"memory-side-cache"));
    }

    #[test]
    fn caches_have_hwlocs_names_in_any_place() {
        // L2 and L1 of both kinds, and L1 above and below the core.
        let m =
            machine("Package:2 L3Cache:2 L2dCache:1 L2iCache:1 L1iCache:1 L1dCache:1 Core:1 PU:2");
        assert_eq!((m.llcs.len(), m.cores.len(), m.nr_cpus()), (4, 4, 8));
        let m = machine("Package:2 Die:3 L3Cache:1 L2Cache:3 Core:1 L1dCache:2 L1iCache:1 PU:1");
        assert_eq!((m.llcs.len(), m.cores.len(), m.nr_cpus()), (6, 18, 36));
        let m = machine("l4:1 l3:2 l2:2 core:2 pu:1");
        assert_eq!((m.llcs.len(), m.cpus[0].cluster, m.cpus[2].cluster), (1, Some(0), Some(1)));
    }

    #[test]
    fn loops_may_be_named_by_their_levels() {
        // Linux on x86: the first threads of all cores, then the second ones.
        assert_eq!(machine("pack:2 core:2 pu:2(indexes=core)").siblings(1).to_string(), "1,5");
        let m = machine("pack:2 core:2 pu:1(indexes=pack)");
        let packages: Vec<u32> = m.cpus.iter().map(|cpu| cpu.package).collect();
        assert_eq!(packages, [0, 1, 0, 1]);
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
            ("core:2 pu:2(indexes=core:pu)", "indexes \"core:pu\" are not understood"),
            ("core:2 pu:2(indexes=core:core)", "index 0 is there twice"),
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
