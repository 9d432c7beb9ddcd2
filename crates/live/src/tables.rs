//! Counters and numbers of the BPF program. `build.rs` generates them from the tables that the BPF program uses too
//! (`bpf/counters.h`, `bpf/tunables.h`).

use scx_stats_derive::Stats;
use serde::{Deserialize, Serialize};

include!(concat!(env!("OUT_DIR"), "/tables.rs"));

/// Whether a counter is a level (a current or largest value), not a count of events.
pub fn is_level(name: &str) -> bool {
    matches!(name, "run_delay_max_ns" | "memory_processes")
}

impl Counters {
    /// The sum of two CPUs' counters.
    pub fn plus(&self, other: &Self) -> Self {
        self.combine(other, |name, a, b| if is_level(name) { a.max(b) } else { a + b })
    }
}

impl Report {
    /// The sum of two consecutive reports.
    pub fn plus(&self, later: &Self) -> Self {
        self.combine(later, |name, first, then| if is_level(name) { then } else { first + then })
    }

    /// The counts since `earlier`. Levels keep their current value.
    pub fn since(&self, earlier: &Self) -> Self {
        self.combine(earlier, |name, now, then| match is_level(name) {
            true => now,
            // A scheduler that was restarted counts from 0 again.
            false => now.saturating_sub(then),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_added_and_the_longest_wait_is_kept() {
        let a = Counters { direct: 3, run_delay_max_ns: 7, ..Counters::default() };
        let b = Counters { direct: 4, run_delay_max_ns: 5, ..Counters::default() };
        let sum = a.plus(&b);
        assert_eq!((sum.direct, sum.run_delay_max_ns), (7, 7));
        let (sum, a) = (Report::from(&sum), Report::from(&a));
        assert_eq!((sum.since(&a).direct, sum.since(&a).run_delay_max_ns), (4, 7));
        assert_eq!(a.since(&sum).direct, 0, "a scheduler that started again counts from 0");
        assert_eq!(a.plus(&sum).direct, 10);
    }

    #[test]
    fn every_counter_is_documented() {
        let page = include_str!("../../../docs/live.md");
        for (name, _) in Report::default().rows() {
            assert!(page.contains(&format!("`{name}`")), "docs/live.md lacks {name}");
            assert!(!Report::meaning(name).is_empty());
        }
    }
}
