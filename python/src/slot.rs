//! Binds Python classes to laws of the registry. The registry knows functions, which have no room
//! for an object. There are [`SLOTS`] of them, each bound to a place for the classes of one call. A
//! place that is free again is used by the next call; its law stays in the registry, where nobody
//! names it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use farhaul::Cancel;
use farhaul_congestion::{Law, MakeReceiver};
use farhaul_core::congestion::{CongestionController, ReceiverLaw};
use pyo3::{exceptions::PyValueError, prelude::*};
use serde_json::Value;

use crate::{law::PyLaw, receiver::PyReceiver};

/// Laws in Python that simulations of this process may have at a time.
const SLOTS: usize = 16;

/// The classes of one law in one call.
pub(crate) struct Classes {
    /// Makes the sending half, and says which methods it has.
    pub(crate) law: Py<PyAny>,
    /// Class of the receiving half, if the law has one.
    pub(crate) receiver: Option<Py<PyAny>>,
    /// Name under which the law is registered.
    pub(crate) name: &'static str,
    raised: Mutex<Option<PyErr>>,
    cancel: Cancel,
}

impl Classes {
    /// Ends the call, and raises this if it is the call's first exception.
    pub(crate) fn raise(&self, error: PyErr) {
        locked(&self.raised).get_or_insert(error);
        self.end();
    }

    /// Ends the call.
    pub(crate) fn end(&self) {
        self.cancel.cancel();
    }
}

type Place = RwLock<Option<Arc<Classes>>>;

static PLACES: [Place; SLOTS] = [const { RwLock::new(None) }; SLOTS];
/// Held while a call looks for free places: one at a time.
static SEARCH: Mutex<()> = Mutex::new(());

/// Classes in a place.
fn classes(slot: usize) -> Option<Arc<Classes>> {
    let place = PLACES[slot].read();
    place.unwrap_or_else(PoisonError::into_inner).clone()
}

fn put(slot: usize, classes: Option<Arc<Classes>>) {
    let mut place = PLACES[slot].write().unwrap_or_else(PoisonError::into_inner);
    *place = classes;
}

const NAMES: [&str; SLOTS] = [
    "python-0",
    "python-1",
    "python-2",
    "python-3",
    "python-4",
    "python-5",
    "python-6",
    "python-7",
    "python-8",
    "python-9",
    "python-10",
    "python-11",
    "python-12",
    "python-13",
    "python-14",
    "python-15",
];

const fn law<const N: usize>() -> Law {
    Law {
        name: NAMES[N],
        summary: "a law written in Python, of a simulation that is running",
        citation: "docs/python.md",
        parameters: &[],
        paced: false,
        receiver: Some(receivers::<N>),
        make: |_| sender::<N>(),
    }
}

fn sender<const N: usize>() -> Box<dyn CongestionController> {
    Box::new(PyLaw::new(NAMES[N], classes(N)))
}

fn receivers<const N: usize>() -> Box<MakeReceiver> {
    let classes = classes(N);
    Box::new(move || -> Box<dyn ReceiverLaw> {
        Box::new(PyReceiver::new(NAMES[N], classes.clone()))
    })
}

const LAWS: [Law; SLOTS] = [
    law::<0>(),
    law::<1>(),
    law::<2>(),
    law::<3>(),
    law::<4>(),
    law::<5>(),
    law::<6>(),
    law::<7>(),
    law::<8>(),
    law::<9>(),
    law::<10>(),
    law::<11>(),
    law::<12>(),
    law::<13>(),
    law::<14>(),
    law::<15>(),
];

/// A law that a scenario names: its name there, and what makes its halves.
#[derive(FromPyObject)]
pub(crate) struct NamedLaw(String, Py<PyAny>, Option<Py<PyAny>>);

/// The laws of one call, which have their places until it is over.
pub(crate) struct Laws(Vec<Named>);

struct Named {
    /// Name in the scenario.
    name: String,
    slot: usize,
    classes: Arc<Classes>,
}

impl Drop for Named {
    fn drop(&mut self) {
        put(self.slot, None);
    }
}

impl Laws {
    /// Finds places for them.
    pub(crate) fn new(wanted: &[NamedLaw], cancel: &Cancel) -> PyResult<Self> {
        let _search = locked(&SEARCH);
        let mut laws = Vec::new();
        for NamedLaw(name, law, receiver) in wanted {
            let free = (0..SLOTS).find(|slot| classes(*slot).is_none());
            let slot = free.ok_or_else(|| {
                PyValueError::new_err(format!(
                    "simulations of one process have at most {SLOTS} laws in Python at a time: wait for one to end"
                ))
            })?;
            let classes = Python::attach(|py| Classes {
                law: law.clone_ref(py),
                receiver: receiver.as_ref().map(|r| r.clone_ref(py)),
                name: NAMES[slot],
                raised: Mutex::new(None),
                cancel: cancel.clone(),
            });
            let classes = Arc::new(classes);
            put(slot, Some(Arc::clone(&classes)));
            laws.push(Named {
                name: name.clone(),
                slot,
                classes,
            });
            // It may have been used before.
            let known = farhaul_congestion::laws().iter();
            if known.clone().all(|law| law.name != NAMES[slot]) {
                farhaul_congestion::add(LAWS[slot])
                    .map_err(|e| PyValueError::new_err(e.to_string()))?;
            }
        }
        Ok(Self(laws))
    }

    /// True if there are none.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Exception that the first of them raised.
    pub(crate) fn raised(&self) -> Option<PyErr> {
        let mut all = self.0.iter();
        all.find_map(|law| locked(&law.classes.raised).take())
    }

    /// The scenario with the names of the registry.
    pub(crate) fn named(&self, mut scenario: Value) -> Value {
        self.replace(scenario.get_mut("flow"), |law| {
            (&law.name, law.classes.name)
        });
        scenario
    }

    /// Object of `sim run` with the names of the scenario.
    pub(crate) fn renamed(&self, mut object: Value) -> Value {
        for scenario in members(object.get_mut("scenarios")) {
            for case in members(scenario.get_mut("cases")) {
                self.replace(case.get_mut("flows"), |law| (law.classes.name, &law.name));
            }
        }
        object
    }

    fn replace<'a>(
        &'a self,
        flows: Option<&mut Value>,
        names: impl Fn(&'a Named) -> (&'a str, &'a str),
    ) {
        for flow in members(flows) {
            let law = self.0.iter().map(&names);
            if let Some((_, to)) = law.into_iter().find(|(from, _)| flow["law"] == *from) {
                flow["law"] = to.into();
            }
        }
    }
}

fn members(list: Option<&mut Value>) -> impl Iterator<Item = &mut Value> {
    list.and_then(Value::as_array_mut).into_iter().flatten()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
