//! The live scheduler's daemon (crate `memory`) over simulated pages. It is a thread of roost's loader that runs beside
//! the workload. It is the shipped daemon, as the scheduler `roost` is the shipped BPF program: only the machine under
//! it is simulated.
//!
//! ```text
//!   engine: own_turn ──► Follower ──► Daemon::step ──► Simulated (host.rs): processes, pages, move_pages ──► engine
//!                                          └─────────► Sets over Simulated maps ──────────────────────────► scx
//! ```

mod host;

use roost_engine::{CpuId, TaskId, Time, World};
use roost_layout::{Layout, NONE, STEP, SetEntry, Sets, Tables};
use roost_machine::Machine;
use roost_memory::{Counters, Daemon};
use roost_policy::cling::NodeAttempts;
use roost_scx::{Companion, UserMaps};
use roost_settings::Settings;

use host::Simulated;

/// The daemon and its thread.
pub(crate) struct Follower {
    daemon: Daemon,
    layout: Layout,
    settings: Settings,
    /// CPU time of the thread, ns.
    ran_ns: u64,
    /// CPU time of its system calls that do not move pages, ns.
    spent_ns: u64,
}

impl Follower {
    /// The daemon, if it has something to do. The CPUs and nodes of `machine` have the numbers of the simulation.
    pub(crate) fn new(settings: &Settings, machine: &Machine, has_memory: bool) -> Option<Self> {
        let config = roost_layout::daemon(settings, machine, has_memory)?;
        Some(Self {
            daemon: Daemon::new(config, 0),
            layout: Layout::of(machine),
            settings: settings.clone(),
            ran_ns: 0,
            spent_ns: 0,
        })
    }
}

impl Companion for Follower {
    fn name(&self) -> &str {
        "memory"
    }

    fn turn(&mut self, world: &mut World, cpu: CpuId, maps: &mut UserMaps<'_>) -> u64 {
        let now = world.now().ns();
        let moving_ns = self.ran_ns.saturating_sub(self.spent_ns);
        let mut host = Simulated::new(world, cpu, maps, moving_ns);
        let mut sets = Sets::new(InMaps(maps), &self.layout, &self.settings);
        self.daemon.step(now, &mut host, &mut sets);
        let spent_ns = host.spent_ns();
        self.spent_ns += spent_ns;
        spent_ns
    }

    /// As the loop of the live scheduler's thread (`crates/live/src/memory.rs`).
    fn pause(&mut self, world: &World, task: TaskId) -> Time {
        self.ran_ns = world.run_ns(task);
        let now = world.now();
        let wait = match now.ns() {
            0 => STEP,
            now => STEP.max(self.daemon.due_at().saturating_sub(now)),
        };
        now + wait
    }

    /// The names are those that the live scheduler serves to Prometheus.
    fn counters(&self, sink: &mut dyn FnMut(&str, u64)) {
        // Its number of large processes is left out, because it is no count of events.
        let Counters { sampled, moved, stuck, no_room, bound, large_processes: _ } =
            self.daemon.counters();
        sink("roost_memory_sampled", sampled);
        sink("roost_memory_moved", moved);
        sink("roost_memory_stuck", stuck);
        sink("roost_memory_no_room", no_room);
        sink("roost_memory_bound", bound);
        sink("roost_daemon_us", self.ran_ns / 1000);
    }
}

/// The scheduler's tables in the maps of the simulated kernel.
struct InMaps<'a, 'b>(&'a mut UserMaps<'b>);

impl InMaps<'_, '_> {
    /// A member of an array's value.
    fn number(&self, map: &str, index: u32, member: &str) -> Option<u64> {
        self.0.read(map, &index.to_le_bytes(), member)
    }
}

impl Tables for InMaps<'_, '_> {
    fn ids(&mut self) -> Vec<u64> {
        let keys = self.0.keys("set_ids");
        keys.into_iter().map(|key| u64::from_le_bytes(key.try_into().unwrap_or_default())).collect()
    }

    fn index(&mut self, id: u64) -> Option<u32> {
        self.0.read("set_ids", &id.to_le_bytes(), "").map(|index| index as u32)
    }

    fn set(&mut self, index: u32) -> Option<SetEntry> {
        let number = |member| self.number("sets", index, member);
        Some(SetEntry {
            id: number("id")?,
            preferred: number("preferred")? as u32,
            settled_at: number("settled_at")?,
            started: number("started")?,
        })
    }

    fn attempts(&mut self, node: u32) -> NodeAttempts {
        let number = |member| self.number("homes", node, member).unwrap_or(0);
        NodeAttempts {
            failed: number("attempts.failed"),
            tried: number("attempts.tried"),
            ratio: number("attempts.ratio"),
        }
    }

    fn busiest(&mut self) -> u32 {
        self.0.variable("busiest").map_or(NONE, |node| node as u32)
    }

    fn write_memory(&mut self, index: u32, pages: u64) {
        self.0.write("set_memory", &index.to_le_bytes(), "", pages);
    }

    fn write_moves(&mut self, index: u32, moves: u32) {
        self.0.write("set_moves", &index.to_le_bytes(), "", moves.into());
    }

    fn write_flags(&mut self, index: u32, flags: u32) {
        self.0.write("set_flags", &index.to_le_bytes(), "", flags.into());
    }
}
