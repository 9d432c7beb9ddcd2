//! Counts what the tasks of a simulated workload do, in the same way as the tracepoints of a kernel.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use roost_engine::{CpuId, LeftAs, Time, TraceTask, Tracer};
use roost_workload::Workload;

use super::Counted;

/// Counts of the workload's tasks from a time on. Other tasks are those of the machine.
#[derive(Clone, Debug)]
struct Tally {
    from: Time,
    /// Names of the workload's tasks.
    names: BTreeSet<String>,
    /// The CPU of each task that belongs to the workload: where it runs, waits, or last ran.
    cpus: BTreeMap<u32, CpuId>,
    counted: Counted,
}

impl Tally {
    fn is_of_workload(&self, task: &TraceTask<'_>) -> bool {
        self.names.contains(task.class()) || self.names.contains(task.name())
    }

    /// The task is now on `cpu`. That is a migration unless the task is new (`set_task_cpu` in the kernel).
    fn is_on(&mut self, now: Time, task: &TraceTask<'_>, cpu: CpuId) {
        if self.is_of_workload(task)
            && self.cpus.insert(task.pid, cpu).is_some_and(|before| before != cpu)
            && now >= self.from
        {
            self.counted.migrations += 1.0;
        }
    }
}

/// A tally that the engine and its user share.
#[derive(Clone, Debug)]
pub(super) struct SharedTally(Rc<RefCell<Tally>>);

impl SharedTally {
    pub(super) fn since(from: Time, workload: &Workload) -> Self {
        let names = workload.templates.iter().map(|task| task.name.clone()).collect();
        let (cpus, counted) = (BTreeMap::new(), Counted::default());
        Self(Rc::new(RefCell::new(Tally { from, names, cpus, counted })))
    }

    pub(super) fn tracer(&self) -> Box<dyn Tracer> {
        Box::new(self.clone())
    }

    pub(super) fn counted(&self) -> Counted {
        self.0.borrow().counted
    }
}

impl Tracer for SharedTally {
    fn switch(
        &mut self,
        now: Time,
        cpu: CpuId,
        previous: Option<(TraceTask<'_>, LeftAs)>,
        next: Option<TraceTask<'_>>,
    ) {
        let tally = &mut *self.0.borrow_mut();
        if let Some((task, left)) = previous.filter(|(task, _)| tally.is_of_workload(task)) {
            if now >= tally.from {
                tally.counted.switches += 1.0;
                match left {
                    LeftAs::Sleeping => tally.counted.sleeps += 1.0,
                    LeftAs::Preempted => tally.counted.preemptions += 1.0,
                    LeftAs::Exited => {}
                }
            }
            if left == LeftAs::Exited {
                tally.cpus.remove(&task.pid);
            }
        }
        if let Some(task) = next {
            tally.is_on(now, &task, cpu);
        }
    }

    fn wakeup(&mut self, now: Time, _: CpuId, task: TraceTask<'_>, target: CpuId) {
        let tally = &mut *self.0.borrow_mut();
        // A new task is not woken: `sched_wakeup_new` is another tracepoint.
        if tally.cpus.contains_key(&task.pid) && now >= tally.from {
            tally.counted.wakeups += 1.0;
        }
        tally.is_on(now, &task, target);
    }

    fn migrated(&mut self, now: Time, task: TraceTask<'_>, to: CpuId) {
        self.0.borrow_mut().is_on(now, &task, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tasks_events_are_counted_from_the_measured_part_on_and_those_of_others_never() {
        let workload = roost_workload::resolve("tbench", None).unwrap();
        let tally = SharedTally::since(Time(10), &workload);
        let mut tracer = tally.tracer();
        let task = |pid, known_to| TraceTask { pid, slot: pid, process: pid, known_to };
        let (client, kworker) = (task(7, &"client"), task(8, &"kworker/0:1"));
        tracer.wakeup(Time(0), 0, client, 0);
        tracer.switch(Time(1), 0, None, Some(client));
        tracer.switch(Time(2), 0, Some((client, LeftAs::Sleeping)), None);
        assert_eq!(tally.counted(), Counted::default());
        tracer.wakeup(Time(10), 0, client, 1);
        tracer.switch(Time(11), 1, None, Some(client));
        tracer.switch(Time(12), 1, Some((client, LeftAs::Preempted)), Some(kworker));
        tracer.migrated(Time(13), client, 0);
        tracer.wakeup(Time(13), 0, kworker, 0);
        tracer.switch(Time(14), 0, Some((kworker, LeftAs::Sleeping)), Some(client));
        tracer.switch(Time(15), 0, Some((client, LeftAs::Exited)), None);
        let expected = Counted { wakeups: 1.0, switches: 3.0 - 1.0, ..Counted::default() };
        let expected = Counted { preemptions: 1.0, migrations: 2.0, ..expected };
        assert_eq!(tally.counted(), expected);
    }
}
