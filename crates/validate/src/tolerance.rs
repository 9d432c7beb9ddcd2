//! The tolerances: when two means agree, and when a suite passes. They were written down before the first comparison.
//! `docs/validation.md` gives the reasons.

/// Two means agree in size if they differ by at most this fraction of the real mean.
pub const RELATIVE: f64 = 0.25;

/// Shares of wakeups agree in size only if they also differ by at most this many percentage points. Without this limit,
/// 72% would pass for a share of 95%.
pub const SHARE_POINTS: f64 = 5.0;

/// Shares of any kind agree in size if they differ by at most this many percentage points, however small they are.
pub const SHARE_FLOOR_POINTS: f64 = 1.0;

/// A count with fewer events per run than this on both sides is too rare to compare. It is listed, but counts neither
/// as agreement nor as disagreement.
pub const RARE_EVENTS: f64 = 5.0;

/// Placement agrees if no share of run time differs by more than this many percentage points. A share may differ by
/// more if the difference is within its 95% interval, and the interval is no wider than this on either side.
pub const PLACEMENT_POINTS: f64 = 5.0;

/// Smallest number of repeats on each side.
pub const REPEATS: usize = 5;

/// The bars of a suite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bars {
    /// Fraction of all compared counters that must agree.
    pub all: f64,
    /// Fraction of each scenario's compared counters that must agree.
    pub scenario: f64,
}

/// The bars for the model of the fair class.
pub const FAIR_BARS: Bars = Bars { all: 0.85, scenario: 0.70 };

/// The bars for a sched_ext program, which both sides run. They were set on 2026-11-25, before the first comparison.
pub const PROGRAM_BARS: Bars = Bars { all: 0.80, scenario: 0.70 };
