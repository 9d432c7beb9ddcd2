//! Machines for which results are published, or that many people ask about.
//!
//! CPUs are numbered as Linux does on x86: the first threads of all cores, then the second ones. If
//! something about a machine is not published, it is a guess with a name in the preset.

use std::collections::BTreeMap;

use crate::build::{CpuDescription, Description};
use crate::error::MachineError;
use crate::figures::{
    CASCADE_LAKE, EXACT_LANE, HYGON, SAPPHIRE_RAPIDS, X3750_M4, X3950, XEON_2S_12, ZEN3, ZEN4,
};
use crate::power::{self, EPYC_7763, EPYC_9654};
use crate::{Figures, Guess, Machine};

const MIB: u64 = 1 << 20;

/// One preset: a regular hierarchy and what else is known.
struct Preset {
    name: &'static str,
    description: &'static str,
    packages: u32,
    nodes_per_package: u32,
    llcs_per_node: u32,
    cores_per_llc: u32,
    /// Cores that share an L2; 1 if none do.
    cores_per_cluster: u32,
    threads: u32,
    numbering: Numbering,
    llc_bytes: Option<u64>,
    /// Memory of each node in MiB; empty if not published.
    memory_mib: &'static [u64],
    distances: Distances,
    /// In CPUID's spelling; `None` if it does not matter.
    vendor: Option<&'static str>,
    figures: Figures,
    /// Whether only one CPU executes at a time.
    takes_turns: bool,
    guesses: &'static [(&'static str, &'static str)],
}

/// The CPU numbers of a core's threads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Numbering {
    /// The first threads of all cores come first, then the second ones: Linux on x86 servers.
    ThreadsApart,
    /// The threads of a core follow each other: QEMU.
    ThreadsTogether,
}

/// Distances between nodes. A node is at distance 10 from itself.
enum Distances {
    /// To another node of the same package, and to another package.
    ByPackage { within: u32, across: u32 },
    /// As published, row by row.
    Table(&'static [&'static [u32]]),
}

/// AMD's firmware: 32 to the other socket (published for Genoa), 12 to another node of the same
/// socket in NPS modes (recalled).
const AMD_DISTANCES: Distances = Distances::ByPackage { within: 12, across: 32 };

/// Intel two-socket servers: 21 (published for Granite Rapids 6962P).
const INTEL_DISTANCES: Distances = Distances::ByPackage { within: 11, across: 21 };

const NPS_DISTANCE: (&str, &str) =
    ("assumed-distances", "12 between nodes of a socket (recalled), 32 to the other (Genoa's)");
const ZEN3_DISTANCE: (&str, &str) =
    ("assumed-distances", "32 to the other socket is Genoa's; none found for Milan");

const ZEN3_2S: Preset = Preset {
    name: "zen3-2s",
    description: "2 x AMD Milan: 2 nodes x 8 LLCs x 8 cores x 2 threads (multi-LLC NUMA imbalance)",
    packages: 2,
    nodes_per_package: 1,
    llcs_per_node: 8,
    cores_per_llc: 8,
    cores_per_cluster: 1,
    threads: 2,
    numbering: Numbering::ThreadsApart,
    // Published: Milan has 8 x 32 MB per socket.
    llc_bytes: Some(32 * MIB),
    memory_mib: &[],
    distances: AMD_DISTANCES,
    vendor: Some("AuthenticAMD"),
    figures: Figures { power: Some(EPYC_7763), ..ZEN3 },
    takes_turns: false,
    guesses: &[ZEN3_DISTANCE],
};

/// The 4-node machine of the consolidation text, from its `numactl -H`.
const X3750_DISTANCES: &[&[u32]] =
    &[&[10, 11, 11, 12], &[11, 10, 12, 11], &[11, 12, 10, 11], &[12, 11, 11, 10]];

/// The smallest machine that `roost vm` emulates. The others differ in shape.
const EMULATED: Preset = Preset {
    name: "2n2l4c",
    description: "emulated: 2 nodes x 2 LLCs x 4 cores",
    packages: 2,
    nodes_per_package: 1,
    llcs_per_node: 2,
    cores_per_llc: 4,
    threads: 1,
    numbering: Numbering::ThreadsTogether,
    // QEMU's SapphireRapids reports 16 MB for each L3, whatever CPUs share it.
    llc_bytes: Some(16 * MIB),
    distances: Distances::ByPackage { within: 11, across: 20 },
    vendor: Some("GenuineIntel"),
    figures: EXACT_LANE,
    takes_turns: true,
    guesses: &[(
        "no-cache-data",
        "an emulated machine has none; sizes are those of Sapphire Rapids",
    )],
    ..ZEN3_2S
};

const PRESETS: &[Preset] = &[
    ZEN3_2S,
    Preset {
        name: "zen3-2s-nps2",
        description: "the same in NPS2: 4 nodes x 4 LLCs x 8 cores x 2 threads",
        nodes_per_package: 2,
        llcs_per_node: 4,
        guesses: &[NPS_DISTANCE],
        ..ZEN3_2S
    },
    Preset {
        name: "zen3-2s-nps4",
        description: "the same in NPS4: 8 nodes x 2 LLCs x 8 cores x 2 threads",
        nodes_per_package: 4,
        llcs_per_node: 2,
        guesses: &[NPS_DISTANCE],
        ..ZEN3_2S
    },
    Preset {
        name: "zen4-2s",
        description: "2 x AMD Genoa 9654: 2 nodes x 12 LLCs x 8 cores x 2 threads",
        llcs_per_node: 12,
        figures: Figures { power: Some(EPYC_9654), ..ZEN4 },
        guesses: &[],
        ..ZEN3_2S
    },
    Preset {
        name: "xeon-1s-112",
        description: "1 node, one LLC of 112 CPUs: 56 cores x 2 threads (SIS_UTIL)",
        packages: 1,
        llcs_per_node: 1,
        cores_per_llc: 56,
        llc_bytes: Some(105 * MIB),
        distances: INTEL_DISTANCES,
        vendor: None,
        // The author's test scripts switch turbo and C6 off (run-schedtests.sh of schedtests, since 2022-04-11), and
        // intel_idle of 5.19-rc1 knows only C1 and C6 of Sapphire Rapids. So its clock is constant, and C1 is the only
        // idle state.
        figures: SAPPHIRE_RAPIDS,
        guesses: &[
            ("assumed-llc-size", "105 MB, recalled of the 56-core Sapphire Rapids; not published"),
            (
                "assumed-smt",
                "56 cores x 2 threads, as the author's later texts; this one has 112 CPUs an LLC",
            ),
            ("assumed-nodes", "one node: the author's scripts take the second package offline"),
        ],
        ..ZEN3_2S
    },
    Preset {
        name: "xeon-2s-96",
        description: "2 nodes, 96 CPUs: one LLC of 24 cores x 2 threads a node (NUMA groups, cling)",
        llcs_per_node: 1,
        cores_per_llc: 24,
        llc_bytes: Some(33 * MIB),
        distances: INTEL_DISTANCES,
        vendor: None,
        figures: Figures { power: Some(power::CASCADE_LAKE), ..CASCADE_LAKE },
        guesses: &[
            ("assumed-llc-size", "33 MB, recalled of 24-core Skylake; the model is not published"),
            ("assumed-smt", "24 cores x 2 threads a node; published are 2 nodes and 96 CPUs"),
            ("assumed-distances", "21 to the other node is Granite Rapids'; not published"),
        ],
        ..ZEN3_2S
    },
    Preset {
        name: "xeon-2s-40",
        description: "2 nodes of 20 CPUs (NUMA groups and cling, the text's four settling groups)",
        llcs_per_node: 1,
        cores_per_llc: 20,
        threads: 1,
        llc_bytes: Some(27 * MIB + MIB / 2),
        distances: INTEL_DISTANCES,
        vendor: None,
        figures: Figures { power: Some(power::CASCADE_LAKE), ..CASCADE_LAKE },
        guesses: &[
            (
                "assumed-machine",
                "20 cores without SMT and one LLC a node, as a Cascade Lake 6248; the text shows \
                 2 nodes on which 20 threads each have a CPU",
            ),
            ("assumed-distances", "21 to the other node is Granite Rapids'; not published"),
        ],
        ..ZEN3_2S
    },
    Preset {
        name: "hygon-vm",
        description: "virtual machine, 1 socket, 2 nodes x 4 LLCs x 4 cores x 2 threads (LLC imbalance)",
        packages: 1,
        nodes_per_package: 2,
        llcs_per_node: 4,
        cores_per_llc: 4,
        llc_bytes: Some(8 * MIB),
        distances: Distances::ByPackage { within: 11, across: 32 },
        vendor: Some("HygonGenuine"),
        figures: HYGON,
        guesses: &[
            ("assumed-nodes", "2 nodes; published are one socket and several nodes of 4 LLCs"),
            (
                "assumed-llc-size",
                "8 MB and 4 cores x 2 threads, as a 32-core Dhyana has; not published",
            ),
            ("assumed-distances", "11 between nodes of the socket; not published"),
            ("no-latency-data", "latencies and bandwidths are those of Milan"),
            ("assumed-vcpus", "virtual CPUs are pinned and not preempted by the host"),
        ],
        ..ZEN3_2S
    },
    Preset {
        name: "x3750-m4",
        description: "IBM x3750 M4: 4 nodes x 8 cores x 2 threads (consolidation, 4-node rows)",
        packages: 4,
        llcs_per_node: 1,
        llc_bytes: Some(20 * MIB),
        memory_mib: &[65468, 65536, 65536, 65536],
        distances: Distances::Table(X3750_DISTANCES),
        vendor: None,
        figures: X3750_M4,
        guesses: &[
            (
                "assumed-llc-size",
                "20 MB, recalled of 8-core Xeon E5-4600; the model is not published",
            ),
            ("assumed-smt", "CPUs n and n+32 share a core; published are the CPUs of each node"),
            (
                "no-latency-data",
                "latencies are those of newer Xeons; bandwidths are derived from perf bench numa",
            ),
        ],
        ..ZEN3_2S
    },
    Preset {
        name: "xeon-2s-12",
        description: "2 nodes x 6 cores without SMT (consolidation, 2-node rows)",
        llcs_per_node: 1,
        cores_per_llc: 6,
        threads: 1,
        llc_bytes: Some(12 * MIB),
        memory_mib: &[12276, 12288],
        distances: Distances::ByPackage { within: 11, across: 21 },
        vendor: None,
        figures: XEON_2S_12,
        guesses: &[
            (
                "assumed-same-machine",
                "the text has 2 nodes and no more. Two weeks before, its author showed his 2-node machine (numactl, \
                 LKML 2013-07-16), and numa01 and numa02 take as long there",
            ),
            ("assumed-smt", "none; the rows are not marked HT"),
            (
                "assumed-llc-size",
                "12 MB, recalled of 6-core Xeons 5600; the model is not published",
            ),
            ("no-latency-data", "latencies are those of newer Xeons"),
        ],
        ..ZEN3_2S
    },
    Preset {
        name: "x3950",
        description: "IBM x3950: 8 nodes x 8 CPUs without SMT (consolidation, 8-node rows)",
        packages: 8,
        llcs_per_node: 1,
        threads: 1,
        llc_bytes: None,
        memory_mib: &[32510, 32512, 32512, 32512, 32512, 32512, 65280, 65280],
        distances: Distances::ByPackage { within: 20, across: 20 },
        vendor: None,
        figures: X3950,
        guesses: &[
            ("no-cache-data", "the CPUs of a node share one LLC of unknown size"),
            ("no-core-data", "each CPU is a core"),
            ("no-package-data", "each node is a package"),
            (
                "no-latency-data",
                "latencies are those of newer Xeons, bandwidths of a core those of x3750-m4; the \
                 bandwidth of memory is derived from numa02",
            ),
        ],
        ..ZEN3_2S
    },
    EMULATED,
    Preset {
        name: "1s2n4l2c",
        description: "emulated: 1 socket, 2 nodes x 4 LLCs x 2 cores",
        packages: 1,
        nodes_per_package: 2,
        llcs_per_node: 4,
        cores_per_llc: 2,
        ..EMULATED
    },
    Preset {
        name: "4n1l4c",
        description: "emulated: 1 socket, 4 nodes x 4 cores, distances 11 and 12",
        packages: 1,
        nodes_per_package: 4,
        llcs_per_node: 1,
        distances: Distances::Table(X3750_DISTANCES),
        ..EMULATED
    },
    Preset {
        name: "4n2l2c",
        description: "emulated: 2 sockets of 2 nodes x 2 LLCs x 2 cores, distances 11 and 12",
        nodes_per_package: 2,
        cores_per_llc: 2,
        distances: Distances::Table(X3750_DISTANCES),
        ..EMULATED
    },
    Preset {
        name: "2n2l2c2t",
        description: "emulated: 2 nodes x 2 LLCs x 2 cores x 2 threads",
        cores_per_llc: 2,
        threads: 2,
        ..EMULATED
    },
    Preset {
        name: "2n1l2m2c2t",
        description: "emulated: 2 nodes, one LLC each, 2 clusters x 2 cores x 2 threads",
        llcs_per_node: 1,
        cores_per_cluster: 2,
        threads: 2,
        ..EMULATED
    },
];

/// The presets' names, each with a one-line description.
pub fn presets() -> Vec<(&'static str, &'static str)> {
    PRESETS.iter().map(|preset| (preset.name, preset.description)).collect()
}

/// The machine of that name, if there is such a preset.
pub(crate) fn preset(name: &str) -> Option<Result<Machine, MachineError>> {
    let preset = PRESETS.iter().find(|preset| preset.name == name)?;
    let built = preset.describe().build();
    Some(built.map_err(|problem| MachineError::Invalid {
        name: preset.name.into(),
        problem: problem.what,
        remedy: problem.remedy,
    }))
}

impl Preset {
    fn describe(&self) -> Description {
        let nodes = self.packages * self.nodes_per_package;
        let llcs = nodes * self.llcs_per_node;
        let mut description = Description {
            name: self.name.into(),
            cpus: self.cpus(),
            distances: self.distances(nodes),
            figures: Some(self.figures.clone()),
            takes_turns: self.takes_turns,
            vendor: self.vendor.map(str::to_owned),
            ..Description::default()
        };
        for node in 0..nodes {
            let memory = self.memory_mib.get(node as usize).map(|mib| mib * MIB);
            description.nodes.insert(node, memory);
        }
        if let Some(bytes) = self.llc_bytes {
            description.llc_bytes = (0..llcs).map(|llc| (llc, bytes)).collect();
        }
        for &(name, assumed) in self.guesses {
            description.guesses.push(Guess { name, assumed: assumed.into() });
        }
        description
    }

    fn cpus(&self) -> Vec<CpuDescription> {
        let nodes = self.packages * self.nodes_per_package;
        let cores = nodes * self.llcs_per_node * self.cores_per_llc;
        (0..cores * self.threads)
            .map(|os_index| {
                let core = match self.numbering {
                    Numbering::ThreadsApart => os_index % cores,
                    Numbering::ThreadsTogether => os_index / self.threads,
                };
                let cluster = core / self.cores_per_cluster;
                let llc = core / self.cores_per_llc;
                let node = llc / self.llcs_per_node;
                CpuDescription {
                    os_index,
                    core: Some(core),
                    cluster: (self.cores_per_cluster > 1).then_some(cluster),
                    llc: Some(llc),
                    node: Some(node),
                    package: Some(node / self.nodes_per_package),
                    ..CpuDescription::default()
                }
            })
            .collect()
    }

    fn distances(&self, nodes: u32) -> BTreeMap<(u32, u32), u32> {
        let package = |node: u32| node / self.nodes_per_package;
        let between = |from: u32, to: u32| match self.distances {
            Distances::Table(table) => table[from as usize][to as usize],
            Distances::ByPackage { .. } if from == to => 10,
            Distances::ByPackage { within, .. } if package(from) == package(to) => within,
            Distances::ByPackage { across, .. } => across,
        };
        (0..nodes)
            .flat_map(|from| (0..nodes).map(move |to| (from, to)))
            .map(|(from, to)| ((from, to), between(from, to)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(name: &str) -> Machine {
        preset(name).unwrap().unwrap()
    }

    /// (CPUs, cores, LLCs, nodes, packages)
    fn shape(name: &str) -> (usize, usize, usize, usize, usize) {
        let m = get(name);
        (m.nr_cpus(), m.cores.len(), m.llcs.len(), m.nodes.len(), m.packages)
    }

    #[test]
    fn shapes_are_those_published() {
        assert_eq!(shape("zen3-2s"), (256, 128, 16, 2, 2));
        assert_eq!(shape("zen3-2s-nps2"), (256, 128, 16, 4, 2));
        assert_eq!(shape("zen3-2s-nps4"), (256, 128, 16, 8, 2));
        assert_eq!(shape("zen4-2s"), (384, 192, 24, 2, 2));
        assert_eq!(shape("xeon-1s-112"), (112, 56, 1, 1, 1));
        assert_eq!(shape("xeon-2s-96"), (96, 48, 2, 2, 2));
        assert_eq!(shape("xeon-2s-40"), (40, 40, 2, 2, 2));
        assert_eq!(shape("xeon-2s-12"), (12, 12, 2, 2, 2));
        assert_eq!(shape("hygon-vm"), (64, 32, 8, 2, 1));
        assert_eq!(shape("x3750-m4"), (64, 32, 4, 4, 4));
        assert_eq!(shape("x3950"), (64, 64, 8, 8, 8));
        assert_eq!(presets().len(), 17);
    }

    #[test]
    fn emulated_machines_have_the_shape_in_their_name() {
        assert_eq!(shape("2n2l4c"), (16, 16, 4, 2, 2));
        assert_eq!(shape("1s2n4l2c"), (16, 16, 8, 2, 1));
        assert_eq!(shape("4n1l4c"), (16, 16, 4, 4, 1));
        assert_eq!(shape("4n2l2c"), (16, 16, 8, 4, 2));
        assert_eq!(shape("2n2l2c2t"), (16, 8, 4, 2, 2));
        assert_eq!(shape("2n1l2m2c2t"), (16, 8, 2, 2, 2));
        let clustered = get("2n1l2m2c2t");
        assert_eq!(clustered.siblings(2).to_string(), "2-3");
        assert_eq!(clustered.cpus[3].cluster, Some(0));
        assert_eq!(clustered.cpus[4].cluster, Some(1));
    }

    #[test]
    fn zen_reaches_the_other_socket() {
        assert_eq!(get("zen3-2s").reclaim_distance, 32);
        assert_eq!(get("hygon-vm").reclaim_distance, 32);
        assert_eq!(get("xeon-2s-96").reclaim_distance, 30);
    }

    #[test]
    fn siblings_are_numbered_as_linux_does() {
        let m = get("zen3-2s");
        assert_eq!(m.siblings(0).to_string(), "0,128");
        assert_eq!(m.nodes[1].cpus.to_string(), "64-127,192-255");
        assert_eq!(m.llcs[15].cpus.to_string(), "120-127,248-255");
        assert_eq!(m.llcs[0].size_bytes, Some(32 << 20));
    }

    #[test]
    fn the_ibm_machines_are_as_their_numactl_printed() {
        let m = get("x3750-m4");
        assert_eq!(m.nodes[2].cpus.to_string(), "16-23,48-55");
        assert_eq!(m.nodes[0].memory_bytes, Some(65468 << 20));
        assert_eq!(m.distances[1], [11, 10, 12, 11]);
        let m = get("x3950");
        assert_eq!(m.nodes[7].cpus.to_string(), "56-63");
        assert_eq!(m.nodes[7].memory_bytes, Some(65280 << 20));
        assert_eq!(m.distances[3], [20, 20, 20, 10, 20, 20, 20, 20]);
    }

    #[test]
    fn sub_numa_nodes_are_12_apart_and_sockets_32() {
        assert_eq!(get("zen3-2s-nps2").distances[0], [10, 12, 32, 32]);
        assert_eq!(get("zen4-2s").distances, [[10, 32], [32, 10]]);
    }

    #[test]
    fn an_unknown_name_is_no_preset() {
        assert!(preset("zen3").is_none());
    }
}
