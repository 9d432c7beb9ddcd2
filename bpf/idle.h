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

static __always_inline u64 lowest_bits(u32 n)
{
	return n >= 64 ? ~0ull : (1ull << n) - 1;
}

static __always_inline struct roost_affinity *affinity_of(struct task_struct *p)
{
	return bpf_task_storage_get(&affinities, p, NULL, 0);
}

/* 64 bits of a bitmap of `nr` words, from a given bit on. */
static __always_inline u64 bits_from(const u64 *words, u32 nr, u32 bit)
{
	u32 index = bit / 64, shift = bit % 64;
	u64 bits;

	if (index >= nr)
		return 0;
	bits = words[index] >> shift;
	if (shift && index + 1 < nr)
		bits |= words[index + 1] << (64 - shift);
	return bits;
}

static __always_inline u64 slots_from(const struct roost_affinity *affinity, u32 number)
{
	return bits_from(affinity->slots, AFFINITY_SLOTS / 64, number);
}

/*
 * If there was no memory to record a task's affinity, the only slot that it is known to be allowed is that of
 * its last CPU.
 */
static __always_inline u64 last_slot(struct task_struct *p, const struct roost_word *word)
{
	u32 cpu = scx_bpf_task_cpu(p), *number = bpf_map_lookup_elem(&places, &cpu);
	u32 bit = number ? *number - word->base : NONE;

	return bit < word->nr_slots ? 1ull << (bit & 63) : 0;
}

/* The slots of a word that a task may use. */
static __always_inline u64 allowed_slots(struct task_struct *p, const struct roost_word *word)
{
	struct roost_affinity *affinity;

	if (p->nr_cpus_allowed >= nr_possible)
		return ~0ull;
	affinity = affinity_of(p);
	return affinity ? slots_from(affinity, word->base) & lowest_bits(word->nr_slots) : last_slot(p, word);
}

/* Records the words and the nodes in which an affinity has CPUs. */
static __always_inline void note_words(struct roost_affinity *affinity)
{
	struct roost_word *word;
	u64 allowed = 0;
	int i;

	bpf_for(i, 0, nr_words) {
		word = word_at(i);
		if (!word || !(slots_from(affinity, word->base) & lowest_bits(word->nr_slots)))
			continue;
		allowed |= 1ull << (word->node & 63);
		if (i < AFFINITY_WORDS)
			affinity->words[i / 64 & (AFFINITY_WORDS / 64 - 1)] |= 1ull << (i & 63);
	}
	affinity->nodes = allowed;
}

/* Records a task's affinity, so that later questions need not test every CPU. */
__noinline int note_affinity(struct task_struct *p __arg_trusted)
{
	struct roost_affinity *affinity;
	struct roost_cpu *here;
	u32 cpu, *number, index;
	u64 bits;
	int i, j;

	if (p->nr_cpus_allowed >= nr_possible)
		return 0;
	affinity = bpf_task_storage_get(&affinities, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	here = this_cpu();
	if (!affinity || !here) {
		if (here)
			here->n.affinity_unknown++;
		return 0;
	}
	each(i, 0, AFFINITY_SLOTS / 64)
		affinity->slots[i & (AFFINITY_SLOTS / 64 - 1)] = 0;
	each(i, 0, AFFINITY_WORDS / 64)
		affinity->words[i & (AFFINITY_WORDS / 64 - 1)] = 0;
	bpf_for(i, 0, (nr_cpu_ids + 63) / 64) {
		bits = affinity_bits(p, i);
		each(j, 0, 64) {
			if (!bits)
				break;
			cpu = i * 64 + lowest(bits);
			bits &= bits - 1;
			number = bpf_map_lookup_elem(&places, &cpu);
			index = number ? *number / 64 : NONE;
			if (index < AFFINITY_SLOTS / 64)
				affinity->slots[index] |= 1ull << (*number & 63);
		}
	}
	note_words(affinity);
	return 0;
}

/* Whether a task may use some online CPU of an LLC. */
__noinline bool allowed_in(struct task_struct *p __arg_trusted, u32 llc_id)
{
	struct roost_llc *llc = llc_at(llc_id);
	struct roost_word *word;
	int i;

	if (!llc)
		return false;
	if (p->nr_cpus_allowed >= nr_possible)
		return llc->nr_cpus;
	each(i, 0, llc->nr_words) {
		word = word_at(llc->first_word + i);
		if (word && allowed_slots(p, word) & word->present)
			return true;
	}
	return false;
}

/* The nodes that a task may use, among the first 64. */
static __always_inline u64 nodes_of(struct task_struct *p)
{
	struct roost_affinity *affinity;

	if (p->nr_cpus_allowed >= nr_possible)
		return ~0ull;
	affinity = affinity_of(p);
	return affinity ? affinity->nodes : ~0ull;
}

/*
 * Whether a task may not leave its CPU now, whatever its affinity. A BPF program may itself keep the task that
 * it interrupts from migrating; that does not count.
 */
static __always_inline bool stays_put(const struct task_struct *p)
{
	return p->migration_disabled > (p == bpf_get_current_task_btf() && program_keeps_put(p));
}

/*
 * Whether a queued task was preempted as an RCU reader, for which grace periods wait (on kernels with
 * preemptible RCU). The BPF program is itself a reader within the task that it interrupts, and so is the
 * program that queues the task again. These do not count.
 */
static __always_inline bool reads_rcu(const struct task_struct *p, u64 enq_flags)
{
	int programs = p == bpf_get_current_task_btf() ? 1 + !!(enq_flags & ENQ_REENQ) : 0;

	return bpf_core_field_exists(p->rcu_read_lock_nesting) && p->rcu_read_lock_nesting > programs;
}

/*
 * A word has got its first idle CPU, or has lost its last: sets or clears its bit in its node. Another CPU may do
 * the opposite at the same time, so this one looks again afterwards. If others interfere all the time, the bit is left
 * set, which does no harm. Returns what the bit was, only because an atomic operation whose result is used is a full
 * barrier.
 */
__noinline int mark_node(u32 word_id)
{
	struct roost_word *word = word_at(word_id);
	struct roost_node *node = word ? node_at(word->node) : NULL;
	u64 mask, had = 0;
	u32 index;
	int i;

	if (!node || word->rank / 64 >= NODE_MASKS)
		return 0;
	index = word->rank / 64 & (NODE_MASKS - 1);
	mask = 1ull << (word->rank & 63);
	each(i, 0, 4) {
		if (word->idle)
			had = __sync_fetch_and_or(&node->idle_words[index], mask);
		else
			had = __sync_fetch_and_and(&node->idle_words[index], ~mask);
		if (!word->idle == !(node->idle_words[index] & mask))
			return !!(had & mask);
	}
	had = __sync_fetch_and_or(&node->idle_words[index], mask);
	return !!(had & mask);
}

/* Claims a CPU that may be idle. Returns false if it is not. Writes to the word in any case. */
static __always_inline bool take(struct roost_word *word, u32 id, u32 bit)
{
	u64 mask = 1ull << (bit & 63), old = __sync_fetch_and_and(&word->idle, ~mask);

	if (old == mask)
		mark_node(id);
	return old & mask;
}

/* Claims an idle CPU. Returns false if another CPU was faster. */
static __always_inline bool claim(struct roost_word *word, u32 id, u32 bit)
{
	return word->idle & 1ull << (bit & 63) && take(word, id, bit);
}

static __always_inline bool claim_cpu(const struct roost_cpu *cpu)
{
	struct roost_word *word = word_at(cpu->word);

	return word && claim(word, cpu->word, cpu->bit);
}

/* Like claim_cpu(). If the CPU is probably idle, this transfers the word's line once, claim_cpu() twice. */
static __always_inline bool take_cpu(const struct roost_cpu *cpu)
{
	struct roost_word *word = word_at(cpu->word);

	return word && take(word, cpu->word, cpu->bit);
}

static __always_inline void mark_idle(const struct roost_cpu *cpu)
{
	struct roost_word *word = word_at(cpu->word);
	u64 mask = 1ull << (cpu->bit & 63);

	if (word && cpu->online && !(word->idle & mask) && !__sync_fetch_and_or(&word->idle, mask))
		mark_node(cpu->word);
}

/* A CPU goes offline or comes back. Its LLC and its node keep their places, with one CPU less or more. */
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
		claim(word, cpu->word, cpu->bit);
	}
}

/* The first slots of those cores that are completely idle. Slots without a CPU do not count. */
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

/* The first slots of those cores that have an online CPU. */
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

/* Number of cores of an LLC with an online CPU. */
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

/* The first idle CPU of a word that a task may use, or NONE. */
static __always_inline u32 idle_in(struct task_struct *p, u32 index)
{
	struct roost_word *word = word_at(index);
	u64 idle = word ? word->idle : 0;
	u32 place, *cpu;

	if (idle)
		idle &= allowed_slots(p, word);
	if (!idle)
		return NONE;
	place = index * 64 + lowest(idle);
	cpu = bpf_map_lookup_elem(&slots, &place);
	return cpu ? *cpu : NONE;
}

/* An idle CPU of an LLC that a task may use, or NONE. It stays marked as idle. */
__noinline u32 idle_for(struct task_struct *p __arg_trusted, u32 id)
{
	struct roost_llc *llc = llc_at(id);
	u32 cpu = NONE;
	int i;

	if (!llc)
		return NONE;
	each(i, 0, llc->nr_words) {
		cpu = idle_in(p, llc->first_word + i);
		if (cpu != NONE)
			break;
	}
	return cpu;
}

/* Whether a node has an idle CPU. */
static __always_inline bool any_idle(u32 node_id)
{
	struct roost_node *node = node_at(node_id);

	return node && (node->idle_words[0] | node->idle_words[1] | node->idle_words[2] | node->idle_words[3]);
}

/* Whether an LLC has an idle CPU. Its node tells, so that its words need not be read. */
static __always_inline bool any_idle_in(const struct roost_llc *llc)
{
	struct roost_node *node = node_at(llc->node);

	return node && bits_from(node->idle_words, NODE_MASKS, llc->first_word - node->first_word) &
			       lowest_bits(llc->nr_words);
}

/* The word of a task's last CPU, as a bit among 64 words of a node. 0 if it is not among these. */
static __always_inline u64 last_word(struct task_struct *p, u32 node_id, u32 index)
{
	struct roost_cpu *cpu = cpu_at(scx_bpf_task_cpu(p));
	struct roost_word *word = cpu ? word_at(cpu->word) : NULL;

	return word && cpu->node == node_id && word->rank / 64 == index ? 1ull << (word->rank & 63) : 0;
}

/* Among 64 words of a node, starting with word 64 * index, those with idle CPUs in which a task may run. */
__noinline u64 idle_words_for(struct task_struct *p __arg_trusted, u32 node_id, u32 index)
{
	struct roost_node *node = node_at(node_id);
	struct roost_affinity *affinity;
	u64 bits;

	if (!node)
		return 0;
	bits = node->idle_words[index & (NODE_MASKS - 1)];
	if (!bits || p->nr_cpus_allowed >= nr_possible)
		return bits;
	affinity = affinity_of(p);
	return bits & (affinity ? bits_from(affinity->words, AFFINITY_WORDS / 64, node->first_word + index * 64) :
		       last_word(p, node_id, index));
}

/*
 * The first word of a node with idle CPUs in which a task may run, starting with its word `from`, or NONE.
 * Other words are not read.
 */
__noinline u32 next_idle_word(struct task_struct *p __arg_trusted, u32 node_id, u32 from)
{
	struct roost_node *node = node_at(node_id);
	u64 bits;
	int i;

	if (!node)
		return NONE;
	each(i, 0, NODE_MASKS) {
		bits = idle_words_for(p, node_id, i);
		if (i < (int)from / 64)
			continue;
		if (i == from / 64)
			bits &= ~0ull << (from & 63);
		if (bits)
			return node->first_word + i * 64 + lowest(bits);
	}
	return NONE;
}

/* Idle CPUs of a word that a task may use. */
__noinline u32 idle_allowed(struct task_struct *p __arg_trusted, u32 index)
{
	struct roost_word *word = word_at(index);

	return word ? count(word->idle & allowed_slots(p, word)) : 0;
}

/* Walks the words of a node with idle CPUs in which a task may run, at most `most` words. */
#define each_idle_word(word, i, p, node_id, node, most)						\
	for (i = 0, word = next_idle_word(p, node_id, 0);					\
	     i < (int)(most) && word != NONE && may_go_on;					\
	     i++, word = next_idle_word(p, node_id, word - (node)->first_word + 1))

/* Rotates a word's bits so that `from` is the lowest, and back. */
static __always_inline u64 rotate(u64 bits, u32 from, u32 nr_slots)
{
	return bits >> from | bits << (nr_slots - from & 63);
}

/* The result of a search: a claimed CPU or NONE, and the number of slots that were examined. */
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
 * An idle CPU (or a CPU of an idle core) of a word that the task may use. Examines `limit` slots, starting with
 * the slot `from`.
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
	bits = cores ? idle_cores(word) : word->idle;
	if (bits)
		bits &= allowed_slots(p, word);
	bits = rotate(bits, from, nr_slots) & lowest_bits(limit);
	each(i, 0, 64) {
		if (!bits)
			break;
		slot = lowest(bits) + from;
		if (slot >= nr_slots)
			slot -= nr_slots;
		place = index * 64 + slot;
		cpu = bpf_map_lookup_elem(&slots, &place);
		if (cpu && claim(word, index, slot))
			return FOUND(*cpu, lowest(bits) + 1);
		bits &= bits - 1;
	}
	return FOUND(NONE, limit);
}

/* The same in an LLC, starting with the place of one of its CPUs (word * 64 + bit). */
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

/* An idle CPU of an LLC, preferably of an idle core, or NONE. */
static __always_inline u32 search_all(struct task_struct *p, u32 id, const struct roost_llc *llc)
{
	u32 cpu = NONE;

	if (smt > 1)
		cpu = found_cpu(search_llc(p, id, llc->first_word * 64, ALL_SLOTS, true));
	if (cpu == NONE)
		cpu = found_cpu(search_llc(p, id, llc->first_word * 64, ALL_SLOTS, false));
	return cpu;
}

/* The next LLC of a node after `llc`. After the last one comes the first. */
static __always_inline u32 next_llc(const struct roost_node *node, u32 llc)
{
	return llc + 1 < node->first_llc + node->nr_llcs ? llc + 1 : node->first_llc;
}

/*
 * Among the LLCs of a node with an idle CPU that a task may use: the one with most such CPUs, and the number of
 * such CPUs in all of them. Among equals the parent's LLC is chosen (parent may be NONE). Words without idle
 * CPUs are not read; of the others, at most `most` are.
 */
__noinline u64 idlest_among(struct task_struct *p __arg_trusted, u32 node_id, u32 parent, u32 most)
{
	u32 best = NONE, most_idle = 0, sum = 0, last = NONE, idle = 0, found, index;
	struct roost_node *node = node_at(node_id);
	struct roost_word *word;
	int i;

	if (!node)
		return FOUND(NONE, 0);
	each_idle_word(index, i, p, node_id, node, most) {
		word = word_at(index);
		if (!word)
			break;
		/* The words of an LLC are consecutive. */
		found = idle_allowed(p, index);
		idle = (word->llc == last ? idle : 0) + found;
		sum += found;
		last = word->llc;
		if (idle > most_idle || (idle && idle == most_idle && last == parent)) {
			most_idle = idle;
			best = last;
		}
	}
	return FOUND(best, sum);
}

static __always_inline u64 idlest_llc(struct task_struct *p, u32 node_id, u32 parent)
{
	return idlest_among(p, node_id, parent, 64 * NODE_MASKS);
}

/*
 * The LLC to which a task goes that leaves its node for another one: the idlest. Slices of many tasks end at the same
 * tick, so several tasks may leave before the first arrives. Among equals, a task takes the LLC with the same position
 * on its node as the task's own LLC. Otherwise all of them would take the first.
 */
static __always_inline u32 llc_for_leaver(struct task_struct *p, const struct roost_cpu *cpu, u32 to)
{
	struct roost_node *from = node_at(cpu->node), *node = node_at(to);
	u32 place;

	if (!from || !node)
		return NONE;
	place = cpu->llc - from->first_llc;
	return found_cpu(idlest_llc(p, to, node->first_llc + (place < node->nr_llcs ? place : 0)));
}

/* The sum of the utilisations of a word's CPUs (times 2^ROOST_UTIL_SHIFT). */
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

/* Number of tasks that run or wait in an LLC. */
static __always_inline u32 running_in(const struct roost_llc *llc, u32 id)
{
	return llc->nr_cpus - idle_cpus(id) + nr_waiting(llc, id);
}

/*
 * The number of the node's LLCs that a search may visit: as many as contain the CPUs to which the node's
 * utilisation limits a search.
 */
static __always_inline void bound_node(struct roost_node *node)
{
	u32 slots;

	slots = roost_nr_idle_scan(node->util, node->nr_cpus, imbalance_pct);
	node->scan_limit = (slots * node->nr_llcs + node->nr_cpus - 1) / (node->nr_cpus ?: 1);
}

/* sis-util: recomputes the limit of searches in an LLC from how busy its CPUs were. */
__noinline int bound_search(u32 id, u64 now)
{
	struct roost_llc *llc = llc_at(id);
	struct roost_node *node = llc ? node_at(llc->node) : NULL;
	u64 sum = 0, before_that;
	u32 running;
	int i;

	if (!llc || !node)
		return 0;
	each(i, 0, llc->nr_words)
		sum += word_util(llc->first_word + i, now);
	sum >>= ROOST_UTIL_SHIFT;
	llc->scan_limit = roost_nr_idle_scan(sum, llc->nr_cpus, imbalance_pct);
	before_that = llc->util;
	llc->util = sum;
	__sync_fetch_and_add(&node->util, sum - before_that);
	bound_node(node);
	/* The number of the node's tasks is computed here too. */
	running = running_in(llc, id);
	before_that = llc->running;
	llc->running = running;
	__sync_fetch_and_add(&node->running, running - (u32)before_that);
	return 0;
}

/*
 * Number of slots that a wakeup may examine. It is recomputed as often as the kernel balances in an LLC: every
 * W ms for an LLC of W CPUs.
 */
static __always_inline u32 scan_limit(struct roost_llc *llc, u32 id, u64 now)
{
	u64 at = llc->scan_at;

	if (now - at >= (u64)llc->nr_cpus * 1000000 &&
	    __sync_bool_compare_and_swap(&llc->scan_at, at, now))
		bound_search(id, now);
	return llc->scan_limit;
}

/* A CPU became idle, or is busy again. */
static __always_inline void account_idle(struct roost_cpu *cpu, bool idle)
{
	u64 now = scx_bpf_now();

	cpu->util = roost_util_advance(cpu->util, now - cpu->util_at, idle);
	cpu->util_at = now;
}

#endif
