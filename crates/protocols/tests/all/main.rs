//! Tests each published protocol against itself, with nothing in between but a script.

mod fobs;
mod gtp;
mod mtp;
mod pa_udp;
mod rbudp;
mod rudp;
mod rwtp;
mod sabul;
mod shared;
mod tcp;
mod ttp;
mod udt;
