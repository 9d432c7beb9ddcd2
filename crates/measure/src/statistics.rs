//! Statistics that the kernel prints as names and numbers (`/proc/vmstat`).

use crate::error::{Line, MEASURE_AGAIN, MeasureError, shown};

/// Counters of `/proc/vmstat` about automatic NUMA balancing.
const NUMA_BALANCING: [&str; 4] =
    ["numa_pte_updates", "numa_hint_faults", "numa_hint_faults_local", "numa_pages_migrated"];

/// Automatic NUMA balancing in `/proc/vmstat`, at one time or between two times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vmstat {
    /// Values in the order of [`NUMA_BALANCING`]. `None` if the kernel does not have the counter.
    values: [Option<u64>; NUMA_BALANCING.len()],
}

impl Vmstat {
    /// Parses `/proc/vmstat`. `file` is named in errors.
    pub fn parse(file: &str, text: &str) -> Result<Self, MeasureError> {
        let mut vmstat = Self::default();
        for line in Line::all(file, text) {
            let Some((name, value)) = line.text.split_once(' ') else {
                let problem = format!("\"{}\" is not a name and a number", shown(line.text));
                return Err(line.error(problem, MEASURE_AGAIN));
            };
            if let Some(index) = NUMA_BALANCING.iter().position(|known| *known == name) {
                vmstat.values[index] = Some(line.number(value.trim())?);
            }
        }
        Ok(vmstat)
    }

    /// The counts since `before`.
    pub fn since(&self, before: &Self) -> Self {
        let mut delta = self.clone();
        for (after, before) in delta.values.iter_mut().zip(before.values) {
            *after = after.zip(before).map(|(after, before)| after.wrapping_sub(before));
        }
        delta
    }

    /// Name and value of every counter that the kernel has, in a fixed order.
    pub fn for_each(&self, sink: &mut dyn FnMut(&str, u64)) {
        for (name, value) in NUMA_BALANCING.iter().zip(self.values) {
            if let Some(value) = value {
                sink(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(for_each: impl Fn(&mut dyn FnMut(&str, u64))) -> Vec<(String, u64)> {
        let mut seen = Vec::new();
        for_each(&mut |name, value| seen.push((name.to_owned(), value)));
        seen
    }

    #[test]
    fn vmstat_tells_numa_balancing_between_two_moments() {
        let before = "nr_free_pages 7\nnuma_pte_updates 10\nnuma_hint_faults 4\n\
                      numa_hint_faults_local 1\nnuma_pages_migrated 0\n";
        let after = "nr_free_pages 3\nnuma_pte_updates 25\nnuma_hint_faults 4\n\
                     numa_hint_faults_local 3\nnuma_pages_migrated 9\n";
        let [before, after] = [before, after].map(|text| Vmstat::parse("vmstat", text).unwrap());
        let values: Vec<u64> = told(|sink| after.since(&before).for_each(sink))
            .into_iter()
            .map(|pair| pair.1)
            .collect();
        assert_eq!(values, [15, 0, 2, 9]);
        let without = Vmstat::parse("vmstat", "nr_free_pages 7\n").unwrap();
        assert_eq!(told(|sink| after.since(&without).for_each(sink)), []);
    }

    #[test]
    fn a_line_that_is_not_vmstat_is_named() {
        let error = Vmstat::parse("after/vmstat", "numa_pte_updates 1\nnuma_hint_faults x\n");
        assert!(
            error.unwrap_err().to_string().starts_with("after/vmstat:2: \"x\" is not a number")
        );
    }
}
