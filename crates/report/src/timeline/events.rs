//! Turns the events of a run into spans of time. The trace of a real kernel has only events.

use roost_engine::{CpuId, LeftAs, Recorder, Start, Time, TraceTask, Tracer};

use super::recorder::Recording;

/// State of a task.
#[derive(Clone, Copy)]
struct Task {
    /// Whether there is such a task.
    is_known: bool,
    at: Where,
    /// When it was woken or created. [`Time::NEVER`] if it has run since.
    woken_at: Time,
    /// The CPU on which it ran before.
    ran_on: Option<CpuId>,
}

#[derive(Clone, Copy)]
enum Where {
    /// Neither running nor waiting.
    Away,
    Running(CpuId, Time),
    Waiting(CpuId, Time),
}

impl Task {
    const NONE: Self =
        Self { is_known: false, at: Where::Away, woken_at: Time::NEVER, ran_on: None };
}

/// Tells a recorder what follows from the events of a run.
pub(super) struct Events<'a> {
    recording: &'a mut Recording,
    /// The tasks by slot.
    tasks: Vec<Task>,
}

impl<'a> Events<'a> {
    pub fn new(recording: &'a mut Recording) -> Self {
        Self { recording, tasks: Vec::new() }
    }

    /// The run has ended. Tasks may still run or wait.
    pub fn finish(self, end: Time) {
        for (slot, task) in (0..).zip(&self.tasks) {
            match task.at {
                Where::Away => {}
                Where::Running(cpu, since) => self.recording.ran(end, slot, cpu, since),
                Where::Waiting(cpu, since) => self.recording.waited(end, slot, cpu, since),
            }
        }
    }

    /// The state of a task, created if the task is new.
    fn task(&mut self, told: TraceTask<'_>) -> &mut Task {
        let slot = told.slot as usize;
        if slot >= self.tasks.len() {
            self.tasks.resize(slot + 1, Task::NONE);
        }
        let task = &mut self.tasks[slot];
        if !std::mem::replace(&mut task.is_known, true) {
            self.recording.meets(told);
        }
        task
    }

    fn leaves(&mut self, now: Time, cpu: CpuId, told: TraceTask<'_>, left: LeftAs) {
        let task = self.task(told);
        let was = task.at;
        match left {
            LeftAs::Preempted => task.at = Where::Waiting(cpu, now),
            LeftAs::Sleeping => task.at = Where::Away,
            LeftAs::Exited => *task = Task::NONE,
        }
        if let Where::Running(_, since) = was {
            self.recording.ran(now, told.slot, cpu, since);
        }
    }

    fn gets(&mut self, at: Time, cpu: CpuId, told: TraceTask<'_>) {
        let task = self.task(told);
        let was = std::mem::replace(&mut task.at, Where::Running(cpu, at));
        let woken_at = std::mem::replace(&mut task.woken_at, Time::NEVER);
        let ran_on = task.ran_on.replace(cpu);
        // Of a task that did not wait, the trace lacks the wakeup.
        let (queue, queued_at) = match was {
            Where::Waiting(queue, since) => (queue, since),
            _ => (cpu, at),
        };
        let start = Start { at, cpu, queue, queued_at, woken_at, ran_on, until_switch_ns: 0 };
        self.recording.started(told.slot, &start);
    }
}

impl Tracer for Events<'_> {
    fn switch(
        &mut self,
        now: Time,
        cpu: CpuId,
        previous: Option<(TraceTask<'_>, LeftAs)>,
        next: Option<TraceTask<'_>>,
    ) {
        if let Some((task, left)) = previous {
            self.leaves(now, cpu, task, left);
        }
        if let Some(task) = next {
            self.gets(now, cpu, task);
        }
    }

    fn wakeup(&mut self, now: Time, _from: CpuId, told: TraceTask<'_>, target: CpuId) {
        let task = self.task(told);
        (task.at, task.woken_at) = (Where::Waiting(target, now), now);
    }
}
