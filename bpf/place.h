/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * On which CPU a task starts that wakes up (sis-util, llc-imbalance), is new or calls exec (numa-imbalance)
 *
 * A task that wakes up starts on the first of these that is there:
 *
 *     1. an idle CPU of the node where it belongs, if that is another node (home.h)
 *     2. the CPU where it last ran, if that is idle (with SMT: if the whole core is)
 *     3. an idle core of that LLC; then an idle CPU of it, searched as far as sis-util allows
 *     4. an idle CPU of another LLC of the node, if its own LLC is ahead by more tasks than llc-imbalance tolerates.
 *        If the task now running on its CPU usually runs for less than 0.5 ms, more tasks than that have to wait
 *     5. an idle CPU of the nearest node, if more tasks wait on its own than numa-imbalance tolerates
 *     6. else the CPU where it last ran: it queues in that LLC
 *
 * The bounds of 3 to 5 do not hold for a task that runs for long between two sleeps: a wait costs it more than
 * the search, and what it loses by a migration is little of what it is going to run. They hold for it all the
 * same if the task now running on its CPU usually runs for less than 0.5 ms.
 *
 * A new task starts on the node where its group belongs. Otherwise it starts on the node with most idle CPUs, but
 * on its parent's as long as numa-imbalance tolerates it. On that node it starts in the LLC with most idle CPUs.
 *
 * A task that calls exec is placed as a new one, but if its group belongs somewhere it stays where it is (home.h).
 *
 * A task that belongs on a node does not leave it when it wakes up.
 */
#ifndef ROOST_PLACE_H
#define ROOST_PLACE_H

#include "home.h"
#include <roost/numa_imbalance.h>

/* The cost of a migration as the kernel assumes it (sysctl_sched_migration_cost, kernel/sched/fair.c). */
#define MIGRATION_NS 500000ull

/*
 * A task that runs for this long between two sleeps loses little by a migration: ten times the cost
 * (assumption).
 */
#define LONG_NS (10 * MIGRATION_NS)

/*
 * llc-imbalance: whether an LLC is ahead of another LLC of its node by so many tasks that a task should move.
 * If no imbalance is tolerated, the mechanism is off, and every task that would wait moves. Its LLC counts as
 * full even if it has an idle CPU that the task did not find or may not use.
 */
static __always_inline bool worth_moving(u64 ahead, const struct roost_llc *llc,
					 const struct roost_node *node, struct roost_counters *n)
{
	bool moves;

	if (llc_imbalance == NONE)
		moves = roost_llc_imbalance_adjust(ahead, node->nr_cpus, llc->nr_cpus);
	else
		moves = !llc_imbalance || ahead > llc_imbalance;
	if (!moves)
		n->llc_imbalance_kept++;
	return moves;
}

/*
 * How long a task runs between two sleeps, in ns. If it has not slept for longer than that, the time since its
 * last sleep.
 */
static __always_inline u64 burst_of(const struct roost_task *task)
{
	return task->ran_awake > task->burst ? task->ran_awake : task->burst;
}

/* Whether a task runs for so long that a migration costs it little in comparison. */
static __always_inline bool is_long(const struct roost_task *task)
{
	return burst_of(task) >= LONG_NS;
}

/*
 * Whether running in another LLC is better for a task than waiting: it runs for long, and the task now running
 * on its last CPU will not sleep again before a migration pays off.
 */
static __always_inline bool leaves_at_once(const struct task_struct *p, const struct roost_task *task)
{
	struct roost_cpu *cpu = is_long(task) ? cpu_at(scx_bpf_task_cpu(p)) : NULL;

	return cpu && !cpu->brief;
}

/*
 * llc-imbalance: by how many tasks an LLC is ahead of another one of its node, with one more task that is going to
 * wait in it. `brief`: the task now running on its CPU usually sleeps again soon. Then the other LLC counts as
 * full, because that CPU is going to be free as well.
 */
static __always_inline u32 ahead_of(const struct roost_llc *home, u32 home_id, const struct roost_llc *llc, u32 id,
				    bool brief)
{
	u32 running = running_in(home, home_id) + 1, there = brief ? home->nr_cpus : running_in(llc, id);

	return running > there ? running - there : 0;
}

/*
 * Number of a node's LLCs that the search for a CPU may examine: as many as sis-util allows, or all of them for
 * a task that runs for long.
 */
static __always_inline u32 llcs_to_scan(const struct roost_node *node, bool lasting)
{
	return sis_util && !lasting ? node->scan_limit : node->nr_llcs;
}

/*
 * A claimed idle CPU of the idlest other LLC of the node, for a task whose own LLC has none; NONE if the task stays.
 * `lasting`: the task runs for long. `brief`: the task now running on its CPU usually sleeps again soon.
 */
__noinline u32 spill(struct task_struct *p __arg_trusted, u32 home_id, bool lasting, bool brief)
{
	struct roost_llc *home = llc_at(home_id), *llc;
	struct roost_node *node = home ? node_at(home->node) : NULL;
	struct roost_cpu *here = this_cpu();
	u32 id, cpu;

	if (!node || !here)
		return NONE;
	id = found_cpu(idlest_among(p, home->node, NONE, llcs_to_scan(node, lasting)));
	llc = llc_at(id);
	if (!llc || id == home_id ||
	    !(lasting || worth_moving(ahead_of(home, home_id, llc, id, brief), home, node, &here->n)))
		return NONE;
	cpu = search_all(p, id, llc);
	here->n.llc_spilled += cpu != NONE;
	return cpu;
}

/* Number of tasks that wait in the LLCs of a node. */
static __always_inline u64 waiting_on(const struct roost_node *node)
{
	struct roost_llc *llc;
	u64 sum = 0;
	int i;

	each(i, 0, node->nr_llcs) {
		llc = llc_at(node->first_llc + i);
		sum += llc ? nr_waiting(llc, node->first_llc + i) : 0;
	}
	return sum;
}

/*
 * numa-imbalance: a claimed idle CPU of the nearest other node, or NONE if the task stays. It is for a task that
 * wakes up on a node without an idle CPU, if more tasks would wait there than the node may be ahead by, or if the
 * task runs for long. (Every CPU of the node runs something, so the number of waiting tasks tells by how much the
 * node is ahead.)
 */
__noinline u32 leave_node(struct task_struct *p __arg_trusted, u32 node_id, bool lasting)
{
	u32 rank = node_id * nr_nodes + 1, *near_id = bpf_map_lookup_elem(&near, &rank), id, cpu;
	struct roost_node *node, *other;
	struct roost_cpu *here;
	struct roost_llc *llc;

	other = near_id ? node_at(*near_id) : NULL;
	if (!other || !any_idle(*near_id))
		return NONE;
	here = this_cpu();
	node = node_at(node_id);
	id = found_cpu(idlest_among(p, *near_id, NONE, llcs_to_scan(other, lasting)));
	llc = llc_at(id);
	if (!here || !node || !llc)
		return NONE;
	if (!lasting &&
	    !roost_numa_over_limit(numa_rule, waiting_on(node) + 1, node->numa_span, node->imb_numa_nr)) {
		here->n.numa_imbalance_local++;
		return NONE;
	}
	cpu = search_all(p, id, llc);
	if (cpu != NONE)
		here->n.numa_imbalance_spread++;
	return cpu;
}

/* The place where the search for an idle CPU starts: behind this CPU, in its LLC. */
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

/* sis-util: the number of slots of an LLC that the search for a CPU may examine. */
static __always_inline u64 slots_to_scan(bool lasting, u32 id, struct roost_llc *llc, struct roost_counters *n)
{
	u64 limit;

	if (!sis_util || lasting)
		return ALL_SLOTS;
	limit = scan_limit(llc, id, scx_bpf_now());
	n->sis_util_bounded += limit < llc->nr_cpus;
	return limit;
}

/* sis-util: an idle CPU of the LLC of `cpu`, within the limit for this task. */
static __always_inline u32 search_cpus(struct task_struct *p, bool lasting, const struct roost_cpu *cpu,
				       struct roost_llc *llc, struct roost_counters *n)
{
	u64 found, limit = slots_to_scan(lasting, cpu->llc, llc, n);

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

/* An idle CPU in the LLC where a task last ran, preferably that CPU itself, or NONE. */
static __always_inline u32 search_home(struct task_struct *p, bool lasting, u32 prev, const struct roost_cpu *cpu,
				       struct roost_llc *llc, struct roost_counters *n)
{
	bool allowed = may_run(p, prev);
	u32 found;

	n->sis_search++;
	n->sis_scanned++;
	if (!any_idle_in(llc)) {
		n->sis_domain_search++;
		n->sis_failed++;
		/* The search of other LLCs needs a limit that is not old. */
		slots_to_scan(lasting, cpu->llc, llc, n);
		return NONE;
	}
	if (allowed && (smt == 1 ? take_cpu(cpu) : core_idle(cpu) && claim_cpu(cpu)))
		return prev;
	n->sis_domain_search++;
	if (smt > 1) {
		found = search_cores(p, cpu, n);
		if (found != NONE)
			return found;
		if (allowed && claim_cpu(cpu))
			return prev;
	}
	found = search_cpus(p, lasting, cpu, llc, n);
	n->sis_failed += found == NONE;
	return found;
}

/* A claimed idle CPU on the node where a task belongs, if the task is on another node. Otherwise NONE. */
static __always_inline u32 search_homewards(struct task_struct *p, const struct roost_task *task,
					    const struct roost_cpu *cpu, struct roost_counters *n)
{
	u32 set = calling_set(task, cpu->node), id = set == NONE ? NONE : way_home(p, set, true), found;
	struct roost_llc *llc = llc_at(id);

	if (!llc)
		return NONE;
	found = search_all(p, id, llc);
	/* A wakeup that finds no idle CPU there does not count as an attempt. */
	if (found != NONE)
		account_attempt(set, llc->node, false, n);
	return found;
}

/* A claimed idle CPU for a task that wakes up, or NONE if the task has to queue. */
static __always_inline u32 place_woken(struct task_struct *p, const struct roost_task *task, u32 prev,
				       struct roost_counters *n)
{
	struct roost_cpu *cpu = cpu_at(prev);
	struct roost_llc *llc = cpu ? llc_at(cpu->llc) : NULL;
	bool lasting = leaves_at_once(p, task);
	u32 found = NONE;

	if (!llc)
		return NONE;
	if (any_set())
		found = search_homewards(p, task, cpu, n);
	if (found == NONE)
		found = search_home(p, lasting, prev, cpu, llc, n);
	if (found != NONE)
		return found;
	if (any_idle(cpu->node)) {
		found = spill(p, cpu->llc, lasting, cpu->brief);
		/* Another CPU may have been faster. */
		if (found != NONE || !lasting)
			return found;
	}
	if (!numa_imbalance || nr_nodes == 1 || home_of(task) == cpu->node)
		return NONE;
	return leave_node(p, cpu->node, lasting);
}

/* idlest_llc() of the node with most idle CPUs other than `local`. */
__noinline u64 idlest_other(struct task_struct *p __arg_trusted, u32 local)
{
	u64 best = FOUND(NONE, 0), other;
	u32 id;
	int i;

	each(i, 0, nr_nodes) {
		id = i;
		if (id == local)
			continue;
		other = idlest_llc(p, id, NONE);
		if (found_after(other) > found_after(best))
			best = other;
	}
	return best;
}

/* numa-imbalance: whether a new task stays on its parent's node although another node has more idle CPUs. */
static __always_inline bool stays_local(const struct task_struct *p, const struct roost_node *node,
					u32 idle, u32 other)
{
	u32 allowed = p->nr_cpus_allowed < node->nr_cpus ? p->nr_cpus_allowed : node->nr_cpus;

	return roost_numa_stay_local(numa_rule, node->nr_cpus - idle, other - idle,
				     node->numa_span, allowed, node->imb_numa_nr);
}

/*
 * The LLC in which a new task should start: where its group belongs, or otherwise where numa-imbalance puts it.
 * NONE if all CPUs there are busy. own: number of CPUs of the parent's node that the task itself keeps busy.
 */
static __always_inline u32 choose_llc(struct task_struct *p, const struct roost_cpu *parent,
				      u32 home, u32 own, struct roost_counters *n)
{
	struct roost_node *node = node_at(parent->node);
	u64 local = idlest_llc(p, home == NONE ? parent->node : home, parent->llc), other;
	u32 idle = found_after(local) + own;

	if (nr_nodes == 1 || !node || home != NONE)
		return found_cpu(local);
	other = idlest_other(p, parent->node);
	if (found_after(other) <= idle)
		return found_cpu(local);
	if (!idle || !stays_local(p, node, idle, found_after(other)))
		return found_cpu(other);
	n->numa_imbalance_local++;
	return found_cpu(local);
}

/* A new task belongs where its parent belongs, until it has charged sets of its own. */
static __always_inline u32 inherit_home(const struct task_struct *p, struct roost_task *task)
{
	struct task_struct *parent = bpf_get_current_task_btf();
	struct roost_task *from = task_of(parent);

	if (!from)
		return NONE;
	task->group = from->group;
	if (parent->tgid == p->tgid)
		task->process = from->process;
	return home_of(task);
}

/* A claimed idle CPU for a new task away from its parent. NONE: the task is placed like a wakeup. */
static __always_inline u32 place_new(struct task_struct *p, struct roost_task *task, u32 prev, struct roost_counters *n)
{
	struct roost_cpu *parent = cpu_at(prev);
	u32 id, found, home = NONE;
	struct roost_llc *llc;

	if (!parent)
		return NONE;
	if (any_set())
		home = inherit_home(p, task);
	if (home == NONE && !numa_imbalance)
		return NONE;
	id = choose_llc(p, parent, home, 0, n);
	llc = llc_at(id);
	if (!llc || id == parent->llc)
		return NONE;
	found = search_all(p, id, llc);
	if (found != NONE && home == NONE)
		n->numa_imbalance_spread++;
	return found;
}

/*
 * The LLC to which a task goes that has called exec. Little of its cached data is of use to it any more. NONE
 * if it stays, because no LLC has more idle CPUs than its own would have without it.
 */
__noinline u32 exec_llc(struct task_struct *p __arg_trusted, u32 cpu_id)
{
	struct roost_cpu *cpu = cpu_at(cpu_id), *here = this_cpu();
	struct roost_task *task = task_of(p);
	u32 id;

	if (!cpu || !here || !task || p->nr_cpus_allowed == 1 || home_of(task) != NONE)
		return NONE;
	id = choose_llc(p, cpu, NONE, 1, &here->n);
	if (id == NONE || id == cpu->llc || idle_cpus(id) <= idle_cpus(cpu->llc) + 1)
		return NONE;
	return id;
}

#endif
