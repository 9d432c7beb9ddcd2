/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tasks wait for the budget of their cgroup (limits.h)
 *
 *     1. A task that wakes up, is queued, or whose slice is over reserves time. If its cgroup, or one above, has no
 *        budget left, it is parked: it waits in a queue of that limit, in the order of arrival.
 *     2. While a queue holds tasks its limit's timer fires at the end of each period. Tasks leave the queue as long as
 *        each finds budget. One that finds none further above goes to that limit's queue.
 *     3. A task that leaves starts on an idle CPU, the one where it last ran if possible, or else waits for its turn in
 *        the queue of the LLC where it last ran.
 *
 *     4. A turn of a limited task ends after a slice to the point, by a timer of its CPU. A slice itself ends with the
 *        next tick, up to 4 ms later with 250 a second: of some CPUs at once that is a period of a small budget.
 *
 * What is queued already when the budget ends has reserved its time. A task that comes to a CPU without (its limit is
 * new, or it was interrupted after all of it) gives way again at once.
 *
 * Never parked are tasks that exit and tasks that were preempted as readers of RCU, for which others wait. As in the
 * fair class until 6.17, a task can be parked in the middle of a system call.
 *
 * The kernel ends a scheduler under which a task waits for 30 s. So a task that has been parked for ten is let out: it
 * runs until it is asked to give way, some microseconds, which are charged like any other.
 */
#ifndef ROOST_PARK_H
#define ROOST_PARK_H

#include "queue.h"

/*
 * Longest time that a task is parked. The watchdog's limit is 30 s, and the task still has to wait in the queue
 * of its LLC.
 */
#define PARKED_NS 10000000000ull

/* Number of tasks that leave a queue at once. */
#define RELEASED 4096

/* Time of the watch's last look. */
u64 watched_at;

/* The turn on a CPU of a task with a limit. */
struct roost_turn {
	struct bpf_timer timer;
	u64 ends_at;		/* CLOCK_MONOTONIC ns; 0: the running task has no limit */
	u32 armed;		/* the timer is set */
} __attribute__((aligned(CACHE_LINE)));

ARRAY(turns, struct roost_turn);

static __always_inline struct roost_turn *turn_at(u32 cpu)
{
	return bpf_map_lookup_elem(&turns, &cpu);
}

/* A turn is over, or another one has begun since: short turns do not restart the timer. */
static int end_turn(void *map, u32 *cpu, struct roost_turn *turn)
{
	u64 at = turn->ends_at, now = bpf_ktime_get_ns();

	turn->armed = 0;
	if (at && before(now, at)) {
		turn->armed = 1;
		bpf_timer_start(&turn->timer, at - now, BPF_F_TIMER_CPU_PIN);
	} else if (at) {
		scx_bpf_kick_cpu(*cpu, KICK_PREEMPT);
	}
	return 0;
}

static __always_inline void begin_turn(u32 cpu)
{
	struct roost_turn *turn = turn_at(cpu);

	if (!turn)
		return;
	turn->ends_at = bpf_ktime_get_ns() + slice_ns();
	if (turn->armed)
		return;
	turn->armed = 1;
	bpf_timer_start(&turn->timer, slice_ns(), BPF_F_TIMER_CPU_PIN);
}

/* A task stops before the end of its turn. */
static __always_inline void stop_turn(u32 cpu)
{
	struct roost_turn *turn = turn_at(cpu);

	if (turn)
		turn->ends_at = 0;
}

static int start_turns(void)
{
	struct roost_turn *turn;
	int i, error;

	bpf_for(i, 0, cgroup_limits ? nr_cpu_ids : 0) {
		turn = turn_at(i);
		if (!turn)
			return -EINVAL;
		error = bpf_timer_init(&turn->timer, &turns, CLOCK_MONOTONIC);
		if (!error)
			error = bpf_timer_set_callback(&turn->timer, end_turn);
		if (error)
			return error;
	}
	return 0;
}

/* Charges the budgets for the time that a task is going to run. If forced, budgets may become negative. */
static __always_inline void reserve(struct roost_task *task)
{
	u64 ns = burst_of(task);

	if (ns > slice_ns())
		ns = slice_ns();
	if (!ns)
		ns = 1;
	charge_limit(task->limit, ns);
	/* Another CPU may reserve at the same time. Only one reservation counts. */
	if (!__sync_bool_compare_and_swap(&task->reserved, 0, ns))
		charge_limit(task->limit, -(s64)ns);
}

/* Whether a task must run even without budget. flags: those with which it is queued. */
static __always_inline bool must_go_on(const struct task_struct *p, u64 flags)
{
	return p->flags & PF_EXITING || reads_rcu(p, flags);
}

/*
 * Reserves time for a task with a limit, if it has no reservation. Returns the limit without budget, or NONE if
 * the task may run.
 */
static __always_inline u32 admit(struct roost_task *task, bool lines_up)
{
	u32 at;

	if (task->reserved)
		return NONE;
	at = exhausted(task->limit, bpf_ktime_get_ns(), lines_up);
	if (at == NONE)
		reserve(task);
	return at;
}

/* Sets the timer of a limit for the end of its period. */
static __always_inline void arm(struct roost_limit *limit, u64 now)
{
	u64 at = limit->refill_at;

	if (limit->ready && !__sync_lock_test_and_set(&limit->armed, 1))
		bpf_timer_start(&limit->timer, before(now, at) ? at - now : 0, 0);
}

/* A task is about to be parked. From now on others queue behind it. */
static __always_inline void throttle(struct roost_limit *limit, u64 now, struct roost_counters *n)
{
	if (!limit->throttled) {
		limit->throttled = true;
		limit->throttled_at = now;
		n->nr_throttled++;
	}
	arm(limit, now);
}

/* Whether a task has been parked for so long that it is let out. */
static __always_inline bool parked_long(const struct roost_task *task, u64 now)
{
	return !before(now, task->parked_at + PARKED_NS);
}

/*
 * Parks a task that is being queued, unless it may run. Returns whether it is parked. A parked task that is reniced,
 * or whose affinity changes, is queued again, but the time since it was parked continues. If that is long, the task
 * goes to the front, because no task behind one without budget leaves the queue.
 */
static __always_inline bool park(struct task_struct *p, struct roost_task *task, u64 flags, struct roost_counters *n)
{
	u64 now = bpf_ktime_get_ns(), front = 0;
	u32 at = admit(task, true);
	struct roost_limit *limit = limit_at(at);

	if (!limit)
		return false;
	/* It was let out, and has not run yet. */
	if (task->parked_at && task->waits_in != PARKED)
		return false;
	if (must_go_on(p, flags)) {
		reserve(task);
		return false;
	}
	count_out(task);
	task->waits_in = PARKED;
	task->queued_at = 0;
	if (!task->parked_at)
		task->parked_at = now;
	else if (parked_long(task, now))
		front = ENQ_HEAD;
	throttle(limit, now, n);
	dsq_insert(p, LIMIT_QUEUE | at, slice_ns(), flags | front);
	return true;
}

/*
 * Begins the turn of a running task, if it has budget. A task that must run without budget has been forced to
 * reserve when it was queued.
 */
static __always_inline bool has_turn(struct roost_task *task, u32 cpu_id)
{
	if (admit(task, true) != NONE)
		return false;
	begin_turn(cpu_id);
	return true;
}

/*
 * A claimed idle CPU for a task that is released, or NONE: its last CPU, or one of that LLC. For a task that
 * runs for long, one of the node.
 */
__noinline u32 idle_for_released(struct task_struct *p __arg_trusted, u32 cpu_id, bool lasting)
{
	struct roost_cpu *cpu = cpu_at(cpu_id), *other;
	struct roost_node *node = cpu ? node_at(cpu->node) : NULL;
	u32 id, found;
	bool may;
	int i;

	if (!node || !any_idle(cpu->node))
		return NONE;
	bpf_rcu_read_lock();
	may = may_run(p, cpu_id);
	bpf_rcu_read_unlock();
	if (may && claim_cpu(cpu))
		return cpu_id;
	id = cpu->llc;
	each(i, 0, lasting ? node->nr_llcs : 1) {
		found = idle_for(p, id);
		other = cpu_at(found);
		if (other && claim_cpu(other))
			return found;
		id = next_llc(node, id);
	}
	return NONE;
}

/* Moves a parked task to the local queue of a CPU that may be idle. */
static __always_inline void release_to_cpu(struct bpf_iter_scx_dsq *it, struct task_struct *p, struct roost_task *task,
					   u32 cpu_id, struct roost_counters *n)
{
	__sync_bool_compare_and_swap(&task->waits_in, PARKED, NONE);
	n->direct += dsq_move(it, p, DSQ_LOCAL_ON | cpu_id);
	scx_bpf_kick_cpu(cpu_id, KICK_IDLE);
}

/* Moves a parked task to the queue of the LLC where it last ran. calls: it asks for a CPU that helps. */
static __always_inline void release_to_llc(struct bpf_iter_scx_dsq *it, struct task_struct *p, struct roost_task *task,
					   u32 id, struct roost_llc *llc, u64 now, bool calls, struct roost_counters *n)
{
	u64 vtime = rebased_vtime(p, task, id, llc->clock, true);

	add_to_backlog(task, llc, id, now);
	if (!__sync_bool_compare_and_swap(&task->waits_in, PARKED, id)) {
		__sync_fetch_and_add(&llc->waiting, -1);
		return;
	}
	task->queued_at = now;
	if (dsq_move_vtime(it, p, id, vtime)) {
		task->queue = id;
		n->queued++;
		if (calls)
			call_for(p, task, id, llc->node);
	} else if (__sync_bool_compare_and_swap(&task->waits_in, id, NONE)) {
		/* The task was queued elsewhere meanwhile. */
		__sync_fetch_and_add(&llc->waiting, -1);
	}
}

/* Moves a parked task to the queue of the only CPU that it may use. */
static __always_inline void release_bound(struct bpf_iter_scx_dsq *it, struct task_struct *p, struct roost_task *task,
					  u32 cpu_id, struct roost_cpu *cpu, u64 now, struct roost_counters *n)
{
	u64 vtime = rebased_vtime(p, task, CPU_QUEUE | cpu_id, cpu->clock, true);

	__sync_bool_compare_and_swap(&task->waits_in, PARKED, NONE);
	cpu->bound_waiting = true;
	task->queued_at = now;
	if (dsq_move_vtime(it, p, CPU_QUEUE | cpu_id, vtime)) {
		task->queue = CPU_QUEUE | cpu_id;
		n->bound++;
	}
	scx_bpf_kick_cpu(cpu_id, KICK_IDLE);
}

/*
 * Lets a parked task run. An idle CPU where it last ran takes it from the queue of its LLC. If it were moved to the
 * CPU's local queue, Linux 7.2 would charge it for the time since the CPU's clock was last updated, which is up to the
 * whole idle time: move_local_task_to_local_dsq() calls wakeup_preempt(), so that __schedule() does not update the
 * clock.
 */
static __always_inline void release(struct bpf_iter_scx_dsq *it, struct task_struct *p, struct roost_task *task,
				    u64 now, struct roost_counters *n)
{
	u32 cpu_id = scx_bpf_task_cpu(p), found = NONE;
	struct roost_cpu *cpu = cpu_at(cpu_id);
	struct roost_llc *llc = cpu ? llc_at(cpu->llc) : NULL;

	if (!llc) {
		release_to_cpu(it, p, task, cpu_id, n);
		return;
	}
	if (is_bound(p)) {
		release_bound(it, p, task, cpu_id, cpu, now, n);
		return;
	}
	if (!stays_put(p))
		found = idle_for_released(p, cpu_id, is_long(task));
	if (found != NONE && found != cpu_id) {
		release_to_cpu(it, p, task, found, n);
		return;
	}
	release_to_llc(it, p, task, cpu->llc, llc, now, found == NONE, n);
	if (found == cpu_id)
		scx_bpf_kick_cpu(cpu_id, KICK_IDLE);
}

/* Whether a parked task leaves the queue of a limit. If not, `*at` is the limit without budget. */
static __always_inline bool leaves(struct roost_task *task, u64 now, u32 *at)
{
	*at = admit(task, false);
	/* Without a reservation, the task gives way as soon as it runs. */
	return *at == NONE || parked_long(task, now);
}

/* Releases parked tasks of a limit, as many as find budget. */
__noinline int release_parked(u32 id, u64 now)
{
	struct roost_cpu *here = this_cpu();
	u64 clock = scx_bpf_now();
	struct roost_limit *limit;
	struct roost_task *task;
	struct task_struct *p;
	u32 at;
	int i;

	if (!here)
		return 0;
	/* An idle CPU can return a stale time (now_at()). */
	if (before(clock, watched_at))
		clock = watched_at;
	bpf_rcu_read_lock();
	each_queued(p, it, i, LIMIT_QUEUE | id, 0, RELEASED) {
		task = task_of(p);
		if (!task)
			continue;
		if (leaves(task, now, &at)) {
			release(&it, p, task, clock, &here->n);
			continue;
		}
		limit = limit_at(at);
		if (at == id || !limit)
			break;
		throttle(limit, now, &here->n);
		dsq_move(&it, p, LIMIT_QUEUE | at);
	}
	bpf_rcu_read_unlock();
	return 0;
}

/* A period has ended for a limit with parked tasks. */
static int end_period(void *map, u32 *key, struct roost_limit *limit)
{
	struct roost_cpu *here = this_cpu();
	bool throttled = limit->throttled;
	u64 now = bpf_ktime_get_ns();
	u32 id = *key;

	if (!here)
		return 0;
	limit->armed = 0;
	refill(limit, now, &here->n);
	release_parked(id, now);
	if (throttled)
		here->n.throttled_usec += (now - limit->throttled_at) / 1000;
	limit->throttled_at = now;
	limit->throttled = scx_bpf_dsq_nr_queued(LIMIT_QUEUE | id);
	here->n.nr_throttled += limit->throttled;
	/* Once more, because a task may just have been parked. */
	if (throttled || limit->throttled)
		arm(limit, now);
	return 0;
}

/* The watch handles limits whose timer missed a task that was just being parked. */
static __always_inline void watch_limits(void)
{
	u64 now = bpf_ktime_get_ns();
	struct roost_limit *limit;
	u32 id;
	int i;

	bpf_for(i, 0, shares_used) {
		id = i;
		limit = limit_at(id);
		if (limit && limit->used && !limit->armed && scx_bpf_dsq_nr_queued(LIMIT_QUEUE | id) > 0)
			arm(limit, now);
	}
}

/*
 * A CPU goes offline. Parked tasks that last ran there go to its local queue, from where the kernel moves them.
 */
__noinline int drain_parked(u32 cpu_id)
{
	struct roost_limit *limit;
	struct task_struct *p;
	int i, j;
	u32 id;

	bpf_for(i, 0, shares_used) {
		id = i;
		limit = limit_at(id);
		if (!limit || !limit->used)
			continue;
		bpf_rcu_read_lock();
		each_queued(p, it, j, LIMIT_QUEUE | id, 0, ALL_WAITING) {
			if (scx_bpf_task_cpu(p) == cpu_id)
				dsq_move(&it, p, DSQ_LOCAL_ON | cpu_id);
		}
		bpf_rcu_read_unlock();
	}
	return 0;
}

/* A task starts to run. Without budget it gives way at once, and is parked when it is queued. */
static __always_inline void check_budget(struct roost_task *task, u32 cpu_id)
{
	task->parked_at = 0;
	if (!has_turn(task, cpu_id))
		scx_bpf_kick_cpu(cpu_id, KICK_PREEMPT);
}

/*
 * Gives a cgroup's entry a queue and a timer, which the entry keeps for later cgroups. Only for programs that
 * may sleep.
 */
static void make_limit(u32 index)
{
	struct roost_limit *limit = limit_at(index);

	if (!limit)
		return;
	limit->used = false;
	if (!limit->ready && !scx_bpf_create_dsq(LIMIT_QUEUE | index, -1) &&
	    !bpf_timer_init(&limit->timer, &limits, CLOCK_MONOTONIC) &&
	    !bpf_timer_set_callback(&limit->timer, end_period))
		limit->ready = true;
	find_limit(index);
}

#endif
