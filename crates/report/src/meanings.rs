//! What every counter of a simulated run means: for the reference, and for people who look at a table.

/// A counter, or a family of them whose names differ in a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Its name. Words in capitals stand for a part: `LEVEL` a level of scheduling domains, `IDLE` what the balancing CPU
    /// does, `N` a number, `GROUP` the path of a cgroup, `HOOK` a hook of a sched_ext program.
    pub name: &'static str,
    /// What it counts, in which unit if not in times.
    pub meaning: &'static str,
}

/// All of them, grouped as the output has them.
pub const COUNTERS: &[(&str, &[Counter])] = &[
    ("Tasks and CPUs (the engine)", ENGINE),
    ("Memory (workloads that name theirs)", MEMORY),
    ("Idle search and wakeups (the fair class, by the kernel's names)", FAIR),
    ("Balancing, by level of domains", BALANCING),
    ("Mechanisms that are on", MECHANISMS),
    ("Hooks of a sched_ext program", PROGRAMS),
];

const fn counter(name: &'static str, meaning: &'static str) -> Counter {
    Counter { name, meaning }
}

const ENGINE: &[Counter] = &[
    counter("wakeups", "wakeups of sleeping tasks"),
    counter("wakeups_prev", "of these, placed on the CPU where the task last ran"),
    counter("wakeups_waker_llc", "of these, placed on a CPU of the waker's LLC"),
    counter("migrations", "starts of a task on another CPU than it last ran on"),
    counter("migrations_llc", "of these, to another LLC of the same node"),
    counter("migrations_node", "of these, to another node"),
    counter("context_switches", "switches from one task, or idle, to another"),
    counter("forks", "tasks created"),
    counter("ticks", "ticks on CPUs that were not idle"),
    counter("ipis", "interrupts that one CPU sent another"),
    counter("run_ns", "time that tasks were on a CPU, ns, with kernel work on their behalf"),
    counter("run_delay_ns", "time that tasks waited in a queue for a CPU, ns"),
    counter("kernel_ns", "kernel work charged to CPUs, ns"),
    counter("llcs_shared", "LLCs that run more than one task, mean over time"),
    counter(
        "events_run_end",
        "events of the simulation: a task has done its work, or its CPU a piece of its own",
    ),
    counter("events_tick", "events of the simulation: ticks"),
    counter("events_interrupt", "events of the simulation: interrupts of one CPU by another"),
    counter("events_timer", "events of the simulation: timers of tasks"),
    counter("events_scheduler_timer", "events of the simulation: timers of the scheduler"),
];

const MEMORY: &[Counter] = &[
    counter("numa_hit", "pages placed on the node where they were meant to be"),
    counter("numa_miss", "pages placed elsewhere because that node was full"),
    counter("numa_pte_updates", "pages that NUMA balancing marked, so that the next access faults"),
    counter("numa_hint_faults", "faults of marked pages"),
    counter("numa_hint_faults_local", "of these, on the node of the page"),
    counter("numa_pages_migrated", "pages that NUMA balancing moved"),
    counter("memory_local_bytes", "bytes transferred from memory of the task's node"),
    counter("memory_remote_bytes", "bytes transferred from memory of other nodes"),
    counter(
        "memory_numa_statGROUP.nodeN_pages",
        "pages of the group's processes on the node at the end",
    ),
    counter("sched_move_numa", "tasks that NUMA balancing moved to their preferred node"),
    counter("sched_swap_numa", "pairs of tasks that it swapped"),
    counter("sched_stick_numa", "times that it found no CPU for a task on its preferred node"),
];

const FAIR: &[Counter] = &[
    counter("yld_count", "calls of sched_yield"),
    counter("sched_goidle", "times that a CPU found nothing to run"),
    counter("sis_search", "searches for an idle CPU (select_idle_sibling)"),
    counter(
        "sis_domain_search",
        "of these, those in which the fast checks failed, so that the LLC was searched",
    ),
    counter("sis_scanned", "CPUs examined, one a search for the fast checks included"),
    counter("sis_failed", "searches that returned the target as a last resort"),
    counter(
        "nr_wakeups_affine_attempts",
        "wakeups that asked whether to pull the task to the waker",
    ),
    counter("nr_wakeups_affine", "of these, those that did"),
    counter(
        "nr_forced_migrations",
        "tasks moved by balancing although their cache was hot, after failures",
    ),
    counter("nr_failed_migrations_affine", "tasks not moved because their affinity forbids it"),
    counter("nr_failed_migrations_running", "tasks not moved because they ran"),
    counter("nr_failed_migrations_hot", "tasks not moved because their cache was hot"),
];

const BALANCING: &[Counter] = &[
    counter("LEVEL.lb_count.IDLE", "balancing passes"),
    counter("LEVEL.lb_balanced.IDLE", "passes that found nothing to do"),
    counter("LEVEL.lb_failed.IDLE", "passes that found an imbalance and moved nothing"),
    counter("LEVEL.lb_imbalance.IDLE", "sum of the imbalances found, in the unit of each pass"),
    counter("LEVEL.lb_gained.IDLE", "tasks moved"),
    counter("LEVEL.lb_hot_gained.IDLE", "of these, those whose cache was hot"),
    counter("LEVEL.lb_nobusyq.IDLE", "passes that found no busiest queue"),
    counter("LEVEL.lb_nobusyg.IDLE", "passes that found no busiest group"),
    counter("LEVEL.alb_count", "active balances started: a running task is pushed away"),
    counter("LEVEL.alb_failed", "active balances that moved nothing"),
    counter("LEVEL.alb_pushed", "tasks moved by active balance"),
    counter(
        "LEVEL.ttwu_wake_remote",
        "wakeups of a task that was queued on another CPU, at the lowest level that holds both",
    ),
    counter("LEVEL.ttwu_move_affine", "wakeups moved to the waker's CPU"),
    counter("LEVEL.ttwu_move_balance", "wakeups moved by the slow path"),
];

const MECHANISMS: &[Counter] = &[
    counter(
        "numa_imbalance_kept",
        "passes that would have moved something without the tolerance between nodes",
    ),
    counter("numa_imbalance_local", "new tasks kept on their node by the rule"),
    counter("sis_util_not_begun", "searches that found a limit of 0 CPUs"),
    counter("sis_util_ended", "searches that the limit ended"),
    counter(
        "llc_imbalance_kept",
        "passes that would have moved something without the tolerance between LLCs",
    ),
    counter("cling_attempts_nodeN", "attempts to bring tasks of a group to the node"),
    counter("cling_failures_nodeN", "of these, those that failed"),
    counter(
        "cling_pauses_nodeN",
        "times that a group no longer clung to the node because attempts failed",
    ),
    counter("cling_most_ratio_nodeN", "largest ratio of failures that began such a pause"),
    counter("cling_held", "wakeups, swaps or pulls that may not take a task off its node"),
    counter("cling_held_pages", "pages that stay"),
    counter(
        "numa_statGROUP.localityN",
        "time that tasks of the group ran with a locality of N to N+1 eighths, ms",
    ),
    counter("numa_statGROUP.exectime_nodeN", "time that tasks of the group ran on the node, ms"),
    counter("consolidate_asked", "times that an idle CPU looked for a task to gather"),
    counter("consolidate_pulled", "tasks that an idle CPU took"),
    counter("consolidate_held", "wakeups kept from the waker's CPU"),
    counter(
        "consolidate_first",
        "tasks that balancing took first because they join more of their process",
    ),
];

const PROGRAMS: &[Counter] = &[
    counter("HOOK_calls", "calls of the hook"),
    // Before HOOK_instructions, which would take its name for that of a hook.
    counter("HOOK_kernel_instructions", "kernel instructions around it and in what it called"),
    counter("HOOK_instructions", "instructions of BPF that it executed"),
    counter("HOOK_lines", "cache lines that it fetched from other CPUs"),
    counter("HOOK_waited_ns", "how long it waited for locks of dispatch queues"),
];

/// The counter of that name, or its family.
pub fn meaning(name: &str) -> Option<&'static Counter> {
    COUNTERS
        .iter()
        .flat_map(|(_, counters)| *counters)
        .find(|counter| stands_for(counter.name, name))
}

/// Whether `pattern` stands for `name`.
fn stands_for(pattern: &str, name: &str) -> bool {
    const PARTS: [&str; 5] = ["LEVEL", "IDLE", "GROUP", "HOOK", "N"];
    let first = PARTS.iter().filter_map(|part| Some((pattern.find(part)?, *part))).min();
    let Some((at, part)) = first else { return pattern == name };
    let (before, after) = (&pattern[..at], &pattern[at + part.len()..]);
    let Some(rest) = name.strip_prefix(before) else { return false };
    let holds = |text: &str| match part {
        "N" => !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()),
        "GROUP" => text.starts_with('/'),
        "LEVEL" => {
            !text.is_empty() && text.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit())
        }
        _ => !text.is_empty() && !text.contains('.'),
    };
    (0..=rest.len())
        .filter(|&end| rest.is_char_boundary(end))
        .any(|end| holds(&rest[..end]) && stands_for(after, &rest[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_find_their_family() {
        let family = |name: &str| meaning(name).map(|counter| counter.name);
        assert_eq!(family("wakeups"), Some("wakeups"));
        assert_eq!(family("NUMA2.lb_count.newidle"), Some("LEVEL.lb_count.IDLE"));
        assert_eq!(family("numa_stat/a.b/c.locality7"), Some("numa_statGROUP.localityN"));
        assert_eq!(family("cling_attempts_node12"), Some("cling_attempts_nodeN"));
        assert_eq!(family("select_cpu_calls"), Some("HOOK_calls"));
        let kernel = family("select_cpu_kernel_instructions");
        assert_eq!(kernel, Some("HOOK_kernel_instructions"));
    }

    #[test]
    fn no_name_is_taken_for_another() {
        for name in ["wakeups_", "cling_attempts_node", "numa_statx.locality7", "mc.lb_count.idle"]
        {
            assert_eq!(meaning(name), None, "{name}");
        }
    }
}
