//! The order in which runs are made: the cheapest first, so that most cells are complete early.
//!
//! 1. One run of each cell, from small machines to large ones, because the costs are not known yet.
//! 2. Then all runs of the cell whose runs took least time, and so on.

use crate::journal::Journal;
use crate::plan::{Plan, Run};

/// The runs that are still to be made.
pub(crate) struct Order {
    cells: Vec<Waiting>,
}

/// State of a cell.
struct Waiting {
    /// Repeats that have not begun, the last one first.
    repeats: Vec<usize>,
    /// Whether a repeat has begun.
    begun: bool,
    /// CPUs of the machine times simulated ns, because large machines have more events.
    guess: u128,
    /// Time that its finished runs took in seconds. The next field is their number.
    seconds: f64,
    ended: usize,
}

/// Assumed duration of a workload without one, in ns. Most such workloads end earlier.
const UNKNOWN_NS: u64 = 1_000_000_000;

impl Order {
    /// The order of the runs that `journal` does not have.
    pub fn new(plan: &Plan, journal: &Journal) -> Self {
        let mut cells: Vec<Waiting> = Vec::new();
        for (index, cell) in plan.cells.iter().enumerate() {
            let missing = |repeat: &usize| !journal.has(Run { cell: index, repeat: *repeat });
            let simulation = &cell.simulation;
            let ns = simulation.workload.duration_ns.unwrap_or(UNKNOWN_NS);
            cells.push(Waiting {
                repeats: (0..cell.seeds.len()).rev().filter(missing).collect(),
                begun: false,
                guess: simulation.machine.nr_cpus() as u128 * u128::from(ns),
                seconds: 0.0,
                ended: 0,
            });
        }
        let mut order = Self { cells };
        for ended in journal.ended() {
            order.ended(ended.run, ended.seconds);
        }
        order
    }

    /// The next run. It counts as begun.
    pub fn next(&mut self) -> Option<Run> {
        let waiting = |cell: &&Waiting| !cell.repeats.is_empty();
        let cheaper = |one: &Waiting, other: &Waiting| {
            let kind = |cell: &Waiting| (cell.begun, cell.ended == 0);
            let guess = one.guess.cmp(&other.guess);
            kind(one).cmp(&kind(other)).then(one.mean().total_cmp(&other.mean())).then(guess)
        };
        let all = self.cells.iter().enumerate().filter(|(_, cell)| waiting(cell));
        let (cell, _) = all.min_by(|(_, one), (_, other)| cheaper(one, other))?;
        let waiting = self.cells.get_mut(cell)?;
        waiting.begun = true;
        waiting.repeats.pop().map(|repeat| Run { cell, repeat })
    }

    /// Records that a run took this many seconds.
    pub fn ended(&mut self, run: Run, seconds: f64) {
        if let Some(cell) = self.cells.get_mut(run.cell) {
            cell.begun = true;
            cell.ended += 1;
            cell.seconds += seconds;
        }
    }

    /// Estimated time of the runs that have not begun, in seconds of one core. Cells without a finished run are
    /// estimated by the average of the others. `None`: no run has finished.
    pub fn estimate(&self) -> Option<f64> {
        let known = self.cells.iter().filter(|cell| cell.ended > 0);
        let means: Vec<f64> = known.map(Waiting::mean).collect();
        let mean = (!means.is_empty()).then(|| means.iter().sum::<f64>() / means.len() as f64)?;
        let of = |cell: &Waiting| if cell.ended > 0 { cell.mean() } else { mean };
        Some(self.cells.iter().map(|cell| cell.repeats.len() as f64 * of(cell)).sum())
    }
}

impl Waiting {
    fn mean(&self) -> f64 {
        self.seconds / self.ended.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Program;

    const PLAN: &str = "machines = ['zen3-2s', '2n2l4c']\nworkloads = 'hackbench'\n\
                        schedulers = 'fair@7.2'\nseeds = 2";

    fn order() -> Order {
        let plan = Plan::toml("plan", PLAN).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let program = Program { identity: String::new() };
        Order::new(&plan, &Journal::open(&folder.path().join("j"), &plan, &program).unwrap())
    }

    fn next(order: &mut Order) -> Option<(usize, usize)> {
        order.next().map(|Run { cell, repeat }| (cell, repeat))
    }

    #[test]
    fn each_cell_has_a_run_small_machines_first_and_then_the_cheapest_has_all_of_its_own() {
        let mut order = order();
        assert_eq!(order.estimate(), None);
        let first = [next(&mut order), next(&mut order)];
        assert_eq!(first, [Some((1, 0)), Some((0, 0))], "16 CPUs before 256");
        order.ended(Run { cell: 1, repeat: 0 }, 5.0);
        order.ended(Run { cell: 0, repeat: 0 }, 1.0);
        assert_eq!(order.estimate(), Some(6.0));
        let rest = [next(&mut order), next(&mut order), next(&mut order)];
        assert_eq!(rest, [Some((0, 1)), Some((1, 1)), None], "the larger machine was cheaper");
    }

    #[test]
    fn a_cell_whose_cost_is_known_goes_before_one_that_still_runs() {
        let mut order = order();
        let _ = [next(&mut order), next(&mut order)];
        order.ended(Run { cell: 0, repeat: 0 }, 100.0);
        assert_eq!(order.estimate(), Some(200.0), "the other as long, as far as is known");
        assert_eq!(next(&mut order), Some((0, 1)));
    }
}
