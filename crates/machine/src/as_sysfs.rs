//! Writes a machine as the `/sys` tree that Linux would show, for programs that read such trees.
//!
//! The tree has only last-level caches, because a machine has no others. [`Machine::from_sysfs`]
//! reads the tree back. Figures are not in it.

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use crate::{Cpu, Machine, MachineError};

/// Files by their paths below `/sys`, and links.
#[derive(Default)]
struct Tree {
    files: Vec<(String, String)>,
    links: Vec<(String, String)>,
}

const SYSTEM: &str = "devices/system";

/// What x86 shows as `cluster_id` of a CPU without a cluster (BAD_APICID, arch/x86/include/asm/apicdef.h).
const NO_CLUSTER: u32 = 0xffff;

impl Tree {
    fn file(&mut self, path: impl AsRef<str>, text: impl std::fmt::Display) {
        self.files.push((format!("{SYSTEM}/{}", path.as_ref()), format!("{text}\n")));
    }

    fn link(&mut self, path: String, target: String) {
        self.links.push((format!("{SYSTEM}/{path}"), target));
    }
}

/// Numbers in ascending order as the kernel lists them: `0-3,8`.
fn list(numbers: impl Iterator<Item = u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let range = |(first, last): (u32, u32)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.into_iter().map(range).collect::<Vec<_>>().join(",")
}

/// Numbers as a mask: 32-bit words in hexadecimal, the highest first, as many words as `numbers`
/// numbers need.
fn mask(set: impl Iterator<Item = u32>, numbers: u32) -> String {
    let mut words = vec![0_u32; numbers.div_ceil(32).max(1) as usize];
    for number in set {
        words[number as usize / 32] |= 1 << (number % 32);
    }
    words.iter().rev().map(|word| format!("{word:08x}")).collect::<Vec<_>>().join(",")
}

impl Machine {
    /// Creates the folder `dir` and writes this machine's tree there, in the layout of `/sys`.
    ///
    /// # Errors
    /// If the folder exists, or cannot be written. In the second case it does not exist afterwards.
    pub fn write_sysfs(&self, dir: &Path) -> Result<(), MachineError> {
        self.write_new(dir).map_err(|reason| MachineError::Write {
            path: dir.display().to_string(),
            reason: reason.to_string(),
        })
    }

    fn write_new(&self, dir: &Path) -> io::Result<()> {
        if dir.exists() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it exists already"));
        }
        let mut unfinished = dir.as_os_str().to_owned();
        unfinished.push(".unfinished");
        let unfinished = PathBuf::from(unfinished);
        let written =
            self.sysfs().write(&unfinished).and_then(|()| std::fs::rename(&unfinished, dir));
        if written.is_err() {
            // If nothing could be written, there may be nothing to remove.
            let _ = std::fs::remove_dir_all(&unfinished);
        }
        written
    }

    fn sysfs(&self) -> Tree {
        let mut tree = Tree::default();
        let cpus = || self.cpus.iter().map(|cpu| cpu.os_index);
        let numbers = cpus().max().map_or(1, |last| last + 1);
        for file in ["online", "possible", "present"] {
            tree.file(format!("cpu/{file}"), list(cpus()));
        }
        tree.file("cpu/offline", "");
        tree.file("cpu/kernel_max", numbers - 1);
        tree.file("cpu/smt/active", u8::from(self.has_smt()));
        for cpu in &self.cpus {
            self.write_cpu(&mut tree, cpu, numbers);
        }
        self.write_nodes(&mut tree, numbers);
        tree
    }

    /// The operating system's numbers of the CPUs for which `holds` is true.
    fn numbers<'a>(&'a self, holds: impl Fn(&Cpu) -> bool + 'a) -> impl Iterator<Item = u32> + 'a {
        self.cpus.iter().filter(move |cpu| holds(cpu)).map(|cpu| cpu.os_index)
    }

    fn write_cpu(&self, tree: &mut Tree, cpu: &Cpu, numbers: u32) {
        let dir = format!("cpu/cpu{}", cpu.os_index);
        if cpu.os_index != 0 {
            // The boot CPU cannot be switched off.
            tree.file(format!("{dir}/online"), 1);
        }
        if self.cpus.iter().any(|cpu| cpu.capacity != Cpu::FULL_CAPACITY) {
            tree.file(format!("{dir}/cpu_capacity"), cpu.capacity);
        }
        let first_core = self.cpus.iter().find(|other| other.package == cpu.package);
        let topology = format!("{dir}/topology");
        tree.file(format!("{topology}/physical_package_id"), cpu.package);
        tree.file(format!("{topology}/die_id"), 0);
        tree.file(
            format!("{topology}/core_id"),
            cpu.core.abs_diff(first_core.map_or(0, |first| first.core)),
        );
        let mut set = |names: [&str; 2], lists: [&str; 2], holds: &dyn Fn(&Cpu) -> bool| {
            for (name, with_list) in names.into_iter().zip(lists) {
                let cpus = || self.numbers(holds);
                tree.file(format!("{topology}/{name}"), mask(cpus(), numbers));
                tree.file(format!("{topology}/{with_list}"), list(cpus()));
            }
        };
        set(
            ["core_cpus", "thread_siblings"],
            ["core_cpus_list", "thread_siblings_list"],
            &|other| other.core == cpu.core,
        );
        set(
            ["package_cpus", "core_siblings"],
            ["package_cpus_list", "core_siblings_list"],
            &|other| other.package == cpu.package,
        );
        tree.file(format!("{topology}/cluster_id"), cpu.cluster.unwrap_or(NO_CLUSTER));
        if let Some(cluster) = cpu.cluster {
            let together = |other: &Cpu| other.cluster == Some(cluster);
            tree.file(format!("{topology}/cluster_cpus"), mask(self.numbers(together), numbers));
            tree.file(format!("{topology}/cluster_cpus_list"), list(self.numbers(together)));
        }
        let cache = format!("{dir}/cache/index3");
        let shares = |other: &Cpu| other.llc == cpu.llc;
        tree.file(format!("{cache}/id"), cpu.llc);
        tree.file(format!("{cache}/level"), 3);
        tree.file(format!("{cache}/type"), "Unified");
        if let Some(bytes) = self.llcs[cpu.llc as usize].size_bytes {
            tree.file(format!("{cache}/size"), format!("{}K", bytes / 1024));
        }
        tree.file(format!("{cache}/shared_cpu_map"), mask(self.numbers(shares), numbers));
        tree.file(format!("{cache}/shared_cpu_list"), list(self.numbers(shares)));
        let node = self.nodes[cpu.node as usize].os_index;
        tree.link(format!("{dir}/node{node}"), format!("../../node/node{node}"));
    }

    fn write_nodes(&self, tree: &mut Tree, numbers: u32) {
        let nodes = |holds: &dyn Fn(&crate::Node) -> bool| {
            list(self.nodes.iter().filter(|node| holds(node)).map(|node| node.os_index))
        };
        for file in ["online", "possible"] {
            tree.file(format!("node/{file}"), nodes(&|_| true));
        }
        tree.file("node/has_cpu", nodes(&|node| !node.cpus.is_empty()));
        for file in ["has_memory", "has_normal_memory"] {
            tree.file(format!("node/{file}"), nodes(&|node| node.memory_bytes != Some(0)));
        }
        for (node, distances) in self.nodes.iter().zip(&self.distances) {
            let dir = format!("node/node{}", node.os_index);
            let cpus = || node.cpus.iter().map(|cpu| self.cpus[cpu].os_index);
            tree.file(format!("{dir}/cpumap"), mask(cpus(), numbers));
            tree.file(format!("{dir}/cpulist"), list(cpus()));
            let row: Vec<String> = distances.iter().map(u32::to_string).collect();
            tree.file(format!("{dir}/distance"), row.join(" "));
            if let Some(bytes) = node.memory_bytes {
                let mut text = String::new();
                // Writing to a string does not fail.
                let _ = write!(text, "Node {} MemTotal: {:>15} kB", node.os_index, bytes / 1024);
                tree.file(format!("{dir}/meminfo"), text);
            }
            for cpu in cpus() {
                tree.link(format!("{dir}/cpu{cpu}"), format!("../../cpu/cpu{cpu}"));
            }
        }
    }
}

impl Tree {
    fn write(&self, dir: &Path) -> io::Result<()> {
        for (path, text) in &self.files {
            let path = dir.join(path);
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)?;
            }
            std::fs::write(path, text)?;
        }
        self.links.iter().try_for_each(|(path, to)| std::os::unix::fs::symlink(to, dir.join(path)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Everything about a machine that a tree contains: all but its name, figures and guesses.
    fn told(machine: &Machine) -> String {
        let Machine { cpus, cores, llcs, nodes, packages, distances, .. } = machine;
        format!("{cpus:?} {cores:?} {llcs:?} {nodes:?} {packages} {distances:?}")
    }

    #[test]
    fn a_tree_is_read_back_as_the_machine() {
        let odd = "pack:2 node:2 l3:2 l2:2 core:2 pu:2(indexes=core:pack)";
        for name in ["hygon-vm", "x3750-m4", "4n2l2c", "2n1l2m2c2t", odd, "node:1 core:1 pu:1"] {
            let machine = crate::resolve(name).unwrap();
            let dir = tempfile::tempdir().unwrap();
            let dir = dir.path().join("sys");
            machine.write_sysfs(&dir).unwrap();
            assert_eq!(told(&Machine::from_sysfs(&dir).unwrap()), told(&machine), "{name}");
        }
    }

    #[test]
    fn a_folder_that_is_there_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let machine = crate::resolve("2n2l4c").unwrap();
        assert!(machine.write_sysfs(dir.path()).is_err());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let nowhere = dir.path().join("no/such/folder");
        std::fs::write(dir.path().join("no"), "").unwrap();
        assert!(machine.write_sysfs(&nowhere).is_err());
    }

    #[test]
    fn lists_and_masks_are_the_kernels() {
        assert_eq!(list([0, 1, 2, 5, 7, 8].into_iter()), "0-2,5,7-8");
        assert_eq!(mask([0, 33].into_iter(), 34), "00000002,00000001");
    }
}
