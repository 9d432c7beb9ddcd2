//! Tests with real guests. `make test-vm` runs them, because they need minutes, and packages from the network or a
//! prepared cache.
//!
//! If guests are not available, the tests fail and say how to leave them out. Functions named `program_` are not tests:
//! a test starts them.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use roost_vm::domains::compare;
use roost_vm::{Cache, Given, Guest, GuestSpec, Job, Pieces, VmError, exact};

/// The presets whose domains must be those that the model predicts.
const PRESETS: [&str; 6] = ["2n2l4c", "1s2n4l2c", "4n1l4c", "4n2l2c", "2n2l2c2t", "2n1l2m2c2t"];

/// A prepared cache.
fn cache() -> Cache {
    let cache = Cache::of_user().unwrap();
    let pieces = Pieces::prepare(&cache, &Given::default(), &mut |line| eprintln!("{line}"));
    pieces.unwrap_or_else(|error| {
        panic!("no guests on this host (make test-vm WITHOUT=guests leaves them out): {error}")
    });
    cache
}

fn spec(machine: &str) -> GuestSpec {
    GuestSpec::new(&roost_machine::resolve(machine).unwrap())
}

/// Ends the test with all that is known about a failed guest.
fn told<T>(result: Result<T, VmError>) -> T {
    result.unwrap_or_else(|error| panic!("{error}\n{}", error.console().join("\n")))
}

/// Booting checks the machine itself. This test also compares the domains.
#[test]
#[ignore = "boots a guest: make test-vm"]
fn every_preset_has_the_domains_that_the_model_predicts() {
    let cache = cache();
    for preset in PRESETS {
        let guest = told(Guest::boot(&cache, &spec(preset)));
        let comparison = compare(guest.survey()).unwrap();
        assert!(comparison.agrees(), "{preset}: {}", comparison.summary());
        let groups = comparison.properties.iter().filter(|row| row.name == "groups").count();
        assert!(groups > 0, "{preset}: the kernel's log tells no groups");
    }
}

#[test]
#[ignore = "boots a guest: make test-vm"]
fn jobs_of_one_boot_bring_files_in_and_out() {
    let cache = cache();
    let mut guest = told(Guest::boot(&cache, &spec("node:2 l3:1 core:2 pu:1")));
    let large = vec![7; 3 << 20];
    let first = Job::script("cat in/text; wc -c <large; cp large $ROOST_OUT/copy; exit 3")
        .with_bytes("in/text", "hello ")
        .with_bytes("large", large.clone());
    let result = told(guest.run(&first));
    assert_eq!(result.status, 3);
    assert_eq!(String::from_utf8_lossy(&result.stdout), "hello 3145728\n");
    assert_eq!(std::fs::read(result.out().join("copy")).unwrap(), large);

    // The second job sees nothing of the first.
    let result = told(guest.run(&Job::of(["ls", "-A", "large", "it's"])));
    assert_eq!(result.status, 2);
    assert!(String::from_utf8_lossy(&result.stderr).contains("it's"));
    assert_eq!(std::fs::read_dir(result.out()).unwrap().count(), 0);

    let programs = "for p in hackbench stress-ng iperf3 numactl rt-app trace-cmd bpftool sysbench \
                    netperf tbench; \
                    do command -v $p >/dev/null || echo $p; done; \
                    mkdir -p /var/run/scx/root || echo no place for sockets; \
                    stress-ng --cpu 1 --cpu-method loop --cpu-ops 1 --temp-path /tmp >/dev/null && \
                    hackbench -g 1 -l 1 >/dev/null && rt-app --help >/dev/null 2>&1; \
                    cat /sys/kernel/sched_ext/state; ls /boot";
    let result = told(guest.run(&Job::script(programs)));
    let stdout = String::from_utf8_lossy(&result.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&result.stderr).into_owned();
    let lines: Vec<&str> = stdout.lines().collect();
    let config = format!("config-{}", guest.survey().release);
    assert_eq!(lines, ["disabled", config.as_str()], "{stderr}");

    let panic = Job::script("echo c >/proc/sysrq-trigger; sleep 100");
    let error = guest.run(&panic).unwrap_err();
    assert!(error.to_string().contains("panicked in job 4"), "{error}");
    assert!(error.console().iter().any(|line| line.contains("sysrq")), "{:?}", error.console());
}

#[test]
#[ignore = "boots a guest: make test-vm"]
fn a_job_in_which_the_emulator_ran_stale_code_runs_once_more_in_a_new_guest() {
    let cache = cache();
    let mut guest = told(Guest::boot(&cache, &spec("node:1 core:2 pu:1")));
    let script = "echo 'Oops: int3: 0000' >/dev/kmsg; echo c >/proc/sysrq-trigger; sleep 100";
    told(guest.run(&Job::of(["true"])));
    // The second job is the first one of the new guest.
    let error = guest.run(&Job::script(script)).unwrap_err();
    assert!(error.to_string().contains("panicked in job 1"), "{error}");
}

#[test]
#[ignore = "boots a guest: make test-vm"]
fn a_guest_that_hangs_is_ended_within_its_time() {
    let cache = cache();
    let spec = spec("node:1 core:2 pu:1");
    let mut guest = told(Guest::boot(&cache, &spec));
    let start = Instant::now();
    let hang = Job::script("echo hanging >/dev/kmsg; sleep 1000").within(Duration::from_secs(10));
    let error = guest.run(&hang).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    assert!(error.to_string().contains("no answer in time in job 1"), "{error}");
    assert!(error.console().iter().any(|line| line.contains("hanging")), "{:?}", error.console());

    // A guest that never boots is started twice.
    let mut stuck = spec.clone();
    stuck.boot_timeout = Duration::from_secs(15);
    stuck.kernel_arguments = "rootdelay=1000".into();
    let start = Instant::now();
    let error = Guest::boot(&cache, &stuck).err().expect("cannot boot");
    assert!(error.to_string().contains("during boot"), "{error}");
    assert!(start.elapsed() >= 2 * stuck.boot_timeout, "{:?}", start.elapsed());

    // A guest that panics during boot, because it cannot read its root, is also started twice.
    let mut broken = spec.clone();
    broken.kernel_arguments = "initcall_blacklist=ext4_init_fs".into();
    let error = Guest::boot(&cache, &broken).err().expect("cannot boot");
    assert!(error.to_string().contains("panicked during boot"), "{error}");
}

/// After `kill -9` roost cannot clean up, so the kernel has to.
#[test]
#[ignore = "boots a guest: make test-vm"]
fn no_qemu_outlives_roost() {
    cache();
    let helper = std::env::current_exe().unwrap();
    let mut roost = Command::new(helper)
        .args(["--exact", "--ignored", "--nocapture", "program_boots_and_waits"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let qemu = loop {
        let children = children(roost.id());
        if let Some(&qemu) = children.first() {
            break qemu;
        }
        assert!(Instant::now() < deadline, "no QEMU was started");
        std::thread::sleep(Duration::from_millis(20));
    };
    roost.kill().unwrap();
    roost.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while running(qemu) {
        assert!(Instant::now() < deadline, "QEMU {qemu} still runs");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Not a test of its own: [`no_qemu_outlives_roost`] starts and kills this program.
#[test]
#[ignore = "started by another test"]
fn program_boots_and_waits() {
    let cache = Cache::of_user().unwrap();
    let _guest = told(Guest::boot(&cache, &spec("2n2l4c")));
    std::thread::sleep(Duration::from_secs(600));
}

/// The guests among a process's children. (KVM is tried with a QEMU that ends by itself.)
fn children(process: u32) -> Vec<u32> {
    let list = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children")).ok();
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let text: String = tasks.filter_map(list).collect();
    let is_guest = |child: &u32| {
        let words = std::fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains("roost-guest")
    };
    text.split_whitespace().filter_map(|id| id.parse().ok()).filter(is_guest).collect()
}

fn running(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // A zombie for which nobody waits counts as ended.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

#[test]
#[ignore = "boots a guest: make test-vm"]
fn the_exact_lane_repeats_to_the_last_byte() {
    let cache = cache();
    let spec = spec("node:2 l3:1 core:2 pu:1");
    let jobs = [
        Job::script("hackbench -g 1 -l 5; cat /proc/uptime /proc/schedstat"),
        Job::script("cat file; exit 4").with_bytes("file", "second"),
    ];
    let runs = [0, 1].map(|_| told(exact::run(&cache, &spec, &jobs)));
    let [first, second] = &runs;
    assert_eq!(first.console, second.console);
    for (a, b) in first.results.iter().zip(&second.results) {
        assert_eq!(String::from_utf8_lossy(&a.stdout), String::from_utf8_lossy(&b.stdout));
    }
    assert!(String::from_utf8_lossy(&first.results[0].stdout).contains("Time: "));
    assert_eq!((first.results[1].status, first.results[1].stdout.as_slice()), (4, &b"second"[..]));
    assert!(compare(&first.survey).unwrap().agrees());
}
