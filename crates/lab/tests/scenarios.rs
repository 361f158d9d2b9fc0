//! Tests the flagship on paths of every kind, in the simulator: virtual time, one seed, so that
//! every figure is exact and its bound may be tight. Each test prints its figures on stderr (`--
//! --nocapture`); the bounds stand a little below what holds today, and never fall.
//!
//! The runs move gigabytes: `cargo xtask test -E 'binary(scenarios)'`.

#![expect(clippy::cast_precision_loss, reason = "ratios of counts")]

mod scenarios {
    mod cells;
    mod disks;
    mod faults;
    mod fobs;
    mod gtp;
    mod kit;
    mod lanes;
    mod liveness;
    mod mtp;
    mod pa_udp;
    mod policy;
    mod profiles;
    mod queue;
    mod rates;
    mod rbudp;
    mod rudp;
    mod rwtp;
    mod sabul;
    mod sharing;
    mod slow;
    mod stalls;
    mod starts;
    mod tail;
    mod ttp;
    mod udt;
    mod xcp;
}
