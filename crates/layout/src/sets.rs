//! Cgroups and processes in the scheduler's tables (`bpf/sets.h`, `bpf/home.h`), both called sets: reads where they
//! settled, and writes what the scheduler needs to know about their memory.
//!
//! Nodes have the kernel's numbers here. The scheduler's tables leave out nodes without CPUs, and number the others
//! from 0.

use roost_memory::{Scheduler, Set};
use roost_policy::cling::NodeAttempts;
use roost_settings::Settings;

use crate::layout::{Layout, NodePlace};
use crate::setup::NONE;

/// `PROCESS_ID` in `bpf/sets.h`.
const PROCESS_ID: u64 = 1 << 63;

/// `SET_EXCLUDED` in `bpf/sets.h`.
const EXCLUDED: u32 = 1;

/// A tick of `/proc/PID/stat` (`USER_HZ`), ns.
pub const TICK: u64 = 10_000_000;

/// The scheduler's tables, in a kernel or simulated. What cannot be read now is `None`, and what cannot be written now
/// is lost. The daemon tries it again later.
pub trait Tables {
    /// Ids of all sets: the keys of `set_ids`.
    fn ids(&mut self) -> Vec<u64>;
    /// The index of a set (`set_ids`).
    fn index(&mut self, id: u64) -> Option<u32>;
    /// A set (`sets`).
    fn set(&mut self, index: u32) -> Option<SetEntry>;
    /// Attempts to reach a node (`homes`).
    fn attempts(&mut self, node: u32) -> NodeAttempts;
    /// The node with most failed attempts (`busiest`). [`NONE`] if there is none.
    fn busiest(&mut self) -> u32;
    /// Writes an entry of `set_memory`.
    fn write_memory(&mut self, index: u32, pages: u64);
    /// Writes an entry of `set_moves`.
    fn write_moves(&mut self, index: u32, moves: u32);
    /// Writes an entry of `set_flags`.
    fn write_flags(&mut self, index: u32, flags: u32);
}

/// The members of `struct roost_set` that are read here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetEntry {
    /// Its id. 0: the entry is free.
    pub id: u64,
    /// The node that it settled on. [`NONE`] if there is none.
    pub preferred: u32,
    /// When it settled there (CLOCK_MONOTONIC, ns).
    pub settled_at: u64,
    /// When the process started (CLOCK_BOOTTIME, ns). 0 for a cgroup.
    pub started: u64,
}

/// The sets in a scheduler's tables.
#[derive(Debug)]
pub struct Sets<'a, T> {
    tables: T,
    nodes: &'a [NodePlace],
    degree: u32,
}

impl<'a, T: Tables> Sets<'a, T> {
    /// The sets of a scheduler that was set up with this layout and these settings.
    pub fn new(tables: T, layout: &'a Layout, settings: &Settings) -> Self {
        let degree = settings.number("cling-degree").unwrap_or(0) as u32;
        Self { tables, nodes: &layout.nodes, degree }
    }

    /// The set with this id. `None` if the scheduler does not have it, or has dropped it meanwhile.
    fn find(&mut self, id: u64) -> Option<Set> {
        let index = self.tables.index(id)?;
        let set = self.tables.set(index).filter(|set| set.id == id)?;
        Some(Set {
            index,
            id: id & !PROCESS_ID,
            preferred: self.nodes.get(set.preferred as usize).map(|node| node.number),
            settled_at: set.settled_at,
            started: set.started / TICK,
        })
    }

    /// Tells the scheduler how much memory a set has: pages of 4 KiB by the kernel's node number. Nodes that are not
    /// named have none. Memory on nodes without CPUs counts for the nearest node with CPUs.
    fn set_memory(&mut self, index: u32, pages: &[(u32, u64)]) {
        for (number, node) in (0..).zip(self.nodes) {
            let own = pages.iter().filter(|(from, _)| node.memory_of.contains(from));
            let sum = own.map(|(_, pages)| pages).sum();
            self.tables.write_memory(index * self.nodes.len() as u32 + number, sum);
        }
    }
}

impl<T: Tables> Scheduler for Sets<'_, T> {
    fn groups(&mut self) -> Vec<Set> {
        let ids = self.tables.ids();
        ids.into_iter().filter(|id| id & PROCESS_ID == 0).filter_map(|id| self.find(id)).collect()
    }

    fn processes(&mut self, pids: &[u32]) -> Vec<Set> {
        pids.iter().filter_map(|&pid| self.find(u64::from(pid) | PROCESS_ID)).collect()
    }

    fn busy_nodes(&mut self) -> Vec<u32> {
        let busiest = Some(self.tables.busiest()).filter(|&node| node != NONE);
        let mut busy = Vec::new();
        for (number, node) in (0..).zip(self.nodes) {
            if self.tables.attempts(number).busy(number, busiest, self.degree) {
                busy.push(node.number);
            }
        }
        busy
    }

    fn set_group_memory(&mut self, index: u32, pages: &[(u32, u64)]) {
        self.set_memory(index, pages);
    }

    fn set_process_memory(&mut self, index: u32, pages: &[(u32, u64)]) {
        self.set_memory(index, pages);
    }

    fn set_moving(&mut self, index: u32, moving: bool) {
        self.tables.write_moves(index, moving.into());
    }

    fn set_excluded(&mut self, index: u32, excluded: bool) {
        self.tables.write_flags(index, if excluded { EXCLUDED } else { 0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Process 7 settled on the second node with CPUs; its entry is number 3. Group 7 is not settled.
    #[derive(Default)]
    struct Fake {
        /// Whether process 7's entry belongs to another set by now.
        reused: bool,
        memory: Vec<(u32, u64)>,
    }

    impl Tables for Fake {
        fn ids(&mut self) -> Vec<u64> {
            vec![7 | PROCESS_ID, 7]
        }
        fn index(&mut self, id: u64) -> Option<u32> {
            [(7 | PROCESS_ID, 3), (7, 0)].iter().find(|(known, _)| *known == id).map(|(_, at)| *at)
        }
        fn set(&mut self, index: u32) -> Option<SetEntry> {
            let process = if self.reused { 8 } else { 7 } | PROCESS_ID;
            let settled =
                SetEntry { id: process, preferred: 1, settled_at: 5, started: 12 * TICK + 1 };
            let free = SetEntry { id: 7, preferred: NONE, ..SetEntry::default() };
            Some(if index == 3 { settled } else { free })
        }
        fn attempts(&mut self, _node: u32) -> NodeAttempts {
            NodeAttempts::default()
        }
        fn busiest(&mut self) -> u32 {
            NONE
        }
        fn write_memory(&mut self, index: u32, pages: u64) {
            self.memory.push((index, pages));
        }
        fn write_moves(&mut self, _index: u32, _moves: u32) {}
        fn write_flags(&mut self, _index: u32, _flags: u32) {}
    }

    /// Node 1 has memory only, and is node 0's. The scheduler's second node is the kernel's node 2.
    fn layout() -> Layout {
        let machine = roost_machine::resolve("2n2l4c").unwrap();
        let mut layout = Layout::of(&machine);
        layout.nodes[0].memory_of = vec![0, 1];
        (layout.nodes[1].number, layout.nodes[1].memory_of) = (2, vec![2]);
        layout
    }

    #[test]
    fn a_set_is_read_with_the_kernels_number_of_its_node() {
        let layout = layout();
        let mut sets = Sets::new(Fake::default(), &layout, &Settings::default());
        let process = Set { index: 3, id: 7, preferred: Some(2), settled_at: 5, started: 12 };
        assert_eq!(sets.processes(&[6, 7]), [process]);
        let group = Set { index: 0, id: 7, preferred: None, settled_at: 0, started: 0 };
        assert_eq!(sets.groups(), [group]);
        sets.tables.reused = true;
        assert_eq!(sets.processes(&[7]), [], "the entry belongs to another process now");
    }

    #[test]
    fn memory_on_a_node_without_cpus_counts_for_the_nearest_node() {
        let layout = layout();
        let mut sets = Sets::new(Fake::default(), &layout, &Settings::default());
        sets.set_process_memory(3, &[(0, 10), (1, 5), (2, 3)]);
        assert_eq!(sets.tables.memory, [(6, 15), (7, 3)]);
    }
}
