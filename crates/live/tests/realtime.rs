//! A realtime or deadline task takes a CPU: nobody waits for it for long, and it is counted (`make test-live`).

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{cache, counters, job, number_after, on_each_kernel, spec, told};
use roost_vm::exact;

/// Six loops on four CPUs. Beside them a loop of each class takes 90 to 100% of a CPU.
const HOGS: &str = r#"
./scx_roost --stats 1 >out 2>err & roost=$!; await enabled
for i in 1 2 3 4 5 6; do
	(exec 3>>loop$i; while :; do for ((n = 0; n < 50; n++)); do :; done; echo >&3; done) & loops+=" $!"
done
# As many bytes as rounds.
rounds() { stat -c %s loop? >$1; }
take() {
	"$@" bash -c 'while :; do :; done' & pid=$!
	sleep 2; from=$(grep -c '' out); rounds before; sleep 4; rounds after; to=$(grep -c '' out)
	paste before after | awk '{ print $2 - $1 }' | sort -n >rounds
	echo "$(chrt -p $pid | head -n 1), least $(head -n 1 rounds), most $(tail -n 1 rounds)"
	kill $pid; wait $pid 2>/dev/null; sleep 1
	tail -n +$((from + 1)) out | head -n $((to - from + 1))
	echo "--"
}
sleep 2
take chrt -f 10
take chrt -d -T 450000000 -D 500000000 -P 500000000 0
echo "in the end: $(state)"
kill $loops; stop
cat err
dmesg | grep -iE 'sched_ext.*(error|stall|watchdog|runnable task)' | head -n 3
"#;

fn nobody_waits_for_a_task_that_takes_a_cpu(kernel: &str) {
    // On a busy host, CPUs of other guests stand still for unequal times.
    let run = told(exact::run(&cache(), &spec("node:1 l3:2 core:2 pu:1", kernel), &[job(HOGS)]));
    let text = common::text(&run.results[0]);
    let parts: Vec<&str> = text.split("--\n").collect();
    assert_eq!(parts.len(), 3, "{text}");
    for (class, part) in ["SCHED_FIFO", "SCHED_DEADLINE"].into_iter().zip(&parts) {
        let [least, most] = ["least ", "most "].map(|which| number_after(part, which));
        let released = part.lines().filter_map(|line| counters(line).get("released").copied());
        let released: u64 = released.sum();
        println!("{kernel}, {class}: least {least}, most {most} rounds, {released} released");
        assert!(part.contains(class), "{text}");
        // If no loop leaves its LLC, three share two CPUs, and three the one that is left: half as much for each.
        assert!(released > 0 && least > 0.4 * most, "{class}: {text}");
    }
    assert!(text.contains("in the end: enabled") && !text.contains("stall"), "{text}");
}

on_each_kernel!(nobody_waits_for_a_task_that_takes_a_cpu);
