/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A small sched_ext scheduler for tests, which does something with a pointer that the kernel lets no program do. One
 * queue for all CPUs, first come, first served.
 *
 * pointers.bpf.o is made as small.bpf.o is.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

#define SHARED_DSQ 7

/* What is wrong (0: nothing): see enum wrong. */
const volatile u32 wrong;

enum wrong {
	WRONG_NOTHING,
	WRONG_WRITE,	   /* writes a member of a task */
	WRONG_STRUCT,	   /* gives a task to a kfunc for cpumasks */
	WRONG_STORAGE,	   /* asks an array for the value of a task */
	WRONG_LOOKUP,	   /* looks a key up in the values of tasks */
	WRONG_READ,	   /* reads beyond a task */
	WRONG_NUMBER,	   /* gives a number to a kfunc for tasks */
	WRONG_IN_FUNCTION, /* writes a member of a task in another function */
};

struct value {
	u64 runs;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, u32);
	__type(value, struct value);
	__uint(max_entries, 1);
} totals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct value);
} values SEC(".maps");

static __noinline void write_flags(struct task_struct *p)
{
	p->flags |= 1;
}

void BPF_STRUCT_OPS(pointers_enqueue, struct task_struct *p, u64 enq_flags)
{
	/* What kernels before 6.19 let programs write. */
	p->scx.slice = SCX_SLICE_DFL;
	p->scx.dsq_vtime = 0;
	if (wrong == WRONG_WRITE)
		p->pid = 5;
	if (wrong == WRONG_STRUCT)
		scx_bpf_put_cpumask((void *)p);
	if (wrong == WRONG_READ)
		enq_flags |= *(u64 *)((void *)p + (1 << 14));
	if (wrong == WRONG_NUMBER)
		scx_bpf_task_cpu((void *)(long)p->pid);
	if (wrong == WRONG_IN_FUNCTION)
		write_flags(p);
	scx_bpf_dsq_insert(p, SHARED_DSQ, SCX_SLICE_DFL, enq_flags);
}

void BPF_STRUCT_OPS(pointers_dispatch, s32 cpu, struct task_struct *prev)
{
	scx_bpf_dsq_move_to_local(SHARED_DSQ, 0);
}

void BPF_STRUCT_OPS(pointers_running, struct task_struct *p)
{
	const struct cpumask *idle = scx_bpf_get_idle_cpumask();
	struct bpf_cpumask *mask = bpf_cpumask_create();
	u32 zero = 0;
	struct value *of_task = bpf_task_storage_get(&values, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct value *total = bpf_map_lookup_elem(&totals, &zero);

	if (wrong == WRONG_STORAGE)
		of_task = bpf_task_storage_get(&totals, p, 0, 0);
	if (wrong == WRONG_LOOKUP)
		total = bpf_map_lookup_elem(&values, &zero);
	if (mask) {
		bpf_cpumask_and(mask, idle, p->cpus_ptr);
		if (of_task && total && bpf_cpumask_empty(cast_mask(mask)))
			of_task->runs = ++total->runs;
		bpf_cpumask_release(mask);
	}
	scx_bpf_put_idle_cpumask(idle);
}

s32 BPF_STRUCT_OPS(pointers_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	p->scx.disallow = false;
	return bpf_task_storage_get(&values, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE) ? 0 : -ENOMEM;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(pointers_init)
{
	return scx_bpf_create_dsq(SHARED_DSQ, -1);
}

SCX_OPS_DEFINE(pointers_ops,
	       .enqueue = (void *)pointers_enqueue,
	       .dispatch = (void *)pointers_dispatch,
	       .running = (void *)pointers_running,
	       .init_task = (void *)pointers_init_task,
	       .init = (void *)pointers_init,
	       .name = "pointers");
