//! The JSON of any comparison is valid against the published schema, and says what was compared.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use proptest::prelude::*;
use roost_engine::{MetricValue, Outcome, RunTime};
use roost_report::{
    Build, Comparison, Contender, Experiment, Input, Mechanism, Place, SCHEMA, json,
};
use roost_workload::Better;
use serde_json::{Value, json as value};

/// The output of `printf 1 | sha256sum`.
const ONE: &str = "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b";

fn validator() -> jsonschema::Validator {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    assert!(jsonschema::meta::is_valid(&schema));
    jsonschema::validator_for(&schema).unwrap()
}

fn parsed(comparison: &Comparison) -> Value {
    let text = json(comparison);
    assert!(text.ends_with("}\n"));
    let document: Value = serde_json::from_str(&text).unwrap();
    let errors: Vec<_> = validator().iter_errors(&document).map(|e| e.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
    document
}

fn experiment(machine: &str, seed: u64, schedulers: &[&str]) -> Experiment {
    let contender = |name: &&str| Contender {
        name: (*name).to_owned(),
        spec: format!("fair@{name}"),
        kernel: "5.16".to_owned(),
        program: false,
        switches: name.split('+').skip(1).map(str::to_owned).collect(),
        program_sha256: None,
        mechanisms: vec![Mechanism { name: "sis-util".into(), acted: vec!["b".into()] }],
        notes: name.split('+').skip(1).map(str::to_uppercase).collect(),
    };
    Experiment {
        roost: Build { version: "0.1.0".to_owned(), commit: None, modified: false },
        place: Place::Guest,
        machine: Input::new(machine, &1),
        workload: Input::new("hackbench", &1),
        duration_ns: Some(5),
        measured_from_ns: None,
        start: None,
        quiet: None,
        seed,
        schedulers: schedulers.iter().map(contender).collect(),
    }
}

fn outcome(values: [Option<f64>; 2], counters: &[(&str, f64)]) -> Outcome {
    let metric = |name: &str, unit: &str, better, value| MetricValue {
        name: name.to_owned(),
        unit: unit.to_owned(),
        better,
        value,
        drift: value.map(|_| 0.25),
    };
    Outcome {
        elapsed_ns: 1,
        metrics: vec![
            metric("time", "s", Better::Lower, values[0]),
            metric("rate", "1/s", Better::Higher, values[1]),
        ],
        counters: counters.iter().map(|&(name, value)| (name.to_owned(), value)).collect(),
        histograms: Vec::new(),
        too_short: None,
        waiting: None,
        run_time: RunTime { node_ns: vec![3, 1], llc_ns: vec![2, 1, 1] },
    }
}

#[test]
fn a_comparison_as_documented() {
    let base = |time| outcome([Some(time), None], &[("nr_migrations", 4.0), ("b", 1.0)]);
    let other = |time| outcome([Some(time), Some(1.0)], &[("nr_migrations", 2.0)]);
    let comparison = Comparison::new(
        experiment("zen3", u64::MAX, &["fair@5.16", "fair@5.16+cling"]),
        vec![vec![base(4.0), base(4.0)], vec![other(3.0), other(3.0)]],
    );
    let run = |scheduler: u64, seed: u64, time: f64, rate: Option<f64>, counters: Value| {
        value!({
            "scheduler": scheduler, "seed": seed, "elapsed_ns": 1, "counters": counters,
            "metrics": [
                { "metric": "time", "unit": "s", "better": "lower", "value": time, "drift": 0.25 },
                { "metric": "rate", "unit": "1/s", "better": "higher", "value": rate, "drift": rate.map(|_| 0.25) },
            ],
            "histograms": {},
            "node_run_ns": [3, 1],
            "llc_run_ns": [2, 1, 1],
        })
    };
    let of_base = |seed| run(0, seed, 4.0, None, value!({ "nr_migrations": 4.0, "b": 1.0 }));
    let of_other = |seed| run(1, seed, 3.0, Some(1.0), value!({ "nr_migrations": 2.0 }));
    assert_eq!(
        parsed(&comparison),
        value!({
            "roost": { "version": "0.1.0", "commit": null, "modified": false },
            "place": "guest",
            "quiet": null,
            "machine": "zen3",
            "machine_sha256": ONE,
            "workload": "hackbench",
            "workload_sha256": ONE,
            "schedulers": ["fair@5.16", "fair@5.16+cling"],
            "specs": ["fair@fair@5.16", "fair@fair@5.16+cling"],
            "kernels": ["5.16", "5.16"],
            "switches": [[], ["cling"]],
            "programs_sha256": [null, null],
            "notes": [[], ["CLING"]],
            "duration_ns": 5,
            "elapsed_ns": [[1, 1], [1, 1]],
            "measured_from_ns": null,
            "start": null,
            "repeats": 2,
            "partial": false,
            "seed": u64::MAX,
            "seeds": [u64::MAX, 0],
            "results": [
                {
                    "metric": "time", "unit": "s", "better": "lower",
                    "samples": [[4.0, 4.0], [3.0, 3.0]],
                    "mean": [4.0, 3.0], "stddev": [0.0, 0.0],
                    "change_pct": [null, 25.0], "significant": [null, true],
                },
                {
                    "metric": "rate", "unit": "1/s", "better": "higher",
                    "samples": [[null, null], [1.0, 1.0]],
                    "mean": [null, 1.0], "stddev": [null, 0.0],
                    "change_pct": [null, null], "significant": [null, null],
                },
            ],
            "counters": { "nr_migrations": [4.0, 2.0], "b": [1.0, null] },
            "acted": { "sis-util": [1.0, null] },
            "runs": [of_base(u64::MAX), of_base(0), of_other(u64::MAX), of_other(0)],
        })
    );
}

#[test]
fn the_schema_refuses_what_is_not_a_comparison() {
    assert!(!validator().is_valid(&value!({})));
    let runs = vec![vec![outcome([Some(1.0); 2], &[])]];
    let comparison = Comparison::new(experiment("m", 0, &["s"]), runs);
    let mut document = parsed(&comparison);
    document["results"][0]["better"] = value!("sideways");
    assert!(!validator().is_valid(&document));
}

fn any_value() -> impl Strategy<Value = Option<f64>> {
    prop_oneof![4 => any::<f64>().prop_map(Some), 1 => Just(None)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_comparison_is_valid(
        runs in prop::collection::vec(
            prop::collection::vec((any_value(), any_value(), any::<f64>()), 0..4),
            0..4,
        ),
        machine in ".*",
        seed in any::<u64>(),
    ) {
        let outcomes: Vec<Vec<Outcome>> = runs
            .iter()
            .map(|repeats| repeats.iter().map(|&(a, b, c)| outcome([a, b], &[("c", c)])).collect())
            .collect();
        let schedulers = ["a", "b", "c", "d"];
        let experiment = experiment(&machine, seed, &schedulers[..runs.len()]);
        let comparison = Comparison::new(experiment, outcomes);
        let document = parsed(&comparison);
        prop_assert_eq!(&document["machine"], &value!(machine));
        prop_assert_eq!(&document["seed"], &value!(seed));
        for (index, metric) in comparison.metrics.iter().enumerate() {
            let result = &document["results"][index];
            prop_assert_eq!(result["samples"].as_array().unwrap().len(), runs.len());
            prop_assert_eq!(&result["change_pct"][0], &Value::Null);
            prop_assert_eq!(result["metric"].as_str(), Some(metric.name.as_str()));
        }
    }
}
