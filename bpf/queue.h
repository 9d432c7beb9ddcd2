/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who runs next: a queue per LLC in the order of virtual time
 *
 * A task's virtual time grows with the time it runs, divided by its weight (100: nice 0). The queue's
 * clock is the most that a task had when it was switched in. A task that slept starts at most a slice
 * behind the clock, so that sleeping is not saved up; one that moves between LLCs keeps its distance
 * to the clock; a new one starts a slice ahead, so that a storm of new tasks moves the clock on. No
 * task is further ahead than lead_ms, and the watch moves the clock on at least as fast as if all
 * tasks in the queue were served in turn. The wait in a queue is therefore at most
 *
 *     (lead + 2 slices) * (tasks in the queue + CPUs) / CPUs
 *
 * plus what realtime tasks take.
 *
 * Tasks that may use one CPU only have a queue of their own, in the same virtual time: in the queue
 * of the LLC every other CPU would have to look past them. The CPU serves whichever queue has the
 * earlier head.
 */
#ifndef ROOST_QUEUE_H
#define ROOST_QUEUE_H

#include "place.h"

/* Virtual time in which a task is given its turn, as far from the clock as it may be. */
static __always_inline u64 vtime_near(u64 vtime, u64 clock)
{
	u64 lead = lead_ms * 1000000;

	if (before(vtime, clock - slice_ns()))
		return clock - slice_ns();
	if (before(clock + lead, vtime))
		return clock + lead;
	return vtime;
}

/* Tells a task's virtual time by the clock of an LLC. */
static __always_inline void adopt(struct task_struct *p, struct roost_task *task, struct roost_llc *llc, u32 id)
{
	u64 vtime = p->scx.dsq_vtime;
	struct roost_llc *old;

	if (task->llc != id) {
		old = llc_at(task->llc);
		vtime = llc->clock + (old ? vtime - old->clock : slice_ns());
		task->llc = id;
	}
	vtime = vtime_near(vtime, llc->clock);
	if (vtime != p->scx.dsq_vtime)
		task_set_vtime(p, vtime);
}

/* Virtual time of the first task in a queue; false if it has none. */
static bool head_vtime(u64 queue, u64 *vtime)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p = NULL;

	if (!bpf_iter_scx_dsq_new(&it, queue, 0)) {
		p = bpf_iter_scx_dsq_next(&it);
		if (p)
			*vtime = p->scx.dsq_vtime;
	}
	bpf_iter_scx_dsq_destroy(&it);
	return p;
}

/* Takes the next task that a CPU should run from a queue of an LLC. */
static __always_inline bool take(struct roost_llc *llc, u32 id)
{
	if (!dsq_move_to_local(id))
		return false;
	llc->moved_at = scx_bpf_now();
	return true;
}

/* The same where tasks wait that only this CPU may run. */
static bool take_with_bound(struct roost_cpu *cpu, u32 id, struct roost_llc *llc)
{
	u64 bound, other;

	if (!head_vtime(CPU_QUEUE | id, &bound)) {
		cpu->bound_waiting = false;
		return take(llc, cpu->llc);
	}
	if (head_vtime(cpu->llc, &other) && before(other, bound) && take(llc, cpu->llc))
		return true;
	return dsq_move_to_local(CPU_QUEUE | id) || take(llc, cpu->llc);
}

/* How long tasks wait in an LLC, as far as is known: one that ran late, or a queue that stands. */
static __always_inline u64 waiting(const struct roost_llc *llc, u64 now)
{
	u64 stands = now - llc->moved_at;

	if (now - llc->late_at < slice_ns() && llc->late_ns > stands)
		return llc->late_ns;
	return stands;
}

/* What came of looking for tasks elsewhere. */
enum { NONE_WAITS, SOME_WAIT, STOLEN };

/* llc-imbalance: takes a task from another LLC of the node. */
__noinline int steal_in_node(u32 cpu_id)
{
	struct roost_cpu *cpu = cpu_at(cpu_id);
	struct roost_llc *own = cpu ? llc_at(cpu->llc) : NULL, *llc;
	struct roost_node *node = own ? node_at(own->node) : NULL;
	u64 now = scx_bpf_now();
	int i, result = NONE_WAITS;
	u32 id;

	if (!node)
		return NONE_WAITS;
	id = cpu->llc;
	bpf_for(i, 1, node->nr_llcs) {
		id = next_llc(node, id);
		llc = llc_at(id);
		if (!llc || !scx_bpf_dsq_nr_queued(id))
			continue;
		result = SOME_WAIT;
		/* This CPU counts as idle, though it does not yet look so. */
		if (waiting(llc, now) < llc_wait_us * 1000 &&
		    !worth_moving(llc_tasks(llc, id), llc_tasks(own, cpu->llc) - 1, llc, node,
				  &cpu->n))
			continue;
		if (take(llc, id)) {
			cpu->n.llc_stolen++;
			return STOLEN;
		}
	}
	return result;
}

/* Takes a task that waits too long in an LLC of another node. */
__noinline bool steal_from_node(u32 node_id, u64 now)
{
	struct roost_node *node = node_at(node_id);
	struct roost_llc *llc;
	int i;
	u32 id;

	if (!node)
		return false;
	bpf_for(i, 0, node->nr_llcs) {
		id = node->first_llc + i;
		llc = llc_at(id);
		if (llc && scx_bpf_dsq_nr_queued(id) && waiting(llc, now) >= node_wait_us * 1000 &&
		    take(llc, id))
			return true;
	}
	return false;
}

/* The same on any other node, the nearest first. */
__noinline bool steal_from_nodes(u32 cpu_id)
{
	struct roost_cpu *cpu = cpu_at(cpu_id);
	u64 now = scx_bpf_now();
	u32 rank, *id;
	int i;

	if (!cpu)
		return false;
	bpf_for(i, 1, nr_nodes) {
		rank = cpu->node * nr_nodes + i;
		id = bpf_map_lookup_elem(&near, &rank);
		if (id && steal_from_node(*id, now)) {
			cpu->n.node_stolen++;
			return true;
		}
	}
	return false;
}

/* Finds something to do for a CPU that has nothing. */
static __always_inline bool steal(u32 cpu_id)
{
	int result = nr_llcs > nr_nodes ? steal_in_node(cpu_id) : NONE_WAITS;

	if (result != NONE_WAITS || nr_nodes == 1)
		return result == STOLEN;
	return steal_from_nodes(cpu_id);
}

/* Wakes an idle CPU of an LLC so that it looks for something to do; it stays marked as idle. */
__noinline bool kick_llc(u32 id)
{
	struct roost_llc *llc = llc_at(id);
	struct roost_word *word;
	u32 place, *cpu;
	int i;

	if (!llc)
		return false;
	bpf_for(i, 0, llc->nr_words) {
		word = word_at(llc->first_word + i);
		if (!word || !word->idle)
			continue;
		place = (llc->first_word + i) * 64 + lowest(word->idle);
		cpu = bpf_map_lookup_elem(&slots, &place);
		if (cpu) {
			scx_bpf_kick_cpu(*cpu, KICK_IDLE);
			return true;
		}
	}
	return false;
}

__noinline bool kick_node(u32 node_id)
{
	struct roost_node *node = node_at(node_id);
	int i;

	if (!node)
		return false;
	bpf_for(i, 0, node->nr_llcs) {
		if (kick_llc(node->first_llc + i))
			return true;
	}
	return false;
}

/* Tasks on a node wait too long: asks idle CPUs of it to help, or else of the next ones. */
__noinline int ask_for_help(u32 node_id, u64 waited)
{
	u32 rank, *id, ranks = waited < node_wait_us * 1000 ? 1 : nr_nodes;
	int i;

	bpf_for(i, 0, ranks) {
		rank = node_id * nr_nodes + i;
		id = bpf_map_lookup_elem(&near, &rank);
		if (id && kick_node(*id))
			break;
	}
	return 0;
}

/* Notes how long a task waited that now runs. */
static __always_inline void account_wait(struct roost_task *task, const struct roost_cpu *cpu, struct roost_llc *llc, u64 now,
			 struct roost_counters *n)
{
	u64 waited = now - task->queued_at;

	task->queued_at = 0;
	if ((s64)waited < 0)
		return;
	n->run_delay_ns += waited;
	if (waited > n->run_delay_max_ns)
		n->run_delay_max_ns = waited;
	if (waited < llc_wait_us * 1000)
		return;
	n->late++;
	llc->late_ns = waited;
	if (now - llc->late_at < slice_ns() / 4)
		return;
	llc->late_at = now;
	if (scx_bpf_dsq_nr_queued(cpu->llc))
		ask_for_help(cpu->node, waited);
}

static __always_inline void account_migration(struct roost_task *task, u32 cpu_id, const struct roost_cpu *cpu,
			      struct roost_counters *n)
{
	struct roost_cpu *last;

	if (task->cpu != cpu_id) {
		last = cpu_at(task->cpu);
		if (last) {
			n->nr_migrations++;
			n->llc_migrations += last->llc != cpu->llc;
			n->node_migrations += last->node != cpu->node;
		}
		task->cpu = cpu_id;
	}
}

#endif
