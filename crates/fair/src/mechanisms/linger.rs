//! `linger`: a task that was queued a short time ago stays on its node when it is woken. It is not
//! a published mechanism, but the worked example of `CONTRIBUTING.md`. Only tests build it.
//!
//! ```text
//! queued ► stores the time
//! wakeup ► may it move the task to the waker's node yet?
//! ```

use roost_engine::{CpuId, TaskId, Time, World};
use roost_machine::Machine;
use roost_workload::Workload;

use super::{Mechanism, Tally};
use crate::features::Features;
use crate::state::Fair;
use crate::switches::{Number, Switch};

/// The mechanism.
pub(super) const MECHANISM: Mechanism = Mechanism {
    name: "linger",
    switches: &SWITCHES,
    numbers: &NUMBERS,
    acted: &["linger_held"],
    counters: &[("linger_held", "wakeups that were kept from moving a task to another node")],
    keeps_tasks: true,
    needs: "a machine of several NUMA nodes",
    is_on: |features| features.mechanisms.linger.is_some(),
    can_act: |machine: &Machine, _: &Workload| machine.nodes.len() > 1,
};

const SWITCHES: [Switch; 1] = [Switch {
    name: "linger",
    about: "a task stays on its node for 10 ms after it was queued",
    since: "3.9",
    set: |features, on| features.mechanisms.linger = on.then_some(10),
}];

const NUMBERS: [Number; 1] = [Number {
    name: "linger",
    about: "milliseconds for which a task stays on its node after it was queued, instead of 10",
    unit: "ms",
    least: 0,
    most: 1000,
    since: "3.9",
    until: None,
    unset: "off",
    source: "of tests",
    file: None,
    set: |features, ms| features.mechanisms.linger = Some(ms).filter(|&ms| ms > 0),
    get: |features| features.mechanisms.linger,
}];

/// Its state during a run.
pub(crate) struct State {
    /// How long tasks stay, ns; `None` if it is off.
    stay_ns: Option<u64>,
    /// When each task was last queued, by its number.
    queued: Vec<Option<Time>>,
    /// Wakeups that it stopped from moving a task to another node.
    held: Tally,
}

impl State {
    /// The state at the start of a run.
    pub(super) fn new(features: &Features) -> Self {
        let stay_ns = features.mechanisms.linger.map(|ms| u64::from(ms) * 1_000_000);
        Self { stay_ns, queued: Vec::new(), held: Tally::default() }
    }

    /// Name and value of each counter.
    pub(super) fn counters(&self, sink: &mut dyn FnMut(&str, u64)) {
        if self.stay_ns.is_some() {
            sink("linger_held", self.held.get());
        }
    }

    /// A task was queued.
    pub(super) fn on_queued(&mut self, now: Time, task: TaskId) {
        if self.stay_ns.is_some() {
            let length = self.queued.len().max(task.index() + 1);
            self.queued.resize(length, None);
            self.queued[task.index()] = Some(now);
        }
    }

    /// Whether a task stays on the node where it was queued.
    fn stays(&self, now: Time, task: TaskId) -> bool {
        let queued = self.queued.get(task.index()).copied().flatten();
        let ago = queued.map(|queued| now.since(queued));
        ago.zip(self.stay_ns).is_some_and(|(ago, stay)| ago < stay)
    }
}

impl Fair {
    /// Whether a wakeup on `this` leaves `task` on its node.
    pub(super) fn lingers(&self, world: &World, task: TaskId, this: CpuId) -> bool {
        let across = self.numa.node(world.task_cpu(task)) != self.numa.node(this);
        let state = &self.mechanisms.linger;
        state.held.count(across && state.stays(world.now(), task))
    }
}

mod tests {
    use roost_engine::{Time, Wake};

    use crate::kit::*;
    use crate::mechanisms::mechanisms;

    const MS: u64 = 1_000_000;

    /// A waker, alone on CPU 0, wakes a task of the other node that was queued `ms` milliseconds
    /// ago. Returns the node to which the task goes, and the counter.
    fn woken_after(scheduler: &str, ms: u64) -> (usize, Option<u64>) {
        let mut bench = Bench::placing(scheduler, TWO_NODES);
        bench.busy([0].into_iter().chain(8..16));
        bench.world.set_task_cpu(WAKEE, 12);
        bench.fair.on_queued(&bench.world, 12, WAKEE);
        bench.world.set_now_for_test(Time(ms * MS));
        let cpu = bench.wake_as(Wake { sync: true, ..wake_on(0) }, 12);
        let mut held = None;
        bench.fair.mechanisms.counters(&mut |name, value| {
            held = if name == "linger_held" { Some(value) } else { held };
        });
        (bench.fair.numa.node(cpu), held)
    }

    #[test]
    fn a_task_lingers_for_a_while_and_is_counted() {
        assert_eq!(woken_after("fair@7.2", 1), (0, None));
        assert_eq!(woken_after("fair@7.2+linger", 1), (1, Some(1)));
        assert_eq!(woken_after("fair@7.2+linger", 11), (0, Some(0)));
        assert_eq!(woken_after("fair@7.2+linger=2", 1), (1, Some(1)));
        assert_eq!(woken_after("fair@7.2+linger=2", 3), (0, Some(0)));
    }

    #[test]
    fn it_is_a_mechanism_like_the_others() {
        let linger = mechanisms().iter().find(|mechanism| mechanism.name == "linger").unwrap();
        assert_eq!(linger.acted, ["linger_held"]);
        assert!(crate::switches().iter().any(|(name, _)| *name == "linger"));
        let features = crate::Features::parse("fair@5.2+linger=3").unwrap();
        assert_eq!(features.differs_from_version()[0].to_string(), "linger=3");
    }
}
