//! What runs in a guest besides rt-app: the kernel's own threads.
//!
//! They run for microseconds, but each makes a CPU newly idle, and one that is woken where a task runs
//! tells the whole machine that tasks wait (`rd->overloaded`): in traces of `hogs` every second CPU
//! that went idle had run one of them. Kinds and numbers are those of such traces (Linux 7.2.13 with
//! Debian's configuration, exact lane, 2026-11-21), phases are chance. What the measuring shell causes
//! is over after the first 40 ms.

use roost_engine::{CpuId, LeftAs, Time, TraceTask, Tracer};
use roost_machine::Machine;
use roost_workload::{Op, Policy, Process, Program, Template, TimerRef, Workload};

/// Where there is a thread of a kind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Each {
    /// One for every CPU, which alone it may use.
    Cpu,
    /// One for every node.
    Node,
    /// One.
    Machine,
}

/// A kind of kernel thread: its name, where it is, every how many ms it wakes and for how many us it
/// runs.
const THREADS: [(&str, Each, u64, u64); 4] = [
    // vmstat_update(), which each CPU's worker does once a second (sysctl_stat_interval).
    ("kworker", Each::Cpu, 1000, 12),
    // HPAGE_FRAG_CHECK_INTERVAL_MSEC is 500; it is 128 ticks of 4 ms that pass.
    ("kcompactd", Each::Node, 512, 5),
    // DAMON_STAT, seen every 640 ms.
    ("kdamond", Each::Machine, 640, 18),
    // Grace periods: some four wakeups a second, in twos and threes.
    ("rcu_preempt", Each::Machine, 250, 7),
];

/// `workload` with kernel threads beside it, whose phases depend on `seed`.
pub(crate) fn with_kernel_threads(workload: &Workload, machine: &Machine, seed: u64) -> Workload {
    let mut all = workload.clone();
    let process = all.processes.len() as u32;
    all.processes.push(Process { name: "kernel".to_owned() });
    let mut start = Vec::new();
    for (name, each, period_ms, run_us) in THREADS {
        let places: Vec<Option<u32>> = match each {
            Each::Cpu => machine.cpus.iter().map(|cpu| Some(cpu.os_index)).collect(),
            Each::Node => vec![None; machine.nodes.len()],
            Each::Machine => vec![None],
        };
        for cpu in places {
            let number = all.templates.len() as u32;
            let period_ns = period_ms * 1_000_000;
            let phase_ns = scatter(seed, number) % period_ns;
            start.push((number, 1));
            all.templates.push(Template {
                name: name.to_owned(),
                process,
                group: None,
                nice: 0,
                policy: Policy::Normal,
                affinity: cpu.map(|cpu| vec![cpu]),
                delay_ns: 0,
                footprint_bytes: 0,
                program: program(phase_ns, period_ns, run_us * 1000),
                class: name.to_owned(),
            });
        }
    }
    start.append(&mut all.start);
    all.start = start;
    all
}

/// Sleeps for a phase, then runs once a period.
fn program(phase_ns: u64, period_ns: u64, run_ns: u64) -> Program {
    let timer = TimerRef::Own(0);
    Program {
        ops: vec![
            Op::Sleep { ns: phase_ns.max(1) },
            Op::Run { ns: run_ns },
            Op::Timer { timer, period_ns, absolute: false },
            Op::Loop { depth: 0, times: 0, to: 1 },
        ],
        loop_depth: 1,
        own_timers: 1,
        affinities: Vec::new(),
        accesses: Vec::new(),
    }
}

/// A number that looks like chance (splitmix64).
fn scatter(seed: u64, number: u32) -> u64 {
    let mut z = seed ^ u64::from(number).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn is_kernel_thread(task: &TraceTask<'_>) -> bool {
    THREADS.iter().any(|(name, ..)| *name == task.name)
}

/// Tells a tracer of everything but kernel threads: where they run it sees the idle task, as of a real
/// run's trace only rt-app's tasks are counted.
pub(crate) struct WithoutKernelThreads {
    inner: Box<dyn Tracer>,
    /// The last switch was to a task that `inner` knows.
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
        let of = |name: &str| all.templates.iter().filter(|task| task.name == name).count();
        assert_eq!(["kworker", "kcompactd", "kdamond", "rcu_preempt"].map(of), [16, 2, 1, 1]);
        assert_eq!(all.templates[..scenario.templates.len()], scenario.templates[..]);
        assert_eq!(all.start.len(), scenario.start.len() + 20);
        assert_eq!(all.validate().err(), None);
        assert_ne!(all, with_kernel_threads(&scenario, &machine, 2), "phases are the seed's");
    }
}
