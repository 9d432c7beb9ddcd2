//! The daemon that follows memory and moves pages (`roost-memory`). It runs as a thread of the loader.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use roost_machine::Machine;
use roost_memory::host::Linux;
use roost_memory::{Config, Counters, Daemon, Scheduler, Set};
use roost_settings::Settings;

use crate::error::LiveError;
use crate::sets::{Kind, SetState, Sets};
use crate::tables::Report;

/// Shortest time between two steps of the daemon. In each step it moves a tenth of what it may move per second.
const STEP: Duration = Duration::from_millis(100);

/// A tick of `/proc/PID/stat` (`USER_HZ`), ns.
const TICK: u64 = 10_000_000;

/// A running daemon. When this is dropped, the daemon ends after its current operation. Nobody waits for that, because
/// it may be reading about a process that holds its own mappings lock for long.
#[derive(Debug)]
pub struct Follower {
    counted: Arc<Mutex<(Counters, u64)>>,
    /// Dropping this ends the thread.
    _alive: Sender<()>,
}

impl Follower {
    /// Starts the daemon. It is not started if it is switched off, if no mechanism settles tasks, or if there is only
    /// one node.
    pub fn start(
        settings: &Settings,
        machine: &Machine,
        sets: Sets,
    ) -> Result<Option<Self>, LiveError> {
        let config = config(settings, machine);
        let idle = !config.follows && config.patterns.is_empty();
        let settle = ["cling", "consolidate"].iter().any(|name| settings.is_on(name));
        if idle || !settle || config.nodes.len() < 2 {
            return Ok(None);
        }
        let (alive, ended) = channel();
        let counted = Arc::new(Mutex::new((Counters::default(), 0)));
        let shared = Arc::clone(&counted);
        let work = move || follow(Daemon::new(config, now()), sets, &ended, &shared);
        let thread = std::thread::Builder::new().name("memory".into()).spawn(work);
        thread.map_err(|error| LiveError::Thread(error.to_string()))?;
        Ok(Some(Self { counted, _alive: alive }))
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
fn follow(mut daemon: Daemon, sets: Sets, ended: &Receiver<()>, counted: &Mutex<(Counters, u64)>) {
    be_ordinary();
    let (mut host, mut known) = (Linux::new(), Known(sets));
    let mut wait = STEP;
    while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
        daemon.step(now(), &mut host, &mut known);
        wait = STEP.max(Duration::from_nanos(daemon.due_at().saturating_sub(now())));
        if let Ok(mut counted) = counted.lock() {
            *counted = (daemon.counters(), clock(libc::CLOCK_THREAD_CPUTIME_ID) / 1000);
        }
    }
}

/// Removes the high weight that the loader gave itself.
fn be_ordinary() {
    // SAFETY: no pointers. If this fails, the daemon only keeps a weight that it does not need.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 0) };
}

/// The clock of [`SetState::settled_at`], in ns.
fn now() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: every thread has this clock, and the structure is valid for its time.
    unsafe { libc::clock_gettime(id, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn config(settings: &Settings, machine: &Machine) -> Config {
    let number = |name: &str| settings.number(name).unwrap_or(0);
    let mut nodes: BTreeMap<u32, Vec<Range<u32>>> = BTreeMap::new();
    for cpu in &machine.cpus {
        let node = machine.nodes.get(cpu.node as usize).map_or(cpu.node, |node| node.os_index);
        nodes.entry(node).or_default().push(cpu.os_index..cpu.os_index + 1);
    }
    Config {
        least_pages: Config::pages(number("memory-min-mib")),
        pages_per_second: Config::pages(number("memory-rate-mib")),
        interval: number("memory-interval-ms") * 1_000_000,
        settle: number("memory-settle-ms") * 1_000_000,
        nodes,
        patterns: settings.patterns("cling-groups"),
        follows: settings.is_on("memory"),
    }
}

/// The scheduler's tables, in the form that the daemon needs. Failed reads and writes are tried again later.
struct Known(Sets);

impl Scheduler for Known {
    fn groups(&mut self) -> Vec<Set> {
        self.0.all(Kind::Group).unwrap_or_default().iter().map(set).collect()
    }

    fn processes(&mut self, pids: &[u32]) -> Vec<Set> {
        let find = |pid: &u32| self.0.find(Kind::Process, u64::from(*pid)).ok().flatten();
        pids.iter().filter_map(find).map(|state| set(&state)).collect()
    }

    fn busy_nodes(&mut self) -> Vec<u32> {
        self.0.busy_nodes().unwrap_or_default()
    }

    fn set_group_memory(&mut self, index: u32, pages: &[(u32, u64)]) {
        let _ = self.0.set_memory(index, pages);
    }

    fn set_process_memory(&mut self, index: u32, pages: &[(u32, u64)]) {
        let _ = self.0.set_memory(index, pages);
    }

    fn set_moving(&mut self, index: u32, moving: bool) {
        let _ = self.0.set_moving(index, moving);
    }

    fn set_excluded(&mut self, index: u32, excluded: bool) {
        let _ = self.0.exclude(index, excluded);
    }
}

fn set(state: &SetState) -> Set {
    Set {
        index: state.index,
        id: state.id,
        preferred: state.preferred,
        settled_at: state.settled_at,
        started: state.started / TICK,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_the_kernels_numbers_and_their_cpus() {
        let machine = roost_machine::resolve("2n2l4c").unwrap();
        let config = config(&Settings::default(), &machine);
        assert_eq!(config.nodes.len(), 2);
        assert!(config.nodes[&1].contains(&(8..9)) && !config.nodes[&1].contains(&(7..8)));
        assert_eq!(config.least_pages, 16 << 20 >> 12);
    }
}
