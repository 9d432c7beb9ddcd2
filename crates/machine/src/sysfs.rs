//! Machines from a `/sys` tree: the running system's, or a captured one.
//!
//! [`read`] only reads files; [`SysTree::describe`] only draws conclusions, so
//! that machines can be made up in tests. Numbers that firmware does not give
//! appear as -1 or as missing files and count as not known; a file that holds
//! what the kernel never writes is an error.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::Machine;
use crate::build::{CpuDescription, Description, MAX_CPUS, MAX_NODES, list};
use crate::error::{MachineError, shown};
use crate::osset::OsSet;

const CAPTURE_AGAIN: &str = "capture /sys/devices/system again with its cpu and node directories";

/// What the files say.
#[derive(Debug, Default)]
struct SysTree {
    cpus: Vec<SysCpu>,
    nodes: Vec<SysNode>,
    /// CPUs that are present but not online.
    offline: Vec<u32>,
    vendor: Option<String>,
    family: Option<u32>,
}

/// `cpuN/`
#[derive(Debug, Default)]
struct SysCpu {
    os_index: u32,
    package: Option<u32>,
    die: Option<u32>,
    core: Option<u32>,
    siblings: Option<OsSet>,
    cluster: Option<OsSet>,
    caches: Vec<SysCache>,
}

/// `cpuN/cache/indexM/` of a cache that holds data.
#[derive(Debug)]
struct SysCache {
    level: u32,
    bytes: Option<u64>,
    cpus: Option<OsSet>,
}

/// `nodeN/`
#[derive(Debug)]
struct SysNode {
    os_index: u32,
    cpus: OsSet,
    memory_bytes: Option<u64>,
    distances: Option<Vec<u32>>,
}

/// Reads a copy of `/sys/devices/system` or a tree that holds `devices/system` or
/// `sys/devices/system`; beside `sys/`, `proc/cpuinfo` tells the vendor and family.
pub(crate) fn machine(dir: &Path, name: &str) -> Result<Machine, MachineError> {
    let inner = dir.join("sys");
    let (sys, proc) = match inner.join("devices/system").is_dir() {
        true => (inner, Some(dir.join("proc/cpuinfo"))),
        false => (dir.to_owned(), None),
    };
    let system = if dir.join("cpu").is_dir() { sys } else { sys.join("devices/system") };
    let tree = read(&system, proc.as_deref())?;
    let mut description = tree.describe();
    description.name = shown(name);
    description.build().map_err(|problem| MachineError::Sysfs {
        path: path_text(dir),
        problem: problem.what,
        remedy: problem.remedy,
    })
}

fn path_text(path: &Path) -> String {
    shown(&path.display().to_string())
}

fn fault(path: &Path, problem: String, remedy: &'static str) -> MachineError {
    MachineError::Sysfs { path: path_text(path), problem, remedy }
}

/// The text of a file, `None` where there is none or the kernel has no answer.
fn text(path: &Path) -> Result<Option<String>, MachineError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => {
            Err(MachineError::Read { path: path_text(path), reason: shown(&error.to_string()) })
        }
    }
}

/// A file's contents as `parse` understands them.
fn value<T>(
    path: PathBuf,
    parse: impl Fn(&str) -> Option<T>,
    expected: &'static str,
) -> Result<Option<T>, MachineError> {
    let Some(text) = text(&path)? else { return Ok(None) };
    match parse(text.trim()) {
        Some(value) => Ok(Some(value)),
        None => Err(fault(&path, format!("holds \"{}\"", shown(text.trim())), expected)),
    }
}

/// A set of CPUs from a list file.
fn cpu_list(path: PathBuf) -> Result<Option<OsSet>, MachineError> {
    let parse = |text: &str| OsSet::from_list(text).ok();
    value(path, parse, "a list of CPUs as 0-3,8 is expected")
}

/// A set of CPUs from a list file or, where there is none, a mask file.
fn cpus(dir: &Path, list: &str, mask: &str) -> Result<Option<OsSet>, MachineError> {
    if let Some(set) = cpu_list(dir.join(list))? {
        return Ok(Some(set));
    }
    let parse = |text: &str| OsSet::from_mask(text).ok();
    value(dir.join(mask), parse, "a mask of CPUs as 00000000,000000ff is expected")
}

/// An identifier; -1 and the like mean that firmware gives none.
fn id(path: PathBuf) -> Result<Option<u32>, MachineError> {
    let parse = |text: &str| text.parse::<i64>().ok();
    let id = value(path, parse, "a whole number is expected")?;
    Ok(id.and_then(|id| u32::try_from(id).ok()))
}

/// Reads `devices/system`.
fn read(system: &Path, cpuinfo: Option<&Path>) -> Result<SysTree, MachineError> {
    let dir = system.join("cpu");
    if !dir.is_dir() {
        return Err(fault(&dir, "no such directory".into(), CAPTURE_AGAIN));
    }
    let mut tree = SysTree::default();
    let numbers = numbered(&dir, "cpu")?;
    let online = match cpu_list(dir.join("online"))? {
        Some(online) => online,
        None => online_by_directory(&dir, &numbers)?,
    };
    if online.len() > MAX_CPUS {
        let problem = format!("{} CPUs are online", online.len());
        return Err(fault(&dir, problem, "a machine may have up to 4096 CPUs"));
    }
    for os_index in online.iter() {
        tree.cpus.push(read_cpu(&dir, os_index)?);
    }
    let present = match cpu_list(dir.join("present"))? {
        Some(present) => present.iter().collect(),
        None => numbers,
    };
    tree.offline = present.into_iter().filter(|&cpu| !online.contains(cpu)).collect();
    tree.nodes = read_nodes(&system.join("node"))?;
    if let Some(text) = cpuinfo.map(text).transpose()?.flatten() {
        tree.vendor = cpuinfo_value(&text, "vendor_id").map(str::to_owned);
        tree.family = cpuinfo_value(&text, "cpu family").and_then(|family| family.parse().ok());
    }
    Ok(tree)
}

/// The first value of a key in `/proc/cpuinfo`.
fn cpuinfo_value<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim())
}

/// The numbers N of all directories `prefixN`, in order.
fn numbered(dir: &Path, prefix: &str) -> Result<Vec<u32>, MachineError> {
    let unreadable = |error: std::io::Error| MachineError::Read {
        path: path_text(dir),
        reason: shown(&error.to_string()),
    };
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(prefix));
        if let Some(number) = number.and_then(|number| number.parse::<u32>().ok())
            && (number as usize) < OsSet::LIMIT
        {
            numbers.push(number);
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Which CPUs are online in a tree without `cpu/online`: those not said to be off.
fn online_by_directory(dir: &Path, numbers: &[u32]) -> Result<OsSet, MachineError> {
    let mut online = OsSet::default();
    for &number in numbers {
        // The boot CPU often has no such file, as it cannot be switched off.
        if id(dir.join(format!("cpu{number}/online")))? != Some(0) {
            online.insert(number);
        }
    }
    Ok(online)
}

fn read_cpu(dir: &Path, os_index: u32) -> Result<SysCpu, MachineError> {
    let dir = dir.join(format!("cpu{os_index}"));
    let topology = dir.join("topology");
    let siblings = match cpus(&topology, "core_cpus_list", "core_cpus")? {
        Some(siblings) => Some(siblings),
        // The name until Linux 5.3, still there.
        None => cpus(&topology, "thread_siblings_list", "thread_siblings")?,
    };
    let mut caches = Vec::new();
    let cache = dir.join("cache");
    if cache.is_dir() {
        for index in numbered(&cache, "index")? {
            caches.extend(read_cache(&cache.join(format!("index{index}")))?);
        }
    }
    Ok(SysCpu {
        os_index,
        package: id(topology.join("physical_package_id"))?,
        die: id(topology.join("die_id"))?,
        core: id(topology.join("core_id"))?,
        siblings,
        cluster: cpus(&topology, "cluster_cpus_list", "cluster_cpus")?,
        caches,
    })
}

/// One cache, unless it holds instructions only or does not tell its level.
fn read_cache(dir: &Path) -> Result<Option<SysCache>, MachineError> {
    let kind = text(&dir.join("type"))?;
    let level = id(dir.join("level"))?;
    let instructions = kind.is_some_and(|kind| kind.trim() == "Instruction");
    let Some(level) = level.filter(|_| !instructions) else { return Ok(None) };
    let bytes = value(dir.join("size"), size, "a size as 32768K is expected")?;
    Ok(Some(SysCache {
        level,
        bytes: bytes.filter(|&bytes| bytes > 0),
        cpus: cpus(dir, "shared_cpu_list", "shared_cpu_map")?,
    }))
}

/// A cache's size as the kernel writes it, in K.
fn size(text: &str) -> Option<u64> {
    match text.strip_suffix('K') {
        Some(number) => number.parse::<u64>().ok()?.checked_mul(1024),
        None => text.parse().ok(),
    }
}

fn read_nodes(dir: &Path) -> Result<Vec<SysNode>, MachineError> {
    if !dir.is_dir() {
        return Ok(Vec::new());
    }
    let numbers = numbered(dir, "node")?;
    if numbers.len() > MAX_NODES {
        let problem = format!("{} nodes", numbers.len());
        return Err(fault(dir, problem, "a machine may have up to 1024 nodes"));
    }
    let mut nodes = Vec::new();
    for &os_index in &numbers {
        let dir = dir.join(format!("node{os_index}"));
        let row = |text: &str| text.split_whitespace().map(|word| word.parse().ok()).collect();
        let distances: Option<Vec<u32>> =
            value(dir.join("distance"), row, "distances as 10 20 are expected")?;
        if let Some(row) = distances.as_ref().filter(|row| row.len() != numbers.len()) {
            let problem = format!("{} distances for {} nodes", row.len(), numbers.len());
            return Err(fault(&dir.join("distance"), problem, CAPTURE_AGAIN));
        }
        nodes.push(SysNode {
            os_index,
            cpus: cpus(&dir, "cpulist", "cpumap")?.unwrap_or_default(),
            memory_bytes: value(dir.join("meminfo"), memory, "a line MemTotal is expected")?,
            distances,
        });
    }
    Ok(nodes)
}

/// `Node 0 MemTotal:  65536 kB`, in bytes.
fn memory(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.split_once("MemTotal:"))?;
    line.1.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// What identifies a core: its lowest thread, or package, die and core numbers.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum CoreKey {
    Lowest(u32),
    Numbers(u32, Option<u32>, u32),
}

impl SysTree {
    /// What the files say, as a description of a machine.
    fn describe(self) -> Description {
        let mut description =
            Description { vendor: self.vendor.clone(), family: self.family, ..Default::default() };
        let mut cores = BTreeMap::new();
        let mut below_l3 = false;
        for cpu in &self.cpus {
            let next = cores.len() as u32;
            let core = self.core_key(cpu).map(|key| *cores.entry(key).or_insert(next));
            let last = cpu.caches.iter().max_by_key(|cache| cache.level);
            let llc = last.and_then(|cache| self.lowest(cpu, cache.cpus.as_ref()));
            below_l3 |= llc.is_some() && last.is_some_and(|cache| cache.level < 3);
            if let (Some(llc), Some(bytes)) = (llc, last.and_then(|cache| cache.bytes)) {
                description.llc_bytes.entry(llc).or_insert(bytes);
            }
            let l2 = cpu.caches.iter().find(|cache| cache.level == 2);
            description.l2_bytes = description.l2_bytes.or(l2.and_then(|cache| cache.bytes));
            let node = self.nodes.iter().find(|node| node.cpus.contains(cpu.os_index));
            description.cpus.push(CpuDescription {
                os_index: cpu.os_index,
                core,
                cluster: self.cluster(cpu),
                llc,
                node: node.map(|node| node.os_index),
                package: cpu.package,
            });
        }
        if below_l3 {
            description.guess("no-l3-cache", "the largest cache that is listed is the last level");
        }
        if !self.offline.is_empty() {
            let list = list(self.offline.iter().copied());
            description.guess("offline-cpus", format!("CPUs {list} are left out"));
        }
        self.describe_nodes(&mut description);
        description
    }

    /// The lowest online CPU of a set that holds `cpu`: a key for the set.
    /// A set without the CPU itself is not believed.
    fn lowest(&self, cpu: &SysCpu, set: Option<&OsSet>) -> Option<u32> {
        let set = set.filter(|set| set.contains(cpu.os_index))?;
        let online =
            |number: &u32| self.cpus.binary_search_by_key(number, |cpu| cpu.os_index).is_ok();
        set.iter().find(online)
    }

    fn core_key(&self, cpu: &SysCpu) -> Option<CoreKey> {
        if let Some(lowest) = self.lowest(cpu, cpu.siblings.as_ref()) {
            return Some(CoreKey::Lowest(lowest));
        }
        Some(CoreKey::Numbers(cpu.package?, cpu.die, cpu.core?))
    }

    /// The cluster the kernel names, or the L2 where that is not the last level.
    fn cluster(&self, cpu: &SysCpu) -> Option<u32> {
        let l2 = cpu.caches.iter().find(|cache| cache.level == 2);
        let l2 = l2.and_then(|cache| cache.cpus.as_ref());
        self.lowest(cpu, cpu.cluster.as_ref()).or_else(|| self.lowest(cpu, l2))
    }

    fn describe_nodes(&self, description: &mut Description) {
        for node in &self.nodes {
            description.nodes.insert(node.os_index, node.memory_bytes);
            for (to, &distance) in self.nodes.iter().zip(node.distances.iter().flatten()) {
                description.distances.insert((node.os_index, to.os_index), distance);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    /// A tree of files, each a path below the top and its text.
    fn tree(files: &[(&str, &str)]) -> TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        dir
    }

    fn load(dir: &TempDir) -> Result<Machine, MachineError> {
        machine(dir.path(), "captured")
    }

    fn guesses(machine: &Machine) -> Vec<&str> {
        machine.guesses.iter().map(|guess| guess.name).collect()
    }

    /// Two nodes of one core with two threads and an L3 each, CPU 5 offline.
    const TWO_NODES: &[(&str, &str)] = &[
        ("sys/devices/system/cpu/online", "0-3\n"),
        ("sys/devices/system/cpu/present", "0-3,5\n"),
        ("sys/devices/system/cpu/cpu0/topology/physical_package_id", "0\n"),
        ("sys/devices/system/cpu/cpu1/topology/physical_package_id", "1\n"),
        ("sys/devices/system/cpu/cpu2/topology/physical_package_id", "0\n"),
        ("sys/devices/system/cpu/cpu3/topology/physical_package_id", "1\n"),
        ("sys/devices/system/cpu/cpu0/topology/core_cpus_list", "0,2\n"),
        ("sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "1,3,5\n"),
        ("sys/devices/system/cpu/cpu2/topology/core_cpus_list", "0,2\n"),
        ("sys/devices/system/cpu/cpu3/topology/thread_siblings", "0000002a\n"),
        ("sys/devices/system/cpu/cpu0/cache/index0/type", "Instruction\n"),
        ("sys/devices/system/cpu/cpu0/cache/index0/level", "4\n"),
        ("sys/devices/system/cpu/cpu0/cache/index3/level", "3\n"),
        ("sys/devices/system/cpu/cpu0/cache/index3/size", "16384K\n"),
        ("sys/devices/system/cpu/cpu0/cache/index3/shared_cpu_list", "0,2\n"),
        ("sys/devices/system/cpu/cpu1/cache/index3/level", "3\n"),
        ("sys/devices/system/cpu/cpu1/cache/index3/shared_cpu_list", "1,3\n"),
        ("sys/devices/system/cpu/cpu2/cache/index3/level", "3\n"),
        ("sys/devices/system/cpu/cpu2/cache/index3/shared_cpu_list", "0,2\n"),
        ("sys/devices/system/cpu/cpu3/cache/index3/level", "3\n"),
        ("sys/devices/system/cpu/cpu3/cache/index3/shared_cpu_map", "0000000a\n"),
        ("sys/devices/system/node/node0/cpulist", "0,2\n"),
        ("sys/devices/system/node/node0/distance", "10 17\n"),
        ("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:  1024 kB\n"),
        ("sys/devices/system/node/node3/cpulist", "1,3,5\n"),
        ("sys/devices/system/node/node3/distance", "17 10\n"),
        ("proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\n"),
    ];

    #[test]
    fn a_captured_tree_is_a_machine() {
        let m = load(&tree(TWO_NODES)).unwrap();
        assert_eq!((m.nr_cpus(), m.cores.len(), m.llcs.len(), m.packages), (4, 2, 2, 2));
        assert_eq!(m.siblings(1).to_string(), "1,3");
        assert_eq!(m.llcs[0].size_bytes, Some(16 << 20));
        assert_eq!((m.nodes[1].os_index, m.distances[0][1]), (3, 17));
        assert_eq!(m.nodes[0].memory_bytes, Some(1 << 20));
        assert_eq!(m.guesses[0].assumed, "CPUs 5 are left out");
        assert!(guesses(&m).contains(&"offline-cpus"));
        let latencies = m.guesses.iter().find(|guess| guess.name == "no-latency-data").unwrap();
        assert!(latencies.assumed.contains("Intel"));
    }

    #[test]
    fn missing_files_are_guesses() {
        let dir = tree(&[
            ("devices/system/cpu/cpu0/topology/physical_package_id", "-1\n"),
            ("devices/system/cpu/cpu1/online", "0\n"),
            ("devices/system/cpu/cpu2/online", "1\n"),
        ]);
        let m = load(&dir).unwrap();
        assert_eq!(m.cpus.iter().map(|cpu| cpu.os_index).collect::<Vec<_>>(), [0, 2]);
        let expected = [
            "offline-cpus",
            "no-numa-information",
            "no-package-data",
            "no-cache-data",
            "no-core-data",
            "no-memory-size",
            "no-latency-data",
        ];
        assert_eq!(guesses(&m), expected);
    }

    #[test]
    fn core_numbers_serve_where_sibling_lists_are_missing() {
        let mut files = Vec::new();
        let paths: Vec<String> =
            (0..4).map(|n| format!("devices/system/cpu/cpu{n}/topology")).collect();
        let names: Vec<[String; 2]> = paths
            .iter()
            .map(|path| [format!("{path}/physical_package_id"), format!("{path}/core_id")])
            .collect();
        // The same core numbers in both packages, as they often are.
        for ([package, core], (p, c)) in
            names.iter().zip([("0", "7"), ("0", "7"), ("1", "7"), ("1", "9")])
        {
            files.extend([(package.as_str(), p), (core.as_str(), c)]);
        }
        let m = load(&tree(&files)).unwrap();
        assert_eq!(m.cores.len(), 3);
        assert_eq!(m.packages, 2);
    }

    #[test]
    fn a_node_without_cpus_holds_memory() {
        let m = load(&tree(&[
            ("devices/system/cpu/online", "0-1"),
            ("devices/system/node/node0/cpulist", "0-1"),
            ("devices/system/node/node2/cpulist", "\n"),
            ("devices/system/node/node2/meminfo", "Node 2 MemTotal: 4 kB"),
        ]))
        .unwrap();
        assert!(m.nodes[1].cpus.is_empty());
        assert!(guesses(&m).contains(&"node-without-cpus"));
        assert!(guesses(&m).contains(&"no-distances"));
        assert_eq!(m.distances, [[10, 20], [20, 10]]);
    }

    #[test]
    fn a_cpu_of_no_node_joins_the_first() {
        let m = load(&tree(&[
            ("devices/system/cpu/online", "0-1"),
            ("devices/system/node/node1/cpulist", "0"),
        ]))
        .unwrap();
        assert_eq!(m.nodes[0].cpus.len(), 2);
        assert!(guesses(&m).contains(&"cpu-without-node"));
    }

    #[test]
    fn faults_name_the_file_and_a_remedy() {
        let cpu = ("devices/system/cpu/online", "0-1");
        let cases: &[(&[(&str, &str)], &str)] = &[
            (&[("nothing", "")], "devices/system/cpu: no such directory"),
            (&[("devices/system/cpu/online", "0-x")], "cpu/online: holds \"0-x\""),
            (&[("devices/system/cpu/online", "")], "no CPU is online"),
            (&[("devices/system/cpu/online", "0-9999")], "10000 CPUs are online"),
            (&[("devices/system/cpu/online", "0-99999999999999999999")], "cpu/online: holds"),
            (&[cpu, ("devices/system/cpu/cpu0/topology/core_id", "a\nb")], "core_id: holds"),
            (
                &[
                    cpu,
                    ("devices/system/cpu/cpu1/cache/index0/size", "big"),
                    ("devices/system/cpu/cpu1/cache/index0/level", "3"),
                ],
                "size: holds \"big\"",
            ),
            (&[cpu, ("devices/system/node/node0/distance", "10 20")], "2 distances for 1 nodes"),
            (&[cpu, ("devices/system/node/node0/distance", "ten")], "distance: holds"),
            (&[cpu, ("devices/system/node/node0/distance", "0")], "node 0 to node 0 is 0"),
            (&[cpu, ("devices/system/node/node0/meminfo", "?")], "meminfo: holds"),
            (
                &[
                    cpu,
                    ("devices/system/cpu/cpu0/topology/core_cpus_list", "0-1"),
                    ("devices/system/cpu/cpu1/topology/core_cpus_list", "0-1"),
                    ("devices/system/node/node0/cpulist", "0"),
                    ("devices/system/node/node1/cpulist", "1"),
                ],
                "CPUs 0 and 1 share a core but not",
            ),
        ];
        for (files, expected) in cases {
            let error = load(&tree(files)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert!(!error.contains('\n') && error.contains("; "), "{error}");
        }
    }

    #[test]
    fn this_machine_can_be_read_where_there_is_one() {
        if Path::new("/sys/devices/system/cpu/online").exists() {
            let m = Machine::this().unwrap();
            assert!(m.nr_cpus() > 0);
        }
    }
}
