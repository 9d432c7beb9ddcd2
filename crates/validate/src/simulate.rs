//! The simulated side of a comparison.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use roost_engine::{Control, Time, Tracer};
use roost_machine::Machine;
use roost_measure::SharedObserved;
use roost_simulate::{SchedulerSpec, Simulation, Start};
use roost_workload::Workload;

use crate::background::{WorkloadOnly, accompanied};
use crate::error::ValidateError;
use crate::observation::Observation;
use crate::scenario::Scenario;

/// The part of a run of `duration_ns` that is compared.
///
/// The first 40 ms are left out. In a guest, rt-app takes 6 ms to start 22 threads, and some more time until they all
/// run, because they contend for locks of their process. The simulation does not model that. The last 40 ms are left
/// out because reading the counters takes that long in a guest whose CPUs are all busy.
pub fn window_ns(duration_ns: u64) -> Range<u64> {
    const MARGIN_NS: u64 = 40_000_000;
    MARGIN_NS..duration_ns.saturating_sub(MARGIN_NS)
}

/// Runs `scenario` on `machine` under `scheduler`, once per seed. Returns what happened in the part
/// `window_ns` of each run. `stop` ends the current run with an error.
pub fn simulate(
    machine: &Arc<Machine>,
    scenario: &Scenario,
    scheduler: &SchedulerSpec,
    window_ns: &Range<u64>,
    seeds: &[u64],
    stop: &AtomicBool,
) -> Result<Vec<Observation>, ValidateError> {
    scenario.check(machine)?;
    let workload = Workload { duration_ns: Some(window_ns.end), ..scenario.workload()? };
    let tasks: Vec<&str> = workload.templates.iter().map(|t| t.name.as_str()).collect();
    let loaded = matches!(scheduler, SchedulerSpec::Scx(program) if program.is_roost());
    let one = |seed: &u64| {
        let observed = SharedObserved::since(machine, Time(window_ns.start));
        let run = |workload: &Workload, tracer| {
            let control = Control { tracer, stop, ..Control::new(*seed) };
            Simulation {
                machine: machine.clone(),
                workload: Arc::new(workload.clone()),
                scheduler: scheduler.clone(),
                start: Start::DomainsRebuilt,
                // What runs beside the workload are tasks of it here.
                quiet: true,
            }
            .run(control)
            .map_err(|source| ValidateError::Run { scenario: scenario.name, source })
        };
        let workload = accompanied(&workload, machine, loaded, *seed);
        let tracer: Box<dyn Tracer> = Box::new(WorkloadOnly::new(observed.tracer()));
        let outcome = run(&workload, Some(tracer))?;
        // With the same seed, the start is the same.
        let start = Workload { duration_ns: Some(window_ns.start), ..workload };
        let before = run(&start, None)?.counters;
        let observed = observed.finish(Time(outcome.elapsed_ns));
        let counters = outcome.counters.iter().map(|(name, value)| {
            let before = before.iter().find(|(other, _)| other == name);
            (name.as_str(), value - before.map_or(0.0, |(_, before)| *before))
        });
        Ok(Observation::new(window_ns.clone(), &observed, counters, &tasks))
    };
    seeds.iter().map(one).collect()
}
