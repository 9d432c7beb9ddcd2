//! What was made once and takes long to make again: files in the user's cache folder.
//!
//! A file's name is a hash of everything that its content was made of, and of the sources that made it. A file is
//! written under another name and then renamed, so it is complete or does not exist. It begins with a hash of its
//! content, so a damaged file counts as missing. Nothing depends on a file being there: what cannot be read is made
//! again, and what cannot be written is not kept.

use std::fmt::Write as _;
use std::fs::{DirBuilder, File, Metadata};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sha2::{Digest, Sha256};

/// A hash of the sources that decide what is made, and of the compiler (`build.rs`). Empty if they are not known.
const MAKERS: &str = env!("ROOST_MAKERS");

/// Size of a hash in bytes.
const HASH: usize = 32;

/// The files of one kind take at most so many bytes. The capture of a scheduler takes less than a hundredth of that.
const MOST_BYTES: u64 = 1 << 28;

/// The user's cache folder: `$ROOST_CACHE`, or else `roost` in `$XDG_CACHE_HOME`, or else `~/.cache/roost`. It need not
/// exist. `None` if there is no home folder either.
pub fn folder_of_user() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    variable("ROOST_CACHE")
        .map(PathBuf::from)
        .or_else(|| variable("XDG_CACHE_HOME").map(|folder| PathBuf::from(folder).join("roost")))
        .or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".cache/roost")))
}

/// A hash of everything that something is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    /// The key of what is made of these parts by today's sources.
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        for part in [MAKERS.as_bytes()].iter().chain(parts) {
            // Without its length, the end of a part could be the beginning of the next.
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self(in_hexadecimal(&hasher.finalize()))
    }
}

/// The SHA-256 of bytes, in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    in_hexadecimal(&Sha256::digest(bytes))
}

fn in_hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut digits, byte| {
        // Writing to a String cannot fail.
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

/// A folder of files of one kind.
#[derive(Clone, Debug)]
pub struct Kept {
    folder: PathBuf,
    most_bytes: u64,
}

impl Kept {
    /// What schedulers' own programs loaded, in the user's cache folder. `None` if nothing can be kept.
    pub fn captures() -> Option<Self> {
        Self::of_user("captures")
    }

    /// The machine code of sched_ext programs, in the user's cache folder. `None` if nothing can be kept.
    pub fn machine_code() -> Option<Self> {
        Self::of_user("machine-code")
    }

    fn of_user(kind: &str) -> Option<Self> {
        let folder = folder_of_user().filter(|_| !MAKERS.is_empty())?;
        Some(Self::at(&folder.join(kind)))
    }

    /// The files in a folder, which need not exist.
    pub fn at(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), most_bytes: MOST_BYTES }
    }

    /// What was kept with this key. `None` if that is missing or damaged, or another user could have written it.
    pub fn get(&self, key: &Key) -> Option<Vec<u8>> {
        if !is_private(&self.folder) {
            return None;
        }
        let path = self.folder.join(&key.0);
        let mut file = File::open(&path).ok()?;
        if !file.metadata().is_ok_and(|about| about.is_file() && is_own(&about)) {
            return None;
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        let (hash, content) = bytes.split_at_checked(HASH)?;
        if Sha256::digest(content).as_slice() != hash {
            return None;
        }
        // It was used last of all. Otherwise it is only removed sooner.
        let _ = File::options()
            .append(true)
            .open(path)
            .map(|file| file.set_modified(SystemTime::now()));
        bytes.drain(..HASH);
        Some(bytes)
    }

    /// Keeps something, if that is possible. What was used least recently is removed to make room for it.
    pub fn keep(&self, key: &Key, content: &[u8]) {
        // A full disk or a folder that cannot be written to costs time at the next start.
        let _ = self.try_to_keep(key, content);
    }

    fn try_to_keep(&self, key: &Key, content: &[u8]) -> io::Result<()> {
        let bytes = (HASH + content.len()) as u64;
        create(&self.folder)?;
        if !is_private(&self.folder) || bytes > self.most_bytes {
            return Ok(());
        }
        self.make_room(bytes)?;
        let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
        file.write_all(&Sha256::digest(content))?;
        file.write_all(content)?;
        file.persist(self.folder.join(&key.0))?;
        Ok(())
    }

    /// Removes what was used least recently, until there is room for so many bytes.
    fn make_room(&self, bytes: u64) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&self.folder)?.flatten() {
            let about = entry.metadata()?;
            files.push((about.modified()?, entry.path(), about.len()));
        }
        files.sort();
        let mut sum = bytes + files.iter().map(|(_, _, len)| len).sum::<u64>();
        for (_, path, len) in files {
            if sum <= self.most_bytes {
                break;
            }
            std::fs::remove_file(path)?;
            sum -= len;
        }
        Ok(())
    }
}

/// Creates a folder that only its owner can read or write.
fn create(folder: &Path) -> io::Result<()> {
    if let Some(parent) = folder.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    match builder.create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}

/// Whether only this user can write to a folder: machine code from there is executed.
fn is_private(folder: &Path) -> bool {
    std::fs::symlink_metadata(folder).is_ok_and(|about| about.is_dir() && is_own(&about))
}

/// Whether a file or folder is the user's, and nobody else can write to it.
#[cfg(unix)]
fn is_own(about: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    // SAFETY: no arguments; it cannot fail.
    let user = unsafe { libc::geteuid() };
    about.uid() == user && about.mode() & 0o022 == 0
}

#[cfg(not(unix))]
fn is_own(_: &Metadata) -> bool {
    true
}

#[cfg(test)]
mod tests;
