// SPDX-License-Identifier: GPL-2.0-only
/*
 * roost as a sched_ext scheduler: it keeps threads near each other on machines with several LLCs and NUMA nodes
 *
 *     state.h     the machine, what runs on it, counters
 *     idle.h      which CPUs are idle; searching them (sis-util)
 *     weights.h   what weights are worth in cgroups
 *     limits.h    budgets of cgroups with a limit on CPU time
 *     sets.h      groups and processes: what their tasks did where
 *     home.h      where they settle and how tasks get there (cling, consolidate)
 *     place.h     where a task starts (llc-imbalance, numa-imbalance)
 *     together.h  CPUs whose slices end together
 *     queue.h     who runs next; taking tasks from elsewhere (llc-imbalance, cling, consolidate)
 *     gather.h    pulling running tasks (consolidate)
 *     even.h      weights between LLCs
 *     park.h      tasks that wait for their cgroup's budget
 *     watch.h     no wait without a bound; what changes slowly
 *     kernel.h    the kernel's interface and its versions
 *
 * The decisions of the mechanisms are functions of policy/include/roost, which the simulation uses too.
 *
 * The life of a task: when it wakes up, select_cpu looks for an idle CPU, and the task runs there (place.h). If there
 * is none, enqueue puts it in the queue of the LLC where it last ran. dispatch takes it from there, on a CPU of that
 * LLC, or on another CPU that has nothing to do (queue.h). The table at the end has every hook.
 * docs/understand/live.md tells the same with a drawing.
 */
#include "watch.h"

char _license[] SEC("license") = "GPL";

#define EXIT_TEXT 256

/*
 * Largest size of the kernel's dump of its queues. The loader sets it and reserves the memory, depending on the
 * number of CPUs.
 */
const volatile u32 dump_len = 1;
char dump[1] SEC(".data.dump");

/* Why the scheduler ended, for the loader. kind is written last. */
struct {
	u64 kind;
	s64 code;
	char reason[EXIT_TEXT];
	char message[EXIT_TEXT * 4];
} ended;

s32 ROOST_OPS(roost_select_cpu, struct task_struct *p, s32 prev, u64 wake_flags)
{
	struct roost_cpu *here = this_cpu();
	struct roost_task *task = task_of(p);
	u32 cpu = NONE;

	if (!here || !task)
		return prev;
	here->n.ttwu_count++;
	if (task->limit != NONE && admit(task, true) != NONE)
		return prev;
	if ((numa_imbalance || nr_nodes > 1) && wake_flags & WAKE_FORK)
		cpu = place_new(p, task, prev, &here->n);
	if (cpu == NONE)
		cpu = place_woken(p, task, prev, &here->n);
	if (cpu == NONE)
		return prev;
	here->n.direct++;
	dsq_insert(p, DSQ_LOCAL, slice_ns(), 0);
	return cpu;
}

/*
 * The time, for a task that is queued in an LLC of this CPU. On an idle CPU scx_bpf_now() can return a stale clock,
 * seconds old, to an interrupt that wakes tasks: another CPU took a task that last ran there, and left the clock marked
 * as valid (move_remote_task_to_local_dsq() unlocks the runqueue without unpinning it). It is never before the time
 * when the CPU last began to run something.
 */
static __always_inline u64 now_at(const struct roost_cpu *cpu)
{
	u64 now = scx_bpf_now();

	return before(now, cpu->started_at) ? cpu->started_at : now;
}

/*
 * A task waits from now on, in a queue with this clock. If it is reniced, or its affinity changes, it is queued again,
 * but its wait continues. If it has waited for too long, it goes to the front: the watch may never find it (watch.h).
 */
static __always_inline void begin_wait(struct task_struct *p, struct roost_task *task, u64 clock, u64 now)
{
	if (!task->queued_at)
		task->queued_at = now;
	else if (is_patient(task, now))
		task_set_vtime(p, clock - slice_ns());
}

/*
 * Queues a task that may use only one CPU. A kernel thread passes all queues when it wakes up, and then gets a
 * slice.
 */
static void enqueue_bound(struct task_struct *p, struct roost_task *task, u32 cpu_id,
			  struct roost_cpu *cpu, const struct roost_llc *llc, u64 flags, struct roost_counters *n)
{
	count_out(task);
	if (p->flags & PF_KTHREAD && flags & ENQ_WAKEUP) {
		n->kernel_threads++;
		dsq_insert(p, DSQ_LOCAL, slice_ns(), flags);
	} else if (!cpu->bound_waiting && claim_cpu(cpu)) {
		n->direct++;
		dsq_insert(p, DSQ_LOCAL, slice_ns(), flags);
	} else {
		n->bound++;
		keep_up(cpu, llc);
		rebase_vtime(p, task, CPU_QUEUE | cpu_id, cpu->clock, true);
		begin_wait(p, task, cpu->clock, now_at(cpu));
		cpu->bound_waiting = true;
		dsq_insert_vtime(p, CPU_QUEUE | cpu_id, slice_ns(), turn_of(p, task, cpu->clock, flags), flags);
	}
}

/* The LLC in whose queue a task waits: the one that it was sent to, or the one where it last ran. */
static __always_inline u32 queue_for(struct roost_task *task, const struct roost_cpu *cpu)
{
	u32 go = task->go;

	task->go = NONE;
	return go == NONE ? cpu->llc : go;
}

/* Puts a task into the queue of an LLC. The task last ran on `cpu`. */
static __always_inline void enqueue_in(struct task_struct *p, struct roost_task *task,
				       const struct roost_cpu *cpu, u32 id, u64 flags)
{
	struct roost_llc *llc = llc_at(id);
	u64 now = now_at(cpu);

	if (!llc)
		return;
	rebase_vtime(p, task, id, llc->clock, true);
	begin_wait(p, task, llc->clock, now);
	/* First, so that the queue does not count as empty meanwhile if this task is the only one that waited there. */
	add_to_backlog(task, llc, id, now);
	count_out(task);
	task->waits_in = id;
	dsq_insert_vtime(p, id, slice_ns(), turn_of(p, task, llc->clock, flags), flags);
}

/*
 * A task has called exec. sched_ext does not ask where it should go; the comment in select_task_rq_scx()
 * suggests to let a task preempt itself instead. So if the task should go elsewhere, its slice ends here.
 */
ROOST_TRACE(roost_exec, sched_process_exec, struct task_struct *p, int old_pid, void *bprm)
{
	u32 cpu_id = bpf_get_smp_processor_id(), to;
	struct roost_task *task = task_of(p);

	if (!task || !numa_imbalance || nr_nodes == 1)
		return 0;
	to = exec_llc(p, cpu_id);
	if (to == NONE)
		return 0;
	task->exec_to = to;
	scx_bpf_kick_cpu(cpu_id, KICK_PREEMPT);
	return 0;
}

/*
 * Whether a task was woken while its CPU was still switching away from it. Then the CPU is not chosen anew (queued
 * wakeups, try_to_wake_up() in kernel/sched/core.c).
 */
static __always_inline bool woken_while_leaving(u64 flags)
{
	return flags & ENQ_WAKEUP && !(flags & ENQ_CPU_SELECTED);
}

void ROOST_OPS(roost_enqueue, struct task_struct *p, u64 flags)
{
	u32 cpu_id = scx_bpf_task_cpu(p), id;
	struct roost_cpu *cpu = cpu_at(cpu_id), *here = this_cpu();
	struct roost_llc *llc = cpu ? llc_at(cpu->llc) : NULL;
	struct roost_task *task = task_of(p);
	bool sent;
	u64 least;

	if (!cpu || !here || !llc || !task) {
		dsq_insert(p, DSQ_LOCAL, slice_ns(), flags);
		return;
	}
	if (task->limit != NONE && park(p, task, flags, &here->n))
		return;
	/* The first access to the task's second line is a write: a line that is read before is transferred twice. */
	task->exec_to = NONE;
	sent = task->go != NONE;
	id = queue_for(task, cpu);
	if (is_bound(p)) {
		enqueue_bound(p, task, cpu_id, cpu, llc, flags, &here->n);
		return;
	}
	if (woken_while_leaving(flags)) {
		here->n.ttwu_count++;
		if (!sent && claim_cpu(cpu)) {
			here->n.direct++;
			dsq_insert(p, DSQ_LOCAL, slice_ns(), flags);
			return;
		}
	}
	here->n.queued++;
	enqueue_in(p, task, cpu, id, flags);
	/* Not after a search for an idle CPU that found none, unless a second look is worthwhile. */
	if (!(flags & ENQ_CPU_SELECTED)) {
		if (sent)
			claim_and_kick(p, id);
		else
			kick_llc(p, id);
		return;
	}
	if (leaves_at_once(p, task)) {
		call_for(p, task, id, llc->node);
		return;
	}
	least = preempt_us ? due_after(task) : 0;
	if (least)
		preempt(p, cpu_id, task->queued_at, least);
}

/*
 * The slice of a running task is over. Returns whether it stays on its node. A task that is alone never stops.
 */
static __always_inline bool slice_over(struct task_struct *p, struct roost_cpu *cpu, u32 cpu_id)
{
	struct roost_task *task = task_of(p);

	if (!task)
		return true;
	charge(p, task, cpu);
	if (task->limit != NONE && !has_turn(task, cpu_id))
		return false;
	cpu->process = task->process;
	if (nr_nodes == 1 || is_bound(p) || stays_put(p))
		return true;
	task->go = leaves_for(p, task, cpu);
	return task->go == NONE;
}

/*
 * A CPU becomes idle. Its queue was not locked while it looked for tasks elsewhere, so a task that may run only
 * here may have come. Then the CPU looks again.
 */
static __always_inline void becomes_idle(const struct roost_cpu *cpu, s32 cpu_id)
{
	mark_idle(cpu);
	if (cpu->bound_waiting)
		scx_bpf_kick_cpu(cpu_id, 0);
}

void ROOST_OPS(roost_dispatch, s32 cpu_id, struct task_struct *prev)
{
	struct roost_cpu *cpu = cpu_at(cpu_id);
	struct roost_llc *llc = cpu ? llc_at(cpu->llc) : NULL;
	bool realtime = !prev && realtime_on(cpu_id);
	bool runs_on, stays;

	if (!llc)
		return;
	begin_watch(llc, cpu->llc);
	begin_choice(llc, cpu);
	cpu->looks = 0;
	/*
	 * The CPU is not idle while it looks. Otherwise a task that woke up would have to wait behind the task
	 * that it finds.
	 */
	if (!prev)
		claim_cpu(cpu);
	if (realtime && asked_before_realtime()) {
		/* The CPU may have been woken to help. */
		if (llc->waiting)
			help_waiting(cpu->llc, 0);
		return;
	}
	runs_on = prev && prev->scx.flags & TASK_QUEUED;
	stays = runs_on && slice_over(prev, cpu, cpu_id);
	if (stays) {
		if (!next_turn(prev, cpu, llc, cpu_id))
			extend_slice(prev, cpu, llc);
		return;
	}
	if (consume(cpu, llc, cpu_id, false) || steal(cpu_id, cpu))
		return;
	/* The CPU was idle before and stays idle: a claim that led to nothing is taken back. */
	if (!prev && !realtime)
		becomes_idle(cpu, cpu_id);
}

/* Other CPUs read this at each wakeup, so it is written only if it changes. */
static __always_inline void set_brief(struct roost_cpu *cpu, bool brief)
{
	if (cpu->brief != brief)
		cpu->brief = brief;
}

void ROOST_OPS(roost_running, struct task_struct *p)
{
	u32 cpu_id = scx_bpf_task_cpu(p);
	struct roost_cpu *cpu = cpu_at(cpu_id);
	struct roost_llc *llc = cpu ? llc_at(cpu->llc) : NULL;
	struct roost_task *task = task_of(p);
	bool bound;

	if (!llc || !task)
		return;
	/* The first access to the task's second line, as in enqueue. */
	task->go = NONE;
	cpu->ran_before = p->se.sum_exec_runtime;
	cpu->started_at = scx_bpf_now();
	cpu->weight = weight_of(p, task);
	cpu->process = task->process;
	set_brief(cpu, burst_of(task) < MIGRATION_NS);
	if (task->queued_at)
		account_wait(task, cpu, llc, cpu->started_at, &cpu->n);
	account_migration(task, cpu_id, cpu, &cpu->n);
	bound = is_bound(p);
	keep_up(cpu, llc);
	if (!bound)
		cpu->competes = true;
	rebase_vtime(p, task, bound ? CPU_QUEUE | cpu_id : cpu->llc, bound ? cpu->clock : llc->clock, false);
	move_clock(bound ? &cpu->clock : &llc->clock, p->scx.dsq_vtime);
	cpu->vtime = p->scx.dsq_vtime - (bound ? cpu->ahead : 0);
	charge_owed(p, task);
	/* The kernel has queued the previous task. */
	end_leaving(llc, cpu);
	if (task->limit != NONE)
		check_budget(task, cpu_id);
}

void ROOST_OPS(roost_stopping, struct task_struct *p, bool runnable)
{
	struct roost_cpu *cpu = cpu_at(scx_bpf_task_cpu(p));
	struct roost_task *task = task_of(p);

	if (!cpu || !task)
		return;
	charge(p, task, cpu);
	if (task->limit != NONE)
		stop_turn(scx_bpf_task_cpu(p));
	if (runnable)
		return;
	give_back(task);
	if (p->__state)
		end_burst(task);
	else
		/*
		 * The task is reniced, or changes its affinity or class. If it continues here, it will be
		 * switched in again.
		 */
		cpu->started_at = 0;
}

void ROOST_OPS(roost_update_idle, s32 cpu_id, bool idle)
{
	struct roost_cpu *cpu = cpu_at(cpu_id);

	if (!cpu || cpu->llc == NONE)
		return;
	account_idle(cpu, idle);
	if (idle) {
		set_brief(cpu, false);
		cpu->process = cpu->pull_to = NONE;
		becomes_idle(cpu, cpu_id);
	} else {
		/* The kernel does not say for which task the CPU becomes busy. */
		cpu->started_at = 0;
		claim_cpu(cpu);
	}
}

/* A realtime or deadline task has taken the CPU. Tasks that wait for this CPU may run elsewhere. */
void ROOST_OPS(roost_cpu_release, s32 cpu_id, struct scx_cpu_release_args *args)
{
	struct roost_cpu *cpu = cpu_at(cpu_id);
	struct roost_llc *llc = cpu ? llc_at(cpu->llc) : NULL;

	if (llc) {
		cpu->n.released++;
		cpu->started_at = 0;
		set_brief(cpu, false);
		end_leaving(llc, cpu);
	}
	reenqueue_local();
}

/*
 * If possible, CPUs come and go without a restart: on a fully busy machine, Linux 6.16 needs minutes to unload
 * a scheduler and load it again (docs/live-results.md).
 */
static void start_again(s32 cpu_id, char *format)
{
	unsigned long long number = cpu_id;

	scx_bpf_exit_bstr(ACT_RESTART, format, &number, sizeof(number));
}

/* Without CPUs, an LLC's queue would be served by nobody. */
void ROOST_OPS(roost_cpu_offline, s32 cpu_id)
{
	static char last_goes[] = "CPU %llu, the last of its LLC, goes offline";
	struct roost_cpu *cpu = cpu_at(cpu_id);
	struct roost_llc *llc = cpu ? llc_at(cpu->llc) : NULL;

	if (!llc)
		return;
	set_online(cpu, llc, false);
	drain_queue(cpu_id, cpu->llc, CPU_QUEUE | cpu_id);
	drain_queue(cpu_id, cpu->llc, cpu->llc);
	drain_parked(cpu_id);
	if (!llc->nr_cpus)
		start_again(cpu_id, last_goes);
}

/* A CPU that did not exist when the scheduler was loaded has no place. */
void ROOST_OPS(roost_cpu_online, s32 cpu_id)
{
	static char is_new[] = "CPU %llu is new";
	struct roost_cpu *cpu = cpu_at(cpu_id);
	struct roost_llc *llc = cpu ? llc_at(cpu->llc) : NULL;

	if (llc)
		set_online(cpu, llc, true);
	else
		start_again(cpu_id, is_new);
}

/* A task is in a cgroup from now on. Tasks of an unknown cgroup compete at the root. */
static __always_inline void join_cgroup(struct task_struct *p, struct roost_task *task, u64 id)
{
	task->share = cgroup_weights || cgroup_limits ? find_share(id) : NONE;
	task->factor = cgroup_weights ? factor_in(task->share, p->scx.weight ?: 100) : FACTOR;
	follow_limit(task);
}

s32 ROOST_OPS_SLEEPABLE(roost_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct roost_task *task = bpf_task_storage_get(&tasks, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!task)
		return -ENOMEM;
	task->queue = task->cpu = task->group = task->process = NONE;
	task->go = task->exec_to = task->waits_in = NONE;
	/* Nobody knows yet whether it runs for long. */
	task->burst = slice_ns() < LONG_NS ? slice_ns() : LONG_NS - 1;
	task->limit = NONE;
	/* This hook may wait for memory. When an affinity is set later, memory must be free at once. */
	if (p->nr_cpus_allowed < nr_possible)
		bpf_task_storage_get(&affinities, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	join_cgroup(p, task, args->cgroup->kn->id);
	return 0;
}

/* A task enters this class. */
void ROOST_OPS(roost_enable, struct task_struct *p)
{
	note_affinity(p);
}

void ROOST_OPS(roost_set_cpumask, struct task_struct *p, const struct cpumask *cpus)
{
	note_affinity(p);
}

/* A task ends or leaves this class, possibly while it is queued. */
void ROOST_OPS(roost_disable, struct task_struct *p)
{
	struct roost_task *task = task_of(p);

	if (task) {
		count_out(task);
		give_back(task);
		task->queued_at = task->owed = 0;
	}
	/* The last thread of a process has ended. */
	if (!p->signal->live.counter)
		end_set(PROCESS_ID | (u32)p->tgid);
}

/* cgroups with the cpu controller: parents come before their children. */
s32 ROOST_OPS_SLEEPABLE(roost_cgroup_init, struct cgroup *cgroup, struct scx_cgroup_init_args *args)
{
	struct roost_cpu *here;
	u32 index;

	if (!(cgroup_weights || cgroup_limits) || !cgroup->level)
		return 0;
	index = add_share(cgroup->kn->id, cgroup->self.parent->cgroup->kn->id, args->weight);
	here = this_cpu();
	if (here && index == NONE) {
		here->n.cgroups_full++;
		count_full(CGROUPS_FULL);
	}
	if (!cgroup_limits)
		return 0;
	make_limit(index);
	if (has_limits())
		set_limit_us(index, args->bw_period_us, args->bw_quota_us, args->bw_burst_us);
	return 0;
}

void ROOST_OPS_SLEEPABLE(roost_cgroup_exit, struct cgroup *cgroup)
{
	u32 index = find_share(cgroup->kn->id);

	if (cgroup_limits)
		set_limit(index, 0, 0, 0);
	remove_share(cgroup->kn->id);
	end_set(cgroup->kn->id);
}

/* cpu.max or cpu.max.burst was written. From 6.17 on. */
void ROOST_OPS(roost_cgroup_set_bandwidth, struct cgroup *cgroup, u64 period_us, u64 quota_us, u64 burst_us)
{
	set_limit_us(find_share(cgroup->kn->id), period_us, quota_us, burst_us);
}

void ROOST_OPS(roost_cgroup_move, struct task_struct *p, struct cgroup *from, struct cgroup *to)
{
	struct roost_task *task = task_of(p);

	if (task)
		join_cgroup(p, task, to->kn->id);
}

void ROOST_OPS(roost_cgroup_set_weight, struct cgroup *cgroup, u32 weight)
{
	struct roost_share *share = share_at(find_share(cgroup->kn->id));

	if (share)
		share->weight = weight;
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
	error = start_turns();
	return error ?: start_watch();
}

void ROOST_OPS(roost_exit, struct scx_exit_info *info)
{
	bpf_probe_read_kernel_str(ended.reason, sizeof(ended.reason), info->reason);
	bpf_probe_read_kernel_str(ended.message, sizeof(ended.message), info->msg);
	bpf_probe_read_kernel_str(dump, dump_len, info->dump);
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
	.cpu_offline	= (void *)roost_cpu_offline,
	.cpu_online	= (void *)roost_cpu_online,
	.init_task	= (void *)roost_init_task,
	.enable		= (void *)roost_enable,
	.set_cpumask	= (void *)roost_set_cpumask,
	.disable	= (void *)roost_disable,
	.cgroup_init	= (void *)roost_cgroup_init,
	.cgroup_exit	= (void *)roost_cgroup_exit,
	.cgroup_move	= (void *)roost_cgroup_move,
	.cgroup_set_weight = (void *)roost_cgroup_set_weight,
	.cgroup_set_bandwidth = (void *)roost_cgroup_set_bandwidth,
	.init		= (void *)roost_init,
	.exit		= (void *)roost_exit,
	/* Queued wakeups came with Linux 6.15. On older kernels the loader takes that flag away. */
	.flags		= SCX_OPS_ENQ_LAST | SCX_OPS_ENQ_EXITING | SCX_OPS_ALLOW_QUEUED_WAKEUP,
	.name		= "roost",
};
