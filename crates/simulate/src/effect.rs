//! Finds the mechanisms that are on, and the switches that changed nothing.

use roost_fair::{Difference, Features, Mechanism};

use roost_rule::OwnRule;

use crate::{Outcome, SchedulerSpec, Simulation};

impl SchedulerSpec {
    /// The mechanisms that are on, by the version or by a switch: name, and the names of the counters whose sum says
    /// how often the mechanism acted.
    pub fn mechanisms(&self) -> Vec<(&'static str, &'static [&'static str])> {
        match self {
            Self::Fair { features, .. } => {
                let all = roost_fair::mechanisms().iter();
                let on = all.filter(|mechanism| mechanism.is_on(features));
                on.map(|mechanism| (mechanism.name, mechanism.acted)).collect()
            }
            Self::Scx(scx) => {
                let is_on =
                    |name| scx.roost_settings().is_some_and(|settings| settings.is_on(name));
                let counting = roost_settings::mechanisms().filter(|known| !known.acted.is_empty());
                let on = counting.filter(|known| is_on(known.name));
                on.map(|known| (known.name, known.acted)).collect()
            }
        }
    }

    /// The file of its own rule, if it is `other` but for that.
    fn rule_over(&self, other: &Self) -> Option<&str> {
        let Self::Fair { features, rule: Some(rule) } = self else { return None };
        let Self::Fair { features: without, rule: None } = other else { return None };
        let mut renamed = features.clone();
        renamed.name.clone_from(&without.name);
        (renamed == *without).then_some(&rule.file)
    }
}

/// A sentence on an own rule of `simulation` that changed nothing: its runs, one a seed, are those of `other`, which is
/// without it.
pub fn rule_without_effect(
    (simulation, outcomes): (&Simulation, &[Option<Outcome>]),
    (other, without): (&Simulation, &[Option<Outcome>]),
) -> Option<String> {
    let file = simulation.scheduler.rule_over(&other.scheduler)?;
    let both =
        outcomes.iter().zip(without).filter_map(|(own, other)| own.as_ref().zip(other.as_ref()));
    let mut compared = both.peekable();
    compared.peek()?;
    compared.all(|(own, other)| own == other).then(|| {
        format!("+policy={file} changed nothing in these runs: all metrics and counters are the same without it")
    })
}

impl Simulation {
    /// A sentence for each switch and number that changed nothing in these runs: the version has it already, it has
    /// nothing to act on, or it never acted. The last case is detected for mechanisms only.
    pub fn without_effect(&self, outcomes: &[&Outcome]) -> Vec<String> {
        let SchedulerSpec::Fair { features, rule } = &self.scheduler else { return Vec::new() };
        let version = features.version();
        let same = features.parts_without_effect().into_iter();
        let same = same.map(|part| format!("+{part} changes nothing: {version} is so already"));
        let different = roost_fair::mechanisms().iter();
        let idle = |mechanism| self.idle(features, mechanism, outcomes);
        let rule = rule.iter().filter_map(|rule| without_mechanism(rule, features));
        let of_kernel = features.differs_from_version().into_iter();
        let of_kernel = of_kernel.filter_map(|difference| self.kernel_idle(features, &difference));
        same.chain(different.filter_map(idle)).chain(of_kernel).chain(rule).collect()
    }

    /// Why a switch or number of the kernel's own that differs from the version cannot act. `None` if it may.
    fn kernel_idle(&self, features: &Features, difference: &Difference) -> Option<String> {
        let (Difference::Switch { name, .. } | Difference::Number { name, .. }) = difference;
        let why = roost_fair::cannot_act(name, features, &self.machine, &self.workload)?;
        Some(format!("+{difference} {why}"))
    }

    /// Why a mechanism that was switched on or changed did nothing. `None` if it did something, or is as in the
    /// version.
    fn idle(
        &self,
        features: &Features,
        mechanism: &Mechanism,
        outcomes: &[&Outcome],
    ) -> Option<String> {
        let parts = parts_of(mechanism, features);
        if parts.is_empty() {
            return None;
        }
        let name = mechanism.name;
        let why = if !mechanism.is_on(features) {
            format!("changes nothing: {name} is off")
        } else if let Some(needs) = mechanism.missing(&self.machine, &self.workload) {
            format!("has nothing to act on: it needs {needs}")
        } else if !is_in_version(mechanism, features)
            && !outcomes.is_empty()
            && acted(mechanism, outcomes) == 0.0
        {
            format!("never acted: {} = 0", mechanism.acted.join(" + "))
        } else {
            return None;
        };
        Some(format!("{} {why}", parts.join(" ")))
    }
}

/// A note about mechanisms that are off although the rule replaces their functions.
fn without_mechanism(rule: &OwnRule, features: &Features) -> Option<String> {
    let is_off = |name: &str| {
        let mechanism = roost_fair::mechanisms().iter().find(|mechanism| mechanism.name == name);
        mechanism.is_some_and(|mechanism| !mechanism.is_on(features))
    };
    let all = roost_rule::functions().into_iter();
    let replaced = all.filter(|function| rule.replaces.contains(&function.name));
    let of_off = replaced.filter(|function| is_off(&function.mechanism));
    let told: Vec<String> = of_off
        .map(|function| format!("{}, {} is off", function.name, function.mechanism))
        .collect();
    (!told.is_empty()).then(|| format!("+policy={} is not called: {}", rule.file, told.join("; ")))
}

/// The parts of the scheduler's name that turn the mechanism on or change its numbers, and differ from the version.
fn parts_of(mechanism: &Mechanism, features: &Features) -> Vec<String> {
    let differences = features.differs_from_version().into_iter();
    let is_part = |difference: &Difference| match difference {
        Difference::Switch { name, on } => {
            *on && mechanism.is_on(features) && mechanism.names().any(|own| own == *name)
        }
        Difference::Number { name, .. } => mechanism.names().any(|own| own == *name),
    };
    differences.filter(is_part).map(|difference| format!("+{difference}")).collect()
}

/// Whether the mechanism is on in the version, possibly in another form. If so, a form that does not act still makes a
/// difference.
fn is_in_version(mechanism: &Mechanism, features: &Features) -> bool {
    let version = Features::parse(&format!("fair@{}", features.version()));
    version.is_ok_and(|version| mechanism.is_on(&version))
}

/// How often the mechanism acted in all runs.
fn acted(mechanism: &Mechanism, outcomes: &[&Outcome]) -> f64 {
    let counters = outcomes.iter().flat_map(|outcome| &outcome.counters);
    let own = counters.filter(|(name, _)| mechanism.acted.contains(&name.as_str()));
    own.map(|(_, value)| value).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Control;

    const MS: u64 = 1_000_000;

    fn told(machine: &str, workload: &str, scheduler: &str) -> Vec<String> {
        let simulation = Simulation::named(machine, workload, Some(60 * MS), scheduler).unwrap();
        let outcome = simulation.run(Control::new(1)).unwrap();
        simulation.without_effect(&[&outcome])
    }

    #[test]
    fn what_the_version_has_already_is_told() {
        let all = told("2n2l4c", "hackbench:groups=1", "fair@7.2+sis-util+no-cling+no-hrtick");
        let already = |part| format!("+{part} changes nothing: 7.2 is so already");
        assert_eq!(all, [already("sis-util"), already("no-cling")]);
    }

    #[test]
    fn what_has_nothing_to_act_on_is_told_with_what_it_needs() {
        let all = told("2n2l4c", "hackbench:groups=1", "fair@7.2+cling+cling-degree=50");
        assert_eq!(all.len(), 1, "{all:?}");
        let start = "+cling-degree=50 +cling has nothing to act on: it needs ";
        assert!(all[0].starts_with(start) && all[0].contains("cgroups"), "{all:?}");
        let all = told("node:1 l3:1 core:4 pu:1", "hackbench:groups=1", "fair@7.2+llc-imbalance");
        assert_eq!(
            all,
            ["+llc-imbalance has nothing to act on: it needs a NUMA node with several LLCs"]
        );
    }

    /// What is said to have nothing to act on changes nothing in a run.
    #[test]
    fn switches_and_numbers_of_the_kernel_that_cannot_act_are_told_and_change_nothing() {
        let run = |machine: &str, workload: &str, scheduler: &str| {
            let simulation =
                Simulation::named(machine, workload, Some(60 * MS), scheduler).unwrap();
            let outcome = simulation.run(Control::new(1)).unwrap();
            (simulation.without_effect(&[&outcome]), outcome)
        };
        let (one_llc, hackbench) = ("node:1 l3:1 core:4 pu:1", "hackbench:groups=1");
        for (machine, workload, part, needs) in [
            ("2n2l4c", hackbench, "numa-scan-size-mb=1", "a machine of several NUMA nodes, and"),
            (
                one_llc,
                "numa02:cpus=4",
                "numa-scan-delay-ms=1",
                "a machine of several NUMA nodes, and",
            ),
            ("2n2l4c", hackbench, "no-numa-balancing", "a machine of several NUMA nodes, and"),
            (one_llc, hackbench, "no-sched-cache", "several LLCs"),
            (one_llc, hackbench, "llc-overaggr-pct=10", "several LLCs"),
        ] {
            let (told, with) = run(machine, workload, &format!("fair@7.2+{part}"));
            let start = format!("+{part} has nothing to act on: it needs {needs}");
            assert!(told.len() == 1 && told[0].starts_with(&start), "{told:?}");
            assert_eq!(with, run(machine, workload, "fair@7.2").1, "{part} on {machine}");
        }
        for (machine, scheduler, part) in [
            // 16 CPUs: 700 us times 4.
            ("2n2l4c", "fair@7.2", "base-slice-ns=2800000"),
            ("2n2l4c", "fair@7.2", "busy-factor-cls=5"),
            (one_llc, "fair@7.2", "imbalance-pct-numa=300"),
            (one_llc, "fair@7.2", "min-interval-ms-smt=50"),
            ("node:1 l3:2 core:1 pu:2", "fair@7.2", "busy-factor-mc=2"),
        ] {
            let (told, with) = run(machine, hackbench, &format!("{scheduler}+{part}"));
            assert_eq!(told, [format!("+{part} changes nothing on this machine")]);
            assert_eq!(with, run(machine, hackbench, scheduler).1, "{part} on {machine}");
        }
        let other = told("2n2l4c", hackbench, "fair@7.2+base-slice-ns=2900000+imb-numa-nr=3");
        assert_eq!(other, [""; 0]);
        let off = told("2n2l4c", "settle", "fair@7.2+no-sched-cache+llc-overaggr-pct=10");
        assert_eq!(off, ["+llc-overaggr-pct=10 changes nothing: sched-cache is off"]);
        let may = told("2n2l4c", "settle", "fair@7.2+numa-scan-size-mb=1+no-hrtick");
        assert_eq!(may, [""; 0]);
    }

    #[test]
    fn a_number_of_what_is_off_is_told() {
        let all = told("2n2l4c", "hackbench:groups=1", "fair@7.2+cling-degree=50");
        assert_eq!(all, ["+cling-degree=50 changes nothing: cling is off"]);
    }

    /// A single thread leaves nothing to balance. On a busy machine the same switch acts.
    #[test]
    fn what_never_acted_is_told_and_what_did_is_not() {
        let all = told("2n2l4c", "coremark:threads=1", "fair@5.19+no-sis-prop+llc-imbalance");
        assert_eq!(all, ["+llc-imbalance never acted: llc_imbalance_kept = 0"]);
        let other_form = told("2n2l4c", "coremark:threads=1", "fair@5.16+numa-imbalance");
        assert_eq!(other_form, [""; 0], "5.16 has another rule");
        let busy = told("2n2l4c", "hackbench:groups=2", "fair@5.19+sis-util");
        assert_eq!(busy, [""; 0]);
    }

    #[test]
    fn mechanisms_that_are_on_are_named_with_their_counters() {
        let on = |name| SchedulerSpec::parse(name).unwrap().mechanisms();
        assert_eq!(on("fair@3.9"), []);
        assert_eq!(on("fair@3.9+llc-imbalance"), [("llc-imbalance", &["llc_imbalance_kept"][..])]);
        let names: Vec<_> = on("fair@7.2").into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["numa-imbalance", "sis-util"]);
    }

    #[test]
    fn the_counters_of_roosts_mechanisms_are_in_its_runs() {
        let scheduler = "roost+no-cling";
        let spec = SchedulerSpec::parse(scheduler).unwrap();
        let names: Vec<_> = spec.mechanisms().into_iter().map(|(name, _)| name).collect();
        assert_eq!(
            names,
            ["sis-util", "llc-imbalance", "numa-imbalance", "consolidate", "cgroup-limits"]
        );
        let simulation =
            Simulation::named("2n2l4c", "hackbench:groups=2,loops=20", None, scheduler).unwrap();
        let outcome = simulation.run(Control::new(1)).unwrap();
        for mechanism in roost_settings::mechanisms() {
            for counter in mechanism.acted {
                assert!(outcome.counters.iter().any(|(name, _)| name == counter), "{counter}");
            }
        }
    }
}
