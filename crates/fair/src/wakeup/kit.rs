//! A small machine with a fair class on it, for tests of placement.

use std::sync::Arc;

use roost_engine::{CpuId, TaskId, Wake, World};
use roost_machine::CpuSet;

use crate::features::Features;
use crate::state::Fair;

/// The task that is placed.
pub(crate) const WAKEE: TaskId = TaskId(0);
/// The task that wakes or forks it.
pub(crate) const WAKER: TaskId = TaskId(1);
/// Some other tasks.
pub(crate) const OTHERS: [TaskId; 2] = [TaskId(2), TaskId(3)];

/// Two LLCs of four cores, two threads each: the LLCs are CPUs 0 to 7 and 8 to 15, siblings are 2n
/// and 2n + 1.
pub(crate) const TWO_LLCS_SMT: &str = "pack:1 node:1 l3:2 core:4 pu:2";
/// Two LLCs of eight CPUs without SMT.
pub(crate) const TWO_LLCS: &str = "pack:1 node:1 l3:2 core:8 pu:1";
/// Two nodes of one LLC with eight CPUs without SMT.
pub(crate) const TWO_NODES: &str = "pack:2 node:1 l3:1 core:8 pu:1";
/// One LLC of four clusters of two cores without SMT.
pub(crate) const CLUSTERS: &str = "pack:1 node:1 l3:1 l2:4 core:2 pu:1";

/// A fair class and its world at time 0: all CPUs idle, all tasks asleep.
pub(crate) struct Bench {
    pub fair: Fair,
    pub world: World,
}

impl Bench {
    /// The kernel version `scheduler` on the synthetic machine `machine`.
    pub fn new(scheduler: &str, machine: &str) -> Self {
        let machine = Arc::new(roost_machine::resolve(machine).unwrap());
        let world = World::for_test(Arc::clone(&machine), 4);
        let mut fair = Fair::new(&machine, Features::parse(scheduler).unwrap());
        fair.tasks.resize_with(4, Default::default);
        Self { fair, world }
    }

    /// Lets each of these CPUs run a task.
    pub fn busy(&mut self, cpus: impl IntoIterator<Item = CpuId>) {
        for cpu in cpus {
            self.world.mark_queued(cpu);
            self.fair.rqs[cpu].nr_running = 1;
            self.fair.rqs[cpu].nr_runnable = 1;
        }
    }

    /// Lets each CPU but these run a task.
    pub fn busy_except(&mut self, idle: &[CpuId]) {
        let nr_cpus = self.world.machine().nr_cpus();
        self.busy((0..nr_cpus).filter(|cpu| !idle.contains(cpu)));
    }

    /// Lets each of these CPUs run only a SCHED_IDLE task.
    pub fn sched_idle(&mut self, cpus: &[CpuId]) {
        for &cpu in cpus {
            self.busy([cpu]);
            self.fair.rqs[cpu].nr_sched_idle = 1;
            self.fair.sched_idle_cpus.insert(cpu);
        }
    }

    /// Lets the wakee run only on these CPUs.
    pub fn allow(&mut self, cpus: &[CpuId]) {
        let nr_cpus = self.world.machine().nr_cpus();
        self.world.set_allowed_for_test(WAKEE, CpuSet::from_cpus(nr_cpus, cpus.iter().copied()));
    }

    /// WAKER on `cpu` wakes WAKEE, which last ran on `prev`. Returns the CPU chosen.
    pub fn wake(&mut self, cpu: CpuId, prev: CpuId) -> CpuId {
        self.wake_as(wake_on(cpu), prev)
    }

    /// As [`Bench::wake`], with all details.
    pub fn wake_as(&mut self, wake: Wake, prev: CpuId) -> CpuId {
        self.world.set_task_cpu(WAKEE, prev);
        // The recent CPU is prev, unless a test sets another one.
        if self.fair.tasks[WAKEE.index()].recent_used_cpu == 0 {
            self.fair.tasks[WAKEE.index()].recent_used_cpu = prev;
        }
        self.fair.select_task_rq(&mut self.world, WAKEE, wake)
    }

    /// Kernel time that the last placements cost `cpu`, ns.
    pub fn cost(&self, cpu: CpuId) -> u64 {
        self.world.backlog_ns(cpu)
    }
}

/// A wakeup by WAKER on `cpu`, neither synchronous nor from an interrupt.
pub(crate) fn wake_on(cpu: CpuId) -> Wake {
    Wake { cpu, waker: Some(WAKER), sync: false, interrupt: false }
}
