/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A small sched_ext scheduler for tests: one queue for all CPUs, by virtual time or first come, first served.
 *
 * small.bpf.o is made from it, in this folder, with the headers that `make live` unpacks:
 *
 *	b=../../../../target/live/release/build
 *	clang-19 --target=bpf -mcpu=v4 -g -O2 -Wall -fdebug-compilation-dir=. -ffile-prefix-map=$b=build \
 *		$(printf -- '-I%s ' $b/roost-live-*\/out/scx_utils-bpf_h{,/arch/x86,/bpf-compat} \
 *		$b/libbpf-sys-*\/out/include) -c small.bpf.c && llvm-strip -g small.bpf.o
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

#define SHARED_DSQ 7

/* Settings. */
const volatile bool fifo;
const volatile u64 slice_ns = 20000000;
const volatile bool locked;
/* What goes wrong, at the wakeup of this number (0: nothing): see enum fault. */
const volatile u32 fault;
const volatile u64 fault_at = 100;

enum fault {
	FAULT_NONE,
	FAULT_WILD,  /* reads an address that nothing has */
	FAULT_ERROR, /* calls scx_bpf_error() */
	FAULT_STALL, /* queues tasks where nobody looks */
};

#define NOBODYS_DSQ 8

u64 vtime_now;
u64 wakeups;

UEI_DEFINE(uei);

enum counter { COUNT_LOCAL, COUNT_SHARED, NR_COUNTERS };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(u64));
	__uint(max_entries, NR_COUNTERS);
} counters SEC(".maps");

struct sum {
	struct bpf_spin_lock lock;
	u64 running;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, u32);
	__type(value, struct sum);
	__uint(max_entries, 1);
} sums SEC(".maps");

static void count(u32 which)
{
	u64 *value = bpf_map_lookup_elem(&counters, &which);

	if (value)
		(*value)++;
}

static void go_wrong(struct task_struct *p)
{
	if (!fault || __sync_fetch_and_add(&wakeups, 1) < fault_at)
		return;
	if (fault == FAULT_WILD)
		*(volatile u64 *)0xdeadbeef000;
	if (fault == FAULT_ERROR)
		scx_bpf_error("task %d has had enough", p->pid);
}

s32 BPF_STRUCT_OPS(small_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool is_idle = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &is_idle);

	go_wrong(p);
	if (is_idle) {
		count(COUNT_LOCAL);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, 0);
	}
	return cpu;
}

void BPF_STRUCT_OPS(small_enqueue, struct task_struct *p, u64 enq_flags)
{
	u64 vtime = p->scx.dsq_vtime;

	count(COUNT_SHARED);
	if (fault == FAULT_STALL && wakeups >= fault_at) {
		scx_bpf_dsq_insert(p, NOBODYS_DSQ, slice_ns, enq_flags);
		return;
	}
	if (fifo) {
		scx_bpf_dsq_insert(p, SHARED_DSQ, slice_ns, enq_flags);
		return;
	}
	/* A task that slept keeps at most one slice of its lag behind the clock. */
	if (time_before(vtime, vtime_now - slice_ns))
		vtime = vtime_now - slice_ns;
	scx_bpf_dsq_insert_vtime(p, SHARED_DSQ, slice_ns, vtime, enq_flags);
}

void BPF_STRUCT_OPS(small_dispatch, s32 cpu, struct task_struct *prev)
{
	scx_bpf_dsq_move_to_local(SHARED_DSQ, 0);
}

/* All CPUs take one lock, if so set. */
static void sum_up(void)
{
	u32 zero = 0;
	struct sum *sum = bpf_map_lookup_elem(&sums, &zero);

	if (!sum)
		return;
	bpf_spin_lock(&sum->lock);
	sum->running++;
	bpf_spin_unlock(&sum->lock);
}

void BPF_STRUCT_OPS(small_running, struct task_struct *p)
{
	if (locked)
		sum_up();
	if (time_before(vtime_now, p->scx.dsq_vtime))
		vtime_now = p->scx.dsq_vtime;
}

void BPF_STRUCT_OPS(small_stopping, struct task_struct *p, bool runnable)
{
	/* Weight 100 is a nice value of 0. */
	u64 used = (slice_ns - p->scx.slice) * 100 / p->scx.weight;

	scx_bpf_task_set_dsq_vtime(p, p->scx.dsq_vtime + used);
}

void BPF_STRUCT_OPS(small_enable, struct task_struct *p)
{
	scx_bpf_task_set_dsq_vtime(p, vtime_now);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(small_init)
{
	s32 err = scx_bpf_create_dsq(SHARED_DSQ, -1);

	return err ?: scx_bpf_create_dsq(NOBODYS_DSQ, -1);
}

void BPF_STRUCT_OPS(small_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(small_ops,
	       .select_cpu = (void *)small_select_cpu,
	       .enqueue = (void *)small_enqueue,
	       .dispatch = (void *)small_dispatch,
	       .running = (void *)small_running,
	       .stopping = (void *)small_stopping,
	       .enable = (void *)small_enable,
	       .init = (void *)small_init,
	       .exit = (void *)small_exit,
	       .name = "small");
