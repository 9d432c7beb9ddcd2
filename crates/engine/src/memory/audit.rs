//! Claims about memory that hold between events.

use super::Memory;
use super::pages::Pages;
use crate::time::Time;

impl Memory {
    /// Checks all claims; pages of one region by group, another one each time. Returns how many groups that
    /// has.
    pub(crate) fn audit(&self, now: Time) -> usize {
        self.audit_nodes(now);
        self.bandwidth.audit(now);
        let regions = self.regions.len().max(1);
        self.regions.get(now.ns() as usize % regions).map_or(0, |region| {
            region.pages.audit(now);
            region.pages.groups()
        })
    }

    /// What is used of each node is what the regions have there.
    fn audit_nodes(&self, now: Time) {
        let mut used = vec![0; self.machine.nodes.len()];
        for region in &self.regions {
            used.iter_mut().zip(region.pages.on()).for_each(|(sum, on)| *sum += on);
        }
        assert_eq!(
            self.nodes.used(),
            used,
            "pages used of each node, and of regions there, at {now:?}"
        );
    }
}

impl Pages {
    /// A region's pages on each node are those of its groups there.
    pub(super) fn audit(&self, now: Time) {
        let mut on = vec![0; self.on().len()];
        for group in 0..self.groups() {
            if let Some(node) = self.node(group) {
                on[node] += self.in_group(group);
            }
        }
        assert_eq!(self.on(), on, "a region's pages on each node, and in its groups, at {now:?}");
    }
}
