//! Runs everything at once for fifteen minutes, on each of several machines (`make soak-live`).

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::time::{Duration, Instant};

use common::{KERNELS, cache, counters, job, spec, told};
use roost_vm::Guest;

/// Time limit of a job. It includes the time that hotplug needs on a busy host.
const LONG: Duration = Duration::from_secs(45 * 60);

/// Everything ends by itself after 900 s. The files in `alive` belong to tasks that note the time now and then: tasks
/// that wait in various ways, and a loop bound to each CPU.
const MIX: &str = r#"
end=$((SECONDS + 900)) cpus=$(nproc) groups=/sys/fs/cgroup
on() { [ $SECONDS -lt $end ]; }
mkdir alive; echo +cpu >$groups/cgroup.subtree_control
./scx_roost --stats 10 --verbose >out 2>err &
roost=$!; await enabled
for i in $(seq 4); do
	(while on; do echo $EPOCHSECONDS >alive/sleeper$i; sleep 0.1; done) &
done
for i in $(seq 0 $((cpus - 1))); do
	(taskset -cp $i $BASHPID >/dev/null
	while on; do for ((n = 0; n < 500; n++)); do :; done; echo $EPOCHSECONDS >alive/bound$i; done) &
done
(while on; do hackbench -g 1 -l 20 >/dev/null; done) &
stress="stress-ng --timeout 900 --temp-path /tmp"
$stress --cpu $((cpus + 2)) --cpu-method loop >log.cpu 2>&1 &
$stress --fork 2 >log.fork 2>&1 &
$stress --affinity 2 >log.affinity 2>&1 &
$stress --pipe 2 >log.pipe 2>&1 &
(while on; do
	for p in $(pgrep stress-ng); do renice -n $((RANDOM % 20)) -p $p && echo >&3; done; sleep 0.5
done) 3>>reniced >/dev/null 2>&1 &
(for ((i = 0; SECONDS < end; i++)); do
	mkdir $groups/g$i; echo $((RANDOM % 1000 + 1)) >$groups/g$i/cpu.weight
	(echo $BASHPID >$groups/g$i/cgroup.procs; exec hackbench -g 1 -l 5 >/dev/null)
	rmdir $groups/g$i || echo "cgroup g$i stays"
done) &
(while on; do
	timeout 3 chrt -f 10 taskset -c $((RANDOM % cpus)) bash -c 'while :; do :; done'; sleep 1
done) &
while [ $SECONDS -lt $((end - 180)) ]; do
	sleep 60
	cpu=/sys/devices/system/cpu/cpu$((RANDOM % (cpus - 1) + 1))/online
	echo 0 >$cpu && sleep 1; echo 1 >$cpu
done
await enabled >late; await enabled; sleep 10; now=$EPOCHSECONDS
for file in alive/*; do echo "silent for $((now - $(stat -c %Y $file))) s: $file"; done
echo "reniced $(grep -c '' reniced)"
echo "before the end: $(state), loader $([ -d /proc/$roost ] && echo there)"
jobs=$(jobs -p | grep -vx $roost); wait $jobs
stop; echo "after it: $(state), $(nproc) CPUs of $cpus"
bad='sched_ext.*(error|stall|watchdog|runnable task)|BUG:|hung task|blocked for more|soft lockup|rcu.*stall'
dmesg | grep -iE "$bad" | head -n 20
dmesg | grep -iE -A 30 "$bad" | head -n 200 | sed 's/^/> /'
cat err; cat out
"#;

/// The longest wait in a queue over all starts of the scheduler, in seconds.
fn longest_wait(text: &str) -> f64 {
    let waits = text.lines().filter_map(|line| counters(line).get("run_delay_max_ns").copied());
    waits.max().unwrap_or_else(|| panic!("no statistics in\n{text}")) as f64 / 1e9
}

fn mixed(machine: &str, kernel: &str) {
    let cache = cache();
    let mut guest = told(Guest::boot(&cache, &spec(machine, kernel)));
    let began = Instant::now();
    let result = told(guest.run(&job(MIX).within(LONG)));
    let text = common::text(&result);
    // On one occasion, a guest's clock ran through its quarter of an hour in five minutes.
    assert!(began.elapsed() >= Duration::from_secs(890), "the guest's clock ran fast: {text}");
    let silent = text.lines().filter_map(|line| line.strip_prefix("silent for "));
    // The number is negative if the task has noted the time since.
    let silent: Vec<i64> =
        silent.map(|rest| rest.split(' ').next().unwrap().parse().unwrap()).collect();
    println!(
        "{machine}, {kernel}: longest wait {:.3} s, silent for at most {:?} s",
        longest_wait(&text),
        silent.iter().max()
    );
    assert!(silent.len() > 4 && silent.iter().all(|&s| s < 30), "{text}");
    assert!(common::number_after(&text, "reniced ") > 0.0, "{text}");
    for what in ["before the end: enabled, loader there\n", "after it: disabled, "] {
        assert!(text.contains(what), "no {what:?} in\n{text}");
    }
    // Reports of RCU stalls are printed, but do not fail the test, because slow RCU readers do not end the scheduler.
    let judged = |line: &&str| !line.starts_with("> ") && !line.contains("rcu:");
    let told = |what: &str| text.lines().filter(judged).any(|line| line.contains(what));
    for what in ["stall", "runnable task", "BUG:", "hung task", "soft lockup", "stays"] {
        assert!(!told(what), "{what:?} in\n{text}");
    }
}

macro_rules! shapes {
    ($($name:ident: $machine:literal),*) => {$(
        mod $name {
            use super::{KERNELS, mixed};

            #[test]
            #[ignore = "boots a guest for a quarter of an hour: make soak-live"]
            fn on_the_newest_kernel() {
                mixed($machine, KERNELS[0]);
            }

            #[test]
            #[ignore = "boots a guest for a quarter of an hour: make soak-live"]
            fn on_the_oldest_kernel() {
                mixed($machine, KERNELS[1]);
            }
        }
    )*};
}

mod quarter_hours {
    use super::{KERNELS, mixed};

    // Machines with few CPUs, because the host runs all of their CPUs at once.
    shapes!(
        two_nodes_of_two_llcs: "node:2 l3:2 core:2 pu:1",
        four_llcs: "node:1 l3:4 core:2 pu:1",
        four_nodes: "node:4 l3:1 core:2 pu:1",
        one_llc: "node:1 l3:1 core:4 pu:1",
        smt: "node:2 l3:1 core:2 pu:2"
    );
}
