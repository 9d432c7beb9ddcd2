//! Checks of runs: whether a metric still changed during the measurement, whether a task did not get to run.

use roost_engine::Outcome;

/// A metric that drifts by more than this fraction is not steady. The same limit defines a material change of a result.
const MATERIAL: f64 = 0.03;

/// A sentence for each metric that is not steady in `runs`: in each run, the second half of the measurement differs
/// from the first by 3% or more, in the same direction.
pub fn unsteady(runs: &[&Outcome]) -> Vec<String> {
    let metrics = runs.first().map_or(0, |run| run.metrics.len());
    (0..metrics).filter_map(|index| sentence(runs, index)).collect()
}

/// The mean of the runs' drifts in percent, if each run drifts by 3% or more in the same direction. `None` if the drift
/// of a run is not known.
pub fn unsteady_pct(drifts: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let drifts = drifts.collect::<Option<Vec<f64>>>()?;
    let same = |sign: f64| drifts.iter().all(|drift| sign * drift >= MATERIAL);
    let unsteady = !drifts.is_empty() && (same(1.0) || same(-1.0));
    unsteady.then(|| 100.0 * drifts.iter().sum::<f64>() / drifts.len() as f64)
}

/// Shorter waits are not told (assumption): on a busy machine a task may wait for half of a short run.
const LONG_NS: u64 = 1_000_000_000;

/// A sentence about a task that had waited for a CPU for half of a run, or longer, when that run ended.
pub fn kept_waiting(runs: &[&Outcome]) -> Option<String> {
    let waits = runs.iter().filter_map(|run| Some((run.waiting.as_ref()?, run.elapsed_ns)));
    let long = waits.filter(|(waiting, of_ns)| waiting.ns >= LONG_NS.max(of_ns / 2));
    let (waiting, of_ns) = long.max_by_key(|(waiting, _)| waiting.ns)?;
    let seconds = |ns: u64| ns as f64 / 1e9;
    Some(format!(
        "{} had waited for a CPU for {:.3} s when a run of {:.3} s ended; the scheduler may have lost it",
        waiting.task,
        seconds(waiting.ns),
        seconds(of_ns)
    ))
}

fn sentence(runs: &[&Outcome], index: usize) -> Option<String> {
    let drift = |run: &&Outcome| run.metrics.get(index)?.drift;
    let mean = unsteady_pct(runs.iter().map(drift))?;
    let name = &runs.first()?.metrics.get(index)?.name;
    Some(format!(
        "{name} is not steady: in the second half of the measurement it differs by {mean:+.0}%; a longer \
         --duration tells more"
    ))
}

#[cfg(test)]
mod tests {
    use roost_engine::Waiting;
    use roost_workload::Better;

    use super::*;
    use crate::comparison::tests::outcome;

    fn run(drift: Option<f64>) -> Outcome {
        let mut run = outcome(Better::Higher, Some(1.0), &[]);
        run.metrics[0].drift = drift;
        run
    }

    fn of(drifts: &[Option<f64>]) -> Vec<String> {
        let runs: Vec<Outcome> = drifts.iter().map(|drift| run(*drift)).collect();
        unsteady(&runs.iter().collect::<Vec<_>>())
    }

    #[test]
    fn a_task_is_told_that_waited_for_half_of_a_run() {
        let waited = |elapsed_ns, ns| {
            let mut run = run(None);
            run.elapsed_ns = elapsed_ns;
            run.waiting = Some(Waiting { task: "w".to_owned(), ns });
            kept_waiting(&[&run])
        };
        let told = waited(4 * LONG_NS, 2 * LONG_NS).unwrap();
        assert!(
            told.starts_with("w had waited for a CPU for 2.000 s when a run of 4.000 s"),
            "{told}"
        );
        assert_eq!(waited(4 * LONG_NS, 2 * LONG_NS - 1), None);
        assert_eq!(waited(LONG_NS, LONG_NS - 1), None);
        assert_eq!(kept_waiting(&[&run(None)]), None);
    }

    #[test]
    fn it_is_told_if_all_runs_drift_the_same_way() {
        let told = of(&[Some(0.08), Some(0.04), Some(0.06)]);
        assert!(told[0].contains("differs by +6%"), "{told:?}");
        assert!(of(&[Some(-0.08), Some(-0.04)])[0].contains("-6%"));
        assert!(of(&[Some(0.08), Some(-0.04)]).is_empty(), "chance");
        assert!(of(&[Some(0.08), Some(0.02)]).is_empty(), "not in all");
        assert!(of(&[Some(0.08), None]).is_empty(), "not known in all");
        assert!(of(&[]).is_empty());
    }
}
