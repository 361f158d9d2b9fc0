//! Entry of TCP.

use farhaul_congestion::{Values, lookup};
use farhaul_core::protocol::Descriptor;

use super::{Config, DESCRIPTOR, PARAMETERS, Tcp};
use crate::entry::{Choice, ChoiceError, End, Entry, Made};

/// The law by default.
const LAW: &str = "cubic";

/// The entry.
pub(crate) fn entry() -> Entry {
    Entry::new(&DESCRIPTOR, LAW, true, PARAMETERS, make)
}

fn make(_: &'static Descriptor, choice: &Choice, values: &Values, end: End) -> Made {
    let law = choice.law.as_deref().unwrap_or(LAW);
    let mut law = lookup(law).map_err(ChoiceError::refused)?;
    if let Some(wrap) = &choice.wrap {
        law = law.wrapped(wrap.clone());
    }
    let mut config = Config::new(law, values);
    config.max_rate = choice.max_rate;
    Ok(match end {
        End::Client => Box::new(Tcp::client(config)),
        End::Server => Box::new(Tcp::server(config)),
    })
}
