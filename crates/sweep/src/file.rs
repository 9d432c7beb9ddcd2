//! The result of a sweep: one Parquet file.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use roost_report::{Build, Output};

use crate::error::SweepError;
use crate::journal::{Journal, Program};
use crate::plan::{Plan, Run};
use crate::table::{Columns, PLAN_SHA256, VERSION};

/// The journal that keeps the runs until the result is written. It is in the same folder.
fn journal_of(result: &Path) -> PathBuf {
    let mut name = result.as_os_str().to_owned();
    name.push(".journal");
    name.into()
}

/// Writes the runs in `journal` to `result`, in the order of the plan. The file gets its name only when it is complete.
fn write(
    result: &Path,
    plan: &Plan,
    journal: &mut Journal,
    build: &Build,
) -> Result<(), SweepError> {
    let unwritable = |error| SweepError::unwritable(result, error);
    let columns = Columns::of(plan, journal, build)?;
    let output = Output::open(result).map_err(unwritable)?;
    let schema = columns.schema();
    let properties = properties(&schema, build);
    let writer = ArrowWriter::try_new(output, schema, Some(properties));
    let mut writer = writer.map_err(|error| unwritable(io_error(error)))?;
    columns.batches(plan, journal, |batch| {
        writer.write(&batch).map_err(|error| SweepError::unwritable(result, io_error(error)))
    })?;
    let output = writer.into_inner().map_err(|error| unwritable(io_error(error)))?;
    output.publish().and_then(|()| on_disk(result)).map_err(unwritable)
}

/// The metadata of the file. Arrow sorts the keys, so the same runs give the same bytes.
fn properties(schema: &SchemaRef, build: &Build) -> WriterProperties {
    let pairs = schema.metadata().iter();
    let pairs = pairs.map(|(key, value)| KeyValue::new(key.clone(), value.clone())).collect();
    WriterProperties::builder()
        .set_created_by(format!("roost {}", build.version))
        .set_compression(Compression::SNAPPY)
        .set_key_value_metadata(Some(pairs))
        .build()
}

/// Waits until the file and its name are on disk. The journal is removed after that.
fn on_disk(file: &Path) -> io::Result<()> {
    File::open(file)?.sync_all()?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}

/// A result that has been read.
pub struct Read {
    /// Names and types of the columns, with the metadata of the file.
    pub schema: SchemaRef,
    /// The rows.
    pub batches: Vec<RecordBatch>,
}

/// Reads a result.
///
/// # Errors
/// If the file cannot be read, or was not written by a sweep.
pub fn read(result: &Path) -> Result<Read, SweepError> {
    let file = File::open(result).map_err(|error| SweepError::unreadable(result, error))?;
    let no_result = |why: String| SweepError::NoResult { file: result.to_owned(), why };
    let reader = ParquetRecordBatchReaderBuilder::try_new(file);
    let reader = reader.map_err(|error| no_result(error.to_string()))?;
    let schema = reader.schema().clone();
    if !schema.metadata().contains_key(VERSION) {
        return Err(no_result("its metadata name no version of roost".to_owned()));
    }
    let batches = reader.build().map_err(|error| no_result(error.to_string()))?;
    let batches = batches.collect::<Result<_, _>>();
    let batches = batches.map_err(|error| no_result(error.to_string()))?;
    Ok(Read { schema, batches })
}

/// The journal for the runs of `result`. `None`: the file has all of them already.
///
/// # Errors
/// If another file has that name, or the journal cannot be opened.
pub fn begin(
    result: &Path,
    plan: &Plan,
    program: &Program,
    build: &Build,
) -> Result<Option<Journal>, SweepError> {
    let journal = journal_of(result);
    let exists = |file: &Path| file.try_exists().map_err(|e| SweepError::unreadable(file, e));
    if exists(result)? && !exists(&journal)? {
        let same = |read: Read| {
            let metadata = read.schema.metadata();
            metadata.get(PLAN_SHA256) == Some(&plan.sha256())
                && metadata.get(VERSION) == Some(&build.shown())
        };
        return match read(result).is_ok_and(same) {
            true => Ok(None),
            false => Err(SweepError::Exists(result.to_owned())),
        };
    }
    Journal::open(&journal, plan, program).map(Some)
}

/// Writes `result` and removes the journal, if all runs have ended.
///
/// # Errors
/// If some runs have not ended or have failed, or the file cannot be written.
pub fn finish(
    result: &Path,
    plan: &Plan,
    mut journal: Journal,
    build: &Build,
) -> Result<(), SweepError> {
    let (ended, wanted) = (journal.ended().len(), plan.len());
    if ended < wanted {
        return Err(SweepError::Left { ended, wanted, journal: journal_of(result) });
    }
    write(result, plan, &mut journal, build)?;
    let failed = failed(plan, &mut journal)?;
    journal.remove()?;
    let Some((failed, first)) = failed else { return Ok(()) };
    Err(SweepError::RunsFailed { failed, runs: wanted, result: result.to_owned(), first })
}

/// Number of failed runs, and the error of the first one in the plan's order. `None`: no run failed.
///
/// # Errors
/// If the journal cannot be read.
pub fn failed(plan: &Plan, journal: &mut Journal) -> Result<Option<(usize, String)>, SweepError> {
    let failed = journal.ended().iter().filter(|ended| ended.failed).map(|ended| ended.run);
    let failed: Vec<Run> = failed.collect();
    let Some(first) = failed.iter().min() else { return Ok(None) };
    let why = journal.get(*first)?.and_then(Result::err).unwrap_or_default();
    let cell = &plan.cells[first.cell];
    let seed = cell.seeds[first.repeat];
    Ok(Some((failed.len(), format!("{}, seed {seed}: {why}", cell.shown()))))
}
