/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The watch: what keeps every wait bounded if nothing else does
 *
 * Ten times a second each queue is looked at. One that has not moved although it holds tasks is
 * shown to idle CPUs (realtime tasks may hold all CPUs of an LLC, and a CPU that became idle while a
 * task was being queued did not see it). The clock of a queue with tasks is moved on if it was slower
 * than if all of them had been served in turn, so that new arrivals line up behind those who wait.
 */
#ifndef ROOST_WATCH_H
#define ROOST_WATCH_H

#include "queue.h"

#define WATCH_NS 100000000ull

struct roost_watch {
	struct bpf_timer timer;
};

ARRAY(watches, struct roost_watch);

__noinline int watch_llc(u32 id, u64 now)
{
	struct roost_llc *llc = llc_at(id);
	struct roost_cpu *here = this_cpu();
	u64 least, queued;

	if (!llc || !here)
		return 0;
	queued = scx_bpf_dsq_nr_queued(id);
	if (queued) {
		least = llc->watched_clock + WATCH_NS * llc->nr_cpus / (llc->nr_cpus + queued);
		if (before(llc->clock, least))
			llc->clock = least;
		if (now - llc->moved_at >= WATCH_NS) {
			here->n.rescued++;
			ask_for_help(llc->node, now - llc->moved_at);
		}
	}
	llc->watched_clock = llc->clock;
	return 0;
}

static int watch_all(void *map, int *key, struct roost_watch *watch)
{
	u64 now = scx_bpf_now();
	int i;

	bpf_for(i, 0, nr_llcs)
		watch_llc(i, now);
	bpf_timer_start(&watch->timer, WATCH_NS, 0);
	return 0;
}

static int start_watch(void)
{
	u32 zero = 0;
	struct roost_watch *watch = bpf_map_lookup_elem(&watches, &zero);
	int error;

	if (!watch)
		return -EINVAL;
	error = bpf_timer_init(&watch->timer, &watches, CLOCK_MONOTONIC);
	if (!error)
		error = bpf_timer_set_callback(&watch->timer, watch_all);
	if (!error)
		error = bpf_timer_start(&watch->timer, WATCH_NS, 0);
	return error;
}

#endif
