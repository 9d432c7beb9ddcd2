//! Checks of the state of the class, in builds with debug assertions.
//!
//! Each check is a function that compares a stored value with the value recomputed, and panics with
//! CPU or task, time and both values. [`Fair::audit_all`] lists all checks. The engine calls it
//! between events, less often in large runs. The engine checks its own state itself.

use std::fmt::Debug;

use roost_engine::{CpuId, TaskId, World};
use roost_workload::Policy;

use crate::cgroup;
use crate::state::{Fair, FairTask, Rq};

#[cfg(debug_assertions)]
mod averages;
#[cfg(debug_assertions)]
mod ledger;
#[cfg(debug_assertions)]
pub(crate) use ledger::Ledger;

impl Fair {
    /// Runs all checks that hold between events.
    pub(crate) fn audit_all(&self, world: &World) {
        self.audit_books(world);
        for cpu in 0..self.rqs.len() {
            self.audit_current(world, cpu);
        }
        #[cfg(debug_assertions)]
        self.audit_averages(world);
    }

    /// Runs the checks that hold after every hook.
    pub(crate) fn audit_books(&self, world: &World) {
        for cpu in 0..self.rqs.len() {
            self.audit_queue(world, cpu);
            self.audit_counts(world, cpu);
            self.audit_preferences(world, cpu);
            self.audit_idle(world, cpu);
            self.audit_clock(world, cpu);
            self.audit_nohz(world, cpu);
            self.audit_cgroups(world, cpu);
        }
        self.audit_tasks(world);
        self.audit_llcs(world);
        self.audit_group_loads(world);
    }

    /// The current task of a queue is the task that the CPU runs.
    fn audit_current(&self, world: &World, cpu: CpuId) {
        same("current task", self.rqs[cpu].current, world.current(cpu), world, cpu);
    }

    /// The virtual-time queue has its tasks' weights and states.
    fn audit_queue(&self, world: &World, cpu: CpuId) {
        let rq = &self.rqs[cpu];
        let weights = rq.queue.waiting().map(|(_, entity)| entity.weight as i64);
        same("weight of waiting tasks", rq.queue.waiting_weight(), weights.sum(), world, cpu);
        same("queue's current task", rq.queue.current(), rq.current, world, cpu);
        let mut list = Vec::new();
        rq.queue.list(&mut list);
        let places = list.iter().map(|&(place, _)| place);
        assert!(
            list.windows(2).all(|two| two[0].0 > two[1].0)
                && places.max().is_none_or(|first| first < rq.queue.next_place()),
            "places in the list of tasks: {}",
            at(world, cpu)
        );
        for (task, entity) in rq.queue.waiting() {
            let delayed = self.tasks[task.index()].delayed;
            same_of_task("delayed", entity.delayed, delayed, world, task);
        }
    }

    /// The counts and sums of a queue match the tasks on it.
    fn audit_counts(&self, world: &World, cpu: CpuId) {
        let rq = &self.rqs[cpu];
        let queued = || self.queued(rq);
        let runnable = || queued().filter(|task| !task.delayed);
        let idle_policy = queued().filter(|task| task.entity.policy == Policy::Idle).count();
        same("nr_running", rq.nr_running as usize, rq.queue.len(), world, cpu);
        same("nr_runnable", rq.nr_runnable as usize, runnable().count(), world, cpu);
        same("nr_sched_idle", rq.nr_sched_idle as usize, idle_policy, world, cpu);
        same("load_weight", rq.load_weight, queued().map(|task| task.weight).sum(), world, cpu);
        same("util_est", rq.util_est, runnable().map(|task| task.util_est).sum(), world, cpu);
        let mut running = rq.queue.tasks().filter(|task| self.tasks[task.index()].running);
        same("running task", running.next(), rq.current, world, cpu);
    }

    /// Tasks that prefer a node or an LLC are counted.
    fn audit_preferences(&self, world: &World, cpu: CpuId) {
        let rq = &self.rqs[cpu];
        let (numa, here) = (
            self.queued(rq).filter(|task| task.preferred_node.is_some()).count(),
            self.queued(rq).filter(|task| task.preferred_node == Some(rq.node)).count(),
        );
        same("nr_numa_running", rq.nr_numa_running as usize, numa, world, cpu);
        same("nr_preferred_running", rq.nr_preferred_running as usize, here, world, cpu);
        let llcs = || self.queued(rq).filter_map(|task| task.preferred_llc);
        let own = self.topology.llc_of[cpu];
        let runnable = self.queued(rq).filter(|task| !task.delayed);
        let own = runnable.filter(|task| task.preferred_llc == Some(own)).count();
        same("nr_llc_running", rq.cache.nr_llc_running as usize, llcs().count(), world, cpu);
        same("nr_pref_llc_running", rq.cache.nr_pref_llc_running as usize, own, world, cpu);
        for (llc, &kept) in rq.cache.by_llc().iter().enumerate() {
            let found = llcs().filter(|&preferred| preferred as usize == llc).count();
            same("tasks by preferred LLC", kept as usize, found, world, cpu);
        }
        if let Some((kept, found)) = self.mechanisms.counted(cpu, rq.queue.tasks()) {
            same("tasks counted by a mechanism", kept, found, world, cpu);
        }
    }

    /// The time of a queue is the time of its tasks and what was taken out, which the CPU has spent in interrupts.
    fn audit_clock(&self, world: &World, cpu: CpuId) {
        if !self.features.switches.irq_time {
            return;
        }
        let [time, task, taken_out] = self.rqs[cpu].clock.parts();
        same("clock", time, task + taken_out, world, cpu);
        let spent = world.interrupt_ns(cpu);
        assert!(
            taken_out <= spent,
            "{taken_out} ns taken out, {spent} ns spent: {}",
            at(world, cpu)
        );
    }

    /// A CPU with tasks on its queue does not look idle: statistics of groups rely on this. The set of
    /// CPUs with only SCHED_IDLE tasks is right.
    fn audit_idle(&self, world: &World, cpu: CpuId) {
        let rq = &self.rqs[cpu];
        assert!(
            rq.nr_running == 0 || !world.is_idle(cpu),
            "{} tasks on its queue, but idle: {}",
            rq.nr_running,
            at(world, cpu)
        );
        let known = self.features.placement.knows_sched_idle_cpus;
        let only = known && rq.nr_running > 0 && rq.nr_sched_idle == rq.nr_running;
        same("only SCHED_IDLE", self.sched_idle_cpus.contains(cpu), only, world, cpu);
    }

    /// A tickless CPU is in the nohz mask. A CPU that counts as idle in its LLC is tickless.
    fn audit_nohz(&self, world: &World, cpu: CpuId) {
        let rq = &self.rqs[cpu];
        same("in the nohz mask", self.nohz.idle_cpus.contains(cpu), rq.tickless, world, cpu);
        assert!(rq.tickless || !rq.counted_idle, "counted as idle with a tick: {}", at(world, cpu));
    }

    /// A task that is marked as queued is on the queue of its CPU, once.
    fn audit_tasks(&self, world: &World) {
        let mut queued = vec![None; self.tasks.len()];
        for (cpu, rq) in self.rqs.iter().enumerate() {
            for task in rq.queue.tasks() {
                let before = queued[task.index()].replace(cpu);
                same_of_task("other queue", before, None, world, task);
                same_of_task("CPU", cpu, world.task_cpu(task), world, task);
            }
        }
        for (index, (state, on)) in self.tasks.iter().zip(queued).enumerate() {
            let task = TaskId(index as u32);
            same_of_task("on a queue", state.on_rq, on.is_some(), world, task);
            same_of_task("delayed off a queue", state.delayed && !state.on_rq, false, world, task);
            same_of_task("delayed and running", state.delayed && state.running, false, world, task);
            same_of_task(
                "queued, not attached",
                state.on_rq && !state.attached,
                false,
                world,
                task,
            );
        }
    }

    /// `nr_busy_cpus` of an LLC is the number of CPUs that do not count as idle.
    fn audit_llcs(&self, world: &World) {
        for (llc, span) in self.topology.llc_span.iter().enumerate() {
            let busy = span.iter().filter(|&cpu| !self.rqs[cpu].counted_idle).count();
            let kept = self.llcs[llc].nr_busy_cpus as usize;
            assert_eq!(kept, busy, "nr_busy_cpus of LLC {llc} at {:?}", world.now());
        }
    }

    /// Groups count the tasks queued in them, and tasks on the queue have the weight of their
    /// group's share.
    fn audit_cgroups(&self, world: &World, cpu: CpuId) {
        if !self.cgroups.active() {
            return;
        }
        let rq = &self.rqs[cpu];
        for group in 0..self.cgroups.len() {
            let found = self.queued(rq).filter(|task| self.cgroups.is_within(task.group, group));
            let direct = self.queued(rq).filter(|task| task.group == Some(group));
            let (nr, weight) = self.cgroups.queued_in(cpu, group);
            same("tasks of a group", nr as usize, found.count(), world, cpu);
            same(
                "weight of a group's tasks",
                weight,
                direct.map(|task| task.own_weight).sum(),
                world,
                cpu,
            );
        }
        for (task, entity) in rq.queue.waiting() {
            let state = &self.tasks[task.index()];
            let weight = self.cgroups.weight(cpu, state.group, state.own_weight);
            same_of_task("weight on the queue", entity.weight, weight, world, task);
            same_of_task("weight in loads", state.weight, cgroup::in_loads(weight), world, task);
        }
    }

    /// The load of a group is the sum of its loads on all CPUs.
    fn audit_group_loads(&self, world: &World) {
        for group in 0..self.cgroups.len() {
            let (kept, found) = self.cgroups.loads(group);
            assert_eq!(kept, found, "load of group {group}, and on its CPUs, at {:?}", world.now());
        }
    }

    /// The tasks on a queue.
    fn queued<'a>(&'a self, rq: &'a Rq) -> impl Iterator<Item = &'a FairTask> {
        rq.queue.tasks().map(|task| &self.tasks[task.index()])
    }
}

/// A CPU as in messages.
fn at(world: &World, cpu: CpuId) -> String {
    format!("CPU {cpu} at {:?}", world.now())
}

/// A task as in messages.
fn name(world: &World, task: TaskId) -> String {
    format!("task {} ({})", task.0, world.pid(task))
}

/// Compares the stored and the recomputed value of a CPU.
fn same<T: Debug + PartialEq>(what: &str, kept: T, found: T, world: &World, cpu: CpuId) {
    assert!(kept == found, "{what} of {}: {kept:?} kept, {found:?} found", at(world, cpu));
}

/// Compares the stored and the recomputed value of a task.
fn same_of_task<T: Debug + PartialEq>(what: &str, kept: T, found: T, world: &World, task: TaskId) {
    assert!(
        kept == found,
        "{what}, of {} at {:?}: {kept:?} kept, {found:?} found",
        name(world, task),
        world.now()
    );
}

#[cfg(test)]
mod tests;
