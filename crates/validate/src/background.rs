//! What runs in a guest besides rt-app: kernel threads, the same that the engine adds to any workload
//! ([`KernelThread`]), and the loader of roost's own scheduler.
//!
//! Here the root task forks them just before rt-app starts. In the engine they have been asleep for long. The
//! difference exists because in a guest, a shell starts rt-app soon after the boot, so the CPUs have just run other
//! tasks. If CPUs were idle for long, the stages of two chains would be off by 6 to 9 points of run time by node (the
//! bar is 5), and `fork` would agree in 63 to 68% of its counters instead of 70% and more.

use roost_engine::{CpuId, Each, KERNEL_THREADS, KernelThread, LeftAs, Time, TraceTask, Tracer};
use roost_machine::Machine;
use roost_workload::{Op, Program, Workload};

/// The loader looks ten times a second whether its program still schedules (`LOOK` in `crates/live/src/scheduler.rs`).
/// How long a look takes was not measured. Here it is what every activation takes.
const LOADER: KernelThread = KernelThread {
    name: "scx_roost",
    each: Each::Machine,
    deferrable: false,
    period_ms: 100,
    wakes: 1,
    run_us: 0,
};

/// Period of grace periods in these scenarios, ms. There are more than usually, because tasks are forked and a tracer
/// starts (measured 2026-11-21).
const GRACE_PERIOD_MS: u64 = 250;

/// The kernel threads of a scenario. No CPU has been idle for long, so deferrable timers expire in time.
fn kernel_threads() -> [KernelThread; 4] {
    KERNEL_THREADS.map(|kind| match kind.name {
        "rcu_preempt" => KernelThread { period_ms: GRACE_PERIOD_MS, ..kind },
        _ => kind,
    })
}

/// The loader's nice value (`NICE` in `crates/live/src/scheduler.rs`).
const LOADER_NICE: i8 = -10;

/// `workload` with kernel threads, and with the loader if `loaded`. Their phases depend on `seed`.
pub(crate) fn accompanied(
    workload: &Workload,
    machine: &Machine,
    loaded: bool,
    seed: u64,
) -> Workload {
    let mut all = workload.clone();
    let until_ms = workload.duration_ns.unwrap_or(0) / 1_000_000;
    let mut start = Vec::new();
    if loaded {
        start.push((all.templates.len() as u32, 1));
        let phase_ms = scatter(seed, KERNEL_THREADS.len() as u32) % LOADER.period_ms;
        add_loader(&mut all, program(&LOADER, phase_ms, until_ms));
    }
    for (kind, number) in kernel_threads().iter().zip(0..) {
        let phase_ms = kind.phase_ms(scatter(seed, number));
        for (index, affinity) in kind.affinities(machine).into_iter().enumerate() {
            start.push((all.templates.len() as u32, 1));
            let first_ms = kind.first_ms(phase_ms, index);
            kind.add_to(&mut all, affinity);
            if let Some(thread) = all.templates.last_mut() {
                thread.program = program(kind, first_ms, until_ms);
            }
        }
    }
    start.append(&mut all.start);
    all.start = start;
    all
}

/// Adds the loader, which is a process, not a thread of the kernel.
fn add_loader(all: &mut Workload, program: Program) {
    LOADER.add_to(all, None);
    if let (Some(task), Some(process)) = (all.templates.last_mut(), all.processes.last_mut()) {
        (task.program, task.nice, process.kernel) = (program, LOADER_NICE, false);
    }
}

/// A program that wakes up as often as this kind of thread does, from `first_ms` to `until_ms` of the run.
fn program(kind: &KernelThread, first_ms: u64, until_ms: u64) -> Program {
    let begins = (first_ms..until_ms).step_by(kind.period_ms as usize);
    let ops = begins.flat_map(|begin| kind.wakes_ms(begin)).flat_map(|wake_ms| {
        let run = (kind.run_us > 0).then_some(Op::Run { ns: kind.run_us * 1000 });
        std::iter::once(Op::SleepUntil { ns: wake_ms * 1_000_000 }).chain(run)
    });
    Program {
        ops: ops.collect(),
        loop_depth: 0,
        own_timers: 0,
        affinities: Vec::new(),
        accesses: Vec::new(),
    }
}

/// A pseudo-random number (splitmix64).
fn scatter(seed: u64, number: u32) -> u64 {
    let mut z = seed ^ u64::from(number).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Whether a task is not the workload's.
fn is_beside(task: &TraceTask<'_>) -> bool {
    KERNEL_THREADS.iter().chain([&LOADER]).any(|kind| kind.is_named(task.name()))
}

/// Hides tasks that are not the workload's from a tracer, which sees the idle task instead. In a real run's trace, also
/// only rt-app's tasks are counted.
pub(crate) struct WorkloadOnly {
    inner: Box<dyn Tracer>,
    /// Whether the last switch was to a task that `inner` sees.
    told: bool,
}

impl WorkloadOnly {
    pub(crate) fn new(inner: Box<dyn Tracer>) -> Self {
        Self { inner, told: false }
    }
}

impl Tracer for WorkloadOnly {
    fn switch(
        &mut self,
        now: Time,
        cpu: CpuId,
        previous: Option<(TraceTask<'_>, LeftAs)>,
        next: Option<TraceTask<'_>>,
    ) {
        let previous = previous.filter(|(task, _)| !is_beside(task));
        let next = next.filter(|task| !is_beside(task));
        self.told = next.is_some();
        if previous.is_some() || next.is_some() {
            self.inner.switch(now, cpu, previous, next);
        }
    }

    fn waits_for_switch(&mut self, ns: u64) {
        if self.told {
            self.inner.waits_for_switch(ns);
        }
    }

    fn wakeup(&mut self, now: Time, from: CpuId, task: TraceTask<'_>, target: CpuId) {
        if !is_beside(&task) {
            self.inner.wakeup(now, from, task, target);
        }
    }

    fn queued(&mut self, now: Time, task: TraceTask<'_>) {
        if !is_beside(&task) {
            self.inner.queued(now, task);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cpu_and_node_gets_its_threads_and_the_scenario_stays_as_it_is() {
        let machine = roost_machine::resolve("2n2l4c").unwrap();
        let scenario = crate::scenario("hogs").unwrap().workload().unwrap();
        let all = accompanied(&scenario, &machine, false, 1);
        let of = |name: &str| all.templates.iter().filter(|task| task.class == name).count();
        assert_eq!(["kworker", "kcompactd", "kdamond", "rcu_preempt"].map(of), [16, 2, 1, 1]);
        assert_eq!(all.templates[..scenario.templates.len()], scenario.templates[..]);
        assert_eq!(all.start.len(), scenario.start.len() + 20);
        assert_eq!(all.validate().err(), None);
        assert_ne!(all, accompanied(&scenario, &machine, false, 2), "phases are the seed's");
        let loaded = accompanied(&scenario, &machine, true, 1);
        let loader = loaded.templates.iter().find(|task| task.class == "scx_roost").unwrap();
        assert_eq!((loader.nice, loaded.processes[loader.process as usize].kernel), (-10, false));
        let sleeps = loader.program.ops.iter().filter(|op| matches!(op, Op::SleepUntil { .. }));
        assert_eq!((sleeps.count(), loaded.validate().err()), (10, None), "of a second");
    }
}
