//! Names of schedulers, and what simulations created from them run.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::Write;

use roost_simulate::{Control, SchedulerSpec, Simulation};

fn refused(name: &str) -> String {
    SchedulerSpec::parse(name).unwrap_err().to_string()
}

/// Whether a run on two nodes has the counter.
fn counts(scheduler: &str, counter: &str) -> bool {
    let ms = 1_000_000;
    let simulation = Simulation::named("2n2l4c", "settle", Some(5 * ms), scheduler).unwrap();
    let outcome = simulation.run(Control::new(1)).unwrap();
    outcome.counters.iter().any(|(name, _)| name == counter)
}

#[test]
fn a_settings_file_switches_a_mechanism_on_and_what_is_not_simulated_is_noted() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "cling = true\nmemory = true").unwrap();
    let name = format!("fair@5.2+config={}", file.path().display());
    let (_, notes) = SchedulerSpec::parse_noted(&name).unwrap();
    assert_eq!(notes, [format!("{name}: only roost has memory; left out here")]);
    let of_cling = roost_fair::mechanisms().iter().find(|known| known.name == "cling").unwrap();
    let counter = of_cling.acted[0];
    assert!(!counts("fair@5.2", counter));
    assert!(counts(&name, counter));
}

#[test]
fn a_name_that_only_a_real_kernel_has_says_where_it_runs() {
    for name in ["fair", "scx_rusty"] {
        let error = refused(name);
        assert!(error.starts_with(name) && error.contains("--on host"), "{error}");
    }
    assert!(!refused("fair@2.4").contains("--on"), "a version that does not exist runs nowhere");
    assert!(refused("fair@7.2+config=/nowhere.toml").contains("/nowhere.toml"));
}

#[test]
fn a_version_of_roost_is_answered_with_what_the_simulation_has() {
    let error = refused("roost@7.2+no-cling+slice-us=1000");
    let wanted = "roost@7.2+no-cling+slice-us=1000: in the simulation roost is one program without versions, on Linux \
                  7.2: write roost+no-cling+slice-us=1000, or fair@7.2+cling for the fair class";
    assert!(error.starts_with(wanted), "{error}");
    assert!(refused("roost@").contains("write roost, or fair@7.2+cling"), "{}", refused("roost@"));
    assert!(refused("roosty@7.2").contains("write fair@VERSION"), "it is another name");
}

#[test]
fn a_clone_with_the_same_seed_has_the_same_outcome_and_another_seed_another() {
    let simulation =
        Simulation::named("2n2l4c", "hackbench:groups=1,loops=20", None, "fair@7.2").unwrap();
    let run = |seed| format!("{:?}", simulation.clone().run(Control::new(seed)).unwrap());
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

const SMALL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scx/tests/data/small.bpf.o");

#[test]
fn an_object_without_a_name_or_a_variable_without_a_value_says_what_to_write() {
    assert!(refused("scx:").contains("write scx:FILE.bpf.o"), "{}", refused("scx:"));
    let error = refused(&format!("scx:{SMALL}+fifo"));
    assert!(error.contains("+fifo=VALUE"), "{error}");
    assert!(!refused("scx:/nowhere.bpf.o+fifo").contains("VALUE"), "there is no such file");
}

#[test]
fn a_sched_ext_program_is_a_scheduler_with_its_variables_as_settings() {
    let name = format!("scx:{SMALL}+slice_ns=5000000+fifo=1");
    let (scheduler, _) = SchedulerSpec::parse_noted(&name).unwrap();
    assert_eq!(scheduler.switches(), ["slice_ns=5000000", "fifo=1"]);
    assert_eq!(scheduler.kernel(), "7.2");
    assert!(counts(&name, "select_cpu_instructions"));
}

#[test]
fn the_scheduler_of_this_project_takes_its_settings() {
    let (scheduler, notes) = SchedulerSpec::parse_noted("roost+no-cling+slice-us=1000").unwrap();
    assert_eq!(scheduler.switches(), ["no-cling", "slice-us=1000"]);
    assert!(scheduler.is_program() && notes.is_empty(), "{notes:?}");
    let unknown = refused("roost+slize-us=1");
    assert!(unknown.contains("unknown settings: slize-us=1; known: "));
    assert!(unknown.ends_with("; did you mean slice-us?"), "{unknown}");
    assert!(refused("roost+slice-us=1").contains("slice-us takes a whole number from 100"));
}

#[test]
fn a_setting_that_is_given_twice_is_refused_by_every_scheduler() {
    for (name, twice) in [
        ("fair@7.2+cling+no-cling".to_owned(), "as +cling and as +no-cling"),
        ("roost+no-cling+slice-us=1000+cling".to_owned(), "as +no-cling and as +cling"),
        ("roost+slice-us=1000+slice-us=2000".to_owned(), "as +slice-us=1000 and as +slice-us=2000"),
        ("roost+no-llc-imbalance+llc-imbalance=2".to_owned(), "as +no-llc-imbalance and as"),
        (format!("scx:{SMALL}+fifo=1+fifo=0"), "as +fifo=1 and as +fifo=0"),
        ("/bin/true -s 1+fifo=1+fifo=0".to_owned(), "as +fifo=1 and as +fifo=0"),
    ] {
        let error = refused(&name);
        assert!(error.contains(&format!("is given twice, {twice}")), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn a_sched_ext_program_that_cannot_be_had_is_told_with_its_file() {
    assert!(refused("scx:/nowhere.bpf.o").starts_with("/nowhere.bpf.o: "));
    let no_object = format!("scx:{}", file!());
    assert_eq!(refused(&no_object).lines().count(), 1);
    let unknown = refused(&format!("scx:{SMALL}+slize_ns=1"));
    let wanted = "no such global variable; `roost scx FILE` lists them; did you mean slice_ns?";
    assert!(unknown.ends_with(wanted), "{unknown}");
    let far = refused(&format!("scx:{SMALL}+nosuch=1"));
    assert!(far.ends_with("`roost scx FILE` lists them"), "{far}");
}
