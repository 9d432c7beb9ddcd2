/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Weights of cgroups: what a task's weight is worth beside all others
 *
 * A cgroup with the cpu controller competes by its weight with its siblings and with tasks of its parent, however
 * many tasks it has. So at the root a task's weight w counts as
 *
 *     w * reach / max(D, w)
 *
 *     D        weights of the cgroup's runnable tasks and busy children, added up: the current sum, or its mean if
 *              that is larger
 *     reach    the cgroup's weight, times the same fraction of its parent; for a cgroup at the root: its weight
 *
 * Virtual time is kept by that weight. Every task charges its cgroup once it has run or waited for a few
 * milliseconds. Ten times a second the watch computes from that how many did at a time. So more demand shows after a
 * tenth of a second, less after some tenths, and a level deeper a tenth later. The kernel computes the same from what
 * is queued or from its load average, whichever is larger (calc_group_shares, kernel/sched/fair.c).
 *
 * Weights of tasks and cgroups have one scale: 100 is nice 0, and cpu.weight's default.
 */
#ifndef ROOST_WEIGHTS_H
#define ROOST_WEIGHTS_H

#include "state.h"

/* A cgroup below the root. The root has no entry. */
struct roost_share {
	u64 id;			/* the cgroup's; 0: free */
	u32 parent;		/* NONE: below the root */
	u32 weight;		/* cpu.weight */
	u32 limit;		/* the nearest cgroup with a limit, itself or above (limits.h); NONE */
	/* Charged by tasks: ns that they ran or waited, and the same times their weights. */
	u64 wanted;
	u64 demand;
	u64 seen_wanted;
	u64 seen_demand;
	u64 own;		/* weight of runnable tasks, times UNIT */
	u64 busy;		/* number of runnable tasks, times UNIT */
	u64 children;		/* weight of busy children, times UNIT */
	u64 children_next;	/* the sum for the next value of children */
	u64 children_busy;	/* busy time of children, being added up; UNIT: one child is always busy */
	u64 reach;		/* times FACTOR */
};

ARRAY(shares, struct roost_share);

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u64);
	__type(value, u32);
} share_ids SEC(".maps");

/* One more than the largest index in use so far. The next variable says when the shares were last computed. */
u32 shares_used;
u64 shares_at;

static __always_inline struct roost_share *share_at(u32 share)
{
	return bpf_map_lookup_elem(&shares, &share);
}

static __always_inline u32 find_share(u64 id)
{
	u32 *share = bpf_map_lookup_elem(&share_ids, &id);

	return share ? *share : NONE;
}

/* D of a cgroup, times UNIT, for a task or child of this weight. */
static __always_inline u64 competing(const struct roost_share *share, u64 weight)
{
	u64 all = share->own + share->children;

	return all > weight * UNIT ? all : weight * UNIT;
}

/* The factor for a weight in a cgroup, times FACTOR. */
static __always_inline u64 factor_in(u32 id, u64 weight)
{
	struct roost_share *share = share_at(id);
	u64 factor;

	if (!share)
		return FACTOR;
	factor = share->reach * UNIT / competing(share, weight ?: 1);
	return factor ?: 1;
}

static u32 free_share(u64 id)
{
	struct roost_share *share;
	u32 index;
	int i;

	bpf_for(i, 0, max_cgroups) {
		index = i;
		share = share_at(index);
		if (share && !share->id && __sync_bool_compare_and_swap(&share->id, 0, id))
			return index;
	}
	return NONE;
}

/*
 * Adds a cgroup and returns its entry. Tasks of a cgroup without an entry compete at the root, without a limit.
 */
static u32 add_share(u64 id, u64 parent, u32 weight)
{
	struct roost_share *share;
	u32 index = free_share(id);

	share = share_at(index);
	if (!share)
		return NONE;
	share->parent = find_share(parent);
	share->weight = weight;
	share->limit = NONE;
	share->own = share->busy = share->children = share->children_next = share->children_busy = 0;
	share->seen_wanted = share->wanted;
	share->seen_demand = share->demand;
	share->reach = weight * factor_in(share->parent, weight);
	bpf_map_update_elem(&share_ids, &id, &index, BPF_ANY);
	use_up_to(&shares_used, index);
	return index;
}

static void remove_share(u64 id)
{
	struct roost_share *share = share_at(find_share(id));

	if (!share)
		return;
	bpf_map_delete_elem(&share_ids, &id);
	share->id = 0;
}

/* The next mean of a value. before: the mean so far; now: the current value. */
static __always_inline u64 mean(u64 before, u64 now)
{
	return (before * 3 + now) / 4;
}

/* The next value of a demand: the current one, or the mean if that is larger. */
static __always_inline u64 next_demand(u64 before, u64 now)
{
	return now > before ? now : mean(before, now);
}

/* Computes a cgroup's competition from what its tasks wanted in the last `period` ns. */
__noinline int update_share(u32 index, u64 period)
{
	struct roost_share *share = share_at(index), *parent;
	u64 wanted, demand, busy;

	if (!share || !share->id || !period)
		return 0;
	wanted = share->wanted;
	demand = share->demand;
	share->own = next_demand(share->own, (demand - share->seen_demand) * UNIT / period);
	share->busy = next_demand(share->busy, (wanted - share->seen_wanted) * UNIT / period);
	busy = share->busy + share->children_busy;
	if (busy > UNIT)
		busy = UNIT;
	share->seen_wanted = wanted;
	share->seen_demand = demand;
	share->children = share->children_next;
	share->children_next = share->children_busy = 0;
	share->reach = share->weight * factor_in(share->parent, share->weight);
	parent = share_at(share->parent);
	if (parent) {
		parent->children_next += share->weight * busy;
		parent->children_busy += busy;
	}
	return 0;
}

static __always_inline void update_shares(u64 now)
{
	u64 period = now - shares_at;
	int i;

	bpf_for(i, 0, shares_used)
		update_share(i, period);
	shares_at = now;
}

/* Charges a task's cgroup for what the task wanted, and updates the factor of the task's weight. */
static __always_inline void charge_share(const struct task_struct *p, struct roost_task *task)
{
	struct roost_share *share = share_at(task->share);

	if (!share) {
		task->factor = FACTOR;
		return;
	}
	__sync_fetch_and_add(&share->wanted, task->wanted);
	__sync_fetch_and_add(&share->demand, task->wanted * p->scx.weight);
	task->factor = factor_in(task->share, p->scx.weight);
}

#endif
