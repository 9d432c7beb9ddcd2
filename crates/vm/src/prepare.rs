//! Fetches and builds what guests are made of.

use std::path::{Path, PathBuf};

use crate::apt::{Apt, Package};
use crate::cache::{self, Cache, ORIGIN};
use crate::error::VmError;
use crate::kernel::{self, Kernel};
use crate::qemu::Qemu;
use crate::root;

/// The Debian release that QEMU and the guest's programs come from: they bring their own libraries,
/// so that the host's release does not matter.
pub(crate) const SUITE: &str = "trixie";

/// What the user gives by hand, instead of what would be fetched.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// A kernel: a file, or (the beginning of) a version.
    pub kernel: Option<String>,
    /// A QEMU (`qemu-system-x86_64`).
    pub qemu: Option<PathBuf>,
    /// An ext4 image with the guest's programs.
    pub root: Option<PathBuf>,
}

/// Everything a guest is made of.
#[derive(Clone, Debug)]
pub struct Pieces {
    /// What it boots.
    pub kernel: Kernel,
    /// What emulates it.
    pub qemu: Qemu,
    /// Its programs, as an ext4 image (load lane).
    pub root: PathBuf,
    /// The same as a cpio archive (exact lane); a root given by hand has none.
    pub initramfs: Option<PathBuf>,
}

impl Pieces {
    /// What is in the cache or given by hand; says how to get what is missing.
    pub fn find(cache: &Cache, given: &Given) -> Result<Self, VmError> {
        let qemu = Qemu::find(cache, given.qemu.as_deref())?;
        let qemu = qemu.ok_or_else(|| missing(cache, "QEMU", "--qemu FILE"))?;
        let kernel = match &given.kernel {
            Some(name) => Kernel::resolve(cache, name)?,
            None => default_kernel(cache)?,
        };
        let (root, initramfs) = match &given.root {
            Some(file) => (existing(file)?, None),
            None if cache.root().is_dir() => {
                (cache.root().join(root::IMAGE), Some(cache.root().join(root::ARCHIVE)))
            }
            None => return Err(missing(cache, "a guest's root", "--root FILE")),
        };
        Ok(Self { kernel, qemu, root, initramfs })
    }

    /// Fetches and builds what is missing, telling `say` what, how large and from where.
    pub fn prepare(
        cache: &Cache,
        given: &Given,
        say: &mut dyn FnMut(String),
    ) -> Result<Self, VmError> {
        let _lock = cache.lock()?;
        cache.sweep();
        prepare_kernel(cache, given, say)?;
        // One index serves both; it is fetched when something is missing only.
        let mut stable = None;
        prepare_qemu(cache, given, &mut stable, say)?;
        prepare_root(cache, given, &mut stable, say)?;
        Self::find(cache, given)
    }
}

fn missing(cache: &Cache, what: &str, option: &str) -> VmError {
    VmError::Usage(format!(
        "no {what} in {}: run `roost vm prepare` (needs the network), or give {option}",
        cache.dir().display()
    ))
}

fn existing(file: &Path) -> Result<PathBuf, VmError> {
    let open = std::fs::File::open(file).and_then(|_| std::path::absolute(file));
    open.map_err(|error| VmError::file(file, &error))
}

/// The kernel that is meant where none is named.
fn default_kernel(cache: &Cache) -> Result<Kernel, VmError> {
    if let Ok(kernel) = Kernel::resolve(cache, kernel::DEFAULT_VERSION) {
        return Ok(kernel);
    }
    let versions = cache.kernel_versions();
    let newest = versions.last().ok_or_else(|| missing(cache, "kernel", "--kernel FILE"))?;
    Kernel::resolve(cache, newest)
}

fn prepare_kernel(
    cache: &Cache,
    given: &Given,
    say: &mut dyn FnMut(String),
) -> Result<(), VmError> {
    let present = match &given.kernel {
        Some(name) => Kernel::resolve(cache, name),
        None => default_kernel(cache),
    };
    let kernel = match present {
        Ok(kernel) => kernel,
        // A file with something wrong is no reason to fetch another kernel.
        Err(error) if given.kernel.as_ref().is_some_and(|name| Path::new(name).exists()) => {
            return Err(error);
        }
        Err(_) => {
            say(format!("kernel: reading the index of {}", kernel::SUITES));
            let apt = Apt::new(cache, kernel::SUITES)?;
            let kernel = kernel::fetch(cache, &apt, given.kernel.as_deref())?;
            say(format!("kernel: fetched from {}", apt.origin()));
            kernel
        }
    };
    let packages = origin_line(&kernel::origin(cache, &kernel));
    say(format!("kernel: {} ({})", kernel.image.display(), size_of(&kernel.image)));
    say(format!("kernel: {} {packages}", kernel.options()));
    Ok(())
}

fn prepare_qemu(
    cache: &Cache,
    given: &Given,
    stable: &mut Option<Apt>,
    say: &mut dyn FnMut(String),
) -> Result<(), VmError> {
    if Qemu::find(cache, given.qemu.as_deref())?.is_none() {
        let apt = index(cache, stable, "qemu", say)?;
        let packages = apt.closure(&crate::qemu::PACKAGES)?;
        say(format!("qemu: fetching {} from {}", total(&packages), apt.origin()));
        cache.complete(&cache.qemu(), |piece| {
            apt.unpack(&packages, piece)?;
            write_origin(piece, &packages)
        })?;
    }
    if let Some(qemu) = Qemu::find(cache, given.qemu.as_deref())? {
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
    let image = match &given.root {
        Some(file) => existing(file)?,
        None => {
            if !cache.root().is_dir() {
                let apt = index(cache, stable, "root", say)?;
                let packages = root::packages(apt)?;
                say(format!("root: fetching {} from {}", total(&packages), apt.origin()));
                cache.complete(&cache.root(), |piece| root::build(apt, &packages, piece))?;
            }
            cache.root().join(root::IMAGE)
        }
    };
    say(format!("root: {} ({})", image.display(), size_of(&image)));
    Ok(())
}

/// The index of [`SUITE`], read at its first use.
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

/// `90 packages, 36.0 MiB`
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

/// Writes down which packages a piece was made of.
pub(crate) fn write_origin(piece: &Path, packages: &[Package]) -> Result<(), VmError> {
    let line = |package: &Package| format!("{} {}\n", package.name, package.version);
    let text: String = packages.iter().map(line).collect();
    let path = piece.join(ORIGIN);
    std::fs::write(&path, text).map_err(|error| VmError::file(&path, &error))
}

/// The first package of a piece, in brackets; nothing where it is not known.
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
    fn sizes_are_told_in_mebibytes() {
        assert_eq!(mebibytes(37_785_052), "36.0 MiB");
    }
}
