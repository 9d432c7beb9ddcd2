/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The watch: bounds every wait, if nothing else does
 *
 * Ten times a second each LLC looks at its queue and at those of its CPUs, from a timer of its own.
 *
 *     1. If the queue has held tasks all the time, the watch shows it to an idle CPU, if there is one. Such a queue
 *        exists where realtime tasks hold all CPUs of an LLC, or where a CPU became idle while a task was being
 *        queued and did not see it.
 *     2. If a task has waited for a second, the queue's clock moves past it. Whatever arrives then lines up behind
 *        it, so it runs after the tasks that are before it now.
 *
 * Both hold for queues of LLCs and for queues of tasks that may use one CPU only.
 *
 * The same timers keep weights between LLCs (even.h). The first CPU of an LLC that looks for a task starts that of the
 * LLC; the kernel has a timer fire on the CPU that started it, or on a busy one nearby. One timer of the machine keeps
 * what changes slowly: weights of cgroups (weights.h), where groups and processes settle (home.h), and pulls
 * (gather.h).
 */
#ifndef ROOST_WATCH_H
#define ROOST_WATCH_H

#include "even.h"
#include "park.h"

#define WATCH_NS 100000000ull

struct roost_watch {
	struct bpf_timer timer;
	u64 at;			/* when it last looked */
	u32 looks;
} __attribute__((aligned(CACHE_LINE)));

/* The watch of each LLC. The last entry is that of the machine. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, struct roost_watch);
} watches SEC(".maps");

static __always_inline struct roost_watch *watch_at(u32 watch)
{
	return bpf_map_lookup_elem(&watches, &watch);
}

/* Number of tasks at the end of a queue that are examined. */
#define LAST 64

/* Moves a queue's clock past the last task in it that has waited for too long. Returns false if no task has. */
static __always_inline bool pass_patient(u64 *clock, u64 queue, u64 now)
{
	struct roost_task *task;
	struct task_struct *p;
	bool found = false;
	int i;

	each_queued(p, it, i, queue, ITER_REVERSE, LAST) {
		task = task_of(p);
		if (!task || !is_patient(task, now))
			continue;
		move_clock(clock, p->scx.dsq_vtime + slice_ns());
		found = true;
		break;
	}
	return found;
}

__noinline int watch_llc(u32 id, u64 now)
{
	struct roost_llc *llc = llc_at(id);
	struct roost_cpu *here = this_cpu();

	if (!llc || !here || !nr_waiting(llc, id))
		return 0;
	bpf_rcu_read_lock();
	pass_patient(&llc->clock, id, now);
	bpf_rcu_read_unlock();
	if (backlog_ns(llc, now) >= WATCH_NS)
		here->n.rescued += help_waiting(id, backlog_ns(llc, now));
	return 0;
}

/*
 * Watches the queue of tasks that may use only one CPU. If the CPU is going offline, it is made to look again,
 * because hotplug waits for that: Linux 6.16 does not tell a CPU that another CPU has taken its last task after
 * it became idle, and lets it idle beside a task of its own whose slice ended while it was alone (balance_one()
 * with SCX_OPS_ENQ_LAST).
 *
 * Before the kernel reports the CPU as offline, it waits for RCU readers, and does not ask the CPU any more
 * what to run. A reader that was preempted may be among the tasks that wait for it.
 */
__noinline int watch_cpu(u32 id, u64 now)
{
	struct roost_cpu *cpu = cpu_at(id);
	struct roost_llc *llc = cpu ? llc_at(cpu->llc) : NULL;

	if (!llc)
		return 0;
	if (cpu->online && is_leaving(id)) {
		drain_queue(id, cpu->llc, CPU_QUEUE | id);
		drain_parked(id);
		if (llc->nr_cpus == 1)
			drain_queue(id, cpu->llc, cpu->llc);
	}
	if (!cpu->online)
		scx_bpf_kick_cpu(id, 0);
	if (!cpu->bound_waiting)
		return 0;
	bpf_rcu_read_lock();
	if (pass_patient(&cpu->clock, CPU_QUEUE | id, now) && cpu->competes)
		move_clock(&llc->clock, cpu->clock - cpu->ahead);
	bpf_rcu_read_unlock();
	return 0;
}

/* Watches the CPUs of an LLC. */
__noinline int watch_cpus(u32 id, u64 now)
{
	struct roost_llc *llc = llc_at(id);
	u32 place, *cpu;
	int i;

	if (!llc)
		return 0;
	bpf_for(i, 0, llc->nr_words * 64) {
		place = llc->first_word * 64 + i;
		cpu = bpf_map_lookup_elem(&slots, &place);
		if (cpu && *cpu != NONE)
			watch_cpu(*cpu, now);
	}
	return 0;
}

/*
 * The time, for a watch. On an idle CPU scx_bpf_now() can return a stale clock (now_at()), but the timer does not come
 * early. (The timer has another clock, so up to a sixteenth of the time may be missing.)
 */
static __always_inline u64 watch_time(struct roost_watch *watch)
{
	u64 now = scx_bpf_now(), least = watch->at + WATCH_NS - WATCH_NS / 16;

	watch->at = watch->at && before(now, least) ? least : now;
	return watch->at;
}

static __always_inline void look_at_llc(u32 id, struct roost_watch *watch, u64 now)
{
	watch_llc(id, now);
	watch_cpus(id, now);
	bound_search(id, now);
	if (nr_llcs > 1)
		even_out(id, watch->looks++, now);
}

/* Starts the watch of an LLC. A CPU of the LLC starts it, unless the watch of the machine comes first. */
static __always_inline void begin_watch(struct roost_llc *llc, u32 id)
{
	struct roost_watch *watch;

	/* Two CPUs may come at once. Then one of them restarts the timer. */
	if (llc->watched)
		return;
	watch = watch_at(id);
	if (watch && !bpf_timer_start(&watch->timer, WATCH_NS, 0))
		llc->watched = true;
}

static __always_inline void look_at_machine(u64 now)
{
	struct roost_llc *llc;
	int i;

	watched_at = now;
	bpf_for(i, 0, nr_llcs) {
		llc = llc_at(i);
		if (llc)
			begin_watch(llc, i);
	}
	if (cgroup_weights && shares_used)
		update_shares(now);
	if (cgroup_limits && shares_used)
		watch_limits();
	if (any_set()) {
		update_sets(now);
		gather();
	}
}

static int look(void *map, u32 *key, struct roost_watch *watch)
{
	u64 now = watch_time(watch);

	if (*key < nr_llcs)
		look_at_llc(*key, watch, now);
	else
		look_at_machine(now);
	bpf_timer_start(&watch->timer, WATCH_NS, 0);
	return 0;
}

static int start_watch(void)
{
	struct roost_watch *watch;
	int i, error;

	bpf_for(i, 0, nr_llcs + 1) {
		watch = watch_at(i);
		if (!watch)
			return -EINVAL;
		error = bpf_timer_init(&watch->timer, &watches, CLOCK_MONOTONIC);
		if (!error)
			error = bpf_timer_set_callback(&watch->timer, look);
		if (error)
			return error;
	}
	watch = watch_at(nr_llcs);
	return watch ? bpf_timer_start(&watch->timer, WATCH_NS, 0) : -EINVAL;
}

#endif
