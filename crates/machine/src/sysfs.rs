//! Machines from a `/sys` tree: that of the running system, or a captured one.
//!
//! [`Reader`] only reads files. [`SysTree::describe`] only draws conclusions, so tests can use
//! made-up machines. Numbers that the firmware does not give appear as -1, empty or missing files,
//! and count as unknown. A file with contents that the kernel never writes counts as missing too,
//! and a guess names it: one bad file does not cost the machine. Only `cpu/online` must be right.

use std::collections::BTreeMap;
use std::path::Path;

use crate::Machine;
use crate::build::{CpuDescription, Description, MAX_CPUS, MAX_NODES, list};
use crate::error::{MachineError, shown};
use crate::files::Files;
use crate::osset::OsSet;

const CAPTURE_AGAIN: &str = "capture /sys/devices/system again with its cpu and node directories";

/// The contents of the files.
#[derive(Debug, Default)]
struct SysTree {
    cpus: Vec<SysCpu>,
    nodes: Vec<SysNode>,
    /// The nodes of the columns of distances; `None` if no table of distances can be used.
    columns: Option<Vec<u32>>,
    /// CPUs that are present but not online.
    offline: Vec<u32>,
    vendor: Option<String>,
    family: Option<u32>,
    /// Files with impossible contents.
    bad: Vec<String>,
}

/// `cpuN/`
#[derive(Debug, Default)]
struct SysCpu {
    os_index: u32,
    package: Option<u32>,
    die: Option<u32>,
    core: Option<u32>,
    siblings: Option<OsSet>,
    package_siblings: Option<OsSet>,
    cluster: Option<OsSet>,
    caches: Vec<SysCache>,
    /// `cpu_capacity`, in 1024ths of the fastest CPU's.
    capacity: Option<u32>,
    /// `cpufreq/cpuinfo_max_freq`, kHz.
    max_khz: Option<u32>,
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

/// Reads a copy of `/sys/devices/system`, or a tree with `devices/system` or `sys/devices/system`.
/// Beside `sys/`, `proc/cpuinfo` gives the vendor and family.
pub(crate) fn machine(dir: &Path, name: &str) -> Result<Machine, MachineError> {
    let layout = if dir.join("sys/devices/system").is_dir() {
        Layout { system: "sys/devices/system/", cpuinfo: Some("proc/cpuinfo") }
    } else if dir.join("cpu").is_dir() {
        Layout { system: "", cpuinfo: None }
    } else {
        Layout { system: "devices/system/", cpuinfo: None }
    };
    built(Files::directory(dir), &layout, dir, name)
}

/// Reads a tar archive of such a tree, compressed or not.
pub(crate) fn archive(path: &Path, name: &str) -> Result<Machine, MachineError> {
    let layout = Layout { system: "devices/system/", cpuinfo: Some("proc/cpuinfo") };
    built(Files::archive(path)?, &layout, path, name)
}

/// The layout of a tree.
struct Layout {
    /// The folder with `cpu` and `node`, with a slash at its end.
    system: &'static str,
    cpuinfo: Option<&'static str>,
}

fn built(files: Files, layout: &Layout, path: &Path, name: &str) -> Result<Machine, MachineError> {
    let tree = Reader { files, bad: Vec::new() }.read(layout)?;
    let mut description = tree.describe();
    description.name = shown(name);
    description.build().map_err(|problem| MachineError::Sysfs {
        path: shown(&path.display().to_string()),
        problem: problem.what,
        remedy: problem.remedy,
    })
}

/// Reads files and records those that cannot be understood.
struct Reader {
    files: Files,
    bad: Vec<String>,
}

impl Reader {
    fn fault(&self, path: &str, problem: String, remedy: &'static str) -> MachineError {
        MachineError::Sysfs { path: self.files.shown(path), problem, remedy }
    }

    /// The value in an optional file, read by `parse`.
    fn value<T>(&mut self, path: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let text = match self.files.text(path) {
            Ok(text) => text?,
            Err(error) => {
                self.bad.push(error.to_string());
                return None;
            }
        };
        let value = parse(&text);
        if value.is_none() {
            self.bad.push(format!("{path} holds \"{}\"", shown(&text)));
        }
        value
    }

    /// A set of CPUs from a list file or, if there is none, a mask file.
    fn cpus(&mut self, dir: &str, list: &str, mask: &str) -> Option<OsSet> {
        let set = self.value(&format!("{dir}/{list}"), |text| OsSet::from_list(text).ok());
        set.or_else(|| self.value(&format!("{dir}/{mask}"), |text| OsSet::from_mask(text).ok()))
    }

    /// An identifier. -1 and other negative numbers mean that the firmware gives none.
    fn id(&mut self, path: &str) -> Option<u32> {
        let id = self.value(path, |text| text.parse::<i64>().ok());
        id.and_then(|id| u32::try_from(id).ok())
    }

    /// Reads the folder with `cpu` and `node`.
    fn read(mut self, layout: &Layout) -> Result<SysTree, MachineError> {
        let dir = format!("{}cpu", layout.system);
        if !self.files.has_directory(&dir) {
            return Err(self.fault(&dir, "no such directory".into(), CAPTURE_AGAIN));
        }
        let mut tree = SysTree::default();
        let numbers = self.files.numbered(&dir, "cpu")?;
        let online = self.online(&dir, &numbers)?;
        if online.len() > MAX_CPUS {
            let problem = format!("{} CPUs are online", online.len());
            return Err(self.fault(&dir, problem, "a machine may have up to 4096 CPUs"));
        }
        for os_index in online.iter() {
            let cpu = self.cpu(&format!("{dir}/cpu{os_index}"), os_index)?;
            tree.cpus.push(cpu);
        }
        let present = self.value(&format!("{dir}/present"), |text| OsSet::from_list(text).ok());
        let present = present.map_or(numbers, |present| present.iter().collect());
        tree.offline = present.into_iter().filter(|&cpu| !online.contains(cpu)).collect();
        self.nodes(&format!("{}node", layout.system), &mut tree)?;
        if let Some(path) = layout.cpuinfo
            && let Some(text) = self.value(path, |text| Some(text.to_owned()))
        {
            tree.vendor = cpuinfo_value(&text, "vendor_id").map(str::to_owned);
            tree.family = cpuinfo_value(&text, "cpu family").and_then(|family| family.parse().ok());
        }
        tree.bad = self.bad;
        Ok(tree)
    }

    /// The online CPUs: those in `cpu/online`, or else those whose own file does not say that they
    /// are off.
    fn online(&mut self, dir: &str, numbers: &[u32]) -> Result<OsSet, MachineError> {
        let path = format!("{dir}/online");
        if let Some(text) = self.files.text(&path)? {
            return OsSet::from_list(&text).map_err(|()| {
                let problem = format!("holds \"{}\"", shown(&text));
                self.fault(&path, problem, "a list of CPUs as 0-3,8 is expected")
            });
        }
        let mut online = OsSet::default();
        for &number in numbers {
            // The boot CPU often has no such file, because it cannot be switched off.
            if self.id(&format!("{dir}/cpu{number}/online")) != Some(0) {
                online.insert(number);
            }
        }
        Ok(online)
    }

    fn cpu(&mut self, dir: &str, os_index: u32) -> Result<SysCpu, MachineError> {
        let topology = format!("{dir}/topology");
        // The name since Linux 5.3 first, then the one before.
        let siblings = self
            .cpus(&topology, "core_cpus_list", "core_cpus")
            .or_else(|| self.cpus(&topology, "thread_siblings_list", "thread_siblings"));
        let package_siblings = self
            .cpus(&topology, "package_cpus_list", "package_cpus")
            .or_else(|| self.cpus(&topology, "core_siblings_list", "core_siblings"));
        let cache = format!("{dir}/cache");
        let mut caches = Vec::new();
        if self.files.has_directory(&cache) {
            for index in self.files.numbered(&cache, "index")? {
                caches.extend(self.cache(&format!("{cache}/index{index}")));
            }
        }
        Ok(SysCpu {
            os_index,
            package: self.id(&format!("{topology}/physical_package_id")),
            die: self.id(&format!("{topology}/die_id")),
            core: self.id(&format!("{topology}/core_id")),
            siblings,
            package_siblings,
            cluster: self.cpus(&topology, "cluster_cpus_list", "cluster_cpus"),
            caches,
            capacity: self.id(&format!("{dir}/cpu_capacity")),
            max_khz: self.id(&format!("{dir}/cpufreq/cpuinfo_max_freq")),
        })
    }

    /// One cache, unless it holds only instructions or does not report its level.
    fn cache(&mut self, dir: &str) -> Option<SysCache> {
        let kind = self.value(&format!("{dir}/type"), |text| Some(text.to_owned()));
        let level = self.id(&format!("{dir}/level"))?;
        if kind.is_some_and(|kind| kind == "Instruction") {
            return None;
        }
        let bytes = self.value(&format!("{dir}/size"), size);
        Some(SysCache {
            level,
            bytes: bytes.filter(|&bytes| bytes > 0),
            cpus: self.cpus(dir, "shared_cpu_list", "shared_cpu_map"),
        })
    }

    fn nodes(&mut self, dir: &str, tree: &mut SysTree) -> Result<(), MachineError> {
        if !self.files.has_directory(dir) {
            return Ok(());
        }
        let numbers = self.files.numbered(dir, "node")?;
        if numbers.len() > MAX_NODES {
            let problem = format!("{} nodes", numbers.len());
            return Err(self.fault(dir, problem, "a machine may have up to 1024 nodes"));
        }
        let possible = self.value(&format!("{dir}/possible"), |text| OsSet::from_list(text).ok());
        for &os_index in &numbers {
            let dir = format!("{dir}/node{os_index}");
            let row = |text: &str| text.split_whitespace().map(|word| word.parse().ok()).collect();
            tree.nodes.push(SysNode {
                os_index,
                cpus: self.cpus(&dir, "cpulist", "cpumap").unwrap_or_default(),
                memory_bytes: self.value(&format!("{dir}/meminfo"), memory),
                distances: self.value(&format!("{dir}/distance"), row),
            });
        }
        tree.columns = columns(&tree.nodes, possible.as_ref());
        Ok(())
    }
}

/// The nodes to which the distances are: those online, or all possible ones, or all numbers from 0.
/// `None` if rows have other lengths, or impossible values: a distance of 0 or above 255 (a byte in
/// the firmware's table), or another node nearer than the node itself.
fn columns(nodes: &[SysNode], possible: Option<&OsSet>) -> Option<Vec<u32>> {
    let rows: Vec<(u32, &Vec<u32>)> =
        nodes.iter().filter_map(|node| Some((node.os_index, node.distances.as_ref()?))).collect();
    let length = rows.first()?.1.len();
    let online: Vec<u32> = nodes.iter().map(|node| node.os_index).collect();
    let possible: Option<Vec<u32>> = possible.map(|set| set.iter().collect());
    let from_0 = (0..length as u32).collect::<Vec<_>>();
    let candidates = [Some(online.clone()), possible, Some(from_0)];
    let holds_all = |columns: &Vec<u32>| online.iter().all(|node| columns.contains(node));
    let columns = candidates
        .into_iter()
        .flatten()
        .find(|columns| columns.len() == length && holds_all(columns))?;
    let right = |(node, row): &(u32, &Vec<u32>)| {
        let own = columns.iter().position(|column| column == node).and_then(|at| row.get(at));
        let least = row.iter().min();
        row.len() == length
            && own == least
            && row.iter().all(|distance| (1..=255).contains(distance))
    };
    rows.iter().all(right).then_some(columns)
}

/// The first value of a key in `/proc/cpuinfo`.
fn cpuinfo_value<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim())
}

/// A cache's size in the kernel's format, in K.
fn size(text: &str) -> Option<u64> {
    match text.strip_suffix('K') {
        Some(number) => number.parse::<u64>().ok()?.checked_mul(1024),
        None => text.parse().ok(),
    }
}

/// Bytes from a line such as `Node 0 MemTotal:  65536 kB`.
fn memory(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.split_once("MemTotal:"))?;
    line.1.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The identity of a core: its lowest thread, or package, die and core numbers.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum CoreKey {
    Lowest(u32),
    Numbers(u32, Option<u32>, u32),
}

impl SysTree {
    /// A description of a machine from the files.
    fn describe(self) -> Description {
        let mut description =
            Description { vendor: self.vendor.clone(), family: self.family, ..Default::default() };
        let mut cores = BTreeMap::new();
        let mut below_l3 = false;
        // POWER, s390 and sparc do not number packages.
        let packages_by_number = self.cpus.iter().any(|cpu| cpu.package.is_some());
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
            let package = match packages_by_number {
                true => cpu.package,
                false => self.lowest(cpu, cpu.package_siblings.as_ref()),
            };
            description.cpus.push(CpuDescription {
                os_index: cpu.os_index,
                core,
                cluster: self.cluster(cpu),
                llc,
                node: node.map(|node| node.os_index),
                package,
                capacity: cpu.capacity.filter(|&capacity| capacity > 0),
                max_mhz: cpu.max_khz.map(|khz| khz / 1000),
            });
        }
        if below_l3 {
            description.guess("no-l3-cache", "the largest cache that is listed is the last level");
        }
        if !self.offline.is_empty() {
            let list = list(self.offline.iter().copied());
            description.guess("offline-cpus", format!("CPUs {list} are left out"));
        }
        self.note_bad_files(&mut description);
        self.describe_nodes(&mut description);
        description
    }

    /// Reports files with impossible contents.
    fn note_bad_files(&self, description: &mut Description) {
        if let Some(first) = self.bad.first() {
            let others = match self.bad.len() {
                1 => String::new(),
                files => format!(" (and {} others)", files - 1),
            };
            description.guess("bad-files", format!("{first}{others}: taken as not known"));
        }
    }

    /// A key for a set that contains `cpu`: its lowest online CPU. A set without the CPU itself is
    /// ignored.
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

    /// The cluster named by the kernel, or the L2 if that is not the last level.
    fn cluster(&self, cpu: &SysCpu) -> Option<u32> {
        let l2 = cpu.caches.iter().find(|cache| cache.level == 2);
        let l2 = l2.and_then(|cache| cache.cpus.as_ref());
        self.lowest(cpu, cpu.cluster.as_ref()).or_else(|| self.lowest(cpu, l2))
    }

    fn describe_nodes(&self, description: &mut Description) {
        let has_rows = self.nodes.iter().any(|node| node.distances.is_some());
        if has_rows && self.columns.is_none() {
            let assumed = "a row of another length, a distance of 0 or above 255, or another node nearer \
                           than the node itself: all are taken as not known";
            description.guess("bad-distances", assumed);
        }
        let shared = self.nodes.iter().enumerate().any(|(index, node)| {
            let before = &self.nodes[..index];
            node.cpus.iter().any(|cpu| before.iter().any(|other| other.cpus.contains(cpu)))
        });
        if shared {
            let assumed =
                "a CPU belongs to the first of its nodes (the kernel's numa=fake does so)";
            description.guess("cpus-in-several-nodes", assumed);
        }
        for node in &self.nodes {
            description.nodes.insert(node.os_index, node.memory_bytes);
            let columns = self.columns.iter().flatten();
            for (&to, &distance) in columns.zip(node.distances.iter().flatten()) {
                description.distances.insert((node.os_index, to), distance);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    /// A tree of files, each with its path below the top, and its text.
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

    /// Two nodes, each with an L3 and one core with two threads. CPU 5 is offline.
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
        // Both packages have the same core numbers, as on many machines.
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
    fn without_knowing_which_cpus_are_online_there_is_no_machine() {
        let cpu = ("devices/system/cpu/online", "0-1");
        let cases: &[(&[(&str, &str)], &str)] = &[
            (&[("nothing", "")], "devices/system/cpu: no such directory"),
            (&[("devices/system/cpu/online", "0-x")], "cpu/online: holds \"0-x\""),
            (&[("devices/system/cpu/online", "")], "no CPU is online"),
            (&[("devices/system/cpu/online", "0-9999")], "10000 CPUs are online"),
            (&[("devices/system/cpu/online", "0-99999999999999999999")], "cpu/online: holds"),
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

    /// One bad file beside two online CPUs costs a guess and nothing else.
    #[test]
    fn one_bad_optional_file_never_costs_the_machine() {
        for (path, text, guess) in [
            ("cpu/cpu0/topology/core_id", "a\nb", "bad-files"),
            ("cpu/cpu1/topology/physical_package_id", "x", "bad-files"),
            ("cpu/present", "0-", "bad-files"),
            ("cpu/cpu1/cache/index0/level", "three", "bad-files"),
            ("node/node0/cpulist", "0-1,", "no-memory-size"),
            ("node/node0/distance", "ten", "bad-files"),
            ("node/node0/distance", "10 20 20", "no-memory-size"),
            ("node/node0/distance", "0", "bad-distances"),
            ("node/node0/distance", "256", "bad-distances"),
            ("node/node0/meminfo", "?", "bad-files"),
            ("node/node0/meminfo", "", "no-memory-size"),
            ("cpu/cpu0/online", "", "no-core-data"),
        ] {
            let path = format!("devices/system/{path}");
            let mut files = vec![("devices/system/cpu/online", "0-1")];
            files.push(("devices/system/node/node0/cpumap", "3"));
            files.push((path.as_str(), text));
            let m = load(&tree(&files)).unwrap_or_else(|error| panic!("{path}: {error}"));
            assert_eq!(m.nr_cpus(), 2, "{path}");
            assert!(guesses(&m).contains(&guess), "{path}: {:?}", m.guesses);
        }
    }

    /// The list of files, with this text appended to each file.
    fn ending_in(end: &str) -> Vec<(&'static str, String)> {
        TWO_NODES.iter().map(|(path, text)| (*path, format!("{text}{end}"))).collect()
    }

    #[test]
    fn text_ends_at_the_first_nul() {
        // tar pads files of /sys like this, and Linux 5.15-rc ended lists so.
        for end in ["\0".repeat(4090), "\0".to_owned(), "\0\0garbage".to_owned()] {
            let files = ending_in(&end);
            let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
            let padded = load(&tree(&files)).unwrap();
            let plain = load(&tree(TWO_NODES)).unwrap();
            assert_eq!(format!("{:?}", padded), format!("{:?}", plain));
        }
    }

    #[test]
    fn nodes_that_the_kernel_makes_up_are_as_near_as_their_cpus() {
        let mut files = vec![("devices/system/cpu/online".to_owned(), "0-1")];
        for node in 0..4 {
            files.push((format!("devices/system/node/node{node}/cpulist"), "0-1"));
            files.push((format!("devices/system/node/node{node}/distance"), "10 10 10 10"));
        }
        let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let m = load(&tree(&files)).unwrap();
        assert_eq!((m.nodes.len(), m.nodes[0].cpus.len()), (4, 2));
        assert_eq!(m.distances, vec![vec![10; 4]; 4]);
        assert!(guesses(&m).contains(&"cpus-in-several-nodes"));
    }

    #[test]
    fn distances_to_nodes_that_are_offline_are_passed_over() {
        let m = load(&tree(&[
            ("devices/system/cpu/online", "0-1"),
            ("devices/system/node/node1/cpulist", "0"),
            ("devices/system/node/node1/distance", "21 10 31"),
            ("devices/system/node/node2/cpulist", "1"),
            ("devices/system/node/node2/distance", "21 31 10"),
        ]))
        .unwrap();
        assert_eq!(m.distances, [[10, 31], [31, 10]]);
        assert!(!guesses(&m).contains(&"bad-distances"));
    }

    #[test]
    fn packages_come_from_sets_where_they_have_no_numbers() {
        for (list, map) in
            [("package_cpus_list", "package_cpus"), ("core_siblings_list", "core_siblings")]
        {
            let name =
                |cpu: u32, file: &str| format!("devices/system/cpu/cpu{cpu}/topology/{file}");
            let files = [
                ("devices/system/cpu/online".to_owned(), "0-3"),
                (name(0, list), "0,2"),
                (name(1, map), "a"),
                (name(2, list), "0,2"),
                (name(3, list), "1,3"),
                (name(3, "physical_package_id"), "-1"),
            ];
            let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
            let m = load(&tree(&files)).unwrap();
            let packages: Vec<u32> = m.cpus.iter().map(|cpu| cpu.package).collect();
            assert_eq!(packages, [0, 1, 0, 1], "{list}");
            assert!(!guesses(&m).contains(&"no-package-data"));
        }
    }

    #[test]
    fn cpus_that_differ_are_simulated_as_equal_and_a_guess_says_so() {
        let cpu = ("devices/system/cpu/online", "0-1");
        for (file, values, expected) in [
            ("cpu_capacity", ["446", "1024"], "CPUs with capacities of 446 to 1024"),
            (
                "cpufreq/cpuinfo_max_freq",
                ["2400000", "3600000"],
                "CPUs of at most 2400 to 3600 MHz",
            ),
        ] {
            let paths = [0, 1].map(|cpu| format!("devices/system/cpu/cpu{cpu}/{file}"));
            let m = load(&tree(&[cpu, (&paths[0], values[0]), (&paths[1], values[1])])).unwrap();
            let guess = m.guesses.iter().find(|guess| guess.name == "unequal-cpus").unwrap();
            assert!(guess.assumed.contains(expected), "{}", guess.assumed);
            let equal =
                load(&tree(&[cpu, (&paths[0], values[1]), (&paths[1], values[1])])).unwrap();
            assert!(!guesses(&equal).contains(&"unequal-cpus"));
        }
    }

    /// An archive of a tree, made by tar and a compressor.
    fn archived(dir: &TempDir, compress: impl Fn(Vec<u8>) -> Vec<u8>) -> TempDir {
        let mut builder = tar::Builder::new(Vec::new());
        builder.follow_symlinks(false);
        builder.append_dir_all("./captured", dir.path()).unwrap();
        let out = tempfile::tempdir().unwrap();
        std::fs::write(out.path().join("archive"), compress(builder.into_inner().unwrap()))
            .unwrap();
        out
    }

    fn gzip(bytes: Vec<u8>) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, &bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn bzip2(bytes: Vec<u8>) -> Vec<u8> {
        let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        std::io::Write::write_all(&mut encoder, &bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(bytes: Vec<u8>) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(&bytes[..], ruzstd::encoding::CompressionLevel::Fastest)
    }

    fn xz(bytes: Vec<u8>) -> Vec<u8> {
        let options = lzma_rust2::XzOptions::with_preset(0);
        let mut writer = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
        std::io::Write::write_all(&mut writer, &bytes).unwrap();
        writer.finish().unwrap()
    }

    #[test]
    fn an_archive_is_the_machine_that_its_tree_is() {
        let dir = tree(TWO_NODES);
        let plain = load(&dir).unwrap();
        let compressors: [fn(Vec<u8>) -> Vec<u8>; 5] = [|bytes| bytes, gzip, bzip2, xz, zstd];
        for (number, compress) in compressors.into_iter().enumerate() {
            let out = archived(&dir, compress);
            let m = crate::resolve(&out.path().join("archive").display().to_string());
            let mut m = m.unwrap_or_else(|error| panic!("{number}: {error}"));
            m.name = plain.name.clone();
            assert_eq!(format!("{m:?}"), format!("{plain:?}"), "{number}");
        }
    }

    /// On a server `cpuN/cpufreq` is a link to `cpufreq/policyM`, and tar keeps the link.
    #[test]
    fn links_of_an_archive_lead_where_they_do_in_its_tree() {
        let policy = |number: u32| format!("devices/system/cpu/cpufreq/policy{number}");
        let file = |number| format!("{}/cpuinfo_max_freq", policy(number));
        let cpu = ("devices/system/cpu/online", "0-1");
        let dir = tree(&[cpu, (&file(0), "2400000"), (&file(1), "3600000")]);
        for number in 0..2 {
            let cpu = dir.path().join(format!("devices/system/cpu/cpu{number}"));
            std::fs::create_dir_all(&cpu).unwrap();
            let target = format!("../cpufreq/policy{number}");
            std::os::unix::fs::symlink(target, cpu.join("cpufreq")).unwrap();
        }
        let out = archived(&dir, gzip);
        for machine in [load(&dir), archive(&out.path().join("archive"), "a")] {
            let machine = machine.unwrap();
            let guess = machine.guesses.iter().find(|guess| guess.name == "unequal-cpus").unwrap();
            assert!(guess.assumed.contains("2400 to 3600 MHz"), "{}", guess.assumed);
        }
    }

    /// tar stores `/proc/cpuinfo` as an empty file. A copy of it in the archive gives the vendor.
    #[test]
    fn a_copy_of_cpuinfo_in_an_archive_tells_the_vendor() {
        let cpu = ("sys/devices/system/cpu/online", "0");
        let copy = ("cpuinfo", "processor\t: 0\nvendor_id\t: AuthenticAMD\n");
        let out = archived(&tree(&[copy, cpu, ("proc/cpuinfo", "")]), gzip);
        let machine = archive(&out.path().join("archive"), "a").unwrap();
        let guess = machine.guesses.iter().find(|guess| guess.name == "no-latency-data").unwrap();
        assert!(guess.assumed.contains("AMD"), "{}", guess.assumed);
    }

    #[test]
    fn an_archive_that_is_not_one_of_sys_or_is_cut_ends_with_one_line() {
        let dir = tree(&[("home/me/notes", "nothing of use")]);
        let out = archived(&dir, gzip);
        let path = out.path().join("archive");
        let error = archive(&path, "a").unwrap_err().to_string();
        assert!(
            error.contains("`roost machine --help` says how to make one on a server"),
            "{error}"
        );
        let whole = std::fs::read(archived(&tree(TWO_NODES), gzip).path().join("archive")).unwrap();
        std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        let error = archive(&path, "a").unwrap_err().to_string();
        assert!(error.contains("no complete archive") && !error.contains('\n'), "{error}");
    }

    #[test]
    fn this_machine_can_be_read_where_there_is_one() {
        if Path::new("/sys/devices/system/cpu/online").exists() {
            let m = Machine::this().unwrap();
            assert!(m.nr_cpus() > 0);
        }
    }
}
