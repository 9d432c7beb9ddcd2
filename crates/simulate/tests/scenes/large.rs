//! What hooks cost, and whether weights hold, on machines of 16 to 512 CPUs.

use roost_machine::Machine;
use roost_workload::Op;

use crate::kit::{MS, SECOND, SIZES, Scene, Seen, Task};

/// Hooks that are called all the time.
const HOOKS: [&str; 6] =
    ["select_cpu", "enqueue", "dispatch", "running", "stopping", "update_idle"];

/// The most of one call of any hook.
fn most(seen: &Seen, kind: &str) -> u64 {
    HOOKS.iter().map(|hook| seen.count(&format!("{hook}_most_{kind}"))).max().unwrap()
}

fn llcs(machine: &str) -> u32 {
    let machine: Machine = roost_machine::resolve(machine).unwrap();
    machine.llcs.len() as u32
}

/// A parent forks three loops for each CPU. Once no CPU is idle, all of them queue in the parent's LLC. Two seconds
/// later each loop gets its share, whatever the machine's size.
#[test]
fn what_one_parent_forked_is_evened_out_within_two_seconds() {
    for machine in SIZES {
        let mut scene = Scene::new(machine, 1);
        let count = 3 * scene.cpus();
        scene.add_all("loops", (0..count).map(|_| Task::spins()));
        let seen = scene.play(2 * SECOND + 100 * MS, 3 * SECOND + 100 * MS);
        let ran = || seen.of("loops").map(|task| task.ran());
        let (least, most) = (ran().min().unwrap() as f64, ran().max().unwrap() as f64);
        assert!(least / most >= 0.7, "{machine}: {least} to {most} ns of a second");
        assert!(seen.counter("evened") > 0, "{machine}");
    }
}

/// The tasks of one node may not leave it, and its queues are long. CPUs of the other node become idle again and again.
/// Each look through a queue takes the queue's lock for every task, so CPUs rely on looks that other CPUs of their node
/// made in vain.
#[test]
fn an_idle_cpu_looks_at_few_waiting_tasks() {
    for machine in SIZES {
        let mut scene = Scene::new(machine, 1).counted_from(SECOND / 2);
        let half = scene.cpus() / 2;
        let (first, second) = (scene.group(100), scene.group(100));
        for number in 0..3 * half {
            scene.add("loops", Task::spins().group(first).on(0..half).first_on(number % half));
        }
        for number in 0..2 * half {
            let task = scene.naps(MS / 5, MS).group(second).first_on(half + number % half);
            scene.add("naps", task);
        }
        let seen = scene.play(SECOND / 2, 7 * SECOND / 10);
        assert!(seen.count("dispatch_most_steps") <= 16, "{machine}");
    }
}

/// Two groups of loops and sleeping tasks use every CPU. Each task may not use one CPU of the other node.
#[test]
fn an_affinity_costs_no_more_on_a_large_machine() {
    for machine in SIZES {
        let mut scene = Scene::new(machine, 1).counted_from(SECOND / 2);
        let (cpus, half) = (scene.cpus(), scene.cpus() / 2);
        let groups = [scene.group(100), scene.group(100)];
        let processes = [scene.process(), scene.process()];
        for number in 0..2 * cpus {
            let node = number % 2;
            let task = if number < cpus { Task::spins() } else { scene.naps(MS, 4 * MS) };
            let allowed = if node == 0 { 0..half } else { 2..cpus };
            let task = task.on(allowed).first_on(node * half + (2 + number / 2) % half);
            let node = node as usize;
            scene.add("tasks", task.group(groups[node]).thread_of(processes[node]));
        }
        let seen = scene.play(SECOND / 2, SECOND);
        assert!(seen.count("stopping_calls") > 1000, "{machine}");
        assert!(most(&seen, "lines") <= 40, "{machine}");
    }
}

/// Every other LLC of a node is a cpuset with three times as many tasks as CPUs, and idle CPUs outside may not help.
#[test]
fn overloaded_cpusets_ask_for_few_cpus() {
    for machine in SIZES {
        let mut scene = Scene::new(machine, 1).counted_from(SECOND / 2);
        let size = scene.cpus() / llcs(machine);
        for llc in (0..llcs(machine) / 2).step_by(2) {
            for number in 0..3 * size {
                let burst_ns = if number % 2 == 1 { 5 * MS } else { MS / 5 };
                let part = llc * size..(llc + 1) * size;
                let task =
                    scene.naps(burst_ns, 2 * MS).on(part).first_on(llc * size + number % size);
                scene.add("tasks", task);
            }
        }
        let seen = scene.play(SECOND / 2, SECOND);
        assert!(seen.count("enqueue_calls") > 1000, "{machine}");
        assert!(most(&seen, "kfuncs") <= 64, "{machine}");
    }
}

/// Mean of a count in a call.
fn mean(seen: &Seen, hook: &str, kind: &str) -> f64 {
    seen.count(&format!("{hook}_{kind}")) as f64 / seen.count(&format!("{hook}_calls")) as f64
}

/// If CPUs are busy for 92% of the time, `sis-util` keeps a wakeup from searching its LLC and its node. The wakeup then
/// costs the same on any machine: four cache lines that other CPUs write, and no more instructions than on 16 CPUs, but
/// for the words that a larger machine has.
#[test]
fn a_wakeup_near_saturation_does_not_search_the_node() {
    let mut smallest = 0.0;
    for machine in SIZES {
        let mut scene = Scene::new(machine, 1).counted_from(SECOND / 2);
        for number in 0..2 * scene.cpus() {
            let task = scene.naps(MS / 2, MS * 100 / 92 - MS / 2).first_on(number % scene.cpus());
            scene.add("tasks", task);
        }
        let seen = scene.play(SECOND / 2, 7 * SECOND / 10);
        let [queued, woken] = ["queued", "ttwu_count"].map(|name| seen.counter(name));
        assert!(queued > woken / 2, "{machine}: {queued} of {woken}");
        let lines = mean(&seen, "select_cpu", "lines");
        assert!(lines <= 4.0, "{machine}: {lines}");
        if scene.cpus() >= 384 {
            let lines = lines_a_wakeup(&seen);
            assert!(lines > 0.0 && lines <= 4.0, "{machine}: {lines} a wakeup");
        }
        let instructions = mean(&seen, "select_cpu", "instructions");
        smallest = if smallest == 0.0 { instructions } else { smallest };
        assert!(instructions <= 1.25 * smallest, "{machine}: {instructions}, not {smallest}");
    }
}

/// Lines that a wakeup transfers: in `select_cpu`, and in `enqueue` where the task has to wait.
fn lines_a_wakeup(seen: &Seen) -> f64 {
    let lines = seen.count("select_cpu_lines") + seen.count("enqueue_lines");
    lines as f64 / seen.counter("ttwu_count") as f64
}

/// Threads of one process wake each other across the machine: pairs of which one thread runs, then the other. CPUs are
/// busy for 60% of the time. `spread`: the threads start anywhere, not on one CPU.
fn pairs_of_a_process(machine: &str, settings: &str, spread: bool) -> Seen {
    let mut scene = Scene::new(machine, 1).counted_from(SECOND / 2).with(settings);
    let (process, cpus) = (scene.process(), scene.cpus());
    for pair in 0..cpus * 6 / 10 {
        let [one, other] = [scene.channel(), scene.channel()];
        for (turn, [own, theirs]) in [[one, other], [other, one]].into_iter().enumerate() {
            let run = Op::Run { ns: MS / 2 };
            let (send, receive) =
                (Op::Send { channel: theirs, bytes: 1 }, Op::Receive { channel: own, bytes: 1 });
            let ops = if turn == 0 { [run, send, receive] } else { [receive, run, send] };
            let cpu = if spread { scene.chance(cpus.into()) as u32 } else { 0 };
            let task = Task::program(&[], &ops).thread_of(process).first_on(cpu);
            scene.add(if pair % 2 == 0 { "even" } else { "odd" }, task);
        }
    }
    scene.play(SECOND / 2, SECOND)
}

/// A wakeup transfers few cache lines. If the threads start on one CPU, they stay on its node, whose CPUs are nearly
/// always busy, and two of three wakeups queue.
#[test]
fn a_wakeup_transfers_few_cache_lines() {
    for machine in &SIZES[2..] {
        for (settings, spread) in [("+no-consolidate", true), ("", true), ("", false)] {
            let lines = lines_a_wakeup(&pairs_of_a_process(machine, settings, spread));
            assert!(lines > 0.0 && lines <= 4.0, "{machine}, {settings}, {spread}: {lines}");
        }
    }
}
