/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What `scx_roost --observe` counts: where tasks run, and how wakeups and migrations cross LLCs and nodes
 *
 * It schedules nothing, so it works under every scheduler. Two tracepoints count by cgroup and CPU. A wakeup is counted
 * when the task gets a CPU, because only then it is known where it runs. Its waker is the CPU that woke it first,
 * which a timer may have interrupted.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/* Cgroups that are kept apart. All others share the entry of cgroup 0, which does not exist. */
#define MOST_GROUPS 1024

struct roost_place {
	u32 llc, node;
};

/* What tasks of a cgroup did on one CPU. */
struct roost_seen {
	u64 run_ns;
	u64 wakeups;
	u64 woken_across_llcs;		/* by a CPU of another LLC of the node */
	u64 woken_across_nodes;
	u64 moved_between_llcs;		/* within the node */
	u64 moved_between_nodes;
};

/* CPUs are stored with 1 added, so that 0 means none. */
struct roost_seen_task {
	u32 ran_on;
	u32 woken_by;
};

/* The place of each CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct roost_place);
} places SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, MOST_GROUPS);
	__type(key, u64);
	__type(value, struct roost_seen);
} groups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct roost_seen_task);
} tasks SEC(".maps");

/* When each CPU last switched. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} switched SEC(".maps");

static struct roost_seen *group_of(struct task_struct *p)
{
	struct roost_seen none = {}, *seen;
	u64 id = p->cgroups->dfl_cgrp->kn->id;

	seen = bpf_map_lookup_elem(&groups, &id);
	if (seen)
		return seen;
	bpf_map_update_elem(&groups, &id, &none, BPF_NOEXIST);
	seen = bpf_map_lookup_elem(&groups, &id);
	if (seen)
		return seen;
	id = 0;
	return bpf_map_lookup_elem(&groups, &id);
}

static void count_way(u32 from, struct roost_place *to, u64 *across_llcs, u64 *across_nodes)
{
	struct roost_place *place = bpf_map_lookup_elem(&places, &from);

	if (!place)
		return;
	if (place->node != to->node)
		++*across_nodes;
	else if (place->llc != to->llc)
		++*across_llcs;
}

static void count_start(struct task_struct *p, struct roost_seen_task *task)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct roost_place *here = bpf_map_lookup_elem(&places, &cpu);
	struct roost_seen *seen = group_of(p);

	if (!here || !seen)
		return;
	if (task->woken_by) {
		seen->wakeups++;
		count_way(task->woken_by - 1, here, &seen->woken_across_llcs, &seen->woken_across_nodes);
		task->woken_by = 0;
	}
	if (task->ran_on && task->ran_on != cpu + 1)
		count_way(task->ran_on - 1, here, &seen->moved_between_llcs, &seen->moved_between_nodes);
	task->ran_on = cpu + 1;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(waking, struct task_struct *p)
{
	struct roost_seen_task *task;

	task = bpf_task_storage_get(&tasks, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (task && !task->woken_by)
		task->woken_by = bpf_get_smp_processor_id() + 1;
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switched_to, bool preempted, struct task_struct *prev, struct task_struct *next)
{
	struct roost_seen_task *task;
	struct roost_seen *seen;
	u64 now = bpf_ktime_get_ns();
	u64 *since;
	u32 zero = 0;

	since = bpf_map_lookup_elem(&switched, &zero);
	if (!since)
		return 0;
	if (prev->pid && *since) {
		seen = group_of(prev);
		if (seen)
			seen->run_ns += now - *since;
	}
	*since = now;
	if (!next->pid)
		return 0;
	task = bpf_task_storage_get(&tasks, next, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (task)
		count_start(next, task);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
