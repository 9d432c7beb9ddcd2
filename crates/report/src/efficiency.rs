//! Efficiency of the search for an idle CPU at wakeup.
//!
//! Counters and formulas are from the kernel patch "Track efficiency of select_idle_sibling" (2020-03-20, posted again
//! 2021-07-26).

/// Counters of a scheduler's searches for idle CPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchCounts {
    /// Searches (`sis_search`).
    pub search: f64,
    /// Searches that went beyond the fast checks of the target, previous and recently used CPU
    /// (`sis_domain_search`).
    pub domain: f64,
    /// CPUs examined (`sis_scanned`). The fast checks of one search count as one CPU.
    pub scanned: f64,
    /// Searches that found no idle CPU (`sis_failed`).
    pub failed: f64,
}

impl SearchCounts {
    /// Searches that ended with the fast checks.
    fn fast(&self) -> f64 {
        self.search - self.domain
    }

    /// Search efficiency: successes per 100 CPUs examined (`se_eff%`). `None` if the divisor is 0; the same holds
    /// below.
    pub fn search_efficiency_pct(&self) -> Option<f64> {
        percent(self.search - self.failed, self.scanned)
    }

    /// Domain search efficiency: successes per 100 CPUs examined beyond the fast checks
    /// (`dom_eff%`).
    pub fn domain_efficiency_pct(&self) -> Option<f64> {
        percent(self.domain - self.failed, self.scanned - self.fast())
    }

    /// Share of the searches that ended with the fast checks (`fast_rate%`).
    pub fn fast_rate_pct(&self) -> Option<f64> {
        percent(self.fast(), self.search)
    }

    /// Share of the searches that found an idle CPU (`success_rate%`).
    pub fn success_rate_pct(&self) -> Option<f64> {
        percent(self.search - self.failed, self.search)
    }
}

fn percent(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| 100.0 * part / whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_efficiency(counts: [f64; 4], expected: [f64; 4], tolerance: f64) {
        let [search, domain, scanned, failed] = counts;
        let counts = SearchCounts { search, domain, scanned, failed };
        let figures = [
            counts.search_efficiency_pct(),
            counts.domain_efficiency_pct(),
            counts.fast_rate_pct(),
            counts.success_rate_pct(),
        ];
        for (figure, expected) in figures.into_iter().zip(expected) {
            assert!((figure.unwrap() - expected).abs() <= tolerance, "{figures:?}");
        }
    }

    #[test]
    fn published_counters_before_sis_util() {
        // published/002-sis-debug.csv, base. The percentages follow from the formulas.
        assert_efficiency(
            [5_842_896.0, 4_544_492.0, 128_300_000.0, 38_539.0],
            [4.524, 3.548, 22.222, 99.340],
            5e-4,
        );
    }

    #[test]
    fn published_counters_with_sis_util() {
        // published/002-sis-debug.csv, patched.
        assert_efficiency(
            [15_347_978.0, 15_338_634.0, 15_551_326.0, 15_333_634.0],
            [0.0922, 0.0322, 0.0609, 0.0935],
            5e-5,
        );
    }

    #[test]
    fn nothing_searched_gives_no_figure() {
        let none = SearchCounts { search: 0.0, domain: 0.0, scanned: 0.0, failed: 0.0 };
        assert_eq!(none.search_efficiency_pct(), None);
        assert_eq!(none.success_rate_pct(), None);
        // All searches ended with the fast checks, so the domain was never searched.
        let fast = SearchCounts { search: 5.0, domain: 0.0, scanned: 5.0, failed: 0.0 };
        assert_eq!(fast.domain_efficiency_pct(), None);
        assert_eq!(fast.fast_rate_pct(), Some(100.0));
    }
}
