//! The kernel threads that run in a guest besides rt-app. They are the same that the engine adds to any workload
//! ([`KernelThread`]).
//!
//! Here the root task forks them just before rt-app starts. In the engine they have been asleep for long. The
//! difference exists because in a guest, a shell starts rt-app soon after the boot, so the CPUs have just run other
//! tasks. If CPUs were idle for long, the stages of two chains would be off by 6 to 9 points of run time by node (the
//! bar is 5), and `fork` would agree in 63 to 68% of its counters instead of 70% and more.

use roost_engine::{CpuId, KERNEL_THREADS, KernelThread, LeftAs, Time, TraceTask, Tracer};
use roost_machine::Machine;
use roost_workload::{Op, Program, Workload};

/// `workload` with kernel threads. Their phases depend on `seed`.
pub(crate) fn with_kernel_threads(workload: &Workload, machine: &Machine, seed: u64) -> Workload {
    let mut all = workload.clone();
    let until_ms = workload.duration_ns.unwrap_or(0) / 1_000_000;
    let mut start = Vec::new();
    for (kind, number) in KERNEL_THREADS.iter().zip(0..) {
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

fn is_kernel_thread(task: &TraceTask<'_>) -> bool {
    KERNEL_THREADS.iter().any(|kind| kind.is_named(task.name))
}

/// Hides kernel threads from a tracer, which sees the idle task instead. In a real run's trace, also only rt-app's
/// tasks are counted.
pub(crate) struct WithoutKernelThreads {
    inner: Box<dyn Tracer>,
    /// Whether the last switch was to a task that `inner` sees.
    told: bool,
}

impl WithoutKernelThreads {
    pub(crate) fn new(inner: Box<dyn Tracer>) -> Self {
        Self { inner, told: false }
    }
}

impl Tracer for WithoutKernelThreads {
    fn switch(
        &mut self,
        now: Time,
        cpu: CpuId,
        previous: Option<(TraceTask<'_>, LeftAs)>,
        next: Option<TraceTask<'_>>,
    ) {
        let previous = previous.filter(|(task, _)| !is_kernel_thread(task));
        let next = next.filter(|task| !is_kernel_thread(task));
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
        if !is_kernel_thread(&task) {
            self.inner.wakeup(now, from, task, target);
        }
    }

    fn queued(&mut self, now: Time, task: TraceTask<'_>) {
        if !is_kernel_thread(&task) {
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
        let all = with_kernel_threads(&scenario, &machine, 1);
        let of = |name: &str| all.templates.iter().filter(|task| task.class == name).count();
        assert_eq!(["kworker", "kcompactd", "kdamond", "rcu_preempt"].map(of), [16, 2, 1, 1]);
        assert_eq!(all.templates[..scenario.templates.len()], scenario.templates[..]);
        assert_eq!(all.start.len(), scenario.start.len() + 20);
        assert_eq!(all.validate().err(), None);
        assert_ne!(all, with_kernel_threads(&scenario, &machine, 2), "phases are the seed's");
    }
}
