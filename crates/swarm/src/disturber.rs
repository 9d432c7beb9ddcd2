//! A thread beside the workload that takes CPUs offline and brings them back, and sends tasks to another scheduling
//! class and back: with faults, under the shipped program.

use std::collections::BTreeMap;

use roost_engine::{CpuId, TaskId, Time, World};
use roost_machine::Machine;
use roost_scx::{Companion, UserMaps};

use crate::random::Random;

const NS_PER_MS: u64 = 1_000_000;

/// How long a CPU may take to go offline: the watch of the program looks at the CPU meanwhile (`bpf/watch.h`: after
/// 100 ms, on an idle CPU up to a sixteenth later), and tasks are moved to it and away from it by interrupts.
const LEAVING_NS: u64 = 107 * NS_PER_MS;

/// The value in the trace that tells of a task that came back to the class; its index is the task's number. A task that
/// waited begins a new wait: in the other class it did not wait for a turn.
pub const CAME_BACK: &str = "came back";

/// What happens next to a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Leaves,
    IsOffline,
    ComesBack,
}

/// How soon things happen to CPUs. Times are in ms, but for the bound.
#[derive(Clone, Copy, Debug)]
pub struct Tempo {
    /// When CPUs begin to go, and tasks to change their class: between these times. The workload begins within the
    /// first tick.
    begins: [u64; 2],
    /// How long a CPU takes to go offline, at most.
    leaves: u64,
    /// The longest time that a task may wait for a CPU to go offline, in ns.
    pub(crate) longest_wait_ns: u64,
    /// How long it stays offline, and how long it then stays online, at most.
    stays: u64,
}

impl Tempo {
    /// For runs of any length.
    pub const USUAL: Self =
        Self { begins: [10, 100], leaves: 30, longest_wait_ns: LEAVING_NS, stays: 300 };
    /// For runs of some tens of ms: in these, CPUs come back too, and go before the watch looks.
    pub const QUICK: Self =
        Self { begins: [5, 20], leaves: 8, longest_wait_ns: 8 * NS_PER_MS, stays: 20 };
}

/// The thread.
pub struct Disturber {
    random: Random,
    tempo: Tempo,
    /// What is to come, by time and CPU, ns.
    steps: BTreeMap<(u64, CpuId), Step>,
    /// When a task changes its class next, ns.
    class_at: u64,
    /// How many tasks still do. After that, waits are long enough to be judged.
    class_changes: u64,
    /// Number of CPUs that went offline, of CPUs that came back, and of tasks that changed their class.
    done: [u64; 3],
}

/// The CPUs of a machine that come and go in the case of a seed: up to four. The first CPU of each LLC stays, because
/// the program starts anew if an LLC loses its last CPU.
pub fn unsteady(machine: &Machine, seed: u64) -> Vec<CpuId> {
    let first =
        |&cpu: &CpuId| machine.llcs[machine.cpus[cpu].llc as usize].cpus.first() == Some(cpu);
    let all: Vec<CpuId> = (0..machine.nr_cpus()).filter(|cpu| !first(cpu)).collect();
    let mut random = Random(!seed);
    let mut cpus: Vec<CpuId> = match all.is_empty() {
        true => Vec::new(),
        false => (0..random.range(0, 4)).map(|_| *random.choose(&all)).collect(),
    };
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

impl Disturber {
    /// The thread for the case of a seed, in which these CPUs come and go.
    pub fn new(cpus: &[CpuId], seed: u64, tempo: Tempo) -> Self {
        let mut random = Random(!seed.rotate_left(32));
        let [first, last] = tempo.begins;
        let mut at = || random.range(first, last) * NS_PER_MS;
        let steps = cpus.iter().map(|&cpu| ((at(), cpu), Step::Leaves)).collect();
        let class_at = at();
        let class_changes = random.range(0, 100);
        Self { random, tempo, steps, class_at, class_changes, done: [0; 3] }
    }

    fn step(&mut self, world: &mut World, maps: &mut UserMaps<'_>, cpu: CpuId, step: Step) {
        let (next, most_ms) = match step {
            Step::Leaves => {
                maps.leave(world, cpu);
                (Step::IsOffline, self.tempo.leaves)
            }
            Step::IsOffline => {
                maps.left(world, cpu);
                self.done[0] += 1;
                (Step::ComesBack, self.tempo.stays)
            }
            Step::ComesBack => {
                maps.come_back(world, cpu);
                self.done[1] += 1;
                (Step::Leaves, self.tempo.stays)
            }
        };
        let at = world.now().ns() + self.random.range(1, most_ms * NS_PER_MS);
        self.steps.insert((at, cpu), next);
    }

    fn change_class(&mut self, world: &mut World, maps: &mut UserMaps<'_>) {
        let task = TaskId(self.random.range(0, world.nr_task_ids() as u64 - 1) as u32);
        if world.may_be_changed(task) {
            maps.change_class(world, task);
            self.done[2] += 1;
            world.trace_value(CAME_BACK, world.pid(task) as usize, 0);
        }
        self.class_changes = self.class_changes.saturating_sub(1);
        self.class_at = match self.class_changes {
            0 => u64::MAX,
            _ => world.now().ns() + self.random.range(1, 5 * NS_PER_MS),
        };
    }
}

impl Companion for Disturber {
    fn name(&self) -> &str {
        "disturber"
    }

    fn turn(&mut self, world: &mut World, _cpu: CpuId, maps: &mut UserMaps<'_>) -> u64 {
        let now = world.now().ns();
        while let Some(first) = self.steps.first_entry().filter(|first| first.key().0 <= now) {
            let ((_, cpu), step) = first.remove_entry();
            self.step(world, maps, cpu, step);
        }
        if self.class_at <= now {
            self.change_class(world, maps);
        }
        0
    }

    fn pause(&mut self, world: &World, _: TaskId) -> Time {
        let step = self.steps.first_key_value().map(|((at, _), _)| *at);
        Time(step.unwrap_or(u64::MAX).min(self.class_at)).max(world.now())
    }

    fn counters(&self, sink: &mut dyn FnMut(&str, u64)) {
        for (name, number) in ["went_offline", "came_back", "changed_class"].iter().zip(self.done) {
            sink(name, number);
        }
    }
}
