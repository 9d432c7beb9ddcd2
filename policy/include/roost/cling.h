/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * cling: groups of tasks stay on the node they settled on, unless it became busy
 *
 * A group (a cgroup) settles on a preferred node: where its memory is. Wakeups, swaps and balancing then
 * do not pull a task of the group off that node:
 *
 *     cling(src, dst) = group clings, src = preferred, dst != preferred, src not busy
 *
 * A full node must not keep too many tasks. So each group counts, per node, how often its tasks tried and
 * failed to reach the node:
 *
 *     each attempt: T += 1024, F += 1024 if it failed, ratio = 100 * F / (T + 1)
 *
 *     every 6 s (a tenth of the longest scan period): F /= 2, T /= 2, ratio anew
 *     busiest = node with the largest F > 0, the first among equals; unchanged if all are 0
 *     busy(n) = F >= 1024, n = busiest, ratio > degree
 *
 *     F, T     failed and all attempts, times 1024, decayed
 *     ratio    failed attempts in percent
 *     degree   sysctl numa_balancing_cling_degree, percent: 20
 *
 * While a node is busy, nobody clings to it and no group settles on it. The pause ends when enough time has
 * passed without failed attempts. 1024 takes 11 halvings to become 0.
 *
 * Locality, as cpu.numa_stat shows it, is a task's local share of hinting faults in eighths:
 * 8 * l / (l + r + 1).
 *
 * All divisions round down.
 *
 * Published: "sched/numa: introduce numa cling feature" of "per-cgroup numa suite", v2 2019-07-16 to
 * v8 2020-01-21. The last two functions, the score and the room of a node, are this project's. The live
 * scheduler uses them because it sees no hinting faults.
 *
 * Tested examples:
 *
 *     outcome          fail    ok  fail    ok    ok
 *     ratio              99    49    66    49    39     F 2048, T 5120
 *     first timer      F 1024, T 2560, ratio 39, busiest: busy
 *     second timer     F  512, T 1280, ratio 39: not busy
 */
#ifndef ROOST_CLING_H
#define ROOST_CLING_H

#include "types.h"

/* No preferred node, no busiest node. */
#define ROOST_NO_NODE 0xffffffffu

/* The amount that one attempt adds. */
#define ROOST_CLING_ATTEMPT 1024

/* numa_balancing_cling_degree, percent. */
#define ROOST_CLING_DEGREE 20

/* Time between two decays: scan_period_max (60 s) / 10. */
#define ROOST_CLING_PERIOD_NS 6000000000ull

/* Number of buckets of locality in cpu.numa_stat. */
#define ROOST_CLING_BUCKETS 8

/* Attempts to reach a node. */
struct roost_cling_node {
	u64 failed;		/* F */
	u64 tried;		/* T */
	u64 ratio;		/* percent */
};

/* The search for the busiest node. It starts as { .busiest = the last one, .most = 0 }. */
struct roost_cling_walk {
	u64 most;
	u32 busiest;
};

/* Computes the percentage of failed attempts. */
static __always_inline void roost_cling_update(struct roost_cling_node *node)
{
	node->ratio = 100 * node->failed / (node->tried + 1);
}

/* A task tried to reach the node. If it failed, the caller also clears the task's preferred node. */
static __always_inline void roost_cling_attempt(struct roost_cling_node *node, bool failed)
{
	node->tried += ROOST_CLING_ATTEMPT;
	if (failed)
		node->failed += ROOST_CLING_ATTEMPT;
	roost_cling_update(node);
}

/* The timer, for each node in order: halves the counts, and looks for the busiest node. */
static __always_inline void roost_cling_decay(struct roost_cling_node *node, u32 nid,
					      struct roost_cling_walk *walk)
{
	node->failed /= 2;
	node->tried /= 2;
	roost_cling_update(node);
	if (node->failed > walk->most) {
		walk->most = node->failed;
		walk->busiest = nid;
	}
}

/* Whether failed attempts make a node busy. Tasks do not cling to a busy node. */
static __always_inline bool roost_cling_busy(const struct roost_cling_node *node, u32 nid,
					     u32 busiest, u32 degree)
{
	return node->failed >= ROOST_CLING_ATTEMPT && busiest == nid && node->ratio > degree;
}

/* Whether a task stays on the node of `src` instead of moving to the node of `dst`. */
static __always_inline bool roost_cling(bool do_cling, u32 preferred, u32 src, u32 dst,
					bool src_busy)
{
	return do_cling && preferred != ROOST_NO_NODE && dst != preferred && src == preferred &&
	       !src_busy;
}

/* Whether a group prefers a node to the best node so far. */
static __always_inline bool roost_cling_prefers(bool do_cling, u64 faults, u64 most, bool busy)
{
	return faults > most && !(do_cling && busy);
}

/* Whether a page follows a task from `src` to `dst`: decided here, or by what comes next. */
enum roost_cling_page {
	ROOST_CLING_PAGE_STAYS = 0,
	ROOST_CLING_PAGE_MOVES = 1,
	ROOST_CLING_PAGE_UNDECIDED = 2,
};

/* Whether a page follows its task from `src` to `dst`: enum roost_cling_page. */
static __always_inline u32 roost_cling_page(bool do_cling, bool dst_busy, bool src_busy)
{
	if (!do_cling)
		return ROOST_CLING_PAGE_UNDECIDED;
	if (dst_busy)
		return ROOST_CLING_PAGE_STAYS;
	return src_busy ? ROOST_CLING_PAGE_MOVES : ROOST_CLING_PAGE_UNDECIDED;
}

/* cpu.numa_stat: the bucket in which a tick is counted, from a task's local and remote faults. */
static __always_inline u32 roost_cling_bucket(u64 local, u64 remote)
{
	return ROOST_CLING_BUCKETS * local / (local + remote + 1);
}

/*
 * Live: a group's score for a node, 0 to 2000: its share of the group's memory plus its share of the CPU time.
 *
 * Both shares are in thousandths.
 */
static __always_inline u64 roost_cling_score(u64 memory, u64 all_memory, u64 cpu_time,
					     u64 all_cpu_time)
{
	return (all_memory ? 1000 * memory / all_memory : 0) +
	       (all_cpu_time ? 1000 * cpu_time / all_cpu_time : 0);
}

/*
 * Live: whether a node has room for a group beside the groups that settled there before.
 *
 * claimed, demand: CPUs times 1024 that the settled groups and this group use or wait for.
 */
static __always_inline bool roost_cling_fits(u64 claimed, u64 demand, u32 nr_cpus)
{
	return claimed + demand <= (u64)nr_cpus * ROOST_CAPACITY;
}

#endif
