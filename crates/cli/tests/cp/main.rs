//! `farhaul cp` against `farhaul serve` on the loopback: real processes, real sockets, real signals.

#![expect(
    clippy::print_stdout,
    reason = "tests; a skipped one says why, a random one its seed"
)]

mod copies;
mod dry;
mod ends;
mod faults;
mod file_systems;
mod first_day;
mod habits;
mod kills;
mod lanes;
mod leftovers;
mod limits;
mod links;
mod lists;
mod many;
mod messages;
mod mirror;
mod odd;
mod pipes;
mod place;
mod policy;
mod retry;
mod selection;
mod several;
mod shards;
mod signals;
mod tickets;
mod unread;
mod versions;
mod watched;
