//! Calls something long from Python, on a thread of its own, with an inbox. The interpreter waits
//! for events and the end with its lock released, and may look after signals in between.
//!
//! - A process that was forked has copies of calls whose threads are in its parent: it must not touch what they share.
//! - A call that nobody waits for any more is cancelled. The thread that drops the call never joins
//!   it, since the call's thread may be waiting for the interpreter's lock.

use std::{
    any::Any,
    collections::BTreeMap,
    ffi::OsString,
    fmt,
    num::NonZeroUsize,
    panic::{AssertUnwindSafe, catch_unwind},
    process,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use farhaul::{
    Cancel, Console, Failure, Level,
    calls::{self, Simulation},
};
use pyo3::{
    exceptions::{PyRuntimeError, PyValueError},
    prelude::*,
};
use serde_json::{Value, json};

use crate::{
    series::{Collected, Table, Tables},
    slot::{Laws, NamedLaw},
};

/// Events that wait to be taken.
const WAITING: usize = 1_024;

/// Selection of a call's events.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Events {
    /// All events: a call waits for a reader who is slow.
    All,
    /// None of progress, and none that finds [`WAITING`] others: nobody may take them for hours.
    Few,
}

/// Messages of a call.
enum Said {
    Event(String),
    Ended(Box<Ended>),
}

/// Ending of a call.
struct Ended {
    result: Result<Value, Failure>,
    series: Option<Tables>,
    /// Exception that a law of the call raised.
    raised: Option<PyErr>,
}

impl Ended {
    const fn without_series(result: Result<Value, Failure>) -> Self {
        Self {
            result,
            series: None,
            raised: None,
        }
    }
}

/// A call that runs, or has ended.
#[pyclass(frozen, weakref, module = "farhaul._farhaul")]
pub(crate) struct Call {
    inbox: Mutex<Option<Receiver<Said>>>,
    ended: Mutex<Option<Box<Ended>>>,
    cancel: Cancel,
    over: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
    process: u32,
}

#[pymethods]
impl Call {
    /// Waits at most `timeout` seconds for the next event, which is JSON; none if there is none, or if it has ended.
    fn next(&self, py: Python<'_>, timeout: f64) -> PyResult<Option<String>> {
        let timeout = Duration::try_from_secs_f64(timeout)
            .map_err(|e| PyValueError::new_err(format!("timeout: {e}")))?;
        if !self.is_here() {
            let text = "this call runs in the process that this one was forked from";
            return Err(PyRuntimeError::new_err(text));
        }
        Ok(py.detach(|| self.wait(timeout)))
    }

    /// True if the call has ended.
    fn ended(&self) -> bool {
        self.over.load(Acquire)
    }

    /// Ends the call, soon.
    fn cancel(&self, py: Python<'_>) {
        py.detach(|| self.end());
    }

    /// Result of the call, once it has ended: JSON, and the series of flows and of cross traffic of
    /// simulations. Raises what a law raised, and an exception of `farhaul.errors` as the command
    /// fails.
    fn result(&self, py: Python<'_>) -> PyResult<Returned> {
        let Some(ended) = unpoisoned(&self.ended).take() else {
            return Err(PyValueError::new_err(
                "it has not ended, or its result was taken",
            ));
        };
        if let Some(raised) = ended.raised {
            return Err(raised);
        }
        let value = ended.result.map_err(|failed| error(py, &failed))?;
        let tables = |(flows, cross)| Ok::<_, PyErr>((Py::new(py, flows)?, Py::new(py, cross)?));
        let series = ended.series.map(tables).transpose()?;
        Ok((value.to_string(), series))
    }
}

/// The program around a command: what it shows goes to the inbox of its call.
struct PyConsole {
    events: Events,
    inbox: SyncSender<Said>,
    cancel: Cancel,
}

impl Console for PyConsole {
    fn event(&self, event: &Value) {
        // Nobody may listen any more.
        match self.events {
            Events::All => drop(self.inbox.send(Said::Event(event.to_string()))),
            Events::Few if event["type"] == "progress" || event["type"] == "file" => {}
            Events::Few => drop(self.inbox.try_send(Said::Event(event.to_string()))),
        }
    }

    fn message(&self, _level: Level, text: &str) {
        self.event(&json!({ "type": "message", "text": text }));
    }

    fn cancel(&self) -> Option<&Cancel> {
        Some(&self.cancel)
    }
}

/// Result of a call: JSON, and two tables.
type Returned = (String, Option<(Py<Table>, Py<Table>)>);

impl Call {
    /// Begins `work`, whose console sends to the inbox.
    fn begin(
        cancel: Cancel,
        events: Events,
        work: impl FnOnce(&Arc<dyn Console>) -> Ended + Send + 'static,
    ) -> PyResult<Self> {
        let (outbox, inbox) = mpsc::sync_channel(WAITING);
        let console: Arc<dyn Console> = Arc::new(PyConsole {
            events,
            inbox: outbox.clone(),
            cancel: cancel.clone(),
        });
        let thread = thread::Builder::new()
            .name("farhaul".into())
            .spawn(move || {
                let ended = catch_unwind(AssertUnwindSafe(|| work(&console)));
                let ended =
                    ended.unwrap_or_else(|panic| Ended::without_series(Err(fault(&*panic))));
                let _unheard = outbox.send(Said::Ended(Box::new(ended)));
            })?;
        Ok(Self {
            inbox: Mutex::new(Some(inbox)),
            ended: Mutex::new(None),
            cancel,
            over: AtomicBool::new(false),
            thread: Mutex::new(Some(thread)),
            process: process::id(),
        })
    }

    /// Begins `command`.
    pub(crate) fn of_command(
        events: Events,
        command: impl FnOnce(&Arc<dyn Console>) -> Result<Value, Failure> + Send + 'static,
    ) -> PyResult<Self> {
        Self::begin(Cancel::new(), events, |console| {
            Ended::without_series(command(console))
        })
    }

    fn end(&self) {
        if self.is_here() {
            self.cancel.cancel();
        }
    }

    /// True if this is the process that began the call.
    fn is_here(&self) -> bool {
        process::id() == self.process
    }

    fn wait(&self, timeout: Duration) -> Option<String> {
        let mut inbox = unpoisoned(&self.inbox);
        match inbox.as_ref()?.recv_timeout(timeout) {
            Ok(Said::Event(event)) => return Some(event),
            Err(RecvTimeoutError::Timeout) => return None,
            Ok(Said::Ended(ended)) => *unpoisoned(&self.ended) = Some(ended),
            Err(RecvTimeoutError::Disconnected) => {}
        }
        // That was its last word: the thread is about to return.
        *inbox = None;
        drop(inbox);
        if let Some(thread) = unpoisoned(&self.thread).take() {
            let _panicked = thread.join();
        }
        self.over.store(true, Release);
        None
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.end();
    }
}

/// A panic as the row `internal` of the table of exit codes.
fn fault(panic: &(dyn Any + Send)) -> Failure {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    let text = text.unwrap_or("it panicked");
    Failure::internal(&format_args!("a fault of farhaul: {text}"))
}

/// The exception of a failure.
fn error(py: Python<'_>, failed: &Failure) -> PyErr {
    let object = failed.object().to_string();
    let (code, text) = (failed.exit.number(), failed.to_string());
    made(py, code, &text, failed.advice(), &object)
}

/// The exception of a row of the table of exit codes, which `farhaul.errors` makes.
pub(crate) fn made(py: Python<'_>, code: u8, text: &str, fix: &str, object: &str) -> PyErr {
    let make = || {
        let errors = py.import("farhaul.errors")?;
        errors.call_method1("_made", (code, text, fix, object))
    };
    match make() {
        Ok(made) => PyErr::from_value(made),
        Err(e) => e,
    }
}

/// A command and its arguments, as Python hands them over.
#[derive(FromPyObject)]
pub(crate) struct Command(String, Vec<(String, Given)>, Vec<OsString>);

/// Value of a keyword.
#[derive(FromPyObject)]
enum Given {
    Switch(bool),
    Text(OsString),
}

impl From<Command> for calls::Call {
    fn from(Command(command, flags, places): Command) -> Self {
        let value = |given| match given {
            Given::Switch(is_on) => calls::Value::Switch(is_on),
            Given::Text(text) => calls::Value::Text(text),
        };
        let flags = flags.into_iter();
        Self {
            command,
            flags: flags.map(|(name, given)| (name, value(given))).collect(),
            places,
        }
    }
}

/// Starts a command, whose `--json` is what it gives; with events of `progress` if somebody takes them.
#[pyfunction]
pub(crate) fn start(command: Command, progress: bool) -> PyResult<Call> {
    let events = if progress { Events::All } else { Events::Few };
    let command = calls::Call::from(command);
    Call::of_command(events, move |console| command.run(console))
}

/// Arguments of `simulate`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Asked {
    file: String,
    text: String,
    is_json: bool,
    seeds: Option<String>,
    case: BTreeMap<String, String>,
    jobs: Option<NonZeroUsize>,
    check: bool,
    laws: Vec<NamedLaw>,
}

impl Asked {
    /// Simulation of the `text` in which laws have the names under which they are registered.
    fn about<'a>(&'a self, text: &'a str) -> Simulation<'a> {
        Simulation {
            file: &self.file,
            text,
            seeds: self.seeds.as_deref(),
            case: &self.case,
            jobs: self.jobs,
            check: self.check,
        }
    }
}

/// The runs that a simulation would make, as JSON.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "it comes from Python")]
pub(crate) fn cells(py: Python<'_>, asked: Asked) -> PyResult<String> {
    let laws = Laws::new(&asked.laws, &Cancel::new())?;
    let found = text_of(&asked, &laws).and_then(|text| calls::cells(&asked.about(&text)));
    match found {
        Ok(cells) => Ok(cells.to_string()),
        Err(failed) => Err(error(py, &failed)),
    }
}

/// Starts a simulation of a scenario, which is TOML or JSON, and whose flows may name laws that are Python classes.
#[pyfunction]
pub(crate) fn simulate(asked: Asked) -> PyResult<Call> {
    let cancel = Cancel::new();
    let laws = Laws::new(&asked.laws, &cancel)?;
    Call::begin(cancel, Events::All, move |console| {
        let series = Collected::beside(!laws.is_empty());
        let result = text_of(&asked, &laws)
            .and_then(|text| calls::simulate(&asked.about(&text), &**console, &series));
        Ended {
            result: result.map(|object| laws.renamed(object)),
            series: Some(series.into()),
            raised: laws.raised(),
        }
    })
}

/// A document that is JSON as TOML.
#[pyfunction]
pub(crate) fn to_toml(document: &str) -> PyResult<String> {
    let document: Value =
        serde_json::from_str(document).map_err(|e| PyValueError::new_err(e.to_string()))?;
    toml::to_string(&document).map_err(|e| PyValueError::new_err(e.to_string()))
}

/// The scenario as TOML, in which Python laws have the names under which they are registered.
fn text_of(asked: &Asked, laws: &Laws) -> Result<String, Failure> {
    if !asked.is_json {
        return Ok(asked.text.clone());
    }
    let refused = |e: &dyn fmt::Display| Failure::usage(format!("{}: {e}", asked.file));
    let document: Value = serde_json::from_str(&asked.text).map_err(|e| refused(&e))?;
    let named = laws.named(document);
    toml::to_string(&named).map_err(|e| refused(&e))
}

fn unpoisoned<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
