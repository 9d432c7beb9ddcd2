//! Balancing for CPUs whose tick is stopped, in 3.9: who asks for it (`nohz_kick_needed`), and what the CPU
//! that is asked does (`run_rebalance_domains`, `nohz_idle_balance`).
//!
//! A timer that a program sleeps by is no tick on an idle CPU: with high resolution timers, the kernel's default,
//! `tick_nohz_stop_sched_tick()` moves the tick to the next timer of the timer wheel, and others interrupt by
//! themselves.
//!
//! One timer of the wheel is always there: that which compares the TSC with another clock
//! (`clocksource_watchdog()`: every HZ / 2, on the next CPU each time; the TSC has CLOCK_SOURCE_MUST_VERIFY unless
//! the CPU says that it is reliable, as those of virtual machines do). The tick of an idle CPU runs for it, and
//! balances what is due (`scheduler_tick()`, `trigger_load_balance()`).

use roost_engine::{CpuId, Time, Work, World};

use crate::domain::{Domain, Flags};
use crate::features::Generation;
use crate::state::{Fair, LINES_PER_QUEUE, NohzKick};
use crate::stats::IdleType;

/// What balancing is asked for; there is nothing else in 3.9.
const BALANCE: NohzKick = NohzKick { balance: true, stats: false, next: false };

/// WATCHDOG_INTERVAL is so many to a second.
const WATCHDOGS_A_SECOND: u64 = 2;

impl Fair {
    /// Whether there is the clocksource watchdog (on x86): a timer that goes to the next CPU every half second, whose
    /// tick runs for it even if it is idle. In 3.9, whose CPUs have no other timer of the scheduler's.
    pub(crate) fn has_clock_watchdog(&self) -> bool {
        self.features.generation == Generation::Weights
    }

    /// The timer begins on the first CPU. Assumption: a run begins when it goes there.
    pub(crate) fn start_clock_watchdog(&mut self, world: &mut World) {
        if self.has_clock_watchdog() {
            self.watch_clock_on(world, 0);
        }
    }

    /// The timer goes to `cpu`, where it expires at the next whole interval.
    fn watch_clock_on(&mut self, world: &mut World, cpu: CpuId) {
        let interval = 1_000_000_000 / WATCHDOGS_A_SECOND;
        let at = Time((world.now().ns() / interval + 1) * interval);
        world.start_timer(cpu, cpu, at);
    }

    /// The timer has expired on `cpu`: in the tick that came for it, which a busy CPU has anyway. The tick asks for
    /// balancing before timers expire, and that is done after them.
    ///
    /// An idle CPU to which the timer goes looks for work as it finds out when its next tick is
    /// (`wake_up_idle_cpu()`: it is rescheduled).
    pub(crate) fn clock_watchdog_expired(&mut self, world: &mut World, cpu: CpuId) {
        let due = self.jiffies(world.now()) >= self.rqs[cpu].next_balance;
        let balances = due && world.is_idle(cpu);
        let next = (cpu + 1) % self.rqs.len();
        self.watch_clock_on(world, next);
        if next != cpu && world.is_idle(next) {
            world.kick(cpu, next, Work::Reschedule);
        }
        if balances {
            self.balance_domains(world, cpu, cpu, IdleType::Idle);
            self.balance.pay(world, cpu);
        }
    }

    /// At the tick of a busy CPU: asks the first tickless CPU to balance for all of them, if that is due and this
    /// one has tasks to give. A CPU that has work since, but had no tick, is asked for nothing.
    pub(crate) fn kick_first_tickless(&mut self, world: &mut World, cpu: CpuId) {
        let due = self.jiffies(world.now()) >= self.nohz.next_balance;
        let Some(balancer) = self.nohz.idle_cpus.first().filter(|_| due) else { return };
        if self.rqs[cpu].nr_running < 2 && !self.shares_its_group(cpu) {
            return;
        }
        self.nohz.next_balance += 1;
        let asked = &mut self.rqs[balancer].nohz_kick;
        if world.is_idle(balancer) && asked.is_none() {
            *asked = Some(BALANCE);
            world.kick(cpu, balancer, Work::Balance);
        }
    }

    /// Whether in one of the domains that share caches the CPU's own group, its core, has several busy CPUs
    /// (`nr_busy_cpus`).
    fn shares_its_group(&self, cpu: CpuId) -> bool {
        let busy = |other: &CpuId| !self.rqs[*other].counted_idle;
        let several = |level: usize, domain: &Domain| {
            let own = domain.groups[self.topology.local_group_index(cpu, level)];
            self.topology.group(own).span.iter().filter(busy).count() > 1
        };
        let domains = self.topology.domains_of(cpu).iter().map(|&id| self.topology.domain(id));
        let mut caches = domains.take_while(|domain| domain.has(Flags::SHARE_LLC)).enumerate();
        caches.any(|(level, domain)| several(level, domain))
    }

    /// `cpu` was asked: it balances for itself and then for every other tickless CPU that is idle, whether due or
    /// not, until it has work.
    pub(crate) fn balance_for_tickless(&mut self, world: &mut World, cpu: CpuId) {
        self.balance_domains(world, cpu, cpu, IdleType::Idle);
        for other in 0..self.rqs.len() {
            let asks = other != cpu && self.nohz.idle_cpus.contains(other);
            if !asks || !world.is_idle(other) {
                continue;
            }
            if !world.is_idle(cpu) {
                break;
            }
            self.balance.fetch(world, other, cpu, LINES_PER_QUEUE);
            self.balance_domains(world, cpu, other, IdleType::Idle);
            let next = self.rqs[other].next_balance;
            self.rqs[cpu].next_balance = self.rqs[cpu].next_balance.min(next);
        }
        self.nohz.next_balance = self.rqs[cpu].next_balance;
    }
}
