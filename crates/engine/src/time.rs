//! Simulated time.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// A moment of simulated time: nanoseconds since the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// A moment later than any run reaches.
    pub const NEVER: Self = Self(u64::MAX);

    /// Nanoseconds since the start of the run.
    #[inline]
    pub fn ns(self) -> u64 {
        self.0
    }

    /// Nanoseconds from `earlier` to this moment; 0 if `earlier` is later.
    #[inline]
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// For people: s or ms with three decimals, or ns below a microsecond.
impl fmt::Display for Time {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, thousandths, unit) = match self.0 {
            ns @ 0..1_000 => return write!(out, "{ns} ns"),
            ns @ 1_000..1_000_000_000 => (ns / 1_000_000, ns / 1_000 % 1000, "ms"),
            ns => (ns / 1_000_000_000, ns / 1_000_000 % 1000, "s"),
        };
        write!(out, "{whole}.{thousandths:03} {unit}")
    }
}

impl Add<u64> for Time {
    type Output = Self;
    #[inline]
    fn add(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }
}

impl AddAssign<u64> for Time {
    #[inline]
    fn add_assign(&mut self, ns: u64) {
        *self = *self + ns;
    }
}

impl Sub for Time {
    type Output = u64;
    /// Nanoseconds between two moments. The left one must not be earlier.
    #[inline]
    fn sub(self, earlier: Self) -> u64 {
        debug_assert!(self >= earlier, "time moved back: {self:?} - {earlier:?}");
        self.0 - earlier.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_seconds_or_milliseconds() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "0.001 ms"),
            (12_345_678, "12.345 ms"),
            (999_999_999, "999.999 ms"),
            (1_000_000_000, "1.000 s"),
            (30_012_345_678, "30.012 s"),
        ] {
            assert_eq!(Time(ns).to_string(), text);
        }
    }
}
