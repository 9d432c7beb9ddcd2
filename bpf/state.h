/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the scheduler knows: the machine, what runs on it, what was counted
 *
 *     node ─── LLC ─── words of up to 64 slots ─── CPU
 *
 * The loader fills in the topology before anything runs. All arrays are sized by the machine. The LLCs of a node
 * follow each other. A slot is a place in an LLC: the siblings of a core have neighbouring slots, a core begins at
 * a multiple of `smt`, and no core lies in two words. An LLC has whole words of its own, so only its CPUs write
 * their cache lines.
 */
#ifndef ROOST_STATE_H
#define ROOST_STATE_H

#include "kernel.h"
#include <roost/types.h>

#define CACHE_LINE 64

/* UNIT is 1 in values with fractions. FACTOR is 1 in factors of weights, which can be much smaller than 1. */
#define UNIT 1024
#define FACTOR (1 << 18)

/* No such LLC, CPU, node or set. */
#define NONE 0xffffffffu

/* The task waits in no LLC, but for the budget of its cgroup (park.h). */
#define PARKED 0xfffffffeu

/* The machine. */
const volatile u32 nr_possible = 1;	/* CPUs that the kernel could have */
const volatile u32 nr_cpu_ids = 1;	/* one more than the largest number of a CPU */
const volatile u32 nr_llcs = 1;
const volatile u32 nr_words = 1;
const volatile u32 nr_nodes = 1;	/* with CPUs */
const volatile u32 smt = 1;		/* slots of a core: a power of two */
const volatile u32 numa_rule = 0;	/* enum roost_numa_rule */

/* Mechanisms. */
const volatile bool sis_util = true;
const volatile bool numa_imbalance = true;
const volatile u32 llc_imbalance = NONE; /* tasks tolerated; NONE: roost/llc_imbalance.h decides */
const volatile bool cling = true;
const volatile bool consolidate = true;
const volatile bool cgroup_weights = true;
const volatile bool cgroup_limits = true;

#define ROOST_TUNABLE(name, value, least, most, meaning) const volatile u64 name = value;
#include "tunables.h"
#undef ROOST_TUNABLE

struct roost_counters {
#define ROOST_COUNTER(name, meaning) u64 name;
#include "counters.h"
#undef ROOST_COUNTER
};

struct roost_cpu {
	/*
	 * Read by others at each wakeup, and seldom written: topology, with llc NONE for a CPU that was offline
	 * when the scheduler was loaded.
	 */
	u32 llc;
	u32 word;		/* the word of its slot */
	u32 bit;		/* its slot within that word */
	u32 node;
	bool online;		/* the kernel schedules on it */
	bool brief;		/* its task usually sleeps again before a migration pays off */
	/* The task that runs on it. */
	/* When it was switched in, or last asked to give way; 0: another class runs. */
	u64 started_at __attribute__((aligned(CACHE_LINE)));
	u64 vtime;		/* its virtual time then, by the clock of the LLC */
	u64 weight;		/* its task's weight, times UNIT */
	u64 ran_before;		/* sum_exec_runtime of the task when it was switched in */
	u64 head;		/* virtual time of the head of the queue that it last looked at */
	/* Utilisation, written by the CPU itself when it becomes idle or busy. */
	u64 util;		/* roost/utilisation.h */
	u64 util_at;
	/* Virtual time in its own queue. */
	u64 clock;		/* the most that a task had when it was switched in */
	u64 ahead;		/* how far that clock was ahead of its LLC's at the last comparison */
	u32 process;		/* its process among the sets */
	u32 pull_process;	/* a task of this process is asked to move (consolidate) */
	u32 pull_to;		/* the node to which that task shall move */
	u32 called_by;		/* it was woken to look for something to do in the LLC before this one; 0: it was not */
	u32 looks;		/* waiting tasks that it has examined since it was asked for a task */
	bool bound_waiting;	/* something may be in its own queue */
	bool competes;		/* its bound tasks compete with tasks that are not bound */
	bool called_again;	/* it looks a second time where it was called to */
	bool leaves;		/* it has left a task that is not queued yet (together.h) */
	u64 left_vtime;		/* the virtual time of that task */
	struct roost_counters n;
} __attribute__((aligned(CACHE_LINE)));

struct roost_word {
	u64 idle;		/* slots whose CPU is idle and that nobody has claimed */
	u64 present;		/* slots that have a CPU which is online */
	u64 first;		/* first slots of cores */
	u32 nr_slots;
	u32 base;		/* number of its first slot, if all used slots are numbered consecutively */
	u32 node;
	u32 llc;
	u32 rank;		/* its index among the words of its node */
} __attribute__((aligned(CACHE_LINE)));

struct roost_llc {
	u32 node;
	u32 nr_cpus;
	u32 first_word;
	u32 nr_words;
	bool watched;		/* its watch has begun (watch.h) */
	/* Written every few milliseconds. */
	u64 scan_at __attribute__((aligned(CACHE_LINE)));	/* when the search was last bounded */
	u64 scan_limit;		/* slots that a wakeup may examine */
	u64 util;		/* utilisations of its CPUs then */
	u32 running;		/* tasks that ran or waited there then */
	u32 serving;		/* CPUs without a realtime task, when the load was computed */
	u64 load;		/* weights on each of its CPUs that serve, times UNIT (even.h) */
	u32 pulled;		/* tasks pulled in this look; a local variable's values would be verified one by one */
	/* Written where tasks wait. */
	u64 backlog_at __attribute__((aligned(CACHE_LINE)));	/* since when the queue has held tasks, if it does */
	u64 helped_at;		/* when an idle CPU was last asked to take one */
	u32 waiting;		/* tasks that are or will be in the queue, or have just left it to run */
	bool lasting;		/* a task that runs for long has been queued since it was empty */
	u64 quiet;		/* groups of CPUs of which none is to give way yet (queue.h) */
	u64 quiet_until;	/* at least until then */
	/*
	 * Virtual time: the largest that a task had when it was switched in. Written more often than everything
	 * above.
	 */
	u64 clock __attribute__((aligned(CACHE_LINE)));
	/* CPUs whose slices end together (together.h). */
	u64 leaving;		/* those that leave a task which is not queued yet */
	u64 left_at;		/* when the first of them began to */
	u64 left_vtime;		/* the least virtual time of a task that was left since then */
	u64 left_for;		/* the CPUs that may run that task */
	u64 waits_for_left;	/* those that leave a waiting task alone until it is queued */
	u64 latest_vtime;	/* the latest virtual time of a task that goes on meanwhile */
	u32 latest_cpu;		/* the CPU of that task, plus 1; 0: none */
} __attribute__((aligned(CACHE_LINE)));

/*
 * A node keeps bits for 64 times this many words with idle CPUs, and for as many LLCs with waiting tasks. Any
 * beyond these (no machine has so many) neither help nor are helped, and wakeups do not see those words.
 */
#define NODE_MASKS 4

struct roost_node {
	u32 first_llc;
	u32 nr_llcs;
	u32 first_word;
	u32 nr_cpus;
	u32 numa_span;		/* CPUs of its lowest NUMA domain */
	u32 imb_numa_nr;	/* tasks up to which it may be ahead: roost/numa_imbalance.h */
	/* Written every few milliseconds. */
	u32 scan_limit __attribute__((aligned(CACHE_LINE)));	/* LLCs that a wakeup may examine (sis-util) */
	u64 util;		/* utilisations of its LLCs, when they were last computed */
	u32 running;		/* tasks that ran or waited in them then */
	/*
	 * Words with idle CPUs, so that a search need not read all words. Written when a word's first idle CPU
	 * comes or its last one goes.
	 */
	u64 idle_words[NODE_MASKS] __attribute__((aligned(CACHE_LINE)));
	/*
	 * LLCs in which tasks wait, or waited when a CPU last looked. For CPUs that look for tasks. Set by the
	 * first task that waits, and cleared by the CPU that sees that no task waits any more.
	 */
	u64 waiting_llcs[NODE_MASKS] __attribute__((aligned(CACHE_LINE)));
} __attribute__((aligned(CACHE_LINE)));

/*
 * What a task does. Its members have lines of their own by who writes them:
 *
 *     the first     after it has run. A wakeup only reads them, often on another CPU (tasks with a limit apart)
 *     the second    where it is queued, and where it is switched in
 *
 * In the kernel a pointer to the map stands before a value, and each look-up reads it. So a value begins 8 bytes after
 * the beginning of a line, 16 before Linux 7.0 (struct bpf_local_storage_elem). The members in between are seldom used.
 */
struct roost_task {
	u64 ran_awake;		/* ns that it ran since it last slept */
	u64 burst;		/* the same when it went to sleep, a mean of the last few times */
	/* Not charged to its sets and its cgroup yet, in ns. */
	u64 wanted;		/* ran or waited */
	u64 ran;
	u32 limit;		/* the nearest cgroup above it with a limit (limits.h); NONE */
	u32 group;		/* its sets; NONE: none */
	u32 process;
	u32 factor;		/* factor for its weight, times FACTOR (weights.h) */
	/* Seldom used. */
	u64 tried_at;		/* when it last tried to reach its home */
	u32 share;		/* its cgroup among the shares; NONE: at the root */
	u32 migrate_seq;	/* roost/consolidate.h */
	/* The second line. */
	u64 queue;		/* the queue whose clock its virtual time refers to; NONE: new */
	u64 queued_at;		/* 0: not in a queue */
	u64 owed;		/* virtual time by which it was queued early, charged when it runs */
	u64 waited;		/* ns, not counted in `wanted` yet */
	u32 waits_in;		/* the LLC that counts it as waiting, or PARKED, or NONE */
	u32 go;			/* LLC to go to when it is queued next; NONE */
	u32 exec_to;		/* after exec: LLC to go to when it is asked next; NONE */
	u32 cpu;		/* where it last ran; NONE: nowhere yet */
	/* Seldom used. */
	u64 parked_at;		/* CLOCK_MONOTONIC ns; 0: it has run since it was parked */
	u64 css_set;		/* the css_set from which its group was found */
	u64 reserved;		/* ns reserved of its limit's budget */
};

_Static_assert(offsetof(struct roost_task, tried_at) <= CACHE_LINE - 16, "the first line, behind up to 16 bytes");
_Static_assert(offsetof(struct roost_task, queue) >= CACHE_LINE - 8, "not in the first line, behind 8 bytes");
_Static_assert(offsetof(struct roost_task, parked_at) <= 2 * CACHE_LINE - 16, "the second line");

/*
 * Where a task with an affinity may run. A task that may run anywhere has no entry. CPUs with larger numbers
 * than this are not searched for such a task, but it can run there.
 */
#define AFFINITY_SLOTS 2048
#define AFFINITY_WORDS 512

struct roost_affinity {
	u64 slots[AFFINITY_SLOTS / 64];	/* by their numbers: word.base + bit */
	u64 words[AFFINITY_WORDS / 64];	/* that have such slots */
	u64 nodes;			/* the first 64 */
};

/*
 * Makes an array map. BPF_F_MMAPABLE makes the kernel align the values to a page, and so the entries to cache
 * lines; nobody maps it.
 */
#define ARRAY(name_, type_)					\
	struct {						\
		__uint(type, BPF_MAP_TYPE_ARRAY);		\
		__uint(map_flags, BPF_F_MMAPABLE);		\
		__uint(max_entries, 1);				\
		__type(key, u32);				\
		__type(value, type_);				\
	} name_ SEC(".maps")

ARRAY(cpus, struct roost_cpu);		/* by the kernel's number */
ARRAY(words, struct roost_word);
ARRAY(slots, u32);			/* word * 64 + bit: a CPU's number */
ARRAY(places, u32);			/* by the kernel's number of a CPU: its slot's number; NONE */
ARRAY(llcs, struct roost_llc);
ARRAY(nodes, struct roost_node);
ARRAY(near, u32);			/* node * nr_nodes + rank: nodes by distance, itself first */
ARRAY(futile, u64);			/* node * nr_llcs + LLC: until then CPUs of the node do not look (queue.h) */

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct roost_task);
} tasks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct roost_affinity);
} affinities SEC(".maps");

static __always_inline struct roost_cpu *cpu_at(u32 cpu)
{
	return bpf_map_lookup_elem(&cpus, &cpu);
}

/* The CPU that executes this code. Only it may write its counters. */
static __always_inline struct roost_cpu *this_cpu(void)
{
	return cpu_at(bpf_get_smp_processor_id());
}

static __always_inline struct roost_word *word_at(u32 word)
{
	return bpf_map_lookup_elem(&words, &word);
}

static __always_inline struct roost_llc *llc_at(u32 llc)
{
	return bpf_map_lookup_elem(&llcs, &llc);
}

static __always_inline struct roost_node *node_at(u32 node)
{
	return bpf_map_lookup_elem(&nodes, &node);
}

static __always_inline struct roost_task *task_of(struct task_struct *p)
{
	return bpf_task_storage_get(&tasks, p, NULL, 0);
}

/* Queues: an LLC's number, or this with a CPU's, or with a limit's (parked tasks). */
#define CPU_QUEUE (1ull << 32)
#define LIMIT_QUEUE (2ull << 32)

static __always_inline u64 slice_ns(void)
{
	return slice_us * 1000;
}

/*
 * Number of tasks in the queue of an LLC. The kernel finds queues in a hash table, so it is asked only if there
 * are any.
 */
static __always_inline u64 nr_waiting(const struct roost_llc *llc, u32 id)
{
	return llc->waiting ? scx_bpf_dsq_nr_queued(id) : 0;
}

/* Bits for tables that are full. The loader reports each once. */
enum {
	GROUPS_FULL = 1,
	PROCESSES_FULL = 2,
	CGROUPS_FULL = 4,
};

u32 full;

static __always_inline void count_full(u32 table)
{
	if (!(full & table))
		__sync_fetch_and_or(&full, table);
}

/*
 * Whether tasks may wait in an LLC, according to its node. (A function of its own, so that the verifier does
 * not distinguish LLCs.)
 */
__noinline bool may_wait(u32 node_id, u32 id)
{
	struct roost_node *node = node_at(node_id);
	u32 rank = node ? id - node->first_llc : NONE;

	return node && rank / 64 < NODE_MASKS && node->waiting_llcs[rank / 64] & 1ull << (rank & 63);
}

/* A task waits in an LLC. Sets the bit of the LLC in its node, if it is not set. */
static __always_inline void mark_waiting(const struct roost_llc *llc, u32 id)
{
	struct roost_node *node = node_at(llc->node);
	u32 rank = node ? id - node->first_llc : NONE;

	if (rank / 64 < NODE_MASKS && !(node->waiting_llcs[rank / 64] & 1ull << (rank & 63)))
		__sync_fetch_and_or(&node->waiting_llcs[rank / 64], 1ull << (rank & 63));
}

/*
 * One more task waits in an LLC. It is counted before it is in the queue, so that no CPU overlooks it. Returns whether
 * no task waited before. Then the caller marks the LLC (mark_waiting). Later tasks need not read the node's line.
 */
static __always_inline bool add_waiting(struct roost_llc *llc)
{
	return !__sync_fetch_and_add(&llc->waiting, 1);
}

/*
 * No task waits in an LLC, although its node says so. Clears the node's bit. A task that comes meanwhile is seen
 * afterwards: an atomic operation whose result is used is a full barrier.
 */
static __always_inline void mark_empty(struct roost_llc *llc, u32 id)
{
	struct roost_node *node = node_at(llc->node);
	u32 rank = node ? id - node->first_llc : NONE;
	u64 mask = 1ull << (rank & 63);

	if (rank / 64 >= NODE_MASKS)
		return;
	if (__sync_fetch_and_and(&node->waiting_llcs[rank / 64], ~mask) & mask && *(volatile u32 *)&llc->waiting)
		mark_waiting(llc, id);
}

/*
 * An entry of a table is in use. Raises `used`, one more than the largest used index, also if other CPUs do so
 * at the same time.
 */
static __always_inline void use_up_to(u32 *used, u32 index)
{
	u32 seen;
	int i;

	/* Each failed attempt means that another CPU succeeded. */
	bpf_for(i, 0, nr_possible) {
		seen = *used;
		if (seen > index || __sync_bool_compare_and_swap(used, seen, index + 1))
			break;
	}
}

/*
 * Walks a queue from its head (ITER_REVERSE: from its end), over `most` tasks at most. `it` is the iterator, for
 * dsq_move(); `break` ends the walk. The caller holds the RCU read lock.
 */
#define each_queued(p, it, i, queue, flags, most)						\
	for (struct bpf_iter_scx_dsq it __attribute__((aligned(8),				\
						       cleanup(bpf_iter_scx_dsq_destroy))),	\
	     *once = (bpf_iter_scx_dsq_new(&it, queue, flags),					\
		      (void)bpf_iter_scx_dsq_destroy, &it);					\
	     once; once = NULL)									\
		bpf_for(i, 0, most)								\
			if (!((p) = bpf_iter_scx_dsq_next(&it)))				\
				break;								\
			else

static __always_inline bool before(u64 a, u64 b)
{
	return (s64)(a - b) < 0;
}

static __always_inline u32 lowest(u64 bits)
{
	return __builtin_ctzll(bits);
}

static __always_inline u32 count(u64 bits)
{
	return __builtin_popcountll(bits);
}

#endif
