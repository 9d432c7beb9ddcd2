/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Weights between LLCs
 *
 * Virtual time keeps weights within the queue of one LLC. This keeps them between LLCs where every CPU is
 * busy: there, what tasks get of an LLC depends on the weight that is on it.
 *
 *     load = weights of the tasks that run and wait in an LLC / CPUs of the LLC that serve them, a mean of some looks
 *
 * Ten times a second each LLC looks for itself, so that it takes no longer on a larger machine. It pulls waiting tasks
 * from the LLC of its node with the largest load, and every fourth time from the one of all other nodes.
 *
 *     1. LLCs with an idle CPU take no part: there llc-imbalance decides.
 *     2. A task moves if that does not turn the difference around. So moves end when none is an improvement.
 *     3. If no task may move between the two, for example because of affinity, the next ones are asked, four at most.
 *
 * Tasks do not leave the node where they belong. A task that has waited for so long that the watch lets it run
 * (watch.h) stays where the watch looks for it: LLCs could hand it to each other, each after it has looked.
 */
#ifndef ROOST_EVEN_H
#define ROOST_EVEN_H

#include "gather.h"

/* Number of tasks of a queue that are examined. */
#define WEIGHED 64

/*
 * Weights of the tasks that wait in a queue, times UNIT. Tasks that are not examined count as much as the mean
 * of the others.
 */
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
 * The load of an LLC without idle CPUs, times UNIT; 0 if it has an idle CPU. CPUs that realtime tasks use serve
 * nobody. If all CPUs are used that way, the load is computed as if one CPU served.
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

/* The weight of a waiting task, if it may go to the LLC `to`; otherwise 0. far: that LLC is on another node. */
__noinline u64 weight_to_move(struct task_struct *p __arg_trusted, u32 to, bool far)
{
	struct roost_task *task = task_of(p);

	if (!task || (far && home_of(task) != NONE) || stays_put(p) || !allowed_in(p, to))
		return 0;
	return weight_of(p, task);
}

/* Moves a waiting task from one LLC to another. A CPU that takes the task meanwhile counts it out in `to`. */
static __always_inline bool move_task(struct bpf_iter_scx_dsq *it, struct task_struct *p,
				      struct roost_task *task, struct roost_llc *src,
				      struct roost_llc *dst, u32 from, u32 to)
{
	bool moved;

	if (add_waiting(dst))
		mark_waiting(dst, to);
	if (!__sync_bool_compare_and_swap(&task->waits_in, from, to)) {
		__sync_fetch_and_add(&dst->waiting, -1);
		return false;
	}
	moved = dsq_move_vtime(it, p, to, dst->clock + (p->scx.dsq_vtime - src->clock));
	if (moved)
		task->queue = to;
	/* A task that was queued again meanwhile has stayed, and is counted where it was. */
	else if (__sync_bool_compare_and_swap(&task->waits_in, to, from))
		src = dst;
	__sync_fetch_and_add(&src->waiting, -1);
	return moved;
}

/* The largest weight whose move does not make the lighter LLC the heavier one. */
static __always_inline u64 most_to_move(const struct roost_llc *src, const struct roost_llc *dst)
{
	u64 more = src->load, less = dst->load, of = src->serving ?: 1;

	return more > less ? (more - less) * of * dst->serving / (of + dst->serving) : 0;
}

/* A task has moved. LLCs that look before the next means are computed see the remaining difference. */
static __always_inline void shift_load(struct roost_llc *src, struct roost_llc *dst, u64 weight)
{
	__sync_fetch_and_add(&src->load, -(weight / (src->serving ?: 1)));
	__sync_fetch_and_add(&dst->load, weight / (dst->serving ?: 1));
}

/*
 * Number of tasks that an LLC pulls at a time, as a CPU does in the fair class (SCHED_NR_MIGRATE_BREAK,
 * kernel/sched/sched.h).
 */
#define PULLED 32

/* Moves tasks from an LLC to one with a smaller load. Returns false if no task may or should move. */
__noinline bool even_out_pair(u32 from, u32 to, u64 now)
{
	struct roost_llc *src = llc_at(from), *dst = llc_at(to);
	struct roost_cpu *here = this_cpu();
	struct roost_task *task;
	struct task_struct *p;
	u64 weight, most;
	int i;

	if (!src || !dst || !here)
		return false;
	dst->pulled = 0;
	bpf_rcu_read_lock();
	each_queued(p, it, i, from, 0, WEIGHED) {
		most = most_to_move(src, dst);
		if (!most || dst->pulled >= PULLED)
			break;
		task = task_of(p);
		if (!task || is_patient(task, now))
			continue;
		weight = weight_to_move(p, to, src->node != dst->node);
		if (!weight || weight > most || !move_task(&it, p, task, src, dst, from, to))
			continue;
		shift_load(src, dst, weight);
		dst->pulled++;
	}
	bpf_rcu_read_unlock();
	here->n.evened += dst->pulled;
	return dst->pulled;
}

/*
 * Among LLCs with waiting tasks, the one with the largest load, or with the next smaller load after `last`.
 * They are those of a node, or (others) those of all other nodes.
 */
__noinline u32 heaviest_after(u32 last, u32 node_id, bool others)
{
	struct roost_node *node = node_at(node_id);
	struct roost_llc *llc = llc_at(last);
	u64 below = llc ? llc->load : ~0ull, most = 0;
	u32 found = NONE, first, nr;
	int i;

	if (!node)
		return NONE;
	first = others ? 0 : node->first_llc;
	nr = others ? nr_llcs : node->nr_llcs;
	bpf_for(i, first, first + nr) {
		llc = llc_at(i);
		if (!llc || !llc->waiting || llc->load <= most || (others && llc->node == node_id))
			continue;
		if (llc->load < below || (llc->load == below && i > (int)last)) {
			most = llc->load;
			found = i;
		}
	}
	return found;
}

/* Number of LLCs that are asked for a task. */
#define ASKED 4

__noinline bool pull_into(u32 id, u32 node_id, bool others, u64 now)
{
	bool pulled = false;
	u32 from = NONE;
	int i;

	bpf_for(i, 0, ASKED) {
		from = heaviest_after(from, node_id, others);
		if (from == NONE)
			break;
		pulled = from != id && even_out_pair(from, id, now);
		if (pulled)
			break;
	}
	return pulled;
}

/* Every how many looks other nodes are included (assumption): a move takes a task away from its memory. */
#define FAR_LOOKS 4

/* An LLC compares itself with the other LLCs, and pulls tasks. */
__noinline int even_out(u32 id, u32 looks, u64 now)
{
	struct roost_llc *llc = llc_at(id);
	u64 load = load_of(id);

	if (!llc)
		return 0;
	llc->load = load && llc->load ? mean(llc->load, load) : load;
	if (!llc->load || !llc->serving)
		return 0;
	if (looks % FAR_LOOKS || !pull_into(id, llc->node, true, now))
		pull_into(id, llc->node, false, now);
	return 0;
}

#endif
