//! Load weights of nice values, and virtual time (kernel model, section 1).

/// Weight of a SCHED_IDLE task (`WEIGHT_IDLEPRIO`).
pub(crate) const SCHED_IDLE_WEIGHT: u64 = 3;

/// Weight of a task of nice 0: one nanosecond of its virtual time is one of real time.
pub(crate) const NICE_0_WEIGHT: u64 = 1024;

/// Weights of nice -20 to 19 (`sched_prio_to_weight`): each step is about 1.25.
const WEIGHTS: [u64; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, //
    9548, 7620, 6100, 4904, 3906, 3121, 2501, 1991, 1586, 1277, //
    1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, //
    110, 87, 70, 56, 45, 36, 29, 23, 18, 15,
];

/// Weight of a nice value; values outside -20 to 19 count as the nearest end.
#[inline]
pub fn weight_of(nice: i8) -> u64 {
    WEIGHTS[(i16::from(nice.clamp(-20, 19)) + 20) as usize]
}

/// Virtual time that an entity of `weight` (at least 1) gains in `ns` of running.
#[inline]
pub(crate) fn virtual_delta(ns: u64, weight: u64) -> u64 {
    if weight == NICE_0_WEIGHT { ns } else { ns * NICE_0_WEIGHT / weight }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_those_of_the_kernel() {
        assert_eq!([-20, -10, 0, 5, 10, 19].map(weight_of), [88761, 9548, 1024, 335, 110, 15]);
        assert_eq!((weight_of(i8::MIN), weight_of(i8::MAX)), (88761, 15));
    }

    #[test]
    fn virtual_time_runs_slower_for_heavier_tasks() {
        assert_eq!(virtual_delta(3_000_000, 1024), 3_000_000);
        assert_eq!(virtual_delta(3_000_000, 2048), 1_500_000);
        assert_eq!(virtual_delta(1_000_000, weight_of(5)), 1_000_000 * 1024 / 335);
    }

    /// Section 1: the kernel's reciprocal multiplication differs by less than 1 ns per few ms.
    #[test]
    fn virtual_time_is_within_a_nanosecond_of_the_kernels() {
        for weight in WEIGHTS {
            let inverse = u64::from(u32::MAX) / weight;
            let kernel = (u128::from(1_000_000_u64) * u128::from(1024 * inverse)) >> 32;
            let exact = u128::from(virtual_delta(1_000_000, weight));
            assert!(exact.abs_diff(kernel) <= 1 + exact * u128::from(weight) / (1 << 32));
        }
    }
}
