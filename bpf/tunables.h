/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * All numbers that can be set, defined once. The BPF program takes names and defaults from here, the loader its
 * options (--slice-us and so on), ranges and help texts.
 *
 * ROOST_TUNABLE(name, default, least, most, "meaning")
 *
 * Where the defaults come from:
 *
 *     slice_us        the fair class's base_slice with 8 CPUs or more is 0.7 ms * 4 = 2.8 ms. Queues are served at
 *                     ticks, of which there are 250 to 1000 a second
 *     lead_ms         a slice of nice 19, the lightest weight (1 of 100), is 400 ms with 250 ticks a second
 *     llc_wait_us     assumption: a task that moves to another LLC refills private caches. That pays off if tasks
 *                     wait for longer than two slices, which are ticks of 4 ms with 250 a second
 *     node_wait_us    assumption: a task that moves to another node is also away from its memory
 *     preempt_us      the fair class protects a running task for its slice (RUN_TO_PARITY), 2.8 ms; a task whose
 *                     slice is over runs on to the next tick. That a quarter of a slice is short (WORTH_A_SWITCH in
 *                     queue.h) is an assumption
 *     cling_degree    sysctl numa_balancing_cling_degree of the published patch
 *     cling_wait_us, settle_ms, retry_ms
 *                     assumptions. The published patch lets a task try again after a sixteenth of its scan period,
 *                     62 ms to a second
 *     max_groups, max_processes, max_cgroups
 *                     sizes of tables. An entry that does not fit is scheduled as if its mechanism was off
 *     imbalance_pct   scheduling domains that share a cache (kernel/sched/topology.c, sd_init)
 *
 * llc_wait_us and node_wait_us do not hold for tasks with long bursts (LONG_NS in place.h), because a migration
 * costs these little compared with what they run.
 */
ROOST_TUNABLE(slice_us, 3000, 100, 100000, "microseconds a task may run while others wait")
ROOST_TUNABLE(lead_ms, 500, 1, 10000, "milliseconds of virtual time by which a task may be ahead (two slices, if more)")
ROOST_TUNABLE(llc_wait_us, 8000, 0, 1000000, "microseconds of waiting in an LLC until others of its node take a task")
ROOST_TUNABLE(node_wait_us, 20000, 0, 1000000, "microseconds of waiting in an LLC until other nodes take a task")
ROOST_TUNABLE(imbalance_pct, 117, 100, 200, "sis-util: at a utilisation of 100 / this, an LLC counts as full")
ROOST_TUNABLE(preempt_us, 2800, 0, 1000000, "microseconds until a task gives way to a wakee of short bursts; 0: never")
ROOST_TUNABLE(cling_degree, 20, 0, 100, "cling: percent of failed attempts at which a node may count as busy")
ROOST_TUNABLE(cling_wait_us, 100000, 0, 10000000, "cling: microseconds, as node-wait-us, for tasks that cling")
ROOST_TUNABLE(settle_ms, 1000, 0, 100000, "cling, consolidate: milliseconds before settling, and between two tries")
ROOST_TUNABLE(retry_ms, 250, 1, 100000, "cling, consolidate: milliseconds between a task's attempts to reach its node")
ROOST_TUNABLE(max_groups, 4096, 1, 1000000, "cling: groups known at once; by default so many for each 256 CPUs")
ROOST_TUNABLE(max_processes, 8192, 1, 1000000, "consolidate: processes of several threads known at once; as max-groups")
ROOST_TUNABLE(max_cgroups, 4096, 1, 1000000, "cgroups whose weights and limits are known at once; as max-groups")
