//! Tables that follow the results: how often each mechanism acted, and where tasks ran.

use roost_engine::RunTime;

use crate::comparison::Comparison;
use crate::figure::{decimals, number};
use crate::statistics::Summary;
use crate::table::{corner, fitting_table, wrapped};

/// Largest number of LLCs for which shares are shown.
const MOST_LLCS: usize = 16;

/// How often each mechanism acted, averaged over the repeats. There is a row per scheduler, and a column for each
/// mechanism that is on under some scheduler. Empty if no mechanism is on.
pub(crate) fn acted(comparison: &Comparison, width: Option<u16>) -> String {
    let mechanisms = comparison.mechanisms();
    if mechanisms.is_empty() {
        return String::new();
    }
    let rows = acted_rows(comparison, &mechanisms);
    let corner = corner("acted", comparison);
    let header: Vec<&str> = std::iter::once(corner.as_str()).chain(mechanisms).collect();
    format!("\n{}{}", fitting_table(&header, rows, 1, width), wrapped(ACTED_LEGEND, width))
}

/// Follows tables of how often mechanisms acted.
const ACTED_LEGEND: &str = "\nacted: how often the mechanism decided something; -: it is off.\n";

/// For each scheduler its name, and how often each of these mechanisms acted.
fn acted_rows(comparison: &Comparison, mechanisms: &[&str]) -> Vec<Vec<String>> {
    let mut rows = named_rows(comparison);
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

/// How often each mechanism acted, and the share of each node, for several comparisons. Each row begins with the names
/// of the comparison's `inputs`, of which `header` has the kinds.
pub(crate) fn of_several(
    comparisons: &[Comparison],
    (header, inputs): (&[&str], &[Vec<&str>]),
    width: Option<u16>,
) -> String {
    let mut mechanisms: Vec<&str> = Vec::new();
    for name in comparisons.iter().flat_map(Comparison::mechanisms) {
        if !mechanisms.contains(&name) {
            mechanisms.push(name);
        }
    }
    let table = |name: &str, columns: &[&str], rows: &dyn Fn(&Comparison) -> Vec<Vec<String>>| {
        let corner = corner(name, &comparisons[0]);
        let header = [header, &[corner.as_str()], columns].concat();
        let rows = comparisons.iter().zip(inputs).flat_map(|(c, own)| below(own, rows(c)));
        format!("\n{}", fitting_table(&header, rows.collect(), inputs[0].len() + 1, width))
    };
    let mut out = String::new();
    if !mechanisms.is_empty() {
        out += &table("acted", &mechanisms, &|comparison| acted_rows(comparison, &mechanisms));
        out += &wrapped(ACTED_LEGEND, width);
    }
    let percent = |comparison: &Comparison| shares(comparison, |run_time| &run_time.node_ns);
    let nodes = comparisons.iter().map(|comparison| places(&percent(comparison))).max();
    let nodes: Vec<String> = (0..nodes.unwrap_or(0)).map(|node| node.to_string()).collect();
    if !nodes.is_empty() {
        let columns: Vec<&str> = nodes.iter().map(String::as_str).collect();
        out += &table("node%", &columns, &|comparison| {
            share_rows(comparison, &percent(comparison), columns.len(), 1)
        });
        out += &wrapped("\nnode%: share of the tasks' run time on each.\n", width);
    }
    out
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

/// Where tasks ran: shares of their run time by node and, if there are few enough, by LLC. Empty if that is not known.
pub(crate) fn run_time(comparison: &Comparison, width: Option<u16>) -> String {
    let by_node = shares(comparison, |run_time| &run_time.node_ns);
    let by_llc = shares(comparison, |run_time| &run_time.llc_ns);
    let [nodes, llcs] = [&by_node, &by_llc].map(|rows| places(rows));
    if nodes == 0 {
        return String::new();
    }
    let local = local_percent(comparison);
    let mut out = format!("\n{}", share_table(comparison, "node%", &by_node, 1, local, width));
    // If every node has one LLC, both tables are the same.
    if llcs > nodes && llcs <= MOST_LLCS {
        out += &format!("\n{}", share_table(comparison, "LLC%", &by_llc, 0, None, width));
    }
    let legend = "\nnode%, LLC%: share of the tasks' run time on each.\n";
    out + &wrapped(legend, width)
}

/// A table of `percent[scheduler][place]` with this many decimals. `local` is a column of its own.
fn share_table(
    comparison: &Comparison,
    name: &str,
    percent: &[Vec<f64>],
    decimals: usize,
    local: Option<Vec<Option<f64>>>,
    width: Option<u16>,
) -> String {
    let places = places(percent);
    let mut header = vec![corner(name, comparison)];
    header.extend((0..places).map(|place| place.to_string()));
    let mut rows = share_rows(comparison, percent, places, decimals);
    if let Some(local) = local {
        header.push("memory_local%".to_owned());
        for (row, local) in rows.iter_mut().zip(local) {
            row.push(number(local, 1));
        }
    }
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    fitting_table(&header, rows, 1, width)
}

/// For each scheduler its name, and its percentage of each place.
fn share_rows(
    comparison: &Comparison,
    percent: &[Vec<f64>],
    places: usize,
    decimals: usize,
) -> Vec<Vec<String>> {
    let mut rows = named_rows(comparison);
    for (row, percent) in rows.iter_mut().zip(percent) {
        row.extend((0..places).map(|place| number(percent.get(place).copied(), decimals)));
    }
    rows
}

fn named_rows(comparison: &Comparison) -> Vec<Vec<String>> {
    comparison.names().map(|name| vec![name.to_owned()]).collect()
}

fn places(percent: &[Vec<f64>]) -> usize {
    percent.iter().map(Vec::len).max().unwrap_or(0)
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
        let text = acted(&Comparison::new(experiment, runs), None);
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
        let text = run_time(&Comparison::new(experiment("w", &["a", "b"]), runs), None);
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
            run_time(&Comparison::new(experiment("w", &["a"]), runs), None)
        };
        assert!(!of(2).contains("LLC% (") && !of(17).contains("LLC% ("));
        assert!(of(16).contains("LLC% (") && !of(16).contains("memory_local"));
        let unknown = Comparison::new(experiment("w", &["a"]), vec![vec![run(&[], &[], &[])]]);
        assert_eq!(run_time(&unknown, None), "");
    }
}
