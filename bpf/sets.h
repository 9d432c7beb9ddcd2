/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sets of tasks that belong on one node: groups (cling) and processes (consolidate)
 *
 *     group     a cgroup of the default hierarchy other than its root
 *     process   one with several threads
 *
 * Both are in one table, groups first. A set is made when a task of it has run for a few milliseconds. It is
 * forgotten when none has for a minute. A task charges its sets once it has run or waited for a few milliseconds,
 * so a wakeup costs nothing here.
 *
 * The loader's daemon writes three tables: how much memory each set has on each node (set_memory), whose memory it
 * moves (set_moves), and which groups do not count (set_flags). The scheduler writes all other tables, and the
 * first two for a set that is new.
 */
#ifndef ROOST_SETS_H
#define ROOST_SETS_H

#include "idle.h"
#include "limits.h"

/* The id of a process is its number plus this bit. The id of a group is the number of its cgroup. */
#define PROCESS_ID (1ull << 63)

/* Flag of a set that does not settle. */
#define SET_EXCLUDED 1

/* A task charges its sets when it has run or waited for this long since the last charge. */
#define CHARGE_NS 4000000ull

/* A set is forgotten if no task of it has charged it for this long. */
#define FORGET_NS 60000000000ull

struct roost_set {
	/* What is read at each wakeup and seldom written. */
	u64 id;			/* 0: free */
	u64 started;		/* of a process: its start time, because its number may be reused */
	u64 made_at;
	u64 settled_at;		/* by CLOCK_MONOTONIC, unlike all else */
	u32 preferred;		/* the node it settled on; NONE */
	u32 group;		/* of a process: its group */
	/* Charged by tasks. */
	u64 active_at __attribute__((aligned(CACHE_LINE)));	/* when one of its tasks last charged it */
	u64 wanted;		/* ns that its tasks ran or waited */
	u64 ran;		/* ns that its tasks ran */
	/* Computed ten times a second. */
	u64 tried_at __attribute__((aligned(CACHE_LINE)));	/* when it last tried to settle */
	u64 seen_wanted;
	u64 demand;		/* tasks that run or wait, times UNIT, a mean of some seconds */
	u64 lately;		/* the same, over some tenths of a second */
	u64 claim;		/* what it claims of the node it settled on, times UNIT (home.h) */
	u64 seen_ran;
	u64 recent;		/* ns that its tasks ran, a mean over about a second */
	u64 misfit_since;	/* since when its node has not suited it; 0: it suits */
} __attribute__((aligned(CACHE_LINE)));

struct roost_set_node {
	u64 cpu_ns;		/* ns that its tasks ran here */
	u64 seen_cpu_ns;
	u64 recent;		/* the same, a mean over about a second */
	u64 barred_ns;		/* ns that its tasks ran elsewhere which may not run here */
	u64 seen_barred_ns;
	u64 barred;		/* the same, a mean over about a second */
	u64 wanted;		/* ns that its tasks ran or waited here */
	u64 seen_wanted;
	u32 runnable;		/* mean number of such tasks in the last tenth of a second */
	u64 own;		/* of a group: claims of its processes that settled here, times UNIT */
};

ARRAY(sets, struct roost_set);
ARRAY(set_nodes, struct roost_set_node);	/* set * nr_nodes + node */
ARRAY(set_memory, u64);				/* pages of 4 KiB, as set_nodes */
ARRAY(set_moves, u32);				/* whether pages of it are being moved to its node */
ARRAY(set_flags, u32);

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u64);
	__type(value, u32);
} set_ids SEC(".maps");

/* One more than the largest index in use so far, so that scans can stop there. 0: there is no set. */
u32 groups_used;
u32 processes_used;
u32 next_group;
u32 next_process;

static __always_inline struct roost_set *set_at(u32 set)
{
	return bpf_map_lookup_elem(&sets, &set);
}

static __always_inline struct roost_set_node *set_node_at(u32 set, u32 node)
{
	u32 index = set * nr_nodes + node;

	return bpf_map_lookup_elem(&set_nodes, &index);
}

static __always_inline u64 *memory_at(u32 set, u32 node)
{
	u32 index = set * nr_nodes + node;

	return bpf_map_lookup_elem(&set_memory, &index);
}

static __always_inline u64 memory_of(u32 set, u32 node)
{
	u64 *pages = memory_at(set, node);

	return pages ? *pages : 0;
}

/* Whether pages of a set are being moved to the node it settled on. */
static __always_inline bool memory_moves(u32 set)
{
	u32 *moves = bpf_map_lookup_elem(&set_moves, &set);

	return moves && *moves;
}

static __always_inline bool excluded(u32 set)
{
	u32 *flags = bpf_map_lookup_elem(&set_flags, &set);

	return flags && *flags & SET_EXCLUDED;
}

/* Whether there is any set. If not, nothing below costs anything. */
static __always_inline bool any_set(void)
{
	return nr_nodes > 1 && (groups_used || processes_used);
}

static __always_inline bool is_process(u32 set)
{
	return set >= max_groups;
}

/* Initialises an entry for a new set. */
__noinline int begin_set(u32 index, u64 now)
{
	struct roost_set *set = set_at(index);
	struct roost_set_node *node;
	u32 *moves;
	u64 *pages;
	int i;

	if (!set)
		return 0;
	moves = bpf_map_lookup_elem(&set_moves, &index);
	if (moves)
		*moves = 0;
	set->made_at = set->active_at = set->tried_at = now;
	set->settled_at = set->demand = set->claim = set->misfit_since = 0;
	set->recent = set->lately = set->started = 0;
	set->seen_wanted = set->wanted;
	set->seen_ran = set->ran;
	set->preferred = set->group = NONE;
	bpf_for(i, 0, nr_nodes) {
		node = set_node_at(index, i);
		if (node) {
			node->recent = node->cpu_ns = node->seen_cpu_ns = 0;
			node->runnable = 0;
			node->seen_wanted = node->wanted;
			node->barred = node->barred_ns = node->seen_barred_ns = 0;
		}
		/* The daemon writes this only for sets with enough memory. */
		pages = memory_at(index, i);
		if (pages)
			*pages = 0;
	}
	return 0;
}

/* Number of entries that are examined at a time to find a free one. */
#define FREE_TRIES 64

/* A free entry among `nr` entries from `first` on, which is taken for `id`, or NONE. */
__noinline u32 free_set(u64 id, u32 first, u32 nr, u32 from, u64 now)
{
	struct roost_set *set;
	u32 index;
	int i;

	bpf_for(i, 0, FREE_TRIES) {
		index = first + (from + i) % (nr ?: 1);
		set = set_at(index);
		if (!set || set->id)
			continue;
		/*
		 * This is set before the id, because the watch forgets old entries as soon as they have an id.
		 */
		set->active_at = now;
		if (__sync_bool_compare_and_swap(&set->id, 0, id))
			return index;
	}
	return NONE;
}

/* The set with an id, which is made if it does not exist. NONE if the table is full. */
__noinline u32 find_set(u64 id, u64 now)
{
	u32 *known = bpf_map_lookup_elem(&set_ids, &id), index;
	struct roost_cpu *here;
	struct roost_set *set;

	if (known)
		return *known;
	if (id & PROCESS_ID)
		index = free_set(id, max_groups, max_processes, next_process, now);
	else
		index = free_set(id, 0, max_groups, next_group, now);
	if (index == NONE) {
		next_process += FREE_TRIES;
		next_group += FREE_TRIES;
		here = this_cpu();
		if (here)
			here->n.sets_full++;
		count_full(id & PROCESS_ID ? PROCESSES_FULL : GROUPS_FULL);
		return NONE;
	}
	begin_set(index, now);
	if (bpf_map_update_elem(&set_ids, &id, &index, BPF_NOEXIST)) {
		/* Another CPU made it at the same time. */
		set = set_at(index);
		if (set)
			set->id = 0;
		known = bpf_map_lookup_elem(&set_ids, &id);
		return known ? *known : NONE;
	}
	if (is_process(index)) {
		next_process = index - max_groups + 1;
		use_up_to(&processes_used, index - max_groups);
	} else {
		next_group = index + 1;
		use_up_to(&groups_used, index);
	}
	return index;
}

/* Frees a set's entry. */
static __always_inline void give_set_back(struct roost_set *set, u64 id)
{
	bpf_map_delete_elem(&set_ids, &id);
	__sync_bool_compare_and_swap(&set->id, id, 0);
}

/* A group or process has ended. Frees its set, if it has one. */
__noinline int end_set(u64 id)
{
	u32 *known = bpf_map_lookup_elem(&set_ids, &id);
	struct roost_set *set = known ? set_at(*known) : NULL;

	if (set && set->id == id)
		give_set_back(set, id);
	return 0;
}

/* Forgets a set that no task has charged for long. Returns false if the set stays. */
static __always_inline bool forget(struct roost_set *set, u64 now)
{
	if (now - set->active_at < FORGET_NS || (s64)(now - set->active_at) < 0)
		return false;
	give_set_back(set, set->id);
	return true;
}

/*
 * The last used entries of a part of the table, which begins with `first`, have been freed. Reduces the range
 * that is scanned. If an entry is taken at the same time, either this function sees it, or the taker sees the
 * reduced range.
 */
static __always_inline void shrink(u32 *used, u32 first)
{
	struct roost_set *set;
	u32 last = *used;
	int i;

	bpf_for(i, 0, FREE_TRIES) {
		set = last ? set_at(first + last - 1) : NULL;
		if (!set || set->id || !__sync_bool_compare_and_swap(used, last, last - 1))
			break;
		last--;
		if (set->id)
			use_up_to(used, last);
	}
}

/* Whether a task's set still has the id that the task remembers. */
static __always_inline bool belongs(u32 index, u64 id)
{
	struct roost_set *set = set_at(index);

	return set && set->id == id;
}

/* The group of a task: its cgroup in the default hierarchy. */
static __always_inline void find_group(struct task_struct *p, struct roost_task *task, u64 now)
{
	struct css_set *css_set = p->cgroups;
	struct cgroup *cgroup;
	u64 id;

	if (!css_set)
		return;
	cgroup = css_set->dfl_cgrp;
	if (!cgroup)
		return;
	id = cgroup->level ? cgroup->kn->id : 0;
	if (task->css_set == (u64)css_set && (!id || belongs(task->group, id)))
		return;
	task->css_set = (u64)css_set;
	task->group = id ? find_set(id, now) : NONE;
}

static __always_inline void find_process(struct task_struct *p, struct roost_task *task, u64 now)
{
	u64 id = PROCESS_ID | (u32)p->tgid;
	struct roost_set *set;

	if (task->process != NONE && belongs(task->process, id))
		return;
	task->process = p->signal->nr_threads > 1 ? find_set(id, now) : NONE;
	set = set_at(task->process);
	if (!set || set->started == p->group_leader->start_boottime)
		return;
	/* The entry belonged to an ended process with the same number. */
	if (set->started)
		begin_set(task->process, now);
	set->started = p->group_leader->start_boottime;
}

/* Charges one of a task's sets for a node that the task may not use. */
static __always_inline void charge_barred(u32 index, const struct roost_task *task, u32 node_id)
{
	struct roost_set_node *node = set_node_at(index, node_id);

	if (node)
		__sync_fetch_and_add(&node->barred_ns, task->ran);
}

/*
 * Charges the sets of a task with an affinity for the nodes that the task may not use. Returns the number of
 * nodes that it may use.
 */
__noinline int charge_affinity(struct task_struct *p __arg_trusted)
{
	struct roost_task *task = task_of(p);
	u64 nodes = nodes_of(p);
	int i, allowed = 0;

	if (!task)
		return 0;
	bpf_for(i, 0, nr_nodes) {
		if (i >= 64 || nodes & 1ull << i) {
			allowed++;
			continue;
		}
		charge_barred(task->group, task, i);
		charge_barred(task->process, task, i);
	}
	return allowed;
}

/*
 * Whether a task may use only a part of a node. It waits for that part, whatever room the rest of the node has.
 */
static __always_inline bool is_confined(const struct task_struct *p, u32 node_id, int nodes_allowed)
{
	struct roost_node *node = node_at(node_id);

	return nodes_allowed == 1 && node && p->nr_cpus_allowed < node->nr_cpus;
}

/* Charges one of a task's sets for the time that the task wanted and ran on a node. */
static __always_inline void charge_set(u32 index, const struct roost_task *task, u32 node_id, u64 wanted, u64 now)
{
	struct roost_set *set = set_at(index);
	struct roost_set_node *node = set_node_at(index, node_id);

	if (!set || !node)
		return;
	__sync_fetch_and_add(&set->wanted, wanted);
	__sync_fetch_and_add(&set->ran, task->ran);
	__sync_fetch_and_add(&node->cpu_ns, task->ran);
	__sync_fetch_and_add(&node->wanted, wanted);
	set->active_at = now;
}

/* Charges a task's sets and its cgroup for the time that it ran or waited since they were last charged. */
__noinline int charge_sets(struct task_struct *p __arg_trusted, u32 node)
{
	struct roost_task *task = task_of(p);
	struct roost_set *process;
	u64 now = scx_bpf_now(), wanted;
	int nodes = nr_nodes;

	if (!task)
		return 0;
	if (cgroup_weights)
		charge_share(p, task);
	if (cgroup_limits) {
		if (!has_limits())
			read_limits(task->share, (u64)BPF_CORE_READ(p, sched_task_group));
		follow_limit(task);
	}
	if (nr_nodes > 1 && !(p->flags & PF_KTHREAD)) {
		if (cling)
			find_group(p, task, now);
		if (consolidate)
			find_process(p, task, now);
		if (p->nr_cpus_allowed < nr_possible)
			nodes = charge_affinity(p);
		wanted = is_confined(p, node, nodes) ? task->ran : task->wanted;
		if (task->group != NONE)
			charge_set(task->group, task, node, wanted, now);
		if (task->process != NONE) {
			charge_set(task->process, task, node, wanted, now);
			process = set_at(task->process);
			if (process && process->group != task->group)
				process->group = task->group;
		}
	}
	task->wanted = task->ran = 0;
	return 0;
}

/* A task has run for a while. */
static __always_inline void account_run(struct task_struct *p, struct roost_task *task, u32 node,
					u64 ran)
{
	task->ran += ran;
	task->wanted += ran + task->waited;
	task->waited = 0;
	if (task->wanted >= CHARGE_NS)
		charge_sets(p, node);
}

#endif
