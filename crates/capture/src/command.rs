//! A program and its arguments.

use std::path::{Path, PathBuf};

use crate::error::{CaptureError, Why};

/// A command line whose program exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The command line, as the user gave it.
    pub text: String,
    /// The program's file.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
}

impl Command {
    /// Splits a command line as a shell does. Finds the program: a path if its name has a slash, otherwise in PATH.
    ///
    /// # Errors
    /// If a quote has no end, or there is no such program.
    pub fn parse(text: &str) -> Result<Self, CaptureError> {
        let failed = |why| CaptureError { program: text.to_owned(), why };
        let mut words = shlex::split(text).ok_or_else(|| failed(Why::Quote))?.into_iter();
        let name = words.next().ok_or_else(|| failed(Why::NotFound))?;
        let program = found(&name).ok_or_else(|| failed(Why::NotFound))?;
        if !is_executable(&program) {
            return Err(failed(Why::NotExecutable));
        }
        Ok(Self { text: text.to_owned(), program, arguments: words.collect() })
    }

    pub(crate) fn failed(&self, why: Why) -> CaptureError {
        CaptureError { program: self.text.clone(), why }
    }
}

/// Whether the first word of a command line is a program: a file that it names with a slash, or a program in PATH.
pub(crate) fn found(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| path.exists());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| is_executable(path))
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(path: &Path) -> bool {
    path.is_file()
}
