//! The files of `--trace`: one per scheduler.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use roost_engine::Time;
use roost_report::{Contender, PerfettoTrace, TraceWindow};
use roost_simulate::Named;

use crate::args::CompareArgs;
use crate::error::Error;

/// Longest part of a file's name that comes from the scheduler's name, in bytes. File systems allow 255 bytes per name.
const LONGEST_NAME: usize = 100;

/// The traces of a comparison.
pub struct Traces {
    window: TraceWindow,
    /// One trace per scheduler. `None`: this scheduler is left out. Empty if no trace was asked for.
    files: Vec<Option<PerfettoTrace>>,
}

impl Traces {
    /// Creates the traces that `args` asks for. This happens before the runs, so that a file that cannot be written is
    /// reported at once, not after minutes.
    pub fn create(args: &CompareArgs, schedulers: &[Named]) -> Result<Self, Error> {
        let window = args.trace_window.unwrap_or_default();
        let labels: Vec<&str> = schedulers.iter().map(|named| named.label.as_str()).collect();
        let paths = args.trace.as_deref().map(|file| paths(file, &labels)).transpose()?;
        let create = |path: &PathBuf| PerfettoTrace::create(path, window).map(Some);
        let files = paths.iter().flatten().map(create).collect::<Result<_, _>>()?;
        Ok(Self { window, files })
    }

    /// The trace of a scheduler's run. Only the first run of a scheduler is traced.
    pub fn of(&self, scheduler: usize, repeat: u32) -> Option<&PerfettoTrace> {
        self.files.get(scheduler)?.as_ref().filter(|_| repeat == 0)
    }

    /// Drops the trace of a scheduler. Returns whether there was one.
    pub fn leave_out(&mut self, scheduler: usize) -> bool {
        self.files.get_mut(scheduler).is_some_and(|file| file.take().is_some())
    }

    /// Refuses a window that begins after the run has ended.
    pub fn check(&self, duration_ns: Option<u64>) -> Result<(), Error> {
        match duration_ns {
            Some(ns) if !self.files.is_empty() && self.window.from >= Time(ns) => {
                Err(self.nothing_in("the run", ns))
            }
            _ => Ok(()),
        }
    }

    /// Completes the traces of all schedulers whose first run has ended, at `ends`. The other traces leave no file.
    pub fn finish(&self, schedulers: &[Contender], ends: &[Option<Time>]) -> Result<(), Error> {
        for ((trace, end), scheduler) in self.files.iter().zip(ends).zip(schedulers) {
            let (Some(trace), Some(end)) = (trace, *end) else { continue };
            if self.window.from >= end {
                return Err(
                    self.nothing_in(&format!("the first run of {}", scheduler.name), end.ns())
                );
            }
            trace.finish(end)?;
        }
        Ok(())
    }

    fn nothing_in(&self, run: &str, end_ns: u64) -> Error {
        let time = |ns| humantime::format_duration(std::time::Duration::from_nanos(ns));
        Error::Usage(format!(
            "--trace-window: the window begins at {}, but {run} ends after {}; choose an earlier window",
            time(self.window.from.ns()),
            time(end_ns)
        ))
    }
}

/// The file names: `file` itself for one scheduler; for several, the scheduler's name is inserted before its ending.
fn paths(file: &Path, schedulers: &[&str]) -> Result<Vec<PathBuf>, Error> {
    if schedulers.len() == 1 {
        return Ok(vec![file.to_owned()]);
    }
    if fs::metadata(file).is_ok_and(|found| !found.is_file()) {
        let file = file.display();
        let problem = format!("--trace {file}: not a regular file; traces of several schedulers");
        return Err(Error::Usage(format!("{problem} are a file each: name one to be made")));
    }
    let mut taken = BTreeSet::new();
    Ok(schedulers.iter().map(|name| path(file, &free_name(name, &mut taken))).collect())
}

/// A scheduler's name as part of a file name. Characters that a shell or file system may reject become `_`. A number is
/// added if the name is already in `taken`.
fn free_name(scheduler: &str, taken: &mut BTreeSet<String>) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "@.+-=".contains(c) { c } else { '_' };
    let name: String = scheduler.chars().map(plain).take(LONGEST_NAME).collect();
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    let mut free = std::iter::once(name.clone()).chain(numbered);
    free.find(|name| taken.insert(name.clone())).unwrap_or(name)
}

fn path(file: &Path, name: &str) -> PathBuf {
    let mut path = file.file_stem().map_or_else(OsString::new, OsString::from);
    path.push(format!("-{name}"));
    if let Some(ending) = file.extension() {
        path.push(".");
        path.push(ending);
    }
    file.with_file_name(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scheduler_has_a_file_of_its_name() {
        let names = |file: &str, schedulers: &[&str]| {
            let paths = paths(Path::new(file), schedulers).unwrap();
            paths.into_iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names("t.pftrace", &["fair@5.16"]), ["t.pftrace"]);
        assert_eq!(
            names("out/t.pftrace", &["fair@5.16", "fair@5.16+cling", "./scx_mine", "fair@5.16"]),
            [
                "out/t-fair@5.16.pftrace",
                "out/t-fair@5.16+cling.pftrace",
                "out/t-._scx_mine.pftrace",
                "out/t-fair@5.16-2.pftrace"
            ]
        );
        assert_eq!(names("trace", &["a", "b"]), ["trace-a", "trace-b"]);
        let long = "x".repeat(1000);
        assert!(names("t", &[&long, "b"])[0].len() < 255);
    }
}
