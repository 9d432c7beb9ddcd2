//! The utilisation of a CPU as a decaying average: `roost/utilisation.h`.

use crate::rules::functions;

functions! {
    utilisation
    safe {
        fn policy_util_advance(kept: u64, elapsed_ns: u64, busy: bool) -> u64;
    }
    pointers {
    }
}

/// Scale of the stored utilisation: an always busy CPU has 1024 times 1024.
pub const FULL: u64 = 1024 * 1024;

/// The new stored utilisation of a CPU. It was `kept` before, and the CPU was busy, or idle, for `elapsed_ns` since.
#[inline]
pub fn advance(kept: u64, elapsed_ns: u64, busy: bool) -> u64 {
    policy_util_advance(kept, elapsed_ns, busy)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: u64 = 1 << 20;

    #[test]
    fn half_is_forgotten_in_32_periods() {
        assert_eq!(advance(0, 32 * PERIOD, true), FULL / 2);
        assert_eq!(advance(0, 64 * PERIOD, true), FULL * 3 / 4);
        assert_eq!(advance(FULL, 32 * PERIOD, false), FULL / 2);
        assert_eq!(advance(FULL, 64 * PERIOD, false), FULL / 4);
        for elapsed in [1 << 40, u64::MAX] {
            assert_eq!(advance(0, elapsed, true), FULL);
            assert_eq!(advance(FULL, elapsed, false), 0);
        }
    }

    /// Each step differs from the exponential by less than a ten-thousandth.
    #[test]
    fn decay_follows_the_exponential() {
        for step in 0..1000 {
            let elapsed = step * PERIOD / 7;
            let exact = FULL as f64 * 0.5_f64.powf(elapsed as f64 / (32 * PERIOD) as f64);
            let error = (advance(FULL, elapsed, false) as f64 - exact).abs();
            assert!(error < FULL as f64 / 10_000.0, "{elapsed} ns: {error}");
        }
    }

    #[test]
    fn short_steps_add_up() {
        // 10 us busy, 30 us idle: a quarter.
        let mut kept = 0;
        for _ in 0..10_000 {
            kept = advance(kept, 10_000, true);
            kept = advance(kept, 30_000, false);
        }
        let percent = kept * 100 / FULL;
        assert!((23..=26).contains(&percent), "{percent} %");
    }
}
