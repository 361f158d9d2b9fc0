//! Tests of every law: curves, formulas of papers, steady states, properties and hostile input.

mod curves;
mod drive;
mod hostile;
mod oracles;
mod path;
mod properties;
mod rates;
mod snapshots;
