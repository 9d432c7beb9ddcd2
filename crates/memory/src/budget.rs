//! How many pages may be moved at a moment.

/// A bucket that fills at a rate and holds what flows in within a second. So after a pause no more
/// than a second's worth can be moved at once.
#[derive(Clone, Debug)]
pub struct Budget {
    pages_per_second: u64,
    /// Pages times 10^9, so that fractions are not lost.
    level: u128,
    filled_at: u64,
}

const SECOND: u128 = 1_000_000_000;

impl Budget {
    /// An empty bucket at time `now`, ns.
    pub fn new(pages_per_second: u64, now: u64) -> Self {
        Self { pages_per_second, level: 0, filled_at: now }
    }

    /// Pages that may be moved at time `now`, ns.
    pub fn available(&mut self, now: u64) -> u64 {
        let passed = now.saturating_sub(self.filled_at);
        self.filled_at = self.filled_at.max(now);
        let most = u128::from(self.pages_per_second) * SECOND;
        let inflow = u128::from(passed) * u128::from(self.pages_per_second);
        self.level = (self.level + inflow).min(most);
        (self.level / SECOND) as u64
    }

    /// Takes out `pages`, but no more than are available.
    pub fn take(&mut self, pages: u64) {
        self.level = self.level.saturating_sub(u128::from(pages) * SECOND);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn it_fills_at_its_rate_and_holds_a_second() {
        let mut budget = Budget::new(1000, 0);
        assert_eq!(budget.available(500_000_000), 500);
        budget.take(200);
        assert_eq!(budget.available(500_000_000), 300);
        assert_eq!(budget.available(60_000_000_000), 1000);
        assert_eq!(budget.available(1), 1000, "time does not run back");
    }

    proptest! {
        /// At all times: never more than the rate allows, and never more than a second's worth at
        /// once.
        #[test]
        fn the_rate_is_kept(
            rate in 1_u64..1_000_000,
            steps in prop::collection::vec((0_u64..2_000_000_000, 0_u64..2_000_000), 1..50),
        ) {
            let mut budget = Budget::new(rate, 0);
            let (mut now, mut taken) = (0, 0_u128);
            for (passed, wanted) in steps {
                now += passed;
                let pages = wanted.min(budget.available(now));
                budget.take(pages);
                taken += u128::from(pages);
                prop_assert!(taken * SECOND <= u128::from(rate) * u128::from(now));
                prop_assert!(pages <= rate);
            }
        }
    }
}
