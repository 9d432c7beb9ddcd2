/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where sets of tasks settle, and how their tasks get there and stay there (cling, consolidate)
 *
 * Settling. Ten times a second every set's demand is measured, and one set without a node gets one:
 *
 *     1. Candidates are nodes that have room beside the sets settled there, and that are not busy.
 *     2. The candidate with the largest score wins: its share of the set's memory plus its share of the set's CPU
 *        time (roost/cling.h). Among equals the one with most room wins.
 *     3. If the node with the largest score has no room for a group, that is a failed attempt to reach it.
 *
 * A set does not settle if it needs more CPUs than the node has cores: no waiting would help it, and on several
 * nodes it has more cores. That is no failed attempt. A set does not settle either while its demand grows, if it has
 * needed so much lately that it would leave again, or if affinity keeps its tasks from the node. If settled sets turn
 * out to need more CPUs than the node has, the last to come leaves.
 *
 * Getting there. A task whose set settled on another node tries to reach that node when it wakes up and when its
 * slice is over, at most every retry_ms. It succeeds if a CPU there is idle. When its slice is over it also
 * succeeds if the node has room for all that settled there. Then it may wait there, however many tasks wait: the
 * others do not belong there, and idle CPUs of other nodes take them (queue.h). A wakeup that finds no idle CPU
 * there is no failed attempt, because the task was not refused: it did not want to wait.
 *
 * Staying. A wakeup never leaves the node. CPUs of other nodes do not take tasks of a group off its node, unless
 * failed attempts have made the node busy or tasks have waited there for cling_wait_us.
 *
 * Pausing. While failed attempts make a node busy, groups do not cling to it: their tasks belong nowhere, none of
 * them tries to get there, and no group settles there or fails to. So failed attempts are forgotten step by
 * step, and the pause ends.
 */
#ifndef ROOST_HOME_H
#define ROOST_HOME_H

#include "idle.h"
#include "sets.h"
#include <roost/cling.h>
#include <roost/consolidate.h>
#include <roost/llc_imbalance.h>

struct roost_home {
	u32 cores;		/* cores with an online CPU */
	u64 claimed;		/* demand of sets that settled here, times UNIT */
	u64 claiming;		/* the sum for the next value of claimed */
	u64 over_since;		/* since when more is claimed than the node has; 0: not so now */
	u64 latest_at;		/* when the last of these sets settled; latest: which set */
	u32 latest;
	bool full;		/* more is claimed than the node has */
	struct roost_cling_node attempts;
};

ARRAY(homes, struct roost_home);

u32 busiest = ROOST_NO_NODE;
u64 decayed_at;
u32 next_to_settle;

static __always_inline struct roost_home *home_at(u32 node)
{
	return bpf_map_lookup_elem(&homes, &node);
}

static __always_inline bool is_busy(u32 node)
{
	struct roost_home *home = home_at(node);

	return home && roost_cling_busy(&home->attempts, node, busiest, cling_degree);
}

/* The node that a set settled on. NONE if there is no set. */
static __always_inline u32 settled_on(u32 index)
{
	struct roost_set *set = index == NONE ? NULL : set_at(index);

	return set && set->id ? set->preferred : NONE;
}

/* The set that decides where a task belongs: its group, otherwise its process. NONE if it has neither. */
static __always_inline u32 deciding_of(u32 group, u32 process)
{
	if (settled_on(group) != NONE)
		return group;
	return settled_on(process) == NONE ? NONE : process;
}

static __always_inline u32 deciding_set(const struct roost_task *task)
{
	return deciding_of(task->group, task->process);
}

/* Whether a set does not cling to the node it settled on, because that node is busy. */
static __always_inline bool pauses(u32 set, u32 home)
{
	return home != NONE && !is_process(set) && is_busy(home);
}

/* The node where a task of these two sets belongs. NONE if there is none, or while the node pauses. */
__noinline u32 home_of_sets(u32 group, u32 process)
{
	u32 set = deciding_of(group, process), home = settled_on(set);

	return pauses(set, home) ? NONE : home;
}

static __always_inline u32 home_of(const struct roost_task *task)
{
	return any_set() ? home_of_sets(task->group, task->process) : NONE;
}

/* Whether a task stays on the node `src` although a CPU of `dst` would take it. */
static __always_inline bool holds(const struct roost_task *task, u32 src, u32 dst,
				  struct roost_counters *n)
{
	u32 home = settled_on(task->group);

	if (!roost_cling(true, home, src, dst, false))
		return false;
	if (is_busy(src)) {
		n->cling_paused++;
		return false;
	}
	n->cling_held++;
	return true;
}

/* Among the LLCs of a node that a task may use, the one with the fewest waiting tasks per CPU. */
static __always_inline u32 shortest_queue(struct task_struct *p, const struct roost_node *node)
{
	u64 least = ~0ull, queued;
	u32 best = NONE, id;
	struct roost_llc *llc;
	int i;

	bpf_for(i, 0, node->nr_llcs) {
		id = node->first_llc + i;
		llc = llc_at(id);
		if (!llc)
			break;
		queued = nr_waiting(llc, id) * UNIT / (llc->nr_cpus ?: 1);
		if (queued < least && allowed_in(p, id)) {
			least = queued;
			best = id;
		}
	}
	return best;
}

/* Counts an attempt of a task to reach the node of a set. */
static __always_inline void account_attempt(u32 index, u32 node, bool failed, struct roost_counters *n)
{
	struct roost_home *home = home_at(node);

	if (!home)
		return;
	if (is_process(index)) {
		n->consolidate_moves += !failed;
		return;
	}
	roost_cling_attempt(&home->attempts, failed);
	n->cling_moves += !failed;
	n->cling_failed += failed;
}

/* The set that settled on another node than the one where the task is, or NONE. */
static __always_inline u32 calling_set(const struct roost_task *task, u32 node)
{
	u32 set = deciding_set(task), home = settled_on(set);

	return home == node ? NONE : set;
}

/*
 * The LLC to which a task goes to be where its set settled. NONE if the task tried a short time ago, or finds
 * no room. idle: only an LLC with an idle CPU.
 */
__noinline u32 way_home(struct task_struct *p __arg_trusted, u32 set, bool idle)
{
	struct roost_task *task = task_of(p);
	struct roost_home *state;
	struct roost_node *node;
	struct roost_cpu *here;
	struct roost_llc *llc;
	u32 home = settled_on(set), id;
	u64 now;

	if (!task || home == NONE)
		return NONE;
	here = this_cpu();
	node = node_at(home);
	state = home_at(home);
	now = scx_bpf_now();
	if (!here || !node || !state || now - task->tried_at < retry_ms * 1000000)
		return NONE;
	task->tried_at = now;
	if (pauses(set, home)) {
		here->n.cling_paused++;
		return NONE;
	}
	id = llc_for_leaver(p, here, home);
	if (id == NONE && !idle && !state->full)
		id = shortest_queue(p, node);
	llc = llc_at(id);
	/* The search for an idle CPU comes later and may fail. */
	if (!idle)
		account_attempt(set, home, !llc, &here->n);
	return llc ? id : NONE;
}

/*
 * Time over which demand is averaged; for a young set, its whole lifetime. Demand has to be a mean, because
 * tasks charge their waiting time in one amount when they run again.
 */
#define DEMAND_NS 3200000000ull

static __always_inline u64 mean_demand(const struct roost_set *set, u64 last, u64 now, u64 period)
{
	u64 window = now - set->made_at;

	if (window > DEMAND_NS)
		window = DEMAND_NS;
	if (window < period)
		window = period;
	return (set->demand * (window - period) + last * UNIT) / window;
}

/*
 * Time over which a claim shrinks. A set claims its demand of the node it settled on. If the demand falls while
 * a task of the set still runs, the claim follows over about SHRINK_NS, so that the set keeps its place. It
 * does not follow while pages of the set are being moved to the node, because its tasks wait for the pages.
 * (The mean of a young set is not smooth yet.) A set without a node would claim its demand.
 */
#define SHRINK_NS (8 * DEMAND_NS)
#define AT_REST_NS 1000000000ull

static __always_inline u64 claim_of(struct roost_set *set, bool moves, u64 now, u64 period)
{
	bool rests = (s64)(now - set->active_at) >= (s64)AT_REST_NS;
	bool young = now - set->made_at < 2 * DEMAND_NS;
	u64 over;

	if (set->preferred == NONE || set->claim <= set->demand)
		return set->demand;
	if (moves) {
		/* When that is over, its tasks have just waited and are not asleep. */
		set->active_at = now;
		return set->claim;
	}
	if (rests || young || period >= SHRINK_NS)
		return set->demand;
	over = set->claim - set->demand;
	return set->claim - over * period / SHRINK_NS;
}

/* A demand rounded to whole tasks, times UNIT. */
static __always_inline u64 whole(u64 demand)
{
	return (demand + UNIT / 2) & ~(u64)(UNIT - 1);
}

/* Whether affinity keeps more than an eighth (an assumption) of a set's run time off a node. */
static __always_inline bool is_barred(const struct roost_set *set, const struct roost_set_node *node)
{
	return node->barred * 8 > set->recent;
}

/*
 * Whether a set could settle on a node if there were no other sets: the node has a core for each of its tasks.
 * A set that needs more cores gets more on several nodes.
 */
__noinline bool could_fit(u32 index, u32 node_id)
{
	struct roost_home *home = home_at(node_id);
	struct roost_set *set = set_at(index);
	struct roost_set_node *node = set_node_at(index, node_id);

	return home && set && node && roost_cling_fits(0, whole(set->claim), home->cores) && !is_barred(set, node);
}

/*
 * Whether a set's demand has grown recently by more than an eighth and half a task (assumptions). Then it is
 * not known yet how much the set will need.
 */
static __always_inline bool grows(const struct roost_set *set)
{
	return set->lately > set->demand + set->demand / 8 + UNIT / 2;
}

/*
 * Whether a set may stay on its node. It leaves if affinity keeps its tasks off the node, or if it needs an
 * eighth more (an assumption) than the node's cores.
 */
__noinline bool still_fits(u32 index, u32 node_id)
{
	struct roost_home *home = home_at(node_id);
	struct roost_set *set = set_at(index);
	struct roost_set_node *node = set_node_at(index, node_id);

	return home && set && node && !is_barred(set, node) &&
	       roost_cling_fits(0, whole(set->lately > set->demand ? set->lately : set->demand),
				home->cores + home->cores / 8);
}

/*
 * A set leaves its node if the node has not suited it for long: the set has grown, or affinity keeps its tasks
 * off the node.
 */
static __always_inline void check_home(u32 index, struct roost_set *set, u64 now)
{
	struct roost_cpu *here = this_cpu();

	if (!here || set->preferred == NONE || still_fits(index, set->preferred)) {
		set->misfit_since = 0;
		return;
	}
	if (!set->misfit_since)
		set->misfit_since = now;
	if (now - set->misfit_since < DEMAND_NS)
		return;
	set->preferred = NONE;
	here->n.unsettled++;
}

/*
 * The mean, over about a second, of a value that only grows. before: the mean so far; seen: the value at the
 * last call.
 */
static __always_inline u64 mean_growth(u64 before, u64 all, u64 *seen)
{
	u64 grown = all - *seen;

	*seen = all;
	return before * 7 / 8 + grown;
}

__noinline int update_set_node(u32 index, u32 node_id, u64 period)
{
	struct roost_set_node *node = set_node_at(index, node_id);
	u64 wanted;

	if (!node || !period)
		return 0;
	node->own = 0;
	/* In whole tasks. */
	wanted = node->wanted;
	node->runnable = (wanted - node->seen_wanted + period / 2) / period;
	node->seen_wanted = wanted;
	node->recent = mean_growth(node->recent, node->cpu_ns, &node->seen_cpu_ns);
	node->barred = mean_growth(node->barred, node->barred_ns, &node->seen_barred_ns);
	return 0;
}

/* Updates a set: what its tasks wanted and ran since the last time, and what it claims of its node. */
__noinline int update_set(u32 index, u64 now, u64 period)
{
	struct roost_set *set = set_at(index);
	struct roost_set_node *there;
	struct roost_home *home;
	u64 wanted;
	int i;

	if (!set || !set->id || !period || forget(set, now))
		return 0;
	wanted = set->wanted;
	set->demand = mean_demand(set, wanted - set->seen_wanted, now, period);
	set->lately = mean(set->lately, (wanted - set->seen_wanted) * UNIT / period);
	set->claim = claim_of(set, memory_moves(index), now, period);
	set->seen_wanted = wanted;
	set->recent = mean_growth(set->recent, set->ran, &set->seen_ran);
	bpf_for(i, 0, nr_nodes)
		update_set_node(index, i, period);
	if (excluded(index))
		set->preferred = NONE;
	check_home(index, set, now);
	if (is_process(index) && settled_on(set->group) != NONE)
		return 0;
	home = home_at(set->preferred);
	if (!home)
		return 0;
	home->claiming += whole(set->claim);
	there = set_node_at(set->group, set->preferred);
	if (is_process(index) && there)
		there->own += whole(set->claim);
	if (home->latest_at < set->settled_at) {
		home->latest_at = set->settled_at;
		home->latest = index;
	}
	return 0;
}

/* Number of cores of a node that have an online CPU. */
__noinline u32 cores_of(u32 node_id)
{
	struct roost_node *node = node_at(node_id);
	u32 sum = 0;
	int i;

	if (!node)
		return 0;
	bpf_for(i, 0, node->nr_llcs)
		sum += cores_in(node->first_llc + i);
	return sum;
}

/*
 * Called when all sets of a node are updated. If they have needed more than the node has for long, the last to
 * come leaves.
 */
__noinline int update_home(u32 node_id, u64 now)
{
	struct roost_home *home = home_at(node_id);
	struct roost_node *node = node_at(node_id);
	struct roost_cpu *here = this_cpu();
	struct roost_set *set;

	if (!home || !node || !here)
		return 0;
	home->cores = cores_of(node_id);
	home->claimed = home->claiming;
	home->full = !roost_cling_fits(home->claimed, 0, node->nr_cpus);
	if (!home->full)
		home->over_since = 0;
	else if (!home->over_since)
		home->over_since = now;
	set = home->full && now - home->over_since >= DEMAND_NS ? set_at(home->latest) : NULL;
	/* check_home() decides about a set that is alone on its node. */
	if (set && set->preferred == node_id && home->claimed > whole(set->claim)) {
		home->over_since = 0;
		set->preferred = NONE;
		here->n.unsettled++;
		if (!is_process(home->latest)) {
			roost_cling_attempt(&home->attempts, true);
			here->n.cling_failed++;
		}
	}
	home->claiming = home->latest_at = 0;
	return 0;
}

/* A set's score for a node, from 1 to 2001. 0 if affinity keeps the set off the node. */
__noinline u64 score_of(u32 index, u32 node_id)
{
	struct roost_set_node *node = set_node_at(index, node_id);
	struct roost_set *set = set_at(index);
	u64 all_memory = 0;
	int i;

	if (!set || !node || is_barred(set, node))
		return 0;
	bpf_for(i, 0, nr_nodes)
		all_memory += memory_of(index, i);
	return roost_cling_score(memory_of(index, node_id), all_memory, node->recent, set->recent) + 1;
}

/*
 * Whether a node has room for a set beside the sets that settled there, and is worth settling on. siblings:
 * count all threads of a core, not only one.
 */
__noinline bool accepts(u32 index, u32 node_id, bool siblings)
{
	struct roost_set_node *there = set_node_at(index, node_id);
	struct roost_home *home = home_at(node_id);
	struct roost_node *node = node_at(node_id);
	struct roost_set *set = set_at(index);
	u64 others;

	if (!home || !node || !set || !there || !could_fit(index, node_id) || pauses(index, node_id))
		return false;
	others = home->claimed > there->own ? home->claimed - there->own : 0;
	return roost_cling_fits(others, whole(set->claim), siblings ? node->nr_cpus : home->cores);
}

static __always_inline u64 claimed_on(u32 node)
{
	struct roost_home *home = home_at(node);

	return home ? home->claimed : 0;
}

/*
 * Two nodes in one number: home, where a set should settle (NONE if no node has room), and liked, with the
 * largest score.
 */
#define CHOICE(home, liked) ((u64)(liked) << 32 | (home))

__noinline u64 choose_home(u32 index, bool siblings)
{
	u64 most = 0, score, liked_score = 0;
	struct roost_set *set = set_at(index);
	u32 best = NONE, liked = NONE, id;
	int i;

	if (!set)
		return CHOICE(NONE, NONE);
	bpf_for(i, 0, nr_nodes) {
		id = i;
		score = score_of(index, id);
		if (score > liked_score) {
			liked_score = score;
			liked = id;
		}
		if (!accepts(index, id, siblings) || score < most)
			continue;
		if (score > most || claimed_on(id) < claimed_on(best)) {
			most = score;
			best = id;
		}
	}
	return CHOICE(best, most == liked_score ? best : liked);
}

/* Number of tasks that a set must keep busy to settle, times UNIT. */
static __always_inline u64 least_demand(u32 index)
{
	return is_process(index) ? 2 * UNIT : UNIT;
}

/* Looks for a node for a set without one. Returns whether it found one. */
__noinline bool settle(u32 index, u64 now)
{
	struct roost_set *set = set_at(index);
	struct roost_cpu *here = this_cpu();
	struct roost_home *state;
	u32 home, liked;
	u64 choice;

	if (!set || !here || !set->id || set->preferred != NONE || excluded(index) ||
	    whole(set->demand) < least_demand(index) || now - set->tried_at < settle_ms * 1000000)
		return false;
	set->tried_at = now;
	if (grows(set) || (is_process(index) && settled_on(set->group) != NONE))
		return false;
	choice = choose_home(index, false);
	if ((u32)choice == NONE && smt > 1)
		choice = choose_home(index, true);
	home = (u32)choice;
	liked = choice >> 32;
	state = home_at(home);
	/* It would leave again. */
	if (state && !still_fits(index, home))
		return false;
	if (home != liked && !is_process(index) && could_fit(index, liked)) {
		if (pauses(index, liked))
			here->n.cling_paused++;
		else
			account_attempt(index, liked, true, &here->n);
	}
	if (!state)
		return false;
	state->claimed += whole(set->claim);
	set->preferred = home;
	/* The daemon does not know the scheduler's clock, so this is CLOCK_MONOTONIC. */
	set->settled_at = bpf_ktime_get_ns();
	if (is_process(index))
		here->n.consolidate_settled++;
	else
		here->n.cling_settled++;
	return true;
}

/* Lets the sets of one kind, which are a range of the table, settle: one set at a time, in turns. */
__noinline bool settle_one(u32 first, u32 nr, u64 now)
{
	u32 index;
	int i;

	bpf_for(i, 0, nr) {
		index = first + (next_to_settle + i) % (nr ?: 1);
		if (settle(index, now)) {
			next_to_settle += i + 1;
			return true;
		}
	}
	return false;
}

/* Halves the counts of failed attempts every six seconds. */
__noinline int decay_attempts(u64 now)
{
	struct roost_cling_walk walk = { .busiest = busiest };
	struct roost_home *home;
	int i;

	if (now - decayed_at < ROOST_CLING_PERIOD_NS)
		return 0;
	decayed_at = now;
	bpf_for(i, 0, nr_nodes) {
		home = home_at(i);
		if (home)
			roost_cling_decay(&home->attempts, i, &walk);
	}
	busiest = walk.busiest;
	return 0;
}

u64 sets_at;

/* All work on sets that is done ten times a second. */
__noinline int update_sets(u64 now)
{
	u64 period = now - sets_at;
	int i;

	sets_at = now;
	shrink(&groups_used, 0);
	shrink(&processes_used, max_groups);
	bpf_for(i, 0, groups_used)
		update_set(i, now, period);
	bpf_for(i, 0, processes_used)
		update_set(max_groups + i, now, period);
	bpf_for(i, 0, nr_nodes)
		update_home(i, now);
	decay_attempts(now);
	if (!settle_one(0, groups_used, now))
		settle_one(max_groups, processes_used, now);
	return 0;
}

#endif
