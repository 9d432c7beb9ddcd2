//! Tables that follow the results: how often each mechanism acted, and where tasks ran.

use roost_engine::RunTime;

use crate::comparison::Comparison;
use crate::figure::{decimals, number};
use crate::statistics::Summary;
use crate::table::{corner, fitting_table, wrapped};

/// Largest number of LLCs for which shares are shown.
const MOST_LLCS: usize = 16;

/// Comparisons whose rows stand in the same tables.
pub(crate) struct Places<'a> {
    pub(crate) comparisons: &'a [Comparison],
    /// The kinds of inputs that differ between the comparisons, and their names for each comparison. They are the first
    /// columns.
    pub(crate) inputs: (&'a [&'a str], &'a [Vec<&'a str>]),
    /// Largest width of a table.
    pub(crate) width: Option<u16>,
}

/// The percentage of each place, one vector per scheduler. Empty if the table has no rows of this comparison.
type Percent<'a> = &'a dyn Fn(&Comparison) -> Vec<Vec<f64>>;

impl Places<'_> {
    /// Both tables. Empty if nothing is known.
    pub(crate) fn text(&self) -> String {
        self.acted() + &self.run_time()
    }

    /// A table with a row for each comparison and scheduler.
    fn table(
        &self,
        name: &str,
        columns: &[&str],
        rows: &dyn Fn(&Comparison) -> Vec<Vec<String>>,
    ) -> String {
        let Some(first) = self.comparisons.first() else { return String::new() };
        let (kinds, inputs) = self.inputs;
        let rows = self.comparisons.iter().zip(inputs).flat_map(|(c, own)| below(own, rows(c)));
        let corner = corner(name, first);
        let header = [kinds, &[corner.as_str()], columns].concat();
        format!("\n{}", fitting_table(&header, rows.collect(), kinds.len() + 1, self.width))
    }

    /// How often each mechanism acted, averaged over the repeats. There is a column for each mechanism that is on under
    /// some scheduler. Empty if no mechanism is on.
    fn acted(&self) -> String {
        let mut mechanisms: Vec<&str> = Vec::new();
        for name in self.comparisons.iter().flat_map(Comparison::mechanisms) {
            if !mechanisms.contains(&name) {
                mechanisms.push(name);
            }
        }
        if mechanisms.is_empty() {
            return String::new();
        }
        let rows = |comparison: &Comparison| acted_rows(comparison, &mechanisms);
        self.table("acted", &mechanisms, &rows) + &wrapped(ACTED_LEGEND, self.width)
    }

    /// Where tasks ran: shares of their run time by node and by LLC. Empty if that is not known.
    fn run_time(&self) -> String {
        if self.most(&by_node) == 0 {
            return String::new();
        }
        let mut out = self.shares("node%", 1, &by_node, true);
        if self.most(&by_llc) > 0 {
            out += &self.shares("LLC%", 0, &by_llc, false);
        }
        let legend = "\nnode%, LLC%: share of the tasks' run time on each.\n";
        out + &wrapped(legend, self.width)
    }

    /// The largest number of places.
    fn most(&self, percent: Percent<'_>) -> usize {
        self.comparisons.iter().map(|comparison| places(&percent(comparison))).max().unwrap_or(0)
    }

    /// A table of shares with this many decimals. The share of local memory is a column of its own, if that is asked
    /// for and known.
    fn shares(
        &self,
        name: &str,
        decimals: usize,
        percent: Percent<'_>,
        with_local: bool,
    ) -> String {
        let places: Vec<String> = (0..self.most(percent)).map(|place| place.to_string()).collect();
        let mut columns: Vec<&str> = places.iter().map(String::as_str).collect();
        let with_local =
            with_local && self.comparisons.iter().any(|one| local_percent(one).is_some());
        if with_local {
            columns.push("memory_local%");
        }
        self.table(name, &columns, &|comparison| {
            let local = local_percent(comparison).unwrap_or_default();
            let row = |(scheduler, (name, percent)): (usize, (&str, Vec<f64>))| {
                let mut row = vec![name.to_owned()];
                let percent = |place| number(percent.get(place).copied(), decimals);
                row.extend((0..places.len()).map(percent));
                if with_local {
                    row.push(number(local.get(scheduler).copied().flatten(), 1));
                }
                row
            };
            comparison.names().zip(percent(comparison)).enumerate().map(row).collect()
        })
    }
}

/// Follows tables of how often mechanisms acted.
const ACTED_LEGEND: &str = "
acted: how often the mechanism decided something; -: it is off or missing.
Versions have rules of their own for a mechanism. Each counts what its rule decided.
";

/// For each scheduler its name, and how often each of these mechanisms acted.
fn acted_rows(comparison: &Comparison, mechanisms: &[&str]) -> Vec<Vec<String>> {
    let mut rows: Vec<_> = comparison.names().map(|name| vec![name.to_owned()]).collect();
    for mechanism in mechanisms {
        let times: Vec<_> =
            (0..rows.len()).map(|index| comparison.acted(index, mechanism)).collect();
        let decimals = decimals(times.iter().copied().flatten());
        for (row, times) in rows.iter_mut().zip(times) {
            row.push(number(times, decimals));
        }
    }
    rows
}

/// The rows of one comparison, with the names of its inputs before the first.
pub(crate) fn below(inputs: &[&str], rows: Vec<Vec<String>>) -> impl Iterator<Item = Vec<String>> {
    let names: Vec<String> = inputs.iter().map(|&name| name.to_owned()).collect();
    let with_names = move |(index, row): (usize, Vec<String>)| {
        let name = |name: &String| if index == 0 { name.clone() } else { String::new() };
        names.iter().map(name).chain(row).collect()
    };
    rows.into_iter().enumerate().map(with_names)
}

fn places(percent: &[Vec<f64>]) -> usize {
    percent.iter().map(Vec::len).max().unwrap_or(0)
}

fn by_node(comparison: &Comparison) -> Vec<Vec<f64>> {
    shares(comparison, |run_time| &run_time.node_ns)
}

/// Empty if every node has one LLC, because both tables would be the same, and if there are too many.
fn by_llc(comparison: &Comparison) -> Vec<Vec<f64>> {
    let percent = shares(comparison, |run_time| &run_time.llc_ns);
    let llcs = places(&percent);
    let is_shown = llcs > places(&by_node(comparison)) && llcs <= MOST_LLCS;
    if is_shown { percent } else { Vec::new() }
}

/// Percentages of all repeats' run time by place, one vector per scheduler.
fn shares(comparison: &Comparison, ns: impl Fn(&RunTime) -> &Vec<u64>) -> Vec<Vec<f64>> {
    let of_scheduler = |runs: &Vec<RunTime>| {
        let mut sums: Vec<u64> = Vec::new();
        for ns in runs.iter().map(&ns) {
            sums.resize(sums.len().max(ns.len()), 0);
            sums.iter_mut().zip(ns).for_each(|(sum, ns)| *sum = sum.saturating_add(*ns));
        }
        let all = sums.iter().map(|&sum| sum as f64).sum::<f64>().max(1.0);
        sums.into_iter().map(|sum| 100.0 * sum as f64 / all).collect()
    };
    comparison.run_time.iter().map(of_scheduler).collect()
}

/// Percentage of bytes that came from memory on the CPU's own node, one per scheduler. `None` if memory is not
/// modelled.
fn local_percent(comparison: &Comparison) -> Option<Vec<Option<f64>>> {
    let local = comparison.counter("memory_local_bytes")?;
    let remote = comparison.counter("memory_remote_bytes")?;
    let percent = |(local, remote): (&Option<f64>, &Option<f64>)| {
        let (local, remote) = ((*local)?, (*remote)?);
        (local + remote > 0.0).then(|| 100.0 * local / (local + remote))
    };
    Some(local.iter().zip(remote).map(percent).collect())
}

impl Comparison {
    /// The mechanisms that are on under some scheduler, in order of first appearance.
    pub(crate) fn mechanisms(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for mechanism in self.experiment.schedulers.iter().flat_map(|s| &s.mechanisms) {
            if !names.contains(&mechanism.name.as_str()) {
                names.push(&mechanism.name);
            }
        }
        names
    }

    /// How often a mechanism acted, averaged over the repeats. `None` if it is off.
    pub(crate) fn acted(&self, scheduler: usize, mechanism: &str) -> Option<f64> {
        let contender = self.experiment.schedulers.get(scheduler)?;
        let mechanism = contender.mechanisms.iter().find(|own| own.name == mechanism)?;
        let own = self.counters.iter().filter(|c| mechanism.acted.contains(&c.name));
        let samples: Vec<&Vec<Option<f64>>> =
            own.filter_map(|counter| counter.samples.get(scheduler)).collect();
        let repeats = samples.iter().map(|samples| samples.len()).max()?;
        let of_run = |repeat: usize| {
            samples
                .iter()
                .filter_map(|samples| *samples.get(repeat)?)
                .reduce(|sum, more| sum + more)
        };
        Summary::of(&(0..repeats).filter_map(of_run).collect::<Vec<f64>>()).map(|s| s.mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::{experiment, outcome};
    use crate::experiment::Mechanism;
    use roost_engine::Outcome;
    use roost_workload::Better;

    fn run(counters: &[(&str, f64)], node_ns: &[u64], llc_ns: &[u64]) -> Outcome {
        let run_time = RunTime { node_ns: node_ns.to_vec(), llc_ns: llc_ns.to_vec() };
        Outcome { run_time, ..outcome(Better::Lower, Some(1.0), counters) }
    }

    fn text(comparison: Comparison) -> String {
        Places { comparisons: &[comparison], inputs: (&[], &[Vec::new()]), width: None }.text()
    }

    #[test]
    fn a_mechanism_acted_as_often_as_its_counters_say() {
        let mut experiment = experiment("w", &["a", "b"]);
        let mechanism = |name: &str, acted: &[&str]| Mechanism {
            name: name.to_owned(),
            acted: acted.iter().map(|&name| name.to_owned()).collect(),
        };
        experiment.schedulers[0].mechanisms = vec![mechanism("sis-util", &["ended", "not_begun"])];
        experiment.schedulers[1].mechanisms = vec![mechanism("cling", &["held"])];
        let of =
            |ended, held| run(&[("ended", ended), ("not_begun", 2.0), ("held", held)], &[], &[]);
        let runs = vec![vec![of(1.0, 9.0), of(5.0, 9.0)], vec![of(9.0, 0.0), of(9.0, 0.0)]];
        let text = text(Comparison::new(experiment, runs));
        // Means of 1 + 2 and 5 + 2, and of 0.
        let table = "\nacted (simulated)  sis-util  cling\n\
                     a                         5      -\n\
                     b                         -      0\n";
        assert!(text.starts_with(table), "{text}");
    }

    #[test]
    fn shares_are_of_all_repeats_by_node_and_llc() {
        let memory = [("memory_local_bytes", 3.0), ("memory_remote_bytes", 1.0)];
        let runs = vec![
            vec![run(&memory, &[3, 1], &[1, 2, 1, 0]), run(&memory, &[0, 4], &[0, 0, 0, 4])],
            vec![run(&[], &[1, 0], &[1, 0, 0, 0])],
        ];
        let text = text(Comparison::new(experiment("w", &["a", "b"]), runs));
        let tables = "\nnode% (simulated)      0     1  memory_local%\n\
                      a                   37.5  62.5           75.0\n\
                      b                  100.0   0.0              -\n\
                      \n\
                      LLC% (simulated)    0   1   2   3\n\
                      a                  12  25  12  50\n\
                      b                 100   0   0   0\n";
        assert!(text.starts_with(tables), "{text}");
    }

    #[test]
    fn llcs_that_are_the_nodes_or_too_many_are_left_out() {
        let of = |llcs: usize| {
            let runs = vec![vec![run(&[], &[1, 1], &vec![1; llcs])]];
            text(Comparison::new(experiment("w", &["a"]), runs))
        };
        assert!(!of(2).contains("LLC% (") && !of(17).contains("LLC% ("));
        assert!(of(16).contains("LLC% (") && !of(16).contains("memory_local"));
        let unknown = Comparison::new(experiment("w", &["a"]), vec![vec![run(&[], &[], &[])]]);
        assert_eq!(text(unknown), "");
    }
}
