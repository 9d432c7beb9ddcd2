/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The utilisation of a CPU: an average of busy and idle time in which the last 32 ms weigh half
 *
 *     y = 0.5^(1/32)                          decay in a period of 2^20 ns (1.05 ms)
 *     u = u * y^(d) + (busy ? 1024 * (1 - y^(d)) : 0)
 *
 *     d       periods since the last update, fractions included (linear between whole periods)
 *     u       0 to 1024 (ROOST_CAPACITY: always busy); kept times 2^10 so that short steps count
 *
 * The decay is that of the kernel's PELT (kernel/sched/pelt.c, half-life 32 periods of 1024 us). The period is rounded
 * to a power of two ns, so that no division is needed. Between whole periods the error of the straight line is below
 * 0.01 %. Unlike PELT this knows no frequencies and no capacities.
 *
 * Tested examples: always busy from 0: 512 after 32 periods, 768 after 64, 1024 in the end; idle from
 * 1024: 512, 256, 0.
 */
#ifndef ROOST_UTILISATION_H
#define ROOST_UTILISATION_H

#include "types.h"

/* Fraction bits of a kept utilisation. */
#define ROOST_UTIL_SHIFT 10
#define ROOST_UTIL_FULL ((u64)ROOST_CAPACITY << ROOST_UTIL_SHIFT)

/* 2^20 ns. */
#define ROOST_UTIL_PERIOD_SHIFT 20
#define ROOST_UTIL_HALF_LIFE 32

/* 2^16 * y^n for n of 0 to 32. */
static const u32 roost_util_decay[ROOST_UTIL_HALF_LIFE + 1] = {
	65536, 64132, 62757, 61413, 60097, 58809, 57549, 56316, 55109, 53928, 52773,
	51642, 50535, 49452, 48393, 47356, 46341, 45348, 44376, 43425, 42495, 41584,
	40693, 39821, 38968, 38133, 37316, 36516, 35734, 34968, 34219, 33486, 32768,
};

/* Live: 2^16 * y^(elapsed). */
static __always_inline u64 roost_util_factor(u64 elapsed_ns)
{
	u64 periods = elapsed_ns >> ROOST_UTIL_PERIOD_SHIFT;
	u64 rest = elapsed_ns & ((1u << ROOST_UTIL_PERIOD_SHIFT) - 1);
	u32 index = periods & (ROOST_UTIL_HALF_LIFE - 1);
	u64 halvings = periods / ROOST_UTIL_HALF_LIFE;
	u64 here = roost_util_decay[index];
	u64 next = roost_util_decay[index + 1];

	if (halvings > 16)
		return 0;
	return (here - (((here - next) * rest) >> ROOST_UTIL_PERIOD_SHIFT)) >> halvings;
}

/* Live: the stored utilisation (times 2^ROOST_UTIL_SHIFT) after a time in which the CPU was busy or idle. */
static __always_inline u64 roost_util_advance(u64 kept, u64 elapsed_ns, bool busy)
{
	u64 target = busy ? ROOST_UTIL_FULL : 0;
	u64 factor = roost_util_factor(elapsed_ns);

	return (kept * factor + target * (65536 - factor)) >> 16;
}

#endif
