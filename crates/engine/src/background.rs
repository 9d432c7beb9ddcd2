//! Threads of the kernel that run beside every workload.
//!
//! They run for microseconds, but each makes a CPU newly idle, and one that is woken where a task runs has that wait.
//! Kinds, periods and times were measured in guests with 8 to 16 CPUs (Linux 7.2.13 with Debian's configuration,
//! 2026-11-21; in traces of rt-app's `hogs` every second CPU that went idle had run one of them). When they begin is
//! chance. What a distribution's daemons and interrupts of devices do is not among them: that differs by machine.
//!
//! Together they take each of 8 CPUs 3 times a second. The kernel's page about its osnoise tracer
//! (`Documentation/trace/osnoise-tracer.rst`) shows a virtual machine with 8 busy CPUs: in a second other threads took
//! a CPU 0 to 41 times, 2.5 times in the median.

use roost_machine::Machine;
use roost_workload::{Op, Policy, Process, Program, Template, TimerRef, Workload};

use crate::events::Event;
use crate::run::Engine;
use crate::scheduler::{Scheduler, TaskId};
use crate::task::{State, Task};
use crate::time::Time;

/// Where there is a thread of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Each {
    /// One for every CPU, which alone it may use.
    Cpu,
    /// One for every node.
    Node,
    /// One.
    Machine,
}

/// A kind of kernel thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelThread {
    /// Its name; behind that of a thread that is bound to a CPU comes the CPU's number.
    pub name: &'static str,
    /// Where there is one.
    pub each: Each,
    /// How often it begins to work, ms.
    pub period_ms: u64,
    /// How often it wakes each time, 8 ms apart.
    pub wakes: u32,
    /// For how long it runs beyond what every activation takes, us. From switch to switch it was 12, 5, 18 and 7 us
    /// where no other CPU was busy.
    pub run_us: u64,
}

/// The kinds that run beside any workload. Timers of the kernel expire at ticks, so that threads of several CPUs wake
/// together.
pub const KERNEL_THREADS: [KernelThread; 4] = [
    // vmstat_update(), which each CPU's worker does once a second (sysctl_stat_interval).
    KernelThread { name: "kworker", each: Each::Cpu, period_ms: 1000, wakes: 1, run_us: 2 },
    // HPAGE_FRAG_CHECK_INTERVAL_MSEC is 500; it is 128 ticks of 4 ms that pass.
    KernelThread { name: "kcompactd", each: Each::Node, period_ms: 512, wakes: 1, run_us: 0 },
    // DAMON_STAT, seen every 640 ms.
    KernelThread { name: "kdamond", each: Each::Machine, period_ms: 640, wakes: 1, run_us: 8 },
    // Grace periods: some four a second, of two or three wakeups 8 or 12 ms apart. Three times as many
    // where tasks are forked.
    KernelThread { name: "rcu_preempt", each: Each::Machine, period_ms: 250, wakes: 3, run_us: 0 },
];

/// Between the wakeups of a grace period, ms.
const BETWEEN_WAKES_MS: u64 = 8;

/// A tick at HZ 250, ms.
const TICK_MS: u64 = 4;

/// `round_jiffies()` lets the CPUs' timers of a second expire 3 ticks apart, the last CPU's first.
const BETWEEN_CPUS_MS: u64 = 3 * TICK_MS;

/// Timers that are set for 64 to 511 ticks expire at multiples of 8 ticks (`LVL_GRAN(1)`).
const COARSE_MS: u64 = 8 * TICK_MS;

const NS_PER_MS: u64 = 1_000_000;

/// `workload` with the templates of these threads behind its own.
pub(crate) fn with_threads(machine: &Machine, workload: &Workload) -> Workload {
    let mut all = workload.clone();
    for kind in &KERNEL_THREADS {
        kind.affinities(machine).into_iter().for_each(|affinity| kind.add_to(&mut all, affinity));
    }
    all
}

impl KernelThread {
    /// Adds the template of a thread to a workload, which does not start it. `affinity` is the one CPU that it may
    /// use, if it is bound to one.
    pub fn add_to(&self, workload: &mut Workload, affinity: Option<u32>) {
        // Of its own: threads of the kernel share no memory for which anybody would gather them.
        let process = workload.processes.len() as u32;
        workload.processes.push(Process { name: self.name.to_owned(), forked: false });
        workload.templates.push(self.template(process, affinity));
    }

    /// Whether a thread of this kind has that name.
    pub fn is_named(&self, name: &str) -> bool {
        name.strip_prefix(self.name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// The one CPU that each of its threads may use, if it is bound to one.
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

    /// What it does from its first wakeup on.
    fn program(&self) -> Program {
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

    /// A time within its period, at a tick, that `chance` makes, ms.
    pub fn phase_ms(&self, chance: u64) -> u64 {
        chance % self.period_ms / TICK_MS * TICK_MS
    }

    /// When it wakes if it begins to work at `begin_ms`, ms.
    pub fn wakes_ms(&self, begin_ms: u64) -> impl Iterator<Item = u64> + use<> {
        (0..u64::from(self.wakes)).map(move |wake| begin_ms + wake * BETWEEN_WAKES_MS)
    }

    /// When its thread `index` wakes for the first time, ms; that of the kind is `phase_ms`.
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
    /// Creates the threads, asleep, whose templates [`with_threads`] has put from `first` on. `root` is their parent.
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
                let at = Time(kind.first_ms(phase_ms, index) * NS_PER_MS);
                self.world.tasks[task.index()].timers[0] = Some(at);
                self.world.events.set(Event::Timer(task), at);
                template += 1;
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

    /// Whether nothing happens any more but timers of the kernel: `event` is one, all CPUs are idle, and nothing will
    /// wake a task of the workload.
    pub(crate) fn is_dead(&self, event: Event) -> bool {
        let of_kernel = match event {
            Event::SchedulerTimer(_) => true,
            Event::Timer(task) => self.world.tasks[task.index()].kernel,
            Event::RunEnd(_) | Event::Tick(_) | Event::Interrupt(_) => false,
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

    /// As `round_jiffies_common()` has it: the timers of a second go round the CPUs, 12 ms apart.
    #[test]
    fn workers_of_cpus_wake_apart_and_all_in_the_first_period() {
        let worker = &KERNEL_THREADS[0];
        let firsts: Vec<u64> = (0..4).map(|cpu| worker.first_ms(500, cpu)).collect();
        // 500, 488, 476, 464 ms, each at the next multiple of 32 ms.
        assert_eq!(firsts, [512, 512, 480, 480]);
        assert!((0..512).all(|cpu| worker.first_ms(996, cpu) <= 1024));
    }
}
