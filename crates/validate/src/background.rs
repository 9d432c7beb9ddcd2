//! What runs in a guest besides rt-app: the kernel's own threads.
//!
//! They run for microseconds, but each makes a CPU newly idle. One that is woken where a task runs also sets the flag
//! that tasks wait somewhere on the machine (`rd->overloaded`). In traces of `hogs` every second CPU that went idle had
//! run one of them. Kinds and numbers are those of such traces (Linux 7.2.13 with Debian's configuration, exact lane,
//! 2026-11-21); phases are chance. What the measuring shell causes is over after the first 40 ms.

use roost_engine::{CpuId, LeftAs, Time, TraceTask, Tracer};
use roost_machine::Machine;
use roost_workload::{Op, Policy, Process, Program, Template, Workload};

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

/// A kind of kernel thread.
struct Kind {
    name: &'static str,
    each: Each,
    /// How often it begins to work, ms.
    period_ms: u64,
    /// When it wakes each time, ms from when it begins.
    wakes_ms: &'static [u64],
    /// For how long it runs beyond what every activation takes. From switch to switch it is 12, 5, 18 and 7
    /// us where no other CPU is busy.
    run_us: u64,
}

/// Timers of the kernel expire at ticks, so that threads of several CPUs wake together.
const THREADS: [Kind; 4] = [
    // vmstat_update(), which each CPU's worker does once a second (sysctl_stat_interval).
    Kind { name: "kworker", each: Each::Cpu, period_ms: 1000, wakes_ms: &[0], run_us: 2 },
    // HPAGE_FRAG_CHECK_INTERVAL_MSEC is 500; it is 128 ticks of 4 ms that pass.
    Kind { name: "kcompactd", each: Each::Node, period_ms: 512, wakes_ms: &[0], run_us: 0 },
    // DAMON_STAT, seen every 640 ms.
    Kind { name: "kdamond", each: Each::Machine, period_ms: 640, wakes_ms: &[0], run_us: 8 },
    // Grace periods: some four a second, of two or three wakeups 8 or 12 ms apart. Three times as many
    // where tasks are forked.
    Kind {
        name: "rcu_preempt",
        each: Each::Machine,
        period_ms: 250,
        wakes_ms: &[0, 8, 16],
        run_us: 0,
    },
];

/// A tick at HZ 250, ms.
const TICK_MS: u64 = 4;

/// `round_jiffies()` lets the CPUs' timers of a second expire 3 ticks apart, the last CPU's first.
const BETWEEN_CPUS_MS: u64 = 3 * TICK_MS;

/// Timers that are set for 64 to 511 ticks expire at multiples of 8 ticks (`LVL_GRAN(1)`).
const COARSE_MS: u64 = 8 * TICK_MS;

/// `workload` with kernel threads beside it, whose phases depend on `seed`.
pub(crate) fn with_kernel_threads(workload: &Workload, machine: &Machine, seed: u64) -> Workload {
    let mut all = workload.clone();
    let until_ms = workload.duration_ns.unwrap_or(0) / 1_000_000;
    let mut start = Vec::new();
    for (kind, number) in THREADS.iter().zip(0..) {
        let phase_ms = scatter(seed, number) % kind.period_ms / TICK_MS * TICK_MS;
        let places: Vec<Option<u32>> = match kind.each {
            Each::Cpu => machine.cpus.iter().map(|cpu| Some(cpu.os_index)).collect(),
            Each::Node => vec![None; machine.nodes.len()],
            Each::Machine => vec![None],
        };
        for cpu in places {
            // Of its own: kernel threads share no caches that anybody would gather them for.
            let process = all.processes.len() as u32;
            all.processes.push(Process { name: "kernel".to_owned(), forked: false });
            start.push((all.templates.len() as u32, 1));
            let phase_ms = cpu.map_or(phase_ms, |cpu| staggered_ms(kind, phase_ms, cpu));
            all.templates.push(Template {
                name: kind.name.to_owned(),
                process,
                group: None,
                nice: 0,
                policy: Policy::Normal,
                affinity: cpu.map(|cpu| vec![cpu]),
                delay_ns: 0,
                footprint_bytes: 0,
                program: program(kind, phase_ms, until_ms),
                class: kind.name.to_owned(),
            });
        }
    }
    start.append(&mut all.start);
    all.start = start;
    all
}

/// When the thread of `cpu` begins for the first time.
fn staggered_ms(kind: &Kind, phase_ms: u64, cpu: u32) -> u64 {
    let before = u64::from(cpu) * BETWEEN_CPUS_MS % kind.period_ms;
    ((phase_ms + kind.period_ms - before) % kind.period_ms).next_multiple_of(COARSE_MS)
}

/// Wakes as the kind says, from `phase_ms` to `until_ms` of the run.
fn program(kind: &Kind, phase_ms: u64, until_ms: u64) -> Program {
    let begins = (phase_ms..until_ms).step_by(kind.period_ms as usize);
    let wakes = begins.flat_map(|begin| kind.wakes_ms.iter().map(move |wake| begin + wake));
    let ops = wakes.flat_map(|wake_ms| {
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

/// A number that looks like chance (splitmix64).
fn scatter(seed: u64, number: u32) -> u64 {
    let mut z = seed ^ u64::from(number).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn is_kernel_thread(task: &TraceTask<'_>) -> bool {
    THREADS.iter().any(|kind| kind.name == task.name)
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
