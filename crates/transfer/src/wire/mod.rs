//! The wire: every message that two ends exchange, and everything that messages carry. Nothing here
//! imports another part of this crate.
//!
//! - the ordered stream: [`Inbox`] cuts messages out of it, [`Outbox`] collects them for it
//! - [`Message`], its parts ([`Entry`], [`Facts`], [`Stripe`], [`RequestOptions`], [`Mirror`]) and its
//!   counts ([`Tally`], [`Usage`], [`Sending`])
//! - what both ends have: [`Features`], [`Offer`]
//! - how a copy or a file ends: [`Exit`], the exit of a process
//! - `limits`: what decoding insists on; `path`: which names and links may be listed, and which are
//!   reserved

mod access;
mod action;
mod counts;
mod entry;
mod facts;
mod fields;
mod inbox;
pub(crate) mod limits;
mod message;
mod mirror;
mod offer;
mod outbox;
pub(crate) mod path;
mod request;
mod root;
mod stripe;
#[cfg(any(test, feature = "hostile"))]
pub(crate) mod testing;

pub use farhaul_core::exit::Exit;

pub(crate) use access::Direction;
pub use access::{Access, Shared};
pub use action::Action;
pub(crate) use counts::{Sending, Tally, Usage};
pub(crate) use entry::{Entry, Kind, NOT_LISTED};
pub use facts::Preserve;
pub(crate) use facts::{Attribute, Facts, Owner, attributes_len, is_acl};
pub(crate) use fields::Out;
pub(crate) use inbox::Inbox;
pub use inbox::fuzz_messages;
pub use limits::MOST_LANES;
pub(crate) use limits::{
    ATTRIBUTE_NAME, ATTRIBUTES, MOST_ATTRIBUTES, MOST_PATTERN_BYTES, MOST_PLACE_BYTES, MOST_PLACES,
    MOST_SHARDS,
};
pub use message::Change;
pub(crate) use message::{FileVersion, LAST_ID, Message, Token};
pub use mirror::{Delete, Mirror, Suffix, Symlinks};
#[cfg(test)]
pub(crate) use offer::offer_of;
pub(crate) use offer::{Features, NEWEST, OLDEST, Offer, shown_range};
pub use offer::{levels, offer};
pub(crate) use outbox::{Outbox, short};
pub use request::{Existing, Ordered};
pub(crate) use request::{FilterSpec, Place, RequestOptions};
pub(crate) use root::{BLOCK, Hash, Root};
pub(crate) use stripe::{Generation, Stripe};
