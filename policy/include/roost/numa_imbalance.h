/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * numa-imbalance: by how many tasks a NUMA node may be ahead of another
 *
 * Few tasks on a large machine are better kept together: they often communicate, and evening them out over nodes
 * moves them away from their memory. Too many tasks on one node share its caches and memory bandwidth, while another
 * node has both to spare. So the kernel tolerates an imbalance while few tasks run. What "few" means changed:
 *
 * QUARTER (5.16): fewer than a quarter of the CPUs. It does not look at caches: on a node with several LLCs tasks
 * share one LLC while others are idle.
 *
 * PUBLISHED: each domain gets a number of tasks, which follows from its LLCs. Bottom up along a CPU's domains, at the
 * one domain that is not within an LLC while its child is:
 *
 *     g = span / child_span                           LLCs in the domain
 *     v = max(1, (child_span / 2) / (g * nodes))
 *
 * All domains above have the same v. Fewer than v tasks are tolerated (none, with v = 1). "sched/fair: Adjust the
 * allowed NUMA imbalance when SD_NUMA spans multiple LLCs", 2021-12-01.
 *
 * MERGED_518 (e496132ebedd, 5.18): at the same domain
 *
 *     v = g == 1 ? span / 4 : g
 *     S = span of the first NUMA domain above, or of this one
 *     v * max(1, span / S)                            for the domains above
 *
 * MERGED_60 (026b98a93bbd, 6.0): span / 8 instead of span / 4, and v at least 1. Both tolerate up to v tasks, and
 * count the task that would be added.
 *
 * NONE: no imbalance is tolerated.
 *
 * All spans in CPUs, all imbalances in tasks, all divisions round down.
 *
 * Tested examples (node CPUs, LLCs per node x CPUs; inner / outer NUMA domain):
 *
 *                                        NUMA span   QUARTER   PUBLISHED   5.18   6.0
 *     2 nodes, 48, 1x48                         96        24          12     12     6
 *     2 nodes, 112, 1x112                      224        56          28     28    14
 *     2 nodes, 128, 8x16                       256        64           1      8     8
 *     2 nodes, 128, 16x8                       256        64           1     16    16
 *     8 nodes, 32, 2x16 (2 sockets)        128/256     32/64         1/1    2/4   2/4
 *     4 nodes, 16, 1x16                         64        16           2      4     2
 *     4 nodes in a ring, 16, 1x16            48/64     12/16         2/2    4/4   2/2
 *     2 nodes, 32, 4x8                          64        16           1      4     4
 *     2 nodes, 4, 1x4                            8         2           1      1     1
 *     8 nodes, 8, 1x8, one distance             64        16           1      2     1
 */
#ifndef ROOST_NUMA_IMBALANCE_H
#define ROOST_NUMA_IMBALANCE_H

#include "types.h"

enum roost_numa_rule {
	ROOST_NUMA_NONE = 0,
	ROOST_NUMA_QUARTER = 1,
	ROOST_NUMA_PUBLISHED = 2,
	ROOST_NUMA_MERGED_518 = 3,
	ROOST_NUMA_MERGED_60 = 4,
};

/* Up to this imbalance nothing is moved between nodes that are below the limit: a pair of tasks. */
#define ROOST_NUMA_PAIR 2

/* One domain of a CPU, seen on the way up. */
struct roost_numa_level {
	u32 span;		/* CPUs */
	u32 child_span;		/* CPUs of its child; 0 without one */
	u32 first_numa_span;	/* CPUs of the lowest NUMA domain above it; its own without one */
	u32 nodes;		/* online nodes of the machine */
	bool above_llc;		/* its CPUs do not share an LLC, those of its child do */
};

/* What the walk remembers of lower domains; all 0 at the bottom. */
struct roost_numa_walk {
	u32 allowed;
	u32 base_span;
};

/* The larger of two numbers. */
static __always_inline u32 roost_numa_max(u32 a, u32 b)
{
	return a > b ? a : b;
}

/* The published rule: v of a domain. */
static __always_inline u32 roost_numa_published(u32 span, u32 child_span, u32 nodes)
{
	u32 llcs;

	if (!child_span)
		return 1;
	llcs = span / child_span;
	if (!llcs || !nodes)
		return 1;
	return roost_numa_max(1, child_span / 2 / (llcs * nodes));
}

/* The merged rules (5.18, 6.0): v of a domain. */
static __always_inline u32 roost_numa_merged(u32 rule, u32 span, u32 child_span)
{
	u32 llcs = child_span ? span / child_span : 0;

	if (rule == ROOST_NUMA_MERGED_518)
		return llcs == 1 ? span / 4 : llcs;
	return roost_numa_max(1, llcs == 1 ? span / 8 : llcs);
}

/* imb_numa_nr of the next domain on the way up from a CPU. */
static __always_inline u32 roost_numa_step(u32 rule, struct roost_numa_walk *walk,
					   const struct roost_numa_level *level)
{
	if (rule < ROOST_NUMA_PUBLISHED)
		return 0;
	if (level->above_llc) {
		walk->base_span = level->first_numa_span;
		walk->allowed = rule == ROOST_NUMA_PUBLISHED ?
			roost_numa_published(level->span, level->child_span, level->nodes) :
			roost_numa_merged(rule, level->span, level->child_span);
		return walk->allowed;
	}
	if (rule == ROOST_NUMA_PUBLISHED || !walk->base_span)
		return walk->allowed;
	return walk->allowed * roost_numa_max(1, level->span / walk->base_span);
}

/*
 * Whether too many tasks run for an imbalance to be tolerated.
 *
 * weight: the number of CPUs of which QUARTER takes a quarter.
 */
static __always_inline bool roost_numa_over_limit(u32 rule, u32 running, u32 weight,
						  u32 imb_numa_nr)
{
	if (rule == ROOST_NUMA_NONE)
		return true;
	if (rule == ROOST_NUMA_QUARTER)
		return running >= weight / 4;
	if (rule == ROOST_NUMA_PUBLISHED)
		return running >= imb_numa_nr;
	return running > imb_numa_nr;
}

/* The imbalance that balancing acts on, given the answer of roost_numa_over_limit(). */
static __always_inline u64 roost_numa_filter(u64 imbalance, bool over_limit)
{
	return !over_limit && imbalance <= ROOST_NUMA_PAIR ? 0 : imbalance;
}

/*
 * Periodic balancing: the imbalance that balancing acts on.
 *
 * Up to PUBLISHED the tasks of the busiest group count. Later rules count the tasks of the local group and the one to
 * be pulled.
 */
static __always_inline u64 roost_numa_adjust_periodic(u32 rule, u64 imbalance, u32 busiest_running,
						      u32 busiest_weight, u32 local_running,
						      u32 imb_numa_nr)
{
	u32 running = rule <= ROOST_NUMA_PUBLISHED ? busiest_running : local_running + 1;

	return roost_numa_filter(imbalance,
				 roost_numa_over_limit(rule, running, busiest_weight,
						       imb_numa_nr));
}

/*
 * Placement of a task on a node by NUMA balancing: the imbalance that speaks against it.
 *
 * dst_running: tasks of the destination node without the new one.
 */
static __always_inline u64 roost_numa_adjust_placement(u32 rule, u64 imbalance, u32 dst_running,
						       u32 dst_weight, u32 imb_numa_nr)
{
	return roost_numa_filter(imbalance,
				 roost_numa_over_limit(rule, dst_running + 1, dst_weight,
						       imb_numa_nr));
}

/*
 * Whether a new task stays on the local node, if that node and the best other node have CPUs to spare.
 *
 * idle_difference: by how many idle CPUs the nodes differ, in either direction.
 * span_weight: CPUs of the NUMA domain. allowed: CPUs of the local node that the task may use.
 */
static __always_inline bool roost_numa_stay_local(u32 rule, u32 local_running, u32 idle_difference,
						  u32 span_weight, u32 allowed, u32 imb_numa_nr)
{
	u32 limit = allowed < imb_numa_nr ? allowed : imb_numa_nr;

	if (rule <= ROOST_NUMA_PUBLISHED)
		return !roost_numa_over_limit(rule, local_running, span_weight, imb_numa_nr);
	if (rule == ROOST_NUMA_MERGED_518)
		return !roost_numa_over_limit(rule, local_running + 1, span_weight, imb_numa_nr);
	return !roost_numa_filter(idle_difference,
				  roost_numa_over_limit(rule, local_running + 1, span_weight,
							limit));
}

#endif
