//! The cache of runs that were made already.
//!
//! Each run is a file. Its name is a hash of everything that the outcome depends on: machine, workload, scheduler,
//! duration, seed and program. A file is written under another name and then renamed, so it is complete or does not
//! exist.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::ReproduceError;

/// The part of a run's outcome that rows can use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Left {
    /// Metrics.
    pub metrics: Vec<LeftMetric>,
    /// Counters by name.
    pub counters: Vec<(String, f64)>,
}

/// A metric of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeftMetric {
    /// Its name.
    pub name: String,
    /// Its value. `None`: nothing was measured.
    pub value: Option<f64>,
    /// Relative increase from the first to the second half of the measured part. `None`: the halves say nothing.
    pub drift: Option<f64>,
}

/// The folder with cached runs.
pub struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// The cache in that folder, which is created if it does not exist.
    ///
    /// # Errors
    /// If the folder cannot be created.
    pub fn at(folder: &Path) -> Result<Self, ReproduceError> {
        std::fs::create_dir_all(folder).map_err(|error| unwritable(folder, error))?;
        Ok(Self { folder: folder.to_owned() })
    }

    /// The run with this key. An unreadable file counts as missing, so the run is made again.
    pub fn get(&self, key: &str) -> Option<Left> {
        let text = std::fs::read_to_string(self.folder.join(key)).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Stores the run with this key, and the time that this kind of run took, in seconds of one core.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn keep(
        &self,
        key: &str,
        left: &Left,
        kind: &str,
        seconds: f64,
    ) -> Result<(), ReproduceError> {
        self.write(key, &serde_json::to_string(left).unwrap_or_default())?;
        self.write(&format!("{kind}.seconds"), &seconds.to_string())
    }

    /// The time that this kind of run took when one was last made here.
    pub fn seconds(&self, kind: &str) -> Option<f64> {
        std::fs::read_to_string(self.folder.join(format!("{kind}.seconds"))).ok()?.parse().ok()
    }

    fn write(&self, name: &str, text: &str) -> Result<(), ReproduceError> {
        let place = self.folder.join(name);
        write(&place, text).map_err(|error| unwritable(&place, error))
    }
}

fn unwritable(file: &Path, error: std::io::Error) -> ReproduceError {
    let remedy = "free space, or set ROOST_CACHE to another folder";
    ReproduceError::Unwritable { file: file.to_owned(), error, remedy }
}

/// The remedy if the files of the documentation cannot be written.
const DOCS: &str = "free space, or give another folder with --docs";

/// Checks that files can be written to the folder `docs`.
///
/// # Errors
/// If they cannot.
pub fn can_write(docs: &Path) -> Result<(), ReproduceError> {
    let tried = tempfile::NamedTempFile::new_in(docs).map(|_| ());
    tried.map_err(|error| ReproduceError::Unwritable { file: docs.to_owned(), error, remedy: DOCS })
}

/// Writes a file of the documentation. If that fails, an old file stays as it was.
///
/// # Errors
/// If the file cannot be written.
pub fn write_file(place: &Path, text: &str) -> Result<(), ReproduceError> {
    let wrong = |error| ReproduceError::Unwritable { file: place.to_owned(), error, remedy: DOCS };
    write(place, text).map_err(wrong)
}

/// Writes a file. If that fails, an old file stays as it was.
fn write(place: &Path, text: &str) -> std::io::Result<()> {
    let folder = place.parent().unwrap_or(Path::new("."));
    let mut beside = tempfile::NamedTempFile::new_in(folder)?;
    beside.write_all(text.as_bytes())?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        beside.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
    }
    beside.persist(place).map(|_| ()).map_err(|error| error.error)
}
