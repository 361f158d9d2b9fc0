//! Reads ranges of files on a server, and changes entries there, for Python. Python asks for many, and one thread takes the
//! answers: bytes, entries, or the exception that it is to raise.

use std::{process, time::Duration};

use farhaul::calls::{self, Change, Found, Listed, Question, Remote, TransferError};
use pyo3::{
    exceptions::{PyRuntimeError, PyValueError},
    prelude::*,
    types::PyBytes,
};
use serde_json::Value;

use crate::call::{Call, Command, Events, made};

/// Answers taken at a time: their content is copied with the interpreter's lock.
const AT_A_TIME: usize = 16;

/// The requests of a session.
#[pyclass(frozen, weakref, module = "farhaul._farhaul")]
pub(crate) struct Reads {
    reads: calls::Reads,
    process: u32,
}

/// Name, kind, bytes, permissions, time of modification in seconds and nanoseconds, target of a link.
type Entry = (Py<PyBytes>, &'static str, u64, u16, i64, u32, Py<PyBytes>);

/// Answers with their numbers.
type Answers = Vec<(u32, Py<PyAny>)>;

/// Starts the session that reads from the server that an `ls` names; the call lasts as long.
#[pyfunction]
pub(crate) fn read_session(command: Command) -> PyResult<(Call, Reads)> {
    let command = calls::Call::from(command);
    let reads = calls::Reads::default();
    let own = reads.clone();
    let call = Call::of_command(Events::Few, move |console| {
        command.read(&**console, &own)?;
        Ok(Value::Null)
    })?;
    let process = process::id();
    Ok((call, Reads { reads, process }))
}

#[pymethods]
impl Reads {
    /// True if the session is open, waiting at most `timeout` seconds for that; raises why it never
    /// was.
    fn opened(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        let timeout = self.time(timeout)?;
        let opened = py.detach(|| self.reads.opened(timeout));
        opened.map_err(|e| raised(py, &e))
    }

    /// Asks about an entry; returns the number of the answer.
    fn stat(&self, py: Python<'_>, share: String, path: Vec<u8>) -> PyResult<u32> {
        self.ask(py, Question::Stat(Remote { share, path }))
    }

    /// Asks for the entries of a folder; returns the number of the answer.
    fn list(&self, py: Python<'_>, share: String, path: Vec<u8>) -> PyResult<u32> {
        self.ask(py, Question::List(Remote { share, path }))
    }

    /// Asks for bytes of a file: `length` of them from `offset` on, or as many as there are.
    fn read(
        &self,
        py: Python<'_>,
        share: String,
        path: Vec<u8>,
        offset: u64,
        length: u64,
    ) -> PyResult<u32> {
        self.ask(py, Question::Read(Remote { share, path }, offset, length))
    }

    /// Asks to remove a file or link, or an empty folder; returns the number of the answer.
    fn remove(&self, py: Python<'_>, share: String, path: Vec<u8>, folder: bool) -> PyResult<u32> {
        let change = if folder {
            Change::RemoveFolder
        } else {
            Change::Remove
        };
        self.ask(py, Question::Change(Remote { share, path }, change))
    }

    /// Asks to make a folder; returns the number of the answer.
    fn make_folder(
        &self,
        py: Python<'_>,
        share: String,
        path: Vec<u8>,
        parents: bool,
    ) -> PyResult<u32> {
        let change = Change::MakeFolder { parents };
        self.ask(py, Question::Change(Remote { share, path }, change))
    }

    /// Asks to move an entry, or to copy a file, within its share, in place of a file that is there;
    /// returns the number of the answer.
    fn give(
        &self,
        py: Python<'_>,
        share: String,
        path: Vec<u8>,
        to: Vec<u8>,
        copy: bool,
    ) -> PyResult<u32> {
        let replace = true;
        let change = if copy {
            Change::Copy { to, replace }
        } else {
            Change::Move { to, replace }
        };
        self.ask(py, Question::Change(Remote { share, path }, change))
    }

    /// Releases an answer that nobody waits for any more.
    fn release(&self, number: u32) {
        if self.is_here() {
            self.reads.release(number);
        }
    }

    /// The next answers with their numbers, waiting at most `timeout` seconds for the first; none if it has ended.
    fn answers(&self, py: Python<'_>, timeout: f64) -> PyResult<Option<Answers>> {
        let timeout = self.time(timeout)?;
        let answers = py.detach(|| self.reads.answers(timeout, AT_A_TIME));
        if answers.is_empty() && self.reads.ended().is_some() {
            return Ok(None);
        }
        let object = |(number, answer)| Ok((number, object(py, answer)?));
        answers
            .into_iter()
            .map(object)
            .collect::<PyResult<_>>()
            .map(Some)
    }

    /// True if the session has ended.
    fn ended(&self) -> bool {
        self.reads.ended().is_some()
    }

    /// Ends the session.
    fn close(&self) {
        if self.is_here() {
            self.reads.close();
        }
    }
}

impl Reads {
    fn is_here(&self) -> bool {
        process::id() == self.process
    }

    fn time(&self, seconds: f64) -> PyResult<Duration> {
        if !self.is_here() {
            let text = "this session is in the process that this one was forked from";
            return Err(PyRuntimeError::new_err(text));
        }
        Duration::try_from_secs_f64(seconds)
            .map_err(|e| PyValueError::new_err(format!("timeout: {e}")))
    }

    fn ask(&self, py: Python<'_>, question: Question) -> PyResult<u32> {
        self.time(0.0)?;
        self.reads.ask(question).map_err(|e| raised(py, &e))
    }
}

fn object(py: Python<'_>, answer: Result<Found, TransferError>) -> PyResult<Py<PyAny>> {
    match answer {
        Ok(Found::Content(bytes, version)) => {
            let content = (PyBytes::new(py, &bytes), version);
            Ok(content.into_pyobject(py)?.into_any().unbind())
        }
        Ok(Found::Entries(all)) => {
            let all: Vec<Entry> = all.into_iter().map(|one| entry(py, &one)).collect();
            Ok(all.into_pyobject(py)?.into_any().unbind())
        }
        Ok(Found::Changed) => Ok(py.None()),
        Err(e) => Ok(raised(py, &e).into_value(py).into_any()),
    }
}

fn entry(py: Python<'_>, one: &Listed) -> Entry {
    let bytes = |bytes: &[u8]| PyBytes::new(py, bytes).unbind();
    let (seconds, nanoseconds) = one.modified;
    (
        bytes(&one.name),
        one.kind,
        one.size,
        one.mode,
        seconds,
        nanoseconds,
        bytes(&one.target),
    )
}

fn raised(py: Python<'_>, e: &TransferError) -> PyErr {
    made(py, e.code.number(), &e.text, &e.fix, "{}")
}
