//! Runs the hooks of `bpf/` in user space (`tests/hooks/hooks.c`) to test the scheduler's decisions without a kernel.
//! Every run gives the same result. Only a C compiler is needed.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The output of a scenario.
struct Outcome {
    /// Time that each group ran on each of the two nodes, in ns.
    groups: Vec<[f64; 2]>,
    /// Fraction of the measured time for which the CPU with the most idle time was idle.
    idle: f64,
    counters: BTreeMap<String, u64>,
}

/// Compiles the hooks twice. In the second program, `lines.c` is called for every load and store.
fn programs() -> &'static [PathBuf; 2] {
    static PROGRAMS: OnceLock<[PathBuf; 2]> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        [build("hooks", &[]), build("hooks-lines", &["-fsanitize=thread", "-DFOLLOW_LINES"])]
    })
}

fn build(name: &str, flags: &[&str]) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let place = |name: &str| Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let (objects, program) =
        (["hooks", "lines"].map(|unit| format!("{name}-{unit}.o")), place(name));
    // The replacement for the sanitizer must not be called for its own loads.
    let units = [("hooks.c", flags), ("lines.c", &[])];
    for ((source, flags), object) in units.iter().zip(&objects) {
        let include = root.join("../../policy/include");
        let mut command = compiler();
        command.args(["-O1", "-w", "-c", "-I"]).arg(include).args(*flags);
        command.arg(root.join("tests/hooks").join(source)).arg("-o").arg(place(object));
        assert!(command.status().expect("a C compiler, cc or $CC").success());
    }
    let mut command = compiler();
    command.args(objects.iter().map(|object| place(object))).arg("-o").arg(&program);
    assert!(command.status().unwrap().success());
    program
}

fn compiler() -> Command {
    Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".to_owned()))
}

fn outcome(scenario: &str, seed: u32) -> Outcome {
    outcome_on([2, 4, 4], scenario, seed)
}

/// Runs a scenario on a machine with these numbers of nodes, LLCs per node, and CPUs per LLC.
fn outcome_on(shape: [u32; 3], scenario: &str, seed: u32) -> Outcome {
    run(&programs()[0], shape, scenario, seed)
}

fn run(program: &Path, shape: [u32; 3], scenario: &str, seed: u32) -> Outcome {
    let shape = shape.map(|number| number.to_string());
    let mut command = Command::new(program);
    let output = command.args([scenario, &seed.to_string()]).args(shape).output().unwrap();
    assert!(output.status.success(), "{scenario}: {}", output.status);
    let mut outcome = Outcome { groups: Vec::new(), idle: 0.0, counters: BTreeMap::new() };
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |index: usize| words[index].parse::<f64>().unwrap();
        match words[0] {
            "group" => outcome.groups.push([number(2), number(3)]),
            "idle" => outcome.idle = number(1) / number(3),
            name => drop(outcome.counters.insert(name.to_owned(), number(1) as u64)),
        }
    }
    outcome
}

/// The fraction of a group's time on its main node.
fn gathered(group: &[f64; 2]) -> f64 {
    group[0].max(group[1]) / (group[0] + group[1])
}

const SEEDS: std::ops::Range<u32> = 1..6;

/// Machines of 16, 128, 384 and 512 CPUs: numbers of nodes, LLCs per node, and CPUs per LLC.
const LARGE: [[u32; 3]; 4] = [[2, 4, 4], [2, 8, 16], [2, 24, 16], [2, 32, 16]];

/// Four groups of four busy loops, and short-running tasks, on 2 x 8 CPUs.
#[test]
fn four_groups_settle_two_on_each_node() {
    for seed in SEEDS {
        let outcome = outcome("four-groups", seed);
        assert!(outcome.groups.iter().all(|group| gathered(group) >= 0.95), "{:?}", outcome.groups);
        assert_eq!(outcome.groups.iter().filter(|group| group[0] > group[1]).count(), 2);
        for name in ["cling_settled", "cling_held"] {
            assert!(outcome.counters[name] > 0, "seed {seed}: {name}");
        }
    }
}

/// The same in a guest whose 16 CPUs share two CPUs of its host with forty tasks that run and sleep.
#[test]
fn four_groups_settle_in_a_guest() {
    for seed in SEEDS {
        let groups = outcome("four-groups-in-guest", seed).groups;
        assert!(groups.iter().all(|group| gathered(group) >= 0.95), "seed {seed}: {groups:?}");
        assert_eq!(groups.iter().filter(|group| group[0] > group[1]).count(), 2);
    }
}

/// A group stays on its node although another node is idle and others bind its node's CPUs. It may leave while failed
/// attempts mark the node as busy.
#[test]
fn a_busy_node_lets_its_groups_go() {
    let (held, paused) = (outcome("held", 1), outcome("paused", 1));
    assert_eq!(gathered(&held.groups[0]), 1.0, "{:?}", held.groups);
    assert!(held.counters["cling_held"] > 0 && held.counters["cling_paused"] == 0);
    assert!(held.idle >= 0.99, "{}", held.idle);
    assert!(paused.counters["cling_paused"] > 0);
    assert!(paused.groups[0][1] > paused.groups[0][0], "{:?}", paused.groups);
}

/// Three groups of six loops on 2 x 8 CPUs. The third one repeatedly finds no room, and still no CPU is idle.
#[test]
fn a_group_without_room_floats_and_no_cpu_idles() {
    for seed in SEEDS {
        let outcome = outcome("three-groups", seed);
        let settled = outcome.groups.iter().filter(|group| gathered(group) >= 0.95).count();
        assert_eq!(settled, 2, "seed {seed}: {:?}", outcome.groups);
        assert!(outcome.idle <= 0.02, "seed {seed}: {}", outcome.idle);
        let [failed, paused] = ["cling_failed", "cling_paused"].map(|name| outcome.counters[name]);
        assert!(failed > 0 && paused > 0, "seed {seed}: {failed} failed, {paused} paused");
        assert!(failed + paused >= 10, "one attempt a second, or a pause that forbids it");
    }
}

/// If a group sleeps for seconds, another group may claim its node's CPUs, except while the first group's pages are
/// being moved there.
#[test]
fn a_group_whose_pages_are_moved_keeps_its_place() {
    let on_first = |scenario| outcome(scenario, 1).counters["groups_on_first"];
    assert_eq!(on_first("waits"), 2);
    assert_eq!(on_first("waits-for-pages"), 1);
}

/// A group settles on the node where its own process has settled: CPUs that the process claims count for the group.
#[test]
fn a_group_is_not_in_its_own_way() {
    let outcome = outcome("own-process", 1);
    assert!(gathered(&outcome.groups[0]) >= 0.99, "{:?}", outcome.groups);
    let [settled, failed] = ["groups_settled", "cling_failed"].map(|name| outcome.counters[name]);
    assert_eq!((settled, failed), (1, 0));
}

/// CPU time that a group used before it settled does not count against it. Using an eighth more afterwards does not
/// make it leave.
#[test]
fn a_group_settles_once_it_fits_and_stays_with_little_more() {
    assert_eq!(outcome("shrunk", 1).counters["groups_settled"], 1);
    let grown = outcome("grown", 1).counters;
    assert_eq!((grown["groups_settled"], grown["unsettled"]), (1, 0));
}

/// A group that is excluded after it has settled leaves its node.
#[test]
fn an_excluded_group_does_not_cling() {
    assert_eq!(outcome("four-groups", 1).counters["groups_settled"], 4);
    assert_eq!(outcome("excluded", 1).counters["groups_settled"], 3);
}

/// If affinity keeps a group off the node with its memory, the group settles on the other node.
#[test]
fn a_group_that_may_not_go_to_its_node_settles_elsewhere() {
    let counters = outcome("barred", 1).counters;
    assert_eq!((counters["groups_settled"], counters["groups_on_first"]), (1, 0));
    assert_eq!((counters["cling_settled"], counters["unsettled"]), (1, 0));
}

/// A process whose threads are bound to CPUs of both nodes does not settle. Half of its threads could not move, but its
/// memory would.
#[test]
fn a_process_that_is_bound_to_both_nodes_does_not_settle() {
    assert_eq!(outcome("spread-process", 1).counters["consolidate_settled"], 0);
}

/// If the tasks of a group are limited to a few CPUs of a node, the group claims no more than these CPUs.
#[test]
fn groups_that_crowd_a_part_of_a_node_leave_room_on_it() {
    let counters = outcome("crowded-cpusets", 1).counters;
    assert_eq!((counters["groups_settled"], counters["groups_on_first"]), (2, 2));
    assert_eq!((counters["cling_failed"], counters["cling_paused"]), (0, 0));
}

/// A group limited to six CPUs on two nodes settles on neither, because it may use too few CPUs of each.
#[test]
fn a_group_that_crowds_parts_of_two_nodes_does_not_settle() {
    assert_eq!(outcome("spanning-cpuset", 1).counters["cling_settled"], 0);
}

/// With two threads per core, six loops are not gathered on a node of four cores while another node's four cores are
/// idle. If all CPUs are busy, groups settle.
#[test]
fn groups_settle_where_each_task_could_have_a_core() {
    for seed in SEEDS {
        let six = outcome("large-group-with-siblings", seed);
        assert_eq!(six.counters["cling_settled"], 0, "seed {seed}");
        assert_eq!(gathered(&six.groups[0]), 0.5, "seed {seed}: {:?}", six.groups);
        let groups = outcome("four-groups-with-siblings", seed).groups;
        assert!(groups.iter().all(|group| gathered(group) >= 0.95), "seed {seed}: {groups:?}");
    }
}

/// Two processes of eight threads on 2 x 8 CPUs. Their threads start on any CPU.
#[test]
fn two_processes_have_a_node_each() {
    for seed in SEEDS {
        let outcome = outcome("processes", seed);
        assert!(outcome.groups.iter().all(|group| gathered(group) >= 0.9), "{:?}", outcome.groups);
        assert!(outcome.counters["consolidate_settled"] >= 2, "seed {seed}");
    }
}

/// Cgroups of weight 100 and 300, with 32 busy loops each, on 16 CPUs.
#[test]
fn cgroups_share_by_weight_across_llcs() {
    for seed in SEEDS {
        let groups = outcome("weights", seed).groups;
        let ratio = (groups[1][0] + groups[1][1]) / (groups[0][0] + groups[0][1]);
        assert!((ratio / 3.0 - 1.0).abs() <= 0.05, "seed {seed}: {ratio}");
    }
}

/// Two cgroups of equal weight on 16 CPUs, with 24 and 216 loops. A loop of the second has a
/// ninth of the weight of a loop of the first.
#[test]
fn cgroups_share_by_weight_however_many_tasks_they_have() {
    for seed in SEEDS {
        let ran =
            outcome("many-in-one", seed).groups.iter().map(|on| on[0] + on[1]).collect::<Vec<_>>();
        let ratio = ran[1..].iter().sum::<f64>() / ran[0];
        assert!((ratio - 1.0).abs() <= 0.05, "seed {seed}: {ratio}");
    }
}

/// Sixteen loops are limited to four CPUs. CPUs of other LLCs become idle again and again, and find no task there that
/// they may run. Both those of the same node and those of the other node look at most once per millisecond (for 20 s).
#[test]
fn what_others_may_not_run_is_not_looked_at_all_the_time() {
    let outcome = outcome("overloaded-cpuset", 1);
    assert!(outcome.idle > 0.5, "{}", outcome.idle);
    assert!(outcome.counters["vain_looks"] <= 2 * 20_000, "{}", outcome.counters["vain_looks"]);
}

/// Twelve loops share two LLCs. One LLC also has many tasks that may not leave it, the other has few.
#[test]
fn weights_are_evened_out_beside_what_may_not_move() {
    for seed in SEEDS {
        let groups = outcome("evened-beside-masked", seed).groups;
        let [eight, four] = [0, 1].map(|group: usize| groups[group][0] + groups[group][1]);
        assert!((eight / four / 2.0 - 1.0).abs() < 0.05, "{seed}: {groups:?}");
    }
}

/// A parent forks three loops for each CPU. Once no CPU is idle, all of them queue in the parent's LLC. Two seconds
/// later each loop gets its share, whatever the machine's size.
#[test]
fn what_one_parent_forked_is_evened_out_within_two_seconds() {
    for shape in LARGE {
        let counters = outcome_on(shape, "forked", 1).counters;
        let (least, most) = (counters["least"] as f64, counters["most"] as f64);
        assert!(least / most >= 0.7, "{shape:?}: {least} to {most} ns of a second");
        assert!(counters["evened"] > 0, "{shape:?}");
    }
}

/// The tasks of one node may not leave it, and its queues are long. CPUs of the other node become idle again and again.
/// Each look through a queue takes the queue's lock for every task, so CPUs rely on looks that other CPUs of their node
/// made in vain.
#[test]
fn an_idle_cpu_looks_at_few_waiting_tasks() {
    for shape in LARGE {
        let counters = outcome_on(shape, "full-beside-idle", 1).counters;
        assert!(counters["dispatch_steps_most"] <= 16, "{shape:?}: {counters:?}");
        let [nodes, llcs, _] = shape.map(u64::from);
        // The limit: each node looks at each full LLC once per ms for 200 ms, and so do CPUs that were woken to help.
        let looks = counters["dispatch_calls"] * counters["dispatch_steps_mean"] / 1000;
        assert!(looks <= 200 * 2 * 16 * llcs / nodes, "{shape:?}: {looks}");
    }
}

/// Ended processes and cgroups free their places in the tables: a hundred, one after the other, fit in tables for 64,
/// and no table is scanned afterwards. If a hundred exist at the same time, some find no place, which is counted and
/// reported.
#[test]
fn places_in_tables_are_given_back_and_missed_ones_counted() {
    let (gone, crowd) = (outcome("come-and-go", 1).counters, outcome("many-processes", 1).counters);
    for name in ["sets_full", "cgroups_full", "full", "groups_used", "processes_used"] {
        assert_eq!(gone[name], 0, "{name}");
    }
    assert!(crowd["sets_full"] > 0 && crowd["cgroups_full"] > 0, "{crowd:?}");
    assert_eq!(crowd["full"], 7, "groups, processes and cgroups");
}

/// A task whose affinity could not be recorded runs at once on its previous CPU, if that CPU is idle.
#[test]
fn a_task_whose_affinity_is_not_known_does_not_wait_beside_idle_cpus() {
    for seed in SEEDS {
        let counters = outcome("unknown-affinities", seed).counters;
        assert!(
            counters["affinity_unknown"] > 0 && counters["direct"] > 1000,
            "{seed}: {counters:?}"
        );
        assert!(counters["run_delay_max_ns"] < 10_000_000, "{seed}: {counters:?}");
    }
}

/// The cost of the most expensive call of each hook, for one kind of cost.
fn most(counters: &BTreeMap<String, u64>, kind: &str) -> u64 {
    let hooks = ["select_cpu", "enqueue", "dispatch", "running", "stopping", "update_idle"];
    hooks.iter().map(|hook| counters[&format!("{hook}_{kind}_most")]).max().unwrap()
}

/// Tasks with an affinity charge their groups and processes for nodes that they may not use, wake up, and queue. None
/// of this asks about every CPU that they may not use.
#[test]
fn an_affinity_costs_no_more_on_a_large_machine() {
    for shape in LARGE {
        let counters = outcome_on(shape, "with-affinity", 1).counters;
        assert!(counters["stopping_calls"] > 1000, "{shape:?}");
        assert!(most(&counters, "entries") <= 40, "{shape:?}: {counters:?}");
    }
}

/// Cpusets have more tasks than CPUs, and idle CPUs outside may not help.
#[test]
fn overloaded_cpusets_ask_for_few_cpus() {
    for shape in LARGE {
        let counters = outcome_on(shape, "crowded-beside-idle", 1).counters;
        assert!(counters["enqueue_calls"] > 1000, "{shape:?}");
        assert!(most(&counters, "masks") <= 64, "{shape:?}: {counters:?}");
        assert!(counters["watch_masks_most"] <= 64, "{shape:?}: {counters:?}");
    }
}

/// If CPUs are busy for 92% of the time, `sis-util` keeps a wakeup from searching its LLC and its node. The wakeup then
/// costs the same on any machine. The exception is one wakeup every few milliseconds, which sums up the utilisation of
/// its LLC's CPUs.
#[test]
fn a_wakeup_near_saturation_does_not_search_the_node() {
    for shape in LARGE {
        let counters = outcome_on(shape, "near-saturation", 1).counters;
        assert!(counters["queued"] > counters["ttwu_count"] / 2, "{shape:?}: {counters:?}");
        assert!(counters["select_cpu_entries_mean"] <= 4000, "{shape:?}: {counters:?}");
        assert!(counters["select_cpu_lookups_mean"] <= 12_000, "{shape:?}: {counters:?}");
        assert!(
            counters["select_cpu_entries_most"] <= 4 + u64::from(shape[2]),
            "{shape:?}: {counters:?}"
        );
    }
}

/// Threads of one process wake each other across the machine. A wakeup transfers few cache lines, even if the task has
/// to queue.
#[test]
fn a_wakeup_transfers_few_cache_lines() {
    for shape in [LARGE[0], LARGE[2]] {
        let counters = run(&programs()[1], shape, "threads", 1).counters;
        let of = |hook: &str| {
            counters[&format!("{hook}_calls")] * counters[&format!("{hook}_lines_mean")]
        };
        let lines = of("select_cpu") + of("enqueue");
        assert!(lines > 0 && lines <= 4000 * counters["ttwu_count"], "{shape:?}: {counters:?}");
    }
}

/// Two of three loops in an LLC start another program (exec). The first goes to the node with more idle CPUs. After
/// that, the imbalance is within the tolerance of numa-imbalance, so the second goes to the idlest LLC of its own node.
#[test]
fn a_task_that_begins_a_program_is_placed_anew() {
    let (on, off) = (outcome("exec", 1), outcome("exec-off", 1));
    assert_eq!(on.counters["numa_imbalance_spread"], 2);
    assert_eq!((on.counters["llc_migrations"], on.counters["node_migrations"]), (2, 1));
    for name in ["numa_imbalance_spread", "numa_imbalance_local", "llc_migrations"] {
        assert_eq!(off.counters[name], 0, "{name}");
    }
}

/// 24 tasks that run for 5 of 15 ms are all woken on the first node and need half of the machine. If more of them wait
/// than numa-imbalance tolerates, waiting tasks go to the other node.
#[test]
fn wakeups_leave_a_node_that_is_ahead() {
    for seed in SEEDS {
        let (on, off) = (outcome("wakeups", seed), outcome("wakeups-off", seed));
        assert!(
            on.counters["numa_imbalance_spread"] > 0 && on.counters["numa_imbalance_local"] > 0
        );
        assert!(off.counters["numa_imbalance_spread"] == 0);
        assert!(off.counters["numa_imbalance_local"] == 0);
        let waited = |outcome: &Outcome| outcome.counters["run_delay_ns"];
        assert!(waited(&on) * 2 < waited(&off), "{seed}: {} {}", waited(&on), waited(&off));
    }
}

/// Tasks of 0.2 ms preempt loops. Tasks that all run for 5 ms, longer than a slice, do not preempt each other.
#[test]
fn short_bursts_preempt_and_long_ones_do_not() {
    for seed in SEEDS {
        let (short, long) = (outcome("four-groups", seed), outcome("wakeups", seed));
        assert!(short.counters["preempted"] > 1000, "{seed}: {:?}", short.counters);
        assert_eq!(long.counters["preempted"], 0, "{seed}");
    }
}

/// Six tasks, busy for half of the time, are in an LLC of four CPUs, next to an empty LLC. With bursts of 1 ms,
/// `llc-imbalance` lets tasks leave while the LLC is ahead by more than the two tasks that it tolerates: two tasks
/// leave, once. With bursts of 0.2 ms, which is less than a migration costs, tasks wait instead.
#[test]
fn tasks_leave_an_llc_that_is_ahead_unless_they_wait_for_brief_ones() {
    for seed in SEEDS {
        let [short, brief] = ["short-bursts", "brief-bursts"].map(|scene| outcome(scene, seed));
        assert!((1..=2).contains(&short.counters["llc_spilled"]), "{seed}: {:?}", short.counters);
        assert_eq!(short.counters["llc_stolen"], 0, "{seed}");
        assert_stays(&brief, seed);
    }
}

/// Without `llc-imbalance` there is no tolerance: tasks leave, however short they run.
#[test]
fn without_llc_imbalance_nothing_is_kept_in_an_llc() {
    for seed in SEEDS {
        let off = outcome("brief-off", seed);
        assert_eq!(off.counters["llc_imbalance_kept"], 0, "{seed}: {:?}", off.counters);
        assert!(off.counters["llc_spilled"] > 0, "{seed}: {:?}", off.counters);
    }
}

/// Five tasks are in an LLC of four CPUs, three loops in the other LLC, so the first is ahead by at most two. With
/// short bursts (1 ms), the fifth task waits for the rest of a burst. With long bursts (10 ms), it goes to the idle CPU
/// of the other LLC, when it wakes up or because that CPU pulls it.
#[test]
fn long_bursts_leave_a_busy_llc_and_short_ones_do_not() {
    let mut spilled = 0;
    for seed in SEEDS {
        let [short, long] = ["tolerated", "long-bursts"].map(|scene| outcome(scene, seed));
        assert_stays(&short, seed);
        let longest = short.counters["run_delay_max_ns"];
        assert!((1..=1_000_000).contains(&longest), "{seed}: {longest}");
        assert!(long.counters["llc_spilled"] + long.counters["llc_stolen"] > 0, "{seed}");
        spilled += long.counters["llc_spilled"];
        let wait = |of: &Outcome| of.counters["run_delay_ns"] / of.counters["ttwu_count"];
        assert!(
            wait(&short) > 20_000 && wait(&long) < 20_000,
            "{seed}: {} {}",
            wait(&short),
            wait(&long)
        );
    }
    assert!(spilled > 0);
}

/// Asserts that no task left the LLC, although some could have.
fn assert_stays(outcome: &Outcome, seed: u32) {
    for name in ["llc_spilled", "llc_stolen", "llc_migrations"] {
        assert_eq!(outcome.counters[name], 0, "{seed}: {name}");
    }
    assert!(outcome.counters["llc_imbalance_kept"] > 0, "{seed}");
}

/// Twelve loops share four CPUs. Each runs for 4 ms (a tick), and a loop starts every 1 ms, so waiting loops are a
/// third of a ms of virtual time apart. A task that slept is queued behind the two loops in the first quarter of a
/// slice, and waits for two to three turns. It runs for 0.2 ms after every 10 ms of sleep, for 10 s.
#[test]
fn who_slept_does_not_wait_before_all_others() {
    for seed in SEEDS {
        let [first, second] = outcome("sleeper", seed).groups[12];
        let wait_ms = 10_000.0 / ((first + second) / 200_000.0) - 10.2;
        assert!((2.0..3.0).contains(&wait_ms), "{seed}: {wait_ms} ms");
    }
}

/// A task that a kernel thread pushes off its CPU finds another CPU in its LLC. CPUs of other LLCs do not take it,
/// because its queue has not held tasks for long.
#[test]
fn kernel_threads_do_not_push_a_task_out_of_its_llc() {
    for seed in SEEDS {
        let counters = outcome("kernel-threads", seed).counters;
        assert!(counters["kernel_threads"] > 0 && counters["nr_migrations"] > 0, "{seed}");
        assert_eq!(counters["llc_migrations"], 0, "{seed}");
    }
}

/// A kernel thread takes a loop's CPU for 0.2 ms, thousands of times, and the loop waits. CPUs of the node's other LLC
/// become idle meanwhile and leave the loop where it is. This costs the loop a hundredth of its time (twice 0.2 ms in
/// 40 ms).
#[test]
fn a_long_task_waits_where_a_short_one_has_its_cpu() {
    for seed in SEEDS {
        let Outcome { groups, counters, .. } = outcome("displaced", seed);
        assert!(counters["kernel_threads"] > 4000, "{seed}");
        assert!(counters["llc_migrations"] < 20, "{seed}: {}", counters["llc_migrations"]);
        assert!(groups[0][0] > 9.9e9, "{seed}: {groups:?}");
    }
}

/// 41 loops share four CPUs. Each gets one turn in 41 slices on 4 CPUs, and a slice lasts at most a tick of 4 ms. One
/// of the loops is bound to a single CPU, and its weight puts it far ahead in virtual time. It waits for the second
/// that the watch allows, at most 100 ms until the next check of the watch, and then for its turn.
#[test]
fn a_task_bound_to_a_cpu_waits_no_longer_than_the_bound() {
    for seed in SEEDS {
        let longest = outcome("bound-loop", seed).counters["run_delay_max_ns"];
        let bound = 1_100_000_000 + 41 * 4_000_000 / 4 + 2 * 4_000_000;
        assert!((1_000_000_000..bound).contains(&longest), "{seed}: {longest} ns");
    }
}

/// The same holds behind loops of nice -20, whose weights would let them run for half a minute.
#[test]
fn a_task_of_little_weight_waits_no_longer_than_the_bound() {
    for seed in SEEDS {
        let longest = outcome("heavy-loops", seed).counters["run_delay_max_ns"];
        let bound = 1_100_000_000 + 2 * 4_000_000;
        assert!((1_000_000_000..bound).contains(&longest), "{seed}: {longest} ns");
    }
}

/// The same holds if the task is queued again every 0.9 s, for example because its affinity changes.
#[test]
fn who_is_queued_anew_has_waited_before() {
    for seed in SEEDS {
        let longest = outcome("queued-again", seed).counters["longest_ns"];
        assert!(longest <= 1_800_000_000, "{seed}: {longest} ns");
    }
}

/// A kernel thread that never sleeps and one that wakes up often leave a loop on their CPU its share.
#[test]
fn kernel_threads_leave_a_cpu_to_others() {
    for seed in SEEDS {
        let groups = outcome("busy-kernel-threads", seed).groups;
        assert!(groups[1][0] > 0.95 * groups[0][0], "{seed}: {groups:?}");
    }
}

/// Idle CPUs may not run the tasks that wait on their own node, so they help another node. Its ten loops lose only the
/// time until they leave it: waiting for 20 ms, and at most 100 ms until the next check of the watch.
#[test]
fn what_may_not_run_here_keeps_no_cpu_from_helping() {
    for seed in SEEDS {
        let groups = outcome("masked-beside-idle", seed).groups;
        let lost = 100e9 - groups[0][0] - groups[0][1];
        assert!((0.0..0.5e9).contains(&lost), "{seed}: {groups:?}");
    }
}

/// Four loops share two CPUs, and one of them is bound to one CPU. Tasks ahead of it in the queue that may not run on
/// its CPU do not delay it.
#[test]
fn a_bound_task_is_not_held_up_by_who_may_not_run_there() {
    for seed in SEEDS {
        let groups = outcome("masked-heads", seed).groups;
        assert!((groups[1][0] * 3.0 / groups[0][0] - 1.0).abs() < 0.05, "{seed}: {groups:?}");
    }
}

/// Two loops bound to one CPU share it by weight (nice 0 and 5), whatever happens on other CPUs. There, two loops of
/// nice 5 advance twice as fast in virtual time.
#[test]
fn tasks_of_one_cpu_share_it_by_weight() {
    for seed in SEEDS {
        let groups = outcome("pinned", seed).groups;
        let ratio = groups[0][0] / groups[1][0];
        assert!((ratio / (100.0 / 33.0) - 1.0).abs() < 0.05, "{seed}: {groups:?}");
    }
}

/// A loop bound to one CPU weighs twice as much as each of seven other loops in its LLC. It gets 2 of 9 parts of the
/// four CPUs, although it ran apart from the others before.
#[test]
fn a_task_of_one_cpu_competes_by_weight_with_others() {
    for seed in SEEDS {
        let groups = outcome("pinned-among-others", seed).groups;
        let share = groups[0][0] / (groups[0][0] + groups[1][0]);
        assert!((share / (2.0 / 9.0) - 1.0).abs() < 0.05, "{seed}: {groups:?}");
    }
}

/// Two loops share a CPU by weight, 2 to 1. One is bound to that CPU, the other could also use another CPU.
#[test]
fn a_task_of_one_cpu_competes_by_weight_with_the_one_that_runs() {
    for seed in SEEDS {
        let groups = outcome("pinned-beside-one", seed).groups;
        assert!((groups[0][0] / groups[1][0] / 2.0 - 1.0).abs() < 0.05, "{seed}: {groups:?}");
    }
}

/// A task had the only CPU that it may use to itself for a minute. When eight loops come to the four CPUs of its LLC,
/// it waits for its turn: at most three slices, each of which ends with a tick.
#[test]
fn what_a_task_of_one_cpu_ran_alone_is_not_held_against_it() {
    for seed in SEEDS {
        let longest = outcome("pinned-worker", seed).counters["run_delay_max_ns"];
        assert!((1..=3 * 4_000_000).contains(&longest), "{seed}: {longest} ns");
    }
}

/// An RCU reader needs 100 ms of CPU time, and its weight gives it 4 ms per second. After the wait that makes it count
/// as a reader (at most 1.1 s), it gets turns like the 12 other loops on four CPUs. Once it has finished reading, it
/// gets only what its weight says.
#[test]
fn readers_of_rcu_do_not_wait_for_their_weight() {
    for seed in SEEDS {
        let outcome = outcome("rcu-reader", seed);
        assert!(
            outcome.counters["read_ns"] < 1_100_000_000 + 100_000_000 * 13 / 4,
            "{seed}: {:?}",
            outcome.counters
        );
        let share = outcome.groups[1][0] / outcome.groups[0][0];
        assert!(share < 0.002, "{seed}: {:?}", outcome.groups);
    }
}

#[test]
fn a_cpu_that_a_realtime_task_wants_takes_nothing() {
    outcome("realtime", 1);
}

/// Sixteen loops have five CPUs: realtime tasks use all but one CPU of the first LLC, and the next LLC has four CPUs.
/// At most four loops are in the first LLC, and the others in the next. (If one more moved, the difference would be
/// reversed.)
#[test]
fn cpus_of_realtime_tasks_serve_nobody() {
    for seed in SEEDS {
        let outcome = outcome("hogs", seed);
        let times = || outcome.groups.iter().map(|group| group[0]);
        let (least, most) = (times().fold(f64::MAX, f64::min), times().fold(0.0, f64::max));
        assert!(least > 0.99 * most * 3.0 / 4.0, "{seed}: {:?}", outcome.groups);
    }
}

#[test]
fn a_new_nice_value_is_no_sleep() {
    outcome("reniced", 1);
}

#[test]
fn a_process_does_not_inherit_where_another_of_its_number_settled() {
    outcome("number-again", 1);
}

/// A process starts idle and later needs twelve of sixteen CPUs. It does not settle on eight CPUs in between.
#[test]
fn a_process_that_grows_does_not_settle() {
    for seed in SEEDS {
        assert_eq!(outcome("begins-idle", seed).counters["consolidate_settled"], 0, "{seed}");
    }
}

/// A process that settled with three loops and then grows to twelve leaves its node: after the 3.2 s for which needing
/// too much is allowed, plus some tenths of a second until this is noticed.
#[test]
fn a_process_that_has_grown_leaves() {
    for seed in SEEDS {
        let counters = outcome("begins-small", seed).counters;
        assert!(counters["consolidate_settled"] > 0, "{seed}");
        assert!(counters["left_after"] < 4_200_000_000, "{seed}: {} ns", counters["left_after"]);
    }
}

#[test]
fn the_watch_does_not_believe_an_old_time() {
    outcome("old-time", 1);
}

#[test]
fn what_waits_for_the_only_cpu_it_may_use_in_an_llc_leaves_with_it() {
    outcome("masked-offline", 1);
}

#[test]
fn what_waits_for_a_cpu_that_begins_to_leave_is_handed_over() {
    outcome("leaving", 1);
}

#[test]
fn a_task_that_moves_too_late_is_counted_where_it_is() {
    outcome("moved-too-late", 1);
}

/// Loops have the CPUs of an LLC to themselves for ten seconds, then as many new loops come. The old loops do not have
/// to make up for CPU time that nobody else wanted: each waits for one turn of two, and a slice ends with a tick.
#[test]
fn who_was_alone_does_not_make_up_for_it() {
    for seed in SEEDS {
        let longest = outcome("newcomers", seed).counters["run_delay_max_ns"];
        assert!((1..=2 * 4_000_000).contains(&longest), "{seed}: {longest} ns");
    }
}

/// An idle CPU that is woken for a waiting task may run that task.
#[test]
fn idle_cpus_are_asked_that_may_run_what_waits() {
    for seed in SEEDS {
        let counters = outcome("widened", seed).counters;
        // The tasks wait for each other only in the first second.
        assert!(
            counters["run_delay_ns"] < 1_200_000_000,
            "{seed}: {} ns",
            counters["run_delay_ns"]
        );
    }
}

/// If a task changes its scheduling class while it waits, it no longer counts as waiting, and its waiting time ends.
#[test]
fn a_task_of_another_class_does_not_wait() {
    for seed in SEEDS {
        let longest = outcome("other-class", seed).counters["run_delay_max_ns"];
        assert!(longest < 1_000_000_000, "{seed}: {longest} ns");
    }
}

/// An offline CPU gets no tasks, and gets work as soon as it is back.
#[test]
fn a_cpu_goes_and_comes_back() {
    for seed in SEEDS {
        let outcome = outcome("hotplug", seed);
        assert!(outcome.idle < 0.01, "{seed}: {}", outcome.idle);
        // A loop that was alone on its CPU is ahead of others by up to `lead-ms`, 500 ms (docs/understand/live.md: 1.1
        // s).
        let longest = outcome.counters["run_delay_max_ns"];
        assert!(longest < 1_100_000_000, "{seed}: {longest} ns");
    }
}

/// Seconds that each group ran.
fn ran(outcome: &Outcome) -> Vec<f64> {
    outcome.groups.iter().map(|on| (on[0] + on[1]) / 1e9).collect()
}

/// Whether a value is within 5% of the expected one.
fn about(ran: f64, expected: f64) -> bool {
    (ran / expected - 1.0).abs() <= 0.05
}

/// Limits of 20%, 50% and 250% of a CPU hold within a second for groups of four loops. A group of four loops without a
/// limit loses nothing. With limits switched off, all four groups get all they can use.
#[test]
fn limits_hold_within_a_second() {
    for seed in SEEDS {
        let [on, off] = ["limits", "limits-off"].map(|scene| outcome(scene, seed));
        let ran_on = ran(&on);
        for (ran, limit) in ran_on.iter().zip([0.2, 0.5, 2.5, 4.0]) {
            assert!(about(*ran, limit), "{seed}: {ran_on:?}");
        }
        assert!(ran(&off).iter().all(|&ran| ran > 3.5), "{seed}: {:?}", ran(&off));
        for name in ["nr_periods", "nr_throttled", "throttled_usec"] {
            assert!(on.counters[name] > 0 && off.counters[name] == 0, "{seed}: {name}");
        }
    }
}

/// A limit of 20% applies to the sum of all groups inside, whatever their own limits. When it is raised to 200%, a
/// group inside with a limit of 50% gets its 50%.
#[test]
fn limits_hold_for_all_within() {
    for seed in SEEDS {
        let ran = ran(&outcome("limits-nested", seed));
        assert!(about(ran[..3].iter().sum(), 0.2), "{seed}: {ran:?}");
        assert!(ran[..3].iter().all(|&ran| ran > 0.02), "{seed}: {ran:?}");
        assert!(about(ran[3..].iter().sum(), 2.0), "{seed}: {ran:?}");
        assert!(about(ran[4], 0.5), "{seed}: {ran:?}");
    }
}

/// A limit is changed, removed and set again. The kernel reports it to the scheduler, or the scheduler reads it from
/// the fair class.
#[test]
fn limits_change() {
    for scene in ["limits-changed", "limits-read"] {
        for seed in SEEDS {
            let ran = ran(&outcome(scene, seed));
            for (phase, limit) in [0.2, 0.5, 4.0, 0.2].into_iter().enumerate() {
                assert!(about(ran[phase], limit), "{scene} {seed}: {ran:?}");
            }
        }
    }
}

/// A hundred loops share a limit of 1% of a CPU. The kernel ends a scheduler if a task waits for 30 s. So a task that
/// has been parked for ten seconds may run for a moment; the group still uses only 1%.
#[test]
fn no_task_is_parked_until_the_watchdog_barks() {
    for seed in SEEDS {
        let outcome = outcome("limits-crowd", seed);
        assert!(about(ran(&outcome)[0], 0.6), "{seed}: {:?}", ran(&outcome));
        let longest = outcome.counters["longest_ns"];
        assert!((1..11_000_000_000).contains(&longest), "{seed}: {longest} ns");
    }
}

/// Tasks use 290% of a CPU in short bursts. A limit of 400% does not affect them, although all of them may run at once.
/// They fully use a limit of 200%.
#[test]
fn short_bursts_use_their_limit_and_are_not_parked_below_it() {
    for seed in SEEDS {
        let [kept, exceeded] = ["limits-kept", "limits-exceeded"].map(|scene| outcome(scene, seed));
        assert_eq!(kept.counters["nr_throttled"], 0, "{seed}");
        assert!(about(ran(&kept)[0], 29.0), "{seed}: {:?}", ran(&kept));
        assert!(about(ran(&exceeded)[0], 20.0), "{seed}: {:?}", ran(&exceeded));
    }
}

/// Two loops limited to 20% of the only CPU that they may use. An unlimited loop shares this CPU, and another runs
/// elsewhere.
#[test]
fn limits_hold_for_tasks_of_one_cpu() {
    for seed in SEEDS {
        let ran = ran(&outcome("limits-bound", seed));
        assert!(about(ran[0], 0.2) && about(ran[1], 1.8), "{seed}: {ran:?}");
    }
}

/// Parked tasks run after they change to a cgroup without a limit, or when they exit. A parked task whose CPU goes
/// offline stays parked.
#[test]
fn nothing_is_left_of_a_limit() {
    for seed in SEEDS {
        let ran = ran(&outcome("limits-left", seed));
        assert!(ran.iter().all(|&ran| about(ran, 1.0)), "{seed}: {ran:?}");
    }
}

/// The scheduler must be loaded again if a CPU comes that has no place in its tables, or if the last CPU of an LLC
/// goes.
#[test]
fn what_has_no_place_needs_a_new_start() {
    outcome("new-cpu", 1);
    outcome("last-cpu", 1);
}

#[test]
fn nothing_settles_when_that_is_off() {
    for (name, value) in outcome("off", 1).counters {
        let of_sets = name.starts_with("cling_") || name.starts_with("consolidate_");
        assert!(!of_sets || value == 0, "{name} {value}");
    }
}
