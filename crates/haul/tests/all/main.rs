//! Tests of sessions of the flagship protocol over scripted paths.

mod credit;
mod drive;
mod halves;
mod hostile;
mod laws;
mod liveness;
mod memory;
mod opening;
mod pair;
mod transfer;
mod vectors;
mod versions;
