//! Drives a sender by a Python object: a [`CongestionController`] whose methods are those of the
//! object. A method that the object does not have costs nothing. `allowance()` is asked once after
//! each event that the object sees.

use std::{cell::Cell, sync::Arc, time::Duration};

use farhaul_core::{
    congestion::{
        AckEvent, Allowance, CongestionController, FeedbackRequest, LossEvent, PathView,
        RepairOrder,
    },
    time::Instant,
    units::{Rate, Size},
};
use pyo3::{exceptions::PyValueError, prelude::*};

use crate::{
    events::{self, instant, seconds},
    object::{Object, message},
    slot::Classes,
};

/// Allowance before a law was asked, and after it raised.
const CAUTIOUS: Allowance = Allowance {
    window: Size::from_bytes(12_000),
    rate: Rate::mbit(1),
    quantum: Size::from_bytes(12_000),
};

/// The sending half of a law in Python.
pub(crate) struct PyLaw {
    name: &'static str,
    object: Object,
    /// Allowance as last returned; stale after an event that the object has seen.
    allowance: Cell<Allowance>,
    stale: Cell<bool>,
}

impl PyLaw {
    /// Makes a law that makes its object when its session begins.
    pub(crate) const fn new(name: &'static str, classes: Option<Arc<Classes>>) -> Self {
        Self {
            name,
            object: Object::new(classes, |classes| Some(&classes.law)),
            allowance: Cell::new(CAUTIOUS),
            stale: Cell::new(true),
        }
    }

    fn ask<T>(
        &self,
        method: &str,
        args: impl for<'py> pyo3::call::PyCallArgs<'py>,
        read: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>,
    ) -> Option<T> {
        self.object.ask(method, args, read)
    }

    /// Hands an event to the object.
    fn tell(&self, method: &str, args: impl for<'py> pyo3::call::PyCallArgs<'py>) {
        if self.ask(method, args, |_| Ok(())).is_some() {
            self.stale.set(true);
        }
    }
}

/// A time in seconds, or none.
fn duration(returned: &Bound<'_, PyAny>) -> PyResult<Option<Duration>> {
    let seconds: Option<f64> = returned.extract()?;
    let read = |s| {
        Duration::try_from_secs_f64(s).map_err(|e| PyValueError::new_err(format!("{s} s: {e}")))
    };
    seconds.map(read).transpose()
}

impl CongestionController for PyLaw {
    fn name(&self) -> &'static str {
        self.name
    }

    fn on_start(&mut self, now: Instant, path: &PathView) {
        self.tell("on_start", (seconds(now), events::PathView(*path)));
    }

    fn on_close(&mut self, now: Instant) {
        self.tell("on_close", (seconds(now),));
    }

    fn on_sent(&mut self, now: Instant, bytes: Size, path: &PathView) {
        self.tell(
            "on_sent",
            (seconds(now), bytes.bytes(), events::PathView(*path)),
        );
    }

    fn on_ack(&mut self, ack: &AckEvent) {
        self.tell("on_ack", (events::AckEvent(*ack),));
    }

    fn on_loss(&mut self, loss: &LossEvent) {
        self.tell("on_loss", (events::LossEvent(*loss),));
    }

    fn on_timeout(&mut self, now: Instant, backoff: u32) {
        self.tell("on_timeout", (seconds(now), backoff));
    }

    fn on_undo(&mut self, now: Instant) {
        self.tell("on_undo", (seconds(now),));
    }

    fn on_idle_restart(&mut self, now: Instant, idle: Duration) {
        self.tell("on_idle_restart", (seconds(now), idle.as_secs_f64()));
    }

    fn receiver(&self) -> Option<&'static str> {
        self.object.has_receiver().then_some(self.name)
    }

    fn on_message(&mut self, now: Instant, bytes: &[u8]) {
        self.tell("on_message", (seconds(now), bytes.to_vec()));
    }

    fn message(&mut self, now: Instant, into: &mut Vec<u8>) {
        let said = self.ask("message", (seconds(now),), message);
        into.extend(said.flatten().into_iter().flatten());
    }

    fn on_tick(&mut self, now: Instant) {
        self.tell("on_tick", (seconds(now),));
    }

    fn next_tick(&self) -> Option<Instant> {
        self.ask("next_tick", (), instant).flatten()
    }

    fn sample_window(&self) -> Option<Duration> {
        self.ask("sample_window", (), duration).flatten()
    }

    fn feedback_request(&self) -> FeedbackRequest {
        let read = |returned: &Bound<'_, PyAny>| {
            let (interval, packets): (Bound<'_, PyAny>, Option<u32>) = returned.extract()?;
            let interval = duration(&interval)?;
            Ok((interval, packets))
        };
        let (interval, packets) = self.ask("feedback_request", (), read).unwrap_or_default();
        let window = interval.map_or_else(|| self.sample_window(), |_| None);
        FeedbackRequest {
            interval,
            packets,
            ..FeedbackRequest::for_samples(window)
        }
    }

    fn timeout(&self) -> Option<Duration> {
        self.ask("timeout", (), duration).flatten()
    }

    fn repair_order(&self) -> RepairOrder {
        let read = |returned: &Bound<'_, PyAny>| match returned.extract::<&str>()? {
            "first" => Ok(RepairOrder::First),
            "last" => Ok(RepairOrder::Last),
            other => Err(PyValueError::new_err(format!(
                "repair_order() is 'first' or 'last', not '{other}'"
            ))),
        };
        self.ask("repair_order", (), read).unwrap_or_default()
    }

    fn allowance(&self) -> Allowance {
        if self.stale.replace(false) {
            let read =
                |returned: &Bound<'_, PyAny>| Ok(returned.cast::<events::Allowance>()?.get().0);
            if let Some(allowed) = self.ask("allowance", (), read) {
                self.allowance.set(allowed);
            }
        }
        self.allowance.get()
    }
}
