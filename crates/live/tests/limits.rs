//! Limits on CPU time (`cpu.max`) in real kernels. The newest kernel reports them to the scheduler; on the oldest one
//! the scheduler reads them (`make test-live`).

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::time::Duration;

use common::{cache, job, number_after, on_each_kernel, spec, text, told};
use roost_vm::exact;

/// Runs loops in cgroups with limits of 20%, 50% and 100% of a CPU. A further cgroup is limited to 20%, and has loops
/// with an inner limit of 50% and without one. hackbench runs in its own cgroup. Then the limits change while the loops
/// run, and the scheduler is unloaded while tasks are parked. `measure` prints the CPU time that each cgroup used in
/// four seconds, in hundredths of a percent of a CPU.
const LIMITS: &str = r#"
G=/sys/fs/cgroup P=
limit() { echo "$2 100000" >$G/$1/cpu.max; }
loops() { for i in $(seq $2); do ( echo $BASHPID >$G/$1/cgroup.procs; while :; do :; done ) & P="$P $!"; done; }
used() { declare -gA $1; local -n of=$1; of[t]=${EPOCHREALTIME/./}
	for g in a b c p p/q; do read -r _ "of[$g]" <$G/$g/cpu.stat; done; }
measure() { used x; sleep 4; used y
	for g in a b c p p/q; do echo "$1 $g: $(( (${y[$g]} - ${x[$g]}) * 10000 / (${y[t]} - ${x[t]}) ))"; done; }
echo +cpu >$G/cgroup.subtree_control
mkdir $G/a $G/b $G/c $G/p $G/h; echo +cpu >$G/p/cgroup.subtree_control; mkdir $G/p/q $G/p/r
limit a 20000; limit b 50000; limit c 100000; limit p 20000; limit p/q 50000
start
loops a 4; loops b 2; loops c 3; loops p/q 2; loops p/r 2
( echo $BASHPID >$G/h/cgroup.procs; while :; do hackbench -g 1 -l 5 >/dev/null; done ) & P="$P $!"
sleep 0.3; measure kept
limit a 50000; limit b max; limit c 70000; limit p max; limit p/q 30000; sleep 0.3; measure changed
stop; echo "after it: $(state)"; kill -9 $P
tail -1 out; cat err; dmesg | grep -iE 'sched_ext.*(error|stall|disabled due)|BUG:|rcu.*stall'
"#;

fn limits_hold(kernel: &str) {
    let spec = spec("node:1 l3:1 core:4 pu:1", kernel);
    let job = job(LIMITS).within(Duration::from_secs(1800));
    let run = told(exact::run(&cache(), &spec, &[job]));
    let text = text(&run.results[0]);
    println!("{kernel}:\n{text}");
    let used = |what: &str| number_after(&text, &format!("{what}: ")) / 100.0;
    for (what, limit) in [
        ("kept a", 20.0),
        ("kept b", 50.0),
        ("kept c", 100.0),
        ("kept p", 20.0),
        ("changed a", 50.0),
        ("changed c", 70.0),
        ("changed p/q", 30.0),
    ] {
        let used = used(what);
        // The cgroup that may use a whole CPU loses some of it to hackbench, because time that it cannot use in a
        // period is lost.
        let least = if limit == 100.0 { 0.9 } else { 0.95 };
        assert!((least..1.05).contains(&(used / limit)), "{kernel}: {what}: {used}%");
    }
    // A cgroup whose limit was removed uses more than before.
    assert!(used("changed b") > 75.0, "{kernel}: {text}");
    for what in ["after it: disabled\n", "nr_throttled="] {
        assert!(text.contains(what), "{kernel}: no {what:?} in\n{text}");
    }
    assert!(!text.contains("stall") && !text.contains("BUG:"), "{kernel}: {text}");
}

on_each_kernel!(limits_hold);
