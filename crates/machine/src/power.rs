//! Clocks and idle states of processors.
//!
//! How fast a core is depends on how many others of its package are active. How long it takes to wake up depends on the
//! idle state that it is in. Of the presets, those have such figures of whose processor they were found. Machines from
//! files have none.

use serde::Serialize;

use crate::Figure;
use crate::figures::figure;

/// The clock that costs of workloads stand for, MHz. Measured on 2026-11-27 where some of them were measured: a guest
/// on an Intel Xeon makes 3.5e9 dependent additions a second. The guest on Zen 4 of `CYCLE_PS` (crate `workload`) had
/// 3676 MHz. For other costs this is an assumption.
pub const COSTS_MHZ: u64 = 3500;

/// Clocks and idle states of a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Power {
    /// Numbers of active cores of a package with their clock in MHz, ascending. Between two of them the clock follows
    /// a straight line. The last one is that of all cores. Empty if the clock is not known: it is [`COSTS_MHZ`] then.
    pub mhz_by_active_cores: &'static [(u32, Figure)],
    /// How often the hardware sets the clock.
    pub clock_period_ns: Figure,
    /// Idle states deeper than the one of [`Figures::idle_exit_ns`](crate::Figures::idle_exit_ns), the deepest last.
    pub idle_states: &'static [IdleState],
}

/// An idle state of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct IdleState {
    /// Time to run kernel code again.
    pub exit_ns: Figure,
    /// How long a CPU must stay idle for this state to be worth it.
    pub residency_ns: Figure,
}

impl Power {
    /// The clock with so many active cores, in 1024ths of [`COSTS_MHZ`].
    pub fn speed_1024(&self, active: u32) -> u16 {
        let points = self.mhz_by_active_cores;
        let above = points.partition_point(|&(cores, _)| cores < active);
        let Some(&(cores, mhz)) = points.get(above).or(points.last()) else { return 1024 };
        let mhz_1024 = match above.checked_sub(1).map(|below| points[below]) {
            Some((fewer, faster)) if active < cores => {
                let more = (faster.value - mhz.value) * u64::from(cores - active);
                (mhz.value << 10) + (more << 10) / u64::from(cores - fewer)
            }
            _ => mhz.value << 10,
        };
        // No clock is 64 times COSTS_MHZ.
        (mhz_1024 / COSTS_MHZ) as u16
    }

    /// All figures with their names.
    pub(crate) fn figures(self) -> impl Iterator<Item = (&'static str, Figure)> {
        let clocks =
            self.mhz_by_active_cores.iter().map(|&(_, mhz)| ("power.mhz_by_active_cores", mhz));
        let states = self.idle_states.iter().flat_map(|state| {
            [
                ("power.idle_states.exit_ns", state.exit_ns),
                ("power.idle_states.residency_ns", state.residency_ns),
            ]
        });
        clocks.chain([("power.clock_period_ns", self.clock_period_ns)]).chain(states)
    }
}

/// EPYC 7763: Milan, 64 cores.
pub(crate) const EPYC_7763: Power = Power {
    mhz_by_active_cores: &[
        (1, figure(3500, "posted: highest clock of 7763; 1 core active")),
        (
            64,
            figure(
                3000,
                "posted: highest clock of 7V73X, also a Milan with 64 cores; 64 cores active",
            ),
        ),
    ],
    clock_period_ns: EPYC_CLOCK_PERIOD,
    idle_states: &[EPYC_C2],
};

/// EPYC 9654: Genoa, 96 cores.
pub(crate) const EPYC_9654: Power = Power {
    mhz_by_active_cores: &[
        (1, figure(3700, "posted: highest clock of 9654; 1 core active")),
        (48, figure(3180, "posted: measured on an EPYC with 96 cores; 48 cores active")),
        (96, figure(2860, "posted: measured on an EPYC with 96 cores; 96 cores active")),
    ],
    clock_period_ns: EPYC_CLOCK_PERIOD,
    idle_states: &[EPYC_C2],
};

const EPYC_CLOCK_PERIOD: Figure = figure(1_000_000, "recalled: EPYC sets clocks every millisecond");

const EPYC_C2: IdleState = IdleState {
    exit_ns: figure(
        3_400,
        "derived: 1 us from C1, and 2.4 us more, because a futex wakes a thread in 3.55 us from C2 and in 1.15 us \
         from C1 (posted, LKML, 2021-10-24); its firmware states 400 us",
    ),
    residency_ns: figure(
        800_000,
        "posted: cpuidle of the same machine; twice the 400 us of its firmware",
    ),
};

/// Skylake and Cascade Lake servers. The texts do not name their processors, and no table of clocks was found for those
/// that stand in for them.
pub(crate) const CASCADE_LAKE: Power = Power {
    mhz_by_active_cores: &[],
    clock_period_ns: figure(500_000, "recalled: Xeons set clocks every 500 us"),
    idle_states: CASCADE_LAKE_IDLE_STATES,
};

/// As in intel_idle.c (`skx_cstates`, where the package does not sleep).
const CASCADE_LAKE_IDLE_STATES: &[IdleState] = &[
    IdleState {
        exit_ns: figure(10_000, "posted: C1E in intel_idle.c"),
        residency_ns: figure(20_000, "posted: C1E in intel_idle.c"),
    },
    IdleState {
        exit_ns: figure(92_000, "posted: C6 in intel_idle.c, if the package stays awake"),
        residency_ns: figure(276_000, "posted: C6 in intel_idle.c, if the package stays awake"),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_lie_on_straight_lines_between_the_figures() {
        // 3500 MHz for one core and 3000 MHz for 64, in 1024ths of 3500 MHz.
        assert_eq!(EPYC_7763.speed_1024(0), 1024);
        assert_eq!(EPYC_7763.speed_1024(1), 1024);
        // 8 cores: 3500 - 500 * 7 / 63 = 3444 MHz.
        assert_eq!(EPYC_7763.speed_1024(8), 1007);
        assert_eq!(EPYC_7763.speed_1024(64), 877);
        // 24 cores: 3180 + 520 * 24 / 47 = 3446 MHz. 72 cores: 3020 MHz.
        assert_eq!(EPYC_9654.speed_1024(24), 1008);
        assert_eq!(EPYC_9654.speed_1024(48), 930);
        assert_eq!(EPYC_9654.speed_1024(72), 883);
        assert_eq!(EPYC_9654.speed_1024(97), 836, "more than all cores");
        assert_eq!(CASCADE_LAKE.speed_1024(3), 1024, "not known");
    }

    #[test]
    fn more_active_cores_never_run_faster_and_deeper_states_take_longer() {
        for power in [EPYC_7763, EPYC_9654, CASCADE_LAKE] {
            assert!(
                power.mhz_by_active_cores.is_sorted_by(|a, b| a.0 < b.0 && a.1.value >= b.1.value)
            );
            let times = |state: &IdleState| (state.exit_ns.value, state.residency_ns.value);
            assert!(power.idle_states.is_sorted_by_key(times));
        }
    }
}
