//! Lets a Python object act at a receiver, as the [`ReceiverLaw`] that its law asks for.

use std::{sync::Arc, time::Duration};

use farhaul_core::{
    congestion::{Arrival, ReceiverLaw},
    time::Instant,
};

use crate::{
    events::{self, instant, seconds},
    object::{Object, message},
    slot::Classes,
};

/// The receiving half of a law in Python.
pub(crate) struct PyReceiver {
    name: &'static str,
    object: Object,
}

impl PyReceiver {
    pub(crate) const fn new(name: &'static str, classes: Option<Arc<Classes>>) -> Self {
        Self {
            name,
            object: Object::new(classes, |classes| classes.receiver.as_ref()),
        }
    }

    fn tell(&self, method: &str, args: impl for<'py> pyo3::call::PyCallArgs<'py>) {
        let _told = self.object.ask(method, args, |_| Ok(()));
    }
}

impl ReceiverLaw for PyReceiver {
    fn name(&self) -> &'static str {
        self.name
    }

    fn on_start(&mut self, now: Instant, rtt: Duration) {
        self.tell("on_start", (seconds(now), rtt.as_secs_f64()));
    }

    fn on_arrival(&mut self, arrival: &Arrival) {
        self.tell("on_arrival", (events::Arrival(*arrival),));
    }

    fn on_message(&mut self, now: Instant, bytes: &[u8]) {
        self.tell("on_message", (seconds(now), bytes.to_vec()));
    }

    fn on_tick(&mut self, now: Instant) {
        self.tell("on_tick", (seconds(now),));
    }

    fn next_tick(&self) -> Option<Instant> {
        self.object.ask("next_tick", (), instant).flatten()
    }

    fn message(&mut self, now: Instant, into: &mut Vec<u8>) {
        let said = self.object.ask("message", (seconds(now),), message);
        into.extend(said.flatten().into_iter().flatten());
    }

    fn on_close(&mut self, now: Instant) {
        self.tell("on_close", (seconds(now),));
    }
}
