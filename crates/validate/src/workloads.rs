//! Benchmarks of the simulation beside the programs that they stand for: events for each operation of the workload.
//!
//! Times of an emulated machine mean little, but how often a task sleeps, is woken, preempted and moved while a program
//! does one thing is a property of the program. So the counts of a run are divided by what it did: messages,
//! transactions, blocks, loops.

mod render;
mod tally;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use roost_engine::{Control, MetricValue, Time};
use roost_machine::Machine;
use roost_report::Summary;
use roost_simulate::{SchedulerSpec, Simulation, Start};
use roost_workload::benchmark::{self, Values, stress_ng};
use roost_workload::{Workload, costs};
use serde::{Deserialize, Serialize};

pub use render::{Title, csv, json, markdown, table};

use crate::error::ValidateError;
use crate::tolerance::{RARE_EVENTS, RELATIVE};
use tally::SharedTally;

/// What is compared if nothing else is asked for. Each program appears where its tasks find idle CPUs and where they
/// share CPUs, on a machine of 2 CPUs.
pub const WORKLOADS: [&str; 15] = [
    "hackbench:groups=1,loops=250,pipe",
    "hackbench:groups=1,loops=250",
    "hackbench:groups=1,loops=50000,fds=1,pipe",
    "hackbench:groups=1,loops=50000,fds=1",
    "tbench:clients=1",
    "tbench:clients=4",
    "netperf-tcp-rr:clients=1",
    "netperf-tcp-rr:clients=4",
    "netperf-udp-rr:clients=1",
    "iperf3",
    "rt-app:coremark:threads=3",
    "rt-app:schbench:messages=1,workers=4",
    "stress-ng:coremark:threads=3",
    "sysbench-oltp:instances=1,threads=1",
    "sysbench-oltp:instances=2,threads=2",
];

/// How long a program runs that does not end by itself. Shorter runs of programs that start slowly measure their start.
pub const DURATION_NS: u64 = 5_000_000_000;

/// How long a simulation of it runs. On hardware, programs do in this time many times as much as in a guest.
const SIMULATED_NS: u64 = 1_000_000_000;

/// The counts that are compared.
pub const COUNTERS: [&str; 5] = ["wakeups", "switches", "sleeps", "preemptions", "migrations"];

/// Events of the workload's tasks in one run, or in the measured part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    /// What the workload did: messages, transactions, blocks or loops.
    pub operations: f64,
    /// CPU time of the machine, ns.
    pub cpu_ns: f64,
    /// Wakeups.
    pub wakeups: f64,
    /// Times that a task left its CPU.
    pub switches: f64,
    /// Times that a task left its CPU to sleep.
    pub sleeps: f64,
    /// Times that a task left its CPU although it was runnable.
    pub preemptions: f64,
    /// Changes of CPU, of tasks that waited, slept or ran.
    pub migrations: f64,
}

impl Counted {
    /// The counts, in the order of [`COUNTERS`].
    fn counts(&self) -> [f64; 5] {
        [self.wakeups, self.switches, self.sleeps, self.preemptions, self.migrations]
    }
}

/// What a workload does again and again, and how often it did that in a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Operation {
    /// Its name, in singular.
    pub name: &'static str,
    amount: Amount,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Amount {
    /// The arguments say it.
    Given(f64),
    /// All rates that the workload reports, times this number, are operations a second.
    Rates(f64),
    /// Each is a second of the machine's CPU time.
    CpuSeconds,
}

impl Operation {
    /// The operation of a workload that is named as for `--workload`.
    ///
    /// # Errors
    /// If there is no such benchmark, or none that is compared.
    pub fn of(spec: &str) -> Result<Self, ValidateError> {
        if spec.starts_with("rt-app:") {
            return Ok(Self { name: "loop", amount: Amount::Rates(1.0) });
        }
        // Both sides compute all the time, but not the same.
        if stress_ng::stands_for(spec)?.is_some() {
            return Ok(Self { name: "second of CPU time", amount: Amount::CpuSeconds });
        }
        let (benchmark, values) = benchmark::named(spec)?;
        let block = f64::from(costs::IPERF3_BLOCK_BYTES);
        let (name, amount) = match benchmark.name {
            "hackbench" => ("message", Amount::Given(messages(&values))),
            "netperf-tcp-rr" | "netperf-udp-rr" => ("transaction", Amount::Rates(1.0)),
            "tbench" => ("call", Amount::Rates(1e6 / costs::TBENCH_BYTES as f64)),
            "iperf3" => ("block", Amount::Rates(1e9 / 8.0 / block)),
            "sysbench-oltp" => {
                // The average of the instances' rates is reported too.
                let instances = f64::from(values.number("instances"));
                ("transaction", Amount::Rates(instances / (instances + 1.0)))
            }
            _ => return Err(ValidateError::NotCompared(spec.to_owned(), WORKLOADS.join(", "))),
        };
        Ok(Self { name, amount })
    }

    /// Number of operations in a run that reported `metrics` over `seconds` and took `cpu_ns` of CPU time. `None` if a
    /// metric has no value.
    pub fn count(&self, metrics: &[MetricValue], seconds: f64, cpu_ns: f64) -> Option<f64> {
        match self.amount {
            Amount::Given(count) => Some(count),
            Amount::CpuSeconds => Some(cpu_ns / 1e9),
            Amount::Rates(factor) => {
                // rt-app's files also have latencies and the time that all took.
                let rates = metrics.iter().filter(|metric| {
                    metric.unit.ends_with("/s")
                        || metric.unit.ends_with("/sec")
                        || metric.unit == "per sec"
                });
                let sum = rates.map(|metric| metric.value).sum::<Option<f64>>()?;
                Some(sum * factor * seconds)
            }
        }
    }
}

/// Messages that hackbench sends: each of `fds` senders of a group writes `loops` times to each of `fds` receivers.
fn messages(values: &Values) -> f64 {
    let number = |name| f64::from(values.number(name));
    number("groups") * number("fds") * number("fds") * number("loops")
}

/// Runs the workload `spec` on `machine` under `scheduler`, once per seed.
///
/// # Errors
/// If the workload cannot be read or run, or measures nothing.
pub fn simulated(
    machine: &Arc<Machine>,
    spec: &str,
    scheduler: &SchedulerSpec,
    seeds: &[u64],
    stop: &AtomicBool,
) -> Result<Vec<Counted>, ValidateError> {
    let operation = Operation::of(spec)?;
    let workload = Arc::new(loaded(spec)?);
    let one = |seed: &u64| {
        let from = Time(workload.measured_from_ns);
        let tally = SharedTally::since(from, &workload);
        let control = Control { tracer: Some(tally.tracer()), stop, ..Control::new(*seed) };
        let simulation = Simulation {
            machine: machine.clone(),
            workload: workload.clone(),
            scheduler: scheduler.clone(),
            start: Start::default(),
            quiet: false,
        };
        let failed = |source| ValidateError::RunOf { workload: spec.to_owned(), source };
        let outcome = simulation.measure(control).map_err(failed)?;
        let seconds = (outcome.elapsed_ns - from.ns().min(outcome.elapsed_ns)) as f64 / 1e9;
        let cpu_ns = outcome.run_time.node_ns.iter().sum::<u64>() as f64;
        let operations = operation.count(&outcome.metrics, seconds, cpu_ns).unwrap_or(0.0);
        Ok(Counted { operations, cpu_ns, ..tally.counted() })
    };
    seeds.iter().map(one).collect()
}

/// The workload that a program is compared with. hackbench ends by itself.
fn loaded(spec: &str) -> Result<Workload, ValidateError> {
    let duration_ns = duration_ns(spec)?.map(|_| SIMULATED_NS);
    Ok(roost_workload::resolve(spec, duration_ns)?)
}

/// How long the program of the workload `spec` runs. `None`: until it ends by itself.
///
/// # Errors
/// If there is no such workload.
pub fn duration_ns(spec: &str) -> Result<Option<u64>, ValidateError> {
    Ok(match Operation::of(spec)?.amount {
        Amount::Given(_) => None,
        Amount::Rates(_) | Amount::CpuSeconds => Some(DURATION_NS),
    })
}

/// A workload on both sides.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The workload.
    pub workload: String,
    /// Its operation.
    pub operation: Operation,
    /// The rows, or why the program could not run.
    pub rows: Result<Vec<Row>, String>,
    /// CPU time of an operation in the guest, by the one in the simulation.
    pub slower: Option<f64>,
}

/// A counter of a workload, for each operation.
#[derive(Clone, Debug)]
pub struct Row {
    /// The counter.
    pub counter: &'static str,
    /// Of the real program.
    pub real: Summary,
    /// Of the simulation.
    pub simulated: Summary,
    /// The verdict.
    pub opinion: Opinion,
}

impl Row {
    /// The simulated mean by the real one.
    pub fn ratio(&self) -> f64 {
        self.simulated.mean / self.real.mean
    }
}

/// Whether both sides count alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Opinion {
    /// The means differ by at most a quarter of the real one.
    Within,
    /// They differ by more.
    Differs,
    /// Too few events happened in a run to compare.
    Rare,
}

impl Comparison {
    /// Compares the runs of `spec`. `real` may say why there are none.
    ///
    /// # Errors
    /// If there is no such workload.
    pub fn new(
        spec: &str,
        simulated: &[Counted],
        real: Result<&[Counted], String>,
    ) -> Result<Self, ValidateError> {
        let operation = Operation::of(spec)?;
        let slower = real.as_ref().ok().and_then(|real| {
            let each = |runs: &[Counted]| mean(runs, |run| run.cpu_ns / run.operations);
            Some(each(real)? / each(simulated)?)
        });
        let rows = real.map(|real| {
            COUNTERS.iter().enumerate().filter_map(|(index, counter)| {
                row(counter, simulated, real, |run| run.counts()[index])
            })
        });
        let rows = rows.map(Iterator::collect);
        Ok(Self { workload: spec.to_owned(), operation, rows, slower })
    }

    /// Number of counters that are within the tolerance, and of those that are compared.
    pub fn agreeing(&self) -> (usize, usize) {
        let rows = self.rows.as_deref().unwrap_or_default();
        let count = |opinion| rows.iter().filter(|row| row.opinion == opinion).count();
        let within = count(Opinion::Within);
        (within, within + count(Opinion::Differs))
    }
}

fn mean(runs: &[Counted], of: impl Fn(&Counted) -> f64) -> Option<f64> {
    Summary::of(&runs.iter().map(of).collect::<Vec<_>>()).map(|summary| summary.mean)
}

fn row(
    counter: &'static str,
    simulated: &[Counted],
    real: &[Counted],
    count: impl Fn(&Counted) -> f64 + Copy,
) -> Option<Row> {
    let each = |runs: &[Counted]| {
        Summary::of(&runs.iter().map(|run| count(run) / run.operations).collect::<Vec<_>>())
    };
    let (sim_events, real_events) = (mean(simulated, count)?, mean(real, count)?);
    let (simulated, real) = (each(simulated)?, each(real)?);
    let opinion = if sim_events < RARE_EVENTS && real_events < RARE_EVENTS {
        Opinion::Rare
    } else if (simulated.mean - real.mean).abs() <= RELATIVE * real.mean {
        Opinion::Within
    } else {
        Opinion::Differs
    };
    Some(Row { counter, real, simulated, opinion })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(wakeups: f64, migrations: f64) -> Vec<Counted> {
        let run = Counted { operations: 100.0, cpu_ns: 1e6, wakeups, ..Counted::default() };
        vec![Counted { switches: 2.0 * wakeups, sleeps: wakeups, migrations, ..run }; 3]
    }

    #[test]
    fn counts_agree_within_a_quarter_of_the_real_one_and_few_events_say_nothing() {
        let compared = |[sim, real]: [Vec<Counted>; 2]| {
            Comparison::new("hackbench:groups=1", &sim, Ok(&real)).unwrap()
        };
        let comparison = compared([runs(75.0, 4.0), runs(100.0, 4.9)]);
        let rows = comparison.rows.as_ref().unwrap();
        let opinions: Vec<Opinion> = rows.iter().map(|row| row.opinion).collect();
        use Opinion::{Rare, Within};
        assert_eq!(opinions, [Within, Within, Within, Rare, Rare]);
        assert_eq!((rows[0].ratio(), comparison.agreeing()), (0.75, (3, 3)));
        assert_eq!(compared([runs(74.0, 5.0), runs(100.0, 5.0)]).agreeing(), (1, 4));
        assert_eq!(compared([runs(126.0, 5.0), runs(100.0, 7.0)]).agreeing(), (0, 4));
    }

    #[test]
    fn a_program_that_is_missing_leaves_a_reason_and_nothing_to_count() {
        let comparison = Comparison::new("tbench", &[], Err("is missing".into())).unwrap();
        assert_eq!((comparison.agreeing(), comparison.slower), ((0, 0), None));
    }

    #[test]
    fn every_workload_has_an_operation_that_its_simulated_run_does() {
        let machine = Arc::new(roost_machine::resolve("node:1 core:2 pu:1").unwrap());
        let scheduler = SchedulerSpec::parse("fair@7.2").unwrap();
        let never = AtomicBool::new(false);
        let short = "hackbench:groups=1,loops=5";
        let runs = simulated(&machine, short, &scheduler, &[1], &never).unwrap();
        assert_eq!(runs[0].operations, 2_000.0);
        assert!(runs[0].sleeps > 40.0 && runs[0].sleeps <= runs[0].switches, "{runs:?}");
        for spec in WORKLOADS {
            assert!(loaded(spec).unwrap().measured_from_ns < SIMULATED_NS, "{spec}");
        }
        let error = Operation::of("coremark").unwrap_err().to_string();
        assert!(error.contains("iperf3"), "{error}");
    }

    #[test]
    fn rates_become_operations() {
        let rate = |name: &str, unit: &str, value| MetricValue {
            name: name.to_owned(),
            unit: unit.to_owned(),
            better: roost_workload::Better::Higher,
            value,
            drift: None,
        };
        let loops = [
            rate("a loops/s", "loops/s", Some(3.0)),
            rate("b loops/s", "loops/s", Some(4.0)),
            rate("a p99", "us", Some(100.0)),
        ];
        let operation = Operation::of("rt-app:schbench").unwrap();
        assert_eq!(operation.count(&loops, 2.0, 1.0), Some(14.0));
        let blocks = Operation::of("iperf3").unwrap();
        let gbit = [rate("Bitrate", "Gbits/sec", Some(1.048_576))];
        assert_eq!(blocks.count(&gbit, 1.0, 1.0), Some(1000.0));
        assert_eq!(blocks.count(&[rate("Bitrate", "Gbits/sec", None)], 1.0, 1.0), None);
        let transactions = Operation::of("sysbench-oltp:instances=2").unwrap();
        let eps = [("average", 15.0), ("0", 10.0), ("1", 20.0)];
        let eps = eps.map(|(name, value)| rate(name, "events/s", Some(value)));
        assert_eq!(transactions.count(&eps, 3.0, 1.0), Some(90.0));
        let computing = Operation::of("stress-ng:coremark:threads=3").unwrap();
        assert_eq!(computing.count(&[], 1.0, 5e9), Some(5.0));
    }
}
