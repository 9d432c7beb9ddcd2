//! Counters that exist for simulated and for real runs, and are counted in the same way.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use roost_engine::{CpuId, LeftAs, Time, TraceTask, Tracer};
use roost_machine::Machine;

/// Time that the tasks of a class ran, by place, in ns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// By LLC, in the machine's numbering.
    pub llc_ns: Vec<u64>,
    /// By node, in the machine's numbering.
    pub node_ns: Vec<u64>,
}

/// Counts what an observer of switches and wakeups can see. Names and meanings are the same as those of the engine's
/// counters ([`roost_engine::Counters`]).
///
/// A task that starts without a wakeup counts as runnable since the beginning. If a task's first event is a wakeup,
/// that wakeup counts as its creation. So only tasks that begin with the run should be observed, as
/// [`Audience::Workload`](crate::Audience::Workload) does.
#[derive(Clone, Debug)]
pub struct Observed {
    /// LLC and node of each CPU.
    places: Vec<(usize, usize)>,
    nr_llcs: usize,
    nr_nodes: usize,
    tasks: BTreeMap<u32, Task>,
    classes: BTreeMap<String, Places>,
    counts: Counts,
    /// Time from which events are counted.
    from: Time,
    /// Whether that time has come.
    begun: bool,
    /// When a CPU last became idle although its task was still runnable, and how many did so at that time.
    left_idle: (Time, u64),
}

#[derive(Clone, Debug, Default)]
struct Counts {
    wakeups: u64,
    wakeups_prev: u64,
    wakeups_waker_llc: u64,
    migrations: u64,
    migrations_llc: u64,
    migrations_node: u64,
    context_switches: u64,
    forks: u64,
    run_ns: u64,
    run_delay_ns: u64,
}

/// State of a task.
#[derive(Clone, Copy, Debug, Default)]
struct Task {
    /// The CPU on which it last started.
    ran_on: Option<CpuId>,
    /// When it started to run. `None` if it is not running.
    running_since: Option<Time>,
    /// When it was last queued, or last left a CPU.
    waits_since: Time,
}

impl Observed {
    /// Counters for a run on `machine`.
    pub fn new(machine: &Machine) -> Self {
        Self::since(machine, Time(0))
    }

    /// Counters for a run on `machine` that count from a time on. Earlier events must be reported too.
    pub fn since(machine: &Machine, from: Time) -> Self {
        Self {
            places: machine.cpus.iter().map(|cpu| (cpu.llc as usize, cpu.node as usize)).collect(),
            nr_llcs: machine.llcs.len(),
            nr_nodes: machine.nodes.len(),
            tasks: BTreeMap::new(),
            classes: BTreeMap::new(),
            counts: Counts::default(),
            from,
            begun: false,
            left_idle: (Time(0), 0),
        }
    }

    /// Ends the observation of a run that ended at `end`. Tasks that were still running were taken off their CPUs only
    /// to complete their times, so this is not a context switch. (A switch by the stopper that left a CPU idle in
    /// exactly this nanosecond is not counted either.)
    pub fn finish(&mut self, end: Time) {
        if self.left_idle.0 == end {
            self.counts.context_switches -= self.left_idle.1;
        }
        self.left_idle = (end, 0);
    }

    /// Name and value of every counter, in the engine's order.
    pub fn for_each(&self, sink: &mut dyn FnMut(&str, u64)) {
        let counts = &self.counts;
        sink("wakeups", counts.wakeups);
        sink("wakeups_prev", counts.wakeups_prev);
        sink("wakeups_waker_llc", counts.wakeups_waker_llc);
        sink("migrations", counts.migrations);
        sink("migrations_llc", counts.migrations_llc);
        sink("migrations_node", counts.migrations_node);
        sink("context_switches", counts.context_switches);
        sink("forks", counts.forks);
        sink("run_ns", counts.run_ns);
        sink("run_delay_ns", counts.run_delay_ns);
    }

    /// Where tasks ran, by class. The class is the task's name without a hyphen and number at its end, which rt-app
    /// adds to instances of a task. Linux keeps 15 bytes of a name, so tasks need shorter names.
    pub fn classes(&self) -> &BTreeMap<String, Places> {
        &self.classes
    }

    /// Resets the counts when the time has come from which events count.
    fn begin(&mut self, now: Time) {
        if !self.begun && now >= self.from {
            self.begun = true;
            self.counts = Counts::default();
            self.classes.clear();
        }
    }

    fn stop(&mut self, now: Time, cpu: CpuId, task: TraceTask<'_>, left: LeftAs) {
        let state = self.tasks.entry(task.pid).or_default();
        state.waits_since = now;
        if let Some(since) = state.running_since.take() {
            let ran = now.since(since.max(self.from));
            self.counts.run_ns += ran;
            self.count_place(cpu, task.class(), ran);
        }
        if left == LeftAs::Exited {
            self.tasks.remove(&task.pid);
        }
    }

    fn count_place(&mut self, cpu: CpuId, class: &str, ran: u64) {
        let Some(&(llc, node)) = self.places.get(cpu) else { return };
        if !self.classes.contains_key(class) {
            let places = Places { llc_ns: vec![0; self.nr_llcs], node_ns: vec![0; self.nr_nodes] };
            self.classes.insert(class.to_owned(), places);
        }
        let Some(places) = self.classes.get_mut(class) else { return };
        for (sums, index) in [(&mut places.llc_ns, llc), (&mut places.node_ns, node)] {
            if let Some(sum) = sums.get_mut(index) {
                *sum += ran;
            }
        }
    }

    fn start(&mut self, now: Time, cpu: CpuId, task: TraceTask<'_>) {
        let state = self.tasks.entry(task.pid).or_default();
        state.running_since = Some(now);
        self.counts.run_delay_ns += now.since(state.waits_since.max(self.from));
        let Some(from) = state.ran_on.replace(cpu) else { return };
        if from == cpu {
            return;
        }
        self.counts.migrations += 1;
        let (from, to) = (self.places.get(from), self.places.get(cpu));
        if from.map(|place| place.1) != to.map(|place| place.1) {
            self.counts.migrations_node += 1;
        } else if from.map(|place| place.0) != to.map(|place| place.0) {
            self.counts.migrations_llc += 1;
        }
    }
}

impl Tracer for Observed {
    fn switch(
        &mut self,
        now: Time,
        cpu: CpuId,
        previous: Option<(TraceTask<'_>, LeftAs)>,
        next: Option<TraceTask<'_>>,
    ) {
        self.begin(now);
        self.counts.context_switches += 1;
        if let Some((task, left)) = previous {
            self.stop(now, cpu, task, left);
            if left == LeftAs::Preempted && next.is_none() {
                let so_far = if self.left_idle.0 == now { self.left_idle.1 } else { 0 };
                self.left_idle = (now, so_far + 1);
            }
        }
        if let Some(task) = next {
            self.start(now, cpu, task);
        }
    }

    fn wakeup(&mut self, now: Time, from: CpuId, task: TraceTask<'_>, target: CpuId) {
        self.begin(now);
        let created = !self.tasks.contains_key(&task.pid);
        let state = self.tasks.entry(task.pid).or_default();
        state.waits_since = now;
        if created {
            self.counts.forks += 1;
        }
        // A new task, or a running task that moved because its affinity changed.
        let Some(ran_on) = state.ran_on.filter(|_| state.running_since.is_none()) else { return };
        self.counts.wakeups += 1;
        self.counts.wakeups_prev += u64::from(ran_on == target);
        let llc = |cpu: CpuId| self.places.get(cpu).map(|place| place.0);
        self.counts.wakeups_waker_llc += u64::from(llc(from) == llc(target));
    }

    fn waits_for_switch(&mut self, ns: u64) {
        self.counts.run_delay_ns += ns;
    }

    fn queued(&mut self, now: Time, task: TraceTask<'_>) {
        self.tasks.entry(task.pid).or_default().waits_since = now;
    }
}

/// An [`Observed`] that can be shared with the engine, which needs a tracer of its own.
#[derive(Clone, Debug)]
pub struct SharedObserved(Rc<RefCell<Observed>>);

impl SharedObserved {
    /// Counters for a run on `machine`.
    pub fn new(machine: &Machine) -> Self {
        Self::since(machine, Time(0))
    }

    /// Counters for a run on `machine` that count from a time on.
    pub fn since(machine: &Machine, from: Time) -> Self {
        Self(Rc::new(RefCell::new(Observed::since(machine, from))))
    }

    /// The observer to give to the engine.
    pub fn tracer(&self) -> Box<dyn Tracer> {
        Box::new(self.clone())
    }

    /// The counters of a run that ended at `end`.
    pub fn finish(self, end: Time) -> Observed {
        let mut observed = self.0.borrow().clone();
        observed.finish(end);
        observed
    }
}

impl Tracer for SharedObserved {
    fn switch(
        &mut self,
        now: Time,
        cpu: CpuId,
        previous: Option<(TraceTask<'_>, LeftAs)>,
        next: Option<TraceTask<'_>>,
    ) {
        self.0.borrow_mut().switch(now, cpu, previous, next);
    }

    fn wakeup(&mut self, now: Time, from: CpuId, task: TraceTask<'_>, target: CpuId) {
        self.0.borrow_mut().wakeup(now, from, task, target);
    }

    fn waits_for_switch(&mut self, ns: u64) {
        self.0.borrow_mut().waits_for_switch(ns);
    }

    fn queued(&mut self, now: Time, task: TraceTask<'_>) {
        self.0.borrow_mut().queued(now, task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A single task. It wakes up at 5 and 100. It runs from 10 to 60 on CPU 0, waits, runs from 80 on CPU 1, sleeps at
    /// 90, and runs there again from 105 to 120.
    fn counted_since(from: u64) -> BTreeMap<String, u64> {
        let machine = roost_machine::resolve("2n2l4c").expect("a shape");
        let mut observed = Observed::since(&machine, Time(from));
        let task = TraceTask { pid: 7, slot: 7, process: 7, known_to: &"task-1" };
        observed.wakeup(Time(0), 0, task, 0);
        observed.switch(Time(1), 0, None, Some(task));
        observed.switch(Time(2), 0, Some((task, LeftAs::Sleeping)), None);
        observed.wakeup(Time(5), 1, task, 0);
        observed.switch(Time(10), 0, None, Some(task));
        observed.switch(Time(60), 0, Some((task, LeftAs::Preempted)), None);
        observed.switch(Time(80), 1, None, Some(task));
        observed.switch(Time(90), 1, Some((task, LeftAs::Sleeping)), None);
        observed.wakeup(Time(100), 0, task, 1);
        observed.switch(Time(105), 1, None, Some(task));
        observed.switch(Time(120), 1, Some((task, LeftAs::Sleeping)), None);
        observed.finish(Time(120));
        let mut counts = BTreeMap::new();
        observed.for_each(&mut |name, value| {
            counts.insert(name.to_owned(), value);
        });
        let placed: u64 = observed.classes().values().flat_map(|places| &places.node_ns).sum();
        assert_eq!(placed, counts["run_ns"]);
        counts
    }

    #[test]
    fn what_was_before_the_window_is_not_counted() {
        let counts = |from, names: [&str; 4]| {
            let all = counted_since(from);
            names.map(|name| all[name])
        };
        let names = ["run_ns", "run_delay_ns", "wakeups", "migrations"];
        assert_eq!(counts(0, names), [1 + 50 + 10 + 15, 1 + 5 + 20 + 5, 2, 1]);
        // Counting starts during a run, during a wait, and after the migration.
        assert_eq!(counts(40, names), [20 + 10 + 15, 20 + 5, 1, 1]);
        assert_eq!(counts(70, names), [10 + 15, 10 + 5, 1, 1]);
        assert_eq!(counts(85, names), [5 + 15, 5, 1, 0]);
    }
}
