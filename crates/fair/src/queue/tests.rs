use std::collections::VecDeque;

use proptest::prelude::*;
use roost_engine::TaskId;
use roost_workload::Policy;

use super::{ANYWHERE, Arrival, Entity, Leave, Preempt, Queue, QueueRules, eevdf};
use crate::weight::weight_of;

const MS: u64 = 1_000_000;
const A: TaskId = TaskId(0);
const B: TaskId = TaskId(1);
const C: TaskId = TaskId(2);

/// CFS on at least eight CPUs.
fn cfs() -> QueueRules {
    QueueRules {
        nr_latency: 8,
        eevdf: false,
        latency: 24 * MS,
        min_granularity: 3 * MS,
        slice_at_least_granularity: true,
        sleeper_credit: 12 * MS,
        fraction: 0,
        wakeup_granularity: 4 * MS,
        base_slice: 0,
        tick: 4 * MS,
        protection_point: false,
        lag_by_queue_slice: false,
        delay_dequeue: false,
        preempt_short: false,
        preempt_lazy: false,
    }
}

/// EEVDF of 7.2 on at least eight CPUs.
fn eevdf72() -> QueueRules {
    QueueRules {
        eevdf: true,
        base_slice: 2_800_000,
        protection_point: true,
        lag_by_queue_slice: true,
        delay_dequeue: true,
        preempt_short: true,
        ..cfs()
    }
}

/// EEVDF of 6.15.
fn eevdf615() -> QueueRules {
    QueueRules { protection_point: false, lag_by_queue_slice: false, ..eevdf72() }
}

fn entity(nice: i8) -> Entity {
    Entity { weight: weight_of(nice), ..Entity::default() }
}

fn custom(slice: u64) -> Entity {
    Entity { slice: slice as u32, custom_slice: true, ..entity(0) }
}

/// A queue with these nice-0 entities waiting, numbered from 0, at these virtual times (ms). Each
/// has a new request.
fn queue_at(rules: QueueRules, vruntimes_ms: &[i64]) -> Queue {
    let mut queue = Queue::new(rules);
    for (number, ms) in vruntimes_ms.iter().enumerate() {
        let vruntime = ms * MS as i64;
        let deadline = vruntime + rules.base_slice as i64;
        let slice = rules.base_slice;
        let entity = Entity { vruntime, deadline, slice, ..entity(0) };
        queue.push(TaskId(number as u32), entity);
    }
    queue
}

fn vruntime(queue: &Queue, task: TaskId) -> i64 {
    queue.entity(task).vruntime
}

/// The slice of the current entity: the longest run that the tick allows.
fn slice_by_tick(queue: &mut Queue) -> u64 {
    let longest = |queue: &mut Queue, ran: u64| {
        queue.resched = false;
        !queue.tick(ran)
    };
    let (mut low, mut high) = (0, 1000 * MS);
    while high - low > 1 {
        let middle = (low + high) / 2;
        if longest(queue, middle) { low = middle } else { high = middle }
    }
    low
}

/// Section 4, vectors. Constants are scaled for at least eight CPUs.
#[test]
fn cfs_slices() {
    let mut three = queue_at(cfs(), &[0; 3]);
    three.set_current(A);
    assert_eq!(slice_by_tick(&mut three), 8 * MS);
    let mut ten = queue_at(cfs(), &[0; 10]);
    ten.set_current(A);
    assert_eq!(slice_by_tick(&mut ten), 3 * MS);
    let mut unequal = Queue::new(cfs());
    unequal.insert(A, entity(0), Arrival::Moved);
    unequal.insert(B, entity(5), Arrival::Moved);
    unequal.set_current(A);
    assert_eq!(slice_by_tick(&mut unequal) / 10_000, 1808);
    unequal.put_current();
    unequal.set_current(B);
    assert_eq!(slice_by_tick(&mut unequal) / 10_000, 591);
}

#[test]
fn cfs_slices_before_5_15_may_be_shorter_than_the_granularity() {
    let rules = QueueRules { slice_at_least_granularity: false, ..cfs() };
    let mut light = Queue::new(rules);
    light.push(A, entity(19));
    light.push(B, entity(0));
    light.set_current(A);
    // 24 ms x 15 / 1039.
    assert_eq!(slice_by_tick(&mut light), 346_487);
}

#[test]
fn cfs_tick_gives_way_to_one_a_slice_behind_but_not_before_min_granularity() {
    let mut queue = queue_at(cfs(), &[20, 0]);
    queue.set_current(A);
    assert!(!queue.tick(3 * MS - 1));
    assert!(queue.tick(3 * MS), "20 ms ahead is more than the slice of 12 ms");
    let mut alone = queue_at(cfs(), &[0]);
    alone.set_current(A);
    assert!(!alone.tick(1000 * MS));
}

#[test]
fn cfs_sleepers_come_back_at_most_half_a_latency_behind() {
    let mut queue = queue_at(cfs(), &[100]);
    queue.set_current(A);
    queue.run(0);
    queue.insert(B, entity(0), Arrival::Wakeup);
    assert_eq!(vruntime(&queue, B), 88 * MS as i64);
    let ahead = Entity { vruntime: 95 * MS as i64, ..entity(0) };
    queue.insert(C, ahead, Arrival::Wakeup);
    assert_eq!(vruntime(&queue, C), 95 * MS as i64);
}

#[test]
fn cfs_min_vruntime_follows_the_least_and_migration_is_relative_to_it() {
    let mut queue = queue_at(cfs(), &[100, 103]);
    let mut other = queue_at(cfs(), &[7]);
    (queue.reference, other.reference) = (100 * MS as i64, 7 * MS as i64);
    let moved = queue.remove(B, Leave::Runnable);
    other.insert(B, moved, Arrival::Moved);
    assert_eq!(vruntime(&other, B), 10 * MS as i64);
    let mut asleep = queue.remove(A, Leave::Sleep);
    assert_eq!(asleep.vruntime, 100 * MS as i64);
    queue.migrate_sleeping(&mut asleep);
    other.insert(A, asleep, Arrival::Wakeup);
    assert_eq!(vruntime(&other, A), 7 * MS as i64);
}

#[test]
fn cfs_forked_tasks_start_a_slice_behind_the_queue() {
    let mut queue = queue_at(cfs(), &[50]);
    queue.set_current(A);
    queue.run(0);
    let mut child = entity(0);
    queue.place_forked(&mut child);
    queue.insert(B, child, Arrival::New);
    assert_eq!(vruntime(&queue, B), (50 + 12) * MS as i64, "two tasks: a slice is 12 ms");
}

#[test]
fn cfs_wakeup_preempts_beyond_the_granularity_scaled_by_the_wakees_weight() {
    let preempts = |ahead: u64, nice| {
        let mut queue = queue_at(cfs(), &[0]);
        queue.set_current(A);
        queue.push(B, entity(nice));
        queue.run(ahead);
        queue.preempts(B, Arrival::Wakeup, ANYWHERE) == Preempt::Yes
    };
    assert!(!preempts(4 * MS, 0));
    assert!(preempts(4 * MS + 1, 0));
    assert!(!preempts(4 * MS * 1024 / 335, 5));
    assert!(preempts(4 * MS * 1024 / 335 + 1, 5));
}

#[test]
fn batch_and_idle_policies_do_not_preempt_and_idle_gives_way() {
    for rules in [cfs(), eevdf615(), eevdf72()] {
        let batch = Entity { policy: Policy::Batch, ..entity(0) };
        let idle = Entity { policy: Policy::Idle, weight: 3, ..Entity::default() };
        for wakee in [batch, idle] {
            let mut queue = queue_at(rules, &[50]);
            queue.set_current(A);
            queue.run(10 * MS);
            queue.resched = false;
            queue.insert(B, wakee, Arrival::Wakeup);
            assert_eq!(queue.preempts(B, Arrival::Wakeup, ANYWHERE), Preempt::No);
        }
        let mut queue = Queue::new(rules);
        queue.insert(A, idle, Arrival::Wakeup);
        queue.set_current(A);
        queue.insert(B, entity(0), Arrival::Wakeup);
        assert_eq!(queue.preempts(B, Arrival::Wakeup, ANYWHERE), Preempt::Yes);
    }
}

#[test]
fn a_current_task_already_asked_to_give_way_is_left_alone() {
    let mut queue = queue_at(cfs(), &[0]);
    queue.set_current(A);
    queue.run(30 * MS);
    queue.insert(B, entity(0), Arrival::Wakeup);
    queue.insert(C, entity(0), Arrival::Wakeup);
    assert_eq!(queue.preempts(B, Arrival::Wakeup, ANYWHERE), Preempt::Yes);
    assert_eq!(queue.preempts(C, Arrival::Wakeup, ANYWHERE), Preempt::No);
    assert!(queue.is_buddy(B) && !queue.is_buddy(C));
}

/// `wakeup_preempt_fair` does not look at TIF_NEED_RESCHED_LAZY: a second wakeup is decided too and
/// shrinks the protection.
#[test]
fn a_current_task_lazily_asked_to_give_way_is_not() {
    let mut queue = queue_at(QueueRules { preempt_lazy: true, ..eevdf72() }, &[0]);
    queue.set_current(A);
    assert!(!queue.run(2_900_000), "alone");
    queue.insert(B, entity(0), Arrival::Wakeup);
    assert_eq!(queue.preempts(B, Arrival::Wakeup, ANYWHERE), Preempt::Yes);
    queue.insert(C, entity(0), Arrival::Wakeup);
    assert_eq!(queue.preempts(C, Arrival::Wakeup, ANYWHERE), Preempt::No, "B would be picked");
    let mut at_once = queue_at(eevdf72(), &[0]);
    at_once.set_current(A);
    at_once.run(2_900_000);
    at_once.insert(B, entity(0), Arrival::Wakeup);
    assert_eq!(at_once.preempts(B, Arrival::Wakeup, ANYWHERE), Preempt::Yes);
    assert!(at_once.resched && !queue.resched);
}

#[test]
fn time_until_the_deadline_is_real_time_rounded_up() {
    let mut queue = queue_at(eevdf72(), &[0]);
    assert_eq!(queue.until_deadline(), None, "no task runs");
    queue.set_current(A);
    queue.run(1_000_000);
    assert_eq!(queue.until_deadline(), Some(1_800_000));
    let light = Entity { deadline: 1000, ..entity(5) };
    let mut queue = Queue::new(eevdf72());
    queue.push(A, light);
    queue.set_current(A);
    assert_eq!(queue.until_deadline(), Some((1000_u64 * 335).div_ceil(1024)));
}

#[test]
fn cfs_prefers_a_next_buddy_within_the_granularity() {
    for (buddy_ms, expected) in [(4, B), (5, C)] {
        let mut queue = queue_at(cfs(), &[50, buddy_ms, 0]);
        queue.set_current(A);
        assert_eq!(queue.preempts(B, Arrival::Wakeup, ANYWHERE), Preempt::Yes);
        assert_eq!(queue.pick(), Some(expected));
    }
}

#[test]
fn cfs_prefers_the_preempted_among_many() {
    for (others, expected) in [(6, A), (5, TaskId(5))] {
        let mut vruntimes = vec![6; others];
        vruntimes.push(1);
        vruntimes[0] = 5;
        let mut queue = queue_at(cfs(), &vruntimes);
        queue.set_current(A);
        let wakee = TaskId(100);
        queue.push(wakee, entity(0));
        assert_eq!(queue.preempts(wakee, Arrival::Wakeup, ANYWHERE), Preempt::Yes);
        assert_eq!(queue.pick(), Some(wakee));
        queue.put_current();
        queue.set_current(wakee);
        queue.remove(wakee, Leave::Sleep);
        assert_eq!(queue.pick(), Some(expected), "{} tasks at the wakeup", others + 2);
    }
}

#[test]
fn cfs_yield_lets_another_run_that_is_near_enough() {
    for (second_ms, expected) in [(4, B), (5, A)] {
        let mut queue = queue_at(cfs(), &[0, second_ms]);
        queue.set_current(A);
        queue.yield_current();
        assert_eq!(queue.pick(), Some(expected));
    }
}

/// Section 5, vector.
#[test]
fn eevdf_placement_keeps_lag() {
    for rules in [eevdf615(), eevdf72()] {
        let mut queue = queue_at(rules, &[0, 6]);
        assert_eq!(eevdf::average(&queue), 3 * MS as i64);
        assert!(queue.eligible(A) && !queue.eligible(B));
        let woken = Entity { vlag: MS as i64, ..entity(0) };
        queue.insert(C, woken, Arrival::Wakeup);
        assert_eq!(vruntime(&queue, C), 1_500_000);
        assert_eq!(queue.entity(C).deadline, 1_500_000 + 2_800_000);
        assert_eq!(eevdf::average(&queue), 2_500_000);
        assert_eq!(queue.remove(C, Leave::Sleep).vlag, MS as i64);
    }
}

#[test]
fn eevdf_average_rounds_down_below_the_reference_too() {
    let mut queue = queue_at(eevdf72(), &[]);
    for (number, vruntime) in [-1, -2].into_iter().enumerate() {
        queue.push(TaskId(number as u32), Entity { vruntime, ..entity(0) });
    }
    assert_eq!(eevdf::average(&queue), -2);
    assert!(queue.eligible(B) && !queue.eligible(A));
}

#[test]
fn eevdf_lag_is_limited() {
    let lag = |rules, own, other: Option<Entity>| {
        let mut queue = Queue::new(rules);
        queue.insert(A, own, Arrival::Wakeup);
        queue.insert(B, other.unwrap_or(entity(0)), Arrival::Wakeup);
        queue.set_current(B);
        queue.run(100 * MS);
        queue.remove(A, Leave::Sleep).vlag
    };
    assert_eq!(lag(eevdf615(), entity(0), None), 2 * 2_800_000, "twice the task's own slice");
    assert_eq!(lag(eevdf615(), custom(MS), None), 4 * MS as i64, "at least a tick");
    assert_eq!(lag(eevdf72(), entity(0), None), 2_800_000 + 4 * MS as i64);
    assert_eq!(lag(eevdf72(), entity(0), Some(custom(20 * MS))), 24 * MS as i64);
    assert_eq!(lag(eevdf72(), entity(5), None), (6_800_000 * 1024 / 335), "in its virtual time");
}

#[test]
fn eevdf_forked_tasks_get_half_a_request_and_migrated_ones_keep_the_rest() {
    let mut queue = queue_at(eevdf72(), &[0]);
    queue.insert(B, entity(0), Arrival::New);
    assert_eq!(queue.entity(B).deadline - vruntime(&queue, B), 1_400_000);
    queue.set_current(B);
    queue.run(400_000);
    queue.put_current();
    let moved = queue.remove(B, Leave::Runnable);
    let mut other = queue_at(eevdf72(), &[500]);
    other.insert(B, moved, Arrival::Moved);
    assert_eq!(other.entity(B).deadline - vruntime(&other, B), 1_000_000);
}

#[test]
fn eevdf_new_request_when_the_deadline_is_reached() {
    let mut alone = queue_at(eevdf72(), &[0]);
    alone.set_current(A);
    assert!(!alone.run(3 * MS), "no other task waits");
    assert_eq!(alone.entity(A).deadline, 5_800_000);
    let mut queue = queue_at(eevdf72(), &[0, 0]);
    queue.set_current(A);
    assert!(!queue.run(2_799_999));
    assert!(queue.run(1));
    assert_eq!(queue.pick(), Some(B));
}

/// Until 6.15: kept while eligible and until the deadline at pick, even if others are eligible.
#[test]
fn run_to_parity_until_ineligible() {
    let mut queue = queue_at(eevdf615(), &[0, 0]);
    queue.set_current(B);
    assert_eq!(queue.pick(), Some(B), "A was first and has the same deadline");
    queue.run(1);
    assert_eq!(queue.pick(), Some(A), "B is ahead of the average now");
    let mut behind = queue_at(eevdf615(), &[1, 0, 9]);
    behind.set_current(A);
    behind.run(MS);
    assert_eq!(behind.pick(), Some(A), "B has the earlier deadline");
}

/// 7.2: the protection point is the deadline, or the smallest slice of the queue from now.
#[test]
fn vprot_is_the_smallest_slice_ahead() {
    let mut queue = queue_at(eevdf72(), &[0, 9]);
    queue.set_current(A);
    assert_eq!(queue.entity(A).protected_until, 2_800_000);
    queue.put_current();
    queue.insert(C, custom(MS), Arrival::Wakeup);
    queue.set_current(A);
    assert_eq!(queue.entity(A).protected_until, MS as i64);
    assert!(!queue.run(MS - 1));
    assert!(queue.run(1), "losing protection asks to give way");
}

#[test]
fn wakeups_that_do_not_preempt_shrink_the_protection() {
    let mut queue = queue_at(eevdf72(), &[0, 9]);
    queue.set_current(A);
    queue.run(500_000);
    let longer = Entity { vlag: -3 * MS as i64, ..custom(20 * MS) };
    queue.insert(C, longer, Arrival::Wakeup);
    assert_eq!(queue.preempts(C, Arrival::Wakeup, ANYWHERE), Preempt::No);
    assert_eq!(queue.entity(A).protected_until, 2_800_000, "base slice ahead is later");
    let batch = Entity { policy: Policy::Batch, ..custom(MS) };
    queue.insert(TaskId(3), batch, Arrival::Wakeup);
    assert_eq!(queue.preempts(TaskId(3), Arrival::Wakeup, ANYWHERE), Preempt::No);
    queue.insert(TaskId(4), Entity { vlag: -9 * MS as i64, ..entity(0) }, Arrival::Wakeup);
    assert_eq!(queue.preempts(TaskId(4), Arrival::Wakeup, ANYWHERE), Preempt::No);
    assert_eq!(queue.entity(A).protected_until, 500_000 + MS as i64);
}

/// PREEMPT_SHORT: an eligible wakee with a shorter slice overrides protection. A wakee with an
/// equal slice does not.
#[test]
fn shorter_slices_preempt() {
    for rules in [eevdf615(), eevdf72()] {
        for (wakee, expected) in [(entity(0), Preempt::No), (custom(MS), Preempt::Yes)] {
            let mut queue = queue_at(rules, &[0, 1]);
            queue.set_current(A);
            queue.run(MS);
            queue.insert(C, wakee, Arrival::Wakeup);
            assert_eq!(queue.preempts(C, Arrival::Wakeup, ANYWHERE), expected);
            let next = if expected == Preempt::Yes { C } else { A };
            assert_eq!(queue.pick(), Some(next));
        }
    }
}

#[test]
fn forked_tasks_preempt_only_with_a_shorter_slice_in_7_2() {
    let mut queue = queue_at(eevdf72(), &[0]);
    queue.set_current(A);
    queue.push(B, Entity { vruntime: -10, slice: 2_800_000, ..entity(0) });
    queue.run(MS);
    assert_eq!(queue.preempts(B, Arrival::New, ANYWHERE), Preempt::No);
    let mut older = queue_at(eevdf615(), &[0]);
    older.set_current(A);
    older.push(B, Entity { vruntime: -10, slice: 2_800_000, ..entity(0) });
    older.run(MS);
    assert_eq!(
        older.preempts(B, Arrival::New, ANYWHERE),
        Preempt::Yes,
        "A is not eligible any more"
    );
}

/// B runs ahead of A, goes to sleep and stays on the queue.
fn delayed(rules: QueueRules) -> Queue {
    let mut queue = queue_at(rules, &[0, 0]);
    queue.set_current(B);
    queue.run(2 * MS);
    assert!(queue.delay_current(), "B is 1 ms ahead of the average");
    queue
}

#[test]
fn an_ineligible_sleeper_stays_until_it_is_picked() {
    let mut queue = delayed(eevdf72());
    assert_eq!((queue.len(), queue.pick()), (2, Some(A)));
    queue.set_current(A);
    queue.run(4 * MS);
    assert_eq!(queue.pick(), Some(B), "eligible again: its dequeue can be completed");
    let gone = queue.remove(B, Leave::Sleep);
    assert_eq!((gone.vlag, gone.delayed), (0, false), "DELAY_ZERO");
    let mut eligible = queue_at(eevdf72(), &[0, 0]);
    eligible.set_current(B);
    assert!(!eligible.delay_current());
}

#[test]
fn a_delayed_sleeper_that_leaves_early_keeps_the_smaller_debt() {
    let mut queue = delayed(eevdf72());
    queue.set_current(A);
    queue.run(MS);
    assert_eq!(queue.remove(B, Leave::Sleep).vlag, -500_000);
}

#[test]
fn a_delayed_sleeper_woken_early_keeps_its_place() {
    let mut queue = delayed(eevdf72());
    let before = *queue.entity(B);
    queue.wake_delayed(B);
    assert_eq!(vruntime(&queue, B), before.vruntime);
    assert_eq!(queue.entity(B).deadline, before.deadline);
    assert!(!queue.entity(B).delayed);
}

#[test]
fn a_delayed_sleeper_woken_late_is_placed_without_lag() {
    let mut queue = delayed(eevdf72());
    queue.set_current(A);
    queue.run(10 * MS);
    queue.wake_delayed(B);
    assert_eq!(vruntime(&queue, B), 10 * MS as i64);
    assert_eq!(queue.entity(B).deadline, 10 * MS as i64 + 2_800_000);
}

#[test]
fn a_preempting_wakeup_first_completes_a_delayed_dequeue() {
    let mut queue = queue_at(eevdf72(), &[0, 3, 9]);
    queue.set_current(A);
    queue.run(4 * MS);
    queue.resched = false;
    let sleeper = queue.position(B);
    queue.entries[sleeper].entity.delayed = true;
    queue.entries[sleeper].entity.deadline = 0;
    let wakee = TaskId(3);
    queue.insert(wakee, entity(0), Arrival::Wakeup);
    assert_eq!(queue.preempts(wakee, Arrival::Wakeup, ANYWHERE), Preempt::AfterDequeue(B));
}

#[test]
fn eevdf_yield_forfeits_the_request_since_6_18() {
    let mut older = queue_at(eevdf615(), &[0, 0]);
    older.set_current(A);
    older.yield_current();
    assert_eq!((vruntime(&older, A), older.entity(A).deadline), (0, 5_600_000));
    let mut newer = queue_at(eevdf72(), &[0, 0]);
    newer.set_current(A);
    newer.yield_current();
    assert_eq!((vruntime(&newer, A), newer.entity(A).deadline), (2_800_000, 5_600_000));
    newer.yield_current();
    assert_eq!(vruntime(&newer, A), 2_800_000, "not eligible: nothing to forfeit");
}

#[test]
fn a_new_weight_keeps_lag_in_real_time() {
    let mut queue = queue_at(eevdf72(), &[0, 4]);
    queue.set_current(A);
    queue.change(A, |entity| entity.weight = 2048);
    let average = eevdf::average(&queue);
    let lag = average - vruntime(&queue, A);
    assert!((lag - MS as i64).abs() <= 1, "2 ms at 1024 are 1 ms at 2048, not {lag} ns");
    assert_eq!(queue.current(), Some(A));
}

/// One step of a random sequence on a queue with at most `TASKS` tasks.
#[derive(Clone, Copy, Debug)]
enum Step {
    Wake(u32),
    Run(u64),
    Sleep,
    Take(u32),
    Tick(u64),
    Yield,
}

const TASKS: u32 = 12;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..TASKS).prop_map(Step::Wake),
        4 => (0..10 * MS).prop_map(Step::Run),
        2 => Just(Step::Sleep),
        1 => (0..TASKS).prop_map(Step::Take),
        2 => (0..20 * MS).prop_map(Step::Tick),
        1 => Just(Step::Yield),
    ];
    proptest::collection::vec(step, 1..300)
}

/// Random tasks by number: several weights, some SCHED_BATCH and SCHED_IDLE, some with custom
/// slices.
fn task_entity(number: u32) -> Entity {
    let nice = [0, 0, 0, -20, 5, 19][number as usize % 6];
    let base = if number == 7 { custom(MS) } else { entity(nice) };
    let weight = if number == 8 { 3 } else { base.weight };
    let policy = match number {
        8 => Policy::Idle,
        9 => Policy::Batch,
        _ => Policy::Normal,
    };
    Entity { weight, policy, ..base }
}

/// A queue, and the tasks that are not on it.
struct OnAndOff {
    queue: Queue,
    off: Vec<(TaskId, Entity)>,
}

impl OnAndOff {
    fn new(rules: QueueRules) -> Self {
        let off = (0..TASKS).map(|number| (TaskId(number), task_entity(number))).collect();
        Self { queue: Queue::new(rules), off }
    }

    fn on(&self) -> Vec<TaskId> {
        self.queue.entries.iter().map(|entry| entry.task).collect()
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Wake(number) => self.wake(TaskId(number)),
            Step::Run(delta) => {
                self.queue.run(delta);
            }
            Step::Sleep => self.sleep(),
            Step::Take(number) => self.take(TaskId(number)),
            Step::Tick(ran) => {
                if self.queue.tick(ran) {
                    self.schedule();
                }
            }
            Step::Yield => {
                self.queue.yield_current();
                self.schedule();
            }
        }
    }

    fn wake(&mut self, task: TaskId) {
        if let Some(position) = self.off.iter().position(|(other, _)| *other == task) {
            let (task, entity) = self.off.swap_remove(position);
            self.queue.insert(task, entity, Arrival::Wakeup);
            self.decide(task);
        } else if self.queue.entity(task).delayed {
            self.queue.wake_delayed(task);
            self.decide(task);
        }
    }

    fn decide(&mut self, wakee: TaskId) {
        loop {
            match self.queue.preempts(wakee, Arrival::Wakeup, ANYWHERE) {
                Preempt::Yes => return self.schedule(),
                Preempt::No => return,
                Preempt::AfterDequeue(sleeper) => self.leave(sleeper, Leave::Sleep),
            }
        }
    }

    fn leave(&mut self, task: TaskId, why: Leave) {
        let entity = self.queue.remove(task, why);
        self.off.push((task, entity));
    }

    fn sleep(&mut self) {
        if let Some(task) = self.queue.current() {
            if !self.queue.delay_current() {
                self.leave(task, Leave::Sleep);
            }
            self.schedule();
        }
    }

    /// Balancing takes a waiting task.
    fn take(&mut self, task: TaskId) {
        if self.queue.waiting().any(|(other, entity)| other == task && !entity.delayed) {
            self.leave(task, Leave::Runnable);
        }
    }

    fn schedule(&mut self) {
        while let Some(task) = self.queue.pick() {
            if self.queue.entity(task).delayed {
                self.leave(task, Leave::Sleep);
            } else if self.queue.current() != Some(task) {
                self.queue.put_current();
                self.queue.set_current(task);
                return;
            } else {
                return;
            }
        }
    }

    /// The average from its definition, in numbers that cannot overflow.
    fn average_by_definition(&self) -> i64 {
        let entities = || self.queue.entries.iter().map(|entry| entry.entity);
        let weight: i128 = entities().map(|entity| i128::from(entity.weight)).sum();
        let weighted =
            entities().map(|entity| i128::from(entity.weight) * i128::from(entity.vruntime));
        weighted.sum::<i128>().div_euclid(weight) as i64
    }

    fn check_sums(&self) {
        let weight: u64 = self.queue.waiting().map(|(_, entity)| entity.weight).sum();
        assert_eq!(self.queue.weight, weight as i64);
        let keys =
            self.queue.waiting().map(|(_, entity)| (entity, self.queue.key(entity.vruntime)));
        let weighted: i64 = keys.map(|(entity, key)| entity.weight as i64 * key).sum();
        assert_eq!(self.queue.weighted, weighted);
        let custom = self.on().iter().filter(|&&task| self.queue.entity(task).custom_slice).count();
        assert_eq!(self.queue.nr_custom as usize, custom);
        assert_eq!(self.queue.len() + self.off.len(), TASKS as usize);
        for buddy in [self.queue.next, self.queue.last, self.queue.skip].into_iter().flatten() {
            assert!(self.on().contains(&buddy), "buddy {buddy:?} is not queued");
        }
    }
}

proptest! {
    /// Compared with a list: the order in which balancing takes tasks.
    #[test]
    fn balancing_takes_tasks_in_the_order_of_a_list(
        steps in prop::collection::vec((0u8..7, 0u32..6), 1..100),
    ) {
        let mut queue = Queue::new(eevdf72());
        let mut model: VecDeque<TaskId> = VecDeque::new();
        for (what, number) in steps {
            let task = TaskId(number);
            let place = model.iter().position(|&other| other == task);
            match (what, place) {
                (0 | 1, None) => {
                    queue.insert(task, entity(0), Arrival::Wakeup);
                    model.push_front(task);
                }
                (0, Some(place)) => {
                    queue.remove(task, Leave::Sleep);
                    model.remove(place);
                }
                (2, Some(place)) => {
                    queue.put_current();
                    queue.set_current(task);
                    queue.move_current_to_head();
                    model.remove(place);
                    model.push_front(task);
                }
                (3, Some(_)) => queue.change(task, |entity| entity.weight = weight_of(5)),
                (4, _) => {
                    queue.move_tail_to_head();
                    model.rotate_right(usize::from(!model.is_empty()));
                }
                (5, _) => {
                    queue.move_head_to_tail();
                    model.rotate_left(usize::from(!model.is_empty()));
                }
                _ => {}
            }
            let mut list = Vec::new();
            queue.list(&mut list);
            let list: Vec<_> = list.into_iter().map(|(_, task)| task).collect();
            prop_assert_eq!((queue.list_head(), queue.list_tail()), (model.front().copied(), model.back().copied()));
            prop_assert_eq!(list, model.iter().copied().collect::<Vec<_>>());
        }
    }
}

proptest! {
    #[test]
    fn cfs_min_vruntime_never_moves_back(steps in steps()) {
        let mut tasks = OnAndOff::new(cfs());
        for step in steps {
            let before = tasks.queue.reference;
            tasks.apply(step);
            prop_assert!(tasks.queue.reference >= before);
            tasks.check_sums();
        }
    }

    #[test]
    fn eevdf_average_is_what_its_definition_says_and_somebody_is_eligible(steps in steps()) {
        for rules in [eevdf615(), eevdf72()] {
            let mut tasks = OnAndOff::new(rules);
            for &step in &steps {
                tasks.apply(step);
                tasks.check_sums();
                if tasks.queue.len() == 0 {
                    continue;
                }
                prop_assert_eq!(eevdf::average(&tasks.queue), tasks.average_by_definition());
                prop_assert!(tasks.on().iter().any(|&task| tasks.queue.eligible(task)));
                prop_assert!(tasks.queue.pick().is_some());
            }
        }
    }

    /// If a task is removed and woken at once, its lag stays the same, up to rounding.
    #[test]
    fn eevdf_lag_survives_sleep(steps in steps()) {
        for rules in [eevdf615(), eevdf72()] {
            let mut tasks = OnAndOff::new(rules);
            for &step in &steps {
                tasks.apply(step);
                let first = tasks.queue.waiting().next();
                let Some((task, Entity { delayed: false, .. })) = first else { continue };
                if tasks.queue.len() < 2 {
                    continue;
                }
                let left = tasks.queue.remove(task, Leave::Sleep);
                tasks.queue.insert(task, left, Arrival::Wakeup);
                let lag = eevdf::average(&tasks.queue) - vruntime(&tasks.queue, task);
                prop_assert!((lag - left.vlag).abs() <= 2, "{} became {lag}", left.vlag);
            }
        }
    }

    /// Tasks of one weight that never sleep, examined after random times up to a tick: no task is
    /// further from an equal share than a slice plus a tick.
    #[test]
    fn equal_tasks_get_equal_shares(
        nr in 1..40_usize,
        intervals in proptest::collection::vec(1..=4 * MS, 200..2000),
    ) {
        for rules in [cfs(), eevdf615(), eevdf72()] {
            let slice = if rules.eevdf {
                rules.base_slice.into()
            } else {
                (rules.latency / nr as u64).max(rules.min_granularity)
            };
            let share = intervals.iter().sum::<u64>() / nr as u64;
            for ran in run_hogs(rules, &vec![0; nr], &intervals) {
                let off = ran.abs_diff(share);
                prop_assert!(off <= slice + rules.tick, "{ran} of {share}: {rules:?}");
            }
        }
    }
}

/// Over 20 s: the shares are those of the weights, within the effect of one turn of the lighter
/// task.
#[test]
fn shares_follow_weights() {
    for rules in [cfs(), eevdf615(), eevdf72()] {
        let nices = [0, 5, -5, 0];
        let weights = nices.map(weight_of);
        let ran = run_hogs(rules, &nices, &[rules.tick; 5000]);
        for (weight, ran) in weights.iter().zip(ran) {
            let share = 5000 * rules.tick * weight / weights.iter().sum::<u64>();
            assert!(ran.abs_diff(share) < 100 * MS, "{ran} of {share}: {rules:?}");
        }
    }
}

/// Runs tasks of these nice values that never sleep, with a tick after each interval. Returns how
/// long each ran.
fn run_hogs(rules: QueueRules, nices: &[i8], intervals: &[u64]) -> Vec<u64> {
    let mut queue = Queue::new(rules);
    for (number, &nice) in nices.iter().enumerate() {
        queue.insert(TaskId(number as u32), entity(nice), Arrival::Wakeup);
    }
    let mut ran = vec![0; nices.len()];
    let mut current = queue.pick().expect("a task is queued");
    queue.set_current(current);
    let mut since_pick = 0;
    for interval in intervals {
        ran[current.index()] += interval;
        since_pick += interval;
        let done = queue.run(*interval);
        if queue.tick(since_pick) || done {
            let next = queue.pick().expect("a task is queued");
            if next != current {
                queue.put_current();
                queue.set_current(next);
                (current, since_pick) = (next, 0);
            }
        }
    }
    ran
}
