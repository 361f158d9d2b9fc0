//! Files over a session: manifest, reader, writer, resume journal, digest, progress.
//!
//! One transfer is one byte space: the manifest lists entries, and their contents lie end to end in
//! one object of the session. So small files share datagrams and nothing costs a round trip per
//! file.
//!
//! - for callers: [`client`] (copy), [`server`] (shares), [`Progress`], [`Summary`], [`TransferError`]
//! - the ground: `wire`, every message and what messages carry; imports nothing else of this crate
//! - what two ends agree on: `agreed` (version, features), `requested` (what a server may list)
//! - content: `table` (offsets to entries), `digest` (BLAKE3), `facts` (owners, attributes)
//! - who does it: `scan` (with its `filter`) and `sender`, `receiver` (with its journal), `pool`
//!   (threads), `pages` (their buffers); `plan`, which only reports what they would do
//! - what a side does in one session, whichever of these: `role`; `endpoint` does it
//! - one end is a pipe: `pipe`; ranges of files, without a copy: `read`
//! - how it is slowed down: `brake`; how it uses several parallel sessions: `lanes`
//! - file system calls: `disk`, `confine`; what replaces them in tests, and threads: `host`
//! - what a peer may make this side hold: `bounds`; or the share: `quota`

pub mod client;
pub mod server;

mod agreed;
mod bounds;
mod brake;
mod clean;
mod close_reason;
mod confine;
mod decide;
mod digest;
mod disk;
mod endpoint;
mod error;
mod facts;
mod failure_log;
mod filter;
#[cfg(any(test, feature = "hostile"))]
mod fuzz;
mod host;
mod lacks;
mod lanes;
mod meter;
mod names;
mod pages;
mod pipe;
mod plan;
mod pool;
mod progress;
mod quota;
mod ranges;
mod reach;
mod read;
mod receiver;
mod requested;
mod role;
mod scan;
mod sender;
mod silence;
mod state_names;
mod stripe;
mod summary;
mod table;
mod wire;

#[cfg(test)]
mod hostile;

pub use brake::{Control, HELD};
pub use clean::{Leftover, LeftoverState, clean};
pub use close_reason::{closed_by_server, error_of};
pub use confine::read_whole;
#[doc(hidden)]
pub use disk::{Answer, Call, Disk, Interposer};
pub use error::{Advice, TransferError};
pub use failure_log::Failure;
pub use filter::Filter;
#[cfg(any(test, feature = "hostile"))]
pub use fuzz::{fuzz_grants, fuzz_lanes, fuzz_reads, fuzz_receiver, fuzz_sender, fuzz_server};
#[doc(hidden)]
pub use host::{Simulated, VirtualTime};
pub use lanes::lanes_by_cores;
pub use plan::{ListedStamp, Planned};
pub use progress::{FileOver, Phase, Progress, Reported};
#[doc(hidden)]
pub use receiver::{fuzz_journal, fuzz_journal_records};
pub use requested::means_contents;
pub use scan::{Content, Partition, Shard};
pub use stripe::Striped;
pub use summary::{End, Ended, Files, Handle, Outcome, Rtt, Summary, Verify};
#[doc(hidden)]
pub use wire::fuzz_messages;
pub use wire::{
    Action, Change, Delete, Existing, Exit, MOST_LANES, Mirror, Ordered, Preserve, Shared, Suffix,
    Symlinks, levels, offer, path::is_state,
};
