/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who runs next: a queue per LLC in the order of virtual time
 *
 * A task's virtual time grows with the time it runs, divided by its weight. Nice 0 has weight 100; in a cgroup
 * weights.h says what it is. The queue's clock is the largest virtual time that a task had when it was switched
 * in. Where a task starts:
 *
 *     did not sleep, is behind    it keeps its lag behind the clock, up to one slice
 *     slept                       at the clock
 *     slept, has to wait          a quarter of a slice by its weight ahead of the clock: the mean of the tasks that run
 *                                 or wait if each CPU has two (docs/understand/live.md). The fair class has it start at
 *                                 the mean too (place_entity())
 *     queued anew in its wait     as if it did not sleep (its affinity, nice value or cgroup has changed)
 *     moved between queues        as far from the clock as it was
 *     new                         a slice by its weight ahead, so that many new tasks move the clock on
 *
 * No task is further ahead than lead_ms, or than two slices by its weight if that is more (one of many tasks in a
 * cgroup weighs little), nor than a slice because of what it ran while nobody waited. The watch sees to it that
 * no task waits for much longer than a second and its turn after that (watch.h).
 *
 * A task that was preempted as a reader of RCU is queued at most a slice ahead, whatever its weight. It owes the
 * rest once it runs. Grace periods wait for it, and hotplug and all that frees memory wait for grace periods.
 * (Kernels end a scheduler under which grace periods wait for 21 s.)
 *
 * Tasks that may use one CPU only have a queue of that CPU's own. In the queue of the LLC every other CPU would
 * have to look past them. The CPU's queue has a clock of its own, so that CPUs on which only such tasks run do
 * not drive each other's clocks. The CPU serves whichever of the two queues has the earlier head. While other tasks
 * run or wait there too, both clocks go on at the same distance.
 */
#ifndef ROOST_QUEUE_H
#define ROOST_QUEUE_H

#include "place.h"
#include "together.h"

/* The weight of a task, times UNIT. */
static __always_inline u64 weight_of(const struct task_struct *p, const struct roost_task *task)
{
	return (u64)p->scx.weight * task->factor / (FACTOR / UNIT);
}

/* The virtual time for running `ran`. weight: times UNIT. */
static __always_inline u64 vtime_of(u64 ran, u64 weight)
{
	return ran * 100 * UNIT / (weight ?: 1);
}

/* The virtual time by which every task may be ahead: a slice, plus the time until a tick ends the slice. */
static __always_inline u64 two_slices(u64 weight)
{
	return vtime_of(2 * slice_ns(), weight);
}

/*
 * A task's virtual time, limited to the range from `first` to the largest value that a task of its weight may
 * have.
 */
static __always_inline u64 vtime_near(u64 vtime, u64 first, u64 clock, u64 weight)
{
	u64 lead = lead_ms * 1000000;

	if (before(vtime, first))
		return first;
	if (!before(clock + lead, vtime))
		return vtime;
	if (lead < two_slices(weight))
		lead = two_slices(weight);
	return before(clock + lead, vtime) ? clock + lead : vtime;
}

static __always_inline bool is_bound(const struct task_struct *p)
{
	return p->nr_cpus_allowed == 1;
}

#define PATIENCE_NS 1000000000ull

/* Whether a waiting task has waited for so long that the watch lets it run (watch.h). */
static __always_inline bool is_patient(const struct roost_task *task, u64 now)
{
	return before(task->queued_at + PATIENCE_NS, now);
}

/* Distance from a virtual time to the clock of its queue. */
__noinline u64 distance(u64 vtime, u64 queue)
{
	struct roost_cpu *cpu = queue & CPU_QUEUE ? cpu_at(queue) : NULL;
	struct roost_llc *llc = queue & CPU_QUEUE ? NULL : llc_at(queue);

	if (cpu)
		return vtime - cpu->clock;
	return llc ? vtime - llc->clock : 0;
}

/*
 * The smallest virtual time that a task may have. If it did not sleep, or has waited since: a slice behind the clock.
 * If it slept: the clock, or a quarter of a slice ahead of it if the task has to wait.
 */
static __always_inline u64 first_vtime(const struct roost_task *task, u64 clock, u64 weight, bool waits)
{
	if (task->ran_awake || task->queued_at)
		return clock - slice_ns();
	return waits ? clock + vtime_of(slice_ns() / 4, weight) : clock;
}

/* A task's virtual time converted to the clock of a queue. waits: the task is going to wait there. */
static __always_inline u64 rebased_vtime(const struct task_struct *p, const struct roost_task *task,
					 u64 queue, u64 clock, bool waits)
{
	u64 vtime = p->scx.dsq_vtime, weight = weight_of(p, task);

	if (task->queue == NONE)
		vtime = clock + vtime_of(slice_ns(), weight);
	else if (task->queue != queue)
		vtime = clock + distance(vtime, task->queue);
	return vtime_near(vtime, first_vtime(task, clock, weight, waits), clock, weight);
}

/* Converts a task's virtual time to the clock of a queue. */
static __always_inline void rebase_vtime(struct task_struct *p, struct roost_task *task, u64 queue,
					 u64 clock, bool waits)
{
	u64 vtime = rebased_vtime(p, task, queue, clock, waits);

	task->queue = queue;
	if (vtime != p->scx.dsq_vtime)
		task_set_vtime(p, vtime);
}

static __always_inline void move_clock(u64 *clock, u64 vtime)
{
	if (before(*clock, vtime))
		*clock = vtime;
}

/*
 * Compares the clocks of a CPU's queue and of its LLC's queue. If tasks of both queues compete for the CPU, the
 * CPU's clock keeps its distance to the LLC's. Otherwise the clocks are independent.
 */
static __always_inline void keep_up(struct roost_cpu *cpu, const struct roost_llc *llc)
{
	if (cpu->competes)
		move_clock(&cpu->clock, llc->clock + cpu->ahead);
	else
		cpu->ahead = cpu->clock - llc->clock;
}

/* A task no longer waits where it was counted. */
static __always_inline void count_out(struct roost_task *task)
{
	struct roost_llc *llc;

	if (task->waits_in == NONE)
		return;
	llc = llc_at(__sync_lock_test_and_set(&task->waits_in, NONE));
	if (llc)
		__sync_fetch_and_add(&llc->waiting, -1);
}

/* A task is going to wait in the queue of an LLC from now on. */
static __always_inline void add_to_backlog(const struct roost_task *task, struct roost_llc *llc, u32 id, u64 now)
{
	bool first = add_waiting(llc);

	if (first) {
		llc->backlog_at = now;
		llc->lasting = false;
	}
	if (is_long(task))
		llc->lasting = true;
	if (first)
		mark_waiting(llc, id);
}

/* The virtual time at which a task is queued. The task's own virtual time has been converted already. */
static __always_inline u64 turn_of(const struct task_struct *p, struct roost_task *task, u64 clock, u64 enq_flags)
{
	u64 vtime = p->scx.dsq_vtime, most = clock + slice_ns();

	if (!reads_rcu(p, enq_flags) || !before(most, vtime))
		return vtime;
	task->owed += vtime - most;
	return most;
}

/* A task starts to run. Charges it for the virtual time by which it was queued early. */
static __always_inline void charge_owed(struct task_struct *p, struct roost_task *task)
{
	if (!task->owed)
		return;
	task_set_vtime(p, p->scx.dsq_vtime + task->owed);
	task->owed = 0;
}

/*
 * Number of waiting tasks that are examined when a CPU asks for a task, independent of the number that wait and
 * of the machine's size, because each look takes the queue's lock. In its own queues, the CPU looks for a head
 * at most twice.
 */
#define LOOKS 16

/*
 * Number of tasks at the head of a queue that are examined for one that the CPU may run. Usually it is the
 * first.
 */
#define FIRST (LOOKS / 2 - 1)

/*
 * Finds the virtual time (cpu->head) of the first task in a queue that a CPU may run. Returns false if the
 * queue is empty. If the CPU may run none of the examined tasks, its next one is assumed to be at the clock of
 * the queue, or at the last examined task if that is later, because tasks that wait for few CPUs only are
 * behind the clock.
 */
__noinline bool find_head(u32 cpu_id, u64 queue, u64 clock)
{
	u32 most = queue & CPU_QUEUE ? 1 : FIRST;
	struct roost_cpu *cpu = cpu_at(cpu_id);
	bool found = false, here = false;
	struct task_struct *p;
	int i;

	if (!cpu)
		return false;
	bpf_rcu_read_lock();
	each_queued(p, it, i, queue, 0, most) {
		found = true;
		cpu->looks++;
		cpu->head = p->scx.dsq_vtime;
		here = may_run(p, cpu_id) && (!stays_put(p) || scx_bpf_task_cpu(p) == cpu_id);
		if (here)
			break;
	}
	bpf_rcu_read_unlock();
	if (found && !here && before(cpu->head, clock))
		cpu->head = clock;
	return found;
}

/*
 * Charges the task that runs on a CPU for its run time since it was switched in or last charged, by what its weight is
 * worth now. When many tasks of a cgroup have just become runnable, it was worth too much when they were switched in.
 */
static __always_inline void charge(struct task_struct *p, struct roost_task *task, struct roost_cpu *cpu)
{
	u64 ran = p->se.sum_exec_runtime - cpu->ran_before;

	/* It has just been charged because its slice was over. */
	if (!ran)
		return;
	cpu->ran_before = p->se.sum_exec_runtime;
	task->ran_awake += ran;
	if (task->limit != NONE)
		spend(task, ran);
	account_run(p, task, cpu->node, ran);
	cpu->weight = weight_of(p, task);
	task_set_vtime(p, p->scx.dsq_vtime + vtime_of(ran, cpu->weight));
}

/*
 * Like find_head(), for the queue of the CPU's LLC. Tasks bound to the CPU compete with that head, or (other)
 * with the previous task, which is not bound to the CPU and would continue.
 */
__noinline bool find_head_in_llc(u32 cpu_id, bool other)
{
	struct roost_cpu *cpu = cpu_at(cpu_id);
	struct roost_llc *llc = cpu ? llc_at(cpu->llc) : NULL;
	bool found;

	if (!llc)
		return false;
	found = llc->waiting && find_head(cpu_id, cpu->llc, llc->clock);
	keep_up(cpu, llc);
	cpu->competes = found || other;
	return found;
}

/*
 * The virtual time of a task whose slice is over, as if it was queued: the watch may have moved the clock past it for a
 * task that has waited too long (watch.h).
 */
static __always_inline u64 own_vtime(const struct task_struct *p, const struct roost_cpu *cpu,
				     const struct roost_llc *llc)
{
	u64 clock = is_bound(p) ? cpu->clock : llc->clock;

	return vtime_near(p->scx.dsq_vtime, clock - slice_ns(), clock, cpu->weight);
}

/* Whether a task whose slice is over goes on, because all waiting tasks are ahead of it. */
static __always_inline bool stays_first(const struct task_struct *p, const struct roost_cpu *cpu, u64 own, u32 id)
{
	bool bound = is_bound(p), found = find_head_in_llc(id, !bound);

	if (bound)
		own -= cpu->ahead;
	if (found && !before(own, cpu->head))
		return false;
	return !cpu->bound_waiting || !find_head(id, CPU_QUEUE | id, cpu->clock) || before(own, cpu->head - cpu->ahead);
}

/*
 * A task whose slice is over goes on. Time that it ran while no other task waited does not count against it: it
 * is at most a slice ahead when other tasks come.
 */
static __always_inline void extend_slice(struct task_struct *p, const struct roost_cpu *cpu,
					 const struct roost_llc *llc)
{
	u64 most = (is_bound(p) ? cpu->clock : llc->clock) + slice_ns();

	if (!llc->waiting && !cpu->bound_waiting && before(most, p->scx.dsq_vtime))
		task_set_vtime(p, most);
	task_set_slice(p, slice_ns());
}

/* Takes the earlier of two heads: of the CPU's own queue, and of its LLC's queue. */
__noinline bool consume_bound(u32 cpu_id, bool other)
{
	struct roost_cpu *cpu = cpu_at(cpu_id);
	u64 bound;

	if (!cpu)
		return false;
	if (!find_head(cpu_id, CPU_QUEUE | cpu_id, cpu->clock)) {
		cpu->bound_waiting = false;
		return false;
	}
	bound = cpu->head;
	if (find_head_in_llc(cpu_id, other) && before(cpu->head, bound - cpu->ahead) && dsq_move_to_local(cpu->llc))
		return true;
	return dsq_move_to_local(CPU_QUEUE | cpu_id);
}

/* Takes the next task for a CPU from its queues. */
static __always_inline bool consume(struct roost_cpu *cpu, const struct roost_llc *llc, u32 id, bool other)
{
	if (cpu->bound_waiting && consume_bound(id, other))
		return true;
	if (llc->waiting && dsq_move_to_local(cpu->llc))
		return true;
	keep_up(cpu, llc);
	cpu->competes = other;
	return false;
}

/*
 * The slice of a task is over that may go on. Takes the next task instead, if one comes first. Returns false if the
 * task goes on, at least for now (together.h).
 */
static __always_inline bool next_turn(struct task_struct *p, struct roost_cpu *cpu, struct roost_llc *llc, u32 id)
{
	u64 own = own_vtime(p, cpu, llc), leaving = llc->leaving;
	bool stays = stays_first(p, cpu, own, id);

	if (is_bound(p) || cpu->bound_waiting)
		return !stays && consume(cpu, llc, id, !is_bound(p));
	if (stays) {
		go_on(llc, cpu, id, own);
		/* The CPU looked at the queue before a task was queued there. */
		if (!any_ended(llc, leaving) || stays_first(p, cpu, own, id))
			return false;
	}
	if (wait_for_left(llc, cpu, cpu->head))
		return false;
	begin_leaving(llc, cpu, p, own);
	if (consume(cpu, llc, id, true))
		return true;
	/* Other CPUs have taken what waited. */
	end_leaving(llc, cpu);
	go_on(llc, cpu, id, own);
	return false;
}

/* How long an LLC's queue has not been empty. 0 if `now` is stale. */
static __always_inline u64 backlog_ns(const struct roost_llc *llc, u64 now)
{
	u64 since = llc->backlog_at;

	return before(since, now) ? now - since : 0;
}

/* Shortest time between two requests for help in an LLC. */
#define HELP_NS 1000000

/*
 * Time for which CPUs of a node do not look again into an LLC where they found nothing to take, because all
 * waiting tasks are bound to other CPUs (cpusets), belong there, or have not waited long enough. A CPU that is
 * woken for the LLC looks at once. A look takes the queue's lock for each task. (Assumption: 100 ns for each of
 * 16 tasks. One look per ms is then a sixth of a percent of the lock's time; with 50 tasks and a look at the
 * whole queue, half a percent.)
 */
#define FUTILE_NS 1000000

static __always_inline u64 *futile_until(const struct roost_cpu *cpu, u32 llc)
{
	u32 index = cpu->node * nr_llcs + llc;

	return bpf_map_lookup_elem(&futile, &index);
}

static __always_inline bool is_futile(const struct roost_cpu *cpu, u32 llc, u64 now)
{
	u64 *until = futile_until(cpu, llc);

	return cpu->called_by != llc + 1 && until && before(now, *until);
}

/* A flag in the time of a futile look: a task that waits there may be taken soon. */
#define SOON 1ull

static __always_inline bool waits_for_time(const struct roost_cpu *cpu, u32 llc)
{
	u64 *until = futile_until(cpu, llc);

	return until && *until & SOON;
}

/*
 * A CPU found no task to take in a queue with waiting tasks: it may not run them or, if `soon`, may not take
 * them yet.
 */
static __always_inline void was_futile(const struct roost_cpu *cpu, u32 llc, u64 now, bool soon)
{
	u64 *until = futile_until(cpu, llc);

	if (until)
		*until = ((now + FUTILE_NS) & ~SOON) | soon;
}

/* The result of looking for tasks elsewhere. */
enum { NONE_WAITS, SOME_WAIT, STOLEN };

/*
 * llc-imbalance: whether an idle CPU of another LLC of the node may take a task from a queue. It may not if the
 * queue's own LLC has an idle CPU, because that one has been woken and is about to look. When it woke up, a
 * waiting task was left to wait (place.h), or will run again soon. So only the number of waiting tasks counts
 * here.
 */
static __always_inline bool may_steal(u32 id, const struct roost_llc *llc, u64 queued,
				      const struct roost_node *node, u64 now,
				      struct roost_counters *n)
{
	u64 backlog = backlog_ns(llc, now);

	if (backlog < node_wait_us * 1000 && idle_cpus(id))
		return false;
	return backlog >= llc_wait_us * 1000 || worth_moving(queued, llc, node, n);
}

/* Number of tasks that run or wait on a node, at most a tenth of a second old. */
static __always_inline u32 running_on(u32 node_id)
{
	struct roost_node *node = node_at(node_id);

	return node ? node->running : 0;
}

/* Number of runnable tasks of a process on a node, or on all nodes. */
static __always_inline u32 weight_on(u32 process, u32 node)
{
	struct roost_set_node *there = set_node_at(process, node);

	return there ? there->runnable : 0;
}

__noinline u32 total_weight(u32 process)
{
	u32 sum = 0;
	int i;

	each(i, 0, nr_nodes)
		sum += weight_on(process, i);
	return sum;
}

/* consolidate: whether a move brings a task to where more of its process is (enum roost_benefit). */
__noinline int benefit(u32 process, u32 src, u32 dst)
{
	if (process == NONE)
		return ROOST_BENEFIT_NONE;
	return roost_consolidate_benefit(total_weight(process), running_on(dst), weight_on(process, dst),
					 running_on(src), weight_on(process, src));
}

/* Kinds of tasks that an idle CPU may take from another LLC, the best last. */
enum {
	TAKE_LONG = 1,		/* tasks that rather leave than wait, if they do not belong where they are */
	TAKE_ANY = 2,		/* any task that may leave */
	TAKE_JOINING = 4,	/* tasks that join more of their process (consolidate, first pass) */
	TAKE_BELONGING = 8,	/* tasks that belong on the CPU's node */
};

/* Whether a task may go to the node of a CPU where it does not belong. */
static __always_inline bool may_leave(struct task_struct *p, struct roost_task *task, u32 src, u32 dst, bool any,
				      struct roost_counters *n)
{
	if (!any && (!leaves_at_once(p, task) || src == dst))
		return leaves_at_once(p, task);
	if (settled_on(task->group) != NONE)
		return !holds(task, src, dst, n);
	/* A settled process is held like a group, but its node never pauses. */
	if (home_of(task) == src)
		return false;
	return !any || roost_consolidate_second_pass(false, true, &task->migrate_seq);
}

/* The kind, among `kinds`, as which a task may be taken. 0 if it may not be taken. */
__noinline u32 taken_as(struct task_struct *p __arg_trusted, u32 src, u32 dst, u32 kinds)
{
	struct roost_task *task = task_of(p);
	struct roost_cpu *here = this_cpu();

	if (!task || !here)
		return 0;
	if (kinds & TAKE_BELONGING && home_of(task) == dst)
		return TAKE_BELONGING;
	if (kinds & TAKE_JOINING &&
	    roost_consolidate_first_pass(false, true, benefit(task->process, src, dst)))
		return TAKE_JOINING;
	if (kinds & (TAKE_ANY | TAKE_LONG) && may_leave(p, task, src, dst, kinds & TAKE_ANY, &here->n))
		return kinds & TAKE_ANY ? TAKE_ANY : TAKE_LONG;
	return 0;
}

/* Number of waiting tasks that a CPU may still examine in one walk through a queue. */
static __always_inline u32 looks_left(const struct roost_cpu *cpu)
{
	return cpu->looks < LOOKS ? (LOOKS - cpu->looks) / 2 : 0;
}

/*
 * Among the tasks at the head of another LLC's queue, the one that a CPU should take, by its thread number. 0
 * if none.
 */
__noinline u32 choose_task(u32 cpu_id, u32 id, u32 kinds)
{
	struct roost_cpu *cpu = cpu_at(cpu_id);
	struct roost_llc *llc = llc_at(id);
	u32 most = 0, as, best = 0, looks;
	struct task_struct *p;
	int i;

	if (!cpu || !llc)
		return 0;
	looks = looks_left(cpu);
	if (!looks)
		return 0;
	bpf_rcu_read_lock();
	each_queued(p, it, i, id, 0, looks) {
		cpu->looks++;
		if (!may_run(p, cpu_id) || stays_put(p))
			continue;
		as = taken_as(p, llc->node, cpu->node, kinds);
		if (as > most) {
			most = as;
			best = p->pid;
		}
		/* There is no better kind than this. */
		if (as && as * 2 > kinds)
			break;
	}
	bpf_rcu_read_unlock();
	cpu->n.consolidate_first += most == TAKE_JOINING;
	return best;
}

/* Steals a task of certain kinds from the queue of another LLC. */
__noinline bool steal_from(u32 cpu_id, u32 id, u32 kinds)
{
	struct roost_cpu *cpu = cpu_at(cpu_id);
	u32 chosen = kinds ? choose_task(cpu_id, id, kinds) : 0;
	struct task_struct *p;
	bool taken = false;
	int i;

	if (!cpu || !chosen)
		return false;
	bpf_rcu_read_lock();
	each_queued(p, it, i, id, 0, LOOKS) {
		cpu->looks++;
		if ((u32)p->pid != chosen)
			continue;
		taken = dsq_move(&it, p, DSQ_LOCAL);
		break;
	}
	bpf_rcu_read_unlock();
	return taken;
}

/*
 * TAKE_LONG if all CPUs of an LLC are busy: tasks that run for long may then be taken however short they have
 * waited. They would have come here if this CPU had been idle when they woke up.
 */
static __always_inline u32 choose_long(u32 id, const struct roost_llc *llc)
{
	return llc->lasting && !idle_cpus(id) ? TAKE_LONG : 0;
}

/* Whether tasks wait in the queue of an LLC, or are about to, as seen by a CPU of another LLC. */
static __always_inline bool seen_waiting(struct roost_llc *llc, u32 id)
{
	if (!llc->waiting)
		mark_empty(llc, id);
	return llc->waiting;
}

/* Steals a task from another LLC of the node. */
__noinline int steal_near(u32 cpu_id, u32 id, u64 now)
{
	struct roost_cpu *cpu = cpu_at(cpu_id);
	struct roost_node *node = cpu ? node_at(cpu->node) : NULL;
	struct roost_llc *llc = llc_at(id);
	u64 queued;
	bool may;

	if (!node || !llc)
		return NONE_WAITS;
	if (is_futile(cpu, id, now))
		return waits_for_time(cpu, id) ? SOME_WAIT : NONE_WAITS;
	queued = seen_waiting(llc, id) ? scx_bpf_dsq_nr_queued(id) : 0;
	if (!queued)
		return NONE_WAITS;
	may = may_steal(id, llc, queued, node, now, &cpu->n);
	if (may ? dsq_move_to_local(id) : steal_from(cpu_id, id, choose_long(id, llc))) {
		cpu->n.llc_stolen++;
		return STOLEN;
	}
	if (!may || nr_waiting(llc, id))
		was_futile(cpu, id, now, !may);
	/* Tasks that may not run here do not count as waiting for this CPU. */
	return may ? NONE_WAITS : SOME_WAIT;
}

/* Steals a task from another LLC of the node, within the CPU's limit of looks. */
__noinline int steal_in_node(u32 cpu_id, u64 now)
{
	struct roost_cpu *cpu = cpu_at(cpu_id);
	struct roost_node *node = cpu ? node_at(cpu->node) : NULL;
	int i, found, result = NONE_WAITS;
	u32 id;

	if (!node)
		return NONE_WAITS;
	id = cpu->llc;
	each(i, 1, node->nr_llcs) {
		id = next_llc(node, id);
		if (!may_wait(cpu->node, id))
			continue;
		found = steal_near(cpu_id, id, now);
		if (found == STOLEN)
			return STOLEN;
		if (found == SOME_WAIT)
			result = SOME_WAIT;
	}
	return result;
}

/*
 * The kinds of tasks that a CPU of another node may take from an LLC. Tasks that belong on its node may be
 * taken however short they have waited.
 */
static __always_inline u32 kinds_far(u32 id, const struct roost_llc *llc, u64 backlog)
{
	u32 kinds = choose_long(id, llc);

	if (!any_set())
		return kinds;
	kinds |= TAKE_BELONGING;
	if (backlog < node_wait_us * 1000)
		return kinds;
	return kinds | TAKE_ANY | (consolidate && processes_used ? TAKE_JOINING : 0);
}

/*
 * Steals a task from an LLC of another node, if tasks have waited there for too long, or if a task belongs
 * here.
 */
__noinline bool steal_far(u32 cpu_id, u32 id, u64 now)
{
	struct roost_cpu *cpu = cpu_at(cpu_id);
	struct roost_llc *llc = llc_at(id);
	u64 backlog, patience;

	if (!cpu || !llc || is_futile(cpu, id, now) || !seen_waiting(llc, id))
		return false;
	backlog = backlog_ns(llc, now);
	patience = any_set() && cling_wait_us > node_wait_us ? cling_wait_us : node_wait_us;
	if (steal_from(cpu_id, id, kinds_far(id, llc, backlog)) ||
	    (backlog >= patience * 1000 && dsq_move_to_local(id))) {
		cpu->n.node_stolen++;
		return true;
	}
	if (nr_waiting(llc, id))
		was_futile(cpu, id, now, false);
	return false;
}

/* The same from any other node, the nearest first, within the CPU's limit of looks. */
__noinline bool steal_from_nodes(u32 cpu_id, u64 now)
{
	struct roost_cpu *cpu = cpu_at(cpu_id);
	struct roost_node *node;
	u32 rank, *id;
	int i, j;

	if (!cpu)
		return false;
	each(i, 1, nr_nodes) {
		rank = cpu->node * nr_nodes + i;
		id = bpf_map_lookup_elem(&near, &rank);
		node = id ? node_at(*id) : NULL;
		if (!node)
			continue;
		each(j, 0, node->nr_llcs) {
			if (may_wait(*id, node->first_llc + j) && steal_far(cpu_id, node->first_llc + j, now))
				return true;
		}
	}
	return false;
}

/* Steals a task from the LLC for which the CPU was woken. */
static __always_inline bool steal_for_caller(u32 cpu_id, const struct roost_cpu *cpu, u64 now)
{
	u32 id = cpu->called_by - 1;
	struct roost_llc *llc = llc_at(id);

	if (!llc || id == cpu->llc)
		return false;
	return llc->node == cpu->node ? steal_near(cpu_id, id, now) == STOLEN : steal_far(cpu_id, id, now);
}

/* Whether a task may be waiting anywhere. Usually none is waiting when a CPU has nothing to do. */
static __always_inline bool any_waiting(void)
{
	struct roost_node *node;
	int i;

	each(i, 0, nr_nodes) {
		node = node_at(i);
		if (node && (node->waiting_llcs[0] | node->waiting_llcs[1] | node->waiting_llcs[2] |
			     node->waiting_llcs[3]))
			return true;
	}
	return false;
}

/*
 * Looks for a task elsewhere for a CPU that has none. A CPU that was woken to help looks there first, even on
 * another node, and even if its own node may soon have a task for it.
 */
static __always_inline bool look_elsewhere(u32 cpu_id, const struct roost_cpu *cpu)
{
	int result = NONE_WAITS;
	u64 now;

	if (nr_llcs == 1 || !any_waiting())
		return false;
	now = scx_bpf_now();
	if (cpu->called_by && steal_for_caller(cpu_id, cpu, now))
		return true;
	if (nr_llcs > nr_nodes)
		result = steal_in_node(cpu_id, now);
	if (result == STOLEN)
		return true;
	return nr_nodes > 1 && (result == NONE_WAITS || cpu->called_by) && steal_from_nodes(cpu_id, now);
}

/* Wakes a CPU, which stays marked as idle, to look for a task. It looks in the LLC `from` first. */
static __always_inline bool call(u32 number, u32 from)
{
	struct roost_cpu *cpu = cpu_at(number);

	if (!cpu)
		return false;
	cpu->called_by = from + 1;
	scx_bpf_kick_cpu(number, KICK_IDLE);
	return true;
}

/*
 * A CPU found no task in an LLC for which it was woken. It looks there once more if a task is just being queued. At a
 * tick, tasks of the LLC change places (together.h). A CPU that is woken by one of them may come before the other is
 * queued, and again at the next tick.
 */
static __always_inline bool call_again(u32 cpu_id, struct roost_cpu *cpu, u32 id)
{
	struct roost_llc *llc = llc_at(id);

	if (cpu->called_again || cpu->called_by || !llc || !is_left(llc))
		return false;
	cpu->called_by = id + 1;
	scx_bpf_kick_cpu(cpu_id, 0);
	return true;
}

static __always_inline bool steal(u32 cpu_id, struct roost_cpu *cpu)
{
	u32 called_by = cpu->called_by;
	bool stolen = look_elsewhere(cpu_id, cpu);

	cpu->called_by = 0;
	cpu->called_again = called_by && !stolen && call_again(cpu_id, cpu, called_by - 1);
	return stolen;
}

/* Wakes an idle CPU of an LLC that a task may use, to look there. */
static __always_inline bool kick_llc(struct task_struct *p, u32 id)
{
	return call(idle_for(p, id), id);
}

/*
 * The same for a task that was sent to the LLC: preferably a CPU of an idle core. The CPU is claimed, so that tasks
 * that are sent at the same time get other CPUs.
 */
__noinline bool claim_and_kick(struct task_struct *p __arg_trusted, u32 id)
{
	struct roost_llc *llc = llc_at(id);

	return llc && call(search_all(p, id, llc), id);
}

/* Wakes an idle CPU of a node that a task may use, to look in the LLC `from`. */
__noinline bool kick_node(struct task_struct *p __arg_trusted, u32 node_id, u32 from)
{
	u32 index = next_idle_word(p, node_id, 0);

	return index != NONE && call(idle_in(p, index), from);
}

/*
 * Number of nodes, ordered by distance, that are asked for help: only the own node, and all nodes after a
 * while.
 */
static __always_inline u32 asked(u64 backlog)
{
	return backlog < node_wait_us * 1000 ? 1 : nr_nodes;
}

/*
 * A task has waited for too long in an LLC of a node. Wakes an idle CPU to take it: one of this node, otherwise
 * one of the next nodes. Idle CPUs do not look by themselves.
 */
__noinline bool ask_for_help(struct task_struct *p __arg_trusted, u32 from, u32 node_id, u64 backlog)
{
	u32 rank, *id;
	int i;

	each(i, 0, asked(backlog)) {
		rank = node_id * nr_nodes + i;
		id = bpf_map_lookup_elem(&near, &rank);
		if (id && any_idle(*id) && kick_node(p, *id, from))
			return true;
	}
	return false;
}

/* Whether there is an idle CPU that could help a node. */
__noinline bool any_help(u32 node_id, u64 backlog)
{
	u32 rank, *id;
	int i;

	each(i, 0, asked(backlog)) {
		rank = node_id * nr_nodes + i;
		id = bpf_map_lookup_elem(&near, &rank);
		if (id && any_idle(*id))
			return true;
	}
	return false;
}

/* Number of waiting tasks that are examined for one that an idle CPU could take. */
#define LOOKED_AT 16

/* Tasks have waited in an LLC for too long. Asks for help for the first one that an idle CPU may take. */
__noinline bool help_waiting(u32 id, u64 backlog)
{
	struct roost_llc *llc = llc_at(id);
	struct task_struct *p;
	bool helped = false;
	int i;

	if (!llc || !any_help(llc->node, backlog))
		return false;
	bpf_rcu_read_lock();
	each_queued(p, it, i, id, 0, LOOKED_AT) {
		helped = ask_for_help(p, id, llc->node, backlog);
		if (helped)
			break;
	}
	bpf_rcu_read_unlock();
	return helped;
}

/*
 * A task that runs for long found no idle CPU when it woke up, and waits now. Wakes a CPU that has become idle
 * since then and found no task.
 */
static __always_inline void call_for(struct task_struct *p, const struct roost_task *task, u32 id, u32 node)
{
	if (!kick_llc(p, id))
		ask_for_help(p, id, node, home_of(task) == node ? 0 : ~0ull);
}

/* Records how long a task has waited that runs now, and makes sure that others do not wait for too long. */
static __always_inline void account_wait(struct roost_task *task, const struct roost_cpu *cpu,
					 struct roost_llc *llc, u64 now, struct roost_counters *n)
{
	u64 waited = now - task->queued_at, backlog = backlog_ns(llc, now);

	task->queued_at = 0;
	count_out(task);
	if ((s64)waited < 0)
		return;
	task->waited += waited;
	n->run_delay_ns += waited;
	if (waited > n->run_delay_max_ns)
		n->run_delay_max_ns = waited;
	n->late += waited >= llc_wait_us * 1000;
	if (backlog < llc_wait_us * 1000 || now - llc->helped_at < HELP_NS)
		return;
	llc->helped_at = now;
	if (llc->waiting)
		help_waiting(cpu->llc, backlog);
}

/* Number of CPUs of an LLC that are examined for one that should give way: a power of two. */
#define GIVE_WAY 4

/*
 * A running task gives way only to a short task: one that usually runs for less than this part of a slice, and
 * for less than this part of the running task's time. If both run equally long, the switch does not pay off: if
 * many tasks exchange messages, a task that goes on has more messages ready for the task that it woke.
 */
#define WORTH_A_SWITCH 4

/* Time that a running task must have run before it gives way to a task, in ns. 0: it does not give way. */
static __always_inline u64 due_after(const struct roost_task *task)
{
	u64 least = task->burst * WORTH_A_SWITCH;

	if (least > slice_ns())
		return 0;
	return least > preempt_us * 1000 ? least : preempt_us * 1000;
}

/* A task goes to sleep. Updates the mean of how long it runs. */
static __always_inline void end_burst(struct roost_task *task)
{
	task->burst = (task->burst * 3 + task->ran_awake) / 4;
	task->ran_awake = 0;
}

/* For how long a CPU has run a task that should give way, if at least `least`. Otherwise 0. */
static __always_inline u64 gives_way(const struct task_struct *p, u32 cpu_id, const struct roost_cpu *cpu, u64 now,
				     u64 least)
{
	u64 ran = now - cpu->started_at;

	if (!cpu->online || !cpu->started_at || !may_run(p, cpu_id) || (s64)ran < (s64)least ||
	    !before(p->scx.dsq_vtime, cpu->vtime + vtime_of(ran, cpu->weight)))
		return 0;
	return ran;
}

/* The bit of a group of CPUs in its LLC, by a CPU's slot. 0 beyond 64 groups (no LLC has so many). */
static __always_inline u64 group_bit(const struct roost_llc *llc, const struct roost_cpu *cpu)
{
	u32 group = ((cpu->word - llc->first_word) * 64 + cpu->bit) / GIVE_WAY;

	return group < 64 ? 1ull << group : 0;
}

/*
 * No CPU of a group gives way before `until`. All groups of the LLC share the time: the earliest of theirs. The bits
 * and the time are not read or written together. A wrong pair can keep a group quiet for preempt_us at most.
 */
static __always_inline void set_quiet(struct roost_llc *llc, u64 group, u64 now, u64 until)
{
	if (!before(now, until))
		return;
	if (!before(now, llc->quiet_until)) {
		llc->quiet = group;
		llc->quiet_until = until;
		return;
	}
	if (before(until, llc->quiet_until))
		llc->quiet_until = until;
	llc->quiet |= group;
}

/*
 * A task that woke up has to wait. Among some CPUs of the LLC, the group that its last CPU is in, finds the CPU
 * that has run the same task for longest. That task gives way if it is ahead in virtual time and has run for long
 * enough to be worth the switch. If one of these CPUs is idle, it is woken instead: the search did not reach
 * it, or it has become idle since. Each of these CPUs has a cache line that it writes all the time, so nobody
 * looks again before one of them can have run for long enough.
 */
__noinline int preempt(struct task_struct *p __arg_trusted, u32 cpu_id, u64 now, u64 least)
{
	struct roost_cpu *cpu = cpu_at(cpu_id), *here = this_cpu();
	struct roost_llc *llc = cpu ? llc_at(cpu->llc) : NULL;
	u32 word_id, slot, place, *other, best = NONE;
	u64 group, ran, most = 0, earliest = now;
	struct roost_word *word;
	bool idle = false;
	int i;

	if (!here || !llc)
		return 0;
	group = group_bit(llc, cpu);
	if (llc->quiet & group && before(now, llc->quiet_until))
		return 0;
	word_id = cpu->word;
	word = word_at(word_id);
	if (!word)
		return 0;
	slot = cpu->bit & ~(GIVE_WAY - 1);
	each(i, 0, GIVE_WAY) {
		place = word_id * 64 + slot;
		other = bpf_map_lookup_elem(&slots, &place);
		cpu = other ? cpu_at(*other) : NULL;
		if (cpu) {
			if (cpu->online && cpu->started_at && before(cpu->started_at, earliest))
				earliest = cpu->started_at;
			ran = gives_way(p, *other, cpu, now, least);
			if (ran > most) {
				most = ran;
				best = *other;
				idle = word->idle & 1ull << (slot & 63);
			}
		}
		slot = slot + 1 < word->nr_slots ? slot + 1 : 0;
	}
	set_quiet(llc, group, now, earliest + preempt_us * 1000);
	cpu = cpu_at(best);
	if (!cpu)
		return 0;
	cpu->started_at = now;
	cpu->vtime += vtime_of(most, cpu->weight);
	here->n.preempted += !idle;
	scx_bpf_kick_cpu(best, idle ? KICK_IDLE : KICK_PREEMPT);
	return 0;
}

/* More tasks than ever wait in a queue: the largest bound that a loop may have. */
#define ALL_WAITING (1 << 23)

/*
 * A CPU of an LLC goes offline: the kernel no longer asks it what to run, and moves only the tasks in its local queue
 * to other CPUs. So everything that waits for this CPU goes to its local queue. A task that last ran elsewhere, and
 * could run only on this CPU of the LLC, goes back there.
 */
__noinline int drain_queue(u32 cpu_id, u32 llc_id, u64 queue)
{
	struct task_struct *p;
	u32 to;
	int i;

	bpf_rcu_read_lock();
	each_queued(p, it, i, queue, 0, ALL_WAITING) {
		to = scx_bpf_task_cpu(p);
		if (to == cpu_id || (!allowed_in(p, llc_id) && may_run(p, to)))
			dsq_move(&it, p, DSQ_LOCAL_ON | to);
	}
	bpf_rcu_read_unlock();
	return 0;
}

static __always_inline void account_migration(struct roost_task *task, u32 cpu_id, const struct roost_cpu *cpu,
			      struct roost_counters *n)
{
	struct roost_cpu *last;

	if (task->cpu != cpu_id) {
		last = cpu_at(task->cpu);
		if (last) {
			n->nr_migrations++;
			n->llc_migrations += last->llc != cpu->llc;
			n->node_migrations += last->node != cpu->node;
		}
		task->cpu = cpu_id;
	}
}

#endif
