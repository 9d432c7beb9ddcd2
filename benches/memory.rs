//! The simulator's cost of memory and NUMA balancing: numa02 on 64 CPUs.
//!
//! ```text
//! cargo bench -p roost --bench memory
//! ```
//!
//! Prints for each scheduler the simulated and the real seconds, how many times faster than real time the simulation is
//! (the bar is 20), and the process's largest resident set (the bar is 200 MB).

use std::time::Instant;

use roost_simulate::{Control, Simulation};

fn main() {
    println!("numa02 on the 64 CPUs of x3750-m4");
    println!("{:<32} {:>10} {:>8} {:>8} {:>8}", "scheduler", "simulated", "real", "times", "MB");
    for scheduler in ["fair@7.2", "fair@5.2", "fair@3.9", "fair@3.9+consolidate"] {
        let simulation = Simulation::named("x3750-m4", "numa02:cpus=64", None, scheduler);
        let simulation = simulation.expect("known names");
        let start = Instant::now();
        let outcome = simulation.run(Control::new(1)).expect("it ends");
        let (simulated, real) = (outcome.elapsed_ns as f64 / 1e9, start.elapsed().as_secs_f64());
        let times = simulated / real;
        println!("{scheduler:<32} {simulated:>10.2} {real:>8.2} {times:>8.1} {:>8.1}", peak_mb());
    }
}

/// The process's largest resident set so far, in MB. 0 if the system does not say.
fn peak_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kb = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kb.unwrap_or(0.0) / 1024.0
}
