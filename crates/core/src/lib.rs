//! The sans-IO transport engine of farhaul.
//!
//! It has no clock, socket, thread or file: time is an argument, randomness is handed in, bytes come
//! from and go to a [`store::Store`]. The same sessions therefore run in the simulator and on real
//! sockets. A driver feeds a [`protocol::Session`] and then drains it: `poll_transmit` until `None`,
//! `poll_event` until `None`, then it sleeps until `poll_timeout`.
//!
//! - vocabulary: [`time`], [`units`], [`rng`], [`codec`], [`datagram`], [`store`], [`stats`]
//! - the plug-in contract: [`congestion`] (laws), [`protocol`] (sessions), [`control`] (TCP beside them),
//!   [`app`] (what rides on a session)
//! - how programs and copies end: [`exit`]
//! - words from elsewhere, as they may be shown: [`text`]
//! - receivers that ask for missing ranges: [`pull`]
//! - structures: [`send`], [`recv`], [`loss`], [`rate`], [`path`], [`seq`],
//!   [`stream`]
//! - the state of a session for its application: [`session`]; whether it is alive: [`life`]; ids of
//!   live sessions: [`live`]; the report at the end: [`closing`]; clients that a listener need not
//!   remember: [`cookie`]
//! - numbered packets, range-coded feedback, selective repair: [`arq`]
//! - parts shared by all sessions that are not sealed: [`shell`]

pub mod app;
pub mod arq;
pub mod closing;
pub mod codec;
pub mod congestion;
pub mod control;
pub mod cookie;
pub mod datagram;
pub mod exit;
pub mod layout;
pub mod life;
pub mod live;
pub mod loss;
pub mod path;
pub mod prefix;
pub mod protocol;
pub mod pull;
pub mod rate;
pub mod recv;
pub mod rng;
pub mod rounds;
pub mod send;
pub mod seq;
pub mod session;
pub mod shell;
pub mod stats;
pub mod store;
pub mod stream;
pub mod text;
pub mod time;
pub mod units;
