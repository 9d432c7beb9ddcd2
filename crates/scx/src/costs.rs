//! What the kernel itself executes for a program, in instructions: around each call of a hook, and in kfuncs and
//! helpers.
//!
//! The costs were measured on Linux 7.2.13 in a guest that counts instructions (`roost vm run --exact`, 1 CPU), with
//! two tasks that wake each other through pipes. A cost is the difference to a scheduler without hooks, or comes from
//! calling a function 64 times in `running`. Repeats differed by at most 2%. docs/notes/2026-11-26-sched-ext-costs.md
//! has the figures.
//!
//! The cost of sched_ext's own code where no hook is called is not charged: a wakeup, a switch and a sleep took 1404
//! instructions more under the fair class, and the machine's figures for wakeups and switches include these.

/// Instructions around a call of a hook: the mean of four empty hooks, which took 118 to 158.
pub(crate) const HOOK: u64 = 129;

/// Additional instructions of `scx_bpf_dsq_move_to_local()` if it moves a task: 367 in total.
pub(crate) const MOVED: u64 = 153;

/// kfuncs whose cost was measured, and kfuncs that do the same work.
const KFUNCS: [(&str, u64); 41] = [
    ("scx_bpf_dsq_insert", 178),
    ("scx_bpf_dsq_insert___v2", 178),
    ("scx_bpf_dsq_insert_vtime", 178),
    ("__scx_bpf_dsq_insert_vtime", 178),
    ("scx_bpf_dsq_move_to_local", 214),
    ("scx_bpf_dsq_move_to_local___v2", 214),
    // The cost of a move to the local queue is used.
    ("scx_bpf_dsq_move", 367),
    ("scx_bpf_dsq_move_vtime", 367),
    ("scx_bpf_dsq_nr_queued", 148),
    ("scx_bpf_dsq_peek", 147),
    // An empty iteration took 286. Starting it includes a look-up of the queue, as in `scx_bpf_dsq_nr_queued()`.
    ("bpf_iter_scx_dsq_new", 148),
    ("bpf_iter_scx_dsq_next", 138),
    ("scx_bpf_test_and_clear_cpu_idle", 95),
    ("scx_bpf_pick_idle_cpu", 159),
    // This does the same search as the one above.
    ("scx_bpf_pick_any_cpu", 159),
    // These search wider. They were called in `select_cpu`, on 2 CPUs of which none was idle.
    ("scx_bpf_select_cpu_dfl", 362),
    ("scx_bpf_select_cpu_and", 355),
    ("__scx_bpf_select_cpu_and", 355),
    // Getting and releasing the mask took 57 together.
    ("scx_bpf_get_idle_cpumask", 57),
    ("scx_bpf_get_idle_smtmask", 57),
    ("scx_bpf_kick_cpu", 163),
    ("scx_bpf_task_set_slice", 56),
    ("scx_bpf_task_set_dsq_vtime", 56),
    ("scx_bpf_task_cpu", 10),
    ("scx_bpf_task_running", 14),
    ("scx_bpf_cpu_curr", 72),
    ("scx_bpf_cpu_rq", 72),
    ("scx_bpf_now", 74),
    ("scx_bpf_nr_cpu_ids", 8),
    // Locking and unlocking took 17 together.
    ("bpf_rcu_read_lock", 9),
    ("bpf_rcu_read_unlock", 8),
    ("bpf_cpumask_test_cpu", 14),
    ("bpf_cpumask_set_cpu", 14),
    ("bpf_cpumask_clear_cpu", 14),
    ("bpf_cpumask_test_and_set_cpu", 14),
    ("bpf_cpumask_test_and_clear_cpu", 14),
    ("bpf_cpumask_first", 24),
    ("bpf_cpumask_weight", 28),
    ("bpf_cpumask_intersects", 29),
    ("bpf_cpumask_subset", 29),
    ("bpf_cpumask_empty", 29),
];

/// A function that was not measured costs as much as the cheapest measured one, getting the number of CPUs.
const LEAST: u64 = 8;

/// Helpers, by the kernel's number.
const HELPERS: [(u32, u64); 10] = [
    // bpf_map_lookup_elem of an array, which the kernel inlines.
    (1, 9),
    // An update and a delete first look up the key, so they cost at least as much as a look-up in a hash table.
    (2, 101),
    (3, 101),
    // bpf_ktime_get_ns, and the variant with the coarse clock.
    (5, 40),
    (125, 40),
    // bpf_get_smp_processor_id and the current task, which the kernel inlines.
    (8, 5),
    (14, 5),
    (158, 5),
    // bpf_task_storage_get, bpf_task_storage_delete.
    (156, 34),
    (157, 34),
];

/// Additional instructions of a look-up in a hash table: 101 in total.
pub(crate) const HASHED: u64 = 92;

/// The costs of helpers, indexed by number.
const BY_NUMBER: [u64; 256] = {
    let mut table = [LEAST; 256];
    let mut at = 0;
    while at < HELPERS.len() {
        table[HELPERS[at].0 as usize] = HELPERS[at].1;
        at += 1;
    }
    table
};

/// Instructions that the kernel executes in a kfunc.
pub(crate) fn of_kfunc(name: &str) -> u64 {
    KFUNCS.iter().find(|(known, _)| *known == name).map_or(LEAST, |(_, cost)| *cost)
}

/// Instructions that the kernel executes in a helper.
pub(crate) fn of_helper(number: u32) -> u64 {
    BY_NUMBER.get(number as usize).copied().unwrap_or(LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_of_functions_that_there_are_each_once() {
        for (at, (name, _)) in KFUNCS.iter().enumerate() {
            assert!(crate::kfuncs::find(name).is_some(), "{name}");
            assert!(KFUNCS[..at].iter().all(|other| other.0 != *name), "{name}");
        }
        for (at, (number, _)) in HELPERS.iter().enumerate() {
            assert!(crate::helpers::find(*number).is_some(), "{number}");
            assert!(HELPERS[..at].iter().all(|other| other.0 != *number), "{number}");
        }
    }
}
