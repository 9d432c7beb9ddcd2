//! Benchmarks by name: `name:key=value,key=value`.
//!
//! Each benchmark is a file in `benchmark/`, with a table of its parameters and one function that builds the task
//! graph. The costs of messages and iterations are in [`crate::costs`].

mod autonuma;
mod coremark;
mod hackbench;
mod iperf3;
mod lists;
mod netperf;
mod perf_bench_numa;
pub mod rt_app;
mod schbench;
mod settle;
mod specjbb;
mod stream;
pub mod stress_ng;
mod sysbench;
mod tbench;

pub use lists::expand;
use roost_names::did_you_mean;

use crate::rtapp::{self, Loaded};
use crate::{Workload, WorkloadError};

/// A benchmark that [`resolve`] knows.
#[derive(Debug)]
pub struct Benchmark {
    /// Its name.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Its parameters.
    pub parameters: &'static [Parameter],
    /// How long it runs without `--duration`, in ns. `None`: it ends by itself.
    pub duration_ns: Option<u64>,
    /// Whether it warms up for a part of its duration before it is measured ([`WARM_UP_PART`]). This is set for
    /// benchmarks that measure a steady state of tasks that wake each other, whose originals run for so long that the
    /// start does not matter. The results of other benchmarks depend on where their tasks start, or they leave out
    /// their start themselves.
    warms_up: bool,
    build: fn(&Values) -> Workload,
}

/// A parameter of a benchmark.
#[derive(Debug)]
pub struct Parameter {
    /// The name before `=`.
    pub name: &'static str,
    /// The default value, as text.
    pub default: &'static str,
    /// The meaning, in a few words.
    pub meaning: &'static str,
    /// The values that are allowed.
    pub kind: ParameterKind,
}

/// Allowed values of a parameter.
#[derive(Debug)]
pub enum ParameterKind {
    /// A whole number within bounds.
    Number {
        /// Smallest.
        min: u32,
        /// Largest.
        max: u32,
    },
    /// One of these words. The word may stand alone, without `key=`.
    Choice(&'static [&'static str]),
}

/// All benchmarks, by name.
pub fn benchmarks() -> &'static [Benchmark] {
    &[
        coremark::BENCHMARK,
        hackbench::BENCHMARK,
        iperf3::BENCHMARK,
        netperf::TCP_RR,
        netperf::UDP_RR,
        autonuma::NUMA01,
        autonuma::NUMA01_THREAD_ALLOC,
        autonuma::NUMA02,
        autonuma::NUMA02_SMT,
        perf_bench_numa::BENCHMARK,
        schbench::BENCHMARK,
        settle::BENCHMARK,
        specjbb::BENCHMARK,
        stream::BENCHMARK,
        sysbench::BENCHMARK,
        tbench::BENCHMARK,
    ]
}

/// The benchmark that `spec` names and the values of its parameters. [`resolve`] reads them in the same way.
pub fn named(spec: &str) -> Result<(&'static Benchmark, Values), WorkloadError> {
    let (name, settings) = spec.split_once(':').unwrap_or((spec, ""));
    let Some(benchmark) = benchmarks().iter().find(|benchmark| benchmark.name == name) else {
        let known: Vec<&str> = benchmarks().iter().map(|benchmark| benchmark.name).collect();
        return Err(unknown(spec, name, &known));
    };
    Ok((benchmark, Values::parse(spec, benchmark, settings)?))
}

/// The error that `spec` has the `name` of none of the `known` workloads.
fn unknown(spec: &str, name: &str, known: &[impl AsRef<str>]) -> WorkloadError {
    let known: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
    WorkloadError::UnknownBenchmark {
        spec: spec.escape_debug().to_string(),
        meant: end_of(did_you_mean(name, known.iter().copied())),
        known: known.join(", "),
    }
}

/// A benchmark warms up for its duration divided by this number before it is measured. The number is a choice.
const WARM_UP_PART: u64 = 4;

/// Creates the workload that `arg` names: a benchmark with parameters, its form for another program ([`rt_app`],
/// [`stress_ng`]), or the path of an rt-app file (anything that ends in `.json`). `duration_ns` overrides how long it
/// runs.
pub fn resolve(arg: &str, duration_ns: Option<u64>) -> Result<Workload, WorkloadError> {
    resolve_noted(arg, duration_ns).map(|loaded| loaded.workload)
}

/// As [`resolve`], with notes about what the model ignores in the file.
pub fn resolve_noted(arg: &str, duration_ns: Option<u64>) -> Result<Loaded, WorkloadError> {
    if duration_ns == Some(0) {
        return Err(WorkloadError::BadParameter {
            spec: arg.to_string(),
            parameter: "duration".to_string(),
            problem: "a run of 0 s measures nothing".to_string(),
            remedy: "give a duration above zero".to_string(),
        });
    }
    let (mut loaded, warms_up) = if arg.ends_with(".json") {
        (rtapp::load_file(arg)?, false)
    } else if let Some(text) = rt_app::text(arg)? {
        (rtapp::load(&text, arg)?, false)
    } else {
        let form = stress_ng::stands_for(arg)?;
        let has_results = form.is_none();
        let (benchmark, settings) = form.map_or_else(|| named(arg), Ok)?;
        let mut workload = build(arg, benchmark, &settings)?;
        workload.metrics.retain(|_| has_results);
        (Loaded { workload, notes: Vec::new(), logs: Vec::new() }, benchmark.warms_up)
    };
    let workload = &mut loaded.workload;
    workload.duration_ns = duration_ns.or(workload.duration_ns);
    if warms_up {
        workload.measured_from_ns = workload.duration_ns.unwrap_or(0) / WARM_UP_PART;
    }
    match loaded.workload.endless_template() {
        Some(endless) if loaded.workload.duration_ns.is_none() => Err(WorkloadError::Endless {
            name: loaded.workload.name.clone(),
            task: endless.name.clone(),
        }),
        _ => Ok(loaded),
    }
}

fn build(spec: &str, benchmark: &Benchmark, settings: &Values) -> Result<Workload, WorkloadError> {
    let mut workload = (benchmark.build)(settings);
    workload.name = spec.to_string();
    workload.duration_ns = benchmark.duration_ns;
    workload
        .validate()
        .map_err(|invalid| WorkloadError::Invalid { name: spec.to_string(), invalid })?;
    Ok(workload)
}

/// The values of one benchmark's parameters, given or default.
#[derive(Clone, Debug)]
pub struct Values {
    values: Vec<(&'static str, Value)>,
}

#[derive(Clone, Copy, Debug)]
enum Value {
    Number(u32),
    Choice(&'static str),
}

impl Values {
    fn parse(
        spec: &str,
        benchmark: &'static Benchmark,
        settings: &str,
    ) -> Result<Self, WorkloadError> {
        let mut given: Vec<(&'static str, Value)> = Vec::new();
        for setting in settings.split(',').filter(|setting| !setting.is_empty()) {
            let (parameter, text) = find_parameter(spec, benchmark, setting)?;
            if given.iter().any(|(name, _)| *name == parameter.name) {
                let problem = "given twice";
                return Err(bad_value(spec, parameter.name, problem, "give it once"));
            }
            given.push((parameter.name, parameter.parse(spec, text)?));
        }
        for parameter in benchmark.parameters {
            if !given.iter().any(|(name, _)| *name == parameter.name) {
                given.push((parameter.name, parameter.parse(spec, parameter.default)?));
            }
        }
        Ok(Self { values: given })
    }

    /// The value of a number. Every benchmark's unit test builds the benchmark, so a name that is missing in its table
    /// is found.
    ///
    /// # Panics
    ///
    /// If the benchmark has no number with this name.
    pub fn number(&self, name: &'static str) -> u32 {
        self.values
            .iter()
            .find_map(|(key, value)| match value {
                Value::Number(number) if *key == name => Some(*number),
                _ => None,
            })
            .expect("the benchmark's table declares this number")
    }

    /// The value of a choice.
    ///
    /// # Panics
    ///
    /// If the benchmark has no choice with this name.
    pub fn choice(&self, name: &'static str) -> &'static str {
        self.values
            .iter()
            .find_map(|(key, value)| match value {
                Value::Choice(choice) if *key == name => Some(*choice),
                _ => None,
            })
            .expect("the benchmark's table declares this choice")
    }
}

/// A question ("did you mean ...") as the end of a message.
fn end_of(question: Option<String>) -> String {
    question.map_or_else(String::new, |question| format!("; {question}"))
}

/// Splits `key=value`. A word without `=` is the value of the choice that it belongs to.
fn find_parameter<'a>(
    spec: &str,
    benchmark: &'static Benchmark,
    setting: &'a str,
) -> Result<(&'static Parameter, &'a str), WorkloadError> {
    if let Some(bare) = benchmark.parameters.iter().find(|p| p.name == setting) {
        return Err(WorkloadError::NoValue {
            spec: spec.escape_debug().to_string(),
            parameter: bare.name,
            default: bare.default,
        });
    }
    let found = match setting.split_once('=') {
        Some((key, text)) => {
            benchmark.parameters.iter().find(|p| p.name == key).map(|parameter| (parameter, text))
        }
        None => benchmark
            .parameters
            .iter()
            .find(|p| matches!(p.kind, ParameterKind::Choice(words) if words.contains(&setting)))
            .map(|parameter| (parameter, setting)),
    };
    let name = setting.split('=').next().unwrap_or(setting);
    found.ok_or_else(|| WorkloadError::UnknownParameter {
        spec: spec.escape_debug().to_string(),
        benchmark: benchmark.name,
        parameter: name.escape_debug().to_string(),
        meant: end_of(did_you_mean(name, benchmark.parameters.iter().map(|p| p.name))),
        known: benchmark
            .parameters
            .iter()
            .map(|p| format!("{}={}", p.name, p.default))
            .collect::<Vec<_>>()
            .join(", "),
    })
}

impl Parameter {
    fn parse(&self, spec: &str, text: &str) -> Result<Value, WorkloadError> {
        match self.kind {
            ParameterKind::Number { min, max } => match text.parse::<u32>() {
                Ok(number) if (min..=max).contains(&number) => Ok(Value::Number(number)),
                _ => Err(bad_value(
                    spec,
                    self.name,
                    &format!("'{}' is not a whole number in range", text.escape_debug()),
                    &format!("give {min} to {max}"),
                )),
            },
            ParameterKind::Choice(words) => match words.iter().find(|word| **word == text) {
                Some(word) => Ok(Value::Choice(word)),
                None => Err(bad_value(
                    spec,
                    self.name,
                    &format!("'{}' is not known", text.escape_debug()),
                    &format!("choose from {}", words.join(", ")),
                )),
            },
        }
    }
}

fn bad_value(spec: &str, parameter: &str, problem: &str, remedy: &str) -> WorkloadError {
    WorkloadError::BadParameter {
        spec: spec.escape_debug().to_string(),
        parameter: parameter.to_string(),
        problem: problem.to_string(),
        remedy: remedy.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(arg: &str) -> String {
        resolve(arg, None).unwrap_err().to_string()
    }

    #[test]
    fn every_benchmark_builds_with_its_defaults_and_with_its_extremes() {
        for benchmark in benchmarks() {
            let workload = resolve(benchmark.name, None).unwrap();
            assert_eq!(workload.duration_ns, benchmark.duration_ns, "{}", benchmark.name);
            assert_eq!(
                workload.endless_template().is_some(),
                benchmark.duration_ns.is_some(),
                "{}: only endless benchmarks need a duration",
                benchmark.name
            );
            for parameter in benchmark.parameters {
                if let ParameterKind::Number { min, .. } = parameter.kind {
                    let spec = format!("{}:{}={min}", benchmark.name, parameter.name);
                    resolve(&spec, None).unwrap();
                }
            }
        }
    }

    #[test]
    fn a_duration_overrides_the_default_and_ends_even_what_ends_by_itself() {
        assert_eq!(resolve("coremark", Some(5)).unwrap().duration_ns, Some(5));
        assert_eq!(resolve("hackbench", Some(5)).unwrap().duration_ns, Some(5));
    }

    #[test]
    fn an_unknown_benchmark_is_answered_with_those_that_exist() {
        let text = error("hackbnch:groups=3");
        assert!(text.contains("hackbnch:groups=3") && text.contains("hackbench"), "{text}");
        assert!(text.contains("netperf-tcp-rr") && text.contains(".json"), "{text}");
    }

    #[test]
    fn an_unknown_parameter_is_answered_with_those_that_exist() {
        let text = error("hackbench:group=3");
        assert!(text.contains("no parameter 'group'"), "{text}");
        assert!(text.contains("groups=10") && text.contains("mode=socket"), "{text}");
        assert!(error("hackbench:groups").contains("'groups' has no value"));
    }

    #[test]
    fn a_value_out_of_range_is_answered_with_the_range() {
        assert!(error("coremark:threads=0").contains("give 1 to"));
        assert!(error("coremark:threads=many").contains("'many' is not a whole number"));
        assert!(error("hackbench:mode=tcp").contains("choose from socket, pipe"));
        assert!(error("hackbench:groups=1,groups=2").contains("given twice"));
    }

    #[test]
    fn a_run_of_no_time_is_refused() {
        let text = resolve("coremark", Some(0)).unwrap_err().to_string();
        assert!(text.contains("duration") && text.contains("above zero"), "{text}");
    }

    #[test]
    fn a_bare_word_is_the_choice_it_belongs_to() {
        let spelled = resolve("hackbench:mode=pipe,tasks=threads,groups=2", None).unwrap();
        let mut short = resolve("hackbench:pipe,threads,groups=2", None).unwrap();
        short.name.clone_from(&spelled.name);
        assert_eq!(spelled, short);
    }
}
