//! Kernel threads that run beside every workload.
//!
//! They run only for microseconds, but each makes a CPU newly idle, and if one is woken on a busy
//! CPU, the running task has to wait. Kinds, periods and times were measured in guests with 8 to 16
//! CPUs (Linux 7.2.13 with Debian's configuration; `docs/notes/2026-11-27-background.md`). The seed decides when they
//! begin. Daemons of a distribution and interrupts of devices are not included, because they differ between machines.
//! Nor is the stopper of each CPU, which runs for some microseconds every 4 s.
//!
//! Together they run twice a second on each of 8 busy CPUs, as in the guest. The documentation of the kernel's osnoise
//! tracer (`Documentation/trace/osnoise-tracer.rst`) shows a virtual machine with 8 busy CPUs.
//! There, within a second, other threads ran on a CPU 0 to 41 times, 2.5 times in the median.

use roost_machine::Machine;
use roost_workload::{Op, Policy, Process, Program, Template, TimerRef, Workload};

use crate::events::Event;
use crate::run::Engine;
use crate::scheduler::{Scheduler, TaskId};
use crate::task::{State, Task};
use crate::time::Time;
use crate::workers::{self, Worker};

/// How many threads of a kind there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Each {
    /// One for every CPU, and bound to it.
    Cpu,
    /// One for every node.
    Node,
    /// One for the machine.
    Machine,
}

/// A kind of kernel thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelThread {
    /// Its name. For a thread bound to a CPU the CPU's number follows.
    pub name: &'static str,
    /// How many threads of this kind there are.
    pub each: Each,
    /// Whether its timer is deferrable: it waits while its CPU is idle. Only for threads of CPUs.
    pub deferrable: bool,
    /// Period of its work, ms.
    pub period_ms: u64,
    /// Number of wakeups per period, 8 ms apart.
    pub wakes: u32,
    /// How long it runs beyond what every activation takes, us. Measured from switch to switch it
    /// was 12, 5, 18 and 7 us, if no other CPU was busy.
    pub run_us: u64,
}

/// The kinds of threads that run beside any workload. Kernel timers expire at ticks, so threads of
/// several CPUs wake together.
pub const KERNEL_THREADS: [KernelThread; 4] = [
    // vmstat_update(): once a second in each CPU's worker (sysctl_stat_interval), as deferrable work. Seen 0.8 times a
    // second on busy CPUs, 1.3 times on idle ones that have timers of other threads, 0.2 times on other idle ones.
    KernelThread { deferrable: true, run_us: 2, ..thread("kworker", Each::Cpu, 1000) },
    // HPAGE_FRAG_CHECK_INTERVAL_MSEC is 500, which becomes 128 ticks of 4 ms.
    thread("kcompactd", Each::Node, 512),
    // DAMON_STAT, seen every 640 ms. In another guest it was three times as often.
    KernelThread { run_us: 8, ..thread("kdamond", Each::Machine, 640) },
    // Grace periods, with two or three wakeups 8 or 12 ms apart: 1.5 wakeups a second if all CPUs are busy, half of
    // that if all are idle. Where tasks are forked beside a tracer, there were eight times as many.
    KernelThread { wakes: 3, ..thread("rcu_preempt", Each::Machine, 2000) },
];

/// A kind that wakes up once in `period_ms` and does only what every activation does.
const fn thread(name: &'static str, each: Each, period_ms: u64) -> KernelThread {
    KernelThread { name, each, deferrable: false, period_ms, wakes: 1, run_us: 0 }
}

/// Time between the wakeups of a grace period, ms.
const BETWEEN_WAKES_MS: u64 = 8;

/// Length of a tick at HZ 250, ms.
const TICK_MS: u64 = 4;

/// `round_jiffies()` makes the CPUs' timers of a second expire 3 ticks apart, that of the last CPU
/// first.
const BETWEEN_CPUS_MS: u64 = 3 * TICK_MS;

/// Timers that are set for 64 to 511 ticks expire at multiples of 8 ticks (`LVL_GRAN(1)`).
const COARSE_MS: u64 = 8 * TICK_MS;

const NS_PER_MS: u64 = 1_000_000;

/// `workload` with the templates of these threads appended.
pub(crate) fn with_threads(machine: &Machine, workload: &Workload) -> Workload {
    let mut all = workload.clone();
    for kind in &KERNEL_THREADS {
        kind.affinities(machine).into_iter().for_each(|affinity| kind.add_to(&mut all, affinity));
    }
    all
}

impl KernelThread {
    /// Adds the template of a thread to a workload, which does not start it. `affinity` is the CPU
    /// to which it is bound, if any.
    pub fn add_to(&self, workload: &mut Workload, affinity: Option<u32>) {
        // A process of its own, because kernel threads share no memory for which a scheduler should
        // gather them.
        let process = workload.processes.len() as u32;
        workload.processes.push(Process {
            name: self.name.to_owned(),
            forked: false,
            kernel: true,
        });
        workload.templates.push(self.template(process, affinity));
    }

    /// Whether a thread of this kind has this name.
    pub fn is_named(&self, name: &str) -> bool {
        name.strip_prefix(self.name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// The CPU to which each of its threads is bound, if any.
    pub fn affinities(&self, machine: &Machine) -> Vec<Option<u32>> {
        match self.each {
            Each::Cpu => machine.cpus.iter().map(|cpu| Some(cpu.os_index)).collect(),
            Each::Node => vec![None; machine.nodes.len()],
            Each::Machine => vec![None],
        }
    }

    fn template(&self, process: u32, affinity: Option<u32>) -> Template {
        let name = affinity.map_or(self.name.to_owned(), |cpu| format!("{}/{cpu}", self.name));
        Template {
            name,
            process,
            group: None,
            nice: 0,
            policy: Policy::Normal,
            affinity: affinity.map(|cpu| vec![cpu]),
            delay_ns: 0,
            footprint_bytes: 0,
            program: self.program(),
            class: self.name.to_owned(),
        }
    }

    /// Its program from the first wakeup on.
    fn program(&self) -> Program {
        if self.deferrable {
            return workers::program(self.run_us * 1000);
        }
        let run = (self.run_us > 0).then_some(Op::Run { ns: self.run_us * 1000 });
        let mut ops: Vec<Op> = run.into_iter().collect();
        for _ in 1..self.wakes {
            ops.push(Op::Sleep { ns: BETWEEN_WAKES_MS * NS_PER_MS });
            ops.extend(run);
        }
        let period_ns = self.period_ms * NS_PER_MS;
        ops.push(Op::Timer { timer: TimerRef::Own(0), period_ns, absolute: true });
        ops.push(Op::Loop { depth: 0, times: 0, to: 0 });
        Program { ops, loop_depth: 1, own_timers: 1, affinities: Vec::new(), accesses: Vec::new() }
    }

    /// A time within its period, at a tick, chosen by `chance`, ms.
    pub fn phase_ms(&self, chance: u64) -> u64 {
        chance % self.period_ms / TICK_MS * TICK_MS
    }

    /// Times of its wakeups if it begins to work at `begin_ms`, ms.
    pub fn wakes_ms(&self, begin_ms: u64) -> impl Iterator<Item = u64> + use<> {
        (0..u64::from(self.wakes)).map(move |wake| begin_ms + wake * BETWEEN_WAKES_MS)
    }

    /// First wakeup of its thread `index`, ms. `phase_ms` is the phase of the kind.
    pub fn first_ms(&self, phase_ms: u64, index: usize) -> u64 {
        match self.each {
            Each::Cpu => {
                let before = index as u64 * BETWEEN_CPUS_MS % self.period_ms;
                ((phase_ms + self.period_ms - before) % self.period_ms).next_multiple_of(COARSE_MS)
            }
            Each::Node | Each::Machine => phase_ms,
        }
    }
}

impl<S: Scheduler> Engine<'_, S> {
    /// Creates the threads, asleep, from the templates that [`with_threads`] appended from `first`
    /// on. `root` is their parent.
    pub(crate) fn start_background(&mut self, first: usize, root: TaskId) {
        let machine = self.world.machine.clone();
        let mut template = first as u32;
        for kind in &KERNEL_THREADS {
            let phase_ms = kind.phase_ms(self.world.random_below(kind.period_ms));
            for (index, affinity) in kind.affinities(&machine).into_iter().enumerate() {
                let cpu = match affinity {
                    Some(_) => index,
                    None => self.world.random_below(machine.cpus.len() as u64) as usize,
                };
                let task = self.new_kernel_thread(template, cpu, root);
                template += 1;
                let first_ms = kind.first_ms(phase_ms, index);
                if kind.deferrable {
                    let (period_ms, now) = (kind.period_ms, self.world.now());
                    let phase_ns = first_ms % period_ms * NS_PER_MS;
                    self.workers.push(Worker::new(task, period_ms * NS_PER_MS, phase_ns, now));
                    continue;
                }
                let at = Time(first_ms * NS_PER_MS);
                self.world.tasks[task.index()].timers[0] = Some(at);
                self.world.events.set(Event::Timer(task), at);
            }
        }
    }

    /// A thread of the kernel, asleep, which has run on `cpu` before, because the machine booted long ago.
    pub(crate) fn new_kernel_thread(&mut self, template: u32, cpu: usize, root: TaskId) -> TaskId {
        let task = self.new_task(template, cpu, root);
        self.live -= 1;
        self.kernel_threads += 1;
        let state = &mut self.world.tasks[task.index()];
        (state.ran_on, state.state, state.kernel) = (Some(cpu), State::Blocked, true);
        state.parent = None;
        self.scheduler.task_new(&mut self.world, task, None);
        task
    }

    /// Whether only timers of the kernel still happen: `event` is one, all CPUs are idle, and
    /// nothing will wake a task of the workload.
    pub(crate) fn is_dead(&self, event: Event) -> bool {
        let of_kernel = match event {
            Event::SchedulerTimer(_) => true,
            Event::Timer(task) => self.world.tasks[task.index()].kernel,
            Event::RunEnd(_) | Event::Tick(_) | Event::Interrupt(_) | Event::Clocks => false,
        };
        let idle = || self.world.cpus.iter().all(|cpu| cpu.current.is_none());
        let comes = |(index, task): (usize, &Task)| match task.state {
            State::Blocked => {
                !task.kernel && self.world.events.is_pending(Event::Timer(TaskId(index as u32)))
            }
            State::Queued | State::Running | State::Arriving => true,
            State::Dead => false,
        };
        of_kernel && idle() && !self.world.tasks.iter().enumerate().any(comes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cpu_and_node_gets_its_threads_and_the_workload_stays_as_it_is() {
        let machine = roost_machine::resolve("2n2l4c").unwrap();
        let workload = roost_workload::resolve("hackbench:groups=1", None).unwrap();
        let all = with_threads(&machine, &workload);
        let of = |name: &str| all.templates.iter().filter(|task| task.class == name).count();
        assert_eq!(["kworker", "kcompactd", "kdamond", "rcu_preempt"].map(of), [16, 2, 1, 1]);
        assert_eq!(all.templates[..workload.templates.len()], workload.templates[..]);
        assert_eq!((all.start.clone(), all.validate().err()), (workload.start, None));
    }

    /// As in `round_jiffies_common()`: the timers of a second go round the CPUs, 12 ms apart.
    #[test]
    fn workers_of_cpus_wake_apart_and_all_in_the_first_period() {
        let worker = &KERNEL_THREADS[0];
        let firsts: Vec<u64> = (0..4).map(|cpu| worker.first_ms(500, cpu)).collect();
        // 500, 488, 476, 464 ms, each at the next multiple of 32 ms.
        assert_eq!(firsts, [512, 512, 480, 480]);
        assert!((0..512).all(|cpu| worker.first_ms(996, cpu) <= 1024));
    }
}
