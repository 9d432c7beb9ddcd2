/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Weights between LLCs
 *
 * Virtual time keeps weights within the queue of one LLC. This keeps them between LLCs where every CPU is
 * busy: there, what tasks get of an LLC depends on the weight that is on it.
 *
 *     load = weights of the tasks that run and wait in an LLC / CPUs of the LLC that serve them
 *
 * Ten times a second one waiting task moves from the LLC with the largest load to the LLC with the smallest.
 *
 *     1. LLCs with an idle CPU take no part: there llc-imbalance decides.
 *     2. The heaviest task moves that does not turn the difference around. So moves end when none is an
 *        improvement.
 *     3. If no task may move between the two, for example because of affinity, the next ones are asked, four of each
 *        at most.
 *
 * Tasks do not leave the node where they belong.
 */
#ifndef ROOST_EVEN_H
#define ROOST_EVEN_H

#include "gather.h"

/* So many tasks of a queue are looked at. */
#define WEIGHED 64

/* Weights of the tasks that wait in a queue, times UNIT; those that are not looked at weigh what the others do. */
__noinline u64 waiting_weight(u64 queue)
{
	struct task_struct *p;
	struct roost_task *task;
	u64 sum = 0, queued = scx_bpf_dsq_nr_queued(queue);
	int i;

	bpf_rcu_read_lock();
	each_queued(p, it, i, queue, 0, WEIGHED) {
		task = task_of(p);
		if (task)
			sum += weight_of(p, task);
	}
	bpf_rcu_read_unlock();
	return queued > WEIGHED ? sum * queued / WEIGHED : sum;
}

/*
 * Of an LLC without idle CPUs the load, times UNIT; 0 if it has an idle one. CPUs that realtime tasks have serve nobody;
 * if they have all, what waits weighs as on one.
 */
__noinline u64 load_of(u32 id)
{
	struct roost_llc *llc = llc_at(id);
	struct roost_cpu *cpu;
	u32 place, *number;
	u64 sum = 0;
	int i;

	if (!llc || !llc->nr_cpus || idle_cpus(id))
		return 0;
	llc->serving = 0;
	bpf_for(i, 0, llc->nr_words * 64) {
		place = llc->first_word * 64 + i;
		number = bpf_map_lookup_elem(&slots, &place);
		cpu = number ? cpu_at(*number) : NULL;
		if (!cpu || !cpu->online || realtime_on(*number))
			continue;
		llc->serving++;
		sum += cpu->weight;
		if (cpu->bound_waiting)
			sum += waiting_weight(CPU_QUEUE | *number);
	}
	return (sum + waiting_weight(id)) / (llc->serving ?: 1);
}

/* Whether a task that waits in `src` may go to `dst`, the LLC `to`. */
static __always_inline bool may_even_out(struct task_struct *p, const struct roost_task *task,
					 const struct roost_llc *src, const struct roost_llc *dst, u32 to)
{
	if (src->node != dst->node && home_of(task) != NONE)
		return false;
	return !stays_put(p) && allowed_in(p, to);
}

/* The heaviest task that waits in an LLC, may go to another, and weighs no more than `most`. */
static __always_inline u64 heaviest(u32 from, u32 to, const struct roost_llc *src, const struct roost_llc *dst,
				    u64 most)
{
	struct task_struct *p;
	struct roost_task *task;
	u64 best = 0, weight;
	int i;

	each_queued(p, it, i, from, 0, WEIGHED) {
		task = task_of(p);
		weight = task ? weight_of(p, task) : 0;
		if (weight > best && weight <= most && may_even_out(p, task, src, dst, to))
			best = weight;
	}
	return best;
}

/* Moves a task that waits in an LLC to another one. Who counts it out meanwhile does so in `to`. */
static __always_inline bool move_task(struct bpf_iter_scx_dsq *it, struct task_struct *p,
				      struct roost_task *task, struct roost_llc *src,
				      struct roost_llc *dst, u32 from, u32 to)
{
	bool moved;

	__sync_fetch_and_add(&dst->waiting, 1);
	if (!__sync_bool_compare_and_swap(&task->waits_in, from, to)) {
		__sync_fetch_and_add(&dst->waiting, -1);
		return false;
	}
	moved = dsq_move_vtime(it, p, to, dst->clock + (p->scx.dsq_vtime - src->clock));
	if (moved)
		task->queue = to;
	/* One that was queued anew meanwhile has stayed, and is counted where it was. */
	else if (__sync_bool_compare_and_swap(&task->waits_in, to, from))
		src = dst;
	__sync_fetch_and_add(&src->waiting, -1);
	return moved;
}

/* Moves a waiting task of a weight to another LLC. */
static __always_inline bool move_waiting(u32 from, u32 to, struct roost_llc *src,
					 struct roost_llc *dst, u64 weight)
{
	struct task_struct *p;
	struct roost_task *task;
	bool moved = false;
	int i;

	each_queued(p, it, i, from, 0, WEIGHED) {
		task = task_of(p);
		if (!task || weight_of(p, task) != weight || !may_even_out(p, task, src, dst, to))
			continue;
		moved = move_task(&it, p, task, src, dst, from, to);
		break;
	}
	return moved;
}

/* Moves a task from an LLC to another with a smaller load; false if none may or should. */
__noinline bool even_out_pair(u32 from, u32 to)
{
	struct roost_llc *src = llc_at(from), *dst = llc_at(to);
	struct roost_cpu *here = this_cpu();
	bool moved = false;
	u64 most, weight, of;

	if (!src || !dst || !here || src->load <= dst->load)
		return false;
	/* A task that moves changes both loads. */
	of = src->serving ?: 1;
	most = (src->load - dst->load) * of * dst->serving / (of + dst->serving);
	bpf_rcu_read_lock();
	weight = heaviest(from, to, src, dst, most);
	if (weight)
		moved = move_waiting(from, to, src, dst, weight);
	bpf_rcu_read_unlock();
	here->n.evened += moved;
	return moved;
}

/* Of the LLCs where tasks wait the one with the largest load, or with the next smaller one after `last`. */
__noinline u32 heaviest_after(u32 last)
{
	struct roost_llc *llc = llc_at(last);
	u64 below = llc ? llc->load : ~0ull, most = 0;
	u32 found = NONE;
	int i;

	bpf_for(i, 0, nr_llcs) {
		llc = llc_at(i);
		if (!llc || !llc->waiting || llc->load <= most)
			continue;
		if (llc->load < below || (llc->load == below && i > (int)last)) {
			most = llc->load;
			found = i;
		}
	}
	return found;
}

/* Of the LLCs that serve, without idle CPUs, the one with the smallest load, or with the next larger one after `last`. */
__noinline u32 lightest_after(u32 last)
{
	struct roost_llc *llc = llc_at(last);
	u64 above = llc ? llc->load : 0, least = ~0ull;
	u32 found = NONE;
	int i;

	bpf_for(i, 0, nr_llcs) {
		llc = llc_at(i);
		if (!llc || !llc->load || !llc->serving || llc->load >= least)
			continue;
		if (llc->load > above || (llc->load == above && i > (int)last)) {
			least = llc->load;
			found = i;
		}
	}
	return found;
}

/* So many LLCs are asked for a task that may go to so many others. */
#define ASKED 4

static __always_inline void even_out(void)
{
	u32 from, to = NONE;
	struct roost_llc *llc;
	int i, j;

	bpf_for(i, 0, nr_llcs) {
		llc = llc_at(i);
		if (llc)
			llc->load = load_of(i);
	}
	bpf_for(i, 0, ASKED) {
		to = lightest_after(to);
		from = NONE;
		bpf_for(j, 0, ASKED) {
			from = heaviest_after(from);
			if (to == NONE || from == NONE)
				break;
			if (even_out_pair(from, to))
				return;
		}
	}
}

#endif
