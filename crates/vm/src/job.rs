//! The jobs of a guest, and their results.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use crate::error::VmError;

/// Name of a job's script in its folder.
pub(crate) const SCRIPT: &str = "job.sh";

/// Something to run in a guest.
///
/// It runs as root in a folder of its own, which contains its files. What it writes to the folder `$ROOST_OUT` is
/// returned. Files and results must fit into the guest's memory.
#[derive(Clone, Debug)]
pub struct Job {
    script: String,
    files: Vec<(String, Contents)>,
    /// Real time after which the guest is ended.
    pub timeout: Duration,
}

/// The contents of a job's file.
#[derive(Clone, Debug)]
enum Contents {
    Bytes(Vec<u8>),
    Copy(PathBuf),
}

impl Job {
    /// Default time limit of a job. Emulated CPUs are slow, and the host may be busy.
    pub const TIMEOUT: Duration = Duration::from_secs(600);

    /// A program with its arguments, which no shell changes.
    pub fn of<S: AsRef<str>>(command: impl IntoIterator<Item = S>) -> Self {
        let words: Vec<String> = command.into_iter().map(|word| quoted(word.as_ref())).collect();
        Self::script(format!("exec {}\n", words.join(" ")))
    }

    /// A bash script.
    pub fn script(script: impl Into<String>) -> Self {
        Self { script: script.into(), files: Vec::new(), timeout: Self::TIMEOUT }
    }

    /// Adds a file with these contents. `name` may contain folders.
    pub fn with_bytes(mut self, name: &str, contents: impl Into<Vec<u8>>) -> Self {
        self.files.push((name.to_owned(), Contents::Bytes(contents.into())));
        self
    }

    /// Adds a copy of a file of the host, which may be a program.
    pub fn with_file(mut self, name: &str, file: &Path) -> Self {
        self.files.push((name.to_owned(), Contents::Copy(file.to_owned())));
        self
    }

    /// Sets the real time after which the guest is ended.
    pub fn within(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// All files with their names. All are executable.
    pub(crate) fn files(&self) -> Result<Vec<(&str, Vec<u8>)>, VmError> {
        let mut all = vec![(SCRIPT, self.script.clone().into_bytes())];
        for (name, contents) in &self.files {
            let path = Path::new(name);
            let inside = |part| matches!(part, std::path::Component::Normal(_));
            if !path.components().all(inside) || name == SCRIPT || name.is_empty() {
                return Err(VmError::Usage(format!(
                    "a job's file cannot be called {name:?}: give a name below the job's folder"
                )));
            }
            let bytes = match contents {
                Contents::Bytes(bytes) => bytes.clone(),
                Contents::Copy(file) => {
                    std::fs::read(file).map_err(|error| VmError::file(file, &error))?
                }
            };
            all.push((name, bytes));
        }
        Ok(all)
    }

    /// Writes the files as a tar archive.
    pub(crate) fn archive(&self, out: impl Write) -> Result<(), VmError> {
        archive(out, &self.files()?)
    }
}

/// Writes a tar archive. All files are executable.
pub(crate) fn archive(out: impl Write, files: &[(&str, Vec<u8>)]) -> Result<(), VmError> {
    let write = || -> std::io::Result<()> {
        let mut archive = tar::Builder::new(out);
        for (name, bytes) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o755);
            archive.append_data(&mut header, name, bytes.as_slice())?;
        }
        archive.finish()
    };
    write()
        .map_err(|error| VmError::File { path: "a job's files".into(), reason: error.to_string() })
}

/// Quotes a word for bash.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The result of a job.
#[derive(Debug)]
pub struct JobResult {
    /// Exit status as a shell shows it: after a signal, 128 plus the signal's number.
    pub status: i32,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
    /// Real time from sending the job until its results arrived. 0 with exact time, which ignores the host's time.
    pub host_time: Duration,
    folder: TempDir,
}

impl JobResult {
    /// The folder with the files that the job wrote to `$ROOST_OUT`. It is removed when this is dropped.
    pub fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    /// Reads the archive with a job's results.
    pub(crate) fn read(archive: impl Read) -> Result<Self, VmError> {
        let folder = unpack(archive)?;
        let read = |name: &str| {
            let path = folder.path().join(name);
            std::fs::read(&path).map_err(|error| VmError::file(&path, &error))
        };
        let status = String::from_utf8_lossy(&read("status")?).trim().parse().unwrap_or(-1);
        let (stdout, stderr) = (read("stdout")?, read("stderr")?);
        Ok(Self { status, stdout, stderr, host_time: Duration::ZERO, folder })
    }
}

/// Unpacks an archive from the guest into a temporary folder. Entries cannot be outside of the folder.
pub(crate) fn unpack(archive: impl Read) -> Result<TempDir, VmError> {
    let work = || -> std::io::Result<TempDir> {
        let folder = tempfile::tempdir()?;
        let mut archive = tar::Archive::new(archive);
        archive.set_preserve_mtime(false);
        archive.unpack(folder.path())?;
        Ok(folder)
    };
    work().map_err(|error| VmError::File {
        path: "results from the guest".into(),
        reason: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script_of(job: &Job) -> String {
        String::from_utf8(job.files().unwrap().remove(0).1).unwrap()
    }

    #[test]
    fn arguments_reach_the_program_as_they_are() {
        let job = Job::of(["echo", "it's", "$HOME", "a b"]);
        assert_eq!(script_of(&job), "exec 'echo' 'it'\\''s' '$HOME' 'a b'\n");
    }

    #[test]
    fn files_stay_within_the_jobs_folder() {
        for name in ["../x", "/etc/passwd", "", SCRIPT] {
            assert!(Job::script("true").with_bytes(name, "x").files().is_err(), "{name}");
        }
        assert!(Job::script("true").with_bytes("a/b", "x").files().is_ok());
    }

    #[test]
    fn what_is_archived_can_be_read_back() {
        let files = [
            ("status", b"3\n".to_vec()),
            ("stdout", b"hello".to_vec()),
            ("stderr", Vec::new()),
            ("out/trace", vec![7; 5000]),
        ];
        let mut bytes = Vec::new();
        archive(&mut bytes, &files).unwrap();
        // The disk with the results is longer, and contains older bytes behind them.
        bytes.extend_from_slice(&[0x55; 4096]);
        let result = JobResult::read(bytes.as_slice()).unwrap();
        assert_eq!((result.status, result.stdout.as_slice()), (3, b"hello".as_slice()));
        assert_eq!(std::fs::read(result.out().join("trace")).unwrap(), vec![7; 5000]);
    }
}
