/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * On which CPU a task starts that wakes up (sis-util, llc-imbalance) or is new (numa-imbalance)
 *
 *     woken   the CPU it last ran on, if idle (with SMT: if its core is)
 *             an idle core of that LLC, an idle CPU of it as far as sis-util searches
 *             an idle CPU of another LLC of the node, if more wait than llc-imbalance tolerates
 *             else the CPU it last ran on: it queues in that LLC
 *     new     the node with most idle CPUs, the parent's as long as numa-imbalance tolerates it;
 *             there the LLC with most idle CPUs
 *
 * A wakeup never leaves its node: that is for idle CPUs to do, when tasks wait too long.
 */
#ifndef ROOST_PLACE_H
#define ROOST_PLACE_H

#include "idle.h"
#include <roost/llc_imbalance.h>
#include <roost/numa_imbalance.h>

/*
 * llc-imbalance: whether so many tasks wait in an LLC that one should move to an idle CPU of another
 * LLC of its node. That CPU's LLC has none waiting, so the imbalance is their number.
 */
static __always_inline bool worth_moving(u64 waiting, const struct roost_llc *llc,
					 const struct roost_node *node, struct roost_counters *n)
{
	bool moves;

	if (llc_imbalance == NONE)
		moves = roost_llc_imbalance_adjust(waiting, node->nr_cpus, llc->nr_cpus);
	else
		moves = waiting > llc_imbalance;
	if (!moves)
		n->llc_imbalance_kept++;
	return moves;
}

/* The next LLC of a node after `llc`, round and round. */
static __always_inline u32 next_llc(const struct roost_node *node, u32 llc)
{
	return llc + 1 < node->first_llc + node->nr_llcs ? llc + 1 : node->first_llc;
}

/* A claimed idle CPU of another LLC of the node, for a task whose own has none; NONE if it stays. */
__noinline u32 spill(struct task_struct *p __arg_trusted, u32 home_id)
{
	struct roost_llc *home = llc_at(home_id), *llc;
	struct roost_node *node = home ? node_at(home->node) : NULL;
	struct roost_cpu *here = this_cpu();
	u32 id = home_id, cpu;
	int i;

	if (!node || !here || node->nr_llcs == 1 ||
	    !worth_moving(scx_bpf_dsq_nr_queued(home_id) + 1, home, node, &here->n))
		return NONE;
	bpf_for(i, 1, node->nr_llcs) {
		id = next_llc(node, id);
		llc = llc_at(id);
		cpu = llc ? search_all(p, id, llc) : NONE;
		if (cpu != NONE) {
			here->n.llc_spilled++;
			return cpu;
		}
	}
	return NONE;
}

/* Where the search for an idle CPU in the LLC of a CPU begins: behind it. */
static __always_inline u32 place_after(const struct roost_cpu *cpu)
{
	return cpu->word * 64 + ((cpu->bit + 1) & 63);
}

/* An idle core of the LLC that `cpu` is in. */
static __always_inline u32 search_cores(struct task_struct *p, const struct roost_cpu *cpu,
					struct roost_counters *n)
{
	u64 found = search_llc(p, cpu->llc, place_after(cpu), ALL_SLOTS, true);

	n->sis_scanned += found_after(found);
	return found_cpu(found);
}

/* sis-util: an idle CPU of the LLC that `cpu` is in, as far as it is worth searching. */
static __always_inline u32 search_cpus(struct task_struct *p, const struct roost_cpu *cpu,
				       struct roost_llc *llc, struct roost_counters *n)
{
	u64 found, limit = ALL_SLOTS;

	if (sis_util) {
		limit = scan_limit(llc, cpu->llc, scx_bpf_now());
		n->sis_util_bounded += limit < llc->nr_cpus;
	}
	if (!limit)
		return NONE;
	found = search_llc(p, cpu->llc, place_after(cpu), limit, false);
	n->sis_scanned += found_after(found);
	return found_cpu(found);
}

/* Whether the whole core of a CPU is idle. */
static __always_inline bool core_idle(const struct roost_cpu *cpu)
{
	struct roost_word *word = word_at(cpu->word);

	return word && idle_cores(word) & 1ull << (cpu->bit & 63 & ~(smt - 1));
}

/* An idle CPU in the LLC where a task last ran, that CPU itself if possible; NONE without one. */
static __always_inline u32 search_home(struct task_struct *p, u32 prev, const struct roost_cpu *cpu,
				       struct roost_llc *llc, struct roost_counters *n)
{
	bool allowed = may_run(p, prev);
	u32 found;

	n->sis_search++;
	n->sis_scanned++;
	if (allowed && (smt == 1 || core_idle(cpu)) && claim_cpu(cpu))
		return prev;
	n->sis_domain_search++;
	if (smt > 1) {
		found = search_cores(p, cpu, n);
		if (found != NONE)
			return found;
		if (allowed && claim_cpu(cpu))
			return prev;
	}
	found = search_cpus(p, cpu, llc, n);
	n->sis_failed += found == NONE;
	return found;
}

/* A claimed idle CPU for a task that wakes up; NONE if it has to queue. */
static __always_inline u32 place_woken(struct task_struct *p, u32 prev, struct roost_counters *n)
{
	struct roost_cpu *cpu = cpu_at(prev);
	struct roost_llc *llc = cpu ? llc_at(cpu->llc) : NULL;
	u32 found;

	if (!llc)
		return NONE;
	found = search_home(p, prev, cpu, llc, n);
	if (found == NONE)
		found = spill(p, cpu->llc);
	return found;
}

/*
 * The LLC of a node with most idle CPUs, that of the parent among equals (NONE: all are busy), and
 * the node's idle CPUs.
 */
__noinline u64 idlest_llc(u32 node_id, u32 parent)
{
	struct roost_node *node = node_at(node_id);
	u32 best = NONE, most = 0, sum = 0, id, idle;
	int i;

	if (!node)
		return FOUND(NONE, 0);
	id = node->first_llc;
	if (parent >= id && parent < id + node->nr_llcs)
		id = parent;
	bpf_for(i, 0, node->nr_llcs) {
		idle = idle_cpus(id);
		sum += idle;
		if (idle > most) {
			most = idle;
			best = id;
		}
		id = next_llc(node, id);
	}
	return FOUND(best, sum);
}

/* The same on the node with most idle CPUs other than `local`. */
__noinline u64 idlest_other(u32 local)
{
	u64 best = FOUND(NONE, 0), other;
	u32 id;
	int i;

	bpf_for(i, 0, nr_nodes) {
		id = i;
		if (id == local)
			continue;
		other = idlest_llc(id, NONE);
		if (found_after(other) > found_after(best))
			best = other;
	}
	return best;
}

/* numa-imbalance: whether a new task stays on its parent's node although another is idler. */
static __always_inline bool stays_local(const struct task_struct *p, const struct roost_node *node,
					u32 idle, u32 other)
{
	u32 allowed = p->nr_cpus_allowed < node->nr_cpus ? p->nr_cpus_allowed : node->nr_cpus;

	return roost_numa_stay_local(numa_rule, node->nr_cpus - idle, other - idle,
				     node->numa_span, allowed, node->imb_numa_nr);
}

/* numa-imbalance: the LLC in which a new task should start; NONE if all of the machine is busy. */
static __always_inline u32 choose_llc(struct task_struct *p, const struct roost_cpu *parent,
				      struct roost_counters *n)
{
	struct roost_node *node = node_at(parent->node);
	u64 local = idlest_llc(parent->node, parent->llc), other;
	u32 idle = found_after(local);

	if (nr_nodes == 1 || !node)
		return found_cpu(local);
	other = idlest_other(parent->node);
	if (found_after(other) <= idle)
		return found_cpu(local);
	if (!idle || !stays_local(p, node, idle, found_after(other)))
		return found_cpu(other);
	n->numa_imbalance_local++;
	return found_cpu(local);
}

/* A claimed idle CPU for a new task; NONE if it has to queue. */
static __always_inline u32 place_new(struct task_struct *p, u32 prev, struct roost_counters *n)
{
	struct roost_cpu *parent = cpu_at(prev);
	struct roost_llc *llc;
	u32 id, found;

	if (!parent)
		return NONE;
	id = choose_llc(p, parent, n);
	llc = llc_at(id);
	if (!llc || id == parent->llc)
		return place_woken(p, prev, n);
	found = search_all(p, id, llc);
	if (found == NONE)
		return place_woken(p, prev, n);
	n->numa_imbalance_spread++;
	return found;
}

#endif
