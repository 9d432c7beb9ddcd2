//! What the hardware is: CPUs, cores, LLCs, nodes, their distances and figures.
//!
//! ```text
//! machine
//! └─ package (socket)
//!    └─ node (memory and the CPUs nearest to it)
//!       └─ LLC (last-level cache and the CPUs that share it)
//!          └─ cluster (cores that share an L2, on machines that have it)
//!             └─ core (CPUs that share L1 and L2)
//!                └─ CPU (a hardware thread)
//! ```
//!
//! A machine comes from a preset, from an hwloc XML file, from a synthetic string ([`resolve`]
//! takes all three), from this system ([`Machine::this`]) or from a captured `/sys` tree
//! ([`Machine::from_sysfs`]). All sources go through the same validation. Everything that had to be
//! guessed is listed by name in [`Machine::guesses`].

mod access;
mod as_sysfs;
mod build;
mod cpuset;
mod draw;
mod error;
mod figures;
mod files;
pub mod hwloc;
pub mod lscpu;
mod osset;
mod power;
mod presets;
pub mod synthetic;
mod sysfs;
mod validate;

use std::io::Read;
use std::path::Path;

pub use access::MemoryCosts;
pub use cpuset::CpuSet;
pub use draw::{DrawOptions, count, draw};
pub use error::MachineError;
pub use power::{COSTS_MHZ, IdleState, Power};
pub use presets::presets;
use serde::Serialize;

/// One machine: a validated hierarchy with dense numbers, and its figures.
///
/// All numbers (CPU, core, LLC, node, package) are dense from 0 in the order of their lowest CPU.
/// The operating system's own numbers are in [`Cpu::os_index`] and [`Node::os_index`]. CPUs are
/// ordered by their operating-system number, so `a < b` holds for both numberings at the same time.
///
/// The serialised form has what a run depends on: not the name, and not the sources of figures.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The name that the user gave: a preset's name, a file, a synthetic string.
    #[serde(skip)]
    pub name: String,
    /// Every online CPU.
    pub cpus: Vec<Cpu>,
    /// Every core.
    pub cores: Vec<Core>,
    /// Every last-level cache.
    pub llcs: Vec<Llc>,
    /// Every NUMA node, including nodes without CPUs.
    pub nodes: Vec<Node>,
    /// Number of packages (sockets).
    pub packages: usize,
    /// Distances between nodes as the firmware reports them (SLIT): 10 is local.
    pub distances: Vec<Vec<u32>>,
    /// The distance beyond which the kernel neither places new tasks nor wakes affine
    /// (`node_reclaim_distance`). It is 30; on AMD Zen and Hygon, where the other socket is at 32,
    /// it is 32 (arch/x86/kernel/cpu/amd.c and hygon.c since Linux 5.4, commit a55c7454a8c8).
    pub reclaim_distance: u32,
    /// Times and capacities.
    pub figures: Figures,
    /// Whether only one CPU executes at a time, as in QEMU if time counts instructions. Kernel work
    /// then takes as many times longer as CPUs are busy.
    pub takes_turns: bool,
    /// What the source did not say and had to be guessed, by name.
    #[serde(skip)]
    pub guesses: Vec<Guess>,
}

/// A hardware thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cpu {
    /// The operating system's number.
    pub os_index: u32,
    /// Its core.
    pub core: u32,
    /// Its cluster (cores sharing an L2), on machines with clusters of more than one core.
    pub cluster: Option<u32>,
    /// Its last-level cache.
    pub llc: u32,
    /// Its NUMA node.
    pub node: u32,
    /// Its package.
    pub package: u32,
    /// The kernel's measure of its speed at its highest frequency, in 1024ths of the fastest CPU
    /// (`cpu_capacity`); 1024 if the source does not say. Scheduling domains depend on it. Tasks
    /// run equally fast on all CPUs.
    pub capacity: u32,
}

impl Cpu {
    /// The capacity of a CPU if all CPUs are equal (`SCHED_CAPACITY_SCALE`).
    pub const FULL_CAPACITY: u32 = 1024;
}

/// CPUs that share L1 and L2.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Core {
    /// Its hardware threads.
    pub cpus: CpuSet,
}

/// A last-level cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Llc {
    /// The CPUs that share it.
    pub cpus: CpuSet,
    /// Capacity in bytes; `None` if the source does not say.
    pub size_bytes: Option<u64>,
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Node {
    /// The operating system's number.
    pub os_index: u32,
    /// The CPUs nearest to its memory; empty for a memory-only node.
    pub cpus: CpuSet,
    /// Memory in bytes; `None` if the source does not say, `Some(0)` for a node without memory.
    pub memory_bytes: Option<u64>,
}

/// Something that the source of a machine did not say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guess {
    /// What is missing, by a stable name: `no-numa-information`, `node-without-cpus`,
    /// `llc-across-nodes`, `offline-cpus`, `no-cache-data`, ...
    pub name: &'static str,
    /// What was assumed instead, in a sentence.
    pub assumed: String,
}

/// A time, capacity or speed of a machine, with its source.
///
/// `source` is a sentence for people: "posted: ...", "derived: ...", "recalled",
/// or "assumption: ...".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Figure {
    /// The value, in the unit that the field's name ends in.
    pub value: u64,
    /// Its source.
    #[serde(skip)]
    pub source: &'static str,
}

/// The times and capacities of a machine. Every figure has its source.
///
/// Bandwidths count bytes that move over the wire. A store to an uncached line first reads the line
/// (write-allocate) and later writes it back, so a benchmark that counts 8 stored bytes moves 16.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// A cache line moves between two CPUs of one core, one way.
    pub line_same_core_ns: Figure,
    /// A cache line moves between cores of one LLC, one way.
    pub line_same_llc_ns: Figure,
    /// A cache line moves between LLCs of one package, one way.
    pub line_cross_llc_ns: Figure,
    /// A cache line moves between packages, one way.
    pub line_cross_package_ns: Figure,
    /// From sending an interrupt to another CPU of the package until its handler runs.
    pub ipi_local_ns: Figure,
    /// From sending an interrupt to another package until its handler runs.
    pub ipi_remote_ns: Figure,
    /// Switching from one task to another, direct cost.
    pub context_switch_ns: Figure,
    /// Time for a CPU in its shallow idle state to run kernel code again.
    pub idle_exit_ns: Figure,
    /// CPU time of one timer tick.
    pub tick_ns: Figure,
    /// CPU time of taking one interrupt (timer expiry, IPI).
    pub interrupt_ns: Figure,
    /// CPU time of one wakeup (`try_to_wake_up`) without the search for a CPU.
    pub wakeup_ns: Figure,
    /// CPU time for a woken task beside its own work and the switch: the end of the system call in
    /// which it slept, and the next call in which it sleeps.
    pub activation_ns: Figure,
    /// CPU time of the creator for a new task.
    pub fork_ns: Figure,
    /// CPU time of a new task before its own work: setting up its thread, first page faults.
    pub task_start_ns: Figure,
    /// CPU time of an rt-app task between the common start and its first operation.
    pub task_ready_ns: Figure,
    /// Speed of a CPU while the other CPUs of its core are busy, in 1024ths of its speed alone.
    pub smt_speed_1024: Figure,
    /// Capacity of a core's private cache (L2), bytes.
    pub l2_bytes: Figure,
    /// Bandwidth at which a core refills its private cache from the LLC, bytes per microsecond.
    pub refill_llc_bytes_per_us: Figure,
    /// Bandwidth at which a core refills from memory or another LLC of its package, bytes per us.
    pub refill_local_bytes_per_us: Figure,
    /// Bandwidth at which a core refills from another package, bytes per microsecond.
    pub refill_remote_bytes_per_us: Figure,
    /// Capacity of an LLC if the machine's source does not say, bytes.
    pub llc_bytes: Figure,
    /// Bandwidth of a core from its private cache (L2), bytes per microsecond.
    pub l2_bytes_per_us: Figure,
    /// Latency of a load that hits the L2.
    pub l2_latency_ns: Figure,
    /// Latency of a load that hits the LLC.
    pub llc_latency_ns: Figure,
    /// Latency of a load from the memory of the CPU's own node if nothing else uses it.
    pub memory_local_ns: Figure,
    /// Latency of a load from the memory of another package if nothing else uses it.
    pub memory_remote_ns: Figure,
    /// Time for which one request occupies a saturated memory. It sets how steeply latency rises
    /// with load.
    pub memory_service_ns: Figure,
    /// Bandwidth between an LLC and all memory, bytes per microsecond.
    pub llc_link_bytes_per_us: Figure,
    /// Memory bandwidth that a package sustains, shared evenly by its nodes, bytes per us.
    pub package_memory_bytes_per_us: Figure,
    /// Bandwidth from one package to another, bytes per microsecond.
    pub package_link_bytes_per_us: Figure,
    /// Kernel time of the fault that places a page of 4 KiB, zeroing included.
    pub page_fault_ns: Figure,
    /// Kernel time to move a page of 4 KiB to another node if nothing else uses the memory.
    pub page_migrate_ns: Figure,
    /// The part of that time for copying the 4 KiB, unless their bandwidth takes longer.
    pub page_copy_ns: Figure,
    /// Kernel time of a NUMA hinting fault for one page, without moving it.
    pub hint_fault_ns: Figure,
    /// Kernel time to mark one page for a hinting fault.
    pub page_mark_ns: Figure,
    /// CPU time of one instruction of a sched_ext program, and of the kernel for the program, in picoseconds.
    pub instruction_ps: Figure,
    /// The threads of the frequency governor; `None` if it has none.
    pub sampling: Option<Sampling>,
    /// Clocks and idle states; `None` if the clock is constant and the idle state of `idle_exit_ns` is the only one, or
    /// if nothing is known.
    pub power: Option<Power>,
}

/// Threads, one per CPU, with which a frequency governor samples how busy CPUs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sampling {
    /// Sampling period of a busy CPU.
    pub period_ns: Figure,
    /// Run time of a sample, without the switches to the thread and back.
    pub run_ns: Figure,
}

/// Size of a page of memory, bytes.
pub const PAGE_BYTES: u64 = 4096;

impl Machine {
    /// Number of CPUs, which is also the capacity of every [`CpuSet`] of this machine.
    pub fn nr_cpus(&self) -> usize {
        self.cpus.len()
    }

    /// The machine on which this program runs, from `/sys`.
    pub fn this() -> Result<Self, MachineError> {
        sysfs::machine(Path::new("/"), "this machine")
    }

    /// A machine whose `/sys` was captured. `path` holds `devices/system`, or it holds
    /// `sys/devices/system` and possibly `proc/cpuinfo`, or it is a tar archive of these.
    pub fn from_sysfs(path: &Path) -> Result<Self, MachineError> {
        let name = path.display().to_string();
        if path.is_file() { sysfs::archive(path, &name) } else { sysfs::machine(path, &name) }
    }
}

/// The machine that an argument names: a preset, an hwloc XML file, the output of lscpu, a
/// directory or archive with a captured `/sys`, or a synthetic string.
pub fn resolve(arg: &str) -> Result<Machine, MachineError> {
    if let Some(machine) = presets::preset(arg) {
        return machine;
    }
    let path = Path::new(arg);
    if path.is_dir() {
        return Machine::from_sysfs(path);
    }
    if path.is_file() {
        return from_file(path);
    }
    if arg.contains(':') {
        return synthetic::parse(arg);
    }
    Err(MachineError::Unknown { argument: error::shown(arg), remedy: what_would_do(path) })
}

/// What to give instead of an argument that names no machine: a preset with a similar name, or else
/// all possibilities.
fn what_would_do(path: &Path) -> String {
    let names = presets().into_iter().map(|preset| preset.0);
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    if let Some(question) = roost_names::did_you_mean(&stem, names.clone()) {
        return format!("{question} `roost machine --list` shows all presets");
    }
    format!(
        "give a file that exists (hwloc's machine.xml, what lscpu printed, an archive of /sys), a \
         synthetic string (node:2 l3:8 core:8 pu:2) or one of {}",
        names.collect::<Vec<_>>().join(", ")
    )
}

/// The machine that a file describes. The first bytes tell the kind of file.
fn from_file(path: &Path) -> Result<Machine, MachineError> {
    let name = path.display().to_string();
    let unreadable = |error: std::io::Error| MachineError::Read {
        path: error::shown(&name),
        reason: error::shown(&error.to_string()),
    };
    let mut head = Vec::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take(4096).read_to_end(&mut head).map_err(unreadable)?;
    if files::is_archive(&head) {
        return sysfs::archive(path, &name);
    }
    let text = String::from_utf8_lossy(&head);
    if lscpu::is_lscpu(&text) {
        return lscpu::parse(&hwloc::text_of(path)?, &name);
    }
    if synthetic::is_synthetic(&text) {
        return synthetic::parse_named(hwloc::text_of(path)?.trim(), &name);
    }
    let begins = text.trim_start_matches('\u{feff}').trim_start();
    let is_xml = begins.starts_with('<') || path.extension().is_some_and(|ending| ending == "xml");
    if !is_xml {
        let problem =
            if begins.is_empty() { "the file is empty" } else { "no description of a machine" };
        return Err(MachineError::Text {
            file: error::shown(&name),
            line: 1,
            problem: problem.to_owned(),
            remedy: "give what `lstopo machine.xml` or `lscpu -p=CPU,CORE,SOCKET,NODE,CACHE` writes \
                     (`lscpu` alone does not say which CPUs share a cache), or an archive of /sys",
        });
    }
    hwloc::load(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_another_kind_is_answered_with_the_kinds_that_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("machine");
        for (text, problem) in [
            ("", "the file is empty"),
            (" \n", "the file is empty"),
            ("Architecture:        x86_64\nCPU(s): 4\n", "no description of a machine"),
            ("processor\t: 0\n", "no description of a machine"),
        ] {
            std::fs::write(&file, text).unwrap();
            let error = resolve(file.to_str().unwrap()).unwrap_err().to_string();
            assert!(error.contains(&format!(":1: {problem}; give what `lstopo")), "{error}");
        }
    }

    #[test]
    fn an_argument_is_a_preset_a_file_or_a_string() {
        assert_eq!(resolve("zen3-2s").unwrap().nr_cpus(), 256);
        assert_eq!(resolve("node:2 core:2 pu:2").unwrap().nr_cpus(), 8);
        assert!(matches!(resolve("missing.xml"), Err(MachineError::Unknown { .. })));
        assert!(matches!(resolve("node:2 core:2"), Err(MachineError::Synthetic { .. })));
    }

    #[test]
    fn what_is_none_of_them_is_told_what_there_is() {
        for arg in ["zen9", "", "a\nb"] {
            let error = resolve(arg).unwrap_err().to_string();
            assert!(error.contains("zen3-2s-nps4") && !error.contains('\n'), "{error}");
        }
    }
}
