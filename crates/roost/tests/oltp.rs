//! sysbench OLTP with and without cling, compared with `published/001-oltp.csv`. The bar is the direction of all six
//! rows; docs/notes/2026-11-25-results.md has the sizes.
//!
//! Groups settle over several NUMA scans, so runs are long: a quarter of an hour of one core (`make test-long`).

use roost_simulate::{Control, Simulation};

mod common;
use common::published;

/// Simulated time of a run, ms. The published runs took 20 minutes.
const MILLISECONDS: u64 = 20_000;

/// Transactions per second, averaged over the instances.
fn eps(instances: u32, threads: u32, scheduler: &str) -> f64 {
    let spec = format!("sysbench-oltp:instances={instances},threads={threads}");
    let duration = Some(MILLISECONDS * 1_000_000);
    let simulation = Simulation::named("xeon-2s-96", &spec, duration, scheduler);
    let outcome = simulation.expect("known names").run(Control::new(1));
    outcome.expect("it ends").metrics[0].value.expect("it ran")
}

/// Instances, threads and change in percent of each published row.
fn rows() -> Vec<(u32, u32, f64)> {
    let text = include_str!("../../../published/001-oltp.csv");
    let row = |[case, change]: [String; 2]| {
        let numbers: Vec<u32> = case.split(' ').filter_map(|word| word.parse().ok()).collect();
        (numbers[0], numbers[1], change.parse().expect("a number"))
    };
    published(text, ["case", "change_pct"]).into_iter().map(row).collect()
}

#[test]
#[ignore = "twelve runs of 20 s, a quarter of an hour: make test-long"]
fn cling_changes_each_row_in_the_direction_published() {
    let rows = rows();
    assert_eq!(rows.len(), 6);
    std::thread::scope(|scope| {
        let runs: Vec<_> = rows
            .iter()
            .map(|&(instances, threads, theirs)| {
                scope.spawn(move || {
                    let base = eps(instances, threads, "fair@5.2");
                    let cling = eps(instances, threads, "fair@5.2+cling");
                    let ours = 100.0 * (cling / base - 1.0);
                    println!(
                        "{instances} x {threads}: {base:.0} {cling:.0} {ours:+.2}% ({theirs:+.2}%)"
                    );
                    ours * theirs > 0.0
                })
            })
            .collect();
        let right = runs.into_iter().filter_map(|run| run.join().ok()).filter(|right| *right);
        assert_eq!(right.count(), 6, "rows in the direction published");
    });
}
