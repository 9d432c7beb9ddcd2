//! `scx_roost`: loads the scheduler of `bpf/` into the running kernel, gives it the data it needs, and watches it.
//!
//! | module | what it does |
//! |---|---|
//! | `options` | how to schedule: command line (crate `roost-settings`) and settings file |
//! | `tables` | counters and numbers, from the tables that the BPF program uses too |
//! | `verdict` | what roost would do for this machine, and what speaks against it |
//! | `observe` | what roost could help with, counted under any scheduler |
//! | `kernel` | whether the running kernel can be used at all |
//! | `process` | one loader at a time, and how signals end it |
//! | `scheduler` | loading, watching, unloading |
//! | `sets` | cgroups and processes in the scheduler's tables |
//! | `stats` | statistics over the socket that tools of sched_ext schedulers know |
//! | `memory` | the daemon that follows memory and moves pages, as a thread |
//! | `mappings` | which mappings of a process have no memory policy |
//! | `console` | output, which never blocks the scheduler |
//! | `metrics` | statistics for Prometheus |
//! | `top` | shows a running scheduler in the terminal |
//! | `error` | errors, one line each |

mod console;
mod error;
mod kernel;
mod mappings;
mod memory;
mod metrics;
mod observe;
mod options;
mod process;
mod scheduler;
mod sets;
mod stats;
mod tables;
mod top;
mod verdict;

/// Bindings of the BPF programs: the scheduler's, and those of the programs that observe and that list mappings.
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
mod generated {
    pub mod skeleton {
        include!(concat!(env!("OUT_DIR"), "/roost_skel.rs"));
    }
    pub mod observer {
        include!(concat!(env!("OUT_DIR"), "/observe_skel.rs"));
    }
    pub mod lister {
        include!(concat!(env!("OUT_DIR"), "/mappings_skel.rs"));
    }
}

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use console::say;
use error::LiveError;
use generated::{lister, observer, skeleton};
use options::Options;
use roost_layout::Layout;
use roost_machine::count;
use roost_settings::{Action, Invocation};
use scheduler::Ending;
use stats::Service;
use verdict::{Facts, verdict};

fn main() -> ExitCode {
    let invocation = Invocation::from_matches(&roost_settings::command().get_matches());
    let code = match act(&invocation) {
        Ok(code) => code,
        Err(error) => {
            say(format_args!("scx_roost: {error}"));
            error.exit_code()
        }
    };
    console::finish();
    code
}

fn act(invocation: &Invocation) -> Result<ExitCode, LiveError> {
    let done = match invocation.action {
        Action::HelpStats => stats::help(),
        Action::Monitor(interval) => stats::monitor(interval),
        Action::Top(interval) => top::run(interval),
        Action::DryRun => return dry_run(&Options::of(invocation)?),
        Action::Observe(time) => observe(&Options::of(invocation)?, time),
        Action::Run => run(&Options::of(invocation)?),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// Prints what would be loaded, and a verdict. The output is a valid settings file. The status is 1 if this kernel
/// cannot run it.
fn dry_run(options: &Options) -> Result<ExitCode, LiveError> {
    let layout = Layout::of(&options.machine()?);
    let kernel = kernel::check();
    let code = ExitCode::from(u8::from(kernel.is_err()));
    let facts = options.sysfs.is_none().then(Facts::of_this_system);
    let mut text = described(&layout);
    text += &match kernel {
        Ok(()) => format!("# kernel {}: can run it; loading needs root\n", kernel::release()),
        Err(error) => format!("# {error}\n"),
    };
    text.extend(
        verdict(&layout, &options.settings, facts.as_ref())
            .iter()
            .map(|line| format!("# {line}\n")),
    );
    console::print(&(text + &options.settings.to_toml()))?;
    Ok(code)
}

/// Counts what roost could help with. Neither takes the place of a scheduler nor needs a kernel that can run one.
fn observe(options: &Options, time: Duration) -> Result<(), LiveError> {
    kernel::check_root("observing")?;
    let layout = Layout::of(&options.machine()?);
    let stop = process::stop_on_signals()?;
    observe::run(&layout, time, &stop)
}

/// The machine and its nodes, with the kernel's numbers.
fn described(layout: &Layout) -> String {
    let mut text = format!("# machine: {}\n", layout.summary());
    for node in &layout.nodes {
        text += &format!(
            "# node {}: {} in {}; numa-imbalance tolerates {} in a domain of {}\n",
            node.number,
            count(node.nr_cpus as usize, "CPU"),
            count(node.nr_llcs as usize, "LLC"),
            count(node.imb_numa_nr as usize, "task"),
            count(node.numa_span as usize, "CPU")
        );
    }
    text
}

/// Schedules until a signal comes or the kernel ends the scheduler. After a change of CPUs, loads the scheduler again
/// with a new layout.
fn run(options: &Options) -> Result<(), LiveError> {
    kernel::check_root("loading a scheduler")?;
    kernel::await_unloading();
    kernel::check()?;
    let _lock = process::lock(Path::new(process::LOCK))?;
    let stop = process::stop_on_signals()?;
    let service = Service::start(options)?;
    until_asked(&stop, || scheduler::run(options, &service, &stop))
}

/// Repeats `act` until a signal comes, also if the signal comes between two calls.
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

    /// Node 1 has no CPUs, so the numbers of nodes have a gap.
    #[test]
    fn nodes_have_the_kernels_numbers() {
        let mut layout = Layout::of(&roost_machine::resolve("2n2l4c").unwrap());
        layout.nodes[1].number = 2;
        let text = described(&layout);
        assert!(text.contains("# node 0: 8 CPUs") && text.contains("# node 2: 8 CPUs"), "{text}");
    }

    #[test]
    fn one_is_told_as_one() {
        let layout = Layout::of(&roost_machine::resolve("node:1 l3:1 core:1 pu:1").unwrap());
        let text = described(&layout);
        assert!(text.contains("# node 0: 1 CPU in 1 LLC; numa-imbalance tolerates "), "{text}");
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
        assert!(until_asked(&stop, || Err(LiveError::NotRoot { what: "loading" })).is_ok());
    }
}
