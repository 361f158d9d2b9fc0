//! Calls methods of a law's object with the interpreter's lock, which the thread of the simulation
//! takes for that alone.
//!
//! - What the object raises ends the simulation, which raises it; nothing more is asked of the object.

use std::{
    cell::{Cell, OnceCell},
    collections::HashMap,
    sync::Arc,
};

use farhaul_core::congestion::MAX_MESSAGE;
use pyo3::{call::PyCallArgs, exceptions::PyValueError, prelude::*};

use crate::slot::Classes;

/// The bound methods of an object, by their names.
type Methods = HashMap<String, Py<PyAny>>;

/// One half of a law in one session.
pub(crate) struct Object {
    classes: Option<Arc<Classes>>,
    /// Selects the class of the object.
    half: fn(&Classes) -> Option<&Py<PyAny>>,
    /// Made when it is asked first, since some laws are made only to look at them.
    methods: OnceCell<Methods>,
    raised: Cell<bool>,
}

impl Object {
    pub(crate) const fn new(
        classes: Option<Arc<Classes>>,
        half: fn(&Classes) -> Option<&Py<PyAny>>,
    ) -> Self {
        Self {
            classes,
            half,
            methods: OnceCell::new(),
            raised: Cell::new(false),
        }
    }

    pub(crate) fn has_receiver(&self) -> bool {
        let classes = self.classes.as_ref();
        classes.is_some_and(|classes| classes.receiver.is_some())
    }

    /// Value that `read` makes of what `method` returns; none if the object has none of that name,
    /// or raised.
    pub(crate) fn ask<T>(
        &self,
        method: &str,
        args: impl for<'py> PyCallArgs<'py>,
        read: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>,
    ) -> Option<T> {
        if self.raised.get() {
            return None;
        }
        if self
            .methods
            .get()
            .is_some_and(|known| !known.contains_key(method))
        {
            return None;
        }
        let classes = self.classes.as_ref()?;
        let asked = Python::try_attach(|py| {
            let Some(method) = self.methods(py, classes)?.get(method) else {
                return Ok(None);
            };
            let returned = method.bind(py).call1(args)?;
            read(&returned).map(Some)
        });
        match asked {
            Some(Ok(answer)) => answer,
            Some(Err(error)) => {
                self.raised.set(true);
                classes.raise(error);
                None
            }
            // The interpreter is being shut down.
            None => {
                self.raised.set(true);
                classes.end();
                None
            }
        }
    }

    fn methods(&self, py: Python<'_>, classes: &Classes) -> PyResult<&Methods> {
        if let Some(methods) = self.methods.get() {
            return Ok(methods);
        }
        let made: Methods = match (self.half)(classes) {
            Some(factory) => factory.call0(py)?.extract(py)?,
            None => Methods::new(),
        };
        Ok(self.methods.get_or_init(|| made))
    }
}

/// A message to the other half, or none.
pub(crate) fn message(returned: &Bound<'_, PyAny>) -> PyResult<Option<Vec<u8>>> {
    let bytes: Option<Vec<u8>> = returned.extract()?;
    match bytes {
        Some(bytes) if bytes.len() > MAX_MESSAGE => Err(PyValueError::new_err(format!(
            "message() has at most {MAX_MESSAGE} bytes, not {}",
            bytes.len()
        ))),
        bytes => Ok(bytes),
    }
}
