//! Machines from the XML files of hwloc 2 and 3 (`lstopo machine.xml`).
//!
//! The files are read here, not by hwloc's own library: linking that would need a system package to
//! build, and the version in Debian 12 (2.9) cannot read the files of hwloc 3.
//!
//! What is read from a file: packages, NUMA nodes (children of any object, because hwloc attaches
//! memory where it is local), caches, clusters, cores, PUs, and the distances between nodes. Groups
//! and dies only nest. Every fault in a file is an error with line and column. What a file may
//! leave out becomes a named guess.
//! a named guess.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use roxmltree::{Attribute, Document, Node, ParsingOptions};

use crate::Machine;
use crate::build::{CpuDescription, Description, MAX_CPUS, MAX_NODES, list};
use crate::error::{MachineError, Part, shown};
use crate::osset::OsSet;

/// The largest file that is read, bytes. 4096 CPUs make about 10 MB.
const LARGEST_FILE: usize = 64 << 20;

/// Limit on the number of XML nodes in a file.
const MOST_XML_NODES: u32 = 2_000_000;

/// Limit on the nesting of objects. Real files have about 12 levels.
const DEEPEST: usize = 64;

/// A bit in `kind` of distances: the values are latencies (`HWLOC_DISTANCES_KIND_MEANS_LATENCY`).
const MEANS_LATENCY: u64 = 4;

const EXPORT_AGAIN: &str = "export the file again with lstopo";

/// Reads a file.
pub fn load(path: &Path) -> Result<Machine, MachineError> {
    parse(&text_of(path)?, &path.display().to_string())
}

/// The text of a file that is not too large.
pub(crate) fn text_of(path: &Path) -> Result<String, MachineError> {
    let name = path.display().to_string();
    let unreadable =
        |reason: String| MachineError::Read { path: shown(&name), reason: shown(&reason) };
    let size = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?.len();
    if size > LARGEST_FILE as u64 {
        return Err(unreadable(format!("{size} bytes, more than {LARGEST_FILE}")));
    }
    let bytes = std::fs::read(path).map_err(|error| unreadable(error.to_string()))?;
    String::from_utf8(bytes).map_err(|error| unreadable(error.to_string()))
}

/// Reads the text of a file. `name` is its name in messages and the machine's name.
pub fn parse(text: &str, name: &str) -> Result<Machine, MachineError> {
    let file = shown(name);
    if text.len() > LARGEST_FILE {
        let reason = format!("{} bytes, more than {LARGEST_FILE}", text.len());
        return Err(MachineError::Read { path: file, reason });
    }
    let options =
        ParsingOptions { allow_dtd: true, nodes_limit: MOST_XML_NODES, ..Default::default() };
    let document = Document::parse_with_options(text, options).map_err(|error| {
        let (line, column) = match error {
            // The parser gives no position for this error. The file ends too early.
            roxmltree::Error::UnclosedRootNode => end_of(text),
            _ => (error.pos().row, error.pos().col),
        };
        MachineError::Xml {
            file: file.clone(),
            line,
            column,
            problem: format!("not well-formed XML: {}", shown(&error.to_string())),
            remedy: "give a complete file written by lstopo",
        }
    })?;
    let describe = |fault: Fault| {
        let position = document.text_pos_at(fault.offset);
        MachineError::Xml {
            file: file.clone(),
            line: position.row,
            column: position.col,
            problem: fault.problem,
            remedy: fault.remedy,
        }
    };
    read(&document, &file).map_err(describe)
}

/// Line and column after the last character.
fn end_of(text: &str) -> (u32, u32) {
    let last = text.rsplit('\n').next().unwrap_or("");
    (text.matches('\n').count() as u32 + 1, last.chars().count() as u32 + 1)
}

/// An error in a file, with its byte offset.
struct Fault {
    offset: usize,
    problem: String,
    remedy: &'static str,
}

impl Fault {
    fn at(node: Node, problem: impl Into<String>, remedy: &'static str) -> Self {
        Self { offset: node.range().start, problem: problem.into(), remedy }
    }

    fn attribute(attribute: Attribute, remedy: &'static str) -> Self {
        let problem = format!("{}=\"{}\"", attribute.name(), shown(attribute.value()));
        Self { offset: attribute.range().start, problem, remedy }
    }
}

/// A NUMA node of the file.
struct NumaNode {
    os_index: u32,
    gp_index: Option<u64>,
    cpus: OsSet,
}

/// What the enclosing objects say.
#[derive(Clone, Default)]
struct Around<'a> {
    depth: usize,
    package: Option<u32>,
    cluster: Option<u32>,
    core: Option<u32>,
    /// Key of the cache of each level, from level 1 on.
    caches: [Option<u32>; 5],
    /// CPUs of the nearest enclosing object that has a set.
    cpus: Option<&'a OsSet>,
    /// Whether there is a cache in front of the memory inside.
    cached_memory: bool,
}

/// What has been read so far.
#[derive(Default)]
struct Reader {
    description: Description,
    seen: BTreeSet<u32>,
    numa: Vec<NumaNode>,
    /// The node of each PU according to the PU itself, with or without an object for that node.
    homes: BTreeMap<u32, u32>,
    /// Size of each cache by key.
    cache_bytes: BTreeMap<u32, u64>,
    /// Number of objects so far, from which keys are made.
    objects: u32,
    /// Whether some node's memory has a cache in front of it.
    cached_memory: bool,
    /// Whether some CPU's last-level cache is below L3.
    below_l3: bool,
}

fn read(document: &Document, name: &str) -> Result<Machine, Fault> {
    let topology = document.root_element();
    check_version(topology)?;
    let Some(root) = children(topology, "object").next() else {
        return Err(Fault::at(topology, "no object in the topology", EXPORT_AGAIN));
    };
    let mut reader = Reader::default();
    reader.description.name = name.into();
    reader.object(root, &Around::default())?;
    if reader.description.cpus.is_empty() {
        return Err(Fault::at(root, "no PU in the topology", "export it without --filter PU:none"));
    }
    reader.offline(root)?;
    reader.place_cpus(root)?;
    reader.place_homeless();
    reader.empty_nodes();
    reader.cpu_kinds(topology)?;
    let table = reader.distances(topology)?;
    reader.note_sources(topology);
    let Reader { mut description, below_l3, cache_bytes, cached_memory, .. } = reader;
    description.llc_bytes = cache_bytes;
    if cached_memory {
        description.guess("memory-side-cache", "caches before memory are left out");
    }
    if below_l3 {
        description.guess("no-l3-cache", "the largest cache the file has is the last level");
    }
    description.build().map_err(|problem| {
        let place = match problem.part {
            Part::Hierarchy => root,
            Part::Distances => table.unwrap_or(topology),
        };
        Fault::at(place, problem.what, problem.remedy)
    })
}

/// hwloc 2 and 3 write their version; hwloc 1 wrote none.
fn check_version(topology: Node) -> Result<(), Fault> {
    if !topology.has_tag_name("topology") {
        let problem = format!("<{}> instead of <topology>", shown(topology.tag_name().name()));
        return Err(Fault::at(topology, problem, "give a file written by lstopo"));
    }
    let Some(version) = topology.attribute_node("version") else {
        let remedy = "convert this file of hwloc 1 with lstopo of hwloc 2";
        return Err(Fault::at(topology, "topology without version", remedy));
    };
    match version.value().split('.').next() {
        Some("2" | "3") => Ok(()),
        _ => Err(Fault::attribute(version, "files of hwloc 2 and 3 can be read")),
    }
}

fn children<'a, 'i: 'a>(node: Node<'a, 'i>, tag: &'a str) -> impl Iterator<Item = Node<'a, 'i>> {
    node.children().filter(move |child| child.has_tag_name(tag))
}

/// An attribute that is a whole number, if present.
fn number(node: Node, name: &str) -> Result<Option<u64>, Fault> {
    let Some(attribute) = node.attribute_node(name) else { return Ok(None) };
    match attribute.value().parse() {
        Ok(value) => Ok(Some(value)),
        Err(_) => Err(Fault::attribute(attribute, "a whole number of at most 64 bits is needed")),
    }
}

/// The operating system's number of a PU or node.
fn os_index(node: Node) -> Result<u32, Fault> {
    match number(node, "os_index")? {
        Some(value) if value < OsSet::LIMIT as u64 => Ok(value as u32),
        Some(value) => {
            let problem = format!("os_index {value}");
            Err(Fault::at(node, problem, "numbers go up to 65535"))
        }
        None => Err(Fault::at(node, "object without os_index", EXPORT_AGAIN)),
    }
}

/// An attribute that is a set of CPUs, if present.
fn cpu_set(node: Node, name: &str) -> Result<Option<OsSet>, Fault> {
    let Some(attribute) = node.attribute_node(name) else { return Ok(None) };
    match OsSet::from_mask(attribute.value()) {
        Ok(set) => Ok(Some(set)),
        Err(_) => Err(Fault::attribute(
            attribute,
            "a set is written as 32-bit hexadecimal words, as 0x00000001,0xffffffff",
        )),
    }
}

/// The node that a PU says it belongs to, if it is a single one. hwloc omits a node's object if the
/// node has no memory for the exporting process, but the PU still names the node.
fn home(pu: Node) -> Option<u32> {
    let set = pu.attribute("complete_nodeset").or(pu.attribute("nodeset"))?;
    let set = OsSet::from_mask(set).ok()?;
    let mut nodes = set.iter();
    nodes.next().filter(|_| nodes.next().is_none())
}

/// The value of the `info` with that name.
fn info<'a>(node: Node<'a, '_>, name: &str) -> Option<&'a str> {
    let info = node
        .children()
        .find(|child| child.has_tag_name("info") && child.attribute("name") == Some(name));
    info.and_then(|info| info.attribute("value"))
}

impl Reader {
    /// Reads an object and everything inside it.
    fn object(&mut self, node: Node, around: &Around) -> Result<(), Fault> {
        if around.depth == DEEPEST {
            let problem = format!("objects are nested more than {DEEPEST} deep");
            return Err(Fault::at(node, problem, EXPORT_AGAIN));
        }
        let Some(kind) = node.attribute("type") else {
            return Err(Fault::at(node, "object without type", EXPORT_AGAIN));
        };
        let cpus = cpu_set(node, "cpuset")?;
        let mut inside = Around { depth: around.depth + 1, ..around.clone() };
        inside.cpus = cpus.as_ref().or(around.cpus);
        match kind {
            "PU" => self.pu(node, &inside)?,
            "NUMANode" => self.numa_node(node, &inside)?,
            "Package" => {
                inside.package = Some(self.key());
                self.vendor(node);
            }
            "Core" => inside.core = Some(self.key()),
            "Group" if node.attribute("subtype") == Some("Cluster") => {
                inside.cluster = Some(self.key());
            }
            "Machine" => self.vendor(node),
            "MemCache" => inside.cached_memory = true,
            _ => self.cache(node, kind, &mut inside)?,
        }
        let first = self.description.cpus.len();
        for child in children(node, "object") {
            self.object(child, &inside)?;
        }
        let found = &self.description.cpus[first..];
        let outside =
            |cpu: &&CpuDescription| cpus.as_ref().is_some_and(|cpus| !cpus.contains(cpu.os_index));
        if let Some(cpu) = found.iter().find(outside) {
            let problem = format!("PU {} is inside, but not in the cpuset", cpu.os_index);
            return Err(Fault::at(node, problem, EXPORT_AGAIN));
        }
        Ok(())
    }

    /// A unique key for an object.
    fn key(&mut self) -> u32 {
        self.objects += 1;
        self.objects
    }

    fn vendor(&mut self, node: Node) {
        let description = &mut self.description;
        if description.vendor.is_none() {
            description.vendor = info(node, "CPUVendor").map(str::to_owned);
            description.family =
                info(node, "CPUFamilyNumber").and_then(|family| family.parse().ok());
        }
    }

    /// Records a cache that holds data: `L1Cache` to `L5Cache`. Other objects (instruction caches,
    /// groups, dies, devices) need no record.
    fn cache(&mut self, node: Node, kind: &str, inside: &mut Around) -> Result<(), Fault> {
        let level = match kind {
            "L1Cache" => 1,
            "L2Cache" => 2,
            "L3Cache" => 3,
            "L4Cache" => 4,
            "L5Cache" => 5,
            _ => return Ok(()),
        };
        let key = self.key();
        inside.caches[level - 1] = Some(key);
        // hwloc writes 0 if it does not know the size.
        if let Some(bytes) = number(node, "cache_size")?.filter(|&bytes| bytes > 0) {
            self.cache_bytes.insert(key, bytes);
            if level == 2 {
                self.description.l2_bytes.get_or_insert(bytes);
            }
        }
        Ok(())
    }

    fn pu(&mut self, node: Node, around: &Around) -> Result<(), Fault> {
        let os_index = os_index(node)?;
        if !self.seen.insert(os_index) {
            let problem = format!("PU {os_index} is there twice");
            return Err(Fault::at(node, problem, EXPORT_AGAIN));
        }
        if self.seen.len() > MAX_CPUS {
            let problem = format!("more than {MAX_CPUS} PUs");
            return Err(Fault::at(node, problem, "a machine may have up to 4096 CPUs"));
        }
        let last = around.caches.iter().rposition(Option::is_some);
        let shared_l2 = around.caches[1].filter(|_| last != Some(1));
        self.below_l3 |= last.is_some_and(|level| level < 2);
        self.description.cpus.push(CpuDescription {
            os_index,
            core: around.core,
            cluster: around.cluster.or(shared_l2),
            llc: last.and_then(|level| around.caches[level]),
            node: None,
            package: around.package,
            ..CpuDescription::default()
        });
        self.homes.extend(home(node).map(|home| (os_index, home)));
        Ok(())
    }

    fn numa_node(&mut self, node: Node, around: &Around) -> Result<(), Fault> {
        let os_index = os_index(node)?;
        if self.description.nodes.contains_key(&os_index) {
            let problem = format!("NUMA node {os_index} is there twice");
            return Err(Fault::at(node, problem, EXPORT_AGAIN));
        }
        if self.description.nodes.len() == MAX_NODES {
            let problem = format!("more than {MAX_NODES} NUMA nodes");
            return Err(Fault::at(node, problem, "a machine may have up to 1024 nodes"));
        }
        self.cached_memory |= around.cached_memory;
        let Some(cpus) = around.cpus.cloned() else {
            return Err(Fault::at(node, "NUMA node without cpuset", EXPORT_AGAIN));
        };
        self.description.nodes.insert(os_index, number(node, "local_memory")?);
        self.numa.push(NumaNode { os_index, gp_index: number(node, "gp_index")?, cpus });
        Ok(())
    }

    /// Leaves out CPUs that are not online, and reports them.
    fn offline(&mut self, root: Node) -> Result<(), Fault> {
        let online = cpu_set(root, "cpuset")?;
        let missing = |name: &str, seen: &BTreeSet<u32>| -> Result<Vec<u32>, Fault> {
            let set = cpu_set(root, name)?;
            Ok(set.iter().flat_map(OsSet::iter).filter(|cpu| !seen.contains(cpu)).collect())
        };
        if let Some(cpu) = missing("cpuset", &self.seen)?.first() {
            let problem = format!("CPU {cpu} is in the cpuset, but there is no PU of it");
            return Err(Fault::at(root, problem, EXPORT_AGAIN));
        }
        let offline = missing("complete_cpuset", &self.seen)?;
        if !offline.is_empty() {
            let list = list(offline.into_iter());
            self.description.guess("offline-cpus", format!("CPUs {list} are left out"));
        }
        let (Some(online), Some(allowed)) = (online, cpu_set(root, "allowed_cpuset")?) else {
            return Ok(());
        };
        let barred: Vec<u32> = online.iter().filter(|&cpu| !allowed.contains(cpu)).collect();
        if !barred.is_empty() {
            let list = list(barred.into_iter());
            let assumed =
                format!("CPUs {list}, which the exporting process might not use, are kept");
            self.description.guess("disallowed-cpus", assumed);
        }
        Ok(())
    }

    /// Gives each CPU the node with the smallest set that contains it: memory without CPUs of its
    /// own is attached to larger sets.
    fn place_cpus(&mut self, root: Node) -> Result<(), Fault> {
        let mut order: Vec<(usize, &NumaNode)> =
            self.numa.iter().map(|node| (node.cpus.len(), node)).collect();
        order.sort_by_key(|&(cpus, node)| (cpus, node.os_index));
        let mut shared = false;
        for cpu in &mut self.description.cpus {
            let mut nodes = order.iter().filter(|(_, node)| node.cpus.contains(cpu.os_index));
            let Some(&(size, node)) = nodes.next() else { continue };
            cpu.node = Some(node.os_index);
            let Some(&(other_size, other)) = nodes.next() else { continue };
            shared = true;
            if other_size == size && other.cpus != node.cpus {
                let (a, b) = (node.os_index, other.os_index);
                let problem = format!("NUMA nodes {a} and {b} overlap in CPU {}", cpu.os_index);
                return Err(Fault::at(root, problem, EXPORT_AGAIN));
            }
        }
        if shared {
            let assumed = "CPUs with several local memories belong to the one nearest and lowest";
            self.description.guess("several-nodes-per-cpu", assumed);
        }
        Ok(())
    }

    /// Gives CPUs that are in no node's set the node that they name themselves. That node has no
    /// known memory.
    fn place_homeless(&mut self) {
        let mut without_object = BTreeSet::new();
        for cpu in self.description.cpus.iter_mut().filter(|cpu| cpu.node.is_none()) {
            let Some(&home) = self.homes.get(&cpu.os_index) else { continue };
            cpu.node = Some(home);
            if !self.description.nodes.contains_key(&home) {
                without_object.insert(home);
            }
        }
        if !without_object.is_empty() {
            let nodes = list(without_object.iter().copied());
            let assumed = format!("nodes {nodes}, which only their CPUs name, have no memory");
            self.description.guess("node-without-memory", assumed);
        }
        self.description.nodes.extend(without_object.into_iter().map(|node| (node, Some(0))));
    }

    /// hwloc omits the size of memory if it is 0. So if other nodes have a size, a node without one
    /// has 0.
    fn empty_nodes(&mut self) {
        let nodes = &mut self.description.nodes;
        if nodes.values().flatten().any(|&bytes| bytes > 0) {
            nodes.values_mut().for_each(|bytes| *bytes = bytes.or(Some(0)));
        }
    }

    /// Reads the capacity and the frequency of CPUs of different kinds (hwloc 2.4 and later).
    fn cpu_kinds(&mut self, topology: Node) -> Result<(), Fault> {
        let value = |kind, name| info(kind, name).and_then(|value| value.parse::<u32>().ok());
        for kind in children(topology, "cpukind") {
            let cpus = cpu_set(kind, "cpuset")?.unwrap_or_default();
            let (capacity, mhz) = (value(kind, "LinuxCapacity"), value(kind, "FrequencyMaxMHz"));
            let description = &mut self.description;
            for cpu in description.cpus.iter_mut().filter(|cpu| cpus.contains(cpu.os_index)) {
                cpu.capacity = capacity.filter(|&capacity| capacity > 0);
                cpu.max_mhz = mhz;
                description.kinds.extend(info(kind, "CoreType").map(shown));
            }
        }
        Ok(())
    }

    /// Reads the latencies between NUMA nodes. Returns their place in the file.
    fn distances<'a, 'i: 'a>(
        &mut self,
        topology: Node<'a, 'i>,
    ) -> Result<Option<Node<'a, 'i>>, Fault> {
        for table in children(topology, "distances2") {
            let latency = match table.attribute("name") {
                Some(name) => name == "NUMALatency",
                None => number(table, "kind")?.is_some_and(|kind| kind & MEANS_LATENCY != 0),
            };
            if table.attribute("type") == Some("NUMANode") && latency {
                self.latencies(table)?;
                return Ok(Some(table));
            }
        }
        Ok(None)
    }

    fn latencies(&mut self, table: Node) -> Result<(), Fault> {
        let indexes = numbers(table, "indexes")?;
        let values = numbers(table, "u64values")?;
        let count = number(table, "nbobjs")?.unwrap_or(0);
        if count == 0 || indexes.len() as u64 != count {
            let problem = format!("{} indexes for {count} nodes", indexes.len());
            return Err(Fault::at(table, problem, EXPORT_AGAIN));
        }
        if values.len() != indexes.len().saturating_mul(indexes.len()) {
            let problem = format!("{} distances for {count} nodes", values.len());
            return Err(Fault::at(
                table,
                problem,
                "the table needs a value for each pair of nodes",
            ));
        }
        let by_gp = table.attribute("indexing") == Some("gp");
        let mut nodes = Vec::with_capacity(indexes.len());
        for index in indexes {
            let found = self.numa.iter().find(|node| match by_gp {
                true => node.gp_index == Some(index),
                false => u64::from(node.os_index) == index,
            });
            let Some(node) = found.filter(|node| !nodes.contains(&node.os_index)) else {
                let problem = format!("index {index} names no NUMA node, or one named before");
                return Err(Fault::at(table, problem, EXPORT_AGAIN));
            };
            nodes.push(node.os_index);
        }
        for (row, from) in values.chunks(nodes.len()).zip(&nodes) {
            for (&value, to) in row.iter().zip(&nodes) {
                let Ok(value) = u32::try_from(value) else {
                    let problem = format!("the distance from node {from} to node {to} is {value}");
                    return Err(Fault::at(table, problem, "distances are 1 to 255"));
                };
                self.description.distances.insert((*from, *to), value);
            }
        }
        Ok(())
    }

    /// Reports a single node that hwloc added because its source knows none: its x86 backend asks
    /// the CPUs, which know nothing about memory.
    fn note_sources(&mut self, topology: Node) {
        let mut backends = topology
            .descendants()
            .filter(|node| node.has_tag_name("info") && node.attribute("name") == Some("Backend"))
            .filter_map(|info| info.attribute("value"));
        if self.numa.len() == 1 && backends.next() == Some("x86") && backends.next().is_none() {
            let assumed = "one node holds all CPUs, as the file was made from CPUID alone";
            self.description.guess("no-numa-information", assumed);
        }
    }
}

/// The numbers in all elements of that name inside `table`, in order.
fn numbers(table: Node, tag: &str) -> Result<Vec<u64>, Fault> {
    let mut numbers = Vec::new();
    for element in children(table, tag) {
        for word in element.text().unwrap_or("").split_whitespace() {
            let Ok(value) = word.parse() else {
                let problem = format!("\"{}\" is no distance or index", shown(word));
                return Err(Fault::at(element, problem, "whole numbers are needed"));
            };
            numbers.push(value);
        }
    }
    Ok(numbers)
}
