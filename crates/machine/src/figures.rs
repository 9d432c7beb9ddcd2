//! Times, capacities and speeds. Every number has its source.
//!
//! "posted": published by somebody who measured it. "derived": computed from published numbers.
//! "measured": measured by this project. "recalled": widely quoted and not checked again.
//! "assumption": a choice of this project. A figure that several machines share stands once, in
//! [`COMMON`].

use crate::{Figure, Figures, Power, Sampling};

/// Short form for the tables below.
pub(crate) const fn figure(value: u64, source: &'static str) -> Figure {
    Figure { value, source }
}

/// Throughput of a core with two busy threads, in 1024ths of one thread alone.
const SMT_GAIN_1024: u64 = 1178;

/// Figures that no source gives per machine, and the costs of the kernel itself.
const COMMON: Figures = Figures {
    line_same_core_ns: figure(8, "recalled: 6 to 10 ns between the threads of a core"),
    line_same_llc_ns: CASCADE_LAKE_LINE,
    line_cross_llc_ns: figure(
        96,
        "assumption: halfway between 48 ns in an LLC and 145 ns between packages; \
         used only where a package has several LLCs",
    ),
    line_cross_package_ns: figure(
        145,
        "derived: middle of 106 to 185 ns remote, posted for Skylake and Cascade Lake",
    ),
    ipi_local_ns: figure(
        667,
        "derived: 1600 cycles posted for Westmere, at 2.4 GHz (assumption: its clock)",
    ),
    ipi_remote_ns: figure(
        833,
        "derived: 2000 cycles posted for Westmere, at 2.4 GHz (assumption: its clock)",
    ),
    context_switch_ns: figure(
        750,
        "derived: middle of 0.5 to 1 us direct cost on current kernels with warm caches",
    ),
    idle_exit_ns: figure(
        1000,
        "recalled: C1 exit latency in the kernel's intel_idle tables, 1 to 2 us; \
         a deep state takes 50 to 100 us (posted, 2012)",
    ),
    tick_ns: figure(2000, "assumption: a tick with load tracking and balance trigger"),
    interrupt_ns: figure(500, "assumption: entry, handler and exit of a short interrupt"),
    wakeup_ns: figure(
        500,
        "assumption: with the switch it stays below 1.5 us, the CPU time of one \
         hackbench message over a pipe (posted)",
    ),
    activation_ns: figure(0, "assumption: system calls count in what a load costs"),
    fork_ns: figure(15_000, "assumption: thread creation on current servers"),
    task_start_ns: figure(12_000, "assumption: against fork_ns as in the exact lane, 76 to 92"),
    task_ready_ns: figure(3_400, "assumption: against fork_ns as in the exact lane, 21 to 92"),
    smt_speed_1024: figure(
        SMT_GAIN_1024 / 2,
        "derived: smt_gain 1178 of 1024 for a core (Linux 3.9), shared by two threads",
    ),
    l2_bytes: figure(1 << 20, "recalled: 1 MB, Skylake and Cascade Lake servers"),
    refill_llc_bytes_per_us: GRANITE_RAPIDS_REFILL_LLC,
    refill_local_bytes_per_us: GRANITE_RAPIDS_REFILL_LOCAL,
    refill_remote_bytes_per_us: GRANITE_RAPIDS_REFILL_REMOTE,
    llc_bytes: figure(33 << 20, "recalled: 33 MB, 24-core Skylake"),
    l2_bytes_per_us: figure(100_000, "assumption: 32 bytes a cycle sustained at 3.1 GHz"),
    l2_latency_ns: figure(4, "recalled: 14 cycles, Skylake and Cascade Lake, at 3.5 GHz"),
    llc_latency_ns: figure(20, "recalled: about 70 cycles, Skylake and Cascade Lake, at 3.5 GHz"),
    memory_local_ns: figure(78, "posted: Cascade Lake 8269"),
    memory_remote_ns: figure(144, "posted: Cascade Lake 8269"),
    memory_service_ns: figure(
        10,
        "assumption: with the wait of an M/D/1 queue, latency doubles at about 95% of the bandwidth",
    ),
    llc_link_bytes_per_us: figure(
        113_000,
        "assumption: a die with one LLC has no limit before that of its memory",
    ),
    package_memory_bytes_per_us: figure(113_000, "posted: Cascade Lake 8269, local"),
    package_link_bytes_per_us: figure(51_000, "posted: Cascade Lake 8269, across sockets"),
    page_fault_ns: figure(
        700,
        "assumption: 0.3 us for the fault and 0.4 us to zero 4 KiB at 10 GB/s",
    ),
    page_migrate_ns: figure(
        2000,
        "assumption: 1.5 us to unmap, flush and remap, and 0.5 us to copy 4 KiB",
    ),
    page_copy_ns: figure(500, "assumption: 4 KiB at 8 GB/s"),
    hint_fault_ns: figure(
        1000,
        "assumption: 0.3 us for the fault, the rest for locks, statistics and the TLB's refill",
    ),
    page_mark_ns: figure(
        30,
        "assumption: one entry of the page table changed, the flush of the TLB shared by many",
    ),
    instruction_ps: figure(
        500,
        "measured: five hooks of roost's scheduler as machine code take 466 ns for 859 instructions (docs/scx.md)",
    ),
    sampling: None,
    power: None,
};

const CASCADE_LAKE_LINE: Figure =
    figure(48, "derived: middle of 42 to 54 ns local, posted for Skylake and Cascade Lake");
const GRANITE_RAPIDS_REFILL_LLC: Figure =
    figure(27_000, "assumption: 27 GB/s of one core from L3, posted for Granite Rapids 6962P");
const GRANITE_RAPIDS_REFILL_LOCAL: Figure =
    figure(15_700, "assumption: 15.7 GB/s of one core from DRAM, posted for Granite Rapids 6962P");
const GRANITE_RAPIDS_REFILL_REMOTE: Figure =
    figure(9_000, "assumption: 9.0 GB/s of one core from the other socket, posted for 6962P");

/// Two sockets of Skylake or Cascade Lake.
pub(crate) const CASCADE_LAKE: Figures = COMMON;

/// Sapphire Rapids. Granite Rapids 6962P stands in for it.
pub(crate) const SAPPHIRE_RAPIDS: Figures = Figures {
    line_same_llc_ns: figure(
        86,
        "derived: middle of 57 to 115 ns posted for Granite Rapids 6962P, which stands in",
    ),
    line_cross_llc_ns: figure(86, "assumption: as within an LLC; a package has one LLC"),
    line_cross_package_ns: figure(290, "posted: about 290 ns, Granite Rapids 6962P stands in"),
    l2_bytes: figure(2 << 20, "recalled: 2 MB, Sapphire Rapids"),
    llc_bytes: figure(105 << 20, "recalled: 105 MB, 56-core Sapphire Rapids"),
    llc_latency_ns: figure(33, "recalled: 33 ns, Sapphire Rapids"),
    memory_local_ns: figure(137, "posted: Granite Rapids 6962P stands in"),
    memory_remote_ns: figure(275, "posted: Granite Rapids 6962P stands in"),
    llc_link_bytes_per_us: figure(255_000, "assumption: no limit before that of its memory"),
    package_memory_bytes_per_us: figure(
        255_000,
        "assumption: 8 channels of DDR5-4800 (recalled: 307 GB/s), sustained as Milan: 83% of peak",
    ),
    package_link_bytes_per_us: figure(
        115_000,
        "assumption: 51/113 of local bandwidth, as posted for Cascade Lake 8269",
    ),
    ..COMMON
};

/// The machines that QEMU emulates in the exact lane. There time counts instructions: one per
/// nanosecond in `roost validate`. Kernel functions were timed in Linux 7.2.13 by its function
/// graph tracer, one at a time, with hackbench over pipes or a busy loop. The fastest tenth is
/// used, because the other runs include instructions of other CPUs. No figure was fitted to the
/// validation.
pub(crate) const EXACT_LANE: Figures = Figures {
    line_same_llc_ns: EXACT_LANE_LINE,
    line_cross_llc_ns: EXACT_LANE_LINE,
    line_cross_package_ns: EXACT_LANE_LINE,
    context_switch_ns: figure(2_900, "measured: schedule(), exact lane"),
    idle_exit_ns: figure(
        1_800,
        "derived: 4.1 us from being queued by an interrupt to being switched in on an idle CPU \
         (measured: chain2 on 4n1l4c, events of roost validate on), less the interrupt and half of \
         schedule(); tick_nohz_idle_exit() is 0.7 of it",
    ),
    tick_ns: figure(4_300, "measured: the timer interrupt of a busy CPU, exact lane"),
    interrupt_ns: figure(840, "measured: the call-function interrupt, exact lane"),
    wakeup_ns: figure(3_100, "measured: try_to_wake_up() on the waker's CPU, exact lane"),
    activation_ns: figure(
        9_650,
        "derived: 11.1 us from switch to switch beyond what an rt-app task is to run (measured: alone on \
         4n1l4c, events of roost validate on), less half of schedule()",
    ),
    fork_ns: figure(92_000, "measured: rt-app from thread to thread, exact lane"),
    task_start_ns: figure(76_000, "measured: rt-app's threads before their barrier, exact lane"),
    task_ready_ns: figure(21_000, "measured: rt-app's threads after their barrier, exact lane"),
    // One thread touches one 4 KiB page after the other while nothing else runs
    // (crates/roost/tests/moved). The fastest tenth always equals the median.
    page_migrate_ns: figure(
        13_570,
        "measured: a hinting fault takes 15.68 us where the page moves, 2.12 where it stays",
    ),
    page_copy_ns: figure(
        4_122,
        "measured: 8845 to 12967 ns after the fault, Linux 7.2.13 copies, a byte an instruction",
    ),
    hint_fault_ns: figure(
        2_020,
        "measured: touching a marked page that stays takes 2.12 us, an unmarked one 0.09",
    ),
    page_mark_ns: figure(397, "measured: 18321 pages are marked in 7.27 ms, exact lane"),
    instruction_ps: figure(1000, "derived: time counts instructions, one per nanosecond"),
    ..SAPPHIRE_RAPIDS
};

const EXACT_LANE_LINE: Figure = figure(
    240,
    "measured: sched_balance_rq() over 4 CPUs takes 2.85 us (median), three lines a CPU; exact lane",
);

/// Two sockets of Milan.
pub(crate) const ZEN3: Figures = Figures {
    line_same_llc_ns: figure(23, "posted: core to core within an LLC, Milan 2P"),
    line_cross_llc_ns: figure(107, "posted: core to core across LLCs of a socket, Milan 2P"),
    line_cross_package_ns: figure(197, "posted: core to core across sockets, Milan 2P"),
    l2_bytes: figure(512 << 10, "posted: hwloc topology of 2 x EPYC 7763, 524288 bytes"),
    refill_llc_bytes_per_us: figure(
        82_200,
        "assumption: the bytes a cycle of Zen 4, 89.5 GB/s at 3.7 GHz, at 3.4 GHz; none found for \
         Zen 3",
    ),
    refill_local_bytes_per_us: figure(
        30_800,
        "derived: 185 GB/s STREAM triad of 8 spread cores (23 each, Milan 2P) x 4/3 write-allocate",
    ),
    refill_remote_bytes_per_us: figure(
        25_000,
        "assumption: 30.8 GB/s local times Genoa's 30.4/37.5; none found for Zen 3",
    ),
    llc_bytes: figure(32 << 20, "posted: Milan has 8 x 32 MB a socket"),
    l2_bytes_per_us: figure(109_000, "assumption: 32 bytes a cycle at 3.4 GHz"),
    l2_latency_ns: figure(4, "recalled: 12 cycles, Zen 3, at 3.4 GHz"),
    llc_latency_ns: figure(14, "recalled: 46 cycles, Zen 3, at 3.4 GHz"),
    memory_local_ns: figure(110, "assumption: Genoa's; none found for Milan"),
    memory_remote_ns: figure(199, "assumption: Genoa's; none found for Milan"),
    llc_link_bytes_per_us: figure(
        51_200,
        "recalled: a CCD reads 32 bytes a cycle of the 1.6 GHz fabric clock",
    ),
    package_memory_bytes_per_us: figure(
        169_500,
        "derived: 249 to 260 GB/s STREAM triad of 16 spread threads, Milan 2P, x 4/3 \
         write-allocate, a socket; 83% of the posted peak",
    ),
    package_link_bytes_per_us: figure(
        96_000,
        "assumption: 4 links of 16 lanes at 16 GT/s (recalled: 128 GB/s), 75% of it data",
    ),
    ..COMMON
};

/// Two sockets of Genoa 9654.
pub(crate) const ZEN4: Figures = Figures {
    line_same_llc_ns: figure(28, "posted: core to core within an LLC, Genoa 9654 2P"),
    line_cross_llc_ns: figure(185, "derived: middle of 182 to 188 ns posted for Genoa 9654 2P"),
    line_cross_package_ns: figure(312, "posted: about 312 ns across sockets, Genoa 9654 2P"),
    l2_bytes: figure(1 << 20, "recalled: 1 MB, Zen 4; posted refill of it takes about 27 us"),
    refill_llc_bytes_per_us: figure(
        89_500,
        "derived: middle of 88 to 91 GB/s of one core from L3, posted for Genoa 9654",
    ),
    refill_local_bytes_per_us: figure(37_500, "posted: 37.5 GB/s of one core, Genoa 9654 2P"),
    refill_remote_bytes_per_us: figure(30_400, "posted: 30.4 GB/s of one core, Genoa 9654 2P"),
    llc_bytes: figure(32 << 20, "posted: Genoa 9654 has 12 x 32 MB a socket"),
    l2_bytes_per_us: figure(118_000, "assumption: 32 bytes a cycle at 3.7 GHz"),
    l2_latency_ns: figure(4, "recalled: 14 cycles, Zen 4, at 3.7 GHz"),
    llc_latency_ns: figure(14, "recalled: 50 cycles, Zen 4, at 3.7 GHz"),
    memory_local_ns: figure(110, "posted: Genoa 9654 2P NPS1"),
    memory_remote_ns: figure(199, "posted: Genoa 9654 2P NPS1"),
    llc_link_bytes_per_us: figure(
        38_000,
        "posted: about 38 GB/s of one CCD, flat from 1 to 8 threads, Genoa 9654 2P",
    ),
    package_memory_bytes_per_us: figure(
        381_400,
        "assumption: 460.8 GB/s peak (posted), sustained as Milan: 83% of peak",
    ),
    package_link_bytes_per_us: figure(
        192_000,
        "assumption: 4 links of 16 lanes at 32 GT/s (recalled: 256 GB/s), 75% of it data",
    ),
    ..COMMON
};

/// Hygon Dhyana: Zen 1 cores. Only figures for the caches were found.
pub(crate) const HYGON: Figures = Figures {
    line_same_llc_ns: figure(23, "assumption: Milan's; none found for Hygon"),
    line_cross_llc_ns: figure(107, "assumption: Milan's; none found for Hygon"),
    line_cross_package_ns: figure(197, "assumption: Milan's; none found for Hygon"),
    l2_bytes: figure(512 << 10, "posted: hwloc topology of a 32-core Dhyana, 524288 bytes"),
    refill_llc_bytes_per_us: figure(82_200, "assumption: as Zen 3; none found for Hygon"),
    refill_local_bytes_per_us: figure(30_800, "assumption: Milan's; none found for Hygon"),
    refill_remote_bytes_per_us: figure(25_000, "assumption: as Zen 3; none found for Hygon"),
    llc_bytes: figure(8 << 20, "posted: hwloc topology of a 32-core Dhyana, 8 MB"),
    l2_bytes_per_us: figure(109_000, "assumption: as Zen 3; none found for Hygon"),
    l2_latency_ns: figure(4, "assumption: as Zen 3; none found for Hygon"),
    llc_latency_ns: figure(14, "assumption: as Zen 3; none found for Hygon"),
    llc_link_bytes_per_us: figure(51_200, "assumption: as Zen 3; none found for Hygon"),
    package_link_bytes_per_us: figure(96_000, "assumption: as Zen 3; none found for Hygon"),
    package_memory_bytes_per_us: figure(
        141_000,
        "assumption: 8 channels of DDR4-2666 (recalled: 170 GB/s), sustained as Milan: 83% of peak",
    ),
    ..ZEN3
};

/// IBM x3750 M4 (Sandy Bridge).
pub(crate) const X3750_M4: Figures = Figures {
    line_same_llc_ns: figure(48, "assumption: as Cascade Lake; none found for this machine"),
    line_cross_package_ns: figure(145, "assumption: as Cascade Lake; none found for this machine"),
    l2_bytes: figure(256 << 10, "recalled: 256 KB, Sandy Bridge servers"),
    llc_bytes: figure(20 << 20, "recalled: 20 MB, 8-core Xeon E5-4600"),
    refill_local_bytes_per_us: figure(
        6_682,
        "derived: perf bench numa, RAM-bw-local on 3.9, 3.341 GB/s of a thread that zeroes its whole buffer, \
         x 2 write-allocate, posted on LKML 2013-07-31 for the author's 4-node machine",
    ),
    refill_remote_bytes_per_us: figure(
        3_630,
        "derived: RAM-bw-remote of the same posting, 1.815 GB/s, x 2 write-allocate",
    ),
    memory_local_ns: figure(78, "assumption: as Cascade Lake; none found for this machine"),
    memory_remote_ns: figure(144, "assumption: as Cascade Lake; none found for this machine"),
    llc_link_bytes_per_us: figure(24_500, "assumption: no limit before that of its memory"),
    package_memory_bytes_per_us: figure(
        24_500,
        "derived: numa02-bw of the same posting, 48.999 GB/s on the whole machine, x 2 write-allocate, \
         a node; autonuma's numa02 makes 44.6, but its memory is on one node at first",
    ),
    package_link_bytes_per_us: figure(
        6_040,
        "derived: RAM-bw-remote-2x of the same posting, 3.020 GB/s of two threads of a node whose memory is on \
         the next one, x 2 write-allocate; one alone has 1.815",
    ),
    sampling: Some(Sampling {
        period_ns: figure(
            10_000_000,
            "assumption: as on the 2-node machine of the same author. Context switches of this one were not posted",
        ),
        run_ns: SAMPLING_RUN,
    }),
    ..COMMON
};

const SAMPLING_RUN: Figure = figure(
    5_000,
    "assumption: some microseconds; 3 and 10 make little difference (docs/notes/2026-11-25-results.md)",
);

/// The 2-node machine of the consolidation text. Its bandwidths are those of the same benchmarks
/// with threads and memory bound to nodes, so the scheduler does not affect them (posted by the
/// same author on LKML, 2012-11-05, "2 node, 12 core 24GB", HT off).
pub(crate) const XEON_2S_12: Figures = Figures {
    llc_bytes: figure(12 << 20, "recalled: 12 MB, 6-core Xeon 5600"),
    refill_local_bytes_per_us: figure(
        6_625,
        "derived: numa02_SMT_HARD_BIND, 6 threads zero 859 GB in 43.22 s, three a node, x 2 write-allocate",
    ),
    refill_remote_bytes_per_us: figure(
        3_704,
        "derived: numa02_SMT_INVERSE_BIND, the same in 77.31 s, x 2 write-allocate",
    ),
    llc_link_bytes_per_us: figure(
        24_370,
        "derived: numa02_HARD_BIND, 12 threads zero 859 GB in 35.25 s, six a node, x 2 write-allocate",
    ),
    package_memory_bytes_per_us: figure(
        37_900,
        "derived: numa01_INVERSE_BIND, whose memory is all on one node: its own six threads and the other node's \
         have as much as without each other, 12.2 and 6.8 GB/s, x 2 write-allocate; no limit was seen",
    ),
    package_link_bytes_per_us: figure(
        13_520,
        "derived: numa02_INVERSE_BIND, 12 threads zero 859 GB in 63.54 s, x 2 write-allocate",
    ),
    sampling: Some(Sampling {
        period_ns: figure(
            10_000_000,
            "derived: 103 to 106 involuntary context switches in each second of CPU time where all CPUs are busy, \
             posted with 3.9 (LKML, 2013-07-04); 10 ms are the shortest period of ondemand \
             (MICRO_FREQUENCY_MIN_SAMPLE_RATE)",
        ),
        run_ns: SAMPLING_RUN,
    }),
    ..X3750_M4
};

/// IBM x3950 (Xeon MP on a front-side bus, several chassis).
pub(crate) const X3950: Figures = Figures {
    l2_bytes: figure(1 << 20, "recalled: 1 MB a core, Xeon MP 7100"),
    llc_bytes: figure(16 << 20, "recalled: 16 MB, Xeon MP 7100"),
    llc_link_bytes_per_us: figure(3_700, "assumption: no limit before that of its memory"),
    package_memory_bytes_per_us: figure(
        3_700,
        "derived: numa02 zeroes 14.7 GB/s on the whole machine, x 2 write-allocate, a node",
    ),
    package_link_bytes_per_us: figure(
        1_670,
        "assumption: 51/113 of local bandwidth, as posted for Cascade Lake 8269",
    ),
    // The author's 8-node machine had 2 to 4 preemptions per second of CPU time (LKML, 2013-06-28).
    sampling: None,
    ..X3750_M4
};

/// Figures for a machine whose description has none.
#[derive(Debug)]
pub(crate) struct Generic {
    /// The figures.
    pub figures: Figures,
    /// The machine they belong to, for the guess `no-latency-data`.
    pub whose: &'static str,
}

/// Figures for a machine of which only the hierarchy is known: those of a measured machine of the
/// same vendor. `threads` is the largest number of CPUs per core, `l2_bytes` the capacity of an L2
/// if the source has it.
pub(crate) fn generic(vendor: Option<&str>, threads: usize, l2_bytes: Option<u64>) -> Generic {
    let (mut figures, whose) = match vendor {
        Some("GenuineIntel") => (CASCADE_LAKE, "Cascade Lake, as the vendor is Intel"),
        Some("AuthenticAMD") => (ZEN3, "Milan, as the vendor is AMD"),
        Some("HygonGenuine") => (HYGON, "Milan, as Hygon's cores descend from AMD's"),
        _ => (ZEN3, "Milan, as the vendor is not known"),
    };
    figures.smt_speed_1024 = smt_speed(threads);
    if let Some(bytes) = l2_bytes {
        figures.l2_bytes = figure(bytes, "the machine's description");
    }
    Generic { figures, whose }
}

/// The share of a core that each of its threads gets if all are busy.
fn smt_speed(threads: usize) -> Figure {
    match threads {
        0..=2 => COMMON.smt_speed_1024,
        more => figure(
            (SMT_GAIN_1024 / more as u64).max(1),
            "assumption: smt_gain 1178 of 1024 for a core (Linux 3.9), shared by all its threads",
        ),
    }
}

impl Figures {
    /// Every figure with its name, in the order of the fields.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Figure)> {
        [
            ("line_same_core_ns", self.line_same_core_ns),
            ("line_same_llc_ns", self.line_same_llc_ns),
            ("line_cross_llc_ns", self.line_cross_llc_ns),
            ("line_cross_package_ns", self.line_cross_package_ns),
            ("ipi_local_ns", self.ipi_local_ns),
            ("ipi_remote_ns", self.ipi_remote_ns),
            ("context_switch_ns", self.context_switch_ns),
            ("idle_exit_ns", self.idle_exit_ns),
            ("tick_ns", self.tick_ns),
            ("interrupt_ns", self.interrupt_ns),
            ("wakeup_ns", self.wakeup_ns),
            ("activation_ns", self.activation_ns),
            ("fork_ns", self.fork_ns),
            ("task_start_ns", self.task_start_ns),
            ("task_ready_ns", self.task_ready_ns),
            ("smt_speed_1024", self.smt_speed_1024),
            ("l2_bytes", self.l2_bytes),
            ("refill_llc_bytes_per_us", self.refill_llc_bytes_per_us),
            ("refill_local_bytes_per_us", self.refill_local_bytes_per_us),
            ("refill_remote_bytes_per_us", self.refill_remote_bytes_per_us),
            ("llc_bytes", self.llc_bytes),
            ("l2_bytes_per_us", self.l2_bytes_per_us),
            ("l2_latency_ns", self.l2_latency_ns),
            ("llc_latency_ns", self.llc_latency_ns),
            ("memory_local_ns", self.memory_local_ns),
            ("memory_remote_ns", self.memory_remote_ns),
            ("memory_service_ns", self.memory_service_ns),
            ("llc_link_bytes_per_us", self.llc_link_bytes_per_us),
            ("package_memory_bytes_per_us", self.package_memory_bytes_per_us),
            ("package_link_bytes_per_us", self.package_link_bytes_per_us),
            ("page_fault_ns", self.page_fault_ns),
            ("page_migrate_ns", self.page_migrate_ns),
            ("page_copy_ns", self.page_copy_ns),
            ("hint_fault_ns", self.hint_fault_ns),
            ("page_mark_ns", self.page_mark_ns),
            ("instruction_ps", self.instruction_ps),
        ]
        .into_iter()
        .chain(self.sampling.into_iter().flat_map(|sampling| {
            [("sampling.period_ns", sampling.period_ns), ("sampling.run_ns", sampling.run_ns)]
        }))
        .chain(self.power.into_iter().flat_map(Power::figures))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETS: [Figures; 9] =
        [CASCADE_LAKE, SAPPHIRE_RAPIDS, EXACT_LANE, ZEN3, ZEN4, HYGON, X3750_M4, XEON_2S_12, X3950];

    #[test]
    fn every_figure_says_where_it_comes_from() {
        for set in SETS {
            for (name, figure) in set.iter() {
                let kind = figure.source.split(':').next();
                let known = ["posted", "derived", "recalled", "assumption", "measured"];
                assert!(known.contains(&kind.unwrap_or("")), "{name}: {}", figure.source);
                assert!(figure.value > 0 || name == "activation_ns", "{name}");
            }
        }
    }

    #[test]
    fn farther_is_never_faster() {
        for f in SETS {
            let lines = [
                f.line_same_core_ns.value,
                f.line_same_llc_ns.value,
                f.line_cross_llc_ns.value,
                f.line_cross_package_ns.value,
            ];
            assert!(lines.is_sorted(), "{lines:?}");
            assert!(f.ipi_local_ns.value <= f.ipi_remote_ns.value);
            assert!(f.refill_llc_bytes_per_us.value >= f.refill_local_bytes_per_us.value);
            assert!(f.refill_local_bytes_per_us.value >= f.refill_remote_bytes_per_us.value);
            assert!(f.l2_bytes_per_us.value >= f.refill_llc_bytes_per_us.value);
            assert!(f.package_memory_bytes_per_us.value >= f.package_link_bytes_per_us.value);
            let latencies =
                [f.l2_latency_ns, f.llc_latency_ns, f.memory_local_ns, f.memory_remote_ns];
            assert!(f.page_migrate_ns.value > f.page_copy_ns.value);
            assert!(latencies.map(|figure| figure.value).is_sorted(), "{latencies:?}");
        }
    }

    #[test]
    fn a_thread_of_two_gets_589_as_in_linux_3_9() {
        assert_eq!(generic(None, 2, None).figures.smt_speed_1024.value, 589);
        assert_eq!(generic(None, 4, None).figures.smt_speed_1024.value, 294);
    }

    #[test]
    fn the_vendor_chooses_the_generic_set() {
        let intel = generic(Some("GenuineIntel"), 2, Some(4096)).figures;
        assert_eq!(intel.line_cross_package_ns, CASCADE_LAKE.line_cross_package_ns);
        assert_eq!(intel.l2_bytes.value, 4096);
        assert_eq!(generic(Some("AuthenticAMD"), 1, None).figures, ZEN3);
    }
}
