//! The numbers that the kernel's debugfs and sysctl set, by version, and the table of them.
//!
//! The values are fixed when a run's scheduler is built. Names are the kernel's, with dashes.
//! Values are those of the kernel's files: a number that the kernel scales by the number of CPUs is
//! given as scaled.

use crate::domain::Level;
use crate::features::Features;
use crate::switches::{KernelFile, Number};

/// Domain levels that have their own numbers.
const LEVELS: usize = 6;

/// The kernel's tunables in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tunables {
    /// EEVDF: length of a task's request, ns; `None`: by version and number of CPUs.
    pub base_slice_ns: Option<u32>,
    /// CFS: time in which every task runs once, ns. `None` here and in the next two: by number of
    /// CPUs.
    pub latency_ns: Option<u32>,
    /// CFS: shortest slice, ns.
    pub min_granularity_ns: Option<u32>,
    /// CFS: how far behind a wakee must be to preempt, ns.
    pub wakeup_granularity_ns: Option<u32>,
    /// How long a task counts as cache-hot, and the least cost of balancing a newly idle CPU, ns.
    pub migration_cost_ns: u32,
    /// Largest number of tasks that a pass examines.
    pub nr_migrate: u32,
    /// NUMA balancing's scans.
    pub scan: Scan,
    /// Cache-aware scheduling.
    pub gather: Gather,
    paces: [Pace; LEVELS],
}

/// Tunables of NUMA balancing's scans (`numa_balancing_scan_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scan {
    /// Delay before a new process or area is scanned, ms; also a task's first scan period.
    pub delay_ms: u32,
    /// Shortest and longest scan period, ms of the task's run time.
    pub period_min_ms: u32,
    pub period_max_ms: u32,
    /// Most that one scan marks, MB.
    pub size_mb: u32,
}

/// Tunables of cache-aware scheduling (`llc_balancing/*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gather {
    /// How many times the CPUs of an LLC a process may fill and still gather there. 0: no process
    /// gathers. From 100 on: any process.
    pub aggr_tolerance: u32,
    /// An epoch in jiffies; `None`: 10 ms, rounded down to whole jiffies (EPOCH_PERIOD: HZ / 100).
    pub epoch_period: Option<u32>,
    /// Epochs without a scan after which a process prefers nothing.
    pub epoch_affinity_timeout: u32,
    /// Utilisation in per cent up to which an LLC takes tasks that prefer it.
    pub overaggr_pct: u32,
    /// An LLC's utilisation counts as larger only if it is larger by this, in per cent.
    pub imb_pct: u32,
}

/// What is set for a level's domains; `None`: by version and number of CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pace {
    pub imbalance_pct: Option<u32>,
    pub min_interval_ms: Option<u32>,
    pub max_interval_ms: Option<u32>,
    pub busy_factor: Option<u32>,
    pub cache_nice_tries: Option<u32>,
}

impl Tunables {
    /// 3.9, which has shorter periods (section 12.1).
    pub(crate) const V3_9: Self = Self {
        scan: Scan { period_min_ms: 100, period_max_ms: 100 * 50, ..Self::SINCE_5_2.scan },
        ..Self::SINCE_5_2
    };
    /// 5.2 and later. Numbers that a version does not use are not listed for it.
    pub(crate) const SINCE_5_2: Self = Self {
        base_slice_ns: None,
        latency_ns: None,
        min_granularity_ns: None,
        wakeup_granularity_ns: None,
        migration_cost_ns: 500_000,
        nr_migrate: 32,
        scan: Scan { delay_ms: 1000, period_min_ms: 1000, period_max_ms: 60_000, size_mb: 256 },
        gather: Gather {
            aggr_tolerance: 1,
            epoch_period: None,
            epoch_affinity_timeout: 5,
            overaggr_pct: 50,
            imb_pct: 20,
        },
        paces: [Pace {
            imbalance_pct: None,
            min_interval_ms: None,
            max_interval_ms: None,
            busy_factor: None,
            cache_nice_tries: None,
        }; LEVELS],
    };

    /// What is set for the domains of a level.
    pub(crate) fn pace(&self, level: Level) -> Pace {
        self.paces[match level {
            Level::Smt => 0,
            Level::Cluster => 1,
            Level::Mc => 2,
            Level::Pkg => 3,
            Level::Node => 4,
            Level::Numa { .. } => 5,
        }]
    }
}

/// Range of a time: up to a second, as in the kernel's sysctls (min_sched_granularity_ns and
/// max_sched_granularity_ns of kernel/sysctl.c up to 5.12).
const SLICE_NS: (u32, u32) = (100_000, 1_000_000_000);

/// A number that a kernel file sets.
const fn kernel(
    name: &'static str,
    about: &'static str,
    unit: &'static str,
    (least, most): (u32, u32),
    file: &'static str,
) -> Number {
    Number {
        name,
        about,
        unit,
        least,
        most,
        since: "3.9",
        until: None,
        unset: "",
        source: "kernel/sched/fair.c",
        file: Some(KernelFile::Sched(file)),
        set: |_, _| {},
        get: |_| None,
    }
}

/// The kernel's numbers except those of domains.
const KERNEL: [Number; 15] = [
    Number {
        since: "6.15",
        unset: "700000, times 1 + log2(CPUs, 8 at most)",
        set: |features, ns| features.tunables.base_slice_ns = Some(ns),
        get: |features| features.tunables.base_slice_ns,
        ..kernel(
            "base-slice-ns",
            "EEVDF: slice that a task asks for",
            "ns",
            SLICE_NS,
            "base_slice_ns",
        )
    },
    Number {
        until: Some("5.19"),
        unset: "6000000, times 1 + log2(CPUs, 8 at most)",
        set: |features, ns| features.tunables.latency_ns = Some(ns),
        get: |features| features.tunables.latency_ns,
        ..kernel(
            "latency-ns",
            "CFS: time in which each task runs once",
            "ns",
            SLICE_NS,
            "latency_ns",
        )
    },
    Number {
        until: Some("5.19"),
        unset: "750000, times 1 + log2(CPUs, 8 at most)",
        set: |features, ns| features.tunables.min_granularity_ns = Some(ns),
        get: |features| features.tunables.min_granularity_ns,
        ..kernel("min-granularity-ns", "CFS: shortest slice", "ns", SLICE_NS, "min_granularity_ns")
    },
    Number {
        until: Some("5.19"),
        unset: "1000000, times 1 + log2(CPUs, 8 at most)",
        set: |features, ns| features.tunables.wakeup_granularity_ns = Some(ns),
        get: |features| features.tunables.wakeup_granularity_ns,
        ..kernel(
            "wakeup-granularity-ns",
            "CFS: how far behind a wakee must be to preempt",
            "ns",
            (0, 1_000_000_000),
            "wakeup_granularity_ns",
        )
    },
    Number {
        set: |features, ns| features.tunables.migration_cost_ns = ns,
        get: |features| Some(features.tunables.migration_cost_ns),
        ..kernel(
            "migration-cost-ns",
            "time for which caches count as hot; least cost of balancing a newly idle CPU",
            "ns",
            (0, 1_000_000_000),
            "migration_cost_ns",
        )
    },
    Number {
        set: |features, tasks| features.tunables.nr_migrate = tasks,
        get: |features| Some(features.tunables.nr_migrate),
        ..kernel(
            "nr-migrate",
            "tasks that a pass examines at most",
            "tasks",
            (1, 1024),
            "nr_migrate",
        )
    },
    Number {
        set: |features, mb| features.tunables.scan.size_mb = mb,
        get: |features| Some(features.tunables.scan.size_mb),
        ..kernel(
            "numa-scan-size-mb",
            "NUMA balancing: memory that a scan marks at most",
            "MB",
            (1, 65_536),
            "numa_balancing/scan_size_mb",
        )
    },
    Number {
        set: |features, ms| features.tunables.scan.period_min_ms = ms,
        get: |features| Some(features.tunables.scan.period_min_ms),
        ..kernel(
            "numa-scan-period-min-ms",
            "NUMA balancing: shortest time between scans of a task",
            "ms",
            (1, 3_600_000),
            "numa_balancing/scan_period_min_ms",
        )
    },
    Number {
        set: |features, ms| features.tunables.scan.period_max_ms = ms,
        get: |features| Some(features.tunables.scan.period_max_ms),
        ..kernel(
            "numa-scan-period-max-ms",
            "NUMA balancing: longest time between scans of a task",
            "ms",
            (1, 3_600_000),
            "numa_balancing/scan_period_max_ms",
        )
    },
    Number {
        since: "5.2",
        set: |features, ms| features.tunables.scan.delay_ms = ms,
        get: |features| Some(features.tunables.scan.delay_ms),
        ..kernel(
            "numa-scan-delay-ms",
            "NUMA balancing: time before a new process is scanned",
            "ms",
            (0, 3_600_000),
            "numa_balancing/scan_delay_ms",
        )
    },
    Number {
        set: |features, times| features.tunables.gather.aggr_tolerance = times,
        get: |features| Some(features.tunables.gather.aggr_tolerance),
        ..gather(
            "llc-aggr-tolerance",
            "LLCs that a process may fill and still gather; 0: none gathers, 100: all do",
            "times",
            (0, 100),
            "llc_balancing/aggr_tolerance",
        )
    },
    Number {
        unset: "10 ms, as whole jiffies",
        set: |features, jiffies| features.tunables.gather.epoch_period = Some(jiffies),
        get: |features| features.tunables.gather.epoch_period,
        ..gather(
            "llc-epoch-period",
            "time after which run time on an LLC counts half",
            "jiffies",
            (1, 10_000),
            "llc_balancing/epoch_period",
        )
    },
    Number {
        set: |features, epochs| features.tunables.gather.epoch_affinity_timeout = epochs,
        get: |features| Some(features.tunables.gather.epoch_affinity_timeout),
        ..gather(
            "llc-epoch-affinity-timeout",
            "time without a scan after which a process prefers no LLC",
            "epochs",
            (1, 10_000),
            "llc_balancing/epoch_affinity_timeout",
        )
    },
    Number {
        set: |features, pct| features.tunables.gather.overaggr_pct = pct,
        get: |features| Some(features.tunables.gather.overaggr_pct),
        ..gather(
            "llc-overaggr-pct",
            "utilisation up to which an LLC takes tasks that prefer it",
            "%",
            (0, 100),
            "llc_balancing/overaggr_pct",
        )
    },
    Number {
        set: |features, pct| features.tunables.gather.imb_pct = pct,
        get: |features| Some(features.tunables.gather.imb_pct),
        ..gather(
            "llc-imb-pct",
            "how much busier an LLC must be to count as busier",
            "%",
            (0, 1000),
            "llc_balancing/imb_pct",
        )
    },
];

/// A number of cache-aware scheduling.
const fn gather(
    name: &'static str,
    about: &'static str,
    unit: &'static str,
    range: (u32, u32),
    file: &'static str,
) -> Number {
    Number { since: "5.16", ..kernel(name, about, unit, range, file) }
}

/// The numbers of one level's domains. Arguments: index, suffix in names, and the kernel's names of
/// the level.
macro_rules! of_level {
    ($index:literal, $level:literal, $kernel:expr) => {
        [
            of_level!(
                $index,
                $level,
                $kernel,
                imbalance_pct,
                "imbalance-pct-",
                "imbalance_pct",
                "imbalance at which balancing acts; 100: at any",
                "%",
                (100, 1000)
            ),
            of_level!(
                $index,
                $level,
                $kernel,
                min_interval_ms,
                "min-interval-ms-",
                "min_interval",
                "shortest time between passes of an idle CPU",
                "ms",
                (1, 100_000)
            ),
            of_level!(
                $index,
                $level,
                $kernel,
                max_interval_ms,
                "max-interval-ms-",
                "max_interval",
                "longest time between passes of an idle CPU",
                "ms",
                (1, 100_000)
            ),
            of_level!(
                $index,
                $level,
                $kernel,
                busy_factor,
                "busy-factor-",
                "busy_factor",
                "how many times longer a busy CPU waits",
                "times",
                (1, 1024)
            ),
            of_level!(
                $index,
                $level,
                $kernel,
                cache_nice_tries,
                "cache-nice-tries-",
                "cache_nice_tries",
                "failed passes after which cache-hot tasks move",
                "passes",
                (0, 1000)
            ),
        ]
    };
    (
        $index:literal, $level:literal, $kernel:expr, $field:ident, $name:literal, $file:literal,
        $about:literal, $unit:literal, $range:expr
    ) => {
        Number {
            unset: "by level and CPUs",
            source: "kernel/sched/topology.c, sd_init()",
            file: Some(KernelFile::Domain { levels: $kernel, file: $file }),
            set: |features: &mut Features, value| {
                features.tunables.paces[$index].$field = Some(value);
            },
            get: |features: &Features| features.tunables.paces[$index].$field,
            ..kernel(
                concat!($name, $level),
                concat!("domains of level ", $level, ": ", $about),
                $unit,
                $range,
                "",
            )
        }
    };
}

/// The numbers of domains. The package was called DIE up to 6.6, and CPU in 3.9.
const DOMAINS: [[Number; 5]; LEVELS] = [
    of_level!(0, "smt", &["SMT"]),
    of_level!(1, "cls", &["CLS"]),
    of_level!(2, "mc", &["MC"]),
    of_level!(3, "pkg", &["PKG", "DIE", "CPU"]),
    of_level!(4, "node", &["NODE"]),
    of_level!(5, "numa", &["NUMA"]),
];

/// All numbers.
pub(crate) fn all() -> impl Iterator<Item = &'static Number> {
    KERNEL.iter().chain(DOMAINS.as_flattened())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::domain::Topology;
    use crate::features::{Difference, versions};
    use crate::mechanisms::mechanisms;
    use crate::queue::QueueRules;
    use crate::switches::{numbers, switches};

    fn parse(name: &str) -> Features {
        Features::parse(name).unwrap()
    }

    #[test]
    fn every_number_can_be_set_to_its_bounds_and_no_further() {
        for number in numbers() {
            let version = number.until.unwrap_or("7.2");
            let set =
                |value: i64| Features::parse(&format!("fair@{version}+{}={value}", number.name));
            let is = |value: u32| Difference::Number { name: number.name, value };
            let default = (number.get)(&parse(&format!("fair@{version}")));
            for value in [number.least, number.most] {
                let features = set(value.into()).unwrap();
                let got = (number.get)(&features);
                // 0 for a mechanism's own number turns the mechanism off.
                assert!(got == Some(value) || value == 0 && got.is_none(), "{}", number.name);
                if got != default {
                    assert_eq!(features.differs_from_version(), [is(value)], "{}", number.name);
                }
            }
            let beyond = [i64::from(number.least) - 1, i64::from(number.most) + 1];
            for error in beyond.map(|value| set(value).unwrap_err().to_string()) {
                let range = format!(
                    "takes a whole number from {} to {}, {}",
                    number.least, number.most, number.unit
                );
                assert!(error.ends_with(&range) && !error.contains('\n'), "{error}");
            }
        }
    }

    #[test]
    fn names_are_unlike_and_every_number_says_what_it_is_by_default() {
        let names: Vec<_> = numbers().map(|number| number.name).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        let is_switch = |name| switches().into_iter().any(|(switch, _)| switch == name);
        let is_mechanism = |name| mechanisms().iter().any(|mechanism| mechanism.name == name);
        for number in numbers() {
            assert!(!is_switch(number.name) || is_mechanism(number.name), "{}", number.name);
            assert!(!number.default_text().is_empty(), "{}", number.name);
            assert!(versions().contains(&number.since), "{}", number.name);
        }
    }

    /// Sections 4, 9.2, 12.1 and 13.
    #[test]
    fn defaults_are_the_kernels() {
        let default =
            |name: &str| numbers().find(|number| number.name == name).unwrap().default_text();
        assert_eq!(default("migration-cost-ns"), "500000");
        assert_eq!(default("nr-migrate"), "32");
        assert_eq!(default("numa-scan-period-min-ms"), "1000, 100 (to 3.9)");
        assert_eq!(default("numa-scan-period-max-ms"), "60000, 5000 (to 3.9)");
        assert_eq!(default("numa-scan-size-mb"), "256");
        assert_eq!(default("llc-overaggr-pct"), "50");
        assert_eq!(default("base-slice-ns"), "700000, times 1 + log2(CPUs, 8 at most)");
    }

    #[test]
    fn a_number_of_other_versions_is_refused() {
        let error = |name: &str| Features::parse(name).unwrap_err().to_string();
        assert_eq!(
            error("fair@7.2+latency-ns=6000000"),
            "fair@7.2+latency-ns=6000000: number 'latency-ns' does nothing on 7.2, it is of 3.9 to 5.19: leave it out"
        );
        assert!(error("fair@5.19+base-slice-ns=3000000").contains("it is of 6.15 and later"));
        assert!(error("fair@5.2+llc-imb-pct=3").contains("it is of 5.16 and later"));
        assert!(error("fair@7.2+imbalance-pct=120").contains("did you mean imbalance-pct-"));
    }

    /// debugfs shows scaled values, so values are set without further scaling.
    #[test]
    fn slices_are_set_as_they_are_and_scaled_otherwise() {
        let rules = |name: &str| QueueRules::new(&parse(name), 16);
        assert_eq!(rules("fair@7.2").base_slice, 2_800_000);
        assert_eq!(rules("fair@7.2+base-slice-ns=3000000").base_slice, 3_000_000);
        let cfs = rules("fair@5.19");
        assert_eq!((cfs.latency, cfs.min_granularity, cfs.nr_latency), (24_000_000, 3_000_000, 8));
        assert_eq!((cfs.sleeper_credit, cfs.wakeup_granularity), (12_000_000, 4_000_000));
        let longer = rules("fair@5.19+latency-ns=48000000+min-granularity-ns=10000000");
        assert_eq!((longer.nr_latency, longer.sleeper_credit), (5, 24_000_000), "rounded up");
        assert_eq!(rules("fair@5.19+wakeup-granularity-ns=0").wakeup_granularity, 0);
    }

    #[test]
    fn domains_of_a_level_have_what_was_set_of_it() {
        let machine = roost_machine::resolve("pack:2 node:1 l3:2 core:4 pu:2").unwrap();
        let pct = |name: &str| -> Vec<u32> {
            let topology = Topology::new(&machine, &parse(name));
            let domains = topology.domains_of(0).iter();
            domains.map(|&id| topology.domain(id).imbalance_pct).collect()
        };
        assert_eq!(pct("fair@7.2"), [110, 117, 117, 117]);
        assert_eq!(pct("fair@7.2+imbalance-pct-mc=130"), [110, 130, 117, 117]);
        assert_eq!(
            pct("fair@7.2+imbalance-pct-smt=101+imbalance-pct-numa=150"),
            [101, 117, 117, 150]
        );
        let topology = Topology::new(&machine, &parse("fair@7.2+min-interval-ms-mc=3"));
        assert_eq!(topology.domain(topology.domains_of(0)[1]).min_interval_ms, 3);
    }
}
