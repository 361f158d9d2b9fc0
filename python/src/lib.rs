//! Module of farhaul for Python. Calls run on threads of their own and are waited for without the
//! interpreter's lock. Simulations have their series as Arrow, and laws are Python objects.
//! Everything that can be written in Python is in `python/farhaul`.

mod call;
mod events;
mod law;
mod object;
mod reads;
mod receiver;
mod series;
mod slot;

use pyo3::prelude::*;

/// The native half of the package `farhaul`.
#[pymodule]
mod _farhaul {
    use std::ffi::OsString;

    use farhaul::{ExitRow, Extras, calls};
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::{
        call::{Call, cells, simulate, start, to_toml},
        events::{AckEvent, Allowance, Arrival, LossEvent, PathView, RateSample, TxSnapshot},
        reads::{Reads, read_session},
        series::{Table, draw},
    };

    /// A row of the table of exit codes: code, name, whether it is retryable, meaning, fix.
    type Row = (u8, &'static str, bool, &'static str, &'static str);

    /// The table of exit codes.
    #[pyfunction]
    fn exits() -> Vec<Row> {
        let row = |e: ExitRow| (e.code, e.name, e.retryable, e.meaning, e.fix);
        farhaul::exits().map(row).collect()
    }

    /// A flag of a command: name, whether it takes a value, whether it may go without, whether it may be repeated, values
    /// that there are, whether help leaves it out.
    type Flag = (String, bool, bool, bool, Vec<String>, bool);

    /// The flags of the command of this name.
    #[pyfunction]
    fn flags(command: &str) -> Vec<Flag> {
        let row = |f: calls::Flag| {
            (
                f.name, f.value.0, f.value.1, f.repeated, f.choices, f.hidden,
            )
        };
        calls::flags(command).into_iter().map(row).collect()
    }

    /// The program: runs the command line `words`, and returns the exit code. For the main thread, whose process ends then.
    #[pyfunction]
    fn main(py: Python<'_>, words: Vec<OsString>) -> u8 {
        py.detach(|| farhaul::main_of(words, Extras::new()))
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("MOST_READ", calls::MOST_READ)
    }
}
