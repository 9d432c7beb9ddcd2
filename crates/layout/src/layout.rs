//! A machine as the scheduler sees it (`bpf/state.h`).
//!
//! The LLCs of a node have consecutive numbers, and so do the siblings of a core. Nodes without CPUs are left out.

use roost_machine::{Machine, count};
use roost_policy::numa_imbalance::{LevelSpan, Rule, Walk, step};

/// The rule for tolerating an imbalance between nodes: the kernel's rule since 6.0.
pub const NUMA_RULE: Rule = Rule::Merged60;

/// Number of slots in a word.
const WORD: usize = 64;

/// The place of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuPlace {
    /// The kernel's number of the CPU.
    pub id: u32,
    /// Its LLC.
    pub llc: u32,
    /// Its node.
    pub node: u32,
    /// The word that contains its slot.
    pub word: u32,
    /// Its slot within that word.
    pub bit: u32,
}

/// A word: up to 64 slots of an LLC.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Word {
    /// Mask of slots that have a CPU.
    pub present: u64,
    /// Mask of the first slot of each core.
    pub first: u64,
    /// Number of slots in use.
    pub nr_slots: u32,
    /// The node of the LLC.
    pub node: u32,
    /// For each of the 64 slots, the kernel's number of its CPU. Empty slots must be included, because a missing entry
    /// would mean CPU 0.
    pub cpus: Vec<Option<u32>>,
}

/// An LLC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LlcPlace {
    /// Its node.
    pub node: u32,
    /// Number of its CPUs.
    pub nr_cpus: u32,
    /// Its first word.
    pub first_word: u32,
    /// Number of its words.
    pub nr_words: u32,
}

/// A node with CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePlace {
    /// The kernel's number of the node.
    pub number: u32,
    /// The kernel's numbers of all nodes whose memory counts as this node's: the node itself, and nodes without CPUs to
    /// which it is the nearest.
    pub memory_of: Vec<u32>,
    /// Its first LLC.
    pub first_llc: u32,
    /// Number of its LLCs.
    pub nr_llcs: u32,
    /// Number of its CPUs.
    pub nr_cpus: u32,
    /// Number of CPUs in its lowest NUMA domain: its own, and those of the nearest other nodes.
    pub numa_span: u32,
    /// `imb_numa_nr`: the imbalance to other nodes that is tolerated, in tasks.
    pub imb_numa_nr: u32,
    /// All nodes ordered by distance, starting with itself.
    pub near: Vec<u32>,
}

/// The machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Number of slots per core.
    pub smt: u32,
    /// Every online CPU.
    pub cpus: Vec<CpuPlace>,
    /// All words.
    pub words: Vec<Word>,
    /// All LLCs.
    pub llcs: Vec<LlcPlace>,
    /// All nodes with CPUs.
    pub nodes: Vec<NodePlace>,
    /// What had to be guessed about the machine.
    pub guesses: Vec<String>,
}

impl Layout {
    /// Lays a machine out.
    pub fn of(machine: &Machine) -> Self {
        let threads = machine.cores.iter().map(|core| core.cpus.len()).max().unwrap_or(1);
        let smt = threads.next_power_of_two().min(WORD);
        let mut layout = Self {
            smt: smt as u32,
            cpus: Vec::new(),
            words: Vec::new(),
            llcs: Vec::new(),
            nodes: Vec::new(),
            guesses: guesses(machine),
        };
        // For each node of the layout, its number in the machine.
        let mut numbers = Vec::new();
        for node in 0..machine.nodes.len() {
            let llcs: Vec<usize> =
                (0..machine.llcs.len()).filter(|&llc| is_on(machine, llc, node)).collect();
            if llcs.is_empty() {
                continue;
            }
            let first_llc = layout.llcs.len() as u32;
            for &llc in &llcs {
                layout.add_llc(machine, llc, numbers.len() as u32);
            }
            let nr_cpus = llcs.iter().map(|&llc| machine.llcs[llc].cpus.len() as u32).sum();
            let nr_llcs = llcs.len() as u32;
            layout.nodes.push(NodePlace {
                number: machine.nodes[node].os_index,
                memory_of: Vec::new(),
                first_llc,
                nr_llcs,
                nr_cpus,
                numa_span: nr_cpus,
                imb_numa_nr: 0,
                near: Vec::new(),
            });
            numbers.push(node);
        }
        layout.connect(machine, &numbers);
        layout.share_memory(machine, &numbers);
        layout.cpus.sort_by_key(|cpu| cpu.id);
        layout
    }

    /// Assigns slots to the CPUs of an LLC, core by core.
    fn add_llc(&mut self, machine: &Machine, llc: usize, node: u32) {
        let smt = self.smt as usize;
        let first_word = self.words.len();
        let mut slot = 0;
        let mut last_core = None;
        let mut cpus: Vec<usize> = machine.llcs[llc].cpus.iter().collect();
        cpus.sort_by_key(|&cpu| (machine.cpus[cpu].core, cpu));
        for cpu in cpus {
            let core = machine.cpus[cpu].core;
            let begins = last_core != Some(core);
            if begins {
                slot = usize::next_multiple_of(slot, smt);
                last_core = Some(core);
            }
            let word = first_word + slot / WORD;
            let new = || Word { node, ..Word::default() };
            self.words.resize_with(self.words.len().max(word + 1), new);
            let id = machine.cpus[cpu].os_index;
            self.words[word].put(slot % WORD, id, begins, smt);
            self.cpus.push(CpuPlace {
                id,
                llc: self.llcs.len() as u32,
                node,
                word: word as u32,
                bit: (slot % WORD) as u32,
            });
            slot += 1;
        }
        self.llcs.push(LlcPlace {
            node,
            nr_cpus: machine.llcs[llc].cpus.len() as u32,
            first_word: first_word as u32,
            nr_words: (self.words.len() - first_word) as u32,
        });
    }

    /// Orders the nodes by distance, and computes the tolerated imbalances between them.
    fn connect(&mut self, machine: &Machine, numbers: &[usize]) {
        let sizes: Vec<u32> = self.nodes.iter().map(|node| node.nr_cpus).collect();
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let distance = |other: usize| machine.distances[numbers[index]][numbers[other]];
            let mut near: Vec<usize> = (0..numbers.len()).collect();
            near.sort_by_key(|&other| (other != index, distance(other), other));
            if let Some(nearest) = near.get(1).map(|&other| distance(other)) {
                let within = near.iter().filter(|&&o| o == index || distance(o) <= nearest);
                node.numa_span = within.map(|&other| sizes[other]).sum();
            }
            let llc = self.llcs[node.first_llc as usize].nr_cpus;
            node.imb_numa_nr = imb_numa_nr(llc, node.nr_cpus, node.numa_span, sizes.len() as u32);
            node.near = near.into_iter().map(|other| other as u32).collect();
        }
    }

    /// Assigns the memory of each node to the nearest node with CPUs. Of equally near nodes, the lowest is used.
    fn share_memory(&mut self, machine: &Machine, numbers: &[usize]) {
        for (node, place) in machine.nodes.iter().enumerate() {
            let distance =
                |&own: &usize| (numbers[own] != node, machine.distances[node][numbers[own]]);
            if let Some(nearest) = (0..numbers.len()).min_by_key(distance) {
                self.nodes[nearest].memory_of.push(place.os_index);
            }
        }
    }

    /// A description of the machine in one line.
    pub fn summary(&self) -> String {
        let cores =
            if self.smt > 1 { format!(", {} threads per core", self.smt) } else { "".into() };
        let guesses: String = self.guesses.iter().map(|guess| format!("; {guess}")).collect();
        format!(
            "{} in {} on {}{cores}{guesses}",
            count(self.cpus.len(), "CPU"),
            count(self.llcs.len(), "LLC"),
            count(self.nodes.len(), "node")
        )
    }
}

impl Word {
    fn put(&mut self, bit: usize, cpu: u32, begins_core: bool, smt: usize) {
        self.present |= 1 << bit;
        if begins_core {
            self.first |= 1 << bit;
            self.nr_slots = (bit + smt) as u32;
        }
        self.cpus.resize(64, None);
        self.cpus[bit] = Some(cpu);
    }
}

/// What was guessed about the machine. Guesses about its speed are left out, because the speed is not used.
fn guesses(machine: &Machine) -> Vec<String> {
    let matters = machine.guesses.iter().filter(|guess| guess.name != "no-latency-data");
    matters.map(|guess| guess.assumed.clone()).collect()
}

/// Whether an LLC is on a node. No LLC is on two nodes.
fn is_on(machine: &Machine, llc: usize, node: usize) -> bool {
    machine.llcs[llc].cpus.iter().any(|cpu| machine.cpus[cpu].node as usize == node)
}

/// `imb_numa_nr` of the lowest NUMA domain above a node with `node` CPUs, whose LLCs have `llc` CPUs. The kernel
/// computes it before it removes domains that span no more than their child, so a node with one LLC is a level too.
fn imb_numa_nr(llc: u32, node: u32, numa_span: u32, nodes: u32) -> u32 {
    let mut walk = Walk::default();
    let mut level = |span: u32, child_span: u32, above_llc: bool| {
        let first_numa_span = numa_span;
        step(
            NUMA_RULE,
            &mut walk,
            LevelSpan { span, child_span, first_numa_span, nodes, above_llc },
        )
    };
    level(node, llc, true);
    level(numa_span, node, false)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn layout(machine: &str) -> Layout {
        Layout::of(&roost_machine::resolve(machine).unwrap())
    }

    #[test]
    fn every_cpu_has_a_slot_of_its_own() {
        for machine in ["2n2l4c", "1s2n4l2c", "2n2l2c2t", "zen3-2s", "node:1 l3:1 core:100 pu:2"] {
            let layout = layout(machine);
            let nr = roost_machine::resolve(machine).unwrap().nr_cpus();
            assert_eq!(layout.cpus.len(), nr, "{machine}");
            assert!(layout.words.iter().all(|word| word.cpus.len() == 64), "{machine}");
            for cpu in &layout.cpus {
                let word = &layout.words[cpu.word as usize];
                assert_eq!(word.cpus[cpu.bit as usize], Some(cpu.id), "{machine}");
                assert!(word.present & 1 << cpu.bit != 0);
                assert_eq!(word.node, cpu.node);
                let llc = layout.llcs[cpu.llc as usize];
                assert!((llc.first_word..llc.first_word + llc.nr_words).contains(&cpu.word));
                let node = &layout.nodes[cpu.node as usize];
                assert!((node.first_llc..node.first_llc + node.nr_llcs).contains(&cpu.llc));
            }
            let slots: u32 = layout.words.iter().map(|word| word.present.count_ones()).sum();
            assert_eq!(slots as usize, nr, "{machine}");
        }
    }

    #[test]
    fn siblings_are_neighbours_and_cores_do_not_straddle_words() {
        let layout = layout("node:1 l3:1 core:100 pu:2");
        assert_eq!((layout.smt, layout.words.len()), (2, 4));
        for pair in layout.cpus.chunks(2) {
            assert_eq!((pair[0].word, pair[0].bit + 1), (pair[1].word, pair[1].bit));
            assert_eq!(pair[0].bit % 2, 0);
        }
        let sizes: Vec<u32> = layout.words.iter().map(|word| word.nr_slots).collect();
        assert_eq!(sizes, [64, 64, 64, 8]);
    }

    #[test]
    fn one_llc_and_one_node() {
        let layout = layout("node:1 l3:1 core:4 pu:1");
        assert!(layout.summary().starts_with("4 CPUs in 1 LLC on 1 node"), "{}", layout.summary());
        assert_eq!((layout.llcs.len(), layout.nodes.len(), layout.smt), (1, 1, 1));
        assert_eq!(layout.nodes[0].near, [0]);
    }

    #[test]
    fn nodes_are_ordered_by_distance() {
        let layout = layout("4n1l4c");
        for (number, node) in layout.nodes.iter().enumerate() {
            assert_eq!(node.near[0], number as u32);
            assert_eq!(node.near.len(), 4);
        }
        // The distances are 10 11 11 12, so the farthest node comes last.
        assert_eq!(layout.nodes[0].near[3], 3);
    }

    /// Rows of the table in `policy/include/roost/numa_imbalance.h`, column 6.0.
    #[test]
    fn what_nodes_may_be_ahead_by() {
        assert_eq!(imb_numa_nr(48, 48, 96, 2), 6);
        assert_eq!(imb_numa_nr(16, 128, 256, 2), 8);
        assert_eq!(imb_numa_nr(16, 32, 128, 8), 2);
        assert_eq!(imb_numa_nr(4, 4, 8, 2), 1);
    }
}
