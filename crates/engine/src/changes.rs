//! Changes of a task's affinity and task group: by the task itself, and by another task.
//!
//! If another task changes them (`sched_setaffinity(2)`, a write into a file of a cgroup), the state of
//! the task decides what follows:
//!
//! | the task | what follows |
//! |---|---|
//! | is in transit to a queue | who sent it holds its lock, so the change waits until it is queued |
//! | waits where it may not run | it is moved at once to an allowed CPU |
//! | runs where it may not run | the stopper of its CPU moves it |
//! | sleeps | it is placed at its next wakeup |
//! | any other | it stays where it is |
//!
//! In the first and the third case the other task sleeps meanwhile. Sources:
//! `__set_cpus_allowed_ptr()`, `affine_move_task()`, `sched_move_task()`.

use roost_machine::CpuSet;
use roost_workload::{GroupId, TemplateId};

use crate::interpret::Step;
use crate::run::Engine;
use crate::scheduler::{CpuId, Dequeue, Enqueue, Scheduler, TaskId, Wake, Work};
use crate::task::{Activity, State, Task};
use crate::world::World;

/// What another task changes.
#[derive(Clone, Debug)]
pub(crate) enum New {
    Allowed(CpuSet),
    Group(Option<GroupId>),
}

/// A change by another task that is not complete.
#[derive(Debug)]
pub(crate) struct Change {
    /// The task that is changed.
    pub task: TaskId,
    /// The task that sleeps until the change is complete. `None`: the CPU goes offline (`hotplug.rs`).
    pub by: Option<TaskId>,
    pub waits: Waits,
}

/// What a change waits for.
#[derive(Debug)]
pub(crate) enum Waits {
    /// The stopper of this CPU, on which the task ran.
    Stopper(CpuId),
    /// The task's arrival in a queue. It is changed then.
    Arrival(New),
}

impl<S: Scheduler> Engine<'_, S> {
    /// The task of `cpu` changes its own affinity.
    pub(crate) fn set_affinity(&mut self, cpu: CpuId, id: TaskId, set: u32) -> Step {
        let template = self.world.tasks[id.index()].template;
        let allowed = &self.affinities[template as usize].later[set as usize];
        if !self.world.any_active(allowed) {
            return Step::Done;
        }
        self.world.allow(id, allowed);
        if self.world.may_run(id, cpu) {
            self.scheduler.allowed_changed(&mut self.world, id, cpu);
            return Step::Done;
        }
        self.world.tasks[id.index()].activity = Activity::Work(0);
        self.send_away(cpu, id);
        Step::Left
    }

    /// The task of `cpu` moves to another task group. Nothing changes if it is in that group.
    #[cold]
    pub(crate) fn set_group(&mut self, cpu: CpuId, id: TaskId, group: Option<GroupId>) -> Step {
        self.regroup(cpu, id, group);
        Step::Done
    }

    /// The task of `cpu` changes the affinity of the other tasks of `template`.
    pub(crate) fn set_affinity_of(
        &mut self,
        cpu: CpuId,
        id: TaskId,
        template: TemplateId,
        set: u32,
    ) -> Step {
        let own = self.world.tasks[id.index()].template;
        let allowed = self.affinities[own as usize].later[set as usize].clone();
        self.change_others(cpu, id, template, &New::Allowed(allowed))
    }

    /// The task of `cpu` changes all other tasks of `template`. It sleeps until the changes are
    /// complete.
    #[cold]
    pub(crate) fn change_others(
        &mut self,
        cpu: CpuId,
        id: TaskId,
        template: TemplateId,
        new: &New,
    ) -> Step {
        let is_of = |task: &Task| task.template == template && !task.root;
        let others = (0..self.world.tasks.len() as u32).map(TaskId).filter(|&other| other != id);
        let others: Vec<TaskId> =
            others.filter(|other| is_of(&self.world.tasks[other.index()])).collect();
        for other in others {
            self.change(cpu, other, id, new);
        }
        let waits = self.world.changes.iter().any(|change| change.by == Some(id));
        if waits { Step::Blocked } else { Step::Done }
    }

    /// The task `by` changes `id`. CPU `from` executes this.
    fn change(&mut self, from: CpuId, id: TaskId, by: TaskId, new: &New) {
        let task = &self.world.tasks[id.index()];
        match (task.state, new) {
            (State::Dead, _) => {}
            (State::Arriving, _) => {
                let waits = Waits::Arrival(new.clone());
                self.world.changes.push(Change { task: id, by: Some(by), waits });
            }
            (_, New::Allowed(allowed))
                if task.allowed == *allowed || !self.world.any_active(allowed) => {}
            (_, New::Allowed(allowed)) => self.change_affinity(from, id, by, allowed),
            (_, New::Group(group)) => self.regroup(from, id, *group),
        }
    }

    /// CPU `from` moves a task to a task group, if it is not in that group.
    fn regroup(&mut self, from: CpuId, id: TaskId, group: Option<GroupId>) {
        let task = &mut self.world.tasks[id.index()];
        let cpu = task.cpu;
        if std::mem::replace(&mut task.group, group) == group {
            return;
        }
        self.reach_queue(from, cpu);
        self.scheduler.group_changed(&mut self.world, cpu, id, from);
        self.world.record_task(id);
    }

    /// CPU `from` takes the lock of the queue of `cpu`.
    fn reach_queue(&mut self, from: CpuId, cpu: CpuId) {
        if cpu != from {
            self.world.charge_line(from, cpu);
        }
    }

    fn change_affinity(&mut self, from: CpuId, id: TaskId, by: TaskId, allowed: &CpuSet) {
        let Task { state, cpu, .. } = self.world.tasks[id.index()];
        self.reach_queue(from, cpu);
        self.world.allow(id, allowed);
        self.scheduler.allowed_changed(&mut self.world, id, from);
        // The scheduler may have moved the task.
        let cpu = self.world.task_cpu(id);
        if self.world.may_run(id, cpu) {
            return;
        }
        match state {
            State::Queued => self.relocate(cpu, id, from),
            State::Running => {
                self.world.changes.push(Change {
                    task: id,
                    by: Some(by),
                    waits: Waits::Stopper(cpu),
                });
                self.world.kick(from, cpu, Work::Relocate);
            }
            State::Blocked | State::Arriving | State::Dead => {}
        }
    }

    /// CPU `by` moves a task that waits on `from`, where it may not run (`move_queued_task()`).
    fn relocate(&mut self, from: CpuId, id: TaskId, by: CpuId) {
        self.scheduler.dequeue_waiting(&mut self.world, from, id, by);
        let to = self.destination(by, id);
        self.world.set_task_cpu(id, to);
        self.world.mark_queued(to);
        self.scheduler.enqueue(&mut self.world, to, id, Enqueue::Relocated, by);
        if self.world.current(to).is_none() {
            self.world.resched(by, to);
        }
    }

    /// The current task of `cpu` may no longer run there: sends it to another CPU.
    fn send_away(&mut self, cpu: CpuId, id: TaskId) {
        self.scheduler.dequeue(&mut self.world, cpu, id, Dequeue::NotAllowed);
        let target = self.destination(cpu, id);
        self.deliver(id, target, cpu, Enqueue::Relocated);
        self.world.cpus[cpu].need_resched = true;
    }

    /// The stopper of `cpu` runs: one switch to it, and tasks leave that may no longer run there
    /// (`migration_cpu_stop()`). Meanwhile they may have left, or may be allowed again.
    #[cold]
    pub(crate) fn relocate_from(&mut self, cpu: CpuId) {
        let cost = self.world.machine.figures.context_switch_ns.value;
        self.world.charge(cpu, cost);
        self.world.cpus[cpu].need_resched = true;
        let due = |change: &Change| matches!(change.waits, Waits::Stopper(on) if on == cpu);
        for Change { task: id, by, .. } in self.world.take_changes(due) {
            let stays = self.world.may_run(id, cpu) && self.world.is_active(cpu);
            if self.world.task_cpu(id) == cpu && !stays {
                match self.world.tasks[id.index()].state {
                    State::Running => self.send_away(cpu, id),
                    State::Queued => self.relocate(cpu, id, cpu),
                    // It fell asleep, and the scheduler may still have it on a queue.
                    State::Blocked => self.scheduler.allowed_changed(&mut self.world, id, cpu),
                    State::Arriving | State::Dead => {}
                }
            }
            self.complete(cpu, by);
        }
    }

    /// `id` has arrived in the queue of `cpu`. Now it can be changed.
    #[cold]
    pub(crate) fn change_on_arrival(&mut self, cpu: CpuId, id: TaskId) {
        let due = |change: &Change| change.task == id && matches!(change.waits, Waits::Arrival(_));
        for Change { by, waits, .. } in self.world.take_changes(due) {
            if let (Waits::Arrival(new), Some(by)) = (waits, by) {
                self.change(cpu, id, by, &new);
            }
            self.complete(cpu, by);
        }
    }

    /// `id`, which runs on `cpu`, exits. Nothing is left to change.
    pub(crate) fn forget_changes_of(&mut self, cpu: CpuId, id: TaskId) {
        if self.world.changes.is_empty() {
            return;
        }
        for Change { by, .. } in self.world.take_changes(|change| change.task == id) {
            self.complete(cpu, by);
        }
    }

    /// A change that `by` made is complete: wakes `by` if it waits for no other one.
    fn complete(&mut self, cpu: CpuId, by: Option<TaskId>) {
        let Some(by) = by else { return };
        if !self.world.changes.iter().any(|change| change.by == Some(by)) {
            let waker = self.world.current(cpu);
            self.wake(by, Wake { cpu, waker, sync: false, interrupt: true }, 0);
        }
    }
}

impl World {
    /// Sets the CPUs a task may run on.
    pub(crate) fn allow(&mut self, id: TaskId, allowed: &CpuSet) {
        let task = &mut self.tasks[id.index()];
        task.allowed.copy_from(allowed);
        task.nr_allowed = allowed.len();
    }

    /// A random active CPU the task may run on: the kernel's `cpumask_any_and_distribute`.
    pub fn any_allowed(&mut self, id: TaskId) -> CpuId {
        let bound = self.nr_cpus() as u64;
        let start = self.random_below(bound) as usize;
        self.allowed(id).iter_wrap(start).find(|&cpu| self.is_active(cpu)).unwrap_or(0)
    }

    /// Whether the stopper of `cpu` is going to move the task away.
    #[cold]
    pub(crate) fn awaits_stopper(&self, id: TaskId, cpu: CpuId) -> bool {
        let moves = |change: &Change| matches!(change.waits, Waits::Stopper(on) if on == cpu);
        self.changes.iter().any(|change| change.task == id && moves(change))
    }

    /// Takes the changes of which `due` is true.
    fn take_changes(&mut self, due: impl Fn(&Change) -> bool) -> Vec<Change> {
        self.changes.extract_if(.., |change| due(change)).collect()
    }
}
