//! Counters of the fair class, by the kernel's names: those of `/proc/schedstat`, the scheduling
//! statistics of tasks, and the search statistics of `select_idle_sibling` (kernel model, section
//! 15).

/// Names of the domain levels, bottom up. A counter's name begins with one. NUMA levels are in the
/// order of their distance.
const LEVEL_NAMES: [&str; 9] =
    ["SMT", "CLS", "MC", "PKG", "NODE", "NUMA", "NUMA2", "NUMA3", "NUMA4"];

/// Names of the idle types in the order of [`IdleType`].
const IDLE_NAMES: [&str; 3] = ["busy", "idle", "newidle"];

/// Buckets of a duration histogram: the last one holds 2^30 us and more.
const DURATION_BUCKETS: usize = 32;

/// State of the balancing CPU (`enum cpu_idle_type`), in the order of schedstat 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdleType {
    /// It runs a task.
    Busy,
    /// It is idle at a tick, either its own tick or one that another CPU serves for it.
    Idle,
    /// It is about to go idle.
    NewlyIdle,
}

/// Counters of balancing passes of one idle type at one domain level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LbStats {
    /// Passes.
    pub count: u64,
    /// Passes that found nothing to do.
    pub balanced: u64,
    /// Passes that found an imbalance and moved nothing.
    pub failed: u64,
    /// Sum of the imbalances found, each in its pass's own unit.
    pub imbalance: u64,
    /// Tasks moved.
    pub gained: u64,
    /// Tasks moved although their cache was hot.
    pub hot_gained: u64,
    /// Passes that found no busiest queue.
    pub nobusyq: u64,
    /// Passes that found no busiest group.
    pub nobusyg: u64,
}

/// Counters of balancing at one domain level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LevelStats {
    /// Balancing, by [`IdleType`].
    pub lb: [LbStats; 3],
    /// Active balances started.
    pub alb_count: u64,
    /// Active balances that moved nothing.
    pub alb_failed: u64,
    /// Tasks moved by active balance.
    pub alb_pushed: u64,
    /// Remote wakeups: the waker's CPU and the wakee's CPU differ. Counted at the lowest domain
    /// that holds both.
    pub ttwu_wake_remote: u64,
    /// Wakeups moved to the waker's CPU by wake_affine.
    pub ttwu_move_affine: u64,
    /// Wakeups moved by the slow path.
    pub ttwu_move_balance: u64,
}

/// Counters of the fair class over a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stats {
    /// By domain level, bottom up, in the order SMT, CLS, MC, PKG, NODE, NUMA by distance.
    pub levels: [LevelStats; LEVEL_NAMES.len()],
    /// Calls of sched_yield.
    pub yld_count: u64,
    /// Times a CPU found nothing to run.
    pub sched_goidle: u64,
    /// Calls of select_idle_sibling.
    pub sis_search: u64,
    /// Calls of select_idle_sibling in which the fast checks failed.
    pub sis_domain_search: u64,
    /// CPUs examined. The fast checks count as one CPU per call.
    pub sis_scanned: u64,
    /// Calls that returned the target as a last resort.
    pub sis_failed: u64,
    /// Simulated duration of select_idle_cpu.
    pub select_idle_cpu_us: DurationHistogram,
    /// Wakeups that asked wake_affine.
    pub nr_wakeups_affine_attempts: u64,
    /// Wakeups that wake_affine pulled to the waker's CPU.
    pub nr_wakeups_affine: u64,
    /// Cache-hot tasks that balancing moved after failures.
    pub nr_forced_migrations: u64,
    /// Tasks not moved because their affinity forbids it.
    pub nr_failed_migrations_affine: u64,
    /// Tasks not moved because they were running.
    pub nr_failed_migrations_running: u64,
    /// Tasks not moved because they were cache-hot.
    pub nr_failed_migrations_hot: u64,
}

/// Counts of durations: bucket 0 holds 0 to 1 us, bucket `n` holds `2^(n-1)` to `2^n` us.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DurationHistogram([u64; DURATION_BUCKETS]);

impl DurationHistogram {
    /// Counts one duration.
    #[inline]
    pub(crate) fn record(&mut self, ns: u64) {
        let bucket = (u64::BITS - (ns / 1000).leading_zeros()) as usize;
        self.0[bucket.min(DURATION_BUCKETS - 1)] += 1;
    }

    /// The counts up to the last bucket in use.
    pub(crate) fn counts(&self) -> &[u64] {
        let used = self.0.iter().rposition(|&count| count != 0).map_or(0, |last| last + 1);
        &self.0[..used]
    }
}

impl Stats {
    /// Balancing counters of a level (index into [`Stats::levels`]) and an idle type.
    #[inline]
    pub(crate) fn lb(&mut self, level: usize, idle: IdleType) -> &mut LbStats {
        &mut self.levels[level].lb[idle as usize]
    }

    /// Name and value of every counter, in a fixed order.
    pub(crate) fn for_each(&self, sink: &mut dyn FnMut(&str, u64)) {
        sink("yld_count", self.yld_count);
        sink("sched_goidle", self.sched_goidle);
        sink("sis_search", self.sis_search);
        sink("sis_domain_search", self.sis_domain_search);
        sink("sis_scanned", self.sis_scanned);
        sink("sis_failed", self.sis_failed);
        sink("nr_wakeups_affine_attempts", self.nr_wakeups_affine_attempts);
        sink("nr_wakeups_affine", self.nr_wakeups_affine);
        sink("nr_forced_migrations", self.nr_forced_migrations);
        sink("nr_failed_migrations_affine", self.nr_failed_migrations_affine);
        sink("nr_failed_migrations_running", self.nr_failed_migrations_running);
        sink("nr_failed_migrations_hot", self.nr_failed_migrations_hot);
        for (name, level) in LEVEL_NAMES.iter().zip(&self.levels) {
            level.for_each(name, sink);
        }
    }
}

impl LevelStats {
    /// Name and value of the counters of the level `name`.
    fn for_each(&self, name: &str, sink: &mut dyn FnMut(&str, u64)) {
        for (idle, lb) in IDLE_NAMES.iter().zip(&self.lb) {
            let values = [
                ("count", lb.count),
                ("balanced", lb.balanced),
                ("failed", lb.failed),
                ("imbalance", lb.imbalance),
                ("gained", lb.gained),
                ("hot_gained", lb.hot_gained),
                ("nobusyq", lb.nobusyq),
                ("nobusyg", lb.nobusyg),
            ];
            for (what, value) in values {
                sink(&format!("{name}.lb_{what}.{idle}"), value);
            }
        }
        sink(&format!("{name}.alb_count"), self.alb_count);
        sink(&format!("{name}.alb_failed"), self.alb_failed);
        sink(&format!("{name}.alb_pushed"), self.alb_pushed);
        sink(&format!("{name}.ttwu_wake_remote"), self.ttwu_wake_remote);
        sink(&format!("{name}.ttwu_move_affine"), self.ttwu_move_affine);
        sink(&format!("{name}.ttwu_move_balance"), self.ttwu_move_balance);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fall_into_buckets_by_powers_of_two_of_a_microsecond() {
        let mut histogram = DurationHistogram::default();
        for ns in [0, 999, 1000, 1999, 2000, 3999, 4000, u64::MAX] {
            histogram.record(ns);
        }
        assert_eq!(histogram.counts()[..4], [2, 2, 2, 1]);
        assert_eq!(histogram.counts().iter().sum::<u64>(), 8);
        assert_eq!(DurationHistogram::default().counts(), &[] as &[u64]);
    }

    #[test]
    fn counters_have_the_kernels_names() {
        let mut stats = Stats::default();
        stats.lb(2, IdleType::NewlyIdle).failed = 7;
        stats.sis_scanned = 3;
        let mut seen = Vec::new();
        stats.for_each(&mut |name, value| seen.push((name.to_owned(), value)));
        assert!(seen.contains(&("MC.lb_failed.newidle".to_owned(), 7)));
        assert!(seen.contains(&("sis_scanned".to_owned(), 3)));
        let mut names: Vec<_> = seen.iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), seen.len(), "two counters share a name");
    }
}
