//! Tests `roost run`, and the settings that the live scheduler shares with the simulation. A script stands in for
//! `scx_roost`, so no kernel has to load anything.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use std::sync::Mutex;

use tempfile::TempDir;

/// Only one test at a time may write a program and start it. If another thread forks while the file is open for
/// writing, the child holds it open for a moment, and the program cannot be started.
static PROGRAMS: Mutex<()> = Mutex::new(());

/// A folder with a copy of `roost` and, if `stand_in` is set, a stand-in for `scx_roost`. Nothing else that was built
/// is near.
fn folder(stand_in: bool) -> TempDir {
    let folder = TempDir::new().unwrap();
    let _alone = PROGRAMS.lock();
    fs::copy(env!("CARGO_BIN_EXE_roost"), folder.path().join("roost")).unwrap();
    if stand_in {
        let file = folder.path().join("scx_roost");
        fs::write(&file, "#!/bin/sh\necho \"$@\"\nexit 3\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    folder
}

fn roost(folder: &TempDir, arguments: &[&str]) -> Output {
    let mut command = Command::new(folder.path().join("roost"));
    command.current_dir(folder.path()).env("PATH", "/nowhere").args(arguments);
    let _alone = PROGRAMS.lock();
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn run_becomes_the_program_beside_it() {
    let folder = folder(true);
    for (given, passed) in [
        (&["run"][..], "\n"),
        (
            &["run", "--no-sis-util", "--llc-imbalance", "2", "--config", "/etc/roost.toml"][..],
            "--llc-imbalance 2 --no-sis-util --config /etc/roost.toml\n",
        ),
        (&["run", "--dry-run", "-v"][..], "--dry-run --verbose\n"),
        (&["run", "--monitor", "1"][..], "--monitor 1\n"),
        (&["top", "--counters"][..], "--top 1\n"),
    ] {
        let output = roost(&folder, given);
        assert_eq!(output.status.code(), Some(3), "{given:?}: the status is the program's");
        assert_eq!(text(&output.stdout), passed, "{given:?}");
    }
}

#[test]
fn without_the_program_a_line_says_how_to_get_it() {
    let folder = folder(false);
    let compare =
        ["compare", "--on", "vm", "--workload", "hackbench", "fair@7.2", "roost+no-sis-util"];
    for (arguments, status) in
        [(&["run"][..], 3), (&["run", "--dry-run"], 3), (&["top", "--counters"], 3), (&compare, 2)]
    {
        let output = roost(&folder, arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {error}");
        assert!(error.contains("make live") && error.lines().count() == 1, "{error}");
    }
}

/// The current folder may belong to anybody.
#[test]
fn no_program_of_the_current_folder_is_run() {
    let (here, folder) = (folder(true), folder(false));
    let built = folder.path().join("target/live/release");
    fs::create_dir_all(&built).unwrap();
    fs::copy(here.path().join("scx_roost"), built.join("scx_roost")).unwrap();
    let output = roost(&folder, &["run", "--dry-run"]);
    let error = text(&output.stderr);
    assert!(output.stdout.is_empty() && error.contains("make live"), "{error}");
}

#[test]
fn intervals_that_the_program_would_refuse_are_told_in_its_stead() {
    let folder = folder(true);
    for (given, passed) in [("10ms", "--top 0.01\n"), ("1day", "--top 86400\n")] {
        assert_eq!(text(&roost(&folder, &["top", "--counters", given]).stdout), passed);
    }
    for given in ["5ms", "0s", "86401s", "2"] {
        let output = roost(&folder, &["top", given]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{given}: {error}");
        assert!(error.contains("10ms to 1day") && error.lines().count() == 1, "{given}: {error}");
    }
}

#[test]
fn a_program_that_cannot_be_started_is_told_in_a_line() {
    let folder = folder(false);
    fs::write(folder.path().join("scx_roost"), "").unwrap();
    let output = roost(&folder, &["run"]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{error}");
    assert!(error.contains("cannot be started") && error.lines().count() == 1, "{error}");
}

#[test]
fn wrong_settings_are_told_in_a_line() {
    let folder = folder(true);
    fs::write(folder.path().join("bad.toml"), "sis-util = true\nslcie-us = 1\n").unwrap();
    let compare = ["compare", "--workload", "hackbench"];
    for (arguments, told) in [
        (&["run", "--no-such-thing"][..], "see `roost run --help`"),
        (&["run", "--slice-us", "1"][..], "100..=100000"),
        (&[&compare[..], &["fair@7.2+config=bad.toml"]].concat(), "slcie-us (line 2)"),
        (&[&compare[..], &["fair@7.2+config=none.toml"]].concat(), "none.toml: cannot be read"),
        (
            &[&compare[..], &["fair@7.2+slice-us=3000"]].concat(),
            "only roost has slice-us: roost+slice-us=3000",
        ),
        (&[&compare[..], &["fair@7.2+no-memory"]].concat(), "only roost has memory"),
        (&[&compare[..], &["fair@7.2+no-such"]].concat(), "unknown switch 'no-such'"),
        (&[&compare[..], &["roost+no-such"]].concat(), "unknown settings: no-such"),
        (&[&compare[..], &["--on", "host", "roost+no-such"]].concat(), "unknown settings: no-such"),
    ] {
        let output = roost(&folder, arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(told) && error.lines().count() == 1, "{arguments:?}: {error}");
    }
}

/// A settings file and the same settings as switches give the same simulated run.
#[test]
fn a_settings_file_is_the_same_as_switches() {
    let folder = folder(false);
    let file = "sis-util = false\nllc-imbalance = 3\nnuma-imbalance = false\nslice-us = 5000\n";
    fs::write(folder.path().join("roost.toml"), file).unwrap();
    let run = |scheduler: &str| {
        let arguments = "compare --machine 2n2l4c --workload hackbench:groups=1,loops=20 --repeat 1 --format json";
        let mut words: Vec<&str> = arguments.split(' ').collect();
        words.push(scheduler);
        let output = roost(&folder, &words);
        assert!(output.status.success(), "{}", text(&output.stderr));
        (text(&output.stdout).replace(scheduler, "it"), text(&output.stderr))
    };
    let (by_file, note) = run("fair@7.2+config=roost.toml");
    let (by_switches, _) = run("fair@7.2+no-sis-util+llc-imbalance=3+no-numa-imbalance");
    assert_eq!(by_file, by_switches);
    assert_ne!(by_file, run("fair@7.2").0, "the file changes something");
    assert!(note.contains("only roost has slice-us; left out"), "{note}");
}

#[test]
fn help_lists_every_setting() {
    let folder = folder(true);
    for arguments in [&["run", "--help"][..], &["compare", "--help"]] {
        let help = text(&roost(&folder, arguments).stdout);
        for setting in roost_settings::all() {
            assert!(help.contains(setting.name), "{arguments:?} lacks {}", setting.name);
        }
    }
}
