//! Entry in the list of protocols of every command of farhaul.

use farhaul_congestion::Values;
use farhaul_core::protocol::{Descriptor, Protocol as _};
use farhaul_measure::registry::{Choice, ChoiceError, End, Entry, Made};

use crate::tiny;

const LAW: &str = "cubic";

/// What is added to farhaul.
///
/// # Panics
/// If the law that it has by default were none.
pub fn entry() -> Entry {
    let itself = tiny(LAW, 9_000).expect("a known law");
    Entry::new(itself.descriptor(), LAW, false, &[], make)
}

fn make(_: &'static Descriptor, choice: &Choice, _: &Values, end: End) -> Made {
    let law = choice.law.as_deref().unwrap_or(LAW);
    let endpoint = tiny(law, 9_000).map_err(ChoiceError::refused)?;
    Ok(endpoint.boxed(end.accepts()))
}
