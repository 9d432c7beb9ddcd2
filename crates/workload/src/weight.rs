//! The weights of nice values, as in every kernel class that shares CPUs by weight.

/// Weight of a SCHED_IDLE task (`WEIGHT_IDLEPRIO`).
pub const SCHED_IDLE_WEIGHT: u64 = 3;

/// Weights of nice -20 to 19 (`sched_prio_to_weight`). Each is about 1.25 times the next one.
const WEIGHTS: [u64; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, //
    9548, 7620, 6100, 4904, 3906, 3121, 2501, 1991, 1586, 1277, //
    1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, //
    110, 87, 70, 56, 45, 36, 29, 23, 18, 15,
];

/// Weight of a nice value. Values outside -20 to 19 count as the nearest end.
#[inline]
pub fn weight_of(nice: i8) -> u64 {
    WEIGHTS[(i16::from(nice.clamp(-20, 19)) + 20) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_those_of_the_kernel() {
        assert_eq!([-20, -10, 0, 5, 10, 19].map(weight_of), [88761, 9548, 1024, 335, 110, 15]);
        assert_eq!((weight_of(i8::MIN), weight_of(i8::MAX)), (88761, 15));
    }
}
