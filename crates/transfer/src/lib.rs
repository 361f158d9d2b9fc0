//! Files over a session: manifest, reader, writer, resume journal, digest, progress.
//!
//! One transfer is one byte space: the manifest lists entries, and their contents lie end to end in
//! one object of the session. So small files share datagrams and nothing costs a round trip per
//! file.
//!
//! - for callers: [`client`] (copy), [`server`] (shares), [`Progress`], [`Summary`], [`TransferError`]
//! - libudt's file programs: [`samples`]
//! - messages: `message`, `ask`, `inbox` (the ordered stream), `table` (offsets to entries), `digest`
//!   (BLAKE3), `facts` (owners, attributes)
//! - who does it: `scan` (with its `filter`) and `sender`, `receiver` (with its journal), `pool`
//!   (threads), `pages` (their buffers); `plan`, which only reports what they would do
//! - one end is a pipe: `pipe`; ranges of files, without a copy: `read`
//! - how it is slowed down: `brake`; how it uses several parallel sessions: `lanes`
//! - file system calls: `disk`; what replaces it in tests, and that of threads: `host`
//! - what may be named: `path`, `confine`; what a server may list: `asked`; what a peer may make this
//!   side hold: `bounds`; or the share: `quota`

pub mod client;
pub mod samples;
pub mod server;

mod ask;
mod asked;
mod bounds;
mod brake;
mod clean;
mod confine;
mod digest;
mod disk;
mod error;
mod facts;
mod filter;
#[cfg(any(test, feature = "hostile"))]
mod fuzz;
mod half;
mod host;
mod inbox;
mod lacks;
mod lanes;
mod ledger;
mod message;
mod mirror;
mod names;
mod pages;
mod path;
mod pipe;
mod plan;
mod pool;
mod progress;
mod quota;
mod ranges;
mod read;
mod receiver;
mod scan;
mod sender;
mod silence;
mod stripe;
mod summary;
mod table;
mod version;

#[cfg(test)]
mod hostile;

pub use ask::{Existing, Ordered};
pub use asked::means_contents;
pub use brake::{Control, HELD};
pub use clean::{Leftover, LeftoverState, clean};
pub use confine::read_whole;
#[doc(hidden)]
pub use disk::{Answer, Call, Disk, Interposer};
pub use error::{Code, TransferError};
pub use facts::Preserve;
pub use filter::Filter;
#[cfg(any(test, feature = "hostile"))]
pub use fuzz::{fuzz_grants, fuzz_lanes, fuzz_reads, fuzz_receiver, fuzz_sender, fuzz_server};
#[doc(hidden)]
pub use host::{Simulated, VirtualTime};
#[doc(hidden)]
pub use inbox::fuzz_messages;
pub use lanes::{MOST_LANES, lanes_by_cores};
pub use ledger::Failure;
pub use message::{Change, Shared};
pub use mirror::{Delete, Mirror, Suffix, Symlinks};
pub use path::is_state;
pub use plan::{Action, ListedStamp, Planned};
pub use progress::{FileOver, Phase, Progress, Reported};
#[doc(hidden)]
pub use receiver::{fuzz_journal, fuzz_journal_records};
pub use scan::{Content, Partition, Shard};
pub use stripe::Striped;
pub use summary::{End, Exit, Files, Handle, Outcome, Rtt, Summary, Verify};
pub use version::{levels, offer};
