//! The engine's counters.

use crate::events::EVENT_NAMES;

/// Counters of one run. They have the kernel's names, if the kernel has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Wakeups of sleeping tasks.
    pub wakeups: u64,
    /// Wakeups placed on the CPU where the task last ran.
    pub wakeups_prev: u64,
    /// Wakeups placed on a CPU of the waker's LLC.
    pub wakeups_waker_llc: u64,
    /// Starts of a task on another CPU than the one it last ran on.
    pub migrations: u64,
    /// Migrations to another LLC of the same node.
    pub migrations_llc: u64,
    /// Migrations to another node.
    pub migrations_node: u64,
    /// Switches from one task (or idle) to another.
    pub context_switches: u64,
    /// Tasks created.
    pub forks: u64,
    /// Ticks on CPUs that were not idle.
    pub ticks: u64,
    /// Interrupts that one CPU sent to another.
    pub ipis: u64,
    /// Time tasks spent on CPUs, ns, kernel work for them included. Known at the end of the run.
    pub run_ns: u64,
    /// Time tasks waited in a queue for a CPU, ns (`run_delay`). It begins when a task is queued,
    /// which is after the search and the interrupt of a wakeup.
    pub run_delay_ns: u64,
    /// Kernel work charged to CPUs, ns.
    pub kernel_ns: u64,
    /// Events handled, by kind ([`EVENT_NAMES`]).
    pub events: [u64; EVENT_NAMES.len()],
}

impl Counters {
    /// Name and value of every counter, in a fixed order.
    pub fn for_each(&self, sink: &mut dyn FnMut(&str, u64)) {
        sink("wakeups", self.wakeups);
        sink("wakeups_prev", self.wakeups_prev);
        sink("wakeups_waker_llc", self.wakeups_waker_llc);
        sink("migrations", self.migrations);
        sink("migrations_llc", self.migrations_llc);
        sink("migrations_node", self.migrations_node);
        sink("context_switches", self.context_switches);
        sink("forks", self.forks);
        sink("ticks", self.ticks);
        sink("ipis", self.ipis);
        sink("run_ns", self.run_ns);
        sink("run_delay_ns", self.run_delay_ns);
        sink("kernel_ns", self.kernel_ns);
        for (name, count) in EVENT_NAMES.iter().zip(self.events) {
            sink(&format!("events_{name}"), count);
        }
    }
}
