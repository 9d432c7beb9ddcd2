//! Checks of memory that hold between events.

use super::Memory;
use super::pages::Pages;
use crate::time::Time;

impl Memory {
    /// Runs all checks; those of groups for one region, another one each time. Returns the number
    /// of groups of that region.
    pub(crate) fn audit(&self, now: Time) -> usize {
        self.audit_nodes(now);
        self.bandwidth.audit(now);
        let regions = self.regions.len().max(1);
        self.regions.get(now.ns() as usize % regions).map_or(0, |region| {
            region.pages.audit(now);
            region.pages.groups()
        })
    }

    /// The pages in use on each node are the regions' pages there.
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
    /// A region's pages on each node match its groups there.
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
