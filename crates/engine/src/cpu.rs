//! How fast a CPU's task progresses.
//!
//! Wall time on a CPU is used in this order: kernel work charged to the CPU, the refill of caches
//! after a migration, then the task's own work at the CPU's speed. The speed is 1 while the core's
//! other CPUs are idle, and [`Figures::smt_speed_1024`] while one is busy. A sweep over memory
//! ([`Activity::Sweep`]) has its own speed, which `memory.rs` computes.
//!
//! Refill after a migration: a task that starts on another core touches its stack, its code and the
//! rest of its working set that is not modelled as regions ([`Template::footprint_bytes`]). Each
//! byte is fetched once, at the machine's refill bandwidth, from its old place: the LLC (at most
//! the capacity of the private cache), another LLC of the package, or another package (at most the
//! capacity of the LLC). A flat penalty per migration would be wrong by a factor of 30 between
//! small and large working sets.
//!
//! [`Figures::smt_speed_1024`]: roost_machine::Figures::smt_speed_1024
//! [`Template::footprint_bytes`]: roost_workload::Template::footprint_bytes

use roost_machine::Machine;

use crate::scheduler::{CpuId, Pick, TaskId};
use crate::task::{Activity, Task};
use crate::time::Time;
use crate::world::{CpuState, Looking, World};

/// Speed of a CPU that has its core for itself, at the clock that all other figures stand for.
pub(crate) const FULL_SPEED: u16 = 1024;

impl World {
    /// Updates the progress of `cpu`'s task to now.
    #[inline]
    pub(crate) fn settle(&mut self, cpu: CpuId) {
        self.cpus[cpu].settle(&mut self.tasks, self.now);
    }

    #[inline]
    pub(crate) fn mark_stale(&mut self, cpu: CpuId) {
        self.cpus[cpu].mark_stale(cpu, &mut self.stale);
    }

    /// Schedules the end of the current operation again for every CPU where it changed.
    #[inline]
    pub(crate) fn rearm_stale(&mut self) {
        if self.memory.as_ref().is_some_and(|memory| memory.is_unsettled()) {
            self.share_bandwidth();
        }
        if !self.stale.is_empty() {
            self.rearm_all_stale();
        }
    }

    /// [`World::rearm_stale`] when bandwidth is shared and some CPU is stale.
    #[inline(never)]
    fn rearm_all_stale(&mut self) {
        while let Some(cpu) = self.stale.pop() {
            let state = &mut self.cpus[cpu];
            state.stale = false;
            let end = state.run_end(&self.tasks);
            self.events.set_run_end(cpu, end);
        }
    }

    /// As [`World::mark_stale`] and [`World::rearm_stale`] for `cpu`, if it is not yet stale and
    /// bandwidth need not be shared first. Of all stale CPUs it is then the first one.
    #[inline]
    pub(crate) fn rearm_now(&mut self, cpu: CpuId) {
        let state = &mut self.cpus[cpu];
        let must_share = self.memory.as_ref().is_some_and(|memory| memory.is_unsettled());
        if state.stale || must_share {
            state.mark_stale(cpu, &mut self.stale);
        } else {
            let end = state.run_end(&self.tasks);
            self.events.set_run_end(cpu, end);
        }
    }

    /// The CPU became busy or idle: the other CPUs of its core change their speed.
    #[inline]
    pub(crate) fn update_core_speed(&mut self, cpu: CpuId) {
        if self.smt || self.power.is_some() {
            self.share_core(cpu);
        }
    }

    /// [`World::update_core_speed`] where cores have several CPUs, or packages have clocks.
    fn share_core(&mut self, cpu: CpuId) {
        let core = self.machine.cpus[cpu].core as usize;
        let runs = self.cpus[cpu].current.is_some();
        let busy = &mut self.busy_cpus[core];
        *busy = if runs { *busy + 1 } else { *busy - 1 };
        let busy = *busy;
        if busy == 0 {
            return;
        }
        let speed = self.core_speed(cpu);
        let Self { core_cpus, cpus, tasks, stale, memory, now, .. } = self;
        let concerned = if runs && busy == 1 { &[cpu][..] } else { &core_cpus[core][..] };
        for &cpu in concerned {
            let changed = cpus[cpu].set_speed(cpu, speed, tasks, stale, *now);
            if changed && let Some(memory) = memory {
                memory.reprice(cpu);
            }
        }
    }

    /// The clock of `cpu` has changed.
    pub(crate) fn follow_clock(&mut self, cpu: CpuId) {
        let speed = self.core_speed(cpu);
        let Self { cpus, tasks, stale, now, .. } = self;
        cpus[cpu].set_speed(cpu, speed, tasks, stale, *now);
    }

    /// The speed of each busy CPU of a core, by the clock of its package and by how many of its CPUs are busy.
    pub(crate) fn core_speed(&self, cpu: CpuId) -> u16 {
        ((u32::from(self.core_share(cpu)) * u32::from(self.clock_1024(cpu))) >> 10) as u16
    }

    /// What each busy CPU of a core gets of it, in 1024ths of what it gets alone.
    pub(crate) fn core_share(&self, cpu: CpuId) -> u16 {
        let busy = self.busy_cpus[self.machine.cpus[cpu].core as usize];
        // At most 1024, because it is a share of FULL_SPEED.
        let shared = self.machine.figures.smt_speed_1024.value as u16;
        if busy > 1 { shared } else { FULL_SPEED }
    }
}

impl CpuState {
    /// Sets the speed of `cpu`, which this is. Returns whether it has changed. An idle CPU gets its speed when it
    /// becomes busy.
    #[inline]
    fn set_speed(
        &mut self,
        cpu: CpuId,
        speed_1024: u16,
        tasks: &mut [Task],
        stale: &mut Vec<CpuId>,
        now: Time,
    ) -> bool {
        if self.current.is_none() || self.speed_1024 == speed_1024 {
            return false;
        }
        self.settle(tasks, now);
        self.speed_1024 = speed_1024;
        self.mark_stale(cpu, stale);
        true
    }

    /// Adds `cpu`, which this is, to the CPUs whose end of run must be computed again.
    #[inline]
    pub(crate) fn mark_stale(&mut self, cpu: CpuId, stale: &mut Vec<CpuId>) {
        if !self.stale {
            self.stale = true;
            stale.push(cpu);
        }
    }

    /// Whether it searches for a task after it ran another one. Then it has no task but is not idle.
    #[inline]
    pub(crate) fn looks_after_task(&self) -> bool {
        matches!(self.looking, Looking::From(_))
    }

    /// Records, after a pick, whether the CPU searches on, having run `previous`.
    #[inline]
    pub(crate) fn look(&mut self, previous: Option<TaskId>, pick: Pick) {
        self.looking = match (pick, previous, self.looking) {
            (Pick::Run(_) | Pick::Idle, ..) => Looking::No,
            (_, Some(task), _) => Looking::From(task),
            (_, None, Looking::No) => Looking::FromIdle,
            (_, None, looking) => looking,
        };
    }

    /// Updates the progress of this CPU's task to `now`.
    #[inline]
    pub(crate) fn settle(&mut self, tasks: &mut [Task], now: Time) {
        if now <= self.progress_from {
            return;
        }
        let elapsed = now - self.progress_from;
        self.progress_from = now;
        let Some(current) = self.current else { return };
        let task = &mut tasks[current.index()];
        let refill = elapsed.min(task.refill_ns);
        task.refill_ns -= refill;
        if let Activity::Work(left) = &mut task.activity {
            *left = left.saturating_sub(((elapsed - refill) * u64::from(self.speed_1024)) >> 10);
        } else if let Activity::Sweep { rate, left, .. } = &mut task.activity {
            *left = left.saturating_sub((elapsed - refill).saturating_mul(u64::from(*rate)));
        }
    }

    /// When the current operation of this CPU's task ends, or the CPU's search for a task, if nothing
    /// changes. The task's progress is settled.
    #[inline]
    fn run_end(&self, tasks: &[Task]) -> Option<Time> {
        if self.looking != Looking::No {
            return Some(self.progress_from);
        }
        let task = &tasks[self.current?.index()];
        let from = self.progress_from + task.refill_ns;
        Some(match task.activity {
            Activity::Work(ns) if self.speed_1024 == FULL_SPEED => from + ns,
            Activity::Work(ns) => from + (ns << 10).div_ceil(self.speed_1024.into()),
            Activity::Until(time) => from.max(time),
            Activity::Sweep { rate, left, until } => {
                from + left.saturating_sub(until).div_ceil(u64::from(rate.max(1)))
            }
        })
    }
}

/// Time to refill `footprint` bytes of working set on `to` if the task last ran on `from`, ns.
pub(crate) fn refill_ns(machine: &Machine, from: CpuId, to: CpuId, footprint: u64) -> u64 {
    let (source, target) = (&machine.cpus[from], &machine.cpus[to]);
    let figures = &machine.figures;
    if source.core == target.core || footprint == 0 {
        return 0;
    }
    let llc_bytes = machine.llcs[target.llc as usize].size_bytes.unwrap_or(u64::MAX);
    let (bytes, bandwidth) = if source.llc == target.llc {
        (footprint.min(figures.l2_bytes.value), figures.refill_llc_bytes_per_us.value)
    } else if source.package == target.package {
        (footprint.min(llc_bytes), figures.refill_local_bytes_per_us.value)
    } else {
        (footprint.min(llc_bytes), figures.refill_remote_bytes_per_us.value)
    };
    bytes.saturating_mul(1000) / bandwidth.max(1)
}
