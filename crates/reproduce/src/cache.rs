//! Runs that were made already.
//!
//! A file a run, named by a hash of all that its outcome depends on: machine, workload, scheduler, duration, seed
//! and program. A file is complete or absent: it is written beside its place and renamed.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::ReproduceError;

/// What of a run's outcome rows can look at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Left {
    /// Metrics by name.
    pub metrics: Vec<(String, Option<f64>)>,
    /// Counters by name.
    pub counters: Vec<(String, f64)>,
}

/// The folder of runs.
pub struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// In that folder, which is made if it is not there.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn at(folder: &Path) -> Result<Self, ReproduceError> {
        std::fs::create_dir_all(folder).map_err(|error| unwritable(folder, error))?;
        Ok(Self { folder: folder.to_owned() })
    }

    /// The run of that key. A file that cannot be understood is none: the run is made again.
    pub fn get(&self, key: &str) -> Option<Left> {
        let text = std::fs::read_to_string(self.folder.join(key)).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Keeps the run of that key, and how long its kind took, in seconds of one core.
    ///
    /// # Errors
    /// If it cannot be written.
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

    /// How long a run of that kind took when one was last made here.
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

/// What helps where the files of the documentation cannot be written.
const DOCS: &str = "free space, or give another folder with --docs";

/// Finds out whether files can be written to the folder `docs`.
///
/// # Errors
/// If not.
pub fn can_write(docs: &Path) -> Result<(), ReproduceError> {
    let tried = tempfile::NamedTempFile::new_in(docs).map(|_| ());
    tried.map_err(|error| ReproduceError::Unwritable { file: docs.to_owned(), error, remedy: DOCS })
}

/// Writes a file of the documentation as a whole: an old one stays if that fails.
///
/// # Errors
/// If it cannot be written.
pub fn write_file(place: &Path, text: &str) -> Result<(), ReproduceError> {
    let wrong = |error| ReproduceError::Unwritable { file: place.to_owned(), error, remedy: DOCS };
    write(place, text).map_err(wrong)
}

/// Writes a file as a whole: an old one stays if that fails.
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
