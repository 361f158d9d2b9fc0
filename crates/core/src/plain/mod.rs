//! Skeleton of a protocol that has nothing but a wire format: no seal, no negotiation, no ordered
//! stream. For studying laws and formats in the simulator and on paths that are trusted: whoever knows
//! an id can speak for its owner.
//!
//! Two ways in: a [`Wire`] (header, report, books) for [`Plain`], which does the rest with the
//! [`arq`](crate::arq) skeleton; or an [`Engine`] of one's own behind a [`PlainSession`].

mod engine;
mod protocol;
mod session;

pub use engine::{ArqEngine, Books, DataHead, Wire};
pub use protocol::{MakeLaw, Plain};
pub use session::{
    Arrived, CLOSE, Engine, HEAD, HELLO, PlainSession, WELCOME, Wrote, head, put_head, route,
};
