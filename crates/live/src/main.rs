//! `scx_roost`: loads the scheduler of `bpf/` into the running kernel, feeds it, watches it.
//!
//! | module | what it does |
//! |---|---|
//! | `options` | how to schedule: command line (crate `roost-settings`) and settings file |
//! | `tables` | counters and numbers, from the tables that the BPF program uses too |
//! | `kernel` | whether the running kernel can be used at all |
//! | `process` | one loader at a time, and what signals do to it |
//! | `scheduler` | loading, watching, unloading |
//! | `sets` | groups and processes as the scheduler knows them |
//! | `stats` | statistics over the socket that tools of sched_ext schedulers know |
//! | `memory` | the daemon that follows memory and moves pages, as a thread |
//! | `console` | what the user is told, whether somebody reads it or not |
//! | `metrics` | the statistics for Prometheus |
//! | `top` | what a running scheduler does, on the terminal |
//! | `error` | what can go wrong, in a line each |

mod console;
mod error;
mod kernel;
mod memory;
mod metrics;
mod options;
mod process;
mod scheduler;
mod sets;
mod stats;
mod tables;
mod top;

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

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use console::say;
use error::LiveError;
use options::Options;
use roost_layout::Layout;
use roost_settings::{Action, Invocation};
use scheduler::Ending;
use stats::Service;

fn main() -> ExitCode {
    let invocation = Invocation::from_matches(&roost_settings::command().get_matches());
    let code = match act(&invocation) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(format_args!("scx_roost: {error}"));
            error.exit_code()
        }
    };
    console::finish();
    code
}

fn act(invocation: &Invocation) -> Result<(), LiveError> {
    match invocation.action {
        Action::HelpStats => stats::help(),
        Action::Monitor(interval) => stats::monitor(interval),
        Action::Top(interval) => top::run(interval),
        Action::DryRun => dry_run(&Options::of(invocation)?),
        Action::Run => run(&Options::of(invocation)?),
    }
}

/// Says what would be loaded. What it says is a settings file.
fn dry_run(options: &Options) -> Result<(), LiveError> {
    let mut text = described(&Layout::of(&options.machine()?));
    // Root last: what else is in the way, sudo does not mend.
    text += &match kernel::check().and_then(|()| kernel::check_root()) {
        Ok(()) => format!("# kernel {}: can load it\n", kernel::release()),
        Err(error) => format!("# {error}\n"),
    };
    console::print(&(text + &options.settings.to_toml())).map(drop)
}

/// The machine and its nodes, by the kernel's numbers.
fn described(layout: &Layout) -> String {
    let mut text = format!("# machine: {}\n", layout.summary());
    for node in &layout.nodes {
        text += &format!(
            "# node {}: {} CPUs in {} LLCs, new tasks may leave it ahead by {} of {} CPUs\n",
            node.number, node.nr_cpus, node.nr_llcs, node.imb_numa_nr, node.numa_span
        );
    }
    text
}

/// Schedules until a signal comes, or the kernel ends it; after a change of CPUs with a new layout.
fn run(options: &Options) -> Result<(), LiveError> {
    kernel::check_root()?;
    kernel::await_unloading();
    kernel::check()?;
    let _lock = process::lock(Path::new(process::LOCK))?;
    let stop = process::stop_on_signals()?;
    let service = Service::start(options)?;
    until_asked(&stop, || scheduler::run(options, &service, &stop))
}

/// Does something again and again until a signal comes, which may be in between.
fn until_asked(
    stop: &AtomicBool,
    mut once: impl FnMut() -> Result<Ending, LiveError>,
) -> Result<(), LiveError> {
    while !stop.load(Ordering::Relaxed) {
        match once()? {
            Ending::Asked => break,
            Ending::Restart(why) => say(format_args!("{why}: starting again")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Node 1 has no CPUs.
    #[test]
    fn nodes_have_the_kernels_numbers() {
        let mut layout = Layout::of(&roost_machine::resolve("2n2l4c").unwrap());
        layout.nodes[1].number = 2;
        let text = described(&layout);
        assert!(text.contains("# node 0: 8 CPUs") && text.contains("# node 2: 8 CPUs"), "{text}");
    }

    #[test]
    fn nothing_starts_again_after_a_signal() {
        let stop = AtomicBool::new(false);
        let mut starts = 0;
        let ended = until_asked(&stop, || {
            starts += 1;
            assert!(starts <= 3, "started after the signal");
            stop.store(starts == 3, Ordering::Relaxed);
            Ok(Ending::Restart("CPUs came or went".to_owned()))
        });
        assert!(ended.is_ok() && starts == 3);
        assert!(until_asked(&stop, || Err(LiveError::NotRoot)).is_ok());
    }
}
