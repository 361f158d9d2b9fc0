//! Two protocols written with farhaul's public interface alone, as from outside. [`blast`] has negative
//! acknowledgements and is one file. The other is a wire format of
//! variable-length numbers over the engine's `arq` machinery, under any congestion law. What it carries,
//! placed in the simulator or on sockets, is in [`tiny`]; its wire format is in [`TinyWire`].

mod blast;
mod entry;
mod tiny;
mod wire;

pub use blast::entry as blast;
pub use entry::entry;
pub use tiny::{Tiny, tiny};
pub use wire::TinyWire;
