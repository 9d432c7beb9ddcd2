//! Writes archives from which the kernel unpacks its first root (cpio, format `newc`; the kernel's
//! Documentation/driver-api/early-userspace/buffer-format.rst).

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::error::VmError;

/// File types in a mode (`S_IFREG` ...).
const REGULAR: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;
const SYMLINK: u32 = 0o120_000;
const CHARACTER: u32 = 0o020_000;
const TYPE: u32 = 0o170_000;

/// An archive that is being written. All owners are root and all times are 0, so that equal contents give equal
/// archives.
pub(crate) struct Archive<W: Write> {
    out: W,
    inode: u32,
    written: usize,
}

impl<W: Write> Archive<W> {
    pub fn new(out: W) -> Self {
        Self { out, inode: 0, written: 0 }
    }

    /// A regular file.
    pub fn file(&mut self, name: &[u8], mode: u32, contents: &[u8]) -> std::io::Result<()> {
        self.entry(name, REGULAR | (mode & 0o7777), contents, (0, 0))
    }

    /// A directory.
    pub fn directory(&mut self, name: &[u8]) -> std::io::Result<()> {
        self.entry(name, DIRECTORY | 0o755, b"", (0, 0))
    }

    /// Ends the archive.
    pub fn end(&mut self) -> std::io::Result<()> {
        self.inode = 0;
        self.entry(b"TRAILER!!!", 0, b"", (0, 0))?;
        self.out.flush()
    }

    fn entry(
        &mut self,
        name: &[u8],
        mode: u32,
        contents: &[u8],
        device: (u32, u32),
    ) -> std::io::Result<()> {
        self.inode += 1;
        let links = if mode & TYPE == DIRECTORY { 2 } else { 1 };
        let size = u32::try_from(contents.len()).map_err(std::io::Error::other)?;
        let name_size = u32::try_from(name.len() + 1).map_err(std::io::Error::other)?;
        // ino mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor namesize check
        let fields =
            [self.inode, mode, 0, 0, links, 0, size, 0, 0, device.0, device.1, name_size, 0];
        let mut header = b"070701".to_vec();
        for field in fields {
            header.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        header.extend_from_slice(name);
        header.push(0);
        self.padded(&header)?;
        self.padded(contents)
    }

    /// Writes `bytes`, padded to a multiple of four.
    fn padded(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.out.write_all(bytes)?;
        self.written += bytes.len();
        let missing = self.written.next_multiple_of(4) - self.written;
        self.written += missing;
        self.out.write_all(&[0; 3][..missing])
    }

    /// Everything below `dir`, ordered by name.
    fn tree(&mut self, dir: &Path, prefix: &[u8]) -> std::io::Result<()> {
        let mut entries = std::fs::read_dir(dir)?.collect::<Result<Vec<_>, _>>()?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let mut name = prefix.to_vec();
            name.extend_from_slice(entry.file_name().as_bytes());
            let path = entry.path();
            let metadata = std::fs::symlink_metadata(&path)?;
            match metadata.mode() & TYPE {
                DIRECTORY => {
                    self.directory(&name)?;
                    name.push(b'/');
                    self.tree(&path, &name)?;
                }
                SYMLINK => {
                    let target = std::fs::read_link(&path)?;
                    self.entry(&name, SYMLINK | 0o777, target.as_os_str().as_bytes(), (0, 0))?;
                }
                REGULAR => self.file(&name, metadata.mode(), &std::fs::read(&path)?)?,
                // Packages contain no other kinds of files.
                _ => {}
            }
        }
        Ok(())
    }
}

/// Writes an archive of `tree`, plus the console device that the first process writes to.
pub(crate) fn of_tree(tree: &Path, archive: &Path) -> Result<(), VmError> {
    let write = || -> std::io::Result<()> {
        let mut out = Archive::new(BufWriter::new(File::create(archive)?));
        out.tree(tree, b"")?;
        out.entry(b"dev/console", CHARACTER | 0o600, b"", (5, 1))?;
        out.end()
    };
    write().map_err(|error| VmError::file(archive, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_as_the_kernel_describes_it() {
        let mut bytes = Vec::new();
        let mut archive = Archive::new(&mut bytes);
        archive.file(b"init", 0o755, b"hello").unwrap();
        archive.end().unwrap();
        let text = String::from_utf8(bytes.clone()).unwrap();
        assert!(text.starts_with("070701000000010000" /* inode, mode */));
        assert_eq!(&text[14..22], "000081ed", "a regular file that may be run");
        assert_eq!(&text[54..62], "00000005", "its size");
        assert_eq!(&text[94..102], "00000005", "its name's size, with the zero");
        assert_eq!(&text[110..115], "init\0");
        assert_eq!(&text[116..124], "hello\0\0\0");
        assert_eq!(bytes.len() % 4, 0);
        assert!(text.contains("TRAILER!!!"));
    }
}
