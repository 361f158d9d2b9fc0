//! Files over a session: manifest, reader, writer, resume journal, digest, progress.

mod confine;
mod digest;
mod error;
mod message;
mod path;
mod pool;
mod progress;
mod ranges;
mod scan;
mod table;

pub use error::{Code, TransferError};
#[doc(hidden)]
pub use message::fuzz_messages;
pub use progress::{Phase, Progress};
