//! A distribution of durations.

use hdrhistogram::Histogram;

/// The percentiles that are kept, in thousandths of a percent.
pub const PERCENTILES_MILLI: [u32; 7] = [50_000, 75_000, 90_000, 95_000, 99_000, 99_500, 99_900];

/// Longer durations are counted as this one: one hour.
const MOST_NS: u64 = 3_600_000_000_000;
/// Two significant digits: percentiles are accurate to 1%.
const DIGITS: u8 = 2;

/// A distribution of durations, in ns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Number of durations.
    pub count: u64,
    /// Their sum.
    pub sum_ns: u64,
    /// The longest duration.
    pub max_ns: u64,
    /// The durations at [`PERCENTILES_MILLI`], accurate to 1%. Empty if there were none.
    pub percentiles_ns: Vec<u64>,
}

/// Collects the durations of a [`Latency`].
pub(super) struct Record {
    /// Numbers of durations, in the buckets of the histogram. Counting them here takes half of the instructions that
    /// the histogram takes.
    counts: Vec<u64>,
    sum_ns: u64,
    max_ns: u64,
}

/// The bucket of a duration, by its highest 8 bits. [`DIGITS`] need no more.
#[inline]
fn bucket(ns: u64) -> usize {
    let lower_bits = (ns | 0xff).ilog2() - 7;
    ((lower_bits as usize) << 7) + (ns >> lower_bits) as usize
}

/// The shortest duration of a bucket.
fn shortest(bucket: usize) -> u64 {
    let lower_bits = (bucket >> 7).saturating_sub(1);
    ((bucket - (lower_bits << 7)) as u64) << lower_bits
}

impl Record {
    pub fn new() -> Self {
        Self { counts: vec![0; bucket(MOST_NS) + 1], sum_ns: 0, max_ns: 0 }
    }

    #[inline]
    pub fn add(&mut self, ns: u64) {
        self.counts[bucket(ns.min(MOST_NS))] += 1;
        self.sum_ns += ns;
        self.max_ns = self.max_ns.max(ns);
    }

    pub fn finish(&self) -> Latency {
        let Self { counts, sum_ns, max_ns } = self;
        // The bounds are valid constants.
        let histogram = Histogram::<u64>::new_with_bounds(1, MOST_NS, DIGITS).ok();
        let Some(mut histogram) = histogram.filter(|_| counts.iter().any(|&count| count > 0))
        else {
            return Latency::default();
        };
        for (bucket, &count) in counts.iter().enumerate().filter(|&(_, &count)| count > 0) {
            histogram.saturating_record_n(shortest(bucket), count);
        }
        let at =
            |milli: u32| histogram.value_at_quantile(f64::from(milli) / 100_000.0).min(*max_ns);
        Latency {
            count: histogram.len(),
            sum_ns: *sum_ns,
            max_ns: *max_ns,
            percentiles_ns: PERCENTILES_MILLI.map(at).to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_one_to_a_thousand_microseconds() {
        let mut record = Record::new();
        (1..=1000).for_each(|us| record.add(us * 1000));
        let latency = record.finish();
        assert_eq!((latency.count, latency.sum_ns, latency.max_ns), (1000, 500_500_000, 1_000_000));
        for (at, milli) in latency.percentiles_ns.iter().zip(PERCENTILES_MILLI) {
            let exact = u64::from(milli) * 10;
            assert!(at.abs_diff(exact) <= exact / 100, "{at} for {exact}");
        }
        assert_eq!(Record::new().finish(), Latency::default());
    }

    #[test]
    fn buckets_are_those_of_the_histogram() {
        let histogram = Histogram::<u64>::new_with_bounds(1, MOST_NS, DIGITS).unwrap();
        let near = |power: u32| (1_u64 << power).saturating_sub(2)..(1 << power) + 2;
        for ns in (0..2000).chain((11..41).flat_map(near)).chain([MOST_NS - 1, MOST_NS]) {
            assert_eq!(shortest(bucket(ns)), histogram.lowest_equivalent(ns), "{ns}");
        }
    }
}
