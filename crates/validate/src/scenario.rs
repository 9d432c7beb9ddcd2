//! The suite: rt-app files that Debian's rt-app 1.0 and the simulation run without changes.
//!
//! All are made for 16 CPUs and take one second. Tasks use CPU time with `runtime`, which is measured by the clock,
//! because emulated CPUs slow each other down. All end with the run's duration.

use roost_machine::Machine;
use roost_workload::{Workload, rtapp};

use crate::error::ValidateError;

/// The number of CPUs for which loads and CPU lists are made.
const CPUS: usize = 16;

/// One scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// Its name; the file is `validation/NAME.json`.
    pub name: &'static str,
    /// What it tests, in a few words.
    pub about: &'static str,
    /// The rt-app file.
    pub text: &'static str,
}

macro_rules! suite {
    ($($name:literal: $about:literal,)*) => {
        &[$(Scenario {
            name: $name,
            about: $about,
            text: include_str!(concat!("../scenarios/", $name, ".json")),
        }),*]
    };
}

/// Loads are in CPUs, and do not include the cost of scheduling.
const SUITE: &[Scenario] = suite! {
    "below": "30 periodic tasks, load 6.1",
    "at": "20 periodic tasks, load 16.0",
    "above": "28 periodic tasks, load 22.4",
    "pingpong": "8 pairs pass a token back and forth (sync), next to 12 periodic tasks",
    "chain2": "8 wake chains of 2 tasks, each head bound to a CPU",
    "chain4": "4 wake chains of 4 tasks, each head bound to a CPU",
    "chain16": "4 wake chains of 16 tasks, each head bound to a CPU",
    "broad": "one task wakes 12, another wakes 6 (broadcast)",
    "fork": "a burst of 44 forks whose tasks run 60, 160 and 700 ms",
    "barrier": "12 tasks meet at a barrier after 2, 3 or 4 ms, next to 8 periodic tasks",
    "nice": "nice -4 to 10: 24 periodic tasks, 16 that hardly sleep, load 19.6",
    "pinned": "9 tasks bound to one CPU or two, next to 12 free ones",
    "release": "12 tasks confined to 4 CPUs for 100 ms, then free for 150 ms, again and again",
    "noise": "3 pairs bound to different halves of the machine, 3 free pairs, 8 short tasks",
    "hogs": "22 CPU hogs arrive one by one, every 40 ms",
    "burst50": "16 tasks with bursts of 0.7 to 23 ms, load 7.8",
    "burst90": "24 tasks with bursts of 1.5 to 23 ms, load 14.5",
};

/// The whole suite.
pub fn scenarios() -> &'static [Scenario] {
    SUITE
}

/// The scenario with this name.
pub fn scenario(name: &str) -> Result<Scenario, ValidateError> {
    SUITE.iter().find(|scenario| scenario.name == name).copied().ok_or_else(|| {
        let names: Vec<&str> = SUITE.iter().map(|scenario| scenario.name).collect();
        ValidateError::UnknownScenario(name.escape_debug().to_string(), names.join(", "))
    })
}

impl Scenario {
    /// The path of its file in the repository.
    pub fn path(&self) -> String {
        format!("validation/{}.json", self.name)
    }

    /// The workload of the scenario.
    pub fn workload(&self) -> Result<Workload, ValidateError> {
        Ok(rtapp::parse(self.text, &self.path())?)
    }

    /// Checks that the scenario can be used on `machine`.
    pub fn check(&self, machine: &Machine) -> Result<(), ValidateError> {
        let numbered = (0..).zip(&machine.cpus).all(|(number, cpu)| cpu.os_index == number);
        let found = match machine.nr_cpus() {
            CPUS if numbered => return Ok(()),
            CPUS => "CPUs with other numbers".to_string(),
            cpus => format!("{cpus} CPUs"),
        };
        Err(ValidateError::Machine { machine: machine.name.clone(), found })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_scenario_a_file_and_nothing_in_it_is_left_out() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../validation");
        let mut files: Vec<String> = std::fs::read_dir(directory)
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        let mut names: Vec<String> =
            scenarios().iter().map(|s| format!("{}.json", s.name)).collect();
        names.sort();
        assert_eq!(names, files);
        for scenario in scenarios() {
            let loaded = rtapp::load(scenario.text, scenario.name).unwrap();
            assert_eq!(loaded.notes, [] as [String; 0], "{}", scenario.name);
        }
    }

    #[test]
    fn names_fit_what_linux_and_rt_app_keep_of_them() {
        for scenario in scenarios() {
            for template in scenario.workload().unwrap().templates {
                assert!(template.name.len() <= 15, "{}: {}", scenario.name, template.name);
            }
            // rt-app keeps 21 bytes for a timer's name and its thread's address, which has 12 digits.
            for reference in scenario.text.split("\"ref\": \"").skip(1) {
                let name = reference.split('"').next().unwrap();
                assert!(!name.starts_with("unique") || name.len() <= 9, "{name}");
            }
        }
    }

    #[test]
    fn nobody_but_the_clock_ends_a_run_and_work_is_never_counted() {
        for scenario in scenarios() {
            let workload = scenario.workload().unwrap();
            assert_eq!(workload.duration_ns, Some(1_000_000_000), "{}", scenario.name);
            let ops = workload.templates.iter().flat_map(|template| &template.program.ops);
            assert!(!ops.clone().any(|op| matches!(op, roost_workload::Op::Run { .. })));
        }
    }

    #[test]
    fn other_machines_are_refused_by_name() {
        let machine = roost_machine::resolve("node:2 core:4 pu:1").unwrap();
        let error = scenario("below").unwrap().check(&machine).unwrap_err().to_string();
        assert!(error.contains("has 8 CPUs") && error.contains("2n2l4c"), "{error}");
        let error = scenario("bellow").unwrap_err().to_string();
        assert!(error.starts_with("no scenario 'bellow'; choose from below, at"), "{error}");
    }
}
