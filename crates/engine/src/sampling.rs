//! The threads with which a machine's frequency governor samples its CPUs.
//!
//! Linux's `ondemand` of 2013 has a worker on each CPU that checks how busy the CPU was since the
//! last check. Its timer is deferrable and expires at the same jiffy on all CPUs
//! (`dbs_timer_init()`, `do_dbs_timer()`): at the first tick after the period that finds the CPU
//! busy. Frequencies are constant in the simulation. What remains is that the running task is
//! preempted for some microseconds, and other CPUs see it wait.

use roost_machine::{Machine, Sampling};
use roost_workload::{Op, Policy, Process, Program, Template, Workload};

use crate::run::Engine;
use crate::scheduler::{CpuId, Scheduler, TaskId};
use crate::time::Time;

/// The sampling thread of a CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampler {
    task: TaskId,
    period_ns: u64,
    /// The first tick after this time wakes it. Never, while it works.
    due: Time,
}

impl Sampler {
    /// Waits until the next multiple of the period.
    fn wait(&mut self, now: Time) {
        self.due = Time((now.ns() / self.period_ns + 1) * self.period_ns);
    }
}

/// `workload` with the templates of these threads appended, one per CPU; `None` if the machine has
/// no such threads.
pub(crate) fn with_threads(machine: &Machine, workload: &Workload) -> Option<Workload> {
    let ns = machine.figures.sampling?.run_ns.value;
    let mut all = workload.clone();
    for cpu in &machine.cpus {
        let name = format!("kworker/{}", cpu.os_index);
        // A process of its own, because kernel threads share no memory for which a scheduler should
        // gather them.
        let process = all.processes.len() as u32;
        all.processes.push(Process { name: name.clone(), forked: false, kernel: true });
        let again = Op::Loop { depth: 0, times: 0, to: 0 };
        all.templates.push(Template {
            name,
            process,
            group: None,
            nice: 0,
            policy: Policy::Normal,
            affinity: Some(vec![cpu.os_index]),
            delay_ns: 0,
            footprint_bytes: 0,
            program: Program {
                ops: vec![Op::Run { ns }, Op::AwaitSample, again],
                loop_depth: 1,
                own_timers: 0,
                affinities: Vec::new(),
                accesses: Vec::new(),
            },
            class: "kworker".to_owned(),
        });
    }
    Some(all)
}

impl<S: Scheduler> Engine<'_, S> {
    /// Creates the threads, asleep, if the machine has them. `root` is their parent.
    pub(crate) fn start_samplers(&mut self, root: TaskId) {
        let Some(Sampling { period_ns, .. }) = self.world.machine.figures.sampling else { return };
        let nr_cpus = self.world.nr_cpus();
        let first = self.workload.templates.len() - nr_cpus;
        for cpu in 0..nr_cpus {
            let task = self.new_kernel_thread((first + cpu) as u32, cpu, root);
            let mut sampler = Sampler { task, period_ns: period_ns.value, due: Time::NEVER };
            sampler.wait(self.world.now());
            self.samplers.push(sampler);
        }
    }

    /// The thread of a CPU has finished its work.
    pub(crate) fn await_sample(&mut self, id: TaskId) {
        let cpu = self.world.task_cpu(id);
        self.samplers[cpu].wait(self.world.now());
    }

    /// At a tick of the busy CPU `cpu`: wakes its thread if that is due.
    pub(crate) fn sample(&mut self, cpu: CpuId) {
        let now = self.world.now;
        let Some(sampler) = self.samplers.get_mut(cpu).filter(|sampler| sampler.due <= now) else {
            return;
        };
        sampler.due = Time::NEVER;
        let task = sampler.task;
        self.expire(cpu, task, 0);
    }
}
