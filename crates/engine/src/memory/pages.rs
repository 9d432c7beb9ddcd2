//! Where pages are: placement by policy, free pages of each node, and moving pages.
//!
//! Pages are kept in groups of [`GROUP_PAGES`], which are placed and moved as a unit. If no node of
//! its policy has room for a group, the group goes to the next nearest node with room (the kernel's
//! zonelist fallback; with `Bind` the kernel would kill the process instead).

use roost_machine::{Machine, PAGE_BYTES};

/// Pages of 4 KiB in a group: 256 KiB. The kernel moves 4 KiB or, with huge pages, 2 MiB at a time.
pub const GROUP_PAGES: u64 = 64;

/// A group that is on no node.
pub(super) const NOWHERE: u16 = u16::MAX;

/// A memory policy, with dense node numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    FirstTouch,
    Bind(Vec<u16>),
    Interleave(Vec<u16>),
    /// As `Interleave` at first, and later the default policy.
    Spread(Vec<u16>),
    Preferred(u16),
}

/// The memory of every node.
pub(crate) struct Nodes {
    /// Pages in no region; unlimited (2^40) if the size is not known.
    free: Vec<u64>,
    used: Vec<u64>,
    /// For each node: all nodes, nearest first.
    near: Vec<Vec<u16>>,
    /// Pages placed on the node that the policy wanted.
    pub hit: u64,
    /// Pages placed elsewhere, because that node was full.
    pub miss: u64,
}

/// Pages of a node with unknown size: 4 PiB.
const UNLIMITED: u64 = 1 << 40;

impl Nodes {
    pub(crate) fn new(machine: &Machine) -> Self {
        let count = machine.nodes.len();
        let pages = |bytes: Option<u64>| bytes.map_or(UNLIMITED, |bytes| bytes / PAGE_BYTES);
        let near = |from: usize| {
            let mut order: Vec<u16> = (0..count as u16).collect();
            order.sort_by_key(|&to| (machine.distance(from, to.into()), to));
            order
        };
        Self {
            free: machine.nodes.iter().map(|node| pages(node.memory_bytes)).collect(),
            used: vec![0; count],
            near: (0..count).map(near).collect(),
            hit: 0,
            miss: 0,
        }
    }

    /// Pages in regions, by node.
    pub(crate) fn used(&self) -> &[u64] {
        &self.used
    }

    /// Pages of a node in no region.
    pub(crate) fn free(&self, node: usize) -> u64 {
        self.free[node]
    }

    /// Takes `pages` from the first of the `wanted` nodes that has them, or from the nearest node
    /// that does.
    fn take(&mut self, wanted: &[u16], pages: u64) -> Option<u16> {
        let first = *wanted.first()?;
        let order = wanted.iter().chain(&self.near[usize::from(first)]);
        let node = *order.into_iter().find(|&&node| self.free[usize::from(node)] >= pages)?;
        self.free[usize::from(node)] -= pages;
        self.used[usize::from(node)] += pages;
        let counter = if wanted.contains(&node) { &mut self.hit } else { &mut self.miss };
        *counter += pages;
        Some(node)
    }

    fn give_back(&mut self, node: usize, pages: u64) {
        self.free[node] += pages;
        self.used[node] -= pages;
    }
}

/// The pages of one region.
#[derive(Clone, Debug)]
pub(crate) struct Pages {
    policy: Policy,
    pages: u64,
    /// Node of each group.
    groups: Vec<u16>,
    /// Pages on each node.
    on: Vec<u64>,
    /// The first group that no task has touched.
    touched: usize,
}

impl Pages {
    pub(crate) fn new(bytes: u64, policy: Policy, nodes: &Nodes) -> Self {
        let pages = bytes.div_ceil(PAGE_BYTES);
        let groups = vec![NOWHERE; pages.div_ceil(GROUP_PAGES) as usize];
        Self { policy, pages, groups, on: vec![0; nodes.free.len()], touched: 0 }
    }

    /// Pages on each node.
    pub(crate) fn on(&self) -> &[u64] {
        &self.on
    }

    /// The placement policy.
    pub(crate) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Number of pages.
    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }

    /// Number of groups.
    pub(crate) fn groups(&self) -> usize {
        self.groups.len()
    }

    /// The node of a group, if it is on a node.
    pub(crate) fn node(&self, group: usize) -> Option<usize> {
        let node = self.groups[group];
        (node != NOWHERE).then_some(node.into())
    }

    /// Pages in a group. The last group may be smaller.
    pub(crate) fn in_group(&self, group: usize) -> u64 {
        (self.pages - group as u64 * GROUP_PAGES).min(GROUP_PAGES)
    }

    /// A CPU of node `by` touches the next untouched groups, at most `most` of them. Returns how
    /// many pages that placed. Tasks that touch the same region at the same time take turns, and so
    /// each places a share of it.
    pub(crate) fn touch(&mut self, by: usize, nodes: &mut Nodes, most: usize) -> u64 {
        let end = self.groups.len().min(self.touched + most);
        if self.touched == end {
            return 0;
        }
        let nearest: Vec<u16> = match &self.policy {
            Policy::FirstTouch => vec![by as u16],
            Policy::Preferred(node) => vec![*node],
            Policy::Bind(list) => {
                nodes.near[by].iter().copied().filter(|node| list.contains(node)).collect()
            }
            Policy::Interleave(_) | Policy::Spread(_) => Vec::new(),
        };
        let mut placed = 0;
        for group in self.touched..end {
            let wanted = match &self.policy {
                Policy::Interleave(list) | Policy::Spread(list) => &list[group % list.len()..][..1],
                _ => &nearest[..],
            };
            let pages = self.in_group(group);
            if let Some(node) = nodes.take(wanted, pages) {
                self.groups[group] = node;
                self.on[usize::from(node)] += pages;
                placed += pages;
            }
        }
        self.touched = end;
        placed
    }

    /// Whether every page has been touched.
    pub(crate) fn is_touched(&self) -> bool {
        self.touched == self.groups.len()
    }

    /// Moves groups to node `to`, while it has room. Returns how many pages moved.
    pub(crate) fn relocate(
        &mut self,
        groups: std::ops::Range<usize>,
        to: usize,
        nodes: &mut Nodes,
    ) -> u64 {
        let mut moved = 0;
        for group in groups.start..groups.end.min(self.groups.len()) {
            let (from, pages) = (self.groups[group], self.in_group(group));
            if from == NOWHERE || usize::from(from) == to || nodes.free[to] < pages {
                continue;
            }
            nodes.give_back(from.into(), pages);
            nodes.free[to] -= pages;
            nodes.used[to] += pages;
            self.on[usize::from(from)] -= pages;
            self.on[to] += pages;
            self.groups[group] = to as u16;
            moved += pages;
        }
        moved
    }

    /// Frees all pages.
    pub(crate) fn release(&mut self, nodes: &mut Nodes) {
        for (node, pages) in self.on.iter_mut().enumerate() {
            nodes.give_back(node, std::mem::take(pages));
        }
        self.groups.fill(NOWHERE);
        self.touched = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::time::Time;

    const MIB: u64 = 1 << 20;

    /// Four nodes in a square (distances 11 and 12) of 64 GB each, or with these sizes.
    fn nodes(mib: Option<[u64; 4]>) -> Nodes {
        let mut nodes = Nodes::new(&roost_machine::resolve("x3750-m4").unwrap());
        if let Some(mib) = mib {
            nodes.free = mib.map(|mib| mib * MIB / PAGE_BYTES).to_vec();
        }
        nodes
    }

    fn placed(bytes: u64, policy: Policy, by: usize, nodes: &mut Nodes) -> [u64; 4] {
        let mut pages = Pages::new(bytes, policy, nodes);
        let touched = pages.touch(by, nodes, usize::MAX >> 1);
        assert_eq!(touched, pages.on.iter().sum::<u64>());
        [0, 1, 2, 3].map(|node| pages.on[node] * PAGE_BYTES / MIB)
    }

    #[test]
    fn each_policy_places_where_it_says() {
        let mut nodes = nodes(None);
        let mut place = |policy| placed(8 * MIB, policy, 1, &mut nodes);
        assert_eq!(place(Policy::FirstTouch), [0, 8, 0, 0]);
        assert_eq!(place(Policy::Preferred(2)), [0, 0, 8, 0]);
        assert_eq!(place(Policy::Interleave(vec![0, 2])), [4, 0, 4, 0]);
        // Node 1 is at distance 12 from node 2 and at 11 from node 3.
        assert_eq!(place(Policy::Bind(vec![2, 3])), [0, 0, 0, 8]);
    }

    #[test]
    #[should_panic = "a region's pages on each node, and in its groups"]
    fn a_region_counts_the_pages_of_its_groups() {
        let mut nodes = nodes(None);
        let mut pages = Pages::new(8 * MIB, Policy::FirstTouch, &nodes);
        pages.touch(1, &mut nodes, usize::MAX >> 1);
        pages.audit(Time(0));
        pages.on[1] -= 1;
        pages.audit(Time(0));
    }

    #[test]
    fn a_full_node_overflows_to_the_nearest_and_that_is_counted() {
        let mut nodes = nodes(Some([2, 2, 100, 3]));
        // From node 1: nodes 0 and 3 are at distance 11, node 2 at 12.
        assert_eq!(placed(8 * MIB, Policy::FirstTouch, 1, &mut nodes), [2, 2, 1, 3]);
        assert_eq!((nodes.hit, nodes.miss), (512, 1536));
        assert_eq!(placed(2 * MIB, Policy::Bind(vec![0, 1]), 1, &mut nodes), [0, 0, 2, 0]);
    }

    #[test]
    fn pages_move_while_there_is_room() {
        let mut nodes = nodes(Some([100, 3, 100, 100]));
        let mut pages = Pages::new(8 * MIB, Policy::FirstTouch, &nodes);
        pages.touch(0, &mut nodes, 1000);
        assert_eq!(pages.relocate(0..4, 1, &mut nodes), 256, "4 groups of 64 pages");
        assert_eq!(pages.relocate(0..4, 1, &mut nodes), 0, "they are there");
        assert_eq!(pages.relocate(0..usize::MAX, 1, &mut nodes), 512, "3 MiB in all");
        assert_eq!(pages.on, [1280, 768, 0, 0]);
    }

    #[test]
    fn who_touch_a_region_in_turn_place_shares_of_it() {
        let mut nodes = nodes(None);
        let mut pages = Pages::new(8 * MIB, Policy::FirstTouch, &nodes);
        while !pages.is_touched() {
            assert_eq!(pages.touch(1, &mut nodes, 4), 256);
            assert_eq!(pages.touch(2, &mut nodes, 4), 256);
        }
        assert_eq!(pages.on, [0, 1024, 1024, 0]);
    }

    fn policy() -> impl Strategy<Value = Policy> {
        let list = || prop::collection::vec(0u16..4, 1..4);
        prop_oneof![
            Just(Policy::FirstTouch),
            (0u16..4).prop_map(Policy::Preferred),
            list().prop_map(Policy::Bind),
            list().prop_map(Policy::Interleave),
        ]
    }

    proptest! {
        #[test]
        fn no_page_is_lost_or_counted_twice(
            sizes in prop::collection::vec((1u64..6 * MIB, policy()), 1..6),
            steps in prop::collection::vec((0usize..6, 0usize..4, 0usize..12, 0u8..4), 1..40),
        ) {
            let mut nodes = nodes(Some([3, 5, 2, 7]));
            let total = |nodes: &Nodes| {
                let node = |n: usize| nodes.free[n] + nodes.used[n];
                [0, 1, 2, 3].map(node)
            };
            let before = total(&nodes);
            let mut regions: Vec<Pages> =
                sizes.iter().map(|(bytes, policy)| Pages::new(*bytes, policy.clone(), &nodes)).collect();
            for (region, node, group, step) in steps {
                let count = regions.len();
                let region = &mut regions[region % count];
                match step {
                    0 | 1 => { region.touch(node, &mut nodes, 1 + group); }
                    2 => { region.relocate(group..group + 4, node, &mut nodes); }
                    _ => region.release(&mut nodes),
                }
                prop_assert_eq!(total(&nodes), before);
            }
            for node in 0..4u16 {
                let counted = |r: &Pages| -> u64 {
                    (0..r.groups.len()).filter(|&g| r.groups[g] == node).map(|g| r.in_group(g)).sum()
                };
                let on: u64 = regions.iter().map(|r| r.on[usize::from(node)]).sum();
                prop_assert_eq!(regions.iter().map(counted).sum::<u64>(), on);
                prop_assert_eq!(nodes.used[usize::from(node)], on);
            }
        }
    }
}
