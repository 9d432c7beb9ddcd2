use std::collections::BTreeSet;

use proptest::prelude::*;
use roost_workload::Policy;

use super::*;
use crate::features::Features;
use crate::kit::*;
use crate::state::LINES_PER_QUEUE;

/// sis_search, sis_domain_search, sis_scanned, sis_failed.
fn sis(bench: &Bench) -> [u64; 4] {
    let s = &bench.fair.stats;
    [s.sis_search, s.sis_domain_search, s.sis_scanned, s.sis_failed]
}

/// A machine on which only the scan of the LLC can find a CPU: waker and wakee are on CPU 0, and
/// SIS_UTIL allows `nr_idle_scan` CPUs.
fn util_bench(machine: &str, nr_idle_scan: u32, idle: &[CpuId]) -> Bench {
    let mut bench = Bench::placing("fair@6.15", machine);
    bench.busy_except(idle);
    for llc in &mut bench.fair.llcs {
        llc.nr_idle_scan = nr_idle_scan;
        llc.idle_cores = false;
        llc.last_writer = 0;
    }
    bench
}

// Section 7.3: the order of the checks.

#[test]
fn an_idle_target_is_taken_without_a_scan() {
    let mut bench = Bench::placing("fair@6.15", TWO_LLCS);
    assert_eq!(bench.wake(3, 3), 3);
    assert_eq!(sis(&bench), [1, 0, 1, 0], "the fast checks count as one scan");
}

#[test]
fn an_idle_prev_of_the_targets_llc_comes_second() {
    let mut bench = util_bench(TWO_LLCS, 8, &[1, 5]);
    let mut lines = Lines::new(0);
    let cpu = bench.fair.select_idle_sibling(&bench.world, WAKEE, 5, 0, &mut lines);
    assert_eq!(cpu, 5);
    assert_eq!(sis(&bench), [1, 0, 1, 0]);
}

#[test]
fn an_idle_prev_of_another_llc_is_not_looked_at() {
    let mut bench = util_bench(TWO_LLCS, 8, &[1, 12]);
    let mut lines = Lines::new(0);
    assert_eq!(bench.fair.select_idle_sibling(&bench.world, WAKEE, 12, 0, &mut lines), 1);
    assert_eq!(sis(&bench), [1, 1, 2, 0]);
}

#[test]
fn an_idle_recent_cpu_comes_third_and_is_always_replaced_by_prev() {
    let mut bench = util_bench(TWO_LLCS, 8, &[1, 5]);
    let recent = |bench: &Bench| bench.fair.tasks[WAKEE.index()].recent_used_cpu;
    bench.fair.tasks[WAKEE.index()].recent_used_cpu = 5;
    assert_eq!(bench.wake(0, 2), 5);
    assert_eq!(recent(&bench), 2);
    bench.fair.tasks[WAKEE.index()].recent_used_cpu = 6;
    assert_eq!(bench.wake(0, 2), 5, "by a scan from prev: CPU 6 is busy");
    assert_eq!(recent(&bench), 2, "also after a miss");
}

#[test]
fn a_recent_cpu_that_is_forbidden_or_far_is_not_taken() {
    let mut bench = util_bench(TWO_LLCS, 0, &[5, 12]);
    bench.allow(WAKEE, [0, 1, 2]);
    bench.fair.tasks[WAKEE.index()].recent_used_cpu = 5;
    assert_eq!(bench.wake(2, 2), 2);
    bench.fair.tasks[WAKEE.index()].recent_used_cpu = 12;
    assert_eq!(bench.wake(2, 2), 2);
    assert_eq!(sis(&bench), [2, 2, 2, 2]);
}

#[test]
fn without_an_llc_domain_the_target_is_the_answer() {
    let mut bench = Bench::placing("fair@6.15", "pack:1 node:1 l3:4 core:1 pu:1");
    bench.busy_except(&[1]);
    assert_eq!(bench.wake(2, 2), 2);
    assert_eq!(sis(&bench), [1, 0, 1, 0]);
}

#[test]
fn a_cpu_with_sched_idle_tasks_only_is_usable_unless_the_wakee_is_such_a_task() {
    let mut bench = util_bench(TWO_LLCS, 8, &[]);
    bench.sched_idle(&[3]);
    assert_eq!(bench.wake(0, 0), 3, "found by the scan");
    assert_eq!(bench.wake(3, 3), 3, "found as the target");
    bench.world.set_policy_for_test(WAKEE, Policy::Idle);
    assert_eq!(bench.wake(0, 0), 0);
}

#[test]
fn a_sibling_of_prev_is_tried_if_no_idle_core_is_known() {
    let mut bench = util_bench(TWO_LLCS_SMT, 8, &[3, 1]);
    bench.fair.tasks[WAKEE.index()].recent_used_cpu = 2;
    assert_eq!(bench.wake(2, 2), 3);
    assert_eq!(sis(&bench), [1, 1, 2, 0], "after 6.5 prev itself is not examined again");
    let mut old = Bench::placing("fair@5.19", TWO_LLCS_SMT);
    old.busy_except(&[3, 1]);
    old.fair.llcs[0].idle_cores = false;
    assert_eq!(old.wake(2, 2), 3);
    assert_eq!(sis(&old), [1, 1, 3, 0], "up to 5.19 it is");
}

#[test]
fn the_sibling_of_prev_is_not_tried_across_llcs_or_if_forbidden() {
    let mut bench = util_bench(TWO_LLCS_SMT, 0, &[11]);
    let mut lines = Lines::new(0);
    assert_eq!(bench.fair.select_idle_sibling(&bench.world, WAKEE, 10, 0, &mut lines), 0);
    assert_eq!(sis(&bench), [1, 1, 1, 1]);
    bench.allow(WAKEE, [10, 12]);
    assert_eq!(bench.wake(10, 10), 10);
    assert_eq!(sis(&bench), [2, 2, 2, 2]);
}

#[test]
fn with_clusters_known_cpus_of_another_cluster_are_the_last_resort() {
    let mut bench = util_bench(CLUSTERS, 8, &[3, 5]);
    let mut lines = Lines::new(0);
    // prev 5 is idle but not in the cluster of target 0; the scan finds CPU 3 first.
    assert_eq!(bench.fair.select_idle_sibling(&bench.world, WAKEE, 5, 0, &mut lines), 3);
    bench.fair.llcs[0].nr_idle_scan = 0;
    assert_eq!(bench.fair.select_idle_sibling(&bench.world, WAKEE, 5, 0, &mut lines), 5);
    assert_eq!(bench.fair.stats.sis_failed, 0);
}

#[test]
fn with_clusters_the_targets_own_is_scanned_first_on_the_same_budget() {
    // Target 4's cluster is 4, 5. From 5 on, wrapping: 5, 4, and then 6, 7, 0, 1, ...
    let mut bench = util_bench(CLUSTERS, 8, &[6]);
    assert_eq!(bench.wake(4, 4), 6);
    assert_eq!(sis(&bench), [1, 1, 1 + 3, 0]);
    bench.fair.llcs[0].nr_idle_scan = 2;
    assert_eq!(bench.wake(4, 4), 4, "the budget is spent in the cluster");
    assert_eq!(sis(&bench), [2, 2, 4 + 1 + 3, 1]);
}

// Section 7.4: budgets and what is counted.

#[test]
fn the_scan_begins_after_the_target_and_wraps() {
    let mut bench = util_bench(TWO_LLCS, 8, &[1, 2, 9]);
    assert_eq!(bench.wake(5, 5), 1);
    assert_eq!(sis(&bench), [1, 1, 1 + 4, 0], "6, 7, 0, 1");
}

#[test]
fn sis_util_examines_exactly_nr_idle_scan_cpus() {
    let mut bench = util_bench(TWO_LLCS, 4, &[4]);
    assert_eq!(bench.wake(0, 0), 4, "the fourth after CPU 0");
    assert_eq!(sis(&bench), [1, 1, 1 + 4, 0]);
    bench.fair.llcs[0].nr_idle_scan = 3;
    assert_eq!(bench.wake(0, 0), 0);
    assert_eq!(sis(&bench), [2, 2, 5 + 1 + 4, 1], "the step that gives up counts");
}

#[test]
fn sis_util_of_zero_scans_nothing_not_even_for_an_idle_core() {
    let mut bench = util_bench(TWO_LLCS_SMT, 0, &[4, 5]);
    bench.fair.llcs[0].idle_cores = true;
    assert_eq!(bench.wake(0, 0), 0);
    assert_eq!(sis(&bench), [1, 1, 1, 1]);
    assert!(bench.fair.llcs[0].has_idle_cores(bench.world.now()), "and the flag stays");
}

#[test]
fn an_idle_core_is_searched_without_a_budget() {
    let mut bench = util_bench(TWO_LLCS_SMT, 1, &[6, 7]);
    bench.fair.llcs[0].idle_cores = true;
    assert_eq!(bench.wake(0, 0), 6);
    // The round begins at CPU 1, whose core is 0 and 1.
    assert_eq!(sis(&bench), [1, 1, 1 + 8, 0]);
    assert!(bench.fair.llcs[0].has_idle_cores(bench.world.now()));
}

#[test]
fn a_failed_search_for_an_idle_core_clears_the_flag_and_returns_the_first_idle_cpu() {
    let mut bench = util_bench(TWO_LLCS_SMT, 8, &[3, 7]);
    bench.fair.llcs[0].idle_cores = true;
    bench.fair.llcs[0].last_writer = 4;
    assert_eq!(bench.wake(0, 0), 3);
    let now = bench.world.now();
    let ended = now + bench.cost(0);
    assert!(bench.fair.llcs[0].has_idle_cores(now), "other searches go on until this one ends");
    assert!(!bench.fair.llcs[0].has_idle_cores(ended));
    assert_eq!(bench.fair.llcs[0].last_writer, 0);
    // Cores 0 and 1 completely. Then CPU 3 is the fallback, and cores 2 and 3 are left at the first
    // busy CPU.
    assert_eq!(sis(&bench), [1, 1, 1 + 2 + 2 + 1 + 1, 0]);
}

#[test]
fn an_idle_core_is_returned_as_its_first_cpu_in_the_round() {
    let mut bench = util_bench(TWO_LLCS_SMT, 8, &[4, 5]);
    bench.fair.llcs[0].idle_cores = true;
    bench.allow(WAKEE, [0, 5]);
    assert_eq!(bench.wake(0, 0), 5, "CPU 4 is idle but forbidden");
}

#[test]
fn sis_prop_scans_span_times_idle_time_over_cost_but_at_least_four_steps() {
    assert_eq!(prop_steps(8, 1000, 2000), 4, "8000 is not above 4 * 2000");
    assert_eq!(prop_steps(8, 1001, 2000), 4);
    assert_eq!(prop_steps(8, 1250, 2000), 5);
    assert_eq!(prop_steps(112, 500_000, 1), 56_000_000);
    assert_eq!(prop_steps(8, 0, 1), 4);
}

/// A machine for SIS_PROP with an average scan cost of 999 ns and `idle_ns` left on CPU 0.
fn prop_bench(idle_ns: u64, idle: &[CpuId]) -> Bench {
    let mut bench = Bench::placing("fair@5.19", TWO_LLCS);
    bench.busy_except(idle);
    bench.fair.rqs[0].wake_avg_idle = idle_ns;
    bench.fair.rqs[0].wake_stamp = bench.fair.jiffies(bench.world.now());
    bench.fair.rqs[0].domains[0].avg_scan_cost = 999;
    bench
}

#[test]
fn sis_prop_gives_up_at_the_last_step_and_does_not_account_that() {
    let mut bench = prop_bench(0, &[4]);
    assert_eq!(bench.wake(0, 0), 0, "four steps examine three CPUs");
    assert_eq!(sis(&bench), [1, 1, 1 + 4, 1]);
    assert_eq!(bench.fair.rqs[0].domains[0].avg_scan_cost, 999);
    let mut bench = prop_bench(0, &[3]);
    assert_eq!(bench.wake(0, 0), 3);
    assert_eq!(sis(&bench), [1, 1, 1 + 3, 0]);
}

#[test]
fn sis_prop_averages_an_eighth_and_uses_up_idle_time() {
    let mut bench = prop_bench(10_000, &[4]);
    assert_eq!(bench.wake(0, 0), 4);
    let ns = 4 * LINES_PER_QUEUE * bench.world.machine().line_ns(4, 0);
    assert_eq!(bench.cost(0), ns);
    assert_eq!(bench.fair.rqs[0].wake_avg_idle, 10_000 - ns);
    assert_eq!(bench.fair.rqs[0].domains[0].avg_scan_cost, 999 - (999 - ns) / 8);
    assert_eq!(bench.fair.rqs[1].domains[0].avg_scan_cost, 0, "the cost is the waker CPU's own");
}

#[test]
fn sis_prop_is_unlimited_and_unaccounted_with_an_idle_core() {
    let mut bench = Bench::placing("fair@5.19", TWO_LLCS_SMT);
    bench.busy_except(&[6, 7]);
    bench.fair.llcs[0].idle_cores = true;
    assert_eq!(bench.wake(0, 0), 6);
    let level = bench.fair.topology.llc_level[0].unwrap();
    assert_eq!(bench.fair.rqs[0].domains[level].avg_scan_cost, 0);
}

#[test]
fn without_a_limiter_every_cpu_is_examined() {
    let mut bench = Bench::placing("fair@6.15+no-sis-util", TWO_LLCS);
    bench.busy_except(&[]);
    assert_eq!(bench.wake(3, 3), 3);
    assert_eq!(sis(&bench), [1, 1, 1 + 8, 1]);
}

#[test]
fn forbidden_cpus_are_neither_examined_nor_counted() {
    let mut bench = util_bench(TWO_LLCS, 8, &[1, 6]);
    bench.allow(WAKEE, [0, 3, 6]);
    assert_eq!(bench.wake(0, 0), 6);
    assert_eq!(sis(&bench), [1, 1, 1 + 2, 0]);
}

// What a search costs.

#[test]
fn a_scan_pays_a_line_for_every_cpu_it_examines_and_none_for_giving_up() {
    let mut bench = util_bench(TWO_LLCS, 3, &[]);
    assert_eq!(bench.wake(0, 0), 0);
    let line = LINES_PER_QUEUE * bench.world.machine().line_ns(1, 0);
    assert_eq!(bench.cost(0), 3 * line);
    assert_eq!(bench.fair.stats.select_idle_cpu_us.counts().iter().sum::<u64>(), 1);
}

#[test]
fn the_llcs_shared_line_is_paid_for_if_another_cpu_wrote_it() {
    let mut bench = util_bench(TWO_LLCS, 0, &[]);
    bench.fair.llcs[0].last_writer = 12;
    bench.wake(0, 0);
    assert_eq!(bench.cost(0), bench.world.machine().line_ns(12, 0));
}

// The search by 64 CPUs compared with a search one by one.

/// What a scan one by one does, following the kernel's loops.
struct OneByOne {
    end: End,
    steps: u64,
    examined: Vec<CpuId>,
    fallback: Option<CpuId>,
}

/// CPU sets of one search.
struct Sets {
    mask: BTreeSet<CpuId>,
    idle: BTreeSet<CpuId>,
    sched_idle: BTreeSet<CpuId>,
    allowed: BTreeSet<CpuId>,
}

fn wrapping(set: &BTreeSet<CpuId>, start: CpuId) -> Vec<CpuId> {
    set.range(start..).chain(set.range(..start)).copied().collect()
}

fn cpus_one_by_one(sets: &Sets, start: CpuId, mut nr: u64) -> OneByOne {
    let mut done = OneByOne { end: End::Nothing, steps: 0, examined: vec![], fallback: None };
    for cpu in wrapping(&sets.mask, start) {
        done.steps += 1;
        nr -= 1;
        if nr == 0 {
            done.end = End::GaveUp;
            return done;
        }
        done.examined.push(cpu);
        if sets.idle.contains(&cpu) || sets.sched_idle.contains(&cpu) {
            done.end = End::Found(cpu);
            return done;
        }
    }
    done
}

fn cores_one_by_one(topology: &Topology, sets: &Sets, start: CpuId) -> OneByOne {
    let mut done = OneByOne { end: End::Nothing, steps: 0, examined: vec![], fallback: None };
    let mut removed = BTreeSet::new();
    for cpu in wrapping(&sets.mask, start) {
        if removed.contains(&cpu) {
            continue;
        }
        let mut idle = true;
        for sibling in topology.siblings(cpu).iter() {
            done.steps += 1;
            done.examined.push(sibling);
            if !sets.idle.contains(&sibling) {
                idle = false;
                if done.fallback.is_none() {
                    if sets.sched_idle.contains(&sibling) && sets.allowed.contains(&sibling) {
                        done.fallback = Some(sibling);
                        break;
                    }
                    continue;
                }
                break;
            }
            if done.fallback.is_none() && sets.allowed.contains(&sibling) {
                done.fallback = Some(sibling);
            }
        }
        if idle {
            done.end = End::Found(cpu);
            return done;
        }
        removed.extend(topology.siblings(cpu).iter());
    }
    done
}

/// Machines with siblings adjacent and far apart, LLCs in one word and across words, and cores with
/// more than two threads.
const MACHINES: [&str; 6] = [
    TWO_LLCS_SMT,
    TWO_LLCS,
    CLUSTERS,
    "zen3-2s",
    "pack:2 node:1 l3:1 core:56 pu:2",
    "core:20 pu:4",
];

fn members(nr_cpus: usize, seed: &[u64; 4], sparse: bool) -> BTreeSet<CpuId> {
    let bit = |cpu: usize| seed[cpu / 64 % 4].rotate_right((cpu % 64) as u32) & 1 != 0;
    // Two bits that look independent give a set with a quarter of the CPUs.
    (0..nr_cpus).filter(|&cpu| bit(cpu) && (!sparse || bit((cpu * 7 + 3) % nr_cpus))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn scanning_by_words_is_scanning_one_by_one(
        machine in 0..MACHINES.len(), idle in any::<[u64; 4]>(), sched in any::<[u64; 4]>(),
        allowed in any::<[u64; 4]>(), (all_allowed, few_idle, any_sched) in any::<(bool, bool, bool)>(),
        target in any::<prop::sample::Index>(), searcher in any::<prop::sample::Index>(),
        nr in prop_oneof![1u64..20, 1u64..130, Just(u64::MAX)],
    ) {
        let machine = roost_machine::resolve(MACHINES[machine]).unwrap();
        let topology = Topology::new(&machine, &Features::parse("fair@6.15").unwrap());
        let n = machine.nr_cpus();
        let (target, cpu) = (target.index(n), searcher.index(n));
        let set = |cpus: &BTreeSet<CpuId>| CpuSet::from_cpus(n, cpus.iter().copied());
        let idle = members(n, &idle, few_idle);
        let sched_idle: BTreeSet<_> = if any_sched { members(n, &sched, true) } else { BTreeSet::new() };
        let sched_idle = &sched_idle - &idle;
        let allowed = if all_allowed { (0..n).collect() } else { members(n, &allowed, false) };
        let span = &topology.llc_span[topology.llc_of[target] as usize];
        let mask = allowed.iter().copied().filter(|&cpu| span.contains(cpu)).collect();
        let (idle_set, sched_set, allowed_set) = (set(&idle), set(&sched_idle), set(&allowed));
        let candidates = Candidates {
            idle: idle_set.words(),
            sched_idle: any_sched.then_some(&sched_set),
            allowed: allowed_set.words(),
            span: span.words(),
            without: None,
        };
        let sets = Sets { mask, idle, sched_idle, allowed };

        for (expected, by_core) in [
            (cpus_one_by_one(&sets, target + 1, nr), false),
            (cores_one_by_one(&topology, &sets, target + 1), true),
        ] {
            let mut scan = Scan::new(&machine, &topology, cpu, if by_core { u64::MAX } else { nr });
            let end = match by_core {
                true => scan.cores(candidates, target + 1),
                false => scan.cpus(candidates, target + 1),
            };
            prop_assert_eq!(end, expected.end);
            prop_assert_eq!(scan.steps, expected.steps);
            prop_assert_eq!(scan.fallback, expected.fallback);
            let cost: u64 = expected.examined.iter().map(|&other| machine.line_ns(other, cpu)).sum();
            let cost = LINES_PER_QUEUE * cost;
            prop_assert_eq!(scan.cost_ns(target), cost, "examined {:?}", expected.examined);
        }
    }

    #[test]
    fn the_lowest_bits_are_the_first_ones(word in any::<u64>(), share in 0u64..=64) {
        let count = share.min(u64::from(word.count_ones()));
        let bits = lowest(word, count);
        prop_assert_eq!(u64::from(bits.count_ones()), count);
        prop_assert_eq!(bits & word, bits);
        prop_assert!(bits == 0 || word & (u64::MAX >> bits.leading_zeros()) == bits);
    }
}
