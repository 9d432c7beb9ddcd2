//! The state of the machine when a run begins: just booted, or up for a while.

use roost_engine::{CpuId, World};

use crate::state::Fair;

/// What the machine did before the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// The machine has been up and idle for an hour.
    ///
    /// Every CPU's tick has stopped and every CPU counts as idle. The domains are old. Their
    /// balancing is due at random moments, because an idle machine balances only when a task makes
    /// its CPU ask for it. Each domain was balanced once in its interval. Balancing passes found no
    /// utilisation, so a wakeup may search the whole LLC (`nr_idle_scan`).
    #[default]
    Running,
    /// `sd_init()` builds the scheduling domains now, as at boot. All of them count as balanced at
    /// this moment. No pass has set yet how many CPUs a wakeup may search.
    Boot,
    /// The domains were rebuilt on an idle machine, for example because a CPU went offline and came
    /// back. As [`Start::Boot`], and `sd_init()` counts all CPUs of an LLC as busy. A CPU whose
    /// tick has already stopped counts as busy until it has run a task and goes idle again. Until
    /// then a busy CPU of the same LLC makes other CPUs balance (`nohz_balancer_kick()`).
    DomainsRebuilt,
}

/// Uptime of [`Start::Running`], s. It is longer than every interval the kernel compares with.
const UPTIME_S: u64 = 3600;

impl Fair {
    /// Begins the run as `start` says.
    #[must_use]
    pub fn starting(self, start: Start) -> Self {
        let jiffies_before = match start {
            Start::Running => UPTIME_S * u64::from(self.features.hz),
            Start::Boot | Start::DomainsRebuilt => 0,
        };
        Self { start, jiffies_before, ..self }
    }

    /// Makes every CPU idle and sets the state that [`Start`] describes.
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

    /// Sets when each domain of `cpu` was last balanced: a random moment in its last interval.
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
