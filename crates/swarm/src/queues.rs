//! Tracks which task is on which CPU, as far as a trace shows, and checks that waits keep the promises.

use std::collections::BTreeMap;

use roost_engine::{CpuId, Time};
use roost_machine::Machine;

use crate::promises::{Claim, Crowd, Promises};
use crate::spread::{Spread, State};

/// A task on a CPU.
struct Queued {
    name: String,
    claim: Claim,
    /// When it began to wait. `None`: it is running.
    waits_since: Option<Time>,
}

/// One CPU.
#[derive(Default)]
struct Cpu {
    llc: usize,
    tasks: BTreeMap<u32, Queued>,
    /// When a task last came or left.
    changed: Time,
    idle_since: Option<Time>,
    /// Since when at least one task has been waiting.
    crowded_since: Option<Time>,
}

/// All CPUs of a run.
pub(crate) struct Queues {
    promises: Promises,
    cpus: Vec<Cpu>,
    /// The CPU of each runnable task.
    places: BTreeMap<u32, CpuId>,
    /// The last CPU of each task that has not exited.
    last: BTreeMap<u32, CpuId>,
    spread: Spread,
}

impl Queues {
    pub(crate) fn new(machine: &Machine, promises: Promises) -> Self {
        let cpu = |cpu: &roost_machine::Cpu| Cpu {
            llc: cpu.llc as usize,
            idle_since: Some(Time(0)),
            ..Cpu::default()
        };
        let cpus = machine.cpus.iter().map(cpu).collect();
        let spread = Spread::new(machine, &promises);
        Self { promises, cpus, places: BTreeMap::new(), last: BTreeMap::new(), spread }
    }

    /// A task waits on `cpu` from now on.
    pub(crate) fn waits(
        &mut self,
        now: Time,
        cpu: CpuId,
        pid: u32,
        name: &str,
    ) -> Result<(), String> {
        let wrong = self.leaves(now, pid);
        let wrong = wrong.and(self.changes(now, cpu));
        let from = self.last.insert(pid, cpu);
        let wrong = wrong.and(from.map_or(Ok(()), |from| self.spread.moves(now, from, Some(cpu))));
        let claim = self.promises.claim(name);
        let task = Queued { name: name.to_owned(), claim, waits_since: Some(now) };
        self.cpus[cpu].tasks.insert(pid, task);
        self.places.insert(pid, cpu);
        wrong.and(self.crowds(now, cpu))
    }

    /// A task that was on its way to a CPU has arrived in its queue.
    pub(crate) fn arrives(&mut self, now: Time, pid: u32) -> Result<(), String> {
        let Some(&cpu) = self.places.get(&pid) else { return Ok(()) };
        let wrong = self.changes(now, cpu);
        if let Some(task) = self.cpus[cpu].tasks.get_mut(&pid) {
            task.waits_since = Some(now);
        }
        wrong
    }

    /// A task that was running on `cpu` was preempted and waits there.
    pub(crate) fn preempted(&mut self, now: Time, cpu: CpuId, pid: u32) -> Result<(), String> {
        if let Some(task) = self.cpus[cpu].tasks.get_mut(&pid) {
            task.waits_since = Some(now);
        }
        self.crowds(now, cpu)
    }

    /// A task starts to run on `cpu`.
    pub(crate) fn runs(
        &mut self,
        now: Time,
        cpu: CpuId,
        pid: u32,
        name: &str,
    ) -> Result<(), String> {
        let mut wrong = Ok(());
        if self.places.get(&pid) != Some(&cpu) {
            wrong = self.waits(now, cpu, pid, name);
        }
        wrong = wrong.and(self.waited(now, cpu, pid, self.crowd(cpu)));
        if let Some(task) = self.cpus[cpu].tasks.get_mut(&pid) {
            task.waits_since = None;
        }
        wrong.and(self.crowds(now, cpu)).and(self.busy(now, cpu))
    }

    /// A task exits.
    pub(crate) fn exits(&mut self, now: Time, pid: u32) -> Result<(), String> {
        let from = self.last.remove(&pid);
        let wrong = from.map_or(Ok(()), |from| self.spread.moves(now, from, None));
        wrong.and(self.leaves(now, pid))
    }

    /// A task sleeps or moves away.
    pub(crate) fn leaves(&mut self, now: Time, pid: u32) -> Result<(), String> {
        let Some(cpu) = self.places.remove(&pid) else { return Ok(()) };
        let wrong = self.changes(now, cpu);
        self.cpus[cpu].tasks.remove(&pid);
        wrong.and(self.crowds(now, cpu))
    }

    /// `cpu` has become idle.
    pub(crate) fn idles(&mut self, now: Time, cpu: CpuId) -> Result<(), String> {
        self.cpus[cpu].idle_since = Some(now);
        self.spreads(now, cpu)
    }

    /// Records what `cpu` does now.
    fn spreads(&mut self, now: Time, cpu: CpuId) -> Result<(), String> {
        let Cpu { idle_since, crowded_since, .. } = self.cpus[cpu];
        let state = State { idle: idle_since.is_some(), waiting: crowded_since.is_some() };
        self.spread.is(now, cpu, state)
    }

    /// The run has ended.
    pub(crate) fn ends(&mut self, now: Time) -> Result<(), String> {
        self.spread.ends(now)?;
        (0..self.cpus.len()).try_for_each(|cpu| self.changes(now, cpu).and(self.busy(now, cpu)))
    }

    /// The set of tasks on `cpu` changes, so waits start to count anew.
    fn changes(&mut self, now: Time, cpu: CpuId) -> Result<(), String> {
        let crowd = self.crowd(cpu);
        let mut pids = self.cpus[cpu].tasks.keys();
        let wrong = pids.try_for_each(|&pid| self.waited(now, cpu, pid, crowd));
        self.cpus[cpu].changed = now;
        wrong
    }

    fn crowd(&self, cpu: CpuId) -> Crowd {
        self.promises.crowd(self.cpus[cpu].tasks.values().map(|task| task.claim))
    }

    /// Checks that a task that waits on `cpu` beside the tasks of `crowd` has not waited for too long.
    fn waited(&self, now: Time, cpu: CpuId, pid: u32, crowd: Crowd) -> Result<(), String> {
        let Cpu { tasks, changed, .. } = &self.cpus[cpu];
        let Some((task, since)) = tasks.get(&pid).and_then(|t| Some((t, t.waits_since?))) else {
            return Ok(());
        };
        let waited = now.since(since.max(*changed));
        if let Some(longest) = self.promises.longest_wait_ns(task.claim, crowd)
            && waited > longest
        {
            return Err(format!(
                "{} has waited for {waited} ns on CPU {cpu} beside the same {} tasks; {longest} would do",
                task.name,
                tasks.len() - 1
            ));
        }
        Ok(())
    }

    /// Records whether a task waits on `cpu`.
    fn crowds(&mut self, now: Time, cpu: CpuId) -> Result<(), String> {
        let waits = self.cpus[cpu].tasks.values().any(|task| task.waits_since.is_some());
        let wrong = if waits { Ok(()) } else { self.all_beside(now, cpu) };
        let crowded_since = &mut self.cpus[cpu].crowded_since;
        *crowded_since = crowded_since.or(Some(now)).filter(|_| waits);
        wrong.and(self.spreads(now, cpu))
    }

    /// `cpu` is busy from now on.
    fn busy(&mut self, now: Time, cpu: CpuId) -> Result<(), String> {
        let wrong = self.all_beside(now, cpu);
        self.cpus[cpu].idle_since = None;
        wrong.and(self.spreads(now, cpu))
    }

    /// Checks that `cpu` was not idle for too long while tasks waited in its LLC, and that no other CPU of the LLC was
    /// idle for too long while tasks waited on `cpu`.
    fn all_beside(&self, now: Time, cpu: CpuId) -> Result<(), String> {
        let llc = self.cpus[cpu].llc;
        let others = (0..self.cpus.len()).filter(|&other| self.cpus[other].llc == llc);
        let beside = |other| self.beside(now, cpu, other).and(self.beside(now, other, cpu));
        others.into_iter().try_for_each(beside)
    }

    /// Checks that `idle` was not idle for too long while a task waited on `crowded`.
    fn beside(&self, now: Time, idle: CpuId, crowded: CpuId) -> Result<(), String> {
        let (idler, other) = (&self.cpus[idle], &self.cpus[crowded]);
        let (Some(idle_since), Some(crowded_since), Some(longest)) =
            (idler.idle_since, other.crowded_since, self.promises.longest_idle_ns(idler.llc))
        else {
            return Ok(());
        };
        let both = now.since(idle_since.max(crowded_since));
        if both <= longest {
            return Ok(());
        }
        Err(format!(
            "CPU {idle} has idled for {both} ns while tasks wait on CPU {crowded} of the same LLC; {longest} \
             would do"
        ))
    }
}
