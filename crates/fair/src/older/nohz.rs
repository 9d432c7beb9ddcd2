//! Balancing for CPUs whose tick is stopped, in 3.9: which CPU asks for it (`nohz_kick_needed`),
//! and what the CPU that is asked does (`run_rebalance_domains`, `nohz_idle_balance`).
//!
//! A sleeping program's timer causes no tick on an idle CPU. With high resolution timers, the
//! kernel's default, `tick_nohz_stop_sched_tick()` moves the tick to the next timer of the timer
//! wheel; other timers have their own interrupts.
//!
//! Drivers and daemons that poll, and the clocksource watchdog, set timers of the wheel. Which ones
//! a machine has is not known. The tick of an idle CPU runs for them and balances the domains that
//! are due (`scheduler_tick()`, `trigger_load_balance()`).

use roost_engine::{CpuId, Time, Work, World};

use crate::domain::{Domain, Flags};
use crate::state::{Fair, LINES_PER_QUEUE, NohzKick};
use crate::stats::IdleType;

/// The only kick of 3.9: balancing.
const BALANCE: NohzKick = NohzKick { balance: true, stats: false, next: false };

/// Number of wheel timers that expire on each CPU per second. Calibrated with published rows of a
/// kernel before NUMA balancing (docs/notes/2026-11-25-results.md). With 4 to 83 per second three
/// of four rows are within 1.5 %. With 0.8 one row is off by 8 %. With only the clocksource
/// watchdog (every half second on one CPU) it is off by 20 %.
const WHEEL_TIMERS: u64 = 4;

impl Fair {
    /// Whether wheel timers are modelled: only in 3.9, where the scheduler uses no other timer of
    /// the CPU.
    pub(crate) fn has_wheel_timers(&self) -> bool {
        self.features.balance.idle_without_blocked_load
    }

    /// Starts the timers on the first CPU.
    pub(crate) fn start_wheel_timers(&mut self, world: &mut World) {
        if self.has_wheel_timers() {
            self.expect_wheel_timer(world, 0);
        }
    }

    /// Sets the next timer on `cpu`. The CPUs take turns. Within a turn the seed decides at which
    /// tick the timer expires, after the CPU has left idle for it and served it. A turn that has
    /// already begun is skipped.
    fn expect_wheel_timer(&mut self, world: &mut World, cpu: CpuId) {
        let interval = 1_000_000_000 / (WHEEL_TIMERS * self.rqs.len() as u64);
        let turn = (world.now().ns() / interval + 1) * interval;
        let at = Time(turn + world.random_below(interval));
        let figures = &world.machine().figures;
        let served = figures.idle_exit_ns.value + figures.tick_ns.value;
        let tick = world.tick_after(cpu, at, self.tick_ns);
        world.start_timer(cpu, cpu, tick + served);
    }

    /// A timer has expired on `cpu`, in the tick that came for it; a busy CPU has that tick anyway.
    /// The tick asks for balancing before timers expire, and balancing runs after them.
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

    /// At the tick of a busy CPU: asks the first tickless CPU to balance for all of them, if that
    /// is due and this CPU has tasks to give. A CPU that got a task but has had no tick since is
    /// not asked.
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

    /// Whether, in one of the domains that share caches, the CPU's own group (its core) has several
    /// busy CPUs (`nr_busy_cpus`).
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

    /// `cpu` was asked to balance. It balances for itself and then for every other idle tickless
    /// CPU, due or not, until it has a task.
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
