//! Statistics that the kernel prints as names and numbers: `/proc/vmstat` and `/proc/PID/sched`.

use std::collections::BTreeMap;

use crate::error::{Line, MEASURE_AGAIN, MeasureError, shown};

/// Counters of `/proc/vmstat` about automatic NUMA balancing.
const NUMA_BALANCING: [&str; 4] =
    ["numa_pte_updates", "numa_hint_faults", "numa_hint_faults_local", "numa_pages_migrated"];

/// One moment's `/proc/vmstat`, or what was counted between two: automatic NUMA balancing only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vmstat {
    /// As [`NUMA_BALANCING`]; `None` where the kernel has no such counter.
    values: [Option<u64>; NUMA_BALANCING.len()],
}

impl Vmstat {
    /// Reads the text of `/proc/vmstat`; `file` is named in errors.
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

    /// What was counted since `before`.
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

/// The event counters of one or more tasks from `/proc/PID/sched`, by bare names: `nr_migrations`,
/// `nr_wakeups_affine`, `nr_failed_migrations_hot`, `numa_pages_migrated`, ...
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskSched {
    values: BTreeMap<String, u64>,
}

impl TaskSched {
    /// Reads the text of `/proc/PID/sched`, or of several of them one after the other, whose
    /// counters are added. Before Linux 5.16 the names begin with `se.statistics.`, which is left
    /// away as is `se.`. Times, averages and parameters are left out; `file` is named in errors.
    pub fn parse(file: &str, text: &str) -> Result<Self, MeasureError> {
        let mut task = Self::default();
        for line in Line::all(file, text) {
            // The first line holds the task's name, which may look like anything.
            if line.text.contains("#threads:") {
                continue;
            }
            let Some((name, value)) = line.text.split_once(" :") else { continue };
            let name = name.trim().trim_start_matches("se.").trim_start_matches("statistics.");
            if name.starts_with("nr_") || name == "numa_pages_migrated" {
                let value: u64 = line.number(value.trim())?;
                let sum = task.values.entry(name.to_owned()).or_default();
                *sum = sum.saturating_add(value);
            }
        }
        Ok(task)
    }

    /// Name and value of every counter, by name.
    pub fn for_each(&self, sink: &mut dyn FnMut(&str, u64)) {
        for (name, value) in &self.values {
            sink(name, *value);
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

    /// From Linux 7.2 in a guest, shortened.
    const NEW: &str = "\
cat (301, #threads: 1)
-------------------------------------------------------------------
se.exec_start                                :         10576.369730
se.nr_migrations                             :                    2
wait_sum                                     :             0.073308
nr_failed_migrations_hot                     :                    3
nr_wakeups_affine_attempts                   :                    5
se.load.weight                               :              1048576
policy                                       :                    0
numa_pages_migrated                          :                    7
numa_preferred_nid                           :                   -1
current_node=1, numa_group_id=0
";

    #[test]
    fn task_statistics_have_bare_names_in_all_versions() {
        let new = told(|sink| TaskSched::parse("sched", NEW).unwrap().for_each(sink));
        let expected = [
            ("nr_failed_migrations_hot", 3),
            ("nr_migrations", 2),
            ("nr_wakeups_affine_attempts", 5),
            ("numa_pages_migrated", 7),
        ];
        assert_eq!(new, expected.map(|(name, value)| (name.to_owned(), value)));
        let old = "se.statistics.nr_wakeups_affine              :                    4\n";
        let old = told(|sink| TaskSched::parse("sched", old).unwrap().for_each(sink));
        assert_eq!(old, [("nr_wakeups_affine".to_owned(), 4)]);
    }

    #[test]
    fn tasks_are_added() {
        let both = TaskSched::parse("sched", &NEW.repeat(2)).unwrap();
        assert!(told(|sink| both.for_each(sink)).contains(&("nr_migrations".to_owned(), 4)));
    }
}
