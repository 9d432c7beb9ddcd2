/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which CPUs are idle, and the search for one (sis-util)
 *
 * Every LLC has a bit for each of its CPUs. A CPU sets its bit when it becomes idle. Whoever first gives it
 * something to do clears the bit.
 *
 * A search looks at as many slots as roost/sis_util.h allows, beginning after the slot where the task last ran.
 * Looking is cheap here, because all slots of an LLC are bits of few words. What the bound saves is writes to
 * those words by CPUs that would fight over the last idle one.
 */
#ifndef ROOST_IDLE_H
#define ROOST_IDLE_H

#include "state.h"
#include <roost/sis_util.h>
#include <roost/utilisation.h>

#define ALL_SLOTS 0xffffffffu

static __always_inline bool may_run(const struct task_struct *p, u32 cpu)
{
	return p->nr_cpus_allowed >= nr_possible || bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
}

/* Whether a task may use some CPU of an LLC that is online. */
__noinline bool allowed_in(struct task_struct *p __arg_trusted, u32 llc_id)
{
	struct roost_llc *llc = llc_at(llc_id);
	bool allowed = false;
	struct roost_cpu *cpu;
	u32 place, *id;
	int i;

	if (!llc)
		return false;
	if (p->nr_cpus_allowed >= nr_possible)
		return llc->nr_cpus;
	bpf_rcu_read_lock();
	bpf_for(i, 0, llc->nr_words * 64) {
		place = llc->first_word * 64 + i;
		id = bpf_map_lookup_elem(&slots, &place);
		cpu = id ? cpu_at(*id) : NULL;
		allowed = cpu && cpu->online && bpf_cpumask_test_cpu(*id, p->cpus_ptr);
		if (allowed)
			break;
	}
	bpf_rcu_read_unlock();
	return allowed;
}

/* The same of a node. */
__noinline bool allowed_on(struct task_struct *p __arg_trusted, u32 node_id)
{
	struct roost_node *node = node_at(node_id);
	int i;

	if (!node)
		return false;
	each(i, 0, node->nr_llcs) {
		if (allowed_in(p, node->first_llc + i))
			return true;
	}
	return false;
}

/*
 * Whether a task may not leave its CPU now, whatever its affinity says. A BPF program may itself keep the task that it
 * interrupts from migrating: that does not count.
 */
static __always_inline bool stays_put(const struct task_struct *p)
{
	return p->migration_disabled > (p == bpf_get_current_task_btf() && program_keeps_put(p));
}

/*
 * Whether a task that is queued was preempted as a reader of RCU, for which grace periods wait (kernels that preempt).
 * A BPF program is a reader of its own within the task that it interrupts, and so is the program that queues the task
 * again: they do not count.
 */
static __always_inline bool reads_rcu(const struct task_struct *p, u64 enq_flags)
{
	int programs = p == bpf_get_current_task_btf() ? 1 + !!(enq_flags & ENQ_REENQ) : 0;

	return bpf_core_field_exists(p->rcu_read_lock_nesting) && p->rcu_read_lock_nesting > programs;
}

/* A word has idle CPUs now (1), or none any more (-1). */
static __always_inline void count_idle_word(const struct roost_word *word, int one)
{
	struct roost_node *node = node_at(word->node);

	if (node)
		__sync_fetch_and_add(&node->idle_words, one);
}

/* Claims an idle CPU; false if another was faster. */
static __always_inline bool claim(struct roost_word *word, u32 bit)
{
	u64 mask = 1ull << (bit & 63), old;

	if (!(word->idle & mask))
		return false;
	old = __sync_fetch_and_and(&word->idle, ~mask);
	if (old == mask)
		count_idle_word(word, -1);
	return old & mask;
}

static __always_inline bool claim_cpu(const struct roost_cpu *cpu)
{
	struct roost_word *word = word_at(cpu->word);

	return word && claim(word, cpu->bit);
}

static __always_inline void mark_idle(const struct roost_cpu *cpu)
{
	struct roost_word *word = word_at(cpu->word);
	u64 mask = 1ull << (cpu->bit & 63);

	if (word && cpu->online && !(word->idle & mask) && !__sync_fetch_and_or(&word->idle, mask))
		count_idle_word(word, 1);
}

/* A CPU goes or comes back. Its LLC and its node keep their places, with one CPU less or more. */
static __always_inline void set_online(struct roost_cpu *cpu, struct roost_llc *llc, bool online)
{
	struct roost_word *word = word_at(cpu->word);
	struct roost_node *node = node_at(cpu->node);
	u64 mask = 1ull << (cpu->bit & 63);

	if (!word || !node || cpu->online == online)
		return;
	cpu->online = online;
	if (online) {
		word->present |= mask;
		llc->nr_cpus++;
		node->nr_cpus++;
	} else {
		word->present &= ~mask;
		llc->nr_cpus--;
		node->nr_cpus--;
		claim(word, cpu->bit);
	}
}

/* The first slots of cores that are idle as a whole. Slots without a CPU do not count. */
static __always_inline u64 idle_cores(const struct roost_word *word)
{
	u64 idle = word->idle | ~word->present;

	if (smt > 1)
		idle &= idle >> 1;
	if (smt > 2)
		idle &= idle >> 2;
	if (smt > 4)
		idle &= idle >> 4;
	return idle & word->first;
}

/* The first slots of cores that have a CPU which is online. */
static __always_inline u64 present_cores(const struct roost_word *word)
{
	u64 present = word->present;

	if (smt > 1)
		present |= present >> 1;
	if (smt > 2)
		present |= present >> 2;
	if (smt > 4)
		present |= present >> 4;
	return present & word->first;
}

/* Cores of an LLC that have a CPU which is online. */
__noinline u32 cores_in(u32 id)
{
	struct roost_llc *llc = llc_at(id);
	struct roost_word *word;
	u32 cores = 0;
	int i;

	if (!llc)
		return 0;
	bpf_for(i, 0, llc->nr_words) {
		word = word_at(llc->first_word + i);
		if (word)
			cores += count(present_cores(word));
	}
	return cores;
}

/* Idle CPUs of an LLC. */
__noinline u32 idle_cpus(u32 id)
{
	struct roost_llc *llc = llc_at(id);
	struct roost_word *word;
	u32 idle = 0;
	int i;

	if (!llc)
		return 0;
	each(i, 0, llc->nr_words) {
		word = word_at(llc->first_word + i);
		if (word)
			idle += count(word->idle);
	}
	return idle;
}

/* The first of a word's idle CPUs that a task may use; NONE without one. */
static __always_inline u32 idle_in(const struct task_struct *p, u32 index)
{
	struct roost_word *word = word_at(index);
	u64 idle = word ? word->idle : 0;
	u32 place, *cpu;
	int i;

	each(i, 0, 64) {
		if (!idle)
			break;
		place = index * 64 + lowest(idle);
		cpu = bpf_map_lookup_elem(&slots, &place);
		if (cpu && *cpu != NONE && may_run(p, *cpu))
			return *cpu;
		idle &= idle - 1;
	}
	return NONE;
}

/* An idle CPU of an LLC that a task may use; it stays marked as idle. NONE without one. */
__noinline u32 idle_for(struct task_struct *p __arg_trusted, u32 id)
{
	struct roost_llc *llc = llc_at(id);
	u32 cpu = NONE;
	int i;

	if (!llc)
		return NONE;
	/* The watch runs from a timer, outside of any such section. */
	bpf_rcu_read_lock();
	each(i, 0, llc->nr_words) {
		cpu = idle_in(p, llc->first_word + i);
		if (cpu != NONE)
			break;
	}
	bpf_rcu_read_unlock();
	return cpu;
}

/* Whether a node has an idle CPU. */
static __always_inline bool any_idle(u32 node_id)
{
	struct roost_node *node = node_at(node_id);

	return node && node->idle_words;
}

/* Bits of the word's slots so that `from` is the lowest, and back. */
static __always_inline u64 rotate(u64 bits, u32 from, u32 nr_slots)
{
	return bits >> from | bits << (nr_slots - from & 63);
}

static __always_inline u64 lowest_bits(u32 n)
{
	return n >= 64 ? ~0ull : (1ull << n) - 1;
}

/* What a search found: a claimed CPU, or NONE, and how many slots it looked at. */
#define FOUND(cpu, scanned) ((u64)(scanned) << 32 | (cpu))

static __always_inline u32 found_cpu(u64 found)
{
	return (u32)found;
}

static __always_inline u32 found_after(u64 found)
{
	return found >> 32;
}

/*
 * An idle CPU (or one of an idle core) of a word that the task may use. Looks at `limit` slots,
 * beginning with the slot `from`.
 */
__noinline u64 search_word(struct task_struct *p __arg_trusted, u32 index, u32 from, u32 limit,
			   bool cores)
{
	struct roost_word *word = word_at(index);
	u32 nr_slots, slot, place, *cpu;
	u64 bits;
	int i;

	if (!word)
		return FOUND(NONE, 0);
	nr_slots = word->nr_slots & 127;
	from = from < nr_slots ? from & 63 : 0;
	if (limit > nr_slots)
		limit = nr_slots;
	bits = rotate(cores ? idle_cores(word) : word->idle, from, nr_slots) & lowest_bits(limit);
	each(i, 0, 64) {
		if (!bits)
			break;
		slot = lowest(bits) + from;
		if (slot >= nr_slots)
			slot -= nr_slots;
		place = index * 64 + slot;
		cpu = bpf_map_lookup_elem(&slots, &place);
		if (cpu && may_run(p, *cpu) && claim(word, slot))
			return FOUND(*cpu, lowest(bits) + 1);
		bits &= bits - 1;
	}
	return FOUND(NONE, limit);
}

/* The same in an LLC, beginning with the place of a CPU of it (word * 64 + bit). */
__noinline u64 search_llc(struct task_struct *p __arg_trusted, u32 id, u32 from, u32 limit,
			  bool cores)
{
	struct roost_llc *llc = llc_at(id);
	u32 index = from / 64, scanned = 0;
	u64 found;
	int i;

	if (!llc)
		return FOUND(NONE, 0);
	each(i, 0, llc->nr_words) {
		found = search_word(p, index, i ? 0 : from % 64, limit, cores);
		scanned += found_after(found);
		if (found_cpu(found) != NONE)
			return FOUND(found_cpu(found), scanned);
		if (limit <= found_after(found))
			break;
		limit -= found_after(found);
		index++;
		if (index >= llc->first_word + llc->nr_words)
			index = llc->first_word;
	}
	return FOUND(NONE, scanned);
}

/* An idle CPU of an LLC, on an idle core if it has one; NONE without one. */
static __always_inline u32 search_all(struct task_struct *p, u32 id, const struct roost_llc *llc)
{
	u32 cpu = NONE;

	if (smt > 1)
		cpu = found_cpu(search_llc(p, id, llc->first_word * 64, ALL_SLOTS, true));
	if (cpu == NONE)
		cpu = found_cpu(search_llc(p, id, llc->first_word * 64, ALL_SLOTS, false));
	return cpu;
}

/* The next LLC of a node after `llc`; after the last one the first. */
static __always_inline u32 next_llc(const struct roost_node *node, u32 llc)
{
	return llc + 1 < node->first_llc + node->nr_llcs ? llc + 1 : node->first_llc;
}

/*
 * Of the LLCs of a node where a task may use an idle CPU: the one with most idle CPUs, the parent's among equals (NONE:
 * none), and the number of idle CPUs of all of them.
 */
__noinline u64 idlest_llc(struct task_struct *p __arg_trusted, u32 node_id, u32 parent)
{
	struct roost_node *node = node_at(node_id);
	u32 best = NONE, most = 0, sum = 0, id, idle;
	int i;

	if (!node)
		return FOUND(NONE, 0);
	id = node->first_llc;
	if (parent >= id && parent < id + node->nr_llcs)
		id = parent;
	each(i, 0, node->nr_llcs) {
		idle = idle_cpus(id);
		if (idle && p->nr_cpus_allowed < nr_possible && idle_for(p, id) == NONE)
			idle = 0;
		sum += idle;
		if (idle > most) {
			most = idle;
			best = id;
		}
		id = next_llc(node, id);
	}
	return FOUND(best, sum);
}

/* The utilisations of the CPUs of a word, added up (times 2^ROOST_UTIL_SHIFT). */
__noinline u64 word_util(u32 index, u64 now)
{
	struct roost_word *word = word_at(index);
	struct roost_cpu *cpu;
	u32 place, *id;
	u64 sum = 0;
	int slot;

	if (!word)
		return 0;
	each(slot, 0, word->nr_slots) {
		place = index * 64 + slot;
		id = bpf_map_lookup_elem(&slots, &place);
		cpu = id ? cpu_at(*id) : NULL;
		if (cpu && cpu->online)
			sum += roost_util_advance(cpu->util, now - cpu->util_at,
						  !(word->idle & 1ull << (slot & 63)));
	}
	return sum;
}

/* sis-util: bounds the searches of an LLC anew, from how busy its CPUs were. */
__noinline int bound_search(u32 id, u64 now)
{
	struct roost_llc *llc = llc_at(id);
	u64 sum = 0;
	int i;

	if (!llc)
		return 0;
	each(i, 0, llc->nr_words)
		sum += word_util(llc->first_word + i, now);
	llc->scan_limit = roost_nr_idle_scan(sum >> ROOST_UTIL_SHIFT, llc->nr_cpus, imbalance_pct);
	return 0;
}

/*
 * Slots that a wakeup may examine. It is computed anew as often as the kernel balances in an LLC: every W milliseconds
 * for an LLC of W CPUs.
 */
static __always_inline u32 scan_limit(struct roost_llc *llc, u32 id, u64 now)
{
	u64 at = llc->scan_at;

	if (now - at >= (u64)llc->nr_cpus * 1000000 &&
	    __sync_bool_compare_and_swap(&llc->scan_at, at, now))
		bound_search(id, now);
	return llc->scan_limit;
}

/* A CPU became idle, or busy again. */
static __always_inline void account_idle(struct roost_cpu *cpu, bool idle)
{
	u64 now = scx_bpf_now();

	cpu->util = roost_util_advance(cpu->util, now - cpu->util_at, idle);
	cpu->util_at = now;
}

#endif
