//! `scx_roost`: loads the scheduler of `bpf/` into the running kernel, feeds it, watches it.
//!
//! | module | what it does |
//! |---|---|
//! | `options` | the command line |
//! | `tables` | tunables and counters, from the tables that the BPF program uses too |
//! | `layout` | a machine as the scheduler sees it |
//! | `kernel` | whether the running kernel can be used at all |
//! | `scheduler` | loading, watching, unloading |
//! | `sets` | groups and processes as the scheduler knows them |
//! | `stats` | statistics over the socket that tools of sched_ext schedulers know |
//! | `error` | what can go wrong, in a line each |

mod error;
mod kernel;
mod layout;
mod options;
mod scheduler;
// Who tells the scheduler about memory is not built in yet.
#[allow(dead_code, reason = "the interface of what moves memory")]
mod sets;
mod stats;
mod tables;

#[allow(
    clippy::all,
    clippy::unwrap_used,
    missing_docs,
    dead_code,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unused_imports,
    reason = "generated"
)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/roost_skel.rs"));
}

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use error::LiveError;
use layout::Layout;
use options::{Action, Options};
use scheduler::Ending;

fn main() -> ExitCode {
    let result = match options::parse() {
        Action::HelpStats => stats::help(&mut std::io::stdout().lock()),
        Action::Monitor(interval) => stats::monitor(interval),
        Action::DryRun(options) => dry_run(&options),
        Action::Run(options) => run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("scx_roost: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Says what would be loaded.
fn dry_run(options: &Options) -> Result<(), LiveError> {
    let layout = Layout::of(&options.machine()?);
    println!("machine: {}", layout.summary());
    for (name, value) in options.settings() {
        println!("{name} = {value}");
    }
    for (number, node) in layout.nodes.iter().enumerate() {
        println!(
            "node {number}: {} CPUs in {} LLCs, new tasks may leave it ahead by {} of {} CPUs",
            node.nr_cpus, node.nr_llcs, node.imb_numa_nr, node.numa_span
        );
    }
    match kernel::check() {
        Ok(()) => println!("kernel {}: can load it", kernel::release()),
        Err(error) => println!("{error}"),
    }
    Ok(())
}

/// Schedules until a signal comes, or the kernel ends it; after a change of CPUs with a new layout.
fn run(options: &Options) -> Result<(), LiveError> {
    kernel::check()?;
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&stop);
    ctrlc::set_handler(move || seen.store(true, Ordering::Relaxed))
        .map_err(|error| LiveError::Signals(error.to_string()))?;
    loop {
        match scheduler::run(options, &stop)? {
            Ending::Asked => return Ok(()),
            Ending::Restart(why) => eprintln!("{why}: starting again"),
        }
    }
}
