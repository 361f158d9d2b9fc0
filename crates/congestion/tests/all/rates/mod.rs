//! Tests laws that think in rates, on a fluid link, without randomness: steady state, start, loss,
//! and the papers' formulas.

#![expect(clippy::cast_precision_loss, reason = "shares of counts")]

mod bbr;
mod daimd;
mod fluid;
mod haul;
mod sabul;
mod tfrc;
