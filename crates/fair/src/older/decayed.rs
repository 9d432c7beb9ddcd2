//! The decaying loads of 3.9 (`rq->cpu_load[]`, feature LB_BIAS). Balancing uses them as the load
//! of a CPU.
//!
//! At each tick the queued weight enters averages of different length. A pass uses one of them,
//! depending on the domain and on the state of its CPU. If average and weight differ, it chooses
//! the one nearer to balance: for a CPU of another group the lower one, for a CPU of its own group
//! the higher one (`source_load()`, `target_load()`). So a task that waits for a few microseconds
//! is not pulled, and a CPU that has just lost a task does not count as empty at once.

use roost_engine::{CpuId, World};

use crate::domain::{Domain, Flags};
use crate::eras::Load;
use crate::state::Fair;
use crate::stats::IdleType;

/// Number of averages that some domain uses: `cpu_load[0]` is the weight at the last tick, `[2]`
/// the longest.
const AVERAGES: usize = 3;

/// Number of ticks without load after which an average is 0 (`degrade_zero_ticks`).
const ZERO_TICKS: [u64; AVERAGES] = [0, 8, 32];

/// What remains of 128 after 1, 2, 4 ... ticks without load (`degrade_factor`). The second average
/// is halved instead.
const LEFT: [u64; 7] = [96, 72, 40, 12, 1, 0, 0];
const LEFT_OF_SHIFT: u32 = 7;

/// The averages of a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DecayedLoads {
    loads: [u64; AVERAGES],
    /// Jiffy of the last update (`last_load_update_tick`).
    updated: u64,
}

impl DecayedLoads {
    /// A tick found `weight` queued (`update_cpu_load_active`). Earlier ticks that were left out
    /// are ignored.
    pub(crate) fn tick(&mut self, jiffy: u64, weight: u64) {
        self.updated = jiffy;
        self.update(weight, 1);
    }

    /// No tick has come since the last update, and nothing was queued meanwhile
    /// (`update_cpu_load_nohz`, `update_idle_cpu_load`).
    pub(crate) fn idled(&mut self, jiffy: u64) {
        let ticks = jiffy - std::mem::replace(&mut self.updated, jiffy);
        if ticks > 0 {
            self.update(0, ticks);
        }
    }

    /// `__update_cpu_load()`.
    fn update(&mut self, weight: u64, ticks: u64) {
        self.loads[0] = weight;
        for (index, load) in self.loads.iter_mut().enumerate().skip(1) {
            let old = decay_missed(*load, ticks - 1, index);
            let others = (1 << index) - 1;
            // Rounded up while it grows, so that it reaches the weight.
            let new = if weight > old { weight + others } else { weight };
            *load = (old * others + new) >> index;
        }
    }
}

/// `decay_load_missed()`.
fn decay_missed(load: u64, missed: u64, index: usize) -> u64 {
    if missed >= ZERO_TICKS[index] {
        return 0;
    }
    if index == 1 {
        return load >> missed;
    }
    let bits = LEFT.iter().enumerate().filter(|(bit, _)| missed >> bit & 1 == 1);
    bits.fold(load, |load, (_, left)| (load * left) >> LEFT_OF_SHIFT)
}

/// The average that a pass over `domain` uses; `None` for the current weight. These are `busy_idx`
/// and `idle_idx`, minus one; `newidle_idx` is 0.
fn average_for(domain: &Domain, idle: IdleType) -> Option<usize> {
    let shares_core = domain.has(Flags::SHARE_CPUCAPACITY);
    match idle {
        IdleType::NewlyIdle => None,
        _ if shares_core => None,
        IdleType::Busy if domain.has(Flags::NUMA) => Some(2),
        IdleType::Busy => Some(1),
        IdleType::Idle if domain.has(Flags::NUMA) => Some(1),
        IdleType::Idle if domain.has(Flags::SHARE_LLC) => None,
        IdleType::Idle => Some(0),
    }
}

impl Fair {
    /// At a tick of `cpu`: updates its averages.
    pub(crate) fn decay_load(&mut self, world: &World, cpu: CpuId) {
        let jiffy = self.jiffies(world.now());
        let rq = &mut self.rqs[cpu];
        rq.decayed.tick(jiffy, rq.load_weight);
    }

    /// The load of a CPU in a pass over `domain`; `own` if the CPU is in the pass's own group.
    pub(super) fn load_seen(&self, cpu: CpuId, average: Option<usize>, own: bool) -> u64 {
        let now = self.cpu_load(cpu);
        let before = average.map(|index| self.rqs[cpu].decayed.loads[index]);
        match before {
            None => now,
            Some(before) if own => before.max(now),
            Some(before) => before.min(now),
        }
    }

    /// See [`average_for`]. Later versions use the current load.
    pub(super) fn average_for(&self, domain: &Domain, idle: IdleType) -> Option<usize> {
        let decays = self.features.averages.load == Load::Weight;
        average_for(domain, idle).filter(|_| decays)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Weight 1024: at each tick the second average gains half of the difference, rounded up, the
    /// third a quarter.
    #[test]
    fn averages_grow_to_the_weight() {
        let mut decayed = DecayedLoads::default();
        decayed.tick(1, 1024);
        assert_eq!(decayed.loads, [1024, 512, 256]);
        decayed.tick(2, 1024);
        assert_eq!(decayed.loads, [1024, 768, 448]);
        (3..40).for_each(|jiffy| decayed.tick(jiffy, 1024));
        assert_eq!(decayed.loads, [1024, 1024, 1024]);
    }

    /// After 5 ticks without load: 1024 / 32; and 1024 x 40 / 128 for the four missed ticks, three
    /// quarters of that now.
    #[test]
    fn what_ticks_missed_is_made_up_for() {
        let mut decayed = DecayedLoads { loads: [1024; AVERAGES], updated: 10 };
        decayed.idled(15);
        assert_eq!(decayed, DecayedLoads { loads: [0, 32, 240], updated: 15 });
        decayed.idled(15);
        assert_eq!(decayed.loads, [0, 32, 240], "the same jiffy");
        decayed.idled(60);
        assert_eq!(decayed.loads, [0, 0, 0]);
    }

    #[test]
    fn a_tick_forgets_those_that_were_left_out() {
        let mut decayed = DecayedLoads { loads: [1024; AVERAGES], updated: 10 };
        decayed.tick(260, 0);
        assert_eq!(decayed, DecayedLoads { loads: [0, 512, 768], updated: 260 });
    }
}
