//! Files that get their name only when they are complete.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile, TempPath};

/// A file that is being written. If it is dropped before [`Output::publish`], it leaves nothing behind.
pub struct Output {
    file: BufWriter<File>,
    /// The temporary name and the final name. `None` for a device or pipe, which a rename would replace.
    names: Option<(TempPath, PathBuf)>,
}

impl Output {
    /// Starts a file that will be called `path`.
    ///
    /// # Errors
    /// If no file can be created there.
    pub fn open(path: &Path) -> io::Result<Self> {
        // Symbolic links are resolved, so that the rename does not replace the link.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let (file, names) = match fs::metadata(&path) {
            Ok(found) if found.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(found) if !found.is_file() => (OpenOptions::new().write(true).open(&path)?, None),
            _ => {
                let (file, temporary) = temporary_beside(&path)?.into_parts();
                (file, Some((temporary, path)))
            }
        };
        Ok(Self { file: BufWriter::new(file), names })
    }

    /// Gives the complete file its final name.
    ///
    /// # Errors
    /// If the disk is full, or the file cannot be renamed.
    pub fn publish(self) -> io::Result<()> {
        // The file is closed before it is renamed.
        drop(self.file.into_inner().map_err(io::IntoInnerError::into_error)?);
        self.names.map_or(Ok(()), |(file, path)| file.persist(path).map_err(|error| error.error))
    }
}

/// A temporary file in the same folder, with permissions that follow the user's umask.
fn temporary_beside(path: &Path) -> io::Result<NamedTempFile> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    let directory = directory.unwrap_or_else(|| Path::new("."));
    fs::metadata(directory)?;
    let mut builder = Builder::new();
    builder.prefix(".roost-").suffix(".tmp");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    // Only the kind of the error is kept: the name of the temporary file would confuse.
    builder.tempfile_in(directory).map_err(|error| error.kind().into())
}

impl io::Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
