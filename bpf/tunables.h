/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Every number that can be set, once: the BPF program takes names and defaults from here, the loader
 * its options (--slice-us and so on), ranges and help texts.
 *
 * ROOST_TUNABLE(name, default, least, most, "meaning")
 *
 * slice_us: the fair class's base_slice with 8 CPUs or more is 0.7 ms * 4 = 2.8 ms. Queues are served
 * on ticks, of which there are 250 to 1000 a second.
 * lead_ms: a slice of nice 19, the lightest weight (1 of 100), is 400 ms with 250 ticks a second.
 * llc_wait_us, node_wait_us: assumptions. Crossing LLCs costs a refill of private caches and
 * is worth it when tasks wait for longer than two slices, which are ticks of 4 ms with 250 a second;
 * crossing nodes moves a task away from its memory.
 * imbalance_pct: sched domains that share a cache (kernel/sched/topology.c, sd_init).
 */
ROOST_TUNABLE(slice_us, 3000, 100, 100000, "microseconds a task may run while others wait")
ROOST_TUNABLE(lead_ms, 500, 1, 10000, "milliseconds of virtual time by which a task may be ahead of others")
ROOST_TUNABLE(llc_wait_us, 8000, 0, 1000000, "microseconds for which an LLC has had waiting tasks before other LLCs of the node take one, whatever llc-imbalance tolerates")
ROOST_TUNABLE(node_wait_us, 20000, 0, 1000000, "microseconds for which an LLC has had waiting tasks before other nodes take one")
ROOST_TUNABLE(imbalance_pct, 117, 100, 200, "sis-util: utilisation of an LLC, as 100 / this, at which wakeups stop searching")
