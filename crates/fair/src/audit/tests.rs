use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use roost_engine::{Enqueue, Pick, Scheduler, TaskId, Time, World};
use roost_workload::Group;

use crate::features::Features;
use crate::state::Fair;

/// The CPU where the tasks are queued.
const CPU: usize = 2;

/// Tasks 0 and 1 are in a group and queued on CPU 2, which runs one of them. Task 2 sleeps.
fn two_queued() -> (Fair, World) {
    let machine = Arc::new(roost_machine::resolve("pack:2 node:1 l3:2 core:2 pu:2").unwrap());
    let mut world = World::for_test(Arc::clone(&machine), 3);
    world.set_groups_for_test(vec![Group { path: "/a".into(), parent: None, weight: 100 }]);
    let features = Features::parse("fair@7.2+consolidate").unwrap();
    let mut fair = Fair::new(&machine, features);
    fair.start(&mut world);
    for task in (0..3).map(TaskId) {
        world.set_group_for_test(task, Some(0));
        fair.task_new(&mut world, task, None);
        world.set_task_cpu(task, CPU);
    }
    for task in (0..2).map(TaskId) {
        world.mark_queued(CPU);
        fair.enqueue(&mut world, CPU, task, Enqueue::New, CPU);
    }
    let Pick::Run(task) = fair.pick(&mut world, CPU) else { panic!("two tasks are queued") };
    world.set_current_for_test(CPU, Some(task));
    world.set_now_for_test(Time(1_000_000));
    (fair, world)
}

/// The audit's message after `spoil` has changed the state; `None` if the audit passes.
fn said(spoil: impl FnOnce(&mut Fair, &mut World)) -> Option<String> {
    let (mut fair, mut world) = two_queued();
    spoil(&mut fair, &mut world);
    let failure = catch_unwind(AssertUnwindSafe(|| fair.audit_all(&world))).err()?;
    Some(*failure.downcast::<String>().expect("a message with values"))
}

#[test]
fn an_untouched_state_passes() {
    assert_eq!(said(|_, _| {}), None);
}

/// How it changes the state, and a part of the failure's message.
type Spoiler = (fn(&mut Fair, &mut World), &'static str);

#[test]
fn every_claim_can_fail() {
    let spoilers: [Spoiler; 27] = [
        (|_, world| world.set_current_for_test(CPU, Some(TaskId(2))), "current task of CPU 2"),
        (|fair, _| fair.rqs[CPU].nr_running += 1, "nr_running of CPU 2"),
        (|fair, _| fair.rqs[CPU].nr_runnable += 1, "nr_runnable of CPU 2"),
        (|fair, _| fair.rqs[CPU].nr_sched_idle += 1, "nr_sched_idle of CPU 2"),
        (|fair, _| fair.rqs[CPU].load_weight += 1, "load_weight of CPU 2"),
        (|fair, _| fair.rqs[CPU].util_est += 1, "util_est of CPU 2"),
        (|fair, _| fair.rqs[CPU].nr_numa_running += 1, "nr_numa_running of CPU 2"),
        (|fair, _| fair.rqs[CPU].nr_preferred_running += 1, "nr_preferred_running of CPU 2"),
        (|fair, _| fair.rqs[CPU].cache.nr_llc_running += 1, "nr_llc_running of CPU 2"),
        (|fair, _| fair.rqs[CPU].cache.nr_pref_llc_running += 1, "nr_pref_llc_running of CPU 2"),
        (
            |fair, _| fair.mechanisms.consolidate.non_local[CPU] += 1,
            "tasks counted by a mechanism of CPU 2",
        ),
        (|fair, _| fair.sched_idle_cpus.insert(CPU), "only SCHED_IDLE of CPU 2"),
        (|fair, _| fair.nohz.idle_cpus.remove(5), "in the nohz mask of CPU 5"),
        (|fair, _| fair.rqs[CPU].avg.util_avg += 500, "util_avg of CPU 2"),
        (|fair, _| fair.rqs[CPU].avg.runnable_avg += 500, "runnable_avg of CPU 2"),
        (|fair, _| fair.rqs[CPU].avg.load_avg += 500, "load_avg of CPU 2"),
        (|fair, _| fair.rqs[CPU].avg.util_sum += 30 << 10, "util_sum of CPU 2"),
        (|fair, _| fair.rqs[CPU].avg.runnable_sum += 30 << 10, "runnable_sum of CPU 2"),
        (|fair, _| fair.rqs[CPU].avg.load_sum += 30 << 10, "load_sum of CPU 2"),
        (|fair, _| fair.tasks[2].attached = true, "attached tasks of CPU 2"),
        (|fair, _| fair.llcs[0].nr_busy_cpus += 1, "nr_busy_cpus of LLC 0"),
        (|fair, _| fair.tasks[2].on_rq = true, "on a queue, of task 2"),
        (|fair, _| fair.tasks[2].delayed = true, "delayed off a queue, of task 2"),
        (|_, world| world.set_task_cpu(TaskId(1), 3), "CPU, of task 1"),
        (|fair, _| fair.cgroups.count_in(CPU, 0, 1024), "tasks of a group of CPU 2"),
        (|fair, _| fair.cgroups.spoil_load(0), "load of group 0"),
        (|fair, _| waiting(fair).weight += 1, "weight in loads, of task"),
    ];
    for (number, (spoil, expected)) in spoilers.into_iter().enumerate() {
        let message = said(spoil).unwrap_or_default();
        assert!(message.contains(expected), "{number}: {expected:?}, not {message:?}");
    }
}

/// The waiting task on the queue. Its count includes the change.
fn waiting(fair: &mut Fair) -> &mut crate::state::FairTask {
    let rq = &mut fair.rqs[CPU];
    rq.load_weight += 1;
    let waiting = rq.queue.tasks().find(|&task| Some(task) != rq.current);
    &mut fair.tasks[waiting.expect("one waits").index()]
}
