//! Threads of the kernel that are bound to a CPU and wait for a deferrable timer: one that updates statistics
//! (`background.rs`), and those with which a machine's frequency governor samples its CPUs.
//!
//! Linux's `ondemand` of 2013 has a worker on each CPU that checks how busy the CPU was since the
//! last check. Its timer is deferrable and expires at the same jiffy on all CPUs
//! (`dbs_timer_init()`, `do_dbs_timer()`): at the first tick after the period that finds the CPU
//! busy. It changes no clock in the simulation. What remains is that the running task is
//! preempted for some microseconds, and other CPUs see it wait.

use roost_machine::{Machine, Sampling};
use roost_workload::{Op, Policy, Process, Program, Template, Workload};

use crate::run::Engine;
use crate::scheduler::{CpuId, Scheduler, TaskId};
use crate::time::Time;

/// A thread of the kernel that is bound to a CPU and works at a deferrable timer. While the CPU is idle, the timer does
/// not expire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Worker {
    task: TaskId,
    period_ns: u64,
    /// The timer is due at multiples of the period from here on.
    phase_ns: u64,
    /// The first tick after this time wakes it. Never, while it works.
    due: Time,
}

impl Worker {
    /// A worker that waits from `now` on. `phase_ns` is less than the period.
    pub fn new(task: TaskId, period_ns: u64, phase_ns: u64, now: Time) -> Self {
        let mut worker = Self { task, period_ns, phase_ns, due: Time::NEVER };
        worker.wait(now);
        worker
    }

    /// Waits until its timer is due again.
    fn wait(&mut self, now: Time) {
        let periods = (now.ns() + self.period_ns - self.phase_ns) / self.period_ns;
        self.due = Time(periods * self.period_ns + self.phase_ns);
    }
}

/// The program of a worker that runs for `run_ns` each time.
pub(crate) fn program(run_ns: u64) -> Program {
    let again = Op::Loop { depth: 0, times: 0, to: 0 };
    Program {
        ops: vec![Op::Run { ns: run_ns }, Op::AwaitWork, again],
        loop_depth: 1,
        own_timers: 0,
        affinities: Vec::new(),
        accesses: Vec::new(),
    }
}

/// `workload` with the templates of the governor's threads appended, one per CPU; `None` if the machine has
/// no such threads.
pub(crate) fn with_samplers(machine: &Machine, workload: &Workload) -> Option<Workload> {
    let ns = machine.figures.sampling?.run_ns.value;
    let mut all = workload.clone();
    for cpu in &machine.cpus {
        let name = format!("kworker/{}", cpu.os_index);
        // A process of its own, because kernel threads share no memory for which a scheduler should
        // gather them.
        let process = all.processes.len() as u32;
        all.processes.push(Process { name: name.clone(), forked: false, kernel: true });
        all.templates.push(Template {
            name,
            process,
            group: None,
            nice: 0,
            policy: Policy::Normal,
            affinity: Some(vec![cpu.os_index]),
            delay_ns: 0,
            footprint_bytes: 0,
            program: program(ns),
            class: "kworker".to_owned(),
        });
    }
    Some(all)
}

impl<S: Scheduler> Engine<'_, S> {
    /// Creates the governor's threads, asleep, if the machine has them. `root` is their parent.
    pub(crate) fn start_samplers(&mut self, root: TaskId) {
        let Some(Sampling { period_ns, .. }) = self.world.machine.figures.sampling else { return };
        let nr_cpus = self.world.nr_cpus();
        let first = self.workload.templates.len() - nr_cpus;
        for cpu in 0..nr_cpus {
            let task = self.new_kernel_thread((first + cpu) as u32, cpu, root);
            self.workers.push(Worker::new(task, period_ns.value, 0, self.world.now()));
        }
    }

    /// The worker `id` has finished its work.
    pub(crate) fn await_work(&mut self, id: TaskId) {
        let (now, cpu) = (self.world.now(), self.world.task_cpu(id));
        let mut of_cpu = self.workers.iter_mut().skip(cpu).step_by(self.world.nr_cpus());
        if let Some(worker) = of_cpu.find(|worker| worker.task == id) {
            worker.wait(now);
        }
    }

    /// At a tick of the busy CPU `cpu`: wakes its workers whose timers are due.
    pub(crate) fn wake_workers(&mut self, cpu: CpuId) {
        // All CPUs have one of a kind, in the order of CPUs.
        let nr_cpus = self.world.nr_cpus();
        let mut index = cpu;
        while let Some(worker) = self.workers.get_mut(index) {
            index += nr_cpus;
            if worker.due <= self.world.now {
                worker.due = Time::NEVER;
                let task = worker.task;
                self.expire(cpu, task, 0);
            }
        }
    }
}
