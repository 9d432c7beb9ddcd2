//! What a program in the sandbox sees, what it cannot do, and what the errors say. The programs are those of any Linux.

#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use roost_capture::{CaptureError, Command, capture};

/// Enough on a machine that does much else.
const LONG: Duration = Duration::from_secs(60);

fn error_within(text: &str, limit: Duration) -> String {
    let machine = roost_machine::resolve("2n2l4c").unwrap();
    let never = AtomicBool::new(false);
    let captured = Command::parse(text);
    let captured = captured.and_then(|command| capture(&command, &machine, limit, &never, None));
    let error: CaptureError = captured.unwrap_err();
    let error = error.to_string();
    assert_eq!(error.lines().count(), 1, "{error}");
    error
}

fn error(text: &str) -> String {
    error_within(text, LONG)
}

/// What a program prints that ends without attaching a scheduler.
fn printed(text: &str) -> String {
    let error = error(text);
    let (_, printed) = error.split_once("it printed: ").unwrap_or_else(|| panic!("{error}"));
    printed.to_owned()
}

#[test]
fn a_capture_ends_when_the_user_asks_for_it() {
    let (machine, stop) = (roost_machine::resolve("2n2l4c").unwrap(), AtomicBool::new(false));
    let command = Command::parse("sleep 1000").unwrap();
    let error = std::thread::scope(|scope| {
        let captured = scope.spawn(|| capture(&command, &machine, LONG, &stop, None));
        std::thread::sleep(Duration::from_millis(100));
        stop.store(true, Ordering::Relaxed);
        captured.join().unwrap().unwrap_err()
    });
    assert!(error.is_interrupted(), "{error}");
}

#[test]
fn a_program_that_is_not_there_or_is_none_is_named() {
    assert_eq!(
        error("./no/such_scx -s 1"),
        "./no/such_scx -s 1: no such program; give its path, or install it into a folder of PATH"
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().display().to_string();
    assert!(error(&path).contains("not executable"), "{}", error(&path));
    assert!(error("/bin/sh -c 'exit").contains("a quote has no end"));
}

#[test]
fn a_program_that_ends_tells_how_and_what_it_said_last() {
    assert_eq!(
        error("/bin/sh -c 'exit 0'"),
        "/bin/sh -c 'exit 0': exited with status 0 before it attached a scheduler, so there is none to simulate"
    );
    let failed = error("/bin/sh -c 'echo first; echo \"no luck\" >&2; exit 3'");
    assert!(failed.contains("exited with status 3 before"), "{failed}");
    assert!(failed.ends_with("it printed: first | no luck"), "{failed}");
    let killed = error("/bin/sh -c 'kill -9 $$'");
    assert!(killed.contains("was ended by signal 9 before"), "{killed}");
}

/// A script that answers as schedulers do: `--help` with a long text, a wrong option with a usage text, and `-x` with a
/// log whose last line says what failed.
const SCRIPT: &str = r#"#!/bin/sh
option() { echo "  --option-$1  does $1"; }
case "$1" in
--help)
    echo "scx_mine: keeps tasks apart"; echo; echo "Usage: scx_mine [OPTIONS]"
    for i in 1 2 3 4 5; do option $i; done;;
-x) for i in 1 2 3 4 5; do echo "step $i"; done; echo "Error: no memory"; exit 1;;
*) echo "error: unexpected argument '$1'" >&2; echo "Usage: scx_mine"; option 1; option 2; option 3; exit 2;;
esac
"#;

#[test]
fn a_usage_text_is_told_from_its_beginning_and_a_log_from_its_end() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("scx_mine");
    std::fs::write(&script, SCRIPT).unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let told = |option: &str| error(&format!("{} {option}", script.display()));
    let help = told("--help");
    assert!(help.contains("exited with status 0 before it attached a scheduler"), "{help}");
    let first = "it printed: scx_mine: keeps tasks apart | Usage: scx_mine [OPTIONS] | --option-1  does 1 | ";
    assert!(help.contains(first) && help.ends_with(" | and 3 more lines"), "{help}");
    let wrong = told("--nosuch");
    let first = "it printed: error: unexpected argument '--nosuch' | Usage: scx_mine | --option-1";
    assert!(wrong.contains("exited with status 2") && wrong.contains(first), "{wrong}");
    assert!(wrong.ends_with(" | and 1 more line"), "{wrong}");
    let failed = told("-x");
    assert!(
        failed.ends_with("it printed: step 3 | step 4 | step 5 | Error: no memory"),
        "{failed}"
    );
}

#[test]
fn a_program_that_takes_too_long_is_ended() {
    let began = Instant::now();
    let error =
        error_within("/bin/sh -c 'echo on $$; while :; do :; done'", Duration::from_secs(5));
    assert!(error.contains("did not attach a scheduler within 5 s"), "{error}");
    assert!(began.elapsed() < LONG);
    let process = error.rsplit_once("it printed: on ").unwrap().1;
    assert!(!Path::new("/proc").join(process).exists(), "it still runs");
}

#[test]
fn it_sees_the_made_up_machine() {
    assert_eq!(printed("/bin/cat /sys/devices/system/cpu/online"), "0-15");
    assert_eq!(printed("/bin/cat /sys/kernel/sched_ext/state"), "disabled");
    assert_eq!(printed("/bin/uname -r"), roost_scx::SHIPPED_VERSION);
    assert_eq!(printed("/usr/bin/nproc"), "16");
    assert_eq!(printed("/usr/bin/id -u"), "0");
    assert!(printed("/bin/ls -r /sys/devices/system/node").contains("node1 | node0"));
    let error = error("/bin/cat /sys/class/net");
    assert!(error.contains("the made-up machine has no /sys/class/net"), "{error}");
}

#[test]
fn what_it_writes_is_gone_and_files_of_others_stay_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let (new, old) = (folder.path().join("new"), folder.path().join("old"));
    std::fs::write(&old, "mine\n").unwrap();
    let script = |text: &str| {
        let text = text.replace("NEW", new.to_str().unwrap());
        format!("/bin/sh -c '{}'", text.replace("OLD", old.to_str().unwrap()))
    };
    assert_eq!(printed(&script("echo yes > NEW; exec cat NEW")), "yes");
    assert_eq!(printed(&script("echo yes > OLD; exec cat OLD")), "yes");
    let failing = [
        ("exec rm OLD", "unlink"),
        ("exec mv OLD NEW", "rename"),
        ("exec chmod 777 OLD", "fchmod"),
        ("exec mkdir NEW", "mkdir"),
    ];
    for (failing, call) in failing {
        let error = error(&script(failing));
        assert!(error.contains("exited with status 1"), "{failing}: {error}");
        assert!(error.contains(&format!("not emulated: system call {call}")), "{failing}: {error}");
    }
    let refused = error(&script("echo 1 > /sys/devices/system/cpu/cpu1/online"));
    assert!(refused.contains("cpu1/online: Permission denied"), "{refused}");
    assert!(!new.exists());
    assert_eq!(std::fs::read_to_string(&old).unwrap(), "mine\n");
}

#[test]
fn it_starts_no_process_and_reaches_no_other() {
    let forks = error("/bin/sh -c '/bin/true; exit 9'");
    assert!(forks.contains("not emulated: system call"), "{forks}");
    assert!(!forks.contains("status 9"), "{forks}");
    let signal = error("/bin/sh -c 'kill -0 $PPID || exit 9'");
    assert!(signal.contains("exited with status 9"), "{signal}");
}

#[test]
fn nothing_is_left_behind() {
    let left = || {
        let prefix = format!("roost-capture-{}-", std::process::id());
        let folders = [std::env::temp_dir(), "/dev/shm".into()];
        let names = folders.iter().flat_map(std::fs::read_dir).flatten().flatten();
        names.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix)).count()
    };
    // Other tests of this process have folders of their own for a while.
    error("/bin/true");
    let until = Instant::now() + 2 * LONG;
    while left() > 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(left(), 0);
}
