/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Every number that can be set, once: the BPF program takes names and defaults from here, the loader
 * its options (--slice-us and so on), ranges and help texts.
 *
 * ROOST_TUNABLE(name, default, least, most, "meaning")
 *
 * slice_us: the fair class's base_slice with 8 CPUs or more is 0.7 ms * 4 = 2.8 ms. Queues are served
 * on ticks, of which there are 250 to 1000 a second.
 * lead_ms, llc_wait_us, node_wait_us: assumptions. Crossing LLCs costs a refill of private caches and
 * is worth it after about a slice; crossing nodes moves a task away from its memory.
 * imbalance_pct: sched domains that share a cache (kernel/sched/topology.c, sd_init).
 */
ROOST_TUNABLE(slice_us, 3000, 100, 100000, "microseconds a task may run while others wait")
ROOST_TUNABLE(lead_ms, 100, 1, 1000, "milliseconds of virtual time by which a task may be ahead: bounds the wait of light tasks")
ROOST_TUNABLE(llc_wait_us, 3000, 0, 1000000, "microseconds of waiting after which other LLCs of the node take a task, whatever llc-imbalance tolerates")
ROOST_TUNABLE(node_wait_us, 6000, 0, 1000000, "microseconds of waiting after which other nodes take a task")
ROOST_TUNABLE(imbalance_pct, 117, 100, 200, "sis-util: utilisation of an LLC, as 100 / this, at which wakeups stop searching")
