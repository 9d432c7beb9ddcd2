//! The JSON of any comparison is valid against the published schema and says what was compared.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use proptest::prelude::*;
use roost_engine::{MetricValue, Outcome};
use roost_report::{Comparison, SCHEMA, json};
use roost_workload::Better;
use serde_json::{Value, json as value};

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

fn outcome(values: [Option<f64>; 2], counters: &[(&str, f64)]) -> Outcome {
    let metric = |name: &str, unit, better, value| MetricValue {
        name: name.to_owned(),
        unit,
        better,
        value,
    };
    Outcome {
        elapsed_ns: 1,
        metrics: vec![
            metric("time", "s", Better::Lower, values[0]),
            metric("rate", "1/s", Better::Higher, values[1]),
        ],
        counters: counters.iter().map(|&(name, value)| (name.to_owned(), value)).collect(),
        histograms: Vec::new(),
    }
}

#[test]
fn a_comparison_as_documented() {
    let base = |time| outcome([Some(time), None], &[("nr_migrations", 4.0), ("b", 1.0)]);
    let other = |time| outcome([Some(time), Some(1.0)], &[("nr_migrations", 2.0)]);
    let comparison = Comparison::new(
        "zen3",
        "hackbench",
        vec!["fair:5.16".to_owned(), "roost".to_owned()],
        u64::MAX,
        vec![vec![base(4.0), base(4.0)], vec![other(3.0), other(3.0)]],
    );
    assert_eq!(
        parsed(&comparison),
        value!({
            "machine": "zen3",
            "workload": "hackbench",
            "schedulers": ["fair:5.16", "roost"],
            "repeats": 2,
            "seed": u64::MAX,
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
        })
    );
}

#[test]
fn the_schema_refuses_what_is_not_a_comparison() {
    assert!(!validator().is_valid(&value!({})));
    let comparison = Comparison::new(
        "m",
        "w",
        vec!["s".to_owned()],
        0,
        vec![vec![outcome([Some(1.0); 2], &[])]],
    );
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
        let schedulers: Vec<String> = (0..runs.len()).map(|index| format!("s{index}")).collect();
        let comparison = Comparison::new(&machine, "w", schedulers, seed, outcomes);
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
