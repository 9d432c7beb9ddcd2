//! Benchmarks that stress-ng can do: `stress-ng:NAME:key=value` takes the parameters of the benchmark NAME.
//!
//! In the simulation this is the benchmark itself, but without results: stress-ng counts other operations ("bogo ops")
//! than the benchmark's own program, so that only what the scheduler did can be compared.

use super::{Benchmark, Values, named, unknown};
use crate::WorkloadError;

/// Prefix of the names.
const PREFIX: &str = "stress-ng:";

/// Name of the benchmark and description.
const FORMS: [(&str, &str); 1] = [(
    "coremark",
    "processes that compute and never wait (--cpu THREADS --cpu-method loop); it has no results",
)];

/// Name and description of every form.
pub fn forms() -> impl Iterator<Item = (String, &'static str)> {
    FORMS.iter().map(|(name, about)| (format!("{PREFIX}{name}"), *about))
}

/// The benchmark that `spec` (`stress-ng:NAME:key=value`) stands for. `None` if `spec` has another prefix.
pub fn stands_for(spec: &str) -> Result<Option<(&'static Benchmark, Values)>, WorkloadError> {
    let Some(inner) = spec.strip_prefix(PREFIX) else { return Ok(None) };
    let name = inner.split_once(':').map_or(inner, |(name, _)| name);
    match FORMS.iter().any(|(form, _)| *form == name) {
        true => named(inner).map(Some),
        false => Err(unknown(spec, spec, &forms().map(|(name, _)| name).collect::<Vec<_>>())),
    }
}

#[cfg(test)]
mod tests {
    use crate::benchmark::resolve;

    #[test]
    fn a_form_is_its_benchmark_without_results() {
        let mut benchmark = resolve("coremark:threads=3", Some(7)).unwrap();
        let form = resolve("stress-ng:coremark:threads=3", Some(7)).unwrap();
        assert!(form.metrics.is_empty() && !benchmark.metrics.is_empty());
        benchmark.metrics.clear();
        benchmark.name.clone_from(&form.name);
        assert_eq!(form, benchmark);
    }

    #[test]
    fn what_stress_ng_cannot_stand_for_is_answered_with_what_it_can() {
        let error = resolve("stress-ng:tbench", None).unwrap_err().to_string();
        assert!(error.contains("stress-ng:coremark"), "{error}");
        let error = resolve("stress-ng:coremark:groups=1", None).unwrap_err().to_string();
        assert!(error.contains("groups"), "{error}");
    }
}
