//! Tolerated imbalance between nodes: `roost/numa_imbalance.h`.

use crate::rules::functions;

/// The rule by which an imbalance is tolerated. The header describes each rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Rule {
    /// No imbalance is tolerated.
    None = 0,
    /// 5.16: a quarter of the CPUs.
    Quarter = 1,
    /// As published 2021-12-01.
    Published = 2,
    /// As merged for 5.18.
    Merged518 = 3,
    /// As changed for 6.0.
    Merged60 = 4,
}

/// One domain of a CPU, seen on the way up (`struct roost_numa_level`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct LevelSpan {
    /// CPUs of the domain.
    pub span: u32,
    /// CPUs of the domain's child; 0 if there is none.
    pub child_span: u32,
    /// CPUs of the lowest NUMA domain above this domain; if there is none, its own CPUs.
    pub first_numa_span: u32,
    /// Online nodes of the machine.
    pub nodes: u32,
    /// The child's CPUs share an LLC, this domain's CPUs do not.
    pub above_llc: bool,
}

/// What the walk remembers of lower domains (`struct roost_numa_walk`).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Walk {
    allowed: u32,
    base_span: u32,
}

/// The busiest group of a balancing pass.
#[derive(Clone, Copy, Debug)]
pub struct Busiest {
    /// Tasks that run in the group.
    pub running: u32,
    /// The group's CPUs.
    pub weight: u32,
}

/// What limits the number of tasks that stay on the local node.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// CPUs of the NUMA domain.
    pub span_weight: u32,
    /// CPUs of the local node that the task may use.
    pub allowed: u32,
    /// The domain's number from [`step`].
    pub imb_numa_nr: u32,
}

functions! {
    numa_imbalance
    safe {
        fn policy_numa_adjust_periodic(
            rule: u32,
            imbalance: u64,
            busiest_running: u32,
            busiest_weight: u32,
            local_running: u32,
            imb_numa_nr: u32,
        ) -> u64;
        fn policy_numa_adjust_placement(
            rule: u32,
            imbalance: u64,
            dst_running: u32,
            dst_weight: u32,
            imb_numa_nr: u32,
        ) -> u64;
        fn policy_numa_stay_local(
            rule: u32,
            local_running: u32,
            idle_difference: u32,
            span_weight: u32,
            allowed: u32,
            imb_numa_nr: u32,
        ) -> bool;
    }
    pointers {
        fn policy_numa_step(rule: u32, walk: *mut Walk, level: *const LevelSpan) -> u32;
    }
}

/// `imb_numa_nr` of the next domain on the way up from a CPU. `walk` starts with its default value.
pub fn step(rule: Rule, walk: &mut Walk, level: LevelSpan) -> u32 {
    // SAFETY: both point to live values with the layout of the C structs. The function keeps no pointer.
    unsafe { policy_numa_step(rule as u32, walk, &level) }
}

/// The imbalance, in tasks, that periodic balancing still acts on.
#[inline]
pub fn adjust_periodic(
    rule: Rule,
    imbalance: u64,
    busiest: Busiest,
    local_running: u32,
    imb_numa_nr: u32,
) -> u64 {
    let Busiest { running, weight } = busiest;
    policy_numa_adjust_periodic(rule as u32, imbalance, running, weight, local_running, imb_numa_nr)
}

/// The imbalance, in tasks, that speaks against placing one more task on a node of `dst_weight` CPUs on which
/// `dst_running` tasks run.
#[inline]
pub fn adjust_placement(
    rule: Rule,
    imbalance: u64,
    dst_running: u32,
    dst_weight: u32,
    imb_numa_nr: u32,
) -> u64 {
    policy_numa_adjust_placement(rule as u32, imbalance, dst_running, dst_weight, imb_numa_nr)
}

/// Whether a new task stays on the local node. There, `local_running` tasks run; the other node has `idle_difference`
/// more (or fewer) idle CPUs.
#[inline]
pub fn stay_local(rule: Rule, local_running: u32, idle_difference: u32, limit: Limit) -> bool {
    let Limit { span_weight, allowed, imb_numa_nr } = limit;
    policy_numa_stay_local(
        rule as u32,
        local_running,
        idle_difference,
        span_weight,
        allowed,
        imb_numa_nr,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const MERGED: [Rule; 2] = [Rule::Merged518, Rule::Merged60];

    /// `imb_numa_nr` of a CPU's domains: LLC, node, then the NUMA domains from the smallest up.
    fn numbers(rule: Rule, llc: u32, node: u32, numa: &[u32], nodes: u32) -> Vec<u32> {
        let mut walk = Walk::default();
        let spans: Vec<u32> = [llc, node].into_iter().chain(numa.iter().copied()).collect();
        let mut child_span = 0;
        let mut result = Vec::new();
        for (index, &span) in spans.iter().enumerate() {
            let first_numa_span = if index < 2 { numa[0] } else { span };
            let level =
                LevelSpan { span, child_span, first_numa_span, nodes, above_llc: index == 1 };
            result.push(step(rule, &mut walk, level));
            child_span = span;
        }
        assert_eq!(result[0], 0, "within the LLC");
        result.split_off(2)
    }

    /// Section 14.1: the rows of the table: spans of LLC, node and NUMA domains, and the number of nodes.
    #[test]
    fn imb_numa_nr_of_the_published_table() {
        type Row = (u32, u32, &'static [u32], u32, [&'static [u32]; 3]);
        let rows: [Row; 10] = [
            (48, 48, &[96], 2, [&[12], &[12], &[6]]),
            (112, 112, &[224], 2, [&[28], &[28], &[14]]),
            (16, 128, &[256], 2, [&[1], &[8], &[8]]),
            (8, 128, &[256], 2, [&[1], &[16], &[16]]),
            (16, 32, &[128, 256], 8, [&[1, 1], &[2, 4], &[2, 4]]),
            (16, 16, &[64], 4, [&[2], &[4], &[2]]),
            (16, 16, &[48, 64], 4, [&[2, 2], &[4, 4], &[2, 2]]),
            (8, 32, &[64], 2, [&[1], &[4], &[4]]),
            (4, 4, &[8], 2, [&[1], &[1], &[1]]),
            (8, 8, &[64], 8, [&[1], &[2], &[1]]),
        ];
        for (llc, node, numa, nodes, expected) in rows {
            for (rule, expected) in
                [Rule::Published, Rule::Merged518, Rule::Merged60].into_iter().zip(expected)
            {
                assert_eq!(
                    numbers(rule, llc, node, numa, nodes),
                    expected,
                    "{rule:?} {node} {llc}"
                );
            }
            assert_eq!(numbers(Rule::Quarter, llc, node, numa, nodes)[0], 0);
        }
    }

    #[test]
    fn a_pair_is_kept_below_the_limit_only() {
        let periodic = |rule, imbalance, busiest, local| {
            adjust_periodic(rule, imbalance, Busiest { running: busiest, weight: 48 }, local, 6)
        };
        assert_eq!(periodic(Rule::Quarter, 2, 11, 0), 0, "11 of 48 CPUs is less than a quarter");
        assert_eq!(periodic(Rule::Quarter, 2, 12, 0), 2);
        assert_eq!(periodic(Rule::Quarter, 3, 11, 0), 3, "an imbalance of 3 is more than a pair");
        assert_eq!(periodic(Rule::Published, 2, 5, 0), 0);
        assert_eq!(periodic(Rule::Published, 2, 6, 0), 2, "strict");
        for rule in MERGED {
            assert_eq!(periodic(rule, 2, 40, 5), 0, "6 tasks, counting the pulled one");
            assert_eq!(periodic(rule, 2, 40, 6), 2);
        }
        assert_eq!(periodic(Rule::None, 1, 0, 0), 1);
    }

    /// Section 14.1: with v = 1 the published rule tolerates no imbalance on a node where a task runs.
    #[test]
    fn published_tolerates_nothing_with_many_llcs() {
        let busiest = Busiest { running: 1, weight: 128 };
        assert_eq!(adjust_periodic(Rule::Published, 1, busiest, 0, 1), 1);
        assert_eq!(adjust_placement(Rule::Published, 1, 0, 128, 1), 1);
    }

    #[test]
    fn placement_counts_the_task_that_comes() {
        assert_eq!(adjust_placement(Rule::Quarter, 2, 10, 48, 0), 0);
        assert_eq!(adjust_placement(Rule::Quarter, 2, 11, 48, 0), 2);
        assert_eq!(adjust_placement(Rule::Merged60, 2, 5, 48, 6), 0);
        assert_eq!(adjust_placement(Rule::Merged60, 2, 6, 48, 6), 2);
    }

    #[test]
    fn new_tasks_stay_local_up_to_the_limit() {
        let limit = Limit { span_weight: 96, allowed: 48, imb_numa_nr: 6 };
        let stay = |rule, running, idle| stay_local(rule, running, idle, limit);
        assert!(stay(Rule::Quarter, 23, 20) && !stay(Rule::Quarter, 24, 0));
        assert!(stay(Rule::Published, 5, 20) && !stay(Rule::Published, 6, 0));
        assert!(stay(Rule::Merged518, 5, 20) && !stay(Rule::Merged518, 6, 0));
        assert!(!stay(Rule::None, 0, 0));
    }

    /// Since 6.0 a difference of at most two idle CPUs is ignored, and only below the limit. The number of CPUs that
    /// the task may use bounds the limit too.
    #[test]
    fn since_60_idle_cpus_and_affinity_count() {
        let limit = |allowed| Limit { span_weight: 96, allowed, imb_numa_nr: 6 };
        assert!(stay_local(Rule::Merged60, 5, 2, limit(48)));
        assert!(!stay_local(Rule::Merged60, 5, 3, limit(48)));
        assert!(!stay_local(Rule::Merged60, 6, 2, limit(48)));
        assert!(
            stay_local(Rule::Merged60, 6, 0, limit(48)),
            "no difference, so a move gains nothing"
        );
        assert!(!stay_local(Rule::Merged60, 2, 1, limit(2)));
        assert!(stay_local(Rule::Merged60, 1, 1, limit(2)));
    }
}
