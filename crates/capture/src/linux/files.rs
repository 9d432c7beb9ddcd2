//! Files of the made-up machine: `/sys`, and some of `/proc`.

use std::fmt::Write;
use std::io;
use std::path::{Component, Path, PathBuf};

use roost_machine::Machine;
use roost_scx::{KernelTypes, SHIPPED_VERSION};

/// The folder of the made-up files. It is removed when this is dropped.
pub struct Files {
    folder: tempfile::TempDir,
}

/// What the names of such folders begin with. The number of the process that made it follows.
const PREFIX: &str = "roost-capture-";

/// A folder of files in memory.
const IN_MEMORY: &str = "/dev/shm";

/// Removes the folders of processes that were ended before they could remove their own.
fn remove_left(among: &Path) {
    for folder in std::fs::read_dir(among).into_iter().flatten().flatten() {
        let name = folder.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        let is_gone = |process: &str| {
            process.parse::<u32>().is_ok() && !Path::new("/proc").join(process).exists()
        };
        // In a container, processes of others have other numbers. No capture takes this long.
        let age = folder.metadata().and_then(|about| about.modified()).map(|time| time.elapsed());
        let is_old = age.is_ok_and(|age| age.is_ok_and(|age| age > 6 * crate::LIMIT));
        if is_old && process.is_some_and(is_gone) {
            // If it belongs to another user, it stays.
            let _ = std::fs::remove_dir_all(folder.path());
        }
    }
}

/// Files of `/proc` that are made up.
const OF_PROC: [&str; 7] = [
    "/proc/cpuinfo",
    "/proc/stat",
    "/proc/kallsyms",
    "/proc/config.gz",
    "/proc/version",
    "/proc/mounts",
    "/proc/sys/kernel/osrelease",
];

impl Files {
    /// Writes the files of a machine.
    pub fn write(machine: &Machine) -> io::Result<Self> {
        let prefix = format!("{PREFIX}{}-", std::process::id());
        let mut builder = tempfile::Builder::new();
        let builder = builder.prefix(&prefix);
        // Thousands of small files are written faster into memory, if there is a folder for that, with room.
        let in_memory = builder.tempdir_in(IN_MEMORY);
        in_memory
            .and_then(|folder| Self::write_to(folder, machine))
            .or_else(|_| Self::write_to(builder.tempdir()?, machine))
    }

    fn write_to(folder: tempfile::TempDir, machine: &Machine) -> io::Result<Self> {
        folder.path().parent().into_iter().for_each(remove_left);
        let files = Self { folder };
        machine.write_sysfs(&files.sys()).map_err(io::Error::other)?;
        std::fs::create_dir(files.scratch())?;
        files.put("sys/kernel/btf/vmlinux", &KernelTypes::shipped_file())?;
        for (name, text) in [
            ("state", "disabled"),
            ("hotplug_seq", "0"),
            ("enable_seq", "0"),
            ("nr_rejected", "0"),
            ("switch_all", "0"),
        ] {
            files.put(&format!("sys/kernel/sched_ext/{name}"), format!("{text}\n").as_bytes())?;
        }
        files.put("proc/cpuinfo", cpuinfo(machine).as_bytes())?;
        files.put("proc/stat", stat(machine).as_bytes())?;
        files.put("proc/kallsyms", b"")?;
        // Loaders read the file with zlib, which takes text as it is.
        files.put("proc/config.gz", config(machine).as_bytes())?;
        let version = format!("Linux version {SHIPPED_VERSION} (roost) #1 SMP PREEMPT_DYNAMIC\n");
        files.put("proc/version", version.as_bytes())?;
        // Loaders ask the tracing folder, which is empty here, for tracepoints.
        files.put("proc/mounts", b"tracefs /sys/kernel/tracing tracefs rw 0 0\n")?;
        files.put("proc/sys/kernel/osrelease", format!("{SHIPPED_VERSION}\n").as_bytes())?;
        Ok(files)
    }

    fn put(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.folder.path().join(path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(path, bytes)
    }

    fn sys(&self) -> PathBuf {
        self.folder.path().join("sys")
    }

    /// The folder that the program may write to.
    pub fn scratch(&self) -> PathBuf {
        self.folder.path().join("tmp")
    }

    /// The file or folder that stands for an absolute path: made up, or written by the program before. `None` if the
    /// path is that of this machine.
    pub fn instead(&self, path: &Path) -> Option<PathBuf> {
        if is_made_up(path) {
            return Some(self.folder.path().join(below_root(path)));
        }
        let written = self.scratch().join(below_root(path));
        written.is_file().then_some(written)
    }

    /// The name in the scratch folder of a file that the program creates, wherever it means to create it. `None` if it
    /// may not.
    pub fn written<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        match path.strip_prefix(self.scratch()) {
            Ok(name) => Some(name),
            Err(_) if is_made_up(path) || path.starts_with("/proc") => None,
            Err(_) => Some(below_root(path)),
        }
    }
}

/// Whether a path is one of the made-up machine, whether or not it has such a file.
pub fn is_made_up(path: &Path) -> bool {
    path.starts_with("/sys") || OF_PROC.iter().any(|file| path == Path::new(file))
}

fn below_root(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

/// An absolute path without `.` and `..`.
pub fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            component => plain.push(component),
        }
    }
    plain
}

fn cpuinfo(machine: &Machine) -> String {
    let mut text = String::new();
    for cpu in &machine.cpus {
        let (number, package, core) = (cpu.os_index, cpu.package, cpu.core);
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "processor\t: {number}\nphysical id\t: {package}\ncore id\t\t: {core}\n\n"
        );
    }
    text
}

/// Times of the CPUs, all 0: the machine has just started.
fn stat(machine: &Machine) -> String {
    let zeros = " 0".repeat(10);
    let mut text = format!("cpu {zeros}\n");
    for cpu in &machine.cpus {
        let _ = writeln!(text, "cpu{}{zeros}", cpu.os_index);
    }
    text
}

/// What a scheduler may ask about the kernel's configuration.
fn config(machine: &Machine) -> String {
    format!(
        "CONFIG_HZ=250\nCONFIG_SCHED_CLASS_EXT=y\nCONFIG_NR_CPUS={}\n",
        machine.nr_cpus().max(8192)
    )
}
