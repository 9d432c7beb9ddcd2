//! However the loader ends, the kernel goes on and nothing is left behind (`make test-live`).

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::time::Duration;

use common::{cache, job, on_each_kernel, spec, told};
use roost_vm::Guest;

/// Time limit of a job that loads the scheduler six times on a busy machine.
const LONG: Duration = Duration::from_secs(1800);

/// Prints what a loader may have left behind: BPF programs, maps and links, the statistics' socket (a file without a
/// server may stay), processes, listening ports.
const LEFT: &str = r#"
objects() { for kind in prog map link; do bpftool $kind show; done | grep -i roost; }
left() {
	await disabled
	# What the kernel frees later, it frees soon.
	for i in $(seq 50); do [ -z "$(objects)" ] && break; sleep 0.1; done
	objects
	pgrep -f 'scx_roost' | grep -v $$
	ss -ltn | grep :9955
	true
}
busy() { hackbench -g 2 -l 100000 >/dev/null 2>&1 & load=$!; }
seqs() { cat /sys/kernel/sched_ext/enable_seq; }
"#;

const KILLED: &str = r#"
busy
for signal in KILL TERM INT; do
	start --metrics 127.0.0.1:9955
	sleep 1; stop $signal
	echo "after $signal: $(state), left: '$(left)'"
done
start; stop; echo "again: $(state), left: '$(left)'"
# Stopped for a minute, all that works goes on in the kernel; then it goes on too.
start
first=$(seqs)
kill -STOP $roost
sleep 60
echo "stopped: $(state) $(($(seqs) - first))"
kill -CONT $roost
timeout 20 ./scx_roost --monitor 1 | head -n 2 | grep -c ttwu_count
stop; echo "after STOP: $(state), left: '$(left)'"
kill $load; pkill hackbench
dmesg | grep -iE 'sched_ext.*(error|stall|watchdog|runnable task)' | head -n 3
echo done
"#;

fn nothing_is_left_of_a_loader_that_was_killed_or_stopped(kernel: &str) {
    let cache = cache();
    let mut guest = told(Guest::boot(&cache, &spec("2n2l4c", kernel)));
    let result = told(guest.run(&job(&format!("{LEFT}{KILLED}")).within(LONG)));
    let text = String::from_utf8_lossy(&result.stdout).into_owned();
    for what in [
        "after KILL: disabled, left: ''",
        "after TERM: disabled, left: ''",
        "after INT: disabled, left: ''",
        "again: disabled, left: ''",
        "stopped: enabled 0\n2\n",
        "after STOP: disabled, left: ''",
    ] {
        assert!(text.contains(what), "{kernel}: no {what:?} in\n{text}");
    }
    assert!(!text.contains("stall") && text.ends_with("done\n"), "{kernel}: {text}");
}

on_each_kernel!(nothing_is_left_of_a_loader_that_was_killed_or_stopped);
