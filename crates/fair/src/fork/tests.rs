use proptest::prelude::*;

use super::*;
use crate::kit::*;
use crate::state::LINES_PER_QUEUE;

/// Two nodes of two LLCs with four CPUs each, without SMT.
const TWO_NODES_TWO_LLCS: &str = "pack:2 node:1 l3:2 core:4 pu:1";

/// WAKER on `cpu` forks WAKEE.
fn fork(bench: &mut Bench, cpu: CpuId) -> CpuId {
    bench.world.set_task_cpu(WAKEE, cpu);
    bench.fair.select_task_rq_fork(&mut bench.world, WAKEE, wake_on(cpu))
}

fn group(nr_running: u32, idle_cpus: u32, util: u64) -> GroupLoad {
    let cpus = 4;
    GroupLoad {
        cpus,
        capacity: 1024 * u64::from(cpus),
        nr_running,
        idle_cpus,
        util,
        load: util,
        runnable: util,
        imbalanced: false,
    }
}

#[test]
fn a_group_is_classified_by_the_first_rule_that_holds() {
    // Capacity 4096 and pct 117: full from util 3501 on.
    assert_eq!(group(3, 1, 4096).fullness(117), Fullness::HasSpare, "fewer tasks than CPUs");
    assert_eq!(group(4, 0, 3500).fullness(117), Fullness::HasSpare);
    assert_eq!(group(4, 0, 3501).fullness(117), Fullness::FullyBusy);
    assert_eq!(group(5, 0, 3500).fullness(117), Fullness::HasSpare);
    assert_eq!(group(5, 0, 3501).fullness(117), Fullness::Overloaded);
    // 117 * 4096 < 100 * runnable.
    let waiting = GroupLoad { runnable: 4793, ..group(5, 0, 0) };
    assert_eq!(waiting.fullness(117), Fullness::Overloaded);
    assert_eq!(GroupLoad { runnable: 4792, ..waiting }.fullness(117), Fullness::HasSpare);
    assert_eq!(GroupLoad { nr_running: 4, ..waiting }.fullness(117), Fullness::FullyBusy);
    let imbalanced = GroupLoad { imbalanced: true, ..group(3, 1, 0) };
    assert_eq!(imbalanced.fullness(117), Fullness::Imbalanced);
    assert_eq!(GroupLoad { imbalanced: true, ..waiting }.fullness(117), Fullness::Overloaded);
}

#[test]
fn the_idlest_group_has_the_lower_type_then_more_idle_cpus_then_less_utilisation() {
    let (spare, full) = (group(3, 1, 900), group(4, 0, 4000));
    assert!(spare.is_idler_than(&full, 117) && !full.is_idler_than(&spare, 117));
    assert!(group(2, 2, 2000).is_idler_than(&spare, 117));
    assert!(group(3, 1, 899).is_idler_than(&spare, 117));
    assert!(!spare.is_idler_than(&spare, 117), "the first of equals stays");
    assert!(group(4, 0, 3900).is_idler_than(&full, 117), "less load");
}

#[test]
fn fully_busy_groups_are_left_only_for_clearly_less_load() {
    let mut domain = Bench::placing("fair@6.15", TWO_LLCS).fair.topology.domains[0].clone();
    domain.imbalance_pct = 117;
    let load = |load: u64| GroupLoad { load: 4 * load, ..group(4, 0, 4096) };
    // 1024 * 17 / 100 = 174. By this alone the other group may even have more load, but the ratio
    // refuses.
    assert!(!load_says_leave(&domain, &load(1000), &load(1000)));
    assert!(!load_says_leave(&domain, &load(1170), &load(1000)));
    assert!(load_says_leave(&domain, &load(1171), &load(1000)));
    // Between nodes the difference must exceed 174 too.
    domain.flags = domain.flags.with(Flags::NUMA);
    assert!(!load_says_leave(&domain, &load(674), &load(500)));
    assert!(load_says_leave(&domain, &load(675), &load(500)));
}

#[test]
fn a_new_task_goes_to_the_llc_with_more_idle_cpus() {
    let mut bench = Bench::placing("fair@6.15", TWO_LLCS);
    bench.busy([0]);
    bench.fair.rqs[11].idle_since = Some(5);
    assert_eq!(fork(&mut bench, 0), 11, "the CPU there that went idle last");
}

/// `update_sg_wakeup_stats` of 7.2: a group's sums cover only the CPUs that the task may use.
#[test]
fn from_7_2_on_only_allowed_cpus_count() {
    for (scheduler, idle) in [("fair@6.15", 7), ("fair@7.2", 1)] {
        let mut bench = Bench::placing(scheduler, TWO_LLCS);
        bench.busy([0]);
        let allowed = CpuSet::from_cpus(bench.world.machine().nr_cpus(), [0, 1]);
        bench.world.set_allowed_for_test(WAKEE, allowed);
        let group = bench.fair.topology.domains_of(0).iter().find_map(|&id| {
            let groups = &bench.fair.topology.domain(id).groups;
            let spans = |&&group: &&GroupId| bench.fair.topology.group(group).span.len() == 8;
            groups.iter().find(spans).copied()
        });
        let sums = group.map(|group| bench.fair.group_load(&bench.world, WAKEE, group));
        assert_eq!(sums.map(|sums| sums.idle_cpus), Some(idle), "{scheduler}");
    }
}

#[test]
fn a_new_task_stays_in_an_llc_with_as_many_idle_cpus() {
    let mut bench = Bench::placing("fair@6.15", TWO_LLCS);
    bench.busy([0, 9]);
    bench.fair.rqs[3].idle_since = Some(5);
    bench.fair.rqs[2].avg.util_avg = 10;
    bench.fair.rqs[1].avg.util_avg = 10;
    // Inside the LLC every CPU is a group: utilisation decides, not the time of going idle.
    assert_eq!(fork(&mut bench, 0), 3);
    bench.fair.rqs[3].avg.util_avg = 11;
    assert_eq!(fork(&mut bench, 0), 4);
}

#[test]
fn a_node_may_be_ahead_by_imb_numa_nr() {
    // Two nodes of 8 CPUs: 6.0 and later allow 1 task, 5.18 allows 2, 5.16 up to span / 4 = 4.
    for (scheduler, running, stays) in [
        ("fair@6.15", 1, false),
        ("fair@5.19", 1, true),
        ("fair@5.19", 2, false),
        ("fair@5.16", 3, true),
        ("fair@5.16", 4, false),
    ] {
        let mut bench = Bench::placing(scheduler, TWO_NODES);
        bench.busy(0..running);
        let cpu = fork(&mut bench, 0);
        assert_eq!(cpu < 8, stays, "{scheduler} with {running} running went to {cpu}");
    }
}

#[test]
fn the_search_goes_on_in_the_domains_of_the_cpu_found() {
    let mut bench = Bench::placing("fair@6.15", TWO_NODES_TWO_LLCS);
    bench.busy(0..8);
    bench.busy([8, 9]);
    bench.fair.rqs[10].idle_since = Some(9);
    // Node 1 has room. CPU 10 went idle last there, but its LLC has two idle CPUs and the other LLC
    // four.
    let cpu = fork(&mut bench, 0);
    assert!((12..16).contains(&cpu), "{cpu}");
}

#[test]
fn a_group_without_an_allowed_cpu_is_skipped_and_the_local_one_too() {
    let mut bench = Bench::placing("fair@6.15", TWO_NODES);
    bench.allow(WAKEE, [12, 13]);
    bench.busy([12]);
    assert_eq!(fork(&mut bench, 0), 13);
    bench.allow(WAKEE, [13]);
    assert_eq!(fork(&mut bench, 0), 13);
}

#[test]
fn without_idle_cpus_the_least_load_wins_and_sched_idle_only_at_once() {
    let mut bench = Bench::placing("fair@6.15", TWO_LLCS);
    bench.busy_except(&[]);
    for (cpu, rq) in bench.fair.rqs.iter_mut().enumerate() {
        rq.avg.load_avg = 1024 - cpu as u64;
        rq.avg.util_avg = 1024;
    }
    let at = bench.fair.topology.domains_of(0).len() - 1;
    let group = bench.fair.domain_at(0, at).groups[0];
    let idlest = |bench: &Bench| bench.fair.find_idlest_group_cpu(&bench.world, WAKEE, 0, group);
    assert_eq!(idlest(&bench), 7);
    bench.sched_idle(&[4]);
    assert_eq!(idlest(&bench), 4);
}

#[test]
fn among_idle_cpus_the_latest_wins_and_the_first_of_equals() {
    let mut bench = Bench::placing("fair@6.15", TWO_LLCS);
    bench.busy([0]);
    let at = bench.fair.topology.domains_of(0).len() - 1;
    let group = bench.fair.domain_at(0, at).groups[0];
    let idlest = |bench: &Bench| bench.fair.find_idlest_group_cpu(&bench.world, WAKEE, 0, group);
    assert_eq!(idlest(&bench), 1);
    bench.fair.rqs[5].idle_since = Some(7);
    bench.fair.rqs[6].idle_since = Some(7);
    assert_eq!(idlest(&bench), 5);
}

#[test]
fn every_run_queue_of_the_highest_domain_is_paid_for_once() {
    let mut bench = Bench::placing("fair@6.15", TWO_NODES_TWO_LLCS);
    bench.busy(0..8);
    fork(&mut bench, 0);
    let machine = bench.world.machine();
    let all: u64 = (1..16).map(|cpu| machine.line_ns(cpu, 0)).sum();
    assert_eq!(bench.cost(0), LINES_PER_QUEUE * all);
}

#[test]
fn a_machine_of_one_cpu_keeps_the_task() {
    let mut bench = Bench::placing("fair@6.15", "core:1 pu:1");
    assert_eq!(fork(&mut bench, 0), 0);
}

proptest! {
    /// Whatever CPUs are busy or forbidden: the task may run on the CPU chosen.
    #[test]
    fn a_new_task_is_put_where_it_may_run(
        busy in proptest::collection::btree_set(0usize..16, 0..16),
        allowed in proptest::collection::btree_set(0usize..16, 1..16),
        forker in 0usize..16,
    ) {
        let mut bench = Bench::placing("fair@7.2", TWO_NODES_TWO_LLCS);
        bench.busy(busy);
        bench.allow(WAKEE, allowed.iter().copied());
        let cpu = fork(&mut bench, forker);
        prop_assert!(allowed.contains(&cpu));
    }
}
