//! Series of every flow, moment by moment: those that `sim run --out` writes as CSV, as two Arrow
//! tables, of flows and of cross traffic. Columns have the same names, after the run's `case`,
//! `seed` and the name of the flow or traffic.

use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{
    Array as _, ArrayRef, Float64Array, RecordBatch, RecordBatchIterator, StringArray, UInt64Array,
    cast::AsArray as _,
    ffi_stream::FFI_ArrowArrayStream,
    types::{Float64Type, UInt64Type},
};
use arrow_schema::{DataType, Field, Schema, SchemaRef, ffi::FFI_ArrowSchema};
use farhaul_lab::{
    plot::series,
    scenario::{Onlooker, Simulated, label},
};
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

    /// The flows of one run, as `draw` takes them; those of the first run if none is named.
    #[pyo3(signature = (case=None, seed=None))]
    fn tracks(&self, case: Option<&str>, seed: Option<u64>) -> Vec<Named> {
        let mut named = self.batches.iter().filter_map(Drawn::of).peekable();
        let first = named.peek().map(|(run, _)| (run.case.clone(), run.seed));
        let (first_case, _) = first.unwrap_or_default();
        let case = case.unwrap_or(&first_case);
        let mut seed = seed;
        named
            .filter(|(run, _)| run.case == case)
            .filter(|(run, _)| *seed.get_or_insert(run.seed) == run.seed)
            .map(|(run, moments)| (run.flow, moments))
            .collect()
    }

    fn __len__(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }
}

/// A moment of a flow: time, goodput, window, rtt, queue, bytes sent again since the start, episodes of loss; `None` is what
/// is not known.
type Moment = (
    f64,
    Option<f64>,
    Option<f64>,
    Option<f64>,
    Option<f64>,
    Option<f64>,
    Option<f64>,
);

/// A flow by its name.
type Named = (String, Vec<Moment>);

/// A flow of a run.
struct Drawn {
    case: String,
    seed: u64,
    flow: String,
}

impl Drawn {
    /// The flow whose series this is, unless the series is empty, and its moments.
    fn of(batch: &RecordBatch) -> Option<(Self, Vec<Moment>)> {
        let text = |name| Some(batch.column_by_name(name)?.as_string_opt::<i32>()?.value(0));
        let number = |name| {
            let column = batch.column_by_name(name)?;
            column.as_primitive_opt::<Float64Type>()
        };
        let count = |name| {
            let column = batch.column_by_name(name)?;
            column.as_primitive_opt::<UInt64Type>()
        };
        if batch.num_rows() == 0 {
            return None;
        }
        let run = Self {
            case: text("case")?.into(),
            seed: count("seed")?.value(0),
            flow: text("flow")?.into(),
        };
        let (at, goodput) = (number("at")?, number("goodput_bits_per_second")?);
        let (rtt, window) = (number("rtt_ms")?, count("window")?);
        let (queue, repaired) = (count("queue")?, count("repaired")?);
        let episodes = count("episodes")?;
        let mut resent = 0;
        let moment = |row: usize| {
            resent += repaired.value(row);
            let window = Some(window.value(row)).filter(|w| *w < UNLIMITED);
            (
                at.value(row),
                Some(goodput.value(row)),
                window.map(float),
                rtt.is_valid(row).then(|| rtt.value(row)),
                Some(float(queue.value(row))),
                Some(float(resent)),
                Some(float(episodes.value(row))),
            )
        };
        Some((run, (0..batch.num_rows()).map(moment).collect()))
    }
}

/// Windows from here on are no limit.
const UNLIMITED: u64 = 1 << 60;

#[expect(clippy::cast_precision_loss, reason = "drawn")]
const fn float(n: u64) -> f64 {
    n as f64
}

/// Draws flows one above the other on one time axis, as `sim --plot` does; as SVG.
#[pyfunction]
pub(crate) fn draw(title: &str, flows: Vec<Named>) -> PyResult<String> {
    let moment = |(at, goodput, window, rtt, queue, repaired, episodes): Moment| series::Moment {
        at,
        goodput,
        window,
        rtt,
        queue,
        repaired,
        episodes,
    };
    let track = |(name, moments): Named| series::Track {
        name,
        moments: moments.into_iter().map(moment).collect(),
    };
    let tracks: Vec<_> = flows.into_iter().map(track).collect();
    series::svg(title, &tracks).map_err(|e| PyValueError::new_err(e.to_string()))
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
