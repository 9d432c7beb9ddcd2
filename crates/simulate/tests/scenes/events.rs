//! Events that the engine does not have: CPUs that go and come, realtime tasks, exec, readers of RCU, and races.

use std::cell::Cell;
use std::rc::Rc;

use roost_workload::Op;

use crate::kit::{MS, SECOND, SEEDS, SMALL, Scene, TICK_NS, Task, about, weight};

/// A value that is found during a scene.
fn found<T: Copy + Default + 'static>() -> (Rc<Cell<T>>, Rc<Cell<T>>) {
    let value = Rc::new(Cell::new(T::default()));
    (Rc::clone(&value), value)
}

/// An offline CPU gets no tasks, and gets work as soon as it is back: 17 loops, and tasks that wake up. One of the
/// loops is bound to this CPU. The kernel lets it run anywhere when the CPU goes.
#[test]
fn a_cpu_goes_and_comes_back() {
    for seed in SEEDS {
        let gone = 5_usize;
        let mut scene = Scene::new(SMALL, seed);
        scene.add_all("loops", (0..16).map(|_| Task::spins()));
        scene.add("bound", Task::spins().on([gone as u32]));
        for _ in 0..24 {
            let task = scene.naps(MS / 5, 4 * MS);
            scene.add("naps", task);
        }
        scene.at(2 * SECOND, move |stage| stage.leave(gone));
        scene.at(2 * SECOND + 20 * MS, move |stage| stage.left(gone));
        let (served, serves) = found();
        scene.at(7 * SECOND, move |stage| {
            let offline = stage.read("llcs", 1, "nr_cpus");
            stage.come_back(gone);
            serves.set([offline, stage.read("llcs", 1, "nr_cpus")]);
        });
        let away = scene.play(3 * SECOND, 7 * SECOND);
        let there = away.tasks.iter().map(|task| task.ran_ns[gone]).sum::<u64>();
        assert_eq!(there, 0, "seed {seed}");
        assert!(away.ran("bound") > 2.0, "seed {seed}: {} s of 4", away.ran("bound"));
        let seen = scene.play(8 * SECOND, 12 * SECOND);
        assert_eq!(served.get(), [3, 4]);
        assert!(seen.idle() < 0.01, "seed {seed}: {}", seen.idle());
        // A loop that was alone on its CPU is ahead of others by up to `lead-ms`, 500 ms (docs/understand/live.md: 1.1
        // s).
        let of = |name| away.longest_ns(name).max(seen.longest_ns(name));
        let longest_ns = of("loops").max(of("bound"));
        assert!(longest_ns < 1_100 * MS, "seed {seed}: {longest_ns} ns");
    }
}

/// Two loops share a CPU by weight, nice -3 and nice 0. The first is bound to that CPU, the other could also use
/// another CPU, which is offline.
#[test]
fn a_task_of_one_cpu_competes_by_weight_with_the_one_that_runs() {
    for seed in SEEDS {
        let mut scene = Scene::new(SMALL, seed);
        // While this task is there, the thread that does the rest is elsewhere.
        scene.add("first", Task::ends_after(20 * MS).on([1]));
        scene.at(10 * MS, |stage| {
            stage.set_offline(1, true);
            stage.run("roost_cpu_offline", &[1]);
        });
        scene.add("bound", Task::spins().on([0]).nice(-3));
        scene.add("other", Task::spins().on([0, 1]).first_on(0).begins(60 * MS));
        let seen = scene.play(SECOND, 11 * SECOND);
        let ratio = seen.ran("bound") / seen.ran("other");
        assert!(about(ratio, weight(-3) / weight(0)), "seed {seed}: {ratio}");
    }
}

/// Two loops are bound to a CPU that begins to go offline: the kernel does not ask for it any more, and pushes away
/// what is in its local queue. Ten times a second the watch moves what waits for this CPU there.
#[test]
fn what_waits_for_a_cpu_that_begins_to_leave_is_handed_over() {
    let mut scene = Scene::new(SMALL, 1);
    scene.add_all("loops", (0..2).map(|_| Task::spins().on([5])));
    scene.at(SECOND, |stage| {
        stage.set_offline(5, true);
        stage.set_cpu(5, "balance_callback", 8, 1);
    });
    let seen = scene.play(SECOND, 3 * SECOND);
    let longest_ns = seen.longest_ns("loops");
    assert!((1..100 * MS + 2 * TICK_NS).contains(&longest_ns), "{longest_ns} ns");
}

/// A loop may use one CPU in each of two LLCs. It waits in the first LLC when its CPU there goes offline, and leaves
/// the queue: to the CPU where it last ran, from where the kernel moves it if that is the one that goes.
#[test]
fn what_waits_for_the_only_cpu_it_may_use_in_an_llc_leaves_with_it() {
    for last_ran_on in [3, 5] {
        let mut scene = Scene::new(SMALL, 1);
        scene.add_all("bound", (0..4_u32).map(|cpu| Task::spins().on([cpu])));
        scene.add_all("other", (0..12_u32).map(|_| Task::spins().on(4..8)));
        scene.add("both", Task::spins().on([3, 5]).first_on(3));
        let (gone, goes) = found::<Option<u64>>();
        scene.every((0..4000).map(|number| SECOND + number * MS / 4), move |stage| {
            if goes.get().is_some() || stage.read("llcs", 0, "waiting") == 0 {
                return;
            }
            let task = stage.tasks("both")[0];
            stage.world.set_task_cpu(task, last_ran_on);
            stage.set_offline(3, true);
            stage.run("roost_cpu_offline", &[3]);
            goes.set(Some(stage.world.now().ns()));
        });
        let (waiting, waits) = found::<Option<u64>>();
        scene.at(3 * SECOND, move |stage| waits.set(Some(stage.read("llcs", 0, "waiting"))));
        let seen = scene.play(2 * SECOND, 4 * SECOND);
        assert!(gone.get().is_some(), "it waits now and then");
        assert_eq!(waiting.get(), Some(0), "last ran on {last_ran_on}");
        let ran = seen.of("both").map(|task| task.ran_ns[last_ran_on]).sum::<u64>();
        assert!(ran > 0, "it never ran on {last_ran_on}");
    }
}

/// The scheduler must be loaded again if a CPU comes that has no place in its tables, or if the last CPU of an LLC
/// goes.
#[test]
fn what_has_no_place_needs_a_new_start() {
    let mut scene = Scene::new(SMALL, 1);
    scene.add("loop", Task::spins().on([15]));
    let mut last = scene.clone();
    last.at(MS, |stage| (0..3).for_each(|cpu| stage.run("roost_cpu_offline", &[cpu])));
    last.at(SECOND, |stage| stage.run("roost_cpu_offline", &[3]));
    let reason = last.ends(2 * SECOND);
    assert!(reason.contains("CPU 3, the last of its LLC, goes offline"), "{reason}");
    scene.at(MS, |stage| {
        stage.write("cpus", 0, "llc", u32::MAX.into());
        stage.run("roost_cpu_online", &[0]);
    });
    let reason = scene.ends(2 * SECOND);
    assert!(reason.contains("CPU 0 is new"), "{reason}");
}

/// Realtime tasks use three of the first LLC's CPUs. Sixteen loops may use this LLC and the next one, so they have five
/// CPUs. At most four loops are in the first LLC, and the others in the next. (If one more moved, the difference would
/// be reversed.)
#[test]
fn cpus_of_realtime_tasks_serve_nobody() {
    for seed in SEEDS {
        let mut scene = Scene::new(SMALL, seed);
        // Other tasks keep these CPUs busy at first, so that the thread that does this is elsewhere.
        scene.add_all("first", (0..3_u32).map(|cpu| Task::ends_after(20 * MS).on([cpu])));
        scene.every([10 * MS, 40 * MS].into_iter(), |stage| {
            for cpu in 0..3 {
                stage.set_cpu(cpu, "rt.rt_queued", 4, 1);
                stage.set_offline(cpu, true);
                stage.run_on(cpu, "roost_update_idle", &[cpu as u64, 0]);
            }
        });
        let task = |number: u32| Task::spins().on(0..8).first_on(3 + number % 5).begins(60 * MS);
        scene.add_all("loops", (0..16).map(task));
        let seen = scene.play(10 * SECOND, 30 * SECOND);
        let ran = || seen.of("loops").map(|task| task.ran() as f64);
        let (least, most) = (ran().fold(f64::MAX, f64::min), ran().fold(0.0, f64::max));
        assert!(least > 0.95 * most * 3.0 / 4.0, "seed {seed}: {least} and {most} ns");
    }
}

/// A task that leaves its scheduling class while it waits does not count as waiting, and its waiting time ends: nothing
/// remembers that it waited. It is one of nice 19 behind loops of nice -20, which otherwise waits for a second.
#[test]
fn a_task_of_another_class_does_not_wait() {
    let mut scene = Scene::new(SMALL, 1);
    scene.add_all("heavy", (0..4_u32).map(|_| Task::spins().on(0..4).nice(-20)));
    scene.add("light", Task::spins().on(0..4).nice(19));
    let (counted, counts) = found::<[u64; 2]>();
    scene.at(SECOND + SECOND / 2, move |stage| {
        let task = stage.tasks("light")[0];
        let (before, at) = (stage.read("llcs", 0, "waiting"), stage.task_struct(task));
        stage.run("roost_disable", &[at]);
        counts.set([before, stage.read("llcs", 0, "waiting")]);
        (0..16).for_each(|cpu| stage.write("cpus", cpu, "n.run_delay_max_ns", 0));
    });
    let (longest, longs) = found::<u64>();
    scene.at(4 * SECOND, move |stage| {
        let of = |cpu| stage.read("cpus", cpu, "n.run_delay_max_ns");
        longs.set((0..16).map(of).max().unwrap());
    });
    let seen = scene.play(SECOND, 4 * SECOND + SECOND / 10);
    assert_eq!(counted.get(), [1, 0]);
    assert!(seen.longest_ns("light") > SECOND / 2, "it waits when it leaves");
    assert!(seen.of("light").any(|task| task.turns > 0), "it has run since");
    assert!(longest.get() < SECOND / 2, "{} ns", longest.get());
}

/// Two loops in an LLC start another program (exec), one after the other. Beside them runs the thread that causes this.
/// The first goes to the node with more idle CPUs. After that, the imbalance is within the tolerance of numa-imbalance,
/// so the second goes to the idlest LLC of its own node.
#[test]
fn a_task_that_begins_a_program_is_placed_anew() {
    let places = |settings: &str| {
        let mut scene = Scene::new(SMALL, 1).with(settings);
        for cpu in 0..2_u32 {
            scene.add(&format!("loop{cpu}"), Task::spins().first_on(cpu));
            scene.at((u64::from(cpu) + 1) * SECOND, move |stage| {
                assert!(stage.cpu < 4, "{}: this thread is in another LLC", stage.cpu);
                let task = stage.tasks(&format!("loop{cpu}"))[0];
                let arguments = [stage.task_struct(task), 0, 0];
                stage.run_on(stage.world.task_cpu(task), "roost_exec", &arguments);
            });
        }
        let seen = scene.play(3 * SECOND, 4 * SECOND);
        (["loop0", "loop1"].map(|name| seen.llc_of(name)), seen.counter("numa_imbalance_spread"))
    };
    let (on, spread) = places("");
    assert!(on[0] >= 2 && on[1] == 1, "LLCs {on:?}; 2 and 3 are of the other node");
    assert_eq!(spread, 2);
    assert_eq!(places("+no-numa-imbalance"), ([0, 0], 0));
}

/// An RCU reader needs 100 ms of CPU time, and its weight gives it 4 ms per second. After the wait that makes it count
/// as a reader (at most 1.1 s), it gets turns like the 12 other loops on four CPUs. Once it has finished reading, it
/// gets only what its weight says.
#[test]
fn readers_of_rcu_do_not_wait_for_their_weight() {
    for seed in SEEDS {
        let mut scene = Scene::new(SMALL, seed);
        scene.add_all("loops", (0..12).map(|number| Task::spins().on(0..4).first_on(number % 4)));
        scene.add("reader", Task::spins().on(0..4).nice(19));
        // Programs that interrupt a task are readers themselves.
        let nesting = 2;
        let (began, begins) = found();
        scene.at(SECOND, move |stage| {
            let task = stage.tasks("reader")[0];
            stage.set_task(task, "rcu_read_lock_nesting", nesting);
            begins.set(stage.world.run_ns(task));
        });
        let (read_ns, reads) = found();
        scene.every((1000..10_000).map(|ms| ms * MS + MS / 2), move |stage| {
            let task = stage.tasks("reader")[0];
            if reads.get() == 0 && stage.world.run_ns(task) >= began.get() + 100 * MS {
                reads.set(stage.world.now().ns() - SECOND);
                stage.set_task(task, "rcu_read_lock_nesting", 0);
            }
        });
        let seen = scene.play(20 * SECOND, 30 * SECOND);
        let read_ns = read_ns.get();
        assert!(
            (1..1_100 * MS + 100 * MS * 13 / 4).contains(&read_ns),
            "seed {seed}: {read_ns} ns"
        );
        let share = seen.ran("reader") / seen.ran("loops");
        assert!(share < 0.002, "seed {seed}: {share}");
    }
}

/// A new nice value is no sleep: a loop that gets one every 0.5 ms still counts as running for long. A queue remembers
/// whether such a task waits in it.
#[test]
fn a_new_nice_value_is_no_sleep() {
    let mut scene = Scene::new(SMALL, 1);
    scene.add("loop", Task::spins().on([0, 1]));
    for _ in 0..4 {
        let task = scene.naps(MS / 5, MS / 5).on([0, 1]);
        scene.add("naps", task);
    }
    scene.every((20..4000).map(|number| number * MS / 2), |stage| {
        let task = stage.tasks("loop")[0];
        let (cpu, at) = (stage.world.task_cpu(task), stage.task_struct(task));
        if stage.world.current(cpu) == Some(task) {
            stage.run_on(cpu, "roost_stopping", &[at, 0]);
            stage.run_on(cpu, "roost_running", &[at]);
        }
    });
    let (lasting, lasts) = found::<u32>();
    scene.every((1000..2000).map(|ms| ms * MS + MS / 4), move |stage| {
        lasts.set(lasts.get() + stage.read("llcs", 0, "lasting") as u32);
    });
    scene.play(0, 2 * SECOND);
    assert!(lasting.get() > 0);
}

/// A process that settled ends, and another process gets its number. The second one begins with nothing of the first.
#[test]
fn a_process_does_not_inherit_where_another_of_its_number_settled() {
    let mut scene = Scene::new(SMALL, 1);
    let (first, second) = (scene.process(), scene.process());
    let runs = [Op::Runtime { ns: 9 * SECOND }, Op::Sleep { ns: 100 * SECOND }];
    scene.add_all(
        "first",
        (0..4).map(|cpu| Task::program(&runs, &[]).thread_of(first).first_on(cpu)),
    );
    let later = |cpu| Task::spins().thread_of(second).begins(10 * SECOND).first_on(cpu);
    scene.add_all("second", (0..4).map(later));
    scene.at(SECOND / 2, |stage| {
        let [first, second] = ["first", "second"].map(|name| stage.tasks(name));
        let number = stage.world.tgid(first[0]);
        second.iter().for_each(|&task| stage.set_task(task, "tgid", number.into()));
        // Their leader started at another time.
        let began = stage.world.now().ns();
        stage.set_task(second[0], "start_boottime", began);
    });
    let (settled, settles) = found::<[u32; 2]>();
    let look = move |stage: &mut crate::kit::Stage<'_, '_>| {
        let number = stage.world.tgid(stage.tasks("first")[0]);
        let set = stage.set_of(1 << 63 | u64::from(number)).unwrap();
        let [before, after] = settles.get();
        let now = 1 + u32::from(stage.settled_on(set).is_some());
        settles.set(if before == 0 { [now, after] } else { [before, now] });
    };
    let look = Rc::new(look);
    let again = Rc::clone(&look);
    scene.at(8 * SECOND, move |stage| look(stage));
    scene.at(10 * SECOND + SECOND / 2, move |stage| again(stage));
    scene.play(0, 11 * SECOND);
    assert_eq!(settled.get(), [2, 1], "2: settled");
}

/// With faults, interrupts on idle CPUs may read clocks that are seconds old. The watch does not believe them: from
/// look to look its time goes on by half of its period at least, and it is never ahead by a period.
#[test]
fn the_watch_does_not_believe_an_old_time() {
    let mut scene = Scene::new(SMALL, 1).with_faults();
    let task = scene.naps(MS, 50 * MS);
    scene.add("naps", task);
    let (looked, looks) = found::<[u64; 3]>();
    let (watch, half_ns) = (4, 50 * MS);
    scene.every((10..400).map(|number| number * 25 * MS), move |stage| {
        let [last, times, wrong] = looks.get();
        let at = stage.read("watches", watch, "at");
        let now = stage.world.now().ns();
        let early = at != last && times > 0 && at < last + half_ns;
        let ahead = at > now + 2 * half_ns;
        looks.set([at, times + u64::from(at != last), wrong + u64::from(early || ahead)]);
    });
    scene.play(0, 10 * SECOND);
    let [_, times, wrong] = looked.get();
    assert!(times > 50 && wrong == 0, "{wrong} of {times} looks");
}

/// Races lose and memory runs out one time in eight: tasks are queued anew while they are being moved, and affinities
/// cannot be noted. What the scheduler counts stays right, and nothing waits where a CPU is idle.
#[test]
fn counts_are_right_whatever_fails() {
    for seed in SEEDS {
        let mut scene = Scene::new(SMALL, seed).with_faults();
        let groups = [scene.group(100), scene.group(100)];
        for number in 0..64 {
            let sets = vec![(0..8).collect(), (4..16).collect(), (0..16).collect()];
            let change = |set| [Op::Run { ns: 3 * MS }, Op::SetAffinity(set), Op::Sleep { ns: MS }];
            let ops: Vec<Op> = (0..99).flat_map(|number| change(number % 3)).collect();
            let task = Task::program(&ops, &[]).affinities(sets).group(groups[number % 2]);
            scene.add("tasks", task);
            scene.add("loops", Task::ends_after(200 * MS));
        }
        let (checked, checks) = found::<u32>();
        scene.every((1..500).map(|number| number * 7 * MS), move |stage| {
            stage.check_counts();
            checks.set(checks.get() + 1);
        });
        scene.add("stays", Task::spins().on([15]).begins(3800 * MS));
        let (left, leaves) = found::<Option<u64>>();
        scene.at(3900 * MS, move |stage| {
            leaves.set(Some((0..4).map(|llc| stage.read("llcs", llc, "waiting")).sum()));
        });
        let seen = scene.play(0, 4 * SECOND);
        assert!(checked.get() > 400, "{}", checked.get());
        assert_eq!(left.get(), Some(0), "all tasks have ended");
        for name in ["evened", "affinity_unknown"] {
            assert!(seen.counter(name) > 0, "seed {seed}: {name}");
        }
    }
}

/// A task whose affinity could not be noted runs at once on its previous CPU, if that CPU is idle.
#[test]
fn a_task_whose_affinity_is_not_known_does_not_wait_beside_idle_cpus() {
    for seed in SEEDS {
        let mut scene = Scene::new(SMALL, seed).with_faults();
        for _ in 0..24 {
            let nap = [Op::Run { ns: MS }, Op::Sleep { ns: 40 * MS }];
            let task = Task::program(&[Op::Run { ns: MS }, Op::SetAffinity(0)], &nap);
            scene.add("tasks", task.affinities(vec![(0..8).collect()]));
        }
        let seen = scene.play(SECOND, 10 * SECOND);
        assert!(seen.counter("affinity_unknown") > 0, "seed {seed}");
        assert!(seen.counter("direct") > 1000, "seed {seed}");
        let longest_ns = seen.longest_ns("tasks");
        assert!(longest_ns < 10 * MS, "seed {seed}: {longest_ns} ns");
    }
}

/// If a task of a settled group sleeps for seconds, another group may claim its node's CPUs, except while the first
/// group's pages are being moved there.
#[test]
fn a_group_whose_pages_are_moved_keeps_its_place() {
    let on_first = |moved: u64| {
        let mut scene = Scene::new(SMALL, 1);
        let (first, second) = (scene.group(100), scene.group(100));
        let runs = [Op::Runtime { ns: 5 * SECOND }, Op::Sleep { ns: 100 * SECOND }];
        scene.add_all("first", (0..6).map(|_| Task::program(&runs, &[]).group(first)));
        scene.add_all("second", (0..6).map(|_| Task::spins().group(second).begins(8 * SECOND)));
        for (ns, group) in [(SECOND / 2, first), (8 * SECOND + SECOND / 2, second)] {
            scene.at(ns, move |stage| {
                let set = stage.set_of_group(group).unwrap();
                stage.write("set_memory", 2 * set, "", 1000);
                stage.write("set_moves", set, "", if group == first { moved } else { 0 });
            });
        }
        let (settled, settles) = found();
        scene.at(16 * SECOND, move |stage| {
            let on = [first, second].map(|group| {
                let set = stage.set_of_group(group).unwrap();
                u32::from(stage.settled_on(set) == Some(0))
            });
            settles.set(on);
        });
        scene.play(0, 17 * SECOND);
        settled.get()
    };
    assert_eq!(on_first(0), [1, 1]);
    assert_eq!(on_first(1), [1, 0]);
}

/// A group that is excluded after it has settled leaves its node.
#[test]
fn an_excluded_group_does_not_cling() {
    let mut scene = Scene::new(SMALL, 1);
    let groups = [0; 4].map(|_| scene.group(100));
    for group in groups {
        scene.add_all("loops", (0..4).map(|_| Task::spins().group(group)));
    }
    let (settled, settles) = found();
    let count = move |stage: &mut crate::kit::Stage<'_, '_>| {
        let of = |&group: &u32| {
            stage.set_of_group(group).is_some_and(|set| stage.settled_on(set).is_some())
        };
        groups.iter().filter(|group| of(group)).count()
    };
    scene.at(5 * SECOND, move |stage| {
        settles.set([count(stage), 0]);
        let second = stage.set_of_group(groups[1]).unwrap();
        // SET_EXCLUDED
        stage.write("set_flags", second, "", 1);
    });
    let (after, afterwards) = found();
    scene.at(8 * SECOND, move |stage| afterwards.set(count(stage)));
    scene.play(0, 9 * SECOND);
    assert_eq!((settled.get()[0], after.get()), (4, 3));
}

/// If affinity keeps a group off the node with its memory, the group settles on the other node.
#[test]
fn a_group_that_may_not_go_to_its_node_settles_elsewhere() {
    let mut scene = Scene::new(SMALL, 1);
    let group = scene.group(100);
    scene
        .add_all("loops", (0..4).map(|cpu| Task::spins().group(group).on(8..16).first_on(8 + cpu)));
    scene.at(SECOND / 2, move |stage| {
        let set = stage.set_of_group(group).unwrap();
        stage.write("set_memory", 2 * set, "", 1000);
    });
    let (settled, settles) = found();
    scene.at(9 * SECOND, move |stage| {
        settles.set(stage.settled_on(stage.set_of_group(group).unwrap()));
    });
    let seen = scene.play(0, 10 * SECOND);
    assert_eq!(settled.get(), Some(1));
    let counters = ["cling_settled", "unsettled"].map(|name| seen.counter(name));
    assert_eq!(counters, [1, 0]);
}

/// A group may leave its crowded node while failed attempts mark the node as busy. (`groups.rs` has the same without
/// the mark: it stays.)
#[test]
fn a_busy_node_lets_its_groups_go() {
    let mut scene = Scene::new(SMALL, 1).with("+cling-wait-us=10000000");
    let group = scene.group(100);
    scene.add_all("group", (0..6).map(|cpu| Task::spins().group(group).first_on(cpu)));
    scene.add_all("bound", (0..8).map(|_| Task::spins().on(0..8).begins(3 * SECOND)));
    scene.every((300..1000).map(|number| number * 10 * MS), |stage| {
        stage.write("homes", 0, "attempts.failed", 200 * 1024);
        stage.write("homes", 0, "attempts.tried", 200 * 1024);
        stage.write("homes", 0, "attempts.ratio", 100);
    });
    // The busiest node is found every six seconds.
    let seen = scene.play(7 * SECOND, 9 * SECOND);
    let nodes = seen.by_node("group");
    assert!(seen.counter("cling_paused") > 0);
    assert!(nodes[1] > nodes[0], "{nodes:?}");
}

/// On a kernel that does not report limits, the scheduler reads them from the fair class.
#[test]
fn limits_are_read_where_the_kernel_does_not_report_them() {
    let mut scene = Scene::new(SMALL, 1).without("bw_quota_us");
    let group = scene.group(100);
    scene.add_all("loops", (0..4).map(|_| Task::spins().group(group)));
    let phases = [20, 50];
    for (phase, percent) in (0..).zip(phases) {
        scene.at(MS + phase * 2 * SECOND, move |stage| stage.fair_limit(group, percent));
    }
    for (phase, percent) in (0..).zip(phases) {
        let begin_ns = phase * 2 * SECOND + SECOND;
        let ran = scene.play(begin_ns, begin_ns + SECOND).ran("loops");
        assert!(about(ran, percent as f64 / 100.0), "{ran}, not {percent}%");
    }
}
