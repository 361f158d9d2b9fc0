//! Tests PA-UDP against itself, with nothing in between but a script.

#[path = "pa_udp/hostile.rs"]
mod hostile;
#[path = "pa_udp/kit.rs"]
mod kit;
#[path = "pa_udp/transfer.rs"]
mod transfer;
