//! The decaying loads of 3.9 (`rq->cpu_load[]`, feature LB_BIAS): what balancing takes for the load of a CPU.
//!
//! Each tick the weight that is queued enters averages of different length. A pass takes one of them, by domain and by what
//! its CPU does, and in doubt believes in balance: of CPUs of other groups the lower of average and weight, of its
//! own group the higher (`source_load()`, `target_load()`). So a task that waits for some microseconds is no load to
//! be taken, and a CPU that has just lost one is not empty at once.

use roost_engine::{CpuId, World};

use crate::domain::{Domain, Flags};
use crate::eras::Load;
use crate::state::Fair;
use crate::stats::IdleType;

/// Averages that some domain asks for: `cpu_load[0]` is the weight at the last tick, `[2]` the longest.
const AVERAGES: usize = 3;

/// Ticks without load after which nothing is left (`degrade_zero_ticks`).
const ZERO_TICKS: [u64; AVERAGES] = [0, 8, 32];

/// What is left of 128 after 1, 2, 4 ... ticks without load (`degrade_factor`); the second average is halved.
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
    /// A tick found `weight` queued (`update_cpu_load_active`). Ticks that were left out before it are forgotten.
    pub(crate) fn tick(&mut self, jiffy: u64, weight: u64) {
        self.updated = jiffy;
        self.update(weight, 1);
    }

    /// No tick has come since the last update, and nothing was queued (`update_cpu_load_nohz`,
    /// `update_idle_cpu_load`).
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
            // Rounded up where it grows, so that it gets there.
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

/// Which average a pass over `domain` takes, `None` for the weight as it is: `busy_idx` and `idle_idx`, less one;
/// `newidle_idx` is 0.
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
    /// At a tick of `cpu`.
    pub(crate) fn decay_load(&mut self, world: &World, cpu: CpuId) {
        let jiffy = self.jiffies(world.now());
        let rq = &mut self.rqs[cpu];
        rq.decayed.tick(jiffy, rq.load_weight);
    }

    /// How a pass over `domain` sees the load of a CPU of its own group (`own`) or of another one.
    pub(super) fn load_seen(&self, cpu: CpuId, average: Option<usize>, own: bool) -> u64 {
        let now = self.cpu_load(cpu);
        let before = average.map(|index| self.rqs[cpu].decayed.loads[index]);
        match before {
            None => now,
            Some(before) if own => before.max(now),
            Some(before) => before.min(now),
        }
    }

    /// See [`average_for`]; later versions take loads as they are.
    pub(super) fn average_for(&self, domain: &Domain, idle: IdleType) -> Option<usize> {
        let decays = self.features.averages.load == Load::Weight;
        average_for(domain, idle).filter(|_| decays)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1024: half of what is missing, rounded up, is added each tick to the second average, a quarter to the third.
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

    /// After 5 ticks without: 1024 / 32; and 1024 x 40 / 128 for four that were missed, three quarters of it now.
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
