//! The fair class's hooks: what happens to a run queue when tasks come, go, run and are ticked.
//!
//! Every operation accounts the current task up to now, then updates the averages concerned, then
//! changes the queue. So averages describe the time before the change. Averages are updated exactly
//! where the kernel updates them: at enqueue, dequeue, tick, pick and put.

#[cfg(test)]
pub(crate) mod tests;

use std::hint::select_unpredictable;
use std::sync::Arc;

use roost_engine::{
    CpuId, Dequeue, Enqueue, HintingFault, Pick, Scheduler, TaskId, Wake, Work, World,
};
use roost_machine::{CpuSet, Machine};
use roost_workload::Policy;

use crate::balance::{Balancer, Pulled};
use crate::cache::{CacheAware, CacheRq};
use crate::cgroup::{self, Cgroups};
use crate::clock::TaskClock;
use crate::domain::Topology;
use crate::eras::{LeavingSums, Load, UtilEst};
use crate::features::{Features, SearchLimit};
use crate::mechanisms::Mechanisms;
use crate::numa::Numa;
use crate::older::Power;
use crate::older::decayed::DecayedLoads;
use crate::pelt::{Avg, LoadAvg, Removed, util_est_follow, util_est_update};
use crate::queue::{ANYWHERE, Arrival, Entity, Leave, Preempt, Queue, QueueRules};
use crate::start::Start;
use crate::state::{DomainState, Fair, FairTask, LlcShared, Nohz, Rq};
use crate::stats::Stats;
use crate::wakeup::WakeeFlips;
use crate::weight::{SCHED_IDLE_WEIGHT, weight_of};

impl Fair {
    /// The fair class of the kernel version `features` on `machine`, with empty queues.
    pub fn new(machine: &Machine, features: Features) -> Self {
        let topology = Topology::new(machine, &features);
        let rules = Arc::new(QueueRules::new(&features, machine.nr_cpus()));
        let cache = CacheAware::new(machine, &topology, &features);
        let numa = Numa::new(machine, &features);
        let mechanisms = Mechanisms::new(machine, &features);
        let migration_cost_ns = features.tunables.migration_cost_ns.into();
        let tracks_runnable_load = features.averages.load == Load::QueuedAverage;
        let rq = |cpu| Rq {
            runnable_load: tracks_runnable_load.then(LoadAvg::default),
            ..Rq::new(&rules, &topology, &cache, numa.node_of[cpu], cpu, migration_cost_ns)
        };
        let rqs = (0..machine.nr_cpus()).map(rq).collect();
        let llcs = topology.llc_span.iter().map(|span| LlcShared::new(span, topology.smt_active));
        Self {
            power: Power::new(&topology, &features),
            cgroups: Cgroups::default(),
            llcs: llcs.collect(),
            balance: Balancer::new(&topology),
            rqs,
            topology,
            tick_ns: features.tick_ns(),
            features,
            tasks: Vec::new(),
            nohz: Nohz {
                idle_cpus: CpuSet::new(machine.nr_cpus()),
                next_balance: 0,
                has_blocked: false,
                next_blocked: 0,
                needs_update: false,
            },
            sched_idle_cpus: CpuSet::new(machine.nr_cpus()),
            root_overloaded: false,
            start: Start::Boot,
            jiffies_before: 0,
            cache,
            numa,
            mechanisms,
            stats: Stats::default(),
        }
    }

    /// Accounts the run time of the current task of `cpu`. Updates the averages of that task and of
    /// the queue.
    pub(crate) fn update_rq(&mut self, world: &mut World, cpu: CpuId) {
        self.account_current(world, cpu, cpu);
        match self.rqs[cpu].current {
            Some(task) => self.update_averages(world, cpu, task),
            None => self.update_blocked(world, cpu),
        }
    }

    /// Updates the averages of the queue of `cpu`, so that blocked load decays.
    pub(crate) fn update_blocked(&mut self, world: &World, cpu: CpuId) {
        let now = self.task_clock(world, cpu);
        self.rqs[cpu].update_average(now, self.features.averages.leaving);
        if self.cgroups.active() {
            self.cgroups.advance(cpu, now);
        }
    }

    /// CPU `by` balances and takes a queued task off its queue. The task is not the current one. It
    /// keeps its lag and takes its averages along. [`Fair::attach_queued`] follows.
    pub(crate) fn detach_queued(
        &mut self,
        world: &mut World,
        task: TaskId,
        from: CpuId,
        by: CpuId,
    ) {
        self.account_current(world, from, by);
        self.update_averages(world, from, task);
        self.deactivate(from, task, Leave::Runnable);
        self.detach_averages(from, task);
    }

    /// CPU `by` balances and puts a detached task on the queue of `to`.
    pub(crate) fn attach_queued(&mut self, world: &mut World, task: TaskId, to: CpuId, by: CpuId) {
        self.numa_moved(world, task, world.task_cpu(task), to);
        world.set_task_cpu(task, to);
        world.mark_queued(to);
        self.activate(world, to, task, Arrival::Moved, by);
        self.check_preempt(world, to, task, Arrival::Moved, by);
    }

    /// A wakeup moves a sleeping task to another CPU: its averages leave the blocked load of the
    /// old CPU (`migrate_task_rq_fair`).
    fn migrate_sleeping(&mut self, world: &World, task: TaskId) {
        let from = world.task_cpu(task);
        let rq = &mut self.rqs[from];
        let state = &mut self.tasks[task.index()];
        let weight = state.weight;
        state.avg.update(rq.avg.last_update, 0, 0, false, weight);
        rq.queue.migrate_sleeping(&mut state.entity);
        self.remove_averages(from, task);
        // migrate_se_pelt_lag(): the queue of an idle CPU may not have been updated for long.
        if self.features.averages.sleeper_decays_to_wakeup && world.current(from).is_none() {
            let now = self.rqs[from].clock.estimate(world.now().ns());
            self.tasks[task.index()].avg.update(now, 0, 0, false, weight);
        }
    }

    /// Removes the averages of a sleeping or exiting task from `cpu`, whose lock is not held
    /// (`remove_entity_load_avg()`). The task no longer counts as cache-hot there.
    fn remove_averages(&mut self, cpu: CpuId, task: TaskId) {
        self.forget_cache(task);
        let (rq, state) = (&mut self.rqs[cpu], &mut self.tasks[task.index()]);
        if !std::mem::take(&mut state.attached) {
            return;
        }
        rq.remove(state);
        if let Some(group) = state.group {
            let how = self.features.averages.leaving;
            self.cgroups.detach(cpu, group, &state.avg, state.own_weight, how);
        }
    }

    /// The task no longer counts as cache-hot on the CPU where it ran.
    fn forget_cache(&mut self, task: TaskId) {
        self.tasks[task.index()].exec_start = 0;
    }

    /// Removes the averages of a task from `cpu`. The task no longer counts as cache-hot there.
    fn detach_averages(&mut self, cpu: CpuId, task: TaskId) {
        self.forget_cache(task);
        let state = &mut self.tasks[task.index()];
        if std::mem::take(&mut state.attached) {
            let how = self.features.averages.leaving;
            self.rqs[cpu].detach(state, how);
            if let Some(group) = state.group {
                self.cgroups.detach(cpu, group, &state.avg, state.own_weight, how);
            }
        }
    }

    /// Accounts the run time of the current task (`update_curr`). CPU `by` executes this. Returns the
    /// clock of the CPU's tasks.
    #[inline]
    fn account_current(&mut self, world: &mut World, cpu: CpuId, by: CpuId) -> u64 {
        let now = self.task_clock(world, cpu);
        if let Some(current) = self.rqs[cpu].current {
            self.account_task(world, cpu, by, current, now);
        }
        now
    }

    /// [`Fair::account_current`] for the current task `current`, at `now`.
    fn account_task(
        &mut self,
        world: &mut World,
        cpu: CpuId,
        by: CpuId,
        current: TaskId,
        now: u64,
    ) {
        let state = &mut self.tasks[current.index()];
        let delta = now - state.exec_start;
        if delta == 0 {
            return;
        }
        state.exec_start = now;
        state.sum_exec += delta;
        if self.rqs[cpu].queue.run(delta) {
            give_way(self.features.switches.preempt_lazy, world, by, cpu);
        }
        if self.cache.active {
            self.account_process(world, cpu, current, delta);
        }
    }

    /// Updates the averages of a task attached to `cpu`, and those of the queue.
    #[inline]
    fn update_averages(&mut self, world: &World, cpu: CpuId, task: TaskId) {
        let now = self.task_clock(world, cpu);
        let state = &mut self.tasks[task.index()];
        self.rqs[cpu].update_with(state, now, self.features.averages.leaving);
    }

    /// Puts a task on the queue of `cpu`. CPU `by` executes this.
    fn activate(&mut self, world: &mut World, cpu: CpuId, task: TaskId, how: Arrival, by: CpuId) {
        let now = self.account_current(world, cpu, by);
        let state = &mut self.tasks[task.index()];
        if state.attached {
            state.update_average(now);
        }
        let rq = &mut self.rqs[cpu];
        rq.update_average(now, self.features.averages.leaving);
        let attaches = !state.attached;
        let grouped = self.cgroups.active();
        if attaches {
            if grouped {
                state.avg.join_in_group(&rq.avg, state.weight);
            } else {
                state.avg.join(&rq.avg, state.weight);
            }
            rq.attach(state);
            state.attached = true;
        }
        let mut credit = rq.queue.sleeper_credit();
        if grouped {
            let alone = rq.nr_running == 0;
            credit = self.cgroups.join(cpu, rq.avg.last_update, state, attaches, alone, credit);
        }
        rq.queue.insert_with_credit(task, state.entity, how, credit);
        let (rq, state) = (&mut self.rqs[cpu], &mut self.tasks[task.index()]);
        state.on_rq = true;
        rq.count_in(state);
        self.on_queued(world, cpu, task);
        if grouped {
            self.apply_group_weights(cpu);
        }
        // add_nr_running() in kernel/sched/sched.h sets this at once. Only the next statistics pass
        // of the root domain clears it.
        self.root_overloaded |= self.rqs[cpu].nr_running == 2;
        self.note_sched_idle(cpu);
        self.hrtick_queued(world, cpu, by);
    }

    /// Takes a task off the queue of `cpu`. The averages are up to date.
    fn deactivate(&mut self, cpu: CpuId, task: TaskId, why: Leave) {
        let rq = &mut self.rqs[cpu];
        let state = &mut self.tasks[task.index()];
        state.entity = rq.queue.remove(task, why);
        rq.count_out(state);
        state.on_rq = false;
        state.delayed = state.entity.delayed;
        if state.running {
            state.running = false;
            rq.current = None;
        }
        self.on_left(cpu, task);
        if self.cgroups.active() {
            self.count_out_of_cgroup(cpu, task);
        }
        self.note_sched_idle(cpu);
    }

    /// Completes the delayed dequeue of a task.
    #[inline(never)]
    fn finish_delayed(&mut self, world: &World, cpu: CpuId, task: TaskId) {
        self.update_averages(world, cpu, task);
        self.deactivate(cpu, task, Leave::Sleep);
    }

    /// Asks `cpu` to pick again if `task`, which just arrived, preempts the current task. CPU `by`
    /// executes this.
    #[inline]
    fn check_preempt(
        &mut self,
        world: &mut World,
        cpu: CpuId,
        task: TaskId,
        how: Arrival,
        by: CpuId,
    ) {
        loop {
            let place =
                if self.cgroups.active() { self.place_among_groups(cpu, task) } else { ANYWHERE };
            match self.rqs[cpu].queue.preempts(task, how, place) {
                Preempt::Yes => {
                    return give_way(self.features.switches.preempt_lazy, world, by, cpu);
                }
                Preempt::No => return,
                Preempt::AfterDequeue(sleeper) => self.finish_delayed(world, cpu, sleeper),
            }
        }
    }

    /// Keeps the set of CPUs that have only SCHED_IDLE tasks. 5.2 and 3.9 do not use it.
    #[inline]
    fn note_sched_idle(&mut self, cpu: CpuId) {
        let rq = &self.rqs[cpu];
        if rq.nr_sched_idle > 0
            && rq.nr_sched_idle == rq.nr_running
            && self.features.placement.knows_sched_idle_cpus
        {
            self.sched_idle_cpus.insert(cpu);
        } else {
            self.sched_idle_cpus.remove(cpu);
        }
    }

    /// Ends the idle period of `cpu`, which gets a task to run (kernel model, section 6; section
    /// 7.4 for `wake_avg_idle`).
    #[inline]
    fn end_idle(&mut self, world: &World, cpu: CpuId) {
        if let Some(since) = self.rqs[cpu].idle_since.take() {
            self.note_idle_period(world, cpu, since);
        }
    }

    /// Adds the idle period of `cpu` that began at `since` to the averages.
    #[inline(never)]
    fn note_idle_period(&mut self, world: &World, cpu: CpuId, since: u64) {
        let rq = &mut self.rqs[cpu];
        let sample = world.now().ns() - since;
        let most = 2 * rq.max_idle_balance_cost;
        // After a long idle period 3.9 forgets the earlier average.
        let from =
            if self.features.balance.newidle_costs || sample <= most { rq.avg_idle } else { most };
        rq.avg_idle = moved_by_eighth(from, sample).min(most);
        rq.wake_avg_idle = rq.avg_idle / 2;
        if self.features.switches.search_limit == SearchLimit::Proportion {
            self.rqs[cpu].wake_stamp = self.jiffies(world.now());
        }
        if self.features.averages.load == Load::Weight {
            let jiffy = self.jiffies(world.now());
            self.rqs[cpu].decayed.idled(jiffy);
        }
    }

    /// The queue of `cpu` is empty: starts or continues newly-idle balancing.
    #[inline(never)]
    fn pull(&mut self, world: &mut World, cpu: CpuId) -> Pulled {
        // If a wakeup is pending, the kernel returns before it sets idle_stamp: the time that
        // follows is no idle period and does not enter avg_idle.
        if self.rqs[cpu].search.is_none() && !world.wakeup_pending(cpu) {
            self.rqs[cpu].idle_since = Some(world.now().ns());
        }
        if !self.rqs[cpu].awaits_swap {
            match self.newidle_balance(world, cpu) {
                Pulled::Some => {
                    self.rqs[cpu].idle_since = None;
                    return Pulled::Some;
                }
                Pulled::Later => return Pulled::Later,
                Pulled::Nothing => {}
            }
        }
        self.stats.sched_goidle += 1;
        self.note_idle_core(world, cpu);
        if !self.features.balance.idle_tick {
            self.nohz_enter_idle(world, cpu);
        }
        Pulled::Nothing
    }

    /// `cpu` goes idle. If its whole core is idle, this is noted in the LLC (`update_idle_core`).
    fn note_idle_core(&mut self, world: &mut World, cpu: CpuId) {
        let llc = self.topology.llc_of[cpu] as usize;
        if !self.topology.smt_active || self.llcs[llc].has_idle_cores(world.now()) {
            return;
        }
        let mut siblings = self.topology.siblings(cpu).iter();
        if siblings.all(|sibling| sibling == cpu || world.is_idle(sibling)) {
            let shared = &mut self.llcs[llc];
            shared.idle_cores = true;
            let writer = std::mem::replace(&mut shared.last_writer, cpu);
            if writer != cpu {
                world.charge_line(cpu, writer);
            }
        }
    }

    /// Picks the next task of `cpu` and makes it the current one. Goes idle if there is none.
    fn pick_next(&mut self, world: &mut World, cpu: CpuId) -> Pick {
        loop {
            let rq = &mut self.rqs[cpu];
            let Some(task) = rq.queue.pick().filter(|_| rq.search.is_none()) else {
                match self.pull(world, cpu) {
                    Pulled::Some => continue,
                    Pulled::Nothing => return Pick::Idle,
                    Pulled::Later => return Pick::Later,
                }
            };
            if self.tasks[task.index()].delayed {
                self.finish_delayed(world, cpu, task);
                continue;
            }
            let current = rq.current;
            if current != Some(task) {
                if let Some(since) = rq.idle_since.take() {
                    self.note_idle_period(world, cpu, since);
                }
                if let Some(previous) = current {
                    self.put_task(world, cpu, previous);
                }
                self.set_next(world, cpu, task);
            }
            return Pick::Run(task);
        }
    }

    /// Puts the current task back among the waiting tasks.
    #[inline(never)]
    fn put_task(&mut self, world: &mut World, cpu: CpuId, task: TaskId) {
        self.update_averages(world, cpu, task);
        let rq = &mut self.rqs[cpu];
        rq.queue.put_current();
        rq.current = None;
        self.tasks[task.index()].running = false;
    }

    /// Makes a waiting task the current task.
    #[inline]
    fn set_next(&mut self, world: &mut World, cpu: CpuId, task: TaskId) {
        let now = self.task_clock(world, cpu);
        let (rq, state) = (&mut self.rqs[cpu], &mut self.tasks[task.index()]);
        rq.update_with(state, now, self.features.averages.leaving);
        rq.queue.set_current(task);
        rq.current = Some(task);
        // Before 4.15 a pick did not move a task in the list.
        if !self.features.balance.in_queued_order {
            rq.queue.move_current_to_head();
        }
        state.running = true;
        state.exec_start = now;
        state.prev_sum_exec = state.sum_exec;
        // Mostly there is nothing to do.
        if state.cache_work || self.numa.active {
            self.return_to_user(world, cpu, task);
        }
    }

    /// `task` is about to return to user mode on `cpu`: does the work that its tick left for this
    /// moment.
    #[inline]
    fn return_to_user(&mut self, world: &mut World, cpu: CpuId, task: TaskId) {
        self.cache_work(world, cpu, task);
        self.numa_work(world, cpu, task);
    }

    /// Wakes a task with a delayed dequeue where it is. Returns its CPU.
    fn wake_delayed(&mut self, world: &mut World, task: TaskId, wake: Wake) -> CpuId {
        let cpu = world.task_cpu(task);
        if cpu != wake.cpu {
            world.charge_line(wake.cpu, cpu);
        }
        let now = self.account_current(world, cpu, wake.cpu);
        let (rq, state) = (&mut self.rqs[cpu], &mut self.tasks[task.index()]);
        rq.update_with(state, now, self.features.averages.leaving);
        rq.queue.wake_delayed(task);
        state.delayed = false;
        rq.count_runnable(state);
        rq.cache.runnable_again(state);
        self.check_preempt(world, cpu, task, Arrival::Wakeup, wake.cpu);
        self.count_remote_wakeup(wake.cpu, cpu);
        cpu
    }

    /// The nice value or the policy of the current task of `cpu` changed. The task gives way if its
    /// weight got smaller (`prio_changed_fair`).
    fn change_priority(&mut self, world: &mut World, cpu: CpuId, task: TaskId) {
        self.update_averages(world, cpu, task);
        let state = &mut self.tasks[task.index()];
        let (old, was) = (state.own_weight, state.entity);
        state.own_weight = Self::take_priority(world, task, &mut state.entity);
        let (own, new) = (state.own_weight, state.entity);
        let rq = &mut self.rqs[cpu];
        rq.nr_sched_idle += u32::from(new.policy == Policy::Idle);
        rq.nr_sched_idle -= u32::from(was.policy == Policy::Idle);
        let weight = if self.cgroups.active() { own << cgroup::FRACTION } else { own };
        rq.queue.change(task, |entity| {
            entity.weight = weight;
            entity.policy = new.policy;
        });
        if self.cgroups.active() {
            self.change_own_weight(cpu, task, old);
        } else {
            self.set_load_weight(cpu, task, own);
        }
        if own < old {
            world.resched(cpu, cpu);
        }
        self.note_sched_idle(cpu);
    }

    /// Sets what a queued task adds to load. Its averages and those of the queue are up to date.
    pub(crate) fn set_load_weight(&mut self, cpu: CpuId, task: TaskId, weight: u64) {
        let rq = &mut self.rqs[cpu];
        let state = &mut self.tasks[task.index()];
        let old = std::mem::replace(&mut state.weight, weight);
        let how = self.features.averages.leaving;
        #[cfg(debug_assertions)]
        rq.ledger.reweighs(&state.avg, old, weight);
        rq.changing(|avg| avg.sub_load(&state.avg, old, how));
        if let Some(load) = &mut rq.runnable_load {
            load.sub(&state.avg, old, how);
        }
        state.avg.load_avg = state.avg.weighing(weight).load_avg;
        rq.changing(|avg| avg.add_load(&state.avg, weight));
        if let Some(load) = &mut rq.runnable_load {
            load.add(&state.avg, weight);
        }
        rq.load_weight = rq.load_weight + weight - old;
    }

    /// Copies the policy of a task from `world` to its entity. Returns the weight that follows from
    /// policy and nice value.
    fn take_priority(world: &World, task: TaskId, entity: &mut Entity) -> u64 {
        entity.policy = world.policy(task);
        match entity.policy {
            Policy::Idle => SCHED_IDLE_WEIGHT,
            Policy::Normal | Policy::Batch => weight_of(world.nice(task)),
        }
    }
}

/// CPU `by` asks `cpu` to pick again because its current task has to give way: at once
/// (`resched_curr`), or with lazy preemption when that task returns to user mode
/// (`resched_curr_lazy`).
#[inline]
fn give_way(lazy: bool, world: &mut World, by: CpuId, cpu: CpuId) {
    if lazy {
        world.resched_lazy(by, cpu);
    } else {
        world.resched(by, cpu);
    }
}

/// Moves an average an eighth of the way to a sample (`update_avg`).
fn moved_by_eighth(average: u64, sample: u64) -> u64 {
    let difference = sample as i64 - average as i64;
    (average as i64 + difference / 8) as u64
}

impl Rq {
    /// An empty queue for `cpu`.
    fn new(
        rules: &Arc<QueueRules>,
        topology: &Topology,
        cache: &CacheAware,
        node: u16,
        cpu: CpuId,
        migration_cost_ns: u64,
    ) -> Self {
        let domains = topology.domains_of(cpu).iter();
        Self {
            queue: Queue::new(rules.clone()),
            avg: Avg::default(),
            clock: TaskClock::default(),
            capacity: 1024,
            removed: Removed::default(),
            util_est: 0,
            current: None,
            nr_running: 0,
            nr_runnable: 0,
            nr_sched_idle: 0,
            idle_wakees: WakeeFlips::default(),
            load_weight: 0,
            idle_since: None,
            avg_idle: 2 * migration_cost_ns,
            wake_avg_idle: 2 * migration_cost_ns,
            wake_stamp: 0,
            max_idle_balance_cost: migration_cost_ns,
            next_balance: 0,
            domains: domains.map(|&id| DomainState::new(topology.domain(id))).collect(),
            push: None,
            tickless: false,
            counted_idle: false,
            nohz_kick: None,
            blocked_update: 0,
            cache: CacheRq::new(topology, cpu, cache.active),
            runnable_load: None,
            node,
            nr_numa_running: 0,
            nr_preferred_running: 0,
            numa_migrate_on: false,
            numa_push: None,
            decayed: DecayedLoads::default(),
            search: None,
            awaits_swap: false,
            #[cfg(debug_assertions)]
            ledger: crate::audit::Ledger::default(),
        }
    }

    /// Updates the queue's averages to `now`.
    #[inline(always)]
    pub(crate) fn update_average(&mut self, now: u64, leaving: LeavingSums) {
        if self.removed.any {
            self.subtract_removed(leaving);
        }
        let runnable = u64::from(self.nr_runnable);
        self.avg.update(now, self.load_weight, runnable, self.current.is_some(), 1);
        if let Some(load) = &mut self.runnable_load {
            load.update(now, self.load_weight);
        }
        #[cfg(debug_assertions)]
        self.ledger.update(self.avg.last_update, self.load_weight, u64::from(self.nr_running));
    }

    /// Updates the averages of a task attached here, and those of the queue, to `now`.
    #[inline(always)]
    fn update_with(&mut self, state: &mut FairTask, now: u64, leaving: LeavingSums) {
        state.update_average(now);
        self.update_average(now, leaving);
    }

    /// Adds the averages of a task to the queue's.
    fn attach(&mut self, state: &FairTask) {
        #[cfg(debug_assertions)]
        self.ledger.joins(&state.avg, state.weight);
        self.changing(|avg| avg.add(&state.avg, state.weight));
    }

    /// Subtracts the averages of a task from the queue's.
    fn detach(&mut self, state: &FairTask, how: LeavingSums) {
        #[cfg(debug_assertions)]
        self.ledger.leaves(&state.avg, state.weight);
        self.changing(|avg| avg.sub(&state.avg, state.weight, how));
    }

    /// Keeps the averages of a task for [`Rq::subtract_removed`] to subtract.
    fn remove(&mut self, state: &FairTask) {
        #[cfg(debug_assertions)]
        self.ledger.leaves(&state.avg, state.weight);
        self.removed.collect(&state.avg);
    }

    /// Subtracts the averages that [`Rq::remove`] kept.
    fn subtract_removed(&mut self, how: LeavingSums) {
        let removed = std::mem::take(&mut self.removed);
        self.changing(|avg| avg.subtract(removed, how));
    }

    /// Changes the averages because tasks join or leave.
    fn changing(&mut self, change: impl FnOnce(&mut Avg)) {
        #[cfg(debug_assertions)]
        let before = self.avg.clone();
        change(&mut self.avg);
        #[cfg(debug_assertions)]
        self.ledger.changed(&before, &self.avg);
    }

    /// Counts a task that was queued.
    fn count_in(&mut self, state: &FairTask) {
        self.nr_running += 1;
        self.load_weight += state.weight;
        self.nr_sched_idle += u32::from(state.entity.policy == Policy::Idle);
        if !state.delayed {
            self.count_runnable(state);
        }
        self.cache.count_in(state);
        if let Some(load) = &mut self.runnable_load {
            load.add(&state.avg, state.weight);
        }
        self.count_preferring(state);
    }

    /// Stops counting a task that was taken off.
    fn count_out(&mut self, state: &FairTask) {
        self.nr_running -= 1;
        self.load_weight -= state.weight;
        self.nr_sched_idle -= u32::from(state.entity.policy == Policy::Idle);
        if !state.delayed {
            self.discount_runnable(state);
        }
        self.cache.count_out(state);
        if let Some(load) = &mut self.runnable_load {
            load.sub(&state.avg, state.weight, LeavingSums::Own);
        }
        self.discount_preferring(state);
    }

    /// Counts a queued task by the node it prefers (`account_numa_enqueue`).
    #[inline]
    pub(crate) fn count_preferring(&mut self, state: &FairTask) {
        self.nr_numa_running += u32::from(state.preferred_node.is_some());
        self.nr_preferred_running += u32::from(state.preferred_node == Some(self.node));
    }

    /// Stops counting a queued task by the node it prefers (`account_numa_dequeue`).
    #[inline]
    pub(crate) fn discount_preferring(&mut self, state: &FairTask) {
        self.nr_numa_running -= u32::from(state.preferred_node.is_some());
        self.nr_preferred_running -= u32::from(state.preferred_node == Some(self.node));
    }

    /// Updates util_est of a task that goes to sleep, if its averages changed since the last
    /// update.
    #[inline]
    fn update_util_est(&mut self, state: &mut FairTask, how: UtilEst) {
        let changed = std::mem::take(&mut state.util_changed);
        let (old, Avg { util_avg, runnable_avg, .. }) = (state.util_est, &state.avg);
        let fast_up = |unless_starved| {
            let new = util_est_update(old, *util_avg, *runnable_avg, unless_starved);
            // Whether a period has ended while a task ran is hard to predict.
            select_unpredictable(changed, new, old)
        };
        let new = match how {
            UtilEst::FastUp => fast_up(false),
            UtilEst::FastUpUnlessStarved => fast_up(true),
            UtilEst::Largest if changed => {
                state.util_ewma = util_est_follow(state.util_ewma, *util_avg);
                state.util_ewma.max(*util_avg)
            }
            UtilEst::Largest => old,
        };
        state.util_est = new;
        self.util_est = self.util_est + new - old;
    }

    /// Delays the dequeue of the current task, which goes to sleep, if its lag requires it.
    #[inline]
    fn delay_dequeue(&mut self, state: &mut FairTask) -> bool {
        if !self.queue.delay_current() {
            return false;
        }
        self.discount_runnable(state);
        self.cache.no_longer_runnable(state);
        self.current = None;
        state.running = false;
        state.delayed = true;
        true
    }

    /// Counts a queued task as runnable.
    fn count_runnable(&mut self, state: &FairTask) {
        self.nr_runnable += 1;
        self.util_est += state.util_est;
    }

    /// Stops counting a queued task as runnable.
    fn discount_runnable(&mut self, state: &FairTask) {
        self.nr_runnable -= 1;
        self.util_est -= state.util_est;
    }
}

impl FairTask {
    /// Updates the task's averages to `now`.
    #[inline(always)]
    pub(crate) fn update_average(&mut self, now: u64) {
        let (load, runnable) = (u64::from(self.on_rq), u64::from(self.on_rq && !self.delayed));
        let weight = self.weight;
        self.util_changed |= self.avg.update(now, load, runnable, self.running, weight);
    }
}

impl LlcShared {
    /// The shared state of an idle LLC.
    fn new(span: &CpuSet, smt_active: bool) -> Self {
        Self {
            idle_cores: smt_active,
            nr_busy_cpus: span.len() as u32,
            last_writer: span.first().unwrap_or_default(),
            ..Self::default()
        }
    }
}

impl Scheduler for Fair {
    fn tick_ns(&self) -> u64 {
        self.tick_ns
    }

    fn takes_out_interrupts(&self) -> bool {
        self.features.switches.irq_time
    }

    fn huge_pages(&self) -> bool {
        // The simulation of 3.9 treats all pages as huge pages.
        !self.features.numa.places_tasks
    }

    fn start(&mut self, world: &mut World) {
        self.numa.start(world);
        self.mechanisms.start(world, self.numa.active);
        self.make_groups(world);
        self.start_wheel_timers(world);
        self.begin_idle(world);
    }

    fn task_new(&mut self, world: &mut World, task: TaskId, parent: Option<TaskId>) {
        if self.tasks.len() <= task.index() {
            self.tasks.resize_with(world.nr_task_ids().max(task.index() + 1), FairTask::default);
        }
        let cpu = world.task_cpu(parent.unwrap_or(task));
        self.account_current(world, cpu, cpu);
        let mut entity = Entity::default();
        if let Some(parent) = parent {
            entity.inherit_slice(&self.tasks[parent.index()].entity);
        }
        let own_weight = Self::take_priority(world, task, &mut entity);
        entity.weight = own_weight;
        let group = world.group(task).map(|group| group as usize);
        let mut weight = own_weight;
        if self.cgroups.active() {
            entity.weight = self.cgroups.weight(cpu, group, own_weight);
            weight = cgroup::in_loads(entity.weight);
        }
        // Tasks that the machine started long before the run do not start with a lag from fork.
        if !world.has_run(task) {
            self.rqs[cpu].queue.place_forked(&mut entity);
        }
        self.tasks[task.index()] = FairTask {
            avg: Avg { load_avg: weight, ..Avg::default() },
            entity,
            weight,
            own_weight,
            group,
            recent_used_cpu: cpu,
            ..FairTask::default()
        };
        self.join_process(world, task);
        self.numa_task_new(world, task, parent);
    }

    fn task_exit(&mut self, world: &mut World, task: TaskId) {
        self.numa_task_exit(world, task);
        self.leave_process(world, task);
        self.tasks[task.index()] = FairTask::default();
    }

    #[inline]
    fn wake_queued(&mut self, world: &mut World, task: TaskId, wake: Wake) -> Option<CpuId> {
        self.tasks[task.index()].delayed.then(|| self.wake_delayed(world, task, wake))
    }

    fn select_cpu(&mut self, world: &mut World, task: TaskId, wake: Wake) -> CpuId {
        let cpu = self.select_task_rq(world, task, wake);
        if cpu != world.task_cpu(task) {
            self.numa_moved(world, task, world.task_cpu(task), cpu);
            self.migrate_sleeping(world, task);
        }
        cpu
    }

    fn select_cpu_fork(&mut self, world: &mut World, task: TaskId, wake: Wake) -> CpuId {
        self.select_task_rq_fork(world, task, wake)
    }

    fn enqueue(&mut self, world: &mut World, cpu: CpuId, task: TaskId, why: Enqueue, by: CpuId) {
        self.end_idle(world, cpu);
        let how = match why {
            Enqueue::Wakeup { .. } => Arrival::Wakeup,
            Enqueue::New => Arrival::New,
            Enqueue::Relocated => Arrival::Moved,
        };
        if how == Arrival::New {
            let now = self.task_clock(world, cpu);
            let weight = self.tasks[task.index()].weight;
            let avg = Avg::new_task(weight, &self.rqs[cpu].avg, now);
            self.tasks[task.index()].avg = avg;
        }
        self.activate(world, cpu, task, how, by);
        self.check_preempt(world, cpu, task, how, by);
    }

    fn dequeue(&mut self, world: &mut World, cpu: CpuId, task: TaskId, why: Dequeue) {
        let now = self.account_current(world, cpu, cpu);
        let averages = &self.features.averages;
        let (rq, state) = (&mut self.rqs[cpu], &mut self.tasks[task.index()]);
        if why != Dequeue::NotAllowed && !averages.estimate_after_update {
            rq.update_util_est(state, averages.util_est);
        }
        rq.update_with(state, now, averages.leaving);
        if why != Dequeue::NotAllowed && averages.estimate_after_update {
            rq.update_util_est(state, averages.util_est);
        }
        if why == Dequeue::Sleep && rq.delay_dequeue(state) {
            return;
        }
        if why == Dequeue::Exit {
            self.on_exit(cpu, task);
        }
        let leave = if why == Dequeue::NotAllowed { Leave::Runnable } else { Leave::Sleep };
        self.deactivate(cpu, task, leave);
        match why {
            Dequeue::Sleep => {}
            Dequeue::NotAllowed => self.detach_averages(cpu, task),
            Dequeue::Exit => self.remove_averages(cpu, task),
        }
    }

    fn dequeue_waiting(&mut self, world: &mut World, cpu: CpuId, task: TaskId, by: CpuId) {
        self.detach_queued(world, task, cpu, by);
    }

    /// A sleeping task with a delayed dequeue is moved too, because it is on a queue.
    fn allowed_changed(&mut self, world: &mut World, task: TaskId, by: CpuId) {
        let from = world.task_cpu(task);
        if !self.tasks[task.index()].delayed || world.may_run(task, from) {
            return;
        }
        self.detach_queued(world, task, from, by);
        let to = world.any_allowed(task);
        self.attach_queued(world, task, to, by);
        if world.current(to).is_none() {
            world.resched(by, to);
        }
    }

    fn pick(&mut self, world: &mut World, cpu: CpuId) -> Pick {
        self.account_current(world, cpu, cpu);
        let previous = self.rqs[cpu].current;
        let pick = self.pick_next(world, cpu);
        match pick {
            Pick::Run(next) => self.hrtick_picked(world, cpu, previous, Some(next)),
            Pick::Idle => self.hrtick_picked(world, cpu, previous, None),
            Pick::Later | Pick::Undecided => {}
        }
        pick
    }

    fn put_current(&mut self, world: &mut World, cpu: CpuId) {
        self.account_current(world, cpu, cpu);
        if let Some(task) = self.rqs[cpu].current {
            self.put_task(world, cpu, task);
        }
    }

    fn tick(&mut self, world: &mut World, cpu: CpuId) {
        self.update_rq(world, cpu);
        if self.features.averages.load == Load::Weight {
            self.decay_load(world, cpu);
        }
        if self.cgroups.active() {
            self.tick_groups(cpu);
        }
        let rq = &mut self.rqs[cpu];
        if let Some(task) = rq.current {
            let state = &self.tasks[task.index()];
            if rq.queue.tick(state.sum_exec - state.prev_sum_exec) {
                world.resched(cpu, cpu);
            }
        }
        self.tick_cache(world, cpu);
        self.tick_numa(world, cpu);
        if self.rqs[cpu].tickless {
            self.nohz_exit_idle(world, cpu);
        }
        self.nohz_balancer_kick(world, cpu);
    }

    fn tick_end(&mut self, world: &mut World, cpu: CpuId) {
        // SCHED_SOFTIRQ
        let before = world.charged_ns(cpu);
        self.balance_if_due(world, cpu);
        world.end_interrupt(cpu, before);
        // A task that is preempted now returns to user mode only when it runs again.
        if let Some(task) = self.rqs[cpu].current.filter(|_| !world.resched_pending(cpu)) {
            self.return_to_user(world, cpu, task);
        }
    }

    fn idle_tick(&mut self, world: &mut World, cpu: CpuId) {
        if self.features.balance.idle_tick {
            self.balance_in_idle_tick(world, cpu);
        }
    }

    fn timer(&mut self, world: &mut World, cpu: CpuId) {
        if self.has_wheel_timers() {
            return self.wheel_timer_expired(world, cpu);
        }
        self.hrtick_expired(world, cpu);
    }

    fn yield_current(&mut self, world: &mut World, cpu: CpuId) {
        self.stats.yld_count += 1;
        self.account_current(world, cpu, cpu);
        self.rqs[cpu].queue.yield_current();
    }

    fn reweight(&mut self, world: &mut World, cpu: CpuId, task: TaskId) {
        self.account_current(world, cpu, cpu);
        self.change_priority(world, cpu, task);
    }

    fn group_changed(&mut self, world: &mut World, cpu: CpuId, task: TaskId, by: CpuId) {
        self.account_current(world, cpu, by);
        if self.tasks[task.index()].attached {
            self.update_averages(world, cpu, task);
        } else {
            self.update_blocked(world, cpu);
        }
        self.change_cgroup(world, cpu, task, by);
    }

    fn set_slice(&mut self, world: &mut World, cpu: CpuId, task: TaskId, ns: u64) {
        self.account_current(world, cpu, cpu);
        self.tasks[task.index()].entity.ask_for_slice(ns);
        self.rqs[cpu].queue.change(task, |entity| entity.ask_for_slice(ns));
    }

    fn hinting_fault(&mut self, world: &mut World, cpu: CpuId, task: TaskId, fault: &HintingFault) {
        self.numa_fault(world, cpu, task, fault);
    }

    fn page_moved(
        &mut self,
        _: &mut World,
        _: CpuId,
        task: TaskId,
        fault: &HintingFault,
        pages: u64,
    ) {
        if pages == 0 {
            self.lengthen_old_period(task, fault.pages);
        }
    }

    fn work(&mut self, world: &mut World, cpu: CpuId, work: Work) {
        match work {
            Work::Balance => self.nohz_idle_balance(world, cpu),
            Work::Stop => {
                self.numa_stop(world, cpu);
                self.active_balance_stop(world, cpu);
            }
            Work::Reschedule | Work::Timer | Work::Relocate => {}
        }
    }

    fn counters(&self, sink: &mut dyn FnMut(&str, u64)) {
        self.stats.for_each(sink);
        self.mechanisms.counters(sink);
        self.numa.counters(sink);
    }

    fn maxima(&self, sink: &mut dyn FnMut(&str, u64)) {
        self.mechanisms.maxima(sink);
    }

    fn audit(&self, world: &World) {
        self.audit_all(world);
    }

    fn histograms(&self, sink: &mut dyn FnMut(&str, &[u64])) {
        sink("select_idle_cpu", self.stats.select_idle_cpu_us.counts());
    }
}
