//! Arguments of the command line.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

use roost_engine::Time;
use roost_report::TraceWindow;
use roost_simulate::Start;

use crate::build;
use crate::error::{Error, print};
use crate::live::RunArgs;

/// Compare CPU schedulers on machines you do not own.
#[derive(Debug, Parser)]
#[command(version = build::shown(), about, after_help = EXAMPLES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  roost machine                    this machine as a scheduler sees it
  roost compare --machine zen3-2s --workload coremark:threads=16 fair@5.16 fair@5.16+numa-imbalance
                                   what a published patch does on a 2-socket EPYC

`roost COMMAND --help` explains each command.";

/// The commands of `roost`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show a machine: hierarchy, distances, scheduling domains.
    Machine(MachineArgs),
    /// Run a workload under several schedulers and compare what they do.
    Compare(CompareArgs),
    /// Run every combination of machines, workloads, schedulers, numbers and seeds of a plan into one Parquet file.
    Sweep(SweepArgs),
    /// Start a rule of your own: list the functions that a rule can replace, and write a file to edit.
    Policy(PolicyArgs),
    /// Run a stock kernel on an emulated machine.
    Vm(VmArgs),
    /// Compare the simulation with the real kernel, counter by counter.
    Validate(ValidateArgs),
    /// Show what a sched_ext scheduler contains, and what it needs from the kernel.
    Scx(ScxArgs),
    /// Compare published figures with simulated ones, and write docs/results.md.
    Reproduce(ReproduceArgs),
    /// Schedule this machine with the live scheduler until Ctrl-C (needs root).
    Run(RunArgs),
    /// Show how busy each LLC of this machine is, live; or what the live scheduler counts.
    Top(TopArgs),
    /// Print completions for a shell: `source <(roost completions bash)`.
    Completions(CompletionsArgs),
    /// Write the manual pages, the completions and a commented settings file (for packaging).
    #[command(hide = true)]
    Man(ManArgs),
}

/// Arguments of `roost completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// Arguments of `roost man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// The folder to write to.
    pub folder: PathBuf,
}

const TOP_EXAMPLES: &str = "\
Examples:
  roost top                                        how busy each LLC is, whatever schedules: needs no root
  roost top 200ms                                  five times a second
  sudo roost top --counters                        what the live scheduler counts (`roost run` loads it)

Ctrl-C leaves.";

/// Arguments of `roost top`.
#[derive(Debug, Args)]
#[command(after_help = TOP_EXAMPLES)]
pub struct TopArgs {
    /// Show the counters of the live scheduler instead of how busy LLCs are.
    #[arg(long)]
    pub counters: bool,
    /// Time between two updates of the display.
    #[arg(value_parser = interval, default_value = "1s")]
    pub interval: Duration,
}

const MACHINE_EXAMPLES: &str = "\
Examples:
  roost machine                                    this machine
  roost machine zen3-2s --kernel 6.15 --cpu 3      the scheduling domains of CPU 3 in Linux 6.15
  roost machine server.xml                         hwloc XML (`lstopo server.xml` writes it)
  roost machine \"node:2 l3:8 core:8 pu:2\"          an invented machine: 2 nodes of 8 LLCs of 8 SMT-2 cores
  roost machine --sysfs captured/                  a copied /sys/devices/system
  roost machine sys.tgz                            an archive, made on a server by:
      cat /proc/cpuinfo >cpuinfo; tar czf sys.tgz cpuinfo /sys/devices/system/cpu /sys/devices/system/node
  roost machine cpus.txt                           output of `lscpu -p` or `lscpu -J -e`, optionally of `numactl -H`
  roost machine 2n2l4c --on vm                     what a real kernel sees of this machine, in a guest";

/// Arguments of `roost machine`.
#[derive(Debug, Args)]
#[command(after_help = MACHINE_EXAMPLES)]
pub struct MachineArgs {
    /// A preset, hwloc XML, a copied /sys tree or an archive of one, what lscpu printed, or a synthetic string
    /// (default: this machine).
    pub machine: Option<String>,
    /// Read a captured /sys tree, or an archive of one.
    #[arg(long, value_name = "DIR", conflicts_with = "machine")]
    pub sysfs: Option<PathBuf>,
    /// List the presets.
    #[arg(long, conflicts_with_all = ["machine", "sysfs", "kernel", "cpu", "figures"])]
    pub list: bool,
    /// Show the scheduling domains that a kernel builds. VERSION is one that `roost compare` lists; switches may follow
    /// it, as in 5.16+numa-imbalance.
    #[arg(long, value_name = "VERSION")]
    pub kernel: Option<String>,
    /// The CPU whose domains --kernel shows (default: the lowest).
    #[arg(long, value_name = "N")]
    pub cpu: Option<u32>,
    /// Show latencies, costs and capacities, each with its source.
    #[arg(long)]
    pub figures: bool,
    /// Write the machine as a tree in the format of Linux's /sys. DIR stands for /sys, and is created.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["list", "kernel", "cpu", "figures", "on"])]
    pub as_sysfs: Option<PathBuf>,
    /// The format of the output.
    #[arg(long, value_enum, default_value_t = MachineFormat::Text)]
    pub format: MachineFormat,
    /// Boot a guest of this machine, and show what its kernel sees next to what the model predicts.
    #[arg(long, value_enum, value_name = "WHERE",
          conflicts_with_all = ["list", "sysfs", "figures"])]
    pub on: Option<ShownOn>,
}

/// Where `roost machine` can show a machine, apart from the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ShownOn {
    /// A stock kernel on an emulated machine.
    Vm,
}

/// Where schedulers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum On {
    /// On a simulated machine.
    Sim,
    /// Under a stock kernel on an emulated machine (run `roost vm prepare` first).
    Vm,
    /// On this machine (needs root).
    Host,
}

/// The state of a simulated machine before a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum StartArg {
    /// The machine has been up for a while, and is idle.
    #[default]
    Running,
    /// The machine has just booted.
    Boot,
}

impl StartArg {
    /// The word that outputs use.
    pub fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Boot => "boot",
        }
    }
}

impl From<StartArg> for Start {
    fn from(start: StartArg) -> Self {
        match start {
            StartArg::Running => Self::Running,
            StartArg::Boot => Self::Boot,
        }
    }
}

const POLICY_EXAMPLES: &str = "\
Examples:
  roost policy list                                the functions that a rule can replace
  roost policy new sis-util                        writes my_rule.h with the functions of sis-util, to edit
  roost policy new roost_nr_idle_scan wide.h       writes wide.h with this function only
  roost compare --workload hackbench fair@7.2 mine=fair@7.2+policy=my_rule.h
                                   the kernel's rule and yours in one table";

/// Arguments of `roost policy`.
#[derive(Debug, Args)]
#[command(after_help = POLICY_EXAMPLES)]
pub struct PolicyArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: PolicyCommand,
}

/// The commands of `roost policy`.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// List the functions of the policy, by mechanism.
    List,
    /// Write a file with functions to edit. An existing file is never overwritten.
    New {
        /// A mechanism, such as sis-util, or one function.
        name: String,
        /// The file to write.
        #[arg(default_value = "my_rule.h")]
        file: PathBuf,
    },
}

const VM_EXAMPLES: &str = "\
Examples:
  roost vm prepare                                 fetch kernel and QEMU, build the guest's root
  roost vm prepare --kernel bzImage                store a kernel of your own, which later guests boot
  roost vm shell --machine 2n2l4c                  a shell in a guest of 2 nodes x 2 LLCs x 4 CPUs
  roost vm run --machine 2n2l4c --kernel 7.2 -- hackbench -g 2 -l 200
  roost vm run --exact -- hackbench -g 1 -l 10     time counts instructions: repeated runs are identical

Everything is stored in one folder, which can be moved and shared: $ROOST_CACHE, or ~/.cache/roost by default.";

/// Arguments of `roost vm`.
#[derive(Debug, Args)]
#[command(after_help = VM_EXAMPLES)]
pub struct VmArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: VmCommand,
}

/// The commands of `roost vm`.
#[derive(Debug, Subcommand)]
pub enum VmCommand {
    /// Fetch and build kernel, QEMU and root image. Pieces that exist already, or that you give, are kept.
    Prepare(PieceArgs),
    /// Run a command in a guest. Output and exit status are the command's.
    Run(VmRunArgs),
    /// Open a shell in a guest; `exit` or Ctrl-] ends it.
    Shell(GuestArgs),
}

/// The pieces that a guest is made of.
#[derive(Debug, Args)]
pub struct PieceArgs {
    /// A version, such as 7.2 or 7.2.13, or the file of a kernel image.
    #[arg(long, value_name = "VERSION|FILE")]
    pub kernel: Option<String>,
    /// A QEMU of your own (qemu-system-x86_64, 10 or newer).
    #[arg(long, value_name = "FILE")]
    pub qemu: Option<PathBuf>,
    /// A root image of your own: ext4 with bash, coreutils, mount, util-linux, procps and tar.
    #[arg(long, value_name = "FILE")]
    pub root: Option<PathBuf>,
}

/// Arguments that describe a guest.
#[derive(Debug, Args)]
pub struct GuestArgs {
    /// The guest's machine, of up to 32 CPUs: a preset, an hwloc XML file, or a synthetic string.
    #[arg(long, default_value = "2n2l4c")]
    pub machine: String,
    /// The pieces that the guest is made of.
    #[command(flatten)]
    pub pieces: PieceArgs,
    /// Memory in MiB, divided evenly among the nodes.
    #[arg(long, value_name = "MIB", default_value_t = 2048,
          value_parser = clap::value_parser!(u32).range(512..=1_048_576))]
    pub memory: u32,
    /// Time within which the guest has to boot.
    #[arg(long, value_parser = positive_duration, default_value = "5min")]
    pub boot_timeout: Duration,
}

/// Arguments of `roost vm run`.
#[derive(Debug, Args)]
pub struct VmRunArgs {
    /// The guest.
    #[command(flatten)]
    pub guest: GuestArgs,
    /// Let time in the guest count instructions, and emulate one CPU after the other. This is slow, but repeated runs
    /// are identical.
    #[arg(long)]
    pub exact: bool,
    /// Time after which roost ends the guest if the command is still running.
    #[arg(long, value_parser = positive_duration, default_value = "10min")]
    pub timeout: Duration,
    /// The command with its arguments, after `--`.
    #[arg(required = true, last = true)]
    pub command: Vec<String>,
}

/// The format of `roost machine`'s output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MachineFormat {
    /// A drawing for people.
    Text,
    /// One JSON object.
    Json,
    /// One row per CPU.
    Csv,
}

const COMPARE_EXAMPLES: &str = "\
Examples:
  roost compare --machine zen3-2s --workload hackbench:groups=8 fair@5.19 fair@5.19+sis-util
                                   what one mechanism does on a 2-socket EPYC, simulated
  roost compare --machine server.xml --workload load.json --repeat 10 --seed 7 --format json \\
      fair@5.16 fair@5.16+numa-imbalance fair@7.2
                                   three kernels on your machine (`lstopo server.xml` describes it)
  roost compare --machine zen3-2s --workload stream:threads=16 --picture --html report.html \\
      fair@5.16 fair@5.16+numa-imbalance
                                   the table, below it where tasks are over time, and a page with charts
  roost compare --machine zen3-2s --machine zen4-2s --workload hackbench:groups=1,4,16 \\
      base=fair@7.2 no-search=fair@7.2+no-sis-util
                                   one table for two machines and three loads, with labelled rows
  roost compare --machine zen4-2s --workload hackbench:groups=16 fair@7.2 './scx_cosmos -s 1000'
                                   sched_ext schedulers on a simulated machine; the last one's own program sets it up
  roost compare --workload hackbench:groups=4 --metric Time fair@7.2
                                   one number, for scripts; run it once per scheduler
  roost compare --machine hygon-vm --workload iperf3:noise=4 --duration 1s \\
      --trace trace.pftrace --trace-window 500ms..600ms fair@5.16 fair@6.15
                                   two traces to compare: trace-fair@5.16.pftrace, trace-fair@6.15.pftrace
  roost compare --on vm --machine 1s2n4l2c --workload load.json \\
      fair@7.2 fair@7.2+no-sis-util scx_cosmos
                                   a real kernel on an emulated machine; `roost vm prepare` first
  roost compare --on vm --workload hackbench:groups=2 fair@7.2 roost roost+no-sis-util+slice-us=5000
                                   a kernel and the live scheduler, once with other settings
  roost compare --on vm --exact --repeat 1 --workload hackbench:groups=1,loops=20 \\
      fair@7.2 ./scx_mine
                                   time counts instructions, so the scheduler's own cost shows
  sudo roost compare --on host --workload hackbench:groups=4 fair fair+no-sis-util roost
                                   the kernel of this machine; changed settings are restored

The first scheduler is the baseline. A change is marked with * if the 95% confidence intervals of both
means are disjoint; with one repeat nothing can be marked. After Ctrl-C, roost prints the repeats that are
complete, and marks the result as partial. --resume continues from such a result if it is JSON (--format json).";

/// Arguments of `roost compare`.
#[derive(Debug, Args)]
#[command(after_help = COMPARE_EXAMPLES, after_long_help = compare_long_help())]
pub struct CompareArgs {
    /// Where to run: on a simulated machine, under a real kernel on an emulated machine, or on this machine.
    #[arg(long, value_enum, value_name = "WHERE", default_value_t = On::Sim)]
    pub on: On,
    /// The machine: a preset (`roost machine --list`), hwloc XML, a copied /sys tree or an archive of one, what lscpu
    /// printed, or a synthetic string. `roost machine --help` says how to get these. May be given several times
    /// (default: zen3-2s; with --on vm: 2n2l4c).
    #[arg(long)]
    pub machine: Vec<String>,
    /// A benchmark with parameters (`--help` lists them), or an rt-app JSON file. A parameter may have several values,
    /// as in groups=1,4,16; each value makes a workload of its own. May be given several times.
    #[arg(long, required_unless_present_any = ["list_workloads", "list_schedulers"])]
    workload: Vec<String>,
    /// The schedulers to compare. LABEL=SCHEDULER labels a row. fair@VERSION takes +SWITCH, +no-SWITCH and +NAME=N
    /// (`--help` lists them), +config=FILE with settings of `roost run`, and +policy=FILE with a rule of your own
    /// (`roost policy --help`). roost is the scheduler that `roost run` loads; its settings follow, as in
    /// roost+no-cling+slice-us=1000. scx:FILE.bpf.o is a sched_ext program; +NAME=VALUE sets one of its variables. A
    /// scheduler's own program with its arguments, such as './scx_cosmos -s 1000', is started until it attaches, and
    /// what it loaded runs. With --on vm or host, switches are the kernel's own, and any other name is the program of a
    /// sched_ext scheduler.
    #[arg(required_unless_present_any = ["list_workloads", "list_schedulers"], value_name = "SCHEDULER")]
    pub schedulers: Vec<String>,
    /// List the benchmarks and their parameters (also as --format json or csv).
    #[arg(long, conflicts_with_all = ["list_schedulers", "workload", "schedulers"])]
    pub list_workloads: bool,
    /// List versions, switches and numbers (also as --format json or csv).
    #[arg(long, conflicts_with_all = ["workload", "schedulers"])]
    pub list_schedulers: bool,
    /// Number of runs of each scheduler. Each run has a seed of its own.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub repeat: u32,
    /// The first seed; each further run takes the next number. A seed decides all that would differ between two real
    /// runs.
    #[arg(long, default_value_t = 1, allow_negative_numbers = true)]
    pub seed: u64,
    /// Simulated time after which a workload that does not end by itself is stopped, e.g. 500ms or 20s (default: the
    /// workload's own). Real programs take whole seconds.
    #[arg(long, value_parser = positive_duration)]
    pub duration: Option<Duration>,
    /// The state of the simulated machine before the run: up for an hour and idle, or just booted, as a guest is.
    #[arg(long, value_enum, value_name = "HOW", default_value_t = StartArg::Running)]
    pub start: StartArg,
    /// Leave out the kernel threads that run beside the workload on a simulated machine.
    #[arg(long)]
    pub quiet: bool,
    /// The format of the output.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Print all counters too (JSON always has them).
    #[arg(long)]
    pub counters: bool,
    /// Print only one number: the metric or counter with this name, as tables show it. The number is the mean over all
    /// runs of the last scheduler. Needs one machine and one workload.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["format", "counters"])]
    pub metric: Option<String>,
    /// Write a Perfetto trace of each scheduler's first run to FILE (ui.perfetto.dev opens it). With several
    /// schedulers, each has its own file: the scheduler's name is inserted before FILE's ending.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Trace only this part of each run, e.g. 200ms..250ms of simulated time. On a real kernel, time counts from the
    /// start of the recording.
    #[arg(long, value_name = "FROM..TO", requires = "trace", value_parser = trace_window)]
    pub trace_window: Option<TraceWindow>,
    /// Draw below the table how many tasks each LLC had over time, in each scheduler's first run. With one machine and
    /// one workload; a real kernel is traced for it.
    #[arg(long)]
    pub picture: bool,
    /// Write a report with charts: one file that any browser opens, offline. With one machine and one workload; a real
    /// kernel is traced for it.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Continue an interrupted comparison. FILE is the JSON that it printed. The runs in FILE are not repeated.
    #[arg(long, value_name = "FILE")]
    pub resume: Option<PathBuf>,
    /// Number of runs at the same time (default: one per core). The output does not depend on it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
    /// Let time in the guest count instructions. This is slow, but repeated runs are identical.
    #[arg(long, help_heading = IN_GUESTS)]
    pub exact: bool,
    /// The pieces that the guest is made of.
    #[command(flatten, next_help_heading = IN_GUESTS)]
    pub pieces: PieceArgs,
    /// Memory of the guest in MiB (default: 2048).
    #[arg(long, value_name = "MIB", help_heading = IN_GUESTS,
          value_parser = clap::value_parser!(u32).range(512..=1_048_576))]
    pub memory: Option<u32>,
    /// Real time after which roost ends a guest whose run is still going on (default: 10min).
    #[arg(long, value_parser = positive_duration, help_heading = IN_GUESTS)]
    pub timeout: Option<Duration>,
}

impl CompareArgs {
    /// The first of the options for guests that was given.
    pub fn given_for_guests(&self) -> Option<&'static str> {
        let Self { exact, pieces: PieceArgs { kernel, qemu, root }, memory, timeout, .. } = self;
        let given = [
            ("--exact", *exact),
            ("--kernel", kernel.is_some()),
            ("--qemu", qemu.is_some()),
            ("--root", root.is_some()),
            ("--memory", memory.is_some()),
            ("--timeout", timeout.is_some()),
        ];
        given.into_iter().find_map(|(option, given)| given.then_some(option))
    }

    /// The workloads that were named. Empty only if a list was asked for instead.
    pub fn workloads(&self) -> &[String] {
        &self.workload
    }
}

/// The heading in `--help` of the options that apply to guests only.
const IN_GUESTS: &str = "Options of --on vm";

/// The format of `roost compare`'s output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Mean, deviation and change, for people.
    Table,
    /// The layout of mmtests' compare-kernels.
    Mmtests,
    /// One row per metric, scheduler and seed, with all digits.
    Csv,
    /// One JSON object (docs/compare.schema.json).
    Json,
}

const SWEEP_EXAMPLES: &str = "\
Examples:
  roost sweep plan.toml                            makes the plan's runs, writes plan.parquet
  roost sweep plan.toml --output results.parquet --jobs 2
  roost sweep report plan.parquet                  writes plan.html: what changes and wins where

A plan (docs/use/sweep.md) with 2 machines x 3 workloads x 2 schedulers x 20 seeds:
  machines = [\"zen3-2s\", \"zen4-2s\"]
  workloads = [\"hackbench:groups=1,4\", \"schbench\"]
  schedulers = [\"base=fair@7.2\", \"mine=fair@7.2+no-sis-util\"]
  seeds = 20

The cheapest runs are made first. A line is printed when all runs of a machine, workload and scheduler have ended.
Finished runs are kept in plan.parquet.journal: after Ctrl-C, a crash or a full disk, give the same command again.";

/// Arguments of `roost sweep`.
#[derive(Debug, Args)]
#[command(after_help = SWEEP_EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct SweepArgs {
    /// What to do instead of running a plan.
    #[command(subcommand)]
    pub command: Option<SweepCommand>,
    /// The plan, a TOML file.
    #[arg(required = true)]
    pub plan: Option<PathBuf>,
    /// The Parquet file to write (default: the plan's name, in the folder of the plan).
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Number of runs at the same time (default: one per core). The output does not depend on it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
}

/// The commands of `roost sweep`.
#[derive(Debug, Subcommand)]
pub enum SweepCommand {
    /// Write a page with charts of a result: one file, which any browser opens without a network.
    Report {
        /// The Parquet file that `roost sweep PLAN` wrote.
        file: PathBuf,
        /// The page to write (default: the result's name, in its folder).
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
    },
}

const SCX_EXAMPLES: &str = "\
Examples:
  roost scx scx_simple.bpf.o                       its hooks, maps, kfuncs, helpers and settings; what the kernel lacks
  roost scx mine.bpf.o --btf /sys/kernel/btf/vmlinux --format json
  roost scx './scx_cosmos -s 1000' --machine zen4-2s
                                                   what this program loads on that machine, with its settings

`clang --target=bpf -g -O2 -c` writes such an object. Nothing is loaded into a kernel.";

/// Arguments of `roost scx`.
#[derive(Debug, Args)]
#[command(after_help = SCX_EXAMPLES)]
pub struct ScxArgs {
    /// The BPF object of a sched_ext scheduler, `roost` for the built-in one; or a scheduler's own program, with
    /// arguments. The program is started until it attaches its scheduler, with no rights but to read.
    #[arg(value_name = "FILE.bpf.o|PROGRAM")]
    pub file: String,
    /// The simulated machine that the program is started on (default: zen3-2s).
    #[arg(long)]
    pub machine: Option<String>,
    /// Types of a kernel other than the built-in one: its /sys/kernel/btf/vmlinux, or a vmlinux with BTF.
    #[arg(long, value_name = "FILE")]
    pub btf: Option<PathBuf>,
    /// The format of the output.
    #[arg(long, value_enum, default_value_t = ScxFormat::Text)]
    pub format: ScxFormat,
}

/// The format of `roost scx`'s output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ScxFormat {
    /// For people.
    Text,
    /// One JSON object.
    Json,
}

const VALIDATE_EXAMPLES: &str = "\
Examples:
  roost validate                                   the whole suite; two hours on two idle CPUs
  roost validate --machine 2n2l4c --scenario hogs --details
  roost validate --scheduler roost                 the same sched_ext program on both sides, with its own counters
  roost validate --save observed.json              saves what the real kernel did
  roost validate --from observed.json --details    compares that with the model again, without guests
  roost validate --from observed.json --html agreement.html
                                                   a page with charts: simulated beside real
  roost validate --workloads                       benchmarks beside their programs; ten minutes on two idle CPUs
  roost validate --workloads tbench hackbench:groups=1,loops=250 --repeat 3

Exits with status 1 if a bar is missed, or a program. Tolerances and bars: docs/validation.md.";

/// Arguments of `roost validate`.
#[derive(Debug, Args)]
#[command(after_help = VALIDATE_EXAMPLES)]
pub struct ValidateArgs {
    /// Compare benchmarks with the programs that they stand for, by what they count for each operation: wakeups,
    /// switches, sleeps, preemptions and migrations. Without names, all that have a program.
    #[arg(long, value_name = "WORKLOAD", num_args = 0.., conflicts_with_all = ["scenario", "details", "html"])]
    pub workloads: Option<Vec<String>>,
    /// Machines of 16 CPUs; may be given several times (default: 2n2l4c, 1s2n4l2c and 2n2l2c2t). With --workloads, one
    /// machine of any shape (default: 2 CPUs).
    #[arg(long, value_name = "MACHINE")]
    pub machine: Vec<String>,
    /// Scenarios (validation/NAME.json); may be given several times (default: all).
    #[arg(long, value_name = "NAME")]
    pub scenario: Vec<String>,
    /// The scheduler on both sides: fair@VERSION, or roost (`make live` builds its loader), with settings after +, or
    /// the program of a sched_ext scheduler.
    #[arg(long, value_name = "SCHEDULER", default_value = crate::validate::DEFAULT_SCHEDULER)]
    pub scheduler: String,
    /// Runs of each scenario or program on the real kernel (default: 10 of a scenario, 5 of a program).
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: Option<u32>,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Show every quantity.
    #[arg(long)]
    pub details: bool,
    /// The format of the output.
    #[arg(long, value_enum, default_value_t = ValidateFormat::Table)]
    pub format: ValidateFormat,
    /// Save the observations of the real kernel to this file.
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    pub save: Option<PathBuf>,
    /// Read the observations of the real kernel from this file, which --save wrote, instead of booting guests.
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Write a page with charts too: one file that any browser opens, offline.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// The pieces that the guest is made of.
    #[command(flatten)]
    pub pieces: PieceArgs,
}

const REPRODUCE_EXAMPLES: &str = "\
Examples:
  roost reproduce --list                           the studies, and how long each takes
  roost reproduce stream iperf3                    these two; the page keeps the other studies' results
  roost reproduce --quick                          a tenth of the rows, always the same
  roost reproduce --docs /tmp/docs --format json   all studies, written to another folder
  roost reproduce --from docs/results.json --html results.html
                                                   a page with charts of an earlier run; runs nothing

Run it in a clone of the repository. Finished runs are kept in $ROOST_CACHE/reproduce (default:
~/.cache/roost/reproduce) until the program changes: after Ctrl-C, give the same command again.";

/// Arguments of `roost reproduce`.
#[derive(Debug, Args)]
#[command(after_help = REPRODUCE_EXAMPLES)]
pub struct ReproduceArgs {
    /// Studies, as `--list` names them (default: all).
    #[arg(value_name = "STUDY")]
    pub studies: Vec<String>,
    /// List the studies, their rows and how long their runs take. Nothing is run.
    #[arg(long, conflicts_with = "quick")]
    pub list: bool,
    /// Run a fixed tenth of the rows, chosen by a hash of their names.
    #[arg(long)]
    pub quick: bool,
    /// The folder of published tables and recipes.
    #[arg(long, value_name = "DIR", default_value = "published")]
    pub published: PathBuf,
    /// The folder that results.md and results.json are written to.
    #[arg(long, value_name = "DIR", default_value = "docs")]
    pub docs: PathBuf,
    /// Read the results from this file (results.json) instead of running anything. Only --html writes a file then.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["list", "quick", "jobs"])]
    pub from: Option<PathBuf>,
    /// Write a page with charts too: one file that any browser opens, offline.
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    pub html: Option<PathBuf>,
    /// The format of the output.
    #[arg(long, value_enum, default_value_t = ReproduceFormat::Markdown)]
    pub format: ReproduceFormat,
    /// Number of runs at the same time (default: one per core). The output does not depend on it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
}

/// The format of `roost reproduce`'s output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReproduceFormat {
    /// The text of results.md, with only the studies that were run.
    Markdown,
    /// The text of results.json.
    Json,
}

/// The format of `roost validate`'s output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ValidateFormat {
    /// For people.
    Table,
    /// One row per quantity.
    Csv,
    /// One JSON object.
    Json,
    /// The tables of docs/validation-results.md.
    Markdown,
}

/// Prints the help or version that was asked for, or says in one line what is wrong with the arguments.
pub fn help_or_error(error: &clap::Error) -> Result<(), Error> {
    let rendered = error.render();
    match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let colours = std::io::stdout().is_terminal();
            let text = if colours { rendered.ansi().to_string() } else { rendered.to_string() };
            print(&text)
        }
        _ => Err(Error::Usage(in_one_line(error))),
    }
}

/// Joins clap's paragraphs into one line, leaves out the usage and the advice to write an unknown option as a value,
/// and names the command whose help says more.
fn in_one_line(error: &clap::Error) -> String {
    const LEFT_OUT: [&str; 3] = ["Usage:", "For more information", "tip: to pass '"];
    let rendered = error.render().to_string();
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut line = rendered
        .trim_start_matches("error: ")
        .split("\n\n")
        .map(words)
        .filter(|part| !LEFT_OUT.iter().any(|start| part.starts_with(start)))
        .collect::<Vec<_>>()
        .join("; ");
    let cli = Cli::command();
    let mut command = &cli;
    let mut names = "roost".to_owned();
    for given in std::env::args_os().skip(1) {
        let Some(inner) = command.find_subcommand(given) else { break };
        command = inner;
        names = format!("{names} {}", inner.get_name());
    }
    if let (ErrorKind::UnknownArgument, Some(ContextValue::String(option))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
    {
        line += &format_hint(command, option);
    }
    line += policy_hint();
    line += &format!("; see `{names} --help`");
    line
}

/// A hint for users who write a format as an option of its own (`--json`), as other tools allow. Empty if `command` has
/// no formats, or if no command of roost has a format of this name.
fn format_hint(command: &clap::Command, option: &str) -> String {
    let own = formats(command);
    let wanted = option.trim_start_matches('-').to_lowercase();
    let is_known = |command| formats(command).contains(&wanted);
    if own.contains(&wanted) {
        return format!("; write --format {wanted}");
    }
    match !own.is_empty() && Cli::command().get_subcommands().any(is_known) {
        true => format!("; --format takes {}", own.join(", ")),
        false => String::new(),
    }
}

/// The values of a command's option `--format`.
fn formats(command: &clap::Command) -> Vec<String> {
    let format = command.get_arguments().find(|argument| argument.get_long() == Some("format"));
    let values = format.map(clap::Arg::get_possible_values).unwrap_or_default();
    values.iter().map(|value| value.get_name().to_owned()).collect()
}

/// For those who look for rules of their own under that word.
fn policy_hint() -> &'static str {
    let is_rule = |given: String| ["rule", "rules"].contains(&given.as_str());
    match std::env::args().nth(1).is_some_and(is_rule) {
        true => "; rules of your own: `roost policy`",
        false => "",
    }
}

fn positive_duration(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text)
        .map_err(|error| format!("{error}; write for example 500ms or 20s"))?;
    if duration.is_zero() {
        return Err("a run of 0 s measures nothing; write for example 500ms or 20s".into());
    }
    if duration > Duration::from_secs(86_400) {
        return Err("at most one day is simulated; write for example 500ms or 20s".into());
    }
    Ok(duration)
}

/// Parses the argument of `--trace-window`.
fn trace_window(text: &str) -> Result<TraceWindow, String> {
    let (from, to) = text.split_once("..").ok_or("write FROM..TO, for example 200ms..250ms")?;
    let time = |text: &str| match text.trim() {
        "0" => Ok(Time(0)),
        text => humantime::parse_duration(text)
            .map(|time| Time(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
            .map_err(|error| format!("{text}: {error}; write for example 200ms..250ms")),
    };
    let window = TraceWindow { from: time(from)?, to: time(to)? };
    match window.from < window.to {
        true => Ok(window),
        false => Err("the window ends before it begins; write the earlier time first".to_owned()),
    }
}

/// Parses the interval of `roost top`, which becomes `scx_roost --top SECONDS`.
fn interval(text: &str) -> Result<Duration, String> {
    let wrong = || "give 10ms to 1day, as 500ms or 2s".to_owned();
    let duration = humantime::parse_duration(text).map_err(|_| wrong())?;
    let fits = roost_settings::SECONDS.contains(&duration.as_secs_f64());
    fits.then_some(duration).ok_or_else(wrong)
}

fn compare_long_help() -> String {
    let mut text = format!("{COMPARE_EXAMPLES}\n\nBenchmarks:\n");
    for benchmark in roost_workload::benchmarks() {
        text += &format!("  {:<20} {}\n", benchmark.name, benchmark.summary);
        for parameter in benchmark.parameters {
            let given = format!("{}={}", parameter.name, parameter.default);
            text += &format!("    {given:<20} {}\n", parameter.meaning);
        }
    }
    text += "\nBenchmarks as rt-app files, which run on real kernels too; the parameters are the same\n\
             (rt-app:schbench:workers=4):\n";
    for (name, about) in roost_workload::benchmark::rt_app::forms() {
        text += &format!("  {name:<22} {about}\n");
    }
    text += "\nBenchmarks for which stress-ng stands on real kernels:\n";
    for (name, about) in roost_workload::benchmark::stress_ng::forms() {
        text += &format!("  {name:<22} {about}\n");
    }
    text += "\nSchedulers: fair@VERSION, with VERSION one of ";
    text += &roost_fair::versions().join(", ");
    text += "\nSwitches, as +NAME or +no-NAME:\n";
    for (name, about) in roost_fair::switches() {
        text += &format!("  {name:<22} {about}\n");
    }
    text += "\nNumbers, as +NAME=N (--list-schedulers shows ranges, defaults and the kernel's files):\n";
    for number in roost_fair::numbers() {
        let name = format!("{}=N", number.name);
        text += &format!("  {name:<28} {}, {}\n", number.about, number.unit);
    }
    text += "\nroost, or with --on vm also roost@VERSION on the kernel VERSION, takes +NAME, +no-NAME, +NAME=N or\n\
             +config=FILE with the settings of `roost run`:\n";
    for setting in roost_settings::all() {
        text += &format!("  {:<22} {}\n", setting.name, setting.meaning);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documented::{commands, documents, root};

    /// A command in a sentence may lack arguments. Pages of docs/notes show commands of older programs.
    #[test]
    fn commands_of_the_documentation_are_understood() {
        let (mut wrong, mut found) = (Vec::new(), 0);
        let notes = root().join("docs/notes");
        for page in documents().iter().filter(|page| !page.starts_with(&notes)) {
            for command in commands(page) {
                found += 1;
                assert_ne!(command.not_run.as_deref(), Some(""), "{}: say why", command.place);
                let Err(error) = Cli::try_parse_from(&command.words) else { continue };
                let incomplete = matches!(
                    error.kind(),
                    ErrorKind::MissingRequiredArgument
                        | ErrorKind::DisplayHelp
                        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                );
                if command.whole || !incomplete {
                    wrong.push(format!("{}: {}: {error}", command.place, command.words.join(" ")));
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert!(found > 60, "{found} commands");
    }
}
