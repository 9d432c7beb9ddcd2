/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * CPUs whose slices end together
 *
 * Ticks come at the same time on all CPUs, and most slices end at ticks, so CPUs of an LLC choose their next tasks
 * within microseconds of each other. The kernel queues the previous task of a CPU only after `dispatch`. CPUs that
 * choose meanwhile do not see it, and go on with tasks whose turn comes later. If few tasks wait, that happens at every
 * tick. In the simulation four loops of nice 0 and four of nice 5 got the same on four CPUs
 * (docs/notes/2026-11-27-scenes.md).
 *
 * So a CPU announces that it leaves its task. Another CPU whose next task would come after that one keeps its own task
 * for now. When a task that was left is queued, one of these CPUs is kicked, and chooses again:
 *
 *     1. a CPU that left a waiting task alone; all such CPUs, when no announcement is left
 *     2. otherwise, of the CPUs whose own task came before all that wait, the one whose task comes last
 *
 * Of announcements at a time only the earliest task is seen. CPUs for which bound tasks wait take no part, because
 * those are in the order of another clock. Bits of an LLC are those of its CPUs' slots within their words. If it has
 * several words, CPUs share bits. In all these cases a CPU may choose too early, or be kicked in vain.
 */
#ifndef ROOST_TOGETHER_H
#define ROOST_TOGETHER_H

#include "idle.h"

/*
 * How long CPUs begin to wait for announced tasks, in ns. A CPU switches within microseconds; in an emulated guest
 * within 100. (The factor is an assumption. It limits the harm if a CPU does not switch.)
 */
#define TOGETHER_NS 1000000

static __always_inline u64 bit_of(const struct roost_cpu *cpu)
{
	return 1ull << (cpu->bit & 63);
}

/* Whether a task of an LLC is being left. */
static __always_inline bool is_left(const struct roost_llc *llc)
{
	return llc->leaving && before(scx_bpf_now(), llc->left_at + TOGETHER_NS);
}

static __always_inline void note_left(struct roost_llc *llc, struct task_struct *p, const struct roost_word *word,
				      u64 vtime)
{
	llc->left_vtime = vtime;
	llc->left_for = allowed_slots(p, word);
}

/*
 * A CPU is about to leave its task, which will be queued with this virtual time. If CPUs announce at the same moment,
 * the members may belong to different tasks. Then a CPU keeps its task in vain, or chooses too early.
 */
static __always_inline void begin_leaving(struct roost_llc *llc, struct roost_cpu *cpu, struct task_struct *p,
					  u64 vtime)
{
	struct roost_word *word = word_at(cpu->word);

	if (!word || stays_put(p))
		return;
	cpu->leaves = true;
	cpu->left_vtime = vtime;
	if (!is_left(llc)) {
		llc->left_at = scx_bpf_now();
		llc->latest_cpu = 0;
		note_left(llc, p, word, vtime);
		if (llc->leaving)
			__sync_lock_test_and_set(&llc->leaving, 0);
	}
	/* Here and below, results are used because only then the kernel orders the memory accesses. */
	if (__sync_fetch_and_or(&llc->leaving, bit_of(cpu)) && before(vtime, llc->left_vtime))
		note_left(llc, p, word, vtime);
}

/* Whether a task that is being left, and that a CPU may run, comes before this virtual time. */
static __always_inline bool left_comes_before(const struct roost_llc *llc, const struct roost_cpu *cpu, u64 vtime)
{
	return llc->leaving & ~bit_of(cpu) && llc->left_for & bit_of(cpu) && before(llc->left_vtime, vtime) &&
	       is_left(llc);
}

/* A CPU goes on with its task, of this virtual time, which comes before all that wait. */
static __always_inline void go_on(struct roost_llc *llc, const struct roost_cpu *cpu, u32 id, u64 vtime)
{
	if (!left_comes_before(llc, cpu, vtime) || (llc->latest_cpu && !before(llc->latest_vtime, vtime)))
		return;
	llc->latest_vtime = vtime;
	llc->latest_cpu = id + 1;
}

/* Whether one of some announcements, by their CPUs' bits, has ended. */
static __always_inline bool any_ended(struct roost_llc *llc, u64 bits)
{
	return bits && bits & ~__sync_fetch_and_or(&llc->leaving, 0);
}

/* Whether a CPU leaves a waiting task of this virtual time alone for now. */
static __always_inline bool wait_for_left(struct roost_llc *llc, const struct roost_cpu *cpu, u64 vtime)
{
	u64 bit = bit_of(cpu);

	if (!left_comes_before(llc, cpu, vtime))
		return false;
	if (__sync_fetch_and_or(&llc->waits_for_left, bit) & bit || llc->leaving & ~bit)
		return true;
	/* All have been queued in the meantime. */
	return !(__sync_fetch_and_and(&llc->waits_for_left, ~bit) & bit);
}

static __always_inline void kick_slots(u32 index, u64 bits)
{
	u32 slot, *cpu;
	int i;

	each(i, 0, 64) {
		if (!bits)
			break;
		slot = index * 64 + lowest(bits);
		bits &= bits - 1;
		cpu = bpf_map_lookup_elem(&slots, &slot);
		if (cpu && *cpu != NONE)
			scx_bpf_kick_cpu(*cpu, KICK_PREEMPT);
	}
}

/* An announcement of an LLC has ended: a task of this virtual time is queued. more: others have not ended. */
__noinline int kick_keepers(u32 id, u64 vtime, bool more)
{
	struct roost_llc *llc = llc_at(id);
	u32 latest;
	u64 bits;
	int i;

	if (!llc)
		return 0;
	bits = llc->waits_for_left;
	if (bits) {
		if (more)
			bits &= -bits;
		bits &= __sync_fetch_and_and(&llc->waits_for_left, ~bits);
		each(i, 0, llc->nr_words)
			kick_slots(llc->first_word + i, bits);
		return 0;
	}
	latest = llc->latest_cpu;
	if (latest && before(vtime, llc->latest_vtime)) {
		llc->latest_cpu = 0;
		scx_bpf_kick_cpu(latest - 1, KICK_PREEMPT);
	}
	return 0;
}

/* If a CPU has announced that it leaves a task, that is queued now, or goes on. */
static __always_inline void end_leaving(struct roost_llc *llc, struct roost_cpu *cpu)
{
	u64 more;

	if (!cpu->leaves)
		return;
	cpu->leaves = false;
	more = __sync_fetch_and_and(&llc->leaving, ~bit_of(cpu)) & ~bit_of(cpu);
	if (llc->waits_for_left || llc->latest_cpu)
		kick_keepers(cpu->llc, cpu->left_vtime, more);
}

/* A CPU chooses. It has not switched since it last announced that, and no longer waits. */
static __always_inline void begin_choice(struct roost_llc *llc, struct roost_cpu *cpu)
{
	u64 bit = bit_of(cpu);

	end_leaving(llc, cpu);
	if (llc->waits_for_left & bit)
		__sync_fetch_and_and(&llc->waits_for_left, ~bit);
}

#endif
