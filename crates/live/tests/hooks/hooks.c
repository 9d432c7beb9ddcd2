// SPDX-License-Identifier: GPL-2.0-only
/*
 * The hooks of bpf/ in user space: loops and sleeping tasks on a machine of two nodes, each with two LLCs of
 * four CPUs, or on another machine
 *
 * Time advances in steps of 50 us. Ticks come every 4 ms, and the watch runs ten times per second. Each
 * scenario runs for twenty seconds. For the last ten seconds it prints where its groups ran, and how long the
 * CPU with the most idle time was idle. This tests the scheduler's decisions, not their cost.
 *
 *     hooks SCENARIO SEED [NODES LLCS PER_LLC]
 */
#include "kernel.h"

/* The loader writes these constants of the scheduler, so they must not be const here. */
#define const
#include "../../../../bpf/roost.bpf.c"
#undef const

#define STEP_NS 50000ull
#define TICK_NS 4000000ull
#define MS 1000000ull
#define SECOND (1000 * MS)
#define TASKS 2048

/* The machine: number of nodes, of LLCs on all nodes together, and of CPUs per LLC. */
static int NODES = 2, LLCS = 4, PER_LLC = 4;
#define CPUS (LLCS * PER_LLC)

static struct task_struct task[TASKS];
static int nr_tasks;
static int hosts;			/* host CPUs that the guest's CPUs share; 0: not a guest */
static bool on_host[MOST];		/* guest CPUs whose turn it is on a host CPU */
static struct cpumask everywhere = { .bits = { [0 ... MOST / 64 - 1] = ~0ull } };
static struct kernfs_node root_node = { 1 };
static struct cgroup root = { .kn = &root_node, .self = { .cgroup = &root } };
static struct css_set at_root = { &root };

/* There is no memory left to record an affinity. */
static bool no_memory;

static void *bpf_task_storage_get(void *map, struct task_struct *p, void *value, u64 flags)
{
	if (map == &affinities) {
		if (!p->affinity && !no_memory && flags & BPF_LOCAL_STORAGE_GET_F_CREATE)
			p->affinity = calloc(1, sizeof(*p->affinity));
		return p->affinity;
	}
	if (!p->storage && flags & BPF_LOCAL_STORAGE_GET_F_CREATE)
		p->storage = calloc(1, sizeof(*p->storage));
	return p->storage;
}

/* The hooks, and the timers of the watch: one per LLC, and one for the machine. */
enum { SELECT_CPU, ENQUEUE, DISPATCH, RUNNING, STOPPING, UPDATE_IDLE, WATCH, WATCH_ALL, HOOKS };

static struct cost costs[HOOKS];

static void begin_call(void)
{
	memset(counted_now, 0, sizeof(counted_now));
	nr_calls++;
	lines_call = nr_calls;
	lines_moved = 0;
	lines_cpu = here;
}

static void end_call(int hook)
{
	struct cost *cost = &costs[hook];
	int i;

	lines_cpu = -1;
	counted_now[LINES] = lines_moved;
	cost->calls++;
	for (i = 0; i < KINDS; i++) {
		cost->sum[i] += counted_now[i];
		if (cost->most[i] < counted_now[i])
			cost->most[i] = counted_now[i];
	}
}

#define counted(hook, call) do { begin_call(); call; end_call(hook); } while (0)

/* Prints `cost HOOK calls N` and, for each kind of cost, the mean times 1000 and the largest value. */
static void print_costs(void)
{
	static const char *hooks[] = { "select_cpu", "enqueue",	    "dispatch", "running",
				       "stopping",   "update_idle", "watch",	"watch_all" };
	static const char *kinds[] = { "entries", "lookups", "steps", "masks", "lines" };
	int i, k;

	for (i = 0; i < HOOKS; i++) {
		printf("%s_calls %lu\n", hooks[i], costs[i].calls);
		for (k = 0; k < KINDS; k++)
			printf("%s_%s_mean %lu\n%s_%s_most %lu\n", hooks[i], kinds[k],
			       costs[i].sum[k] * 1000 / (costs[i].calls ?: 1), hooks[i], kinds[k], costs[i].most[k]);
	}
}

static bool own_by_cpu(const void *declared)
{
	return declared == &cpus || declared == &turns;
}

static void make_maps(void)
{
	make_map(&cpus, sizeof(struct roost_cpu), CPUS, false);
	make_map(&words, sizeof(struct roost_word), LLCS, false);
	make_map(&slots, sizeof(u32), LLCS * 64, false)->constant = true;
	make_map(&places, sizeof(u32), CPUS, false)->constant = true;
	make_map(&llcs, sizeof(struct roost_llc), LLCS, false);
	make_map(&nodes, sizeof(struct roost_node), NODES, false);
	make_map(&near, sizeof(u32), NODES * NODES, false)->constant = true;
	make_map(&futile, sizeof(u64), NODES * LLCS, false);
	make_map(&homes, sizeof(struct roost_home), NODES, false);
	make_map(&shares, sizeof(struct roost_share), max_cgroups, false);
	make_map(&share_ids, sizeof(u32), max_cgroups, true);
	make_map(&limits, sizeof(struct roost_limit), max_cgroups, false);
	make_map(&watches, sizeof(struct roost_watch), LLCS + 1, false);
	make_map(&turns, sizeof(struct roost_turn), CPUS, false);
	make_map(&sets, sizeof(struct roost_set), max_groups + max_processes, false);
	make_map(&set_nodes, sizeof(struct roost_set_node), (max_groups + max_processes) * NODES, false);
	make_map(&set_memory, sizeof(u64), (max_groups + max_processes) * NODES, false);
	make_map(&set_moves, sizeof(u32), max_groups + max_processes, false);
	make_map(&set_flags, sizeof(u32), max_groups + max_processes, false);
	make_map(&set_ids, sizeof(u32), max_groups + max_processes, true);
}

static void make_machine(void)
{
	u32 i, place, per_node = LLCS / NODES;

	nr_possible = nr_cpu_ids = CPUS;
	nr_llcs = nr_words = LLCS;
	nr_nodes = NODES;
	numa_rule = ROOST_NUMA_MERGED_60;
	max_groups = max_processes = max_cgroups = 64;
	make_maps();
	for (i = 0; i < LLCS; i++) {
		*llc_at(i) = (struct roost_llc){ .node = i / per_node, .nr_cpus = PER_LLC, .first_word = i,
						 .nr_words = 1, .scan_limit = PER_LLC };
		*word_at(i) = (struct roost_word){ .present = lowest_bits(PER_LLC), .first = lowest_bits(PER_LLC), 
						   .nr_slots = PER_LLC, .base = i * PER_LLC, .node = i / per_node,
						   .llc = i, .rank = i % per_node };
	}
	for (i = 0; i < NODES; i++)
		*node_at(i) = (struct roost_node){ .first_llc = i * per_node,
						   .nr_llcs = per_node,
						   .first_word = i * per_node,
						   .nr_cpus = CPUS / NODES,
						   .numa_span = CPUS,
						   .imb_numa_nr = per_node };
	for (i = 0; i < NODES * NODES; i++)
		*(u32 *)bpf_map_lookup_elem(&near, &i) = (i / NODES + i) % NODES;
	for (i = 0; i < LLCS * 64; i++)
		*(u32 *)bpf_map_lookup_elem(&slots, &i) = NONE;
	for (i = 0; i < CPUS; i++) {
		*cpu_at(i) = (struct roost_cpu){ .llc = i / PER_LLC, .word = i / PER_LLC,
						 .bit = i % PER_LLC, .node = i / (CPUS / NODES), .online = true,
						 .process = NONE, .pull_to = NONE };
		place = i / PER_LLC * 64 + i % PER_LLC;
		*(u32 *)bpf_map_lookup_elem(&slots, &place) = i;
		*(u32 *)bpf_map_lookup_elem(&places, &i) = i;
		cpu[i].idle = true;
		roost_update_idle(i, true);
	}
	start_watch();
}

static struct css_set *make_cgroup_in(struct cgroup *parent, u64 id, u32 weight)
{
	struct scx_cgroup_init_args args = { weight, 100000, NO_QUOTA };
	struct cgroup *cgroup = calloc(1, sizeof(*cgroup));
	struct css_set *set = calloc(1, sizeof(*set));

	cgroup->level = 1;
	cgroup->kn = calloc(1, sizeof(*cgroup->kn));
	cgroup->kn->id = id;
	cgroup->self.cgroup = cgroup;
	cgroup->self.parent = &parent->self;
	roost_cgroup_init(cgroup, &args);
	set->dfl_cgrp = cgroup;
	return set;
}

static struct css_set *make_cgroup(u64 id, u32 weight)
{
	return make_cgroup_in(&root, id, weight);
}

static void make_task(struct css_set *set, struct signal_struct *process, int tgid, u64 burst_ns,
		      u64 sleep_ns)
{
	struct task_struct *p = &task[nr_tasks++];
	struct scx_init_task_args args = { set->dfl_cgrp };

	/* The last thread of a process ends only in scenarios that do so explicitly. */
	process->live.counter = process->live.counter ?: process->nr_threads;
	*p = (struct task_struct){ .group_leader = p, .pid = nr_tasks, .start_boottime = 1,
				   .nr_cpus_allowed = CPUS, .cpus_ptr = &everywhere, .tgid = tgid,
				   .scx.weight = 100, .cgroups = set, .signal = process,
				   .cpu = rand() % CPUS, .burst_ns = burst_ns, .sleep_ns = sleep_ns,
				   .wakes_at = now_ns + rand() % (sleep_ns + 1) };
	roost_init_task(p, &args);
	roost_enable(p);
}

/* Restricts a task to CPUs. */
static void limit(struct task_struct *p, struct cpumask *cpus)
{
	int i, n = 0;

	p->cpus_ptr = cpus;
	for (i = 0; i < MOST / 64; i++)
		n += count(cpus->bits[i]);
	p->nr_cpus_allowed = n < CPUS ? n : CPUS;
	roost_set_cpumask(p, cpus);
}

/* Accounts the time that has passed on a CPU. */
static void account(int number)
{
	struct cpu *c = &cpu[number];
	struct task_struct *p = c->curr;
	u64 passed = now_ns - c->since;

	c->since = now_ns;
	c->idle_ns += c->idle ? passed : 0;
	if (!p)
		return;
	p->se.sum_exec_runtime += passed;
	p->ran_on[number] += passed;
	p->scx.slice -= p->scx.slice < passed ? p->scx.slice : passed;
	if (on_host[number])
		p->left_ns -= p->left_ns < passed ? p->left_ns : passed;
}

static struct task_struct *pick(struct cpu *c)
{
	struct task_struct *p = c->local;

	if (p) {
		c->local = p->next;
		p->next = NULL;
	}
	return p;
}

static void become_idle(int number)
{
	cpu[number].curr = NULL;
	cpu[number].idle = true;
	counted(UPDATE_IDLE, roost_update_idle(number, true));
}

static void switch_in(int number, struct task_struct *p)
{
	if (cpu[number].idle) {
		cpu[number].idle = false;
		counted(UPDATE_IDLE, roost_update_idle(number, false));
	}
	cpu[number].curr = p;
	p->scx.flags = TASK_QUEUED;
	counted(RUNNING, roost_running(p));
}

/* __schedule(): balance_one(), put_prev_task_scx(), set_next_task_scx(). */
static void schedule(int number)
{
	struct cpu *c = &cpu[number];
	struct task_struct *prev = c->curr, *next;

	account(number);
	here = number;
	interrupt(prev);
	c->kicked = false;
	if (prev && !prev->runnable) {
		prev->scx.flags = 0;
		prev->__state = 1;
		counted(STOPPING, roost_stopping(prev, false));
	} else if (prev && c->preempt) {
		prev->scx.slice = 0;
	}
	c->preempt = false;
	if (prev && prev->runnable && prev->scx.slice)
		return;
	local_of = number;
	if (!c->local && !c->leaving)
		counted(DISPATCH, roost_dispatch(number, prev));
	if (!c->local && prev && prev->runnable && prev->scx.slice)
		return;
	next = pick(c);
	if (prev && prev->runnable) {
		counted(STOPPING, roost_stopping(prev, true));
		if (c->leaving)
			insert_local(number, prev);
		else
			counted(ENQUEUE, roost_enqueue(prev, next ? 0 : ENQ_LAST));
	}
	next = next ?: pick(c);
	if (next)
		switch_in(number, next);
	else if (!c->realtime || !c->busy)
		become_idle(number);
}

/* Another CPU of the same LLC, as in select_fallback_rq(). */
static int other_than(int number)
{
	return number / PER_LLC * PER_LLC + (number + 1) % PER_LLC;
}

/* Which task wakes the next one, in an array of all tasks. If NULL, each task is woken on its previous CPU. */
static struct task_struct *wakers;

/* try_to_wake_up(). */
static void wake(struct task_struct *p)
{
	u64 flags = p->se.sum_exec_runtime ? 0 : WAKE_FORK;

	here = wakers ? wakers->cpu : p->cpu;
	wakers = wakers ? &task[rand() % nr_tasks] : NULL;
	interrupt(cpu[here].curr ?: p);
	p->runnable = true;
	p->__state = 0;
	p->left_ns = p->burst_ns;
	inserted = false;
	local_of = -1;
	counted(SELECT_CPU, p->cpu = roost_select_cpu(p, p->cpu, flags));
	if (cpu[p->cpu].offline) {
		if (inserted)
			exit(5);
		p->cpu = other_than(p->cpu);
	}
	if (inserted) {
		insert_local(p->cpu, p);
	} else {
		local_of = p->cpu;
		counted(ENQUEUE, roost_enqueue(p, ENQ_WAKEUP | ENQ_CPU_SELECTED));
	}
	if (cpu[p->cpu].idle && cpu[p->cpu].local && on_host[p->cpu])
		schedule(p->cpu);
}

static void step_cpu(int number)
{
	struct cpu *c = &cpu[number];
	struct task_struct *p = c->curr;
	bool tick = (now_ns + number * STEP_NS) / TICK_NS != c->ticks;

	c->ticks = (now_ns + number * STEP_NS) / TICK_NS;
	account(number);
	if (p && p->sleep_ns && !p->left_ns) {
		p->runnable = false;
		p->wakes_at = now_ns + p->sleep_ns / 2 + rand() % (p->sleep_ns + 1);
		schedule(number);
	} else if (p ? c->preempt || (tick && !p->scx.slice) : c->kicked || c->local) {
		schedule(number);
	}
}

/* Length of a guest CPU's turn on a host CPU. */
#define TURN_NS (2 * MS)

static bool has_work(int number)
{
	return !cpu[number].idle || cpu[number].kicked || cpu[number].local;
}

/*
 * If the guest has more CPUs than its host, its CPUs take turns. On a CPU that does not have its turn, time
 * passes for the running task, but the task makes no progress and the scheduler decides nothing.
 */
static void take_turns(void)
{
	static u64 until[MOST];
	static int next;
	int i, n = 0;

	for (i = 0; i < CPUS; i++) {
		account(i);
		if (!hosts || (on_host[i] && has_work(i) && now_ns < until[i]))
			n++;
		else
			on_host[i] = false;
		on_host[i] |= !hosts;
	}
	for (i = 0; i < CPUS && n < hosts; i++) {
		next = (next + 1) % CPUS;
		if (on_host[next] || !has_work(next))
			continue;
		on_host[next] = true;
		until[next] = now_ns + TURN_NS / 2 + rand() % TURN_NS;
		n++;
	}
}

/*
 * Checks the counters: every LLC counts the tasks that say they are counted there, and every task in its queue
 * is counted. Every node knows its words with idle CPUs and its LLCs with waiting tasks.
 */
static void check_counts(void)
{
	u32 id, counted[MOST] = {};
	int i;

	for (i = 0; i < nr_tasks; i++) {
		id = task_of(&task[i])->waits_in;
		if (id < LLCS)
			counted[id]++;
	}
	for (id = 0; id < LLCS; id++) {
		if (!word_at(id)->idle != !(node_at(word_at(id)->node)->idle_words[0] >> word_at(id)->rank & 1))
			exit(4);
		if (llc_at(id)->waiting && !may_wait(llc_at(id)->node, id))
			exit(28);
		if (llc_at(id)->waiting == counted[id] && counted[id] >= scx_bpf_dsq_nr_queued(id))
			continue;
		fprintf(stderr, "LLC %u: waiting %u, tasks %u, queued %d\n", id, llc_at(id)->waiting,
			counted[id], scx_bpf_dsq_nr_queued(id));
		exit(3);
	}
}

/* Fires the timers that are due: of the watch, of limits' periods, and of turns. */
static void fire_timers(void)
{
	struct roost_watch *watch;
	struct roost_limit *limit;
	struct roost_turn *turn;
	u32 i;

	for (i = 0; i <= LLCS; i++) {
		watch = watch_at(i);
		here = i < LLCS ? i * PER_LLC : 0;
		if (watch->timer.at && watch->timer.at <= now_ns)
			counted(i < LLCS ? WATCH : WATCH_ALL, look(NULL, &i, watch));
	}
	here = 0;

	for (i = 0; i < CPUS; i++) {
		turn = turn_at(i);
		if (!turn->timer.at || turn->timer.at > now_ns)
			continue;
		turn->timer.at = 0;
		end_turn(NULL, &i, turn);
	}

	for (i = 0; i < shares_used; i++) {
		limit = limit_at(i);
		if (!limit->timer.at || limit->timer.at > now_ns)
			continue;
		limit->timer.at = 0;
		end_period(NULL, &i, limit);
	}
}

static void run(u64 ns)
{
	u64 end = now_ns + ns;
	int i;

	while (now_ns < end) {
		now_ns += STEP_NS;
		take_turns();
		for (i = 0; i < nr_tasks; i++)
			if (!task[i].runnable && task[i].wakes_at <= now_ns &&
			    (cpu[task[i].cpu].idle || on_host[task[i].cpu]))
				wake(&task[i]);
		for (i = 0; i < CPUS; i++)
			if (on_host[i] && !cpu[i].offline)
				step_cpu(i);
		fire_timers();
		if (nr_tasks < 256 || now_ns % MS < STEP_NS)
			check_counts();
	}
}

/* Prints `group NAME: ns on node 0, ns on node 1` for every `stride`th task from `first` to before `end`. */
static void print_group(int name, int first, int end, int stride)
{
	u64 ran[MOST] = {};
	int i, c;

	for (i = first; i < end; i += stride)
		for (c = 0; c < CPUS; c++)
			ran[c / (CPUS / NODES)] += task[i].ran_on[c];
	printf("group %d: %lu %lu\n", name, ran[0], ran[1]);
}

/* The total of a counter over all CPUs: a sum or, for some counters, the largest value. */
static u64 total(const char *name, u64 sum, u64 n)
{
	return !strstr(name, "_max_") ? sum + n : sum > n ? sum : n;
}

static void print_counters(void)
{
#define ROOST_COUNTER(name, meaning) u64 name = 0;
#include "../../../../bpf/counters.h"
#undef ROOST_COUNTER
	u32 i;

	for (i = 0; i < CPUS; i++) {
#define ROOST_COUNTER(name, meaning) name = total(#name, name, cpu_at(i)->n.name);
#include "../../../../bpf/counters.h"
#undef ROOST_COUNTER
	}
#define ROOST_COUNTER(name, meaning) printf("%s %lu\n", #name, name);
#include "../../../../bpf/counters.h"
#undef ROOST_COUNTER
	u32 settled = 0, on_first = 0;

	for (i = 0; i < groups_used; i++) {
		settled += settled_on(i) != NONE;
		on_first += !settled_on(i);
	}
	printf("groups_settled %u\ngroups_on_first %u\n", settled, on_first);
}

/* Runs until the groups have settled, then prints the measurements of the time after that. */
static void measure(int groups, int loops)
{
	u64 idle = 0;
	int i;

	run(10 * SECOND);
	for (i = 0; i < nr_tasks; i++)
		memset(task[i].ran_on, 0, sizeof(task[i].ran_on));
	for (i = 0; i < CPUS; i++)
		cpu[i].idle_ns = 0;
	run(10 * SECOND);
	for (i = 0; i < groups; i++)
		print_group(i, i, loops, groups);
	for (i = 0; i < CPUS; i++)
		idle = cpu[i].idle_ns > idle ? cpu[i].idle_ns : idle;
	printf("idle %lu of %llu\n", idle, 10 * SECOND);
	print_counters();
}

/* Loops in `groups` cgroups or processes, created one after the other, and short-running tasks. */
static void loops(int groups, int threads, bool processes, int sleepers, u64 sleep_ns)
{
	struct signal_struct single = { 1 }, several = { threads };
	struct css_set *cgroup[8] = {};
	int i, n = groups * threads;

	for (i = 0; i < groups && !processes; i++)
		cgroup[i] = make_cgroup(10 + i, 100);
	for (i = 0; i < n; i++)
		make_task(cgroup[i % groups] ?: &at_root, processes ? &several : &single,
			  100 + (processes ? i % groups : i), 0, 0);
	for (i = 0; i < sleepers; i++)
		make_task(&at_root, &single, 500 + i, MS / 5, sleep_ns);
	measure(groups, n);
}

/* Two cgroups with weights 1 to 3. */
static void weights(int threads)
{
	struct signal_struct single = { 1 };
	struct css_set *cgroup[2] = { make_cgroup(10, 100), make_cgroup(11, 300) };
	int i;

	cling = false;
	for (i = 0; i < 2 * threads; i++)
		make_task(cgroup[i % 2], &single, 100 + i, 0, 0);
	measure(2, nr_tasks);
}

/* Two cgroups of equal weight. Every tenth loop belongs to the first. */
static void many_in_one(int n)
{
	struct signal_struct single = { 1 };
	struct css_set *cgroup[2] = { make_cgroup(10, 100), make_cgroup(11, 100) };
	int i;

	cling = false;
	for (i = 0; i < n; i++)
		make_task(cgroup[i % 10 > 0], &single, 100 + i, 0, 0);
	measure(10, n);
}

/* Sixteen loops that may use only the four CPUs of the first LLC, and short-running tasks on all other CPUs. */
static void overloaded_cpuset(void)
{
	static struct signal_struct single = { 1 };
	static struct cpumask inside = { 15 }, outside = { 65535 & ~15 };
	int i;

	for (i = 0; i < 40; i++) {
		make_task(&at_root, &single, 100 + i, i < 16 ? 0 : MS / 5, i < 16 ? 0 : MS);
		limit(&task[i], i < 16 ? &inside : &outside);
		task[i].cpu = i < 16 ? i % 4 : 4 + i % 12;
	}
	measure(2, nr_tasks);
	printf("vain_looks %lu\n", vain_looks);
}

/*
 * Six loops in a group that has settled on the first node. Then as many loops come as the node has CPUs, and
 * these must stay there. If `busy`, failed attempts mark the node as busy.
 */
static void crowd(bool busy)
{
	static struct signal_struct single = { 1 };
	static struct cpumask first = { 255 };
	struct css_set *cgroup = make_cgroup(10, 100);
	int i;

	cling_wait_us = 100000000;
	for (i = 0; i < 6; i++) {
		make_task(cgroup, &single, 100 + i, 0, 0);
		task[i].cpu = i;
	}
	run(3 * SECOND);
	for (i = 6; i < 14; i++) {
		make_task(&at_root, &single, 100 + i, 0, 0);
		task[i].cpu = i - 6;
		limit(&task[i], &first);
	}
	for (i = 0; busy && i < 200; i++)
		account_attempt(0, 0, true, &cpu_at(0)->n);
	measure(1, 6);
}

/* Four loops in a group that may not use the node with their memory. */
static void barred_group(void)
{
	static struct signal_struct single = { 1 };
	static struct cpumask second = { 255 << 8 };
	struct css_set *cgroup = make_cgroup(10, 100);
	u32 i, first = 0;
	u64 pages = 1000;

	for (i = 0; i < 4; i++) {
		make_task(cgroup, &single, 100 + i, 0, 0);
		task[i].cpu = 8 + i;
		limit(&task[i], &second);
	}
	run(SECOND / 2);
	bpf_map_update_elem(&set_memory, &first, &pages, BPF_ANY);
	measure(1, 4);
}

/* Puts the memory of a group of `n` tasks on the first node. */
static void make_group_on_first(int number, int n)
{
	static struct signal_struct single = { 1 };
	struct css_set *cgroup = make_cgroup(10 + number, 100);
	u32 i, index = number * NODES;
	u64 pages = 1000;

	for (i = 0; i < n; i++)
		make_task(cgroup, &single, 100 + number * n + i, 0, 0);
	run(SECOND / 2);
	bpf_map_update_elem(&set_memory, &index, &pages, BPF_ANY);
	run(5 * SECOND);
}

/*
 * Six loops sleep for seconds. `moved` says that their pages are being moved. Six other loops look for a node
 * meanwhile.
 */
static void waits_for_pages(u32 moved)
{
	u32 i, first = 0;

	make_group_on_first(0, 6);
	bpf_map_update_elem(&set_moves, &first, &moved, BPF_ANY);
	for (i = 0; i < 6; i++) {
		task[i].sleep_ns = 100 * SECOND;
		task[i].left_ns = 0;
	}
	run(3 * SECOND);
	make_group_on_first(1, 6);
	measure(0, 0);
}

/* A process of six threads settles before its group is known. */
static void own_process(void)
{
	static struct signal_struct several = { 6 };
	struct css_set *cgroup = make_cgroup(10, 100);
	int i;

	cling = false;
	for (i = 0; i < 6; i++)
		make_task(cgroup, &several, 100, 0, 0);
	run(5 * SECOND);
	cling = true;
	measure(1, 6);
}

/* A group of twelve loops. Four of them end after ten seconds. */
static void shrunk_group(void)
{
	int i;

	make_group_on_first(0, 12);
	run(5 * SECOND);
	for (i = 0; i < 4; i++) {
		task[i].sleep_ns = 200 * SECOND;
		task[i].left_ns = 0;
	}
	measure(0, 0);
}

/* A group of eight loops that has settled, and then gets a ninth. */
static void grown_group(void)
{
	static struct signal_struct single = { 1 };

	make_group_on_first(0, 8);
	make_task(task[0].cgroups, &single, 200, 0, 0);
	measure(1, 9);
}

/* A process whose eight threads are each bound to one of every other CPU. */
static void spread_process(void)
{
	static struct signal_struct several = { 8 };
	static struct cpumask only[8];
	int i;

	for (i = 0; i < 8; i++) {
		only[i].bits[0] = 1 << 2 * i;
		make_task(&at_root, &several, 100, 0, 0);
		task[i].cpu = 2 * i;
		limit(&task[i], &only[i]);
	}
	measure(1, 8);
}

/* Two groups of forty loops. Each may use four CPUs, all on the first node. */
static void crowded_cpusets(void)
{
	static struct signal_struct single = { 1 };
	static struct cpumask part[2] = { { 15 }, { 15 << 4 } };
	struct css_set *cgroup[2] = { make_cgroup(10, 100), make_cgroup(11, 100) };
	int i;

	for (i = 0; i < 80; i++) {
		make_task(cgroup[i % 2], &single, 100 + i, 0, 0);
		task[i].cpu = i % 2 * 4 + i / 2 % 4;
		limit(&task[i], &part[i % 2]);
	}
	measure(2, 80);
}

/* A group of forty loops that may use three CPUs of each node. */
static void spanning_cpuset(void)
{
	static struct signal_struct single = { 1 };
	static struct cpumask part = { 7 | 7 << 8 };
	struct css_set *cgroup = make_cgroup(10, 100);
	int i;

	for (i = 0; i < 40; i++) {
		make_task(cgroup, &single, 100 + i, 0, 0);
		task[i].cpu = i % 2 * 8 + i / 2 % 3;
		limit(&task[i], &part);
	}
	measure(1, 40);
}

/* Makes each pair of CPUs the two threads of a core. */
static void make_siblings(void)
{
	u32 i;

	smt = 2;
	for (i = 0; i < LLCS; i++)
		word_at(i)->first = 5;
}

/* Tasks that are woken on the first CPUs, where they ran before. */
static void make_on_first(int n, u64 burst_ns, u64 sleep_ns)
{
	static struct signal_struct single = { 1 };
	int i;

	for (i = 0; i < n; i++) {
		make_task(&at_root, &single, 100 + i, burst_ns, sleep_ns);
		task[nr_tasks - 1].cpu = i % (CPUS / NODES);
		task[nr_tasks - 1].se.sum_exec_runtime = 1;
	}
}

/*
 * Tasks are woken in the first LLC, which has four CPUs. Each is busy for half of the time, and the scheduler
 * knows the length of its bursts. Loops use some CPUs of the node's other LLC.
 */
static void crowded_llc(int n, u64 burst_ns, int loops)
{
	static struct cpumask other = { 15 << 4 };
	int i;

	make_on_first(n, burst_ns, burst_ns);
	make_on_first(loops, 0, 0);
	for (i = 0; i < n; i++) {
		task[i].cpu = i % PER_LLC;
		task_of(&task[i])->burst = burst_ns;
	}
	for (; i < n + loops; i++) {
		task[i].cpu = PER_LLC + i - n;
		limit(&task[i], &other);
	}
	measure(1, n);
}

/* A loop, on whose CPU a kernel thread runs now and then, and tasks in another LLC of the node. */
static void kernel_threads(void)
{
	static struct signal_struct single = { 1 };
	static struct cpumask one[MOST];
	int i;

	make_on_first(1, 0, 0);
	for (i = 0; i < PER_LLC; i++) {
		one[i].bits[0] = 1ull << i;
		make_task(&at_root, &single, 200 + i, MS / 5, 40 * MS);
		task[nr_tasks - 1].cpu = i;
		task[nr_tasks - 1].flags = PF_KTHREAD;
		limit(&task[nr_tasks - 1], &one[i]);
	}
	for (i = 0; i < PER_LLC; i++) {
		make_task(&at_root, &single, 300 + i, MS / 5, 2 * MS);
		task[nr_tasks - 1].cpu = PER_LLC + i;
		task[nr_tasks - 1].se.sum_exec_runtime = 1;
	}
	measure(1, 1);
}

/*
 * A loop in an LLC where short tasks leave one CPU to it. A kernel thread takes that CPU now and then. The
 * node's other LLC has the same short tasks, but no loop.
 */
static void displaced(void)
{
	static struct cpumask llc[2] = { { 15 }, { 15 << 4 } }, one[MOST];
	struct task_struct *p;
	int i;

	make_on_first(1, 0, 0);
	make_on_first(2 * (PER_LLC - 1), MS / 5, MS / 5);
	for (i = 1; i < nr_tasks; i++) {
		task[i].cpu = i % (2 * PER_LLC);
		limit(&task[i], &llc[task[i].cpu / PER_LLC]);
	}
	make_on_first(2 * PER_LLC, MS / 5, 20 * MS);
	for (i = 0; i < 2 * PER_LLC; i++) {
		p = &task[nr_tasks - 1 - i];
		p->cpu = i;
		p->flags = PF_KTHREAD;
		one[i].bits[0] = 1ull << i;
		limit(p, &one[i]);
	}
	measure(1, 1);
}

/* Three loops in the first LLC start another program, one after the other. */
static void exec_loops(void)
{
	int i;

	make_on_first(3, 0, 0);
	run(SECOND);
	for (i = 0; i < 3; i++) {
		here = task[i].cpu;
		roost_exec(&task[i], 0, NULL);
		run(SECOND);
	}
	measure(1, 3);
}

/* Loops that fill an LLC, and a loop of nice 19 bound to one of its CPUs. */
static void bound_loop(void)
{
	static struct cpumask llc = { 15 }, one = { 1 };
	int i;

	make_on_first(41, 0, 0);
	for (i = 0; i < 40; i++) {
		task[i].cpu = i % PER_LLC;
		limit(&task[i], &llc);
	}
	task[40].cpu = 0;
	task[40].scx.weight = 1;
	limit(&task[40], &one);
	measure(1, 41);
}

/* Loops of nice -20, one for each CPU of an LLC, and a loop of nice 19. */
static void heavy_loops(void)
{
	static struct cpumask llc = { 15 };
	int i;

	make_on_first(PER_LLC + 1, 0, 0);
	for (i = 0; i <= PER_LLC; i++) {
		task[i].cpu = i % PER_LLC;
		task[i].scx.weight = i < PER_LLC ? 8876 : 1;
		limit(&task[i], &llc);
	}
	measure(1, PER_LLC + 1);
}

/* Loops have had an LLC to themselves, one on each CPU, when as many others come. */
static void newcomers(void)
{
	static struct cpumask llc = { 15 };
	int i;

	make_on_first(PER_LLC, 0, 0);
	for (i = 0; i < 2 * PER_LLC; i++) {
		if (i == PER_LLC) {
			run(10 * SECOND);
			make_on_first(PER_LLC, 0, 0);
		}
		task[i].cpu = i % PER_LLC;
		limit(&task[i], &llc);
	}
	measure(1, 2 * PER_LLC);
}

/*
 * Twelve loops in an LLC of four CPUs, and a task that sleeps for 10 ms and then runs for 0.2 ms, again and
 * again.
 */
static void sleeper(void)
{
	static struct cpumask llc = { 15 };
	int i;

	make_on_first(12, 0, 0);
	make_on_first(1, MS / 5, 10 * MS);
	for (i = 0; i < 13; i++) {
		task[i].cpu = i % PER_LLC;
		limit(&task[i], &llc);
	}
	measure(13, 13);
}

/* Two loops share a CPU, and may later use the next CPU too. Other CPUs of the LLC are idle. */
static void widened(void)
{
	static struct cpumask one = { 1 << 3 }, two = { 3 << 2 };
	int i;

	make_on_first(2, 0, 0);
	for (i = 0; i < 2; i++) {
		task[i].cpu = 3;
		limit(&task[i], &one);
	}
	run(SECOND);
	for (i = 0; i < 2; i++)
		limit(&task[i], &two);
	measure(1, 2);
}

/* A task leaves a queue for another scheduling class, and stays there for an hour. */
static void other_class(void)
{
	static struct cpumask llc = { 15 };
	int i, away = -1;

	make_on_first(6, 0, 0);
	for (i = 0; i < 6; i++)
		limit(&task[i], &llc);
	run(SECOND);
	for (i = 0; i < 6 && away < 0; i++)
		if (task_of(&task[i])->waits_in != NONE)
			away = i;
	unlink(&task[away]);
	task[away].runnable = false;
	task[away].wakes_at = ~0ull;
	roost_disable(&task[away]);
	run(SECOND);
	if (llc_at(0)->waiting != scx_bpf_dsq_nr_queued(0))
		exit(4);
	now_ns += 3600 * SECOND;
	for (i = 0; i < CPUS; i++)
		cpu[i].since = now_ns;
	/* The task finds an idle CPU. */
	limit(&task[away], &everywhere);
	task[away].wakes_at = now_ns;
	measure(1, 6);
}

/* As balance_push(): a task goes from its CPU to CPU `number`, which it may use from now on. */
static void push(struct task_struct *p, int number)
{
	if (p->nr_cpus_allowed == 1)
		limit(p, &everywhere);
	p->cpu = local_of = other_than(number);
	roost_enqueue(p, 0);
}

/* As sched_cpu_deactivate(): the CPU's running task and the tasks in its local queue go elsewhere. */
static void go_offline(int number)
{
	struct cpu *c = &cpu[number];
	struct task_struct *p = c->curr;

	here = number;
	c->offline = true;
	roost_cpu_offline(number);
	if (p) {
		account(number);
		roost_stopping(p, true);
		push(p, number);
		become_idle(number);
	}
	while ((p = pick(c)))
		push(p, number);
}

/*
 * As many loops as CPUs, two of them bound to one CPU, and tasks that wake up. The CPU with the bound loops
 * goes offline and comes back.
 */
static void hotplug(void)
{
	static struct signal_struct single = { 1 };
	static struct cpumask one = { 1 << 5 };
	int i, gone = 5;

	make_on_first(CPUS, 0, 0);
	for (i = 0; i < 2; i++) {
		task[i].cpu = gone;
		limit(&task[i], &one);
	}
	for (i = 0; i < 24; i++)
		make_task(&at_root, &single, 500 + i, MS / 5, 4 * MS);
	run(2 * SECOND);
	go_offline(gone);
	for (i = 0; i < nr_tasks; i++)
		memset(task[i].ran_on, 0, sizeof(task[i].ran_on));
	run(5 * SECOND);
	for (i = 0; i < nr_tasks; i++)
		if (task[i].ran_on[gone] || task[i].nr_cpus_allowed == 1)
			exit(6);
	if (exited || word_at(1)->idle & 1 << gone % PER_LLC || llc_at(1)->nr_cpus != PER_LLC - 1)
		exit(7);
	cpu[gone].offline = false;
	roost_cpu_online(gone);
	become_idle(gone);
	if (llc_at(1)->nr_cpus != PER_LLC || node_at(0)->nr_cpus != CPUS / NODES)
		exit(8);
	measure(1, CPUS);
}

/*
 * On one CPU: a bound loop next to kernel threads of that CPU, one that loops and one that wakes up repeatedly.
 */
static void busy_kernel_threads(void)
{
	static struct cpumask one = { 1 };
	int i;

	make_on_first(3, 0, 0);
	for (i = 0; i < 3; i++) {
		task[i].cpu = 0;
		task[i].flags = i < 2 ? PF_KTHREAD : 0;
		limit(&task[i], &one);
	}
	task[1].burst_ns = MS / 5;
	task[1].sleep_ns = 2 * MS;
	run(10 * SECOND);
	print_group(0, 0, 1, 1);
	print_group(1, 2, 3, 1);
}

/*
 * The loops of heavy_loops(). The one of nice 19 is queued again every 0.9 s, as after a change of its
 * affinity.
 */
static void queued_again(void)
{
	static struct cpumask llc = { 15 };
	struct task_struct *last = &task[PER_LLC];
	u64 ran = 0, gap_ns = 0, longest_ns = 0;
	int i;

	make_on_first(PER_LLC + 1, 0, 0);
	for (i = 0; i <= PER_LLC; i++) {
		task[i].cpu = i % PER_LLC;
		task[i].scx.weight = i < PER_LLC ? 8876 : 1;
		limit(&task[i], &llc);
	}
	for (i = 0; i < 20; i++) {
		run(9 * SECOND / 10);
		gap_ns = last->se.sum_exec_runtime == ran ? gap_ns + 9 * SECOND / 10 : 0;
		longest_ns = gap_ns > longest_ns ? gap_ns : longest_ns;
		ran = last->se.sum_exec_runtime;
		if (task_of(last)->waits_in == NONE)
			continue;
		unlink(last);
		here = local_of = last->cpu;
		roost_enqueue(last, 0);
	}
	printf("longest_ns %lu\n", longest_ns);
}

/*
 * Five loops share an LLC that they may not leave, and the CPUs of their node's other LLC are idle. The other
 * node has two loops more than CPUs. After a second these loops may leave it.
 */
static void masked_beside_idle(void)
{
	static struct cpumask llc = { 15 }, node = { 0xff00 };
	int i;

	make_on_first(5 + CPUS / NODES + 2, 0, 0);
	for (i = 0; i < nr_tasks; i++) {
		task[i].cpu = i < 5 ? i % PER_LLC : CPUS / NODES + i % (CPUS / NODES);
		limit(&task[i], i < 5 ? &llc : &node);
	}
	run(SECOND);
	for (i = 5; i < nr_tasks; i++) {
		limit(&task[i], &everywhere);
		memset(task[i].ran_on, 0, sizeof(task[i].ran_on));
	}
	run(10 * SECOND);
	print_group(0, 5, nr_tasks, 1);
}

/*
 * Loops that may use only CPUs 0 and 1, loops that may use only CPUs 2 and 3, and one that may use only CPU 2.
 */
static void masked_heads(void)
{
	static struct cpumask first = { 3 }, second = { 12 }, one = { 4 };
	int i;

	make_on_first(24, 0, 0);
	for (i = 0; i < 24; i++) {
		task[i].cpu = i < 20 ? i % 2 : 2;
		limit(&task[i], i < 20 ? &first : i < 23 ? &second : &one);
	}
	run(10 * SECOND);
	print_group(0, 20, 23, 1);
	print_group(1, 23, 24, 1);
}

/* Loops of nice 5 bound to CPU 0, and a loop of nice 0 and one of nice 5 bound to CPU 1. */
static void pinned(void)
{
	static struct cpumask first = { 1 }, second = { 2 };
	int i;

	make_on_first(4, 0, 0);
	for (i = 0; i < 4; i++) {
		task[i].cpu = i / 2;
		task[i].scx.weight = i == 2 ? 100 : 33;
		limit(&task[i], i < 2 ? &first : &second);
	}
	run(10 * SECOND);
	print_group(0, 2, 3, 1);
	print_group(1, 3, 4, 1);
}

/* A loop of weight 200 bound to CPU 0, and a loop that may also use another CPU, which is offline. */
static void pinned_beside_one(void)
{
	static struct cpumask one = { 1 }, two = { 3 };
	int i;

	go_offline(1);
	make_on_first(2, 0, 0);
	for (i = 0; i < 2; i++) {
		task[i].cpu = 0;
		task[i].scx.weight = i ? 100 : 200;
		limit(&task[i], i ? &two : &one);
	}
	run(10 * SECOND);
	print_group(0, 0, 1, 1);
	print_group(1, 1, 2, 1);
}

/* A task bound to CPU 0 has had it to itself for a minute. Then more loops come than the LLC has CPUs. */
static void pinned_worker(void)
{
	static struct cpumask llc = { 15 }, one = { 1 };
	int i;

	make_on_first(1, MS, MS);
	task[0].cpu = 0;
	limit(&task[0], &one);
	run(60 * SECOND);
	make_on_first(2 * PER_LLC, 0, 0);
	for (i = 1; i <= 2 * PER_LLC; i++) {
		task[i].cpu = i % PER_LLC;
		limit(&task[i], &llc);
	}
	measure(1, 1);
}

/*
 * Twelve loops in an LLC, and one of nice 19 that is an RCU reader for its first 100 ms. Prints how long these
 * take.
 */
static void rcu_reader(void)
{
	static struct cpumask llc = { 15 };
	struct task_struct *reader = &task[3 * PER_LLC];
	u64 began, read_ns;
	int i;

	make_on_first(3 * PER_LLC + 1, 0, 0);
	for (i = 0; i <= 3 * PER_LLC; i++) {
		task[i].cpu = i % PER_LLC;
		limit(&task[i], &llc);
	}
	reader->scx.weight = 1;
	run(SECOND);
	reader->rcu_read_lock_nesting++;
	began = now_ns;
	read_ns = reader->se.sum_exec_runtime + 100 * MS;
	while (reader->se.sum_exec_runtime < read_ns && now_ns < began + 60 * SECOND)
		run(MS);
	printf("read_ns %lu\n", now_ns - began);
	reader->rcu_read_lock_nesting--;
	measure(1, 3 * PER_LLC);
	print_group(1, 3 * PER_LLC, nr_tasks, 1);
}

/*
 * Loops in all LLCs. Sixteen may not leave the first LLC, four may not leave the last. Eight and four are in
 * the others.
 */
static void evened_beside_masked(void)
{
	static struct cpumask first = { 0xf }, last = { 0xf000 }, middle = { 0xff0 };
	int i, llc;

	make_on_first(32, 0, 0);
	for (i = 0; i < 32; i++) {
		llc = i < 16 ? 0 : i < 24 ? 1 : i < 28 ? 2 : 3;
		task[i].cpu = llc * PER_LLC + i % PER_LLC;
		limit(&task[i], llc == 0 ? &first : llc == 3 ? &last : &middle);
	}
	run(10 * SECOND);
	for (i = 0; i < 32; i++)
		memset(task[i].ran_on, 0, sizeof(task[i].ran_on));
	run(10 * SECOND);
	print_group(0, 16, 24, 1);
	print_group(1, 24, 28, 1);
}

/*
 * Seven loops and a loop bound to one CPU share the four CPUs of an LLC. Before that, two loops were bound to
 * that CPU.
 */
static void pinned_among_others(void)
{
	static struct cpumask llc = { 15 }, one = { 1 };
	int i;

	make_on_first(2, 0, 0);
	for (i = 0; i < 2; i++) {
		task[i].cpu = 0;
		task[i].scx.weight = 33;
		limit(&task[i], &one);
	}
	run(5 * SECOND);
	make_on_first(6, 0, 0);
	for (i = 1; i < 8; i++) {
		task[i].cpu = i % PER_LLC;
		limit(&task[i], &llc);
	}
	task[0].scx.weight = 200;
	task[1].scx.weight = 100;
	run(SECOND);
	for (i = 0; i < 8; i++)
		memset(task[i].ran_on, 0, sizeof(task[i].ran_on));
	run(10 * SECOND);
	print_group(0, 0, 1, 1);
	print_group(1, 1, 8, 1);
}

/* A task may use one CPU in each of two LLCs. It waits in the first LLC when its CPU there goes offline. */
static void masked_offline(void)
{
	static struct cpumask two = { 1 << 3 | 1 << 5 };

	make_on_first(1, 0, 0);
	limit(&task[0], &two);
	task[0].cpu = PER_LLC + 1;
	enqueue_in(&task[0], task_of(&task[0]), cpu_at(task[0].cpu), 0, 0);
	roost_cpu_offline(3);
	if (cpu[PER_LLC + 1].local != &task[0] || allowed_in(&task[0], 0))
		exit(10);
}

/*
 * A task that is about to move to another LLC because of its weight is queued again. It stays, and must be
 * counted where it is.
 */
static void moved_too_late(void)
{
	make_on_first(1, 0, 0);
	enqueue_in(&task[0], task_of(&task[0]), cpu_at(task[0].cpu), 0, 0);
	llc_at(0)->load = 1000 * UNIT;
	llc_at(0)->serving = llc_at(1)->serving = PER_LLC;
	queued_anew = true;
	if (even_out_pair(0, 1))
		exit(11);
	check_counts();
	queued_anew = false;
	if (!even_out_pair(0, 1))
		exit(12);
	check_counts();
}

/* Two loops are bound to a CPU that starts to go offline. */
static void leaving(void)
{
	static struct cpumask one = { 1 << 5 };
	int i;

	make_on_first(2, 0, 0);
	for (i = 0; i < 2; i++) {
		task[i].cpu = 5;
		limit(&task[i], &one);
	}
	run(SECOND);
	if (!cpu_queue[5])
		exit(13);
	cpu[5].leaving = true;
	run(SECOND);
	if (cpu_queue[5])
		exit(14);
}

/* A task waits when a realtime task wakes up on an idle CPU. */
static void realtime(void)
{
	make_on_first(1, 0, 0);
	enqueue_in(&task[0], task_of(&task[0]), cpu_at(task[0].cpu), 0, 0);
	cpu[1].realtime = true;
	schedule(1);
	if (cpu[1].curr || !llc_queue[0])
		exit(15);
	cpu[1].realtime = false;
	schedule(1);
	if (cpu[1].curr != &task[0])
		exit(16);
}

/* Realtime tasks use three of the first LLC's CPUs. Sixteen loops may use this LLC and the next one. */
static void hogs(void)
{
	static struct cpumask node = { 255 };
	int i;

	for (i = 0; i < 3; i++) {
		cpu[i].realtime = cpu[i].busy = true;
		cpu[i].idle = false;
		roost_update_idle(i, false);
	}
	make_on_first(16, 0, 0);
	for (i = 0; i < 16; i++) {
		task[i].cpu = 3 + i % 5;
		limit(&task[i], &node);
	}
	run(10 * SECOND);
	measure(16, 16);
}

/* A loop whose nice value is set every 0.5 ms. */
static void reniced_loop(void)
{
	int i;

	make_on_first(1, 0, 0);
	for (i = 0; i < 2000; i++) {
		run(MS / 2);
		here = task[0].cpu;
		roost_stopping(&task[0], false);
		roost_running(&task[0]);
	}
	if (!is_long(task_of(&task[0])))
		exit(17);
}

/* A process that settled ends, and another process gets its number. */
static void number_again(void)
{
	static struct signal_struct several = { 4 };
	u32 index, set;
	int i;

	for (i = 0; i < 8; i++) {
		make_task(&at_root, &several, 100, 0, 0);
		task[i].cpu = i % 4;
		task[i].group_leader = &task[i / 4 * 4];
		task[i].start_boottime = 1 + i / 4;
		if (i >= 4)
			task[i].wakes_at = now_ns + 10 * SECOND;
	}
	run(9 * SECOND);
	index = task_of(&task[0])->process;
	if (settled_on(index) == NONE)
		exit(18);
	for (i = 0; i < 4; i++) {
		task[i].sleep_ns = 200 * SECOND;
		task[i].left_ns = 0;
	}
	run(SECOND + SECOND / 2);
	set = task_of(&task[4])->process;
	if (set != index || settled_on(set) != NONE)
		exit(19);
}

/* A process of twelve loops. All but the `first` ones start `later` than these. */
static void ramp(int first, u64 later)
{
	static struct signal_struct several = { 12 };
	u64 start = now_ns;
	int i;

	for (i = 0; i < 12; i++) {
		make_task(&at_root, &several, 100, 0, 0);
		task[i].group_leader = &task[0];
		task[i].cpu = i % 4;
		task[i].wakes_at = now_ns + (i < first ? 0 : later);
	}
	run(later);
	do
		run(WATCH_NS);
	while (settled_on(task_of(&task[0])->process) != NONE && now_ns < start + 60 * SECOND);
	printf("left_after %lu\n", now_ns - start - later);
	measure(1, 12);
}

/* The watch reads a stale time on an idle CPU. */
static void old_time(void)
{
	struct roost_watch watch = {};
	u64 looked = 0;
	int i;

	for (i = 0; i < 10; i++) {
		now_ns += i % 2 ? 2 * WATCH_NS - MS : MS;
		if (before(watch_time(&watch), looked + WATCH_NS / 2))
			exit(20);
		looked = watch.at;
	}
	if (before(now_ns + WATCH_NS, watch.at))
		exit(21);
}

/* Sets a limit in percent of a CPU. 0 removes the limit. */
static void set_max(struct css_set *set, u64 percent)
{
	roost_cgroup_set_bandwidth(set->dfl_cgrp, 100000, percent ? percent * 1000 : NO_QUOTA, 0);
}

static void make_loops(struct css_set *set, int n)
{
	static struct signal_struct single = { 1 };
	int i;

	for (i = 0; i < n; i++)
		make_task(set, &single, 100 + nr_tasks, 0, 0);
}

/* Runs for `ns`, and prints how long each group of `each_n` tasks ran in this time. */
static void print_shares(u64 ns, int groups, int each_n)
{
	int i;

	for (i = 0; i < nr_tasks; i++)
		memset(task[i].ran_on, 0, sizeof(task[i].ran_on));
	run(ns);
	for (i = 0; i < groups; i++)
		print_group(i, i * each_n, (i + 1) * each_n, 1);
}

/*
 * Groups of four loops with limits of 20%, 50% and 250%, four loops without a limit, and tasks that run and
 * sleep. One second is measured.
 */
static void limits_beside(void)
{
	static struct signal_struct single = { 1 };
	const u64 percent[] = { 20, 50, 250, 0 };
	struct css_set *set;
	int i;

	for (i = 0; i < 4; i++) {
		set = make_cgroup(10 + i, 100);
		set_max(set, percent[i]);
		make_loops(set, 4);
	}
	for (i = 0; i < 24; i++)
		make_task(&at_root, &single, 500 + i, MS / 5, 10 * MS);
	run(5 * SECOND);
	print_shares(SECOND, 4, 4);
	print_counters();
}

/*
 * A group with a limit of 20%. It contains two loops, a group of two loops with a limit of 50%, and a group of
 * two loops without a limit.
 */
static void limits_nested(void)
{
	struct css_set *parent = make_cgroup(10, 100), *child[2];
	int i;

	set_max(parent, 20);
	make_loops(parent, 2);
	for (i = 0; i < 2; i++) {
		child[i] = make_cgroup_in(parent->dfl_cgrp, 11 + i, 100);
		set_max(child[i], i ? 0 : 50);
		make_loops(child[i], 2);
	}
	run(2 * SECOND);
	print_shares(SECOND, 3, 2);
	/* From now on the inner limit is the lower one. */
	set_max(parent, 200);
	run(SECOND / 10);
	print_shares(SECOND, 3, 2);
}

/* Four loops with a limit of 20%, then 50%, then none, then 20% again. */
static void limits_changed(bool is_told)
{
	struct css_set *set = make_cgroup(10, 100);
	const u64 percent[] = { 20, 50, 0, 20 };
	int i;

	told = is_told;
	make_loops(set, 4);
	for (i = 0; i < 4; i++)
		task[i].sched_task_group = 1;
	for (i = 0; i < 4; i++) {
		if (told)
			set_max(set, percent[i]);
		else
			fair_bandwidths[1] = (struct roost_bandwidth){
				100 * MS, percent[i] ? percent[i] * MS : NO_QUOTA };
		run(SECOND / 5);
		print_shares(SECOND, 1, 4);
	}
}

/*
 * A hundred loops with a limit of 1%. Prints how long they ran in a minute, and the longest time for which one
 * of them did not run.
 */
static void limits_crowd(void)
{
	struct css_set *set = make_cgroup(10, 100);
	u64 ran[100] = {}, since[100], longest = 0, end = now_ns + 60 * SECOND;
	int i;

	set_max(set, 1);
	make_loops(set, 100);
	for (i = 0; i < 100; i++)
		since[i] = now_ns;
	while (now_ns < end) {
		run(10 * MS);
		for (i = 0; i < 100; i++) {
			if (task[i].se.sum_exec_runtime != ran[i])
				since[i] = now_ns;
			ran[i] = task[i].se.sum_exec_runtime;
			longest = now_ns - since[i] > longest ? now_ns - since[i] : longest;
		}
	}
	print_group(0, 0, 100, 1);
	printf("longest_ns %lu\n", longest);
}

/* Tasks that run for 0.2 ms and sleep for 2 ms, and together need 3 CPUs. Their limit is `percent`. */
static void limits_sleepers(u64 percent)
{
	static struct signal_struct single = { 1 };
	struct css_set *set = make_cgroup(10, 100);
	int i;

	set_max(set, percent);
	for (i = 0; i < 32; i++)
		make_task(set, &single, 500 + i, MS / 5, 2 * MS);
	run(2 * SECOND);
	print_shares(10 * SECOND, 1, 32);
	print_counters();
}

/* Two loops with a limit of 20%, bound to one CPU, which they share with another loop. */
static void limits_bound(void)
{
	static struct cpumask one = { 1 << 3 };
	struct css_set *set = make_cgroup(10, 100);
	int i;

	set_max(set, 20);
	make_loops(set, 2);
	make_loops(&at_root, 2);
	for (i = 0; i < 3; i++) {
		task[i].cpu = 3;
		limit(&task[i], &one);
	}
	task[3].cpu = 8;
	run(SECOND);
	print_shares(SECOND, 2, 2);
}

static bool is_parked(const struct task_struct *p)
{
	return p->storage->waits_in == PARKED;
}

/* As sched_move_task() for a task that waits. */
static void move_to(struct task_struct *p, struct css_set *set)
{
	struct css_set *from = p->cgroups;

	unlink(p);
	p->cgroups = set;
	roost_cgroup_move(p, from->dfl_cgrp, set->dfl_cgrp);
	here = local_of = p->cpu;
	roost_enqueue(p, 0);
}

/*
 * Parked loops exit, change to another cgroup, or lose their CPU. Then their cgroup is removed, and another one
 * gets its entry.
 */
static void limits_left(void)
{
	struct css_set *set = make_cgroup(10, 100), *next;
	int i, moved = -1;

	set_max(set, 1);
	make_loops(set, 4);
	run(SECOND);
	for (i = 0; i < 4; i++)
		if (is_parked(&task[i]))
			moved = i;
	if (moved < 0)
		exit(22);
	move_to(&task[moved], &at_root);
	run(100 * MS);
	if (is_parked(&task[moved]) || cpu[task[moved].cpu].curr != &task[moved])
		exit(23);
	moved = (moved + 1) % 4;
	task[moved].flags = PF_EXITING;
	/* Once it runs, it is not parked again. */
	run(3 * SECOND);
	if (task[moved].se.sum_exec_runtime < SECOND)
		exit(24);
	for (i = 0; i < 4; i++)
		if (is_parked(&task[i]))
			moved = i;
	go_offline(task[moved].cpu);
	if (cpu[task[moved].cpu].offline || !is_parked(&task[moved]))
		exit(25);
	for (i = 0; i < 4; i++)
		if (is_parked(&task[i]))
			move_to(&task[i], &at_root);
		else
			roost_cgroup_move(&task[i], set->dfl_cgrp, &root);
	roost_cgroup_exit(set->dfl_cgrp);
	next = make_cgroup(11, 100);
	make_loops(next, 1);
	if (task_of(&task[4])->share != 0 || task_of(&task[4])->limit != NONE)
		exit(26);
	run(SECOND);
	print_shares(SECOND, 5, 1);
	if (limit_at(0)->throttled || scx_bpf_dsq_nr_queued(LIMIT_QUEUE))
		exit(27);
}

/* CPUs whose coming or going requires that the scheduler is loaded again. */
static void new_start(bool last)
{
	int i;

	if (last)
		for (i = 0; i < PER_LLC; i++)
			roost_cpu_offline(i);
	cpu_at(0)->llc = NONE;
	if (!last)
		roost_cpu_online(0);
	if (!exited)
		exit(9);
}

/*
 * A hundred processes of two threads, one after the other, each in a cgroup of its own. The tables have room
 * for 64.
 */
static void processes_come_and_go(void)
{
	struct css_set *cgroup;
	struct signal_struct *process;
	int i, j;

	for (i = 0; i < 100; i++) {
		cgroup = make_cgroup(10 + i, 100);
		process = calloc(1, sizeof(*process));
		*process = (struct signal_struct){ 2, { 2 } };
		for (j = 0; j < 2; j++)
			make_task(cgroup, process, 100 + i, 0, 0);
		run(20 * MS);
		for (j = 0; j < 2; j++) {
			struct task_struct *p = &task[2 * i + j];

			p->sleep_ns = 200 * SECOND;
			p->left_ns = 0;
		}
		run(10 * MS);
		for (j = 0; j < 2; j++) {
			task[2 * i + j].flags |= PF_EXITING;
			process->live.counter--;
			roost_disable(&task[2 * i + j]);
		}
		roost_cgroup_exit(cgroup->dfl_cgrp);
	}
	run(SECOND);
	printf("groups_used %u\nprocesses_used %u\nfull %u\n", groups_used, processes_used, full);
	print_counters();
}

/* The same processes, all at once. */
static void many_processes(void)
{
	struct signal_struct *process;
	int i;

	for (i = 0; i < 200; i++) {
		process = calloc(1, sizeof(*process));
		*process = (struct signal_struct){ 2, { 2 } };
		make_task(make_cgroup(10 + i, 100), process, 100 + i, 0, 0);
	}
	run(SECOND);
	printf("full %u\n", full);
	print_counters();
}

/* The CPUs from `first` to before `end`. */
static struct cpumask *cpus_from(int first, int end)
{
	struct cpumask *mask = calloc(1, sizeof(*mask));

	for (; first < end; first++)
		mask->bits[first / 64] |= 1ull << first % 64;
	return mask;
}

/* Prints the cost of calls on a large machine, after half a second. */
static void measure_costs(u64 ns)
{
	run(SECOND / 2);
	memset(costs, 0, sizeof(costs));
	run(ns);
	print_costs();
	print_counters();
}

/*
 * A parent on the first CPU forks three loops for each CPU within 100 ms. Prints each loop's share of a CPU
 * after two seconds.
 */
static void forked(void)
{
	static struct signal_struct single = { 1 };
	u64 least = ~0ull, most = 0, ran;
	int i, c, n = 3 * CPUS;

	for (i = 0; i < n; i++) {
		make_task(&at_root, &single, 100 + i, 0, 0);
		task[i].cpu = 0;
		task[i].wakes_at = now_ns + i * 100 * MS / n;
	}
	run(100 * MS + 2 * SECOND);
	for (i = 0; i < n; i++)
		memset(task[i].ran_on, 0, sizeof(task[i].ran_on));
	run(SECOND);
	for (i = 0; i < n; i++) {
		for (c = 0, ran = 0; c < CPUS; c++)
			ran += task[i].ran_on[c];
		least = ran < least ? ran : least;
		most = ran > most ? ran : most;
	}
	printf("least %lu\nmost %lu\n", least, most);
	print_costs();
	print_counters();
}

/* Two processes of loops and sleeping tasks use every CPU. Each task may not use one CPU of the other node. */
static void with_affinity(void)
{
	static struct signal_struct several = { 9 };
	struct css_set *cgroup[2] = { make_cgroup(10, 100), make_cgroup(11, 100) };
	int i, node;

	for (i = 0; i < 2 * CPUS; i++) {
		node = i % 2;
		make_task(cgroup[node], &several, 100 + node, i < CPUS ? 0 : MS, i < CPUS ? 0 : 4 * MS);
		task[i].cpu = node * CPUS / 2 + i / 2 % (CPUS / 2);
		limit(&task[i], cpus_from(node ? 2 : 0, node ? CPUS : CPUS / 2));
	}
	measure_costs(SECOND / 2);
}

/* A node has three loops on each CPU, which may not leave it. The other node has tasks that run and sleep. */
static void full_beside_idle(void)
{
	static struct signal_struct several = { 9 };
	struct css_set *cgroup[2] = { make_cgroup(10, 100), make_cgroup(11, 100) };
	struct cpumask *first = cpus_from(0, CPUS / 2);
	int i, loops = 3 * CPUS / 2;

	for (i = 0; i < loops + CPUS; i++) {
		make_task(cgroup[i >= loops], &several, 100 + (i >= loops), i < loops ? 0 : MS / 5, i < loops ? 0 : MS);
		task[i].cpu = i < loops ? i % (CPUS / 2) : CPUS / 2 + i % (CPUS / 2);
		task[i].se.sum_exec_runtime = 1;
		if (i < loops)
			limit(&task[i], first);
	}
	measure_costs(SECOND / 5);
}

/* Tasks that wake up on an idle machine. Each may use two LLCs, but there was no memory left to record that. */
static void unknown_affinities(void)
{
	static struct cpumask two = { 255 };
	int i;

	no_memory = true;
	make_on_first(6, MS, 10 * MS);
	for (i = 0; i < 6; i++)
		limit(&task[i], &two);
	measure(1, 6);
}

/* Every other LLC of a node is a cpuset with three times as many tasks as CPUs. Everything else is idle. */
static void crowded_cpusets_beside_idle(void)
{
	static struct signal_struct single = { 1 };
	struct cpumask *part[MOST];
	int i, llc, n = 0;

	for (i = 0; i < LLCS; i++)
		part[i] = cpus_from(i * PER_LLC, (i + 1) * PER_LLC);
	for (llc = 0; llc < LLCS / NODES; llc += 2)
		for (i = 0; i < 3 * PER_LLC; i++, n++) {
			make_task(&at_root, &single, 100 + n, i % 2 ? 5 * MS : MS / 5, 2 * MS);
			task[n].cpu = llc * PER_LLC + i % PER_LLC;
			task[n].se.sum_exec_runtime = 1;
			limit(&task[n], part[llc]);
		}
	measure_costs(SECOND / 2);
}

/* Tasks that run and sleep, and use `percent` of each CPU's time. With `threads`, all belong to one process. */
static void near_saturation(int percent, bool threads)
{
	struct signal_struct *process = calloc(1, sizeof(*process));
	int i, n = 2 * CPUS;

	process->nr_threads = threads ? n : 1;
	wakers = threads ? task : NULL;
	for (i = 0; i < n; i++) {
		make_task(&at_root, process, threads ? 100 : 100 + i, MS / 2, MS * 100 / percent - MS / 2);
		task[i].cpu = i % CPUS;
		task[i].se.sum_exec_runtime = 1;
		task_of(&task[i])->burst = MS / 2;
	}
	measure_costs(SECOND / 5);
}

int main(int argc, char **argv)
{
	const char *scenario = argc > 1 ? argv[1] : "";

	srand(argc > 2 ? atoi(argv[2]) : 1);
	if (argc > 5) {
		NODES = atoi(argv[3]);
		LLCS = atoi(argv[4]);
		PER_LLC = atoi(argv[5]);
	}
	make_machine();
	if (!strcmp(scenario, "four-groups"))
		loops(4, 4, false, 24, 10 * MS);
	else if (!strcmp(scenario, "four-groups-in-guest")) {
		hosts = 2;
		loops(4, 4, false, 40, 2 * MS);
	} else if (!strcmp(scenario, "three-groups"))
		loops(3, 6, false, 0, 0);
	else if (!strcmp(scenario, "processes"))
		loops(2, 8, true, 0, 0);
	else if (!strcmp(scenario, "weights"))
		weights(32);
	else if (!strcmp(scenario, "overloaded-cpuset"))
		overloaded_cpuset();
	else if (!strcmp(scenario, "many-in-one"))
		many_in_one(240);
	else if (!strcmp(scenario, "excluded")) {
		/* The loader reports this after a while. */
		u32 flag = SET_EXCLUDED, second = 1;

		loops(4, 4, false, 0, 0);
		bpf_map_update_elem(&set_flags, &second, &flag, BPF_ANY);
		measure(4, 16);
	} else if (!strcmp(scenario, "barred"))
		barred_group();
	else if (!strcmp(scenario, "own-process"))
		own_process();
	else if (!strcmp(scenario, "shrunk"))
		shrunk_group();
	else if (!strcmp(scenario, "grown"))
		grown_group();
	else if (!strcmp(scenario, "waits") || !strcmp(scenario, "waits-for-pages"))
		waits_for_pages(!strcmp(scenario, "waits-for-pages"));
	else if (!strcmp(scenario, "spread-process"))
		spread_process();
	else if (!strcmp(scenario, "crowded-cpusets"))
		crowded_cpusets();
	else if (!strcmp(scenario, "spanning-cpuset"))
		spanning_cpuset();
	else if (!strcmp(scenario, "large-group-with-siblings")) {
		make_siblings();
		loops(1, 6, false, 0, 0);
	} else if (!strcmp(scenario, "four-groups-with-siblings")) {
		make_siblings();
		loops(4, 4, false, 0, 0);
	}
	else if (!strcmp(scenario, "held") || !strcmp(scenario, "paused"))
		crowd(!strcmp(scenario, "paused"));
	else if (!strcmp(scenario, "exec") || !strcmp(scenario, "exec-off")) {
		numa_imbalance = !strcmp(scenario, "exec");
		exec_loops();
	} else if (!strcmp(scenario, "wakeups") || !strcmp(scenario, "wakeups-off")) {
		numa_imbalance = !strcmp(scenario, "wakeups");
		make_on_first(24, 5 * MS, 10 * MS);
		measure(1, 24);
	} else if (!strcmp(scenario, "long-bursts"))
		crowded_llc(5, 10 * MS, 3);
	else if (!strcmp(scenario, "short-bursts"))
		crowded_llc(6, MS, 0);
	else if (!strcmp(scenario, "brief-bursts"))
		crowded_llc(6, MS / 5, 0);
	else if (!strcmp(scenario, "brief-off")) {
		llc_imbalance = 0;
		crowded_llc(6, MS / 5, 0);
	} else if (!strcmp(scenario, "tolerated"))
		crowded_llc(5, MS, 3);
	else if (!strcmp(scenario, "bound-loop"))
		bound_loop();
	else if (!strcmp(scenario, "heavy-loops"))
		heavy_loops();
	else if (!strcmp(scenario, "newcomers"))
		newcomers();
	else if (!strcmp(scenario, "sleeper"))
		sleeper();
	else if (!strcmp(scenario, "widened"))
		widened();
	else if (!strcmp(scenario, "other-class"))
		other_class();
	else if (!strcmp(scenario, "hotplug"))
		hotplug();
	else if (!strcmp(scenario, "busy-kernel-threads"))
		busy_kernel_threads();
	else if (!strcmp(scenario, "queued-again"))
		queued_again();
	else if (!strcmp(scenario, "masked-beside-idle"))
		masked_beside_idle();
	else if (!strcmp(scenario, "masked-heads"))
		masked_heads();
	else if (!strcmp(scenario, "pinned"))
		pinned();
	else if (!strcmp(scenario, "pinned-beside-one"))
		pinned_beside_one();
	else if (!strcmp(scenario, "pinned-worker"))
		pinned_worker();
	else if (!strcmp(scenario, "rcu-reader"))
		rcu_reader();
	else if (!strcmp(scenario, "evened-beside-masked"))
		evened_beside_masked();
	else if (!strcmp(scenario, "pinned-among-others"))
		pinned_among_others();
	else if (!strcmp(scenario, "masked-offline"))
		masked_offline();
	else if (!strcmp(scenario, "leaving"))
		leaving();
	else if (!strcmp(scenario, "moved-too-late"))
		moved_too_late();
	else if (!strcmp(scenario, "realtime"))
		realtime();
	else if (!strcmp(scenario, "hogs"))
		hogs();
	else if (!strcmp(scenario, "reniced"))
		reniced_loop();
	else if (!strcmp(scenario, "number-again"))
		number_again();
	else if (!strcmp(scenario, "old-time"))
		old_time();
	else if (!strcmp(scenario, "limits"))
		limits_beside();
	else if (!strcmp(scenario, "limits-off")) {
		cgroup_limits = false;
		limits_beside();
	} else if (!strcmp(scenario, "limits-nested"))
		limits_nested();
	else if (!strcmp(scenario, "limits-changed") || !strcmp(scenario, "limits-read"))
		limits_changed(!strcmp(scenario, "limits-changed"));
	else if (!strcmp(scenario, "limits-crowd"))
		limits_crowd();
	else if (!strcmp(scenario, "limits-kept"))
		limits_sleepers(400);
	else if (!strcmp(scenario, "limits-exceeded"))
		limits_sleepers(200);
	else if (!strcmp(scenario, "limits-bound"))
		limits_bound();
	else if (!strcmp(scenario, "limits-left"))
		limits_left();
	else if (!strcmp(scenario, "begins-idle"))
		ramp(1, SECOND / 2);
	else if (!strcmp(scenario, "begins-small"))
		ramp(3, 8 * SECOND);
	else if (!strcmp(scenario, "new-cpu") || !strcmp(scenario, "last-cpu"))
		new_start(!strcmp(scenario, "last-cpu"));
	else if (!strcmp(scenario, "come-and-go"))
		processes_come_and_go();
	else if (!strcmp(scenario, "many-processes"))
		many_processes();
	else if (!strcmp(scenario, "unknown-affinities"))
		unknown_affinities();
	else if (!strcmp(scenario, "forked"))
		forked();
	else if (!strcmp(scenario, "with-affinity"))
		with_affinity();
	else if (!strcmp(scenario, "full-beside-idle"))
		full_beside_idle();
	else if (!strcmp(scenario, "crowded-beside-idle"))
		crowded_cpusets_beside_idle();
	else if (!strcmp(scenario, "near-saturation"))
		near_saturation(92, false);
	else if (!strcmp(scenario, "threads"))
		near_saturation(60, true);
	else if (!strcmp(scenario, "displaced"))
		displaced();
	else if (!strcmp(scenario, "kernel-threads"))
		kernel_threads();
	else if (!strcmp(scenario, "off")) {
		cling = consolidate = false;
		loops(4, 4, false, 24, 10 * MS);
	} else
		return 2;
	return 0;
}
