//! A run as a Perfetto trace: one track a CPU, with the names of threads and processes, and the same
//! once more with the CPUs grouped by node and LLC.
//!
//! The file holds `sched_switch` and `sched_waking` events in the form in which Perfetto records them from a
//! kernel's ftrace. So everything made for kernel traces works on it. The grouped CPUs have slices on tracks of their
//! own. The file appears under its name when it is complete, and not before.

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

/// A trace could not be written. Nothing is left behind under its name.
#[derive(Debug, Error)]
#[error(
    "{}: cannot write the trace: {source}; name a file where you may write and where there is space",
    path.display()
)]
pub struct TraceError {
    path: PathBuf,
    source: io::Error,
}

/// A trace file being written.
///
/// Give [`PerfettoTrace::tracer`] to one run and call [`PerfettoTrace::finish`] after it. Dropped
/// without that, it leaves no file behind.
pub struct PerfettoTrace {
    path: PathBuf,
    recorder: SharedRecorder,
}

/// Empty once the trace is finished.
type SharedRecorder = Arc<Mutex<Option<Recorder<Output>>>>;

impl PerfettoTrace {
    /// Starts a trace that will be called `path`, of the part of the run that is in `window`.
    pub fn create(path: &Path, window: TraceWindow) -> Result<Self, TraceError> {
        let error = |source| TraceError { path: path.to_owned(), source };
        let output = Output::open(path).map_err(error)?;
        let recorder = Arc::new(Mutex::new(Some(Recorder::new(output, window))));
        Ok(Self { path: path.to_owned(), recorder })
    }

    /// What the engine tells about the run, which is one on `machine`. Once.
    pub fn tracer(&self, machine: &Machine) -> Box<dyn Tracer> {
        if let Some(recorder) = lock(&self.recorder).as_mut() {
            recorder.describe(machine);
        }
        Box::new(Handle { recorder: Arc::clone(&self.recorder) })
    }

    /// Completes the trace of a run that ended at `end`: tasks still running are shown until then.
    pub fn finish(&self, end: Time) -> Result<(), TraceError> {
        let error = |source| TraceError { path: self.path.clone(), source };
        let Some(recorder) = lock(&self.recorder).take() else { return Ok(()) };
        let output = recorder.finish(end).map_err(error)?;
        output.publish().map_err(error)
    }
}

/// The engine's end of a trace.
struct Handle {
    recorder: SharedRecorder,
}

/// A panic elsewhere leaves the recorder usable.
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
