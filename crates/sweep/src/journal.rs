//! The journal: the runs that have ended, one per line, in a file next to the future result.
//!
//! The first line names the plan and the program. A run is appended when it has ended. However the process ends, only
//! the last line can be cut off, and it is then ignored. A separate thread waits for the disk, so that runs do not have
//! to. If the machine loses power, the last few runs have to be made again. The lines are in the order in which the
//! runs ended; the result has them in the order of the plan.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use roost_report::Run as Left;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::SweepError;
use crate::plan::{Plan, Run};

/// Identifies the program. Runs of the same program are interchangeable.
pub struct Program {
    /// Version and commit, and anything else that distinguishes builds.
    pub identity: String,
}

/// The first line.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    /// Version of the journal's format.
    roost_sweep_journal: u32,
    program: String,
    /// [`Plan::sha256`].
    plan: String,
}

/// A run that has ended, as a line of the journal.
#[derive(Serialize, Deserialize)]
pub(crate) struct Entry {
    cell: usize,
    repeat: usize,
    /// How long it took, in seconds of one core.
    seconds: f64,
    /// The outcome. `None`: the run failed.
    left: Option<Box<RawValue>>,
    /// The error, if the run failed.
    error: Option<String>,
}

/// The part of a run that is kept in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ended {
    /// The run.
    pub run: Run,
    /// How long it took, in seconds of one core.
    pub seconds: f64,
    /// Whether it failed.
    pub failed: bool,
}

/// The outcome of a run, or its error.
pub type RunResult = Result<Left, String>;

impl Entry {
    pub fn new(run: Run, seconds: f64, result: &RunResult) -> Self {
        let Run { cell, repeat } = run;
        let (left, error) = match result {
            Ok(left) => (left.line(), None),
            Err(error) => (None, Some(error.clone())),
        };
        Self { cell, repeat, seconds, left, error }
    }

    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    fn ended(&self) -> Ended {
        let run = Run { cell: self.cell, repeat: self.repeat };
        Ended { run, seconds: self.seconds, failed: self.error.is_some() }
    }

    pub fn result(self) -> Result<RunResult, serde_json::Error> {
        match (self.left, self.error) {
            (Some(left), _) => Left::read(left.get()).map(Ok),
            (None, error) => Ok(Err(error.unwrap_or_default())),
        }
    }
}

/// An open journal, which belongs to this process.
pub struct Journal {
    file: File,
    path: PathBuf,
    cells: Vec<CellLines>,
    /// Number of complete cells.
    complete: usize,
    ended: Vec<Ended>,
    end: u64,
}

/// The lines of a cell's runs.
struct CellLines {
    /// The start of each line, by repeat.
    places: Vec<Option<u64>>,
    /// Number of runs that have not ended.
    missing: usize,
    /// Time that the finished runs took, in seconds of one core.
    seconds: f64,
}

/// Waits for the disk while runs go on.
pub(crate) struct Disk {
    file: File,
    path: PathBuf,
}

impl Disk {
    /// Waits until everything that was appended is on disk.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn sync(&self) -> Result<(), SweepError> {
        self.file.sync_data().map_err(|error| SweepError::unwritable(&self.path, error))
    }
}

/// Version of the format of lines.
const FORM: u32 = 1;

impl Journal {
    /// Opens the journal at `path` for runs of this plan by this program, or creates it.
    ///
    /// # Errors
    /// If it cannot be read or written, belongs to another plan or program, or is open in another process.
    pub fn open(path: &Path, plan: &Plan, program: &Program) -> Result<Self, SweepError> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path);
        let uncreatable = |error| SweepError::Uncreatable { file: path.to_owned(), error };
        let file = file.map_err(uncreatable)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
            match error.kind() {
                ErrorKind::WouldBlock => SweepError::Busy(path.to_owned()),
                _ => SweepError::unwritable(path, error.into()),
            }
        })?;
        let header = Header {
            roost_sweep_journal: FORM,
            program: program.identity.clone(),
            plan: plan.sha256(),
        };
        let lines = |runs| CellLines { places: vec![None; runs], missing: runs, seconds: 0.0 };
        let cells = plan.cells.iter().map(|cell| lines(cell.seeds.len())).collect();
        let path = path.to_owned();
        let mut journal = Self { file, path, cells, complete: 0, ended: Vec::new(), end: 0 };
        journal.read(&header)?;
        if journal.end == 0 {
            journal.append_line(&header)?;
            journal.disk()?.sync()?;
        }
        Ok(journal)
    }

    /// The runs that have ended, each once.
    pub fn ended(&self) -> &[Ended] {
        &self.ended
    }

    /// Whether this run has ended.
    pub fn has(&self, run: Run) -> bool {
        self.place(run).is_some()
    }

    /// Whether all runs of a cell have ended.
    pub fn is_complete(&self, cell: usize) -> bool {
        self.cells.get(cell).is_some_and(|cell| cell.missing == 0)
    }

    /// Number of cells of which all runs have ended.
    pub fn complete(&self) -> usize {
        self.complete
    }

    /// Time that the finished runs of a cell took, in seconds of one core.
    pub fn seconds(&self, cell: usize) -> f64 {
        self.cells.get(cell).map_or(0.0, |cell| cell.seconds)
    }

    fn place(&self, run: Run) -> Option<u64> {
        *self.cells.get(run.cell)?.places.get(run.repeat)?
    }

    /// Appends a run that has ended. It stays whatever happens to this process. After [`Disk::sync`] it stays whatever
    /// happens to the machine.
    ///
    /// # Errors
    /// If it cannot be written. The journal is then as it was before.
    pub(crate) fn append(&mut self, entry: &Entry) -> Result<(), SweepError> {
        let begin = self.end;
        self.append_line(entry)?;
        self.note(entry, begin);
        Ok(())
    }

    /// Appends the line of a run that another process has made. If the journal has this run already, nothing changes.
    ///
    /// # Errors
    /// If the line is not valid, or cannot be written.
    pub fn append_text(&mut self, line: &str) -> Result<Ended, SweepError> {
        let entry: Entry = serde_json::from_str(line).map_err(|error| SweepError::Damaged {
            file: self.path.clone(),
            line: self.ended.len() + 2,
            error: error.to_string(),
        })?;
        let ended = entry.ended();
        if !self.has(ended.run) {
            self.append(&entry)?;
            self.disk()?.sync()?;
        }
        Ok(ended)
    }

    /// A handle to wait for the disk.
    ///
    /// # Errors
    /// If the system has no file handles left.
    pub(crate) fn disk(&self) -> Result<Disk, SweepError> {
        let file = self.file.try_clone();
        let file = file.map_err(|error| SweepError::unwritable(&self.path, error))?;
        Ok(Disk { file, path: self.path.clone() })
    }

    fn append_line(&mut self, line: &impl Serialize) -> Result<(), SweepError> {
        // This cannot fail: it writes to memory, and all keys are strings.
        let mut bytes = serde_json::to_vec(line).unwrap_or_default();
        bytes.push(b'\n');
        let mut append = || {
            self.file.seek(SeekFrom::Start(self.end))?;
            self.file.write_all(&bytes)
        };
        match append() {
            Ok(()) => {
                self.end += bytes.len() as u64;
                Ok(())
            }
            Err(error) => {
                // If this fails as well, the incomplete line is ignored.
                let _ = self.file.set_len(self.end);
                Err(SweepError::unwritable(&self.path, error))
            }
        }
    }

    fn note(&mut self, entry: &Entry, begin: u64) {
        let ended = entry.ended();
        let Some(cell) = self.cells.get_mut(ended.run.cell) else { return };
        if let Some(place @ None) = cell.places.get_mut(ended.run.repeat) {
            *place = Some(begin);
            cell.seconds += ended.seconds;
            cell.missing -= 1;
            self.complete += usize::from(cell.missing == 0);
            self.ended.push(ended);
        }
    }

    /// Reads the stored runs, and removes a line that was cut off.
    fn read(&mut self, header: &Header) -> Result<(), SweepError> {
        let path = self.path.clone();
        let unreadable = |error| SweepError::unreadable(&path, error);
        let mut reader = BufReader::new(self.file.try_clone().map_err(unreadable)?);
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            reader.read_until(b'\n', &mut line).map_err(unreadable)?;
            if line.last() != Some(&b'\n') {
                break;
            }
            let damaged = |error: serde_json::Error| SweepError::Damaged {
                file: path.clone(),
                line: number,
                error: error.to_string(),
            };
            if number == 1 {
                self.compare(&serde_json::from_slice(&line).map_err(damaged)?, header)?;
            } else {
                let entry = serde_json::from_slice(&line).map_err(damaged)?;
                self.note(&entry, self.end);
            }
            self.end += line.len() as u64;
        }
        self.file.set_len(self.end).map_err(|error| SweepError::unwritable(&path, error))
    }

    fn compare(&self, there: &Header, here: &Header) -> Result<(), SweepError> {
        let what = match () {
            () if there.roost_sweep_journal != here.roost_sweep_journal => "form",
            () if there.plan != here.plan => "plan",
            () if there.program != here.program => "version of roost",
            () => return Ok(()),
        };
        Err(SweepError::Differs { file: self.path.clone(), what })
    }

    /// The outcome of a run. `None`: the run has not ended.
    ///
    /// # Errors
    /// If the run's line cannot be read.
    pub fn get(&mut self, run: Run) -> Result<Option<RunResult>, SweepError> {
        let Some(place) = self.place(run) else { return Ok(None) };
        let path = self.path.clone();
        let unreadable = |error| SweepError::unreadable(&path, error);
        self.file.seek(SeekFrom::Start(place)).map_err(unreadable)?;
        let mut line = Vec::new();
        let mut reader = BufReader::new(Read::by_ref(&mut self.file));
        reader.read_until(b'\n', &mut line).map_err(unreadable)?;
        let result = serde_json::from_slice(&line).and_then(Entry::result);
        let result = result.map_err(|error| SweepError::Damaged {
            file: path.clone(),
            line: 0,
            error: error.to_string(),
        })?;
        Ok(Some(result))
    }

    /// Removes the journal. Its runs are in the result.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn remove(self) -> Result<(), SweepError> {
        std::fs::remove_file(&self.path).map_err(|error| SweepError::unwritable(&self.path, error))
    }
}
