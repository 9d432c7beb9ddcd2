//! Clocks of packages and idle states of CPUs, on machines whose figures have them.
//!
//! The hardware sets the clock of a package by the number of its active cores, once in
//! [`clock_period_ns`]. A core is active unless all its CPUs are in the deepest idle state. A task's own work goes at
//! that clock. Kernel work, caches and memory do not (assumption).
//!
//! A CPU that goes idle gets the deepest state that is worth it for the idle time which Linux's `menu` governor expects
//! (drivers/cpuidle/governors/menu.c): what its last eight idle times have in common, else their mean. In place of the
//! mean, the kernel takes the time until the next timer, scaled by what it was wrong by before. If the CPU
//! is still idle at its next tick, it goes to the deepest state, as there (`tick_wakeup`). An interrupt of an idle CPU
//! pays the exit time of its state.
//!
//! [`clock_period_ns`]: roost_machine::Power::clock_period_ns

use roost_machine::{IdleState, Machine, Power};

use crate::cpu::FULL_SPEED;
use crate::events::Event;
use crate::scheduler::CpuId;
use crate::time::Time;
use crate::world::World;

/// Idle times of a CPU that the governor looks at (`INTERVALS`).
const INTERVALS: usize = 8;

/// Idle times that differ by no more than this have something in common, however short they are: the governor's 20 us.
const SAME_NS: u64 = 20_000;

/// The clocks and idle states of a machine.
pub(crate) struct PowerState {
    figures: Power,
    /// The scheduler's tick, ns.
    tick_ns: u64,
    packages: Vec<Package>,
    cpus: Vec<IdleCpu>,
}

struct Package {
    cpus: Vec<CpuId>,
    /// The cores of these CPUs.
    cores: Vec<u32>,
    speed_1024: u16,
}

/// The idle state of a CPU. While the CPU is busy, the state it had last.
#[derive(Clone)]
struct IdleCpu {
    since: Time,
    /// How many states deeper than the shallow one.
    depth: u8,
    /// It is in the deepest state from here on.
    deepest_from: Time,
    /// An interrupt that was sent to it has it awake then.
    awake_at: Time,
    /// Its last idle times, ns. The oldest is at `oldest`.
    intervals: [u32; INTERVALS],
    oldest: u8,
}

/// A CPU that has been idle for long.
const LONG_IDLE: IdleCpu = IdleCpu {
    since: Time(0),
    depth: 0,
    deepest_from: Time(0),
    awake_at: Time(0),
    intervals: [u32::MAX; INTERVALS],
    oldest: 0,
};

impl PowerState {
    /// The state of a machine that has been idle; `None` if its figures have no clocks and idle states.
    pub fn new(machine: &Machine, tick_ns: u64) -> Option<Box<Self>> {
        let figures = machine.figures.power?;
        let package = |package| {
            let of_package = |&cpu: &CpuId| machine.cpus[cpu].package as usize == package;
            let cpus: Vec<_> = (0..machine.nr_cpus()).filter(of_package).collect();
            let mut cores: Vec<_> = cpus.iter().map(|&cpu| machine.cpus[cpu].core).collect();
            cores.sort_unstable();
            cores.dedup();
            Package { cpus, cores, speed_1024: figures.speed_1024(0) }
        };
        Some(Box::new(Self {
            figures,
            tick_ns,
            packages: (0..machine.packages).map(package).collect(),
            cpus: vec![LONG_IDLE; machine.nr_cpus()],
        }))
    }

    /// The state of an idle CPU at `now`, as the number of states by which it is deeper than the shallow one.
    fn depth(&self, cpu: CpuId, now: Time) -> usize {
        let idle = &self.cpus[cpu];
        if now >= idle.deepest_from { self.figures.idle_states.len() } else { idle.depth.into() }
    }
}

impl IdleCpu {
    /// Its idle time ends at `now`. As in the kernel, the exit from the idle state is no part of it.
    fn leave(&mut self, now: Time, exit_ns: u64) {
        let passed = now.since(self.since);
        let idle = if passed > 2 * exit_ns { passed - exit_ns } else { passed / 2 };
        self.intervals[usize::from(self.oldest)] = idle.try_into().unwrap_or(u32::MAX);
        self.oldest = (self.oldest + 1) % INTERVALS as u8;
    }

    /// The number of `states` that are worth it for the time that it will be idle.
    fn worth_it(&self, states: &[IdleState]) -> usize {
        // Mostly none is: what idle times have in common is not longer than their mean.
        if states.first().is_none_or(|state| self.mean_ns() < state.residency_ns.value) {
            return 0;
        }
        let expected = self.expected_ns();
        states.partition_point(|state| state.residency_ns.value <= expected)
    }

    /// How long it will be idle, ns, by its last idle times.
    fn expected_ns(&self) -> u64 {
        typical_ns(&self.intervals).unwrap_or_else(|| self.mean_ns())
    }

    /// The mean of its last idle times, ns.
    fn mean_ns(&self) -> u64 {
        self.intervals.iter().map(|&ns| u64::from(ns)).sum::<u64>() / INTERVALS as u64
    }
}

/// What idle times have in common: their mean, if they differ little. The longest ones may be exceptions, at most a
/// quarter of all (`get_typical_interval()`).
fn typical_ns(intervals: &[u32; INTERVALS]) -> Option<u64> {
    let mut sorted = intervals.map(u64::from);
    sorted.sort_unstable();
    let mut usual = &sorted[..];
    while usual.len() * 4 >= INTERVALS * 3 {
        let len = usual.len() as u64;
        let mean = usual.iter().sum::<u64>() / len;
        let squares = usual.iter().map(|&ns| ns.abs_diff(mean).pow(2));
        let variance = squares.map(u128::from).sum::<u128>() / u128::from(len);
        let small_to_mean = u128::from(mean).pow(2) > variance * 36;
        if small_to_mean || variance <= u128::from(SAME_NS).pow(2) {
            return Some(mean);
        }
        let longest = usual[usual.len() - 1];
        usual = &usual[..usual.partition_point(|&ns| ns < longest)];
    }
    None
}

impl World {
    /// How fast `cpu` is while the other CPUs of its core are idle.
    #[inline]
    pub(crate) fn clock_1024(&self, cpu: CpuId) -> u16 {
        let package = self.machine.cpus[cpu].package as usize;
        self.power.as_ref().map_or(FULL_SPEED, |power| power.packages[package].speed_1024)
    }

    /// Time that idle `cpu` takes to run kernel code if it is interrupted now, ns (the idle state's `exit_latency`).
    #[inline]
    pub fn idle_exit_ns(&self, cpu: CpuId) -> u64 {
        let shallow = self.machine.figures.idle_exit_ns.value;
        self.power.as_ref().map_or(shallow, |power| {
            let deeper = power.depth(cpu, self.now).checked_sub(1);
            deeper.map_or(shallow, |index| power.figures.idle_states[index].exit_ns.value)
        })
    }

    /// As [`World::idle_exit_ns`] for an interrupt that is sent now. An earlier one may have begun to wake the CPU.
    pub(crate) fn wake_idle_ns(&mut self, cpu: CpuId) -> u64 {
        let (now, exit_ns) = (self.now, self.idle_exit_ns(cpu));
        let Some(power) = &mut self.power else { return exit_ns };
        let awake_at = &mut power.cpus[cpu].awake_at;
        if *awake_at <= now {
            *awake_at = now + exit_ns;
        }
        awake_at.since(now)
    }

    /// `cpu` goes idle, or goes on being idle after an interrupt.
    pub(crate) fn enter_idle_state(&mut self, cpu: CpuId, was_idle: bool) {
        if was_idle {
            self.leave_idle_state(cpu);
        }
        let Some(power) = &self.power else { return };
        let states = power.figures.idle_states;
        let depth = power.cpus[cpu].worth_it(states);
        let now = self.now;
        let tick = self.tick_after(cpu, now, power.tick_ns);
        let deepest_from = if depth == states.len() { now } else { tick };
        let Some(power) = &mut self.power else { return };
        let idle = &mut power.cpus[cpu];
        (idle.since, idle.awake_at, idle.deepest_from) = (now, now, deepest_from);
        idle.depth = depth as u8;
    }

    /// `cpu` is no longer idle.
    pub(crate) fn leave_idle_state(&mut self, cpu: CpuId) {
        let (now, exit_ns) = (self.now, self.idle_exit_ns(cpu));
        let Some(power) = &mut self.power else { return };
        power.cpus[cpu].leave(now, exit_ns);
        let known = !power.figures.mhz_by_active_cores.is_empty();
        if known && !self.events.is_pending(Event::Clocks) {
            let period = power.figures.clock_period_ns.value;
            self.events.set(Event::Clocks, Time((now.ns() / period + 1) * period));
        }
    }

    /// The hardware sets the clocks, as often as any core is active.
    pub(crate) fn set_clocks(&mut self) {
        let Some(mut power) = self.power.take() else { return };
        let mut any = false;
        let mut changed = Vec::new();
        for package in 0..power.packages.len() {
            let cores = &power.packages[package].cores;
            let active = cores.iter().filter(|&&core| self.is_core_active(&power, core)).count();
            any |= active > 0;
            let speed = power.figures.speed_1024(active as u32);
            let package = &mut power.packages[package];
            if std::mem::replace(&mut package.speed_1024, speed) != speed {
                changed.extend_from_slice(&package.cpus);
            }
        }
        let period_ns = power.figures.clock_period_ns.value;
        self.power = Some(power);
        changed.into_iter().for_each(|cpu| self.follow_clock(cpu));
        if any {
            self.events.set(Event::Clocks, self.now + period_ns);
        }
    }

    /// Whether a CPU of `core` is not in the deepest idle state.
    fn is_core_active(&self, power: &PowerState, core: u32) -> bool {
        let deepest = power.figures.idle_states.len();
        let active =
            |&cpu: &CpuId| self.cpus[cpu].current.is_some() || power.depth(cpu, self.now) < deepest;
        self.core_cpus[core as usize].iter().any(active)
    }
}

#[cfg(test)]
mod tests;
