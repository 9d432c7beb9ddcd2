/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * llc-imbalance: a small imbalance between the LLCs of a node is left alone
 *
 * When the balancer evens out idle CPUs between the LLCs of a node, one task too many on one side is enough to
 * move something. Two tasks that wake each other then chase each other through the LLCs. Up to a limit nothing
 * is moved:
 *
 *     L = span / c              LLCs of the node; the rule holds if L > 1
 *     n = 1                     if c < 4
 *     n = max(2, c / 4)         if c >= 4: a quarter of an LLC, at least a pair of tasks
 *     amount = 0                if amount <= n
 *
 *     span       CPUs of the domain (a node)
 *     c          CPUs of its child domain (an LLC)
 *     amount     imbalance in tasks, before the balancer halves it
 *
 * It applies to a domain whose child shares an LLC and whose parent is a NUMA domain. The caller checks that. As
 * published, the check also holds for a single LLC whose child is the SMT domain (sub-NUMA clustering). With two
 * threads a core that does no harm (n = 1).
 *
 * Published: "sched/fair: allow imbalance between LLCs under NUMA", 2025-05-28.
 *
 * Tested examples, amounts 1 to 10 after halving, two LLCs of c CPUs:
 *
 *     c = 2         0 1 1 2 2 3 3 4 4 5
 *     c = 4, 6, 8   0 0 1 2 2 3 3 4 4 5
 *     c = 12        0 0 0 2 2 3 3 4 4 5
 *     c = 16        0 0 0 0 2 3 3 4 4 5
 *     c = 32        0 0 0 0 0 0 0 0 4 5
 */
#ifndef ROOST_LLC_IMBALANCE_H
#define ROOST_LLC_IMBALANCE_H

#include "types.h"

/* Tasks that one of several LLCs, each of child_span CPUs, may have more than another. */
static __always_inline u32 roost_llc_imbalance_allowed(u32 child_span)
{
	u32 least = child_span >= 4 ? 2 : 1;
	u32 quarter = child_span / 4;

	return quarter > least ? quarter : least;
}

/* The imbalance that is left to balance, before halving. */
static __always_inline u64 roost_llc_imbalance_adjust(u64 amount, u32 span, u32 child_span)
{
	if (!child_span || span / child_span <= 1)
		return amount;
	return roost_llc_imbalance_allowed(child_span) >= amount ? 0 : amount;
}

#endif
