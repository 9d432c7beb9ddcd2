//! A scheduler's own loader, started for the simulation.

#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use roost_simulate::{Control, SchedulerSpec, Simulation};

/// The object that the simulation runs as `roost`.
const OBJECT: &[u8] = include_bytes!("../../../bpf/roost.bpf.o");

/// The loader of roost, if it is built with this object.
fn live() -> Option<PathBuf> {
    let has_object = |program: &PathBuf| {
        let bytes = std::fs::read(program).unwrap_or_default();
        memchr::memmem::find(&bytes, OBJECT).is_some()
    };
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/live");
    let built = ["release", "checked"].map(|profile| PathBuf::from(root).join(profile));
    built.map(|folder| folder.join("scx_roost")).into_iter().find(has_object)
}

#[test]
fn roost_decides_as_its_loader_sets_it_up() {
    let Some(program) = live() else {
        println!("skipped: no live scheduler with the object of today (make live)");
        return;
    };
    for (machine, options, settings) in [
        ("2n2l4c", "", ""),
        ("node:2 l3:4 core:8 pu:2", " --slice-us 1000 --no-cling", "+slice-us=1000+no-cling"),
    ] {
        let outcome = |scheduler: &str| {
            let ms = 1_000_000;
            let simulation =
                Simulation::named(machine, "hackbench:groups=4", Some(20 * ms), scheduler);
            let mut outcome = simulation.unwrap().run(Control::new(1)).unwrap();
            // Only of the scheduler `roost` is it known which counters the program keeps.
            outcome.counters.retain(|(name, _)| !name.starts_with("roost_"));
            format!("{outcome:?}")
        };
        let started = outcome(&format!("{}{options}", program.display()));
        assert_eq!(started, outcome(&format!("roost{settings}")), "{machine}");
    }
}

#[test]
fn a_program_is_named_by_its_path_and_its_failure_is_one_line() {
    let (scheduler, notes) = SchedulerSpec::parse_noted("/bin/false -s 1000+slice_ns=5").unwrap();
    assert_eq!(scheduler.switches(), ["slice_ns=5"]);
    assert!(scheduler.is_program() && notes.is_empty(), "{notes:?}");
    let SchedulerSpec::Scx(scx) = &scheduler else { panic!("{scheduler:?}") };
    let machine = roost_machine::resolve("2n2l4c").unwrap();
    let error = scx.prepare(&machine, &AtomicBool::new(false)).unwrap_err().to_string();
    assert_eq!(
        error,
        "/bin/false -s 1000: exited with status 1 before it attached a scheduler, so there is none to simulate"
    );
}

#[test]
fn a_program_that_is_not_there_is_an_error() {
    let error = SchedulerSpec::parse("./no_such_scheduler -x").unwrap_err().to_string();
    assert!(error.starts_with("./no_such_scheduler -x: no such program"), "{error}");
}
