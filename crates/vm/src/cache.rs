//! The folder that keeps everything that was fetched and built.
//!
//! ```text
//! kernels/VERSION/  vmlinuz, config (where the archive has it), origin
//! kernels/own       a link to the version that was given by hand last
//! qemu/             QEMU with the libraries it needs, origin
//! qemu-own          a link to the QEMU that was given by hand
//! root-N/           root.ext4 (load lane), root.cpio (exact lane), origin
//! root-N+NAME/      the same with the packages of an addition
//! root-own/         the same of the root that was given by hand
//! apt/              package lists; may be deleted
//! ```
//!
//! A piece is complete or does not exist: it is created in a temporary folder next to its place and then renamed. Only
//! `qemu-own` is a link to outside of the folder; without it, the folder can be moved and shared. Pieces that the user
//! gave take precedence over fetched ones. Deleting such a piece restores the fetched one.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::error::{CACHE_VARIABLE, VmError};
use crate::root::Addition;

/// To be increased when the root's contents change. An old root is then left alone, and a new one is built.
const ROOT_VERSION: u32 = 3;

/// The file in which a piece says what it was made of.
pub(crate) const ORIGIN: &str = "origin";

/// A cache folder.
#[derive(Clone, Debug)]
pub struct Cache {
    dir: PathBuf,
}

impl Cache {
    /// The user's cache folder: `$ROOST_CACHE`, or else `roost` in `$XDG_CACHE_HOME`, or else `~/.cache/roost`.
    pub fn of_user() -> Result<Self, VmError> {
        match roost_kept::folder_of_user() {
            Some(dir) => Self::at(&dir),
            None => Err(VmError::Usage(format!(
                "no folder to keep kernels in: set {CACHE_VARIABLE} to one"
            ))),
        }
    }

    /// The cache in `dir`, which need not exist yet.
    pub fn at(dir: &Path) -> Result<Self, VmError> {
        let dir = std::path::absolute(dir).map_err(|error| VmError::file(dir, &error))?;
        Ok(Self { dir })
    }

    /// The folder itself.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The folder of the kernels. Each kernel has a folder named by its version.
    pub(crate) fn kernels(&self) -> PathBuf {
        self.dir.join("kernels")
    }

    pub(crate) fn qemu(&self) -> PathBuf {
        self.dir.join("qemu")
    }

    /// The link to the QEMU that the user gave.
    pub(crate) fn own_qemu(&self) -> PathBuf {
        self.dir.join("qemu-own")
    }

    /// The root with the packages of `addition`.
    pub(crate) fn root(&self, addition: Option<Addition>) -> PathBuf {
        let added = addition.map_or_else(String::new, |addition| format!("+{}", addition.name));
        self.dir.join(format!("root-{ROOT_VERSION}{added}"))
    }

    /// The root that the user gave.
    pub(crate) fn own_root(&self) -> PathBuf {
        self.dir.join("root-own")
    }

    pub(crate) fn apt(&self) -> PathBuf {
        self.dir.join("apt")
    }

    /// The version of the kernel that the user gave last, if no other version was asked for since then.
    pub(crate) fn own_kernel(&self) -> Option<String> {
        std::fs::read_link(self.own_kernel_link()).ok()?.into_os_string().into_string().ok()
    }

    /// Remembers which kernel the user gave, or forgets it.
    pub(crate) fn set_own_kernel(&self, version: Option<&str>) -> Result<(), VmError> {
        match version {
            Some(version) => link(Path::new(version), &self.own_kernel_link()),
            None => remove(&self.own_kernel_link()),
        }
    }

    fn own_kernel_link(&self) -> PathBuf {
        self.kernels().join("own")
    }

    /// The versions of all kernels in the cache, oldest first.
    pub fn kernel_versions(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.kernels()).into_iter().flatten().flatten();
        let mut versions: Vec<String> = entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name.starts_with(|first: char| first.is_ascii_digit()))
            .collect();
        versions.sort_by_key(|version| crate::kernel::version_key(version));
        versions
    }

    /// Creates the folder, and waits until no other roost prepares pieces in it.
    pub(crate) fn lock(&self) -> Result<File, VmError> {
        std::fs::create_dir_all(&self.dir).map_err(|error| VmError::file(&self.dir, &error))?;
        let path = self.dir.join("lock");
        let file = File::create(&path).map_err(|error| VmError::file(&path, &error))?;
        // SAFETY: flock takes an open descriptor, which `file` keeps open.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } != 0 {
            return Err(VmError::file(&path, &std::io::Error::last_os_error()));
        }
        Ok(file)
    }

    /// Creates the piece `place`. `make` fills a temporary folder, which becomes the piece only if it succeeds.
    pub(crate) fn complete(
        &self,
        place: &Path,
        make: impl FnOnce(&Path) -> Result<(), VmError>,
    ) -> Result<(), VmError> {
        let parent = place.parent().unwrap_or(&self.dir);
        let temporary = self.temporary(parent)?;
        let inside = temporary.path().join("piece");
        std::fs::create_dir(&inside).map_err(|error| VmError::file(&inside, &error))?;
        make(&inside)?;
        // The old piece is removed together with the temporary folder.
        if place.exists() {
            let old = temporary.path().join("old");
            std::fs::rename(place, old).map_err(|error| VmError::file(place, &error))?;
        }
        std::fs::rename(&inside, place).map_err(|error| VmError::file(place, &error))
    }

    fn temporary(&self, parent: &Path) -> Result<TempDir, VmError> {
        std::fs::create_dir_all(parent).map_err(|error| VmError::file(parent, &error))?;
        let folder = tempfile::Builder::new().prefix(".incomplete-").tempdir_in(parent);
        folder.map_err(|error| VmError::file(parent, &error))
    }

    /// Removes what interrupted preparations left behind. The lock must be held.
    pub(crate) fn sweep(&self) {
        for parent in [self.dir.clone(), self.kernels(), self.apt()] {
            let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
            for entry in entries {
                if entry.file_name().to_string_lossy().starts_with(".incomplete-") {
                    // A folder that cannot be removed only takes space.
                    let _ = std::fs::remove_dir_all(entry.path());
                }
            }
        }
    }
}

/// Makes `place` a link to `target`, whatever it was before.
pub(crate) fn link(target: &Path, place: &Path) -> Result<(), VmError> {
    remove(place)?;
    std::os::unix::fs::symlink(target, place).map_err(|error| VmError::file(place, &error))
}

fn remove(link: &Path) -> Result<(), VmError> {
    match std::fs::remove_file(link) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(VmError::file(link, &error))
        }
        _ => Ok(()),
    }
}

/// Size of all files below `path`, in bytes. Unreadable files do not count.
pub(crate) fn size(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return 0 };
    if !metadata.is_dir() {
        return metadata.blocks() * 512;
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| size(&entry.path())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_complete_or_absent() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path()).unwrap();
        let failed = cache.complete(&cache.qemu(), |piece| {
            std::fs::write(piece.join("half"), "x").unwrap();
            Err(VmError::Usage("interrupted".into()))
        });
        assert!(failed.is_err() && !cache.qemu().exists());
        cache
            .complete(&cache.qemu(), |piece| {
                std::fs::write(piece.join("all"), "x").unwrap();
                Ok(())
            })
            .unwrap();
        assert!(cache.qemu().join("all").exists());
        cache.complete(&cache.qemu(), |_| Ok(())).unwrap();
        assert!(!cache.qemu().join("all").exists(), "replaced as a whole");
        let left = std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(left, 1, "only the piece itself is left");
    }

    #[test]
    fn what_a_killed_preparation_left_is_swept() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path()).unwrap();
        std::fs::create_dir_all(cache.kernels().join(".incomplete-abc/piece")).unwrap();
        std::fs::create_dir_all(cache.kernels().join("7.2.13+deb14-cloud-amd64")).unwrap();
        cache.sweep();
        assert_eq!(cache.kernel_versions(), ["7.2.13+deb14-cloud-amd64"]);
        assert!(!cache.kernels().join(".incomplete-abc").exists());
    }
}
