//! Runs the scheduler as built for ten seconds in one guest. This finds programs that the verifier refuses or that
//! stall. `.ci/run` runs it, because the whole suite in guests takes an hour.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{KERNELS, cache_of, counters, job, spec, text, told};
use roost_vm::Guest;

/// Repeats hackbench for ten seconds. Then prints the number of runs, the scheduler's state, and the kernel's messages
/// about schedulers that it ended.
const TEN_SECONDS: &str = r#"
start
end=$(($(date +%s) + 10)); runs=0
while [ $(date +%s) -lt $end ]; do hackbench -g 2 -l 50 >/dev/null && runs=$((runs + 1)); done
echo runs: $runs; echo state: $(state)
stop; tail -1 out >&2; cat err; dmesg | grep 'sched_ext:.* disabled ('
"#;

#[test]
#[ignore = "boots a guest: make smoke-live"]
fn it_loads_and_schedules_hackbench_for_ten_seconds() {
    let cache = cache_of(&KERNELS[..1]);
    let mut guest = told(Guest::boot(&cache, &spec("2n2l4c", KERNELS[0])));
    let result = told(guest.run(&job(TEN_SECONDS)));
    let text = text(&result);
    assert!(text.contains("state: enabled\n"), "{text}");
    assert!(!text.contains("runs: 0\n"), "{text}");
    assert!(!text.contains("runtime error") && !text.contains("stall"), "{text}");
    let counted = counters(&String::from_utf8_lossy(&result.stderr));
    assert!(counted["ttwu_count"] > 0 && counted["queued"] > 0, "{counted:?}");
}
