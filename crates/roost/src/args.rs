//! Arguments of the command line.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
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
  roost machine                    what this machine looks like to a scheduler
  roost compare --machine zen3-2s --workload coremark:threads=16 fair@5.16 fair@5.16+numa-imbalance
                                   what a published patch does on a 2-socket EPYC

`roost COMMAND --help` shows more of each command.";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show a machine: hierarchy, distances, scheduling domains.
    Machine(MachineArgs),
    /// Run a workload under several schedulers and compare what they do.
    Compare(CompareArgs),
    /// Run machines x workloads x schedulers x numbers x seeds from a plan, into one Parquet file.
    Sweep(SweepArgs),
    /// Begin a rule of your own: what can be replaced, and a file to start from.
    Policy(PolicyArgs),
    /// Run a stock kernel on an emulated machine.
    Vm(VmArgs),
    /// Compare the simulation with the real kernel, counter by counter.
    Validate(ValidateArgs),
    /// Show what a sched_ext scheduler's object has and what it needs of the kernel.
    Scx(ScxArgs),
    /// Compare published figures with simulated ones, and write docs/results.md.
    Reproduce(ReproduceArgs),
    /// Schedule this machine with the live scheduler until Ctrl-C (needs root).
    Run(RunArgs),
    /// Show how busy each LLC of this machine is, live; or what the live scheduler counts.
    Top(TopArgs),
    /// Print completions for a shell: `source <(roost completions bash)`.
    Completions(CompletionsArgs),
    /// Write the manual pages, completions and a commented settings file, as packages have them.
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
    /// Show what the live scheduler counts, instead of how busy LLCs are.
    #[arg(long)]
    pub counters: bool,
    /// How often to draw anew.
    #[arg(value_parser = interval, default_value = "1s")]
    pub interval: Duration,
}

const MACHINE_EXAMPLES: &str = "\
Examples:
  roost machine                                    this machine
  roost machine zen3-2s --kernel 6.15 --cpu 3      the scheduling domains of CPU 3 in Linux 6.15
  roost machine server.xml                         hwloc XML (`lstopo server.xml` writes it)
  roost machine \"node:2 l3:8 core:8 pu:2\"          a made-up one: 2 nodes of 8 LLCs of 8 SMT-2 cores
  roost machine --sysfs captured/                  a copied /sys/devices/system
  roost machine sys.tgz                            an archive, made on a server with:
      cat /proc/cpuinfo >cpuinfo; tar czf sys.tgz cpuinfo /sys/devices/system/cpu /sys/devices/system/node
  roost machine cpus.txt                           what `lscpu -p` or `lscpu -J -e` printed; `numactl -H` may follow
  roost machine 2n2l4c --on vm                     what a real kernel makes of it, emulated";

/// Arguments of `roost machine`.
#[derive(Debug, Args)]
#[command(after_help = MACHINE_EXAMPLES)]
pub struct MachineArgs {
    /// A preset, hwloc XML, a copied /sys tree or an archive of one, what lscpu printed, or a synthetic string; this
    /// machine if absent.
    pub machine: Option<String>,
    /// Read a captured /sys tree, or an archive of one.
    #[arg(long, value_name = "DIR", conflicts_with = "machine")]
    pub sysfs: Option<PathBuf>,
    /// List the presets.
    #[arg(long, conflicts_with_all = ["machine", "sysfs", "kernel", "cpu", "figures"])]
    pub list: bool,
    /// Show the scheduling domains that a kernel builds: a version that `roost compare` lists, or with
    /// switches as there, e.g. 5.16+numa-imbalance.
    #[arg(long, value_name = "VERSION")]
    pub kernel: Option<String>,
    /// The CPU whose domains are shown with --kernel (default: the lowest).
    #[arg(long, value_name = "N")]
    pub cpu: Option<u32>,
    /// Show latencies, costs and capacities with their sources.
    #[arg(long)]
    pub figures: bool,
    /// Write the machine as the /sys tree that Linux would show of it: DIR, which is made, stands for /sys.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["list", "kernel", "cpu", "figures", "on"])]
    pub as_sysfs: Option<PathBuf>,
    /// How to print.
    #[arg(long, value_enum, default_value_t = MachineFormat::Text)]
    pub format: MachineFormat,
    /// Boot a guest of this machine, and show what its kernel sees beside what the model predicts.
    #[arg(long, value_enum, value_name = "WHERE",
          conflicts_with_all = ["list", "sysfs", "figures"])]
    pub on: Option<Place>,
}

/// Where else than in the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Place {
    /// A stock kernel on an emulated machine.
    Vm,
}

/// Where schedulers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum On {
    /// On a simulated machine.
    Sim,
    /// Under a stock kernel, on an emulated machine (`roost vm prepare` first).
    Vm,
    /// Here, as root.
    Host,
}

/// How a simulated machine is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum StartArg {
    /// Up for a while, and idle.
    #[default]
    Running,
    /// Just booted.
    Boot,
}

impl StartArg {
    /// As outputs have it.
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
  roost policy new sis-util                        my_rule.h: those of sis-util, to be changed
  roost policy new roost_nr_idle_scan wide.h       one function, in a file of that name
  roost compare --workload hackbench fair@7.2 mine=fair@7.2+policy=my_rule.h
                                   before and after in one table";

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
    /// List the functions of the policy by mechanism.
    List,
    /// Write a file with functions to change; never over a file that is there.
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
  roost vm prepare --kernel bzImage                keep a kernel of your own: later guests boot it
  roost vm shell --machine 2n2l4c                  a shell in a guest of 2 nodes x 2 LLCs x 4 CPUs
  roost vm run --machine 2n2l4c --kernel 7.2 -- hackbench -g 2 -l 200
  roost vm run --exact -- hackbench -g 1 -l 10     time counts instructions: repeats are identical

Everything is kept in one folder that can be moved and shared: $ROOST_CACHE, else ~/.cache/roost.";

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
    /// Fetch and build what guests are made of. Pieces that are there already, or given by hand, are kept.
    Prepare(PieceArgs),
    /// Run a command in a guest; its output and exit status are the command's.
    Run(VmRunArgs),
    /// Open a shell in a guest; `exit` or Ctrl-] ends it.
    Shell(GuestArgs),
}

/// What guests are made of.
#[derive(Debug, Args)]
pub struct PieceArgs {
    /// A version, as 7.2 or 7.2.13, or a kernel image.
    #[arg(long, value_name = "VERSION|FILE")]
    pub kernel: Option<String>,
    /// A QEMU of your own (qemu-system-x86_64, 10 or newer).
    #[arg(long, value_name = "FILE")]
    pub qemu: Option<PathBuf>,
    /// A root of your own: an ext4 image with bash, coreutils, mount, util-linux, procps, tar.
    #[arg(long, value_name = "FILE")]
    pub root: Option<PathBuf>,
}

/// A guest.
#[derive(Debug, Args)]
pub struct GuestArgs {
    /// A machine of up to 32 CPUs: a preset, an hwloc XML file, or a synthetic string.
    #[arg(long, default_value = "2n2l4c")]
    pub machine: String,
    /// What it is made of.
    #[command(flatten)]
    pub pieces: PieceArgs,
    /// Memory in MiB, dealt out to the nodes evenly.
    #[arg(long, value_name = "MIB", default_value_t = 2048,
          value_parser = clap::value_parser!(u32).range(512..=1_048_576))]
    pub memory: u32,
    /// Time within which the guest has to be up.
    #[arg(long, value_parser = positive_duration, default_value = "5min")]
    pub boot_timeout: Duration,
}

/// Arguments of `roost vm run`.
#[derive(Debug, Args)]
pub struct VmRunArgs {
    /// The guest.
    #[command(flatten)]
    pub guest: GuestArgs,
    /// Count instructions as time, one CPU after the other. That is slow, but repeats are identical.
    #[arg(long)]
    pub exact: bool,
    /// Time after which roost ends a guest whose command has not ended.
    #[arg(long, value_parser = positive_duration, default_value = "10min")]
    pub timeout: Duration,
    /// The command with its arguments, after `--`.
    #[arg(required = true, last = true)]
    pub command: Vec<String>,
}

/// How `roost machine` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MachineFormat {
    /// A drawing for people.
    Text,
    /// One JSON object.
    Json,
    /// A row a CPU.
    Csv,
}

const COMPARE_EXAMPLES: &str = "\
Examples:
  roost compare --machine zen3-2s --workload hackbench:groups=8 fair@5.19 fair@5.19+sis-util
                                   what one mechanism does on a 2-socket EPYC, simulated
  roost compare --machine server.xml --workload load.json --repeat 10 --seed 7 --format json \\
      fair@5.16 fair@5.16+numa-imbalance fair@7.2
                                   three kernels on a machine of yours (`lstopo server.xml`)
  roost compare --machine zen3-2s --workload stream:threads=16 --picture --html report.html \\
      fair@5.16 fair@5.16+numa-imbalance
                                   where the tasks are over time, below the table, and a page with charts
  roost compare --machine zen3-2s --machine zen4-2s --workload hackbench:groups=1,4,16 \\
      base=fair@7.2 no-search=fair@7.2+no-sis-util
                                   one table of two machines and three loads, with labels
  roost compare --workload hackbench:groups=4 --metric Time fair@7.2
                                   one number, for scripts; ask again for another scheduler
  roost compare --machine hygon-vm --workload iperf3:noise=4 --duration 1s \\
      --trace trace.pftrace --trace-window 500ms..600ms fair@5.16 fair@6.15
                                   two kernels to look at: trace-fair@5.16.pftrace, trace-fair@6.15.pftrace
  roost compare --on vm --machine 1s2n4l2c --workload load.json \\
      fair@7.2 fair@7.2+no-sis-util scx_cosmos
                                   a real kernel on an emulated machine; `roost vm prepare` first
  roost compare --on vm --workload hackbench:groups=2 fair@7.2 roost roost+no-sis-util+slice-us=5000
                                   the live scheduler beside it, with a switch and a slice
  roost compare --on vm --exact --repeat 1 --workload hackbench:groups=1,loops=20 \\
      fair@7.2 ./scx_mine
                                   time counts instructions: what the scheduler's code costs
  sudo roost compare --on host --workload hackbench:groups=4 fair fair+no-sis-util roost
                                   the kernel that runs here; what is changed is restored

The first scheduler is the baseline. A change is marked with * if the 95% confidence intervals of both
means are disjoint; with one repeat nothing can be marked. Ctrl-C prints the repeats that are complete,
and marks them as partial. If it printed JSON (--format json), --resume goes on from that.";

/// Arguments of `roost compare`.
#[derive(Debug, Args)]
#[command(after_help = COMPARE_EXAMPLES, after_long_help = compare_long_help())]
pub struct CompareArgs {
    /// Ask a simulated machine, a real kernel on an emulated machine, or the kernel that runs here.
    #[arg(long, value_enum, value_name = "WHERE", default_value_t = On::Sim)]
    pub on: On,
    /// A preset (`roost machine --list`), hwloc XML, a copied /sys tree or an archive of one, what lscpu
    /// printed, or a synthetic string; `roost machine --help` says how to get them. May be given several
    /// times (default: zen3-2s; with --on vm: 2n2l4c).
    #[arg(long)]
    pub machine: Vec<String>,
    /// A benchmark with parameters (`--help` lists them), or an rt-app JSON file. A parameter may be a list,
    /// groups=1,4,16, which makes a workload of each value. May be given several times.
    #[arg(long, required_unless_present_any = ["list_workloads", "list_schedulers"])]
    workload: Vec<String>,
    /// Schedulers; LABEL=SCHEDULER labels a row. fair@VERSION takes +SWITCH, +no-SWITCH and +NAME=N (`--help` lists
    /// them), +config=FILE with settings as `roost run` takes them, and +policy=FILE with a rule of your own
    /// (`roost policy --help`). roost is the scheduler that `roost run` loads, with its settings as in
    /// roost+no-cling+slice-us=1000. scx:FILE.bpf.o is a sched_ext program; +NAME=VALUE sets a variable of it.
    /// With --on vm or host, switches are the kernel's own, and a program is a sched_ext scheduler.
    #[arg(required_unless_present_any = ["list_workloads", "list_schedulers"], value_name = "SCHEDULER")]
    pub schedulers: Vec<String>,
    /// List the benchmarks and their parameters (--format json and csv too).
    #[arg(long, conflicts_with_all = ["list_schedulers", "workload", "schedulers"])]
    pub list_workloads: bool,
    /// List versions, switches and numbers (--format json and csv too).
    #[arg(long, conflicts_with_all = ["workload", "schedulers"])]
    pub list_schedulers: bool,
    /// Runs of each scheduler, with different seeds.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub repeat: u32,
    /// The first seed. A seed decides all that would differ between two real runs.
    #[arg(long, default_value_t = 1, allow_negative_numbers = true)]
    pub seed: u64,
    /// Time at which a workload without an end of its own stops, e.g. 500ms, 20s (default: the
    /// workload's own; real programs take whole seconds).
    #[arg(long, value_parser = positive_duration)]
    pub duration: Option<Duration>,
    /// The simulated machine before the run: up for an hour and idle, or just booted, as a guest is.
    #[arg(long, value_enum, value_name = "HOW", default_value_t = StartArg::Running)]
    pub start: StartArg,
    /// Leave out the threads of the kernel that run beside the workload on a simulated machine.
    #[arg(long)]
    pub quiet: bool,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Print all counters too (JSON always has them).
    #[arg(long)]
    pub counters: bool,
    /// Print one number and nothing else: the metric or counter of this name, as tables have it. It is the mean
    /// over the runs of the last scheduler, with one machine and workload.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["format", "counters"])]
    pub metric: Option<String>,
    /// Write a Perfetto trace of each scheduler's first run to FILE (ui.perfetto.dev opens it). Several schedulers
    /// have a file each, with the scheduler's name before FILE's ending.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Trace only this part of the runs, e.g. 200ms..250ms of simulated time (on a real kernel: since the
    /// recording began).
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
    /// Go on with an interrupted comparison. FILE is the JSON that it printed; the runs in it are not made again.
    #[arg(long, value_name = "FILE")]
    pub resume: Option<PathBuf>,
    /// Runs at the same time (default: one a core); the output does not depend on it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
    /// Count instructions as time: slow, but repeats are identical.
    #[arg(long, help_heading = IN_GUESTS)]
    pub exact: bool,
    /// What the guest is made of.
    #[command(flatten, next_help_heading = IN_GUESTS)]
    pub pieces: PieceArgs,
    /// Its memory in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 2048, help_heading = IN_GUESTS,
          value_parser = clap::value_parser!(u32).range(512..=1_048_576))]
    pub memory: u32,
    /// Time on the host after which roost ends a guest whose run has not ended.
    #[arg(long, value_parser = positive_duration, default_value = "10min", help_heading = IN_GUESTS)]
    pub timeout: Duration,
}

impl CompareArgs {
    /// The workloads as given; none only where a list is asked for instead.
    pub fn workloads(&self) -> &[String] {
        &self.workload
    }
}

/// Under which options stand that only guests have.
const IN_GUESTS: &str = "Options of --on vm";

/// How `roost compare` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Mean, deviation and change, for people.
    Table,
    /// The layout of mmtests' compare-kernels.
    Mmtests,
    /// A row a metric, scheduler and seed, with all figures written in full.
    Csv,
    /// One JSON object (docs/compare.schema.json).
    Json,
}

const SWEEP_EXAMPLES: &str = "\
Examples:
  roost sweep plan.toml                            its runs, into plan.parquet
  roost sweep plan.toml --output results.parquet --jobs 2
  roost sweep report plan.parquet                  plan.html: what changes and wins where

A plan (docs/use/sweep.md) with 2 machines x 3 workloads x 2 schedulers x 20 seeds:
  machines = [\"zen3-2s\", \"zen4-2s\"]
  workloads = [\"hackbench:groups=1,4\", \"schbench\"]
  schedulers = [\"base=fair@7.2\", \"mine=fair@7.2+no-sis-util\"]
  seeds = 20

The cheapest runs are made first; a line is printed when all of a machine, workload and scheduler have ended.
They are kept in plan.parquet.journal: after Ctrl-C, a crash or a full disk the same command goes on.";

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
    /// Runs at the same time (default: one a core); the output does not depend on it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
}

/// The commands of `roost sweep`.
#[derive(Debug, Subcommand)]
pub enum SweepCommand {
    /// Write a page with charts of a result: one file that any browser opens, offline.
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
  roost scx scx_simple.bpf.o                       hooks, maps, kfuncs, helpers, settings; what the kernel lacks
  roost scx mine.bpf.o --btf /sys/kernel/btf/vmlinux --format json

The object is what `clang --target=bpf -g -O2 -c` writes; nothing is loaded, and no kernel is needed.";

/// Arguments of `roost scx`.
#[derive(Debug, Args)]
#[command(after_help = SCX_EXAMPLES)]
pub struct ScxArgs {
    /// A BPF object that defines a sched_ext scheduler.
    #[arg(value_name = "FILE.bpf.o")]
    pub file: PathBuf,
    /// Types of another kernel than the built-in one: its /sys/kernel/btf/vmlinux, or a vmlinux with BTF.
    #[arg(long, value_name = "FILE")]
    pub btf: Option<PathBuf>,
    /// How to print.
    #[arg(long, value_enum, default_value_t = ScxFormat::Text)]
    pub format: ScxFormat,
}

/// How `roost scx` prints.
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
  roost validate --save observed.json              keeps what the kernel did ...
  roost validate --from observed.json --details    ... to set the model beside it again
  roost validate --from observed.json --html agreement.html
                                                   a page with charts: simulated beside real

Exits with status 1 if a bar is missed. Tolerances and bars: docs/validation.md.";

/// Arguments of `roost validate`.
#[derive(Debug, Args)]
#[command(after_help = VALIDATE_EXAMPLES)]
pub struct ValidateArgs {
    /// Machines of 16 CPUs; may be given several times.
    #[arg(long, value_name = "MACHINE", default_values = ["2n2l4c", "1s2n4l2c", "2n2l2c2t"])]
    pub machine: Vec<String>,
    /// Scenarios (validation/NAME.json); may be given several times (default: all).
    #[arg(long, value_name = "NAME")]
    pub scenario: Vec<String>,
    /// Runs of each scenario on the real kernel.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Show every quantity.
    #[arg(long)]
    pub details: bool,
    /// How to print.
    #[arg(long, value_enum, default_value_t = ValidateFormat::Table)]
    pub format: ValidateFormat,
    /// Keep what the real kernel did in this file.
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    pub save: Option<PathBuf>,
    /// Take what the real kernel did from this file, which --save wrote.
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Write a page with charts too: one file that any browser opens, offline.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// What the guest is made of.
    #[command(flatten)]
    pub pieces: PieceArgs,
}

const REPRODUCE_EXAMPLES: &str = "\
Examples:
  roost reproduce --list                           the studies, and how long each takes
  roost reproduce stream iperf3                    these two; what the page says of others stays
  roost reproduce --quick                          a tenth of the rows, always the same
  roost reproduce --docs /tmp/docs --format json   all, written elsewhere
  roost reproduce --from docs/results.json --html results.html
                                                   a page with charts of what was run before: runs nothing

Run it in a clone of the repository. Runs are kept ($ROOST_CACHE/reproduce, else ~/.cache/roost/reproduce) until
the program is another: after Ctrl-C the same command goes on.";

/// Arguments of `roost reproduce`.
#[derive(Debug, Args)]
#[command(after_help = REPRODUCE_EXAMPLES)]
pub struct ReproduceArgs {
    /// Studies, as `--list` names them (default: all).
    #[arg(value_name = "STUDY")]
    pub studies: Vec<String>,
    /// List the studies, their rows and how long their runs take; run nothing.
    #[arg(long, conflicts_with = "quick")]
    pub list: bool,
    /// A fixed tenth of the rows, chosen by a hash of their names.
    #[arg(long)]
    pub quick: bool,
    /// The folder of published tables and recipes.
    #[arg(long, value_name = "DIR", default_value = "published")]
    pub published: PathBuf,
    /// The folder that results.md and results.json are written to.
    #[arg(long, value_name = "DIR", default_value = "docs")]
    pub docs: PathBuf,
    /// Take the results from this file (results.json) instead of running anything; nothing but --html is written.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["list", "quick", "jobs"])]
    pub from: Option<PathBuf>,
    /// Write a page with charts too: one file that any browser opens, offline.
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    pub html: Option<PathBuf>,
    /// How to print.
    #[arg(long, value_enum, default_value_t = ReproduceFormat::Markdown)]
    pub format: ReproduceFormat,
    /// Runs at the same time (default: one a core); the output does not depend on it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
}

/// How `roost reproduce` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReproduceFormat {
    /// As results.md has it, the studies that were run only.
    Markdown,
    /// As results.json has it.
    Json,
}

/// How `roost validate` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ValidateFormat {
    /// For people.
    Table,
    /// A row a quantity.
    Csv,
    /// One JSON object.
    Json,
    /// The tables of docs/validation-results.md.
    Markdown,
}

/// Prints the help or version that the arguments ask for, or says in one line what is wrong with them.
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
        _ => Err(Error::Usage(in_one_line(&rendered.to_string()))),
    }
}

/// What clap writes in paragraphs, without the usage and with the command whose help says more.
fn in_one_line(rendered: &str) -> String {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut line = rendered
        .trim_start_matches("error: ")
        .split("\n\n")
        .filter(|part| !part.starts_with("Usage:") && !part.starts_with("For more information"))
        .map(words)
        .collect::<Vec<_>>()
        .join("; ");
    line += &format_hint();
    line += policy_hint();
    let cli = Cli::command();
    let mut command = &cli;
    let mut names = "roost".to_owned();
    for given in std::env::args_os().skip(1) {
        let Some(inner) = command.find_subcommand(given) else { break };
        command = inner;
        names = format!("{names} {}", inner.get_name());
    }
    line += &format!("; see `{names} --help`");
    line
}

/// For those who write a format as an option of its own, as other tools have it.
fn format_hint() -> String {
    const FORMATS: [&str; 5] = ["json", "csv", "table", "markdown", "mmtests"];
    let given: Vec<String> = std::env::args().skip(1).collect();
    let format = FORMATS.iter().find(|format| given.contains(&format!("--{format}")));
    format.map_or_else(String::new, |format| format!("; write --format {format}"))
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
        return Err("a run of no time measures nothing; write for example 500ms or 20s".into());
    }
    if duration > Duration::from_secs(86_400) {
        return Err("at most one day is simulated; write for example 500ms or 20s".into());
    }
    Ok(duration)
}

/// A part of a run.
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
        false => Err("it ends before it begins; write the earlier time first".to_owned()),
    }
}

/// What the live scheduler's program takes as `--top SECONDS`.
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
    text += "\nBenchmarks as rt-app files, with the same parameters (rt-app:schbench:workers=4), which run\n\
             on real kernels too:\n";
    for (name, about) in roost_workload::benchmark::rt_app::forms() {
        text += &format!("  {name:<22} {about}\n");
    }
    text += "\nSchedulers: fair@VERSION, with VERSION one of ";
    text += &roost_fair::versions().join(", ");
    text += "\nSwitches, as +NAME or +no-NAME:\n";
    for (name, about) in roost_fair::switches() {
        text += &format!("  {name:<22} {about}\n");
    }
    text += "\nNumbers, as +NAME=N (`roost compare --list-schedulers` has ranges, defaults and the kernel's files):\n";
    for number in roost_fair::numbers() {
        let name = format!("{}=N", number.name);
        text += &format!("  {name:<28} {}, {}\n", number.about, number.unit);
    }
    text += "\nWith --on vm or host: roost, or roost@VERSION on that kernel, then +NAME, +no-NAME, +NAME=N or\n\
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

    /// In a sentence, arguments may be missing. Diaries show what programs of their day had.
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
