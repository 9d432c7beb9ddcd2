/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Budgets of cgroups with a limit on CPU time (cpu.max)
 *
 *     quota, period    a cgroup may run for quota ns in each period, on all CPUs together
 *     burst            what it left of earlier periods it may use later, up to this (cpu.max.burst)
 *     left             what it may still run. Below zero it is a debt, so the mean is exact however late a slice ends
 *
 * At the end of a period
 *
 *     left = min(left + quota, quota + burst)
 *
 * as in __refill_cfs_bandwidth_runtime() (kernel/sched/fair.c). A cgroup that ran nothing for a whole period begins a
 * new one when it runs again.
 *
 * A task has to reserve what it is going to run, of its own cgroup and of all that this one is in. So many CPUs cannot
 * spend the same budget at once. It reserves what it mostly runs between two sleeps, a slice at most. What it ran
 * beyond that is charged when it stops; what it did not use it gives back when it sleeps. A task that may not reserve
 * is parked (park.h).
 *
 * An entry of this table has the same index as its cgroup's entry among the shares (weights.h). A task learns its
 * limit when it comes to a cgroup, and again whenever it has run or waited for some milliseconds (charge_sets()). So
 * tasks without a limit pay for one test of a field.
 */
#ifndef ROOST_LIMITS_H
#define ROOST_LIMITS_H

#include "weights.h"

struct roost_limit {
	struct bpf_timer timer;	/* while tasks are parked, fires at the end of each period */
	u64 period;		/* ns */
	u64 quota;		/* ns; 0: no limit */
	u64 burst;		/* ns */
	u64 throttled_at;	/* since when tasks are parked */
	u32 up;			/* the next cgroup above with a limit; NONE */
	u32 armed;		/* the timer is set */
	bool throttled;		/* tasks are parked; others queue behind them */
	bool ready;		/* has a queue and a timer */
	bool used;		/* this cgroup has had a limit, so tasks may be parked */
	/* Written by all CPUs that run tasks of the cgroup. */
	u64 refill_at __attribute__((aligned(CACHE_LINE)));	/* the end of the period, CLOCK_MONOTONIC ns */
	s64 left;		/* ns */
} __attribute__((aligned(CACHE_LINE)));

ARRAY(limits, struct roost_limit);

/*
 * Largest number of nested cgroups whose limits are kept. For a cgroup that is deeper, the limits of this many
 * cgroups above it hold.
 */
#define NESTED 64

/*
 * Largest number of missed periods that are refilled at once. More would overflow with the largest quota that
 * the kernel accepts (MAX_BW).
 */
#define MOST_PERIODS 64

static __always_inline struct roost_limit *limit_at(u32 limit)
{
	return bpf_map_lookup_elem(&limits, &limit);
}

/* The nearest cgroup with a limit, which is this one or above it, or NONE. */
__noinline u32 nearest_limit(u32 index)
{
	struct roost_limit *limit;
	struct roost_share *share;
	int i;

	bpf_for(i, 0, NESTED) {
		share = share_at(index);
		limit = limit_at(index);
		if (!share || !limit)
			break;
		if (limit->quota)
			return index;
		index = share->parent;
	}
	return NONE;
}

static __always_inline void find_limit(u32 index)
{
	struct roost_share *share = share_at(index);
	struct roost_limit *limit = limit_at(index);

	if (!share || !limit)
		return;
	limit->up = nearest_limit(share->parent);
	share->limit = limit->quota ? index : limit->up;
}

/* A limit was set or removed, which affects all cgroups below. */
static __always_inline void find_limits(void)
{
	int i;

	bpf_for(i, 0, shares_used)
		find_limit(i);
}

/* Sets the limit of a cgroup, in ns. A quota of 0 means no limit. */
__noinline int set_limit(u32 index, u64 period, u64 quota, u64 burst)
{
	struct roost_limit *limit = limit_at(index);
	s64 most = quota + burst;

	if (!limit || !limit->ready ||
	    (limit->quota == quota && (!quota || (limit->period == period && limit->burst == burst))))
		return 0;
	limit->period = period;
	limit->burst = burst;
	if (!limit->quota) {
		limit->left = quota;
		limit->refill_at = bpf_ktime_get_ns() + period;
	} else if (limit->left > most) {
		limit->left = most;
	}
	limit->quota = quota;
	limit->used = true;
	find_limits();
	/* Parked tasks may run sooner, or need not wait any more. */
	limit->armed = 1;
	bpf_timer_start(&limit->timer, 0, 0);
	return 0;
}

/* The same with the kernel's units. */
static __always_inline void set_limit_us(u32 index, u64 period_us, u64 quota_us, u64 burst_us)
{
	set_limit(index, period_us * 1000, quota_us == NO_QUOTA ? 0 : quota_us * 1000, burst_us * 1000);
}

/*
 * Until 6.16 the kernel does not report limits. Reads the limits of a task's cgroup, and of all cgroups above,
 * where the fair class keeps them.
 */
__noinline int read_limits(u32 index, u64 group)
{
	struct roost_bandwidth bandwidth;
	struct roost_share *share;
	int i;

	bpf_for(i, 0, NESTED) {
		share = share_at(index);
		if (!share || !group)
			break;
		bandwidth = fair_bandwidth(group);
		set_limit(index, bandwidth.period, bandwidth.quota == NO_QUOTA ? 0 : bandwidth.quota, bandwidth.burst);
		index = share->parent;
		group = bandwidth.parent;
	}
	return 0;
}

/* Begins a new period if the current one is over. */
static __always_inline void refill(struct roost_limit *limit, u64 now, struct roost_counters *n)
{
	u64 at = limit->refill_at, period = limit->period, passed, next;
	s64 left, most = limit->quota + limit->burst, full;

	if (!limit->quota || !period || before(now, at))
		return;
	passed = (now - at) / period + 1;
	next = passed > 1 && !limit->throttled ? now + period : at + passed * period;
	if (!__sync_bool_compare_and_swap(&limit->refill_at, at, next))
		return;
	if (passed > MOST_PERIODS)
		passed = MOST_PERIODS;
	left = limit->left;
	full = left + passed * limit->quota;
	/* While tasks wait for budget, nothing is saved for later. */
	if (full > most && !limit->throttled)
		full = most;
	__sync_fetch_and_add(&limit->left, full - left);
	n->nr_periods++;
}

/*
 * The first limit without budget, starting with this cgroup and going up, or NONE. lines_up: a limit with
 * parked tasks also counts, because the task has to queue behind them.
 */
__noinline u32 exhausted(u32 index, u64 now, bool lines_up)
{
	struct roost_cpu *here = this_cpu();
	struct roost_limit *limit;
	int i;

	each(i, 0, NESTED) {
		limit = limit_at(index);
		if (!limit || !here)
			break;
		refill(limit, now, &here->n);
		if (limit->quota && (limit->left <= 0 || (lines_up && limit->throttled)))
			return index;
		index = limit->up;
	}
	return NONE;
}

/* Charges time to a budget and to all budgets above. A negative time is given back. */
__noinline int charge_limit(u32 index, s64 ns)
{
	struct roost_limit *limit;
	int i;

	each(i, 0, NESTED) {
		limit = limit_at(index);
		if (!limit)
			break;
		__sync_fetch_and_add(&limit->left, -ns);
		index = limit->up;
	}
	return 0;
}

/* A task of a limited cgroup has run. Charges the time that it had not reserved. */
static __always_inline void spend(struct roost_task *task, u64 ran)
{
	u64 reserved = task->reserved;

	if (ran < reserved) {
		task->reserved = reserved - ran;
		return;
	}
	task->reserved = 0;
	charge_limit(task->limit, ran - reserved);
}

/* A task stops running. Gives back the rest of its reservation. */
static __always_inline void give_back(struct roost_task *task)
{
	u64 reserved;

	if (!task->reserved)
		return;
	reserved = __sync_lock_test_and_set(&task->reserved, 0);
	if (reserved)
		charge_limit(task->limit, -(s64)reserved);
}

/* A task finds out which limit applies to it. */
static __always_inline void follow_limit(struct roost_task *task)
{
	struct roost_share *share = share_at(task->share);
	u32 limit = share ? share->limit : NONE;

	if (task->limit == limit)
		return;
	give_back(task);
	task->limit = limit;
}

#endif
