//! The native part of the Python package `roost`: plans, their runs, and tables of runs in Arrow's format.
//!
//! Runs are made on separate threads without Python's global lock. The calling thread checks for Ctrl-C meanwhile.

mod build;
mod table;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use roost_report::HtmlFile;
use roost_sweep::{Changes, Columns, Journal, Program, Run, SweepError, Watch};

use crate::table::Table;

pyo3::create_exception!(
    _roost,
    RoostError,
    PyValueError,
    "An error of roost: one line that names the thing and the way out, as the command prints it."
);

fn told(error: impl ToString) -> PyErr {
    RoostError::new_err(error.to_string())
}

/// How often the calling thread checks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

/// A plan: the runs to make.
#[pyclass(frozen)]
struct Plan(roost_sweep::Plan);

#[pymethods]
impl Plan {
    /// Reads a plan: TOML, or JSON with the same names. `name` is used in messages.
    #[new]
    fn new(py: Python<'_>, name: &str, text: &str, json: bool) -> PyResult<Self> {
        let read = if json { roost_sweep::Plan::json } else { roost_sweep::Plan::toml };
        py.detach(|| read(name, text)).map(Self).map_err(told)
    }

    /// The hash of everything that outcomes depend on, except the program.
    fn sha256(&self) -> String {
        self.0.sha256()
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// Notes for the user.
    fn notes(&self) -> Vec<String> {
        self.0.notes.clone()
    }

    /// Makes one run, and returns its line for a journal.
    fn line(&self, py: Python<'_>, cell: usize, repeat: usize) -> Option<String> {
        let never = AtomicBool::new(false);
        py.detach(|| roost_sweep::line(&self.0, Run { cell, repeat }, &never))
    }

    /// Makes all runs in memory, and returns them as a table. A failed run is an error.
    fn run(&self, py: Python<'_>, jobs: usize) -> PyResult<Table> {
        let folder = tempfile::tempdir().map_err(told)?;
        let program = Program { identity: String::new() };
        let journal = folder.path().join("runs");
        let mut journal = Journal::open(&journal, &self.0, &program).map_err(told)?;
        carry_out(py, &self.0, &mut journal, jobs, None)?;
        py.detach(|| {
            if let Some((_, error)) = roost_sweep::failed(&self.0, &mut journal)? {
                return Ok(Err(error));
            }
            let columns = Columns::of(&self.0, &mut journal, &build::this())?;
            let mut batches = Vec::new();
            columns.batches(&self.0, &mut journal, |batch| {
                batches.push(batch);
                Ok(())
            })?;
            Ok(Ok(Table { schema: columns.schema(), batches }))
        })
        .map_err(|error: SweepError| told(error))?
        .map_err(RoostError::new_err)
    }
}

/// A sweep whose result is not written yet.
#[pyclass]
struct Sweep {
    plan: Py<Plan>,
    result: PathBuf,
    /// `None`: the result is complete already, or has been written.
    journal: Option<Journal>,
}

#[pymethods]
impl Sweep {
    /// Begins a sweep, or continues an interrupted one.
    #[new]
    fn new(py: Python<'_>, plan: Py<Plan>, result: PathBuf) -> PyResult<Self> {
        let program = Program { identity: build::identity() };
        let of = &plan.get().0;
        let journal = py.detach(|| roost_sweep::begin(&result, of, &program, &build::this()));
        Ok(Self { journal: journal.map_err(told)?, plan, result })
    }

    /// Makes the missing runs. Calls `progress` with a line for each cell that is complete.
    fn run(&mut self, py: Python<'_>, jobs: usize, progress: Option<Py<PyAny>>) -> PyResult<()> {
        let plan = &self.plan.get().0;
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let interrupted = carry_out(py, plan, journal, jobs, progress);
        match interrupted {
            Ok(()) => self.finish(py),
            Err(error) => {
                // Another call can continue it.
                self.journal = None;
                Err(error)
            }
        }
    }

    /// The missing runs, as cell and repeat.
    fn missing(&self) -> Vec<(usize, usize)> {
        let plan = &self.plan.get().0;
        let missing = |journal| roost_sweep::missing(plan, journal);
        let runs = self.journal.as_ref().map_or_else(Vec::new, missing);
        runs.into_iter().map(|run| (run.cell, run.repeat)).collect()
    }

    /// Stores the line of a run that was made elsewhere. Returns a line of text if that completes a cell.
    fn keep(&mut self, py: Python<'_>, line: &str) -> PyResult<Option<String>> {
        let plan = &self.plan.get().0;
        let Some(journal) = &mut self.journal else { return Ok(None) };
        py.detach(|| {
            let run = journal.append_text(line)?.run;
            let progress = roost_sweep::progress(plan, journal, run, None)?;
            Ok(progress.line(plan))
        })
        .map_err(|error: SweepError| told(error))
    }

    /// Writes the result.
    fn finish(&mut self, py: Python<'_>) -> PyResult<()> {
        let plan = &self.plan.get().0;
        let Some(journal) = self.journal.take() else { return Ok(()) };
        let result = &self.result;
        py.detach(|| roost_sweep::finish(result, plan, journal, &build::this())).map_err(told)
    }
}

/// Makes runs on separate threads. This thread checks for Ctrl-C and calls `progress`.
fn carry_out(
    py: Python<'_>,
    plan: &roost_sweep::Plan,
    journal: &mut Journal,
    jobs: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<()> {
    let stop = AtomicBool::new(false);
    let (sender, receiver) = channel::<String>();
    // Python's lock is released, so everything used meanwhile must be shareable between threads.
    let receiver = Mutex::new(receiver);
    let receiver = || receiver.lock().unwrap_or_else(PoisonError::into_inner);
    let ended = |progress: &roost_sweep::Progress| {
        if let Some(line) = progress.line(plan) {
            // After an error, nobody receives any more.
            let _ = sender.send(line);
        }
    };
    let watch = Watch { stop: &stop, ended: &ended };
    std::thread::scope(|scope| {
        let made = scope.spawn(|| roost_sweep::carry_out(plan, journal, jobs, &watch));
        let mut failed = None;
        while !made.is_finished() {
            let line = py.detach(|| receiver().recv_timeout(LOOK));
            let told = match (line, &progress) {
                (Ok(line), Some(progress)) => progress.call1(py, (line,)).map(|_| ()),
                _ => Ok(()),
            };
            if let Err(error) = told.and_then(|()| py.check_signals()) {
                stop.store(true, Ordering::Relaxed);
                failed = failed.or(Some(error));
            }
        }
        let made = py.detach(|| made.join());
        if let (None, Some(progress)) = (&failed, &progress) {
            for line in receiver().try_iter() {
                progress.call1(py, (line,))?;
            }
        }
        let made = made.map_err(|_| RoostError::new_err("a run panicked; please report it"))?;
        made.map_err(told)?;
        failed.map_or(Ok(()), Err)
    })
}

/// Reads a result.
#[pyfunction]
fn read(py: Python<'_>, file: PathBuf) -> PyResult<Table> {
    let read = py.detach(|| roost_sweep::read(&file)).map_err(told)?;
    Ok(Table { schema: read.schema, batches: read.batches })
}

/// The summary of a table of runs: means, intervals and changes of each metric.
#[pyfunction]
fn changes(table: &Table) -> PyResult<Table> {
    let changes = Changes::of(&table.schema, &table.batches).map_err(told)?;
    let batch = changes.batch().map_err(told)?;
    Ok(Table { schema: batch.schema(), batches: vec![batch] })
}

/// Writes the page of a table of runs.
#[pyfunction]
fn report(table: &Table, file: PathBuf) -> PyResult<()> {
    let result = roost_sweep::Read { schema: table.schema.clone(), batches: table.batches.clone() };
    let page = HtmlFile::create(&file).map_err(told)?;
    page.write(&roost_sweep::page(&result).map_err(told)?).map_err(told)
}

/// The CPUs of a machine, as in `roost machine --format csv`, with sizes of caches and memory.
#[pyfunction]
fn machine(name: Option<&str>) -> PyResult<Table> {
    let machine = match name {
        Some(name) => roost_machine::resolve(name),
        None => roost_machine::Machine::this(),
    };
    table::of_machine(&machine.map_err(told)?)
}

/// Version and commit.
#[pyfunction]
fn version() -> String {
    build::this().shown()
}

/// The native part of the package.
#[pymodule]
fn _roost(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // The public name of the module, which Ray uses to send the error from a worker.
    let error = module.py().get_type::<RoostError>();
    error.setattr("__module__", "roost")?;
    module.add("RoostError", error)?;
    module.add_class::<Plan>()?;
    module.add_class::<Sweep>()?;
    module.add_class::<Table>()?;
    module.add_function(wrap_pyfunction!(read, module)?)?;
    module.add_function(wrap_pyfunction!(changes, module)?)?;
    module.add_function(wrap_pyfunction!(report, module)?)?;
    module.add_function(wrap_pyfunction!(machine, module)?)?;
    module.add_function(wrap_pyfunction!(version, module)?)
}
