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
    histogram: Option<Histogram<u64>>,
    sum_ns: u64,
    max_ns: u64,
}

impl Record {
    pub fn new() -> Self {
        // The bounds are valid constants.
        let histogram = Histogram::new_with_bounds(1, MOST_NS, DIGITS).ok();
        Self { histogram, sum_ns: 0, max_ns: 0 }
    }

    #[inline]
    pub fn add(&mut self, ns: u64) {
        if let Some(histogram) = &mut self.histogram {
            histogram.saturating_record(ns);
        }
        self.sum_ns += ns;
        self.max_ns = self.max_ns.max(ns);
    }

    pub fn finish(&self) -> Latency {
        let Self { histogram, sum_ns, max_ns } = self;
        let Some(histogram) = histogram.as_ref().filter(|histogram| !histogram.is_empty()) else {
            return Latency::default();
        };
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
}
