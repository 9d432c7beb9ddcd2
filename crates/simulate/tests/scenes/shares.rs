//! Who runs next and for how long: weights, affinities, and bounds on waiting.

use roost_workload::Op;

use crate::kit::{MS, SECOND, SEEDS, SMALL, Scene, TICK_NS, Task, about, weight};

/// Cgroups of weight 100 and 300, with 48 busy loops each, on 16 CPUs.
#[test]
fn cgroups_share_by_weight_across_llcs() {
    for seed in SEEDS {
        let mut scene = Scene::new(SMALL, seed).with("+no-cling");
        let groups = [scene.group(100), scene.group(300)];
        for number in 0..96 {
            let group = groups[number % 2];
            let cpu = scene.chance(16) as u32;
            scene.add(&format!("group{group}"), Task::spins().group(group).first_on(cpu));
        }
        let seen = scene.play(10 * SECOND, 20 * SECOND);
        let ratio = seen.ran("group1") / seen.ran("group0");
        assert!(about(ratio, 3.0), "seed {seed}: {ratio}");
    }
}

/// Two cgroups of equal weight on 16 CPUs, with 24 and 216 loops. A loop of the second has a ninth of the weight of a
/// loop of the first.
#[test]
fn cgroups_share_by_weight_however_many_tasks_they_have() {
    for seed in SEEDS {
        let mut scene = Scene::new(SMALL, seed).with("+no-cling");
        let groups = [scene.group(100), scene.group(100)];
        for number in 0..240 {
            let group = groups[usize::from(number % 10 > 0)];
            let cpu = scene.chance(16) as u32;
            scene.add(&format!("group{group}"), Task::spins().group(group).first_on(cpu));
        }
        let seen = scene.play(10 * SECOND, 20 * SECOND);
        let ratio = seen.ran("group1") / seen.ran("group0");
        assert!(about(ratio, 1.0), "seed {seed}: {ratio}");
    }
}

/// Machines with one LLC of 4 and of 16 CPUs. Few tasks wait there, and all CPUs have their ticks at the same time.
const ONE_LLC: [(&str, u32); 2] =
    [("node:1 l3:1 core:4 pu:1", 4), ("node:1 l3:1 core:16 pu:1", 16)];

/// Two loops for each CPU share the CPUs by nice value, at the root and in a cgroup. When slices end together, half of
/// the loops are on their way into the queue.
#[test]
fn nice_values_count_where_few_wait() {
    for ((machine, cpus), seed, in_cgroup) in [
        (ONE_LLC[0], 1, false),
        (ONE_LLC[0], 2, true),
        (ONE_LLC[0], 4, true),
        (ONE_LLC[1], 1, false),
        (ONE_LLC[1], 3, true),
    ] {
        let mut scene = Scene::new(machine, seed);
        let group = in_cgroup.then(|| scene.group(100));
        for number in 0..2 * cpus {
            let (name, nice) = if number < cpus { ("nice0", 0) } else { ("nice5", 5) };
            let task = Task::spins().first_on(number % cpus).nice(nice);
            scene.add(name, group.map_or(task.clone(), |group| task.group(group)));
        }
        let seen = scene.play(4 * SECOND, 20 * SECOND);
        let ratio = seen.ran("nice0") / seen.ran("nice5");
        assert!(
            about(ratio, weight(0) / weight(5)),
            "{machine}, seed {seed}, in a cgroup {in_cgroup}: {ratio}"
        );
    }
}

/// The same by weights of cgroups.
#[test]
fn weights_of_cgroups_count_where_few_wait() {
    for ((machine, cpus), seed) in ONE_LLC.into_iter().zip(SEEDS) {
        let mut scene = Scene::new(machine, seed);
        let groups = [scene.group(300), scene.group(100)];
        for number in 0..2 * cpus {
            let group = groups[(number / cpus) as usize];
            scene.add(&format!("group{group}"), Task::spins().group(group).first_on(number % cpus));
        }
        let seen = scene.play(4 * SECOND, 20 * SECOND);
        let ratio = seen.ran("group0") / seen.ran("group1");
        assert!(about(ratio, 3.0), "{machine}, seed {seed}: {ratio}");
    }
}

/// Each half of an LLC's CPUs belongs to other loops. Those of one half come before those of the other half, which may
/// not run them.
#[test]
fn nice_values_count_where_few_wait_for_each_half_of_an_llc() {
    for seed in SEEDS {
        let mut scene = Scene::new(ONE_LLC[0].0, seed);
        for number in 0..8 {
            let (half, nice) = (number % 2, if number < 4 { 0 } else { 5 });
            let task = Task::spins().on(half * 2..half * 2 + 2).first_on(half * 2);
            scene.add(&format!("nice{nice} of {half}"), task.nice(nice));
        }
        let seen = scene.play(4 * SECOND, 20 * SECOND);
        for half in 0..2 {
            let ratio =
                seen.ran(&format!("nice0 of {half}")) / seen.ran(&format!("nice5 of {half}"));
            assert!(about(ratio, weight(0) / weight(5)), "seed {seed}, half {half}: {ratio}");
        }
    }
}

/// Three loops for two CPUs share all CPUs equally, so each runs for two of three ticks. It waits for one tick, or for
/// two if others changed places at the same time. At each tick every second loop that ran gives way to one that waited.
/// Each of these changes leads to one more at most, because the CPU that took the waiting loop first had a task of an
/// earlier turn than another CPU.
#[test]
fn loops_share_equally_where_few_wait() {
    for ((machine, cpus), seed) in
        ONE_LLC.into_iter().flat_map(|one| SEEDS.map(move |seed| (one, seed)))
    {
        let mut scene = Scene::new(machine, seed);
        scene.add_all(
            "loops",
            (0..cpus * 3 / 2).map(|number| Task::spins().first_on(number % cpus)),
        );
        let seen = scene.play(4 * SECOND, 20 * SECOND);
        let ran = || seen.of("loops").map(|life| life.ran() as f64);
        let (least, most) = (ran().fold(f64::MAX, f64::min), ran().fold(0.0, f64::max));
        assert!(about(least, most), "{machine}, seed {seed}: {least} to {most} ns");
        let longest_ns = seen.longest_ns("loops");
        assert!(longest_ns <= 2 * TICK_NS + MS, "{machine}, seed {seed}: {longest_ns} ns");
        let changes = u64::from(cpus / 2) * (16 * SECOND / TICK_NS);
        let turns: u64 = seen.of("loops").map(|life| life.turns).sum();
        assert!((changes..=2 * changes).contains(&turns), "{machine}, seed {seed}: {turns} turns");
    }
}

/// 48 loops share two LLCs. One of the other LLCs has sixteen tasks that may not leave it, another has four.
#[test]
fn weights_are_evened_out_beside_what_may_not_move() {
    for seed in SEEDS {
        let mut scene = Scene::new(SMALL, seed);
        for number in 0..68 {
            let (name, llc, allowed) = match number {
                0..16 => ("first", 0, 0..4),
                16..48 => ("many", 1, 4..12),
                48..64 => ("few", 2, 4..12),
                _ => ("last", 3, 12..16),
            };
            scene.add(name, Task::spins().on(allowed).first_on(llc * 4 + number % 4));
        }
        let seen = scene.play(10 * SECOND, 20 * SECOND);
        let ratio = seen.ran("many") / seen.ran("few");
        assert!((1.8..2.2).contains(&ratio), "seed {seed}: {ratio}");
    }
}

/// Twelve loops share four CPUs. Each runs for 4 ms (a tick) and waits for 8 ms, and all CPUs switch at the same ticks.
/// A task that slept waits for the next tick, 2 ms in the mean, and is then behind loops in the first quarter of a
/// slice: sometimes for one more tick. It runs for 0.2 ms after every 10 ms of sleep.
#[test]
fn who_slept_does_not_wait_before_all_others() {
    for seed in SEEDS {
        let mut scene = Scene::new(SMALL, seed);
        scene.add_all("loops", (0..12).map(|number| Task::spins().on(0..4).first_on(number % 4)));
        let sleeper = scene.naps(MS / 5, 10 * MS).on(0..4);
        scene.add("sleeper", sleeper);
        let seen = scene.play(10 * SECOND, 20 * SECOND);
        let sleeper = seen.of("sleeper").next().unwrap();
        let wait_ms = sleeper.waited_ns as f64 / 1e6 / sleeper.turns as f64;
        assert!((2.0..4.0).contains(&wait_ms), "seed {seed}: {wait_ms} ms");
    }
}

/// The longest wait before the watch lets a task run: a second, and at most 100 ms until the next look.
const PATIENCE_NS: u64 = 1_100 * MS;

/// 41 loops share four CPUs. Each gets one turn in 41 slices on 4 CPUs, and a slice lasts at most a tick of 4 ms. One
/// of the loops is bound to a single CPU, and its weight puts it far ahead in virtual time. It waits for the second
/// that the watch allows, at most 100 ms until the next check of the watch, and then for its turn.
#[test]
fn a_task_bound_to_a_cpu_waits_no_longer_than_the_bound() {
    for seed in SEEDS {
        let mut scene = Scene::new(SMALL, seed);
        scene.add_all("loops", (0..40).map(|number| Task::spins().on(0..4).first_on(number % 4)));
        scene.add("bound", Task::spins().on([0]).nice(19));
        let longest_ns = scene.play(5 * SECOND, 20 * SECOND).longest_ns("bound");
        let bound = PATIENCE_NS + 41 * TICK_NS / 4 + 2 * TICK_NS;
        assert!((SECOND..bound).contains(&longest_ns), "seed {seed}: {longest_ns} ns");
    }
}

/// Loops of nice -20, one for each CPU of an LLC, and the loop of nice 19 that `last` adds.
fn heavy_loops(seed: u64) -> (Scene, u32) {
    let mut scene = Scene::new(SMALL, seed);
    scene.add_all("heavy", (0..4).map(|cpu| Task::spins().on(0..4).first_on(cpu).nice(-20)));
    let last = scene.add("light", Task::spins().on(0..4).nice(19));
    (scene, last)
}

/// The same holds behind loops of nice -20, whose weights would let them run for half a minute.
#[test]
fn a_task_of_little_weight_waits_no_longer_than_the_bound() {
    for seed in SEEDS {
        let longest_ns = heavy_loops(seed).0.play(5 * SECOND, 20 * SECOND).longest_ns("light");
        let bound = PATIENCE_NS + 2 * TICK_NS;
        assert!((SECOND..bound).contains(&longest_ns), "seed {seed}: {longest_ns} ns");
    }
}

/// The same holds if the task is queued again every 0.9 s, because its affinity changes.
#[test]
fn who_is_queued_anew_has_waited_before() {
    for seed in SEEDS {
        let (mut scene, template) = heavy_loops(seed);
        let renew = [
            Op::Sleep { ns: 900 * MS },
            Op::SetAffinityOf { template, set: 0 },
            Op::SetAffinityOf { template, set: 1 },
        ];
        // Not on a CPU of the loops.
        let manager = Task::program(&[], &renew).on([15]);
        scene.add("manager", manager.affinities(vec![vec![0, 1, 2], vec![0, 1, 2, 3]]));
        let seen = scene.play(2 * SECOND, 20 * SECOND);
        assert!(seen.count("set_cpumask_calls") >= 40, "{}", seen.count("set_cpumask_calls"));
        let longest_ns = seen.longest_ns("light");
        assert!(longest_ns < PATIENCE_NS + 2 * TICK_NS, "seed {seed}: {longest_ns} ns");
    }
}

/// The same holds for a task that sleeps and whose affinity changes every 0.65 ms, six times in a tick: each change
/// queues it again, and it keeps its place. In each queue that it comes to, two loops share each CPU. With CPUs of two
/// LLCs (seed 3) it is never in the queue at which a watch looks.
#[test]
fn who_slept_and_is_queued_anew_keeps_its_place() {
    for (seed, sets) in [
        (1, vec![vec![0, 1, 2], vec![0, 1, 2, 3]]),
        (2, vec![vec![0], vec![1]]),
        (3, vec![vec![0], vec![4]]),
    ] {
        let mut scene = Scene::new(SMALL, seed);
        let heavy = |cpu| Task::spins().on(cpu / 4 * 4..cpu / 4 * 4 + 4).first_on(cpu).nice(-20);
        scene.add_all("heavy", (0..16).map(|number| heavy(number / 2)));
        let naps = scene.naps(MS, 2 * MS).on(0..4).nice(19);
        let template = scene.add("light", naps);
        let change = |set| [Op::Sleep { ns: 650_000 }, Op::SetAffinityOf { template, set }];
        let renew = [change(0), change(1)].concat();
        scene.add("manager", Task::program(&[], &renew).on([15]).affinities(sets));
        let longest_ns = scene.play(0, 10 * SECOND).longest_ns("light");
        let bound = PATIENCE_NS + 9 * TICK_NS / 4 + 2 * TICK_NS;
        assert!((SECOND..bound).contains(&longest_ns), "seed {seed}: {longest_ns} ns");
    }
}

/// Loops have the CPUs of an LLC to themselves for ten seconds, then as many new loops come. The old loops do not have
/// to make up for CPU time that nobody else wanted: each waits for one turn of two, and a slice ends with a tick.
/// (Switching takes some microseconds each time.)
#[test]
fn who_was_alone_does_not_make_up_for_it() {
    for seed in SEEDS {
        let mut scene = Scene::new(SMALL, seed);
        scene.add_all("old", (0..4).map(|cpu| Task::spins().on(0..4).first_on(cpu)));
        let new = |cpu| Task::spins().on(0..4).first_on(cpu).begins(10 * SECOND);
        scene.add_all("new", (0..4).map(new));
        let longest_ns = scene.play(10 * SECOND, 15 * SECOND).longest_ns("old");
        assert!((1..=2 * TICK_NS + MS / 10).contains(&longest_ns), "seed {seed}: {longest_ns} ns");
    }
}

/// A kernel thread that never sleeps and one that wakes up often leave a loop on their CPU its share.
#[test]
fn kernel_threads_leave_a_cpu_to_others() {
    for seed in SEEDS {
        let mut scene = Scene::new(SMALL, seed);
        scene.add("busy", Task::spins().on([0]).kernel());
        let often = scene.naps(MS / 5, 2 * MS).on([0]).kernel();
        scene.add("often", often);
        scene.add("loop", Task::spins().on([0]));
        let seen = scene.play(0, 10 * SECOND);
        let (others, own) = (seen.ran("busy"), seen.ran("loop"));
        assert!(own > 0.95 * others, "seed {seed}: {own} and {others}");
    }
}

/// Idle CPUs may not run the tasks that wait on their own node, so they help another node. Its ten loops lose only the
/// time until they leave it: waiting for 20 ms, and at most 100 ms until the next check of the watch.
#[test]
fn what_may_not_run_here_keeps_no_cpu_from_helping() {
    for seed in SEEDS {
        let mut scene = Scene::new(SMALL, seed);
        scene.add_all("masked", (0..5).map(|number| Task::spins().on(0..4).first_on(number % 4)));
        let free: Vec<Op> = vec![Op::Runtime { ns: SECOND }, Op::SetAffinity(0)];
        let forever = [Op::Run { ns: SECOND }];
        for number in 0..10 {
            let task = Task::program(&free, &forever).on(8..16).affinities(vec![(0..16).collect()]);
            scene.add("free", task.first_on(8 + number % 8));
        }
        let lost = 100.0 - scene.play(SECOND, 11 * SECOND).ran("free");
        assert!((0.0..0.5).contains(&lost), "seed {seed}: {lost} s");
    }
}

/// Four loops share two CPUs, and one of them is bound to one CPU. Tasks ahead of it in the queue that may not run on
/// its CPU do not delay it.
#[test]
fn a_bound_task_is_not_held_up_by_who_may_not_run_there() {
    for seed in SEEDS {
        let mut scene = Scene::new(SMALL, seed);
        scene
            .add_all("others", (0..20).map(|number| Task::spins().on([0, 1]).first_on(number % 2)));
        scene.add_all("three", (0..3).map(|_| Task::spins().on([2, 3]).first_on(2)));
        scene.add("bound", Task::spins().on([2]));
        let seen = scene.play(0, 10 * SECOND);
        let ratio = seen.ran("bound") * 3.0 / seen.ran("three");
        assert!(about(ratio, 1.0), "seed {seed}: {ratio}");
    }
}

/// Two loops bound to one CPU share it by weight (nice 0 and 5), whatever happens on other CPUs. There, two loops of
/// nice 5 advance twice as fast in virtual time.
#[test]
fn tasks_of_one_cpu_share_it_by_weight() {
    for seed in SEEDS {
        let mut scene = Scene::new(SMALL, seed);
        scene.add_all("beside", (0..2).map(|_| Task::spins().on([0]).nice(5)));
        scene.add("nice0", Task::spins().on([1]));
        scene.add("nice5", Task::spins().on([1]).nice(5));
        let seen = scene.play(0, 10 * SECOND);
        let ratio = seen.ran("nice0") / seen.ran("nice5");
        assert!(about(ratio, weight(0) / weight(5)), "seed {seed}: {ratio}");
    }
}

/// A loop of nice -3 that is bound to one CPU competes by weight with seven other loops in its LLC of four CPUs,
/// although it ran apart from the others before.
#[test]
fn a_task_of_one_cpu_competes_by_weight_with_others() {
    for seed in SEEDS {
        let mut scene = Scene::new(SMALL, seed);
        let forever = [Op::Run { ns: SECOND }];
        let apart = [Op::Runtime { ns: 5 * SECOND }, Op::SetNice(-3)];
        scene.add("bound", Task::program(&apart, &forever).on([0]).nice(5));
        let joins = [Op::Runtime { ns: 5 * SECOND }, Op::SetNice(0), Op::SetAffinity(0)];
        let task = Task::program(&joins, &forever).on([0]).nice(5);
        scene.add("others", task.affinities(vec![vec![0, 1, 2, 3]]));
        let comes = |cpu| Task::spins().on(0..4).first_on(cpu).begins(5 * SECOND);
        scene.add_all("others", (2..8).map(|number| comes(number % 4)));
        let seen = scene.play(6 * SECOND, 16 * SECOND);
        let share = seen.ran("bound") / (seen.ran("bound") + seen.ran("others"));
        let expected = weight(-3) / (weight(-3) + 7.0 * weight(0));
        assert!(about(share, expected), "seed {seed}: {share}, not {expected}");
    }
}

/// A task had the only CPU that it may use to itself for a long time. When eight loops come to the four CPUs of its
/// LLC, it waits for its turn: at most three slices, each of which ends with a tick.
#[test]
fn what_a_task_of_one_cpu_ran_alone_is_not_held_against_it() {
    for seed in SEEDS {
        let mut scene = Scene::new(SMALL, seed);
        let worker = scene.naps(MS, MS).on([0]);
        scene.add("worker", worker);
        let comes = |cpu| Task::spins().on(0..4).first_on(cpu).begins(20 * SECOND);
        scene.add_all("loops", (0..8).map(|number| comes(number % 4)));
        let longest_ns = scene.play(20 * SECOND, 30 * SECOND).longest_ns("worker");
        assert!((1..=3 * TICK_NS).contains(&longest_ns), "seed {seed}: {longest_ns} ns");
    }
}

/// Two loops share a CPU, and may later use the next CPU too. Other CPUs of the LLC are idle. The idle CPU that is
/// woken for a waiting task may run that task: the two wait for each other only in the first second.
#[test]
fn idle_cpus_are_asked_that_may_run_what_waits() {
    for seed in SEEDS {
        let mut scene = Scene::new(SMALL, seed);
        let widened = [Op::Runtime { ns: SECOND }, Op::SetAffinity(0)];
        let task = Task::program(&widened, &[Op::Run { ns: SECOND }]).on([3]);
        let task = task.affinities(vec![vec![2, 3]]);
        scene.add_all("loops", [task.clone(), task]);
        let seen = scene.play(0, 10 * SECOND);
        let waited_ns = seen.waited_ns("loops");
        assert!((SECOND / 2..1_200 * MS).contains(&waited_ns), "seed {seed}: {waited_ns} ns");
    }
}
