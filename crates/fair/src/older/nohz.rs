//! Balancing for CPUs whose tick is stopped, in 3.9: who asks for it (`nohz_kick_needed`), and what the CPU
//! that is asked does (`run_rebalance_domains`, `nohz_idle_balance`).
//!
//! A timer that a program sleeps by is no tick on an idle CPU: with high resolution timers, the kernel's default,
//! `tick_nohz_stop_sched_tick()` moves the tick to the next timer of the timer wheel, and others interrupt by
//! themselves.
//!
//! Which timers the wheel of a machine has is its own affair: of drivers and daemons that poll, of the clocksource
//! watchdog. The tick of an idle CPU runs for them, and balances what is due (`scheduler_tick()`, `trigger_load_balance()`).

use roost_engine::{CpuId, Time, Work, World};

use crate::domain::{Domain, Flags};
use crate::state::{Fair, LINES_PER_QUEUE, NohzKick};
use crate::stats::IdleType;

/// What balancing is asked for; there is nothing else in 3.9.
const BALANCE: NohzKick = NohzKick { balance: true, stats: false, next: false };

/// How often timers of the wheel expire on each CPU, a second. Calibrated by rows that were posted for a kernel before NUMA
/// balancing (docs/notes/2026-11-25-results.md): with 4 to 83 three of four come within 1.5%, with 0.8 one is off by
/// 8%, with the clocksource
/// watchdog alone (every half second on one CPU) by 20%.
const WHEEL_TIMERS: u64 = 4;

impl Fair {
    /// Whether timers of the wheel are modelled: in 3.9, whose CPUs have no other timer of the scheduler's.
    pub(crate) fn has_wheel_timers(&self) -> bool {
        self.features.balance.idle_without_blocked_load
    }

    /// Timers begin on the first CPU.
    pub(crate) fn start_wheel_timers(&mut self, world: &mut World) {
        if self.has_wheel_timers() {
            self.expect_wheel_timer(world, 0);
        }
    }

    /// The next timer expires on `cpu`; they go round, each at a tick that the seed gives, when the CPU has left idle
    /// for it and served it. A turn that has begun meanwhile is left out.
    fn expect_wheel_timer(&mut self, world: &mut World, cpu: CpuId) {
        let interval = 1_000_000_000 / (WHEEL_TIMERS * self.rqs.len() as u64);
        let turn = (world.now().ns() / interval + 1) * interval;
        let at = Time(turn + world.random_below(interval));
        let figures = &world.machine().figures;
        let served = figures.idle_exit_ns.value + figures.tick_ns.value;
        let tick = world.tick_after(cpu, at, self.tick_ns);
        world.start_timer(cpu, cpu, tick + served);
    }

    /// A timer has expired on `cpu`: in the tick that came for it, which a busy CPU has anyway. The tick asks for
    /// balancing before timers expire, and that is done after them.
    pub(crate) fn wheel_timer_expired(&mut self, world: &mut World, cpu: CpuId) {
        let due = self.jiffies(world.now()) >= self.rqs[cpu].next_balance;
        self.expect_wheel_timer(world, (cpu + 1) % self.rqs.len());
        if world.is_idle(cpu) {
            self.decay_load(world, cpu);
        }
        if due && world.is_idle(cpu) {
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
            let jiffy = self.jiffies(world.now());
            self.rqs[other].decayed.idled(jiffy);
            self.balance_domains(world, cpu, other, IdleType::Idle);
            let next = self.rqs[other].next_balance;
            self.rqs[cpu].next_balance = self.rqs[cpu].next_balance.min(next);
        }
        self.nohz.next_balance = self.rqs[cpu].next_balance;
    }
}
