/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Everything that is counted, once: the BPF program takes the fields of struct roost_counters from here,
 * the loader its statistics and their descriptions. Names are the kernel's where it has one.
 *
 * ROOST_COUNTER(name, "meaning")
 */
ROOST_COUNTER(ttwu_count, "wakeups for which a CPU was chosen")
ROOST_COUNTER(direct, "tasks given to an idle CPU at once")
ROOST_COUNTER(queued, "tasks put in the queue of an LLC")
ROOST_COUNTER(bound, "tasks put in the queue of the only CPU they may use")
ROOST_COUNTER(kernel_threads, "kernel threads of one CPU that went past all queues")
ROOST_COUNTER(nr_migrations, "tasks that started on another CPU than they last ran on")
ROOST_COUNTER(llc_migrations, "of these: in another LLC")
ROOST_COUNTER(node_migrations, "of these: on another node")
ROOST_COUNTER(sis_search, "sis-util: searches for an idle CPU in an LLC")
ROOST_COUNTER(sis_domain_search, "sis-util: of these, searches in which the last CPU was not idle")
ROOST_COUNTER(sis_scanned, "sis-util: CPUs examined")
ROOST_COUNTER(sis_failed, "sis-util: searches that found none")
ROOST_COUNTER(sis_util_bounded, "sis-util: searches that the utilisation of the LLC cut short")
ROOST_COUNTER(llc_spilled, "wakeups that went to an idle CPU of another LLC of the node")
ROOST_COUNTER(llc_stolen, "tasks that an idle CPU took from another LLC of its node")
ROOST_COUNTER(llc_imbalance_kept, "llc-imbalance: times that a small imbalance was left alone")
ROOST_COUNTER(node_stolen, "tasks that an idle CPU took from another node")
ROOST_COUNTER(late, "tasks that waited longer than llc_wait_us")
ROOST_COUNTER(numa_imbalance_local, "numa-imbalance: new tasks kept on their node although another has more idle CPUs")
ROOST_COUNTER(numa_imbalance_spread, "numa-imbalance: new tasks placed in another LLC or on another node")
ROOST_COUNTER(rescued, "times that a queue had held tasks for a tenth of a second although a CPU was idle")
ROOST_COUNTER(released, "times that a CPU was taken by a realtime or deadline task and its tasks were queued again")
ROOST_COUNTER(run_delay_ns, "nanoseconds that tasks waited in queues")
ROOST_COUNTER(run_delay_max_ns, "nanoseconds of the longest wait in a queue so far")
