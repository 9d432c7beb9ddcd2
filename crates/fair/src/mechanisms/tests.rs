//! Tests of the descriptions of mechanisms, and of the places that may name them, as
//! `CONTRIBUTING.md` lists them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use roost_engine::World;

use super::{Mechanisms, mechanisms};
use crate::{Features, versions};

/// A mechanism is on by its own name and by each of its switches that turns it on.
#[test]
fn a_run_has_the_counters_of_mechanisms_that_are_on() {
    let machine = Arc::new(roost_machine::resolve("pack:2 node:1 l3:1 core:8 pu:1").unwrap());
    let world = World::for_test(Arc::clone(&machine), 0);
    for mechanism in mechanisms() {
        for version in versions() {
            let scheduler = format!("fair@{version}+{}", mechanism.name);
            let Ok(features) = Features::parse(&scheduler) else { continue };
            assert!(mechanism.is_on(&features), "{scheduler}");
            let mut all = Mechanisms::new(&machine, &features);
            all.start(&world, true);
            let mut seen = BTreeSet::new();
            all.counters(&mut |name, _| {
                seen.insert(name.to_owned());
            });
            for name in mechanism.acted {
                assert!(seen.contains(*name), "{scheduler}: no {name} in {seen:?}");
            }
        }
    }
}

#[test]
fn what_a_mechanism_needs_is_missing_where_it_cannot_act() {
    let missing = |machine: &str, workload: &str| {
        let machine = roost_machine::resolve(machine).unwrap();
        let workload = roost_workload::resolve(workload, None).unwrap();
        let missing = mechanisms().iter().filter(|m| m.missing(&machine, &workload).is_some());
        missing.map(|mechanism| mechanism.name).filter(|&name| name != "linger").collect::<Vec<_>>()
    };
    let all = ["numa-imbalance", "sis-util", "llc-imbalance", "cling", "consolidate"];
    assert_eq!(missing("core:1 pu:1", "hackbench"), all);
    assert_eq!(
        missing("l3:2 core:2 pu:1", "hackbench"),
        ["numa-imbalance", "cling", "consolidate"]
    );
    let two_nodes = "node:2 l3:1 core:2 pu:1";
    assert_eq!(missing(two_nodes, "hackbench"), ["llc-imbalance", "cling"], "no groups");
    assert_eq!(missing(two_nodes, "sysbench-oltp:instances=2,threads=2"), ["llc-imbalance"]);
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All sources below a folder of the repository, by path from the root, with their text.
fn sources(folder: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
            let is_source = ["rs", "h", "c"].iter().any(|end| name.ends_with(&format!(".{end}")));
            if path.is_dir() && !name.contains("target") {
                folders.push(path);
            } else if is_source {
                found.push((name, std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found
}

/// Whether `text` contains `word` as a whole word, in either spelling.
fn names(text: &str, word: &str) -> bool {
    let mut words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-');
    words.any(|other| other.replace('-', "_").eq_ignore_ascii_case(word))
}

/// The places that `CONTRIBUTING.md` lists, in order: the first code span of each item of the list
/// under "A new mechanism".
fn places() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let (_, section) = text.split_once("## A new mechanism").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let is_item = |line: &&str| line.split_once(". ").is_some_and(|(n, _)| n.parse::<u8>().is_ok());
    let items = section.lines().filter(is_item);
    items.map(|line| line.split('`').nth(1).unwrap().to_owned()).collect()
}

fn places_of(mechanism: &str) -> BTreeSet<String> {
    places().iter().map(|place| place.replace("NAME", mechanism)).collect()
}

/// Comments and tests may name a mechanism anywhere.
fn code(text: &str) -> String {
    let tests = ["#[cfg(test)]\nmod tests {", "#[cfg(test)]\npub(crate) mod tests {"];
    let end = tests.iter().filter_map(|tests| text.find(tests)).min();
    let text = &text[..end.unwrap_or(text.len())];
    let is_code = |line: &&str| !["//", "/*", "*"].iter().any(|c| line.trim_start().starts_with(c));
    text.lines().filter(is_code).map(|line| format!("{line}\n")).collect()
}

#[test]
fn a_mechanism_takes_at_most_ten_places() {
    let places = places();
    assert!((5..=10).contains(&places.len()), "{places:?}");
    for place in places_of("sis_util") {
        assert!(
            root().join(&place).exists(),
            "{place}: CONTRIBUTING.md lists it, but it does not exist"
        );
    }
}

/// The list matches the example: no other file in the repository names it.
#[test]
fn the_example_is_in_listed_places_only() {
    let all = ["crates", "policy", "bpf", "benches"].into_iter().flat_map(sources);
    let with_it = all.filter(|(name, text)| !name.ends_with("tests.rs") && names(text, "linger"));
    let found: BTreeSet<String> = with_it.map(|(name, _)| name).collect();
    let expected = ["crates/fair/src/mechanisms.rs", "crates/fair/src/mechanisms/linger.rs"];
    assert_eq!(found, expected.map(str::to_owned).into());
    assert!(found.is_subset(&places_of("linger")), "{:?}", places_of("linger"));
}

/// Files that name mechanisms only as examples in texts, or in a description of a machine.
const EXAMPLES: [&str; 5] = [
    "crates/machine/src/presets.rs",
    "crates/roost/src/args.rs",
    "crates/rule/src/lib.rs",
    "crates/settings/src/command.rs",
    "crates/settings/src/settings.rs",
];

/// The live scheduler, the simulation of its program, and what both share. `CONTRIBUTING.md` lists their places too.
const LIVE: [&str; 5] =
    ["bpf/", "crates/layout/", "crates/live/", "crates/settings/", "crates/simulate/"];

/// No other file names any mechanism, apart from tests.
#[test]
fn every_mechanism_is_in_listed_places_only() {
    let contributing = std::fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let is_listed = |name: &str| contributing.contains(&format!("`{name}`"));
    let all: Vec<_> = ["crates", "policy", "bpf"].into_iter().flat_map(sources).collect();
    for mechanism in mechanisms() {
        let word = mechanism.name.replace('-', "_");
        for (name, text) in &all {
            let is_test = name.ends_with("tests.rs") || name.contains("/tests/");
            if is_test || EXAMPLES.contains(&name.as_str()) || !names(&code(text), &word) {
                continue;
            }
            let of_live = LIVE.iter().any(|folder| name.starts_with(folder)) && is_listed(name);
            let is_known = of_live || places_of(&word).contains(name);
            assert!(is_known, "{name} names {}", mechanism.name);
        }
    }
}
