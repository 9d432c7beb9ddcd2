//! Fetches and builds the pieces that guests are made of.

use std::path::{Path, PathBuf};

use crate::apt::{Apt, Package};
use crate::cache::{self, Cache, ORIGIN};
use crate::error::VmError;
use crate::kernel::{self, Kernel};
use crate::qemu::Qemu;
use crate::root::{self, Addition};

/// The Debian release of QEMU and the guest's programs. They bring their own libraries, so the host's release does not
/// matter.
pub(crate) const SUITE: &str = "trixie";

/// Pieces that the user gives, which are used instead of fetched ones, and what the root must have.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// A kernel: a file, a version, or the beginning of a version.
    pub kernel: Option<String>,
    /// A QEMU (`qemu-system-x86_64`).
    pub qemu: Option<PathBuf>,
    /// An ext4 image with the guest's programs.
    pub root: Option<PathBuf>,
    /// What a root that roost builds has beyond the usual.
    pub addition: Option<Addition>,
}

/// All pieces that a guest is made of.
#[derive(Clone, Debug)]
pub struct Pieces {
    /// The kernel.
    pub kernel: Kernel,
    /// The emulator.
    pub qemu: Qemu,
    /// The guest's programs, as an ext4 image.
    pub root: PathBuf,
    /// The same as a cpio archive, for exact time. A root that the user gave has none.
    pub initramfs: Option<PathBuf>,
}

impl Pieces {
    /// The pieces that are in the cache or given by the user. If a piece is missing, the error says how to get it.
    pub fn find(cache: &Cache, given: &Given) -> Result<Self, VmError> {
        let qemu = Qemu::find(cache, given.qemu.as_deref())?;
        let qemu = qemu.ok_or_else(|| missing(cache, "QEMU", "--qemu FILE"))?;
        let kernel = match &given.kernel {
            Some(name) => Kernel::resolve(cache, name)?,
            None => default_kernel(cache)?,
        };
        let of_folder = |folder: PathBuf| {
            folder.is_dir().then(|| (folder.join(root::IMAGE), Some(folder.join(root::ARCHIVE))))
        };
        let (root, initramfs) = match &given.root {
            Some(file) => (existing(file)?, None),
            None => of_folder(cache.own_root())
                .or_else(|| of_folder(cache.root(given.addition)))
                .ok_or_else(|| missing(cache, "root for guests", "--root FILE"))?,
        };
        Ok(Self { kernel, qemu, root, initramfs })
    }

    /// Fetches and builds missing pieces, and copies those that the user gives. Calls `say` with what is fetched, its
    /// size and its origin. Pieces that the user gives are the default from then on; a kernel, until another version is
    /// asked for.
    pub fn prepare(
        cache: &Cache,
        given: &Given,
        say: &mut dyn FnMut(String),
    ) -> Result<Self, VmError> {
        let _lock = cache.lock()?;
        cache.sweep();
        prepare_kernel(cache, given, say)?;
        // Both use one index, which is fetched only if something is missing.
        let mut stable = None;
        prepare_qemu(cache, given, &mut stable, say)?;
        prepare_root(cache, given, &mut stable, say)?;
        let version = given.kernel.clone().filter(|name| !names_file(name));
        let addition = given.addition;
        Self::find(cache, &Given { kernel: version, addition, ..Given::default() })
    }

    /// Builds the root with the addition that `given` asks for, if there is none yet. All other pieces must exist. A
    /// root that the user gave stays as it is.
    pub fn add(cache: &Cache, given: &Given, say: &mut dyn FnMut(String)) -> Result<(), VmError> {
        let is_there = || cache.own_root().is_dir() || cache.root(given.addition).is_dir();
        if given.addition.is_none() || given.root.is_some() || is_there() {
            return Ok(());
        }
        let _lock = cache.lock()?;
        cache.sweep();
        prepare_root(cache, given, &mut None, say)
    }
}

fn missing(cache: &Cache, what: &str, option: &str) -> VmError {
    VmError::Usage(format!(
        "no {what} in {}: run `roost vm prepare` (needs the network), or \
         `roost vm prepare {option}`",
        cache.dir().display()
    ))
}

/// Whether a kernel's name is a file's name. A name that is not a version never makes roost fetch another kernel.
fn names_file(kernel: &str) -> bool {
    Path::new(kernel).exists() || !kernel::is_version(kernel)
}

fn existing(file: &Path) -> Result<PathBuf, VmError> {
    let open = std::fs::File::open(file).and_then(|_| std::path::absolute(file));
    open.map_err(|error| VmError::file(file, &error))
}

/// The default kernel.
fn default_kernel(cache: &Cache) -> Result<Kernel, VmError> {
    let versions = cache.kernel_versions();
    if let Some(own) = cache.own_kernel().filter(|own| versions.contains(own)) {
        return Kernel::resolve(cache, &own);
    }
    if let Ok(kernel) = Kernel::resolve(cache, kernel::DEFAULT_VERSION) {
        return Ok(kernel);
    }
    let newest = versions.last().ok_or_else(|| missing(cache, "kernel", "--kernel FILE"))?;
    Kernel::resolve(cache, newest)
}

fn prepare_kernel(
    cache: &Cache,
    given: &Given,
    say: &mut dyn FnMut(String),
) -> Result<(), VmError> {
    let kernel = match given.kernel.as_deref() {
        Some(name) if names_file(name) => Kernel::resolve(cache, name)?.keep(cache)?,
        wanted => {
            if wanted.is_some() {
                cache.set_own_kernel(None)?;
            }
            let present = wanted.map(|name| Kernel::resolve(cache, name));
            match present.unwrap_or_else(|| default_kernel(cache)) {
                Ok(kernel) => kernel,
                Err(_) => fetch_kernel(cache, wanted, say)?,
            }
        }
    };
    let packages = origin_line(&kernel::origin(cache, &kernel));
    say(format!("kernel: {} ({})", kernel.image.display(), size_of(&kernel.image)));
    say(format!("kernel: {} {packages}", kernel.options()));
    Ok(())
}

fn fetch_kernel(
    cache: &Cache,
    wanted: Option<&str>,
    say: &mut dyn FnMut(String),
) -> Result<Kernel, VmError> {
    say(format!("kernel: reading the index of {}", kernel::SUITES));
    let apt = Apt::new(cache, kernel::SUITES)?;
    let kernel = kernel::fetch(cache, &apt, wanted)?;
    say(format!("kernel: fetched from {}", apt.origin()));
    Ok(kernel)
}

fn prepare_qemu(
    cache: &Cache,
    given: &Given,
    stable: &mut Option<Apt>,
    say: &mut dyn FnMut(String),
) -> Result<(), VmError> {
    let mut found = Qemu::find(cache, given.qemu.as_deref())?;
    if let (Some(qemu), Some(_)) = (&found, &given.qemu) {
        qemu.keep(cache)?;
    }
    if found.is_none() {
        let apt = index(cache, stable, "qemu", say)?;
        let packages = apt.closure(&crate::qemu::PACKAGES)?;
        say(format!("qemu: fetching {} from {}", total(&packages), apt.origin()));
        cache.complete(&cache.qemu(), |piece| {
            apt.unpack(&packages, piece)?;
            write_origin(piece, &packages)
        })?;
        found = Qemu::find(cache, None)?;
    }
    if let Some(qemu) = found {
        say(format!("qemu: {} {}", qemu.version()?, qemu.place()));
    }
    Ok(())
}

fn prepare_root(
    cache: &Cache,
    given: &Given,
    stable: &mut Option<Apt>,
    say: &mut dyn FnMut(String),
) -> Result<(), VmError> {
    if let Some(file) = &given.root {
        let file = existing(file)?;
        cache.complete(&cache.own_root(), |piece| root::keep(&file, piece))?;
    }
    let own = cache.own_root().is_dir();
    let folder = if own { cache.own_root() } else { cache.root(given.addition) };
    if !folder.is_dir() {
        let apt = index(cache, stable, "root", say)?;
        let packages = root::packages(apt, given.addition)?;
        say(format!("root: fetching {} from {}", total(&packages), apt.origin()));
        cache.complete(&folder, |piece| root::build(apt, &packages, piece))?;
    }
    let image = folder.join(root::IMAGE);
    let origin = if own { " (given by hand)" } else { "" };
    say(format!("root: {} ({}){origin}", image.display(), size_of(&image)));
    Ok(())
}

/// The index of [`SUITE`], which is read when it is used for the first time.
fn index<'a>(
    cache: &Cache,
    stable: &'a mut Option<Apt>,
    piece: &str,
    say: &mut dyn FnMut(String),
) -> Result<&'a Apt, VmError> {
    if stable.is_none() {
        say(format!("{piece}: reading the index of {SUITE}"));
        *stable = Some(Apt::new(cache, SUITE)?);
    }
    stable.as_ref().ok_or_else(|| VmError::Usage("no package index".into()))
}

/// Number and total size of packages, such as `90 packages, 36.0 MiB`.
fn total(packages: &[Package]) -> String {
    let bytes: u64 = packages.iter().map(|package| package.bytes).sum();
    format!("{} packages, {}", packages.len(), mebibytes(bytes))
}

fn size_of(path: &Path) -> String {
    mebibytes(cache::size(path))
}

pub(crate) fn mebibytes(bytes: u64) -> String {
    let tenths = bytes * 10 / (1 << 20);
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

/// Writes the packages that a piece was made of into the piece.
pub(crate) fn write_origin(piece: &Path, packages: &[Package]) -> Result<(), VmError> {
    let line = |package: &Package| format!("{} {}\n", package.name, package.version);
    let text: String = packages.iter().map(line).collect();
    let path = piece.join(ORIGIN);
    std::fs::write(&path, text).map_err(|error| VmError::file(&path, &error))
}

/// The first package of a piece, in brackets. Empty if it is not known.
fn origin_line(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().next().map(|line| format!("({line})")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_cache_says_how_to_fill_it() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path()).unwrap();
        let given = Given { qemu: Some("/bin/true".into()), ..Given::default() };
        let error = default_kernel(&cache).unwrap_err().to_string();
        assert!(error.contains("roost vm prepare") && error.contains("--kernel FILE"), "{error}");
        let error = Pieces::find(&cache, &given).unwrap_err().to_string();
        assert!(!error.contains('\n'), "{error}");
    }

    #[test]
    fn nothing_is_added_to_a_root_that_the_user_gave_or_where_it_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path()).unwrap();
        let add = |root: Option<&str>, addition| {
            let given = Given { root: root.map(PathBuf::from), addition, ..Given::default() };
            Pieces::add(&cache, &given, &mut |line| panic!("{line}")).unwrap();
        };
        add(None, None);
        add(Some("mine.ext4"), Some(root::MARIADB));
        let place = cache.root(Some(root::MARIADB));
        assert_ne!(place, cache.root(None), "a piece of its own");
        std::fs::create_dir(&place).unwrap();
        add(None, Some(root::MARIADB));
    }

    #[test]
    fn sizes_are_told_in_mebibytes() {
        assert_eq!(mebibytes(37_785_052), "36.0 MiB");
    }
}
