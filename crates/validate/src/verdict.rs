//! The verdict on a whole suite.

use std::fmt;

use crate::agreement::{Agreement, Opinion};
use crate::tolerance::{Bars, PLACEMENT_POINTS, REPEATS};

/// Scenarios on machine shapes under one scheduler.
#[derive(Clone, Debug, PartialEq)]
pub struct Suite {
    /// The scheduler's name.
    pub scheduler: String,
    /// The bars for this kind of scheduler.
    pub bars: Bars,
    /// Each scenario on each shape.
    pub agreements: Vec<Agreement>,
}

/// The verdict on a suite.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// Number of counters that agree.
    pub agreeing: usize,
    /// Number of these whose means agree in size. The others agree only because their intervals overlap.
    pub by_size: usize,
    /// Number of counters that were compared.
    pub compared: usize,
    /// Number of counters that are too rare to compare.
    pub rare: usize,
    /// Number of shares of run time by LLC and node.
    pub places: usize,
    /// Number of these within the tolerance. The others pass because of the interval of the difference, or fail.
    pub places_by_size: usize,
    /// The bars that were missed. Empty if the suite passes.
    pub failures: Vec<Failure>,
}

/// A bar that was missed.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// Nothing was compared.
    Nothing,
    /// Too few counters agree in all scenarios together.
    All {
        /// Percent that agree.
        percent: f64,
        /// The bar, in percent.
        bar: f64,
    },
    /// Too few counters of a scenario agree, over all its shapes.
    Scenario {
        /// The scenario.
        scenario: String,
        /// Percent that agree.
        percent: f64,
        /// The bar, in percent.
        bar: f64,
    },
    /// A class of tasks runs on other LLCs or nodes.
    Placement {
        /// The scenario.
        scenario: String,
        /// The machine shape.
        shape: String,
        /// The share with the largest difference.
        quantity: String,
        /// The simulated share minus the real share, in percentage points.
        points: f64,
    },
    /// There are too few repeats for intervals.
    Repeats {
        /// The scenario.
        scenario: String,
        /// The machine shape.
        shape: String,
        /// The smaller number of both sides.
        repeats: usize,
    },
}

impl Verdict {
    /// The verdict on a suite.
    pub fn of(suite: &Suite) -> Self {
        let Suite { bars, agreements, .. } = suite;
        let count = |opinion| agreements.iter().map(|a| a.count(opinion)).sum::<usize>();
        let (agreeing, compared) = total(agreements.iter());
        let mut failures = Vec::new();
        if compared == 0 {
            failures.push(Failure::Nothing);
        } else if below(agreeing, compared, bars.all) {
            let percent = percent(agreeing, compared);
            failures.push(Failure::All { percent, bar: 100.0 * bars.all });
        }
        failures.extend(scenario_failures(agreements, bars.scenario));
        for agreement in agreements {
            failures.extend(own_failures(agreement));
        }
        let (by_size, rare) = (count(Opinion::Size), count(Opinion::Rare));
        let places = agreements.iter().flat_map(Agreement::placement);
        let places_by_size = places.clone().filter(|row| row.opinion == Opinion::Size).count();
        let places = places.count();
        Self { agreeing, by_size, compared, rare, places, places_by_size, failures }
    }

    /// Whether every bar was met.
    pub fn holds(&self) -> bool {
        self.failures.is_empty()
    }
}

fn scenario_failures(agreements: &[Agreement], bar: f64) -> Vec<Failure> {
    let mut scenarios: Vec<&str> = Vec::new();
    for agreement in agreements {
        if !scenarios.contains(&agreement.scenario.as_str()) {
            scenarios.push(&agreement.scenario);
        }
    }
    let failure = |scenario: &&str| {
        let (agreeing, compared) = total(agreements.iter().filter(|a| a.scenario == **scenario));
        below(agreeing, compared, bar).then(|| Failure::Scenario {
            scenario: (*scenario).to_owned(),
            percent: percent(agreeing, compared),
            bar: 100.0 * bar,
        })
    };
    scenarios.iter().filter_map(failure).collect()
}

/// The bars that a single agreement misses.
fn own_failures(agreement: &Agreement) -> Vec<Failure> {
    let (scenario, shape) = (agreement.scenario.clone(), agreement.shape.clone());
    let mut failures = Vec::new();
    if !agreement.has_repeats() {
        let repeats = agreement.sim_repeats.min(agreement.real_repeats);
        failures.push(Failure::Repeats {
            scenario: scenario.clone(),
            shape: shape.clone(),
            repeats,
        });
    }
    if let Some(worst) = agreement.worst_placement()
        && worst.opinion.agrees() == Some(false)
    {
        let (quantity, points) = (worst.quantity.name.clone(), worst.difference());
        failures.push(Failure::Placement { scenario, shape, quantity, points });
    }
    failures
}

fn total<'a>(agreements: impl Iterator<Item = &'a Agreement>) -> (usize, usize) {
    agreements
        .map(Agreement::agreeing)
        .fold((0, 0), |(agreeing, all), (more, of)| (agreeing + more, all + of))
}

fn below(agreeing: usize, compared: usize, bar: f64) -> bool {
    (agreeing as f64) < bar * compared as f64
}

/// `part` of `whole` in percent. 0 of 0 is 0.
pub(crate) fn percent(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Nothing => write!(f, "no counter was compared"),
            Failure::All { percent, bar } => {
                write!(f, "{percent:.1}% of all counters agree, the bar is {bar:.0}%")
            }
            Failure::Scenario { scenario, percent, bar } => {
                write!(f, "{scenario}: {percent:.1}% of its counters agree, the bar is {bar:.0}%")
            }
            Failure::Placement { scenario, shape, quantity, points } => write!(
                f,
                "{scenario} on {shape}: {quantity} differs by {points:+.1} points of run time, the \
                 bar is {PLACEMENT_POINTS:.0}"
            ),
            Failure::Repeats { scenario, shape, repeats } => {
                write!(f, "{scenario} on {shape}: {repeats} repeats, the fewest are {REPEATS}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::compare;
    use crate::observation::{Kind, Observation};
    use crate::tolerance::{FAIR_BARS, PROGRAM_BARS};

    fn suite(bars: Bars, agreements: &[Agreement]) -> Suite {
        Suite { scheduler: "fair@7.2".to_owned(), bars, agreements: agreements.to_vec() }
    }

    /// An agreement in which `agreeing` of `compared` counters agree, and placement is off by `points`.
    fn agreement(scenario: &str, agreeing: usize, compared: usize, points: f64) -> Agreement {
        let (mut sim, mut real) = (Observation::default(), Observation::default());
        for index in 0..compared {
            real.add(Kind::Count, format!("counter {index}"), 100.0);
            let value = if index < agreeing { 100.0 } else { 200.0 };
            sim.add(Kind::Count, format!("counter {index}"), value);
        }
        real.add(Kind::Placement, "task on LLC 1", 50.0);
        sim.add(Kind::Placement, "task on LLC 1", 50.0 + points);
        compare(scenario, "2n2l4c", &vec![sim; 5], &vec![real; 5])
    }

    fn failures(agreements: &[Agreement]) -> Vec<String> {
        Verdict::of(&suite(FAIR_BARS, agreements)).failures.iter().map(Failure::to_string).collect()
    }

    #[test]
    fn the_bars_are_met_exactly() {
        // 85 of 100 counters in total, 70 of 100 in the weaker scenario, 5 points of placement.
        let agreements = [agreement("weak", 14, 20, 5.0), agreement("strong", 71, 80, -5.0)];
        let verdict = Verdict::of(&suite(FAIR_BARS, &agreements));
        assert!(verdict.holds(), "{:?}", verdict.failures);
        assert_eq!((verdict.agreeing, verdict.by_size, verdict.compared), (85, 85, 100));
    }

    #[test]
    fn one_counter_less_misses_the_bar_of_all() {
        let suite = [agreement("weak", 14, 20, 0.0), agreement("strong", 70, 80, 0.0)];
        assert_eq!(failures(&suite), ["84.0% of all counters agree, the bar is 85%"]);
    }

    #[test]
    fn programs_have_a_bar_of_their_own_for_all_counters() {
        let of = |agreeing| {
            let agreements = [agreement("s", agreeing, 100, 0.0)];
            Verdict::of(&suite(PROGRAM_BARS, &agreements)).failures
        };
        assert_eq!(of(80), []);
        let missed: Vec<String> = of(79).iter().map(Failure::to_string).collect();
        assert_eq!(missed, ["79.0% of all counters agree, the bar is 80%"]);
    }

    #[test]
    fn a_scenario_is_judged_over_its_shapes() {
        // 13 of 20 and 15 of 20 are 70% together.
        let strong = agreement("strong", 200, 200, 0.0);
        let pair = [agreement("weak", 13, 20, 0.0), agreement("weak", 15, 20, 0.0), strong.clone()];
        assert_eq!(failures(&pair), [] as [&str; 0]);
        let one = [agreement("weak", 13, 20, 0.0), strong];
        assert_eq!(failures(&one), ["weak: 65.0% of its counters agree, the bar is 70%"]);
    }

    #[test]
    fn placement_and_repeats_fail_by_themselves() {
        let mut suite = [agreement("s", 20, 20, -5.1)];
        suite[0].real_repeats = 4;
        assert_eq!(
            failures(&suite),
            [
                "s on 2n2l4c: 4 repeats, the fewest are 5",
                "s on 2n2l4c: task on LLC 1 differs by -5.1 points of run time, the bar is 5",
            ]
        );
    }

    #[test]
    fn nothing_is_no_agreement() {
        assert_eq!(failures(&[]), ["no counter was compared"]);
    }
}
