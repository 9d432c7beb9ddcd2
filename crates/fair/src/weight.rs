//! Load weights of nice values, and virtual time (kernel model, section 1).

pub(crate) use roost_workload::SCHED_IDLE_WEIGHT;
pub use roost_workload::weight_of;

/// Weight of a task of nice 0: one nanosecond of its virtual time is one of real time.
pub(crate) const NICE_0_WEIGHT: u64 = 1024;

/// Virtual time that an entity of `weight` (at least 1) gains by running for `ns`.
#[inline]
pub(crate) fn virtual_delta(ns: u64, weight: u64) -> u64 {
    if weight == NICE_0_WEIGHT { ns } else { ns * NICE_0_WEIGHT / weight }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_time_runs_slower_for_heavier_tasks() {
        assert_eq!(virtual_delta(3_000_000, 1024), 3_000_000);
        assert_eq!(virtual_delta(3_000_000, 2048), 1_500_000);
        assert_eq!(virtual_delta(1_000_000, weight_of(5)), 1_000_000 * 1024 / 335);
    }

    /// Section 1: the kernel's reciprocal multiplication differs by less than 1 ns per few ms.
    #[test]
    fn virtual_time_is_within_a_nanosecond_of_the_kernels() {
        for weight in (-20..=19).map(weight_of) {
            let inverse = u64::from(u32::MAX) / weight;
            let kernel = (u128::from(1_000_000_u64) * u128::from(1024 * inverse)) >> 32;
            let exact = u128::from(virtual_delta(1_000_000, weight));
            assert!(exact.abs_diff(kernel) <= 1 + exact * u128::from(weight) / (1 << 32));
        }
    }
}
