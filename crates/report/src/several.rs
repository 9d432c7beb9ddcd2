//! One table for comparisons of several machines or workloads.

use crate::comparison::Comparison;
use crate::experiment;
use crate::places::{Places, below};
use crate::series;
use crate::table::{METRIC_COLUMNS, TEXT_COLUMNS, fitting_table, legend, metric_rows, wrapped};

/// One table for several comparisons with the same schedulers. Each metric of each machine and workload has a row per
/// scheduler. How often mechanisms acted and where tasks ran follow. Other counters and histograms are left out; tables
/// of single comparisons have them. The table is at most `width` columns wide, unless a single number is wider.
pub fn table_of_several(comparisons: &[Comparison], width: Option<u16>) -> String {
    let Some(first) = comparisons.first() else { return String::new() };
    let inputs = [
        ("machine", comparisons.iter().map(|c| c.experiment.machine.name.as_str()).collect()),
        ("workload", comparisons.iter().map(|c| c.experiment.workload.name.as_str()).collect()),
    ];
    // Inputs that all comparisons share are in the heading.
    let inputs: Vec<(&str, Vec<&str>)> = inputs
        .into_iter()
        .filter(|(_, names): &(_, Vec<&str>)| names.iter().any(|name| *name != names[0]))
        .collect();
    let kinds: Vec<&str> = inputs.iter().map(|(what, _)| *what).collect();
    let own = |index: usize| inputs.iter().map(|(_, names)| names[index]).collect();
    let own: Vec<Vec<&str>> = (0..comparisons.len()).map(own).collect();
    let header = [&kinds[..], &METRIC_COLUMNS].concat();
    let rows = comparisons.iter().zip(&own).flat_map(|(c, own)| below(own, rows(c)));
    let mut out = wrapped(&experiment::heading_of_several(comparisons), width);
    out += &fitting_table(&header, rows.collect(), inputs.len() + TEXT_COLUMNS, width);
    out += &wrapped(&legend(first), width);
    out += &Places { comparisons, inputs: (&kinds, &own), width }.text();
    out + &wrapped(&notes(comparisons), width)
}

/// The rows of one comparison's metrics.
fn rows(comparison: &Comparison) -> Vec<Vec<String>> {
    let series = series::series(&comparison.metrics);
    series.iter().flat_map(|series| metric_rows(comparison, &series.shown())).collect()
}

/// Notes on switches, with the machines and workloads that they apply to.
fn notes(comparisons: &[Comparison]) -> String {
    let mut text = String::new();
    for comparison in comparisons {
        let (machine, workload) = (&comparison.experiment.machine, &comparison.experiment.workload);
        for scheduler in &comparison.experiment.schedulers {
            for note in &scheduler.notes {
                let place = format!("{}, {}, {}", machine.name, workload.name, scheduler.name);
                text += &format!("note: {place}: {note}\n");
            }
        }
    }
    if text.is_empty() { text } else { format!("\n{text}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::{experiment, outcome};
    use crate::experiment::Mechanism;
    use roost_engine::{Outcome, RunTime};
    use roost_workload::Better;

    fn comparison(machine: &str, workload: &str, values: [f64; 2]) -> Comparison {
        let mut experiment = experiment(workload, &["base", "mine"]);
        machine.clone_into(&mut experiment.machine.name);
        let runs = |value| vec![outcome(Better::Lower, Some(value), &[])];
        Comparison::new(experiment, values.map(runs).to_vec())
    }

    #[test]
    fn each_machine_and_workload_is_a_block_of_one_table() {
        let mut second = comparison("zen4", "pipe", [8.0, 10.0]);
        second.experiment.schedulers[1].notes.push("+cling never acted".to_owned());
        let text = table_of_several(&[comparison("zen3", "hackbench", [10.0, 5.0]), second], None);
        assert_eq!(
            text,
            "simulated by roost 0.1.0 (aaaaaaaaaaaa)\n\
             machine zen3 (sha256 0123456789ab)\n\
             machine zen4 (sha256 0123456789ab)\n\
             workload hackbench (sha256 0123456789ab)\n\
             workload pipe (sha256 0123456789ab)\n\
             runs of each scheduler on each: 1, seed 7; each 1 s, all of it measured\n\
             base: a model of Linux 5.16\n\
             mine: a model of Linux 5.16\n\
             \n\
             machine  workload   metric  unit  better  scheduler  mean  stddev    change\n\
             zen3     hackbench  time    s     lower   base         10       -  baseline\n\
             \x20                                         mine          5       -   +50.00%\n\
             zen4     pipe       time    s     lower   base          8       -  baseline\n\
             \x20                                         mine         10       -   -25.00%\n\
             \n\
             change: percent of the mean of base; positive is better.\n\
             One repeat has no standard deviation: no change can be marked as real.\n\
             \n\
             note: zen4, pipe, mine: +cling never acted\n"
        );
    }

    #[test]
    fn each_machine_and_workload_says_how_often_mechanisms_acted_and_where_tasks_were() {
        let run = |(node_ns, llc_ns): (&[u64], &[u64]), counters: &[(&str, f64)]| {
            let run_time = RunTime { node_ns: node_ns.to_vec(), llc_ns: llc_ns.to_vec() };
            Outcome { run_time, ..outcome(Better::Lower, Some(1.0), counters) }
        };
        let of = |machine: &str, places, counters: &[(&str, f64)]| {
            let mut experiment = experiment("pipe", &["base", "mine"]);
            machine.clone_into(&mut experiment.machine.name);
            let acted = vec!["ended".to_owned()];
            experiment.schedulers[1].mechanisms =
                vec![Mechanism { name: "sis-util".to_owned(), acted }];
            let runs = vec![vec![run(places, counters)], vec![run(places, counters)]];
            Comparison::new(experiment, runs)
        };
        let memory = [("ended", 3.0), ("memory_local_bytes", 3.0), ("memory_remote_bytes", 1.0)];
        let all = [
            of("zen3", (&[1, 3], &[1, 0, 1, 2]), &memory),
            of("uma", (&[4], &[4]), &[("ended", 5.0)]),
            of("small", (&[4], &[1, 3]), &[("ended", 5.0)]),
        ];
        let text = table_of_several(&all, None);
        let tables = "\nmachine  acted (simulated)  sis-util\n\
                      zen3     base                      -\n\
                      \x20        mine                      3\n\
                      uma      base                      -\n\
                      \x20        mine                      5\n\
                      small    base                      -\n\
                      \x20        mine                      5\n\
                      \n\
                      acted: how often the mechanism decided something; -: it is off or missing.\n\
                      Versions have rules of their own for a mechanism. Each counts what its rule decided.\n\
                      \n\
                      machine  node% (simulated)      0     1  memory_local%\n\
                      zen3     base                25.0  75.0           75.0\n\
                      \x20        mine                25.0  75.0           75.0\n\
                      uma      base               100.0     -              -\n\
                      \x20        mine               100.0     -              -\n\
                      small    base               100.0     -              -\n\
                      \x20        mine               100.0     -              -\n\
                      \n\
                      machine  LLC% (simulated)   0   1   2   3\n\
                      zen3     base              25   0  25  50\n\
                      \x20        mine              25   0  25  50\n\
                      small    base              25  75   -   -\n\
                      \x20        mine              25  75   -   -\n";
        assert!(text.contains(tables), "{text}");
    }

    #[test]
    fn runs_that_took_other_times_have_a_line_each() {
        let mut second = comparison("zen4", "pipe", [8.0, 10.0]);
        second.experiment.measured_from_ns = Some(200_000_000);
        second.elapsed_ns[1][0] = 2_000_000_000;
        let text = table_of_several(&[comparison("zen3", "pipe", [1.0, 2.0]), second], None);
        let lines = "runs of each scheduler on each: 1, seed 7\n  zen3, pipe: each 1 s, all of it measured\n  \
                     zen4, pipe: each 1 to 2 s, measured from 0.2 s on\n";
        assert!(text.contains(lines), "{text}");
    }

    #[test]
    fn what_is_the_same_everywhere_has_no_column() {
        let two = [comparison("zen3", "one", [1.0, 2.0]), comparison("zen3", "two", [1.0, 2.0])];
        let text = table_of_several(&two, None);
        assert!(text.contains("\nworkload  metric"), "{text}");
        assert_eq!(text.matches("zen3").count(), 1, "{text}");
    }

    #[test]
    fn what_was_interrupted_says_where() {
        let whole = comparison("zen3", "one", [1.0, 2.0]);
        let partial = comparison("zen3", "two", [1.0, 2.0]).interrupted(5, []);
        let text = table_of_several(&[whole, partial], None);
        let first = text.lines().next().unwrap();
        assert_eq!(first, "PARTIAL: zen3, two: interrupted after 1 of 5 repeats");
    }
}
