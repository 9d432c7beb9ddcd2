//! Task groups with weights: cgroups with `cpu.weight` (`sched_group_set_shares`, `update_cfs_group`).
//!
//! The kernel queues a group as an entity: a group has a queue on every CPU, and the entity of that
//! queue is on the parent's queue. The entity's weight is the group's weight, divided over the CPUs
//! by the load that the group has on each. The simulation has one queue per CPU, without entities
//! for groups. Each task has the weight that gives the same result: its own weight, times the
//! weight of its group's entity on the CPU, divided by the sum of weights in the group there, and
//! so on upwards.
//!
//! ```text
//! kernel   root ─ group 1024/20 ─ a 1024, b 1024          here   a 25.6, b 25.6, c 1024
//!               └ c 1024
//! ```
//!
//! As with entities in the kernel, these weights change when a task of a group comes to the CPU or
//! leaves it, and at ticks. The task then keeps its lag and the rest of its request in real time.
//! Load averages use the same weights: balancing sees the hierarchical load (`h_load`).
//!
//! Weights become small, so they have [`FRACTION`] fraction bits on the queues of a run with
//! groups. Virtual time passes more slowly there by the same factor. Runs without groups skip all
//! this.
//!
//! docs/kernel-model.md lists what this model leaves out.

use roost_engine::{CpuId, TaskId, World};

use crate::eras::LeavingSums;
use crate::pelt::{Avg, LoadAvg};
use crate::queue::ANYWHERE;
use crate::state::{Fair, FairTask};

/// Fraction bits of weights on queues. A weight of 1 is exact to 2 %, and sums of weight times
/// virtual time stay far from overflow. The kernel has 10 bits and drops them in such sums.
pub(crate) const FRACTION: u32 = 6;

/// `cpu.weight` of a group with the weight of a nice-0 task (CGROUP_WEIGHT_DFL).
const DEFAULT_WEIGHT: u64 = 100;

/// Weight of a nice-0 task.
const NICE_0: u64 = 1024;

/// Scale of tasks in the root group, with 32 bits of fraction.
const ROOT_SCALE: u64 = 1 << (FRACTION + 32);

/// What a weight with fraction bits adds to load: at least 1.
pub(crate) fn in_loads(weight: u64) -> u64 {
    ((weight + (1 << FRACTION) / 2) >> FRACTION).max(1)
}

/// Index into the groups of a run.
type GroupIndex = usize;

/// The task groups of a run.
#[derive(Default)]
pub(crate) struct Cgroups {
    groups: Vec<Cgroup>,
    /// State of each group on each CPU: all groups of CPU 0, then those of CPU 1, and so on.
    on_cpus: Vec<OnCpu>,
    /// Of each group, while [`Cgroups::share_out`] computes: the sum of the weights of its groups'
    /// entities, then the weight of its own. 0 otherwise.
    entities: Vec<u64>,
    /// Room for the tasks of a queue while their weights change.
    list: Vec<(i64, TaskId)>,
}

/// A group (`struct task_group`).
struct Cgroup {
    /// The group that contains it, at a lower index.
    parent: Option<GroupIndex>,
    /// Its weight among its siblings, 1024 for `cpu.weight` 100 (`shares`).
    shares: u64,
    /// Sum of its loads on all CPUs (`load_avg`).
    load: u64,
}

/// State of a group on one CPU (its `cfs_rq` and entity there), in a cache line.
#[derive(Clone, Default)]
#[repr(align(64))]
struct OnCpu {
    /// Load average of the tasks in it, sleepers included. It is part of [`Cgroup::load`].
    avg: LoadAvg,
    /// Sum of the weights of tasks and groups queued directly in it, with fraction bits; 0 while
    /// nothing is queued.
    weight: u64,
    /// Weight, with fraction bits, of a task in it, per unit of the task's own weight. Has 32
    /// fraction bits more. Not used while nothing is queued. It is below 2^61: a queue weighs at
    /// least 1, and no less than the entity of a group in it. So this is at most [`ROOT_SCALE`]
    /// times the weight of the topmost group's entity, 102,400 with fraction bits.
    scale: u64,
    /// Sum of the own weights of the tasks queued directly in it.
    tasks_weight: u64,
    /// Tasks queued in it and in the groups below.
    nr: u32,
}

const _: () = assert!(size_of::<OnCpu>() == 64, "a cache line");

impl Cgroups {
    /// The groups of the workload in `world`, without tasks.
    pub(crate) fn new(world: &World, nr_cpus: usize) -> Self {
        let group = |group: &roost_workload::Group| Cgroup {
            parent: group.parent.map(|parent| parent as GroupIndex),
            shares: (u64::from(group.weight) * NICE_0 + DEFAULT_WEIGHT / 2) / DEFAULT_WEIGHT,
            load: 0,
        };
        let groups: Vec<_> = world.groups().iter().map(group).collect();
        let on_cpus = vec![OnCpu::default(); groups.len() * nr_cpus];
        let entities = vec![0; groups.len()];
        Self { groups, on_cpus, entities, list: Vec::new() }
    }

    /// Whether the run has groups.
    #[inline]
    pub(crate) fn active(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Number of groups.
    pub(crate) fn len(&self) -> usize {
        self.groups.len()
    }

    /// Whether `member` is `group` or a group below it.
    pub(crate) fn is_within(&self, member: Option<GroupIndex>, group: GroupIndex) -> bool {
        let mut groups = std::iter::successors(member, |&group| self.groups[group].parent);
        groups.any(|other| other == group)
    }

    /// Number of tasks queued on `cpu` in a group and below it, and sum of the own weights of those
    /// directly in it, as counted.
    pub(crate) fn queued_in(&self, cpu: CpuId, group: GroupIndex) -> (u32, u64) {
        let on_cpu = &self.on_cpu(cpu)[group];
        (on_cpu.nr, on_cpu.tasks_weight)
    }

    /// The stored load of a group, and the sum of its loads on all CPUs.
    pub(crate) fn loads(&self, group: GroupIndex) -> (u64, u64) {
        let on_cpus = self.on_cpus.iter().skip(group).step_by(self.groups.len());
        (self.groups[group].load, on_cpus.map(|on_cpu| on_cpu.avg.load_avg).sum())
    }

    /// Makes the stored load of a group differ from the sum of its loads on the CPUs.
    #[cfg(test)]
    pub(crate) fn spoil_load(&mut self, group: GroupIndex) {
        self.groups[group].load += 1;
    }

    /// Weight, with fraction bits, of a task of weight `own` in `group` on `cpu`.
    pub(crate) fn weight(&self, cpu: CpuId, group: Option<GroupIndex>, own: u64) -> u64 {
        let on_cpu = self.on_cpu(cpu);
        // A task that comes to an empty group will have all of the group's weight.
        let mut queued = group;
        while let Some(group) = queued
            && on_cpu[group].nr == 0
        {
            queued = self.groups[group].parent;
        }
        let scale = queued.map_or(ROOT_SCALE, |group| on_cpu[group].scale);
        let weight = (u128::from(own) * u128::from(scale)) >> 32;
        (weight as u64).max(1)
    }

    /// The state of the groups on `cpu`.
    #[inline]
    fn on_cpu(&self, cpu: CpuId) -> &[OnCpu] {
        let nr = self.groups.len();
        &self.on_cpus[cpu * nr..][..nr]
    }

    /// [`Cgroups::on_cpu`], to change it.
    #[inline]
    fn on_cpu_mut(&mut self, cpu: CpuId) -> &mut [OnCpu] {
        groups_on(&mut self.on_cpus, self.groups.len(), cpu)
    }

    /// Updates the averages of all groups on `cpu` to `now`. Call it before anything changes there.
    pub(crate) fn advance(&mut self, cpu: CpuId, now: u64) {
        let on_cpu = groups_on(&mut self.on_cpus, self.groups.len(), cpu);
        for (group, on_cpu) in self.groups.iter_mut().zip(on_cpu) {
            let before = on_cpu.avg.load_avg;
            if on_cpu.avg.update(now, on_cpu.weight >> FRACTION) {
                group.load = group.load + on_cpu.avg.load_avg - before;
            }
        }
    }

    /// Counts a task of weight `own` that was queued in `group` on `cpu`.
    pub(crate) fn count_in(&mut self, cpu: CpuId, group: GroupIndex, own: u64) {
        self.on_cpu_mut(cpu)[group].tasks_weight += own;
        self.for_each_upwards(cpu, group, |on_cpu| on_cpu.nr += 1);
    }

    /// Stops counting a task of weight `own` that was taken off.
    pub(crate) fn count_out(&mut self, cpu: CpuId, group: GroupIndex, own: u64) {
        self.on_cpu_mut(cpu)[group].tasks_weight -= own;
        self.for_each_upwards(cpu, group, |on_cpu| {
            on_cpu.nr -= 1;
            if on_cpu.nr == 0 {
                on_cpu.weight = 0;
            }
        });
    }

    /// Adds the load of a task of weight `own` to the load of `group` on `cpu`.
    pub(crate) fn attach(&mut self, cpu: CpuId, group: GroupIndex, task: &Avg, own: u64) {
        self.change_load(cpu, group, |load| load.add(&task.weighing(own), own));
    }

    /// Subtracts the load of a task of weight `own` from the load of `group` on `cpu`.
    pub(crate) fn detach(
        &mut self,
        cpu: CpuId,
        group: GroupIndex,
        task: &Avg,
        own: u64,
        how: LeavingSums,
    ) {
        self.change_load(cpu, group, |load| load.sub(&task.weighing(own), own, how));
    }

    /// Changes the load of `group` on `cpu`, and with it the sum of the group's loads
    /// (`update_tg_load_avg`).
    fn change_load(&mut self, cpu: CpuId, group: GroupIndex, change: impl FnOnce(&mut LoadAvg)) {
        let load = &mut self.on_cpu_mut(cpu)[group].avg;
        let before = load.load_avg;
        change(load);
        let after = load.load_avg;
        let sum = &mut self.groups[group].load;
        *sum = *sum + after - before;
    }

    /// Counts a task in its group because it is about to be queued on `cpu`, whose averages are up
    /// to date at `now`. Adds its load if it `attaches`. Returns the task's sleeper credit in
    /// virtual time. If the group has other queued tasks, that is `credit` within the group.
    /// Otherwise the group is queued with the task, and `credit` is the group's among the groups.
    /// `alone` if nothing else is queued on `cpu`.
    #[inline(never)]
    pub(crate) fn join(
        &mut self,
        cpu: CpuId,
        now: u64,
        state: &FairTask,
        attaches: bool,
        alone: bool,
        credit: u64,
    ) -> u64 {
        self.advance(cpu, now);
        let Some(group) = state.group else {
            self.share_out(cpu);
            return credit;
        };
        let others = self.on_cpu(cpu)[group].nr > 0;
        if attaches {
            self.attach(cpu, group, &state.avg, state.own_weight);
        }
        self.count_in(cpu, group, state.own_weight);
        if alone {
            self.share_out_to(cpu, group, 0);
        } else {
            self.share_out(cpu);
        }
        if !others {
            return credit;
        }
        credit * (state.own_weight << FRACTION) / self.weight(cpu, Some(group), state.own_weight)
    }

    /// Computes the weights of the groups' entities on `cpu`, and the scales that follow from them. Most groups
    /// have nothing queued there.
    pub(crate) fn share_out(&mut self, cpu: CpuId) {
        let on_cpu = groups_on(&mut self.on_cpus, self.groups.len(), cpu);
        for (index, group) in self.groups.iter().enumerate().rev() {
            let this = &mut on_cpu[index];
            if this.nr == 0 {
                continue;
            }
            this.weight = (this.tasks_weight << FRACTION) + self.entities[index];
            let entity = group.entity_weight(this);
            self.entities[index] = entity;
            if let Some(parent) = group.parent {
                self.entities[parent] += entity;
            }
        }
        for (index, group) in self.groups.iter().enumerate() {
            if on_cpu[index].nr > 0 {
                let above = group.parent.map_or(ROOT_SCALE, |parent| on_cpu[parent].scale);
                let entity = std::mem::take(&mut self.entities[index]);
                let this = &mut on_cpu[index];
                this.scale = part_of(above, entity, this.weight.max(1));
            }
        }
    }

    /// [`Cgroups::share_out`] where all that is queued on `cpu` is in `group`, directly or in groups
    /// whose entities weigh `entities`. Returns the scale of the group.
    fn share_out_to(&mut self, cpu: CpuId, group: GroupIndex, entities: u64) -> u64 {
        let this = &mut groups_on(&mut self.on_cpus, self.groups.len(), cpu)[group];
        let weight = (this.tasks_weight << FRACTION) + entities;
        this.weight = weight;
        let entity = self.groups[group].entity_weight(this);
        let parent = self.groups[group].parent;
        let above = parent.map_or(ROOT_SCALE, |parent| self.share_out_to(cpu, parent, entity));
        let scale = part_of(above, entity, weight.max(1));
        self.on_cpu_mut(cpu)[group].scale = scale;
        scale
    }

    fn for_each_upwards(
        &mut self,
        cpu: CpuId,
        group: GroupIndex,
        mut change: impl FnMut(&mut OnCpu),
    ) {
        let mut next = Some(group);
        while let Some(group) = next {
            change(&mut self.on_cpu_mut(cpu)[group]);
            next = self.groups[group].parent;
        }
    }
}

/// The state of `nr` groups on `cpu`. It borrows only `on_cpus`, so that callers can use the groups.
#[inline]
fn groups_on(on_cpus: &mut [OnCpu], nr: usize, cpu: CpuId) -> &mut [OnCpu] {
    &mut on_cpus[cpu * nr..][..nr]
}

/// The part `share / all` of a scale: a scale again ([`OnCpu::scale`] tells why it fits).
#[inline]
fn part_of(scale: u64, share: u64, all: u64) -> u64 {
    // Mostly the product fits into a word, which is divided faster.
    match scale.checked_mul(share) {
        Some(product) => product / all,
        None => (u128::from(scale) * u128::from(share) / u128::from(all)) as u64,
    }
}

impl Cgroup {
    /// The share of the group's weight that its entity on a CPU has, with fraction bits, while something is queued
    /// there. It is proportional to the load that the group has there (`calc_group_shares`).
    fn entity_weight(&self, on_cpu: &OnCpu) -> u64 {
        let most = self.shares << FRACTION;
        let here = (on_cpu.weight >> FRACTION).max(on_cpu.avg.load_avg).max(1);
        let all = self.load - on_cpu.avg.load_avg + here;
        (most * here / all).clamp(1, most)
    }
}

impl Fair {
    /// Makes the groups of the workload. Nothing is queued yet.
    pub(crate) fn make_groups(&mut self, world: &World) {
        self.cgroups = Cgroups::new(world, self.rqs.len());
        if self.cgroups.active() {
            for rq in &mut self.rqs {
                rq.queue.use_fraction(FRACTION);
            }
        }
    }

    /// Stops counting a task in its group because it was taken off the queue of `cpu`, whose
    /// averages are up to date.
    #[inline(never)]
    pub(crate) fn count_out_of_cgroup(&mut self, cpu: CpuId, task: TaskId) {
        let now = self.rqs[cpu].avg.last_update;
        self.cgroups.advance(cpu, now);
        let state = &self.tasks[task.index()];
        if let Some(group) = state.group {
            self.cgroups.count_out(cpu, group, state.own_weight);
        }
        // Mostly no task is left whose weight could change.
        if self.rqs[cpu].nr_running > 0 {
            self.cgroups.share_out(cpu);
            self.apply_group_weights(cpu);
        }
    }

    /// At the tick: entities' weights follow the loads of their groups on all CPUs.
    #[inline(never)]
    pub(crate) fn tick_groups(&mut self, cpu: CpuId) {
        let now = self.rqs[cpu].avg.last_update;
        self.cgroups.advance(cpu, now);
        self.cgroups.share_out(cpu);
        self.apply_group_weights(cpu);
    }

    /// The nice value or policy of a queued task changed. Its own weight was `old`.
    pub(crate) fn change_own_weight(&mut self, cpu: CpuId, task: TaskId, old: u64) {
        let now = self.rqs[cpu].avg.last_update;
        self.cgroups.advance(cpu, now);
        let state = &self.tasks[task.index()];
        if let Some(group) = state.group {
            let how = self.features.averages.leaving;
            self.cgroups.detach(cpu, group, &state.avg, old, how);
            self.cgroups.attach(cpu, group, &state.avg, state.own_weight);
            self.cgroups.count_out(cpu, group, old);
            self.cgroups.count_in(cpu, group, state.own_weight);
        }
        self.cgroups.share_out(cpu);
        self.apply_group_weights(cpu);
    }

    /// A task of `cpu`, whose averages are up to date, moves to the group that `world` names
    /// (`sched_move_task`). Its load, if it has any there, leaves the old group and joins the new one.
    /// It keeps its lag and the rest of its request. CPU `by` executes this.
    pub(crate) fn change_cgroup(&mut self, world: &mut World, cpu: CpuId, task: TaskId, by: CpuId) {
        let now = self.rqs[cpu].avg.last_update;
        self.cgroups.advance(cpu, now);
        let state = &mut self.tasks[task.index()];
        let (attached, on_rq, own) = (state.attached, state.on_rq, state.own_weight);
        let new = world.group(task).map(|group| group as GroupIndex);
        if let Some(old) = std::mem::replace(&mut state.group, new) {
            if attached {
                let how = self.features.averages.leaving;
                self.cgroups.detach(cpu, old, &state.avg, own, how);
            }
            if on_rq {
                self.cgroups.count_out(cpu, old, own);
            }
        }
        if let Some(new) = new {
            if attached {
                self.cgroups.attach(cpu, new, &state.avg, own);
            }
            if on_rq {
                self.cgroups.count_in(cpu, new, own);
            }
        }
        self.cgroups.share_out(cpu);
        self.apply_group_weights(cpu);
        if self.features.queue.reschedules_moved && self.rqs[cpu].current == Some(task) {
            world.resched(by, cpu);
        }
    }

    /// Gives every task on the queue of `cpu`, whose averages are up to date, the weight that
    /// follows from its group's share.
    #[inline(never)]
    pub(crate) fn apply_group_weights(&mut self, cpu: CpuId) {
        let now = self.rqs[cpu].avg.last_update;
        // Loads are rounded, so the order counts.
        let mut list = std::mem::take(&mut self.cgroups.list);
        self.rqs[cpu].queue.list(&mut list);
        for &(_, task) in &list {
            let state = &mut self.tasks[task.index()];
            state.update_average(now);
            let weight = self.cgroups.weight(cpu, state.group, state.own_weight);
            state.entity.weight = weight;
            if in_loads(weight) != state.weight {
                self.set_load_weight(cpu, task, in_loads(weight));
            }
        }
        self.cgroups.list = list;
        let tasks = &self.tasks;
        self.rqs[cpu].queue.reweight(|task| tasks[task.index()].entity.weight);
    }

    /// CFS: the most that `wakee`, which just arrived on `cpu`, may count as behind the current
    /// task. If their groups differ, the kernel compares the entities of the two groups. So a lag
    /// of `wakee` behind its own group does not count.
    #[inline(never)]
    pub(crate) fn place_among_groups(&self, cpu: CpuId, wakee: TaskId) -> i64 {
        let group = |task: TaskId| self.tasks[task.index()].group;
        let (own, current) = (group(wakee), self.rqs[cpu].current.map(group));
        if own.is_none() || current.is_none_or(|group| group == own) {
            return ANYWHERE;
        }
        self.rqs[cpu].queue.place_of(|task| task != wakee && group(task) == own)
    }
}

#[cfg(test)]
mod tests;
