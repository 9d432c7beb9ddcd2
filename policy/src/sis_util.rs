//! How many CPUs a wakeup may examine: `roost/sis_util.h`.

use crate::rules::functions;

functions! {
    sis_util
    safe {
        fn policy_nr_idle_scan(sum_util: u64, llc_weight: u32, imbalance_pct: u32) -> u32;
    }
    pointers {
    }
}

/// How many CPUs of an LLC a wakeup may examine to find an idle one; 0: it does not search. The LLC has `llc_weight`
/// CPUs. `sum_util` is the sum of their utilisations (1024: always busy). `imbalance_pct` comes from the LLC's domain.
#[inline]
pub fn nr_idle_scan(sum_util: u64, llc_weight: u32, imbalance_pct: u32) -> u32 {
    policy_nr_idle_scan(sum_util, llc_weight, imbalance_pct)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PCT: u32 = 117;
    const PERCENTS: [u64; 11] = [0, 5, 15, 25, 35, 45, 55, 65, 75, 85, 86];

    /// n if each of `weight` CPUs has this utilisation in percent.
    fn scan(weight: u32, percent: u64) -> u32 {
        nr_idle_scan(percent * u64::from(weight) * 1024 / 100, weight, PCT)
    }

    /// The number that follows `key` in the text of a case, such as `sum_util=` in
    /// `llc_weight=112 sum_util=5%`.
    fn number_after(text: &str, key: &str) -> u64 {
        let rest = text.split_once(key).unwrap().1;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().unwrap()
    }

    #[test]
    fn all_published_values_hold() {
        let table = include_str!("../../published/002-scan-table.csv");
        let mut rows = 0;
        for line in table.lines().skip(1) {
            let columns: Vec<&str> = line.split(',').collect();
            let case = columns[6];
            let weight = number_after(case, "llc_weight=") as u32;
            let published: u32 = columns[12].parse().unwrap();
            assert_eq!(scan(weight, number_after(case, "sum_util=")), published, "{}", columns[0]);
            rows += 1;
        }
        assert_eq!(rows, 22);
    }

    /// Section 14.3 of the kernel model.
    #[test]
    fn other_sizes_of_llcs() {
        let rows: [(u32, [u32; 11]); 4] = [
            (8, [8, 7, 7, 7, 6, 5, 4, 3, 1, 0, 0]),
            (32, [32, 31, 31, 29, 26, 23, 18, 13, 7, 0, 0]),
            (64, [64, 63, 62, 58, 53, 46, 37, 27, 14, 0, 0]),
            (128, [128, 127, 124, 117, 106, 92, 75, 54, 29, 1, 0]),
        ];
        for (weight, expected) in rows {
            assert_eq!(PERCENTS.map(|percent| scan(weight, percent)), expected, "W = {weight}");
        }
    }

    /// Section 14.3: the mean utilisations at which n changes for W = 16.
    #[test]
    fn thresholds_of_sixteen_cpus() {
        let thresholds =
            [28, 221, 311, 380, 439, 491, 537, 580, 620, 657, 693, 727, 759, 790, 820, 848];
        for (step, &x) in thresholds.iter().enumerate() {
            let n = 15 - step as u32;
            assert_eq!(nr_idle_scan(x * 16, 16, PCT), n, "x = {x}");
            assert_eq!(nr_idle_scan((x - 1) * 16, 16, PCT), n + 1, "below x = {x}");
        }
    }

    #[test]
    fn no_search_when_full() {
        assert_eq!(nr_idle_scan(872 * 112, 112, PCT), 0);
        assert!(nr_idle_scan(871 * 112, 112, PCT) > 0);
        assert_eq!(nr_idle_scan(7 * 1024, 8, PCT), 0, "eight CPUs, seven of them busy");
        assert_eq!(nr_idle_scan(0, 0, PCT), 0);
    }
}
