//! Compares the model with the recording of Linux 7.2 that `make validation` made. No guest is needed.

use std::process::Command;

/// The agreement that was reached on 2026-11-21 was 91.2%. This is one point lower: changes of the model must keep it.
const REACHED: f64 = 0.90;

/// The same for the sched_ext program, in the scenarios `above`, `below` and `hogs`: one point less than on 2026-11-30
/// (docs/notes/2026-11-26-validate-program.md).
const REACHED_BY_PROGRAM: f64 = 0.778;

const PROGRAM_OBSERVED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/roost-7.2.json");

const OBSERVED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/linux-7.2.json");

#[test]
fn the_table_names_roost_and_both_kernels() {
    let arguments = ["validate", "--from", OBSERVED, "--machine", "2n2l4c", "--scenario", "hogs"];
    let output = Command::new(env!("CARGO_BIN_EXE_roost")).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let heading = text.lines().next().unwrap_or_default();
    let version = concat!("roost ", env!("CARGO_PKG_VERSION"));
    assert!(heading.starts_with(version), "{heading}");
    let kernels = "simulated fair@7.2 beside Linux 7.2.13+deb14-cloud-amd64 in guests";
    assert!(heading.ends_with(kernels), "{heading}");
    let lines: Vec<&str> = text.lines().skip(1).take(2).collect();
    let inputs: Vec<&str> = lines[0].split(" on ").collect();
    assert!(
        inputs[0].starts_with("of the scenarios hogs (sha256 ")
            && inputs[1].starts_with("2n2l4c (sha256 ")
    );
    assert!(lines[1].contains("simulated runs, seeds ") && lines[1].contains("; measured from "));
}

#[test]
fn the_model_agrees_with_the_recorded_kernel_as_far_as_it_ever_did() {
    let arguments = ["validate", "--from", OBSERVED, "--format", "csv"];
    let output = Command::new(env!("CARGO_BIN_EXE_roost")).args(arguments).output().unwrap();
    let missed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "a bar of docs/validation.md is missed: {missed}");
    let mut rows = csv::Reader::from_reader(output.stdout.as_slice());
    let header = rows.headers().unwrap().clone();
    let column = |name: &str| header.iter().position(|column| column == name).unwrap();
    let (kind, quantity, verdict) = (column("kind"), column("quantity"), column("verdict"));
    let (mut agree, mut all, mut periodic) = (0.0, 0.0, Vec::new());
    for row in rows.records().map(Result::unwrap) {
        if &row[kind] == "placement" || &row[verdict] == "rare" {
            continue;
        }
        let agrees = &row[verdict] != "differs";
        all += 1.0;
        agree += f64::from(u8::from(agrees));
        if row[quantity].ends_with("periodic attempts") {
            periodic.push((agrees, row.iter().collect::<Vec<_>>().join(",")));
        }
    }
    assert!(all > 1000.0 && agree / all >= REACHED, "{agree} of {all}");
    // When domains are balanced follows from intervals and busy factors, not from chance.
    let differ: Vec<_> = periodic.iter().filter(|(agrees, _)| !agrees).collect();
    assert!(periodic.len() > 100 && differ.len() <= periodic.len() / 20, "{differ:?}");
}

#[test]
fn the_program_runs_here_as_in_the_recorded_guest_as_far_as_it_ever_did() {
    let scenarios = ["--scenario", "above", "--scenario", "below", "--scenario", "hogs"];
    let arguments =
        ["validate", "--scheduler", "roost", "--from", PROGRAM_OBSERVED, "--format", "json"];
    let output =
        Command::new(env!("CARGO_BIN_EXE_roost")).args(arguments).args(scenarios).output().unwrap();
    let suite: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |name: &str| suite[name].as_f64().unwrap();
    assert_eq!(suite["scheduler"], "roost");
    let (agree, all) = (number("agreeing"), number("compared"));
    assert!(all > 100.0 && agree / all >= REACHED_BY_PROGRAM, "{agree} of {all}");
    // Where tasks run is what a scheduler is for.
    let missed = suite["missed"].as_array().unwrap();
    let misplaced =
        missed.iter().filter(|bar| bar.as_str().unwrap().contains("points of run time"));
    assert_eq!(misplaced.count(), 0, "{missed:?}");
}

/// Counters within 25% in the recorded runs of the programs (docs/notes/2026-11-27-workloads.md), of those that are
/// compared. Of the first 57, 21 were within before channels had the kernel's rules: the note says why they are fewer.
const WITHIN: [u64; 2] = [20, 70];

const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/workloads-7.2.json");

#[test]
fn benchmarks_do_what_the_recorded_programs_did_as_far_as_they_ever_did() {
    let arguments = ["validate", "--from", PROGRAMS, "--format", "json", "--workloads"];
    let output = Command::new(env!("CARGO_BIN_EXE_roost")).args(arguments).output().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |name: &str| document[name].as_u64().unwrap();
    let [agreeing, compared] = ["agreeing", "compared"].map(number);
    assert!(agreeing >= WITHIN[0] && compared >= WITHIN[1], "{agreeing} of {compared}");
    assert_eq!(output.status.success(), agreeing == compared);
}

#[test]
fn a_workload_that_is_not_compared_is_answered_with_those_that_are() {
    let error = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_roost"));
        let output = command.args(["validate", "--workloads"]).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let told = error(&["coremark"]);
    assert!(told.contains("coremark: its operations are not counted") && told.contains("tbench"));
    assert!(error(&["hackbnch"]).contains("did you mean"));
    assert!(
        error(&["tbench", "--machine", "2n2l4c", "--machine", "4n1l4c"]).contains("one machine")
    );
    let told = error(&["tbench", "--from", "/no/such/file"]);
    assert!(told.contains("/no/such/file") && told.contains("--save"), "{told}");
    let told = error(&["tbench", "--from", PROGRAMS, "--machine", "2n2l4c"]);
    assert!(told.contains("add --machine"), "{told}");
}
