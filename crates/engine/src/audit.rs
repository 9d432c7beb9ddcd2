//! Checks of the engine's state that hold between events, in builds with debug assertions.
//!
//! Each check is a function that compares two places with the same information, and panics with
//! both. [`Scheduler::audit`] does the same for the scheduler's state.

use crate::changes::Waits;
use crate::events::Event;
use crate::run::Engine;
use crate::scheduler::{Scheduler, TaskId, Work};
use crate::task::State;
use crate::time::Time;
use crate::world::{Arrival, Looking, World};

/// Number of CPUs, tasks and groups of pages examined per event. The cost of an audit is
/// proportional to their number, so the audit takes the same part of any run: about a fifth, most
/// of it for the scheduler's checks.
const SIZE_PER_EVENT: usize = 4;

impl<S: Scheduler> Engine<'_, S> {
    /// Runs all checks once every so many events. The larger machine and workload are, the rarer.
    pub(crate) fn audit_sometimes(&mut self) {
        if self.until_audit > 0 {
            self.until_audit -= 1;
            return;
        }
        self.until_audit = self.world.audit() / SIZE_PER_EVENT;
        self.audit_live();
        self.audit_waiters();
        self.scheduler.audit(&self.world);
    }

    /// Tasks that have not exited are counted, and the numbers of exited tasks are free.
    fn audit_live(&self) {
        let now = self.world.now;
        let alive = |task: &&crate::task::Task| task.state != State::Dead;
        let tasks = self.world.tasks.iter().filter(alive);
        let waited_for = tasks.clone().filter(|task| !task.kernel).count();
        assert_eq!(self.live as usize, waited_for, "tasks counted as live, and alive, at {now:?}");
        let dead = self.world.tasks.len() - tasks.count();
        assert_eq!(self.free.len(), dead, "free task numbers, and tasks that exited, at {now:?}");
    }

    /// A task that waits for a mutex, a condition, a barrier or a channel sleeps.
    fn audit_waiters(&self) {
        let now = self.world.now;
        for (what, task) in self.shared.waiters() {
            let state = self.world.tasks[task.index()].state;
            assert_eq!(
                state,
                State::Blocked,
                "{} waits for a {what} at {now:?}",
                self.world.label(task)
            );
        }
    }
}

impl World {
    /// A task as in messages.
    pub(crate) fn label(&self, task: TaskId) -> String {
        format!("task {} ({})", self.name(task), self.pid(task))
    }

    /// Runs all checks of the world alone. Returns the number of CPUs, tasks and groups of pages
    /// examined.
    pub(crate) fn audit(&self) -> usize {
        self.audit_current();
        self.audit_speeds();
        self.audit_idle();
        self.audit_arrivals();
        self.audit_waiting();
        self.audit_changes();
        self.audit_events();
        self.audit_claims();
        self.audit_processes();
        self.audit_sharing();
        self.audit_interrupts();
        let groups = self.memory.as_ref().map_or(0, |memory| memory.audit(self.now));
        self.nr_cpus() + self.tasks.len() + groups
    }

    /// The current task of a CPU is running there and may run there. No other task is running.
    fn audit_current(&self) {
        let now = self.now;
        let mut current = 0;
        for (cpu, state) in self.cpus.iter().enumerate() {
            let Some(id) = state.current else { continue };
            let task = &self.tasks[id.index()];
            let label = self.label(id);
            assert_eq!(task.state, State::Running, "{label}, current on CPU {cpu} at {now:?}");
            assert_eq!(task.cpu, cpu, "CPU of {label}, current on CPU {cpu} at {now:?}");
            assert!(
                task.allowed.contains(cpu) || self.awaits_stopper(id, cpu),
                "{label} runs on CPU {cpu} at {now:?}, where it may not run"
            );
            current += 1;
        }
        let running = self.tasks.iter().filter(|task| task.state == State::Running).count();
        assert_eq!(running, current, "running tasks, and CPUs with a current task, at {now:?}");
    }

    /// A busy CPU has the speed that follows from the clock of its package and from the other CPUs of its core.
    fn audit_speeds(&self) {
        for (cpu, state) in self.cpus.iter().enumerate() {
            let right = state.current.is_none() || state.speed_1024 == self.core_speed(cpu);
            assert!(right, "CPU {cpu} has speed {} at {:?}", state.speed_1024, self.now);
        }
        let cores = self.core_cpus.iter().zip(&self.busy_cpus).enumerate();
        for (core, (cpus, &counted)) in cores.filter(|_| self.smt || self.power.is_some()) {
            let busy = cpus.iter().filter(|&&cpu| self.cpus[cpu].current.is_some()).count();
            assert_eq!(busy, counted as usize, "busy CPUs of core {core} at {:?}", self.now);
        }
    }

    /// No CPU has spent more time in interrupts than has passed.
    fn audit_interrupts(&self) {
        for cpu in 0..self.interrupts.len() {
            let (now, spent) = (self.now, self.interrupt_ns(cpu));
            assert!(spent <= now.ns(), "{spent} ns in interrupts of CPU {cpu} at {now:?}");
        }
    }

    /// A CPU that looks idle runs nothing and does not search for a task.
    fn audit_idle(&self) {
        for cpu in self.idle.iter() {
            let state = &self.cpus[cpu];
            let (now, current) = (self.now, state.current.map(|task| self.label(task)));
            assert_eq!(current, None, "current on CPU {cpu}, which looks idle at {now:?}");
            assert!(
                !state.looks_after_task(),
                "CPU {cpu} searches for a task and looks idle at {now:?}"
            );
        }
    }

    /// A task in transit to a CPU is in the list of that CPU, once, in order of arrival.
    fn audit_arrivals(&self) {
        let now = self.now;
        let mut arriving = 0;
        for (cpu, arrivals) in self.arrivals.iter().enumerate() {
            let sorted = arrivals.is_sorted_by_key(|arrival| arrival.at);
            assert!(sorted, "tasks in transit to CPU {cpu} are out of order at {now:?}");
            for arrival in arrivals {
                let (label, task) = (self.label(arrival.task), &self.tasks[arrival.task.index()]);
                assert_eq!(
                    task.state,
                    State::Arriving,
                    "{label}, in transit to CPU {cpu} at {now:?}"
                );
                arriving += 1;
            }
        }
        let tasks = self.tasks.iter().filter(|task| task.state == State::Arriving).count();
        assert_eq!(tasks, arriving, "tasks in transit, and arrivals awaited, at {now:?}");
    }

    /// A task waits only where it may run, unless the stopper is going to move it.
    fn audit_waiting(&self) {
        for (id, task) in (0..).map(TaskId).zip(&self.tasks) {
            let waits = task.state == State::Queued;
            assert!(
                !waits || self.may_run(id, task.cpu) || self.awaits_stopper(id, task.cpu),
                "{} waits on CPU {} at {:?}, where it may not run",
                self.label(id),
                task.cpu,
                self.now
            );
        }
        for (cpu, arrivals) in self.arrivals.iter().enumerate() {
            for Arrival { task, .. } in arrivals {
                assert!(
                    self.may_run(*task, cpu),
                    "{} is in transit to CPU {cpu} at {:?}, where it may not run",
                    self.label(*task),
                    self.now
                );
            }
        }
    }

    /// A change by another task that is not complete has a task asleep that awaits it, and will be
    /// completed: the stopper is requested, or the task is in transit.
    fn audit_changes(&self) {
        for change in &self.changes {
            let task = &self.tasks[change.task.index()];
            let by = change.by.map_or(State::Blocked, |by| self.tasks[by.index()].state);
            let comes = match change.waits {
                Waits::Stopper(cpu) => self.cpus[cpu].pending_work & Work::Relocate as u8 != 0,
                Waits::Arrival(_) => task.state == State::Arriving,
            };
            assert!(
                comes && by == State::Blocked && task.state != State::Dead,
                "{change:?} at {:?}: {:?}, changed by a task that is {:?}",
                self.now,
                task.state,
                by
            );
        }
    }

    /// Everything that is going to happen is scheduled, and nothing else.
    fn audit_events(&self) {
        let now = self.now;
        for (cpu, state) in self.cpus.iter().enumerate() {
            let pending = |event| self.events.is_pending(event);
            let busy = state.current.is_some() || state.looking != Looking::No;
            assert_eq!(pending(Event::RunEnd(cpu)), busy, "end of run, CPU {cpu} busy, at {now:?}");
            let awaited = !self.arrivals[cpu].is_empty() || state.pending_work != 0;
            assert_eq!(
                pending(Event::Interrupt(cpu)),
                awaited,
                "interrupt of CPU {cpu} at {now:?}"
            );
            let ticks = state.current.is_none() || pending(Event::Tick(cpu));
            assert!(ticks, "busy CPU {cpu} has no tick at {now:?}");
            assert!(!state.stale, "the end-of-run event of CPU {cpu} is out of date at {now:?}");
        }
        for (id, task) in (0..).map(TaskId).zip(&self.tasks) {
            let sleeps = task.state == State::Blocked || !self.events.is_pending(Event::Timer(id));
            assert!(sleeps, "{} is {:?} with a timer at {now:?}", self.label(id), task.state);
        }
    }

    /// The searches under way are ordered by the time of their choice, and none is overdue.
    fn audit_claims(&self) {
        let now = self.now;
        assert!(self.claims.is_sorted_by_key(|&(at, _)| at), "claims are out of order at {now:?}");
        let due = self.claims.first().map_or(Time::NEVER, |&(at, _)| at);
        assert_eq!(self.next_claim, due, "next claim at {now:?}");
        // Searches that end right now are applied before the next event.
        assert!(due >= now, "a claim of {due:?} is overdue at {now:?}");
    }

    /// Processes count their tasks.
    fn audit_processes(&self) {
        let mut threads = vec![0; self.processes.len()];
        for task in self.tasks.iter().filter(|task| task.state != State::Dead) {
            threads[task.process as usize] += 1;
        }
        for (process, (state, found)) in self.processes.iter().zip(threads).enumerate() {
            assert_eq!(state.threads(), found, "threads of process {process} at {:?}", self.now);
        }
    }

    /// LLCs count their running tasks.
    fn audit_sharing(&self) {
        let mut running = vec![0; self.machine.llcs.len()];
        for (cpu, _) in self.cpus.iter().enumerate().filter(|(_, cpu)| cpu.current.is_some()) {
            running[self.machine.cpus[cpu].llc as usize] += 1;
        }
        assert_eq!(self.sharing.running(), running, "tasks that run, by LLC, at {:?}", self.now);
    }
}

#[cfg(test)]
mod tests;
