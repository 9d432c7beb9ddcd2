//! The result of one run, as named quantities that exist on both sides.

use std::ops::Range;

use roost_measure::{Observed, Places};
use serde::{Deserialize, Serialize};

/// The kind of a quantity. It determines how two values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Share of the run time of a class of tasks, in percent.
    Placement,
    /// Number of events in a run.
    Count,
    /// Share of the wakeups, in percent.
    Share,
    /// One kind of time divided by another, in percent. It may exceed 100.
    Ratio,
}

/// A quantity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quantity {
    /// Its kind.
    pub kind: Kind,
    /// Its name, unique in an observation.
    pub name: String,
}

/// The quantities of one run, in a fixed order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// The part of the run that was observed, in ns from its beginning.
    pub window_ns: Range<u64>,
    values: Vec<(Quantity, f64)>,
}

/// Counts of an [`Observed`] that are compared directly.
const COUNTS: [&str; 4] = ["wakeups", "migrations", "migrations_llc", "migrations_node"];

/// The two kinds of balancing passes and their idle types in the counters: periodic passes at ticks, on a busy or an
/// idle CPU, and passes of a CPU that is about to become idle (newidle). They have different costs and intervals. They
/// are compared separately because newidle passes outnumber periodic passes by far, and would hide them.
const ROUNDS: [(&str, &[&str]); 2] = [("periodic", &["busy", "idle"]), ("newidle", &["newidle"])];

/// The beginning of the names of counters that roost's sched_ext program keeps.
const OWN: &str = "roost_";

impl Observation {
    /// The quantities of the part `window_ns` of a run, which `observed` saw. `counters` have the simulation's names:
    /// of domain levels, such as `MC.lb_failed.newidle`, and those that a scheduler keeps itself, such as
    /// `roost_direct`; others are ignored. `tasks` are the names of the scenario's tasks. The placement of other
    /// tasks, such as rt-app's own main thread, is not included.
    pub fn new<'a>(
        window_ns: Range<u64>,
        observed: &Observed,
        counters: impl IntoIterator<Item = (&'a str, f64)>,
        tasks: &[&str],
    ) -> Self {
        let mut this = Self { window_ns, ..Self::default() };
        for (class, places) in observed.classes() {
            let is_class = |task: &&str| task.strip_prefix(class.as_str()).is_some_and(is_suffix);
            if tasks.iter().any(is_class) {
                this.add_placement(class, places);
            }
        }
        this.add_counts(observed);
        let counters: Vec<(&str, f64)> = counters.into_iter().collect();
        this.add_levels(&counters);
        this.add_own(observed, &counters);
        this
    }

    /// Adds a quantity.
    pub fn add(&mut self, kind: Kind, name: impl Into<String>, value: f64) {
        self.values.push((Quantity { kind, name: name.into() }, value));
    }

    /// Removes quantities that are 0. A missing quantity counts as 0 anyway.
    pub fn drop_zeros(&mut self) {
        self.values.retain(|(_, value)| *value != 0.0);
    }

    /// The quantities in order.
    pub fn values(&self) -> &[(Quantity, f64)] {
        &self.values
    }

    /// The value of a quantity. 0 if the run does not have it.
    pub fn value(&self, name: &str) -> f64 {
        let found = self.values.iter().find(|(quantity, _)| quantity.name == name);
        found.map_or(0.0, |(_, value)| *value)
    }

    /// Adds the shares by LLC and by node, largest first. They are sorted because it is arbitrary which one of several
    /// equal LLCs is used.
    fn add_placement(&mut self, class: &str, places: &Places) {
        for (what, times) in [("LLC", &places.llc_ns), ("node", &places.node_ns)] {
            let total: u64 = times.iter().sum();
            let mut times = times.clone();
            times.sort_unstable_by(|a, b| b.cmp(a));
            for (rank, time) in (1..).zip(times) {
                let name = format!("{class} on {what} {rank}");
                self.add(Kind::Placement, name, percent(time as f64, total as f64));
            }
        }
    }

    fn add_counts(&mut self, observed: &Observed) {
        let mut counts = Vec::new();
        observed.for_each(&mut |name, value| counts.push((name.to_owned(), value as f64)));
        let count = |wanted: &str| {
            counts.iter().find(|(name, _)| name == wanted).map_or(0.0, |(_, value)| *value)
        };
        for name in COUNTS {
            self.add(Kind::Count, name, count(name));
        }
        for name in ["wakeups_prev", "wakeups_waker_llc"] {
            self.add(Kind::Share, format!("{name}%"), percent(count(name), count("wakeups")));
        }
        let delay = percent(count("run_delay_ns"), count("run_ns"));
        self.add(Kind::Ratio, "run_delay%", delay);
    }

    /// Adds the counters that the scheduler keeps itself. A time is compared as percent of the tasks' run time.
    fn add_own(&mut self, observed: &Observed, counters: &[(&str, f64)]) {
        let mut run_ns = 0.0;
        observed.for_each(&mut |name, value| {
            if name == "run_ns" {
                run_ns = value as f64;
            }
        });
        for (name, value) in counters.iter().filter(|(name, _)| name.starts_with(OWN)) {
            match name.strip_suffix("_ns") {
                Some(time) => self.add(Kind::Ratio, format!("{time}%"), percent(*value, run_ns)),
                None => self.add(Kind::Count, *name, *value),
            }
        }
    }

    /// Adds attempts, successes and failures of balancing, for every level in the counters.
    fn add_levels(&mut self, counters: &[(&str, f64)]) {
        let mut levels: Vec<&str> = Vec::new();
        for (name, _) in counters {
            if let Some((level, _)) = name.split_once(".lb_count.")
                && !levels.contains(&level)
            {
                levels.push(level);
            }
        }
        for level in levels {
            for (round, idle_types) in ROUNDS {
                let sum = |what: &str| -> f64 {
                    let wanted = |name: &str| {
                        let mut types = idle_types.iter();
                        types.any(|idle| name == format!("{level}.lb_{what}.{idle}"))
                    };
                    counters.iter().filter(|(name, _)| wanted(name)).map(|(_, value)| value).sum()
                };
                let (attempts, failures) = (sum("count"), sum("failed"));
                let successes = (attempts - sum("balanced") - failures).max(0.0);
                let rows =
                    [("attempts", attempts), ("successes", successes), ("failures", failures)];
                for (what, value) in rows {
                    self.add(Kind::Count, format!("{level} {round} {what}"), value);
                }
            }
        }
    }
}

/// Whether a task's name continues like this after the name of its class: with nothing, or with a number, which
/// [`Observed::classes`] cuts off.
fn is_suffix(rest: &str) -> bool {
    let number = rest.strip_prefix('-');
    rest.is_empty()
        || number.is_some_and(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit()))
}

fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { 100.0 * part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roost_engine::{LeftAs, Time, TraceTask, Tracer};

    fn task<'a>(pid: u32, name: &'a &'a str) -> TraceTask<'a> {
        TraceTask { pid, slot: pid, process: 1, known_to: name }
    }

    /// hog-1 runs for 3 us on CPU 12 (LLC 3, node 1), then 1 us on CPU 0. other runs for 1 us.
    fn observed() -> Observed {
        let machine = roost_machine::resolve("2n2l4c").unwrap();
        let mut observed = Observed::new(&machine);
        let mut run = |pid, name, cpu, from, to| {
            observed.wakeup(Time(from), 0, task(pid, &name), cpu);
            observed.switch(Time(from), cpu, None, Some(task(pid, &name)));
            observed.switch(Time(to), cpu, Some((task(pid, &name), LeftAs::Sleeping)), None);
        };
        run(1, "hog-1", 12, 0, 3_000);
        run(1, "hog-1", 0, 3_000, 4_000);
        run(2, "rt-app", 5, 4_000, 5_000);
        observed
    }

    #[test]
    fn shares_are_of_the_class_and_sorted() {
        let observation = Observation::new(0..1, &observed(), [], &["hog-1", "hog-2"]);
        let placement: Vec<_> = observation
            .values()
            .iter()
            .filter(|(quantity, _)| quantity.kind == Kind::Placement)
            .map(|(quantity, value)| (quantity.name.as_str(), *value))
            .collect();
        assert_eq!(
            placement,
            [
                ("hog on LLC 1", 75.0),
                ("hog on LLC 2", 25.0),
                ("hog on LLC 3", 0.0),
                ("hog on LLC 4", 0.0),
                ("hog on node 1", 75.0),
                ("hog on node 2", 25.0),
            ]
        );
    }

    #[test]
    fn wakeups_are_counted_and_shared_out() {
        let observation = Observation::new(0..1, &observed(), [], &["hog-1"]);
        // hog-1's first wakeup created it. Its second moved it from CPU 12 to CPU 0, the waker's.
        assert_eq!(observation.value("wakeups"), 1.0);
        assert_eq!(observation.value("wakeups_prev%"), 0.0);
        assert_eq!(observation.value("wakeups_waker_llc%"), 100.0);
        assert_eq!(
            (observation.value("migrations"), observation.value("migrations_node")),
            (1.0, 1.0)
        );
        assert_eq!(observation.value("no such quantity"), 0.0);
    }

    #[test]
    fn successes_are_what_neither_balanced_nor_failed() {
        let counters = [
            ("MC.lb_count.busy", 10.0),
            ("MC.lb_count.idle", 100.0),
            ("MC.lb_count.newidle", 1000.0),
            ("MC.lb_balanced.busy", 7.0),
            ("MC.lb_balanced.idle", 80.0),
            ("MC.lb_balanced.newidle", 500.0),
            ("MC.lb_failed.busy", 1.0),
            ("MC.lb_failed.idle", 5.0),
            ("MC.lb_failed.newidle", 400.0),
            ("NUMA2.lb_count.busy", 3.0),
        ];
        let observation = Observation::new(0..1, &observed(), counters, &[]);
        assert_eq!(observation.value("MC periodic attempts"), 110.0);
        assert_eq!(observation.value("MC periodic successes"), 17.0);
        assert_eq!(observation.value("MC periodic failures"), 6.0);
        assert_eq!(observation.value("MC newidle successes"), 100.0);
        assert_eq!(observation.value("NUMA2 periodic successes"), 3.0);
        assert!(!observation.values().iter().any(|(quantity, _)| quantity.name.starts_with("PKG")));
    }

    #[test]
    fn a_scheduler_s_own_counters_are_compared_and_times_are_shares_of_the_run_time() {
        let counters = [("roost_direct", 12.0), ("roost_run_delay_ns", 1_000.0), ("direct", 3.0)];
        let observation = Observation::new(0..1, &observed(), counters, &[]);
        // The tasks ran for 5 us.
        let own = [("roost_direct", Kind::Count, 12.0), ("roost_run_delay%", Kind::Ratio, 20.0)];
        let found: Vec<_> = observation
            .values()
            .iter()
            .map(|(quantity, value)| (quantity.name.as_str(), quantity.kind, *value))
            .filter(|(name, ..)| name.contains("roost") || name.contains("direct"))
            .collect();
        assert_eq!(found, own);
    }

    #[test]
    fn a_class_is_not_a_prefix() {
        for (rest, belongs) in [("", true), ("-03", true), ("-", false), ("gish", false)] {
            assert_eq!(is_suffix(rest), belongs, "{rest}");
        }
    }
}
