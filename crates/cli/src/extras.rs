//! Additions of a program to farhaul: protocols and congestion laws from elsewhere, known by name
//! in every command: `sim`, `bench`, `protocols`, the studies of `lab`.

use farhaul_congestion::Law;
use farhaul_measure::registry::{self, Entry};

use crate::exit::{Exit, Failure};

/// Additions to farhaul.
#[derive(Default)]
pub struct Extras {
    protocols: Vec<Entry>,
    laws: Vec<Law>,
}

impl Extras {
    /// Makes an empty set of additions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds this protocol.
    #[must_use]
    pub fn protocol(mut self, entry: Entry) -> Self {
        self.protocols.push(entry);
        self
    }

    /// Adds this congestion law.
    #[must_use]
    pub fn law(mut self, law: Law) -> Self {
        self.laws.push(law);
        self
    }

    /// Makes the additions known.
    pub(crate) fn add(self) -> Result<(), Failure> {
        let refused = |text: String| Failure::new(Exit::Internal, text);
        for law in self.laws {
            farhaul_congestion::add(law).map_err(|e| refused(e.to_string()))?;
        }
        for entry in self.protocols {
            registry::add(entry).map_err(|e| refused(e.to_string()))?;
        }
        Ok(())
    }
}
