/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * sis-util: how many CPUs a wakeup may examine for an idle one
 *
 * A search for an idle CPU in a busy LLC mostly finds nothing, and each CPU that it looks at costs a cache miss.
 * How busy the LLC was at the last balancing pass bounds the search:
 *
 *     x = sum_util / W                       mean utilisation of a CPU, 0 to 1024
 *     t = min(1024, x^2 * pct^2 / (10000 * 1024))
 *     n = (1024 - t) * W / 1024
 *
 *     sum_util   utilisation of all CPUs of the LLC, 1024 for one CPU fully used
 *     W          CPUs of the LLC
 *     pct        imbalance_pct of the LLC's domain (117): 100/117 = 85.5 % is "full"
 *     n          CPUs to examine; 0: do not search at all
 *
 * All divisions round down, in the order written.
 *
 * Published: "sched/fair: Introduce SIS_UTIL to search idle CPU based on sum of util_avg", v4,
 * 2022-06-12; merged for 6.0 (70fb5ccf2ebb).
 *
 * Tested examples (pct 117; the rows W = 112 and 16 are the ones published):
 *
 *     utilisation %    0    5   15   25   35   45   55   65   75   85   86
 *     W = 112        112  111  108  102   93   81   65   47   25    1    0
 *     W = 16          16   15   15   14   13   11    9    6    3    0    0
 *     W = 8            8    7    7    7    6    5    4    3    1    0    0
 */
#ifndef ROOST_SIS_UTIL_H
#define ROOST_SIS_UTIL_H

#include "types.h"

/* How many CPUs a search may examine; 0 for an LLC without CPUs. */
static __always_inline u32 roost_nr_idle_scan(u64 sum_util, u32 llc_weight, u32 imbalance_pct)
{
	u64 pct = imbalance_pct;
	u64 mean, busy;

	if (!llc_weight)
		return 0;
	mean = sum_util / llc_weight;
	if (mean > ROOST_CAPACITY)
		mean = ROOST_CAPACITY;
	busy = mean * mean * pct * pct / (10000 * ROOST_CAPACITY);
	if (busy > ROOST_CAPACITY)
		busy = ROOST_CAPACITY;
	return (ROOST_CAPACITY - busy) * llc_weight / ROOST_CAPACITY;
}

#endif
