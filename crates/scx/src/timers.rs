//! `struct bpf_timer`: functions of the program that are called later (`kernel/bpf/helpers.c`).
//!
//! A timer expires on the CPU that started it. In the kernel, a timer of an idle CPU may expire on a busy CPU instead
//! (`get_nohz_timer_target()`).

use std::collections::BTreeMap;

use roost_engine::{CpuId, Time};

use crate::interpret::Stop;
use crate::kernel::Call;

/// Error codes that helpers return (errno).
const EINVAL: u64 = -22i64 as u64;
const EBUSY: u64 = -16i64 as u64;

/// BPF_F_TIMER_ABS: the time is absolute, not relative to now.
const ABSOLUTE: u64 = 1;

/// BPF_F_TIMER_CPU_PIN: the timer expires on the CPU that starts it. Here all timers do.
const PINNED: u64 = 2;

/// A timer that the program initialised.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timer {
    /// The map that contains the timer in a value.
    pub map: usize,
    /// The first instruction of the function to call.
    callback: Option<usize>,
    /// When and where it expires: time in ns, and CPU.
    due: Option<(u64, CpuId)>,
}

/// A timer that has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expired {
    /// The address of the timer's struct.
    pub address: u64,
    /// The map that contains the timer in a value.
    pub map: usize,
    /// The first instruction of the function to call.
    pub callback: usize,
}

/// All timers, by the addresses of their structs.
#[derive(Debug, Default)]
pub(crate) struct Timers(BTreeMap<u64, Timer>);

impl Timers {
    /// The time at which the next timer of a CPU expires, in ns.
    pub(crate) fn next_ns(&self, cpu: CpuId) -> Option<u64> {
        let of_cpu = self.0.values().filter_map(|timer| timer.due);
        of_cpu.filter(|&(_, on)| on == cpu).map(|(at, _)| at).min()
    }

    /// A CPU goes offline: its timers move to another one.
    pub(crate) fn leave(&mut self, cpu: CpuId, to: CpuId) {
        let dues = self.0.values_mut().filter_map(|timer| timer.due.as_mut());
        dues.filter(|(_, on)| *on == cpu).for_each(|(_, on)| *on = to);
    }

    /// Removes and returns the first expired timer of a CPU.
    pub(crate) fn take_expired(&mut self, cpu: CpuId, now_ns: u64) -> Option<Expired> {
        let expired = |timer: &Timer| timer.due.filter(|&(at, on)| on == cpu && at <= now_ns);
        let first = self.0.iter_mut().filter(|(_, timer)| expired(timer).is_some());
        let (&address, timer) = first.min_by_key(|(address, timer)| (timer.due, **address))?;
        timer.due = None;
        Some(Expired { address, map: timer.map, callback: timer.callback? })
    }
}

pub(crate) fn init(call: &mut Call, [timer, map, ..]: [u64; 5]) -> Result<u64, Stop> {
    let map = call.kernel.map_at(map)?;
    let timers = &mut call.kernel.timers.0;
    if timers.contains_key(&timer) {
        return Ok(EBUSY);
    }
    timers.insert(timer, Timer { map, callback: None, due: None });
    Ok(0)
}

pub(crate) fn set_callback(call: &mut Call, [timer, callback, ..]: [u64; 5]) -> Result<u64, Stop> {
    let Some(timer) = call.kernel.timers.0.get_mut(&timer) else { return Ok(EINVAL) };
    timer.callback = usize::try_from(callback).ok();
    Ok(0)
}

pub(crate) fn start(call: &mut Call, [timer, ns, flags, ..]: [u64; 5]) -> Result<u64, Stop> {
    let (cpu, now) = (call.cpu, call.world.now());
    let known = call.kernel.timers.0.get_mut(&timer);
    let Some(timer) = known.filter(|timer| timer.callback.is_some()) else { return Ok(EINVAL) };
    if flags & !(ABSOLUTE | PINNED) != 0 {
        return Ok(EINVAL);
    }
    let at = match flags & ABSOLUTE {
        0 => now.ns().saturating_add(ns),
        _ => ns.max(now.ns()),
    };
    timer.due = Some((at, cpu));
    if call.world.timer_due(cpu).is_none_or(|due| due.ns() > at) {
        call.world.start_timer(cpu, cpu, Time(at));
    }
    Ok(0)
}

/// Cancels a timer. Returns whether it was active. The engine's timer of the CPU then finds nothing to do.
pub(crate) fn cancel(call: &mut Call, [timer, ..]: [u64; 5]) -> Result<u64, Stop> {
    let Some(timer) = call.kernel.timers.0.get_mut(&timer) else { return Ok(EINVAL) };
    Ok(timer.due.take().is_some().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_expire_in_order_of_their_times_each_on_its_cpu() {
        let timer = |due| Timer { map: 0, callback: Some(7), due };
        let all = [(64, Some((20, 1))), (128, Some((10, 1))), (192, Some((5, 0))), (256, None)];
        let mut timers = Timers(all.map(|(address, due)| (address, timer(due))).into());
        assert_eq!(
            (timers.next_ns(0), timers.next_ns(1), timers.next_ns(2)),
            (Some(5), Some(10), None)
        );
        let mut expired = || timers.take_expired(1, 20).map(|expired| expired.address);
        assert_eq!([expired(), expired(), expired()], [Some(128), Some(64), None]);
        assert_eq!(timers.take_expired(0, 4), None, "it is not due yet");
    }
}
