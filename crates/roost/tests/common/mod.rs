//! What tests of whole runs share: runs of named things, and published tables.

#![allow(dead_code, reason = "not every test uses both")]

use std::sync::Arc;

use roost_simulate::{Simulation, Start};

/// A simulation of a machine that has just booted and runs nothing else. All of it is measured. `ms` ends it. On a
/// machine that has been up for long, a wakeup may search the whole LLC for longer than short runs take: a busy machine
/// computes the search limit only every 1.8 s.
pub fn booted(machine: &str, workload: &str, scheduler: &str, ms: Option<u64>) -> Simulation {
    let duration_ns = ms.map(|ms| ms * 1_000_000);
    let known = Simulation::named(machine, workload, duration_ns, scheduler).expect("known names");
    let mut simulation = Simulation { start: Start::Boot, quiet: true, ..known };
    Arc::make_mut(&mut simulation.workload).measured_from_ns = 0;
    simulation
}

/// These columns of a published file, row by row.
pub fn published<const COLUMNS: usize>(
    text: &str,
    columns: [&str; COLUMNS],
) -> Vec<[String; COLUMNS]> {
    let mut lines = csv::Reader::from_reader(text.as_bytes());
    let header = lines.headers().expect("a header").clone();
    let at =
        columns.map(|name| header.iter().position(|field| field == name).expect("a known column"));
    let row = |row: csv::StringRecord| at.map(|column| row[column].to_owned());
    lines.records().map(|record| row(record.expect("a row"))).collect()
}
