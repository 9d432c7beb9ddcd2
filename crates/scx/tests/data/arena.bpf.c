/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A small sched_ext scheduler for tests, which counts in an arena what it queues. One queue for all CPUs, first come,
 * first served. It ends itself if the arena does not contain what it has put there.
 *
 * arena.bpf.o is made as small.bpf.o is.
 */
#include <scx/common.bpf.h>
#include <bpf_arena_common.bpf.h>

char _license[] SEC("license") = "GPL";

#define SHARED_DSQ 7

struct {
	__uint(type, BPF_MAP_TYPE_ARENA);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1 << 20);
	__ulong(map_extra, 1ull << 44);
} arena SEC(".maps");

UEI_DEFINE(uei);

struct record {
	u64 queued;
	struct record __arena *next;
};

/* A variable in the last page of the arena. Its initial value is 5. */
u64 __arena total = 5;

/* The first of two records, which are in pages of their own. */
struct record __arena *records;

/* What the records must contain. */
u64 expected;

s32 BPF_STRUCT_OPS(arena_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool is_idle = false;

	return scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &is_idle);
}

void BPF_STRUCT_OPS(arena_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct record __arena *first = records, *second = first->next;

	expected++;
	first->queued++;
	__sync_fetch_and_add(&second->queued, 2);
	total++;
	if (first->queued != expected || second->queued != 2 * expected || total != 5 + expected)
		scx_bpf_error("%llu, %llu and %llu after %llu tasks", first->queued, second->queued, total, expected);
	scx_bpf_dsq_insert(p, SHARED_DSQ, SCX_SLICE_DFL, enq_flags);
}

void BPF_STRUCT_OPS(arena_dispatch, s32 cpu, struct task_struct *prev)
{
	scx_bpf_dsq_move_to_local(SHARED_DSQ, 0);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(arena_init)
{
	/* The first page has the address of NULL, as far as programs can tell. */
	char __arena *pages = bpf_arena_alloc_pages(&arena, NULL, 3, NUMA_NO_NODE, 0);

	if (!pages)
		return -ENOMEM;
	bpf_arena_free_pages(&arena, pages, 1);
	records = (struct record __arena *)(pages + PAGE_SIZE);
	records->next = (struct record __arena *)(pages + 2 * PAGE_SIZE);
	return scx_bpf_create_dsq(SHARED_DSQ, -1);
}

void BPF_STRUCT_OPS(arena_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(arena_ops,
	       .select_cpu = (void *)arena_select_cpu,
	       .enqueue = (void *)arena_enqueue,
	       .dispatch = (void *)arena_dispatch,
	       .init = (void *)arena_init,
	       .exit = (void *)arena_exit,
	       .name = "arena");
