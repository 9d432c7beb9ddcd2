/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * consolidate: each process on as few nodes as the load allows
 *
 * Every process counts its runnable tasks per node, w[node], and over all nodes, total. Where the balancer
 * moves tasks between nodes anyway, tasks that join more of their own process go first:
 *
 *     benefit = none    no process, or total < 2
 *               yes     dst.nr <= src.nr and w[dst] * src.nr >= w[src] * dst.nr
 *               no      else
 *
 *     w          runnable tasks of the process on the destination's and the source's node
 *     nr         runnable tasks of the destination's and the source's queue
 *
 * A pull across nodes makes two passes. The first takes only tasks with benefit. If it moved nothing, the
 * second takes any task, except tasks that were moved on purpose a short time ago (migrate_seq). The queue to
 * pull from is the one with most tasks that are not local:
 *
 *     local = w[node] * nodes > total
 *
 * A CPU that stays idle pulls one task of a process to its node. For each process P that runs on the
 * node, with a = w[node], T = total:
 *
 *     skipped if a < 2, T < 2, a = T, or (T > a * (nodes + 1) and nr > 2 * a)
 *
 * It pulls from the other node with the fewest tasks of P. Nodes are looked at in order, with least = a at first:
 *
 *     skipped if w = 0, w > least, nr > nr(o), nr(o) < 2 * w, nr * w >= nr(o) * a
 *     or if as many pulls from it are under way as P has tasks there (its limit)
 *
 *     nr, nr(o)  runnable tasks of the own and of the other node
 *
 * Published: "Improve numa scheduling by consolidating tasks", patches 1 to 9, 2013-07-30, on 3.9. As posted,
 * two details contradict its changelog, and `posted` keeps them. Within a node nothing is pulled at all, in
 * either pass. And a pull compares the destination's node with the node of the last try's source, CPU 0 before
 * the first try: it makes two passes, and looks for that queue, if these differ, and else the second pass only.
 *
 * Tested examples, 2 nodes, a = 6, nr = 8:
 *
 *     w[1]  nr(1)                    dst.nr  src.nr  w[dst]  w[src]
 *        2     10   node 1                1       2       3       5   yes
 *        2      7   none                  1       2       2       5   no
 *        5     10   node 1                0       2       2       5   yes
 *        6     10   none
 */
#ifndef ROOST_CONSOLIDATE_H
#define ROOST_CONSOLIDATE_H

#include "types.h"

/* No node to pull from. */
#define ROOST_CONSOLIDATE_NONE 0xffffffffu

/* migrate_seq of a task that was pulled on purpose: the number of times that the second pass leaves it alone. */
#define ROOST_CONSOLIDATE_SEQ 3

enum roost_benefit {
	ROOST_BENEFIT_NONE = -1,	/* nothing to say: no process, or it has one task */
	ROOST_BENEFIT_NO = 0,
	ROOST_BENEFIT_YES = 1,
};

/* Whether enough of a task's process runs on a node. */
static __always_inline bool roost_consolidate_local(u32 weight, u32 nodes, u32 total)
{
	return (u64)weight * nodes > total;
}

/* Whether a move to the destination is good for a task of a process: enum roost_benefit. */
static __always_inline int roost_consolidate_benefit(u32 total, u32 dst_nr, u32 dst_weight,
						     u32 src_nr, u32 src_weight)
{
	if (total < 2)
		return ROOST_BENEFIT_NONE;
	if (dst_nr <= src_nr && (u64)dst_weight * src_nr >= (u64)src_weight * dst_nr)
		return ROOST_BENEFIT_YES;
	return ROOST_BENEFIT_NO;
}

/* Whether a wakeup may go from the task's previous CPU (source) to the waker's CPU (destination). */
static __always_inline bool roost_consolidate_may_wake(int benefit)
{
	return benefit != ROOST_BENEFIT_NO;
}

/* Whether a cache-hot task is moved all the same: between nodes, if it is good or enough attempts failed. */
static __always_inline bool roost_consolidate_ignores_heat(bool across_nodes, int benefit,
							   u32 failed, u32 tries)
{
	return across_nodes && (benefit == ROOST_BENEFIT_YES || failed > tries);
}

/*
 * Whether a pull begins with a pass for tasks that gain.
 *
 * `first_cpu_node`: the node that the posted form compares with. Active balance knows its source, so its caller sets
 * `posted` to false.
 */
static __always_inline bool roost_consolidate_two_passes(bool posted, u32 dst_node, u32 src_node,
							 u32 first_cpu_node)
{
	return dst_node != (posted ? first_cpu_node : src_node);
}

/* The first pass: whether a task may be pulled. */
static __always_inline bool roost_consolidate_first_pass(bool posted, bool across_nodes,
							 int benefit)
{
	if (!across_nodes)
		return !posted;
	return benefit == ROOST_BENEFIT_YES;
}

/* The second pass: whether a task may be pulled. If not, counts its migrate_seq down. */
static __always_inline bool roost_consolidate_second_pass(bool posted, bool across_nodes,
							  u32 *migrate_seq)
{
	if (posted && !across_nodes)
		return false;
	if (!*migrate_seq)
		return true;
	--*migrate_seq;
	return false;
}

/* A process and a node, as an idle CPU of the node sees them. */
struct roost_consolidate {
	u32 weight;		/* a */
	u32 total;		/* T */
	u32 nr;			/* runnable tasks of the node */
	u32 nodes;		/* of the machine */
};

/* Whether a process is worth gathering on the node. */
static __always_inline bool roost_consolidate_worth(const struct roost_consolidate *here)
{
	u64 a = here->weight;

	if (a < 2 || here->total < 2 || a == here->total)
		return false;
	return !(here->total > a * (here->nodes + 1) && here->nr > 2 * a);
}

/* Another node. */
struct roost_consolidate_node {
	u32 weight;		/* w */
	u32 nr;			/* nr(o) */
};

/* Whether a task of the process may be pulled from another node. least: the fewest tasks so far, a at first. */
static __always_inline bool
roost_consolidate_from(const struct roost_consolidate *here,
		       const struct roost_consolidate_node *other, u32 least)
{
	u64 w = other->weight;

	if (!w || w > least || here->nr > other->nr || other->nr < 2 * w)
		return false;
	return here->nr * w < (u64)other->nr * here->weight;
}

/* Takes a token for a pull from a node: at most one for each task of the process there. */
static __always_inline bool roost_consolidate_take(u32 *limit, u32 weight)
{
	if (*limit == weight)
		return false;
	++*limit;
	return true;
}

#endif
