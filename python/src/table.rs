//! Tables that other libraries can use without copying (Arrow PyCapsule interface).

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::ffi::FFI_ArrowSchema;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchIterator, UInt32Array, UInt64Array};
use arrow_schema::{Field, Schema, SchemaRef};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use roost_machine::Machine;

use crate::told;

/// Columns in batches. Users of `__arrow_c_stream__` share its memory.
#[pyclass(frozen)]
pub struct Table {
    pub schema: SchemaRef,
    pub batches: Vec<RecordBatch>,
}

#[pymethods]
impl Table {
    fn __len__(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// The schema as `ArrowSchema`.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(&*self.schema).map_err(told)?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    /// The table as `ArrowArrayStream`. `requested_schema` is ignored, because the table has only one form.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let batches = self.batches.clone().into_iter().map(Ok);
        let reader = RecordBatchIterator::new(batches, self.schema.clone());
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }
}

/// A table with one row per CPU.
pub fn of_machine(machine: &Machine) -> PyResult<Table> {
    let cpus = || machine.cpus.iter();
    let node = |cpu: &roost_machine::Cpu| &machine.nodes[cpu.node as usize];
    let whole = |values: Vec<u32>| -> ArrayRef { Arc::new(UInt32Array::from(values)) };
    let bytes = |values: Vec<Option<u64>>| -> ArrayRef { Arc::new(UInt64Array::from(values)) };
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("cpu", whole(cpus().map(|cpu| cpu.os_index).collect())),
        ("core", whole(cpus().map(|cpu| cpu.core).collect())),
        ("llc", whole(cpus().map(|cpu| cpu.llc).collect())),
        ("node", whole(cpus().map(|cpu| node(cpu).os_index).collect())),
        ("package", whole(cpus().map(|cpu| cpu.package).collect())),
        ("llc_bytes", bytes(cpus().map(|cpu| machine.llcs[cpu.llc as usize].size_bytes).collect())),
        ("node_memory_bytes", bytes(cpus().map(|cpu| node(cpu).memory_bytes).collect())),
    ];
    let fields = columns.iter().map(|(name, column)| {
        Field::new(*name, arrow_array::Array::data_type(column).clone(), true)
    });
    let metadata = HashMap::from([("roost.machine".to_owned(), machine.name.clone())]);
    let schema = Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), metadata));
    let columns = columns.into_iter().map(|(_, column)| column).collect();
    let batch = RecordBatch::try_new(schema.clone(), columns).map_err(told)?;
    Ok(Table { schema, batches: vec![batch] })
}
