//! What each counter of a simulated run means. The generated reference and the report page use this list. Mechanisms
//! bring the meanings of their own counters.

/// A counter, or a family of counters whose names differ in one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The name. A word in capitals stands for a part: `LEVEL` for a level of scheduling domains, `IDLE` for the state
    /// of the balancing CPU, `N` for a number, `GROUP` for the path of a cgroup, `HOOK` for a hook of a sched_ext
    /// program, `COUNTER` for a counter of the program itself.
    pub name: &'static str,
    /// What it counts. The unit is named unless it counts events.
    pub meaning: &'static str,
}

/// All counters, in groups and in the order of the output.
pub fn known_counters() -> [(&'static str, Vec<Counter>); 6] {
    let of_mechanisms = roost_fair::mechanisms().iter().flat_map(|mechanism| mechanism.counters);
    let of_mechanisms = of_mechanisms.map(|(name, meaning)| counter(name, meaning));
    [
        ("Tasks and CPUs (the engine)", ENGINE.to_vec()),
        ("Memory (workloads with memory regions)", MEMORY.to_vec()),
        ("Idle search and wakeups (the fair class; names as in the kernel)", FAIR.to_vec()),
        ("Balancing, by level of domains", BALANCING.to_vec()),
        ("Mechanisms (counted while they are on)", of_mechanisms.collect()),
        ("Hooks of a sched_ext program", PROGRAMS.to_vec()),
    ]
}

const fn counter(name: &'static str, meaning: &'static str) -> Counter {
    Counter { name, meaning }
}

const ENGINE: &[Counter] = &[
    counter("wakeups", "wakeups of sleeping tasks"),
    counter("wakeups_prev", "of these, placed on the CPU where the task last ran"),
    counter("wakeups_waker_llc", "of these, placed on a CPU of the waker's LLC"),
    counter("migrations", "times that a task started on a CPU other than its last one"),
    counter("migrations_llc", "of these, to another LLC of the same node"),
    counter("migrations_node", "of these, to another node"),
    counter("context_switches", "switches from one task (or idle) to another"),
    counter("forks", "tasks created"),
    counter("ticks", "ticks on CPUs that were not idle"),
    counter("ipis", "interrupts that one CPU sent another"),
    counter("run_ns", "time that tasks were on a CPU, including kernel work on their behalf, ns"),
    counter("run_delay_ns", "time that tasks waited in a queue for a CPU, ns"),
    counter("kernel_ns", "kernel work charged to CPUs, ns"),
    counter("llcs_shared", "LLCs that run more than one task, averaged over time"),
    counter(
        "events_run_end",
        "simulator events: a task finished its work, or a CPU finished a piece of kernel work",
    ),
    counter("events_tick", "simulator events: ticks"),
    counter("events_interrupt", "simulator events: interrupts from one CPU to another"),
    counter("events_timer", "simulator events: timers of tasks"),
    counter("events_scheduler_timer", "simulator events: timers of the scheduler"),
    counter("events_clocks", "simulator events: the hardware sets clocks"),
];

const MEMORY: &[Counter] = &[
    counter("numa_hit", "pages allocated on the intended node"),
    counter("numa_miss", "pages allocated on another node because the intended node was full"),
    counter("numa_pte_updates", "pages that NUMA balancing marked, so that the next access faults"),
    counter("numa_hint_faults", "hint faults: accesses to marked pages"),
    counter("numa_hint_faults_local", "of these, faults of a CPU on the page's node"),
    counter("numa_pages_migrated", "pages that NUMA balancing moved"),
    counter("memory_local_bytes", "bytes transferred from memory on the task's node"),
    counter("memory_remote_bytes", "bytes transferred from memory on other nodes"),
    counter(
        "memory_numa_statGROUP.nodeN_pages",
        "pages of the group's processes on the node at the end of the run",
    ),
    counter("sched_move_numa", "tasks that NUMA balancing moved to their preferred node"),
    counter("sched_swap_numa", "pairs of tasks that NUMA balancing swapped"),
    counter(
        "sched_stick_numa",
        "times that NUMA balancing found no CPU for a task on the preferred node",
    ),
];

const FAIR: &[Counter] = &[
    counter("yld_count", "calls of sched_yield"),
    counter("sched_goidle", "times that a CPU found nothing to run"),
    counter("sis_search", "searches for an idle CPU (select_idle_sibling)"),
    counter(
        "sis_domain_search",
        "of these, searches whose fast checks failed, so that the LLC was searched",
    ),
    counter("sis_scanned", "CPUs examined; the fast checks of one search count as one CPU"),
    counter("sis_failed", "searches that found no idle CPU and returned the target"),
    counter(
        "nr_wakeups_affine_attempts",
        "wakeups that checked whether to pull the task to the waker's CPU",
    ),
    counter("nr_wakeups_affine", "of these, wakeups that pulled the task"),
    counter("nr_forced_migrations", "cache-hot tasks that balancing moved after failed passes"),
    counter("nr_failed_migrations_affine", "tasks not moved because their affinity forbids it"),
    counter("nr_failed_migrations_running", "tasks not moved because they were running"),
    counter("nr_failed_migrations_hot", "tasks not moved because their cache was hot"),
];

const BALANCING: &[Counter] = &[
    counter("LEVEL.lb_count.IDLE", "balancing passes"),
    counter("LEVEL.lb_balanced.IDLE", "passes that found the domain balanced"),
    counter("LEVEL.lb_failed.IDLE", "passes that found an imbalance but moved no task"),
    counter(
        "LEVEL.lb_imbalance.IDLE",
        "sum of the imbalances found, each in the unit of its pass (load or tasks)",
    ),
    counter("LEVEL.lb_gained.IDLE", "tasks moved"),
    counter("LEVEL.lb_hot_gained.IDLE", "of these, tasks whose cache was hot"),
    counter("LEVEL.lb_nobusyq.IDLE", "passes that found no busiest runqueue"),
    counter("LEVEL.lb_nobusyg.IDLE", "passes that found no busiest group"),
    counter("LEVEL.alb_count", "active balances started (each pushes a running task away)"),
    counter("LEVEL.alb_failed", "active balances that moved nothing"),
    counter("LEVEL.alb_pushed", "tasks moved by active balance"),
    counter(
        "LEVEL.ttwu_wake_remote",
        "wakeups of a task from another CPU, at the lowest level that contains both CPUs",
    ),
    counter("LEVEL.ttwu_move_affine", "wakeups moved to the waker's CPU"),
    counter("LEVEL.ttwu_move_balance", "wakeups moved by the slow path"),
];

const PROGRAMS: &[Counter] = &[
    counter("HOOK_calls", "calls of the hook"),
    // Longer names stand before HOOK_instructions and the like, which would otherwise take `HOOK_kernel` for the hook.
    counter(
        "HOOK_kernel_instructions",
        "kernel instructions around the hook and in kfuncs and helpers that it called",
    ),
    counter("HOOK_instructions", "BPF instructions that the hook executed"),
    counter("HOOK_most_kfuncs", "most kfuncs that one call of the hook called"),
    counter("HOOK_most_steps", "most waiting tasks that one call of the hook visited"),
    counter(
        "HOOK_most_lines",
        "most cache lines that one call of the hook fetched from other CPUs",
    ),
    counter("HOOK_kfuncs", "kfuncs that the hook called"),
    counter(
        "HOOK_steps",
        "waiting tasks that the hook visited with iterators, each of which takes the queue's lock",
    ),
    counter("HOOK_lines", "cache lines that the hook fetched from other CPUs"),
    counter(
        "HOOK_waited_ns",
        "time that the hook waited for locks of dispatch queues and for spin locks, ns",
    ),
    counter(
        "roost_COUNTER",
        "a counter of roost's own program, which `scx_roost --help-stats` explains",
    ),
];

/// The counter with this name, or the family that it belongs to.
pub fn meaning(name: &str) -> Option<Counter> {
    let mut all = known_counters().into_iter().flat_map(|(_, counters)| counters);
    all.find(|counter| stands_for(counter.name, name))
}

/// Whether the pattern `pattern` matches `name`.
fn stands_for(pattern: &str, name: &str) -> bool {
    const PARTS: [&str; 6] = ["LEVEL", "IDLE", "GROUP", "HOOK", "COUNTER", "N"];
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
        assert_eq!(family("roost_sis_search"), Some("roost_COUNTER"));
    }

    #[test]
    fn no_name_is_taken_for_another() {
        for name in ["wakeups_", "cling_attempts_node", "numa_statx.locality7", "mc.lb_count.idle"]
        {
            assert_eq!(meaning(name), None, "{name}");
        }
    }
}
