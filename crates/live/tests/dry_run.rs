//! What `--dry-run` says on the machine that runs the tests, whatever its kernel can do.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;
use std::process::Command;

#[test]
fn the_status_says_whether_this_kernel_can_run_it() {
    let output = Command::new(env!("CARGO_BIN_EXE_scx_roost")).arg("--dry-run").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let has_sched_ext = Path::new("/sys/kernel/sched_ext").exists();
    let status = output.status.code();
    match status {
        Some(0) => assert!(text.contains(": can run it; loading needs root\n"), "{text}"),
        Some(1) => assert!(!text.contains("can run it"), "{text}"),
        _ => panic!("{status:?}: {text}"),
    }
    if !has_sched_ext {
        assert_eq!(status, Some(1));
        assert!(text.contains("without sched_ext") || text.contains("Linux 6.12"), "{text}");
    }
    // What it gains and what speaks against it are said either way, and the rest is a settings file.
    assert!(text.contains("\n# gains: ") || text.contains("\n# against: "), "{text}");
    assert!(text.contains("\nslice-us = "), "{text}");
}
