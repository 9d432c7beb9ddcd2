//! When two means agree, and when a suite does. Written down before the first comparison;
//! `docs/validation.md` gives the reasons.

/// Two means agree in size if they differ by at most this part of the real one.
pub const RELATIVE: f64 = 0.25;

/// Shares of wakeups agree in size only if they also differ by at most this, percentage points:
/// 25% of a share of 95% would let 72% pass.
pub const SHARE_POINTS: f64 = 5.0;

/// Shares of any kind agree in size if they differ by at most this, percentage points, however
/// small they are.
pub const SHARE_FLOOR_POINTS: f64 = 1.0;

/// A count with fewer events a run than this on both sides is too rare to compare: it is listed and
/// counted neither as agreement nor as disagreement.
pub const RARE_EVENTS: f64 = 5.0;

/// Placement agrees if no share of run time differs by more than this, in percentage points. A share may differ by
/// more, up to the 95% interval of the difference, if that interval is no wider than this to either side.
pub const PLACEMENT_POINTS: f64 = 5.0;

/// Fewest repeats on each side.
pub const REPEATS: usize = 5;

/// Part of all compared counters that has to agree.
pub const BAR_ALL: f64 = 0.85;

/// Part of each scenario's compared counters that has to agree.
pub const BAR_SCENARIO: f64 = 0.70;
