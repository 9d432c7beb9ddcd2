/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * consolidate: idle CPUs pull running tasks of a process to the node where it has most
 *
 * home.h settles whole processes. This gathers the processes that do not settle.
 *
 * Ten times a second each node with an idle CPU pulls at most one task. roost/consolidate.h decides which
 * process it is and from which node. The CPU that runs the task is asked to give way. The task then goes to the
 * idlest LLC of the node that pulled it.
 */
#ifndef ROOST_GATHER_H
#define ROOST_GATHER_H

#include "queue.h"

/* A process as a node sees it. */
static __always_inline struct roost_consolidate seen_from(u32 process, u32 node)
{
	struct roost_consolidate here = {
		.weight = weight_on(process, node),
		.total = total_weight(process),
		.nr = running_on(node),
		.nodes = nr_nodes,
	};

	return here;
}

/* The node from which a node should pull a task of a process, or NONE. */
__noinline u32 pull_from(u32 process, u32 node_id)
{
	struct roost_consolidate here = seen_from(process, node_id);
	struct roost_consolidate_node other;
	u32 least = here.weight, best = NONE, id;
	int i;

	if (!roost_consolidate_worth(&here))
		return NONE;
	bpf_for(i, 0, nr_nodes) {
		id = i;
		if (id == node_id)
			continue;
		other.weight = weight_on(process, id);
		other.nr = running_on(id);
		if (roost_consolidate_from(&here, &other, least)) {
			least = other.weight;
			best = id;
		}
	}
	return best;
}

/* Asks the first CPU of a node that runs a task of a process to send it to another node. */
__noinline bool ask_for_task(u32 process, u32 node_id, u32 to)
{
	struct roost_cpu *cpu;
	int i;

	bpf_for(i, 0, nr_cpu_ids) {
		cpu = cpu_at(i);
		if (!cpu || cpu->node != node_id || cpu->process != process || cpu->pull_to != NONE)
			continue;
		cpu->pull_process = process;
		cpu->pull_to = to;
		scx_bpf_kick_cpu(i, KICK_PREEMPT);
		return true;
	}
	return false;
}

/* Whether a process may be gathered on a node: it has not settled elsewhere. */
static __always_inline bool may_gather(u32 process, u32 node)
{
	struct roost_set *set = set_at(process);
	u32 home;

	if (!set || excluded(process))
		return false;
	home = settled_on(set->group);
	if (home == NONE)
		home = set->preferred;
	return home == NONE || home == node;
}

/* A node with an idle CPU pulls one task of a process that runs there. */
__noinline bool gather_on(u32 node_id)
{
	struct roost_cpu *cpu;
	u32 last = NONE, from;
	int i;

	if (!any_idle(node_id))
		return false;
	bpf_for(i, 0, nr_cpu_ids) {
		cpu = cpu_at(i);
		if (!cpu || cpu->node != node_id || cpu->process == NONE || cpu->process == last)
			continue;
		last = cpu->process;
		if (!may_gather(last, node_id))
			continue;
		from = pull_from(last, node_id);
		if (from != NONE && ask_for_task(last, from, node_id))
			return true;
	}
	return false;
}

static __always_inline void gather(void)
{
	int i;

	if (!consolidate || !processes_used)
		return;
	bpf_for(i, 0, nr_nodes)
		gather_on(i);
}

/*
 * numa-imbalance: the LLC to which a task goes that has called exec, if a CPU is still idle there. Otherwise
 * NONE.
 */
static __always_inline u32 leaves_at_exec(struct task_struct *p, struct roost_task *task,
					  struct roost_cpu *cpu)
{
	u32 to = task->exec_to;

	task->exec_to = NONE;
	if (idle_for(p, to) == NONE)
		return NONE;
	cpu->n.numa_imbalance_spread++;
	return to;
}

/*
 * Where a running task should go when its slice is over: to another LLC because it called exec, to a CPU that
 * pulls it, or to the node where it belongs. NONE if it should run on.
 */
static __always_inline u32 leaves_for(struct task_struct *p, struct roost_task *task,
				      struct roost_cpu *cpu)
{
	u32 to = cpu->pull_to, set;

	if (task->exec_to != NONE)
		return leaves_at_exec(p, task, cpu);
	if (!any_set())
		return NONE;
	if (to == NONE) {
		set = calling_set(task, cpu->node);
		return set == NONE ? NONE : way_home(p, set, false);
	}
	cpu->pull_to = NONE;
	to = llc_for_leaver(p, cpu, to);
	if (task->process != cpu->pull_process || to == NONE)
		return NONE;
	task->migrate_seq = ROOST_CONSOLIDATE_SEQ;
	cpu->n.consolidate_pulls++;
	return to;
}

#endif
