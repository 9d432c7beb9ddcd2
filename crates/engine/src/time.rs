//! Simulated time.

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
