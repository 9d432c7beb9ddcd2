//! The simulation's side of a comparison.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use roost_engine::{Control, Time, Tracer, run};
use roost_fair::{Fair, Features};
use roost_machine::Machine;
use roost_measure::SharedObserved;

use crate::background::{WithoutKernelThreads, with_kernel_threads};
use crate::error::ValidateError;
use crate::observation::Observation;
use crate::scenario::Scenario;

/// Runs `scenario` on `machine` under the fair class of `features`, once a seed. `stop` ends the
/// current run with an error.
pub fn simulate(
    machine: &Arc<Machine>,
    scenario: &Scenario,
    features: &Features,
    seeds: &[u64],
    stop: &AtomicBool,
) -> Result<Vec<Observation>, ValidateError> {
    scenario.check(machine)?;
    let workload = scenario.workload()?;
    let tasks: Vec<&str> = workload.templates.iter().map(|t| t.name.as_str()).collect();
    let one = |seed: &u64| {
        let observed = SharedObserved::new(machine);
        let tracer =
            Some(Box::new(WithoutKernelThreads::new(observed.tracer())) as Box<dyn Tracer>);
        let control = Control { seed: *seed, tracer, stop, progress: &|_| {} };
        let workload = with_kernel_threads(&workload, machine, *seed);
        let outcome = run(machine, &workload, Fair::new(machine, features.clone()), control)
            .map_err(|source| ValidateError::Run { scenario: scenario.name, source })?;
        let observed = observed.finish(Time(outcome.elapsed_ns));
        let counters = outcome.counters.iter().map(|(name, value)| (name.as_str(), *value));
        Ok(Observation::new(&observed, counters, &tasks))
    };
    seeds.iter().map(one).collect()
}
