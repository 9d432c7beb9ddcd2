//! How many pages may be moved at a moment.

/// A bucket of the CPU time that moving pages may take. It fills with a share of the time that passes, and holds what
/// flows in within a second. How long a page takes is measured: where memory or the link is busy it takes longer, so
/// fewer pages are moved.
#[derive(Clone, Debug)]
pub struct Budget {
    share_percent: u64,
    /// Time that moving may take now, ns. Below 0 if pages took longer than expected.
    level: i64,
    filled_at: u64,
    /// CPU time of all moves, ns, as far as known.
    took: u64,
    /// Pages that were moved since.
    pages: u64,
    /// CPU time of a page in the last move, ns.
    page_ns: Option<u64>,
}

const SECOND: u64 = 1_000_000_000;

/// Pages that are moved at once at least: those of a huge page (2 MiB), which moves as a whole.
const LEAST: u64 = 512;

impl Budget {
    /// An empty bucket at time `now`, ns.
    pub fn new(share_percent: u64, now: u64) -> Self {
        Self { share_percent, level: 0, filled_at: now, took: 0, pages: 0, page_ns: None }
    }

    /// Learns the CPU time of all moves until now, ns.
    pub fn learn(&mut self, took: u64) {
        let last = took.saturating_sub(self.took);
        self.took = took;
        self.level = self.level.saturating_sub_unsigned(last);
        if let Some(page_ns) = last.checked_div(std::mem::take(&mut self.pages)) {
            self.page_ns = Some(page_ns.max(1));
        }
    }

    /// Pages that may be moved at time `now`, ns.
    pub fn available(&mut self, now: u64) -> u64 {
        let passed = now.saturating_sub(self.filled_at);
        self.filled_at = self.filled_at.max(now);
        let most = (SECOND * self.share_percent / 100) as i64;
        let inflow = passed.saturating_mul(self.share_percent) / 100;
        let level = self.level.saturating_add_unsigned(inflow);
        self.level = level.min(most);
        match u64::try_from(self.level) {
            Ok(0) | Err(_) => 0,
            Ok(time) => self.page_ns.map_or(LEAST, |page_ns| LEAST.max(time / page_ns)),
        }
    }

    /// Notes that `pages` are moved, which takes a time that is not known yet.
    pub fn take(&mut self, pages: u64) {
        self.pages += pages;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn it_fills_with_its_share_and_holds_a_second() {
        let mut budget = Budget::new(25, 0);
        assert_eq!(budget.available(0), 0);
        assert_eq!(budget.available(SECOND / 10), LEAST);
        budget.take(LEAST);
        // 2 us a page: 1.024 ms of the 25 that are there.
        budget.learn(2_000 * LEAST);
        assert_eq!(budget.available(SECOND / 10), 12_500 - LEAST);
        assert_eq!(budget.available(60 * SECOND), 125_000);
    }

    #[test]
    fn fewer_pages_move_where_a_page_takes_longer() {
        let available = |page_ns| {
            let mut budget = Budget::new(50, 0);
            budget.take(LEAST);
            budget.learn(page_ns * LEAST);
            budget.available(60 * SECOND)
        };
        assert_eq!([1_000, 5_000].map(available), [500_000, 100_000]);
    }

    proptest! {
        /// However long pages take, moving takes no more than its share of the time, and one move more.
        #[test]
        fn the_share_is_kept(
            share in 1_u64..=100,
            steps in prop::collection::vec((0..3 * SECOND, 1..100_000_u64), 1..50),
        ) {
            let mut budget = Budget::new(share, 0);
            let (mut now, mut took) = (0, 0);
            for (pause, page_ns) in steps {
                now += pause;
                budget.learn(took);
                prop_assert!(budget.level <= (now * share / 100) as i64);
                let pages = budget.available(now);
                if pages > 0 {
                    prop_assert!(took <= now * share / 100, "{took} of {now}");
                }
                budget.take(pages);
                took += pages * page_ns;
            }
        }
    }
}
