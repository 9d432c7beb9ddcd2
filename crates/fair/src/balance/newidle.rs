//! Newly-idle balancing: a CPU that ran out of tasks looks for one before it goes idle
//! (`newidle_balance`; kernel model, section 9.2). That pays only if the time for the search is
//! short compared with the time the CPU stays idle. So the kernel measures both.

use roost_engine::{CpuId, Time, World};

use super::decay_newidle_cost;
use super::pass::Pass;
use crate::domain::Flags;
use crate::state::{DomainState, Fair, NohzKick};
use crate::stats::IdleType;

/// NI_RANDOM: number of calls in a window. It is also the ratio that means "always".
const WINDOW: u32 = 1024;

/// NI_RANDOM: the ratio of successes when domains are built (`sd_init`).
pub(super) const INITIAL_RATIO: u32 = 512;

/// NI_RANDOM: number of calls at the start, half a window.
pub(super) const INITIAL_CALLS: u32 = 512;

/// NI_RANDOM: number of successes at the start.
pub(super) const INITIAL_SUCCESSES: u32 = 256;

/// NI_RATE: a window that took long means rare calls, so the next calls become likelier: by one in
/// 1024 for each 2^22 ns.
const RATE_SHIFT: u32 = 22;

/// The weight of a success of newly-idle balancing at a level (NI_RANDOM), or `None` if the level
/// is not tried. `draw` is a random number from 0 to 1023.
fn chance(ratio: u32, draw: u32) -> Option<u32> {
    if ratio >= WINDOW {
        return Some(1);
    }
    let weight = 1 + ratio;
    (draw <= weight).then(|| (WINDOW + weight / 2) / weight)
}

/// 3.9: jiffy at which the CPU balances next, after a search that found `next`. Unless the search
/// pulled a task, the jiffy `before` that the CPU set while busy stays if it is still in the future
/// (`idle_balance()`).
fn due_in_3_9(before: u64, next: u64, pulled: bool, now: u64) -> u64 {
    if pulled || now > before { next } else { before }
}

/// Counts a call and its success. At the end of a window computes the ratio anew
/// (`update_newidle_stats`).
fn count_call(state: &mut DomainState, success: u32, now_ns: u64) {
    state.newidle_call += 1;
    state.newidle_success += success;
    if state.newidle_call >= WINDOW {
        let elapsed = now_ns.saturating_sub(state.newidle_stamp);
        let by_rate = u32::try_from(elapsed >> RATE_SHIFT).unwrap_or(WINDOW);
        state.newidle_ratio = by_rate.saturating_add(state.newidle_success).min(WINDOW);
        state.newidle_stamp = now_ns;
        state.newidle_call /= 2;
        state.newidle_success /= 2;
    }
}

/// Records the cost of a pass if it is the highest so far. Returns whether it is.
fn raise_cost(state: &mut DomainState, cost_ns: u64, jiffies: u64) -> bool {
    let raises = cost_ns > state.max_newidle_lb_cost;
    if raises {
        state.max_newidle_lb_cost = cost_ns;
        state.last_decay = jiffies;
    }
    raises
}

/// A search for a task that is under way on a CPU without tasks. Meanwhile the run queue is
/// unlocked and interrupts are off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Search {
    /// The level whose run queues are being examined.
    level: usize,
    /// The weight of a success at that level.
    weight: u32,
    /// When the search of that level began.
    since: Time,
    /// Cost of the levels below, ns.
    cost: u64,
    /// The earliest jiffy at which one of the levels so far is due.
    next: u64,
}

/// Result of newly-idle balancing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pulled {
    /// A task was pulled, or arrived otherwise.
    Some,
    /// There is nothing to pull.
    Nothing,
    /// The search takes until the charged work is done. Call it again then.
    Later,
}

impl Fair {
    /// Looks for a task for `cpu`, which has none. The caller has recorded when the CPU became
    /// idle.
    pub(crate) fn newidle_balance(&mut self, world: &mut World, cpu: CpuId) -> Pulled {
        if let Some(search) = self.rqs[cpu].search.take() {
            return self.go_on_searching(world, cpu, search);
        }
        if world.wakeup_pending(cpu) {
            return Pulled::Nothing;
        }
        let next = self.jiffies(world.now()) + u64::from(self.features.hz);
        if self.worth_looking(cpu) {
            let since = self.balance.clock(world, cpu);
            // From 5.17 on the first level's cost includes this. In the simulation a CPU's own
            // cache lines are free.
            self.refresh_blocked(world, cpu, cpu);
            return self.search_from(
                world,
                cpu,
                Search { level: 0, weight: 1, since, cost: 0, next },
            );
        }
        if self.features.balance.newidle_sets_due {
            return self.end_search(world, cpu, None, false);
        }
        let due = (!self.rqs[cpu].domains.is_empty()).then(|| self.next_idle_balance(cpu, 0));
        self.end_search(world, cpu, Some(next.min(due.unwrap_or(next))), false)
    }

    /// The first gate: some CPU has waiting tasks, and this CPU is idle for long enough.
    fn worth_looking(&self, cpu: CpuId) -> bool {
        let rq = &self.rqs[cpu];
        let gate = if self.features.balance.newidle_gate_by_domain {
            rq.domains.first().map_or(0, |state| state.max_newidle_lb_cost)
        } else {
            self.migration_cost_ns()
        };
        let some_to_give = self.root_overloaded || !self.features.balance.newidle_costs;
        some_to_give && rq.avg_idle >= gate
    }

    /// Begins to search the first suitable level from `search.level` on. Stops when the cost would
    /// exceed the expected idle time.
    fn search_from(&mut self, world: &mut World, cpu: CpuId, mut search: Search) -> Pulled {
        for level in search.level..self.rqs[cpu].domains.len() {
            search.next = search.next.min(self.next_idle_balance(cpu, level));
            let rq = &self.rqs[cpu];
            let minds = self.features.balance.newidle_costs;
            if minds && rq.avg_idle < search.cost + rq.domains[level].max_newidle_lb_cost {
                break;
            }
            if !self.domain_of(cpu, level).has(Flags::BALANCE_NEWIDLE) {
                continue;
            }
            let Some(weight) = self.newidle_weight(world, cpu, level) else { continue };
            let pass = Pass::new(self, cpu, cpu, level, IdleType::NewlyIdle);
            if !self.begins(world, &pass) {
                self.leave_to_others(&pass);
                self.end_level(world, cpu, &mut search, 0);
                break;
            }
            self.note_examination(world, &pass);
            self.balance.pay(world, cpu);
            self.rqs[cpu].search = Some(Search { level, weight, ..search });
            return Pulled::Later;
        }
        self.end_all_levels(world, cpu, &search, false)
    }

    /// The run queues of a level have been examined. Decides, and continues with the next level if
    /// there was nothing to pull.
    fn go_on_searching(&mut self, world: &mut World, cpu: CpuId, mut search: Search) -> Pulled {
        let mut pass = Pass::new(self, cpu, cpu, search.level, IdleType::NewlyIdle);
        pass.examined = true;
        self.consider_all(&pass);
        let verdict = self.go_through(world, &mut pass);
        self.balance.pay(world, cpu);
        let pulled = verdict.moved > 0;
        let success = if pulled { search.weight } else { 0 };
        self.end_level(world, cpu, &mut search, success);
        if pulled || !verdict.go_on {
            return self.end_all_levels(world, cpu, &search, pulled);
        }
        search.level += 1;
        self.search_from(world, cpu, search)
    }

    /// Records the cost and the success of the search of a level.
    fn end_level(&mut self, world: &World, cpu: CpuId, search: &mut Search, success: u32) {
        let now = self.balance.clock(world, cpu);
        let cost = now.since(search.since);
        search.cost += cost;
        search.since = now;
        self.note_newidle(world, cpu, search.level, cost, success);
    }

    /// Ends the search: no further level is searched.
    fn end_all_levels(
        &mut self,
        world: &mut World,
        cpu: CpuId,
        search: &Search,
        pulled: bool,
    ) -> Pulled {
        if self.features.balance.newidle_costs {
            let rq = &mut self.rqs[cpu];
            rq.max_idle_balance_cost = rq.max_idle_balance_cost.max(search.cost);
        }
        self.end_search(world, cpu, Some(search.next), pulled)
    }

    /// Ends newly-idle balancing. `next` is the earliest jiffy at which one of the examined levels
    /// is due. A task that arrived meanwhile counts as pulled.
    fn end_search(
        &mut self,
        world: &mut World,
        cpu: CpuId,
        next: Option<u64>,
        pulled: bool,
    ) -> Pulled {
        let (now, sets_due) = (self.jiffies(world.now()), self.features.balance.newidle_sets_due);
        let rq = &mut self.rqs[cpu];
        let before = rq.next_balance;
        rq.next_balance = match next {
            None => before,
            Some(next) if sets_due => due_in_3_9(before, next, pulled, now),
            Some(next) => before.min(next),
        };
        if pulled || rq.nr_running > 0 {
            return Pulled::Some;
        }
        self.newidle_refresh(world, cpu);
        self.balance.pay(world, cpu);
        Pulled::Nothing
    }

    /// The weight of a success at `level`; `None` if the random number says that the level is not
    /// tried.
    fn newidle_weight(&mut self, world: &mut World, cpu: CpuId, level: usize) -> Option<u32> {
        let ratio = self.rqs[cpu].domains[level].newidle_ratio;
        if !self.features.switches.newidle_random || ratio >= WINDOW {
            return Some(1);
        }
        let weight = chance(ratio, world.random_below(u64::from(WINDOW)) as u32);
        if weight.is_none() {
            count_call(&mut self.rqs[cpu].domains[level], 0, world.now().ns());
        }
        weight
    }

    /// Records the cost and success of a pass.
    pub(super) fn note_newidle(
        &mut self,
        world: &World,
        cpu: CpuId,
        level: usize,
        cost: u64,
        success: u32,
    ) {
        let jiffies = self.jiffies(world.now());
        let (random, hz) = (self.features.switches.newidle_random, self.features.hz);
        let state = &mut self.rqs[cpu].domains[level];
        if !raise_cost(state, cost, jiffies) && self.features.balance.newidle_costs_decay_there {
            decay_newidle_cost(state, jiffies, hz);
        }
        if random && cost > 0 {
            count_call(state, success, world.now().ns());
        }
    }

    /// The jiffy at which `level` is due for an idle CPU.
    fn next_idle_balance(&self, cpu: CpuId, level: usize) -> u64 {
        self.rqs[cpu].domains[level].last_balance + self.balance_interval(cpu, level, false)
    }

    /// The CPU goes idle for some time. If blocked load is due for a refresh, it does that first
    /// (`nohz_newidle_balance`).
    fn newidle_refresh(&mut self, world: &mut World, cpu: CpuId) {
        let now = self.jiffies(world.now());
        let due = self.nohz.has_blocked && now >= self.nohz.next_blocked;
        if due && self.rqs[cpu].avg_idle >= self.migration_cost_ns() {
            let refresh = NohzKick { stats: true, ..NohzKick::default() };
            self.balance_for_idle(world, cpu, refresh);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chance_is_the_ratio_and_a_success_counts_its_inverse() {
        assert_eq!(chance(1024, 1023), Some(1));
        assert_eq!(chance(512, 513), Some(2), "(1024 + 256) / 513");
        assert_eq!(chance(512, 514), None);
        assert_eq!(chance(0, 1), Some(1024));
        assert_eq!(chance(0, 2), None);
        assert_eq!(chance(1, 0), Some(512), "(1024 + 1) / 2");
    }

    #[test]
    fn after_a_window_the_ratio_is_what_succeeded_plus_what_its_duration_says() {
        let mut state = DomainState {
            newidle_ratio: INITIAL_RATIO,
            newidle_call: 1023,
            newidle_success: 100,
            ..DomainState::default()
        };
        count_call(&mut state, 2, 10 << RATE_SHIFT);
        assert_eq!(
            (state.newidle_ratio, state.newidle_call, state.newidle_success),
            (112, 512, 51)
        );
        assert_eq!(state.newidle_stamp, 10 << RATE_SHIFT);
        count_call(&mut state, 0, 11 << RATE_SHIFT);
        assert_eq!(
            (state.newidle_ratio, state.newidle_call),
            (112, 513),
            "the ratio changes only at the end of a window"
        );
        let mut rare = DomainState { newidle_call: 1023, ..DomainState::default() };
        count_call(&mut rare, 0, 1024 << RATE_SHIFT);
        assert_eq!(rare.newidle_ratio, 1024, "the ratio is at most 1024");
    }

    #[test]
    fn in_3_9_a_cpu_that_goes_idle_is_due_when_it_was_as_a_busy_one() {
        assert_eq!(due_in_3_9(256, 104, false, 100), 256);
        assert_eq!(due_in_3_9(256, 104, true, 100), 104);
        assert_eq!((due_in_3_9(99, 104, false, 100), due_in_3_9(100, 104, false, 100)), (104, 100));
    }

    #[test]
    fn only_a_higher_cost_is_noted() {
        let mut state = DomainState { max_newidle_lb_cost: 500, ..DomainState::default() };
        assert!(!raise_cost(&mut state, 400, 7));
        assert_eq!((state.max_newidle_lb_cost, state.last_decay), (500, 0));
        assert!(raise_cost(&mut state, 501, 7));
        assert_eq!((state.max_newidle_lb_cost, state.last_decay), (501, 7));
    }
}
