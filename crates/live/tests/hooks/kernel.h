/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Replaces bpf/kernel.h in user space: the part of the kernel that the hooks in bpf/ use
 *
 * Tasks, queues, maps and the functions of sched_ext, for one thread and at most 512 CPUs. This file is used in
 * place of bpf/kernel.h because it defines the same include guard. hooks.c calls the hooks as the kernel does.
 *
 * It counts what a call of a hook would cost on a large machine: struct cost.
 */
#ifndef ROOST_KERNEL_H
#define ROOST_KERNEL_H
#define __VMLINUX_H__

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;
typedef int64_t s64;

#define SEC(name)
#define __noinline
#define __always_inline inline
#define __arg_trusted
#define __uint(name, value) int (*name)[value]
#define __type(name, type) type *name
#define bpf_for(i, from, to) for (i = (from); i < (int)(to); i++)
#define each bpf_for
#define may_go_on true
#define ROOST_OPS(name, ...) name(__VA_ARGS__)
#define ROOST_OPS_SLEEPABLE(name, ...) name(__VA_ARGS__)
#define ROOST_TRACE(name, event, ...) int name(__VA_ARGS__)

enum { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_TASK_STORAGE = 29 };
enum { BPF_ANY = 0, BPF_NOEXIST = 1, BPF_LOCAL_STORAGE_GET_F_CREATE = 1 };
enum { BPF_F_NO_PREALLOC = 1, BPF_F_MMAPABLE = 1 << 10 };
enum { ENOMEM = 12, EINVAL = 22, CLOCK_MONOTONIC = 1, BPF_F_TIMER_CPU_PIN = 2, PF_EXITING = 4, PF_KTHREAD = 0x200000 };
enum { WAKE_FORK = 4, ENQ_WAKEUP = 1, ENQ_CPU_SELECTED = 8, ENQ_LAST = 16, ENQ_REENQ = 32 };
enum { SCX_OPS_ENQ_LAST = 2, SCX_OPS_ENQ_EXITING = 4 };
enum { ACT_RESTART = 1 };
enum { KICK_IDLE = 1, KICK_PREEMPT = 2, ITER_REVERSE = 1, TASK_QUEUED = 1 };
#define DSQ_LOCAL (2ull << 62)
#define DSQ_LOCAL_ON (3ull << 62)

#define MOST 512		/* CPUs, LLCs, cgroups */

struct cpumask { u64 bits[MOST / 64]; };
struct kernfs_node { u64 id; };
struct cgroup_subsys_state { struct cgroup *cgroup; struct cgroup_subsys_state *parent; };
struct cgroup { int level; struct kernfs_node *kn; struct cgroup_subsys_state self; };
struct css_set { struct cgroup *dfl_cgrp; };
struct signal_struct { int nr_threads; struct { int counter; } live; };

struct task_struct {
	int nr_cpus_allowed, pid, tgid, migration_disabled, rcu_read_lock_nesting, __state;
	struct task_struct *group_leader;
	u64 start_boottime;
	struct cpumask *cpus_ptr;
	u32 flags;
	struct { u64 slice, dsq_vtime; u32 weight, flags; } scx;
	struct { u64 sum_exec_runtime; } se;
	struct css_set *cgroups;
	u64 sched_task_group;
	struct signal_struct *signal;
	/* Fields of this replacement only. */
	struct roost_task *storage;
	struct roost_affinity *affinity;
	struct task_struct *next;	/* in its queue */
	u64 queue;			/* that it is in */
	int cpu;
	bool runnable, woken;
	u64 burst_ns, sleep_ns;		/* lengths of its bursts and sleeps; 0: never sleeps */
	u64 left_ns, wakes_at, woken_at;
	u64 ran_on[MOST];		/* ns on each CPU */
};

struct scx_init_task_args { struct cgroup *cgroup; };
struct scx_cgroup_init_args { u32 weight; u64 bw_period_us, bw_quota_us, bw_burst_us; };
struct scx_cpu_release_args { int unused; };
struct scx_exit_info { char *reason, *msg, *dump; u64 kind; s64 exit_code; };
struct bpf_timer { u64 at; };	/* when it fires; 0: never */

struct sched_ext_ops {
	void *select_cpu, *enqueue, *dispatch, *running, *stopping, *update_idle, *cpu_release;
	void *cpu_offline, *cpu_online, *init_task, *enable, *set_cpumask, *disable;
	void *cgroup_init, *cgroup_exit, *cgroup_move, *cgroup_set_weight, *cgroup_set_bandwidth;
	void *init, *exit;
	u64 flags;
	u32 timeout_ms;
	char *name;
};

/* The kernel's state of a CPU. */
struct cpu {
	struct task_struct *curr, *local;
	bool idle, kicked, preempt, offline;
	bool leaving;		/* sched_cpu_deactivate() has begun: the scheduler is not asked for it */
	bool realtime;		/* a realtime task wants it */
	bool busy;		/* a realtime task runs on it */
	u64 since;		/* time up to which it is accounted */
	u64 idle_ns;
	u64 ticks;		/* number of its last tick */
};

/*
 * Costs that are counted in a call of a hook: entries of maps that other CPUs write (each once per call);
 * look-ups in maps; tasks that an iterator visits, each of which takes the queue's lock; tests of an affinity;
 * cache lines transferred from other CPUs.
 */
enum { ENTRIES, LOOKUPS, STEPS, MASKS, LINES, KINDS };

struct cost { u64 calls, sum[KINDS], most[KINDS]; };

static u64 counted_now[KINDS], nr_calls;

/* Cache lines that calls transfer (lines.c). */
extern int lines_cpu;
extern u64 lines_call, lines_moved;
void follow_lines(void *from, u64 size);

static u64 now_ns = 1000000000;
static u32 here;			/* the CPU that calls the hook */
static struct task_struct *current;
static struct cpu cpu[MOST];
static struct task_struct *llc_queue[MOST], *cpu_queue[MOST], *limit_queue[MOST];
static int local_of = -1;		/* the CPU whose local queue DSQ_LOCAL is; -1: not known yet */
static bool inserted;
static bool exited;			/* the scheduler called scx_bpf_exit() */

static u64 scx_bpf_now(void) { return now_ns; }
static u64 bpf_ktime_get_ns(void) { return now_ns; }
static u32 bpf_get_smp_processor_id(void) { return here; }
static struct task_struct *bpf_get_current_task_btf(void) { return current; }
#define bpf_core_field_exists(field) true
#define BPF_CORE_READ(p, field) ((p)->field)
#define NO_QUOTA (~0ull)

struct roost_bandwidth { u64 period, quota, burst, parent; };

/*
 * Whether the kernel tells the scheduler about limits. If not, the scheduler reads them from the fair class, by
 * group.
 */
static bool told = true;
static struct roost_bandwidth fair_bandwidths[MOST];

static bool tells_limits(void) { return told; }
static struct roost_bandwidth fair_bandwidth(u64 group) { return fair_bandwidths[group]; }

/* BPF programs interrupt a task. They keep the task on its CPU and are RCU readers. */
static void interrupt(struct task_struct *p)
{
	if (current) {
		current->migration_disabled--;
		current->rcu_read_lock_nesting--;
	}
	current = p;
	if (current) {
		current->migration_disabled++;
		current->rcu_read_lock_nesting++;
	}
}
static s32 scx_bpf_task_cpu(const struct task_struct *p) { return p->cpu; }
static void bpf_rcu_read_lock(void) {}
static void bpf_rcu_read_unlock(void) {}
static void scx_bpf_exit_bstr(s64 code, char *format, unsigned long long *data, u32 size) { exited = true; }
static bool is_leaving(u32 number) { return cpu[number].leaving; }
static bool program_keeps_put(const struct task_struct *p) { return true; }
static bool realtime_on(u32 number) { return cpu[number].realtime; }
static bool asked_before_realtime(void) { return true; }
static s32 scx_bpf_create_dsq(u64 id, s32 node) { return 0; }
static void reenqueue_local(void) {}
static int bpf_timer_init(void *timer, void *map, int clock) { return 0; }
static int bpf_timer_set_callback(void *timer, void *callback) { return 0; }
static int bpf_timer_start(struct bpf_timer *timer, u64 ns, u64 flags)
{
	timer->at = now_ns + ns;
	return 0;
}

static long bpf_probe_read_kernel_str(void *to, u32 size, const void *from) { return 0; }
static void task_set_slice(struct task_struct *p, u64 slice) { p->scx.slice = slice; }
static void task_set_vtime(struct task_struct *p, u64 vtime) { p->scx.dsq_vtime = vtime; }

static bool bpf_cpumask_test_cpu(u32 number, const struct cpumask *mask)
{
	counted_now[MASKS]++;
	return mask->bits[number / 64] >> number % 64 & 1;
}

static u64 affinity_bits(const struct task_struct *p, u32 index) { return p->cpus_ptr->bits[index]; }

static void scx_bpf_kick_cpu(s32 number, u64 flags)
{
	cpu[number].kicked = true;
	cpu[number].preempt |= flags & KICK_PREEMPT;
}

/* Queues: lists ordered by virtual time. Local queues are ordered by arrival. */
static struct task_struct **queue_at(u64 id)
{
	return id >> 32 == 2 ? &limit_queue[(u32)id] : id >> 32 ? &cpu_queue[(u32)id] : &llc_queue[id];
}

static s32 scx_bpf_dsq_nr_queued(u64 id)
{
	struct task_struct *p;
	int n = 0;

	for (p = *queue_at(id); p; p = p->next)
		n++;
	return n;
}

static void unlink(struct task_struct *p)
{
	struct task_struct **at = queue_at(p->queue);

	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
}

static void insert_local(int number, struct task_struct *p)
{
	struct task_struct **at = &cpu[number].local;

	while (*at)
		at = &(*at)->next;
	*at = p;
	p->next = NULL;
	p->cpu = number;
}

static void insert_last(struct task_struct *p, u64 id)
{
	struct task_struct **at = queue_at(id);

	p->queue = id;
	while (*at)
		at = &(*at)->next;
	*at = p;
	p->next = NULL;
}

static void insert_ordered(struct task_struct *p, u64 id, u64 vtime)
{
	struct task_struct **at = queue_at(id);

	p->queue = id;
	p->scx.dsq_vtime = vtime;
	while (*at && (s64)((*at)->scx.dsq_vtime - vtime) <= 0)
		at = &(*at)->next;
	p->next = *at;
	*at = p;
}

static void dsq_insert(struct task_struct *p, u64 id, u64 slice, u64 flags)
{
	p->scx.slice = slice;
	inserted = true;
	if (id >> 32 == 2)
		insert_last(p, id);
	else if (local_of >= 0)
		insert_local(local_of, p);
}

static void dsq_insert_vtime(struct task_struct *p, u64 id, u64 slice, u64 vtime, u64 flags)
{
	p->scx.slice = slice;
	inserted = true;
	insert_ordered(p, id, vtime);
}

/* Number of times that a CPU looked through a whole queue in vain, under the queue's lock. */
static u64 vain_looks;

static bool dsq_move_to_local(u64 id)
{
	struct task_struct *p = *queue_at(id);
	bool empty = !p;

	while (p && !(p->cpus_ptr->bits[here / 64] >> here % 64 & 1))
		p = p->next;
	vain_looks += !p && !empty;
	if (!p)
		return false;
	unlink(p);
	insert_local(here, p);
	return true;
}

struct bpf_iter_scx_dsq {
	u64 queue;
	struct task_struct *next;
	bool reverse;
};

/* The task before `p` in its queue. The last task if `p` is NULL. */
static struct task_struct *previous(u64 queue, const struct task_struct *p)
{
	struct task_struct *at = *queue_at(queue);

	if (at == p)
		return NULL;
	while (at && at->next != p)
		at = at->next;
	return at;
}

static int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 id, u64 flags)
{
	it->queue = id;
	it->reverse = flags & ITER_REVERSE;
	it->next = it->reverse ? previous(id, NULL) : *queue_at(id);
	return 0;
}

static struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it)
{
	struct task_struct *p = it->next;

	counted_now[STEPS] += !!p;
	if (p)
		it->next = it->reverse ? previous(it->queue, p) : p->next;
	return p;
}

static void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it) {}

static bool dsq_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 id)
{
	unlink(p);
	if (id >> 32 == 2)
		insert_last(p, id);
	else
		insert_local(id == DSQ_LOCAL ? here : (u32)id, p);
	return true;
}

/* Set to queue tasks again after the iterator has visited them, before they are moved. */
static bool queued_anew;

static bool dsq_move_vtime(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 id, u64 vtime)
{
	if (queued_anew)
		return false;
	unlink(p);
	insert_ordered(p, id, vtime);
	return true;
}

/* Maps, identified by the address of the variable that declares them. */
struct map {
	void *declared;
	char *values;
	u64 *keys;		/* keys of a hash; 0: free */
	u32 size, entries;
	bool constant;		/* no hook writes it */
	u64 *read_in;		/* the last call that looked up an entry */
};

static struct map maps[32];
static int nr_maps;

static struct map *make_map(void *declared, u32 size, u32 entries, bool hash)
{
	struct map *map = &maps[nr_maps++];

	map->declared = declared;
	map->values = aligned_alloc(64, ((u64)entries * size + 63) / 64 * 64);
	memset(map->values, 0, (u64)entries * size);
#ifdef FOLLOW_LINES
	follow_lines(map->values, (u64)entries * size);
#endif
	map->keys = hash ? calloc(entries, sizeof(u64)) : NULL;
	map->size = size;
	map->entries = entries;
	map->read_in = calloc(entries, sizeof(u64));
	return map;
}

static struct map *map_of(void *declared)
{
	struct map *map = maps;

	while (map->declared != declared)
		map++;
	return map;
}

/* Whether a map has an entry for each CPU. */
static bool own_by_cpu(const void *declared);

static void *bpf_map_lookup_elem(void *declared, const void *key)
{
	struct map *map = map_of(declared);
	u32 i = 0;

	if (!map->keys)
		i = *(const u32 *)key;
	else
		while (i < map->entries && map->keys[i] != *(const u64 *)key)
			i++;
	if (i >= map->entries)
		return NULL;
	counted_now[LOOKUPS]++;
	if (!map->constant && !(own_by_cpu(map->declared) && i == here) && map->read_in[i] != nr_calls) {
		map->read_in[i] = nr_calls;
		counted_now[ENTRIES]++;
	}
	return map->values + (u64)i * map->size;
}

static long bpf_map_update_elem(void *declared, const void *key, const void *value, u64 flags)
{
	static const u64 none;
	char *entry = bpf_map_lookup_elem(declared, key) ?: bpf_map_lookup_elem(declared, &none);
	struct map *map = map_of(declared);

	if (!entry || (flags == BPF_NOEXIST && bpf_map_lookup_elem(declared, key)))
		return -ENOMEM;
	if (map->keys)
		map->keys[(entry - map->values) / map->size] = *(const u64 *)key;
	memcpy(entry, value, map->size);
	return 0;
}

static long bpf_map_delete_elem(void *declared, const void *key)
{
	char *entry = bpf_map_lookup_elem(declared, key);
	struct map *map = map_of(declared);

	if (entry)
		map->keys[(entry - map->values) / map->size] = 0;
	return 0;
}

static void *bpf_task_storage_get(void *map, struct task_struct *p, void *value, u64 flags);

#endif
