// SPDX-License-Identifier: GPL-2.0-only
/*
 * roost as a sched_ext scheduler: keeps threads near each other on machines with several LLCs and
 * NUMA nodes
 *
 *     state.h     the machine, what runs on it, counters
 *     idle.h      which CPUs are idle; searching them (sis-util)
 *     place.h     where a task starts (llc-imbalance, numa-imbalance)
 *     queue.h     who runs next; taking tasks from elsewhere (llc-imbalance)
 *     watch.h     no wait without a bound
 *     kernel.h    the kernel's interface and its versions
 *
 * The decisions of the mechanisms are functions of policy/include/roost, the same as in the
 * simulation. A task's way: select_cpu finds an idle CPU and the task runs there (place.h), or
 * enqueue puts it in the queue of the LLC whose CPU it last ran on, and dispatch on a CPU of that LLC,
 * or of another one that has nothing to do, takes it (queue.h). The table at the end has every hook.
 */
#include "watch.h"

char _license[] SEC("license") = "GPL";

#define EXIT_TEXT 256

/* Why the scheduler ended, for the loader; kind is written last. */
struct {
	u64 kind;
	s64 code;
	char reason[EXIT_TEXT];
	char message[EXIT_TEXT * 4];
} ended;

s32 ROOST_OPS(roost_select_cpu, struct task_struct *p, s32 prev, u64 wake_flags)
{
	struct roost_cpu *here = this_cpu();
	u32 cpu;

	if (!here)
		return prev;
	here->n.ttwu_count++;
	if (numa_imbalance && wake_flags & WAKE_FORK)
		cpu = place_new(p, prev, &here->n);
	else
		cpu = place_woken(p, prev, &here->n);
	if (cpu == NONE)
		return prev;
	here->n.direct++;
	dsq_insert(p, DSQ_LOCAL, slice_ns(), 0);
	return cpu;
}

/* Tasks that may use one CPU only; false if that is not so. */
static bool enqueue_bound(struct task_struct *p, u32 cpu_id, struct roost_cpu *cpu, u64 flags,
			  struct roost_counters *n)
{
	if (p->nr_cpus_allowed != 1)
		return false;
	if (p->flags & PF_KTHREAD) {
		n->kernel_threads++;
		dsq_insert(p, DSQ_LOCAL, slice_ns(), flags);
	} else if (!cpu->bound_waiting && claim_cpu(cpu)) {
		n->direct++;
		dsq_insert(p, DSQ_LOCAL, slice_ns(), flags);
	} else {
		n->bound++;
		cpu->bound_waiting = true;
		dsq_insert_vtime(p, CPU_QUEUE | cpu_id, slice_ns(), p->scx.dsq_vtime, flags);
	}
	return true;
}

void ROOST_OPS(roost_enqueue, struct task_struct *p, u64 flags)
{
	u32 cpu_id = scx_bpf_task_cpu(p);
	struct roost_cpu *cpu = cpu_at(cpu_id), *here = this_cpu();
	struct roost_llc *llc = cpu ? llc_at(cpu->llc) : NULL;
	struct roost_task *task = task_of(p);

	if (!cpu || !here || !llc || !task) {
		dsq_insert(p, DSQ_LOCAL, slice_ns(), flags);
		return;
	}
	adopt(p, task, llc, cpu->llc);
	if (enqueue_bound(p, cpu_id, cpu, flags, &here->n))
		return;
	task->queued_at = scx_bpf_now();
	if (!scx_bpf_dsq_nr_queued(cpu->llc))
		llc->backlog_at = task->queued_at;
	here->n.queued++;
	dsq_insert_vtime(p, cpu->llc, slice_ns(), p->scx.dsq_vtime, flags);
	/* Not after a search for an idle CPU that found none. */
	if (!(flags & ENQ_CPU_SELECTED))
		kick_llc(cpu->llc);
}

void ROOST_OPS(roost_dispatch, s32 cpu_id, struct task_struct *prev)
{
	struct roost_cpu *cpu = cpu_at(cpu_id);
	bool runs_on;

	if (!cpu || cpu->llc == NONE)
		return;
	runs_on = prev && prev->scx.flags & TASK_QUEUED;
	if (!(runs_on && stays_first(prev, cpu, cpu_id)) && take(cpu, cpu_id))
		return;
	if (runs_on) {
		task_set_slice(prev, slice_ns());
		return;
	}
	if (steal(cpu_id))
		return;
	/* Idle before and again: a claim that came to nothing is taken back. */
	if (!prev)
		mark_idle(cpu);
}

void ROOST_OPS(roost_running, struct task_struct *p)
{
	u32 cpu_id = scx_bpf_task_cpu(p);
	struct roost_cpu *cpu = cpu_at(cpu_id);
	struct roost_llc *llc = cpu ? llc_at(cpu->llc) : NULL;
	struct roost_task *task = task_of(p);

	if (!llc || !task)
		return;
	cpu->ran_before = p->se.sum_exec_runtime;
	if (task->queued_at)
		account_wait(task, cpu, llc, &cpu->n);
	account_migration(task, cpu_id, cpu, &cpu->n);
	adopt(p, task, llc, cpu->llc);
	if (before(llc->clock, p->scx.dsq_vtime))
		llc->clock = p->scx.dsq_vtime;
}

void ROOST_OPS(roost_stopping, struct task_struct *p, bool runnable)
{
	struct roost_cpu *cpu = cpu_at(scx_bpf_task_cpu(p));

	if (cpu)
		task_set_vtime(p, running_vtime(p, cpu));
}

void ROOST_OPS(roost_update_idle, s32 cpu_id, bool idle)
{
	struct roost_cpu *cpu = cpu_at(cpu_id);

	if (!cpu || cpu->llc == NONE)
		return;
	account_idle(cpu, idle);
	if (idle)
		mark_idle(cpu);
	else
		claim_cpu(cpu);
}

/* A realtime or deadline task has taken the CPU: what waits for it may run elsewhere. */
void ROOST_OPS(roost_cpu_release, s32 cpu_id, struct scx_cpu_release_args *args)
{
	struct roost_cpu *cpu = cpu_at(cpu_id);

	if (cpu)
		cpu->n.released++;
	reenqueue_local();
}

s32 ROOST_OPS(roost_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct roost_task *task = bpf_task_storage_get(&tasks, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!task)
		return -ENOMEM;
	task->llc = task->cpu = NONE;
	return 0;
}

s32 ROOST_OPS_SLEEPABLE(roost_init)
{
	int i, error = 0;

	bpf_for(i, 0, nr_llcs) {
		error = scx_bpf_create_dsq(i, -1);
		if (error)
			return error;
	}
	bpf_for(i, 0, nr_cpu_ids) {
		error = scx_bpf_create_dsq(CPU_QUEUE | i, -1);
		if (error)
			return error;
	}
	return start_watch();
}

void ROOST_OPS(roost_exit, struct scx_exit_info *info)
{
	bpf_probe_read_kernel_str(ended.reason, sizeof(ended.reason), info->reason);
	bpf_probe_read_kernel_str(ended.message, sizeof(ended.message), info->msg);
	ended.code = info->exit_code;
	__sync_lock_test_and_set(&ended.kind, info->kind);
}

SEC(".struct_ops.link")
struct sched_ext_ops roost_ops = {
	.select_cpu	= (void *)roost_select_cpu,
	.enqueue	= (void *)roost_enqueue,
	.dispatch	= (void *)roost_dispatch,
	.running	= (void *)roost_running,
	.stopping	= (void *)roost_stopping,
	.update_idle	= (void *)roost_update_idle,
	.cpu_release	= (void *)roost_cpu_release,
	.init_task	= (void *)roost_init_task,
	.init		= (void *)roost_init,
	.exit		= (void *)roost_exit,
	.timeout_ms	= 10000,
	.name		= "roost",
};
