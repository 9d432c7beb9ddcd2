//! A thread of the scheduler's own program, such as the loader of a sched_ext scheduler.
//!
//! It sleeps until the time that the scheduler names ([`Scheduler::own_pause`]), has a turn
//! ([`Scheduler::own_turn`]), and keeps a CPU busy for as long as that takes. The scheduler schedules
//! it as any other thread. No run waits for its end.

use roost_workload::{Op, Policy, Process, Program, Template, Workload};

use crate::events::Event;
use crate::interpret::Step;
use crate::run::Engine;
use crate::scheduler::{CpuId, Scheduler, TaskId};
use crate::task::Activity;

/// `workload` with the thread's template appended.
pub(crate) fn with_thread(name: &str, workload: &Workload) -> Workload {
    let mut all = workload.clone();
    let process = all.processes.len() as u32;
    all.processes.push(Process { name: name.to_owned(), forked: false, kernel: false });
    all.templates.push(Template {
        name: name.to_owned(),
        process,
        group: None,
        nice: 0,
        policy: Policy::Normal,
        affinity: None,
        delay_ns: 0,
        footprint_bytes: 0,
        program: Program {
            ops: vec![Op::OwnTurn, Op::Loop { depth: 0, times: 0, to: 0 }],
            loop_depth: 1,
            own_timers: 0,
            affinities: Vec::new(),
            accesses: Vec::new(),
        },
        class: name.to_owned(),
    });
    all
}

impl<S: Scheduler> Engine<'_, S> {
    /// Creates the thread, asleep, from its template. `root` creates it. It was started on CPU 0.
    pub(crate) fn start_own_thread(&mut self, template: usize, root: TaskId) {
        let task = self.new_kernel_thread(template as u32, 0, root);
        let at = self.scheduler.own_pause(&self.world, task);
        self.world.events.set(Event::Timer(task), at);
    }

    /// The thread has a turn, and after that sleeps until the next one.
    #[cold]
    pub(crate) fn own_turn(&mut self, cpu: CpuId, id: TaskId) -> Step {
        if self.begin(id) {
            let ns = self.scheduler.own_turn(&mut self.world, cpu, id);
            return self.busy(id, Activity::Work(ns));
        }
        let at = self.scheduler.own_pause(&self.world, id);
        self.sleep_until(id, at)
    }
}
