//! Schedulers of sched-ext/scx, as they were released, schedule on machines of 16 to 512 CPUs and on all presets.
//!
//! `make test-released` builds their programs and puts them in PATH.

use std::process::Command;

/// Command lines of the programs. scx_layered needs layers; it has an example of its own.
const PROGRAMS: [&str; 5] =
    ["scx_bpfland", "scx_cosmos", "scx_lavd", "scx_rusty", "scx_layered --run-example"];

/// Machines of 16, 256 and 512 CPUs. The presets follow.
const SHAPES: [&str; 3] =
    ["node:2 l3:2 core:4 pu:1", "node:2 l3:8 core:16 pu:1", "node:2 l3:16 core:8 pu:2"];

/// How long the workload took, by a run's JSON. It ends when its work is done. `None` also if the JSON does not say
/// that the program's work in user space is missing.
fn seconds(json: &[u8]) -> Option<f64> {
    let whole: serde_json::Value = serde_json::from_slice(json).ok()?;
    let notes = whole.pointer("/notes/0")?.as_array()?;
    notes.iter().find(|note| note.as_str().is_some_and(|note| note.contains("user space")))?;
    whole.pointer("/results/0/mean/0")?.as_f64()
}

#[test]
#[ignore = "needs the programs; make test-released builds them"]
fn released_schedulers_run_on_every_machine() {
    let presets = roost_machine::presets();
    let machines = SHAPES.iter().copied().chain(presets.iter().map(|(name, _)| *name));
    let mut failed = Vec::new();
    for machine in machines {
        for program in PROGRAMS {
            // Without threads of the kernel, less memory lies behind that of the program.
            for quiet in [None, Some("--quiet")] {
                let output = Command::new(env!("CARGO_BIN_EXE_roost"))
                    .args(["compare", "--repeat", "1", "--format", "json", "--machine", machine])
                    .args(["--workload", "hackbench:groups=2,loops=20", program])
                    .args(quiet)
                    .output()
                    .expect("roost starts");
                match seconds(&output.stdout).filter(|_| output.status.success()) {
                    Some(seconds) => println!("{machine}, {program}: {seconds:.4} s"),
                    None => {
                        let error = String::from_utf8_lossy(&output.stderr);
                        failed.push(format!("{machine}, {program}: {}", error.trim()));
                    }
                }
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
