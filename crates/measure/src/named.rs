//! Observes some of a recorded run's tasks: those that bear certain names.

use std::collections::{BTreeMap, BTreeSet};

use roost_engine::{CpuId, LeftAs, Time, TraceTask, Tracer};
use roost_machine::Machine;

use crate::error::MeasureError;
use crate::observed::Observed;
use crate::replay::{Audience, Replay};

/// What the workload's tasks of the names `tasks`, alone or numbered (`NAME-3`), did on `machine` from
/// `from` on. Where others ran, the observer sees the idle task. So a program's own threads, which a
/// simulation does not have, are left out.
pub fn observe_named(
    replay: &Replay<'_>,
    machine: &Machine,
    tasks: &[&str],
    from: Time,
) -> Result<Observed, MeasureError> {
    let mut names = Named::default();
    replay.run(Audience::Workload, &mut names)?;
    let mut only = Only { pids: names.of(tasks), observed: Observed::since(machine, from) };
    replay.run(Audience::Workload, &mut only)?;
    only.observed.finish(replay.end());
    Ok(only.observed)
}

/// The names that tasks bore while they ran: rt-app's threads get theirs only after they started.
#[derive(Default)]
struct Named(BTreeMap<u32, BTreeSet<String>>);

impl Named {
    /// The tasks that bore a name of a scenario's tasks, alone or with a number.
    fn of(&self, tasks: &[&str]) -> BTreeSet<u32> {
        let is_task = |name: &String| {
            let numbered = name.rsplit_once('-').map(|(task, _)| task);
            tasks.iter().any(|task| name == task || numbered == Some(task))
        };
        self.0.iter().filter(|(_, names)| names.iter().any(is_task)).map(|(pid, _)| *pid).collect()
    }

    fn note(&mut self, task: TraceTask<'_>) {
        let names = self.0.entry(task.pid).or_default();
        if !names.contains(task.name) {
            names.insert(task.name.to_owned());
        }
    }
}

impl Tracer for Named {
    fn switch(
        &mut self,
        _: Time,
        _: CpuId,
        previous: Option<(TraceTask<'_>, LeftAs)>,
        next: Option<TraceTask<'_>>,
    ) {
        previous.map(|(task, _)| task).into_iter().chain(next).for_each(|task| self.note(task));
    }

    fn wakeup(&mut self, _: Time, _: CpuId, _: TraceTask<'_>, _: CpuId) {}
}

/// Observes some tasks; where others run, it sees the idle task.
struct Only {
    pids: BTreeSet<u32>,
    observed: Observed,
}

impl Tracer for Only {
    fn switch(
        &mut self,
        now: Time,
        cpu: CpuId,
        previous: Option<(TraceTask<'_>, LeftAs)>,
        next: Option<TraceTask<'_>>,
    ) {
        let previous = previous.filter(|(task, _)| self.pids.contains(&task.pid));
        let next = next.filter(|task| self.pids.contains(&task.pid));
        if previous.is_some() || next.is_some() {
            self.observed.switch(now, cpu, previous, next);
        }
    }

    fn wakeup(&mut self, now: Time, from: CpuId, task: TraceTask<'_>, target: CpuId) {
        if self.pids.contains(&task.pid) {
            self.observed.wakeup(now, from, task, target);
        }
    }
}
