//! Series of every flow, moment by moment: those that `sim run --out` writes as CSV, as two Arrow
//! tables, of flows and of cross traffic. Columns have the same names, after the run's `case`,
//! `seed` and the name of the flow or traffic.

use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{
    ArrayRef, Float64Array, RecordBatch, RecordBatchIterator, StringArray, UInt64Array,
    ffi_stream::FFI_ArrowArrayStream,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef, ffi::FFI_ArrowSchema};
use farhaul_lab::scenario::{Onlooker, Simulated, label};
use farhaul_sim::{CrossPoint, Point};
use pyo3::{exceptions::PyValueError, prelude::*, types::PyCapsule};

/// Reader of a column from the points of a series.
enum Read<P> {
    Number(fn(&P) -> f64),
    PerhapsNumber(fn(&P) -> Option<f64>),
    Count(fn(&P) -> u64),
    PerhapsCount(fn(&P) -> Option<u64>),
    Word(fn(&P) -> &'static str),
}

type Column<P> = (&'static str, Read<P>);

const FLOWS: [Column<Point>; 20] = [
    ("at", Read::Number(|p| p.at)),
    (
        "goodput_bits_per_second",
        Read::Number(|p| p.goodput_bits_per_second),
    ),
    ("delivered", Read::Count(|p| p.delivered)),
    ("snd_nxt", Read::Count(|p| p.snd_nxt)),
    ("sent", Read::Count(|p| p.sent)),
    ("dropped", Read::Count(|p| p.dropped)),
    ("repaired", Read::Count(|p| p.repaired)),
    ("retransmits", Read::Count(|p| p.retransmits)),
    ("duplicate_acks", Read::Count(|p| p.duplicate_acks)),
    ("episodes", Read::Count(|p| p.episodes)),
    ("timeouts", Read::Count(|p| p.timeouts)),
    (
        "rate_bits_per_second",
        Read::Number(|p| p.rate_bits_per_second),
    ),
    ("window", Read::Count(|p| p.window)),
    ("ssthresh", Read::PerhapsCount(|p| p.ssthresh)),
    ("peer_window", Read::PerhapsCount(|p| p.peer_window)),
    ("in_flight", Read::Count(|p| p.in_flight)),
    ("rtt_ms", Read::PerhapsNumber(|p| p.rtt_ms)),
    ("rto_ms", Read::PerhapsNumber(|p| p.rto_ms)),
    ("phase", Read::Word(|p| p.phase)),
    ("queue", Read::Count(|p| p.queue)),
];

const CROSS: [Column<CrossPoint>; 4] = [
    ("at", Read::Number(|p| p.at)),
    ("bits_per_second", Read::Number(|p| p.bits_per_second)),
    ("sent", Read::Count(|p| p.sent)),
    ("dropped", Read::Count(|p| p.dropped)),
];

impl<P> Read<P> {
    const fn field(&self) -> (DataType, bool) {
        match self {
            Self::Number(_) => (DataType::Float64, false),
            Self::PerhapsNumber(_) => (DataType::Float64, true),
            Self::Count(_) => (DataType::UInt64, false),
            Self::PerhapsCount(_) => (DataType::UInt64, true),
            Self::Word(_) => (DataType::Utf8, false),
        }
    }

    fn of(&self, points: &[P]) -> ArrayRef {
        let points = points.iter();
        match self {
            Self::Number(read) => Arc::new(points.map(read).collect::<Float64Array>()),
            Self::PerhapsNumber(read) => Arc::new(points.map(read).collect::<Float64Array>()),
            Self::Count(read) => Arc::new(UInt64Array::from_iter_values(points.map(read))),
            Self::PerhapsCount(read) => Arc::new(points.map(read).collect::<UInt64Array>()),
            Self::Word(read) => Arc::new(StringArray::from_iter_values(points.map(read))),
        }
    }
}

/// Schema of a table whose series are of `what`.
fn schema<P>(what: &str, columns: &[Column<P>]) -> SchemaRef {
    let fixed = [
        Field::new("case", DataType::Utf8, false),
        Field::new("seed", DataType::UInt64, false),
        Field::new(what, DataType::Utf8, false),
    ];
    let read = columns.iter().map(|(name, read)| {
        let (kind, nullable) = read.field();
        Field::new(*name, kind, nullable)
    });
    Arc::new(Schema::new(
        fixed.into_iter().chain(read).collect::<Vec<_>>(),
    ))
}

/// Case, seed and whose series it is.
type Whose<'a> = (&'a str, u64, &'a str);

fn batch<P>(
    schema: &SchemaRef,
    (case, seed, name): Whose<'_>,
    columns: &[Column<P>],
    points: &[P],
) -> RecordBatch {
    let same =
        |text| -> ArrayRef { Arc::new(StringArray::from_iter_values(points.iter().map(|_| text))) };
    let seeds = UInt64Array::from_iter_values(points.iter().map(|_| seed));
    let fixed = [same(case), Arc::new(seeds), same(name)];
    let read = columns.iter().map(|(_, read)| read.of(points));
    let arrays = fixed.into_iter().chain(read).collect();
    RecordBatch::try_new(Arc::clone(schema), arrays).expect(
        "columns have one length, and the types of the schema that is made of the same list",
    )
}

/// One run's place among the others, and its series.
#[derive(Debug)]
struct Run {
    place: (usize, u64),
    flows: Vec<RecordBatch>,
    cross: Vec<RecordBatch>,
}

/// The series of the runs that have ended, in any order.
#[derive(Debug)]
pub(crate) struct Collected {
    flows: SchemaRef,
    cross: SchemaRef,
    runs: Mutex<Vec<Run>>,
    /// True if laws in Python are asked meanwhile.
    python: bool,
}

impl Default for Collected {
    fn default() -> Self {
        Self {
            flows: schema("flow", &FLOWS),
            cross: schema("cross", &CROSS),
            runs: Mutex::default(),
            python: false,
        }
    }
}

impl Collected {
    /// Collector for simulations with laws in Python, or without.
    pub(crate) fn beside(python: bool) -> Self {
        Self {
            python,
            ..Self::default()
        }
    }
}

impl Onlooker for Collected {
    /// A thread that the interpreter knows takes its lock faster than one that it meets for the first time at every event.
    fn around(&self, run: &mut (dyn FnMut() + Send)) {
        let attached = self
            .python
            .then(|| Python::try_attach(|py| py.detach(&mut *run)));
        // Nor is it at the interpreter's end.
        if attached.flatten().is_none() {
            run();
        }
    }

    fn ended(&self, run: &Simulated<'_>) {
        let case = label(&run.plan.case);
        let flows = run.plan.drivers.iter().zip(&run.report.flows);
        let flows = flows.map(|(driver, flow)| {
            batch(
                &self.flows,
                (&case, run.seed, &driver.name),
                &FLOWS,
                &flow.series,
            )
        });
        let cross = run.plan.cross.iter().zip(&run.report.cross);
        let cross = cross.map(|(name, cross)| {
            batch(&self.cross, (&case, run.seed, name), &CROSS, &cross.series)
        });
        let run = Run {
            place: (run.number, run.seed),
            flows: flows.collect(),
            cross: cross.collect(),
        };
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.push(run);
    }
}

/// A table that any library of Arrow can read without copying it (the `PyCapsule` interface).
#[pyclass(frozen, module = "farhaul._farhaul")]
pub(crate) struct Table {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

#[pymethods]
impl Table {
    /// The types of its columns.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(&*self.schema);
        let schema = schema.map_err(|e| PyValueError::new_err(e.to_string()))?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    /// Stream of the table's batches. Another schema than its own may be asked for, and is not
    /// given.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let batches = self.batches.clone().into_iter().map(Ok);
        let batches = RecordBatchIterator::new(batches, Arc::clone(&self.schema));
        let stream = FFI_ArrowArrayStream::new(Box::new(batches));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    fn __len__(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }
}

/// Tables of flows, and of cross traffic, in the order of cases and seeds.
pub(crate) type Tables = (Table, Table);

impl From<Collected> for Tables {
    fn from(collected: Collected) -> Self {
        let runs = collected.runs.into_inner();
        let mut runs = runs.unwrap_or_else(PoisonError::into_inner);
        runs.sort_by_key(|run| run.place);
        let (mut flows, mut cross) = (Vec::new(), Vec::new());
        for run in runs {
            flows.extend(run.flows);
            cross.extend(run.cross);
        }
        let table = |schema, batches| Table { schema, batches };
        (table(collected.flows, flows), table(collected.cross, cross))
    }
}
