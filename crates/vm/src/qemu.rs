//! QEMU: finding it, and its command line.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cache::Cache;
use crate::error::VmError;
use crate::partition;
use crate::shape::Shape;
use crate::tool;

/// Packages to fetch, together with their dependencies.
pub(crate) const PACKAGES: [&str; 3] = ["qemu-system-x86", "qemu-system-data", "seabios"];

/// The first version in which the topology of a cache can be chosen (`smp-cache`).
const OLDEST: u32 = 10;

/// The name of an installed QEMU.
const PROGRAM: &str = "qemu-system-x86_64";

/// The emulated CPU. AMD models lose their cache topology under TCG. Skylake-Server, and `max` with several dies, abort
/// QEMU 10.0.2.
const CPU: &str = "SapphireRapids";

/// Largest number of instructions that all CPUs together execute in one round of turns: 12,500 for each of 16 CPUs.
/// Half of that changed few of the observed values (docs/understand/guests.md).
const TURNS_OF_ALL_INSTRUCTIONS: u32 = 200_000;

/// Path of libraries and modules in an unpacked Debian tree.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// A QEMU for x86.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qemu {
    /// The program itself.
    program: PathBuf,
    /// The unpacked Debian tree that contains it. `None` for an installed QEMU.
    tree: Option<PathBuf>,
}

impl Qemu {
    /// The QEMU to use: the one that the user gives, now or to `roost vm prepare`; otherwise the one in the cache;
    /// otherwise the installed one, if it is new enough.
    pub(crate) fn find(cache: &Cache, given: Option<&Path>) -> Result<Option<Self>, VmError> {
        if let Some(program) = given {
            return Self::own(program).map(Some);
        }
        let remembered = cache.own_qemu();
        if remembered.is_symlink() {
            return Self::own(&remembered).map(Some).map_err(|error| {
                let forget = format!("delete {} to forget it", remembered.display());
                VmError::Usage(format!("the QEMU given by hand: {error}; {forget}"))
            });
        }
        let tree = cache.qemu();
        if tree.is_dir() {
            let program = tree.join("usr/bin").join(PROGRAM);
            return Ok(Some(Self { program, tree: Some(tree) }));
        }
        let system = tool::find(PROGRAM).map(|program| Self { program, tree: None });
        Ok(system.filter(|qemu| qemu.major().is_ok_and(|version| version >= OLDEST)))
    }

    /// The user's QEMU `program`, if it can be used.
    fn own(program: &Path) -> Result<Self, VmError> {
        // The link is resolved, because QEMU finds its data relative to its own place.
        let program = program.canonicalize().map_err(|error| VmError::file(program, &error))?;
        let qemu = Self { program, tree: None };
        match qemu.major()? {
            version if version >= OLDEST => Ok(qemu),
            version => Err(VmError::Usage(format!(
                "{}: QEMU {version} is too old, {OLDEST} or newer is needed",
                qemu.program.display()
            ))),
        }
    }

    /// Remembers it as the user's QEMU.
    pub(crate) fn keep(&self, cache: &Cache) -> Result<(), VmError> {
        crate::cache::link(&self.program, &cache.own_qemu())
    }

    /// A command that starts QEMU without arguments.
    fn command(&self) -> Command {
        let Some(tree) = &self.tree else { return Command::new(&self.program) };
        // The tree's own loader finds the tree's own libraries, whatever the host has.
        let libraries = tree.join(LIBRARIES);
        let mut command = Command::new(tree.join("usr/lib64/ld-linux-x86-64.so.2"));
        command.arg("--library-path").arg(&libraries).arg(&self.program);
        command.env("QEMU_MODULE_DIR", libraries.join("qemu"));
        for data in ["usr/share/qemu", "usr/share/seabios"] {
            command.arg("-L").arg(tree.join(data));
        }
        command
    }

    /// The version that QEMU prints.
    pub fn version(&self) -> Result<String, VmError> {
        let mut command = self.command();
        let purpose = format!("{} --version", self.program.display());
        let text = tool::output(command.arg("--version").stdin(Stdio::null()), &purpose)?;
        let version =
            text.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
        let version = version.filter(|_| text.starts_with("QEMU"));
        version.map(str::to_owned).ok_or_else(|| VmError::Failed {
            tool: purpose,
            reason: "it does not tell the version of a QEMU".into(),
        })
    }

    fn major(&self) -> Result<u32, VmError> {
        let version = self.version()?;
        Ok(crate::kernel::version_key(&version).first().copied().unwrap_or(0))
    }

    /// Its place, for messages.
    pub(crate) fn place(&self) -> String {
        match &self.tree {
            Some(tree) => {
                let size = crate::prepare::mebibytes(crate::cache::size(tree));
                format!("in {} ({size})", tree.display())
            }
            None => format!("is {}", self.program.display()),
        }
    }

    /// Whether KVM can run a guest here. `/dev/kvm` can exist and still fail, so this starts a machine that stops
    /// before its first instruction.
    pub(crate) fn kvm_works(&self) -> bool {
        let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm");
        if device.is_err() {
            return false;
        }
        let mut command = self.command();
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-machine", "q35"]);
        command.args(["-accel", "kvm", "-cpu", CPU, "-S", "-monitor", "stdio"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(mut child) = command.spawn() else { return false };
        if let Some(mut monitor) = child.stdin.take() {
            // A QEMU that has failed does not read. The exit status shows that.
            let _ = std::io::Write::write_all(&mut monitor, b"quit\n");
        }
        child.wait().is_ok_and(|status| status.success())
    }
}

/// How time passes in a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// CPUs run in parallel on the host's CPUs, in the host's time.
    Load,
    /// CPUs share one stream of instructions, and the number of instructions is the time. A repeat is identical to the
    /// last byte.
    Exact {
        /// An instruction takes 2 to this power, in ns.
        shift: u8,
    },
}

/// The files that a guest uses.
pub(crate) struct Files<'a> {
    pub kernel: &'a Path,
    /// The file for the console.
    pub console: &'a Path,
    pub disks: Disks<'a>,
}

/// The place of the guest's root.
pub(crate) enum Disks<'a> {
    /// Three NVMe namespaces: root, jobs, results.
    Nvme { root: &'a Path, jobs: &'a Path, results: &'a Path },
    /// An archive in memory.
    Initramfs(&'a Path),
}

/// The guest's hardware, apart from its files.
pub(crate) struct Hardware<'a> {
    pub shape: &'a Shape,
    pub memory_mib: u32,
    pub lane: Lane,
    pub kvm: bool,
}

/// Kernel arguments for all guests: a fixed start address, no waiting after a panic (QEMU then exits), and domains in
/// debugfs. Debian's kernels also test their ciphers after boot, in parallel to other programs. On a machine that needs
/// 8 ns per instruction, this takes half a minute.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 nokaslr mitigations=off tsc=reliable panic=-1 \
                                sched_verbose random.trust_cpu=on cryptomgr.notests=1";

/// The command of the first process, in the host's time. It unpacks the guest's side of roost from the second
/// namespace, so that the root's image need not contain it. The kernel scans namespaces in any order, so their names
/// say nothing. (There is no `=` within the quotes, because the kernel would take the words around it for a variable.)
const FIRST_PROCESS: &str = "rootfstype=ext4 rootwait ro devtmpfs.mount=1 init=/bin/sh -- -c \"\
    mount -t sysfs sysfs /sys; mount -t tmpfs run /run; until [ -e /run/init ]; do \
    for disk in /sys/block/nvme0n?; do read id < $disk/nsid; \
    [ $id -eq 2 ] && tar xf /dev/${disk##*/} -C /run; done; \
    [ -e /run/init ] || sleep 0.2; done; exec /run/init\"";

/// The whole command line. `arguments` are added to the kernel's arguments.
pub(crate) fn command(
    qemu: &Qemu,
    hardware: &Hardware<'_>,
    files: &Files<'_>,
    arguments: &str,
) -> Command {
    let mut command = qemu.command();
    command.args(["-name", "roost-guest", "-nodefaults", "-no-user-config", "-display", "none"]);
    command.args(["-no-reboot", "-machine"]).arg(machine(hardware.shape));
    accelerator(&mut command, hardware);
    command.args(["-smp", &hardware.shape.smp()]);
    memory(&mut command, hardware);
    command.arg("-chardev").arg(format!("file,id=console,path={}", option(files.console)));
    command.args(["-serial", "chardev:console"]);
    // The second serial line is QEMU's own standard input and output.
    command.args(["-chardev", "stdio,id=agent,signal=off", "-serial", "chardev:agent"]);
    command.arg("-kernel").arg(files.kernel);
    let boot = match &files.disks {
        Disks::Nvme { root, jobs, results } => {
            nvme(&mut command, [(root, true), (jobs, true), (results, false)]);
            // On a busy host, the guest may not see ten ticks in the time in which its kernel expects them. The kernel
            // would conclude that its timer is broken.
            format!("no_timer_check root=PARTUUID={} {FIRST_PROCESS}", partition::UUID)
        }
        Disks::Initramfs(archive) => {
            command.arg("-initrd").arg(archive);
            "norandmaps rdinit=/init".to_owned()
        }
    };
    command.arg("-append").arg(format!("{KERNEL_ARGUMENTS} {arguments} {boot}"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// The last-level cache belongs to the die. If cores share an L2, that belongs to the module.
fn machine(shape: &Shape) -> String {
    let l2 =
        if shape.has_clusters() { ",smp-cache.1.cache=l2,smp-cache.1.topology=module" } else { "" };
    format!("q35,smp-cache.0.cache=l3,smp-cache.0.topology=die{l2}")
}

fn accelerator(command: &mut Command, hardware: &Hardware<'_>) {
    match hardware.lane {
        Lane::Load => {
            let accel = if hardware.kvm { "kvm" } else { "tcg,thread=multi" };
            command.args(["-accel", accel, "-cpu", CPU]);
        }
        Lane::Exact { shift } => {
            command.args(["-accel", "tcg,thread=single", "-icount"]);
            command.arg(format!("shift={shift},sleep=off"));
            // The guest gets no random numbers and no clock from outside.
            command.arg("-cpu").arg(format!("{CPU},-rdrand,-rdseed"));
            command.args(["-seed", "42", "-rtc", "base=2026-01-01,clock=vm"]);
            short_turns(command, shift);
        }
    }
}

/// Makes turns short. CPUs take turns, each until the time to the machine's next timer, divided by the number of CPUs,
/// has passed: with ticks of 4 ms, up to 250 us for each of 16 CPUs. Meanwhile the other CPUs neither take interrupts
/// nor continue. A timer that no guest sees keeps turns short: that of a packet filter on a network without an adapter.
fn short_turns(command: &mut Command, shift: u8) {
    let interval_us = (TURNS_OF_ALL_INSTRUCTIONS / 1000) << shift;
    command.args(["-netdev", "hubport,id=turns,hubid=0", "-object"]);
    command.arg(format!("filter-buffer,id=turn,netdev=turns,interval={interval_us}"));
}

/// Memory in equal parts, one part per node.
fn memory(command: &mut Command, hardware: &Hardware<'_>) {
    let nodes = &hardware.shape.nodes;
    // In multiples of 128 MiB, the size of the kernel's sections.
    let part = (hardware.memory_mib / nodes.len().max(1) as u32).next_multiple_of(128);
    command.args(["-m", &format!("{}M", part * nodes.len() as u32)]);
    for (node, cpus) in nodes.iter().enumerate() {
        let object = format!("memory-backend-ram,id=m{node},size={part}M");
        command.args(["-object", &object, "-numa"]);
        let cpus = match cpus.is_empty() {
            true => String::new(),
            false => format!("cpus={}-{},", cpus.start, cpus.end - 1),
        };
        command.arg(format!("node,nodeid={node},{cpus}memdev=m{node}"));
    }
    for (from, row) in hardware.shape.distances.iter().enumerate() {
        for (to, distance) in row.iter().enumerate().filter(|&(to, _)| to != from) {
            command.args(["-numa", &format!("dist,src={from},dst={to},val={distance}")]);
        }
    }
}

/// A controller with three namespaces, numbered from 1.
fn nvme(command: &mut Command, files: [(&Path, bool); 3]) {
    command.args(["-device", "nvme,id=nvme,serial=roost"]);
    for (index, (file, readonly)) in files.into_iter().enumerate() {
        let readonly = if readonly { "on" } else { "off" };
        // Roost reads and writes the files while QEMU has them open: no locks, and no flushes.
        command.arg("-drive").arg(format!(
            "if=none,id=disk{index},format=raw,cache=unsafe,readonly={readonly},\
             file.driver=file,file.locking=off,file.filename={}",
            option(file)
        ));
        command.arg("-device");
        command.arg(format!("nvme-ns,drive=disk{index},bus=nvme,nsid={}", index + 1));
    }
}

/// A path within an option, in which commas are doubled.
fn option(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(machine: &str, lane: Lane) -> String {
        let shape = Shape::of(&roost_machine::resolve(machine).unwrap()).unwrap();
        let hardware = Hardware { shape: &shape, memory_mib: 1024, lane, kvm: false };
        let file = Path::new("/a,b");
        let disks = match lane {
            Lane::Load => Disks::Nvme { root: file, jobs: file, results: file },
            Lane::Exact { .. } => Disks::Initramfs(file),
        };
        let qemu = Qemu { program: "qemu".into(), tree: None };
        let files = Files { kernel: file, console: file, disks };
        let command = command(&qemu, &hardware, &files, "quiet");
        let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_machine_with_clusters_shares_its_l2_within_them() {
        let words = words("2n1l2m2c2t", Lane::Load);
        assert!(words.contains("smp-cache.1.cache=l2,smp-cache.1.topology=module"), "{words}");
        assert!(words.contains("16,sockets=2,dies=1,modules=2,cores=2,threads=2"), "{words}");
        assert!(words.contains("node,nodeid=1,cpus=8-15,memdev=m1"), "{words}");
    }

    #[test]
    fn the_exact_lane_has_nothing_from_outside() {
        let words = words("2n2l4c", Lane::Exact { shift: 3 });
        assert!(!words.contains("nvme") && words.contains("-icount shift=3,sleep=off"), "{words}");
        assert!(words.contains("netdev=turns,interval=1600"), "200,000 x 8 ns: {words}");
        assert!(words.contains("-initrd /a,b"), "{words}");
    }

    #[test]
    fn a_comma_in_a_path_is_no_option() {
        assert!(words("2n2l4c", Lane::Load).contains("file.filename=/a,,b"));
    }
}
