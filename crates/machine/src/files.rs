//! The files of a `/sys` tree: a directory, or a tar archive of one.
//!
//! Only an archive's files about CPUs and nodes are read into memory. The unpacked size is limited,
//! because a small file can unpack to a terabyte.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use crate::error::{MachineError, shown};
use crate::osset::OsSet;

/// The largest unpacked size of an archive, bytes. 4096 CPUs take a tenth of it.
const LARGEST_ARCHIVE: u64 = 1 << 30;

/// The part of a file that is kept, bytes. `/proc/cpuinfo` of 4096 CPUs has 6 MB, but only its
/// first CPU is read.
const LARGEST_FILE: u64 = 1 << 16;

/// The compression of an archive, according to its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compression {
    None,
    Gzip,
    Bzip2,
    Xz,
    Zstd,
}

/// The place of a tree's files.
pub(crate) enum Files {
    /// In a directory.
    Directory(PathBuf),
    /// In an archive. Paths inside begin with `devices/` or `proc/`.
    Archive {
        /// The archive.
        path: PathBuf,
        /// Its contents.
        held: Held,
    },
}

/// The contents of an archive, by paths inside.
#[derive(Debug, Default)]
pub(crate) struct Held {
    texts: BTreeMap<String, Vec<u8>>,
    /// Symbolic links to folders, and their targets: `cpu0/cpufreq` is `cpufreq/policy0`.
    links: BTreeMap<String, String>,
}

impl Held {
    fn text(&self, path: &str) -> Option<&Vec<u8>> {
        self.texts.get(path).or_else(|| {
            let mut folders = path.match_indices('/').map(|(end, _)| path.split_at(end));
            folders.find_map(|(folder, rest)| {
                self.texts.get(&format!("{}{rest}", self.links.get(folder)?))
            })
        })
    }
}

/// The destination of a link at `path` with the text `target`; `None` if it is outside the archive.
fn destination(path: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            ".." => drop(parts.pop()?),
            "." | "" => {}
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// Whether a file that begins with `head` is a readable archive.
pub(crate) fn is_archive(head: &[u8]) -> bool {
    compression(head).is_some()
}

fn compression(head: &[u8]) -> Option<Compression> {
    let starts = |magic: &[u8]| head.starts_with(magic);
    if starts(&[0x1f, 0x8b]) {
        Some(Compression::Gzip)
    } else if starts(b"BZh") {
        Some(Compression::Bzip2)
    } else if starts(&[0xfd, b'7', b'z', b'X', b'Z', 0]) {
        Some(Compression::Xz)
    } else if starts(&[0x28, 0xb5, 0x2f, 0xfd]) {
        Some(Compression::Zstd)
    } else if head.get(257..262) == Some(b"ustar") {
        Some(Compression::None)
    } else {
        None
    }
}

/// The path from `devices/` on, which does not depend on how the archive was made. `cpuinfo` is a
/// copy of `/proc/cpuinfo`, wherever it is. (tar stores the original as an empty file, because it
/// reports no size.)
fn inside(path: &str) -> Option<&str> {
    const STARTS: [&str; 2] = ["devices/system/cpu/", "devices/system/node/"];
    if path.rsplit('/').next() == Some("cpuinfo") {
        return Some("proc/cpuinfo");
    }
    let after = |start: &str| {
        let at = path.find(start)?;
        (at == 0 || path[..at].ends_with('/')).then(|| &path[at..])
    };
    STARTS.iter().find_map(|start| after(start))
}

fn unreadable(path: &Path, reason: &str) -> MachineError {
    MachineError::Read { path: shown(&path.display().to_string()), reason: shown(reason) }
}

impl Files {
    /// The files below a directory that holds `cpu` and `node`, `devices/system` or `sys/devices/system`.
    pub(crate) fn directory(dir: &Path) -> Self {
        Self::Directory(dir.to_owned())
    }

    /// The files of a `/sys` tree and of `/proc/cpuinfo` in an archive.
    pub(crate) fn archive(path: &Path) -> Result<Self, MachineError> {
        let failed = |error: std::io::Error| unreadable(path, &error.to_string());
        let mut head = Vec::new();
        let file = std::fs::File::open(path).map_err(failed)?;
        (&file).take(512).read_to_end(&mut head).map_err(failed)?;
        let wrong = |reason: &str| MachineError::Archive {
            path: shown(&path.display().to_string()),
            reason: shown(reason),
        };
        let Some(compression) = compression(&head) else {
            return Err(wrong("neither a tar archive nor one that gzip, bzip2, xz or zstd made"));
        };
        let file = std::io::BufReader::new(std::io::Cursor::new(head).chain(file));
        let held = match compression {
            Compression::None => unpack(file),
            Compression::Gzip => unpack(flate2::read::MultiGzDecoder::new(file)),
            Compression::Bzip2 => unpack(bzip2::read::MultiBzDecoder::new(file)),
            Compression::Xz => unpack(lzma_rust2::XzReader::new(file, true)),
            Compression::Zstd => ruzstd::decoding::StreamingDecoder::new(file)
                .map_err(std::io::Error::other)
                .and_then(unpack),
        };
        let held = held.map_err(|error| wrong(&error.to_string()))?;
        if held.texts.keys().all(|path| path.starts_with("proc/")) {
            return Err(wrong("no file below devices/system/cpu in it"));
        }
        Ok(Self::Archive { path: path.to_owned(), held })
    }

    /// The name of a path in this tree, for messages.
    pub(crate) fn shown(&self, relative: &str) -> String {
        match self {
            Self::Directory(dir) => shown(&dir.join(relative).display().to_string()),
            Self::Archive { path, .. } => shown(&format!("{}: {relative}", path.display())),
        }
    }

    /// The text of a file, up to its first NUL; `None` if the file is missing or empty.
    ///
    /// tar pads files of /sys with NULs, because their metadata say 4096 bytes. Linux 5.15-rc ended
    /// lists with a NUL.
    pub(crate) fn text(&self, relative: &str) -> Result<Option<String>, MachineError> {
        let bytes = match self {
            Self::Archive { held, .. } => held.text(relative).cloned(),
            Self::Directory(dir) => {
                let path = dir.join(relative);
                match std::fs::read(&path) {
                    Ok(bytes) => Some(bytes),
                    Err(error) if is_absent(&error) => None,
                    Err(error) => return Err(unreadable(&path, &error.to_string())),
                }
            }
        };
        let text = bytes.map(|bytes| {
            let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
            String::from_utf8_lossy(&bytes[..end]).trim().to_owned()
        });
        Ok(text.filter(|text| !text.is_empty()))
    }

    /// Whether there is such a directory.
    pub(crate) fn has_directory(&self, relative: &str) -> bool {
        match self {
            Self::Directory(dir) => dir.join(relative).is_dir(),
            Self::Archive { held: Held { texts, .. }, .. } => {
                let below = format!("{relative}/");
                texts
                    .range(below.clone()..)
                    .next()
                    .is_some_and(|(path, _)| path.starts_with(&below))
            }
        }
    }

    /// The numbers N of all entries named `prefixN` in a directory, in order.
    pub(crate) fn numbered(&self, relative: &str, prefix: &str) -> Result<Vec<u32>, MachineError> {
        let number = |name: &str| {
            let number: u32 = name.strip_prefix(prefix)?.parse().ok()?;
            ((number as usize) < OsSet::LIMIT).then_some(number)
        };
        let mut numbers: Vec<u32> = match self {
            Self::Directory(dir) => {
                let dir = dir.join(relative);
                let failed = |error: std::io::Error| unreadable(&dir, &error.to_string());
                let mut numbers = Vec::new();
                for entry in std::fs::read_dir(&dir).map_err(failed)? {
                    let name = entry.map_err(failed)?.file_name();
                    numbers.extend(name.to_str().and_then(number));
                }
                numbers
            }
            Self::Archive { held: Held { texts, .. }, .. } => {
                let below = format!("{relative}/");
                let inside = texts.range(below.clone()..);
                inside
                    .map_while(|(path, _)| path.strip_prefix(&below))
                    .filter_map(|rest| number(rest.split('/').next()?))
                    .collect()
            }
        };
        numbers.sort_unstable();
        numbers.dedup();
        Ok(numbers)
    }
}

/// Whether an error from reading a file of /sys means that the kernel has no answer. The kernel
/// also uses ENXIO (6) and ENODEV (19) for that.
fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
        || matches!(error.raw_os_error(), Some(6 | 19))
}

/// The useful contents of an archive, by path from `devices/` or `proc/` on.
fn unpack(archive: impl Read) -> std::io::Result<Held> {
    let mut held = Held::default();
    let bounded = Bounded { inner: archive, left: LARGEST_ARCHIVE };
    for entry in tar::Archive::new(bounded).entries()? {
        let mut entry = entry?;
        let path = entry.path()?.to_string_lossy().into_owned();
        let Some(inside) = inside(&path) else { continue };
        if let Some(target) = entry.link_name()? {
            let to = destination(inside, &target.to_string_lossy());
            held.links.extend(to.map(|to| (inside.to_owned(), to)));
        }
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let mut text = Vec::new();
        (&mut entry).take(LARGEST_FILE).read_to_end(&mut text)?;
        if !text.is_empty() {
            held.texts.insert(inside.to_owned(), text);
        }
    }
    Ok(held)
}

/// A reader that fails if more data comes than it allows.
struct Bounded<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer)?;
        match self.left.checked_sub(read as u64) {
            Some(left) => self.left = left,
            None => {
                let reason = "it unpacks to more than 1 GiB, which no tree of CPUs and nodes does";
                return Err(std::io::Error::other(reason));
            }
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_unpacks_to_more_than_the_bound_is_given_up() {
        let mut bounded = Bounded { inner: std::io::repeat(b'0').take(101), left: 100 };
        let error = std::io::copy(&mut bounded, &mut std::io::sink()).unwrap_err().to_string();
        assert!(error.contains("more than 1 GiB"), "{error}");
        let mut bounded = Bounded { inner: std::io::repeat(b'0').take(100), left: 100 };
        assert_eq!(std::io::copy(&mut bounded, &mut std::io::sink()).unwrap(), 100);
    }

    #[test]
    fn paths_count_from_devices_or_proc_on() {
        assert_eq!(inside("./sys/devices/system/cpu/online"), Some("devices/system/cpu/online"));
        assert_eq!(inside("host7/proc/cpuinfo"), Some("proc/cpuinfo"));
        assert_eq!(inside("sys/devices/system/memory/block_size_bytes"), None);
        assert_eq!(inside("old-devices/system/cpu/online"), None);
    }
}
