//! The daemon that follows memory and moves pages (`roost-memory`). It runs as a thread of the loader.

use std::mem::MaybeUninit;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use roost_layout::{Layout, STEP, Sets};
use roost_machine::Machine;
use roost_memory::host::Linux;
use roost_memory::{Config, Counters, Daemon};
use roost_settings::Settings;

use crate::console::say;
use crate::error::LiveError;
use crate::mappings::Lister;
use crate::sets::Handles;
use crate::tables::Report;

/// A running daemon. When this is dropped, the daemon ends after its current operation. Nobody waits for that, because
/// it may be reading about a process that holds its own mappings lock for long.
#[derive(Debug)]
pub struct Follower {
    counted: Arc<Mutex<(Counters, u64)>>,
    /// Takes the scheduler's tables. Dropping this ends the thread.
    tables: Sender<Handles>,
}

impl Follower {
    /// Starts the daemon, if it has something to do. It loads its own program, and waits for the scheduler.
    pub fn start(
        settings: &Settings,
        machine: &Machine,
        layout: &Layout,
    ) -> Result<Option<Self>, LiveError> {
        let Some(config) = roost_layout::daemon(settings, machine, true) else { return Ok(None) };
        let (tables, received) = channel();
        let counted = Arc::new(Mutex::new((Counters::default(), 0)));
        let (shared, layout, settings) = (Arc::clone(&counted), layout.clone(), settings.clone());
        let work = move || follow(config, &layout, &settings, &received, &shared);
        let thread = std::thread::Builder::new().name("memory".into()).spawn(work);
        thread.map_err(|error| LiveError::Thread(error.to_string()))?;
        Ok(Some(Self { counted, tables }))
    }

    /// Begins to follow memory for a loaded scheduler with these tables.
    pub fn begin(&self, tables: Handles) {
        // If the thread has ended, it has said why.
        let _ = self.tables.send(tables);
    }

    /// Adds the daemon's counters to a report.
    pub fn add_to(&self, report: &mut Report) {
        let Ok(counted) = self.counted.lock() else { return };
        let (counters, daemon_us) = *counted;
        report.memory_processes = counters.large_processes;
        report.memory_sampled = counters.sampled;
        report.memory_moved = counters.moved;
        report.memory_stuck = counters.stuck;
        report.memory_no_room = counters.no_room;
        report.memory_bound = counters.bound;
        report.daemon_us = daemon_us;
    }
}

/// The daemon's loop.
fn follow(
    config: Config,
    layout: &Layout,
    settings: &Settings,
    tables: &Receiver<Handles>,
    counted: &Mutex<(Counters, u64)>,
) {
    // Before the kernel verifies the program, which may take long.
    be_ordinary();
    let mut object = MaybeUninit::uninit();
    let mut lister = match Lister::load(&mut object) {
        Ok(lister) => lister,
        Err(error) => {
            return say(format_args!(
                "the kernel refused the program that lists mappings ({error:#}): memory does not follow; please \
                 report this with the kernel's version"
            ));
        }
    };
    let Ok(handles) = tables.recv() else { return };
    let mut sets = Sets::new(handles, layout, settings);
    let mut host = Linux::new(|pid| lister.without_policy(pid));
    let mut daemon = Daemon::new(config, now());
    let loaded_ns = clock(libc::CLOCK_THREAD_CPUTIME_ID);
    let mut wait = STEP;
    while matches!(tables.recv_timeout(Duration::from_nanos(wait)), Err(RecvTimeoutError::Timeout))
    {
        daemon.step(now(), &mut host, &mut sets);
        wait = STEP.max(daemon.due_at().saturating_sub(now()));
        if let Ok(mut counted) = counted.lock() {
            let spent_ns = clock(libc::CLOCK_THREAD_CPUTIME_ID) - loaded_ns;
            *counted = (daemon.counters(), spent_ns / 1000);
        }
    }
}

/// Removes the high weight that the loader gave itself.
fn be_ordinary() {
    // SAFETY: no pointers. If this fails, the daemon only keeps a weight that it does not need.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 0) };
}

/// The clock of [`roost_layout::SetEntry::settled_at`], in ns.
fn now() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: every thread has this clock, and the structure is valid for its time.
    unsafe { libc::clock_gettime(id, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
