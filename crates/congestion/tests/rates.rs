//! How do the laws fare that think in rates? On a fluid link, without randomness: steady state, start,
//! loss, and what the papers' formulas say.

#![expect(clippy::cast_precision_loss, reason = "shares of counts")]

mod rates {
    mod bbr;
    mod daimd;
    mod fluid;
    mod haul;
    mod sabul;
    mod tfrc;
}
