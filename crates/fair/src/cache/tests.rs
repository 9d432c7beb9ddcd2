use proptest::prelude::*;
use roost_engine::{CpuId, Scheduler, TaskId, Time};

use super::*;
use crate::kit::{Bench, audited_run, pick};

/// Two LLCs of eight CPUs without SMT: at most six threads of a process gather, and an LLC takes
/// more tasks while at most six of its CPUs are in use.
const TWO_LLCS: &str = "pack:1 node:1 l3:2 core:8 pu:1";

const MS: u64 = 1_000_000;

/// The counters of every queue match the tasks on it.
pub(crate) fn check_counts(fair: &Fair) {
    for (cpu, rq) in fair.rqs.iter().enumerate() {
        let queued = || rq.queue.tasks().map(|task| &fair.tasks[task.index()]);
        let llcs = queued().filter_map(|task| task.preferred_llc);
        let own = fair.topology.llc_of[cpu];
        assert_eq!(rq.cache.nr_llc_running as usize, llcs.clone().count(), "CPU {cpu}");
        let runnable = queued().filter(|task| !task.delayed);
        let at_home = runnable.filter(|task| task.preferred_llc == Some(own)).count();
        assert_eq!(rq.cache.nr_pref_llc_running as usize, at_home, "CPU {cpu}");
        for (llc, &count) in rq.cache.by_llc.iter().enumerate() {
            let preferring = llcs.clone().filter(|&other| other as usize == llc).count();
            assert_eq!(count as usize, preferring, "CPU {cpu}, LLC {llc}");
        }
    }
}

/// Makes process 0 prefer the LLC of `cpu` permanently, and its queued tasks with it.
pub(crate) fn gather_at(fair: &mut Fair, cpu: CpuId) {
    let process = &mut fair.cache.processes[0];
    (process.cpu, process.epoch) = (Some(cpu), u64::MAX / 2);
    fair.cache.any_preferred = true;
    let llc = fair.topology.llc_of[cpu];
    for rq in &mut fair.rqs {
        for task in rq.queue.tasks() {
            let state = &mut fair.tasks[task.index()];
            rq.cache.count_out(state);
            state.preferred_llc = Some(llc);
            rq.cache.count_in(state);
        }
    }
    check_counts(fair);
}

#[test]
fn run_time_is_halved_each_epoch() {
    let after = |epoch| {
        let mut runtime = Runtime { ns: 1001, epoch: 3 };
        runtime.advance_to(epoch);
        assert_eq!(runtime.epoch, epoch);
        runtime.ns
    };
    assert_eq!([3, 4, 5, 12, 13, 66, 67, 1 << 40].map(after), [1001, 500, 250, 1, 0, 0, 0, 0]);
}

/// An epoch has two jiffies, as with HZ 250. It begins after its jiffy, not with it.
#[test]
fn epochs_begin_when_their_jiffies_are_over() {
    let mut rq = CacheRq { runtime: Runtime { ns: 64, epoch: 0 }, ..CacheRq::default() };
    let epochs = [0, 1, 2, 3, 4, 5, 100].map(|jiffy| rq.advance(Time(jiffy * 1000), 1000, 2));
    assert_eq!(epochs, [0, 1, 1, 2, 2, 3, 50]);
    assert_eq!(rq.runtime.ns, 0);
}

#[test]
fn an_epoch_is_10_ms_in_whole_jiffies() {
    let period = |hz| {
        let machine = roost_machine::resolve(TWO_LLCS).unwrap();
        let features = Features { hz, ..Features::parse("fair@7.2").unwrap() };
        CacheAware::new(&machine, &Topology::new(&machine, &features), &features).period
    };
    assert_eq!([1000, 300, 250, 100, 24].map(period), [10, 3, 2, 1, 1]);
}

#[test]
fn occupancy_is_the_share_of_a_cpus_run_time() {
    assert_eq!(occupancy(0, 0), 0);
    assert_eq!(occupancy(7_999_999, 7_999_999), (1 << 20) - 1, "2^20 * 7999999 / 8000000");
    assert_eq!(occupancy(2_000_000, 7_999_999), 1 << 18);
}

/// `1280 * average * threads < 1024 * CPUs`.
#[test]
fn four_fifths_of_an_llcs_cores_are_too_many() {
    let most = |threads, llc| (0..100).rev().find(|&average| !too_wide(average, threads, llc, 1));
    assert_eq!(most(1, 8), Some(6));
    assert_eq!(most(2, 16), Some(6));
    assert_eq!(most(1, 5), Some(3), "4 are 5120 and 5120");
    assert_eq!(most(2, 4), Some(1));
    assert_eq!(most(2, 2), Some(0), "a core: 2560 and 2048");
}

#[test]
fn the_average_follows_faster_on_small_llcs() {
    assert_eq!(averaged(0, 16, 4), 8);
    assert_eq!(averaged(0, 16, 16), 4);
    assert_eq!(averaged(0, 16, 112), 2);
    assert_eq!(averaged(10, 2, 8), 6);
    assert_eq!((averaged(3, 4, 8), averaged(3, 2, 8)), (3, 3), "less than the divisor is lost");
}

#[test]
fn the_preferred_llc_changes_for_one_with_more_than_twice_the_run_time() {
    let llc = |sum, cpu, preferred| Occupancy { sum, top_cpu: Some(cpu), preferred };
    let nowhere = Occupancy::default();
    assert_eq!(choose(&[nowhere, nowhere]), None);
    assert_eq!(choose(&[llc(5, 1, false), llc(6, 9, false)]), Some(9), "it prefers no LLC yet");
    assert_eq!(choose(&[llc(6, 1, false), llc(6, 9, false)]), Some(1), "the first of equal LLCs");
    assert_eq!(choose(&[llc(3, 1, true), llc(6, 9, false)]), None);
    assert_eq!(choose(&[llc(3, 1, true), llc(7, 9, false)]), Some(9));
    assert_eq!(
        choose(&[llc(7, 3, true), llc(2, 9, false)]),
        None,
        "the CPU does not change within the LLC"
    );
}

impl Bench {
    /// Lets jiffies of 4 ms pass. Accounts the running tasks at each.
    fn jiffies(&mut self, count: u64) {
        (0..count).for_each(|_| self.elapse(4 * MS));
    }

    fn process(&self) -> &Process {
        &self.fair.cache.processes[0]
    }

    fn preferred(&self, task: usize) -> Option<u32> {
        self.fair.tasks[task].preferred_llc
    }
}

/// Three tasks: one runs in the first LLC and two in the second.
fn spread(scheduler: &str) -> Bench {
    let mut bench = Bench::new(scheduler, TWO_LLCS, 4);
    for (cpu, task) in [(1, 0), (9, 1), (12, 2)] {
        bench.queue(cpu, [task]);
    }
    bench
}

#[test]
fn a_tick_in_a_new_epoch_finds_where_the_process_ran_most() {
    let mut bench = spread("fair@7.2");
    bench.jiffies(1);
    assert_eq!(bench.process().cpu, None);
    let before = bench.world.backlog_ns(1);
    bench.tick(1);
    assert_eq!(bench.process().cpu, Some(9), "two of three run there, CPU 9 before 12");
    assert!(bench.world.backlog_ns(1) > before, "the scan costs time");
    assert_eq!((0..4).map(|task| bench.preferred(task)).collect::<Vec<_>>(), [None; 4]);
    bench.jiffies(1);
    assert_eq!([0, 1, 2, 3].map(|task| bench.preferred(task)), [Some(1), Some(1), Some(1), None]);
    check_counts(&bench.fair);
    let counts = |cpu: CpuId| {
        let rq = &bench.fair.rqs[cpu].cache;
        (rq.nr_llc_running, rq.nr_pref_llc_running, rq.nr_preferring(1))
    };
    assert_eq!((counts(1), counts(9), counts(2)), ((1, 0, 1), (1, 1, 1), (0, 0, 0)));
}

#[test]
fn one_thread_scans_in_an_epoch() {
    let mut bench = spread("fair@7.2");
    bench.jiffies(1);
    bench.tick(9);
    assert_eq!((bench.process().epoch, bench.process().next_scan), (1, 3));
    bench.fair.cache.processes[0].cpu = None;
    bench.jiffies(1);
    bench.tick(12);
    assert_eq!(bench.process().cpu, None, "the second jiffy is of the same epoch");
    bench.jiffies(1);
    bench.tick(12);
    assert_eq!(bench.process().cpu, Some(9));
}

#[test]
fn a_task_that_is_preempted_scans_when_it_runs_again() {
    let mut bench = spread("fair@7.2");
    bench.jiffies(1);
    bench.world.resched(9, 9);
    bench.tick(9);
    assert!(bench.fair.tasks[1].cache_work);
    assert_eq!(bench.process().cpu, None);
    bench.fair.put_current(&mut bench.world, 9);
    assert_eq!(pick(&mut bench.fair, &mut bench.world, 9), Some(TaskId(1)));
    assert_eq!(bench.process().cpu, Some(9));
    assert!(!bench.fair.tasks[1].cache_work);
}

#[test]
fn a_process_nobody_scans_for_prefers_nothing_after_five_epochs() {
    let mut bench = spread("fair@7.2");
    bench.jiffies(1);
    bench.tick(1);
    // Epoch 6 begins at jiffy 11, epoch 7 at jiffy 13: six after the scan in epoch 1.
    bench.jiffies(11);
    assert_eq!((bench.preferred(0), bench.process().cpu), (Some(1), Some(9)));
    bench.jiffies(1);
    assert_eq!((bench.preferred(0), bench.process().cpu), (None, None));
    check_counts(&bench.fair);
}

#[test]
fn a_process_of_one_thread_or_of_too_many_running_ones_prefers_nothing() {
    let mut single = Bench::new("fair@7.2", TWO_LLCS, 1);
    single.queue(9, [0]);
    single.jiffies(1);
    single.tick(9);
    assert_eq!(single.process().cpu, None);
    let mut wide = spread("fair@7.2");
    wide.fair.cache.processes[0].nr_running_avg = 6;
    wide.jiffies(1);
    wide.tick(1);
    assert_eq!(
        (wide.process().cpu, wide.process().nr_running_avg),
        (Some(9), 5),
        "6 + (3 - 6) / 2"
    );
    wide.fair.cache.processes[0].nr_running_avg = 7;
    wide.jiffies(1);
    assert_eq!((wide.process().cpu, wide.preferred(1)), (None, None));
    wide.jiffies(4);
    wide.tick(1);
    assert_eq!((wide.process().cpu, wide.process().nr_running_avg), (None, 7));
}

#[test]
fn threads_are_counted_and_a_process_begins_anew_with_its_first() {
    let mut bench = spread("fair@7.2");
    assert_eq!(bench.process().nr_threads, 4);
    bench.jiffies(1);
    bench.tick(1);
    for task in 0..4 {
        bench.fair.task_exit(&mut bench.world, TaskId(task));
    }
    assert_eq!((bench.process().nr_threads, bench.process().cpu), (0, Some(9)));
    bench.world.set_now_for_test(Time(100 * MS));
    bench.fair.task_new(&mut bench.world, TaskId(0), None);
    let process = bench.process();
    assert_eq!((process.nr_threads, process.cpu, process.next_scan), (1, None, 25));
    assert!(process.runtime.iter().all(|runtime| runtime.ns == 0));
}

#[test]
fn nothing_happens_with_one_llc_or_without_the_switch() {
    for (scheduler, machine, active) in [
        ("fair@7.2", TWO_LLCS, true),
        ("fair@7.2", "pack:2 node:1 l3:1 core:4 pu:2", true),
        ("fair@7.2", "pack:1 node:1 l3:1 core:16 pu:1", false),
        ("fair@7.2", "pack:1 node:1 l3:4 core:1 pu:1", false),
        ("fair@7.2+no-sched-cache", TWO_LLCS, false),
        ("fair@6.15", TWO_LLCS, false),
        ("fair@6.15+sched-cache", TWO_LLCS, true),
    ] {
        let bench = Bench::new(scheduler, machine, 2);
        assert_eq!(bench.fair.cache.active, active, "{scheduler} on {machine}");
        assert_eq!(bench.fair.cache.processes.is_empty(), !active);
        let counted = |rq: &Rq| !rq.cache.by_llc.is_empty();
        assert!(bench.fair.rqs.iter().all(|rq| counted(rq) == active));
    }
}

/// Four threads that never sleep. They are forked one after the other, so they are spread.
const SPREAD: &str = r#"{
    "global": { "duration": 2 },
    "tasks": { "thread": { "instance": 4, "loop": -1, "run": 1000 } }
}"#;

#[test]
fn threads_of_a_process_gather_on_one_llc() {
    // Share of the ticks on the LLC that had most of them.
    let gathered = |scheduler: &str, workload: &str| {
        let outcome = audited_run(TWO_LLCS, scheduler, workload);
        let ticks = [0, 1].map(|llc| outcome.counter(&format!("ticks_of_llc_{llc}")));
        ticks[0].max(ticks[1]) / (ticks[0] + ticks[1])
    };
    let (with, without) = (gathered("7.2", SPREAD), gathered("7.2+no-sched-cache", SPREAD));
    assert!(with > 0.95, "with: {with}");
    assert!(without < 0.55, "without: {without}");
    let wide = SPREAD.replace('4', "14");
    assert!(gathered("7.2", &wide) < 0.55, "too many threads for an LLC");
}

#[test]
fn with_one_llc_a_run_is_the_same_with_and_without() {
    let run = |scheduler: &str| audited_run("pack:1 node:1 l3:1 core:4 pu:2", scheduler, SPREAD);
    let (with, without) = (run("7.2"), run("7.2+no-sched-cache"));
    assert_eq!(with.counters, without.counters);
}

proptest! {
    #[test]
    fn averages_and_occupancies_stay_in_their_bounds(
        average in 0..10_000u64,
        sample in 0..10_000u64,
        llc in 1..1024u64,
        ns in 0..100 * MS,
        part in 0..=100u64,
    ) {
        let next = averaged(average, sample, llc);
        prop_assert!(average.min(sample) <= next && next <= average.max(sample));
        prop_assert!(occupancy(ns / 100 * part, ns) <= WHOLE_CPU);
    }
}

/// The number of runnable tasks, with which it is compared, leaves them out too
/// (`pref_llc_running_dec()` of `set_delayed()`).
#[test]
fn sleepers_whose_dequeue_is_delayed_do_not_count_as_running_at_home() {
    let mut rq = CacheRq { by_llc: vec![0; 2], ..CacheRq::default() };
    let mut task = FairTask { preferred_llc: Some(0), ..FairTask::default() };
    let counts = |rq: &CacheRq| (rq.nr_llc_running, rq.nr_pref_llc_running, rq.by_llc[0]);
    rq.count_in(&task);
    assert_eq!(counts(&rq), (1, 1, 1));
    rq.no_longer_runnable(&task);
    task.delayed = true;
    assert_eq!(counts(&rq), (1, 0, 1));
    rq.count_out(&task);
    assert_eq!(counts(&rq), (0, 0, 0));
    rq.count_in(&task);
    task.delayed = false;
    rq.runnable_again(&task);
    assert_eq!(counts(&rq), (1, 1, 1));
    task.preferred_llc = None;
    rq.no_longer_runnable(&task);
    assert_eq!(counts(&rq), (1, 1, 1), "it prefers no LLC");
    for mut rq in [rq, CacheRq { nr_llc_running: 1, nr_pref_llc_running: 1, ..CacheRq::default() }]
    {
        let before = (rq.nr_llc_running, rq.nr_pref_llc_running, rq.by_llc.clone());
        rq.count_in(&task);
        rq.count_out(&task);
        rq.count_in(&task);
        assert_eq!(before, (rq.nr_llc_running, rq.nr_pref_llc_running, rq.by_llc));
    }
}
