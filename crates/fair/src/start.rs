//! The machine as a run finds it: just booted, or up for a while.

use roost_engine::{CpuId, World};

use crate::state::Fair;

/// What the machine did before the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// It has been up for an hour, and idle.
    ///
    /// Every CPU's tick has stopped and every CPU counts as idle. Domains are old, and due at random moments:
    /// CPUs of an idle machine are balanced when some task makes its CPU ask for it, each domain once in its
    /// interval. Passes have found no utilisation, so a wakeup may search the whole LLC (`nr_idle_scan`).
    #[default]
    Running,
    /// The scheduling domains are built now, by `sd_init()`, as at boot: all of them were balanced at this
    /// moment, and no pass has said yet how many CPUs a wakeup may search.
    Boot,
    /// Domains have been built anew on an idle machine: a CPU was taken away and brought back, say. As
    /// [`Start::Boot`], and `sd_init()` counts all CPUs of an LLC as busy. One whose tick has stopped before
    /// stops counting only when it has been busy and goes idle again; until then a busy CPU beside it has
    /// others balance (`nohz_balancer_kick()`).
    DomainsRebuilt,
}

/// How long a machine that is up has been so, s. Longer than all that the kernel decides by.
const UPTIME_S: u64 = 3600;

impl Fair {
    /// The run begins as `start` says.
    #[must_use]
    pub fn starting(self, start: Start) -> Self {
        let jiffies_before = match start {
            Start::Running => UPTIME_S * u64::from(self.features.hz),
            Start::Boot | Start::DomainsRebuilt => 0,
        };
        Self { start, jiffies_before, ..self }
    }

    /// Leaves every CPU idle, and what it keeps as [`Start`] says.
    pub(crate) fn begin_idle(&mut self, world: &mut World) {
        for cpu in 0..self.rqs.len() {
            self.rqs[cpu].idle_since = Some(world.now().ns());
            match self.start {
                Start::DomainsRebuilt => self.stop_tick(cpu),
                Start::Boot | Start::Running => self.nohz_enter_idle(world, cpu),
            }
        }
        if self.start == Start::Running {
            self.nohz.has_blocked = false;
            for cpu in 0..self.rqs.len() {
                self.scatter_balancing(world, cpu);
            }
            self.nohz.next_balance =
                self.rqs.iter().map(|rq| rq.next_balance).min().unwrap_or_default();
            self.search_all_when_idle();
        }
    }

    /// Each domain of `cpu` was balanced at some moment of its last interval.
    fn scatter_balancing(&mut self, world: &mut World, cpu: CpuId) {
        let now = self.jiffies(world.now());
        let mut next = u64::MAX;
        for level in 0..self.rqs[cpu].domains.len() {
            let interval = self.balance_interval(cpu, level, false);
            let ago = world.random_below(interval.max(1));
            let domain = &mut self.rqs[cpu].domains[level];
            domain.last_balance = now - ago;
            domain.last_decay = now - world.random_below(u64::from(self.features.hz));
            next = next.min(domain.last_balance + interval);
        }
        self.rqs[cpu].next_balance = if next == u64::MAX { now } else { next };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use roost_engine::Scheduler;

    use super::*;
    use crate::features::Features;

    /// Two LLCs of 16 CPUs.
    fn started(start: Start) -> Fair {
        let machine = Arc::new(roost_machine::resolve("pack:2 l3:1 core:8 pu:2").unwrap());
        let fair = Fair::new(&machine, Features::parse("fair@7.2").unwrap());
        let (mut fair, mut world) = (fair.starting(start), World::for_test(machine, 0));
        fair.start(&mut world);
        fair
    }

    #[test]
    fn a_machine_just_booted_has_balanced_now_and_may_search_nothing() {
        let fair = started(Start::Boot);
        assert!(fair.rqs.iter().flat_map(|rq| &rq.domains).all(|domain| domain.last_balance == 0));
        assert!(fair.llcs.iter().all(|llc| llc.nr_idle_scan == 0));
    }

    #[test]
    fn one_that_is_up_is_due_at_random_moments_and_may_search_whole_llcs() {
        let fair = started(Start::Running);
        let now = fair.jiffies(roost_engine::Time(0));
        assert_eq!(now, 3600 * 250);
        for cpu in 0..fair.rqs.len() {
            for level in 0..fair.rqs[cpu].domains.len() {
                let last = fair.rqs[cpu].domains[level].last_balance;
                assert!(
                    last <= now && now < last + fair.balance_interval(cpu, level, false).max(1)
                );
            }
            assert!(fair.nohz.idle_cpus.contains(cpu));
        }
        let last: Vec<u64> = fair.rqs.iter().map(|rq| rq.domains[1].last_balance).collect();
        assert!(last.iter().any(|&other| other != last[0]), "{last:?}");
        assert!(fair.llcs.iter().all(|llc| llc.nr_idle_scan == 16));
        assert!(fair.llcs.iter().all(|llc| llc.nr_busy_cpus == 0));
    }

    #[test]
    fn after_domains_were_rebuilt_idle_cpus_count_as_busy() {
        let fair = started(Start::DomainsRebuilt);
        assert!(fair.llcs.iter().all(|llc| llc.nr_busy_cpus == 16));
    }
}
