//! How much of cached data remains after other data was filled in.
//!
//! In a set of `w` ways that replaces a random line at every fill, a line survives `f` fills of the
//! set with probability `(1 - 1/w)^f`, about `exp(-f/w)` (random replacement: Gelenbe, A unified
//! approach to the evaluation of a class of replacement algorithms, IEEE Trans. Comp. 22, 1973). A
//! task that fills more evicts more: capacity is shared by demand. Real LLCs replace adaptively.
//! For loops over more than the cache holds, that is nearer to random replacement than to LRU,
//! which would keep nothing.
//!
//! Physical pages of 4 KiB fall into sets at random (page colours: Kessler and Hill, Page placement
//! algorithms for large real-indexed caches, ACM TOCS 10, 1992), so sets have different loads. A
//! loop over `W` bytes in a cache of `C` loads a set with a Poisson number of lines, `w W/C` on
//! average. Sets with more than `w` lines miss although the cache has room. A loop over `n` lines
//! in a set of `w` ways hits with the share `h = exp(-(1 - h) n/w)`, or always if `n` is at most
//! `w`. The mean over the sets is the share of hits of a loop in the cache:
//!
//! | W/C | 0.5  | 0.75 | 1    | 1.25 | 1.5  | 2    | 4    |
//! |-----|------|------|------|------|------|------|------|
//! | h   | 0.998| 0.96 | 0.82 | 0.61 | 0.43 | 0.21 | 0.02 |
//!
//! From one sweep of the loop to the next, `u = (1 - h) W/C` of the capacity is filled.
//! [`survival`] is `h` as a function of that `u`, so loops converge to these values. It is close to
//! `exp(-u)`.

/// A probability of 1.
pub(crate) const CERTAIN: u32 = 1 << 16;

/// Fills `u` and `-ln h` of loops over 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 3 and 4 times
/// the cache, in 65536ths, for 16 ways (Zen 3 and 4; assumed for all machines). The test computes
/// them.
const LOOPS: [(u64, u64); 13] = [
    (0, 0),
    (50, 100),
    (294, 492),
    (1107, 1600),
    (3022, 3891),
    (6531, 7691),
    (11859, 13082),
    (18892, 19917),
    (31810, 32212),
    (56092, 55400),
    (103124, 101278),
    (184157, 180838),
    (256511, 251675),
];

/// 2^(-i/16) in 65536ths.
const POWERS: [u32; 17] = [
    65536, 62757, 60097, 57549, 55109, 52773, 50535, 48393, 46341, 44376, 42495, 40693, 38968,
    37316, 35734, 34219, 32768,
];

/// log2(e) in 65536ths.
const LOG2_E: u64 = 94_548;

/// Probability that a line survives `fills` bytes of fills in a cache of `capacity` bytes.
pub(crate) fn survival(fills: u64, capacity: u64) -> u32 {
    /// More fills than this leave nothing that 65536ths could show.
    const ALL: u64 = 12 << 16;
    let filled = (u128::from(fills) << 16) / u128::from(capacity.max(1));
    match u64::try_from(filled) {
        Ok(filled) if filled < ALL => exponential(conflicts(filled)),
        _ => 0,
    }
}

/// `-ln h` for fills `u`, interpolated in [`LOOPS`]. Beyond the last entry, extrapolated from the
/// last two.
fn conflicts(filled: u64) -> u64 {
    let next = LOOPS.partition_point(|&(u, _)| u <= filled).clamp(1, LOOPS.len() - 1);
    let ((u0, v0), (u1, v1)) = (LOOPS[next - 1], LOOPS[next]);
    v0 + (filled - u0) * (v1 - v0) / (u1 - u0)
}

/// `exp(-x)` for `x` in 65536ths, below 16.
fn exponential(x: u64) -> u32 {
    let halvings = (x * LOG2_E) >> 16;
    let (whole, rest) = (halvings >> 16, (halvings & 0xffff) as u32);
    let (step, within) = ((rest >> 12) as usize, rest & 0xfff);
    let (high, low) = (POWERS[step], POWERS[step + 1]);
    (high - (((high - low) * within) >> 12)) >> whole
}

/// The product of two probabilities.
pub(crate) fn both(a: u32, b: u32) -> u32 {
    ((u64::from(a) * u64::from(b)) >> 16) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Share of hits of a loop over `n` lines in a set of 16 ways.
    fn set(n: u32) -> f64 {
        let rounds = if n <= 16 { 0 } else { 5000 };
        let first = if n <= 16 { 1.0 } else { 0.0 };
        (0..rounds).fold(first, |h, _| f64::exp(-(1.0 - h) * f64::from(n) / 16.0))
    }

    /// Share of hits of a loop over `x` times the cache: mean over lines in sets with a Poisson
    /// number of lines.
    fn cache(x: f64) -> f64 {
        let mean = 16.0 * x;
        let (mut probability, mut found) = (f64::exp(-mean), 0.0);
        for n in 1..=400u32 {
            probability *= mean / f64::from(n);
            found += probability * f64::from(n) * set(n);
        }
        found / mean
    }

    #[test]
    fn loops_come_to_rest_where_sets_of_16_ways_do() {
        for x in [0.25, 0.5, 0.65, 0.75, 0.85, 1.0, 1.2, 1.4, 1.7, 2.0, 2.5, 3.5, 5.0, 7.0] {
            let capacity = 32u64 << 20;
            let bytes = (x * capacity as f64) as u64;
            let mut h = 0u32;
            for _ in 0..500 {
                h = survival((bytes * u64::from(CERTAIN - h)) >> 16, capacity);
            }
            let (ours, exact) = (f64::from(h) / f64::from(CERTAIN), cache(x));
            assert!((ours - exact).abs() < 0.01, "{x}: {ours} against {exact}");
        }
    }

    #[test]
    fn the_table_is_computed() {
        let loops = [0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0];
        for (x, &(u, v)) in loops.into_iter().zip(&LOOPS[1..]) {
            let h = cache(x);
            assert!((u as f64 - 65536.0 * x * (1.0 - h)).abs() < 1.0, "{x}");
            assert!((v as f64 + 65536.0 * h.ln()).abs() < 1.0, "{x}");
        }
    }

    #[test]
    fn survival_is_close_to_the_exponential_and_falls() {
        let mut last = CERTAIN;
        for percent in 0..1500u64 {
            let exact = (-(percent as f64) / 100.0).exp();
            let found = survival(percent << 20, 100 << 20);
            let ours = f64::from(found) / f64::from(CERTAIN);
            assert!((ours - exact).abs() < 0.02, "{percent}%: {ours} against {exact}");
            assert!(found <= last);
            last = found;
        }
        assert_eq!(survival(0, 1), CERTAIN);
        assert_eq!(survival(u64::MAX, 1), 0);
        assert_eq!(survival(100, 0), 0);
    }

    #[test]
    fn powers_are_those_of_two() {
        for (step, &power) in POWERS.iter().enumerate() {
            assert_eq!(f64::from(power), (65536.0 * (-(step as f64) / 16.0).exp2()).round());
        }
    }
}
