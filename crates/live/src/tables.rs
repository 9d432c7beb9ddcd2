//! Tunables and counters, from the tables that the BPF program uses too (`bpf/tunables.h`,
//! `bpf/counters.h`): `build.rs` turns them into Rust.

use scx_stats_derive::Stats;
use serde::{Deserialize, Serialize};

/// A number that can be set.
#[derive(Clone, Copy, Debug)]
pub struct Tunable {
    /// Its name in the BPF program.
    pub name: &'static str,
    /// Its option, without `--`.
    pub option: &'static str,
    /// Its value where nothing is said.
    pub default: u64,
    /// The smallest that makes sense.
    pub least: u64,
    /// The largest.
    pub most: u64,
    /// What it does, with its unit.
    pub meaning: &'static str,
}

include!(concat!(env!("OUT_DIR"), "/tables.rs"));

/// A counter that is a largest value instead of a sum.
const MAXIMUM: &str = "run_delay_max_ns";

impl Counters {
    /// Those of two CPUs together.
    pub fn plus(&self, other: &Self) -> Self {
        self.combine(other, |name, a, b| if name == MAXIMUM { a.max(b) } else { a + b })
    }

    /// What was counted since `earlier`; the longest wait is that since the start.
    pub fn since(&self, earlier: &Self) -> Self {
        self.combine(
            earlier,
            |name, now, then| if name == MAXIMUM { now } else { now - then.min(now) },
        )
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
        assert_eq!((sum.since(&a).direct, sum.since(&a).run_delay_max_ns), (4, 7));
        assert_eq!(a.since(&sum).direct, 0, "a scheduler that started again counts from 0");
    }

    #[test]
    fn every_tunable_and_counter_is_documented() {
        let page = include_str!("../../../docs/live.md");
        for tunable in TUNABLES {
            let option = format!("--{}", tunable.option);
            let row = page.lines().find(|line| line.starts_with(&format!("| `{option}`")));
            let row = row.unwrap_or_else(|| panic!("docs/live.md lacks {option}"));
            assert!(row.contains(&format!("| {} |", tunable.default)), "{row}");
            assert!(tunable.least <= tunable.default && tunable.default <= tunable.most);
        }
        for (name, _) in Counters::default().rows() {
            assert!(page.contains(&format!("`{name}`")), "docs/live.md lacks {name}");
        }
    }
}
