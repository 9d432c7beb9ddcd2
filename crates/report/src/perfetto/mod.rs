//! Writes a run as a Perfetto trace. It has one track per CPU, with names of threads and processes, and a second set of
//! tracks with the CPUs grouped by node and LLC.
//!
//! The file holds `sched_switch` and `sched_waking` events in the form in which Perfetto records them from a kernel's
//! ftrace, so tools for kernel traces can read it. The grouped CPUs have slices on tracks of their own. The file gets
//! its name only when it is complete.

mod proto;
mod recorder;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use roost_engine::{CpuId, LeftAs, Time, TraceTask, Tracer};
use roost_machine::Machine;
use thiserror::Error;

use crate::output::Output;
use recorder::Recorder;
pub use recorder::TraceWindow;

/// A trace could not be written. No file was left behind.
#[derive(Debug, Error)]
#[error(
    "{}: cannot write the trace: {source}; name a file where you may write and where there is space",
    path.display()
)]
pub struct TraceError {
    path: PathBuf,
    source: io::Error,
}

/// A trace file that is being written.
///
/// Give [`PerfettoTrace::tracer`] to one run, and call [`PerfettoTrace::finish`] after the run. If the trace is dropped
/// without that, it leaves no file behind.
pub struct PerfettoTrace {
    path: PathBuf,
    recorder: SharedRecorder,
}

/// `None` once the trace is finished.
type SharedRecorder = Arc<Mutex<Option<Recorder<Output>>>>;

impl PerfettoTrace {
    /// Starts a trace that will be called `path`. It records the part of the run in `window`.
    pub fn create(path: &Path, window: TraceWindow) -> Result<Self, TraceError> {
        let error = |source| TraceError { path: path.to_owned(), source };
        let output = Output::open(path).map_err(error)?;
        let recorder = Arc::new(Mutex::new(Some(Recorder::new(output, window))));
        Ok(Self { path: path.to_owned(), recorder })
    }

    /// The observer to give to the engine, for one run on `machine`.
    pub fn tracer(&self, machine: &Machine) -> Box<dyn Tracer> {
        if let Some(recorder) = lock(&self.recorder).as_mut() {
            recorder.describe(machine);
        }
        Box::new(Handle { recorder: Arc::clone(&self.recorder) })
    }

    /// Completes the trace of a run that ended at `end`. Tasks that still run are shown until then.
    pub fn finish(&self, end: Time) -> Result<(), TraceError> {
        let error = |source| TraceError { path: self.path.clone(), source };
        let Some(recorder) = lock(&self.recorder).take() else { return Ok(()) };
        let output = recorder.finish(end).map_err(error)?;
        output.publish().map_err(error)
    }
}

/// The half of a trace that the engine owns.
struct Handle {
    recorder: SharedRecorder,
}

/// Locks the recorder, even after a panic of another thread.
fn lock(recorder: &SharedRecorder) -> MutexGuard<'_, Option<Recorder<Output>>> {
    recorder.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tracer for Handle {
    fn switch(
        &mut self,
        now: Time,
        cpu: CpuId,
        previous: Option<(TraceTask<'_>, LeftAs)>,
        next: Option<TraceTask<'_>>,
    ) {
        if let Some(recorder) = lock(&self.recorder).as_mut() {
            recorder.switch(now, cpu, previous, next);
        }
    }

    fn wakeup(&mut self, now: Time, from: CpuId, task: TraceTask<'_>, target: CpuId) {
        if let Some(recorder) = lock(&self.recorder).as_mut() {
            recorder.wakeup(now, from, task, target);
        }
    }

    fn value(&mut self, now: Time, name: &'static str, index: usize, value: u64) {
        if let Some(recorder) = lock(&self.recorder).as_mut() {
            recorder.value(now, name, index, value);
        }
    }
}

#[cfg(test)]
mod tests;
