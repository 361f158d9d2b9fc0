//! How is it chosen by name, in every command of farhaul?

use farhaul_congestion::Values;
use farhaul_core::protocol::{Descriptor, Protocol};
use farhaul_lab::registry::{Choice, ChoiceError, End, Entry};

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

fn make(
    _: &'static Descriptor,
    choice: &Choice,
    _: &Values,
    end: End,
) -> Result<Box<dyn Protocol>, ChoiceError> {
    let law = choice.law.as_deref().unwrap_or(LAW);
    let endpoint = tiny(law, 9_000).map_err(|e| ChoiceError::Refused(e.to_string()))?;
    Ok(Box::new(match end {
        End::Client => endpoint.client_only(),
        End::Server => endpoint,
    }))
}
