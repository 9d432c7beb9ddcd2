//! Balancing for CPUs whose tick is stopped (kernel model, section 9.3): the tick of a busy CPU
//! asks an idle CPU to balance, or to refresh blocked load, on behalf of all tickless CPUs.

use roost_engine::{CpuId, Work, World};

use super::capacity::is_reduced;
use super::ms_to_jiffies;
use crate::state::{Fair, LINES_PER_QUEUE, NohzKick, Rq};
use crate::stats::IdleType;

/// Time between refreshes of blocked load, ms (LOAD_AVG_PERIOD).
const BLOCKED_REFRESH_MS: u64 = 32;

/// What the tick of a busy CPU knows when it decides whether to kick.
#[derive(Clone, Copy, Debug, Default)]
struct KickState {
    /// Some CPU is tickless.
    some_tickless: bool,
    /// Some tickless CPU has blocked load that was not refreshed for 32 ms.
    refresh_due: bool,
    /// Balancing for idle CPUs is due.
    balance_due: bool,
    /// A CPU has become tickless since the time of the next balance was computed.
    needs_update: bool,
    /// Tasks on this CPU.
    nr_running: u32,
    /// CPUs of this CPU's LLC whose tick runs.
    nr_busy_cpus: u32,
    /// Interrupts leave this CPU noticeably less than a whole one.
    reduced: bool,
}

/// What to ask an idle CPU for (`nohz_balancer_kick`). The kernel's other reason, asymmetric
/// capacity, does not exist here.
fn kick_for(state: KickState) -> Option<NohzKick> {
    if !state.some_tickless {
        return None;
    }
    let reduced = state.nr_running >= 1 && state.reduced;
    let balance = state.balance_due && (state.nr_running >= 2 || reduced || state.nr_busy_cpus > 1);
    let stats = balance || state.refresh_due;
    let kick = NohzKick { balance, stats, next: state.needs_update };
    (kick != NohzKick::default()).then_some(kick)
}

impl NohzKick {
    /// The union of both kicks.
    fn and(self, other: Self) -> Self {
        Self {
            balance: self.balance | other.balance,
            stats: self.stats | other.stats,
            next: self.next | other.next,
        }
    }
}

impl Fair {
    /// At the tick of a busy CPU: asks an idle CPU to balance for the tickless CPUs, if that is due
    /// and there may be something to pull.
    pub(crate) fn nohz_balancer_kick(&mut self, world: &mut World, cpu: CpuId) {
        if self.features.balance.idle_without_blocked_load {
            return self.kick_first_tickless(world, cpu);
        }
        let now = self.jiffies(world.now());
        let in_llc = self.topology.llc_level[cpu].is_some();
        let shared = &self.llcs[self.topology.llc_of[cpu] as usize];
        let kick = kick_for(KickState {
            some_tickless: !self.nohz.idle_cpus.is_empty(),
            refresh_due: self.nohz.has_blocked && now > self.nohz.next_blocked,
            balance_due: now >= self.nohz.next_balance,
            needs_update: self.nohz.needs_update,
            nr_running: self.rqs[cpu].nr_running,
            reduced: self.has_reduced_capacity(cpu),
            nr_busy_cpus: if in_llc { shared.nr_busy_cpus } else { 0 },
        });
        if let Some(kick) = kick {
            self.kick_idle_balancer(world, cpu, kick);
        }
    }

    /// Whether interrupts leave `cpu` noticeably less than a whole CPU, by its lowest domain.
    fn has_reduced_capacity(&self, cpu: CpuId) -> bool {
        let lowest = self.topology.domains_of(cpu).first();
        lowest.is_some_and(|&domain| {
            is_reduced(self.rqs[cpu].capacity, self.topology.domain(domain).imbalance_pct)
        })
    }

    /// Interrupts the first idle CPU of the nohz mask (`kick_ilb`). If that CPU has a pending kick,
    /// the new one is added to it.
    fn kick_idle_balancer(&mut self, world: &mut World, from: CpuId, kick: NohzKick) {
        if kick.balance {
            self.nohz.next_balance = self.jiffies(world.now()) + 1;
        }
        let masks = self.nohz.idle_cpus.words().iter().zip(world.idle_cpus().words());
        let idle = masks.enumerate().find(|(_, (tickless, idle))| *tickless & *idle != 0);
        let Some((word, (tickless, idle))) = idle else { return };
        let balancer = (word << 6) + (tickless & idle).trailing_zeros() as usize;
        let asked = &mut self.rqs[balancer].nohz_kick;
        let kicked = asked.is_some();
        *asked = Some(kick.and(asked.unwrap_or_default()));
        if !kicked {
            world.kick(from, balancer, Work::Balance);
        }
    }

    /// `cpu` was asked to balance for the tickless CPUs. It does so only if it is still idle.
    pub(crate) fn nohz_idle_balance(&mut self, world: &mut World, cpu: CpuId) {
        let Some(kick) = self.rqs[cpu].nohz_kick.take() else { return };
        if !world.is_idle(cpu) {
            return;
        }
        if self.features.balance.idle_without_blocked_load {
            self.balance_for_tickless(world, cpu);
        } else {
            self.balance_for_idle(world, cpu, kick);
        }
        self.balance.pay(world, cpu);
    }

    /// Does what a kick asks for, for every tickless idle CPU, `cpu` last. Computes when the next
    /// of them is due (`_nohz_idle_balance`).
    pub(super) fn balance_for_idle(&mut self, world: &mut World, cpu: CpuId, kick: NohzKick) {
        let now = self.jiffies(world.now());
        let was_idle = world.is_idle(cpu);
        let mut next = None;
        // Assumes that no load remains. A CPU that goes idle meanwhile sets the flags again.
        self.nohz.has_blocked &= !kick.stats;
        self.nohz.needs_update &= !kick.next;
        let mut has_blocked = false;
        let mut aborted = false;
        for other in (cpu + 1..self.rqs.len()).chain(0..=cpu) {
            if !self.nohz.idle_cpus.contains(other) || !world.is_idle(other) {
                continue;
            }
            if was_idle && !world.is_idle(cpu) {
                (aborted, has_blocked) = (true, kick.stats);
                self.nohz.needs_update |= kick.next;
                break;
            }
            self.balance.fetch(world, other, cpu, LINES_PER_QUEUE);
            has_blocked |= kick.stats && self.refresh_if_blocked(world, cpu, other, now);
            if kick.balance && now >= self.rqs[other].next_balance {
                self.balance_domains(world, cpu, other, IdleType::Idle);
            }
            let due = self.rqs[other].next_balance;
            next = Some(next.map_or(due, |next: u64| next.min(due)));
        }
        if !aborted {
            self.nohz.next_balance = next.unwrap_or(self.nohz.next_balance);
        }
        if !aborted && kick.stats {
            self.nohz.next_blocked = now + ms_to_jiffies(BLOCKED_REFRESH_MS, self.features.hz);
        }
        self.nohz.has_blocked |= has_blocked;
    }

    /// Decays the blocked load of an idle CPU, at most once per jiffy. Returns whether some
    /// remains.
    fn refresh_if_blocked(
        &mut self,
        world: &mut World,
        executor: CpuId,
        cpu: CpuId,
        now: u64,
    ) -> bool {
        let blocked = |rq: &Rq| rq.avg.load_avg > 0 || rq.avg.util_avg > 0;
        if !blocked(&self.rqs[cpu]) {
            return false;
        }
        if now > self.rqs[cpu].blocked_update {
            self.refresh_blocked(world, executor, cpu);
        }
        blocked(&self.rqs[cpu])
    }

    /// `cpu` goes idle and stops its tick.
    pub(crate) fn nohz_enter_idle(&mut self, world: &mut World, cpu: CpuId) {
        // 3.9 has no blocked load to balance.
        self.nohz.has_blocked = !self.features.balance.idle_without_blocked_load;
        if self.rqs[cpu].tickless {
            return;
        }
        self.stop_tick(cpu);
        if !std::mem::replace(&mut self.rqs[cpu].counted_idle, true) {
            self.change_busy_cpus(world, cpu, |busy| busy - 1);
        }
    }

    /// Stops the tick of `cpu`. The CPU may still count as busy ([`crate::Start::DomainsRebuilt`]).
    pub(crate) fn stop_tick(&mut self, cpu: CpuId) {
        self.rqs[cpu].tickless = true;
        self.nohz.idle_cpus.insert(cpu);
        self.nohz.needs_update = self.features.balance.kicks_for_next_balance;
    }

    /// The first busy tick of `cpu` after its tick was stopped.
    pub(crate) fn nohz_exit_idle(&mut self, world: &mut World, cpu: CpuId) {
        if !self.rqs[cpu].tickless {
            return;
        }
        self.rqs[cpu].tickless = false;
        self.nohz.idle_cpus.remove(cpu);
        if std::mem::take(&mut self.rqs[cpu].counted_idle) {
            self.change_busy_cpus(world, cpu, |busy| busy + 1);
        }
    }

    /// Changes the number of busy CPUs of the LLC of `cpu`. `cpu` pays for this shared line.
    fn change_busy_cpus(&mut self, world: &mut World, cpu: CpuId, change: impl Fn(u32) -> u32) {
        let shared = &mut self.llcs[self.topology.llc_of[cpu] as usize];
        shared.nr_busy_cpus = change(shared.nr_busy_cpus);
        let writer = std::mem::replace(&mut shared.last_writer, cpu);
        if writer != cpu {
            world.charge_line(cpu, writer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kicks_when_due_and_there_may_be_something_to_pull() {
        let due = KickState {
            some_tickless: true,
            balance_due: true,
            nr_running: 1,
            nr_busy_cpus: 1,
            refresh_due: false,
            needs_update: false,
            reduced: false,
        };
        let kick = kick_for;
        let stats = NohzKick { stats: true, ..NohzKick::default() };
        let balance = NohzKick { balance: true, ..stats };
        assert_eq!(kick(due), None);
        assert_eq!(kick(KickState { nr_running: 2, ..due }), Some(balance));
        assert_eq!(kick(KickState { nr_busy_cpus: 2, ..due }), Some(balance));
        assert_eq!(kick(KickState { reduced: true, ..due }), Some(balance));
        let not_due = KickState { balance_due: false, nr_running: 2, nr_busy_cpus: 2, ..due };
        assert_eq!(kick(not_due), None);
        assert_eq!(kick(KickState { refresh_due: true, ..not_due }), Some(stats));
        assert_eq!(kick(KickState { refresh_due: true, ..due }), Some(stats));
        let next = NohzKick { next: true, ..NohzKick::default() };
        assert_eq!(kick(KickState { needs_update: true, ..not_due }), Some(next), "due or not");
        assert_eq!(
            kick(KickState { needs_update: true, nr_running: 2, ..due }),
            Some(balance.and(next))
        );
        let busy = KickState { some_tickless: false, refresh_due: true, nr_running: 2, ..due };
        assert_eq!(kick(busy), None);
    }
}
