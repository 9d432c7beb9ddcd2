/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the scheduler uses of the kernel's sched_ext interface, and where kernels differ
 *
 * A function that changed is declared once for each form that it had, always weak. libbpf binds the form that the
 * running kernel has (it ignores what follows three underscores in the name), and the verifier removes calls to
 * the others. So the scheduler loads from 6.12 on, the first kernel with sched_ext. 6.12 has other names for the
 * functions that move tasks (they are gone in 6.18), and no clock of its own.
 */
#ifndef ROOST_KERNEL_H
#define ROOST_KERNEL_H

#define BPF_NO_KFUNC_PROTOTYPES
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define ROOST_OPS(name, args...) SEC("struct_ops/" #name) BPF_PROG(name, ##args)
#define ROOST_OPS_SLEEPABLE(name, args...) SEC("struct_ops.s/" #name) BPF_PROG(name, ##args)

#define ROOST_TRACE(name, event, args...) SEC("tp_btf/" #event) int BPF_PROG(name, ##args)

/*
 * Whether a loop goes on: the instruction may_goto (6.9), which shows the verifier that every loop ends. It is
 * written as bytes, because not every clang has a name for it.
 */
#define may_go_on						\
	({							\
		__label__ ends, goes_on;			\
		bool goes = true;				\
								\
		asm volatile goto("1: .byte 0xe5, 0;"		\
				  ".long ((%l[ends] - 1b - 8) / 8) & 0xffff;" \
				  ".short 0" :::: ends);	\
		goto goes_on;					\
	ends:	goes = false;					\
	goes_on: goes;						\
	})

/* Like bpf_for, but without a call into the kernel in each turn. For work at every wakeup or switch. */
#define each(i, from, to) for (i = (from); i < (int)(to) && may_go_on; i++)

#define ENOMEM 12
#define EINVAL 22
#define CLOCK_MONOTONIC 1
#define PF_EXITING 0x00000004
#define PF_KTHREAD 0x00200000

/* Values as the running kernel has them. */
#define WAKE_FORK bpf_core_enum_value(enum scx_wake_flags, SCX_WAKE_FORK)
#define ENQ_CPU_SELECTED bpf_core_enum_value(enum scx_enq_flags, SCX_ENQ_CPU_SELECTED)
#define ENQ_HEAD bpf_core_enum_value(enum scx_enq_flags, SCX_ENQ_HEAD)
#define KICK_IDLE bpf_core_enum_value(enum scx_kick_flags, SCX_KICK_IDLE)
#define DSQ_LOCAL bpf_core_enum_value(enum scx_dsq_id_flags, SCX_DSQ_LOCAL)
#define DSQ_LOCAL_ON bpf_core_enum_value(enum scx_dsq_id_flags, SCX_DSQ_LOCAL_ON)
#define ITER_REVERSE bpf_core_enum_value(enum scx_dsq_iter_flags, SCX_DSQ_ITER_REV)
#define KICK_PREEMPT bpf_core_enum_value(enum scx_kick_flags, SCX_KICK_PREEMPT)
#define ENQ_WAKEUP bpf_core_enum_value(enum scx_enq_flags, SCX_ENQ_WAKEUP)
#define ENQ_REENQ bpf_core_enum_value(enum scx_enq_flags, SCX_ENQ_REENQ)
#define TASK_QUEUED bpf_core_enum_value(enum scx_ent_flags, SCX_TASK_QUEUED)

#define ACT_RESTART bpf_core_enum_value(enum scx_exit_code, SCX_ECODE_ACT_RESTART)

s32 scx_bpf_create_dsq(u64 dsq_id, s32 node) __ksym;
s32 scx_bpf_dsq_nr_queued(u64 dsq_id) __ksym;
void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym;
void scx_bpf_exit_bstr(s64 code, char *format, unsigned long long *data, u32 data__sz) __ksym;
s32 scx_bpf_task_cpu(const struct task_struct *p) __ksym;
void bpf_rcu_read_lock(void) __ksym;
void bpf_rcu_read_unlock(void) __ksym;
bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *cpumask) __ksym;

int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq_id, u64 flags) __ksym;
struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it) __ksym;
void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it) __ksym;

/* 6.14: a clock that is read once for all hooks of a switch. */
u64 scx_bpf_now___new(void) __ksym __weak;

static __always_inline u64 scx_bpf_now(void)
{
	return bpf_ksym_exists(scx_bpf_now___new) ? scx_bpf_now___new() : bpf_ktime_get_ns();
}

/* 6.13: clearer names for what is moved where. */
bool scx_bpf_dsq_move___new(struct bpf_iter_scx_dsq *it__iter, struct task_struct *p, u64 dsq_id,
			    u64 enq_flags) __ksym __weak;
bool scx_bpf_dispatch_from_dsq(struct bpf_iter_scx_dsq *it__iter, struct task_struct *p, u64 dsq_id,
			       u64 enq_flags) __ksym __weak;

static __always_inline bool dsq_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move___new))
		return scx_bpf_dsq_move___new(it, p, dsq_id, 0);
	return scx_bpf_dispatch_from_dsq(it, p, dsq_id, 0);
}

bool scx_bpf_dsq_move_vtime___new(struct bpf_iter_scx_dsq *it__iter, struct task_struct *p, u64 dsq_id,
				  u64 enq_flags) __ksym __weak;
void scx_bpf_dsq_move_set_vtime___new(struct bpf_iter_scx_dsq *it__iter, u64 vtime) __ksym __weak;
bool scx_bpf_dispatch_vtime_from_dsq(struct bpf_iter_scx_dsq *it__iter, struct task_struct *p,
				     u64 dsq_id, u64 enq_flags) __ksym __weak;
void scx_bpf_dispatch_from_dsq_set_vtime(struct bpf_iter_scx_dsq *it__iter, u64 vtime) __ksym __weak;

static __always_inline bool dsq_move_vtime(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id,
					   u64 vtime)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move_vtime___new)) {
		scx_bpf_dsq_move_set_vtime___new(it, vtime);
		return scx_bpf_dsq_move_vtime___new(it, p, dsq_id, 0);
	}
	scx_bpf_dispatch_from_dsq_set_vtime(it, vtime);
	return scx_bpf_dispatch_vtime_from_dsq(it, p, dsq_id, 0);
}

/* 6.13: another name; 6.19: returns whether it inserted. */
bool scx_bpf_dsq_insert___v2___new(struct task_struct *p, u64 dsq_id, u64 slice,
				   u64 enq_flags) __ksym __weak;
void scx_bpf_dsq_insert___v1(struct task_struct *p, u64 dsq_id, u64 slice,
			     u64 enq_flags) __ksym __weak;
void scx_bpf_dispatch(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym __weak;

static __always_inline void dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags)
{
	if (bpf_ksym_exists(scx_bpf_dsq_insert___v2___new))
		scx_bpf_dsq_insert___v2___new(p, dsq_id, slice, enq_flags);
	else if (bpf_ksym_exists(scx_bpf_dsq_insert___v1))
		scx_bpf_dsq_insert___v1(p, dsq_id, slice, enq_flags);
	else
		scx_bpf_dispatch(p, dsq_id, slice, enq_flags);
}

/* 6.13: another name; 6.19: arguments in a structure. */
bool __scx_bpf_dsq_insert_vtime(struct task_struct *p,
				struct scx_bpf_dsq_insert_vtime_args *args) __ksym __weak;
void scx_bpf_dsq_insert_vtime___v1(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime,
				   u64 enq_flags) __ksym __weak;
void scx_bpf_dispatch_vtime(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime,
			    u64 enq_flags) __ksym __weak;

static __always_inline void dsq_insert_vtime(struct task_struct *p, u64 dsq_id, u64 slice,
					     u64 vtime, u64 enq_flags)
{
	if (bpf_core_type_exists(struct scx_bpf_dsq_insert_vtime_args)) {
		struct scx_bpf_dsq_insert_vtime_args args = {
			.dsq_id = dsq_id,
			.slice = slice,
			.vtime = vtime,
			.enq_flags = enq_flags,
		};

		__scx_bpf_dsq_insert_vtime(p, &args);
	} else if (bpf_ksym_exists(scx_bpf_dsq_insert_vtime___v1)) {
		scx_bpf_dsq_insert_vtime___v1(p, dsq_id, slice, vtime, enq_flags);
	} else {
		scx_bpf_dispatch_vtime(p, dsq_id, slice, vtime, enq_flags);
	}
}

/* 6.13: another name; 7.1: flags. */
bool scx_bpf_dsq_move_to_local___v2___new(u64 dsq_id, u64 enq_flags) __ksym __weak;
bool scx_bpf_dsq_move_to_local___v1(u64 dsq_id) __ksym __weak;
bool scx_bpf_consume(u64 dsq_id) __ksym __weak;

static __always_inline bool dsq_move_to_local(u64 dsq_id)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move_to_local___v2___new))
		return scx_bpf_dsq_move_to_local___v2___new(dsq_id, 0);
	if (bpf_ksym_exists(scx_bpf_dsq_move_to_local___v1))
		return scx_bpf_dsq_move_to_local___v1(dsq_id);
	return scx_bpf_consume(dsq_id);
}

/* 64 CPUs of a task's affinity, from CPU 64 * index on. */
static __always_inline u64 affinity_bits(const struct task_struct *p, u32 index)
{
	u64 bits = 0;

	bpf_probe_read_kernel(&bits, sizeof(bits), (void *)((u64)p->cpus_ptr + index * sizeof(bits)));
	return bits;
}

extern int LINUX_KERNEL_VERSION __kconfig;

/*
 * Whether a BPF program keeps the task that it interrupts on its CPU, by migrate_disable(). This is so if the
 * kernel's RCU is not preemptible, and before 6.18 (rcu_read_lock_dont_migrate()).
 */
static __always_inline bool program_keeps_put(const struct task_struct *p)
{
	return bpf_core_field_exists(p->rcu_read_lock_nesting) || LINUX_KERNEL_VERSION < KERNEL_VERSION(6, 18, 0);
}

/* The limit of a cgroup that has none (RUNTIME_INF). */
#define NO_QUOTA (~0ull)

/* 6.17: the kernel reports limits on CPU time (ops.cgroup_set_bandwidth, and arguments of ops.cgroup_init). */
static __always_inline bool has_limits(void)
{
	return bpf_core_field_exists(struct scx_cgroup_init_args, bw_quota_us);
}

/* A limit as the fair class keeps it, in ns, and the group above. All 0 if there is no such group. */
struct roost_bandwidth {
	u64 period;
	u64 quota;
	u64 burst;
	u64 parent;
};

static __always_inline struct roost_bandwidth fair_bandwidth(u64 address)
{
	const struct task_group *group = (const struct task_group *)address;
	struct roost_bandwidth bandwidth = { .parent = (u64)BPF_CORE_READ(group, parent) };

	if (!bpf_core_field_exists(group->cfs_bandwidth))
		return bandwidth;
	bandwidth.period = BPF_CORE_READ(group, cfs_bandwidth.period);
	bandwidth.quota = BPF_CORE_READ(group, cfs_bandwidth.quota);
	bandwidth.burst = BPF_CORE_READ(group, cfs_bandwidth.burst);
	return bandwidth;
}

extern const struct rq runqueues __ksym;

/*
 * Whether a CPU is about to go offline: the kernel pushes tasks away from it (balance_push_set() in
 * sched_cpu_deactivate()). The realtime and deadline classes also set this for a moment.
 */
static __always_inline bool is_leaving(u32 cpu)
{
	const struct rq *rq = bpf_per_cpu_ptr(&runqueues, cpu);

	return rq && rq->balance_callback;
}

/*
 * Whether a server, which lets other classes run, is queued among a CPU's deadline tasks (RB_EMPTY_NODE() if
 * not).
 */
static __always_inline bool is_queued(const struct sched_dl_entity *server)
{
	return server->rb_node.__rb_parent_color != (u64)&server->rb_node;
}

/*
 * Number of deadline tasks of a CPU, without servers: that of the fair class and, from 7.0 on, that of
 * sched_ext.
 */
static __always_inline s64 deadline_tasks(const struct rq *rq)
{
	s64 n = rq->dl.dl_nr_running;

	if (bpf_core_field_exists(rq->fair_server))
		n -= is_queued(&rq->fair_server);
	if (bpf_core_field_exists(rq->ext_server))
		n -= is_queued(&rq->ext_server);
	return n;
}

/* Whether a realtime or deadline task runs on a CPU or will run next. */
static __always_inline bool realtime_on(u32 cpu)
{
	const struct rq *rq = bpf_per_cpu_ptr(&runqueues, cpu);

	return rq && (rq->rt.rt_queued || deadline_tasks(rq) > 0);
}

/*
 * Whether the kernel asks sched_ext for a task although a realtime task will run next (prev_balance(), until
 * 6.18). This happens when an idle CPU wakes up for a realtime task; cpu_release reports only realtime tasks
 * that preempt a task of sched_ext. If sched_ext has a server (7.0), it may really be its turn.
 */
static __always_inline bool asked_before_realtime(void)
{
	return !bpf_core_field_exists(runqueues.ext_server);
}

/* 6.19: a function replaces a plain store. */
bool scx_bpf_task_set_slice___new(struct task_struct *p, u64 slice) __ksym __weak;
bool scx_bpf_task_set_dsq_vtime___new(struct task_struct *p, u64 vtime) __ksym __weak;

static __always_inline void task_set_slice(struct task_struct *p, u64 slice)
{
	if (bpf_ksym_exists(scx_bpf_task_set_slice___new))
		scx_bpf_task_set_slice___new(p, slice);
	else
		p->scx.slice = slice;
}

static __always_inline void task_set_vtime(struct task_struct *p, u64 vtime)
{
	if (bpf_ksym_exists(scx_bpf_task_set_dsq_vtime___new))
		scx_bpf_task_set_dsq_vtime___new(p, vtime);
	else
		p->scx.dsq_vtime = vtime;
}

/* 6.19: can be called from anywhere; 7.1: one function for every queue. */
void scx_bpf_dsq_reenq___new(u64 dsq_id, u64 reenq_flags) __ksym __weak;
void scx_bpf_reenqueue_local___v2___new(void) __ksym __weak;
u32 scx_bpf_reenqueue_local___v1(void) __ksym __weak;

static __always_inline void reenqueue_local(void)
{
	if (bpf_ksym_exists(scx_bpf_dsq_reenq___new))
		scx_bpf_dsq_reenq___new(DSQ_LOCAL, 0);
	else if (bpf_ksym_exists(scx_bpf_reenqueue_local___v2___new))
		scx_bpf_reenqueue_local___v2___new();
	else
		scx_bpf_reenqueue_local___v1();
}

#endif
