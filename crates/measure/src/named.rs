//! Observes only those tasks of a recorded run that have certain names.

use std::collections::{BTreeMap, BTreeSet};

use roost_engine::{CpuId, LeftAs, Time, TraceTask, Tracer};
use roost_machine::Machine;

use crate::error::MeasureError;
use crate::observed::Observed;
use crate::replay::{Audience, Replay};

/// Observes what the workload's tasks did on `machine` from the time `from` on. Tasks match if their name is in
/// `tasks`, with or without a number (`NAME-3`). If another task runs, the observer sees the idle task. This excludes a
/// program's own threads, which a simulation does not have.
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

/// The names that each task had while it ran. rt-app's threads get their names only after they have started.
#[derive(Default)]
struct Named(BTreeMap<u32, BTreeSet<String>>);

impl Named {
    /// The tasks that had one of these names, with or without a number.
    fn of(&self, tasks: &[&str]) -> BTreeSet<u32> {
        let is_task = |name: &String| {
            let numbered = name.rsplit_once('-').map(|(task, _)| task);
            tasks.iter().any(|task| name == task || numbered == Some(task))
        };
        self.0.iter().filter(|(_, names)| names.iter().any(is_task)).map(|(pid, _)| *pid).collect()
    }

    fn note(&mut self, task: TraceTask<'_>) {
        let names = self.0.entry(task.pid).or_default();
        if !names.contains(task.name()) {
            names.insert(task.name().to_owned());
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

/// Observes some tasks. If another task runs, it sees the idle task.
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
