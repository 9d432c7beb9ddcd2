//! Which addresses of a process are sampled, and what follows from them.
//!
//! Addresses are drawn from its mappings in proportion to their size. Most mapped memory may never
//! have been touched. So addresses that had a page are kept and sampled again, and a few draws are
//! enough.

use std::ops::Range;

use crate::PAGE;

/// Number of addresses with a page that are kept.
const KEPT: usize = 128;

/// Number of new addresses in each sample.
const DRAWN: usize = 64;

/// What is known about the pages of a process.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Addresses that had a page, and the page's node.
    kept: Vec<(u64, u32)>,
    random: u64,
}

impl Sample {
    /// No knowledge yet. `seed` decides which addresses are drawn.
    pub fn new(seed: u64) -> Self {
        Self { kept: Vec::new(), random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 }
    }

    /// Addresses to sample: those kept, then new ones.
    pub fn addresses(&mut self, ranges: &[Range<u64>]) -> Vec<u64> {
        let mut addresses: Vec<u64> = self.kept.iter().map(|(address, _)| *address).collect();
        let pages: u64 = ranges.iter().map(pages).sum();
        for _ in 0..DRAWN.min(pages as usize) {
            let mut place = self.draw() % pages;
            for range in ranges {
                if place < pages_of(range) {
                    addresses.push(range.start + place * PAGE);
                    break;
                }
                place -= pages_of(range);
            }
        }
        addresses
    }

    /// Learns where the pages of `addresses` are; `None` means that there is no page.
    pub fn learn(&mut self, addresses: &[u64], nodes: &[Option<u32>]) {
        let old = self.kept.len();
        let mut found = addresses.iter().zip(nodes);
        self.kept = found
            .by_ref()
            .take(old)
            .filter_map(|(address, node)| Some((*address, (*node)?)))
            .collect();
        for (address, node) in found {
            let Some(node) = node else { continue };
            if self.kept.len() < KEPT {
                self.kept.push((*address, *node));
            } else {
                let place = self.draw() as usize % KEPT;
                self.kept[place] = (*address, *node);
            }
        }
    }

    /// Pages on each node if the process has `resident` pages in total.
    pub fn pages(&self, resident: u64) -> Vec<(u32, u64)> {
        let mut nodes: Vec<u32> = self.kept.iter().map(|(_, node)| *node).collect();
        nodes.sort_unstable();
        let all = self.kept.len() as u64;
        let share = |chunk: &[u32]| {
            let pages = u128::from(resident) * chunk.len() as u128 / u128::from(all);
            chunk.first().map(|node| (*node, pages as u64))
        };
        nodes.chunk_by(|a, b| a == b).filter_map(share).collect()
    }

    /// Pages of 1000 that are on one of `nodes`; `None` while too few pages are known.
    pub fn permille_on(&self, nodes: impl Fn(u32) -> bool) -> Option<u64> {
        /// Fewer pages say nothing.
        const ENOUGH: usize = 16;
        let on = self.kept.iter().filter(|(_, node)| nodes(*node)).count();
        (self.kept.len() >= ENOUGH).then(|| on as u64 * 1000 / self.kept.len() as u64)
    }

    /// xorshift64.
    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

fn pages_of(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start) / PAGE
}

fn pages(range: &Range<u64>) -> u64 {
    pages_of(range)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 3 of 4 pages are on node 1. The first half of the mapping was never touched.
    fn node_of(address: u64) -> Option<u32> {
        let page = address / PAGE;
        (page >= 5000).then(|| if page.is_multiple_of(4) { 0 } else { 1 })
    }

    fn look(sample: &mut Sample, ranges: &[Range<u64>]) {
        let addresses = sample.addresses(ranges);
        let nodes: Vec<_> = addresses.iter().map(|address| node_of(*address)).collect();
        sample.learn(&addresses, &nodes);
    }

    #[test]
    fn shares_are_near_the_truth_although_much_is_untouched() {
        let mut sample = Sample::new(7);
        let ranges = [0..4000 * PAGE, 4000 * PAGE..10_000 * PAGE];
        assert!(sample.permille_on(|node| node == 1).is_none(), "nothing is known yet");
        for _ in 0..8 {
            look(&mut sample, &ranges);
        }
        let on_1 = sample.permille_on(|node| node == 1).unwrap();
        assert!((650..850).contains(&on_1), "{on_1}");
        let pages = sample.pages(5000);
        assert!(pages.iter().map(|(_, pages)| pages).sum::<u64>() <= 5000);
        assert_eq!(pages.len(), 2);
    }

    #[test]
    fn what_has_gone_is_forgotten() {
        let mut sample = Sample::new(1);
        sample.learn(&[PAGE, 2 * PAGE], &[Some(0), Some(1)]);
        sample.learn(&[PAGE, 2 * PAGE], &[None, Some(0)]);
        assert_eq!(sample.pages(10), [(0, 10)]);
    }

    proptest! {
        #[test]
        fn addresses_lie_in_the_mappings(
            starts in prop::collection::vec((0_u64..1 << 30, 0_u64..1000), 0..10), seed: u64,
        ) {
            let ranges: Vec<Range<u64>> =
                starts.iter().map(|(at, len)| at * PAGE..(at + len) * PAGE).collect();
            let mut sample = Sample::new(seed);
            for address in sample.addresses(&ranges) {
                prop_assert!(ranges.iter().any(|range| range.contains(&address)));
                prop_assert_eq!(address % PAGE, 0);
            }
        }
    }
}
