//! The guest's programs: a Debian tree that is not a running system.
//!
//! Packages are unpacked, not installed, so no maintainer script runs. This way, neither root nor a user namespace is
//! needed, and the tree depends only on the packages. [`finish`] does those things that scripts would have done and
//! guests need.

use std::io::Seek;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use crate::apt::{Apt, Package};
use crate::cache::ORIGIN;
use crate::error::VmError;
use crate::{cpio, partition, tool};

/// The image for guests in the host's time.
pub(crate) const IMAGE: &str = "root.ext4";

/// The archive for guests with exact time.
pub(crate) const ARCHIVE: &str = "root.cpio";

/// Packages that the guest's own scripts need, and programs that users run.
const PACKAGES: [&str; 30] = [
    "base-files",
    "base-passwd",
    "bash",
    "bpftool",
    "bsdutils",
    "coreutils",
    "dash",
    "dbench",
    "findutils",
    "grep",
    "gzip",
    "hostname",
    "iperf3",
    "iproute2",
    "kmod",
    "mawk",
    "mount",
    "ncurses-base",
    "netperf",
    "numactl",
    "procps",
    "rt-app",
    "rt-tests",
    "sed",
    "stress-ng",
    "sysbench",
    "tar",
    "trace-cmd",
    "util-linux",
    "zstd",
];

/// Packages beyond those of the root that everybody boots. A root that has them too is a piece of its own, because the
/// exact lane loads all of a root into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addition {
    /// Its name, as part of a file's name.
    pub name: &'static str,
    /// The packages. Their dependencies are found by apt.
    pub packages: &'static [&'static str],
}

/// The server of MariaDB, without the scripts that run it as a service.
pub const MARIADB: Addition = Addition { name: "mariadb", packages: &["mariadb-server-core"] };

/// Dependencies of stress-ng's graphics stressors. They are 120 MiB, and nothing else needs them.
const LEFT_OUT: [&str; 3] = ["mesa-libgallium", "libllvm", "libz3-"];

/// Documentation, which is half of many packages.
const UNUSED: [&str; 6] = ["doc", "man", "locale", "info", "lintian", "bug"];

/// Programs that [`init.sh`](crate::guest) uses. A root without any of them does not boot.
const NEEDED: [&str; 20] = [
    "bash",
    "cat",
    "cp",
    "dd",
    "dmesg",
    "grep",
    "gzip",
    "mkdir",
    "mount",
    "mountpoint",
    "rm",
    "sed",
    "setsid",
    "sh",
    "sleep",
    "stat",
    "stty",
    "sync",
    "tar",
    "uname",
];

/// The packages of the root and of `addition`, with all their dependencies. The package with the links of the merged
/// `/usr` comes first, because other packages are unpacked through these links.
pub(crate) fn packages(apt: &Apt, addition: Option<Addition>) -> Result<Vec<Package>, VmError> {
    let added = addition.map_or(&[] as &[&str], |addition| addition.packages);
    let mut packages = apt.closure(&[&PACKAGES, added].concat())?;
    packages.retain(|package| !LEFT_OUT.iter().any(|prefix| package.name.starts_with(prefix)));
    packages.sort_by_key(|package| (package.name != "base-files", package.name.clone()));
    Ok(packages)
}

/// Builds the image and the archive in `piece`.
pub(crate) fn build(apt: &Apt, packages: &[Package], piece: &Path) -> Result<(), VmError> {
    // Checked before the download, so that a missing program is reported at once.
    tool::need("mke2fs", "e2fsprogs")?;
    let tree = tempfile::tempdir_in(piece).map_err(|error| VmError::file(piece, &error))?;
    apt.unpack(packages, tree.path())?;
    finish(tree.path())?;
    image(tree.path(), &piece.join(IMAGE))?;
    cpio::of_tree(tree.path(), &piece.join(ARCHIVE))?;
    crate::prepare::write_origin(piece, packages)
}

/// Copies the user's root (an ext4 image) into `piece`, and creates the archive.
pub(crate) fn keep(given: &Path, piece: &Path) -> Result<(), VmError> {
    let failed = |error: std::io::Error| VmError::file(given, &error);
    let copy = piece.join(IMAGE);
    let mut image = partition::with_table(given)?;
    let mut file = std::fs::File::create(&copy).map_err(|error| VmError::file(&copy, &error))?;
    image.rewind().map_err(failed)?;
    std::io::copy(&mut image, &mut file).map_err(failed)?;
    let tree = tempfile::tempdir_in(piece).map_err(|error| VmError::file(piece, &error))?;
    // It runs in the folder of the tree, because the words of debugfs's commands cannot be quoted. The files do not get
    // the owners that they have in the image, about which it complains. That does not matter.
    let mut command = tool::need("debugfs", "e2fsprogs")?;
    command.args(["-R", "rdump / ."]).arg(&copy).current_dir(tree.path());
    tool::output(&mut command, "reading the root's image with debugfs")?;
    let missing = missing(tree.path());
    if !missing.is_empty() {
        let missing = missing.join(", ");
        return Err(VmError::Usage(format!(
            "{}: a guest's root needs {missing}, which this one lacks; add them",
            given.display()
        )));
    }
    cpio::of_tree(tree.path(), &piece.join(ARCHIVE))?;
    let origin = piece.join(ORIGIN);
    std::fs::write(&origin, "given by hand\n").map_err(|error| VmError::file(&origin, &error))
}

/// The programs that a guest needs and that are not in `tree`. Links may point to places that exist only in the guest.
fn missing(tree: &Path) -> Vec<&'static str> {
    let folders = ["usr/bin", "bin", "usr/sbin", "sbin"].map(|folder| tree.join(folder));
    let has =
        |name: &str| folders.iter().any(|folder| folder.join(name).symlink_metadata().is_ok());
    NEEDED.iter().copied().filter(|name| !has(name)).collect()
}

/// Does what maintainer scripts would have done: users, groups, an awk. In the image, files belong to the user who
/// built it, so programs must not be setuid (`mount` would run as nobody).
fn finish(tree: &Path) -> Result<(), VmError> {
    for file in ["passwd", "group"] {
        let master = tree.join(format!("usr/share/base-passwd/{file}.master"));
        let place = tree.join("etc").join(file);
        std::fs::copy(&master, &place).map_err(|error| VmError::file(&master, &error))?;
    }
    let awk = tree.join("usr/bin/awk");
    if !awk.exists() {
        symlink("mawk", &awk).map_err(|error| VmError::file(&awk, &error))?;
    }
    without_setuid(&tree.join("usr/bin"))?;
    for name in UNUSED {
        let dir = tree.join("usr/share").join(name);
        if dir.is_dir() {
            std::fs::remove_dir_all(&dir).map_err(|error| VmError::file(&dir, &error))?;
        }
    }
    Ok(())
}

/// Removes the setuid and setgid bits of the programs in `dir`.
fn without_setuid(dir: &Path) -> Result<(), VmError> {
    let failed = |error: std::io::Error| VmError::file(dir, &error);
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let metadata = entry.metadata().map_err(failed)?;
        let mode = metadata.permissions().mode();
        if metadata.is_file() && mode & 0o6000 != 0 {
            let permissions = std::fs::Permissions::from_mode(mode & 0o777);
            std::fs::set_permissions(entry.path(), permissions).map_err(failed)?;
        }
    }
    Ok(())
}

/// An ext4 image of a tree for reading only: no journal, and no space for growth.
fn image(tree: &Path, image: &Path) -> Result<(), VmError> {
    // A quarter more than the contents, for the file system's own tables.
    let mebibytes = crate::cache::size(tree) / (1 << 20) * 5 / 4 + 32;
    let mut command = tool::need("mke2fs", "e2fsprogs")?;
    command.args(["-q", "-t", "ext4", "-m", "0", "-O", "^has_journal", "-E", "root_owner=0:0"]);
    command.arg("-d").arg(tree).arg(image).arg(format!("{mebibytes}M"));
    tool::output(&mut command, "making the root's image with mke2fs")?;
    let mut file = std::fs::OpenOptions::new().read(true).write(true).open(image);
    file.as_mut()
        .map_err(|error| VmError::file(image, error))
        .and_then(|file| partition::write(file).map_err(|error| VmError::file(image, &error)))
}
