//! Compares the means of simulation and real kernel.

use roost_report::Summary;

use crate::observation::{Kind, Observation, Quantity};
use crate::tolerance::{
    PLACEMENT_POINTS, RARE_EVENTS, RELATIVE, REPEATS, SHARE_FLOOR_POINTS, SHARE_POINTS,
};

/// The result of comparing two means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opinion {
    /// The means differ by at most the tolerance for their kind.
    Size,
    /// The means differ by more, but their 95% confidence intervals overlap, so chance can explain it.
    Overlap,
    /// The means differ.
    Differs,
    /// Both sides have too few events to compare.
    Rare,
}

impl Opinion {
    /// Whether it counts as agreement. `None` if it does not count at all.
    pub fn agrees(self) -> Option<bool> {
        match self {
            Opinion::Size | Opinion::Overlap => Some(true),
            Opinion::Differs => Some(false),
            Opinion::Rare => None,
        }
    }

    /// The word for tables.
    pub fn word(self) -> &'static str {
        match self {
            Opinion::Size => "size",
            Opinion::Overlap => "overlap",
            Opinion::Differs => "DIFFERS",
            Opinion::Rare => "rare",
        }
    }
}

/// One quantity, simulated and real.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The quantity.
    pub quantity: Quantity,
    /// The simulated values.
    pub sim: Summary,
    /// The real kernel's values.
    pub real: Summary,
    /// The result of comparing them.
    pub opinion: Opinion,
}

impl Row {
    /// The simulated mean minus the real mean.
    pub fn difference(&self) -> f64 {
        self.sim.mean - self.real.mean
    }
}

/// One scenario on one machine shape, simulated and real.
#[derive(Clone, Debug, PartialEq)]
pub struct Agreement {
    /// The scenario's name.
    pub scenario: String,
    /// The machine's name.
    pub shape: String,
    /// Number of simulated runs.
    pub sim_repeats: usize,
    /// Number of runs on the real kernel.
    pub real_repeats: usize,
    /// Every quantity that occurs in any run, placement first.
    pub rows: Vec<Row>,
}

/// Compares simulated and real runs. If a run does not have a quantity, it counts as 0.
pub fn compare(
    scenario: &str,
    shape: &str,
    sim: &[Observation],
    real: &[Observation],
) -> Agreement {
    let mut quantities: Vec<&Quantity> = Vec::new();
    for (quantity, _) in sim.iter().chain(real).flat_map(Observation::values) {
        if !quantities.contains(&quantity) {
            quantities.push(quantity);
        }
    }
    quantities.sort_by_key(|quantity| quantity.kind != Kind::Placement);
    let row = |quantity: &&Quantity| {
        let summary = |side: &[Observation]| {
            let values: Vec<f64> = side.iter().map(|run| run.value(&quantity.name)).collect();
            Summary::of(&values)
        };
        let (sim, real) = (summary(sim)?, summary(real)?);
        let opinion = opinion(quantity.kind, &sim, &real);
        Some(Row { quantity: (*quantity).clone(), sim, real, opinion })
    };
    Agreement {
        scenario: scenario.to_owned(),
        shape: shape.to_owned(),
        sim_repeats: sim.len(),
        real_repeats: real.len(),
        rows: quantities.iter().filter_map(row).collect(),
    }
}

/// The rules of `docs/validation.md`.
fn opinion(kind: Kind, sim: &Summary, real: &Summary) -> Opinion {
    if kind == Kind::Count && sim.mean < RARE_EVENTS && real.mean < RARE_EVENTS {
        return Opinion::Rare;
    }
    if agree_in_size(kind, sim.mean, real.mean) {
        return Opinion::Size;
    }
    let chance = match kind {
        Kind::Placement => chance_moves(sim, real),
        _ => sim.differs_from(real) == Some(false),
    };
    if chance { Opinion::Overlap } else { Opinion::Differs }
}

/// Whether chance can explain that this difference is larger than the tolerance. Intervals that are wider than the
/// tolerance decide nothing.
fn chance_moves(sim: &Summary, real: &Summary) -> bool {
    let half = |side: &Summary| Some(side.confidence?.high - side.mean);
    let Some((sim_half, real_half)) = half(sim).zip(half(real)) else { return false };
    let of_difference = sim_half.hypot(real_half);
    of_difference <= PLACEMENT_POINTS
        && (sim.mean - real.mean).abs() <= PLACEMENT_POINTS + of_difference
}

fn agree_in_size(kind: Kind, sim: f64, real: f64) -> bool {
    let difference = (sim - real).abs();
    let relative = difference <= RELATIVE * real.abs();
    match kind {
        Kind::Placement => difference <= PLACEMENT_POINTS,
        Kind::Count => relative,
        Kind::Share => difference <= SHARE_FLOOR_POINTS || (relative && difference <= SHARE_POINTS),
        Kind::Ratio => difference <= SHARE_FLOOR_POINTS || relative,
    }
}

impl Agreement {
    /// All rows except those of placement, which has a bar of its own.
    pub fn counters(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.quantity.kind != Kind::Placement)
    }

    /// All shares of run time.
    pub fn placement(&self) -> impl Iterator<Item = &Row> + Clone {
        self.rows.iter().filter(|row| row.quantity.kind == Kind::Placement)
    }

    /// Number of counters with this result.
    pub fn count(&self, opinion: Opinion) -> usize {
        self.counters().filter(|row| row.opinion == opinion).count()
    }

    /// Number of counters that agree, and number of counters that were compared.
    pub fn agreeing(&self) -> (usize, usize) {
        let said = self.counters().filter_map(|row| row.opinion.agrees());
        said.fold((0, 0), |(agreeing, all), agrees| (agreeing + usize::from(agrees), all + 1))
    }

    /// The share of run time with the largest difference. A share that certainly differs comes before one whose
    /// difference may be chance.
    pub fn worst_placement(&self) -> Option<&Row> {
        let weight = |row: &Row| (row.opinion == Opinion::Differs, row.difference().abs());
        self.placement().max_by(|a, b| {
            let ((differs, points), (other_differs, other_points)) = (weight(a), weight(b));
            differs.cmp(&other_differs).then(points.total_cmp(&other_points))
        })
    }

    /// Whether both sides have enough repeats for intervals.
    pub fn has_repeats(&self) -> bool {
        self.sim_repeats.min(self.real_repeats) >= REPEATS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Observations of one quantity, one per value.
    fn side(kind: Kind, values: &[f64]) -> Vec<Observation> {
        let one = |value: &f64| {
            let mut observation = Observation::default();
            observation.add(kind, "quantity", *value);
            observation
        };
        values.iter().map(one).collect()
    }

    fn opinion_of(kind: Kind, sim: &[f64], real: &[f64]) -> Opinion {
        let agreement = compare("scenario", "shape", &side(kind, sim), &side(kind, real));
        assert_eq!(agreement.rows.len(), 1);
        agreement.rows[0].opinion
    }

    #[test]
    fn counts_agree_within_a_quarter_of_the_real_mean() {
        assert_eq!(opinion_of(Kind::Count, &[125.0; 5], &[100.0; 5]), Opinion::Size);
        assert_eq!(opinion_of(Kind::Count, &[126.0; 5], &[100.0; 5]), Opinion::Differs);
        assert_eq!(opinion_of(Kind::Count, &[75.0; 5], &[100.0; 5]), Opinion::Size);
        assert_eq!(opinion_of(Kind::Count, &[74.0; 5], &[100.0; 5]), Opinion::Differs);
    }

    #[test]
    fn overlapping_intervals_agree_and_are_told_apart() {
        // Mean 100, deviation sqrt(250) = 15.81, t(4) = 2.776: 100 +- 2.776 * 15.81 / sqrt(5) = 100 +- 19.63. With the
        // same spread, the interval of mean 140 begins at 120.37, that of mean 139 at 119.37.
        let around = |mean: f64| [-20.0, -10.0, 0.0, 10.0, 20.0].map(|offset| mean + offset);
        assert_eq!(opinion_of(Kind::Count, &around(139.0), &around(100.0)), Opinion::Overlap);
        assert_eq!(opinion_of(Kind::Count, &around(140.0), &around(100.0)), Opinion::Differs);
        assert_eq!(opinion_of(Kind::Count, &around(120.0), &around(100.0)), Opinion::Size);
    }

    #[test]
    fn one_repeat_has_no_interval_to_agree_by() {
        assert_eq!(opinion_of(Kind::Count, &[140.0], &[100.0]), Opinion::Differs);
        assert_eq!(opinion_of(Kind::Count, &[110.0], &[100.0]), Opinion::Size);
    }

    #[test]
    fn what_hardly_happens_is_not_compared() {
        let few = [0.0, 0.0, 1.0, 0.0, 1.0];
        assert_eq!(opinion_of(Kind::Count, &few, &[0.0; 5]), Opinion::Rare);
        assert_eq!(opinion_of(Kind::Count, &[4.9; 5], &[0.0; 5]), Opinion::Rare);
        assert_eq!(opinion_of(Kind::Count, &[5.0; 5], &[0.0; 5]), Opinion::Differs);
        assert_eq!(opinion_of(Kind::Count, &few, &[500.0; 5]), Opinion::Differs);
    }

    #[test]
    fn shares_agree_within_points_too() {
        assert_eq!(opinion_of(Kind::Share, &[94.0; 5], &[99.0; 5]), Opinion::Size);
        assert_eq!(opinion_of(Kind::Share, &[93.0; 5], &[99.0; 5]), Opinion::Differs);
        // A quarter of 10 is 2.5.
        assert_eq!(opinion_of(Kind::Share, &[13.0; 5], &[10.0; 5]), Opinion::Differs);
        assert_eq!(opinion_of(Kind::Share, &[0.9; 5], &[0.1; 5]), Opinion::Size);
        assert_eq!(opinion_of(Kind::Ratio, &[60.0; 5], &[70.0; 5]), Opinion::Size);
        assert_eq!(opinion_of(Kind::Ratio, &[2.0; 5], &[0.5; 5]), Opinion::Differs);
    }

    #[test]
    fn placement_asks_for_points_and_wide_intervals_excuse_nothing() {
        assert_eq!(opinion_of(Kind::Placement, &[50.0; 5], &[55.0; 5]), Opinion::Size);
        assert_eq!(opinion_of(Kind::Placement, &[50.0; 5], &[55.1; 5]), Opinion::Differs);
        // Deviation sqrt(2.5) = 1.581. Half of the interval is 2.776 * 1.581 / sqrt(5) = 1.963.
        let around = |mean: f64| [-2.0, -1.0, 0.0, 1.0, 2.0].map(|offset| mean + offset);
        assert_eq!(opinion_of(Kind::Placement, &around(56.9), &[50.0; 5]), Opinion::Overlap);
        assert_eq!(opinion_of(Kind::Placement, &around(57.0), &[50.0; 5]), Opinion::Differs);
        let spread = [30.0, 70.0, 50.0, 60.0, 70.0];
        assert_eq!(opinion_of(Kind::Placement, &spread, &[50.0; 5]), Opinion::Differs);
    }

    #[test]
    fn a_quantity_of_one_side_is_nought_on_the_other() {
        let agreement =
            compare("s", "m", &side(Kind::Count, &[9.0; 5]), &vec![Observation::default(); 5]);
        assert_eq!(
            (agreement.rows[0].real.mean, agreement.rows[0].opinion),
            (0.0, Opinion::Differs)
        );
    }

    #[test]
    fn placement_is_no_counter() {
        let mut run = Observation::default();
        run.add(Kind::Count, "migrations", 100.0);
        run.add(Kind::Placement, "hog on LLC 1", 60.0);
        run.add(Kind::Count, "rare", 0.0);
        let mut other = run.clone();
        other.add(Kind::Count, "PKG periodic attempts", 7.0);
        let agreement = compare("s", "m", &vec![run; 5], &vec![other; 5]);
        assert_eq!(agreement.rows[0].quantity.kind, Kind::Placement, "placement comes first");
        assert_eq!(agreement.agreeing(), (1, 2));
        let counts = [Opinion::Size, Opinion::Overlap, Opinion::Differs, Opinion::Rare];
        assert_eq!(counts.map(|opinion| agreement.count(opinion)), [1, 0, 1, 1]);
        assert_eq!(agreement.worst_placement().map(Row::difference), Some(0.0));
    }

    proptest! {
        #[test]
        fn a_side_agrees_with_itself(values in prop::collection::vec(0.0..1e6_f64, 5..9)) {
            for kind in [Kind::Placement, Kind::Count, Kind::Share, Kind::Ratio] {
                prop_assert_ne!(opinion_of(kind, &values, &values), Opinion::Differs);
            }
        }

        #[test]
        fn closer_means_never_agree_less(real in 5.0..1e4_f64, off in 0.0..1e4_f64, part in 0.0..1.0_f64) {
            for kind in [Kind::Placement, Kind::Count, Kind::Share, Kind::Ratio] {
                let far = opinion_of(kind, &[real + off; 5], &[real; 5]);
                let near = opinion_of(kind, &[real + off * part; 5], &[real; 5]);
                prop_assert!(far == Opinion::Differs || near != Opinion::Differs);
            }
        }
    }
}
